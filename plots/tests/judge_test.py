"""Figures of records and null models, on rows of which the answer is known by hand."""

import unittest
from unittest import mock

from records_for_test import UNIT_COSTS, experiment, kept, line, row
from stp_plots import words
from stp_plots.judge import null_model, suggestions
from stp_plots.read import records


class DataTest(unittest.TestCase):
    def test_gain_is_over_the_named_baseline(self):
        rows = [row(name) for name in ("1f1b-i", "zb-v", "stp")]
        rows[1]["throughput_samples_per_s"] = 1.0
        self.assertEqual(experiment(rows).baseline, "1f1b-i")
        found = experiment(rows, "zb-v", scenario={"compare": {"gain": {"of": "stp", "over": "zb-v"}}})
        self.assertEqual(found.baseline, "zb-v")
        gain = found.figure("gain").loc[2]
        self.assertEqual((gain["ours"], gain["published"], gain["calibrated"], gain["error"]), (100, 0, False, 100))

    def test_memory_fitted_at_one_m_is_fitted_at_all(self):
        found = experiment([row(microbatches=8, calibration=True), row(microbatches=16), row("zb-v", microbatches=16)])
        self.assertEqual(list(found.figure("memory")["calibrated"]), [True, True, False])
        self.assertEqual(list(found.figure("throughput")["calibrated"]), [True, False, False])
        self.assertEqual(len(found.compared("memory")), 2)  # that of the same schedule is shown once

    def test_errors_are_those_of_the_summary(self):
        for one in kept():
            for name, quantity in records.QUANTITIES.items():
                frame = one.compared(name)
                recorded = one.line.get(f"{'tp_share' if name == 'tp_share' else name}_error_mean")
                if recorded is not None:
                    self.assertAlmostEqual(frame[~frame["calibrated"]]["error"].abs().mean(), recorded, msg=f"{one.id} {quantity.title}")

    def test_rows_that_repeat_others_are_calibrated_where_those_are(self):
        fields = ("schedule", "cluster", "model", "seq", "tp", "pp", "microbatches", "throughput_samples_per_s")
        key = lambda data: tuple(data.get(field) for field in fields)  # noqa: E731
        [given] = [one for one in kept() if one.id == "llm-a800"]
        known = {key(row.data): row.calibrated for row in given.rows.itertuples()}
        for one in kept():
            rows = [row for row in one.rows.itertuples() if row.data.get("published") and key(row.data) in known]
            self.assertEqual([row.name for row in rows if row.calibrated != known[key(row.data)]], [], one.id)

    def test_configurations_are_labelled_by_their_differences(self):
        rows = [row(recompute=recompute, sequence_parallel=recompute != "full") for recompute in ("full", "selective")]
        labels = list(experiment(rows).rows["label"])
        self.assertEqual(labels, ["llm, s 4096 × 1, TP4 PP2, recompute full, without sequence parallel",
                                  "llm, s 4096 × 1, TP4 PP2, recompute selective, with sequence parallel"])  # fmt: skip
        with mock.patch.object(words, "AXES", (*words.AXES, "ep")):  # an axis is known from there alone
            self.assertEqual(list(experiment([row(ep=2, dp=3)]).rows["label"]), ["llm, s 4096 × 1, TP4 PP2 DP3 EP2"])
        # What comes out of a row is no setting, and what a row has not needs no label.
        rows = [row(post_validation=value, fits=fits) for value, fits in ((None, "yes"), (True, "no"))] + [row(post_validation=True, microbatches=16)]
        self.assertEqual(list(experiment(rows).rows["label"].unique()), ["llm, s 4096 × 1, TP4 PP2", "llm, s 4096 × 1, TP4 PP2, with post validation"])
        # Their own names say it all.
        named = [row(recompute=value, name=value.upper()) for value in ("full", "selective")]
        self.assertEqual(list(experiment(named).rows["label"]), [f"llm, s 4096 × 1, TP4 PP2, {name}" for name in ("FULL", "SELECTIVE")])

    def test_numbers(self):
        self.assertEqual(words.percent(-0.00001), "0.0 %")
        self.assertEqual(words.percent(-0.05), "−5.0 %")
        self.assertEqual([words.published(value) for value in (6.6, 13.0, 10.1, 41, 4.58, 104.0, 7.40153)],
                         ["6.60", "13.0", "10.1", "41", "4.58", "104", "7.402"])  # fmt: skip
        self.assertEqual([words.magnitude(value) for value in (None, float("nan"), 0, 1234.5, 0.02)], ["–", "–", "0", "1234", "0.0200"])

    def test_unit_costs_in_words(self):
        costs = {**UNIT_COSTS, "attn.W_early": 0.25, "head.F": 2, "p2p": 0, "odd": "x"}
        self.assertEqual(records.unit_costs({"unit_costs": costs, "layers_per_chunk": [4, 4]}), "F 1, I 1, W 2, all-reduce 0.25, head.F 2")
        text = records.unit_costs({"unit_costs": UNIT_COSTS, "layers_per_chunk": [4, 3]})
        self.assertEqual(text, "F 0.25, I 0.25, W 0.25, all-reduce 0.0625 per layer")
        self.assertEqual([records.unit_costs({"unit_costs": odd}) for odd in (None, {}, [1], "x")], [""] * 4)
        by_rank = {"unit_costs": {**UNIT_COSTS, "head.F": [1, 2]}}
        self.assertEqual([records.unit_costs({**by_rank, **more}) for more in ({}, {"name": "4B"})], ["costs by rank", "4B"])


