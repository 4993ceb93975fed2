"""The pages of docs that state figures: what their templates can ask of records."""

import functools
import re
from dataclasses import dataclass

import jinja2
import pandas as pd

from stp_plots import words
from stp_plots.draw import splits
from stp_plots.files import ROOT, ReportError, read_json
from stp_plots.judge import claims, measurements, memory, null_model, suggestions
from stp_plots.page import markdown
from stp_plots.read.records import CONFIGURATION, TIMES

TEMPLATES = ROOT / "docs/templates"
ANSWERS = ROOT / "results/answers.json"
README_BLOCK = ("<!-- answers: written by scripts/pages -->\n", "<!-- end of answers -->")
YES = {claims.HOLDS: "Yes", claims.DIRECTION: "In direction, not in size", claims.UNDECIDED: "Cannot be decided", claims.CONTRADICTED: "No",
       claims.FITTED: "Fitted to"}
THROUGHPUT = "throughput_samples_per_s"
SAME = (*CONFIGURATION, "microbatches", "sequence_parallel", "schedule")  # of rows that a gain compares


def names():
    """The pages that have a template."""
    return [str(path.relative_to(TEMPLATES)).removesuffix(".md.j2") for path in sorted(TEMPLATES.rglob("*.md.j2"))]


def gain(of, over, key=THROUGHPUT):
    """Of one row over another, or of their published figures, per cent."""
    return words.gain(of[key], over[key])


def bubbles(row):
    """TP and PP bubble of the rank that computes most, per cent of the step."""
    return [100 * share for share in words.bubbles([[rank[key] for key in TIMES] for rank in row["ranks"]])]


def model(name):
    """12.1B of llm-12.1b."""
    return name.rpartition("-")[2].upper()


def schedule(name):
    return {"dhelix": "DHelix", "1f1b-i-braided": "1F1B-I braided"}.get(name, name.upper())


@dataclass
class Errors:
    """Errors of rows, in per cent or points."""

    values: pd.Series
    unit: str

    count = property(lambda self: len(self.values))
    mean = property(lambda self: words.plain(self.values.abs().mean(), 2, self.unit))
    largest = property(lambda self: words.signed(self.values[self.values.abs().idxmax()], 1, self.unit))


