"""Synthetic records for the tests, and a reader of the resulting page."""

import contextlib
import csv
import functools
import io
import json
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import report
from stp_plots import words
from stp_plots.draw import style
from stp_plots.files import ROOT
from stp_plots.read import records

KEPT = ROOT / "results/reference/simulated"


def row(schedule="stp", **fields):
    data = {
        "schedule": schedule, "model": "llm", "cluster": "a800", "seq": 4096, "tp": 4, "pp": 2, "cp": 1, "dp": 1,
        "microbatches": 8, "microbatch_size": 1, "step_time_s": 4.0, "step_time_repeats_s": [4.0], "mfu": 0.4,
        "throughput_samples_per_s": 2.0, "mfu_paper": 0.5, "peak_memory_gb": 30.0, "calibration": False,
        "ranks": [{"compute_s": 3.0, "tp_bubble_s": 0.4, "pp_bubble_s": 0.6, "peak_activation_chunks": 5}] * 2,
        "published": {"throughput_samples_per_s": 2.5, "peak_memory_gb": 33, "mfu_paper": 0.6, "tables": ["Table 6"]},
        "difference": {"throughput_samples_per_s": -0.2, "peak_memory_gb": -1 / 11, "mfu_paper": -1 / 6},
    }  # fmt: skip
    return {**data, **fields}


def unit_row(schedule="stp", **fields):
    nothing = dict.fromkeys(
        ("model", "cluster", "seq", "mfu", "mfu_paper", "peak_memory_gb", "published", "difference")
    )
    return row(schedule, **{**nothing, **fields})


UNIT_COSTS = {f"{unit}.{part}": 0.125 for unit in ("attn", "mlp") for part in "FIW"} | {"all_reduce": 0.03125}


def closed_row(schedule="stp", pp=2, *, idle=(3.0, 3.0), chunks=(4, 4), costs=None, **fields):
    """A unit-cost row with (ours, closed form) of both figures."""
    values = dict(zip(("idle_s", "peak_activation_chunks"), (idle, chunks)))
    relative = {key: ours / closed - 1 if closed else float(ours != 0) for key, (ours, closed) in values.items()}
    own = {
        "pp": pp, "microbatches": 6 * pp, "layers_per_chunk": [4] * 2 * pp, "unit_costs": costs or UNIT_COSTS,
        **{key: ours for key, (ours, _) in values.items()},
        "published": {"tables": ["Table 1"], **{key: float(closed) for key, (_, closed) in values.items()}},
        "difference": relative,
    }  # fmt: skip
    return unit_row(schedule, **{**own, **fields})


def pair(name="one", **fields):
    """A GEMM and an all-reduce with published times."""
    figures = {
        "together_s": 2.2e-3, "compute_slowdown": 0.1, "communication_slowdown": 0.11, "compute_rate": 0.83,
        "communication_rate": 0.9, "exposed_s": 2e-4, "exposed_share": 0.2, "saved_s": 8e-4,
    }  # fmt: skip
    data = {
        "name": name, "gemm": {"m": 64, "n": 32, "k": 16}, "all_reduce": {"bytes": 2**19, "ranks": 4},
        "gemm_s": 2e-3, "all_reduce_s": 1e-3, "serial_s": 3e-3, "figures": figures,
        "published": {"gemm_s": 2.5e-3, "all_reduce_s": 1e-3, "serial_s": 3.5e-3, "together_s": 2.75e-3,
                      "compute_slowdown": 0.1, "communication_slowdown": None, "exposed_s": 2.5e-4, "saved_s": 7.5e-4},
        "difference": {"gemm_s": -0.2, "all_reduce_s": 0.0, "serial_s": -1 / 7, "together_s": -0.2},
        "from_published_times": {**figures, "together_s": 2.64e-3, "together_error": -0.04},
    }  # fmt: skip
    return {**data, **fields}


SAME = ("model", "cluster", "seq", "tp", "pp", "microbatches", "contention")  # in rows that a gain compares


