"""Result records side by side: per configuration and schedule, each file's figures and how they differ from the first
file's."""

import json
from dataclasses import dataclass

from . import screen
from .json_input import Fields, InputError
from .statistics import Sample, judge, relative

EVIDENCE = ["simulated", "emulated", "replayed", "measured", "published"]  # from the weakest to the strongest

# What a row is of, whoever made it; and what else may tell two rows of one file apart.
BASE = ["model", "seq", "microbatch_size", "tp", "pp", "cp", "dp", "microbatches"]
FURTHER = ["cluster", "contention", "braid", "release", "backward", "recompute", "sequence_parallel", "freed_at", "type", "backend",
           "unit_costs", "layers_per_chunk"]

FIGURES = ("throughput_samples_per_s", "step_time_s", "mfu", "peak_memory_gb")
LARGEST = 1e30


@dataclass
class RecordFile:
    path: str
    scenario: str  # its name
    evidence: str
    system: dict
    provenance: dict
    rows: list  # as written, checked, with the shares of bubbles


def is_record(content):
    return (isinstance(content, dict) and "evidence" in content and "scenario" in content and
            any(key in content for key in ("results", "rows", "pairs")))


def read_row(row, path, place):
    """The row with `sample`, its repeated steps, and `bubbles`, shares of the step of the rank that computes most."""
    fields = Fields(row, path, place)
    fields.string("schedule")
    for key in FIGURES:
        if row.get(key) is not None:
            fields.number(key, LARGEST)
    repeats = fields.array("step_time_repeats_s", [])
    if any(not isinstance(value, (int, float)) or isinstance(value, bool) for value in repeats):
        raise fields.error("step_time_repeats_s", "holds something that is no number", "write seconds")
    most, bubbles = -1, (None, None)
    for i, rank in enumerate(fields.array("ranks", [])):
        given = Fields(rank, path, f"{place}.ranks[{i}]")
        compute, pp, tp = (given.number(key, LARGEST) for key in ("compute_s", "pp_bubble_s", "tp_bubble_s"))
        step = compute + pp + tp
        if compute > most and step > 0:
            most, bubbles = compute, (pp / step, tp / step)
    return {**row, "repeats": repeats, "bubbles": bubbles}


def read_record(content, path):
    """InputError that names file, field and remedy."""
    fields = Fields(content, path)
    name = Fields(fields.object("scenario"), path, "scenario").string("name")
    evidence = fields.string("evidence")
    if evidence not in EVIDENCE:
        raise fields.error("evidence", f'"{evidence}" is unknown', "write one of " + ", ".join(EVIDENCE))
    if "pairs" in content:
        raise fields.error("pairs", "are GEMMs and all-reduces, without schedules to compare", "name records of scenarios with schedules")
    key = "results" if "results" in content else "rows"
    rows = [read_row(row, path, f"{key}[{i}]") for i, row in enumerate(fields.array(key))]
    if not rows:
        raise fields.error(key, "is empty", "there is nothing to compare")
    return RecordFile(path, name, evidence, fields.object("system", {}), fields.object("provenance", {}), rows)


# ---- which rows are of the same thing ----


def plain(value):
    return json.dumps(value, sort_keys=True)  # can be hashed


def key_of(row, fields):
    return tuple(plain(row.get(field)) for field in fields)


def one_schedule_each(files):
    return all(len({row["schedule"] for row in file.rows}) == 1 for file in files)


def key_fields(files):
    """The fields in which rows must agree to be of the same thing: what every file knows of BASE, and of FURTHER what tells two
    rows of one file apart."""
    known = [field for field in BASE + FURTHER if all(any(row.get(field) is not None for row in file.rows) for file in files)]
    key = [field for field in BASE if field in known]
    told = key + ([] if one_schedule_each(files) else ["schedule"])
    for field in (field for field in FURTHER if field in known):
        if any(len({key_of(row, told) for row in file.rows}) < len({key_of(row, [*told, field]) for row in file.rows}) for file in files):
            key.append(field)
    return key


def align(files, fields):
    """Per file its rows by what they are of; those that nothing tells apart are numbered."""
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


def differences(files, key):
    """In what else the files differ: per field the values of each, in order of appearance."""
    values = {}
    for field in BASE + FURTHER:
        if field not in key and field != "layers_per_chunk":  # layers by chunk follow from the schedule's placement
            seen = [list({plain(row.get(field)): row.get(field) for row in file.rows}.values()) for file in files]
            values[field] = [some[0] if len(some) == 1 else some for some in seen]
    values["host"] = [file.system.get("host_processor_model_name") for file in files]
    values["revision"] = [file.provenance.get("git_revision") for file in files]
    values["build"] = [file.provenance.get("build_type") for file in files]
    return [{"field": field, "values": some} for field, some in values.items() if any(one != some[0] for one in some)]


