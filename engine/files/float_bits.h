/* Narrow floats as float32, exactly: every one of their values is a float32. And float32 as narrow floats: the nearest,
 * of two as near the one whose last bit is 0; what is beyond the largest becomes the largest, so that a finite number
 * stays one. NaN stays NaN; an infinity stays one in binary16 and bfloat16 and becomes NaN in E4M3.
 * Sources: IEEE 754 binary16; bfloat16 is the upper half of binary32; E4M3 as in "FP8 Formats for Deep Learning"
 * (arXiv 2209.05433): no infinities, S.1111.111 is NaN, the largest value is 448. */
#ifndef LARDER_ENGINE_FLOAT_BITS_H
#define LARDER_ENGINE_FLOAT_BITS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float lar_bits_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t lar_float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float lar_bf16_float(uint16_t h) { return lar_bits_float((uint32_t)h << 16); }

static inline float lar_f16_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
    if (exponent == 31) return lar_bits_float(sign | 0x7f800000u | fraction << 13);
    if (exponent) return lar_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float f = (float)fraction * 0x1p-24f; /* subnormal in 16 bits, not in 32 */
    return sign ? -f : f;
}

static inline float lar_e4m3_float(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = (b >> 3) & 15u, fraction = b & 7u;
    if (exponent == 15 && fraction == 7) return lar_bits_float(sign | 0x7fc00000u);
    if (exponent) return lar_bits_float(sign | (exponent + 120) << 23 | fraction << 20);
    float f = (float)fraction * 0x1p-9f;
    return sign ? -f : f;
}

/* `bits` without its sign, less its lowest `n` bits, rounded. */
static inline uint32_t lar_round_bits(uint32_t bits, int n) {
    return (bits + ((1u << (n - 1)) - 1) + (bits >> n & 1u)) >> n;
}

static inline uint16_t lar_float_bf16(float f) {
    uint32_t bits = lar_float_bits(f), sign = bits >> 16 & 0x8000u, most = bits & 0x7fffffffu;
    if (most >= 0x7f800000u) return (uint16_t)(sign | (most > 0x7f800000u ? 0x7fc0u : 0x7f80u));
    uint32_t rounded = lar_round_bits(most, 16);
    return (uint16_t)(sign | (rounded < 0x7f80u ? rounded : 0x7f7fu));
}

static inline uint16_t lar_float_f16(float f) {
    uint32_t bits = lar_float_bits(f), sign = bits >> 16 & 0x8000u, most = bits & 0x7fffffffu;
    if (most >= 0x7f800000u) return (uint16_t)(sign | (most > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (most < 0x38800000u) /* subnormal in 16 bits: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)rintf(lar_bits_float(most) * 0x1p24f));
    uint32_t rounded = lar_round_bits(most, 13) - (112u << 10);
    return (uint16_t)(sign | (rounded < 0x7c00u ? rounded : 0x7bffu));
}

static inline uint8_t lar_float_e4m3(float f) {
    uint32_t bits = lar_float_bits(f), sign = bits >> 24 & 0x80u, most = bits & 0x7fffffffu;
    if (most >= 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (most < 0x3c800000u) /* subnormal: a multiple of 2^-9 */
        return (uint8_t)(sign | (uint32_t)rintf(lar_bits_float(most) * 0x1p9f));
    uint32_t rounded = lar_round_bits(most, 20) - (120u << 3);
    return (uint8_t)(sign | (rounded < 0x7fu ? rounded : 0x7eu));
}

/* Little-endian numbers at any address: tensors are aligned by promise of no format. */
static inline uint16_t lar_le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t lar_le32(const uint8_t *p) { return (uint32_t)lar_le16(p) | (uint32_t)lar_le16(p + 2) << 16; }
static inline uint64_t lar_le64(const uint8_t *p) { return (uint64_t)lar_le32(p) | (uint64_t)lar_le32(p + 4) << 32; }

#endif
