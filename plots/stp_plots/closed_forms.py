"""What the paper gives in closed form, against the suite's counts, over the number of pipeline ranks."""

from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from . import style, words
from .breakdown import representatives
from .records import CONFIGURATION
from .values import number, text, unit_costs

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_BREAKDOWNS = 8  # panels of a breakdown that still can be read beside these plots
WAYS = {"idle": "idle time of the step", "chunks": "peak activations"}
CLOSED = {"linestyle": (0, (3.2, 2.2)), "linewidth": 1.2}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Panel:
    """Rows of one set of unit costs; they differ in schedule and pipeline ranks."""

    def __init__(self):
        self.title = self.letter = ""
        self.rows = {}  # by schedule and pipeline ranks

    def add(self, row):
        """Of several numbers of microbatches, the largest stays."""
        key = (row.schedule, number(row.data.get("pp")))
        held = self.rows.get(key)
        if held is None or (number(row.microbatches) or 0) > (number(held.microbatches) or 0):
            self.rows[key] = row

    def series(self, schedule):
        """(pipeline ranks, row) of a schedule, by the ranks."""
        return sorted(((pp, row) for (name, pp), row in self.rows.items() if name == schedule), key=lambda p: p[0])


def legible(scenario):
    """Whether a breakdown of all grids can be read."""
    return len(representatives(scenario)) <= MOST_BREAKDOWNS


def gather(scenario, name):
    """The panels of a figure, with all rows that have it on both sides."""
    panels = {}
    for row in scenario.rows:
        if row.figure(name) is None or row.published(name) is None or number(row.data.get("pp")) is None:
            continue
        key = row.configuration.key
        rest = tuple(value for i, value in enumerate(key) if i != CONFIGURATION.index("pp"))
        panels.setdefault(rest, Panel()).add(row)
    for i, panel in enumerate(panels.values()):
        panel.letter = LETTERS[i] if i < len(LETTERS) else str(i + 1)
        panel.title = title(scenario, list(panel.rows.values()))
    return list(panels.values())


def title(scenario, rows):
    """The unit costs of a panel's rows, and whatever else tells it from other panels."""
    data = rows[0].data
    costs = {unit_costs(row.data) for row in rows}
    # Chunks of unlike sizes have no costs in common, their layers have.
    parts = [costs.pop() if len(costs) == 1 else unit_costs({**data, "layers_per_chunk": None})]
    fields = [*CONFIGURATION, *scenario.extra_fields]
    told = [field for field in fields if field != "pp" and (field in scenario.varied or field in scenario.extra_fields)]
    parts += [f"{field} {text(data.get(field))}" for field in told]
    return ", ".join(part for part in parts if part) or scenario.title


def closed_forms(scenario, colours):
    idle, chunks = gather(scenario, "idle"), gather(scenario, "chunks")
    if not idle and not chunks:
        return None
    present = {name for panel in idle + chunks for name, _ in panel.rows}
    schedules = [name for name in scenario.schedules if name in present]
    looks = {
        name: {
            "color": colours[name],
            "marker": MARKERS[i % len(MARKERS)],
            # What lies on top is thinner, so that equal lines are both seen.
            "linewidth": max(1.0, 2.4 - 0.5 * i),
            "markersize": max(3.6, 6.0 - 0.6 * i),
        }
        for i, name in enumerate(schedules)
    }
    legend = [Line2D([], [], **looks[name], label=style.clip(name, 30)) for name in schedules]
    legend += [
        Line2D([], [], color=style.INK, linewidth=1.4, marker="o", markersize=4, label="ours"),
        Line2D([], [], color=style.INK, **CLOSED, label="closed form"),
    ]
    axes, grid = layout(len(idle), bool(chunks), legend)
    lettered = len(idle) > 1
    for place, panel in zip(axes, idle):
        draw(place, "idle", [panel], schedules, looks)
        place.set_title(style.clip(f"{panel.letter}: {panel.title}" if lettered else panel.title, 68))
    for i, place in enumerate(axes[: len(idle)]):
        if grid.first_column(i):
            place.set_ylabel("idle time, " + words.time_unit(scenario))
        if i + grid.columns >= len(idle):
            place.set_xlabel("pipeline ranks")
    if chunks:
        draw(axes[-1], "chunks", chunks, schedules, looks)
        axes[-1].set_title("Peak activations of the fullest rank" + (", all unit costs" if len(chunks) > 1 else ""))
        axes[-1].set_ylabel("chunks")
        axes[-1].set_xlabel("pipeline ranks")
    caption = (
        f"Solid: ours ({scenario.evidence}); dashed: the paper's closed form"
        f"{cited(scenario)}. Where no dashed line is seen, it lies on the solid one."
        + (" Every panel has its own scale, from zero; its title gives the costs of one chunk." if idle else "")
        + told(scenario, "idle", idle, schedules)
        + told(scenario, "chunks", chunks, schedules)
    )
    alt = f"Line plots of {' and '.join(WAYS[n] for n, p in (('idle', idle), ('chunks', chunks)) if p)} over the "
    alt += f"number of pipeline ranks, for {', '.join(schedules)}, each with its closed form."
    for name in WAYS:
        alt += words.alt_error(scenario, name).replace(" Over", f" {WAYS[name].capitalize()}: over", 1)
    return style.Plot("closed-forms", "Ours against the closed forms", grid.figure, caption, alt)


