#!/usr/bin/env python3
"""Pages that scripts/pages writes change with their records, docs/claims.md above all, and the README says what they say."""

import contextlib
import functools
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "results/reference/simulated"
sys.path.insert(0, str(ROOT / "scripts"))  # as for a script that is run
LOADER = importlib.machinery.SourceFileLoader("pages_script", str(ROOT / "scripts/pages"))
SCRIPT = importlib.util.module_from_spec(importlib.util.spec_from_loader("pages_script", LOADER))
LOADER.exec_module(SCRIPT)
from stp_plots.judge import claims  # noqa: E402, behind the path that the script sets
from stp_plots.page import markdown, pages  # noqa: E402, behind the path that the script sets
from stp_plots.read import records  # noqa: E402

READ_KEPT = [(one, (KEPT / f"{one.id}.json").read_bytes()) for one in records.read_folder(KEPT)]


def read_folder(folder):
    """The experiments of a folder with the kept summary. To read one takes longest, so those with the kept record are read once."""
    paths = [pathlib.Path(folder) / f"{one.id}.json" for one, _ in READ_KEPT]
    return [one if path.read_bytes() == kept else records.Experiment(one.line, records.read_json(path), path)
            for (one, kept), path in zip(READ_KEPT, paths)]


SCRIPT.read_folder = read_folder


def rows_of(scenario):
    return records.read_json(KEPT / f"{scenario}.json")["rows"]


