"""What of a gain is the order and what the braids: four schedules, with and without each.

The baseline; the baseline braided (its name with "-braided"); the schedule in question run without its braids (`braid`
sequential); the schedule itself.
"""

from matplotlib.patches import Patch

from . import bars, style, words
from .records import CONFIGURATION
from .tables import h, num, table
from .values import dictionary, plain, text

PARTS = [("order", "order alone", "#CC79A7"), ("braid", "braids alone", "#56B4E9"), ("both", "both", "#009E73")]


class Cell:
    """The four rows of one configuration, and the gains between them in per cent."""

    def __init__(self, configuration, base, order, braid, both):
        self.configuration, self.base, self.order, self.braid, self.both = configuration, base, order, braid, both

    def gain(self, of, over="base"):
        of, over = getattr(self, of).figure("throughput"), getattr(self, over).figure("throughput")
        return 100 * (of / over - 1) if of is not None and over else None

    def published(self):
        of, over = self.both.published("throughput"), self.base.published("throughput")
        return 100 * (of / over - 1) if of is not None and over else None


def cells(scenario):
    """A cell per configuration that has all four rows."""
    over = scenario.baseline()
    asked = dictionary(dictionary(dictionary(scenario.record.get("scenario")).get("compare")).get("gain"))
    of = asked.get("of")
    groups = {}
    for row in scenario.rows:
        key = tuple(plain(row.data.get(field)) for field in (*CONFIGURATION, "microbatches"))
        groups.setdefault(key, {})[row.schedule, row.data.get("braid", "static")] = row
    found = []
    for group in groups.values():
        wanted = [(over, "static"), (of, "sequential"), (f"{over}-braided", "static"), (of, "static")]
        rows = [group.get(one) for one in wanted]
        if None not in rows:
            found.append(Cell(rows[0].configuration, *rows))
    return found


def label(cell):
    """The configuration without what tells its rows apart."""
    lines = [line for line in cell.configuration.lines if not line.startswith("braid ")]
    return [*lines, f"m {text(cell.base.microbatches)}"]


def plot(scenario, colours):
    del colours  # the bars are parts of a gain, not schedules
    found = cells(scenario)
    groups = []
    for cell in found:
        drawn = [
            bars.Bar(slot, colour, cell.gain(part), cell.published() if part == "both" else None)
            for slot, (part, _, colour) in enumerate(PARTS)
        ]
        groups.append((style.clip_lines(label(cell), 18, 4), drawn))
    panel = bars.Panel("", groups, len(PARTS))
    legend = [Patch(facecolor=colour, label=name) for _, name, colour in PARTS]
    if any(cell.published() is not None for cell in found):
        legend.append(style.published_handle())
    width = min(style.FULL_WIDTH - 0.85, 1.15 * len(groups))
    grid = style.Grid(1, 1, width, 2.3, legend, title=0.15, bottom=0.95)
    bars.draw_panel(grid.axes[0], panel, signed=True)
    grid.axes[0].set_ylabel(f"gain over {scenario.baseline()}, %")
    baseline, of = scenario.baseline(), found[0].both.schedule
    caption = (
        f"Gain in throughput over {baseline}, {scenario.evidence}. Order alone: {of}'s order, the actions of each of its "
        f"braids run one after the other. Braids alone: {baseline} with the forward and the backward of its steady state "
        f"braided, one more forward in the warm-up. Both: {of}. Diamonds: the paper's gain; it has no such ablation. "
        + sentence(found)
    )
    alt = "Bar chart of the gain by order alone, by braids alone and by both, per configuration. "
    return style.Plot("ablation", "Order or braid?", grid.figure, caption, alt + sentence(found))


def sentence(found):
    means = []
    for part, name, _ in PARTS:
        gains = [cell.gain(part) for cell in found if cell.gain(part) is not None]
        if gains:
            means.append(f"{name} {words.signed(sum(gains) / len(gains), 2)} %")
    return f"Mean over {words.count(len(found), 'configuration')}: {', '.join(means)}."


def split(scenario):
    """The table: the gain by way of the order first, and of the braids first; and what memory each takes."""
    found = cells(scenario)
    if not found:
        return ""
    head = [
        [("", 1), ("order first, %", 2), ("braids first, %", 2), ("both, %", 2), ("peak memory, GB", 3)],
        [
            "configuration",
            "order",
            "then braids",
            "braids",
            "then order",
            "ours",
            "published",
            found[0].base.schedule,
            found[0].braid.schedule,
            found[0].both.schedule,
        ],
    ]
    rows = []
    for cell in found:

        def gain(value, extra=""):
            return num("–" if value is None else words.signed(value, 2), extra)

        memory = [getattr(cell, part).figure("memory") for part in ("base", "braid", "both")]
        rows.append(
            [
                h(", ".join(label(cell))),
                gain(cell.gain("order"), "group"),
                gain(cell.gain("both", "order")),
                gain(cell.gain("braid"), "group"),
                gain(cell.gain("both", "braid")),
                gain(cell.gain("both"), "group"),
                gain(cell.published(), "published"),
                *(num("–" if size is None else f"{size:.1f}", "" if i else "group") for i, size in enumerate(memory)),
            ]
        )
    caption = "Each gain is over the step before it: one way to the whole gain, and the other"
    return table(head, rows, caption=caption, kind="cross")
