/* A tensor as it lies in a model's file, and reading it as floats. */
#ifndef LARDER_ENGINE_FILES_TENSOR_H
#define LARDER_ENGINE_FILES_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum lar_dtype {
#define LAR_DTYPE(name, gguf, safetensors, elements, bytes) LAR_DTYPE_##name,
#include "engine/files/dtype.def"
#undef LAR_DTYPE
    LAR_DTYPE_COUNT
} lar_dtype;

typedef struct lar_dtype_info {
    const char *name;        /* "Q4_K" */
    int gguf;                /* GGUF's type number, -1: not in GGUF */
    const char *safetensors; /* NULL: not in safetensors */
    uint32_t block_elements; /* a row holds whole blocks */
    uint32_t block_bytes;
} lar_dtype_info;

const lar_dtype_info *lar_dtype_info_of(lar_dtype type);

#define LAR_TENSOR_DIMS 4
/* Row-major, outermost dimension first: a matrix that maps `in` to `out` values is (out, in); all experts of a layer
 * in one tensor are (experts, out, in). GGUF's own order is the reverse; its reader turns it round. */
typedef struct lar_tensor {
    const char *name; /* as in the file; lives as long as the files are open */
    lar_dtype type;
    uint32_t dims; /* 1 to LAR_TENSOR_DIMS */
    uint64_t shape[LAR_TENSOR_DIMS];
    const uint8_t *data; /* in the mapped file; alignment is not promised */
    uint64_t bytes;
    /* F8_E4M3 only: F32 (ceil(out/128), ceil(in/128)), a value is fp8 * scale; NULL: 1. */
    const struct lar_tensor *scale;
} lar_tensor;

/* Elements in a row (the last dimension), and rows (all dimensions before it together). */
uint64_t lar_tensor_row_elements(const lar_tensor *t);
uint64_t lar_tensor_rows(const lar_tensor *t);
/* Row `row` as floats into `out`, lar_tensor_row_elements() of them, for every type as ggml's reference computes it:
 * one float32 product of a block's scale and its integer, and for the types with a minimum one float32 sum. */
void lar_tensor_row(const lar_tensor *t, uint64_t row, float *out);

/* INVALID, naming the row, if a value would be NaN or infinite; of quantised blocks their scales are looked at, of
 * F8_E4M3 the scales too. Reads the whole tensor. */
LAR_MUST_USE lar_error lar_tensor_check_finite(const lar_tensor *t, lar_diag *d);

#endif
