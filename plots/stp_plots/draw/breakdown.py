"""Where each rank's time goes: compute, waiting for its own all-reduces, other waits."""

import math

import numpy as np
from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import style

# From the bottom of a bar; they differ in lightness too.
PARTS = [("compute", "#8f979f"), ("TP bubble", "#882255"), ("PP bubble", "#ecd98b")]
MOST = 8  # panels


def representatives(experiment):
    """Per model, cluster and grid the first configuration, at its largest number of microbatches: DataFrames."""
    rows = experiment.rows[experiment.rows["rank_times"].map(len) > 0]
    chosen = {}
    for _, configuration in rows.groupby("configuration", sort=False):
        data = configuration["data"].iloc[0]
        largest = configuration["microbatches"].max()
        same = configuration if math.isnan(largest) else configuration[configuration["microbatches"] == largest]
        chosen.setdefault(tuple(words.hashable(data.get(field)) for field in ("model", "cluster", *words.AXES)), same)
    return list(chosen.values())


def breakdown(experiment, _colours):
    known = representatives(experiment)
    panels = known[:MOST]
    if not panels:
        return None
    columns = min(2, len(panels))
    figure = style.new_figure(style.FULL_WIDTH if columns > 1 else 7, 2.3 * math.ceil(len(panels) / columns) + 0.2)
    grid = style.panels(figure, len(panels), columns)
    for axes, panel in zip(grid.flat, panels):
        _draw(axes, panel)
        parts = [*panel["parts"].iloc[0], f"m {panel['m'].iloc[0]}"]
        axes.set_title(style.wrap(parts, 62, 3))
        axes.set_xlabel("pipeline rank, by schedule")
    for axes in grid[:, 0]:
        axes.set_ylabel(f"time of a step, {experiment.time_unit()}")
    style.legend(grid[0, -1], [Patch(facecolor=colour, label=name) for name, colour in PARTS])
    first = "; ".join(
        f"{row.schedule} {words.plain_percent(row.tp_bubble)} and {words.plain_percent(row.pp_bubble)}" for row in panels[0].head(6).itertuples()
    )
    count = experiment.rows["configuration"].nunique()
    of = f"of {count} configurations" if len(known) == 1 < count else "configuration of each model, cluster and grid"
    of += f", for the first {MOST} of {len(known)}" if len(known) > MOST else ""
    caption = (
        f"A bar per pipeline rank ({experiment.evidence}). TP bubble: the rank's compute waits for its own all-reduce (exposed TP "
        f"communication); PP bubble: all other idle time, such as for other pipeline "
        f"ranks, reductions of gradients and gathers of weights. Shown is the first {of}, at its "
        f"largest number of microbatches. TP and PP bubble of the first, of the rank that computes most: {first}."
    )
    alt = "Stacked bars of compute, TP bubble and PP bubble per rank and schedule."
    return style.Plot("breakdown", "Time of a step by rank", figure, caption, alt)


def _draw(axes, panel):
    x, ranks, middles, boxes = 0, [], [], [[] for _ in PARTS]
    for row in panel.itertuples():
        count = len(row.rank_times)
        half = 0.45 if count <= 16 else 0.5
        for rank, tops in enumerate(np.cumsum(row.rank_times, axis=1), start=x):
            for some, low, high in zip(boxes, [0, *tops], tops):
                some.append((rank - half, rank + half, low, high))
        step = math.ceil(count * len(panel) / 18)  # as many ranks are named as fit
        ranks += [(x + rank, str(rank)) for rank in range(0, count, step)]
        middles.append((x + (count - 1) / 2, style.clip(row.schedule, max(6, 60 // len(panel)))))
        x += count + 1
    for some, (_, colour) in zip(boxes, PARTS):
        style.add_boxes(axes, some, facecolor=colour)
    style.name_places(axes, ranks, fontsize=7, color=style.FAINT)
    axes.tick_params(axis="x", length=0, pad=13)
    axes.set_xticks([at for at, _ in middles], [label for _, label in middles])
    air = max(0, 5 - x) / 2  # keeps a single bar narrow
    axes.set_xlim(-1 - air, x - 1 + air)
    longest = max(times.sum(axis=1).max() for times in panel["rank_times"])
    axes.set_ylim(0, 1.05 * longest or 1)
    axes.yaxis.set_major_locator(style.ticks())
