#!/usr/bin/env bash
# What larder is worth to real coding agents: each runs in two folders with a changed file between, and then in two
# more, once with canonicalisation off (raw) and once on (via). Prints Markdown: hit rates by the demo upstream's cache
# rule. What differs between folders is evidence after the second run, so that the third is the first to gain.
#   LARDER, DEMO  the two programs; WORK  a folder with agents/node_modules, as run.sh agents leaves it
#   RULE=vllm16|openai|deepseek   KEEP=folder  keeps the bodies that went upstream
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
  $DEMO --listen 127.0.0.1:0 --rule "${RULE:-vllm16}" --answer "$answer" >"$WORK/rates-upstream.log" 2>&1 &
  upstream_pid=$!
  local at
  at=$(wait_for "$WORK/rates-upstream.log" 'listening on ' $upstream_pid) || exit 1
  CONTROL=http://$at
}

# The journal's prompt and hit tokens so far.
tokens() {
  "$LARDER" stats --store "$store" --json | node -e '
    let s = ""; process.stdin.on("data", (d) => s += d).on("end", () => { const t = JSON.parse(s).all;
      console.log(t.prompt_tokens, t.hit_tokens); });'
}

# play AGENT MODE: four runs; `sums` gets prompt and hit tokens of the first two and of all.
play() {
  local agent=$1 mode=$2 project
  start_upstream_of
  LARDER_OPTIONS="--canon $mode" start_larder
  new_home
  sums=
  for project in parser server client tools; do
    new_folder "$project"
    [ $project = parser ] || echo "int $project(void) { return 1; }" | tee "$folder/$project.c" >>"$folder/main.c"
    "agent_$agent" || echo "note: $agent ended with status $? in $project" >&2
    sleep 1.5 # another second, another clock; and the journal is written
    [ $project != server ] || sums=$(tokens)
  done
  sums="$sums $(tokens)"
  [ -z "${KEEP:-}" ] || curl -sS "$CONTROL/__log?from=0" >"$KEEP/$agent-$mode.json"
  stop_all
  upstream_pid='' larder_pid=''
}

percent() { awk -v hit="$1" -v all="$2" 'BEGIN { printf all ? "%.1f %%" : "-", all ? 100 * hit / all : 0 }'; }

echo "| agent | prompt tokens | raw, two folders | via larder | raw, the next two | via larder |"
echo "|---|---|---|---|---|---|"
for agent in ${AGENTS:-opencode codex qwen pi}; do
  play "$agent" off
  read -r prompt1 hit1 prompt2 hit2 <<<"$sums"
  raw1=$(percent "$hit1" "$prompt1") raw2=$(percent $((hit2 - hit1)) $((prompt2 - prompt1)))
  play "$agent" on
  read -r prompt1 hit1 prompt2 hit2 <<<"$sums"
  via1=$(percent "$hit1" "$prompt1") via2=$(percent $((hit2 - hit1)) $((prompt2 - prompt1)))
  echo "| $agent | $prompt2 | $raw1 | $via1 | $raw2 | $via2 |"
done
