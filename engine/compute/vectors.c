/* Vector operations for any processor, and the choice between them. See vectors.h; vectors_body.h has the code.
 * Flow: attention.c calls. Any thread; never blocks; no memory. */
#define VECTORS_NAME lar_vectors_plain
#define VECTORS_WIDTH 4
#define VECTORS_BLOCK 2
#include "engine/compute/vectors_body.h"

const lar_vectors *lar_vectors_best(void) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return &lar_vectors_avx512;
    if (__builtin_cpu_supports("avx2")) return &lar_vectors_avx2;
#endif
    return &lar_vectors_plain;
}
