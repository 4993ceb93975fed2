"""Bars per schedule: throughput, step time, gain over the baseline, peak memory."""

from dataclasses import dataclass

from matplotlib.patches import Patch

from . import sensitivity, style, words
from .values import text


@dataclass
class Bar:
    slot: int  # the schedule's place in its group
    colour: str
    value: float | None
    published: float | None = None
    calibrated: bool = False
    spread: tuple | None = None  # lowest and highest: of the repeats, or of the sensitivity's band


@dataclass
class Panel:
    title: str
    groups: list  # (label, bars)
    slots: int


GROUP_GAP = 0.7  # in bars


def draw_panel(axes, panel, *, signed=False):
    """Bars from zero, group beside group. Magnitudes keep zero at the bottom; signed ones show a zero line."""
    pitch = panel.slots + GROUP_GAP
    for group, (_, bars) in enumerate(panel.groups):
        for bar in bars:
            x = group * pitch + bar.slot
            if bar.value is not None:
                hatch = {"hatch": "////", "edgecolor": "white"} if bar.calibrated else {}
                axes.bar(x, bar.value, 0.88, color=bar.colour, linewidth=0, zorder=2, **hatch)
            if bar.spread:
                axes.plot([x, x], bar.spread, color="black", linewidth=1, marker="_", markersize=7, zorder=3)
            if bar.published is not None:
                axes.plot(x, bar.published, **style.published_marker(), zorder=4, clip_on=False)
    middle = (panel.slots - 1) / 2
    axes.set_xticks([group * pitch + middle for group in range(len(panel.groups))])
    axes.set_xticklabels([label for label, _ in panel.groups])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.5 - GROUP_GAP / 2, len(panel.groups) * pitch - GROUP_GAP / 2 - 0.5)
    axes.set_title(panel.title)
    axes.yaxis.set_major_locator(style.ticks())
    low, high = extent(panel)
    if signed:
        axes.axhline(0, color=style.FAINT, linewidth=0.9, zorder=3)
        axes.set_ylim(low, high)
    else:
        axes.set_ylim(0, high)


def extent(panel):
    """Lowest and highest value, zero included, with some air; never empty."""
    values = [0.0]
    for _, bars in panel.groups:
        for bar in bars:
            values += [v for v in (bar.value, bar.published, *(bar.spread or ())) if v is not None]
    if min(values) == max(values):
        return 0, 1
    air = 0.08 * (max(values) - min(values))
    return (min(values) - air if min(values) < 0 else 0), max(values) + air


def grouped_by_configuration(scenario, colours, schedules, bar_of):
    """A panel per configuration, a group per number of microbatches."""
    panels = []
    for configuration in scenario.configurations:
        groups = []
        for microbatches in configuration.microbatches():
            rows = [(slot, configuration.row(name, microbatches)) for slot, name in enumerate(schedules)]
            bars = [bar_of(slot, colours[row.schedule], row) for slot, row in rows if row]
            if any(bar.value is not None or bar.published is not None for bar in bars):
                groups.append((text(microbatches), bars))
        if groups:
            panels.append(Panel(style.clip_lines(configuration.title(30), 30), groups, len(schedules)))
    return panels


def panel_grid(panels, legend, *, same_width=None):
    """A grid wide enough for the panels' bars."""
    bars = max(len(panel.groups) * (panel.slots + GROUP_GAP) for panel in panels)
    least = max(2.0, 0.17 * bars)
    columns = style.balanced_columns(len(panels), int((style.FULL_WIDTH - 0.4) / (least + 0.5)))
    available = (style.FULL_WIDTH - 0.85 - 0.5 * (columns - 1)) / columns
    width = same_width or min(available, max(least, 0.4 * bars))
    lines = max(panel.title.count("\n") + 1 for panel in panels)
    title = 0.14 + 0.15 * lines
    return style.Grid(len(panels), columns, width, 1.75, legend, title=title, gap_y=0.35 + title)


def draw_grid(panels, legend, ylabel, xlabel, *, signed=False, shared=False):
    grid = panel_grid(panels, legend)
    limits = [extent(panel) for panel in panels]
    for i, (axes, panel) in enumerate(zip(grid.axes, panels)):
        draw_panel(axes, panel, signed=signed)
        if shared:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        if grid.first_column(i):
            axes.set_ylabel(ylabel)
        if grid.last_of_column(i):
            axes.set_xlabel(xlabel)
    return grid.figure


