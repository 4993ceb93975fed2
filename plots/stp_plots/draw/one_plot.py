"""The main function of programs that read one JSON file and draw one plot."""

import argparse
import sys
from pathlib import Path

from stp_plots.draw import style
from stp_plots.files import ReportError, read_json, write_whole


def main(program, description, draw, arguments=None):
    """`draw`: from the file's content to a figure. Returns 1, after one line on stderr, if that or the files fail."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("content", metavar="FILE.json", type=Path)
    parser.add_argument("plot", metavar="PLOT.png", type=Path)
    options = parser.parse_args(arguments)
    style.set_up()
    try:
        write_whole(options.plot, style.png(draw(read_json(options.content))))
    except (ReportError, LookupError, TypeError, ValueError) as error:
        print(f"{program}: {options.content}: {error}", file=sys.stderr)
        return 1
    return 0
