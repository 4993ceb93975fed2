"""The paper's claims against experiments: value, tolerance, verdict, reason.

Claims are listed in results/claims.json; scripts/pages writes docs/claims.md, the report has them as a section.
"""

import json
from dataclasses import dataclass

from stp_plots import words
from stp_plots.files import ROOT, ReportError
from stp_plots.judge import measurements, null_model
from stp_plots.read.records import QUANTITIES
from stp_plots.words import dictionary, items, number

CLAIMS = ROOT / "results/claims.json"
GOOD, FITTED, BAD, OPEN = "reproduced", "consistent (calibrated)", "deviates", "not testable here"
WORST = 3  # a worst row may be this many times the mean's tolerance off, where the summary says nothing else
NAMES = {quantity.key: name for name, quantity in QUANTITIES.items()}


class Fault(ReportError):
    """The claims or the records are invalid."""


@dataclass
class Claim:
    """A claim and its outcome; `reason` if it deviates or cannot be tested. `apart`: why it is not counted, such as that it restates
    another; `headline`: its name in the report's first table, if it stands there, with `brief`, our figure in few words."""

    where: str
    claim: str
    verdict: str
    reason: str = ""
    published: str = ""
    ours: str = ""
    tolerance: str = ""
    evidence: str = ""
    command: str = ""
    apart: str = ""
    headline: str = ""
    brief: str = ""
    scenario: str = ""


@dataclass
class Outcome:
    published: str
    ours: str
    tolerance: str
    met: bool
    calibrated: bool = False  # whether the verdict rests on rows that were fitted to
    brief: str = ""
    null_too: bool = False  # whether the null model meets it as well


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


# How much larger the mean error of the better null model must be than ours for a claim to be the simulation's own: less is within
# chance here.
MARGIN = 1.5
# The mean error of gains over the mean published gain: with more, points that sound few are most of what is claimed.
MOST_OF_GAIN = 0.5


class _Criteria:
    """What a figure is held to: its mean error and its worst row; beside them the better null model's error, where there is one."""

    def __init__(self, unit, scale=1.0):
        self.texts, self.met, self.null_too, self.unit, self.scale = [], True, False, unit, scale

    def most(self, name, error, tolerance):
        self.texts.append(f"{name} {self.scale * tolerance:.3g}{self.unit}")
        self.met &= bool(error <= tolerance)

    def gains(self, errors, published, tolerance):
        """What every claim about the size of gains is held to: points, and a share of the published gains."""
        error, share = errors.abs().mean(), MOST_OF_GAIN * published.abs().mean()
        of = "mean " if len(errors) > 1 else ""
        self.texts.append(f"{of}{tolerance:.3g}{self.unit} and half of the published ({share:.2f})")
        self.met &= bool(error <= min(tolerance, share))

    def beside(self, error, rows):
        kind = null_model.better(rows)
        null = rows[f"{kind}_error"].abs().mean()
        nearer = len(rows) - null_model.nearer(rows)
        self.texts.append(f"{null_model.NAMES[kind]} {self.scale * null:.2f}{self.unit}, nearer in {nearer} of {len(rows)}")
        self.null_too = bool(null < MARGIN * error)

    def text(self):
        return ", ".join(self.texts)


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
    error, worst = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax()]
    unit = " units" if experiment.unit_costs and quantity.unit == "s" else f" {quantity.unit}"
    published, ours = (_span(quantity.scale * rows[column], unit) for column in ("published", "ours"))
    tolerance, criteria = experiment.tolerance(name), _Criteria(" %", 100)
    criteria.most("mean", error, tolerance)
    if len(rows) == 1:
        brief = f"{ours} ({words.percent(worst['error'])})"
        return Outcome(published, f"{ours}, {words.percent(worst['error'])}", criteria.text(), criteria.met, brief=brief)
    criteria.most("worst", abs(worst["error"]), _worst_tolerance(experiment, name))
    of_null, distinct = "throughput" if name == "mfu" else name, ""
    if of_null in ("throughput", "memory") and "rows" not in check and null_model.has(experiment, of_null):
        beside = null_model.errors(experiment, of_null)
        criteria.beside(error, beside)
        if name == "memory" and not (new := beside[beside["new"]]).empty:
            distinct = f" ({words.count(new['ours'].nunique(), 'distinct figure')} of new configurations: "
            distinct += f"{words.plain_percent(new['error'].abs().mean(), 2)})"
    brief = f"off by {words.plain_percent(error, 2)} (worst {words.percent(worst['error'])})"
    ours += f"; mean absolute error {words.plain_percent(error, 2)} over {words.count(len(rows), 'predicted row')}{distinct}, maximum "
    ours += f"{words.percent(worst['error'])} ({worst['name']})"
    ours += f"; {measurements.by(rows, check['by'])}" if "by" in check else ""
    if quantity.closed_form:
        ours += f"; {(rows['error'].abs() <= tolerance + 1e-9).sum()} of {len(rows)} rows within {100 * tolerance:g} %"
    return Outcome(published, ours, criteria.text(), criteria.met, brief=brief, null_too=criteria.null_too)


