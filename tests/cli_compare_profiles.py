"""`stp compare --profiles` as its users run it.

    cli_compare_profiles.py STP_BINARY [unittest arguments]
"""

import json
import math
import re
import subprocess
import tempfile
from pathlib import Path

from command_line import changed, CommandLine, HARDWARE, main, PROFILES, read_json, ROOT, UNIT


class CompareProfiles(CommandLine):
    """`stp compare --profiles`: machines side by side."""

    COMMAND = ("compare", "--profiles", "a800", "h20", "--details")

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "comparison.json"
            cls.screen = subprocess.run([cls.stp, *cls.COMMAND, "--json", file], capture_output=True, text=True, timeout=100, check=True).stdout
            cls.comparison = read_json(file)

    @staticmethod
    def scenario_of(configuration, cluster, schedules):
        return changed(HARDWARE, cluster=cluster, schedules=schedules, backward="megatron", release="released",
                       **{key: configuration[key] for key in ("model", "seq", "microbatch_size", "microbatches")},
                       parallel={"tp": configuration["tp"], "pp": configuration["pp"]})

    def quantity(self, one, of, schedule=None):
        (found,) = [each for each in one["quantities"] if (each["of"], each["schedule"]) == (of, schedule)]
        return found

    def test_throughputs_are_those_of_the_reference_records(self):
        kept = {}
        for machine, name in enumerate(("llm-a800", "llm-h20")):
            record = read_json(ROOT / f"results/reference/simulated/{name}.json")
            for row in record["rows"]:
                key = tuple(row[field] for field in ("model", "seq", "microbatch_size", "tp", "pp", "microbatches"))
                kept[machine, key, row["schedule"]] = row
        checked = 0
        for line in self.comparison["throughput"]:
            key = tuple(line["configuration"][field] for field in ("model", "seq", "microbatch_size", "tp", "pp", "microbatches"))
            for schedule in line["schedules"]:
                for machine, cell in enumerate(schedule["cells"]):
                    row = kept.get((machine, key, schedule["schedule"]))
                    if row is None:
                        continue
                    checked += 1
                    self.assertAlmostEqual(cell["throughput_samples_per_s"] / row["throughput_samples_per_s"], 1, places=9)
                    self.assertAlmostEqual(cell["activation_memory_gb"], row["peak_memory_gb"], places=9)
                    if row["published"]:
                        self.assertEqual(cell["published_samples_per_s"], row["published"].get("throughput_samples_per_s"))
        self.assertEqual(checked, 24 + 22)  # A800 at the largest m, all of H20
        self.assertEqual(self.comparison["evidence"], "simulated")

    def test_h20_gains_less_for_its_slower_gemms_before_its_faster_all_reduces(self):
        """The claim of the paper's appendix D, by properties."""
        self.assertEqual(len(self.comparison["attribution"]), 2)
        for one in self.comparison["attribution"]:
            gain = self.quantity(one, "gain_over_baseline")
            self.assertLess(gain["to"], gain["from"])
            shares = {name: part["shapley"] for name, part in gain["parts"].items()}
            self.assertEqual(min(shares, key=shares.get), "compute")
            self.assertLess(shares["all_reduce"], 0)
            self.assertGreater(shares["memory"], 0)
            self.assertEqual(sorted(one["alike"]), ["contention", "launches"])
            self.assertRegex(one["words"], r"^stp gains [\d.]+ % over 1f1b-i on h20 and [\d.]+ % on a800: −[\d.]+ points\. "
                                           r"What makes it: GEMM and attention rate \(−.*: less communication to overlap\.$")
            self.assertGreater(one["published_gain_from"], one["published_gain_to"])

    def test_parts_add_up_to_the_whole_and_its_ends_are_the_machines(self):
        lines = {json.dumps(line["configuration"]): line for line in self.comparison["throughput"]}
        for one in self.comparison["attribution"]:
            line = lines[json.dumps(one["configuration"])]
            self.assertTrue(line["shared"])
            for quantity in one["quantities"]:
                parts = quantity["parts"].values()
                self.assertAlmostEqual(sum(part["shapley"] for part in parts), quantity["to"] - quantity["from"], places=12)
            for schedule in line["schedules"]:
                quantity = self.quantity(one, "throughput", schedule["schedule"])
                self.assertEqual([quantity["from"], quantity["to"]], [cell["throughput_samples_per_s"] for cell in schedule["cells"]])
            gain = self.quantity(one, "gain_over_baseline")
            self.assertEqual([gain["from"], gain["to"]], [each["over_baseline"] for each in line["gains"]])

    def test_a_part_alone_is_a_profile_with_that_part_of_the_other(self):
        profiles = {name: read_json(PROFILES / f"{name}.json") for name in ("a800", "h20")}
        parts = {
            "compute": ["peak_tflops", "sms", "gemm_efficiency", "gemm_overhead_k", "attention_forward_efficiency", "attention_backward_efficiency",
                        "attention_tile_overhead"],
            "memory": ["memory_gb_per_s", "elementwise_factor"],
            "all_reduce": ["all_reduce_latency_us", "all_reduce_hop_latency_us", "all_reduce_bus_gb_per_s"],
            "p2p": ["p2p_within_node_gb_per_s", "p2p_between_nodes_gb_per_s", "p2p_within_node_latency_us", "p2p_between_nodes_latency_us",
                    "adapters_per_node"],
        }
        one = self.comparison["attribution"][0]
        for part, keys in parts.items():
            others = {key: value for key, value in profiles["a800"].items() if key not in keys}
            self.write({**others, **{key: profiles["h20"][key] for key in keys if key in profiles["h20"]}}, "mixed.json")
            for row in self.results(self.scenario_of(one["configuration"], "mixed.json", ["1f1b-i", "zb-v", "stp"])):
                quantity = self.quantity(one, "throughput", row["schedule"])
                self.assertAlmostEqual(quantity["from"] + quantity["parts"][part]["alone"], row["throughput_samples_per_s"], places=9)

    def root_of_squares(self, figure, ends_by_value):
        """A band by hand; `ends_by_value`: the figure with each value at both of its ends."""
        logs = [[math.log(end / figure) for end in ends] for ends in ends_by_value]
        up, down = (math.sqrt(sum(max(0, sign * ends[0], sign * ends[1]) ** 2 for ends in logs)) for sign in (1, -1))
        return figure * math.exp(-down), figure * math.exp(up)

    def assert_band(self, given, expected):
        self.assertAlmostEqual(given[0], expected[0], places=9)
        self.assertAlmostEqual(given[1], expected[1], places=9)

    def test_bands_are_of_profiles_with_each_uncertain_value_at_its_ends(self):
        profile, line = read_json(PROFILES / "a800.json"), self.comparison["throughput"][0]
        names = [schedule["schedule"] for schedule in line["schedules"]]

        def throughputs(**fields):
            self.write(changed(profile, **fields), "varied.json")
            return [row["throughput_samples_per_s"] for row in self.results(self.scenario_of(line["configuration"], "varied.json", names))]

        own, found = throughputs(), []
        uncertain = self.comparison["machines"][0]["uncertain"]
        # Of the three fitted ones h20 has elementwise_factor, too; its own steps determine it here.
        self.assertEqual(len(uncertain), 8)
        for one in uncertain:
            if one["value"] in self.comparison["machines"][0]["fitted"]:
                continue
            found.append([throughputs(**{one["value"]: {**profile[one["value"]], "value": one[end]}}) for end in ("from", "to")])
        for i, schedule in enumerate(line["schedules"]):
            self.assert_band(schedule["cells"][0]["throughput_band"], self.root_of_squares(own[i], [[end[i] for end in ends] for ends in found]))
        stp, base = names.index("stp"), names.index("1f1b-i")
        ratios = self.root_of_squares(own[stp] / own[base], [[end[stp] / end[base] for end in ends] for ends in found])
        self.assert_band(line["gains"][0]["band"], [end - 1 for end in ratios])

    def test_ends_are_a_range_or_what_the_kind_of_an_assumed_value_allows(self):
        a800, h20 = ({one["value"]: (round(one["from"], 9), round(one["to"], 9)) for one in machine["uncertain"]}
                     for machine in self.comparison["machines"])
        self.assertEqual(a800, {
            "elementwise_factor": (0.847, 3),  # 0.5 to 3, as far as h20 allows what it has in common
            "host_to_device_gb_per_s": (21.04, 32.875), "device_to_host_gb_per_s": (5.04, 7.875),  # 26.3 and 6.3, times and by 1.25
            "kernel_overhead_us": (1, 4), "host_launch_us": (4, 16), "p2p_within_node_latency_us": (5, 20),
            "p2p_between_nodes_latency_us": (10, 40), "fixed_memory_gb": (1, 9)})
        self.assertEqual(h20["contention_compute"], (0.664, 1))  # no share is above 1
        self.assertEqual(h20["elementwise_factor"], (0.847, 3))  # "as fitted on A800", up to 3.388 by its own

    def test_assumed_and_fitted_values_are_counted(self):
        a800, _ = self.comparison["machines"]
        self.assertEqual(a800["values"], 26)
        self.assertEqual(a800["assumed"], ["device_to_host_gb_per_s", "fixed_memory_gb", "host_launch_us", "host_to_device_gb_per_s",
                                           "kernel_overhead_us", "p2p_between_nodes_latency_us", "p2p_within_node_latency_us"])
        self.assertEqual(sorted(a800["fitted"]), ["all_reduce_bus_gb_per_s", "elementwise_factor", "gemm_efficiency"])
        screen = self.answers("a800", "h100", microbatches=4)[2]
        self.assertTrue(any(line.startswith("  a800: NVIDIA A800") for line in screen))
        self.assertTrue(any(line.startswith("    of 26 values 7 assumed, 3 fitted; assumed device_to_host_gb_per_s, fixed_memory_gb")
                            for line in screen))
        self.assertLessEqual(max(map(len, screen)), 120)

    def test_the_answer_comes_first_and_follows_from_the_figures(self):
        first, second = self.comparison["answers"]
        ratios = []
        for line in self.comparison["throughput"]:
            cells = [schedule["cells"] for schedule in line["schedules"]]
            held = [[cell["throughput_samples_per_s"] for cell in pair] for pair in cells if all(cell["fits"] == "all" for cell in pair)]
            if held:
                ratios.append(max(pair[1] for pair in held) / max(pair[0] for pair in held))
        self.assertEqual((second["configurations"], second["of"]), (len(ratios), len(self.comparison["throughput"])))
        self.assertAlmostEqual(second["times"], math.prod(ratios) ** (1 / len(ratios)), places=9)
        self.assertAlmostEqual(second["times"], math.prod(second["parts"].values()), places=9)
        for one in (first, second):
            self.assertEqual(one["values"], one["assumed"] + one["fitted"] + one["sourced"])
            for key, some in (("band", one["variations"]), ("band_without_assumed", [each for each in one["variations"] if not each["assumed"]])):
                self.assert_band(one[key], self.root_of_squares(one["times"], [[one["times"] * end for end in each["factors"]] for each in some]))
        most = second["variations"][0]
        self.assertEqual((most["value"], most["machines"]), ("elementwise_factor", ["a800", "h20"]))  # one fit, two machines
        self.assertNotIn("elementwise_factor", {one["value"] for one in first["variations"]})  # fitted to its own steps
        screen = self.screen.splitlines()
        self.assertRegex(screen[0], "^a800: 7 of 26 values assumed, 3 fitted, 16 sourced; throughput ×{:.2f} to {:.2f}; ".format(*first["band"]))
        screen = screen[next(i for i, line in enumerate(screen) if line.startswith("h20: ")):]
        self.assertEqual(screen[0], "h20: {:.2f} times as fast as a800 ({:.2f} to {:.2f}; simulated, {} configurations; 2 do not fit on a800 or h20)".format(
            second["times"], *second["band"], second["configurations"]))
        self.assertEqual(screen[1], "  because of GEMM and attention rate (×{compute:.2f}); memory rate of elementwise work gives ×{memory:.2f}".format(
            **second["parts"]))
        self.assertTrue(screen[2].startswith("  stp over 1f1b-i: TP2 "), screen[2])
        self.assertRegex(screen[3], r"^  12 of 24 values assumed, 2 fitted, 10 sourced; the band is of the assumed alone: the ")
        self.assertEqual(*(f"{end:.2f}" for end in second["band_without_assumed"]))
        end = screen.index("")
        self.assertEqual(screen[end - 3], "kernels: megatron (unfused); --set implementation=megatron-te for Transformer Engine's")
        self.assertEqual(" ".join(screen).count("(shared unknowns cancel)"), 1)

    def test_the_gain_by_tp_follows_from_the_figures(self):
        names = self.comparison["schedules"]
        of, over = (names.index(name) for name in ("stp", "1f1b-i"))
        for machine, one in enumerate(self.comparison["answers"]):
            ratios = {}
            for line in self.comparison["throughput"]:
                ours, base = (line["schedules"][schedule]["cells"][machine] for schedule in (of, over))
                held = ratios.setdefault(line["configuration"]["tp"], [])
                if ours["fits"] == base["fits"] == "all":
                    held.append(ours["throughput_samples_per_s"] / base["throughput_samples_per_s"])
            self.assertEqual([(at["tp"], at["configurations"]) for at in one["gains"]], [(tp, len(held)) for tp, held in sorted(ratios.items())])
            for at in one["gains"]:
                held = ratios[at["tp"]]
                if not held:
                    self.assertEqual((at["mean"], at["band"]), (None, None))
                    continue
                self.assertAlmostEqual(1 + at["mean"], math.prod(held) ** (1 / len(held)), places=9)
                self.assertLessEqual(at["band"][0], at["mean"])
                self.assertLessEqual(at["mean"], at["band"][1])
        # Of one configuration the band is that of its gain.
        (machine, _), comparison, screen = self.answers("a800", "h20")
        (at,), gains = machine["gains"], comparison["throughput"][0]["gains"][0]
        self.assert_band([1 + end for end in at["band"]], [1 + end for end in gains["band"]])
        self.assertIn(f"  stp over 1f1b-i: TP4 {100 * at['mean']:+.1f} % ({100 * at['band'][0]:.1f}–{100 * at['band'][1]:.1f})", screen)

    def test_details_have_all_tables(self):
        scenario = self.write(changed(HARDWARE, schedules=["1f1b-i", "stp"]))
        command = ("compare", "--profiles", "a800", "h20", "--scenarios", scenario)
        brief = " ".join(self.succeed(*command).stdout.split())
        screen = " ".join(self.succeed(*command, "--details").stdout.split())
        for words in ("Shapley", "TFLOP/s of a layer's GEMMs", "What makes it: ", "What works against it: "):
            self.assertIn(words, screen)
            self.assertNotIn(words, brief)

    def test_scenarios_may_be_changed(self):
        scenario = self.write(changed(HARDWARE, schedules=["1f1b-i", "stp"]))
        command = ["compare", "--profiles", "a800", "h20", "--scenarios", scenario, "--set"]
        screen = self.succeed(*command, "implementation=megatron-te", "--json", "comparison.json").stdout
        comparison = self.read("comparison.json")
        self.assertEqual(comparison["implementations"], ["megatron-te"])
        rows = self.results(changed(HARDWARE, schedules=["1f1b-i", "stp"], implementation="megatron-te"))
        for row, schedule in zip(rows, comparison["throughput"][0]["schedules"]):
            self.assertAlmostEqual(schedule["cells"][0]["throughput_samples_per_s"], row["throughput_samples_per_s"], places=9)
        self.assertIn("kernels: megatron-te (Transformer Engine)\n", screen)
        self.refused([*command, "cluster=h100"], "--set", "is of a cluster", "change a copy of the last one")

    def test_a_changed_copy_is_one_more_machine(self):
        scenario = self.write(changed(HARDWARE, schedules=["1f1b-i", "stp"]))
        command = ["compare", "--profiles", "a800", "--scenarios", scenario, "--set", "cluster.peak_tflops=600", "implementation=suite"]
        comparison = json.loads(self.succeed(*command, "--json", "-").stdout)
        self.assertEqual(comparison["clusters"]["a800-changed"]["peak_tflops"], {"value": 600, "source": "--set"})
        self.write_profile("copy.json", name="mine", peak_tflops=600)
        rows = self.results(changed(HARDWARE, cluster="copy.json", schedules=["1f1b-i", "stp"], implementation="suite"))
        for row, schedule in zip(rows, comparison["throughput"][0]["schedules"]):
            self.assertAlmostEqual(schedule["cells"][1]["throughput_samples_per_s"], row["throughput_samples_per_s"], places=9)
        self.refused([*command[:2], *command[3:]], "--set", "--profiles names none", "--profiles h100")
        self.refused([*command[:7], "cluster.peak_tflop=3"], "--set: cluster.peak_tflop: is not a known field", "peak_tflops")

    def test_attention_is_that_of_the_implementation(self):
        scenario = self.write(changed(HARDWARE, schedules=["1f1b-i"], cluster="h100"))
        given = ["--set", "cluster.attention_forward_efficiency=0.9"]
        profile = read_json(PROFILES / "h100.json")
        below, above = profile["attention_cudnn"]["lengths"][:2]  # 2048 and 4096 tokens
        share = math.log2(HARDWARE["seq"] / 2048)
        rate = (below["causal_forward_tflops"] * (1 - share) + above["causal_forward_tflops"] * share) * profile["gemm_sustained"]["value"]
        for implementation, rates in (("megatron", [profile["peak_tflops"]["value"] * profile["attention_forward_efficiency"]["value"], profile["peak_tflops"]["value"] * 0.9]),
                                      ("megatron-te", [rate, rate])):  # fmt: skip
            comparison = self.succeed("compare", "--profiles", "h100", "--scenarios", scenario, *given, f"implementation={implementation}", "--json", "-")
            for machine, expected in zip(json.loads(comparison.stdout)["machines"], rates):
                self.assertAlmostEqual(machine["attention_forward_tflops"], expected)
            for said in (comparison.stderr, self.succeed("simulate", scenario, *given, f"implementation={implementation}").stderr):
                known = "attention_forward_efficiency is given by --set, which has no effect on attention with Transformer Engine: "
                self.assertEqual(said.count(known), implementation == "megatron-te", said)

    def test_an_all_reduce_that_has_no_effect_is_said(self):
        self.write_profile("faster.json", of="h100", all_reduce_bus_gb_per_s=734)  # twice its own
        bus = "cluster.all_reduce_bus_gb_per_s"
        for cluster, changes, said in (("h100", ["seq=4096"], None), ("faster.json", ["seq=4096"], 734), ("h100", [f"{bus}=370"], 370),
                                       ("h100", [f"{bus}=900", "cluster.all_reduce_measured=[]"], None)):
            stderr = self.succeed("simulate", self.write(changed(HARDWARE, cluster=cluster)), "--set", *changes).stderr
            known = (f"all_reduce_bus_gb_per_s is {said}, which has no effect on all-reduces of groups of 8 ranks (their reduce-scatters and "
                     "all-gathers take it): their all_reduce_measured, up to 478.9, comes first")
            self.assertEqual(known in stderr, said is not None, stderr)

    def test_fixed_memory_is_counted_for_all_or_none_and_a_lacking_power_limit_is_said(self):
        scenario, margins = changed(HARDWARE, schedules=["stp"]), {}
        for machines in (["h100", "b200"], ["a100", "h20", "h100"]):
            _, comparison, screen = self.answers(*machines, schedules=["stp"])
            cell = comparison["throughput"][0]["schedules"][0]["cells"][machines.index("h100")]
            margins[machines[0]] = cell["needed_memory_gb"]
            said = any(line.startswith("These profiles give no fixed_memory_gb, so it counts as 0 on all machines: h20") for line in screen)
            self.assertEqual((comparison["without_fixed_memory"], said), (["h20"], True) if "h20" in machines else ([], False))
            best = [line for line in screen if line.startswith("GEMMs are at their best rate, ")]
            self.assertEqual([line[-6:] for line in best], [": a100"] if "h20" in machines else [])  # h20's rate is fitted to trainings
            self.assertEqual(comparison["clusters"]["h100"], read_json(PROFILES / "h100.json"))
            self.assertIn("; fitted gemm_sustained (to the steps of Llama 3.1 405B ", " ".join(" ".join(screen).split()))
        fixed = read_json(PROFILES / "h100.json")["fixed_memory_gb"]["value"]
        self.assertAlmostEqual(margins["h100"] - margins["a100"], fixed, places=9)
        (row,) = self.results(changed(scenario, cluster="h100"))
        self.assertAlmostEqual(margins["h100"], max(sum(rank["memory_bytes"].values()) for rank in row["ranks"]) / 1e9, places=9)

    def answers(self, *profiles, **scenario):
        """Of a small scenario, and the screen's first lines."""
        fields = {"microbatches": 8, "schedules": ["1f1b-i", "zb-v", "stp"], **scenario}
        command = ["compare", "--profiles", *profiles, "--scenarios", self.write(changed(HARDWARE, **fields))]
        file = self.folder / f"comparison-{len(list(self.folder.iterdir()))}.json"
        screen = self.succeed(*command, "--json", file).stdout
        comparison = read_json(file)
        return comparison["answers"], comparison, screen.splitlines()

    def test_a_copy_is_exactly_as_fast(self):
        (_, copy), _, screen = self.answers("a800", self.write_profile("copy.json", name="copy"))
        self.assertEqual((copy["times"], copy["band"], copy["parts"]), (1, [1, 1], {}))
        self.assertEqual({end for one in copy["variations"] for end in one["factors"]}, {1})
        screen = [line for line in screen if line.startswith("copy") or "property" in line]
        self.assertEqual(screen[:2], ["copy: 1.00 times as fast as a800 (1.00 to 1.00; simulated, 1 configuration)",
                                       "  no property makes a difference"])

    def test_a_band_is_as_wide_as_what_is_unknown(self):
        def known(value):
            return {"value": value["value"], "source": "measured"} if isinstance(value, dict) and "value" in value else value

        exact = {key: known(value) for key, value in read_json(PROFILES / "a800.json").items()}
        twice = {**exact, "peak_tflops": {"value": 624, "source": "measured"}}
        self.write({**exact, "name": "exact"}, "exact.json")
        widths = []
        for name, field in (("all", {}), ("none", {"range": {"from": 800, "to": 800.5, "source": "a test"}}),
                            ("some", {"range": {"from": 700, "to": 900, "source": "a test"}}),
                            ("more", {"range": {"from": 600, "to": 1000, "source": "a test"}}), ("default", {})):
            source = "measured" if name == "all" else "assumed"
            rate = {"value": 800, "source": source, **field}
            self.write({**twice, "name": name, "memory_gb_per_s": rate}, f"{name}.json")
            (first, other), comparison, screen = self.answers("exact.json", f"{name}.json")
            said = " ".join(" ".join(screen).split())
            self.assertIn("throughput no band: no value has a range", said)
            self.assertEqual(("(no band: no value has a range; simulated" in said, "the band is of the assumed alone: the ranges of the others" in said),
                             (name == "all", "{:.2f}".format(other["band"][0]) != "{:.2f}".format(other["band"][1])))
            self.assertEqual((first["band"], first["variations"]), ([1, 1], []))
            for line in comparison["throughput"]:
                for schedule in line["schedules"]:
                    self.assertEqual(schedule["cells"][0]["throughput_band"], [schedule["cells"][0]["throughput_samples_per_s"]] * 2)
            self.assertEqual(other["band_without_assumed"], [other["times"]] * 2)
            self.assertEqual([one["value"] for one in other["variations"]], [] if name == "all" else ["memory_gb_per_s"])
            widths.append(other["band"][1] / other["band"][0])
        self.assertEqual(widths[0], 1)
        self.assertLess(widths[1], widths[2])
        self.assertLess(widths[2], widths[4])  # 640 to 1000
        self.assertLess(widths[4], widths[3])

    def test_configurations_that_do_not_fit_are_left_out_and_said(self):
        configurations = [{"parallel": {"tp": 4, "pp": 4}}, {"parallel": {"tp": 8, "pp": 2}}]
        _, both, _ = self.answers("a800", "h20", parallel=None, configurations=configurations)
        needed = [min(schedule["cells"][0]["needed_memory_gb"] for schedule in line["schedules"]) for line in both["throughput"]]
        for gb, count, words in (
            (sum(needed) / 2, 1, "small: 1.00 times as fast as a800 (1.00 to 1.00; simulated, 1 configuration; 1 does not fit on small)"),
            (1, 0, "small: not compared with a800: no configuration fits on both"),
        ):
            machine = self.write_profile("small.json", name="small", memory_gb=gb)
            (first, small), comparison, screen = self.answers("a800", machine, parallel=None, configurations=configurations)
            self.assertEqual((first["configurations"], small["configurations"], small["too_small"]), (2, count, ["small"]))
            fits = [[schedule["cells"][1]["fits"] for schedule in line["schedules"]] for line in comparison["throughput"]]
            self.assertEqual(sum("all" in line for line in fits), count)
            self.assertIn(words, screen)

    def test_memory_that_does_not_hold_a_configuration_is_said(self):
        fits = {cell["fits"] for line in self.comparison["throughput"] for schedule in line["schedules"] for cell in schedule["cells"]}
        self.assertEqual(fits, {"all", "activations", "nothing"})
        for line in self.comparison["throughput"]:
            for schedule in line["schedules"]:
                for machine, cell in zip(self.comparison["machines"], schedule["cells"]):
                    self.assertIsNotNone(cell["throughput_samples_per_s"])
                    self.assertGreater(cell["needed_memory_gb"], cell["activation_memory_gb"])
                    expected = ("all" if cell["needed_memory_gb"] <= machine["memory_gb"] else
                                "activations" if cell["activation_memory_gb"] <= machine["memory_gb"] else "nothing")
                    self.assertEqual(cell["fits"], expected)

    def test_profiles_of_ones_own_other_scenarios_and_schedules(self):
        self.write_profile("mine.json", of="h100", name="mine", gpus_per_node=4, contention_compute=0.95, all_reduce_measured=[])
        scenario = changed(HARDWARE, microbatches=None, configurations=[
            {"microbatches": [8, 16]}, {"microbatches": 8, "parallel": {"tp": 8, "pp": 2}}])
        done = self.run_stp("compare", "--profiles", "h100", "mine.json", "--scenarios", self.write(scenario), "--schedules", "1f1b-i", "stp",
                            "1f1b-i-braided", "--json", "-")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        comparison = json.loads(done.stdout)
        first, second = comparison["throughput"]
        self.assertEqual((first["configuration"]["microbatches"], first["configuration"]["tp"]), (16, 4))  # the largest m
        self.assertEqual([schedule["schedule"] for schedule in first["schedules"]], ["1f1b-i", "stp", "1f1b-i-braided"])
        best = max(("1f1b-i", "1f1b-i-braided"), key=lambda name: next(
            schedule["cells"][0]["throughput_samples_per_s"] for schedule in first["schedules"] if schedule["schedule"] == name))
        self.assertEqual(first["gains"][0]["best"], best)
        for schedule in second["schedules"]:
            self.assertIn("TP8 is more than the 4 GPUs of a node", schedule["cells"][1]["refused"])
        (one,) = comparison["attribution"]  # a machine that cannot run it has no part in it
        gain = self.quantity(one, "gain_over_baseline")
        self.assertGreater(gain["parts"]["contention"]["shapley"], 0)  # less contention, more gain
        self.assertEqual(sorted(one["alike"]), ["compute", "launches", "memory"])
        screen = self.run_stp("compare", "--profiles", "h100", "mine.json", "--scenarios", "s.json").stdout
        self.assertIn("TP8 is more than the 4 GPUs of a node", screen)
        self.assertNotIn("All profiles here have the same contention", screen)
        self.assertNotIn("over 1f1b-i: ", screen)  # the scenario has stp alone

    def test_refusals(self):
        profile = read_json(PROFILES / "h100.json")
        same, scenario = self.write(profile, "same.json"), self.write(UNIT)
        self.refused(["compare", "--profiles", "a800"], "--profiles", "name two or more")
        self.refused(["compare", "--profiles", "a800", "h30"], "--profiles", "did you mean h20?")
        self.refused(["compare", "--profiles", "h100", same], "same.json: name: ", "name of two profiles", "profiles/h100.json")
        self.refused(["compare", "--profiles", same, "h100"], "same.json: name: ", "name of two profiles", "profiles/h100.json")
        self.refused(["compare", "--profiles", "a800", scenario], str(scenario), "; ")
        self.refused(["compare", "--profiles", "a800", "h20", "--scenarios", scenario], str(scenario), "model", "llm-a800")
        self.refused(["compare", "--profiles", "a800", "h20", "--schedules", "1f1b_i"], "--schedules", "did you mean 1f1b-i?")
        self.refused(["compare", same, "--profiles", "a800", "h20"], str(same), "without files")

    def test_the_page_shows_what_comes_out(self):
        page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
        shown = 0
        for block in re.findall(r"^```\n\$ stp (compare .*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            command = tuple(str(ROOT / word) if word.startswith("results/") else word for word in block[0].split())
            lines = (self.screen if command == self.COMMAND else self.succeed(*command).stdout).splitlines()
            for line in block[1].splitlines():
                if line and line != "…":
                    self.assertIn(line, lines)
                    shown += 1
        self.assertGreater(shown, 10)


if __name__ == "__main__":
    main(__doc__)
