#!/usr/bin/env python3
"""Draws the plots of a result folder, its timelines and its pages.

    report.py FOLDER

FOLDER is what `stp reproduce` writes: summary.json, a record per experiment, timeline-*.json. The plots (PNG), the timelines
(SVG), all rows (CSV), report.html and ours-alone.html, which has experiments without published figures, are written beside these. Exits
with 1 and one line on stderr on failure.
"""

import argparse
import dataclasses
import multiprocessing
import os
import sys
from pathlib import Path

from stp_plots import packages  # noqa: F401, I001 - before what needs them
from stp_plots.draw import accuracy, breakdown, closed_forms, figures, headline, overlap, panels, sensitivity, splits, style, timelines, times
from stp_plots.files import ReportError, progress, write_whole
from stp_plots.judge import claims, host_links
from stp_plots.page import html, pages, tables
from stp_plots.read import records


def makers(experiment):
    """The plots that fit the experiment, the most important first."""
    if experiment.pairs:
        return [overlap.plot]
    if not len(experiment):
        return []
    if splits.cells(experiment):
        return [splits.ablation, breakdown.breakdown]
    if splits.contention_groups(experiment):
        return [splits.contention]
    if experiment.has_published("tp_share"):
        return [figures.tp_share]
    if host_links.groups(experiment):
        return [figures.memory, breakdown.breakdown]
    if times.needed(experiment):
        return [times.plot, breakdown.breakdown]
    if panels.needed(experiment):
        return [panels.throughput, accuracy.strips, panels.memory, breakdown.breakdown]
    closed = any(map(experiment.has_published, closed_forms.FORMS))
    chosen = [closed_forms.closed_forms] if closed else []
    if experiment.has_published("throughput"):
        # Not where some schedules have settings that the baseline cannot have.
        chosen += [figures.gain] if experiment.figure("gain")["schedule"].nunique() == len(experiment.schedules) - 1 > 0 else []
        chosen += [accuracy.strips, figures.throughput, sensitivity.tornado]
    else:
        timed = not closed and experiment.rows["step_time"].notna().any()
        chosen += [figures.gain] if timed and experiment.asked_gain else []
        chosen += [figures.step_time] if timed else []
        chosen.append(accuracy.strips)
    if len(experiment.figure("memory")):
        chosen.append(figures.memory)
    return chosen + ([breakdown.breakdown] if not closed or closed_forms.legible(experiment) else [])


@dataclasses.dataclass
class Task:
    """A plot of an experiment, or a timeline of it if there is a trace."""

    experiment: records.Experiment  # of the first screen's plot: all of them
    maker: object = None
    trace: Path = None

    def draw(self, colours):
        """The plot with its file; None if there is no data for it, or the trace is invalid."""
        kind, render = ("svg", style.svg) if self.trace else ("png", style.png)
        arguments = (self.experiment,) if self.maker is headline.plot else (self.experiment, colours)
        try:
            plot = timelines.plot(self.trace, self.word()) if self.trace else self.maker(*arguments)
        except ReportError:
            return None
        if plot is None:
            return None
        return html.Drawn(dataclasses.replace(plot, figure=None), render(plot.figure), kind, tuple(plot.figure.get_size_inches()))

    def word(self):
        return self.trace.stem.removeprefix(f"timeline-{self.experiment.id}-")


def draw_all(tasks, colours):
    """The drawings of all tasks, made in one process per processor."""
    workers = min(os.cpu_count() or 1, len(tasks) // 3, 8)
    if workers < 2:
        return [task.draw(colours) for task in progress("drawing plots", tasks, len(tasks))]
    INHERITED[:] = [(task, colours) for task in tasks]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return list(progress("drawing plots", pool.imap(draw_inherited, range(len(tasks))), len(tasks)))


INHERITED = []  # what the processes of a pool inherit from their parent by fork, without pickling


def draw_inherited(number):
    task, colours = INHERITED[number]
    return task.draw(colours)


def report(folder):
    folder = Path(folder)
    experiments = records.read_folder(folder)
    sensitivity.attach(folder, experiments)
    style.set_up()
    tasks = [Task(one, trace=trace) for one in experiments for trace in one.timelines]
    tasks += [Task(one, maker=maker) for one in experiments for maker in makers(one)]
    colours = style.schedule_colours(list(dict.fromkeys(name for one in experiments for name in one.schedules)))
    evaluated = claims.of_experiments(experiments)
    tasks += [Task(experiments, headline.plot)] if evaluated else []
    plots, traces, first = {}, {}, None
    for task, drawn in zip(tasks, draw_all(tasks, colours)):
        if task.trace:
            traces.setdefault(task.experiment.id, []).append((task.trace.name, drawn))
        if drawn is None:
            continue
        if task.maker is headline.plot:
            first = drawn
            write_whole(folder / "plot-gains.png", drawn.content)
            continue
        name = html.file_word(task.experiment)
        write_whole(task.trace.with_suffix(".svg") if task.trace else folder / f"plot-{name}-{drawn.plot.name}.png", drawn.content)
        if not task.trace:
            plots.setdefault(task.experiment.id, []).append(drawn)
    for one in experiments:
        if len(one.rows):
            write_whole(folder / f"rows-{html.file_word(one)}.csv", tables.rows_csv(one).encode())
    answers = pages.Records(experiments, evaluated).answers(strict=False) if evaluated else None
    alone = [one for one in experiments if html.is_alone(one)]
    judged = [one for one in experiments if one not in alone]
    if judged and alone:
        write_whole(folder / html.OURS_ALONE, html.render(alone, plots, traces, []).encode())
    shown = (judged, len(alone)) if judged else (alone, 0)
    write_whole(folder / "report.html", html.render(shown[0], plots, traces, evaluated, first, answers, shown[1]).encode())


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="report.py", description="Plots, timelines and report.html of a result folder.")
    parser.add_argument("folder", metavar="FOLDER", help="a folder written by stp reproduce")
    options = parser.parse_args(arguments)
    try:
        report(options.folder)
    except ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
