"""`stp run` as several processes: cli.py STP MPIRUN… They must leave what one process leaves, and one message where they refuse."""

import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from command_line import RUN, CommandLine, changed  # noqa: E402

MPIRUN = sys.argv[2:]
PARITY = {"type": "float64", "parity": True, "weight_deviation": 0.2, "bias_deviation": 0.1, "gain_deviation": 0.1}
# Every kind of group and of op, as eight ranks or fewer.
SET = {
    "name": "processes", "model": "tiny", "seq": 8, "microbatch_size": 2, "run": PARITY,
    "configurations": [
        {"schedules": ["stp", "zb-v", "1f1b-i", "dualpipev"], "parallel": {"pp": 4, "tp": 2}, "microbatches": 8},
        {"schedules": ["stp", "1f1b"], "parallel": {"pp": 2, "tp": 4}, "microbatches": 4, "sequence_parallel": True, "recompute": "full"},
        {"schedules": ["stp", "zb-v"], "parallel": {"pp": 2, "tp": 2, "dp": 2}, "microbatches": 4, "sequence_parallel": True,
         "recompute": "selective"},
        {"schedules": ["stp"], "parallel": {"pp": 4, "tp": 2}, "microbatches": 8, "run": PARITY | {"type": "bfloat16"}},
    ],
}


class Processes(CommandLine):
    stp = str(Path(sys.argv[1]).resolve())

    def mpirun(self, processes, *arguments):
        return self.run_stp(*arguments, launcher=[*MPIRUN, "-np", processes])

    def rows(self, processes, scenario):
        path = self.write(scenario)
        launcher = [*MPIRUN, "-np", processes]
        self.succeed("run", path, "--backend", "cpu", "--json", f"{processes}.json", "--deadline", 60, launcher=launcher)
        return self.read(f"{processes}.json")["results"]

    def test_rows_are_those_of_one_process(self):
        one = self.rows(1, SET)
        self.assertTrue(all(row["parity"]["gradient"] < 1e-10 for row in one[:-1]))
        for processes in 2, 8, 9:  # with 9, one has no rank
            several = self.rows(processes, SET)
            self.assertEqual(len(several), len(one))
            for here, there in zip(one, several):
                with self.subTest(schedule=here["schedule"], processes=processes):
                    self.assertEqual(there["processes"], processes)
                    self.assertEqual(there["losses"], here["losses"])  # the same bits
                    self.assertEqual(there["parity"], here["parity"])
                    for one_rank, same_rank in zip(here["ranks"], there["ranks"]):
                        self.assertEqual(same_rank["memory_bytes"], one_rank["memory_bytes"])

    def test_what_all_refuse_is_said_once(self):
        done = self.mpirun(2, "run", self.write(changed(RUN, microbatches=3)), "--backend", "cpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("use 4", done.stderr)
        done = self.mpirun(2, "run", self.write(RUN), "--backend", "cpu", "--replay-rank", 0, "--replay-cluster", "a800")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("--replay-rank: is one rank alone, but the launcher started 2 processes"), 1)

    def test_what_a_config_holds_and_is_ignored_is_said_once(self):
        config = {"model_type": "qwen2", "num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "vocab_size": 64, "rope_scaling": {"rope_type": "llama3", "factor": 8}}
        self.write(config, "config.json")
        scenario = changed(RUN, model="config.json", layers_per_chunk="even", parallel={"pp": 2}, run={"type": "float64"})
        done = self.mpirun(2, "run", self.write(scenario), "--backend", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("without rope_scaling (changes angles, not work)"), 1, done.stderr)
        self.write(config | {"model_type": "gpt_neox", "use_parallel_residual": False, "rotary_pct": 0.1}, "config.json")
        done = self.mpirun(2, "run", self.folder / "s.json", "--backend", "cpu")
        self.assertEqual((done.returncode, done.stderr.count("has heads with 0 elements")), (2, 1), done.stderr)

    def test_all_read_one_scenario(self):
        for process in 0, 1:
            self.write(changed(RUN, microbatches=4 + 4 * process), f"of-{process}.json")
        self.refused_by_two("of-$RANK.json", "of-0.json: process 1 reads another scenario")

    def refused_by_two(self, words, expected, of_0="", of_1=""):
        """`words` of the shell are for both processes."""
        script = f'RANK=${{RANK-$OMPI_COMM_WORLD_RANK}}; cd {self.folder}; set -- {of_0}; [ $RANK = 0 ] || set -- {of_1}; ' \
                 f'exec "$0" run {words} --backend cpu "$@"'
        done = self.run_stp(launcher=[*MPIRUN, "-np", 2, "sh", "-c", script])
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(expected, done.stderr)

    def test_all_have_the_same_flags(self):
        self.write(changed(RUN, schedules=["1f1b-i"]), "s.json")
        for of_0, of_1, said in (("--save new", "", "--save: is given in process 0, and left out in process 1"),
                                 ("--save new --every 2", "--save new", "--every: is 2 in process 0, and 0 in process 1")):
            self.refused_by_two("s.json", said, of_0, of_1)

    def test_all_read_one_text(self):
        for process in 0, 1:
            self.write("all work and no play makes jack a dull boy. " * 20 + str(process), f"text-{process}.txt")
        self.write(changed(RUN, model="bytes", layers_per_chunk=[2, 2, 1, 1], parallel={"pp": 2}, run={"text": "/dev/fd/9"}), "s.json")
        self.refused_by_two("s.json 9<text-$RANK.txt", "s.json: run.text: process 1 reads another text")

    def test_all_go_on_from_one_checkpoint(self):
        self.write(changed(RUN, schedules=["1f1b-i"]), "s.json")
        self.succeed("run", "s.json", "--backend", "cpu", "--save", "0", "--every", 1)
        for process in "12":
            shutil.copytree(self.folder / "0", self.folder / process)
        shutil.rmtree(self.folder / "1" / "step-3")
        tensors = self.folder / "2/step-3/model.safetensors"
        tensors.write_bytes(tensors.read_bytes()[:-1] + b"\0")
        for of_1, resumed in (("--resume 1", "1/step-2"), ("--resume 2", "2/step-3"), ("", "none")):
            self.refused_by_two("s.json", f"--resume: process 1 has another checkpoint ({resumed}) than process 0 (0/step-3)", "--resume 0", of_1)

    @unittest.skipUnless(Path(stp).with_name("microbench").exists(), "no Google Benchmark")
    def test_microbenchmarks_of_collectives(self):
        """The first process has the others do every sample with it."""
        self.stp = str(Path(self.stp).with_name("microbench"))
        done = self.mpirun(2, "--quick", "--repetitions", 3, "--benchmark_out=rows.json", "--benchmark_out_format=json",
                           "--benchmark_filter=(all_reduce|send_receive)/.*/size:(1024|16384)/")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [row for row in self.read("rows.json")["benchmarks"] if row.get("aggregate_name") == "median"]
        self.assertEqual(len(rows), 2 * 2)  # calls, sizes
        for row in rows:
            self.assertEqual(row["ranks"], 2)
            self.assertAlmostEqual(row["busbw"] / row["algbw"], 1)  # of two ranks, every factor of nccl-tests is 1
        done = self.mpirun(2, "--benchmark_filter=^nothing/")
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
