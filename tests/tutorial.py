#!/usr/bin/env python3
"""docs/tutorial.md does what it says: its files are written as shown, its commands run, and what they print is what the page shows.

    tutorial.py STP_BINARY

A block behind a line `NAME`: is a file. In a block `console` a line that begins with "$ " is a command, and the lines
behind it are all that it prints; "…" stands for anything there, on a line of its own for any number of lines. Any other
block has a comment <!-- not run … --> before it.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/tutorial.md"
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n\n?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def pattern(lines):
    """A regular expression for what a command prints."""
    return "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)


def commands(text):
    """(command, what it prints) of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.rstrip("\n").split("\n")
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
        yield "\n".join(lines[:end]), lines[end:]


class Tutorial(unittest.TestCase):
    stp = Path()

    def test_the_page(self):
        holder = tempfile.TemporaryDirectory(prefix="stp-tutorial-")
        self.addCleanup(holder.cleanup)
        folder = Path(holder.name)
        programs = self.stp.parent
        environment = {key: value for key, value in os.environ.items() if key != "STP_DATA_DIR"}
        environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "STP": str(ROOT), "STP_BUILD": str(programs.parent)}
        page = PAGE.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(page))
        self.assertEqual(2 * len(blocks), len(re.findall("^```", page, re.MULTILINE)), "a block that is not closed")
        ran = 0
        for block in blocks:
            name = re.fullmatch(r"`([\w.-]+)`:", block["before"])
            if name:
                (folder / name[1]).write_text(block["text"], encoding="utf-8")
            elif block["kind"] == "console":
                for command, printed in commands(block["text"]):
                    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
                    self.assertRegex(done.stdout, rf"\A{pattern(printed)}\Z", command)
                    ran += 1
            else:
                self.assertRegex(block["before"], r"^<!-- not run.*-->$", block["text"])
        self.assertGreater(ran, 5)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    Tutorial.stp = Path(sys.argv.pop(1)).resolve()
    unittest.main()
