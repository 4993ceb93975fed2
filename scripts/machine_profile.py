"""A hardware profile of the machine that bin/microbench ran on, each value with how well it fits what was measured.

Samples around which the machine was slower than usual (probe_slowdown) are left out where there are others."""

import math
import statistics

import packages  # noqa: F401, I001 - before what needs them
import numpy as np
from stp_plots.read import benchmarks
from stp_plots.words import plain_percent as percent

MICRO, GIGA, MEBI = 1e-6, 1e9, 1 << 20
ERROR_RATE = 0.05  # of an interval that goes from the least to the largest value
ANY_GROUP = 256  # ranks of a group on one machine, where memory is what connects them


def noisy_rows(content):
    """How many rows of bin/microbench's JSON are noisy, how many have too few repetitions to know (microbench/sampling.cc), and
    how many there are; rows without repetitions say nothing."""
    rows = [row for row in content["benchmarks"] if row.get("aggregate_name") == "noisy"]
    enough = [row for row in rows if 2 * 0.5 ** row["repetitions"] <= ERROR_RATE]
    return sum(row["real_time"] > 0 for row in enough), len(rows) - len(enough), len(rows)


class Unfit(Exception):
    """The measurements do not hold what a profile needs."""


class Rows:
    """Benchmarks by name, each with the median of its steady samples in seconds and its counters."""

    def __init__(self, content):
        self.context = content.get("context", {})
        if self.context.get("evidence") == "replayed":
            raise Unfit(f"its collectives were emulated, over the links of {self.context.get('peers')}; measure without --peers")
        below = float(self.context.get("steady_below", "inf"))
        self.rows = []
        for name, one in benchmarks.read(content, "").rows.items():
            if not one.seconds:
                continue
            slowdowns = one.counters.get("probe_slowdown", [1] * len(one.seconds))
            calm = [i for i, slowdown in enumerate(slowdowns) if slowdown <= below]
            steady = calm or range(len(one.seconds))
            row = {key: values[steady[len(steady) // 2]] for key, values in one.counters.items()}
            row["seconds"] = statistics.median(one.seconds[i] for i in steady)
            row["steady"] = bool(calm)
            for key in ("compute_rate", "communication_rate"):
                if key in row:
                    row[key] = statistics.median(one.counters[key][i] for i in steady)
            row["parts"] = name.split("/")
            self.rows.append(row)

    def of(self, *parts):
        """The rows whose names begin with these parts."""
        found = [row for row in self.rows if row["parts"][:len(parts)] == list(parts)]
        if not found:
            raise Unfit(f"there is no row {'/'.join(parts)}…; run bin/microbench without a filter")
        return found


def line(points):
    """Latency and bytes per second of time = latency + bytes / rate, by least squares of the relative error; and the mean
    of that error."""
    sizes, seconds = np.transpose(points)
    per_byte, latency = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    latency, per_byte = max(latency, 0.0), max(per_byte, 1e-15)
    return latency, 1 / per_byte, np.mean(np.abs((latency + sizes * per_byte) / seconds - 1))


def spread(values):
    """Mean deviation from the median, as a share of it."""
    middle = statistics.median(values)
    return statistics.mean(abs(value / middle - 1) for value in values)


def measured(what, **values):
    return {**values, "source": "measured by microbench: " + what}


def gemms(rows):
    """The GEMMs of one busy rank, and how much slower each of several busy ranks is."""
    alone = [row for row in rows.of("gemm") if row["busy"] == 1]
    shapes, seen = [], set()
    for row in alone:
        key = (row["parts"][3], row["m"], row["n"], row["k"])
        if key not in seen:
            seen.add(key)
            shapes.append({"product": key[0], "m": key[1], "n": key[2], "k": key[3], "us": round(row["seconds"] / MICRO, 3)})
    rate = {tuple(row["parts"][1:5]): 1 / row["seconds"] for row in alone}
    shares = {}
    for row in rows.of("gemm"):
        if row["busy"] > 1 and row["steady"]:
            shares.setdefault(int(row["busy"]), []).append(1 / row["seconds"] / rate[tuple(row["parts"][1:5])])
    best = max(2 * row["m"] * row["n"] * row["k"] / row["seconds"] for row in alone)
    return shapes, best, {busy: (statistics.median(some), spread(some)) for busy, some in shares.items()}


def shared_processors(rows, shares):
    """Rates by number of busy processors: measured alone and all busy, in between on the straight line."""
    count = int(rows.context.get("shared_processors", 0))
    if count == 0:
        return None
    at_all, off = shares.get(count, (1.0, 0.0))
    rates = [1.0] + [round(1 + (min(at_all, 1.0) - 1) * busy / (count - 1), 4) for busy in range(1, count)]
    return measured(f"the same GEMMs on 1 and on {count} ranks at once, {percent(off)} apart", rates=rates)


def all_reduces(rows, processors):
    """Bus bandwidths by group size and message. Times of more ranks than processors are brought to what they would be if
    each rank had one, for the simulator has ranks take turns."""
    groups = {}
    for row in rows.of("collective", "all_reduce"):
        ranks = int(row["ranks"])
        turns = max(1.0, ranks / processors) if processors else 1.0
        groups.setdefault(ranks, []).append((row["size"], row["seconds"] / turns))
    tables = []
    for ranks, points in sorted(groups.items()):
        sizes = []
        for size, seconds in sorted(points):
            if sizes and seconds < sizes[-1][1]:
                seconds = sizes[-1][1]  # a larger message that was faster: noise
            sizes.append((size, seconds))
        tables.append(measured(f"{ranks} ranks", ranks=ranks, sizes=[
            {"mib": size / MEBI, "bus_gb_per_s": size * 2 * (ranks - 1) / ranks / seconds / GIGA} for size, seconds in sizes]))
    smallest = min(groups)
    latency, rate, error = line(groups[smallest])
    return tables, latency, rate * 2 * (smallest - 1) / smallest, error


def contention(rows, shared):
    """Rates while a GEMM and an all-reduce overlap on ranks that share no processors."""
    if shared is not None:
        same = measured("none besides sharing processors, which the simulator models", value=1)
        return same, same
    overlaps = rows.of("overlap")
    return tuple(
        measured(f"{len(overlaps)} overlaps, {percent(spread([row[key] for row in overlaps]))} apart",
                 value=min(1.0, statistics.median(row[key] for row in overlaps)))
        for key in ("compute_rate", "communication_rate"))


def attention(rows, best, said):
    """Of the fastest GEMM's rate, by direction."""
    shares = {}
    for direction in ("forward", "backward"):
        rates = [row["flops"] / row["seconds"] for row in rows.of("attention") if direction in row["parts"]]
        shares[direction] = measured(f"{len(rates)} shapes, {percent(spread(rates))} apart", value=min(1.0, statistics.median(rates) / best))
        said.append(f"attention {direction}: {shares[direction]['value']:.2f} of that, {percent(spread(rates))} apart")
    return shares


def elementwise(rows, said):
    """One rate stands for all elementwise work: bytes over time of whole layers, so that what matters most weighs most."""
    units = rows.of("memory", "elementwise")
    total_seconds = sum(row["seconds"] for row in units)
    rate = sum(row["bytes"] for row in units) / total_seconds
    off = sum(abs(row["bytes"] / rate - row["seconds"]) for row in units) / total_seconds
    said.append(f"elementwise work: {rate / GIGA:.2f} GB/s, error {percent(off)} of its time, by unit and pass")
    return measured(f"all elementwise kernels of a layer and the head, mean error {percent(off)}", value=rate / GIGA)


def checked(profile):
    """The profile with five digits of every value."""
    for key, value in profile.items():
        if isinstance(value, dict) and isinstance(value.get("value"), float):
            if not math.isfinite(value["value"]) or value["value"] < 0:
                raise Unfit(f"{key} comes out as {value['value']}; measure again")
            value["value"] = float(f"{value['value']:.5g}")
    return profile


def make_profile(content, name):
    """The profile, and a line of words per part of the fit."""
    rows = Rows(content)
    context = rows.context
    processors = int(context.get("shared_processors", 0))
    shapes, best, shares = gemms(rows)
    shared = shared_processors(rows, shares)
    said = [f"{len(shapes)} GEMMs, at most {best / GIGA:.1f} GFLOP/s"]
    attention_rates, memory = attention(rows, best, said), elementwise(rows, said)
    tables, latency, bus, error = all_reduces(rows, processors)
    said.append(f"all-reduce: {latency / MICRO:.1f} us + bytes at {bus / GIGA:.2f} GB/s, mean error {percent(error)}")
    hop_latency, hop_rate, hop_error = line(
        [(row["size"], row["seconds"]) for row in rows.of("collective", "send_receive")])
    said.append(f"transfer: {hop_latency / MICRO:.1f} us + bytes at {hop_rate / GIGA:.2f} GB/s, mean error {percent(hop_error)}")
    host = {way: max(row["size"] / row["seconds"] for row in rows.of("collective", way)) for way in ("upload", "download")}
    launch = rows.of("executor", "launch")[0]["seconds"]
    if shared is not None:
        said.append("rates of busy processors: " + ", ".join(str(rate) for rate in shared["rates"]) + " of one alone")
    compute_rate, communication_rate = contention(rows, shared)

    hop = measured(f"two ranks, mean error {percent(hop_error)}", value=hop_latency / MICRO)
    link = measured("two ranks", value=hop_rate / GIGA)
    capacity = context.get("host_memory_capacity", "0 kB").split()
    memory_gb = float(capacity[0]) * 1024 / GIGA if capacity[0].isdigit() and float(capacity[0]) > 0 else 1
    profile = {
        "name": name,
        "accelerator": context.get("host_processor_model_name", context.get("backend", "unknown")),
        "gpus_per_node": {"value": ANY_GROUP, "source": "ranks share one machine's memory"},
        "sms": {"value": 1, "source": "GEMMs are measured; no model of the chip is needed"},
        "peak_tflops": measured("the fastest GEMM, by one rank", value=best / 1e12),
        "gemm_efficiency": {"value": 1, "source": "of the fastest GEMM"},
        "gemm_overhead_k": {"value": 0, "source": "GEMMs are measured"},
        "gemm_measured": measured("medians, one rank busy", shapes=shapes),
        "attention_forward_efficiency": attention_rates["forward"],
        "attention_backward_efficiency": attention_rates["backward"],
        "memory_gb_per_s": memory,
        "memory_gb": {"value": memory_gb, "source": "the operating system"},
        "kernel_overhead_us": measured("launches of a kernel that does nothing", value=launch / MICRO),
        "elementwise_factor": {"value": 1, "source": "the suite's own kernels"},
        "all_reduce_latency_us": measured(f"two ranks, mean error {percent(error)}", value=latency / MICRO),
        "all_reduce_hop_latency_us": {"value": 0, "source": "inside the latency"},
        "all_reduce_bus_gb_per_s": measured("two ranks", value=bus / GIGA),
        "all_reduce_measured": tables,
        "p2p_within_node_latency_us": hop,
        "p2p_within_node_gb_per_s": link,
        "p2p_between_nodes_latency_us": hop,
        "p2p_between_nodes_gb_per_s": link,
        "host_to_device_gb_per_s": measured("uploads", value=host["upload"] / GIGA),
        "device_to_host_gb_per_s": measured("downloads", value=host["download"] / GIGA),
        "contention_compute": compute_rate,
        "contention_all_reduce": communication_rate,
    }
    if shared is not None:
        profile["shared_processors"] = shared
    return checked(profile), said
