/* What a sequence remembers: a table of pages, and rows in them in each layer's format (latent_row.c).
 * Flow: engine.c reserves, forward.c puts rows, attention reads tiles through the accessor: a tile is a page. One
 * thread at a time writes; never blocks.
 * Why an accessor: fewer bits are decoded into the reader's room, a tile at a time, or by who reads them.
 * Memory: the table, for the whole capacity, taken when the sequence is made; pages from the pool.
 * Invariants: 1. The table has a page for every token up to the length. 2. A page with other holders is never written:
 * such a page can only be begun after a cut, and `spare` is what it is copied into. */
#include "engine/cache/latent_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "engine/cache/latent_row.h"

_Static_assert((int)LAR_PAGE_TOKENS == (int)LAR_ATTENTION_TILE, "attention reads whole pages");

struct lar_latent_cache {
    lar_page_pool *pool;
    lar_page_pool *own; /* `pool`, where it belongs to this sequence; NULL: shared with others */
    uint32_t capacity, length;
    uint32_t pages; /* in the table */
    int32_t spare;  /* to copy the begun page into; LAR_PAGE_NONE: not needed */
    uint32_t marked_length, marked_pages;
    bool marked_spare;
    int32_t table[]; /* (pages of the capacity) */
};

static uint32_t pages_of(uint64_t tokens) { return (uint32_t)((tokens + LAR_PAGE_TOKENS - 1) / LAR_PAGE_TOKENS); }

/* -- making ------------------------------------------------------------------------------------------------------- */

lar_error lar_latent_cache_new(lar_page_pool *pool, uint32_t capacity, lar_latent_cache **out, lar_diag *d) {
    *out = NULL;
    lar_latent_cache *k = calloc(1, sizeof *k + pages_of(capacity) * sizeof *k->table);
    if (!k) return lar_fail(LAR_NO_MEMORY, d, "no memory for the pages' table of %u tokens", capacity);
    k->pool = pool;
    k->capacity = capacity;
    k->spare = LAR_PAGE_NONE;
    *out = k;
    return LAR_OK;
}

lar_error lar_latent_cache_new_alone(const lar_page_layout *layout, uint32_t capacity, lar_latent_cache **out,
                                     lar_diag *d) {
    uint64_t pages = pages_of(capacity ? capacity : 1);
    lar_page_pool *own = NULL;
    *out = NULL;
    lar_error e = lar_page_pool_new(layout, pages * lar_page_layout_page_bytes(layout), &own, d);
    if (!e) e = lar_latent_cache_new(own, capacity, out, d);
    if (e) return lar_page_pool_free(own), e;
    (*out)->own = own;
    e = lar_latent_cache_reserve(*out, capacity, d);
    LAR_ASSERT(!e);
    return LAR_OK;
}

static void drop_spare(lar_latent_cache *k) {
    if (k->spare != LAR_PAGE_NONE) lar_page_drop(k->pool, k->spare);
    k->spare = LAR_PAGE_NONE;
}

static void drop_pages(lar_latent_cache *k, uint32_t keep) {
    while (k->pages > keep) lar_page_drop(k->pool, k->table[--k->pages]);
}

void lar_latent_cache_free(lar_latent_cache *k) {
    if (!k) return;
    drop_spare(k);
    drop_pages(k, 0);
    lar_page_pool_free(k->own);
    free(k);
}

static void copy_page(const lar_latent_cache *from, int32_t page, const lar_latent_cache *to, int32_t into) {
    memcpy(lar_page_bytes(to->pool, into), lar_page_bytes(from->pool, page),
           lar_page_pool_counts(from->pool).page_bytes);
}

static lar_error fork_alone(const lar_latent_cache *k, lar_latent_cache **out, lar_diag *d) {
    lar_error e = lar_latent_cache_new_alone(lar_page_pool_layout(k->pool), k->capacity, out, d);
    if (e) return e;
    for (uint32_t i = 0; i < pages_of(k->length); i++) copy_page(k, k->table[i], *out, (*out)->table[i]);
    (*out)->length = k->length;
    return LAR_OK;
}