def legend_for(scenario, colours, schedules, name=None):
    handles = style.schedule_handles(schedules, colours)
    if name and scenario.has_published(name):
        handles.append(style.published_handle())
    if name and any(row.fitted(name) for row in scenario.rows):
        handles.append(style.calibrated_handle())
    return handles


def throughput(scenario, colours):
    def bar(slot, colour, row):
        value, step = row.figure("throughput"), row.value("step_time_s")
        repeats = [time for time in row.repeats() if time > 0]
        spread = None
        if value is not None and step and len(repeats) > 1:
            spread = (value * step / max(repeats), value * step / min(repeats))
        elif scenario.sensitivity is not None:
            spread = scenario.sensitivity.throughput_band(row)
        return Bar(slot, colour, value, row.published("throughput"), row.calibrated, spread)

    panels = grouped_by_configuration(scenario, colours, scenario.schedules, bar)
    figure = draw_grid(
        panels,
        legend_for(scenario, colours, scenario.schedules, "throughput"),
        "throughput, samples/s",
        "microbatches per step",
    )
    caption = (
        f"Bars: {scenario.evidence}; diamonds: the paper's figure for the same configuration. A diamond above its bar "
        "means that the suite gives too little, one inside its bar too much. Every panel has its own scale, from zero."
        + words.hatched_note(scenario, "throughput")
        + words.unmarked_note(scenario, "throughput")
        + words.spread_note(scenario)
        + sensitivity.note(scenario)
        + words.error_note(scenario, "throughput")
    )
    configurations = words.count(len(panels), "configuration")
    alt = f"Bar chart of throughput per schedule in {configurations}, with published values marked."
    return style.Plot("throughput", "Throughput", figure, caption, alt + words.alt_error(scenario, "throughput"))


def step_time(scenario, colours):
    def bar(slot, colour, row):
        repeats = row.repeats()
        return Bar(
            slot, colour, row.value("step_time_s"), spread=(min(repeats), max(repeats)) if len(repeats) > 1 else None
        )

    panels = grouped_by_configuration(scenario, colours, scenario.schedules, bar)
    figure = draw_grid(
        panels,
        legend_for(scenario, colours, scenario.schedules),
        "step time, " + words.time_unit(scenario),
        "microbatches per step",
    )
    values = [(row.value("step_time_s"), row) for row in scenario.rows if row.value("step_time_s") is not None]
    fastest = min(values, key=lambda pair: pair[0])
    caption = (
        f"Time of one step ({scenario.evidence}); shorter is better. There is no published figure for these rows."
        + words.spread_note(scenario)
    )
    if len(values) > 1:
        caption += f" Shortest: {words.magnitude(fastest[0])} {words.time_unit(scenario)} ({fastest[1].name()})."
    alt = f"Bar chart of step time per schedule in {words.count(len(panels), 'configuration')}. "
    return style.Plot("step-time", "Step time", figure, caption, alt + words.listing(values, words.magnitude))


def gain(scenario, colours):
    baseline = scenario.baseline()
    schedules = [name for name in scenario.schedules if name != baseline]

    def bar(slot, colour, row):
        ours, theirs, fitted = scenario.gain(row)
        band = None
        if scenario.sensitivity is not None and ours is not None:
            band = scenario.sensitivity.gain_band(row, row.configuration.row(baseline, row.microbatches))
        return Bar(slot, colour, ours, theirs, fitted, band)

    panels = grouped_by_configuration(scenario, colours, schedules, bar)
    if not panels:
        return None
    figure = draw_grid(
        panels,
        legend_for(scenario, colours, schedules, "throughput"),
        f"gain over {style.clip(baseline, 20)}, %",
        "microbatches per step",
        signed=True,
        shared=True,
    )
    caption = (
        f"Throughput gained over {baseline} in the same configuration, in per cent. All panels share one scale. "
        "This is the claim under test: an error that all schedules share cancels here."
        + words.hatched_note(scenario, "throughput")
        + sensitivity.note(scenario)
        + words.gain_note(scenario)
    )
    configurations = words.count(len(panels), "configuration")
    alt = f"Bar chart of the gain of {', '.join(schedules)} over {baseline} in {configurations}."
    return style.Plot("gain", f"Gain over {baseline}", figure, caption, alt + words.gain_note(scenario))


