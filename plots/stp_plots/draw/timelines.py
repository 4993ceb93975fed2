"""A step drawn to scale from its Chrome trace: a row per rank, compute above, collectives below, as published orders are drawn."""

import re
from dataclasses import dataclass

import numpy as np
from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import style
from stp_plots.files import ReportError, read_json
from stp_plots.words import dictionary, number

# Chosen so that all passes and both shades stay apart under the three kinds of colour blindness.
PASSES = {"F": ("F forward", "#1551a3"), "I": ("I input gradient", "#f5be0b"), "W": ("W weight gradient", "#1fa83f"),
          "B": ("B full backward", "#7a1738"), "S": ("S head", "#e07b39"), "T": ("T head's gradients", "#8f4fc4"),
          "U": ("U head's weight gradients", "#8f4fc4"), "E": ("E embedding", "#5fb8c4"), "G": ("G its gradient", "#c45f8e")}  # fmt: skip
LIGHTEST = 0.45  # share of white in the last chunk's shade
OPTIMIZER, ALL_REDUCE, EXPOSED = "#5a5f66", "#b4b9c0", "#e0002d"
REPLACEMENTS = ("reduce-scatter", "all-gather", "row exchange")  # of all-reduces
ACTION = re.compile(r"([FIWBSTUEG])(\d+)\.(\d+)")

FORWARD = 0.17  # inches, the width of a forward: room for two digits
WIDEST = 24  # inches; a longer step is cut in the middle
MOST_RANKS, MOST_SHAPES = 64, 15000  # that are drawn, so that a file stays below 2 MB
LEAST_GAP = 0.004  # inches; shorter ones are not drawn
LEAST_LETTERS = 4.5  # points
COMPUTE, BELOW = 0.62, 0.16  # heights of a rank's tracks, of 1 for the row


@dataclass
class Cell:
    """What one action computes in its block, or the optimizer; of a braid's two actions the first is drawn above."""

    rank: int
    action: tuple  # (pass, chunk, microbatch), or () for the optimizer
    half: int  # 0: the whole height; 1, 2: of a braid, the upper and the lower half
    pieces: np.ndarray  # (start, end) by row


