"""Draws what `stp compare --json` wrote.

    compare.py COMPARISON.json PLOT.{png,svg}

Results: throughput per configuration, schedule and file. Benchmarks: medians relative to the first file's. Machines:
throughput per machine and schedule, and which property moves STP's gain. Bars start at zero; lines on them are 95 %
intervals of medians. Exits with 1 and one line on stderr if that cannot be done.
"""

import argparse
import json
import sys
from pathlib import Path

from stp_plots.records import ReportError


def draw(comparison, place):
    from stp_plots import compare_benchmarks, compare_profiles, compare_records, style

    makers = {
        "records": compare_records.plot,
        "benchmarks": compare_benchmarks.plot,
        "profiles": compare_profiles.plot,
    }
    if comparison.get("kind") not in makers:
        raise ReportError(f"{place}: is no comparison of stp compare --json")
    style.set_up()
    return makers[comparison["kind"]](comparison)


def compare(source, target):
    from stp_plots import style

    try:
        comparison = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{source}: cannot be read as JSON ({error})") from None
    if not isinstance(comparison, dict):
        raise ReportError(f"{source}: is not a JSON object")
    figure = draw(comparison, source)
    content = style.svg(figure) if target.suffix == ".svg" else style.png(figure)
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ReportError(f"{target}: cannot be written ({error.strerror})") from None


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="compare.py", description="Draws a comparison.")
    parser.add_argument("comparison", type=Path, metavar="COMPARISON.json", help="written by stp compare --json")
    parser.add_argument("plot", type=Path, metavar="PLOT", help="a .png or .svg file")
    options = parser.parse_args(arguments)
    try:
        compare(options.comparison, options.plot)
    except ReportError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"compare.py: numpy and matplotlib are needed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
