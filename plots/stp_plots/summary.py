"""The tables of the summary: verdicts, marks, errors."""

from . import words
from .records import KEYS
from .tables import PAPER_TABLES, TITLES, anchor, h, num, table
from .values import dictionary, items, number, text

# Columns of the summary that it has only if any experiment has the figure.
FURTHER = {
    "idle_error_mean": "idle time error",
    "chunks_error_mean": "peak activations error",
    "tp_share_error_mean": "TP share error",
    "overlap_error_mean": "time together error",
}


def summary(scenarios):
    rows = []
    further = {
        key: head
        for key, head in FURTHER.items()
        if any(number(scenario.line.get(key)) is not None for scenario in scenarios)
    }
    for scenario in scenarios:
        line = scenario.line
        pairs = f"{text(line.get('pairs_right'))} of {text(line.get('pairs'))}" if line.get("pairs") else "–"
        rows.append(
            [
                f'<a href="#{anchor(scenario)}">{h(scenario.title)}</a>',
                h(scenario.evidence),
                num(scenario.size()),
                num(line.get("calibration_rows")),
                num(words.plain_percent(number(line.get("throughput_error_mean")), 2)),
                num(plain_points(line.get("gain_error_points_mean"))),
                num(words.plain_percent(number(line.get("memory_error_mean")), 2)),
                *(num(words.plain_percent(number(line.get(key)), 2)) for key in further),
                num(pairs),
                verdict(line.get("verdict")),
            ]
        )
    head = [
        "experiment",
        "evidence",
        "rows",
        "of these calibrated",
        "throughput error",
        "gain error, points",
        "memory error",
        *further.values(),
        "pairs in the right order",
        "verdict",
    ]
    return table(
        [head], rows, caption="Mean absolute errors over predicted rows, that is, those that did not calibrate"
    )


def by_table(scenarios):
    """Errors of predicted and of calibrated rows apart, per table of the paper and over all of them."""
    groups = {}  # (figure, table or "all", fitted): errors with their rows
    for scenario in scenarios:
        if scenario.line.get("verdict") == "not testable here":
            continue  # its rows stand elsewhere, too
        for row in scenario.rows:
            for figure in KEYS:
                error = row.difference(figure)
                if error is None:
                    continue
                cited = [name for name in row.tables() if PAPER_TABLES.get(name, figure) == figure]
                for name in (*cited, "all"):
                    rows = groups.setdefault((figure, name, row.fitted(figure)), {})
                    # Memory that is the same at every m is printed once.
                    same = (row.configuration.label, row.schedule, row.figure(figure), row.published(figure))
                    rows.setdefault(same if figure == "memory" else id(row), (error, row))
    lines = []
    order = {figure: place for place, figure in enumerate(KEYS)}
    for key in sorted(groups, key=lambda key: (order[key[0]], *key[1:])):
        (figure, name, fitted), found = key, groups[key]
        if name == "all" and sum(other[0] == figure and other[2] == fitted for other in groups) < 3:
            continue  # one table is all
        errors = list(found.values())
        error, row = max(errors, key=lambda one: abs(one[0]))
        lines.append(
            [
                h(TITLES[figure].partition(",")[0]),
                h("all tables" if name == "all" else name),
                h("calibrated" if fitted else "predicted"),
                num(len(errors)),
                num(words.plain_percent(sum(abs(one) for one, _ in errors) / len(errors), 2)),
                num(words.percent(error)),
                h(row.name()),
            ]
        )
    if not lines:
        return ""
    head = ["figure", "table", "rows", "number", "mean absolute error", "worst", "in row"]
    caption = "Errors by table of the paper, of predicted and calibrated rows apart"
    return table([head], lines, caption=caption, kind="compact")


def plain_points(value):
    return "–" if number(value) is None else f"{value:.2f}"


def verdict(value):
    name = {"reproduced": "good", "deviates": "bad"}.get(value, "neutral")
    return f'<strong class="{name}">{h(value)}</strong>'


MARK_NAMES = {
    "throughput_error_mean": "mean absolute error of throughput",
    "gain_error_points_mean": "mean absolute error of the gain, points",
    "memory_error_mean": "mean absolute error of peak memory",
    "idle_error_mean": "mean absolute error of idle time, against the closed form",
    "chunks_error_mean": "mean absolute error of peak activations, against the closed form",
    "tp_share_error_mean": "mean absolute error of TP communication's share of a forward",
    "overlap_error_worst": "largest error of a time together, from the published times alone",
    "pairs_right": "pairs of schedules in the paper's order",
}


def marks(scenario):
    """The marks of a scenario with their tolerances; empty if it has none."""
    rows = []
    for mark in items(scenario.line.get("marks")):
        mark = dictionary(mark)
        name, value, tolerance = str(mark.get("mark")), number(mark.get("value")), number(mark.get("tolerance"))
        if name == "pairs_right":
            limit, reached = f"all {text(tolerance)}", text(value)
        elif name == "gain_error_points_mean":
            limit, reached = f"at most {text(tolerance)}", plain_points(value)
        else:
            limit = "–" if tolerance is None else f"at most {100 * tolerance:g} %"
            reached = words.plain_percent(value, 2)
        met = mark.get("met")
        state = verdict_mark(met, value is None)
        rows.append([h(MARK_NAMES.get(name, name)), num(limit), num(reached), state])
    if not rows:
        return ""
    mark = "mark" if scenario.pairs else "mark (predicted rows)"
    return table([[mark, "tolerance", "reached", "result"]], rows, kind="compact")


def verdict_mark(met, empty):
    if empty and met:
        return "no figure to compare"
    return '<strong class="good">met</strong>' if met else '<strong class="bad">missed</strong>'


def errors(scenario):
    """Mean and worst error of predicted and of calibrated rows, from the summary."""
    rows = []
    metrics = [
        ("throughput", "throughput_error", False),
        ("gain", "gain_error_points", True),
        ("peak memory", "memory_error", False),
        ("idle time", "idle_error", False),
        ("peak activations", "chunks_error", False),
        ("TP share of a forward", "tp_share_error", False),
        ("time together, from the published times alone", "overlap_error", False),
    ]
    for name, key, in_points in metrics:
        for group, holder in (
            ("predicted", scenario.line),
            ("calibrated", dictionary(scenario.line.get("calibrated"))),
        ):
            mean, worst = number(holder.get(key + "_mean")), dictionary(holder.get(key + "_worst"))
            if mean is None:
                continue
            largest = number(worst.get("error"))
            write = plain_points if in_points else lambda share: words.plain_percent(share, 2)
            rows.append(
                [
                    h(name + (", points" if in_points else "")),
                    h(group),
                    num(write(mean)),
                    num(write(largest)),
                    h(worst.get("row")),
                ]
            )
    if not rows:
        return ""
    return table([["error of", "rows", "mean absolute", "largest", "in row"]], rows, kind="compact")
