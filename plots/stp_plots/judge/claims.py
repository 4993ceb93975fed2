"""The paper's claims against experiments: verdict, evidence, reason.

Claims are listed in results/claims.json; scripts/pages writes docs/claims.md, the report has them as a section.
"""

import itertools
import json
from dataclasses import dataclass

from stp_plots import words
from stp_plots.files import ROOT, ReportError
from stp_plots.judge import measurements, null_model
from stp_plots.read.records import QUANTITIES
from stp_plots.words import Table, dictionary, items, number

CLAIMS = ROOT / "results/claims.json"
HOLDS, DIRECTION, UNDECIDED, CONTRADICTED = "holds", "direction holds, size differs", "cannot be decided", "contradicted"
VERDICTS = {
    HOLDS: "every criterion is met, that for the worst row too",
    DIRECTION: "a criterion is missed; but signs, and the order of figures further apart than a row may err, are the paper's",
    UNDECIDED: "a criterion is missed, perhaps by our own error or by what the paper leaves open; or nothing can be compared",
    CONTRADICTED: "a count of ours, which has no error, says otherwise",
}
PREDICTED, COUNTED, CALIBRATED, SETTLED, NULL_TOO = (
    "predicted", "counted", "calibrated", "settled by its own rows", "a null model says it too")  # fmt: skip
EVIDENCE = {
    CALIBRATED: "values were fitted to some of these rows",
    SETTLED: "these rows decided a choice of the model",
    NULL_TOO: "calibrated rows say as much without a simulation",
    PREDICTED: "nothing was fitted to these rows",
    COUNTED: "from an order alone, without a model of hardware",
}
EVERY = "order, sign or fit: every one"
WORST = 3  # a worst row may be this many times the mean's tolerance off, where the summary says nothing else
NAMES = {quantity.key: name for name, quantity in QUANTITIES.items()}
# How much larger the mean error of the better null model must be than ours for a claim to be the simulation's own: less is within
# chance here.
MARGIN = 1.5
# The mean error of gains over the mean published gain: with more, points that sound few are most of what is claimed.
MOST_OF_GAIN = 0.5


class Fault(ReportError):
    """The claims or the records are invalid."""


@dataclass
class Claim:
    """A claim and its outcome. `reason`: why a criterion is missed, or why nothing is compared. `apart`: why it is not counted; "test" is
    one of the model, on another group's figures."""

    where: str
    claim: str
    verdict: str
    evidence: str = words.NONE
    reason: str = ""
    published: str = words.NONE
    ours: str = words.NONE
    criteria: str = ""
    apart: str = ""
    scenario: str = ""
    key: str = ""

    @property
    def why(self):
        """Evidence, and the reasons that there are, in one line."""
        known = self.evidence if self.evidence != words.NONE else ""
        return ". ".join(part[0].upper() + part[1:] for part in (known, self.reason, self.apart) if part not in ("", "test"))


@dataclass
class Outcome:
    """`direction`: whether the sign or the order is the published one; None where there is none to compare. `null_too`: whether a null
    model meets the criteria as well, or nearly; `null_direction`: whether it has the direction."""

    published: str
    ours: str
    criteria: str
    met: bool
    direction: bool = None
    calibrated: bool = False  # whether the verdict rests on rows that were fitted to
    null_too: bool = False
    null_direction: bool = False


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


def _span(values, unit, digits=".3g"):
    """The ends of a range, with the three digits that the paper has."""
    ends = sorted({f"{value:{digits}}" for value in (min(values), max(values))}, key=float)
    return " to ".join(ends) + unit


def _gains(experiment, pattern):
    """The gains of the pair of schedules that the scenario names, ours and published; of another schedule if `pattern` names one."""
    gain = dictionary(dictionary(experiment.scenario.get("compare")).get("gain"))
    if (gain.get("of"), gain.get("over")) != (experiment.gained, experiment.baseline):
        raise Fault(f"{experiment.id}: compare.gain names no pair of its schedules")
    rows = _select(experiment, experiment.compared("gain"), {"schedule": experiment.gained} | pattern)
    return rows.assign(**{field: [data.get(field) for data in rows["data"]] for field in ("model", "seq", "tp", "pp")})


