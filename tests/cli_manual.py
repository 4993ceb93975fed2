"""Help, lists, completion, and tables on a terminal.

    cli_manual.py STP_BINARY [unittest arguments]
"""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
import unittest

from command_line import changed, CommandLine, HARDWARE, main, ROOT, RUN, UNIT

COLOUR = re.compile(r"\x1b\[\d+m")


class Manual(CommandLine):
    def commands(self):
        return re.findall(r"^  (\w+) ", self.succeed("--help").stdout.split("Subcommands:")[1], re.MULTILINE)

    def test_every_help_has_examples_that_parse_and_exit_codes(self):
        for command in self.commands():
            text = self.succeed("help", command).stdout
            self.assertEqual(text, self.succeed(command, "--help").stdout)
            self.assertIn("Exit codes: 0 success, 1 failure, 2 invalid input", text)
            parts = re.split(r"\n|\| ", text.split("Examples:\n")[1])
            examples = [part for part in parts if f"stp {command}" in part]
            self.assertTrue(examples, command)
            for flag in set(re.findall(r" (--[a-z-]+)", " ".join(examples))):
                self.assertRegex(text.split("Examples:")[0], rf"(?m)^ .*{flag}\b", command)

    def test_help_alone_is_that_of_the_program(self):
        self.assertEqual(self.succeed("help").stdout, self.succeed("--help").stdout)

    def test_help_of_a_command_that_does_not_exist(self):
        self.assertEqual(self.succeed("help", "model", "import").stdout, self.succeed("model", "import", "--help").stdout)
        self.refused(["list", "profile"], 'KIND: there is no "profile"; did you mean profiles?')
        self.refused(["help", "simulte"], 'no command "simulte"', "did you mean simulate?")
        self.refused(["help", "model", "imprt"], 'no command "imprt"', "did you mean import?")

    def test_options_that_are_misspelled(self):
        self.refused(["simulate", "llm-a800", "--jsn=x"], "--jsn=x; did you mean --json?", "stp simulate --help")
        self.refused(["run", "tiny", "--backend", "cpu", "--predicted", "x"], "did you mean --predict?")
        self.refused(["schedule", "stp", "--pp", 4, "--microbatches", 8, "--m", 8], "did you mean --microbatches, --memory-limit?")

    def test_the_version_by_all_its_names(self):
        whole = self.succeed("--version").stdout
        self.assertEqual([self.succeed(flag).stdout for flag in ("-V", "-v")], [whole, whole])

    def test_lists_are_the_folders(self):
        for kind in ("scenarios", "models", "profiles"):
            names = sorted(path.stem for path in (ROOT / kind).glob("*.json"))
            self.assertEqual(self.succeed("list", kind, "--names").stdout.split(), names)
            rows = self.succeed("list", kind).stdout.splitlines()[1:]
            self.assertEqual([row.split()[0] for row in rows], names)
        self.assertIn("zb-v", self.succeed("list", "schedules", "--names").stdout.split())
        self.assertEqual(self.succeed("list").stdout.split(), ["scenarios", "models", "profiles", "schedules"])
        self.refused(["list", "gpus"], "KIND")

    def test_a_moved_tree_brings_its_data(self):
        program = self.folder / "tree/build/ci/bin/stp"
        program.parent.mkdir(parents=True)
        shutil.copy(self.stp, program)
        for folder in ("profiles", "scenarios"):
            (self.folder / "tree" / folder).mkdir()
        self.write("{}", "tree/scenarios/mine.json")
        listed = [str(program), "list", "scenarios", "--names"]
        environment = {key: value for key, value in os.environ.items() if key != "STP_DATA_DIR"}
        self.assertEqual(subprocess.run(listed, env=environment, capture_output=True, text=True, check=True).stdout, "mine\n")
        self.refused(["list", "models"], "models: STP_DATA_DIR: the suite's models are not there", variables={"STP_DATA_DIR": str(self.folder)})

    def test_the_man_page_has_every_option(self):
        page = self.succeed("man").stdout.replace("\\-", "-")
        for command in self.commands():
            self.assertRegex(page, rf"(?m)^\.SS {command}( |$)")
        self.assertIn("--least-difference", page)
        self.assertIn("STP_DATA_DIR", page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-k", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")

    def test_bash_completes_commands_options_and_names(self):
        script = self.succeed("completion", "bash").stdout

        def completed(*words):
            line = " ".join(f"'{word}'" for word in words)
            ask = f"PATH={os.path.dirname(self.stp)}:$PATH\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _stp; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            return subprocess.run(["bash", "-c", script + ask], cwd=self.folder, capture_output=True, text=True, check=True).stdout.split()

        self.assertEqual(completed("stp", "simu"), ["simulate"])
        self.assertEqual(completed("stp", "simulate", "--js"), ["--json"])
        self.assertEqual(completed("stp", "simulate", "llm-a"), ["llm-a800"])
        self.assertEqual(completed("stp", "run", "x", "--predict", "h2"), ["h20", "h200"])
        self.assertEqual(completed("stp", "help", "val"), ["validate"])
        self.assertEqual(completed("stp", "model", "imp"), ["import"])
        self.write("{}", "llm-mine.json")
        self.assertEqual(completed("stp", "simulate", "llm-"), ["llm-a800", "llm-h20", "llm-mine.json"])

    def test_other_shells(self):
        for shell in ("zsh", "fish"):
            script = self.succeed("completion", shell).stdout
            if shutil.which(shell):
                subprocess.run([shell, "-n"], input=script, text=True, check=True)
        self.refused(["completion", "cmd.exe"], "SHELL")


