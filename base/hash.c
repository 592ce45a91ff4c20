/* XXH3-128 behind larder's own names. Any thread; no memory.
 * Canonical (big-endian) bytes are stored, so that a store moves between machines. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#define XXH_NO_XXH32
#include <xxhash.h>

#include "base/ensure.h"
#include "base/hash_wide.h"

static lar_hash canonical(XXH128_hash_t v) {
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, v);
    lar_hash h;
    memcpy(h.bytes, c.digest, sizeof h.bytes);
    return h;
}

/* Below this the vector width makes no difference (XXH3 has its own short paths up to 240 bytes). */
enum { LONG_BYTES = 512 };

lar_hash lar_hash_of(lar_slice s) {
#ifdef __x86_64__
    if (s.len >= LONG_BYTES) {
        if (__builtin_cpu_supports("avx512f")) return lar_hash_long_avx512(s.ptr, s.len);
        if (__builtin_cpu_supports("avx2")) return lar_hash_long_avx2(s.ptr, s.len);
    }
#endif
    return canonical(XXH3_128bits(s.ptr ? s.ptr : "", s.len));
}

lar_hash lar_hash_chain(lar_hash before, lar_slice more) { return lar_hash_join(before, lar_hash_of(more)); }

lar_hash lar_hash_join(lar_hash a, lar_hash b) {
    uint8_t both[32];
    memcpy(both, a.bytes, 16);
    memcpy(both + 16, b.bytes, 16);
    return canonical(XXH3_128bits(both, sizeof both));
}

lar_hash lar_hash_keyed(const lar_hash_key *key, lar_hash h) {
    uint8_t all[24 + 16];
    uint64_t seed;
    memcpy(&seed, key->bytes, sizeof seed);
    memcpy(all, key->bytes + 8, 24);
    memcpy(all + 24, h.bytes, 16);
    return canonical(XXH3_128bits_withSeed(all, sizeof all, seed));
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(((lar_hasher *)0)->state), "lar_hasher holds an XXH3 state");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(lar_hasher), "lar_hasher is aligned for an XXH3 state");

void lar_hasher_init(lar_hasher *h) { (void)XXH3_128bits_reset((XXH3_state_t *)(void *)h->state); }

void lar_hasher_add(lar_hasher *h, const void *bytes, size_t len) {
    if (len) (void)XXH3_128bits_update((XXH3_state_t *)(void *)h->state, bytes, len);
}

lar_hash lar_hasher_end(lar_hasher *h) {
    return canonical(XXH3_128bits_digest((const XXH3_state_t *)(const void *)h->state));
}
