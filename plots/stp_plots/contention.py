"""The same rows with contention and without, beside the paper."""

from matplotlib.patches import Patch

from . import bars, style, words
from .records import CONFIGURATION
from .tables import h, num, printed, shown, table
from .values import plain, text

KINDS = [(True, "with contention", "#009E73"), (False, "without", "#A6DCC8")]


def label(row):
    """The configuration without what tells its rows apart."""
    lines = [line for line in row.configuration.lines if not line.startswith("contention ")]
    return [*lines, f"m {text(row.microbatches)}"]


def groups(scenario):
    """Per configuration its rows by (schedule, contention), where every schedule has both."""
    found = {}
    for row in scenario.rows:
        key = tuple(plain(row.data.get(field)) for field in (*CONFIGURATION, "microbatches"))
        found.setdefault(key, {})[row.schedule, row.data.get("contention")] = row
    told = [
        group
        for group in found.values()
        if all((name, not kind) in group for name, kind in group if isinstance(kind, bool))
        and any(isinstance(kind, bool) for _, kind in group)
    ]
    return told if len(told) == len(found) else []


def mean_errors(scenario):
    """Mean absolute error of throughput per kind, over the configurations that nothing was fitted to."""
    errors = {True: [], False: []}
    for group in groups(scenario):
        for (name, kind), row in group.items():
            if not group[name, True].calibrated and row.difference("throughput") is not None:
                errors[kind].append(abs(row.difference("throughput")))
    return {kind: sum(all_of) / len(all_of) for kind, all_of in errors.items() if all_of}


def sentence(scenario):
    means = mean_errors(scenario)
    if len(means) < 2:
        return ""
    return (
        f"Mean absolute error of throughput over configurations that were not fitted to: "
        f"{words.plain_percent(means[True])} with contention, {words.plain_percent(means[False])} without."
    )


def plot(scenario, colours):
    del colours  # bars are kinds of one schedule
    drawn = []
    for group in groups(scenario):
        rows = list(group.values())
        for name in dict.fromkeys(row.schedule for row in rows):
            found = []
            for slot, (kind, _, colour) in enumerate(KINDS):
                ours, theirs, fitted = scenario.gain(group[name, kind])
                if ours is not None:
                    found.append(bars.Bar(slot, colour, ours, theirs, fitted and kind))
            if found and name == scenario.gained():
                drawn.append((style.clip_lines(label(rows[0]), 18, 4), found))
    if not drawn:
        return None
    legend = [Patch(facecolor=colour, label=name) for _, name, colour in KINDS]
    legend += [style.published_handle(), style.calibrated_handle()]
    grid = style.Grid(1, 1, min(style.FULL_WIDTH - 0.85, 1.15 * len(drawn)), 2.3, legend, title=0.15, bottom=0.95)
    bars.draw_panel(grid.axes[0], bars.Panel("", drawn, len(KINDS)), signed=True)
    grid.axes[0].set_ylabel(f"gain of {scenario.gained()} over {scenario.baseline()}, %")
    caption = (
        "Contention: while a compute op and an all-reduce of one rank overlap, each keeps a share of its speed. Without "
        "it the same profile, nothing fitted again. " + sentence(scenario)
    )
    alt = "Bar chart of the gain with contention and without, per configuration, beside the paper's. "
    return style.Plot("contention", "With contention and without", grid.figure, caption, alt + sentence(scenario))


def side_by_side(scenario):
    """Throughput of every row: the paper's, with contention, without."""
    found = groups(scenario)
    if not found:
        return ""
    head = [
        [("", 2), ("", 1), ("with contention", 2), ("without", 2)],
        ["configuration", "schedule", "published", "ours", "diff., %", "ours", "diff., %"],
    ]
    rows = []
    for group in found:
        for name in dict.fromkeys(schedule for schedule, _ in group):
            both = [group[name, kind] for kind, _, _ in KINDS]
            star = "*" if both[0].calibrated else ""
            cells = [h(", ".join(label(both[0]))), h(name)]
            cells.append(num(printed("throughput", both[0].published("throughput")), "published"))
            for place, row in enumerate(both):
                difference = row.difference("throughput")
                cells.append(num(shown("throughput", row.figure("throughput")), "group"))
                told = "–" if difference is None else words.signed(100 * difference)
                cells.append(num(told + (star if place == 0 else "")))
            rows.append(cells)
    caption = "Throughput, samples/s; * calibrated (with contention). " + sentence(scenario)
    return table(head, rows, caption=caption, kind="cross")
