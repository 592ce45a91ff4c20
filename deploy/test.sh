#!/bin/bash
# test.sh [--quick]: installs what is needed, builds everything, runs every test.
#
# Order: AddressSanitizer and UBSan suite (built by clang), ThreadSanitizer suite (gcc, as the rest), fuzzers (clang), and
# the release suite last, whose summary by ctest is the last thing printed. --quick runs the release suite only.
# LARDER_FUZZ_SECONDS: how long each fuzzer hunts (default 60, less where that would take over two minutes in all).
set -Eeuo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=$(nproc)
quick=
case ${1:-} in
  '') ;;
  --quick) quick=1 ;;
  *) echo "usage: deploy/test.sh [--quick]" >&2; exit 64 ;;
esac

stage='start'
started=$SECONDS
failed() { echo "FAILED: $stage (after $((SECONDS - started)) s)" >&2; }
trap failed ERR

begin() {
  stage=$1
  echo "== [$((SECONDS - started)) s] $stage"
}

build() {
  begin "$1: build"
  cmake --preset "$1" "${@:2}" >/dev/null
  cmake --build --preset "$1"
}

suite() {
  begin "$1: every test"
  "${@:2}" ctest --preset "$1" -j $((jobs + 2)) --no-tests=error # more than cores: many tests wait for a clock or a peer
}

# ThreadSanitizer cannot place its shadow on kernels that randomise addresses by more than 28 bits; without
# randomisation it can. Where that may not be switched off, it is tried as it is.
without_aslr=()
if setarch "$(uname -m)" -R true 2>/dev/null; then without_aslr=(setarch "$(uname -m)" -R); fi

fuzz() {
  local names count seconds=${LARDER_FUZZ_SECONDS:-60}
  begin "fuzz: build"
  cmake --preset fuzz -DLARDER_FUZZ_SECONDS="$seconds" >/dev/null
  names=$(ctest --preset fuzz -N -L fuzz 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p')
  count=$(echo "$names" | grep -c .)
  # shellcheck disable=SC2086 # one target a word
  cmake --build --preset fuzz --target $names
  # However many fuzzers there are, this stage takes about two minutes at most.
  if [ $((count * seconds)) -gt $((120 * jobs)) ]; then
    seconds=$((120 * jobs / count))
    cmake --preset fuzz -DLARDER_FUZZ_SECONDS="$seconds" >/dev/null
  fi
  begin "fuzz: $count fuzzers, $seconds s each"
  ctest --preset fuzz -L fuzz -j "$jobs" --no-tests=error
}

begin "packages"
deploy/packages.sh test

if [ -z "$quick" ]; then
  build asan
  suite asan
  build tsan
  suite tsan "${without_aslr[@]}"
  fuzz
fi
build release -DLARDER_LTO=OFF # two hundred test programs, each optimised as a whole, take longer than their tests
suite release
