"""The parts of a gain: ablation of ordering and overlap. Its rows are of the baseline; the baseline braided (its name with
"-braided"); the schedule in question with its braids run one action after the other (`braid` sequential); the schedule."""

from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import bars, style
from stp_plots.words import Table

ORDERING, OVERLAP, BOTH = ("ordering alone", "#CC79A7"), ("overlap alone", "#56B4E9"), ("both", "#009E73")


def _label(row):
    return [*row.base_parts, f"m {row.m}"]


def cells(experiment):
    """Per configuration that has all four: baseline, ordering alone, overlap alone, both."""
    over, of = experiment.baseline, experiment.asked_gain.get("of")
    wanted = [(over, "static"), (of, "sequential"), (f"{over}-braided", "static"), (of, "static")]
    found = {}
    for row in experiment.figure("throughput").itertuples():
        if all(setting == "braid" for setting in experiment.settings):
            found.setdefault((row.base, row.m), {})[row.schedule, row.data.get("braid", "static")] = row
    return [[rows[one] for one in wanted] for rows in found.values() if rows.keys() >= {*wanted}]


def _means(found):
    parts = zip((ORDERING, OVERLAP, BOTH), zip(*([words.gain(row.ours, cell[0].ours) for row in cell[1:]] for cell in found)))
    means = ", ".join(f"{name} {words.signed(sum(gains) / len(gains), 2)} %" for (name, _), gains in parts)
    return f"Mean over {words.count(len(found), 'configuration')}: {means}."


def ablation(experiment, _colours):
    found = cells(experiment)
    sections = []
    for base, *rest in found:
        drawn = [bars.Bar(colour, words.gain(row.ours, base.ours)) for row, (_, colour) in zip(rest, (ORDERING, OVERLAP, BOTH))]
        drawn[-1].published = words.gain(rest[-1].published, base.published)
        sections.append(bars.Section(_label(base), [("", drawn)]))
    handles = [Patch(facecolor=colour, label=name) for name, colour in (ORDERING, OVERLAP, BOTH)]
    published = any(bar.published == bar.published for section in sections for bar in section.bars())
    handles += [style.published_handle()] if published else []
    figure = bars.figure(sections, handles, f"gain over {experiment.baseline}, %", signed=True)
    baseline, of = found[0][0].schedule, found[0][3].schedule
    caption = (
        f"Gain in throughput over {baseline}, {experiment.evidence}. Ordering alone: {of}'s order, the actions of each of its braids run "
        f"one after the other. Overlap alone: {baseline} with the forward and the backward of its steady state braided, one more "
        f"forward in the warm-up. Both: {of}. Diamonds: the published gain; there is no published ablation. " + _means(found)
    )
    alt = "Bar chart of the gain by ordering alone, by overlap alone and by both, per configuration. " + _means(found)
    return style.Plot("ablation", "Ablation: ordering and overlap", figure, caption, alt)


def ablation_table(experiment):
    """The gain with ordering added first, and with overlap added first; and the memory of each."""
    found, rows = cells(experiment), []
    memory = experiment.figure("memory")["ours"]
    for cell in found:
        base, order, braid, both = (row.ours for row in cell)
        gains = [(order, base), (both, order), (braid, base), (both, braid), (both, base), (cell[3].published, cell[0].published)]
        sizes = [words.plain(memory.get(cell[i].Index)) for i in (0, 2, 3)]
        rows.append([", ".join(_label(cell[0])), *(words.signed(words.gain(*pair), 2) for pair in gains), *sizes])
    if not rows:
        return None
    names = [found[0][i].schedule for i in (0, 2, 3)]
    head = ["configuration", ("ordering first, %", "ordering"), ("ordering first, %", "then overlap"), ("overlap first, %", "overlap"),
            ("overlap first, %", "then ordering"), ("both, %", "ours"), ("both, %", "published"),
            *(("peak activation memory, GB", name) for name in names)]  # fmt: skip
    return Table(head, rows, "Each gain is over the previous step, for both orders of adding the parts")
