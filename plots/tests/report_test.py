"""The report on synthetic result folders, also malformed ones: its data and its page."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import report
from records_for_test import UNIT_COSTS, FolderTest, Page, closed_row, experiment, kept, line, pair, record, row, unit_row
from stp_plots.draw import closed_forms, headline, overlap, sensitivity, splits, style
from stp_plots.judge import claims, memory
from stp_plots.page import html, pages, tables
from stp_plots.read import records


class ReportTest(FolderTest):
    def test_published_experiment_has_all_plots(self):
        rows = [row(name, microbatches=m, calibration=m == 16) for m in (8, 16) for name in ("1f1b-i", "zb-v", "stp")]
        page, _ = self.report("files", a=record(rows))
        names = ("breakdown", "errors", "gain", "memory", "throughput")
        self.assertEqual(self.plots(), [f"plot-a-{name}.png" for name in names])
        self.assertEqual([(row["schedule"], row["published.throughput_samples_per_s"]) for row in self.rows()], [("1f1b-i", "2.5"), ("zb-v", "2.5"), ("stp", "2.5")] * 2)
        [image] = [attributes for tag, attributes in page.elements if tag == "img"]  # the others are links
        self.assertTrue(float(image["width"]) < 1100 and image["src"].startswith("data:image/png;base64,iVBOR"))
        self.assertEqual({link for link in page.links() if link.endswith(".png")}, {name for name in (f"plot-a-{name}.png" for name in names) if "gain" not in name})
        for text in ("calibrated", "predicted", "Table 6", "nothing ran on a GPU", "2.50", "−20.0", "abc"):
            self.assertIn(text, page.text)

    def test_what_nothing_is_published_for_is_a_second_page(self):
        alone = {"verdict": records.ALONE, "throughput_error_mean": 0.2}
        page, _ = self.report(a=(record([row()]), {"throughput_error_mean": 0.2, "calibration_rows": 1}), b=(record([row()]), alone))
        self.assertIn("X (1 row, 1 calibrated; throughput 20.00 % off (1); peak activation memory 9.09 % off (1); criteria missed)", page.text)
        self.assertEqual([link for link in page.links() if ".png" not in link], ["ours-alone.html", "rows-a.csv"])
        other = Page((self.folder / "ours-alone.html").read_text(encoding="utf-8"))
        self.assertIn("X (1 row; ours alone)", other.text)
        self.assertEqual([link for link in other.links() if ".png" not in link], ["rows-b.csv"])
        # Published figures of such rows are no measure of them, whatever fields agree.
        self.assertIn("Signed error", page.text)
        self.assertNotIn("error", other.text)
        self.assertEqual([name for name in self.plots() if "errors" in name], ["plot-a-errors.png"])
        for one in (page, other):
            self.assertNotIn("not testable", one.text)

    def test_another_gpu_is_neither_calibrated_nor_the_paper_s(self):
        rows = [row(name, cluster="other", calibration=True, published=None, difference=None) for name in ("1f1b-i", "stp")]
        page, _ = self.report(**{"llm-a800": record(rows, scenario={"title": "llm-a800 [cluster=other.json]"})})
        for word in ("alibrated", "aper", "Synergistic", "Of 0", "A800 "):
            self.assertNotIn(word, page.text)
        self.assertFalse(experiment(rows).figure("gain")["calibrated"].any())

    def test_what_is_fastest_and_whether_it_fits_is_told(self):
        def one(schedule, speed, gigabytes, **fields):
            bytes_ = {"activations": 1e9 * (gigabytes - 20), "weights": 2e10, "host": 5e12}
            return row(schedule, throughput_samples_per_s=speed, memory_margin_gb=80.0 - gigabytes, ranks=[{"memory_bytes": bytes_}], **fields)

        rows = [one("stp", 3.0, 87.25), one("zb-v", 2.0, 57.4), one("stp", 1.0, 60, tp=8), one("zb-v", 2.0, 50, tp=8), one("stp", 3.0, 90, tp=2)]
        found = memory.fastest(experiment(rows)).rows
        self.assertEqual([line[2:] for line in found], [["stp", "3.00", "87.2 of 80.0 GB, does not fit", "zb-v, 2.00, 57.4 of 80.0 GB"],
                                                        ["zb-v", "2.00", "50.0 of 80.0 GB, fits", "the same"]])  # fmt: skip
        self.assertNotIn("copies", memory.fastest(experiment(rows)).caption)
        self.assertIn("copies of what a step changes", memory.fastest(experiment([*rows, one("stp", 3.0, 90, post_validation=True)])).caption)
        self.assertEqual(memory.verdict(row()), "")
        self.assertEqual(memory.verdict(one("stp", 3.0, 79.0, fits="maybe")), "79.0 of 80.0 GB, may fit")
        clusters = {"a800": {"fixed_memory_gb": {"value": 5, "range": {"from": 1}}}}
        self.assertEqual([memory.unsure_gb(experiment(rows, scenario={"clusters": some}), rows[0]) for some in (clusters, {})], [4, 0])
        self.report("nothing", a=record(rows))
        self.assertEqual([line["memory_in_all_gb"] for line in self.rows()], ["87.25", "57.4", "60.0", "50.0", "90.0"])

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
        page, source = self.report(a=record(rows))
        self.assertIn("plot-a-sensitivity.png", self.plots())
        self.assertIn("at the largest m; shares at most 1. Mean", source)
        self.assertIn("of the hardware profile (shares at most 1), fitted ones", page.text)
        self.assertIn("The gain depends most on a_value (+16.67 and −25.00), b_value (0.00 and 0.00) points.", source)
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

    def test_the_first_screen_answers_and_every_claim_follows(self):
        experiments = kept()
        evaluated = claims.of_experiments(experiments)
        judged = [one for one in experiments if not one.alone]
        style.set_up()
        drawn = report.drawn(headline.plot(experiments), "png", style.png)
        answers = pages.Records(experiments, lambda: evaluated).answers()
        source = html.render(judged, {}, {}, evaluated, drawn, answers, 16)
        first = source.partition('<section id="answers">')[2].partition("</section>")[0]
        self.assertEqual((first.count("<table"), first.count("<img")), (1, 1))
        shown = Page(first)
        self.assertEqual([len(line) for line in shown.tables[0]], [2] * len(answers["questions"]))
        self.assertIn("none of these figures was measured on a GPU", shown.text)
        every = Page(source)
        for one in evaluated:
            self.assertEqual(every.row(f"{one.where}: {one.claim}")[:3], [one.published, one.ours, one.verdict])
        self.assertIn("What the paper does not say", every.text)
        # What is long is folded, but for the claims that count.
        unfolded = Page(re.sub(r"<details.*</details>", "", source, flags=re.DOTALL))
        self.assertEqual([len(one) for one in unfolded.tables], [len(answers["questions"]), 1 + sum(not one.apart for one in evaluated)])
        self.assertEqual(len({*re.findall(r' id="(.*?)"', source)}), source.count(' id="'))
        # Other experiments have none.
        self.assertEqual(claims.of_experiments([experiment([row()])]), [])
        self.assertNotIn("Synergistic", html.render([experiment([row()])], {}, {}, []))

    def test_no_two_numbers_of_the_page_contradict_each_other(self):
        """A figure of an experiment's line and of its claim are the same error over as many rows."""
        by_id = {one.id: Page(f"<p>{tables.summary(one)}</p>").text for one in kept()}
        for one in claims.of_experiments(kept()):
            for error, count in re.findall(r"([\d.]+ %) off, worst \S+ %, (\d+) rows", one.ours):
                kind = one.criteria.partition(":")[0]
                for known, over in re.findall(rf"{kind} ([\d.]+ %) off \((\d+)\)", by_id[one.scenario]):
                    self.assertEqual(error == known, count == over, one.claim)

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
        # Ours may lie behind it.
        lines = [line for axes in headline.plot([given]).figure.axes for line in axes.lines]
        self.assertEqual({line.get_markerfacecolor() for line in lines if line.get_marker() == "D"}, {"none"})

    def test_bubbles_are_those_of_the_rank_that_computes_most(self):
        ranks = [{"compute_s": 3.0, "tp_bubble_s": 0.4, "pp_bubble_s": 0.6}, {"compute_s": 1.0, "tp_bubble_s": 2.0, "pp_bubble_s": 1.0}]
        found = experiment([row(ranks=ranks), row("x", ranks=ranks[::-1])]).rows
        self.assertEqual([*found["tp_bubble"], *found["pp_bubble"]], [0.1, 0.1, 0.15, 0.15])

    def test_figures_of_a_paper_are_shown_as_it_prints_them(self):
        printed = {"throughput_samples_per_s": 2.2222, "step_time_s": 3.6, "tables": ["Another paper, Table 5"]}
        content = row(published=printed, difference={"throughput_samples_per_s": -0.1, "step_time_s": 1 / 9})
        page, source = self.report(a=(record([content]), {"verdict": "deviates"}))
        self.assertIn("step time 11.11 % off (1)", page.text)
        self.assertIn("its throughput is computed from it", source)
        self.assertNotIn("2.22", source)

    def test_costs_that_give_published_times_are_seconds(self):
        timed = experiment([unit_row(published={"step_time_s": 3.6}, difference={"step_time_s": 1 / 9})])
        found = [(tables.heading(one, "time"), one.time_unit(), "not by a model" in html.contents(one)["description"])
                 for one in (timed, experiment([unit_row()]))]  # fmt: skip
        self.assertEqual(found, [("step time, s", "s", False), ("step time, units", "units", True)])

    def test_share_of_communication(self):
        published = {"tables": ["Figure 1"], "tp_communication_share": 0.25}
        rows = [
            row(tp=8, tp_communication_share=0.2, published=published, difference={"tp_communication_share": -0.2}),
            row(tp=4, tp_communication_share=0.125, published=None, difference=None),
        ]
        self.report(a=record(rows))
        self.assertEqual(self.plots(), ["plot-a-tp-share.png"])
        self.assertEqual([[line["tp"], line["tp_communication_share"], line["published.tp_communication_share"]] for line in self.rows()],
                         [["8", "0.2", "0.25"], ["4", "0.125", ""]])  # fmt: skip

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
        self.report(**{name: record(rows) for name, rows in odd.items()})
        drawn = " ".join(self.plots())
        self.assertEqual([name for name in odd if f"plot-{name}-" in drawn], [name for name in odd if name not in ("empty", "no_fields", "nulls")])
        self.assertEqual([len(self.rows(name)) for name, rows in odd.items() if rows], [len(rows) for rows in odd.values() if rows])

    def test_every_odd_row_stands_alone(self):
        """A record of one row that lacks most of what plots and tables show."""
        for fields in ({}, {"published": {"peak_memory_gb": 40}}, {"throughput_samples_per_s": None}, {"ranks": 3}, {"tp": "four", "pp": None}):
            found = experiment([unit_row(**fields)])
            self.assertTrue(report.makers(found))
            self.assertEqual(tables.rows_csv(found).count("\n"), 2)

    def test_odd_records(self):
        bare = {"rows": [unit_row()]}
        future = record([unit_row()], evidence="divined", new={"a": 1})
        page, _ = self.report("nothing", bare=bare, results={"results": [unit_row()]}, future=future)
        self.assertEqual(page.text.count("All rows (CSV)"), 3)
        self.assertIn("divined : not explained in this report.", page.text)

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
        self.assertIn("criteria missed", page.text)

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
        self.assertEqual(len(self.rows()), 3)

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
            "18.73 %", "0.50 %", "worst idle", "worst peak", "6.25 %", "at most 1 %",
            "closed form", "idle time of the step", "F 1, I 1, W 1, all-reduce 0.25", "counts as an error of 100 %",
        ):  # fmt: skip
            self.assertIn(text, page.text)
        for text in ("throughput, samples", "peak chunks", "beside published"):
            self.assertNotIn(text, source.partition('<details id="experiment-a"')[2].partition('<details id="')[0])
        self.assertEqual(len(self.rows()), len(rows))

    def test_other_experiments_have_no_columns_for_it(self):
        page, _ = self.report(a=record([unit_row(idle_s=1.0, peak_activation_chunks=3, unit_costs=UNIT_COSTS)]))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-step-time.png"])
        self.assertIn("have its unit", page.text)
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
        self.report(**{name: record(rows) for name, rows in odd.items()})
        self.assertEqual([len(self.rows(name)) for name in odd], [len(rows) for rows in odd.values()])
