"""How far the predictions move when each value of the hardware profile does: bands, and which value it hangs on.

scripts/sensitivity writes what is read here: per value of the profile the throughputs with it smaller and larger, nothing
fitted again.
"""

import math

from matplotlib.patches import Patch

from . import style, words
from .values import dictionary, items, number, plain

KEY = ("model", "cluster", "seq", "microbatch_size", "tp", "pp", "cp", "dp", "microbatches", "schedule")
SAME = 1e-6  # relative; farther off, the analysis is one of another model
COLOURS = {"smaller": "#E69F00", "larger": "#0072B2"}
MOST = 12  # values that are drawn


class Sensitivity:
    def __init__(self, data):
        self.change = number(data.get("change")) or 0.0
        self.rows = {tuple(plain(row.get(field)) for field in KEY): row for row in items(data.get("rows"))}
        self.values = [dictionary(value) for value in items(data.get("values"))]

    def of(self, row):
        return self.rows.get(tuple(plain(row.data.get(field)) for field in KEY))

    def fits(self, scenario):
        """Whether it is of these very predictions: all its rows are there, and as they are."""
        here = {tuple(plain(row.data.get(field)) for field in KEY): row for row in scenario.rows}
        for key, told in self.rows.items():
            ours = here[key].figure("throughput") if key in here else None
            base = number(told.get("throughput_samples_per_s"))
            if ours is None or base is None or abs(ours - base) > SAME * base:
                return False
        return bool(self.rows)

    def throughput_band(self, row):
        """(lowest, highest) throughput, or None: changes of the values, taken as independent."""
        told = self.of(row)
        base = row.figure("throughput")
        if told is None or base is None:
            return None
        moves = [[number(end) for end in dictionary(change).values()] for change in dictionary(told["changed"]).values()]
        return _band(base, [[end - base for end in ends if end is not None] for ends in moves])

    def gain_band(self, of, over):
        """The same of the gain of one row over another, per cent."""
        a, b = self.of(of), self.of(over)
        if a is None or b is None or not of.figure("throughput") or not over.figure("throughput"):
            return None
        base = 100 * (of.figure("throughput") / over.figure("throughput") - 1)
        moves = []
        for name, ends in dictionary(a["changed"]).items():
            others = dictionary(dictionary(b["changed"]).get(name))
            moves.append([100 * (ends[side] / others[side] - 1) - base for side in ends if others.get(side)])
        return _band(base, moves)

    def means(self, scenario):
        """(name, fitted, mean change of throughput in per cent and of the gain in points, by side), largest first."""
        rows = [row for row in scenario.rows if self.of(row)]
        baseline, of = scenario.baseline(), scenario.gained()
        told = []
        for value in self.values:
            name, sides = value.get("name"), {}
            for side in COLOURS:
                moved = [100 * (self.of(row)["changed"][name][side] / row.figure("throughput") - 1) for row in rows]
                gains = []
                for row in rows:
                    over = row.configuration.row(baseline, row.microbatches)
                    if row.schedule != of or over is None or self.of(over) is None:
                        continue
                    now = self.of(row)["changed"][name][side] / self.of(over)["changed"][name][side]
                    gains.append(100 * (now - row.figure("throughput") / over.figure("throughput")))
                sides[side] = (_mean(moved), _mean(gains))
            told.append((name, value.get("fitted") is True, sides))
        return sorted(told, key=lambda one: -max(abs(sides[1]) for sides in one[2].values()))


def _mean(values):
    return sum(values) / len(values) if values else 0.0


def _band(base, moves):
    """Root of the sum of squares of the largest fall, and of the largest rise, that each value causes."""
    low = math.sqrt(sum(min(0.0, *ends) ** 2 for ends in moves if ends))
    high = math.sqrt(sum(max(0.0, *ends) ** 2 for ends in moves if ends))
    return base - low, base + high


def tornado(scenario, colours):
    """One bar per value of the profile, for the gain and for throughput."""
    del colours  # the sides of a change have colours of their own
    if scenario.sensitivity is None:
        return None
    told = scenario.sensitivity.means(scenario)[:MOST]
    change = f"{100 * scenario.sensitivity.change:g} %"
    legend = [Patch(facecolor=colour, label=f"value {change} {side}") for side, colour in COLOURS.items()]
    left = 0.5 + 0.078 * max(len(name) + 9 * fitted for name, fitted, _ in told)
    width = (style.FULL_WIDTH - left - 0.15 - 0.35) / 2
    grid = style.Grid(2, 2, width, 0.24 * len(told), legend, left=left, gap_x=0.35, title=0.3)
    heads = (f"gain of {scenario.gained()} over {scenario.baseline()}, points", "throughput, %")
    for column, (axes, head) in enumerate(zip(grid.axes, heads)):
        for y, (_, _, sides) in enumerate(told):
            for side, colour in COLOURS.items():
                axes.barh(y, sides[side][1 - column], 0.7, color=colour, linewidth=0, zorder=2)
        axes.axvline(0, color=style.FAINT, linewidth=0.9, zorder=3)
        axes.set_yticks(range(len(told)))
        names = [name + (" (fitted)" if fitted else "") for name, fitted, _ in told]
        axes.set_yticklabels(names if column == 0 else [])
        axes.set_ylim(len(told) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(style.ticks(7))
        axes.set_xlabel("mean change of " + head)
    first = ", ".join(f"{name} ({_sides(sides, 1)})" for name, _, sides in told[:3])
    caption = (
        f"Each value of the profile {change} smaller and larger, one at a time, nothing fitted again, at the largest m; "
        f"shares end at 1. Mean over the configurations. The gain hangs most on {first} points."
    )
    alt = "Tornado plot of the mean change of gain and of throughput per value of the hardware profile. "
    return style.Plot("sensitivity", "What the predictions hang on", grid.figure, caption, alt + caption)


def _sides(sides, index):
    return " and ".join(words.signed(sides[side][index], 2) for side in COLOURS)


def note(scenario):
    """A sentence for plots that show the bands."""
    if scenario.sensitivity is None:
        return ""
    change = f"±{100 * scenario.sensitivity.change:g} %"
    return (
        f" Thin lines at the largest m: the band from {change} on each value of the hardware profile, fitted ones "
        "included and nothing fitted again, taken as independent."
    )
