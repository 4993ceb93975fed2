"""Files of Google Benchmark side by side."""

import numpy as np

from stp_plots.files import InputError
from stp_plots.judge.statistics import judge, median_interval, Sample

# Fields of the context that differ from run to run.
PASSING = {"date", "load_avg", "mhz_per_cpu"}


def cell_of(row, rule):
    """A benchmark's row in one file, and its sample, which is None where it has no time."""
    if row is None or row.problem:
        return row and {"skipped": row.problem}, None
    sample = Sample(row.seconds, rule)
    intervals = {key: median_interval(values) for key, values in row.counters.items() if min(values) < max(values)}
    return {"repetitions": len(row.seconds), "median_s": sample.median, "interval_s": sample.interval, "noisy": sample.noisy,
            "against_first": None, "counters": {key: float(np.median(values)) for key, values in row.counters.items()},
            "counter_intervals": {key: list(map(float, interval)) for key, interval in intervals.items() if interval}}, sample


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
            cell, sample = cell_of(file.rows.get(name), rule)
            cells.append(cell)
            if file is first:
                base = sample
            elif base and sample:
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
