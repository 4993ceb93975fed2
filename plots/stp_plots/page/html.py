"""report.html: one self-contained page. Its contents are gathered here; report.html.j2 has its layout."""

import base64
import functools
from dataclasses import dataclass
from pathlib import Path

import jinja2

from stp_plots import words
from stp_plots.draw import closed_forms, headline, overlap, splits, style
from stp_plots.judge import claims, null_model
from stp_plots.page import tables
from stp_plots.words import Table, dictionary, items, text

TEMPLATES = Path(__file__).resolve().parent
# What an experiment's own verdict is worth where claims are judged too, which ask for more.
CRITERIA_ALONE = {claims.GOOD: "met", claims.BAD: "missed"}
TITLE = "Synergistic Tensor and Pipeline Parallelism: reproduction report"
EVIDENCE = {
    "measured": "the program ran on real devices of this world size and was timed by the devices' own clock.",
    "replayed": "one rank's real kernels ran on a real device at full size; emulated links stood for its peers.",
    "emulated": "the real runtime ran, on devices whose kernels only take time, as a cost table says.",
    "simulated": "the program ran in virtual time; nothing ran on a GPU.",
    "published": "the figure is a publication's own.",
}


@dataclass
class Drawn:
    """A plot with its file, as the page embeds it."""

    plot: style.Plot  # without its figure
    content: bytes
    kind: str  # png or svg
    size: tuple  # inches

    @property
    def width(self):
        return round(self.size[0] * style.SHOWN_DPI)

    @property
    def height(self):
        return round(self.size[1] * style.SHOWN_DPI)

    @property
    def source(self):
        media = {"png": "image/png", "svg": "image/svg+xml"}[self.kind]
        return f"data:{media};base64,{base64.b64encode(self.content).decode()}"


def render(experiments, plots, timelines, evaluated, first=None):
    """The page. `plots`: by experiment lists of Drawn; `timelines`: by experiment lists of (file, Drawn or None); `evaluated`: the
    claims; `first`: the first screen's plot, a Drawn."""
    return _template().render(
        title=TITLE,
        subtitle=_subtitle(experiments),
        evidence={one.evidence: EVIDENCE.get(one.evidence, "not explained in this report.") for one in experiments},
        claims=_claims(experiments, evaluated),
        first=first,
        by_table=tables.errors_by_table(experiments),
        experiments=[_experiment(one, plots.get(one.id, []), timelines.get(one.id, []), evaluated) for one in experiments],
        provenance=_provenance(experiments),
    )


@functools.cache
def _template():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("report.html.j2")


def _subtitle(experiments):
    if not experiments:
        return "No experiment was run."
    origin = dictionary(experiments[0].record.get("provenance"))
    parts = [words.count(len(experiments), "experiment"), words.count(sum(map(len, experiments)), "row")]
    parts += [f"STP suite {text(origin['version'])}"] if origin.get("version") is not None else []
    return ", ".join(parts + ([text(origin["time"])] if origin.get("time") is not None else []))


def _experiment(experiment, plots, timelines, evaluated):
    line, judged = experiment.line, _verdicts([one for one in evaluated if one.scenario == experiment.id])
    special = splits.cells(experiment) or splits.contention_groups(experiment)
    beside = [] if special else [tables.beside(experiment, name) for name in ("throughput", "time", "mfu", "memory")]
    return {
        "title": experiment.title,
        "anchor": "experiment-" + "".join(c if c.isalnum() else "-" for c in experiment.id),
        "evidence": experiment.evidence,
        "size": len(experiment),
        "calibrated": text(line["calibration_rows"]) if line.get("calibration_rows") else "",
        "errors": tables.mean_errors(experiment),
        "pairs": f"{text(line.get('pairs_right'))} of {text(line.get('pairs'))}" if line.get("pairs") else words.NONE,
        "verdict": CRITERIA_ALONE.get(text(line.get("verdict")), text(line.get("verdict"))) if judged else text(line.get("verdict")),
        "reason": text(line["reason"]).replace("; see marks", "") if line.get("reason") else "",
        "claims": judged,
        "criteria": tables.criteria(experiment),
        "recorded": tables.recorded_errors(experiment),
        "description": overlap.description(experiment) if experiment.pairs else _description(experiment),
        "plots": plots,
        "main_tables": [("The parts of each gain", splits.ablation_table(experiment)), ("Times of every pair", overlap.table(experiment))],
        "tables": [splits.contention_table(experiment), closed_forms.agreement(experiment), *beside],
        "timelines": timelines,
        "rows": tables.all_rows(experiment),
        "legend": _legend(experiment),
    }