class Trace:
    """The slices of a trace of write_chrome_trace(), in seconds or in the units of the cost table."""

    def __init__(self, content, place):
        events = content.get("traceEvents")
        if not isinstance(events, list):
            raise ReportError(f"{place}: holds no trace; write one with stp trace")
        try:
            self._read(dictionary(content.get("otherData")), [event for event in events if event.get("ph") == "X"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ReportError(f"{place}: is no trace of stp ({type(error).__name__}: {error})") from None

    def _read(self, other, slices):
        self.title = words.text(other.get("title") or other.get("schedule"))
        self.unit = words.text(other.get("time_unit", "s"))
        self.microbatches = number(other.get("microbatches")) or 0
        self.step = max((float(one["ts"] + one["dur"]) for one in slices), default=0.0) / 1e6
        self.ranks = 1 + max((one["pid"] for one in slices), default=0)
        computed, self.all_reduces = {}, [[] for _ in range(self.ranks)]
        self.collective = "all-reduce"
        self.waits = [[] for _ in range(self.ranks)]  # for own all-reduces and exchanges
        self.computed = np.zeros(self.ranks)
        ends = [0.0] * self.ranks
        for one in slices:
            rank, span = one["pid"], (one["ts"] / 1e6, (one["ts"] + one["dur"]) / 1e6)
            args = dictionary(one.get("args"))
            if one["cat"] == "tp" and span[1] > span[0]:
                self.all_reduces[rank].append(span)
                if one["name"].startswith(REPLACEMENTS):
                    self.collective = "TP collective"
            elif one["cat"] == "compute":
                if "waited_for" in args and span[0] > ends[rank]:
                    since = span[0] - args["tp_bubble"] / 1e6 if "tp_bubble" in args else ends[rank]  # a trace may lack it
                    self.waits[rank].append((since, span[0]))
                ends[rank] = span[1]
                self.computed[rank] += span[1] - span[0]
                computed.setdefault((rank, args.get("block", "")), []).append((args.get("action", ""), span))
        self.cells = [cell for (rank, block), found in computed.items() for cell in _cells(rank, block, found)]
        self.chunks = 1 + max((cell.action[1] for cell in self.cells if cell.action), default=0)

    def forward(self):
        """The mean length of a forward, at least a quarter of another action's: so that very short forwards do not stretch the rest."""
        times = {True: [], False: []}
        for cell in self.cells:
            if cell.action:
                share = 0.5 if cell.half else 1  # a braid's time is that of two
                times[cell.action[0] == "F"].append(share * (cell.pieces[:, 1] - cell.pieces[:, 0]).sum())
        return max(np.mean(times[True] or [0]), np.mean(times[False] or [0]) / 4)

    def exposed(self):
        """Per rank, what of its all-reduces lies in its waits for them."""
        return [exposed(*spans) for spans in zip(self.all_reduces, self.waits)]

    def facts(self):
        facts = f"{words.count(self.ranks, 'rank')}, {words.count(self.chunks, 'chunk')} each, {words.count(self.microbatches, 'microbatch')}"
        facts = facts.replace("microbatchs", "microbatches") + f"; step {self.step:.5g} {self.unit}"
        if self.step:
            busiest = int((self.computed >= (1 - 1e-9) * self.computed.max()).argmax())  # the first: a trace's times are rounded
            compute = self.computed[busiest] / self.step
            exposed = sum(end - start for start, end in self.waits[busiest]) / self.step
            facts += (
                f"; rank {busiest}, which computes most: compute {100 * compute:.1f} %, TP bubble {100 * exposed:.1f} %, PP bubble "
                f"{100 * max(0, 1 - compute - exposed):.1f} %"
            )
        return facts


def _cells(rank, block, found):
    """The cells of a block: two if it is braided, each as long as both."""
    parts = block.split("&")
    for half, part in enumerate(parts if len(parts) > 1 else [block], start=len(parts) > 1):
        spans = [span for action, span in found if len(parts) > 1 or action == part or not part]
        match = ACTION.fullmatch(part)
        action = (match[1], int(match[2]), int(match[3])) if match else ()
        if pieces := _joined(spans, 0):
            yield Cell(rank, action, half, np.array(pieces))


def _joined(spans, gap):
    """Spans in order of time, those with no more than `gap` between them as one."""
    joined = []
    for start, end in spans:
        if joined and start - joined[-1][1] <= gap + 1e-9 * abs(end):
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > start:
            joined.append((start, end))
    return joined


def shade(action, chunks):
    if not action:
        return OPTIMIZER
    base = PASSES[action[0]][1]
    white = LIGHTEST * action[1] / (chunks - 1) if chunks > 1 else 0
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in bytes.fromhex(base[1:]))


def exposed(all_reduces, waits):
    spans = np.array(all_reduces).reshape(-1, 2)
    found = []
    for start, end in waits:
        here = spans[(spans[:, 0] < end) & (spans[:, 1] > start)]
        found += [(max(start, one), min(end, other)) for one, other in here]
    return found


def scale_of(trace):
    """Inches per unit of time."""
    forward = trace.forward()
    return max(8 / trace.step if trace.step > 0 else 8, FORWARD / forward if forward > 0 else 0)


def windows(trace, scale, shapes):
    """The windows of the step to draw (all of it, or its beginning and end), and the scale at which one window fits."""
    if not trace.step > 0:
        return [(0, 1)], scale
    widest = WIDEST * min(2, max(1, trace.ranks / 10))  # more ranks take longer to fill and to drain
    widest = min(widest, trace.step * scale * MOST_SHAPES / max(shapes, 1))
    if 0.75 * trace.step * scale <= widest:
        return [(0, trace.step)], min(scale, widest / trace.step)
    half = widest / 2 / scale
    return [(0, half), (trace.step - half, trace.step)], scale


def draw(trace):
    """The figure of a Trace."""
    ranks, scale = min(trace.ranks, MOST_RANKS), scale_of(trace)
    gap = LEAST_GAP / scale
    cells = [Cell(cell.rank, cell.action, cell.half, np.array(_joined(cell.pieces, gap))) for cell in trace.cells if cell.rank < ranks]
    below = [(rank, colour, _joined(spans, gap)) for colour, parts in ((ALL_REDUCE, trace.all_reduces), (EXPOSED, trace.exposed()))
             for rank, spans in enumerate(parts[:ranks])]  # fmt: skip
    shapes = sum(3 + len(cell.pieces) for cell in cells) + sum(len(spans) for _, _, spans in below)  # an outline, a longer number
    drawn, scale = windows(trace, scale, shapes)
    row = 0.36 if ranks <= 16 else 0.2
    figure = style.new_figure(scale * sum(end - start for start, end in drawn) + 1.0, row * ranks + 1.5)
    heads, *grid = figure.subplot_mosaic([["legend"] * len(drawn), range(len(drawn))], height_ratios=[0.2, row * ranks]).values()
    for axes, window in zip(grid, drawn):
        _draw_compute(axes, cells, trace.chunks, window, scale, row)
        _draw_all_reduces(axes, below, window)
        _decorate(axes, window, f"time, {trace.unit}", scale)
        axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)] if axes is grid[0] else [])
        axes.set_ylim(ranks - 0.35, -0.4)
    notes = [trace.facts()]
    if len(drawn) > 1:
        (_, half), _ = drawn
        numbers = [[cell.action[2] for cell in cells if cell.action and cell.pieces[-1, 1] > start and cell.pieces[0, 0] < end]
                   for start, end in drawn]  # fmt: skip
        shown = " and ".join(f"{min(some)} to {max(some)}" for some in numbers if some)
        notes.append(f"Cut: only the first and the last {half:.3g} {trace.unit} are drawn, with microbatches {shown} of {trace.microbatches}.")
    if ranks < trace.ranks:
        notes.append(f"Ranks 0 to {ranks - 1} of {trace.ranks} are drawn.")
    figure.suptitle("\n".join([style.clip(trace.title, 120), *notes]), x=0.01, ha="left", fontsize=8.5)
    heads.legend(handles=_handles(trace), loc="center left", ncol=9, columnspacing=1.4, handlelength=1.2).set_in_layout(False)
    heads.set_axis_off()
    return figure


