/* 128-bit hashes of content, XXH3 (not for credentials: those go through SHA-256, base/digest.h). */
#ifndef LARDER_BASE_HASH_H
#define LARDER_BASE_HASH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/slice.h"

typedef struct lar_hash {
    uint8_t bytes[16];
} lar_hash;

lar_hash lar_hash_of(lar_slice s);
/* H(a, b): chains a hash with more bytes; order and borders matter. */
lar_hash lar_hash_chain(lar_hash before, lar_slice more);
lar_hash lar_hash_join(lar_hash a, lar_hash b);
/* A secret of random bytes. */
typedef struct lar_hash_key {
    uint8_t bytes[32];
} lar_hash_key;
/* A hash that only who has the key can make again from what is hashed. */
lar_hash lar_hash_keyed(const lar_hash_key *key, lar_hash h);

static inline bool lar_hash_eq(lar_hash a, lar_hash b) { return memcmp(a.bytes, b.bytes, 16) == 0; }
static inline uint64_t lar_hash_low(lar_hash h) {
    uint64_t v;
    memcpy(&v, h.bytes, 8);
    return v;
}

/* SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators"): number n, from 0, of the
 * stream of seed s is lar_mix64(s + (n + 1) * LAR_MIX64_STEP). Every bit of x moves every bit of the result. Not for
 * secrets. */
#define LAR_MIX64_STEP UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t lar_mix64(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Streaming, for text that is decoded piece by piece. Embedded, 64-byte aligned by its type. */
typedef struct lar_hasher {
    _Alignas(64) unsigned char state[640];
} lar_hasher;
void lar_hasher_init(lar_hasher *h);
void lar_hasher_add(lar_hasher *h, const void *bytes, size_t len);
lar_hash lar_hasher_end(lar_hasher *h);

#endif
