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

from command_line import benchmarks, changed, CommandLine, CONFIG, main, PAIRS, PROFILES, read_json, ROOT, RUN, UNIT


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
        ranks = next(row for row in rows if row["schedule"] == "stp")["ranks"]
        busiest = max(ranks, key=lambda rank: rank["compute_s"])
        total = sum(busiest[part] for part in ("compute_s", "tp_bubble_s", "pp_bubble_s"))
        for part, words in (("compute_s", "compute"), ("tp_bubble_s", "TP bubble"), ("pp_bubble_s", "PP bubble")):
            self.assertIn(f"{words} {100 * busiest[part] / total:.1f} %", drawn)

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
