/* The vector operations, as text that vectors*.c include once each, for the instruction set they are compiled for.
 * VECTORS_NAME is the table to define, VECTORS_WIDTH the floats of a register, VECTORS_QUERIES and VECTORS_KEYS how
 * many share what they load: as many as leave their sums in registers.
 * Sixteen lanes are an array of registers, because compilers keep vectors wider than a register in memory. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_BODY_H
#define LARDER_ENGINE_COMPUTE_VECTORS_BODY_H

#include <string.h>
#if VECTORS_WIDTH > 4
#include <immintrin.h>
#endif

#include "engine/compute/panels.h"
#include "engine/compute/vectors.h"
#include "engine/files/float_bits.h"

enum { LANES = 16, WIDTH = VECTORS_WIDTH, REGISTERS = LANES / WIDTH };
enum { QUERIES = VECTORS_QUERIES, KEYS = VECTORS_KEYS, MIXED = WIDTH == 16 ? 2 : 4 };
/* NEAR queries stay in the first-level cache while the keys of a tile pass by. */
enum { NEAR = 8 };
typedef float reg __attribute__((vector_size(VECTORS_WIDTH * 4)));
typedef int32_t whole_reg __attribute__((vector_size(VECTORS_WIDTH * 4)));
typedef uint16_t half_reg __attribute__((vector_size(VECTORS_WIDTH * 2)));
typedef float lanes4 __attribute__((vector_size(16)));
typedef struct lanes {
    reg r[REGISTERS];
} lanes;
/* Compilers take a conversion to pieces that one instruction does. */
#if VECTORS_WIDTH == 16
#define WIDEN(half) ((whole_reg)_mm512_cvtepu16_epi32((__m256i)(half)))
#elif VECTORS_WIDTH == 8
#define WIDEN(half) ((whole_reg)_mm256_cvtepu16_epi32((__m128i)(half)))
#else
#define WIDEN(half) __builtin_convertvector(half, whole_reg)
#endif
#define INLINED static inline __attribute__((always_inline))
/* A loop whose count is a constant after inlining, and whose registers must not end in memory. */
#if defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (uint32_t i = 0; i < (n); i++)
#endif

/* a * b + c, rounded once. */
INLINED reg multiply_add(reg a, reg b, reg c) {
#if VECTORS_WIDTH == 16
    return _mm512_fmadd_ps(a, b, c);
#elif VECTORS_WIDTH == 8
    return _mm256_fmadd_ps(a, b, c);
#else
    EACH(i, WIDTH) { c[i] = __builtin_fmaf(a[i], b[i], c[i]); }
    return c;
#endif
}

