/* Dense products of float queries with rows of latents, exponentials, and what makes floats of rows in fewer bits.
 * The same bits on every processor and for any grouping: a dot is 16 partial sums whatever the registers hold, each
 * over every sixteenth column of a part, added halves to halves at the end; a mix adds its rows in ascending order.
 * Both with fused multiply-add, and nothing else with it. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_H
#define LARDER_ENGINE_COMPUTE_VECTORS_H

#include <stdint.h>

typedef enum lar_row_form { LAR_ROWS_F32, LAR_ROWS_BF16 } lar_row_form;

/* Memory that is read soon: what computes fetches it into the second-level cache meanwhile, and moves `at` on, as long
 * as there is any (and up to two lines past `end`): a line of the cache for so many products. */
enum { LAR_AHEAD_PRODUCTS = 128, LAR_AHEAD_LINE = 64 };
typedef struct lar_ahead {
    const uint8_t *at, *end;
} lar_ahead;

/* Two parts of rows that lie apart: n columns of each query and key, and then `n` more. Rows begin at q * query_row and
 * k * key_row values. */
typedef struct lar_dot_part {
    const float *query; /* (queries, n) */
    uint64_t query_row;
    const void *key; /* (keys, n) */
    uint64_t key_row;
    uint32_t n;
} lar_dot_part;

/* out[q][k] = the dot of query q and key k over both parts, the first one first. */
typedef struct lar_dots {
    lar_dot_part parts[2];
    lar_row_form form; /* of keys */
    float *out;        /* (queries, keys), rows at q * out_row */
    uint64_t out_row;
    uint32_t queries, keys;
    lar_ahead *ahead; /* NULL: nothing */
} lar_dots;

/* out[q] += the sum of weight[q][k] * value[k] over k. */
typedef struct lar_mix {
    const float *weight; /* (queries, keys) */
    uint64_t weight_row;
    const void *value; /* (keys, n) */
    uint64_t value_row;
    lar_row_form form; /* of values */
    float *out;        /* (queries, n) */
    uint64_t out_row;
    uint32_t queries, keys, n;
    lar_ahead *ahead; /* NULL: nothing */
} lar_mix;

typedef struct lar_vectors {
    void (*dots)(const lar_dots *d);
    void (*mix)(const lar_mix *m);
    /* Raises *max to the largest scale * x[i]; x[i] becomes e^(scale * x[i] - *max), 0 below e^-87 (within 3 ulp
     * elsewhere). Returns their sum. */
    float (*weigh)(float *x, uint32_t n, float scale, float *max);
    /* n values of fewer bits as floats, exactly, from any address; of the last two each times `scale`. */
    void (*from_f16)(const uint8_t *from, uint32_t n, float *to);
    void (*from_bf16)(const uint8_t *from, uint32_t n, float *to);
    void (*from_e4m3)(const uint8_t *from, uint32_t n, float scale, float *to);
    void (*from_int8)(const uint8_t *from, uint32_t n, float scale, float *to);
} lar_vectors;

/* For this processor. */
const lar_vectors *lar_vectors_best(void);

/* Each: one file, compiled for one instruction set. */
extern const lar_vectors lar_vectors_plain, lar_vectors_avx2, lar_vectors_avx512;

#endif
