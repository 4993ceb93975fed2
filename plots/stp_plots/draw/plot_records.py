"""Result records side by side: throughput per configuration, schedule and file."""

import math

from stp_plots import words
from stp_plots.draw import bars, style
from stp_plots.draw.plot_page import Block, configuration_lines, file_colour, file_handles, page
from stp_plots.page import screen

PANELS = 24  # that are drawn


def throughput_interval(cell):
    """The 95 % interval of a throughput, which the step's turns into; NaN without one."""
    value, step, interval = cell["throughput_samples_per_s"], cell["step_time_s"], cell["step_time_interval_s"]
    if value is None or not step or not interval or min(interval) <= 0:
        return math.nan, math.nan
    return tuple(value * step / end for end in reversed(interval))


def panels_of(comparison):
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
            low, high = throughput_interval(cell)
            drawn.append(bars.Bar(file_colour(file), bars.known(cell["throughput_samples_per_s"]), low=low, high=high))
        found.setdefault(configuration_lines(row["configuration"]), []).append(bars.Section([style.clip(name, 22)], [("", drawn)]))
    return list(found.items()), alone


def caption_of(comparison, panels, alone):
    caption = [
        "Samples per second, from zero; every panel has its own scale. Lines: 95 % interval of the median, where steps "
        "were repeated."
    ]
    evidence = list(dict.fromkeys(file["evidence"] for file in comparison["files"]))
    if len(evidence) > 1:
        caption.append(
            f"The evidence differs ({', '.join(evidence)}): between such bars there is no gain or loss, but a prediction "
            "and its error."
        )
    for one in comparison["differs"]:
        if one["field"] in ("cluster", "host"):
            caption.append(f"The files differ in {one['field']}: " + " | ".join(map(screen.word, one["values"])))
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


def plot(comparison):
    panels, alone = panels_of(comparison)
    legend = file_handles(f"{file['label']}: {file['scenario']}, {file['evidence']}" for file in comparison["files"])
    block = Block(len(panels[:PANELS]), 3, 2.2, legend)
    figure = page("Throughput side by side", caption_of(comparison, len(panels), alone), [block])
    for i, (axes, (title, sections)) in enumerate(zip(block.axes, panels)):
        bars.draw(axes, sections)
        axes.set_title(title)
        if block.first_column(i):
            axes.set_ylabel("samples/s")
    return figure
