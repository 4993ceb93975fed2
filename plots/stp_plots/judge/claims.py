"""The paper's claims against experiments: verdict, evidence, reason.

Claims are listed in results/claims.json; scripts/pages writes docs/claims.md, the report has them as a section.
"""

import itertools
from dataclasses import dataclass, replace

import pandas as pd

from stp_plots import words
from stp_plots.files import ROOT, ReportError, read_json
from stp_plots.judge import left_open, measurements, memory, null_model
from stp_plots.read.records import QUANTITIES
from stp_plots.words import Table, dictionary, items, number

CLAIMS = ROOT / "results/claims.json"
HOLDS, DIRECTION, UNDECIDED, CONTRADICTED, FITTED = "holds", "direction only", "undecided", "contradicted", "fitted"
VERDICTS = {
    HOLDS: "all criteria are met, also the one for the worst row",
    DIRECTION: "a criterion is missed, but all signs agree with the paper, and so does the order of any two figures that differ by "
               "more than the error allowed for a row. These rows were not used to choose the model",
    UNDECIDED: "a criterion is missed, perhaps by our own error or by what the paper leaves open; or nothing can be compared",
    CONTRADICTED: "we count something else than the paper, and the paper says exactly how it counts; a count has no model error",
    FITTED: "all its rows were fitted to: it tests nothing",
}
PREDICTED, COUNTED, CALIBRATED, SHAPED, NULL_TOO = (
    "predicted", "counted", "calibrated", "shaped the model", "no more than a null model")  # fmt: skip
EVIDENCE = {
    CALIBRATED: "values were fitted to some of these rows",
    SHAPED: "these rows decided a choice of the model",
    NULL_TOO: "a simple rule (published figures of calibrated rows, or a sum of measured times) says the same without a simulation",
    PREDICTED: "nothing was fitted to these rows, and they decided no choice",
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
    one of the model, on another group's figures. `exact`: whether it could be contradicted."""

    where: str
    claim: str
    verdict: str
    evidence: str = words.NONE
    null_too: bool = False
    shaped: bool = False
    exact: bool = False
    rows: int = 0
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
        known = [self.evidence] if self.evidence != words.NONE else []
        known += [NULL_TOO] if self.null_too and self.evidence != NULL_TOO else []
        return ". ".join(part[0].upper() + part[1:] for part in (*known, self.reason, self.apart) if part not in ("", "test"))


@dataclass
class Outcome:
    """`direction`: whether the sign or the order is the published one; None where there is none to compare. `null_too`: whether a null
    model meets the criteria as well, or nearly; `null_direction`: whether it has the direction."""

    published: str
    ours: str
    criteria: str
    met: bool
    direction: bool = None
    rows: int = 1
    calibrated: bool = False  # whether the verdict rests on rows that were fitted to
    fitted: bool = False  # whether on no others
    null_too: bool = False
    null_direction: bool = False


def _select(experiment, frame, pattern):
    """The rows whose fields are those of `pattern`."""
    rows = frame[[words.agrees(data, pattern) for data in frame["data"]]]
    if rows.empty:
        raise Fault(f"{experiment.id}: no row agrees with {pattern}")
    return rows


def _predicted(experiment, frame):
    rows = frame[~frame["calibrated"]]
    if rows.empty:
        raise Fault(f"{experiment.id}: nothing is predicted")
    return rows


def _gains(experiment, pattern, over=None):
    """The gains of the pair of schedules that the scenario names, ours and published; of another schedule if `pattern` names one, and
    `over` another."""
    asked = experiment.asked_gain
    if (asked.get("of"), asked.get("over")) != (experiment.gained, experiment.baseline):
        raise Fault(f"{experiment.id}: compare.gain names no pair of its schedules")
    known = experiment.gains_over(experiment.gained, over).dropna(subset=["error"]) if over else experiment.compared("gain")
    rows = _select(experiment, known, {"schedule": experiment.gained} | pattern)
    return rows.assign(**{field: [data.get(field) for data in rows["data"]] for field in ("model", "seq", "tp", "pp")})


def _largest(rows):
    """The row with the largest m of each configuration."""
    return rows.sort_values("microbatches").drop_duplicates(["model", "seq", "tp", "pp"], keep="last").sort_values(["tp", "pp"])


def _same_order(rows, apart, column="ours", points=False):
    """Whether all pairs of rows whose published figures are further `apart`, relatively or in points, have their order in a column too;
    None without such pairs."""
    pairs = [(one[0] - two[0]) * (one[1] - two[1]) > 0 for one, two in itertools.combinations(zip(rows["published"], rows[column]), 2)
             if abs(one[0] - two[0]) > apart * (1 if points else min(one[0], two[0]))]  # fmt: skip
    return all(pairs) if pairs else None


def _same_gains(rows, most, column="ours"):
    """Whether gains, of which a row may err by `most` points, have the published signs and order."""
    return bool((rows["published"] * rows[column] > 0).all()) and _same_order(rows, most, column, points=True) is not False


def _worst_tolerance(experiment, name):
    for criterion in map(dictionary, items(experiment.line.get("marks"))):
        if name in ("throughput", "mfu", "time") and criterion.get("mark") == "throughput_error_worst":
            return criterion["tolerance"]
    return WORST * experiment.tolerance(name)


def _errors(_run, experiment, check):
    name = NAMES[check["figure"]]
    quantity = QUANTITIES[name]
    rows = _predicted(experiment, _select(experiment, experiment.compared(name), check.get("rows", {})))
    error, worst = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax(), "error"]
    unit = " units" if experiment.in_units and quantity.unit == "s" else f" {quantity.unit}"
    published, ours = (words.span(quantity.scale * rows[column], None, unit) for column in ("published", "ours"))
    mean, most = experiment.tolerance(name), _worst_tolerance(experiment, name)
    criteria = f"{quantity.title}: {100 * mean:.3g} % ({100 * most:.3g})"
    if len(rows) == 1:
        return Outcome(published, f"{ours} ({words.percent(worst)})", criteria, bool(error <= mean))
    # A count has no direction: a closed form in p is it, or is not, and any other one grows with p too.
    direction = None if name == "chunks" else _same_order(rows, most)
    found = Outcome(published, _halves(rows) if name == "idle" else f"{words.plain_percent(error, 2)} off, worst {words.percent(worst)}, {len(rows)} rows",
                    criteria, bool(error <= mean and abs(worst) <= most), direction, len(rows))  # fmt: skip
    of_null = "throughput" if name == "mfu" else name
    beside = None
    if of_null in ("throughput", "memory") and "rows" not in check and null_model.has(experiment, of_null):
        beside = null_model.errors(experiment, of_null)
    elif name == "time" and experiment.unit_costs:
        beside = null_model.passes(experiment)
    if beside is not None:
        kind = null_model.better(beside)
        found.null_too = bool(beside[f"{kind}_error"].abs().mean() < MARGIN * error)
        found.null_direction = bool(_same_order(beside, most, kind))
    return found


