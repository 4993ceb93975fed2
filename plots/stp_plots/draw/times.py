"""Many configurations whose steps others measured: published against our own times."""

from matplotlib.lines import Line2D

from stp_plots.draw import style
from stp_plots.draw.panels import MOST
from stp_plots.judge import errors
from stp_plots.judge.measurements import OVER_LARGER, OVER_SMALLER, by, contradicting, order

LOOKS = {1: ("#0072B2", "o"), 2: ("#E69F00", "s"), 4: ("#009E73", "^"), 8: ("#CC79A7", "D")}  # by TP
OTHERS = (style.INK, "v")


def needed(experiment):
    """Whether times are published of more configurations than bars can be read of."""
    return experiment.has_published("time") and experiment.rows["configuration"].nunique() > MOST


def plot(experiment, _colours):
    """Published times to the right, ours upwards, a colour per TP."""
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
        f"{100 * experiment.pairs_apart:g} %, {right} of {pairs} are in the published order."
    )
    return style.Plot("times", "Published and our own step times", figure, caption, "Scatter plot of our step times against published ones, by TP.")
