"""Values of a record, and formatted numbers. A value that is missing is None, NaN or nothing finite."""

import json
import math

MINUS, NONE = "\N{MINUS SIGN}", "–"


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


def count(amount, noun):
    return f"{amount} {noun}" + ("" if amount == 1 else "s")
