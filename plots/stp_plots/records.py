"""Records in memory: rows, their configurations, what belongs together.

Readers of records ignore fields that they do not know, and do without those that are null or missing.
"""

from .values import dictionary, items, number, plain, text, unit_costs

# Our names of the figures that the paper prints too, and their keys in a record.
FIGURES = {
    "throughput": "throughput_samples_per_s",
    "mfu_paper": "mfu_paper",
    "memory": "peak_memory_gb",
}

# Likewise, of the figures for which the paper gives closed forms.
CLOSED_FORMS = {"idle": "idle_s", "chunks": "peak_activation_chunks"}

# Of one layer's forward, whatever the schedule.
LAYER = {"tp_share": "tp_communication_share"}

KEYS = FIGURES | CLOSED_FORMS | LAYER

# What the configuration of a row consists of, besides the number of microbatches.
CONFIGURATION = ("model", "cluster", "seq", "microbatch_size", "tp", "pp", "cp", "dp")

# Fields of a row that never tell two configurations apart.
NO_CONFIGURATION = {
    "schedule", "microbatches", "gpus", "layers_per_chunk", "placement", "ranks", "published", "difference",
    "calibration", "step_time_s", "step_time_repeats_s", "step_time_spread_s", "mfu", "unit_costs",
    *KEYS.values(),
}  # fmt: skip

DEFAULT_TOLERANCES = {"throughput": 0.03, "gain": 1.5, "memory": 0.05, "idle": 0.01, "chunks": 0.01, "tp_share": 0.1}
MARKS = {
    "throughput": "throughput_error_mean",
    "gain": "gain_error_points_mean",
    "memory": "memory_error_mean",
    "idle": "idle_error_mean",
    "chunks": "chunks_error_mean",
    "tp_share": "tp_share_error_mean",
}


class ReportError(Exception):
    """The folder cannot be reported on; the message says why in one line."""


class Row:
    """One schedule in one configuration."""

    def __init__(self, data):
        self.data = data
        self.schedule = str(data.get("schedule", "?"))
        self.microbatches = data.get("microbatches")
        self.calibrated = data.get("calibration") is True
        self.memory_calibrated = False  # set by Scenario
        self.configuration = None  # likewise

    def value(self, key):
        return number(self.data.get(key))

    def figure(self, name):
        return self.value(KEYS[name])

    def published(self, name):
        return number(dictionary(self.data.get("published")).get(KEYS[name]))

    def difference(self, name):
        """Ours over the published, minus one."""
        recorded = number(dictionary(self.data.get("difference")).get(KEYS[name]))
        ours, theirs = self.figure(name), self.published(name)
        if recorded is None and ours is not None and theirs:
            return ours / theirs - 1
        return recorded

    def fitted(self, name):
        """Whether the figure belongs to what the cost model was fitted to."""
        return self.memory_calibrated if name == "memory" else self.calibrated

    def tables(self):
        return [str(table) for table in items(dictionary(self.data.get("published")).get("tables"))]

    def repeats(self):
        times = (number(time) for time in items(self.data.get("step_time_repeats_s")))
        return [time for time in times if time is not None]

    def rank_times(self):
        """Per rank: compute, TP bubble, PP bubble; empty if any is missing."""
        keys = ("compute_s", "tp_bubble_s", "pp_bubble_s")
        ranks = [[number(dictionary(rank).get(key)) for key in keys] for rank in items(self.data.get("ranks"))]
        return [] if any(None in rank for rank in ranks) else ranks

    def bubble_share(self, index):
        """Mean over the ranks, as a share of the step; index as in rank_times()."""
        ranks = self.rank_times()
        total = sum(map(sum, ranks))
        return sum(rank[index] for rank in ranks) / total if total > 0 else None

    def peak_chunks(self):
        chunks = [number(dictionary(rank).get("peak_activation_chunks")) for rank in items(self.data.get("ranks"))]
        return max((chunk for chunk in chunks if chunk is not None), default=None)

    def name(self):
        return f"{self.schedule}, {self.configuration.label}, m {text(self.microbatches)}"


class Pair:
    """One entry of a record's `pairs`."""

    def __init__(self, data):
        self.data = data
        self.name = text(data.get("name"))
        self.published = dictionary(data.get("published"))
        self.figures = dictionary(data.get("figures"))
        self.of_times = dictionary(data.get("from_published_times"))
        self.difference = dictionary(data.get("difference"))

    def shape(self):
        gemm, message = dictionary(self.data.get("gemm")), dictionary(self.data.get("all_reduce"))
        size = number(message.get("bytes"))
        told = " × ".join(text(gemm.get(key)) for key in "mnk")
        return f"{told}, {'–' if size is None else f'{size / 2**20:g}'} MiB among {text(message.get('ranks'))}"


class Configuration:
    """Rows that differ in schedule and microbatches only."""

    def __init__(self, key, lines):
        self.key = key
        self.lines = lines
        self.label = ", ".join(lines)
        self.rows = []

    def title(self, width):
        """The label in as few lines as fit a panel's title."""
        lines = []
        for line in self.lines:
            if len(lines) > 1 and len(lines[-1]) + len(line) + 2 <= width:
                lines[-1] += ", " + line
            else:
                lines.append(line)
        return lines

    def microbatches(self):
        seen = {row.microbatches: None for row in self.rows}
        return sorted(seen, key=lambda m: (number(m) is None, number(m) or 0))

    def row(self, schedule, microbatches):
        for row in self.rows:
            if row.schedule == schedule and row.microbatches == microbatches:
                return row
        return None