def _gain(run, experiment, check):
    del run
    rows = _gains(experiment, check["rows"])
    if len(rows) > 1:
        raise Fault(f"{experiment.id}: {check['rows']} names several gains")
    row, criteria = rows.iloc[0], _Criteria(" points")
    criteria.gains(rows["error"], rows["published"], experiment.tolerance("gain"))
    published, ours = (words.plain(row[column], 1, " %") for column in ("published", "ours"))
    return Outcome(published, ours, criteria.text(), criteria.met, row["calibrated"], ours)


def _judged_gains(experiment, pattern):
    """The predicted gains, their mean error and worst row, and the criteria on them."""
    rows = _predicted(experiment, _gains(experiment, pattern))
    error, worst, criteria = rows["error"].abs().mean(), rows.loc[rows["error"].abs().idxmax()], _Criteria(" points")
    criteria.gains(rows["error"], rows["published"], experiment.tolerance("gain"))
    criteria.most("worst", abs(worst["error"]), WORST * experiment.tolerance("gain"))
    if null_model.has(experiment):
        criteria.beside(error, null_model.gain_errors(experiment, pattern.get("schedule", experiment.gained)))
    text = f"mean absolute error {error:.2f} points over {words.count(len(rows), 'predicted gain')}, maximum "
    text += f"{words.signed(worst['error'])} ({worst['label']}, m {worst['m']})"
    return rows, error, text + _one_sided(rows), criteria


def _one_sided(rows):
    """The groups of equal TP in which all gains err to one side, in words."""
    texts = []
    for tp, group in rows.groupby("tp"):
        sizes = group["error"].abs()
        for side, some in (("low", group["error"] < 0), ("high", group["error"] > 0)):
            if len(group) > 1 and some.all():
                ends = dict.fromkeys(f"{size:.1f}" for size in (sizes.min(), sizes.max()))
                texts.append(f", {len(group)} of {len(group)} at TP{tp} {side}, by {' to '.join(ends)}")
    return "".join(texts)


def _all_gains(run, experiment, check):
    del run
    rows, error, text, criteria = _judged_gains(experiment, check.get("rows", {}))
    published, ours = (_span(rows[column], " %", ".1f") for column in ("published", "ours"))
    brief = f"{ours}; off by {error:.2f} points"
    return Outcome(published, f"{ours}; {text}", criteria.text(), criteria.met, brief=brief, null_too=criteria.null_too)


def _faster(run, experiment, check):
    """Where one schedule is faster than the baseline in the paper, it is here."""
    del run
    every = _gains(experiment, {"schedule": check["of"]})
    _, error, text, criteria = _judged_gains(experiment, {"schedule": check["of"]})
    ties = (every["published"] == 0).sum()
    right = (every["published"] * every["ours"] > 0).sum()
    faster = [f"{(every[column] > 0).sum()} of {len(every)}" for column in ("published", "ours")]
    tied = f" ({words.count(ties, 'tie')})" if ties else ""
    ours = f"{faster[1]}; as in the paper, faster or slower, in {right} of {len(every) - ties}; gain: {text}"
    met = criteria.met and bool(right == len(every) - ties)
    return Outcome(faster[0] + tied, ours, "all; gain: " + criteria.text(), met, brief=f"{faster[1]}; gain off by {error:.2f} points")


