/* The memory of all sequences' latents: pages of LAR_PAGE_TOKENS tokens, taken from the system once, when the pool is
 * made, so that nothing later can fail for want of memory but by a count of pages.
 *
 * A page holds its tokens for all layers: for each layer, in order, (LAR_PAGE_TOKENS, row) with rows as latent_row.h
 * has them for the layer's format; with fp8 a layer's part is a page of FlashMLA's layout (656 bytes a row, no gaps).
 * Pages are counted references: one for each sequence that reads it and one for the prefix cache. Only a page with one
 * holder may be written. One thread; counts may be read by any. */
#ifndef LARDER_ENGINE_CACHE_PAGE_POOL_H
#define LARDER_ENGINE_CACHE_PAGE_POOL_H

#include <stdbool.h>

#include "base/error.h"
#include "engine/files/kv_format.h"

enum { LAR_PAGE_NONE = -1 };

/* How pages are laid out: what a model and a choice of formats make of it. */
typedef struct lar_page_layout {
    uint32_t layers, rank, rope;
    const uint8_t *kv; /* (layers) of lar_kv; borrowed as long as the layout is used */
} lar_page_layout;
uint64_t lar_page_layout_row_bytes(const lar_page_layout *l, uint32_t layer);
/* Of a token in all layers, and of a page. A layer begins at any multiple of LAR_PAGE_TOKENS bytes in it. */
uint64_t lar_page_layout_token_bytes(const lar_page_layout *l);
uint64_t lar_page_layout_page_bytes(const lar_page_layout *l);

typedef struct lar_page_pool lar_page_pool;

/* As many pages as fit into `bytes`, every one of them backed by memory when this returns; layout->kv is copied.
 * INVALID: not one page fits (`d` says how many bytes one takes); NO_MEMORY. */
LAR_MUST_USE lar_error lar_page_pool_new(const lar_page_layout *layout, uint64_t bytes, lar_page_pool **out,
                                         lar_diag *d);
/* After all that hold pages. NULL: nothing happens. */
void lar_page_pool_free(lar_page_pool *p);
const lar_page_layout *lar_page_pool_layout(const lar_page_pool *p);

typedef struct lar_page_counts {
    uint32_t pages; /* there are */
    uint32_t held;  /* with a holder */
    uint64_t page_bytes;
    uint64_t bytes; /* reserved: of the pages and of what counts them */
} lar_page_counts;
/* Any thread. */
lar_page_counts lar_page_pool_counts(const lar_page_pool *p);

/* A page with one holder and whatever bytes were in it, or LAR_PAGE_NONE. When none is free, `reclaim` is asked to let
 * go of one first. */
int32_t lar_page_take(lar_page_pool *p);
/* Whether the next `count` takes succeed; asks `reclaim` for what is missing, so that all or nothing can be taken. */
bool lar_page_ensure(lar_page_pool *p, uint32_t count);
void lar_page_share(lar_page_pool *p, int32_t page); /* one more holder */
void lar_page_drop(lar_page_pool *p, int32_t page);  /* one less; without any it is free */
uint32_t lar_page_holders(const lar_page_pool *p, int32_t page);
/* Who can let go of pages (the prefix cache): returns how many became free. NULL: nobody. */
void lar_page_pool_on_empty(lar_page_pool *p, uint32_t (*reclaim)(void *context, uint32_t wanted), void *context);

/* Who keeps pages beside sequences (the prefix cache) hears, after every share and drop that leaves a page with
 * holders, how many it has; it shares and drops nothing meanwhile. NULL: nobody. */
void lar_page_pool_on_holders(lar_page_pool *p, void (*changed)(void *context, int32_t page, uint32_t holders),
                              void *context);

/* The rows of one layer, (LAR_PAGE_TOKENS, row bytes). */
uint8_t *lar_page_rows(const lar_page_pool *p, int32_t page, uint32_t layer);
/* All of it, page_bytes. */
uint8_t *lar_page_bytes(const lar_page_pool *p, int32_t page);

#endif
