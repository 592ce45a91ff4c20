#!/usr/bin/env bash
# curl through the gateway: each line is one exchange and what a caller must see. Called by run.sh.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
root=${BASE%/v1}
chat=$BASE/chat/completions
through_gateway=1
[ "$root" = "$CONTROL" ] && through_gateway=

# try NAME CURL-ARGUMENTS...: leaves $tmp/body, $tmp/head, $code, $result.
try() {
  name=$1
  shift
  : >"$tmp/head"
  : >"$tmp/body"
  code=$(curl -sS --max-time 60 -o "$tmp/body" -D "$tmp/head" -w '%{http_code}' \
    -H 'Authorization: Bearer sk-test' -H 'Content-Type: application/json' "$@" 2>"$tmp/error")
  result=$?
}
ok() {
  echo "ok - $name: $1"
}
bad() {
  failed=1
  echo "not ok - $name: $1"
  echo "  exit $result, status $code, $(tr '\r\n' '  ' <"$tmp/head" | cut -c1-300)"
  echo "  body: $(head -c 300 "$tmp/body") $(cat "$tmp/error")"
}
check() { if "${@:2}"; then ok "$1"; else bad "$1"; fi; }
status_is() { [ "$result" = 0 ] && [ "$code" = "$1" ]; }
body_has() { grep -qF -- "$1" "$tmp/body"; }
head_has() { grep -qi -- "$1" "$tmp/head"; }
finished() { [ "$result" = 0 ]; }

ask='{"model":"deepseek-chat","messages":[{"role":"user","content":"Hello, 北京 \"quoted\" \\ 😀"}]}'
ask_stream='{"model":"deepseek-chat","stream":true,"messages":[{"role":"user","content":"Hello"}]}'

try plain -d "$ask" "$chat"
check "status 200" status_is 200
check "an answer with usage" body_has '"usage"'
[ -z "$through_gateway" ] || check "a request id" head_has '^x-larder-request-id: ..*'

try 'chunked request body' -H 'Transfer-Encoding: chunked' -d "$ask" "$chat"
check "status 200" status_is 200

try stream -N -d "$ask_stream" "$chat"
check "status 200" status_is 200
check "an event stream" head_has '^content-type: text/event-stream'
check "ends with [DONE]" body_has 'data: [DONE]'

# A slow answer is printed as it comes: the first event is there long before the stream ends.
name='stream without delay' code='' result=0
mkfifo "$tmp/pipe"
curl -sSN --max-time 60 -H 'Content-Type: application/json' -o "$tmp/pipe" \
  -d '{"model":"drip-100","stream":true,"messages":[{"role":"user","content":"slow"}]}' "$chat" 2>"$tmp/error" &
pid=$!
exec 3<"$tmp/pipe"
IFS= read -r -t 30 first <&3 || first=
if [ -n "$first" ] && kill -0 $pid 2>/dev/null; then ok "the first line comes while the stream goes on"; else bad "first: $first"; fi
exec 3<&-
wait $pid

# 8 MB of text. The same line again and again, with escapes and Chinese.
{
  printf '{"model":"deepseek-chat","messages":[{"role":"user","content":"'
  for _ in $(seq 128); do
    printf 'The log says: \\"wind NNW\\" \\\\ 航海日志第七页。\\n%.0s' $(seq 1280)
  done
  printf '"}]}'
} >"$tmp/large.json"
for how in 'with Expect: 100-continue' 'without Expect'; do
  expect='Expect: 100-continue'
  [ "$how" = 'without Expect' ] && expect='Expect:'
  try "8 MB body $how" -H "$expect" --data-binary "@$tmp/large.json" "$chat"
  check "$(($(wc -c <"$tmp/large.json") >> 10)) KB, status 200" status_is 200
done

try '100-continue is sent when it is asked for' -H 'Expect: 100-continue' --expect100-timeout 30 -d "$ask" "$chat"
check "an interim answer, then status 200" status_is 200
check "the interim answer" head_has '^HTTP/1.1 100'

try 'HTTP/1.0' --http1.0 -d "$ask" "$chat"
check "status 200" status_is 200
check "an answer" body_has '"choices"'
if head_has '^transfer-encoding'; then bad "chunked sent to a 1.0 client"; else ok "not chunked"; fi

try 'HTTP/1.0 stream' --http1.0 -N -d "$ask_stream" "$chat"
check "status 200 and a clean end" status_is 200
check "ends with [DONE]" body_has 'data: [DONE]'
if head_has '^transfer-encoding'; then bad "chunked sent to a 1.0 client"; else ok "not chunked"; fi

try GET "$BASE/models"
check "status 200" status_is 200
check "a list" body_has '"list"'

try HEAD -I "$BASE/models"
check "a clean end" finished
check "a status line" head_has '^HTTP/1.1 [2-5]'

try 'HEAD, then GET on the same connection' -I "$BASE/models" --next -sS -o "$tmp/second" -w ' %{http_code} %{num_connects}' \
  "$BASE/models"
check "a clean end" finished
if grep -qF '"list"' "$tmp/second"; then ok "the second answer is whole"; else bad "second: $(head -c 200 "$tmp/second")"; fi

try OPTIONS -X OPTIONS "$chat"
check "a clean end" finished
check "a status line" head_has '^HTTP/1.1 [2-5]'

try 'unknown path' "$root/no/such/path"
check "status 404" status_is 404

try 'two on one connection' -d "$ask" "$chat" --next -sS -o "$tmp/second" -w ' %{num_connects}' \
  -H 'Content-Type: application/json' -d "$ask" "$chat"
check "the second one needs no new connection" [ "$code" = "200 0" ]

for status in 400 401 404 429 500 503; do
  try "upstream $status" -d "{\"model\":\"status-$status\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}" "$chat"
  check "passed on with its body" status_is $status
  check "an error object" body_has '"error"'
done

try 'cut stream' -N -d '{"model":"cut-after-3","stream":true,"messages":[{"role":"user","content":"cut"}]}' "$chat"
if [ "$result" != 0 ]; then ok "the client sees that it is not whole (exit $result)"; else bad "a quiet end"; fi

if [ -n "$through_gateway" ]; then
  try 'not JSON' -d '{"model":' "$chat"
  check "status 400" status_is 400
  check "in the protocol's form" body_has '"error"'
  try 'not JSON, Anthropic' -d '{"model":' "$BASE/messages"
  check "status 400" status_is 400
  check "in the protocol's form" body_has '"type":"error"'
fi

try 'compressed answer asked for' --compressed -d "$ask" "$chat"
check "status 200" status_is 200
check "readable" body_has '"choices"'

exit $failed
