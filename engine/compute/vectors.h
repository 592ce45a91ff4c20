/* Sums and products of float vectors in 16 lanes, for attention over float32 latents.
 * The same bits on every processor: 16 partial sums whatever the registers hold, no fused multiply-add, one fixed order
 * at the end. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_H
#define LARDER_ENGINE_COMPUTE_VECTORS_H

#include <stdint.h>

typedef struct lar_vectors {
    float (*dot)(const float *a, const float *b, uint32_t n);
    void (*add_scaled)(float *y, const float *x, float scale, uint32_t n); /* y += scale * x */
} lar_vectors;

/* For this processor. */
const lar_vectors *lar_vectors_best(void);

/* Each: one file, compiled for one instruction set. */
extern const lar_vectors lar_vectors_plain, lar_vectors_avx2, lar_vectors_avx512;

#endif
