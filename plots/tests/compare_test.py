"""Comparisons of small files written by hand: what is read, what is refused, and what differs."""

import math
import unittest

import numpy as np

from stp_plots.files import Fields, InputError, parse_json, without_non_finite
from stp_plots.judge import compare_benchmarks, compare_profiles, compare_records
from stp_plots.judge.statistics import Rule
from stp_plots.page import screen
from stp_plots.read import benchmarks as benchmark_files, results


class Case(unittest.TestCase):
    def refused(self, work, *words):
        with self.assertRaises(InputError) as refusal:
            work()
        for word in words:
            self.assertIn(word, str(refusal.exception))
        self.assertTrue(str(refusal.exception).startswith(words[0]), str(refusal.exception))


class JsonInput(Case):
    def test_what_google_benchmark_writes_for_no_number_is_null(self):
        text = r'{"a": NaN, "b": [-Infinity, -NaN,inf], "c NaN": "NaN \" inf"}'
        self.assertEqual(parse_json(without_non_finite(text), "f"), {"a": None, "b": [None] * 3, "c NaN": 'NaN " inf'})

    def test_what_is_not_strict_json_is_refused(self):
        for text, *words in (("{", "f:1:2: is not valid JSON"), ("{}\n{}", "f:2:1: is not valid JSON"), ('{"a": NaN}', "f: is not valid JSON", "finite"),
                             ('{"a": 1, "b": {"a": 2, "a": 2}}', "f: a: is given twice"), ('{"a": 1e999}', "f: holds a number beyond"),
                             ('{"a": ' + "9" * 400 + "}", "f: holds a number beyond"), ("[" * 100000, "f: is nested too deeply")):
            self.refused(lambda: parse_json(text, "f"), *words, "; ")

    def test_fields_are_of_their_type_and_range(self):
        fields = Fields({"text": "t", "number": 3, "list": [], "none": None, "flag": True}, "f", "place")
        self.assertEqual([fields.string("text"), fields.number("number", 3), fields.array("list"), fields.string("absent", "x")], ["t", 3, [], "x"])
        for work, *words in ((lambda: fields.string("number"), "f: place.number: must be a string, not a number"),
                             (lambda: fields.number("flag", 1), "f: place.flag: must be a number, not a boolean"),
                             (lambda: fields.number("number", 2), "f: place.number: 3 is out of range", "from 0 to 2"),
                             (lambda: fields.object("none"), "f: place.none: must be an object, not null"),
                             (lambda: fields.array("absent"), "f: place.absent: is missing; add it"),
                             (lambda: Fields([], "f", "place"), "f: place: must be an object, not an array")):
            self.refused(work, *words, "; ")


# ---- benchmarks ----


def iteration(name, real_time, unit="ms", **fields):
    return {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1, "real_time": real_time, "cpu_time": real_time,
            "time_unit": unit, "iterations": 7, **fields}


def read(*benchmarks, **context):
    return benchmark_files.read({"context": {"host_name": "here", "date": "today", **context}, "benchmarks": list(benchmarks)}, "b.json")


def benchmarks(*files):
    return compare_benchmarks.compare(dict(zip("ABC", files)), Rule())


