"""Draws the plots of a result folder and its report.html.

    report.py FOLDER

FOLDER is what `stp reproduce` writes: summary.json, a record per experiment, timelines as SVG. The plots (PNG) and the
page, which holds them all, are put beside these. Exits with 1 and one line on stderr if that cannot be done.
"""

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import re
import sys
import time
from pathlib import Path

from stp_plots.folder import read_folder
from stp_plots.records import ReportError


class Progress:
    """A line on a terminal, for what takes more than two seconds; nothing in a pipe."""

    def __init__(self, total):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.shown = False

    def step(self):
        self.done += 1
        if sys.stderr.isatty() and time.monotonic() - self.start > 2:
            sys.stderr.write(f"\rdrawing plots: {self.done} of {self.total}\033[K")
            sys.stderr.flush()
            self.shown = True

    def close(self):
        if self.shown:
            sys.stderr.write("\r\033[K")


def makers(scenario):
    """The plots that fit the scenario, in the order of the page."""
    from stp_plots import ablation, bars, breakdown, closed_forms, contention, fidelity, pairs, sensitivity

    if scenario.pairs:
        return [pairs.plot]
    if ablation.cells(scenario):
        return [ablation.plot, breakdown.breakdown]
    if contention.groups(scenario) and not scenario.unit_costs:
        return [contention.plot]
    if scenario.has_published("tp_share"):
        return [bars.tp_share]
    closed = scenario.has_closed_forms()
    chosen = [closed_forms.closed_forms] if closed else []
    if scenario.has_published("throughput"):
        chosen.append(bars.throughput)
        if len(scenario.schedules) > 1:
            chosen.append(bars.gain)
        chosen.append(sensitivity.tornado)
    elif not closed and any(row.value("step_time_s") is not None for row in scenario.rows):
        chosen.append(bars.step_time)
    chosen.append(fidelity.scatter)
    if scenario.has_figure("memory") or scenario.has_published("memory"):
        chosen.append(bars.memory)
    chosen.append(fidelity.errors)
    if not closed or closed_forms.legible(scenario):
        chosen.append(breakdown.breakdown)
    return chosen


def write_whole(path, content):
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ReportError(f"{path}: cannot be written ({error.strerror})") from None


def draw_one(task):
    """A plot without its figure, and its PNG file; None if the scenario has nothing for it."""
    from stp_plots import style

    scenario, maker, colours = task
    plot = maker(scenario, colours)
    return plot and (dataclasses.replace(plot, figure=None), style.png(plot.figure))


def draw(scenarios):
    """Per scenario, its plots with their PNG files."""
    from stp_plots import style

    style.set_up()
    colours = style.schedule_colours(list(dict.fromkeys(name for s in scenarios for name in s.schedules)))
    work = [(scenario, maker, colours) for scenario in scenarios if scenario.size() for maker in makers(scenario)]
    drawn = {scenario.id: [] for scenario in scenarios}
    progress = Progress(len(work))
    workers = min(os.cpu_count() or 1, len(work) // 3, 8)
    with contextlib.ExitStack() as stack:
        if workers > 1:
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(workers))
            finished = pool.imap(draw_one, work)
        else:
            finished = map(draw_one, work)
        for (scenario, _, _), plot in zip(work, finished):
            if plot is not None:
                drawn[scenario.id].append(plot)
            progress.step()
    progress.close()
    return drawn


def report(folder):
    from stp_plots import claims, page

    folder = Path(folder)
    scenarios = read_folder(folder)
    drawn = draw(scenarios)
    for name, plots in drawn.items():
        for plot, image in plots:
            write_whole(folder / f"plot-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}-{plot.name}.png", image)
    write_whole(folder / "report.html", page.render(scenarios, drawn, claims.of_folder(folder)).encode())


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="report.py", description="Plots and report.html of a result folder.")
    parser.add_argument("folder", metavar="FOLDER", help="a folder written by stp reproduce")
    options = parser.parse_args(arguments)
    try:
        report(options.folder)
    except ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"report.py: numpy and matplotlib are needed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
