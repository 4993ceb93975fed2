"""Result records side by side: per configuration and schedule, each file's figures and how they differ from the first
file's."""

from stp_plots.files import InputError
from stp_plots.judge import memory
from stp_plots.judge.statistics import Sample, judge, relative
from stp_plots.read.results import EVIDENCE, FIGURES
from stp_plots.words import AXES, hashable

# Fields that identify a row in every record; and further fields that may distinguish rows of one file.
BASE = ["model", "seq", "microbatch_size", *AXES, "microbatches"]
FURTHER = ["cluster", "contention", "braid", "release", "backward", "recompute", "sequence_parallel", "tp_overlap", "cp_method", "zero", "offload_ratio", "offload_chunks",
            "cluster_values", "gradients", "freed_at", "type", "backend", "unit_costs", "layers_per_chunk", "layer_costs", "microbatch_costs",
            "implementation", "recipe", "scatter_transfers", "sends_share_adapter"]


JOB = ("gpus", "samples_per_step")  # in which rows that correspond may differ

# ---- which rows correspond ----


def key_of(row, fields):
    return tuple(hashable(row.get(field)) for field in fields)


def one_schedule_each(files):
    return all(len({row["schedule"] for row in file.rows}) == 1 for file in files)


def distinct(rows, fields):
    return len({key_of(row, fields) for row in rows})


def key_fields(files):
    """The fields in which corresponding rows must agree: those of BASE that every file has, and those of FURTHER that
    distinguish rows of one file. Of files of one row: the model and its length."""
    known = [field for field in BASE + FURTHER
             if all(any(row.get(field) is not None for row in file.rows) for file in files)]
    key = [field for field in BASE if field in known]
    if all(len(file.rows) == 1 for file in files):
        return [field for field in key if field in ("model", "seq")]  # whatever the split, it is the row that is meant
    base = key + ([] if one_schedule_each(files) else ["schedule"])
    return key + [field for field in FURTHER if field in known and any(
        distinct(file.rows, base) < distinct(file.rows, [*base, field]) for file in files)]


def align(files, fields):
    """Per file its rows by key; rows with equal keys are numbered."""
    if not one_schedule_each(files):
        fields = [*fields, "schedule"]
    aligned = []
    for file in files:
        rows = {}
        for row in file.rows:
            key, again = key_of(row, fields), 0
            while (key, again) in rows:
                again += 1
            rows[key, again] = row
        if aligned and not rows.keys() & aligned[0].keys():
            raise InputError(file.path, "", f"has no configuration in common with {files[0].path}",
                             "compare records that share model, lengths, parallelism, microbatches and schedules")
        aligned.append(rows)
    return aligned


def differences(files, key, common):
    """Other differences of the files: per field the values of each, in order of appearance. `common`: cells of common rows."""
    values = {}
    for field in [*BASE, "chunks", *FURTHER]:
        seen = [list({hashable(row.get(field)): row.get(field) for row in file.rows}.values()) for file in files]
        # Layers by chunk of several rows follow from their schedules' placements.
        if field not in key and (field != "layers_per_chunk" or all(len(some) == 1 for some in seen)):
            values[field] = [some[0] if len(some) == 1 else some for some in seen]
    for name in files[0].inputs:
        inputs = [file.inputs.get(name) for file in files]
        if all(inputs):
            values |= {place: [given.get(place) for given in inputs] for place in sorted(set().union(*inputs))}
    values["host"] = [file.system.get("host_processor_model_name") for file in files]
    values["revision"] = [file.provenance.get("git_revision") for file in files]
    values["build"] = [file.provenance.get("build_type") for file in files]
    for field in JOB:
        seen = [list(dict.fromkeys(cell[field] for cell in cells)) for cells in zip(*common)]
        values[field] = [some[0] if len(some) == 1 else some for some in seen]
    return [{"field": field, "values": some} for field, some in values.items() if any(one != some[0] for one in some)]


# ---- the comparison ----


def cell_of(row, sample):
    return {"schedule": row["schedule"], **{field: row[field] for field in (*JOB, "tokens_per_s_per_gpu")},
            **{field: row.get(field) for field in FIGURES},
            "step_time_interval_s": sample and sample.interval, "repeats": len(row["repeats"]),
            "pp_bubble_share": row["bubbles"][1], "tp_bubble_share": row["bubbles"][0],
            "peak_total_gb": memory.total_gb(row), "fits": row.get("fits"),
            "against_first": None, "prediction": None}


def same_step(row, first):
    """Whether a step is of as many samples in both, as far as they are known: only then are step times compared."""
    samples = {row["samples_per_step"], first["samples_per_step"]}
    return len(samples - {None}) < 2


