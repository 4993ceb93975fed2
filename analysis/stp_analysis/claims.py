"""The paper's claims against experiments: value, tolerance, verdict, reason.

Claims are listed in results/claims.json; scripts/claims writes docs/claims.md, the report has them as a section.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from . import words
from .files import ReportError
from .records import QUANTITIES
from .words import dictionary

CLAIMS = Path(__file__).resolve().parents[2] / "results/claims.json"
GOOD, BAD, OPEN = "reproduced", "deviates", "not testable here"
NAMES = {quantity.key: name for name, quantity in QUANTITIES.items()}


class Fault(ReportError):
    """The claims or the records are invalid."""


@dataclass
class Claim:
    """A claim and its outcome; `reason` if it deviates or cannot be tested."""

    where: str
    claim: str
    verdict: str
    reason: str = ""
    published: str = ""
    ours: str = ""
    tolerance: str = ""
    evidence: str = ""
    command: str = ""


@dataclass
class Outcome:
    published: str
    ours: str
    tolerance: str
    met: bool
    calibrated: bool = False  # whether rows were fitted to


def _select(experiment, frame, pattern):
    """The rows whose fields are those of `pattern`."""
    rows = frame[[all(data.get(key) == value for key, value in pattern.items()) for data in frame["data"]]]
    if rows.empty:
        raise Fault(f"{experiment.id}: no row agrees with {pattern}")
    return rows


def _predicted(experiment, frame):
    rows = frame[~frame["calibrated"]]
    if rows.empty:
        raise Fault(f"{experiment.id}: nothing is predicted")
    return rows


def _span(values, unit):
    ends = sorted({f"{value:.4g}" for value in (min(values), max(values))}, key=float)
    return " to ".join(ends) + unit


def _gains(experiment, pattern):
    """The gains of the pair of schedules that the scenario names, ours and published."""
    gain = dictionary(dictionary(experiment.scenario.get("compare")).get("gain"))
    if (gain.get("of"), gain.get("over")) != (experiment.gained, experiment.baseline):
        raise Fault(f"{experiment.id}: compare.gain names no pair of its schedules")
    rows = _select(experiment, experiment.compared("gain"), pattern | {"schedule": experiment.gained})
    return rows.assign(**{field: [data.get(field) for data in rows["data"]] for field in ("model", "seq", "tp", "pp")})


def _largest(rows):
    """The row with the largest m of each configuration."""
    return rows.sort_values("microbatches").drop_duplicates(["model", "seq", "tp", "pp"], keep="last").sort_values(["tp", "pp"])


def _errors(run, experiment, check):
    del run
    name = NAMES[check["figure"]]
    quantity = QUANTITIES[name]
    rows = _predicted(experiment, _select(experiment, experiment.compared(name), check.get("rows", {})))
    error, worst = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax()]
    unit = "" if quantity.closed_form else f" {quantity.unit}"
    published, ours = (_span(quantity.scale * rows[column], unit) for column in ("published", "ours"))
    if len(rows) > 1:
        ours += f"; mean absolute error {words.plain_percent(error, 2)} over {words.count(len(rows), 'predicted row')}, maximum "
        ours += f"{words.percent(worst['error'])} ({worst['name']})"
    else:
        ours += f", {words.percent(worst['error'])}"
    tolerance = experiment.tolerance(name)
    return Outcome(published, ours, f"mean {100 * tolerance:g} %", error <= tolerance)


def _gain(run, experiment, check):
    del run
    rows = _gains(experiment, check["rows"])
    if len(rows) > 1:
        raise Fault(f"{experiment.id}: {check['rows']} names several gains")
    row, tolerance = rows.iloc[0], experiment.tolerance("gain")
    met = abs(row["error"]) <= tolerance
    return Outcome(words.plain(row["published"], 1, " %"), words.plain(row["ours"], 1, " %"), f"{tolerance:g} points", met, row["calibrated"])


def _all_gains(run, experiment, check):
    del run
    rows = _predicted(experiment, _gains(experiment, check.get("rows", {})))
    error, worst, tolerance = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax()], experiment.tolerance("gain")
    ours = f"{_span(rows['ours'], ' %')}; mean absolute error {error:.2f} points over {words.count(len(rows), 'predicted gain')}, maximum "
    ours += f"{words.signed(worst['error'])} ({worst['label']}, m {worst['m']})"
    return Outcome(_span(rows["published"], " %"), ours, f"mean {tolerance:g} points", error <= tolerance)


def _fastest(run, experiment, check):
    del run
    counts = [0, 0, 0]  # configurations, and those where it is the fastest: published, ours
    for _, group in experiment.figure("throughput").groupby(["configuration", "m"]):
        group = group.set_index("schedule")
        if check["of"] in group.index and len(group) > 1 and group["published"].notna().all():
            first = group.loc[check["of"]]
            counts[0] += 1
            counts[1] += first["published"] == group["published"].max()
            counts[2] += group["ours"].idxmax() == check["of"]
    return Outcome(f"{counts[1]} of {counts[0]}", f"{counts[2]} of {counts[0]}", "all", counts[2] == counts[0])


def _pairs(run, experiment, check):
    del run, check
    right, pairs = experiment.line["pairs_right"], experiment.line["pairs"]
    if not pairs:
        raise Fault(f"{experiment.id}: has no pairs")
    return Outcome(f"{pairs} pairs", f"{right} of {pairs} in the same order", "all", right == pairs)


def _gain_grows(run, experiment, check):
    """Larger tensor-parallel groups gain more, for the same model and sequence, at the largest m."""
    del run
    if check["with"] != "tp":
        raise Fault(f"\"with\": {check['with']} is not known; write \"tp\"")
    groups = [group for _, group in _largest(_gains(experiment, {})).groupby(["model", "seq"]) if len(group) > 1]
    texts, grows = [], []
    for column in ("published", "ours"):
        grows.append([group[column].is_monotonic_increasing and group[column].is_unique for group in groups])
        low, high = (sum(group[column].iloc[end] for group in groups) / len(groups) for end in (0, -1))
        texts.append(f"{sum(grows[-1])} of {len(groups)}; mean {low:.1f} % against {high:.1f} %")
    return Outcome(*texts, "all", all(grows[1]))


def _gain_less(run, experiment, check):
    """Gains of this experiment are below those of another, where both have the configuration; largest m."""
    key = ["model", "seq", "tp", "pp"]
    here, there = (_largest(_gains(run[name], {})).set_index(key) for name in (experiment.id, check["than"]))
    both = here.join(there, how="inner", rsuffix="_there", sort=True)
    if both.empty:
        raise Fault(f"{experiment.id} and {check['than']} have no configuration in common")
    texts = ["; ".join(f"{row[column]:.1f} % for {row[column + '_there']:.1f} % (TP{tp} PP{pp})" for (_, _, tp, pp), row in both.iterrows())
            for column in ("published", "ours")]  # fmt: skip
    calibrated = bool((both["calibrated"] | both["calibrated_there"]).any())
    return Outcome(*texts, "each less", bool((both["ours"] < both["ours_there"]).all()), calibrated)


def _overlap(run, experiment, check):
    """The time together of pairs, predicted from the published times alone and the profile's contention."""
    del run, check
    pairs = [pair for pair in experiment.pairs if pair["from_published_times"]]
    if not pairs:
        raise Fault(f"{experiment.id}: no times are published")
    tolerance = experiment.line["marks"][0]["tolerance"]
    theirs, ours = (
        " and ".join(f"{1e3 * pair[key]['together_s']:.3f}" for pair in pairs) + " ms" for key in ("published", "from_published_times")
    )
    worst = max(pairs, key=lambda pair: abs(pair["from_published_times"]["together_error"]))
    error = worst["from_published_times"]["together_error"]
    text = f"{ours}; maximum error {words.percent(error)} ({worst['name']})"
    return Outcome(theirs, text, f"each {100 * tolerance:g} %", abs(error) <= tolerance, bool(experiment.scenario.get("calibrated")))


