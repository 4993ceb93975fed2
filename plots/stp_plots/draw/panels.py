"""Throughput and memory where there are too many configurations for bars: a panel per model, cluster and length, in it a column per
grid and setting, and a point per schedule."""

from matplotlib.lines import Line2D

from stp_plots.draw import figures, style
from stp_plots.judge import errors
from stp_plots.read.records import QUANTITIES

MOST = 40  # configurations of which bars can be read
COLUMNS = 3  # of panels; up to four stand in two
GRID_GAP = 0.6  # between grids, in columns of points
SPREAD = 0.5  # of a column's points, so that none hides another
PANEL, LABELS = 2.2, 1.1  # heights, inches
POINT = {"marker": "o", "markersize": 3.8, "linestyle": "none"}


def needed(experiment):
    return bool(experiment.settings) and not experiment.unit_costs and not experiment.has_published("time") and experiment.rows["configuration"].nunique() > MOST


def throughput(experiment, colours):
    return _plot(experiment, colours, "throughput", "Throughput")


def memory(experiment, colours):
    return _plot(experiment, colours, "memory", "Peak activation memory")


def _plot(experiment, colours, name, title):
    frame = experiment.figure(name).dropna(subset=["ours"])
    if frame.empty:
        return None
    quantity = QUANTITIES[name]
    # The grid is the last of the parts that all configurations have.
    frame["heading"] = [", ".join(parts[:-1]) for parts in frame["base_parts"]]
    frame["grid"] = [parts[-1] for parts in frame["base_parts"]]
    several = frame.groupby("heading")["m"].nunique()
    settings = [row.parts[len(row.base_parts) :] + ([f"m {row.m}"] if several[row.heading] > 1 else []) for row in frame.itertuples()]
    frame["column"] = [", ".join(parts) for parts in settings]
    panels = [(heading, rows, list(dict.fromkeys(zip(rows["grid"], rows["column"])))) for heading, rows in frame.groupby("heading", sort=False)]
    panels.sort(key=lambda panel: -len(panel[2]))  # panels with the same columns one below the other
    across = COLUMNS if len(panels) > 4 else min(2, len(panels))
    # Columns are named at the bottom of a panel unless the panel below has the same.
    named = [i + across >= len(panels) or panels[i][2] != panels[i + across][2] for i in range(len(panels))]
    heights = [PANEL + LABELS * any(named[i : i + across]) for i in range(0, len(panels), across)]
    figure = style.new_figure(style.FULL_WIDTH, sum(heights) + 0.2)
    grid = style.panels(figure, len(panels), across, height_ratios=heights)
    for axes, (heading, rows, places), labels in zip(grid.flat, panels, named):
        _draw(axes, rows, places, labels, experiment.schedules, colours)
        axes.set_title(heading)
    for axes in grid[:, 0]:
        axes.set_ylabel(quantity.unit)
    handles = figures.legend(experiment, frame.assign(calibrated=False), colours)
    if frame["calibrated"].any():
        handles.append(Line2D([], [], **POINT, color=style.FAINT, markerfacecolor="white", label="calibrated"))
    style.legend(grid[0, -1], handles)
    caption = (
        f"{quantity.title.capitalize()}, {experiment.evidence}: a panel per model, cluster and length, a column per grid and setting, a point "
        "per schedule. Every panel has its own scale, from zero." + errors.note(experiment, name)
    )
    alt = f"Points of {quantity.title} per schedule, by configuration." + errors.note(experiment, name)
    return style.Plot(name, title, figure, caption, alt)


def _draw(axes, rows, places, labels, schedules, colours):
    grids = list(dict.fromkeys(grid for grid, _ in places))
    at = {place: i + GRID_GAP * grids.index(place[0]) for i, place in enumerate(places)}
    for (schedule, calibrated), some in rows.groupby(["schedule", "calibrated"], sort=False):
        aside = SPREAD * ((schedules.index(schedule) + 0.5) / len(schedules) - 0.5)
        x = [at[place] + aside for place in zip(some["grid"], some["column"])]
        axes.plot(x, some["ours"], **POINT, color=colours[schedule], markerfacecolor="white" if calibrated else colours[schedule], zorder=3)
        axes.plot(x, some["published"], **style.PUBLISHED | {"markersize": 3.8, "markerfacecolor": "none"}, zorder=4)
    axes.set_xticks(list(at.values()), [label for _, label in places] if labels else [""] * len(places), rotation=90, fontsize=7)
    for grid in grids:
        ends = [where for (name, _), where in at.items() if name == grid]
        axes.annotate(grid, ((ends[0] + ends[-1]) / 2, 0.02), xycoords=axes.get_xaxis_transform(), ha="center", color=style.FAINT, fontsize=7)
    axes.grid(visible=True, axis="x")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.7, max(at.values()) + 0.7)
    axes.margins(y=0.16)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(style.ticks(5))
