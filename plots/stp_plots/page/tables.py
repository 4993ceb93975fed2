"""Tables of the page: text, which the template escapes."""

import pandas as pd

from stp_plots import words
from stp_plots.judge import memory
from stp_plots.read.records import QUANTITIES
from stp_plots.words import Table, dictionary, items, number, text

# Which figure a table of the paper prints; other tables may print any.
PAPER_TABLES = {"Table 5": "memory", "Table 6": "throughput", "Table 7": "mfu"}
# Keys of the summary, without "_mean" and "_worst".
SUMMARY = {
    "throughput_error": "throughput",
    "ratio_error": "ratio of two throughputs of one job",
    "gain_error_points": "gain (points)",
    "memory_error": "peak activation memory",
    "idle_error": "idle time",
    "chunks_error": "peak activations",
    "tp_share_error": "TP share of a forward",
    "overlap_error": "time together, from the published times alone",
}
CRITERIA = {
    "throughput_error_mean": "mean absolute error of throughput",
    "throughput_error_worst": "maximum absolute error of throughput",
    "gain_error_points_mean": "mean absolute error of the gain, points",
    "memory_error_mean": "mean absolute error of peak activation memory",
    "idle_error_mean": "mean absolute error of idle time, against the closed form",
    "chunks_error_mean": "mean absolute error of peak activations, against the closed form",
    "tp_share_error_mean": "mean absolute error of TP communication's share of a forward",
    "overlap_error_worst": "maximum absolute error of a time together, from the published times alone",
    "pairs_right": "pairs of schedules in the published order",
    "memory_verdicts_right": "rows that surely fit into memory, or do not, as published",
}


def ours(name, value):
    if name == "chunks":
        return words.NONE if pd.isna(value) else f"{value:g}"
    if name in ("memory", "tp_share", "mfu"):
        return words.plain(QUANTITIES[name].scale * value, 2 if name == "mfu" else 1)
    return words.magnitude(value)


def published(name, value):
    """As printed; what is published as a formula, as ours."""
    if name in ("memory", "throughput", "time"):
        return words.published(value) if name != "memory" else words.NONE if pd.isna(value) else f"{value:g}"
    return ours(name, value)


def heading(experiment, name):
    quantity = QUANTITIES[name]
    unit = {"s": "units", "samples/s": "samples per unit"}.get(quantity.unit, quantity.unit) if experiment.in_units else quantity.unit
    return f"{quantity.title}, {unit}"


def cited(frame, name):
    """Per row the published tables that print this figure of it."""
    return [[table for table in tables if PAPER_TABLES.get(table, name) == name] for tables in frame["tables"]]


def _cells(name, row):
    if row is None:
        return [words.NONE] * 3
    star = "*" if row.calibrated and not pd.isna(row.error) else ""
    return [ours(name, row.ours), published(name, row.published), words.percent(row.error) + star]


def beside(experiment, name):
    """As papers set their tables: a line per configuration and m, per schedule ours and the published value side by side."""
    if not experiment.counted(name):
        return None
    frame, groups = experiment.figure(name), {}
    for row in frame.sort_values(["configuration", "microbatches"], kind="stable").itertuples():
        groups.setdefault((row.label, row.m), {})[row.schedule] = row
    lines = {}  # numbers of microbatches by what their line shows: memory does not depend on m and is shown once
    for (label, m), found in groups.items():
        if any(not pd.isna(row.published) for row in found.values()):
            cells = tuple(cell for schedule in experiment.schedules for cell in _cells(name, found.get(schedule)))
            lines.setdefault((label, cells, name != "memory" and m), []).append(m)
    rows = [[label, ", ".join(numbers), *cells] for (label, cells, _), numbers in lines.items()]
    head = ["configuration", "m", *((schedule, one) for schedule in experiment.schedules for one in ("ours", "published", "difference"))]
    sources = ", ".join(sorted({table for tables in cited(frame, name) for table in tables}))
    caption = f"{heading(experiment, name)[0].upper()}{heading(experiment, name)[1:]}: ours ({experiment.evidence}) beside published values" + (f" ({sources})" if sources else "")
    return Table(head, rows, caption + ("; * calibrated" if frame["calibrated"].any() else ""))


