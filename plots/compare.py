#!/usr/bin/env python3
"""Compares result records, files of Google Benchmark, or machines: what `stp compare` starts (docs/compare.md).

    compare.py [--json FILE] [--plot FILE] [--details] [--least-difference PERCENT] KNOWN.json [FILE…]

KNOWN.json has data from stp: system and provenance of the comparison, and under `simulated` the simulations of profiles
(driver/profile_simulation.h). Exit codes are those of stp: 0 success, 1 failure, 2 invalid input.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

from stp_plots import packages  # noqa: F401, I001 - before what needs them
from stp_plots.files import InputError, parse_json, printable, read_text, without_non_finite, write_new

LEAST_DIFFERENCE = 5  # per cent, also of driver/commands.h
LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read_files(paths):
    """The reader of files of this kind, and their contents by label."""
    from stp_plots.read import benchmarks, results

    if len(paths) < 2:
        raise InputError("", "FILE", "need at least two files", "name two or more, or --profiles")
    if len(paths) > len(LABELS):
        raise InputError("", "FILE", f"{len(paths)} files are too many", f"name at most {len(LABELS)}")
    contents, readers = [], []
    for path in paths:
        text = read_text(path)
        contents.append(parse_json(without_non_finite(text), path))
        readers.append(benchmarks)
        if not benchmarks.recognises(contents[-1]):
            contents[-1] = parse_json(text, path)  # refuses what is not finite
            readers[-1] = results
            if not results.recognises(contents[-1]):
                raise no_result(contents[-1], path)
        if readers[-1] is not readers[0]:
            raise InputError(path, "", f"is {readers[-1].KIND}, but {paths[0]} is {readers[0].KIND}", "compare files of one kind")
    return readers[0], {label: readers[0].read(content, path) for label, content, path in zip(LABELS, contents, paths)}


def no_result(content, path):
    if isinstance(content, dict) and "accelerator" in content:
        return InputError(path, "", "is a hardware profile", f"compare profiles: stp compare --profiles {path} …")
    if isinstance(content, dict) and "best" in content:
        return InputError(path, "", "is a search of stp tune",
                          f"make a record of its first choice: stp simulate {Path(path).parent}/choice.json --json FILE")
    if isinstance(content, dict) and "schedules" in content:
        return InputError(path, "", "is a scenario", f"make a record of it: stp simulate {path} --json FILE")
    return InputError(path, "", "is neither a result record nor a file of Google Benchmark",
                      "name what stp simulate, run or reproduce wrote, or what a benchmark wrote with "
                      "--benchmark_format=json")


def image(comparison, suffix):
    from stp_plots.draw import comparisons, style

    style.set_up()
    figure = comparisons.PLOT[comparison["kind"]](comparison)
    return style.svg(figure) if suffix == ".svg" else style.png(figure)


def compare(options):
    known = json.loads(Path(options.known).read_text(encoding="utf-8"))
    simulated = known.pop("simulated", None)
    if simulated:
        from stp_plots.judge import compare_profiles

        comparison = compare_profiles.compare(simulated)
    else:
        from stp_plots.judge import compare_benchmarks, compare_records
        from stp_plots.judge.statistics import Rule
        from stp_plots.read import results

        reader, files = read_files(options.files)
        judge = compare_records if reader is results else compare_benchmarks
        comparison = judge.compare(files, Rule(least_difference=options.least_difference / 100))
        if reader is results and options.least_difference != LEAST_DIFFERENCE and not comparison["rule"]["comparisons"]:
            raise InputError("", "--least-difference", "has no effect: no two files repeat the same step, and a simulation has no spread",
                             "leave it out")
    comparison |= {"schema_version": "1.2.0", **known}
    text = (json.dumps(comparison, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(errors="replace")
    picture = image(comparison, Path(options.plot).suffix) if options.plot else None
    if options.json not in ("", "-"):
        write_new(options.json, text)
    if picture:
        write_new(options.plot, picture)
    from stp_plots.page import screen

    # Not through sys.stdout, which would try once more at exit to write what could not be written.
    shown = text if options.json == "-" else printable(screen.show(comparison, options.details)).encode(errors="replace")
    try:
        with open(1, "wb", closefd=False) as output:
            output.write(shown)
    except OSError:
        raise OSError("standard output could not be written") from None


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="compare.py", description="What stp compare starts.")
    parser.add_argument("--json", default="", help="write the comparison to this new file (- for standard output)")
    parser.add_argument("--plot", default="", help="draw it into this new file, .png or .svg")
    parser.add_argument("--details", action=argparse.BooleanOptionalAction, help="of profiles: all tables")
    parser.add_argument("--least-difference", type=float, default=LEAST_DIFFERENCE, help="per cent below which medians count as the same")
    parser.add_argument("known", metavar="KNOWN.json")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        compare(options)
    except InputError as error:
        print(f"stp: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"stp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
