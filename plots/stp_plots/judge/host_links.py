"""Offload against recomputation: from which speed of the link between device and host on it is faster."""

import numpy as np

from stp_plots import words
from stp_plots.words import dictionary, number

LINKS = ("device_to_host_gb_per_s", "host_to_device_gb_per_s")  # values of a profile


class Links:
    """What one schedule does with one model: step times by speed of the link, and without offload.

    `curves`: by offload ratio (speeds in GB/s, step times), both sorted by speed; `others`: by name the step time of rows
    without offload."""

    def __init__(self, rows):
        self.curves, self.others, by_ratio = {}, {}, {}
        for row in rows.itertuples():
            speed, ratio = _speed(row.data), number(row.data.get("offload_ratio"))
            if ratio and speed:
                by_ratio.setdefault(ratio, {})[speed] = row.step_time
            elif not ratio and speed is None:
                self.others[_recomputed(row.data)] = row.step_time
        for ratio, times in by_ratio.items():
            speeds = sorted(times)
            self.curves[ratio] = np.array(speeds), np.array([times[speed] for speed in speeds])

    def comparable(self):
        return bool(self.others) and any(len(speeds) > 1 for speeds, _ in self.curves.values())

    def crossovers(self, ratio):
        """By recomputation the speed from which on offload is faster, where it is among those simulated; between these a copy takes as
        long as its link is slow."""
        speeds, times = self.curves[ratio]
        found = {}
        for name, alone in self.others.items():
            slower = np.flatnonzero(times > alone)
            if len(slower) and slower[-1] + 1 < len(speeds):
                last = slower[-1]
                share = (alone - times[last]) / (times[last + 1] - times[last])
                found[name] = 1 / (1 / speeds[last] + share * (1 / speeds[last + 1] - 1 / speeds[last]))
        return found


def _speed(data):
    """The speed of a row's links, if it is the row's own and the same both ways."""
    speeds = {number(dictionary(data.get("cluster_values")).get(name)) for name in LINKS}
    speed = speeds.pop() if len(speeds) == 1 else None
    return speed if speed and speed > 0 else None


def _recomputed(data):
    kind = words.text(data.get("recompute", "none"))
    return "nothing offloaded or recomputed" if kind == "none" else f"{kind} recomputed"


def groups(experiment):
    """Per configuration and m of one schedule: its Links, where there are links to compare."""
    frame = experiment.figure("throughput").dropna(subset=["ours", "step_time"])
    if not any(_speed(data) for data in frame["data"]):
        return {}
    found = {key: Links(rows) for key, rows in frame.groupby(["base", "schedule", "m"], sort=False)}
    return {key: links for key, links in found.items() if links.comparable()}