class BenchmarkFile(Case):
    def test_repetitions_are_gathered_in_seconds_without_aggregates(self):
        file = read(iteration("one", 2), iteration("one", 4, "us", bus_gb_per_s=120.5, none=None), iteration("one", 3, run_type="aggregate"),
                    iteration("two", 5, "ns"))
        self.assertEqual(list(file.rows), ["one", "two"])
        self.assertEqual(file.rows["one"].seconds, [2e-3, 4 * 1e-6])
        self.assertEqual(file.rows["one"].counters, {"bus_gb_per_s": [120.5]})
        self.assertEqual((file.rows["two"].seconds, file.rows["two"].problem), ([5 * 1e-9], ""))

    def test_the_order_is_that_of_registration_however_interleaved(self):
        late = iteration("a", 1, family_index=2)
        file = read(late, iteration("m", 1, family_index=0, per_family_instance_index=1),
                    iteration("z", 1, family_index=0, per_family_instance_index=0), late)
        self.assertEqual(list(file.rows), ["z", "m", "a"])
        self.assertEqual(len(file.rows["a"].seconds), 2)

    def test_errors_and_skips_of_both_kinds_are_known(self):
        file = read(iteration("failed", 0, error_occurred=True, error_message="no GPU"), iteration("skipped", 0, skipped=True, skip_message="one rank"),
                    iteration("bare", 0, skipped=True), iteration("fine", 1, error_occurred=False, skipped=""))
        self.assertEqual([row.problem for row in file.rows.values()], ["no GPU", "one rank", "skipped", ""])

    def test_what_cannot_be_compared_is_refused(self):
        timeless = iteration("one", 1)
        del timeless["real_time"]
        for rows, *words in (([iteration("m", 1, run_type="aggregate")], "b.json: benchmarks: holds aggregates alone",
                              "--benchmark_report_aggregates_only"),
                             ([], "b.json: benchmarks: is empty"), ([iteration("one", 1, "weeks")], "b.json: benchmarks[0].time_unit: ", "write ns, us"),
                             ([iteration("one", 1), iteration("one", -1)], "b.json: benchmarks[1].real_time: "),
                             ([timeless], "b.json: benchmarks[0].real_time: is missing"), ([3], "b.json: benchmarks[0]: ")):
            self.refused(lambda: read(*rows), *words)
        self.refused(lambda: benchmark_files.read({"context": 3, "benchmarks": []}, "b.json"), "b.json: context: ")


class BenchmarkComparison(Case):
    def verdicts(self, comparison, file=1):
        return [row["cells"][file]["against_first"]["verdict"] for row in comparison["rows"]]

    def test_figures_by_hand(self):
        result = benchmarks(read(*(iteration("k", time) for time in (1, 2, 3))), read(*(iteration("k", time) for time in (5, 6, 7))))
        first, second = result["rows"][0]["cells"]
        self.assertEqual((first["median_s"], first["interval_s"], first["against_first"]), (2e-3, None, None))
        self.assertAlmostEqual(second["against_first"]["difference"], 2.0)
        self.assertAlmostEqual(second["against_first"]["p"], 0.1)
        self.assertEqual((second["against_first"]["u"], second["against_first"]["exact"]), (0, True))
        self.assertEqual(self.verdicts(result), ["too few"])
        self.assertEqual(result["rule"]["repetitions_needed"], 4)  # 2 of 70

    def test_noisy_rows_are_marked(self):
        rows = [iteration("noisy", time, "s") for time in (9.0, 9.1, 10.0, 10.1, 11.0, 11.1)]
        rows += [iteration("calm", time, "s") for time in (9.8, 9.9, 10.0, 10.1, 10.2, 10.3)]
        noisy, calm = (row["cells"][0] for row in benchmarks(read(*rows), read(*rows))["rows"])
        self.assertEqual((noisy["noisy"], calm["noisy"], noisy["interval_s"]), (True, False, (9.0, 11.1)))

    def test_rows_that_one_file_lacks_or_that_failed_are_kept(self):
        result = benchmarks(read(iteration("both", 1), iteration("first", 1), iteration("bad", 1)),
                          read(iteration("bad", 1, error_occurred=True, error_message="no GPU"), iteration("second", 1), iteration("both", 1)))
        cells = {row["name"]: row["cells"] for row in result["rows"]}
        self.assertEqual(list(cells), ["both", "first", "bad", "second"])
        self.assertEqual((cells["first"][1], cells["bad"][1], cells["second"][0]), (None, {"skipped": "no GPU"}, None))
        self.assertIsNone(cells["second"][1]["against_first"])
        self.assertEqual(result["rule"]["comparisons"], 1)

    def test_differing_contexts_are_listed_and_files_without_common_rows_refused(self):
        here, there = (read(iteration("k", 1), host_name=name, date=name) for name in ("here", "there"))
        self.assertEqual(benchmarks(here, there)["differs"], [{"field": "host_name", "values": ["here", "there"]}])
        self.refused(lambda: benchmarks(here, read(iteration("other", 1))), "b.json: benchmarks: has no benchmark in common", "same filter")


# ---- records ----


