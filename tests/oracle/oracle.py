"""A slow, obvious simulator of unit-cost scenarios, to check the fast one.

It builds the graph of ops that the semantics of a Program prescribe (ops with a stream, a cost and dependencies;
in-order streams) and finds when each op starts by the longest path. It shares no code with the suite: where the two
disagree, one of them has misread the text.

    oracle.py SCENARIO.json SCHEDULE.json     prints the figures of one schedule under one scenario as JSON
"""

import json
import re
import sys

COSTS = (
    "attn.F", "attn.I", "attn.W", "attn.W_early",
    "mlp.F", "mlp.I", "mlp.W", "mlp.W_early",
    "head.F", "head.I", "head.W",
    "all_reduce", "p2p", "gradient_reduce", "offload", "reload",
)  # fmt: skip
# With context parallelism these stand for attn.F and attn.I.
IN_PARTS = tuple(f"attn.{letter}_{part}" for letter in "FI" for part in ("before", "core", "after"))
EXCHANGES = {"ring": "kv_exchange", "all-to-all": "all_to_all"}  # by the method of context parallelism
RELEASES = ("chain", "block", "released", "blocking")
OF_THE_TRAINER = ("released", "blocking")
BACKWARDS = ("suite", "megatron")
BRAIDS = ("static", "sequential")
FREED_AT = ("W", "I")

# Two ends closer than this (relative to their size) count as the same instant: sums of the same costs in another
# order differ by rounding.
SAME_INSTANT = 1e-9

# Of a program with post-validation, as many are simulated at most.
MOST_STEPS = 32


class OracleError(Exception):
    """The input is no schedule, or the schedule deadlocks."""


class Op:
    """One op. A gate (stream None) costs nothing, holds no stream, and only gathers dependencies under one name."""

    def __init__(self, label, stream, cost=0.0, deps=()):
        self.label = label
        self.stream = stream
        self.cost = cost
        self.deps = list(deps)
        self.before = None  # the op before it on its stream
        self.start = None
        self.end = None

    def __repr__(self):
        return self.label


class Segment:
    """A compute op, then its all-reduce if there is one, then the weight gradient behind it if there is one."""

    def __init__(self, name, cost, reduces, weight=None):
        self.name = name
        self.cost = cost
        self.early = 0.0  # of the cost
        self.reduces = reduces
        self.weight = weight

    @property
    def in_ring(self):
        """Whether context parallelism divides it; with Megatron's order `early` follows its last part."""
        return self.name in ("attn.F", "attn.I")


class Action:
    def __init__(self, text, rank, block):
        match = re.fullmatch(r"([FIWB])(\d+)\.(\d+)", text)
        if not match:
            raise OracleError(f"rank {rank}, block {block}: '{text}' is no action")
        self.text = text
        self.rank = rank
        self.block = block
        self.kind = match[1]
        self.chunk = int(match[2])
        self.microbatch = int(match[3])
        self.stage = None
        self.segments = []
        self.main_end = None  # the last op of the main line: an all-reduce, head.F or head.I
        self.computed = None  # its last compute op

    @property
    def signal(self):
        """Its output: activations (F) or gradients (G), named by the stage that makes them."""
        return ("F" if self.kind == "F" else "G", self.stage, self.microbatch)


def stage_of(placement, pp, chunks, rank, chunk):
    if placement == "loop":
        return chunk * pp + rank
    if placement == "v":
        if chunks != 2:
            raise OracleError("placement 'v' has two chunks per rank")
        return rank if chunk == 0 else 2 * pp - 1 - rank
    raise OracleError(f"unknown placement '{placement}'")


def merge(na, nb):
    """The static braid of na segments with nb: a string of 'a' and 'b'."""
    order = ""
    i = j = 0
    while i < na or j < nb:
        if i < na and (i * nb <= j * na or j == nb):
            order += "a"
            i += 1
        else:
            order += "b"
            j += 1
    return order


