"""Bars from zero: throughput, step time, gain over the baseline, peak memory, TP communication."""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.patches import Patch

from . import errors, sensitivity, style, words
from .records import QUANTITIES

NAN = math.nan
GROUP_GAP, SECTION_GAP, LEAST_SECTION = 0.7, 1.5, 2.2  # in bars
MOST_BARS = 56  # side by side in one row of a figure, gaps included


@dataclass
class Bar:
    colour: str
    value: float
    published: float = NAN
    calibrated: bool = False
    low: float = NAN  # the line on the bar: from repeats, or the sensitivity's band
    high: float = NAN


@dataclass
class Section:
    """Groups of bars above one label, which is given in parts."""

    parts: list
    groups: list  # (label, bars)

    def bars(self):
        return [bar for _, bars in self.groups for bar in bars]

    def drawn_width(self):
        return len(self.bars()) + GROUP_GAP * (len(self.groups) - 1)

    def width(self):
        """With its gap and room for a label."""
        return max(self.drawn_width(), LEAST_SECTION) + SECTION_GAP


def draw(axes, sections, width, *, signed=False, letters=20):
    """Magnitudes keep zero at the bottom; signed ones show a zero line. `width`: of the axes, in bars; `letters`: of a label
    over a bar's width."""
    placed, groups, middles = [], [], []
    start = 0.0
    for section in sections:
        middle = start + (section.width() - SECTION_GAP) / 2
        middles.append((middle, style.wrap(section.parts, letters * section.width())))
        x = middle - section.drawn_width() / 2
        for label, bars in section.groups:
            placed += [(x + i + 0.5, bar) for i, bar in enumerate(bars)]
            groups.append((x + len(bars) / 2, label))
            x += len(bars) + GROUP_GAP
        start += section.width()
    for calibrated, look in ((False, {"linewidth": 0}), (True, style.CALIBRATED)):
        some = [(at, bar) for at, bar in placed if bar.calibrated == calibrated and not math.isnan(bar.value)]
        if some:
            at, drawn = zip(*some)
            axes.bar(at, [bar.value for bar in drawn], 0.88, color=[bar.colour for bar in drawn], zorder=2, **look)
    ends = np.array([(at, bar.low, bar.high) for at, bar in placed if not math.isnan(bar.low)]).reshape(-1, 3)
    axes.vlines(*ends.T, color="black", linewidth=1, zorder=3)
    axes.plot(ends[:, [0, 0]], ends[:, 1:], color="black", linestyle="none", marker="_", markersize=6, zorder=3)
    axes.plot([at for at, _ in placed], [bar.published for _, bar in placed], **style.PUBLISHED, zorder=4, clip_on=False)
    if any(label for _, label in groups):
        axes.set_xticks([at for at, _ in groups], [label for _, label in groups], minor=True)
    axes.set_xticks([at for at, _ in middles], [label for _, label in middles])
    axes.xaxis.remove_overlapping_locs = False  # a section's label may stand below a group's
    axes.tick_params(axis="x", which="both", length=0)
    axes.tick_params(axis="x", which="major", pad=3 + 12 * max(label.count("\n") + bool(label) for _, label in groups))
    axes.set_xlim(-0.4, max(width, start - SECTION_GAP) + 0.4)
    axes.set_ylim(*extent(bar for _, bar in placed))
    axes.yaxis.set_major_locator(style.ticks())
    if signed:
        axes.axhline(0, color=style.FAINT, linewidth=0.9, zorder=3)


def extent(bars):
    """Lowest and highest value, zero included, with some air; never empty."""
    values = [0.0, *(end for bar in bars for end in (bar.value, bar.published, bar.low, bar.high) if not math.isnan(end))]
    low, high = min(values), max(values)
    air = 0.08 * (high - low)
    return (low - air if low < 0 else 0, high + air) if high > low else (0, 1)


def rows_of(sections):
    """`sections` in rows that fit a figure's width, about equally full."""
    total = sum(section.width() for section in sections)
    most = total / math.ceil(total / MOST_BARS)
    rows, used = [[]], 0.0
    for section in sections:
        if rows[-1] and used + section.width() / 2 > most * len(rows):
            rows.append([])
        rows[-1].append(section)
        used += section.width()
    return rows


