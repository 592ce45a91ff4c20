/* The vector operations, as text that vectors*.c include once each, for the instruction set they are compiled for.
 * VECTORS_NAME is the table to define, VECTORS_WIDTH the floats of a register, VECTORS_BLOCK how many queries, and how
 * many keys, share what they load: as many as leave their sums in registers.
 * Sixteen lanes are an array of registers, because compilers keep vectors wider than a register in memory. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_BODY_H
#define LARDER_ENGINE_COMPUTE_VECTORS_BODY_H

#include <string.h>

#include "engine/compute/panels.h"
#include "engine/compute/vectors.h"

enum { LANES = 16, WIDTH = VECTORS_WIDTH, REGISTERS = LANES / WIDTH, BLOCK = VECTORS_BLOCK };
/* NEAR queries stay in the first-level cache while the keys of a tile pass by. */
enum { NEAR = 8 };
typedef float reg __attribute__((vector_size(VECTORS_WIDTH * 4)));
typedef int32_t whole_reg __attribute__((vector_size(VECTORS_WIDTH * 4)));
typedef float lanes4 __attribute__((vector_size(16)));
typedef struct lanes {
    reg r[REGISTERS];
} lanes;
#define INLINED static inline __attribute__((always_inline))
/* A loop whose count is a constant after inlining, and whose registers must not end in memory. */
#if defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (uint32_t i = 0; i < (n); i++)
#endif