def layout(count, wide, legend):
    """Axes for `count` panels in a grid and, below, one as wide as all of them; and the grid."""
    columns = style.balanced_columns(count, 2) if count else 1
    width = (style.FULL_WIDTH - 0.85 - 0.55 * (columns - 1)) / columns if columns > 1 else 6.4
    rows = -(-count // columns)
    grid = style.Grid((rows + wide) * columns, columns, width, 2.3, legend, gap_x=0.55, gap_y=0.8, title=0.35)
    axes, last = grid.axes[:count], grid.axes[rows * columns :]
    for spare in grid.axes[count : rows * columns] + last[1:]:
        spare.remove()
    if wide:
        last[0].set_position(Bbox.union([place.get_position(original=True) for place in (last[0], last[-1])]))
        axes.append(last[0])
    return axes, grid


def draw(axes, name, panels, schedules, looks):
    top, ranks = 0, set()
    for schedule in schedules:
        lines = (panel.series(schedule) for panel in panels)
        values = [tuple((pp, row.figure(name), row.published(name)) for pp, row in line) for line in lines]
        for points in filter(None, dict.fromkeys(values)):  # what depends on no costs is drawn once
            x, ours, closed = zip(*points)
            look = {**looks[schedule], "clip_on": False}  # a closed form of zero lies on the axis
            axes.plot(x, ours, **{**look, "marker": ""})
            axes.plot(x, closed, color=look["color"], **CLOSED, clip_on=False, zorder=2.2)
            edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
            axes.plot(x, ours, **{**look, "linestyle": "none"}, **edge, zorder=2.4)
            top, ranks = max([top, *ours, *closed]), ranks.union(x)
    axes.set_ylim(0, 1.06 * top if top > 0 else 1)
    air = 0.03 * (max(ranks) - min(ranks)) or 0.5
    axes.set_xlim(min(ranks) - air, max(ranks) + air)
    axes.yaxis.set_major_locator(style.ticks())
    if max(ranks) - min(ranks) <= 16:
        axes.set_xticks(sorted(ranks))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=16, steps=[1, 2, 4, 5, 10], integer=True))


def cited(scenario):
    tables = sorted({table for row in scenario.rows for table in row.tables()})
    return f" ({', '.join(tables)})" if tables else ""


def told(scenario, name, panels, schedules):
    """Where both agree within the tolerance and where not, per schedule."""
    if not panels:
        return ""
    tolerance = scenario.tolerance(name)
    parts = []
    for schedule in schedules:
        points = {}  # by panel
        for panel in panels:
            known = [(pp, row) for pp, row in panel.series(schedule) if row.difference(name) is not None]
            if known:
                points[panel.letter] = known
        where = {letter: agreement(known, name, tolerance) for letter, known in points.items()}
        if len(set(where.values())) == 1:
            everything = [point for known in points.values() for point in known]
            parts.append(f"{schedule} {next(iter(where.values()))}{apart(everything, name, tolerance)}")
        elif where:
            said = [f"{letter} {what}{apart(points[letter], name, tolerance)}" for letter, what in where.items()]
            parts.append(f"{schedule} in {', in '.join(said)}")
    return f" {WAYS[name].capitalize()} within {100 * tolerance:g} % of the closed form: {'; '.join(parts)}."


def agree(row, name, tolerance):
    return abs(row.difference(name)) <= tolerance + 1e-9


def agreement(points, name, tolerance):
    """At which of (pipeline ranks, row) both agree."""
    everything = [pp for pp, _ in points]
    chosen = [pp for pp, row in points if agree(row, name, tolerance)]
    if len(chosen) == len(everything):
        return "everywhere"
    if not chosen:
        return "nowhere"
    ranges = runs(chosen, everything)
    return f"at {len(chosen)} of {len(everything)}" if len(ranges) > 2 else f"at p = {' and '.join(ranges)}"


def apart(points, name, tolerance):
    """How far those of (pipeline ranks, row) are off that do not agree."""
    off = [row for _, row in points if not agree(row, name, tolerance)]
    zero = [row.figure(name) for row in off if row.published(name) == 0]
    shares = [row.difference(name) for row in off if row.published(name) != 0]
    said = [span(shares, words.percent)] if shares else []
    said += [f"{span(zero, words.magnitude)} where it is 0"] if zero else []
    if not said:
        return ""
    return f" ({'else ' if len(off) < len(points) else ''}{', '.join(said)})"


def span(values, write):
    ends = [write(min(values)), write(max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def runs(chosen, everything):
    """`chosen` in words: ranges of neighbours in `everything`."""
    groups = []
    for value in chosen:
        if groups and everything.index(value) == everything.index(groups[-1][-1]) + 1:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [f"{g[0]:g}–{g[-1]:g}" if len(g) > 1 else f"{g[0]:g}" for g in groups]
