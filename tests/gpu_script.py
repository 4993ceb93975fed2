#!/usr/bin/env python3
"""scripts/gpu.sh and scripts/gpu_speed where there is no GPU: with an nvidia-smi, programs and measurements that are stand-ins,
what the scripts themselves do; and what other scripts say of faults.

Usage: gpu_script.py
"""

import os
import re
import select
import shutil
import subprocess
import sys
import tarfile
import unittest
import zipfile
from pathlib import Path

from command_line import CommandLine, read_json, ROOT

STAGES = ["machine", "programs", "tests", "sanitizer", "microbench", "speed", "parity", "replay", "processes", "replays", "torch"]

UNPACKED = "passed: built from revision 0123abc, this tree is unknown"
SMI = """#!/bin/sh
case "$*" in
  *query-gpu=compute_cap*) cat "$(dirname "$0")/capability" ;;
  *query-gpu=driver_version*) cat "$(dirname "$0")/driver" ;;
  *query-gpu=clocks_event_reasons*) exit 2 ;;
  *query-gpu=timestamp,*clocks_throttle_reasons*)  # idle, a cap of power, and a number that there is not
    for reasons in 0x0000000000000001 0x0000000000000004 "[N/A]"; do echo "now, 0, 1980, 2619, 650, 60, $reasons"; done ;;
  *query-gpu=name,*) echo "stand-in, 9.0" ;;
  *query-gpu=name*) cat "$(dirname "$0")/gpus" ;;
esac
"""
# Controlled by files beside the bundle: `fail-parity`, `hang-replay`, `hang-tests` (a pipe), `fail-rank-1`; says who it is
# where it is one of several.
STP = """#!/bin/sh
echo "$*" >> "$STP_DATA_DIR/stp.log"
while [ $# -gt 0 ]; do
  case $1 in
    --version) echo "stp stand-in" ;;
    doctor) if [ -e "$STP_DATA_DIR/no-cublas" ]; then echo "cuda cuBLASLt MISSING"; exit 1; fi ;;
    *-2-gpus)
      echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT, GPU $LOCAL_RANK of host ${NCCL_HOSTID-all}" >> "$STP_DATA_DIR/$1"
      if [ -e "$STP_DATA_DIR/fail-rank-$RANK" ]; then exit 1; fi ;;
    --json) out=$2 ;;
    parity-gpu) if [ -e "$STP_DATA_DIR/fail-parity" ]; then echo "gradient error 3"; exit 1; fi ;;
    replay-12.1b) if [ -e "$STP_DATA_DIR/hang-replay" ]; then sleep 100; fi ;;
  esac
  shift
done
if [ -n "$out" ] && [ "${RANK:-0}" = 0 ]; then echo '{}' > "$out"; fi
"""
PROGRAM = """#!/bin/sh
if [ -e "$STP_DATA_DIR/hang-tests" ]; then exec sleep 100 9> "$STP_DATA_DIR/hang-tests"; fi
if [ -e "$STP_DATA_DIR/skip-tests" ]; then echo "[  PASSED  ] 0 tests."; else echo "[       OK ] Gpu.Test (1 ms)"; fi
for word in "$@"; do
  case $word in
    --gtest_output=json:*) mkdir -p "$(dirname "${word#*:}")"; echo '{}' > "${word#*:}" ;;
    --benchmark_out=*) echo '{}' > "${word#*=}" ;;
  esac
done
"""
PLOT = """import pathlib, sys
print("beside of", pathlib.Path(sys.argv[1]).name)
"""


