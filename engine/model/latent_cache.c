/* What a sequence remembers: latents of all tokens and layers, in float32.
 * Flow: forward.c puts rows, attention reads tiles through the accessor. One thread at a time writes; never blocks.
 * Why an accessor: another form (pages, fewer bits) decodes a tile into the reader's room and nothing else changes.
 * Memory: one block, (layers, capacity, rank + rope), taken at once; the system backs its pages as they are written. */
#include "engine/model/latent_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

struct lar_latent_cache {
    uint32_t layers, row, capacity, length;
    float *data;
};

lar_error lar_latent_cache_new(const lar_model_config *c, uint32_t capacity, lar_latent_cache **out, lar_diag *d) {
    uint64_t row = (uint64_t)c->rank + c->rope.dims, count = (uint64_t)c->layers * capacity * row;
    *out = NULL;
    lar_latent_cache *k = calloc(1, sizeof *k);
    float *data = k ? calloc(count ? count : 1, sizeof *data) : NULL;
    if (!data) {
        free(k);
        return lar_fail(LAR_NO_MEMORY, d, "no memory for %u tokens of context (%llu bytes)", capacity,
                        (unsigned long long)(count * sizeof *data));
    }
    *k = (lar_latent_cache){c->layers, (uint32_t)row, capacity, 0, data};
    *out = k;
    return LAR_OK;
}

void lar_latent_cache_free(lar_latent_cache *k) {
    if (!k) return;
    free(k->data);
    free(k);
}

uint32_t lar_latent_cache_length(const lar_latent_cache *k) { return k->length; }
uint32_t lar_latent_cache_capacity(const lar_latent_cache *k) { return k->capacity; }

uint64_t lar_latent_cache_bytes(const lar_latent_cache *k) {
    return (uint64_t)k->layers * k->capacity * k->row * sizeof *k->data;
}

static float *row_at(const lar_latent_cache *k, uint32_t layer, uint32_t position) {
    return k->data + ((uint64_t)layer * k->capacity + position) * k->row;
}

void lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row) {
    LAR_ASSERT(layer < k->layers && position < k->capacity);
    memcpy(row_at(k, layer, position), row, k->row * sizeof *row);
}

void lar_latent_cache_set_length(lar_latent_cache *k, uint32_t length) {
    LAR_ASSERT(length <= k->capacity);
    k->length = length;
}

static const float *rows(const lar_latents *l, uint32_t first, uint32_t count, float *room) {
    const lar_latent_cache *k = l->cache;
    (void)room; /* rows are read where they lie */
    LAR_ASSERT((uint64_t)first + count <= k->capacity);
    return row_at(k, l->layer, first);
}

lar_latents lar_latent_cache_rows(const lar_latent_cache *k, uint32_t layer) {
    return (lar_latents){.cache = k, .layer = layer, .rows = rows};
}
