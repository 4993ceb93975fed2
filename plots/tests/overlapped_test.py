"""The table of GEMMs beside all-reduces, from benchmarks made up so that every figure is known."""

import re
import unittest

from stp_plots.judge import compare_benchmarks, overlapped
from stp_plots.judge.statistics import Rule
from stp_plots.page.screen import beside_text, show
from stp_plots.read import benchmarks


def row(name, gemm, reduce, gemm_beside, reduce_beside, size, ranks, times=8, **more):
    """Repetitions of a pair, µs, as microbench/overlap.cc reports it."""
    together = max(gemm_beside, reduce_beside)
    figures = {"m": 512, "n": 64, "k": 32, "ranks": ranks, "size": size, "compute_alone_us": gemm, "communication_alone_us": reduce,
               "compute_slowdown": gemm_beside / gemm - 1, "communication_slowdown": reduce_beside / reduce - 1,
               "exposed_share": (together - gemm) / reduce, "saved_us": gemm + reduce - together, **more}
    one = {"name": f"overlap/{name}", "run_name": f"overlap/{name}", "run_type": "iteration", "real_time": together, "cpu_time": 1,
           "time_unit": "us", "iterations": 1, **figures}
    return [one] * times


# Of 400 µs of all-reduce, 300 are hidden behind 600 µs; (600 + 400) / 700 − 1 = 43 %, of (600 + 400) / 600 − 1 = 67 %.
HIDDEN = row("m/gate_up/ranks:4/size:4194304", 600, 400, 700, 500, 4 << 20, 4)
# Nothing is hidden. 2 ranks: the bus carries a message once.
SERIAL = row("m/gate_up/ranks:2/size:1048576", 100, 100, 150, 200, 1 << 20, 2)
SMALL = row("m/gate_up/ranks:2/size:524288", 100, 50, 100, 25, 1 << 19, 2)
FEW = row("m/gate_up/ranks:8/size:65536", 100, 100, 100, 100, 1 << 16, 8, times=5, oversubscribed=1)
CTAS = row("m/gate_up/ranks:2/size:1048576/ctas:4", 100, 100, 110, 180, 1 << 20, 2)


def file(*rows, **context):
    content = {"context": {"host_processor_model_name": "P9", "backend": "cpu", "type": "float32", **context}, "benchmarks": sum(rows, [])}
    return benchmarks.read(content, "f.json")


def overlaps(*rows):
    cells = {name: compare_benchmarks.cell_of(one, Rule())[0] for name, one in file(*rows).rows.items()}
    return overlapped.overlaps(cells)


def lines(text):
    return [re.split(r"  +", line.strip()) for line in text.splitlines()]


class OverlapTable(unittest.TestCase):
    def test_figures_are_the_closed_forms(self):
        (one,) = overlaps(HIDDEN)
        self.assertAlmostEqual(one.bus_bytes_per_s, (4 << 20) / 400e-6 * 1.5, 3)
        for found, known in ((one.gemm_factor, 7 / 6), (one.reduce_factor, 1.25), (one.hidden, 0.75), (one.gain, 3 / 7), (one.most_gain, 2 / 3)):
            self.assertAlmostEqual(found, known, 12)

    def test_rows_are_sorted_and_have_units(self):
        text = beside_text([("", "P9", overlaps(HIDDEN, FEW, CTAS, SERIAL, SMALL))])
        self.assertEqual(lines(text)[1:8], [
            ["ranks", "MiB", "GEMM µs", "AR µs", "bus GB/s", "both µs", "GEMM ×", "AR ×", "hidden %", "gain %", "of %"],
            ["m gate_up, 512 × 64 × 32"],
            ["2", "0.5", "100.0", "50.0", "10.49", "100.0", "1.00", "0.50", "100", "50", "50"],
            ["2", "1", "100.0", "100.0", "10.49", "200.0", "1.50", "2.00", "0", "0", "100"],
            ["2 CTAs 4", "1", "100.0", "100.0", "10.49", "180.0", "1.10", "1.80", "20", "11", "100"],
            ["4", "4", "600.0", "400.0", "15.73", "700.0", "1.17", "1.25", "75", "43", "67"],
            ["8!", "0.0625", "100.0", "100.0", "1.15", "100.0", "1.00", "1.00", "–", "–", "100", "too few"],
        ])  # fmt: skip
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_the_sentence_is_over_default_settings_with_a_core_for_each_rank(self):
        self.assertEqual(overlapped.answer("P9", overlaps(HIDDEN, FEW, CTAS, SERIAL, SMALL)),
                         "On P9: a GEMM hides 75 % of the all-reduce beside it (median of 3 cases; 0 to 100 %); the GEMM takes 1.17 times "
                         "as long, the all-reduce 1.25 times; both at once gain 43 % over one after the other, where hiding all would gain "
                         "67 %. Left out: 1 with more ranks than cores.")

    def test_a_share_that_noise_hides_is_not_known(self):
        # The interval of eight values leaves out one at either end.
        for width, known in ((0.3, False), (0.2, True)):
            noise = [{**one, "exposed_share": one["exposed_share"] + shift}
                     for one, shift in zip(SERIAL, [-width, -width, *[0] * 4, width, width])]
            (one,) = overlaps(noise)
            self.assertEqual(one.known, known)
            self.assertAlmostEqual(one.hidden_interval[0], -width)
            self.assertAlmostEqual(one.hidden_interval[1], width)
        self.assertIn("hides 0 % of the all-reduce beside it (one case); the GEMM", overlapped.answer("P9", overlaps(noise, FEW)))
        self.assertIn("it is not known how much of an all-reduce a GEMM hides: in none of 1 case is the hidden share known to within 25 points.", overlapped.answer("P9", overlaps(FEW)))
        self.assertIn(" All have more ranks than cores", overlapped.answer("P9", overlaps(FEW)))

    def test_machines_have_their_names(self):
        gpu = {"accelerator_model_name": "H20", "host_processor_model_name": "P9", "backend": "cuda", "type": "bfloat16"}
        self.assertEqual(overlapped.machine_of(gpu), "H20 (cuda, bfloat16)")
        self.assertEqual(overlapped.machine_of(gpu | {"evidence": "replayed", "peers": "a800"}), "H20 (cuda, bfloat16, links of a800 replayed)")

    def test_two_machines_are_side_by_side(self):
        files = {"A": file(SERIAL, HIDDEN), "B": file(SERIAL, SMALL, host_processor_model_name="Q1")}
        text = show(compare_benchmarks.compare(files, Rule()))
        beside = text[text.index("A GEMM and an all-reduce"):]
        self.assertEqual([one[:2] for one in lines(beside)[3:7]], [["2 B", "0.5"], ["2 A", "1"], ["2 B", "1"], ["4 A", "4"]])
        self.assertIn("A  On P9 (cpu, float32): a GEMM hides 38 %", beside)
        self.assertIn("B  On Q1 (cpu, float32): a GEMM hides 50 %", beside)

    def test_other_benchmarks_have_no_such_table(self):
        self.assertNotIn("all-reduce", show(compare_benchmarks.compare(
            dict.fromkeys("AB", file([{**one, "name": "gemm/x", "run_name": "gemm/x"} for one in SERIAL])), Rule())))
