"""A null model, without any physics: the published figures of calibrated rows carried over to the others.

Throughput is that of the calibrated row of the same schedule and TP at equal MFU; peak memory that of the same row, per token,
hidden size and layer, over TP; a gain is that of the calibrated row of the same TP. Where no calibrated row has that TP, the mean of
all takes its place. What a simulation predicts no better than this, it adds nothing to.
"""

import itertools
import math
from dataclasses import dataclass

import pandas as pd

from . import words
from .records import QUANTITIES
from .tables import Table
from .words import dictionary, number

GAP = 0.02  # pairs of schedules further apart than this have an order in the paper


def _carried(rows, published):
    """For rows of one schedule: `published` of the calibrated ones with the same TP."""
    known = published[rows["calibrated"]].dropna()
    return rows["tp"].map(known.groupby(rows["tp"]).mean()).fillna(known.mean())


def _predicted(frame, key="configuration"):
    """The rows that are compared and not calibrated; `new`: no row with the same `key` is calibrated."""
    fitted = set(frame.loc[frame["calibrated"], key])
    rows = frame[~frame["calibrated"]].dropna(subset=["error"])
    return rows.assign(new=~rows[key].isin(fitted))


def _with_tp(frame):
    return frame.assign(tp=[number(data.get("tp")) for data in frame["data"]])


def has(experiment, name="throughput"):
    """Whether there are calibrated rows to carry over."""
    frame = experiment.figure(name)
    sized = not _sizes(experiment, frame).isna().any() if name == "memory" else experiment.rows["mfu"].notna().any()
    return bool((frame["calibrated"] & frame["published"].notna()).any() and sized)


def throughputs(experiment):
    """The rows of the figure with `null`, the throughput of the null model."""
    frame = _with_tp(experiment.figure("throughput"))
    used = frame["mfu"] / frame["ours"]  # MFU of one sample a second: FLOPs over GPUs and their peak
    return frame.assign(null=_by_schedule(frame, used) / used)


def _by_schedule(frame, scale):
    return pd.concat([_carried(rows, rows["published"] * scale[rows.index]) for _, rows in frame.groupby("schedule")])


def _sizes(experiment, frame):
    """Tokens of a microbatch times hidden size and layers, over TP; NaN where the model is not in the record."""
    models = dictionary(experiment.scenario.get("models"))

    def size(data):
        model = dictionary(models.get(data.get("model")))
        factors = [number(one) for one in (data.get("seq"), data.get("microbatch_size"), model.get("hidden_size"), model.get("num_hidden_layers"))]
        tp = number(data.get("tp"))
        return math.nan if None in factors or not tp else math.prod(factors) / tp

    return pd.Series([size(data) for data in frame["data"]], frame.index, dtype=float)


def errors(experiment, name):
    """Predicted rows of throughput or memory: `error` of ours and `null_error`, relative."""
    if name == "memory":
        frame = _with_tp(experiment.compared("memory"))
        size = _sizes(experiment, frame)
        # Memory knows no sequences, only tokens: two of 3072 are one of 6144.
        alike = [(data.get("model"), data.get("pp"), one, row) for data, one, row in zip(frame["data"], size, frame["schedule"])]
        rows = _predicted(frame.assign(null=_by_schedule(frame, 1 / size) * size, alike=alike), "alike")
    else:
        rows = _predicted(throughputs(experiment))
    return rows.assign(null_error=rows["null"] / rows["published"] - 1)


def gain_errors(experiment, schedule):
    """Predicted gains of the schedule over the baseline: `error` of ours and `null_error`, in points."""
    frame = _with_tp(experiment.figure("gain"))
    frame = frame[frame["schedule"] == schedule]
    rows = _predicted(frame.assign(null=_carried(frame, frame["published"])))
    return rows.assign(null_error=rows["null"] - rows["published"])


@dataclass
class Pairs:
    """Pairs of schedules in one configuration at one m."""

    total: int = 0
    calibrated: int = 0  # with a calibrated row
    far: int = 0  # predicted, more than GAP apart in the paper
    far_right: int = 0  # in the paper's order
    far_null: int = 0  # those that the null model has so
    far_constant: int = 0  # those that have the order of the calibrated rows
    near: int = 0  # the other predicted ones
    near_right: int = 0
    near_null: int = 0
    ties: int = 0  # near ones that the paper has equal


def pairs(experiment):
    frame = throughputs(experiment) if has(experiment) else experiment.figure("throughput").assign(null=float("nan"))
    # A rule without any model: the schedules' order over the calibrated rows, everywhere.
    constant = frame[frame["calibrated"]].groupby("schedule")["published"].mean()
    count = Pairs()
    for _, group in frame.dropna(subset=["ours", "published"]).groupby(["configuration", "m"], sort=False):
        for one, two in itertools.combinations(group.itertuples(), 2):
            count.total += 1
            if one.calibrated or two.calibrated:
                count.calibrated += 1
                continue
            difference = one.published - two.published
            right = difference * (one.ours - two.ours) > 0
            null = difference * (one.null - two.null) > 0
            same = difference * (constant.get(one.schedule, 0) - constant.get(two.schedule, 0)) > 0
            if abs(difference) > GAP * min(one.published, two.published):
                count.far, count.far_right, count.far_null = count.far + 1, count.far_right + right, count.far_null + null
                count.far_constant += same
            else:
                count.near, count.near_right, count.near_null = count.near + 1, count.near_right + right, count.near_null + null
                count.ties += difference == 0
    return count


def nearer(rows):
    """In how many of the rows ours is nearer to the published figure than the null model."""
    return (rows["error"].abs() < rows["null_error"].abs()).sum()


def _line(place, name, kind, rows, gain):
    cells = []
    for column in ("error", "null_error"):
        mean, worst = rows[column].abs().mean(), rows[column].abs().max()
        cells.append(f"{mean:.2f} points ({worst:.1f})" if gain else f"{words.plain_percent(mean, 2)} ({words.plain_percent(worst)})")
    return [place, name, f"{len(rows)} {kind}", *cells, f"{nearer(rows)} of {len(rows)}"]


def table(experiments):
    """Ours beside the null model, over all predicted rows and over new configurations alone."""
    lines = []
    for experiment in filter(has, experiments):
        if experiment.settings:
            continue  # variants of rows that another experiment has
        place = words.text(experiment.rows["data"].iloc[0].get("cluster")).upper()
        figures = [("throughput", errors(experiment, "throughput"), False)]
        names = [name for name in experiment.schedules if name != experiment.baseline]
        figures += [(f"gain of {name} over {experiment.baseline}", gain_errors(experiment, name), True) for name in reversed(names)]
        figures += [(QUANTITIES["memory"].title, errors(experiment, "memory"), False)] if has(experiment, "memory") else []
        for name, rows, gain in figures:
            for kind, some in (("predicted", rows), ("of new configurations", rows[rows["new"]])):
                if len(some) and (kind == "predicted" or len(some) < len(rows)):
                    lines.append(_line(place, name, kind, some, gain))
        count = pairs(experiment)
        for kind, amount, right, null in ((f"over {100 * GAP:g} % apart", count.far, count.far_right, count.far_null),
                                          ("closer", count.near, count.near_right, count.near_null)):  # fmt: skip
            if amount:
                lines.append([place, "pairs of schedules in the paper's order", f"{amount} {kind}", f"{right} right", f"{null} right", words.NONE])
    return Table(["cluster", "figure", "rows", "ours: mean error (max)", "null model: mean error (max)", "ours nearer in"], lines)
