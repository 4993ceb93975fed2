"""Comparison of hardware profiles: figures of the parts of a model and of whole schedules on each machine, and which property
causes a difference. All from `simulated`, which driver/profile_simulation.h describes."""

import math

import numpy as np

from stp_plots.judge.machine_answers import answers, band
from stp_plots.judge.statistics import relative, shapley
from stp_plots import words

# The groups of properties (lib/stp/cluster/profile_part.h).
PARTS = {
    "compute": "GEMM and attention rate",
    "memory": "memory rate of elementwise work",
    "all_reduce": "speed of all-reduces",
    "contention": "contention",
    "p2p": "transfers between stages",
    "launches": "overhead of a launch",
}


def machine_figures(machine):
    profile = machine["profile"]
    fields = {key: field for key, field in profile.items() if isinstance(field, dict) and "value" in field}
    values = {key: field["value"] for key, field in fields.items()}
    same = ("peak_tflops", "memory_gb_per_s", "memory_gb", "gpus_per_node", "p2p_within_node_gb_per_s",
            "p2p_between_nodes_gb_per_s", "kernel_overhead_us", "contention_compute", "contention_all_reduce")
    forward, backward = machine["attention_tflops"]
    return {"name": machine["name"], "accelerator": profile["accelerator"], **{key: values[key] for key in same},
            "attention_forward_tflops": forward, "attention_backward_tflops": backward,
            "contention_source": profile["contention_compute"]["source"],
            "values": len(fields), "uncertain": machine["uncertain"], "assumed": sorted(machine["assumed"]),
            "fitted": machine["fitted"], "fitted_to": profile.get("fitted_to") or None}


def gemm_figures(gemms, peaks):
    """Rates of one layer's GEMMs: each, and FLOPs over time of a unit's forward and of all. `peaks`: TFLOP/s by machine."""
    tflop = np.array([[2e-12 * gemm["m"] * gemm["n"] * gemm["k"]] for gemm in gemms])
    seconds = np.array([gemm["seconds"] for gemm in gemms])
    rates = []
    for of in ("attn.F", "mlp.F", "layer"):
        some = [of in (gemm["of"], "layer") for gemm in gemms]
        rate = tflop[some].sum(axis=0) / seconds[some].sum(axis=0)
        rates.append({"of": of, "tflops": rate.tolist(), "share_of_peak": (rate / peaks).tolist()})
    products = [{**{key: gemm[key] for key in ("of", "m", "n", "k")}, "tflops": rate.tolist()}
                for gemm, rate in zip(gemms, tflop / seconds)]
    return {"products": products, "rates": rates}


def bus_bandwidths(size, ranks, seconds):
    """nccl-tests' bus bandwidth of an all-reduce by machine, GB/s: bytes · 2(n − 1)/n / seconds."""
    return [None if one is None else size * 2 * (ranks - 1) / ranks / one / 1e9 for one in seconds]


def piece_figures(configurations, peaks):
    """GEMMs, all-reduces and both at once, for every shape of the configurations once, in order of size."""
    gemm, all_reduce, overlap = {}, {}, {}
    for one in configurations:
        model, seq, size, tp, message = (one[key] for key in ("model", "seq", "microbatch_size", "tp", "all_reduce"))
        tokens, seconds = seq * size, message["seconds"]
        shape = {"model": model, "tokens": tokens, "tp": tp}
        gemm.setdefault((model, tokens, tp), {**shape, **gemm_figures(one["gemms"], peaks)})
        if tp > 1:
            all_reduce.setdefault((tp, message["bytes"]), {"bytes": message["bytes"], "ranks": tp, "seconds": seconds,
                                                           "bus_gb_per_s": bus_bandwidths(message["bytes"], tp, seconds)})
        layer = {"model": model, "seq": seq, "microbatch_size": size, "tp": tp}
        overlap.setdefault((model, seq, size, tp), {**layer, **{
            key: message[key] for key in ("tp_communication_share", "exposed_behind_attn", "exposed_behind_mlp")}})
    figures = {"gemm": gemm, "all_reduce": all_reduce, "overlap": overlap}
    return {name: [found[key] for key in sorted(found)] for name, found in figures.items()}


def cell_of(row, machine):
    """A schedule on a machine, and whether it fits into the machine's memory."""
    if "refused" in row:
        return {"refused": row["refused"]}
    return {"throughput_samples_per_s": row["throughput_samples_per_s"], "mfu": row["mfu"],
            "activation_memory_gb": row["peak_memory_gb"], "fits": row["fits"],
            "needed_memory_gb": machine["memory_gb"] - row["memory_margin_gb"],
            "published_samples_per_s": (row["published"] or {}).get("throughput_samples_per_s")}


