"""Shared by tests that run the program as its users do."""

import copy
import json
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import termios
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROFILES = ROOT / "profiles"

UNIT = {
    "name": "unit",
    "schedules": ["1f1b"],
    "parallel": {"pp": 2},
    "microbatches": 4,
    "layers_per_chunk": [1, 1],
    "costs": {"unit": {"attn.F": 1, "attn.I": 1, "attn.W": 1}},
}
HARDWARE = {
    "name": "hardware",
    "schedules": ["1f1b-i"],
    "model": "llm-12.1b",
    "cluster": "a800",
    "seq": 3072,
    "parallel": {"tp": 4, "pp": 4},
    "microbatches": 8,
    "layers_per_chunk": "paper",
}


RUN = {
    "name": "mine",
    "schedules": ["stp", "1f1b-i"],
    "model": "tiny",
    "seq": 4,
    "parallel": {"pp": 2, "tp": 2},
    "microbatches": 4,
    "layers_per_chunk": "paper",
    "run": {"type": "float64", "steps": 2, "warmup": 1, "parity": True, "weight_deviation": 0.2},
}

# Hugging Face's, of Llama 3 70B.
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 80, "hidden_size": 8192,
          "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "head_dim": None,
          "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "eos_token_id": [128001, 128009], "tie_word_embeddings": False}  # fmt: skip

PAIRS = {"name": "pairs", "cluster": "a800", "pairs": [{
    "name": "one", "gemm": {"m": 4096, "n": 4096, "k": 4096}, "all_reduce": {"mib": 64, "ranks": 4},
    "published": {"gemm_ms": 2, "all_reduce_ms": 1, "serial_ms": 3, "together_ms": 2.25}}]}


# Without what the user's own says of data and colours.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("STP_DATA_DIR", "NO_COLOR")}


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def changed(base, **fields):
    result = copy.deepcopy(base)
    for key, value in fields.items():
        if value is None:
            del result[key]
        else:
            result[key] = value
    return result


