"""Numbers and sentences for captions, tables and alternative texts."""

from .values import text

EVIDENCE = {
    "measured": "the program ran on real devices of this world size and was timed by the devices' own clock.",
    "replayed": "one rank's real kernels ran on a real device at full size; paced transfers stood for its peers.",
    "emulated": "the real runtime ran, on devices whose kernels only take time, paced by a cost table.",
    "simulated": "the program was replayed in virtual time; nothing ran on a GPU.",
    "published": "the figure is the paper's own.",
}

MINUS = "\N{MINUS SIGN}"


def signed(value, digits=1):
    """A signed decimal; what rounds to zero has no sign."""
    rounded = f"{abs(value):.{digits}f}"
    if float(rounded) == 0:
        return rounded
    return ("+" if value > 0 else MINUS) + rounded


def percent(share, digits=1):
    return "–" if share is None else signed(100 * share, digits) + " %"


def plain_percent(share, digits=1):
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def points(value, digits=1):
    return "–" if value is None else signed(value, digits)


def magnitude(value):
    """Enough digits to set beside the paper's three."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e6:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:.0f}"
    digits = 1 if size >= 100 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{value:.{digits}f}"


def count(number, noun):
    return f"{number} {noun}" + ("" if number == 1 else "s")


def time_unit(scenario):
    return "units of the cost table" if scenario.unit_costs else "s"


def worst(scenario, name, fitted):
    """The row with the largest difference from the published figure, or None."""
    rows = [row for row in scenario.rows if row.difference(name) is not None and row.fitted(name) == fitted]
    return max(rows, key=lambda row: abs(row.difference(name)), default=None)


def mean_error(scenario, name, fitted):
    errors = [
        abs(row.difference(name))
        for row in scenario.rows
        if row.difference(name) is not None and row.fitted(name) == fitted
    ]
    return (sum(errors) / len(errors), len(errors)) if errors else (None, 0)


def error_note(scenario, name):
    """A sentence on the errors of predicted rows."""
    mean, rows = mean_error(scenario, name, False)
    if mean is None:
        return " No predicted row has a published figure." if scenario.has_published(name) else ""
    row = worst(scenario, name, False)
    sentence = f" Over {count(rows, 'predicted row')} the mean absolute difference is {plain_percent(mean)}"
    return sentence + f"; the largest is {percent(row.difference(name))} ({row.name()})."


alt_error = error_note


def gain_errors(scenario, fitted):
    """(error in points, row) of every gain that is known on both sides."""
    errors = []
    for row in scenario.rows:
        ours, theirs, in_fit = scenario.gain(row)
        if ours is not None and theirs is not None and in_fit == fitted:
            errors.append((ours - theirs, row))
    return errors


def gain_note(scenario):
    """Sentences on the predicted gains, per schedule: the summary's mark is about one of them."""
    errors = gain_errors(scenario, False)
    if not errors:
        return ""
    means = []
    for name in scenario.schedules:
        of_name = [abs(error) for error, row in errors if row.schedule == name]
        if of_name:
            means.append(f"{name} {sum(of_name) / len(of_name):.2f}")
    error, row = max(errors, key=lambda pair: abs(pair[0]))
    return (
        f" Mean absolute error of the predicted gains, in percentage points: {', '.join(means)}; "
        f"the largest is {signed(error, 2)} ({row.name()})."
    )


def hatched_note(scenario, name):
    if not any(row.fitted(name) for row in scenario.rows):
        return ""
    return " Hatched bars belong to rows that the cost model was fitted to: their agreement is no evidence."


def unmarked_note(scenario, name):
    unmarked = any(row.figure(name) is not None and row.published(name) is None for row in scenario.rows)
    return " The paper prints no figure for bars without a diamond." if unmarked else ""


def spread_note(scenario):
    return " Thin lines span all repeats." if any(len(row.repeats()) > 1 for row in scenario.rows) else ""


def listing(values, write, most=12):
    """Values with their rows, for an alternative text."""
    told = "; ".join(f"{row.name()}: {write(value)}" for value, row in values[:most])
    return told + ("; and more, see the table." if len(values) > most else ".")


def published_text(value):
    """As printed: three digits at least, unless it is a whole number of tens or more."""
    if value is None:
        return "–"
    if isinstance(value, int) or float(f"{value:.3g}") != value:
        return text(value)
    return f"{value:#.3g}".rstrip(".")
