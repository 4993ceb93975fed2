"""The report on synthetic result folders, also malformed ones: its data, its figures as drawn, its page.

python3 plots/tests/report_test.py
"""

import functools
import itertools
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import report
from records_for_test import UNIT_COSTS, FolderTest, Page, closed_row, experiment, line, pair, record, row, unit_row
from stp_plots import words
from stp_plots.draw import accuracy, breakdown, closed_forms, figures, headline, host_links, overlap, panels, sensitivity, splits, style, times
from stp_plots.judge import claims, measurements, null_model
from stp_plots.page import html, tables
from stp_plots.read import records

KEPT = Path(report.__file__).resolve().parents[1] / "results/reference/simulated"


@functools.cache
def kept():
    """The suite's own experiments."""
    return records.read_folder(KEPT)


class ReportTest(FolderTest):
    def test_published_experiment_has_all_plots(self):
        rows = [row(name, microbatches=m, calibration=m == 16) for m in (8, 16) for name in ("1f1b-i", "zb-v", "stp")]
        page, _ = self.report("files", a=record(rows))
        names = ("breakdown", "errors", "gain", "memory", "scatter", "throughput")
        self.assertEqual(self.plots(), [f"plot-a-{name}.png" for name in names])
        self.assertEqual(len(page.tables[-2]), 2 + 6)  # all rows, below two lines of heads
        images = [attributes for tag, attributes in page.elements if tag == "img"]
        self.assertEqual(len(images), 6)
        self.assertTrue(all(float(one["width"]) < 1100 and one["src"].startswith("data:image/png;base64,iVBOR") for one in images))
        for text in ("calibrated", "predicted", "Table 6", "nothing ran on a GPU", "2.50", "−20.0", "abc"):
            self.assertIn(text, page.text)

    def test_the_first_screen_is_verdicts_and_links(self):
        page, _ = self.report("nothing", a=(record([row()]), {"verdict": "deviates", "throughput_error_mean": 0.2, "calibration_rows": 1}), b=record([row()]))
        self.assertEqual(page.row("X", "deviates"), ["throughput 20.00 %", "–", "1 (1 calibrated)", "simulated"])
        links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
        self.assertEqual(links, ["#experiment-a", "#experiment-b", "#errors", "#provenance"])
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertTrue({link[1:] for link in links} <= set(ids))

    def test_unit_costs(self):
        page, _ = self.report(a=record([unit_row("1f1b-i"), unit_row("stp")]))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-step-time.png"])
        self.assertIn("step, units", page.text)

    def test_contention(self):
        rows = [row(name, contention=on, throughput_samples_per_s=speed + (not on))
                for on in (True, False) for name, speed in (("1f1b-i", 2.0), ("stp", 2.5))]  # fmt: skip
        for each in rows:
            each["difference"] = {"throughput_samples_per_s": each["throughput_samples_per_s"] / 2.5 - 1}
        page, _ = self.report(a=record(rows))
        self.assertEqual(self.plots(), ["plot-a-contention.png"])
        self.assertEqual(page.row("llm, s 4096 × 1, TP4 PP2, m 8", "1f1b-i"), ["2.50", "2.00", "−20.0", "3.00", "+20.0"])
        self.assertIn("10.00 % with contention, 30.00 % without", page.text)
        # One of them alone is an experiment like any other.
        self.assertEqual(splits.contention_groups(experiment(rows[:3])), [])

    def sensitivity_of(self, rows, **fields):
        """An analysis of two values; the first moves 1F1B-I by −10 and +20 %, STP not at all; the second nothing."""
        rows_of_analysis = []
        for each in rows:
            base = each["throughput_samples_per_s"]
            ends = {"smaller": 0.9 * base, "larger": 1.2 * base} if each["schedule"] == "1f1b-i" else {}
            still = {"smaller": base, "larger": base}
            rows_of_analysis.append({**{key: each.get(key) for key in sensitivity.KEY}, "throughput_samples_per_s": base,
                         "changed": {"a_value": {**still, **ends}, "b_value": still}})  # fmt: skip
        values = [{"name": "b_value", "fitted": True}, {"name": "a_value", "fitted": False}]
        return {"scenario": "a", "change": 0.2, "values": values, "rows": rows_of_analysis, **fields}

    def test_sensitivity(self):
        rows = [row("1f1b-i"), row("stp", throughput_samples_per_s=3.0)]
        (self.folder / "sensitivity-a.json").write_text(json.dumps(self.sensitivity_of(rows)))
        page, _ = self.report(a=record(rows))
        self.assertIn("plot-a-sensitivity.png", self.plots())
        self.assertIn("The gain depends most on a_value (+16.67 and −25.00), b_value (0.00 and 0.00) points.", page.text)
        self.assertIn("Thin lines at the largest m", page.text)

    def test_sensitivity_of_other_predictions_is_not_shown(self):
        rows = [row("1f1b-i"), row("stp", throughput_samples_per_s=3.0)]
        (self.folder / "sensitivity-a.json").write_text(json.dumps(self.sensitivity_of(rows)))
        rows[1]["throughput_samples_per_s"] = 3.001
        page, _ = self.report(a=record(rows))
        self.assertNotIn("plot-a-sensitivity.png", self.plots())
        self.assertNotIn("Thin lines at the largest m", page.text)

    def test_bands_are_roots_of_sums_of_squares(self):
        rows = [row("1f1b-i"), row("stp", throughput_samples_per_s=3.0)]
        analysis = self.sensitivity_of(rows)
        analysis["rows"][0]["changed"]["b_value"] = {"smaller": 1.85, "larger": 2.0}
        found = sensitivity.Sensitivity(analysis, experiment(rows))
        self.assertTrue(found.fits())
        band = found.throughput_bands().loc[0]
        self.assertAlmostEqual(band["low"], 2.0 - 0.25)  # of 0.2 and 0.15
        self.assertAlmostEqual(band["high"], 2.4)
        self.assertAlmostEqual(found.gain_bands().loc[1, "low"], 25.0)  # 3 over 2.4

    def test_errors_stand_by_table(self):
        named = {"throughput_samples_per_s": 2.5, "peak_memory_gb": 33, "tables": ["Table 5", "Table 6"]}
        rows = [row(microbatches=m, published=named, calibration=m == 16) for m in (8, 16, 32)]
        rows[2]["difference"] = {"throughput_samples_per_s": 0.4, "peak_memory_gb": -1 / 11}
        page, _ = self.report("nothing", a=(record(rows), {"verdict": "deviates"}))
        self.assertEqual(page.row("throughput", "Table 6", "predicted")[:3], ["2", "30.00 %", "+40.0 %"])
        self.assertEqual(page.row("throughput", "Table 6", "calibrated")[:3], ["1", "20.00 %", "−20.0 %"])
        self.assertEqual(page.row("peak activation memory", "Table 5", "calibrated")[:3], ["1", "9.09 %", "−9.1 %"])
        self.assertNotIn("Throughput Table 5", page.text)

    def test_claims_stand_on_the_page(self):
        experiments = kept()
        evaluated = claims.of_experiments(experiments)
        self.assertGreater(len(evaluated), 20)
        source = html.render(experiments, {}, {}, evaluated)
        self.assertIn("Where we do not reproduce, and why", source)
        self.assertEqual(source.count("<code>stp reproduce"), sum(one.verdict != claims.OPEN for one in evaluated))
        for one in evaluated:
            self.assertEqual(bool(one.reason), one.verdict in (claims.BAD, claims.OPEN))
        # Other experiments have none.
        self.assertEqual(claims.of_experiments([experiment([row()])]), [])

    def test_the_first_screen_is_headline_claims_and_one_plot_of_gains(self):
        experiments = kept()
        evaluated = claims.of_experiments(experiments)
        style.set_up()
        drawn = report.Task(experiments, headline.plot).draw({})
        source = html.render(experiments, {}, {}, evaluated, drawn)
        first = source.partition('<section id="summary">')[2].partition("<nav")[0]
        self.assertEqual((first.count("<table"), first.count("<img")), (1, 1))
        shown = Page(first)
        for one in evaluated:
            if one.headline:
                self.assertEqual(shown.row(one.headline)[2], one.verdict)
        self.assertEqual(shown.row("STP's largest gain over 1F1B-I"), ["12.2 %", "12.3 %", "consistent (calibrated)", "simulated, calibrated"])
        self.assertEqual(shown.row("ZB-V is faster than 1F1B-I, A800")[:3], ["13 of 24 (1 tie)", "6 of 24; gain off by 1.44 points", "deviates"])
        # Tables and further plots are folded: nothing long stands open.
        unfolded = re.sub(r"<details>.*?</details>", "", source, flags=re.DOTALL)
        self.assertLess(max(map(len, Page(unfolded).tables)), 20)

    def test_gains_of_the_first_screen_have_bands_at_the_largest_m(self):
        rows = [row(name, microbatches=m, throughput_samples_per_s=speed) for m in (8, 16) for name, speed in (("1f1b-i", 2.0), ("stp", 3.0))]
        given = experiment(rows)
        given.sensitivity = sensitivity.Sensitivity(self.sensitivity_of(rows[2:]), given)
        found = headline.gains(given).set_index("m")
        self.assertTrue(found.loc["8", ["low", "high"]].isna().all())
        self.assertAlmostEqual(found.loc["16", "low"], 25.0)

        def legend():
            style.set_up()
            return [text.get_text() for text in headline.plot([given]).figure.axes[-1].get_legend().get_texts()]

        self.assertEqual(legend(), ["published", "simulated", "its band, profile ±20 %"])
        given.sensitivity = None
        self.assertEqual(legend(), ["published", "simulated"])

    def test_bubbles_are_those_of_the_rank_that_computes_most(self):
        ranks = [{"compute_s": 3.0, "tp_bubble_s": 0.4, "pp_bubble_s": 0.6}, {"compute_s": 1.0, "tp_bubble_s": 2.0, "pp_bubble_s": 1.0}]
        found = experiment([row(ranks=ranks), row("x", ranks=ranks[::-1])]).rows
        self.assertEqual([*found["tp_bubble"], *found["pp_bubble"]], [0.1, 0.1, 0.15, 0.15])

    def test_figures_of_a_paper_are_shown_as_it_prints_them(self):
        printed = {"throughput_samples_per_s": 2.2222, "step_time_s": 3.6, "tables": ["Another paper, Table 5"]}
        content = row(published=printed, difference={"throughput_samples_per_s": -0.1, "step_time_s": 1 / 9})
        page, source = self.report(a=(record([content]), {"verdict": "deviates"}))
        self.assertEqual(page.row("step time", "Another paper, Table 5", "predicted")[:3], ["1", "11.11 %", "+11.1 %"])
        self.assertIn("its throughput is computed from it", page.text)
        self.assertNotIn("2.22", source)

    def test_share_of_communication(self):
        published = {"tables": ["Figure 1"], "tp_communication_share": 0.25}
        rows = [
            row(tp=8, tp_communication_share=0.2, published=published, difference={"tp_communication_share": -0.2}),
            row(tp=4, tp_communication_share=0.125, published=None, difference=None),
        ]
        page, _ = self.report(a=record(rows))
        self.assertEqual(self.plots(), ["plot-a-tp-share.png"])
        self.assertEqual(page.row("stp", "llm", "a800", "4096", "8", "2", "8")[:4], ["predicted", "20.0", "25.0", "−20.0"])
        self.assertEqual(page.row("stp", "llm", "a800", "4096", "4", "2", "8")[:4], ["nothing published", "12.5", "–", "–"])

    def test_ablation(self):
        gains = {("1f1b-i", "static"): 1, ("stp", "sequential"): 1.01, ("1f1b-i-braided", "static"): 1.1, ("stp", "static"): 1.2}
        rows = [row(name, braid=braid, throughput_samples_per_s=10.0 * gain) for (name, braid), gain in gains.items()]
        asked = {"title": "X", "compare": {"gain": {"of": "stp", "over": "1f1b-i"}}}
        page, _ = self.report(a=record(rows, scenario=asked))
        self.assertEqual(self.plots(), ["plot-a-ablation.png", "plot-a-breakdown.png"])
        # Ordering, then overlap; overlap, then ordering; both.
        self.assertEqual(page.row("llm, s 4096 × 1, TP4 PP2, m 8")[:5], ["+1.00", "+18.81", "+10.00", "+9.09", "+20.00"])
        # Without one of the four it is an experiment like any other.
        self.assertEqual(splits.cells(experiment(rows[:3], scenario=asked)), [])

    def pairs_record(self, *pairs, **scenario):
        content = record([], scenario={"title": "X", "cluster": "a800", **scenario}, pairs=list(pairs))
        del content["rows"]
        return content

    def test_pairs(self):
        page, _ = self.report(a=(self.pairs_record(pair(), pair("two")), {"verdict": "reproduced"}))
        self.assertEqual(self.plots(), ["plot-a-overlap.png"])
        self.assertEqual(page.row("one", "published"), ["2.500", "1.000", "3.500", "2.750", "–", "+10.0 %", "–", "–", "–", "0.250", "0.750"])
        self.assertEqual(page.row("one", "together from the published times alone")[3:5], ["2.640", "−4.00"])
        self.assertEqual(page.row("two", "64 × 32 × 16, 0.5 MiB among 4")[:5], ["2.000", "1.000", "3.000", "2.200", "−20.00"])
        for text in (
            "2 pairs of a GEMM and an all-reduce, simulated, on a800",
            "one: together −4.00 % from the published times alone, −20.00 % from the shapes",
        ):
            self.assertIn(text, page.text)
        self.assertNotIn("alibrated:", page.text)
        self.assertNotIn("units", page.text)

    def test_pairs_that_the_profile_comes_from_are_hatched(self):
        fitted = self.pairs_record(pair(), calibrated="all rates")
        page, _ = self.report(a=fitted)
        self.assertIn("Calibrated: all rates; their agreement is no evidence.", page.text)
        found = records.Experiment(line("a"), fitted, "a.json")
        sections = overlap.sections(found, found.pairs[0])
        self.assertEqual([bar.calibrated for section in sections for bar in section.bars()], [False] * 3 + [True, False])

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
        page, source = self.report(**{name: self.pairs_record(*pairs) for name, pairs in odd.items()})
        self.assertNotIn("<script", source)
        self.assertIn("7 pairs", page.text)
        self.assertEqual(len(self.plots()), 4)  # of those that have a time to draw

    def test_odd_rows(self):
        mixed = [
            row(published={"peak_memory_gb": 40}, difference=None),
            row(published={"tables": ["Table 9"]}, difference=None),
            row(published={"throughput_samples_per_s": 0}, difference=None),
            row(throughput_samples_per_s=None, step_time_s=0, step_time_repeats_s=[0, 0]),
            row("1f1b-i", microbatches=4),  # no baseline at the other m
            row(ranks=[]),
            row("zb-v", ranks=None),
            row(ranks=[{"compute_s": 1.0}, 3]),
            row(colour="red", nested={"a": [1]}),
            row(step_time_repeats_s=[3.5, 4.0, 5.0]),
            unit_row("zb-v", step_time_repeats_s=[1, 2]),
            row(tp="four", microbatches="many", pp=None, seq=1.5, model=7),
            row("s" * 300, model="m" * 300),
            row(throughput_samples_per_s=1e12, peak_memory_gb=1e-9),
            row("zb-v", throughput_samples_per_s=0.5),
        ]
        odd = {
            "empty": [],
            "no_fields": [{"schedule": "stp"}, {}],
            "nulls": [{key: None for key in row()}],
            "mixed": mixed,
            "same_twice": [unit_row(), unit_row(), unit_row()],
            "many_schedules": [row(f"schedule-{i}" + "x" * (i % 40)) for i in range(24)],
            "many_ranks": [row(pp=64, ranks=row()["ranks"] * 32, calibration=True)],
            "many_models": [row(model=f"model-{i}", cluster=f"c{i % 2}") for i in range(10)],
        }
        page, _ = self.report(**{name: record(rows) for name, rows in odd.items()})
        drawn = " ".join(self.plots())
        self.assertEqual([name for name in odd if f"plot-{name}-" in drawn], [name for name in odd if name not in ("empty", "no_fields", "nulls")])
        self.assertEqual([int(amount) for amount in re.findall(r"All rows \((\d+)\)", page.text)], [len(rows) for rows in odd.values() if rows])

    def test_every_odd_row_stands_alone(self):
        """A record of one row that lacks most of what plots and tables show."""
        for fields in ({}, {"published": {"peak_memory_gb": 40}}, {"throughput_samples_per_s": None}, {"ranks": 3}, {"tp": "four", "pp": None}):
            found = experiment([unit_row(**fields)])
            self.assertTrue(report.makers(found))
            self.assertEqual(len(tables.all_rows(found).rows), 1)

    def test_what_fits_into_memory_is_shown(self):
        found = experiment([row(memory_margin_gb=-9.26, published={"fits": True}), row("zb-v", memory_margin_gb=4, published={"fits": False}),
                            row("1f1b-i", memory_margin_gb=1)])  # fmt: skip
        table = tables.all_rows(found)
        self.assertIn(("memory left, GB", 2), table.groups)
        end = table.head.index("step, s")
        self.assertEqual([[line[0], *line[end - 2 : end]] for line in table.rows],
                         [["stp", "−9.3", "runs"], ["zb-v", "+4.0", "out of memory"], ["1f1b-i", "+1.0", "–"]])  # fmt: skip
        self.assertNotIn(("memory left, GB", 2), tables.all_rows(experiment([row(memory_margin_gb=1)])).groups)

    def test_odd_records(self):
        bare = {"rows": [unit_row()]}
        future = record([unit_row()], evidence="divined", new={"a": 1})
        page, _ = self.report("nothing", bare=bare, results={"results": [unit_row()]}, future=future)
        self.assertEqual(page.text.count("All rows (1)"), 3)
        self.assertIn("divined not explained in this report.", page.text)

    def test_summary_is_shown(self):
        marks = [
            {"mark": "throughput_error_mean", "value": 0.125, "tolerance": 0.03, "met": False},
            {"mark": "throughput_error_worst", "value": 0.2, "tolerance": 0.09, "met": False},
            {"mark": "gain_error_points_mean", "value": None, "tolerance": 1.5, "met": True},
            {"mark": "pairs_right", "value": 2, "tolerance": 2, "met": True},
            {"mark": "unheard of"},
        ]
        fitted = {"error": 0.0123, "row": "fitted row"}
        fields = {
            "marks": marks, "verdict": "deviates", "reason": "an acceptance criterion is missed", "throughput_error_mean": 0.125,
            "throughput_error_worst": {"error": 0.2, "row": "the worst <row>"},
            "calibrated": {"throughput_error_mean": 0.01, "throughput_error_worst": fitted},
        }  # fmt: skip
        page, source = self.report("nothing", a=(record([row()]), fields))
        self.assertEqual(page.row("mean absolute error of throughput"), ["at most 3 %", "12.50 %", "missed"])
        self.assertEqual(page.row("maximum absolute error of throughput"), ["at most 9 %", "20.0 %", "missed"])
        self.assertEqual(page.row("mean absolute error of the gain, points"), ["at most 1.5", "–", "no figure to compare"])
        self.assertEqual(page.row("pairs of schedules in the published order"), ["all 2", "2", "met"])
        self.assertEqual(page.row("unheard of"), ["–", "–", "missed"])
        self.assertEqual(page.row("throughput", "calibrated"), ["1.00 %", "1.2 %", "fitted row"])
        self.assertIn("the worst &lt;row&gt;", source)
        self.assertIn("Verdict: deviates (an acceptance criterion is missed)", page.text)

    def test_text_is_escaped(self):
        evil = "<script>alert('$1')</script>&\"$x^$\n"
        rows = [
            row(evil, model=evil, cluster=evil, recompute=evil, published={"throughput_samples_per_s": 2, "tables": [evil]}),
            row(evil, model=evil, cluster=evil, recompute="x"),
            row("1f1b-i"),
        ]
        content = record(rows, evidence=evil, scenario={"title": evil}, provenance={"argv": [evil], evil: evil}, system={evil: evil})
        fields = {"verdict": evil, "reason": evil, "marks": [{"mark": evil}], "throughput_error_mean": 0.1,
                  "throughput_error_worst": {"row": evil}}  # fmt: skip
        page, source = self.report("files", a=(content, fields), b=self.pairs_record(pair(evil), calibrated=evil))
        self.assertNotIn("<script", source)
        self.assertNotIn("alert('", source)
        self.assertGreater(source.count("&lt;script&gt;"), 20)
        self.assertIn("All rows (3)", page.text)

    def test_an_unreadable_folder_is_one_line(self):
        known = json.dumps({"experiments": [line("a")]})
        cases = {
            "nothing": ({}, "it has no summary.json"),
            "not json": ({"summary.json": "{"}, "is not JSON"),
            "a list": ({"summary.json": "[]"}, "is not a JSON object"),
            "no experiments": ({"summary.json": "{}"}, "has no list of experiments"),
            "no record": ({"summary.json": known}, "a.json: cannot be read"),
            "no rows": ({"summary.json": known, "a.json": "{}"}, "a.json: has no list of rows"),
            "bad pairs": ({"summary.json": known, "a.json": '{"pairs": [1]}'}, "a.json: has no list of rows"),
            "pairs of none": ({"summary.json": known, "a.json": '{"pairs": []}'}, "a.json: has no list of rows"),
            "bad rows": ({"summary.json": known, "a.json": '{"rows": [1]}'}, "a.json: has no list of rows"),
        }
        for name, (files, message) in cases.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                for file, content in files.items():
                    (Path(folder) / file).write_text(content)
                status, said = self.main(folder)
                self.assertEqual((status, said.count("\n")), (1, 1), said)
                self.assertIn(message, said)
                self.assertFalse((Path(folder) / "report.html").exists())

    def test_the_exit_code_is_that_of_a_program(self):
        run = subprocess.run([sys.executable, report.__file__, str(self.folder)], capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (1, "", 1))

    def test_the_same_folder_gives_the_same_files(self):
        """Also where several processes draw."""
        pages = []
        for processes in (1, 2):
            self.write(a=record([unit_row("1f1b-i"), unit_row()]), b=record([unit_row(), unit_row("zb-v")]))
            with mock.patch("os.cpu_count", return_value=processes):
                self.assertEqual(self.main(), (0, ""))
            pages.append({path.name: path.read_bytes() for path in self.folder.iterdir()})
        self.assertEqual(*pages)


