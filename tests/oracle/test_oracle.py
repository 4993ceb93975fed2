"""The oracle against closed forms, hand-computed steps and the golden orders."""

import json
import random
import unittest
from pathlib import Path

import check_oracle
import oracle

GOLDEN = Path(__file__).resolve().parent.parent / "golden"

# One layer: each pass takes 2, without communication.
TWOS = {f"{unit}.{letter}": 1 for unit in ("attn", "mlp") for letter in "FIW"}


def schedule(placement, chunks, *ranks):
    ranks = [line.split() for line in ranks]
    microbatches = sum("F0." in action for block in ranks[0] for action in block.split("&"))
    return {
        "placement": placement,
        "pp": len(ranks),
        "chunks": chunks,
        "microbatches": microbatches,
        "ranks": ranks,
    }


def one_f_one_b(pp, microbatches):
    ranks = []
    for rank in range(pp):
        warmup = min(pp - 1 - rank, microbatches)
        blocks = [f"F0.{k}" for k in range(warmup)]
        for k in range(warmup, microbatches):
            blocks += [f"F0.{k}", f"B0.{k - warmup}"]
        blocks += [f"B0.{k}" for k in range(microbatches - warmup, microbatches)]
        ranks.append(" ".join(blocks))
    return schedule("loop", 1, *ranks)


def golden_files():
    return sorted(GOLDEN.glob("*.json"))


def golden_schedule(golden):
    return {
        "placement": golden["placement"],
        "pp": golden["p"],
        "chunks": golden["v"],
        "microbatches": golden["m"],
        "ranks": golden["ranks"],
    }


def halved(costs):
    """Unit costs of one layer whose passes cost what the golden file says."""
    unit = {"p2p": costs["p2p"]}
    for letter in "FIW":
        unit["attn." + letter] = unit["mlp." + letter] = costs[letter] / 2
    return unit


class Case(unittest.TestCase):
    def near(self, got, expected, message=None):
        self.assertAlmostEqual(got, expected, delta=1e-9 * max(1.0, abs(expected)), msg=message)


class Golden(Case):
    def test_files_are_there(self):
        self.assertGreaterEqual(len(golden_files()), 64)

    def test_block_release_gives_the_atomic_makespans(self):
        shared = 0
        for path in golden_files():
            golden = json.loads(path.read_text(encoding="utf-8"))
            layers = [1] * (golden["p"] * golden["v"])
            for entry in golden["makespan"]:
                with self.subTest(file=path.name, costs=entry["costs"]):
                    result = oracle.simulate(golden_schedule(golden), layers, halved(entry["costs"]), "block")
                    # Both outputs of a block may take one link: STP's paired forwards, DualPipeV's braids of two
                    # chunks. Links here are in order, the golden evaluator's are not.
                    pairs = golden["schedule"] == "DualPipeV" or (golden["schedule"] == "STP" and golden["p"] >= 4)
                    if pairs and entry["costs"]["p2p"] > 0:
                        shared += 1
                        self.assertGreater(result["step_time_s"], entry["atomic"])
                    else:
                        self.near(result["step_time_s"], entry["atomic"])
        self.assertGreaterEqual(shared, 12)

    def test_chain_release_gives_the_early_makespans_of_split_orders_without_braids(self):
        seen = 0
        for path in golden_files():
            golden = json.loads(path.read_text(encoding="utf-8"))
            blocks = [block for rank in golden["ranks"] for block in rank]
            if any("&" in block or block[0] == "B" for block in blocks):
                continue
            seen += 1
            layers = [1] * (golden["p"] * golden["v"])
            for entry in golden["makespan"]:
                with self.subTest(file=path.name, costs=entry["costs"]):
                    result = oracle.simulate(golden_schedule(golden), layers, halved(entry["costs"]), "chain")
                    self.near(result["step_time_s"], entry["early"])
        self.assertGreaterEqual(seen, 24)

    def test_peaks(self):
        for path in golden_files():
            golden = json.loads(path.read_text(encoding="utf-8"))
            layers = [1] * (golden["p"] * golden["v"])
            for freed_at in ("W", "I"):
                with self.subTest(file=path.name, freed_at=freed_at):
                    result = oracle.simulate(golden_schedule(golden), layers, TWOS, freed_at=freed_at)
                    peaks = [rank["peak_activation_chunks"] for rank in result["ranks"]]
                    self.assertEqual(peaks, golden["peak"]["until_" + freed_at])

    def test_time_of_a_rank_is_compute_and_bubbles(self):
        unit = dict(TWOS, all_reduce=0.3, p2p=0.1) | {"head.F": 0.2, "head.I": 0.4, "head.W": 0.1, "mlp.W_early": 0.5}
        for path in golden_files():
            golden = json.loads(path.read_text(encoding="utf-8"))
            layers = [index % 3 for index in range(golden["p"] * golden["v"])]
            for release in oracle.RELEASES:
                with self.subTest(file=path.name, release=release):
                    result = oracle.simulate(golden_schedule(golden), layers, unit, release, "megatron")
                    for rank in result["ranks"]:
                        total = rank["compute_s"] + rank["pp_bubble_s"] + rank["tp_bubble_s"]
                        self.near(total, result["step_time_s"])


