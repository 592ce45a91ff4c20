/* Sequences of the embedded engine: made, forked, cut, freed, and given room (header: engine.h).
 * Flow: whoever serves calls between steps; engine_step.c fills them. One thread, that of the steps; lar_engine_pages
 * any. Why the model's context is checked here and not by the cache: the cache knows tokens, not what they mean.
 * Memory: a table of pages for each sequence; pages of the engine's pool, or a pool of its own. */
#include <stdlib.h>

#include "base/ensure.h"
#include "engine/cache/kv_layers.h"
#include "engine/engine_parts.h"

static lar_error wrap(lar_latent_cache *cache, const lar_sequence *like, lar_sequence **out) {
    lar_sequence *s = calloc(1, sizeof *s);
    if (!s) return lar_latent_cache_free(cache), LAR_NO_MEMORY;
    *s = *like;
    s->cache = cache;
    *out = s;
    return LAR_OK;
}

static lar_error check_capacity(const lar_engine *e, uint32_t capacity, lar_diag *d) {
    if (capacity <= e->config.context) return LAR_OK;
    return lar_fail(LAR_LIMIT, d, "%u tokens; the model's context is %u%s", capacity, e->config.context,
                    lar_config_context_why(&e->config));
}

lar_error lar_sequence_new(const lar_engine *e, uint32_t capacity, lar_sequence **out, lar_diag *d) {
    lar_page_layout layout = lar_engine_layout(e);
    lar_latent_cache *cache;
    *out = NULL;
    lar_error error = check_capacity(e, capacity, d);
    if (error) return error;
    error = e->pool ? lar_latent_cache_new(e->pool, capacity, &cache, d)
                    : lar_latent_cache_new_alone(&layout, capacity, &cache, d);
    return error ? error : wrap(cache, &(lar_sequence){.prefixes = e->prefixes}, out);
}

lar_error lar_sequence_new_in(const lar_engine *e, const char *kv, uint32_t capacity, lar_sequence **out, lar_diag *d) {
    uint8_t formats[LAR_LAYERS_MAX];
    lar_latent_cache *cache;
    *out = NULL;
    lar_error error = check_capacity(e, capacity, d);
    if (!error) error = lar_kv_layers_parse(kv, e->config.layers, formats, d);
    lar_page_layout layout = lar_forward_layout(&e->config, formats);
    if (!error) error = lar_latent_cache_new_alone(&layout, capacity, &cache, d);
    return error ? error : wrap(cache, &(lar_sequence){.prefixes = NULL}, out);
}

lar_error lar_sequence_fork(const lar_sequence *s, lar_sequence **out, lar_diag *d) {
    lar_latent_cache *cache;
    *out = NULL;
    lar_error error = lar_latent_cache_fork(s->cache, &cache, d);
    return error ? error : wrap(cache, s, out);
}

void lar_sequence_free(lar_sequence *s) {
    if (!s) return;
    lar_latent_cache_free(s->cache);
    free(s);
}

uint64_t lar_sequence_token_bytes(const lar_sequence *s) { return lar_latent_cache_token_bytes(s->cache); }

uint32_t lar_sequence_length(const lar_sequence *s) { return lar_latent_cache_length(s->cache); }

void lar_sequence_cut(lar_sequence *s, uint32_t length) {
    LAR_ASSERT(length <= lar_sequence_length(s));
    lar_latent_cache_cut(s->cache, length);
    if (s->keeps && length < (uint64_t)s->end.pages * LAR_PAGE_TOKENS) s->end = lar_prefix_root(s->prefixes, &s->scope);
}

lar_error lar_sequence_reserve(lar_sequence *s, uint32_t tokens, lar_diag *d) {
    return lar_latent_cache_reserve(s->cache, tokens, d);
}

lar_page_counts lar_engine_pages(const lar_engine *e) {
    return e->pool ? lar_page_pool_counts(e->pool) : (lar_page_counts){0};
}
