"""Runs the program as its users do, rightly: what records, screens, traces and progress say, and that documented output is the
real output.

    cli_results.py STP_BINARY [unittest arguments]
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from command_line import benchmarks, changed, CommandLine, HARDWARE, main, PAIRS, ROOT, RUN, UNIT

class Progress(CommandLine):
    """What may take over two seconds says on a terminal how far it is, and nothing in a pipe."""

    def shows(self, label, total, *arguments, out=()):
        """The program shows `label` up to `total`, and clears the line. `out`: arguments that differ between two runs."""
        code, _, said = self.run_on_terminal(*arguments, *out[:2])
        self.assertEqual(code, 0, said)
        self.assertIn(f"\r{label}: {total} of {total}\r\033[K", said)
        done = self.run_stp(*arguments, *out[2:])
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_row_of_a_scenario(self):
        scenario = self.write(changed(UNIT, schedules=["1f1b", "gpipe"], microbatches=[4, 8]))
        self.shows("simulating unit", 4, "simulate", scenario)
        self.shows("simulating unit", 4, "reproduce", scenario, "--no-plots", out=("--out", "one", "--out", "two"))

    def test_every_step_of_a_run(self):
        self.shows("running mine", 6, "run", self.write(RUN), "--backend", "cpu")

    def test_traces_and_their_timelines(self):
        scenario = self.write(changed(UNIT, schedules=["1f1b", "gpipe"]))
        self.shows("simulating unit", 2, "trace", scenario, out=("--out", "one", "--out", "two"))
        self.shows("drawing timelines", 2, "trace", scenario, out=("--out", "three", "--out", "four"))

    def test_plots_of_a_report(self):
        code, _, said = self.run_on_terminal("reproduce", self.write(UNIT), "--out", "new")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"\rdrawing plots: (\d+) of \1\r\033\[K")

    def test_schedules(self):
        self.shows("simulating schedules", 13, "schedule", "--table", "--pp", 4, "--microbatches", 8)
        self.write(self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 4).stdout, "order.txt")
        code, _, said = self.run_on_terminal("validate", "order.txt")
        self.assertEqual((code, said), (0, "".join(f"\rchecking order.txt: {done} of 3" for done in range(3)) + "\r\033[K"))

    def test_comparisons(self):
        for seed in (1, 2):
            self.write(benchmarks(seed), f"{seed}.json")
        self.shows("comparing", 8, "compare", "1.json", "2.json")
        code, _, said = self.run_on_terminal("compare", "--profiles", "a800", "h20", "--scenarios", "llm-h20", "--schedules", "stp")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"\rsimulating: (\d+) of \1\r\033\[K")


class Recomputation(CommandLine):
    def row(self, **fields):
        done = self.run_stp("simulate", self.write(changed(HARDWARE, **fields)), "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["results"][0]

    def test_the_kernels_of_a_gpt_must_be_said(self):
        gpt = changed(HARDWARE, model="gpt-22b", parallel={"tp": 8, "pp": 4}, schedules=["1f1b"])
        self.scenario_refused(gpt, "implementation", "is missing", "megatron-2022")

    def test_bad_choices(self):
        self.scenario_refused(changed(HARDWARE, recompute="some"), "recompute", "write one of none, selective, full, mlp, attn+mlp, attn+mlp+norm")
        self.scenario_refused(changed(HARDWARE, sequence_parallel=True, seq=3073), "sequence_parallel", "multiple of parallel.tp")
        self.scenario_refused(changed(UNIT, recompute="full"), "recompute", "is not a known field")

    def test_it_trades_time_for_memory(self):
        for implementation in ("megatron", "suite", "megatron-2022"):
            none, selective, full = (self.row(implementation=implementation, recompute=choice) for choice in ("none", "selective", "full"))
            self.assertLess(none["step_time_s"], selective["step_time_s"])
            self.assertLess(selective["step_time_s"], full["step_time_s"])
            self.assertGreater(none["peak_memory_gb"], full["peak_memory_gb"])
            self.assertGreaterEqual(none["peak_memory_gb"], selective["peak_memory_gb"])
            # The layers' forward again, and its collectives, which nothing hides.
            self.assertGreater(full["ranks"][1]["tp_bubble_s"], 1.5 * none["ranks"][1]["tp_bubble_s"])
            # Model FLOPs do not count what is computed again.
            self.assertAlmostEqual(full["mfu"] * full["step_time_s"], none["mfu"] * none["step_time_s"])
            # Each larger set takes more time and less memory.
            sets = [none, *(self.row(implementation=implementation, recompute=choice) for choice in ("mlp", "attn+mlp", "attn+mlp+norm"))]
            for smaller, larger in zip(sets, sets[1:]):
                self.assertLess(smaller["step_time_s"], larger["step_time_s"])
                self.assertGreater(smaller["peak_memory_gb"], larger["peak_memory_gb"])
            self.assertGreater(sets[-1]["peak_memory_gb"], full["peak_memory_gb"])

    def test_sequence_parallelism_saves_memory_and_elementwise_time(self):
        plain, divided = self.row(), self.row(sequence_parallel=True)
        self.assertEqual([plain["sequence_parallel"], divided["sequence_parallel"]], [False, True])
        self.assertLess(divided["peak_memory_gb"], plain["peak_memory_gb"])
        self.assertLess(divided["ranks"][0]["compute_s"], plain["ranks"][0]["compute_s"])

    def test_an_overlap_hides_collectives_and_makes_gemms_slower(self):
        divided = self.row(sequence_parallel=True)
        overlapped = self.row(sequence_parallel=True, tp_overlap="megatron")
        self.assertEqual([divided["tp_overlap"], overlapped["tp_overlap"]], ["none", "megatron"])
        self.assertEqual(overlapped["peak_memory_gb"], divided["peak_memory_gb"])
        for a, b in zip(overlapped["ranks"], divided["ranks"]):
            self.assertLess(a["tp_bubble_s"], 0.5 * b["tp_bubble_s"])
            self.assertGreater(a["compute_s"], b["compute_s"])

    def test_refusals_of_overlaps(self):
        def refused(*words, **fields):
            self.scenario_refused(changed(HARDWARE, tp_overlap="megatron", **fields), "tp_overlap", *words)

        refused("sequence parallelism, which is off", "set sequence_parallel to true")
        profile = json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8"))
        profile["gpus_per_node"] = {"value": 2, "source": "a test"}
        self.write(profile, "small.json")
        refused("4 ranks do not divide a node of 2", "use another parallel.tp", sequence_parallel=True, cluster="small.json")
        refused("megatron-2022", "use another implementation", sequence_parallel=True, implementation="megatron-2022")
        self.scenario_refused(changed(UNIT, tp_overlap="megatron"), "tp_overlap", "is not a known field")

    def test_domino_halves_microbatches_and_hides_all_reduces(self):
        fields = {"microbatch_size": 2, "schedules": ["1f1b-i", "stp"]}
        plain, halves = self.row(**fields), self.row(**fields, tp_overlap="domino")
        self.assertEqual([plain["tp_overlap"], halves["tp_overlap"]], ["none", "domino"])
        # The user's microbatches, and their memory.
        for figure in ("microbatches", "microbatch_size", "peak_activation_chunks", "peak_memory_gb"):
            self.assertEqual(plain[figure], halves[figure])
        self.assertLess(halves["ranks"][0]["tp_bubble_s"], 0.1 * plain["ranks"][0]["tp_bubble_s"])
        self.assertGreater(halves["ranks"][0]["compute_s"], plain["ranks"][0]["compute_s"])

    def test_what_cannot_be_halved_is_refused(self):
        self.scenario_refused(changed(HARDWARE, microbatch_size=3, tp_overlap="domino"), "microbatch_size", "is 3, and tp_overlap domino halves",
                              "use an even number")
        self.scenario_refused(changed(HARDWARE, tp_overlap="flux-like"), "tp_overlap", "is not a choice; write one of none, megatron, domino, flux")
        self.scenario_refused(changed(HARDWARE, tp_overlap="flux"), "tp_overlap", "sequence parallelism, which is off", "set sequence_parallel to true")
        self.scenario_refused(changed(UNIT, tp_overlap="domino"), "tp_overlap", "is not a known field")


class Offload(CommandLine):
    STP = changed(HARDWARE, schedules=["stp"], cluster="h20", microbatches=24)

    def row(self, base=None, **fields):
        done = self.run_stp("simulate", self.write(changed(base or self.STP, **fields)), "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["results"][0]

    @staticmethod
    def links(rate):
        return {"cluster_values": {"host_to_device_gb_per_s": rate, "device_to_host_gb_per_s": rate}}

    def test_the_ratio_is_bound_by_a_forward_of_the_warm_up(self):
        # A forward alone takes 2 · (1 + 0.5 + 1 + 0.5) on the first rank, 3 + 3 on the second; its copy 8 and 4 times the ratio.
        unit = {"attn.F": 1, "mlp.F": 1, "attn.I": 1, "mlp.I": 1, "all_reduce": 0.5, "head.F": 3, "offload": 4}
        base = changed(UNIT, schedules=["gpipe"], microbatches=8, layers_per_chunk=[2, 1], costs={"unit": unit})
        for ratio, said in ((0.5, "gpipe 0.75 (chosen: 0.50)."), (0.9, "gpipe 0.75 (chosen: 0.90, which exceeds it).")):
            path = self.write(changed(base, offload={"ratio": ratio}), f"bound-{ratio}.json")
            printed = self.run_stp("simulate", path).stdout.splitlines()[-1]
            self.assertEqual(printed, "Largest offload ratio with which a copy to the host takes no longer than a forward of the warm-up: " + said)
            self.assertAlmostEqual(self.row(base, offload={"ratio": ratio})["offload_ratio_bound"], 0.75)
        self.assertNotIn("offload_ratio_bound", self.row(base))
        self.assertNotIn("offload", self.run_stp("simulate", self.write(base, "none.json")).stdout)

    def test_whole_tensors_that_are_copied_in_time_are_within_the_bound(self):
        # Beyond the bound by bytes, which grows with the link, a ratio is within it if its tensors' copies are.
        [slow, fast] = (self.row(offload={"ratio": 0.5}, **self.links(rate))["offload_ratio_bound"] for rate in (8, 16))
        self.assertAlmostEqual(fast, 2 * slow)
        near = self.row(offload={"ratio": fast + 0.01}, **self.links(16))["offload_ratio_bound"]
        self.assertIn(near, (fast, fast + 0.01))
        self.assertEqual(self.row(offload={"ratio": 0.5}, **self.links(1000))["offload_ratio_bound"], 1)

    def test_bad_choices(self):
        self.scenario_refused(changed(self.STP, offload={"ratio": 1.5}), "offload.ratio", "out of range")
        self.scenario_refused(changed(self.STP, offload={}), "offload.ratio", "is missing")
        self.scenario_refused(changed(self.STP, offload={"ratio": 1, "ratios": 1}), "offload.ratios", "is not a known field")
        self.scenario_refused(changed(self.STP, cluster_values={"link": 2}), "cluster_values.link", "is no value of h20")
        self.scenario_refused(changed(self.STP, **self.links(0)), "cluster_values", "device_gb_per_s.value: 0 is out of range")

    def test_it_saves_memory_at_no_cost_while_copies_are_shorter_than_forwards(self):
        none, some, all_of_it = (self.row(**fields) for fields in ({}, {"offload": {"ratio": 0.5}}, {"offload": {"ratio": 1}}))
        self.assertEqual([row["offload_ratio"] for row in (none, some, all_of_it)], [0, 0.5, 1])
        self.assertEqual([row["offloaded"] for row in (none, some, all_of_it)], [False, True, True])
        self.assertEqual(some["step_time_s"], none["step_time_s"])
        self.assertGreater(none["peak_memory_gb"], some["peak_memory_gb"])
        self.assertGreater(some["peak_memory_gb"], all_of_it["peak_memory_gb"])
        hosts = [[rank["memory_bytes"]["host"] for rank in row["ranks"]] for row in (none, some)]
        self.assertEqual(hosts[0], [0] * 4)
        self.assertGreater(min(hosts[1]), 1e9)

    def test_slow_links_hold_up_the_step_and_leave_memory_as_it_is(self):
        rows = [self.row(offload={"ratio": 0.5}, **self.links(rate)) for rate in (64, 16, 4)]
        steps = [row["step_time_s"] for row in rows]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(len({row["peak_memory_gb"] for row in rows}), 1)
        self.assertEqual(rows[2]["cluster_values"], self.links(4)["cluster_values"])
        last = rows[2]["ranks"][0]
        self.assertGreater(last["pp_bubble_s"], steps[2] / 2)
        self.assertAlmostEqual(last["compute_s"] + last["pp_bubble_s"] + last["tp_bubble_s"], steps[2])


class Korthikanti(CommandLine):
    def test_eight_iteration_times_are_predicted_within_nine_percent(self):
        done = self.run_stp("reproduce", "korthikanti", "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads((self.folder / "new/korthikanti.json").read_text(encoding="utf-8"))
        errors = {f"{row['model']}, {row['recompute']}": row["difference"]["throughput_samples_per_s"] for row in record["rows"]}
        self.assertEqual(len(errors), 8)
        # The optimizer's traffic was counted in full because 22B's step asked for it.
        self.assertEqual({row["model"] for row in record["rows"] if row["calibration"]}, {"gpt-22b"})
        self.assertEqual([row["published"]["step_time_s"] for row in record["rows"]], [1.42, 1.10, 18.13, 13.75, 49.05, 37.83, 94.42, 71.49])
        fitted = [key for key, field in record["scenario"]["clusters"]["a100"].items() if isinstance(field, dict) and field.get("fitted")]
        self.assertEqual(fitted, [])
        self.assertLessEqual(max(map(abs, errors.values())), 0.09, errors)


class VTrain(CommandLine):
    def test_103_steps_are_compared_and_nothing_is_fitted(self):
        done = self.run_stp("reproduce", "vtrain", "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads((self.folder / "new/vtrain.json").read_text(encoding="utf-8"))
        published = json.loads((ROOT / "results/published/vtrain.json").read_text(encoding="utf-8"))["rows"]
        # Each measurement once, a second one of the same configuration too; groups within a node alone.
        self.assertEqual(sorted(row["published"]["step_time_s"] for row in record["rows"]), sorted(row["step_time_s"] for row in published if row["tp"] <= 8))
        self.assertEqual((len(record["rows"]), len(published)), (103, 109))
        self.assertFalse(any(row["calibration"] for row in record["rows"]))
        self.assertTrue(all(row["gpus"] in (64, 256, 512) for row in record["rows"]))
        for row in published:
            batch = row["microbatches"] * row["microbatch_size"] * row["dp"]
            self.assertAlmostEqual(row["throughput_samples_per_s"], batch / row["step_time_s"], delta=1e-5 * batch)


class Pairs(CommandLine):
    """A GEMM and an all-reduce, alone and together."""

    def pair(self, **fields):
        return changed(PAIRS, pairs=[{**PAIRS["pairs"][0], **fields}])

    def simulated(self, scenario):
        done = self.run_stp("simulate", scenario, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["pairs"]

    def test_table_11_holds_within_five_per_cent(self):
        pairs = self.simulated("table11")
        self.assertEqual(len(pairs), 2)
        for pair in pairs:
            self.assertLessEqual(abs(pair["from_published_times"]["together_error"]), 0.05)
            # The shapes are chosen for their times alone: they have to be near, or they are no candidates.
            self.assertLessEqual(max(abs(pair["difference"][key]) for key in ("gemm_s", "all_reduce_s")), 0.03)
            # The published figures themselves: one after the other is the sum of the two.
            self.assertAlmostEqual(pair["published"]["gemm_s"] + pair["published"]["all_reduce_s"], pair["published"]["serial_s"], 9)

    def test_the_rates_of_the_a800_are_those_that_table_11_implies(self):
        gemm, message = (pair["published"] for pair in self.simulated("table11"))
        # If the GEMM ends last, what the all-reduce took from it in all_reduce / s seconds; and vice versa.
        r = s = 1
        for _ in range(100):
            r = 1 - (gemm["together_s"] - gemm["gemm_s"]) / gemm["all_reduce_s"] * s
            s = 1 - (message["together_s"] - message["all_reduce_s"]) / message["gemm_s"] * r
        profile = json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8"))
        self.assertEqual((round(r, 2), round(s, 2)), (profile["contention_compute"]["value"], profile["contention_all_reduce"]["value"]))

    def test_times_together_are_those_of_the_closed_form(self):
        draw = random.Random(611)
        times = [(2, 1), (1, 2), (0.83, 0.9), (1, 1000), (1000, 1)] + [(draw.uniform(0.1, 9), draw.uniform(0.1, 9)) for _ in range(50)]
        scenario = changed(PAIRS, pairs=[
            {**PAIRS["pairs"][0], "name": str(i), "published": {"gemm_ms": c, "all_reduce_ms": a, "serial_ms": c + a, "together_ms": 1.5 * max(c, a)}}
            for i, (c, a) in enumerate(times)])
        rows = self.simulated(self.write(scenario))
        self.assertEqual(len(rows), len(times))
        for (c, a), row in zip(times, rows):
            shorter = min(c / 0.83, a / 0.9)  # until then both run
            end_c, end_a = max(shorter, c + 0.17 * shorter), max(shorter, a + 0.1 * shorter)
            together, figures = max(end_c, end_a), row["from_published_times"]
            for key, value in {
                "together_s": together * 1e-3,
                "compute_slowdown": end_c / c - 1,
                "communication_slowdown": end_a / a - 1,
                "compute_rate": 0.83,
                "communication_rate": 0.9,
                "exposed_s": (together - c) * 1e-3,
                "exposed_share": (together - c) / a,
                "saved_s": (c + a - together) * 1e-3,
                "together_error": together / (1.5 * max(c, a)) - 1,
            }.items():
                self.assertAlmostEqual(figures[key], value, 9, f"{key} of {c} and {a}")
            # The same from the shapes' own times alone.
            self.assertAlmostEqual(row["figures"]["saved_s"] + row["figures"]["together_s"], row["serial_s"], 12)
            self.assertAlmostEqual(row["difference"]["together_s"], row["figures"]["together_s"] / (1.5e-3 * max(c, a)) - 1, 9)

    def test_a_pair_costs_what_the_profile_says(self):
        profile = {key: entry["value"] for key, entry in json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8")).items()
                   if isinstance(entry, dict)}
        # One tile per multiprocessor, 108 of them, and 4 ranks of a ring.
        row, = self.simulated(self.write(self.pair(gemm={"m": 256 * 12, "n": 128 * 9, "k": 4096}, all_reduce={"mib": 64, "ranks": 4})))
        flops = 2 * 256 * 128 * (4096 + profile["gemm_overhead_k"]) * 108
        self.assertAlmostEqual(row["gemm_s"], flops / (profile["peak_tflops"] * 1e12 * profile["gemm_efficiency"]), 12)
        ring = (profile["all_reduce_latency_us"] + 6 * profile["all_reduce_hop_latency_us"]) * 1e-6
        self.assertAlmostEqual(row["all_reduce_s"], ring + 1.5 * 2**26 / (profile["all_reduce_bus_gb_per_s"] * 1e9), 12)

    def test_table_11_s_shapes_are_among_those_that_come_near(self):
        command = [sys.executable, str(ROOT / "scripts/infer_shapes"), "--stp", self.stp, "--within", "0.03"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lists = [part.splitlines() for part in done.stdout.strip().split("\n\n| shape ")][1:]
        own = [[line for line in lines if line.startswith("| **")] for lines in lists]
        self.assertEqual([len(lines) for lines in own], [1] * 4, done.stdout)
        for (line,), linear in zip(own, ("llm-26.3b gate and up, 4096 tokens (Table 6), TP1, forward", "llm-12.1b hidden states, 24576 tokens",
                                         "llm-12.1b projection, 6144 tokens (Table 6), TP4, weight gradient", "llm-26.3b hidden states, 8192 tokens")):
            self.assertIn(linear, line)
            self.assertLessEqual(abs(float(line.split("|")[-2].strip(" %"))), 3)

    def test_a_record_says_what_was_run(self):
        record = json.loads(self.run_stp("simulate", "table11", "--json", "-").stdout)
        self.assertEqual(self.simulated(self.write(record["scenario"])), record["pairs"])

    def line(self, scenario, folder):
        done = self.run_stp("reproduce", self.write(scenario), "--no-plots", "--out", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        line, = json.loads((self.folder / folder / "summary.json").read_text(encoding="utf-8"))["experiments"]
        return line, done.stdout

    def test_verdicts(self):
        together = 2 + 0.17 / 0.9
        for factor, verdict in ((1.049, "reproduced"), (0.954, "reproduced"), (1.06, "deviates"), (0.95, "deviates")):
            published = {"gemm_ms": 2, "all_reduce_ms": 1, "serial_ms": 3, "together_ms": together * factor}
            line, screen = self.line(self.pair(published=published), f"out-{factor}")
            self.assertEqual((line["verdict"], line["calibration_rows"]), (verdict, 0))
            self.assertAlmostEqual(line["overlap_error_worst"]["error"], abs(1 / factor - 1), 9)
            self.assertIn({"reproduced": ": met (", "deviates": ": missed ("}[verdict], screen)
        # The maximum error decides, not the mean.
        bad = {"name": "bad", "published": {"gemm_ms": 2, "all_reduce_ms": 1, "serial_ms": 3, "together_ms": together * 1.08}}
        good = {"name": "good", "published": {"gemm_ms": 2, "all_reduce_ms": 1, "serial_ms": 3, "together_ms": together}}
        line, _ = self.line(changed(PAIRS, pairs=[{**PAIRS["pairs"][0], **fields} for fields in (bad, good)]), "two")
        self.assertEqual((line["verdict"], line["overlap_error_worst"]["row"]), ("deviates", "bad"))
        # Pairs that the profile was made from are no prediction.
        line, screen = self.line(changed(self.pair(), calibrated="all of it"), "fitted")
        self.assertEqual((line["calibration_rows"], line["overlap_error_mean"]), (1, None))
        self.assertGreater(line["calibrated"]["overlap_error_mean"], 0)
        self.assertEqual(line["verdict"], "consistent (calibrated)")
        self.assertIn("calibrated: all of it", screen)
        # Nothing published, nothing judged.
        line, screen = self.line(changed(PAIRS, pairs=[{key: PAIRS["pairs"][0][key] for key in ("name", "gemm", "all_reduce")}]), "open")
        self.assertEqual((line["verdict"], line["rows"], line["overlap_error_mean"]), ("not testable here", 1, None))
        self.assertNotIn("published", screen)

    def test_the_screen_shows_the_paper_s_own_slowdowns(self):
        done = self.run_stp("simulate", "table11")
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("  published")]
        self.assertEqual([line[5:] for line in lines], [["–", "+7.5", "%", "–", "0.646", "2.718"], ["–", "–", "+2.6", "%", "1.351", "0.292"]])

    def test_bad_pairs(self):
        one, pair = PAIRS["pairs"][0], self.pair
        for scenario, *words in (
                (changed(PAIRS, pairs=[]), "pairs", "is empty"),
                (changed(PAIRS, pairs={}), "pairs", "array"),
                (changed(PAIRS, pairs=[3]), "pairs[0]"),
                (changed(PAIRS, pairs=[one, one]), "pairs[1].name", "is given twice"),
                (changed(PAIRS, cluster="a80"), "cluster", "did you mean a800"),
                (changed(PAIRS, cluster=None), "cluster", "is missing"),
                (changed(PAIRS, calibrated=True), "calibrated"),
                (pair(name=None), "pairs[0].name"),
                (pair(gemm={"m": 0, "n": 1, "k": 1}), "pairs[0].gemm.m", "out of range"),
                (pair(gemm={"m": 1.5, "n": 1, "k": 1}), "pairs[0].gemm.m"),
                (pair(gemm={"m": 1, "n": 1}), "pairs[0].gemm.k", "is missing"),
                (pair(gemm={"m": 1, "n": 1, "k": 1, "batch": 2}), "pairs[0].gemm.batch", "not a known field"),
                (pair(all_reduce={"mib": 64, "ranks": 9}), "pairs[0].all_reduce.ranks", "out of range"),
                (pair(all_reduce={"mib": 64, "ranks": 1}), "pairs[0].all_reduce.ranks", "out of range"),
                (pair(all_reduce={"mib": 0, "ranks": 2}), "pairs[0].all_reduce.mib", "out of range"),
                (pair(published={"gemm_ms": 1}), "pairs[0].published.all_reduce_ms, pairs[0].published.serial_ms, "
                 "pairs[0].published.together_ms: are missing; add them"),
                (changed(PAIRS, cluster=None, pairs=[{**one, "gemm": {"m": 1}}]), "cluster, pairs[0].gemm.n, pairs[0].gemm.k: are missing"),
                (pair(published={**one["published"], "together_ms": 0}), "pairs[0].published.together_ms", "out of range"),
                (pair(seq=3), "pairs[0].seq", "not a known field"),
                (changed(PAIRS, name="a/b"), "name", "cannot be the name of a result file"),
                (changed(PAIRS, schedules=["stp"]), "schedules", "not a known field")):
            self.refused(["simulate", self.write(scenario)], "s.json", *words)
        self.refused(["reproduce", self.write(changed(PAIRS, pairs=[])), "--no-plots", "--out", "new"], "s.json", "pairs", "is empty")
        self.refused(["reproduce", self.write(PAIRS), self.write(PAIRS, "twice.json"), "--no-plots", "--out", "new"], "twice.json", "two scenarios")
        for command in (["trace", "table11", "--out", "new"], ["run", "table11", "--backend", "cpu"], ["compare", "--profiles", "a800", "h20", "--scenarios", "table11"]):
            self.refused(command, "table11.json", "pairs", "use stp simulate or stp reproduce")


class Provenance(CommandLine):
    def revision(self):
        header = self.folder / "version.h"
        done = subprocess.run(["cmake", "-D", "GIT=git", "-D", f"SOURCE={self.folder}", "-D", "VERSION=1", "-D", f"HEADER={header}",
                               "-P", ROOT / "cmake/StpVersion.cmake"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"STP_GIT_DIRTY (\d)", header.read_text(encoding="utf-8"))[1]

    def test_changed_and_new_files_are_changes_but_ignored_ones_are_not(self):
        if not shutil.which("cmake") or not shutil.which("git"):
            self.skipTest("needs cmake and git")
        source = self.folder / "lib/stp/report/version.h.in"
        source.parent.mkdir(parents=True)
        shutil.copy(ROOT / "lib/stp/report/version.h.in", source)
        self.write("version.h\n/build/\n", ".gitignore")
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x"]):
            subprocess.run(["git", "-C", self.folder, *command], check=True)
        (self.folder / "build").mkdir()
        self.write("x", "build/x")
        self.assertEqual(self.revision(), "0")
        new = self.write("x", "lib/stp/new.cc")
        self.assertEqual(self.revision(), "1")
        new.unlink()
        self.write("x", ".gitignore")
        self.assertEqual(self.revision(), "1")


class Traces(CommandLine):
    NAMES = ["1f1b-i-tp1-pp4-m12", "stp-tp1-pp4-m12", "zb-v-tp1-pp4-m12"]

    def trace(self, **variables):
        done = self.run_stp("trace", "timelines", "--out", "new", variables=variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done, sorted(path.name for path in (self.folder / "new").iterdir())

    def test_every_schedule_has_a_trace_and_a_timeline(self):
        if not os.environ.get("STP_PYTHON"):
            self.skipTest("stp was built without a Python")
        done, files = self.trace()
        self.assertEqual((done.stderr, files), ("", [f"{name}.{kind}" for name in self.NAMES for kind in ("json", "svg")]))
        self.assertTrue(all(str(Path("new") / name) in done.stdout for name in files))
        drawn = (self.folder / "new/stp-tp1-pp4-m12.svg").read_text(encoding="utf-8")
        for word in ("stp, tp 1, pp 4, m 12", "rank 3", "time, units", "exposed all-reduce"):
            self.assertIn(word, drawn)
        # The shares of time are those of the record.
        rows = json.loads(self.run_stp("simulate", "timelines", "--json", "-").stdout)["results"]
        self.assertEqual({row["time_unit"] for row in rows}, {"units"})
        screen = self.run_stp("simulate", "timelines").stdout
        self.assertIn("step, unit  samples/unit", screen)
        self.assertNotIn("step, s", screen)
        ranks = next(row for row in rows if row["schedule"] == "stp")["ranks"]
        busiest = max(ranks, key=lambda rank: rank["compute_s"])
        total = sum(busiest[part] for part in ("compute_s", "tp_bubble_s", "pp_bubble_s"))
        for part, words in (("compute_s", "compute"), ("tp_bubble_s", "TP bubble"), ("pp_bubble_s", "PP bubble")):
            self.assertIn(f"{words} {100 * busiest[part] / total:.1f} %", drawn)

    def test_without_python_there_are_traces(self):
        done, files = self.trace(STP_PYTHON="/nowhere")
        self.assertEqual(files, [f"{name}.json" for name in self.NAMES])
        self.assertRegex(done.stderr, r"^stp: no SVG timelines were drawn: /nowhere: Python 3: cannot be started; set STP_PYTHON .*\n$")


class Documents(CommandLine):
    """The examples in docs/scenarios.md work as shown."""

    def test_examples(self):
        blocks = re.findall(r"^```json\n(.*?)^```$", (ROOT / "docs/scenarios.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 3)
        for block in blocks:
            command = "validate" if "ranks" in json.loads(block) else "simulate"
            done = self.run_stp(command, self.write(block))
            self.assertEqual(done.returncode, 0, f"{block}{done.stderr}")


class DataParallel(CommandLine):
    def results(self, scenario, name):
        done = self.run_stp("simulate", self.write(scenario, f"{name}.json"), "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["results"]

    def test_one_replica_is_a_step_without(self):
        for base in (UNIT, HARDWARE):
            alone = self.results(base, "alone")
            one = self.results(changed(base, parallel={**base["parallel"], "dp": 1}), "one")
            self.assertEqual(alone, one)

    def test_replicas_add_what_the_last_reduction_exposes(self):
        unit = {f"{name}.{letter}": 1 for name in ("attn", "mlp") for letter in "FIW"}
        for schedule, stages in (("gpipe", 2), ("1f1b", 2), ("stp", 4)):
            base = changed(UNIT, schedules=[schedule], microbatches=8, layers_per_chunk=[3] * stages)
            for seconds in (0.25, 0.5):  # of a chunk 0.75 and 1.5, less than a backward
                base["costs"] = {"unit": {**unit, "gradient_reduce": seconds}}
                [alone] = self.results(base, f"alone-{schedule}-{seconds}")
                [four] = self.results(changed(base, parallel={"pp": 2, "dp": 4}), f"four-{schedule}-{seconds}")
                self.assertEqual(four["step_time_s"], alone["step_time_s"] + 3 * seconds)
                self.assertEqual(four["gpus"], 4 * alone["gpus"])
                self.assertEqual(four["throughput_samples_per_s"], 4 * 8 / four["step_time_s"])
                self.assertEqual([rank["compute_s"] for rank in four["ranks"]], [rank["compute_s"] for rank in alone["ranks"]])

    def test_replicas_may_share_the_optimizers_state(self):
        wide = changed(HARDWARE, parallel={"tp": 4, "pp": 4, "dp": 4})
        [each], [shared] = self.results(wide, "each"), self.results(changed(wide, zero=1), "shared")
        self.assertEqual((each["zero"], shared["zero"]), (0, 1))
        for a, b in zip(each["ranks"], shared["ranks"]):
            self.assertEqual(a["memory_bytes"]["optimizer"], 4 * b["memory_bytes"]["optimizer"])
            for kind in ("activations", "weights", "gradients"):
                self.assertEqual(a["memory_bytes"][kind], b["memory_bytes"][kind])
        [alone] = self.results(changed(wide, parallel={"tp": 4, "pp": 4}, zero=1), "alone")
        self.assertEqual(alone["zero"], 0)
        self.scenario_refused(changed(HARDWARE, zero=2), "zero", "2 is out of range")

    def test_post_validation_keeps_a_copy_of_what_a_step_changes(self):
        wide = changed(HARDWARE, parallel={"tp": 4, "pp": 4})
        [at_once], [late] = self.results(wide, "at-once"), self.results(changed(wide, post_validation=True), "late")
        self.assertEqual((at_once.get("post_validation"), late["post_validation"]), (None, True))
        for a, b in zip(at_once["ranks"], late["ranks"]):
            self.assertAlmostEqual(b["memory_bytes"]["optimizer"], 26 / 12 * a["memory_bytes"]["optimizer"], delta=1)
            self.assertGreater(b["compute_s"], a["compute_s"])  # by the copying
        self.scenario_refused(changed(HARDWARE, post_validation="yes"), "post_validation", "true or false")

    def test_post_validation_leaves_the_longest_span_of_a_rank(self):
        unit = {"name": "spans", "schedules": ["1f1b", "zb-h2"], "parallel": {"pp": 4}, "microbatches": 16,
                "layers_per_chunk": [1] * 4, "costs": {"unit": {"attn.F": 1, "attn.I": 1, "attn.W": 1}}}  # fmt: skip
        for post_validation, steps in ((False, (54, 51)), (True, (54, 48))):
            rows = self.results(changed(unit, post_validation=post_validation), f"spans-{post_validation}")
            self.assertEqual(tuple(row["step_time_s"] for row in rows), steps)

    def test_gradients_in_the_models_type_are_half(self):
        wide = changed(HARDWARE, parallel={"tp": 4, "pp": 4, "dp": 4})
        [full] = self.results(wide, "full")
        [half] = self.results(changed(wide, gradients="model"), "half")
        self.assertEqual((full["gradients"], half["gradients"]), ("float32", "model"))
        for a, b in zip(full["ranks"], half["ranks"]):
            self.assertEqual(a["memory_bytes"]["gradients"], 2 * b["memory_bytes"]["gradients"])
        self.assertLess(half["step_time_s"], full["step_time_s"])

    def test_refusals(self):
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 4, "dp": 65537}), "parallel.dp", "out of range")
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 8, "pp": 4, "dp": 65536}), "parallel", "more ranks than the 1048576", "use fewer")
        self.scenario_refused(changed(HARDWARE, gradients="bf16"), "gradients", '"bf16" is not a choice', "float32, model")
        self.scenario_refused(changed(UNIT, gradients="model"), "gradients", "is not a known field")

    def test_a_ring_waits_for_its_exchanges_and_reduces_gradients(self):
        parts = {f"attn.{letter}_{part}": 1 for letter in "FI" for part in ("before", "core", "after")}
        unit = {**parts, "kv_exchange": 3, "mlp.F": 1, "mlp.I": 1, "gradient_reduce": 2}
        ring = changed(UNIT, schedules=["gpipe"], parallel={"pp": 1, "cp": 2}, microbatches=1, layers_per_chunk=[1], costs={"unit": unit})
        [result] = self.results(ring, "ring")
        # F: 1, then the exchange for 3, then 1 and 1, and the MLP; B: MLP 1, 1, KV 3, dKV1 behind it 3, dKV2 3, 1; reduced: 2.
        self.assertEqual(result["step_time_s"], 7 + 12 + 2)
        self.assertEqual((result["cp"], result["gpus"]), (2, 2))
        [rank] = result["ranks"]
        self.assertEqual([rank[name] for name in ("compute_s", "tp_bubble_s", "pp_bubble_s")], [10, 9, 2])
        done = self.run_stp("simulate", self.write(ring, "ring.json"))
        self.assertRegex(done.stdout, r"tp +pp +cp +dp +m")

    def test_all_to_alls_are_waited_for(self):
        parts = {f"attn.{letter}_{part}": 1 for letter in "FI" for part in ("before", "core", "after")}
        unit = {**parts, "all_to_all": 3, "mlp.F": 1, "mlp.I": 1, "gradient_reduce": 2}
        parallel = {"pp": 1, "cp": 4, "cp_method": "all-to-all"}
        heads = changed(UNIT, schedules=["gpipe"], parallel=parallel, microbatches=1, layers_per_chunk=[1], costs={"unit": unit})
        [result] = self.results(heads, "heads")
        self.assertEqual(result["step_time_s"], 2 * (1 + 3 + 1 + 3 + 1 + 1) + 2)
        self.assertEqual((result["cp"], result["cp_method"]), (4, "all-to-all"))
        [rank] = result["ranks"]
        self.assertEqual([rank[name] for name in ("compute_s", "tp_bubble_s", "pp_bubble_s")], [8, 12, 2])
        done = self.run_stp("simulate", self.write(heads, "heads.json"))
        self.assertIn("4 all-to-all", done.stdout)

    def test_all_to_alls_keep_one_more_output_than_a_ring(self):
        base = changed(HARDWARE, parallel={"tp": 2, "pp": 4, "cp": 4}, seq=12288, microbatches=8)
        [ring] = self.results(base, "ring")
        [heads] = self.results(changed(base, parallel={"tp": 2, "pp": 4, "cp": 4, "cp_method": "all-to-all"}), "heads")
        self.assertNotIn("cp_method", ring)
        for a, b in zip(ring["ranks"], heads["ranks"]):
            self.assertGreater(b["memory_bytes"]["activations"], a["memory_bytes"]["activations"])
            self.assertEqual(b["memory_bytes"]["weights"], a["memory_bytes"]["weights"])
        self.assertNotEqual(ring["step_time_s"], heads["step_time_s"])

    def test_a_ring_divides_tokens_and_work(self):
        whole = changed(HARDWARE, parallel={"tp": 2, "pp": 4})
        [alone] = self.results(whole, "alone")
        [ring] = self.results(changed(whole, parallel={"tp": 2, "pp": 4, "cp": 2}, seq=6144, microbatches=8), "ring")
        for a, b in zip(alone["ranks"], ring["ranks"]):  # as many tokens on a rank
            self.assertEqual(a["memory_bytes"], b["memory_bytes"])
        self.assertEqual(ring["gpus"], 2 * alone["gpus"])
        self.assertGreater(ring["step_time_s"], alone["step_time_s"])  # which attend to twice as many

    def test_refusals_of_rings(self):
        def refused(*words, **fields):
            self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 4, "cp": 2}, **fields), *words)

        refused("parallel.cp", "cannot divide 3070 tokens into two pieces for each of 2 ranks", "multiple of 2 * parallel.cp", seq=3070)
        refused("sequence_parallel", "3060 tokens by 2 context-parallel and 4", "parallel.cp * parallel.tp", seq=3060, sequence_parallel=True)
        heads = {"cp_method": "all-to-all"}
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 4, **heads}), "parallel.cp_method", "parallel.cp is 1", "leave it out")
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 4, "cp": 2, "cp_method": "tree"}), "parallel.cp_method",
                              '"tree" is not a choice', "ring, all-to-all")
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 4, "cp": 16, **heads}, seq=3072), "parallel.cp_method",
                              "parallel.cp 16 does not divide the", "attention heads", "on each of 4 tensor-parallel ranks", "the method ring")
        refused("parallel.cp", "megatron-2022", "use another implementation", implementation="megatron-2022")
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 4, "cp": 0}), "parallel.cp", "out of range")
        ring = changed(UNIT, parallel={"pp": 2, "cp": 2}, costs={"unit": {"attn.F": 1}})
        self.scenario_refused(ring, "costs.unit.attn.F", "parallel.cp divides it", "attn.F_core")
        self.scenario_refused(changed(UNIT, costs={"unit": {"kv_exchange": 1}}), "costs.unit.kv_exchange", "is not a known field")
        self.scenario_refused(changed(UNIT, parallel={"pp": 2, "cp": 2, **heads}, costs={"unit": {"kv_exchange": 1}}), "costs.unit.kv_exchange",
                              "is not a known field")

    def test_a_tensor_parallel_group_may_span_nodes(self):
        node = changed(HARDWARE, parallel={"tp": 8, "pp": 2}, layers_per_chunk=[7, 8, 8, 7])
        profile = json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8"))
        steps = [self.results(node, "near")[0]["step_time_s"]]
        for values in ({"gpus_per_node": 4}, {"adapters_per_node": 1}):
            for field, value in values.items():
                profile[field] = {"value": value, "source": "a test"}
            self.write(profile, "small.json")
            steps.append(self.results(changed(node, cluster="small.json"), "far")[0]["step_time_s"])
        self.assertEqual(steps, sorted(set(steps)))
        profile["adapters_per_node"]["value"] = 0
        self.write(profile, "small.json")
        self.refused(["simulate", self.folder / "far.json"], "adapters_per_node.value", "0 is out of range")


class Configurations(CommandLine):
    def simulated(self, scenario):
        done = self.run_stp("simulate", self.write(scenario), "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads(done.stdout)
        return record["results"], record["scenario"]["configurations"]

    def table(self, scenario):
        done = self.run_stp("simulate", self.write(scenario))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()[1:]

    def test_even_layers(self):
        base = changed(HARDWARE, schedules=["1f1b"])
        [row], [configuration] = self.simulated(changed(base, layers_per_chunk="even"))
        self.assertEqual((row["layers_per_chunk"], configuration["layers_per_chunk"]), ([8, 8, 7, 7], "even"))
        [written], _ = self.simulated(changed(base, layers_per_chunk=[8, 8, 7, 7]))
        self.assertEqual(row, written)
        many = changed(base, layers_per_chunk="even", parallel={"tp": 4, "pp": 16}, schedules=["1f1b-i"], microbatches=16)
        self.scenario_refused(many, "layers_per_chunk", "32 virtual stages are more than the model's 30 layers", "use fewer")
        self.scenario_refused(changed(base, layers_per_chunk="equal"), "layers_per_chunk", '"equal" is not a choice', '"even"')
        self.scenario_refused(changed(UNIT, layers_per_chunk="even"), "layers_per_chunk", "no model to divide")

    def test_balanced_layers(self):
        base = changed(HARDWARE, schedules=["1f1b-i", "stp"], model="mllm-14.9b", seq=5120, vision_tokens=3136, microbatches=32,
                       parallel={"tp": 8, "pp": 2})  # fmt: skip
        rows, [configuration] = self.simulated(changed(base, layers_per_chunk="balanced"))
        self.assertEqual(configuration["layers_per_chunk"], "balanced")
        loop, v = (row["layers_per_chunk"] for row in rows)
        for row, manual in zip(rows, self.simulated(changed(base, layers_per_chunk=[0, 12, 12, 9]))[0]):
            layers = row["layers_per_chunk"]
            self.assertEqual((layers[0], sum(layers)), (0, 33))
            self.assertLess(row["step_time_s"], 0.95 * manual["step_time_s"])
        self.assertNotEqual(loop, v)  # the placement decides who shares a rank with the encoder
        [written] = self.simulated(changed(base, schedules=["stp"], layers_per_chunk=v))[0]
        self.assertEqual(rows[1], written)

    def test_a_balanced_split_is_near_the_fastest_of_all(self):
        model = json.loads((ROOT / "models/mllm-14.9b.json").read_text(encoding="utf-8"))
        model["num_hidden_layers"], model["vision_config"]["depth"] = 14, 11
        self.write(model, "small.json")
        base = changed(HARDWARE, schedules=["1f1b-i", "zb-v", "stp"], model="small.json", seq=5120, vision_tokens=3136,
                       parallel={"tp": 8, "pp": 2}, microbatches=24)  # fmt: skip
        splits = [[0, first, second, 14 - first - second] for first in range(15) for second in range(15 - first)]
        rows, _ = self.simulated(changed(base, configurations=[{"layers_per_chunk": each} for each in [*splits, "balanced", "even"]]))
        for schedule in base["schedules"]:
            *all_splits, balanced, even = (row["step_time_s"] for row in rows if row["schedule"] == schedule)
            with self.subTest(schedule=schedule):
                self.assertEqual(len(all_splits), 120)
                self.assertLess(balanced, 1.01 * min(all_splits))
                self.assertLess(1.05 * balanced, even)  # so that the splits differ

    def test_a_balanced_split_fits_if_any_does(self):
        base = changed(HARDWARE, model="mllm-30.3b", seq=3072, vision_tokens=1600, microbatches=32, parallel={"tp": 4, "pp": 8})
        [manual], _ = self.simulated(base)
        self.assertLess(manual["memory_margin_gb"], 0)
        splits = []
        for memory in (80, 120):
            [row], _ = self.simulated(changed(base, layers_per_chunk="balanced", cluster_values={"memory_gb": memory}))
            self.assertGreaterEqual(row["memory_margin_gb"], 0)
            splits.append(row["layers_per_chunk"])
        self.assertNotEqual(*splits)
        self.assertLess(row["memory_margin_gb"], 40)  # the second does not fit into 80 GB

    def test_refusals_of_balanced_layers(self):
        balanced = changed(HARDWARE, layers_per_chunk="balanced")
        self.scenario_refused(changed(balanced, cluster_values={"memory_gb": 8}), "layers_per_chunk",
                              "no split of 30 layers over the 8 virtual stages of 1f1b-i fits into the 8 GB of a800", "use more ranks")
        many = changed(balanced, schedules=["1f1b-i"], chunks=3)
        self.scenario_refused(many, "layers_per_chunk", "one or two chunks a rank, and 1f1b-i has 3", 'write "even"')
        self.scenario_refused(changed(UNIT, layers_per_chunk="balanced"), "layers_per_chunk", "no model to divide")
        run = changed(RUN, layers_per_chunk="balanced")
        self.refused(["run", self.write(run), "--backend", "cpu"], "layers_per_chunk: is balanced, but a run has no cluster", 'write "even"')
        self.scenario_refused(changed(HARDWARE, configurations=[{"layers_per_chunk": "balanced", "cluster_values": {"memory_gb": 1}}]),
                              "configurations[0].layers_per_chunk", "no split of 30 layers")

    def test_merged_backwards_hide_their_all_reduces(self):
        costs = {"unit": {f"{unit}.{name}": 1 for unit in ("attn", "mlp") for name in "FIW"} | {"all_reduce": 0.5}}
        base = changed(UNIT, schedules=["zb-v"], microbatches=8, layers_per_chunk=[1] * 4, costs=costs)
        rows, configurations = self.simulated(changed(base, configurations=[{}, {"merge_backward": True}]))
        self.assertEqual([row.get("merge_backward") for row in rows + configurations], [None, True] * 2)
        self.assertLess(rows[1]["step_time_s"], rows[0]["step_time_s"])
        self.assertEqual(*(max(rank["compute_s"] for rank in row["ranks"]) for row in rows))
        fused, merged = self.simulated(changed(base, schedules=["1f1b-i"], configurations=[{}, {"merge_backward": True}]))[0]
        self.assertEqual(fused["step_time_s"], merged["step_time_s"])
        self.scenario_refused(changed(base, merge_backward="yes"), "merge_backward", "must be")

    def test_vision_encoders(self):
        base = changed(HARDWARE, schedules=["1f1b-i", "stp"], model="mllm-14.9b", seq=5120, vision_tokens=3136, microbatches=12)
        rows, [configuration] = self.simulated(base)
        for row in rows:
            self.assertEqual((row["layers_per_chunk"], row["vision_tokens"]), ([0, 5, 5, 5, 5, 5, 5, 3], 3136))
            self.assertIsNone(row["mfu_paper"])
            self.assertLess(0.1, row["mfu"])
            weights = sum(rank["memory_bytes"]["weights"] for rank in row["ranks"])
            self.assertAlmostEqual(weights * 4 / 2e9, 14.959, places=3)
        self.assertEqual(configuration["vision_tokens"], 3136)
        language = self.simulated(changed(base, vision_tokens=4))[0]
        self.assertLess(language[0]["step_time_s"], rows[0]["step_time_s"])
        [even], _ = self.simulated(changed(base, schedules=["1f1b-i"], layers_per_chunk="even"))
        self.assertEqual(even["layers_per_chunk"], [0, 5, 5, 5, 5, 5, 4, 4])
        refused = [("vision_tokens", {"vision_tokens": None}, "is missing"),
                   ("vision_tokens", {"vision_tokens": 3138}, "do not make whole tokens"),
                   ("vision_tokens", {"vision_tokens": 5120 * 4 + 4}, "do not make whole tokens"),
                   ("vision_tokens", {"model": "llm-12.1b"}, "llm-12.1b has no vision encoder"),
                   ("layers_per_chunk", {"layers_per_chunk": [3, 5, 5, 5, 5, 5, 5, 0]}, "begins with 3"),
                   ("parallel.cp", {"parallel": {"tp": 4, "pp": 4, "cp": 2}}, "is not built"),
                   ("sequence_parallel", {"sequence_parallel": True}, "is not built"),
                   ("recompute", {"recompute": "full"}, "is not built"),
                   ("implementation", {"implementation": "megatron-2022"}, "is not built")]
        for field, changes, words in refused:
            with self.subTest(field=field, words=words):
                self.scenario_refused(changed(base, **changes), field, words)

    def test_layers_and_microbatches_of_different_cost(self):
        unit = {"attn.F": 1, "attn.I": 2, "attn.W": 3, "mlp.F": 1, "all_reduce": 0.25, "p2p": 0.5, "head.F": 10}
        base = changed(UNIT, schedules=["gpipe"], parallel={"pp": 1, "tp": 2}, microbatches=2, layers_per_chunk=[3], costs={"unit": unit})

        def step(scenario):
            [row], [configuration] = self.simulated(scenario)
            for field in ("layer_costs", "microbatch_costs"):
                self.assertEqual(row.get(field), scenario.get(field))
                self.assertEqual(configuration.get(field), scenario.get(field))
            return row["step_time_s"]

        # Of each layer: compute 7, of which W hides attn's all-reduce of B; exposed are two of F and mlp's of B.
        self.assertEqual(step(base), 2 * (3 * 7.75 + 10))
        self.assertEqual(step(changed(base, layer_costs=[1, 2, 5])), 2 * (8 * 7 + 3 * 0.75 + 10))
        self.assertEqual(step(changed(base, microbatch_costs=[1, 3])), 4 * (3 * 7.75 + 10))
        self.assertEqual(step(changed(base, layer_costs=[1, 2, 5], microbatch_costs=[1, 3])), 4 * (8 * 7 + 3 * 0.75 + 10))
        # Layers count through all chunks; transfers take as long as their microbatch asks.
        two = changed(base, parallel={"pp": 2}, layers_per_chunk=[1, 2], costs={"unit": {"attn.F": 1, "p2p": 0.5}}, microbatches=1)
        self.assertEqual(step(changed(two, layer_costs=[1, 2, 5])), 8 + 2 * 0.5)
        self.assertEqual(step(changed(two, microbatch_costs=[3])), 3 * (3 + 2 * 0.5))
        for field in ("layer_costs", "microbatch_costs"):
            same = changed(HARDWARE, schedules=["stp"], **{field: [1] * (30 if field == "layer_costs" else 8)})
            self.assertEqual(step(same), step(changed(HARDWARE, schedules=["stp"])))

    def test_microbatches_keep_by_their_cost(self):
        base = changed(HARDWARE, microbatches=8)
        [plain], [longer] = (self.simulated(scenario)[0] for scenario in (base, changed(base, microbatch_costs=[2] * 8)))
        self.assertEqual(longer["peak_memory_gb"], 2 * plain["peak_memory_gb"])
        self.assertEqual([plain["mfu"] is None, longer["mfu"], longer["mfu_paper"]], [False, None, None])
        # The most that is alive at once is smaller if long ones are not alive together.
        [apart] = self.simulated(changed(base, microbatch_costs=[1, 3] * 4))[0]
        self.assertLess(apart["peak_memory_gb"], 3 * plain["peak_memory_gb"])
        # Domino's halves take as long as their microbatch says.
        halves = changed(base, schedules=["1f1b"], tp_overlap="domino", microbatch_size=2)
        plain, longer = (self.simulated(scenario)[0][0] for scenario in (halves, changed(halves, microbatch_costs=[1] * 4 + [2] * 4)))
        self.assertLess(1.3, longer["step_time_s"] / plain["step_time_s"])
        self.assertLess(longer["step_time_s"] / plain["step_time_s"], 1.7)

    def test_nothing_published_has_costs_that_differ(self):
        base = changed(HARDWARE, seq=6144, parallel={"tp": 8, "pp": 2}, configurations=[{}, {"microbatch_costs": [0.5, 1.5] * 4}])
        done = self.run_stp("reproduce", self.write(base), "--no-plots", "--out", self.folder / "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads((self.folder / "out/hardware.json").read_text(encoding="utf-8"))
        self.assertEqual([row["published"] is None for row in record["rows"]], [False, True])

    def test_layers_of_different_cost_are_balanced(self):
        factors = [1] * 8 + [4] * 4
        base = changed(UNIT, schedules=["1f1b-i"], microbatches=32, layer_costs=factors, layers_per_chunk="balanced")
        [row], _ = self.simulated(base)
        layers = row["layers_per_chunk"]
        stages = [sum(factors[sum(layers[:stage]):sum(layers[:stage + 1])]) for stage in range(4)]
        self.assertEqual([stages[0] + stages[2], stages[1] + stages[3]], [12, 12])
        [even], _ = self.simulated(changed(base, layers_per_chunk="even"))
        self.assertEqual(even["layers_per_chunk"], [3, 3, 3, 3])
        self.assertLess(row["step_time_s"], even["step_time_s"])
        hardware = changed(HARDWARE, layers_per_chunk="balanced")
        [alike], _ = self.simulated(hardware)
        [heavy], _ = self.simulated(changed(hardware, layer_costs=[2] * 10 + [1] * 20))
        self.assertLess(sum(heavy["layers_per_chunk"][:2]), sum(alike["layers_per_chunk"][:2]))

    def test_refusals_of_costs_that_differ(self):
        self.scenario_refused(changed(HARDWARE, layer_costs=[1, 2]), "layer_costs", "has 2 entries, but llm-12.1b has 30 layers", "one factor per layer")
        self.scenario_refused(changed(HARDWARE, layer_costs=[-1] * 30), "layer_costs[0]", "-1 is out of range")
        self.scenario_refused(changed(HARDWARE, layer_costs=2), "layer_costs", "must be an array")
        self.scenario_refused(changed(UNIT, layer_costs=[]), "layer_costs", "has 0 entries", "one factor per layer")
        self.scenario_refused(changed(UNIT, layer_costs=[1, 2, 3]), "layers_per_chunk", "adds up to 2 layers, but layer_costs has 3")
        self.scenario_refused(changed(UNIT, microbatch_costs=[1, 2]), "microbatch_costs", "has 2 entries for 4 microbatches", "one factor per microbatch")
        self.scenario_refused(changed(HARDWARE, microbatches=[2, 4], microbatch_costs=[1, 2]), "microbatch_costs", "2 entries for 4")
        self.scenario_refused(changed(HARDWARE, microbatch_costs=[]), "microbatch_costs", "has 0 entries for 8")
        self.scenario_refused(changed(HARDWARE, microbatch_costs=[1] * 8, offload={"ratio": 0.5}), "microbatch_costs", "not built with offload")
        for field in ("layer_costs", "microbatch_costs"):
            self.refused(["run", self.write(changed(RUN, **{field: [1]})), "--backend", "cpu"], f"{field}: is not a known field")

    def test_global_batch(self):
        base = changed(HARDWARE, microbatches=None, microbatch_size=2, parallel={"tp": 4, "pp": 4, "dp": 3})
        rows, configurations = self.simulated(changed(base, global_batch=[48, 96]))
        self.assertEqual([row["microbatches"] for row in rows], [8, 16])
        self.assertEqual([configuration["microbatches"] for configuration in configurations], [8, 16])
        [row], _ = self.simulated(changed(base, microbatches=8))
        self.assertEqual(row, rows[0])
        self.scenario_refused(changed(base, global_batch=50), "global_batch", "50 samples do not divide by the 6", "use a multiple")
        self.scenario_refused(changed(base, global_batch=0), "global_batch", "0 is out of range")
        self.scenario_refused(changed(base, global_batch=[]), "global_batch", "is empty")
        self.scenario_refused(changed(base, global_batch=48, microbatches=8), "global_batch", "and so is microbatches", "remove one")
        self.scenario_refused(changed(base, global_batch=6 * 2**24), "global_batch", "more than the limit", "use fewer samples")

    def test_names(self):
        named = changed(HARDWARE, configurations=[{"name": "small batch", "comment": "a note"}, {"microbatches": 16}])
        rows, configurations = self.simulated(named)
        self.assertEqual([row["name"] for row in rows], ["small batch", None])
        self.assertEqual([configuration.get("name") for configuration in configurations], ["small batch", None])
        head, first, second = self.table(named)
        self.assertRegex(head, "^name +schedule")
        self.assertRegex(first, "^small batch +1f1b-i")
        self.assertRegex(second, "^ +1f1b-i")
        self.assertNotIn("name", self.table(HARDWARE)[0])
        self.scenario_refused(changed(HARDWARE, configurations=[{"name": 3}]), "configurations[0].name", "must be a string")

    def test_memory_of_the_fullest_rank(self):
        for tp, fits in ((4, "yes"), (1, "no")):
            scenario = changed(HARDWARE, parallel={"tp": tp, "pp": 4})
            [row], _ = self.simulated(scenario)
            largest = max(sum(rank["memory_bytes"].values()) for rank in row["ranks"]) / 1e9
            _, line = self.table(scenario)
            self.assertEqual(line.split()[-4:], [f"{row['peak_memory_gb']:.1f}", f"{largest:.1f}", "80", fits])
            self.assertEqual(largest <= 80, fits == "yes")
            self.assertAlmostEqual(row["memory_margin_gb"], 80 - largest)
        self.assertEqual(self.table(UNIT)[1].split()[-4:], ["–"] * 4)

    def test_the_same_words_in_runs(self):
        run = changed(RUN, schedules=["1f1b"], parallel={"pp": 2, "dp": 2}, microbatches=None, global_batch=8, layers_per_chunk="even",
                      configurations=[{"name": "mine"}])
        done = self.run_stp("run", self.write(run), "--backend", "cpu", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        [row] = json.loads(done.stdout)["results"]
        layers = json.loads((ROOT / "models/tiny.json").read_text(encoding="utf-8"))["num_hidden_layers"]
        self.assertEqual((row["name"], row["microbatches"], row["dp"]), ("mine", 4, 2))
        self.assertEqual(row["layers_per_chunk"], [layers - layers // 2, layers // 2])


if __name__ == "__main__":
    main(__doc__)
