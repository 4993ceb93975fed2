"""Compares `stp simulate` with the oracle on random unit-cost scenarios.

    check_oracle.py STP_BINARY [--cases N] [--seed S] [--named-only]

A case is one scenario file, with every schedule that fits it. Orders come from `stp schedule` or are drawn at random
(valid by construction, handed over as schedule files), since an order that no generator emits still has a meaning.
Prints a line per failed case, which names its scenario, and keeps all of them; exits with 1 if a case failed.
"""

import argparse
import collections
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import oracle
from actions import VOCABULARY, stage_of
from graph import OracleError

COMPARED = collections.Counter()  # planned copies: they need long stays, so that few draws have any
SHARING = ("vocab-1", "vocab-2", "interlaced")
PER_RANK = ("compute_s", "pp_bubble_s", "tp_bubble_s", "peak_activation_chunks")


def draw_costs(rng, cp=1, method="ring"):
    """A unit-cost table. Integers and eighths make ties, which real numbers never do; both must agree."""
    style = rng.choice(("integer", "eighths", "real", "mixed"))
    unit = {}
    for name in oracle.costs_of(cp, method):
        chance = rng.random()
        if name.endswith("_early") and chance < 0.5:
            continue
        if chance < 0.1:
            continue
        if chance < 0.25:
            unit[name] = 0
            continue
        kind = rng.choice(("integer", "eighths", "real")) if style == "mixed" else style
        top = 1 if name in ("p2p", "vocabulary", *oracle.EXCHANGES.values()) else 3
        if kind == "integer":
            unit[name] = rng.randint(1, top)
        elif kind == "eighths":
            unit[name] = rng.randint(1, 8 * top) / 8
        else:
            unit[name] = rng.uniform(0.01, top)
    if all(unit.get(name, 0) == 0 for name in ("attn.F", "mlp.F", "head.F")):
        unit["head.F"] = 1  # a step that takes no time has no throughput
    return unit


def draw_layers(rng, stages):
    styles = {"one": lambda: [1] * stages, "even": lambda: [rng.randint(1, 3)] * stages,
              "uneven": lambda: [rng.randint(1, 3) for _ in range(stages)],
              "sparse": lambda: [rng.choice((0, 0, 1, 2)) for _ in range(stages)]}  # fmt: skip
    layers = styles[rng.choice(tuple(styles))]()
    if not any(layers):
        layers[rng.randrange(stages)] = 1
    return layers


