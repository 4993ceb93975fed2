"""`stp run` as its users run it: ranks are threads.

    cli_run.py STP_BINARY [unittest arguments]
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys

import jsonschema

from command_line import changed, CommandLine, HARDWARE, main, read_json, ROOT, RUN, UNIT


class Run(CommandLine):
    """`stp run`: on the CPU, ranks are threads."""

    twins = {}  # the records of those that ran

    def trained(self, scenario, cases, *arguments):
        """The record of a scenario, or of one by its name, all of whose cases train equal to one rank."""
        number = self.records = self.records + 1
        path = scenario if isinstance(scenario, str) else self.write(scenario)
        done = self.succeed("run", path, "--backend", "cpu", "--json", f"record-{number}.json", *arguments)
        self.assertIn(f"parity: {cases} of {cases} cases equal one rank", done.stdout)
        return self.read(f"record-{number}.json")

    records = 0

    def twin(self, name, cases):
        """The record of a reduced twin."""
        if name not in self.twins:
            self.twins[name] = self.trained(name, cases)
        return self.twins[name]

    def run_cpu(self, scenario, *arguments):
        return self.run_stp("run", self.write(scenario), "--backend", "cpu", *arguments)

    def test_it_trains_equal_to_one_rank_and_says_what_it_measured(self):
        record = self.trained(RUN, 2, "--trace", "trace.json")
        self.assertEqual(record["evidence"], "measured")
        for row in record["results"]:
            self.assertLessEqual(row["parity"]["gradient"], 1e-10)
            self.assertLessEqual(row["parity"]["loss"], 1e-10)
            self.assertEqual((len(row["losses"]), len(row["step_time_repeats_s"]), row["backend"]), (3, 2, "cpu"))
            for rank in row["ranks"]:
                self.assertGreater(rank["memory_bytes"]["activations"], 0)
        # Both schedules saw the same data and weights.
        first, second = (row["losses"] for row in record["results"])
        for one, other in zip(first, second):
            self.assertAlmostEqual(one, other, places=9)
        self.assertIn("traceEvents", self.read("trace.json"))

    def test_emulated_steps_have_the_simulators_beside_them(self):
        """Steps of real time are never shorter; how much longer depends on what else runs."""
        unit = {"attn.F": 0.001, "attn.I": 0.001, "attn.W": 0.001, "mlp.F": 0.001, "mlp.I": 0.002, "mlp.W": 0.001,
                "head.F": 0.001, "p2p": 0.0002}  # fmt: skip
        of_units = changed(UNIT, schedules=["1f1b-i", "zb-v", "stp"], layers_per_chunk=[1] * 4,
                           costs={"unit": unit})  # fmt: skip
        on_hardware = changed(HARDWARE, schedules=["stp"], parallel={"tp": 2, "pp": 2, "dp": 2}, microbatches=4, seq=64,
                              zero=1, sequence_parallel=True, contention=False, layers_per_chunk="even")  # fmt: skip
        for i, scenario in enumerate((of_units, on_hardware)):
            path = self.write(scenario)
            self.succeed("run", path, "--backend", "emulated", "--json", f"emulated-{i}.json")
            self.succeed("simulate", path, "--json", f"simulated-{i}.json")
            emulated, simulated = self.read(f"emulated-{i}.json"), self.read(f"simulated-{i}.json")
            jsonschema.validate(emulated, read_json(ROOT / "results/schema/record.schema.json"))
            self.assertEqual(emulated["evidence"], "emulated")
            self.assertEqual(emulated["scenario"], simulated["scenario"])
            for row, virtual in zip(emulated["results"], simulated["results"], strict=True):
                self.assertAlmostEqual(row["predicted"]["step_time_s"], virtual["step_time_s"], places=12)
                self.assertGreaterEqual(min(row["step_time_repeats_s"]), virtual["step_time_s"] * (1 - 1e-9))
                for field in ("model", "cluster", "tp", "layers_per_chunk", "unit_costs"):
                    self.assertEqual(row[field], virtual[field])
                self.assertEqual((row["losses"], [rank["memory_bytes"] for rank in row["ranks"]]), ([], [None, None]))
        late = of_units | {"schedules": ["stp"]}
        on_time, path = self.read("emulated-0.json")["results"][2]["predicted"]["step_time_s"], self.write(late)
        self.succeed("run", path, "--backend", "emulated", "--inject", "slow:0:F0.0:0.5", "--json", "late.json")
        row = self.read("late.json")["results"][0]
        self.assertAlmostEqual(row["predicted"]["step_time_s"], on_time + 0.5, places=12)  # all wait for the first op
        self.assertGreaterEqual(min(row["step_time_repeats_s"]), on_time + 0.5 - 1e-9)
        for scenario, flags, words in (
                (RUN, (), "run: computes, and emulated kernels only take time"),
                (changed(of_units, costs={"unit": {"all_reduce": 1}}), (), "parallel.tp: is 1, and a rank without"),
                (changed(HARDWARE, tp_overlap="flux", sequence_parallel=True), (), "tp_overlap: is flux"),
                (of_units, ("--predict", "a800"), "--predict: is for kernels that compute"),
                (of_units, ("--memory-limit", 1), "--memory-limit: emulated takes no memory"),
                (of_units, ("--save", "saved"), "--save: emulated computes no weights"),
                (of_units, ("--resume", "saved"), "--resume: emulated computes no weights"),
                (of_units, ("--inject", "nan:0:F0.0"), "--inject: emulated computes no values")):  # fmt: skip
            self.refused(["run", self.write(scenario), "--backend", "emulated", *flags], words)

    def test_what_one_rank_cannot_compute_differs_from_nothing(self):
        model = {"name": "m", "source": "x", "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 12, "num_attention_heads": 8,
                 "num_key_value_heads": 4, "head_dim": 2, "vocab_size": 60, "norm": "layer-without-bias", "activation": "swiglu",
                 "model_type": "megatron-gpt", "max_position_embeddings": 64, "query_key_norm": True}
        deep = {"name": "deep", "model": "m", "models": {"m": model}, "seq": 12, "microbatch_size": 2, "parallel": {"pp": 2}, "microbatches": 3,
                "schedules": ["zb-auto"], "run": {"parity": True, "seed": 603, "weight_deviation": 0.2, "bias_deviation": 0.1, "gain_deviation": 0.1}}
        parity = self.trained(deep, 1)["results"][0]["parity"]
        self.assertGreater(parity["one_rank_gradient"], 1e-5)
        done = self.run_cpu(changed(deep, run=deep["run"] | {"type": "bfloat16"}))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "1 of 1 cases do not equal one rank\n.*: too inexact to be compared\n")

    def test_losses_and_gradients_that_are_0_are_equal(self):
        for of_run, *other in (({"weight_deviation": 0},), ({}, "--set", "model.vocab_size=1")):
            run = {"type": "float32", "parity": True, **of_run}
            record = self.trained(changed(RUN, run=run, schedules=["1f1b"], parallel={"pp": 2}), 1, *other)
            jsonschema.validate(record, read_json(ROOT / "results/schema/record.schema.json"))

    def test_a_matrix_of_one_column_is_no_vector(self):
        for size in ("hidden_size", "intermediate_size"):
            self.trained(changed(RUN, schedules=["1f1b"], parallel={"pp": 2}), 1, "--set", f"model.{size}=1")

    def test_bf16_is_judged_by_one_rank(self):
        narrow, wide = (self.trained(RUN | {"run": RUN["run"] | {"type": kind}}, 2)["results"] for kind in ("bfloat16", "float64"))
        for row, other in zip(narrow, wide):
            self.assertEqual(row["type"], "bf16")
            self.assertGreater(row["parity"]["gradient"], 1e-4)  # it is bf16
            self.assertLessEqual(row["parity"]["gradient"], 2 * row["parity"]["one_rank_gradient"])
            self.assertIsNone(other["parity"]["one_rank_gradient"])
            for loss, exact in zip(row["losses"], other["losses"]):
                self.assertAlmostEqual(loss / exact, 1, delta=2**-8)
            for rank, full in zip(row["ranks"], other["ranks"]):
                memory, all_8 = rank["memory_bytes"], full["memory_bytes"]
                self.assertEqual([8 * memory["weights"], 8 * memory["gradients"], 8 * memory["optimizer"]],
                                 [2 * all_8["weights"], 4 * all_8["gradients"], 6 * all_8["optimizer"]])

    def test_context_parallelism_trains_equal_to_one_rank(self):
        """The reduced twin of cp-dp and context-parallel, and what else they are used with."""
        rows = self.twin("cp-dp-small", 15)["results"]
        self.assertEqual([(row["cp"], row["dp"], row["gpus"]) for row in rows[::3]], [(2, 1, 16), (2, 1, 8), (1, 2, 16), (2, 1, 8), (2, 1, 4)])
        self.assertEqual([row.get("cp_method") for row in rows[::3]], [None, "all-to-all", None, "all-to-all", None])
        ring = changed(RUN, schedules=["zb-v"], seq=8, parallel={"pp": 1, "tp": 2, "cp": 2, "dp": 2}, sequence_parallel=True, recompute="full")
        for method in ("ring", "all-to-all"):
            self.trained(changed(ring, parallel={**ring["parallel"], "cp_method": method}), 1)

    def test_reduced_twins_of_experiments_train_equal_to_one_rank(self):
        """Of each row of the kept records, a twin (docs/scenarios.md names those that are not `reduced`) has the same schedule and options, on a grid of the same kind."""
        options = {"sequence_parallel": False, "recompute": "none", "tp_overlap": "none", "zero": 0, "merge_backward": False,
                   "post_validation": False, "cp_method": "ring", "vision_tokens": 0, "offload_ratio": 0}  # fmt: skip

        def kind(row):
            yield from (row[name] for name in ("schedule", "backward", "release"))
            yield from (row[name] > 1 for name in ("tp", "pp", "cp", "dp"))
            yield len(row["layers_per_chunk"]) // row["pp"]
            yield row["schedule"] == "stp" and row["microbatches"] < 3 * row["pp"] - 1  # too few for its steps: another order
            for name, default in options.items():
                value = row.get(name) or default  # unit costs have no such thing
                yield value if isinstance(default, (str, bool)) else value > 0

        table = (ROOT / "docs/scenarios.md").read_text(encoding="utf-8").partition("## Experiments and their reduced twins")[2]
        named = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", table, re.MULTILINE))
        kept = {path.stem: path for path in (ROOT / "results/reference/simulated").glob("*.json") if path.stem != "summary"}
        self.assertLessEqual(set(named), set(kept))
        parts = {part for one in read_json(ROOT / "scenarios/reduced.json")["configurations"] for part in one["name"].split(", ")}
        self.assertLessEqual({name for name in kept if named.get(name, "`reduced`").startswith("`reduced`")}, parts)
        cases = {"reduced": 139, "checkpoint": 28, "cp-dp-small": 15, "mllm-small": 36, "offload-small": 27}
        kinds = {name: {tuple(kind(row)) for row in self.twin(name, count)["results"]} for name, count in cases.items()}
        without = set()
        for name, path in kept.items():
            if named.get(name, "").startswith("–"):
                continue  # simulated alone
            twins = [kinds[twin] for twin in re.findall("`([a-z-]+)`", named.get(name, "`reduced`"))]
            # These are of simulations alone.
            rows = [row for row in read_json(path)["rows"] if row["tp_overlap"] != "flux" and row["braid"] not in ("timed", "paired")]
            without |= {(name, *kind(row)) for row in rows if not any(tuple(kind(row)) in twin for twin in twins)}
        self.assertEqual(without, set())

    def test_offload_trains_equal_to_one_rank(self):
        """The reduced twin of offload, and what users combine it with."""
        rows = self.twin("offload-small", 27)["results"]
        self.assertTrue(all(row["offloaded"] and row["ranks"][0]["memory_bytes"]["host"] > 0 for row in rows if row["schedule"] == "stp"))

    def test_vision_encoders_train_equal_to_one_rank(self):
        """The reduced twin of mllm-a800, and what users combine it with."""
        record = self.twin("mllm-small", 36)
        rows, configurations = record["results"], record["scenario"]["configurations"]
        self.assertEqual({row["vision_tokens"] for row in rows + configurations}, {12})
        self.assertEqual(rows[0]["layers_per_chunk"], [0, 2, 2, 2, 2, 2, 2, 0])
        vision = changed(RUN, model="mllm-tiny", seq=10, vision_tokens=12, layers_per_chunk="even")
        replay = self.write(changed(vision, run=changed(RUN["run"], parity=False)), "replay.json")
        self.succeed("run", replay, "--backend", "cpu", "--replay-rank", "0", "--replay-cluster", "a800")
        for change, words in (
            ({"vision_tokens": 44}, ["vision_tokens", "44 do not make whole tokens among the 10 of seq"]),
            ({"offload": {"ratio": 1}}, ["offload", "is not built"]),
            ({"parallel": {"pp": 1, "tp": 1}, "schedules": ["1f1b"]}, ["layers_per_chunk", "a virtual stage of its own"]),
        ):
            with self.subTest(change=change):
                self.refused(["run", self.write(changed(vision, **change), "spoilt.json"), "--backend", "cpu"], *words)
                (self.folder / "spoilt.json").unlink()
        odd = read_json(ROOT / "models/mllm-tiny.json")
        odd["vision_config"] |= {"embed_dim": 24}
        self.write(odd, "odd.json")
        self.refused(["run", self.write(changed(vision, model="odd.json")), "--backend", "cpu"], "heads of 3 elements in its vision encoder", "use an even")

    def test_training_goes_on_from_a_checkpoint(self):
        scenario = self.write(changed(RUN, run={"type": "float64", "steps": 3, "parity": True}, schedules=["stp"], microbatches=4))
        run = lambda *arguments: self.succeed("run", scenario, "--backend", "cpu", *arguments)
        run("--save", "whole", "--every", 2)
        self.assertEqual(sorted(path.name for path in (self.folder / "whole").iterdir()), ["step-2", "step-3"])
        said = run("--save", "rest", "--resume", "whole/step-2", "--set", "run.steps=1").stdout
        self.assertIn("parity: 1 of 1 cases equal one rank", said)
        for name in ("model", "optimizer"):
            files = [(self.folder / folder / "step-3" / f"{name}.safetensors").read_bytes() for folder in ("whole", "rest")]
            self.assertEqual(files[0], files[1])
        again = ["run", scenario, "--backend", "cpu", "--save", "rest"]
        self.refused(again, "rest/step-3", "exists")
        tied = json.loads((ROOT / "models/tiny.json").read_text()) | {"tied": True}
        shared = self.write(changed(RUN, model=str(self.write(tied, "tied.json")), post_validation=True, parallel={"pp": 2}), "late.json")
        self.refused(["run", shared, "--backend", "cpu"], f"{shared}: post_validation: delays", "tied")
        self.refused([*again, "--set", 'schedules=["stp", "zb-v"]'], "--save", "2 rows")
        self.refused(["run", scenario, "--backend", "cpu", "--resume", "rest", "--set", "model=bytes"], "rest/step-3/model.safetensors", "embed_tokens")
        state = self.folder / "rest/step-3/training.json"
        known = read_json(state)
        for changes, *words in (({"samples": 8.5}, "samples", "is not whole"), ({"updates": 2**31 - 1}, "updates", "is out of range")):
            state.write_text(json.dumps(known | changes))
            self.refused(["run", scenario, "--backend", "cpu", "--resume", "rest"], "rest/step-3/training.json", *words)
        state.write_text(json.dumps(known | {"samples": 2**53}))
        run("--resume", "rest", "--set", "run.steps=1")
        (self.folder / "rest/step-3/optimizer.safetensors").write_bytes(files[1][:-1])
        self.refused(["run", scenario, "--backend", "cpu", "--resume", "rest"], "rest/step-3/optimizer.safetensors", "data_offsets")

    def test_a_file_is_a_schedule_too(self):
        made = self.run_stp("schedule", "zb-v", "--pp", "2", "--microbatches", "4", "--format", "json")
        self.write(made.stdout, "order.json")
        self.trained(RUN | {"schedules": [{"file": "order.json"}]}, 1)

    def test_a_text_is_data(self):
        text = self.write("all work and no play makes jack a dull boy. " * 20, "text.txt")
        path = self.write(changed(RUN, model="bytes", schedules=["stp"], layers_per_chunk=[2, 2, 1, 1], parallel={"pp": 2},
                                  run={"steps": 2, "text": str(text)}))
        # Two steps at once, or one after the other from a checkpoint, end with the same model.
        for flags in (["--save", "whole"], ["--set", "run.steps=1", "--save", "half"], ["--set", "run.steps=1", "--resume", "half", "--save", "half"]):
            self.succeed("run", path, "--backend", "cpu", *flags)
        self.assertEqual(*((self.folder / name / "step-2/model.safetensors").read_bytes() for name in ("whole", "half")))

    def test_too_little_memory_ends_with_one_and_names_rank_op_and_microbatch(self):
        done = self.run_cpu(RUN, "--memory-limit", "0.3", "--json", "new.json")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"^stp: .+/s.json: rank \d.*out of memory: \d+ bytes.*; the scenario needs at least 0\.\d+ GB for .* 4 rank\(s\): "
                         "raise --memory-limit, or use a smaller model")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["s.json"])

    def test_the_bytes_that_it_needs_are_those_that_it_holds(self):
        for kind, zero in (("float32", 0), ("float64", 1), ("bfloat16", 1)):
            scenario = changed(RUN, schedules=["1f1b"], microbatches=1, parallel={"pp": 1, "dp": 2}, zero=zero, layers_per_chunk="even",
                               run={"type": kind})
            [row] = self.json_of("run", self.write(scenario), "--backend", "cpu")["results"]
            [rank] = row["ranks"]
            done = self.run_cpu(scenario, "--memory-limit", "0.05")
            said = float(re.search(r"the scenario needs at least ([\d.]+) GB for the tensors of its 2 rank", done.stderr).group(1))
            held = 2 * sum(rank["memory_bytes"].values()) / 1e9
            self.assertLessEqual(said, held + 5e-5)  # rounded
            self.assertGreater(said, 0.9 * held)

    def test_a_run_beyond_the_machine_s_memory_is_refused(self):
        path = self.write(changed(RUN, model="llm-12.1b"))
        self.refused(["run", path, "--backend", "cpu", "--set", "model.intermediate_size=4194304"], f"{path}: model: needs at least 619",
                     " GB for the tensors of its 4 rank(s) with stp, and there are ", "; use a smaller model")

    def test_refusals(self):
        path = self.write(RUN)
        self.refused(["run", path, "--backend", "tpu"], "--backend", "tpu", "use cpu")
        self.refused(["run", path], "--backend")
        fused = self.write(changed(RUN, sequence_parallel=True, tp_overlap="flux"), "fused.json")
        self.refused(["run", fused, "--backend", "cpu"], "tp_overlap", "nothing runs", "simulate it")
        self.refused(["run", "timelines", "--backend", "cpu"], "run: is missing", "stp simulate")
        self.refused(["simulate", path], "run", "use stp run")
        for arguments, *words in (
            (["--json", path], "exists"),
            (["--deadline", "0"], "--deadline"), (["--deadline", "nan"], "--deadline"),
            (["--graphs"], "--graphs", "cpu has none"),
            (["--nccl", "p2p:max_ctas=2"], "--nccl", "no launcher"),
            (["--time-kernels"], "--time-kernels", "cpu does not"),
            (["--set", "model.dropout=0.1"], "model: tiny has a dropout", "simulate"),
            (["--set", "model.partial_rotary_factor=0.3"], "model: tiny has heads with 1 elements", "use another head_dim"),
        ):
            self.refused(["run", path, "--backend", "cpu", *arguments], *words)
        for change, words in (
            ({"run": {"type": "float16"}}, ["run.type", "float32, float64, bfloat16"]),
            ({"run": {"steps": 0}}, ["run.steps"]),
            ({"run": {"stepz": 1}}, ["run.stepz", 'did you mean "steps"?']),
            ({"run": {"text": "nowhere"}}, ["run.text", "tiny", "256"]),
            ({"run": {"text": "nowhere"}, "model": "bytes", "layers_per_chunk": [2, 2, 1, 1]}, ["run.text", "nowhere: cannot be read"]),
            ({"microbatches": 1 << 13, "microbatch_size": 1 << 20}, ["microbatches", "microbatch_size", "limit"]),
            ({"microbatches": 1 << 12, "microbatch_size": 1 << 20, "seq": 1 << 24, "parallel": {"pp": 1, "dp": 256}}, ["microbatches", "limit"]),
            ({"parallel": {"pp": 2, "tp": 3}}, ["parallel.tp", "does not divide"]),
            ({"parallel": {"pp": 8, "tp": 4, "dp": 16}}, ["parallel", "256"]),
            ({"cluster": "a800", "contention": True}, ["contention", "is not a known field"]),
            ({"microbatches": 3}, ["microbatches", "1f1b-i", "use 4"]),
        ):
            self.refused(["run", self.write(RUN | change, "spoilt.json"), "--backend", "cpu", "--json", "new.json"], *words)
            (self.folder / "spoilt.json").unlink()

    def test_without_stp_run_beside_it_stp_says_what_is_missing(self):
        (self.folder / "bin").mkdir()
        self.stp = shutil.copy(self.stp, self.folder / "bin/stp")
        for words in (["run", "parity", "--backend", "cpu"], ["doctor"], ["--version"]):
            self.refused(words, "bin/stp-run: is needed, but is not built; build the target stp_run")

    def test_cuda_says_what_it_lacks(self):
        """A build without it, or a machine whose GPUs, if there are any, are hidden."""
        run = ["run", self.write(RUN), "--backend", "cuda"]
        backends = re.search(r"^backends: (.*)$", self.run_stp("--version").stdout, re.MULTILINE)[1].split(", ")
        if "cuda" not in backends:
            self.refused(run, "--backend: this build has no CUDA backend; build where nvcc is found, or use cpu")
            return
        done = self.run_stp(*run, variables={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^stp: no CUDA device: .+; run with --backend cpu\n$")

    def test_what_a_schedule_refuses_can_be_left_out(self):
        done = self.succeed("run", self.write(RUN | {"microbatches": 3, "run": RUN["run"] | {"skip_refused": True}}), "--backend", "cpu")
        self.assertIn("1 combinations are beyond their schedule's range (stp list schedules)", done.stdout)
        self.assertIn("parity: 1 of 1", done.stdout)
        none = self.write(changed(RUN, microbatches=3, schedules=["1f1b-i"], run={"skip_refused": True}), "none.json")
        self.refused(["run", none, "--backend", "cpu", "--json", "new.json", "--trace", "trace.json"], "none.json: schedules: refuse all configurations; ")
        # A name that no schedule has is no matter of its range.
        misspelled = self.write(changed(RUN, schedules=["1f1b", "1f1c"], run={**RUN["run"], "skip_refused": True}))
        self.refused(["run", misspelled, "--backend", "cpu"], 'schedules[1]: there is no schedule "1f1c"; did you mean 1f1b?')

    def test_a_prediction_changes_no_step(self):
        self.write_profile("cpu.json", shared_processors={"source": "a test's", "rates": [1, 0.9]})
        self.assertIn("processors of a800", self.succeed("simulate", self.write(changed(HARDWARE, cluster="cpu.json"))).stderr)
        path = self.write(changed(RUN, schedules=["1f1b-i"], run={**RUN["run"], "type": "float32", "warmup": 0, "steps": 3}))
        run = ["run", path, "--backend", "cpu"]
        records = [self.json_of(*run), self.json_of(*run, "--predict", "cpu.json")]
        # Other programs take all processors: hardly a step is as fast as it should be, and yet none is repeated.
        with contextlib.ExitStack() as others:
            for _ in range(min(os.cpu_count(), 8)):
                other = others.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                others.callback(other.kill)
            records.append(self.json_of(*run, "--predict", "cpu.json"))
        rows = [record["results"][0] for record in records]
        self.assertIsNone(rows[0]["predicted"])
        self.assertIsNotNone(rows[1]["predicted"])
        self.assertEqual(rows[0]["losses"], rows[1]["losses"])
        self.assertEqual(rows[0]["losses"], rows[2]["losses"])


REPLAY = changed(RUN, run={**RUN["run"], "parity": False})


class Replay(CommandLine):
    """`stp run --replay-rank`: one rank alone, over emulated links."""

    def replay(self, rank, *arguments, scenario=REPLAY, cluster="a800"):
        return self.run_stp("run", self.write(scenario), "--backend", "cpu", "--replay-rank", rank, "--replay-cluster", cluster, *arguments)

    def test_a_record_says_what_ran_and_no_more(self):
        measured = self.json_of("run", self.write(REPLAY), "--backend", "cpu")
        self.assertEqual({row["replayed"] for row in measured["results"]}, {None})
        self.assertEqual({row["ranks_per_device"] for row in measured["results"]}, {None})
        for rank in range(4):  # tp counts first
            done = self.replay(rank, "--json", f"{rank}.json", "--trace", f"{rank}-trace.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"replayed on cpu; rank {rank} alone, over emulated links of ", done.stdout)
            self.assertIn("latest call, ms", done.stdout)
            record = self.read(f"{rank}.json")
            self.assertEqual(record["evidence"], "replayed")
            for row, full in zip(record["results"], measured["results"]):
                self.assertEqual((row["replayed"]["rank"], row["losses"], row["parity"], row["predicted"]), (rank, [], None, None))
                self.assertIsNone(row["throughput_samples_per_s"])
                groups = row["replayed"]["groups"]
                self.assertEqual(set(groups), {"tp", "pp", "model"})  # dp is 1
                for kind, group in groups.items():
                    self.assertGreater(group["calls"], 0, kind)
                    self.assertEqual(group["calls"] % len(row["step_time_repeats_s"]), 0, "of the timed steps alone")
                    self.assertGreaterEqual(group["late_s"], group["latest_s"])
                    self.assertGreaterEqual(group["latest_s"], 0)
                    self.assertGreater(group["link_bytes"], 0)
                self.assertEqual((row["schedule"], len(row["step_time_repeats_s"])), (full["schedule"], 2))
                (only,) = row["ranks"]
                self.assertEqual(only["memory_bytes"], full["ranks"][rank // 2]["memory_bytes"])
                self.assertAlmostEqual(only["compute_s"] + only["pp_bubble_s"] + only["tp_bubble_s"], row["step_time_repeats_s"][-1])
            trace = self.read(f"{rank}-trace.json")["traceEvents"]
            kinds = {(event["pid"], event["cat"]) for event in trace if event["ph"] == "X"}
            own, peer = rank // 2, 1 - rank // 2
            self.assertEqual(kinds, {(own, "compute"), (own, "block"), (own, "tp"), (own, "p2p"), (peer, "p2p")})

    def test_calls_take_the_times_of_the_links(self):
        """Checked exactly, by the error message of calls longer than the deadline."""
        tiny = read_json(ROOT / "models" / "tiny.json")
        tensor = 4 * 64 * tiny["hidden_size"]
        narrow = changed(REPLAY, seq=64, schedules=["1f1b"], run={"type": "float32"})
        slow = {"p2p_within_node_latency_us": 1e6, "p2p_within_node_gb_per_s": tensor / 500e9,
                "p2p_between_nodes_latency_us": 5e5, "p2p_between_nodes_gb_per_s": tensor / 2000e9}
        for rank, grid, values, call, seconds in (
            (2, {"pp": 2, "tp": 2}, {**slow, "gpus_per_node": 4}, "receive", 501),
            (2, {"pp": 2, "tp": 2}, {**slow, "gpus_per_node": 2}, "receive", 2000.5),
            (0, {"pp": 2, "tp": 2}, {**slow, "gpus_per_node": 2}, "(?:send|receive)", 2000.5),
            (0, {"pp": 2, "tp": 1}, {**slow, "gpus_per_node": 2}, "(?:send|receive)", 501),
            # Rings: of all ranks of a node by its bus bandwidth; over N nodes 2 (N − 1) of the steps between them, and 2 (n − 1) / n of the
            # bytes through as many adapters as there are ranks on a node.
            (0, {"pp": 1, "tp": 2}, {"all_reduce_latency_us": 1e6, "all_reduce_hop_latency_us": 0, "all_reduce_bus_gb_per_s": tensor / 3000e9,
                                     "gpus_per_node": 2}, "all-reduce", 3001),
            (0, {"pp": 1, "tp": 2}, {**slow, "gpus_per_node": 1}, "all-reduce", 2001),
            (0, {"pp": 1, "tp": 4}, {**slow, "gpus_per_node": 2}, "all-reduce", 1501),
        ):
            scenario = changed(narrow, parallel=grid)
            if grid["pp"] == 1:
                scenario["layers_per_chunk"] = [tiny["num_hidden_layers"]]
            cluster = self.write_profile("cluster.json", adapters_per_node=None, **values)  # one for each GPU
            done = self.replay(rank, "--deadline", 50, scenario=scenario, cluster=cluster)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            found = re.search(rf"rank {rank}, .*{call}.* takes ([0-9.e+]+) s over its emulated link, more than the run's deadline of 50 s", done.stderr)
            self.assertIsNotNone(found, done.stderr)
            self.assertAlmostEqual(float(found[1]) / seconds, 1, places=4)

    def test_rings_and_offload(self):
        options = {"sequence_parallel": True, "tp_overlap": "megatron", "offload": {"ratio": 1}}
        scenario = changed(REPLAY, seq=16, parallel={"pp": 2, "tp": 2, "cp": 2}, **options)
        row = json.loads(self.replay(3, "--json", "-", scenario=scenario).stdout)["results"][0]
        groups = row["replayed"]["groups"]
        self.assertEqual(set(groups), {"tp", "cp", "dp", "pp", "model"})
        whole = self.json_of("run", self.write(scenario, "whole.json"), "--backend", "cpu")["results"][0]
        moved = {key: value for key, value in row["ranks"][0].items() if key.endswith("_bytes") and key != "memory_bytes"}
        self.assertGreater(len(moved), 0)
        self.assertEqual(moved, {key: whole["ranks"][0][key] for key in moved})

    def test_refusals(self):
        alone = ["--replay-rank", 0, "--replay-cluster", "a800"]
        late = changed(REPLAY, post_validation=True)
        for scenario, arguments, *words in (
            (REPLAY, ["--replay-rank", 4, "--replay-cluster", "a800"], "parallel", "4 ranks, and no rank 4", "--replay-rank 0 to 3"),
            (REPLAY, ["--replay-rank", -1, "--replay-cluster", "a800"], "--replay-rank"),
            (late, alone, "post_validation", "replay", "remove it"),
            (REPLAY, ["--replay-rank", 0], "--replay-cluster"),
            (REPLAY, ["--replay-cluster", "a800"], "--replay-rank"),
            (REPLAY, ["--replay-rank", 0, "--replay-cluster", "a900"], "--replay-cluster", "a900"),
            (REPLAY, [*alone, "--predict", "a800"], "--predict"),
            (RUN, alone, "run.parity", "without --replay-rank"),
        ):
            self.refused(["run", self.write(scenario), "--backend", "cpu", *arguments], *words)
        self.refused(["run", "timelines", "--backend", "cpu", *alone], "run: is missing")


if __name__ == "__main__":
    main(__doc__)