def _largest(rows):
    """The row with the largest m of each configuration."""
    return rows.sort_values("microbatches").drop_duplicates(["model", "seq", "tp", "pp"], keep="last").sort_values(["tp", "pp"])


def _same_order(rows, apart, column="ours"):
    """Whether all pairs of rows whose published figures are further `apart` have their order in a column too; None without such pairs."""
    pairs = [(one[0] - two[0]) * (one[1] - two[1]) > 0 for one, two in itertools.combinations(zip(rows["published"], rows[column]), 2)
             if abs(one[0] - two[0]) > apart * min(one[0], two[0])]  # fmt: skip
    return all(pairs) if pairs else None


def _same_sign(rows, column="ours"):
    return bool((rows["published"] * rows[column] > 0).all())


def _worst_tolerance(experiment, name):
    for criterion in map(dictionary, items(experiment.line.get("marks"))):
        if name in ("throughput", "mfu", "time") and criterion.get("mark") == "throughput_error_worst":
            return criterion["tolerance"]
    return WORST * experiment.tolerance(name)


def _errors(run, experiment, check):
    del run
    name = NAMES[check["figure"]]
    quantity = QUANTITIES[name]
    rows = _predicted(experiment, _select(experiment, experiment.compared(name), check.get("rows", {})))
    if check.get("without_contradictions"):
        rows = rows[~measurements.contradicting(rows)]
    error, worst = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax(), "error"]
    unit = " units" if experiment.unit_costs and quantity.unit == "s" else f" {quantity.unit}"
    published, ours = (_span(quantity.scale * rows[column], unit) for column in ("published", "ours"))
    mean, most = experiment.tolerance(name), _worst_tolerance(experiment, name)
    criteria = f"{quantity.title}: {100 * mean:.3g} % ({100 * most:.3g})"
    if len(rows) == 1:
        return Outcome(published, f"{ours} ({words.percent(worst)})", criteria, bool(error <= mean))
    found = Outcome(published, f"{words.plain_percent(error, 2)} off, worst {words.percent(worst)}, {len(rows)} rows", criteria,
                    bool(error <= mean and abs(worst) <= most), _same_order(rows, most))  # fmt: skip
    of_null = "throughput" if name == "mfu" else name
    if of_null in ("throughput", "memory") and "rows" not in check and null_model.has(experiment, of_null):
        beside = null_model.errors(experiment, of_null)
        kind = null_model.better(beside)
        found.null_too = bool(beside[f"{kind}_error"].abs().mean() < MARGIN * error)
        found.null_direction = bool(_same_order(beside, most, kind))
    return found


def _size_of_gains(experiment, errors, published):
    """What every claim about the size of gains is held to, points and a share of the published gains: (points, whether it is met)."""
    tolerance = experiment.tolerance("gain")
    most = min(tolerance, MOST_OF_GAIN * published.abs().mean())
    return f"gain: {tolerance:.3g} points ({WORST * tolerance:.3g})", bool(errors.abs().mean() <= most)


def _gain(run, experiment, check):
    rows = _gains(experiment, check["rows"])
    if len(rows) > 1:
        raise Fault(f"{experiment.id}: {check['rows']} names several gains")
    row = rows.iloc[0]
    criteria, met = _size_of_gains(experiment, rows["error"], rows["published"])
    published, ours = (words.plain(row[column], 1, " %") for column in ("published", "ours"))
    direction = _same_sign(rows)
    if "spans" in check:  # what the paper leaves open decides, if the published gain is among ours over it
        over = _gains(run[check["spans"]["scenario"]], check["spans"]["rows"])["ours"]
        ours = f"{_span(over, ' %', '.1f')} over {len(over)} splits ({ours} as assumed)"
        direction = None if over.min() <= row["published"] <= over.max() else direction
    return Outcome(published, ours, criteria, met, direction, row["calibrated"])


