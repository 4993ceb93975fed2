"""Tables of the page: text, which the template escapes."""

import re
from dataclasses import dataclass, field
from itertools import groupby

import pandas as pd

from stp_plots import words
from stp_plots.read.records import CONFIGURATION, QUANTITIES, unit_costs
from stp_plots.words import text

# Which figure a table of the paper prints; other tables may print any.
PAPER_TABLES = {"Table 5": "memory", "Table 6": "throughput", "Table 7": "mfu"}
NUMERIC = re.compile(r"[+−]?[\d.]+(e[+-]?\d+)?( %)?\*?|–")


@dataclass
class Table:
    """`head`: a heading per column, or (heading of a group of columns, heading)."""

    head: list
    rows: list  # of lists of text
    caption: str = ""
    groups: list = field(init=False)  # (heading, columns)
    numeric: list = field(init=False)  # by column

    def __post_init__(self):
        over = [one[0] if isinstance(one, tuple) else "" for one in self.head]
        self.groups = [(name, len(list(some))) for name, some in groupby(over)] if any(over) else []
        self.head = [one[1] if isinstance(one, tuple) else one for one in self.head]
        self.numeric = [all(NUMERIC.fullmatch(cell) for cell in column) for column in zip(*self.rows)] or [False] * len(self.head)

    def __bool__(self):
        return bool(self.rows)


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
    if not any(words.number(words.dictionary(row.data.get("published")).get(one.key)) is not None for one in QUANTITIES.values()):
        return "nothing published"
    if row.calibrated:
        return "calibrated"
    memory = words.number(words.dictionary(row.data.get("published")).get(QUANTITIES["memory"].key))
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
    fits = [words.dictionary(data.get("published")).get("fits") for data in rows["data"]]
    if any(one is not None for one in fits):
        margins = [words.number(data.get("memory_margin_gb")) for data in rows["data"]]
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
