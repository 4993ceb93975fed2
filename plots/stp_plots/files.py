"""Files are read with errors that name them, and written whole or not at all."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of the source tree, or of the installed data


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


def write_whole(path, content):
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ReportError(f"{path}: cannot be written ({error.strerror})") from None
