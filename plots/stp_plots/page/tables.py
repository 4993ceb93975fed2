"""Tables of the page: text, which the template escapes."""

import pandas as pd

from stp_plots import words
from stp_plots.read.records import CONFIGURATION, QUANTITIES, unit_costs
from stp_plots.words import Table, dictionary, items, number, text

# Which figure a table of the paper prints; other tables may print any.
PAPER_TABLES = {"Table 5": "memory", "Table 6": "throughput", "Table 7": "mfu"}
# Keys of the summary, without "_mean" and "_worst".
SUMMARY = {
    "throughput_error": "throughput",
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
    "memory_verdicts_right": "rows that fit into memory, or do not, as published",
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
    unit = {"s": "units", "samples/s": "samples per unit"}.get(quantity.unit, quantity.unit) if experiment.unit_costs else quantity.unit
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


def _kind(row):
    if not any(number(dictionary(row.data.get("published")).get(one.key)) is not None for one in QUANTITIES.values()):
        return "nothing published"
    if row.calibrated:
        return "calibrated"
    memory = number(dictionary(row.data.get("published")).get(QUANTITIES["memory"].key))
    return "predicted †" if row.memory_calibrated and memory is not None else "predicted"


def all_rows(experiment):
    """Every row: its configuration, each figure with what is published of it, and further figures of the step."""
    rows = experiment.rows
    names = {"microbatch_size": "size", "tp": "TP", "pp": "PP", "cp": "CP", "dp": "DP"}
    usual = {"microbatch_size": {None, 1}, "tp": set(), "pp": set(), "cp": {None, 1}, "dp": {None, 1}, "unit_costs": {None, "null"}}
    columns = {"schedule": list(rows["schedule"])}
    for i, name in enumerate(CONFIGURATION[:-1]):
        if any(base[i] not in usual.get(name, {None}) for base in rows["base"]):
            columns[names.get(name, name)] = [text(data.get(name)) for data in rows["data"]]
    for name in experiment.settings:
        columns[name.replace("_", " ")] = [text(data.get(name)) for data in rows["data"]]
    if "unit_costs" in experiment.varied:
        columns["unit costs"] = [unit_costs(data) or words.NONE for data in rows["data"]]
    columns["m"] = list(rows["m"])
    compared = [name for name in QUANTITIES if experiment.counted(name)]
    if compared:
        columns["kind"] = [_kind(row) for row in rows.itertuples()]
    # Experiments with closed forms are about these; throughput would repeat the step's time, which is shown anyway. A
    # layer's forward is independent of schedules.
    alone = [] if experiment.has_closed_forms() or "tp_share" in compared else ["throughput", "mfu", "memory"]
    for name in QUANTITIES:
        if name not in compared and not (name in alone and experiment.has_ours(name)):
            continue
        frame, group = experiment.figure(name).reindex(rows.index), heading(experiment, name)
        columns[group, "ours"] = [ours(name, value) for value in frame["ours"]]
        if name in compared:
            form = "closed form" if QUANTITIES[name].closed_form else "published"
            columns[group, form] = [published(name, value) for value in frame["published"]]
            if name != "mfu":  # the difference in MFU is that in throughput over again
                columns[group, "diff., %"] = [words.signed(100 * value) for value in frame["error"]]
    fits = [dictionary(data.get("published")).get("fits") for data in rows["data"]]
    if any(one is not None for one in fits):
        margins = [number(data.get("memory_margin_gb")) for data in rows["data"]]
        columns["memory left, GB", "ours"] = [words.NONE if one is None else words.signed(one) for one in margins]
        columns["memory left, GB", "published"] = [words.NONE if one is None else "runs" if one else "out of memory" for one in fits]
    also = f"also {experiment.evidence}"
    if "time" not in compared:
        columns[also, "step, units" if experiment.unit_costs else "step, s"] = rows["step_time"].map(words.magnitude)
    for name, bubble in (("TP", "tp_bubble"), ("PP", "pp_bubble")):
        columns[also, f"{name} bubble, %"] = (100 * rows[bubble]).map(words.plain)
    if rows["mfu"].notna().any():
        columns[also, "MFU, %"] = (100 * rows["mfu"]).map(words.plain)
    if "chunks" not in compared and rows["chunks"].notna().any():
        columns[also, "peak chunks"] = [ours("chunks", value) for value in rows["chunks"]]
    return Table(list(columns), [list(row) for row in zip(*columns.values())])


# ---- errors; those of experiments are the summary's own ----


def errors_by_table(experiments):
    """Errors of predicted and of calibrated rows, per table of the paper and over all of them."""
    frames = []
    for experiment in experiments:
        if experiment.line.get("verdict") == "not testable here":
            continue  # its rows stand elsewhere, too
        for name, quantity in QUANTITIES.items():
            if not experiment.counted(name):
                continue
            frame = experiment.compared(name).assign(figure=quantity.title)
            frame["rows"] = ["calibrated" if calibrated else "predicted" for calibrated in frame["calibrated"]]
            frames.append(frame.assign(table=[[*tables, "all tables"] for tables in cited(frame, name)]).explode("table"))
    if not frames:
        return None
    errors = pd.concat(frames)
    lines = []
    order = [quantity.title for quantity in QUANTITIES.values()]
    keys = ["figure", "table", "rows"]
    for (figure, table, rows), group in sorted(errors.groupby(keys), key=lambda one: (order.index(one[0][0]), one[0][1:])):
        tables = errors.loc[(errors["figure"] == figure) & (errors["rows"] == rows), "table"].nunique()
        if table == "all tables" and tables < 3:
            continue  # one table is all
        worst = group.iloc[group["error"].abs().argmax()]
        mean = words.plain_percent(group["error"].abs().mean(), 2)
        lines.append([figure, table, rows, str(len(group)), mean, words.percent(worst["error"]), worst["name"]])
    head = ["figure", "table", "rows", "number", "mean absolute error", "maximum", "in row"]
    return Table(head, lines, "Errors by published table, predicted and calibrated rows apart")


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
    """Mean and maximum error of predicted and of calibrated rows, from the summary."""
    rows = []
    for key, name in SUMMARY.items():
        for kind, holder in (("predicted", experiment.line), ("calibrated", dictionary(experiment.line.get("calibrated")))):
            mean, worst = number(holder.get(key + "_mean")), dictionary(holder.get(key + "_worst"))
            if mean is not None:
                rows.append([name, kind, reached(key, mean), reached(key + "_worst", number(worst.get("error"))), text(worst.get("row"))])
    return Table(["error of", "rows", "mean absolute", "maximum absolute", "in row"], rows)


def mean_errors(experiment):
    """The mean absolute errors of predicted rows, from the summary."""
    means = {key: number(experiment.line.get(key + "_mean")) for key in SUMMARY}
    return ", ".join(f"{SUMMARY[key]} {reached(key, mean)}" for key, mean in means.items() if mean is not None) or words.NONE
