/* Pages in the order of a number each, an indexed binary heap: any page goes in, out or elsewhere in O(log n). */
#ifndef LARDER_ENGINE_CACHE_PAGE_HEAP_H
#define LARDER_ENGINE_CACHE_PAGE_HEAP_H

#include <stdbool.h>

#include "engine/cache/page_pool.h"

/* Embedded; fields are read by page_heap.c alone. */
typedef struct lar_page_heap {
    int32_t *pages;  /* (count), in heap order */
    int32_t *places; /* (all pages) in `pages`; -1: not in it */
    uint64_t *order; /* (all pages) */
    uint32_t count;
} lar_page_heap;

/* For pages 0 to all - 1, taken now. NO_MEMORY; released also after an error. */
LAR_MUST_USE lar_error lar_page_heap_init(lar_page_heap *h, uint32_t all);
void lar_page_heap_release(lar_page_heap *h);

/* Adds the page, or gives it another number. Equal numbers are in any order. */
void lar_page_heap_put(lar_page_heap *h, int32_t page, uint64_t order);
/* A page that is not in it stays out. */
void lar_page_heap_remove(lar_page_heap *h, int32_t page);
/* The page with the least number; LAR_PAGE_NONE: it is empty. */
int32_t lar_page_heap_first(const lar_page_heap *h);

static inline bool lar_page_heap_has(const lar_page_heap *h, int32_t page) { return h->places[page] >= 0; }
/* Of a page that is in it. */
static inline uint64_t lar_page_heap_order(const lar_page_heap *h, int32_t page) { return h->order[page]; }

#endif