INLINED reg load_reg(const float *p) {
    reg x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINED void store_reg(float *p, reg x) { memcpy(p, &x, sizeof x); }

INLINED lanes load(const float *p) {
    lanes x;
    EACH(i, REGISTERS) { x.r[i] = load_reg(p + i * WIDTH); }
    return x;
}

/* The first n <= 16; zeros behind. */
INLINED lanes load_some(const float *p, uint32_t n) {
    if (n == LANES) return load(p);
    float some[LANES] = {0};
    memcpy(some, p, n * sizeof *p);
    return load(some);
}

INLINED void store(float *p, const lanes *x) {
    EACH(i, REGISTERS) { store_reg(p + i * WIDTH, x->r[i]); }
}

/* Lane i and lane i + 8, then i and i + 4, ... */
INLINED float total(const lanes *x) {
    lanes4 q[4];
#if VECTORS_WIDTH == 8
    reg half = x->r[0] + x->r[1];
    memcpy(q, &half, sizeof half);
#else
    memcpy(q, x, sizeof q);
    q[0] += q[2], q[1] += q[3];
#endif
    lanes4 c = q[0] + q[1];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

#if VECTORS_WIDTH == 16
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
INLINED void totals(const lanes x[LANES], float out[LANES]) {
    reg a[8], b[4];
    EACH(i, 8) { a[i] = FOLD(x[2 * i].r[0], x[2 * i + 1].r[0], LOW8, HIGH8); }
    EACH(i, 4) { b[i] = FOLD(a[2 * i], a[2 * i + 1], LOW4, HIGH4); }
    reg c = FOLD(b[0], b[1], LOW2, HIGH2), d = FOLD(b[2], b[3], LOW2, HIGH2);
    store_reg(out, FOLD(c, d, LOW1, HIGH1));
}
#endif

/* `some` columns, at most 16, of `queries` x `keys` dots, both constants. */
INLINED void add_columns(const lar_dot_part *p, const float *query, const float *key, const uint32_t size[3],
                         lanes *sums) {
    lanes keys[BLOCK];
    EACH(j, size[1]) { keys[j] = load_some(key + j * p->key_row, size[2]); }
    EACH(i, size[0]) {
        lanes x = load_some(query + i * p->query_row, size[2]);
        EACH(j, size[1]) {
            EACH(w, REGISTERS) { sums[i * size[1] + j].r[w] += x.r[w] * keys[j].r[w]; }
        }
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
    lanes sums[BLOCK * BLOCK];
    const uint32_t size[2] = {queries, keys};
    EACH(i, queries * keys) { sums[i] = (lanes){{{0}}}; }
    add_part(&d->parts[0], q, k, size, sums);
    add_part(&d->parts[1], q, k, size, sums);
    float *out = d->out + q * d->out_row + k;
#if VECTORS_WIDTH == 16
    if (queries * keys == LANES) {
        float all[LANES];
        totals(sums, all);
        EACH(i, queries) { memcpy(out + i * d->out_row, all + i * keys, keys * sizeof *all); }
        return;
    }
#endif
    EACH(i, queries) {
        EACH(j, keys) { out[i * d->out_row + j] = total(&sums[i * keys + j]); }
    }
}

/* Queries from `q` to before `end` against `keys` keys from k on; `keys` is a constant. */
INLINED void dots_keys(const lar_dots *d, uint32_t q, uint32_t end, uint32_t k, uint32_t keys) {
    for (; q + BLOCK <= end; q += BLOCK) dots_block(d, q, k, BLOCK, keys);
    for (; q < end; q++) dots_block(d, q, k, 1, keys);
}

static void dots(const lar_dots *d) {
    for (uint32_t near = 0; near < d->queries; near += NEAR) {
        uint32_t end = d->queries - near < NEAR ? d->queries : near + NEAR, k = 0;
        for (; k + BLOCK <= d->keys; k += BLOCK) dots_keys(d, near, end, k, BLOCK);
        for (; k < d->keys; k++) dots_keys(d, near, end, k, 1);
    }
}

/* WIDTH * `wide` columns from c on, of `queries` queries from q on; both constants. */
INLINED void mix_block(const lar_mix *m, uint32_t q, uint32_t c, uint32_t queries, uint32_t wide) {
    reg sums[8];
    float *out = m->out + q * m->out_row + c;
    const float *weight = m->weight + q * m->weight_row;
    EACH(i, queries) {
        EACH(j, wide) { sums[i * wide + j] = load_reg(out + i * m->out_row + j * WIDTH); }
    }
    for (uint32_t k = 0; k < m->keys; k++) {
        const float *value = m->value + k * m->value_row + c;
        reg row[4];
        EACH(j, wide) { row[j] = load_reg(value + j * WIDTH); }
        EACH(i, queries) {
            reg by = (reg){0} + weight[i * m->weight_row + k];
            EACH(j, wide) { sums[i * wide + j] += row[j] * by; }
        }
    }
    EACH(i, queries) {
        EACH(j, wide) { store_reg(out + i * m->out_row + j * WIDTH, sums[i * wide + j]); }
    }
}

/* All queries for some columns: these stay in the first-level cache. */
INLINED void mix_columns(const lar_mix *m, uint32_t c, uint32_t wide) {
    const uint32_t most = 8 / wide;
    uint32_t q = 0;
    for (; q + most <= m->queries; q += most) mix_block(m, q, c, most, wide);
    for (; q < m->queries; q++) mix_block(m, q, c, 1, wide);
}

static void mix(const lar_mix *m) {
    uint32_t c = 0;
    for (; c + 4 * WIDTH <= m->n; c += 4 * WIDTH) mix_columns(m, c, 4);
    for (; c + WIDTH <= m->n; c += WIDTH) mix_columns(m, c, 1);
    for (; c < m->n; c++)
        for (uint32_t q = 0; q < m->queries; q++)
            for (uint32_t k = 0; k < m->keys; k++)
                m->out[q * m->out_row + c] += m->weight[q * m->weight_row + k] * m->value[k * m->value_row + c];
}

/* e^x as LAR_EXP says (panels.h), for x <= 0. Adding 1.5 * 2^23 rounds to the nearest integer, and leaves it in the low
 * bits. */
INLINED reg exponential(reg x) {
    static const float p[6] = LAR_EXP_COEFFICIENTS;
    reg shifted = x * LAR_EXP_INVERSE_LN2 + 12582912.0f, n = shifted - 12582912.0f;
    reg r = x - n * LAR_EXP_LN2_HIGH;
    r = r - n * LAR_EXP_LN2_LOW;
    reg sum = (reg){0} + p[0];
    for (int i = 1; i < 6; i++) sum = sum * r + p[i];
    sum = sum * (r * r) + r + 1.0f;
    whole_reg power,
        keep = ~(whole_reg)(x <= -87.0f); /* all bits but where it is nothing; what is no number stays one */
    memcpy(&power, &shifted, sizeof power);
    power = (power << 23) + (127 << 23);
    reg two;
    memcpy(&two, &power, sizeof two);
    sum *= two;
    memcpy(&power, &sum, sizeof power);
    power &= keep;
    memcpy(&sum, &power, sizeof sum);
    return sum;
}

/* a where it is more, else b; b where a is not a number. */
INLINED reg larger(reg a, reg b) {
    whole_reg x, y, is_more = (whole_reg)(a > b);
    memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y);
    x = (x & is_more) | (y & ~is_more);
    memcpy(&a, &x, sizeof a);
    return a;
}

static float peak(const float *x, uint32_t n, float scale, float max) {
    reg most = (reg){0} + max;
    float all[WIDTH];
    uint32_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) most = larger(load_reg(x + i) * scale, most);
    store_reg(all, most);
    for (; i < n; i++) max = x[i] * scale > max ? x[i] * scale : max;
    for (uint32_t k = 0; k < WIDTH; k++) max = all[k] > max ? all[k] : max;
    return max;
}

static float weigh(float *x, uint32_t n, float scale, float *max) {
    lanes sum = {{{0}}};
    *max = peak(x, n, scale, *max);
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t some = n - i < LANES ? n - i : LANES;
        lanes e = load_some(x + i, some);
        EACH(w, REGISTERS) { e.r[w] = exponential(e.r[w] * scale - *max); }
        if (some < LANES) {
            float out[LANES];
            store(out, &e);
            memcpy(x + i, out, some * sizeof *x);
            e = load_some(x + i, some);
        } else {
            store(x + i, &e);
        }
        EACH(w, REGISTERS) { sum.r[w] += e.r[w]; }
    }
    return total(&sum);
}

const lar_vectors VECTORS_NAME = {dots, mix, weigh};

#endif
