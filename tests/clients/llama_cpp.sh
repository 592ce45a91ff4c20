#!/usr/bin/env bash
# Made-up GGUF models in larder and in llama.cpp (node-llama-cpp, npm). LARDER, WRITE_MODEL, WORK; TYPES=all: every type
# in both shapes, and legacy files; by hand, it takes minutes.
# Exit status: 0 passed, 1 failed, 77 skipped (a line starting with SKIPPED says why).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${LARDER:?path of larder}" "${WRITE_MODEL:?path of write_model}" "${WORK:?folder to work in}"
mkdir -p "$WORK/llama-files"
. "$here/lib.sh"
need_node 20
[ "$(uname -m)" = x86_64 ] || skip "the pinned build of llama.cpp is for x86-64"
install_packages llama --omit=optional # without the builds for GPUs

models=(tiny-lite:F32 tiny-v3:Q8_0 tiny-v3:Q4_K_MIX:legacy)
if [ "${TYPES:-}" = all ]; then
  models=(tiny-lite:F32:legacy tiny-v3:F32:legacy tiny-lite:Q4_K:legacy tiny-v3:Q4_K:legacy)
  for type in F32 F16 BF16 Q8_0 Q4_0 Q5_0 Q5_1 Q4_K Q5_K Q6_K IQ4_NL IQ4_XS Q4_K_MIX; do
    models+=("tiny-lite:$type" "tiny-v3:$type")
  done
fi
cp "$here/llama/compare.mjs" "$WORK/llama/" || exit 1
node "$WORK/llama/compare.mjs" "$LARDER" "$WRITE_MODEL" "$WORK/llama-files" "${models[@]}"
