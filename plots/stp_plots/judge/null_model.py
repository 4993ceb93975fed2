"""Null models, without any physics of GPUs: the published figures of calibrated rows carried over to the others."""

import functools
import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from stp_plots import words
from stp_plots.files import ROOT, read_json
from stp_plots.words import Table, dictionary, items, number, text

NAMES = {"null": "null model", "bubble": "null model with the textbook bubble"}  # by column
DESCRIPTION = (
    "Null models carry figures of calibrated rows over to the others. Throughput is at the MFU of the calibrated row of the "
    "same schedule and TP (or the mean of all); gains follow. One of the two adds a textbook bubble: "
    "(p − 1)/(v·m) of compute for 1F1B-I, a third of that for ZB-V and STP. For memory, divide by tokens, hidden size and "
    "layers; draw a straight line over 1/TP through the calibrated rows and the six A800 figures with which we chose the list of saved "
    "tensors; read the other rows from this line. New configurations have no calibrated row."
)

# The bubble over a step's compute, of that of 1F1B-I. The paper's Table 1 has (p - 1)(F + I - W) for STP and (p - 1)(F + I + W) for
# 1F1B-I; its row of ZB-V, zero at F = I = W, is the span of a rank: a step waits p - 1 forwards at the least.
BUBBLE = {"1f1b-i": 1, "zb-v": 1 / 3, "stp": 1 / 3}

PUBLISHED = ROOT / "results/published/stp-paper.json"
COMPLETED_WITH = {"cluster": "a800", "model": "llm-12.1b", "seq": 6144}  # its rows, the list of saved tensors (docs/fidelity.md)


def _carried(rows, published):
    """For rows of one schedule: `published` of the calibrated ones with the same TP."""
    known = published[rows["calibrated"]].dropna()
    return rows["tp"].map(known.groupby(rows["tp"]).mean()).fillna(known.mean())


def _predicted(frame):
    """The rows that are compared and not calibrated; `new`: no row of the same configuration is calibrated."""
    rows = frame[~frame["calibrated"]].dropna(subset=["error"])
    return rows.assign(new=~rows["configuration"].isin(frame.loc[frame["calibrated"], "configuration"]))


def _with_tp(frame):
    return frame.assign(tp=[number(data.get("tp")) for data in frame["data"]])


def has(experiment, name="throughput"):
    """Whether there are calibrated rows to carry over."""
    frame = experiment.figure(name)
    sized = not _sizes(experiment, frame["data"]).isna().any() if name == "memory" else experiment.rows["mfu"].notna().any()
    return bool((frame["calibrated"] & frame["published"].notna()).any() and sized)


@functools.cache
def throughputs(experiment):
    """The rows of the figure with `null` and `bubble`, the throughputs of the null models; `bubble` is NaN where it is not known."""
    frame = _with_tp(experiment.figure("throughput"))
    used = frame["mfu"] / frame["ours"]  # MFU of one sample a second: FLOPs over GPUs and their peak
    longer = used * (1 + pd.Series([_bubble(row) for row in frame.itertuples()], frame.index, dtype=float))
    return frame.assign(null=_by_schedule(frame, used) / used, bubble=_by_schedule(frame, longer) / longer)


def _by_schedule(frame, scale):
    return pd.concat([_carried(rows, rows["published"] * scale[rows.index]) for _, rows in frame.groupby("schedule")])


def _bubble(row):
    ranks, chunks = number(row.data.get("pp")), len(items(row.data.get("layers_per_chunk")))
    share = BUBBLE.get(row.schedule)
    return share * (ranks - 1) * ranks / (chunks * row.microbatches) if share and ranks and chunks else math.nan


def _sizes(experiment, rows):
    """Tokens of a microbatch times hidden size and layers; NaN where the model is not in the record."""
    models = dictionary(experiment.scenario.get("models"))

    def size(data):
        model = dictionary(models.get(data.get("model")))
        factors = [number(one) for one in (data.get("seq"), data.get("microbatch_size", 1), model.get("hidden_size"), model.get("num_hidden_layers"))]
        return math.nan if None in factors or not number(data.get("tp")) else math.prod(factors)

    return rows.map(size).astype(float)