def with_gains(rows, over):
    """The rows with gains over a schedule, as stp writes them."""
    key = lambda row: str([row.get(field) for field in SAME])  # noqa: E731
    bases = {key(row): row for row in rows if row.get("schedule") == over}
    throughput = lambda row: words.number(words.dictionary(row).get("throughput_samples_per_s"))  # noqa: E731

    def gain(row):
        base = bases.get(key(row))
        if base is None or row.get("schedule") == over:
            return None
        pairs = [(throughput(row), throughput(base)), (throughput(row.get("published")), throughput(base.get("published")))]
        ours, published = (100 * (of / by - 1) if of is not None and by else None for of, by in pairs)
        return {"over": over, "percent": ours, "published_percent": published, "calibration": row.get("calibration") is True or base.get("calibration") is True,
                "error_points": None if None in (ours, published) else ours - published}  # fmt: skip

    return [{"gain": gain(row), **row} for row in rows]


def record(rows, over="1f1b-i", **fields):
    rows = with_gains(rows, over)
    return {
        "schema_version": "1.0.0", "evidence": "simulated", "scenario": {"name": "x", "title": "X"},
        "system": {"kernel": "Linux"}, "rows": rows,
        "provenance": {"argv": ["stp"], "version": "0.1.0", "git_revision": "abc", "time": "2026-01-01T00:00:00Z"},
        **fields,
    }  # fmt: skip


def experiment(rows, over="1f1b-i", order=(), **fields):
    return records.Experiment(line("a", order=list(order), pairs_apart=0.02), record(rows, over, **fields), "a.json")


def line(name, **fields):
    return {"id": name, "title": name, "evidence": "simulated", "rows": 1, "verdict": "deviates", **fields}


@functools.cache
def kept():
    """The suite's own experiments."""
    return records.read_folder(KEPT)


class Page(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.texts, self.tables, self.in_cell = [], [], [], False
        self.feed(source)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        data = data.replace("\u00a0", " ")
        self.texts.append(data)
        if self.in_cell:
            self.tables[-1][-1][-1] += data.strip()

    def row(self, *start):
        """The cells after `start` in the table row that begins with `start`."""
        rows = [row for table in self.tables for row in table if row[: len(start)] == list(start)]
        assert len(rows) == 1, (start, rows)
        return rows[0][len(start) :]

    def links(self):
        return [attributes["href"] for tag, attributes in self.elements if tag == "a"]

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


class FolderTest(unittest.TestCase):
    """Tests that make reports of a temporary folder."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.folder = Path(scratch.name)
        self.addCleanup(scratch.cleanup)

    def write(self, **experiments):
        """Writes a folder of experiments: records, or (record, fields of the summary's line)."""
        lines = []
        for name, given in experiments.items():
            content, fields = given if isinstance(given, tuple) else (given, {})
            (self.folder / f"{name}.json").write_text(json.dumps(content))
            lines.append(line(name, **fields))
        (self.folder / "summary.json").write_text(json.dumps({"schema_version": "1.0.0", "experiments": lines}))

    def main(self, folder=None):
        """Exit status and output of report.py."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            status = report.main([str(folder or self.folder)])
        return status, said.getvalue()

    def report(self, drawn="figures", **experiments):
        """The page and its source. Drawing takes most of the time: "figures" are made, only "files" are laid out and written."""
        self.write(**experiments)
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch("os.cpu_count", return_value=1))
            if drawn == "nothing":
                stack.enter_context(mock.patch.object(report, "makers", return_value=[]))
            if drawn != "files":
                stack.enter_context(mock.patch.multiple(style, png=lambda _: b"png", svg=lambda _: b"svg"))
            self.assertEqual(self.main(), (0, ""))
        source = (self.folder / "report.html").read_text(encoding="utf-8")
        page = Page(source)
        self.assert_self_contained(page, source)
        return page, source

    def assert_self_contained(self, page, source):
        for tag, attributes in page.elements:
            self.assertNotIn(tag, ("script", "link", "iframe", "object", "embed", "base"))
            for name, value in attributes.items():
                self.assertFalse(name.startswith("on"), f"{tag} {name}")
                if name.endswith(("src", "href", "data", "action")):
                    beside = tag == "a" and (self.folder / value).is_file()
                    self.assertTrue(beside or value.startswith(("data:", "#")), f"{tag} {name}={value[:60]}")
            if tag == "img":
                self.assertTrue(attributes.get("alt"))
        for word in ("http://", "https://", "@import", "file:"):
            self.assertNotIn(word, source)

    def rows(self, name="a"):
        """The lines of the experiment's file of rows."""
        with open(self.folder / f"rows-{name}.csv", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def plots(self):
        return sorted(path.name for path in self.folder.glob("*.png"))