def row(schedule, step_s, **changes):
    return {"schedule": schedule, "model": "m", "cluster": "a", "seq": 128, "microbatch_size": 1, "tp": 4, "pp": 2, "cp": 1, "dp": 1,
            "microbatches": 8, "contention": True, "step_time_s": step_s, "step_time_repeats_s": [step_s],
            "throughput_samples_per_s": 8 / step_s, "mfu": 0.5, "peak_memory_gb": 20.0,
            "ranks": [{"compute_s": 6.0, "pp_bubble_s": 1.5, "tp_bubble_s": 0.5}, {"compute_s": 5.0, "pp_bubble_s": 2.5, "tp_bubble_s": 0.5}],
            **changes}


def record(*rows, evidence="simulated"):
    return {"scenario": {"name": "s"}, "evidence": evidence, "results": list(rows)}


def records(first, second):
    return compare_records.compare({"A": results.read(first, "r.json"), "B": results.read(second, "t.json")}, Rule())


class RecordFile(Case):
    def test_rows_have_their_bubbles(self):
        file = results.read(record(row("stp", 4), evidence="measured"), "r.json")
        self.assertEqual((file.evidence, file.rows[0]["bubbles"]), ("measured", [0.5 / 8, 1.5 / 8]))  # of the rank that computes most

    def test_it_is_refused_with_the_name_of_the_bad_field(self):
        for content, *words in (
            (record(), "r.json: results: is empty", "; "),
            (record(row("stp", 1), evidence="guessed"), 'r.json: evidence: "guessed" is unknown', "measured"),
            (record(row("stp", 1, step_time_s="1")), "r.json: results[0].step_time_s: must be a number"),
            (record(row(3, 1)), "r.json: results[0].schedule: "),
            (record(row("stp", 1, ranks=[{"compute_s": 1}])), "r.json: results[0].ranks[0].tp_bubble_s: is missing"),
            (record(row("stp", 1, step_time_repeats_s=["x"])), "r.json: results[0].step_time_repeats_s: "),
            ({**record(row("stp", 1)), "scenario": {"title": "t"}}, "r.json: scenario.name: is missing"),
            ({**record(row("stp", 1)), "system": 3}, "r.json: system: must be an object"),
            ({**record(row("stp", 1)), "schema_version": "9.0.0"}, 'r.json: schema_version: "9.0.0" is of another major version', "1.x"),
        ):
            self.refused(lambda: results.read(content, "r.json"), *words)


