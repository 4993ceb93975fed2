#!/usr/bin/env python3
"""Runs bin/microbench on tiny shapes and checks its JSON against closed forms; makes profiles from it. No test depends on time.

Usage: microbench.py MICROBENCH_BINARY STP_BINARY
"""

import json
import math
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from command_line import CommandLine, PROFILES, read_json, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import machine_profile  # noqa: E402
from stp_plots.read.benchmarks import SECONDS  # noqa: E402

MICROBENCH, STP = (str(pathlib.Path(sys.argv.pop(1)).resolve()) for _ in range(2))
# Fields of a row and of the context that Google Benchmark's own tools read.
ROW_FIELDS = {"name", "run_name", "run_type", "repetitions", "threads", "iterations", "real_time", "cpu_time", "time_unit"}
CONTEXT_FIELDS = {"date", "host_name", "executable", "num_cpus", "mhz_per_cpu", "caches", "load_avg", "library_build_type"}


class Program(CommandLine):
    stp = MICROBENCH

    def run_stp(self, *arguments, **options):
        return super().run_stp(*arguments, **options | {"variables": {"CUDA_VISIBLE_DEVICES": ""}, "timeout": 480})

    def rows(self, *arguments):
        return json.loads(self.run_stp(*arguments, "--benchmark_format=json").stdout)["benchmarks"]

    def calibrate(self, measurements, profile):
        command = [sys.executable, ROOT / "scripts/calibrate", "--microbench", measurements, "--profile", profile]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=480)

    def no_profile(self, measurements, word):
        done = self.calibrate(measurements, "p.json")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(word, done.stderr)
        self.assertFalse((self.folder / "p.json").exists())


