"""Runs the program as its users do, mostly wrongly: every refusal ends with exit code 2, names file, field and remedy,
and leaves nothing behind; existing files are never overwritten.

    cli.py STP_BINARY [unittest arguments]
"""

import copy
import fcntl
import json
import os
import re
import signal
import subprocess
from pathlib import Path

from command_line import changed, CommandLine, HARDWARE, main, ROOT, RUN, snapshot, UNIT


class Scenarios(CommandLine):
    def test_the_bases_of_these_tests_are_accepted(self):
        for base in (UNIT, HARDWARE):
            done = self.run_stp("simulate", self.write(base))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_missing_file(self):
        self.refused(["simulate", "nowhere.json"], "nowhere.json: cannot be read; check the path")
        self.refused(["simulate", "timeline"], "SCENARIO", "timeline", 'did you mean timelines?')
        self.refused(["simulate", self.folder], f"{self.folder}: is a folder; name a file")

    def test_not_json(self):
        self.scenario_refused("{", "", "is not valid JSON")
        self.scenario_refused("\n", "", "is empty")
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

    def test_a_misspelled_key_that_is_required(self):
        self.scenario_refused(changed(HARDWARE, offload={"ration": 0.5}), "offload.ratio", "is missing", 'correct "ration"')
        profile = json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8"))
        profile["multiprocessors"] = profile.pop("sms")
        profile = self.write(profile, "cluster.json")
        self.refused(["simulate", self.write(changed(HARDWARE, cluster=str(profile)))], ": sms: is missing",
                     "perhaps in place of multiprocessors, not known here")

    def test_a_record_is_no_scenario(self):
        record = self.run_stp("simulate", self.write(UNIT), "--json", "-").stdout
        self.refused(["simulate", self.write(record)], "provenance: makes this a result record", 'its field "scenario"')

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
        self.scenario_refused(changed(HARDWARE, model=None), "model", "is missing; add it")

    def test_all_missing_keys_in_one_message(self):
        lacking = changed(HARDWARE, name=None, schedules=None, seq=None, cluster=None, microbatches=None, parallel={"tp": 4})
        self.scenario_refused(lacking, "name, cluster, microbatches, parallel.pp, schedules, seq", "are missing; add them")
        self.scenario_refused({"name": "empty"}, "costs, microbatches, parallel, schedules", "are missing, and so is model; write costs.unit")
        self.scenario_refused(changed(UNIT, costs={}, layers_per_chunk=None), "costs.unit, layers_per_chunk", "are missing")
        several = [{"microbatches": 8}, {"schedules": ["stp"]}, {"parallel": {"tp": 2}}]
        self.scenario_refused(changed(HARDWARE, seq=None, microbatches=None, schedules=None, configurations=several),
                              "configurations[1].microbatches, configurations[2].microbatches, configurations[2].parallel.pp, "
                              "configurations[0].schedules, configurations[2].schedules, seq", "are missing")
        self.refused(["run", self.write(changed(RUN, model=None, seq=None)), "--backend", "cpu"], "model, seq: are missing")

    def test_unknown_choice(self):
        self.scenario_refused(changed(UNIT, release="never"), "release", '"never" is not a choice', "chain, block, released, blocking")
        self.scenario_refused(changed(UNIT, braid="loose"), "braid", '"loose" is not a choice', "static, sequential, timed, paired")
        self.scenario_refused(changed(RUN, braid="timed"), "braid", "is timed, which needs times, and runs have none", "use static or sequential")
        self.scenario_refused(changed(HARDWARE, braid="paired", microbatch_costs=[1.0] * HARDWARE["microbatches"]), "braid", "microbatch_costs make unlike")
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
        self.scenario_refused(changed(UNIT, schedules=["1f1b", "gpipe", "1f1b"]), "schedules[2]", "lists 1f1b again")
        four = changed(UNIT, layers_per_chunk=[1] * 4)
        self.scenario_refused(changed(four, schedules=["1f1b-i"], microbatches=5), "microbatches", "multiple of 2, not 5", "use 6")
        self.scenario_refused(changed(four, schedules=["dualpipev"], microbatches=3), "microbatches", "2p = 4, not 3")

    def test_the_table_of_the_docs_is_the_tools(self):
        page = (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
        table = page.split("<!-- table -->\n")[1].split("<!-- end of table -->")[0]
        counted = self.run_stp("schedule", "--table", "--pp", 8, "--microbatches", 64)
        self.assertEqual((counted.returncode, counted.stdout), (0, table))

    def test_schedule_files(self):
        self.scenario_refused(changed(UNIT, schedules=[{"file": "none.json"}]), "schedules[0].file", "there is no file")
        printed = self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "json").stdout
        order = self.write(printed, "order.json")
        mine = changed(UNIT, schedules=[{"file": "order.json"}])
        self.assertEqual(self.run_stp("simulate", self.write(mine)).returncode, 0)
        self.refused(["simulate", self.write(changed(mine, microbatches=5))], str(order), "microbatches", "the scenario for pp 2 and 5")
        self.write(printed.replace('"B0.0"', '"B0.1"', 1), "order.json")
        self.refused(["simulate", self.write(mine)], str(order), "B0.1")


