# The comparison that tests/bench/engine prints, from its three lists: medians, and in brackets the smallest and largest
# of all rounds. A ratio is taken round by round, as the machine drifts between them.
BEGIN { FS = "," }
function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    low = list[1]; high = list[n]
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
function row(name, format, list, n) {
    if (n == 0) return
    m = median(list, n)
    printf "%-44s " format "  (" format " to " format ")\n", name, m, low, high
}
# One that has a target: at least `target`.
function goal(name, format, list, n, target) {
    if (n == 0) return
    m = median(list, n)
    printf "%-44s " format "  (" format " to " format ")  target " format ": %s\n", name, m, low, high, target, \
           (m >= target ? "reached" : "not reached")
}
$1 == "llama.cpp" {
    peer_prefill[++peers] = $3; peer_decode[peers] = $4; peer_prefill_cpu[peers] = $8; peer_decode_cpu[peers] = $9
}
$1 == "larder" {
    prefill[++rounds] = $3; decode[rounds] = $4; read[rounds] = $6; share[rounds] = 100 * $7
    prefill_cpu[rounds] = $8; decode_cpu[rounds] = $9
    if (peers == rounds) { x_prefill[rounds] = $3 / peer_prefill[rounds]; x_decode[rounds] = $4 / peer_decode[rounds] }
}
$1 == "cold" { cold = $3; tokens = $2 }
$1 == "warm" { warm = $3 }
$1 == "together" && $3 == 8 { x_one[++together] = $5; touched = $6 }
END {
    n = peers ? rounds : 0
    row("prefill, tokens a second", "%.1f", prefill, rounds)
    row("  llama.cpp", "%.1f", peer_prefill, peers)
    goal("  times llama.cpp", "%.2f", x_prefill, n, 2.5)
    row("decode, tokens a second", "%.2f", decode, rounds)
    row("  llama.cpp", "%.2f", peer_decode, peers)
    goal("  times llama.cpp", "%.2f", x_decode, n, 1.5)
    row("read bandwidth before and after, GB/s", "%.1f", read, rounds)
    goal("  of it decode reaches, %", "%.0f", share, rounds, 70)
    row("CPU time of a token of prefill, ms", "%.2f", prefill_cpu, rounds)
    row("  llama.cpp", "%.2f", peer_prefill_cpu, peers)
    row("CPU time of a decoded token, ms", "%.2f", decode_cpu, rounds)
    row("  llama.cpp", "%.2f", peer_decode_cpu, peers)
    if (warm)
        printf "%-44s %.2f s, then %.3f s: %.2f %%  target under 5 %%: %s\n", "first token of a prompt of " tokens, cold, \
               warm, 100 * warm / cold, (100 * warm / cold < 5 ? "reached" : "not reached")
    goal("8 sequences at once, times one", "%.2f", x_one, together, 1.8)
    if (together)
        printf "  with even routing they touch %.0f experts of a layer in a step: for weights alone, 8 times the tokens for\n" \
               "  about 3.7 times the bytes of V2-Lite, 2.1 is the most\n", touched
}