class RecordComparison(Case):
    def test_rows_of_the_same_thing_whatever_their_order(self):
        result = records(record(row("stp", 4), row("zb-v", 5)), record(row("zb-v", 4, cluster="b"), row("stp", 8, cluster="b", peak_memory_gb=30.0)))
        stp, zb_v = (one["cells"] for one in result["rows"])
        self.assertIsNone(stp[0]["against_first"])
        self.assertEqual((stp[0]["pp_bubble_share"], stp[0]["tp_bubble_share"]), (1.5 / 8, 0.5 / 8))
        self.assertEqual([stp[1]["against_first"][key] for key in ("throughput", "step_time", "peak_memory")], [-0.5, 1, 0.5])
        self.assertAlmostEqual(zb_v[1]["against_first"]["step_time"], -0.2)
        # The cluster does not distinguish rows of one file: it is listed as a difference of the files.
        self.assertEqual(result["differs"], [{"field": "cluster", "values": ["a", "b"]}])
        self.assertNotIn("cluster", result["rows"][0]["configuration"])
        self.assertEqual(result["predictions"], [])

    def test_what_all_ranks_hold_and_how_layers_are_divided_is_told(self):
        def of(layers, gigabytes, fits):
            ranks = [{**rank, "memory_bytes": {"weights": gigabytes * 1e9, "host": 9e12}} for rank in row("stp", 4)["ranks"]]
            return record(row("stp", 4, layers_per_chunk=layers, fits=fits, ranks=ranks))

        result = records(of([4] * 4, 60, "yes"), of([8, 8], 105, "no"))
        self.assertEqual([(cell["peak_total_gb"], cell["fits"]) for cell in result["rows"][0]["cells"]], [(60, "yes"), (105, "no")])
        self.assertEqual(result["differs"], [{"field": "chunks", "values": [2, 1]}, {"field": "layers_per_chunk", "values": [[4] * 4, [8, 8]]}])
        self.assertRegex(screen.figures_text({"files": [{"label": name, "evidence": "simulated"} for name in "AB"], **result}), r" 105\.0 +no\n")

    def test_of_other_jobs_gpus_and_samples_differ_and_step_times_are_not_compared(self):
        many = record(row("stp", 4, dp=4, throughput_samples_per_s=8, step_time_repeats_s=[4, 4.1]))
        result = records(many, record(row("stp", 2, tp=2, step_time_repeats_s=[2, 2.1])))
        self.assertEqual(result["differs"][-2:], [{"field": "gpus", "values": [32, 4]}, {"field": "samples_per_step", "values": [32, 8]}])
        cells = result["rows"][0]["cells"]
        self.assertEqual([cell["tokens_per_s_per_gpu"] for cell in cells], [8 * 128 / 32, 4 * 128 / 4])
        against = cells[1]["against_first"]
        self.assertEqual([against[key] for key in ("throughput", "tokens_per_s_per_gpu", "step_time", "verdict")], [-0.5, 3, None, None])
        shown = screen.show_records(result)
        self.assertRegex(shown, r"samples/s +vs A +tokens/s/GPU +vs A +step +vs A +MFU")
        self.assertRegex(shown, r"4\.000 +−50\.0 % +128 +\+300\.0 % +2\.000 s +– ")
        (one,) = records(record(row("stp", 2)), {**many, "evidence": "measured"})["rows"]
        self.assertIsNone(one["cells"][1]["prediction"]["step_error"])
        self.assertEqual(records(many, many)["differs"], [])

    def test_values_of_a_cluster_or_model_of_one_name_may_differ(self):
        def of(name, **values):
            one = record(row("stp", 4))
            one["scenario"] |= {"clusters": {name: values}, "models": {"m.1": {"layers": 4, "source": name}}}
            return one

        here = of("a", link={"value": 1, "source": "a data sheet"}, recipe={"streams": 2}, fitted_to="a table")
        there = of("a", link={"value": 2, "source": "measured"}, recipe={"streams": 2}, nodes=3)
        self.assertEqual(records(here, there)["differs"], [{"field": "clusters.a.link", "values": [1, 2]}, {"field": "clusters.a.nodes", "values": [None, 3]}])
        self.assertEqual(records(here, of("b", link=3))["differs"], [])  # another cluster
        self.refused(lambda: results.read({**here, "scenario": {"name": "s", "clusters": 3}}, "r.json"), "r.json: scenario.clusters: must be an object")

    def test_fields_that_distinguish_rows_of_one_file_are_part_of_the_key(self):
        for field, value in (("contention", False), ("implementation", "suite"), ("recipe", {"state_bytes": 10})):
            other = {field: value}
            result = records(record(row("stp", 4), row("stp", 3, **other)), record(row("stp", 6, **other), row("stp", 5)))
            self.assertEqual([one["cells"][1]["step_time_s"] for one in result["rows"]], [5, 6])
            self.assertEqual(result["rows"][1]["configuration"][field], value)

    def test_rows_without_a_distinguishing_field_are_numbered(self):
        result = records(record(row("stp", 4), row("stp", 3)), record(row("stp", 8), row("stp", 9)))
        self.assertEqual([one["cells"][1]["against_first"]["step_time"] for one in result["rows"]], [1, 2])

    def test_where_each_file_has_one_schedule_these_are_compared(self):
        (one,) = records(record(row("1f1b-i", 4)), record(row("stp", 2)))["rows"]
        self.assertEqual((one["cells"][0]["schedule"], one["cells"][1]["against_first"]["throughput"]), ("1f1b-i", 1))

    def test_fields_that_a_file_lacks_are_not_part_of_the_key(self):
        # Rows of unit costs have neither model nor length.
        result = records(record(row("stp", 4)), record(row("stp", 5, model=None, seq=None, cluster=None, contention=None)))
        self.assertEqual(len(result["rows"]), 1)
        self.assertNotIn("model", result["rows"][0]["configuration"])
        self.assertEqual(result["differs"][0], {"field": "model", "values": ["m", None]})

    def test_two_evidences_are_only_compared_as_a_prediction(self):
        real = record(row("stp", 4, step_time_repeats_s=[3.8, 3.9, 4.0, 4.0, 4.1, 4.2]),
                      row("zb-v", 5, step_time_repeats_s=[4.8, 4.9, 5.0, 5.0, 5.1, 5.2]), evidence="measured")
        model = record(row("stp", 4.1), row("zb-v", 4.5))
        for first, second, by in ((model, real, "A"), (real, model, "B")):
            result = records(first, second)
            self.assertIsNone(result["rows"][0]["cells"][1]["against_first"])
            stp, zb_v = (one["cells"][1]["prediction"] for one in result["rows"])
            self.assertEqual((stp["predicted_step_s"], stp["actual_step_s"], stp["within_interval"]), (4.1, 4, True))
            self.assertAlmostEqual(stp["step_error"], 0.025)
            self.assertIs(zb_v["within_interval"], False)
            (errors,) = result["predictions"]
            self.assertEqual([errors[key] for key in ("predicted_evidence", "actual_evidence", "predicted_by", "within_interval", "intervals")],
                             ["simulated", "measured", by, 1, 2])
            self.assertAlmostEqual(errors["step_error_mean"], (0.025 + 0.1) / 2)
            self.assertAlmostEqual(errors["step_error_worst"], -0.1)

    def test_repeated_steps_are_one_family(self):
        def repeated(scale):
            return record(*(row(name, 1, step_time_repeats_s=[(1 + 0.001 * i) * factor for i in range(12)])
                            for name, factor in (("stp", scale), ("zb-v", 1))), evidence="measured")

        result = records(repeated(1), repeated(1.1))
        self.assertEqual([one["cells"][1]["against_first"]["verdict"] for one in result["rows"]], ["slower", "same"])
        self.assertEqual(result["rule"]["comparisons"], 2)
        self.assertEqual(result["rows"][0]["cells"][0]["step_time_interval_s"], (1.002, 1.009))  # of 1 … 1.011: the third from either end
        # One repeat is no sample.
        (one,) = records(record(row("stp", 1)), record(row("stp", 2)))["rows"]
        self.assertIsNone(one["cells"][1]["against_first"]["verdict"])


