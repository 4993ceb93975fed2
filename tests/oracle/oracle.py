"""A slow, obvious simulator of unit-cost scenarios, to check the fast one.

It builds the graph of ops that the semantics of a Program prescribe (ops with a stream, a cost and dependencies;
in-order streams) and finds when each op starts by the longest path. It shares no code with the suite: where the two
disagree, one of them has misread the text.

    oracle.py SCENARIO.json SCHEDULE.json     prints the figures of one schedule under one scenario as JSON
"""

import collections
import json
import sys
import types

from actions import VOCABULARY, merge, offloaded, read_blocks, segments_of, stage_of
from copies import plan_copies
from graph import Graph, last_causes, SAME_INSTANT, same_instant

COSTS = (
    "attn.F", "attn.I", "attn.W", "attn.W_early",
    "mlp.F", "mlp.I", "mlp.W", "mlp.W_early",
    "head.F", "head.I", "head.W", "embedding.F", "embedding.W", "vocabulary",
    "all_reduce", "p2p", "gradient_reduce", "offload", "reload",
)  # fmt: skip
# With context parallelism these stand for attn.F and attn.I.
IN_PARTS = tuple(f"attn.{letter}_{part}" for letter in "FI" for part in ("before", "core", "after"))
EXCHANGES = {"ring": "kv_exchange", "all-to-all": "all_to_all"}  # by the method of context parallelism
RELEASES = ("chain", "block", "released", "blocking", "megatron", "megatron-0.18", "megatron-batched")
OF_THE_TRAINER = ("released", "blocking")
BACKWARDS = ("suite", "megatron")
BRAIDS = ("static", "sequential")
FREED_AT = ("W", "I")

OPTIONS = {"release": "chain", "backward": "suite", "freed_at": "W", "braid": "static", "dp": 1, "zero": 0, "cp": 1,
           "cp_method": "ring", "offload": {"ratio": 0}, "schedule_costs": {"F": 1, "I": 1, "W": 1, "p2p": 0}, "post_validation": False}  # fmt: skip

# Two ends closer than this (relative to their size) count as the same instant: sums of the same costs in another
# order differ by rounding.

# Of a program with post-validation, as many are simulated at most.
MOST_STEPS = 32


def parts_of(graph, rank, name, segment, costs, options, deps):
    """The ops of attn.F or attn.I with context parallelism, the last of them the part after the core."""
    part = {which: costs[f"{segment.name}_{which}"] for which in ("before", "core", "after")}
    backward = segment.name == "attn.I"
    ops = [graph.add(name + ", before", ("compute", rank), part["before"], deps)]

    def compute():
        return [op for op in ops if op.stream == ("compute", rank)][-1]

    def exchange(what):
        ops.append(graph.add(f"{what} in {name}", ("cp", rank), costs[EXCHANGES[options.cp_method]], [compute()]))
        return ops[-1]

    if options.cp_method == "all-to-all":
        for part_name, cost, what in (("core", part["core"], "heads come together"), ("after", part["after"] + segment.early, "heads go back")):
            arrived = exchange(what)
            ops.append(graph.add(f"{name}, {part_name}", ("compute", rank), cost, [arrived]))
        return ops

    keys = {}
    for step in range(options.cp):
        if step + 1 < options.cp:
            keys[step + 1] = exchange(f"KV{step + 1}")
        if backward and step > 0:
            exchange(f"dKV{step}")
        needed = [keys[step]] if step > 0 else []
        ops.append(graph.add(f"{name}, step {step}", ("compute", rank), part["core"], needed))
    needed = [exchange(f"dKV{options.cp}")] if backward else []
    ops.append(graph.add(name + ", after", ("compute", rank), part["after"] + segment.early, needed))
    return ops