class ClosedForms(Case):
    def test_1f1b_bubble(self):
        # F = 2, B = 4 per layer; the output of B leaves before its last attn.W if it need not wait for the block.
        for pp in range(1, 6):
            for microbatches in range(pp, 3 * pp):
                for layers in (1, 3):
                    order = one_f_one_b(pp, microbatches)
                    with self.subTest(pp=pp, microbatches=microbatches, layers=layers):
                        block = oracle.simulate(order, [layers] * pp, TWOS, "block")
                        for rank in block["ranks"]:
                            self.near(rank["pp_bubble_s"], (pp - 1) * 6 * layers)
                            self.near(rank["tp_bubble_s"], 0)
                        chain = oracle.simulate(order, [layers] * pp, TWOS, "chain")
                        for rank in chain["ranks"]:
                            self.near(rank["pp_bubble_s"], (pp - 1) * (6 * layers - 1))

    def test_exposed_all_reduces_of_one_rank(self):
        # Costs are powers of ten, so that a sum shows its terms.
        for layers in (1, 2, 5):
            for microbatches in (1, 4):
                unit = dict(TWOS, all_reduce=100)
                count = 2 * layers * microbatches
                with self.subTest(layers=layers, microbatches=microbatches):
                    # Split: every all-reduce of F is exposed, since the head or the backward needs it; of I all but
                    # the last, which nothing on this rank waits for: the next W, F, or the end of the step follows.
                    split = " ".join(f"F0.{k} I0.{k} W0.{k}" for k in range(microbatches))
                    result = oracle.simulate(schedule("loop", 1, split), [layers], unit)
                    last = 100 - 2 * layers  # behind the last W
                    # The W of one microbatch and the F of the next run behind the last all-reduce of its I, and the
                    # tp stream holds the first all-reduce of that F until it is done.
                    queued = (microbatches - 1) * (100 - 2 * layers - 1)
                    exposed = count * 100 + (count - microbatches) * 100 + queued
                    self.near(result["ranks"][0]["tp_bubble_s"], exposed)
                    self.near(result["ranks"][0]["pp_bubble_s"], last)

                    # Fused: the weight gradient runs behind each all-reduce.
                    fused = " ".join(f"F0.{k} B0.{k}" for k in range(microbatches))
                    result = oracle.simulate(schedule("loop", 1, fused), [layers], unit)
                    queued = (microbatches - 1) * (100 - 1 - 1)
                    exposed = count * 100 + (count - microbatches) * 99 + queued
                    self.near(result["ranks"][0]["tp_bubble_s"], exposed)
                    self.near(result["ranks"][0]["pp_bubble_s"], 99)

    def test_short_all_reduces_hide_behind_weight_gradients(self):
        unit = dict(TWOS, all_reduce=0.75)
        fused = schedule("loop", 1, "F0.0 B0.0 F0.1 B0.1")
        result = oracle.simulate(fused, [3], unit)
        self.near(result["ranks"][0]["tp_bubble_s"], 2 * 6 * 0.75)
        self.near(result["ranks"][0]["pp_bubble_s"], 0)

    def test_a_braid_hides_all_reduces(self):
        # Computes and all-reduces of 1, two layers. F0.0 exposes 4. In the braid the chains alternate; head.I has no
        # all-reduce and no length, so attn.F's is exposed, and so is at the end that of the last mlp.I, beside which
        # stands only head.F. I0.1 exposes all but its last.
        unit = dict(TWOS, all_reduce=1)
        braided = schedule("loop", 1, "F0.0 F0.1&I0.0 I0.1 W0.0 W0.1")
        result = oracle.simulate(braided, [2], unit)
        self.near(result["ranks"][0]["tp_bubble_s"], 4 + 2 + 3)
        self.near(result["ranks"][0]["compute_s"], 2 * 3 * 4)


