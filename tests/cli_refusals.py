"""Scenarios that are refused: each ends with exit code 2, names file, field and remedy, and leaves nothing behind.

    cli_refusals.py STP_BINARY [unittest arguments]
"""

import json
import os
import shutil

from command_line import changed, CommandLine, HARDWARE, main, PAIRS, PROFILES, read_json, ROOT, RUN, UNIT

WIDE = changed(HARDWARE, parallel={"tp": 4, "pp": 4})
RING = changed(HARDWARE, parallel={"tp": 4, "pp": 4, "cp": 2})
VISION = changed(HARDWARE, schedules=["1f1b-i", "stp"], model="mllm-14.9b", seq=5120, vision_tokens=3136, microbatches=12)


class Fields(CommandLine):
    def test_the_bases_of_these_tests_are_accepted(self):
        for base in (UNIT, HARDWARE, WIDE, RING, VISION):
            self.succeed("simulate", self.write(base))

    def test_text(self):
        for text, *words in (("{", "is not valid JSON"), ("\n", "is empty"), ("[1]", "must be an object"),
                             (json.dumps(UNIT)[:-1] + ', "microbatches": 8}', "microbatches: is given twice")):
            self.scenario_refused(text, "", *words)
        record = self.record(UNIT)
        for text, place in (('{"a": "\udcc3"}', "s.json:1:9: a: holds bytes that are not UTF-8"), ('{"a": 1}\n  x', "s.json:2:3: text follows"),
                            ('{\n "a": tru\n}', "s.json:2:")):
            (self.folder / "s.json").write_bytes(text.encode("utf-8", "surrogateescape"))
            self.refused(["simulate", "./s.json"], place)
        self.refused(["simulate", ROOT / "models/tiny.json"], "num_hidden_layers: makes this a model, not a scenario")
        self.refused(["simulate", ROOT / "profiles/a800.json"], "makes this a hardware profile, not a scenario")
        self.refused(["validate", self.write(UNIT, "u.json")], "makes this a scenario, not a schedule")
        self.refused(["validate", self.write(record, "r.json")], "makes this a result record, not a schedule")
        self.refused(["simulate", self.write(record)], "provenance: makes this a result record", 'its field "scenario"')

    def test_changes_that_would_exhaust_the_stack(self):
        path = self.write(UNIT)
        self.refused(["simulate", path, "--set", "title=" + "[" * 30000 + "]" * 30000], "--set: title is nested more than 100 deep")
        self.refused(["simulate", path, "--set", ".".join("a" * 101) + "=1"], "--set: ", "has over 100 parts")

    def test_errors_of_rows_name_their_file(self):
        fitted = self.write(changed(UNIT, name="fitted", compare={"calibration": [{"microbatch": 12}]}), "fitted.json")
        self.refused(["reproduce", self.write(UNIT), fitted, "--no-plots", "--out", "new"], f"stp: {fitted}: compare.calibration: ", silent=False)
        slow = self.write(changed(UNIT, microbatches=16, costs={"unit": {"attn.F": 1e9}}), "slow.json")
        self.refused(["trace", slow, "--out", "new"], f"stp: {slow}: costs: the step takes more than 9e9 s")

    def test_changes(self):
        path = self.write(HARDWARE)
        for word, *words in (("seq", '"seq" is not KEY=VALUE'), ("=3", "not KEY=VALUE"), ("a..b=3", "not KEY=VALUE"), ("seq=", "not KEY=VALUE"),
                             ("seq=many", "--set: seq: ", "whole number"), ("sequence=3", "--set: sequence: ", "seq"),
                             ("memory_gb=40", "file are cluster.memory_gb and model.memory_gb"), ("parallel.pp=0", "--set: parallel.pp: "),
                             ("seq.x=3", "--set", "seq has no fields"), ("offlod=null", "--set: offlod is not given", "leave it out"),
                             ("cluster.offlod=null", "--set: cluster.offlod is not given"), ("seq=null", "--set: seq: "),
                             ("a.b=1", "--set: a.b: is not a known field"), ("cluster.recipe.x=1", "--set: cluster.recipe.x: "), ("cluster.peak_tflop=3", "--set: cluster.peak_tflop: "),
                             ("cluster.peak_tflops=-3", "--set: cluster.peak_tflops.value: ", "out of range"),
                             ("title=new", str(path), ": seq: ")):
            self.write(changed(HARDWARE, **({"seq": "many"} if word == "title=new" else {})))
            self.refused(["simulate", path, "--set", word], *words)
        self.refused(["simulate", path, "--set", "seq=1", "--set", "seq=2"], "--set: seq is given twice")
        for command, scenario, part in ((["simulate"], "timelines", "model"), (["search", "--out", "new.json"], "timelines", "cluster"), (["simulate"], "table11", "model"),
                                        (["run", "--backend", "cpu"], self.write(RUN, "run.json"), "cluster")):
            self.refused([*command, scenario, "--set", f"{part}.hidden=1"], f"--set: {part}.hidden: ", f" reads no {part}; leave it")
        self.refused(["simulate", path, "--set", "cluster.kernel_overhead_us=5e-6"], "kernel_overhead_us: is 5e-06 µs", "not seconds")
        nameless = self.write(changed(read_json(PROFILES / "a800.json"), name=1), "nameless.json")
        cluster = {"cluster": str(nameless)}
        for fields, word, said in (({"name": 1}, "cluster.name=mine", f"{path}: name: "), (cluster, "name=mine", f"{nameless}: name: "),
                                   (cluster, "cluster.name=2", "--set: cluster.name: ")):  # fmt: skip
            self.write(changed(HARDWARE, **fields))
            self.refused(["simulate", path, "--set", word], said)

    def test_outputs(self):
        path = self.write(UNIT)
        self.write("mine", "new.rows")
        (self.folder / "held.rows").mkdir()
        os.mkfifo(self.folder / "pipe.rows")
        for name in ("new", "held", "pipe"):
            self.refused(["reproduce", path, "--out", name], f"{name}.rows: ", "holds something else; move it")
        self.refused(["reproduce", path, "--out", "n" * 240], "--out: ", "over 230 bytes; shorten it")
        self.refused(["trace", path, "--out", "/proc/new"], "--out: ", "cannot be created")
        data = self.folder / "data"  # without results
        for folder in ("models", "profiles"):
            shutil.copytree(ROOT / folder, data / folder)
        self.refused(["reproduce", self.write(HARDWARE), "--out", "other"], "published figures cannot be read; check STP_DATA_DIR",
                     variables={"STP_DATA_DIR": str(data)})

    def test_types_and_ranges(self):
        self.scenarios_refused(
            UNIT,
            ({"microbatches": "4"}, "microbatches", "must be a whole number, not a string"),
            ({"microbatches": 4.5}, "microbatches", "must be a whole number"),
            ({"microbatches": 0}, "microbatches", "0 is out of range", "whole number from 1"),
            ({"microbatches": [4, 0]}, "microbatches[1]", "0 is out of range"),
            ({"microbatches": []}, "microbatches", "is empty"),
            ({"microbatches": [4, 8, 4]}, "microbatches", "lists a number again; list every number once"),
            ({"order": "4"}, "order", "must be a whole number, not a string"),
            ({"microbatches": 10**30}, "microbatches"),
            ({"schedules": "stp"}, "schedules", "must be an array, not a string"),
            ({"schedules": [3]}, "schedules[0]", "must be an object"),
            ({"schedules": [{"fil": "mine.csv"}]}, "schedules[0].fil", 'did you mean "file"?'),
            ({"schedules": [{"memory_limit": 4}]}, "schedules[0].name", "is missing; add it, or file"),
            ({"schedules": ["mine.csv"]}, "schedules[0]", 'a file is {"file": "mine.csv"}'),
            ({"schedules": []}, "schedules", "is empty"),
            ({"schedules": [{"name": "1f1b", "memory_limit": 4}]}, "schedules", "1f1b takes no memory_limit"),
            ({"schedules": [{"name": "gis", "memory_limit": 4}]}, "schedules", "gis takes no memory_limit"),
            ({"schedules": [{"name": "1f1b", "vocabulary": "all"}]}, "schedules[0].vocabulary", "write one of whole, vocab-1, vocab-2"),
            ({"schedules": [{"name": "interlaced", "vocabulary": "vocab-2"}]}, "schedules", "interlaced has two pipelines or shares"),
            ({"schedules": [{"name": "1f1b", "vocabulary": "vocab-2"}], "post_validation": True}, "post_validation", "as 1f1b+vocab-2 has it"),
            ({"schedules": [{"name": "zb-v", "memory_limit": 0}]}, "schedules[0].memory_limit", "0 is out of range"),
            ({"parallel": [2]}, "parallel", "must be an object, not an array"),
            ({"parallel": {"pp": 0}}, "parallel.pp", "0 is out of range"),
            ({"parallel": {"pp": 2, "tp": -1}}, "parallel.tp", "-1 is out of range"),
            ({"costs": {"unit": {"attn.F": "1"}}}, "costs.unit.attn.F", "must be a number, not a string"),
            ({"schedule_costs": {"F": -1}}, "schedule_costs.F", "-1 is out of range"),
            ({"compare": {"gain": {"of": "stpp", "over": "1f1b"}}}, "compare.gain.of", "no row and no schedule of the suite"),
            ({"compare": {"gain": {"of": "1f1b+vocab-1", "over": "mine"}}}, "compare.gain.over", "no row and no schedule of the suite"),
            ({"title": "\x1b[2J"}, "title", "has control characters"),
            ({"\x9b2J": 1}, "?2J", "is not a known field"),
        )
        self.scenarios_refused(
            HARDWARE,
            ({"contention": "no"}, "contention", "must be true or false"),
            ({"sequence_parallel": 1}, "sequence_parallel", "must be true or false"),
            ({"scatter_transfers": 1}, "scatter_transfers", "must be true or false"),
            ({"post_validation": "yes"}, "post_validation", "true or false"),
            ({"merge_backward": "yes"}, "merge_backward", "must be"),
            ({"zero": 2}, "zero", "2 is out of range"),
            ({"configurations": [{"name": 3}]}, "configurations[0].name", "must be a string"),
        )

    def test_unknown_keys(self):
        self.scenarios_refused(
            UNIT,
            ({"relaese": "chain"}, "relaese", "is not a known field", 'did you mean "release"?'),
            ({"parallel": {"pp": 2, "dq": 2}}, "parallel.dq", "is not a known field"),
            ({"costs": {"unit": {"attn.G": 1}}}, "costs.unit.attn.G", "did you mean"),
            ({"costs": {"unit": {"kv_exchange": 1}}}, "costs.unit.kv_exchange", "is not a known field"),
            ({"configurations": [{"microbatch": 3}]}, "configurations[0].microbatch", "did you mean"),
            ({"configurations": [{"vary": [{"seq": 8}]}]}, "configurations[0].vary", "is not a list of lists of objects"),
            ({"configurations": [{"vary": [[]]}]}, "configurations[0].vary", "is not a list of lists of objects"),
            ({"configurations": [{"seq": 8, "vary": [[{"seq": 8}]]}]}, "configurations[0]", "gives seq twice"),
            ({"configurations": [{"vary": [[{"seq": 8}], [{"seq": 8}]]}]}, "configurations[0]", "gives seq twice"),
            ({"configurations": [{"vary": [[{}] * 101] * 2}]}, "configurations[0].vary", "more than 10000"),
            ({"configurations": [{}, {"vary": [[{"microbatch": 3}]]}]}, "configurations[1] (vary 1).microbatch", "did you mean"),
            ({"microbatches": None, "configurations": [{"microbatches": 8}, {"vary": [[{}, {}]]}]}, "configurations[1].microbatches", "is missing"),
            # Of models alone.
            ({"recompute": "full"}, "recompute", "is not a known field"),
            ({"tp_overlap": "megatron"}, "tp_overlap", "is not a known field"),
            ({"tp_overlap": "domino"}, "tp_overlap", "is not a known field"),
            ({"gradients": "model"}, "gradients", "is not a known field"),
        )
        for field in ("layer_costs", "microbatch_costs"):
            self.refused(["run", self.write(changed(RUN, **{field: [1]})), "--backend", "cpu"], f"{field}: is not a known field")

    def test_missing_keys(self):
        for key in ("name", "schedules", "microbatches"):
            self.scenario_refused(changed(UNIT, **{key: None}), key, "is missing")
        self.scenarios_refused(
            UNIT,
            ({"parallel": {"tp": 1}}, "parallel.pp", "is missing"),
            ({"costs": None}, "costs", "is missing, and so is model"),
            ({"layers_per_chunk": None}, "layers_per_chunk", "is missing"),
            ({"costs": {}, "layers_per_chunk": None}, "costs.unit, layers_per_chunk", "are missing"),
        )
        several = [{"microbatches": 8}, {"schedules": ["stp"]}, {"parallel": {"tp": 2}}]
        self.scenarios_refused(
            HARDWARE,
            ({"model": None}, "model", "is missing; add it"),
            ({"offload": {"ration": 0.5}}, "offload.ratio", "is missing", 'correct "ration"'),
            ({"offload": {}}, "offload.ratio", "is missing"),
            ({"name": None, "schedules": None, "seq": None, "cluster": None, "microbatches": None, "parallel": {"tp": 4}},
             "name, cluster, microbatches, parallel.pp, schedules, seq", "are missing; add them"),
            ({"seq": None, "microbatches": None, "schedules": None, "configurations": several},
             "configurations[1].microbatches, configurations[2].microbatches, configurations[2].parallel.pp, "
             "configurations[0].schedules, configurations[2].schedules, seq", "are missing"),
            ({"model": "gpt-22b", "parallel": {"tp": 8, "pp": 4}, "schedules": ["1f1b"]}, "implementation", "is missing", "megatron-2022"),
        )
        self.scenario_refused({"name": "empty"}, "costs, microbatches, parallel, schedules", "are missing, and so is model; write costs.unit")
        self.scenario_refused(changed(VISION, vision_tokens=None), "vision_tokens", "is missing")
        self.refused(["run", self.write(changed(RUN, model=None, seq=None)), "--backend", "cpu"], "model, seq: are missing")

    def test_choices(self):
        self.scenarios_refused(
            UNIT,
            ({"release": "never"}, "release", '"never" is not a choice', "chain, block, released, blocking"),
            ({"braid": "loose"}, "braid", '"loose" is not a choice', "static, sequential, timed, paired"),
        )
        recipe = changed(HARDWARE, implementation="megatron-te")
        self.scenarios_refused(
            recipe,
            ({"implementation": "megatron", "recipe": {}}, "recipe", "implementation is megatron", "megatron-te"),
            ({"recipe": {"fc2_method": "ring"}}, "recipe.fc2_method", '"ring" is not a choice', "pipeline, ring_exchange"),
            ({"recipe": {"state_bytes": 8}}, "recipe.state_bytes", "is no number of bytes", "12 (fp32), 10"),
            ({"recipe": {"state_bytes": 6}}, "recipe.state_bytes", "zero is 0", "set zero to 1"),
            ({"recipe": {"gathers_in_step": True}}, "recipe.gathers_in_step", "zero is 0", "set zero to 1"),
            ({"recipe": {"buckets": 1}}, "recipe.buckets", "is not a known field"),
            ({"recipe": {"overlap_sms": {"proj": 8}}}, "recipe.overlap_sms.proj", "is not a known field"),
            ({"recipe": {"overlap_sms": {"fc2_forward": 200}}}, "recipe.overlap_sms.fc2_forward", "out of range"),
        )
        self.scenarios_refused(
            HARDWARE,
            ({"schedules": [{"name": "1f1b", "vocabulary": "vocab-2"}], "parallel": {"tp": 4, "pp": 5}, "layers_per_chunk": "even"}, "parallel.pp", "do not divide the 152064"),
            ({"model": "llm-12.1"}, "model", "did you mean llm-12.1b?"),
            ({"cluster": "none.json"}, "cluster", "there is no file"),
            ({"recompute": "some"}, "recompute", "write one of none, selective, full, block-1, norm+activation, mlp, attn+mlp, attn+mlp+norm, block-N, layernorm"),
            ({"recompute": "block-0"}, "recompute", "\"block-0\" is not a choice"),
            ({"recompute": "block-5"}, "recompute", "no chunk has more than 4 layers", "write full"),
            ({"tp_overlap": "flux-like"}, "tp_overlap", "is not a choice; write one of none, megatron, domino, flux"),
            ({"gradients": "bf16"}, "gradients", '"bf16" is not a choice', "float32, model"),
            ({"layers_per_chunk": "equal"}, "layers_per_chunk", '"equal" is not a choice', '"even"'),
        )


