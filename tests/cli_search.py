"""`stp search`: faster orders by local moves.

    cli_search.py STP_BINARY [unittest arguments]
"""

import json
import os
import re
import signal

from command_line import changed, CommandLine, HARDWARE, Late, main, said_on, tried_again, UNIT


class Search(CommandLine):
    COSTS = {"attn.F": 1, "attn.I": 1, "attn.W": 1, "all_reduce": 0.5}
    SCENARIO = changed(UNIT, schedules=["stp"], layers_per_chunk=[1, 1, 1, 1], microbatches=5, costs={"unit": COSTS})

    def search(self, *arguments, moves="2000"):
        return self.succeed("search", self.write(self.SCENARIO), "--moves", moves, *arguments).stdout

    def test_finds_an_order_that_everything_reads(self):
        said = self.search("--memory-limit", "schedule:stp", "--out", str(self.folder / "found.json"))
        found = self.read("found.json")
        self.assertEqual(found["schedule"], "search")
        self.succeed("validate", self.folder / "found.json")
        row, stp = (self.results(changed(self.SCENARIO, schedules=[schedule]))[0] for schedule in ({"file": "found.json"}, "stp"))
        self.assertIn(f"search  {row['step_time_s']:.4f}", re.sub(" +", "  ", said))
        self.assertRegex(said, r"\n\S+ +\S+ +0\.0 % ")  # the first one's gain over itself
        self.assertLess(row["step_time_s"], stp["step_time_s"])
        self.assertGreaterEqual(row["step_time_s"], row["lower_bound_s"])
        self.assertLessEqual(row["peak_activation_chunks"], stp["peak_activation_chunks"])

    def test_depends_on_its_seed_alone(self):
        again, same, other = (json.loads(self.search("--seed", seed, "--out", "-")) for seed in ("1", "1", "2"))
        self.assertEqual(again, same)
        self.assertNotEqual(again["ranks"], other["ranks"])

    def test_starts_from_the_scenario_s_one_order_too(self):
        named = [line.split()[0] for line in self.search("--out", str(self.folder / "a.json")).splitlines()[1:-1]]
        self.assertEqual(named[-1], "search")
        self.assertIn("stp", named)
        slow = self.search("--set", 'schedules=["gpipe"]', "--set", "layers_per_chunk=[2, 2]", "--out", str(self.folder / "b.json"))
        self.assertRegex(slow, r"\ngpipe .*-")  # slower than the fastest

    def test_where_all_costs_are_0_nothing_is_faster(self):
        free = {"attn.F": 0, "mlp.F": 0}
        self.assertRegex(self.search("--set", f"costs.unit={json.dumps(free)}", "--out", str(self.folder / "a.json")), r"\nstp +0\.0000 +– ")

    def test_says_why_it_ended(self):
        self.assertIn("within 0.1 % of the bound", self.search("--out", str(self.folder / "a.json"), "--set", "parallel.pp=1",
                                                               "--set", "layers_per_chunk=[1, 1]", "--set", "costs.unit.all_reduce=0"))

    @tried_again
    def test_an_interrupt_keeps_the_best_so_far(self):
        screen, terminal = os.openpty()
        with self.started("search", self.write(self.SCENARIO), "--moves", 10**8, "--out", "found.json", stderr=terminal) as run:
            os.close(terminal)  # so that reading fails if the program ends
            shown = b""
            while b"searching" not in shown:
                shown += os.read(screen, 1000)
            run.send_signal(signal.SIGINT)
            said = run.communicate(timeout=60)[0]
        if run.returncode == 0:
            raise Late
        self.assertEqual(run.returncode, 128 + signal.SIGINT)
        self.assertRegex(said, r" orders timed; interrupted\.\n$")
        self.assertIn("stp: interrupted; the best order so far is written", said_on(screen))
        self.succeed("validate", "found.json")

    def test_schedules_that_do_not_fit_a_list_of_layers_or_a_limit_are_left_out(self):
        scenario = self.write(changed(HARDWARE, schedules=["1f1b", "zb-v"], layers_per_chunk=[27, 1, 1, 1]))
        self.assertIn("1f1b", self.succeed("search", scenario, "--moves", 10, "--set", "cluster.memory_gb=99", "--out", str(self.folder / "a.json")).stdout)
        # Shared by all ranks, a head of 8 million words leaves less of its loss on each than the last rank has of it alone.
        shared = ["--memory-limit", "schedule:vocab-2", "--set", "model.vocab_size=8000000", "layers_per_chunk=[1, 1, 1, 27]"]
        self.refused(["search", scenario, *shared, "--out", "new.json"], "--memory-limit: no schedule", "as few as 5 activations and 32.0 GB of them")

    def test_without_a_limit_it_fits_into_the_gpu(self):
        scenario, small = changed(HARDWARE, schedules=["stp"], layers_per_chunk="even"), ["--set", "cluster.memory_gb=40.5"]
        said, sure = (self.succeed("search", self.write(scenario), "--moves", 10, "--out", str(self.folder / file), *changes).stdout
                      for file, changes in (("found.json", small), ("sure.json", [*small, "cluster.fixed_memory_gb=5"])))  # without a range
        margins = [self.record(changed(scenario, schedules=[one]), *small)["results"][0]["memory_margin_gb"] for one in ({"file": "found.json"}, "stp")]
        self.assertLess(margins[1], 0)
        self.assertGreater(margins[0], 0)
        self.assertRegex(said, rf"\n\S+ may fit: {40.5 - margins[0]:.1f} of the 40\.5 GB of a800\. ")
        self.assertRegex(sure, rf"\n\S+ fits: {40.5 - margins[0]:.1f} of the 40\.5 GB of a800\. ")
        self.refused(["search", self.write(scenario), "--out", "new.json", "--set", "cluster.memory_gb=9"], "schedules: none of the suite's fits into the 9 GB of a800",
                     "lacks", "recompute=full saves", "--memory-limit")  # fmt: skip

    def test_halves_of_microbatches_have_half_the_limit(self):
        halves = self.write(changed(HARDWARE, tp_overlap="domino", microbatch_size=2, layers_per_chunk="even"))
        said = self.succeed("search", halves, "--memory-limit", 1, "--moves", 10, "--out", str(self.folder / "a.json")).stdout
        self.assertRegex(said, r"\nzb-auto +\S+ +0\.0 % +\d")  # the gap: not below the bound

    def test_refusals(self):
        file = str(self.write(self.SCENARIO))
        for arguments, words in ((["--memory-limit", "few"], ("--memory-limit", "few", "number")),
                                 (["--memory-limit", "1"], ("--memory-limit", "1 activation;", "allow more")),
                                 (["--seed", "-1"], ("--seed", "-1 is not a number in [0 - ")),
                                 (["--seed", "99999999999999999999"], ("--seed", "99999999999999999999 is not a number in [0 - ")),
                                 (["--memory-limit", "schedule:none"], ('stp: --memory-limit: there is no schedule "none"',)),
                                 (["--set", 'schedules=["stp", "zb-v"]', "layers_per_chunk=[1, 1, 1]"], (": layers_per_chunk: ", "stp")),
                                 (["--configuration", "2"], ("--configuration", "2 is not there")),
                                 (["--set", "merge_backward=true"], ("merge_backward", "remove it")),
                                 (["--set", 'schedules=["dualpipe"]', "microbatches=4"], ("schedules: dualpipe has two pipelines", "name another"))):
            self.refused(["search", file, *arguments, "--out", str(self.folder / "new.json")], *words)


if __name__ == "__main__":
    main(__doc__)
