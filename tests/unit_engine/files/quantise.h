/* Writing floats in every type of dtype.def, by plain rounding to the nearest: for files that tests make up. */
#ifndef LARDER_TESTS_QUANTISE_H
#define LARDER_TESTS_QUANTISE_H

#include "engine/files/tensor.h"

/* n values, whole blocks, to n / block_elements * block_bytes bytes. F8_E4M3: without scales, cut at 448. */
void quantise_row(lar_dtype type, const float *x, uint64_t n, uint8_t *out);

/* Rounding to the nearest, ties to even; what is too large becomes infinite (F16) or 448 (E4M3). */
uint16_t quantise_f16(float x);
uint16_t quantise_bf16(float x);
uint8_t quantise_e4m3(float x);

#endif
