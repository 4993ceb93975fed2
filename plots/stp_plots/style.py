"""How the plots look: colours, type, the grid of panels, legends, PNG files."""

import io
import logging
import math
import warnings
from dataclasses import dataclass

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a new font cache is no news

warnings.filterwarnings("ignore", message="Glyph .* missing")  # boxes in a plot; the tables have the name

import matplotlib  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

DPI = 150
SHOWN_DPI = 100  # CSS pixels per inch on the page
FULL_WIDTH = 10.6  # inches

INK, FAINT, GRID = "#222222", "#666666", "#dddddd"

# Okabe and Ito's palette without its yellow, then Tol's "muted": both made for colour-blind readers.
SCHEDULE_COLOURS = {
    "1f1b-i": "#0072B2",
    "zb-v": "#E69F00",
    "stp": "#009E73",
    "1f1b": "#56B4E9",
    "gpipe": "#444444",
    "zb-h1": "#CC79A7",
    "zb-h2": "#D55E00",
    "v-half": "#332288",
    "v-min": "#AA4499",
}
FURTHER_COLOURS = ["#999933", "#CC6677", "#44AA99", "#6E4B1F", "#88CCEE", "#117733", "#9C8AC0", "#B0B0B0"]

# Parts of a rank's time, from the bottom of a bar; they differ in lightness too.
TIME_PARTS = [("compute", "#8f979f"), ("TP bubble", "#882255"), ("PP bubble", "#ecd98b")]


def schedule_colours(names):
    """One colour per schedule; names without a fixed one take what is left, in order, then paler shades."""
    free = [*FURTHER_COLOURS, *(c for name, c in SCHEDULE_COLOURS.items() if name not in names)]
    shades = [_paler(colour) for colour in [*SCHEDULE_COLOURS.values(), *FURTHER_COLOURS]]
    others = [name for name in names if name not in SCHEDULE_COLOURS]
    colours = {name: SCHEDULE_COLOURS[name] for name in names if name in SCHEDULE_COLOURS}
    for i, name in enumerate(others):
        colours[name] = free[i] if i < len(free) else shades[(i - len(free)) % len(shades)]
    return colours


def _paler(colour):
    return "#" + "".join(f"{(int(colour[i : i + 2], 16) + 255) // 2:02x}" for i in (1, 3, 5))


def set_up():
    matplotlib.rcdefaults()  # whatever the user's own settings say
    matplotlib.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 8.5,
            "text.parse_math": False,  # a $ in a name is a $
            "axes.titlesize": 8.5,
            "axes.titlelocation": "left",
            "axes.titlecolor": INK,
            "legend.labelcolor": INK,
            "axes.titlepad": 5,
            "axes.labelsize": 8.5,
            "axes.labelcolor": INK,
            "axes.edgecolor": FAINT,
            "axes.linewidth": 0.7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.grid.axis": "y",
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.6,
            "xtick.color": FAINT,
            "ytick.color": FAINT,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "xtick.major.width": 0.7,
            "ytick.major.width": 0.7,
            "legend.frameon": False,
            "legend.fontsize": 8.5,
            "legend.handlelength": 1.4,
            "legend.columnspacing": 1.6,
            "legend.borderaxespad": 0,
            "legend.borderpad": 0,
            "hatch.linewidth": 0.9,
        }
    )


@dataclass
class Plot:
    """A figure with what the page says of it."""

    name: str
    title: str
    figure: Figure
    caption: str
    alt: str


def ticks(most=6):
    """Few round ticks."""
    return MaxNLocator(nbins=most, steps=[1, 2, 4, 5, 10] if most < 7 else [1, 2, 5, 10])


def clip(text, length):
    return text if len(text) <= length else text[: length - 1] + "…"


def clip_lines(lines, length, count=4):
    return "\n".join(clip(line, length) for line in lines[:count])


def balanced_columns(count, most):
    """Columns for `count` panels, at most `most`, so that no row is nearly empty."""
    most = max(1, most)
    return max(1, math.ceil(count / math.ceil(count / most)))


class Grid:
    """A figure with panels of one size; everything in inches, so that nothing is measured twice."""

    def __init__(
        self,
        count,
        columns,
        width,
        height,
        legend,
        *,
        left=0.7,
        right=0.15,
        bottom=0.55,
        gap_x=0.5,
        gap_y=0.75,
        title=0.45,
        least_width=5.5,
    ):
        rows = math.ceil(count / columns)
        self.columns, self.count = columns, count
        entries = [0.42 + 0.078 * len(handle.get_label()) for handle in legend]
        self.width = max(left + columns * width + (columns - 1) * gap_x + right, min(left + sum(entries), least_width))
        room = self.width - left
        legend_columns = len(legend) if sum(entries) <= room else max(1, int(room / max(entries)))
        top = 0.1 + 0.2 * math.ceil(len(legend) / max(1, legend_columns)) + title
        self.height = top + rows * height + (rows - 1) * gap_y + bottom
        self.figure = Figure(figsize=(self.width, self.height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self.figure)
        self.axes = []
        for i in range(count):
            row, column = divmod(i, columns)
            x = left + column * (width + gap_x)
            y = self.height - top - height - row * (height + gap_y)
            self.axes.append(self.figure.add_axes(self._share(x, y, width, height)))
        if legend:
            self.figure.legend(
                handles=legend,
                loc="upper left",
                ncol=legend_columns,
                bbox_to_anchor=(left / self.width, 1 - 0.06 / self.height),
            )

    def _share(self, x, y, width, height):
        return (x / self.width, y / self.height, width / self.width, height / self.height)

    def first_column(self, i):
        return i % self.columns == 0

    def last_of_column(self, i):
        return i + self.columns >= self.count


def schedule_handles(schedules, colours):
    return [Patch(facecolor=colours[name], label=clip(name, 30)) for name in schedules]


def published_handle():
    return Line2D([], [], **published_marker(), label="published")


def calibrated_handle():
    return Patch(facecolor="#999999", edgecolor="white", hatch="////", linewidth=0, label="calibrated (fitted to)")


def published_marker():
    return {
        "marker": "D",
        "markersize": 5,
        "linestyle": "none",
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 1.1,
    }


def svg(figure):
    """The figure as the bytes of an SVG file, the same for the same figure."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "stp"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    return buffer.getvalue()


def png(figure):
    """The figure as the bytes of a PNG file, the same for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None}, facecolor="white")
    return buffer.getvalue()
