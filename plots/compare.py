#!/usr/bin/env python3
"""Compares result records, files of Google Benchmark, or machines: what `stp compare` starts (docs/compare.md).

    compare.py [--json FILE] [--plot FILE] [--least-difference PERCENT] KNOWN.json [FILE…]

KNOWN.json has data from stp: system and provenance of the comparison, and under `simulated` the simulations of profiles
(driver/profile_simulation.h). Exit codes are those of stp: 0 success, 1 failure, 2 invalid input.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from stp_plots.json_input import InputError, parse_json, printable, read_text, without_non_finite

PACKAGES = ("numpy", "scipy", "matplotlib")
LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read_files(paths):
    """The module for files of this kind, and their contents by label."""
    from stp_plots.judge import compare_benchmarks, compare_records

    if len(paths) < 2:
        raise InputError("", "FILE", "need at least two files", "name two or more, or --profiles")
    if len(paths) > len(LABELS):
        raise InputError("", "FILE", f"{len(paths)} files are too many", f"name at most {len(LABELS)}")
    contents, modules = [], []
    for path in paths:
        text = read_text(path)
        contents.append(parse_json(without_non_finite(text), path))
        modules.append(compare_benchmarks)
        if not compare_benchmarks.recognises(contents[-1]):
            contents[-1] = parse_json(text, path)  # refuses what is not finite
            modules[-1] = compare_records
            if not compare_records.recognises(contents[-1]):
                raise no_result(contents[-1], path)
        if modules[-1] is not modules[0]:
            raise InputError(path, "", f"is {modules[-1].KIND}, but {paths[0]} is {modules[0].KIND}", "compare files of one kind")
    return modules[0], {label: modules[0].read(content, path) for label, content, path in zip(LABELS, contents, paths)}


def no_result(content, path):
    if isinstance(content, dict) and "accelerator" in content:
        return InputError(path, "", "is a hardware profile", f"compare profiles: stp compare --profiles {path} …")
    if isinstance(content, dict) and "schedules" in content:
        return InputError(path, "", "is a scenario", f"make a record of it: stp simulate {path} --json FILE")
    return InputError(path, "", "is neither a result record nor a file of Google Benchmark",
                      "name what stp simulate, run or reproduce wrote, or what a benchmark wrote with "
                      "--benchmark_format=json")


def image(comparison, suffix):
    from stp_plots.draw import plot_benchmarks, plot_profiles, plot_records, style

    style.set_up()
    modules = {"benchmarks": plot_benchmarks, "profiles": plot_profiles, "records": plot_records}
    figure = modules[comparison["kind"]].plot(comparison)
    return style.svg(figure) if suffix == ".svg" else style.png(figure)


def write_new(path, content):
    """Writes completely or not at all, and never over a file that another process created after stp checked."""
    if Path(path).is_char_device():  # such as /dev/null
        Path(path).write_bytes(content)
        return
    try:
        # As lib/stp/base/partial.h: what is not locked is left of a killed run, and the next one removes it.
        file = tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", prefix=".stp-partial-")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(path, "", "cannot be created", "check that its folder exists and may be written") from None
    with file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            raise InputError(path, "", "exists, and results are never overwritten",
                             "name another file or move this one") from None


def compare(options):
    known = json.loads(Path(options.known).read_text(encoding="utf-8"))
    simulated = known.pop("simulated", None)
    if simulated:
        from stp_plots.judge import compare_profiles as module

        comparison = module.compare(simulated)
    else:
        from stp_plots.judge.statistics import Rule

        module, files = read_files(options.files)
        comparison = module.compare(files, Rule(least_difference=options.least_difference / 100))
    comparison |= {"schema_version": "1.0.0", **known}
    text = (json.dumps(comparison, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(errors="replace")
    picture = image(comparison, Path(options.plot).suffix) if options.plot else None
    if options.json not in ("", "-"):
        write_new(options.json, text)
    if picture:
        write_new(options.plot, picture)
    # Not through sys.stdout, which would try once more at exit to write what could not be written.
    with open(1, "wb", closefd=False) as output:
        output.write(text if options.json == "-" else printable(module.show(comparison)).encode(errors="replace"))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="compare.py", description="What stp compare starts.")
    parser.add_argument("--json", default="", help="write the comparison to this new file (- for standard output)")
    parser.add_argument("--plot", default="", help="draw it into this new file, .png or .svg")
    parser.add_argument("--least-difference", type=float, default=5, help="per cent below which medians count as the same")
    parser.add_argument("known", metavar="KNOWN.json")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        compare(options)
    except InputError as error:
        print(f"stp: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        name = error.name.split(".")[0]
        if name not in PACKAGES:
            raise
        print(f"stp: {sys.executable}: has no package {name}; install python3-{name}, or set STP_PYTHON to a Python 3 that "
              "has it. Only stp compare and plots need it", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"stp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    sys.exit(main())
