/* What models count, as metrics (lar_resident_metrics in resident.h). Called by admin.c when it is asked; schedulers
 * count. Any thread; does not block. Why sums: a metric has one value, and two models in one process are rare. */
#include "gateway/resident/resident_parts.h"

typedef struct row {
    lar_metric metric;
    uint64_t value;
} row;

enum { ROWS_MAX = 32 };

static uint32_t rows_of(const lar_scheduler_counts *c, row out[ROWS_MAX]) {
    const row rows[] = {
        {LAR_METRIC_ENGINE_WAITING, c->waiting},
        {LAR_METRIC_ENGINE_PREFILLING, c->prefilling},
        {LAR_METRIC_ENGINE_DECODING, c->decoding},
        {LAR_METRIC_ENGINE_JOBS_TOTAL, c->jobs},
        {LAR_METRIC_ENGINE_REFUSED_TOTAL, c->refused},
        {LAR_METRIC_ENGINE_CANCELLED_TOTAL, c->cancelled},
        {LAR_METRIC_ENGINE_PREEMPTED_TOTAL, c->preempted},
        {LAR_METRIC_ENGINE_PROMPT_TOKENS_TOTAL, c->prompt_tokens},
        {LAR_METRIC_ENGINE_CACHED_TOKENS_TOTAL, c->cached_tokens},
        {LAR_METRIC_ENGINE_ANSWER_TOKENS_TOTAL, c->answer_tokens},
        {LAR_METRIC_ENGINE_STEPS_TOTAL, c->steps},
        {LAR_METRIC_ENGINE_STEP_MICROSECONDS_TOTAL, c->step_us},
        {LAR_METRIC_ENGINE_PAGE_BYTES, c->pages.bytes},
        {LAR_METRIC_ENGINE_PAGES, c->pages.pages},
        {LAR_METRIC_ENGINE_PAGES_HELD, c->pages.held},
        {LAR_METRIC_ENGINE_PREFIX_PAGES, c->prefixes.pages},
        {LAR_METRIC_ENGINE_PREFIX_PAGES_IDLE, c->prefixes.idle},
        {LAR_METRIC_ENGINE_PREFIX_PAGES_PINNED, c->prefixes.pinned},
        {LAR_METRIC_ENGINE_PREFIX_HITS_TOTAL, c->prefixes.hits},
        {LAR_METRIC_ENGINE_PREFIX_MISSES_TOTAL, c->prefixes.misses},
        {LAR_METRIC_ENGINE_PREFIX_EVICTED_TOTAL, c->prefixes.evicted},
        {LAR_METRIC_ENGINE_PREFIX_SPILLED_TOTAL, c->prefixes.spilled},
        {LAR_METRIC_ENGINE_PREFIX_RELOADED_TOTAL, c->prefixes.reloaded},
        {LAR_METRIC_ENGINE_PREFIX_SPILL_FAILED_TOTAL, c->prefixes.spill_failed},
        {LAR_METRIC_ENGINE_PREFIX_RELOAD_FAILED_TOTAL, c->prefixes.reload_failed},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    _Static_assert((int)ROWS <= (int)ROWS_MAX, "room for all rows");
    for (uint32_t i = 0; i < ROWS; i++) out[i] = rows[i];
    return ROWS;
}

void lar_resident_metrics(lar_resident *const *residents, uint32_t count, lar_metrics *m) {
    row sums[ROWS_MAX] = {{0}}, one[ROWS_MAX];
    uint32_t n = 0;
    uint64_t gap_us = 0;
    for (uint32_t r = 0; r < count; r++) {
        lar_scheduler_counts c = lar_scheduler_counts_of(residents[r]->scheduler);
        n = rows_of(&c, one);
        for (uint32_t i = 0; i < n; i++) sums[i] = (row){one[i].metric, sums[i].value + one[i].value};
        if (c.gap_us_max > gap_us) gap_us = c.gap_us_max;
    }
    for (uint32_t i = 0; i < n; i++) lar_metrics_set(m, sums[i].metric, (int64_t)sums[i].value);
    lar_metrics_set(m, LAR_METRIC_ENGINE_GAP_MICROSECONDS_MAX, (int64_t)gap_us);
}