def _draw_compute(axes, cells, chunks, window, scale, row):
    start, end = window
    faces, outlines = {}, []
    for cell in cells:
        if cell.pieces[-1, 1] <= start or cell.pieces[0, 0] >= end:
            continue
        height = COMPUTE / (2 if cell.half else 1)
        top = cell.rank - COMPUTE / 2 + (height if cell.half == 2 else 0)
        colour = shade(cell.action, chunks)
        pieces = np.clip(cell.pieces, start, end)
        faces.setdefault(colour, []).extend((*piece, top, top + height) for piece in pieces if piece[1] > piece[0])
        if cell.half < 2:
            outlines.append((cell.half, (pieces[0, 0], pieces[-1, 1], cell.rank - COMPUTE / 2, cell.rank + COMPUTE / 2)))
        if cell.action:
            _number(axes, cell.action, pieces, top + height / 2, height * row, scale, colour)
    for colour, boxes in faces.items():
        style.add_boxes(axes, boxes, facecolor=colour)
    for braided, look in ((0, {"edgecolor": "white", "linewidth": 0.5}), (1, {"edgecolor": "black", "linewidth": 1})):
        style.add_boxes(axes, [box for half, box in outlines if half == braided], facecolor="none", **look, zorder=3 + braided)


def _draw_all_reduces(axes, below, window):
    start, end = window
    for colour in (ALL_REDUCE, EXPOSED):
        boxes = [(max(first, start), min(last, end), rank + COMPUTE / 2 + 0.03, rank + COMPUTE / 2 + 0.03 + BELOW)
                 for rank, kind, spans in below if kind == colour for first, last in spans if first < end and last > start]  # fmt: skip
        style.add_boxes(axes, boxes, facecolor=colour)


def _decorate(axes, window, label, scale):
    start, end = window
    axes.set_xlim(start, end)
    axes.set_xlabel(label, loc="left")
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(style.ticks(max(2, int((end - start) * scale / 0.7))))


def _number(axes, action, pieces, middle, height, scale, colour):
    """The microbatch's number in the widest piece, or else across all pieces, where it has room."""
    microbatch = str(action[2])

    def size(width):
        return min(7.5, 72 * 0.95 * height, 72 * width * scale / (0.8 * len(microbatch)))

    start, end = pieces[np.argmax(pieces[:, 1] - pieces[:, 0])]
    red, green, blue = bytes.fromhex(colour[1:])
    look = {"color": "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 130 else "white"}
    if size(end - start) < LEAST_LETTERS:
        start, end = pieces[0, 0], pieces[-1, 1]
        look = {"color": "black", "bbox": {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.4}}
    if size(end - start) >= LEAST_LETTERS:
        label = axes.text((start + end) / 2, middle, microbatch, fontsize=size(end - start), ha="center", va="center_baseline", zorder=5, **look)
        label.set_in_layout(False)


def _handles(trace):
    present = {cell.action[0] for cell in trace.cells if cell.action}
    handles = [Patch(facecolor=colour, label=name) for key, (name, colour) in PASSES.items() if key in present]
    if trace.chunks > 1:
        handles.append(Patch(visible=False, label="(later chunks lighter)"))
    if any(cell.half for cell in trace.cells):
        handles.append(Patch(facecolor="none", edgecolor="black", label="braid, first action above"))
    if any(trace.all_reduces):
        handles += [Patch(facecolor=ALL_REDUCE, label=trace.collective), Patch(facecolor=EXPOSED, label=f"exposed {trace.collective}")]
    if any(not cell.action for cell in trace.cells):
        handles.append(Patch(facecolor=OPTIMIZER, label="optimizer"))
    return handles


def from_file(path):
    """The Trace of a file; ReportError if it holds none."""
    content = read_json(path)
    if isinstance(content, dict) and isinstance(content.get("otherData"), dict) and "left_out" in content["otherData"]:
        raise ReportError(f"{path}: lacks {content['otherData']['left_out']}; write it with --all-microbatches")
    return Trace(content, path)


def plot(path, name):
    """The page's figure of a trace."""
    trace = from_file(path)
    return style.Plot(name, name, draw(trace), trace.facts() + ".", f"Timeline of {name}: {trace.facts()}.")
