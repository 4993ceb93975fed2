"""The plots of comparisons, on small files written by hand: the drawing matches the file."""

import unittest

import compare
from stp_plots.draw import comparisons, style
from stp_plots.files import InputError


def record_cell(throughput, step, interval=None, schedule="stp"):
    return {"schedule": schedule, "throughput_samples_per_s": throughput, "step_time_s": step,
            "step_time_interval_s": interval, "against_first": None, "prediction": None}  # fmt: skip


def records(rows, evidence=("simulated", "simulated"), **fields):
    files = [{"label": label, "scenario": "s", "evidence": kind} for label, kind in zip("AB", evidence)]
    return {"kind": "records", "files": files, "differs": [], "predictions": [], "rows": rows, **fields}


CONFIGURATION = {"model": "m", "seq": 8, "microbatch_size": 2, "tp": 4, "pp": 2, "microbatches": 6}


def benchmark_cell(median, verdict=None, interval=None, noisy=False):
    against = verdict and {"difference": median - 1, "verdict": verdict}
    return {"median_s": median, "interval_s": interval, "noisy": noisy, "against_first": against}


def benchmarks(rows):
    return {"kind": "benchmarks", "files": [{"label": "A", "path": "a"}, {"label": "B", "path": "b"}],
            "rule": {"error_rate": 0.05, "least_difference": 0.05, "noisy_above": 0.05, "comparisons": len(rows)},
            "rows": rows}  # fmt: skip


def profiles(**fields):
    machines = [{"name": name, "contention_compute": 0.8, "contention_all_reduce": 0.9} for name in ("a", "b")]
    cells = [{"throughput_samples_per_s": 2.0, "fits": "all", "published_samples_per_s": 2.5},
             {"throughput_samples_per_s": 3.0, "fits": "nothing", "published_samples_per_s": None}]  # fmt: skip
    parts = {name: {"alone": 0.0, "shapley": 0.0} for name in comparisons.PARTS}
    parts |= {"compute": {"alone": 0.0, "shapley": -0.03}, "memory": {"alone": 0.0, "shapley": 0.01}}
    return {
        "kind": "profiles", "machines": machines, "schedules": ["stp"], "gain": {"of": "stp", "over": "1f1b-i"},
        "throughput": [{"configuration": CONFIGURATION, "schedules": [{"schedule": "stp", "cells": cells}]}],
        "attribution": [{"configuration": CONFIGURATION, "from": "a", "to": "b", "quantities": [
            {"of": "throughput", "schedule": "stp", "from": 2.0, "to": 3.0, "parts": parts},
            {"of": "gain_over_baseline", "schedule": None, "from": 0.05, "to": 0.03, "parts": parts}]}],
        **fields,
    }  # fmt: skip


def bars_of(axes):
    """(base, height) of vertical bars with a height."""
    return [(round(bar.get_y(), 9), round(bar.get_height(), 9)) for bar in axes.patches if bar.get_height()]


def words_of(figure):
    return " ".join(one.get_text() for one in figure.texts) + " ".join(
        one.get_text() for axes in figure.axes for one in [*axes.texts, axes.title, *axes.get_xticklabels()]
    )


def setUpModule():
    style.set_up()


class Records(unittest.TestCase):
    def test_a_bar_per_file_from_zero_with_its_interval(self):
        rows = [{"configuration": CONFIGURATION, "cells": [record_cell(4.0, 2.0), record_cell(2.0, 4.0, [3.2, 5.0])]}]
        figure = comparisons.plot_records(records(rows))
        (axes,) = figure.axes
        self.assertEqual(bars_of(axes), [(0, 4.0), (0, 2.0)])
        self.assertEqual(axes.get_ylim()[0], 0)
        (spread,) = [segment for lines in axes.collections for segment in lines.get_segments()]
        self.assertEqual([round(y, 9) for _, y in spread], [1.6, 2.5])
        self.assertEqual(axes.get_title(loc="left"), "m, s 8 × 2\nTP4 PP2, m 6")
        self.assertNotIn("evidence", words_of(figure))

    def test_rows_of_one_file_are_counted_and_differing_evidence_is_named(self):
        rows = [
            {"configuration": CONFIGURATION, "cells": [record_cell(4.0, 2.0), record_cell(2.0, 4.0)]},
            {"configuration": CONFIGURATION, "cells": [None, record_cell(1.0, 4.0, schedule="zb-v")]},
        ]
        errors = {"predicted_by": "A", "actual": "B", "predicted_evidence": "simulated", "actual_evidence": "measured",
                  "step_error_mean": 0.125, "step_error_worst": -0.25}  # fmt: skip
        said = words_of(comparisons.plot_records(records(rows, ("simulated", "measured"), predictions=[errors])))
        for word in ("1 row that only one file has", "The evidence differs (simulated, measured)", "12.50 %", "−25.00 %"):
            self.assertIn(word, said)


    def test_of_other_numbers_of_gpus_the_throughput_of_one_is_drawn(self):
        differs = [{"field": "gpus", "values": [4, 1]}]
        for tokens, unit, heights in (([300, 600], "tokens/s/GPU", [300, 600]), ([None, None], "samples/s/GPU", [2, 5])):
            cells = [{**record_cell(4.0 + gpus, 4.0), "gpus": gpus, "tokens_per_s_per_gpu": one} for gpus, one in zip((4, 1), tokens)]
            figure = comparisons.plot_records(records([{"configuration": CONFIGURATION, "cells": cells}], differs=differs))
            (axes,) = figure.axes
            self.assertEqual((axes.get_ylabel(), [height for _, height in bars_of(axes)]), (unit, heights))
            self.assertIn("The files differ in gpus: 4 | 1", words_of(figure))


