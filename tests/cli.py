"""Runs the program as its users do, mostly wrongly: every refusal ends with exit code 2 and leaves nothing behind; existing
files are never overwritten.

    cli.py STP_BINARY [unittest arguments]
"""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

from command_line import changed, CommandLine, HARDWARE, main, PROFILES, read_json, ROOT, snapshot, UNIT


class Arguments(CommandLine):
    def test_files_that_are_not_there(self):
        self.refused(["simulate", "nowhere.json"], "nowhere.json: cannot be read; check the path")
        self.refused(["simulate", "timeline"], "SCENARIO", "timeline", 'did you mean timelines?')
        self.refused(["simulate", self.folder], f"{self.folder}: is a folder; name a file")

    def test_the_table_of_the_docs_is_the_tools(self):
        page = (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
        table = page.split("<!-- table -->\n")[1].split("<!-- end of table -->")[0]
        self.assertEqual(self.succeed("schedule", "--table", "--pp", 8, "--microbatches", 64).stdout, table)

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
        self.succeed("validate", self.write(order))
        for ranks, words in (
            ([["F0.0", "F0.1", "B0.0", "B0.1"]], "1 lists for 2 ranks"),
            ([["F0.0", "F0.1", "B0.0"], ["F0.0", "B0.0", "F0.1", "B0.1"]], "rank 0: B0.1 is missing"),
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
        self.succeed("validate", "bom.csv")
        path = self.write(order, "order.csv")
        self.refused(["simulate", path], "order.csv: is a schedule, not a scenario", "schedules", "stp validate")
        printed = self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "json").stdout
        self.refused(["simulate", self.write(printed, "order.json")], "order.json", "a schedule, not a scenario")

    def test_endless_input_is_refused(self):
        for ending in ("csv", "json", "txt"):
            (self.folder / f"zero.{ending}").symlink_to("/dev/zero")
            self.refused(["validate", f"zero.{ending}"], f"zero.{ending}: is larger than 256 MiB")
        self.refused(["simulate", "/dev/zero"], "/dev/zero: is larger than 256 MiB")

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
        self.succeed("simulate", self.write(UNIT), "--json", "new.json")
        self.assertEqual(self.read("new.json")["results"], record["results"])
        self.assertIn("pairs", self.json_of("simulate", "table11"))

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


class Changes(CommandLine):
    def test_what_is_set_is_as_if_files_said_it(self):
        written = self.record(changed(HARDWARE, seq=4096, parallel={"tp": 8, "pp": 4}))
        named = self.record(changed(HARDWARE, title="With s 3072"), "--set", "seq=4096", "--set", "parallel.tp=8")
        self.assertEqual(named["results"], written["results"])
        self.assertEqual(named["scenario"]["title"], "hardware [seq=4096, parallel.tp=8]")
        # Also where configurations have the field themselves.
        several = changed(HARDWARE, seq=None, configurations=[{"seq": 3072}, {"seq": 6144}])
        self.assertEqual([row["seq"] for row in self.record(several, "--set", "seq=4096")["results"]], [4096, 4096])

    def test_values_of_the_cluster_and_the_model(self):
        profile = read_json(PROFILES / "a800.json")
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
        done = self.succeed("simulate", path, "--keep-going", "--json", "-")
        self.assertEqual([row["name"] for row in json.loads(done.stdout)["results"]], ["good"])
        self.assertRegex(done.stderr, r"stp: left out: short: .*layers_per_chunk.*\nstp: left out: few: .*m ≥ 2p.*\n$")
        self.succeed("reproduce", path, "--keep-going", "--no-plots", "--out", "new")
        self.assertEqual(len(self.read("new/unit.json")["rows"]), 1)
        few = self.write(changed(UNIT, schedules=["dualpipev"], microbatches=3, layers_per_chunk=[1] * 4))
        for command in (["simulate", few], ["reproduce", few, "--no-plots", "--out", "newer"]):
            done = self.run_stp(*command, "--keep-going")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("refuse all configurations", done.stderr)
        none = self.write(changed(UNIT, microbatches=None, layers_per_chunk=None, configurations=configurations[1:2]))
        self.assertEqual(self.run_stp("simulate", none, "--keep-going").returncode, 2)


if __name__ == "__main__":
    main(__doc__)