def figure(sections, legend, ylabel, xlabel="", *, signed=False, shared=False):
    """Rows of bars; `shared`: at one scale."""
    rows = rows_of(sections)
    width = max(sum(section.width() for section in row) - SECTION_GAP for row in rows)
    inches = min(style.FULL_WIDTH - 2.4, max(3.0, 0.42 * width))
    letters = inches / width / style.LETTER
    lines = max(style.wrap(section.parts, letters * section.width()).count("\n") + 1 for section in sections)
    drawn = style.new_figure(inches + 2.4, len(rows) * (2.0 + 0.14 * lines) + 0.2)
    grid = drawn.subplots(len(rows), 1, squeeze=False, sharey=shared)[:, 0]
    for axes, row in zip(grid, rows):
        draw(axes, row, width, signed=signed, letters=letters)
        axes.set_ylabel(ylabel)
    if shared:
        grid[0].set_ylim(*extent(bar for section in sections for bar in section.bars()))
    grid[-1].set_xlabel(xlabel)
    style.legend(grid[0], legend)
    return drawn


def by_configuration(frame, schedules, colours, group="m"):
    """A section per configuration, in it a group per number of microbatches and a bar per schedule. `frame` may have `low` and
    `high`."""
    sections = []
    for _, configuration in frame.groupby("configuration", sort=False):
        groups = []
        for label, rows in configuration.sort_values("microbatches", kind="stable").groupby(group, sort=False):
            rows = sorted(rows.itertuples(), key=lambda row: schedules.index(row.schedule))
            groups.append((label, [_bar(row, colours[row.schedule]) for row in rows]))
        sections.append(Section(configuration["parts"].iloc[0], groups))
    return sections


def _bar(row, colour):
    return Bar(colour, row.ours, row.published, row.calibrated, getattr(row, "low", NAN), getattr(row, "high", NAN))


def legend(experiment, frame, colours):
    handles = style.schedule_handles([name for name in experiment.schedules if name in set(frame["schedule"])], colours)
    handles += [style.published_handle()] if frame["published"].notna().any() else []
    return handles + ([style.calibrated_handle()] if frame["calibrated"].any() else [])


def notes(experiment, frame):
    """Sentences on what the marks of the plot mean."""
    told = ""
    if frame["calibrated"].any():
        told += " Hatched bars are calibrated: the cost model was fitted to these rows, so their agreement is no evidence."
    if frame["published"].notna().any() and (frame["published"].isna() & frame["ours"].notna()).any():
        told += " Bars without a diamond have no published value."
    if (experiment.rows["repeats"].map(len) > 1).any():
        told += " Thin lines span all repeats."
    return told


def throughput(experiment, colours):
    frame = experiment.figure("throughput").copy()
    repeated = [(row.ours * row.step_time / max(row.repeats), row.ours * row.step_time / min(row.repeats))
                if len(row.repeats) > 1 else (NAN, NAN) for row in frame.itertuples()]  # fmt: skip
    frame["low"], frame["high"] = zip(*repeated)
    if experiment.sensitivity is not None:
        frame.update(experiment.sensitivity.throughput_bands(), overwrite=False)
    caption = (
        f"Bars: {experiment.evidence}; diamonds: published for the same configuration. Every row of bars has its own scale, from "
        "zero." + notes(experiment, frame) + sensitivity.note(experiment) + errors.note(experiment, "throughput")
    )
    drawn = figure(by_configuration(frame, experiment.schedules, colours), legend(experiment, frame, colours), "throughput, samples/s",
                   "microbatches per step, by configuration")  # fmt: skip
    alt = "Bar chart of throughput per schedule and configuration, with published values marked."
    return style.Plot("throughput", "Throughput", drawn, caption, alt + errors.note(experiment, "throughput"))


