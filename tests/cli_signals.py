"""Ends the program by signals: it says what is kept, leaves nothing else behind, and the same command goes on from there.

    cli_signals.py STP_BINARY [unittest arguments]
"""

import fcntl
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import termios
import time
from pathlib import Path

import jsonschema

from command_line import changed, CommandLine, HARDWARE, Late, main, read_json, ROOT, RUN, tried_again, UNIT


def without_wait(said):
    """What the program said, without what it says where a step takes over a second."""
    return re.sub(r"(?m)^stp: interrupted; waiting for .*\n", "", said)


def hash_of(text):
    """What stands before a finished row: 64-bit FNV-1a."""
    number = 0xCBF29CE484222325
    for byte in text.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return str(number)


class Signals(CommandLine):
    def test_a_killed_run_leaves_only_what_the_next_one_removes(self):
        slow = self.write(changed(UNIT, schedules=["stp"], parallel={"pp": 16}, layers_per_chunk=[1] * 32, microbatches=list(range(64, 600))))
        with self.started("reproduce", slow, "--no-plots", "--out", "new") as run:
            while not (partial := list(self.folder.glob(".stp-partial-*"))) and run.poll() is None:
                pass
            run.kill()
        self.assertEqual(run.returncode, -signal.SIGKILL)
        (self.folder / "new.rows").unlink(missing_ok=True)  # rows that were finished stay for a run of the same scenario
        done = self.run_stp("simulate", self.write(UNIT, "unit.json"), "--json", "new.json")
        self.assertEqual(done.stderr, f"stp: removed {partial[0]}, which a killed run left half-written\n")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["new.json", "s.json", "unit.json"])

    def interrupted(self, begun, number, *arguments):
        """Sends the signal when the folder `begun` is there, or the file with four new lines; returns what was said."""

        def lines():
            try:
                return begun.read_bytes().count(b"\n")
            except OSError:  # it is not there, or a folder
                return 0

        first = lines()
        with self.started(*arguments) as run:
            while run.poll() is None and not (begun.is_dir() or lines() >= first + 4):
                time.sleep(0.001)
            run.send_signal(number)
            said = run.communicate(timeout=60)[1]
        if run.returncode not in (-number, 128 + number):
            raise Late
        return without_wait(said)

    @tried_again
    def test_a_killed_sweep_goes_on_with_the_same_result(self):
        sweep = changed(UNIT, schedules=["stp"], parallel={"pp": 16}, layers_per_chunk=[1] * 32, microbatches=list(range(200, 400)))
        first = self.write(changed(UNIT, name="first"), "first.json")
        command = ["reproduce", str(first), str(self.write(sweep)), "--no-plots", "--out"]
        kept = self.folder / "new.rows"
        said = self.interrupted(kept, signal.SIGINT, *command, "new")
        self.assertTrue(said.endswith("stp: interrupted; finished rows are in new.rows, and the same command goes on from them\n"))
        self.interrupted(kept, signal.SIGKILL, *command, "new")
        (left,) = self.folder.glob(".stp-partial-*")  # the next run removes it; `refused` compares the whole folder
        shutil.rmtree(left)
        wrong = {"schedules": ["dualpipev"], "parallel": {"pp": 2}, "layers_per_chunk": [1] * 4, "microbatches": 3}  # refused at its row
        more = self.write(sweep | {"configurations": [wrong, {}]}, "more.json")
        self.refused(["reproduce", more, "--no-plots", "--out", "new"], "m ≥ 2p", "; rows that an earlier call finished stay in new.rows\n")
        lines = kept.read_text()
        cut = lines[: lines.rindex("\n") + 20]  # the last row is half-written
        first, _, row = lines.splitlines()[1].partition(" ")
        self.assertEqual(first, hash_of(row))
        spoilt = re.sub(r'"step_time_s":[^,}]*', '"step_time_s":7', row)
        self.assertNotEqual(row, spoilt)
        self.run_stp(*command, "whole")
        # A row that its hash does not confirm is simulated again, and no other.
        for number, same in ((first, True), (hash_of(spoilt), False)):
            text = cut.replace(f"{first} {row}", f"{number} {spoilt}")
            kept.write_text(text)
            self.assertEqual(self.run_stp(*command, "new").returncode, 0)
            self.assertFalse(kept.exists())
            new, whole = ([self.read(f"{folder}/{name}.json")["rows"] for name in ("first", "unit")] for folder in ("new", "whole"))
            self.assertEqual(new == whole, same)
            shutil.rmtree(self.folder / "new")

    @tried_again
    def test_an_interrupted_run_goes_on(self):
        run = {"name": "runs", "model": "tiny", "seq": 16, "schedules": ["1f1b"], "parallel": {"tp": 1, "pp": 2},
               "microbatches": list(range(2, 42)), "microbatch_size": 1, "run": {"type": "float64", "steps": 2}}
        command = ["run", str(self.write(run)), "--backend", "cpu", "--json", "new.json"]
        said = self.interrupted(self.folder / "new.json.rows", signal.SIGINT, *command)
        self.assertRegex(said, r"; \d+ of 40 rows are finished, in new\.json\.rows, and the same command goes on from them\n$")
        self.assertFalse((self.folder / "new.json").exists())
        first = json.loads((self.folder / "new.json.rows").read_text().splitlines()[1].partition(" ")[2]).popitem()[1]["row"]
        self.run_stp(*command)
        record = self.read("new.json")
        self.assertEqual(record["results"][0], first)
        self.assertEqual([row["microbatches"] for row in record["results"]], run["microbatches"])

    def test_an_interrupted_run_names_its_last_checkpoint(self):
        run = "run", str(self.write(changed(RUN, run={"steps": 100_000}, schedules=["stp"]))), "--backend", "cpu"
        saved = self.folder / "saved"
        said = self.interrupted(saved / "step-3", signal.SIGTERM, *run, "--save", "saved", "--every", "3")
        last = max(saved.iterdir(), key=lambda path: int(path.name[5:])).name
        self.assertEqual(said, f"stp: interrupted; saved/{last} is whole, and --resume saved trains run.steps more from it\n")
        self.succeed(*run, "--resume", "saved", "--set", "run.steps=1")

    def test_a_signal_waits_for_a_checkpoint_that_is_due(self):
        path, (screen, terminal) = self.write(changed(RUN, run={"steps": 1, "warmup": 0}, schedules=["stp"])), os.openpty()
        with self.started("run", path, "--backend", "cpu", "--save", "saved", "--inject", "slow:0:F0.0:1", stderr=terminal) as run:
            os.close(terminal)  # so that reading fails if the program ends
            shown = b""
            while b"step 1 of" not in shown:
                shown += os.read(screen, 1000)
            run.terminate()
        os.close(screen)
        self.assertEqual(os.listdir(self.folder / "saved"), ["step-1"])

    def test_a_signal_ends_what_draws_too(self):
        python = self.folder / "python"
        python.write_text("#!/bin/sh\necho begun\nexec sleep 100\n")
        python.chmod(0o755)
        with self.started("trace", self.write(UNIT), "--out", "new", variables={"STP_PYTHON": str(python)}) as run:
            self.assertEqual(run.stdout.readline(), "begun\n")
            run.terminate()
            self.assertEqual(without_wait(run.communicate(timeout=60)[1]), "stp: interrupted; what was finished is in new-interrupted\n")
        self.assertEqual(run.returncode, 128 + signal.SIGTERM)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["new-interrupted", "python", "s.json"])

    def test_what_draws_ends_with_the_simulation(self):
        """And what it has started."""
        python, child = self.folder / "python", self.folder / "child"
        python.write_text("#!/bin/sh\nsleep 1000 &\necho $! >child.new\nmv child.new child\nwait\n")
        python.chmod(0o755)
        slow = self.write(changed(UNIT, schedules=["stp"], parallel={"pp": 16}, layers_per_chunk=[1] * 32, microbatches=list(range(64, 600))))
        wrong = {"schedules": ["dualpipev"], "parallel": {"pp": 2}, "layers_per_chunk": [1] * 4, "microbatches": 3}
        refused = self.write(changed(read_json(slow), name="refused", configurations=[{}, wrong]), "refused.json")
        for scenarios, number in (([slow], signal.SIGINT), ([refused], None)):
            with self.started("reproduce", *scenarios, "--out", "new", variables={"STP_PYTHON": str(python)}) as run:
                while not child.exists() and run.poll() is None:
                    pass
                if number:
                    run.send_signal(number)
                said = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 128 + number if number else 2, said)
            self.assertFalse(Path(f"/proc/{child.read_text().strip()}/exe").exists())
            child.unlink()
            self.assertEqual(list(self.folder.glob(".stp-partial-*")), [])

    def interrupted_rows(self, path, *arguments):
        """Standard output and error of a simulation that is interrupted behind its second configuration, which is left out."""
        with self.started("simulate", path, "--keep-going", *arguments) as run:
            self.assertIn("left out", run.stderr.readline())
            run.send_signal(signal.SIGINT)
            table, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 128 + signal.SIGINT)
        return table, without_wait(said)

    def test_a_signal_leaves_the_rows_that_are_finished(self):
        slow = {"microbatches": list(range(64, 600)), "layers_per_chunk": [1] * 32, "parallel": {"pp": 16}, "schedules": ["stp"]}
        path = self.write(changed(UNIT, configurations=[{}, {"schedules": ["dualpipev"], "microbatches": 3, "layers_per_chunk": [1] * 4}, slow]))
        for arguments, kept in ((["--json", "new.json", "--csv", "new.csv"], ", in new.json and new.csv"), ([], "")):
            table, said = self.interrupted_rows(path, *arguments)
            rows = int(re.fullmatch(r"stp: interrupted; (\d+) of \d+ rows are finished" + kept + "\n", said).group(1))
            lines = [line for line in table.splitlines() if not line.startswith("layers per chunk #")]
            self.assertEqual(len(lines), 3 + rows)  # title, head; the gaps' legend
        record = self.read("new.json")
        self.assertTrue(record["interrupted"])
        self.assertGreaterEqual(len(record["results"]), 1)
        jsonschema.validate(record, read_json(ROOT / "results/schema/record.schema.json"))

    def test_a_signal_leaves_the_rows_that_do_not_fit_without_advice(self):
        large = {"microbatch_size": 64, "microbatches": list(range(64, 600))}
        path = self.write(changed(HARDWARE, schedules=["stp"], configurations=[
            {"microbatch_size": 64}, {"schedules": ["dualpipev"], "microbatches": 3}, large]))
        table, said = self.interrupted_rows(path, "--json", "new.json")
        self.assertRegex(said, r"^stp: interrupted; \d+ of \d+ rows are finished, in new\.json\n$")
        self.assertIn("None fits. Nearest is ", table)
        self.assertNotIn("what makes it smaller", table)
        self.assertTrue(self.read("new.json")["interrupted"])

    def ended_while_reading(self, number, **options):
        """Exit code and words of a program that gets the signal while it waits for its input, which then ends."""
        with self.started("validate", "-", stdin=subprocess.PIPE, **options) as run:
            run.stdin.write("# schedule")
            run.stdin.flush()
            while any(fcntl.ioctl(run.stdin, termios.FIONREAD, bytes(4))):  # until it has read that
                time.sleep(0.001)
            self.assertIsNone(run.poll())
            run.send_signal(number)
            said = run.communicate(timeout=60)[1]
        return run.returncode, said

    def test_a_signal_while_nothing_is_to_be_kept(self):
        self.assertEqual(self.ended_while_reading(signal.SIGHUP), (128 + signal.SIGHUP, "stp: interrupted; nothing was written\n"))

    def test_a_signal_that_was_ignored_stays_ignored(self):
        """As nohup has it, and sh in what it runs in the background."""
        for number in (signal.SIGHUP, signal.SIGINT):
            ignore = functools.partial(signal.signal, number, signal.SIG_IGN)
            self.assertEqual(self.ended_while_reading(number, preexec_fn=ignore)[0], 2)


if __name__ == "__main__":
    main(__doc__)
