#!/usr/bin/env bash
# The load programs against their own upstream, without a proxy: every event arrives, in order, and nothing is lost.
set -eu
bin=$1
work=$(mktemp -d)
"$bin/bench_upstream" --listen 127.0.0.1:0 --interval-ms 20 >"$work/upstream" &
pid=$!
trap 'kill $pid; rm -rf "$work"' EXIT
for _ in $(seq 100); do
  [ -s "$work/upstream" ] && break
  sleep 0.05
done
at=$(sed -n 's/^listening on //p' "$work/upstream")
sse=$("$bin/sse_load" --connect "$at" --streams 50 --seconds 1 --interval-ms 20 --pid $pid)
echo "$sse"
case $sse in sse,50,5000,0,0,*) ;; *) echo "50 streams of 100 events were sent"; exit 1 ;; esac
idle=$("$bin/idle_load" --connect "$at" --clients 200 --hold-ms 50 --pid $pid)
echo "$idle"
case $idle in idle,200,200,0,*) ;; *) echo "200 clients should be left"; exit 1 ;; esac
"$bin/proc_sample" $pid
if "$bin/sse_load" --connect 127.0.0.1:1 --streams 3 --seconds 1 >"$work/refused"; then
  echo "a refused connection was not reported"
  exit 1
fi