def against(row, first):
    return {"throughput": relative(row.get("throughput_samples_per_s"), first.get("throughput_samples_per_s")),
            "tokens_per_s_per_gpu": relative(row["tokens_per_s_per_gpu"], first["tokens_per_s_per_gpu"]),
            "step_time": relative(row.get("step_time_s"), first.get("step_time_s")) if same_step(row, first) else None,
            "peak_memory": relative(row.get("peak_memory_gb"), first.get("peak_memory_gb")),
            "p": None, "adjusted_p": None, "verdict": None}


def prediction(weaker, stronger, sample):
    """The weaker evidence as a prediction of the stronger, whose repeated steps are the sample."""
    step, same = weaker.get("step_time_s"), same_step(weaker, stronger)
    interval = sample and same and sample.interval
    return {"predicted_step_s": step, "actual_step_s": stronger.get("step_time_s"),
            "step_error": relative(step, stronger.get("step_time_s")) if same else None,
            "within_interval": interval[0] <= step <= interval[1] if interval and step is not None else None,
            "peak_memory_error": relative(weaker.get("peak_memory_gb"), stronger.get("peak_memory_gb"))}


def prediction_errors(weaker, stronger, predictions):
    """The prediction errors of one pair of files, each (label, file)."""
    errors = [one["step_error"] for one in predictions if one["step_error"] is not None]
    within = [one["within_interval"] for one in predictions if one["within_interval"] is not None]
    return {"predicted_by": weaker[0], "predicted_evidence": weaker[1].evidence,
            "actual": stronger[0], "actual_evidence": stronger[1].evidence,
            "rows": len(errors), "step_error_mean": sum(map(abs, errors)) / len(errors) if errors else None,
            "step_error_worst": max(reversed(errors), key=abs, default=None),
            "intervals": len(within), "within_interval": sum(within)}


def strength(file):
    return EVIDENCE.index(file.evidence)


def compare(files, rule):
    """All files against the first, as results/schema/comparison.schema.json has it under kind `records`. `files`: by label.

    Rows are of the same thing if they agree in schedule, model, lengths, parallelism and microbatches, as far as every file
    knows these, and in whatever else distinguishes rows of one file; in what then still differs (the cluster, say) the files
    differ, which is listed. Where every file has one schedule only, these are compared. Figures of one evidence are compared;
    of two, the weaker is a prediction of the stronger, which is reported separately. InputError if a file has no row in
    common with the first."""
    first, *others = files.values()
    fields = key_fields([first, *others])
    aligned = align([first, *others], fields)
    rows, pairs, judged = [], [], []
    for key in dict.fromkeys(key for by_key in aligned for key in by_key):
        found = [by_key.get(key) for by_key in aligned]
        samples = [Sample(row["repeats"], rule) if row and row["repeats"] else None for row in found]
        cells = [row and cell_of(row, sample) for row, sample in zip(found, samples)]
        for file, row, sample, cell in zip(others, found[1:], samples[1:], cells[1:]):
            if not row or not found[0]:
                continue
            if strength(file) < strength(first):
                cell["prediction"] = prediction(row, found[0], samples[0])
            elif strength(file) > strength(first):
                cell["prediction"] = prediction(found[0], row, sample)
            else:
                cell["against_first"] = against(row, found[0])
                if len(row["repeats"]) > 1 and len(found[0]["repeats"]) > 1 and same_step(row, found[0]):
                    pairs.append((samples[0], sample))
                    judged.append(cell["against_first"])
        described = next(filter(None, found))
        rows.append({"configuration": {field: described.get(field) for field in fields}, "cells": cells})
    for cell, verdict in zip(judged, judge(pairs, rule)):
        cell |= {field: verdict[field] for field in ("p", "adjusted_p", "verdict")}

    errors, labelled = [], list(files.items())
    for i, one in enumerate(labelled):
        if one[1].evidence != first.evidence:
            cells = [row["cells"][i] for row in rows]
            predictions = [cell["prediction"] for cell in cells if cell and cell["prediction"]]
            errors.append(prediction_errors(*sorted([labelled[0], one], key=lambda each: strength(each[1])), predictions))
    common = [row["cells"] for row in rows if None not in row["cells"]]
    described = [{"label": label, "path": file.path, "evidence": file.evidence, "scenario": file.scenario,
                  "provenance": file.provenance, "system": file.system} for label, file in labelled]
    return {"kind": "records", "files": described, "differs": differences([first, *others], fields, common),
            "rule": rule.json(len(pairs)), "predictions": errors, "rows": rows}
