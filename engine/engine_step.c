/* A step of the embedded engine: checked as a whole, given its pages, and cut into passes (header: engine.h).
 * Flow: whoever serves calls; forward.c computes each pass. One step at a time; blocks while it computes.
 * Why passes: scratch memory is planned for so many tokens, and a longer prompt goes through in pieces. Why all pages
 * before the first pass: what can fail has failed before anything was computed, but for experts that are on disk.
 * Memory: allocates nothing.
 * Invariant: after an error no sequence has changed, nor what is reserved for it. */
#include "engine/engine_parts.h"

enum { PARTS = 256 /* of one pass; more are done in several */ };

/* How far a step has come: part `part`, of which `done` tokens and `wanted` logits are behind. */
typedef struct place {
    uint32_t part, done, wanted;
} place;

typedef struct pass {
    lar_forward_part parts[PARTS];
    uint32_t count, tokens, wanted;
} pass;

/* As much of the part at `at` as the pass has room for. */
static void take(pass *p, const lar_engine_part *from, place *at, uint32_t room) {
    uint32_t left = from->count - at->done;
    lar_forward_part *to = &p->parts[p->count++];
    *to = (lar_forward_part){.cache = from->sequence->cache,
                             .ids = from->ids + at->done,
                             .count = left < room ? left : room,
                             .wanted = from->wanted ? from->wanted + at->wanted : NULL,
                             .wanted_from = at->done};
    at->done += to->count;
    while (at->wanted + to->wanted_count < from->wanted_count && to->wanted[to->wanted_count] < at->done)
        to->wanted_count++;
    at->wanted += to->wanted_count;
    p->tokens += to->count;
    p->wanted += to->wanted_count;
    if (at->done == from->count) *at = (place){at->part + 1, 0, 0};
}

static lar_error check(lar_engine *e, const lar_engine_part *p, lar_diag *d) {
    lar_forward_part whole = {p->sequence->cache, p->ids, p->count, p->wanted, p->wanted_count, 0};
    if (p->sequence->step == e->steps) return lar_fail(LAR_INVALID, d, "a sequence is in the step twice");
    p->sequence->step = e->steps;
    for (uint32_t k = 1; k < p->wanted_count; k++)
        if (p->wanted[k] < p->wanted[k - 1])
            return lar_fail(LAR_INVALID, d, "wanted logits are out of order: token %u after %u", p->wanted[k],
                            p->wanted[k - 1]);
    return lar_forward_check(e->forward, &whole, d);
}

/* Pages for all parts, or for none. */
static lar_error reserve(lar_engine *e, const lar_engine_part *parts, uint32_t count, lar_diag *d) {
    uint64_t lacks = 0;
    for (uint32_t i = 0; i < count; i++) lacks += lar_latent_cache_lacks(parts[i].sequence->cache, parts[i].count);
    if (e->pool && (lacks > UINT32_MAX || !lar_page_ensure(e->pool, (uint32_t)lacks))) {
        lar_page_counts c = lar_page_pool_counts(e->pool);
        return lar_fail(LAR_FULL, d, "the step needs %llu pages of %u tokens more; of %u in all %u are free",
                        (unsigned long long)lacks, LAR_PAGE_TOKENS, c.pages, c.pages - c.held);
    }
    lar_error error = LAR_OK;
    for (uint32_t i = 0; !error && i < count; i++)
        error = lar_latent_cache_reserve(parts[i].sequence->cache, parts[i].count, d);
    return error;
}

static lar_error run(lar_engine *e, const lar_engine_part *parts, uint32_t count, float *logits, lar_diag *d) {
    place at = {0};
    while (at.part < count) {
        pass p;
        p.count = p.tokens = p.wanted = 0;
        while (at.part < count && p.count < PARTS && p.tokens < e->tokens_max)
            take(&p, &parts[at.part], &at, e->tokens_max - p.tokens);
        lar_error error = lar_forward_run(e->forward, p.parts, p.count, logits, d);
        if (error) return error;
        if (p.wanted) logits += (uint64_t)p.wanted * e->config.vocab; /* NULL where none are wanted */
    }
    return LAR_OK;
}

lar_error lar_engine_step(lar_engine *e, const lar_engine_part *parts, uint32_t count, float *logits, lar_diag *d) {
    e->steps++;
    for (uint32_t i = 0; i < count; i++) {
        lar_error error = check(e, &parts[i], d);
        if (error) return error;
    }
    for (uint32_t i = 0; i < count; i++) lar_latent_cache_mark(parts[i].sequence->cache);
    lar_error error = reserve(e, parts, count, d);
    if (!error) error = run(e, parts, count, logits, d);
    for (uint32_t i = 0; error && i < count; i++) lar_latent_cache_back(parts[i].sequence->cache);
    return error;
}