class Scenario:
    def __init__(self, line, record, place):
        rows = record.get("rows", record.get("results"))
        pairs = record.get("pairs", [])  # a scenario has rows of schedules, or these
        if rows is None and pairs:
            rows = []
        for told in (rows, pairs):
            if not isinstance(told, list) or not all(isinstance(row, dict) for row in told):
                raise ReportError(f"{place}: has no list of rows")
        self.line, self.record = line, record
        self.id = str(line.get("id", ""))
        self.title = str(dictionary(record.get("scenario")).get("title") or line.get("title") or self.id)
        self.evidence = str(record.get("evidence") or line.get("evidence") or "unknown")
        self.rows = [Row(row) for row in rows]
        self.pairs = [Pair(pair) for pair in pairs]
        self.schedules = list(dict.fromkeys(row.schedule for row in self.rows))
        self.unit_costs = all(row.data.get("model") is None for row in self.rows)
        self.sensitivity = None  # a Sensitivity of these very rows, where there is one
        self.timelines = []  # (file name, text) of SVG files
        self._configure()

    def _configure(self):
        def base(row):
            return tuple(plain(row.data.get(field)) for field in fields)

        fields = (*CONFIGURATION, "unit_costs")
        self.extra_fields = _telling_fields(self.rows, base)
        self.varied = {f for f in fields if len({plain(row.data.get(f)) for row in self.rows}) > 1}
        self.configurations, by_key = [], {}
        for row in self.rows:
            key = base(row) + tuple(plain(row.data.get(field)) for field in self.extra_fields)
            copy = 1  # rows that nothing tells apart go to numbered copies of the configuration
            while (key, copy) in by_key and by_key[key, copy].row(row.schedule, row.microbatches):
                copy += 1
            if (key, copy) not in by_key:
                by_key[key, copy] = Configuration(key, self._lines(row, copy))
                self.configurations.append(by_key[key, copy])
            row.configuration = by_key[key, copy]
            row.configuration.rows.append(row)
        # Memory that does not depend on m was fitted at every m if it was at one, as the summary counts it.
        fitted = {(base(row), row.schedule) for row in self.rows if row.calibrated}
        for row in self.rows:
            row.memory_calibrated = (base(row), row.schedule) in fitted

    def _lines(self, row, copy):
        get = row.data.get
        names = [text(get("model"))] if get("model") is not None else []
        if get("cluster") is not None and "cluster" in self.varied:
            names.append(text(get("cluster")))
        shape = []
        if get("seq") is not None:
            shape.append(f"s {text(get('seq'))} × {text(get('microbatch_size', 1))}")
        elif get("microbatch_size", 1) != 1:
            shape.append(f"microbatch size {text(get('microbatch_size'))}")
        grid = [f"TP{text(get('tp', 1))}", f"PP{text(get('pp', 1))}"]
        grid += [f"{axis.upper()}{text(get(axis))}" for axis in ("cp", "dp") if get(axis, 1) not in (1, None)]
        extras = [f"{field} {text(get(field))}" for field in self.extra_fields]
        lines = [
            " ".join(names),
            ", ".join(shape),
            " ".join(grid),
            unit_costs(row.data) if "unit_costs" in self.varied else "",
            ", ".join(extras),
            f"no. {copy}" if copy > 1 else "",
        ]
        return [line for line in lines if line]

    def size(self):
        return len(self.rows) + len(self.pairs)

    def has_published(self, name):
        return any(row.published(name) is not None for row in self.rows)

    def has_closed_forms(self):
        return any(map(self.has_published, CLOSED_FORMS))

    def has_figure(self, name):
        return any(row.figure(name) is not None for row in self.rows)

    def baseline(self):
        """What gains are over."""
        for holder in (dictionary(self.record.get("scenario")), self.line):
            over = dictionary(dictionary(holder.get("compare")).get("gain")).get("over")
            if over in self.schedules:
                return over
        return "1f1b-i" if "1f1b-i" in self.schedules else (self.schedules or [""])[0]

    def gained(self):
        """What the gain of "compare" is of, or the last schedule."""
        for holder in (dictionary(self.record.get("scenario")), self.line):
            of = dictionary(dictionary(holder.get("compare")).get("gain")).get("of")
            if of in self.schedules:
                return of
        return self.schedules[-1] if self.schedules else ""

    def gain(self, row):
        """(ours, published) over the baseline of the same configuration, percent; and whether a fitted row is in it."""
        base = row.configuration.row(self.baseline(), row.microbatches)
        if base is None or row.schedule == base.schedule:
            return None, None, False

        def ratio(of, over):
            return 100 * (of / over - 1) if of is not None and over else None

        ours = ratio(row.figure("throughput"), base.figure("throughput"))
        theirs = ratio(row.published("throughput"), base.published("throughput"))
        return ours, theirs, row.calibrated or base.calibrated

    def tolerance(self, name):
        for mark in items(self.line.get("marks")):
            if dictionary(mark).get("mark") == MARKS[name] and number(mark.get("tolerance")) is not None:
                return mark["tolerance"]
        return DEFAULT_TOLERANCES[name]


def _telling_fields(rows, base):
    """Further fields in which rows of the same configuration, schedule and microbatches differ."""
    groups = {}
    for row in rows:
        groups.setdefault((base(row), row.schedule, plain(row.microbatches)), []).append(row.data)
    telling = {}
    for group in groups.values():
        for field in dict.fromkeys(key for data in group for key in data):
            if field in NO_CONFIGURATION or field in CONFIGURATION:
                continue
            values = [data.get(field) for data in group]
            simple = all(isinstance(value, (str, int, bool, type(None))) for value in values)
            if simple and len(set(values)) > 1:
                telling[field] = None
    return list(telling)
