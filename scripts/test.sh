#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests (the stages format and ci), or the stages named:
#
#   scripts/test.sh [--all] [stage…]
#
#   format     clang-format, shellcheck
#   ci         build with warnings as errors, all tests
#   tidy       clang-tidy
#   asan       the tests under the address and undefined behaviour sanitizers
#   tsan       the tests of code with threads under the thread sanitizer
#   reproduce  scripts/reproduce.sh, to a temporary folder, must leave a report of at most 3 MB
#   fuzz       scripts/fuzz for a minute in all, in the build of asan; skipped without clang
#   transformers  scripts/transformers, with packages that it installs; skipped where it cannot
#
# --all stands for all of them but transformers, which needs the network. A failing stage does not stop the others; the
# table at the end says which did, and the exit code is 1 if one did.
# shellcheck disable=SC2317  # the stages are called by name
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all=(format ci tidy asan tsan reproduce fuzz)
known=("${all[@]}" transformers)
stages=()
for word in "$@"; do
  if [[ $word == --all ]]; then
    stages+=("${all[@]}")
  elif [[ " ${known[*]} " == *" $word "* ]]; then
    stages+=("$word")
  else
    refuse "there is no stage $word; there are ${known[*]}, and --all"
  fi
done
if ((${#stages[@]} == 0)); then stages=(format ci); fi

cd "$STP_ROOT"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

stage_format() {
  scripts/format.sh --check && shellcheck --external-sources scripts/*.sh scripts/fuzz scripts/microbench .ci/run && echo "formatted"
}

# test_preset PRESET [ARGUMENT…]: its tests, in the BUILD_WRAPPER of common.sh.
test_preset() {
  # shellcheck disable=SC2086  # a wrapper has arguments
  ${BUILD_WRAPPER-} ctest --preset "$1" --parallel "$((2 * $(nproc)))" --output-log "$temporary/$1.log" "${@:2}"
}

stage_ci() { configure ci && build ci && test_preset ci; }

# Reads the ci stage's unity files, which need not be built.
stage_tidy() {
  configure ci && build ci --target stp_version && scripts/tidy build/ci && echo "tidy"
}

# Labels of tests that compare many runs, are mostly Python or waiting, install, or need a GPU: once, in the ci stage, is enough.
once='once|plots|calibration|sensitivity|claims|reference|quality|oracle|golden|package|microbench|scripts|docs|layers|kills|gpu'

stage_asan() {
  export UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_stack_use_after_return=1
  configure asan && build asan && test_preset asan --label-exclude "$once"
}

stage_tsan() {
  # The thread sanitizer of g++ 12 cannot run where the kernel spreads mappings widely; where one may, stop it from that.
  local still
  still="setarch $(uname -m) --addr-no-randomize"
  if $still true 2>/dev/null; then export BUILD_WRAPPER=$still; fi
  configure tsan && build tsan --target stp_threads_tests &&
    test_preset tsan --label-regex '^threads$'
}

# Uses the ci stage's build, which is release with warnings as errors.
stage_reproduce() {
  STP_PRESET=ci scripts/reproduce.sh --out "$temporary/figures"
  local bytes
  bytes=$(stat --format %s "$temporary/figures/report.html")
  if ((bytes > 3000000)); then
    echo "report.html has $bytes bytes, where 3 MB are the limit"
    return 1
  fi
}

# Five readers, two at a time.
stage_fuzz() {
  command -v clang++ >/dev/null || return 77
  scripts/fuzz 20
}

# Uses the ci stage's build.
stage_transformers() {
  install_missing python3-torch python3-venv
  configure ci && build ci --target stp_run && scripts/transformers --stp build/ci/bin/stp
}

install_missing "${STP_BUILD_PACKAGES[@]}" "${STP_TEST_PACKAGES[@]}"
table=$(printf '%-12s %6s  %s' stage time result)
failed=0
for stage in "${stages[@]}"; do
  say "$stage"
  start=$SECONDS
  # In a shell of its own, so that -e holds inside and what it exports ends with it.
  set +e
  (set -e; "stage_$stage")
  code=$?
  set -e
  result=passed
  if ((code == 77)); then
    result=skipped
  elif ((code != 0)); then
    result="FAILED ($code)"
    failed=1
  fi
  table+=$(printf '\n%-12s %5ss  %s' "$stage" "$((SECONDS - start))" "$result")
done
for log in "$temporary"/*.log; do
  [[ -e $log ]] || continue
  output=$(awk '/ Test +#[0-9]+: /{failed = /\*\*\*/ && !/\*\*\*Skipped/} /^[0-9]+% tests passed/{exit} failed' "$log")
  if [[ -n $output ]]; then
    say "failed tests: $(basename "$log" .log)"
    tail -n 200 <<<"$output"
  fi
done
say "summary"
printf '%s\n' "$table"
exit "$failed"