def segments_of(kind, layers, last, costs, backward):
    """The chain of segments of one action on a chunk of so many layers."""
    segments = []
    if kind == "F":
        for _ in range(layers):
            segments.append(Segment("attn.F", costs["attn.F"], True))
            segments.append(Segment("mlp.F", costs["mlp.F"], True))
        if last:
            segments.append(Segment("head.F", costs["head.F"], False))
    elif kind == "I":
        if last:
            segments.append(Segment("head.I", costs["head.I"], False))
        for _ in range(layers):
            segments.append(Segment("mlp.I", costs["mlp.I"], True))
            segments.append(Segment("attn.I", costs["attn.I"], True))
    elif kind == "B":
        if last:
            segments.append(Segment("head.I", costs["head.I"], False, ("head.W", costs["head.W"])))
        for _ in range(layers):
            for unit in ("mlp", "attn"):
                compute, behind = costs[unit + ".I"], costs[unit + ".W"]
                if backward == "megatron":
                    compute += costs[unit + ".W_early"]
                else:
                    behind += costs[unit + ".W_early"]
                segments.append(Segment(unit + ".I", compute, True, (unit + ".W", behind)))
                if backward == "megatron":
                    segments[-1].early = costs[unit + ".W_early"]
    elif kind == "W":
        if last:
            segments.append(Segment("head.W", costs["head.W"], False))
        for _ in range(layers):
            for unit in ("mlp", "attn"):
                segments.append(Segment(unit + ".W", costs[unit + ".W"] + costs[unit + ".W_early"], False))
    return segments


def read_blocks(schedule, layers, braid):
    """Per rank a list of blocks, each a list of one or two Actions with their stages; checks that none is missing."""
    pp, chunks, microbatches = schedule["pp"], schedule["chunks"], schedule["microbatches"]
    if len(schedule["ranks"]) != pp:
        raise OracleError(f"{len(schedule['ranks'])} ranks listed, pp is {pp}")
    if len(layers) != pp * chunks:
        raise OracleError(f"{len(layers)} layer counts for {pp * chunks} virtual stages")
    ranks = []
    for rank, texts in enumerate(schedule["ranks"]):
        blocks = []
        if braid == "sequential":  # every braided block counts as two
            texts = [part for text in texts for part in text.split("&")]
        for index, text in enumerate(texts):
            block = [Action(part, rank, index) for part in text.split("&")]
            if len(block) > 2:
                raise OracleError(f"rank {rank}, block {index}: more than two actions")
            for action in block:
                action.stage = stage_of(schedule["placement"], pp, chunks, rank, action.chunk)
            blocks.append(block)
        done = {}
        for block in blocks:
            for action in block:
                done.setdefault((action.chunk, action.microbatch), []).append(action.kind)
        wanted = {(c, k) for c in range(chunks) for k in range(microbatches)}
        if set(done) != wanted:
            raise OracleError(f"rank {rank}: missing or surplus {sorted(set(done) ^ wanted)[:4]}")
        for pair, kinds in done.items():
            if kinds not in (["F", "B"], ["F", "I", "W"]):
                raise OracleError(f"rank {rank}: passes {kinds} of chunk {pair[0]}, microbatch {pair[1]}")
        ranks.append(blocks)
    return ranks


class Graph:
    """All ops of a step. A stream is a list of ops in order; its key says what it is and whose."""

    def __init__(self):
        self.ops = []
        self.streams = {}

    def add(self, label, stream, cost=0.0, deps=()):
        op = Op(label, stream, cost, deps)
        if stream is not None:
            line = self.streams.setdefault(stream, [])
            op.before = line[-1] if line else None
            line.append(op)
        self.ops.append(op)
        return op

    def run(self):
        """Gives each op its start and end, in the order in which they become ready."""
        missing = {}
        followers = {}
        for op in self.ops:
            needed = set(op.deps)
            if op.before is not None:
                needed.add(op.before)
            missing[op] = len(needed)
            for other in needed:
                followers.setdefault(other, []).append(op)
        ready = [op for op in self.ops if missing[op] == 0]
        for op in ready:  # grows while it is walked
            waits = op.deps if op.before is None else op.deps + [op.before]
            op.start = max((other.end for other in waits), default=0.0)
            op.end = op.start + op.cost
            for follower in followers.get(op, ()):
                missing[follower] -= 1
                if missing[follower] == 0:
                    ready.append(follower)
        if len(ready) < len(self.ops):
            stuck = [line for line in self.streams.values() if line[-1].end is None]
            heads = [next(op for op in line if op.end is None) for line in stuck]
            raise OracleError(f"deadlock: waiting at {heads[:6]}")


