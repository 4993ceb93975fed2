"""One GPU's rows of scenario tp-overlap: step time, exposed communication and memory, as bars."""

from stp_plots.draw import bars, style

QUANTITIES = [("step_s", "step time, s"), ("exposed_s", "exposed, s"), ("memory_gb", "peak activations, GB")]


def draw(rows, title):
    """`rows`: dictionaries with `grid`, `method`, `schedule`, and the quantities."""
    style.set_up()
    schedules = list(dict.fromkeys(row["schedule"] for row in rows))
    colours = style.schedule_colours(schedules)

    def sections(quantity):
        made = []
        for grid in dict.fromkeys(row["grid"] for row in rows):
            here = [row for row in rows if row["grid"] == grid]
            groups = [(method, [bars.Bar(colours[row["schedule"]], row[quantity]) for row in here if row["method"] == method])
                      for method in dict.fromkeys(row["method"] for row in here)]  # fmt: skip
            made.append(bars.Section([grid], groups))
        return made

    figure = style.new_figure(style.FULL_WIDTH, 6.2)
    grid = figure.subplots(len(QUANTITIES), 1)
    for axes, (quantity, label) in zip(grid, QUANTITIES):
        bars.draw(axes, sections(quantity), letters=4)
        axes.set_ylabel(label)
    grid[0].set_title(title)
    style.legend(grid[0], style.schedule_handles(schedules, colours))
    return figure
