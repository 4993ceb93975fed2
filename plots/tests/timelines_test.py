"""Timelines against traces: the drawing is to scale and complete, or says what it leaves out."""

import contextlib
import io
import json
import re
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import timelines as program
from records_for_test import FolderTest, record, unit_row
from stp_plots.draw import style, timelines
from stp_plots.files import ReportError

SVG = "{http://www.w3.org/2000/svg}"


def op(rank, category, start, end, block="", action="", called="op", **args):
    arguments = {**({"block": block} if block else {}), **({"action": action or block} if block else {}), **args}
    return {"ph": "X", "name": called, "cat": category, "pid": rank, "tid": 1, "ts": 1e6 * start, "dur": 1e6 * (end - start), "args": arguments}


def content(slices, **other):
    events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}, *slices]
    return {"otherData": {"schedule": "stp", "title": "stp, pp 2", "microbatches": 8, "time_unit": "units", **other}, "traceEvents": events}


def example():
    """Rank 0: a forward in two pieces, between which it waits for its own all-reduce; a braid; the optimizer. Rank 1: a backward."""
    return content([
        op(0, "block", 0, 3, "F0.0"),
        op(0, "compute", 0, 1, "F0.0"),
        op(0, "tp", 1, 1.5, "F0.0"),
        op(0, "compute", 1.5, 2.5, "F0.0", waited_for="all-reduce"),
        op(0, "tp", 2.5, 3, "F0.0"),
        op(0, "compute", 2.5, 3.5, "F1.1&B0.0", "F1.1"),
        op(0, "compute", 3.5, 5.5, "F1.1&B0.0", "B0.0"),
        op(0, "p2p", 0, 1, "F0.0"),
        op(0, "compute", 6, 8, name="optimizer"),
        op(1, "compute", 4, 7, "B1.1"),
    ])  # fmt: skip


def many(ranks, microbatches):
    """Every rank does a forward and a backward per microbatch, all one after the other."""
    slices = []
    for rank in range(ranks):
        for m in range(microbatches):
            slices += [op(rank, "compute", rank + 3 * m, rank + 3 * m + 1, f"F0.{m}"), op(rank, "compute", rank + 3 * m + 1, rank + 3 * m + 3, f"B0.{m}")]
    return content(slices, microbatches=microbatches)


def drawn(given):
    style.set_up()
    figure = timelines.draw(timelines.Trace(given, "t.json"))
    return figure, style.svg(figure).decode()


def boxes(axes, colour):
    """(start, end, top, bottom) of what has a colour."""
    from matplotlib.colors import to_hex

    return sorted((*box.min(axis=0)[:1], *box.max(axis=0)[:1], *box.min(axis=0)[1:], *box.max(axis=0)[1:])
                  for patch in axes.patches if patch.get_fill() and to_hex(patch.get_facecolor()) == colour
                  for box in patch.get_path().to_polygons(closed_only=False))  # fmt: skip


