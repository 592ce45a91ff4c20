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
$1 == "llama.cpp" { peer_prefill[++peers] = $3; peer_decode[peers] = $4 }
$1 == "larder" {
    prefill[++rounds] = $3; decode[rounds] = $4; read[rounds] = $6; share[rounds] = 100 * $7
    if (peers == rounds) { x_prefill[rounds] = $3 / peer_prefill[rounds]; x_decode[rounds] = $4 / peer_decode[rounds] }
}
$1 == "cold" { cold = $3; tokens = $2 }
$1 == "warm" { warm = $3 }
$1 == "together" && $3 == 8 { x_one[++together] = $5; touched = $6 }
END {
    n = peers ? rounds : 0
    row("prefill, tokens a second", "%.1f", prefill, rounds)
    row("  llama.cpp", "%.1f", peer_prefill, peers)
    row("  times llama.cpp (wanted: 2.5)", "%.2f", x_prefill, n)
    row("decode, tokens a second", "%.2f", decode, rounds)
    row("  llama.cpp", "%.2f", peer_decode, peers)
    row("  times llama.cpp (wanted: 1.5)", "%.2f", x_decode, n)
    row("read bandwidth before and after, GB/s", "%.1f", read, rounds)
    row("  of it decode reaches (wanted: 70 %), %", "%.0f", share, rounds)
    if (warm) printf "%-44s %.2f s, then %.3f s: %.2f %% (wanted: 5)\n", "first token of a prompt of " tokens, cold, warm, 100 * warm / cold
    row("8 sequences at once, times one (wanted: 1.8)", "%.2f", x_one, together)
    if (together)
        printf "  with even routing they touch %.0f experts of a layer in a step: for weights alone, 8 times the tokens for\n" \
               "  about 3.7 times the bytes of V2-Lite, 2.1 is the most\n", touched
}