class NullModelTest(unittest.TestCase):
    """On rows of which the answer is known by hand."""

    def rows(self):
        """Calibrated at TP4: a gain of 20 % at m 16; two new configurations, at TP4 and TP8, whose samples take twice the FLOPs."""
        rows = []
        for tp, seq, m, published in ((4, 4096, 16, (2.0, 2.4)), (4, 4096, 8, (1.9, 2.2)), (4, 8192, 16, (1.25, 1.4)), (8, 8192, 16, (1.0, 1.3))):
            for name, theirs, ours in (("1f1b-i", published[0], 1.0), ("stp", published[1], 1.1)):
                rows.append(row(
                    name, tp=tp, seq=seq, microbatches=m, throughput_samples_per_s=ours, mfu=ours * seq / 40960, calibration=(seq, m) == (4096, 16),
                    published={"throughput_samples_per_s": theirs}, difference={"throughput_samples_per_s": ours / theirs - 1},
                ))  # fmt: skip
        return rows

    def test_gains_are_carried_over(self):
        found = null_model.gain_errors(experiment(self.rows()), "stp")
        self.assertEqual([round(error, 6) for error in found["null_error"]], [round(20 - 100 * (2.2 / 1.9 - 1), 6), 8.0, -10.0])
        self.assertEqual([round(error, 6) for error in found["error"][1:]], [-2.0, -20.0])
        self.assertEqual(list(found["new"]), [False, True, True])

    def test_throughput_is_carried_over_at_equal_mfu(self):
        found = null_model.errors(experiment(self.rows()), "throughput").set_index(["schedule", "label", "m"])["null"]
        self.assertAlmostEqual(found["stp", "llm, s 4096 × 1, TP4 PP2", "8"], 2.4)
        self.assertAlmostEqual(found["1f1b-i", "llm, s 8192 × 1, TP4 PP2", "16"], 1.0)
        self.assertAlmostEqual(found["stp", "llm, s 8192 × 1, TP8 PP2", "16"], 1.2)  # no calibrated row has TP8

    def test_memory_is_carried_over_by_tokens(self):
        rows = self.rows()
        for each in rows:
            each["published"]["peak_memory_gb"], each["difference"]["peak_memory_gb"] = 10.0, 2.0
        given = experiment(rows, scenario={"models": {"llm": {"hidden_size": 64, "num_hidden_layers": 4}}})
        self.assertTrue(null_model.has(given, "memory"))
        self.assertEqual(sorted(null_model.errors(given, "memory")["null"]), [10.0, 10.0, 20.0, 20.0])
        self.assertFalse(null_model.has(experiment(rows), "memory"))

    def test_the_textbook_bubble_shrinks_with_m(self):
        # Two ranks, two chunks: (p - 1) / (v m) is 1/32 at the calibrated m of 16, 1/16 at 8; of it stp has a third.
        given = experiment([{**each, "layers_per_chunk": [2] * 4} for each in self.rows()])
        found = null_model.errors(given, "throughput").set_index(["schedule", "label", "m"])["bubble"]
        place = ("llm, s 4096 × 1, TP4 PP2", "8")
        self.assertAlmostEqual(found["1f1b-i", *place], 2.0 * (1 + 1 / 32) / (1 + 1 / 16))
        self.assertAlmostEqual(found["stp", *place], 2.4 * (1 + 1 / 96) / (1 + 1 / 48))
        gains = null_model.gain_errors(given, "stp")
        self.assertAlmostEqual(gains["bubble"].iloc[0], 100 * (found["stp", *place] / found["1f1b-i", *place] - 1))
        self.assertEqual(null_model.better(gains), "null")

    def test_without_a_textbook_bubble_there_is_one_null_model(self):
        for rows in (self.rows(), [{**each, "layers_per_chunk": [2] * 4, "schedule": each["schedule"].replace("stp", "own")} for each in self.rows()]):
            found = null_model.gain_errors(experiment(rows), rows[-1]["schedule"])
            self.assertTrue(found["bubble_error"].isna().all())
            self.assertEqual(null_model.better(found), "null")

    def test_memory_of_two_known_tps_is_on_a_line(self):
        rows = [row("stp", model="llm", tp=tp, calibration=tp > 2, published={"peak_memory_gb": published}, difference={"peak_memory_gb": 0.1})
                for tp, published in ((8, 10.0), (4, 14.0), (2, 1.0))]  # fmt: skip
        given = experiment(rows, scenario={"models": {"llm": {"hidden_size": 64, "num_hidden_layers": 4}}})
        self.assertAlmostEqual(null_model.errors(given, "memory")["null"].iloc[0], 22.0)  # 6 + 32/TP

    def test_the_null_model_knows_what_the_list_of_saved_tensors_was_completed_with(self):
        (h20,) = (one for one in kept() if one.id == "llm-h20")
        known = null_model.memories(h20).set_index(["schedule", "label"])["null"]
        for schedule, published in (("1f1b-i", 31), ("zb-v", 24), ("stp", 43)):  # of A800, Table 5
            self.assertAlmostEqual(known[schedule, "llm-12.1b, s 6144 × 1, TP8 PP2"], published)
        self.assertEqual(null_model.errors(h20, "memory")["new"].sum(), 15)

    def test_pairs(self):
        order = [{"row": 2 * i, "other": 2 * i + 1, "apart": True, "right": True} for i in range(4)]
        count = null_model.pairs(experiment(self.rows(), order=order))
        self.assertEqual((count.total, count.calibrated, count.far, count.far_right, count.far_null, count.near), (4, 1, 3, 3, {"null": 3}, 0))

    def test_suggestions_of_the_null_model_are_of_the_schedule_that_is_fastest_over_calibrated_rows(self):
        with mock.patch.object(suggestions, "MEASURED", ("a",)):  # three groups of two schedules at one TP
            self.assertEqual(suggestions.totals([experiment(self.rows())]), ["3", "3", "3", "3", "3", "0"])

    def test_nothing_is_carried_over_from_nothing(self):
        given = experiment([{**each, "calibration": False} for each in self.rows()])
        self.assertFalse(null_model.has(given))
        self.assertFalse(null_model.table([given]))
