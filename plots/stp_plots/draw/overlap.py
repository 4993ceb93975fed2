"""A GEMM and an all-reduce, alone and together."""

import math

from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import bars, style
from stp_plots.draw.bars import NAN, Bar, Section
from stp_plots.words import Table, dictionary, number, text

SHAPES, TIMES = "#0072B2", "#009E73"
ALONE = {"gemm_s": "GEMM alone", "all_reduce_s": "all-reduce alone", "serial_s": "serial"}


def _part(pair, name):
    return dictionary(pair.get(name))


def _ms(holder, key):
    seconds = number(holder.get(key))
    return NAN if seconds is None else 1e3 * seconds


def fitted(experiment):
    """The profile's values that were solved from these pairs; empty if none."""
    return text(experiment.scenario.get("calibrated") or "")


def sections(experiment, pair):
    """Per time its bars: ours, with the published one marked."""
    theirs, figures, of_times = (_part(pair, name) for name in ("published", "figures", "from_published_times"))
    found = [(label.split(), [Bar(SHAPES, _ms(pair, key), _ms(theirs, key))]) for key, label in ALONE.items()]
    together = [Bar(SHAPES, _ms(figures, "together_s"), _ms(theirs, "together_s"))]
    if of_times:
        together.insert(0, Bar(TIMES, _ms(of_times, "together_s"), _ms(theirs, "together_s"), bool(fitted(experiment))))
    found.append((["together"], together))
    return [Section([" ".join(parts)], [(_over(bar), [bar]) for bar in some]) for parts, some in found]


def _over(bar):
    """A bar's label: its time and its error."""
    off = "" if math.isnan(bar.published) or not bar.published else "\n" + words.percent(bar.value / bar.published - 1)
    return words.magnitude(bar.value) + off


def _errors(experiment):
    parts = []
    for pair in experiment.pairs:
        errors = {"from the published times alone": _part(pair, "from_published_times").get("together_error"),
                  "from the shapes": _part(pair, "difference").get("together_s")}  # fmt: skip
        found = [f"{words.percent(number(error), 2)} {name}" for name, error in errors.items() if number(error) is not None]
        parts += [f"{text(pair.get('name'))}: together {', '.join(found)}"] if found else []
    return f" Errors: {'; '.join(parts)}." if parts else ""


def plot(experiment, _colours):
    panels = [(pair, sections(experiment, pair)) for pair in experiment.pairs]
    panels = [(pair, some) for pair, some in panels
              if any(not math.isnan(bar.value) for one in some for bar in one.bars())]  # fmt: skip
    if not panels:
        return None
    columns = min(2, len(panels))
    figure = style.new_figure(style.FULL_WIDTH if columns > 1 else 7, 2.9 * math.ceil(len(panels) / columns))
    grid = style.panels(figure, len(panels), columns)
    for axes, (pair, some) in zip(grid.flat, panels):
        bars.draw(axes, some)
        axes.set_title(style.clip(text(pair.get("name")), 40))
        axes.set_ylabel("time, ms")
    handles = [Patch(facecolor=SHAPES, label=f"of the shapes,\n{style.clip(experiment.evidence, 24)}")]
    if any(_part(pair, "from_published_times") for pair in experiment.pairs):
        handles.append(Patch(facecolor=TIMES, label="of the published\ntimes alone"))
    known = any(_part(pair, "published") for pair in experiment.pairs)
    handles += [style.published_handle()] if known else []
    handles += [style.calibrated_handle()] if fitted(experiment) else []
    style.legend(grid[0, -1], handles)
    caption = f"Bars: {experiment.evidence}, in milliseconds{' and relative to the published time (diamond)' if known else ''}. Every panel has its own scale, from zero."
    caption += " Shapes are not published: they are inferred from the times alone, which therefore agree by construction." if known else ""
    caption += f" Calibrated: {fitted(experiment)}; their agreement is no evidence." if fitted(experiment) else ""
    alt = "Bar chart of a GEMM and an all-reduce: each alone, one after the other, together."
    return style.Plot("overlap", "Alone, one after the other, together", figure, caption + _errors(experiment), alt + _errors(experiment))


def _shape(pair):
    gemm, message = _part(pair, "gemm"), _part(pair, "all_reduce")
    size = number(message.get("bytes"))
    shape = " × ".join(text(gemm.get(key)) for key in "mnk")
    return f"{shape}, {words.NONE if size is None else f'{size / 2**20:g}'} MiB among {text(message.get('ranks'))}"


def table(experiment):
    """Every pair: published, predicted from the published times, predicted from the shapes."""
    def line(pair, source, times, figures, error):
        rates = [words.plain(number(figures.get(key)), 2) for key in ("compute_rate", "communication_rate")]
        slower = [words.percent(number(figures.get(key))) for key in ("compute_slowdown", "communication_slowdown")]
        error = NAN if number(error) is None else 100 * error
        return [text(pair.get("name")), source, *(words.plain(_ms(times, key), 3) for key in ALONE), words.plain(_ms(figures, "together_s"), 3),
                words.signed(error, 2), *slower, *rates, *(words.plain(_ms(figures, key), 3) for key in ("exposed_s", "saved_s"))]  # fmt: skip

    rows = []
    for pair in experiment.pairs:
        theirs, of_times = _part(pair, "published"), _part(pair, "from_published_times")
        rows += [line(pair, "published", theirs, theirs, None)] if theirs else []
        rows += [line(pair, "together from the published times alone", theirs, of_times, of_times.get("together_error"))] if of_times else []
        rows.append(line(pair, _shape(pair), pair, _part(pair, "figures"), _part(pair, "difference").get("together_s")))
    groups = {"alone, ms": ("GEMM", "all-reduce", "sum"), "together": ("ms", "diff., %"), "slower, whole time": ("GEMM", "all-reduce"),
              "speed while both run": ("GEMM", "all-reduce"), "ms": ("exposed", "saved")}  # fmt: skip
    head = ["pair", "times of", *((group, one) for group, names in groups.items() for one in names)]
    caption = (
        "Slower: over the whole of its time; while both run: share of its speed alone. Exposed: together less the GEMM alone. Saved: "
        "compared with one after the other."
    )
    return Table(head, rows, caption)


def description(experiment):
    cluster = experiment.scenario.get("cluster")
    sentences = f"{words.count(len(experiment.pairs), 'pair')} of a GEMM and an all-reduce, {experiment.evidence}"
    sentences += (f", on {text(cluster)}." if cluster is not None else ".") + " Without schedule and model."
    if fitted(experiment):
        sentences += " The rates were solved from these times: the verdict says that constant rates can explain them; it is no prediction."
    return sentences
