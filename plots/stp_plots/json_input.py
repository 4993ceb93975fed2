"""Strict reading of hand-written JSON: every error names file, field and remedy.

The counterpart of lib/stp/base/json_input.h.
"""

import json
import math
import re
from pathlib import Path

TYPES = {str: "a string", dict: "an object", list: "an array", bool: "a boolean", int: "a number", float: "a number",
         type(None): "null"}


LARGEST = 256 << 20  # bytes of an input file, as lib/stp/base/json_input.h


def printable(text):
    """`text` with control characters, which a terminal would obey, replaced by "?"; lines stay."""
    return re.sub(r"[^\n -~\u00a0-\U0010ffff]", "?", text)


class InputError(Exception):
    """Bad input: the program ends with exit code 2. The text is "file: field: problem; remedy"."""

    def __init__(self, file, field, problem, remedy):
        super().__init__(printable("".join(f"{part}: " for part in (file, field) if part) + f"{problem}; {remedy}"))


def read_text(path):
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(path, "", f"is larger than {LARGEST >> 20} MiB", "name a smaller file")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "", "is not valid JSON", "save it as UTF-8 text") from None
    except OSError:
        if Path(path).is_dir():
            raise InputError(path, "", "is a folder", "name a file") from None
        raise InputError(path, "", "cannot be read", "check the path and its permissions") from None


def without_non_finite(text):
    """`text` with NaN and Infinity, which Google Benchmark writes, replaced by null."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|-?(?:NaN|nan|Infinity|inf)', lambda found: found[1] or "null", text)


def parse_json(text, name):
    """Refuses NaN and Infinity, numbers beyond double precision and keys given twice; `name` stands for the file."""

    def refuse(word):
        raise InputError(name, "", f"is not valid JSON: {word}", "numbers must be finite")

    def number(digits):
        value = float(digits)
        if math.isinf(value):
            raise InputError(name, "", "holds a number beyond double precision", "write a finite number")
        return int(digits) if re.fullmatch(r"-?\d{1,18}", digits) else value

    def unique(pairs):
        values = dict(pairs)
        for key, _ in pairs if len(values) < len(pairs) else ():
            if sum(key == other for other, _ in pairs) > 1:
                raise InputError(name, key, "is given twice", "keep one of them")
        return values

    try:
        return json.loads(text, parse_constant=refuse, parse_float=number, parse_int=number, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}:{error.lineno}", "", f"is not valid JSON: {error.msg}",
                         "numbers must be finite and plain, strings quoted, no comma before a closing bracket") from None
    except RecursionError:
        raise InputError(name, "", "is nested too deeply", "flatten it") from None


class Fields:
    """One object being read. Each method returns the field of that name, checked, or `fallback` where there is none."""

    REQUIRED = object()

    def __init__(self, value, file, place=""):
        self.value, self.file, self.place = value, file, place
        if not isinstance(value, dict):
            raise InputError(file, place, f"must be an object, not {TYPES[type(value)]}", "write {…}")

    def path(self, key):
        return f"{self.place}.{key}" if self.place else key

    def error(self, key, problem, remedy):
        return InputError(self.file, self.path(key), problem, remedy)

    def _get(self, key, fallback, kind, remedy):
        if key not in self.value:
            if fallback is Fields.REQUIRED:
                raise self.error(key, "is missing", "add it")
            return fallback
        value = self.value[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            expected = TYPES[kind if isinstance(kind, type) else kind[0]]
            raise self.error(key, f"must be {expected}, not {TYPES[type(value)]}", remedy)
        return value

    def string(self, key, fallback=REQUIRED):
        return self._get(key, fallback, str, "quote it")

    def object(self, key, fallback=REQUIRED):
        return self._get(key, fallback, dict, "write {…}")

    def array(self, key, fallback=REQUIRED):
        return self._get(key, fallback, list, "write […]")

    def number(self, key, high, fallback=REQUIRED):
        """A number from 0 to `high`."""
        value = self._get(key, fallback, (int, float), f"write a number from 0 to {high:g}")
        if value is not fallback and not 0 <= value <= high:
            raise self.error(key, f"{value} is out of range", f"write a number from 0 to {high:g}")
        return value
