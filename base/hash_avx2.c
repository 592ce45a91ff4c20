/* XXH3-128 compiled for AVX2 (see CMakeLists.txt for the flags); chosen at run time by hash.c. */
#include "base/hash_wide.h"

#define XXH_INLINE_ALL
#define XXH_NO_XXH32
#include <xxhash.h>

lar_hash lar_hash_long_avx2(const void *bytes, size_t len) {
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(bytes, len));
    lar_hash h;
    memcpy(h.bytes, c.digest, sizeof h.bytes);
    return h;
}
