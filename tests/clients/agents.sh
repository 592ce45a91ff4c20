#!/usr/bin/env bash
# Real coding agents, one prompt each, through the gateway. Called by run.sh.
set -u
failed=0
here=$(cd "$(dirname "$0")" && pwd)
. "$here/agents_lib.sh"

# The answers to look for: what the upstream says when it is asked directly.
ask() {
  curl -sS --max-time 20 -H 'content-type: application/json' -d "$2" "$CONTROL/v1/$1" |
    node -e 'let s = ""; process.stdin.on("data", (d) => s += d).on("end", () => { const a = JSON.parse(s);
      process.stdout.write(a.choices?.[0].message.content ?? a.output.find((o) => o.type === "message").content[0].text); });'
}
chat_answer=$(ask chat/completions "{\"model\":\"deepseek-chat\",\"messages\":[{\"role\":\"user\",\"content\":\"$prompt\"}]}")
responses_answer=$(ask responses "{\"model\":\"deepseek-chat\",\"input\":\"$prompt\"}")
[ -n "$chat_answer" ] && [ -n "$responses_answer" ] || { echo "the upstream gives no answer"; exit 1; }

count() { curl -sS --max-time 20 "$CONTROL/__log?from=999999999" | node -e '
  let s = ""; process.stdin.on("data", (d) => s += d).on("end", () => console.log(JSON.parse(s).count));'; }

# run_agent NAME EXPECTED-ANSWER
run_agent() {
  local name=$1 want=$2 before after code
  new_home
  new_folder work
  before=$(count)
  "agent_$name"
  code=$?
  after=$(count)
  if [ $code -eq 77 ]; then
    echo "SKIPPED: $name: $why"
    return
  fi
  if [ $code -eq 0 ] && grep -qF -- "$(head -1 <<<"$want" | cut -c1-60)" "$home/out" && [ "$after" -gt "$before" ]; then
    echo "ok - $name: finished with the upstream's answer ($((after - before)) requests)"
    return
  fi
  failed=1
  echo "not ok - $name: exit $code, $((after - before)) requests at the upstream, looking for: $want"
  tail -c 1500 "$home/out"
  tail -c 1500 "$home/err"
}

rm -rf "$WORK"/home-*
run_agent opencode "$chat_answer"
run_agent codex "$responses_answer"
run_agent qwen "$chat_answer"
run_agent pi "$chat_answer"
exit $failed
