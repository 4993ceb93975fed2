"""Markdown that scripts write: tables, and lines of at most WIDTH characters."""

import re
import textwrap

WIDTH = 120
ITEM = re.compile(r"- |\d+\. ")


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    lines = ["| " + " | ".join(map(cell, head)) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows])


def wrapped(text):
    """The page with its paragraphs and items filled; tables, headings and code stay as they are."""
    lines, fenced, prose = [], False, False
    for line in text.splitlines():
        fence = line.startswith("```")
        fenced ^= fence
        follows, prose = prose, not (fenced or fence or not line or line[0] in "|#<!")
        if follows and prose and not ITEM.match(line):
            lines[-1] += " " + line.strip()
        elif line or lines[-1:] != [""]:
            lines.append(line if not prose else f"\0{line.strip()}")
    return "\n".join(_filled(line[1:]) if line.startswith("\0") else line for line in lines).strip() + "\n"


def _filled(line):
    item = ITEM.match(line)
    # A number and its per cent stay together, and so does code.
    line = re.sub(r"`[^`]*`| %", lambda part: part[0].replace(" ", "\u00a0"), line)
    indent = " " * len(item[0]) if item else ""
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False).replace("\u00a0", " ")
