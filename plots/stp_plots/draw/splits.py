"""The parts of a gain: ablation of ordering and overlap, and the same rows with and without contention."""

from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import bars, style
from stp_plots.words import Table

ORDERING, OVERLAP, BOTH = ("ordering alone", "#CC79A7"), ("overlap alone", "#56B4E9"), ("both", "#009E73")
CONTENTION = {True: ("with contention", "#009E73"), False: ("without", "#A6DCC8")}


def _configurations(experiment, field, default):
    """Per configuration and m, apart from `field`: its rows by (schedule, value of `field`)."""
    found = {}
    for row in experiment.figure("throughput").itertuples():
        if all(setting == field for setting in experiment.settings):
            found.setdefault((row.base, row.m), {})[row.schedule, row.data.get(field, default)] = row
    return found.values()


def _label(row):
    return [*row.base_parts, f"m {row.m}"]


def _gain(of, over):
    return 100 * (of / over - 1) if over else bars.NAN


def _figure(sections, handles, ylabel):
    handles = [Patch(facecolor=colour, label=name) for name, colour in handles]
    drawn = [bar for section in sections for bar in section.bars()]
    handles += [style.published_handle()] if any(bar.published == bar.published for bar in drawn) else []
    handles += [style.calibrated_handle()] if any(bar.calibrated for bar in drawn) else []
    return bars.figure(sections, handles, ylabel, signed=True)


# Ablation: the baseline; the baseline braided (its name with "-braided"); the schedule in question with its braids run one action
# after the other (`braid` sequential); the schedule itself.


def cells(experiment):
    """Per configuration that has all four: baseline, ordering alone, overlap alone, both."""
    over, of = experiment.baseline, experiment.asked_gain.get("of")
    wanted = [(over, "static"), (of, "sequential"), (f"{over}-braided", "static"), (of, "static")]
    found = ([rows.get(one) for one in wanted] for rows in _configurations(experiment, "braid", "static"))
    return [cell for cell in found if None not in cell]


def _means(found):
    parts = zip((ORDERING, OVERLAP, BOTH), zip(*([_gain(row.ours, cell[0].ours) for row in cell[1:]] for cell in found)))
    means = ", ".join(f"{name} {words.signed(sum(gains) / len(gains), 2)} %" for (name, _), gains in parts)
    return f"Mean over {words.count(len(found), 'configuration')}: {means}."


def ablation(experiment, _colours):
    found = cells(experiment)
    sections = []
    for base, *rest in found:
        drawn = [bars.Bar(colour, _gain(row.ours, base.ours)) for row, (_, colour) in zip(rest, (ORDERING, OVERLAP, BOTH))]
        drawn[-1].published = _gain(rest[-1].published, base.published)
        sections.append(bars.Section(_label(base), [("", drawn)]))
    figure = _figure(sections, (ORDERING, OVERLAP, BOTH), f"gain over {experiment.baseline}, %")
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
        rows.append([", ".join(_label(cell[0])), *(words.signed(_gain(*pair), 2) for pair in gains), *sizes])
    if not rows:
        return None
    names = [found[0][i].schedule for i in (0, 2, 3)]
    head = ["configuration", ("ordering first, %", "ordering"), ("ordering first, %", "then overlap"), ("overlap first, %", "overlap"),
            ("overlap first, %", "then ordering"), ("both, %", "ours"), ("both, %", "published"),
            *(("peak activation memory, GB", name) for name in names)]  # fmt: skip
    return Table(head, rows, "Each gain is over the previous step, for both orders of adding the parts")


def contention_groups(experiment):
    """Per configuration its rows by (schedule, contention); empty unless every schedule has both everywhere."""
    found = [group for group in _configurations(experiment, "contention", None)]
    paired = all((name, not kind) in group for group in found for name, kind in group)
    known = all(isinstance(kind, bool) for group in found for _, kind in group)
    return found if paired and known and not experiment.unit_costs else []


def _mean_errors(found):
    """A sentence, over the configurations that nothing was fitted to."""
    kinds = {kind: [abs(group[name, kind].error) for group in found for name, here in group
                    if here == kind and not group[name, True].calibrated and group[name, kind].error == group[name, kind].error]
             for kind in CONTENTION}  # fmt: skip
    if not all(kinds.values()):
        return ""
    means = {kind: words.plain_percent(sum(errors) / len(errors), 2) for kind, errors in kinds.items()}
    return f"Mean absolute error of throughput over predicted configurations: {means[True]} with contention, {means[False]} without."


def contention(experiment, _colours):
    found, sections = contention_groups(experiment), []
    over, of = experiment.baseline, experiment.gained
    for group in found:
        if (over, True) not in group or (of, True) not in group or over == of:
            continue
        drawn = [
            bars.Bar(colour, _gain(group[of, kind].ours, group[over, kind].ours), _gain(group[of, kind].published, group[over, kind].published),
                     kind and (group[of, kind].calibrated or group[over, kind].calibrated))
            for kind, (_, colour) in CONTENTION.items()
        ]  # fmt: skip
        sections.append(bars.Section(_label(group[of, True]), [("", drawn)]))
    if not sections:
        return None
    figure = _figure(sections, CONTENTION.values(), f"gain of {of} over {over}, %")
    caption = (
        "Contention: while a compute op and an all-reduce of one rank overlap, each keeps a share of its speed. Without it the same "
        "profile, nothing fitted again. " + _mean_errors(found)
    )
    alt = "Bar chart of the gain with contention and without, per configuration, beside the published gain. " + _mean_errors(found)
    return style.Plot("contention", "With contention and without", figure, caption, alt)


def contention_table(experiment):
    """Throughput of every row: published, with contention, without."""
    found = contention_groups(experiment)
    head = ["configuration", "schedule", "published", *((kind, one) for kind, _ in CONTENTION.values() for one in ("ours", "diff., %"))]
    rows = []
    for group in found:
        for name in dict.fromkeys(schedule for schedule, _ in group):
            cells = [", ".join(_label(group[name, True])), name, words.published(group[name, True].published)]
            for kind in CONTENTION:
                row = group[name, kind]
                cells += [words.magnitude(row.ours), words.signed(100 * row.error) + ("*" if kind and row.calibrated else "")]
            rows.append(cells)
    return Table(head, rows, "Throughput, samples/s, with contention and without; * calibrated")