class Profiles(CommandLine):
    """A scenario on a profile of its own, bad in one place."""

    def setUp(self):
        super().setUp()
        self.profile = json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8"))

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

    def test_all_missing_fields_are_named_at_once(self):
        values = [key for key, field in self.profile.items() if isinstance(field, dict)]
        for key in ("host_launch_us", "adapters_per_node", "attention_tile_overhead"):  # have a default
            values.remove(key)
        self.assertEqual(len(values), 22)
        kept = self.profile
        self.profile = {"name": "mine", "accelerator": "GPU", "peak_tflops": {"value": 3}, "gemm_efficiency": kept["gemm_efficiency"]}
        missing = [key for key in values if key not in self.profile] + ["peak_tflops.source"]
        self.write(self.profile, "gpu.json")
        done = self.run_stp("simulate", self.write(changed(HARDWARE, cluster="gpu.json")))
        named = re.fullmatch(r"stp: .*gpu\.json: (.*): are missing; add them\n", done.stderr)
        self.assertEqual((done.returncode, sorted(named[1].split(", "))), (2, sorted(missing)))
        # Of a measured curve, and of a fitted value.
        self.profile = copy.deepcopy(kept)
        del self.profile["gpus_per_node"], self.profile["gemm_efficiency"]["range"]["source"]
        self.profile["all_reduce_measured"] = [{"ranks": 4, "source": "mine"}]
        self.profile_refused("gpus_per_node, gemm_efficiency.range.source, all_reduce_measured[0].sizes", "are missing")

    def test_control_characters(self):
        self.profile["name"] = "a\x1b]0;b\x07"
        self.profile_refused("name", "has control characters")
        self.profile["name"] = "mine"
        self.profile["x\x1b[31m"] = 1
        self.profile_refused("x?[31m", "is not a known field")
        self.scenario_refused(changed(UNIT, title="\x1b[2J"), "title", "has control characters")
        self.scenario_refused(changed(UNIT, **{"\x9b2J": 1}), "?2J", "is not a known field")

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

    def test_any_value_may_have_a_range(self):
        self.profile["kernel_overhead_us"]["range"] = {"from": 1, "to": 9, "source": "guessed"}
        self.test_accepted()
        self.profile["kernel_overhead_us"]["range"]["source"] = ""
        self.profile_refused("kernel_overhead_us.range.source", "is empty")
        self.profile["kernel_overhead_us"]["range"] = {"from": 100, "to": 200, "source": "guessed"}
        self.profile_refused("kernel_overhead_us.value", "outside its physical range")

    def test_unknown_value(self):
        self.profile["peak_teraflops"] = self.profile["peak_tflops"]
        self.profile_refused("peak_teraflops", "is not a known field", 'did you mean "peak_tflops"?')


