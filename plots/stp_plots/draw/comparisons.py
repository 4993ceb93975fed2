"""Comparisons as self-contained figures: blocks of panels below each other, with captions."""

import math
import textwrap
from dataclasses import dataclass, field

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import bars, style
from stp_plots.files import InputError
from stp_plots.judge.compare_profiles import PARTS
from stp_plots.judge.compare_records import JOB

# Files, in their order; the others are compared with the first.
FILE_COLOURS = ["#56738c", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288", "#999933"]


def file_colour(index):
    return FILE_COLOURS[index % len(FILE_COLOURS)]


def configuration_lines(configuration):
    """A configuration in a panel's title."""
    parts = [", ".join(part) for part in words.configuration_parts(configuration) if part]
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
        grid = style.panels(part, block.count, block.columns)
        block.axes = list(grid.flat[: block.count])
        style.legend(grid[0, -1], block.legend)
    return figure


# ---- records: throughput per configuration, schedule and file ----

PANELS = 24  # that are drawn


def throughput_of(comparison):
    """Which throughput is drawn: (in words, its unit, its value of a cell). Where the files' numbers of GPUs differ, that of a GPU."""
    cells = [cell for row in comparison["rows"] for cell in row["cells"] if cell]
    if all(one["field"] != "gpus" for one in comparison["differs"]) or any(not cell["gpus"] for cell in cells):
        return "Samples per second", "samples/s", lambda cell: cell["throughput_samples_per_s"]
    if all(cell["tokens_per_s_per_gpu"] is not None for cell in cells):
        return "Tokens per second of one GPU", "tokens/s/GPU", lambda cell: cell["tokens_per_s_per_gpu"]
    return "Samples per second of one GPU", "samples/s/GPU", lambda cell: cell["throughput_samples_per_s"] and cell["throughput_samples_per_s"] / cell["gpus"]


def throughput_interval(cell, value):
    """The 95 % interval of a throughput, which the step's turns into; NaN without one."""
    step, interval = cell["step_time_s"], cell["step_time_interval_s"]
    if value is None or not step or not interval or min(interval) <= 0:
        return math.nan, math.nan
    return tuple(value * step / end for end in reversed(interval))


def panels_of(comparison, value_of):
    """By configuration a section per schedule with a bar per file; and how many rows only one file has."""
    found, alone = {}, 0
    for row in comparison["rows"]:
        here = [(file, cell) for file, cell in enumerate(row["cells"]) if cell]
        if len(here) < 2:
            alone += 1
            continue
        name = " | ".join(dict.fromkeys(cell["schedule"] for _, cell in here))
        drawn = []
        for file, cell in here:
            value = value_of(cell)
            low, high = throughput_interval(cell, value)
            drawn.append(bars.Bar(file_colour(file), bars.known(value), low=low, high=high))
        found.setdefault(configuration_lines(row["configuration"]), []).append(bars.Section([style.clip(name, 22)], [("", drawn)]))
    return list(found.items()), alone


def records_caption(comparison, what, panels, alone):
    caption = [
        f"{what}, from zero; every panel has its own scale. Lines: 95 % interval of the median, where steps "
        "were repeated."
    ]
    evidence = list(dict.fromkeys(file["evidence"] for file in comparison["files"]))
    if len(evidence) > 1:
        caption.append(
            f"The evidence differs ({', '.join(evidence)}): between such bars there is no gain or loss, but a prediction "
            "and its error."
        )
    for one in comparison["differs"]:
        if one["field"] in ("cluster", "host", *JOB):
            caption.append(f"The files differ in {one['field'].replace('_', ' ')}: " + " | ".join(map(words.word, one["values"])))
    for errors in comparison["predictions"]:
        if errors["step_error_mean"] is not None:
            caption.append(
                f"Step time by {errors['predicted_by']} ({errors['predicted_evidence']}) against {errors['actual']} "
                f"({errors['actual_evidence']}): mean absolute error {words.plain_percent(errors['step_error_mean'], 2)}, "
                f"largest error {words.percent(errors['step_error_worst'], 2)}."
            )
    if alone:
        caption.append(f"Not drawn: {words.count(alone, 'row')} that only one file has.")
    if panels > PANELS:
        caption.append(f"The first {PANELS} of {panels} configurations.")
    return caption


def plot_records(comparison):
    what, unit, value_of = throughput_of(comparison)
    panels, alone = panels_of(comparison, value_of)
    legend = file_handles(f"{file['label']}: {file['scenario']}, {file['evidence']}" for file in comparison["files"])
    block = Block(len(panels[:PANELS]), 3, 2.2, legend)
    figure = page("Throughput side by side", records_caption(comparison, what, len(panels), alone), [block])
    draw_throughput(block, panels, unit)
    return figure


def draw_throughput(block, panels, unit="samples/s"):
    """`panels`: (title, sections of bars)."""
    for i, (axes, (title, sections)) in enumerate(zip(block.axes, panels)):
        bars.draw(axes, sections)
        axes.set_title(title)
        if block.first_column(i):
            axes.set_ylabel(unit)


# ---- benchmarks: medians relative to the first file's, with their intervals ----

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


def benchmarks_caption(rule, total):
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


def plot_benchmarks(comparison):
    files, rows = comparison["files"], compared(comparison)
    if not rows:
        raise InputError("", "--plot", "no benchmark ran in two of the files: there is nothing to draw", "leave it out")
    total = len(rows)
    if total > ROWS:
        most = sorted(range(total), key=lambda i: -difference(rows[i][1]))[:ROWS]
        rows = [rows[i] for i in sorted(most)]
    legend = file_handles(f"{file['label']}: {file['path']}" for file in files)
    block = Block(1, 1, max(0.8, len(rows) * (0.14 * len(files) + 0.1)) + 0.5, [])
    figure = page("Benchmarks side by side", benchmarks_caption(comparison["rule"], total), [block])
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


# ---- machines: predicted throughput per machine and schedule, and which property moves the gain ----

# Colours of PARTS. From Tol's "bright" and "muted", different from those of schedules.
COLOURS = dict(zip(PARTS, ("#4477AA", "#CCBB44", "#882255", "#EE6677", "#66CCEE", "#BBBBBB")))


def gain_panels(comparison):
    """By configuration, a list of (machine, gain on the first, gain there, parts), per cent and points."""
    found = {}
    for one in comparison["attribution"]:
        for quantity in one["quantities"]:
            if quantity["of"] == "gain_over_baseline":
                parts = {part: 100 * moved["shapley"] for part, moved in quantity["parts"].items()}
                entry = (one["to"], 100 * quantity["from"], 100 * quantity["to"], parts)
                found.setdefault(configuration_lines(one["configuration"]), []).append(entry)
    return found


def draw_gain(axes, title, entries, first):
    """Stacked shares of each machine's difference from the first, up and down from zero, and their sum."""
    highest = lowest = 0.0
    for x, (_, start, end, parts) in enumerate(entries):
        up = down = 0.0
        for part, colour in COLOURS.items():
            axes.bar(x, parts[part], 0.6, bottom=up if parts[part] > 0 else down, color=colour, linewidth=0, zorder=2)
            up, down = up + max(0.0, parts[part]), down + min(0.0, parts[part])
        highest, lowest = max(highest, up), min(lowest, down)
        axes.plot([x - 0.38, x + 0.38], [end - start] * 2, color="black", linewidth=2, zorder=4)
    axes.axhline(0, color=style.FAINT, linewidth=0.9, zorder=3)
    axes.set_xticks(range(len(entries)))
    axes.set_xticklabels([f"{name}\n{end:.1f} % ({words.signed(end - start)})" for name, start, end, _ in entries])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(entries) - 0.4)
    air = 0.06 * (highest - lowest) or 1
    axes.set_ylim(lowest - air, highest + air)
    axes.yaxis.set_major_locator(style.ticks())
    axes.set_title(f"{title}\n{first}: {entries[0][1]:.1f} %")


