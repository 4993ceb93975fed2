#!/usr/bin/env python3
"""docs/claims.md is what the kept records say, and changes if they change."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "results/reference/simulated"


def load(name):
    loader = importlib.machinery.SourceFileLoader(f"{name}_script", str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(f"{name}_script", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


sys.path.insert(0, str(ROOT / "scripts"))  # what scripts share
SCRIPT = load("claims")
from stp_analysis import measurements  # noqa: E402, behind the path that the script sets


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
        self.assertIn("27.5 % | 27.5 %, 0.0 % | mean 10 % | reproduced", self.line(page, "TP communication in one"))
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        self.assertIn("**deviates**", self.line(kept, "TP communication in one"))

    def test_a_time_together_that_is_off_moves_its_verdict(self):
        def late(pair):
            pair["from_published_times"].update(together_s=0.01, together_error=0.051)

        self.assertIn("does not say why", claims(self.changed_run("table11", late, "pairs"), "--out", self.folder / "claims.md"))
        kept = self.line((ROOT / "docs/claims.md").read_text(encoding="utf-8"), "Overlap: a GEMM")
        self.assertIn("| 9.251 and 1.685 ms | 9.240 and 1.683 ms; maximum error −0.1 %", kept)
        self.assertIn("| each 5 % | consistent (calibrated) | simulated, calibrated |", kept)

    def verdict(self, page, claim):
        return self.line(page, claim).split(" | ")[5].strip("*")

    def test_one_row_that_is_far_off_is_enough_to_deviate(self):
        far = iter([1.16])

        def off(row):
            if row["model"] == "llm-26.3b" and (factor := next(far, None)):
                row["peak_memory_gb"] = factor * row["published"]["peak_memory_gb"]
                row["difference"]["peak_memory_gb"] = factor - 1

        said = claims(self.changed_run("llm-a800", off), "--out", self.folder / "claims.md")
        self.assertIn('"Peak activation memory of the three on A800" deviates', said)

    def test_no_verdict_is_better_than_its_evidence(self):
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        for claim, verdict in (
            ("Throughput of the three on H20", "deviates"),  # the worst row is 20.4 % off
            ("STP: idle time", "deviates"),  # the worst row is 5 % off, for 3
            ("ZB-V is faster than 1F1B-I in 13 of 24", "deviates"),
            ("ZB-V is faster than 1F1B-I in 2 of 7", "deviates"),
            ("Overlap: a GEMM", "consistent (calibrated)"),
            ("Throughput of STP with activation checkpointing", "consistent (calibrated)"),  # a choice decided by its rows
            ("STP gains less on H20", "deviates"),  # the direction holds, the size is half
            ("The order of each pair of schedules that", "consistent (calibrated)"),  # so has one order for all
            ("STP's gain over 1F1B-I, all", "consistent (calibrated)"),  # the null model is within chance
            ("Throughput of 1F1B-I, ZB-V and STP on A800", "reproduced"),
            ("STP is the fastest", "consistent (calibrated)"),  # so is the null model's
            ("STP gains more at TP8", "consistent (calibrated)"),
            ("STP's gain over 1F1B-I on H20", "deviates"),  # over half of the mean gain is error
            ("Peak activation memory of the three on H20", "deviates"),
            ("Iteration times of 175B to 1T", "deviates"),  # without the rows that a count was completed on
        ):
            self.assertEqual(self.verdict(kept, claim), verdict, claim)
        for line in kept.splitlines():
            if "stp reproduce" in line and "calibrated" in line.split(" | ")[6]:
                self.assertNotEqual(line.split(" | ")[5], "reproduced", line)

    def test_the_better_null_model_is_the_one_that_counts(self):
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        self.assertIn("null model with the textbook bubble 1.65 %, nearer in 27 of 66", self.line(kept, "Throughput of 1F1B-I, ZB-V and STP on A800"))
        self.assertIn("null model 3.55 %, nearer in 15 of 18", self.line(kept, "Peak activation memory of the three on H20"))
        self.assertIn("A800's gain of zb-v over 1f1b-i (1.30 for our 1.44 points)", " ".join(kept.split()))

    def test_small_gains_need_small_errors(self):
        """The rule for every claim about the size of gains: half of the mean published gain."""
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        for claim in ("STP gains up to", "STP's gain over 1F1B-I, all", "ZB-V is faster than 1F1B-I in 13", "STP's gain over 1F1B-I on H20",
                      "ZB-V is faster than 1F1B-I in 2 of 7", "STP gains less on H20"):  # fmt: skip
            self.assertIn(" and half of the published (", self.line(kept, claim))
        self.assertIn("mean absolute error 1.58 points over 4", self.line(kept, "STP's gain over 1F1B-I on H20"))
        self.assertIn("| mean 1.5 points and half of the published (1.09), worst", self.line(kept, "STP's gain over 1F1B-I on H20"))

    def test_what_row_counts_hide_is_told(self):
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        self.assertIn("over 18 predicted rows (6 distinct figures of new configurations: 0.78 %)", self.line(kept, "memory of the three on A800"))
        self.assertIn("2 of 2 at TP8 high, by 2.7 |", self.line(kept, "STP's gain over 1F1B-I on H20"))

    def test_zbv_and_close_pairs_are_told(self):
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        self.assertIn("| 13 of 24 (1 tie) | 6 of 24; as in the paper, faster or slower, in 14 of 23; gain: mean absolute error 1.44 points", kept)
        self.assertIn("| 51 pairs, of 66 predicted and 72 in all | 51 of 51 in the same order (null model: 48; one order for all, that of the calibrated rows: 51); of the 15 pairs that are closer, 6, 1 tie in the paper (null model: 9) |", kept)

    def test_what_restates_a_claim_or_is_another_paper_s_is_not_counted(self):
        kept = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
        own, apart = kept.partition("## Counted apart")[::2]
        lines = [line for line in own.splitlines() if "stp reproduce" in line]
        self.assertIn(f"Of {len(lines)} claims of the paper that were tested, ", " ".join(own.split()))
        for claim in ("MFU of the three", "Korthikanti et al.", "vTrain's validation data", "ZB-V: peak of 2p"):
            self.assertFalse([line for line in lines if claim in line])
            self.assertIn(claim, apart)
        reproduced = sum(line.split(" | ")[5] == "reproduced" for line in lines)
        self.assertIn(f", reproduced: {reproduced}, ", " ".join(own.split()))

    def test_the_readme_says_what_the_records_say(self):
        readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
        experiments = SCRIPT.read_folder(KEPT)
        for row in SCRIPT.null_model.table(experiments).rows:
            if row[1] in ("throughput", "gain of stp over 1f1b-i", "peak activation memory"):
                ours, *nulls = (cell.replace(" points", "") for cell in row[3:6] if cell != "–")
                better = min(nulls, key=lambda cell: float(cell.split()[0]))
                self.assertIn(f"{ours} | {better} |", readme)
        listed = json.loads((ROOT / "results/claims.json").read_text(encoding="utf-8"))["claims"]
        numbers = [int(word) for word in SCRIPT.counts(SCRIPT.evaluate(experiments, listed)).replace(",", " ").replace(";", " ").split() if word.isdigit()]
        said = "Of {} tested [claims](docs/claims.md) reproduced: {}, consistent with what was fitted: {}, deviating: {}"
        self.assertIn(said.format(*numbers), readme)

    def test_the_page_on_fidelity_says_what_the_records_say(self):
        """Its figures against us, computed again."""
        page = " ".join((ROOT / "docs/fidelity.md").read_text(encoding="utf-8").replace("**", "").split())
        run = {one.id: one for one in SCRIPT.read_folder(KEPT)}
        a800, h20 = run["llm-a800"], run["llm-h20"]
        mean = lambda errors: 100 * errors.abs().mean()  # noqa: E731

        rows = SCRIPT.null_model.errors(a800, "throughput")
        self.assertIn(f"beats our simulation in A800's throughput, {mean(rows['bubble_error']):.2f} for {mean(rows['error']):.2f} %", page)
        new = rows[rows["new"]]
        self.assertIn(f"(new configurations {mean(new['bubble_error']):.2f} for {mean(new['error']):.2f} %)", page)
        with mock.patch.dict(SCRIPT.null_model.BUBBLE, dict.fromkeys(SCRIPT.null_model.BUBBLE, 1)):
            alike = SCRIPT.null_model.errors(a800, "throughput")
        self.assertIn(f"which is none of theirs, it errs {mean(alike['bubble_error']):.2f} %", page)

        memory = SCRIPT.null_model.errors(h20, "memory")
        new = memory[memory["new"]]
        self.assertIn(f"({mean(memory['error']):.2f} for 5 %; {mean(new['error']):.2f} % over the {len(new)} rows without TP8 PP2", page)
        self.assertIn(f"errs less: {mean(memory['null_error']):.2f} %, or {mean(new['null_error']):.2f} % over the {len(new)}", page)

        memory = SCRIPT.null_model.errors(a800, "memory")
        self.assertIn(f"Those are {len(memory)} rows", page)
        self.assertIn(f"are {memory[memory['new']]['ours'].nunique()} distinct figures, each twice", page)

        others = memory[memory["new"] & (memory["schedule"] != "stp")]
        self.assertIn(f"are {mean(others['error']):.2f} % off, the null model's {mean(others['null_error']):.2f} %)", page)

        gains = a800.compared("gain")
        low = gains[[row.schedule == "stp" and row.data["tp"] == 8 for row in gains.itertuples()]]["error"]
        self.assertTrue((low < 0).all())
        self.assertIn(f"all {len(low)} gains at TP8 on A800 (11 predicted) come out low, by {-low.max():.1f} to {-low.min():.1f} points", page)

    def test_the_page_on_fidelity_says_what_the_records_of_vision_and_merging_say(self):
        page = " ".join((ROOT / "docs/fidelity.md").read_text(encoding="utf-8").replace("**", "").split())
        run = {one.id: one for one in SCRIPT.read_folder(KEPT)}
        mean = lambda errors: errors.abs().mean()  # noqa: E731

        vision = run["mllm-a800"]
        throughput, memory = vision.compared("throughput"), vision.compared("memory")
        gains = vision.compared("gain")
        gains = gains[gains["schedule"] == "stp"]
        self.assertIn(f"Throughput errs {100 * mean(throughput['error']):.2f} % on average, gains {mean(gains['error']):.2f} points, "
                      f"memory {100 * mean(memory['error']):.2f} %", page)
        deeper = gains[[data["pp"] > 2 for data in gains["data"]]]
        self.assertIn(f"Without the three at PP2, STP's gains err by {mean(deeper['error']):.2f} points", page)
        others = memory[[not (row.schedule == "stp" and row.data["model"] == "mllm-28.8b") for row in memory.itertuples()]]
        self.assertEqual(len(others), 11)
        self.assertIn(f"other eleven figures of memory err by {100 * mean(others['error']):.2f} %", page)
        splits = run["mllm-splits"].figure("gain")
        splits = splits[splits["schedule"] == "stp"]["ours"]
        self.assertIn(f"STP's gain goes from {splits.min():.1f} to {splits.max():.1f} % over five plausible splits", page)

        merged = run["zb-v-merged"]
        by = lambda frame: [frame[[(row.data.get("merge_backward") is True) == kind and row.schedule == "zb-v" and not row.calibrated  # noqa: E731
                                   for row in frame.itertuples()]]["error"] for kind in (False, True)]  # fmt: skip
        without, with_it = (f"{100 * mean(errors):.2f}" for errors in by(merged.compared("throughput")))
        self.assertIn(f"throughput errs {without} % without and {with_it} % merged", page)
        without, with_it = (f"{mean(errors):.2f}" for errors in by(merged.compared("gain")))
        self.assertIn(f"the gain {without} and {with_it} points", page)

    def test_every_claim_of_the_paper_stands_at_its_table_or_figure(self):
        known = json.loads((ROOT / "results/claims.json").read_text(encoding="utf-8"))
        cited = {where for place in known["places"] for where in place.get("claims", [])}
        own = {claim["where"] for claim in known["claims"] if not any(word in claim["where"] for word in ("Korthikanti", "TWIST", "vTrain"))}
        self.assertEqual(cited, own)
        table = (ROOT / "docs/claims.md").read_text(encoding="utf-8").partition("## Every table and figure")[2].partition("\n## ")[0]
        lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
        self.assertEqual([cells[0].strip() for cells in lines[1:]], [place["where"] for place in known["places"]])
        self.assertTrue(all(cell.strip() for cells in lines for cell in cells))

    def test_the_page_on_fidelity_says_what_other_braids_change(self):
        page = (ROOT / "docs/fidelity.md").read_text(encoding="utf-8")
        places = {}
        for row in json.loads((KEPT / "braids.json").read_text(encoding="utf-8"))["rows"]:
            place = (row["cluster"], row["sequence_parallel"])
            of = (row["model"], row["tp"], row["schedule"])
            places.setdefault(place, {}).setdefault(of, {})[row["braid"]] = row["throughput_samples_per_s"]
        for place, label in ((("a800", False), "A800, all-reduces"), (("a800", True), "A800, sequence parallelism"),
                             (("h100", True), "H100, sequence parallelism"), (("a800-pcie", False), "A800 over PCIe, all-reduces")):  # fmt: skip
            self.assertEqual(len(places[place]), 12)
            cells = []
            for braid in ("timed", "paired"):
                gains = [100 * (rates[braid] / rates["static"] - 1) for rates in places[place].values()]
                ends = [f"{end:+.1f}".replace("-", "−") for end in (min(gains), max(gains))]
                cells.append(" to ".join(end if end.strip("+−") != "0.0" else "0.0" for end in ends) + " %")
            self.assertIn(f"| {label} | {' | '.join(cells)} |", page)

    def test_the_page_on_fidelity_says_what_the_records_of_new_settings_say(self):
        """No pipeline, other numbers of chunks, no NVLink: its tables, computed again."""
        page = (ROOT / "docs/fidelity.md").read_text(encoding="utf-8")
        rows = {name: json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))["rows"] for name in ("pp-1", "chunks", "tp-pcie")}
        signed = lambda value: f"{value:+.1f} %".replace("-", "−")  # noqa: E731

        def gain(of, over):
            return 100 * (of["throughput_samples_per_s"] / over["throughput_samples_per_s"] - 1)

        def bubbles(row):
            """Of the rank that computes most: PP and TP bubble, in percent."""
            rank = max(row["ranks"], key=lambda one: one["compute_s"])
            return [100 * rank[key] / row["step_time_s"] for key in ("pp_bubble_s", "tp_bubble_s")]

        alone = {(row["schedule"], row["tp"]): row for row in rows["pp-1"] if row["model"] == "llm-12.1b"}
        for name, schedules in (("ZB-V", ["zb-v"]), ("1F1B-I braided, DHelix", ["1f1b-i-braided", "dhelix"]), ("STP", ["stp"])):
            for schedule in schedules:
                cells = [signed(gain(alone[schedule, tp], alone["1f1b", tp])) for tp in (2, 4, 8)]
                self.assertIn(f"| {name} | {' | '.join(cells)} | {alone[schedule, 8]['peak_memory_gb']:.1f} |", page)

        def ends(values, digits=1, unit=""):
            return f"{min(values):.{digits}f} to {max(values):.{digits}f}{unit}"

        places = [(row["model"], row["seq"], row["tp"]) for row in rows["chunks"] if row["name"] == "v 1"]
        self.assertEqual(len(places), 8)
        at = {(row["model"], row["seq"], row["tp"], row["name"], row["schedule"]): row for row in rows["chunks"]}
        for name, setting, schedule in (("1F1B, v = 1", "v 1", "1f1b"), ("1F1B-I, v = 2 (paper)", "v 2", "1f1b-i"),
                                        ("1F1B-I, v = 4", "v 4", "1f1b-i"), ("ZB-V", "v 2", "zb-v")):  # fmt: skip
            base = {place: at[*place, setting, schedule] for place in places}
            gains = [ends([gain(at[*place, "v 2", "stp"], base[place]) for place in places if place[2] == tp]) for tp in (4, 8)]
            idle = [ends(values, unit=" %") for values in zip(*map(bubbles, base.values()))]
            memory = ends([row["peak_memory_gb"] for row in base.values()], 0)
            self.assertIn(f"| {' | '.join([name, *gains, *idle, memory])} |", page)
        best = {tp: [gain(at[*place, "v 2, overlapped", "stp"], max((at[*place, f"v {v}, overlapped", "1f1b-i"] for v in (2, 4)),
                                                                    key=lambda row: row["throughput_samples_per_s"]))
                     for place in places if place[2] == tp] for tp in (4, 8)}  # fmt: skip
        self.assertIn(f"STP gains {ends(best[4])} % at TP4, {ends(best[8])} % at TP8", " ".join(page.split()))

        links = {(row["name"], row["tp"], row["schedule"]): row for row in rows["tp-pcie"]}
        for name, label in (("NVLink", "NVLink, 152.5 GB/s"), *((f"{speed} GB/s",) * 2 for speed in (51.2, 25.6, 12.8))):
            cells = []
            for tp in (2, 4, 8):
                row = links[name, tp, "stp"]
                cells.append(f"{signed(gain(row, links[name, tp, '1f1b-i']))}; {100 * row['tp_communication_share']:.0f} %; {bubbles(row)[1]:.1f} %")
            self.assertIn(f"| {' | '.join([label, *cells])} |", page)

    def test_the_page_on_fidelity_says_what_the_record_of_splits_says(self):
        page = (ROOT / "docs/fidelity.md").read_text(encoding="utf-8")
        rows = json.loads((KEPT / "balance.json").read_text(encoding="utf-8"))["rows"]
        by = {(row["name"], row["model"], row["tp"], row["pp"], row["schedule"]): row for row in rows}
        titles = {"1f1b-i": "1F1B-I", "zb-v": "ZB-V", "stp": "STP"}
        for (name, model, tp, pp, schedule), manual in by.items():
            if name != "manual":
                continue
            others = [by[kind, model, tp, pp, schedule] for kind in ("even", "balanced")]
            own = manual["throughput_samples_per_s"]
            changes = [f"{100 * (row['throughput_samples_per_s'] / own - 1):+.1f} %" for row in others]
            layers = others[1]["layers_per_chunk"]
            split = "as manual" if layers == manual["layers_per_chunk"] else ", ".join(map(str, layers))
            cells = [model.split("-")[1].upper(), f"{tp}, {pp}", titles[schedule], f"{own:.2f}", *changes, split]
            self.assertIn(f"| {' | '.join(cells)} |", page)
        splits = json.loads((ROOT / "results/reference/splits.json").read_text(encoding="utf-8"))
        self.assertIn(load("splits").markdown(splits["cases"]), page)

    def test_the_page_on_vtrain_says_what_the_record_says(self):
        page = (ROOT / "docs/vtrain.md").read_text(encoding="utf-8")
        [run] = [one for one in SCRIPT.read_folder(KEPT) if one.id == "vtrain"]
        every = run.compared("time")
        every = every.assign(consistent=~measurements.contradicting(every), tp=[data["tp"] for data in every["data"]])
        for name, rows in [*every.groupby("tp"), ("all", every)]:
            errors, some = 100 * rows["error"], 100 * rows["error"][rows["consistent"]]
            signed = [f"{one:.1f}".replace("-", "−") for one in (errors.mean(), errors[errors.abs().idxmax()])]
            cells = [name, len(rows), f"{errors.abs().mean():.1f}", *signed, len(some), f"{some.abs().mean():.1f}"]
            self.assertIn(f"| {' | '.join(map(str, cells))} |", page)
        right, pairs = measurements.order(run)
        self.assertIn(f"Of {pairs} pairs of one model that differ by over 2 %, {right} are in the measured order", " ".join(page.split()))

    def test_every_scenario_that_is_judged_has_a_claim(self):
        judged = {c.get("scenario") for c in json.loads((ROOT / "results/claims.json").read_text(encoding="utf-8"))["claims"]}
        lines = json.loads((KEPT / "summary.json").read_text(encoding="utf-8"))["experiments"]
        self.assertEqual([line["id"] for line in lines if line["verdict"] != "not testable here" and line["id"] not in judged], [])


if __name__ == "__main__":
    unittest.main()
