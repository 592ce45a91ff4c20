/* Vector operations for any processor, and the choice between them. See vectors.h; vectors_body.h has the code.
 * Flow: attention, the latent cache and the sampler call. Any thread; never blocks; no memory. */
#define VECTORS_NAME lar_vectors_plain
#define VECTORS_WIDTH 4
#define VECTORS_QUERIES 2
#define VECTORS_KEYS 2
#include "engine/compute/vectors_body.h"

const lar_vectors *lar_vectors_best(void) {
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return &lar_vectors_plain;
    return __builtin_cpu_supports("avx512f") ? &lar_vectors_avx512 : &lar_vectors_avx2;
#else
    return &lar_vectors_plain;
#endif
}
