/* Prices of prompt and output tokens, with source and date, and the sums made from them. */
#ifndef LARDER_POLICIES_PRICE_H
#define LARDER_POLICIES_PRICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

typedef struct lar_price {
    const char *model;      /* name or prefix ending in '*' */
    double input, hit, write, output; /* USD per million tokens; write = cache write, equal to input where free */
    const char *source, *date;
} lar_price;

/* The best row for a model name (longest match), or NULL: then money is "unknown", never 0. */
const lar_price *lar_price_find(lar_slice model);
/* USD. prompt = all prompt tokens; hit and write are parts of it (clamped to it). */
double lar_price_cost(const lar_price *p, uint64_t prompt, uint64_t hit, uint64_t write, uint64_t output);
/* USD that the hits saved against paying `input` for them. */
double lar_price_saved(const lar_price *p, uint64_t hit);
/* The whole table, for docs and reports. */
const lar_price *lar_price_rows(uint32_t *count);

#endif
