"""A comparison's figure, which stands alone: blocks of panels under each other, and in words what they show."""

import math
import textwrap
from dataclasses import dataclass, field

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from stp_plots import style

from . import screen

# Files, in their order; the first is what the others are set against.
FILE_COLOURS = ["#56738c", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288", "#999933"]

HEAD, HEADING, LEGEND_LINE, CAPTION_LINE = 0.42, 0.26, 0.2, 0.15  # inches


def file_colour(index):
    return FILE_COLOURS[index % len(FILE_COLOURS)]


def configuration_lines(configuration):
    """A configuration in a panel's title."""
    return style.clip_lines([", ".join(part) for part in screen.configuration_parts(configuration) if part], 34)


def file_handles(labels):
    """The files in a legend."""
    return [Patch(facecolor=file_colour(i), label=style.clip(label, 60)) for i, label in enumerate(labels)]


@dataclass
class Block:
    """`count` panels in a grid, under a heading and a legend; in inches, so that nothing is measured twice."""

    count: int
    columns: int  # at most
    height: float  # of a panel
    legend: list
    heading: str = ""
    left: float = 0.7
    right: float = 0.15
    bottom: float = 0.3  # for tick labels, of every row
    gap_x: float = 0.5
    gap_y: float = 0.2
    title: float = 0.42  # for panels' titles
    widest: float = 5.0  # a panel
    axes: list = field(default_factory=list)

    def __post_init__(self):
        self.columns = style.balanced_columns(self.count, self.columns)
        self.rows = math.ceil(self.count / self.columns)
        room = style.FULL_WIDTH - self.left - self.right - self.gap_x * (self.columns - 1)
        self.width = min(self.widest, room / self.columns)
        entries = [0.42 + 0.078 * len(handle.get_label()) for handle in self.legend]
        self.legend_columns = max(1, int((style.FULL_WIDTH - self.left) / max(entries))) if entries else 1

    def top(self):
        lines = math.ceil(len(self.legend) / self.legend_columns)
        return (HEADING if self.heading else 0) + LEGEND_LINE * lines + 0.06

    def size(self):
        return self.top() + self.rows * (self.title + self.height + self.bottom) + (self.rows - 1) * self.gap_y

    def places(self):
        """(from the left, from the block's top to the panel's bottom)."""
        for i in range(self.count):
            row, column = divmod(i, self.columns)
            down = self.top() + self.title + self.height
            down += row * (self.title + self.height + self.bottom + self.gap_y)
            yield self.left + column * (self.width + self.gap_x), down

    def first_column(self, i):
        return i % self.columns == 0


def page(title, caption, blocks):
    """The figure with the frame of every block; their axes are then in the blocks."""
    lines = [line for sentence in caption for line in textwrap.wrap(sentence, 175)]
    foot = 0.22 + CAPTION_LINE * len(lines)
    total = HEAD + sum(block.size() + 0.15 for block in blocks) + foot
    figure = Figure(figsize=(style.FULL_WIDTH, total), dpi=style.DPI, facecolor="white")
    FigureCanvasAgg(figure)

    def write(x, down, words, size, colour):
        figure.text(x / style.FULL_WIDTH, 1 - down / total, words, va="top", fontsize=size, color=colour)

    write(0.1, 0.12, title, 11, style.INK)
    down = HEAD
    for block in blocks:
        if block.heading:
            write(0.1, down + 0.02, block.heading, 9.5, style.INK)
        if block.legend:
            corner = (block.left / style.FULL_WIDTH, 1 - (down + (HEADING if block.heading else 0)) / total)
            figure.legend(handles=block.legend, loc="upper left", ncol=block.legend_columns, bbox_to_anchor=corner)
        for x, below in block.places():
            place = (x / style.FULL_WIDTH, 1 - (down + below) / total)
            block.axes.append(figure.add_axes((*place, block.width / style.FULL_WIDTH, block.height / total)))
        down += block.size() + 0.15
    for i, line in enumerate(lines):
        write(0.1, total - foot + 0.12 + CAPTION_LINE * i, line, 7.5, style.FAINT)
    return figure