lar_error lar_latent_cache_fork(const lar_latent_cache *k, lar_latent_cache **out, lar_diag *d) {
    if (k->own) return fork_alone(k, out, d);
    uint32_t whole = k->length / LAR_PAGE_TOKENS;
    lar_error e = lar_latent_cache_new(k->pool, k->capacity, out, d);
    if (e) return e;
    lar_latent_cache *copy = *out;
    for (; copy->pages < whole; copy->pages++) {
        lar_page_share(k->pool, k->table[copy->pages]);
        copy->table[copy->pages] = k->table[copy->pages];
    }
    copy->length = whole * LAR_PAGE_TOKENS;
    e = lar_latent_cache_reserve(copy, k->length - copy->length, d);
    if (e) {
        lar_latent_cache_free(copy);
        *out = NULL;
        return e;
    }
    if (copy->pages > whole) copy_page(k, k->table[whole], copy, copy->table[whole]);
    copy->length = k->length;
    return LAR_OK;
}

uint32_t lar_latent_cache_length(const lar_latent_cache *k) { return k->length; }
uint32_t lar_latent_cache_capacity(const lar_latent_cache *k) { return k->capacity; }
uint64_t lar_latent_cache_token_bytes(const lar_latent_cache *k) {
    return lar_page_layout_token_bytes(lar_page_pool_layout(k->pool));
}
uint32_t lar_latent_cache_pages(const lar_latent_cache *k) { return k->pages + (k->spare != LAR_PAGE_NONE); }

uint32_t lar_latent_cache_room(const lar_latent_cache *k) {
    uint64_t room = (uint64_t)k->pages * LAR_PAGE_TOKENS;
    return room < k->capacity ? (uint32_t)room : k->capacity;
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

/* The page of the next row has rows already, and others hold it. */
static bool begun_is_shared(const lar_latent_cache *k) {
    return k->length % LAR_PAGE_TOKENS && lar_page_holders(k->pool, k->table[k->length / LAR_PAGE_TOKENS]) > 1;
}

uint32_t lar_latent_cache_lacks(const lar_latent_cache *k, uint32_t tokens) {
    uint32_t pages = pages_of((uint64_t)k->length + tokens);
    return (pages > k->pages ? pages - k->pages : 0) + (tokens && k->spare == LAR_PAGE_NONE && begun_is_shared(k));
}

lar_error lar_latent_cache_reserve(lar_latent_cache *k, uint32_t tokens, lar_diag *d) {
    uint64_t end = (uint64_t)k->length + tokens;
    if (end > k->capacity)
        return lar_fail(LAR_LIMIT, d, "%llu tokens; the sequence has room for %u", (unsigned long long)end,
                        k->capacity);
    uint32_t lacks = lar_latent_cache_lacks(k, tokens);
    if (!lacks) return LAR_OK;
    if (!lar_page_ensure(k->pool, lacks)) {
        lar_page_counts c = lar_page_pool_counts(k->pool);
        return lar_fail(LAR_FULL, d, "%u pages of %u tokens are needed; of %u in all %u are free", lacks,
                        LAR_PAGE_TOKENS, c.pages, c.pages - c.held);
    }
    if (k->spare == LAR_PAGE_NONE && begun_is_shared(k)) k->spare = lar_page_take(k->pool);
    while (k->pages < pages_of(end)) k->table[k->pages++] = lar_page_take(k->pool);
    return LAR_OK;
}

void lar_latent_cache_begin(lar_latent_cache *k) {
    if (begun_is_shared(k)) {
        int32_t *page = &k->table[k->length / LAR_PAGE_TOKENS];
        LAR_ASSERT(k->spare != LAR_PAGE_NONE);
        copy_page(k, *page, k, k->spare);
        lar_page_drop(k->pool, *page);
        *page = k->spare;
        k->spare = LAR_PAGE_NONE;
    }
    drop_spare(k);
}

static uint8_t *row_at(const lar_latent_cache *k, uint32_t layer, uint32_t position) {
    LAR_ASSERT(position / LAR_PAGE_TOKENS < k->pages);
    return lar_page_rows(k->pool, k->table[position / LAR_PAGE_TOKENS], layer) +
           position % LAR_PAGE_TOKENS * lar_page_layout_row_bytes(lar_page_pool_layout(k->pool), layer);
}

static lar_latent_row row_of(const lar_latent_cache *k, uint32_t layer) {
    const lar_page_layout *l = lar_page_pool_layout(k->pool);
    return (lar_latent_row){(lar_kv)l->kv[layer], l->rank, l->rope};
}

void lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row) {
    lar_latent_row r = row_of(k, layer);
    LAR_ASSERT(position >= k->length && position < k->capacity);
    uint8_t *to = row_at(k, layer, position);
    LAR_ASSERT(lar_page_holders(k->pool, k->table[position / LAR_PAGE_TOKENS]) == 1);
    lar_latent_row_pack(&r, row, to);
}