class Step:
    """Adds the ops of a step to a graph. `ended`: with post-validation, by rank, its optimizer op in the step before, or None; its
    op in this one takes its place."""

    def __init__(self, schedule, layers, costs, options, graph, ended):
        self.costs, self.options, self.graph, self.ended = costs, options, graph, ended
        self.pp = schedule["pp"]
        self.placement, self.chunks, pipelines = schedule["placement"], schedule["chunks"], 2 if schedule["placement"] == "bidirectional" else 1
        self.stages = self.pp * self.chunks // pipelines  # of one pipeline; the second one's stages follow
        self.layers = layers * pipelines
        self.ranks = read_blocks(schedule, options.braid)
        self.rank_of = {stage_of(schedule["placement"], self.pp, schedule["chunks"], rank, chunk): rank
                        for rank in range(self.pp) for chunk in range(schedule["chunks"])}  # fmt: skip
        self.holders = options.dp * options.cp  # ranks that hold a chunk
        # Outputs of chains are named before the ops exist, since the consumer may stand before the producer in this
        # walk over the ranks. `output`: the moment it leaves. `sent`: its transfer, where it crosses to another rank.
        self.output = {action.signal: graph.add(f"output of {action.text} on rank {action.rank}", None)
                       for blocks in self.ranks for block in blocks for action in block if action.kind != "W"}  # fmt: skip
        kinds = {action.kind for blocks in self.ranks for block in blocks for action in block}
        self.shared, self.one_barrier = bool(kinds & set(VOCABULARY)), "U" in kinds
        # What all ranks get: a sum of E, S or T, or a broadcast of the last stage's output (F) or the first's gradient (G).
        self.of_all = {(what, microbatch): graph.add(f"{what} of {microbatch} for all ranks", None)
                       for what in "ESTFG" for microbatch in range(schedule["microbatches"])}  # fmt: skip
        self.sent, self.block_sends, self.total, self.gathers, self.prefix = {}, {}, {}, {}, {}
        self.add_norms_of_the_last_step()
        for rank, blocks in enumerate(self.ranks):
            self.add_gathers(rank, blocks)
        for rank, blocks in enumerate(self.ranks):
            for index, block in enumerate(blocks):
                self.block_sends[rank, index] = self.sends_of(rank, block)
        self.plan_copies()
        gradients = [self.add_rank(rank, blocks) for rank, blocks in enumerate(self.ranks)]
        for rank in range(self.pp) if pipelines > 1 else ():
            cost = sum(self.layers[stage] for stage, holder in self.rank_of.items() if holder == rank) * self.costs["gradient_reduce"]
            graph.add(f"gradients of both pipelines on rank {rank}", ("dp", rank), cost, gradients[rank] + gradients[self.pp - 1 - rank])

    def is_last(self, stage):
        return (stage + 1) % self.stages == 0

    def plan_copies(self):
        """Of planned copies, by rank the blocks before which they stand, each with a name for its op and the copy before it."""
        self.planned = {rank: [] for rank in range(self.pp)}
        if self.options.offload.get("chunks") and self.options.offload["ratio"] > 0:
            for link in plan_copies(self.ranks, self.source_of, self.options.schedule_costs, self.options.offload):
                latest = {}  # by direction
                for copy in link:
                    if self.layers[copy.action.stage] > 0:
                        back = copy.action.kind != "F"
                        copy.op = self.graph.add(f"copy for {copy.action.text}", None)
                        copy.behind = latest.get(back, [])
                        latest[back] = [copy.op]
                        self.planned[copy.rank].append(copy)

    def of_step_before(self, rank):
        """What an op waits for that would wait for nothing."""
        return [self.ended[rank]] if self.ended and self.ended[rank] else []

    def add_norms_of_the_last_step(self):
        """Post-validation: the last step's norm comes back from the last rank."""
        for rank in reversed(range(1, self.pp)):
            if self.ended:
                deps = self.of_step_before(rank) if rank == self.pp - 1 else [self.total[rank + 1]]
                self.total[rank] = self.graph.add(f"norm of the last step from rank {rank}", ("p2p", rank, rank - 1), 0, deps)

    def add_gathers(self, rank, blocks):
        """With ZeRO-1 a chunk's weights are gathered before its first F, in the order of these."""
        for action in (action for block in blocks for action in block):
            if self.holders > 1 and self.options.zero and action.kind == "F" and (rank, action.chunk) not in self.gathers:
                cost = self.layers[action.stage] * self.costs["gradient_reduce"] / 2
                name = f"weights of chunk {action.chunk} on rank {rank}"
                self.gathers[rank, action.chunk] = self.graph.add(name, ("dp", rank), cost, self.of_step_before(rank))

    def receiver(self, action):
        """The rank that its output goes to, or None where no other rank needs it."""
        stage = action.stage + (1 if action.kind == "F" else -1)
        if action.kind not in "FIB" or stage // self.stages != action.stage // self.stages or self.rank_of[stage] == action.rank:
            return None
        return self.rank_of[stage]

    def are_paired(self, block):
        """Whether the trainer runs its two forwards one after the other."""
        return self.options.release in OF_THE_TRAINER and len(block) == 2 and all(action.kind == "F" for action in block)

    def sends_of(self, rank, block):
        """The transfers of a block: one stream per pair of sender and receiver, in the order of the sender's program; the action
        named first first."""
        targets = [self.receiver(action) for action in block]
        together = self.are_paired(block) and targets[0] is not None and block[0].chunk == block[1].chunk
        sends = []
        for some in [block] if together else [[action] for action in block]:
            target = self.receiver(some[0])
            if target is not None:
                name = f"p2p {'&'.join(action.text for action in some)} {rank}->{target}"
                deps = [self.output[action.signal] for action in some]
                sends.append(self.graph.add(name, ("p2p", rank, target), len(some) * self.costs["p2p"], deps))
                self.sent.update({action.signal: sends[-1] for action in some})
        return sends

    def source_of(self, action):
        """The chain whose output its first segment waits for, or None."""
        if action.kind in "WE" or (action.kind == "F" and action.stage % self.stages == 0):
            return None
        if action.kind == "F":
            return ("F", action.stage - 1, action.microbatch)
        return ("F", action.stage, action.microbatch) if self.is_last(action.stage) else ("gradient", action.stage + 1, action.microbatch)

    def inputs(self, action):
        """What its first segment waits for."""
        if self.awaited_of_all(action):
            return [self.of_all[self.awaited_of_all(action), action.microbatch]]
        source = self.source_of(action)
        return [self.sent[source] if source in self.sent else self.output[source]] if source else []

    def awaited_of_all(self, action):
        """What it waits for of all ranks, or None."""
        fixed = {"S": "F", "T": "S", "U": "S", "G": "G"}.get(action.kind)
        if fixed or not self.shared or action.kind in "WE":
            return fixed
        if action.kind == "F":
            return "E" if action.stage == 0 else None
        return ("S" if self.one_barrier else "T") if self.is_last(action.stage) else None

    def add_sums(self, rank, block):
        """The sums over all ranks that the block is the first to need on the rank that they are for."""
        for action in block:
            what = self.awaited_of_all(action)
            owner = self.rank_of[0 if what == "E" else self.stages - 1]
            if what and what in "EST" and owner == rank and not self.of_all[what, action.microbatch].deps:
                parts = [self.output[what, each, action.microbatch] for each in range(self.pp)]
                name = f"sum of {what} of {action.microbatch}"
                self.of_all[what, action.microbatch].deps = [self.graph.add(name, ("vocabulary", rank), self.costs["vocabulary"], parts)]

    def add_broadcasts(self, rank, block):
        for action in block:
            what = "F" if action.kind == "F" else "G"
            if self.shared and action.kind in "FIB" and action.stage == (self.stages - 1 if what == "F" else 0):
                parts = [self.output[action.signal]]
                op = self.graph.add(f"broadcast of {action.text}", ("vocabulary", rank), self.costs["vocabulary"], parts)
                self.of_all[what, action.microbatch].deps = [op]

    def add_rank(self, rank, blocks):
        """Returns what all its gradients wait for."""
        offload, held = self.options.offload, self.layers[stage_of(self.placement, self.pp, self.chunks, rank, 0)]
        away = offloaded(blocks) if offload["ratio"] > 0 and not offload.get("chunks") and held > 0 else {}
        # `copies`: by chunk and microbatch the copy to the host, then the one back. `leaving`: the block that waits for a copy
        # and the copy, while its memory is held. `issued`: by block the last ops before it.
        memory = types.SimpleNamespace(away=away, layers=offload["ratio"] * held, copies={}, leaving=[], issued=[])
        reductions = []
        for index, block in enumerate(blocks):
            memory.issued.append([self.graph.streams[stream, rank][-1] for stream in ("compute", "tp") if (stream, rank) in self.graph.streams])
            self.add_planned(rank, index, memory)
            for action in block:
                last = self.is_last(action.stage) and not self.shared
                action.segments = segments_of(
                    action.kind, self.layers[action.stage], last, self.costs, self.options.backward, self.one_barrier
                )
            self.add_sums(rank, block)
            order = self.order_of(block)
            awaited = [copy for freed_at, copy in memory.leaving if freed_at <= index] if order else []
            memory.leaving = [(freed_at, copy) for freed_at, copy in memory.leaving if copy not in awaited]
            ops = self.add_block(rank, index, block, order, awaited, memory)
            self.add_copies(rank, index, blocks, memory.issued[-1] + awaited, memory)
            reductions += self.add_reductions(rank, index, blocks, ops)
            self.hand_on(block, ops)
            self.add_broadcasts(rank, block)
        if self.ended:
            self.add_optimizer(rank, reductions)
        return reductions[-1:] or self.graph.streams.get(("compute", rank), [])[-1:]

    def add_planned(self, rank, index, memory):
        """The planned copies that stand before a block."""
        for copy in self.planned[rank]:
            if copy.block == index:
                action, back = copy.action, copy.action.kind != "F"
                deps = memory.issued[copy.bound] if back else [action.computed]
                cost = self.options.offload["ratio"] * self.layers[action.stage] * self.costs["reload" if back else "offload"]
                copy.op.deps = [self.graph.add(copy.op.label, ("d2h", rank), cost, copy.behind + deps)]
                memory.copies[action.chunk, action.microbatch] = copy.op.deps[0]
                if not back:
                    memory.leaving.append((copy.bound, copy.op.deps[0]))

    def order_of(self, block):
        """By segment the action whose next one it is."""
        counts = [len(action.segments) for action in block]
        if len(block) == 1:
            return block * counts[0]
        letters = "a" * counts[0] + "b" * counts[1] if self.are_paired(block) else merge(*counts)
        return [block[letter == "b"] for letter in letters]

    def gate_of(self, rank, index, block):
        """What every op of the block waits for."""
        release = self.options.release
        if release == "chain":
            return []
        gate = [needed for action in block for needed in self.inputs(action)]
        return gate + [send for waited in self.blocks_waited_for(rank, index) for send in self.block_sends[rank, waited]]

    def blocks_waited_for(self, rank, index):
        """The blocks whose sends a block waits for."""
        release, blocks = self.options.release, self.ranks[rank]
        weights_alone = [all(action.kind in "W" + VOCABULARY for action in block) for block in blocks]
        one_chunk = self.chunks == 1
        if release in ("blocking", "megatron-batched") or (one_chunk and release.startswith("megatron")):
            return [index - 1] if index > 0 else []
        if release == "block" or weights_alone[index]:
            return []
        if release == "released":
            return [index - 1] if index > 0 else []
        before = [other for other in range(index) if not weights_alone[other]]
        forward = [block[-1].kind == "F" for block in blocks]
        if not before or forward[before[-1]] == forward[index]:
            return before[-1:]
        at_once = before[-1:] if release == "megatron-0.18" and not forward[index] else []
        return at_once + before[-3:-2]

    def needed_by(self, action, is_first, block, memory):
        """What the next segment of an action waits for."""
        deps = []
        if is_first and action.kind in "IB" and (action.chunk, action.microbatch) in memory.copies:
            deps.append(memory.copies[action.chunk, action.microbatch])
        if [(other.kind, other.chunk) for other in block] != [("F", 0)] and action.rank + 1 in self.total:
            deps.append(self.total.pop(action.rank + 1))
        if not is_first:  # the all-reduce of the segment before, or its compute without one
            return deps + ([action.main_end] if action.kind != "W" else [])
        deps += self.inputs(action)
        if action.kind == "F" and (action.rank, action.chunk) in self.gathers:
            deps.append(self.gathers.pop((action.rank, action.chunk)))
        if self.are_paired(block) and action is block[1] and block[0].main_end is not None:
            deps.append(block[0].main_end)  # the second waits for the last all-reduce of the first
        return deps

    def add_block(self, rank, index, block, order, awaited, memory):
        """The ops of compute and of its own collectives."""
        gate, ops, taken = self.gate_of(rank, index, block), [], collections.Counter()
        for action in order:
            segment = action.segments[taken[action]]
            name = f"{segment.name} of {action.text} on rank {rank}"
            deps = gate + ([] if ops else awaited) + self.needed_by(action, taken[action] == 0, block, memory)
            taken[action] += 1
            if self.options.cp > 1 and segment.in_ring:
                ops += parts_of(self.graph, rank, name, segment, self.costs, self.options, deps)
            else:
                ops.append(self.graph.add(name, ("compute", rank), segment.cost, deps))
            action.main_end = action.computed = compute = ops[-1]
            if segment.reduces:
                ops.append(self.graph.add("all-reduce after " + name, ("tp", rank), self.costs["all_reduce"], [compute]))
                action.main_end = ops[-1]
            if segment.weight is not None:
                weight, cost = segment.weight
                ops.append(self.graph.add(f"{weight} of {action.text} on rank {rank}", ("compute", rank), cost, gate + [compute]))
        return ops

    def add_copies(self, rank, index, blocks, before, memory):
        """From the host for the next block's backward, and to the host after this one's forward."""
        for action in blocks[index + 1] if index + 1 < len(blocks) else []:
            if action.kind in "IB" and action.chunk == 0 and action.microbatch in memory.away:
                deps = [memory.copies[0, action.microbatch], *before]
                cost = memory.layers * self.costs["reload"]
                memory.copies[0, action.microbatch] = self.graph.add(f"reload for {action.text}", ("h2d", rank), cost, deps)
        for action in blocks[index]:
            if action.kind == "F" and action.chunk == 0 and action.microbatch in memory.away:
                cost = memory.layers * self.costs["offload"]
                memory.copies[0, action.microbatch] = self.graph.add(f"offload of {action.text}", ("d2h", rank), cost, [action.computed])
                memory.leaving.append((index + 2, memory.copies[0, action.microbatch]))

    def add_reductions(self, rank, index, blocks, ops):
        """Where several ranks hold a chunk, its gradients are reduced once its last B or W is issued."""
        found, block = [], blocks[index]
        for position, action in enumerate(block) if self.holders > 1 else []:
            later = block[position + 1 :] + [other for each in blocks[index + 1 :] for other in each]
            if action.kind in "BW" and not any(o.chunk == action.chunk and o.kind in "BW" for o in later):
                cost = self.layers[action.stage] * self.costs["gradient_reduce"] / (2 if self.options.zero else 1)
                computes = [op for op in ops if op.stream == ("compute", rank)]
                found.append(self.graph.add(f"gradients of chunk {action.chunk} on rank {rank}", ("dp", rank), cost, computes[-1:]))
        return found

    def hand_on(self, block, ops):
        for action in block:
            if action.kind == "W":
                continue
            if self.options.release == "chain":
                self.output[action.signal].deps = [action.main_end] if action.main_end else self.inputs(action)
            else:
                # A block without segments passes its inputs on.
                self.output[action.signal].deps = ops or [dep for each in block for dep in self.inputs(each)]

    def add_optimizer(self, rank, reductions):
        """With post-validation: the norm goes on to the next rank, and the optimizer waits for that of the ranks before."""
        norm = self.graph.add(f"norm on rank {rank}", ("compute", rank), 0, reductions)
        before = [self.prefix[rank - 1]] if rank > 0 else []
        if rank + 1 < self.pp:
            self.prefix[rank] = self.graph.add(f"norm so far from rank {rank}", ("p2p", rank, rank + 1), 0, [norm] + before)
        self.ended[rank] = self.graph.add(f"optimizer of rank {rank}", ("compute", rank), 0, before)


