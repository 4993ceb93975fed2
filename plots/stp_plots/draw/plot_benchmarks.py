"""Files of Google Benchmark side by side: medians relative to the first file's, with their intervals."""

from stp_plots import words
from stp_plots.draw import style
from stp_plots.draw.plot_page import Block, file_colour, file_handles, page
from stp_plots.json_input import InputError

ROWS = 45  # that are drawn: where there are more, those that differ most
LONGEST_NAME = 60
VERDICT_COLOURS = {"slower": "#B3261E", "faster": "#117733"}


def compared(comparison):
    """Rows that the first file and another have: name, cells by file (None where there is no time)."""
    found = []
    for row in comparison["rows"]:
        cells = [cell if cell and "median_s" in cell else None for cell in row["cells"]]
        if cells[0] and cells[0]["median_s"] and any(cells[1:]):
            found.append((row["name"], cells))
    return found


def difference(cells):
    """The largest, without sign."""
    return max(abs(cell["against_first"]["difference"]) for cell in cells[1:] if cell)


def draw_row(axes, y, cells):
    pitch = 0.8 / len(cells)
    base = cells[0]["median_s"] / 100
    for file, cell in enumerate(cells):
        if not cell:
            continue
        place = y + (file - (len(cells) - 1) / 2) * pitch
        axes.barh(place, cell["median_s"] / base, 0.92 * pitch, color=file_colour(file), linewidth=0, zorder=2)
        if cell["interval_s"]:
            span = [end / base for end in cell["interval_s"]]
            axes.plot(span, [place, place], color="black", linewidth=1, marker="|", markersize=4, zorder=3)
        if against := cell["against_first"]:
            noisy = ", noisy" if cell["noisy"] or cells[0]["noisy"] else ""
            note = f"{against['verdict']} ({words.percent(against['difference'])}{noisy})"
            colour = VERDICT_COLOURS.get(against["verdict"], style.FAINT)
            axes.text(1.01, place, note, transform=axes.get_yaxis_transform(), va="center", fontsize=7, color=colour)


def caption_of(rule, total):
    limits = {key: words.plain_percent(rule[key], 0) for key in ("error_rate", "least_difference", "noisy_above")}
    caption = [
        "Bars: median real time of an iteration, the first file's being 100 %. Lines: 95 % interval of the median (order "
        "statistics).",
        f"Verdicts by the Mann-Whitney U test with Holm's correction over {words.count(rule['comparisons'], 'comparison')} at "
        f"{limits['error_rate']}; less than {limits['least_difference']} is the same, an interval of more than "
        f"±{limits['noisy_above']} is noisy.",
    ]
    if total > ROWS:
        caption.append(f"The {ROWS} of {total} benchmarks that differ most.")
    return caption


def plot(comparison):
    files, rows = comparison["files"], compared(comparison)
    if not rows:
        raise InputError("", "--plot", "no benchmark ran in two of the files: there is nothing to draw", "leave it out")
    total = len(rows)
    if total > ROWS:
        most = sorted(range(total), key=lambda i: -difference(rows[i][1]))[:ROWS]
        rows = [rows[i] for i in sorted(most)]
    legend = file_handles(f"{file['label']}: {file['path']}" for file in files)
    block = Block(1, 1, max(0.8, len(rows) * (0.14 * len(files) + 0.1)) + 0.5, [])
    figure = page("Benchmarks side by side", caption_of(comparison["rule"], total), [block])
    (axes,) = block.axes
    axes.legend(handles=legend, loc="lower left", bbox_to_anchor=(0, 1.01), ncol=2)  # the verdicts stand to the right
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