def _all_gains(run, experiment, check):
    """The predicted gains of a schedule, by default the one in question: their mean error and their worst row."""
    del run
    of = check.get("of", experiment.gained)
    rows = _predicted(experiment, _gains(experiment, {"schedule": of}))
    error, worst = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax(), "error"]
    most = WORST * experiment.tolerance("gain")
    criteria, met = _size_of_gains(experiment, rows["error"], rows["published"])
    published, ours = (_span(rows[column], " %", ".1f") for column in ("published", "ours"))
    spread = f"{error:.2f} points off, worst {words.signed(worst)}, {len(rows)} rows" if len(rows) > 1 else f"{words.signed(worst)} points"
    found = Outcome(published, f"{ours}; {spread}", criteria, met and bool(abs(worst) <= most), _same_sign(rows))  # fmt: skip
    if null_model.has(experiment):
        beside = null_model.gain_errors(experiment, of)
        kind = null_model.better(beside)
        found.null_too = bool(beside[f"{kind}_error"].abs().mean() < MARGIN * error)
        found.null_direction = _same_sign(beside, kind)
    return found


def _faster(run, experiment, check):
    """Where one schedule is faster than the baseline in the paper, it is here; and the size of its gains."""
    found, every = _all_gains(run, experiment, check), _gains(experiment, {"schedule": check["of"]})
    ties = (every["published"] == 0).sum()
    right = (every["published"] * every["ours"] > 0).sum()
    published, ours = (f"{(every[column] > 0).sum()} of {len(every)}" for column in ("published", "ours"))
    found.direction = bool(right == len(every) - ties)
    found.published = published + (f" ({words.count(ties, 'tie')})" if ties else "")
    found.ours = f"{ours}; as published in {right} of {len(every) - ties}"
    found.met = found.met and found.direction
    return found


def _fastest(run, experiment, check):
    """Of every configuration at every m without calibrated rows."""
    del run
    configurations, theirs, ours, known = 0, 0, 0, 0
    has, nulls = null_model.has(experiment), dict.fromkeys(null_model.NAMES, 0)
    carried = null_model.throughputs(experiment) if has else experiment.figure("throughput").assign(**nulls)
    for _, group in carried.groupby(["configuration", "m"]):
        group = group.set_index("schedule")
        if check["of"] not in group.index or len(group) < 2 or group["published"].isna().any():
            continue
        known += 1
        theirs += group["published"].idxmax() == check["of"]
        if group["calibrated"].any():
            continue
        configurations += 1
        ours += group["ours"].idxmax() == check["of"]
        for kind in nulls:
            nulls[kind] += has and group[kind].idxmax() == check["of"]
    if not configurations:
        raise Fault(f"{experiment.id}: nothing is predicted")
    return Outcome(f"{theirs} of {known}", f"{ours} of {configurations} predicted", EVERY, ours == configurations,
                   null_too=max(nulls.values()) == configurations)  # fmt: skip


def _pairs(run, experiment, check):
    del run, check
    count = null_model.pairs(experiment)
    if not count.far:
        raise Fault(f"{experiment.id}: has no pairs")
    closer = count.total - count.calibrated - count.far
    ours = f"{count.far_right} of {count.far} in that order" + (f"; of {closer} closer ones {count.near_right}" if closer else "")
    return Outcome(f"{count.far} pairs", ours, EVERY, count.far_right == count.far,
                   null_too=count.far in (*count.far_null.values(), count.far_constant))  # fmt: skip


def _order(run, experiment, check):
    """Configurations of one model are in the published order."""
    del run, check
    right, pairs = measurements.order(experiment)
    return Outcome(f"{pairs} pairs of one model", f"{right} of {pairs} in that order", EVERY, right == pairs)