class FigureTest(unittest.TestCase):
    def setUp(self):
        style.set_up()
        rows = [row(name, microbatches=m, tp=tp) for m in (8, 16) for tp in (4, 8) for name in ("1f1b-i", "zb-v", "stp")]
        rows[1]["throughput_samples_per_s"] = 1.0
        self.experiment = experiment(rows)
        self.colours = style.schedule_colours(self.experiment.schedules)

    def figure(self, maker):
        return maker(self.experiment, self.colours).figure

    def test_magnitudes_start_at_zero(self):
        for maker in (figures.throughput, figures.step_time, figures.memory, breakdown.breakdown):
            for axes in self.figure(maker).axes:
                self.assertEqual(axes.get_ylim()[0], 0, maker.__name__)
                self.assertTrue(all(bar.get_path().get_extents(bar.get_patch_transform()).y0 >= 0 for bar in axes.patches))
        for axes in self.figure(accuracy.scatter).axes:
            self.assertEqual((axes.get_xlim()[0], axes.get_ylim()[0]), (0, 0))
            self.assertEqual(axes.get_xlim(), axes.get_ylim())

    def test_everything_lies_within_its_axes(self):
        for maker in (figures.throughput, figures.gain, figures.memory):
            for axes in self.figure(maker).axes:
                low, high = axes.get_ylim()
                self.assertLessEqual(low, 0)
                ends = [end for bar in axes.patches for end in (bar.get_y(), bar.get_y() + bar.get_height())]
                ends += [y for line in axes.lines if line.get_marker() == "D" for y in line.get_ydata()]
                self.assertTrue(all(low <= end <= high for end in ends if end == end), maker.__name__)

    def test_pairs_start_at_zero_and_lie_within_their_axes(self):
        both = records.Experiment(line("a"), {"pairs": [pair(), pair("two", gemm_s=9.0)]}, "a.json")
        for axes in overlap.plot(both, {}).figure.axes:
            low, high = axes.get_ylim()
            self.assertEqual(low, 0)
            self.assertTrue(axes.patches)
            self.assertTrue(all(bar.get_y() == 0 and bar.get_height() <= high for bar in axes.patches))
            self.assertTrue(axes.get_ylabel())

    def links(self, ratios=((0.5, (2, 8, 32)),), recompute=("none", "mlp")):
        """Without offload a step takes 4 s, with recomputation 5 s; with it 3 s and 16 GB/s over the link's speed, of the ratio."""
        rows = [row(throughput_samples_per_s=8 / time, step_time_s=time, offload_ratio=0, recompute=kind, name=kind) for kind, time in zip(recompute, (4, 5))]
        for ratio, speeds in ratios:
            for speed in speeds:
                time = 3 + 32 * ratio / speed
                both = dict.fromkeys(("device_to_host_gb_per_s", "host_to_device_gb_per_s"), speed)
                rows.append(row(throughput_samples_per_s=8 / time, step_time_s=time, offload_ratio=ratio, recompute="none", cluster_values=both,
                                name=f"{ratio} {speed}"))  # fmt: skip
        return experiment(rows)

    def test_host_links_are_a_line_a_ratio_and_their_crossovers(self):
        given = self.links([(0.5, (32, 2, 8)), (1, (8, 64))])
        self.assertIs(report.makers(given)[0], host_links.plot)
        [links] = host_links.groups(given).values()
        # 3 + 16 / x is 4 at 16 and 5 at 8; 3 + 32 / x is 4 at 32 and 5 at 16.
        for ratio, expected in ((0.5, {"nothing offloaded or recomputed": 16, "mlp recomputed": 8}), (1, {"nothing offloaded or recomputed": 32, "mlp recomputed": 16})):
            found = links.crossovers(ratio)
            self.assertEqual(found.keys(), expected.keys())
            for name, speed in expected.items():
                self.assertAlmostEqual(found[name], speed)
        plot = host_links.plot(given, {})
        [axes] = plot.figure.axes
        self.assertEqual((axes.get_xlim()[0], axes.get_ylim()[0]), (0, 0))
        rings = sorted(line.get_xdata()[0] for line in axes.lines if line.get_markersize() == 9)
        self.assertEqual([round(ring) for ring in rings], [8, 16, 16, 32])
        levels = {round(line.get_ydata()[0], 3) for line in axes.lines if len(set(line.get_ydata())) == 1 and line.get_linestyle() != "None"}
        self.assertEqual(levels, {2, 1.6})
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        for line in axes.lines:
            self.assertTrue(all(left <= x <= right for x in line.get_xdata()) and all(low <= y <= high for y in line.get_ydata()))
        self.assertIn("Offload with ratio 0.5 becomes the faster at 16 GB/s (nothing offloaded or recomputed), 8 GB/s (mlp recomputed).", plot.caption)

    def test_host_links_without_a_crossover_say_so(self):
        plot = host_links.plot(self.links([(0.5, (2, 4))]), {})
        self.assertIn("ratio 0.5 crosses none", plot.caption)
        for rows in (self.links([(0.5, (8,))]), self.links(recompute=()), experiment([row()])):
            self.assertEqual(host_links.groups(rows), {})

    def test_host_links_of_the_suite_have_the_crossovers_of_simulations_between_its_rows(self):
        [given] = [one for one in kept() if one.id == "offload-links"]
        [links] = host_links.groups(given).values()
        found = links.crossovers(0.85)
        # From simulations between these rows.
        self.assertAlmostEqual(found["mlp recomputed"], 25.5, delta=0.5)
        self.assertAlmostEqual(found["attn+mlp+norm recomputed"], 20.5, delta=0.5)

    def test_every_axis_is_labelled_with_its_unit(self):
        for maker in (figures.throughput, figures.step_time, figures.gain, figures.memory, breakdown.breakdown, accuracy.scatter):
            self.assertRegex(self.figure(maker).axes[0].get_ylabel(), r", (samples/s|s|GB|%)$")

    def test_bars_stand_in_the_middle_above_their_labels(self):
        for given in (experiment([row("1f1b", tp=4), row("zb-v", tp=8), row("stp", tp=8)]), self.experiment):
            axes = figures.throughput(given, style.schedule_colours(given.schedules)).figure.axes[0]
            groups = given.figure("throughput").groupby(["configuration", "m"])["schedule"].count()
            middles = iter(sorted(bar.get_x() + bar.get_width() / 2 for bar in axes.patches))
            for place, count in zip(axes.get_xticks(minor=True), groups):
                self.assertAlmostEqual(sum(itertools.islice(middles, count)) / count, place)

    def test_labels_do_not_overlap_and_none_is_cut(self):
        """On the figures of the suite's own experiments."""
        by_name = {one.id: one for one in kept()}
        some = [("korthikanti", figures.throughput), ("korthikanti", breakdown.breakdown), ("llm-h20", figures.memory), ("llm-a800", figures.gain),
                ("fig1", figures.tp_share), ("table11", overlap.plot), ("offload-links", host_links.plot), ("vtrain", times.plot), ("tp-overlap", panels.throughput), ("chunks", panels.memory)]  # fmt: skip
        drawn = [(name, maker.__name__, maker(by_name[name], style.schedule_colours(by_name[name].schedules)).figure) for name, maker in some]
        drawn.append(("all", "headline", headline.plot(kept()).figure))
        for name, maker, figure in drawn:
            style.png(figure)
            renderer, page = figure.canvas.get_renderer(), figure.bbox.padded(1)
            for axes in figure.axes:
                for minor in (False, True):
                    boxes = [label.get_window_extent(renderer) for label in axes.get_xticklabels(minor=minor) if label.get_text()]
                    for left, right in zip(boxes, boxes[1:]):
                        self.assertLessEqual(left.x1, right.x0, f"{name} {maker}")
                texts = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]
                for text in texts:
                    box = text.get_window_extent(renderer)
                    self.assertTrue(not text.get_text() or (page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1),
                                    f"{name} {maker} {text.get_text()}")  # fmt: skip

    def test_many_configurations_are_points_in_panels(self):
        for one in kept():
            if one.id not in ("tp-overlap", "chunks"):
                self.assertFalse(panels.needed(one), one.id)
                continue
            self.assertEqual([maker for maker in report.makers(one) if maker in (figures.throughput, figures.gain, figures.memory)], [])
            drawn = panels.throughput(one, style.schedule_colours(one.schedules)).figure
            self.assertLess(drawn.get_figheight(), 12, one.id)
            lines = [line for axes in drawn.axes for line in axes.lines]
            for marker, figure in (("o", "ours"), ("D", "published")):
                points = sorted(y for found in lines if found.get_marker() == marker for y in found.get_ydata() if y == y)
                self.assertEqual(points, sorted(one.figure("throughput")[figure].dropna()), one.id)

    def test_many_published_times_are_points_by_tp(self):
        [given] = [one for one in kept() if times.needed(one)]
        self.assertEqual((given.id, report.makers(given)), ("vtrain", [times.plot, breakdown.breakdown]))
        [axes] = times.plot(given, {}).figure.axes
        self.assertEqual(axes.get_xlim(), axes.get_ylim())
        frame, lines = given.compared("time"), [line for line in axes.lines if line.get_marker() != "None"]
        points = [tuple(point) for line in lines for point in line.get_xydata()]
        self.assertEqual(sorted(points), sorted(zip(frame["published"], frame["ours"])))
        self.assertTrue(all(axes.get_xlim()[0] < end < axes.get_xlim()[1] for point in points for end in point))
        hollow = sum(len(line.get_xdata()) for line in lines if line.get_markerfacecolor() == "none")
        self.assertEqual((hollow, len({line.get_color() for line in lines})), (measurements.contradicting(frame).sum(), 4))

    @staticmethod
    def measured(*given):
        """Rows of 8 samples without a pipeline: (microbatch size, published time of a sample, ours, other fields)."""
        rows = [row("1f1b", microbatch_size=size, microbatches=8 // size, pp=1, step_time_s=8 * ours, throughput_samples_per_s=1 / ours,
                    published={"step_time_s": 8 * time, "throughput_samples_per_s": 1 / time},
                    difference={"step_time_s": ours / time - 1, "throughput_samples_per_s": time / ours - 1}, **fields)
                for size, time, ours, fields in given]  # fmt: skip
        return experiment(rows)

    def test_rows_that_contradict_others_of_their_grid_are_found(self):
        for times, expected in (
            ({1: 1.19, 2: 1, 4: 1.04}, []), ({1: 1.21, 2: 1, 4: 0.9}, [1]), ({1: 1, 2: 1.06}, [2]), ({1: 1, 2: 1.06, 4: 1.1, 8: 0.8}, [1, 2, 4]),
        ):  # fmt: skip
            frame = self.measured(*((size, time, 1, {}) for size, time in times.items()), (8, 3, 1, {"tp": 8})).compared("time")
            found = measurements.contradicting(frame)
            self.assertEqual([data["microbatch_size"] for data in frame["data"][found]], expected)
        # With a pipeline there is a slot more: per slot and sample 17.6 over 9, and 20 over 10.
        frame = self.measured((1, 2.2, 1, {"tp": 2}), (2, 2.5, 1, {"tp": 2})).compared("time")
        for data in frame["data"]:
            data["pp"] = 2
        self.assertEqual(list(measurements.contradicting(frame)), [False, False])

    def test_the_order_is_that_of_configurations_of_one_model(self):
        rows = [(1, 1, 1, {}), (2, 0.9, 1.1, {}), (4, 0.5, 0.6, {}), (8, 0.505, 0.7, {}), (1, 0.1, 2, {"model": "other"})]
        # 1 and 2 are in another order, 4 and 8 too near, the other model alone.
        self.assertEqual(measurements.order(self.measured(*rows)), (4, 5))

    def test_an_asked_gain_is_drawn_without_published_figures(self):
        rows = [row(name, published=None, difference=None) for name in ("1f1b", "stp")]
        given = experiment(rows, scenario={"compare": {"gain": {"of": "stp", "over": "1f1b"}}})
        self.assertIs(report.makers(given)[0], figures.gain)
        self.assertIs(report.makers(experiment(rows))[0], figures.step_time)

    def test_every_table_and_figure_has_the_plot_that_is_named(self):
        by_name = {one.id: one for one in kept()}
        for place in claims.listed("places"):
            if not place.get("plot", "").startswith("plot-"):
                continue
            scenario = next(name for name in place["scenarios"] if place["plot"].startswith(f"plot-{name}-"))
            # Makers are named after their plots; one that is called `plot` has its module's name.
            names = {maker.__name__.replace("_", "-") if maker.__name__ != "plot" else maker.__module__.split(".")[-1] for maker in report.makers(by_name[scenario])}
            self.assertIn(place["plot"].removeprefix(f"plot-{scenario}-"), names, place["where"])

    def test_every_rank_that_has_room_is_named(self):
        times = {"compute_s": 1.0, "tp_bubble_s": 0, "pp_bubble_s": 0}
        for ranks in (1, 7, 35):
            found = experiment([row(pp=ranks, ranks=[times] * ranks)])
            axes = breakdown.breakdown(found, {}).figure.axes[0]
            axes.figure.draw_without_rendering()
            named = [tick.label1.get_text() for tick in axes.xaxis.get_minor_ticks() if tick.label1.get_visible()]
            self.assertEqual(named, [str(rank) for rank in range(0, ranks, -(-ranks // 18))])

    def test_known_schedules_keep_their_colours(self):
        self.assertEqual(style.schedule_colours(["x", "stp"])["stp"], self.colours["stp"])
        many = style.schedule_colours([*style.SCHEDULE_COLOURS, "x", "y"])
        self.assertEqual(len(set(many.values())), len(many))


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

    def test_configurations_are_labelled_by_their_differences(self):
        rows = [row(recompute=recompute, sequence_parallel=recompute != "full") for recompute in ("full", "selective")]
        labels = list(experiment(rows).rows["label"])
        self.assertEqual(labels, ["llm, s 4096 × 1, TP4 PP2, recompute full, without sequence parallel",
                                  "llm, s 4096 × 1, TP4 PP2, recompute selective, with sequence parallel"])  # fmt: skip
        # Their own names say it all.
        named = [row(recompute=one["recompute"], name=one["recompute"].upper()) for one in rows]
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

    def test_nothing_is_carried_over_from_nothing(self):
        given = experiment([{**each, "calibration": False} for each in self.rows()])
        self.assertFalse(null_model.has(given))
        self.assertFalse(null_model.table([given]))


NO_ALL_REDUCE = {**UNIT_COSTS, "all_reduce": 0}


def sweep(ranks, costs=(UNIT_COSTS, NO_ALL_REDUCE)):
    """1f1b-i is 5 % below its closed form, stp agrees from p = 4 on, zb-v's closed form is zero without all-reduces."""
    rows = []
    for cost in costs:
        for p in ranks:
            zero = 0 if cost is NO_ALL_REDUCE else 2.0 * p
            rows += [
                closed_row("1f1b-i", p, idle=(2.85 * p, 3.0 * p), chunks=(3 * p - 1, 3 * p - 2), costs=cost),
                closed_row("zb-v", p, idle=(2.0 * p, zero), chunks=(2 * p, 2 * p), costs=cost),
                closed_row("stp", p, idle=(p + (p < 4), 1.0 * p), chunks=(4 * p - 1, 3 * p), costs=cost),
            ]
    return rows


class ClosedFormsTest(FolderTest):
    def figure(self, rows):
        given = experiment(rows)
        style.set_up()
        return closed_forms.closed_forms(given, style.schedule_colours(given.schedules)).figure

    def test_page(self):
        marks = [
            {"mark": "idle_error_mean", "value": 0.1873, "tolerance": 0.01, "met": False},
            {"mark": "chunks_error_mean", "value": 0.005, "tolerance": 0.01, "met": True},
        ]
        fields = {
            "marks": marks, "idle_error_mean": 0.1873, "idle_error_worst": {"error": 1.0, "row": "worst idle"},
            "chunks_error_mean": 0.005, "chunks_error_worst": {"error": 0.25, "row": "worst peak"},
            "calibrated": {"idle_error_mean": None, "chunks_error_mean": 0.0625, "chunks_error_worst": None},
        }  # fmt: skip
        rows = sweep(range(2, 17))
        page, source = self.report(a=(record(rows, scenario={"compare": {"tolerance": {}}}), fields), b=record([unit_row()]))
        self.assertEqual([name for name in self.plots() if "-a-" in name], ["plot-a-closed-forms.png"])
        for text in (
            "mean absolute error of idle time, against the closed form",
            "mean absolute error of peak activations, against the closed form",
            "idle time 18.73 %, peak activations 0.50 %", "worst idle", "worst peak", "6.25 %", "at most 1 %",
            "closed form", "idle time of the step, units", "peak activations, chunks",
            "F 1, I 1, W 1, all-reduce 0.25", "counts as an error of 100 %", f"All rows ({len(rows)})",
        ):  # fmt: skip
            self.assertIn(text, page.text)
        for text in ("throughput, samples", "peak chunks", "beside published"):
            self.assertNotIn(text, source.partition('<section id="experiment-a"')[2].partition("<section")[0])

    def test_other_experiments_have_no_columns_for_it(self):
        page, _ = self.report(a=record([unit_row(idle_s=1.0, peak_activation_chunks=3, unit_costs=UNIT_COSTS)]))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-step-time.png"])
        for text in ("idle time", "closed form"):
            self.assertNotIn(text, page.text)

    def test_few_grids_keep_their_breakdown(self):
        self.report(a=record(sweep([2, 4])))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-closed-forms.png"])

    def test_panels(self):
        *idle, chunks = self.figure(sweep(range(2, 7))).axes
        titles = ["a: F 1, I 1, W 1, all-reduce 0.25", "b: F 1, I 1, W 1, all-reduce 0"]
        self.assertEqual([axes.get_title(loc="left") for axes in idle], titles)
        self.assertTrue(idle[0].get_ylabel() and chunks.get_ylabel() and chunks.get_xlabel())
        for axes in (*idle, chunks):
            low, high = axes.get_ylim()
            self.assertEqual((low, len(axes.lines)), (0, 3 * 2))  # per schedule: ours, closed form
            self.assertTrue(all(0 <= y <= high for drawn in axes.lines for y in drawn.get_ydata()))

    def test_one_set_of_costs(self):
        figure = self.figure(sweep([2, 4, 8], costs=[UNIT_COSTS]))
        self.assertEqual(figure.axes[0].get_title(loc="left"), "F 1, I 1, W 1, all-reduce 0.25")
        self.assertEqual(len(figure.axes), 2)

    def test_table_shows_where_they_agree(self):
        table = closed_forms.agreement(experiment(sweep(range(2, 7))))
        lines = {tuple(line[:3]): line[3:] for line in table.rows}
        idle, chunks = "idle time of the step", "peak activations"
        first, second = "a: F 1, I 1, W 1, all-reduce 0.25", "b: F 1, I 1, W 1, all-reduce 0"
        self.assertEqual(lines[idle, first, "1f1b-i"][:3], ["0 of 5", "5.00 %", "−5.0 %"])
        self.assertEqual(lines[idle, first, "zb-v"][:2], ["5 of 5", "0.00 %"])
        self.assertEqual(lines[idle, second, "zb-v"], ["0 of 5", "100.00 %", "4.00 for 0", "p = 2"])
        self.assertEqual(lines[idle, first, "stp"], ["3 of 5", "16.67 %", "+50.0 %", "p = 2"])
        self.assertEqual(lines[chunks, second, "stp"], ["0 of 5", "23.67 %", "+27.8 %", "p = 6"])

    def test_odd_rows(self):
        odd = {
            "no_ranks": [closed_row() | {"pp": pp, "layers_per_chunk": None} for pp in (None, "two")],
            "zeros": [closed_row(idle=(0, 0), chunks=(0, 0))],
            "idle_only": [closed_row(published={"idle_s": 3})],
            "chunks_only": [closed_row(published={"peak_activation_chunks": 3}, difference=None)],
            "nothing_of_ours": [closed_row(idle_s=None, peak_activation_chunks=None)],
            "mixed": [
                *(closed_row(microbatches=m) for m in (8, 16, 12)),
                closed_row(published={"idle_s": "3", "peak_activation_chunks": 3.0, "tables": None}),
                *(closed_row(unit_costs=costs) for costs in (None, [1], "x", {"attn.F": None})),
                *(closed_row(pp=p, layers_per_chunk=[16 // p] * 2 * p) for p in (2, 4)),
                *(closed_row(name, p) for p in (2, 3, 512) for name in ("stp", "zb-v")),
                closed_row(tp=2),
                closed_row(model="llm"),
                unit_row(),
            ],
            "many_schedules": [closed_row(f"schedule-{i}") for i in range(12)],
            "many_costs": [closed_row(costs={**UNIT_COSTS, "attn.F": i}) for i in range(9)],
            "calibrated": [closed_row(calibration=True), closed_row("zb-v")],
        }
        page, _ = self.report(**{name: record(rows) for name, rows in odd.items()})
        self.assertEqual([int(amount) for amount in re.findall(r"All rows \((\d+)\)", page.text)], [len(rows) for rows in odd.values()])


if __name__ == "__main__":
    unittest.main()