CHECKS = {"errors": _errors, "gain": _gain, "gains": _all_gains, "fastest": _fastest, "pairs": _pairs, "gain_grows": _gain_grows,
          "gain_less": _gain_less, "overlap": _overlap}  # fmt: skip


def of_experiments(experiments):
    """The claims about these experiments, for their report; none if there are none about them."""
    known = json.loads(CLAIMS.read_text(encoding="utf-8"))["claims"] if CLAIMS.is_file() else []
    if not {claim.get("scenario") for claim in known} & {one.id for one in experiments}:
        return []
    found = []
    for claim in known:
        try:
            found += evaluate(experiments, [claim], strict=False)
        except (Fault, KeyError, TypeError):
            continue  # a record with the name of a suite's scenario, but of another one
    return found


def evaluate(experiments, claims, strict=True):
    """Every claim whose scenarios are there. If strict, Fault if one deviates and the list gives no reason."""
    run, found = {one.id: one for one in experiments}, []
    for claim in claims:
        where, statement = claim["where"], claim["claim"]
        if "not_testable" in claim:
            found.append(Claim(where, statement, OPEN, claim["not_testable"]))
            continue
        name, check = claim["scenario"], claim["check"]
        if not {name, check.get("than", name)} <= run.keys():
            continue
        outcome = CHECKS[check["kind"]](run, run[name], check)
        if strict and not outcome.met and not claim.get("because"):
            raise Fault(f'"{statement}" deviates, and results/claims.json does not say why; add "because"')
        found.append(
            Claim(where, statement, GOOD if outcome.met else BAD, "" if outcome.met else claim.get("because", "no reason is known"),
                  outcome.published, outcome.ours, outcome.tolerance,
                  run[name].evidence + (", in part calibrated" if outcome.calibrated else ""),
                  f"stp reproduce {name}" + (f" {check['than']}" if "than" in check else ""))
        )  # fmt: skip
    return found
