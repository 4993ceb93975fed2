"""A product and an all-reduce, alone and together, beside the paper."""

from matplotlib.patches import Patch

from . import bars, style, words
from .tables import h, num, table
from .values import dictionary, number, text

SHAPES, TIMES = "#0072B2", "#009E73"
ALONE = [("gemm_s", "product\nalone"), ("all_reduce_s", "all-reduce\nalone"), ("serial_s", "one after\nthe other")]


def ms(holder, key):
    seconds = number(holder.get(key))
    return None if seconds is None else 1e3 * seconds


def fitted(scenario):
    """What of the profile comes from these very pairs; empty if nothing."""
    return text(dictionary(scenario.record.get("scenario")).get("calibrated") or "")


def groups(scenario, pair):
    """Per time a label and its bars: ours, with the published one marked."""
    found = []
    for key, label in ALONE:
        found.append((label, [bars.Bar(0.5, SHAPES, ms(pair.data, key), ms(pair.published, key))]))
    published = ms(pair.published, "together_s")
    together = [bars.Bar(1, SHAPES, ms(pair.figures, "together_s"), published)]
    if pair.of_times:
        of_times = ms(pair.of_times, "together_s")
        together.insert(0, bars.Bar(0, TIMES, of_times, published, bool(fitted(scenario))))
    return [*found, ("together", together)]


def sentence(pair):
    """How far the times together are off."""
    told = []
    for name, error in (
        ("from the published times alone", pair.of_times.get("together_error")),
        ("from the shapes", pair.difference.get("together_s")),
    ):
        if number(error) is not None:
            told.append(f"{words.percent(error)} {name}")
    return f"{pair.name}: together {', '.join(told)}" if told else ""


def sentences(scenario):
    told = "; ".join(filter(None, map(sentence, scenario.pairs)))
    return f" Off the published time: {told}." if told else ""


def plot(scenario, colours):
    del colours  # there are no schedules
    panels = [bars.Panel(style.clip(pair.name, 40), groups(scenario, pair), 2) for pair in scenario.pairs]
    panels = [panel for panel in panels if any(bar.value is not None for _, drawn in panel.groups for bar in drawn)]
    if not panels:
        return None
    legend = [Patch(facecolor=SHAPES, label=f"of the shapes, {scenario.evidence}")]
    if any(pair.of_times for pair in scenario.pairs):
        legend.append(Patch(facecolor=TIMES, label="together from the published times alone"))
    if any(pair.published for pair in scenario.pairs):
        legend.append(style.published_handle())
    if fitted(scenario):
        legend.append(style.calibrated_handle())
    columns = style.balanced_columns(len(panels), 2)
    width = min(4.6, (style.FULL_WIDTH - 0.85 - 0.5 * (columns - 1)) / columns)
    grid = style.Grid(len(panels), columns, width, 2.2, legend, title=0.4, gap_y=0.95)
    for i, (axes, panel) in enumerate(zip(grid.axes, panels)):
        bars.draw_panel(axes, panel)
        for group, (_, drawn) in enumerate(panel.groups):
            for bar in drawn:
                if bar.value is None:
                    continue
                off = "" if not bar.published else "\n" + words.percent(bar.value / bar.published - 1)
                top = max(bar.value, bar.published or 0)
                axes.annotate(
                    words.magnitude(bar.value) + off,
                    (group * (panel.slots + bars.GROUP_GAP) + bar.slot, top),
                    (0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                    color=style.FAINT,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
                )
        axes.set_ylim(0, 1.12 * bars.extent(panel)[1])  # room for the numbers
        if grid.first_column(i):
            axes.set_ylabel("time, ms")
    caption = (
        f"Bars: {scenario.evidence}, in milliseconds and relative to the published time (diamond). Every panel has its own "
        "scale, from zero. Shapes are not published: they are inferred from the times alone, so that these agree by choice."
        if any(pair.published for pair in scenario.pairs)
        else f"Bars: {scenario.evidence}, in milliseconds. Every panel has its own scale, from zero."
    )
    if fitted(scenario):
        caption += f" Calibrated: {fitted(scenario)}; their agreement is no evidence."
    alt = "Bar chart of a product and an all-reduce: each alone, one after the other, together."
    return style.Plot(
        "overlap", "Alone, one after the other, together", grid.figure, caption + sentences(scenario), alt + sentences(scenario)
    )


def all_pairs(scenario):
    """Every pair: published, predicted from the published times, predicted from the shapes."""
    if not scenario.pairs:
        return ""
    rows = []
    for pair in scenario.pairs:
        if pair.published:
            rows.append([h(pair.name), h("published"), *_times(pair.published), *_figures(pair.published)])
        if pair.of_times:
            error = pair.of_times.get("together_error")
            cells = [*_times(pair.published), *_figures(pair.of_times, error)]
            rows.append([h(pair.name), h("together from the published times alone"), *cells])
        cells = [*_times(pair.data), *_figures(pair.figures, pair.difference.get("together_s"))]
        rows.append([h(pair.name), h(pair.shape()), *cells])
    head = [
        [("", 2), ("alone, ms", 3), ("together", 2), ("slower, whole time", 2), ("speed while both run", 2), ("ms", 2)],
        ["pair", "times of", "product", "all-reduce", "sum", "ms", "diff., %", "product", "all-reduce", "product",
         "all-reduce", "exposed", "saved"],
    ]  # fmt: skip
    caption = (
        "Slower: over the whole of its time; while both run: share of its speed alone. Exposed: together less the product "
        "alone. Saved: against one after the other."
    )
    return table(head, rows, caption=caption, kind="cross")


def _times(holder):
    return [
        num(_number(ms(holder, key), 3), "group" if place == 0 else "") for place, (key, _) in enumerate(ALONE)
    ]


def _figures(figures, error=None):
    return [
        num(_number(ms(figures, "together_s"), 3), "group"),
        num("–" if number(error) is None else words.signed(100 * error, 2)),
        num(words.percent(number(figures.get("compute_slowdown"))), "group"),
        num(words.percent(number(figures.get("communication_slowdown")))),
        num(_number(number(figures.get("compute_rate")), 2), "group"),
        num(_number(number(figures.get("communication_rate")), 2)),
        num(_number(ms(figures, "exposed_s"), 3), "group"),
        num(_number(ms(figures, "saved_s"), 3)),
    ]


def _number(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


def description(scenario):
    told = f"{words.count(len(scenario.pairs), 'pair')} of a matrix product and an all-reduce, {scenario.evidence}"
    cluster = dictionary(scenario.record.get("scenario")).get("cluster")
    told += f", on {text(cluster)}." if cluster is not None else "."
    told += " No schedule and no model: the physics under the schedules."
    if fitted(scenario):
        told += " The verdict says that constant rates are enough for these times, of which they were made; it predicts nothing."
    return told
