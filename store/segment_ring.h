/* Pages that wait for the disk: a ring of memory with whole records in it, first in, first out. Not locked: who
 * shares it locks. */
#ifndef LARDER_STORE_SEGMENT_RING_H
#define LARDER_STORE_SEGMENT_RING_H

#include "store/segment_record.h"

typedef struct lar_segment_item {
    lar_digest key;
    uint64_t at, bytes; /* the record's place in the ring; the page's size */
} lar_segment_item;

typedef struct lar_segment_ring {
    uint8_t *memory; /* aligned to LAR_SEGMENT_ALIGN */
    uint64_t bytes;
    lar_segment_item *items; /* a ring too */
    uint32_t item_cap, first, count;
    uint64_t tail;       /* where the last record ends */
    uint64_t used;       /* bytes of records */
    uint64_t put, taken; /* items ever */
} lar_segment_ring;

/* `bytes` is rounded up to what is aligned; memory is reserved, and used as records come. NO_MEMORY. */
LAR_MUST_USE lar_error lar_segment_ring_init(lar_segment_ring *r, uint64_t bytes);
/* Zero-initialised is allowed. */
void lar_segment_ring_release(lar_segment_ring *r);
/* Room for the record of a page behind all others: its head (not filled), the page (to be filled), zeros. NULL: full.
 * */
uint8_t *lar_segment_ring_put(lar_segment_ring *r, const lar_digest *key, uint64_t bytes);
/* The first item, or NULL. */
const lar_segment_item *lar_segment_ring_first(const lar_segment_ring *r);
void lar_segment_ring_drop_first(lar_segment_ring *r);

#endif
