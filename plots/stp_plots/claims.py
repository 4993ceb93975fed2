"""The paper's claims against records: value, tolerance, verdict, reason.

Claims are listed in results/claims.json; scripts/claims writes docs/claims.md, the report has them as a section.
"""

import json
import pathlib
from dataclasses import dataclass

MARKS = {"throughput_samples_per_s": "throughput_error_mean", "mfu_paper": "throughput_error_mean",
         "peak_memory_gb": "memory_error_mean", "idle_s": "idle_error_mean",
         "peak_activation_chunks": "chunks_error_mean", "tp_communication_share": "tp_share_error_mean"}
GAIN_MARK = "gain_error_points_mean"
UNITS = {"throughput_samples_per_s": (1, " samples/s"), "mfu_paper": (100, " %"), "peak_memory_gb": (1, " GB"),
         "idle_s": (1, ""), "peak_activation_chunks": (1, ""), "tp_communication_share": (100, " %")}
CONFIGURATION = ("model", "cluster", "seq", "microbatch_size", "tp", "pp", "cp", "dp", "unit_costs")
TIMES = ((1, "< 1 s"), (5, "< 5 s"), (20, "< 20 s"), (60, "< 1 min"))
PAIR_GAP = 0.02
GOOD, BAD, OPEN = "reproduced", "deviates", "not testable here"


class Fault(Exception):
    """The claims or the records are not as they must be."""


