#!/usr/bin/env bash
# Formats all C++ of the tree in place; with --check changes nothing and fails if something would change.
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=(-i)
case "${1-}" in
  "") ;;
  --check) mode=(--dry-run --Werror) ;;
  *) refuse "usage: scripts/format.sh [--check]" ;;
esac
cd "$STP_ROOT"
find lib baselines driver microbench tests -name '*.cc' -o -name '*.h' -o -name '*.cu' | sort |
  xargs clang-format "${mode[@]}"
