"""The report against synthetic result folders of every odd kind.

python3 plots/report_test.py
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report
from stp_plots import (
    ablation, bars, breakdown, claims, contention, fidelity, page, pairs, records, sensitivity, style, timelines, words,
)  # fmt: skip
from closed_forms_test import ClosedFormsTest  # noqa: F401
from synthetic import SVG, FolderTest, line, pair, record, row, unit_row


class ReportTest(FolderTest):
    def test_published_scenario_has_all_plots(self):
        rows = [row(name, microbatches=m, calibration=m == 16) for m in (8, 16) for name in ("1f1b-i", "zb-v", "stp")]
        page, source = self.report(a=record(rows))
        names = ("breakdown", "errors", "gain", "memory", "scatter", "throughput")
        self.assertEqual(self.plots(), [f"plot-a-{name}.png" for name in names])
        self.assertEqual(page.rows(), 6)
        self.assertEqual(sum(tag == "img" for tag, _ in page.elements), 6)
        for text in ("calibrated", "predicted", "Table 6", "nothing ran on a GPU", "2.50", "−20.0", "abc"):
            self.assertIn(text, source)

    def test_unit_costs(self):
        page, source = self.report(a=record([unit_row("1f1b-i"), unit_row("stp")]))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-step-time.png"])
        self.assertEqual(page.rows(), 2)
        self.assertIn("units of the cost table", source)

    def test_contention(self):
        rows = [
            row(name, contention=on, throughput_samples_per_s=speed + (not on))
            for on in (True, False)
            for name, speed in (("1f1b-i", 2.0), ("stp", 2.5))
        ]
        for each in rows:
            each["difference"] = {"throughput_samples_per_s": each["throughput_samples_per_s"] / 2.5 - 1}
        page, source = self.report(a=record(rows))
        self.assertEqual(self.plots(), ["plot-a-contention.png"])
        self.assertEqual(page.rows(), 4)
        for text in ("with contention", "−20.0", "+40.0", "10.0 % with contention, 30.0 % without"):
            self.assertIn(text, source)
        # One of them alone is a scenario like any other.
        scenario = records.Scenario(line("a"), record(rows[:3]), "a.json")
        self.assertEqual(contention.groups(scenario), [])

    def sensitivity_of(self, rows, **fields):
        """An analysis of two values; the first moves 1F1B-I by −10 and +20 %, STP not at all; the second nothing."""
        told = []
        for each in rows:
            base = each["throughput_samples_per_s"]
            ends = {"smaller": 0.9 * base, "larger": 1.2 * base} if each["schedule"] == "1f1b-i" else {}
            still = {"smaller": base, "larger": base}
            told.append({**{key: each.get(key) for key in sensitivity.KEY}, "throughput_samples_per_s": base,
                         "changed": {"a_value": {**still, **ends}, "b_value": still}})  # fmt: skip
        values = [{"name": "b_value", "fitted": True}, {"name": "a_value", "fitted": False}]
        return {"scenario": "a", "change": 0.2, "values": values, "rows": told, **fields}

    def test_sensitivity(self):
        rows = [row("1f1b-i"), row("stp", throughput_samples_per_s=3.0)]
        (self.folder / "sensitivity-a.json").write_text(json.dumps(self.sensitivity_of(rows)))
        _, source = self.report(a=record(rows))
        self.assertIn("plot-a-sensitivity.png", self.plots())
        self.assertIn("The gain hangs most on a_value (+16.67 and −25.00), b_value (0.00 and 0.00) points.", source)
        self.assertIn("Thin lines at the largest m", source)

    def test_sensitivity_of_other_predictions_is_not_shown(self):
        rows = [row("1f1b-i"), row("stp", throughput_samples_per_s=3.0)]
        (self.folder / "sensitivity-a.json").write_text(json.dumps(self.sensitivity_of(rows)))
        rows[1]["throughput_samples_per_s"] = 3.001
        _, source = self.report(a=record(rows))
        self.assertNotIn("plot-a-sensitivity.png", self.plots())
        self.assertNotIn("Thin lines at the largest m", source)

    def test_bands_are_roots_of_sums_of_squares(self):
        rows = [row("1f1b-i"), row("stp", throughput_samples_per_s=3.0)]
        analysis = self.sensitivity_of(rows)
        analysis["rows"][0]["changed"]["b_value"] = {"smaller": 1.85, "larger": 2.0}
        scenario = records.Scenario(line("a"), record(rows), "a.json")
        band = sensitivity.Sensitivity(analysis)
        self.assertTrue(band.fits(scenario))
        low, high = band.throughput_band(scenario.rows[0])
        self.assertAlmostEqual(low, 2.0 - 0.25)  # of 0.2 and 0.15
        self.assertAlmostEqual(high, 2.4)
        low, high = band.gain_band(scenario.rows[1], scenario.rows[0])
        self.assertAlmostEqual(low, 25.0)  # 3 over 2.4

    def test_errors_stand_by_table(self):
        named = {"throughput_samples_per_s": 2.5, "peak_memory_gb": 33, "tables": ["Table 5", "Table 6"]}
        rows = [row(microbatches=m, published=named, calibration=m == 16) for m in (8, 16, 32)]
        rows[2]["difference"] = {"throughput_samples_per_s": 0.4, "peak_memory_gb": -1 / 11}
        _, source = self.report(a=(record(rows), {"verdict": "deviates"}))
        text = " ".join(re.sub("<[^>]*>", " ", source[source.index("Errors by table") :]).split())
        self.assertIn("Throughput Table 6 predicted 2 30.00 % +40.0 %", text)
        self.assertIn("Throughput Table 6 calibrated 1 20.00 % −20.0 %", text)
        self.assertIn("Peak memory Table 5 calibrated 1 9.09 % −9.1 %", text)
        self.assertNotIn("Throughput Table 5", text)

    def test_claims_stand_on_the_page(self):
        kept = Path(report.__file__).resolve().parents[1] / "results/reference/simulated"
        for file in kept.glob("*.json"):
            (self.folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
        told = claims.of_folder(self.folder)
        self.assertGreater(len(told), 20)
        scenarios = []
        source = page.render(scenarios, {}, told)
        self.assertIn("Where we do not reproduce, and why", source)
        self.assertEqual(source.count("<code>stp reproduce"), sum(one.verdict != claims.OPEN for one in told))
        for one in told:
            if one.verdict != claims.GOOD:
                self.assertTrue(one.reason)
        # A folder of other scenarios has none.
        self.write(a=record([row()]))
        self.assertEqual(claims.of_folder(self.folder), [])

    def test_share_of_communication(self):
        published = {"tables": ["Figure 1"], "tp_communication_share": 0.25}
        rows = [
            row(tp=8, tp_communication_share=0.2, published=published, difference={"tp_communication_share": -0.2}),
            row(tp=4, tp_communication_share=0.125, published=None, difference=None),
        ]
        page, source = self.report(a=record(rows))
        self.assertEqual(self.plots(), ["plot-a-tp-share.png"])
        for text in ("20.0", "25.0", "12.5", "−20.0 %", "no published figure"):
            self.assertIn(text, source)

    def test_ablation(self):
        gains = {("1f1b-i", "static"): 1, ("stp", "sequential"): 1.01, ("1f1b-i-braided", "static"): 1.1, ("stp", "static"): 1.2}
        rows = [row(name, braid=braid, throughput_samples_per_s=10.0 * gain) for (name, braid), gain in gains.items()]
        asked = {"title": "X", "compare": {"gain": {"of": "stp", "over": "1f1b-i"}}}
        page, source = self.report(a=record(rows, scenario=asked))
        self.assertEqual(self.plots(), ["plot-a-ablation.png", "plot-a-breakdown.png"])
        self.assertEqual(page.rows(), 4)
        for gain in ("+1.00", "+18.81", "+10.00", "+9.09", "+20.00"):  # order, then braids; braids, then order; both
            self.assertIn(f'">{gain}</td>', source)
        # Without one of the four it is a scenario like any other.
        scenario = records.Scenario(line("a"), record(rows[:3], scenario=asked), "a.json")
        self.assertEqual(ablation.cells(scenario), [])

    def pairs_record(self, *told, **scenario):
        content = record([], scenario={"title": "X", "cluster": "a800", **scenario}, pairs=list(told))
        del content["rows"]
        return content

    def test_pairs(self):
        page, source = self.report(a=(self.pairs_record(pair(), pair("two")), {"verdict": "reproduced"}))
        self.assertEqual(self.plots(), ["plot-a-overlap.png"])
        self.assertEqual(sum(count for kind, count in page.row_tables if kind == "cross"), 2 * 3 + 1)
        text = " ".join(re.sub("<[^>]*>", " ", source).split())
        for words_of in (
            "2 pairs of a matrix product and an all-reduce, simulated, on a800",
            "64 × 32 × 16, 0.5 MiB among 4",
            "one published 2.500 1.000 3.500 2.750 – +10.0 % – – – 0.250 0.750",
            "one together from the published times alone 2.500 1.000 3.500 2.640 −4.00 +10.0 % +11.0 % 0.83 0.90 0.200 0.800",
            "2.000 1.000 3.000 2.200 −20.00 +10.0 % +11.0 % 0.83 0.90 0.200 0.800",
            "one: together −4.0 % from the published times alone, −20.0 % from the shapes",
        ):
            self.assertIn(words_of, text)
        self.assertNotIn("alibrated:", text)
        self.assertNotIn("unit of the cost table", text)

    def test_pairs_that_the_profile_comes_from_are_hatched(self):
        fitted = self.pairs_record(pair(), calibrated="all rates")
        _, source = self.report(a=fitted)
        self.assertIn("Calibrated: all rates; their agreement is no evidence.", source)
        style.set_up()
        scenario = records.Scenario(line("a"), fitted, "a.json")
        self.assertEqual([bar.calibrated for _, drawn in pairs.groups(scenario, scenario.pairs[0]) for bar in drawn], [False] * 3 + [True, False])

    def test_odd_pairs(self):
        bare = {key: pair()[key] for key in ("name", "gemm", "all_reduce", "gemm_s", "all_reduce_s", "serial_s", "figures")}
        odd = {
            "unpublished": [bare],
            "nulls": [dict.fromkeys(pair())],
            "empty": [{}],
            "types": [{key: 3 for key in pair()}, pair(name=["x"], published="no", figures=[1])],
            "many": [pair(str(i)) for i in range(7)],
            "text": [pair("<script>$x^$" + "x" * 200)],
        }
        _, source = self.report(**{name: self.pairs_record(*told) for name, told in odd.items()})
        self.assertNotIn("<script", source)
        self.assertIn("7 pairs", source)
        self.assertEqual(len(self.plots()), 4)  # of those that have a time to draw

    def test_odd_rows(self):
        odd = {
            "single": [row()],
            "empty": [],
            "no_fields": [{"schedule": "stp"}, {}],
            "nulls": [{key: None for key in row()}],
            "only_memory": [row(published={"peak_memory_gb": 40}, difference=None)],
            "only_tables": [row(published={"tables": ["Table 9"]}, difference=None)],
            "published_zero": [row(published={"throughput_samples_per_s": 0}, difference=None)],
            "no_throughput": [row(throughput_samples_per_s=None, step_time_s=0, step_time_repeats_s=[0, 0])],
            "no_baseline": [row("1f1b-i", microbatches=4), row("stp")],
            "no_ranks": [row(ranks=[]), row("zb-v", ranks=None)],
            "half_ranks": [row(ranks=[{"compute_s": 1.0}, 3])],
            "same_twice": [unit_row(), unit_row(), unit_row()],
            "unknown": [row(colour="red", nested={"a": [1]}), row(colour="blue", nested={"a": [2]})],
            "many_schedules": [row(f"schedule-{i}" + "x" * (i % 40)) for i in range(24)],
            "many_ranks": [row(pp=64, ranks=row()["ranks"] * 32)],
            "many_models": [row(model=f"model-{i}", cluster=f"c{i % 2}") for i in range(10)],
            "repeats": [row(step_time_repeats_s=[3.5, 4.0, 5.0]), unit_row("zb-v", step_time_repeats_s=[1, 2])],
            "odd_types": [row(tp="four", microbatches="many", pp=None, seq=1.5, model=7)],
            "long_names": [row("s" * 300, model="m" * 300)],
            "huge": [row(throughput_samples_per_s=1e12, peak_memory_gb=1e-9)],
            "negative": [row("1f1b-i"), row("zb-v", throughput_samples_per_s=0.5)],
            "all_calibrated": [row(calibration=True)],
        }
        page, _ = self.report(**{name: record(rows) for name, rows in odd.items()})
        self.assertEqual(page.rows(), sum(map(len, odd.values())))

    def test_odd_records(self):
        bare = {"rows": [row()]}
        page, _ = self.report(
            bare=bare, results={"results": [row()]}, future=record([row()], evidence="divined", new={"a": 1})
        )
        self.assertEqual(page.rows(), 3)

    def test_summary_is_told(self):
        marks = [
            {"mark": "throughput_error_mean", "value": 0.125, "tolerance": 0.03, "met": False},
            {"mark": "gain_error_points_mean", "value": None, "tolerance": 1.5, "met": True},
            {"mark": "pairs_right", "value": 2, "tolerance": 2, "met": True},
            {"mark": "unheard of"},
        ]
        fitted = {"error": 0.0123, "row": "fitted row"}
        fields = {
            "marks": marks, "verdict": "deviates", "reason": "a mark is missed", "throughput_error_mean": 0.125,
            "throughput_error_worst": {"error": 0.2, "row": "the worst <row>"},
            "calibrated": {"throughput_error_mean": 0.01, "throughput_error_worst": fitted},
        }  # fmt: skip
        _, source = self.report(a=(record([row()]), fields))
        for text in (
            "12.50 %",
            "the worst &lt;row&gt;",
            "1.23 %",
            "fitted row",
            "missed",
            "all 2",
            "deviates",
            "at most 3 %",
        ):
            self.assertIn(text, source)

    def test_text_is_escaped(self):
        evil = "<script>alert('$1')</script>&\"$x^$\n"
        rows = [
            row(evil, model=evil, cluster=evil, published={"throughput_samples_per_s": 2, "tables": [evil]}),
            row("1f1b-i"),
        ]
        content = record(
            rows, evidence=evil, scenario={"title": evil}, provenance={"argv": [evil], evil: evil}, system={evil: evil}
        )
        page, source = self.report(a=(content, {"verdict": evil, "reason": evil, "marks": [{"mark": evil}]}))
        self.assertNotIn("<script", source)
        self.assertIn("&lt;script&gt;", source)
        self.assertEqual(page.rows(), 2)

    def test_timelines_stand_inline(self):
        self.write(a=record([unit_row()]), **{"a-b": record([unit_row()])})
        drawing = SVG.format(
            "<style>.F { fill: red } #g, svg { fill: url(#g) }</style>"
            '<g id="g" onclick="x()"><title>F0.1</title></g><rect class="F" fill="url(#g)"/>'
            '<script>alert(1)</script><image href="http://example.org/x"/>'
        )
        (self.folder / "timeline-a-stp-m1.svg").write_text(drawing)
        (self.folder / "timeline-a-b-stp-m1.svg").write_text(drawing)
        (self.folder / "timeline-a-broken.svg").write_text("<svg")
        (self.folder / "timeline-a-media.svg").write_text(SVG.format("<style>@media print {}</style>"))
        page, source = self.report(a=record([unit_row()]), **{"a-b": record([unit_row()])})
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(sum(tag == "svg" for tag, _ in page.elements), 2)
        self.assertIn("#timeline-0-0 .F {", source)
        self.assertIn("timeline-a-broken.svg holds no drawing", source)
        self.assertIn("data:image/svg+xml;base64,", source)

    def test_an_unreadable_folder_is_one_line(self):
        cases = {
            "nothing": {},
            "not json": {"summary.json": "{"},
            "a list": {"summary.json": "[]"},
            "no experiments": {"summary.json": "{}"},
            "no record": {"summary.json": json.dumps({"experiments": [line("a")]})},
            "no rows": {"summary.json": json.dumps({"experiments": [line("a")]}), "a.json": "{}"},
            "bad pairs": {"summary.json": json.dumps({"experiments": [line("a")]}), "a.json": '{"pairs": [1]}'},
            "pairs of none": {"summary.json": json.dumps({"experiments": [line("a")]}), "a.json": '{"pairs": []}'},
            "bad rows": {"summary.json": json.dumps({"experiments": [line("a")]}), "a.json": '{"rows": [1]}'},
        }
        for name, files in cases.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                for file, content in files.items():
                    (Path(folder) / file).write_text(content)
                run = subprocess.run(
                    [sys.executable, report.__file__, folder], capture_output=True, text=True, check=False
                )
                self.assertEqual((run.returncode, run.stdout), (1, ""))
                self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
                self.assertFalse((Path(folder) / "report.html").exists())

    def test_the_same_folder_gives_the_same_page(self):
        pages = [self.report(a=record([row("1f1b-i"), row()]))[1] for _ in range(2)]
        self.assertEqual(*pages)


class PlotTest(unittest.TestCase):
    def setUp(self):
        style.set_up()
        rows = [
            row(name, microbatches=m, tp=tp) for m in (8, 16) for tp in (4, 8) for name in ("1f1b-i", "zb-v", "stp")
        ]
        rows[1]["throughput_samples_per_s"] = 1.0
        self.scenario = records.Scenario(line("a"), record(rows), "a.json")
        self.colours = style.schedule_colours(self.scenario.schedules)

    def test_magnitudes_start_at_zero(self):
        for maker in (bars.throughput, bars.step_time, bars.memory, breakdown.breakdown):
            for axes in maker(self.scenario, self.colours).figure.axes:
                self.assertEqual(axes.get_ylim()[0], 0, maker.__name__)
                for bar in axes.patches:
                    self.assertGreaterEqual(bar.get_y(), 0)
        for axes in fidelity.scatter(self.scenario, self.colours).figure.axes:
            self.assertEqual((axes.get_xlim()[0], axes.get_ylim()[0]), (0, 0))
            self.assertEqual(axes.get_xlim(), axes.get_ylim())

    def test_everything_lies_within_its_axes(self):
        for maker in (bars.throughput, bars.gain, bars.memory):
            for axes in maker(self.scenario, self.colours).figure.axes:
                low, high = axes.get_ylim()
                self.assertLessEqual(low, 0)
                ends = [end for bar in axes.patches for end in (bar.get_y(), bar.get_y() + bar.get_height())]
                ends += [y for line in axes.lines if line.get_marker() == "D" for y in line.get_ydata()]
                self.assertTrue(all(low <= end <= high for end in ends), maker.__name__)

    def test_pairs_start_at_zero_and_lie_within_their_axes(self):
        both = records.Scenario(line("a"), {"pairs": [pair(), pair("two", gemm_s=9.0)]}, "a.json")
        for axes in pairs.plot(both, {}).figure.axes:
            low, high = axes.get_ylim()
            self.assertEqual(low, 0)
            self.assertTrue(axes.patches)
            self.assertTrue(all(bar.get_y() == 0 and bar.get_height() <= high for bar in axes.patches))
        self.assertTrue(axes.figure.axes[0].get_ylabel())

    def test_every_axis_is_labelled(self):
        for maker in (bars.throughput, bars.step_time, bars.gain, bars.memory, breakdown.breakdown, fidelity.scatter):
            self.assertTrue(maker(self.scenario, self.colours).figure.axes[0].get_ylabel())

    def test_known_schedules_keep_their_colours(self):
        self.assertEqual(style.schedule_colours(["x", "stp"])["stp"], self.colours["stp"])
        many = style.schedule_colours([*style.SCHEDULE_COLOURS, "x", "y"])
        self.assertEqual(len(set(many.values())), len(many))

    def test_gain_is_over_the_named_baseline(self):
        self.assertEqual(self.scenario.baseline(), "1f1b-i")
        self.scenario.line["compare"] = {"gain": {"of": "stp", "over": "zb-v"}}
        self.assertEqual(self.scenario.baseline(), "zb-v")
        ours, theirs, fitted = self.scenario.gain(self.scenario.rows[2])
        self.assertEqual((ours, theirs, fitted), (100, 0, False))

    def test_memory_fitted_at_one_m_is_fitted_at_all(self):
        rows = [row(microbatches=8, calibration=True), row(microbatches=16), row("zb-v", microbatches=16)]
        scenario = records.Scenario(line("a"), record(rows), "a.json")
        self.assertEqual([r.fitted("memory") for r in scenario.rows], [True, True, False])
        self.assertEqual([r.fitted("throughput") for r in scenario.rows], [True, False, False])


class WordsTest(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual(words.percent(-0.00001), "0.0 %")
        self.assertEqual(words.percent(-0.05), "−5.0 %")
        self.assertEqual([words.published_text(v) for v in (6.6, 13.0, 10.1, 41, 4.58, 104.25)],
                         ["6.60", "13.0", "10.1", "41", "4.58", "104.25"])  # fmt: skip

    def test_scoped_styles(self):
        scoped = timelines.scope("svg text, .F { a: b }", "t")
        self.assertEqual(" ".join(scoped.split()), "#t svg text, #t .F { a: b }")


if __name__ == "__main__":
    unittest.main()
