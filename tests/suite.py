"""What `stp reproduce` writes of the whole suite: figures as in results/reference/simulated, without the paper's the same, and
every kind of record in its schema.

    suite.py STP_BINARY [unittest arguments]
"""

import functools
import json
import math
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import jsonschema

from command_line import benchmarks, changed, CommandLine, HARDWARE, main, PAIRS, read_json, ROOT, RUN, UNIT

SUITE_TIMEOUT = 300  # seconds, on a machine that does other work, too
KEPT = ROOT / "results/reference/simulated"
# For rows; pairs are compared in every number.
FIGURES = ("step_time_s", "throughput_samples_per_s", "mfu", "mfu_paper", "peak_memory_gb", "idle_s", "peak_activation_chunks")
TOLERANCE = 1e-9  # relative: another compiler may round otherwise
SHOWN = 10
FEW = 40  # rows: what is simulated again in little time


def numbers(value, path=""):
    """Every number in an entry, by where it stands."""
    if isinstance(value, dict):
        return {name: number for key, part in value.items() for name, number in numbers(part, f"{path} {key}".strip()).items()}
    return {path: value} if isinstance(value, (int, float)) else {}


def rows_of(folder):
    """The figures of every row of every record, by experiment and place."""
    rows = {}
    for path in sorted(folder.glob("*.json")):
        record = read_json(path)
        for place, row in enumerate(record.get("rows", [])):
            words = [path.stem, str(place), row["schedule"], f"pp {row['pp']}", f"m {row['microbatches']}"]
            rows[", ".join(words)] = {figure: row[figure] for figure in FIGURES} | numbers(
                {name: row[name] for name in ("published", "calibration")})
        for pair in record.get("pairs", []):
            rows[f"{path.stem}, {pair['name']}"] = numbers(pair)
    return rows


def same(a, b):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


@functools.cache
def reproduced(stp):
    """By name, the files that `stp reproduce` writes of the whole suite, which runs once for all tests."""
    holder = tempfile.TemporaryDirectory(prefix="stp-suite-")
    unittest.addModuleCleanup(holder.cleanup)
    out = Path(holder.name) / "new"
    subprocess.run([stp, "reproduce", "--no-plots", "--out", str(out)], check=True, capture_output=True, timeout=SUITE_TIMEOUT)
    return {path.name: path for path in out.iterdir()}


class Reference(CommandLine):
    """A change that moves a figure, or what it is compared with, must say so: run `scripts/update_reference.sh` and commit what
    it writes with the reason."""

    def test_every_figure_is_as_kept(self):
        kept, fresh = rows_of(KEPT), rows_of(next(iter(reproduced(self.stp).values())).parent)
        self.assertGreater(len(kept), 0)
        self.assertEqual(kept.keys(), fresh.keys())
        moved = [f"{name}: {figure} was {kept[name].get(figure)}, is {fresh[name].get(figure)}"
                 for name in sorted(kept) for figure in kept[name] | fresh[name]
                 if not same(kept[name].get(figure), fresh[name].get(figure))]
        self.assertEqual(moved[:SHOWN], [], f"{len(moved)} figures moved")


class LowerBound(CommandLine):
    def test_no_step_of_the_suite_is_below_it(self):
        rows = [row for path in reproduced(self.stp).values() for row in read_json(path).get("rows", [])]
        self.assertGreater(len(rows), 1000)
        for row in rows:
            bound = row.get("lower_bound_s", 0)  # none with a shared vocabulary or two pipelines
            self.assertLessEqual(bound, row["step_time_s"] * (1 + TOLERANCE), row["schedule"])


class Published(CommandLine):
    """The paper's figures are compared with ours, but are no input of them."""

    def test_without_them_ours_are_the_same(self):
        def read(path):
            return json.loads(path.read_text(encoding="utf-8"), parse_float=str)  # as text: bit for bit

        with_them = {name: read(path) for name, path in reproduced(self.stp).items() if name != "summary.json" and not name.startswith("timeline-")}
        # Pairs bring their published times with them: one of their predictions is made of these.
        compared = [name for name, record in with_them.items()
                    if len(record.get("rows", [])) <= FEW and (any(row["published"] for row in record.get("rows", [])) or "pairs" in record)]
        self.assertGreater(len(compared), 10)
        data = self.folder / "data"
        for part in ("models", "profiles"):
            shutil.copytree(ROOT / part, data / part)
        (data / "scenarios").mkdir()
        (data / "results/published").mkdir(parents=True)
        for name in compared:
            shutil.copy(ROOT / "scenarios" / name, data / "scenarios")
        self.succeed("reproduce", "--no-plots", "--out", "without", data=data, timeout=SUITE_TIMEOUT)

        for name in compared:
            texts = []
            for record in (with_them[name], read(self.folder / "without" / name)):
                record.pop("provenance")
                for row in record.get("rows", []):
                    row.pop("published")
                    row.pop("difference")
                    row.pop("gain")
                texts.append(json.dumps(record))
            self.assertEqual(*texts, name)
        without = read(self.folder / "without/summary.json")
        self.assertEqual({line["verdict"] for line in without["experiments"] if line["id"] != "table11"}, {"not testable here"})