class TraceTest(unittest.TestCase):
    def test_time_is_split_as_the_trace_says(self):
        trace = timelines.Trace(example(), "t.json")
        self.assertEqual((trace.ranks, trace.chunks, trace.step), (2, 2, 8))
        self.assertEqual(list(trace.computed), [7, 3])
        self.assertEqual(trace.waits, [[(1, 1.5)], []])
        self.assertEqual(trace.exposed(), [[(1, 1.5)], []])
        facts = "2 ranks, 2 chunks each, 8 microbatches; step 8 units; "
        facts += "rank 0, which computes most: compute 87.5 %, TP bubble 6.2 %, PP bubble 6.2 %"
        self.assertEqual(trace.facts(), facts)

    def test_a_wait_begins_when_the_collectives_own_dependencies_had_ended(self):
        waited = op(0, "compute", 3, 4, "F0.1", waited_for="all-gather", tp_bubble=1e6)
        slices = [op(0, "compute", 0, 1, "F0.0"), op(0, "tp", 2, 3, "F0.1", called="all-gather attn.F F0.1"), waited]
        trace = timelines.Trace(content(slices), "t.json")
        self.assertEqual((trace.waits, trace.exposed()), ([[(2, 3)]], [[(2, 3)]]))
        self.assertIn("compute 50.0 %, TP bubble 25.0 %, PP bubble 25.0 %", trace.facts())
        self.assertIn("exposed TP collective", drawn(content(slices))[1])
        del waited["args"]["tp_bubble"]  # an old trace
        self.assertEqual(timelines.Trace(content(slices), "t.json").waits, [[(1, 3)]])

    def test_every_action_is_a_cell_with_its_time(self):
        cells = {(cell.rank, cell.action): cell for cell in timelines.Trace(example(), "t.json").cells}
        self.assertEqual(set(cells), {(0, ("F", 0, 0)), (0, ("F", 1, 1)), (0, ("B", 0, 0)), (0, ()), (1, ("B", 1, 1))})
        self.assertEqual(cells[0, ("F", 0, 0)].pieces.tolist(), [[0, 1], [1.5, 2.5]])
        halves = cells[0, ("F", 1, 1)], cells[0, ("B", 0, 0)]
        self.assertEqual([cell.half for cell in halves], [1, 2])
        for cell in halves:
            self.assertEqual(cell.pieces.tolist(), [[2.5, 5.5]])

    def test_other_files_are_refused(self):
        for given in ({}, {"traceEvents": 3}, {"traceEvents": [3]}, {"traceEvents": [{"ph": "X"}]},
                      {"traceEvents": [{"ph": "X", "pid": "zero", "ts": 0, "dur": 1, "cat": "tp"}]}):  # fmt: skip
            with self.assertRaisesRegex(ReportError, "t.json: (holds|is) no trace"):
                timelines.Trace(given, "t.json")


