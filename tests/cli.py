"""Runs the program as its users do, mostly wrongly: every refusal ends with exit code 2, names file, field and remedy,
and leaves nothing behind; nothing that exists is ever written over; what is documented is what comes out.

    cli.py STP_BINARY [unittest arguments]
"""

import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STP = ""

UNIT = {
    "name": "unit",
    "schedules": ["1f1b"],
    "parallel": {"pp": 2},
    "microbatches": 4,
    "layers_per_chunk": [1, 1],
    "costs": {"unit": {"attn.F": 1, "attn.I": 1, "attn.W": 1}},
}
HARDWARE = {
    "name": "hardware",
    "schedules": ["1f1b-i"],
    "model": "llm-12.1b",
    "cluster": "a800",
    "seq": 3072,
    "parallel": {"tp": 4, "pp": 4},
    "microbatches": 8,
}


def changed(base, **fields):
    result = copy.deepcopy(base)
    for key, value in fields.items():
        if value is None:
            del result[key]
        else:
            result[key] = value
    return result


def snapshot(folder):
    """Every path below `folder`, hidden ones included, with the content of files."""
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


class CommandLine(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="stp-cli-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def run_stp(self, *arguments, data=None, variables=None):
        environment = {key: value for key, value in os.environ.items() if key != "STP_DATA_DIR"} | (variables or {})
        if data:
            environment["STP_DATA_DIR"] = str(data)
        command = [STP, *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def write(self, content, name="s.json"):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
        return path

    def refused(self, arguments, *words, silent=True):
        """The program ends with 2, says all of `words`, prints nothing else and changes nothing."""
        before = snapshot(self.folder)
        done = self.run_stp(*arguments)
        self.assertEqual(done.returncode, 2, f"{arguments}\n{done.stdout}{done.stderr}")
        if silent:
            self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(snapshot(self.folder), before)

    def scenario_refused(self, content, field, *words):
        """The same of a scenario, by each command that reads one; the message is `file: field: problem; remedy`."""
        path = self.write(content)
        for arguments in (["simulate", path, "--json", "new.json"], ["reproduce", path, "--out", "new", "--no-plots"]):
            self.refused(arguments, "stp: ", str(path), f": {field}: " if field else ": ", "; ", *words)


class Scenarios(CommandLine):
    def test_the_bases_of_these_tests_are_accepted(self):
        for base in (UNIT, HARDWARE):
            done = self.run_stp("simulate", self.write(base))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_missing_file(self):
        self.refused(["simulate", "nowhere.json"], "nowhere.json: cannot be read; check the path")
        self.refused(["simulate", "timeline"], "SCENARIO", "timeline", 'did you mean timelines?')
        self.refused(["simulate", self.folder], f"{self.folder}: cannot be read")

    def test_not_json(self):
        self.scenario_refused("{", "", "is not valid JSON")
        self.scenario_refused("[1]", "", "must be an object")
        self.scenario_refused('"text"', "", "must be an object")

    def test_wrong_type(self):
        self.scenario_refused(changed(UNIT, microbatches="4"), "microbatches", "must be a whole number, not a string")
        self.scenario_refused(changed(UNIT, microbatches=4.5), "microbatches", "must be a whole number")
        self.scenario_refused(changed(UNIT, schedules="stp"), "schedules", "must be an array, not a string")
        self.scenario_refused(changed(UNIT, schedules=[3]), "schedules[0]", "must be an object")
        self.scenario_refused(changed(UNIT, parallel=[2]), "parallel", "must be an object, not an array")
        self.scenario_refused(changed(HARDWARE, contention="no"), "contention", "must be true or false")
        self.scenario_refused(changed(HARDWARE, sequence_parallel=1), "sequence_parallel", "must be true or false")
        self.scenario_refused(changed(HARDWARE, scatter_transfers=1), "scatter_transfers", "must be true or false")
        self.scenario_refused(changed(UNIT, costs={"unit": {"attn.F": "1"}}), "costs.unit.attn.F", "must be a number, not a string")

    def test_unknown_key(self):
        self.scenario_refused(changed(UNIT, relaese="chain"), "relaese", "is not a known field", 'did you mean "release"?')
        self.scenario_refused(changed(UNIT, parallel={"pp": 2, "dq": 2}), "parallel.dq", "is not a known field")
        self.scenario_refused(changed(UNIT, costs={"unit": {"attn.G": 1}}), "costs.unit.attn.G", "did you mean")
        self.scenario_refused(changed(UNIT, configurations=[{"microbatch": 3}]), "configurations[0].microbatch", "did you mean")

    def test_missing_key(self):
        for key in ("name", "schedules", "microbatches"):
            self.scenario_refused(changed(UNIT, **{key: None}), key, "is missing")
        self.scenario_refused(changed(UNIT, parallel={"tp": 1}), "parallel.pp", "is missing")
        self.scenario_refused(changed(UNIT, costs=None), "costs", "is missing, and so is model")
        self.scenario_refused(changed(UNIT, layers_per_chunk=None), "layers_per_chunk", "is missing")

    def test_unknown_choice(self):
        self.scenario_refused(changed(UNIT, release="never"), "release", '"never" is not a choice', "chain, block, released")
        self.scenario_refused(changed(UNIT, braid="loose"), "braid", '"loose" is not a choice', "static, sequential")
        self.scenario_refused(changed(HARDWARE, model="llm-12.1"), "model", "did you mean llm-12.1b?")
        self.scenario_refused(changed(HARDWARE, cluster="none.json"), "cluster", "there is no file")

    def test_duplicate_key(self):
        twice = json.dumps(UNIT)[:-1] + ', "microbatches": 8}'
        self.scenario_refused(twice, "microbatches", "is given twice")

    def test_trailing_text(self):
        self.scenario_refused(json.dumps(UNIT) + "\n{}", "", "is not valid JSON")
        self.scenario_refused(json.dumps(UNIT) + " x", "", "is not valid JSON")

    def test_not_finite(self):
        for word in ("NaN", "Infinity", "-Infinity", "nan"):
            text = json.dumps(UNIT).replace('"attn.F": 1', f'"attn.F": {word}')
            self.assertIn(word, text)
            self.scenario_refused(text, "attn.F", "is not valid JSON", "finite")
        self.scenario_refused(json.dumps(UNIT).replace('"attn.F": 1', '"attn.F": 1e999'), "", "beyond double precision")

    def test_costs_out_of_range(self):
        self.scenario_refused(changed(UNIT, costs={"unit": {"mlp.W": -0.5}}), "costs.unit.mlp.W", "-0.5 is out of range")
        self.scenario_refused(changed(UNIT, schedule_costs={"F": -1}), "schedule_costs.F", "-1 is out of range")

    def test_numbers_out_of_range(self):
        self.scenario_refused(changed(UNIT, microbatches=0), "microbatches", "0 is out of range", "whole number from 1")
        self.scenario_refused(changed(UNIT, microbatches=[4, 0]), "microbatches[1]", "0 is out of range")
        self.scenario_refused(changed(UNIT, microbatches=[]), "microbatches", "is empty")
        self.scenario_refused(changed(UNIT, microbatches=10**30), "microbatches")
        self.scenario_refused(changed(UNIT, parallel={"pp": 0}), "parallel.pp", "0 is out of range")
        self.scenario_refused(changed(UNIT, parallel={"pp": 2, "tp": -1}), "parallel.tp", "-1 is out of range")
        self.scenario_refused(changed(UNIT, schedules=[]), "schedules", "is empty")

    def test_model_and_ranks_that_do_not_fit(self):
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 1, "pp": 31}), "parallel.pp", "31 ranks are more than the 30 layers")
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 3, "pp": 4}), "parallel.tp", "3 does not divide the 40 attention heads")
        self.scenario_refused(changed(HARDWARE, parallel={"tp": 4, "pp": 5}, microbatches=10), "parallel.pp", "do not divide", "layers_per_chunk")

    def test_wrong_number_of_chunks_or_layers(self):
        self.scenario_refused(changed(UNIT, layers_per_chunk=[1, 1, 1]), "layers_per_chunk", "has 3 entries", "write 2 entries")
        self.scenario_refused(changed(UNIT, layers_per_chunk=[]), "layers_per_chunk", "is missing or empty")
        self.scenario_refused(changed(UNIT, layers_per_chunk=[1, -1]), "layers_per_chunk[1]", "-1 is out of range")
        self.scenario_refused(changed(UNIT, chunks=2), "chunks", "1f1b has 1 chunk(s) a rank, not 2", "set it to 1")
        self.scenario_refused(changed(HARDWARE, layers_per_chunk=[4] * 8), "layers_per_chunk", "adds up to 32 layers", "30")
        stp = changed(UNIT, schedules=["stp"], microbatches=8, chunks=3, layers_per_chunk=[1] * 6)
        self.scenario_refused(stp, "chunks", "stp has 2 chunk(s) a rank, not 3")

    def test_schedules_that_do_not_fit(self):
        self.scenario_refused(changed(UNIT, schedules=["1f1b_i"]), "schedules", "did you mean 1f1b-i?", "there are stp")
        four = changed(UNIT, layers_per_chunk=[1] * 4)
        self.scenario_refused(changed(four, schedules=["1f1b-i"], microbatches=5), "microbatches", "multiple of 2, not 5", "use 6")
        self.scenario_refused(changed(four, schedules=["dualpipev"], microbatches=3), "microbatches", "2p = 4, not 3")

    def test_the_table_of_the_docs_is_the_tools(self):
        page = (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
        told = page.split("<!-- table -->\n")[1].split("<!-- end of table -->")[0]
        counted = self.run_stp("schedule", "--table", "--pp", 8, "--microbatches", 64)
        self.assertEqual((counted.returncode, counted.stdout), (0, told))

    def test_schedule_files(self):
        self.scenario_refused(changed(UNIT, schedules=[{"file": "none.json"}]), "schedules[0].file", "there is no file")
        printed = self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "json").stdout
        order = self.write(printed, "order.json")
        mine = changed(UNIT, schedules=[{"file": "order.json"}])
        self.assertEqual(self.run_stp("simulate", self.write(mine)).returncode, 0)
        self.refused(["simulate", self.write(changed(mine, microbatches=5))], str(order), "microbatches", "the scenario for pp 2 and 5")
        self.write(printed.replace('"B0.0"', '"B0.1"', 1), "order.json")
        self.refused(["simulate", self.write(mine)], str(order), "B0.1")