def run_steps(pp, add_step):
    """Post-validation: runs ever more steps, one behind the other, until all ranks keep pace with each other. Returns the
    graph of all and, per rank, the optimizer ops of the last step but one and of the last."""
    count = 2
    while True:
        graph = Graph()
        ended = [None] * pp
        for _ in range(count):
            before = list(ended)
            add_step(graph, ended)
        graph.run()
        took = [last.end - first.end for first, last in zip(before, ended)]
        if count == MOST_STEPS or max(took) - min(took) <= SAME_INSTANT * max(took):
            return graph, list(zip(before, ended))
        count *= 2


def peak_of(blocks, freed_at):
    """The most (chunk, microbatch) pairs alive, in program order; those of a braid are alive together."""
    freeing = {"B", freed_at}
    alive = peak = 0
    for block in blocks:
        alive += sum(action.kind == "F" for action in block)
        peak = max(peak, alive)
        alive -= sum(action.kind in freeing for action in block)
    return peak


def costs_of(cp, method):
    """The names of unit costs."""
    if cp == 1:
        return COSTS
    return tuple(name for name in COSTS if name not in ("attn.F", "attn.I")) + IN_PARTS + (EXCHANGES[method],)


def time_of(rank, line, begin, step):
    """What a rank does of a step that begins for it at `begin`; `line`: its compute ops."""
    busy = pp_bubble = tp_bubble = 0.0
    tie, now = False, begin
    for op in line:
        until = op.start
        causes, _ = last_causes(op)
        while until > now:
            own = [cause for cause in causes if cause.stream in (("tp", rank), ("cp", rank))]
            if own and len(own) < len(causes) and not same_instant(until, now):
                tie = True
            if not own:
                pp_bubble += until - now
                break
            causes, ready = last_causes(own[0])
            ready = max(ready, now)
            tp_bubble += until - ready
            until = ready
        busy += op.cost
        now = op.end
    return {"compute_s": busy, "pp_bubble_s": pp_bubble + step - (now - begin), "tp_bubble_s": tp_bubble, "tie": tie}