class Rules(CommandLine):
    """Fields that are right alone."""

    def test_chunks_and_layers(self):
        self.scenarios_refused(
            UNIT,
            ({"layers_per_chunk": [1, 1, 1]}, "layers_per_chunk", "has 3 entries", "write 2 entries"),
            ({"layers_per_chunk": []}, "layers_per_chunk", "is missing or empty"),
            ({"layers_per_chunk": [1, -1]}, "layers_per_chunk[1]", "-1 is out of range"),
            ({"layers_per_chunk": "even"}, "layers_per_chunk", "no model to divide"),
            ({"layers_per_chunk": "balanced"}, "layers_per_chunk", "no model to divide"),
            ({"layers_per_chunk": "balanced", "layer_costs": [1] * 4, "costs": {"unit": {"attn.F": [10, 1]}}}, "layers_per_chunk",
             "is balanced, which is for costs that all ranks share"),
            ({"chunks": 2}, "chunks", "1f1b has 1 chunk a rank, not 2", "set it to 1"),
            ({"schedules": ["stp"], "microbatches": 8, "chunks": 3, "layers_per_chunk": [1] * 6}, "chunks", "stp has 2 chunks a rank, not 3"),
        )
        self.scenarios_refused(
            HARDWARE,
            ({"parallel": {"tp": 1, "pp": 31}}, "parallel.pp", "31 ranks are more than the 30 layers"),
            ({"parallel": {"tp": 3, "pp": 4}}, "parallel.tp", "3 does not divide the 40 attention heads"),
            ({"parallel": {"tp": 4, "pp": 5}, "microbatches": 10}, "parallel.pp", "do not divide", "layers_per_chunk"),
            ({"model": "gpt-1.5b", "implementation": "megatron", "layers_per_chunk": "even", "seq": 1025}, "seq",
             "is 1025, and gpt-1.5b has 1024 learned positions", "more max_position_embeddings"),
            ({"layers_per_chunk": [4] * 8}, "layers_per_chunk", "adds up to 32 layers", "30"),
            ({"layers_per_chunk": "even", "parallel": {"tp": 4, "pp": 16}, "microbatches": 16}, "layers_per_chunk",
             "32 virtual stages are more than the model's 30 layers", "use fewer"),
            ({"layers_per_chunk": "balanced", "cluster_values": {"memory_gb": 8}}, "layers_per_chunk",
             "no split of 30 layers over the 8 virtual stages of 1f1b-i fits into the 8 GB of a800", "use more ranks"),
            ({"layers_per_chunk": "balanced", "chunks": 3}, "layers_per_chunk", "one or two chunks a rank, and 1f1b-i has 3", 'write "even"'),
            ({"configurations": [{"layers_per_chunk": "balanced", "cluster_values": {"memory_gb": 1}}]}, "configurations[0].layers_per_chunk",
             "no split of 30 layers"),
        )
        run = self.write(changed(RUN, layers_per_chunk="balanced"))
        self.refused(["run", run, "--backend", "cpu"], "layers_per_chunk: is balanced, but a run has no cluster", 'write "even"')

    def test_schedules(self):
        four = [1] * 4
        self.scenarios_refused(
            UNIT,
            ({"schedules": ["1f1b_i"]}, "schedules[0]", "did you mean 1f1b-i?", "there are stp"),
            ({"schedules": ["1f1b", "gpipe", "1f1b"]}, "schedules[2]", "lists 1f1b again"),
            ({"schedules": ["1f1b-i"], "layers_per_chunk": four, "microbatches": 5}, "microbatches", "multiple of 2, not 5", "use 6"),
            ({"schedules": ["dualpipev"], "layers_per_chunk": four, "microbatches": 3}, "microbatches", "2p = 4, not 3"),
            ({"schedules": [{"file": "none.json"}]}, "schedules[0].file", "there is no file"),
        )
        self.scenario_refused(changed(RUN, braid="timed"), "braid", "is timed, which needs times, and runs have none", "use static or sequential")
        unlike = changed(HARDWARE, braid="paired", microbatch_costs=[1.0] * HARDWARE["microbatches"])
        self.scenario_refused(unlike, "braid", "microbatch_costs make unlike")
        megatron = changed(HARDWARE, braid="paired", sequence_parallel=True, tp_overlap="megatron")
        self.scenario_refused(megatron, "braid", "is paired, whose barriers are between units")
        tied = str(self.write(read_json(ROOT / "models/tiny.json") | {"name": "tied", "tied": True}, "tied.json"))
        for fields, field in (({"model": tied}, "model.tied"), ({"post_validation": True}, "post_validation")):
            self.refused(["run", self.write(changed(RUN, schedules=["dualpipe"], **fields)), "--backend", "cpu"], f": {field}: ",
                         "is not built for the two pipelines of dualpipe; ")

    def test_the_vocabulary_on_all_ranks(self):
        base = changed(HARDWARE, parallel={"tp": 2, "pp": 4, "dp": 2}, layers_per_chunk="even")
        shared = {"name": "stp", "vocabulary": "vocab-1"}
        for schedule, name in (*((name, name) for name in ("vocab-1", "vocab-2", "interlaced")), (shared, "stp+vocab-1")):
            for fields, field in (({"zero": 1}, "zero"), ({"offload": {"ratio": 0.5, "chunks": 1}}, "offload.chunks"),
                                  ({"tp_overlap": "domino", "microbatch_size": 2}, "tp_overlap")):
                self.refused(["simulate", self.write(changed(base, schedules=[schedule], **fields))], f": {field}: ",
                             f"is not built with the vocabulary on all ranks, as {name} has it")
        others = [shared | {"name": name} for name in ("v-half", "1f1b-i", "zb-v")]
        self.succeed("simulate", self.write(changed(base, schedules=["vocab-1", shared, *others], configurations=[
            {}, {"sequence_parallel": True}, {"offload": {"ratio": 0.5}}, {"parallel": {"tp": 2, "pp": 4, "cp": 2}}])))

    def test_schedule_files(self):
        printed = self.succeed("schedule", "1f1b", "--pp", 2, "--microbatches", 4, "--format", "json").stdout
        order = self.write(printed, "order.json")
        mine = changed(UNIT, schedules=[{"file": "order.json"}])
        self.succeed("simulate", self.write(mine))
        self.refused(["simulate", self.write(changed(mine, microbatches=5))], str(order), "microbatches", "the scenario for pp 2 and 5")
        self.write(printed.replace('"B0.0"', '"B0.1"', 1), "order.json")
        self.refused(["simulate", self.write(mine)], str(order), "B0.1")

    def test_tensor_parallelism(self):
        self.write_profile("small.json", gpus_per_node=2)
        overlap, sequence = {"tp_overlap": "megatron"}, {"sequence_parallel": True}
        self.scenarios_refused(
            HARDWARE,
            (sequence | {"seq": 3073}, "sequence_parallel", "multiple of parallel.tp"),
            (overlap, "tp_overlap", "sequence parallelism, which is off", "set sequence_parallel to true"),
            ({"tp_overlap": "flux"}, "tp_overlap", "sequence parallelism, which is off", "set sequence_parallel to true"),
            (overlap | sequence | {"cluster": "small.json"}, "tp_overlap", "4 ranks do not divide a node of 2", "use another parallel.tp"),
            (overlap | sequence | {"implementation": "megatron-2022"}, "tp_overlap", "megatron-2022", "use another implementation"),
            ({"microbatch_size": 3, "tp_overlap": "domino"}, "microbatch_size", "is 3, and tp_overlap domino halves", "use an even number"),
        )

    def test_context_and_data_parallelism(self):
        heads = {"cp_method": "all-to-all"}
        self.scenarios_refused(
            RING,
            ({"seq": 3070}, "parallel.cp", "cannot divide 3070 tokens into two pieces for each of 2 ranks", "multiple of 2 * parallel.cp"),
            ({"seq": 3060, "sequence_parallel": True}, "sequence_parallel", "3060 tokens by 2 context-parallel and 4", "parallel.cp * parallel.tp"),
            ({"implementation": "megatron-2022"}, "parallel.cp", "megatron-2022", "use another implementation"),
            ({"parallel": {"tp": 4, "pp": 4, "cp": 0}}, "parallel.cp", "out of range"),
            ({"parallel": {"tp": 4, "pp": 4, **heads}}, "parallel.cp_method", "parallel.cp is 1", "leave it out"),
            ({"parallel": {"tp": 4, "pp": 4, "cp": 2, "cp_method": "tree"}}, "parallel.cp_method", '"tree" is not a choice', "ring, all-to-all"),
            ({"parallel": {"tp": 4, "pp": 4, "cp": 16, **heads}}, "parallel.cp_method", "parallel.cp 16 does not divide the", "attention heads",
             "on each of 4 tensor-parallel ranks", "the method ring"),
            ({"parallel": {"tp": 4, "pp": 4, "dp": 65537}}, "parallel.dp", "out of range"),
            ({"parallel": {"tp": 8, "pp": 4, "dp": 65536}}, "parallel", "more ranks than the 1048576", "use fewer"),
        )
        self.scenarios_refused(
            UNIT,
            ({"parallel": {"pp": 2, "cp": 2}, "costs": {"unit": {"attn.F": 1}}}, "costs.unit.attn.F", "parallel.cp divides it", "attn.F_core"),
            ({"parallel": {"pp": 2, "cp": 2, **heads}, "costs": {"unit": {"kv_exchange": 1}}}, "costs.unit.kv_exchange", "is not a known field"),
        )

    def test_offload_and_values_of_the_cluster(self):
        none = {"device_to_host_gb_per_s": 0, "host_to_device_gb_per_s": 0}
        self.scenarios_refused(
            changed(HARDWARE, schedules=["stp"], cluster="h20", microbatches=24),
            ({"offload": {"ratio": 1.5}}, "offload.ratio", "out of range"),
            ({"offload": {"ratio": 1, "ratios": 1}}, "offload.ratios", "is not a known field"),
            ({"cluster_values": {"link": 2}}, "cluster_values.link", "is no value of h20"),
            ({"cluster_values": none}, "cluster_values", "device_gb_per_s.value: 0 is out of range"),
        )

    def test_vision_encoders(self):
        self.scenarios_refused(
            VISION,
            ({"vision_tokens": 3138}, "vision_tokens", "do not make whole tokens"),
            ({"vision_tokens": 5120 * 4 + 4}, "vision_tokens", "do not make whole tokens"),
            ({"model": "llm-12.1b"}, "vision_tokens", "llm-12.1b has no vision encoder"),
            ({"layers_per_chunk": [3, 5, 5, 5, 5, 5, 5, 0]}, "layers_per_chunk", "begins with 3"),
            ({"schedules": [{"name": "1f1b", "vocabulary": "vocab-2"}], "layers_per_chunk": "even"}, "model.vision_config", "vocabulary on all ranks"),
            ({"parallel": {"tp": 4, "pp": 4, "cp": 2}}, "parallel.cp", "is not built"),
            ({"sequence_parallel": True}, "sequence_parallel", "is not built"),
            ({"recompute": "full"}, "recompute", "is not built"),
            ({"implementation": "megatron-2022"}, "implementation", "is not built"),
        )

    def test_costs_that_differ(self):
        self.scenarios_refused(
            UNIT,
            ({"layer_costs": []}, "layer_costs", "has 0 entries", "one factor per layer"),
            ({"layer_costs": [1, 2, 3]}, "layers_per_chunk", "adds up to 2 layers, but layer_costs has 3"),
            ({"microbatch_costs": [1, 2]}, "microbatch_costs", "has 2 entries for 4 microbatches", "one factor per microbatch"),
        )
        self.scenarios_refused(
            HARDWARE,
            ({"layer_costs": [1, 2]}, "layer_costs", "has 2 entries, but llm-12.1b has 30 layers", "one factor per layer"),
            ({"layer_costs": [-1] * 30}, "layer_costs[0]", "-1 is out of range"),
            ({"layer_costs": 2}, "layer_costs", "must be an array"),
            ({"microbatches": [2, 4], "microbatch_costs": [1, 2]}, "microbatch_costs", "2 entries for 4"),
            ({"microbatch_costs": []}, "microbatch_costs", "has 0 entries for 8"),
            ({"microbatch_costs": [1] * 8, "offload": {"ratio": 0.5}}, "microbatch_costs", "not built with offload"),
        )

    def test_global_batches(self):
        self.scenarios_refused(
            changed(HARDWARE, microbatches=None, microbatch_size=2, parallel={"tp": 4, "pp": 4, "dp": 3}),
            ({"global_batch": 50}, "global_batch", "50 samples do not divide by the 6", "use a multiple"),
            ({"global_batch": 0}, "global_batch", "0 is out of range"),
            ({"global_batch": []}, "global_batch", "is empty"),
            ({"global_batch": 48, "microbatches": 8}, "global_batch", "and so is microbatches", "remove one of them (--set microbatches=null)"),
            ({"global_batch": 6 * 2**24}, "global_batch", "more than the limit", "use fewer samples"),
        )


