"""Throughput, step time, gain over the baseline, peak activation memory and TP communication, as bars."""

import math

from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import sensitivity, style
from stp_plots.draw.bars import Bar, Section, figure
from stp_plots.judge import errors
from stp_plots.judge import memory as memory_of
from stp_plots.read.records import QUANTITIES


def by_configuration(frame, schedules, colours, group="m"):
    """A section per configuration, in it a group per number of microbatches and a bar per schedule. `frame` may have `low` and
    `high`."""
    sections, by_index = [], {row.Index: row for row in frame.itertuples()}
    for _, configuration in frame.groupby("configuration", sort=False):
        groups = []
        for label, rows in configuration.sort_values("microbatches", kind="stable").groupby(group, sort=False):
            rows = sorted((by_index[index] for index in rows.index), key=lambda row: schedules.index(row.schedule))
            groups.append((label, [_bar(row, colours[row.schedule]) for row in rows]))
        sections.append(Section(configuration["parts"].iloc[0], groups))
    return sections


def _bar(row, colour):
    return Bar(colour, row.ours, row.published, row.calibrated, getattr(row, "low", math.nan), getattr(row, "high", math.nan))


def legend(experiment, frame, colours):
    handles = style.schedule_handles([name for name in experiment.schedules if name in set(frame["schedule"])], colours)
    handles += [style.published_handle()] if frame["published"].notna().any() else []
    return handles + ([style.calibrated_handle()] if frame["calibrated"].any() else [])


def notes(experiment, frame):
    """Sentences that explain the symbols of the plot."""
    text = ""
    if frame["calibrated"].any():
        text += " Hatched bars are calibrated: the cost model was fitted to these rows, so their agreement is no evidence."
    if frame["published"].notna().any() and (frame["published"].isna() & frame["ours"].notna()).any():
        text += " Bars without a diamond have no published value."
    if (experiment.rows["repeats"].map(len) > 1).any():
        text += " Thin lines span all repeats."
    return text


def diamonds(experiment):
    """What they stand for, in words."""
    return "diamonds: published for " + ("a configuration that, as far as the publication says, is this one" if experiment.alone else "the same configuration")


def throughput(experiment, colours):
    frame = experiment.figure("throughput").copy()
    repeated = [(row.ours * row.step_time / max(row.repeats), row.ours * row.step_time / min(row.repeats))
                if len(row.repeats) > 1 else (math.nan, math.nan) for row in frame.itertuples()]  # fmt: skip
    frame["low"], frame["high"] = zip(*repeated)
    if experiment.sensitivity is not None:
        frame.update(experiment.sensitivity.throughput_bands(), overwrite=False)
    caption = (
        f"Bars: {experiment.evidence}; {diamonds(experiment)}. Every row of bars has its own scale, from "
        "zero." + _derived(experiment) + notes(experiment, frame) + sensitivity.note(experiment) + errors.note(experiment, "throughput")
    )
    drawn = figure(by_configuration(frame, experiment.schedules, colours), legend(experiment, frame, colours), "throughput, samples/s",
                   "microbatches per step, by configuration")  # fmt: skip
    alt = "Bar chart of throughput per schedule and configuration, with published values marked."
    return style.Plot("throughput", "Throughput", drawn, caption, alt + errors.note(experiment, "throughput"))


def _derived(experiment):
    return " Published is the time of a step; its throughput is computed from it." if experiment.has_published("time") else ""


def step_time(experiment, colours):
    frame = experiment.rows.dropna(subset=["step_time"]).assign(published=math.nan, calibrated=False)
    frame["ours"] = frame["step_time"]
    ends = [(min(times), max(times)) if len(times) > 1 else (math.nan, math.nan) for times in frame["repeats"]]
    frame["low"], frame["high"] = zip(*ends)
    fastest = frame.loc[frame["ours"].idxmin()]
    caption = f"Time of one step ({experiment.evidence}); shorter is better. No time of these rows is published." + notes(experiment, frame)
    if len(frame) > 1:
        fits = memory_of.verdict(fastest["data"])
        caption += f" Shortest: {words.magnitude(fastest['ours'])} {experiment.time_unit()} ({fastest['name']}{fits and '; ' + fits})."
    drawn = figure(by_configuration(frame, experiment.schedules, colours), legend(experiment, frame, colours),
                   f"step time, {experiment.time_unit()}", "microbatches per step, by configuration")  # fmt: skip
    return style.Plot("step-time", "Step time", drawn, caption, "Bar chart of step time per schedule and configuration.")


