#!/bin/bash
# replay.sh KIND: recorded conversations through larder, against the demo upstream's cache rules.
#
# For every rule, plain and streamed: what the upstream served from its cache through larder must be at least
# 0.95 of what it serves to a clean client without larder, in tokens and as a rate (facts that larder moves make
# prompts longer, so either alone could hide a loss); no answer and no message may change on the way; and clean
# bodies must reach the upstream byte for byte. The same traffic without larder must do worse than that,
# or the test would show nothing.
# shared_KIND: the requests go to two larders in turn, which share their memory through REDIS_SERVER; the same limits.
# Environment: LARDER, DEMO, PLAYER (programs), CORPUS (folder of conversations); REDIS_SERVER for shared_KIND.
set -euo pipefail

kind=${1#shared_}
shared=''
[ "$kind" = "$1" ] || shared=yes
player_options=()
if [ "$kind" = clock_fixed ]; then
  kind=clock
  player_options=(--clock-start 2031-04-09T15:15:42)
fi
: "${LARDER:?} ${DEMO:?} ${PLAYER:?} ${CORPUS:?}"
# Arguments can only be rewritten where there are calls.
corpus=("$CORPUS"/*.jsonl)
if [ "$kind" = arguments_rewritten ]; then corpus=("$CORPUS"/{bakery,garden,rail}.jsonl); fi
work=$(mktemp -d)
upstream_pid='' larder_pid='' other_pid='' server_pid=''
also=()

cleanup() {
  local pid
  for pid in $larder_pid $other_pid $server_pid $upstream_pid; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap cleanup EXIT

# wait_for FILE PATTERN PID [up]: the address behind the pattern, once the program has printed it; with `up`, the line.
wait_for() {
  local found
  for _ in $(seq 400); do
    if [ "${4:-}" = up ]; then found=$(grep -m 1 "$2" "$1" || true)
    else found=$(sed -n "s/.*$2\(127\.0\.0\.1:[0-9]*\).*/\1/p" "$1" | head -1); fi
    if [ -n "$found" ]; then echo "$found"; return 0; fi
    kill -0 "$3" 2>/dev/null || break
    sleep 0.05
  done
  echo "no address in $1:" >&2
  tail -20 "$1" >&2
  return 1
}

# stop PID: SIGTERM, a bounded wait, and its exit status.
stop() {
  local status=0
  kill -TERM "$1"
  for _ in $(seq 400); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.05
  done
  if kill -0 "$1" 2>/dev/null; then
    echo "process did not end within 20 s of SIGTERM" >&2
    return 1
  fi
  wait "$1" || status=$?
  return $status
}

# start_server: the shared memory, empty. By its socket alone: no port to be taken by somebody else.
start_server() {
  "${REDIS_SERVER:?}" --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly no --dir "$work" \
    >"$work/redis.log" 2>&1 &
  server_pid=$!
  for _ in $(seq 400); do
    [ -S "$work/redis.sock" ] && return 0
    sleep 0.05
  done
  echo "no server:" >&2
  cat "$work/redis.log" >&2
  return 1
}

# start_one NAME: sets started_pid and started_at.
start_one() {
  local options=()
  [ -z "$shared" ] || options=(--shared-url "unix://$work/redis.sock" --shared-wait 1s)
  rm -rf "$work/store-$1"
  : >"$work/$1.log"
  "$LARDER" serve --listen 127.0.0.1:0 --admin-listen off --upstream "$control" --store "$work/store-$1" \
    "${options[@]}" >"$work/$1.out" 2>"$work/$1.log" &
  started_pid=$!
  started_at=$(wait_for "$work/$1.log" 'event=listening.* address=' $started_pid)
  [ -z "$shared" ] || wait_for "$work/$1.log" 'event=shared_up.* server=[^ ]*' $started_pid up >/dev/null
}

start_larder() {
  also=()
  [ -z "$shared" ] || start_server
  start_one larder
  larder_pid=$started_pid
  larder_at=$started_at
  [ -n "$shared" ] || return 0
  start_one other
  other_pid=$started_pid
  also=(--also "http://$started_at/v1")
}

stop_larder() {
  local pid name
  for name in larder other server; do
    case $name in
      larder) pid=$larder_pid larder_pid='' ;;
      other) pid=$other_pid other_pid='' ;;
      server) pid=$server_pid server_pid='' ;;
    esac
    [ -n "$pid" ] || continue
    stop "$pid" && continue
    echo "$name did not end well:" >&2
    tail -40 "$work/$name.log" >&2
    return 1
  done
}

# play URL KIND [option...]: sets `hit` and `prompt`; a fault or an answer without usage ends the test.
play() {
  local url=$1 of=$2 sums
  shift 2
  if ! sums=$(timeout 300 "$PLAYER" --url "$url/v1" --control "$control" --reset --check-bodies \
    --kind "$of" "$@" "${corpus[@]}"); then
    echo "FAILED: $kind, rule $rule, options: $*: $sums"
    tail -n 20 "$work/upstream.log" "$work/larder.log"
    exit 1
  fi
  case $sums in *' answers_without_usage=0 '*) ;; *) echo "FAILED: usage missing: $sums"; exit 1 ;; esac
  hit=${sums#* hit_tokens=}
  hit=${hit%% *}
  prompt=${sums#* prompt_tokens=}
  prompt=${prompt%% *}
}

# enough: the limits above, for the last play against the clean one.
enough() {
  [ "$kind" = clean ] && [ "$hit" -ne "$clean" ] && return 1
  [ $((hit * 100)) -ge $((clean * 95)) ] && [ $((hit * clean_prompt * 100)) -ge $((clean * prompt * 95)) ]
}

for rule in deepseek openai vllm16; do
  # Emptied here: the shell of the background job may be late, and an old address must not be found.
  : >"$work/upstream.log"
  : >"$work/larder.log"
  "$DEMO" --listen 127.0.0.1:0 --rule $rule >"$work/upstream.log" 2>&1 &
  upstream_pid=$!
  control=http://$(wait_for "$work/upstream.log" 'listening on ' $upstream_pid)
  play "$control" clean
  clean=$hit
  clean_prompt=$prompt
  play "$control" "$kind" "${player_options[@]}"
  raw=$hit
  if [ "$kind" != clean ] && [ $((raw * 100)) -ge $((clean * 90)) ]; then
    echo "FAILED: $kind does no harm under $rule ($raw of $clean): this test shows nothing"
    exit 1
  fi
  for stream in '' --stream; do
    start_larder
    # shellcheck disable=SC2086 # empty or one option
    play "http://$larder_at" "$kind" $stream "${player_options[@]}" "${also[@]}"
    stop_larder
    printf '%-11s %-9s %-8s hit tokens: clean %7d of %7d, as it comes %7d, through larder %7d of %7d\n' \
      "$1" $rule "${stream:-plain}" "$clean" "$clean_prompt" "$raw" "$hit" "$prompt"
    enough || { echo "FAILED: too few hits through larder"; exit 1; }
  done
  stop $upstream_pid
  upstream_pid=''
done
