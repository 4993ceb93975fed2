"""Runs the program as its users do, rightly: what records of pairs, screens, traces and progress say, and that documented
output is the real output.

    cli_results.py STP_BINARY [unittest arguments]
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from command_line import benchmarks, changed, CommandLine, CONFIG, HARDWARE, main, PAIRS, PROFILES, read_json, ROOT, RUN, UNIT


class Progress(CommandLine):
    """What may take over two seconds says on a terminal how far it is, and nothing in a pipe."""

    def shows(self, labels, total, *arguments, out=()):
        """The program shows each of `labels` up to `total`, a pattern, and clears the line. `out`: arguments that differ between two runs."""
        said = self.said_on_terminal(*arguments, *out[:2])
        for label in labels:
            self.assertRegex(said, rf"\r{label}: ({total}) of \1(\033\[K)?\r\033\[K")
        done = self.run_stp(*arguments, *out[2:])
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_row_of_a_scenario(self):
        scenario = self.write(changed(UNIT, schedules=["1f1b", "gpipe"], microbatches=[4, 8]))
        self.shows(["simulating unit"], 4, "simulate", scenario)
        self.shows(["simulating unit"], 4, "reproduce", scenario, "--no-plots", out=("--out", "one", "--out", "two"))

    def test_every_step_of_a_run(self):
        self.shows(["running mine"], 6, "run", self.write(RUN), "--backend", "cpu")

    def test_the_phases_of_a_step_and_of_a_row(self):
        said = self.said_on_terminal("run", self.write(RUN), "--backend", "cpu")
        for done, phase in ((0, "stp: making the schedule"), (0, "setting up 4 ranks"), (0, "stp: step 1 of 3"),
                            (0, "stp: comparing with one rank"), (2, "stp: step 3 of 3"), (3, "setting up 4 ranks"), (5, "1f1b-i: step 3 of 3")):
            self.assertIn(f"\rrunning mine: {done} of 6, {phase}\033[K", said)
        said = self.said_on_terminal("simulate", self.write(UNIT))
        for phase in ("making the schedule", "making the program", r"simulating \d+ ops", "counting memory"):
            self.assertRegex(said, rf"\rsimulating unit: 0 of 1, 1f1b: {phase}\033\[K")

    def test_traces_and_their_timelines(self):
        scenario = self.write(changed(UNIT, schedules=["1f1b", "gpipe"]))
        self.shows(["simulating unit", "drawing timelines"], 2, "trace", scenario, out=("--out", "one", "--out", "two"))

    def test_plots_of_a_report(self):
        said = self.said_on_terminal("reproduce", self.write(UNIT), "--out", "new")
        self.assertRegex(said, r"\rdrawing plots: (\d+) of \1(\033\[K)?\r\033\[K")

    def test_schedules(self):
        table = "schedule", "--table", "--pp", 4, "--microbatches", 8
        self.shows(["simulating schedules"], r"\d+", *table)
        said = self.said_on_terminal(*table)
        for phase in ("making the schedule", "making the program", "simulating", "simulating all-reduces"):
            self.assertRegex(said, rf"\rsimulating schedules: 0 of \d+, stp: {phase}\033\[K")
        self.assertEqual(self.said_on_terminal("schedule", "v-search", "--pp", 2, "--microbatches", 4),
                         "\rmaking the schedule v-search: 0 of 1\033[K\r\033[K")
        self.write(self.run_stp("schedule", "1f1b", "--pp", 2, "--microbatches", 4).stdout, "order.txt")
        said = self.said_on_terminal("validate", "order.txt")
        self.assertEqual(said, "".join(f"\rchecking order.txt: {done} of 3\033[K" for done in range(3)) + "\r\033[K")

    def test_comparisons(self):
        for seed in (1, 2):
            self.write(benchmarks(seed), f"{seed}.json")
        self.shows(["comparing"], 8, "compare", "1.json", "2.json")
        said = self.said_on_terminal("compare", "--profiles", "a800", "h20", "--scenarios", "llm-h20", "--schedules", "stp")
        self.assertRegex(said, r"\rsimulating: (\d+) of \1(\033\[K)?\r\033\[K")


def tensors_gb(row):
    """Of the fullest rank."""
    return max(sum(size for kind, size in rank["memory_bytes"].items() if kind != "fixed") for rank in row["ranks"]) / 1e9


class Table(CommandLine):
    def test_whose_kernels_and_what_rate_of_gemms_is_told(self):
        for fields, said in (({}, "kernels: megatron (unfused); --set implementation=megatron-te for Transformer Engine's\n"),
                             ({"implementation": "megatron-te"}, "kernels: megatron-te (Transformer Engine)\n"),
                             ({"cluster": "a100"}, "GEMMs are at their best rate, not at what a power limit leaves in trainings, as the profile a100 has no")):
            screen = self.succeed("simulate", self.write(changed(HARDWARE, **fields))).stdout
            self.assertIn("\n" + said, screen)
            self.assertEqual("best rate" in screen, fields.get("cluster") == "a100")
        self.assertNotIn("kernels", self.succeed("simulate", self.write(UNIT)).stdout)

    def test_what_would_have_to_fit(self):
        both = changed(HARDWARE, schedules=["1f1b", "stp"])
        rows = self.results(both)
        total = [max(sum(rank["memory_bytes"].values()) for rank in row["ranks"]) / 1e9 for row in rows]
        nearest = rows[total.index(min(total))]
        for gpu in (min(total) - 5, 1):
            screen = self.succeed("simulate", self.write(both), "--set", f"cluster.memory_gb={gpu}").stdout
            line = next(line for line in screen.splitlines() if line.startswith("None fits"))
            self.assertTrue(line.startswith(f"None fits. Nearest is {nearest['schedule']}, "), line)
            self.assertIn(f" {min(total) - gpu:.1f} GB over, with ", line)
            self.assertTrue(line.endswith(" GB of activations."), line)
        self.assertNotIn("None fits", self.succeed("simulate", self.write(both), "--set", f"cluster.memory_gb={min(total) + 1}").stdout)
        recomputed = self.succeed("simulate", self.write(both), "--set", "cluster.memory_gb=1", "--set", "recompute=full")
        self.assertRegex(recomputed.stdout, r"GB of optimizer state\.")

    def remedies(self, scenario, *arguments):
        """What is said to make a row smaller: GB and throughput by change, in order."""
        screen = self.succeed("simulate", self.write(scenario), *arguments).stdout.split("what makes it smaller (--set)")[1]
        rows = re.findall(r"^(\S.*?)  +(\d+)  +([\d.]+)  +([+-][\d.]+) %  +(yes|maybe|no)", screen, re.MULTILINE)
        self.gpus = {change: int(gpus) for change, gpus, *_ in rows}
        return {change: (float(saved), float(faster), fits) for change, _, saved, faster, fits in rows}

    def test_each_remedy_is_a_simulation_and_the_cheapest_comes_first(self):
        base = changed(HARDWARE, schedules=["stp"], parallel={"tp": 8, "pp": 2, "dp": 2}, layers_per_chunk="even", microbatch_size=2)
        (before,) = self.results(base)
        total = [tensors_gb(before)]
        found = self.remedies(base, "--set", f"cluster.memory_gb={total[0] - 3}")
        self.assertIn("maybe", {fits for *_, fits in found.values()})  # what a800 needs besides tensors is not sure
        found = self.remedies(base, "--set", f"cluster.memory_gb={total[0] - 3}", "cluster.fixed_memory_gb=0")
        # Of 8 key and value heads 16 ranks are not possible.
        self.assertEqual(set(found), {"sequence_parallel=true", "zero=1", "gradients=model", "recompute=full", "parallel.cp=2",
                                      f"microbatch_size=1 microbatches={2 * base['microbatches']}", "parallel.pp=4",
                                      'schedules=["stp-memory"]', 'schedules=["dualpipev"]'})
        self.assertEqual({change for change, gpus in self.gpus.items() if gpus != 32}, {"parallel.cp=2", "parallel.pp=4"})
        self.assertEqual({self.gpus["parallel.cp=2"], self.gpus["parallel.pp=4"]}, {64})
        self.assertEqual([faster for _, faster, _ in found.values()], sorted((one[1] for one in found.values()), reverse=True))
        of_batch = changed(base, microbatches=None, global_batch=4 * base["microbatches"])
        self.assertIn("microbatch_size=1", self.remedies(of_batch, "--set", f"cluster.memory_gb={total[0] - 3}", "cluster.fixed_memory_gb=0"))
        doubled = 2 * base["microbatches"]
        for change, fields in (("sequence_parallel=true", {"sequence_parallel": True}), ("zero=1", {"zero": 1}),
                               (f"microbatch_size=1 microbatches={doubled}", {"microbatch_size": 1, "microbatches": doubled}),
                               ("recompute=full", {"recompute": "full"}), ('schedules=["dualpipev"]', {"schedules": ["dualpipev"]}),
                               ("parallel.pp=4", {"parallel": {"tp": 8, "pp": 4, "dp": 2}})):
            (after,) = self.results(changed(base, **fields))
            smaller = tensors_gb(after)
            ranks = fields.get("parallel", base["parallel"])["pp"] / 2
            self.assertAlmostEqual(found[change][0], total[0] - smaller, delta=0.06)
            self.assertAlmostEqual(found[change][1], 100 * (after["throughput_samples_per_s"] / before["throughput_samples_per_s"] / ranks - 1), delta=0.06)
            self.assertEqual(found[change][2], "yes" if smaller <= total[0] - 3 else "no")

    def test_that_the_fastest_alone_does_not_fit(self):
        both = changed(HARDWARE, schedules=["1f1b-i", "stp"], microbatch_size=2)
        total = [tensors_gb(row) for row in self.results(both)]
        self.assertLess(total[0], total[1])
        screen = self.succeed("simulate", self.write(both), "--set", f"cluster.memory_gb={sum(total) / 2}", "cluster.fixed_memory_gb=0").stdout
        self.assertRegex(screen, r"\nThe fastest that fits: 1f1b-i, .*, microbatch size 2, m 8, .* tokens/s/GPU\.\n")
        self.assertIn("The fastest does not fit: stp, ", screen)
        self.assertIn('\nschedules=["stp-memory"] ', screen)

    def test_what_may_fit_has_a_legend(self):
        scenario = changed(HARDWARE, cluster="h100")
        (row,) = self.results(scenario)
        total = max(sum(rank["memory_bytes"].values()) for rank in row["ranks"]) / 1e9
        screen = self.succeed("simulate", self.write(scenario), "--set", f"cluster.memory_gb={total}").stdout
        self.assertRegex(screen, r"\nmaybe: what h100 needs besides tensors is \d\.\d to \d\.\d GB \(\d\.\d counted\), which decides it\n")
        for share, said in ((1.05, True), (1.2, False)):  # without a range of fixed memory
            screen = self.succeed("simulate", self.write(scenario), "--set", f"cluster.memory_gb={share * total}", "cluster.fixed_memory_gb=7").stdout
            self.assertRegex(screen, r" yes\n")
            self.assertEqual("\nyes: by the predicted peak, without its error, which stp tune counts\n" in screen, said)

    def table(self, **fields):
        """(titles, rows of cells) of `stp simulate`."""
        lines = self.succeed("simulate", self.write(changed(HARDWARE, **fields))).stdout.splitlines()
        _, head, *rows, _legend = [line for line in lines if not line.startswith("kernels: ")]
        cells = [re.split(r"  +", line.strip()) for line in (head, *rows)]
        return cells[0], cells[1:]

    def test_the_gap_is_what_the_step_takes_beyond_its_lower_bound(self):
        both = {"schedules": ["1f1b-i", "stp"]}
        head, cells = self.table(**both)
        rows = self.record(changed(HARDWARE, **both))["results"]
        gaps = [row["step_time_s"] / row["lower_bound_s"] - 1 for row in rows]
        self.assertEqual([line[head.index("gap")] for line in cells], [f"{100 * gap:.1f} %" for gap in gaps])
        path = self.write(changed(HARDWARE, **both))
        shown = [self.succeed(*words).stdout for words in (["simulate", path], ["reproduce", path, "--no-plots", "--out", "out"])]
        for text in shown:
            self.assertRegex(text, f"gap: the most that .* could gain over this row, {100 * max(gaps):.1f} % at most")
        self.assertIn("gap, %", shown[1])
        for gap in gaps:
            self.assertRegex(shown[1], rf"  {100 * gap:.1f}  ")

    def test_fields_that_vary_are_columns_so_that_no_two_rows_look_alike(self):
        fixed, rows = self.table()
        self.assertEqual(fixed[:9], ["schedule", "model", "seq", "tp", "pp", "cp", "dp", "m", "step, s"])
        for configurations, titles in (
            ([{"microbatch_size": 1}, {"microbatch_size": 2}, {"recompute": "full"}], ["microbatch size", "recompute"]),
            ([{"sequence_parallel": True}, {"cluster": "h20"}, {"name": "plain"}], ["cluster", "sequence parallel"]),
            ([{"backward": "megatron"}, {"braid": "sequential"}, {"zero": 1, "parallel": {"tp": 4, "pp": 4, "dp": 2}}],
             ["backward", "braid", "zero"]),
            ([{"layers_per_chunk": "even"}, {}], ["layers per chunk"]),
            ([{"implementation": "suite"}, {}], ["implementation"]),
            ([{"scatter_transfers": True}, {}], ["scatter transfers"]),
            ([{"parallel": {"tp": 4, "pp": 4, "cp": 2, "cp_method": method}} for method in ("ring", "all-to-all")], ["cp method"]),
            ([{"schedules": [{"name": "zb-v", "memory_limit": limit}]} for limit in (4, 6)], ["memory limit"]),
        ):  # fmt: skip
            head, rows = self.table(configurations=configurations)
            named = any("name" in each for each in configurations)
            self.assertEqual([title for title in head if title not in fixed], ["name"] * named + titles)
            self.assertEqual(len(head), len(set(head)))
            self.assertEqual(len({tuple(row[:head.index("step, s")]) for row in rows}), len(configurations))
        splits = [[4] * 7 + [2], [2] + [4] * 7]  # too long for a cell
        screen = self.succeed("simulate", self.write(changed(HARDWARE, configurations=[{"layers_per_chunk": split} for split in splits]))).stdout
        for number, split in enumerate(splits, 1):
            self.assertIn(f"\nlayers per chunk #{number}: {split}\n", screen)

    def test_tokens_and_utilisation(self):
        head, [row] = self.table()
        [result] = self.results(HARDWARE)
        tokens = result["throughput_samples_per_s"] * result["seq"] / 16
        self.assertEqual(row[head.index("tokens/s/GPU")], f"{tokens:.0f}")
        self.assertEqual(row[head.index("MFU")], f"{100 * result['mfu']:.1f} %")


class Pairs(CommandLine):
    """A GEMM and an all-reduce, alone and together."""

    def pair(self, **fields):
        return changed(PAIRS, pairs=[{**PAIRS["pairs"][0], **fields}])

    def simulated(self, scenario):
        return self.json_of("simulate", scenario)["pairs"]

    def test_the_rates_of_the_a800_are_those_that_table_11_implies(self):
        gemm, message = (pair["published"] for pair in self.simulated("table11"))
        # If the GEMM ends last, what the all-reduce took from it in all_reduce / s seconds; and vice versa.
        r = s = 1
        for _ in range(100):
            r = 1 - (gemm["together_s"] - gemm["gemm_s"]) / gemm["all_reduce_s"] * s
            s = 1 - (message["together_s"] - message["all_reduce_s"]) / message["gemm_s"] * r
        profile = read_json(PROFILES / "a800.json")
        self.assertEqual((round(r, 2), round(s, 2)), (profile["contention_compute"]["value"], profile["contention_all_reduce"]["value"]))

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
        done = self.succeed("reproduce", self.write(scenario), "--no-plots", "--out", folder)
        line, = self.read(f"{folder}/summary.json")["experiments"]
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


# Not the user's repository and settings, which a hook or a rebase names in the environment.
OF_NO_REPOSITORY = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | {
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


class Provenance(CommandLine):
    def revision(self):
        header = self.folder / "version.h"
        done = subprocess.run(["cmake", "-D", "GIT=git", "-D", f"SOURCE={self.folder}", "-D", "VERSION=1", "-D", f"HEADER={header}",
                               "-P", ROOT / "cmake/StpVersion.cmake"], env=OF_NO_REPOSITORY, capture_output=True, text=True, check=False)
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
            subprocess.run(["git", "-C", self.folder, *command], env=OF_NO_REPOSITORY, check=True)
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
        done = self.succeed("trace", "timelines", "--out", "new", variables=variables)
        return done, sorted(path.name for path in (self.folder / "new").iterdir())

    def test_long_steps_have_the_first_and_last_microbatches(self):
        path = self.write(changed(UNIT, schedules=["stp"], layers_per_chunk=[1] * 4, microbatches=1600))
        short = self.succeed("trace", path, "--out", "short")
        self.assertRegex(short.stdout, r"Each trace holds the first and the last microbatches of 1600, (\d+) each; --all-microbatches writes all\.")
        self.assertNotIn("--all", self.succeed("trace", path, "--out", "whole", "--all-microbatches").stdout)
        files = [sorted((self.folder / folder).iterdir()) for folder in ("short", "whole")]
        self.assertEqual([path.name for path in files[0]], [path.name for path in files[1]])
        traces = [read_json(some[0]) for some in files]
        self.assertRegex(traces[0]["otherData"]["left_out"], r"microbatches \d+ to \d+")
        self.assertNotIn("left_out", traces[1]["otherData"])
        self.assertLess(files[0][0].stat().st_size, 8e6)
        self.assertGreater(files[1][0].stat().st_size, 3 * files[0][0].stat().st_size)
        for drawn, whole in zip(files[0][1:], files[1][1:]):
            self.assertEqual(drawn.read_bytes(), whole.read_bytes())

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
        split = self.write(changed(HARDWARE, schedules=["1f1b"], sequence_parallel=True))
        self.succeed("trace", split, "--out", "split")
        svg = next((self.folder / "split").glob("*.svg")).read_text(encoding="utf-8")
        self.assertIn("exposed TP collective", svg)
        for row, source in ((next(row for row in rows if row["schedule"] == "stp"), drawn), (json.loads(self.succeed("simulate", split, "--json", "-").stdout)["results"][0], svg)):
            busiest = max(row["ranks"], key=lambda rank: rank["compute_s"])
            total = sum(busiest[part] for part in ("compute_s", "tp_bubble_s", "pp_bubble_s"))
            for part, words in (("compute_s", "compute"), ("tp_bubble_s", "TP bubble"), ("pp_bubble_s", "PP bubble")):
                self.assertIn(f"{words} {100 * busiest[part] / total:.1f} %", source)

    def test_without_python_there_are_traces(self):
        done, files = self.trace(STP_PYTHON="/nowhere")
        self.assertEqual(files, [f"{name}.json" for name in self.NAMES])
        self.assertRegex(done.stderr, r"^stp: no SVG timelines were drawn: /nowhere: Python 3: cannot be started; set STP_PYTHON .*\n$")

    def test_of_a_name_that_is_too_long_for_a_file(self):
        order = json.loads(self.succeed("schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "json").stdout)
        self.write(order | {"schedule": "x" * 300}, "long.json")
        self.succeed("trace", self.write(changed(UNIT, schedules=[{"file": "long.json"}])), "--out", "new", variables={"STP_PYTHON": "/nowhere"})


class Documents(CommandLine):
    """The examples in docs/scenarios.md work as shown."""

    def test_examples(self):
        blocks = re.findall(r"^```json\n(.*?)^```$", (ROOT / "docs/scenarios.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 3)
        self.write(CONFIG, "config.json")
        for block in blocks:
            command = "validate" if "ranks" in json.loads(block) else "simulate"
            self.succeed(command, self.write(block))


if __name__ == "__main__":
    main(__doc__)
