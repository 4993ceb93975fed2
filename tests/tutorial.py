#!/usr/bin/env python3
"""docs/tutorial.md does what it says: its files are written as shown, its commands run, and what they print is what the page shows.

    tutorial.py STP_BINARY

A block behind a line `NAME`: is a file. In a block `console` a line that begins with "$ " is a command, and the lines
behind it are all that it prints; "…" stands for anything there, on a line of its own for any number of lines. Any other
block has a comment <!-- not run … --> before it.
"""

import os
import re
from pathlib import Path

from command_line import CommandLine, main, ROOT

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


class Tutorial(CommandLine):
    def test_the_page(self):
        programs = Path(self.stp).parent
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "STP": str(ROOT), "STP_BUILD": str(programs.parent)}
        page = PAGE.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(page))
        self.assertEqual(2 * len(blocks), len(re.findall("^```", page, re.MULTILINE)), "a block that is not closed")
        ran = 0
        for block in blocks:
            name = re.fullmatch(r"`([\w.-]+)`:", block["before"])
            if name:
                self.write(block["text"], name[1])
            elif block["kind"] == "console":
                for command, printed in commands(block["text"]):
                    done = self.succeed(launcher=["bash", "-c", f"{{ {command}\n}} 2>&1"], variables=environment)
                    self.assertRegex(done.stdout, rf"\A{pattern(printed)}\Z", command)
                    ran += 1
            else:
                self.assertRegex(block["before"], r"^<!-- not run.*-->$", block["text"])
        self.assertGreater(ran, 5)


if __name__ == "__main__":
    main(__doc__)
