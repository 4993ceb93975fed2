#!/usr/bin/env bash
# Everything that a GPU is needed for, in one command on a GPU machine, which needs no network: tests, parity, replays,
# microbenchmarks, PyTorch reading our schedules; results with their provenance in one archive, a table last.
#
#   scripts/gpu.sh [--out FOLDER] [--limit SECONDS] [--skip STAGE]… [stage…]
#   scripts/gpu.sh --dry-run     prints the stages and their time limits
#   scripts/gpu.sh --bundle      on any machine with the CUDA toolkit, no GPU needed: builds the programs for the GPU
#                                machine, with the libraries that it may lack, as build/gpu/bundle.tar.gz; with attention
#                                by cuDNN if the headers of cudnn-frontend are there, or pip can download them
#
# Stages, the most valuable first: machine, programs (unpacks the bundle where this GPU runs it, builds otherwise; says what
# is missing), tests (kernels first), sanitizer, microbench, speed (acceptance criteria of our kernels), parity, replay (one case),
# processes (one per GPU, where there are two), replays (all cases), torch. Each has a time limit, and all together --limit (540 s); a stage that fails
# does not stop the others; one that misses a criterion has not failed. Clocks and power are sampled all the time (clocks.csv), and a line below the table says how many samples
# of which stage were throttled. Exits with 1 if one failed, 2 for an unknown flag, 77 if there is no GPU.
# shellcheck disable=SC2317  # the stages are called by name
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all=(machine programs tests sanitizer microbench speed parity replay processes replays torch)
declare -A limit_of=([machine]=20 [programs]=420 [tests]=140 [sanitizer]=120 [microbench]=120 [speed]=60 [parity]=60 [replay]=40
  [processes]=90 [replays]=240 [torch]=30)
program_limit=80  # seconds of each test program
bundle=$STP_ROOT/build/gpu/bundle.tar.gz
most_bundle_mib=64
programs=$STP_ROOT/build/gpu/programs
out=$STP_ROOT/results/runs/gpu-$(date -u +%Y%m%dT%H%M%SZ)
limit=540
task=run
stages=()
skipped=" "
# check_stage NAME [WORDS]: refuses a name that is none, with these words first.
check_stage() { [[ " ${all[*]} " == *" $1 "* ]] || refuse "${2-}there is no stage $1; there are ${all[*]}"; }
while (($# > 0)); do
  if [[ $1 =~ ^--(out|limit|skip)$ ]] && (($# < 2)); then refuse "$1 needs a value"; fi
  case $1 in
    --bundle | --dry-run)
      task=$1
      shift
      ;;
    --out)
      out=$(cd "$STP_FROM" && realpath --canonicalize-missing "$2")
      shift 2
      ;;
    --limit)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || refuse "--limit: \"$2\" is not a number of seconds"
      limit=$2
      shift 2
      ;;
    --skip)
      check_stage "$2" "--skip: "
      skipped+="$2 "
      shift 2
      ;;
    *)
      check_stage "$1"
      stages+=("$1")
      shift
      ;;
  esac
