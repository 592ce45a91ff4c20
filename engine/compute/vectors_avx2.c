/* Vector operations for AVX2. See vectors.h; vectors_body.h has the code.
 * Flow: attention, the latent cache and the sampler call. Any thread; never blocks; no memory. */
#define VECTORS_NAME lar_vectors_avx2
#define VECTORS_WIDTH 8
#define VECTORS_QUERIES 2
#define VECTORS_KEYS 2
#include "engine/compute/vectors_body.h"