def rows_csv(experiment):
    """Every row as a line of comma-separated values: its own fields, those of `published`, `difference` and `gain`, and the memory in all."""
    lines = []
    for data in experiment.rows["data"]:
        nested = {f"{part}.{key}": value for part in ("gain", "published", "difference") for key, value in dictionary(data.get(part)).items()}
        line = {key: value for key, value in (data | nested).items() if not isinstance(value, dict) and key != "ranks"}
        lines.append({key: " ".join(map(text, value)) if isinstance(value, list) else value for key, value in line.items()}
                     | {"memory_in_all_gb": memory.total_gb(data)})  # fmt: skip
    return pd.DataFrame(lines).to_csv(index=False)


# ---- errors; those of experiments are the summary's own ----


def reached(key, value):
    """An error as the summary has it, in its unit: a mean with two decimals, a maximum with one."""
    digits = 1 if key.endswith("_worst") else 2
    return words.plain(value, digits) if key.startswith("gain") else words.plain_percent(value, digits)


def criteria(experiment):
    """The acceptance criteria of an experiment and what it reached."""
    rows = []
    for criterion in map(dictionary, items(experiment.line.get("marks"))):
        name, value, tolerance = text(criterion.get("mark")), number(criterion.get("value")), number(criterion.get("tolerance"))
        if name in ("pairs_right", "memory_verdicts_right"):
            limit, here = f"all {text(tolerance)}", text(value)
        else:
            share = "" if name.startswith("gain") else " %"
            limit = words.NONE if tolerance is None else f"at most {(100 if share else 1) * tolerance:g}{share}"
            here = reached(name, value)
        met = criterion.get("met")
        result = "no figure to compare" if value is None and met else "met" if met else "missed"
        rows.append([CRITERIA.get(name, name), limit, here, result])
    over = "" if experiment.pairs else " (over predicted rows)"
    return Table([f"acceptance criterion{over}", "tolerance", "reached", "result"], rows)


def recorded_errors(experiment):
    """Mean and maximum error of predicted and of calibrated rows, from the summary; none where nothing published judges."""
    rows = []
    for key, name in () if experiment.alone else SUMMARY.items():
        for kind, holder in (("predicted", experiment.line), ("calibrated", dictionary(experiment.line.get("calibrated")))):
            mean, worst = number(holder.get(key + "_mean")), dictionary(holder.get(key + "_worst"))
            if mean is not None:
                rows.append([name, kind, reached(key, mean), reached(key + "_worst", number(worst.get("error"))), text(worst.get("row"))])
    return Table(["error of", "rows", "mean absolute", "maximum absolute", "in row"], rows)


def summary(experiment):
    """In a line: rows, and the mean absolute errors of the predicted ones with their numbers."""
    fitted = number(experiment.line.get("calibration_rows"))
    parts = [words.count(len(experiment), "row") + (f", {fitted} calibrated" if fitted else "")]
    for name in () if experiment.alone else ("gain", *QUANTITIES):
        frame = experiment.compared(name) if name == "gain" or (experiment.counted(name) and name != "mfu") else experiment.rows[:0]
        frame = frame[~frame["calibrated"] & ((frame["schedule"] == experiment.gained) | (name != "gain"))]
        if len(frame) and (name != "gain" or number(experiment.line.get("gain_error_points_mean")) is not None):
            mean = frame["error"].abs().mean()
            off = f"gain {mean:.2f} points" if name == "gain" else f"{QUANTITIES[name].title} {words.plain_percent(mean, 2)}"
            parts.append(f"{off} off ({len(frame)})")
    return "; ".join(parts)
