/* What a sequence remembers: latents of all tokens and layers, in the format of latent_row.c.
 * Flow: forward.c puts rows, attention reads tiles through the accessor. One thread at a time writes; never blocks.
 * Why an accessor: fewer bits are decoded into the reader's room, a tile at a time, and nothing else changes.
 * Memory: one block, (layers, whole pages of tokens, bytes of a row), taken at once; the system backs its pages as they
 * are written. */
#include "engine/model/latent_cache.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "engine/model/latent_row.h"

struct lar_latent_cache {
    lar_latent_row row;
    uint32_t layers, capacity, length;
    uint64_t row_bytes, layer_bytes;
    uint8_t *data;
};

lar_error lar_latent_cache_new(const lar_model_config *c, uint32_t capacity, lar_kv format, lar_latent_cache **out,
                               lar_diag *d) {
    uint64_t page = lar_kv_info_of(format)->page_tokens, rows = (capacity + page - 1) / page * page;
    lar_latent_row row = {format, c->rank, c->rope.dims};
    uint64_t row_bytes = lar_latent_row_bytes(&row), bytes = c->layers * rows * row_bytes;
    *out = NULL;
    lar_latent_cache *k = calloc(1, sizeof *k);
    uint8_t *data = k ? calloc(bytes ? bytes : 1, 1) : NULL;
    if (!data) {
        free(k);
        return lar_fail(LAR_NO_MEMORY, d, "no memory for %u tokens of context (%llu bytes)", capacity,
                        (unsigned long long)bytes);
    }
    *k = (lar_latent_cache){row, c->layers, capacity, 0, row_bytes, rows * row_bytes, data};
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

uint64_t lar_latent_cache_bytes(const lar_latent_cache *k) { return k->layers * k->layer_bytes; }

static uint8_t *row_at(const lar_latent_cache *k, uint32_t layer, uint32_t position) {
    return k->data + layer * k->layer_bytes + position * k->row_bytes;
}

void lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row) {
    LAR_ASSERT(layer < k->layers && position < k->capacity);
    lar_latent_row_pack(&k->row, row, row_at(k, layer, position));
}

void lar_latent_cache_set_length(lar_latent_cache *k, uint32_t length) {
    LAR_ASSERT(length <= k->capacity);
    k->length = length;
}

static const float *rows(const lar_latents *l, uint32_t first, uint32_t count, float *room) {
    const lar_latent_cache *k = l->cache;
    const uint8_t *from = row_at(k, l->layer, first);
    LAR_ASSERT((uint64_t)first + count <= k->capacity);
    if (k->row.format == LAR_KV_F32) return (const float *)(const void *)from; /* read where they lie */
    for (uint32_t i = 0; i < count; i++, from += k->row_bytes)
        lar_latent_row_unpack(&k->row, from, room + (uint64_t)i * (k->row.rank + k->row.rope));
    return room;
}

lar_latents lar_latent_cache_rows(const lar_latent_cache *k, uint32_t layer) {
    return (lar_latents){.cache = k, .layer = layer, .rows = rows};
}