def _fastest(run, experiment, check):
    """Of every configuration at every m without calibrated rows."""
    del run
    configurations, theirs, ours, known, fitted = 0, 0, 0, 0, 0
    has, nulls = null_model.has(experiment), dict.fromkeys(null_model.NAMES, 0)
    carried = null_model.throughputs(experiment) if has else experiment.figure("throughput").assign(**nulls)
    for _, group in carried.groupby(["configuration", "m"]):
        group = group.set_index("schedule")
        if check["of"] not in group.index or len(group) < 2 or group["published"].isna().any():
            continue
        known += 1
        theirs += group["published"].idxmax() == check["of"]
        if group["calibrated"].any():
            fitted += 1
            continue
        configurations += 1
        ours += group["ours"].idxmax() == check["of"]
        for kind in nulls:
            nulls[kind] += has and group[kind].idxmax() == check["of"]
    if not configurations:
        raise Fault(f"{experiment.id}: nothing is predicted")
    brief, null = f"{ours} of {configurations}", max(nulls.values())
    text = f"{brief} predicted (null model: {null}); {fitted} calibrated left out"
    return Outcome(f"{theirs} of {known}", text, "all", ours == configurations, brief=brief, null_too=null == configurations)


def _pairs(run, experiment, check):
    del run, check
    count = null_model.pairs(experiment)
    if not count.far:
        raise Fault(f"{experiment.id}: has no pairs")
    others = count.total - count.calibrated - count.far
    ours = f"{count.far_right} of {count.far} in the same order"
    far, near = (max(nulls.values(), default=0) for nulls in (count.far_null, count.near_null))
    if null_model.has(experiment):
        ours += f" (null model: {far}; one order for all, that of the calibrated rows: {count.far_constant})"
    if others:
        tied = f", {words.count(count.ties, 'tie')} in the paper" if count.ties else ""
        ours += f"; of the {others} pairs that are closer, {count.near_right}{tied}"
        ours += f" (null model: {near})" if null_model.has(experiment) else ""
    published = f"{count.far} pairs, of {count.total - count.calibrated} predicted and {count.total} in all"
    brief = f"{count.far_right} of {count.far}; of the {others} closer ones {count.near_right}"
    return Outcome(published, ours, "all", count.far_right == count.far, brief=brief,
                   null_too=count.far in (far, count.far_constant))


def _order(run, experiment, check):
    """Configurations of one model are in the published order."""
    del run, check
    right, pairs = measurements.order(experiment)
    brief = f"{right} of {pairs} in the same order"
    return Outcome(f"{pairs} pairs of one model over {100 * experiment.pairs_apart:g} % apart", brief, "all", right == pairs, brief=brief)


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
    texts, grows = [], []
    for column, some in (("published", groups), ("ours", predicted)):
        grows.append([group[column].is_monotonic_increasing and group[column].is_unique for group in some])
        low, high = (sum(group[column].iloc[end] for group in some) / len(some) for end in (0, -1))
        texts.append(f"{sum(grows[-1])} of {len(some)}; mean {low:.1f} % against {high:.1f} %")
    nulls = null_model.gain_errors(experiment, experiment.gained)[list(null_model.NAMES)] if null_model.has(experiment) else {}
    null_too = any(all(nulls[kind][group.index].is_monotonic_increasing and nulls[kind][group.index].is_unique for group in predicted)
                   for kind in nulls)  # fmt: skip
    known = " (so the null model)" if null_too else ""
    texts[1] = texts[1].replace(";", f" predicted{known}, {len(groups) - len(predicted)} calibrated left out;")
    return Outcome(*texts, "all", all(grows[1]), brief=f"{sum(grows[1])} of {len(predicted)}", null_too=null_too)


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
    less = {column: both[column + "_there"] - both[column] for column in ("published", "ours")}
    criteria = _Criteria(" points")
    criteria.gains(less["ours"] - less["published"], less["published"], experiment.tolerance("gain"))
    criteria.most("each", (less["ours"] - less["published"]).abs().max(), experiment.tolerance("gain"))
    met = bool((less["ours"] > 0).all() and criteria.met)
    return Outcome(*texts, f"each less; by how much, {criteria.text()}", met, calibrated, texts[1])


