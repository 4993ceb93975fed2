"""What options of a scenario do to simulated steps, memory and records.

    cli_options.py STP_BINARY [unittest arguments]
"""

from command_line import changed, CommandLine, HARDWARE, main, read_json, ROOT, RUN, UNIT


class Recomputation(CommandLine):
    def row(self, **fields):
        return self.results(changed(HARDWARE, **fields))[0]

    def test_it_trades_time_for_memory(self):
        for implementation in ("megatron", "suite", "megatron-2022"):
            none, selective, full = (self.row(implementation=implementation, recompute=choice) for choice in ("none", "selective", "full"))
            self.assertLess(none["step_time_s"], selective["step_time_s"])
            self.assertLess(selective["step_time_s"], full["step_time_s"])
            self.assertGreater(none["peak_memory_gb"], full["peak_memory_gb"])
            self.assertGreaterEqual(none["peak_memory_gb"], selective["peak_memory_gb"])
            # The layers' forward again, and its collectives, which nothing hides.
            self.assertGreater(full["ranks"][1]["tp_bubble_s"], 1.5 * none["ranks"][1]["tp_bubble_s"])
            # Model FLOPs do not count what is computed again.
            self.assertAlmostEqual(full["mfu"] * full["step_time_s"], none["mfu"] * none["step_time_s"])
            # Each larger set takes more time and less memory.
            sets = [none, *(self.row(implementation=implementation, recompute=choice) for choice in ("mlp", "attn+mlp", "attn+mlp+norm"))]
            for smaller, larger in zip(sets, sets[1:]):
                self.assertLess(smaller["step_time_s"], larger["step_time_s"])
                self.assertGreater(smaller["peak_memory_gb"], larger["peak_memory_gb"])
            self.assertGreater(sets[-1]["peak_memory_gb"], full["peak_memory_gb"])
        # Transformer Engine's linear layers contain the norms. Collectives of a recomputed unit are in its compute op.
        te = {choice: self.row(implementation="megatron-te", recompute=choice) for choice in ("none", "layernorm", "mlp", "attn+mlp", "attn+mlp+norm")}
        for one, other in (("none", "layernorm"), ("attn+mlp", "attn+mlp+norm")):
            self.assertEqual(*([te[choice][key] for key in ("step_time_s", "peak_memory_gb")] for choice in (one, other)))
        self.assertAlmostEqual(te["none"]["ranks"][1]["tp_bubble_s"], te["mlp"]["ranks"][1]["tp_bubble_s"], delta=1e-3)

    def test_that_it_saves_next_to_nothing_is_said_once(self):
        both = {"schedules": ["1f1b", "zb-h1"], "layers_per_chunk": "even", "microbatches": 16, "configurations": [{"recompute": "none"}, {"recompute": "full"}]}
        record = self.results(changed(HARDWARE, **both))
        before, after = ([row["peak_memory_gb"] for row in record if row["recompute"] == choice] for choice in ("none", "full"))
        self.assertEqual([after[i] < 0.9 * before[i] for i in range(2)], [True, False])  # zb-h1 defers its W
        said = self.succeed("simulate", self.write(changed(HARDWARE, **both))).stderr
        self.assertRegex(said, r"^stp: recompute lowers .* in 1 of 2 rows that recompute \(full of zb-h1\): what full drops is little, or .*\n$")
        within = self.succeed("simulate", self.write(changed(HARDWARE, implementation="megatron-te", recompute="layernorm"))).stderr
        self.assertRegex(within, r" \(layernorm of 1f1b-i\): layernorm runs nothing again, as Transformer Engine's linear layers contain the norms\n$")
        self.assertEqual(self.succeed("simulate", self.write(changed(HARDWARE, schedules=["1f1b"], recompute="full"))).stderr, "")

    def test_offload_that_moves_nothing_is_said(self):
        both = changed(HARDWARE, schedules=["1f1b", "stp"], parallel={"tp": 4, "pp": 2}, offload={"ratio": 0.5})
        self.assertEqual([any(rank["memory_bytes"]["host"] for rank in row["ranks"]) for row in self.results(both)], [False, True])
        said = self.succeed("simulate", self.write(both)).stderr
        self.assertRegex(said, r"^stp: offload moves nothing in 1 of 2 rows that offload \(1f1b\): no backward .* four blocks behind .*\n$")
        self.assertEqual(self.succeed("simulate", self.write(changed(both, schedules=["stp"]))).stderr, "")


