#!/usr/bin/env python3
"""Draws the plots of a result folder, its timelines and its pages.

    report.py [--follow] FOLDER

FOLDER is what `stp reproduce` writes: summary.json, a record per experiment, timeline-*.json. The plots (PNG), the timelines
(SVG), all rows (CSV), report.html and ours-alone.html, which has experiments without published figures, are written beside these. Exits
with 1 and one line on stderr on failure.

--follow: FOLDER is still being written. Standard input has first the list of all ids, then the summary's line of each experiment as soon
as its files are there. Its plots are drawn from then on; all is written when the input ends and the summary is there. If it is not there,
exits with 1 without a word: the program that writes FOLDER says why.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import multiprocessing
import os
import sys
from pathlib import Path

from stp_plots import packages  # noqa: F401, I001 - before what needs them
from stp_plots.draw import accuracy, breakdown, closed_forms, figures, headline, overlap, panels, sensitivity, splits, style, timelines, times
from stp_plots.files import ReportError, progress, write_whole
from stp_plots.judge import claims
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
    if experiment.has_published("tp_share"):
        return [figures.tp_share]
    if times.needed(experiment):
        return [times.plot, breakdown.breakdown]
    strips = [] if experiment.alone else [accuracy.strips]
    if panels.needed(experiment):
        return [panels.throughput, *strips, panels.memory, breakdown.breakdown]
    closed = any(map(experiment.has_published, closed_forms.FORMS))
    chosen = [closed_forms.closed_forms] if closed else []
    if experiment.has_published("throughput"):
        # Not where some schedules have settings that the baseline cannot have.
        chosen += [figures.gain] if experiment.figure("gain")["schedule"].nunique() == len(experiment.schedules) - 1 > 0 else []
        chosen += [*strips, figures.throughput, sensitivity.tornado]
    else:
        timed = not closed and experiment.rows["step_time"].notna().any()
        chosen += [figures.gain] if timed and experiment.asked_gain else []
        chosen += [figures.step_time] if timed else []
        chosen += strips
    if len(experiment.figure("memory")):
        chosen.append(figures.memory)
    return chosen + ([breakdown.breakdown] if not closed or closed_forms.legible(experiment) else [])


@dataclasses.dataclass
class Task:
    """A plot or, with `trace`, a timeline. It holds the summary's line, not the experiment, so that little is sent to other processes."""

    folder: Path
    id: str
    line: str  # JSON
    colours: dict
    maker: object = None
    trace: Path = None

    def draw(self):
        """The plot with its file; None if there is no data for it, or the trace is invalid."""
        kind, render = ("svg", style.svg) if self.trace else ("png", style.png)
        try:
            plot = timelines.plot(self.trace, self.word()) if self.trace else self.maker(opened(self.folder, self.line), self.colours)
        except ReportError:
            return None
        return plot and drawn(plot, kind, render)

    def word(self):
        return self.trace.stem.removeprefix(f"timeline-{self.id}-")

    def file(self, plot):
        return self.trace.with_suffix(".svg") if self.trace else self.folder / f"plot-{html.file_word(self.id)}-{plot.name}.png"


def drawn(plot, kind, render):
    return html.Drawn(dataclasses.replace(plot, figure=None), render(plot.figure), kind, tuple(plot.figure.get_size_inches()))


@functools.lru_cache(maxsize=2)  # tasks of an experiment come one after the other
def opened(folder, line):
    experiment = records.read_experiment(folder, json.loads(line))
    sensitivity.attach(folder, [experiment])
    return experiment


class Drawings:
    """Tasks, drawn by one process per processor while further ones are added."""

    def __init__(self):
        self.tasks, self.pool, self.begun = [], None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def add(self, task):
        self.tasks.append(task)
        workers = min(os.cpu_count() or 1, 8)
        if not self.pool and workers > 1 and len(self.tasks) > 5:  # fewer are drawn sooner than processes start
            self.pool = concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("fork"))
        if self.pool:
            self.begun += [self.pool.submit(one.draw) for one in self.tasks[len(self.begun) :]]

    def results(self):
        """Each drawing with its task, in the order in which they were added."""
        found = (one.result() for one in self.begun) if self.pool else (one.draw() for one in self.tasks)
        return zip(progress("drawing plots", found, len(self.tasks)), self.tasks)


def read(folder, ids, lines, drawings):
    """The experiments of these lines of the summary. Drawing of one begins when its line comes."""
    experiments = []
    for line in lines:
        text = json.dumps(line)
        one = opened(folder, text)
        experiments.append(one)
        one.timelines = records.timelines(folder, one, ids)
        colours = style.schedule_colours(list(dict.fromkeys(name for each in experiments for name in each.schedules)))
        for trace in one.timelines:
            drawings.add(Task(folder, one.id, text, colours, trace=trace))
        for maker in makers(one):
            drawings.add(Task(folder, one.id, text, colours, maker))
    return experiments


def write_drawings(drawings):
    """The files of plots and timelines; by experiment, plots and (trace, timeline)."""
    plots, traces = {}, {}
    for found, task in drawings.results():
        if task.trace:
            traces.setdefault(task.id, []).append((task.trace.name, found))
        elif found:
            plots.setdefault(task.id, []).append(found)
        if found:
            write_whole(task.file(found.plot), found.content)
    return plots, traces


def report(folder, said=None):
    """`said`: what --follow reads; None: the summary is there."""
    style.set_up()
    with Drawings() as drawings:
        if said:
            experiments = read(folder, next(said, []), said, drawings)
            if not (folder / "summary.json").is_file():
                return False
        else:
            lines = records.read_lines(folder)
            experiments = read(folder, [line["id"] for line in lines], lines, drawings)
        evaluated = claims.of_experiments(experiments)
        first = headline.plot(experiments) if evaluated else None
        if first:
            first = drawn(first, "png", style.png)
            write_whole(folder / "plot-gains.png", first.content)
        for one in experiments:
            html.contents(one)  # while plots are drawn
            if len(one.rows):
                write_whole(folder / f"rows-{html.file_word(one.id)}.csv", tables.rows_csv(one).encode())
        answers = pages.Records(experiments, lambda: evaluated).answers(strict=False) if evaluated else None
        plots, traces = write_drawings(drawings)
    alone = [one for one in experiments if one.alone]
    judged = [one for one in experiments if one not in alone]
    if judged and alone:
        write_whole(folder / html.OURS_ALONE, html.render(alone, plots, traces, []).encode())
    shown = (judged, len(alone)) if judged else (alone, 0)
    write_whole(folder / "report.html", html.render(shown[0], plots, traces, evaluated, first, answers, shown[1]).encode())
    return True


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="report.py", description="Plots, timelines and report.html of a result folder.")
    parser.add_argument("--follow", action="store_true", help="draw while it is written; standard input has the ids and the summary's lines")
    parser.add_argument("folder", metavar="FOLDER", help="a folder written by stp reproduce")
    options = parser.parse_args(arguments)
    try:
        if not report(Path(options.folder), map(json.loads, sys.stdin.buffer) if options.follow else None):
            return 1
    except (ReportError, concurrent.futures.BrokenExecutor) as error:  # the latter: a process that draws was killed
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
