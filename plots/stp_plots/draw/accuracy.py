"""Ours against published figures: the strips of signed errors."""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from stp_plots.draw import style
from stp_plots.judge import errors
from stp_plots.read.records import GAIN, QUANTITIES

STRIPS = {"throughput": QUANTITIES["throughput"], "time": QUANTITIES["time"], "gain": GAIN, "memory": QUANTITIES["memory"]}
PREDICTED = {"marker": "o", "markeredgecolor": "white", "markeredgewidth": 0.4, "markersize": 5}
CALIBRATED = {"marker": "s", "markerfacecolor": "none", "markeredgewidth": 1.3, "markersize": 4.6}


def _points(axes, frame, x, y, colours):
    """Calibrated rows are open squares, predicted rows full circles."""
    for (schedule, calibrated), group in frame.groupby(["schedule", "calibrated"], sort=False):
        look = CALIBRATED | {"markeredgecolor": colours[schedule]} if calibrated else PREDICTED
        axes.plot(group[x], group[y], color=colours[schedule], linestyle="none", zorder=3 + calibrated, **look)


def _handles(experiment, frames, colours):
    present = {schedule for frame in frames for schedule in frame["schedule"]}
    handles = style.schedule_handles([name for name in experiment.schedules if name in present], colours)
    kinds = {bool(calibrated) for frame in frames for calibrated in frame["calibrated"]}
    for calibrated in sorted(kinds):
        look = CALIBRATED if calibrated else PREDICTED
        handles.append(Line2D([], [], color=style.INK, linestyle="none", **look, label="calibrated" if calibrated else "predicted"))
    return [*handles, Patch(facecolor=style.BAND, label="tolerance\nof the mean")]


def strips(experiment, colours):
    """Signed errors: a strip per configuration, a column per quantity; of gains if the scenario says which."""
    frames = {name: experiment.compared(name) for name in STRIPS if (experiment.asked_gain if name == "gain" else experiment.counted(name))}
    frames = {name: frame for name, frame in frames.items() if len(frame)}
    if not frames:
        return None
    present = set().union(*(frame["configuration"] for frame in frames.values()))
    labels = experiment.rows[experiment.rows["configuration"].isin(present)].groupby("configuration", sort=False)["parts"].first()
    places = {configuration: place for place, configuration in enumerate(labels.index)}
    labels = [style.wrap(parts, 38, 3) for parts in labels]
    lines = max(label.count("\n") + 1 for label in labels)
    figure = style.new_figure(style.FULL_WIDTH, 0.8 + max(0.36, 0.16 * lines) * len(labels))
    grid = figure.subplots(1, len(frames), squeeze=False, sharey=True)[0]
    alone = all(frame.groupby("configuration")["schedule"].nunique().max() == 1 for frame in frames.values())
    offsets = dict.fromkeys(experiment.schedules, 0.0) if alone else dict(zip(experiment.schedules, _spread(len(experiment.schedules))))
    for axes, (name, frame) in zip(grid, frames.items()):
        scale = 1 if name == "gain" else 100
        frame = frame.assign(error=scale * frame["error"], y=frame["configuration"].map(places) + frame["schedule"].map(offsets))
        tolerance = scale * experiment.tolerance(name)
        axes.axvspan(-tolerance, tolerance, color=style.BAND, linewidth=0, zorder=0)
        axes.axvline(0, color=style.FAINT, linewidth=0.9, zorder=1)
        _points(axes, frame, "error", "y", colours)
        axes.set_yticks(np.arange(len(labels) - 1) + 0.5, minor=True)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="y", which="minor", visible=True)
        axes.grid(axis="x", visible=True)
        axes.tick_params(axis="y", which="both", length=0)
        ends = [*(1.1 * frame["error"]), -1.2 * tolerance, 1.2 * tolerance]
        axes.set_xlim(min(ends), max(ends) if max(ends) > min(ends) else 1)
        axes.xaxis.set_major_locator(style.ticks(7))
        over, unit = (f" over {style.clip(experiment.baseline, 20)}", "points") if name == "gain" else ("", "%")
        axes.set_xlabel(f"error of {STRIPS[name].title}{over}, {unit}")
    grid[0].set_yticks(range(len(labels)), labels)
    grid[0].set_ylim(len(labels) - 0.5, -0.5)
    style.legend(grid[-1], _handles(experiment, frames.values(), colours))
    caption = (
        "Signed error of every row, ours minus published: right of zero, ours is higher. Only predicted rows (circles) count for the "
        "verdict; the cost model was fitted to calibrated rows (squares). The grey band is the tolerance of the mean absolute error. "
        "If all points of a row lie on one side, the schedules share an error."
    ) + (" Such an error cancels in the gain." if "gain" in frames else "")
    if (experiment.rows["memory_calibrated"] & ~experiment.rows["calibrated"]).any():
        caption += (" Memory depends only on the number of tokens. So a figure that was fitted at one m or length counts as calibrated "
                    "wherever the number of tokens is the same.")
    notes = errors.note(experiment, "throughput" if "throughput" in frames else "time") + errors.note(experiment, "memory")
    notes += errors.gain_note(experiment) if "gain" in frames else ""
    return style.Plot("errors", "Signed errors by configuration", figure, caption, "Strip plots of signed errors by configuration." + notes)


def _spread(count):
    """Offsets of `count` lines within a strip."""
    return 0.7 * ((np.arange(count) + 0.5) / count - 0.5)
