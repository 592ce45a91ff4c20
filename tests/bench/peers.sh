# shellcheck shell=bash disable=SC2154,SC2034
# Functions of run.sh: starts every peer on a free port of loopback, one core and one worker each, and finds its processes.
# peers: names in the order of the rounds; address[NAME]; pids[NAME].
declare -A address pids family family_of
peers=direct

free_port() { # a port that nothing listens on just now
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

wait_open() { # wait_open ADDRESS PID LOG
  local i
  for i in $(seq 200); do
    (exec 3<>"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null && return 0
    kill -0 "$2" 2>/dev/null || break
    sleep 0.05
  done
  echo "did not start; its output:" >&2
  tail -20 "$3" >&2
  return 1
}

# All processes of a peer: its own and its children (nginx's worker), found once.
# Not every kernel has /proc/PID/task/PID/children.
pids_of() {
  local pid=${pids[$1]}
  if [ "${family_of[$1]:-}" != "$pid" ]; then
    family[$1]="$pid $(grep -lE "^[0-9]+ \(.*\) . $pid " /proc/[0-9]*/stat 2>/dev/null | tr -dc '0-9\n' | tr '\n' ' ')"
    family_of[$1]=$pid
  fi
  found=${family[$1]}
}
# What holds the connections: the worker where there is one.
main_pid() {
  local all
  pids_of "$1"
  read -r -a all <<<"$found"
  echo "${all[-1]}"
}
# "cpu_ns rss_kb" of all of them.
sample_of() {
  pids_of "$1"
  # shellcheck disable=SC2086 # a list of numbers
  "$bin/proc_sample" $found
}

start_upstream() {
  pin $load_core "$bin/bench_upstream" --listen 127.0.0.1:0 >"$work/upstream.log" 2>&1 &
  pids[direct]=$!
  local i
  for i in $(seq 100); do
    address[direct]=$(sed -n 's/^listening on //p' "$work/upstream.log")
    [ -n "${address[direct]}" ] && return 0
    sleep 0.05
  done
  echo "the upstream did not start" >&2
  return 1
}

start_nginx() {
  command -v nginx >/dev/null || { echo "note: nginx is missing (apt install nginx), left out"; return 0; }
  local port
  port=$(free_port)
  mkdir -p "$work/nginx"
  cat >"$work/nginx.conf" <<CONF
daemon off; worker_processes 1; worker_rlimit_nofile 65536; pid $work/nginx.pid; error_log $work/nginx.log error;
events { worker_connections 16384; }
http {
  access_log off; keepalive_requests 100000000; client_max_body_size 64m; client_body_buffer_size 512k;
  client_body_temp_path $work/nginx; proxy_temp_path $work/nginx; fastcgi_temp_path $work/nginx;
  uwsgi_temp_path $work/nginx; scgi_temp_path $work/nginx; tcp_nodelay on;
  upstream api { server ${address[direct]}; keepalive 2048; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:$port backlog=4096;
    location / {
      proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off;
    }
  }
}
CONF
  pin $proxy_core nginx -c "$work/nginx.conf" -p "$work" >"$work/nginx.out" 2>&1 &
  pids[nginx]=$!
  address[nginx]=127.0.0.1:$port
  wait_open "${address[nginx]}" "${pids[nginx]}" "$work/nginx.out" && peers="$peers nginx"
}

start_haproxy() {
  command -v haproxy >/dev/null || { echo "note: haproxy is missing (apt install haproxy), left out"; return 0; }
  local port
  port=$(free_port)
  cat >"$work/haproxy.cfg" <<CONF
global
  nbthread 1
  maxconn 6000
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend f
  bind 127.0.0.1:$port
  default_backend b
backend b
  server s ${address[direct]} pool-max-conn -1
CONF
  pin $proxy_core haproxy -db -f "$work/haproxy.cfg" >"$work/haproxy.out" 2>&1 &
  pids[haproxy]=$!
  address[haproxy]=127.0.0.1:$port
  wait_open "${address[haproxy]}" "${pids[haproxy]}" "$work/haproxy.out" && peers="$peers haproxy"
}

# start_larder NAME OPTIONS...
start_larder() {
  local name=$1 i
  shift
  # The access line is off, as nginx's and haproxy's are.
  pin $proxy_core "$LARDER" serve --listen 127.0.0.1:0 --upstream "http://${address[direct]}" --threads 1 \
    --admin-listen off --log-access false ${LARDER_OPTIONS:-} "$@" >"$work/$name.out" 2>"$work/$name.log" &
  pids[$name]=$!
  for i in $(seq 200); do
    address[$name]=$(sed -n 's/.*event=listening.* address=\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$work/$name.log" | head -1)
    [ -n "${address[$name]}" ] && return 0
    kill -0 "${pids[$name]}" 2>/dev/null || break
    sleep 0.05
  done
  echo "$name did not start; its output:" >&2
  tail -20 "$work/$name.log" >&2
  return 1
}
start_larder_off() { start_larder larder_off --canon-mode off; }
start_larder_all() {
  rm -rf "$work/store"
  start_larder larder_all --canon-mode on --store-dir "$work/store"
}

start_peers() {
  start_upstream && start_nginx && start_haproxy || return 1
  if [ -z "${LARDER:-}" ]; then
    echo "note: LARDER is not set; only the peers are measured"
    return 0
  fi
  start_larder_off && start_larder_all && peers="$peers larder_off larder_all"
}

stop_peer() {
  kill "${pids[$1]}" 2>/dev/null && wait "${pids[$1]}" 2>/dev/null
  unset "pids[$1]"
}

stop_peers() {
  local name
  for name in "${!pids[@]}"; do stop_peer "$name"; done
  rm -rf "$work"
}
