"""How the plots look: colours, type, legends, files."""

import gc
import io
import logging
import math
import textwrap
import warnings
from dataclasses import dataclass

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hides messages about a new font cache
warnings.filterwarnings("ignore", message="Glyph .* missing")  # boxes in a plot; the tables have the name
warnings.filterwarnings("ignore", message="constrained_layout not applied")  # names longer than a plot

import matplotlib  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch, PathPatch  # noqa: E402
from matplotlib.path import Path  # noqa: E402
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator  # noqa: E402
from PIL import Image  # noqa: E402 - matplotlib needs it, too

DPI = 130
SHOWN_DPI = 100  # CSS pixels per inch on the page
FULL_WIDTH = 10.6  # inches
LETTER = 0.074  # about the width of one, inches
LONGEST = 1.75  # of a word that is not broken, in lines

INK, FAINT, GRID, BAND = "#222222", "#666666", "#dddddd", "#e8e8e8"

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
    "dhelix": "#999933",
}
FURTHER_COLOURS = ["#CC6677", "#44AA99", "#6E4B1F", "#117733", "#9C8AC0", "#882255", "#DDCC77", "#B0B0B0"]
PUBLISHED = {"marker": "D", "markersize": 5, "linestyle": "none", "color": "black", "markerfacecolor": "white"}
CALIBRATED = {"hatch": "////", "edgecolor": "white", "linewidth": 0}

SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # where it would stand, too, after a search for ticks above the axes
    "axes.labelsize": 8.5,
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
    "legend.frameon": False,
    "legend.borderaxespad": 0,
    "hatch.linewidth": 0.9,
    "svg.hashsalt": "stp",  # the same figure is the same file
    "svg.fonttype": "none",
}


def set_up():
    matplotlib.rcdefaults()  # whatever the user's own settings say
    matplotlib.rcParams.update(SETTINGS)
    gc.set_threshold(100_000, 50, 50)  # a figure is many small objects: by default, searching them for garbage takes 4 to 7 % of the time


@dataclass
class Plot:
    """A figure with what the page says of it."""

    name: str
    title: str
    figure: Figure
    caption: str
    alt: str


def schedule_colours(names):
    """One colour per schedule. Those without a fixed one take the further ones in order, then paler shades. Names added later change none."""
    others = [name for name in names if name not in SCHEDULE_COLOURS]
    first, *fixed = SCHEDULE_COLOURS.values()  # the first's paler shade is nearly another's colour
    free = FURTHER_COLOURS + [_paler(colour) for colour in [*fixed, *FURTHER_COLOURS, first]]
    return SCHEDULE_COLOURS | {name: free[i % len(free)] for i, name in enumerate(others)}


def _paler(colour):
    return "#" + "".join(f"{(int(colour[i : i + 2], 16) + 255) // 2:02x}" for i in (1, 3, 5))


def new_figure(width, height):
    """A figure that matplotlib lays out, in inches."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")


def panels(figure, count, columns, **options):
    """The axes of `count` panels, at most so many in a row, as a grid without those to spare in its last row."""
    grid = figure.subplots(math.ceil(count / columns), min(count, columns), squeeze=False, **options)
    for spare in grid.flat[count:]:
        spare.remove()
    return grid


def add_boxes(axes, boxes, **look):
    """Rectangles (left, right, bottom, top) as one artist: far faster than a patch each."""
    if len(boxes):
        corners = np.array(boxes, dtype=float)[:, [[0, 2], [1, 2], [1, 3], [0, 3]]]
        axes.add_artist(PathPatch(Path.make_compound_path_from_polys(corners), **{"linewidth": 0, "zorder": 2} | look))


def ticks(most=6):
    """Few round ticks."""
    return MaxNLocator(nbins=most, steps=[1, 2, 4, 5, 10] if most < 7 else [1, 2, 5, 10])


def name_places(axes, places, **look):
    """Names (at, name) directly below the axes, above its ticks' labels. Texts take a fraction of the time of ticks without marks."""
    transform, *_ = axes.get_xaxis_text1_transform(matplotlib.rcParams["xtick.minor.pad"])
    for at, name in places:
        if name:
            axes.text(at, 0, name, transform=transform, ha="center", va="top", in_layout=False, **{"color": INK} | look)


def log_axis(axis, low, high):
    """Round ticks between the ends, numbers as they are."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    axis.set_major_locator(FixedLocator([tick for power in powers for tick in (10**power, 2 * 10**power, 5 * 10**power) if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def clip(text, length):
    return text if len(text) <= length else text[: length - 1] + "…"


def _words(parts, length):
    """Parts of a label in a line of words; short parts and a sequence × microbatch size are one."""
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") if len(part) < length or "×" in part else part for part in parts)


def wrap(parts, length, most=7):
    """Parts of a label in at most so many lines, broken between parts where that fits. Too many lose some in the middle: the last part
    tells it from others."""
    length = max(4, int(length))
    lines, last = textwrap.wrap(_words(parts, length), length), min(3, most - 2)
    return "\n".join(lines if len(lines) <= most else [*lines[: most - 1 - last], lines[most - 1 - last][: length - 1] + "…", *lines[-last:]])


def stretch(labels):
    """How many times smaller the font must be, up to LONGEST, lest wrap() break a word of a label (parts, letters of a line)."""
    words = ((max(4, int(length)), textwrap.wrap(_words(parts, length), 1, break_long_words=False)) for parts, length in labels)
    return min(LONGEST, max([1, *(len(word) / length for length, some in words for word in some)]))


def legend(axes, handles):
    """To the right of the axes."""
    if handles:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), ncol=1 + len(handles) // 16)


def schedule_handles(schedules, colours):
    return [Patch(facecolor=colours[name], label=clip(name, 24)) for name in schedules]


def published_handle():
    return Line2D([], [], **PUBLISHED, label="published")


def calibrated_handle():
    return Patch(facecolor="#999999", **CALIBRATED, label="calibrated")


# The canvases write at once what savefig() lays out twice.


def svg(figure):
    """The figure as the bytes of a file."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue().encode()


def png(figure):
    canvas, buffer = FigureCanvasAgg(figure), io.BytesIO()
    canvas.draw()
    # Without transparency, which no plot has, the file is smaller and is made in half the time.
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(buffer, "png", dpi=(DPI, DPI))
    return buffer.getvalue()
