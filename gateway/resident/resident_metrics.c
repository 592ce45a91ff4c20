/* What models count, as metrics (lar_resident_metrics in resident.h). Called by admin.c when it is asked; schedulers
 * count. Any thread; does not block. Why sums: a metric has one value, and two models in one process are rare. */
#include "gateway/resident/resident_parts.h"
#include "gateway/resident/warmth.h"

#include <inttypes.h>

typedef struct row {
    lar_metric metric;
    uint64_t value;
} row;

enum { ROWS_MAX = 64 };

static uint32_t rows_of(const lar_scheduler_counts *c, const lar_expert_counts *x, row out[ROWS_MAX]) {
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
        {LAR_METRIC_ENGINE_EXPERT_BYTES, x->bytes},
        {LAR_METRIC_ENGINE_EXPERT_SLOTS, x->slots},
        {LAR_METRIC_ENGINE_EXPERTS, x->experts},
        {LAR_METRIC_ENGINE_EXPERT_HITS_TOTAL, x->hits},
        {LAR_METRIC_ENGINE_EXPERT_MISSES_TOTAL, x->misses},
        {LAR_METRIC_ENGINE_EXPERT_READ_BYTES_TOTAL, x->bytes_read},
        {LAR_METRIC_ENGINE_EXPERT_RUN_MICROSECONDS_TOTAL, x->run_us},
        {LAR_METRIC_ENGINE_EXPERT_STALL_MICROSECONDS_TOTAL, x->stall_us},
        {LAR_METRIC_ENGINE_EXPERT_FAILURES_TOTAL, x->failures},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    _Static_assert((int)ROWS <= (int)ROWS_MAX, "room for all rows");
    for (uint32_t i = 0; i < ROWS; i++) out[i] = rows[i];
    return ROWS;
}

/* What a page store took it may give up later. All models share one, so that its word is asked once. */
static void count_outcomes(lar_resident *const *residents, uint32_t count, row *rows, uint32_t n) {
    const lar_page_store *s = NULL;
    uint64_t kept = 0, lost = 0;
    for (uint32_t r = 0; r < count && !s; r++) s = residents[r]->o.page_store;
    if (!s || !s->outcomes) return;
    s->outcomes(s->context, &kept, &lost);
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].metric == LAR_METRIC_ENGINE_PREFIX_SPILLED_TOTAL) rows[i].value = kept;
        if (rows[i].metric == LAR_METRIC_ENGINE_PREFIX_SPILL_FAILED_TOTAL) rows[i].value += lost;
    }
}

static void warmth_metrics(lar_resident *const *residents, uint32_t count, lar_metrics *m) {
    lar_warmth_counts sum = {0};
    for (uint32_t r = 0; r < count; r++) {
        if (!residents[r]->warmth) continue;
        lar_warmth_counts c = lar_warmth_counts_of(residents[r]->warmth);
        sum.warmed += c.warmed, sum.tokens += c.tokens, sum.stopped += c.stopped, sum.prefixes += c.prefixes;
    }
    lar_metrics_set(m, LAR_METRIC_ENGINE_WARM_PREFIXES, sum.prefixes);
    lar_metrics_set(m, LAR_METRIC_ENGINE_WARMED_TOTAL, (int64_t)sum.warmed);
    lar_metrics_set(m, LAR_METRIC_ENGINE_WARMED_TOKENS_TOTAL, (int64_t)sum.tokens);
    lar_metrics_set(m, LAR_METRIC_ENGINE_WARM_STOPPED_TOTAL, (int64_t)sum.stopped);
}

void lar_resident_metrics(lar_resident *const *residents, uint32_t count, lar_metrics *m) {
    row sums[ROWS_MAX] = {{0}}, one[ROWS_MAX];
    uint32_t n = 0;
    uint64_t gap_us = 0;
    for (uint32_t r = 0; r < count; r++) {
        if (!lar_resident_is_ready(residents[r])) continue;
        lar_scheduler_counts c = lar_scheduler_counts_of(residents[r]->scheduler);
        lar_expert_counts x = lar_engine_experts(residents[r]->engine);
        n = rows_of(&c, &x, one);
        for (uint32_t i = 0; i < n; i++) sums[i] = (row){one[i].metric, sums[i].value + one[i].value};
        if (c.gap_us_max > gap_us) gap_us = c.gap_us_max;
    }
    count_outcomes(residents, count, sums, n);
    for (uint32_t i = 0; i < n; i++) lar_metrics_set(m, sums[i].metric, (int64_t)sums[i].value);
    lar_metrics_set(m, LAR_METRIC_ENGINE_GAP_MICROSECONDS_MAX, (int64_t)gap_us);
    warmth_metrics(residents, count, m);
}
