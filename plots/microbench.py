#!/usr/bin/env python3
"""Draws the JSON of bin/microbench: GEMMs by size, collectives by message, and what overlapping the two costs.

    microbench.py MICROBENCH.json PLOT.png

Points are medians, bars their 95 % intervals (as the file's low95 and high95 rows say); hollow points are noisy. Axes of
rates and times start at zero. Exits with 1 and one line on stderr if there is nothing to draw, or the plot cannot be written.
"""

import sys

try:
    import pandas as pd
    from matplotlib.patches import Patch
    from matplotlib.ticker import EngFormatter
    from stp_plots.draw import one_plot, style
    from stp_plots.files import ReportError
except ImportError as error:
    sys.exit(f"microbench.py: numpy, pandas and matplotlib are needed: {error}")

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288"]


def aggregates(content):
    """By run: the parts of its name, the counters of its median, `median`, `low95` and `high95` in seconds, `noisy`."""
    rows = pd.DataFrame(content.get("benchmarks", []))
    rows = rows[rows["run_type"] == "aggregate"] if "run_type" in rows else rows
    if rows.empty:
        raise ReportError("holds no aggregates of bin/microbench; run it with at least two repetitions")
    rows["seconds"] = rows["real_time"] * rows["time_unit"].map(SECONDS)
    times = rows.pivot(index="run_name", columns="aggregate_name", values="seconds")[["median", "low95", "high95", "noisy"]]
    counters = rows[rows["aggregate_name"] == "median"].set_index("run_name")
    found = counters.join(times.assign(noisy=times["noisy"] > 0).dropna(), how="inner")
    return found.assign(parts=found.index.str.split("/"), family=found.index.str.split("/").str[0])


def points(axes, rows, x, work, label, colour):
    """The rate of doing `work` against x, with the interval of its median."""
    rows = rows.assign(x=x, work=work).sort_values("x")
    rate = rows["work"] / rows["median"]
    ends = [rate - rows["work"] / rows["high95"], rows["work"] / rows["low95"] - rate]
    axes.errorbar(rows["x"], rate, ends, color=colour, linewidth=1, capsize=2, label=label)
    for noisy, group in rate.groupby(rows["noisy"]):
        face = {"markerfacecolor": "white"} if noisy else {}
        axes.plot(rows["x"][group.index], group, "o", color=colour, markersize=5, **face)


def draw_gemms(axes, rows):
    rows = rows.assign(flop=2 * rows["m"] * rows["n"] * rows["k"], kind=rows["parts"].str[3].str.replace("_", " "))
    for i, ((busy, kind), group) in enumerate(rows.groupby(["busy", "kind"])):
        label = f"{kind}, " + ("1 rank" if busy == 1 else f"{busy:.0f} ranks at once")
        points(axes, group, group["flop"], group["flop"] / 1e9, label, COLOURS[i % len(COLOURS)])
    axes.set(xscale="log", xlabel="size of a GEMM, FLOP", ylabel="rate of a rank, GFLOP/s", title="GEMMs")
    axes.xaxis.set_major_formatter(EngFormatter())


def draw_collectives(axes, rows):
    rows = rows.dropna(subset=["busbw"]).assign(call=rows["parts"].str[1].str.replace("_", "-"))
    for i, ((call, ranks), group) in enumerate(rows.groupby(["call", "ranks"])):
        bus = group["size"] * group["busbw"] / group["algbw"] / 1e9
        points(axes, group, group["size"], bus, f"{call}, {ranks:.0f} ranks", COLOURS[i % len(COLOURS)])
    axes.set(xscale="log", xlabel="message, bytes", ylabel="bus bandwidth, GB/s", title="collectives")
    axes.xaxis.set_major_formatter(EngFormatter())


def draw_overlap(axes, rows):
    """Alone one after the other, and together: the saved time, and the exposed part of the all-reduce."""
    rows = rows.assign(name=rows["parts"].str[2]).sort_values(["name", "ranks", "size"])
    at = range(len(rows))
    left, right = [place - 0.2 for place in at], [place + 0.2 for place in at]
    compute, communication = rows["compute_alone_us"] / 1e3, rows["communication_alone_us"] / 1e3
    axes.bar(left, compute, 0.38, color=COLOURS[0])
    axes.bar(left, communication, 0.38, bottom=compute, color=COLOURS[4])
    for place, row in zip(right, rows.itertuples()):
        axes.bar(place, 1e3 * row.median, 0.38, color=COLOURS[2], alpha=0.5 if row.noisy else 1)
    ends = 1e3 * pd.concat([rows["median"] - rows["low95"], rows["high95"] - rows["median"]], axis=1).T
    axes.errorbar(right, 1e3 * rows["median"], ends, color="black", linewidth=1, capsize=2, linestyle="none")
    axes.set(ylabel="time, ms", title="a GEMM and an all-reduce, one after the other and together")
    labels = [f"{row.name}\n{row.ranks:.0f} ranks\n{row.size / 2**10:g} KiB" for row in rows.itertuples(index=False)]
    axes.set_xticks(at, labels, fontsize=7)
    names = {"GEMM alone": 0, "all-reduce alone": 4, "both together": 2}
    axes.legend(handles=[Patch(facecolor=COLOURS[colour], label=name) for name, colour in names.items()], fontsize=7)


def draw(content):
    rows, context = aggregates(content), content.get("context", {})
    figure = style.new_figure(13, 9)
    grid = figure.subplot_mosaic([["gemm", "collective"], ["overlap", "overlap"]])
    for name, draw_part in (("gemm", draw_gemms), ("collective", draw_collectives), ("overlap", draw_overlap)):
        some = rows[rows["family"] == name]
        if some.empty:
            grid[name].set_axis_off()
            grid[name].set_title(f"{name}: not measured")
            continue
        draw_part(grid[name], some)
        grid[name].set_ylim(0, None)
        if not grid[name].get_legend():
            grid[name].legend(fontsize=7)
    machine = (context.get("host_processor_model_name", "unknown machine"), context.get("backend", "?"), context.get("type", "?"))
    figure.suptitle(f"{', '.join(machine)}: measured; medians with 95 % intervals, hollow or pale where noisy", fontsize=10)
    return figure


def main(arguments=None):
    return one_plot.main("microbench.py", "Draws the JSON of bin/microbench.", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
