"""`stp compare` as its users run it.

    cli_compare.py STP_BINARY [unittest arguments]
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from command_line import benchmarks, changed, CommandLine, HARDWARE, iteration, main, PROFILES, read_json, ROOT, RUN, UNIT


class Compare(CommandLine):
    """`stp compare` of result records and of files of Google Benchmark."""

    def compared(self, *files):
        done = self.succeed("compare", *files, "--json", "-")
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def simulated(self, name, **fields):
        self.succeed("simulate", self.write(changed(HARDWARE, **fields), f"scenario-{name}"), "--json", name)
        return self.folder / name

    def test_two_machines(self):
        schedules = ["1f1b-i", "stp"]
        first = self.simulated("a.json", schedules=schedules)
        second = self.simulated("b.json", schedules=["stp", "1f1b-i", "zb-v"], cluster="h20")
        comparison = self.compared(first, second)
        self.assertEqual([cell and cell["schedule"] for row in comparison["rows"] for cell in row["cells"]],
                         ["1f1b-i", "1f1b-i", "stp", "stp", None, "zb-v"])
        screen = self.run_stp("compare", first, second).stdout
        for words in ("cluster: a800 | h20", "A simulated", "B simulated", "only in B: llm-12.1b, s 3072 × 1, TP4 PP4, m 8: zb-v"):
            self.assertIn(words, screen)

    def test_simulated_against_measured_is_a_prediction(self):
        run = self.write(changed(RUN, schedules=["stp"], run={"steps": 6}), "run-scenario.json")
        self.succeed("run", run, "--backend", "cpu", "--json", "measured.json")
        unit = changed(UNIT, schedules=["stp"], parallel={"pp": 2, "tp": 2}, layers_per_chunk=[1, 1, 1, 1])
        self.succeed("simulate", self.write(unit), "--json", "simulated.json")
        comparison = self.compared("simulated.json", "measured.json")
        self.assertEqual(comparison["predictions"][0]["predicted_evidence"], "simulated")
        screen = self.run_stp("compare", "measured.json", "simulated.json").stdout
        self.assertIn("Prediction errors: B (simulated) of what A has (measured)", screen)

    def test_runs_of_one_machine_are_the_same_and_a_slowed_kernel_is_found(self):
        files = [self.write(benchmarks(seed, slower), f"{name}.json")
                 for name, seed, slower in (("a", 1, ()), ("b", 2, ()), ("c", 3, (5,)))]
        comparison = self.compared(*files)
        verdicts = [[row["cells"][file]["against_first"]["verdict"] for row in comparison["rows"]] for file in (1, 2)]
        self.assertEqual(verdicts, [["same"] * 8, ["same"] * 5 + ["slower"] + ["same"] * 2])
        self.assertEqual(comparison["rule"]["comparisons"], 16)
        self.assertEqual({file["evidence"] for file in comparison["files"]}, {"measured"})
        screen = self.run_stp("compare", *files).stdout
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
        comparison = self.compared("a.json", "b.json")
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
        comparison = self.compared(self.write(text, "a.json"), self.write(benchmarks(2), "b.json"))
        self.assertEqual(comparison["rows"][-1]["cells"], [{"skipped": "no GPU"}, None])
        screen = self.run_stp("compare", "a.json", "b.json").stdout
        self.assertIn("failed: A skipped it: no GPU", screen)
        self.assertIn("failed: B has none", screen)

    def test_refusals(self):
        record = self.simulated("record.json")
        other = self.simulated("other.json", microbatches=16)
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
        self.succeed("simulate", "table11", "--json", "pairs.json")
        self.refused(["compare", "pairs.json", record], "pairs.json: pairs: ", "name records of scenarios with schedules")
        self.refused(["compare", record, other], f"{other}: ", "no configuration in common", "; ")
        self.refused(["compare", record, record, "--json", bench], "bench.json", "--json", "exists")
        self.refused(["compare", record, record, "--plot", "plot.pdf"], "plot.pdf: --plot: ends neither in .png nor in .svg")
        self.refused(["compare", record, record, "--plot", profile], "profile.json: --plot: exists")
        self.refused(["compare", record, record, "--least-difference", "-1"], "--least-difference")
        self.refused(["compare", record, record, "--schedules", "stp"], "--profiles")
        # What a record or a file of Google Benchmark must hold: plots/tests/compare_test.py.
        for file, content, words in (
            (record, "{", ["is not valid JSON"]),
            (record, "[1]", ["is neither", "--benchmark_format=json"]),
            (record, '{"evidence": NaN}', ["is not valid JSON", "finite"]),
            (record, changed(read_json(record), results=[]), ["results: is empty"]),
            (bench, {"context": {}, "benchmarks": [iteration("stranger", 1)]}, ["no benchmark in common", "same filter"]),
        ):
            spoilt = self.write(content, "spoilt.json")
            self.refused(["compare", file, spoilt], str(spoilt), "; ", *words)
            spoilt.unlink()

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
        for arguments in (files, ["--profiles", "a800", "h20"]):
            self.refused(["compare", *arguments], "stp: ", "has no package numpy; install python3-numpy", "Only stp compare and plots need it",
                         variables={"STP_PYTHON": str(bare)})
        self.refused(["compare", *files], "stp: /nowhere: Python 3: cannot be started; set STP_PYTHON", "python3-scipy",
                     variables={"STP_PYTHON": "/nowhere"})

    def test_outputs_that_cannot_be_written(self):
        files = [self.write(benchmarks(seed), f"{seed}.json") for seed in (1, 2)]
        self.refused(["compare", *files, "--json", "nowhere/comparison.json"], "stp: nowhere/comparison.json: cannot be created; ")
        self.succeed("compare", *files, "--json", "/dev/null")
        self.assertTrue(Path("/dev/null").is_char_device())
        self.refused(["compare", *files, "--plot", "nowhere/plot.svg"], "stp: nowhere/plot.svg: cannot be created; ")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([self.stp, "compare", *files], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)


class CompareProfiles(CommandLine):
    """`stp compare --profiles`: machines side by side."""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([cls.stp, "compare", "--profiles", "a800", "h20", "--json", "-"], capture_output=True, text=True,
                              timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        cls.comparison = json.loads(done.stdout)

    @staticmethod
    def scenario_of(configuration, cluster, schedules):
        return changed(HARDWARE, cluster=cluster, schedules=schedules, backward="megatron", release="released",
                       **{key: configuration[key] for key in ("model", "seq", "microbatch_size", "microbatches")},
                       parallel={"tp": configuration["tp"], "pp": configuration["pp"]})

    def quantity(self, one, of, schedule=None):
        (found,) = [each for each in one["quantities"] if (each["of"], each["schedule"]) == (of, schedule)]
        return found

    def test_throughputs_are_those_of_the_reference_records(self):
        kept = {}
        for machine, name in enumerate(("llm-a800", "llm-h20")):
            record = read_json(ROOT / f"results/reference/simulated/{name}.json")
            for row in record["rows"]:
                key = tuple(row[field] for field in ("model", "seq", "microbatch_size", "tp", "pp", "microbatches"))
                kept[machine, key, row["schedule"]] = row
        checked = 0
        for line in self.comparison["throughput"]:
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
        self.assertEqual(self.comparison["evidence"], "simulated")

    def test_h20_gains_less_for_its_slower_gemms_before_its_faster_all_reduces(self):
        """The claim of the paper's appendix D, by properties."""
        self.assertEqual(len(self.comparison["attribution"]), 2)
        for one in self.comparison["attribution"]:
            gain = self.quantity(one, "gain_over_baseline")
            self.assertLess(gain["to"], gain["from"])
            shares = {name: part["shapley"] for name, part in gain["parts"].items()}
            self.assertEqual(min(shares, key=shares.get), "compute")
            self.assertLess(shares["all_reduce"], 0)
            self.assertGreater(shares["memory"], 0)
            self.assertEqual(sorted(one["alike"]), ["contention", "launches"])
            self.assertRegex(one["words"], r"^stp gains [\d.]+ % over 1f1b-i on h20 and [\d.]+ % on a800: -[\d.]+ points\. "
                                           r"Most of it is GEMM and attention rate \(-.*: less communication to overlap\.$")
            self.assertGreater(one["published_gain_from"], one["published_gain_to"])

    def test_parts_add_up_to_the_whole_and_its_ends_are_the_machines(self):
        lines = {json.dumps(line["configuration"]): line for line in self.comparison["throughput"]}
        for one in self.comparison["attribution"]:
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
        profiles = {name: read_json(PROFILES / f"{name}.json") for name in ("a800", "h20")}
        parts = {
            "compute": ["peak_tflops", "sms", "gemm_efficiency", "gemm_overhead_k", "attention_forward_efficiency", "attention_backward_efficiency",
                        "attention_tile_overhead"],
            "memory": ["memory_gb_per_s", "elementwise_factor"],
            "all_reduce": ["all_reduce_latency_us", "all_reduce_hop_latency_us", "all_reduce_bus_gb_per_s"],
            "p2p": ["p2p_within_node_gb_per_s", "p2p_between_nodes_gb_per_s", "p2p_within_node_latency_us", "p2p_between_nodes_latency_us",
                    "adapters_per_node"],
        }
        one = self.comparison["attribution"][0]
        for part, keys in parts.items():
            others = {key: value for key, value in profiles["a800"].items() if key not in keys}
            self.write({**others, **{key: profiles["h20"][key] for key in keys if key in profiles["h20"]}}, "mixed.json")
            for row in self.results(self.scenario_of(one["configuration"], "mixed.json", ["1f1b-i", "zb-v", "stp"])):
                quantity = self.quantity(one, "throughput", row["schedule"])
                self.assertAlmostEqual(quantity["from"] + quantity["parts"][part]["alone"], row["throughput_samples_per_s"], places=9)

    def test_bands_are_of_profiles_with_each_value_at_the_ends_of_its_range(self):
        profile = read_json(PROFILES / "a800.json")
        ranged = [key for key, field in profile.items() if isinstance(field, dict) and "range" in field]
        self.assertEqual(len(ranged), 3)
        line = self.comparison["throughput"][0]
        names = [schedule["schedule"] for schedule in line["schedules"]]
        scenario = self.scenario_of(line["configuration"], "varied.json", names)
        found = []
        for key, value in [(None, None)] + [(key, profile[key]["range"][end]) for key in ranged for end in ("from", "to")]:
            self.write(changed(profile, **({key: {**profile[key], "value": value}} if key else {})), "varied.json")
            found.append([row["throughput_samples_per_s"] for row in self.results(scenario)])
        gains = [one[names.index("stp")] / one[names.index("1f1b-i")] - 1 for one in found]
        for given, values in [(line["gains"][0]["band"], gains)] + [
                (schedule["cells"][0]["throughput_band"], values) for schedule, values in zip(line["schedules"], zip(*found))]:
            self.assertAlmostEqual(given[0], min(values), places=9)
            self.assertAlmostEqual(given[1], max(values), places=9)
            self.assertLess(given[0], given[1])

    def test_assumed_and_fitted_values_are_counted(self):
        a800, _ = self.comparison["machines"]
        self.assertEqual(a800["values"], 25)
        self.assertEqual(a800["assumed"], ["device_to_host_gb_per_s", "host_launch_us", "host_to_device_gb_per_s", "kernel_overhead_us",
                                           "p2p_between_nodes_latency_us", "p2p_within_node_latency_us"])
        self.assertEqual(sorted(a800["fitted"]), a800["ranged"])
        screen = self.run_stp("compare", "--profiles", "a800", "h100", "--scenarios", "llm-h20").stdout
        self.assertIn("a800: NVIDIA A800", screen)
        self.assertIn("\n    of 25 values 6 assumed, 3 fitted; assumed device_to_host_gb_per_s, host_launch_us", screen)
        (band,) = set(re.findall(r"^  each value alone to the ends of its range +\+[\d.]+ % to \+[\d.]+ % +(\S+)$", screen, re.MULTILINE))
        self.assertEqual(band, "–")  # the profile of h100 has no ranges

    def test_memory_that_does_not_hold_a_configuration_is_said(self):
        fits = {cell["fits"] for line in self.comparison["throughput"] for schedule in line["schedules"] for cell in schedule["cells"]}
        self.assertEqual(fits, {"all", "activations", "nothing"})
        for line in self.comparison["throughput"]:
            for schedule in line["schedules"]:
                for machine, cell in zip(self.comparison["machines"], schedule["cells"]):
                    self.assertIsNotNone(cell["throughput_samples_per_s"])
                    self.assertGreater(cell["needed_memory_gb"], cell["activation_memory_gb"])
                    expected = ("all" if cell["needed_memory_gb"] <= machine["memory_gb"] else
                                "activations" if cell["activation_memory_gb"] <= machine["memory_gb"] else "nothing")
                    self.assertEqual(cell["fits"], expected)

    def test_profiles_of_ones_own_other_scenarios_and_schedules(self):
        profile = read_json(PROFILES / "h100.json")
        profile.update(name="mine", gpus_per_node={"value": 4, "source": "here"})
        profile["contention_compute"]["value"] = 0.95
        profile["all_reduce_measured"] = []
        self.write(profile, "mine.json")
        scenario = changed(HARDWARE, microbatches=None, configurations=[
            {"microbatches": [8, 16]}, {"microbatches": 8, "parallel": {"tp": 8, "pp": 2}}])
        done = self.run_stp("compare", "--profiles", "h100", "mine.json", "--scenarios", self.write(scenario), "--schedules", "1f1b-i", "stp",
                            "1f1b-i-braided", "--attribute-all", "--json", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        comparison = json.loads(done.stdout)
        first, second = comparison["throughput"]
        self.assertEqual((first["configuration"]["microbatches"], first["configuration"]["tp"]), (16, 4))  # the largest m
        self.assertEqual([schedule["schedule"] for schedule in first["schedules"]], ["1f1b-i", "stp", "1f1b-i-braided"])
        best = max(("1f1b-i", "1f1b-i-braided"), key=lambda name: next(
            schedule["cells"][0]["throughput_samples_per_s"] for schedule in first["schedules"] if schedule["schedule"] == name))
        self.assertEqual(first["gains"][0]["best"], best)
        for schedule in second["schedules"]:
            self.assertIn("TP8 is more than the 4 GPUs of a node", schedule["cells"][1]["refused"])
        (one,) = comparison["attribution"]  # a machine that cannot run it has no part in it
        gain = self.quantity(one, "gain_over_baseline")
        self.assertGreater(gain["parts"]["contention"]["shapley"], 0)  # less contention, more gain
        self.assertEqual(sorted(one["alike"]), ["compute", "launches", "memory"])
        screen = self.run_stp("compare", "--profiles", "h100", "mine.json", "--scenarios", "s.json").stdout
        self.assertIn("TP8 is more than the 4 GPUs of a node", screen)
        self.assertNotIn("Contention is the same in every profile", screen)

    def test_refusals(self):
        profile = read_json(PROFILES / "h100.json")
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
            done = self.succeed(*command)
            lines = done.stdout.splitlines()
            for line in block[1].splitlines():
                if line and line != "…":
                    self.assertIn(line, lines)
                    shown += 1
        self.assertGreater(shown, 15)


if __name__ == "__main__":
    main(__doc__)
