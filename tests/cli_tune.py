"""`stp tune`: the best of a search is the best of all, its files hold what its table says, and refusals name a remedy.

    cli_tune.py STP_BINARY [unittest arguments]
"""

import os
import re
import shutil
import signal
import time

import jsonschema
from command_line import CommandLine, CONFIG, Late, main, PROFILES, read_json, ROOT, tried_again

SMALL = ["--model", "llm-12.1b", "--cluster", "a800", "--gpus", "16", "--global-batch", "16", "--seq", "3072",
         "--microbatch-size", "1", "--recompute", "none,full", "--offload", "0", "--band", "1"]  # fmt: skip
# A case's flags replace these.
CASES = [["--schedule", "1f1b,zb-v,stp", "--tp", "2,4,8", "--cp", "1", "--tp-overlap", "none"],
         ["--runs-on", "megatron", "--tp", "4,8", "--cp", "1,2", "--sequence-parallel", "on"],
         ["--schedule", "zb-h1,1f1b-v,dualpipev", "--tp", "4,8", "--cp", "1", "--sequence-parallel", "on"],
         ["--tp", "4", "--cp", "1", "--sequence-parallel", "on", "--tp-overlap", "none"],  # all schedules
         ["--runs-on", "pytorch", "--recompute", "none,selective,full", "--set", "cluster.memory_gb=40"],
         ["--runs-on", "megatron", "--recompute", "none,selective,mlp,full", "--microbatch-size", "1,2", "--gpus", "8"],
         ["--runs-on", "megatron", "--recompute", "none,mlp,full,block-2,block-1", "--microbatch-size", "2", "--tp", "4", "--pp", "4",
          "--set", "cluster.memory_gb=24.8", "--set", "cluster.fixed_memory_gb=0", "--global-batch", "32", "--schedule", "1f1b"],
         ["--runs-on", "pytorch-csv", "--gpus", "8", "--microbatch-size", "1,2", "--layers", "balanced", "--cp", "1"],
         ["--schedule", "1f1b,1f1b-i,hanayo,stp", "--tp-overlap", "none,domino", "--microbatch-size", "2", "--global-batch", "32",
          "--recompute", "none,selective,full", "--set", "cluster.memory_gb=50"],
         ["--schedule", "1f1b,gis,uniform,stp", "--offload", "0,0.5,1", "--tp", "2,4", "--cp", "1", "--set", "cluster.memory_gb=40"],
         ["--model", "llama3-8b", "--cluster", "h100", "--seq", "8192", "--gpus", "8", "--schedule", "1f1b,zb-auto,zb-v,stp-memory,dhelix"],
         ["--model", "llama3-8b", "--cluster", "h20", "--seq", "4096", "--global-batch", "128", "--schedule", "1f1b,gis-h,zb-v,zb-1p,zb-h1,v-half",
          "--recompute", "none", "--tp-overlap", "megatron", "--tp", "2,4,8", "--pp", "2,4", "--cp", "1,2", "--microbatch-size", "1,2,4,8",
          "--layers", "balanced", "--band", "0"]]  # fmt: skip


ONE = ["--schedule", "1f1b", "--tp", "8", "--cp", "1", "--recompute", "none"]


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def with_flags(words, more):
    """The words, with other values of the flags in `more`."""
    flags = dict(zip(more[::2], more[1::2]))
    kept = [word for flag, value in zip(words[::2], words[1::2]) if flag not in flags for word in (flag, value)]
    return [*kept, *more]


