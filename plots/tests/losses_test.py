"""Programs that draw one plot of one JSON file: the plot is there, or one line says why not.

python3 plots/tests/losses_test.py
"""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import losses

RECORD = {"scenario": {"title": "T"}, "evidence": "measured",
          "results": [{"schedule": name, "losses": [2.0, 1.5 + shift, 1.0]} for name, shift in (("stp", 0.0), ("zb-v", 0.25))]}  # fmt: skip


class LossesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="stp-losses-")
        self.addCleanup(holder.cleanup)
        self.record, self.plot = Path(holder.name, "record.json"), Path(holder.name, "plot.png")

    def said(self, content):
        """The exit code, and what it says on standard error."""
        self.record.write_text(json.dumps(content), encoding="utf-8")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            return losses.main([str(self.record), str(self.plot)]), said.getvalue()

    def test_curves_of_all_schedules(self):
        self.assertEqual(self.said(RECORD), (0, ""))
        self.assertTrue(self.plot.read_bytes().startswith(b"\x89PNG"))
        (axes,) = losses.draw(RECORD).axes
        self.assertEqual([list(line.get_ydata()) for line in axes.lines], [[2.0, 1.5, 1.0], [2.0, 1.75, 1.0]])
        self.assertIn("2.5e-01", axes.get_title(loc="left"))

    def test_what_has_no_losses_is_refused_in_one_line(self):
        for content in ({}, {"results": [{"schedule": "stp"}]}, {"results": [{"losses": [1]}]}):
            code, said = self.said(content)
            self.assertEqual((code, said.count("\n")), (1, 1), said)
            self.assertTrue(said.startswith(f"losses.py: {self.record}: "), said)
            self.assertFalse(self.plot.exists())


if __name__ == "__main__":
    unittest.main()
