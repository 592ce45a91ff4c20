#!/usr/bin/env bash
# The SARIF of larder lint against Microsoft's validator (npm). LARDER, WORK as for run.sh.
# Exit status: 0 passed, 1 failed, 77 skipped (a line starting with SKIPPED says why).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LARDER:?path of larder}" "${WORK:?folder to work in}"
mkdir -p "$WORK"
. "$here/lib.sh"
need_node 18
install_packages sarif
chmod +x "$WORK"/sarif/node_modules/@microsoft/sarif-multitool-*/Sarif.Multitool 2>/dev/null

# The program is .NET: without ICU it must be told so.
export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 DOTNET_CLI_TELEMETRY_OPTOUT=1
multitool() { node "$WORK/sarif/node_modules/@microsoft/sarif-multitool/bin.js" "$@"; }
multitool help >/dev/null 2>&1 || skip "the validator does not start on this system"

cd "$WORK" || exit 1
mkdir -p sarif-input
cat >"sarif-input/two calls, a%b.jsonl" <<'END'
{"model": "m", "user_id": "a", "messages": [{"role": "system", "content": "Be careful.\nCurrent time: 2031-04-09T15:15:42Z\u001b[31m\u202e"}, {"role": "user", "content": "Hello"}]}
{"model": "m", "user_id": "b", "messages": [{"role": "system", "content": "Be careful.\nCurrent time: 2031-04-09T15:16:42Z\u001b[31m\u202e"}, {"role": "user", "content": "Hello"}]}
END
printf 'Du hilfst. 你好\nBattery: 83%%\n' >sarif-input/prompt.md
printf 'Nothing to see here.\n' >sarif-input/clean.md

check() {
  "$LARDER" lint --no-config --format sarif "${@:2}" >"$1.sarif"
  case $? in 0 | 1) ;; *) echo "larder lint failed"; exit 1 ;; esac
  multitool validate "$1.sarif" >"$1.out" 2>&1 || { cat "$1.out"; exit 1; }
  grep -q 'Analysis completed successfully' "$1.out" || { cat "$1.out"; exit 1; }
  ! grep ' error ' "$1.out" || exit 1
}
check found "sarif-input/two calls, a%b.jsonl" sarif-input/prompt.md
check clean sarif-input/clean.md
[ "$(grep -c '"ruleId"' found.sarif)" -ge 3 ] || { echo "findings are missing"; exit 1; }

# The validator finds what is wrong: else all of the above says nothing.
sed 's/"startLine":[^,]*/"startLine": 0/' found.sarif >broken.sarif
multitool validate broken.sarif >broken.out 2>&1
grep -q ' error ' broken.out || { echo "a broken file passed"; exit 1; }
echo "valid SARIF"