def parts_of(graph, rank, name, segment, costs, cp, method, deps):
    """The ops of attn.F or attn.I with context parallelism, the last of them the part after the core."""
    part = {which: costs[f"{segment.name}_{which}"] for which in ("before", "core", "after")}
    backward = segment.name == "attn.I"
    ops = [graph.add(name + ", before", ("compute", rank), part["before"], deps)]

    def compute():
        return [op for op in ops if op.stream == ("compute", rank)][-1]

    def exchange(what):
        ops.append(graph.add(f"{what} in {name}", ("cp", rank), costs[EXCHANGES[method]], [compute()]))
        return ops[-1]

    if method == "all-to-all":
        for part_name, cost, what in (("core", part["core"], "heads come together"), ("after", part["after"] + segment.early, "heads go back")):
            arrived = exchange(what)
            ops.append(graph.add(f"{name}, {part_name}", ("compute", rank), cost, [arrived]))
        return ops

    keys = {}
    for step in range(cp):
        if step + 1 < cp:
            keys[step + 1] = exchange(f"KV{step + 1}")
        if backward and step > 0:
            exchange(f"dKV{step}")
        needed = [keys[step]] if step > 0 else []
        ops.append(graph.add(f"{name}, step {step}", ("compute", rank), part["core"], needed))
    needed = [exchange(f"dKV{cp}")] if backward else []
    ops.append(graph.add(name + ", after", ("compute", rank), part["after"] + segment.early, needed))
    return ops


def offloaded(blocks):
    """By microbatch of chunk 0, the blocks of its forward and its backward, where it is worth a way to the host and back: a
    block for each copy, and at least one between them."""
    places = {}
    for index, block in enumerate(blocks):
        for action in block:
            if action.chunk == 0 and action.kind in "FIB":
                places.setdefault(action.microbatch, []).append(index)
    return {microbatch: (begin, end) for microbatch, (begin, end) in places.items() if end - begin >= 4}