class Run:
    """A folder of records."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.lines = {line["id"]: line for line in self.read("summary")["experiments"]}
        self.records = {}

    def read(self, name):
        try:
            return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise Fault(f"{error.filename}: {error.strerror}; run `stp reproduce --out {self.folder}`") from None

    def record(self, name):
        if name not in self.records:
            self.records[name] = self.read(name)
        return self.records[name]

    def rows(self, name, pattern):
        rows = [row for row in self.record(name)["rows"] if all(row.get(k) == v for k, v in pattern.items())]
        if not rows:
            raise Fault(f"{name}: no row agrees with {pattern}")
        return rows

    def tolerance(self, name, mark):
        return self.record(name)["scenario"]["compare"]["tolerance"][mark]

    def gain(self, name):
        gain = self.record(name)["scenario"]["compare"]["gain"]
        return gain["of"], gain["over"]

    def time(self, name):
        seconds = self.lines[name]["wall_s"]
        return next((told for limit, told in TIMES if seconds < limit), "> 1 min")


def configuration(row, with_microbatches=True):
    fields = (*CONFIGURATION, "microbatches") if with_microbatches else CONFIGURATION
    return tuple(json.dumps(row.get(field)) for field in fields)


def row_name(row, schedule=True):
    parts = [row["schedule"]] if schedule else []
    parts += [row["model"], f"s {row['seq']}"] if row["model"] else []
    return ", ".join([*parts, f"TP{row['tp']} PP{row['pp']}", f"m {row['microbatches']}"])


def published(row, figure="throughput_samples_per_s"):
    return (row["published"] or {}).get(figure)


def mean(values):
    return sum(values) / len(values)


def span(values, factor, unit):
    told = sorted({f"{factor * value:.4g}" for value in (min(values), max(values))}, key=float)
    return " to ".join(told) + unit


def plural(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def verdict(met):
    return GOOD if met else BAD


def by_configuration(rows):
    """Rows by schedule, per configuration."""
    groups = {}
    for row in rows:
        groups.setdefault(configuration(row), {})[row["schedule"]] = row
    return groups


def gains(run, name, pattern):
    """(ours, published, row, fitted) per configuration, per cent."""
    of, over = run.gain(name)
    found = []
    for group in by_configuration(run.rows(name, pattern)).values():
        if of in group and over in group and published(group[of]) and published(group[over]):
            ours = group[of]["throughput_samples_per_s"] / group[over]["throughput_samples_per_s"]
            theirs = published(group[of]) / published(group[over])
            fitted = group[of]["calibration"] or group[over]["calibration"]
            found.append((100 * (ours - 1), 100 * (theirs - 1), group[of], fitted))
    if not found:
        raise Fault(f"{name}: no gain is published for {pattern}")
    return found


# Each check returns the paper's value, ours, the tolerance, whether it is met, and whether rows were fitted to.

def check_errors(run, name, check):
    figure = check["figure"]
    rows = [row for row in run.rows(name, check.get("rows", {})) if (row["difference"] or {}).get(figure) is not None]
    fitted = {configuration(row, figure != "peak_memory_gb") + (row["schedule"],) for row in rows if row["calibration"]}
    predicted = {}
    for row in rows:
        with_m = figure != "peak_memory_gb"  # the paper's memory does not depend on m
        key = configuration(row, with_m) + (row["schedule"],)
        if key not in fitted:
            predicted.setdefault((key, row[figure]), row)
    predicted = list(predicted.values())
    if not predicted:
        raise Fault(f"{name}: nothing is predicted of {figure}")
    factor, unit = UNITS[figure]
    paper = span([published(row, figure) for row in predicted], factor, unit)
    worst = max(predicted, key=lambda row: abs(row["difference"][figure]))
    error = mean([abs(row["difference"][figure]) for row in predicted])
    tolerance = run.tolerance(name, MARKS[figure])
    ours = span([row[figure] for row in predicted], factor, unit)
    if len(predicted) > 1:
        ours += (f"; over {plural(len(predicted), 'predicted figure')} {100 * error:.1f} % off in the mean, at worst "
                 f"{100 * worst['difference'][figure]:+.1f} % ({row_name(worst)})")
    else:
        ours += f", {100 * worst['difference'][figure]:+.1f} %"
    return paper, ours, f"mean {100 * tolerance:g} %", error <= tolerance, False


def check_gain(run, name, check):
    (ours, theirs, _, fitted), *more = gains(run, name, check["rows"])
    if more:
        raise Fault(f"{name}: {check['rows']} names several gains")
    tolerance = run.tolerance(name, GAIN_MARK)
    return f"{theirs:.1f} %", f"{ours:.1f} %", f"{tolerance:g} points", abs(ours - theirs) <= tolerance, fitted


def check_gains(run, name, check):
    found = [one for one in gains(run, name, check.get("rows", {})) if not one[3]]
    worst = max(found, key=lambda one: abs(one[0] - one[1]))
    error, tolerance = mean([abs(ours - theirs) for ours, theirs, _, _ in found]), run.tolerance(name, GAIN_MARK)
    ours = (f"{span([one[0] for one in found], 1, ' %')}; over {plural(len(found), 'predicted gain')} {error:.2f} points off in "
            f"the mean, at worst {worst[0] - worst[1]:+.1f} ({row_name(worst[2], False)})")
    return span([one[1] for one in found], 1, " %"), ours, f"mean {tolerance:g} points", error <= tolerance, False


def check_fastest(run, name, check):
    theirs = ours = both = 0
    for group in by_configuration(run.rows(name, {})).values():
        told = {schedule: published(row) for schedule, row in group.items()}
        if check["of"] not in group or None in told.values() or len(group) < 2:
            continue
        best = max(group.values(), key=lambda row: row["throughput_samples_per_s"])["schedule"]
        both += 1
        theirs += max(told.values()) == told[check["of"]]
        ours += best == check["of"]
    return f"{theirs} of {both}", f"{ours} of {both}", "all", ours == both, False


def check_pairs(run, name, check):
    del check
    line = run.lines[name]
    right, pairs = line["pairs_right"], line["pairs"]
    if not pairs:
        raise Fault(f"{name}: has no pairs")
    return f"{pairs} pairs", f"{right} of {pairs} the same way round", "all", right == pairs, False


def largest(found):
    """Of each configuration the gain at the largest m, by (model, tokens of a microbatch, tp, pp)."""
    chosen = {}
    for one in sorted(found, key=lambda one: one[2]["microbatches"]):
        row = one[2]
        chosen[row["model"], row["seq"], row["tp"], row["pp"]] = one
    return chosen


def check_gain_grows(run, name, check):
    """Larger groups gain more, for the same model and sequence, at the largest m."""
    if check["with"] != "tp":
        raise Fault(f"\"with\": {check['with']} is not known; write \"tp\"")
    groups = {}
    for (model, seq, tp, _), (ours, theirs, _, _) in largest(gains(run, name, {})).items():
        groups.setdefault((model, seq), []).append((tp, ours, theirs))
    groups = [sorted(group) for group in groups.values() if len(group) > 1]
    grows = [[all(a[i] < b[i] for a, b in zip(group, group[1:])) for group in groups] for i in (2, 1)]
    mid = [[mean([group[side][i] for group in groups]) for side in (0, -1)] for i in (2, 1)]
    told = [f"{sum(one)} of {len(one)}; {low:.1f} % against {high:.1f} % in the mean" for one, (low, high) in zip(grows, mid)]
    return *told, "all", all(grows[1]), False


def check_gain_less(run, name, check):
    """Gains of this scenario are below those of another, where both have the configuration; largest m."""
    here, there = largest(gains(run, name, {})), largest(gains(run, check["than"], {}))
    both = sorted(here.keys() & there.keys())
    if not both:
        raise Fault(f"{name} and {check['than']} have no configuration in common")
    told = ["; ".join(f"{here[key][i]:.1f} % for {there[key][i]:.1f} % (TP{key[2]} PP{key[3]})" for key in both) for i in (1, 0)]
    fitted = any(here[key][3] or there[key][3] for key in both)
    return *told, "each less", all(here[key][0] < there[key][0] for key in both), fitted


def check_overlap(run, name, check):
    """Of pairs, the time together that the published times alone and the profile's contention give."""
    del check
    pairs = [pair for pair in run.record(name)["pairs"] if pair["from_published_times"]]
    if not pairs:
        raise Fault(f"{name}: no times are published")
    mark, = run.lines[name]["marks"]
    tolerance = mark["tolerance"]
    theirs, ours = (" and ".join(f"{1e3 * pair[key]['together_s']:.3f}" for pair in pairs) + " ms"
                    for key in ("published", "from_published_times"))
    errors = {pair["name"]: pair["from_published_times"]["together_error"] for pair in pairs}
    worst = max(errors, key=lambda pair: abs(errors[pair]))
    told = f"{ours}; at worst {100 * errors[worst]:+.1f} % ({worst})"
    fitted = bool(run.record(name)["scenario"].get("calibrated"))
    return theirs, told, f"each {100 * tolerance:g} %", abs(errors[worst]) <= tolerance, fitted


