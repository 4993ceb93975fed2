"""Errors against published figures, as sentences for captions. Errors over predicted and over calibrated rows stand apart; an
experiment that nothing published judges has none: its rows only agree with published ones in what these say."""

from stp_plots import words


def note(experiment, name):
    """A sentence on the errors of predicted rows."""
    frame = experiment.compared(name)
    frame = frame[~frame["calibrated"] & ~experiment.alone]
    if frame.empty:
        return " No predicted row has a published value." if experiment.counted(name) else ""
    worst = frame.loc[frame["error"].abs().idxmax()]
    mean = words.plain_percent(frame["error"].abs().mean(), 2)
    return (
        f" Mean absolute error over {words.count(len(frame), 'predicted row')}: {mean}; maximum: "
        f"{words.percent(worst['error'])} ({worst['name']})."
    )


def gain_note(experiment):
    """Sentences on the predicted gains, per schedule: the acceptance criterion is about one of them."""
    frame = experiment.compared("gain")
    frame = frame[~frame["calibrated"] & ~experiment.alone]
    if frame.empty:
        return ""
    means = frame["error"].abs().groupby(frame["schedule"], sort=False).mean()
    worst = frame.loc[frame["error"].abs().idxmax()]
    return (
        f" Mean absolute error of the predicted gains, in percentage points: "
        f"{', '.join(f'{name} {mean:.2f}' for name, mean in means.items())}; maximum: {words.signed(worst['error'])} ({worst['name']})."
    )
