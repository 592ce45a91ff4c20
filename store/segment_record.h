/* How pages lie in segment files, and how the index names them (docs/store-format.md). A segment is a head and records,
 * a record a head and the page's bytes; heads and bytes begin at multiples of LAR_SEGMENT_ALIGN. */
#ifndef LARDER_STORE_SEGMENT_RECORD_H
#define LARDER_STORE_SEGMENT_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/error.h"

enum {
    LAR_SEGMENT_ALIGN = 4096,
    LAR_SEGMENT_VERSION = 1,
    LAR_SEGMENT_HEAD_BYTES = 32,   /* what is used of the segment's first LAR_SEGMENT_ALIGN */
    LAR_SEGMENT_RECORD_BYTES = 80, /* what is used of a record's first LAR_SEGMENT_ALIGN */
    LAR_SEGMENT_VALUE_BYTES = 52
};

/* Where a page is. */
typedef struct lar_segment_place {
    uint64_t segment; /* its number, from 1 */
    uint64_t offset;  /* of the record's head in the file */
    uint64_t bytes;   /* of the page */
    uint64_t sum;     /* of the page */
} lar_segment_place;

/* When it was used. */
typedef struct lar_segment_use {
    uint64_t last; /* on a clock that grows with every use of any page */
    bool again;    /* since it was written or moved to another file */
} lar_segment_use;

/* Of a record in the file, head and filling included. `bytes` at most 2^62. */
uint64_t lar_segment_record_size(uint64_t bytes);
/* XXH3 of a page. */
uint64_t lar_segment_sum(const uint8_t *page, uint64_t bytes);

void lar_segment_head_encode(uint64_t number, uint8_t out[LAR_SEGMENT_HEAD_BYTES]);
/* CORRUPT: not the head of this segment. VERSION: of a newer larder. */
LAR_MUST_USE lar_error lar_segment_head_check(const uint8_t head[LAR_SEGMENT_HEAD_BYTES], uint64_t number);

void lar_segment_record_encode(const lar_digest *key, const lar_segment_place *place,
                               uint8_t out[LAR_SEGMENT_RECORD_BYTES]);
/* CORRUPT: not the head of the record that the index has at this place. */
LAR_MUST_USE lar_error lar_segment_record_check(const uint8_t head[LAR_SEGMENT_RECORD_BYTES], const lar_digest *key,
                                                const lar_segment_place *place);

/* The index's value. */
void lar_segment_value_encode(const lar_digest *key, const lar_segment_place *place, const lar_segment_use *use,
                              uint8_t out[LAR_SEGMENT_VALUE_BYTES]);
/* CORRUPT, VERSION. What it gives lies behind a segment's head, is aligned, and cannot wrap round. */
LAR_MUST_USE lar_error lar_segment_value_decode(const lar_digest *key, lar_slice bytes, lar_segment_place *place,
                                                lar_segment_use *use);

#endif