class ByHand(Case):
    def test_merge(self):
        self.assertEqual(oracle.merge(2, 4), "abbabb")
        self.assertEqual(oracle.merge(4, 2), "abaaba")
        self.assertEqual(oracle.merge(3, 3), "ababab")
        self.assertEqual(oracle.merge(2, 3), "abbab")
        self.assertEqual(oracle.merge(0, 2), "bb")
        self.assertEqual(oracle.merge(2, 0), "aa")
        self.assertEqual(oracle.merge(0, 0), "")

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
        self.near(oracle.simulate(order, [1, 1], unit, "block")["step_time_s"], 28.5)

    def test_early_parts(self):
        unit = dict(TWOS, all_reduce=10) | {"mlp.W_early": 2, "attn.W_early": 3}
        fused = schedule("loop", 1, "F0.0 B0.0")
        # F: 1, 10, 1, 10. Suite: mlp.I 1, AR 10 over W 3, attn.I 1, AR 10 over W 4. Megatron: 2 and 3 before the ARs.
        self.near(oracle.simulate(fused, [1], unit)["step_time_s"], 22 + 22)
        self.near(oracle.simulate(fused, [1], unit, backward="megatron")["step_time_s"], 22 + 27)
        # A W of its own always runs both parts, an I neither.
        split = schedule("loop", 1, "F0.0 I0.0 W0.0")
        for backward in oracle.BACKWARDS:
            result = oracle.simulate(split, [1], unit, backward=backward)
            self.near(result["ranks"][0]["compute_s"], 2 + 2 + 7)
            self.near(result["step_time_s"], 22 + 22)

    def test_a_chunk_without_layers_hands_on(self):
        # The middle rank does nothing: two hops each way, and a W without ops.
        order = schedule("loop", 1, "F0.0 B0.0", "F0.0 I0.0 W0.0", "F0.0 B0.0")
        result = oracle.simulate(order, [1, 0, 1], dict(TWOS, p2p=1))
        # F 2, hops 2, F 2, B until its output leaves 3, hops 2, B 4.
        self.near(result["step_time_s"], 15)
        self.near(result["ranks"][1]["compute_s"], 0)
        self.near(result["ranks"][1]["pp_bubble_s"], 15)
        self.assertEqual(result["ranks"][1]["peak_activation_chunks"], 1)

    def test_a_last_stage_without_layers_has_its_head(self):
        unit = {"head.F": 1, "head.I": 2, "head.W": 4, "p2p": 0.5, "attn.F": 1}
        order = schedule("loop", 1, "F0.0 B0.0", "F0.0 B0.0")
        # attn.F 1, hop, head.F 1, head.I 2, hop; head.W goes on.
        result = oracle.simulate(order, [1, 0], unit)
        self.near(result["ranks"][1]["compute_s"], 7)
        self.near(result["step_time_s"], 8.5)

    def test_sends_of_a_braid_leave_in_its_order(self):
        # Rank 0 sends the outputs of both forwards over one link. F0.1 is named first, so F0.0 follows it.
        unit = dict(TWOS, p2p=10)
        order = schedule("loop", 1, "F0.1&F0.0 B0.0 B0.1", "F0.0 B0.0 F0.1 B0.1")
        # F0.1 leaves after 3 (chain; the braid is a b a b), F0.0 arrives at 23 and not at 14. Then F and, after
        # 3 more, the gradient: 28; hop to 38, B of rank 0 (4). B0.1 of rank 1: F 29-31, leaves 34, comes at 48; 4 more.
        self.near(oracle.simulate(order, [1, 1], unit)["step_time_s"], 52)
        # Block: both leave at 4, so 24, gradients leave after the whole block: 30 and 36, come at 40 and 50.
        self.near(oracle.simulate(order, [1, 1], unit, "block")["step_time_s"], 54)
        # Released: one merged transfer, of both, from 4 to 24; F0.0 to 26, B0.0 to 30; F0.1 waits until the gradient's
        # send is done, 40; B0.1 to 46, its send to 56. Rank 0: B0.1 from 56.
        self.near(oracle.simulate(order, [1, 1], unit, "released")["step_time_s"], 60)
        # Without braids the two forwards are two blocks: F0.1 leaves at 2, and F0.0 runs only when it is there, 12-14;
        # it comes at 24, its gradient leaves at 30 and comes at 40; F0.1 40-42, B0.1 to 46, at rank 0 at 56.
        apart = oracle.simulate(order, [1, 1], unit, "released", braid="sequential")
        self.near(apart["step_time_s"], 60)
        self.near(apart["ranks"][0]["pp_bubble_s"], 10 + 26 + 12)

    def test_a_block_waits_for_the_inputs_of_both_actions(self):
        # F0.1 could start at once, but in an atomic braid it waits for the gradient of F0.0.
        order = schedule("loop", 1, "F0.0 F0.1&B0.0 B0.1", "F0.0 B0.0 F0.1 B0.1")
        # F0.0 0-2 and 2-4. chain: gradient at 7; rank 0 does attn.F of F0.1 2-3 ... mlp.F after B's first segment.
        block = oracle.simulate(order, [1, 1], TWOS, "block")
        self.near(block["ranks"][0]["pp_bubble_s"], 6 + 6)  # 2-8, and the pass of microbatch 1 on rank 1
        self.near(block["step_time_s"], 24)
        chain = oracle.simulate(order, [1, 1], TWOS, "chain")
        # attn.F 2-3; mlp.I and mlp.W 7-9; mlp.F 9-10, out; attn.I, attn.W 10-12. Rank 1: 10-12, gradient at 15.
        self.near(chain["step_time_s"], 19)

    def test_paired_forwards_one_after_the_other(self):
        unit = dict(TWOS, all_reduce=1)
        order = schedule("loop", 1, "F0.0&F0.1 I0.0 I0.1 W0.0 W0.1")
        # Braided: attn, attn, mlp, mlp, and one all-reduce that nothing hides: 5. One after the other: four computes
        # and four all-reduces, since the head of the first, of no length, keeps its place before the second: 8.
        block = oracle.simulate(order, [1], unit, "block")
        released = oracle.simulate(order, [1], unit, "released")
        self.near(released["step_time_s"] - block["step_time_s"], 3)

    def test_without_braids_each_action_is_a_block(self):
        unit = dict(TWOS, all_reduce=1)
        order = schedule("loop", 1, "F0.0 F0.1&B0.0 B0.1")
        # Braided: attn.F, mlp.I and mlp.W, mlp.F, attn.I, attn.W hide what they can; apart nothing hides F0.1's two.
        braided = oracle.simulate(order, [1], unit)
        apart = oracle.simulate(order, [1], unit, braid="sequential")
        plain = oracle.simulate(schedule("loop", 1, "F0.0 F0.1 B0.0 B0.1"), [1], unit)
        self.assertEqual(apart, plain)
        self.assertLess(braided["step_time_s"], apart["step_time_s"])

    def test_deadlock_is_reported(self):
        order = schedule("loop", 1, "F0.0 B0.0 F0.1 B0.1", "F0.0 F0.1 B0.0 B0.1")
        with self.assertRaisesRegex(oracle.OracleError, "deadlock"):
            oracle.simulate(order, [1, 1], TWOS)

    def test_bad_input_is_reported(self):
        with self.assertRaisesRegex(oracle.OracleError, "missing"):
            oracle.simulate(schedule("loop", 2, "F0.0 B0.0"), [1, 1], TWOS)
        with self.assertRaisesRegex(oracle.OracleError, "passes"):
            oracle.simulate(schedule("loop", 1, "F0.0 I0.0"), [1], TWOS)
        with self.assertRaisesRegex(oracle.OracleError, "no action"):
            oracle.simulate(schedule("loop", 1, "F0.0 X0.0"), [1], TWOS)
        with self.assertRaisesRegex(oracle.OracleError, "unknown"):
            oracle.simulate(schedule("loop", 1, "F0.0 B0.0"), [1], {"atn.F": 1})