class DrawingTest(unittest.TestCase):
    def test_blocks_are_drawn_to_scale(self):
        figure, _ = drawn(example())
        _, axes = figure.axes  # the first has the legend
        self.assertEqual(axes.get_xlim(), (0, 8))
        self.assertIn("units", axes.get_xlabel())
        lighter = timelines.shade(("B", 1, 0), 2)
        self.assertNotEqual(lighter, timelines.PASSES["B"][1])
        self.assertEqual([box[:2] for box in boxes(axes, timelines.PASSES["F"][1])], [(0, 1), (1.5, 2.5)])
        self.assertEqual([box[:2] for box in boxes(axes, lighter)], [(4, 7)])
        self.assertEqual([box[:2] for box in boxes(axes, timelines.OPTIMIZER)], [(6, 8)])
        # A braid: the first action above the second, both as long as the braid.
        (first,), (second,) = boxes(axes, timelines.shade(("F", 1, 1), 2)), boxes(axes, timelines.PASSES["B"][1])
        self.assertEqual((first[:2], second[:2]), ((2.5, 5.5), (2.5, 5.5)))
        self.assertAlmostEqual(first[3], second[2])
        # All-reduces lie below the compute of their rank, and what compute waits for is marked.
        self.assertEqual([box[:2] for box in boxes(axes, timelines.ALL_REDUCE)], [(1, 1.5), (2.5, 3)])
        self.assertEqual([box[:2] for box in boxes(axes, timelines.EXPOSED)], [(1, 1.5)])
        self.assertGreater(boxes(axes, timelines.EXPOSED)[0][2], second[3])

    def test_numbers_stand_in_their_blocks(self):
        figure, _ = drawn(example())
        style.png(figure)
        renderer = figure.canvas.get_renderer()
        _, axes = figure.axes  # the first has the legend
        self.assertEqual(sorted(text.get_text() for text in axes.texts), ["0", "0", "1", "1"])
        for text in axes.texts:
            left, right = text.get_window_extent(renderer).transformed(axes.transData.inverted()).intervalx
            around = [box for patch in axes.patches for box in patch.get_path().to_polygons(closed_only=False)
                      if box[:, 0].min() <= left and right <= box[:, 0].max()
                      and box[:, 1].min() < text.get_position()[1] < box[:, 1].max()]  # fmt: skip
            self.assertTrue(around, text.get_text())

    def test_the_file_is_well_formed_and_the_same_each_time(self):
        _, first = drawn(example())
        root = ElementTree.fromstring(first)
        self.assertEqual(root.tag, SVG + "svg")
        words = "".join(root.itertext())
        for word in ("stp, pp 2", "rank 1", "F forward", "exposed all-reduce", "braid", "optimizer", "time, units"):
            self.assertIn(word, words)
        self.assertEqual(drawn(example())[1], first)

    def test_a_long_step_is_cut_and_says_so(self):
        figure, source = drawn(many(2, 512))
        self.assertEqual(len(figure.axes), 1 + 2)
        words = "".join(ElementTree.fromstring(source).itertext())
        cut = re.search(r"Cut: only the first and the last ([\d.]+) units are drawn, with microbatches 0 to (\d+) and (\d+) to 511 of 512\.", words)
        self.assertTrue(cut, words[-400:])
        half, last, first = map(float, cut.groups())
        self.assertLessEqual(abs(last - half / 3), 1)
        self.assertLessEqual(abs(first - (512 - half / 3)), 1)
        self.assertEqual((figure.axes[1].get_xlim()[0], figure.axes[2].get_xlim()[1]), (0, 512 * 3 + 1))
        self.assertLess(len(source), 2_000_000)

    def test_of_many_ranks_the_first_are_drawn(self):
        figure, source = drawn(many(66, 200))
        self.assertIn("Ranks 0 to 63 of 66 are drawn.", source)
        self.assertEqual(len(figure.axes[1].get_yticks()), 64)
        self.assertLess(len(source), 2_000_000)

    def test_odd_traces(self):
        odd = {
            "nothing": content([]),
            "no time": content([op(rank, "compute", 0, 0, f"F0.{rank}") for rank in range(2)]),
            "forwards without time": content([op(0, "compute", 0, 0, "F0.0"), op(0, "compute", 0, 2e6, "B0.0")]),
            "one action of a braid": content([op(0, "compute", 0, 1, "F0.0&B0.1", "F0.0")]),
            "no title": {"traceEvents": many(1, 1)["traceEvents"]},
            "markup": content(many(1, 2)["traceEvents"], title="</svg> & \"$x^$\" <s>", time_unit="<s>"),
        }
        for name, given in odd.items():
            with self.subTest(name):
                _, source = drawn(given)
                ElementTree.fromstring(source)
                self.assertNotIn("nan", source)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.folder = Path(scratch.name)
        self.addCleanup(scratch.cleanup)

    def test_an_svg_stands_beside_every_trace(self):
        for name in ("one", "two"):
            (self.folder / f"{name}.json").write_text(json.dumps(example()))
        self.assertEqual(program.main([str(self.folder / "one.json"), str(self.folder / "two.json")]), 0)
        self.assertTrue((self.folder / "one.svg").read_bytes().startswith(b"<?xml"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["one.json", "one.svg", "two.json", "two.svg"])

    def test_what_is_no_trace_is_named(self):
        (self.folder / "good.json").write_text(json.dumps(example()))
        (self.folder / "bad.json").write_text("{")
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(program.main([str(self.folder / f"{name}.json") for name in ("bad", "none", "good")]), 1)
        self.assertRegex(said.getvalue(), r"bad\.json: is not JSON .*\n.*none\.json: cannot be read .*\n$")
        self.assertTrue((self.folder / "good.svg").exists())


class ReportTest(FolderTest):
    def test_timelines_are_drawn_and_stand_with_their_experiment(self):
        for name in ("a-stp-m1", "a-b-stp-m1"):
            (self.folder / f"timeline-{name}.json").write_text(json.dumps(example()))
        (self.folder / "timeline-a-broken.json").write_text("{}")
        page, source = self.report("files", **{"a": record([unit_row()]), "a-b": record([unit_row()])})
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.svg")), ["timeline-a-b-stp-m1.svg", "timeline-a-stp-m1.svg"])
        self.assertEqual(source.count("data:image/svg+xml;base64,"), 2)
        self.assertIn("timeline-a-broken.json holds no trace", page.text)
        for anchor in ("experiment-a", "experiment-a-b"):
            section = source.partition(f'<details id="{anchor}"')[2].partition('<details id="')[0]
            self.assertEqual(section.count("image/svg+xml"), 1)