def _description(experiment):
    description = f"{words.count(len(experiment.rows), 'row')}, {experiment.evidence}. "
    if experiment.schedules:
        description += f"{words.count(len(experiment.schedules), 'schedule')}: {', '.join(experiment.schedules)}. "
    clusters = dict.fromkeys(text(data["cluster"]) for data in experiment.rows["data"] if data.get("cluster") is not None)
    if clusters:
        description += f"{'Cluster' if len(clusters) == 1 else 'Clusters'}: {', '.join(clusters)}. "
    if experiment.unit_costs:
        return description + "Costs are given by a table, not by a model of hardware: times have its unit and say nothing of a machine."
    return description + "In labels, s is the sequence length times the microbatch size, m the number of microbatches per step."


def _legend(experiment):
    rows = experiment.rows
    legend = "Size is the microbatch size. Bubbles are those of the rank that computes most, as shares of the step."
    if rows["mfu"].notna().any():
        legend += " MFU counts causal attention once; the paper's formula, beside it, counts attention four times as much."
    if (rows["memory_calibrated"] & ~rows["calibrated"]).any():
        legend += " † Memory does not depend on m: what was fitted at another m counts as calibrated here too."
    if experiment.has_closed_forms():
        legend += (
            " Idle time is what the busiest rank does not compute of the step. Closed form: the published formula, evaluated for the "
            "row; where it gives zero, any other value of ours counts as an error of 100 %."
        )
    if rows["chunks"].notna().any():
        name = "activations" if experiment.has_published("chunks") else "chunks"
        legend += f" Peak {name}: activations alive at once on the rank with most of them, in microbatches of one chunk."
    return legend


def _verdicts(evaluated):
    """How many claims have which verdict, in words."""
    verdicts = [one.verdict for one in evaluated if one.verdict != claims.OPEN]
    names = {claims.GOOD: "reproduced", claims.FITTED: "consistent (calibrated)", claims.BAD: "deviating"}
    return ", ".join(f"{verdicts.count(kind)} {name}" for kind, name in names.items() if kind in verdicts)


def _claims(experiments, evaluated):
    """The first screen's table, and those of the claims that could be tested, that are counted apart, missed, or cannot be tested."""
    if not evaluated:
        return None
    tested = [one for one in evaluated if one.verdict != claims.OPEN]
    head = ["where", "claim", "published", "ours", "criteria", "verdict", "evidence", "command"]

    def lines(some):
        return [[one.where, one.claim, one.published, one.ours, one.tolerance, one.verdict, one.evidence, one.command] for one in some]

    run = {one.id for one in experiments}
    places = [place for place in claims.listed("places") if run & set(place.get("scenarios", run))]
    missed = [[one.where, one.claim, one.published, one.ours, one.reason] for one in tested if one.verdict == claims.BAD]
    return {
        "headline": headline.table(evaluated),
        "counts": claims.counts(evaluated),
        "tested": Table(head, lines(one for one in tested if not one.apart)),
        "apart": Table([*head, "why"], [[*line, one.apart] for one in tested if one.apart for line in lines([one])]),
        "missed": Table(["where", "claim", "published", "ours", "reason, as far as it is known"], missed),
        "open": Table(["where", "claim", "reason"], [[one.where, one.claim, one.reason] for one in evaluated if one.verdict == claims.OPEN]),
        "places": Table(list(claims.PLACES), claims.by_place(places, evaluated)),
        "nulls": null_model.DESCRIPTION,
        "beaten": null_model.beaten(experiments),
        "null": null_model.table(experiments),
    }


def _provenance(experiments):
    """(experiments, what they have in common): of one run, all but the second in which each was written."""
    groups = {}
    for experiment in experiments:
        groups.setdefault(tuple(_entries(experiment.record)), []).append(experiment)
    found = []
    for entries, members in groups.items():
        times = sorted({text(dictionary(one.record.get("provenance")).get("time")) for one in members})
        time = ("time", times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}")
        found.append((", ".join(one.id for one in members), Table(["", ""], [list(entry) for entry in (time, *entries)])))
    return found


def _entries(record):
    origin, system = dictionary(record.get("provenance")), dictionary(record.get("system"))
    names = {"git_dirty": "uncommitted changes", "argv": "command"}
    entries = [("record schema", text(record.get("schema_version")))]
    for key, value in [*origin.items(), *system.items()]:
        if key != "time":
            shown = " ".join(map(text, items(value))) if key == "argv" else text(value)
            entries.append((names.get(key, key.replace("_", " ")), shown))
    return entries


