#!/usr/bin/env python3
"""What the pages name exists: links, paths, functions; and docs/data.md has the fields that the readers of models and profiles accept.

    docs.py STP_BINARY
"""

import re
import subprocess
import sys
import unittest

from command_line import changed, CommandLine, HARDWARE, main, read_json, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from simulation import read_configurations

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results/reference/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("baselines", "cmake", "docs", "driver", "lib", "microbench", "models", "plots", "profiles", "results", "scenarios",
           "scripts", "tests")
NOT_TRACKED = "results/runs"
SOURCES = ("lib", "driver", "baselines")


def text_of(path):
    return path.read_text(encoding="utf-8")


def anchors(page):
    """Of the page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def found(pattern):
    """Every match in every page, with the page."""
    return [(page, match) for page in PAGES for match in re.finditer(pattern, text_of(page))]


class Pages(unittest.TestCase):
    maxDiff = None

    def test_links_lead_somewhere(self):
        lost = []
        for page, match in found(r"\]\(((?!https?:)[^)\s]*)\)"):
            name, _, anchor = match[1].partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                lost.append(f"{page.name}: {match[1]}")
        self.assertEqual(lost, [])

    def test_paths_exist(self):
        paths = found(rf"`((?:{'|'.join(FOLDERS)})/[\w.\-/]*)[` ]")
        self.assertEqual([f"{page.name}: {match[1]}" for page, match in paths
                          if not match[1].startswith(NOT_TRACKED) and not (ROOT / match[1]).exists()], [])

    def test_no_line_is_over_120_characters(self):
        """But for those of tables and code, and images."""
        texts = {page: re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL) for page in PAGES}
        self.assertEqual([f"{page.name}: {line}" for page, text in texts.items() for line in text.splitlines()
                          if len(line) > 120 and not line.startswith(("|", "!"))], [])

    def test_every_figure_is_a_number(self):
        self.assertEqual([f"{page.name}: {match[0]}" for page, match in found(r"(?i)\| nan\b.*")], [])

    def test_functions_exist(self):
        source = "\n".join(text_of(path) for folder in SOURCES for kind in ("h", "cc", "cu", "cuh")
                           for path in (ROOT / folder).rglob(f"*.{kind}"))
        known = set(re.findall(r"\b(\w+)(?=[(<])", source))
        functions = found(r"`(?:\w+::)*(\w+)\(\)`")
        self.assertEqual([f"{page.name}: {match[1]}()" for page, match in functions if match[1] not in known], [])


class Parity(CommandLine):
    """The kept summary of `stp run parity --backend cpu`, and what the README says of it."""

    def test_the_readme_says_what_the_record_says(self):
        kept = read_json(ROOT / "results/reference/measured/parity.json")
        groups, scenario = kept["groups"], read_configurations("parity")
        self.assertEqual((sum(one["cases"] for one in groups), sum(one["equal"] for one in groups)), (kept["cases"], kept["equal"]))
        for kind, limit in (("f64", 1e-10), ("f32", 1e-5)):
            self.assertTrue(all(max(one["loss"], one["gradient"]) <= limit for one in groups if one["type"] == kind))
        cases = {kind: sum(one["cases"] for one in groups if one["type"] == kind) for kind in ("f64", "f32")}
        self.assertIn(f"{kept['equal']} of {kept['cases']} combinations of schedule, parallelism and microbatches train like one rank, with "
                      f"gradients equal to 10⁻¹⁰ ({cases['f64']} in float64) or 10⁻⁵ ({cases['f32']} in float32)",
                      " ".join(text_of(ROOT / "README.md").split()))  # fmt: skip
        asked = sum(len(one["schedules"]) * len(one["microbatches"]) for one in scenario["configurations"])
        self.assertEqual(kept["cases"] + kept["refused"], asked, "the scenario has changed; run it again (results/reference/README.md)")
        self.assertEqual((kept["evidence"], kept["provenance"]["git_dirty"]), ("measured", False))

    def test_a_case_that_is_not_equal_is_not_counted_as_equal(self):
        case = {"type": "f64", "schedule": "stp", "tp": 1, "pp": 2, "dp": 1, "sequence_parallel": False, "recompute": "none"}
        rows = [{**case, "parity": {"loss": 0.0, "gradient": error}} for error in (1e-12, 1e-9)]
        rows.append({**case, "type": "f32", "parity": {"loss": 0.0, "gradient": 1e-9}})
        record = self.write({"results": rows, "evidence": "measured", "provenance": {}, "system": {}}, "record.json")
        subprocess.run([sys.executable, ROOT / "scripts/parity_summary", record, self.folder / "summary.json"], check=True)
        found = self.read("summary.json")
        self.assertEqual((found["cases"], found["equal"]), (3, 2))
        self.assertEqual([(one["type"], one["cases"], one["equal"], one["gradient"]) for one in found["groups"]],
                         [("f32", 1, 1, 1e-9), ("f64", 2, 1, 1e-9)])  # fmt: skip


class DataFiles(CommandLine):
    """The tables of docs/data.md."""

    @staticmethod
    def fields(heading):
        """By field, its default, the last of "type, unit; default"."""
        section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", text_of(ROOT / "docs/data.md"), re.MULTILINE | re.DOTALL)[1]
        rows = re.findall(r"^\| `([^`]+)` \| ([^|]*) \|", section, re.MULTILINE)
        return {name: re.split("[,;] ", cell)[-1] for name, cell in rows}

    def check_names(self, heading, reader):
        """The readers call METHOD("FIELD", …) for each field, and nothing else with such a first argument."""
        found = re.findall(r'\b(?!InputError)\w+\((?:\w+ \? "(\w+)" : )?"([a-z]\w*)"[,)]', text_of(ROOT / reader))
        read = {name for names in found for name in names if name}
        documented = {re.sub(r".*\.|\[\]", "", name) for name in self.fields(heading)}
        self.assertEqual(documented, read)

    def test_model_files_have_these_fields(self):
        self.check_names("Model files", "lib/stp/model/config.cc")

    def test_profile_files_have_these_fields(self):
        self.check_names("Profile files", "lib/stp/cluster/profile.cc")

    def test_fields_are_marked_as_sure_as_profiles_say(self):
        text = text_of(ROOT / "docs/data.md")
        for path in (ROOT / "profiles").glob("*.json"):
            for field, content in read_json(path).items():
                if isinstance(content, dict) and "sure" in content:
                    self.assertTrue(re.search(rf"\| `{field}` \|.*\([^()]*\b{content['sure']}\b[^()]*\) \|", text), (path.name, field))

    def check_defaults(self, heading, key, data):
        """A field of `data` can be left out unless it is required; the scenario names the file as `key`."""
        content = read_json(ROOT / data)
        scenario = self.write(changed(HARDWARE, schedules=["1f1b"], seq=64, parallel={"pp": 2}, microbatches=2, **{key: "data.json"}))
        for field, default in self.fields(heading).items():
            if field in content:
                with self.subTest(field=field):
                    self.write(changed(content, **{field: None}), "data.json")
                    if default == "required":
                        self.refused(["simulate", scenario], f"data.json: {field}: is missing")
                    else:
                        self.succeed("simulate", scenario)

    def test_models_need_what_is_required(self):
        self.check_defaults("Model files", "model", "models/tiny.json")

    def test_profiles_need_what_is_required(self):
        self.check_defaults("Profile files", "cluster", "results/reference/measured/cpu-profile.json")
        self.check_defaults("Profile files", "cluster", "profiles/h200.json")


if __name__ == "__main__":
    main(__doc__)
