"""Values of a record and formatted numbers, tables of them. A value that is missing is None, NaN or nothing finite."""

import functools
import json
import math
import re
from dataclasses import dataclass, field
from itertools import groupby

from stp_plots.files import ROOT, read_json

_SCHEMA = read_json(ROOT / "results/schema/record.schema.json")["$defs"]
_PARALLEL = _SCHEMA["configuration"]["properties"]["parallel"]["properties"]
AXES = tuple(key for key in _SCHEMA["row"]["properties"] if _PARALLEL.get(key, {}).get("type") == "integer")  # numbers of ranks
MINUS, NONE = "\N{MINUS SIGN}", "–"
NUMERIC = re.compile(r"[+−]?[\d.]+(e[+-]?\d+)?( %)?\*?|–")


def number(value):
    """`value` if it is a finite number, else None."""
    known = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    return value if known else None


def dictionary(value):
    return value if isinstance(value, dict) else {}


def items(value):
    return value if isinstance(value, list) else []


def text(value):
    """Any value of a record."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if number(value) is not None:
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) else json.dumps(value)


def hashable(value):
    """`value` as something that can be compared and hashed."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value, sort_keys=True)


def agrees(data, where):
    """Whether a row has these values, or one of a list of values."""
    return all(data.get(key) in [value, *items(value)] for key, value in where.items())


def gain(of, over):
    """Per cent."""
    return 100 * (of / over - 1) if over else math.nan


def bubbles(times):
    """TP and PP bubble of the rank that computes most, as shares of its step. `times`: by rank, compute and bubbles."""
    busiest = max(times, key=lambda one: one[0], default=())
    return [part / sum(busiest) for part in busiest[1:]] if sum(busiest) > 0 else [None, None]


def plain(value, digits=1, unit=""):
    """A decimal."""
    return NONE if number(value) is None else f"{value:.{digits}f}{unit}"


def signed(value, digits=1, unit=""):
    """A decimal with its sign; what rounds to zero has none."""
    if number(value) is None:
        return NONE
    size = f"{abs(value):.{digits}f}"
    sign = "" if float(size) == 0 else "+" if value > 0 else MINUS
    return sign + size + unit


def percent(share, digits=1):
    return NONE if number(share) is None else signed(100 * share, digits, " %")


def plain_percent(share, digits=1):
    return NONE if number(share) is None else plain(100 * share, digits, " %")


def magnitude(value):
    """Three digits or more: enough to set beside published figures."""
    if number(value) is None:
        return NONE
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e6:
        return f"{value:.3g}"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{value:.{digits}f}"


def published(value):
    """As printed, with zeros up to three digits; what was computed from printed values, with four digits."""
    if number(value) is None:
        return NONE
    if isinstance(value, int) or float(value).is_integer() and abs(value) >= 100:
        return text(value)
    return f"{value:#.3g}".rstrip(".") if float(f"{value:.3g}") == value else f"{value:.4g}"


def span(values, digits=1, unit="", sign=False):
    """The ends of a range with so many decimals, or three digits where `digits` is None; one where they read the same."""
    tell = "{:.3g}".format if digits is None else functools.partial(signed if sign else plain, digits=digits)
    values = [*values]
    return " to ".join(dict.fromkeys(tell(float(end)) for end in (min(values), max(values)))) + unit


def count(amount, noun):
    return f"{amount} {noun}" + ("" if amount == 1 else "s")


# ---- on the screen ----


def duration(seconds):
    """Seconds in the unit that suits them: "4.683 µs"."""
    if seconds is None:
        return NONE
    units = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    scale, unit = next((one for one in units if seconds >= one[0]), units[-1])
    value = seconds / scale
    return f"{value:.{1 if value >= 100 else 2 if value >= 10 else 3}f} {unit}"


def word(value):
    """A field's value."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(word, value)) or "nothing"
    return value if isinstance(value, str) else json.dumps(value)


def configuration_parts(fields):
    """The parts of a configuration: model and lengths, and all others."""
    left = dict(fields)
    model, seq, size, microbatches = (left.pop(key, None) for key in ("model", "seq", "microbatch_size", "microbatches"))
    grid = {key: left.pop(key, None) for key in AXES}
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


@dataclass
class Table:
    """`head`: a heading per column, or (heading of a group of columns, heading). `rows`: lists of text; a text alone is a heading
    between the rows of a screen."""

    head: list
    rows: list = field(default_factory=list)
    caption: str = ""
    groups: list = field(init=False)  # (heading, columns)

    def __post_init__(self):
        over = [one[0] if isinstance(one, tuple) else "" for one in self.head]
        self.groups = [(name, len(list(some))) for name, some in groupby(over)] if any(over) else []
        self.head = [one[1] if isinstance(one, tuple) else one for one in self.head]

    def __bool__(self):
        return bool(self.rows)

    @functools.cached_property
    def numeric(self):
        """By column, whether all cells are numbers."""
        return [all(NUMERIC.fullmatch(cell) for cell in column) for column in zip(*self.rows)] or [False] * len(self.head)

    def text(self):
        """For the screen: columns as wide as their widest cell, the first to the left and the others to the right."""
        rows = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*(row for row in rows if isinstance(row, list)))]
        lines = []
        for row in rows:
            if isinstance(row, list):
                cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
                row = "  ".join(cells).rstrip()
            lines.append(row)
        return "\n".join(lines) + "\n"