class Tune(CommandLine):
    def tuned(self, *words, python="true"):
        """tune.json, and its folder, without a plot: half of the time would be Python's."""
        folder = self.folder / f"out{len(list(self.folder.iterdir()))}"
        done = self.succeed("tune", *words, "--out", str(folder), variables={"STP_PYTHON": python} if python else {})
        self.assertIn(read_json(folder / "tune.json")["reason"], done.stdout)
        return read_json(folder / "tune.json"), folder

    def test_pruning_loses_nothing(self):
        whole = 0  # cases of which all names are compared
        for case in CASES:
            pruned, folder = self.tuned(*with_flags(SMALL, case))
            every, _ = self.tuned(*with_flags(SMALL, case), "--exhaustive")
            names = [[one["name"] for one in record["best"]] for record in (pruned, every)]
            same = len(names[0]) if not pruned["counts"]["needless"] + pruned["counts"]["same"] else 1
            whole += same > 1
            self.assertEqual(names[0][:same], names[1][:same])
            self.assertEqual(pruned["counts"]["equal"], every["counts"]["equal"])
            self.assertEqual(min(one["step_time_s"] for one in pruned["points"]), min(one["step_time_s"] for one in every["points"]))
            self.assertLess(pruned["counts"]["simulated"], every["counts"]["simulated"])
            for record in (pruned, every):
                counts = record["counts"]
                parts = (counts[key] for key in ("simulated", "unfit", "bounded", "needless", "same"))
                self.assertEqual(counts["configurations"], sum(parts) + sum(counts["refused"].values()))
        self.assertGreater(whole, 0)

    def test_the_fastest_that_surely_fits_is_kept(self):
        words = ["--model", "llama3-8b", "--cluster", "h100", "--gpus", "8", "--global-batch", "32", "--seq", "8192", "--microbatch-size", "1,2",
                 "--schedule", "1f1b,1f1b-i,zb-v,stp,interlaced,gis-h", "--tp", "2,4", "--pp", "2,4", "--cp", "1", "--sequence-parallel", "on",
                 "--offload", "0", "--tp-overlap", "none,domino,megatron", "--band", "0"]  # fmt: skip
        for memory in (31, 27):  # at 31 GB its bound is above that of the tenth best
            records = [self.tuned(*words, "--set", f"cluster.memory_gb={memory}", *more)[0] for more in ([], ["--exhaustive"])]
            for record in records:
                first, sure = record["best"][0], [one for one in record["best"] if one["fits"] == "yes"]
                self.assertEqual((first["fits"], len(sure)), ("maybe", memory == 31))
                said = " None surely fits."
                for one in sure:
                    slower = 100 * (one["step_time_s"] / first["step_time_s"] - 1)
                    said = f" The fastest that surely fits: {one['name']}, {slower:.1f} % slower, with {one['memory_margin_gb']:.0f} GB free."
                self.assertTrue(record["reason"].endswith(said), record["reason"])
            self.assertEqual(*(record["reason"].rpartition("GB is within")[2] for record in records))

    def test_words_of_the_table_and_of_what_was_left_out(self):
        words = [*SMALL[6:8], *SMALL[14:16], "--model", "llama3-8b", "--cluster", "h100", "--gpus", "8", "--seq", "8192", "--tp", "8", "--schedule", "dhelix",
                 "--sequence-parallel", "on", "--recompute", "none", "--layers", "even", "--microbatch-size", "1"]  # fmt: skip
        for overlap, left_out in (("none,megatron", "2 configurations: 2 simulated."), ("none", "1 configuration: 1 simulated.")):
            done = self.succeed("tune", *words, "--tp-overlap", overlap, "--out", str(self.folder / overlap), variables={"STP_PYTHON": "true"})
            title, _, row = done.stdout.splitlines()[:3]
            if "," in overlap:
                self.assertRegex(row[title.index("beside the first") - 2 :], "^  [0-9.]+ % slower")
            self.assertIn(f"\n{left_out}\n", done.stdout)
            self.assertNotIn("-0.0", done.stdout)

    def test_what_runs_the_first_choice_is_said(self):
        all_three, none = "megatron, pytorch, pytorch-csv", "No framework of --runs-on runs the first choice"
        for overlap, runs, said in (("none", "", f"Frameworks that run the first choice: {all_three}."), ("none", "pytorch-csv", None),
                                    ("domino", "", f"{none}, nor another of the table."),
                                    ("none,domino", "", f"{none}; the fastest of the table that one runs is 1f1b tp8 pp2 dp1 mb2 ({all_three}).")):  # fmt: skip
            words = [*ONE, "--pp", "2", "--sequence-parallel", "off", "--tp-overlap", overlap, "--microbatch-size", "2", "--layers", "even"]
            record, _ = self.tuned(*with_flags(SMALL, words), *(["--runs-on", runs] if runs else []))
            self.assertEqual([note for note in record["notes"] if "the first choice" in note], [said] if said else [])

    def test_a_step_does_not_depend_on_what_else_is_searched(self):
        words = ["--model", "llama3-8b", "--cluster", "a800-pcie", "--gpus", "8", "--global-batch", "32", "--seq", "4096", "--pp", "4", "--tp", "1",
                 "--cp", "2", "--schedule", "zb-v", "--microbatch-size", "2", "--recompute", "block-1", "--offload", "0", "--band", "0"]  # fmt: skip
        steps = [{one["name"]: one["step_time_s"] for one in self.tuned(*words, "--layers", layers)[0]["best"]}
                 for layers in ("even,balanced", "even", "balanced")]  # fmt: skip
        self.assertEqual(steps[0], steps[1] | steps[2])

    def test_a_profile_without_the_power_limit_is_said(self):
        notes = [self.tuned(*with_flags(SMALL, [*ONE, "--cluster", cluster]))[0]["notes"] for cluster in ("a100", "a800")]
        said = "GEMMs are at their best rate, not at what a power limit leaves in trainings, as the profile a100 has no gemm_sustained."
        self.assertEqual([said in some for some in notes], [True, False])

    def test_the_reason_has_the_profile_s_name(self):
        record, _ = self.tuned(*with_flags(SMALL[:-2], [*ONE, "--cluster", str(PROFILES / "a100.json")]))  # without --band
        self.assertIn("a100", record["reason"])
        self.assertNotIn(".json", record["reason"])

    def test_of_equal_orders_on_one_pipeline_rank_one_is_tried(self):
        case = ["--schedule", "stp,stp-memory", "--tp", "8", "--cp", "1", "--pp", "1,2", "--recompute", "none", "--layers", "even"]
        record, _ = self.tuned(*with_flags(SMALL, case), "--set", "cluster.memory_gb=400", "--exhaustive")
        tried = {" ".join(one["name"].split()[:3]) for one in record["points"]}
        self.assertEqual(tried, {"stp tp8 pp1", "stp tp8 pp2", "stp-memory tp8 pp2"})
        self.assertGreater(record["counts"]["same"], 0)

    def test_files_of_the_choice(self):
        record, folder = self.tuned(*SMALL, *CASES[1], python=None)
        if os.environ.get("STP_PYTHON"):
            self.assertTrue((folder / "tune.png").stat().st_size)
        jsonschema.validate(record, read_json(ROOT / "results/schema/tune.schema.json"))
        best = record["best"][0]
        (row,) = self.results(read_json(folder / "choice.json"))
        for key in ("step_time_s", "memory_margin_gb", "lower_bound_s"):
            self.assertEqual(row[key], best[key])
        for one in record["best"]:
            self.assertLessEqual(one["lower_bound_s"], one["step_time_s"])
            self.assertNotEqual(one["fits"], "no")
        self.assertIn(f"--tensor-model-parallel-size {row['tp']}\n", (folder / "choice-megatron.txt").read_text())
        self.succeed("validate", str(folder / "choice.csv"))
        self.assertTrue(read_json(folder / "choice-trace.json")["traceEvents"])

    def test_flags_and_comments_say_what_was_simulated(self):
        small = [*SMALL[:-6], *SMALL[-4:]]  # without --recompute
        fixed = with_flags(small, ["--runs-on", "megatron", "--schedule", "1f1b-i", "--chunks", "2", "--tp", "2", "--cp", "2", "--pp", "2", "--layers", "even"])
        llm = read_json(ROOT / "models/llm-12.1b.json")
        model = ["--swiglu", "--disable-bias-linear", "--add-qkv-bias", "--untie-embeddings-and-output-weights", "--normalization RMSNorm",
                 *(f"--{flag} {llm[field]}" for flag, field in (("num-layers", "num_hidden_layers"), ("hidden-size", "hidden_size"),
                   ("ffn-hidden-size", "intermediate_size"), ("num-attention-heads", "num_attention_heads"), ("vocab-size", "vocab_size"),
                   ("num-query-groups", "num_key_value_heads"))), "--make-vocab-size-divisible-by 128"]  # fmt: skip
        fields = ["recipe.bucket_parameters=134217728", "gradients=model", "parallel.cp_method=all-to-all"]
        for more, flags, comments in (
            (["recipe.gathers_in_step=true", "recipe.state_bytes=6"], ["--use-precision-aware-optimizer", "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16",
             "--main-grads-dtype bf16", "--ddp-bucket-size 134217728", "--overlap-param-gather-with-optimizer-step", "--cp-comm-type a2a",
             "--cross-entropy-fusion-impl te"], []),
            (["zero=0", "post_validation=true", "release=chain", "recipe.overlap_sms.proj_forward=24", "cluster.memory_gb=400"],
             ["--grad-reduce-in-bf16", "--overlap-grad-reduce"], ["post_validation true", 'release "chain"', "recipe "]),
            (["recompute=block-3"], ["--recompute-granularity full --recompute-method block --recompute-num-layers 3"], []),
        ):  # fmt: skip
            _, folder = self.tuned(*fixed, "--set", *fields, *more)
            lines = (folder / "choice-megatron.txt").read_text().splitlines()
            self.assertLessEqual({"--bf16", *flags, *model}, set(lines))
            said = [line for line in lines if line.startswith("# simulated, but said by no argument: ")]
            self.assertEqual(len(said), len(comments), said)
            self.assertTrue(all(any(comment in line for line in said) for comment in comments), said)

        # One chunk of several ranks is plain 1F1B there, with another warm-up.
        one = with_flags(small, ["--schedule", "1f1b-i", "--chunks", "1", "--tp", "4", "--cp", "1", "--pp", "4", "--tp-overlap", "none"])
        self.assertFalse((self.tuned(*one)[1] / "choice-megatron.txt").exists())
        for chunks in ([], ["--chunks", "2"]):  # which Megatron-LM has from two pipeline ranks on
            one = with_flags(small, ["--runs-on", "megatron", "--schedule", "1f1b-i", "--tp", "4", "--cp", "1", "--pp", "1", *chunks])
            text = (self.tuned(*one, "--set", "cluster.memory_gb=400")[1] / "choice-megatron.txt").read_text()
            self.assertNotIn("virtual", text)
            self.assertEqual("said by no argument: chunks 2" in text, bool(chunks))

    def test_it_surely_fits_if_it_does_with_any_fixed_memory_known(self):
        known = [profile["fixed_memory_gb"] for profile in map(read_json, PROFILES.glob("*.json")) if "fixed_memory_gb" in profile]
        most = max(fixed["range"]["to"] for fixed in known)
        errors = sorted(one["memory_error_mean"] for one in read_json(ROOT / "results/reference/simulated/summary.json")["experiments"]
                        if one["memory_error_mean"] is not None and one["verdict"] != "not testable here")  # fmt: skip
        of_peak, words = errors[len(errors) // 2], with_flags(SMALL, ["--cluster", "h20", "--schedule", "1f1b", "--cp", "1", "--recompute", "none", "--band", "100"])  # fixed memory unknown
        whole, none = ["parallel.tp=1", "parallel.pp=16"], "cluster.fixed_memory_gb=0"
        for more, memory, of_fixed, kinds, open_of in (([], 60, most, {"yes", "maybe"}, None), (whole, 46, most, {"maybe"}, "fixed memory and of peaks of memory, "),
                                                       ([*whole, none], 46, 0, {"maybe"}, "peaks of memory, ")):  # fmt: skip
            record, _ = self.tuned(*words, "--set", f"cluster.memory_gb={memory}", *more)
            for one in record["best"]:
                self.assertEqual(one["fits"], "yes" if one["memory_margin_gb"] >= max(of_fixed, of_peak * one["peak_total_gb"]) else "maybe")
            self.assertEqual({one["fits"] for one in record["best"]}, kinds)
            self.assertIn(f"0.0 GB (0.0 to {of_fixed:.1f}) of context", record["memory"])
            self.assertEqual(f" GB is within what is uncertain of {open_of}" in record["reason"], bool(open_of), record["reason"])

    def test_a_method_of_context_parallelism_is_for_what_has_it(self):
        words = with_flags(SMALL, ["--schedule", "1f1b", "--tp", "2", "--pp", "2", "--recompute", "none"])
        for fields in ([], ["parallel.cp=2"]):
            record, _ = self.tuned(*words, "--set", *fields, "parallel.cp_method=all-to-all")
            parallel = [one["configuration"]["parallel"] for one in record["best"]]
            self.assertEqual({one["cp"] for one in parallel} == {2}, bool(fields))
            for one in parallel:
                self.assertEqual(one.get("cp_method"), "all-to-all" if one["cp"] > 1 else None)

    def test_megatron_pads_a_vocabulary(self):
        words = with_flags(SMALL, ["--tp", "4", "--pp", "4", "--cp", "1", "--schedule", "1f1b", "--recompute", "none"])
        odd, even = (self.tuned(*words, "--runs-on", "megatron", "--set", f"model.vocab_size={size}") for size in (100277, 100352))
        self.assertEqual(odd[0]["best"][0]["step_time_s"], even[0]["best"][0]["step_time_s"])
        self.assertEqual(self.results(read_json(odd[1] / "choice.json"))[0]["step_time_s"], odd[0]["best"][0]["step_time_s"])
        self.assertIn("vocabulary of 100352", (odd[1] / "choice-megatron.txt").read_text())
        self.assertEqual(["100277 to 100352" in " ".join(record["notes"]) for record, _ in (odd, even)], [True, False])
        self.refused(["tune", *words, "--runs-on", "pytorch", "--set", "model.vocab_size=100277"], "vocabulary entries", "--set model.vocab_size=N")

    def test_an_axis_that_ends_at_the_best_is_said(self):
        words = [*SMALL[:8], "--seq", "1024", "--runs-on", "megatron", "--tp", "4", "--pp", "1", "--dp", "4", "--set", "cluster.memory_gb=400"]
        for batch, more, ends in (("256", [], True), ("32", [], False), ("256", ["--microbatch-size", "1,2,4,8"], False)):
            record, _ = self.tuned(*with_flags(words, ["--global-batch", batch]), *more)
            self.assertEqual(" mb8 " in record["best"][0]["name"] + " ", True)
            self.assertEqual("(8): try --microbatch-size 16,32" in " ".join(record["notes"]), ends)
            self.assertEqual(len(set(record["notes"])), len(record["notes"]))

    def test_a_batch_may_have_more_samples_than_a_replica_microbatches(self):
        words = with_flags(SMALL, ["--global-batch", str(1 << 21), "--gpus", "4096", "--dp", "4096", "--recompute", "full", "--schedule", "1f1b"])
        self.assertEqual(self.tuned(*words, "--set", "cluster.memory_gb=400")[0]["best"][0]["configuration"]["microbatches"], 1 << 9)

    def test_contradictions_are_said(self):
        words = with_flags(SMALL, ["--schedule", "1f1b", "--cp", "1", "--tp-overlap", "megatron", "--sequence-parallel", "off"])
        record, _ = self.tuned(*words)
        self.assertIn("tp_overlap: overlaps the collectives of sequence parallelism, which is off; set ", " ".join(record["counts"]["refused"]))
        for words in (["--schedule", "1f1b-i,hanayo", "--pp", "1"], ["--layers", "balanced", "--pp", "1", "--schedule", "1f1b"]):
            self.assertTrue(self.tuned(*with_flags(SMALL, [*words, "--tp", "4", "--cp", "1", "--recompute", "full"]))[0]["best"])

    def test_nothing_is_listed_twice(self):
        mllm = ["--model", "mllm-14.9b", "--seq", "5120", "--set", "vision_tokens=3136", "--schedule", "1f1b,stp", "--tp", "4", "--cp", "1", "--sequence-parallel", "off",
                "--recompute", "none"]  # fmt: skip
        copies = ["--schedule", "1f1b", "--tp", "4", "--pp", "1", "--offload", "0,0.5,1", "--set", "cluster.memory_gb=50"]
        for words, more in ((mllm, " balanced"), (copies, r" offload-[0-9.]+")):
            points = {one["name"]: (one["step_time_s"], one["peak_total_gb"]) for one in self.tuned(*with_flags(SMALL, words))[0]["points"]}
            alike = [name for name, point in points.items() if re.search(more, name) and points.get(re.sub(more, "", name)) == point]
            self.assertEqual(alike, [])

    def test_what_a_config_json_had_besides_is_said(self):
        config = self.write(CONFIG | {"num_hidden_layers": 4, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "config.json")
        out = self.folder / "out"
        done = self.succeed("tune", "--runs-on", "megatron", *with_flags(SMALL, ["--model", str(config), "--tp", "4", "--pp", "1"]), "--out", out,
                            variables={"STP_PYTHON": "true"})  # fmt: skip
        for text in (done.stderr, (out / "choice-megatron.txt").read_text()):
            self.assertIn("config.json: read as a qwen2, without rope_scaling (changes angles, not work)\n", text)

    def test_a_step_that_is_as_fast_is_not_called_slower(self):
        small = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000}
        record, _ = self.tuned("--model", str(self.write(CONFIG | small | {"num_hidden_layers": 8})), "--cluster", "h100", "--gpus", "1",
                               "--global-batch", "16", "--seq", "2048", "--schedule", "1f1b,dhelix,stp", "--microbatch-size", "2",
                               "--recompute", "none", "--offload", "0")  # fmt: skip
        self.assertNotIn(" 0.0 % slower", record["reason"])

    def test_tunes_of_one_second_get_folders_of_their_own(self):
        data = self.folder / "data"
        data.mkdir()
        for name in ("models", "profiles"):
            (data / name).symlink_to(ROOT / name)
        words = with_flags(SMALL, ["--schedule", "1f1b", "--tp", "4", "--pp", "4", "--cp", "1"])
        tunes = [self.started("tune", *words, variables={"STP_DATA_DIR": str(data), "STP_PYTHON": "true"}) for _ in range(4)]
        said = [tune.communicate(timeout=60)[1] for tune in tunes]
        self.assertEqual([tune.returncode for tune in tunes], [0] * 4, said)
        self.assertEqual(len(list((self.folder / "results/runs").iterdir())), 4)

    def test_a_choice_that_no_csv_file_can_hold(self):
        fixed = ["--tp", "4", "--pp", "4", "--cp", "1", "--layers", "even"]
        for words in (["--schedule", "dualpipe"], ["--schedule", "vocab-1", "--set", "zero=0"]):
            record, folder = self.tuned(*with_flags(SMALL, [*fixed, *words]))
            self.assertIn(" is the fastest. None else is within 1.0 % of the fastest. The band", record["reason"])
            (row,) = self.results(read_json(folder / "choice.json"))
            self.assertEqual((row["schedule"], row["step_time_s"]), (words[1], record["best"][0]["step_time_s"]))
            self.assertGreater(row["lower_bound_s"], 0)
            self.assertFalse((folder / "choice.csv").exists())

    def test_what_a_long_schedule_repeats_may_be_left_out(self):
        for words in (["--schedule", "1f1b-i", "--offload", "1"], ["--schedule", "stp"], ["--schedule", "zb-v", "--recompute", "full"]):
            record, folder = self.tuned(*with_flags(SMALL, ["--tp", "4", "--pp", "4", "--cp", "1", "--global-batch", "256", *words]))
            (row,) = self.results(read_json(folder / "choice.json"))
            for key, value in record["best"][0].items():
                if key in row and isinstance(value, float):
                    self.assertAlmostEqual(row[key] / value, 1, delta=1e-9, msg=key)

    def test_the_fastest_is_in_the_table(self):
        record, _ = self.tuned(*with_flags(SMALL, [*CASES[1], "--band", "100"]))
        fastest = min(record["points"], key=lambda one: one["step_time_s"])
        self.assertEqual([one["step_time_s"] for one in record["best"][10:]], [fastest["step_time_s"]])
        first = record["best"][0]
        simpler = len(first["options"]) < len(record["best"][10]["options"])
        self.assertIn(f"the fastest, {record['best'][10]['name']}, and {'simpler' if simpler else 'smaller'}, with", record["reason"])
        better = sum(one["step_time_s"] < first["step_time_s"] and one["peak_total_gb"] < first["peak_total_gb"] for one in record["points"])
        said = re.search(r"(\d+) others? (?:is|are) faster and smaller, but uses? more options\.", record["reason"])
        self.assertEqual(int(said[1]) if said else 0, better)

    def test_reasons_that_differ_in_numbers_alone_are_one(self):
        record, _ = self.tuned(*with_flags(SMALL, ["--schedule", "dualpipev,1f1b-i,stp", "--tp", "2,4,8", "--global-batch", "8"]))
        reasons = [re.sub(r"\b[0-9]+\b", "N", reason) for reason in record["counts"]["refused"]]
        self.assertIn("dualpipev", " ".join(reasons))
        self.assertEqual(len(reasons), len(set(reasons)), reasons)

    @tried_again
    def test_an_interrupted_search_goes_on(self):
        words = with_flags(SMALL, [*CASES[3], "--exhaustive"])
        whole, _ = self.tuned(*words)
        out, rows, finished = self.folder / "again", self.folder / "again.rows", 0
        for ended_by, status in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):  # the second goes on after the first
            with self.started("tune", *words, "--out", str(out)) as search:
                while search.poll() is None and size_of(rows) == finished:
                    time.sleep(0.001)
                search.send_signal(ended_by)
                said = search.communicate(timeout=60)[1]
            if search.returncode != status:
                raise Late
            self.assertIn(rows.name if ended_by == signal.SIGINT else "", said)
            finished = rows.stat().st_size
        shutil.copy(self.stp, self.folder / "rebuilt")
        shutil.copy(rows, self.folder / "other.rows")
        for program, name, reused in ((self.stp, "again", True), (str(self.folder / "rebuilt"), "other", False)):
            self.stp = program
            done = self.succeed("tune", *words, "--out", str(self.folder / name), variables={"STP_PYTHON": "true"})
            self.assertEqual(" of them earlier" in done.stdout, reused)
            again = read_json(self.folder / name / "tune.json")
            self.assertEqual((again["best"], again["counts"], again["points"]), (whole["best"], whole["counts"], whole["points"]))
        self.assertFalse(rows.exists())

    def test_refusals(self):
        config = self.write(CONFIG)
        for words, said in (
            (["--gpus", "12", "--tp", "4", "--pp", "2,6"], ["--gpus", "12 cannot be divided", "pp 2, 6", "leave an axis free"]),
            (["--gpus", "7", "--pp", "2,3"], ["--pp", "2, 3 does not divide the 7 of --gpus"]),
            (["--global-batch", "7", "--dp", "2"], ["--global-batch", "7 samples", "a multiple of 2,"]),
            (["--microbatch-size", "3"], ["--global-batch", "a multiple of 3,"]),
            (["--tp", "16"], ["all configurations are refused", "parallel.tp: 16 does not divide", "use a divisor"]),
            (["--band", "-1"], ["--band", "0 to 100"]),
            (["--band", "nan"], ["--band", "0 to 100"]),
            (["--schedule", "1f1b-i", "--chunks", "4", "--layers", "balanced"], ["--layers", "2 chunks"]),
            (["--schedule", "1f1b", "--set", "chunks=2"], ["--chunks", "2 with 1f1b"]),
            (["--runs-on", "megatron", "--schedule", "1f1b-i", "--chunks", "1", "--pp", "4"], ["--chunks", "1 with 1f1b-i"]),
            (["--tp", "8", "--tp-overlap", "megatron", "--sequence-parallel", "off"], ["all configurations", "tp_overlap", "which is off"]),
            (["--set", "parallel.cp_method=rung"], ["parallel.cp_method", "ring"]),
            (["--cp", "1", "--set", "parallel.cp_method=ring"], ["parallel.cp_method", "parallel.cp is 1"]),
            (["--schedule", "zbv"], ["--schedule", "zbv", "zb-v"]),
            (["--runs-on", "megatron", "--schedule", "stp"], ["--schedule", "what megatron runs"]),
            (["--runs-on", "jax"], ["--runs-on", "jax", "megatron"]),
            (["--runs-on", "megatron", "--model", "mllm-14.9b", "--set", "vision_tokens=3136"], ["--runs-on", "vision encoder"]),
            (["--recompute", "block-99", "--schedule", "1f1b"], ["all configurations are refused", "recompute: is block-99, and no chunk has more than"]),
            (["--recompute", "block-0"], ["--recompute", "block-0"]),
            (["--recompute", "block-3", "--runs-on", "pytorch"], ["--recompute", "block-3", "what pytorch runs"]),
            (["--recompute", "some"], ["--recompute", "some"]),
            (["--offload", "2"], ["--offload", "2"]),
            (["--tp", "0"], ["--tp", "0"]),
            *[(["--pp", value], [f"--pp: {value} has an empty entry; "]) for value in ("1,,2", ",2", "1,")],
            (["--chunks=1,,2"], ["--chunks: 1,,2 has an empty entry; "]),
            (["--model", str(config), "--gpus", "2", "--recompute", "none", "--offload", "0"], ["fits in none", "lacks", "GB", "more GPUs"]),
            (["--schedule", "1f1b", "--tp", "8", "--set", "cluster.memory_gb=6", "--exhaustive"], ["fits in none", "the nearest", "lacks"]),
            (["--set", "releases=chain"], ["--set: releases: ", "cluster.releases"]),
            (["--set", "layer_costs=[1]"], ["--set: layer_costs: is not for stp tune"]),
            (["--set", "run={}"], ["--set: run: is not for stp tune"]),
            (["--set", "layers_per_chunk=[40]"], ["--set: layers_per_chunk: [40] is no word", "--layers"]),
            (["--set", "parallel.tp=4294967300"], ["--set: parallel.tp: 4294967300 is no whole number"]),
            *[(["--set", f"{field}=1"], [f"--set: {field}: is given, and so is {flag};"]) for field, flag in (
                ("model", "--model"), ("cluster", "--cluster"), ("seq", "--seq"), ("global_batch", "--global-batch"), ("recompute", "--recompute"),
                ("microbatch_size", "--microbatch-size"))],
            *[([flag, value, "--set", f"{field}={value}"], [f"--set: {field}: is given, and so is {flag};"]) for field, flag, value in (
                ("parallel.tp", "--tp", "4"), ("parallel.dp", "--dp", "4"), ("chunks", "--chunks", "2"), ("schedules", "--schedule", "stp"),
                ("sequence_parallel", "--sequence-parallel", "on"), ("tp_overlap", "--tp-overlap", "none"), ("layers_per_chunk", "--layers", "even"))],
        ):  # fmt: skip
            given = with_flags([*SMALL, "--out", str(self.folder / "refused")], words)
            self.refused(["tune", *given], *said)
        for words, said in (([], "use more GPUs; from the nearest: "), (["--recompute", "none"], "use more GPUs, or leave more axes free")):
            self.refused(["tune", *SMALL[:4], "--gpus", "1", *SMALL[6:10], *words, "--set", "cluster.memory_gb=40", "--out", str(self.folder / "refused")], said)
        for content, *said in (([1], "is no object"), ({"parallel": 5}, "parallel: is no object"), ({"parallel": {"tp": 8.9}}, "parallel.tp: 8.9 is no whole"),
                               ({"chunks": [1, True]}, "chunks: [1,true] is no whole"), ({"offload": 3}, "offload: is no object"),
                               ({"offload": {"chunks": 1}}, "offload.chunks: is not searched"), ({"seq": 3072}, "s.json: seq: is given, and so is --seq;"),
                               ({"offload": {"ratio": 0}}, "offload.ratio: is given, and so is --offload;")):  # fmt: skip
            self.refused(["tune", self.write(content), *SMALL, "--out", str(self.folder / "refused")], *said)
        self.refused(["tune", *SMALL, "--set", "parallel=5", "--out", str(self.folder / "refused")], "parallel: is no object")
        self.assertIn("none, selective, full, block-1, norm+activation, mlp, attn+mlp", " ".join(self.succeed("help", "tune").stdout.split()))
        named = self.tuned(*with_flags(SMALL, ["--recompute", "layernorm", "--schedule", "1f1b", "--tp", "4", "--pp", "1"]))[0]["best"]
        self.assertIn("recompute-layernorm", named[0]["name"])


if __name__ == "__main__":
    main(__doc__)