# ---- profiles ----


class ProfileFigures(Case):
    def test_gemm_rates_are_work_over_time(self):
        gemms = [{"of": of, "m": m, "n": 1, "k": 1e12, "seconds": [seconds, 2 * seconds]}
                 for of, m, seconds in (("attn.F", 1, 4), ("attn.I", 2, 4), ("mlp.F", 3, 8))]
        result = compare_profiles.gemm_figures(gemms, np.array([3, 1.5]))
        self.assertEqual([rate["tflops"] for rate in result["rates"]], [[0.5, 0.25], [0.75, 0.375], [0.75, 0.375]])
        self.assertEqual(result["rates"][2]["share_of_peak"], [0.25, 0.25])
        self.assertEqual(result["products"][1]["tflops"], [1, 0.5])

    def test_bus_bandwidth_is_that_of_nccl_tests(self):
        # 64 MiB over 8 GPUs in 0.324 ms: 8/4 · 7/8 of the bytes over the time.
        (bandwidth, none) = compare_profiles.bus_bandwidths(64 * 2**20, 8, [0.3246e-3, None])
        self.assertTrue(math.isclose(bandwidth, 361.8, rel_tol=1e-4), bandwidth)
        self.assertIsNone(none)

    def test_gains_are_over_the_baseline_and_over_the_best_other(self):
        gain = {"of": "stp", "over": "1f1b-i"}
        result = compare_profiles.gains_of({"1f1b-i": 2.0, "zb-v": 2.5, "gpipe": None, "stp": 3.0}, gain)
        self.assertEqual((result["over_baseline"], result["best"]), (0.5, "zb-v"))
        self.assertAlmostEqual(result["over_best"], 0.2)
        for throughputs, expected in (({"1f1b-i": 2.0}, (None, None, None)), ({"stp": 3.0, "1f1b-i": None}, (None, None, None)),
                                      ({"stp": 3.0, "zb-v": 2.0}, (None, 0.5, "zb-v"))):
            result = compare_profiles.gains_of(throughputs, gain)
            self.assertEqual((result["over_baseline"], result["over_best"], result["best"]), expected)