def gains_of(throughputs, gain):
    """From throughputs by schedule: how much more `gain["of"]` has than `gain["over"]`, than the best of all others, and
    which that is; None where one is missing."""
    own = throughputs.get(gain["of"])
    others = {name: value for name, value in throughputs.items() if name != gain["of"] and value is not None}
    best = max(others, key=others.get) if others and own is not None else None
    return {"over_baseline": relative(own, others.get(gain["over"])), "over_best": relative(own, others.get(best)),
            "best": best}


def band_of(figure, varied):
    """`varied`: for each uncertain value, the figure at both ends."""
    return None if figure is None else band(figure, [[math.log(end / figure) for end in ends if end] for ends in varied])


def bands_of(cells, varied, fitted, schedules, gain):
    """Of one machine: the band of each schedule's throughput, and of the gain over the baseline; None where the memory does not
    hold even the activations. `cells`: by schedule. What was fitted to the machine's own steps is not varied."""
    ours = {name: None if cell.get("fits") in (None, "nothing") else cell["throughput_samples_per_s"]
            for name, cell in zip(schedules, cells)}
    ends = [[dict(zip(schedules, end)) for end in one["samples_per_s"]] for one in varied if one["value"] not in fitted]

    def ratio(throughputs):  # unlike the gain, which may be 0, it has a logarithm
        over = gains_of(throughputs, gain)["over_baseline"]
        return None if over is None else 1 + over

    of_gain = band_of(ratio(ours), [[ratio(end) for end in both] for both in ends])
    return ([band_of(ours[name], [[end[name] for end in both] for both in ends]) for name in schedules],
            of_gain and [end - 1 for end in of_gain])


def configuration_of(line):
    return {key: line[key] for key in ("model", "seq", "microbatch_size", "tp", "pp", "microbatches")}


def throughput_of(line, machines, schedules, gain):
    """One configuration: cells by schedule and machine, and gains by machine, ours and published."""
    rows = [line["rows"][i : i + len(machines)] for i in range(0, len(line["rows"]), len(machines))]
    cells = [[cell_of(row, machine) for row, machine in zip(of_schedule, machines)] for of_schedule in rows]
    gains = []
    for on_machine, varied, machine in zip(zip(*cells), line["varied"], machines):
        ours, published = ({name: cell.get(key) for name, cell in zip(schedules, on_machine)}
                           for key in ("throughput_samples_per_s", "published_samples_per_s"))
        bands, gain_band = bands_of(on_machine, varied, machine["fitted"], schedules, gain)
        for cell, of_cell in zip(on_machine, bands):
            cell |= {} if "refused" in cell else {"throughput_band": of_cell}
        gains.append({**gains_of(ours, gain), "band": gain_band,
                      "published_over_baseline": gains_of(published, gain)["over_baseline"]})
    return {"configuration": configuration_of(line), "shared": line["shared"], "gains": gains,
            "schedules": [{"schedule": name, "cells": of_schedule} for name, of_schedule in zip(schedules, cells)]}


# ---- which property causes the difference ----


def quantity(of, schedule, values, parts):
    """A figure on the way from the first machine to another; `values` by set of the parts taken from that one."""
    moved = {part: {"alone": 0.0, "shapley": 0.0} for part in PARTS}
    moved |= {part: {"alone": alone, "shapley": mean} for part, (alone, mean) in zip(parts, shapley(values))}
    return {"of": of, "schedule": schedule, "from": values[0], "to": values[-1], "parts": moved}


def attribution_of(line, mixture, simulated):
    gain, schedules, parts = simulated["gain"], simulated["schedules"], mixture["parts"]
    by_set = [dict(zip(schedules, of_set)) for of_set in mixture["samples_per_s"]]
    candidates = [(of, None, [gains_of(throughputs, gain)[of.removeprefix("gain_")] for throughputs in by_set])
                  for of in ("gain_over_baseline", "gain_over_best")]
    candidates += [("throughput", name, [throughputs[name] for throughputs in by_set]) for name in schedules]
    quantities = [quantity(of, name, values, parts) for of, name, values in candidates if None not in values]
    to = [machine["name"] for machine in simulated["machines"]].index(mixture["machine"])
    said = [explanation(one, line, parts, to, simulated) for one in quantities if one["of"] == "gain_over_baseline"]
    return {"configuration": configuration_of(line), "from": simulated["machines"][0]["name"], "to": mixture["machine"],
            "alike": [part for part in PARTS if part not in parts], "simulations": len(by_set) * len(schedules),
            "quantities": quantities, "words": "".join(said)}


