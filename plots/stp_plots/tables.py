"""The tables of the page."""

from html import escape

from . import words
from .records import CLOSED_FORMS, CONFIGURATION, FIGURES, KEYS
from .values import text, unit_costs

# Which figure a table of the paper prints; other tables may print any.
PAPER_TABLES = {"Table 5": "memory", "Table 6": "throughput", "Table 7": "mfu_paper"}

TITLES = {
    "throughput": "Throughput, samples/s",
    "mfu_paper": "MFU by the paper's formula, %",
    "memory": "Peak memory, GB",
    "idle": "Idle time of the step, s",
    "chunks": "Peak activations, chunks",
    "tp_share": "TP communication of a forward, %",
}
UNIT_TITLES = {"throughput": "Throughput, samples per unit", "idle": "Idle time of the step, units"}


def h(value):
    return escape(text(value), quote=True)


def table(head, rows, *, caption="", kind=""):
    """`head`: lines of (text, span) or text. `rows`: cells of escaped HTML, their classes after a \\0."""
    numeric = [cell.partition("\0")[2].startswith("num") for cell in rows[0]] if rows else []

    def heading(cell, at_number):
        name, span = cell if isinstance(cell, tuple) else (cell, 1)
        if not name:
            return f'<td colspan="{span}"></td>'
        attributes = f' colspan="{span}"' if span > 1 else ""
        attributes += ' class="num"' if at_number else ""
        return f'<th scope="col{"group" if span > 1 else ""}"{attributes}>{h(name)}</th>'

    def data(cell):
        content, _, name = cell.partition("\0")
        return f'<td class="{name}">{content}</td>' if name else f"<td>{content}</td>"

    lines = [f'<div class="scroll"><table class="{kind}">']
    if caption:
        lines.append(f"<caption>{h(caption)}</caption>")
    lines.append("<thead>")
    for line in head:
        last = line is head[-1]
        lines.append(
            "<tr>"
            + "".join(heading(cell, last and numeric[i : i + 1] == [True]) for i, cell in enumerate(line))
            + "</tr>"
        )
    lines.append("</thead><tbody>")
    lines += ["<tr>" + "".join(map(data, row)) + "</tr>" for row in rows]
    return "\n".join(lines) + "</tbody></table></div>"


def num(content, extra=""):
    return f"{h(content)}\0num{' ' + extra if extra else ''}"


def shown(name, value):
    """Ours, in the table's unit."""
    if value is None:
        return "–"
    if name == "chunks":
        return text(value)
    if name == "mfu_paper":
        return f"{100 * value:.2f}"
    if name == "tp_share":
        return f"{100 * value:.1f}"
    return f"{value:.1f}" if name == "memory" else words.magnitude(value)


def printed(name, value):
    """Published, as the paper prints it; what it gives in closed form, as ours."""
    if value is None:
        return "–"
    if name == "mfu_paper":
        return f"{100 * value:.2f}"
    if name in CLOSED_FORMS or name == "tp_share":
        return shown(name, value)
    return text(value) if name == "memory" else words.published_text(value)


def anchor(scenario):
    return h("scenario-" + "".join(c if c.isalnum() else "-" for c in scenario.id))


def cross(scenario, name):
    """As the paper sets its tables: a line per configuration and m, ours and the published figure side by side."""
    rows = []
    for configuration in scenario.configurations:
        lines = {}  # cells by the numbers of microbatches that share them: memory does not depend on m
        for microbatches in configuration.microbatches():
            found = [configuration.row(schedule, microbatches) for schedule in scenario.schedules]
            if any(row and row.published(name) is not None for row in found):
                cells = tuple(cell for row in found for cell in _beside(row, name))
                key = cells if name == "memory" else microbatches
                lines.setdefault(key, (cells, []))[1].append(text(microbatches))
        rows += [[h(configuration.label), num(", ".join(told)), *cells] for cells, told in lines.values()]
    if not rows:
        return ""
    cited = {t: None for row in scenario.rows for t in row.tables() if PAPER_TABLES.get(t, name) == name}
    head = [
        [("", 2), *((schedule, 3) for schedule in scenario.schedules)],
        ["configuration", "m", *(["ours", "published", "difference"] * len(scenario.schedules))],
    ]
    source = f" (published: {', '.join(sorted(cited))})" if cited else ""
    star = "; * calibrated" if any(row.fitted(name) for row in scenario.rows) else ""
    return table(
        head, rows, caption=f"{TITLES[name]}: ours ({scenario.evidence}) beside the paper{source}{star}", kind="cross"
    )