class Arguments(CommandLine):
    def test_unknown_flags_and_words(self):
        self.refused(["simulate", "timelines", "--jason", "-"], "--jason")
        self.refused(["simulated"], "no command \"simulated\"", "did you mean simulate?")
        self.refused([], "stp: A subcommand is required; stp --help lists")
        self.refused(["simulate"], "SCENARIO")
        self.refused(["schedule", "1f1b", "--pp", 2], "--microbatches")
        self.refused(["schedule", "1f1b", "--pp", "two", "--microbatches", 4], "stp: ", "--pp = two; stp schedule --help lists")
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


    def test_deadlocks_are_named_in_the_file_s_own_coordinates(self):
        for name, text, words in (
            ("o.csv", "0F0,,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n",
             ("line 1 (rank 0), cell 3, 0B0: deadlock: it waits for line 2 (rank 1), cell 3, 1B0, which comes after line 2 (rank 1), cell 1, 1F1",
              "closes the cycle")),
            ("o.csv", "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1,0REDUCE_GRAD\n"
                      "1RECV_F0,1RECV_F1,1F1,1F0,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD\n",
             ("line 1 (rank 0), cell 4, 0B0: deadlock: it waits for line 2 (rank 1), cell 5, 1B0, which comes after line 2 (rank 1), cell 3, 1F1",)),
            ("o.txt", "# placement loop\nF0.0 B0.0 F0.1 B0.1\nF0.1 F0.0 B0.0 B0.1\n",
             ("line 2 (rank 0), block 1, B0.0: deadlock: it waits for line 3 (rank 1), block 2, B0.0",)),
            ("o.json", {"schedule": "mine", "placement": "loop", "pp": 2, "chunks": 1, "microbatches": 2,
                        "ranks": [["F0.0", "B0.0", "F0.1", "B0.1"], ["F0.1", "F0.0", "B0.0", "B0.1"]]},
             ("ranks[0][1], B0.0: deadlock: it waits for ranks[1][2], B0.0",))):
            path = self.write(text, name)
            self.refused(["validate", path], str(path), *words)
            self.refused(["simulate", self.write(changed(UNIT, schedules=[{"file": name}], microbatches=2))], str(path), *words)

    def test_files_of_another_kind_or_encoding(self):
        order = "0F0,0B0\n"
        for name, encoding in (("u.csv", "utf-16"), ("u.json", "utf-16-le"), ("u.txt", "utf-16-be")):
            (self.folder / name).write_bytes(order.encode(encoding))
            self.refused(["validate", name], f"{name}: holds NUL bytes: it is UTF-16, or no text; save it as UTF-8 text")
        (self.folder / "bom.csv").write_bytes(order.encode("utf-8-sig"))
        self.assertEqual(self.run_stp("validate", "bom.csv").returncode, 0)
        self.refused(["validate", self.write("0F0;0B0\n", "s.csv")], "cell 1, 0F0;0B0", "semicolon", "separate cells by commas")
        path = self.write(order, "order.csv")
        self.refused(["simulate", path], "order.csv: is a schedule, not a scenario", "schedules", "stp validate")
        printed = self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "json").stdout
        self.refused(["simulate", self.write(printed, "order.json")], "order.json", "a schedule, not a scenario")

    def test_endless_input_is_refused(self):
        for ending in ("csv", "json", "txt"):
            (self.folder / f"zero.{ending}").symlink_to("/dev/zero")
            done = self.run_stp("validate", f"zero.{ending}")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"zero.{ending}: is larger than 256 MiB", done.stderr)
        done = self.run_stp("simulate", "/dev/zero")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/dev/zero: is larger than 256 MiB", done.stderr)

    def test_a_large_schedule_says_what_it_costs_before_it_starts(self):
        command = [self.stp, "schedule", "stp", "--pp", "4096", "--microbatches", "4096"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            line = process.stderr.readline()
            process.kill()
        self.assertRegex(line, r"^stp: 34 million chunk passes: expect about 5\.0 GB of memory and 34 s$")
        small = self.run_stp("schedule", "stp", "--pp", 4, "--microbatches", 64)
        self.assertEqual(small.stderr, "")


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
        pairs = self.run_stp("simulate", "table11", "--json", "-")
        self.assertEqual((pairs.returncode, pairs.stderr), (0, ""))
        self.assertIn("pairs", json.loads(pairs.stdout))

    def test_a_device_is_a_file_to_write_to(self):
        path = self.write(UNIT)
        before = snapshot(self.folder), os.stat("/dev/null").st_rdev
        done = self.run_stp("simulate", path, "--json", "/dev/null")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("bubbles of the busiest rank", done.stdout)
        self.assertEqual((snapshot(self.folder), os.stat("/dev/null").st_rdev), before)
        if os.access("/dev/full", os.W_OK):
            done = self.run_stp("simulate", path, "--json", "/dev/full")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("/dev/full: could not be written completely", done.stderr)

    def test_schedule_as_json(self):
        done = self.run_stp("schedule", "stp", "--pp", 2, "--microbatches", 5, "--format", "json")
        order = json.loads(done.stdout)
        self.assertEqual(sorted(order), ["chunks", "microbatches", "placement", "pp", "ranks", "schedule"])
        scalars = {key: value for key, value in order.items() if key != "ranks"}
        self.assertEqual(scalars, {"schedule": "stp", "placement": "v", "pp": 2, "chunks": 2, "microbatches": 5})
        text = self.run_stp("schedule", "stp", "--pp", 2, "--microbatches", 5).stdout
        lines = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(lines, order["ranks"])

    def test_runs_of_one_second_get_folders_of_their_own(self):
        command, data = [self.stp, "reproduce", str(self.write(UNIT)), "--no-plots"], self.folder / "data"
        data.mkdir()
        runs = [subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, env={**os.environ, "STP_DATA_DIR": str(data)}, text=True)
                for _ in range(4)]
        said = {re.search(r"^Results: (.*)$", run.communicate(timeout=60)[0], re.MULTILINE)[1] for run in runs}
        self.assertEqual([run.returncode for run in runs], [0] * 4)
        self.assertEqual(said, {str(path) for path in (self.folder / "results/runs").iterdir()})
        self.assertEqual(len(said), 4)
        self.assertTrue(all((Path(path) / "summary.json").exists() for path in said))

    def test_records_stay_where_plots_fail(self):
        for python, code, words in (("/bin/false", 1, "plots/report.py failed"), ("/nowhere", 2, "cannot be started")):
            folder = f"new-{code}"
            done = self.run_stp("reproduce", self.write(UNIT), "--out", folder, variables={"STP_PYTHON": python})
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertRegex(done.stdout, rf"\nResults: {folder}\n$")
            self.assertEqual(sorted(path.name for path in (self.folder / folder).iterdir()), ["summary.json", "unit.json"])

    def test_a_limit_on_file_sizes_is_reported(self):
        limited = ("bash", "-c", 'ulimit -f 4; exec "$@"', "bash")
        many = self.write(changed(UNIT, microbatches=list(range(1, 50))))
        before = snapshot(self.folder)
        for arguments in (["simulate", many, "--json", "new.json"], ["reproduce", many, "--no-plots", "--out", "new"]):
            done = self.run_stp(*arguments, launcher=limited)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("could not be written completely (is the disk full, or file size limited?)", done.stderr)
            self.assertEqual(snapshot(self.folder), before)

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        path = self.write(UNIT)
        for i, arguments in enumerate((["simulate", path, "--json", "new.json"], ["reproduce", path, "--no-plots", "--out", "new"])):
            kept, left = self.folder / ".stp-partial-kept00", self.folder / ".stp-partial-left00"
            left.mkdir()
            (left / "half.json").write_text("{")
            kept.write_text("{")
            with kept.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # as the process that writes it does
                done = self.run_stp(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, f"stp: removed {left}, which a killed run left half-written\n"), i)
            self.assertEqual((left.exists(), kept.exists()), (False, True))

    def test_a_killed_run_leaves_only_what_the_next_one_removes(self):
        slow = self.write(changed(UNIT, schedules=["stp"], parallel={"pp": 16}, layers_per_chunk=[1] * 32, microbatches=list(range(64, 600))))
        with subprocess.Popen([self.stp, "reproduce", str(slow), "--no-plots", "--out", "new"], cwd=self.folder) as run:
            while not (partial := list(self.folder.glob(".stp-partial-*"))) and run.poll() is None:
                pass
            run.kill()
        self.assertEqual(run.returncode, -signal.SIGKILL)
        done = self.run_stp("simulate", self.write(UNIT, "unit.json"), "--json", "new.json")
        self.assertEqual(done.stderr, f"stp: removed {partial[0]}, which a killed run left half-written\n")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["new.json", "s.json", "unit.json"])

    def test_a_signal_ends_what_draws_too(self):
        python = self.folder / "python"
        python.write_text("#!/bin/sh\necho begun\nexec sleep 100\n")
        python.chmod(0o755)
        command = [self.stp, "trace", str(self.write(UNIT)), "--out", "new"]
        with subprocess.Popen(command, cwd=self.folder, env=os.environ | {"STP_PYTHON": str(python)}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as run:
            self.assertEqual(run.stdout.readline(), "begun\n")
            run.terminate()
            self.assertEqual(run.communicate(timeout=60)[1], "stp: interrupted; nothing was written\n")
        self.assertEqual(run.returncode, 1)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["python", "s.json"])

    def test_reproduce_leaves_a_whole_folder(self):
        done = self.run_stp("reproduce", self.write(UNIT), "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.rglob("*")), ["new", "s.json", "summary.json", "unit.json"])


class Changes(CommandLine):
    def record(self, scenario, *arguments):
        done = self.run_stp("simulate", self.write(scenario), "--json", "-", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_what_is_set_is_as_if_files_said_it(self):
        written = self.record(changed(HARDWARE, seq=4096, parallel={"tp": 8, "pp": 4}))
        named = self.record(changed(HARDWARE, title="With s 3072"), "--set", "seq=4096", "--set", "parallel.tp=8")
        self.assertEqual(named["results"], written["results"])
        self.assertEqual(named["scenario"]["title"], "hardware [seq=4096, parallel.tp=8]")
        # Also where configurations have the field themselves.
        several = changed(HARDWARE, seq=None, configurations=[{"seq": 3072}, {"seq": 6144}])
        self.assertEqual([row["seq"] for row in self.record(several, "--set", "seq=4096")["results"]], [4096, 4096])

    def test_values_of_the_cluster_and_the_model(self):
        profile = json.loads((ROOT / "profiles/a800.json").read_text(encoding="utf-8"))
        profile["peak_tflops"] = {"value": 400, "source": "a test"}
        self.write(profile, "fast.json")
        written, named = self.record(changed(HARDWARE, cluster="fast.json")), self.record(HARDWARE, "--set", "cluster.peak_tflops=400")
        self.assertEqual([row["step_time_s"] for row in named["results"]], [row["step_time_s"] for row in written["results"]])
        self.assertEqual(named["scenario"]["clusters"]["a800"]["peak_tflops"], {"value": 400, "source": "--set"})
        absent = self.record(HARDWARE, "--set", "cluster.adapters_per_node=4")
        self.assertEqual(absent["scenario"]["clusters"]["a800"]["adapters_per_node"], {"value": 4, "source": "--set"})
        fewer = self.record(changed(HARDWARE, layers_per_chunk="even"), "--set", "model.num_hidden_layers=16")
        self.assertEqual(sum(fewer["results"][0]["layers_per_chunk"]), 16)

    def test_bad_changes(self):
        path = self.write(HARDWARE)
        for word, *words in (("seq", '"seq" is not KEY=VALUE'), ("=3", "not KEY=VALUE"), ("a..b=3", "not KEY=VALUE"), ("seq=", "not KEY=VALUE"),
                             ("seq=many", str(path), ": seq: ", "whole number"), ("sequence=3", str(path), "sequence", "seq"),
                             ("seq.x=3", "--set", "seq has no fields"), ("cluster.peak_tflop=3", "a800.json", "peak_tflop"),
                             ("cluster.peak_tflops=-3", "a800.json", "peak_tflops.value", "out of range")):
            self.refused(["simulate", path, "--set", word], *words)

    def test_invalid_configurations_may_be_left_out(self):
        layers = {"layers_per_chunk": [1] * 4}
        configurations = [{"name": "good", "microbatches": 8, **layers}, {"name": "short", "microbatches": 8},
                          {"name": "few", "microbatches": 3, **layers}]
        path = self.write(changed(UNIT, schedules=["dualpipev"], microbatches=None, layers_per_chunk=None, configurations=configurations))
        self.refused(["simulate", path], "configurations[1]")
        done = self.run_stp("simulate", path, "--keep-going", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["name"] for row in json.loads(done.stdout)["results"]], ["good"])
        self.assertRegex(done.stderr, r"stp: left out: short: .*layers_per_chunk.*\nstp: left out: few: .*m ≥ 2p.*\n$")
        done = self.run_stp("reproduce", path, "--keep-going", "--no-plots", "--out", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads((self.folder / "new/unit.json").read_text(encoding="utf-8"))["rows"]), 1)
        few = self.write(changed(UNIT, schedules=["dualpipev"], microbatches=3, layers_per_chunk=[1] * 4))
        for command in (["simulate", few], ["reproduce", few, "--no-plots", "--out", "newer"]):
            done = self.run_stp(*command, "--keep-going")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("refuse all configurations", done.stderr)
        none = self.write(changed(UNIT, microbatches=None, layers_per_chunk=None, configurations=configurations[1:2]))
        self.assertEqual(self.run_stp("simulate", none, "--keep-going").returncode, 2)


if __name__ == "__main__":
    main(__doc__)
