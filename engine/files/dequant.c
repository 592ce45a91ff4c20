/* Types of tensors, and reading a row of any of them as floats: the readable reference that fast kernels are held to.
 * Called by engine/model while it prepares weights, by the embedding of tokens, and by tests. Any thread; never blocks
 * but on pages of the mapped file. Source: the block layouts of ggml (ggml-common.h, ggml-quants.c of llama.cpp), read
 * and written anew; DeepSeek-V3's inference/kernel.py for the scales of FP8.
 * Invariants: 1. the products are those of the contract in tensor.h, in that order, so that results are equal bit for
 * bit to ggml's reference. 2. nothing here looks at a byte outside the row: shapes were checked when the file was
 * opened. Not here: kernels that multiply (engine/compute), quantising (tests write files, larder does not). */
#include "base/ensure.h"
#include "engine/files/float_bits.h"
#include "engine/files/tensor.h"

enum { K_VALUES = 256, SCALE_SPAN = 128 };

static const lar_dtype_info dtypes[] = {
#define LAR_DTYPE(name, gguf, safetensors, elements, bytes) {#name, gguf, safetensors, elements, bytes},
#include "engine/files/dtype.def"
#undef LAR_DTYPE
};

const lar_dtype_info *lar_dtype_info_of(lar_dtype type) {
    LAR_ASSERT((unsigned)type < LAR_DTYPE_COUNT);
    return &dtypes[type];
}

uint64_t lar_tensor_row_elements(const lar_tensor *t) { return t->shape[t->dims - 1]; }

uint64_t lar_tensor_rows(const lar_tensor *t) {
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < t->dims; i++) rows *= t->shape[i];
    return rows;
}

static float half_at(const uint8_t *p) { return lar_f16_float(lar_le16(p)); }

/* -- one block of each type: `b` its bytes, `y` its values -------------------------------------------------------- */

static void block_f32(const uint8_t *b, float *y) { *y = lar_bits_float(lar_le32(b)); }
static void block_f16(const uint8_t *b, float *y) { *y = half_at(b); }
static void block_bf16(const uint8_t *b, float *y) { *y = lar_bf16_float(lar_le16(b)); }
static void block_f8_e4m3(const uint8_t *b, float *y) { *y = lar_e4m3_float(*b); }

/* The four-bit types of 32: byte j holds value j in its low half and value j + 16 in its high half. */
static void block_q4_0(const uint8_t *b, float *y) {
    float d = half_at(b);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((b[2 + j] & 15) - 8) * d;
        y[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

/* Five bits: the fifth of value i is bit i of a 32-bit word before the halves. */
static int fifth(uint32_t high, int i) { return (int)(high >> i & 1u) << 4; }

static void block_q5_0(const uint8_t *b, float *y) {
    float d = half_at(b);
    uint32_t high = lar_le32(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)(((b[6 + j] & 15) | fifth(high, j)) - 16) * d;
        y[j + 16] = (float)(((b[6 + j] >> 4) | fifth(high, j + 16)) - 16) * d;
    }
}

static void block_q5_1(const uint8_t *b, float *y) {
    float d = half_at(b), m = half_at(b + 2);
    uint32_t high = lar_le32(b + 4);
    for (int j = 0; j < 16; j++) {
        float low = (float)((b[8 + j] & 15) | fifth(high, j)) * d;
        float up = (float)((b[8 + j] >> 4) | fifth(high, j + 16)) * d;
        y[j] = low + m;
        y[j + 16] = up + m;
    }
}

static void block_q8_0(const uint8_t *b, float *y) {
    float d = half_at(b);
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)b[2 + j] * d;
}

/* Scale and minimum of the j-th 32 values of a Q4_K or Q5_K block: six bits each. Of the first four the twelve bytes
 * hold them whole, in the low six bits; of the last four the low halves, and the upper two bits stand above the first
 * four. */
static void k_scale(const uint8_t *twelve, int j, uint8_t *scale, uint8_t *minimum) {
    if (j < 4) {
        *scale = twelve[j] & 63;
        *minimum = twelve[j + 4] & 63;
        return;
    }
    *scale = (uint8_t)((twelve[j + 4] & 15) | (twelve[j - 4] >> 6) << 4);
    *minimum = (uint8_t)((twelve[j + 4] >> 4) | (twelve[j] >> 6) << 4);
}

/* Bytes: d, dmin (halves), 12 of scales, 128 of nibbles: each 32 bytes hold 32 values low, the next 32 high. */
static void block_q4_k(const uint8_t *b, float *y) {
    float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        uint8_t scale, minimum;
        k_scale(b + 4, j, &scale, &minimum);
        float s = d * (float)scale, m = dmin * (float)minimum;
        const uint8_t *q = b + 16 + j / 2 * 32;
        for (int l = 0; l < 32; l++) {
            float product = s * (float)(j % 2 ? q[l] >> 4 : q[l] & 15);
            y[j * 32 + l] = product - m;
        }
    }
}