def throughput_panels(comparison, colours):
    """By configuration a section per machine with a bar per schedule, marked where memory does not hold it."""
    panels = []
    for line in comparison["throughput"]:
        sections = []
        for i, machine in enumerate(comparison["machines"]):
            drawn = []
            for schedule in line["schedules"]:
                cell = schedule["cells"][i]
                if cell.get("throughput_samples_per_s") is not None:
                    value, published = (bars.known(cell.get(f"{of}_samples_per_s")) for of in ("throughput", "published"))
                    mark = {"all": "", "activations": "*"}.get(cell["fits"], "!")
                    low, high = cell.get("throughput_band") or (math.nan, math.nan)
                    drawn.append(bars.Bar(colours[schedule["schedule"]], value, published, low=low, high=high, mark=mark))
            sections.append(bars.Section([machine["name"]], [("", drawn)]))
        panels.append((configuration_lines(line["configuration"]), sections))
    return panels


def profiles_caption(comparison, gains):
    gain, machines = comparison["gain"], comparison["machines"]
    caption = [
        "All bars are simulated: what the profiles say, by the cost model and the simulator. Every panel of throughput has its "
        "own scale, from zero. A line on a bar shows how far the result moves if uncertain values of the profile are wrong."
    ]
    if gains:
        caption.append(
            f"Stacks: the difference of {gain['of']}'s gain over {gain['over']} from that on {machines[0]['name']}, in "
            "percentage points, by the property that makes it (Shapley: the mean over all orders of replacing them); the "
            "black line is their sum."
        )
    if len({(machine["contention_compute"], machine["contention_all_reduce"]) for machine in machines}) == 1:
        caption.append("Contention is the same in all these profiles and so has no part in any difference.")
    caption.append(
        "* memory holds the activations, not weights, gradients and AdamW's fp32 state beside them; ! not the activations "
        "alone. Diamonds: published."
    )
    return caption


def plot_profiles(comparison):
    machines = [machine["name"] for machine in comparison["machines"]]
    schedules = comparison["schedules"]
    colours = style.schedule_colours(schedules)
    gains, panels = gain_panels(comparison), throughput_panels(comparison, colours)
    published = any(bar.published == bar.published for _, sections in panels for section in sections for bar in section.bars())
    legend = style.schedule_handles(schedules, colours) + ([style.published_handle()] if published else [])
    wide = len(machines) > 4  # their names need the space of another panel
    below = Block(len(panels), 2 if wide else 3, 2.2, legend, "Predicted throughput")
    blocks = [below]
    if gains:
        moving = [part for part in PARTS if any(entry[3][part] for entries in gains.values() for entry in entries)]
        legend = [Patch(facecolor=COLOURS[part], label=PARTS[part]) for part in moving]
        legend.append(Line2D([], [], color="black", linewidth=2, label="sum"))
        of = comparison["gain"]["of"]
        blocks.insert(0, Block(len(gains), 1 if wide else 2, 2.9, legend, f"What moves the gain of {of}"))
    figure = page("Machines side by side: " + ", ".join(machines), profiles_caption(comparison, gains), blocks)
    if gains:
        for i, (axes, (title, entries)) in enumerate(zip(blocks[0].axes, gains.items())):
            draw_gain(axes, title, entries, machines[0])
            if blocks[0].first_column(i):
                axes.set_ylabel("change of the gain, points")
    draw_throughput(below, panels)
    return figure


PLOT = {"records": plot_records, "benchmarks": plot_benchmarks, "profiles": plot_profiles}