class MemoryLimit(CommandLine):
    def test_a_schedule_that_has_one_keeps_to_it_and_is_slower(self):
        rows = self.results(changed(HARDWARE, schedules=["zb-v", {"name": "zb-v", "memory_limit": 4}, {"name": "zb-v", "memory_limit": 6}]))
        free, least, some = ((max(rank["peak_activation_chunks"] for rank in row["ranks"]), row["step_time_s"]) for row in rows)
        self.assertLessEqual((least[0], some[0]), (4, 6))
        self.assertGreater(free[0], 6)
        self.assertGreater(least[1], some[1])
        self.assertGreater(some[1], free[1])


class SharedVocabulary(CommandLine):
    def test_it_takes_the_head_off_the_last_stage_of_generated_orders_and_of_files(self):
        entries = [{"name": name} for name in ("1f1b", "v-half")]
        order = self.write(self.succeed("schedule", "v-half", "--pp", 4, "--microbatches", 8, "--format", "json").stdout, "file.json")
        shared = [entry | {"vocabulary": "vocab-2"} for entry in (*entries, {"file": str(order)})]
        rows = self.results(changed(HARDWARE, parallel={"tp": 1, "pp": 4}, layers_per_chunk="even", schedules=[*entries, *shared]))
        self.assertEqual([row["schedule"] for row in rows], ["1f1b", "v-half", "1f1b+vocab-2", "v-half+vocab-2", "v-half+vocab-2"])
        for of_one, of_all in zip(rows[:2], rows[2:4], strict=True):
            self.assertLess(of_all["step_time_s"], of_one["step_time_s"])
        self.assertEqual(rows[4]["step_time_s"], rows[3]["step_time_s"])


class Offload(CommandLine):
    STP = changed(HARDWARE, schedules=["stp"], cluster="h20", microbatches=24)

    def row(self, base=None, **fields):
        return self.results(changed(base or self.STP, **fields))[0]

    @staticmethod
    def links(rate):
        return {"cluster_values": {"host_to_device_gb_per_s": rate, "device_to_host_gb_per_s": rate}}

    def test_the_ratio_is_bound_by_a_forward_of_the_warm_up(self):
        # A forward alone takes 2 · (1 + 0.5 + 1 + 0.5) on the first rank, 3 + 3 on the second; its copy 8 and 4 times the ratio.
        unit = {"attn.F": 1, "mlp.F": 1, "attn.I": 1, "mlp.I": 1, "all_reduce": 0.5, "head.F": 3, "offload": 4}
        base = changed(UNIT, schedules=["gpipe"], microbatches=8, layers_per_chunk=[2, 1], costs={"unit": unit})
        for ratio, said in ((0.5, "gpipe 0.75 (chosen: 0.50)."), (0.9, "gpipe 0.75 (chosen: 0.90, which exceeds it).")):
            path = self.write(changed(base, offload={"ratio": ratio}), f"bound-{ratio}.json")
            printed = self.run_stp("simulate", path).stdout.splitlines()[-1]
            self.assertEqual(printed, "Largest offload ratio with which a copy to the host takes no longer than a forward of the warm-up: " + said)
            self.assertAlmostEqual(self.row(base, offload={"ratio": ratio})["offload_ratio_bound"], 0.75)
        self.assertNotIn("offload_ratio_bound", self.row(base))
        self.assertNotIn("offload", self.run_stp("simulate", self.write(base, "none.json")).stdout)

    def test_whole_tensors_that_are_copied_in_time_are_within_the_bound(self):
        # Beyond the bound by bytes, which grows with the link, a ratio is within it if its tensors' copies are.
        [slow, fast] = (self.row(offload={"ratio": 0.5}, **self.links(rate))["offload_ratio_bound"] for rate in (8, 16))
        self.assertAlmostEqual(fast, 2 * slow)
        near = self.row(offload={"ratio": fast + 0.01}, **self.links(16))["offload_ratio_bound"]
        self.assertIn(near, (fast, fast + 0.01))
        self.assertEqual(self.row(offload={"ratio": 0.5}, **self.links(1000))["offload_ratio_bound"], 1)

    def test_it_saves_memory_at_no_cost_while_copies_are_shorter_than_forwards(self):
        none, some, all_of_it = (self.row(**fields) for fields in ({}, {"offload": {"ratio": 0.5}}, {"offload": {"ratio": 1}}))
        self.assertEqual([row["offload_ratio"] for row in (none, some, all_of_it)], [0, 0.5, 1])
        self.assertEqual([row["offloaded"] for row in (none, some, all_of_it)], [False, True, True])
        self.assertEqual(some["step_time_s"], none["step_time_s"])
        self.assertGreater(none["peak_memory_gb"], some["peak_memory_gb"])
        self.assertGreater(some["peak_memory_gb"], all_of_it["peak_memory_gb"])
        hosts = [[rank["memory_bytes"]["host"] for rank in row["ranks"]] for row in (none, some)]
        self.assertEqual(hosts[0], [0] * 4)
        self.assertGreater(min(hosts[1]), 1e9)