void lar_latent_cache_grow(lar_latent_cache *k, uint32_t tokens) {
    LAR_ASSERT((uint64_t)k->length + tokens <= lar_latent_cache_room(k));
    k->length += tokens;
}

void lar_latent_cache_cut(lar_latent_cache *k, uint32_t length) {
    LAR_ASSERT(length <= k->length);
    k->length = length;
    if (k->own) return;
    drop_spare(k);
    drop_pages(k, pages_of(length));
}

void lar_latent_cache_mark(lar_latent_cache *k) {
    k->marked_length = k->length;
    k->marked_pages = k->pages;
    k->marked_spare = k->spare != LAR_PAGE_NONE;
}

void lar_latent_cache_back(lar_latent_cache *k) {
    k->length = k->marked_length;
    drop_pages(k, k->marked_pages);
    if (!k->marked_spare) drop_spare(k);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

static const float *rows(const lar_latents *l, uint32_t first, uint32_t count, float *room) {
    const lar_latent_cache *k = l->cache;
    lar_latent_row r = row_of(k, l->layer);
    const uint8_t *from = row_at(k, l->layer, first);
    LAR_ASSERT(first % LAR_PAGE_TOKENS + count <= LAR_PAGE_TOKENS);
    if (r.format == LAR_KV_F32) return (const float *)(const void *)from; /* read where they lie */
    uint64_t bytes = lar_latent_row_bytes(&r);
    for (uint32_t i = 0; i < count; i++, from += bytes)
        lar_latent_row_unpack(&r, from, room + (uint64_t)i * (r.rank + r.rope));
    return room;
}

static const uint8_t *kept(const lar_latents *l, uint32_t first) { return row_at(l->cache, l->layer, first); }

lar_latents lar_latent_cache_rows(const lar_latent_cache *k, uint32_t layer) {
    lar_latent_row r = row_of(k, layer);
    return (lar_latents){.cache = k,
                         .layer = layer,
                         .rows = rows,
                         .kept = kept,
                         .row_bytes = (uint32_t)lar_latent_row_bytes(&r),
                         .form = r.format == LAR_KV_BF16 ? LAR_ROWS_BF16 : LAR_ROWS_F32};
}

/* -- whole pages -------------------------------------------------------------------------------------------------- */

int32_t lar_latent_cache_page(const lar_latent_cache *k, uint32_t index) {
    LAR_ASSERT(index < pages_of(k->length));
    return k->table[index];
}

void lar_latent_cache_append(lar_latent_cache *k, const int32_t *pages, uint32_t count) {
    LAR_ASSERT(k->pages * (uint64_t)LAR_PAGE_TOKENS == k->length);
    LAR_ASSERT((uint64_t)k->length + (uint64_t)count * LAR_PAGE_TOKENS <= k->capacity);
    memcpy(k->table + k->pages, pages, count * sizeof *pages);
    k->pages += count;
    k->length += count * LAR_PAGE_TOKENS;
}

void lar_latent_cache_replace(lar_latent_cache *k, uint32_t index, int32_t page) {
    LAR_ASSERT(index < k->length / LAR_PAGE_TOKENS);
    lar_page_drop(k->pool, k->table[index]);
    k->table[index] = page;
}