def _halves(rows):
    """Errors of an idle time with all-reduces, which the paper is about, and without, where a form may be zero."""
    having = rows[[bool(dictionary(data.get("unit_costs")).get("all_reduce")) for data in rows["data"]]]
    other = rows.drop(having.index)
    worst = having.loc[having["error"].abs().idxmax(), "error"]
    return (f"{words.plain_percent(having['error'].abs().mean(), 2)} off, worst {words.percent(worst)}, {len(having)} rows with all-reduces; "
            f"{words.plain_percent(other['error'].abs().mean(), 2)}, {len(other)} without")  # fmt: skip


def _size_of_gains(experiment, errors, published):
    """What every claim about the size of gains is held to, points and a share of the published gains: (points, whether it is met)."""
    tolerance = experiment.tolerance("gain")
    most = min(tolerance, MOST_OF_GAIN * published.abs().mean())
    return f"gain: {tolerance:.3g} points ({WORST * tolerance:.3g})", bool(errors.abs().mean() <= most)


def _gain(_run, experiment, check):
    rows, choices = _gains(experiment, check["rows"]), check["choices"]
    if len(rows) > 1:
        raise Fault(f"{experiment.id}: {check['rows']} names several gains")
    row = rows.iloc[0]
    criteria, met = _size_of_gains(experiment, rows["error"], rows["published"])
    published, ours = (words.plain(row[column], 1, " %") for column in ("published", "ours"))
    direction, fitted = _same_gains(rows, 0), bool(row["calibrated"])
    if choices:  # what the paper leaves open decides, if the published gain is among ours over it
        over = [_gains(one, check["rows"])["ours"].iloc[0] for one in choices]
        least = min(_select(one, one.compared("throughput"), check["rows"])["error"].abs().max() for one in choices)
        ours = f"{words.span(over, unit=' %')} over {len(over)} splits of layers ({ours} as assumed); at best all throughputs within {words.plain_percent(least)}"
        direction = None if min(over) <= row["published"] <= max(over) else direction
    return Outcome(published, ours, criteria, met, direction, calibrated=fitted, fitted=fitted)


