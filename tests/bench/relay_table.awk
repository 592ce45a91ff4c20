# relay.csv to a table: medians over the rounds, ratios to haproxy and nginx. Plain awk: no asort.
BEGIN { FS = "," }
NR == 1 { next }
{
  key = $3 SUBSEP $2
  if (!($3 in size_seen)) { size_seen[$3] = 1; sizes[++size_count] = $3 }
  if (!($2 in peer_seen)) { peer_seen[$2] = 1; peers[++peer_count] = $2 }
  n = ++count[key]
  done = $4 > 0 ? $4 : 1
  cpu[key, n] = $9 / done / 1000
  rate[key, n] = $4 * 1000000 / $6
  p50[key, n] = $7
  p99[key, n] = $8
  if ($10 > rss[key]) rss[key] = $10
  errors[key] += $5
}
function median(values, key,   i, j, t, n, a) {
  n = count[key]
  for (i = 1; i <= n; i++) a[i] = values[key, i]
  for (i = 2; i <= n; i++) { t = a[i]; for (j = i - 1; j >= 1 && a[j] > t; j--) a[j + 1] = a[j]; a[j + 1] = t }
  return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
}
function ratio(mine, peer, size,   key) {
  key = size SUBSEP peer
  return key in count ? sprintf("%.2f", mine / median(cpu, key)) : "-"
}
END {
  for (s = 1; s <= size_count; s++) {
    printf "\n%d KB bodies, 32 connections, one core for the proxy\n", sizes[s]
    printf "%-12s %12s %10s %9s %9s %8s %11s %9s\n", "", "CPU us/req", "req/s", "p50 us", "p99 us", "RSS MB", "x haproxy", "x nginx"
    for (p = 1; p <= peer_count; p++) {
      key = sizes[s] SUBSEP peers[p]
      mine = median(cpu, key)
      direct = peers[p] == "direct"
      printf "%-12s %12s %10.0f %9.0f %9.0f %8s %11s %9s%s\n", peers[p], direct ? "-" : sprintf("%.1f", mine), median(rate, key),
        median(p50, key), median(p99, key), direct ? "-" : sprintf("%.1f", rss[key] / 1024), direct ? "-" : ratio(mine, "haproxy", sizes[s]),
        direct ? "-" : ratio(mine, "nginx", sizes[s]), errors[key] ? "  " errors[key] " ERRORS" : ""
    }
  }
  print "\nwrk sends the next request when the last is answered, so its latencies are those at full load and hide waiting;"
  print "compare CPU per request first, and read p50/p99 only beside each other."
}
