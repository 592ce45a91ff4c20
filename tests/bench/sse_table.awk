# sse.csv to a table: medians over the rounds; what is added is a proxy's figure less the direct one. Plain awk: no asort.
BEGIN { FS = "," }
NR == 1 { next }
{
  if (!($1 in seen)) { seen[$1] = 1; peers[++peer_count] = $1 }
  n = ++count[$1]
  for (i = 2; i <= NF; i++) value[$1, i, n] = $i
  events[$1] += $3; lost[$1] += $4; failed[$1] += $5
  if ($9 > worst[$1]) worst[$1] = $9
  if ($12 > each[$1]) each[$1] = $12
  streams = $2
}
function median(peer, column,   i, j, t, n, a) {
  n = count[peer]
  for (i = 1; i <= n; i++) a[i] = value[peer, column, i] + 0
  for (i = 2; i <= n; i++) { t = a[i]; for (j = i - 1; j >= 1 && a[j] > t; j--) a[j + 1] = a[j]; a[j + 1] = t }
  return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
}
END {
  printf "\n%d SSE streams, 20 events a second each: delay of an event in us (more than direct), medians of %d rounds\n",
    streams, count[peers[1]]
  printf "%-12s %16s %16s %16s %9s %9s %6s %7s %14s\n", "", "p50", "p99", "p99.9", "max", "events", "lost", "failed", "KB a stream"
  for (p = 1; p <= peer_count; p++) {
    printf "%-12s", peers[p]
    for (i = 6; i <= 8; i++)
      printf " %16s", sprintf("%.0f (%+.0f)", median(peers[p], i), median(peers[p], i) - median(peers[1], i))
    printf " %9.0f %9d %6d %7d %14s\n", worst[peers[p]], events[peers[p]], lost[peers[p]], failed[peers[p]],
      p == 1 ? "-" : each[peers[p]]
  }
}
