"""Runs the program as its users do, mostly wrongly: every refusal ends with exit code 2 and leaves nothing behind; existing
files are never overwritten.

    cli.py STP_BINARY [unittest arguments]
"""

import json
import os
import re
import subprocess
from pathlib import Path

from command_line import changed, CommandLine, HARDWARE, main, read_json, ROOT, RUN, snapshot, UNIT


class Arguments(CommandLine):
    def test_files_that_are_not_there(self):
        self.refused(["simulate", "nowhere.json"], "nowhere.json: cannot be read; check the path")
        self.refused(["simulate", "timeline"], "SCENARIO", "timeline", 'did you mean timelines?')
        said = self.run_stp("simulate", "split").stderr
        self.assertRegex(said, r"or a name such as mllm-splits(, [\w-]+){4} \(stp list scenarios shows all\)\n$")
        self.refused(["run", self.write(RUN, "run.json"), "--backend", "CPU"], '--backend: "CPU" is not built in; did you mean cpu? use ')
        self.refused(["simulate", self.folder], f"{self.folder}: is a folder; name a file")

    def test_the_table_of_the_docs_is_the_tools(self):
        page = (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
        table = page.split("<!-- table -->\n")[1].split("<!-- end of table -->")[0]
        printed = self.succeed("schedule", "--table", "--pp", 8, "--microbatches", 64).stdout
        ours, shown = ([line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
                       for text in (printed, table))
        self.assertTrue(printed.startswith("In units of F = I = W = 1 a layer, with two layers a rank, release chain and all-reduces of 0.25 a "))
        columns = [ours[0].index(name) for name in shown[0]]
        self.assertEqual([[row[column] for column in columns] for row in ours], shown)

    def test_doctor_says_what_works(self):
        done = self.run_stp("doctor")
        self.assertRegex(done.stdout, r"\ncpu +GEMM in f64 +works +\d+ +right, and the same bits twice\n")
        self.assertRegex(done.stdout, r"\ncpu +attention in bf16 +works +\d+ +right, and the same bits twice\n")
        here = not re.search("\ncuda +driver +absent ", done.stdout)
        self.assertEqual(done.returncode, 1 if here and " MISSING " in done.stdout else 0, done.stdout)

    def test_unknown_flags_and_words(self):
        self.refused(["simulate", "timelines", "--jason", "-"], "--jason")
        self.refused(["simulate", "timelines", "--a\x1b[31m"], "stp: The following argument was not expected: --a?[31m; stp")
        self.refused(["simulated"], "no command \"simulated\"", "did you mean simulate?")
        self.refused([], "stp: A subcommand is required; stp --help lists")
        self.refused(["simulate"], "SCENARIO")
        self.refused(["schedule", "1f1b", "--pp", 2], "--microbatches")
        self.refused(["schedule", "1f1b", "--pp", "two", "--microbatches", 4], "stp: ", "--pp = two; stp schedule --help lists")
        self.refused(["schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "xml"], "--format")
        if os.access("/dev/full", os.W_OK):
            with open("/dev/full", "w", encoding="utf-8") as full:
                self.assertEqual(subprocess.run([self.stp, "--help"], stdout=full, stderr=subprocess.PIPE, check=False).returncode, 1)
        self.assertRegex(self.run_stp("--version").stdout, r"^stp \d+\.\d+\.\d+")

    def test_schedules_that_do_not_exist_or_fit(self):
        size = ["--pp", 4, "--microbatches", 12]
        self.refused(["schedule", "1f1b_i", *size], "stp: ", "did you mean 1f1b-i?", "there are stp")
        self.refused(["schedule", "1f1b-i", "--pp", 4, "--microbatches", 10], "stp: microbatches: ", "multiple of 4", "use 12")
        self.refused(["schedule", "stp", *size, "--chunks", 3], "stp: chunks: ", "set it to 2")
        self.refused(["schedule", "1f1b", "--pp", 0, "--microbatches", 4], "stp: pp: ", "0 is out of range", "from 1 to")
        self.refused(["schedule", "1f1b", "--pp", 2, "--microbatches", 0], "stp: microbatches: ", "0 is out of range")
        for costs in ("-1,1,1,0", "nan,1,1,0", "inf,1,1,0"):
            self.refused(["schedule", "zb-v", *size, "--costs", costs], "--costs", "not a number from 0 to 1e9")
        self.refused(["schedule", "zb-v", *size, "--costs", "1,1,1"], "--costs")
        self.refused(["schedule", "1f1b", *size, "--memory-limit", 3], "1f1b takes no memory_limit; remove it")
        for name in ("vocab-2", "dualpipe"):
            self.refused(["schedule", name, *size, "--vocabulary", "vocab-1"], f"stp: --vocabulary: {name} has two pipelines or shares")
        self.refused(["schedule", "stp", *size, "--vocabulary", "vocab-3"], "--vocabulary")
        for flag in (["--vocabulary", "vocab-1"], ["--memory-limit", 3], ["--chunks", 2], ["--costs", "1,1,1,0"]):
            self.refused(["schedule", "--table", *size, *flag], flag[0])
        self.assertIn("# schedule stp+vocab-2, placement v\nE0.0 ", self.succeed("schedule", "stp", *size, "--vocabulary", "vocab-2").stdout)

    def test_validate(self):
        self.refused(["validate", "none.json"], "none.json: cannot be read")
        order = json.loads(self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 2, "--format", "json").stdout)
        self.assertIn(" must post 1 receive ahead on each link", self.succeed("validate", self.write(order)).stdout)
        for ranks, words in (
            ([["F0.0", "F0.1", "B0.0", "B0.1"]], "1 lists for 2 ranks"),
            ([["F0.0", "F0.1", "B0.0"], ["F0.0", "B0.0", "F0.1", "B0.1"]], "ranks[0], B0.1: is missing; add it"),
            ([["F0.0", "B0.0", "B0.1"], ["F0.0", "B0.0", "F0.1", "B0.1"]], "ranks[0], F0.1: is missing; add it before ranks[0][2], B0.1, or correct that"),
            ([["F0.0", "B0.0", "B0.1", "F0.1"], ["F0.0", "B0.0", "F0.1", "B0.1"]], "ranks[0][2], B0.1: precedes its F; move it after"),
            ([["F0.0", "X0.1"], []], 'ranks[0][1]: "X0.1" is not a block'),
        ):
            path = self.write(changed(order, ranks=ranks), "order.json")
            self.refused(["validate", path], str(path), words, "; ")

    def test_validate_reads_standard_input_in_any_format(self):
        for form in ("text", "json", "csv", "csv-comms"):
            text = self.succeed("schedule", "stp", "--pp", 2, "--microbatches", 4, "--format", form).stdout
            for name in ("-", "/dev/stdin"):
                done = subprocess.run([self.stp, "validate", name], input=text, capture_output=True, text=True, check=True)
                self.assertTrue(done.stdout.startswith(f"{name}: valid: stp, p 2" if form in ("text", "json") else f"{name}: valid: "), done.stdout)
        done = subprocess.run([self.stp, "validate", "-"], input="hello", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("-: is no schedule", done.stderr)

    def test_scenarios_are_read_from_standard_input(self):
        rows = self.results(UNIT)
        for name in ("-", "/dev/stdin"):
            done = subprocess.run([self.stp, "simulate", name, "--json", "-"], input=json.dumps(UNIT), capture_output=True, text=True, check=True)
            self.assertEqual(json.loads(done.stdout)["results"], rows)

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
        for name, before in (("latin.csv", order), ("latin.txt", "# placement loop\n")):
            (self.folder / name).write_bytes((before + "F0é.0").encode("latin-1"))
            self.refused(["validate", name], f"{name}:2:3: holds bytes that are not UTF-8; save it as UTF-8 text")
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

    def test_what_is_large_says_what_it_costs_before_it_starts_in_a_pipe_too(self):
        path = self.write(changed(HARDWARE, schedules=["1f1b"], layers_per_chunk=[7, 8, 8, 7], microbatches=100000))
        for arguments, said in ((("simulate", path), r"3 million layers of microbatches: expect about 2\.7 GB of memory and 8 s"),
                                (("schedule", "stp", "--pp", 4096, "--microbatches", 4096),
                                 r"34 million chunk passes: expect about 5\.0 GB of memory and 34 s")):
            with self.started(*arguments) as process:
                self.assertRegex(process.stderr.readline(), f"^stp: {said}$")
                process.kill()
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
        self.refused(["simulate", path, "--csv", "dangling"], "dangling: --csv: exists")

    def test_places_that_cannot_be_written(self):
        path = self.write(UNIT)
        self.refused(["simulate", path, "--json", "none/new.json"], "none/new.json", "cannot be created", "; ")
        self.refused(["reproduce", path, "--no-plots", "--out", "none/new"], "none/new", "cannot be created", "; ")
        self.refused(["simulate", path, "--json", "/proc/new"], "/proc/new: --json: cannot be created")
        self.refused(["search", path, "--out", "n" * 240], "--out: has a name of over 230 bytes; shorten it")
        for command in (["simulate", path, "--json"], ["compare", "--json"], ["reproduce", path, "--no-plots", "--out"]):
            self.refused([*command, "--"], f"stp: --: {command[-1]}: ends the options; write ./-- if")
        self.succeed("simulate", path, "--json", "./--")

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
            (self.folder / "full").symlink_to("/dev/full")
            for command in (["simulate", path], ["run", self.write(RUN, "run.json"), "--backend", "cpu"]):
                files = set(snapshot(self.folder))
                done = self.run_stp(*command, "--json", "full")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn("full: could not be written completely", done.stderr)
                self.assertEqual(set(snapshot(self.folder)), files)  # no rows are kept beside a device

    def test_runs_of_one_second_get_folders_of_their_own(self):
        command, data = [self.stp, "reproduce", str(self.write(UNIT)), "--no-plots"], self.folder / "data"
        (data / "results/published").mkdir(parents=True)
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

    def test_plots_are_drawn_without_standard_error(self):
        self.succeed("reproduce", self.write(UNIT), "--out", "new", launcher=("bash", "-c", 'exec "$@" 2>&-', "bash"))
        self.assertTrue((self.folder / "new/report.html").exists())

    def test_the_umask_holds(self):
        for command in (["simulate", self.write(UNIT), "--json", "new.json"], ["reproduce", self.write(UNIT), "--no-plots", "--out", "new"]):
            self.succeed(*command, launcher=("bash", "-c", 'umask 027; exec "$@"', "bash"))
        modes = [(self.folder / name).stat().st_mode & 0o777 for name in ("new.json", "new/unit.json", "new")]
        self.assertEqual(modes, [0o640, 0o640, 0o750])

    def test_a_limit_on_file_sizes_is_reported(self):
        limited = ("bash", "-c", 'ulimit -f 4; exec "$@"', "bash")
        many = self.write(changed(UNIT, microbatches=list(range(1, 50))))
        before = snapshot(self.folder)
        for arguments in (["simulate", many, "--json", "new.json"], ["reproduce", many, "--no-plots", "--out", "new"]):
            done = self.run_stp(*arguments, launcher=limited)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("could not be written completely (is the disk full, or file size limited?)", done.stderr)
            self.assertEqual(snapshot(self.folder), before)

    def test_a_title_that_is_not_utf_8(self):
        self.succeed("reproduce", self.write(UNIT), "--set", "title=x\udcff", "--out", "new", variables={"STP_PYTHON": "/bin/true"},
                     launcher=("bash", "-c", '"$@" >/dev/null', "bash"))


class Changes(CommandLine):
    def test_what_is_set_is_as_if_files_said_it(self):
        written = self.record(changed(HARDWARE, seq=4096, parallel={"tp": 8, "pp": 4}))
        named = self.record(changed(HARDWARE, title="With s 3072"), "--set", "seq=4096", "--set", "parallel.tp=8")
        self.assertEqual(named["results"], written["results"])
        self.assertEqual(named["scenario"]["title"], "hardware [seq=4096, parallel.tp=8]")
        # Also where configurations have the field themselves.
        several = changed(HARDWARE, seq=None, configurations=[{"seq": 3072}, {"seq": 6144}])
        self.assertEqual([row["seq"] for row in self.record(several, "--set", "seq=4096")["results"]], [4096, 4096])
        # Null removes a field, so that another can replace it.
        several = changed(HARDWARE, configurations=[{"microbatches": 4}, {}])
        batches = self.record(several, "--set", "microbatches=null", "global_batch=16", "cluster.fixed_memory_gb=null")
        self.assertEqual([row["microbatches"] for row in batches["results"]], [16, 16])
        self.assertNotIn("fixed_memory_gb", batches["scenario"]["clusters"]["a800"])

    def test_lists_with_commas_alone_are_shown_as_arrays(self):
        path = self.write(UNIT)
        for given, array in (("microbatches=32,64", "microbatches=[32,64]"), ("schedules=stp,1f1b", 'schedules=["stp","1f1b"]')):
            self.refused(["simulate", path, "--set", given], f"--set: {given} is not a list; write --set '{array}'")
        self.assertEqual(len(self.record(UNIT, "--set", "microbatches=[4,8]")["results"]), 2)

    def test_values_of_the_cluster_and_the_model(self):
        self.write_profile("fast.json", peak_tflops=400)
        written, named = self.record(changed(HARDWARE, cluster="fast.json")), self.record(HARDWARE, "--set", "cluster.peak_tflops=400")
        self.assertEqual([row["step_time_s"] for row in named["results"]], [row["step_time_s"] for row in written["results"]])
        self.assertEqual(named["scenario"]["clusters"]["a800"]["peak_tflops"], {"value": 400, "source": "--set"})
        absent = self.record(HARDWARE, "--set", "cluster.adapters_per_node=4")
        self.assertEqual(absent["scenario"]["clusters"]["a800"]["adapters_per_node"], {"value": 4, "source": "--set"})
        fewer = self.record(changed(HARDWARE, layers_per_chunk="even"), "--set", "model.num_hidden_layers=16")
        self.assertEqual(sum(fewer["results"][0]["layers_per_chunk"]), 16)

    def test_paths_of_the_command_line_are_relative_to_the_current_folder(self):
        (self.folder / "there").mkdir()
        there = self.write(changed(HARDWARE, cluster="gpu.json"), "there/s.json")
        for folder, tflops in ((self.folder / "there", 300), (self.folder, 400)):
            self.write_profile(folder / "gpu.json", peak_tflops=tflops)
        for words, tflops in ((["--set", "cluster=gpu.json"], 400), (["--set", "cluster=./there/gpu.json"], 300), ([], 300)):
            [content] = self.json_of("simulate", there, *words)["scenario"]["clusters"].values()
            self.assertEqual(content["peak_tflops"]["value"], tflops, words)
        self.write(self.succeed("schedule", "gpipe", "--pp", 4, "--microbatches", 8).stdout, "here.txt")
        words = ["--set", 'schedules=[{"file": "here.txt"}]']
        self.assertEqual(self.json_of("simulate", there, *words)["results"][0]["schedule"], "gpipe")
        tried = self.folder.resolve() / "no.json"
        self.refused(["simulate", there, "--set", "cluster=no.json"], "cluster: ", str(tried))
        self.refused(["compare", "--profiles", "a800", "no.json"], "--profiles: ", str(tried))
        self.refused(["simulate", there, "--set", "cluster=h100.json"], "write h100 for the suite's")
        self.write(changed(HARDWARE, cluster="no.json"), "there/t.json")
        self.refused(["simulate", "there/t.json"], "cluster: ", str(tried.parent / "there/no.json"))

    def test_a_record_is_run_again_with_what_it_holds(self):
        self.write_profile("gpu.json", peak_tflops=400)
        kept = self.record(HARDWARE, "--set", "cluster=gpu.json", "--set", "model.num_hidden_layers=14")
        (self.folder / "gpu.json").unlink()
        self.assertEqual(self.record(kept["scenario"])["results"], kept["results"])
        for folder, schedule in (("here", "gpipe"), ("there", "1f1b")):
            (self.folder / folder).mkdir()
            self.write(self.succeed("schedule", schedule, "--pp", 4, "--microbatches", 8).stdout, f"{folder}/o.txt")
        of_file = self.json_of("simulate", self.write(changed(HARDWARE, schedules=[{"file": "o.txt"}]), "here/s.json"))
        again = self.write(of_file["scenario"], "there/s.json")
        self.assertEqual(self.json_of("simulate", again)["results"], of_file["results"])
        nothing = self.record(changed(HARDWARE, offload={"ratio": 0, "chunks": 1}))
        self.assertEqual(self.record(nothing["scenario"])["results"], nothing["results"])
        # A model inside a scenario changes no default.
        even = [changed(HARDWARE, layers_per_chunk=None, **models) for models in ({}, {"models": {}})]
        self.assertEqual(*(self.results(one) for one in even))

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
