/* Dense products of float rows, for attention over float32 latents.
 * The same bits on every processor and for any grouping: a dot is 16 partial sums whatever the registers hold, each
 * over every sixteenth column of a part, added halves to halves at the end; a mix adds its rows in ascending order. No
 * fused multiply-add. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_H
#define LARDER_ENGINE_COMPUTE_VECTORS_H

#include <stdint.h>

/* Two parts of rows that lie apart: n columns of each query and key, and then `n` more. Rows begin at q * query_row and
 * k * key_row. */
typedef struct lar_dot_part {
    const float *query; /* (queries, n) */
    uint64_t query_row;
    const float *key; /* (keys, n) */
    uint64_t key_row;
    uint32_t n;
} lar_dot_part;

/* out[q][k] = the dot of query q and key k over both parts, the first one first. */
typedef struct lar_dots {
    lar_dot_part parts[2];
    float *out; /* (queries, keys), rows at q * out_row */
    uint64_t out_row;
    uint32_t queries, keys;
} lar_dots;

/* out[q] += the sum of weight[q][k] * value[k] over k. */
typedef struct lar_mix {
    const float *weight; /* (queries, keys) */
    uint64_t weight_row;
    const float *value; /* (keys, n) */
    uint64_t value_row;
    float *out; /* (queries, n) */
    uint64_t out_row;
    uint32_t queries, keys, n;
} lar_mix;

typedef struct lar_vectors {
    void (*dots)(const lar_dots *d);
    void (*mix)(const lar_mix *m);
    /* Raises *max to the largest scale * x[i]; x[i] becomes e^(scale * x[i] - *max), 0 below e^-87 (within 3 ulp
     * elsewhere). Returns their sum. */
    float (*weigh)(float *x, uint32_t n, float scale, float *max);
} lar_vectors;

/* For this processor. */
const lar_vectors *lar_vectors_best(void);

/* Each: one file, compiled for one instruction set. */
extern const lar_vectors lar_vectors_plain, lar_vectors_avx2, lar_vectors_avx512;

#endif
