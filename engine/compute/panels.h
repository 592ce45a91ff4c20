/* Weights repacked for vector code, and what one call of a kernel does with them.
 *
 * Sixteen rows of a matrix are a panel: their values lie interleaved, so that a vector register holds the same columns
 * of sixteen rows, each lane sums its own row and nothing is ever added across lanes. A panel is one stream in the
 * order in which it is read: scales, the values that they cover, the next scales, ...; padded to 64 bytes. Scales apart
 * from values, or two panels at once, cost up to a third of what memory delivers (docs/design/0022). The last panel is
 * filled up with rows of zeros.
 *
 * Integer types, a block of 32 columns: four bytes of row 0, four of row 1, ... are a group (64 bytes: 4 columns of 16
 * rows), eight groups a block. What a byte holds is the value plus a bias, never negative.
 *   8 bits  the groups 0 to 7
 *   4 bits  four times 64 bytes: group g in the low half, group g + 4 in the high half
 *   5 bits  the same, then 64 bytes whose bit g is the fifth bit of group g
 *   6 bits  the same, then 64 bytes for the groups 0 to 3 and 64 for 4 to 7, two bits each from the low end
 *   table   as 4 bits, each an index into the sixteen values of IQ4_NL
 * Float types: a column of 16 rows after the other; BF16 as two columns of each row beside each other (columns are
 * filled up to an even number). */
#ifndef LARDER_ENGINE_COMPUTE_PANELS_H
#define LARDER_ENGINE_COMPUTE_PANELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/files/tensor.h"

enum { LAR_PANEL_ROWS = 16, LAR_BLOCK = 32, LAR_TILE_TOKENS = 16, LAR_GROUP_BYTES = 64, LAR_F8_SPAN = 128 };

typedef enum lar_panel_values {
    LAR_VALUES_4,
    LAR_VALUES_TABLE,
    LAR_VALUES_5,
    LAR_VALUES_6,
    LAR_VALUES_8,
    LAR_VALUES_F32,
    LAR_VALUES_F16,
    LAR_VALUES_BF16,
    LAR_VALUES_F8
} lar_panel_values;

/* The scales of a panel, arrays of 16, one element for each row. F16 and F16_MIN once a block, the next three once 256
 * columns, F8 once 128 columns. A value is scale * (byte - bias) - minimum; d * s and e * m are float32 products. */
typedef enum lar_panel_scales {
    LAR_SCALES_NONE,
    LAR_SCALES_F16,     /* f16 scale */
    LAR_SCALES_F16_MIN, /* f16 scale, f16 minimum: the negative of what Q5_1 adds */
    LAR_SCALES_K,       /* f16 d, f16 e, u8 s of 8 blocks, u8 m of 8 blocks: scale d * s, minimum e * m */
    LAR_SCALES_K16,     /* f16 d, i8 s of 16 half blocks: scale d * s */
    LAR_SCALES_X,       /* f16 d, i8 s of 8 blocks: scale d * s */
    LAR_SCALES_F8       /* f32 scale */
} lar_panel_scales;

typedef struct lar_panel_form {
    lar_panel_values values;
    lar_panel_scales scales;
    uint32_t bias_bits;     /* the bias is 1 << bias_bits; 0: there is none */
    uint32_t block_bytes;   /* integer types: values of a block; float types: of a column */
    uint32_t scale_columns; /* columns that a group of scales covers */
    uint32_t scale_bytes;   /* of such a group */
} lar_panel_form;

