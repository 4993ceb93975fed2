"""Files of Google Benchmark side by side: medians relative to the first file's, with their intervals."""

from matplotlib.patches import Patch

from . import style, words
from .compare_page import Block, file_colour, page
from .records import ReportError
from .values import dictionary, items, number

ROWS = 45  # that are drawn: where there are more, those that differ most
LONGEST_NAME = 60
VERDICT_COLOURS = {"slower": "#B3261E", "faster": "#117733"}


def compared(comparison):
    """Rows that the first file and another have: name, cells by file (empty where there is none)."""
    found = []
    for row in items(comparison.get("rows")):
        cells = [dictionary(cell) for cell in items(row.get("cells"))]
        cells = [cell if number(cell.get("median_s")) is not None else {} for cell in cells]
        if cells and cells[0].get("median_s") and any(cells[1:]):
            found.append((str(row.get("name")), cells))
    return found


def difference(cells):
    """The largest, without sign."""
    told = [number(dictionary(cell.get("against_first")).get("difference")) for cell in cells[1:]]
    return max((abs(value) for value in told if value is not None), default=0)


def draw_bar(axes, place, height, file, cell, base):
    axes.barh(place, 100 * cell["median_s"] / base, height, color=file_colour(file), linewidth=0, zorder=2)
    ends = [number(end) for end in items(cell.get("interval_s"))]
    if len(ends) == 2 and None not in ends:
        span = [100 * end / base for end in ends]
        axes.plot(span, [place, place], color="black", linewidth=1, marker="|", markersize=4, zorder=3)


def draw_row(axes, y, cells):
    pitch = 0.8 / len(cells)
    for file, cell in enumerate(cells):
        if not cell:
            continue
        place = y + (file - (len(cells) - 1) / 2) * pitch
        draw_bar(axes, place, 0.92 * pitch, file, cell, cells[0]["median_s"])
        told = dictionary(cell.get("against_first"))
        if told:
            noisy = ", noisy" if cell.get("noisy") or cells[0].get("noisy") else ""
            verdict = str(told.get("verdict"))
            note = f"{verdict} ({words.percent(number(told.get('difference')))}{noisy})"
            colour = VERDICT_COLOURS.get(verdict, style.FAINT)
            axes.text(1.01, place, note, transform=axes.get_yaxis_transform(), va="center", fontsize=7, color=colour)


def caption_of(comparison, total):
    rule = dictionary(comparison.get("rule"))
    limits = {key: words.plain_percent(number(rule.get(key)), 0) for key in ("error_rate", "least_difference", "noisy_above")}
    caption = [
        "Bars: median real time of an iteration, the first file's being 100 %. Lines: 95 % interval of the median (order "
        "statistics).",
        f"Judged by Mann-Whitney's U with Holm's correction over {words.count(rule.get('comparisons'), 'comparison')} at "
        f"{limits['error_rate']}; less than {limits['least_difference']} is the same, an interval of more than "
        f"±{limits['noisy_above']} is noisy.",
    ]
    if total > ROWS:
        caption.append(f"The {ROWS} of {total} benchmarks that differ most.")
    return caption


def plot(comparison):
    files = [dictionary(file) for file in items(comparison.get("files"))]
    rows = compared(comparison)
    if not rows:
        raise ReportError("no benchmark ran in two of the files: there is nothing to draw")
    total = len(rows)
    if total > ROWS:
        most = sorted(range(total), key=lambda i: -difference(rows[i][1]))[:ROWS]
        rows = [rows[i] for i in sorted(most)]
    legend = []
    for i, file in enumerate(files):
        legend.append(Patch(facecolor=file_colour(i), label=style.clip(f"{file.get('label')}: {file.get('path')}", 60)))
    left = 0.4 + 0.066 * min(LONGEST_NAME, max(len(name) for name, _ in rows))
    height = max(0.8, len(rows) * (0.14 * len(files) + 0.1))
    # To the right there is room for the verdicts.
    block = Block(1, 1, height, legend, left=left, right=1.75, bottom=0.45, title=0.1, widest=style.FULL_WIDTH)
    figure = page("Benchmarks side by side", caption_of(comparison, total), [block])
    axes = block.axes[0]
    for y, (_, cells) in enumerate(rows):
        draw_row(axes, y, cells)
    axes.axvline(100, color=style.FAINT, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([style.clip(name, LONGEST_NAME) for name, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_locator(style.ticks())
    axes.set_xlabel("time, % of the first file's median; shorter is better")
    return figure
