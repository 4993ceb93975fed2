"""The oracle alone: one step by hand, what it calls a tie, and orders that it cannot read. What else it says is held against
stp (check_oracle.py), and stp against steps by hand and the golden orders (simulate_test.cc, lower_by_hand_test.cc,
golden_files.py)."""

import random
import unittest

import oracle
from graph import OracleError

# One layer: each pass takes 2, without communication.
TWOS = {f"{unit}.{letter}": 1 for unit in ("attn", "mlp") for letter in "FIW"}


def schedule(placement, chunks, *ranks):
    ranks = [line.split() for line in ranks]
    microbatches = sum("F0." in action for block in ranks[0] for action in block.split("&"))
    return {"placement": placement, "pp": len(ranks), "chunks": chunks, "microbatches": microbatches, "ranks": ranks}


class Case(unittest.TestCase):
    def near(self, got, expected):
        self.assertAlmostEqual(got, expected, delta=1e-9 * max(1.0, abs(expected)))


class ByHand(Case):
    def test_two_ranks_with_everything(self):
        # Rank 0: attn.F 0-1, AR 1-1.5, mlp.F 1.5-2.5, AR 2.5-3, p2p 3-3.25.
        # Rank 1: attn.F 3.25, AR, mlp.F 4.75, AR to 6.25, head.F to 8.25, head.I to 12.25, head.W to 20.25; mlp.I
        # waits for the compute stream only: to 21.25, mlp.W to 22.25, attn.I to 23.25, AR to 23.75, attn.W to 24.25.
        # The gradient leaves at 23.75 (chain) or 24.25 (block). Rank 0 then takes 4: its last AR hides.
        unit = dict(TWOS, all_reduce=0.5, p2p=0.25) | {"head.F": 2, "head.I": 4, "head.W": 8}
        order = schedule("loop", 1, "F0.0 B0.0", "F0.0 B0.0")
        chain = oracle.simulate(order, [1, 1], unit)
        self.near(chain["step_time_s"], 28)
        self.near(chain["ranks"][0]["compute_s"], 6)
        self.near(chain["ranks"][0]["tp_bubble_s"], 0.5)
        self.near(chain["ranks"][0]["pp_bubble_s"], 21.5)
        self.near(chain["ranks"][1]["compute_s"], 20)
        self.near(chain["ranks"][1]["tp_bubble_s"], 1)
        self.near(chain["ranks"][1]["pp_bubble_s"], 3.25 + 28 - 24.25)
        self.near(oracle.simulate(order, [1, 1], unit, release="block")["step_time_s"], 28.5)

    def test_orders_that_cannot_be_run(self):
        for words, *ranks in (("deadlock", "F0.0 B0.0 F0.1 B0.1", "F0.0 F0.1 B0.0 B0.1"), ("no action", "F0.0 X0.1", "F0.0 B0.0")):
            with self.assertRaisesRegex(OracleError, words):
                oracle.simulate(schedule("loop", 1, *ranks), [1, 1], TWOS)


class Ties(Case):
    def test_tie_of_all_reduce_and_transfer_is_seen(self):
        # Rank 1 holds the turn of the V: in F1.0&F0.1 one input is its own F0.0's, with the last all-reduce, the
        # other comes from rank 0. Computes and all-reduces of 1: rank 0 sends at 4 and 7.
        order = schedule("v", 2, "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1", "F0.0 F1.0&F0.1 F1.1 B1.0 B0.0 B1.1 B0.1")
        unit = dict(TWOS, all_reduce=1, p2p=1)
        # F0.0 of rank 1 from 5 to 9, F0.1 comes at 8: the all-reduce is alone.
        alone = oracle.simulate(order, [1] * 4, unit, release="block")["ranks"][1]
        self.assertFalse(alone["tie"])
        # F0.0 of rank 1 from 8 to 12, F0.1 comes at 12, since the link is taken until 8.
        unit["p2p"] = 4
        tied = oracle.simulate(order, [1] * 4, unit, release="block")["ranks"][1]
        self.assertTrue(tied["tie"])


def megatrons_order(pp, chunks, microbatches):
    """1F1B, and with more chunks its interleaved order, by Megatron-Core's formulas."""
    total, ranks = chunks * microbatches, []
    for rank in range(pp):
        warm_up = min(total, (2 * (pp - 1 - rank) + (chunks - 1) * pp) if chunks > 1 else pp - 1 - rank)

        def action(number, backward):
            group, within = divmod(number, pp * chunks)
            chunk = within // pp
            return f"{'B' if backward else 'F'}{chunks - 1 - chunk if backward else chunk}.{group * pp + within % pp}"

        steady = [text for k in range(total - warm_up) for text in (action(warm_up + k, False), action(k, True))]
        ranks.append([action(k, False) for k in range(warm_up)] + steady + [action(k, True) for k in range(total - warm_up, total)])
    return {"placement": "loop", "pp": pp, "chunks": chunks, "microbatches": microbatches, "ranks": ranks}


class Posting(Case):
    """A Program lets a transfer begin when its tensor is there. In Megatron-Core it also waits until its receiver posts it, behind
    the block before (batched), or for a receive that its sender posted before it to the same neighbour (overlapped).
    Neither changes a step as long as a transfer takes less than any pass."""

    def step_with(self, posting, order, layers, unit):
        class Posted(oracle.Step):
            def add_rank(self, rank, blocks):
                for index, block in enumerate(blocks):
                    [one], [before] = block, blocks[index - 1]
                    for sent in self.inputs(one) if index > 0 else []:
                        if sent.stream and sent.stream[0] == "p2p":
                            mine = self.block_sends[rank, index - 1]
                            if posting == "batched":
                                sent.deps.append(self.output[before.signal])
                            elif index > 1 and before.kind != one.kind == blocks[index - 2][0].kind:
                                for send in (send for send in mine if send.stream[2] == sent.stream[1]):
                                    send.deps.append(sent)
                super().add_rank(rank, blocks)

        plain, oracle.Step = oracle.Step, Posted if posting else oracle.Step
        try:
            return oracle.simulate(order, layers, unit, release="megatron")["step_time_s"]
        finally:
            oracle.Step = plain

    def test_changes_no_step_of_megatron_core(self):
        rng = random.Random(1)
        for case in range(150):
            chunks = rng.choice((1, 1, 2, 3))
            pp = rng.randint(2, 5) if chunks == 1 else rng.randint(3, 5)
            order = megatrons_order(pp, chunks, pp * rng.randint(1, 4))
            layers = [rng.randint(1, 2)] * (pp * chunks)
            unit = {name: rng.uniform(1, 2) for name in TWOS} | {"head.F": rng.choice((0, rng.uniform(0, 4))), "p2p": rng.choice((0.1, 1))}
            with self.subTest(case=case, order=order["ranks"]):
                self.near(self.step_with("batched" if chunks == 1 else "queue", order, layers, unit), self.step_with(None, order, layers, unit))
        unit = dict(TWOS, p2p=9)
        order = megatrons_order(4, 3, 8)
        self.assertGreater(self.step_with("queue", order, [1] * 12, unit), self.step_with(None, order, [1] * 12, unit) * 1.01)


if __name__ == "__main__":
    unittest.main()
