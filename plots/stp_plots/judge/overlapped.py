"""A GEMM and an all-reduce alone and at once: rows of `overlap` of bin/microbench. docs/microbench.md defines the figures."""

from dataclasses import dataclass

import numpy as np

from stp_plots import words

UNKNOWN_ABOVE = 0.25  # half the interval of the hidden share
SETTINGS = {"ctas": "CTAs", "multiprocessors": "SMs"}
NEEDED = ("m", "n", "k", "ranks", "size", "compute_alone_us", "communication_alone_us", "compute_slowdown",
          "communication_slowdown", "exposed_share", "saved_us")


@dataclass
class Overlap:
    """Times in seconds. Ratios to times alone are medians over samples, each of which holds all four times."""

    name: str  # of model and linear layer
    gemm: tuple  # m, n, k of a rank
    ranks: int
    size: float  # bytes of the all-reduce
    setting: str  # "CTAs 4"; "": the default
    gemm_s: float
    reduce_s: float
    together_s: float
    interval_s: tuple  # of together_s, 95 %; None with too few repetitions
    noisy: bool
    gemm_factor: float  # time beside the all-reduce / time alone
    reduce_factor: float
    hidden: float  # share of the all-reduce alone
    hidden_interval: tuple  # 95 %; None with too few repetitions
    gain: float  # of both at once over one after the other
    shared: bool  # more ranks than cores

    @property
    def place(self):
        """In a sorted table."""
        return self.name, self.ranks, self.gemm, self.setting, self.size

    @property
    def known(self):
        """Whether the hidden share, and with it the gain, is."""
        return bool(self.hidden_interval) and (self.hidden_interval[1] - self.hidden_interval[0]) / 2 <= UNKNOWN_ABOVE

    @property
    def bus_bytes_per_s(self):
        return self.size / self.reduce_s * 2 * (self.ranks - 1) / self.ranks

    @property
    def most_gain(self):
        """The gain if the shorter were hidden whole and the longer not slowed down."""
        return (self.gemm_s + self.reduce_s) / max(self.gemm_s, self.reduce_s) - 1


def overlap_of(name, cell):
    """Of a row of a comparison (compare_benchmarks.cell_of)."""
    _, model, linear, *settings = name.split("/")
    figures = cell["counters"]
    settings = [part.split(":") for part in settings]
    exposed = cell["counter_intervals"].get("exposed_share", [figures["exposed_share"]] * 2)  # it does not vary
    return Overlap(
        name=f"{model} {linear}", gemm=tuple(int(figures[key]) for key in "mnk"), ranks=int(figures["ranks"]),
        size=figures["size"], gemm_s=figures["compute_alone_us"] / 1e6, reduce_s=figures["communication_alone_us"] / 1e6,
        setting=", ".join(f"{SETTINGS.get(key, key)} {value}" for key, value in (pair for pair in settings if len(pair) == 2)
                          if key not in ("ranks", "size", "iterations", "repeats")),
        together_s=cell["median_s"], interval_s=cell["interval_s"], noisy=cell["noisy"],
        gemm_factor=1 + figures["compute_slowdown"], reduce_factor=1 + figures["communication_slowdown"],
        hidden=1 - figures["exposed_share"], hidden_interval=cell["interval_s"] and (1 - exposed[1], 1 - exposed[0]), gain=figures["saved_us"] / 1e6 / cell["median_s"], shared="oversubscribed" in figures)


def overlaps(cells):
    """Those among `cells`, by name, sorted by shape, ranks, setting and size."""
    found = [overlap_of(name, cell) for name, cell in cells.items()
             if name.startswith("overlap/") and cell and all(key in cell.get("counters", {}) for key in NEEDED)]
    return sorted(found, key=lambda row: row.place)


def machine_of(context):
    """Whose figures they are: "H20 (cuda, bfloat16)"."""
    name = context.get("accelerator_model_name") or context.get("host_processor_model_name") or context.get("host_name", "unknown machine")
    of = [context[key] for key in ("backend", "type") if key in context]
    of += [f"links of {context.get('peers', '?')} replayed"] if context.get("evidence") == "replayed" else []
    return f"{name} ({', '.join(of)})" if of else str(name)


def answer(machine, rows):
    """One sentence on a machine, over rows with the default setting and a core for each rank (over all if there are none) whose
    hidden share is known."""
    rows = [row for row in rows if not row.setting] or rows
    counted = [row for row in rows if not row.shared] or rows
    known = [row for row in counted if row.known]
    left = (" All have more ranks than cores." if counted[0].shared else
            f" Left out: {len(rows) - len(counted)} with more ranks than cores." if len(rows) > len(counted) else "")
    if not known:
        return (f"On {machine}: it is not known how much of an all-reduce a GEMM hides: in none of {words.count(len(counted), 'case')} is the "
                f"hidden share known to within {100 * UNKNOWN_ABOVE:.0f} points. Measure on an idle machine, with more --repetitions.{left}")
    of = {key: [getattr(row, key) for row in known] for key in ("hidden", "gemm_factor", "reduce_factor", "gain", "most_gain")}
    middle = {key: float(np.median(values)) for key, values in of.items()}
    low, high = (round(100 * end(of["hidden"])) for end in (min, max))
    spread = f"median of {len(known)} cases; {low} to {high} %" if len(known) > 1 else "one case"
    return (f"On {machine}: a GEMM hides {100 * middle['hidden']:.0f} % of the all-reduce beside it ({spread}); the GEMM takes {middle['gemm_factor']:.2f} times as "
            f"long, the all-reduce {middle['reduce_factor']:.2f} times; both at once gain {100 * middle['gain']:.0f} % over one after "
            f"the other, where hiding all would gain {100 * middle['most_gain']:.0f} %." +
            (f" Not known: {words.count(len(counted) - len(known), 'more case')}." if len(counted) > len(known) else "") + left)
