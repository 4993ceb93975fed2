"""Where each rank's time goes: compute, waiting for its own all-reduces, waiting for other ranks."""

from matplotlib.patches import Patch

from . import style, words
from .values import number, plain, text

NAME = 14  # letters of a schedule's name that are shown


def representatives(scenario):
    """Per model, cluster and grid the first configuration, at its largest number of microbatches: lists of rows."""
    chosen = {}
    for configuration in scenario.configurations:
        rows = [row for row in configuration.rows if row.rank_times()]
        if not rows:
            continue
        first = rows[0].data
        key = tuple(plain(first.get(field)) for field in ("model", "cluster", "tp", "pp", "cp", "dp"))
        largest = max(number(row.microbatches) or 0 for row in rows)
        chosen.setdefault(key, [row for row in rows if (number(row.microbatches) or 0) == largest])
    return list(chosen.values())


def split(rows):
    """`rows` in parts that fit side by side: all bars at least a hair wide, all names legible."""
    ranks = max(len(row.rank_times()) for row in rows) + 1
    name = max(min(NAME, len(row.schedule)) for row in rows) + 1
    most = max(1, int((style.FULL_WIDTH - 0.85) / max(0.02 * ranks, 0.08 * name)))
    return [rows[i : i + most] for i in range(0, len(rows), most)]


def breakdown(scenario, colours):
    del colours  # parts of the time have colours of their own
    chosen = representatives(scenario)
    if not chosen:
        return None
    panels = [
        (part, max(sum(rank) for row in rows for rank in row.rank_times())) for rows in chosen for part in split(rows)
    ]
    legend = [Patch(facecolor=colour, label=name) for name, colour in style.TIME_PARTS]
    bars = max(sum(len(row.rank_times()) + 1 for row in rows) for rows, _ in panels)
    named = max(len(rows) * (max(min(NAME, len(row.schedule)) for row in rows) + 1) for rows, _ in panels)
    least = max(2.0, 0.13 * bars, 0.08 * named)
    columns = style.balanced_columns(len(panels), int((style.FULL_WIDTH - 0.4) / (least + 0.5)))
    available = (style.FULL_WIDTH - 0.85 - 0.5 * (columns - 1)) / columns
    width = min(available, max(least, 0.3 * bars))
    titles = [[*rows[0].configuration.title(34)[:3], f"m {text(rows[0].microbatches)}"] for rows, _ in panels]
    title = 0.14 + 0.15 * max(map(len, titles))
    grid = style.Grid(len(panels), columns, width, 1.9, legend, title=title, gap_y=0.45 + title, bottom=0.65)
    for i, (axes, (rows, longest)) in enumerate(zip(grid.axes, panels)):
        draw_panel(axes, rows, width)
        axes.set_ylim(0, 1.05 * longest if longest > 0 else 1)
        axes.set_title(style.clip_lines(titles[i], 34))
        if grid.last_of_column(i):
            axes.set_xlabel("pipeline rank, by schedule")
        if grid.first_column(i):
            axes.set_ylabel("time of a step, " + words.time_unit(scenario))
    caption = (
        f"One bar per pipeline rank, rank 0 to the left ({scenario.evidence}). TP bubble: the rank's compute waits for "
        "its own all-reduce (exposed TP communication); PP bubble: it waits for another rank. Shown is the first "
        "configuration of each model and grid, at its largest number of microbatches. " + extremes(chosen)
    )
    alt = "Stacked bars of compute, TP bubble and PP bubble per rank and schedule. " + shares(chosen)
    return style.Plot("breakdown", "Time of a step by rank", grid.figure, caption, alt)


def draw_panel(axes, rows, width):
    ticks, minor = [], []
    x = 0
    for row in rows:
        ranks = row.rank_times()
        places = [x + rank for rank in range(len(ranks))]
        bottom = [0.0] * len(ranks)
        for part, (_, colour) in enumerate(style.TIME_PARTS):
            heights = [rank[part] for rank in ranks]
            axes.bar(
                places, heights, 0.9 if len(ranks) <= 16 else 1.0, bottom=bottom, color=colour, linewidth=0, zorder=2
            )
            bottom = [below + height for below, height in zip(bottom, heights)]
        ticks.append((x + (len(ranks) - 1) / 2, style.clip(row.schedule, NAME)))
        minor += [(place, str(rank)) for rank, place in enumerate(places)]
        x += len(ranks) + 1
    if width / x > 0.11:  # else the ranks' numbers would touch
        axes.set_xticks([place for place, _ in minor], minor=True)
        axes.set_xticklabels([label for _, label in minor], minor=True)
        axes.tick_params(axis="x", which="minor", labelsize=7, labelcolor=style.FAINT)
    axes.set_xticks([place for place, _ in ticks])
    axes.set_xticklabels([label for _, label in ticks])
    axes.tick_params(axis="x", which="both", length=0)
    axes.tick_params(axis="x", which="major", pad=12)
    axes.set_xlim(-1, x - 1)
    axes.yaxis.set_major_locator(style.ticks())


def shares(panels, most=12):
    rows = [row for panel in panels for row in panel if row.bubble_share(1) is not None]
    told = "; ".join(
        f"{row.name()}: TP bubble {words.plain_percent(row.bubble_share(1))}, "
        f"PP bubble {words.plain_percent(row.bubble_share(2))}"
        for row in rows[:most]
    )
    return told + ("; and more, see the table." if len(rows) > most else ".")


def extremes(panels):
    """A sentence on the first panel, so that the reader knows how large the parts are."""
    rows = [row for row in panels[0] if row.bubble_share(1) is not None]
    if not rows:
        return ""
    told = "; ".join(
        f"{row.schedule} {words.plain_percent(row.bubble_share(1))} and {words.plain_percent(row.bubble_share(2))}"
        for row in rows[:6]
    )
    return f"TP and PP bubble of the first panel, mean over its ranks: {told}."