class DataParallel(CommandLine):
    def test_replicas_may_share_the_optimizers_state(self):
        wide = changed(HARDWARE, parallel={"tp": 4, "pp": 4, "dp": 4})
        [each], [shared] = self.results(wide), self.results(changed(wide, zero=1))
        self.assertEqual((each["zero"], shared["zero"]), (0, 1))
        for a, b in zip(each["ranks"], shared["ranks"]):
            self.assertEqual(a["memory_bytes"]["optimizer"], 4 * b["memory_bytes"]["optimizer"])
            for kind in ("activations", "weights", "gradients"):
                self.assertEqual(a["memory_bytes"][kind], b["memory_bytes"][kind])
        [alone] = self.results(changed(wide, parallel={"tp": 4, "pp": 4}, zero=1))
        self.assertEqual(alone["zero"], 0)

    def test_post_validation_keeps_a_copy_of_what_a_step_changes(self):
        wide = changed(HARDWARE, parallel={"tp": 4, "pp": 4})
        [at_once], [late] = self.results(wide), self.results(changed(wide, post_validation=True))
        self.assertEqual((at_once.get("post_validation"), late["post_validation"]), (None, True))
        for a, b in zip(at_once["ranks"], late["ranks"]):
            self.assertAlmostEqual(b["memory_bytes"]["optimizer"], 26 / 12 * a["memory_bytes"]["optimizer"], delta=1)
            self.assertGreater(b["compute_s"], a["compute_s"])  # by the copying

    def test_gradients_in_the_models_type_are_half(self):
        wide = changed(HARDWARE, parallel={"tp": 4, "pp": 4, "dp": 4})
        [full] = self.results(wide)
        [half] = self.results(changed(wide, gradients="model"))
        self.assertEqual((full["gradients"], half["gradients"]), ("float32", "model"))
        for a, b in zip(full["ranks"], half["ranks"]):
            self.assertEqual(a["memory_bytes"]["gradients"], 2 * b["memory_bytes"]["gradients"])
        self.assertLess(half["step_time_s"], full["step_time_s"])

    def test_a_ring_divides_tokens_and_work(self):
        whole = changed(HARDWARE, parallel={"tp": 2, "pp": 4})
        [alone] = self.results(whole)
        [ring] = self.results(changed(whole, parallel={"tp": 2, "pp": 4, "cp": 2}, seq=6144, microbatches=8))
        for a, b in zip(alone["ranks"], ring["ranks"]):  # as many tokens on a rank
            self.assertEqual(a["memory_bytes"], b["memory_bytes"])
        self.assertEqual(ring["gpus"], 2 * alone["gpus"])
        self.assertGreater(ring["step_time_s"], alone["step_time_s"])  # which attend to twice as many