def both(part, line, to, simulated):
    """A part of machine `to` and of the first: "122 instead of 234 TFLOP/s over a layer's GEMMs"."""
    machines = [simulated["machines"][i] for i in (to, 0)]

    def pair(values, digits, unit):
        return " instead of ".join(words.plain(value, digits) for value in values) + f" {unit}"

    def values(key):
        return [machine["profile"][key]["value"] for machine in machines]

    if part == "compute":
        seconds = np.sum([gemm["seconds"] for gemm in line["gemms"]], axis=0)
        flops = sum(2 * gemm["m"] * gemm["n"] * gemm["k"] for gemm in line["gemms"])
        return pair((flops / seconds[i] / 1e12 for i in (to, 0)), 0, "TFLOP/s over a layer's GEMMs")
    if part == "memory":
        return pair(values("memory_gb_per_s"), 0, "GB/s")
    if part == "all_reduce":
        return pair((1e3 * line["all_reduce"]["seconds"][i] for i in (to, 0)), 2, "ms each")
    if part == "contention":
        return (f"compute keeps {pair(values('contention_compute'), 2, 'of its speed')}, "
                f"all-reduces {pair(values('contention_all_reduce'), 2, 'of theirs')}")
    if part == "p2p":
        links = []
        for link, where in (("within_node", "within a node"), ("between_nodes", "between nodes")):
            rates, latencies = (values(f"p2p_{link}_{what}") for what in ("gb_per_s", "latency_us"))
            if rates[0] != rates[1] or latencies[0] != latencies[1]:
                links.append(pair(rates, 1, f"GB/s {where}"))
        return ", ".join(links)
    return pair(values("kernel_overhead_us"), 1, "µs")


def explanation(gain, line, parts, to, simulated):
    """Sentences on what changes the gain, from its parts."""
    here, there = (simulated["machines"][machine]["name"] for machine in (0, to))
    question, change = simulated["gain"], gain["to"] - gain["from"]
    text = (f"{question['of']} gains {words.plain_percent(gain['to'])} over {question['over']} on {there} and "
            f"{words.plain_percent(gain['from'])} on {here}: {words.signed(100 * change)} points.")
    with_it, against = [], []
    for part in sorted(parts, key=lambda part: -abs(gain["parts"][part]["shapley"])):
        moved = gain["parts"][part]["shapley"]
        if abs(moved) >= 0.0005:  # a twentieth of a point
            effect = f"{PARTS[part]} ({words.signed(100 * moved)}: {both(part, line, to, simulated)})"
            (with_it if (moved < 0) == (change < 0) else against).append(effect)
    alike = [name for part, name in PARTS.items() if part not in parts]
    text += f" What makes it: {'; '.join(with_it)}." if with_it else ""
    text += f" What works against it: {'; '.join(against)}." if against else ""
    text += f" Equal in both profiles, so without effect: {', '.join(alike)}." if alike else ""
    shares = [line["all_reduce"]["tp_communication_share"][machine] for machine in (0, to)]
    if None not in shares:
        text += (f" All-reduces are {words.plain_percent(shares[1])} instead of {words.plain_percent(shares[0])} of a layer's forward: "
                 f"{'less' if shares[1] < shares[0] else 'more'} communication to overlap.")
    return text


def compare(simulated):
    """As results/schema/comparison.schema.json has it under kind `profiles`."""
    machines = [machine_figures(machine) for machine in simulated["machines"]]
    peaks = np.array([machine["peak_tflops"] for machine in machines])
    throughput, attribution = [], []
    for line in simulated["configurations"]:
        throughput.append(throughput_of(line, machines, simulated["schedules"], simulated["gain"]))
        published = {machine["name"]: gains["published_over_baseline"]
                     for machine, gains in zip(machines, throughput[-1]["gains"])}
        for mixture in line["mixtures"] if line["attributed"] else []:
            one = attribution_of(line, mixture, simulated)
            attribution.append({**one, "published_gain_from": published[one["from"]],
                                "published_gain_to": published[one["to"]]})
    return {"kind": "profiles", "evidence": "simulated", "answers": answers(simulated), "machines": machines,
            **{key: simulated[key] for key in ("scenarios", "gain", "schedules", "models", "without_fixed_memory", "at_best_rate", "kernels")},
            "implementations": sorted({line["implementation"] for line in simulated["configurations"]}),
            **piece_figures(simulated["configurations"], peaks), "throughput": throughput, "attribution": attribution,
            "clusters": {machine["name"]: machine["profile"] for machine in simulated["machines"]}}
