#!/usr/bin/env bash
# Runs one group of client tests through larder: run.sh sdk|curl|agents
#   LARDER, DEMO  the two programs; WORK  a folder of the build tree for installed packages and logs
#   UPSTREAM_ONLY=1  leaves larder out (to try the tests themselves out)
# Exit status: 0 passed, 1 failed, 77 skipped (a line starting with SKIPPED says why).
set -u
group=${1:?group}
here=$(cd "$(dirname "$0")" && pwd)
: "${DEMO:?path of demo_upstream}" "${WORK:?folder to work in}"
mkdir -p "$WORK"
. "$here/lib.sh"

# Agents look for updates and models on the network: where the system allows it, they get a network of loopback alone.
if [ "$group" = agents ] && [ -z "${LARDER_TEST_ISOLATED:-}" ]; then
  if command -v ip >/dev/null && unshare -rn true 2>/dev/null; then
    isolate=1
  else
    echo "note: no network namespace here; the agents are only told to stay offline"
  fi
fi

case $group in
  sdk | agents)
    need_node 18
    install_packages "$group"
    ;;
  curl) command -v curl >/dev/null || skip "curl is missing" ;;
  *) echo "unknown group $group" >&2; exit 2 ;;
esac

if [ -n "${isolate:-}" ]; then
  export LARDER_TEST_ISOLATED=1
  exec unshare -rn bash -c 'ip link set lo up && exec "$@"' bash "$here/run.sh" "$group"
fi

trap stop_all EXIT
trap 'exit 1' INT TERM
start_upstream
start_larder
export BASE CONTROL WORK
status=0
case $group in
  sdk)
    cp "$here"/sdk/*.mjs "$WORK/sdk/"
    for part in openai anthropic ai; do
      (cd "$WORK/sdk" && timeout 240 node --test-reporter=spec "$part.test.mjs") || status=1
    done
    ;;
  *) "$here/$group.sh" || status=$? ;;
esac
larder_is_well || status=1
exit $status