class Script(CommandLine):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "tree"
        self.path = self.root / "path"
        (self.root / "scripts").mkdir(parents=True)
        for name in ("gpu.sh", "common.sh"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts" / name)
        for name, text in {"scripts/gpu_speed": "#!/bin/sh\n", "plots/microbench.py": PLOT, "path/nvidia-smi": SMI, "path/gpus": "stand-in\n", "path/capability": "9.0\n", "path/driver": "580.65.06\n",
                           "scripts/load_in_torch": "#!/bin/sh\necho 'skipped: there is no torch'\nexit 77\n"}.items():
            self.write(self.root / name, text)

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def bundle(self, **files):
        """Writes a bundle for two architectures; `files`: by path others or other texts."""
        made = {"bin/stp": STP, "bin/stp-run": PROGRAM, "bin/microbench": PROGRAM, "tests/cuda_on_gpu_test": PROGRAM, "tests/kernels_on_gpu_test": PROGRAM, "architectures": "80;90\n",
                "cuda": "13\n", "revision": "0123abc\n"}
        for path, text in ({f"made/{path}": text for path, text in made.items()} | files).items():
            self.write(self.root / path, text)
        (self.root / "build/gpu").mkdir(parents=True, exist_ok=True)
        with tarfile.open(self.root / "build/gpu/bundle.tar.gz", "w:gz") as archive:
            archive.add(self.root / "made", ".")

    def run_it(self, *arguments, smi=True):
        path = (f"{self.path}:" if smi else "") + "/usr/bin:/bin"
        return subprocess.run([str(self.root / "scripts/gpu.sh"), *arguments], capture_output=True, text=True, check=False,
                              timeout=60, env={**os.environ, "PATH": path})

    def table(self, done):
        return {line.split()[0]: line.split(maxsplit=3)[3] for line in done.stdout.splitlines()
                if len(line.split()) > 3 and line.split()[2] == "s" and line.split()[1].isdigit()}

    def test_every_stage_runs_and_the_archive_holds_the_results(self):
        self.bundle()
        out = self.root / "results"
        done = self.run_it("--out", str(out), "--skip", "sanitizer")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        table = self.table(done)
        self.assertEqual(list(table), STAGES)
        self.assertEqual(table.pop("sanitizer"), "skipped: by --skip")
        self.assertEqual(table.pop("programs"), UNPACKED)
        self.assertEqual(table.pop("torch"), "skipped: there is no torch")
        self.assertEqual(set(table.values()), {"passed"})
        with tarfile.open(f"{out}.tar.gz") as archive:
            held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        self.assertLessEqual({"table.txt", "machine.log", "parity.json", "parity-2-processes.json", "replay-a800.json", "replay-h200-zb-v.json",
                              "replay-a800-stp-graphs.json", "step.json",
                              "step-graphs.json", "microbench.json", "overlap.json", "clocks.csv", "tests/cuda_on_gpu_test-0.json", "tests/kernels_on_gpu_test-7.json"}, held)
        runs = (self.root / "stp.log").read_text(encoding="utf-8").splitlines()
        self.assertEqual(sorted((self.root / "parity-2-gpus").read_text(encoding="utf-8").splitlines()),  # they share the GPU
                         [f"{rank} of 2 at 127.0.0.1:29517, GPU 0 of host stp-{rank}" for rank in (0, 1)])
        with_graphs = [line for line in runs if "--graphs" in line and "parity" not in line]
        self.assertEqual(len(with_graphs), 4)
        for line in with_graphs:  # they are captured in the first three steps
            self.assertIn("run.warmup=3", line)
        self.assertRegex(done.stdout, r"\nthrottled: \w+, 1 of 2 samples of its clocks\n\nbeside of overlap.json\n\nResults: ")
        again = self.run_it("--out", str(out))
        self.assertEqual(again.returncode, 2)
        self.assertIn("never overwritten", again.stderr)

    def test_a_stage_that_fails_is_named_and_does_not_keep_the_others_from_running(self):
        none = "skipped: there are no programs; see the stage programs"
        for number, (path, text, stage, after, words) in enumerate((
            ("fail-parity", "", "parity", "passed", "gradient error 3"),
            # Tests that all skip themselves.
            ("skip-tests", "", "tests", "passed", "none of its tests ran"),
            ("path/ldd", "#!/bin/sh\necho 'libmpi.so.40 => not found'\n", "programs", none, "libmpi.so.40 => not found"),
            ("no-cublas", "", "programs", none, "cuda cuBLASLt MISSING"),  # what ldd does not see
            ("path/driver", "570.124.06\n", "programs", none,
             "built with CUDA 13, which needs a driver of 580 or later; here is 570.124.06"),
            ("made/architectures", "100;120\n", "programs", none, "no bundle for sm 90"),
        )):
            with self.subTest(path):
                self.bundle(**{path: text})
                stages = ["programs", stage, "microbench"] if stage != "programs" else ["programs", "microbench"]
                done = self.run_it("--out", str(self.root / f"failed-{number}"), *stages)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(self.table(done), {"programs": UNPACKED, stage: "FAILED", "microbench": after})
                self.assertIn(words, done.stdout)
                (self.root / path).unlink()
                self.write(self.path / "driver", "580.65.06\n")

    def test_a_bundle_is_taken_where_the_gpu_runs_it(self):
        for capability, words in (("8.6", ""), ("8.9", ""), ("10.0", ": the driver compiles PTX for sm 100"), ("12.0", ": the driver compiles PTX for sm 120"), ("7.5", None)):
            with self.subTest(capability):
                self.bundle()
                self.write(self.path / "capability", f"{capability}\n")
                done = self.run_it("--out", str(self.root / capability), "programs")
                self.assertEqual(self.table(done)["programs"], "FAILED" if words is None else UNPACKED + words)

    def test_the_stages_and_their_limits(self):
        done = self.run_it("--dry-run", smi=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        limits = dict(re.findall(r"^(\w+) +(\d+) s$", done.stdout, re.MULTILINE))
        self.assertEqual(list(limits), [*STAGES, "all"])
        self.assertTrue(all(0 < int(seconds) <= 540 for seconds in limits.values()))

    def test_on_several_gpus_processes_are_launched(self):
        self.bundle()
        self.write(self.path / "gpus", "stand-in\n" * 4)
        out = self.root / "mine"
        done = self.run_it("--out", str(out), "programs", "processes")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.table(done)["processes"], "passed")
        for scenario, record in (("parity-2-gpus", "parity-2-processes"), ("train-2-gpus", "train-2-gpus")):
            self.assertTrue((out / f"{record}.json").exists())
            self.assertEqual(sorted((self.root / scenario).read_text(encoding="utf-8").splitlines()),
                             [f"{rank} of 2 at 127.0.0.1:29517, GPU {rank} of host all" for rank in (0, 1)])
        # A failure of any rank is one of the stage.
        (self.root / "fail-rank-1").touch()
        done = self.run_it("--out", str(self.root / "failed"), "processes")  # its own folder is named by the second
        self.assertEqual((done.returncode, self.table(done)["processes"]), (1, "FAILED"))

    def test_one_that_hangs_ends_with_the_limit_and_what_follows_says_so(self):
        self.bundle()
        (self.root / "hang-replay").touch()
        os.mkfifo(self.root / "hang-tests")
        pipe = os.open(self.root / "hang-tests", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, pipe)
        for stage in ("replay", "tests"):
            done = self.run_it("--out", str(self.root / stage), "--limit", "3", "programs", stage, "microbench")
            self.assertEqual(done.returncode, 1)
            table = self.table(done)
            self.assertRegex(table[stage], r"^FAILED: ran into its limit of [123] s$")  # what was left of the three
            self.assertEqual(table["microbench"], "skipped: the limit of 3 s is used up")
        self.assertTrue(select.select([pipe], [], [], 30)[0], "its test programs outlive a stage")  # they hold the pipe open

    def test_under_the_sanitizer_tests_are_small_and_only_wrong_accesses_count(self):
        self.bundle()
        self.stand_ins(compute_sanitizer='echo "$STP_SMALL_TESTS $CUDA_MODULE_LOADING ${STP_CUDNN-1} $*" >> "$STP_DATA_DIR/sanitizer.log"\n'
                       'echo "========= ERROR SUMMARY: $GTEST_SHARD_INDEX errors"; [ "$2$GTEST_SHARD_INDEX" != "$(cat "$STP_DATA_DIR/bad")" ]')
        (self.root / "bad").touch()
        done = self.run_it("programs", "sanitizer")
        self.assertEqual(done.returncode, 0, done.stdout)
        probe, *lines = (self.root / "sanitizer.log").read_text(encoding="utf-8").splitlines()
        self.assertIn("GpuDevice", probe)
        for cudnn, tool, program, shares in ((1, "memcheck", "cuda_on_gpu_test", 1), (1, "memcheck", "kernels_on_gpu_test", 1),
                                             (0, "racecheck", "kernels_on_gpu_test", 6), (0, "synccheck", "kernels_on_gpu_test", 2)):
            known = [line for line in lines if re.search(f"^1 LAZY {cudnn} --tool {tool} .*/{program} ", line)]
            self.assertEqual(len(known), shares, lines)
            self.assertIn(f"{tool} of {program}: ERROR SUMMARY: {shares - 1} errors", done.stdout)
        # One share that finds an error is a failure of the stage.
        (self.root / "bad").write_text("racecheck5", encoding="utf-8")
        self.assertEqual(self.table(self.run_it("--out", str(self.root / "bad-race"), "sanitizer"))["sanitizer"], "FAILED")

    def test_kernels_are_tested_first_and_a_missed_criterion_is_no_failure(self):
        self.bundle()
        self.write(self.root / "scripts/gpu_speed", "#!/bin/sh\necho '3 of 4 ratios meet their acceptance criterion'\nexit 1\n")
        done = self.run_it("programs", "tests", "microbench", "speed")
        self.assertEqual((done.returncode, self.table(done)["speed"]), (0, "missed: 3 of 4 ratios meet their acceptance criterion"))
        self.assertEqual(re.findall("^-- (.*)", done.stdout, re.MULTILINE), ["kernels_on_gpu_test", "cuda_on_gpu_test"])

    def stand_ins(self, **lines):
        for name, text in lines.items():
            self.write(self.path / name.replace("_", "-"), f"#!/bin/sh\n{text}\n")

    def test_the_bundle_is_built_with_headers_that_pip_finds_or_else_without(self):
        self.stand_ins(nvcc="", dpkg_query="echo installed", cmake='echo "cmake $*"; exit 1')
        wheel = self.root / "frontend-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("include/cudnn_frontend.h", "")
        self.stand_ins(python3=f"""if [ "$2" != pip ]; then exec {sys.executable} "$@"; fi
for word in "$@"; do if [ "$before" = --dest ]; then mkdir -p "$word"; to=$word; fi; before=$word; done
cp "{wheel}" "$to" 2>/dev/null""")
        headers = f"-D STP_CUDNN_FRONTEND_INCLUDE_DIR={self.root}/build/gpu/cudnn-frontend/include"
        for found in (True, False):
            done = self.run_it("--bundle")
            self.assertEqual(done.returncode, 1, done.stderr)  # the stand-in's build
            self.assertEqual(headers in done.stdout, found, done.stdout)
            self.assertEqual("pip could not download" in done.stdout, not found, done.stdout)
            wheel.unlink(missing_ok=True)
            shutil.rmtree(self.root / "build/gpu/cudnn-frontend", ignore_errors=True)

    def test_a_bundle_has_the_programs_and_says_what_they_are_built_for(self):
        self.stand_ins(nvcc="echo release 13.0", dpkg_query="echo installed", python3="exit 1", ldd="", strip="",
                       cmake="mkdir -p build/gpu/build/bin; cd build/gpu/build; echo CMAKE_CUDA_ARCHITECTURES:STRING=90 > CMakeCache.txt\n"
                             "for name in stp stp-run microbench; do printf '#!/bin/sh\\n' > bin/$name; chmod +x bin/$name; done")
        done = self.run_it("--bundle")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"bundle\.tar\.gz: \S+, for sm 90\n$")
        with tarfile.open(self.root / "build/gpu/bundle.tar.gz") as archive:
            self.assertLessEqual({"./bin/stp", "./bin/stp-run", "./bin/microbench"}, set(archive.getnames()))
            self.assertEqual([archive.extractfile(f"./{name}").read() for name in ("architectures", "cuda")], [b"90\n", b"13\n"])
        made = self.root / "build/gpu/bundle.tar.gz"
        for size, code in (((64 << 20) + 1, 1), (64 << 20, 0)):
            made.unlink()
            self.stand_ins(tar=f'truncate --size={size} "$4"')
            done = self.run_it("--bundle")
            self.assertEqual((done.returncode, "more than the 64 MiB" in done.stderr), (code, code == 1), done.stderr)
            if code:
                self.assertEqual(list(made.parent.glob("bundle*")), [])
                made.touch()

    def test_a_bare_container_needs_no_more_than_the_bundle(self):
        """Of CUDA 12 or 13, on a PATH without compilers and packers."""
        bare = self.root / "bare"
        bare.mkdir()
        for program in Path("/usr/bin").iterdir():
            if not re.match(r"(xz|unxz|lzma|cmake|ctest|ninja|make|nvcc|mpirun|(.*-)?(gcc|g\+\+|cc|c\+\+|clang|ld)\b)", program.name):
                (bare / program.name).symlink_to(program)
        for cuda, driver in (("12", "535.54.03"), ("12", "580.65.06"), ("13", "580.65.06")):
            with self.subTest(cuda=cuda, driver=driver):
                self.bundle(**{"made/cuda": f"{cuda}\n"})
                self.write(self.path / "driver", f"{driver}\n")
                for arguments in ((), ("--dry-run",)):
                    done = subprocess.run([str(bare / "bash"), str(self.root / "scripts/gpu.sh"), "--out", str(self.root / f"bare-{cuda}-{driver}"),
                                           *arguments, "machine", "programs", "tests", "parity"], capture_output=True, text=True, check=False,
                                          timeout=60, env={**os.environ, "PATH": f"{self.path}:{bare}"})
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertNotIn("FAILED", done.stdout)

    def test_doctor_finds_the_libraries_that_there_are(self):
        """The program itself, where cuBLASLt is of CUDA 12 or 13 and NCCL is 2.21, 2.28 or none."""
        stp = os.environ.get("STP_BINARY", "")
        found = subprocess.run([stp, "doctor"], capture_output=True, text=True, check=False).stdout if stp else ""
        needed = re.search(r"these programs (?:need one for|are built with) CUDA (\d+)", found)
        if not needed or not shutil.which("cc"):
            self.skipTest("no program with CUDA and without a driver, or no compiler")
        for cuda in (12, 13):
            for nccl in (22100, 22803, None):
                with self.subTest(cuda=cuda, nccl=nccl):
                    folder = self.root / f"lib-{cuda}-{nccl}"
                    folder.mkdir()
                    sources = {f"libcublasLt.so.{cuda}": f"unsigned long cublasLtGetVersion(void) {{ return {cuda}0100; }}"}
                    if nccl:
                        sources["libnccl.so.2"] = f"int ncclGetVersion(int* to) {{ *to = {nccl}; return 0; }}"
                    for name, source in sources.items():
                        subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", folder / name], input=source, text=True, check=True)
                    done = subprocess.run([stp, "doctor"], capture_output=True, text=True, check=False, env={**os.environ, "LD_LIBRARY_PATH": str(folder)})
                    self.assertEqual(done.returncode, 0, done.stderr)  # there is no driver, so no GPU
                    if cuda == int(needed[1]):
                        self.assertRegex(done.stdout, rf"cuBLASLt +works +\d+ +{cuda}0100, {folder}/")
                    else:
                        self.assertRegex(done.stdout, rf"cuBLASLt +(MISSING +\d+ .*libcublasLt.so.{needed[1]}: cannot be loaded|works .*/cuda)")
                    if nccl:
                        self.assertRegex(done.stdout, rf"NCCL +works +\d+ +{nccl}, {folder}/")

    def test_without_a_gpu_it_says_so(self):
        done = self.run_it(smi=False)
        if shutil.which("nvidia-smi", path="/usr/bin:/bin"):
            self.skipTest("there is an nvidia-smi here")
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("There is no GPU here", done.stdout)

    def test_flags_that_are_none(self):
        for arguments in (("--skip", "parrot"), ("parrot",), ("--limit", "0"), ("--limit",), ("--out",)):
            done = self.run_it(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(arguments[-1], done.stderr)


def repetition(name, seconds, **counters):
    return {"run_name": f"{name}/iterations:1/manual_time", "run_type": "iteration", "real_time": 1e6 * seconds, "time_unit": "us",
            **counters}


class Speed(CommandLine):
    """scripts/gpu_speed, on measurements that are made up."""

    def run_it(self, rows, *arguments, backend="cuda"):
        path = self.write({"context": {"backend": backend}, "benchmarks": rows}, "m.json")
        return subprocess.run([sys.executable, ROOT / "scripts/gpu_speed", path, "--without-torch", *arguments],
                              cwd=self.folder, capture_output=True, text=True, check=False, timeout=60)

    def test_ratios_are_of_medians(self):
        shape = {"m": 8, "n": 8, "k": 8}
        rows = [repetition("gemm/a/qkv/forward/tp:1/busy:1", seconds, **shape) for seconds in (2e-3, 1e-3, 9e-3)]
        rows += [repetition("gemm_fastest/a/qkv/forward/tp:1/busy:1", 1.92e-3, **shape),
                 repetition("memory/copy/bytes:1000", 1e-3, bytes=2000), repetition("memory/copy/bytes:4000", 2e-3, bytes=8000),
                 repetition("memory/kernel/a/scale/tp:1", 1e-3, bytes=3240)]
        done = self.run_it(rows, "--json", "speed.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ratios = {entry["name"]: entry["ratio"] for entry in self.read("speed.json")["ratios"]}
        self.assertEqual(self.run_it(rows, "--json", "speed.json").returncode, 2)
        self.assertAlmostEqual(ratios["gemm/a/qkv/forward/tp:1/busy:1"], 0.96)
        self.assertAlmostEqual(ratios["memory/kernel/a/scale/tp:1"], 0.81)
        rows.append(repetition("memory/kernel/a/slow/tp:1", 1e-3, bytes=3100))
        missed = self.run_it(rows)
        self.assertEqual(missed.returncode, 1)
        self.assertRegex(missed.stdout, "slow.* 0.775 of the device's copy, below 0.8")

    def test_a_step_is_compared_with_its_kernels(self):
        rows = [repetition("memory/copy/bytes:1000", 1e-3, bytes=2000), repetition("memory/kernel/a/scale/tp:1", 1e-3, bytes=2000)]
        step = {"model": "a", "schedule": "1f1b", "seq": 1024, "step_time_s": 1.02, "share_in_graphs": None}
        for kernels, code, word in ((1.0, 0, "0.980 of its kernels' own time"), (0.95, 1, "below 0.971"),
                                    (None, 2, "timed.json: holds no step whose kernels were timed")):
            path = self.write({"results": [step | {"kernel_time_s": kernels}]}, "timed.json")
            done = self.run_it(rows, "--step", path)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn(word, done.stdout + done.stderr)
        record = self.write({"results": [step | {"kernel_time_s": 0.5}]}, "step.json")
        graphs = self.write({"results": [step | {"kernel_time_s": 1.0, "share_in_graphs": 0.9}]}, "step-graphs.json")
        done = self.run_it(rows, "--step", record, graphs)
        self.assertRegex(done.stdout, r"step/a/1f1b/seq:1024 +0\.490 of .*below")
        self.assertRegex(done.stdout, r"step/a/1f1b/seq:1024/graphs +0\.980 of its kernels' own time\n")

    def test_steps_are_of_a_whole_model_and_of_one_rank_of_eight(self):
        scenario = read_json(ROOT / "scenarios/step-gpu.json")
        whole, rank = (read_json(ROOT / f"models/llm-12.1b-2-layers{end}.json") for end in ("", "-tp8"))
        used = {(each["model"], each["seq"]) for each in scenario["configurations"]}
        self.assertLessEqual({(whole["name"], 1024), (rank["name"], 1024), (rank["name"], 2048), (whole["name"], 6144)}, used)
        divided = {"intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size"}
        self.assertEqual({key: 8 * rank[key] for key in divided}, {key: whole[key] for key in divided})
        same = {"hidden_size", "num_hidden_layers", "model_type"}
        self.assertEqual({key: rank[key] for key in same}, {key: whole[key] for key in same})
        self.assertEqual(rank["head_dim"], whole["hidden_size"] // whole["num_attention_heads"])

    def test_what_is_no_measurement_of_a_gpu(self):
        rows = [repetition("memory/copy/bytes:1000", 1e-3, bytes=2000)]
        for done, word in ((self.run_it(rows, backend="cpu"), "was not measured on a GPU"), (self.run_it([]), "benchmarks: is empty"),
                           (self.run_it(rows), "nothing that can be compared")):
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


class Faults(CommandLine):
    def test_other_scripts_say_in_a_line_what_they_cannot_read_or_run(self):
        for words, said in ((("ablation", "--scenario", "nosuch"), "scenarios/nosuch.json: cannot be read: No such file or directory; "),
                            (("calibrate", "--scenario", "pp-1"), "scenario pp-1 has no compare.calibration; "),
                            (("sensitivity", "--scenario", "table1", "--check", "nosuch"), "scenario table1 has no "),
                            (("infer_shapes", "--scenario", "pp-1"), "scenario pp-1 has no pairs; "),
                            (("splits", "--check", "README.md"), "README.md: cannot be read: "),
                            (("pages", "--claims", "nosuch"), "nosuch: cannot be read: "),
                            (("bound_gaps", "--stp", "nosuch"), "nosuch: No such file or directory; build it")):  # fmt: skip
            done = subprocess.run([sys.executable, ROOT / "scripts" / words[0], *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