def write(run, *arguments, page="claims"):
    """The script's standard error, or its exit message; empty on success."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            SCRIPT.main([page, "--records", str(run), *map(str, arguments)])
    except SystemExit as stop:
        return str(stop.code)
    return said.getvalue()


@functools.cache
def evaluated():
    return claims.evaluate(read_folder(KEPT), claims.listed("claims"))


class Claims(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="stp-claims-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def changed_run(self, scenario, change, rows="rows"):
        folder = self.folder / "run"
        shutil.copytree(KEPT, folder)
        record = records.read_json(folder / f"{scenario}.json")
        for row in record[rows]:
            change(row)
        (folder / f"{scenario}.json").write_text(json.dumps(record), encoding="utf-8")
        return folder

    def page(self, run, *arguments):
        self.assertEqual(write(run, "--out", self.folder, *arguments), "")
        return (self.folder / "claims.md").read_text(encoding="utf-8")

    def cells(self, page, claim):
        """The cells of the claim's row: published if it counts, ours, verdict, evidence and reason."""
        lines = [line for line in page.splitlines() if line.startswith("| ") and f": {claim}" in line.split(" | ")[0]]
        self.assertEqual(len(lines), 1, claim)
        return lines[0].strip(" |").split(" | ")[1:]

    def kept(self):
        return (ROOT / "docs/claims.md").read_text(encoding="utf-8")

    def verdict(self, claim, run=KEPT):
        """Of a claim by its first words, over a run."""
        listed = [one for one in claims.listed("claims") if one["claim"].startswith(claim)]
        return claims.evaluate(read_folder(run), listed[:1])[0].verdict

    def assert_moves(self, claim, before, scenario, change, after):
        """A change of a scenario's rows moves the verdict of a claim, or leaves it."""
        self.assertEqual(self.verdict(claim), before)
        self.assertEqual(self.verdict(claim, self.changed_run(scenario, change)), after)

    def test_another_run_is_told_from_it(self):
        def slower(row):
            if row["schedule"] == "stp" and row["throughput_samples_per_s"]:
                row["throughput_samples_per_s"] *= 0.8

        run = self.changed_run("llm-a800", slower)
        # The fall is no claim's known reason: it has to be written down before a page can be made.
        for arguments in (["--check"], ["--out", self.folder]):
            self.assertIn("does not say why", write(run, *arguments))

    def test_a_figure_that_moves_moves_its_verdict(self):
        def exact(row):
            if row["published"]:
                row["tp_communication_share"] = row["published"]["tp_communication_share"]
                row["difference"]["tp_communication_share"] = 0.0

        run = self.changed_run("fig1", exact)
        self.assertIn("is not what the records say", write(run, "--check"))
        self.assertEqual(self.cells(self.page(run), "TP's share"), ["27.5 %", "27.5 % (0.0 %)", "holds", "Predicted"])
        self.assertEqual(self.cells(self.kept(), "TP's share")[2], claims.UNDECIDED)  # one row on an unknown GPU: no direction

    def test_a_time_together_that_is_off_moves_its_verdict(self):
        def late(pair):
            pair["from_published_times"].update(together_s=0.01, together_error=0.051)

        self.assertIn("does not say why", write(self.changed_run("table11", late, "pairs"), "--out", self.folder))

    def test_one_row_that_is_far_off_is_enough_to_miss(self):
        far = iter([1.16])

        def off(row):
            if row["model"] == "llm-26.3b" and (factor := next(far, None)):
                row["peak_memory_gb"] = factor * row["published"]["peak_memory_gb"]
                row["difference"]["peak_memory_gb"] = factor - 1

        said = write(self.changed_run("llm-a800", off), "--out", self.folder)
        self.assertIn('"Activation memory of the three" misses a criterion', said)

    def test_a_direction_that_is_lost_is_no_direction(self):
        def slower(row):
            if (row["tp"], row["seq"], row["microbatches"]) == (8, 6144, 192) and row["schedule"] == "stp":
                row["gain"].update(percent=-1.0, error_points=-1.0 - row["gain"]["published_percent"])

        self.assert_moves("STP's gain over 1F1B-I on H20", claims.DIRECTION, "llm-h20", slower, claims.UNDECIDED)

    def test_figures_far_apart_have_their_order_or_no_direction(self):
        largest = max(row["published"].get("peak_memory_gb", 0) for row in rows_of("llm-h20") if row["published"])

        def small(row):
            if row["published"] and row["published"].get("peak_memory_gb") == largest:
                row["peak_memory_gb"] = 1.0
                row["difference"]["peak_memory_gb"] = 1 / largest - 1

        self.assert_moves("Activation memory on H20", claims.DIRECTION, "llm-h20", small, claims.UNDECIDED)

    def test_gains_far_apart_have_their_order_or_no_direction(self):
        """Of one sign, but with the published order of two rows 5.5 points apart turned round."""
        last = [one for one in rows_of("llm-h20") if one["schedule"] == "stp" and one["gain"]][-1]

        def far(row):
            if row["gain"] and row["schedule"] == "stp" and (row["seq"], row["tp"]) == (last["seq"], last["tp"]):
                row["gain"].update(percent=0.5, published_percent=6.0, error_points=-5.5)

        self.assert_moves("STP's gain over 1F1B-I on H20", claims.DIRECTION, "llm-h20", far, claims.UNDECIDED)

    def test_a_verdict_is_that_of_every_choice_that_the_paper_leaves_open(self):
        """With the split that is worst left out, all gains over ZB-V are within the criteria."""
        slow = {"1f1b-i": 1.0, "zb-v": 1.0, "stp": 1.06}

        def near(row):
            if row["name"] == "12, 9 and 12 layers":
                row["throughput_samples_per_s"] *= slow[row["schedule"]]

        self.assert_moves("STP's gain over ZB-V with vision", claims.UNDECIDED, "mllm-splits", near, claims.HOLDS)

    def test_a_choice_that_an_experiment_has_not_is_refused(self):
        run = self.changed_run("mllm-splits", lambda row: row.update(seq=1))
        self.assertIn("mllm-splits: has a row in a place where mllm-a800 has none", write(run, "--out", self.folder))

    def test_what_was_fitted_to_tests_nothing(self):
        def predicted(row):
            if row["gain"]:
                row["gain"]["calibration"] = False

        self.assert_moves("STP's largest gain", claims.FITTED, "llm-a800", predicted, claims.HOLDS)

    def test_a_difference_of_fitted_gains_tests_nothing(self):
        def fitted(row):
            if row["gain"]:
                row["gain"]["calibration"] = True

        self.assert_moves("STP gains less on H20", claims.UNDECIDED, "llm-h20", fitted, claims.FITTED)  # 3 of 4 are already

    def test_no_figure_is_nan(self):
        """The mean over no rows is none; a page with one is refused."""
        table = pages.null_model.Table(["figure", "ours"], [["gain", "nan points"]])
        with unittest.mock.patch.object(pages.null_model, "table", return_value=table):
            self.assertIn("claims: has a figure that is no number, in | gain | nan points |", write(KEPT, "--out", self.folder))

    def test_what_is_counted_alone_contradicts(self):
        def backwards(row):
            if row["schedule"] == "stp":
                row["idle_s"] = 100 / row["idle_s"]
                row["difference"]["idle_s"] = row["idle_s"] / row["published"]["idle_s"] - 1

        run = read_folder(self.changed_run("table1", backwards))
        listed = [one for one in claims.listed("claims") if " idles " in one["claim"]]
        self.assertEqual(len(listed), 3)
        # What counts as idle is assumed. Without all-reduces ZB-V's form is 0 or half of ours.
        self.assertEqual([claims.evaluate(read_folder(KEPT), [one])[0].verdict for one in listed], [claims.DIRECTION, claims.UNDECIDED, claims.DIRECTION])
        defined = {key: listed[2][key] for key in listed[2] if key != "assumed"}
        self.assertEqual([claims.evaluate(run, [one])[0].verdict for one in (listed[2], defined)], [claims.UNDECIDED, claims.CONTRADICTED])
        self.assertLessEqual({one.evidence for one in evaluated() if one.verdict == claims.CONTRADICTED}, {claims.COUNTED})
        for some, said in ((listed, "No claim could be contradicted: only a count can be, and for all 3 the paper does not say how it counts."),
                           ([*listed[:2], defined], "1 contradicted. 1 claim could be contradicted: only a count can be, and for 2 of 3 the paper does not say ")):  # fmt: skip
            self.assertIn(said, claims.counts(claims.evaluate(run, some)))

    def test_a_count_has_no_direction_and_contradicts_where_the_paper_leaves_nothing_open(self):
        listed = [one for one in claims.listed("claims") if "holds 3p" in one["claim"]]
        self.assertEqual(len(listed), 2)
        for one in listed:
            for claim, verdict in ((one, claims.UNDECIDED), ({key: one[key] for key in one if key != "assumed"}, claims.CONTRADICTED)):
                self.assertEqual(claims.evaluate(read_folder(KEPT), [claim])[0].verdict, verdict)

    def test_what_the_paper_leaves_open_decides_where_it_spans_its_figure(self):
        def less(row):
            if row["gain"] and row["schedule"] == "stp":
                row["gain"]["percent"] = min(row["gain"]["percent"], 15.0)

        self.assert_moves("STP's gain with vision", claims.UNDECIDED, "mllm-splits", less, claims.DIRECTION)

    def test_what_does_not_hold_has_its_reason_and_what_a_null_model_says_too_is_told(self):
        found = {one.claim: one for one in evaluated()}
        for one in found.values():
            self.assertEqual(bool(one.reason), one.verdict not in (claims.HOLDS, claims.FITTED), one.claim)
        for claim, too in (("STP's gain over 1F1B-I", True), ("STP is the fastest of three", True), ("Larger gains at TP8 than TP4", True),
                           ("Order of schedules over 2 % apart", True), ("Throughput of the three", False)):  # fmt: skip
            self.assertEqual((found[claim].null_too, claims.NULL_TOO[1:] in found[claim].why), (too, too), claim)

    def test_rows_that_decided_a_choice_did_for_every_claim_on_them(self):
        shaped = {}
        for one in claims.listed("claims"):
            if "scenario" in one:
                shaped.setdefault(one["scenario"], set()).add(one.get("shaped_the_model", False))
        self.assertEqual({name for name, known in shaped.items() if True in known}, {"llm-a800", "activation-checkpoint", "tp-overlap", "long-context", "llama405b", "pipeoffload"})
        self.assertTrue(all(len(known) == 1 for known in shaped.values()), shaped)

    def test_what_the_paper_leaves_open_it_does_for_every_claim_on_the_rows(self):
        spans = {}
        for one in claims.listed("claims"):
            spans.setdefault(one.get("scenario"), set()).add(one.get("spans"))
        self.assertEqual(spans["mllm-a800"], {"mllm-splits"})
        self.assertTrue(all(len(known) == 1 for known in spans.values()), spans)

    def test_the_paper_s_claims_of_a_kind_have_one_criterion(self):
        kinds = {}
        for one in evaluated():
            if one.criteria and one.apart != "test":
                kinds.setdefault(one.criteria.partition(":")[0], set()).add(one.criteria)
        self.assertEqual([found for found in kinds.values() if len(found) > 1], [])

    def test_claims_on_rows_without_a_part_in_choices_are_counted_apart(self):
        fresh = [one for one in evaluated() if one.scenario and not one.apart and not one.shaped and one.evidence not in (claims.CALIBRATED, claims.COUNTED)]
        self.assertFalse({one.scenario for one in fresh} & {"llm-a800", "table1", "table11", "long-context"})
        holding = [one for one in fresh if one.verdict == claims.HOLDS]
        said = f"A stricter test uses only the {len(fresh)} claims whose rows had no part in choosing the model: {len(holding)} hold, "
        kept = " ".join(self.kept().split())
        self.assertIn(said, kept)
        self.assertIn(". The 3 rest on 12, 6 and 2 rows.", kept)  # of Table 3, of Table 10 twice

    def test_what_ran_fits_or_the_claim_is_open(self):
        self.assert_moves("All three run on 80 GB GPUs", claims.UNDECIDED, "llm-a800", lambda row: row.update(fits="yes"), claims.HOLDS)

    def test_a_row_that_may_fit_is_not_sure(self):
        def not_wrong(row):
            row["published"]["fits"] = row["fits"] != "no"

        self.assert_moves("What fits into H20", claims.UNDECIDED, "table4", not_wrong, claims.UNDECIDED)
        fit = sum(row["published"]["fits"] for row in rows_of("table4"))
        self.assertEqual(self.cells(self.kept(), "What fits into H20")[0], f"{fit} fit, {len(rows_of('table4')) - fit} do not")  # the paper's own count

    def test_gains_over_another_schedule_are_ratios_of_throughputs(self):
        of = {(row["schedule"], row["model"], row["seq"], row["tp"], row["microbatches"]): row for row in rows_of("llm-a800")}
        gains = [100 * (one["throughput_samples_per_s"] / of["zb-v", *place]["throughput_samples_per_s"] - 1) for (name, *place), one in of.items()
                 if name == "stp" and not one["calibration"]]  # fmt: skip
        found = next(one for one in evaluated() if one.claim == "STP's gain over ZB-V")
        self.assertTrue(found.ours.startswith(f"{min(gains):.1f} to {max(gains):.1f} %; "), found.ours)
        self.assertTrue(found.ours.endswith(f", {len(gains)} rows"))
        self.assertIn("\n| STP's gain over ZB-V, H20 | 4 | 4.21 points | 0.84 points | 0 |\n", self.kept())

    def test_each_verdict_and_evidence_is_explained(self):
        for name in (*(f"**{verdict}**" for verdict in claims.VERDICTS), *claims.EVIDENCE):
            self.assertIn(f"\n- {name}: ", self.kept())

    def test_small_gains_need_small_errors(self):
        """A claim about gains that errs less than the tolerance, but more than half of the mean published gain, is missed."""
        def near(row):
            if row["gain"] and row["gain"]["error_points"]:
                row["gain"]["error_points"] = 1.2 if row["gain"]["error_points"] > 0 else -1.2

        self.assert_moves("STP's gain over 1F1B-I on H20", claims.DIRECTION, "llm-h20", near, claims.DIRECTION)  # of 2.18 on average

    def test_what_restates_a_claim_or_is_another_paper_s_is_not_counted(self):
        own, apart = self.kept().partition("## Not counted")[::2]
        lines = [line for line in own.splitlines() if line.startswith("| ")][1:]
        self.assertIn(f"Of {len(lines)} claims of the paper ", " ".join(own.split()))
        for claim in ("MFU of the three", "Korthikanti et al.", "vTrain", "ZB-V holds 2p"):
            self.assertFalse([line for line in lines if claim in line])
            self.assertIn(claim, apart)
        [measured] = [one for one in evaluated() if one.where == "Vocabulary parallelism"]
        self.assertTrue(measured.published.endswith(" s"))
        holds = sum(line.split(" | ")[3] == "holds" for line in lines)
        self.assertIn(f"of the paper {holds} hold, ", " ".join(own.split()))

    def test_the_readme_says_what_the_records_say(self):
        def faster(row):
            if row["gain"] and row["schedule"] == "stp":
                row["gain"]["percent"] *= 1.01

        text = (ROOT / "README.md").read_text(encoding="utf-8")
        found = pages.Records(read_folder(KEPT), [])
        within, more = found.replayed_error("predicted_s"), pages.words.span(found.replayed_error("under_power_limit_s").values, 1, " % more")
        self.assertIn(f"within {within.largest.strip('+−')} of its", text)
        self.assertIn(more, text)
        listed = claims.listed("claims")
        for run, same in ((KEPT, True), (self.changed_run("llm-a800", faster), False)):
            experiments = read_folder(run)
            records = pages.Records(experiments, functools.partial(claims.evaluate, experiments, listed))
            self.assertEqual(records.readme(text) == text, same)
            self.assertEqual(len(records.answers()["questions"]), 9)
        # A run of some experiments has the answers that it can give.
        some = [one for one in read_folder(KEPT) if one.id == "llm-a800"]
        asked = pages.Records(some, lambda: claims.of_experiments(some)).answers(strict=False)["questions"]
        self.assertEqual([question for question, _ in asked],
                         ["Is STP the fastest of three on A800?", "By how much over 1F1B-I?", "Over ZB-V?", "The headline, 12.2 %?",
                          "Is ZB-V faster than 1F1B-I?"])

    def test_every_table_and_figure_of_the_paper_is_named(self):
        known = records.read_json(ROOT / "results/claims.json")
        named = {"Figure": set(), "Table": set()}
        for one in (*known["claims"], *known["not_compared"]):
            kind = next((kind for kind in named if one["where"].startswith(kind)), None)
            for first, last in re.findall(r"(\d+)(?: to (\d+))?", one["where"]) if kind else ():
                named[kind] |= set(range(int(first), int(last or first) + 1))
        self.assertEqual(named, {"Figure": set(range(1, 14)), "Table": set(range(1, 12))})

    def test_every_scenario_that_is_judged_has_a_claim(self):
        judged = {c.get("scenario") for c in records.read_json(ROOT / "results/claims.json")["claims"]}
        lines = records.read_json(KEPT / "summary.json")["experiments"]
        self.assertEqual([line["id"] for line in lines if line["verdict"] != "not testable here" and line["id"] not in judged], [])

    def test_a_page_of_an_experiment_follows_its_record(self):
        def faster(row):
            if row["schedule"] == "stp" and row["tp"] == 8:
                row["throughput_samples_per_s"] *= 1.5

        run = self.changed_run("pp-1", faster)
        page = "experiments/pp-1"
        self.assertEqual(write(KEPT, "--check", page=page), "")
        self.assertIn("is not what the records say; run scripts/pages", write(run, "--check", page=page))
        self.assertEqual(write(run, "--out", self.folder, page=page), "")
        ours, kept = ((folder / f"{page}.md").read_text(encoding="utf-8").splitlines() for folder in (self.folder, ROOT / "docs"))
        moved = [(one, two) for one, two in zip(ours, kept, strict=True) if one != two]
        self.assertEqual([one.split("|")[1].strip() for one, _ in moved if one.startswith("|")], ["STP"])

    def test_a_row_that_a_page_needs_is_missed(self):
        run = self.changed_run("pp-1", lambda row: row.update(schedule=row["schedule"].replace("stp", "other")))
        self.assertIn("pp-1: 0 rows agree with", write(run, "--out", self.folder, page="experiments/pp-1"))

    def test_the_kept_ablation_is_of_this_model(self):
        [whole] = [one for one in records.read_json(ROOT / "results/reference/ablation.json")["variants"] if one["variant"] == "as committed"]
        [line] = [one for one in records.read_json(KEPT / "summary.json")["experiments"] if one["id"] == "llm-a800"]
        self.assertAlmostEqual(whole["throughput_error"], line["throughput_error_mean"], places=9)
        self.assertAlmostEqual(whole["gains"]["stp"]["error_points"], line["gain_error_points_mean"], places=9)
        profile = records.read_json(ROOT / "profiles/a800.json")
        self.assertEqual(whole["fitted"], {name: profile[name]["value"] for name in whole["fitted"]})

    def test_every_page_of_an_experiment_has_a_template(self):
        experiments = {f"experiments/{path.stem}" for path in (ROOT / "docs/experiments").iterdir()}
        self.assertEqual({name for name in pages.names() if name.startswith("experiments/")}, experiments)

    def test_prose_is_filled_and_tables_are_left_alone(self):
        text = markdown.wrapped(f"# {'Title ' * 30}\n\n\n\nA\n`code with space` {'word ' * 30}\n- {'item ' * 40}\n| {'cell ' * 40} |\n```\n{'x ' * 80}\n```\n")
        prose = [line for line in text.splitlines() if line.startswith(("A", "word", "-", "  item"))]
        self.assertEqual((len(prose), max(map(len, prose)) <= markdown.WIDTH, text.count("\n\n")), (4, True, 1))
        self.assertIn("\n  item item", text)
        self.assertIn(f"| {'cell ' * 40} |\n```\n{'x ' * 80}\n```\n", text)


if __name__ == "__main__":
    unittest.main()
