#!/usr/bin/env python3
"""docs/claims.md is what the kept records say, and changes if they change."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "results/reference/simulated"


def load():
    loader = importlib.machinery.SourceFileLoader("claims_script", str(ROOT / "scripts/claims"))
    spec = importlib.util.spec_from_loader("claims_script", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


SCRIPT = load()


def claims(*arguments):
    """The script's standard error, or its exit message; empty on success."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            SCRIPT.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return str(stop.code)
    return said.getvalue()


class Claims(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="stp-claims-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def changed_run(self, scenario, change, rows="rows"):
        folder = self.folder / "run"
        shutil.copytree(KEPT, folder)
        record = json.loads((folder / f"{scenario}.json").read_text(encoding="utf-8"))
        for row in record[rows]:
            change(row)
        (folder / f"{scenario}.json").write_text(json.dumps(record), encoding="utf-8")
        return folder

    def page(self, run, *arguments):
        out = self.folder / "claims.md"
        self.assertEqual(claims(run, "--out", out, *arguments), "")
        return out.read_text(encoding="utf-8")

    def line(self, page, claim):
        lines = [line for line in page.splitlines() if claim in line and "stp reproduce" in line]
        self.assertEqual(len(lines), 1, claim)
        return lines[0]

    def test_the_committed_page_is_what_the_records_say(self):
        self.assertEqual(claims("--check"), "")

    def test_another_run_is_told_from_it(self):
        def slower(row):
            if row["schedule"] == "stp" and row["throughput_samples_per_s"]:
                row["throughput_samples_per_s"] *= 0.8

        run = self.changed_run("llm-a800", slower)
        # The fall is no claim's known reason: it has to be written down before a page can be made.
        for arguments in ((run, "--check"), (run, "--out", self.folder / "claims.md")):
            self.assertIn("does not say why", claims(*arguments))

    def test_a_figure_that_moves_moves_its_verdict(self):
        def exact(row):
            if row["published"]:
                row["tp_communication_share"] = row["published"]["tp_communication_share"]
                row["difference"]["tp_communication_share"] = 0.0

        run = self.changed_run("fig1", exact)
        self.assertIn("is not what the records say", claims(run, "--check"))
        page = self.page(run)
        self.assertIn("27.5 %, 0.0 % | mean 10 % | reproduced", self.line(page, "TP communication in one"))
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        self.assertIn("**deviates**", self.line(kept, "TP communication in one"))

    def test_a_time_together_that_is_off_moves_its_verdict(self):
        def late(pair):
            pair["from_published_times"].update(together_s=0.01, together_error=0.051)

        self.assertIn("does not say why", claims(self.changed_run("table11", late, "pairs"), "--out", self.folder / "claims.md"))
        kept = self.line((ROOT / "docs/claims.md").read_text(encoding="utf-8"), "Overlap: a GEMM")
        self.assertIn("| 9.251 and 1.685 ms | 9.240 and 1.683 ms; maximum error −0.1 %", kept)
        self.assertIn("| each 5 % | reproduced | simulated, in part calibrated |", kept)

    def test_every_scenario_that_is_judged_has_a_claim(self):
        judged = {c.get("scenario") for c in json.loads((ROOT / "results/claims.json").read_text(encoding="utf-8"))["claims"]}
        lines = json.loads((KEPT / "summary.json").read_text(encoding="utf-8"))["experiments"]
        self.assertEqual([line["id"] for line in lines if line["verdict"] != "not testable here" and line["id"] not in judged], [])


if __name__ == "__main__":
    unittest.main()
