#!/usr/bin/env bash
# The benchmark: larder beside a direct connection, nginx and haproxy, all measured in the same run, in turns.
#   run.sh BIN [OUT]     BIN holds the load programs; LARDER is the program to measure. Under five minutes.
#   ROUNDS=5 SECONDS_EACH=2 SIZES="1 16 256" SSE_SECONDS=4 SSE_ROUNDS=3 STREAMS=1000 CLIENTS=10000 PARTS="relay sse idle"
# Writes OUT/relay.csv, OUT/sse.csv, OUT/idle.csv (default OUT: BIN/results) and prints the tables. README.md explains them.
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?folder of the load programs}" && pwd)
out=${2:-$bin/results}
ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-2} SIZES=${SIZES:-1 16 256} SSE_SECONDS=${SSE_SECONDS:-4}
SSE_ROUNDS=${SSE_ROUNDS:-3} STREAMS=${STREAMS:-1000} CLIENTS=${CLIENTS:-10000} PARTS=${PARTS:-relay sse idle} CONNECTIONS=32
mkdir -p "$out"
work=$(mktemp -d)
export PATH=$PATH:/usr/sbin:/sbin
. "$here/peers.sh"
trap stop_peers EXIT
trap 'exit 1' INT TERM

# The same for every program: glibc's default of giving large blocks back at once costs more than any proxy does.
export MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TOP_PAD_=16777216
ulimit -n "$(ulimit -Hn)"

# pin CORE COMMAND...: becomes the command, so that $! is its process. In the foreground: inside ( ).
proxy_core=0 load_core=1
if [ "$(nproc)" -lt 2 ] || ! command -v taskset >/dev/null; then
  echo "note: no second core or no taskset; nothing is pinned, the figures are rough"
  pin() { shift; exec "$@"; }
else
  pin() { local core=$1; shift; exec taskset -c "$core" "$@"; }
fi

# measure PEER KILOBYTES ROUND: one line of relay.csv.
measure() {
  local peer=$1 size=$2 round=$3 before after line rss
  pids_of "$peer" # here and not in a subshell, so that it is remembered
  read -r before rss < <(sample_of "$peer")
  line=$(pin $load_core wrk -t1 -c$CONNECTIONS -d"$SECONDS_EACH"s --timeout 10s -s "$here/post.lua" "http://${address[$peer]}" -- \
    "$size" 2>&1 | sed -n 's/^RESULT //p')
  read -r after rss < <(sample_of "$peer")
  [ -n "$line" ] || { echo "no result for $peer at $size KB" >&2; line=0,1,1,0,0; }
  echo "$round,$peer,$size,$line,$((after - before)),$rss" >>"$out/relay.csv"
}

relay() {
  command -v wrk >/dev/null || { echo "wrk is missing (apt install wrk)"; return 1; }
  echo "round,peer,kilobytes,requests,errors,duration_us,p50_us,p99_us,cpu_ns,rss_kb" >"$out/relay.csv"
  local size peer round
  for size in $SIZES; do
    for peer in $peers; do # to fill pools and caches; not counted
      (pin $load_core wrk -t1 -c$CONNECTIONS -d1s -s "$here/post.lua" "http://${address[$peer]}" -- "$size") >/dev/null 2>&1
    done
    for round in $(seq "$ROUNDS"); do
      for peer in $peers; do measure "$peer" "$size" "$round"; done
    done
  done
  awk -f "$here/relay_table.awk" "$out/relay.csv"
}

sse() {
  echo "label,streams,events,lost,failed,p50_us,p99_us,p999_us,max_us,rss_before_kb,rss_during_kb,kb_per_stream" >"$out/sse.csv"
  local peer round
  for round in $(seq "$SSE_ROUNDS"); do
    for peer in direct nginx larder_all; do
      case " $peers " in *" $peer "*) ;; *) continue ;; esac
      (pin $load_core "$bin/sse_load" --connect "${address[$peer]}" --streams "$STREAMS" --seconds "$SSE_SECONDS" \
        --label "$peer" --pid "$(main_pid "$peer")") >>"$out/sse.csv" || echo "$peer: events were lost or streams failed" >&2
    done
  done
  awk -f "$here/sse_table.awk" "$out/sse.csv"
}

idle() {
  echo "label,clients,alive,failed,rss_before_kb,rss_idle_kb,kb_per_client" >"$out/idle.csv"
  case " $peers " in *" larder_all "*) ;; *) return 0 ;; esac
  stop_peer larder_all # a fresh one: what the relay runs left in its pools is not the idle clients' memory
  start_larder_all || return 1
  (pin $load_core "$bin/idle_load" --connect "${address[larder_all]}" --clients "$CLIENTS" --label larder_all \
    --pid "$(main_pid larder_all)") >>"$out/idle.csv" || echo "larder_all: clients were refused or closed" >&2
  awk -F, 'NR > 1 { printf "\n%s idle keep-alive clients: %s of them still connected, larder %.1f MB in all (%.2f KB each)\n",
    $2, $3, $6 / 1024, $7 }' "$out/idle.csv"
}

load=$(cut -d' ' -f1 /proc/loadavg)
if awk -v before="$load" 'BEGIN { exit !(before > 0.7) }'; then
  echo "note: the load average is $load before the start: something else uses this machine, latencies will show it"
fi
start_peers || exit 1
status=0
for part in $PARTS; do
  case $part in
    relay | sse | idle) $part || status=1 ;;
    *) echo "unknown part $part" >&2; status=2 ;;
  esac
done
echo
echo "CSV: $out"
exit $status