class DataParallel(Case):
    def test_gradients_of_a_chunk_are_reduced_behind_its_last_backward(self):
        # Rank 0 ends last, with B0.1: its reduction is exposed.
        order = schedule("loop", 1, "F0.0 F0.1 B0.0 B0.1", "F0.0 B0.0 F0.1 B0.1")
        unit = dict(TWOS, all_reduce=0, p2p=0)
        alone = oracle.simulate(order, [1, 1], unit)["step_time_s"]
        for seconds, added in ((3, 3), (8, 8), (20, 20)):
            reduced = oracle.simulate(order, [1, 1], dict(unit, gradient_reduce=seconds), dp=2)
            self.near(reduced["step_time_s"], alone + added)
            self.near(oracle.simulate(order, [1, 1], dict(unit, gradient_reduce=seconds))["step_time_s"], alone)

    def test_reductions_of_a_rank_follow_one_another(self):
        order = schedule("v", 2, "F0.0 F1.0 B1.0 B0.0")
        unit = dict(TWOS, all_reduce=0, p2p=0)
        alone = oracle.simulate(order, [1, 1], unit)["step_time_s"]
        # The first hides behind B0.0, of 4, but for what is longer.
        for seconds, added in ((3, 3), (4, 4), (11, 7 + 11)):
            reduced = oracle.simulate(order, [1, 1], dict(unit, gradient_reduce=seconds), dp=2)
            self.near(reduced["step_time_s"], alone + added)


    def test_shares_of_the_optimizer_gather_weights_first(self):
        order = schedule("loop", 1, "F0.0 B0.0")
        unit = dict(TWOS, all_reduce=0, p2p=0)
        alone = oracle.simulate(order, [1], unit)["step_time_s"]
        # Half of it before the first forward, half behind the last backward: both exposed.
        shared = oracle.simulate(order, [1], dict(unit, gradient_reduce=6), dp=2, zero=1)
        self.near(shared["step_time_s"], alone + 3 + 3)
        # The second chunk's weights are gathered during the first's forward, of 2.
        order = schedule("v", 2, "F0.0 F1.0 B1.0 B0.0")
        alone = oracle.simulate(order, [1, 1], unit)["step_time_s"]
        for half, exposed in ((2, 2), (3, 3 + 1)):
            shared = oracle.simulate(order, [1, 1], dict(unit, gradient_reduce=2 * half), dp=2, zero=1)
            self.near(shared["step_time_s"], alone + exposed + half)


