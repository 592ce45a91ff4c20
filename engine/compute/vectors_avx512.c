/* Vector operations for AVX512. See vectors.h; vectors_body.h has the code.
 * Flow: attention, the latent cache and the sampler call. Any thread; never blocks; no memory. */
#define VECTORS_NAME lar_vectors_avx512
#define VECTORS_WIDTH 16
#define VECTORS_QUERIES 8
#define VECTORS_KEYS 2
#include "engine/compute/vectors_body.h"
