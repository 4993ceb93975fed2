#!/usr/bin/env bash
# Rewrites results/reference/simulated: the records of all experiments, as this tree simulates them; then
# splits.json, ablation.json, sensitivity and gpu-h200/predicted.json beside them, and the pages and plots of docs.
# Commit first, so that the records name the revision that made them.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

configure release
build release --target stp
cd "$STP_ROOT"
mkdir -p results/runs
fresh=$(mktemp -d results/runs/reference.XXXXXX)
trap 'rm -rf "$fresh"' EXIT
build/release/bin/stp reproduce --no-plots --out "$fresh/simulated"
rm "$fresh"/simulated/timeline-*.json
mv results/reference/simulated "$fresh/before"
mv "$fresh/simulated" results/reference/simulated
"$(python_of release)" scripts/tp_overlap
"$(python_of release)" scripts/v_search
"$(python_of release)" scripts/bound_gaps >/dev/null
scripts/splits --json results/reference/splits.json
scripts/replayed --json results/reference/gpu-h200/predicted.json
"$(python_of release)" scripts/ablation --json results/reference/ablation.json >/dev/null
for scenario in llm-a800 llm-h20; do
  "$(python_of release)" scripts/sensitivity --scenario "$scenario" --json "results/reference/sensitivity/$scenario.json"
done
"$(python_of release)" scripts/pages
