#!/usr/bin/env python3
"""Draws the plots of a result folder, its timelines and its pages.

    report.py [--follow] FOLDER

FOLDER is what `stp reproduce` writes: summary.json, a record per experiment, timeline-*.json. The plots (PNG), the timelines
(SVG), all rows (CSV), report.html and ours-alone.html, which has experiments without published figures, are written beside these. Exits
with 1 and one line on stderr on failure.

--follow: FOLDER is still being written. Standard input has the summary's line of each experiment as soon as its files are there; plots
are drawn meanwhile, and everything is written when the input ends.
"""

import argparse
import dataclasses
import functools
import json
import multiprocessing
import os
import signal
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
    """A plot of the experiment of a summary's line, or its timeline of a trace. It is small: other processes are sent it."""

    folder: Path
    line: str  # JSON
    colours: dict
    maker: object = None
    trace: Path = None

    def draw(self):
        """The plot with its file; None if there is no data for it, or the trace is invalid."""
        experiment = opened(self.folder, self.line)
        kind, render = ("svg", style.svg) if self.trace else ("png", style.png)
        try:
            plot = timelines.plot(self.trace, self.word(experiment)) if self.trace else self.maker(experiment, self.colours)
        except ReportError:
            return None
        return plot and drawn(plot, kind, render)

    def word(self, experiment):
        return self.trace.stem.removeprefix(f"timeline-{experiment.id}-")


def drawn(plot, kind, render):
    return html.Drawn(dataclasses.replace(plot, figure=None), render(plot.figure), kind, tuple(plot.figure.get_size_inches()))


@functools.lru_cache(maxsize=2)  # tasks of an experiment come one after the other
def opened(folder, line):
    experiment = records.read_experiment(folder, json.loads(line))
    sensitivity.attach(folder, [experiment])
    return experiment


class Drawings:
    """What is drawn, by one process per processor, while further tasks are added."""

    def __init__(self):
        self.tasks, self.pool, self.begun = [], None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pool:
            self.pool.terminate()

    def add(self, task):
        self.tasks.append(task)
        workers = min(os.cpu_count() or 1, 8)
        if not self.pool and workers > 1 and len(self.tasks) > 5:  # fewer are drawn before the processes have begun
            self.pool = multiprocessing.get_context("fork").Pool(workers)
        if self.pool:
            self.begun += [self.pool.apply_async(Task.draw, [one]) for one in self.tasks[len(self.begun) :]]

    def results(self):
        """Each drawing with its task, in the order in which they were added."""
        found = (one.get() for one in self.begun) if self.pool else (one.draw() for one in self.tasks)
        return zip(progress("drawing plots", found, len(self.tasks)), self.tasks)


def read(folder, lines, drawings):
    """The experiments of these lines of the summary; each is being drawn from when its line comes."""
    experiments = []
    for line in lines:
        text = json.dumps(line)
        one = opened(folder, text)
        experiments.append(one)
        one.timelines = records.timelines(folder, one, experiments)
        colours = style.schedule_colours(list(dict.fromkeys(name for each in experiments for name in each.schedules)))
        for trace in one.timelines:
            drawings.add(Task(folder, text, colours, trace=trace))
        for maker in makers(one):
            drawings.add(Task(folder, text, colours, maker))
    return experiments


def write_drawings(folder, drawings):
    """The files of plots and timelines; by experiment, plots and (trace, timeline)."""
    plots, traces = {}, {}
    for found, task in drawings.results():
        name = json.loads(task.line)["id"]
        if task.trace:
            traces.setdefault(name, []).append((task.trace.name, found))
        elif found:
            plots.setdefault(name, []).append(found)
        if found:
            file = task.trace.with_suffix(".svg") if task.trace else folder / f"plot-{html.file_word(name)}-{found.plot.name}.png"
            write_whole(file, found.content)
    return plots, traces


def report(folder, lines=None):
    """`lines`: those of the summary, as they come; None: all are there."""
    folder = Path(folder)
    style.set_up()
    with Drawings() as drawings:
        experiments = read(folder, records.read_lines(folder) if lines is None else lines, drawings)
        records.read_lines(folder)  # the summary is written last: where there is none, the program that wrote the lines has failed
        evaluated = claims.of_experiments(experiments)
        first = headline.plot(experiments) if evaluated else None
        if first:
            first = drawn(first, "png", style.png)
            write_whole(folder / "plot-gains.png", first.content)
        for one in experiments:
            if len(one.rows):
                write_whole(folder / f"rows-{html.file_word(one.id)}.csv", tables.rows_csv(one).encode())
        answers = pages.Records(experiments, evaluated).answers(strict=False) if evaluated else None
        plots, traces = write_drawings(folder, drawings)
    alone = [one for one in experiments if html.is_alone(one)]
    judged = [one for one in experiments if one not in alone]
    if judged and alone:
        write_whole(folder / html.OURS_ALONE, html.render(alone, plots, traces, []).encode())
    shown = (judged, len(alone)) if judged else (alone, 0)
    write_whole(folder / "report.html", html.render(shown[0], plots, traces, evaluated, first, answers, shown[1]).encode())


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="report.py", description="Plots, timelines and report.html of a result folder.")
    parser.add_argument("--follow", action="store_true", help="draw while it is written; standard input has the summary's lines")
    parser.add_argument("folder", metavar="FOLDER", help="a folder written by stp reproduce")
    options = parser.parse_args(arguments)
    if options.follow:
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # stp starts it in a process group of its own, which would stop if it wrote to some terminals
    try:
        report(options.folder, map(json.loads, sys.stdin) if options.follow else None)
    except ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