def build(schedule, layers, costs, release, backward, braid, dp, zero, cp, method, offload, graph, ended):
    """Adds the ops of a step to the graph. `ended`: with post-validation, by rank, its optimizer op in the step before, or
    None; its op in this one takes its place."""
    pp, chunks = schedule["pp"], schedule["chunks"]
    last_stage = pp * chunks - 1
    ranks = read_blocks(schedule, layers, braid)
    rank_of = {}
    for rank in range(pp):
        for chunk in range(chunks):
            rank_of[stage_of(schedule["placement"], pp, chunks, rank, chunk)] = rank

    # Outputs of chains are named before the ops exist, since the consumer may stand before the producer in this
    # walk over the ranks. `output`: the moment it leaves. `sent`: its transfer, where it crosses to another rank.
    output = {}
    sent = {}
    for blocks in ranks:
        for block in blocks:
            for action in block:
                if action.kind != "W":
                    output[action.signal] = graph.add(f"output of {action.text} on rank {action.rank}", None)

    def receiver(action):
        """The rank that its output goes to, or None where no other rank needs it."""
        if action.kind == "W":
            return None
        stage = action.stage + (1 if action.kind == "F" else -1)
        if not 0 <= stage <= last_stage or rank_of[stage] == action.rank:
            return None
        return rank_of[stage]

    def of_step_before(rank):
        """What an op waits for that would wait for nothing."""
        return [ended[rank]] if ended and ended[rank] else []

    # Post-validation: the last step's norm comes back from the last rank.
    total = {}
    for rank in reversed(range(1, pp)):
        if ended:
            deps = of_step_before(rank) if rank == pp - 1 else [total[rank + 1]]
            total[rank] = graph.add(f"norm of the last step from rank {rank}", ("p2p", rank, rank - 1), 0, deps)

    # With ZeRO-1 a chunk's weights are gathered before its first F, in the order of these.
    gathers = {}
    for rank, blocks in enumerate(ranks):
        for action in (action for block in blocks for action in block):
            if dp * cp > 1 and zero and action.kind == "F" and (rank, action.chunk) not in gathers:
                cost = layers[action.stage] * costs["gradient_reduce"] / 2
                name = f"weights of chunk {action.chunk} on rank {rank}"
                gathers[rank, action.chunk] = graph.add(name, ("dp", rank), cost, of_step_before(rank))

    # One stream per pair of sender and receiver, in the order of the sender's program; the action named first first.
    block_sends = {}
    for rank, blocks in enumerate(ranks):
        for index, block in enumerate(blocks):
            sends = block_sends[rank, index] = []
            targets = [receiver(action) for action in block]
            pair = len(block) == 2 and all(action.kind == "F" for action in block)
            if release in OF_THE_TRAINER and pair and targets[0] is not None and block[0].chunk == block[1].chunk:
                deps = [output[action.signal] for action in block]
                op = graph.add(f"p2p {block[0].text}&{block[1].text}", ("p2p", rank, targets[0]), 2 * costs["p2p"], deps)
                sends.append(op)
                for action in block:
                    sent[action.signal] = op
                continue
            for action, target in zip(block, targets):
                if target is not None:
                    deps = [output[action.signal]]
                    op = graph.add(f"p2p {action.text} {rank}->{target}", ("p2p", rank, target), costs["p2p"], deps)
                    sends.append(op)
                    sent[action.signal] = op

    def inputs(action):
        """What its first segment waits for."""
        if action.kind == "W" or (action.kind == "F" and action.stage == 0):
            return []
        if action.kind == "F":
            source = ("F", action.stage - 1, action.microbatch)
        elif action.stage == last_stage:
            source = ("F", last_stage, action.microbatch)
        else:
            source = ("G", action.stage + 1, action.microbatch)
        return [sent[source] if source in sent else output[source]]

    prefix = {}
    for rank, blocks in enumerate(ranks):
        held = layers[stage_of(schedule["placement"], pp, chunks, rank, 0)]  # layers of chunk 0
        away = offloaded(blocks) if offload > 0 and held > 0 else {}
        copies = {}  # by microbatch: the copy to the host, then the one back
        leaving = []  # block of the forward and copy, while its memory is held
        reductions = []
        for index, block in enumerate(blocks):
            issued = [graph.streams[stream, rank][-1] for stream in ("compute", "tp") if (stream, rank) in graph.streams]
            awaited = []
            for action in block:
                layer_count = layers[action.stage]
                action.segments = segments_of(action.kind, layer_count, action.stage == last_stage, costs, backward)

            # What every op of the block waits for.
            gate = []
            if release != "chain":
                for action in block:
                    gate += inputs(action)
                weights_alone = all(action.kind == "W" for action in block)
                if index > 0 and (release == "blocking" or (release == "released" and not weights_alone)):
                    gate += block_sends[rank, index - 1]

            paired = release in OF_THE_TRAINER and len(block) == 2 and all(action.kind == "F" for action in block)
            if len(block) == 1:
                order = [block[0]] * len(block[0].segments)
            else:
                counts = [len(action.segments) for action in block]
                if paired:  # the second waits for the last all-reduce of the first
                    letters = "a" * counts[0] + "b" * counts[1]
                else:
                    letters = merge(*counts)
                order = [block[letter == "b"] for letter in letters]

            taken = {id(action): 0 for action in block}
            block_ops = []
            for action in order:
                position = taken[id(action)]
                taken[id(action)] += 1
                segment = action.segments[position]
                name = f"{segment.name} of {action.text} on rank {rank}"
                deps = list(gate)
                if not block_ops:
                    awaited = [copy for begin, copy in leaving if begin + 2 <= index]
                    leaving = [(begin, copy) for begin, copy in leaving if begin + 2 > index]
                    deps += awaited
                if position == 0 and action.kind in "IB" and action.chunk == 0 and action.microbatch in away:
                    deps.append(copies[action.microbatch])
                if [(other.kind, other.chunk) for other in block] != [("F", 0)] and rank + 1 in total:
                    deps.append(total.pop(rank + 1))
                if position == 0:
                    deps += inputs(action)
                    if action.kind == "F" and (rank, action.chunk) in gathers:
                        deps.append(gathers.pop((rank, action.chunk)))
                    if paired and action is block[1] and block[0].main_end is not None:
                        deps.append(block[0].main_end)
                elif action.kind != "W":
                    deps.append(action.main_end)  # the all-reduce of the segment before, or its compute without one
                if cp > 1 and segment.in_ring:
                    block_ops += parts_of(graph, rank, name, segment, costs, cp, method, deps)
                else:
                    block_ops.append(graph.add(name, ("compute", rank), segment.cost, deps))
                compute = block_ops[-1]
                action.main_end = action.computed = compute
                if segment.reduces:
                    reduce = graph.add("all-reduce after " + name, ("tp", rank), costs["all_reduce"], [compute])
                    block_ops.append(reduce)
                    action.main_end = reduce
                if segment.weight is not None:
                    weight, cost = segment.weight
                    label = f"{weight} of {action.text} on rank {rank}"
                    block_ops.append(graph.add(label, ("compute", rank), cost, gate + [compute]))

            for action in blocks[index + 1] if index + 1 < len(blocks) else []:
                if action.kind in "IB" and action.chunk == 0 and action.microbatch in away:
                    cost = offload * held * costs["reload"]
                    deps = [copies[action.microbatch]] + issued + awaited
                    copies[action.microbatch] = graph.add(f"reload for {action.text}", ("h2d", rank), cost, deps)
            for action in block:
                if action.kind == "F" and action.chunk == 0 and action.microbatch in away:
                    cost = offload * held * costs["offload"]
                    copies[action.microbatch] = graph.add(f"offload of {action.text}", ("d2h", rank), cost, [action.computed])
                    leaving.append((index, copies[action.microbatch]))

            # Where several ranks hold a chunk, its gradients are reduced once its last B or W is issued.
            if dp * cp > 1:
                computes = [op for op in block_ops if op.stream == ("compute", rank)]
                for position, action in enumerate(block):
                    later = block[position + 1 :] + [other for each in blocks[index + 1 :] for other in each]
                    if action.kind in "BW" and not any(o.chunk == action.chunk and o.kind in "BW" for o in later):
                        cost = layers[action.stage] * costs["gradient_reduce"] / (2 if zero else 1)
                        name = f"gradients of chunk {action.chunk} on rank {rank}"
                        reductions.append(graph.add(name, ("dp", rank), cost, computes[-1:]))

            for action in block:
                if action.kind == "W":
                    continue
                if release == "chain":
                    output[action.signal].deps = [action.main_end] if action.main_end else inputs(action)
                else:
                    # A block without segments passes its inputs on.
                    output[action.signal].deps = block_ops or [dep for each in block for dep in inputs(each)]

        if ended:
            norm = graph.add(f"norm on rank {rank}", ("compute", rank), 0, reductions)
            before = [prefix[rank - 1]] if rank > 0 else []
            if rank + 1 < pp:
                prefix[rank] = graph.add(f"norm so far from rank {rank}", ("p2p", rank, rank + 1), 0, [norm] + before)
            ended[rank] = graph.add(f"optimizer of rank {rank}", ("compute", rank), 0, before)
    return ranks


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