def simulate(schedule, layers_per_chunk, unit, **options):
    """The figures of one step, under OPTIONS.

    Per rank also `tie`: an idle time has an all-reduce of the rank (or an exchange of its own) and something else as
    its last dependency, both ending at the same instant, so that its split into pp_bubble_s and tp_bubble_s is open and only the sum is fixed.
    """
    options = types.SimpleNamespace(**OPTIONS | options)
    costs = {name: float(unit.get(name, 0)) for name in COSTS + IN_PARTS + tuple(EXCHANGES.values())}

    def add_step(graph, ended):
        Step(schedule, layers_per_chunk, costs, options, graph, ended)

    ends = None
    if options.post_validation:
        graph, ends = run_steps(schedule["pp"], add_step)
        step = max(last.end - first.end for first, last in ends)
    else:
        graph = Graph()
        add_step(graph, None)
        graph.run()
        step = max((op.end for op in graph.ops if op.stream is not None), default=0.0)
    figures = []
    for rank, blocks in enumerate(read_blocks(schedule, options.braid)):
        line = graph.streams.get(("compute", rank), [])
        begin = 0.0
        if ends:
            begin = ends[rank][0].end
            line = line[line.index(ends[rank][0]) + 1 :]
        figures.append(time_of(rank, line, begin, step) | {"peak_activation_chunks": peak_of(blocks, options.freed_at)})
    return {"step_time_s": step, "ranks": figures, "planned_copies": sum(op.label.startswith("copy for ") for op in graph.ops)}


def merge_backward(texts):
    """A rank's blocks, where each I whose W is the next block is a B with it."""
    merged = []
    for text in texts:
        if merged and text[0] == "W" and "&" not in text and merged[-1] == "I" + text[1:]:
            merged[-1] = "B" + text[1:]
        else:
            merged.append(text)
    return merged


def simulate_scenario(scenario, schedule):
    """The figures of one schedule under a unit-cost scenario."""
    if scenario.get("merge_backward", False):
        schedule = schedule | {"ranks": [merge_backward(texts) for texts in schedule["ranks"]]}
    given = scenario | scenario["parallel"]
    options = {name: given[name] for name in OPTIONS if name in given}
    return simulate(schedule, scenario["layers_per_chunk"], scenario["costs"]["unit"], **options)


def main(argv):
    if len(argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as scenario, open(argv[2], encoding="utf-8") as schedule:
        json.dump(simulate_scenario(json.load(scenario), json.load(schedule)), sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
