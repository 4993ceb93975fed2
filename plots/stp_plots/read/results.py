"""Result records that a user names."""

import math
from dataclasses import dataclass

from stp_plots import words
from stp_plots.files import Fields
from stp_plots.words import AXES

KIND = "a result record"
MAJOR = "1"  # version of the records that are read here
EVIDENCE = ["simulated", "emulated", "replayed", "measured", "published"]  # from the weakest to the strongest

FIGURES = ("throughput_samples_per_s", "step_time_s", "mfu", "peak_memory_gb")
LARGEST = 1e30


@dataclass
class RecordFile:
    path: str
    scenario: str  # its name
    inputs: dict  # by cluster or model of the scenario: its values by place
    evidence: str
    system: dict
    provenance: dict
    rows: list  # of read_row


def recognises(content):
    return (isinstance(content, dict) and "evidence" in content and "scenario" in content and
            any(key in content for key in ("results", "rows", "pairs")))


def read_row(row, path, place):
    """The row as written, checked, with `repeats`, of the step in seconds, and what follows from it."""
    fields = Fields(row, path, place)
    fields.string("schedule")
    for key in FIGURES:
        if row.get(key) is not None:
            fields.number(key, LARGEST)
    repeats = fields.array("step_time_repeats_s", [])
    if any(not isinstance(value, (int, float)) or isinstance(value, bool) for value in repeats):
        raise fields.error("step_time_repeats_s", "has an element that is not a number", "write seconds")
    times = []
    for i, rank in enumerate(fields.array("ranks", [])):
        given = Fields(rank, path, f"{place}.ranks[{i}]")
        times.append([given.number(key, LARGEST) for key in ("compute_s", "tp_bubble_s", "pp_bubble_s")])
    chunks = len(words.items(row.get("layers_per_chunk"))) // (words.number(row.get("pp")) or 1) or None
    ranks, samples = product_of(row, AXES), product_of(row, ("microbatches", "microbatch_size", "dp"))
    tokens = product_of(row, ("throughput_samples_per_s", "seq"))
    return {**row, "repeats": repeats, "bubbles": words.bubbles(times), "chunks": chunks, "gpus": ranks, "samples_per_step": samples,
            "tokens_per_s_per_gpu": words.number(tokens / ranks) if tokens and ranks else None}


def product_of(row, keys):
    """None where one is unknown or out of range."""
    values = [words.number(row.get(key)) for key in keys]
    return None if any(value is None or not 0 < value <= LARGEST for value in values) else math.prod(values)


def values_in(content, place):
    """The values of nested objects by place; where a value comes from is none."""
    if isinstance(content, dict) and "value" in content:
        content = content["value"]
    if not isinstance(content, dict):
        return {place: content}
    return {inner: value for key in content.keys() - {"source", "comment", "fitted_to"}
            for inner, value in values_in(content[key], f"{place}.{key}").items()}


def read(content, path):
    """InputError that names file, field and remedy."""
    fields = Fields(content, path)
    version = fields.string("schema_version", MAJOR)
    if version.split(".")[0] != MAJOR:
        raise fields.error("schema_version", f'"{version}" is of another major version',
                           f"make the record again with a program that writes {MAJOR}.x")
    scenario = Fields(fields.object("scenario"), path, "scenario")
    name = scenario.string("name")
    inputs = {f"{kind}.{key}": values_in(content, f"{kind}.{key}")
              for kind in ("clusters", "models") for key, content in scenario.object(kind, {}).items()}
    evidence = fields.string("evidence")
    if evidence not in EVIDENCE:
        raise fields.error("evidence", f'"{evidence}" is unknown', "write one of " + ", ".join(EVIDENCE))
    if "pairs" in content:
        raise fields.error("pairs", "are GEMMs and all-reduces, without schedules to compare",
                           "name records of scenarios with schedules")
    key = "results" if "results" in content else "rows"
    rows = [read_row(row, path, f"{key}[{i}]") for i, row in enumerate(fields.array(key))]
    if not rows:
        raise fields.error(key, "is empty", "there is nothing to compare")
    return RecordFile(path, name, inputs, evidence, fields.object("system", {}), fields.object("provenance", {}), rows)
