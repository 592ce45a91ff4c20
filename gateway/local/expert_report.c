/* Counts of an expert cache as text (header: expert_report.h).
 * Called by run_command.c and bench_model.c; engine/experts counts and advises. One thread; blocks on /proc/meminfo.
 * Not here: what the advice is (expert_advice.c). */
#include "gateway/local/expert_report.h"

#include "engine/experts/expert_advice.h"
#include "gateway/resident/memory_left.h"

void lar_expert_report(const lar_engine *e, FILE *to) {
    const double mib = 1 << 20;
    char lines[LAR_EXPERT_ADVICE_LINES][LAR_EXPERT_ADVICE_BYTES];
    lar_expert_counts c = lar_engine_experts(e);
    uint64_t used = c.hits + c.misses;
    if (!c.bytes) return;
    (void)fprintf(to,
                  "[experts: %.1f of %.1f MiB in memory; %.1f %% of %llu uses were hits; %.1f MiB read at %.0f MiB/s a "
                  "thread; %.2f s waited of %.2f s in layers with experts]\n",
                  (double)c.bytes / mib, (double)c.all_bytes / mib, used ? 100 * (double)c.hits / (double)used : 0.0,
                  (unsigned long long)used, (double)c.bytes_read / mib,
                  (double)c.bytes_read / mib * 1e6 / (double)(c.read_us + 1), (double)c.stall_us / 1e6,
                  (double)c.run_us / 1e6);
    uint64_t left = 0;
    lar_diag unknown = {0};
    if (lar_memory_left("", &left, &unknown)) left = 0;
    uint32_t n = lar_expert_advice(&c, left, lines);
    for (uint32_t i = 0; i < n; i++) (void)fprintf(to, "[experts: %s]\n", lines[i]);
}
