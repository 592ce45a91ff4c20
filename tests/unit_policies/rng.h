/* Numbers that only look random, the same for one seed on every machine: xorshift64. Header only. */
#ifndef LARDER_TESTS_RNG_H
#define LARDER_TESTS_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t s; /* never 0 */
} rng;

/* 0 to n - 1; n > 0. */
static inline uint32_t pick(rng *r, uint32_t n) {
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (uint32_t)(r->s >> 32) % n;
}

#endif
