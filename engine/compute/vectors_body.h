/* The vector operations, as text that vectors*.c include once each, for the instruction set they are compiled for.
 * VECTORS_NAME is the table to define, VECTORS_BLOCK how many queries, and how many keys, share what they load: as many
 * as leave their sums in registers. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_BODY_H
#define LARDER_ENGINE_COMPUTE_VECTORS_BODY_H

#include <string.h>

#include "engine/compute/vectors.h"

typedef float lanes __attribute__((vector_size(64)));
typedef float lanes8 __attribute__((vector_size(32)));
typedef float lanes4 __attribute__((vector_size(16)));
typedef int32_t whole __attribute__((vector_size(64)));
enum { LANES = 16, BLOCK = VECTORS_BLOCK };
#define INLINED static inline __attribute__((always_inline))

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

/* `queries` x `keys` dots, both constants. */
INLINED void dots_block(const lar_dots *d, uint32_t q, uint32_t k, uint32_t queries, uint32_t keys) {
    lanes sums[BLOCK * BLOCK], key[BLOCK];
    const float *query_at = d->query + q * d->query_row, *key_at = d->key + k * d->key_row;
    for (uint32_t i = 0; i < queries * keys; i++) sums[i] = (lanes){0};
    for (uint32_t c = 0; c < d->n; c += LANES) {
        uint32_t some = d->n - c < LANES ? d->n - c : LANES;
        for (uint32_t j = 0; j < keys; j++) key[j] = load_some(key_at + j * d->key_row + c, some);
        for (uint32_t i = 0; i < queries; i++) {
            lanes x = load_some(query_at + i * d->query_row + c, some);
            for (uint32_t j = 0; j < keys; j++) sums[i * keys + j] += x * key[j];
        }
    }
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t j = 0; j < keys; j++) d->out[(q + i) * d->out_row + k + j] += total(sums[i * keys + j]);
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
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t j = 0; j < wide; j++) sums[i * wide + j] = load(m->out + (q + i) * m->out_row + c + j * LANES);
    for (uint32_t k = 0; k < m->keys; k++) {
        const float *value = m->value + k * m->value_row + c;
        for (uint32_t i = 0; i < queries; i++) {
            float by = m->weight[(q + i) * m->weight_row + k];
            for (uint32_t j = 0; j < wide; j++) sums[i * wide + j] += load(value + j * LANES) * by;
        }
    }
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t j = 0; j < wide; j++) store(m->out + (q + i) * m->out_row + c + j * LANES, sums[i * wide + j]);
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

/* e^x as 2^n (1 + r + r^2 p(r)), n the nearest integer of x / ln 2; p as in the Cephes library's expf (S. Moshier).
 * x <= 0. Adding 1.5 * 2^23 rounds to the nearest integer, and leaves it in the low bits. */
INLINED lanes exponential(lanes x) {
    static const float p[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                               4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    lanes shifted = x * 1.44269504088896341f + 12582912.0f, n = shifted - 12582912.0f;
    lanes r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
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

static float weigh(float *x, uint32_t n, float scale, float max) {
    lanes sum = {0};
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t some = n - i < LANES ? n - i : LANES;
        lanes e = exponential(load_some(x + i, some) * scale - max);
        float out[LANES];
        store(out, e);
        memcpy(x + i, out, some * sizeof *x);
        sum += load_some(x + i, some);
    }
    return total(sum);
}

const lar_vectors VECTORS_NAME = {dots, mix, weigh};

#endif
