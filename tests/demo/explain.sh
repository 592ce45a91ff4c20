#!/bin/bash
# explain.sh: larder explain, stats, baseline and the edition's check on the journal of a real run against the demo
# upstream, whose cache rules are known: predictions must be near what it reported, and every miss must have its reason.
# Environment: LARDER, DEMO, PLAYER (programs), CORPUS (folder of conversations).
set -euo pipefail

: "${LARDER:?} ${DEMO:?} ${PLAYER:?} ${CORPUS:?}"
work=$(mktemp -d)
upstream_pid='' larder_pid=''

cleanup() {
  local pid
  for pid in $larder_pid $upstream_pid; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  echo "FAILED: $1"
  tail -n 20 "$work/larder.log"
  exit 1
}

# wait_for FILE PATTERN PID: the address behind the pattern, once the program has printed it.
wait_for() {
  local found
  for _ in $(seq 400); do
    found=$(sed -n "s/.*$2\(127\.0\.0\.1:[0-9]*\).*/\1/p" "$1" | head -1)
    if [ -n "$found" ]; then echo "$found"; return 0; fi
    kill -0 "$3" 2>/dev/null || break
    sleep 0.05
  done
  tail -20 "$1" >&2
  return 1
}

start_larder() {
  : >"$work/larder.log"
  "$LARDER" serve --listen 127.0.0.1:0 --admin-listen off -c "$work/larder.yaml" >"$work/larder.out" 2>"$work/larder.log" &
  larder_pid=$!
  larder_at=$(wait_for "$work/larder.log" 'event=listening.* address=' $larder_pid)
}

stop_larder() {
  kill -TERM "$larder_pid"
  wait "$larder_pid" || fail "larder ended badly"
  larder_pid=''
}

# field NAME: its value in the JSON of explain.
field() { sed -n "s/.*\"$1\":[[:space:]]*\"\{0,1\}\([^\",]*\).*/\1/p" "$work/why.json" | head -1; }

: >"$work/upstream.log"
"$DEMO" --listen 127.0.0.1:0 --rule deepseek >"$work/upstream.log" 2>&1 &
upstream_pid=$!
control=http://$(wait_for "$work/upstream.log" 'listening on ' $upstream_pid)
cat >"$work/larder.yaml" <<END
upstreams:
  - {name: demo, url: "$control", profile: deepseek}
store: {dir: $work/store}
edition: "2026.12"
END

start_larder
timeout 300 "$PLAYER" --url "http://$larder_at/v1" --control "$control" --reset --check-bodies --kind clock \
  "$CORPUS"/*.jsonl >/dev/null || fail "the traffic did not get through"
stop_larder
store=$work/store

# The last request of a conversation goes on behind its donor, which the clock would have kept from it.
"$LARDER" explain last --store "$store" --format json >"$work/why.json"
[ "$(field why)" = as_expected ] || fail "the last request: $(cat "$work/why.json")"
grep -q '"parts_in":[[:space:]]*null' "$work/why.json" || fail "it parts nowhere"
grep -q '"written_parts_in":[[:space:]]*{' "$work/why.json" || fail "what larder mended is not named"
grep -q '"rule":[[:space:]]*"LR001"' "$work/why.json" || fail "the rule is not named"
id=$(field request_id)
"$LARDER" explain "$id" --store "$store" | grep -q "^request   $id " || fail "its id does not find it"
"$LARDER" explain 1 --store "$store" | grep -q '^why       first:' || fail "the first request has no donor"
if "$LARDER" explain lr-0123456789abcdef --store "$store" 2>"$work/err"; then fail "an id that is not there"; fi

# No request is predicted more than it got, and in all not far less: messages are counted whole.
"$LARDER" export --store "$store" >"$work/all.jsonl"
if grep -o '"drift_tokens":[0-9]*[1-9][0-9]*' "$work/all.jsonl"; then fail "more was predicted than reported"; fi
"$LARDER" stats --store "$store" --json >"$work/stats.json"
predicted=$(sed -n 's/.*"predicted_hit_tokens":[[:space:]]*\([0-9]*\).*/\1/p' "$work/stats.json")
reported=$(sed -n 's/.*"hit_tokens":[[:space:]]*\([0-9]*\).*/\1/p' "$work/stats.json" | head -1)
[ $((predicted * 100)) -ge $((reported * 90)) ] || fail "predicted $predicted of $reported"

# Nothing of a text, and no key, in journal, baseline or explanation.
"$LARDER" baseline record run --store "$store" -c "$work/larder.yaml" -o "$work/run.json"
"$LARDER" baseline compare "$work/run.json" --store "$store" -c "$work/larder.yaml" | grep -q '^same' ||
  fail "a run is not the same as itself"
if grep -qiE 'flour|oven|bread|bakery' "$work/all.jsonl" "$work/run.json" "$work/why.json"; then fail "text was kept"; fi

# Another edition wrote this store: the log says what misses; the next start is quiet.
sed -i 's/^LR003 [0-9]*$/LR003 99/' "$store/edition"
start_larder
grep -q 'event=edition_changed .*changed="\{0,1\}LR003 99 > ' "$work/larder.log" || fail "the change of edition is not told"
stop_larder
start_larder
if grep -q edition_changed "$work/larder.log"; then fail "told twice"; fi
stop_larder
# And a pin on an edition that this program is not refuses the start.
sed -i 's/^edition: .*/edition: "2026.11"/' "$work/larder.yaml"
if "$LARDER" serve --listen 127.0.0.1:0 --admin-listen off -c "$work/larder.yaml" 2>"$work/larder.log"; then
  fail "it started as another edition"
fi
grep -q 'would miss once' "$work/larder.log" || fail "the refusal does not say what would miss"
echo "explained: predicted $predicted of $reported hit tokens"