class PostValidation(Case):
    def steps(self, order, unit, **options):
        layers = [1] * (order["pp"] * order["chunks"])
        found = [oracle.simulate(order, layers, unit, post_validation=late, **options) for late in (False, True)]
        for rank in found[1]["ranks"]:
            self.near(rank["compute_s"] + rank["pp_bubble_s"] + rank["tp_bubble_s"], found[1]["step_time_s"])
        return [each["step_time_s"] for each in found]

    def test_the_authors_zero_bubble_orders_never_idle(self):
        for name in ("zb-v_p2_m8", "zb-v_p4_m16", "zb-v_p8_m32", "zb-2p_p2_m8", "zb-2p_p4_m16", "zb-2p_p8_m32"):
            order = golden_schedule(json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))
            with self.subTest(name):
                at_once, late = self.steps(order, TWOS)
                self.near(late, 6 * order["microbatches"] * order["chunks"])
                self.assertGreater(at_once, late)

    def test_1f1b_gains_nothing(self):
        for pp in (1, 2, 4):
            at_once, late = self.steps(one_f_one_b(pp, 3 * pp), TWOS, release="block")
            self.near(late, at_once)


class ContextParallel(Case):
    """One layer, one microbatch, a ring of two."""

    UNIT = {
        "attn.F_before": 1, "attn.F_core": 2, "attn.F_after": 1, "mlp.F": 1,
        "attn.I_before": 1, "attn.I_core": 3, "attn.I_after": 1, "mlp.I": 1,
    }  # fmt: skip

    def figures(self, **more):
        method = "all-to-all" if "all_to_all" in more else "ring"
        result = oracle.simulate(one_f_one_b(1, 1), [1], self.UNIT | more, cp=2, cp_method=method)
        (rank,) = result["ranks"]
        return [result["step_time_s"], rank["compute_s"], rank["pp_bubble_s"], rank["tp_bubble_s"]]

    def test_long_exchanges_hold_up_every_step(self):
        # F: KV1 1 to 5, beside step 0, which ends at 3. B: the part before ends at 11, KV1 15, dKV1 19 (step 0 has
        # ended at 14), step 1 18, dKV2 23.
        self.assertEqual(self.figures(kv_exchange=4), [24, 16, 0, 8])

    def test_only_the_gradients_way_home_is_exposed_where_exchanges_are_shorter_than_steps(self):
        self.assertEqual(self.figures(kv_exchange=1), [17, 16, 0, 1])

    def test_all_to_alls_hold_up_the_core_and_what_is_behind_it(self):
        # Without a second step of the core, 11 of compute; before and behind each core one of 4.
        self.assertEqual(self.figures(all_to_all=4), [27, 11, 0, 16])

    def test_gradients_are_reduced_over_the_ring(self):
        self.assertEqual(self.figures(gradient_reduce=5)[0], 21)


