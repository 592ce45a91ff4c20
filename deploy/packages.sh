#!/bin/bash
# packages.sh [test]: installs what packages.txt lists and the system lacks. As root, or with sudo.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
with_tests=${1:-}
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

is_offered() {
  apt-cache show --no-all-versions "$1" >/dev/null 2>&1
}

# any_installed A|B: true if one of them is there.
any_installed() {
  local one
  for one in ${1//|/ }; do
    is_installed "$one" && return 0
  done
  return 1
}

wanted=()
while read -r line; do
  line=${line%%#*}
  line=${line// /}
  [ -n "$line" ] || continue
  case $line in
    test:*)
      [ "$with_tests" = test ] || continue
      line=${line#test:}
      ;;
  esac
  case $line in
    *:*)
      command -v "${line%%:*}" >/dev/null && continue
      line=${line#*:}
      ;;
  esac
  any_installed "$line" || wanted+=("$line")
done <"$here/packages.txt"

[ ${#wanted[@]} -gt 0 ] || exit 0

echo "== packages: ${wanted[*]}"
"${as_root[@]}" apt-get -qq update
names=()
for line in "${wanted[@]}"; do
  found=
  for one in ${line//|/ }; do
    if is_offered "$one"; then
      found=$one
      break
    fi
  done
  # Node and npm serve a few client tests, which skip themselves with a visible line where they are missing.
  case $found:$line in
    :npm | :nodejs) echo "packages.sh: the system offers no $line; the tests that need it will be skipped" ;;
    :*) echo "packages.sh: the system offers none of: ${line//|/, }" >&2; exit 1 ;;
    *) names+=("$found") ;;
  esac
done
[ ${#names[@]} -gt 0 ] || exit 0
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${names[@]}" >/dev/null