# ---- the comparison ----


def prediction(weaker, stronger, interval):
    """The weaker evidence as a prediction of the stronger, the interval of whose median step is given."""
    step = weaker.get("step_time_s")
    return {"predicted_step_s": step, "actual_step_s": stronger.get("step_time_s"),
            "step_error": relative(step, stronger.get("step_time_s")),
            "within_interval": interval[0] <= step <= interval[1] if interval and step is not None else None,
            "peak_memory_error": relative(weaker.get("peak_memory_gb"), stronger.get("peak_memory_gb"))}


def prediction_errors(predicted, actual, predictions):
    """How good the predictions of one pair of files, each (label, file), are."""
    errors = [one["step_error"] for one in predictions if one["step_error"] is not None]
    within = [one["within_interval"] for one in predictions if one["within_interval"] is not None]
    return {"predicted_by": predicted[0], "actual": actual[0], "predicted_evidence": predicted[1].evidence,
            "actual_evidence": actual[1].evidence, "rows": len(errors),
            "step_error_mean": sum(map(abs, errors)) / len(errors) if errors else None,
            "step_error_worst": max(reversed(errors), key=abs, default=None), "intervals": len(within), "within_interval": sum(within)}


def compare(files, rule):
    """All files against the first, as results/schema/comparison.schema.json has it under kind `records`. `files`: by label.

    Rows are of the same thing if they agree in schedule, model, lengths, parallelism and microbatches, as far as every file
    knows these, and in whatever else tells two rows of one file apart; in what then still differs (the cluster, say) the files
    differ, and that is said. Where every file has one schedule only, these are compared. Figures of one evidence are compared;
    of two, the weaker is a prediction of the stronger, which is reported separately. InputError if a file has no row in common
    with the first."""
    labels, of = list(files), list(files.values())
    first, strength = of[0], EVIDENCE.index
    fields = key_fields(of)
    aligned = align(of, fields)
    rows, pairs, judged, predictions = [], [], [], {label: [] for label in labels}
    for key in dict.fromkeys(key for by_key in aligned for key in by_key):
        cells, base = [], aligned[0].get(key)
        samples = [Sample(by_key[key]["repeats"], rule) if by_key.get(key, {}).get("repeats") else None for by_key in aligned]
        for label, file, by_key, sample in zip(labels, of, aligned, samples):
            row = by_key.get(key)
            if row is None:
                cells.append(None)
                continue
            interval = sample and sample.interval
            cell = {"schedule": row["schedule"], **{field: row.get(field) for field in FIGURES}, "step_time_interval_s": interval,
                    "repeats": len(row["repeats"]), "pp_bubble_share": row["bubbles"][0], "tp_bubble_share": row["bubbles"][1],
                    "against_first": None, "prediction": None}
            if file is not first and base and file.evidence == first.evidence:
                cell["against_first"] = {short: relative(row.get(field), base.get(field)) for short, field in (
                    ("throughput", "throughput_samples_per_s"), ("step_time", "step_time_s"), ("peak_memory", "peak_memory_gb"))}
                cell["against_first"] |= {"p": None, "adjusted_p": None, "verdict": None}
                if len(row["repeats"]) > 1 and len(base["repeats"]) > 1:
                    pairs.append((samples[0], sample))
                    judged.append(cell["against_first"])
            elif file is not first and base:
                if strength(first.evidence) < strength(file.evidence):
                    cell["prediction"] = prediction(base, row, interval)
                else:
                    cell["prediction"] = prediction(row, base, samples[0] and samples[0].interval)
                predictions[label].append(cell["prediction"])
            cells.append(cell)
        described = next(by_key[key] for by_key in aligned if key in by_key)
        rows.append({"configuration": {field: described.get(field) for field in fields}, "cells": cells})
    for against, verdict in zip(judged, judge(pairs, rule)):
        against |= {field: verdict[field] for field in ("p", "adjusted_p", "verdict")}
    errors = [prediction_errors(*sorted([(labels[0], first), (label, file)], key=lambda one: strength(one[1].evidence)), predictions[label])
              for label, file in files.items() if file.evidence != first.evidence]
    described = [{"label": label, "path": file.path, "evidence": file.evidence, "scenario": file.scenario,
                  "provenance": file.provenance, "system": file.system} for label, file in files.items()]
    return {"kind": "records", "files": described, "differs": differences(of, fields), "rule": rule.json(len(pairs)),
            "predictions": errors, "rows": rows}


