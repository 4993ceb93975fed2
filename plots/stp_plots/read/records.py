"""A result folder in memory: per experiment its rows, and every figure with its published value, as DataFrames.

Readers of records ignore unknown fields and accept null or missing ones.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from stp_plots import words
from stp_plots.files import ReportError, read_json
from stp_plots.words import agrees, configuration_parts, dictionary, hashable, items, number, text


@dataclass(frozen=True)
class Quantity:
    """A figure of a row that may be published too."""

    key: str  # of a record's rows
    title: str
    unit: str
    tolerance: float  # of its error, where the summary has none
    criterion: str  # the acceptance criterion that is about it
    scale: float = 1  # to the unit
    closed_form: bool = False  # published as a formula


QUANTITIES = {
    "throughput": Quantity("throughput_samples_per_s", "throughput", "samples/s", 0.03, "throughput_error_mean"),
    "time": Quantity("step_time_s", "step time", "s", 0.03, "throughput_error_mean"),
    "mfu": Quantity("mfu_paper", "MFU by the paper's formula", "%", 0.03, "throughput_error_mean", 100),
    "memory": Quantity("peak_memory_gb", "peak activation memory", "GB", 0.05, "memory_error_mean"),
    "idle": Quantity("idle_s", "idle time of the step", "s", 0.01, "idle_error_mean", closed_form=True),
    "chunks": Quantity("peak_activation_chunks", "peak activations", "chunks", 0.01, "chunks_error_mean", closed_form=True),
    "tp_share": Quantity("tp_communication_share", "TP communication of a forward", "%", 0.1, "tp_share_error_mean", 100),
}
# A row's throughput over the baseline's of the same configuration; its errors are in percentage points.
GAIN = Quantity("", "gain", "%", 1.5, "gain_error_points_mean")

# Fields of a row's configuration, besides the number of microbatches.
CONFIGURATION = ("model", "cluster", "seq", "microbatch_size", *words.AXES, "unit_costs")
# Fields of a row that never distinguish configurations.
NO_CONFIGURATION = {
    *CONFIGURATION, "schedule", "microbatches", "gain", "gpus", "layers_per_chunk", "placement", "ranks", "published", "difference",
    "calibration", "fits", "step_time_s", "step_time_repeats_s", "step_time_spread_s", "mfu", *(q.key for q in QUANTITIES.values()),
}  # fmt: skip
ALONE = "not testable here"  # the verdict on an experiment that nothing published judges: ours alone
TIMES = ("compute_s", "tp_bubble_s", "pp_bubble_s")
COLUMNS = ("data", "gain", "schedule", "m", "microbatches", "base", "calibrated", "step_time", "repeats", "mfu", "rank_times",
           "tp_bubble", "pp_bubble", "chunks", "tables")  # fmt: skip


def unit_costs(data):
    """The unit costs of a row in words, as totals of a chunk if all chunks are alike; empty if it has none. The row's name
    stands for costs that differ by rank."""
    given = dictionary(data.get("unit_costs"))
    if any(isinstance(value, list) for value in given.values()):
        return text(data.get("name") or "costs by rank")
    costs = {key: number(value) or 0 for key, value in given.items()}
    if not costs:
        return ""
    layers = {number(amount) for amount in items(data.get("layers_per_chunk"))}
    alike = len(layers) == 1 and None not in layers
    scale = layers.pop() if alike else 1
    # Attention and MLP each; either ends in an all-reduce, in either direction.
    parts = {name: [f"{unit}.{name}" for unit in ("attn", "mlp")] for name in "FIW"}
    parts["W"] += ["attn.W_early", "mlp.W_early"]
    parts["all-reduce"] = ["all_reduce"] * 2
    costs_of_parts = [f"{name} {scale * sum(costs.get(key, 0) for key in keys):g}" for name, keys in parts.items()]
    known = {key for keys in parts.values() for key in keys}
    costs_of_parts += [f"{key} {value:g}" for key, value in costs.items() if key not in known and value]
    return ", ".join(costs_of_parts) + ("" if alike else " per layer")


def _entry(data):
    """A row's line of the DataFrame, without the columns that depend on other rows."""
    ranks = [dictionary(rank) for rank in items(data.get("ranks"))]
    times = np.array([[number(rank.get(key)) for key in TIMES] for rank in ranks], dtype=float).reshape(-1, 3)
    times = np.empty((0, 3)) if np.isnan(times).any() else times
    chunks = [number(rank.get("peak_activation_chunks")) for rank in ranks]
    repeats = [number(time) for time in items(data.get("step_time_repeats_s"))]
    tables = [str(table) for table in items(dictionary(data.get("published")).get("tables"))]
    return (data, dictionary(data.get("gain")), str(data.get("schedule", "?")), text(data.get("microbatches")), number(data.get("microbatches")),
            tuple(hashable(data.get(field)) for field in CONFIGURATION), data.get("calibration") is True and bool(data.get("published")),
            number(data.get("step_time_s")), [time for time in repeats if time and time > 0], number(data.get("mfu")), times,
            *words.bubbles(times), max((one for one in chunks if one is not None), default=None), tables)  # fmt: skip


