"""Every order of tests/golden, written as a schedule's file, is read unchanged: `stp validate` accepts it, and a scenario
that names it by {"file": …} has the makespan that is stated of it, at the costs it is stated for.

    golden_files.py STP_BINARY
"""

from command_line import CommandLine, main, read_json, ROOT


def configuration(path, order, costs):
    """The rule `atomic` of tests/golden/README.md as a configuration: every pass halved over attention and MLP, blocks
    that start and end as a whole."""
    unit = {f"{part}.{letter}": costs[letter] / 2 for part in ("attn", "mlp") for letter in "FIW"}
    return {
        "schedules": [{"file": str(path)}],
        "parallel": {"pp": order["pp"]},
        "microbatches": order["microbatches"],
        "layers_per_chunk": [1] * (order["pp"] * (1 if order["placement"] == "bidirectional" else order["chunks"])),
        "costs": {"unit": {**unit, "p2p": costs["p2p"]}},
    }


def schedule(file, order):
    """A golden order as the suite's schedules are written."""
    order = file | order
    return {"schedule": order["schedule"], "placement": order["placement"], "pp": order["p"], "chunks": order["v"],
            "microbatches": order["m"], "ranks": [rank.split() for rank in order["ranks"]]}  # fmt: skip


class GoldenFiles(CommandLine):
    def setUp(self):
        """`orders`: by the path of its schedule, each order with what its file says of it."""
        super().setUp()
        self.orders = {}
        for path in sorted((ROOT / "tests/golden").glob("*.json")):
            file = read_json(path)
            for number, order in enumerate(file["orders"]):
                # Those of vocabulary parallelism, with the authors' letters and no makespans, baselines/golden_test.cc reads.
                if "makespan" in order:
                    ours = schedule(file, order)
                    self.orders[self.write(ours, f"{path.stem}-{number}.json")] = order | ours
        self.assertEqual(len(self.orders), 129)

    def test_each_is_valid(self):
        for path, order in self.orders.items():
            first = self.succeed("validate", path).stdout.splitlines()[0]
            size = f"p {order['pp']}, v {order['chunks']}, m {order['microbatches']}"
            self.assertEqual(first, f"{path}: valid: {order['schedule']}, {size}, placement {order['placement']}")

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
            pairs = order["schedule"] == "DualPipeV" or (order["schedule"] in ("STP", "DualPipe") and order["pp"] >= 4)
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
