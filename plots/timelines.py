#!/usr/bin/env python3
"""Draws the traces of `stp trace` or `stp run --trace` to scale, as the paper draws its schedules.

    timelines.py TRACE.json…

Writes TRACE.svg beside each. Exits with 1 and a line on stderr for each that could not be drawn.
"""

import argparse
import sys
from pathlib import Path

from stp_plots import packages  # noqa: F401, I001 - before what needs them
from stp_plots.draw import style, timelines
from stp_plots.files import ReportError, progress, write_whole


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="timelines.py", description="Draws traces as SVG.")
    parser.add_argument("traces", metavar="TRACE.json", nargs="+", type=Path)
    style.set_up()
    failed = False
    traces = parser.parse_args(arguments).traces
    for path in progress("drawing timelines", traces, len(traces)):
        try:
            write_whole(path.with_suffix(".svg"), style.svg(timelines.draw(timelines.from_file(path))))
        except ReportError as error:
            print(f"timelines.py: {error}", file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
