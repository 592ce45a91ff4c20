/* Kept prefixes of the embedded engine: taken over by new sequences, kept as pages fill, pinned (header: engine.h).
 * Flow: whoever serves calls between steps; prefix_cache.c keeps. The steps' thread; counts any. Blocks where the page
 * store does, and when the engine is opened with one: the model's files are read for its name.
 * Memory: the prefix cache's.
 * Not here: what a prefix is called, and which page goes first (prefix_cache.c). */
#include <stdlib.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "engine/engine_parts.h"
#include "engine/model/model_digest.h"

enum { LOOK_TOKENS = 64 * LAR_PAGE_TOKENS /* at a time */ };

static uint64_t mono_ms(void *context) {
    (void)context;
    return lar_clock_mono_ns() / 1000000;
}

lar_error lar_engine_name_model(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    if (!o->page_store) return LAR_OK; /* within one program there is one model */
    lar_model_digest_options m = {.kernels = n->kernels,
                                  .activations = o->activations,
                                  .attention = LAR_ATTENTION_ABSORBED,
                                  .reach = o->expert_bytes ? LAR_DIGEST_SAMPLED : LAR_DIGEST_WHOLE,
                                  .workers = n->workers};
    return lar_model_digest_of(n->files, &m, &n->model, d);
}

static uint32_t reads_max(const lar_engine *n) {
    uint64_t pages = n->pool ? LAR_ENGINE_ADOPT_BYTES / lar_page_pool_counts(n->pool).page_bytes : 0;
    return pages ? (uint32_t)pages : 1;
}

lar_error lar_engine_open_prefixes(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_prefix_options p = {.pool = n->pool,
                            .model = n->model,
                            .store = o->page_store,
                            .reads_max = reads_max(n),
                            .now_ms = o->now_ms ? o->now_ms : mono_ms,
                            .now_context = o->context};
    return n->pool ? lar_prefix_cache_new(&p, &n->prefixes, d) : LAR_OK;
}

uint32_t lar_sequence_adopt(lar_sequence *s, const lar_digest *scope, const uint32_t *ids, uint32_t count) {
    uint32_t length = lar_sequence_length(s), most = count ? count - 1 : 0;
    if (!s->prefixes) return length;
    if (!length) {
        s->keeps = true;
        s->scope = *scope;
        s->end = lar_prefix_root(s->prefixes, scope);
    }
    if (!s->keeps || length != s->end.pages * LAR_PAGE_TOKENS) return length;
    if (most > lar_latent_cache_capacity(s->cache)) most = lar_latent_cache_capacity(s->cache);
    lar_latent_cache_cut(s->cache, length); /* what was reserved */
    for (uint32_t some = LOOK_TOKENS; some == LOOK_TOKENS && length < most;) {
        int32_t pages[LOOK_TOKENS / LAR_PAGE_TOKENS];
        some = most - length < LOOK_TOKENS ? most - length : LOOK_TOKENS;
        lar_prefix_found found = lar_prefix_find(s->prefixes, &s->end, ids + length, some, pages);
        lar_latent_cache_append(s->cache, pages, found.pages);
        some = found.pages * LAR_PAGE_TOKENS;
        length += some;
    }
    return length;
}

void lar_sequence_keep(lar_sequence *s, const uint32_t *ids, uint32_t count) {
    LAR_ASSERT(count == lar_sequence_length(s));
    if (!s->keeps) return;
    for (uint32_t i = s->end.pages; i < count / LAR_PAGE_TOKENS; i++) {
        int32_t own = lar_latent_cache_page(s->cache, i);
        int32_t kept = lar_prefix_publish(s->prefixes, &s->end, ids + (size_t)i * LAR_PAGE_TOKENS, own);
        if (kept != own) lar_latent_cache_replace(s->cache, i, kept);
    }
}

uint32_t lar_engine_pin(lar_engine *e, const lar_digest *scope, const uint32_t *ids, uint32_t count,
                        uint64_t until_ms) {
    return e->prefixes ? lar_prefix_pin(e->prefixes, scope, ids, count, until_ms) : 0;
}

void lar_engine_unpin(lar_engine *e) {
    if (e->prefixes) lar_prefix_unpin(e->prefixes);
}

lar_prefix_counts lar_engine_prefixes(const lar_engine *e) {
    return e->prefixes ? lar_prefix_cache_counts(e->prefixes) : (lar_prefix_counts){0};
}
