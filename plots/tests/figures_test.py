"""The figures of the report as drawn, and which of them an experiment has."""

import contextlib
import io
import itertools
import json
import tempfile
import unittest
from pathlib import Path

import microbench
import numpy as np
import report
import tune
from records_for_test import experiment, kept, line, pair, row
from stp_plots.draw import accuracy, bars, breakdown, figures, headline, overlap, panels, style, times
from stp_plots.judge import measurements
from stp_plots.read import records


def names_below(axes):
    """The texts of style.name_places()."""
    return [text for text in axes.texts if text.get_transform() not in (axes.transData, axes.transAxes) and text.get_position()[1] == 0]


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

    def test_every_axis_is_labelled_with_its_unit(self):
        for maker in (figures.throughput, figures.step_time, figures.gain, figures.memory, breakdown.breakdown):
            self.assertRegex(self.figure(maker).axes[0].get_ylabel(), r", (samples/s|s|GB|%)$")

    def test_what_long_labels_share_is_their_rows_title(self):
        def drawn(*shared):
            sections = [bars.Section(["a model", f"s {n}", *shared], [("", [bars.Bar("red", n)] * 3)]) for n in (1, 2)]
            axes = bars.figure(sections, [], "y").axes[0]
            return " ".join(axes.get_title(loc="left").split()), [label.get_text() for label in axes.get_xticklabels()]

        many = [f"with the option {n}" for n in range(8)]
        self.assertEqual(drawn(*many), (", ".join(["a model", *many]), ["s\N{NO-BREAK SPACE}1", "s\N{NO-BREAK SPACE}2"]))
        self.assertEqual(drawn("TP8")[0], "")

    def test_bars_of_another_magnitude_have_rows_of_their_own(self):
        def rows_of(*values):
            sections = [bars.Section([f"s {i}"], [("", [bars.Bar("red", value)])]) for i, value in enumerate(values)]
            return [len(axes.patches) for axes in bars.figure(sections, [], "y").axes]

        self.assertEqual(rows_of(*[1, 2, 3, 4] * 2, *[100] * 4, *[2] * 5), [8, 4, 5])
        self.assertEqual(rows_of(1, 2, 3, 4, 100), [5])

    def test_long_labels_lose_their_middle_and_no_word_is_broken(self):
        parts = [f"setting {i} of many" for i in range(20)]
        for most in (3, 7):
            lines = style.wrap(parts, 40, most).split("\n")
            self.assertEqual((len(lines), parts[0] in lines[0].replace("\u00a0", " "), parts[-1] in lines[-1].replace("\u00a0", " ")), (most, True, True))
        for some in (["interlaced", "s 16384 × 1"], ["redistributed", "256k"]):
            self.assertEqual(style.wrap(some, 8 * style.stretch([(some, 8)])).replace("\u00a0", " "), ",\n".join(some))

    def test_bars_stand_in_the_middle_above_their_labels(self):
        for given in (experiment([row("1f1b", tp=4), row("zb-v", tp=8), row("stp", tp=8)]), self.experiment):
            axes = figures.throughput(given, style.schedule_colours(given.schedules)).figure.axes[0]
            groups = given.figure("throughput").groupby(["configuration", "m"])["schedule"].count()
            middles = iter(sorted(bar.get_x() + bar.get_width() / 2 for bar in axes.patches))
            for name, count in zip(names_below(axes), groups, strict=True):
                self.assertAlmostEqual(sum(itertools.islice(middles, count)) / count, name.get_position()[0])

    def test_labels_do_not_overlap_and_none_is_cut(self):
        """On the figures of the suite's own experiments."""
        by_name = {one.id: one for one in kept()}
        some = [("korthikanti", figures.throughput), ("korthikanti", breakdown.breakdown), ("llm-h20", figures.memory), ("llm-a800", figures.gain),
                ("fig1-variants", figures.tp_share), ("pipeoffload", figures.step_time), ("table11", overlap.plot), ("vtrain", times.plot), ("tp-overlap", panels.throughput), ("chunks", panels.memory)]  # fmt: skip
        drawn = [(name, maker.__name__, maker(by_name[name], style.schedule_colours(by_name[name].schedules)).figure) for name, maker in some]
        drawn.append(("all", "headline", headline.plot(kept()).figure))
        for name, maker, figure in drawn:
            style.png(figure)
            renderer, page = figure.canvas.get_renderer(), figure.bbox.padded(1)
            for axes in figure.axes:
                for labels in (axes.get_xticklabels(), names_below(axes)):
                    boxes = [label.get_window_extent(renderer) for label in labels if label.get_text()]
                    for left, right in zip(boxes, boxes[1:]):
                        self.assertLessEqual(left.x1, right.x0, f"{name} {maker}")
                texts = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]
                for text in texts:
                    box = text.get_window_extent(renderer)
                    self.assertTrue(not text.get_text() or (page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1),
                                    f"{name} {maker} {text.get_text()}")  # fmt: skip

    def test_labels_of_the_suite_s_bars_tell_them_apart(self):
        self.assertEqual([label for one in kept() for label in one.rows["label"] if ", no. " in label], [])
        [one] = [one for one in kept() if one.id == "fig1-variants"]
        [axes] = figures.tp_share(one, {}).figure.axes
        labels = [label.get_text() for label in axes.get_xticklabels() if label.get_text()]
        self.assertEqual((len(labels), len(set(labels))), (len(one.rows),) * 2)

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
        self.assertEqual(measurements.order(self.measured(*rows), ("model", "microbatch_size")), (0, 0))

    def test_an_asked_gain_is_drawn_without_published_figures(self):
        rows = [row(name, published=None, difference=None) for name in ("1f1b", "stp")]
        given = experiment(rows, scenario={"compare": {"gain": {"of": "stp", "over": "1f1b"}}})
        self.assertIs(report.makers(given)[0], figures.gain)
        self.assertIs(report.makers(experiment(rows))[0], figures.step_time)
        # Its baseline has no post-validation, without which most of its schedules have no gain.
        zero_bubble = next(one for one in kept() if one.id == "zero-bubble")
        self.assertNotIn(figures.gain, report.makers(zero_bubble))
        # It asks for no gain, least of all for that of 1F1B over whatever comes first.
        strips = accuracy.strips(zero_bubble, style.schedule_colours(zero_bubble.schedules))
        self.assertEqual(([axes.get_xlabel() for axes in strips.figure.axes], "gain" in strips.alt + strips.caption), (["error of throughput, %"], False))

    def test_the_shortest_step_says_whether_it_fits(self):
        rows = [row("stp", memory_margin_gb=-4.0, ranks=[{"memory_bytes": {"activations": 8.4e10}}]), row("zb-v", step_time_s=5.0)]
        self.assertIn("m 8; 84.0 of 80.0 GB, does not fit).", figures.step_time(experiment(rows), self.colours).caption)

    def test_every_rank_that_has_room_is_named(self):
        times = {"compute_s": 1.0, "tp_bubble_s": 0, "pp_bubble_s": 0}
        for ranks in (1, 7, 35):
            found = experiment([row(pp=ranks, ranks=[times] * ranks)])
            axes = breakdown.breakdown(found, {}).figure.axes[0]
            self.assertEqual([name.get_text() for name in names_below(axes)], [str(rank) for rank in range(0, ranks, -(-ranks // 18))])

    def test_it_is_said_which_ranks_are_shown(self):
        for grids, settings, said in ((1, 1, "model, cluster and grid, at"), (1, 3, "first of 3 configurations, at"),
                                      (8, 3, "model, cluster and grid, at"), (9, 1, "grid, for the first 8 of 9, at")):  # fmt: skip
            rows = [row(tp=tp + 1, name=str(name)) for tp in range(grids) for name in range(settings)]
            self.assertIn(said, breakdown.breakdown(experiment(rows), {}).caption)

    def test_lines_to_labels_do_not_cross(self):
        points, limits = [(19, 2095), (21.8, 2135), (22.2, 2136), (23, 2232), (26.5, 2240), (26.6, 2320), (60, 2330)], (82, 2550)
        at = [complex(x / limits[0], y / limits[1]) for x, y in points]
        lines = [(point, complex(*place)) for point, place in zip(at, tune.places(points, limits))]
        for (a, b), (c, d) in itertools.combinations(lines, 2):
            sides = [((end - begin).conjugate() * (of - begin)).imag for begin, end, of in ((a, b, c), (a, b, d), (c, d, a), (c, d, b))]
            self.assertFalse(sides[0] * sides[1] < 0 and sides[2] * sides[3] < 0, (a, b, c, d))

    def test_a_search_s_line_is_of_equals_and_its_first_choice_is_named(self):
        points = [{"name": f"n{memory}", "peak_total_gb": memory, "tokens_per_s_per_gpu": rate} for memory, rate in ((20, 90), (40, 97), (50, 96), (60, 100))]
        record = {"points": points, "band": {"share": 0.05}, "best": [points[2]], "gpu_memory_gb": 80, "model": "m", "gpus": 8, "cluster": "c",
                  "counts": {"simulated": 4, "configurations": 9, "bounded": 2}}  # fmt: skip
        (axes,) = tune.draw(record).axes
        (line,) = [line for line in axes.lines if line.get_label() == "of equals simulated, none is faster in less memory"]
        self.assertEqual([*line.get_xdata()], [60, 40])
        self.assertEqual({text.get_text() for text in axes.texts}, {"n60", "n40", "first choice: n50"})
        self.assertTrue(axes.get_title(loc="left").endswith("4 of 9 configurations simulated; 2 are too slow by their bound"))

    def test_a_file_that_cannot_be_drawn_is_an_error_in_a_line(self):
        point = {"peak_total_gb": 1, "tokens_per_s_per_gpu": 1}
        executor = [{"name": "executor/x", "run_name": "executor/x", "run_type": "aggregate", "aggregate_name": name, "real_time": 1,
                     "cpu_time": 1, "time_unit": "us"} for name in ("median", "low95", "high95", "noisy")]  # fmt: skip
        for program, content in ((tune, {"points": [point], "band": {"share": 0}, "best": []}), (microbench, {"context": {}, "benchmarks": executor})):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                path = Path(folder) / "content.json"
                path.write_text(json.dumps(content))
                self.assertEqual(program.main([str(path), f"{folder}/plot.png"]), 1)
            self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())

    def test_known_schedules_keep_their_colours(self):
        self.assertEqual(style.schedule_colours(["x", "stp"])["stp"], self.colours["stp"])
        first = [f"x{number}" for number in range(12)]
        self.assertLessEqual(style.schedule_colours(first).items(), style.schedule_colours([*first, "1f1b-i", "y"]).items())
        many = style.schedule_colours([*style.SCHEDULE_COLOURS, "x", "y"])
        self.assertEqual(len(set(many.values())), len(many))

    def test_colours_of_an_experiment_can_be_told_apart(self):
        def lab(colour):
            """CIELAB of sRGB, for D65."""
            linear = np.array([((part / 255 + 0.055) / 1.055) ** 2.4 if part > 10 else part / 255 / 12.92 for part in bytes.fromhex(colour[1:])])
            xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear / [0.9505, 1, 1.089]
            x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
            return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

        colours = style.schedule_colours(list(dict.fromkeys(name for one in kept() for name in one.schedules)))
        for one in kept():
            for pair_ in itertools.combinations(one.schedules, 2):
                self.assertGreater(np.linalg.norm(np.subtract(*(lab(colours[name]) for name in pair_))), 16, f"{one.id} {pair_}")