/* Inline, so that a kernel made for one type folds it away. */
static inline lar_panel_form lar_panel_form_of(lar_dtype type) {
    switch (type) {
    case LAR_DTYPE_Q4_0: return (lar_panel_form){LAR_VALUES_4, LAR_SCALES_F16, 3, 256, 32, 32};
    case LAR_DTYPE_Q5_0: return (lar_panel_form){LAR_VALUES_5, LAR_SCALES_F16, 4, 320, 32, 32};
    case LAR_DTYPE_Q5_1: return (lar_panel_form){LAR_VALUES_5, LAR_SCALES_F16_MIN, 0, 320, 32, 64};
    case LAR_DTYPE_Q8_0: return (lar_panel_form){LAR_VALUES_8, LAR_SCALES_F16, 7, 512, 32, 32};
    case LAR_DTYPE_Q4_K: return (lar_panel_form){LAR_VALUES_4, LAR_SCALES_K, 0, 256, 256, 320};
    case LAR_DTYPE_Q5_K: return (lar_panel_form){LAR_VALUES_5, LAR_SCALES_K, 0, 320, 256, 320};
    case LAR_DTYPE_Q6_K: return (lar_panel_form){LAR_VALUES_6, LAR_SCALES_K16, 5, 384, 256, 288};
    case LAR_DTYPE_IQ4_NL: return (lar_panel_form){LAR_VALUES_TABLE, LAR_SCALES_F16, 7, 256, 32, 32};
    case LAR_DTYPE_IQ4_XS: return (lar_panel_form){LAR_VALUES_TABLE, LAR_SCALES_X, 7, 256, 256, 160};
    case LAR_DTYPE_F16: return (lar_panel_form){LAR_VALUES_F16, LAR_SCALES_NONE, 0, 32, 1, 0};
    case LAR_DTYPE_BF16: return (lar_panel_form){LAR_VALUES_BF16, LAR_SCALES_NONE, 0, 32, 1, 0};
    case LAR_DTYPE_F8_E4M3: return (lar_panel_form){LAR_VALUES_F8, LAR_SCALES_F8, 0, 16, LAR_F8_SPAN, 64};
    case LAR_DTYPE_F32:
    case LAR_DTYPE_COUNT: break;
    }
    return (lar_panel_form){LAR_VALUES_F32, LAR_SCALES_NONE, 0, 64, 1, 0};
}

/* Bytes of scales and the values that they cover. A unit is a block of an integer type, a column of floats. */
static inline uint32_t lar_panel_units(const lar_panel_form *f) {
    return f->values <= LAR_VALUES_8 ? f->scale_columns / LAR_BLOCK : f->scale_columns;
}
static inline size_t lar_panel_group_bytes(const lar_panel_form *f) {
    return f->scale_bytes + (size_t)lar_panel_units(f) * f->block_bytes;
}
/* Where in a panel the scales of a unit are, and its values. */
static inline size_t lar_panel_scales_at(const lar_panel_form *f, uint32_t unit) {
    return unit / lar_panel_units(f) * lar_panel_group_bytes(f);
}
static inline size_t lar_panel_values_at(const lar_panel_form *f, uint32_t unit) {
    return lar_panel_scales_at(f, unit) + f->scale_bytes + (size_t)(unit % lar_panel_units(f)) * f->block_bytes;
}

static inline bool lar_panel_is_integer(lar_dtype type) { return lar_panel_form_of(type).values <= LAR_VALUES_8; }

/* The sixteen values of IQ4_NL and IQ4_XS (ggml's table), plus the bias of 128. */
#define LAR_IQ4_TABLE                                                                                                  \
    { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 }

typedef struct lar_panels {
    lar_dtype type;
    uint32_t rows, columns;
    uint32_t panels;   /* of 16 rows */
    size_t panel_step; /* bytes of a panel, a multiple of 64 */
    uint8_t *data;     /* (panels, panel_step), aligned to 64, owned */
} lar_panels;

/* Repacks rows [first, first + rows) of `t`. Owned by the caller; free() it whole. The tensor is not needed after.
 * Errors: NO_MEMORY; INVALID: an FP8 value is not a number. */
LAR_MUST_USE lar_error lar_panels_new(const lar_tensor *t, uint64_t first, uint32_t rows, lar_panels **out,
                                      lar_diag *d);
/* Bytes that lar_panels_new would allocate. */
size_t lar_panels_bytes(lar_dtype type, uint32_t rows, uint32_t columns);

