/* What a sequence remembers: for each layer and token the normed latent and the rotated key, (rank + rope) values, kept
 * as latent_row.h says for the layer, in pages of a pool. Rows are only ever added at the end or dropped from it: a
 * prefix can be cut at any token, and whole pages of it can be shared with other sequences and with the prefix cache.
 *
 * Order of a pass: lar_latent_cache_reserve, the only call that can fail; lar_latent_cache_begin; a put for each new
 * position and layer, with reads between them; lar_latent_cache_grow. One thread writes; workers read. */
#ifndef LARDER_ENGINE_CACHE_LATENT_CACHE_H
#define LARDER_ENGINE_CACHE_LATENT_CACHE_H

#include "engine/cache/page_pool.h"
#include "engine/compute/attention.h"

typedef struct lar_latent_cache lar_latent_cache;

/* A sequence of at most `capacity` tokens that takes pages from `pool` (borrowed) as it reserves them. NO_MEMORY. */
LAR_MUST_USE lar_error lar_latent_cache_new(lar_page_pool *pool, uint32_t capacity, lar_latent_cache **out,
                                            lar_diag *d);
/* One with a pool of its own, of just so many pages, all of which it holds from now on. NO_MEMORY, with the bytes in
 * `d`. */
LAR_MUST_USE lar_error lar_latent_cache_new_alone(const lar_page_layout *layout, uint32_t capacity,
                                                  lar_latent_cache **out, lar_diag *d);
/* The same tokens: whole pages are shared and the last one is copied; of a sequence with a pool of its own all are. The
 * copy has room for what it holds, and the capacity of `k`. FULL, NO_MEMORY. */
LAR_MUST_USE lar_error lar_latent_cache_fork(const lar_latent_cache *k, lar_latent_cache **out, lar_diag *d);
void lar_latent_cache_free(lar_latent_cache *k); /* NULL: nothing happens */

uint32_t lar_latent_cache_length(const lar_latent_cache *k);   /* tokens that all layers hold */
uint32_t lar_latent_cache_capacity(const lar_latent_cache *k); /* tokens, at most */
uint32_t lar_latent_cache_room(const lar_latent_cache *k);     /* tokens that its pages can hold */
uint32_t lar_latent_cache_pages(const lar_latent_cache *k);    /* held, a page to copy into among them */
uint64_t lar_latent_cache_token_bytes(const lar_latent_cache *k);

/* -- writing ----------------------------------------------------------------------------------------------------- */

/* How many pages more `tokens` more need: those behind the last, and one more if others hold the page that is begun. */
uint32_t lar_latent_cache_lacks(const lar_latent_cache *k, uint32_t tokens);
/* Takes them. LIMIT: more than the capacity; FULL: the pool has not so many (`d` with the numbers); nothing changed. */
LAR_MUST_USE lar_error lar_latent_cache_reserve(lar_latent_cache *k, uint32_t tokens, lar_diag *d);
/* Rows from the length on, as far as there is room, can be put from now on: a begun page that others hold is copied
 * into one of its own, which was reserved. */
void lar_latent_cache_begin(lar_latent_cache *k);
/* Keeps `row` (rank + rope) of the token at `position`; read through lar_latent_cache_rows from then on. */
void lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row);
/* All layers have the rows of `tokens` more. */
void lar_latent_cache_grow(lar_latent_cache *k, uint32_t tokens);
/* Forgets the rows from `length` on, which is at most its own, and lets go of pages behind it. */
void lar_latent_cache_cut(lar_latent_cache *k, uint32_t length);

/* Remembers length and room; back() drops what was reserved and added since, if nothing else was done. */
void lar_latent_cache_mark(lar_latent_cache *k);
void lar_latent_cache_back(lar_latent_cache *k);

/* For attention; valid as long as the cache. Rows of f32 are read where they lie, others in the reader's room; of bf16
 * also as they are kept. */
lar_latents lar_latent_cache_rows(const lar_latent_cache *k, uint32_t layer);

/* -- whole pages, for prefixes ----------------------------------------------------------------------------------- */

/* The page of tokens [index * LAR_PAGE_TOKENS, ...), of which one at least is there. */
int32_t lar_latent_cache_page(const lar_latent_cache *k, uint32_t index);
/* Adds `count` whole pages with their tokens behind its own, which end at a page and with no room reserved behind them;
 * a holder of each passes to the sequence. Within the capacity. */
void lar_latent_cache_append(lar_latent_cache *k, const int32_t *pages, uint32_t count);
/* Instead of a whole page one with the same content: a holder of `page` passes to the sequence, one of the old page is
 * dropped. */
void lar_latent_cache_replace(lar_latent_cache *k, uint32_t index, int32_t page);

#endif