class Configurations(CommandLine):
    def simulated(self, scenario):
        record = self.record(scenario)
        return record["results"], record["scenario"]["configurations"]

    def table(self, scenario):
        lines = self.succeed("simulate", self.write(scenario)).stdout.splitlines()
        return [line for line in lines if not line.startswith("kernels: ")][1:-1]  # without title and legends

    def test_vary_stands_for_a_product(self):
        written = [{"schedules": ["stp"], "seq": seq, "name": name, **more} for seq in (2048, 4096)
                   for name, more in (("plain", {}), ("sequence", {"sequence_parallel": True}))]  # fmt: skip
        vary = [[{"seq": 2048}, {"seq": 4096}], [{"name": "plain"}, {"name": "sequence", "sequence_parallel": True}]]
        base, other = changed(HARDWARE, seq=None), {"schedules": ["zb-v"], "seq": 1024}
        varied = changed(base, configurations=[other, {"schedules": ["stp"], "vary": vary}])
        self.assertEqual(self.simulated(varied), self.simulated(changed(base, configurations=[other, *written])))
        self.assertEqual([row["seq"] for row in self.record(varied, "--set", "seq=512")["results"]], [512] * 5)

    def test_even_layers(self):
        base = changed(HARDWARE, schedules=["1f1b"])
        [row], [configuration] = self.simulated(changed(base, layers_per_chunk="even"))
        self.assertEqual((row["layers_per_chunk"], configuration["layers_per_chunk"]), ([8, 8, 7, 7], "even"))
        self.assertFalse(row.keys() & {"post_validation", "merge_backward", "vision_tokens"})  # nothing that few have
        [written], _ = self.simulated(changed(base, layers_per_chunk=[8, 8, 7, 7]))
        self.assertEqual(row, written)

    def test_balanced_layers(self):
        base = changed(HARDWARE, schedules=["1f1b-i", "stp"], model="mllm-14.9b", seq=5120, vision_tokens=3136, microbatches=32,
                       parallel={"tp": 8, "pp": 2})  # fmt: skip
        rows, [configuration] = self.simulated(changed(base, layers_per_chunk="balanced"))
        self.assertEqual(configuration["layers_per_chunk"], "balanced")
        loop, v = (row["layers_per_chunk"] for row in rows)
        for row, manual in zip(rows, self.simulated(changed(base, layers_per_chunk=[0, 12, 12, 9]))[0]):
            layers = row["layers_per_chunk"]
            self.assertEqual((layers[0], sum(layers)), (0, 33))
            self.assertLess(row["step_time_s"], 0.95 * manual["step_time_s"])
        self.assertNotEqual(loop, v)  # the placement decides who shares a rank with the encoder
        [written] = self.simulated(changed(base, schedules=["stp"], layers_per_chunk=v))[0]
        self.assertEqual(rows[1], written)

    def test_a_balanced_split_fits_if_any_does(self):
        base = changed(HARDWARE, model="mllm-30.3b", seq=3072, vision_tokens=1600, microbatches=32, parallel={"tp": 4, "pp": 8})
        [manual], _ = self.simulated(base)
        self.assertLess(manual["memory_margin_gb"], 0)
        splits = []
        for memory in (80, 120):
            [row], _ = self.simulated(changed(base, layers_per_chunk="balanced", cluster_values={"memory_gb": memory}))
            self.assertGreaterEqual(row["memory_margin_gb"], 0)
            splits.append(row["layers_per_chunk"])
        self.assertNotEqual(*splits)
        self.assertLess(row["memory_margin_gb"], 40)  # the second does not fit into 80 GB

    def test_one_rank_has_no_sequence_parallelism(self):
        plain = changed(HARDWARE, schedules=["stp"], braid="timed", parallel={"tp": 1, "pp": 4})
        self.assertEqual(self.results(changed(plain, sequence_parallel=True, tp_overlap="megatron")), self.results(plain))

    def test_vision_encoders(self):
        base = changed(HARDWARE, schedules=["1f1b-i", "stp"], model="mllm-14.9b", seq=5120, vision_tokens=3136, microbatches=12)
        rows, [configuration] = self.simulated(base)
        for row in rows:
            self.assertEqual((row["layers_per_chunk"], row["vision_tokens"]), ([0, 5, 5, 5, 5, 5, 5, 3], 3136))
            self.assertIsNone(row["mfu_paper"])
            self.assertLess(0.1, row["mfu"])
            weights = sum(rank["memory_bytes"]["weights"] for rank in row["ranks"])
            self.assertAlmostEqual(weights * 4 / 2e9, 14.959, places=3)
        self.assertEqual(configuration["vision_tokens"], 3136)
        language = self.simulated(changed(base, vision_tokens=4))[0]
        self.assertLess(language[0]["step_time_s"], rows[0]["step_time_s"])
        [even], _ = self.simulated(changed(base, schedules=["1f1b-i"], layers_per_chunk="even"))
        self.assertEqual(even["layers_per_chunk"], [0, 5, 5, 5, 5, 5, 4, 4])

    def test_layers_and_microbatches_of_different_cost(self):
        unit = {"attn.F": 1, "attn.I": 2, "attn.W": 3, "mlp.F": 1, "all_reduce": 0.25, "p2p": 0.5, "head.F": 10}
        base = changed(UNIT, schedules=["gpipe"], parallel={"pp": 1, "tp": 2}, microbatches=2, layers_per_chunk=[3], costs={"unit": unit})

        def step(scenario):
            [row], [configuration] = self.simulated(scenario)
            for field in ("layer_costs", "microbatch_costs"):
                self.assertEqual(row.get(field), scenario.get(field))
                self.assertEqual(configuration.get(field), scenario.get(field))
            return row["step_time_s"]

        # Of each layer: compute 7, of which W hides attn's all-reduce of B; exposed are two of F and mlp's of B.
        self.assertEqual(step(base), 2 * (3 * 7.75 + 10))
        self.assertEqual(step(changed(base, layer_costs=[1, 2, 5])), 2 * (8 * 7 + 3 * 0.75 + 10))
        self.assertEqual(step(changed(base, microbatch_costs=[1, 3])), 4 * (3 * 7.75 + 10))
        self.assertEqual(step(changed(base, layer_costs=[1, 2, 5], microbatch_costs=[1, 3])), 4 * (8 * 7 + 3 * 0.75 + 10))
        # Layers count through all chunks; transfers take as long as their microbatch asks.
        two = changed(base, parallel={"pp": 2}, layers_per_chunk=[1, 2], costs={"unit": {"attn.F": 1, "p2p": 0.5}}, microbatches=1)
        self.assertEqual(step(changed(two, layer_costs=[1, 2, 5])), 8 + 2 * 0.5)
        self.assertEqual(step(changed(two, microbatch_costs=[3])), 3 * (3 + 2 * 0.5))
        for field in ("layer_costs", "microbatch_costs"):
            same = changed(HARDWARE, schedules=["stp"], **{field: [1] * (30 if field == "layer_costs" else 8)})
            self.assertEqual(step(same), step(changed(HARDWARE, schedules=["stp"])))

    def test_microbatches_keep_by_their_cost(self):
        base = changed(HARDWARE, microbatches=8)
        [plain], [longer] = (self.simulated(scenario)[0] for scenario in (base, changed(base, microbatch_costs=[2] * 8)))
        self.assertEqual(longer["peak_memory_gb"], 2 * plain["peak_memory_gb"])
        self.assertEqual([plain["mfu"] is None, longer["mfu"], longer["mfu_paper"]], [False, None, None])
        # The most that is alive at once is smaller if long ones are not alive together.
        [apart] = self.simulated(changed(base, microbatch_costs=[1, 3] * 4))[0]
        self.assertLess(apart["peak_memory_gb"], 3 * plain["peak_memory_gb"])
        # Domino's halves take as long as their microbatch says.
        halves = changed(base, schedules=["1f1b"], tp_overlap="domino", microbatch_size=2)
        plain, longer = (self.simulated(scenario)[0][0] for scenario in (halves, changed(halves, microbatch_costs=[1] * 4 + [2] * 4)))
        self.assertLess(1.3, longer["step_time_s"] / plain["step_time_s"])
        self.assertLess(longer["step_time_s"] / plain["step_time_s"], 1.7)

    def test_nothing_published_has_costs_that_differ(self):
        base = changed(HARDWARE, seq=6144, parallel={"tp": 8, "pp": 2}, configurations=[{}, {"microbatch_costs": [0.5, 1.5] * 4}])
        self.succeed("reproduce", self.write(base), "--no-plots", "--out", "out")
        self.assertEqual([row["published"] is None for row in self.read("out/hardware.json")["rows"]], [False, True])

    def test_layers_of_different_cost_are_balanced(self):
        factors = [1] * 8 + [4] * 4
        base = changed(UNIT, schedules=["1f1b-i"], microbatches=32, layer_costs=factors, layers_per_chunk="balanced")
        [row], _ = self.simulated(base)
        layers = row["layers_per_chunk"]
        stages = [sum(factors[sum(layers[:stage]):sum(layers[:stage + 1])]) for stage in range(4)]
        self.assertEqual([stages[0] + stages[2], stages[1] + stages[3]], [12, 12])
        [even], _ = self.simulated(changed(base, layers_per_chunk="even"))
        self.assertEqual(even["layers_per_chunk"], [3, 3, 3, 3])
        self.assertLess(row["step_time_s"], even["step_time_s"])
        hardware = changed(HARDWARE, layers_per_chunk="balanced")
        [alike], _ = self.simulated(hardware)
        [heavy], _ = self.simulated(changed(hardware, layer_costs=[2] * 10 + [1] * 20))
        self.assertLess(sum(heavy["layers_per_chunk"][:2]), sum(alike["layers_per_chunk"][:2]))

    def test_recipes(self):
        """A recipe's options reach the result, and the record runs again; three words say whether it fits."""
        sms = {"proj_forward": 24, "fc2_forward": 60}
        recipe = {"gathers_in_step": True, "fc2_method": "ring_exchange", "state_bytes": 6, "bucket_parameters": 1e8, "overlap_sms": sms}
        base = changed(HARDWARE, cluster="h100", implementation="megatron-te", release="megatron", zero=1, gradients="model",
                       parallel={"tp": 4, "pp": 4, "dp": 2}, sequence_parallel=True, tp_overlap="megatron")
        [plain], _ = self.simulated(base)
        [row], [stored] = self.simulated(changed(base, recipe=recipe))
        self.assertEqual({key: stored["recipe"]["overlap_sms"][key] for key in sms}, sms)
        self.assertEqual({key: stored["recipe"][key] for key in recipe if key != "overlap_sms"}, {key: recipe[key] for key in recipe if key != "overlap_sms"})
        self.assertEqual([row[field] for field in ("recipe", "implementation")], [stored["recipe"], "megatron-te"])
        [pipeline], _ = self.simulated(changed(base, recipe=recipe | {"fc2_method": "pipeline"}))
        self.assertGreater(pipeline["step_time_s"], plain["step_time_s"])  # 60 of 132 SMs are away beside fc2
        self.assertLess(row["step_time_s"], pipeline["step_time_s"])
        for schedule, grows in (("1f1b", self.assertGreater), ("1f1b-i", self.assertEqual)):
            timed = [changed(base, schedules=[schedule], cluster_values={"batched_transfer_us": us}) for us in (50, 0)]
            grows(*(self.simulated(one)[0][0]["step_time_s"] for one in timed))
        states = [max(rank["memory_bytes"]["optimizer"] for rank in each["ranks"]) for each in (plain, row)]
        self.assertAlmostEqual(states[0] / states[1], 2)
        self.assertEqual(row["ranks"][0]["memory_bytes"]["fixed"], 7e9)
        self.assertAlmostEqual(row["memory_margin_gb"], 85.5 - max(sum(bytes_ for kind, bytes_ in rank["memory_bytes"].items() if kind != "host")
                                                                   for rank in row["ranks"]) / 1e9)
        # 7 GB are fixed, known to 2 GB.
        for margin, word in ((2.1, "yes"), (1.9, "maybe"), (-1.9, "maybe"), (-2.1, "no")):
            memory = 85.5 - row["memory_margin_gb"] + margin
            [other], _ = self.simulated(changed(base, recipe=recipe, cluster_values={"memory_gb": memory}))
            self.assertEqual(other["fits"], word)
        # The first of several chunks, gathered beside the step, is one bucket of any size.
        def step(**fields):
            chunks = fields.pop("chunks", 2)
            return self.simulated(changed(base, schedules=["1f1b-i" if chunks > 1 else "1f1b"], recipe=fields))[0][0]["step_time_s"]

        self.assertNotEqual(step(bucket_parameters=3e7), step(bucket_parameters=1e9))
        self.assertEqual(step(bucket_parameters=3e7, gathers_in_step=True), step(bucket_parameters=1e9, gathers_in_step=True))
        self.assertEqual(step(bucket_parameters=3e7, gathers_in_step=True, chunks=1), step(bucket_parameters=3e7, chunks=1))
        [other], _ = self.simulated(changed(HARDWARE, cluster="h20"))
        self.assertEqual(other["fits"], "yes" if other["memory_margin_gb"] >= 0 else "no")
        self.assertNotIn("fixed", other["ranks"][0]["memory_bytes"])
        self.assertFalse({"recipe", "implementation", "scatter_transfers", "sends_share_adapter"} & set(other))  # the default

    def test_recomputation_by_megatrons_names(self):
        """Transformer Engine has no norm of its own to recompute. Of a chunk's layers the first 3 keep only their inputs."""
        base = changed(HARDWARE, implementation="megatron-te", parallel={"tp": 4, "pp": 4}, schedules=["1f1b"])
        rows = {}
        for word in ("none", "core_attn", "selective", "layernorm", "block-3", "full"):
            [rows[word]], [stored] = self.simulated(changed(base, recompute=word))
            self.assertEqual(stored["recompute"], "selective" if word == "core_attn" else word)
        for same, other in (("core_attn", "selective"), ("layernorm", "none")):
            for field in ("step_time_s", "peak_memory_gb"):
                self.assertEqual(rows[same][field], rows[other][field])
        for less, more in (("none", "block-3"), ("block-3", "full")):
            self.assertLess(rows[less]["step_time_s"], rows[more]["step_time_s"])
            self.assertGreater(rows[less]["peak_memory_gb"], rows[more]["peak_memory_gb"])
        [norms], _ = self.simulated(changed(base, recompute="layernorm", implementation="suite"))
        [none], _ = self.simulated(changed(base, implementation="suite"))
        self.assertLess(norms["peak_memory_gb"], none["peak_memory_gb"])

    def test_global_batch(self):
        base = changed(HARDWARE, microbatches=None, microbatch_size=2, parallel={"tp": 4, "pp": 4, "dp": 3})
        rows, configurations = self.simulated(changed(base, global_batch=[48, 96]))
        self.assertEqual([row["microbatches"] for row in rows], [8, 16])
        self.assertEqual([configuration["microbatches"] for configuration in configurations], [8, 16])
        [row], _ = self.simulated(changed(base, microbatches=8))
        self.assertEqual(row, rows[0])

    def test_names(self):
        named = changed(HARDWARE, configurations=[{"name": "small batch", "comment": "a note"}, {"microbatches": 16}])
        rows, configurations = self.simulated(named)
        self.assertEqual([row["name"] for row in rows], ["small batch", None])
        self.assertEqual([configuration.get("name") for configuration in configurations], ["small batch", None])
        head, first, second = self.table(named)
        self.assertRegex(head, "^name +schedule")
        self.assertRegex(first, "^small batch +1f1b-i")
        self.assertRegex(second, "^– +1f1b-i")
        self.assertNotIn("name", self.table(HARDWARE)[0])

    def test_memory_of_the_fullest_rank(self):
        for tp, fits in ((4, "yes"), (1, "no")):
            scenario = changed(HARDWARE, parallel={"tp": tp, "pp": 4})
            [row], _ = self.simulated(scenario)
            largest = max(sum(rank["memory_bytes"].values()) for rank in row["ranks"]) / 1e9
            _, line, *_ = self.table(scenario)
            self.assertEqual(line.split()[-4:], [f"{row['peak_memory_gb']:.1f}", f"{largest:.1f}", "85.9", fits])
            self.assertEqual(largest <= 85.9, fits == "yes")
            self.assertAlmostEqual(row["memory_margin_gb"], 85.9 - largest)
        self.assertNotIn("GB", self.table(UNIT)[0])  # nothing to show

    def test_the_same_words_in_runs(self):
        run = changed(RUN, schedules=["1f1b"], parallel={"pp": 2, "dp": 2}, microbatches=None, global_batch=8, layers_per_chunk="even",
                      configurations=[{"name": "mine"}])
        [row] = self.json_of("run", self.write(run), "--backend", "cpu")["results"]
        layers = read_json(ROOT / "models/tiny.json")["num_hidden_layers"]
        self.assertEqual((row["name"], row["microbatches"], row["dp"]), ("mine", 4, 2))
        self.assertEqual(row["layers_per_chunk"], [layers - layers // 2, layers // 2])


if __name__ == "__main__":
    main(__doc__)
