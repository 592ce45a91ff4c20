/* Tensors with random values, valid for their type, for tests and the benchmark. */
#ifndef LARDER_TESTS_RANDOM_WEIGHTS_H
#define LARDER_TESTS_RANDOM_WEIGHTS_H

#include "engine/files/tensor.h"

typedef struct random_weights {
    lar_tensor tensor, scale;
} random_weights;

uint32_t random_next(uint64_t *seed);
/* In [-1, 1). */
float random_float(uint64_t *seed);
/* (rows, columns) of `type`; columns is a multiple of the type's block. Scales are about 1 / 100; of FP8 one for each
 * 128 x 128. Aborts without memory. The tensors point into `w`, which must stay where it is. */
void random_weights_init(random_weights *w, lar_dtype type, uint32_t rows, uint32_t columns, uint64_t seed);
void random_weights_release(random_weights *w);

#endif
