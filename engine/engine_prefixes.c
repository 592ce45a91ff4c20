/* Kept prefixes of the embedded engine: taken over by new sequences, kept as pages fill, pinned (header: engine.h).
 * Flow: whoever serves calls between steps; prefix_cache.c keeps. The steps' thread; counts any. Blocks where the page
 * store does, and when the engine is opened with one: the model's files are read for its name, and a few tokens are
 * computed.
 * Memory: the prefix cache's.
 * Not here: what a prefix is called, and which page goes first (prefix_cache.c). */
#include <stdlib.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "base/hash.h"
#include "engine/engine_parts.h"
#include "engine/model/model_digest.h"

enum { LOOK_TOKENS = 64 * LAR_PAGE_TOKENS /* at a time */, PROBE_TOKENS = 16 };

static uint64_t mono_ms(void *context) {
    (void)context;
    return lar_clock_mono_ms();
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

/* Hashes what the model keeps of a few tokens in all layers. */
static lar_error try_tokens(lar_engine *n, lar_hash *out, lar_diag *d) {
    const lar_model_config *c = &n->config;
    uint32_t ids[PROBE_TOKENS], count = n->tokens_max < PROBE_TOKENS ? n->tokens_max : PROBE_TOKENS;
    lar_page_layout layout = lar_engine_layout(n);
    lar_latent_cache *k;
    lar_hasher hasher;
    lar_error e = lar_latent_cache_new_alone(&layout, count, &k, d);
    if (e) return e;
    for (uint32_t i = 0; i < count; i++) ids[i] = (uint32_t)(i * 2654435761ull % c->vocab);
    e = lar_forward_run(n->forward, &(lar_forward_part){.cache = k, .ids = ids, .count = count}, 1, NULL, d);
    float *room = malloc(LAR_ATTENTION_TILE * ((size_t)c->rank + c->rope.dims) * sizeof *room);
    if (!e && !room) e = LAR_NO_MEMORY;
    lar_hasher_init(&hasher);
    for (uint32_t i = 0; !e && i < c->layers; i++) {
        lar_latents l = lar_latent_cache_rows(k, i);
        lar_hasher_add(&hasher, l.rows(&l, 0, count, room), count * ((size_t)c->rank + c->rope.dims) * sizeof *room);
    }
    *out = lar_hasher_end(&hasher);
    free(room);
    lar_latent_cache_free(k);
    return e;
}

/* What is computed is part of the name, too: another compiler, library or processor may round otherwise, and a page of
 * its own making is better than one that is not quite the same. */
static lar_error name_arithmetic(lar_engine *n, lar_diag *d) {
    struct {
        lar_digest model;
        lar_hash latents;
    } both = {.model = n->model};
    lar_error e = try_tokens(n, &both.latents, d);
    n->model = lar_digest_of(lar_slice_of((const char *)&both, sizeof both));
    return e;
}

static uint32_t reads_max(const lar_engine *n) {
    uint64_t pages = LAR_ENGINE_ADOPT_BYTES / lar_page_pool_counts(n->pool).page_bytes;
    return pages ? (uint32_t)pages : 1;
}

lar_error lar_engine_open_prefixes(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_error e = o->page_store ? name_arithmetic(n, d) : LAR_OK;
    if (e || !n->pool) return e;
    lar_prefix_options p = {.pool = n->pool,
                            .model = n->model,
                            .store = o->page_store,
                            .reads_max = reads_max(n),
                            .now_ms = o->now_ms ? o->now_ms : mono_ms,
                            .now_context = o->context};
    return lar_prefix_cache_new(&p, &n->prefixes, d);
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
