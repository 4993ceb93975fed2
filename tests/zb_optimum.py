"""Zero Bubble's integer program against its heuristic, `zb-auto`: no order of one chunk a rank within the limit is faster
than the program's, on small pipelines. Both orders are valid, and run as long as they say.

    zb_optimum.py STP_BINARY
"""

import itertools

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from command_line import CommandLine, main
from golden_files import configuration

COSTS = [{"F": 1, "I": 1, "W": 1, "p2p": 0.001}, {"F": 1, "I": 1.2, "W": 0.7, "p2p": 0.06}]
CASES = [(p, m, limit, costs) for p in (2, 3) for m in (2, 3, 4) for limit in range(1, m + 1) for costs in COSTS]


class Program:
    """Variables: when each pass ends; per pair of passes of a rank whose order is open, whether it is reversed; the end."""

    def __init__(self, p, m, limit, costs):
        self.costs = costs
        self.passes = list(itertools.product(range(p), "FIW", range(m)))
        pairs = [(a, b) for a in self.passes for b in self.passes
                 if a[0] == b[0] and "FIW".index(a[1]) < "FIW".index(b[1]) and a[2] > b[2]]  # fmt: skip
        self.index = {one: place for place, one in enumerate([*self.passes, *pairs, "end"])}
        self.rows, self.least = [], []
        for one in self.passes:
            for before, transferred in self.before(p, *one):
                self.need({one: 1, before: -1}, costs[one[1]] + transferred * costs["p2p"])
            self.need({"end": 1, one: -1}, 0)
        never = p * m * (sum(costs.values()) + 2 * costs["p2p"])
        for a, b in pairs:
            self.need({a: 1, b: -1, (a, b): -never}, costs[a[1]] - never)
            self.need({b: 1, a: -1, (a, b): never}, costs[b[1]])
        for rank, last in itertools.product(range(p), range(m)):
            freed = {((rank, "F", last), (rank, "W", i)): 1 for i in range(last)}
            self.need(freed, last + 1 - limit)

    @staticmethod
    def before(p, rank, kind, i):
        """(pass, whether its output is transferred) that a pass waits for."""
        if i > 0:
            yield (rank, kind, i - 1), False
        if kind == "W":
            yield (rank, "I", i), False
        elif kind == "I":
            yield ((rank + 1, "I", i), True) if rank + 1 < p else ((rank, "F", i), False)
        elif rank > 0:
            yield (rank - 1, "F", i), True

    def need(self, factors, least):
        row = np.zeros(len(self.index))
        for variable, factor in factors.items():
            row[self.index[variable]] = factor
        self.rows.append(row)
        self.least.append(least)

    def solve(self):
        """The least makespan, and the order of each rank."""
        passes, all_ = len(self.passes), len(self.index)
        lower, upper, whole, goal = np.zeros(all_), np.full(all_, np.inf), np.zeros(all_), np.zeros(all_)
        lower[:passes] = [self.costs[kind] for _, kind, _ in self.passes]
        upper[passes:-1] = whole[passes:-1] = goal[-1] = 1
        found = milp(goal, constraints=LinearConstraint(np.array(self.rows), self.least, np.inf), integrality=whole,
                     bounds=Bounds(lower, upper), options={"mip_rel_gap": 0})  # fmt: skip
        ends = dict(zip(self.passes, found.x))
        ranks = {rank: sorted((one for one in ends if one[0] == rank), key=ends.get) for rank, _, _ in self.passes}
        return found.fun, [[f"{kind}0.{i}" for _, kind, i in ranks[rank]] for rank in ranks]


class Optimum(CommandLine):
    def simulated(self, orders):
        rows = self.results({"name": "orders", "configurations": [configuration(*order) for order in orders]})
        return [(row["step_time_s"], max(rank["peak_activation_chunks"] for rank in row["ranks"])) for row in rows]

    def test_the_heuristic_is_never_faster_and_often_as_fast(self):
        of_program, of_heuristic, least = [], [], []
        for number, (p, m, limit, costs) in enumerate(CASES):
            time, ranks = Program(p, m, limit, costs).solve()
            least.append(time)
            order = {"schedule": "program", "placement": "loop", "pp": p, "microbatches": m, "chunks": 1, "ranks": ranks}
            of_program.append((self.write(order, f"program-{number}.json"), order, costs))
            ours = self.succeed("schedule", "zb-auto", "--pp", p, "--microbatches", m, "--memory-limit", limit, "--costs",
                                ",".join(map(str, costs.values())), "--format", "json").stdout  # fmt: skip
            of_heuristic.append((self.write(ours, f"heuristic-{number}.json"), order, costs))
        equal = 0
        results = zip(CASES, least, self.simulated(of_program), self.simulated(of_heuristic), strict=True)
        for case, time, (step, peak), (ours, our_peak) in results:
            self.assertAlmostEqual(step, time, delta=1e-6, msg=case)
            self.assertLessEqual(max(peak, our_peak), case[2])
            self.assertGreaterEqual(ours, step - 1e-6, case)
            equal += ours < step + 1e-6
        self.assertGreaterEqual(equal, 30)


if __name__ == "__main__":
    main(__doc__)
