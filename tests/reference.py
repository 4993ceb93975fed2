#!/usr/bin/env python3
"""Compares a fresh `stp reproduce` with the results in results/reference/simulated.

A change that moves a figure must say so: run `scripts/update_reference.sh` and commit what it writes with the reason.
Usage: reference.py STP_BINARY
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "results/reference/simulated"
# For rows; pairs are compared in every number.
FIGURES = ("step_time_s", "throughput_samples_per_s", "mfu", "mfu_paper", "peak_memory_gb", "idle_s", "peak_activation_chunks")
TOLERANCE = 1e-9  # relative: another compiler may round otherwise
SHOWN = 10


def numbers(value, path=""):
    """Every number in an entry, by where it stands."""
    if isinstance(value, dict):
        return {name: number for key, part in value.items() for name, number in numbers(part, f"{path} {key}".strip()).items()}
    return {path: value} if isinstance(value, (int, float)) else {}


def rows_of(folder):
    """The figures of every row of every record, by experiment and place."""
    rows = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for place, row in enumerate(record.get("rows", [])):
            words = [path.stem, str(place), row["schedule"], f"pp {row['pp']}", f"m {row['microbatches']}"]
            rows[", ".join(words)] = {figure: row[figure] for figure in FIGURES}
        for pair in record.get("pairs", []):
            rows[f"{path.stem}, {pair['name']}"] = numbers(pair)
    return rows


def same(a, b):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "fresh"
        names = sorted(path.stem for path in KEPT.glob("*.json") if path.stem != "summary")
        if not names:
            sys.exit(f"there is no record in {KEPT}")
        subprocess.run([sys.argv[1], "reproduce", *names, "--no-plots", "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
        kept, fresh = rows_of(KEPT), rows_of(out)
    moved = [f"{name}: {'gone' if name in kept else 'new'}" for name in sorted(kept.keys() ^ fresh.keys())]
    for name in sorted(kept.keys() & fresh.keys()):
        for figure in kept[name] | fresh[name]:
            was, now = kept[name].get(figure), fresh[name].get(figure)
            if not same(was, now):
                moved.append(f"{name}: {figure} was {was}, is {now}")
    for line in moved[:SHOWN]:
        print(line)
    if moved:
        sys.exit(f"{len(moved)} figures moved; if they should, run scripts/update_reference.sh and say why")
    print(f"{len(kept)} rows as kept")


if __name__ == "__main__":
    main()
