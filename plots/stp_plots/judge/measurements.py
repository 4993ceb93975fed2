"""Configurations whose steps others measured: which of them contradict each other, and whether ours are in the same order."""

import itertools

from stp_plots import words
from stp_plots.words import items, number

# More of a step's time per sample and slot than at a smaller microbatch, or at a larger one, contradicts these: larger
# microbatches make larger GEMMs, and fewer launches and messages.
OVER_SMALLER, OVER_LARGER = 0.05, 0.2
GRID = ("model", "cluster", "seq", *words.AXES, "recompute", "sequence_parallel")


def contradicting(rows):
    """By row of a figure of step time, whether its published time contradicts another one of the same grid."""
    grids = {}
    for row in rows.itertuples():
        size, ranks = row.data.get("microbatch_size", 1), row.data.get("pp", 1)
        chunks = max(1, len(items(row.data.get("layers_per_chunk"))) // ranks)
        time = row.published / ((row.microbatches + (ranks - 1) / chunks) * size)
        grids.setdefault((row.schedule, *(row.data.get(field) for field in GRID)), []).append((row.Index, size, time))
    return rows.index.isin([
        index for grid in grids.values() for index, size, time in grid
        if any(time > (1 + (OVER_SMALLER if other < size else OVER_LARGER)) * least for _, other, least in grid if other != size)
    ])  # fmt: skip


def order(experiment, within=("model",)):
    """Of the pairs of rows that agree in the fields `within`, and whose published throughputs differ by more than `pairs_apart`: (in the
    same order, all)."""
    frame = experiment.compared("throughput")
    pairs = [
        (one.published - two.published) * (one.ours - two.ours) > 0
        for _, rows in frame[~frame["calibrated"]].groupby(lambda index: tuple(frame["data"][index].get(field) for field in within))
        for one, two in itertools.combinations(rows.itertuples(), 2)
        if abs(one.published - two.published) > experiment.pairs_apart * min(one.published, two.published)
    ]
    return sum(pairs), len(pairs)


def by(rows, field):
    """The mean absolute error per value of a field of the rows, in words."""
    means = rows["error"].abs().groupby([number(data.get(field)) for data in rows["data"]])
    return ", ".join(f"{words.plain_percent(some.mean())} at {field.upper()}{value:g} ({len(some)})" for value, some in means)


