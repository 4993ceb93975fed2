"""report.html and ours-alone.html: self-contained pages. Their contents are gathered here; report.html.j2 has their layout."""

import base64
import functools
from dataclasses import dataclass
from pathlib import Path

import jinja2

from stp_plots import words
from stp_plots.draw import closed_forms, overlap, splits, style
from stp_plots.judge import claims, memory, null_model
from stp_plots.page import tables
from stp_plots.read import records
from stp_plots.words import Table, dictionary, items, number, text

TEMPLATES = Path(__file__).resolve().parent
# What a record says of an experiment's own criteria, which ask for less than the claims.
CRITERIA = {"reproduced": "criteria met", "deviates": "criteria missed", "consistent (calibrated)": "criteria met (calibrated)", records.ALONE: "ours alone"}
TITLE, TITLE_ALONE = "Synergistic Tensor and Pipeline Parallelism: the paper and our simulations", "Simulated schedules"
OURS_ALONE = "ours-alone.html"
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


def file_word(name):
    """An experiment's id in file names."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)


def render(experiments, plots, timelines, evaluated, first=None, answers=None, other=0):
    """A page. `plots`: by experiment lists of Drawn; `timelines`: by experiment lists of (file, Drawn or None); `evaluated`: the claims;
    `first`: the first screen's plot, a Drawn; `answers`: its questions; `other`: experiments on the second page."""
    return _template().render(
        title=TITLE if evaluated else TITLE_ALONE,
        subtitle=_subtitle(experiments),
        evidence={one.evidence: EVIDENCE.get(one.evidence, "not explained in this report.") for one in experiments},
        answers=answers,
        claims=_claims(experiments, evaluated),
        first=first,
        experiments=[_experiment(one, plots.get(one.id, []), timelines.get(one.id, [])) for one in experiments],
        other={"page": OURS_ALONE, "count": words.count(other, "further experiment")} if other else None,
        provenance=_provenance(experiments),
    )


@functools.cache
def _template():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
        finalize=lambda value: value.replace(" %", "\u00a0%") if isinstance(value, str) else value
    )
    return environment.get_template("report.html.j2")


def _subtitle(experiments):
    if not experiments:
        return "No experiment was run."
    origin = dictionary(experiments[0].record.get("provenance"))
    parts = [words.count(len(experiments), "experiment"), words.count(sum(map(len, experiments)), "row")]
    parts += [f"STP suite {text(origin['version'])}"] if origin.get("version") is not None else []
    return ", ".join(parts + ([text(origin["time"])] if origin.get("time") is not None else []))


@functools.cache
def contents(experiment):
    """What the page has of an experiment besides its plots and timelines."""
    line = experiment.line
    known = [] if splits.cells(experiment) else [tables.beside(experiment, name) for name in ("throughput", "time", "mfu", "memory")]
    known = [memory.fastest(experiment), closed_forms.agreement(experiment), *known]
    titled = {"The parts of each gain": splits.ablation_table(experiment), "Times of every pair": overlap.table(experiment),
              "Acceptance criteria": tables.criteria(experiment), "Errors": tables.recorded_errors(experiment)}  # fmt: skip
    verdict, reason = text(line.get("verdict")), text(line["reason"]).replace("; see marks", "") if line.get("reason") else ""
    return {
        "title": experiment.title,
        "anchor": "experiment-" + "".join(c if c.isalnum() else "-" for c in experiment.id),
        "summary": tables.summary(experiment),
        "verdict": CRITERIA.get(verdict, verdict),
        "reason": reason if experiment.alone else "",
        "description": overlap.description(experiment) if experiment.pairs else _description(experiment),
        "rows": f"rows-{file_word(experiment.id)}.csv" if len(experiment.rows) else "",
        "tables": [(one.caption, one) for one in known if one] + [(title, one) for title, one in titled.items() if one],
    }


def _experiment(experiment, plots, timelines):
    files = [f"plot-{file_word(experiment.id)}-{drawn.plot.name}.png" for drawn in plots]
    return contents(experiment) | {"plots": plots, "files": files, "timelines": timelines}


def _description(experiment):
    description = f"{words.count(len(experiment.rows), 'row')}, {experiment.evidence}. "
    if experiment.schedules:
        description += f"{words.count(len(experiment.schedules), 'schedule')}: {', '.join(experiment.schedules)}. "
    clusters = dict.fromkeys(text(data["cluster"]) for data in experiment.rows["data"] if data.get("cluster") is not None)
    if clusters:
        description += f"{'Cluster' if len(clusters) == 1 else 'Clusters'}: {', '.join(clusters)}. "
    both = ((number(row.get("step_time_s")), number(row.get("lower_bound_s"))) for row in experiment.rows["data"])
    if gaps := [step / bound - 1 for step, bound in both if step and bound]:
        description += f"On its placement and split of layers, no schedule can gain more than {words.plain_percent(max(gaps), 1)} over a row. "
    if experiment.in_units:
        return description + "Costs are given by a table, not by a model of hardware: times have its unit and say nothing of a machine."
    return description + "In labels, s is the sequence length times the microbatch size, m the number of microbatches per step."


def _claims(experiments, evaluated):
    """The claims' section; None without any."""
    if not evaluated:
        return None
    return {
        "counts": claims.counts(evaluated),
        "verdicts": claims.VERDICTS,
        "evidence": claims.EVIDENCE,
        "table": claims.table(evaluated),
        "folded": [("Not counted: restated claims, and tests of the model on other groups’ figures", claims.table(evaluated, apart=True), ""),
                   ("Criteria", claims.criteria(evaluated), "Gains must also be within half of the mean published gain. A null model says it too if its error "
                    f"is less than {claims.MARGIN} times ours, or if it has the right direction, too."),
                   ("What the physics adds: null models", null_model.table(experiments), f"{null_model.DESCRIPTION} {null_model.beaten(experiments)}")],
    }  # fmt: skip


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
