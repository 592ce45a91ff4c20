/* SHA-256 for credentials and checks, constant-time compare. */
#ifndef LARDER_BASE_DIGEST_H
#define LARDER_BASE_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

typedef struct lar_digest {
    uint8_t bytes[32];
} lar_digest;

/* Aborts only if the crypto library cannot do SHA-256 at all. */
lar_digest lar_digest_of(lar_slice s);
/* Time depends on the length only. */
bool lar_digest_eq(const lar_digest *a, const lar_digest *b);
/* SHA-256 of what comes in pieces; heap. */
typedef struct lar_digester lar_digester;
lar_digester *lar_digester_new(void); /* NULL when out of memory */
void lar_digester_add(lar_digester *d, const void *bytes, size_t len);
/* Frees it (NULL is allowed). NO_MEMORY if any step could not be done; *out is then nobody's digest. */
LAR_MUST_USE lar_error lar_digester_end(lar_digester *d, lar_digest *out);
/* First 8 bytes of the digest, as a tenant's fingerprint for records and logs. */
uint64_t lar_digest_short(const lar_digest *d);

#endif
