"""Bars in groups, groups in sections, sections in rows of a figure."""

import math
from dataclasses import dataclass

import numpy as np

from stp_plots.draw import style

NAN = math.nan
GROUP_GAP, SECTION_GAP, LEAST_SECTION = 0.7, 1.5, 2.2  # in bars
MOST_BARS = 56  # side by side in one row of a figure, gaps included
MOST_APART, LEAST_RUN = 40, 4  # see runs_of(); a fortieth of the longest bar cannot be read
LONG_LABEL = 4  # lines


@dataclass
class Bar:
    colour: str
    value: float
    published: float = NAN
    calibrated: bool = False
    low: float = NAN  # ends of a line on the bar: an interval or a band
    high: float = NAN
    mark: str = ""  # above the bar

    def ends(self):
        return [end for end in (self.value, self.published, self.low, self.high) if not math.isnan(end)]


@dataclass
class Section:
    """Groups of bars above one label, which is given in parts."""

    parts: list
    groups: list  # (label, bars)

    def bars(self):
        return [bar for _, bars in self.groups for bar in bars]

    def drawn_width(self):
        return len(self.bars()) + GROUP_GAP * (len(self.groups) - 1)

    def width(self):
        """The width with its gap and space for a label."""
        return max(self.drawn_width(), LEAST_SECTION) + SECTION_GAP


def known(value):
    """`value`, or NaN for None."""
    return NAN if value is None else value


def draw(axes, sections, width=0, *, signed=False, letters=20, size=None):
    """Magnitudes keep zero at the bottom; signed ones show a zero line. `width`: of the axes, in bars; `letters`: of a label
    over a bar's width; `size`: of its font."""
    placed, groups, middles = [], [], []
    start = 0.0
    for section in sections:
        middle = start + (section.width() - SECTION_GAP) / 2
        middles.append((middle, style.wrap(section.parts, letters * section.width())))
        x = middle - section.drawn_width() / 2
        for label, bars in section.groups:
            placed += [(x + i + 0.5, bar) for i, bar in enumerate(bars)]
            groups.append((x + len(bars) / 2, label))
            x += len(bars) + GROUP_GAP
        start += section.width()
    for calibrated, look in ((False, {"linewidth": 0}), (True, style.CALIBRATED)):
        some = [(at, bar) for at, bar in placed if bar.calibrated == calibrated and not math.isnan(bar.value)]
        if some:
            at, drawn = zip(*some)
            axes.bar(at, [bar.value for bar in drawn], 0.88, color=[bar.colour for bar in drawn], zorder=2, **look)
    ends = np.array([(at, bar.low, bar.high) for at, bar in placed if not math.isnan(bar.low)]).reshape(-1, 3)
    axes.vlines(*ends.T, color="black", linewidth=1, zorder=3)
    axes.plot(ends[:, [0, 0]], ends[:, 1:], color="black", linestyle="none", marker="_", markersize=6, zorder=3)
    published = [(at, bar.published) for at, bar in placed if not math.isnan(bar.published)]
    axes.plot(*zip(*published), **style.PUBLISHED, zorder=4, clip_on=False)
    for at, bar in placed:
        if bar.mark and bar.ends():
            axes.annotate(bar.mark, (at, max(bar.ends())), (0, 4), textcoords="offset points", ha="center", fontsize=8)
    style.name_places(axes, groups)
    axes.tick_params(axis="x", length=0, pad=3 + 12 * max(label.count("\n") + bool(label) for _, label in groups))
    axes.set_xticks([at for at, _ in middles], [label for _, label in middles], fontsize=size)
    axes.set_xlim(-0.4, max(width, start - SECTION_GAP) + 0.4)
    axes.set_ylim(*extent(bar for _, bar in placed))
    axes.yaxis.set_major_locator(style.ticks())
    if signed:
        axes.axhline(0, color=style.FAINT, linewidth=0.9, zorder=3)


def extent(bars):
    """Lowest and highest value, zero included, with some air; never empty."""
    values = [0.0, *(end for bar in bars for end in bar.ends())]
    low, high = min(values), max(values)
    air = 0.08 * (high - low)
    return (low - air if low < 0 else 0, high + air) if high > low else (0, 1)


def runs_of(sections):
    """`sections` in runs of LEAST_RUN or more, in which no section's longest bar is more than MOST_APART times another's; else all as one."""
    runs = [[]]
    for section in sections:
        tops = [max([0, *(abs(end) for bar in one.bars() for end in bar.ends())]) for one in [*runs[-1], section]]
        if max(tops) > MOST_APART * min(tops):
            runs.append([])
        runs[-1].append(section)
    return runs if min(map(len, runs)) >= LEAST_RUN else [sections]


def rows_of(sections):
    """`sections` in rows that fit a figure's width, about equally full."""
    total = sum(section.width() for section in sections)
    most = total / math.ceil(total / MOST_BARS)
    rows, used = [[]], 0.0
    for section in sections:
        if rows[-1] and used + section.width() / 2 > most * len(rows):
            rows.append([])
        rows[-1].append(section)
        used += section.width()
    return rows


def without_common(row):
    """The parts that all labels of a row have, if others remain to each, and the row without them."""
    common = [part for part in row[0].parts if all(part in section.parts for section in row)]
    if any(len(section.parts) == len(common) for section in row):
        return [], row
    return common, [Section([part for part in section.parts if part not in common], section.groups) for section in row]


def figure(sections, legend, ylabel, xlabel="", *, signed=False, shared=False):
    """Rows of bars; `shared`: at one scale. Where labels would be long, what a row's labels have in common is its title."""
    rows = [row for run in ([sections] if shared else runs_of(sections)) for row in rows_of(run)]
    width = max(sum(section.width() for section in row) - SECTION_GAP for row in rows)
    inches = min(style.FULL_WIDTH - 2.4, max(3.0, 0.42 * width))
    letters = inches / width / style.LETTER
    smaller = style.stretch([(section.parts, letters * section.width()) for section in sections])
    letters *= smaller

    def lines_of(rows):
        return max(style.wrap(section.parts, letters * section.width()).count("\n") + 1 for row in rows for section in row)

    titles = [[] for _ in rows]
    if lines_of(rows) > LONG_LABEL:
        titles, rows = zip(*map(without_common, rows))
    drawn = style.new_figure(inches + 2.4, len(rows) * (2.0 + 0.14 * (lines_of(rows) + any(titles))) + 0.2)
    grid = drawn.subplots(len(rows), 1, squeeze=False, sharey=shared)[:, 0]
    for axes, title, row in zip(grid, titles, rows):
        draw(axes, row, width, signed=signed, letters=letters, size=style.SETTINGS["font.size"] / smaller)
        axes.set_ylabel(ylabel)
        axes.set_title(style.wrap(title, (inches + 2) / style.LETTER))
    if shared:
        grid[0].set_ylim(*extent(bar for section in sections for bar in section.bars()))
    grid[-1].set_xlabel(xlabel)
    style.legend(grid[0], legend)
    return drawn
