#!/usr/bin/env bash
# The openai package against models in larder's own process: LARDER, WORK, MODEL (the folder tests/models/tiny-v3).
# Exit status: 0 passed, 1 failed, 77 skipped (a line starting with SKIPPED says why).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LARDER:?path of larder}" "${WORK:?folder to work in}" "${MODEL:?folder of the trained model}"
group=engine
mkdir -p "$WORK"
. "$here/lib.sh"
need_node 18
install_packages sdk

# The same weights with a template that has a place for tools and for thinking, in DeepSeek V3.1's form.
folder=$WORK/engine-models
rm -rf "$folder" "$WORK/engine-store" && mkdir -p "$folder" && cp -r "$MODEL" "$folder/tiny-tools" || exit 1
cat >"$folder/tiny-tools/chat_template.jinja" <<'TEMPLATE'
{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}{% endif %}{% endfor %}
{%- if tools is defined and tools is not none %}{% for t in tools %}
Tool {{ t['function']['name'] }}: {{ t['function'] | tojson }}{% endfor %}{% endif %}
{%- for m in messages %}{% if m['role'] == 'user' %}<｜User｜>{{ m['content'] }}
{%- elif m['role'] == 'assistant' %}<｜Assistant｜>{% if m['content'] is not none %}{{ m['content'] }}{% endif %}
{%- for c in m['tool_calls'] or [] %}<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ c['function']['name'] }}<｜tool▁sep｜>
{{- c['function']['arguments'] }}<｜tool▁call▁end｜><｜tool▁calls▁end｜>{% endfor %}<｜end▁of▁sentence｜>
{%- elif m['role'] == 'tool' %}<｜tool▁output▁begin｜>{{ m['content'] }}<｜tool▁output▁end｜>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<｜Assistant｜>{% endif %}
TEMPLATE

# Where the test itself will listen: an upstream that passes requests on to larder and cuts their answers.
CUT_PORT=$(node -e 'const s = require("net").createServer(); s.listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
export CUT_PORT

cat >"$WORK/engine.yaml" <<CONFIG
listen: 127.0.0.1:0
admin: {listen: "off"}
store: {dir: "$WORK/engine-store"}
upstreams:
  - {name: tiny, kind: engine, engine: {model: "$MODEL", served_name: tiny, sequences: 8, queue: 64, threads: 1}}
  - {name: tools, kind: engine, engine: {model: "$folder/tiny-tools", served_name: tiny-tools, sequences: 2, threads: 1}}
  - {name: narrow, kind: engine, engine: {model: "$MODEL", served_name: narrow, sequences: 1, queue: 2, threads: 1}}
  - {name: cut, url: "http://127.0.0.1:$CUT_PORT", retry: {attempts: 1}, breaker: {open_max: 0}}
routes:
  - {model: cut, upstream: cut, continue: tiny}
  - {model: tiny-tools, upstream: tools}
  - {model: narrow, upstream: narrow}
CONFIG

trap stop_all EXIT
trap 'exit 1' INT TERM
"$LARDER" serve -c "$WORK/engine.yaml" >"$WORK/engine-larder.out" 2>"$WORK/engine-larder.log" &
larder_pid=$!
at=$(wait_for "$WORK/engine-larder.log" 'event=listening.* address=' $larder_pid) || exit 1
export BASE=http://$at/v1
status=0
cp "$here/sdk/engine.test.mjs" "$WORK/sdk/" || exit 1
(cd "$WORK/sdk" && timeout 600 node --test-reporter=spec engine.test.mjs) || status=1
larder_is_well || status=1
exit $status