def snapshot(folder):
    """Every path below `folder`, hidden ones included, with the content of files."""
    return {path.relative_to(folder): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def iteration(name, real_time, unit="ms", **fields):
    """A repetition, as Google Benchmark 1.7 writes it."""
    return {"name": name, "family_index": 0, "per_family_instance_index": 0, "run_name": name, "run_type": "iteration",
            "repetitions": 12, "repetition_index": 0, "threads": 1, "iterations": 100, "real_time": real_time,
            "cpu_time": real_time, "time_unit": unit, **fields}


def benchmarks(seed, slower=(), kernels=8, repetitions=12):
    """A file of kernels with 2 % of noise; those named take a tenth longer."""
    draw = random.Random(seed)
    rows = []
    for kernel in range(kernels):
        for _ in range(repetitions):
            time = 10 * (1 + kernel) * draw.lognormvariate(0, 0.02) * (1.1 if kernel in slower else 1)
            rows.append(iteration(f"kernel/{kernel}", time, bus_gb_per_s=100 / time))
        rows.append(iteration(f"kernel/{kernel}_mean", 1, run_type="aggregate", aggregate_name="mean"))
    return {"context": {"date": f"2026-01-0{seed % 9 + 1}", "host_name": "here", "num_cpus": 2}, "benchmarks": rows}


def said_on(terminal):
    """What is written to the terminal until its other end is closed."""
    text = b""
    with open(terminal, "rb", buffering=0) as screen:
        try:
            while piece := screen.read(1 << 16):
                text += piece
        except OSError:  # the other end is closed
            pass
    return text.decode()


class Late(Exception):
    """The program ended before its signal."""


def tried_again(test):
    """The test of a signal, again in a new folder where it came late."""

    def tries(self):
        for _ in range(5):
            try:
                return test(self)
            except Late:
                self.doCleanups()
                self.setUp()
        return self.fail("the program always ended before its signal")

    return tries


class Started(subprocess.Popen):
    """A process that ends with its test, also where that fails."""

    def __exit__(self, failure, *others):
        if failure:
            self.kill()
        super().__exit__(failure, *others)


class CommandLine(unittest.TestCase):
    stp = ""  # the program

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="stp-cli-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name).resolve()

    def run_stp(self, *arguments, data=None, variables=None, launcher=(), timeout=120):
        environment = ENVIRONMENT | (variables or {})
        if data:
            environment["STP_DATA_DIR"] = str(data)
        # To look for leaks takes longer than what most of these do; the tests of the libraries look for them.
        if "ASAN_OPTIONS" in environment:
            environment["ASAN_OPTIONS"] += ":detect_leaks=0"
        command = [*map(str, launcher), self.stp, *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False)

    def started(self, *arguments, variables=None, **options):
        """The program as it runs, with pipes."""
        return Started([self.stp, *map(str, arguments)], cwd=self.folder, env=ENVIRONMENT | (variables or {}), stdout=subprocess.PIPE,
                       text=True, **{"stderr": subprocess.PIPE} | options)

    def succeed(self, *arguments, **options):
        """What the program printed, which ends with 0."""
        done = self.run_stp(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        return done

    def json_of(self, *arguments, **options):
        return json.loads(self.succeed(*arguments, "--json", "-", **options).stdout)

    def record(self, scenario, *arguments):
        return self.json_of("simulate", self.write(scenario), *arguments)

    def results(self, scenario):
        return self.record(scenario)["results"]

    def read(self, name):
        return read_json(self.folder / name)

    def said_on_terminal(self, *arguments, of="stderr", other=subprocess.DEVNULL, size=(0, 0), **variables):
        """What the program, which ends with 0, writes to one of its outputs, a terminal of so many rows and columns."""
        terminal, of_stp = pty.openpty()
        termios.tcsetwinsize(terminal, size)
        outputs = {"stdout": other, "stderr": other, of: of_stp}
        with subprocess.Popen([self.stp, *map(str, arguments)], cwd=self.folder, env=ENVIRONMENT | variables, **outputs) as process:
            os.close(of_stp)
            text = said_on(terminal)
        self.assertEqual(process.returncode, 0, text)
        return text

    def write_profile(self, file, of="a800", **fields):
        """A profile of the suite with other fields, or without those that are None; numbers get a source."""
        sourced = {key: {"value": value, "source": "a test"} if isinstance(value, (int, float)) else value for key, value in fields.items()}
        return self.write(changed(read_json(PROFILES / f"{of}.json"), **sourced), file)

    def write(self, content, name="s.json"):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
        return path

    def refused(self, arguments, *words, silent=True, variables=None):
        """The program ends with 2, says all of `words`, prints nothing else and changes nothing."""
        before = snapshot(self.folder)
        done = self.run_stp(*arguments, variables=variables)
        self.assertEqual(done.returncode, 2, f"{arguments}\n{done.stdout}{done.stderr}")
        if silent:
            self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(snapshot(self.folder), before)

    def scenario_refused(self, content, field, *words):
        """The same of a scenario, by each command that reads one; the message is `file: field: problem; remedy`."""
        path = self.write(content)
        for arguments in (["simulate", path, "--json", "new.json"], ["reproduce", path, "--out", "new", "--no-plots"]):
            self.refused(arguments, "stp: ", str(path), f": {field}: " if field else ": ", "; ", *words)

    def scenarios_refused(self, base, *rows):
        """The same of a scenario with other fields. Each row: these, the field that is refused, words of the message."""
        for fields, *message in rows:
            with self.subTest(fields):
                self.scenario_refused(changed(base, **fields), *message)


def main(usage):
    """Runs the tests of the script that was started: SCRIPT STP_BINARY [unittest arguments]."""
    if len(sys.argv) < 2:
        sys.exit(usage)
    CommandLine.stp = str(Path(sys.argv.pop(1)).resolve())
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:  # by nohup, or as a background job; the program would ignore it too
            signal.signal(number, signal.SIG_DFL)
    unittest.main()