def _all_gains(_run, experiment, check):
    """The predicted gains of a schedule, by default the one in question, over the baseline or another: their mean error and worst row."""
    of, over = check.get("of", experiment.gained), check.get("over")
    rows = _predicted(experiment, _gains(experiment, {"schedule": of}, over))
    error, worst = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax(), "error"]
    most = WORST * experiment.tolerance("gain")
    criteria, met = _size_of_gains(experiment, rows["error"], rows["published"])
    published, ours = (words.span(rows[column], unit=" %") for column in ("published", "ours"))
    spread = f"{error:.2f} points off, worst {words.signed(worst)}, {len(rows)} rows" if len(rows) > 1 else f"{words.signed(worst)} points"
    found = Outcome(published, f"{ours}; {spread}", criteria, met and bool(abs(worst) <= most), _same_gains(rows, most), len(rows))
    if null_model.has(experiment):
        beside = null_model.gain_errors(experiment, of, over)
        kind = null_model.better(beside)
        found.null_too = bool(beside[f"{kind}_error"].abs().mean() < MARGIN * error)
        found.null_direction = _same_gains(beside, most, kind)
    return found


def _faster(run, experiment, check):
    """Where one schedule is faster than the baseline in the paper, it is here; and the size of its gains. Of predicted rows."""
    found, every = _all_gains(run, experiment, check), _predicted(experiment, _gains(experiment, {"schedule": check["of"]}))
    ties = (every["published"] == 0).sum()
    right = (every["published"] * every["ours"] > 0).sum()
    published, ours = (f"{(every[column] > 0).sum()} of {len(every)}" for column in ("published", "ours"))
    found.direction = bool(right == len(every) - ties) and _same_order(every, WORST * experiment.tolerance("gain"), points=True) is not False
    found.published = published + (f" ({words.count(ties, 'tie')})" if ties else "")
    found.ours = f"{ours}; as published in {right} of {len(every) - ties}"
    found.met = found.met and found.direction
    return found


def _fastest(run, experiment, check):
    """Of every configuration at every m without calibrated rows. `order_of`: an experiment whose calibrated rows the profile is from."""
    constant = null_model.order_of_calibrated(run[check.get("order_of", experiment.id)])
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
    simple = max(nulls.values()) == configurations or (len(constant) > 1 and constant.idxmax() == check["of"])
    return Outcome(f"{theirs} of {known}", f"{ours} of {configurations} predicted", EVERY, ours == configurations, rows=configurations, null_too=simple)


def _pairs(_run, experiment, _check):
    count = null_model.pairs(experiment)
    if not count.far:
        raise Fault(f"{experiment.id}: has no pairs")
    closer = count.total - count.calibrated - count.far
    ours = f"{count.far_right} of {count.far} in that order" + (f"; of {closer} closer ones {count.near_right}" if closer else "")
    return Outcome(f"{count.far} pairs", ours, EVERY, count.far_right == count.far, rows=count.far,
                   null_too=count.far in (*count.far_null.values(), count.far_constant))  # fmt: skip


def _order(_run, experiment, check):
    """Configurations of one model, or what else agrees in the fields of `within`, are in the published order."""
    right, pairs = measurements.order(experiment, check.get("within", ["model"]))
    return Outcome(f"{pairs} pairs", f"{right} of {pairs} in that order", EVERY, right == pairs, rows=pairs)


