#!/usr/bin/env bash
# Installs what is missing, builds the suite and reproduces the paper's experiments. Arguments are those of
# `stp reproduce`: scenarios (default: all), --out FOLDER, --no-plots. Safe to run again: each run has its own folder.
# `stp run` is built after the report, which does not need it.
# STP_PRESET: the build that is run, if not `simulate`.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_missing "${STP_BUILD_PACKAGES[@]}"
preset=${STP_PRESET:-simulate}
configure "$preset"
build "$preset" --target stp

said=$(mktemp)
trap 'rm -f "$said"' EXIT
cd "$STP_FROM"
"$STP_ROOT/build/$preset/bin/stp" reproduce "$@" | tee "$said"
folder=$(sed -n 's/^Results.*: //p' "$said" | tail -n 1)
if [[ -f $folder/report.html ]]; then printf 'Open %s/report.html in a browser.\n' "$(cd "$folder" && pwd)"; fi

say "building stp run"
build "$preset" --target stp_run