class Measured(Program):
    """One run of the whole suite, small."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "new"
            cls.done = subprocess.run([STP, "microbench", "--quick", "--repetitions", "2", "--tokens", "32", "--tp", "1", "2", "--out", out,
                                       "--ranks", "2"], capture_output=True, text=True, check=True, timeout=480)
            cls.content, cls.profile = read_json(out / "microbench.json"), read_json(out / "profile.json")
            cls.folder_of = str(out)
            cls.files = [sorted(path.name for path in pathlib.Path(each).iterdir()) for each in (folder, out)]
        cls.samples = [row for row in cls.content["benchmarks"] if row.get("run_type") == "iteration"]

    def of(self, *parts):
        found = [row for row in self.samples if row["run_name"].split("/")[:len(parts)] == list(parts)]
        self.assertTrue(found, parts)
        return found

    def seconds(self, row):
        return row["real_time"] * SECONDS[row["time_unit"]]

    def test_stp_microbench_makes_a_folder_with_profile_and_plot_and_answers(self):
        self.assertEqual(self.files, [["new"], ["microbench.json", "microbench.png", "profile.json"]])
        self.assertEqual(self.profile["name"], "new")
        said = self.done.stderr.splitlines()[0]  # before the first sample
        self.assertRegex(said, r"^stp: measuring with --quick --repetitions 2 .*; results go to (\S+) \(.*--benchmark_filter=REGEX: shorter\)$")
        self.assertIn(self.folder_of, said)
        answer = self.done.stdout[self.done.stdout.index("A GEMM and an all-reduce (AR), alone and both at once"):]
        self.assertEqual(len(re.findall(r"too few$", answer, re.MULTILINE)), len({row["run_name"] for row in self.of("overlap") if "m" in row}))
        self.assertRegex(answer, "\nOn .* \\(cpu, f32\\): (it is not known )?how much of an all-reduce a GEMM hides")

    def test_rows_and_context_are_google_benchmarks(self):
        self.assertLessEqual(CONTEXT_FIELDS, set(self.content["context"]))
        for row in self.content["benchmarks"]:
            self.assertLessEqual(ROW_FIELDS - ({"real_time", "cpu_time", "time_unit"} if row.get("error_occurred") else set()),
                                 set(row))
            for value in row.values():
                if isinstance(value, float):
                    self.assertTrue(math.isfinite(value), row)
        context = self.content["context"]
        for key in ("evidence", "backend", "type", "shared_processors", "stp_version", "operating_system"):
            self.assertIn(key, context)
        self.assertEqual(context["evidence"], "measured")

    def test_every_family_is_there_and_every_repetition_a_row(self):
        for family in ("gemm", "gemm_cold", "attention", "memory", "memory_cold", "collective", "overlap", "executor"):
            for row in self.of(family):
                if not row.get("error_occurred"):
                    self.assertEqual(row["repetitions"], 2)
                    self.assertGreater(row["real_time"], 0)
        kinds = {row["aggregate_name"] for row in self.content["benchmarks"] if row.get("run_type") == "aggregate"}
        self.assertLessEqual({"median", "low95", "high95", "p5", "p95", "noisy"}, kinds)

    def test_gemms_are_those_of_the_models_linears(self):
        # hidden 512, 8 query and 4 key heads of 64, feed-forward 1408, vocabulary 2048
        forward = {"qkv": (32, 1024, 512), "projection": (32, 512, 512), "gate_up": (32, 2816, 512),
                   "down": (32, 512, 1408), "head": (32, 2048, 512)}
        for linear, (m, n, k) in forward.items():
            shapes = {row["run_name"].split("/")[3]: (row["m"], row["n"], row["k"])
                      for row in self.of("gemm", "hidden-512", linear) if row["tp"] == 1}
            self.assertEqual(shapes, {"forward": (m, n, k), "input_gradient": (m, k, n), "weight_gradient": (n, k, m)})
        for row in self.of("gemm"):
            self.assertAlmostEqual(row["gflop_per_s"] * 1e9 * self.seconds(row) / (2 * row["m"] * row["n"] * row["k"]), 1, 6)

    def test_collectives_have_nccl_tests_columns(self):
        three = self.rows("--quick", "--repetitions", 1, "--ranks", 3, "--benchmark_filter=^collective/.*ranks:3/size:16384/")
        rows = [(row, 3) for row in three]
        self.assertEqual(len(rows), 3)  # a transfer has two ranks
        rows += [(row, 2) for row in self.of("collective") if row["run_name"].split("/")[1] not in ("upload", "download")]
        for row, ranks in rows:
            call = row["run_name"].split("/")[1]
            factor = {"all_reduce": 2 * (ranks - 1) / ranks, "send_receive": 1}.get(call, (ranks - 1) / ranks)
            with self.subTest(row["name"]):
                self.assertEqual(row["label"], "float sum" if "reduce" in call else "float none")
                self.assertEqual(row["count"] * 4, row["size"])
                self.assertAlmostEqual(row["algbw"] * 1e9 * self.seconds(row) / row["size"], 1, 6)
                self.assertAlmostEqual(row["busbw"] / row["algbw"], factor, 6)
                self.assertAlmostEqual(row["time_us"] * 1e-6 / self.seconds(row), 1, 6)

    def test_overlap_figures_belong_together(self):
        for row in self.of("overlap"):
            if row.get("error_occurred"):
                continue
            alone = row["compute_alone_us"] + row["communication_alone_us"]
            self.assertAlmostEqual((row["saved_us"] * 1e-6 + self.seconds(row)) / (alone * 1e-6), 1, 6)
            self.assertAlmostEqual((row["exposed_us"] + row["compute_alone_us"]) * 1e-6 / self.seconds(row), 1, 6)

    def test_what_cannot_run_says_why(self):
        skipped = [row for row in self.samples if row.get("error_occurred")]
        self.assertTrue(skipped)
        for row in skipped:
            self.assertTrue(row["error_message"].startswith("skipped: "), row)
        rows = self.rows("--tokens", 1 << 20, "--models", "llm-26.3b", "--tp", 1, "--benchmark_filter=^gemm/llm-26.3b/head/forward")
        self.assertTrue(rows)
        for row in rows:
            self.assertRegex(row["error_message"], "^skipped: needs [0-9]+ MB of [0-9]+")

    def test_a_size_that_does_not_divide_the_model_says_so(self):
        rows = self.rows("--tp", 3, "--benchmark_filter=^(gemm|attention|memory/elementwise)/", "--quick", "--repetitions", 1)
        self.assertEqual([row["name"].split("/")[-1] if "tp:3" in row["name"] else "" for row in rows].count(""), 0)
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertRegex(row["error_message"], "^skipped: .*3 does not divide")

    def test_names_do_not_depend_on_how_often_it_was_measured(self):
        for row in self.samples:
            if not row.get("error_occurred"):
                self.assertNotIn("repeats:", row["run_name"])

    def test_single_kernels_move_the_bytes_of_their_operands(self):
        tokens, hidden, ffn, vocabulary, qkv = 32, 512, 1408, 2048, 1024
        moved = {"rms_norm_forward": 4 * (2 * tokens * hidden + hidden + tokens),
                 "swiglu_forward": 4 * tokens * 3 * ffn, "swiglu_backward": 4 * tokens * 5 * ffn,
                 "bias_rope_forward": 4 * (2 * tokens * qkv + qkv), "rope_backward": 8 * tokens * 768,
                 "exponential_sums": 4 * tokens * (vocabulary + 5)}
        for name, bytes_moved in moved.items():
            row = next(row for row in self.of("memory", "kernel", "hidden-512", name) if row["tp"] == 1)
            self.assertEqual(row["bytes"], bytes_moved, name)

    def test_the_screen_is_a_narrow_table(self):
        lines = self.succeed("--quick", "--repetitions", 6, "--benchmark_filter=^(collective/all_reduce|memory/copy)/").stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(lines[0], r"^benchmark +median, us +95 %$")
        rows = [line for line in lines if re.search(r" \d+\.\d\d  \+- *\d+\.\d %(  noisy)?$", line)]
        self.assertGreater(len(rows), 10)
        noisy = sum(line.endswith("noisy") for line in rows)
        self.assertEqual(lines[-1], f"{len(rows)} rows, {noisy} noisy; counters and all samples: --benchmark_out=FILE")

    def test_too_few_repetitions_are_not_called_noisy(self):
        lines = self.succeed("--repetitions", 3, "--benchmark_filter=^executor/launch").stdout.splitlines()
        self.assertRegex(lines[1], r"\d\.\d\d +too few$")
        self.assertIn("0 noisy, ", lines[-1])
        self.assertIn(" too few; ", lines[-1])

    def test_quick_takes_as_many_samples_as_are_asked_for(self):
        rows = self.rows("--quick", "--repetitions", 11, "--benchmark_filter=^executor/launch")
        self.assertEqual({row["repetitions"] for row in rows}, {11})

    def test_a_profile_of_it_is_read_and_predicts_a_run(self):
        done = self.calibrate(self.write(self.content, "microbench.json"), "here.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        content = self.read("here.json")
        self.assertEqual(content["name"], "here")
        gemms = {(row["product"], row["m"], row["n"], row["k"]) for row in content["gemm_measured"]["shapes"]}
        measured = {(row["run_name"].split("/")[3], row["m"], row["n"], row["k"]) for row in self.of("gemm")}
        self.assertEqual(gemms, measured)
        scenario = {"name": "small", "model": "tiny", "seq": 16, "microbatches": 2, "schedules": ["1f1b"],
                    "parallel": {"pp": 2, "tp": 2}, "layers_per_chunk": [7, 7], "run": {"type": "float32"}}
        self.stp = STP
        predicted = self.json_of("run", self.write(scenario), "--backend", "cpu", "--predict", "here.json")["results"][0]["predicted"]
        self.assertEqual(predicted["cluster"], "here")
        self.assertGreater(predicted["step_time_s"], 0)
        self.assertEqual(predicted["oversubscribed"], len(content["shared_processors"]["rates"]) < 4)
        # Two repetitions have no 95 % interval, so that no row is known to be noisy or calm.
        self.assertRegex(done.stderr, r"^calibrate: warning: (\d+) of \1 rows have too few repetitions .*\n$")
        for noisy, said in ((0, "^$"), (1, r"^calibrate: warning: (\d+) of \1 rows are noisy: .*\n$")):
            rows = [{**row, "real_time": noisy, "repetitions": 6} if row.get("aggregate_name") == "noisy" else row
                    for row in self.content["benchmarks"]]
            done = self.calibrate(self.write({**self.content, "benchmarks": rows}, "six.json"), f"six-{noisy}.json")
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr, said)
        again = self.calibrate("microbench.json", "here.json")
        self.assertEqual(again.returncode, 2)
        self.assertIn("never overwritten", again.stderr)


class Refused(Program):
    def check(self, word, *arguments):
        done = self.run_stp(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(word, done.stdout + done.stderr)

    def test_bad_flags(self):
        self.check("--backend", "--backend", "tpu")
        self.check("--backend", "--backend", "cuda")  # not built in, or no GPU that this process may use
        self.check("--models", "--models", "llm-13")
        self.check("--ranks", "--ranks", "1")
        self.check("quik", "--quik")
        self.check("benchmark_quik", "--benchmark_quik")
        self.check("--benchmark_filter", "--benchmark_filter=^nothing/")

    def test_stp_microbench(self):
        self.stp = STP
        self.refused(["microbench", "--out", "."], "--out: exists")
        for flag, words in (("--quik", "--quik: is not a flag"), ("--benchmark_out=x", "--benchmark_out=x: is not a flag of stp"),
                            ("--benchmark_filter=^nothing/", "--benchmark_filter: matches no")):
            self.refused(["microbench", "--out", "new", flag], words)
        self.refused(["microbench", "--ranks", "0"], "stp: --ranks: Value 0 not in range 2 to 64; see --help")  # and makes no results/runs
        (self.folder / "bin").mkdir()
        self.stp = shutil.copy(STP, self.folder / "bin/stp")
        self.refused(["microbench", "--out", "new"], "bin/microbench: is needed, but is not built; run scripts/microbench")

    def test_an_interrupted_measurement_leaves_nothing(self):
        self.stp = STP
        with self.started("microbench", "--out", "new") as run:
            run.stdout.readline()  # the table's head: the benchmark program runs
            run.terminate()
            _, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)
        self.assertIn("stp: interrupted; nothing was written", said)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_file_is_never_overwritten_nor_left_empty(self):
        self.check("--benchmark_filter", "--benchmark_filter=^nothing/", "--benchmark_out=m.json")
        self.assertFalse((self.folder / "m.json").exists())
        path = self.write("mine", "m.json")
        self.check("m.json", "--benchmark_filter=^executor/launch", "--benchmark_out=m.json")
        self.assertEqual(path.read_text(encoding="utf-8"), "mine")
        self.check("--benchmark_filter", "--benchmark_filter=^nothing/", "--benchmark_out=/dev/null")
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_emulated_peers(self):
        self.check("--peers", "--peers", "a900")
        self.succeed("--quick", "--repetitions", 2, "--peers", "a800", "--ranks", 8, "--benchmark_out=m.json", "--benchmark_out_format=json",
                     "--benchmark_filter=^collective/(all_reduce/|send)")
        content = self.read("m.json")
        self.assertEqual((content["context"]["evidence"], content["context"]["peers"]), ("replayed", "a800"))
        rows = [row for row in content["benchmarks"] if row["run_type"] == "iteration"]
        self.assertEqual({row["ranks"] for row in rows}, {8})  # links of two ranks were not asked for
        for row in rows:
            self.assertNotIn("oversubscribed", row)  # one rank works
            self.assertLessEqual(row["busbw"], read_json(PROFILES / "a800.json")["all_reduce_bus_gb_per_s"]["value"])
        self.no_profile("m.json", "measure without --peers")

    def test_measurements_that_are_none(self):
        for text in ("", "[]", "{}", '{"benchmarks": [{"run_type": "iteration"}]}', '{"benchmarks": []}'):
            path = self.write(text, "m.json")
            self.no_profile(path, str(path))


class Fit(CommandLine):
    def test_latency_and_rate_come_out_as_they_went_in(self):
        points = [(size, 5e-6 + size / 20e9) for size in (1e3, 1e4, 1e5, 1e6, 1e7)]
        latency, rate, error = machine_profile.line(points)
        self.assertAlmostEqual(latency / 5e-6, 1, 9)
        self.assertAlmostEqual(rate / 20e9, 1, 9)
        self.assertLess(error, 1e-9)

    def test_unsteady_samples_are_left_out_where_there_are_others(self):
        row = {"run_name": "gemm/x", "run_type": "iteration", "time_unit": "us"}
        content = {"context": {"steady_below": "1.25"}, "benchmarks": [
            {**row, "real_time": real_time, "probe_slowdown": slow} for real_time, slow in ((10, 1.1), (20, 2), (21, 1.9))]}
        self.assertAlmostEqual(machine_profile.Rows(content).of("gemm")[0]["seconds"], 10e-6)

    def test_more_ranks_than_processors_are_brought_to_one_each(self):
        class Some:
            def of(self, *_):
                return [{"ranks": ranks, "size": size, "seconds": ranks * size / 1e9}
                        for ranks in (2, 4) for size in (1e4, 1e6)]
        tables, _, _, _ = machine_profile.all_reduces(Some(), 2)
        rates = {table["ranks"]: [round(size["bus_gb_per_s"], 6) for size in table["sizes"]] for table in tables}
        self.assertEqual(rates, {2: [0.5, 0.5], 4: [0.75, 0.75]})


if __name__ == "__main__":
    unittest.main()
