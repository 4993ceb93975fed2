"""Draws the JSON of bin/microbench: products by size, collectives by message, and what overlapping the two costs.

    microbench.py MICROBENCH.json PLOT.png

Points are medians, bars their 95 % intervals (as the file's low95 and high95 rows say); hollow points are noisy. Axes of
rates and times start at zero. Exits with 1 and one line on stderr if there is nothing to draw, or the plot cannot be written.
"""

import argparse
import json
import sys
from pathlib import Path

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"]


def rows(content):
    """By name: seconds (median), low, high, noisy, and the median row's counters."""
    found = {}
    for row in content.get("benchmarks", []):
        if row.get("run_type") != "aggregate":
            continue
        entry = found.setdefault(row["run_name"], {"parts": row["run_name"].split("/")})
        kind = row["aggregate_name"]
        if kind == "median":
            entry.update(counters=row, seconds=row["real_time"] * SECONDS[row["time_unit"]])
        elif kind in ("low95", "high95"):
            entry[kind] = row["real_time"] * SECONDS[row["time_unit"]]
        elif kind == "noisy":
            entry[kind] = row["real_time"] > 0
    return [entry for entry in found.values() if "seconds" in entry]


def points(axes, entries, across, rate, label, colour):
    """Rates against what `across` says, with the interval of the median."""
    entries = sorted(entries, key=across)
    xs = [across(entry) for entry in entries]
    ys = [rate(entry, entry["seconds"]) for entry in entries]
    low = [y - rate(entry, entry["high95"]) for entry, y in zip(entries, ys)]
    high = [rate(entry, entry["low95"]) - y for entry, y in zip(entries, ys)]
    axes.errorbar(xs, ys, [low, high], color=colour, linewidth=1, capsize=2, marker="", label=label)
    for x, y, entry in zip(xs, ys, entries):
        axes.plot(x, y, "o", color=colour, markersize=5, markerfacecolor="white" if entry.get("noisy") else colour)


def family(entries, *parts):
    return [entry for entry in entries if entry["parts"][:len(parts)] == list(parts)]


def draw_products(axes, entries):
    flops = lambda entry: 2 * entry["counters"]["m"] * entry["counters"]["n"] * entry["counters"]["k"]
    for index, product in enumerate(("forward", "input_gradient", "weight_gradient")):
        for busy in sorted({entry["counters"]["busy"] for entry in family(entries, "gemm")}):
            some = [entry for entry in family(entries, "gemm")
                    if entry["parts"][3] == product and entry["counters"]["busy"] == busy]
            alone = busy == 1
            if some:
                points(axes, some, flops, lambda entry, seconds: flops(entry) / seconds / 1e9,
                       f"{product.replace('_', ' ')}, {'1 rank' if alone else f'{busy:.0f} ranks at once'}",
                       COLOURS[index + (0 if alone else 3)])
    axes.set(xscale="log", xlabel="operations of a product", ylabel="GFLOP/s of a rank", title="matrix products")


def draw_collectives(axes, entries):
    index = 0
    for call in ("all_reduce", "all_gather", "reduce_scatter", "send_receive"):
        for ranks in sorted({entry["counters"]["ranks"] for entry in family(entries, "collective", call)}):
            some = [entry for entry in family(entries, "collective", call) if entry["counters"]["ranks"] == ranks]
            ratio = lambda entry: entry["counters"]["busbw"] / entry["counters"]["algbw"]
            points(axes, some, lambda entry: entry["counters"]["size"],
                   lambda entry, seconds: entry["counters"]["size"] / seconds / 1e9 * ratio(entry),
                   f"{call.replace('_', '-')}, {ranks:.0f} ranks", COLOURS[index % len(COLOURS)])
            index += 1
    axes.set(xscale="log", xlabel="message, bytes", ylabel="bus bandwidth, GB/s", title="collectives")


def draw_overlap(axes, entries):
    """Alone one after the other, and together: what is saved, and what of the all-reduce stays exposed."""
    def order(entry):  # rows stand in the file as they were drawn by lot
        return entry["parts"][1:3], entry["counters"]["ranks"], entry["counters"]["size"]

    some = sorted(family(entries, "overlap"), key=order)
    for place, entry in enumerate(some):
        counters = entry["counters"]
        compute, communication = counters["compute_alone_us"] / 1e3, counters["communication_alone_us"] / 1e3
        axes.bar(place - 0.2, compute, 0.38, color=COLOURS[0], label="product alone" if place == 0 else None)
        axes.bar(place - 0.2, communication, 0.38, bottom=compute, color=COLOURS[4],
                 label="all-reduce alone" if place == 0 else None)
        axes.bar(place + 0.2, 1e3 * entry["seconds"], 0.38, color=COLOURS[2], alpha=0.5 if entry.get("noisy") else 1,
                 label="both together" if place == 0 else None)
        low, high = 1e3 * (entry["seconds"] - entry["low95"]), 1e3 * (entry["high95"] - entry["seconds"])
        axes.errorbar(place + 0.2, 1e3 * entry["seconds"], [[low], [high]], color="black", linewidth=1, capsize=2)
    axes.set(ylabel="ms", title="a product and an all-reduce, one after the other and together")
    axes.set_xticks(range(len(some)), [f"{entry['parts'][2]}\n{entry['counters']['ranks']:.0f} ranks\n"
                                       f"{entry['counters']['size'] / 2**20:g} MiB" for entry in some], fontsize=7)


def draw(content, entries, out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13, 9), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    parts = [(grid[0, 0], "gemm", draw_products), (grid[0, 1], "collective", draw_collectives),
             (grid[1, :], "overlap", draw_overlap)]
    for place, name, draw_part in parts:
        axes = figure.add_subplot(place)
        if not family(entries, name):
            axes.set_axis_off()
            axes.set_title(f"{name}: not measured")
            continue
        draw_part(axes, entries)
        axes.set_ylim(0, None)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    context = content.get("context", {})
    figure.suptitle(f"{context.get('host_processor_model_name', 'unknown machine')}, {context.get('backend', '?')}, "
                    f"{context.get('type', '?')}: measured; medians with 95 % intervals, hollow or pale where noisy", fontsize=10)
    figure.savefig(out, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("measurements", type=Path)
    parser.add_argument("plot", type=Path)
    arguments = parser.parse_args()
    try:
        content = json.loads(arguments.measurements.read_text(encoding="utf-8"))
        entries = rows(content)
        if not entries:
            raise ValueError("holds no aggregates of bin/microbench; run it with two repetitions at the least")
        draw(content, entries, arguments.plot)
    except (OSError, ValueError, KeyError) as error:
        print(f"{arguments.measurements}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
