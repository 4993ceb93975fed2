"""Offload against recomputation: throughput over the speed of the link between device and host."""

import numpy as np
from matplotlib.lines import Line2D

from stp_plots import words
from stp_plots.draw import style
from stp_plots.read.records import CONFIGURATION
from stp_plots.words import dictionary, number

LINKS = ("device_to_host_gb_per_s", "host_to_device_gb_per_s")  # values of a profile
COLOURS = ["#0072B2", "#009E73", "#882255", "#E69F00", "#56B4E9"]  # of ratios
STYLES = ["--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))]  # of recomputations
POINTS = 200  # of a curve


class Links:
    """What one schedule does with one model: step times by speed of the link, and without offload.

    `curves`: by offload ratio (speeds in GB/s, step times), both sorted by speed; `others`: by name the step time of rows
    without offload; `samples`: of a step."""

    def __init__(self, rows):
        self.curves, self.others, by_ratio = {}, {}, {}
        for row in rows.itertuples():
            speed, ratio = _speed(row.data), number(row.data.get("offload_ratio"))
            if ratio and speed:
                by_ratio.setdefault(ratio, {})[speed] = row.step_time
            elif not ratio and speed is None:
                self.others[_recomputed(row.data)] = row.step_time
        for ratio, times in by_ratio.items():
            speeds = sorted(times)
            self.curves[ratio] = np.array(speeds), np.array([times[speed] for speed in speeds])
        self.samples = float(rows["ours"].iloc[0] * rows["step_time"].iloc[0])

    def drawable(self):
        return bool(self.others) and any(len(speeds) > 1 for speeds, _ in self.curves.values())

    def fastest(self):
        return max(speeds[-1] for speeds, _ in self.curves.values())

    def time(self, ratio, speed):
        """The step time at a speed between those simulated: a copy takes as long as its link is slow."""
        speeds, times = self.curves[ratio]
        return np.interp(-1 / np.asarray(speed, dtype=float), -1 / speeds, times)

    def crossovers(self, ratio):
        """By recomputation the speed from which on offload is faster, where it is among those simulated."""
        speeds, times = self.curves[ratio]
        found = {}
        for name, alone in self.others.items():
            slower = np.flatnonzero(times > alone)
            if len(slower) and slower[-1] + 1 < len(speeds):
                last = slower[-1]
                share = (alone - times[last]) / (times[last + 1] - times[last])
                found[name] = 1 / (1 / speeds[last] + share * (1 / speeds[last + 1] - 1 / speeds[last]))
        return found


def _speed(data):
    """The speed of a row's links, if it is the row's own and the same both ways."""
    speeds = {number(dictionary(data.get("cluster_values")).get(name)) for name in LINKS}
    speed = speeds.pop() if len(speeds) == 1 else None
    return speed if speed and speed > 0 else None


def _recomputed(data):
    kind = words.text(data.get("recompute", "none"))
    return "nothing offloaded or recomputed" if kind == "none" else f"{kind} recomputed"


def groups(experiment):
    """Per configuration and m of one schedule: its Links, where there are links to compare."""
    frame = experiment.figure("throughput").dropna(subset=["ours", "step_time"])
    if not any(_speed(data) for data in frame["data"]):
        return {}
    found = {key: Links(rows) for key, rows in frame.groupby(["base", "schedule", "m"], sort=False)}
    return {key: links for key, links in found.items() if links.drawable()}


def plot(experiment, colours):
    del colours  # the lines are ratios and recomputations of one schedule
    found = groups(experiment)
    figure = style.new_figure(style.FULL_WIDTH, 3.4 * len(found))
    sentences = []
    for axes, ((base, schedule, m), links) in zip(figure.subplots(len(found), 1, squeeze=False)[:, 0], found.items()):
        sentences += _draw(axes, links)
        grid = dict(zip(CONFIGURATION, base))
        axes.set_title(f"{schedule}, {words.text(grid['model'])}, TP{grid['tp']} PP{grid['pp']}, s {grid['seq']}, m {m}")
    caption = (
        f"Throughput ({experiment.evidence}) over the speed of each GPU's link to the host, the same both ways. Points are rows; between them "
        "step times are interpolated over the time that a byte takes. Rings: where a line of offload crosses one without. " + " ".join(sentences)
    )
    alt = "Line plot of throughput over the speed of the host link, with horizontal lines for recomputation. " + " ".join(sentences)
    return style.Plot("host-links", "Offload against recomputation", figure, caption, alt)


def _draw(axes, links):
    """The lines of one group; a sentence per ratio."""
    crossed = {ratio: links.crossovers(ratio) for ratio in links.curves}
    handles, sentences = [], []
    for (name, time), line in zip(links.others.items(), STYLES * len(links.others)):
        speeds = [f"{found[name]:.0f}" for found in crossed.values() if name in found]
        label = name + (f", crossed at {', '.join(speeds)} GB/s" if speeds else "")
        axes.axhline(links.samples / time, color=style.FAINT, linestyle=line, linewidth=1.2, zorder=2)
        handles.append(Line2D([], [], color=style.FAINT, linestyle=line, linewidth=1.2, label=label))
    for (ratio, (speeds, times)), colour in zip(links.curves.items(), COLOURS * len(links.curves)):
        between = np.geomspace(speeds[0], speeds[-1], POINTS)
        axes.plot(between, links.samples / links.time(ratio, between), color=colour, linewidth=1.6, zorder=3)
        axes.plot(speeds, links.samples / times, "o", color=colour, markersize=4, zorder=4)
        handles.append(Line2D([], [], color=colour, marker="o", markersize=4, linewidth=1.6, label=f"offload, ratio {ratio:g}"))
        for name, speed in crossed[ratio].items():
            axes.plot([speed], [links.samples / links.others[name]], "o", markersize=9, markerfacecolor="none", markeredgecolor=style.INK, zorder=5)
        ones = ", ".join(f"{speed:.0f} GB/s ({name})" for name, speed in crossed[ratio].items())
        sentences.append(f"Offload with ratio {ratio:g} becomes the faster at {ones}." if ones else f"The line of ratio {ratio:g} crosses none.")
    axes.set_xlim(0, 1.04 * links.fastest())
    axes.set_ylim(0, 1.12 * links.samples / min([*links.others.values(), *(times.min() for _, times in links.curves.values())]))
    axes.set_xlabel("link between device and host, GB/s each way")
    axes.set_ylabel("throughput, samples/s")
    axes.xaxis.set_major_locator(style.ticks(8))
    style.legend(axes, handles)
    return sentences
