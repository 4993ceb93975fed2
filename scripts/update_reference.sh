#!/usr/bin/env bash
# Writes results/reference/simulated anew: the records of all experiments, as this tree simulates them. Commit first,
# so that the records name the revision that made them.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release --target stp
cd "$STP_ROOT"
fresh=results/runs/reference
rm -rf "$fresh"
mkdir -p results/runs
build/release/bin/stp reproduce --no-plots --out "$fresh"
rm -rf results/reference/simulated
mkdir -p results/reference/simulated
mv "$fresh"/*.json results/reference/simulated/
rm -rf "$fresh"