def _gain_grows(_run, experiment, check):
    """Larger tensor-parallel groups gain more, for the same model and sequence, at the largest m; groups with a calibrated row
    are left out."""
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
    return Outcome(*texts, EVERY, all(grows(group["ours"]) for group in predicted), rows=len(predicted),
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
    errors, tolerance = less["ours"] - less["published"], experiment.tolerance("gain")
    direction = _same_gains(pd.DataFrame(less), tolerance)
    met = _size_of_gains(experiment, errors, less["published"])[1]
    fitted = int(both["calibrated"].sum() + both["calibrated_there"].sum())
    texts[1] += f"; {fitted} of {2 * len(both)} calibrated" if fitted else ""
    return Outcome(*texts, f"difference of gains: {tolerance:.3g} points ({tolerance:.3g})", bool(direction and met and errors.abs().max() <= tolerance),
                   direction, len(both), bool(fitted), fitted == 2 * len(both))  # fmt: skip


def _fits(_run, experiment, _check):
    """Rows surely fit into memory, or do not, as the paper says."""
    right, may, wrong = found = memory.against(experiment.rows["data"])
    if not any(found):
        raise Fault(f"{experiment.id}: of no row is it known whether it fits")
    count = len(right + may + wrong)
    fit = sum(data["published"]["fits"] for data in right + may + wrong)
    ours = memory.counted(found) + "".join(f"; wrong by {abs(data['memory_margin_gb']):.1f} GB" for data in wrong)
    return Outcome(f"{fit} fit, {count - fit} do not", ours, EVERY, len(right) == count, rows=count)


def _ran(_run, experiment, _check):
    """What has a published throughput ran, so it fits into its GPU; once for all m. Beside it the same with published activations."""
    rows = experiment.compared("throughput").drop_duplicates(["configuration", "schedule"])
    right, may, wrong = found = memory.against(rows["data"], ran=True)
    if not any(found):
        raise Fault(f"{experiment.id}: of no row that ran is it known whether it fits")
    count = len(right + may + wrong)
    ours = memory.counted(found) + (f"; others {words.span([-data['memory_margin_gb'] for data in wrong], unit=' GB')} over" if wrong else "")
    known = [data["memory_margin_gb"] + memory.unsure_gb(experiment, data) + data["peak_memory_gb"] - theirs for data in right + may + wrong
             if (theirs := number(dictionary(data.get("published")).get("peak_memory_gb"))) is not None]  # fmt: skip
    ours += f"; by the paper's activations at most {sum(margin >= 0 for margin in known)} of {len(known)}" if known and wrong else ""
    return Outcome(f"{count} of {count} ran", ours, EVERY, len(right) == count, rows=count)


def _saved(_run, experiment, check):
    """How much less memory some rows have than another. The paper has a range, and not of what."""
    rows = {data.get("name"): data["peak_memory_gb"] for data in experiment.rows["data"]}
    saved = [100 * (1 - rows[name] / rows[check["of"]]) for name in check["rows"]]
    return Outcome(words.NONE, f"{words.span(saved, None, ' %')} with ratios of ours", "", False, rows=len(saved))


def _overlap(_run, experiment, _check):
    """The time together of pairs, predicted from the published times alone and the profile's contention."""
    pairs = [pair for pair in experiment.pairs if pair["from_published_times"]]
    if not pairs:
        raise Fault(f"{experiment.id}: no times are published")
    tolerance = experiment.line["marks"][0]["tolerance"]
    theirs, ours = (
        " and ".join(f"{1e3 * pair[key]['together_s']:.3f}" for pair in pairs) + " ms" for key in ("published", "from_published_times")
    )
    error = max(abs(pair["from_published_times"]["together_error"]) for pair in pairs)
    fitted = bool(experiment.scenario.get("calibrated"))
    return Outcome(theirs, ours, f"time together: {100 * tolerance:g} % ({100 * tolerance:g})", error <= tolerance, calibrated=fitted, fitted=fitted)


CHECKS = {"errors": _errors, "gain": _gain, "gains": _all_gains, "fastest": _fastest, "faster": _faster, "pairs": _pairs, "order": _order,
          "gain_grows": _gain_grows, "gain_less": _gain_less, "overlap": _overlap, "fits": _fits, "ran": _ran, "saved": _saved}  # fmt: skip


def _judged(outcome, counted, shaped, exact):
    """Verdict, evidence, and whether a null model says it too. Rows that decided a choice, or were fitted to, show no
    direction."""
    direction = outcome.direction and not (shaped or outcome.calibrated)
    missed = DIRECTION if direction else CONTRADICTED if exact else UNDECIDED
    verdict = FITTED if outcome.fitted else HOLDS if outcome.met else missed
    null_too = {HOLDS: outcome.null_too, DIRECTION: outcome.null_direction}.get(verdict, False)
    known = {CALIBRATED: outcome.calibrated, SHAPED: shaped, NULL_TOO: null_too, COUNTED: counted}
    return verdict, next((name for name, holds in known.items() if holds), PREDICTED), null_too


def _of_every_choice(outcome, others):
    """The outcome as assumed, less what it has not with each of the other choices that the paper leaves open."""
    less = [one for one in others if one.met < outcome.met or bool(one.direction) < bool(outcome.direction)]
    if not less:
        return outcome
    return replace(outcome, met=outcome.met and all(one.met for one in less), direction=outcome.direction and all(one.direction for one in less),
                   ours=f"{outcome.ours}; with another split of layers {less[-1].ours.rpartition('; ')[2].removesuffix(f', {outcome.rows} rows')}")  # fmt: skip


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
        name, check, spans = claim["scenario"], claim["check"], claim.get("spans")
        if not {name, check.get("than", name), check.get("order_of", name), spans or name} <= run.keys():
            continue
        choices = left_open.choices(run[name], run[spans]) if spans else []
        outcome, *others = (CHECKS[check["kind"]](run, one, check | {"choices": some}) for one, some in ((run[name], choices), *((one, []) for one in choices)))
        outcome = _of_every_choice(outcome, others)
        if strict and not outcome.met and not claim.get("because"):
            raise Fault(f'"{statement}" misses a criterion, and results/claims.json does not say why; add "because"')
        counted = run[name].unit_costs and not run[name].rows.empty
        # A simulated figure of a GPU that nobody measured contradicts nothing: its own error is not known. A count has none, but the paper
        # may count otherwise.
        shaped, exact = claim.get("shaped_the_model", False), counted and "assumed" not in claim
        verdict, evidence, null_too = _judged(outcome, counted, shaped, exact)
        reason = "" if outcome.met else claim.get("because", "no reason is known")
        found.append(Claim(claim["where"], statement, verdict, evidence, null_too, shaped, exact, outcome.rows, reason, outcome.published, outcome.ours,
                           outcome.criteria, claim.get("apart", ""), name, claim.get("key", "")))  # fmt: skip
    return found


def listed(key):
    """A list of results/claims.json: `claims`, or `not_compared`, the paper's other tables and figures."""
    return read_json(CLAIMS)[key] if CLAIMS.is_file() else []


def table(evaluated, apart=False):
    """The claims in five columns: those that count, or those apart."""
    rows = [[f"{one.where}: {one.claim}", one.published, one.ours, one.verdict, one.why] for one in evaluated if bool(one.apart) == apart]
    return Table(["claim", "published", "ours", "verdict", "evidence; reason"], rows)


def criteria(evaluated):
    """Which criteria are whose: what each figure of the paper is held to, and those of other groups."""
    whose = {}
    for one in evaluated:
        if one.criteria:
            whose.setdefault(one.criteria, {})[one.where if one.apart == "test" else "the paper"] = None
    return Table(["mean error (worst) of predicted rows, at most", "claims of"], [[text, "; ".join(places)] for text, places in whose.items()])


def counts(evaluated):
    """How many of the claims that count have each verdict, in words; and of those that hold, how many do by what evidence."""
    own = [one for one in evaluated if not one.apart]
    evidence = [one.evidence for one in own if one.verdict == HOLDS]
    said = {HOLDS: "hold", DIRECTION: "hold in direction but not in size", UNDECIDED: "cannot be decided", CONTRADICTED: "contradicted", FITTED: "fitted"}

    def parts(some):
        verdicts = [one.verdict for one in some]
        return ", ".join(f"{verdicts.count(kind)} {word}" for kind, word in said.items()
                         if kind in verdicts or kind == HOLDS or (kind == CONTRADICTED and any(one.exact for one in some)))  # fmt: skip

    def strength(kind):
        null_too = sum(one.null_too for one in own if one.verdict == HOLDS and one.evidence == kind != NULL_TOO)
        return f"{kind} {evidence.count(kind)}" + (f" ({null_too} of them {NULL_TOO})" if null_too else "")

    strengths = ", ".join(strength(kind) for kind in EVIDENCE if kind in evidence)
    exact, counted = sum(one.exact for one in own), sum(one.evidence == COUNTED for one in own)
    left_open = f"{counted - exact} of {counted}" if exact else f"all {counted}"
    left_open = f": only a count can be, and for {left_open} the paper does not say how it counts" if counted else ""
    contradicted = words.count(exact, "claim") if exact else "No claim"
    text = (f"Of {words.count(len(own), 'claim')} of the paper {parts(own)}. {contradicted} could be contradicted{left_open}. "
            f"Evidence of those that hold: {strengths or 'none'}.")  # fmt: skip
    fresh = [one for one in own if one.scenario and not one.shaped and one.evidence not in (CALIBRATED, COUNTED)]
    if not fresh:
        return text
    rows = [str(one.rows) for one in fresh if one.verdict == HOLDS]
    held = f" The {len(rows)} rest on {', '.join(rows[:-1])}{' and ' if rows[1:] else ''}{rows[-1]} rows." if rows else ""
    return f"{text} A stricter test uses only the {words.count(len(fresh), 'claim')} whose rows had no part in choosing the model: {parts(fresh)}.{held}"
