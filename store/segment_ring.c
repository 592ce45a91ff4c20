/* The ring of pages that wait for the disk.
 * Flow: page_segments.c puts, segment_writer.c takes, both under their lock. Never blocks.
 * Why records as they lie in the file: the page is copied once, and one write takes it from here.
 * Invariants: 1. a record is never split. 2. A record stays where it is until it is dropped, so that the thread may
 * write from it without the lock. Memory: mapped and reserved at once; pages become resident as they are used. */
#include "store/segment_ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/ensure.h"

lar_error lar_segment_ring_init(lar_segment_ring *r, uint64_t bytes) {
    *r = (lar_segment_ring){.bytes = (bytes + LAR_SEGMENT_ALIGN - 1) / LAR_SEGMENT_ALIGN * LAR_SEGMENT_ALIGN};
    uint64_t items = r->bytes / lar_segment_record_size(1) + 1;
    if (items > UINT32_MAX) return LAR_NO_MEMORY;
    r->item_cap = (uint32_t)items;
    r->items = malloc(items * sizeof *r->items); /* not cleared: what is never used never becomes resident */
    void *m = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m != MAP_FAILED) r->memory = m;
    if (r->items && r->memory) return LAR_OK;
    lar_segment_ring_release(r);
    return LAR_NO_MEMORY;
}

void lar_segment_ring_release(lar_segment_ring *r) {
    if (r->memory) (void)munmap(r->memory, r->bytes);
    free(r->items);
    *r = (lar_segment_ring){0};
}

/* Where `size` bytes fit, or r->bytes. */
static uint64_t place_for(const lar_segment_ring *r, uint64_t size) {
    if (!r->count) return size <= r->bytes ? 0 : r->bytes;
    uint64_t head = r->items[r->first].at;
    if (r->tail <= head) return size <= head - r->tail ? r->tail : r->bytes;
    if (size <= r->bytes - r->tail) return r->tail;
    return size <= head ? 0 : r->bytes;
}

uint8_t *lar_segment_ring_put(lar_segment_ring *r, const lar_digest *key, uint64_t bytes) {
    if (bytes > r->bytes || r->count == r->item_cap) return NULL;
    uint64_t size = lar_segment_record_size(bytes), at = place_for(r, size);
    if (at == r->bytes) return NULL;
    r->items[(r->first + r->count) % r->item_cap] = (lar_segment_item){*key, at, bytes};
    r->count++;
    r->put++;
    r->used += size;
    r->tail = at + size;
    uint64_t filled = LAR_SEGMENT_ALIGN + bytes;
    memset(r->memory + at + filled, 0, size - filled);
    return r->memory + at;
}

const lar_segment_item *lar_segment_ring_first(const lar_segment_ring *r) {
    return r->count ? &r->items[r->first] : NULL;
}

void lar_segment_ring_drop_first(lar_segment_ring *r) {
    LAR_ASSERT(r->count > 0);
    r->used -= lar_segment_record_size(r->items[r->first].bytes);
    r->first = (r->first + 1) % r->item_cap;
    r->count--;
    r->taken++;
}