def _gain_grows(run, experiment, check):
    """Larger tensor-parallel groups gain more, for the same model and sequence, at the largest m; groups with a calibrated row
    are left out."""
    del run
    if check["with"] != "tp":
        raise Fault(f"\"with\": {check['with']} is not known; write \"tp\"")
    groups = [group for _, group in _largest(_gains(experiment, {})).groupby(["model", "seq"]) if len(group) > 1]
    predicted = [group for group in groups if not group["calibrated"].any()]
    if not predicted:
        raise Fault(f"{experiment.id}: nothing is predicted")

    def grows(gains):
        return gains.is_monotonic_increasing and gains.is_unique

    texts = []
    for column in ("published", "ours"):
        ends = [sum(group[column].iloc[end] for group in predicted) / len(predicted) for end in (0, -1)]
        right = sum(grows(group[column]) for group in predicted)
        texts.append(f"{right} of {len(predicted)}; means {ends[0]:.1f} and {ends[1]:.1f} %")
    nulls = null_model.gain_errors(experiment, experiment.gained)[list(null_model.NAMES)] if null_model.has(experiment) else {}
    return Outcome(*texts, EVERY, all(grows(group["ours"]) for group in predicted),
                   null_too=any(all(grows(nulls[kind][group.index]) for group in predicted) for kind in nulls))  # fmt: skip


def _gain_less(run, experiment, check):
    """Gains of this experiment are below those of another, where both have the configuration; largest m."""
    key = ["model", "seq", "tp", "pp"]
    here, there = (_largest(_gains(run[name], {})).set_index(key) for name in (experiment.id, check["than"]))
    both = here.join(there, how="inner", rsuffix="_there", sort=True)
    if both.empty:
        raise Fault(f"{experiment.id} and {check['than']} have no configuration in common")
    texts = ["; ".join(f"{row[column]:.1f} against {row[column + '_there']:.1f} % (TP{tp} PP{pp})" for (_, _, tp, pp), row in both.iterrows())
            for column in ("published", "ours")]  # fmt: skip
    less = {column: both[column + "_there"] - both[column] for column in ("published", "ours")}
    errors, tolerance, direction = less["ours"] - less["published"], experiment.tolerance("gain"), bool((less["ours"] > 0).all())
    met = _size_of_gains(experiment, errors, less["published"])[1]
    return Outcome(*texts, f"difference of gains: {tolerance:.3g} points ({tolerance:.3g})", bool(direction and met and errors.abs().max() <= tolerance),
                   direction, bool((both["calibrated"] | both["calibrated_there"]).any()))  # fmt: skip


def _fits(run, experiment, check):
    """Rows fit into memory, or do not, as the paper says."""
    del run, check
    known = [(data["memory_margin_gb"], data["published"]["fits"]) for data in experiment.rows["data"]
             if "fits" in dictionary(data.get("published")) and number(data.get("memory_margin_gb")) is not None]  # fmt: skip
    if not known:
        raise Fault(f"{experiment.id}: of no row is it known whether it fits")
    wrong = [f"; wrong by {abs(margin):.1f} GB" for margin, fits in known if (margin >= 0) != fits]
    fit = sum(fits for _, fits in known)
    return Outcome(f"{fit} fit, {len(known) - fit} do not", f"{len(known) - len(wrong)} of {len(known)}" + "".join(wrong), EVERY, not wrong)


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
    error = max(abs(pair["from_published_times"]["together_error"]) for pair in pairs)
    return Outcome(theirs, ours, f"time together: {100 * tolerance:g} % ({100 * tolerance:g})", error <= tolerance, calibrated=bool(experiment.scenario.get("calibrated")))


CHECKS = {"errors": _errors, "gain": _gain, "gains": _all_gains, "fastest": _fastest, "faster": _faster, "pairs": _pairs, "order": _order,
          "gain_grows": _gain_grows, "gain_less": _gain_less, "overlap": _overlap, "fits": _fits}  # fmt: skip


