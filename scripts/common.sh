# Shared by the scripts; to be sourced. Sets STP_ROOT, and STP_FROM, the caller's working folder.
# shellcheck shell=bash disable=SC2034
set -euo pipefail
STP_FROM=$PWD
STP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export STP_FROM STP_ROOT

# Packages beyond a bare Debian 12: to configure, build and draw; and to run the checks.
STP_BUILD_PACKAGES=(g++ cmake ninja-build nlohmann-json3-dev libcli11-dev libopenblas-dev libtcmalloc-minimal4
  python3 python3-numpy python3-scipy python3-pandas python3-matplotlib python3-jinja2)
STP_TEST_PACKAGES=(git libgtest-dev libgmock-dev libbenchmark-dev libopenmpi-dev openmpi-bin python3-jsonschema
  clang-format clang-tidy shellcheck)

say() { printf '\n== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
# refuse WORD…: ends the script, whose arguments are at fault.
refuse() {
  echo "$*" >&2
  exit 2
}
# The Python that CMake found for build/PRESET, or nothing.
python_of() { sed -n 's/^STP_PYTHON:FILEPATH=//p' "$STP_ROOT/build/$1/CMakeCache.txt"; }

# install_missing PACKAGE…: installs by apt what is not there. Needs root or sudo, and the network, only if something is
# missing. If that fails, says so and continues: the build reports what is missing, which may be installed otherwise.
install_missing() {
  local package log missing=() as_root=()
  if ! have apt-get || ! have dpkg-query; then
    echo "There is no apt here. Needed are, by Debian's names: $*"
    return 0
  fi
  for package in "$@"; do
    dpkg-query --show --showformat '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then return 0; fi
  if ((EUID != 0)); then
    if ! have sudo; then
      echo "Missing, with neither root nor sudo to install them: ${missing[*]}" >&2
      return 0
    fi
    as_root=(sudo)
  fi
  echo "Installing ${missing[*]}"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  log=$(mktemp)
  if ! { "${as_root[@]}" update && "${as_root[@]}" install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "Could not install all of: ${missing[*]}" >&2
  fi
  rm -f "$log"
}

# ccache keeps what uses a precompiled header only where it is allowed to.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros}"

# configure PRESET [ARGUMENT…], build PRESET [ARGUMENT…]: in build/PRESET of the source tree. BUILD_WRAPPER, if set, is
# the command that runs the build.
configure() {
  local launcher=()
  if have ccache; then launcher=(-D CMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  (cd "$STP_ROOT" && cmake --preset "$1" "${launcher[@]}" "${@:2}")
}
build() {
  # shellcheck disable=SC2086  # the wrapper is a command with its arguments
  (cd "$STP_ROOT" && ${BUILD_WRAPPER-} cmake --build --preset "$1" --parallel "$(nproc)" "${@:2}")
}
