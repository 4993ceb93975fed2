"""A comparison's self-contained figure: blocks of panels below each other, with captions."""

import math
import textwrap
from dataclasses import dataclass, field

from matplotlib.patches import Patch

from stp_plots.draw import style
from stp_plots.page import screen

# Files, in their order; the others are compared with the first.
FILE_COLOURS = ["#56738c", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288", "#999933"]


def file_colour(index):
    return FILE_COLOURS[index % len(FILE_COLOURS)]


def configuration_lines(configuration):
    """A configuration in a panel's title."""
    parts = [", ".join(part) for part in screen.configuration_parts(configuration) if part]
    return "\n".join(style.clip(part, 38) for part in parts)


def file_handles(labels):
    """The files in a legend."""
    return [Patch(facecolor=file_colour(i), label=textwrap.fill(style.clip(label, 60), 24)) for i, label in enumerate(labels)]


@dataclass
class Block:
    """`count` panels in a grid, under a heading; the legend to the right."""

    count: int
    columns: int  # at most
    height: float  # of a row with titles and tick labels, inches
    legend: list
    heading: str = ""
    axes: list = field(default_factory=list)

    def rows(self):
        return math.ceil(self.count / self.columns)

    def size(self):
        return max(self.rows() * self.height, 0.2 * len(self.legend)) + (0.3 if self.heading else 0)

    def first_column(self, i):
        return i % min(self.count, self.columns) == 0


def page(title, caption, blocks):
    """The figure; the axes are then in the blocks."""
    lines = [line for sentence in caption for line in textwrap.wrap(sentence, 165)]
    figure = style.new_figure(style.FULL_WIDTH, 0.5 + sum(block.size() for block in blocks) + 0.15 * len(lines))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=[block.size() for block in blocks])[:, 0]
    for block, part in zip(blocks, parts):
        part.suptitle(block.heading, x=0.01, ha="left", fontsize=9.5)
        grid = part.subplots(block.rows(), min(block.count, block.columns), squeeze=False)
        for spare in grid.flat[block.count :]:
            spare.remove()
        block.axes = list(grid.flat[: block.count])
        style.legend(grid[0, -1], block.legend)
    return figure
