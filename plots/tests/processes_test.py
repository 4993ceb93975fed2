"""Drawing by several processes, and while the folder is being written."""

import json
import os
import signal
import subprocess
import sys
from unittest import mock

import report
from records_for_test import FolderTest, record, unit_row
from stp_plots.read import records


def kill_this_process(*_):
    os.kill(os.getpid(), signal.SIGKILL)


class ProcessesTest(FolderTest):
    def follow(self, lines):
        """Feeds report.py --follow; its exit code, what it says, and the files that are then there."""
        said = "".join(json.dumps(line) + "\n" for line in [[line["id"] for line in lines], *lines])
        run = subprocess.run([sys.executable, report.__file__, "--follow", str(self.folder)], input=said, capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr, {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def test_a_drawing_process_that_is_killed_is_an_error(self):
        self.write(a=record([unit_row()]))
        with mock.patch("os.cpu_count", return_value=2), mock.patch.object(report, "makers", return_value=[kill_this_process] * 6):
            status, said = self.main()
        self.assertEqual((status, said.count("\n")), (1, 1))
        self.assertIn("process", said)

    def test_the_same_folder_gives_the_same_files(self):
        """Also where several processes draw, and where it is drawn while it is written."""
        names, made = ("a", "a-b", "c"), []
        self.write(**{name: record([unit_row("1f1b-i"), unit_row("zb-v" if name == "a" else "stp")]) for name in names})
        for name in names[:2]:
            (self.folder / f"timeline-{name}-stp-m1.json").write_text("{}")
        given = [path.name for path in self.folder.iterdir()]
        for processes in (1, 2):
            with mock.patch("os.cpu_count", return_value=processes):
                self.assertEqual(self.main(), (0, ""))
            made.append({path.name: path.read_bytes() for path in self.folder.iterdir()})
        self.assertEqual(*made)
        self.assertGreater(len(made[0]), 12)
        lines = records.read_lines(self.folder)
        for name in {*made[0]} - {*given}:
            (self.folder / name).unlink()
        self.assertEqual(self.follow(lines), (0, "", made[0]))
        for name in {*made[0]} - {*given} | {"summary.json"}:
            (self.folder / name).unlink()
        self.assertEqual(self.follow(lines)[:2], (1, ""))
        self.assertEqual({path.name for path in self.folder.iterdir()}, {*given} - {"summary.json"})
