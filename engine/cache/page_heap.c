/* An indexed binary heap of pages: which of many is the next to go.
 * Flow: prefix_cache.c calls. One thread; never blocks. Memory: three arrays, taken when it is made.
 * Invariant: places[pages[i]] is i, and no page has a smaller number than the one at (i - 1) / 2. */
#include "engine/cache/page_heap.h"

#include <stdlib.h>
#include <string.h>

lar_error lar_page_heap_init(lar_page_heap *h, uint32_t all) {
    *h = (lar_page_heap){malloc(all * sizeof *h->pages), malloc(all * sizeof *h->places),
                         malloc(all * sizeof *h->order), 0};
    if (!h->pages || !h->places || !h->order) return LAR_NO_MEMORY;
    memset(h->places, 0xff, all * sizeof *h->places);
    return LAR_OK;
}

void lar_page_heap_release(lar_page_heap *h) {
    free(h->pages), free(h->places), free(h->order);
    *h = (lar_page_heap){0};
}

static void set(lar_page_heap *h, uint32_t place, int32_t page) {
    h->pages[place] = page;
    h->places[page] = (int32_t)place;
}

/* Moves the page from `place` to where its number belongs. */
static void settle(lar_page_heap *h, uint32_t place) {
    int32_t page = h->pages[place];
    uint64_t order = h->order[page];
    while (place && h->order[h->pages[(place - 1) / 2]] > order) {
        set(h, place, h->pages[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && h->order[h->pages[child + 1]] < h->order[h->pages[child]]) child++;
        if (h->order[h->pages[child]] >= order) break;
        set(h, place, h->pages[child]);
        place = child;
    }
    set(h, place, page);
}

void lar_page_heap_put(lar_page_heap *h, int32_t page, uint64_t order) {
    if (!lar_page_heap_has(h, page)) set(h, h->count++, page);
    h->order[page] = order;
    settle(h, (uint32_t)h->places[page]);
}

void lar_page_heap_remove(lar_page_heap *h, int32_t page) {
    if (!lar_page_heap_has(h, page)) return;
    uint32_t place = (uint32_t)h->places[page];
    h->places[page] = -1;
    if (place == --h->count) return;
    set(h, place, h->pages[h->count]);
    settle(h, place);
}

int32_t lar_page_heap_first(const lar_page_heap *h) { return h->count ? h->pages[0] : LAR_PAGE_NONE; }
