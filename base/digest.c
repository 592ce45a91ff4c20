/* SHA-256 through OpenSSL. Any thread; no memory of its own. */
#include "base/digest.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/ensure.h"

lar_digest lar_digest_of(lar_slice s) {
    lar_digest d;
    LAR_ASSERT(SHA256((const unsigned char *)(s.ptr ? s.ptr : ""), s.len, d.bytes) != NULL);
    return d;
}

bool lar_digest_eq(const lar_digest *a, const lar_digest *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

uint64_t lar_digest_short(const lar_digest *d) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | d->bytes[i];
    return v;
}
