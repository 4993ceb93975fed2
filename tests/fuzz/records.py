"""Mutated result records: each is compared with the whole one, or refused with words, whatever it holds.

    records.py [COUNT [SEED]]
"""

import copy
import json
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "plots"))

from stp_plots.files import InputError, parse_json  # noqa: E402
from stp_plots.judge import compare_records  # noqa: E402
from stp_plots.judge.statistics import Rule  # noqa: E402
from stp_plots.page import screen  # noqa: E402
from stp_plots.read import results  # noqa: E402

ODD = (None, True, -1, 0, 1, 1e30, 1e308, -0.0, 10**40, "", "x", "\ud800", "\x00", [], {}, [[]], [None], {"a": None})


def places(value, found):
    """Every container of the value with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            places(value[key], found)
    return found


def mutated(text, dice):
    """The record with some values replaced, removed or doubled; at times with some characters so."""
    record = json.loads(text)
    for _ in range(dice.choice((1, 1, 2, 5))):
        container, key = dice.choice(places(record, []) or [(record, None)])
        if key is None:
            continue
        kind = dice.randrange(3)
        if kind == 0:
            container[key] = copy.deepcopy(dice.choice(ODD))
        elif kind == 1:
            del container[key]
        elif isinstance(container, list):
            container.insert(key, container[key])
    text = json.dumps(record)
    if dice.randrange(4) == 0:
        at = dice.randrange(len(text))
        text = text[:at] + dice.choice(('"', "{", "]", ",", "9", "e9", "\\", "\x7f", "")) + text[at + dice.randrange(3):]
    return text


def main(count=300, seed=1):
    dice, accepted = random.Random(int(seed)), 0
    whole = (ROOT / "results/reference/simulated/timelines.json").read_text(encoding="utf-8")
    other = results.read(parse_json(whole, "whole"), "whole")
    for i in range(int(count)):
        text = mutated(whole, dice)
        try:
            content = parse_json(text, "f")
            if not results.recognises(content):
                continue
            comparison = compare_records.compare({"A": other, "B": results.read(content, "f")}, Rule(least_difference=0.05))
            json.dumps(comparison, allow_nan=False)
            screen.show(comparison | {"schema_version": "1.0.0"}, False)
            accepted += 1
        except InputError:
            pass
        except Exception:
            Path("record-found.json").write_text(text, encoding="utf-8", errors="surrogatepass")
            print(f"input {i}: record-found.json")
            raise
    print(f"{count} inputs: {accepted} compared, the others refused")
    return 0 if 0 < accepted < int(count) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
