/* Pages of latents: one mapping, a stack of free pages, a count of holders for each (header: page_pool.h).
 * Flow: latent_cache.c and prefix_cache.c take, share and drop; the forward pass writes through them. One thread, but
 * for the counts; blocks while the pool is made, until the system has backed every page.
 * Why backed at once: memory that is missing is then an error at start, and not a killed process in the middle of an
 * answer. Why a stack: a page that was just dropped is the likeliest to be in the processor's caches.
 * Memory: the mapping, and eight bytes a page beside it.
 * Invariants: 1. A page is on the stack if and only if it has no holders. 2. held is pages less the stack. */
#include "engine/cache/page_pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ensure.h"
#include "engine/cache/latent_row.h"

struct lar_page_pool {
    lar_page_layout layout;
    uint8_t *kv;            /* (layers): layout.kv */
    uint64_t *layer_offset; /* (layers) in a page */
    uint64_t page_bytes;
    uint8_t *data; /* (pages, page_bytes) */
    uint32_t pages, free_count;
    int32_t *free_pages; /* (free_count) of (pages): the last is taken first */
    uint32_t *holders;   /* (pages) */
    _Atomic uint32_t held;
    uint32_t (*reclaim)(void *context, uint32_t wanted);
    void *reclaim_context;
    void (*changed)(void *context, int32_t page, uint32_t holders);
    void *changed_context;
};

/* -- layout ------------------------------------------------------------------------------------------------------ */

uint64_t lar_page_layout_row_bytes(const lar_page_layout *l, uint32_t layer) {
    return lar_latent_row_bytes(&(lar_latent_row){(lar_kv)l->kv[layer], l->rank, l->rope});
}

uint64_t lar_page_layout_token_bytes(const lar_page_layout *l) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < l->layers; i++) bytes += lar_page_layout_row_bytes(l, i);
    return bytes;
}

uint64_t lar_page_layout_page_bytes(const lar_page_layout *l) {
    return LAR_PAGE_TOKENS * lar_page_layout_token_bytes(l);
}

/* -- making ------------------------------------------------------------------------------------------------------ */

static uint64_t mapped_bytes(const lar_page_pool *p) { return p->pages * p->page_bytes; }

/* Kernels before 5.14 do not know how to back memory without a write. */
static bool back_all(uint8_t *data, uint64_t bytes) {
    if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    volatile uint8_t *at = data;
    uint64_t step = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t i = 0; i < bytes; i += step) at[i] = 0;
    return true;
}

static lar_error map_pages(lar_page_pool *p, lar_diag *d) {
    uint64_t bytes = mapped_bytes(p);
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED) {
        p->data = data;
        if (back_all(p->data, bytes)) return LAR_OK;
    }
    return lar_fail(LAR_NO_MEMORY, d, "no memory for %u pages of %u tokens (%llu bytes)", p->pages, LAR_PAGE_TOKENS,
                    (unsigned long long)bytes);
}

static lar_error make_tables(lar_page_pool *p, const lar_page_layout *layout) {
    uint64_t offset = 0;
    p->kv = malloc(layout->layers);
    p->layer_offset = malloc(layout->layers * sizeof *p->layer_offset);
    p->free_pages = malloc(p->pages * sizeof *p->free_pages);
    p->holders = calloc(p->pages, sizeof *p->holders);
    if (!p->kv || !p->layer_offset || !p->free_pages || !p->holders) return LAR_NO_MEMORY;
    memcpy(p->kv, layout->kv, layout->layers);
    p->layout.kv = p->kv;
    for (uint32_t i = 0; i < layout->layers; i++) {
        p->layer_offset[i] = offset;
        offset += LAR_PAGE_TOKENS * lar_page_layout_row_bytes(layout, i);
    }
    for (uint32_t i = 0; i < p->pages; i++) p->free_pages[i] = (int32_t)(p->pages - 1 - i); /* page 0 comes first */
    p->free_count = p->pages;
    return LAR_OK;
}

