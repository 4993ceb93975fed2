"""report.html: one self-contained page, without scripts and without anything that is fetched."""

import base64
import struct
from string import Template

from . import ablation, claims, contention, pairs, style, summary, tables, timelines, words
from .records import FIGURES
from .tables import h
from .values import dictionary, items, text

CSS = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 2.5rem 2rem 5rem; max-width: 1120px; color: #222; background: #fff;
  font: 16px/1.55 "Source Sans 3", "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .4rem; font-weight: 600; }
h2 { font-size: 1.3rem; margin: 3.2rem 0 .6rem; padding-top: .9rem; border-top: 1px solid #ccc; font-weight: 600; }
h3 { font-size: 1.02rem; margin: 2.2rem 0 .5rem; font-weight: 600; }
p, ul, dl { max-width: 46rem; margin: .6rem 0; }
a { color: #0a4a7a; }
.sub { color: #555; }
nav ul { padding-left: 1.2rem; }
figure { margin: .4rem 0 0; }
figure img { max-width: 100%; height: auto; display: block; }
figure svg { display: block; width: 100%; height: auto; }
.timelines { position: relative; left: 50%; transform: translateX(-50%); max-width: calc(100vw - 5rem); }
.timelines figure { margin: 1.2rem 0; }
.timelines figcaption { margin-top: 0; }
figcaption { max-width: 46rem; margin-top: .45rem; font-size: .92rem; color: #444; }
.scroll { overflow-x: auto; margin: .8rem 0 1.4rem; }
table { border-collapse: collapse; font-size: .84rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: #444; padding-bottom: .45rem; font-size: .92rem; }
th { text-align: left; font-weight: 600; vertical-align: bottom; border-bottom: 1px solid #888; padding: .25rem .6rem; }
thead tr:not(:last-child) th { border-bottom: none; padding-bottom: 0; }
th.num { text-align: right; }
.star { display: inline-block; width: 0; }
thead td { border: none; }
td { padding: .2rem .6rem; border-bottom: 1px solid #e6e6e6; vertical-align: top; }
td.num { text-align: right; white-space: nowrap; }
td.published { color: #555; }
td.group { border-left: 1px solid #ddd; }
.rows, .cross { font-size: .78rem; }
.rows td, .cross td, .rows th, .cross th { padding-left: .36rem; padding-right: .36rem; }
.rows td, .cross td { white-space: nowrap; }
.claims { font-size: .8rem; } .claims td { min-width: 4rem; }
.good { color: #10612f; } .bad { color: #9a2b12; } .neutral { color: #444; }
dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0 0 0 1.2rem; overflow-wrap: anywhere; }
code { font-size: .88em; overflow-wrap: anywhere; }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } figure, tr { break-inside: avoid; } }
"""

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$css</style>
</head>
<body>
<header>
<h1>$title</h1>
<p class="sub">$sub</p>
</header>
<main>
$body
</main>
</body>
</html>
""")

TITLE = "Synergistic Tensor and Pipeline Parallelism: reproduction report"


def render(scenarios, drawn, told):
    """The page; `drawn` maps a scenario's id to its plots with their PNG files; `told` are the claims."""
    body = [_introduction(scenarios, told), _claims(told), _summary(scenarios)]
    body += [_scenario(i, scenario, drawn[scenario.id]) for i, scenario in enumerate(scenarios)]
    body.append(_provenance(scenarios))
    return PAGE.substitute(title=h(TITLE), css=CSS, sub=_sub(scenarios), body="\n".join(body))


def _sub(scenarios):
    if not scenarios:
        return "No experiment was run."
    origin = dictionary(scenarios[0].record.get("provenance"))
    parts = [words.count(len(scenarios), "experiment"), words.count(sum(s.size() for s in scenarios), "row")]
    if origin.get("version") is not None:
        parts.append(f"STP suite {text(origin['version'])}")
    if origin.get("time") is not None:
        parts.append(text(origin["time"]))
    return h(", ".join(parts))


def _introduction(scenarios, told):
    levels = list(dict.fromkeys(scenario.evidence for scenario in scenarios))
    terms = "".join(
        f"<dt>{h(level)}</dt><dd>{h(words.EVIDENCE.get(level, 'not explained in this report.'))}</dd>"
        for level in levels
    )
    links = "".join(f'<li><a href="#{tables.anchor(s)}">{h(s.title)}</a></li>' for s in scenarios)
    named = ""
    if told:
        named = '<li><a href="#claims">Claims</a></li>'
        named += '<li><a href="#not-reproduced">Where we do not reproduce, and why</a></li>'
    return f"""<section>
<p>This page sets the figures of the STP suite beside those of the paper “Synergistic Tensor and Pipeline Parallelism”
(NeurIPS 2025, arXiv 2510.27257), which braids forward and backward work so that tensor-parallel all-reduces hide behind
compute. Each experiment below has its plots, then every row in numbers.</p>
<h3>Where the figures come from</h3>
<dl>{terms}</dl>
<p>Some rows are <strong>calibrated</strong>: constants of the cost model were fitted to them, so their agreement proves
nothing. All others with a published figure are <strong>predicted</strong>, and only these count for a verdict. A
verdict says whether the suite's figures agree with the paper's within stated tolerances; where the evidence is not
measured, it is a statement about the model, not about a machine.</p>
<nav aria-label="Contents"><h3>Contents</h3>
<ul>{named}<li><a href="#summary">Summary</a></li>{links}<li><a href="#provenance">Provenance</a></li></ul></nav>
</section>"""


def _claims(told):
    """What the paper claims; then, apart, what came out otherwise and what cannot be tested, each with its reason."""
    if not told:
        return ""
    checked = [one for one in told if one.verdict != claims.OPEN]
    head = ["where", "claim", "the paper", "ours", "tolerance", "verdict", "evidence", "command", "time"]
    rows = [
        [
            *map(h, (one.where, one.claim, one.paper, one.ours, one.tolerance)),
            summary.verdict(one.verdict),
            h(one.evidence),
            f"<code>{h(one.command)}</code>",
            h(one.time),
        ]
        for one in checked
    ]
    reached = sum(one.verdict == claims.GOOD for one in checked)
    parts = ['<section id="claims"><h2>Claims</h2>']
    if rows:
        parts.append(f"<p>{reached} of {words.count(len(rows), 'claim')} that could be tested are reproduced.</p>")
        parts.append(tables.table([head], rows, kind="claims"))
    reasons = {claims.BAD: "Where we do not reproduce, and why", claims.OPEN: "Not testable here yet"}
    for verdict, title in reasons.items():
        rows = [[*map(h, (one.where, one.claim, one.ours, one.reason))] for one in told if one.verdict == verdict]
        if verdict == claims.OPEN:
            rows = [[where, claim, reason] for where, claim, _, reason in rows]
        heads = ["where", "claim", *(["ours"] if verdict == claims.BAD else []), "reason, as far as it is known"]
        name = ' id="not-reproduced"' if verdict == claims.BAD else ""
        parts.append(f"<h3{name}>{h(title)}</h3>")
        parts.append(tables.table([heads], rows, kind="claims") if rows else "<p>Nothing.</p>")
    return "\n".join(parts) + "</section>"


def _summary(scenarios):
    parts = ['<section id="summary"><h2>Summary</h2>', summary.summary(scenarios), summary.by_table(scenarios)]
    for scenario in scenarios:
        details = summary.marks(scenario) + summary.errors(scenario)
        if details:
            parts.append(f"<h3>{h(scenario.title)}: marks and errors</h3>")
            parts.append(_verdict(scenario))
            parts.append(details)
    pairs = "A pair counts if the paper sets its two schedules more than 2&nbsp;% apart and neither row is calibrated."
    parts.append(f'<p class="sub">{pairs}</p></section>')
    return "\n".join(parts)


def _verdict(scenario):
    reason = scenario.line.get("reason")
    return f"<p>Verdict: {summary.verdict(scenario.line.get('verdict'))}{f' ({h(reason)})' if reason else ''}.</p>"


def _scenario(index, scenario, plots):
    parts = [
        f'<section id="{tables.anchor(scenario)}"><h2>{h(scenario.title)}</h2>',
        f"<p>{h(_description(scenario))}</p>",
    ]
    parts.append(_verdict(scenario))
    for plot, image in plots:
        width, height = struct.unpack(">II", image[16:24])  # of the PNG header
        width, height = (round(side * style.SHOWN_DPI / style.DPI) for side in (width, height))
        data = base64.b64encode(image).decode()
        parts.append(
            f'<h3>{h(plot.title)}</h3>\n<figure><img width="{width}" height="{height}" alt="{h(plot.alt)}" '
            f'src="data:image/png;base64,{data}"><figcaption>{h(plot.caption)}</figcaption></figure>'
        )
    parts += [ablation.split(scenario), contention.side_by_side(scenario), pairs.all_pairs(scenario)]
    parts += _timelines(index, scenario)
    figures = () if ablation.cells(scenario) or contention.groups(scenario) else FIGURES
    crosses = [cross for cross in (tables.cross(scenario, name) for name in figures) if cross]
    if crosses:
        parts += ["<h3>Beside the paper's tables</h3>", *crosses]
    if scenario.rows:
        parts += ["<h3>All rows</h3>", f"<p>{h(_legend(scenario))}</p>", tables.all_rows(scenario)]
    return "\n".join(parts) + "</section>"


def _description(scenario):
    if scenario.pairs:
        return pairs.description(scenario)
    told = f"{words.count(len(scenario.rows), 'row')}, {scenario.evidence}. "
    told += (
        f"{words.count(len(scenario.schedules), 'schedule')}: {', '.join(scenario.schedules)}."
        if scenario.schedules
        else ""
    )
    clusters = {text(row.data["cluster"]): None for row in scenario.rows if row.data.get("cluster") is not None}
    if clusters:
        told += f" {'Cluster' if len(clusters) == 1 else 'Clusters'}: {', '.join(clusters)}."
    if scenario.unit_costs:
        told += (
            " Costs are given by a table, not by a model of hardware: times have its unit and say nothing of a machine."
        )
    else:
        told += " In labels, s is the sequence length times the microbatch size, m the number of microbatches per step."
    return told


def _legend(scenario):
    told = "Size is the microbatch size. Bubbles are means over the ranks, as shares of the step."
    if any(row.value("mfu") is not None for row in scenario.rows):
        told += (
            " MFU counts causal attention once; the paper's formula, beside it, counts attention four times as much."
        )
    if any(row.memory_calibrated and not row.calibrated for row in scenario.rows):
        told += " † Memory does not depend on m: what was fitted at another m counts as calibrated here too."
    if scenario.has_closed_forms():
        told += (
            " Idle time is what the busiest rank does not compute of the step. Closed form: the paper's formula, "
            "evaluated for the row; where it gives zero, any other value of ours counts as 100 % off."
        )
    if any(row.peak_chunks() is not None for row in scenario.rows):
        name = "activations" if scenario.has_published("chunks") else "chunks"
        told += f" Peak {name}: activations alive at once on the fullest rank, in microbatches of one chunk."
    return told


def _timelines(index, scenario):
    """All at one scale and flush left, wider than the text if the window is."""
    if not scenario.timelines:
        return []
    drawings = []
    for number, (name, source) in enumerate(scenario.timelines):
        title = name.removeprefix(f"timeline-{scenario.id}-").removesuffix(".svg")
        drawings.append((name, title, timelines.inline(source, f"timeline-{index}-{number}", f"Timeline of {title}")))
    widest = max((drawn[1] or 0 for _, _, drawn in drawings if drawn), default=0) or 1000
    parts = [
        "<h3>Timelines</h3>",
        "<p>One step of each schedule, drawn to scale; time runs to the right, one row per rank.</p>",
        f'<div class="timelines" style="width: {widest:g}px">',
    ]
    for name, title, drawn in drawings:
        if drawn is None:
            parts.append(f"<p>{h(name)} holds no drawing.</p>")
            continue
        drawing, width = drawn
        share = 100 * (width or widest) / widest
        parts.append(
            f'<figure><div style="width: {share:.2f}%">{drawing}</div>'
            f"<figcaption>{h(title)} ({h(name)})</figcaption></figure>"
        )
    return [*parts, "</div>"]


def _provenance(scenarios):
    parts = ['<section id="provenance"><h2>Provenance</h2>']
    groups = {}  # experiments of one run have all but the second in common
    for scenario in scenarios:
        groups.setdefault(tuple(_entries(scenario.record)), []).append(scenario)
    for entries, members in groups.items():
        if len(groups) > 1:
            parts.append(f"<h3>{h(', '.join(scenario.id for scenario in members))}</h3>")
        times = sorted({text(dictionary(s.record.get("provenance")).get("time")) for s in members})
        rows = [[h("time"), h(times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}")]]
        rows += [[h(name), f"<code>{h(value)}</code>" if name == "command" else h(value)] for name, value in entries]
        parts.append(tables.table([["", ""]], rows, kind="compact"))
    return "\n".join(parts) + "</section>"


def _entries(record):
    origin, system = dictionary(record.get("provenance")), dictionary(record.get("system"))
    known = [
        ("version", "version"),
        ("git_revision", "git revision"),
        ("git_dirty", "uncommitted changes"),
        ("build_type", "build type"),
        ("compiler", "compiler"),
    ]
    entries = [("record schema", text(record.get("schema_version")))]
    entries += [(label, text(origin[key])) for key, label in known if key in origin]
    if origin.get("argv"):
        entries.append(("command", " ".join(text(word) for word in items(origin["argv"]))))
    told = {key for key, _ in known} | {"argv", "time"}
    entries += [(key.replace("_", " "), text(value)) for key, value in origin.items() if key not in told]
    entries += [(key.replace("_", " "), text(value)) for key, value in system.items()]
    return entries
