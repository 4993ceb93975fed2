"""Errors against published figures: sentences for captions, and tables.

Errors over predicted and over calibrated rows stand apart; those of experiments are the summary's own.
"""

import pandas as pd

from stp_plots import words
from stp_plots.page.tables import Table, cited
from stp_plots.read.records import QUANTITIES
from stp_plots.words import dictionary, items, number, text

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


def note(experiment, name):
    """A sentence on the errors of predicted rows."""
    frame = experiment.compared(name)
    frame = frame[~frame["calibrated"]]
    if frame.empty:
        return " No predicted row has a published value." if experiment.has_published(name) else ""
    worst = frame.loc[frame["error"].abs().idxmax()]
    mean = words.plain_percent(frame["error"].abs().mean(), 2)
    return (
        f" Mean absolute error over {words.count(len(frame), 'predicted row')}: {mean}; maximum: "
        f"{words.percent(worst['error'])} ({worst['name']})."
    )


def gain_note(experiment):
    """Sentences on the predicted gains, per schedule: the acceptance criterion is about one of them."""
    frame = experiment.compared("gain")
    frame = frame[~frame["calibrated"]]
    if frame.empty:
        return ""
    means = frame["error"].abs().groupby(frame["schedule"], sort=False).mean()
    worst = frame.loc[frame["error"].abs().idxmax()]
    return (
        f" Mean absolute error of the predicted gains, in percentage points: "
        f"{', '.join(f'{name} {mean:.2f}' for name, mean in means.items())}; maximum: {words.signed(worst['error'])} ({worst['name']})."
    )


def by_table(experiments):
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


def recorded(experiment):
    """Mean and maximum error of predicted and of calibrated rows, from the summary."""
    rows = []
    for key, name in SUMMARY.items():
        for kind, holder in (("predicted", experiment.line), ("calibrated", dictionary(experiment.line.get("calibrated")))):
            mean, worst = number(holder.get(key + "_mean")), dictionary(holder.get(key + "_worst"))
            if mean is not None:
                rows.append([name, kind, reached(key, mean), reached(key + "_worst", number(worst.get("error"))), text(worst.get("row"))])
    return Table(["error of", "rows", "mean absolute", "maximum absolute", "in row"], rows)


def summary(experiment):
    """The mean absolute errors of predicted rows, from the summary."""
    means = {key: number(experiment.line.get(key + "_mean")) for key in SUMMARY}
    return ", ".join(f"{SUMMARY[key]} {reached(key, mean)}" for key, mean in means.items() if mean is not None) or words.NONE
