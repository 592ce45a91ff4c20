/* SHA-256 through OpenSSL. Any thread; no memory of its own but a digester's. */
#include "base/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

lar_digest lar_digest_of(lar_slice s) {
    lar_digest d;
    LAR_ASSERT(SHA256((const unsigned char *)(s.ptr ? s.ptr : ""), s.len, d.bytes) != NULL);
    return d;
}

struct lar_digester {
    EVP_MD_CTX *md;
    bool failed;
};

lar_digester *lar_digester_new(void) {
    lar_digester *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->md = EVP_MD_CTX_new();
    d->failed = !d->md || EVP_DigestInit_ex(d->md, EVP_sha256(), NULL) != 1;
    return d;
}

void lar_digester_add(lar_digester *d, const void *bytes, size_t len) {
    if (!d->failed && len) d->failed = EVP_DigestUpdate(d->md, bytes, len) != 1;
}

lar_error lar_digester_end(lar_digester *d, lar_digest *out) {
    bool failed = !d || d->failed || EVP_DigestFinal_ex(d->md, out->bytes, NULL) != 1;
    if (d) EVP_MD_CTX_free(d->md);
    free(d);
    if (failed) memset(out, 0, sizeof *out);
    return failed ? LAR_NO_MEMORY : LAR_OK;
}

bool lar_digest_eq(const lar_digest *a, const lar_digest *b) {
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

uint64_t lar_digest_short(const lar_digest *d) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v = v << 8 | d->bytes[i];
    return v;
}