class Recomputation(CommandLine):
    def row(self, **fields):
        done = self.run_stp("simulate", self.write(changed(HARDWARE, **fields)), "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["results"][0]

    def test_bad_choices(self):
        self.scenario_refused(changed(HARDWARE, recompute="some"), "recompute", "write one of none, selective, full")
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

    def test_sequence_parallelism_saves_memory_and_elementwise_time(self):
        plain, divided = self.row(), self.row(sequence_parallel=True)
        self.assertEqual([plain["sequence_parallel"], divided["sequence_parallel"]], [False, True])
        self.assertLess(divided["peak_memory_gb"], plain["peak_memory_gb"])
        self.assertLess(divided["ranks"][0]["compute_s"], plain["ranks"][0]["compute_s"])


class Korthikanti(CommandLine):
    def test_eight_iteration_times_are_predicted_within_nine_percent(self):
        done = self.run_stp("reproduce", "korthikanti", "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads((self.folder / "new/korthikanti.json").read_text(encoding="utf-8"))
        errors = {f"{row['model']}, {row['recompute']}": row["difference"]["throughput_samples_per_s"] for row in record["rows"]}
        self.assertEqual(len(errors), 8)
        self.assertFalse(any(row["calibration"] for row in record["rows"]))
        fitted = [key for key, field in record["scenario"]["clusters"]["a100"].items() if isinstance(field, dict) and field.get("fitted")]
        self.assertEqual(fitted, [])
        self.assertLessEqual(max(map(abs, errors.values())), 0.09, errors)


PAIRS = {"name": "pairs", "cluster": "a800", "pairs": [{
    "name": "one", "gemm": {"m": 4096, "n": 4096, "k": 4096}, "all_reduce": {"mib": 64, "ranks": 4},
    "published": {"gemm_ms": 2, "all_reduce_ms": 1, "serial_ms": 3, "together_ms": 2.25}}]}


class Pairs(CommandLine):
    def test_table_11_holds_within_five_per_cent(self):
        done = self.run_stp("simulate", "table11", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        pairs = json.loads(done.stdout)["pairs"]
        self.assertEqual(len(pairs), 2)
        for pair in pairs:
            self.assertLessEqual(abs(pair["from_published_times"]["together_error"]), 0.05)
            # The published figures themselves: one after the other is the sum of the two.
            self.assertAlmostEqual(pair["published"]["gemm_s"] + pair["published"]["all_reduce_s"], pair["published"]["serial_s"], 9)

    def test_times_of_a_pair_by_hand(self):
        done = self.run_stp("simulate", self.write(PAIRS), "--json", "-")
        pair = json.loads(done.stdout)["pairs"][0]
        # The all-reduce ends after 1 / 0.9; the product did 0.83 of that and has the rest before it.
        together = 1 / 0.9 + 2 - 0.83 / 0.9
        self.assertAlmostEqual(pair["from_published_times"]["together_s"], together * 1e-3, 12)
        self.assertAlmostEqual(pair["from_published_times"]["together_error"], together / 2.25 - 1, 9)
        self.assertAlmostEqual(pair["from_published_times"]["compute_rate"], 0.83, 9)
        self.assertAlmostEqual(pair["from_published_times"]["communication_rate"], 0.9, 9)
        self.assertAlmostEqual(pair["figures"]["saved_s"] + pair["figures"]["together_s"], pair["serial_s"], 12)

    def test_bad_pairs(self):
        def pair(**fields):
            return changed(PAIRS, pairs=[{**PAIRS["pairs"][0], **fields}])
        for scenario, *words in (
                (changed(PAIRS, pairs=[]), "pairs", "is empty"),
                (changed(PAIRS, cluster="a80"), "cluster", "did you mean a800"),
                (pair(gemm={"m": 0, "n": 1, "k": 1}), "pairs[0].gemm.m", "out of range"),
                (pair(gemm={"m": 1, "n": 1}), "pairs[0].gemm.k", "is missing"),
                (pair(all_reduce={"mib": 64, "ranks": 9}), "pairs[0].all_reduce.ranks", "out of range"),
                (pair(published={"gemm_ms": 1}), "pairs[0].published.all_reduce_ms", "is missing"),
                (pair(seq=3), "pairs[0].seq", "not a known field"),
                (changed(PAIRS, schedules=["stp"]), "schedules", "not a known field")):
            self.refused(["simulate", self.write(scenario)], "s.json", *words)


class Profiles(CommandLine):
    """A scenario on a profile of its own, bad in one place."""

    def setUp(self):
        super().setUp()
        self.profile = json.loads((ROOT / "lib/cluster/profiles/a800.json").read_text(encoding="utf-8"))

    def profile_refused(self, field, *words):
        self.write(self.profile, "gpu.json")
        path = self.write(changed(HARDWARE, cluster="gpu.json"))
        self.refused(["simulate", path, "--json", "new.json"], str(self.folder / "gpu.json"), f": {field}: ", "; ", *words)

    def test_accepted(self):
        self.write(self.profile, "gpu.json")
        done = self.run_stp("simulate", self.write(changed(HARDWARE, cluster="gpu.json")))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_bad_values(self):
        for value, words in ((0, "out of range"), (-5, "out of range"), ("312", "must be a number")):
            self.profile["peak_tflops"]["value"] = value
            self.profile_refused("peak_tflops.value", words)
        self.profile["peak_tflops"] = 312
        self.profile_refused("peak_tflops", "must be an object")

    def test_values_without_source(self):
        self.profile["peak_tflops"]["source"] = ""
        self.profile_refused("peak_tflops.source", "is empty")
        del self.profile["peak_tflops"]["source"]
        self.profile_refused("peak_tflops.source", "is missing")

    def test_fitted_value_outside_its_range(self):
        fitted = [key for key, field in self.profile.items() if isinstance(field, dict) and field.get("fitted")]
        self.assertTrue(fitted)
        for key in fitted:
            kept = copy.deepcopy(self.profile[key])
            self.profile[key]["range"]["to"] = self.profile[key]["value"] * 0.999
            self.profile[key]["range"]["from"] = self.profile[key]["value"] * 0.5
            self.profile_refused(f"{key}.value", "outside its physical range")
            del self.profile[key]["range"]
            self.profile_refused(f"{key}.range", "is missing")
            self.profile[key] = kept

    def test_unknown_value(self):
        self.profile["peak_teraflops"] = self.profile["peak_tflops"]
        self.profile_refused("peak_teraflops", "is not a known field", 'did you mean "peak_tflops"?')


class Arguments(CommandLine):
    def test_flags_and_words_nobody_knows(self):
        self.refused(["simulate", "timelines", "--jason", "-"], "--jason")
        self.refused(["simulated"], "no command \"simulated\"", "did you mean simulate?")
        self.refused([])
        self.refused(["simulate"], "SCENARIO")
        self.refused(["schedule", "1f1b", "--pp", 2], "--microbatches")
        self.refused(["schedule", "1f1b", "--pp", "two", "--microbatches", 4], "--pp")
        self.refused(["schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "xml"], "--format")
        for command in ([], ["reproduce"], ["simulate"], ["schedule"], ["validate"], ["compare"]):
            done = self.run_stp(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Usage", done.stdout)
        self.assertRegex(self.run_stp("--version").stdout, r"^stp \d+\.\d+\.\d+")

    def test_schedules_that_do_not_exist_or_fit(self):
        size = ["--pp", 4, "--microbatches", 12]
        self.refused(["schedule", "1f1b_i", *size], "stp: ", "did you mean 1f1b-i?", "there are stp")
        self.refused(["schedule", "dualpipev", "--pp", 4, "--microbatches", 7], "stp: microbatches: ", "2p = 8, not 7", "; ")
        self.refused(["schedule", "1f1b-i", "--pp", 4, "--microbatches", 10], "stp: microbatches: ", "multiple of 4", "use 12")
        self.refused(["schedule", "stp", *size, "--chunks", 3], "stp: chunks: ", "set it to 2")
        self.refused(["schedule", "1f1b", "--pp", 0, "--microbatches", 4], "stp: pp: ", "0 is out of range", "from 1 to")
        self.refused(["schedule", "1f1b", "--pp", 2, "--microbatches", 0], "stp: microbatches: ", "0 is out of range")
        for costs in ("-1,1,1,0", "nan,1,1,0", "inf,1,1,0"):
            self.refused(["schedule", "zb-v", *size, "--costs", costs], "--costs", "negative or not finite")
        self.refused(["schedule", "zb-v", *size, "--costs", "1,1,1"], "--costs")

    def test_validate(self):
        self.refused(["validate", "none.json"], "none.json: cannot be read")
        order = json.loads(self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 2, "--format", "json").stdout)
        done = self.run_stp("validate", self.write(order))
        self.assertEqual(done.returncode, 0, done.stderr)
        for ranks, words in (
            ([["F0.0", "F0.1", "B0.0", "B0.1"]], "1 lists for 2 ranks"),
            ([["F0.0", "F0.1", "B0.0"], ["F0.0", "B0.0", "F0.1", "B0.1"]], "rank 0: B0.1 is missing"),
            ([["F0.0", "B0.0", "F0.1", "B0.1"], ["F0.1", "B0.1", "F0.0", "B0.0"]], "deadlock"),
            ([["F0.0", "X0.1"], []], 'ranks[0][1]: "X0.1" is not a block'),
        ):
            path = self.write(changed(order, ranks=ranks), "order.json")
            self.refused(["validate", path], str(path), words, "; ")


class Output(CommandLine):
    def test_files_and_folders_that_exist_are_left_alone(self):
        path = self.write(UNIT)
        kept = self.write("mine", "kept.json")
        self.refused(["simulate", path, "--json", kept], str(kept), "exists", "never overwritten", "; ")
        (self.folder / "folder").mkdir()
        self.write("mine", "folder/kept.txt")
        (self.folder / "dangling").symlink_to(self.folder / "nowhere")
        for target in ("folder", "folder/", "kept.json", "dangling"):
            self.refused(["reproduce", path, "--no-plots", "--out", target], "--out", "exists", "name a new folder")

    def test_places_that_cannot_be_written(self):
        path = self.write(UNIT)
        self.refused(["simulate", path, "--json", "none/new.json"], "none/new.json", "cannot be created", "; ")
        self.refused(["reproduce", path, "--no-plots", "--out", "none/new"], "none/new", "cannot be created", "; ")

    def test_nothing_is_left_of_a_run_that_fails_midway(self):
        good, bad = self.write(UNIT, "good.json"), self.write(changed(UNIT, microbatches=0), "bad.json")
        both = ["reproduce", good, bad, "--no-plots", "--out", "new"]
        self.refused(both, str(bad), "microbatches", silent=False)  # the table of the first is on screen by then
        configurations = [{"microbatches": 4}, {"schedules": ["dualpipev"], "microbatches": 3, "layers_per_chunk": [1] * 4}]
        mixed = self.write(changed(UNIT, microbatches=None, configurations=configurations), "mixed.json")
        self.refused(["reproduce", mixed, "--no-plots", "--out", "new"], str(mixed), "m ≥ 2p")
        self.refused(["simulate", mixed, "--json", "new.json"], str(mixed), "m ≥ 2p")

    def test_json_to_standard_output_is_json_alone(self):
        done = self.run_stp("simulate", self.write(UNIT), "--json", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        record = json.loads(done.stdout)
        self.assertEqual(record["evidence"], "simulated")
        written = self.run_stp("simulate", self.write(UNIT), "--json", "new.json")
        self.assertEqual(written.returncode, 0, written.stderr)
        again = json.loads((self.folder / "new.json").read_text(encoding="utf-8"))
        self.assertEqual(again["results"], record["results"])

    def test_schedule_as_json(self):
        done = self.run_stp("schedule", "stp", "--pp", 2, "--microbatches", 5, "--format", "json")
        order = json.loads(done.stdout)
        self.assertEqual(sorted(order), ["chunks", "microbatches", "placement", "pp", "ranks", "schedule"])
        scalars = {key: value for key, value in order.items() if key != "ranks"}
        self.assertEqual(scalars, {"schedule": "stp", "placement": "v", "pp": 2, "chunks": 2, "microbatches": 5})
        text = self.run_stp("schedule", "stp", "--pp", 2, "--microbatches", 5).stdout
        lines = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(lines, order["ranks"])

    def test_reproduce_leaves_a_whole_folder(self):
        done = self.run_stp("reproduce", self.write(UNIT), "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.rglob("*")), ["new", "s.json", "summary.json", "unit.json"])


class Documents(CommandLine):
    """What docs/scenarios.md shows works as shown."""

    def test_examples(self):
        blocks = re.findall(r"^```json\n(.*?)^```$", (ROOT / "docs/scenarios.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 3)
        for block in blocks:
            command = "validate" if "ranks" in json.loads(block) else "simulate"
            done = self.run_stp(command, self.write(block))
            self.assertEqual(done.returncode, 0, f"{block}{done.stderr}")


RUN = {
    "name": "mine",
    "schedules": ["stp", "1f1b-i"],
    "model": "tiny",
    "seq": 4,
    "parallel": {"pp": 2, "tp": 2},
    "microbatches": 4,
    "run": {"type": "float64", "steps": 2, "warmup": 1, "parity": True, "weight_deviation": 0.2},
}


class Run(CommandLine):
    """`stp run`: on the CPU, ranks are threads."""

    def run_cpu(self, scenario, *arguments):
        return self.run_stp("run", self.write(scenario), "--backend", "cpu", *arguments)

    def test_it_trains_equal_to_one_rank_and_says_what_it_measured(self):
        done = self.run_cpu(RUN, "--json", "new.json", "--trace", "trace.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("parity: 2 of 2 cases equal one rank", done.stdout)
        record = json.loads((self.folder / "new.json").read_text(encoding="utf-8"))
        self.assertEqual(record["evidence"], "measured")
        for row in record["results"]:
            self.assertLessEqual(row["parity"]["gradient"], 1e-10)
            self.assertLessEqual(row["parity"]["loss"], 1e-10)
            self.assertEqual((len(row["losses"]), len(row["step_time_repeats_s"]), row["backend"]), (3, 2, "cpu"))
            for rank in row["ranks"]:
                self.assertGreater(rank["memory_bytes"]["activations"], 0)
        # Both schedules saw the same data and weights.
        first, second = (row["losses"] for row in record["results"])
        for one, other in zip(first, second):
            self.assertAlmostEqual(one, other, places=9)
        self.assertIn("traceEvents", json.loads((self.folder / "trace.json").read_text(encoding="utf-8")))

    def test_bf16_is_judged_by_one_rank(self):
        done = self.run_cpu(RUN | {"run": RUN["run"] | {"type": "bfloat16"}}, "--json", "new.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("parity: 2 of 2 cases equal one rank", done.stdout)
        wide = self.run_cpu(RUN, "--json", "wide.json")
        self.assertEqual(wide.returncode, 0, wide.stderr)
        narrow_rows, wide_rows = (json.loads((self.folder / name).read_text(encoding="utf-8"))["results"] for name in ("new.json", "wide.json"))
        for row, other in zip(narrow_rows, wide_rows):
            self.assertEqual(row["type"], "bf16")
            self.assertGreater(row["parity"]["gradient"], 1e-4)  # it is bf16
            self.assertLessEqual(row["parity"]["gradient"], 2 * row["parity"]["one_rank_gradient"])
            self.assertIsNone(other["parity"]["one_rank_gradient"])
            for loss, exact in zip(row["losses"], other["losses"]):
                self.assertAlmostEqual(loss / exact, 1, delta=2**-8)
            for rank, full in zip(row["ranks"], other["ranks"]):
                memory, all_8 = rank["memory_bytes"], full["memory_bytes"]
                self.assertEqual([8 * memory["weights"], 8 * memory["gradients"], 8 * memory["optimizer"]],
                                 [2 * all_8["weights"], 4 * all_8["gradients"], 6 * all_8["optimizer"]])

    def test_a_file_is_a_schedule_too(self):
        made = self.run_stp("schedule", "zb-v", "--pp", "2", "--microbatches", "4", "--format", "json")
        self.write(made.stdout, "order.json")
        done = self.run_cpu(RUN | {"schedules": [{"file": "order.json"}]})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("parity: 1 of 1", done.stdout)

    def test_a_text_is_data(self):
        text = self.write("all work and no play makes jack a dull boy. " * 20, "text.txt")
        done = self.run_cpu(RUN | {"model": "bytes", "layers_per_chunk": [2, 2, 1, 1], "parallel": {"pp": 2},
                                   "run": {"steps": 1, "text": str(text)}})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_too_little_memory_ends_with_one_and_names_rank_op_and_microbatch(self):
        before = snapshot(self.folder)
        path = self.write(RUN)
        done = self.run_stp("run", path, "--backend", "cpu", "--memory-limit", "0.3", "--json", "new.json")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"rank \d.*out of memory: \d+ bytes")
        path.unlink()
        self.assertEqual(snapshot(self.folder), before)

    def test_refusals(self):
        path = self.write(RUN)
        self.refused(["run", path, "--backend", "tpu"], "--backend", "tpu", "use cpu")
        self.refused(["run", path], "--backend")
        self.refused(["run", "timelines", "--backend", "cpu"], "run: is missing", "stp simulate")
        self.refused(["simulate", path], "run", "use stp run")
        self.refused(["run", path, "--backend", "cpu", "--json", path], "exists")
        self.refused(["run", path, "--backend", "cpu", "--deadline", "0"], "--deadline")
        for change, words in (
            ({"run": {"type": "float16"}}, ["run.type", "float32, float64, bfloat16"]),
            ({"run": {"steps": 0}}, ["run.steps"]),
            ({"run": {"stepz": 1}}, ["run.stepz", 'did you mean "steps"?']),
            ({"run": {"text": "nowhere"}}, ["run.text", "tiny", "256"]),
            ({"run": {"text": "nowhere"}, "model": "bytes", "layers_per_chunk": [2, 2, 1, 1]}, ["run.text", "nowhere cannot be read"]),
            ({"parallel": {"pp": 2, "tp": 3}}, ["parallel.tp", "does not divide"]),
            ({"parallel": {"pp": 8, "tp": 4, "dp": 16}}, ["parallel", "256"]),
            ({"cluster": "a800"}, ["cluster", "is not a known field"]),
            ({"microbatches": 3}, ["microbatches", "1f1b-i", "use 4"]),
        ):
            self.refused(["run", self.write(RUN | change, "spoilt.json"), "--backend", "cpu"], *words)
            (self.folder / "spoilt.json").unlink()

    def test_cuda_says_what_it_lacks(self):
        """A build without it, or a machine whose GPUs, if there are any, are hidden."""
        run = ["run", self.write(RUN), "--backend", "cuda"]
        backends = re.search(r"^backends: (.*)$", self.run_stp("--version").stdout, re.MULTILINE)[1].split(", ")
        if "cuda" not in backends:
            self.refused(run, "--backend: this build has no CUDA backend; build where nvcc is found, or use cpu")
            return
        done = self.run_stp(*run, variables={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^stp: no CUDA device: .+; run with --backend cpu\n$")

    def test_what_a_schedule_refuses_can_be_left_out(self):
        done = self.run_cpu(RUN | {"microbatches": 3, "run": RUN["run"] | {"skip_refused": True}})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 combinations are beyond their schedule's range", done.stdout)
        self.assertIn("parity: 1 of 1", done.stdout)


def iteration(name, real_time, unit="ms", **fields):
    """A repetition, as Google Benchmark 1.7 writes it."""
    return {"name": name, "family_index": 0, "per_family_instance_index": 0, "run_name": name, "run_type": "iteration",
            "repetitions": 12, "repetition_index": 0, "threads": 1, "iterations": 100, "real_time": real_time,
            "cpu_time": real_time, "time_unit": unit, **fields}


def benchmarks(seed, slower=(), kernels=8, repetitions=12):
    """A file of kernels with 2 % of noise; those named take a tenth longer."""
    draw = random.Random(seed)
    rows = []
    for kernel in range(kernels):
        for _ in range(repetitions):
            time = 10 * (1 + kernel) * draw.lognormvariate(0, 0.02) * (1.1 if kernel in slower else 1)
            rows.append(iteration(f"kernel/{kernel}", time, bus_gb_per_s=100 / time))
        rows.append(iteration(f"kernel/{kernel}_mean", 1, run_type="aggregate", aggregate_name="mean"))
    return {"context": {"date": f"2026-01-0{seed % 9 + 1}", "host_name": "here", "num_cpus": 2}, "benchmarks": rows}


class Compare(CommandLine):
    """`stp compare` of result records and of files of Google Benchmark."""

    def compared(self, *files, arguments=()):
        done = self.run_stp("compare", *files, *arguments, "--json", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def simulated(self, name, **fields):
        done = self.run_stp("simulate", self.write(changed(HARDWARE, **fields), f"scenario-{name}"), "--json", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / name

    def test_two_machines(self):
        schedules = ["1f1b-i", "stp"]
        first = self.simulated("a.json", schedules=schedules)
        second = self.simulated("b.json", schedules=["stp", "1f1b-i", "zb-v"], cluster="h20")
        told = self.compared(first, second)
        rows = {path: {row["schedule"]: row for row in json.loads(path.read_text(encoding="utf-8"))["results"]} for path in (first, second)}
        self.assertEqual([cell and cell["schedule"] for row in told["rows"] for cell in row["cells"]],
                         ["1f1b-i", "1f1b-i", "stp", "stp", None, "zb-v"])
        for row, schedule in zip(told["rows"], schedules):
            one, other = rows[first][schedule], rows[second][schedule]
            against = row["cells"][1]["against_first"]
            self.assertAlmostEqual(against["throughput"], other["throughput_samples_per_s"] / one["throughput_samples_per_s"] - 1, places=12)
            self.assertAlmostEqual(against["step_time"], other["step_time_s"] / one["step_time_s"] - 1, places=12)
            busiest = max(one["ranks"], key=lambda rank: rank["compute_s"])
            self.assertAlmostEqual(row["cells"][0]["tp_bubble_share"], busiest["tp_bubble_s"] / one["step_time_s"], places=12)
        screen = self.run_stp("compare", first, second).stdout
        for words in ("cluster: a800 | h20", "A simulated", "B simulated", "only in B: llm-12.1b, s 3072 × 1, TP4 PP4, m 8: zb-v"):
            self.assertIn(words, screen)

    def test_simulated_against_measured_is_a_prediction(self):
        run = self.write(changed(RUN, schedules=["stp"], run={"steps": 6}), "run-scenario.json")
        self.assertEqual(self.run_stp("run", run, "--backend", "cpu", "--json", "measured.json").returncode, 0)
        unit = changed(UNIT, schedules=["stp"], parallel={"pp": 2, "tp": 2}, layers_per_chunk=[1, 1, 1, 1])
        self.assertEqual(self.run_stp("simulate", self.write(unit), "--json", "simulated.json").returncode, 0)
        told = self.compared("simulated.json", "measured.json")
        (row,) = told["rows"]
        self.assertIsNone(row["cells"][1]["against_first"])
        prediction = row["cells"][1]["prediction"]
        self.assertEqual(prediction["predicted_step_s"], row["cells"][0]["step_time_s"])
        self.assertEqual(prediction["actual_step_s"], row["cells"][1]["step_time_s"])
        self.assertIs(prediction["within_interval"], False)
        self.assertEqual(told["predictions"][0]["predicted_evidence"], "simulated")
        screen = self.run_stp("compare", "measured.json", "simulated.json").stdout
        self.assertIn("Prediction errors: B (simulated) of what A has (measured)", screen)

    def test_runs_of_one_machine_are_the_same_and_a_slowed_kernel_is_found(self):
        files = [self.write(benchmarks(seed, slower), f"{name}.json")
                 for name, seed, slower in (("a", 1, ()), ("b", 2, ()), ("c", 3, (5,)))]
        told = self.compared(*files)
        verdicts = [[row["cells"][file]["against_first"]["verdict"] for row in told["rows"]] for file in (1, 2)]
        self.assertEqual(verdicts, [["same"] * 8, ["same"] * 5 + ["slower"] + ["same"] * 2])
        self.assertEqual(told["rule"]["comparisons"], 16)
        self.assertEqual({file["evidence"] for file in told["files"]}, {"measured"})
        screen = self.run_stp("compare", *files).stdout
        self.assertIn("16 comparisons: 15 same, 1 slower; 0 noisy", screen)
        self.assertIn("15 same", self.run_stp("compare", *files, "--least-difference", 5).stdout)
        self.assertIn("16 same", self.run_stp("compare", *files, "--least-difference", 20).stdout)

    def test_what_google_benchmark_writes(self):
        program = Path(STP).parent / "microbench_schedule"
        if not program.exists():
            self.skipTest("built without Google Benchmark")
        for name in ("a.json", "b.json"):
            command = [program, "--benchmark_filter=^linear/stp/generate/p:8/m:(64|256)$", "--benchmark_repetitions=4",
                       "--benchmark_min_time=0.001", f"--benchmark_out={name}", "--benchmark_out_format=json"]
            subprocess.run(command, cwd=self.folder, capture_output=True, check=True, timeout=100)
        told = self.compared("a.json", "b.json")
        self.assertEqual([row["name"] for row in told["rows"]], ["linear/stp/generate/p:8/m:64", "linear/stp/generate/p:8/m:256"])
        for row in told["rows"]:
            self.assertEqual([cell["repetitions"] for cell in row["cells"]], [4, 4])
            self.assertGreater(row["cells"][0]["median_s"], 0)
            self.assertGreater(row["cells"][0]["counters"]["program_ops"], 0)
        # Of four repetitions p is 2 of 70 at the least, which two comparisons double.
        self.assertEqual(told["rule"]["repetitions_needed"], 5)

    def test_numbers_that_are_none_and_failures(self):
        content = benchmarks(1)
        content["benchmarks"].append(iteration("failed", 0, error_occurred=True, error_message="no GPU"))
        text = json.dumps(content).replace('"bus_gb_per_s": ', '"cv": NaN, "bus_gb_per_s": ', 1)
        told = self.compared(self.write(text, "a.json"), self.write(benchmarks(2), "b.json"))
        self.assertEqual(told["rows"][-1]["cells"], [{"skipped": "no GPU"}, None])
        screen = self.run_stp("compare", "a.json", "b.json").stdout
        self.assertIn("failed: A skipped it: no GPU", screen)
        self.assertIn("failed: B has none", screen)

    def test_refusals(self):
        record = self.simulated("record.json")
        other = self.simulated("other.json", microbatches=16)
        bench, scenario = self.write(benchmarks(1), "bench.json"), self.write(UNIT, "unit.json")
        profile = shutil.copy(ROOT / "lib/cluster/profiles/a800.json", self.folder / "profile.json")
        self.refused(["compare"], "FILE", "nothing to compare", "--profiles")
        self.refused(["compare", record], "FILE", "name two or more")
        self.refused(["compare", *[record] * 27], "too many", "at most 26")
        self.refused(["compare", record, "nowhere.json"], "nowhere.json: cannot be read")
        self.refused(["compare", record, self.folder], "cannot be read")
        self.refused(["compare", record, bench], f"{bench}: ", "is a file of Google Benchmark, but", "compare files of one kind")
        self.refused(["compare", bench, record], f"{record}: ", "is a result record", "compare files of one kind")
        self.refused(["compare", record, scenario], f"{scenario}: ", "is a scenario", "stp simulate")
        self.refused(["compare", record, profile], "is a hardware profile", "--profiles")
        self.refused(["compare", record, other], f"{other}: ", "no configuration in common", "; ")
        self.refused(["compare", record, record, "--json", bench], "bench.json", "--json", "exists")
        self.refused(["compare", record, record, "--plot", "plot.pdf"], "plot.pdf: --plot: ends neither in .png nor in .svg")
        self.refused(["compare", record, record, "--plot", profile], "profile.json: --plot: exists")
        self.refused(["compare", record, record, "--least-difference", "-1"], "--least-difference")
        self.refused(["compare", record, record, "--schedules", "stp"], "--profiles")
        for content, words in (
            ("{", ["is not valid JSON"]),
            ("[1]", ["is neither", "--benchmark_format=json"]),
            ('{"evidence": NaN}', ["is not valid JSON", "finite"]),
            (changed(json.loads(record.read_text(encoding="utf-8")), evidence="felt"), ["evidence: \"felt\" is none", "simulated"]),
            (changed(json.loads(record.read_text(encoding="utf-8")), results=[]), ["results: is empty"]),
            (changed(json.loads(record.read_text(encoding="utf-8")), results=[{"schedule": 1}]), ["results[0].schedule: must be a string"]),
        ):
            spoilt = self.write(content, "spoilt.json")
            self.refused(["compare", record, spoilt], str(spoilt), "; ", *words)
            spoilt.unlink()
        for row, words in (
            (iteration("k", 1, run_type="aggregate"), ["benchmarks: holds aggregates alone", "--benchmark_report_aggregates_only"]),
            (iteration("k", 1, "weeks"), ["benchmarks[0].time_unit", "ns, us, ms or s"]),
            (iteration("k", -1), ["benchmarks[0].real_time", "out of range"]),
            (iteration("stranger", 1), ["no benchmark in common", "same filter"]),
        ):
            spoilt = self.write({"context": {}, "benchmarks": [row]}, "spoilt.json")
            self.refused(["compare", bench, spoilt], str(spoilt), "; ", *words)
            spoilt.unlink()

    def test_plots_are_written_whole_and_new(self):
        if not os.environ.get("STP_PYTHON"):
            self.skipTest("no Python with matplotlib")
        files = [self.write(benchmarks(seed), f"{seed}.json") for seed in (1, 2)]
        done = self.run_stp("compare", *files, "--plot", "plot.png", "--json", "told.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "plot.png").read_bytes().startswith(b"\x89PNG"))
        self.assertEqual(json.loads((self.folder / "told.json").read_text(encoding="utf-8"))["kind"], "benchmarks")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["1.json", "2.json", "plot.png", "told.json"])


class CompareProfiles(CommandLine):
    """`stp compare --profiles`: machines side by side."""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([STP, "compare", "--profiles", "a800", "h20", "--json", "-"], capture_output=True, text=True,
                              timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        cls.told = json.loads(done.stdout)

    def quantity(self, one, of, schedule=None):
        (found,) = [each for each in one["quantities"] if (each["of"], each["schedule"]) == (of, schedule)]
        return found

    def test_throughputs_are_those_of_the_reference_records(self):
        kept = {}
        for machine, name in enumerate(("llm-a800", "llm-h20")):
            record = json.loads((ROOT / f"results/reference/simulated/{name}.json").read_text(encoding="utf-8"))
            for row in record["rows"]:
                key = tuple(row[field] for field in ("model", "seq", "microbatch_size", "tp", "pp", "microbatches"))
                kept[machine, key, row["schedule"]] = row
        checked = 0
        for line in self.told["throughput"]:
            key = tuple(line["configuration"][field] for field in ("model", "seq", "microbatch_size", "tp", "pp", "microbatches"))
            for schedule in line["schedules"]:
                for machine, cell in enumerate(schedule["cells"]):
                    row = kept.get((machine, key, schedule["schedule"]))
                    if row is None:
                        continue
                    checked += 1
                    self.assertAlmostEqual(cell["throughput_samples_per_s"] / row["throughput_samples_per_s"], 1, places=9)
                    self.assertAlmostEqual(cell["activation_memory_gb"], row["peak_memory_gb"], places=9)
                    if row["published"]:
                        self.assertEqual(cell["published_samples_per_s"], row["published"].get("throughput_samples_per_s"))
        self.assertEqual(checked, 24 + 22)  # A800 at the largest m, all of H20
        self.assertEqual(self.told["evidence"], "simulated")

    def test_h20_gains_less_for_its_slower_products_before_its_faster_all_reduces(self):
        """The claim of the paper's appendix D, taken apart."""
        self.assertEqual(len(self.told["attribution"]), 2)
        for one in self.told["attribution"]:
            gain = self.quantity(one, "gain_over_baseline")
            self.assertLess(gain["to"], gain["from"])
            shares = {name: part["shapley"] for name, part in gain["parts"].items()}
            self.assertEqual(min(shares, key=shares.get), "compute")
            self.assertLess(shares["all_reduce"], 0)
            self.assertGreater(shares["memory"], 0)
            self.assertEqual(sorted(one["alike"]), ["contention", "launches"])
            self.assertRegex(one["words"], r"^stp gains [\d.]+ % over 1f1b-i on h20 for [\d.]+ % on a800, -[\d.]+ points\. "
                                           r"Most of it is GEMM and attention rate \(-.*there is less to hide\.$")
            self.assertGreater(one["published_gain_from"], one["published_gain_to"])

    def test_parts_add_up_to_the_whole_and_its_ends_are_the_machines(self):
        lines = {json.dumps(line["configuration"]): line for line in self.told["throughput"]}
        for one in self.told["attribution"]:
            line = lines[json.dumps(one["configuration"])]
            self.assertTrue(line["shared"])
            for quantity in one["quantities"]:
                parts = quantity["parts"].values()
                self.assertAlmostEqual(sum(part["shapley"] for part in parts), quantity["to"] - quantity["from"], places=12)
            for schedule in line["schedules"]:
                quantity = self.quantity(one, "throughput", schedule["schedule"])
                self.assertEqual([quantity["from"], quantity["to"]], [cell["throughput_samples_per_s"] for cell in schedule["cells"]])
            gain = self.quantity(one, "gain_over_baseline")
            self.assertEqual([gain["from"], gain["to"]], [each["over_baseline"] for each in line["gains"]])

    def test_a_part_alone_is_a_profile_with_that_part_of_the_other(self):
        profiles = {name: json.loads((ROOT / f"lib/cluster/profiles/{name}.json").read_text(encoding="utf-8")) for name in ("a800", "h20")}
        parts = {
            "compute": ["peak_tflops", "sms", "gemm_efficiency", "gemm_overhead_k", "attention_forward_efficiency", "attention_backward_efficiency"],
            "memory": ["memory_gb_per_s", "elementwise_factor"],
            "all_reduce": ["all_reduce_latency_us", "all_reduce_hop_latency_us", "all_reduce_bus_gb_per_s"],
            "p2p": ["p2p_within_node_gb_per_s", "p2p_between_nodes_gb_per_s", "p2p_within_node_latency_us", "p2p_between_nodes_latency_us"],
        }
        one = self.told["attribution"][0]
        configuration = one["configuration"]
        for part, keys in parts.items():
            self.write({**profiles["a800"], **{key: profiles["h20"][key] for key in keys}}, "mixed.json")
            scenario = changed(HARDWARE, cluster="mixed.json", schedules=["1f1b-i", "zb-v", "stp"], backward="megatron", release="released",
                               **{key: configuration[key] for key in ("model", "seq", "microbatch_size", "microbatches")},
                               parallel={"tp": configuration["tp"], "pp": configuration["pp"]})
            done = self.run_stp("simulate", self.write(scenario), "--json", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            for row in json.loads(done.stdout)["results"]:
                quantity = self.quantity(one, "throughput", row["schedule"])
                self.assertAlmostEqual(quantity["from"] + quantity["parts"][part]["alone"], row["throughput_samples_per_s"], places=9)

    def test_memory_that_does_not_hold_a_configuration_is_said(self):
        fits = {cell["fits"] for line in self.told["throughput"] for schedule in line["schedules"] for cell in schedule["cells"]}
        self.assertEqual(fits, {"all", "activations", "nothing"})
        for line in self.told["throughput"]:
            for schedule in line["schedules"]:
                for machine, cell in zip(self.told["machines"], schedule["cells"]):
                    self.assertIsNotNone(cell["throughput_samples_per_s"])
                    self.assertGreater(cell["needed_memory_gb"], cell["activation_memory_gb"])
                    expected = ("all" if cell["needed_memory_gb"] <= machine["memory_gb"] else
                                "activations" if cell["activation_memory_gb"] <= machine["memory_gb"] else "nothing")
                    self.assertEqual(cell["fits"], expected)

    def test_profiles_of_ones_own_other_scenarios_and_schedules(self):
        profile = json.loads((ROOT / "lib/cluster/profiles/h100.json").read_text(encoding="utf-8"))
        profile.update(name="mine", gpus_per_node={"value": 4, "source": "here"})
        profile["contention_compute"]["value"] = 0.95
        profile["all_reduce_measured"] = []
        self.write(profile, "mine.json")
        scenario = changed(HARDWARE, microbatches=None, configurations=[
            {"microbatches": [8, 16]}, {"microbatches": 8, "parallel": {"tp": 8, "pp": 2}}])
        done = self.run_stp("compare", "--profiles", "h100", "mine.json", "--scenarios", self.write(scenario), "--schedules", "1f1b-i", "stp",
                            "1f1b-i-braided", "--attribute-all", "--json", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        told = json.loads(done.stdout)
        first, second = told["throughput"]
        self.assertEqual((first["configuration"]["microbatches"], first["configuration"]["tp"]), (16, 4))  # the largest m
        self.assertEqual([schedule["schedule"] for schedule in first["schedules"]], ["1f1b-i", "stp", "1f1b-i-braided"])
        best = max(("1f1b-i", "1f1b-i-braided"), key=lambda name: next(
            schedule["cells"][0]["throughput_samples_per_s"] for schedule in first["schedules"] if schedule["schedule"] == name))
        self.assertEqual(first["gains"][0]["best"], best)
        for schedule in second["schedules"]:
            self.assertIn("TP8 is more than the 4 GPUs of a node", schedule["cells"][1]["refused"])
        (one,) = told["attribution"]  # a machine that cannot run it has no part in it
        gain = self.quantity(one, "gain_over_baseline")
        self.assertGreater(gain["parts"]["contention"]["shapley"], 0)  # less contention, more gain
        self.assertEqual(sorted(one["alike"]), ["compute", "launches", "memory"])
        screen = self.run_stp("compare", "--profiles", "h100", "mine.json", "--scenarios", "s.json").stdout
        self.assertIn("TP8 is more than the 4 GPUs of a node", screen)
        self.assertNotIn("Contention is the same in every profile", screen)

    def test_refusals(self):
        profile = json.loads((ROOT / "lib/cluster/profiles/h100.json").read_text(encoding="utf-8"))
        same, scenario = self.write(profile, "same.json"), self.write(UNIT)
        self.refused(["compare", "--profiles", "a800"], "--profiles", "name two or more")
        self.refused(["compare", "--profiles", "a800", "h30"], "--profiles", "did you mean h20?")
        self.refused(["compare", "--profiles", "h100", same], str(same), "name of two profiles")
        self.refused(["compare", "--profiles", "a800", scenario], str(scenario), "; ")
        self.refused(["compare", "--profiles", "a800", "h20", "--scenarios", scenario], str(scenario), "model", "llm-a800")
        self.refused(["compare", "--profiles", "a800", "h20", "--schedules", "1f1b_i"], "--schedules", "did you mean 1f1b-i?")
        self.refused(["compare", same, "--profiles", "a800", "h20"], str(same), "without files")

    def test_the_page_shows_what_comes_out(self):
        page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
        shown = 0
        for block in re.findall(r"^```\n\$ stp (compare .*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            command = [str(ROOT / word) if word.startswith("results/") else word for word in block[0].split()]
            done = self.run_stp(*command)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = done.stdout.splitlines()
            for line in block[1].splitlines():
                if line and line != "…":
                    self.assertIn(line, lines)
                    shown += 1
        self.assertGreater(shown, 15)


class Published(CommandLine):
    """The paper's figures are set beside ours; they have no part in making them."""

    def test_without_them_ours_are_the_same(self):
        data = self.folder / "data"
        for part in ("lib/model/configs", "lib/cluster/profiles", "results/published"):
            shutil.copytree(ROOT / part, data / part)
        (data / "scenarios").mkdir()
        for scenario in (ROOT / "scenarios").glob("*.json"):
            shutil.copy(scenario, data / "scenarios")

        def reproduce(out):
            done = self.run_stp("reproduce", "--no-plots", "--out", out, data=data)
            self.assertEqual(done.returncode, 0, done.stderr)
            files = {path.name: path for path in (self.folder / out).iterdir()}
            summary = json.loads(files.pop("summary.json").read_text(encoding="utf-8"))
            return summary, {name: path.read_text(encoding="utf-8") for name, path in files.items()}

        with_them, ours = reproduce("with")
        for path in (data / "results/published").iterdir():
            path.unlink()
        without, same = reproduce("without")

        self.assertEqual(ours.keys(), same.keys())
        published = 0
        for name in ours:
            if not name.endswith(".json"):
                self.assertEqual(ours[name], same[name], name)
                continue
            # Texts, not numbers: bit for bit. Only what speaks of the paper, and of this very run, is taken out.
            texts = []
            for text in (ours[name], same[name]):
                record = json.loads(text, parse_float=str)
                record.pop("provenance")
                for row in record["rows"]:
                    published += row.pop("published") is not None
                    row.pop("difference")
                texts.append(json.dumps(record))
            self.assertEqual(*texts, name)
        self.assertGreater(published, 0)
        self.assertNotEqual(with_them, without)
        self.assertEqual({line["verdict"] for line in without["experiments"]}, {"not testable here"})


def closed(schema):
    """The schema with every object closed: readers ignore fields that they do not know, writers may have none."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        result.setdefault("additionalProperties", False)
    return result


class Schemas(CommandLine):
    def setUp(self):
        super().setUp()
        try:
            import jsonschema
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        self.jsonschema = jsonschema

    def validator(self, name):
        schema = json.loads((ROOT / f"results/schema/{name}.schema.json").read_text(encoding="utf-8"))
        self.jsonschema.Draft202012Validator.check_schema(schema)
        return self.jsonschema.Draft202012Validator(closed(schema))

    def check(self, validator, document, what):
        wrong = [f"{what}: {'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]
        self.assertEqual(wrong[:5], [])

    def test_every_record_and_summary(self):
        record, summary = self.validator("record"), self.validator("summary")
        done = self.run_stp("reproduce", "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        checked = 0
        for path in (self.folder / "new").glob("*.json"):
            document = json.loads(path.read_text(encoding="utf-8"))
            self.check(summary if path.name == "summary.json" else record, document, path.name)
            checked += 1
        self.assertGreaterEqual(checked, 3)

    def test_records_of_simulate(self):
        record = self.validator("record")
        nothing = changed(UNIT, costs={"unit": {}})  # a step without time has no throughput
        for scenario in (UNIT, nothing, changed(UNIT, schedule_costs={"F": 2}), HARDWARE,
                         changed(HARDWARE, recompute="full", sequence_parallel=True, implementation="megatron-2022"), PAIRS,
                         changed(PAIRS, pairs=[{key: PAIRS["pairs"][0][key] for key in ("name", "gemm", "all_reduce")}])):
            done = self.run_stp("simulate", self.write(scenario), "--json", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.check(record, json.loads(done.stdout), scenario["name"])

    def test_records_of_run(self):
        single = changed(RUN, run={**RUN["run"], "type": "float32"})
        for scenario, *extra in ((RUN,), (single, "--predict", "a800")):
            done = self.run_stp("run", self.write(scenario), "--backend", "cpu", "--json", "-", *extra)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.check(self.validator("record"), json.loads(done.stdout), "run")

    def test_comparisons(self):
        comparison = self.validator("comparison")
        for name, cluster in (("a", "a800"), ("b", "h20")):
            done = self.run_stp("simulate", self.write(changed(HARDWARE, cluster=cluster), name), "--json", f"{name}.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.write(benchmarks(ord(name), repetitions=4), f"{name}-bench.json")
        done = self.run_stp("run", self.write(changed(RUN, model="tiny", schedules=["1f1b-i"])), "--backend", "cpu", "--json", "run.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        unit = changed(UNIT, schedules=["1f1b-i"], parallel={"pp": 2, "tp": 2}, layers_per_chunk=[1] * 4)
        self.assertEqual(self.run_stp("simulate", self.write(unit), "--json", "unit.json").returncode, 0)
        for arguments in (["a.json", "b.json"], ["run.json", "unit.json"], ["a-bench.json", "b-bench.json"], ["--profiles", "a800", "h20"]):
            done = self.run_stp("compare", *arguments, "--json", "-")
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(done.stdout)
            # Of the kind that it says it is: oneOf alone would not say where it fails.
            kind = comparison.evolve(schema={**comparison.schema, "oneOf": [{"$ref": f"#/$defs/{document['kind']}"}]})
            self.check(comparison, document, document["kind"])
            self.check(kind, document, document["kind"])
            document["rows" if "rows" in document else "machines"] = 3
            self.assertFalse(comparison.is_valid(document))

    def test_the_schemas_refuse_what_is_no_record(self):
        for name in ("record", "summary", "comparison"):
            validator = self.validator(name)
            for document in ({}, [], {"schema_version": "1.0.0"}):
                self.assertFalse(validator.is_valid(document))
        done = self.run_stp("simulate", self.write(UNIT), "--json", "-")
        document = json.loads(done.stdout)
        document["results"][0]["ranks"][0]["compute_s"] = "1"
        self.assertFalse(self.validator("record").is_valid(document))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    STP = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
