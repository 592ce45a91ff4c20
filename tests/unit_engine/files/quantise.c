/* Quantisers for made-up files: each block's scale from its largest value, each value rounded to the nearest level.
 * Called by tests and by write_model. Why so plain: the files need valid blocks of every type with all bits in use, not
 * the best fit. Source: the block layouts of ggml, as engine/files/dequant.c describes them. */
#include "tests/unit_engine/files/quantise.h"

#include <math.h>
#include <string.h>

#include "engine/files/float_bits.h"

enum { K = 256 };

static void put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8); }

uint16_t quantise_bf16(float x) {
    uint32_t b = lar_float_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

uint16_t quantise_f16(float x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float a = fabsf(x);
    if (isnan(x)) return 0x7e00;
    if (a < 0x1p-14f) return (uint16_t)(sign | (uint16_t)rintf(a * 0x1p24f));
    uint32_t b = lar_float_bits(a);
    b += 0xfffu + (b >> 13 & 1u);
    if (b >= 143u << 23) return sign | 0x7c00;
    return (uint16_t)(sign | (uint16_t)((b >> 13) - (112u << 10)));
}

uint8_t quantise_e4m3(float x) {
    uint8_t sign = signbit(x) ? 0x80 : 0;
    float a = fabsf(x);
    if (isnan(x)) return 0x7f;
    if (a >= 448) return (uint8_t)(sign | 0x7e);
    if (a < 0x1p-6f) return (uint8_t)(sign | (uint8_t)rintf(a * 0x1p9f));
    uint32_t b = lar_float_bits(a);
    b += 0x7ffffu + (b >> 20 & 1u);
    return (uint8_t)(sign | (uint8_t)((b >> 20) - (120u << 3)));
}

static float half_of(const uint8_t *p) { return lar_f16_float(lar_le16(p)); }

static int level(float x, float step, int low, int high) {
    int q = step != 0 ? (int)lrintf(x / step) : 0;
    return q < low ? low : q > high ? high : q;
}

/* The value farthest from zero, with its sign: it gets the lowest level, of which there is one more. */
static float extreme(const float *x, int n) {
    float e = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(e)) e = x[i];
    return e;
}

static void q4_0(const float *x, uint8_t *b) {
    put16(b, quantise_f16(extreme(x, 32) / -8));
    float d = half_of(b);
    for (int j = 0; j < 16; j++)
        b[2 + j] = (uint8_t)((level(x[j], d, -8, 7) + 8) | (level(x[j + 16], d, -8, 7) + 8) << 4);
}

/* q: 32 values of five bits, in the order of the block. */
static void put_five_bits(const int *q, uint8_t *high, uint8_t *nibbles) {
    memset(high, 0, 4);
    for (int i = 0; i < 32; i++) high[i / 8] |= (uint8_t)((q[i] >> 4) << (i % 8));
    for (int j = 0; j < 16; j++) nibbles[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static void q5_0(const float *x, uint8_t *b) {
    int q[32];
    put16(b, quantise_f16(extreme(x, 32) / -16));
    for (int i = 0; i < 32; i++) q[i] = level(x[i], half_of(b), -16, 15) + 16;
    put_five_bits(q, b + 2, b + 6);
}

static void range_of(const float *x, int n, float *low, float *high) {
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < *low) *low = x[i];
        if (x[i] > *high) *high = x[i];
    }
}

static void q5_1(const float *x, uint8_t *b) {
    int q[32];
    float low, high;
    range_of(x, 32, &low, &high);
    put16(b, quantise_f16((high - low) / 31));
    put16(b + 2, quantise_f16(low));
    for (int i = 0; i < 32; i++) q[i] = level(x[i] - half_of(b + 2), half_of(b), 0, 31);
    put_five_bits(q, b + 4, b + 8);
}

static void q8_0(const float *x, uint8_t *b) {
    put16(b, quantise_f16(fabsf(extreme(x, 32)) / 127));
    for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)level(x[i], half_of(b), -127, 127);
}

/* The head of a Q4_K or Q5_K block: d, dmin, twelve bytes; and its values, 0 to `top`. */
static void k_levels(const float *x, int top, uint8_t *b, int *q) {
    float scale[8], minimum[8], scale_max = 0, minimum_max = 0;
    for (int j = 0; j < 8; j++) {
        float low, high;
        range_of(x + 32 * j, 32, &low, &high);
        if (low > 0) low = 0;
        scale[j] = (high - low) / (float)top;
        minimum[j] = -low;
        scale_max = fmaxf(scale_max, scale[j]);
        minimum_max = fmaxf(minimum_max, minimum[j]);
    }
    put16(b, quantise_f16(scale_max / 63));
    put16(b + 2, quantise_f16(minimum_max / 63));
    memset(b + 4, 0, 12);
    for (int j = 0; j < 8; j++) {
        int s = level(scale[j], half_of(b), 0, 63), m = level(minimum[j], half_of(b + 2), 0, 63);
        if (j < 4) {
            b[4 + j] |= (uint8_t)s;
            b[8 + j] |= (uint8_t)m;
        } else {
            b[8 + j] = (uint8_t)((s & 15) | (m & 15) << 4);
            b[j] |= (uint8_t)(s >> 4 << 6);
            b[4 + j] |= (uint8_t)(m >> 4 << 6);
        }
        for (int l = 0; l < 32; l++)
            q[32 * j + l] = level(x[32 * j + l] + half_of(b + 2) * (float)m, half_of(b) * (float)s, 0, top);
    }
}

