"""PipeOffload's plan: when a finished order's activations go to the host and come back (docs/program-options.md, Offload)."""

import itertools
import types

from graph import Graph

NEAR = 1e-9  # times of a plan are simple sums


class BlockTimes:
    """The blocks of all ranks, each in one piece, the warm-up's forwards as late as they delay nothing."""

    def __init__(self, ranks, source_of, costs):
        seconds = dict(costs, B=costs["I"] + costs["W"])
        graph, takers, self.of = Graph(), {}, {}
        for rank, blocks in enumerate(ranks):
            for block in blocks:
                op = graph.add(f"{block[0].text} on rank {rank}", rank, sum(seconds[action.kind] for action in block))
                self.of.update({action.signal: op for action in block if action.kind != "W"})
                op.block = block
        for op in list(graph.ops):
            for made in filter(None, map(source_of, op.block)):
                hop = graph.add("p2p", None, 0 if self.of[made].stream == op.stream else costs["p2p"], [self.of[made]])
                op.deps.append(hop)
                takers.setdefault(self.of[made], []).append((op, hop.cost))
        graph.run()
        self.ranks = [graph.streams[rank] for rank in range(len(ranks))]
        warm_up = [(op, behind) for line in self.ranks for op, behind in itertools.takewhile(
                       lambda pair: all(action.kind == "F" for action in pair[0].block), zip(line, line[1:]))]  # fmt: skip
        for op, behind in sorted(warm_up, key=lambda pair: pair[0].start, reverse=True):
            end = min([behind.start] + [taker.start - hop for taker, hop in takers[op]])
            op.start, op.end = op.start + max(0, end - op.end), max(op.end, end)

    def first_from(self, rank, time):
        """The first block that does not start before a time."""
        return sum(op.start < time - NEAR for op in self.ranks[rank])


def free(start, copy, busy):
    """Whether a copy from `start` overlaps none."""
    return all(start + copy <= begin + NEAR or end <= start + NEAR for begin, end in busy)


def plan_of_link(times, ranks, costs, copy, chunks):
    """The copies of ranks that share a link: rank, action, start, the block before which it stands, and `bound`: of a copy out
    the block that frees the memory, of a copy back the block in which it starts."""
    stays = []
    for rank in ranks:
        backward = {(action.chunk, action.microbatch): (action, op) for op in times.ranks[rank] for action in op.block if action.kind in "IB"}
        for op in times.ranks[rank]:
            for action in (action for action in op.block if action.kind == "F" and action.chunk < chunks):
                to, end = backward[action.chunk, action.microbatch]
                if end.start - op.end > 6 * copy + NEAR:
                    stays.append(types.SimpleNamespace(rank=rank, action=action, to=to, begin=op.end, end=end.start, index=times.ranks[rank].index(end)))
    backs, outs, own, made = [], [], {rank: [] for rank in ranks}, []
    for stay in sorted(stays, key=lambda stay: -stay.end):
        until = stay.end - costs["I"]
        ends = [until] + [begin for begin, _ in backs if begin < until]
        stay.back = max(end - copy for end in ends if free(end - copy, copy, backs))
        if stay.back >= (stay.begin + stay.end) / 2:
            made.append(stay)
            backs.append((stay.back, stay.back + copy))
            own[stay.rank].append(backs[-1])
    plan = []
    for stay in sorted(made, key=lambda stay: stay.begin):
        for length in (0.7 * copy, copy):
            busy = outs + own[stay.rank]
            starts = [stay.begin] + [end for _, end in busy if end > stay.begin]
            start = min(start for start in starts if free(start, length, busy))
            if start + length <= min(begin for begin, _ in backs) + NEAR:
                break
        frees, during = times.first_from(stay.rank, start + length), times.first_from(stay.rank, stay.back + 2 * NEAR) - 1
        if start + length <= stay.back + NEAR and frees < during:
            outs.append((start, start + length))
            before = times.first_from(stay.rank, start), min(stay.index, times.first_from(stay.rank, stay.back))
            plan.append(types.SimpleNamespace(rank=stay.rank, action=stay.action, start=start, block=before[0], bound=frees))
            plan.append(types.SimpleNamespace(rank=stay.rank, action=stay.to, start=stay.back, block=before[1], bound=during))
    return sorted(plan, key=lambda copy: (copy.start, copy.rank))


def plan_copies(ranks, source_of, costs, options):
    """Per link, its copies in the order in which they start."""
    times = BlockTimes(ranks, source_of, costs)
    copy = options.get("round_trip", 1) / 2 * (costs["F"] + costs["I"] + costs["W"])
    share = options.get("share", 2)
    links = [range(first, min(first + share, len(ranks))) for first in range(0, len(ranks), share)]
    return [plan_of_link(times, link, costs, copy, options["chunks"]) for link in links]