class Profiles(CommandLine):
    """A scenario on a profile of its own, bad in one place. (lib/stp/cluster/profile_test.cc has the other places.)"""

    def setUp(self):
        super().setUp()
        self.profile = read_json(PROFILES / "a800.json")

    def profile_refused(self, field, *words):
        self.write(self.profile, "gpu.json")
        for values in ({}, {"cluster_values": {"kernel_overhead_us": 5}}):
            path = self.write(changed(HARDWARE, cluster="gpu.json", **values))
            self.refused(["simulate", path, "--json", "new.json"], f"stp: {self.folder / 'gpu.json'}: {field}: ", "; ", *words)

    def test_all_missing_fields_are_named_at_once(self):
        values = [key for key, field in self.profile.items() if isinstance(field, dict)]
        for key in ("host_launch_us", "adapters_per_node", "attention_tile_overhead", "fixed_memory_gb"):  # have a default
            values.remove(key)
        self.assertEqual(len(values), 22)
        given = {"name": "mine", "accelerator": "GPU", "peak_tflops": {"value": 3}, "gemm_efficiency": self.profile["gemm_efficiency"]}
        missing = [key for key in values if key not in given] + ["peak_tflops.source"]
        self.write(given, "gpu.json")
        done = self.run_stp("simulate", self.write(changed(HARDWARE, cluster="gpu.json")))
        self.assertRegex(done.stderr, r"^stp: .*gpu\.json: (.*): are missing; add them\n$")
        named = done.stderr.split("gpu.json: ")[1].split(": ")[0].split(", ")
        self.assertEqual((done.returncode, sorted(named)), (2, sorted(missing)))
        # Of a measured curve, and of a fitted value.
        del self.profile["gpus_per_node"], self.profile["gemm_efficiency"]["range"]["source"]
        self.profile["all_reduce_measured"] = [{"ranks": 4, "source": "mine"}]
        self.profile_refused("gpus_per_node, gemm_efficiency.range.source, all_reduce_measured[0].sizes", "are missing")

    def test_a_missing_field_that_may_be_misspelled(self):
        self.profile["multiprocessors"] = self.profile.pop("sms")
        self.profile_refused("multiprocessors", "is not a known field here, and sms is missing; remove or rename it")
        for name, wrong in (("microbatches", "microbatchs"), ("seq", "Seq"), ("schedules", "schedule"), ("cluster", "clutser")):
            self.scenario_refused(changed(HARDWARE, **{name: None, wrong: HARDWARE[name]}), wrong, f'is not a known field here; did you mean "{name}"?')
        self.scenario_refused(changed(UNIT, layers_per_chunk=None, layers_per_chunks=[1, 1]), "layers_per_chunks", 'did you mean "layers_per_chunk"?')

    def test_control_characters(self):
        self.profile["name"] = "a\x1b]0;b\x07"
        self.profile_refused("name", "has control characters")
        self.profile["name"] = "mine"
        self.profile["x\x1b[31m"] = 1
        self.profile_refused("x?[31m", "is not a known field")

    def test_any_value_may_have_a_range(self):
        self.profile["kernel_overhead_us"]["range"] = {"from": 1, "to": 9, "source": "guessed"}
        self.write(self.profile, "gpu.json")
        self.succeed("simulate", self.write(changed(HARDWARE, cluster="gpu.json")))
        self.profile["kernel_overhead_us"]["range"]["source"] = ""
        self.profile_refused("kernel_overhead_us.range.source", "is empty")
        self.profile["kernel_overhead_us"]["range"] = {"from": 100, "to": 200, "source": "guessed"}
        self.profile_refused("kernel_overhead_us.value", "outside its physical range")
        self.profile["adapters_per_node"]["value"] = 0
        self.profile_refused("adapters_per_node.value", "0 is out of range")


