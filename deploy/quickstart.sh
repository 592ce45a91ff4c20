#!/bin/bash
# quickstart.sh: builds larder and shows what it does, on a fresh Debian 12, with nothing but apt.
#
# Starts a demo upstream whose prefix cache counts hits by DeepSeek's published rule, plays recorded conversations
# of ordinary, slightly sloppy clients against it, once directly and once through larder, and prints both. Then the
# upstream is stopped, and a small model of larder's own answers in its place: no network, no key.
# Exit status 0 only if larder did better and the model answered. Can be run again at any time, from any folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
upstream_pid='' larder_pid='' work=''

cleanup() {
  local pid
  for pid in $larder_pid $upstream_pid; do kill "$pid" 2>/dev/null || true; done
  for pid in $larder_pid $upstream_pid; do wait "$pid" 2>/dev/null || true; done
  if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "== $*"; }

# wait_for FILE PATTERN PID NAME: the address behind the pattern, once the program has printed it.
wait_for() {
  local found
  for _ in $(seq 300); do
    found=$(sed -n "s/.*$2\(127\.0\.0\.1:[0-9]*\).*/\1/p" "$1" | head -n 1)
    if [ -n "$found" ]; then
      echo "$found"
      return 0
    fi
    kill -0 "$3" 2>/dev/null || break
    sleep 0.1
  done
  echo "quickstart: $4 did not start; it said:" >&2
  tail -n 20 "$1" >&2
  return 1
}

# play URL: one line of sums.
play() {
  "$build/tests/demo/demo_player" --url "$1/v1" --control "$upstream" --reset --check-bodies --kind mixed \
    "$root"/tests/demo/corpus/*.jsonl
}

# value NAME LINE: the value of name=value in a line of sums.
value() {
  local v=" $2"
  v=${v#* "$1"=}
  echo "${v%% *}"
}

row() {
  local prompt hit per_mille
  prompt=$(value prompt_tokens "$2")
  hit=$(value hit_tokens "$2")
  per_mille=$(((hit * 1000 + prompt / 2) / prompt))
  printf '  %-16s %10s %15d %17d %9d.%d %%\n' "$1" "$(value calls "$2")" "$prompt" "$hit" \
    $((per_mille / 10)) $((per_mille % 10))
}

"$root/deploy/packages.sh"
say "building (build/release)"
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release --target larder demo_upstream demo_player

work=$(mktemp -d)
say "starting the demo upstream, with DeepSeek's cache rule"
"$build/tests/demo/demo_upstream" --listen 127.0.0.1:0 --rule deepseek >"$work/upstream.log" 2>&1 &
upstream_pid=$!
upstream=http://$(wait_for "$work/upstream.log" 'listening on ' "$upstream_pid" demo_upstream)

say "playing recorded conversations directly"
without=$(play "$upstream")

say "starting larder before it, and playing them again"
"$build/larder" serve --listen 127.0.0.1:0 --admin-listen off --upstream "$upstream" --store "$work/store" \
  >"$work/larder.out" 2>"$work/larder.log" &
larder_pid=$!
larder=http://$(wait_for "$work/larder.log" 'event=listening.* address=' "$larder_pid" larder)
with=$(play "$larder") || {
  echo "quickstart: the conversations did not go through; larder said:" >&2
  tail -n 20 "$work/larder.log" >&2
  exit 1
}
# larder writes what is left of its journal when it is asked to end.
kill "$larder_pid"
wait "$larder_pid" || { echo "quickstart: larder ended with an error" >&2; exit 1; }
larder_pid=''

echo
printf '  %-16s %10s %15s %17s %13s\n' '' requests 'prompt tokens' 'from the cache' 'hit rate'
row 'without larder' "$without"
row 'with larder' "$with"
echo "  (prompt tokens grow a little: a clock that leaves the prefix is said again, in full, in the newest user turn)"
echo
say "larder stats"
"$build/larder" stats --store "$work/store"

if [ "$(value hit_tokens "$with")" -le "$(value hit_tokens "$without")" ]; then
  echo "quickstart: larder did not raise the hits" >&2
  exit 1
fi

echo
say "stopping the upstream; larder answers with a model of its own (3.6 million parameters: it knows little)"
kill "$upstream_pid"
wait "$upstream_pid" 2>/dev/null || true
upstream_pid=''
cat >"$work/larder.yaml" <<END
listen: 127.0.0.1:0
admin: {listen: off}
upstreams:
  - {name: provider, url: $upstream}
  - {name: local, kind: engine, engine: {model: $root/tests/models/tiny-v3}}
routes:
  - {upstream: provider, fallback: local}
store: {dir: $work/store}
END
"$build/larder" serve -c "$work/larder.yaml" >"$work/local.out" 2>"$work/local.log" &
larder_pid=$!
larder=http://$(wait_for "$work/local.log" 'event=listening.* address=' "$larder_pid" larder)
python3 - "$larder" <<'END' || { tail -n 20 "$work/local.log" >&2; exit 1; }
import json, sys, urllib.request

body = {"model": "deepseek-chat", "max_tokens": 60, "temperature": 0,
        "messages": [{"role": "user", "content": "What does stable mean?"}]}
request = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=60) as reply:
    answer = json.load(reply)
    print("  What does stable mean?\n  %s" % answer["choices"][0]["message"]["content"].strip().replace("\n", "\n  "))
    print("  (served by: %s; the provider: %s)" % (reply.headers["x-larder-served-by"], reply.headers["x-larder-failure"]))
    sys.exit(0 if reply.headers["x-larder-served-by"] == "local" else 1)
END
kill "$larder_pid"
wait "$larder_pid" || { echo "quickstart: larder ended with an error" >&2; exit 1; }
larder_pid=''
