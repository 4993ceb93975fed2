"""Many configurations whose steps others measured: which of them contradict each other, whether ours are in the same order, and a plot
of published against our own times."""

import itertools

from matplotlib.lines import Line2D

from stp_plots import words
from stp_plots.draw import style
from stp_plots.draw.panels import MOST
from stp_plots.judge import errors
from stp_plots.judge.null_model import GAP
from stp_plots.words import items, number

# More of a step's time per sample and slot than at a smaller microbatch, or at a larger one, contradicts these: larger
# microbatches make larger GEMMs, and fewer launches and messages.
OVER_SMALLER, OVER_LARGER = 0.05, 0.2
GRID = ("model", "cluster", "seq", "tp", "pp", "cp", "dp", "recompute", "sequence_parallel")
LOOKS = {1: ("#0072B2", "o"), 2: ("#E69F00", "s"), 4: ("#009E73", "^"), 8: ("#CC79A7", "D")}  # by TP
OTHERS = (style.INK, "v")


def needed(experiment):
    """Whether times are published of more configurations than bars can be read of."""
    return experiment.has_published("time") and experiment.rows["configuration"].nunique() > MOST


def contradicting(rows):
    """By row of a figure of step time, whether its published time contradicts another one of the same grid."""
    grids = {}
    for row in rows.itertuples():
        size, ranks = row.data.get("microbatch_size", 1), row.data.get("pp", 1)
        chunks = max(1, len(items(row.data.get("layers_per_chunk"))) // ranks)
        time = row.published / ((row.microbatches + (ranks - 1) / chunks) * size)
        grids.setdefault((row.schedule, *(row.data.get(field) for field in GRID)), []).append((row.Index, size, time))
    return rows.index.isin([
        index for grid in grids.values() for index, size, time in grid
        if any(time > (1 + (OVER_SMALLER if other < size else OVER_LARGER)) * least for _, other, least in grid if other != size)
    ])  # fmt: skip


def order(experiment):
    """Of the pairs of configurations of one model whose published throughputs differ by more than GAP: (in the same order, all)."""
    frame = experiment.compared("throughput")
    pairs = [
        (one.published - two.published) * (one.ours - two.ours) > 0
        for _, rows in frame[~frame["calibrated"]].groupby(lambda index: frame["data"][index].get("model"))
        for one, two in itertools.combinations(rows.itertuples(), 2)
        if abs(one.published - two.published) > GAP * min(one.published, two.published)
    ]
    return sum(pairs), len(pairs)


def by(rows, field):
    """The mean absolute error per value of a field of the rows, in words."""
    means = rows["error"].abs().groupby([number(data.get(field)) for data in rows["data"]])
    return ", ".join(f"{words.plain_percent(some.mean())} at {field.upper()}{value:g} ({len(some)})" for value, some in means)


def times(experiment, colours):
    """Published times to the right, ours upwards, a colour per TP."""
    del colours  # not by schedule
    frame = experiment.compared("time")
    frame = frame.assign(tp=[data.get("tp", 1) for data in frame["data"]], contradicts=contradicting(frame))
    low, high = frame[["published", "ours"]].to_numpy().min() / 1.15, frame[["published", "ours"]].to_numpy().max() * 1.15
    figure = style.new_figure(6.6, 5)
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.plot([low, high], [low, high], color=style.FAINT, linewidth=0.9, zorder=1)
    handles = [Line2D([], [], color=style.FAINT, linewidth=0.9, label="both equal")]
    for (tp, contradicts), rows in frame.groupby(["tp", "contradicts"]):
        colour, marker = LOOKS.get(tp, OTHERS)
        look = {"marker": marker, "color": colour, "markersize": 5, "linestyle": "none", "markerfacecolor": "none" if contradicts else colour}
        axes.plot(rows["published"], rows["ours"], **look, alpha=0.85, zorder=3)
        handles += [] if contradicts else [Line2D([], [], **look, label=f"TP{tp}")]
    if frame["contradicts"].any():
        handles.append(Line2D([], [], marker="o", color=style.INK, markersize=5, linestyle="none", markerfacecolor="none", label="contradicts others"))
    for axis in (axes.xaxis, axes.yaxis):
        style.log_axis(axis, low, high)
    axes.grid(visible=True, axis="both")
    axes.set_xlabel("published step time, s")
    axes.set_ylabel(f"{experiment.evidence} step time, s")
    style.legend(axes, handles)
    right, pairs = order(experiment)
    caption = (
        f"A point per row, both axes logarithmic: published to the right, ours ({experiment.evidence}) upwards; below the line ours is the "
        f"shorter. Open points contradict others of the same model and grid: their time per sample and slot of the pipeline is over "
        f"{100 * OVER_SMALLER:g} % more than at a smaller microbatch, or over {100 * OVER_LARGER:g} % more than at a larger one."
        f"{errors.note(experiment, 'time')} Mean: {by(frame, 'tp')}. Of pairs of configurations of one model that differ by over "
        f"{100 * GAP:g} %, {right} of {pairs} are in the published order."
    )
    return style.Plot("times", "Published and our own step times", figure, caption, "Scatter plot of our step times against published ones, by TP.")
