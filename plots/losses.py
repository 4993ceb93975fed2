#!/usr/bin/env python3
"""Draws the losses of a record of `stp run`: one curve per schedule, over steps.

    losses.py RECORD.json PLOT.png

Where curves coincide, the first is the widest. Exits with 1 and one line on stderr if the record has no losses,
or the plot cannot be written.
"""

import sys

try:
    import pandas as pd
    from stp_plots.draw import one_plot, style
    from stp_plots.files import ReportError
except ImportError as error:
    sys.exit(f"losses.py: numpy, pandas and matplotlib are needed: {error}")

WIDTHS = [7, 4, 1.5, 1]


def draw(record):
    curves = [(row["schedule"], pd.Series(row["losses"], dtype=float)) for row in record.get("results", []) if row.get("losses")]
    if not curves:
        raise ReportError("holds no losses; write it by stp run --json")
    apart = pd.concat([losses for _, losses in curves], axis=1).dropna()
    figure = style.new_figure(7, 4)
    axes, colours = figure.subplots(), style.schedule_colours([schedule for schedule, _ in curves])
    for i, (schedule, losses) in enumerate(curves):
        axes.plot(losses.index + 1, losses, label=schedule, color=colours[schedule], linewidth=WIDTHS[min(i, 3)], solid_capstyle="butt")
    axes.set(xlabel="step", ylabel="loss (mean cross-entropy), nats", ylim=(0, None), xlim=(0, None))
    difference = (apart.max(axis=1) - apart.min(axis=1)).max()
    axes.set_title(f"{record['scenario']['title']}\n{record['evidence']}; the largest difference between curves is {difference:.1e}")
    axes.legend()
    return figure


def main(arguments=None):
    return one_plot.main("losses.py", "Draws the losses of a record of stp run.", draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
