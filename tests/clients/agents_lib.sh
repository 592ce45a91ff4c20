# shellcheck shell=bash disable=SC2154,SC2034
# How each agent is set up and called, for agents.sh and agent_rates.sh. Every agent gets an empty environment and an
# empty home, so that nothing of the machine's own set-up takes part. Wanted: WORK, BASE, here.
bin=$WORK/agents/node_modules
node_major=$(node -p 'process.versions.node.split(".")[0]')
path=$(dirname "$(command -v node)"):/usr/bin:/bin
prompt='Reply with one short sentence.'

# new_home: a home in $home; no variables in `settings`.
new_home() {
  home=$(mktemp -d "$WORK/home-XXXXXX")
  settings=()
}

# new_folder NAME: a folder of one file in it, in $folder.
new_folder() {
  folder=$home/$1
  mkdir -p "$folder"
  echo 'int main(void) { return 0; }' >"$folder/main.c"
}

# in_folder COMMAND...: in $folder, with the variables in the array `settings`; output to $home/out and $home/err.
in_folder() {
  (cd "$folder" && timeout 120 env -i PATH="$path" HOME="$home" TERM=dumb LANG=C.UTF-8 "${settings[@]}" "$@" \
    </dev/null >"$home/out" 2>"$home/err")
}

# agent_NAME: runs it on the prompt; its exit status, 77 if it cannot run here (`why` says why).
agent_opencode() {
  [ -x "$bin/opencode-linux-x64/bin/opencode" ] || { why="no binary for this machine"; return 77; }
  cat >"$folder/opencode.json" <<JSON
{ "autoupdate": false, "share": "disabled", "model": "demo/deepseek-chat", "small_model": "demo/deepseek-chat",
  "provider": { "demo": { "npm": "@ai-sdk/openai-compatible", "name": "Demo",
    "options": { "baseURL": "$BASE", "apiKey": "sk-test" },
    "models": { "deepseek-chat": { "name": "demo", "limit": { "context": 64000, "output": 4000 } } } } } }
JSON
  settings=(OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1)
  in_folder "$bin/opencode-linux-x64/bin/opencode" run "$prompt"
}

agent_codex() {
  [ -d "$bin/@openai/codex-linux-x64" ] || { why="no binary for this machine"; return 77; }
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
  in_folder "$bin/.bin/codex" exec --skip-git-repo-check "$prompt"
}

agent_qwen() {
  [ "$node_major" -ge 20 ] || { why="needs Node 20"; return 77; }
  settings=(OPENAI_BASE_URL="$BASE" OPENAI_API_KEY=sk-test OPENAI_MODEL=deepseek-chat QWEN_TELEMETRY_ENABLED=false)
  in_folder "$bin/.bin/qwen" --auth-type openai -p "$prompt"
}

agent_pi() {
  [ "$node_major" -ge 20 ] || { why="needs Node 20"; return 77; }
  mkdir -p "$home/.pi/agent"
  cat >"$home/.pi/agent/models.json" <<JSON
{ "providers": { "m": { "baseUrl": "$BASE", "api": "openai-completions", "apiKey": "sk-test", "models": [
  { "id": "deepseek-chat", "name": "demo", "reasoning": false, "input": ["text"], "contextWindow": 64000,
    "maxTokens": 4000, "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 } } ] } } }
JSON
  settings=(PI_OFFLINE=1)
  in_folder "$bin/.bin/pi" --provider m --model deepseek-chat -p "$prompt"
}