CHECKS = {"errors": check_errors, "gain": check_gain, "gains": check_gains, "fastest": check_fastest,
          "pairs": check_pairs, "gain_grows": check_gain_grows, "gain_less": check_gain_less, "overlap": check_overlap}
CLAIMS = pathlib.Path(__file__).resolve().parents[2] / "results/claims.json"


@dataclass
class Told:
    """A claim with what came out of it; `reason` where it deviates or cannot be tested."""

    where: str
    claim: str
    verdict: str
    reason: str = ""
    paper: str = ""
    ours: str = ""
    tolerance: str = ""
    evidence: str = ""
    command: str = ""
    time: str = ""


def of_folder(folder):
    """The claims about a folder of records, for its report; none where it holds none of their scenarios."""
    run = Run(folder)
    known = json.loads(CLAIMS.read_text(encoding="utf-8"))["claims"] if CLAIMS.is_file() else []
    if not {claim.get("scenario") for claim in known} & run.lines.keys():
        return []
    told = []
    for claim in known:
        try:
            told += evaluate(run, [claim], strict=False)
        except (Fault, KeyError, TypeError):
            continue  # a record of the name of a scenario, but not that of the suite
    return told


def evaluate(run, claims, strict=True):
    """Every claim whose scenario is in the run. Fault where one deviates for no reason that the list knows, if strict."""
    told = []
    for claim in claims:
        where, text = claim["where"], claim["claim"]
        if "not_testable" in claim:
            told.append(Told(where, text, OPEN, claim["not_testable"]))
            continue
        name, check = claim["scenario"], claim["check"]
        if not {name, check.get("than", name)} <= run.lines.keys():
            continue
        paper, ours, tolerance, met, fitted = CHECKS[check["kind"]](run, name, check)
        if strict and not met and not claim.get("because"):
            raise Fault(f'"{text}" deviates, and results/claims.json does not say why; add "because"')
        evidence = run.record(name)["evidence"] + (", in part fitted to" if fitted else "")
        reason = "" if met else claim.get("because", "no reason is known")
        command = f"stp reproduce {name}" + (f" {check['than']}" if "than" in check else "")
        told.append(Told(where, text, verdict(met), reason, paper, ours, tolerance, evidence, command, run.time(name)))
    return told