def tp_share(scenario, colours):
    """A panel per model and cluster, a bar per size of the tensor-parallel group."""
    del colours  # schedules have no part in it
    panels = {}
    for row in scenario.rows:
        share, published = row.figure("tp_share"), row.published("tp_share")
        if share is None:
            continue
        told = (f"{text(row.data.get('model'))} on {text(row.data.get('cluster'))}", f"s {text(row.data.get('seq'))}")
        bar = Bar(0, "#882255", 100 * share, None if published is None else 100 * published)
        panels.setdefault(told, {})[f"TP{text(row.data.get('tp'))}"] = [bar]
    panels = [Panel("\n".join(told), list(groups.items()), 1) for told, groups in panels.items()]
    if not panels:
        return None
    handle = Patch(facecolor="#882255", label=f"ours, {scenario.evidence}")
    width = min(3.2, (style.FULL_WIDTH - 0.85) / len(panels) - 0.5)
    grid = style.Grid(len(panels), len(panels), width, 2.1, [handle, style.published_handle()], title=0.55)
    top = max(extent(panel)[1] for panel in panels)
    for i, (axes, panel) in enumerate(zip(grid.axes, panels)):
        draw_panel(axes, panel)
        axes.set_ylim(0, top)
        for group, (_, drawn) in enumerate(panel.groups):
            axes.annotate(
                f"{drawn[0].value:.1f}" + ("" if drawn[0].published is not None else "\nnot published"),
                (group * (panel.slots + GROUP_GAP), drawn[0].value),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=style.FAINT,
            )
        if i == 0:
            axes.set_ylabel("all-reduces, % of a layer's forward")
    caption = (
        "Share of one layer's forward that its two all-reduces take where nothing overlaps them. The paper prints one of "
        "these shares (diamond); its other bars have no numbers." + words.error_note(scenario, "tp_share")
    )
    alt = "Bar chart of the share of TP communication in a layer's forward, by size of the tensor-parallel group."
    return style.Plot("tp-share", "TP communication in a forward", grid.figure, caption, alt)


def memory(scenario, colours):
    slots = {name: slot for slot, name in enumerate(scenario.schedules)}
    groups = []
    for configuration in scenario.configurations:
        variants = {}  # by m; most often all alike
        for microbatches in configuration.microbatches():
            rows = [row for row in configuration.rows if row.microbatches == microbatches]
            bars = [
                Bar(
                    slots[row.schedule],
                    colours[row.schedule],
                    row.figure("memory"),
                    row.published("memory"),
                    row.memory_calibrated,
                )
                for row in rows
            ]
            bars = [bar for bar in bars if bar.value is not None or bar.published is not None]
            variants.setdefault(repr(bars), (bars, []))[1].append(text(microbatches))
        variants = [variant for variant in variants.values() if variant[0]]
        for bars, microbatches in variants:
            lines = configuration.lines + ([f"m {', '.join(microbatches)}"] if len(variants) > 1 else [])
            groups.append((style.clip_lines(lines, 20, 5), bars))
    per_row = max(1, min(8, int(48 / (len(slots) + GROUP_GAP))))
    rows = style.balanced_columns(len(groups), per_row)
    panels = [Panel("", groups[i : i + rows], len(slots)) for i in range(0, len(groups), rows)]
    high = max(extent(panel)[1] for panel in panels)
    lines = max(label.count("\n") + 1 for label, _ in groups)
    width = min(style.FULL_WIDTH - 0.85, max(1.2, 0.32 * len(slots)) * rows)
    grid = style.Grid(
        len(panels),
        1,
        width,
        2.1,
        legend_for(scenario, colours, scenario.schedules, "memory"),
        title=0.15,
        bottom=0.2 + 0.15 * lines,
        gap_y=0.4 + 0.15 * lines,
    )
    for axes, panel in zip(grid.axes, panels):
        draw_panel(axes, panel)
        axes.set_ylim(0, high)
        axes.set_ylabel("peak memory, GB")
        axes.set_xlim(right=rows * (panel.slots + GROUP_GAP) - GROUP_GAP / 2 - 0.5)
    published = scenario.has_published("memory")
    caption = (
        "Activation memory of the fullest rank at its peak, in decimal gigabytes"
        + ("; diamonds: the paper's peak memory" if published else "")
        + ". One group stands for all numbers of microbatches unless m is given."
        + (words.hatched_note(scenario, "memory") + words.error_note(scenario, "memory") if published else "")
    )
    alt = f"Bar chart of peak memory per schedule in {words.count(len(groups), 'configuration')}."
    return style.Plot("memory", "Peak memory", grid.figure, caption, alt + words.alt_error(scenario, "memory"))
