"""Files of Google Benchmark (--benchmark_format=json) side by side."""

import collections
from dataclasses import dataclass, field

import numpy as np

from stp_plots.json_input import Fields, InputError
from stp_plots.judge.statistics import Sample, judge
from stp_plots.page import screen

KIND = "a file of Google Benchmark"
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
LARGEST = 1e15

# Fields of an iteration that are not counters.
OWN_FIELDS = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index",
              "threads", "iterations", "real_time", "cpu_time", "time_unit", "label", "error_occurred", "error_message",
              "skipped", "skip_message"}

# Fields of the context that differ from run to run.
PASSING = {"date", "load_avg", "mhz_per_cpu"}


@dataclass
class Benchmark:
    order: tuple  # of registration
    seconds: list = field(default_factory=list)  # real time of an iteration, by repetition
    counters: dict = field(default_factory=dict)  # user counters, by repetition
    problem: str = ""  # why there is no time: an error, or skipped


@dataclass
class BenchmarkFile:
    path: str
    context: dict  # of the machine and the program, as written
    rows: dict  # benchmarks by name, in the order of registration, however they were interleaved


def recognises(content):
    return isinstance(content, dict) and "benchmarks" in content and "context" in content


def problem_of(one):
    """Why an iteration has no time; "" if it has. Before version 1.8 errors, from then on skips."""
    for flag, message, word in (("error_occurred", "error_message", "failed"), ("skipped", "skip_message", "skipped")):
        if one.get(flag):
            return str(one.get(message) or word)
    return ""


def read(content, path):
    """InputError that names file, field and remedy: aggregates alone, an unknown unit, a time that is not a number."""
    fields = Fields(content, path)
    context, benchmarks = fields.object("context"), fields.array("benchmarks")
    rows = {}
    for i, one in enumerate(benchmarks):
        given = Fields(one, path, f"benchmarks[{i}]")
        if given.string("run_type", "iteration") != "iteration":
            continue
        name = given.string("run_name") if "run_name" in one else given.string("name")
        order = (given.number("family_index", LARGEST, 0), given.number("per_family_instance_index", LARGEST, 0))
        row = rows.setdefault(name, Benchmark(order))
        if problem := problem_of(one):
            row.problem = problem
            continue
        unit = given.string("time_unit")
        if unit not in SECONDS:
            raise given.error("time_unit", f'"{unit}" is no unit of Google Benchmark\'s', "write ns, us, ms or s")
        row.seconds.append(given.number("real_time", LARGEST) * SECONDS[unit])
        for key, value in one.items():
            if key not in OWN_FIELDS and isinstance(value, (int, float)) and not isinstance(value, bool):
                row.counters.setdefault(key, []).append(float(value))
    if not rows:
        if not benchmarks:
            raise fields.error("benchmarks", "is empty", "let the filter match something")
        raise fields.error("benchmarks", "holds aggregates alone, and medians and tests need the repetitions",
                           "run it without --benchmark_report_aggregates_only")
    return BenchmarkFile(path, context, dict(sorted(rows.items(), key=lambda row: row[1].order)))


def compare(files, rule):
    """All files against the first, as results/schema/comparison.schema.json has it under kind `benchmarks`. `files`: by
    label. InputError if a file has no benchmark in common with the first."""
    (_, first), *others = files.items()
    for _, file in others:
        if not file.rows.keys() & first.rows.keys():
            raise InputError(file.path, "benchmarks", f"has no benchmark in common with {first.path}",
                             "run the same program with the same filter")
    rows, pairs, judged = [], [], []
    for name in dict.fromkeys(name for file in files.values() for name in file.rows):
        cells, base = [], None
        for file in files.values():
            row = file.rows.get(name)
            if row is None or row.problem:
                cells.append(row and {"skipped": row.problem})
                continue
            sample = Sample(row.seconds, rule)
            cells.append({"repetitions": len(row.seconds), "median_s": sample.median, "interval_s": sample.interval,
                          "noisy": sample.noisy, "against_first": None,
                          "counters": {key: float(np.median(values)) for key, values in row.counters.items()}})
            if file is first:
                base = sample
            elif base:
                pairs.append((base, sample))
                judged.append(cells[-1])
        rows.append({"name": name, "cells": cells})
    for cell, verdict in zip(judged, judge(pairs, rule)):
        cell["against_first"] = verdict
    described = [{"label": label, "path": file.path, "evidence": "measured", "context": file.context}
                 for label, file in files.items()]
    return {"kind": "benchmarks", "files": described, "differs": context_differences(files.values()),
            "rule": rule.json(len(pairs)), "rows": rows}


def context_differences(files):
    """Fields of the context in which the files differ."""
    found = []
    for name in sorted({name for file in files for name in file.context} - PASSING):
        values = [file.context.get(name) for file in files]
        if any(value != values[0] for value in values):
            found.append({"field": name, "values": values})
    return found


# ---- on screen ----


def half_width(cell):
    """Half the interval of the median, relative."""
    if not cell["interval_s"] or cell["median_s"] <= 0:
        return "–"
    low, high = cell["interval_s"]
    return f"±{screen.share((high - low) / 2 / cell['median_s'])}"


def p_text(p):
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def show(comparison):
    files, rule = comparison["files"], comparison["rule"]
    head = ["benchmark"]
    for file in files:
        head += [f"{file['label']}, median", "95 %"] + (["vs A", "adjusted p", "verdict"] if file is not files[0] else [])
    table, verdicts, noisy, missing = screen.Table(head), collections.Counter(), 0, ""
    for row in comparison["rows"]:
        name, cells = row["name"], row["cells"]
        line = [name]
        for file, cell in zip(files, cells):
            against = cell and cell.get("against_first")
            if cell is None or "skipped" in cell:
                reason = "has none" if cell is None else f"skipped it: {cell['skipped']}"
                missing += f"  {name}: {file['label']} {reason}\n"
                line += ["–", ""]
            else:
                line += [screen.duration(cell["median_s"]), half_width(cell)]
            if against:
                verdicts[against["verdict"]] += 1
                mark = ", noisy" if cell["noisy"] or cells[0]["noisy"] else ""
                line += [screen.change(against["difference"]), p_text(against["adjusted_p"]), against["verdict"] + mark]
            elif file is not files[0]:
                line += [""] * 3
        noisy += any(cell and cell.get("noisy") for cell in cells)
        table.add(line)
    counts = ", ".join(f"{verdicts[word]} {word}" for word in ("same", "faster", "slower", "inconclusive", "too few") if verdicts[word])
    text = "".join(f"{file['label']}  {file['path']}\n" for file in files) + screen.differences(comparison)
    text += "\n" + table.text() + (f"\nNot compared\n{missing}" if missing else "")
    text += f"""
{rule['comparisons']} comparisons: {counts or 'none'}; {noisy} noisy
95 %: half the interval of the median, by order statistics (exact); noisy above {screen.share(rule['noisy_above'], 0)}.
Verdicts by the Mann-Whitney U test, two-sided (exact without ties and with fewer than 50 repetitions), with Holm's
correction over all comparisons: at most {screen.share(rule['error_rate'], 0)} chance of any false difference. \
Medians that differ by less than {screen.share(rule['least_difference'], 0)} are the same.
"""
    if verdicts["inconclusive"]:
        text += "Inconclusive: a sample is noisy, and the medians differ by less than that and the noisy intervals together.\n"
    if verdicts["too few"]:
        text += (f"Too few repetitions for a verdict: so many comparisons need at least {rule['repetitions_needed']} a side "
                 "(--benchmark_repetitions).\n")
    return text
