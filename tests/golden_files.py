"""Every order of tests/golden is read unchanged: `stp validate` accepts it, and a scenario that names it by
{"file": …} has the makespan that the file states, at the costs it states it for.

    golden_files.py STP_BINARY
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent / "golden"
STP = ""


def stp(*arguments):
    return subprocess.run([STP, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def configuration(path, order, costs):
    """The rule `atomic` of tests/golden/README.md as a configuration: every pass halved over attention and MLP, blocks
    that start and end as a whole."""
    unit = {f"{part}.{letter}": costs[letter] / 2 for part in ("attn", "mlp") for letter in "FIW"}
    return {
        "schedules": [{"file": str(path)}],
        "parallel": {"pp": order["p"]},
        "microbatches": order["m"],
        "layers_per_chunk": [1] * (order["p"] * order["v"]),
        "costs": {"unit": {**unit, "p2p": costs["p2p"]}},
    }


class GoldenFiles(unittest.TestCase):
    def setUp(self):
        self.orders = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GOLDEN.glob("*.json"))}
        self.assertGreater(len(self.orders), 50)

    def test_each_is_valid(self):
        for path, order in self.orders.items():
            done = stp("validate", path)
            self.assertEqual(done.returncode, 0, f"{path.name}: {done.stderr}")
            first = done.stdout.splitlines()[0]
            said = f"{path}: valid: {order['schedule']}, p {order['p']}, v {order['v']}, m {order['m']}, placement {order['placement']}"
            self.assertEqual(first, said)

    def test_each_is_simulated_to_its_makespan(self):
        # At the costs without p2p time: with it, transfers that share a link queue, which the rule knows nothing of.
        cases = []
        for path, order in self.orders.items():
            stated = [entry for entry in order["makespan"] if entry["costs"]["p2p"] == 0]
            self.assertTrue(stated, path.name)
            cases += [(path, order, entry) for entry in stated]
        scenario = {"name": "golden", "release": "block", "configurations": [configuration(path, order, entry["costs"]) for path, order, entry in cases]}
        with tempfile.TemporaryDirectory(prefix="stp-golden-") as folder:
            file = Path(folder) / "golden.json"
            file.write_text(json.dumps(scenario), encoding="utf-8")
            done = stp("simulate", file, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(done.stdout)["results"]
        self.assertEqual(len(results), len(cases))
        for (path, order, entry), result in zip(cases, results):
            self.assertEqual(result["schedule"], order["schedule"])
            self.assertAlmostEqual(result["step_time_s"], entry["atomic"], delta=1e-6, msg=path.name)
            peaks = [rank["peak_activation_chunks"] for rank in result["ranks"]]
            self.assertEqual(peaks, order["peak"]["until_W"], path.name)


if __name__ == "__main__":
    STP = os.path.abspath(sys.argv.pop(1))
    unittest.main()
