"""`stp compare` as its users run it.

    cli_compare.py STP_BINARY [unittest arguments]
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from command_line import benchmarks, changed, CommandLine, HARDWARE, iteration, main, read_json, ROOT, RUN, UNIT


class Compare(CommandLine):
    """`stp compare` of result records and of files of Google Benchmark."""

    def compared(self, *files):
        """The comparison and the screen."""
        done = self.succeed("compare", *files, "--json", "comparison.json")
        self.assertEqual(done.stderr, "")
        return self.read("comparison.json"), done.stdout

    def simulated(self, name, **fields):
        self.succeed("simulate", self.write(changed(HARDWARE, **fields), f"scenario-{name}"), "--json", name)
        return self.folder / name

    def test_two_machines(self):
        schedules = ["1f1b-i", "stp"]
        first = self.simulated("a.json", schedules=schedules)
        second = self.simulated("b.json", schedules=["stp", "1f1b-i", "zb-v"], cluster="h20")
        comparison, screen = self.compared(first, second)
        self.assertEqual([cell and cell["schedule"] for row in comparison["rows"] for cell in row["cells"]],
                         ["1f1b-i", "1f1b-i", "stp", "stp", None, "zb-v"])
        for words in ("cluster: a800 | h20", "A simulated", "B simulated", "only in B: llm-12.1b, s 3072 × 1, TP4 PP4, m 8: zb-v"):
            self.assertIn(words, screen)
        self.assertNotIn("verdict", screen)

    def test_two_splits(self):
        records = [self.simulated(f"{tp}.json", schedules=["1f1b-i"], parallel={"tp": tp, "pp": 16 // tp}) for tp in (4, 8)]
        comparison, _screen = self.compared(*records)
        (row,) = comparison["rows"]
        self.assertEqual([cell["step_time_s"] for cell in row["cells"]], [self.read(record)["results"][0]["step_time_s"] for record in records])
        self.assertIn({"field": "tp", "values": [4, 8]}, comparison["differs"])

    def test_simulated_against_measured_is_a_prediction(self):
        run = self.write(changed(RUN, schedules=["stp"], run={"steps": 6}), "run-scenario.json")
        self.succeed("run", run, "--backend", "cpu", "--json", "measured.json")
        unit = changed(UNIT, schedules=["stp"], parallel={"pp": 2, "tp": 2}, layers_per_chunk=[1, 1, 1, 1])
        self.succeed("simulate", self.write(unit), "--json", "simulated.json")
        comparison, screen = self.compared("measured.json", "simulated.json")
        self.assertEqual(comparison["predictions"][0]["predicted_evidence"], "simulated")
        self.assertIn("Prediction errors: B (simulated) of what A has (measured)", screen)

    def test_runs_of_one_machine_are_the_same_and_a_slowed_kernel_is_found(self):
        files = [self.write(benchmarks(seed, slower), f"{name}.json")
                 for name, seed, slower in (("a", 1, ()), ("b", 2, ()), ("c", 3, (5,)))]
        comparison, screen = self.compared(*files)
        verdicts = [[row["cells"][file]["against_first"]["verdict"] for row in comparison["rows"]] for file in (1, 2)]
        self.assertEqual(verdicts, [["same"] * 8, ["same"] * 5 + ["slower"] + ["same"] * 2])
        self.assertEqual(comparison["rule"]["comparisons"], 16)
        self.assertEqual({file["evidence"] for file in comparison["files"]}, {"measured"})
        self.assertIn("16 comparisons: 15 same, 1 slower; 0 noisy", screen)
        self.assertIn("15 same", self.run_stp("compare", *files, "--least-difference", 5).stdout)
        self.assertIn("16 same", self.run_stp("compare", *files, "--least-difference", 20).stdout)

    def test_what_google_benchmark_writes(self):
        program = Path(self.stp).parent / "microbench_schedule"
        if not program.exists():
            self.skipTest("built without Google Benchmark")
        for name in ("a.json", "b.json"):
            command = [program, "--benchmark_filter=^linear/stp/generate/p:8/m:(64|256)$", "--benchmark_repetitions=4",
                       "--benchmark_min_time=0.001", f"--benchmark_out={name}", "--benchmark_out_format=json"]
            subprocess.run(command, cwd=self.folder, capture_output=True, check=True, timeout=100)
        comparison, _ = self.compared("a.json", "b.json")
        self.assertEqual([row["name"] for row in comparison["rows"]], ["linear/stp/generate/p:8/m:64", "linear/stp/generate/p:8/m:256"])
        for row in comparison["rows"]:
            self.assertEqual([cell["repetitions"] for cell in row["cells"]], [4, 4])
            self.assertGreater(row["cells"][0]["median_s"], 0)
            self.assertGreater(row["cells"][0]["counters"]["program_ops"], 0)
        # With four repetitions p is at least 2/70, doubled by two comparisons.
        self.assertEqual(comparison["rule"]["repetitions_needed"], 5)

    def test_numbers_that_are_none_and_failures(self):
        content = benchmarks(1)
        content["benchmarks"].append(iteration("failed", 0, error_occurred=True, error_message="no GPU"))
        text = json.dumps(content).replace('"bus_gb_per_s": ', '"cv": NaN, "bus_gb_per_s": ', 1)
        comparison, screen = self.compared(self.write(text, "a.json"), self.write(benchmarks(2), "b.json"))
        self.assertEqual(comparison["rows"][-1]["cells"], [{"skipped": "no GPU"}, None])
        self.assertIn("failed: A skipped it: no GPU", screen)
        self.assertIn("failed: B has none", screen)

    def test_refusals(self):
        record = self.simulated("record.json")
        other = self.simulated("other.json", seq=4096)
        bench, scenario = self.write(benchmarks(1), "bench.json"), self.write(UNIT, "unit.json")
        profile = shutil.copy(ROOT / "profiles/a800.json", self.folder / "profile.json")
        self.refused(["compare"], "FILE", "need at least two files", "--profiles")
        self.refused(["compare", record], "FILE", "name two or more")
        self.refused(["compare", *[record] * 27], "too many", "at most 26")
        self.refused(["compare", record, "nowhere.json"], "nowhere.json: cannot be read")
        self.refused(["compare", record, self.folder], "is a folder")
        self.refused(["compare", record, bench], f"{bench}: ", "is a file of Google Benchmark, but", "compare files of one kind")
        self.refused(["compare", bench, record], f"{record}: ", "is a result record", "compare files of one kind")
        self.refused(["compare", record, scenario], f"{scenario}: ", "is a scenario", "stp simulate")
        self.refused(["compare", record, profile], "is a hardware profile", "--profiles")
        self.refused(["compare", self.write({"best": []}, "tune.json"), record], "is a search of stp tune", f"stp simulate {self.folder}/choice.json")
        self.succeed("simulate", "table11", "--json", "pairs.json")
        self.refused(["compare", "pairs.json", record], "pairs.json: pairs: ", "name records of scenarios with schedules")
        self.refused(["compare", record, other], f"{other}: ", "no configuration in common", "; ")
        self.refused(["compare", record, record, "--json", bench], "bench.json", "--json", "exists")
        self.refused(["compare", record, record, "--plot", "plot.pdf"], "plot.pdf: --plot: ends neither in .png nor in .svg")
        self.refused(["compare", record, record, "--plot", profile], "profile.json: --plot: exists")
        self.refused(["compare", record, record, "--least-difference", "-1"], "--least-difference")
        self.refused(["compare", record, record, "--least-difference", "50"], "--least-difference", "a simulation has no spread", "; leave it out")
        self.refused(["compare", record, record, "--schedules", "stp"], "--profiles")
        # What a record or a file of Google Benchmark must hold: plots/tests/compare_test.py.
        for file, content, words in (
            (record, '{\n  "a": b}', ["spoilt.json:2:8: is not valid JSON"]),
            (record, "[1]", ["is neither", "--benchmark_format=json"]),
            (record, '{"evidence": NaN}', ["is not valid JSON", "finite"]),
            (record, changed(read_json(record), results=[]), ["results: is empty"]),
            (bench, {"context": {}, "benchmarks": [iteration("stranger", 1)]}, ["no benchmark in common", "same filter"]),
        ):
            spoilt = self.write(content, "spoilt.json")
            self.refused(["compare", file, spoilt], str(spoilt), "; ", *words)
            spoilt.unlink()

    def test_one_file_may_be_standard_input(self):
        record = self.simulated("a.json")
        done = subprocess.run([self.stp, "compare", "-", str(record)], input=record.read_text(encoding="utf-8"), capture_output=True, text=True, check=True)
        self.assertIn("A  -: ", done.stdout)

    def test_names_with_escape_sequences_reach_no_terminal(self):
        record = json.loads(self.simulated("a.json").read_text(encoding="utf-8"))
        record["results"][0] |= {"schedule": "a\x1b[31m", "model": "\x9b2J"}
        file = self.write(record, "b.json")
        screen = self.run_stp("compare", file, file).stdout
        self.assertIn("a?[31m", screen)
        self.assertIsNone(re.search(r"[^\n -~\u00a0-\uffff]", screen))

    def test_endless_input_is_refused(self):
        done = self.run_stp("compare", "/dev/zero", "/dev/zero")
        self.assertEqual((done.returncode, done.stderr), (2, "stp: /dev/zero: is larger than 256 MiB; name a smaller file\n"))

    def test_plots_are_written_whole_and_new(self):
        files = [self.write(benchmarks(seed), f"{seed}.json") for seed in (1, 2)]
        self.succeed("compare", *files, "--plot", "plot.png", "--json", "comparison.json")
        self.assertTrue((self.folder / "plot.png").read_bytes().startswith(b"\x89PNG"))
        self.assertEqual(self.read("comparison.json")["kind"], "benchmarks")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["1.json", "2.json", "comparison.json", "plot.png"])

    def test_a_python_that_lacks_a_package_or_is_none(self):
        files = [self.write(benchmarks(seed), f"{seed}.json") for seed in (1, 2)]
        bare = self.write('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n', "bare-python")  # without the packages that are installed
        bare.chmod(0o755)
        for arguments in (files, ["--profiles", "a800", "h20", "--scenarios", "llm-h20", "--schedules", "stp"]):
            self.refused(["compare", *arguments], "compare.py: Python lacks numpy", "; install python3-numpy",
                         variables={"STP_PYTHON": str(bare), "STP_PYTHON_TRIED": "/usr/bin/python3"})
        self.refused(["compare", *files], "stp: /nowhere: Python 3: cannot be started; set STP_PYTHON", "python3-scipy",
                     variables={"STP_PYTHON": "/nowhere"})
        self.refused(["compare", *files], "plots/compare.py: STP_DATA_DIR: the suite's script is not there; set it",
                     variables={"STP_DATA_DIR": "/nowhere"})

    def test_outputs_that_cannot_be_written(self):
        files = [self.write(benchmarks(seed), f"{seed}.json") for seed in (1, 2)]
        self.refused(["compare", *files, "--json", "nowhere/comparison.json"], "stp: nowhere/comparison.json: --json: cannot be created; ")
        self.succeed("compare", *files, "--json", "/dev/null")
        self.assertTrue(Path("/dev/null").is_char_device())
        self.refused(["compare", *files, "--plot", "nowhere/plot.svg"], "stp: nowhere/plot.svg: --plot: cannot be created; ")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([self.stp, "compare", *files], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
        closed = self.run_stp("compare", *files, launcher=("bash", "-c", 'exec "$@" >&-', "bash"))
        for each in (done, closed):
            self.assertEqual((each.returncode, each.stderr), (1, "stp: standard output could not be written\n"))


if __name__ == "__main__":
    main(__doc__)
