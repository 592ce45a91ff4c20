#!/usr/bin/env bash
# What larder is worth to real coding agents: each runs twice, from two folders with a changed file between, once with
# canonicalisation off (raw) and once on (via). Prints Markdown: hit rates by the demo upstream's cache rule.
#   LARDER, DEMO  the two programs; WORK  a folder with agents/node_modules, as run.sh agents leaves it
#   RULE=deepseek|openai|vllm16   KEEP=folder  keeps the bodies that went upstream
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LARDER:?path of larder}" "${DEMO:?path of demo_upstream}" "${WORK:?folder of the agents}"
. "$here/lib.sh"
. "$here/agents_lib.sh"
trap stop_all EXIT
trap 'exit 1' INT TERM
need_node 18
group=rates

start_upstream_of() {
  $DEMO --listen 127.0.0.1:0 --rule "${RULE:-deepseek}" --answer "$answer" >"$WORK/rates-upstream.log" 2>&1 &
  upstream_pid=$!
  local at
  at=$(wait_for "$WORK/rates-upstream.log" 'listening on ' $upstream_pid) || exit 1
  CONTROL=http://$at
}

# play AGENT MODE: two runs; leaves "prompt hit requests" of the journal in $sums.
play() {
  local agent=$1 mode=$2
  start_upstream_of
  LARDER_OPTIONS="--canon $mode" start_larder
  new_home
  for project in parser server; do
    new_folder "$project"
    [ $project = parser ] || echo 'int more(void) { return 1; }' | tee "$folder/more.c" >>"$folder/main.c"
    "agent_$agent" || echo "note: $agent ended with status $? in $project" >&2
    sleep 1.5 # another second, another clock
  done
  [ -z "${KEEP:-}" ] || curl -sS "$CONTROL/__log?from=0" >"$KEEP/$agent-$mode.json"
  stop_all
  upstream_pid='' larder_pid=''
  sums=$("$LARDER" stats --store "$store" --json | node -e '
    let s = ""; process.stdin.on("data", (d) => s += d).on("end", () => { const t = JSON.parse(s).all;
      console.log(t.prompt_tokens, t.hit_tokens, t.requests); });')
}

percent() { awk -v hit="$1" -v all="$2" 'BEGIN { printf all ? "%.1f %%" : "-", all ? 100 * hit / all : 0 }'; }

echo "| agent | requests | prompt tokens | raw | via larder |"
echo "|---|---|---|---|---|"
for agent in ${AGENTS:-opencode codex qwen pi}; do
  play "$agent" off
  read -r raw_prompt raw_hit raw_requests <<<"$sums"
  play "$agent" on
  read -r prompt hit requests <<<"$sums"
  echo "| $agent | $raw_requests, $requests | $raw_prompt | $(percent "$raw_hit" "$raw_prompt") | $(percent "$hit" "$prompt") |"
done
