/* Private to base/hash*.c: XXH3-128 of long inputs, compiled once for each vector width. */
#ifndef LARDER_BASE_HASH_WIDE_H
#define LARDER_BASE_HASH_WIDE_H

#include <stddef.h>

#include "base/hash.h"

/* The same value from each; to be called only where the processor has the instructions. */
lar_hash lar_hash_long_avx2(const void *bytes, size_t len);
lar_hash lar_hash_long_avx512(const void *bytes, size_t len);

#endif