done
if ((${#stages[@]} == 0)); then stages=("${all[@]}"); fi
if [[ $task == --dry-run ]]; then
  printf '%-10s %6s\n' stage limit
  for stage in "${stages[@]}"; do printf '%-10s %4d s\n' "$stage" "${limit_of[$stage]}"; done
  printf '%-10s %4d s\n' all "$limit"
  exit 0
fi
cd "$STP_ROOT"
if [[ -d /usr/local/cuda/bin ]]; then PATH=$PATH:/usr/local/cuda/bin; fi

# The programs, and a folder of tests, in build/gpu/build.
build_programs() {
  cmake --preset release -B build/gpu/build -D STP_CUDA=ON "$@" &&
    cmake --build build/gpu/build --parallel "$(nproc)" --target stp_run microbench kernels_on_gpu_test cuda_on_gpu_test
}

# Copies what runs to $programs: stp, stp-run, microbench, the test programs that have tests for GPUs, and the libraries
# beside them that a CUDA machine need not have.
gather_programs() {
  local program library
  rm -rf "$programs"
  mkdir -p "$programs/bin" "$programs/lib" "$programs/tests"
  cp build/gpu/build/bin/{stp,stp-run,microbench} "$programs/bin/"
  while IFS= read -r program; do
    # Their lists of tests, not their code: what is named Gpu… needs a GPU.
    if "$program" --gtest_list_tests | grep -q '^\(.*/\)\?Gpu'; then cp "$program" "$programs/tests/"; fi
  done < <(find build/gpu/build -name '*_test' ! -name '*_on_host_test' -type f -perm -u+x)  # those have no GPU to fail on
  while IFS= read -r library; do
    cp --dereference "$library" "$programs/lib/"
  done < <(ldd "$programs"/bin/* "$programs"/tests/* | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' |
    grep -E '/lib(openblas|gfortran|quadmath|tcmalloc_minimal|benchmark|gtest|gmock|fmt)' | sort -u)
  strip "$programs"/bin/* "$programs"/tests/*
  sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[^=]*=//p' build/gpu/build/CMakeCache.txt >"$programs/architectures"
  nvcc --version | sed -n 's/.*release \([0-9]*\).*/\1/p' >"$programs/cuda"
  # Asks the programs: the tree may have changed since they were configured.
  "$programs/bin/stp" --version | sed -n '1s/.*(\(.*\)).*/\1/p' >"$programs/revision"
}

# The headers of cudnn-frontend, which no package of Debian has: from Python's package of that name, in the version that the build
# was tried with. Prints the folder that they are in, or nothing.
cudnn_frontend() {
  local folder=build/gpu/cudnn-frontend
  if [[ ! -e $folder/include/cudnn_frontend.h ]]; then
    rm -rf "$folder"
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$folder" nvidia-cudnn-frontend==1.32.0 >&2 &&
      python3 -m zipfile --extract "$folder"/*.whl "$folder"
  fi
  if [[ -e $folder/include/cudnn_frontend.h ]]; then echo "$STP_ROOT/$folder/include"; fi
}

if [[ $task == --bundle ]]; then
  if ! have nvcc; then
    echo "There is no nvcc here; install the CUDA toolkit, 12.0 or later" >&2
    exit 1
  fi
  install_missing "${STP_BUILD_PACKAGES[@]}" libbenchmark-dev
  options=(-D STP_MPI=OFF)  # the GPU machine may have none, and not this one
  headers=$(cudnn_frontend)
  if [[ -n $headers ]]; then
    options+=(-D STP_CUDNN_FRONTEND_INCLUDE_DIR="$headers")
  else
    echo "Without nvidia-cudnn-frontend, which pip could not download: attention is by our own kernels, unless CMake finds its headers"
  fi
  build_programs "${options[@]}"
  gather_programs
  tar -C "$programs" -czf "$bundle.partial" .
  if (($(stat --format=%s "$bundle.partial") > most_bundle_mib << 20)); then
    rm "$bundle.partial"
    echo "The bundle has more than the $most_bundle_mib MiB that can be carried to a GPU machine;" \
      "build for fewer architectures (CUDAARCHS)" >&2
    exit 1
  fi
  mv "$bundle.partial" "$bundle"
  echo "$bundle: $(du -h "$bundle" | cut -f1), for sm $(tr ';' ' ' <"$programs/architectures")"
  exit 0
fi

if ! have nvidia-smi || ! nvidia-smi --query-gpu=name --format=csv,noheader >/dev/null 2>&1; then
  echo "There is no GPU here (nvidia-smi finds none). scripts/gpu.sh --bundle builds for a machine that has one"
  exit 77
fi
if [[ -z ${STP_GPU_STAGE-} && -e $out ]]; then
  refuse "$out exists, and results are never overwritten; name another folder with --out"
fi
mkdir -p "$out"

# Libraries that Python's packages brought along (cuDNN, NCCL), where the system has none.
python_libraries() {
  python3 - <<'PYTHON' 2>/dev/null || true
import glob, site, sys
paths = [*site.getsitepackages(), site.getusersitepackages()]
print(":".join(sorted(folder for path in paths for folder in glob.glob(path + "/nvidia/*/lib"))))
PYTHON
}
libraries=$programs/lib
for folder in "${LD_LIBRARY_PATH-}" "$(python_libraries)"; do
  libraries+=${folder:+:$folder}
done
LD_LIBRARY_PATH=$libraries
export LD_LIBRARY_PATH STP_DATA_DIR=$STP_ROOT
stp=$programs/bin/stp

stage_machine() {
  nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit --format=csv
  nvidia-smi topo -m || true
  uname -sr
  sed -n 's/^model name.*: //p' /proc/cpuinfo | sort | uniq -c
  if have nvcc; then nvcc --version | tail -n 2; fi
  git -C "$STP_ROOT" rev-parse HEAD 2>/dev/null || echo "no git here"
}

# code_for ARCHITECTURE LIST: what a GPU runs of programs that are built for a list of architectures: `machine` code of its own
# generation, `ptx` of an older one, which the driver compiles, or nothing.
code_for() {
  local each found=
  for each in ${2//;/ }; do
    if [[ ! $each =~ ^[0-9]+$ ]] || ((each > $1)); then continue; fi
    if ((each / 10 == $1 / 10)); then found=machine; else found=${found:-ptx}; fi
  done
  echo "$found"
}

# Lines that begin with "note: " also come into the table.
stage_programs() {
  local arch code='' built tree
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  if [[ -e $bundle ]]; then code=$(code_for "$arch" "$(tar -C / -xzOf "$bundle" ./architectures)"); fi
  if [[ -n $code ]]; then
    rm -rf "$programs"
    mkdir -p "$programs"
    tar -C "$programs" -xzf "$bundle"
    built=$(cat "$programs/revision")
    tree=$(git rev-parse HEAD 2>/dev/null || echo unknown)
    echo "unpacked, built from revision $built; this tree is $tree"
    if [[ $built != "$tree" ]]; then echo "note: built from revision ${built::8}, this tree is ${tree::8}"; fi
    if [[ $code == ptx ]]; then echo "note: the driver compiles PTX for sm $arch"; fi
  else
    echo "no bundle for sm $arch at $bundle: building here"
    build_programs -D CMAKE_CUDA_ARCHITECTURES="$arch"
    gather_programs
  fi
  "$stp" --version
  local driver least=525
  if (($(cat "$programs/cuda") >= 13)); then least=580; fi
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
  if ((${driver%%.*} < least)); then
    echo "the programs are built with CUDA $(cat "$programs/cuda"), which needs a driver of $least or later; here is $driver"
    return 1
  fi
  if ldd "$stp-run" | grep 'not found'; then
    echo "libraries are missing"
    return 1
  fi
  "$stp" doctor | tee "$out/doctor.txt"  # the libraries that are loaded at first use, too
}

# The test programs; first that of the kernels, which cannot hang.
test_programs() {
  find "$programs/tests" -name 'kernels*'
  find "$programs/tests" -type f ! -name 'kernels*' | sort
}

# in_shares COUNT LIMIT COMMAND…: the tests of a program as so many processes, each with its share; {} is its number. They
# stay in the stage's process group, so that they end with it.
in_shares() {
  local share
  for ((share = 0; share < $1; ++share)); do echo "$share"; done |
    GTEST_TOTAL_SHARDS=$1 xargs -P "$1" -I{} \
      env GTEST_SHARD_INDEX={} timeout --foreground --kill-after=5 "$2" "${@:3}" 2>&1
}

# The processor takes most of the time of the kernels' tests, which compare with its own: they are run in shares.
stage_tests() {
  local test name shares failed=0
  mkdir -p "$out/tests"
  for test in $(test_programs); do
    name=$(basename "$test")
    shares=1
    if [[ $name == kernels* ]]; then shares=8; fi
    echo "-- $name"
    in_shares "$shares" "$program_limit" "$test" --gtest_filter='*Gpu*' --gtest_output="json:$out/tests/$name-{}.json" |
      tee "$out/tests/$name.log" || failed=1
    # A test skips itself where it finds no GPU: where there is one, a program all of whose tests do so has failed.
    if ! grep -q '^\[       OK \]' "$out/tests/$name.log"; then
      echo "none of its tests ran; tests/$name.log says why"
      failed=1
    fi
  done
  return "$failed"
}

# sanitize SHARES PROGRAM TOOL OPTION…: its log, and one line for each share.
sanitize() {
  local log=$out/sanitizer/$3-$2.log failed=0
  in_shares "$1" "${limit_of[sanitizer]}" compute-sanitizer --tool "${@:3}" --error-exitcode 1 \
    "$programs/tests/$2" --gtest_brief=1 >"$log" || failed=1
  grep 'SUMMARY' "$log" | sed "s/^=*/$3 of $2:/"
  return "$failed"
}

# Small tests, as under the sanitizer a kernel takes a hundred times as long; in ten processes at once (eighteen found no
# memory). The checks of races and of barriers do not know the instructions with which cuDNN's kernels wait for copies, and
# find errors there: our own kernels run in their place.
stage_sanitizer() {
  local check checks=() failed=0
  if ! have compute-sanitizer; then
    echo "skipped: there is no compute-sanitizer"
    return 77
  fi
  # Modules are loaded when first used: else every kernel of cuBLASLt is instrumented.
  export CUDA_MODULE_LOADING=LAZY STP_SMALL_TESTS=1
  if ! compute-sanitizer --tool memcheck "$programs/tests/cuda_on_gpu_test" --gtest_filter='GpuDevice.*' >"$out/sanitizer_probe.log" 2>&1 &&
    grep -q 'not supported' "$out/sanitizer_probe.log"; then
    echo "skipped: compute-sanitizer does not support this device"
    return 77
  fi
  mkdir -p "$out/sanitizer"
  # Calls that fail on purpose are tested too: only wrong accesses count.
  sanitize 1 kernels_on_gpu_test memcheck --report-api-errors no &
  checks+=("$!")
  GTEST_FILTER='*Gpu*-GpuTraining.*:GpuReplay.*' sanitize 1 cuda_on_gpu_test memcheck --report-api-errors no &
  checks+=("$!")
  STP_CUDNN=0 sanitize 6 kernels_on_gpu_test racecheck &
  checks+=("$!")
  STP_CUDNN=0 sanitize 2 kernels_on_gpu_test synccheck &
  checks+=("$!")
  for check in "${checks[@]}"; do wait "$check" || failed=1; done
  return "$failed"
}

# With graphs and without; heads as models have them also on our own attention, where cuDNN has taken them.
stage_parity() {
  "$stp" run parity-gpu --backend cuda --json "$out/parity.json" &&
    "$stp" run parity-gpu --backend cuda --graphs --json "$out/parity-graphs.json" &&
    "$stp" run parity-heads --backend cuda --json "$out/parity-heads.json" &&
    "$stp" run parity-heads --backend cuda --graphs --json "$out/parity-heads-graphs.json" &&
    STP_CUDNN=0 "$stp" run parity-heads --backend cuda --json "$out/parity-heads-own.json"
}

# launch GPUS COMMAND…: runs a command as two processes that find each other over TCP, as torchrun would. On one GPU,
# each process tells NCCL that it is another host, as NCCL refuses two ranks of a host on one GPU.
launch() {
  local rank pid pids=() failed=0 gpus=$1
  shift
  for rank in 0 1; do
    if ((gpus == 1)); then export NCCL_HOSTID=stp-$rank NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo; fi
    WORLD_SIZE=2 RANK=$rank LOCAL_RANK=$((rank % gpus)) MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 "$@" &
    pids+=("$!")
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}

# Ranks that are processes, over NCCL. With a GPU each also their speed, and nccl-tests' all-reduce if it is installed.
stage_processes() {
  local gpus failed=0
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
  if ((gpus > 2)); then gpus=2; fi
  launch "$gpus" "$stp" run parity-2-gpus --backend cuda --deadline 60 --json "$out/parity-2-processes.json" || failed=1
  if ((gpus == 1)); then
    echo "one GPU, which both processes share: numbers, no times"
    return "$failed"
  fi
  launch "$gpus" "$stp" run train-2-gpus --backend cuda --deadline 60 --json "$out/train-2-gpus.json" --trace "$out/train-2-gpus.trace.json" || failed=1
  launch "$gpus" "$programs/bin/microbench" --backend cuda --quick --benchmark_out="$out/nccl-2-gpus.json" --benchmark_out_format=json || failed=1
  if have all_reduce_perf; then all_reduce_perf -b 1K -e 4M -f 4 -g 2 -d bfloat16 -o sum >"$out/nccl-tests.txt" || failed=1; fi
  return "$failed"
}

# replay NAME ARGUMENT…: rank 0 of 12.1B alone, into replay-NAME.json.
replay() {
  "$stp" run replay-12.1b --backend cuda --replay-rank 0 --json "$out/replay-$1.json" --set run.steps=2 "${@:2}"
}

# Rank 0 of one real configuration at full shard size, over emulated links of the A800.
stage_replay() {
  replay a800 --replay-cluster a800 --set 'schedules=["stp"]' --set 'configurations=[{"parallel": {"pp": 4, "tp": 4}, "microbatches": 16}]'
}

# All configurations, also with links of H200. Each schedule has its own record, so that what is cut off at the limit loses one.
stage_replays() {
  local cluster schedule
  for cluster in a800 h200; do
    for schedule in stp 1f1b-i zb-v; do
      replay "$cluster-$schedule" --replay-cluster "$cluster" --set "schedules=[\"$schedule\"]" \
        --trace "$out/replay-$cluster-$schedule.trace.json" || return 1
    done
  done
  # The effect of graphs on the time of a step: they are captured in the first three.
  for schedule in stp 1f1b-i zb-v; do
    replay "a800-$schedule-graphs" --graphs --replay-cluster a800 --set "schedules=[\"$schedule\"]" --set run.warmup=3 || return 1
  done
}

# microbench FILE FAMILIES: a file is whole when its families are done, so each that is cut off loses its own alone.
microbench() {
  "$programs/bin/microbench" --backend cuda --peers a800 --quick --models llm-12.1b --tokens 6144 --tp 1 4 8 --ranks 2 4 8 \
    --benchmark_filter="^($2)" --benchmark_out="$out/$1.json" --benchmark_out_format=json
}

stage_microbench() { microbench microbench 'gemm|attention|memory|executor' && microbench overlap 'overlap|collective'; }

# step RECORD ARGUMENT…
step() {
  "$stp" run step-gpu --backend cuda --replay-rank 0 --replay-cluster a800 --time-kernels --json "$@"
}

# 76: a criterion is missed.
judge_speed() {
  local code=0
  scripts/gpu_speed "$out/microbench.json" --step "$out/step.json" "$out/step-graphs.json" --json "$out/speed.json" || code=$?
  return $((code == 1 ? 76 : code))
}

stage_speed() {
  if [[ ! -e $out/microbench.json ]]; then
    echo "skipped: there is no microbench.json; see the stage microbench"
    return 77
  fi
  # With graphs too, which are captured in the first three steps: they matter where kernels are short.
  step "$out/step.json" && step "$out/step-graphs.json" --graphs --set run.warmup=3 &&
    judge_speed
}

stage_torch() { scripts/load_in_torch --stp "$stp" --json "$out/torch.json"; }

# Each stage is a process of its own, for `timeout` to end with all that it started.
if [[ -n ${STP_GPU_STAGE-} ]]; then
  "stage_$STP_GPU_STAGE"
  exit
fi

# Until killed, twice a second; drivers before 535 know the other name alone.
sample_clocks() {
  local reasons=clocks_event_reasons.active
  nvidia-smi --query-gpu="$reasons" --format=csv,noheader >/dev/null 2>&1 || reasons=clocks_throttle_reasons.active
  exec nvidia-smi --query-gpu="timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu,$reasons" --format=csv,noheader,nounits --loop-ms=500
}

# By stage, which a line begins each: samples in which a cap of power, heat or the board's own brake slows the clocks.
throttled() {
  local stage=none words reasons
  local -A samples=() slow=()
  while IFS= read -r words; do
    reasons=${words##*[, ]}
    if [[ $words == "stage "* ]]; then
      stage=${words#stage }
    elif [[ $reasons =~ ^0x[0-9a-fA-F]+$ ]]; then
      samples[$stage]=$((${samples[$stage]-0} + 1))
      if ((reasons & 0xEC)); then slow[$stage]=$((${slow[$stage]-0} + 1)); fi
    fi
  done <"$out/clocks.csv"
  for stage in "${!slow[@]}"; do echo "throttled: $stage, ${slow[$stage]} of ${samples[$stage]} samples of its clocks"; done
}

sample_clocks >>"$out/clocks.csv" 2>/dev/null &
trap 'kill "$sampler" 2>/dev/null || true' EXIT
sampler=$!
table=$(printf '%-10s %6s  %s' stage time result)
failed=0
have_programs=true
start=$SECONDS
for stage in "${stages[@]}"; do
  left=$((limit - (SECONDS - start)))
  own=$((left < limit_of[$stage] ? left : limit_of[$stage]))
  began=$SECONDS
  result=passed
  echo "stage $stage" >>"$out/clocks.csv"
  if [[ $skipped == *" $stage "* ]]; then
    result="skipped: by --skip"
  elif [[ ! $stage =~ ^(machine|programs)$ ]] && { ! $have_programs || [[ ! -x $stp ]]; }; then
    result="skipped: there are no programs; see the stage programs"
  elif ((left <= 0)); then
    result="skipped: the limit of $limit s is used up"
  else
    say "$stage"
    status=0
    STP_GPU_STAGE=$stage timeout --kill-after=10 "$own" "$STP_ROOT/scripts/gpu.sh" --out "$out" 2>&1 | tee "$out/$stage.log" ||
      status=$?
    case $status in
      0) result+=$(sed -n 's/^note: /: /p' "$out/$stage.log" | tr -d '\n') ;;
      76) result="missed: $(tail -n 1 "$out/$stage.log")" ;;
      77) result=$(grep '^skipped' "$out/$stage.log" | tail -n 1 || echo skipped) ;;
      124 | 137) result="FAILED: ran into its limit of $own s" ;;
      *) result=FAILED ;;
    esac
  fi
  if [[ $result == FAILED* ]]; then
    failed=1
    if [[ $stage == programs ]]; then have_programs=false; fi
  fi
  table+=$(printf '\n%-10s %4d s  %s' "$stage" $((SECONDS - began)) "$result")
done

kill "$sampler" 2>/dev/null || true
wait "$sampler" || true
slowed=$(throttled)
table+=${slowed:+$'\n'$slowed}
# Where Python has what it needs; else the archive's reader can make it.
if [[ -e $out/overlap.json ]] && overlap=$(python3 plots/microbench.py "$out/overlap.json" "$out/overlap.png" 2>/dev/null); then
  table+=$'\n\n'$overlap
fi
printf '%s\n' "$table" >"$out/table.txt"
tar -C "$(dirname "$out")" -czf "$out.tar.gz.partial" "$(basename "$out")"
mv "$out.tar.gz.partial" "$out.tar.gz"
printf '\n%s\n\nResults: %s\n' "$table" "$out.tar.gz"
exit "$failed"
