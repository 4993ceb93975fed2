"""Sensitivity analysis: how far predictions move when each value of the hardware profile does.

scripts/sensitivity writes what is read here: per value of the profile the throughputs with it smaller and larger, nothing
fitted again.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from stp_plots import words
from stp_plots.draw import style
from stp_plots.files import ROOT, read_json
from stp_plots.words import dictionary, items, number

KEPT = ROOT / "results/reference/sensitivity"
KEY = ("model", "cluster", "seq", "microbatch_size", *words.AXES, "microbatches", "schedule")
SAME = 1e-6  # relative; beyond it the analysis is of another model
COLOURS = {"smaller": "#E69F00", "larger": "#0072B2"}
LIMIT = {"smaller": "", "larger": ",\nshares at most 1"}
MOST = 12  # values that are drawn


def _key(data):
    return tuple(words.hashable(data.get(field)) for field in KEY)


def attach(folder, experiments):
    """Gives experiments the analysis in their folder, or else the one that is kept, if it is of these predictions."""
    for experiment in experiments:
        for path in (Path(folder) / f"sensitivity-{experiment.id}.json", KEPT / f"{experiment.id}.json"):
            if path.is_file():
                found = Sensitivity(read_json(path), experiment)
                if found.fits():
                    experiment.sensitivity = found
                    break


class Sensitivity:
    """`changed`: throughput by the experiment's row, and by (value of the profile, side)."""

    def __init__(self, data, experiment):
        self.experiment = experiment
        self.change = f"{100 * (number(data.get('change')) or 0):g} %"
        self.fitted = {value["name"] for value in map(dictionary, items(data.get("values"))) if value.get("fitted") is True}
        by_key = {_key(row): row for row in items(data.get("rows"))}
        places = {_key(row): index for index, row in experiment.rows["data"].items()}
        ends = {
            places[key]: {(name, side): value for name, sides in row["changed"].items() for side, value in sides.items()}
            for key, row in by_key.items() if key in places
        }  # fmt: skip
        self.changed = pd.DataFrame(ends, dtype=float).T  # columns: (value, side)
        self.base = pd.Series({places[key]: number(row.get("throughput_samples_per_s")) for key, row in by_key.items() if key in places}, dtype=float)
        self.complete = bool(by_key) and len(self.changed) == len(by_key)

    def fits(self):
        """Whether it is of these predictions: all its rows exist, with the same values."""
        ours = self.experiment.figure("throughput")["ours"].reindex(self.base.index)
        return self.complete and bool(((ours - self.base).abs() <= SAME * self.base).all())

    def throughput_bands(self):
        """`low` and `high` by row: changes of the values, taken as independent."""
        return _bands(self.base, self.changed)

    def gain_bands(self):
        return _bands(*self._gains(self.experiment.figure("gain")))

    def _gains(self, rows):
        """The gains of `rows` over the baseline in per cent: as they are, and changed."""
        key = ["configuration", "m"]
        baseline = self.experiment.rows[self.experiment.rows["schedule"] == self.experiment.baseline]
        over = rows.join(baseline.reset_index().set_index(key)["index"], on=key)["index"]
        known = [of for of, base in over.items() if of in self.changed.index and base in self.changed.index]
        changed, base = self.changed.loc[over[known]].set_axis(known), self.base[over[known]].set_axis(known)
        return 100 * (self.base[known] / base - 1), 100 * (self.changed.loc[known] / changed - 1)

    def means(self):
        """Mean change of the gain in points and of throughput in per cent, by value and side; largest change of the gain first."""
        gains = self.experiment.figure("gain")
        base, changed = self._gains(gains[gains["schedule"] == self.experiment.gained])
        moved = {"gain": changed.sub(base, axis=0).mean().fillna(0), "throughput": 100 * (self.changed.div(self.base, axis=0) - 1).mean()}
        frame = pd.DataFrame(moved).unstack()
        return frame.loc[frame["gain"].abs().max(axis=1).sort_values(ascending=False, kind="stable").index]


def _bands(base, changed):
    """Root of the sum of squares of the largest fall, and of the largest rise, that each value causes."""
    moves = changed.sub(base, axis=0)
    falls = moves.clip(upper=0).groupby(level=0, axis=1).min()
    rises = moves.clip(lower=0).groupby(level=0, axis=1).max()
    return pd.DataFrame({"low": base - np.sqrt((falls**2).sum(axis=1)), "high": base + np.sqrt((rises**2).sum(axis=1))})


def tornado(experiment, _colours):
    """One bar per value of the profile, for the gain and for throughput."""
    if experiment.sensitivity is None:
        return None
    means, change = experiment.sensitivity.means().head(MOST), experiment.sensitivity.change
    figure = style.new_figure(style.FULL_WIDTH, 0.7 + 0.24 * len(means))
    grid = figure.subplots(1, 2, sharey=True)
    over = f"gain of {experiment.gained} over {experiment.baseline}"
    for axes, quantity, unit in zip(grid, ("gain", "throughput"), (f"{over}, points", "throughput, %")):
        for side, colour in COLOURS.items():
            axes.barh(range(len(means)), means[quantity, side], 0.7, color=colour, linewidth=0, zorder=2)
        axes.axvline(0, color=style.FAINT, linewidth=0.9, zorder=3)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.xaxis.set_major_locator(style.ticks(7))
        axes.set_xlabel(f"mean change of {unit}")
    fitted = experiment.sensitivity.fitted
    grid[0].set_yticks(range(len(means)), [name + (" (fitted)" if name in fitted else "") for name in means.index])
    grid[0].set_ylim(len(means) - 0.4, -0.6)
    style.legend(grid[1], [Patch(facecolor=colour, label=f"value {change}\n{side}{LIMIT[side]}") for side, colour in COLOURS.items()])
    first = ", ".join(
        f"{name} ({' and '.join(words.signed(row['gain', side], 2) for side in COLOURS)})" for name, row in means.head(3).iterrows()
    )
    caption = (
        f"Each value of the profile {change} smaller and larger, one at a time, nothing fitted again, at the largest m; shares at "
        f"most 1. Mean over the configurations. The gain depends most on {first} points."
    )
    alt = "Tornado plot of the mean change of gain and of throughput per value of the hardware profile. " + caption
    return style.Plot("sensitivity", "Sensitivity analysis", figure, caption, alt)


def note(experiment):
    """A sentence for plots that show the bands."""
    if experiment.sensitivity is None:
        return ""
    return (
        f" Thin lines at the largest m: the band from ±{experiment.sensitivity.change} on each value of the hardware profile (shares at "
        "most 1), fitted ones included and nothing fitted again, taken as independent."
    )