/* As Q4_K, with 32 bytes between: bit j of byte l is the fifth bit of value l of the j-th 32. */
static void block_q5_k(const uint8_t *b, float *y) {
    float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *high = b + 16;
    for (int j = 0; j < 8; j++) {
        uint8_t scale, minimum;
        k_scale(b + 4, j, &scale, &minimum);
        float s = d * (float)scale, m = dmin * (float)minimum;
        const uint8_t *q = b + 48 + j / 2 * 32;
        for (int l = 0; l < 32; l++) {
            int value = (j % 2 ? q[l] >> 4 : q[l] & 15) + (high[l] >> j & 1) * 16;
            float product = s * (float)value;
            y[j * 32 + l] = product - m;
        }
    }
}

/* Bytes: 128 low nibbles, 64 of upper bit pairs, 16 signed scales, d. Each half of 128 values: value l + 32 k (k 0 to
 * 3) has its nibble in byte l + 32 (k % 2), low for k < 2, and its pair in byte l at bit 2 k. A scale is for 16. */
static void block_q6_k(const uint8_t *b, float *y) {
    float d = half_at(b + 208);
    for (int i = 0; i < K_VALUES; i++) {
        int half = i / 128, k = i % 128 / 32, l = i % 32;
        uint8_t nibbles = b[half * 64 + l + 32 * (k % 2)];
        int low = k < 2 ? nibbles & 15 : nibbles >> 4;
        int pair = b[128 + half * 32 + l] >> (2 * k) & 3;
        float s = d * (float)(int8_t)b[192 + i / 16];
        y[i] = s * (float)((low | pair << 4) - 32);
    }
}

/* The sixteen levels of the IQ4 types: closer together around zero, where weights are. */
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void levels_of(const uint8_t *q, float scale, float *y) {
    for (int j = 0; j < 16; j++) {
        y[j] = scale * (float)iq4_levels[q[j] & 15];
        y[j + 16] = scale * (float)iq4_levels[q[j] >> 4];
    }
}

static void block_iq4_nl(const uint8_t *b, float *y) { levels_of(b + 2, half_at(b), y); }

/* Bytes: d, 16 bits with the upper two of each of eight scales, 4 bytes with their low nibbles, 128 of nibbles. */
static void block_iq4_xs(const uint8_t *b, float *y) {
    float d = half_at(b);
    uint16_t high = lar_le16(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale = (b[4 + j / 2] >> (4 * (j % 2)) & 15) | (high >> (2 * j) & 3) << 4;
        levels_of(b + 8 + 16 * j, d * (float)(scale - 32), y + 32 * j);
    }
}

typedef void (*block_reader)(const uint8_t *block, float *values);
static const block_reader readers[LAR_DTYPE_COUNT] = {
    [LAR_DTYPE_F32] = block_f32,         [LAR_DTYPE_F16] = block_f16,   [LAR_DTYPE_BF16] = block_bf16,
    [LAR_DTYPE_F8_E4M3] = block_f8_e4m3, [LAR_DTYPE_Q4_0] = block_q4_0, [LAR_DTYPE_Q5_0] = block_q5_0,
    [LAR_DTYPE_Q5_1] = block_q5_1,       [LAR_DTYPE_Q8_0] = block_q8_0, [LAR_DTYPE_Q4_K] = block_q4_k,
    [LAR_DTYPE_Q5_K] = block_q5_k,       [LAR_DTYPE_Q6_K] = block_q6_k, [LAR_DTYPE_IQ4_NL] = block_iq4_nl,
    [LAR_DTYPE_IQ4_XS] = block_iq4_xs,
};

/* The last block of a row or a column of blocks may be smaller; its scale is its own all the same. */
static void scale_row(const lar_tensor *scale, uint64_t row, uint64_t elements, float *out) {
    const uint8_t *scales = scale->data + row / SCALE_SPAN * scale->shape[1] * 4;
    for (uint64_t i = 0; i < elements; i++) out[i] *= lar_bits_float(lar_le32(scales + i / SCALE_SPAN * 4));
}

void lar_tensor_row(const lar_tensor *t, uint64_t row, float *out) {
    const lar_dtype_info *info = lar_dtype_info_of(t->type);
    uint64_t elements = lar_tensor_row_elements(t), blocks = elements / info->block_elements;
    LAR_ASSERT(row < lar_tensor_rows(t));
    const uint8_t *b = t->data + row * blocks * info->block_bytes;
    block_reader read = readers[t->type];
    for (uint64_t i = 0; i < blocks; i++) read(b + i * info->block_bytes, out + i * info->block_elements);
    if (t->scale) scale_row(t->scale, row, elements, out);
}