/* The same in memory of the caller's: lar_panels_room() bytes of it, a multiple of 64 and aligned to 64, become panels
 * that are not filled yet. */
size_t lar_panels_room(lar_dtype type, uint32_t rows, uint32_t columns);
lar_panels *lar_panels_place(lar_dtype type, uint32_t rows, uint32_t columns, void *memory);

typedef struct lar_rows_source {
    const lar_tensor *tensor;
    uint64_t first;              /* row */
    struct lar_workers *workers; /* share the panels; NULL: the calling thread alone */
} lar_rows_source;
/* Fills all panels. INVALID: an FP8 value is not a number. */
LAR_MUST_USE lar_error lar_panels_fill(lar_panels *p, const lar_rows_source *s, lar_diag *d);

/* 32 activations as integers: x is scale * values. */
typedef struct lar_int8_block {
    int8_t values[LAR_BLOCK];
    float scale;
    float scaled_sum; /* scale * the sum of all values, for types with a minimum */
    int32_t less[2];  /* the sums of the first and the last 16 values, negative: times the bias it takes the bias off */
} lar_int8_block;

/* Activations of up to 16 tokens as kernels read them:
 *   int8   lar_int8_block (blocks, tokens)
 *   float  float (columns, tokens); columns are filled up to an even number with zeros */
typedef struct lar_tile {
    lar_dtype type;
    uint32_t columns, tokens, panels;
    const uint8_t *data; /* the first panel */
    size_t panel_step;
    const void *x;
    float *y; /* (panels, tokens, 16) */
} lar_tile;

/* Computes y of a tile. Every sum runs over the columns in ascending order, in float32, with fused multiply-add:
 * kernels of all paths agree bit for bit, however many tokens or panels are given at once.
 *   int8   of each block the exact integer sum i: sum += (scale * x.scale) * i, then sum -= minimum * x.scaled_sum;
 *          Q6_K, whose scales cover 16 columns: sum += x.scale * (scale0 * i0 + scale1 * i1)
 *   float  128 columns at a time: part += weight * x, the weight as lar_tensor_row gives it; then sum += part */
typedef void (*lar_tile_kernel)(const lar_tile *t);
void lar_tile_int8_scalar(const lar_tile *t);
void lar_tile_float_scalar(const lar_tile *t);
void lar_tile_int8_avx2(const lar_tile *t);
void lar_tile_float_avx2(const lar_tile *t);
void lar_tile_int8_avx512(const lar_tile *t);
void lar_tile_float_avx512(const lar_tile *t);

/* 32 floats to one block; what matmul.h says of LAR_ACTIVATIONS_INT8. The paths agree bit for bit. */
void lar_int8_block_scalar(const float x[LAR_BLOCK], lar_int8_block *out);
void lar_int8_block_avx2(const float x[LAR_BLOCK], lar_int8_block *out);
void lar_int8_block_avx512(const float x[LAR_BLOCK], lar_int8_block *out);

/* out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x) with the exponential as LAR_EXP says; out may be gate or up.
 * The paths agree bit for bit. */
void lar_silu_scalar(const float *gate, const float *up, float *out, uint32_t n);
void lar_silu_avx2(const float *gate, const float *up, float *out, uint32_t n);
void lar_silu_avx512(const float *gate, const float *up, float *out, uint32_t n);

/* e^x as 2^n (1 + r + r^2 p(r)), n the nearest integer of x / ln 2, p of degree 5: within 2 ulp between LAR_EXP_MIN and
 * LAR_EXP_MAX, to which x is cut. Coefficients: the Cephes library's expf (S. Moshier). */
#define LAR_EXP_MIN (-87.33654f)
#define LAR_EXP_MAX 88.37626f
#define LAR_EXP_LN2_HIGH 0.693359375f
#define LAR_EXP_LN2_LOW (-2.12194440e-4f)
#define LAR_EXP_INVERSE_LN2 1.44269504088896341f
#define LAR_EXP_COEFFICIENTS                                                                                           \
    { 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f }

#endif
