/* Stops: the bytes at which a volatile value can begin or a key can end; all others are passed over in blocks.
 *
 * A stop is a digit, ASCII or full-width, one of / : = > or a full-width colon. */
#ifndef LARDER_POLICIES_RULES_SCAN_STOP_H
#define LARDER_POLICIES_RULES_SCAN_STOP_H

#include <stdint.h>

#include "base/slice.h"

typedef struct lar_stops {
    lar_slice text;
    size_t base;   /* of the block in bits */
    uint64_t bits; /* bit k: text[base + k] is a stop */
} lar_stops;

/* Borrows the text. */
void lar_stops_init(lar_stops *s, lar_slice text);
/* The first stop at or behind i; the text's length if there is none. i must not go back. */
size_t lar_stops_next(lar_stops *s, size_t i);

/* Without vectors, for their test. */
uint64_t lar_stops_block_scalar(lar_slice text, size_t base);
uint64_t lar_stops_block(lar_slice text, size_t base);

#endif
