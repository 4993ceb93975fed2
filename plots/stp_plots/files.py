"""Files are read with errors that name them, and written whole or not at all. Records of stp itself are read as they are; what a user
names is read strictly, as lib/stp/base/json_input.h does: every error names file, field and remedy."""

import fcntl
import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the source tree, or of the installed data
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
    """The file `path`, or standard input if it is "-"."""
    try:
        with open("/dev/stdin" if path == "-" else path, "rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(path, "", f"is larger than {LARGEST >> 20} MiB", "name a smaller file")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "", "holds bytes that are not UTF-8", "save it as UTF-8 text") from None
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
        raise InputError(f"{name}:{error.lineno}:{error.colno}", "", f"is not valid JSON: {error.msg}",
                         "numbers must be finite and plain, strings quoted, no comma before a closing bracket") from None
    except RecursionError:
        raise InputError(name, "", "is nested too deeply", "flatten it") from None


class ReportError(Exception):
    """The output cannot be drawn; the message gives the reason in one line."""


def read_json(path):
    """The object in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ReportError(f"{path}: is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ReportError(f"{path}: is not a JSON object")
    return content


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


def write_whole(path, content):
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ReportError(f"{path}: cannot be written ({error.strerror})") from None


def write_new(path, content):
    """Writes completely or not at all, and never over a file that another process created after stp checked."""
    if Path(path).is_char_device():  # such as /dev/null
        Path(path).write_bytes(content)
        return
    try:
        # As lib/stp/base/partial.h: what is not locked is left of a killed run, and the next one removes it.
        file = tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", prefix=".stp-partial-")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(path, "", "cannot be created", "check that its folder exists and may be written") from None
    with file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            raise InputError(path, "", "exists, and results are never overwritten",
                             "name another file or move this one") from None


def progress(label, items, total):
    """The items, one after the other; on a terminal's standard error a line "label: 3 of 9", as the program stp shows it, that disappears
    behind the last."""
    if not sys.stderr.isatty():
        yield from items
        return
    try:
        print(f"\r{label}: 0 of {total}", end="", file=sys.stderr, flush=True)
        for done, item in enumerate(items, 1):
            yield item
            print(f"\r{label}: {done} of {total}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
