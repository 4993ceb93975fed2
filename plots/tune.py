#!/usr/bin/env python3
"""Draws what `stp tune` simulated: throughput over memory, with the names of the first choice and of equals that none beats in both.

    tune.py TUNE.json PLOT.png

Exits with 1 and one line on stderr if the file holds no points, or the plot cannot be written.
"""

import sys

from stp_plots import packages  # noqa: F401, I001 - before what needs them
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from stp_plots.draw import one_plot, style
from stp_plots.files import ReportError

MOST_NAMES = 8


def corners(points):
    """The points that no other beats in both, from the fastest to the smallest."""
    kept = []
    for point in sorted(points, key=lambda one: (-one["tokens_per_s_per_gpu"], one["peak_total_gb"])):
        if not kept or point["peak_total_gb"] < kept[-1]["peak_total_gb"]:
            kept.append(point)
    return kept


def named(edge):
    """At most MOST_NAMES of the corners, the fastest and the smallest among them."""
    if len(edge) <= MOST_NAMES:
        return edge
    return [edge[round(i * (len(edge) - 1) / (MOST_NAMES - 1))] for i in range(MOST_NAMES)]


def places(points, limits):
    """For each point, where its label begins, in shares of the axes: in a column beside them. Lines to labels that are shortest in sum do
    not cross."""
    column = [(1.02, 0.95 - 0.08 * i) for i in range(len(points))]
    shares = [[value / limit for value, limit in zip(point, limits)] for point in points]
    return [column[i] for i in linear_sum_assignment(cdist(shares, column))[1]]


def draw(record):
    points = record.get("points", [])
    if not points:
        raise ReportError("holds no points; it is written by stp tune")
    figure = style.new_figure(style.FULL_WIDTH, 5)
    axes = figure.subplots()
    memory, rate = ([one[key] for one in points] for key in ("peak_total_gb", "tokens_per_s_per_gpu"))
    least = max(rate) / (1 + record["band"]["share"])
    axes.axhspan(least, max(rate), color=style.BAND, label="count as equal")
    axes.plot(memory, rate, "o", markersize=3, color=style.FAINT, label="simulated: fits, or may")
    edge = corners([one for one in points if one["tokens_per_s_per_gpu"] >= least])  # of slower ones most were left out
    axes.plot([one["peak_total_gb"] for one in edge], [one["tokens_per_s_per_gpu"] for one in edge], "-o", markersize=4,
              color=style.SCHEDULE_COLOURS["stp"], label="of equals simulated, none is faster in less memory")  # fmt: skip
    choice = record["best"][0]
    axes.plot(choice["peak_total_gb"], choice["tokens_per_s_per_gpu"], "D", color=style.SCHEDULE_COLOURS["zb-h2"], label="first choice")
    axes.axvline(record["gpu_memory_gb"], color=style.INK, linewidth=0.8, linestyle="--", label="memory of the GPU")
    limits = 1.03 * max([*memory, record["gpu_memory_gb"]]), 1.1 * max(rate)
    axes.set(xlim=(0, limits[0]), ylim=(0, limits[1]))
    corner = {one["name"]: (one["peak_total_gb"], one["tokens_per_s_per_gpu"]) for one in named(edge) if one["name"] != choice["name"]}
    corner[f"first choice: {choice['name']}"] = choice["peak_total_gb"], choice["tokens_per_s_per_gpu"]
    for (name, point), place in zip(corner.items(), places([*corner.values()], limits)):
        axes.annotate(name, point, xytext=place, textcoords="axes fraction", fontsize=7, color=style.INK, va="center",
                      arrowprops={"arrowstyle": "-", "relpos": (0, 0.5), "color": style.GRID, "linewidth": 0.7})  # fmt: skip
    axes.set(xlabel="memory of the fullest GPU, GB", ylabel="tokens/s/GPU")
    axes.set_title(f"{record['model']} on {record['gpus']} {record['cluster']}: {record['counts']['simulated']} of "
                   f"{record['counts']['configurations']} configurations simulated; {record['counts']['bounded']} are too slow by their bound")  # fmt: skip
    axes.legend(loc="lower left")
    return figure


def main(arguments=None):
    return one_plot.main("tune.py", "Draws what stp tune simulated.", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
