#!/usr/bin/env python3
"""Draws what `stp tune` simulated: throughput over memory, with names where no configuration has more of one.

    tune.py TUNE.json PLOT.png

Exits with 1 and one line on stderr if the file holds no points, or the plot cannot be written.
"""

import sys

try:
    from stp_plots.draw import one_plot, style
    from stp_plots.files import ReportError
except ImportError as error:
    sys.exit(f"tune.py: numpy, pandas and matplotlib are needed: {error}")

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


def draw(record):
    points = record.get("points", [])
    if not points:
        raise ReportError("holds no points; it is written by stp tune")
    figure = style.new_figure(style.FULL_WIDTH, 5)
    axes = figure.subplots()
    memory, rate = ([one[key] for one in points] for key in ("peak_total_gb", "tokens_per_s_per_gpu"))
    axes.axhspan(max(rate) / (1 + record["band"]["share"]), max(rate), color=style.BAND, label="count as equal")
    axes.plot(memory, rate, "o", markersize=3, color=style.FAINT, label="simulated: fits, or may")
    edge = corners(points)
    axes.plot([one["peak_total_gb"] for one in edge], [one["tokens_per_s_per_gpu"] for one in edge], "-o", markersize=4,
              color=style.SCHEDULE_COLOURS["stp"], label="none is faster in less memory")  # fmt: skip
    choice = record["best"][0]
    axes.plot(choice["peak_total_gb"], choice["tokens_per_s_per_gpu"], "D", color=style.SCHEDULE_COLOURS["zb-h2"], label="first choice")
    axes.axvline(record["gpu_memory_gb"], color=style.INK, linewidth=0.8, linestyle="--", label="memory of the GPU")
    axes.set(xlim=(0, 1.03 * max([*memory, record["gpu_memory_gb"]])), ylim=(0, 1.1 * max(rate)))
    for i, one in enumerate(named(edge)):  # in a column of their own: corners lie close to each other
        axes.annotate(one["name"], (one["peak_total_gb"], one["tokens_per_s_per_gpu"]), xytext=(0.01, 0.8 - 0.08 * i),
                      textcoords="axes fraction", fontsize=7, color=style.INK, va="center",
                      arrowprops={"arrowstyle": "-", "color": style.GRID, "linewidth": 0.7})  # fmt: skip
    axes.set(xlabel="memory of the fullest GPU, GB", ylabel="tokens/s/GPU")
    axes.set_title(f"{record['model']} on {record['gpus']} {record['cluster']}: {record['counts']['simulated']} of "
                   f"{record['counts']['configurations']} configurations simulated; slower ones were left out by their bound")  # fmt: skip
    axes.legend(loc="lower left")
    return figure


def main(arguments=None):
    return one_plot.main("tune.py", "Draws what stp tune simulated.", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