class Scripts(unittest.TestCase):
    def test_without_packages_each_finds_an_interpreter_or_says_what_to_install(self):
        scripts = [path for path in sorted((ROOT / "scripts").iterdir()) if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python3")]
        self.assertGreater(len(scripts), 5)
        for script in (*scripts, *(ROOT / "plots").glob("*.py")):
            # -S leaves out the folders of packages; the guard says that no other interpreter has them.
            alone = {key: value for key, value in os.environ.items() if key != "STP_PYTHON"} | {"STP_PYTHON_TRIED": "/usr/bin/python3"}
            done = subprocess.run([sys.executable, "-S", script, "--help"], env=alone, capture_output=True, text=True, check=False)
            self.assertNotIn("Traceback", done.stderr, script)
            if done.returncode != 0:
                self.assertRegex(done.stderr, r"^\S+: .*install python3-.*\n$", script)
        found = os.environ | {"STP_PYTHON": sys.executable}
        done = subprocess.run([sys.executable, "-S", ROOT / "scripts/pages", "--help"], env=found, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, "usage: " in done.stdout), (0, True), done.stderr)


class Csv(CommandLine):
    def test_it_has_the_record_s_rows_in_full(self):
        scenario = self.write(changed(HARDWARE, schedules=["1f1b", "stp"], name='a "name", quoted'))
        self.succeed("simulate", scenario, "--csv", "rows.csv", "--json", "rows.json")
        text = (self.folder / "rows.csv").read_text(encoding="utf-8")
        self.assertEqual(self.succeed("simulate", scenario, "--csv", "-").stdout, text)
        rows, results = list(csv.DictReader(io.StringIO(text))), self.read("rows.json")["results"]
        self.assertEqual(len(rows), 2)
        for row, result in zip(rows, results):
            for field in ("step_time_s", "mfu", "tp", "peak_memory_gb"):
                self.assertEqual(float(row[field]), result[field])
            # What a record has by rank, or its reader derives.
            busiest = max(result["ranks"], key=lambda rank: rank["compute_s"])
            for field in ("pp_bubble_s", "tp_bubble_s"):
                self.assertEqual(float(row[field]), busiest[field])
            total = max(sum(rank["memory_bytes"].values()) for rank in result["ranks"]) / 1e9
            self.assertAlmostEqual(float(row["peak_total_gb"]), total)
            self.assertAlmostEqual(float(row["gpu_memory_gb"]), 85.9)
            self.assertEqual(row["fits"], "yes")
            self.assertAlmostEqual(float(row["tokens_per_s_per_gpu"]), result["throughput_samples_per_s"] * 3072 / 16)
            self.assertEqual(row["layers_per_chunk"], " ".join(map(str, result["layers_per_chunk"])))
            self.assertEqual(row["schedule"], result["schedule"])
            self.assertNotIn("ranks", row)

    def test_runs_have_it_too(self):
        self.succeed("run", self.write(RUN), "--backend", "cpu", "--csv", "rows.csv")
        rows = list(csv.DictReader(io.StringIO((self.folder / "rows.csv").read_text(encoding="utf-8"))))
        self.assertEqual([row["schedule"] for row in rows], RUN["schedules"])
        for field in ("step_time_s", "tokens_per_s_per_gpu", "pp_bubble_s", "peak_total_gb"):
            self.assertGreater(float(rows[0][field]), 0, field)

    def test_what_cannot_be_written(self):
        path = self.write(UNIT)
        self.refused(["simulate", path, "--json", "x", "--csv", "./x"], "./x: --csv: is the output of --json too")
        self.refused(["simulate", path, "--json", "-", "--csv", "-"], "--csv: is the output of --json too")
        self.refused(["simulate", path, "--csv", ""], "--csv '': is empty")
        self.refused(["simulate", path, "--json="], "--json=: is empty")
        self.refused(["simulate", "table11", "--csv", "pairs.csv"], "--csv: does not hold pairs")
        self.refused(["run", self.write(RUN, "run.json"), "--backend", "cpu", "--json", "same", "--trace", "same"], "same: --trace: is the output of --json too")
        self.refused(["run", "run.json", "--backend", "cpu", "--all-microbatches"], "--all-microbatches requires --trace")
        self.write("mine", "kept.csv")
        self.refused(["simulate", path, "--csv", "kept.csv"], "--csv", "never overwritten")


