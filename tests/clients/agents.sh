#!/usr/bin/env bash
# Real coding agents, one prompt each, through the gateway. Called by run.sh.
# Every agent gets an empty environment and an empty home, so that nothing of the machine's own set-up takes part.
set -u
bin=$WORK/agents/node_modules
failed=0
node_major=$(node -p 'process.versions.node.split(".")[0]')
path=$(dirname "$(command -v node)"):/usr/bin:/bin
prompt='Reply with one short sentence.'

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

# run_agent NAME EXPECTED-ANSWER COMMAND...: in $home, with the variables in the array `settings`.
run_agent() {
  local name=$1 want=$2 before after code
  shift 2
  before=$(count)
  (cd "$home/work" && timeout 120 env -i PATH="$path" HOME="$home" TERM=dumb LANG=C.UTF-8 "${settings[@]}" "$@" \
    </dev/null >"$home/out" 2>"$home/err")
  code=$?
  after=$(count)
  if [ $code -eq 0 ] && grep -qF -- "$(head -1 <<<"$want" | cut -c1-60)" "$home/out" && [ "$after" -gt "$before" ]; then
    echo "ok - $name: finished with the upstream's answer ($((after - before)) requests)"
    return
  fi
  failed=1
  echo "not ok - $name: exit $code, $((after - before)) requests at the upstream, looking for: $want"
  tail -c 1500 "$home/out"
  tail -c 1500 "$home/err"
}

new_home() {
  home=$(mktemp -d "$WORK/home-XXXXXX")
  mkdir -p "$home/work"
  echo 'int main(void) { return 0; }' >"$home/work/main.c"
  settings=()
}

skip_agent() { echo "SKIPPED: $1: $2"; }

opencode() {
  [ -x "$bin/opencode-linux-x64/bin/opencode" ] || { skip_agent opencode "no binary for this machine"; return; }
  new_home
  cat >"$home/work/opencode.json" <<JSON
{ "autoupdate": false, "share": "disabled", "model": "demo/deepseek-chat", "small_model": "demo/deepseek-chat",
  "provider": { "demo": { "npm": "@ai-sdk/openai-compatible", "name": "Demo",
    "options": { "baseURL": "$BASE", "apiKey": "sk-test" },
    "models": { "deepseek-chat": { "name": "demo", "limit": { "context": 64000, "output": 4000 } } } } } }
JSON
  settings=(OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1)
  run_agent opencode "$chat_answer" "$bin/opencode-linux-x64/bin/opencode" run "$prompt"
}

codex() {
  [ -d "$bin/@openai/codex-linux-x64" ] || { skip_agent codex "no binary for this machine"; return; }
  new_home
  mkdir -p "$home/.codex"
  cat >"$home/.codex/config.toml" <<TOML
model = "deepseek-chat"
model_provider = "m"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.m]
name = "m"
base_url = "$BASE"
env_key = "MKEY"
wire_api = "responses"
TOML
  settings=(MKEY=sk-test)
  run_agent codex "$responses_answer" "$bin/.bin/codex" exec --skip-git-repo-check "$prompt"
}

qwen() {
  [ "$node_major" -ge 20 ] || { skip_agent qwen-code "needs Node 20"; return; }
  new_home
  settings=(OPENAI_BASE_URL="$BASE" OPENAI_API_KEY=sk-test OPENAI_MODEL=deepseek-chat QWEN_TELEMETRY_ENABLED=false)
  run_agent qwen-code "$chat_answer" "$bin/.bin/qwen" --auth-type openai -p "$prompt"
}

pi() {
  [ "$node_major" -ge 20 ] || { skip_agent pi-coding-agent "needs Node 20"; return; }
  new_home
  mkdir -p "$home/.pi/agent"
  cat >"$home/.pi/agent/models.json" <<JSON
{ "providers": { "m": { "baseUrl": "$BASE", "api": "openai-completions", "apiKey": "sk-test", "models": [
  { "id": "deepseek-chat", "name": "demo", "reasoning": false, "input": ["text"], "contextWindow": 64000,
    "maxTokens": 4000, "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 } } ] } } }
JSON
  settings=(PI_OFFLINE=1)
  run_agent pi-coding-agent "$chat_answer" "$bin/.bin/pi" --provider m --model deepseek-chat -p "$prompt"
}

rm -rf "$WORK"/home-*
for agent in opencode codex qwen pi; do $agent; done
exit $failed