def step_time(experiment, colours):
    frame = experiment.rows.dropna(subset=["step_time"]).assign(published=NAN, calibrated=False)
    frame["ours"] = frame["step_time"]
    ends = [(min(times), max(times)) if len(times) > 1 else (NAN, NAN) for times in frame["repeats"]]
    frame["low"], frame["high"] = zip(*ends)
    fastest = frame.loc[frame["ours"].idxmin()]
    caption = f"Time of one step ({experiment.evidence}); shorter is better. Nothing is published for these rows." + notes(experiment, frame)
    if len(frame) > 1:
        caption += f" Shortest: {words.magnitude(fastest['ours'])} {experiment.time_unit()} ({fastest['name']})."
    drawn = figure(by_configuration(frame, experiment.schedules, colours), legend(experiment, frame, colours),
                   f"step time, {experiment.time_unit()}", "microbatches per step, by configuration")  # fmt: skip
    return style.Plot("step-time", "Step time", drawn, caption, "Bar chart of step time per schedule and configuration.")


def gain(experiment, colours):
    frame = experiment.figure("gain")
    if frame.empty:
        return None
    if experiment.sensitivity is not None:
        frame = frame.join(experiment.sensitivity.gain_bands())
    over = style.clip(experiment.baseline, 20)
    caption = (
        f"Throughput gained over {experiment.baseline} in the same configuration; all bars have one scale. This is the claim under "
        "test: an error that all schedules share cancels here."
        + notes(experiment, frame) + sensitivity.note(experiment) + errors.gain_note(experiment)
    )  # fmt: skip
    drawn = figure(by_configuration(frame, experiment.schedules, colours), legend(experiment, frame, colours), f"gain over {over}, %",
                   "microbatches per step, by configuration", signed=True, shared=True)  # fmt: skip
    alt = f"Bar chart of the gain over {experiment.baseline} per schedule and configuration." + errors.gain_note(experiment)
    return style.Plot("gain", f"Gain over {experiment.baseline}", drawn, caption, alt)


def memory(experiment, colours):
    frame = experiment.figure("memory").copy()
    # One group stands for all numbers of microbatches where memory does not depend on them.
    alike = frame.groupby(["configuration", "schedule"])[["ours", "published"]].nunique().max(axis=1).groupby("configuration").max()
    frame["told"] = [row.m if alike[row.configuration] > 1 else "" for row in frame.itertuples()]
    frame = frame.drop_duplicates(["configuration", "schedule", "told"])
    diamonds = "; diamonds: published" if frame["published"].notna().any() else ""
    caption = (
        f"Peak activation memory of the rank with peak memory, in decimal gigabytes{diamonds}. One group stands for all numbers of "
        "microbatches unless they are given." + notes(experiment, frame) + errors.note(experiment, "memory")
    )
    drawn = figure(by_configuration(frame, experiment.schedules, colours, "told"), legend(experiment, frame, colours), "peak memory, GB")
    alt = "Bar chart of peak memory per schedule and configuration." + errors.note(experiment, "memory")
    return style.Plot("memory", "Peak memory", drawn, caption, alt)


def tp_share(experiment, colours):
    """A section per model and cluster, a bar per size of the tensor-parallel group."""
    del colours  # schedules have no part in it
    frame = experiment.figure("tp_share").dropna(subset=["ours"])
    if frame.empty:
        return None
    scale, sections = QUANTITIES["tp_share"].scale, {}
    for row in frame.itertuples():
        parts = [words.text(row.data.get("model")), f"on {words.text(row.data.get('cluster'))}", f"s {words.text(row.data.get('seq'))}"]
        group = (f"TP{words.text(row.data.get('tp'))}\n{scale * row.ours:.1f} %", [Bar("#882255", scale * row.ours, scale * row.published)])
        sections.setdefault(tuple(parts), Section(parts, [])).groups.append(group)
    handles = [Patch(facecolor="#882255", label=f"ours, {experiment.evidence}"), style.published_handle()]
    drawn = figure(list(sections.values()), handles, "all-reduces, % of a forward")
    caption = (
        "Share of one layer's forward that its two all-reduces take where nothing overlaps them. Bars without a diamond have no "
        "published value." + errors.note(experiment, "tp_share")
    )
    alt = "Bar chart of the share of TP communication in a layer's forward, by size of the tensor-parallel group."
    return style.Plot("tp-share", "TP communication in a forward", drawn, caption, alt)