def gain(experiment, colours):
    frame = experiment.figure("gain")
    if frame.empty:
        return None
    if experiment.sensitivity is not None:
        frame = frame.join(experiment.sensitivity.gain_bands())
    over = style.clip(experiment.baseline, 20)
    caption = (
        f"Throughput gained over {experiment.baseline} in the same configuration; all bars have one scale. "
        + ("This is the claim under test: an" if frame["published"].notna().any() and not experiment.alone else "An") + " error that all schedules share cancels here."
        + notes(experiment, frame) + sensitivity.note(experiment) + errors.gain_note(experiment)
    )  # fmt: skip
    drawn = figure(by_configuration(frame, experiment.schedules, colours), legend(experiment, frame, colours), f"gain over {over}, %",
                   "microbatches per step, by configuration", signed=True, shared=True)  # fmt: skip
    alt = f"Bar chart of the gain over {experiment.baseline} per schedule and configuration." + errors.gain_note(experiment)
    return style.Plot("gain", f"Gain over {experiment.baseline}", drawn, caption, alt)


def memory(experiment, colours):
    frame = experiment.figure("memory").copy()
    # One group stands for all numbers of microbatches where memory does not depend on them.
    alike = frame.groupby(["configuration", "schedule"])[["ours", "published"]].nunique().max(axis=1).groupby("configuration").max()
    frame["m_label"] = [row.m if alike[row.configuration] > 1 else "" for row in frame.itertuples()]
    frame = frame.drop_duplicates(["configuration", "schedule", "m_label"])
    published = f"; {diamonds(experiment)}" if frame["published"].notna().any() else ""
    caption = (
        f"Peak memory of activations, without weights, gradients and optimizer state, of the rank with most, in decimal gigabytes{published}. One group stands for all numbers of "
        "microbatches unless they are given." + notes(experiment, frame) + errors.note(experiment, "memory")
    )
    drawn = figure(by_configuration(frame, experiment.schedules, colours, "m_label"), legend(experiment, frame, colours), "peak activations, GB")
    alt = "Bar chart of peak activation memory per schedule and configuration." + errors.note(experiment, "memory")
    return style.Plot("memory", "Peak activation memory", drawn, caption, alt)


def tp_share(experiment, _colours):
    """A section per model, cluster and setting, a bar per size of the tensor-parallel group."""
    frame = experiment.figure("tp_share").dropna(subset=["ours"])
    if frame.empty:
        return None
    scale, sections = QUANTITIES["tp_share"].scale, {}
    for row in frame.itertuples():
        parts = [words.text(row.data.get("model")), f"on {words.text(row.data.get('cluster'))}", f"s {words.text(row.data.get('seq'))}"]
        parts += row.parts[len(row.base_parts) :]
        group = (f"TP{words.text(row.data.get('tp'))}\n{scale * row.ours:.1f} %", [Bar("#882255", scale * row.ours, scale * row.published)])
        sections.setdefault(tuple(parts), Section(parts, [])).groups.append(group)
    handles = [Patch(facecolor="#882255", label=f"ours, {experiment.evidence}"), style.published_handle()]
    drawn = figure(list(sections.values()), handles, "all-reduces, % of a forward")
    caption = (
        "Share of one layer's forward that its two all-reduces take where nothing overlaps them. Bars without a diamond have no "
        "published value." + errors.note(experiment, "tp_share")
    )
    alt = "Bar chart of the share of TP communication in a layer's forward, by size of the tensor-parallel group."
    return style.Plot("tp-share", "TP communication in a forward", drawn, caption, alt)
