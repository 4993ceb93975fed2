"""Comparisons on a terminal: plain tables and formatted numbers. None is shown as "–"."""

import json


class Table:
    """Columns as wide as their widest cell, the first to the left and the others to the right; headings between the rows."""

    def __init__(self, head):
        self.rows = [head]

    def heading(self, line):
        self.rows.append(line)

    def add(self, row):
        self.rows.append(row)

    def text(self):
        widths = [max(map(len, column)) for column in zip(*(row for row in self.rows if isinstance(row, list)))]
        lines = []
        for row in self.rows:
            if isinstance(row, list):
                cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
                row = "  ".join(cells).rstrip()
            lines.append(row)
        return "\n".join(lines) + "\n"


def fixed(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def share(value, digits=1):
    """A share in per cent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def change(value, digits=1):
    """The same, signed, of a difference."""
    return "–" if value is None else f"{100 * value:+.{digits}f} %"


def points(value, digits=1):
    """The same in percentage points."""
    return "–" if value is None else f"{100 * value:+.{digits}f}"


def duration(seconds):
    """Seconds in the unit that suits them: "4.683 µs"."""
    if seconds is None:
        return "–"
    units = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    scale, unit = next((one for one in units if seconds >= one[0]), units[-1])
    value = seconds / scale
    return f"{value:.{1 if value >= 100 else 2 if value >= 10 else 3}f} {unit}"


def word(value):
    """A field's value."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(word, value)) or "nothing"
    return value if isinstance(value, str) else json.dumps(value)


def configuration_parts(fields):
    """The parts of a configuration: model and lengths, and all others."""
    left = dict(fields)
    model, seq, size, microbatches = (left.pop(key, None) for key in ("model", "seq", "microbatch_size", "microbatches"))
    grid = {key: left.pop(key, None) for key in ("tp", "pp", "cp", "dp")}
    what = [] if model is None else [word(model)]
    if seq is not None:
        what.append(f"s {seq}" + ("" if size is None else f" × {size}"))
    elif size not in (None, 1):
        what.append(f"microbatch size {size}")
    # Tensor and pipeline parallelism are shown even with one rank.
    ranks = " ".join(f"{key.upper()}{count}" for key, count in grid.items()
                     if count is not None and (key in ("tp", "pp") or count != 1))
    how = ([ranks] if ranks else []) + ([] if microbatches is None else [f"m {microbatches}"])
    return what, how + [f"{key} {word(value)}" for key, value in sorted(left.items())]


def configuration(fields):
    """"llm-12.1b, s 6144 × 1, TP4 PP4, m 192", and whatever else the configuration says."""
    what, how = configuration_parts(fields)
    return ", ".join(what + how)


def differences(comparison):
    """Differences of the files besides their figures, a line each."""
    lines = []
    for one in comparison["differs"]:
        length = 12 if one["field"] == "revision" else None  # its first digits identify it
        lines.append(f"  {one['field']}: " + " | ".join(word(value)[:length] for value in one["values"]) + "\n")
    return "They differ in\n" + "".join(lines) if lines else ""
