"""Ours against the paper: the scatter of figures and the strips of signed errors."""

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import style, words

UNITS = {"throughput": "samples/s", "memory": "GB"}
NOUNS = {"throughput": "throughput", "memory": "peak memory"}


def markers(fitted, colour):
    """Calibrated rows are open squares, predicted rows full circles."""
    if fitted:
        return {"marker": "s", "s": 30, "facecolor": "none", "edgecolor": colour, "linewidth": 1.4}
    return {"marker": "o", "s": 26, "facecolor": colour, "edgecolor": "white", "linewidth": 0.5}


def kind_handles(rows, name):
    style_of = {
        False: {"marker": "o", "markerfacecolor": style.INK, "label": "predicted"},
        True: {"marker": "s", "markerfacecolor": "none", "label": "calibrated (fitted to)"},
    }
    kinds = sorted({row.fitted(name) for row in rows})
    return [
        Line2D([], [], linestyle="none", markersize=5, markeredgecolor=style.INK, **style_of[kind]) for kind in kinds
    ]


def pairs(scenario, name):
    """Rows with both figures; memory that is the same at every m is taken once."""
    seen = {}
    for row in scenario.rows:
        ours, theirs = row.figure(name), row.published(name)
        if ours is None or theirs is None:
            continue
        key = (row.configuration.label, row.schedule, ours, theirs) if name == "memory" else id(row)
        seen.setdefault(key, row)
    return list(seen.values())


def scatter(scenario, colours):
    names = [name for name in ("throughput", "memory") if pairs(scenario, name)]
    if not names:
        return None
    rows = [row for name in names for row in pairs(scenario, name)]
    schedules = [name for name in scenario.schedules if any(row.schedule == name for row in rows)]
    kinds = {handle.get_label(): handle for name in names for handle in kind_handles(pairs(scenario, name), name)}
    line = Line2D([], [], color=style.FAINT, linewidth=0.9, label="equal")
    band = Patch(facecolor="#e4e4e4", label="tolerance")
    legend = [*style.schedule_handles(schedules, colours), *kinds.values(), line, band]
    grid = style.Grid(len(names), len(names), 4.1, 4.1, legend, gap_x=0.85, title=0.3)
    for axes, name in zip(grid.axes, names):
        draw_scatter(axes, scenario, name, colours)
    tolerances = " and ".join(f"±{100 * scenario.tolerance(name):g} % ({NOUNS[name]})" for name in names)
    caption = (
        f"Each point is a row: the paper's figure to the right, ours ({scenario.evidence}) upwards. Points on the "
        f"line are equal; the grey band is {tolerances}, the tolerance set for the mean. Points above the line: ours "
        "is higher. Open squares were fitted to, full circles are predictions."
    )
    alt = "Scatter plot of our figures against the published ones."
    return style.Plot(
        "scatter",
        "Ours against the paper",
        grid.figure,
        caption,
        alt + "".join(words.alt_error(scenario, name) for name in names),
    )


def draw_scatter(axes, scenario, name, colours):
    rows = pairs(scenario, name)
    top = 1.06 * max(max(row.figure(name), row.published(name)) for row in rows)
    top = top if top > 0 else 1
    tolerance = scenario.tolerance(name)
    axes.fill_between(
        [0, top], [0, top * (1 - tolerance)], [0, top * (1 + tolerance)], color="#e4e4e4", linewidth=0, zorder=1
    )
    axes.plot([0, top], [0, top], color=style.FAINT, linewidth=0.9, zorder=1.5)
    for fitted in (False, True):
        for row in rows:
            if row.fitted(name) == fitted:
                axes.scatter(
                    row.published(name),
                    row.figure(name),
                    zorder=4 if fitted else 3,
                    **markers(fitted, colours[row.schedule]),
                )
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.xaxis.set_major_locator(style.ticks(8))
    axes.yaxis.set_major_locator(style.ticks(8))
    axes.grid(visible=True, axis="both")
    axes.set_xlabel(f"published {NOUNS[name]}, {UNITS[name]}")
    axes.set_ylabel(f"{scenario.evidence} {NOUNS[name]}, {UNITS[name]}")
    axes.set_title(f"{NOUNS[name].capitalize()}: {words.count(len(rows), 'point')}, band ±{100 * tolerance:g} %")


def error_points(scenario, metric):
    """(error, row, fitted) per row: per cent, or points for the gain."""
    if metric == "gain":
        return [(error, row, fitted) for fitted in (False, True) for error, row in words.gain_errors(scenario, fitted)]
    return [
        (100 * row.difference(metric), row, row.fitted(metric))
        for row in pairs(scenario, metric)
        if row.difference(metric) is not None
    ]


