"""Result records side by side: throughput per configuration, schedule and file."""

from matplotlib.patches import Patch

from . import bars, style, words
from .compare_page import Block, configuration_lines, file_colour, page
from .records import ReportError
from .values import dictionary, items, number, text

PANELS = 24  # that are drawn


def throughput(cell):
    """Value and its 95 % interval, which the step's turns into."""
    value, step = number(cell.get("throughput_samples_per_s")), number(cell.get("step_time_s"))
    interval = [number(end) for end in items(cell.get("step_time_interval_s"))]
    if value is None or not step or len(interval) != 2 or None in interval or min(interval) <= 0:
        return value, None
    return value, (value * step / interval[1], value * step / interval[0])


def panels_of(comparison):
    """A panel per configuration, a group per schedule, a bar per file; and how many rows one file alone has."""
    found, alone = {}, 0
    for row in items(comparison.get("rows")):
        cells = [dictionary(cell) for cell in items(row.get("cells"))]
        here = [cell for cell in cells if cell]
        if len(here) < 2:
            alone += 1
            continue
        name = " | ".join(dict.fromkeys(str(cell.get("schedule", "?")) for cell in here))
        drawn = []
        for file, cell in enumerate(cells):
            if cell:
                value, spread = throughput(cell)
                drawn.append(bars.Bar(file, file_colour(file), value, spread=spread))
        title = configuration_lines(dictionary(row.get("configuration")))
        found.setdefault(title, []).append((style.clip(name, 22), drawn))
    files = len(items(comparison.get("files")))
    return [bars.Panel(title, groups, files) for title, groups in found.items()], alone


def caption_of(comparison, panels, alone):
    caption = [
        "Samples per second, from zero; every panel has its own scale. Lines: 95 % interval of the median, where steps "
        "were repeated."
    ]
    evidence = list(dict.fromkeys(str(file.get("evidence")) for file in items(comparison.get("files"))))
    if len(evidence) > 1:
        caption.append(
            f"The evidence differs ({', '.join(evidence)}): between such bars there is no gain or loss, but a prediction "
            "and its error."
        )
    for told in items(comparison.get("differs")):
        if told.get("field") in ("cluster", "host"):
            values = " | ".join(text(value) for value in items(told.get("values")))
            caption.append(f"The files differ in {told['field']}: {values}")
    for errors in items(comparison.get("predictions")):
        if number(errors.get("step_error_mean")) is not None:
            caption.append(
                f"Step time by {errors['predicted_by']} ({errors['predicted_evidence']}) against {errors['actual']} "
                f"({errors['actual_evidence']}): {words.plain_percent(errors['step_error_mean'], 2)} off in the mean, "
                f"at worst {words.percent(errors['step_error_worst'], 2)}."
            )
    if alone:
        caption.append(f"Not drawn: {words.count(alone, 'row')} that one file alone has.")
    if panels > PANELS:
        caption.append(f"The first {PANELS} of {panels} configurations.")
    return caption


def plot(comparison):
    panels, alone = panels_of(comparison)
    if not panels:
        raise ReportError("no configuration is in two of the files: there is nothing to draw")
    legend = []
    for i, file in enumerate(map(dictionary, items(comparison.get("files")))):
        label = f"{file.get('label')}: {file.get('scenario')}, {file.get('evidence')}"
        legend.append(Patch(facecolor=file_colour(i), label=style.clip(label, 60)))
    block = Block(len(panels[:PANELS]), 3, 1.7, legend)
    figure = page("Throughput side by side", caption_of(comparison, len(panels), alone), [block])
    for i, (axes, panel) in enumerate(zip(block.axes, panels)):
        bars.draw_panel(axes, panel)
        if block.first_column(i):
            axes.set_ylabel("samples/s")
    return figure