class Pairs(CommandLine):
    def test_pairs(self):
        one = PAIRS["pairs"][0]

        def pair(fields):
            return {"pairs": [changed(one, **fields)]}

        for fields, *words in (
            ({"pairs": []}, "pairs", "is empty"),
            ({"pairs": {}}, "pairs", "array"),
            ({"pairs": [3]}, "pairs[0]"),
            ({"pairs": [one, one]}, "pairs[1].name", "is given twice"),
            ({"cluster": "a80"}, "cluster", "did you mean a800"),
            ({"cluster": None}, "cluster", "is missing"),
            ({"calibrated": True}, "calibrated"),
            (pair({"name": None}), "pairs[0].name"),
            (pair({"gemm": {"m": 0, "n": 1, "k": 1}}), "pairs[0].gemm.m", "out of range"),
            (pair({"gemm": {"m": 1.5, "n": 1, "k": 1}}), "pairs[0].gemm.m"),
            (pair({"gemm": {"m": 1, "n": 1}}), "pairs[0].gemm.k", "is missing"),
            (pair({"gemm": {"m": 1, "n": 1, "k": 1, "batch": 2}}), "pairs[0].gemm.batch", "not a known field"),
            (pair({"all_reduce": {"mib": 64, "ranks": 9}}), "pairs[0].all_reduce.ranks", "out of range"),
            (pair({"all_reduce": {"mib": 64, "ranks": 1}}), "pairs[0].all_reduce.ranks", "out of range"),
            (pair({"all_reduce": {"mib": 0, "ranks": 2}}), "pairs[0].all_reduce.mib", "out of range"),
            (pair({"published": {"gemm_ms": 1}}), "pairs[0].published.all_reduce_ms, pairs[0].published.serial_ms, "
             "pairs[0].published.together_ms: are missing; add them"),
            (pair({"gemm": {"m": 1}}) | {"cluster": None}, "cluster, pairs[0].gemm.n, pairs[0].gemm.k: are missing"),
            (pair({"published": {**one["published"], "together_ms": 0}}), "pairs[0].published.together_ms", "out of range"),
            (pair({"seq": 3}), "pairs[0].seq", "not a known field"),
            ({"name": "a/b"}, "name", "cannot be the name of a result file"),
            ({"schedules": ["stp"]}, "schedules", "not a known field"),
        ):
            with self.subTest(fields):
                self.refused(["simulate", self.write(changed(PAIRS, **fields))], "s.json", *words)
        self.refused(["reproduce", self.write(changed(PAIRS, pairs=[])), "--no-plots", "--out", "new"], "s.json", "pairs", "is empty")
        self.refused(["reproduce", self.write(PAIRS), self.write(PAIRS, "twice.json"), "--no-plots", "--out", "new"], "twice.json", "two scenarios")
        for command in (["trace", "table11", "--out", "new"], ["run", "table11", "--backend", "cpu"], ["compare", "--profiles", "a800", "h20", "--scenarios", "table11"]):
            self.refused(command, "table11.json", "pairs", "use stp simulate or stp reproduce")


if __name__ == "__main__":
    main(__doc__)