# ---- on screen ----


def schedule_of(row):
    """The schedule that a line is of; where files were compared with one each, theirs."""
    return " | ".join(dict.fromkeys(cell["schedule"] for cell in row["cells"] if cell))


def step_text(cell):
    interval = cell["step_time_interval_s"]
    return screen.duration(cell["step_time_s"]) + (" [{}, {}]".format(*map(screen.duration, interval)) if interval else "")


def figures_text(comparison):
    table = screen.Table(["  schedule", "file", "samples/s", "vs A", "step", "vs A", "verdict", "MFU", "PP bubble", "TP bubble", "GB", "vs A"])
    heading = None
    for row in comparison["rows"]:
        cells = [(file, cell) for file, cell in zip(comparison["files"], row["cells"]) if cell]
        if len(cells) < 2:
            continue
        if (now := screen.configuration(row["configuration"])) != heading:
            table.heading(now)
            heading = now
        name = "  " + schedule_of(row)
        for file, cell in cells:
            against = cell["against_first"]
            to_first = {key: screen.change(against[key]) if against else "" for key in ("throughput", "step_time", "peak_memory")}
            table.add([name, f"{file['label']} {file['evidence']}", screen.fixed(cell["throughput_samples_per_s"], 3), to_first["throughput"],
                       step_text(cell), to_first["step_time"], (against and against["verdict"]) or "", screen.share(cell["mfu"]),
                       screen.share(cell["pp_bubble_share"]), screen.share(cell["tp_bubble_share"]),
                       screen.fixed(cell["peak_memory_gb"], 2), to_first["peak_memory"]])
            name = ""
    return table.text()


def predictions_text(comparison, errors):
    labels = [file["label"] for file in comparison["files"]]
    place = max(labels.index(errors["predicted_by"]), labels.index(errors["actual"]))  # the one of the two that is not the first
    table = screen.Table(["  schedule", "predicted step", "actual step", "error", "in its interval", "memory error"])
    heading = None
    for row in comparison["rows"]:
        told = row["cells"][place] and row["cells"][place]["prediction"]
        if not told:
            continue
        if (now := screen.configuration(row["configuration"])) != heading:
            table.heading(now)
            heading = now
        table.add(["  " + schedule_of(row), screen.duration(told["predicted_step_s"]), screen.duration(told["actual_step_s"]),
                   screen.change(told["step_error"], 2), screen.word(told["within_interval"]), screen.change(told["peak_memory_error"])])
    text = (f"\nPrediction errors: {errors['predicted_by']} ({errors['predicted_evidence']}) of what {errors['actual']} has "
            f"({errors['actual_evidence']})\n{table.text()}")
    if errors["step_error_mean"] is not None:
        text += (f"Step time: mean absolute error {screen.share(errors['step_error_mean'], 2)}, largest error "
                 f"{screen.change(errors['step_error_worst'], 2)}; within the 95 % interval of the median in "
                 f"{errors['within_interval']} of {errors['intervals']} rows that have one\n")
    return text


def missing_text(comparison):
    """Rows that not every file has, those of one configuration together."""
    places = {}
    for row in comparison["rows"]:
        if None in row["cells"]:
            present = ", ".join(file["label"] for file, cell in zip(comparison["files"], row["cells"]) if cell)
            places.setdefault((present, screen.configuration(row["configuration"])), []).append(schedule_of(row))
    lines = "".join(f"  only in {present}: {where}: {', '.join(names)}\n" for (present, where), names in places.items())
    return f"\nRows that are not in every file (their figures: --json)\n{lines}" if lines else ""


def show(comparison):
    text = "".join(f"{file['label']}  {file['path']}: {file['scenario']}, {file['evidence']}\n" for file in comparison["files"])
    text += screen.differences(comparison) + "\n" + figures_text(comparison)
    text += "".join(predictions_text(comparison, errors) for errors in comparison["predictions"]) + missing_text(comparison)
    text += "\nBubbles are those of the rank that computes most; GB is peak activation memory."
    rule = comparison["rule"]
    if rule["comparisons"]:
        text += (" In brackets: 95 % interval of the median (order statistics).\nVerdicts are on the step, by the Mann-Whitney U test with "
                 f"Holm's correction over {rule['comparisons']} comparisons at {screen.share(rule['error_rate'], 0)}; "
                 f"less than {screen.share(rule['least_difference'], 0)} is the same.")
    return text + "\n"