def _fits(run, experiment, check):
    """Rows fit into memory, or do not, as the paper says."""
    del run, check
    known = [(name, data["memory_margin_gb"], data["published"]["fits"]) for name, data in zip(experiment.rows["name"], experiment.rows["data"])
             if "fits" in dictionary(data.get("published")) and number(data.get("memory_margin_gb")) is not None]  # fmt: skip
    if not known:
        raise Fault(f"{experiment.id}: of no row is it known whether it fits")
    wrong = [f"{words.signed(margin)} GB: {name}" for name, margin, fits in known if (margin >= 0) != fits]
    right = f"{len(known) - len(wrong)} of {len(known)}"
    nearest = min(abs(margin) for _, margin, _ in known)
    text = f"{right} as published; smallest margin {nearest:.1f} GB" + "".join(f"; wrong, by {one}" for one in wrong)
    out = sum(not fits for *_, fits in known)
    return Outcome(f"{len(known) - out} fit, {out} do not", text, "all", not wrong, brief=right)


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
    return Outcome(theirs, text, f"each {100 * tolerance:g} %", abs(error) <= tolerance, bool(experiment.scenario.get("calibrated")), ours)


CHECKS = {"errors": _errors, "gain": _gain, "gains": _all_gains, "fastest": _fastest, "faster": _faster, "pairs": _pairs, "order": _order,
          "gain_grows": _gain_grows, "gain_less": _gain_less, "overlap": _overlap, "fits": _fits}  # fmt: skip


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
        # A choice between models that was made by these rows is a fit to them.
        settled = claim.get("settled_by_its_rows", False)
        verdict = BAD if not outcome.met else FITTED if outcome.calibrated or outcome.null_too or settled else GOOD
        if strict and verdict == BAD and not claim.get("because"):
            raise Fault(f'"{statement}" deviates, and results/claims.json does not say why; add "because"')
        notes = {", calibrated": outcome.calibrated, ", settled by its rows": settled, ", null model too": outcome.met and outcome.null_too}
        note = next((note for note, holds in notes.items() if holds), "")
        found.append(
            Claim(where, statement, verdict, claim.get("because", "no reason is known") if verdict == BAD else "",
                  outcome.published, outcome.ours, outcome.tolerance,
                  run[name].evidence + note,
                  f"stp reproduce {name}" + (f" {check['than']}" if "than" in check else ""),
                  claim.get("apart", ""), claim.get("headline", ""), outcome.brief, name)
        )  # fmt: skip
    return found


def listed(key):
    """A list of results/claims.json: `claims`, or `places`, the paper's tables and figures."""
    return json.loads(CLAIMS.read_text(encoding="utf-8"))[key] if CLAIMS.is_file() else []


def by_place(places, evaluated):
    """Per table or figure of the paper: where, what is published, scenarios, our plot, and the verdicts of the claims about it."""
    rows = []
    for place in places:
        scenarios = place.get("scenarios", [])
        about = [one.verdict for one in evaluated if one.where in place.get("claims", []) and (one.verdict == OPEN or one.scenario in scenarios)]
        verdicts = [f"{about.count(kind)} × {kind}" if len(about) > 1 else kind for kind in (GOOD, FITTED, BAD, OPEN) if kind in about]
        parts = [", ".join(verdicts), place.get("note", "")]
        rows.append([place["where"], place["published"], ", ".join(scenarios) or words.NONE, place.get("plot", words.NONE), ": ".join(filter(None, parts))])
    return rows


PLACES = ("where", "published", "scenario", "our plot", "verdict")


def counts(evaluated):
    """How many of the claims that count have each verdict, and how many are tested apart, in words."""
    own = [one.verdict for one in evaluated if not one.apart and one.verdict != OPEN]
    parts = [f"reproduced: {own.count(GOOD)}", f"consistent (calibrated): {own.count(FITTED)}", f"deviating: {own.count(BAD)}"]
    apart = sum(bool(one.apart) for one in evaluated)
    also = f"; {apart} more, which say what another says, what is so by construction, what our own errors could overturn, or what is another paper's, are listed apart" if apart else ""
    return f"Of {len(own)} claims of the paper that were tested, {', '.join(parts)}{also}."
