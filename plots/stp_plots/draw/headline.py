"""The first screen's plot: the gains that the claims are about."""

import math

from matplotlib.lines import Line2D

from stp_plots import words
from stp_plots.draw import style
from stp_plots.judge import null_model

GAP, LEAST = 1.2, 3.0  # between configurations, and the width of one, in points
WIDEST = 36  # the width of a line of panels, and of the legend behind the last one
LEGEND = 10
OURS, NULL = "#009E73", "#999999"


def gains(experiment):
    """The gains of the schedule in question that are published, with `low`, `high` and `null` where they are known."""
    rows = experiment.compared("gain")
    rows = rows[rows["schedule"] == experiment.gained]
    rows = rows.assign(low=math.nan, high=math.nan, null=math.nan)
    if experiment.sensitivity is not None:
        rows.update(experiment.sensitivity.gain_bands())
    if null_model.has(experiment):
        rows.update(null_model.gain_errors(experiment, experiment.gained)[["null"]])
    return rows.sort_values(["configuration", "microbatches"], kind="stable")


def plot(experiments):
    """Of the experiments with a null model, or else all, whose gain is that of the first; None unless one has published gains."""
    chosen = [one for one in experiments if null_model.has(one)] or experiments
    panels = [(one, gains(one)) for one in chosen if not one.settings and one.has_published("throughput")]
    panels = [(one, rows) for one, rows in panels if len(rows)]
    if not panels:
        return None
    first = panels[0][0]
    panels = [(one, rows) for one, rows in panels if (one.gained, one.baseline) == (first.gained, first.baseline)]
    lines = _lines(panels)
    figure = style.new_figure(style.FULL_WIDTH, 3.3 * len(lines))
    grid = []
    for part, line in zip(figure.subfigures(len(lines), 1, squeeze=False)[:, 0], lines):
        sizes = [_width(rows) for _, rows in line]
        *row, rest = part.subplots(1, len(sizes) + 1, width_ratios=[*sizes, max(WIDEST - sum(sizes), 0.1)])
        rest.set(xticks=[], yticks=[])
        rest.set_axis_off()
        for axes, (one, rows), size in zip(row, line, sizes):
            _draw(axes, rows)
            title = one.title.partition(" (")[0]
            axes.set_title(title if len(title) < 2.5 * size else one.id, loc="left")
        row[0].set_ylabel(f"gain of {first.gained} over {first.baseline}, %")
        for axes in row[1:]:
            axes.tick_params(labelleft=False)
        grid += row
    ends = [axes.get_ylim() for axes in grid]
    for axes in grid:
        axes.set_ylim(min(0, *(low for low, _ in ends)), max(high for _, high in ends))
    bands = any(rows["low"].notna().any() for _, rows in panels)
    null = any(rows["null"].notna().any() for _, rows in panels)
    handles = [style.published_handle(), Line2D([], [], **_look(False), label=first.evidence)]
    handles += [Line2D([], [], **_look(True), label="the same, calibrated")] if any(rows["calibrated"].any() for _, rows in panels) else []
    change = first.sensitivity.change if first.sensitivity else "20 %"
    upright = {"linestyle": "none", "marker": "|", "markersize": 11, "markeredgewidth": 1.4}  # as in the plot
    handles += [Line2D([], [], color=OURS, **upright, label=f"its band, profile ±{change}")] if bands else []
    handles += [Line2D([], [], color=NULL, linewidth=2.2, label="null model")] if null else []
    rest.legend(handles=handles, loc="upper left")
    caption = "Within a configuration m grows to the right; s is the sequence length times the microbatch size."
    if bands:
        caption += f" Upright lines at the largest m: the band from ±{change} on each value of the hardware profile (shares at most 1), taken as independent."
    if null:
        caption += " Null model: the published gain of the calibrated row of the same TP (of any, where there is none), without a bubble."
    alt = f"Published and simulated gains of {first.gained} over {first.baseline} by configuration, with bands."
    return style.Plot("headline", f"Gain of {first.gained} over {first.baseline}: published and ours", figure, caption, alt)


def _width(rows):
    return sum(GAP + max(LEAST, size) for size in rows.groupby("configuration").size())


def _lines(panels):
    """The panels in lines no wider than WIDEST, unless one alone is; the last leaves room for the legend."""
    lines, width = [], math.inf
    for panel in panels:
        own = _width(panel[1])
        width += own
        if width > WIDEST - (LEGEND if panel is panels[-1] else 0):
            lines.append([])
            width = own
        lines[-1].append(panel)
    return lines


def _look(calibrated):
    return {"marker": "o", "markersize": 6, "linestyle": "none", "color": OURS, "markeredgewidth": 1.4,
            "markerfacecolor": "white" if calibrated else OURS}  # fmt: skip


def _draw(axes, rows):
    at, middles = 0.0, []
    for _, group in rows.groupby("configuration", sort=False):
        width = max(LEAST, len(group))
        for place, row in enumerate(group.itertuples()):
            x = at + (width - len(group)) / 2 + place
            axes.plot([x - 0.4, x + 0.4], [row.null, row.null], color=NULL, linewidth=2.2, zorder=2)
            axes.plot([x, x], [row.low, row.high], color=OURS, linewidth=1.4, zorder=2.5)
            axes.plot(x, row.ours, **_look(row.calibrated), zorder=3)
            axes.plot(x, row.published, **style.PUBLISHED | {"markerfacecolor": "none"}, zorder=4)  # ours may lie behind
        model, *rest = group["parts"].iloc[0]
        label = "\n".join([words.text(model), *(line for part in rest for line in part.split(" ", 0 if part.startswith("s ") else 1))])
        middles.append((at + (width - 1) / 2, label))
        at += width + GAP
    axes.set_xticks([x for x, _ in middles], [label for _, label in middles], fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.8, at - GAP - 0.2)
    axes.yaxis.set_major_locator(style.ticks())
    axes.axhline(0, color=style.FAINT, linewidth=0.9, zorder=1)
