"""Bubble against memory: a line for a schedule at many memory limits, a labelled point for each other."""

from stp_plots.draw import style

NEAR = 1.2  # ratio of two memories whose labels would overlap
OFFSETS = (3, -13, -25)  # of their labels, points


def draw(line, points, title):
    """`line`: its name and (memory, bubble) by limit; `points`: by name (memory, bubble)."""
    style.set_up()
    colours = style.schedule_colours(points)
    figure = style.new_figure(style.FULL_WIDTH, 5.6)
    axes = figure.subplots()
    name, found = line
    axes.plot(*zip(*found), color=style.INK, marker="o", markersize=4, linewidth=1.2, zorder=3)
    axes.annotate(name, found[0], xytext=(-8, -3), textcoords="offset points", ha="right")
    before, level = (0, None), 0
    for other, (memory, bubble) in sorted(points.items(), key=lambda item: item[1][::-1]):
        level = (level + 1) % len(OFFSETS) if bubble == before[1] and memory < NEAR * before[0] else 0
        before = memory, bubble
        axes.plot(memory, bubble, marker="D", color=colours[other], markersize=6, zorder=4)
        axes.annotate(other, before, xytext=(6, OFFSETS[level]), textcoords="offset points")
    places = [*found, *points.values()]
    low, high = 0.7 * min(memory for memory, _ in places), 1.3 * max(memory for memory, _ in places)
    axes.set_xscale("log")
    style.log_axis(axes.xaxis, low, high)
    axes.set_xlim(low, high)
    axes.set_ylim(0, 1.12 * max(bubble for _, bubble in places))
    axes.set_xlabel("most activations of a rank, held until W, in microbatches of one layer")
    axes.set_ylabel("bubble, in passes of one layer")
    axes.set_title(title)
    return figure
