"""Models from Hugging Face's config.json: what is read, what is ignored, and what is said of it.

    cli_hugging_face.py STP_BINARY [unittest arguments]
"""

import json
import re

from command_line import changed, CommandLine, CONFIG, main, read_json, ROOT


class HuggingFace(CommandLine):
    SCENARIO = {"name": "mine", "schedules": ["stp"], "model": "config.json", "cluster": "h100", "seq": 8192,
                "parallel": {"tp": 8, "pp": 4}, "microbatches": 8}  # fmt: skip

    def test_a_config_is_a_model(self):
        self.write(CONFIG | {"tie_word_embeddings": True}, "config.json")
        self.assertIn("69503033344 parameters", self.succeed("model", "import", "config.json").stderr)
        self.write(CONFIG, "config.json")
        done = self.succeed("simulate", self.write(self.SCENARIO), "--json", "-")
        self.assertEqual(done.stderr, "")
        record = json.loads(done.stdout)
        self.assertEqual(record["results"][0]["layers_per_chunk"], [10] * 8)
        self.assertEqual(record["results"][0]["model"], self.folder.name)
        made = self.succeed("model", "import", "config.json", "--name", "Llama-3-70B", "--out", "ours.json").stdout
        for words in ("num_hidden_layers 80 -> num_hidden_layers", "eos_token_id [128001,128009]: ids of tokens",
                      "biases \"none\"", "70553706496 parameters"):  # fmt: skip
            self.assertIn(words, made)
        named = self.record(changed(self.SCENARIO, model="ours.json"))
        for row in (record["results"][0], named["results"][0]):
            row.pop("model")
        self.assertEqual(named["results"], record["results"])
        printed = self.succeed("model", "import", "config.json", "--name", "Llama-3-70B")
        self.assertEqual((json.loads(printed.stdout), printed.stderr), (self.read("ours.json"), made))
        self.refused(["model", "import", "config.json", "--out", "ours.json"], "ours.json: --out: exists")
        self.refused(["model", "import", "ours.json"], "ours.json: is not Hugging Face's")
        (self.folder / "small").mkdir()
        self.write(CONFIG, "small/config.json")
        self.assertIn("small/config.json: small, a llama, written as model_type qwen2, ", self.succeed("model", "import", "small").stderr)
        self.refused(["simulate", self.write(changed(self.SCENARIO, model="small"))], "; ./small names the folder; ")
        (self.folder / "empty").mkdir()
        self.refused(["tune", "--model", "./empty", "--cluster", "h100", "--gpus", 8, "--global-batch", 8, "--seq", 2048],
                     f"model: there is no file {self.folder}/empty/config.json; ")  # fmt: skip
        # The suite's scenarios divide layers as the paper does.
        self.refused(["simulate", "llm-a800", "--set", "model=./"], "--set layers_per_chunk=even", silent=False)

    def test_the_example_of_the_page_is_of_a_recipe(self):
        page = (ROOT / "docs/scenarios.md").read_text(encoding="utf-8")
        (example,) = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "config.json" in block]
        parallel = example["parallel"]
        self.assertEqual(parallel["tp"] * parallel["pp"] * parallel["dp"], 64)
        for field in ("implementation", "sequence_parallel", "zero", "gradients", "backward", "release"):
            self.assertEqual(example[field], read_json(ROOT / "scenarios/recipes.json")[field])

    def test_what_is_ignored_is_said_once(self):
        yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
        named = CONFIG | {"model_type": "qwen2", "_name_or_path": "org/Model-7B", "rope_scaling": yarn, "use_cache": True, "surprise": 7,
                          "attention_dropout": 0.1, "classifier_dropout": 0.1}  # fmt: skip
        self.write(named, "config.json")
        twice = changed(self.SCENARIO, schedules=["stp", "1f1b"], microbatches=[8, 16])
        done = self.succeed("simulate", self.write(twice), "--json", "-")
        self.assertRegex(done.stderr, r"^stp: .+/config.json: read as a qwen2, without attention_dropout \(runs have no dropout; model\.dropout prices its masks\), "
                         r"rope_scaling \(changes angles, not work\), surprise \(not known to change the work\)\n$")
        self.assertEqual(json.loads(done.stdout)["results"][0]["model"], "Model-7B")
        self.assertIn("rope_scaling {", self.succeed("model", "import", "config.json").stderr)
        for plain in ({"rope_type": "default", "rope_theta": 1e6}, None):
            self.write(named | {"rope_scaling": plain, "surprise": None, "attention_dropout": 0.0}, "config.json")
            self.assertEqual(self.succeed("simulate", self.write(twice), "--json", "-").stderr, "")

    def test_no_sequence_exceeds_a_sliding_window(self):
        self.write(CONFIG | {"model_type": "mistral", "sliding_window": 4096}, "config.json")
        path = self.write(self.SCENARIO)
        self.refused(["simulate", path], "seq: is more than the sliding window of 4096", "stp model import")
        self.assertIn("a window of 4096", self.succeed("simulate", path, "--set", "seq=4096").stderr)
        self.succeed("model", "import", "config.json", "--out", "ours.json")
        said = self.succeed("simulate", path, "--set", "model=ours.json").stderr
        self.assertRegex(said, r"^stp: .*/ours\.json: attends to all 8192 tokens here, not to a window of 4096, which is more work\n$")
        self.assertEqual(self.succeed("simulate", path, "--set", "model=ours.json", "seq=4096").stderr, "")


if __name__ == "__main__":
    main(__doc__)
