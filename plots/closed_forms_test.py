"""Scenarios whose published figures are closed forms."""

from stp_plots import closed_forms, records, style, values
from synthetic import UNIT_COSTS, FolderTest, closed_row, line, record, unit_row

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


def scenario(rows):
    return records.Scenario(line("a"), record(rows), "a.json")


class ClosedFormsTest(FolderTest):
    def setUp(self):
        super().setUp()
        style.set_up()

    def plot(self, rows):
        given = scenario(rows)
        return closed_forms.closed_forms(given, style.schedule_colours(given.schedules))

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
        content = record(rows, scenario={"compare": {"tolerance": {}}})
        page, source = self.report(a=(content, fields), b=record([unit_row()]))
        self.assertEqual([name for name in self.plots() if "-a-" in name], ["plot-a-closed-forms.png"])
        self.assertEqual(page.rows(), len(rows) + 1)
        for text in (
            "mean absolute error of idle time, against the closed form",
            "mean absolute error of peak activations, against the closed form",
            "idle time error", "peak activations error", "18.73 %", "worst idle", "worst peak", "6.25 %", "at most 1 %",
            "closed form", "Idle time of the step, units", "Peak activations, chunks",
            "F 1, I 1, W 1, all-reduce 0.25", "counts as 100 % off",
        ):  # fmt: skip
            self.assertIn(text, source)
        for text in ("Throughput, samples", "peak chunks", "Beside the paper"):
            self.assertNotIn(text, source.partition('<section id="scenario-a"')[2].partition("<section")[0])

    def test_other_scenarios_have_no_columns_for_it(self):
        _, source = self.report(a=record([unit_row(idle_s=1.0, peak_activation_chunks=3, unit_costs=UNIT_COSTS)]))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-step-time.png"])
        for text in ("idle time error", "closed form", "Idle time"):
            self.assertNotIn(text, source)

    def test_few_grids_keep_their_breakdown(self):
        self.report(a=record(sweep([2, 4])))
        self.assertEqual(self.plots(), ["plot-a-breakdown.png", "plot-a-closed-forms.png"])

    def test_panels(self):
        *idle, chunks = self.plot(sweep(range(2, 7))).figure.axes
        titles = ["a: F 1, I 1, W 1, all-reduce 0.25", "b: F 1, I 1, W 1, all-reduce 0"]
        self.assertEqual([axes.get_title(loc="left") for axes in idle], titles)
        self.assertTrue(idle[0].get_ylabel() and chunks.get_ylabel() and chunks.get_xlabel())
        for axes in (*idle, chunks):
            low, high = axes.get_ylim()
            self.assertEqual((low, len(axes.lines)), (0, 3 * 3))  # per schedule: ours, closed form, markers
            self.assertTrue(all(0 <= y <= high for drawn in axes.lines for y in drawn.get_ydata()))
        # The last is as wide as all panels together.
        self.assertAlmostEqual(chunks.get_position().x0, idle[0].get_position().x0)
        self.assertAlmostEqual(chunks.get_position().x1, idle[1].get_position().x1)

    def test_caption_tells_where_they_agree(self):
        caption = self.plot(sweep(range(2, 7))).caption
        for text in (
            "1f1b-i nowhere (−5.0 %)",
            "zb-v in a everywhere, in b nowhere (4.00 to 12.00 where it is 0)",
            "stp at p = 4–6 (else +33.3 % to +50.0 %)",
            "zb-v everywhere; stp nowhere (+16.7 % to +27.8 %).",
            "(Table 1)",
        ):
            self.assertIn(text, caption)

    def test_one_set_of_costs(self):
        plot = self.plot(sweep([2, 4, 8], costs=[UNIT_COSTS]))
        self.assertEqual(plot.figure.axes[0].get_title(loc="left"), "F 1, I 1, W 1, all-reduce 0.25")
        self.assertEqual(len(plot.figure.axes), 2)

    def test_unit_costs_in_words(self):
        costs = {**UNIT_COSTS, "attn.W_early": 0.25, "head.F": 2, "p2p": 0, "odd": "x"}
        self.assertEqual(
            values.unit_costs({"unit_costs": costs, "layers_per_chunk": [4, 4]}),
            "F 1, I 1, W 2, all-reduce 0.25, head.F 2",
        )
        told = values.unit_costs({"unit_costs": UNIT_COSTS, "layers_per_chunk": [4, 3]})
        self.assertEqual(told, "F 0.25, I 0.25, W 0.25, all-reduce 0.0625 per layer")
        self.assertEqual([values.unit_costs({"unit_costs": odd}) for odd in (None, {}, [1], "x")], [""] * 4)

    def test_odd_rows(self):
        odd = {
            "no_ranks": [closed_row() | {"pp": pp, "layers_per_chunk": None} for pp in (None, "two")],
            "one": [closed_row()],
            "zeros": [closed_row(idle=(0, 0), chunks=(0, 0))],
            "idle_only": [closed_row(published={"idle_s": 3})],
            "chunks_only": [closed_row(published={"peak_activation_chunks": 3}, difference=None)],
            "no_tables": [closed_row(published={"idle_s": "3", "peak_activation_chunks": 3.0, "tables": None})],
            "nothing_of_ours": [closed_row(idle_s=None, peak_activation_chunks=None)],
            "several_m": [closed_row(microbatches=m) for m in (8, 16, 12)],
            "same_twice": [closed_row(), closed_row()],
            "odd_costs": [closed_row(unit_costs=costs) for costs in (None, [1], "x", {"attn.F": None})],
            "varied_chunks": [closed_row(pp=p, layers_per_chunk=[16 // p] * 2 * p) for p in (2, 4)],
            "many_ranks": [closed_row(name, p) for p in (2, 3, 512) for name in ("stp", "zb-v")],
            "many_schedules": [closed_row(f"schedule-{i}") for i in range(12)],
            "many_costs": [closed_row(costs={**UNIT_COSTS, "attn.F": i}) for i in range(30)],
            "many_grids": [closed_row(tp=tp, pp=p) for tp in (1, 2) for p in (2, 4)],
            "with_a_model": [closed_row(model="llm"), unit_row()],
            "calibrated": [closed_row(calibration=True), closed_row("zb-v")],
        }
        page, _ = self.report(**{name: record(rows) for name, rows in odd.items()})
        self.assertEqual(page.rows(), sum(map(len, odd.values())))
