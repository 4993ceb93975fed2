"""Machines side by side: predicted throughput per machine and schedule, and which property moves the gain."""

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import bars, style
from stp_plots.draw.plot_page import Block, configuration_lines, page
from stp_plots.judge.compare_profiles import PARTS

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
                    drawn.append(bars.Bar(colours[schedule["schedule"]], value, published, mark=mark))
            sections.append(bars.Section([machine["name"]], [("", drawn)]))
        panels.append((configuration_lines(line["configuration"]), sections))
    return panels


def caption_of(comparison, gains):
    gain, machines = comparison["gain"], comparison["machines"]
    caption = [
        "All bars are simulated: what the profiles say, by the cost model and the simulator. Every panel of throughput has its "
        "own scale, from zero."
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


def plot(comparison):
    machines = [machine["name"] for machine in comparison["machines"]]
    schedules = comparison["schedules"]
    colours = style.schedule_colours(schedules)
    gains, panels = gain_panels(comparison), throughput_panels(comparison, colours)
    published = any(bar.published == bar.published for _, sections in panels for section in sections for bar in section.bars())
    legend = style.schedule_handles(schedules, colours) + ([style.published_handle()] if published else [])
    below = Block(len(panels), 3, 2.2, legend, "Predicted throughput")
    blocks = [below]
    if gains:
        moving = [part for part in PARTS if any(entry[3][part] for entries in gains.values() for entry in entries)]
        legend = [Patch(facecolor=COLOURS[part], label=PARTS[part]) for part in moving]
        legend.append(Line2D([], [], color="black", linewidth=2, label="sum"))
        of = comparison["gain"]["of"]
        blocks.insert(0, Block(len(gains), 2, 2.9, legend, f"What moves the gain of {of}"))
    figure = page("Machines side by side: " + ", ".join(machines), caption_of(comparison, gains), blocks)
    if gains:
        for i, (axes, (title, entries)) in enumerate(zip(blocks[0].axes, gains.items())):
            draw_gain(axes, title, entries, machines[0])
            if blocks[0].first_column(i):
                axes.set_ylabel("change of the gain, points")
    for i, (axes, (title, sections)) in enumerate(zip(below.axes, panels)):
        bars.draw(axes, sections)
        axes.set_title(title)
        if below.first_column(i):
            axes.set_ylabel("samples/s")
    return figure
