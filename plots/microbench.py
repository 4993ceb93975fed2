#!/usr/bin/env python3
"""Draws the JSON of bin/microbench: GEMMs by size, collectives by message, and both at once; prints a table of the latter.

    microbench.py MICROBENCH.json PLOT.png

Points are medians, bars their 95 % intervals (as the file's low95 and high95 rows say); hollow points are noisy. Axes of
rates and times start at zero. Exits with 1 and one line on stderr if there is nothing to draw, or the plot cannot be written.
"""

import sys
import textwrap

from stp_plots import packages  # noqa: F401, I001 - before what needs them
import pandas as pd
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, NullFormatter
from stp_plots.draw import one_plot, style
from stp_plots.files import InputError, ReportError
from stp_plots.judge import compare_benchmarks, overlapped
from stp_plots.judge.statistics import Rule
from stp_plots.page.screen import beside_text
from stp_plots.read import benchmarks

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288"]


def aggregates(content):
    """By run: the parts of its name, the counters of its median, `median`, `low95` and `high95` in seconds, `noisy`."""
    rows = pd.DataFrame(content.get("benchmarks", []))
    rows = rows[rows["run_type"] == "aggregate"] if "run_type" in rows else rows
    if rows.empty:
        raise ReportError("holds no aggregates of bin/microbench; run it with at least two repetitions")
    rows["seconds"] = rows["real_time"] * rows["time_unit"].map(benchmarks.SECONDS)
    times = rows.pivot(index="run_name", columns="aggregate_name", values="seconds")[["median", "low95", "high95", "noisy"]]
    counters = rows[rows["aggregate_name"] == "median"].set_index("run_name")
    found = counters.join(times.assign(noisy=times["noisy"] > 0).dropna(), how="inner")
    return found.assign(parts=found.index.str.split("/"), family=found.index.str.split("/").str[0])


def points(axes, rows, x, work, label, colour, line="-"):
    """The rate of doing `work` against x, with the interval of its median."""
    rows = rows.assign(x=x, work=work).sort_values("x")
    rate = rows["work"] / rows["median"]
    ends = [rate - rows["work"] / rows["high95"], rows["work"] / rows["low95"] - rate]
    axes.errorbar(rows["x"], rate, ends, color=colour, linestyle=line, linewidth=1, capsize=2, label=label)
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
    axes.xaxis.set_minor_formatter(NullFormatter())  # within one power of ten it would be mathtext


def draw_collectives(axes, rows):
    rows = rows.dropna(subset=["busbw"]).assign(call=rows["parts"].str[1].str.replace("_", "-"))
    calls, sizes = ([*dict.fromkeys(rows[column].sort_values())] for column in ("call", "ranks"))
    for (call, ranks), group in rows.groupby(["call", "ranks"]):
        bus = group["size"] * group["busbw"] / group["algbw"] / 1e9
        points(axes, group, group["size"], bus, f"{call}, {ranks:.0f} ranks", COLOURS[calls.index(call) % len(COLOURS)],
               ("-", "--", ":", "-.")[sizes.index(ranks) % 4])
    axes.set(xscale="log", xlabel="message, bytes", ylabel="bus bandwidth, GB/s", title="collectives")
    axes.xaxis.set_major_formatter(EngFormatter())


def draw_overlap(axes, rows):
    """Alone one after the other, both at once, and the longer alone: what hiding the shorter whole would leave."""
    rows = [row for row in rows if not row.setting] or rows
    for at, row in enumerate(rows):
        gemm, reduce, together = (1e3 * seconds for seconds in (row.gemm_s, row.reduce_s, row.together_s))
        axes.bar(at - 0.2, gemm, 0.38, color=COLOURS[0])
        axes.bar(at - 0.2, reduce, 0.38, bottom=gemm, color=COLOURS[4])
        axes.bar(at + 0.2, together, 0.38, color=COLOURS[2], alpha=0.5 if row.noisy or not row.interval_s else 1)
        low, high = row.interval_s or (row.together_s, row.together_s)
        axes.errorbar(at + 0.2, together, [[together - 1e3 * low], [1e3 * high - together]], color="black", linewidth=1, capsize=2)
        axes.hlines(max(gemm, reduce), at, at + 0.4, color=COLOURS[1], linewidth=2, zorder=3)
        axes.annotate(f"{100 * row.hidden:.0f} %" if row.known else "?", (at, max(gemm + reduce, 1e3 * high)), (0, 3), textcoords="offset points",
                      ha="center", fontsize=7)
    axes.set(ylabel="time, ms", title="a GEMM and an all-reduce: above the bars, the share of the all-reduce that is hidden (?: not known)")
    labels = [f"{row.name.split()[-1]}{f' {row.setting}' if row.setting else ''}\n{row.ranks} ranks{' *' if row.shared else ''}\n"
              f"{row.size / 2**20:.4g} MiB" for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=7)
    names = {"GEMM alone": 0, "all-reduce alone": 4, "both at once\n(pale: noisy)": 2, "if the shorter\nwere hidden whole": 1}
    style.legend(axes, [Patch(facecolor=COLOURS[colour], label=name) for name, colour in names.items()])
    if any(row.shared for row in rows):
        axes.set_xlabel("* more ranks than cores", fontsize=7)


def draw(content):
    machine, beside = overlaps(content)
    print(beside_text([("", machine, beside)]), end="", flush=True)
    rows = aggregates(content)
    figure = style.new_figure(13, 9)
    parts = {"gemm": (draw_gemms, rows[rows["family"] == "gemm"]), "collective": (draw_collectives, rows[rows["family"] == "collective"]),
             "overlap": (draw_overlap, beside)}  # fmt: skip
    measured = [name for name, (_, some) in parts.items() if len(some) > 0]
    if not measured:
        raise ReportError("holds nothing to draw: no benchmark of gemm, collective or overlap")
    alone = [name for name in measured if name != "overlap"]
    mosaic = [alone, ["overlap"] * max(1, len(alone))] if "overlap" in measured else [alone]
    grid = figure.subplot_mosaic([line for line in mosaic if line])
    for name in measured:
        draw_part, some = parts[name]
        draw_part(grid[name], some)
        grid[name].set_ylim(0, None)
        if not grid[name].get_legend():
            grid[name].legend(fontsize=7)
    said = [f"{machine}: {content.get('context', {}).get('evidence', 'measured')}; medians with 95 % intervals, hollow or pale where noisy"]
    said += [textwrap.fill(overlapped.answer(machine, beside), 160)] if beside else []
    figure.suptitle("\n".join(said), fontsize=10)
    return figure


def overlaps(content):
    """The machine, and its GEMMs beside all-reduces, sorted."""
    try:
        file = benchmarks.read(content, "benchmarks")
    except InputError as error:
        raise ReportError(error) from None
    cells = {name: compare_benchmarks.cell_of(row, Rule())[0] for name, row in file.rows.items()}
    return overlapped.machine_of(file.context), overlapped.overlaps(cells)


def main(arguments=None):
    return one_plot.main("microbench.py", "Shows and draws the JSON of bin/microbench.", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
