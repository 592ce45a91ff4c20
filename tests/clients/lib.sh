# shellcheck shell=bash disable=SC2154,SC2034
# Functions of run.sh: start and stop the two programs, install pinned packages, skip with a reason.

skip() {
  echo "SKIPPED: $*"
  exit 77
}

need_node() {
  command -v node >/dev/null || skip "node is missing (apt install nodejs npm)"
  command -v npm >/dev/null || skip "npm is missing (apt install npm)"
  local major
  major=$(node -p 'process.versions.node.split(".")[0]') || skip "node does not start"
  [ "$major" -ge "$1" ] || skip "node $major is older than $1"
}

# install_packages NAME [OPTION OF NPM]: into the build tree, once for each content of the lock file.
install_packages() {
  local to=$WORK/$1 sum
  sum=$(cat "$here/$1/package.json" "$here/$1/package-lock.json" | sha256sum)
  [ "$(cat "$to/installed" 2>/dev/null)" = "$sum" ] && return 0
  rm -rf "$to" && mkdir -p "$to" && cp "$here/$1"/package*.json "$to/"
  if ! (cd "$to" && timeout 400 npm ci --ignore-scripts --no-audit --no-fund ${2:-} >install.log 2>&1); then
    tail -5 "$to/install.log"
    skip "the npm packages could not be installed"
  fi
  echo "$sum" >"$to/installed"
}

# wait_for FILE PATTERN PID: the address that a program prints once it listens.
wait_for() {
  local i found
  for i in $(seq 200); do
    found=$(sed -n "s/.*$2\(127\.0\.0\.1:[0-9]*\).*/\1/p" "$1" 2>/dev/null | head -1)
    [ -n "$found" ] && echo "$found" && return 0
    kill -0 "$3" 2>/dev/null || break
    sleep 0.05
  done
  echo "did not start; its output:" >&2
  tail -20 "$1" >&2
  return 1
}

# Long enough for a stream of many events, with what a cut in the wrong place would damage.
answer='The log of day 7 says: "wind NNW, 12 knots" and nothing else. 航海日志第七页写道:风向西北,海面平静。 The second mate drew '
answer+='a small boat 🚣 beside it, an é and a backslash \\ for luck; data: [DONE] is what the captain answered. End of the page.'

start_upstream() {
  # shellcheck disable=SC2086 # DEMO may hold a program and its arguments
  $DEMO --listen 127.0.0.1:0 --rule deepseek --answer "$answer" >"$WORK/$group-upstream.log" 2>&1 &
  upstream_pid=$!
  local at
  at=$(wait_for "$WORK/$group-upstream.log" 'listening on ' $upstream_pid) || exit 1
  CONTROL=http://$at
}

start_larder() {
  larder_pid=
  if [ -n "${UPSTREAM_ONLY:-}" ]; then
    BASE=$CONTROL/v1
    return
  fi
  : "${LARDER:?path of larder}"
  store=$WORK/$group-store
  rm -rf "$store"
  $LARDER serve --listen 127.0.0.1:0 --upstream "$CONTROL" --store "$store" --admin-listen off ${LARDER_OPTIONS:-} \
    >"$WORK/$group-larder.out" 2>"$WORK/$group-larder.log" &
  larder_pid=$!
  local at
  at=$(wait_for "$WORK/$group-larder.log" 'event=listening.* address=' $larder_pid) || exit 1
  BASE=http://$at/v1
}

# After the clients: still running, and it stops in order when asked.
larder_is_well() {
  [ -n "$larder_pid" ] || return 0
  if ! kill -0 "$larder_pid" 2>/dev/null; then
    echo "larder ended during the tests:"
    tail -30 "$WORK/$group-larder.log"
    return 1
  fi
  kill -TERM "$larder_pid"
  wait "$larder_pid"
  local code=$?
  larder_pid=
  [ $code -eq 0 ] && return 0
  echo "larder ended with status $code after SIGTERM:"
  tail -30 "$WORK/$group-larder.log"
  return 1
}

stop_all() {
  local pid
  for pid in ${larder_pid:-} ${upstream_pid:-}; do
    kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
  done
}
