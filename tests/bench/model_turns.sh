#!/bin/sh
# larder and llama.cpp on one model, in turns: tokens a second of prefill and decode, and larder's share of read bandwidth.
#   model_turns.sh LARDER FILE.gguf [ROUNDS] [THREADS]        CSV to stdout; default 3 rounds, 2 threads
# llama.cpp is the prebuilt one of node-llama-cpp 3.21.1, installed into $CACHE (default: a new folder each time); without
# npm, or without the package, only larder is measured and a line says so. Not a test: nothing fails by time.
set -eu
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
larder=$1 file=$2 rounds=${3:-3} threads=${4:-2} prompt=${PROMPT:-512} decode=${DECODE:-32}
here=$(cd "$(dirname "$0")" && pwd)
cache=${CACHE:-$(mktemp -d)}
peer=yes
if [ ! -d "$cache/node_modules/node-llama-cpp" ]; then
    mkdir -p "$cache"
    (cd "$cache" && npm init -y && npm install --ignore-scripts node-llama-cpp@3.21.1) >"$cache/npm.log" 2>&1 || peer=no
fi
[ $peer = yes ] || echo "model_turns.sh: no npm or no node-llama-cpp 3.21.1: llama.cpp is left out" >&2
cp "$here/llama_bench.mjs" "$cache/llama_bench.mjs" # modules are looked for beside the script
echo "program,round,prefill_tokens_s,decode_tokens_s,decode_gb_s,read_gb_s,share"
for round in $(seq "$rounds"); do
    if [ $peer = yes ]; then
        line=$(node "$cache/llama_bench.mjs" "$file" "$threads" "$prompt" "$decode" | tail -1)
        echo "llama.cpp,$round,$line,,,"
    fi
    line=$("$larder" bench-model --model "$file" --threads "$threads" --prompt "$prompt" --decode "$decode" --rounds 1 \
        --csv | sed -n '2s/^1,//p')
    echo "larder,$round,$line"
done
