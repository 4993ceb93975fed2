"""Ops in order on streams, with dependencies: when each of them runs."""

SAME_INSTANT = 1e-9  # relative


def same_instant(a, b):
    return abs(a - b) <= SAME_INSTANT * max(1.0, abs(a), abs(b))


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


def origins(op):
    """The ops of a dependency: itself, or the dependencies of a gate."""
    if op.stream is not None:
        return [op]
    return [origin for dep in op.deps for origin in origins(dep)]


def last_causes(op):
    """The dependencies of an op that ended last, together, and when they ended."""
    causes = [origin for dep in op.deps for origin in origins(dep)]
    latest = max((cause.end for cause in causes), default=0.0)
    return [cause for cause in causes if same_instant(cause.end, latest)], latest
