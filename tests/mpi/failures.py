"""Runs of several processes that fail: failures.py TRAIN MPIRUN…, where TRAIN is mpi_train (train.cc). Whatever happens to
one process, all others end in time, with an exit code and words that name it, and leave no result behind.
STP_KILLS: how many runs are killed at a random moment (10)."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TRAIN, MPIRUN = sys.argv[1], sys.argv[2:]
IN_TIME = 60  # seconds: a hang, even where the machine has other work
SOON, LATE = "1", "600"  # seconds: deadlines that are to be reached, and those that are not


class Run:
    """A command on some processes, whose numbers `pids` gets."""

    def __init__(self, folder, processes, command, before=":"):
        # Each process says which it is, and does what `before` says, before it becomes the command.
        script = f'RANK=${{RANK-$OMPI_COMM_WORLD_RANK}}; echo $$ > "{folder}/pid-$RANK.new"; mv "{folder}/pid-$RANK.new" ' \
                 f'"{folder}/pid-$RANK"; {before}; exec "$0" "$@"'
        self.mpirun = subprocess.Popen(
            [*MPIRUN, "-np", str(processes), "sh", "-c", script, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            # What Open MPI leaves when it is killed goes with the folder.
            env=os.environ | {"TMPDIR": str(folder), "OMPI_MCA_btl_vader_backing_directory": str(folder)})
        files = [Path(folder) / f"pid-{process}" for process in range(processes)]
        ended = None
        while not all(file.exists() for file in files):
            assert ended is None, self.mpirun.communicate()
            time.sleep(0.005)
            ended = self.mpirun.poll()
        self.pids = [int(file.read_text()) for file in files]
        for file in files:
            file.unlink()

    def wait_until_it_trains(self):
        assert self.mpirun.stdout.readline() == "training\n"

    def end(self, within):
        """Exit code and standard error, once nothing of the run is left."""
        start = time.monotonic()
        try:
            _, words = self.mpirun.communicate(timeout=within)
            while any(alive(pid) for pid in self.pids):
                if time.monotonic() > start + within:
                    raise AssertionError("a process is left")
                time.sleep(0.01)
            return self.mpirun.returncode, words
        finally:
            self.mpirun.kill()
            for pid in self.pids:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)


def train(folder, processes, steps, deadline, *how, before=":"):
    run = Run(folder, processes, [TRAIN, str(steps), "result.json", deadline, *how], before)
    run.result = Path(folder) / "result.json"
    return run


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Failures(unittest.TestCase):
    def run_to_its_end(self, processes, steps, deadline, *how):
        with tempfile.TemporaryDirectory() as folder:
            run = train(folder, processes, steps, deadline, *how)
            code, words = run.end(within=30)
            left = run.result.read_text() if run.result.exists() else None
            self.assertEqual([file for file in os.listdir(folder) if file.startswith(".")], [])
            return code, words, left

    def test_without_failures_losses_are_those_of_one_process(self):
        losses = []
        for processes in 1, 2, 3, 4:
            code, words, left = self.run_to_its_end(processes, 3, LATE)
            self.assertEqual(code, 0, words)
            shares = json.loads(left)
            losses.append([round(sum(shares[i:i + processes]), 5) for i in range(0, len(shares), processes)])
        self.assertEqual(losses, [losses[0]] * 4)

    def test_what_ends_one_process_ends_all(self):
        for how, deadline, process, expected_code, expected_words in (
                ("throw", LATE, 1, 1, "process 1: no luck"),
                ("input", LATE, 1, 2, "process 1: mine.json: steps: too many; use less"),
                ("exit", LATE, 1, None, "process rank 1 |process 1: ended"),
                ("hang", SOON, 1, 1, "for process 1: nothing moved for 1 s"),
                ("silent", SOON, 1, 1, "process 0: waits for a text of process 1: nothing moved for 6 s"),
                ("silent", SOON, 0, 1, "process 1: waits for the others to end: nothing moved for 6 s")):
            with self.subTest(how, process=process):
                code, words, left = self.run_to_its_end(2, 3, deadline, str(process), how)
                self.assertRegex(words, expected_words)
                self.assertNotEqual(code, 0)
                self.assertIn(expected_code, (code, None))
                self.assertNotIn("had to end", words)
                self.assertIsNone(left)

    def test_a_stopped_process_ends_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            run = train(folder, 3, 100_000, "4")  # on a busy machine the others may stand still for a second
            run.wait_until_it_trains()
            os.kill(run.pids[2], signal.SIGSTOP)
            code, words = run.end(within=30)
            self.assertEqual(code, 1)
            self.assertRegex(words, "for process 2: nothing moved for 4 s")
            self.assertFalse(run.result.exists())

    def test_a_process_that_does_not_join_ends_the_others(self):
        for before in "exec sleep 600", "exit 0":
            with self.subTest(before), tempfile.TemporaryDirectory() as folder:
                run = train(folder, 2, 3, SOON, before=f"[ $RANK = 0 ] || {before}")
                code, words = run.end(within=30)
                self.assertEqual(code, 1)
                self.assertRegex(words, "did not come to MPI_Init for 6 s|process rank 1 |process 1 did not come to 127.0.0.1:[0-9]+ for 6 s")
                self.assertFalse(run.result.exists())

    def test_killed_at_any_moment(self):
        dice = random.Random(1)
        for i in range(int(os.environ.get("STP_KILLS", "10"))):
            processes = dice.choice((2, 4))
            killed, when = dice.randrange(processes), dice.uniform(0, 1)
            with self.subTest(i, processes=processes, killed=killed, when=when), \
                    tempfile.TemporaryDirectory() as folder:
                run = train(folder, processes, 100_000, LATE)
                if i % 2:
                    run.wait_until_it_trains()
                time.sleep(when)
                os.kill(run.pids[killed], signal.SIGKILL)
                code, words = run.end(within=IN_TIME)
                self.assertNotEqual(code, 0)
                # torchrun's processes that wait for one to come cannot know that it never will. If a process ends while
                # mpirun still starts others, mpirun may print the frame of its message without the message.
                never_came = "" if i % 2 else r"|the launcher had to end process|^-+\s+-+\s*$"
                self.assertRegex(words, rf"(?s)process rank {killed} .*on\s+signal 9|process {killed}:? ended, and left the "
                                        rf"others waiting{never_came}")
                self.assertFalse(run.result.exists())

    @unittest.skipIf("launch.py" in str(MPIRUN), "a launcher that ends none")
    def test_a_killed_launcher_ends_all(self):
        with tempfile.TemporaryDirectory() as folder:
            run = train(folder, 3, 100_000, LATE)
            run.wait_until_it_trains()
            run.mpirun.kill()
            run.end(within=IN_TIME)
            self.assertFalse(run.result.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