@functools.cache
def _completed_with():
    """The published rows that the list of saved tensors was completed with."""
    rows = read_json(PUBLISHED)["rows"] if PUBLISHED.is_file() else []
    known = [row for row in rows if "peak_memory_gb" in row and "name" not in row and all(row.get(key) == value for key, value in COMPLETED_WITH.items())]
    return pd.DataFrame({"data": known, "schedule": [row["schedule"] for row in known],
                         "published": [float(row["peak_memory_gb"]) for row in known]})  # fmt: skip


@functools.cache
def memories(experiment):
    """The rows of the figure with `null`, the memory of the null model."""
    frame = _with_tp(experiment.compared("memory"))
    fitted = [data.get("calibration") is True for data in frame["data"]]
    known = pd.concat([frame.loc[fitted, ["data", "schedule", "published"]], _completed_with()], ignore_index=True)
    known["size"] = _sizes(experiment, known["data"])
    known = known.dropna()
    inverse = pd.Series([1 / number(data["tp"]) for data in known["data"]], known.index, dtype=float)
    size, null = _sizes(experiment, frame["data"]), pd.Series(math.nan, frame.index)
    for schedule, rows in frame.groupby("schedule"):
        own = known["schedule"] == schedule
        if own.any():
            null[rows.index] = _line_through(inverse[own], (known["published"] / known["size"])[own], 1 / rows["tp"]) * size[rows.index]
    return frame.assign(null=null, bubble=math.nan, size=size)


def _line_through(x, y, at):
    """The straight line that fits best, or the one through zero where all have one x."""
    return np.polyval(np.polyfit(x, y, 1), at) if x.nunique() > 1 else (y / x).mean() * at


def errors(experiment, name):
    """Predicted rows of throughput or memory: `error` of ours, `null_error` and `bubble_error`, relative."""
    rows = _predicted(memories(experiment) if name == "memory" else throughputs(experiment))
    return rows.assign(**{f"{kind}_error": rows[kind] / rows["published"] - 1 for kind in NAMES})


def passes(experiment):
    """As errors(), of steps whose passes take measured times: `null` is (m + p − 1) times those of the slowest rank."""
    rows = _predicted(experiment.figure("time"))
    steps = [(data["microbatches"] + data["pp"] - 1) * max(map(sum, zip(*data["unit_costs"].values()))) for data in rows["data"]]
    return rows.assign(null=steps, null_error=steps / rows["published"] - 1, bubble_error=math.nan)


def gain_errors(experiment, schedule, over=None):
    """Predicted gains of the schedule over another, by default the baseline: `null`, `bubble`; and `error` of ours, `null_error` and
    `bubble_error`, in points."""
    frame = experiment.gains_over(schedule, over) if over else experiment.figure("gain")
    frame = frame[frame["schedule"] == schedule]
    every, key = throughputs(experiment), ["configuration", "m"]
    base = every[every["schedule"] == (over or experiment.baseline)].set_index(key)
    for kind in NAMES:
        frame = frame.assign(**{kind: 100 * (every.loc[frame.index, kind] / frame.join(base[kind].rename("base_null"), on=key)["base_null"] - 1)})
    rows = _predicted(frame)
    return rows.assign(**{f"{kind}_error": rows[kind] - rows["published"] for kind in NAMES})


def better(rows):
    """The null model with the smaller mean error over the rows: its column."""
    return min((kind for kind in NAMES if rows[f"{kind}_error"].notna().all()), key=lambda kind: rows[f"{kind}_error"].abs().mean(), default="null")


@dataclass
class Pairs:
    """Pairs of schedules in one configuration at one m."""

    total: int = 0
    calibrated: int = 0  # with a calibrated row
    far: int = 0  # predicted, and further apart in the paper than chance
    far_right: int = 0  # in the paper's order
    far_constant: int = 0  # those that have the order of the calibrated rows
    near: int = 0  # the other predicted ones
    near_right: int = 0
    far_null: dict = field(default_factory=dict)  # by null model, those that it has in the paper's order
    near_null: dict = field(default_factory=dict)


def order_of_calibrated(experiment):
    """A rule without any model: the schedules' mean published throughputs over the calibrated rows, whose order is to hold everywhere."""
    frame = experiment.figure("throughput")
    return frame[frame["calibrated"]].groupby("schedule")["published"].mean()


