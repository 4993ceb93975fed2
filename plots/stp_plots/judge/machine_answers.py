"""What a comparison of machines begins with: how fast each one is, what makes the difference, and what that rests on. All from
`simulated`, which driver/profile_simulation.h describes."""

import math

import numpy as np

from stp_plots.judge.statistics import shapley


def band(figure, single):
    """The ends between which a figure lies. `single`: for each uncertain value, logarithms of what its ends make of the figure,
    relative to it. They add up as root of the sum of squares, upwards and downwards apart, as of independent values. Logarithms,
    so that no end is negative, and the band of a / b turned over is that of b / a."""
    down, up = (math.hypot(*(max(0.0, *(sign * end for end in ends)) for ends in single)) for sign in (-1, 1))
    return [figure * math.exp(-down), figure * math.exp(up)]


class Machine:
    """A machine's throughputs in every configuration."""

    def __init__(self, simulated, index):
        given, schedules = simulated["machines"][index], simulated["schedules"]
        self.name, self.assumed, self.fitted = given["name"], given["assumed"], given["fitted"]
        self.values = {key: field["value"] for key, field in given["profile"].items() if isinstance(field, dict) and "value" in field}
        self.uncertain = [one["value"] for one in given["uncertain"]]
        # What its own steps determine is varied only where it is another machine's, too.
        self.open = [value for value in self.uncertain if value not in self.fitted]
        self.rows, self.varied = [], []  # by configuration: rows by schedule; by value, at both ends, throughputs by schedule
        for line in simulated["configurations"]:
            self.rows.append(line["rows"][index :: len(simulated["machines"])])
            self.varied.append({one["value"]: [dict(enumerate(end)) for end in one["samples_per_s"]] for one in line["varied"][index]})
        self.schedules = range(len(schedules))

    def holds(self, line):
        """The schedules that run and fit into the memory."""
        return {schedule for schedule in self.schedules if self.rows[line][schedule].get("fits") == "all"}

    def speed(self, lines, value=None, end=0):
        """Mean logarithm of the best throughput. `lines`: (configuration, schedules to choose from); `value` goes to its `end`."""
        best = []
        for line, schedules in lines:
            given = {schedule: self.rows[line][schedule]["throughput_samples_per_s"] for schedule in schedules}
            if value is not None:
                at_end = self.varied[line][value][end]
                given = {schedule: at_end[schedule] or own for schedule, own in given.items()}
            best.append(max(given.values()))
        return float(np.mean(np.log(best)))

    def moved(self, lines, value):
        """How much a value moves that at both ends."""
        return np.array([self.speed(lines, value, end) for end in (0, 1)]) - self.speed(lines)


def variations(machine, first, lines):
    """How much each uncertain value moves machine / first, or the first's own throughput if `machine` is the first. A number that
    is uncertain on both and the same is one unknown: it goes to its ends on both at once."""
    found = []
    alike = [value for value in machine.uncertain if value in first.uncertain and machine.values[value] == first.values[value]]
    for value in machine.uncertain:
        if value in machine.fitted and (machine is first or value not in alike):
            continue
        both = machine is not first and value in alike
        moved = machine.moved(lines, value) - (first.moved(lines, value) if both else 0)
        found.append(({"value": value, "machines": [first.name, machine.name] if both else [machine.name]}, value, moved))
    if machine is not first:
        found += [({"value": value, "machines": [first.name]}, None, -first.moved(lines, value))
                  for value in first.open if value not in alike]
    found.sort(key=lambda one: -np.abs(one[2]).max())
    return [{**one, "assumed": value in machine.assumed, "factors": np.exp(moved).tolist()} for one, value, moved in found]


def parts_of(machine, lines, simulated):
    """The factors of machine / first by the group of properties that makes them (Shapley); their product is the whole."""
    logs = {}
    for line, schedules in lines:
        (mixture,) = [one for one in simulated["configurations"][line]["mixtures"] if one["machine"] == machine.name]
        best = [math.log(max(filter(None, map(of_set.__getitem__, schedules)))) for of_set in mixture["samples_per_s"]]
        for part, (_, mean) in zip(mixture["parts"], shapley(best)):
            logs.setdefault(part, []).append(mean)
    return {part: math.exp(np.mean(some)) for part, some in logs.items()}


def gains_by_tp(machine, simulated):
    """The gain that the comparison asks for, by TP: mean over the configurations that fit with both schedules, and its band. Empty
    if one of the two is not simulated."""
    names, gain, found = simulated["schedules"], simulated["gain"], {}
    if not {gain["of"], gain["over"]}.issubset(names):
        return []
    pair = [names.index(gain[key]) for key in ("of", "over")]
    for line, configuration in enumerate(simulated["configurations"]):
        counts = found.setdefault(configuration["tp"], [])
        if machine.holds(line).issuperset(pair):
            counts.append(line)

    def mean(lines, value=None, end=0):
        ours, base = (machine.speed([(line, [schedule]) for line in lines], value, end) for schedule in pair)
        return ours - base

    gains = []
    for tp, lines in sorted(found.items()):
        if lines:
            own = mean(lines)
            ends = band(math.exp(own), [[mean(lines, value, end) - own for end in (0, 1)] for value in machine.open])
        gains.append({"tp": tp, "configurations": len(lines), "mean": math.expm1(own) if lines else None,
                      "band": [end - 1 for end in ends] if lines else None})
    return gains


def published_errors(machine):
    """How far throughputs are from those published for the same rows."""
    pairs = [(row["throughput_samples_per_s"], (row.get("published") or {}).get("throughput_samples_per_s"))
             for line in machine.rows for row in line if "refused" not in row]
    errors = [abs(ours / theirs - 1) for ours, theirs in pairs if theirs]
    return {"rows": len(errors), "error_mean": float(np.mean(errors)) if errors else None}


def answer(machine, first, simulated):
    own = machine is first
    every = range(len(simulated["configurations"]))
    lines = [(line, machine.holds(line) & first.holds(line)) for line in every]
    lines = [(line, schedules) for line, schedules in lines if schedules]
    fitted, assumed = len(machine.fitted), len(machine.assumed)
    said = {"machine": machine.name, "configurations": len(lines), "of": len(every), "values": len(machine.values),
            "assumed": assumed, "fitted": fitted, "sourced": len(machine.values) - fitted - assumed,
            "too_small": [one.name for one in dict.fromkeys((first, machine)) if not all(map(one.holds, every))],
            "gains": gains_by_tp(machine, simulated), "published": published_errors(machine),
            "times": None, "band": None, "band_without_assumed": None, "parts": {}, "variations": []}
    if not lines:
        return said
    times = 1.0 if own else math.exp(machine.speed(lines) - first.speed(lines))
    found = variations(machine, first, lines)
    logs, known = ([np.log(one["factors"]) for one in found if one["assumed"] <= some] for some in (True, False))
    return {**said, "times": times, "band": band(times, logs), "band_without_assumed": band(times, known),
            "parts": {} if own else parts_of(machine, lines, simulated), "variations": found}


def answers(simulated):
    """By machine, as results/schema/comparison.schema.json has it."""
    machines = [Machine(simulated, index) for index in range(len(simulated["machines"]))]
    return [answer(machine, machines[0], simulated) for machine in machines]