class Benchmarks(unittest.TestCase):
    def test_medians_relative_to_the_first_with_intervals_and_verdicts(self):
        rows = [{"name": "k", "cells": [benchmark_cell(2e-3, interval=[1.9e-3, 2.2e-3]), benchmark_cell(3e-3, "slower", noisy=True)]}]
        figure = comparisons.plot_benchmarks(benchmarks(rows))
        (axes,) = figure.axes
        self.assertEqual([round(bar.get_width(), 6) for bar in axes.patches], [100, 150])
        self.assertEqual(axes.get_xlim()[0], 0)
        (interval,) = [line for line in axes.lines if len(set(line.get_ydata())) == 1]
        self.assertEqual([round(x, 6) for x in interval.get_xdata()], [95, 110])
        self.assertIn("slower (", words_of(figure))
        self.assertIn("noisy)", words_of(figure))

    def test_what_failed_or_is_missing_is_left_out(self):
        rows = [{"name": "k", "cells": [benchmark_cell(1), benchmark_cell(1, "same")]},
                {"name": "failed", "cells": [benchmark_cell(1), {"skipped": "no GPU"}]},
                {"name": "missing", "cells": [None, benchmark_cell(1)]}]  # fmt: skip
        (axes,) = comparisons.plot_benchmarks(benchmarks(rows)).axes
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], ["k"])
        with self.assertRaises(InputError):
            comparisons.plot_benchmarks(benchmarks(rows[1:]))

    def test_of_very_many_those_that_differ_most(self):
        rows = [{"name": f"k{i}", "cells": [benchmark_cell(1), benchmark_cell(1 + i / 1000, "same")]} for i in range(100)]
        figure = comparisons.plot_benchmarks(benchmarks(rows))
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        self.assertEqual(names, [f"k{i}" for i in range(100 - comparisons.ROWS, 100)])
        self.assertIn(f"The {comparisons.ROWS} of 100", words_of(figure))


class Profiles(unittest.TestCase):
    def test_stacks_go_up_and_down_from_zero_and_their_sum_is_marked(self):
        figure = comparisons.plot_profiles(profiles())
        gain, throughput = figure.axes
        self.assertEqual(bars_of(gain), [(0, -3.0), (0, 1.0)])
        self.assertIn([-2.0, -2.0], [[round(y, 9) for y in line.get_ydata()] for line in gain.lines])
        self.assertLess(gain.get_ylim()[0], -3)
        self.assertEqual([label.get_text() for label in gain.get_xticklabels()], ["b\n3.0 % (−2.0)"])
        self.assertEqual(bars_of(throughput), [(0, 2.0), (0, 3.0)])
        self.assertEqual(throughput.get_ylim()[0], 0)
        self.assertEqual([one.get_text() for one in throughput.texts], ["!"])
        said = words_of(figure)
        for word in ("simulated", "Contention is the same", "Shapley"):
            self.assertIn(word, said)

    def test_without_a_gain_the_throughputs_stand_alone(self):
        figure = comparisons.plot_profiles(profiles(attribution=[]))
        self.assertEqual(len(figure.axes), 1)
        self.assertNotIn("Stacks", words_of(figure))

    def test_a_band_is_a_line_on_its_bar(self):
        given = profiles(attribution=[])
        given["throughput"][0]["schedules"][0]["cells"][0]["throughput_band"] = [1.5, 2.75]
        (axes,) = comparisons.plot_profiles(given).axes
        (lines,) = axes.collections
        self.assertEqual([[y for _, y in line] for line in lines.get_segments()], [[1.5, 2.75]])

    def test_a_machine_that_cannot_run_it_has_no_bar(self):
        given = profiles(attribution=[])
        given["throughput"][0]["schedules"][0]["cells"][1] = {"refused": "TP8 is more than the 4 GPUs of a node"}
        self.assertEqual(bars_of(comparisons.plot_profiles(given).axes[0]), [(0, 2.0)])


class Images(unittest.TestCase):
    def test_both_formats_are_the_same_bytes_each_time(self):
        for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
            contents = [compare.image(profiles(), suffix) for _ in range(2)]
            self.assertTrue(contents[0].startswith(start))
            self.assertEqual(*contents)