lar_error lar_page_pool_new(const lar_page_layout *layout, uint64_t bytes, lar_page_pool **out, lar_diag *d) {
    uint64_t page = lar_page_layout_page_bytes(layout), pages = bytes / page;
    *out = NULL;
    if (!pages)
        return lar_fail(LAR_INVALID, d, "%llu bytes for pages; one page of %u tokens takes %llu",
                        (unsigned long long)bytes, LAR_PAGE_TOKENS, (unsigned long long)page);
    lar_page_pool *p = calloc(1, sizeof *p);
    if (!p) return LAR_NO_MEMORY;
    p->layout = *layout;
    p->page_bytes = page;
    p->pages = pages < INT32_MAX ? (uint32_t)pages : INT32_MAX;
    lar_error e = map_pages(p, d);
    if (!e) e = make_tables(p, layout);
    if (e) return lar_page_pool_free(p), e;
    *out = p;
    return LAR_OK;
}

void lar_page_pool_free(lar_page_pool *p) {
    if (!p) return;
    LAR_ASSERT(p->held == 0);
    if (p->data) (void)munmap(p->data, mapped_bytes(p));
    free(p->kv);
    free(p->layer_offset);
    free(p->free_pages);
    free(p->holders);
    free(p);
}

const lar_page_layout *lar_page_pool_layout(const lar_page_pool *p) { return &p->layout; }

lar_page_counts lar_page_pool_counts(const lar_page_pool *p) {
    return (lar_page_counts){.pages = p->pages,
                             .held = p->held,
                             .page_bytes = p->page_bytes,
                             .bytes = mapped_bytes(p) + p->pages * (sizeof *p->free_pages + sizeof *p->holders)};
}

void lar_page_pool_on_empty(lar_page_pool *p, uint32_t (*reclaim)(void *context, uint32_t wanted), void *context) {
    p->reclaim = reclaim;
    p->reclaim_context = context;
}

void lar_page_pool_on_holders(lar_page_pool *p, void (*changed)(void *context, int32_t page, uint32_t holders),
                              void *context) {
    p->changed = changed;
    p->changed_context = context;
}

/* -- holders ----------------------------------------------------------------------------------------------------- */

bool lar_page_ensure(lar_page_pool *p, uint32_t count) {
    if (p->free_count < count && p->reclaim) (void)p->reclaim(p->reclaim_context, count - p->free_count);
    return p->free_count >= count;
}

int32_t lar_page_take(lar_page_pool *p) {
    if (!lar_page_ensure(p, 1)) return LAR_PAGE_NONE;
    int32_t page = p->free_pages[--p->free_count];
    LAR_ASSERT(p->holders[page] == 0);
    p->holders[page] = 1;
    p->held = p->pages - p->free_count;
    return page;
}

static uint32_t *holders_of(const lar_page_pool *p, int32_t page) {
    LAR_ASSERT(page >= 0 && (uint32_t)page < p->pages);
    return &p->holders[page];
}

void lar_page_share(lar_page_pool *p, int32_t page) {
    uint32_t *holders = holders_of(p, page);
    LAR_ASSERT(*holders > 0 && *holders < UINT32_MAX);
    ++*holders;
    if (p->changed) p->changed(p->changed_context, page, *holders);
}

void lar_page_drop(lar_page_pool *p, int32_t page) {
    uint32_t *holders = holders_of(p, page);
    LAR_ASSERT(*holders > 0);
    if (--*holders) {
        if (p->changed) p->changed(p->changed_context, page, *holders);
        return;
    }
    p->free_pages[p->free_count++] = page;
    p->held = p->pages - p->free_count;
}

uint32_t lar_page_holders(const lar_page_pool *p, int32_t page) { return *holders_of(p, page); }

uint8_t *lar_page_bytes(const lar_page_pool *p, int32_t page) {
    LAR_ASSERT(page >= 0 && (uint32_t)page < p->pages);
    return p->data + (uint32_t)page * p->page_bytes;
}

uint8_t *lar_page_rows(const lar_page_pool *p, int32_t page, uint32_t layer) {
    LAR_ASSERT(layer < p->layout.layers);
    return lar_page_bytes(p, page) + p->layer_offset[layer];
}