INLINED reg load_reg(const float *p) {
    reg x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* WIDTH values of a row from value i on; `form` is a constant. */
INLINED reg load_value(lar_row_form form, const void *row, uint64_t i) {
    if (form == LAR_ROWS_F32) return load_reg((const float *)row + i);
    half_reg half;
    memcpy(&half, (const uint8_t *)row + 2 * i, sizeof half);
    whole_reg bits = WIDEN(half) << 16;
    reg x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINED float value_at(lar_row_form form, const void *row, uint64_t i) {
    if (form == LAR_ROWS_F32) return ((const float *)row)[i];
    return lar_bf16_float(lar_le16((const uint8_t *)row + 2 * i));
}

/* Some of what is read soon, for step `i` of a block; `products` of a step is a constant. */
INLINED const uint8_t *fetch(const uint8_t *at, const uint8_t *end, uint32_t i, uint32_t products) {
    const uint32_t lines = products > LAR_AHEAD_PRODUCTS ? products / LAR_AHEAD_PRODUCTS : 1;
    if (at >= end || (products < LAR_AHEAD_PRODUCTS && i % (LAR_AHEAD_PRODUCTS / products))) return at;
    EACH(k, lines) { __builtin_prefetch(at + k * LAR_AHEAD_LINE, 0, 2); }
    return at + lines * LAR_AHEAD_LINE;
}

INLINED void store_reg(float *p, reg x) { memcpy(p, &x, sizeof x); }

INLINED lanes load(const float *p) {
    lanes x;
    EACH(i, REGISTERS) { x.r[i] = load_reg(p + i * WIDTH); }
    return x;
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

/* The first n <= 16 values of a row from value i on; zeros behind. */
INLINED lanes load_values(lar_row_form form, const void *row, uint64_t i, uint32_t n) {
    lanes x;
    if (n < LANES) {
        float some[LANES];
        for (uint32_t k = 0; k < LANES; k++) some[k] = k < n ? value_at(form, row, i + k) : 0;
        return load(some);
    }
    EACH(w, REGISTERS) { x.r[w] = load_value(form, row, i + w * WIDTH); }
    return x;
}

INLINED lanes load_some(const float *p, uint32_t n) { return load_values(LAR_ROWS_F32, p, 0, n); }

/* What is constant after inlining: queries and keys of a block of dots, or queries and registers of columns of one of a
 * mix, and how keys or values are kept. */
typedef struct block {
    uint32_t queries, keys;
    lar_row_form form;
} block;

/* `some` columns, at most 16, of a block of dots; `at` are the values before them in queries, in keys and in a row. */
INLINED void add_columns(const block b, const lar_dot_part *p, const uint64_t at[3], uint32_t some, lanes *sums) {
    lanes keys[KEYS];
    EACH(j, b.keys) { keys[j] = load_values(b.form, p->key, at[1] + j * p->key_row + at[2], some); }
    EACH(i, b.queries) {
        lanes x = load_some(p->query + at[0] + i * p->query_row + at[2], some);
        EACH(j, b.keys) {
            EACH(w, REGISTERS) {
                sums[i * b.keys + j].r[w] = multiply_add(x.r[w], keys[j].r[w], sums[i * b.keys + j].r[w]);
            }
        }
    }
}

/* One part, from query at[0] and key at[1] on. */
INLINED void add_part(const block b, const lar_dot_part *p, const uint32_t at[2], lar_ahead *ahead, lanes *sums) {
    const uint64_t query = at[0] * p->query_row, key = at[1] * p->key_row;
    const uint8_t *soon = ahead->at;
    uint32_t c = 0;
    for (; c + LANES <= p->n; c += LANES) {
        add_columns(b, p, (const uint64_t[3]){query, key, c}, LANES, sums);
        soon = fetch(soon, ahead->end, c / LANES, b.queries * b.keys * LANES);
    }
    if (c < p->n) add_columns(b, p, (const uint64_t[3]){query, key, c}, p->n - c, sums);
    ahead->at = soon;
}

INLINED void dots_block(const block b, const lar_dots *d, uint32_t q, uint32_t k) {
    lanes sums[QUERIES * KEYS];
    EACH(i, b.queries * b.keys) { sums[i] = (lanes){{{0}}}; }
    add_part(b, &d->parts[0], (const uint32_t[2]){q, k}, d->ahead, sums);
    add_part(b, &d->parts[1], (const uint32_t[2]){q, k}, d->ahead, sums);
    float *out = d->out + q * d->out_row + k;
#if VECTORS_WIDTH == 16
    if (b.queries * b.keys == LANES) {
        float all[LANES];
        totals(sums, all);
        EACH(i, b.queries) { memcpy(out + i * d->out_row, all + i * b.keys, b.keys * sizeof *all); }
        return;
    }
#endif
    EACH(i, b.queries) {
        EACH(j, b.keys) { out[i * d->out_row + j] = total(&sums[i * b.keys + j]); }
    }
}

/* Queries from `q` to before `end` against `keys` keys from k on. */
INLINED void dots_keys(lar_row_form form, const lar_dots *d, const uint32_t queries[2], uint32_t k, uint32_t keys) {
    uint32_t q = queries[0];
    for (; q + QUERIES <= queries[1]; q += QUERIES) dots_block((block){QUERIES, keys, form}, d, q, k);
    for (; q + QUERIES / 2 <= queries[1]; q += QUERIES / 2) dots_block((block){QUERIES / 2, keys, form}, d, q, k);
    for (; q < queries[1]; q++) dots_block((block){1, keys, form}, d, q, k);
}

INLINED void dots_of(lar_row_form form, const lar_dots *d) {
    for (uint32_t near = 0; near < d->queries; near += NEAR) {
        uint32_t queries[2] = {near, d->queries - near < NEAR ? d->queries : near + NEAR}, k = 0;
        for (; k + KEYS <= d->keys; k += KEYS) dots_keys(form, d, queries, k, KEYS);
        for (; k < d->keys; k++) dots_keys(form, d, queries, k, 1);
    }
}

static void dots(const lar_dots *d) {
    lar_ahead nothing = {0};
    lar_dots all = *d;
    if (!all.ahead) all.ahead = &nothing;
    if (d->form == LAR_ROWS_BF16) dots_of(LAR_ROWS_BF16, &all);
    else dots_of(LAR_ROWS_F32, &all);
}

/* WIDTH * b.keys columns from c on, of b.queries queries from q on. */
INLINED void mix_block(const block b, const lar_mix *m, uint32_t q, uint32_t c) {
    reg sums[QUERIES * MIXED];
    float *out = m->out + q * m->out_row + c;
    const float *weight = m->weight + q * m->weight_row;
    const uint8_t *soon = m->ahead->at;
    EACH(i, b.queries) {
        EACH(j, b.keys) { sums[i * b.keys + j] = load_reg(out + i * m->out_row + j * WIDTH); }
    }
    for (uint32_t k = 0; k < m->keys; k++) {
        reg row[MIXED];
        EACH(j, b.keys) { row[j] = load_value(b.form, m->value, k * m->value_row + c + j * WIDTH); }
        EACH(i, b.queries) {
            reg by = (reg){0} + weight[i * m->weight_row + k];
            EACH(j, b.keys) { sums[i * b.keys + j] = multiply_add(row[j], by, sums[i * b.keys + j]); }
        }
        soon = fetch(soon, m->ahead->end, k, b.queries * b.keys * WIDTH);
    }
    m->ahead->at = soon;
    EACH(i, b.queries) {
        EACH(j, b.keys) { store_reg(out + i * m->out_row + j * WIDTH, sums[i * b.keys + j]); }
    }
}

/* All queries for some columns: these stay in the first-level cache. */
INLINED void mix_columns(lar_row_form form, const lar_mix *m, uint32_t c, uint32_t wide) {
    uint32_t q = 0;
    for (; q + QUERIES <= m->queries; q += QUERIES) mix_block((block){QUERIES, wide, form}, m, q, c);
    for (; q + QUERIES / 2 <= m->queries; q += QUERIES / 2) mix_block((block){QUERIES / 2, wide, form}, m, q, c);
    for (; q < m->queries; q++) mix_block((block){1, wide, form}, m, q, c);
}

INLINED void mix_of(lar_row_form form, const lar_mix *m) {
    uint32_t c = 0;
    for (; c + MIXED * WIDTH <= m->n; c += MIXED * WIDTH) mix_columns(form, m, c, MIXED);
    for (; c + WIDTH <= m->n; c += WIDTH) mix_columns(form, m, c, 1);
    for (; c < m->n; c++)
        for (uint32_t q = 0; q < m->queries; q++)
            for (uint32_t k = 0; k < m->keys; k++)
                m->out[q * m->out_row + c] =
                    __builtin_fmaf(m->weight[q * m->weight_row + k], value_at(form, m->value, k * m->value_row + c),
                                   m->out[q * m->out_row + c]);
}

static void mix(const lar_mix *m) {
    lar_ahead nothing = {0};
    lar_mix all = *m;
    if (!all.ahead) all.ahead = &nothing;
    if (m->form == LAR_ROWS_BF16) mix_of(LAR_ROWS_BF16, &all);
    else mix_of(LAR_ROWS_F32, &all);
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

/* -- rows of fewer bits: loops without branches, for the compiler to do many values at once. Subnormal numbers come out
 * right by a product with a power of two. ---------------------------------------------------------------------- */

INLINED uint32_t bits16(const uint8_t *from, uint32_t i) {
    uint16_t v;
    memcpy(&v, from + 2 * (size_t)i, sizeof v);
    return v;
}

static void from_f16(const uint8_t *restrict from, uint32_t n, float *restrict to) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t h = bits16(from, i), sign = (h & 0x8000u) << 16, most = h & 0x7fffu;
        uint32_t bits = lar_float_bits(lar_bits_float(most << 13) * 0x1p112f);
        bits |= most >= 0x7c00u ? 0x7f800000u | most << 13 : 0; /* infinities and NaN */
        to[i] = lar_bits_float(sign | bits);
    }
}

static void from_bf16(const uint8_t *restrict from, uint32_t n, float *restrict to) {
    for (uint32_t i = 0; i < n; i++) to[i] = lar_bf16_float((uint16_t)bits16(from, i));
}

static void from_e4m3(const uint8_t *restrict from, uint32_t n, float scale, float *restrict to) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = from[i], sign = (b & 0x80u) << 24, most = b & 0x7fu;
        uint32_t bits = lar_float_bits(lar_bits_float(most << 20) * 0x1p120f);
        bits |= most == 0x7fu ? 0x7fc00000u : 0; /* NaN */
        to[i] = lar_bits_float(sign | bits) * scale;
    }
}

static void from_int8(const uint8_t *restrict from, uint32_t n, float scale, float *restrict to) {
    for (uint32_t i = 0; i < n; i++) to[i] = (float)(int8_t)from[i] * scale;
}

const lar_vectors VECTORS_NAME = {dots, mix, weigh, from_f16, from_bf16, from_e4m3, from_int8};

#endif