class Terminal(CommandLine):
    WIDE = changed(HARDWARE, schedules=["1f1b", "stp"], configurations=[{"seq": 3072}, {"seq": 4096, "microbatch_size": 4}])

    def shown(self, columns, *arguments, **variables):
        """Standard output, which is a terminal of so many columns."""
        text = self.said_on_terminal(*arguments, of="stdout", other=None, size=(50, columns), **{"TERM": "xterm"} | variables)
        return text.replace("\r\n", "\n")

    def test_a_table_is_no_wider_than_the_terminal_and_loses_nothing(self):
        path = self.write(self.WIDE)
        plain = self.succeed("simulate", path).stdout.splitlines()[1:]

        def table(lines):  # without what is said below it
            return lines[:next(i for i, line in enumerate(lines) if line.startswith("The fastest"))]

        cells = sorted(cell for line in table(plain)[1:] for cell in re.split(r"  +", line.strip())[1:])
        for columns in (60, 80, 120):
            lines = COLOUR.sub("", self.shown(columns, "simulate", path)).splitlines()[1:]
            self.assertLessEqual(max(map(len, lines)), columns)
            rows = [re.sub(r"^ *\d  ", "", line) for line in table(lines) if re.match(r"( *\d  )?(1f1b|stp)", line)]
            self.assertEqual(sorted(cell for line in rows for cell in re.split(r"  +", line.strip())[1:]), cells)
        self.assertEqual(COLOUR.sub("", self.shown(400, "simulate", path)).splitlines()[1:], plain)

    def test_a_table_of_long_names_is_no_wider_either(self):
        words = ["--model", "llm-12.1b", "--cluster", "a800", "--gpus", "16", "--global-batch", "16", "--seq", "3072", "--schedule", "1f1b,stp,dualpipev",
                 "--microbatch-size", "1", "--tp", "4", "--cp", "1,2", "--sequence-parallel", "on", "--layers", "balanced"]  # fmt: skip
        for columns in (80, 120):
            lines = COLOUR.sub("", self.shown(columns, "tune", *words, "--out", f"choice-{columns}", STP_PYTHON="/bin/true")).splitlines()
            self.assertLessEqual(max(map(len, lines)), columns)

    def test_lists_and_help_are_wrapped_between_words(self):
        for arguments in (["list", "scenarios"], ["list", "schedules"], ["--help"], ["help", "run"], ["run", "--help"]):
            plain = self.succeed(*arguments).stdout
            for columns in (80, 120):
                shown = COLOUR.sub("", self.shown(columns, *arguments))
                self.assertLessEqual(max(map(len, shown.splitlines())), columns, arguments)
                if arguments != ["list", "schedules"]:  # which is in parts
                    self.assertEqual(shown.split(), plain.split())
            self.assertEqual(COLOUR.sub("", self.shown(400, *arguments)), plain)

    def test_colour_is_on_a_terminal_alone_and_says_nothing_more(self):
        path = self.write(changed(HARDWARE, microbatch_size=8))
        plain = self.succeed("simulate", path).stdout
        self.assertNotRegex(plain, COLOUR)
        coloured = self.shown(400, "simulate", path)
        self.assertRegex(coloured, r"\x1b\[31mno\x1b\[0m")
        self.assertEqual(COLOUR.sub("", coloured), plain)
        self.assertEqual(self.shown(400, "simulate", path, NO_COLOR="1"), plain)
        self.assertEqual(self.shown(400, "simulate", path, TERM="dumb"), plain)


if __name__ == "__main__":
    main(__doc__)