def closed(schema):
    """The schema with every object closed: readers ignore fields that they do not know, writers may have none."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        result.setdefault("additionalProperties", False)
    return result


class Schemas(CommandLine):
    def validator(self, name):
        schema = read_json(ROOT / f"results/schema/{name}.schema.json")
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(closed(schema))

    def check(self, validator, document, what):
        wrong = [f"{what}: {'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]
        self.assertEqual(wrong[:5], [])

    def test_every_record_and_summary(self):
        record, summary = self.validator("record"), self.validator("summary")
        checked = 0
        for name, path in reproduced(self.stp).items():
            if not name.endswith(".json") or name.startswith("timeline-"):  # a trace
                continue
            document = read_json(path)
            self.check(summary if path.name == "summary.json" else record, document, path.name)
            checked += 1
        self.assertGreaterEqual(checked, 3)

    def test_records_of_simulate(self):
        record = self.validator("record")
        nothing = changed(UNIT, costs={"unit": {}})  # a step without time has no throughput
        for scenario in (UNIT, nothing, changed(UNIT, schedule_costs={"F": 2}), HARDWARE,
                         changed(HARDWARE, recompute="full", sequence_parallel=True, implementation="megatron-2022"),
                         changed(HARDWARE, recompute="attn+mlp+norm"), PAIRS,
                         changed(HARDWARE, offload={"ratio": 0.5}, cluster_values={"device_to_host_gb_per_s": 8}),
                         changed(PAIRS, pairs=[{key: PAIRS["pairs"][0][key] for key in ("name", "gemm", "all_reduce")}])):
            self.check(record, self.record(scenario), scenario["name"])

    def test_records_of_run(self):
        single = changed(RUN, run={**RUN["run"], "type": "float32"})
        replayed = changed(RUN, run={**RUN["run"], "parity": False})
        for scenario, *extra in ((RUN,), (single, "--predict", "a800"), (replayed, "--replay-rank", 1, "--replay-cluster", "a800"),
                                 (changed(replayed, layers_per_chunk=[14, 0], schedules=["1f1b"]), "--replay-rank", 2, "--replay-cluster", "a800")):
            self.check(self.validator("record"), self.json_of("run", self.write(scenario), "--backend", "cpu", *extra), "run")

    def test_comparisons(self):
        if not os.environ.get("STP_PYTHON"):
            self.skipTest("stp was built without a Python for stp compare")
        comparison = self.validator("comparison")
        for name, cluster in (("a", "a800"), ("b", "h20")):
            self.succeed("simulate", self.write(changed(HARDWARE, cluster=cluster), name), "--json", f"{name}.json")
            self.write(benchmarks(ord(name), repetitions=4), f"{name}-bench.json")
        self.succeed("run", self.write(changed(RUN, model="tiny", schedules=["1f1b-i"])), "--backend", "cpu", "--json", "run.json")
        unit = changed(UNIT, schedules=["1f1b-i"], parallel={"pp": 2, "tp": 2}, layers_per_chunk=[1] * 4)
        self.succeed("simulate", self.write(unit), "--json", "unit.json")
        for arguments in (["a.json", "b.json"], ["run.json", "unit.json"], ["a-bench.json", "b-bench.json"],
                          ["--profiles", "a800", "h20", "--scenarios", "llm-h20"]):
            document = self.json_of("compare", *arguments)
            # Validates only the stated kind: oneOf would not say where it fails.
            kind = comparison.evolve(schema={**comparison.schema, "oneOf": [{"$ref": f"#/$defs/{document['kind']}"}]})
            self.check(comparison, document, document["kind"])
            self.check(kind, document, document["kind"])
            document["rows" if "rows" in document else "machines"] = 3
            self.assertFalse(comparison.is_valid(document))

    def test_the_schemas_refuse_what_is_no_record(self):
        for name in ("record", "summary", "comparison"):
            validator = self.validator(name)
            for document in ({}, [], {"schema_version": "1.0.0"}):
                self.assertFalse(validator.is_valid(document))
        document = self.record(UNIT)
        document["results"][0]["ranks"][0]["compute_s"] = "1"
        self.assertFalse(self.validator("record").is_valid(document))


if __name__ == "__main__":
    main(__doc__)