def errors(scenario, colours):
    """One strip per configuration; predicted rows above, calibrated rows below, a column per metric."""
    columns = {metric: error_points(scenario, metric) for metric in ("throughput", "gain", "memory")}
    columns = {metric: points for metric, points in columns.items() if points}
    if not columns:
        return None
    everything = [point for points in columns.values() for point in points]
    blocks = []  # (fitted, configurations)
    for fitted in (False, True):
        told = {id(row.configuration) for _, row, in_fit in everything if in_fit == fitted}
        configurations = [c for c in scenario.configurations if id(c) in told]
        if configurations:
            blocks.append((fitted, configurations))
    present = {row.schedule for _, row, _ in everything}
    schedules = [name for name in scenario.schedules if name in present]
    strip = max(0.34, 0.1 * len(schedules) + 0.1)
    gap = 0.45
    heights = [strip * len(configurations) for _, configurations in blocks]
    labels = max(len(style.clip(c.label, 44)) for _, configurations in blocks for c in configurations)
    left = 0.35 + 0.074 * labels
    width = min(2.6, (style.FULL_WIDTH - left - 0.15 - 0.35 * (len(columns) - 1)) / len(columns))
    band = Patch(facecolor="#ececec", label="tolerance of the mean")
    grid = style.Grid(
        len(columns),
        len(columns),
        width,
        sum(heights) + gap * (len(blocks) - 1),
        [*style.schedule_handles(schedules, colours), band],
        left=left,
        gap_x=0.35,
        title=0.3,
    )
    for column, (axes, (metric, points)) in enumerate(zip(grid.axes, columns.items())):
        draw_errors(axes, scenario, metric, points, blocks, gap / strip, schedules, colours)
        axes.set_yticklabels(axes.get_yticklabels() if column == 0 else [])
    caption = (
        "Signed error of every row, ours minus the paper's: right of zero, ours is higher. Full circles above: "
        "predicted rows, which alone count for the verdict; open squares below: rows that the cost model was fitted "
        "to. The grey band is the tolerance of the mean absolute error. A strip whose points lie together on one side "
        "has a common bias, which the gain does not see."
    )
    if any(row.memory_calibrated and not row.calibrated for row in scenario.rows):
        caption += " Memory does not depend on m: what was fitted at one m is calibrated at every m."
    alt = "Strip plots of signed errors by configuration, predicted and calibrated rows apart."
    notes = words.alt_error(scenario, "throughput") + words.gain_note(scenario) + words.alt_error(scenario, "memory")
    return style.Plot("errors", "Signed errors by configuration", grid.figure, caption, alt + notes)


def draw_errors(axes, scenario, metric, points, blocks, gap, schedules, colours):
    tolerance = scenario.tolerance(metric) * (1 if metric == "gain" else 100)
    axes.axvspan(-tolerance, tolerance, color="#ececec", linewidth=0, zorder=0)
    axes.axvline(0, color=style.FAINT, linewidth=0.9, zorder=1)
    y, ticks, labels = 0.0, [], []
    for fitted, configurations in blocks:
        axes.text(
            0,
            y - 0.55,
            "calibrated rows" if fitted else "predicted rows",
            transform=axes.get_yaxis_transform(),
            fontsize=7.5,
            color=style.FAINT,
            va="bottom",
        )
        for configuration in configurations:
            ticks.append(y)
            labels.append(style.clip(configuration.label, 44))
            axes.axhspan(y - 0.5, y + 0.5, facecolor="none", edgecolor=style.GRID, linewidth=0.6, zorder=0.5)
            here = [
                (error, row) for error, row, in_fit in points if in_fit == fitted and row.configuration is configuration
            ]
            for error, row in here:
                offset = (schedules.index(row.schedule) - (len(schedules) - 1) / 2) * 0.72 / len(schedules)
                axes.scatter(error, y + offset, zorder=3, **{**markers(fitted, colours[row.schedule]), "s": 17})
            y += 1
        y += gap
    axes.set_yticks(ticks)
    axes.set_yticklabels(labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(y - gap - 0.5, -0.5)
    largest = max(tolerance, *(abs(error) for error, _, _ in points)) * 1.1
    low = min(-1.25 * tolerance, 1.15 * min(error for error, _, _ in points))
    high = max(1.25 * tolerance, 1.15 * max(error for error, _, _ in points))
    axes.set_xlim(max(low, -largest), min(high, largest) if largest > 0 else 1)
    axes.xaxis.set_major_locator(style.ticks(7))
    axes.grid(axis="y", visible=False)
    axes.grid(visible=True, axis="x")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("gain error, percentage points" if metric == "gain" else f"{NOUNS[metric]} error, %")
