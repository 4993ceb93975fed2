"""Fits the values that a hardware profile marks as fitted to the rows that a scenario's "compare.calibration" names."""

import copy
import math

import packages  # noqa: F401, I001 - before what needs them
from scipy.optimize import least_squares
from simulation import reproduce
from stp_plots.words import agrees

DIGITS = 4  # of a fitted value, as written


class Fit:
    """The residuals of the calibration rows as a function of the fitted values."""

    def __init__(self, stp, scenario, profile):
        self.stp, self.profile = stp, profile
        patterns = scenario["compare"]["calibration"]
        self.names = [name for name, value in profile.items() if isinstance(value, dict) and value.get("fitted")]
        # Only configurations that hold a calibration row are simulated, and only its numbers of microbatches.
        self.scenario = {**scenario, "configurations": [], "compare": {"calibration": patterns}}
        for configuration in scenario["configurations"]:
            counts = configuration.get("microbatches", scenario.get("microbatches"))
            for count in counts if isinstance(counts, list) else [counts]:
                one = {**configuration, "microbatches": count}
                row = {**scenario, **one, **one.get("parallel", {})}
                if any(agrees(row, {k: v for k, v in pattern.items() if k != "schedule"}) for pattern in patterns):
                    self.scenario["configurations"].append(one)

    def residuals(self, logs):
        """By row the logarithm of our throughput over the published one; `rows` has both. `logs`: logarithms of the values."""
        trial = copy.deepcopy(self.profile)
        for name, value in zip(self.names, logs):
            trial[name] = {"value": math.exp(value), "source": "trial"}
        rows = reproduce(self.stp, self.scenario, trial)[1]
        self.rows = [(row, row["published"]["throughput_samples_per_s"]) for row in rows if row["calibration"]]
        return [math.log(row["throughput_samples_per_s"] / theirs) for row, theirs in self.rows]

    def solve(self):
        """The values that minimise the sum of squared residuals within their ranges, rounded as they are written, and the
        residuals before that; `rows` has what the rounded values give."""
        low, high = ([math.log(self.profile[name]["range"][end]) for name in self.names] for end in ("from", "to"))
        # Always from the middle of the ranges: the result must not depend on what was committed. Steps of 1e-4 are wide
        # against the rounding of simulated times.
        middle = [(a + b) / 2 for a, b in zip(low, high)]
        found = least_squares(self.residuals, middle, bounds=(low, high), method="dogbox", diff_step=1e-4)
        values = {name: float(f"{math.exp(value):.{DIGITS}g}") for name, value in zip(self.names, found.x)}
        self.residuals([math.log(value) for value in values.values()])
        return values, found.fun

    def at_edge(self, name, value):
        """Whether a value is at an end of its range."""
        return value in (self.profile[name]["range"]["from"], self.profile[name]["range"]["to"])