class Offload(Case):
    def figures(self, **more):
        order = schedule("loop", 1, " ".join(f"{letter}0.{k}" for letter in "FB" for k in range(5)))
        result = oracle.simulate(order, [1], TWOS | more, offload=0.5)
        (rank,) = result["ranks"]
        return [result["step_time_s"], rank["compute_s"], rank["pp_bubble_s"]]

    def test_copies_of_a_block_s_length_cost_nothing(self):
        self.assertEqual(self.figures(offload=4, reload=4), [30, 30, 0])

    def test_longer_ones_hold_up_the_block_after_next(self):
        # Copies of 3 end at 5, 8, 11, 14 and 17; F0.2 begins at 5, F0.3 at 8, F0.4 at 11, B0.0 at 14.
        self.assertEqual(self.figures(offload=6, reload=6), [34, 30, 4])

    def test_a_late_copy_back_holds_up_its_backward(self):
        # Copies of 5: the first from the end of F0.3 at 8 to 13, where B0.0 begins, the others one behind the other; a B
        # takes 4.
        self.assertEqual(self.figures(reload=10), [37, 30, 7])


class Ties(Case):
    def test_tie_of_all_reduce_and_transfer_is_seen(self):
        # Rank 1 holds the turn of the V: in F1.0&F0.1 one input is its own F0.0's, with the last all-reduce, the
        # other comes from rank 0. Computes and all-reduces of 1: rank 0 sends at 4 and 7.
        order = schedule(
            "v",
            2,
            "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1",
            "F0.0 F1.0&F0.1 F1.1 B1.0 B0.0 B1.1 B0.1",
        )
        unit = dict(TWOS, all_reduce=1, p2p=1)
        # F0.0 of rank 1 from 5 to 9, F0.1 comes at 8: the all-reduce is alone.
        alone = oracle.simulate(order, [1] * 4, unit, "block")["ranks"][1]
        self.assertFalse(alone["tie"])
        # F0.0 of rank 1 from 8 to 12, F0.1 comes at 12, since the link is taken until 8.
        unit["p2p"] = 4
        tied = oracle.simulate(order, [1] * 4, unit, "block")["ranks"][1]
        self.assertTrue(tied["tie"])


class RandomOrders(Case):
    def test_are_valid_and_never_deadlock(self):
        for seed in range(60):
            rng = random.Random(seed)
            pp = rng.randint(1, 4)
            placement, chunks = rng.choice((("loop", 1), ("loop", 3), ("v", 2)))
            order = check_oracle.draw_order(rng, placement, pp, chunks, rng.randint(1, 8))
            layers = check_oracle.draw_layers(rng, pp * chunks)
            for release in oracle.RELEASES:
                with self.subTest(seed=seed, release=release):
                    unit = check_oracle.draw_costs(rng)
                    result = oracle.simulate(order, layers, unit, release)
                    for rank in result["ranks"]:
                        total = rank["compute_s"] + rank["pp_bubble_s"] + rank["tp_bubble_s"]
                        self.near(total, result["step_time_s"])


if __name__ == "__main__":
    unittest.main()