def origins(op):
    """The ops of a dependency: itself, or the dependencies of a gate."""
    if op.stream is not None:
        return [op]
    return [origin for dep in op.deps for origin in origins(dep)]


def same_instant(a, b):
    return abs(a - b) <= SAME_INSTANT * max(1.0, abs(a), abs(b))


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


def simulate(schedule, layers_per_chunk, unit, release="chain", backward="suite", freed_at="W", braid="static", dp=1, zero=0, cp=1, offload=0,
             post_validation=False, cp_method="ring"):
    """The figures of one step.

    Per rank also `tie`: an idle time has an all-reduce of the rank (or an exchange of its own) and something else as
    its last dependency, both ending at the same instant, so that its split into pp_bubble_s and tp_bubble_s is open and only the sum is fixed.
    """
    for value, known in ((release, RELEASES), (backward, BACKWARDS), (freed_at, FREED_AT), (braid, BRAIDS), (cp_method, tuple(EXCHANGES))):
        if value not in known:
            raise OracleError(f"'{value}' is none of {known}")
    unknown = set(unit) - set(costs_of(cp, cp_method))
    if unknown:
        raise OracleError(f"unknown unit costs {sorted(unknown)}")
    costs = {name: float(unit.get(name, 0)) for name in COSTS + IN_PARTS + tuple(EXCHANGES.values())}

    def add_step(graph, ended):
        return build(schedule, layers_per_chunk, costs, release, backward, braid, dp, zero, cp, cp_method, offload, graph, ended)

    if post_validation:
        graph, ends = run_steps(schedule["pp"], add_step)
        step = max(last.end - first.end for first, last in ends)
        ranks = read_blocks(schedule, layers_per_chunk, braid)
    else:
        graph = Graph()
        ranks = add_step(graph, None)
        graph.run()
        step = max((op.end for op in graph.ops if op.stream is not None), default=0.0)
    figures = []
    for rank, blocks in enumerate(ranks):
        busy = pp_bubble = tp_bubble = 0.0
        tie = False
        line = graph.streams.get(("compute", rank), [])
        begin = now = 0.0
        if post_validation:
            begin = now = ends[rank][0].end
            line = line[line.index(ends[rank][0]) + 1 :]
        for op in line:
            idle = op.start - now
            if idle > 0:
                causes = [origin for dep in op.deps for origin in origins(dep)]
                latest = max(cause.end for cause in causes)
                causes = [cause for cause in causes if same_instant(cause.end, latest)]
                own = [cause for cause in causes if cause.stream in (("tp", rank), ("cp", rank))]
                if own:
                    tp_bubble += idle
                else:
                    pp_bubble += idle
                if own and len(own) < len(causes) and not same_instant(op.start, now):
                    tie = True
            busy += op.cost
            now = op.end
        pp_bubble += step - (now - begin)
        figures.append(
            {
                "compute_s": busy,
                "pp_bubble_s": pp_bubble,
                "tp_bubble_s": tp_bubble,
                "peak_activation_chunks": peak_of(blocks, freed_at),
                "tie": tie,
            }
        )
    return {"step_time_s": step, "ranks": figures}


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
    return simulate(
        schedule,
        scenario["layers_per_chunk"],
        scenario["costs"]["unit"],
        scenario.get("release", "chain"),
        scenario.get("backward", "suite"),
        scenario.get("freed_at", "W"),
        scenario.get("braid", "static"),
        scenario["parallel"].get("dp", 1),
        scenario.get("zero", 0),
        scenario["parallel"].get("cp", 1),
        scenario.get("offload", {}).get("ratio", 0),
        scenario.get("post_validation", False),
        scenario["parallel"].get("cp_method", "ring"),
    )


def main(argv):
    if len(argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as file:
        scenario = json.load(file)
    with open(argv[2], encoding="utf-8") as file:
        schedule = json.load(file)
    try:
        json.dump(simulate_scenario(scenario, schedule), sys.stdout, indent=1)
    except OracleError as error:
        print(f"oracle: {error}", file=sys.stderr)
        return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
