"""Every order of tests/golden is read unchanged: `stp validate` accepts it, and a scenario that names it by
{"file": …} has the makespan that the file states, at the costs it states it for.

    golden_files.py STP_BINARY
"""

from command_line import CommandLine, main, read_json, ROOT


def configuration(path, order, costs):
    """The rule `atomic` of tests/golden/README.md as a configuration: every pass halved over attention and MLP, blocks
    that start and end as a whole."""
    unit = {f"{part}.{letter}": costs[letter] / 2 for part in ("attn", "mlp") for letter in "FIW"}
    return {
        "schedules": [{"file": str(path)}],
        "parallel": {"pp": order["p"]},
        "microbatches": order["m"],
        "layers_per_chunk": [1] * (order["p"] * (1 if order["placement"] == "bidirectional" else order["v"])),
        "costs": {"unit": {**unit, "p2p": costs["p2p"]}},
    }


class GoldenFiles(CommandLine):
    def setUp(self):
        super().setUp()
        self.orders = {path: read_json(path) for path in sorted((ROOT / "tests/golden").glob("*.json"))}
        # Those of vocabulary parallelism, with the authors' letters and no makespans, baselines/golden_test.cc reads.
        self.orders = {path: order for path, order in self.orders.items() if "makespan" in order}
        self.assertGreater(len(self.orders), 50)

    def test_each_is_valid(self):
        for path, order in self.orders.items():
            first = self.succeed("validate", path).stdout.splitlines()[0]
            said = f"{path}: valid: {order['schedule']}, p {order['p']}, v {order['v']}, m {order['m']}, placement {order['placement']}"
            self.assertEqual(first, said)

    def simulated(self, release, freed_at, cases):
        """The results of cases, each (path, order, entry of its makespans), with peaks as the file has them."""
        configurations = [configuration(path, order, entry["costs"]) for path, order, entry in cases]
        results = self.results({"name": "golden", "release": release, "freed_at": freed_at, "configurations": configurations})
        for (path, order, _), result in zip(cases, results, strict=True):
            self.assertEqual(result["schedule"], order["schedule"])
            peaks = [rank["peak_activation_chunks"] for rank in result["ranks"]]
            self.assertEqual(peaks, order["peak"][f"until_{freed_at}"], path.name)
        return [result["step_time_s"] for result in results]

    def test_each_is_simulated_to_its_atomic_makespan(self):
        cases = [(path, order, entry) for path, order in self.orders.items() for entry in order["makespan"]]
        queued = 0
        for (path, order, entry), step in zip(cases, self.simulated("block", "W", cases)):
            # Both outputs of a block may take one link: STP's paired forwards, DualPipeV's braids of two chunks. Links are in
            # order, which the rule knows nothing of.
            pairs = order["schedule"] == "DualPipeV" or (order["schedule"] in ("STP", "DualPipe") and order["p"] >= 4)
            if pairs and entry["costs"]["p2p"] > 0:
                queued += 1
                self.assertGreater(step, entry["atomic"], path.name)
            else:
                self.assertAlmostEqual(step, entry["atomic"], delta=1e-6, msg=path.name)
        self.assertGreaterEqual(queued, 12)

    def test_split_orders_without_braids_are_simulated_to_their_early_makespan(self):
        cases = [(path, order, entry) for path, order in self.orders.items() for entry in order["makespan"]
                 if not any("&" in block or block[0] == "B" for rank in order["ranks"] for block in rank)]  # fmt: skip
        self.assertGreaterEqual(len({path for path, *_ in cases}), 24)
        for (path, _, entry), step in zip(cases, self.simulated("chain", "I", cases)):
            self.assertAlmostEqual(step, entry["early"], delta=1e-6, msg=path.name)


if __name__ == "__main__":
    main(__doc__)