def pairs(experiment):
    frame = throughputs(experiment) if has(experiment) else experiment.figure("throughput").assign(**dict.fromkeys(NAMES, math.nan))
    constant = order_of_calibrated(experiment)
    kinds = {kind: 0 for kind in NAMES if frame[kind].notna().any()}
    count = Pairs(far_null={**kinds}, near_null={**kinds})
    for pair in experiment.line.get("order", []):
        one, two = (frame.loc[pair[place]] for place in ("row", "other"))
        count.total += 1
        if one.calibrated or two.calibrated:
            count.calibrated += 1
            continue
        difference = one.published - two.published
        right = difference * (one.ours - two.ours) > 0
        same = difference * (constant.get(one.schedule, 0) - constant.get(two.schedule, 0)) > 0
        if pair["apart"]:
            count.far, count.far_right, count.far_constant = count.far + 1, count.far_right + right, count.far_constant + same
        else:
            count.near, count.near_right = count.near + 1, count.near_right + right
        nulls = count.far_null if pair["apart"] else count.near_null
        for kind in nulls:
            nulls[kind] += difference * (one[kind] - two[kind]) > 0
    return count


def nearer(rows):
    """In how many of the rows ours is nearer to the published figure than the better null model."""
    return (rows["error"].abs() < rows[f"{better(rows)}_error"].abs()).sum()


def _place(experiment):
    """Its GPU; and that it has no STP, as figures of others have none."""
    return words.text(experiment.rows["data"].iloc[0].get("cluster")).upper() + ("" if "stp" in experiment.schedules else ", without STP")


def _figures(experiments):
    """(experiment, figure with its cluster, its predicted rows, whether it is a gain)."""
    for experiment in filter(has, experiments):
        if experiment.settings:
            continue  # variants of rows that another experiment has
        place = _place(experiment)
        yield experiment, f"throughput, {place}", errors(experiment, "throughput"), False
        others = [name for name in reversed(experiment.schedules) if name != experiment.baseline]
        for name, over in [(name, None) for name in others] + [(experiment.gained, name) for name in others if name != experiment.gained]:
            rows = gain_errors(experiment, name, over)
            if len(rows):
                yield experiment, f"{name.upper()}'s gain{f' over {over.upper()}' if over else ''}, {place}", rows, True
        if has(experiment, "memory"):
            yield experiment, f"activation memory, {place}", errors(experiment, "memory"), False


def table(experiments):
    """Ours beside the better null model, over all predicted rows and, in brackets, over those of new configurations."""
    lines = []
    for experiment, name, rows, gain in _figures(experiments):
        new = rows[rows["new"]]

        def cell(tell, rows=rows, new=new):
            return tell(rows) + (f" ({tell(new)})" if 0 < len(new) < len(rows) else "")

        def mean(column, gain=gain):
            return lambda some: f"{(1 if gain else 100) * some[column].abs().mean():.2f}"

        unit, best = " points" if gain else " %", better(rows)
        lines.append([name, cell(lambda some: str(len(some))), cell(mean("error")) + unit, cell(mean(f"{best}_error")) + unit,
                      cell(lambda some: str(nearer(some)))])  # fmt: skip
    for experiment in {id(one): one for one, *_ in _figures(experiments)}.values():
        count, place = pairs(experiment), _place(experiment)
        if not count.total:
            continue
        far, near = (max(nulls.values(), default=0) for nulls in (count.far_null, count.near_null))
        lines.append([f"pairs over {100 * experiment.pairs_apart:g} % apart (closer), {place}", f"{count.far} ({count.near})",
                      f"{count.far_right} ({count.near_right})", f"{far} ({near}); the calibrated rows' order alone: {count.far_constant}",
                      words.NONE])  # fmt: skip
    return Table(["figure", "rows (of new configurations)", "our mean error", "the better null model's", "ours nearer in"], lines)


def beaten(experiments):
    """A sentence on the figures that a null model errs less in than ours, over all predicted rows."""
    texts = []
    for _, name, rows, gain in _figures(experiments):
        null, ours = (rows[column].abs().mean() for column in (f"{better(rows)}_error", "error"))
        if null < ours:
            texts.append(f"{name} ({null:.2f} for our {ours:.2f} points)" if gain else
                         f"{name} ({words.plain_percent(null, 2)} for our {words.plain_percent(ours, 2)})")  # fmt: skip
    return f"The better null model errs less than our simulation in {'; '.join(texts)}." if texts else ""