def _beside(row, name):
    if row is None:
        return num("–", "group"), num("–"), num("–")
    star = '<span class="star">*</span>' if row.fitted(name) and row.difference(name) is not None else ""
    return (
        num(shown(name, row.figure(name)), "group"),
        num(printed(name, row.published(name)), "published"),
        f"{h(words.percent(row.difference(name)))}{star}\0num",
    )


def all_rows(scenario):
    """Every row with all that there is to say of it."""
    told = [f for f in CONFIGURATION if f in scenario.varied or f in ("tp", "pp")]
    told += [
        f
        for f in ("model", "seq", "microbatch_size")
        if f not in told and any(r.data.get(f) is not None for r in scenario.rows)
    ]
    told = [f for f in CONFIGURATION if f in told] + scenario.extra_fields
    costs = "unit_costs" in scenario.varied
    closed = scenario.has_closed_forms()
    names = {"microbatch_size": "size", "tp": "TP", "pp": "PP", "cp": "CP", "dp": "DP"}
    # What has closed forms is about these: the step's time, which stands anyway, says what throughput would.
    # One layer's forward says nothing of a schedule.
    aside = closed or scenario.has_published("tp_share")
    shown_alone = [] if aside else [name for name in FIGURES if scenario.has_figure(name)]
    metrics = [name for name in KEYS if name in shown_alone or scenario.has_published(name)]
    published = any(scenario.has_published(name) for name in metrics)
    heads = ["schedule", *(names.get(f, f) for f in told), *(["unit costs"] if costs else [])]
    heads += ["m", *(["kind"] if published else [])]
    groups = [("", len(heads))]
    for name in metrics:
        columns = _columns(scenario, name)
        title = TITLES[name]
        if scenario.unit_costs:
            title = UNIT_TITLES.get(name, title)
        groups.append((title, len(columns)))
        heads += columns
    rest = ["step, units" if scenario.unit_costs else "step, s", "TP bubble, %", "PP bubble, %"]
    honest = any(row.value("mfu") is not None for row in scenario.rows)
    chunks = "chunks" not in metrics and any(row.peak_chunks() is not None for row in scenario.rows)
    rest += (["MFU, %"] if honest else []) + (["peak chunks"] if chunks else [])
    groups.append((f"also {scenario.evidence}", len(rest)))
    rows = []
    for row in scenario.rows:
        cells = [h(row.schedule)]
        values = [row.data.get(field) for field in told]
        cells += [h(value) if isinstance(value, str) else num(value) for value in values]
        cells += [h(unit_costs(row.data) or "–")] if costs else []
        cells += [num(row.microbatches), *([_kind(row)] if published else [])]
        cells += [cell for name in metrics for cell in _figures(scenario, row, name)]
        rows.append(cells + _rest(row, honest, chunks))
    caption = f"All {words.count(len(rows), 'row')} of {scenario.id}; ours: {scenario.evidence}"
    return table([groups, [*heads, *rest]], rows, kind="rows", caption=caption)


def _columns(scenario, name):
    if not scenario.has_published(name):
        return ["ours"]
    # The difference in MFU is that in throughput over again.
    theirs = "closed form" if name in CLOSED_FORMS else "published"
    return ["ours", theirs, *(["diff., %"] if name != "mfu_paper" else [])]


def _figures(scenario, row, name):
    cells = [num(shown(name, row.figure(name)), "group")]
    if scenario.has_published(name):
        difference = row.difference(name)
        cells.append(num(printed(name, row.published(name)), "published"))
        cells.append(num("–" if difference is None else words.signed(100 * difference)))
    return cells[: len(_columns(scenario, name))]


def _rest(row, honest, chunks):
    def percent(share):
        return num("–" if share is None else f"{100 * share:.1f}")

    cells = [
        num(words.magnitude(row.value("step_time_s")), "group"),
        percent(row.bubble_share(1)),
        percent(row.bubble_share(2)),
    ]
    return cells + ([percent(row.value("mfu"))] if honest else []) + ([num(row.peak_chunks())] if chunks else [])


def _kind(row):
    if all(row.published(name) is None for name in KEYS):
        return "no published figure"
    if row.calibrated:
        return "calibrated"
    return "predicted †" if row.memory_calibrated and row.published("memory") is not None else "predicted"
