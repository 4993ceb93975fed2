"""Whether a row fits into its GPU: activations, weights, gradients and optimizer of the rank that holds most."""

from stp_plots import words
from stp_plots.words import Table, dictionary, items, number


def total_gb(data):
    """Of a row; None where it has none."""
    parts = [dictionary(dictionary(rank).get("memory_bytes")) for rank in items(data.get("ranks"))]
    totals = [sum(number(value) or 0 for key, value in one.items() if key != "host") for one in parts if one]
    return max(totals) / 1e9 if totals else None


WORDS = {"yes": "fits", "maybe": "may fit", "no": "does not fit"}


def fits(data):
    """"yes", "maybe" or "no"; records before 1.15 have the margin alone."""
    return data.get("fits") or ("yes" if (number(data.get("memory_margin_gb")) or 0) >= 0 else "no")


def unsure_gb(experiment, data):
    """How much less than is counted a GPU may need besides tensors, GB."""
    cluster = dictionary(dictionary(experiment.scenario.get("clusters")).get(data.get("cluster")))
    fixed = dictionary(cluster.get("fixed_memory_gb"))
    counted = fixed.get("value", 0)
    return counted - dictionary(fixed.get("range")).get("from", counted)


def against(rows, ran=False):
    """The rows of which it is published whether they fit (if they `ran`, they do), by what is said here: surely the same, it may be so,
    surely not so."""
    found = [], [], []
    for data in rows:
        theirs = True if ran else dictionary(data.get("published")).get("fits")
        if theirs is not None and number(data.get("memory_margin_gb")) is not None:
            found[1 if fits(data) == "maybe" else 2 * ((fits(data) == "yes") != theirs)].append(data)
    return found


def counted(found):
    """"8 of 12, 3 may fit": what against() finds, in words."""
    right, may, wrong = map(len, found)
    return f"{right} of {right + may + wrong}" + (f", {may} may fit" if may else "")


def verdict(data):
    """"69.5 of 80.0 GB, fits"; empty where memory or GPU are not known."""
    total, margin = total_gb(data), number(data.get("memory_margin_gb"))
    if total is None or margin is None:
        return ""
    return f"{total:.1f} of {total + margin:.1f} GB, {WORDS[fits(data)]}"


def fastest(experiment):
    """By configuration, at its largest m: the fastest schedule and whether it fits; and the fastest of those that do."""
    rows = experiment.figure("throughput").dropna(subset=["ours", "microbatches"])
    rows = rows.assign(memory=[verdict(data) for data in rows["data"]], fits=[fits(data) for data in rows["data"]])
    rows = rows[rows["memory"] != ""]
    rows = rows[rows["microbatches"] == rows.groupby("configuration")["microbatches"].transform("max")]
    lines = []
    for _, group in rows.groupby("configuration", sort=False):
        if len(group) < 2:
            continue
        best, fitting = group.loc[group["ours"].idxmax()], group[group["fits"] == "yes"]
        other = fitting.loc[fitting["ours"].idxmax()] if len(fitting) else None
        least = "none" if other is None else "the same" if other.schedule == best.schedule else (
            f"{other.schedule}, {words.magnitude(other.ours)}, {other.memory.partition(',')[0]}")  # fmt: skip
        lines.append([best.label, best.m, best.schedule, words.magnitude(best.ours), best.memory, least])
    caption = "The fastest schedule of each configuration, and whether it fits: activations, weights, gradients and optimizer"
    if any(data.get("post_validation") for data in experiment.rows["data"]):
        caption += "; post-validation with copies of what a step changes, which its authors do not need"
    return Table(["configuration", "m", "fastest", "samples/s", "memory in all", "fastest that fits"], lines, caption)