def draw_order(rng, placement, pp, chunks, microbatches, shared=None):
    """A valid order that no generator would emit: whatever is ready, on any rank, fused or split, braided or not.

    It is grown as one global list of blocks whose inputs have all been made, so it cannot deadlock, nor can the two
    actions of a block depend on each other. `shared`: with the vocabulary on all ranks, and T or U.
    """
    pipelines = 2 if placement == "bidirectional" else 1
    stages = pp * chunks // pipelines  # of each, one behind the other
    last = stages - 1
    place = {stage_of(placement, pp, chunks, rank, chunk): (rank, chunk) for rank in range(pp) for chunk in range(chunks)}
    split = rng.choice((0.0, 0.3, 1.0))
    braid = rng.choice((0.0, 0.5, 0.9))
    ready = [[] for _ in range(pp)]  # per rank: (letter, stage, microbatch); D = a backward, fused or split
    for microbatch in range(microbatches // pipelines):
        if shared:
            for of_rank in ready:
                of_rank.append(("E", 0, microbatch))
        for first in () if shared else range(0, pp * chunks, stages):
            ready[place[first][0]].append(("F", first, microbatch))
    done = collections.Counter()  # ranks that have run a pass of the vocabulary, by pass and microbatch

    def next_of(letter, microbatch):
        """What all ranks can run once they have run a pass of the vocabulary."""
        if letter == "E":
            ready[place[0][0]].append(("F", 0, microbatch))
        if letter == "S":
            ready[place[last][0]].append((shared, 0, microbatch))
        if letter == ("S" if shared == "U" else "T"):
            ready[place[last][0]].insert(0, ("D", last, microbatch))

    ranks = [[] for _ in range(pp)]
    def others_go_on(microbatch):
        """The last stage's rank needs the sum of S, which lets the others have it."""
        if ("sum", microbatch) not in done:
            done["sum", microbatch] = 1
            for of_rank in ready[: place[last][0]] + ready[place[last][0] + 1 :]:
                of_rank.append((shared, 0, microbatch))

    while any(ready):
        rank = rng.choice([r for r in range(pp) if ready[r]])
        chosen = []
        for _ in range(2 if rng.random() < braid else 1):
            if ready[rank] and not (chosen and chosen[0][0] in VOCABULARY):
                # Mostly the oldest: wholly random picks would leave every order a plain all-forward-all-backward.
                spot = 0 if rng.random() < 0.6 else rng.randrange(len(ready[rank]))
                if not chosen or ready[rank][spot][0] not in VOCABULARY:
                    chosen.append(ready[rank].pop(spot))
        rng.shuffle(chosen)
        texts = []
        for letter, stage, microbatch in chosen:
            chunk = place[stage][1]
            if shared and rank == place[last][0] and (letter == shared or (shared, letter, stage) == ("U", "D", last)):
                others_go_on(microbatch)
            if letter in VOCABULARY:
                chunk = 0
                done[letter, microbatch] += 1
                if done[letter, microbatch] == pp:
                    next_of(letter, microbatch)
            elif letter == "F" and (stage + 1) % stages:
                ready[place[stage + 1][0]].append(("F", stage + 1, microbatch))
            elif letter == "F" and shared:
                for of_rank in ready:
                    of_rank.append(("S", 0, microbatch))
            elif letter == "F":
                ready[rank].insert(0, ("D", stage, microbatch))
            elif letter == "D":
                letter = "I" if rng.random() < split else "B"
                if letter == "I":
                    ready[rank].append(("W", stage, microbatch))
                if stage % stages:
                    ready[place[stage - 1][0]].insert(0, ("D", stage - 1, microbatch))
                elif shared:
                    for of_rank in ready:
                        of_rank.append(("G", 0, microbatch))
            texts.append(f"{letter}{chunk}.{microbatch}")
        ranks[rank].append("&".join(texts))
    return {"schedule": "random", "placement": placement, "pp": pp, "chunks": chunks, "microbatches": microbatches, "ranks": ranks}


class Generator:
    """Orders as `stp schedule` prints them, each asked for once."""

    def __init__(self, binary):
        self.binary = binary
        self.known = {}

    def order(self, name, pp, chunks, microbatches, costs=None, vocabulary=None):
        key = (name, pp, chunks, microbatches, tuple((costs or {}).items()), vocabulary)
        if key not in self.known:
            command = [self.binary, "schedule", name, "--pp", pp, "--microbatches", microbatches]
            command += ["--chunks", chunks, "--format", "json"]
            if costs:
                command += ["--costs", ",".join(str(costs[letter]) for letter in ("F", "I", "W", "p2p"))]
            if vocabulary:
                command += ["--vocabulary", vocabulary]
            order = call_for_json(command)
            wanted = {"pp": pp, "chunks": chunks, "microbatches": microbatches}
            if {field: order.get(field) for field in wanted} != wanted or not {"placement", "ranks"} <= set(order):
                raise Refused(f"'{' '.join(map(str, command[1:]))}' answered for something else than {wanted}")
            self.known[key] = order
        return self.known[key]


class Refused(Exception):
    """The binary did not answer with JSON and exit code 0."""


def call_for_json(command):
    command = [str(part) for part in command]
    shown = " ".join(command[1:])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired as error:
        raise Refused(f"'{shown}' took over {error.timeout} s") from error
    if done.returncode != 0:
        raise Refused(f"'{shown}' ended with {done.returncode}: {' '.join(done.stderr.split())[:300]}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise Refused(f"'{shown}' printed no JSON: {error}") from error


def draw_scenario(rng, number):
    """A scenario without schedules, and whether it should have those that are interleaved."""
    pp = rng.randint(1, 5)
    chunks = rng.choices((1, 2, 3), (2, 5, 1))[0]
    microbatches = rng.randint(1, 3 * pp + 4)
    both_ways = rng.random() < 0.15
    if both_ways:
        pp, chunks, microbatches = rng.choice((2, 4, 6)), 2, 2 * rng.randint(1, 12)
    wants_interleaved = rng.random() < 0.5
    if both_ways:
        wants_interleaved = False
    elif chunks == 3 or wants_interleaved:
        microbatches = pp * rng.randint(1, (3 * pp + 4) // pp)  # what 1F1B-I needs
    elif chunks == 2 and rng.random() < 0.7:
        microbatches = rng.randint(3 * pp - 1, 3 * pp + 4)  # what STP needs
    scenario = {
        "name": f"oracle-{number}",
        "schedules": [],
        "parallel": {"pp": pp, "tp": rng.choice((1, 2, 4, 8)), "dp": rng.choice((1, 1, 2, 5))},
        "microbatches": microbatches,
        "chunks": chunks,
        "layers_per_chunk": draw_layers(rng, pp * (1 if both_ways else chunks)),
        "costs": {"unit": draw_costs(rng)},
    }
    if rng.random() < 0.3:
        cp = scenario["parallel"]["cp"] = rng.choice((2, 3, 4))
        method = rng.choice(tuple(oracle.EXCHANGES))
        if method != "ring" or rng.random() < 0.5:
            scenario["parallel"]["cp_method"] = method
        scenario["costs"]["unit"] = draw_costs(rng, cp, method)
    # Defaults are left out at times: they are part of what is checked.
    for key, values in (("release", oracle.RELEASES), ("backward", oracle.BACKWARDS), ("freed_at", oracle.FREED_AT)):
        value = rng.choice(values)
        if value != values[0] or rng.random() < 0.5:
            scenario[key] = value
    if scenario["parallel"]["dp"] * scenario["parallel"].get("cp", 1) > 1 and rng.random() < 0.5:
        scenario["zero"] = 1
    if rng.random() < 0.3 and not both_ways:
        scenario["post_validation"] = True
    if rng.random() < 0.3:
        scenario["braid"] = rng.choice(oracle.BRAIDS)
    if rng.random() < 0.5:
        choices = {"F": (1, 1.5, 2), "I": (1, 1.25, 2), "W": (0.5, 1, 1.5), "p2p": (0, 0.0625, 0.5)}
        scenario["schedule_costs"] = {name: rng.choice(values) for name, values in choices.items()}
    if rng.random() < 0.4:
        scenario["offload"] = {"ratio": rng.choice((0.25, 0.5, 1))}
        if rng.random() < 0.5:
            planned = {"chunks": rng.randint(1, chunks), "share": rng.randint(1, 3), "round_trip": rng.choice((0.125, 0.25, 0.5, 1))}
            scenario["offload"] |= {key: value for key, value in planned.items() if key == "chunks" or rng.random() < 0.7}
    return scenario, wants_interleaved, both_ways


def draw_case(rng, number, generator, folder, named_only):
    """A scenario and, per schedule in it, the order that it stands for."""
    scenario, wants_interleaved, both_ways = draw_scenario(rng, number)
    pp, chunks, microbatches, orders = scenario["parallel"]["pp"], scenario["chunks"], scenario["microbatches"], []

    def add_named(name, costs=None):
        orders.append(generator.order(name, pp, chunks, microbatches, costs))
        scenario["schedules"].append(name)

    def add_file(order, label):
        path = folder / f"case-{number}-{label}.json"
        path.write_text(json.dumps(order), encoding="utf-8")
        orders.append(order)
        scenario["schedules"].append({"file": str(path)})

    if both_ways:
        if microbatches >= 2 * pp:
            add_named("dualpipe")
        add_file(draw_order(rng, "bidirectional", pp, chunks, microbatches), "both-ways")
        return scenario, orders
    if chunks == 1:
        add_named("1f1b")
    if microbatches % pp == 0 and (chunks > 1 or wants_interleaved):
        add_named("1f1b-i")
        if rng.random() < 0.5:
            add_named("1f1b-i-braided")
    if chunks == 2 and microbatches >= 3 * pp - 1:
        add_named("stp")
    if chunks == 2:
        # Which costs the order of ZB-V is made for is fixed by schedule_costs; without them the order goes by file.
        if "schedule_costs" in scenario:
            add_named("zb-v", scenario["schedule_costs"])
        else:
            add_file(generator.order("zb-v", pp, chunks, microbatches), "zb-v")
    if not named_only and rng.random() < 0.5:
        placement = rng.choice(("loop", "v")) if chunks == 2 else "loop"
        add_file(draw_order(rng, placement, pp, chunks, microbatches), "random")
    alone = scenario["parallel"]["dp"] * scenario["parallel"].get("cp", 1) == 1 and not scenario.get("post_validation")
    alone = alone and "chunks" not in scenario.get("offload", {})
    if alone and chunks == 1:
        for name in SHARING:
            add_named(name)
    others = [name for name in scenario["schedules"] if isinstance(name, str) and name not in SHARING]
    shared = rng.choice(("vocab-1", "vocab-2")) if alone and others and rng.random() < 0.7 else None
    if shared:
        name = rng.choice(others)
        costs = scenario.get("schedule_costs") if name == "zb-v" else None
        orders.append(generator.order(name, pp, chunks, microbatches, costs, shared))
        scenario["schedules"].append({"name": name, "vocabulary": shared})
    if alone and not named_only and rng.random() < 0.7:
        placement = "v" if chunks == 2 and rng.random() < 0.5 else "loop"
        add_file(draw_order(rng, placement, pp, chunks, microbatches, rng.choice("TU")), "shared")
    if rng.random() < 0.3 and not shared:  # backwards are merged before
        scenario["merge_backward"] = True
    return scenario, orders


def equal(expected, got):
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return False
    return math.isclose(expected, got, rel_tol=1e-9, abs_tol=1e-9)


def difference(scenario, order, result):
    """What is wrong with one schedule's result, or None."""
    expected = oracle.simulate_scenario(scenario, order)
    COMPARED["planned copies"] += expected["planned_copies"]
    step = expected["step_time_s"]
    if not equal(step, result["step_time_s"]):
        return f"step_time_s is {result['step_time_s']}, oracle {step}"
    throughput = scenario["microbatches"] * scenario["parallel"].get("dp", 1) / step if step > 0 else None
    if step > 0 and not equal(throughput, result["throughput_samples_per_s"]):
        return f"throughput_samples_per_s is {result['throughput_samples_per_s']}, oracle {throughput}"
    if len(result["ranks"]) != len(expected["ranks"]):
        return f"{len(result['ranks'])} ranks, oracle {len(expected['ranks'])}"
    for rank, (want, got) in enumerate(zip(expected["ranks"], result["ranks"])):
        for name in PER_RANK:
            # Which of two causes that end at the same instant takes the idle time is open; the sum is not.
            if want["tie"] and name == "tp_bubble_s":
                continue
            if want["tie"] and name == "pp_bubble_s":
                name, a = "pp_bubble_s + tp_bubble_s", want["pp_bubble_s"] + want["tp_bubble_s"]
                b = got["pp_bubble_s"] + got["tp_bubble_s"]
            else:
                a, b = want[name], got[name]
            if not equal(a, b):
                return f"rank {rank}: {name} is {b}, oracle {a}"
        if got["peak_activation_bytes"] is not None:
            return f"rank {rank}: peak_activation_bytes is {got['peak_activation_bytes']}, a unit cost knows no bytes"
    return None


def check_case(options, number, generator, folder):
    """The number of schedules of a case, and what is wrong with it, a text per failed schedule."""
    # A generator of random numbers per case: a case stays the same whatever the cases before it drew.
    rng, path, orders = random.Random(f"{options.seed}/{number}"), folder / f"case-{number}.json", []
    try:
        scenario, orders = draw_case(rng, number, generator, folder, options.named_only)
        path.write_text(json.dumps(scenario, indent=1), encoding="utf-8")
        for position, order in enumerate(orders):  # beside the scenario, so that oracle.py can be run on both
            path.with_suffix(f".order-{position}.json").write_text(json.dumps(order), encoding="utf-8")
        results = call_for_json([options.binary, "simulate", path, "--json", "-"])["results"]
        found = [(result.get("schedule"), difference(scenario, order, result)) for order, result in zip(orders, results, strict=True)]
        wrong = [f"schedule {position} ({name}): {text}" for position, (name, text) in enumerate(found) if text]
    except Refused as refusal:
        wrong = [str(refusal)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        wrong = [f"the record lacks or misforms {error!r}"]
    except OracleError as error:
        wrong = [f"the oracle refuses the order: {error}"]
    return len(orders), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("binary", metavar="STP_BINARY")
    parser.add_argument("--cases", type=int, default=300 if os.environ.get("STP_EFFORT") == "whole" else 100, metavar="N",
                        help="scenarios to try (default 100, and 300 with STP_EFFORT=whole in the environment)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the same seed gives the same scenarios")
    parser.add_argument("--named-only", action="store_true", help="only orders of generators, no random ones")
    options = parser.parse_args()
    if shutil.which(options.binary) is None:
        parser.error(f"'{options.binary}' is no program")

    folder = Path(tempfile.mkdtemp(prefix="stp-oracle-"))
    generator = Generator(options.binary)
    failed = schedules = 0
    for number in range(options.cases):
        count, wrong = check_case(options, number, generator, folder)
        schedules += count
        if wrong:
            failed += 1
            print(f"FAILED {folder}/case-{number}.json: {'; '.join(wrong)}")
    if options.cases >= 100 and not COMPARED["planned copies"]:
        failed += 1
        print("FAILED: no order had a planned copy")
    if not failed:
        shutil.rmtree(folder)
    print(f"seed {options.seed}, {schedules} schedules in {options.cases} scenarios, {COMPARED['planned copies']} planned copies")
    print(f"{options.cases - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
