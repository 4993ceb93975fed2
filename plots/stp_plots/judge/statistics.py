"""Statistics of repeated measurements that assume no distribution, and verdicts by them: which of many things, timed
twice, differ."""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from stp_plots.files import progress

EXACT_BELOW = 50  # values of a sample


def median_interval(values):
    """The interval between the k-th smallest and the k-th largest value, along the last axis, that covers the median of the
    distribution with at least 95 %: how many values lie below that median is binomial (n, 1/2), whatever the distribution. None
    where even the extremes cover less: below six values."""
    values = np.sort(values, axis=-1)
    k = left_out(values.shape[-1])
    return (values[..., k - 1], values[..., -k]) if k else None


@functools.cache
def left_out(count):
    if count < 6:
        return 0
    from scipy import stats  # here: its import takes longer than a comparison of simulated steps, which does not need it

    return int(stats.binom.ppf(0.025, count, 0.5))


def mann_whitney(first, second):
    """The Mann-Whitney U test of two samples along the last axis: scipy's result, and whether it is exact, as it is where there are
    no ties and both hold fewer than 50 values. Else it is the normal approximation, corrected for ties and for continuity."""
    from scipy import stats  # as above

    both = np.sort(np.concatenate([first, second], axis=-1), axis=-1)
    ties = (both[..., 1:] == both[..., :-1]).any()
    exact = bool(not ties and max(np.shape(first)[-1], np.shape(second)[-1]) < EXACT_BELOW)
    return stats.mannwhitneyu(first, second, method="exact" if exact else "asymptotic", axis=-1), exact


def least_p(first, second):
    """The smallest exact p that samples of these sizes can have: two of all orders have every value of one sample above every
    value of the other."""
    return 2 / math.comb(first + second, first)


def holm(p):
    """Holm's step-down correction along the last axis. To reject what is adjusted to α or less keeps the chance of any false
    rejection among all at α, for any dependence between tests."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, axis=-1)
    stepped = np.minimum(1, np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1))
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(stepped, axis=-1), -1)
    return adjusted


def shapley(values):
    """What each of n parts contributes on the way from `values[0]`, with no part, to `values[-1]`, with all; values[s] is with
    the parts whose bits are set in s. Per part (alone, mean): its contribution alone, and the mean over all orders of the parts (Shapley
    value); the means add up."""
    count = len(values).bit_length() - 1
    shares = []
    for part in range(count):
        bit, total = 1 << part, 0.0
        for others in (s for s in range(len(values)) if not s & bit):
            before = others.bit_count()  # orders in which exactly these come first, of all
            weight = math.factorial(before) * math.factorial(count - 1 - before) / math.factorial(count)
            total += weight * (values[others | bit] - values[others])
        shares.append((values[bit] - values[0], total))
    return shares


# ---- verdicts ----


@dataclass
class Rule:
    """The criteria of a difference. Two runs on one machine differ by a few per cent that repetitions within a run do not show
    (memory placement, clocks), so significance alone is not enough."""

    least_difference: float = 0.05  # of the medians, relative: what is less is the same; where noisy, nothing is
    error_rate: float = 0.05  # the chance that anything at all is found where nothing differs
    noisy_above: float = 0.05  # half the interval of a median, relative

    def repetitions_needed(self, comparisons):
        """The fewest repetitions a side with which one of so many comparisons can be significant."""
        return next(n for n in itertools.count(2) if comparisons * least_p(n, n) <= self.error_rate)

    def json(self, comparisons):
        return {"error_rate": self.error_rate, "least_difference": self.least_difference, "noisy_above": self.noisy_above,
                "comparisons": comparisons, "repetitions_needed": self.repetitions_needed(comparisons)}


class Sample:
    """Repetitions of one measurement, in seconds."""

    def __init__(self, values, rule):
        self.values, self.median = np.asarray(values), float(np.median(values))
        interval = median_interval(values)
        self.interval = interval and tuple(map(float, interval))  # 95 %; None for too few values
        half_width = (self.interval[1] - self.interval[0]) / 2 if self.interval else 0
        self.noisy = half_width > rule.noisy_above * abs(self.median)
        # A noisy sample means a disturbed run, and the next run would be disturbed differently: a difference within the
        # sample's own interval does not count either.
        self.open = (half_width / self.median if self.median else math.inf) if self.noisy else 0


def relative(value, base):
    """value / base − 1; None where one of them is missing or the base is 0."""
    change = value / base - 1 if value is not None and base else None
    return change if change is not None and math.isfinite(change) else None


def judge(pairs, rule):
    """Compares all pairs of samples together, so that the rule's error rate holds over all of them. Per pair the second against
    the first: difference of the medians, U, p, adjusted p, and the verdict: "faster", "slower", "same", "inconclusive" for what
    would be the same if a sample were not noisy, or "too few" where so few repetitions among so many comparisons could not have
    shown a difference."""
    tests = [mann_whitney(first.values, second.values) for first, second in progress("comparing", pairs, len(pairs))]
    adjusted = holm([test.pvalue for test, _ in tests])
    left = len(pairs) - np.count_nonzero(adjusted <= rule.error_rate)  # what the next p is multiplied by
    found = []
    for (first, second), (test, exact), adjusted_p in zip(pairs, tests, adjusted):
        verdict = "inconclusive" if first.noisy or second.noisy else "same"
        change = second.median - first.median
        if adjusted_p > rule.error_rate:
            if left * least_p(len(first.values), len(second.values)) > rule.error_rate:
                verdict = "too few"
        elif change and abs(change) >= (rule.least_difference + first.open + second.open) * first.median:
            verdict = "slower" if change > 0 else "faster"
        found.append({"difference": relative(second.median, first.median), "u": float(test.statistic), "p": float(test.pvalue),
                      "exact": exact, "adjusted_p": float(adjusted_p), "verdict": verdict})
    return found