def _judged(outcome, counted, settled):
    """Verdict and evidence. A simulated figure of a GPU that nobody measured contradicts nothing: its own error is not known. A count
    has none."""
    verdict = HOLDS if outcome.met else DIRECTION if outcome.direction else CONTRADICTED if counted else UNDECIDED
    null_too = {HOLDS: outcome.null_too, DIRECTION: outcome.null_direction}.get(verdict, False)
    known = {CALIBRATED: outcome.calibrated, SETTLED: settled, NULL_TOO: null_too, COUNTED: counted}
    return verdict, next((name for name, holds in known.items() if holds), PREDICTED)


def of_experiments(experiments):
    """The claims about these experiments, for their report; none if there are none about them."""
    known = listed("claims")
    if not {claim.get("scenario") for claim in known} & {one.id for one in experiments}:
        return []
    found = []
    for claim in known:
        try:
            found += evaluate(experiments, [claim], strict=False)
        except (Fault, KeyError, TypeError):
            continue  # a record with the name of a suite's scenario, but of another one
    return found if any(one.scenario for one in found) else []


def evaluate(experiments, claims, strict=True):
    """Every claim whose scenarios are there. If strict, Fault if one misses a criterion and the list gives no reason."""
    run, found = {one.id: one for one in experiments}, []
    for claim in claims:
        statement = claim["claim"] + (f" (assumed: {claim['assumed']})" if "assumed" in claim else "")
        if "not_testable" in claim:
            found.append(Claim(claim["where"], statement, UNDECIDED, reason=claim["not_testable"]))
            continue
        name, check = claim["scenario"], claim["check"] | {key: claim[key] for key in ("spans",) if key in claim}
        if not {name, check.get("than", name), dictionary(check.get("spans")).get("scenario", name)} <= run.keys():
            continue
        outcome = CHECKS[check["kind"]](run, run[name], check)
        if strict and not outcome.met and not claim.get("because"):
            raise Fault(f'"{statement}" misses a criterion, and results/claims.json does not say why; add "because"')
        counted = run[name].unit_costs and not run[name].rows.empty
        verdict, evidence = _judged(outcome, counted, claim.get("settled_by_its_rows", False))
        reason = "" if outcome.met else claim.get("because", "no reason is known")
        found.append(Claim(claim["where"], statement, verdict, evidence, reason, outcome.published, outcome.ours, outcome.criteria,
                           claim.get("apart", ""), name, claim.get("key", "")))  # fmt: skip
    return found


def listed(key):
    """A list of results/claims.json: `claims`, or `not_compared`, the paper's other tables and figures."""
    return json.loads(CLAIMS.read_text(encoding="utf-8"))[key] if CLAIMS.is_file() else []


def table(evaluated, apart=False):
    """The claims in five columns: those that count, or those apart."""
    rows = [[f"{one.where}: {one.claim}", one.published, one.ours, one.verdict, one.why] for one in evaluated if bool(one.apart) == apart]
    return Table(["claim", "published", "ours", "verdict", "evidence; reason"], rows)


def criteria(evaluated):
    """Which criteria are whose: what each figure is held to, and the tables and figures with such claims."""
    whose = {}
    for one in evaluated:
        if one.criteria:
            whose.setdefault(one.criteria, {})[one.where] = None
    return Table(["mean error (worst) of predicted rows, at most", "claims of"], [[text, "; ".join(places)] for text, places in whose.items()])


def counts(evaluated):
    """How many of the claims that count have each verdict, in words; and of those that hold, how many do by what evidence."""
    own = [one for one in evaluated if not one.apart]
    verdicts, evidence = [one.verdict for one in own], [one.evidence for one in own if one.verdict == HOLDS]
    said = {HOLDS: "hold", DIRECTION: "hold in direction but not in size", UNDECIDED: "cannot be decided", CONTRADICTED: "contradicted"}
    parts = ", ".join(f"{verdicts.count(kind)} {word}" for kind, word in said.items())
    strength = ", ".join(f"{kind} {evidence.count(kind)}" for kind in EVIDENCE if kind in evidence)
    return f"Of {words.count(len(own), 'claim')} of the paper {parts}. Evidence of those that hold: {strength or 'none'}."