static void put_nibbles(const int *q, uint8_t *nibbles) {
    for (int i = 0; i < 128; i++) {
        const int *pair = q + i / 32 * 64 + i % 32;
        nibbles[i] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

static void q4_k(const float *x, uint8_t *b) {
    int q[K];
    k_levels(x, 15, b, q);
    put_nibbles(q, b + 16);
}

static void q5_k(const float *x, uint8_t *b) {
    int q[K];
    k_levels(x, 31, b, q);
    memset(b + 16, 0, 32);
    for (int i = 0; i < K; i++) b[16 + i % 32] |= (uint8_t)((q[i] >> 4) << (i / 32));
    put_nibbles(q, b + 48);
}

static void q6_k(const float *x, uint8_t *b) {
    float scale[16], most = 0;
    memset(b, 0, 192);
    for (int j = 0; j < 16; j++) {
        scale[j] = extreme(x + 16 * j, 16) / -32;
        if (fabsf(scale[j]) > fabsf(most)) most = scale[j];
    }
    put16(b + 208, quantise_f16(most / -128));
    for (int j = 0; j < 16; j++) b[192 + j] = (uint8_t)level(scale[j], half_of(b + 208), -128, 127);
    for (int i = 0; i < K; i++) {
        float s = half_of(b + 208) * (float)(int8_t)b[192 + i / 16];
        int q = level(x[i], s, -32, 31) + 32, half = i / 128, k = i % 128 / 32, l = i % 32;
        b[half * 64 + l + 32 * (k % 2)] |= (uint8_t)((q & 15) << (k < 2 ? 0 : 4));
        b[128 + half * 32 + l] |= (uint8_t)((q >> 4) << (2 * k));
    }
}

static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void nearest_levels(const float *x, float step, uint8_t *q) {
    int best[32];
    for (int i = 0; i < 32; i++) {
        best[i] = 8;
        for (int k = 0; k < 16; k++)
            if (fabsf(x[i] - step * (float)iq4_levels[k]) < fabsf(x[i] - step * (float)iq4_levels[best[i]]))
                best[i] = k;
    }
    for (int j = 0; j < 16; j++) q[j] = (uint8_t)(best[j] | best[j + 16] << 4);
}

static void iq4_nl(const float *x, uint8_t *b) {
    put16(b, quantise_f16(extreme(x, 32) / -127));
    nearest_levels(x, half_of(b), b + 2);
}

static void iq4_xs(const float *x, uint8_t *b) {
    float scale[8], most = 0;
    uint16_t high = 0;
    for (int j = 0; j < 8; j++) {
        scale[j] = extreme(x + 32 * j, 32) / -127;
        if (fabsf(scale[j]) > fabsf(most)) most = scale[j];
    }
    put16(b, quantise_f16(most / -32));
    memset(b + 4, 0, 4);
    for (int j = 0; j < 8; j++) {
        int s = level(scale[j], half_of(b), -32, 31) + 32;
        b[4 + j / 2] |= (uint8_t)((s & 15) << (4 * (j % 2)));
        high |= (uint16_t)((s >> 4) << (2 * j));
        nearest_levels(x + 32 * j, half_of(b) * (float)(s - 32), b + 8 + 16 * j);
    }
    put16(b + 2, high);
}

static void f32(const float *x, uint8_t *b) {
    uint32_t v = lar_float_bits(*x);
    put16(b, (uint16_t)v);
    put16(b + 2, (uint16_t)(v >> 16));
}
static void f16(const float *x, uint8_t *b) { put16(b, quantise_f16(*x)); }
static void bf16(const float *x, uint8_t *b) { put16(b, quantise_bf16(*x)); }
static void e4m3(const float *x, uint8_t *b) { *b = quantise_e4m3(*x); }

typedef void (*block_writer)(const float *values, uint8_t *block);
static const block_writer writers[LAR_DTYPE_COUNT] = {
    [LAR_DTYPE_F32] = f32,       [LAR_DTYPE_F16] = f16,   [LAR_DTYPE_BF16] = bf16, [LAR_DTYPE_F8_E4M3] = e4m3,
    [LAR_DTYPE_Q4_0] = q4_0,     [LAR_DTYPE_Q5_0] = q5_0, [LAR_DTYPE_Q5_1] = q5_1, [LAR_DTYPE_Q8_0] = q8_0,
    [LAR_DTYPE_Q4_K] = q4_k,     [LAR_DTYPE_Q5_K] = q5_k, [LAR_DTYPE_Q6_K] = q6_k, [LAR_DTYPE_IQ4_NL] = iq4_nl,
    [LAR_DTYPE_IQ4_XS] = iq4_xs,
};

void quantise_row(lar_dtype type, const float *x, uint64_t n, uint8_t *out) {
    const lar_dtype_info *info = lar_dtype_info_of(type);
    for (uint64_t i = 0; i < n / info->block_elements; i++)
        writers[type](x + i * info->block_elements, out + i * info->block_bytes);
}
