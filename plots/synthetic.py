"""Synthetic records for the tests, and a reader of the page that comes of them."""

from html.parser import HTMLParser

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="100" height="20">{}</svg>'


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


def record(rows, **fields):
    return {
        "schema_version": "1.0.0", "evidence": "simulated", "scenario": {"name": "x", "title": "X"},
        "system": {"kernel": "Linux"}, "rows": rows,
        "provenance": {"argv": ["stp"], "version": "0.1.0", "git_revision": "abc", "time": "2026-01-01T00:00:00Z"},
        **fields,
    }  # fmt: skip


def line(name, **fields):
    return {"id": name, "title": name, "evidence": "simulated", "rows": 1, "verdict": "not testable here", **fields}


class Page(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.texts, self.open = [], [], []
        self.row_tables = []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag == "table":
            self.row_tables.append([attributes.get("class"), -1])  # the line of the heads does not count
        if tag == "tr":
            self.row_tables[-1][1] += 1

    def handle_data(self, data):
        self.texts.append(data)

    def rows(self):
        """Data rows in the tables of all rows, which have two lines of heads."""
        return sum(count - 1 for kind, count in self.row_tables if kind == "rows")