def _distinguishing_fields(rows):
    """Further fields in which rows of the same configuration, schedule and microbatches differ; their own names where these do."""
    distinguishing = {}
    for _, group in rows.groupby(["base", "schedule", "m"], sort=False, dropna=False):
        names = [data.get("name") for data in group["data"]]
        if len(group) > 1 and None not in names and len(set(names)) == len(group):
            distinguishing["name"] = None
            continue
        for field in dict.fromkeys(key for data in group["data"] for key in data if key not in NO_CONFIGURATION):
            values = [data.get(field) for data in group["data"]]
            if all(isinstance(value, (str, int, bool, type(None))) for value in values) and len(set(values)) > 1:
                distinguishing[field] = None
    return list(distinguishing)


def _setting(field, value):
    """A further field in a label."""
    if field == "name":
        return text(value)
    name = field.replace("_", " ")
    return f"{'with' if value else 'without'} {name}" if isinstance(value, bool) else f"{name} {text(value)}"


class Experiment:
    """A line of summary.json with its record.

    `rows` has a line per row of the record: COLUMNS, and `configuration`, a number that rows share which differ in schedule
    and microbatches only, with its words: `parts` (`base_parts` without the fields of `settings`), joined in `label`.
    """

    def __init__(self, line, record, place):
        rows, pairs = record.get("rows", record.get("results")), record.get("pairs", [])
        if rows is None and pairs:  # an experiment has rows of schedules, or pairs of operations
            rows = []
        for entries in (rows, pairs):
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise ReportError(f"{place}: has no list of rows")
        self.line, self.record, self.pairs = line, record, pairs
        self.scenario = dictionary(record.get("scenario"))
        self.id = str(line.get("id", ""))
        self.alone = line.get("verdict") == ALONE
        self.title = str(self.scenario.get("title") or line.get("title") or self.id)
        self.evidence = str(record.get("evidence") or line.get("evidence") or "unknown")
        self.rows = pd.DataFrame([_entry(row) for row in rows], columns=COLUMNS)
        self.schedules = list(self.rows["schedule"].unique())
        self.unit_costs = all(data.get("model") is None for data in self.rows["data"])
        self.sensitivity = None  # a Sensitivity of these very rows, where there is one
        self.timelines = []  # of paths to traces
        self.asked_gain = dictionary(dictionary(self.scenario.get("compare")).get("gain"))
        self.baseline = next((text(one["over"]) for one in self.rows["gain"] if one), next(iter(self.schedules), ""))
        self.pairs_apart = number(line.get("pairs_apart")) or 0  # relative: pairs further apart than this have an order in the paper
        self.gained = self.asked_gain.get("of") if self.asked_gain.get("of") in self.schedules else next(reversed(self.schedules), "")
        self._configure()

    def __len__(self):
        return len(self.rows) + len(self.pairs)

    def _configure(self):
        rows = self.rows
        self.varied = {field for i, field in enumerate(CONFIGURATION) if len({base[i] for base in rows["base"]}) > 1}
        self.settings = _distinguishing_fields(rows)
        for column in ("microbatches", "step_time", "mfu", "tp_bubble", "pp_bubble", "chunks"):
            rows[column] = rows[column].astype(float)
        rows["setting"] = [tuple(hashable(data.get(field)) for field in self.settings) for data in rows["data"]]
        # Rows that do not differ go to numbered copies of the configuration.
        rows["copy"] = rows.groupby(["base", "setting", "schedule", "m"], sort=False, dropna=False).cumcount() + 1
        rows["configuration"] = rows.groupby(["base", "setting", "copy"], sort=False, dropna=False).ngroup()
        rows["base_parts"] = [self._parts(data) for data in rows["data"]]
        rows["parts"] = [
            parts + [_setting(field, data[field]) for field in self.settings if data.get(field) is not None]
            + ([f"no. {copy}"] if copy > 1 else [])
            for parts, data, copy in zip(rows["base_parts"], rows["data"], rows["copy"])
        ]
        rows["label"] = rows["parts"].map(", ".join)
        rows["name"] = [", ".join(filter(None, (row.schedule, row.label, f"m {row.m}"))) for row in rows.itertuples()]
        # Memory that does not depend on m was fitted at every m if it was at one, as the summary counts it.
        patterns = items(dictionary(self.scenario.get("compare")).get("memory_calibration"))
        rows["memory_calibrated"] = rows["calibrated"] | [any(agrees(data, one) for one in patterns) for data in rows["data"]]
        rows["memory_calibrated"] = rows.groupby(["base", "setting", "schedule"], dropna=False)["memory_calibrated"].transform("any").astype(bool)

    def _parts(self, data):
        """What distinguishes the row's configuration, by parts; spaces within a part do not break."""
        fields = {key: data[key] for key in ("model", "seq", "microbatch_size", *words.AXES) if data.get(key) is not None}
        what, how = configuration_parts({"tp": 1, "pp": 1, "microbatch_size": 1} | fields)
        clusters = [text(data["cluster"])] if data.get("cluster") is not None and "cluster" in self.varied else []
        costs = [unit_costs(data)] if "unit_costs" in self.varied and unit_costs(data) else []
        models = 1 if "model" in fields else 0
        return what[:models] + clusters + what[models:] + how + costs

    @functools.cache
    def figure(self, name):
        """The rows that have a figure, ours or published: `ours`, `published`, `calibrated`, and `error`, ours over the published
        less one, or of the gain their difference in points."""
        frame, gains = self.rows.copy(), name == "gain"
        keys = ("percent", "published_percent", "error_points") if gains else [QUANTITIES[name].key] * 3
        holders = [frame["gain"]] * 3 if gains else [frame["data"], *([dictionary(data.get(part)) for data in frame["data"]] for part in ("published", "difference"))]
        for column, key, values in zip(("ours", "published", "error"), keys, holders):
            frame[column] = np.array([number(value.get(key)) for value in values], dtype=float)
        if gains:
            frame["calibrated"] = [gain.get("calibration") is True and gain.get("published_percent") is not None for gain in frame["gain"]]
        elif name == "memory":
            frame["calibrated"] = frame["memory_calibrated"]
        return frame.dropna(subset=["ours", "published"], how="all")

    def gains_over(self, of, over):
        """As the figure of the gain, of one schedule over any other."""
        frame, key = self.figure("throughput"), ["configuration", "m"]
        base = frame[frame["schedule"] == over].set_index(key)[["ours", "published", "calibrated"]]
        rows = frame[frame["schedule"] == of].join(base, on=key, rsuffix="_over", how="inner")
        for column in ("ours", "published"):
            rows[column] = 100 * (rows[column] / rows[f"{column}_over"] - 1)
        return rows.assign(error=rows["ours"] - rows["published"], calibrated=rows["calibrated"] | rows["calibrated_over"])

    @functools.cache
    def compared(self, name):
        """The rows with an error. Memory that is the same at every m is one of them."""
        frame = self.figure(name).dropna(subset=["error"])
        return frame.drop_duplicates(["configuration", "schedule", "ours", "published"]) if name == "memory" else frame

    def has_published(self, name):
        return bool(self.figure(name)["published"].notna().any())

    def tolerance(self, name):
        """The tolerance of the mean absolute error."""
        quantity = GAIN if name == "gain" else QUANTITIES[name]
        for criterion in map(dictionary, items(self.line.get("marks"))):
            if criterion.get("mark") == quantity.criterion and number(criterion.get("tolerance")) is not None:
                return criterion["tolerance"]
        return quantity.tolerance

    def counted(self, name):
        """Whether the errors of a figure are listed: not of rows that are none of the publication's, nor of throughput that was computed
        from published times."""
        return not self.alone and self.has_published(name) and not (name == "throughput" and self.has_published("time"))

    @property
    def in_units(self):
        """Whether times have the unit of a table of costs. Costs that give published times are seconds."""
        return self.unit_costs and not self.has_published("time")

    def time_unit(self):
        return "units" if self.in_units else "s"


