/* The vector operations, as text that vectors*.c include once each, for the instruction set they are compiled for.
 * VECTORS_NAME is the table to define. */
#ifndef LARDER_ENGINE_COMPUTE_VECTORS_BODY_H
#define LARDER_ENGINE_COMPUTE_VECTORS_BODY_H

#include <string.h>

#include "engine/compute/vectors.h"

typedef float lanes __attribute__((vector_size(64)));
enum { LANES = 16 };

static float dot(const float *a, const float *b, uint32_t n) {
    lanes sum = {0}, other = {0}, x, y;
    uint32_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        memcpy(&x, a + i, sizeof x), memcpy(&y, b + i, sizeof y);
        sum += x * y;
        memcpy(&x, a + i + LANES, sizeof x), memcpy(&y, b + i + LANES, sizeof y);
        other += x * y;
    }
    for (; i < n; i += LANES) {
        uint32_t some = n - i < LANES ? n - i : LANES;
        memset(&x, 0, sizeof x), memset(&y, 0, sizeof y);
        memcpy(&x, a + i, some * sizeof *a), memcpy(&y, b + i, some * sizeof *b);
        sum += x * y;
    }
    sum += other;
    float part[LANES];
    memcpy(part, &sum, sizeof part);
    for (uint32_t step = LANES / 2; step; step /= 2)
        for (uint32_t k = 0; k < step; k++) part[k] += part[k + step];
    return part[0];
}

static void add_scaled(float *y, const float *x, float scale, uint32_t n) {
    lanes u, v;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(&u, y + i, sizeof u), memcpy(&v, x + i, sizeof v);
        u += v * scale;
        memcpy(y + i, &u, sizeof u);
    }
    for (; i < n; i++) y[i] += scale * x[i];
}

const lar_vectors VECTORS_NAME = {dot, add_scaled};

#endif
