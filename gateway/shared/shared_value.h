/* A value of the recall memory as it lies on the shared server: version, stamp, checksum, value; sealed where the
 * larders that share have a secret. */
#ifndef LARDER_GATEWAY_SHARED_VALUE_H
#define LARDER_GATEWAY_SHARED_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/hash.h"

enum { LAR_SHARED_VALUE_BYTES_MAX = 64 << 10, LAR_SHARED_HEAD_BYTES_MAX = 37 };

/* Seals with AES-256-GCM; one a loop, with a key at a time. NULL: plain, with a checksum. */
typedef struct lar_shared_seal lar_shared_seal;
lar_shared_seal *lar_shared_seal_new(void); /* NULL when out of memory */
void lar_shared_seal_free(lar_shared_seal *s);
/* From here on with this key. To be called before the first use. */
void lar_shared_seal_use(lar_shared_seal *s, const lar_digest *key);
/* The key for what only those may read who know both; all zero: no such secret. */
lar_digest lar_shared_seal_key(const lar_digest *secret, const lar_digest *scope);

/* Appends the envelope of `value` under `key`. LIMIT: too large; NO_MEMORY; IO: no randomness. `to` stays then. */
LAR_MUST_USE lar_error lar_shared_value_encode(lar_shared_seal *seal, const lar_hash *key, uint64_t stamp,
                                               lar_slice value, lar_buf *to);
/* Appends the value to `value`. CORRUPT: not written under this key, damaged, sealed with another secret, or sealed
 * where no secret is set (and the other way round). VERSION: of a newer larder. LIMIT, NO_MEMORY. */
LAR_MUST_USE lar_error lar_shared_value_decode(lar_shared_seal *seal, const lar_hash *key, lar_slice bytes,
                                               uint64_t *stamp, lar_buf *value);

#endif
