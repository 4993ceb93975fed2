"""What the paper leaves open: an experiment with each of the choices that another one has rows of."""

import functools

from stp_plots.files import ReportError
from stp_plots.read.records import Experiment

PLACE = ("schedule", "model", "cluster", "seq", "microbatch_size", "tp", "pp", "microbatches")


def _place(data):
    return tuple(data.get(field) for field in PLACE)


@functools.cache
def choices(experiment, spans):
    """The experiment with each configuration of `spans` in the place of its own rows."""
    found = []
    for _, group in spans.rows.groupby("configuration"):
        own = {_place(data): data | {"name": None} for data in group["data"]}
        if not own.keys() <= set(map(_place, experiment.rows["data"])):
            raise ReportError(f"{spans.id}: has a row in a place where {experiment.id} has none")
        rows = [own.get(_place(data), data) for data in experiment.rows["data"]]
        found.append(Experiment(experiment.line, experiment.record | {"rows": rows}, spans.id))
    return found