def read_lines(folder):
    """The lines of a result folder's summary, one per experiment."""
    summary = Path(folder) / "summary.json"
    if not summary.is_file():
        raise ReportError(f"{folder}: is no result folder, it has no summary.json; write one with stp reproduce")
    lines = read_json(summary).get("experiments")
    if not isinstance(lines, list) or not all(isinstance(line, dict) and line.get("id") for line in lines):
        raise ReportError(f"{summary}: has no list of experiments with an id each")
    return lines


def read_experiment(folder, line):
    """The experiment of a line, without its timelines."""
    path = Path(folder) / f"{line['id']}.json"
    return Experiment(line, read_json(path), path)


def read_folder(folder):
    """The experiments of a result folder, in the summary's order."""
    experiments = [read_experiment(folder, line) for line in read_lines(folder)]
    for one in experiments:
        one.timelines = timelines(folder, one, [each.id for each in experiments])
    return experiments


def timelines(folder, experiment, ids):
    """Its traces, in the order of the schedules, as everything else. A timeline belongs to the longest of the ids that its name begins with."""
    found = []
    for path in Path(folder).glob("timeline-*.json"):
        owners = [one for one in ids if path.name.startswith(f"timeline-{one}-")]
        if owners and max(owners, key=len) == experiment.id and path.stem not in ids:
            found.append(path)
    return sorted(found, key=lambda path: (_place(experiment, path.stem.removeprefix(f"timeline-{experiment.id}-")), path))


def _place(experiment, word):
    matches = [schedule for schedule in experiment.schedules if word.startswith(schedule + "-")]
    return experiment.schedules.index(max(matches, key=len)) if matches else len(experiment.schedules)
