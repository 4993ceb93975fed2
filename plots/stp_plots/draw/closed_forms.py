"""Published closed forms against our counts, over the number of pipeline ranks."""

import string

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from stp_plots import words
from stp_plots.draw import style
from stp_plots.draw.breakdown import MOST, representatives
from stp_plots.words import Table
from stp_plots.read.records import CONFIGURATION, QUANTITIES, unit_costs

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHED = {"linestyle": (0, (3.2, 2.2)), "linewidth": 1.2}
PP = CONFIGURATION.index("pp")
FORMS = [name for name, quantity in QUANTITIES.items() if quantity.closed_form]


def legible(experiment):
    """Whether a breakdown of all grids is legible beside these plots."""
    return len(representatives(experiment)) <= MOST


def gather(experiment, name):
    """The rows that have a figure on both sides, with `pp`, and `panel`, of rows that differ in schedule and ranks only. Of several
    numbers of microbatches, the largest stays."""
    frame = experiment.figure(name).dropna(subset=["ours", "published"])
    frame = frame.assign(pp=[words.number(base[PP]) for base in frame["base"]]).dropna(subset=["pp"])
    rest = [(*base[:PP], *base[PP + 1 :], *setting) for base, setting in zip(frame["base"], frame["setting"])]
    # Chunks of different sizes have different costs, but their layers have the same.
    words_of = {}
    for key, data in zip(rest, frame["data"]):
        words_of.setdefault(key, {}).setdefault(unit_costs(data))
    titles = {}
    for key, data in zip(rest, frame["data"]):
        parts = list(words_of[key]) if len(words_of[key]) == 1 else [unit_costs({**data, "layers_per_chunk": None})]
        parts += [f"{field} {words.text(data.get(field))}" for field in (*CONFIGURATION, *experiment.settings)
                 if field not in ("pp", "unit_costs") and (field in experiment.varied or field in experiment.settings)]  # fmt: skip
        titles[key] = ", ".join(filter(None, parts)) or experiment.title
    frame["panel"] = pd.Series([list(titles).index(key) for key in rest], frame.index, dtype=int)
    frame["title"] = [titles[key] for key in rest]
    return frame.sort_values("microbatches", kind="stable").drop_duplicates(["panel", "schedule", "pp"], keep="last").sort_index()


def letter(panel):
    return string.ascii_lowercase[panel] if panel < 26 else str(panel + 1)


def closed_forms(experiment, colours):
    idle, chunks = (gather(experiment, name) for name in FORMS)
    if idle.empty and chunks.empty:
        return None
    present = {*idle["schedule"], *chunks["schedule"]}
    # Later lines are thinner, so that equal lines are both visible.
    looks = {
        name: {"color": colours[name], "marker": MARKERS[i % len(MARKERS)], "linewidth": max(1.0, 2.4 - 0.5 * i),
               "markersize": max(3.6, 6.0 - 0.6 * i), "markeredgecolor": "white", "markeredgewidth": 0.6}
        for i, name in enumerate(one for one in experiment.schedules if one in present)
    }  # fmt: skip
    panels = list(idle.groupby("panel"))
    wide = [["chunks", "chunks"]] if len(chunks) else []
    places = [str(panel) for panel, _ in panels] + ["."] * (len(panels) % 2)
    mosaic = np.array(places).reshape(-1, 2).tolist() + wide if len(panels) > 1 else [[place] for place in places] + [one[:1] for one in wide]
    figure = style.new_figure(style.FULL_WIDTH if len(panels) > 1 else 7, 2.5 * len(mosaic))
    grid = figure.subplot_mosaic(mosaic, empty_sentinel=".")
    for panel, rows in panels:
        axes = grid[str(panel)]
        _draw(axes, [rows], looks)
        title = rows["title"].iloc[0]
        axes.set_title(style.clip(f"{letter(panel)}: {title}" if len(panels) > 1 else title, 60))
        axes.set_ylabel(f"idle time, {experiment.time_unit()}")
    if len(chunks):
        _draw(grid["chunks"], [rows for _, rows in chunks.groupby("panel")], looks)
        everywhere = ", all unit costs" if chunks["panel"].nunique() > 1 else ""
        grid["chunks"].set_title("Peak activations of the rank with most of them" + everywhere)
        grid["chunks"].set_ylabel("chunks")
    handles = [Line2D([], [], **look, label=style.clip(name, 24)) for name, look in looks.items()]
    handles += [Line2D([], [], color=style.INK, linewidth=1.4, label="ours"), Line2D([], [], color=style.INK, **DASHED, label="closed form")]
    style.legend(grid[mosaic[0][-1] if mosaic[0][-1] != "." else mosaic[0][0]], handles)
    caption = (
        f"Solid: ours ({experiment.evidence}); dashed: the closed form. Where no dashed line is seen, it lies on the solid one. Every "
        "panel has its own scale, from zero; its title gives the costs of one chunk."
    )
    alt = f"Line plots of idle time and peak activations over the number of pipeline ranks, for {', '.join(looks)}, with closed forms."
    return style.Plot("closed-forms", "Ours against the closed forms", figure, caption, alt)


def _draw(axes, panels, looks):
    top, ranks = 0, set()
    for schedule, look in looks.items():
        lines = [rows[rows["schedule"] == schedule].sort_values("pp") for rows in panels]
        values = dict.fromkeys(tuple(line[["pp", "ours", "published"]].itertuples(index=False, name=None)) for line in lines)
        for points in filter(None, values):  # values that do not depend on costs are drawn once
            x, ours, closed = zip(*points)
            axes.plot(x, ours, **look, clip_on=False)  # a closed form of zero lies on the axis
            axes.plot(x, closed, color=look["color"], **DASHED, clip_on=False, zorder=2.2)
            top, ranks = max([top, *ours, *closed]), ranks.union(x)
    axes.set_ylim(0, 1.06 * top or 1)
    axes.yaxis.set_major_locator(style.ticks())
    axes.set_xlabel("pipeline ranks")
    if max(ranks) - min(ranks) <= 16:
        axes.set_xticks(sorted(ranks))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=16, steps=[1, 2, 4, 5, 10], integer=True))


def agreement(experiment):
    """Where ours and the closed form agree within the tolerance, by unit costs and schedule."""
    rows = []
    for name in FORMS:
        tolerance, frame = experiment.tolerance(name), gather(experiment, name).dropna(subset=["error"])
        for (panel, schedule), group in frame.groupby(["panel", "schedule"], sort=False):
            errors, within = group["error"], group["error"].abs() <= tolerance + 1e-9
            worst = group.loc[errors.abs().idxmax()]
            largest = words.percent(worst["error"]) if worst["published"] else f"{words.magnitude(worst['ours'])} for 0"
            costs = f"{letter(panel)}: {group['title'].iloc[0]}"
            cells = [f"{within.sum()} of {len(group)}", words.plain_percent(errors.abs().mean(), 2), largest, f"p = {worst['pp']:g}"]
            rows.append([QUANTITIES[name].title, costs, schedule, *cells])
    head = ["quantity", "unit costs", "schedule", "rows within the tolerance", "mean absolute error", "maximum", "at"]
    return Table(head, rows, "Agreement with the closed forms; where one is zero, any other value of ours counts as an error of 100 %")
