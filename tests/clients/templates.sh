#!/usr/bin/env bash
# Chat templates: what larder's interpreter renders against @huggingface/jinja, on real templates and generated
# conversations. TEMPLATE_CASES: the program of that name; WORK as for run.sh. CONVERSATIONS: how many (200).
# Exit status: 0 passed, 1 failed, 77 skipped (a line starting with SKIPPED says why).
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${TEMPLATE_CASES:?path of template_cases}" "${WORK:?folder to work in}"
mkdir -p "$WORK"
. "$here/lib.sh"
need_node 18
install_packages templates
cp "$here"/templates/*.mjs "$WORK/templates/"
cd "$WORK/templates" || exit 1

# compare SHAPE NAME...: equal on every conversation of that shape.
compare() {
  node oracle.mjs "$1.json" "${CONVERSATIONS:-200}" "$@" || exit 1
  "$TEMPLATE_CASES" "$1.json" || { "$TEMPLATE_CASES" --verbose "$1.json" | head -100; exit 1; }
}
compare text deepseek-v3:671b deepseek-v3.1:latest r1-1776:671b deepseek-r1:latest deepseek-v2.5:236b deepseek-coder-v2:16b
compare object glm4:9b granite4:latest llama3.1:8b

# The comparison finds what is wrong: else all of the above says nothing.
sed 's/<｜Assistant｜>/<|Assistant|>/' text.json >broken.json
! "$TEMPLATE_CASES" broken.json >/dev/null || { echo "a changed template passed"; exit 1; }

# With Debian's python3-jinja2: all templates of the package, on conversations of any shape, against Jinja itself.
if python3 -c 'import jinja2' 2>/dev/null; then
  node oracle.mjs any.json "${CONVERSATIONS:-60}" any all || exit 1
  python3 "$here/templates/jinja_oracle.py" any.json python.json || exit 1
  "$TEMPLATE_CASES" python.json | tail -1
  [ "${PIPESTATUS[0]}" -eq 0 ] || { "$TEMPLATE_CASES" --verbose python.json | grep -a conversation | head -50; exit 1; }
else
  echo "without python3-jinja2: the comparison with Jinja itself is left out"
fi
