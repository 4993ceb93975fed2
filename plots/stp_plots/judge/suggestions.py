"""How often the configuration that is fastest here was the fastest measured, among rows of one model on as many GPUs."""

import math

from stp_plots.judge import null_model
from stp_plots.words import number

# No row twice, and none whose model was chosen by these throughputs.
MEASURED = ("llm-a800", "mllm-a800", "cp-dp", "llm-h20", "korthikanti", "vtrain", "twist")
NEAR = 0.03  # of the measured best
DESCRIPTION = (
    "A group has rows of one model, sequence, number of GPUs and samples, none calibrated. The null model takes the most "
    "replicas (dp · cp), of these the least tp, then the schedule that is fastest over calibrated rows (A800's where there "
    "are none). Ties count in part."
)


def _groups(experiment, reference):
    """`reference`: the experiment whose calibrated rows order the schedules if it has none itself."""
    order = null_model.order_of_calibrated(experiment if experiment.rows["calibrated"].any() else reference)
    groups = {}
    for row in experiment.figure("throughput").dropna(subset=["ours", "published"]).itertuples():
        ranks = {key: number(row.data.get(key)) if row.data.get(key) else 1 for key in ("tp", "pp", "cp", "dp", "microbatch_size")}
        size, dp = ranks.pop("microbatch_size"), ranks["dp"]
        key = (row.data["model"], row.data["seq"], math.prod(ranks.values()), row.data["microbatches"] * size * dp)
        groups.setdefault(key, []).append({"ours": row.ours, "published": row.published, "calibrated": row.calibrated,
                                           "null": (dp * ranks["cp"], -ranks["tp"], order.get(row.schedule, 0)),
                                           "refused": row.data.get("fits") == "no"})  # fmt: skip
    return [rows for rows in groups.values() if len(rows) > 1 and not any(row["calibrated"] for row in rows)]


def _hits(rows, key):
    """The shares of the rows first by `key` that were measured as the best, and near it."""
    best = max(row["published"] for row in rows)
    first = max(row[key] for row in rows)
    chosen = [row["published"] / best for row in rows if row[key] == first]
    return [sum(share >= least for share in chosen) / len(chosen) for least in (1, 1 - NEAR)]


def totals(experiments):
    """In words: groups; of these, ours measured as the best, and near it; the null model's likewise; and ours said not to fit."""
    measured = sorted((one for one in experiments if one.id in MEASURED), key=lambda one: MEASURED.index(one.id))
    groups = [group for experiment in measured for group in _groups(experiment, measured[0])]
    counts = [len(groups), *(sum(_hits(group, key)[i] for group in groups) for key in ("ours", "null") for i in (0, 1)),
              sum(max(group, key=lambda row: row["ours"])["refused"] for group in groups)]  # fmt: skip
    return [f"{count:.0f}" if count == round(count) else f"{count:.1f}" for count in counts]
