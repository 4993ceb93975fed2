"""Progress on a terminal's standard error, as the program stp shows it; none in a pipe."""

import sys


def progress(label, items, total):
    """The items, one after the other, with a line "label: 3 of 9" that disappears behind the last."""
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