class Records:
    """Experiments as templates see them, with the kept files beside them. `evaluate` gives the claims about them; few pages ask."""

    def __init__(self, experiments, evaluate):
        self.experiments, self.evaluate = experiments, evaluate
        self.run = {one.id: one for one in experiments}

    @functools.cached_property
    def evaluated(self):
        return self.evaluate()

    def claim(self, key):
        return next(one for one in self.evaluated if one.key == key)

    def yes(self, key):
        """The verdict of a claim as an answer to a question."""
        return YES[self.claim(key).verdict]

    def rows(self, name, /, **where):
        """The rows of an experiment that have these values, or one of a list of values."""
        return [data for data in self.run[name].rows["data"] if words.agrees(data, where)]

    def row(self, name, /, **where):
        found = self.rows(name, **where)
        if len(found) != 1:
            raise ReportError(f"{name}: {len(found)} rows agree with {where}, where a page needs one")
        return found[0]

    def errors(self, name, figure, /, calibrated=False, **where):
        """Against published figures, of rows that were not fitted to; of all if `calibrated` is None."""
        frame = self.run[name].compared(figure)
        keep = [words.agrees(row.data, where) and calibrated in (None, row.calibrated) for row in frame.itertuples()]
        values = frame["error"][keep]
        if values.empty:
            raise ReportError(f"{name}: no row has an error of {figure} that agrees with {where}")
        return Errors(values, " points") if figure == "gain" else Errors(100 * values, " %")

    def gains(self, name, of, over):
        """Of every row like `of` over the fastest row like `over` that has the same place, per cent."""
        others = self.rows(name, **over)
        found = []
        for data in self.rows(name, **of):
            place = {field: data.get(field) for field in SAME if field not in over}
            base = max((one[THROUGHPUT] for one in others if words.agrees(one, place)), default=None)
            found += [gain(data, {THROUGHPUT: base})] if base else []
        return found

    def null(self, name, figure, new=False, of="stp", over=None):
        """Ours and the better null model over the same predicted rows: `ours`, `null`, and in how many `nearer` is ours."""
        rows = null_model.gain_errors(self.run[name], of, over) if figure == "gain" else null_model.errors(self.run[name], figure)
        rows = rows[rows["new"]] if new else rows
        scale, unit = (1, " points") if figure == "gain" else (100, " %")
        ours, theirs = (Errors(scale * rows[column], unit) for column in ("error", f"{null_model.better(rows)}_error"))
        return {"ours": ours, "null": theirs, "nearer": int(null_model.nearer(rows)), "count": len(rows), "distinct": rows["ours"].nunique()}

    @functools.cached_property
    def ablation(self):
        """The variants of scripts/ablation."""
        return read_json(ROOT / "results/reference/ablation.json")["variants"]

    def variant(self, word):
        return next(one for one in self.ablation if word in one["variant"])

    def published(self, name):
        """A file of other authors' figures."""
        return read_json(ROOT / f"results/published/{name}.json")

    @functools.cached_property
    def replayed(self):
        """The rows of scripts/replayed by links and falling TP, then by schedule."""
        rows = read_json(ROOT / "results/reference/gpu-h200/predicted.json")["rows"]
        found = {}
        for row in sorted(rows, key=lambda row: (row["links"], -row["tp"])):
            found.setdefault((row["links"], row["tp"]), {})[row["schedule"]] = row
        return found

    def replayed_error(self, key, over="replayed_s", schedules=("1f1b-i", "zb-v", "stp")):
        return Errors(pd.Series([100 * (rows[name][key] / rows[name][over] - 1) for rows in self.replayed.values() for name in schedules]), " %")

    @functools.cached_property
    def searches(self):
        """The cases of scripts/splits."""
        return read_json(ROOT / "results/reference/splits.json")["cases"]

    def slower(self, name, kind, than="best"):
        """By how much a split is slower than another, per cent, over the searched cases of a schedule that have both."""
        found = [case["schedules"][name] for case in self.searches]
        return [100 * (one[kind]["step_time_s"] / one[than]["step_time_s"] - 1) for one in found if kind in one and than in one]

    def answers(self, strict=True):
        """The first screen's questions and what the paper does not say, each with its answer, and what they rest on. Unless strict, those
        that these experiments cannot answer are left out."""
        asked, environment, values = read_json(ANSWERS), _environment(), self._values()
        found = {"rests": asked["rests"], "terms": asked["terms"]}
        for part in ("questions", "beyond"):
            found[part] = []
            for one in asked[part]:
                try:
                    found[part].append([one["question"], environment.from_string(one["answer"]).render(**values)])
                except (KeyError, StopIteration, ValueError, ReportError, jinja2.UndefinedError):
                    if strict:
                        raise
        return found

    def _values(self):
        values = {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name not in ("answers", "render")}
        return values | {"records": self, "gain": gain, "bubbles": bubbles, "table": markdown.table, "claims": claims, "null_model": null_model,
                         "measurements": measurements, "memory": memory, "splits": splits,
                         "suggestions": suggestions}  # fmt: skip

    def render(self, page):
        if page not in names():
            raise ReportError(f"{page}: is no page with a template; there are {', '.join(names())}")
        text = _environment().get_template(f"{page}.md.j2").render(**self._values())
        return f"<!-- Written by scripts/pages from docs/templates/{page}.md.j2 -->\n{_of_numbers(page, markdown.wrapped(text))}"

    def readme(self, text):
        """The README with its first screen's answers as the records have them."""
        before, _, rest = text.partition(README_BLOCK[0])
        _, end, after = rest.partition(README_BLOCK[1])
        if not end:
            raise ReportError(f"README.md: has no {README_BLOCK[0].strip()}")
        found = self.answers()
        block = f"{markdown.wrapped(found['rests'] + ' ' + found['terms'])}\n{markdown.table(['question', 'answer'], found['questions'])}\n"
        return f"{before}{README_BLOCK[0]}{_of_numbers('README', block)}{end}{after}"


def _of_numbers(page, text):
    """The text, unless a figure in it is none, as the mean over no rows is."""
    for line in text.splitlines():
        if re.search(r"\bnan\b", line):
            raise ReportError(f"{page}: has a figure that is no number, in {line.strip()}; leave out what has no rows")
    return text


@functools.cache
def _environment():
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)  # fmt: skip
    environment.filters.update(total_gb=memory.total_gb, bubbles=bubbles, signed=words.signed, plain=words.plain, magnitude=words.magnitude,
                               percent=words.percent, span=words.span, model=model, schedule=schedule, cell=markdown.cell,
                               mean=lambda values: sum(values) / len(values))  # fmt: skip
    return environment
