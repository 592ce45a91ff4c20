/* "Did you mean": the known name nearest to what was written. */
#ifndef LARDER_GATEWAY_NEAREST_H
#define LARDER_GATEWAY_NEAREST_H

#include <stdint.h>

#include "base/slice.h"

/* Embedded. Borrows all names until the last look at `best`. */
typedef struct lar_nearest {
    lar_slice wanted;
    lar_slice best;    /* ptr NULL: nothing near enough */
    uint32_t distance; /* edits to `best`; only smaller ones replace it */
} lar_nearest;

void lar_nearest_init(lar_nearest *n, lar_slice wanted);
/* Names over 64 bytes are never near. */
void lar_nearest_offer(lar_nearest *n, lar_slice name);
/* The ids and the names of all rules. */
void lar_nearest_offer_rules(lar_nearest *n);

#endif
