"""Schedules as the oracle reads them: blocks of actions, and the segments of an action."""

import re

from graph import OracleError


VOCABULARY = "STUEG"  # passes of all ranks, each on its share


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
        match = re.fullmatch(r"([FIWBSTUEG])(\d+)\.(\d+)", text)
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
        """Its output: activations (F) or gradients (G), named by the stage that makes them, or the rank's part of what all ranks make."""
        if self.kind in VOCABULARY:
            return (self.kind, self.rank, self.microbatch)
        return ("F" if self.kind == "F" else "gradient", self.stage, self.microbatch)


def stage_of(placement, pp, chunks, rank, chunk):
    if placement == "loop":
        return chunk * pp + rank
    if placement in ("v", "bidirectional"):  # in two directions the second pipeline's stages are counted behind the first's
        if chunks != 2:
            raise OracleError(f"placement '{placement}' has two chunks per rank")
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


def segments_of(kind, layers, last, costs, backward, one_barrier=False):
    """The chain of segments of one action on a chunk of so many layers."""
    segments = []
    if kind in VOCABULARY:
        forward, gradient = (Segment(name, costs[name], False) for name in ("head.F", "head.I"))
        return {
            "E": [Segment("embedding.F", costs["embedding.F"], True)],
            "G": [Segment("embedding.W", costs["embedding.W"], False)],
            "S": [forward, gradient] if one_barrier else [forward],
            "T": [Segment("head.I", costs["head.I"], False, ("head.W", costs["head.W"]))],
            "U": [Segment("head.W", costs["head.W"], False)],
        }[kind]
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


def read_blocks(schedule, braid):
    """Per rank a list of blocks, each a list of one or two Actions with their stages."""
    ranks = []
    for rank, texts in enumerate(schedule["ranks"]):
        blocks = []
        if braid == "sequential":  # every braided block counts as two
            texts = [part for text in texts for part in text.split("&")]
        for index, text in enumerate(texts):
            block = [Action(part, rank, index) for part in text.split("&")]
            for action in block:
                action.stage = stage_of(schedule["placement"], schedule["pp"], schedule["chunks"], rank, action.chunk)
            blocks.append(block)
        ranks.append(blocks)
    return ranks


def offloaded(blocks):
    """By microbatch of chunk 0, the blocks of its forward and its backward, where it is worth a way to the host and back: a
    block for each copy, and at least one between them."""
    places = {}
    for index, block in enumerate(blocks):
        for action in block:
            if action.chunk == 0 and action.kind in "FIB":
                places.setdefault(action.microbatch, []).append(index)
    return {microbatch: (begin, end) for microbatch, (begin, end) in places.items() if end - begin >= 4}
