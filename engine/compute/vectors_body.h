/* The vector operations, as text that vectors*.c include once each, for the instruction set they are compiled for.
 * VECTORS_NAME is the table to define, VECTORS_BLOCK how many queries, and how many keys, share what they load: as many
 * as leave their sums in registers. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_BODY_H
#define LARDER_ENGINE_COMPUTE_VECTORS_BODY_H

#include <string.h>

#include "engine/compute/panels.h"
#include "engine/compute/vectors.h"

typedef float lanes __attribute__((vector_size(64)));
typedef float lanes8 __attribute__((vector_size(32)));
typedef float lanes4 __attribute__((vector_size(16)));
typedef int32_t whole __attribute__((vector_size(64)));
enum { LANES = 16, BLOCK = VECTORS_BLOCK };
#define INLINED static inline __attribute__((always_inline))
/* A loop whose count is a constant after inlining, and whose registers must not end in memory. */
#if defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (uint32_t i = 0; i < (n); i++)
#endif

INLINED lanes load(const float *p) {
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* The first n <= 16; zeros behind. */
INLINED lanes load_some(const float *p, uint32_t n) {
    if (n == LANES) return load(p);
    lanes x = {0};
    memcpy(&x, p, n * sizeof *p);
    return x;
}

INLINED void store(float *p, lanes x) { memcpy(p, &x, sizeof x); }

/* Lane i and lane i + 8, then i and i + 4, ... */
INLINED float total(lanes x) {
    lanes8 a, b;
    memcpy(&a, &x, sizeof a), memcpy(&b, (const char *)&x + sizeof a, sizeof b);
    a += b;
    lanes4 c, d;
    memcpy(&c, &a, sizeof c), memcpy(&d, (const char *)&a + sizeof c, sizeof d);
    c += d;
    return (c[0] + c[2]) + (c[1] + c[3]);
}

/* Lanes i and i + `half` of a in the lower half, of b in the upper half; where more vectors follow, `half` is less and
 * each `2 * half` lanes are a vector of their own. What total() does to each, sixteen at a time. */
#define FOLD(a, b, low, high) (__builtin_shufflevector(a, b, low) + __builtin_shufflevector(a, b, high))
#define LOW8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW4 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define HIGH4 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define LOW2 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29
#define HIGH2 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31
#define LOW1 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define HIGH1 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31

/* The totals of x[0] to x[15], in order. */
INLINED lanes totals(const lanes x[LANES]) {
    lanes a[8], b[4];
    EACH(i, 8) { a[i] = FOLD(x[2 * i], x[2 * i + 1], LOW8, HIGH8); }
    EACH(i, 4) { b[i] = FOLD(a[2 * i], a[2 * i + 1], LOW4, HIGH4); }
    lanes c = FOLD(b[0], b[1], LOW2, HIGH2), d = FOLD(b[2], b[3], LOW2, HIGH2);
    return FOLD(c, d, LOW1, HIGH1);
}

/* `some` columns, at most 16, of `queries` x `keys` dots, both constants. */
INLINED void add_columns(const lar_dot_part *p, const float *query, const float *key, const uint32_t size[3],
                         lanes *sums) {
    lanes keys[BLOCK];
    EACH(j, size[1]) { keys[j] = load_some(key + j * p->key_row, size[2]); }
    EACH(i, size[0]) {
        lanes x = load_some(query + i * p->query_row, size[2]);
        EACH(j, size[1]) { sums[i * size[1] + j] += x * keys[j]; }
    }
}

/* One part, from query q and key k on. */
INLINED void add_part(const lar_dot_part *p, uint32_t q, uint32_t k, const uint32_t size[2], lanes *sums) {
    const float *query = p->query + q * p->query_row, *key = p->key + k * p->key_row;
    uint32_t c = 0;
    for (; c + LANES <= p->n; c += LANES)
        add_columns(p, query + c, key + c, (const uint32_t[3]){size[0], size[1], LANES}, sums);
    if (c < p->n) add_columns(p, query + c, key + c, (const uint32_t[3]){size[0], size[1], p->n - c}, sums);
}

INLINED void dots_block(const lar_dots *d, uint32_t q, uint32_t k, uint32_t queries, uint32_t keys) {
    lanes sums[LANES];
    const uint32_t size[2] = {queries, keys};
    EACH(i, queries * keys) { sums[i] = (lanes){0}; }
    add_part(&d->parts[0], q, k, size, sums);
    add_part(&d->parts[1], q, k, size, sums);
    float *out = d->out + q * d->out_row + k;
    if (queries * keys == LANES) {
        float all[LANES];
        store(all, totals(sums));
        EACH(i, queries) { memcpy(out + i * d->out_row, all + i * keys, keys * sizeof *all); }
        return;
    }
    EACH(i, queries) {
        EACH(j, keys) { out[i * d->out_row + j] = total(sums[i * keys + j]); }
    }
}

static void dots(const lar_dots *d) {
    uint32_t q = 0;
    for (; q + BLOCK <= d->queries; q += BLOCK) {
        uint32_t k = 0;
        for (; k + BLOCK <= d->keys; k += BLOCK) dots_block(d, q, k, BLOCK, BLOCK);
        for (; k < d->keys; k++) dots_block(d, q, k, BLOCK, 1);
    }
    for (; q < d->queries; q++) {
        uint32_t k = 0;
        for (; k + BLOCK <= d->keys; k += BLOCK) dots_block(d, q, k, 1, BLOCK);
        for (; k < d->keys; k++) dots_block(d, q, k, 1, 1);
    }
}

/* 16 * `wide` columns from c on, of `queries` queries from q on; both constants. */
INLINED void mix_block(const lar_mix *m, uint32_t q, uint32_t c, uint32_t queries, uint32_t wide) {
    lanes sums[BLOCK * 2];
    float *out = m->out + q * m->out_row + c;
    const float *weight = m->weight + q * m->weight_row;
    EACH(i, queries) {
        EACH(j, wide) { sums[i * wide + j] = load(out + i * m->out_row + j * LANES); }
    }
    for (uint32_t k = 0; k < m->keys; k++) {
        const float *value = m->value + k * m->value_row + c;
        lanes row[2];
        EACH(j, wide) { row[j] = load(value + j * LANES); }
        EACH(i, queries) {
            float by = weight[i * m->weight_row + k];
            EACH(j, wide) { sums[i * wide + j] += row[j] * by; }
        }
    }
    EACH(i, queries) {
        EACH(j, wide) { store(out + i * m->out_row + j * LANES, sums[i * wide + j]); }
    }
}

INLINED void mix_queries(const lar_mix *m, uint32_t q, uint32_t queries) {
    uint32_t c = 0;
    for (; c + 2 * LANES <= m->n; c += 2 * LANES) mix_block(m, q, c, queries, 2);
    for (; c + LANES <= m->n; c += LANES) mix_block(m, q, c, queries, 1);
    for (; c < m->n; c++)
        for (uint32_t i = q; i < q + queries; i++)
            for (uint32_t k = 0; k < m->keys; k++)
                m->out[i * m->out_row + c] += m->weight[i * m->weight_row + k] * m->value[k * m->value_row + c];
}

static void mix(const lar_mix *m) {
    uint32_t q = 0;
    for (; q + BLOCK <= m->queries; q += BLOCK) mix_queries(m, q, BLOCK);
    for (; q < m->queries; q++) mix_queries(m, q, 1);
}

/* e^x as LAR_EXP says (panels.h), for x <= 0. Adding 1.5 * 2^23 rounds to the nearest integer, and leaves it in the low
 * bits. */
INLINED lanes exponential(lanes x) {
    static const float p[6] = LAR_EXP_COEFFICIENTS;
    lanes shifted = x * LAR_EXP_INVERSE_LN2 + 12582912.0f, n = shifted - 12582912.0f;
    lanes r = x - n * LAR_EXP_LN2_HIGH;
    r = r - n * LAR_EXP_LN2_LOW;
    lanes sum = (lanes){0} + p[0];
    for (int i = 1; i < 6; i++) sum = sum * r + p[i];
    sum = sum * (r * r) + r + 1.0f;
    whole power, keep = ~(whole)(x <= -87.0f); /* all bits but where it is nothing; what is no number stays one */
    memcpy(&power, &shifted, sizeof power);
    power = (power << 23) + (127 << 23);
    lanes two;
    memcpy(&two, &power, sizeof two);
    sum *= two;
    memcpy(&power, &sum, sizeof power);
    power &= keep;
    memcpy(&sum, &power, sizeof sum);
    return sum;
}

/* a where it is more, else b; b where a is not a number. */
INLINED lanes larger(lanes a, lanes b) {
    whole x, y, is_more = (whole)(a > b);
    memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y);
    x = (x & is_more) | (y & ~is_more);
    memcpy(&a, &x, sizeof a);
    return a;
}

static float peak(const float *x, uint32_t n, float scale, float max) {
    lanes most = (lanes){0} + max;
    float all[LANES];
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) most = larger(load(x + i) * scale, most);
    store(all, most);
    for (; i < n; i++) max = x[i] * scale > max ? x[i] * scale : max;
    for (uint32_t k = 0; k < LANES; k++) max = all[k] > max ? all[k] : max;
    return max;
}

static float weigh(float *x, uint32_t n, float scale, float *max) {
    lanes sum = {0};
    *max = peak(x, n, scale, *max);
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t some = n - i < LANES ? n - i : LANES;
        lanes e = exponential(load_some(x + i, some) * scale - *max);
        float out[LANES];
        store(out, e);
        memcpy(x + i, out, some * sizeof *x);
        sum += load_some(x + i, some);
    }
    return total(sum);
}

const lar_vectors VECTORS_NAME = {dots, mix, weigh};

#endif
