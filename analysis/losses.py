"""Draws the losses of a record of `stp run`: one curve per schedule, over steps.

    losses.py RECORD.json PLOT.png

Curves that lie on each other are told apart by how they are drawn. Exits with 1 and one line on stderr if the record has no
losses, or the plot cannot be written.
"""

import argparse
import json
import sys
from pathlib import Path


def curves(record):
    """Label and losses of each row that has some."""
    found = []
    for row in record.get("results", []):
        if row.get("losses"):
            found.append((row["schedule"], row["losses"]))
    return found


def spread(found):
    """The largest difference between any two curves at one step."""
    steps = min(len(losses) for _, losses in found)
    return max(max(values) - min(values) for values in zip(*(losses[:steps] for _, losses in found)))


def draw(record, found, out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    widths = [7, 4, 1.5, 1]  # the first lies widest below
    for index, (label, losses) in enumerate(found):
        axes.plot(range(1, len(losses) + 1), losses, label=label, linewidth=widths[min(index, 3)], solid_capstyle="butt")
    axes.set(xlabel="step", ylabel="loss (mean cross-entropy)", ylim=(0, None), xlim=(0, None))
    axes.set_title(f"{record['scenario']['title']}\n{record['evidence']}; the curves differ by {spread(found):.1e} at most", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("plot", type=Path)
    arguments = parser.parse_args()
    try:
        record = json.loads(arguments.record.read_text(encoding="utf-8"))
        found = curves(record)
        if not found:
            raise ValueError("holds no losses; write it by stp run --json")
        draw(record, found, arguments.plot)
    except (OSError, ValueError, KeyError) as error:
        print(f"{arguments.record}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
