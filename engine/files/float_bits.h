/* Narrow floats of model files as float32, exactly: every one of their values is a float32.
 * Sources: IEEE 754 binary16; bfloat16 is the upper half of binary32; E4M3 as in "FP8 Formats for Deep Learning"
 * (arXiv 2209.05433): no infinities, S.1111.111 is NaN, the largest value is 448. */
#ifndef LARDER_ENGINE_FLOAT_BITS_H
#define LARDER_ENGINE_FLOAT_BITS_H

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

/* Little-endian numbers at any address: tensors are aligned by promise of no format. */
static inline uint16_t lar_le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t lar_le32(const uint8_t *p) { return (uint32_t)lar_le16(p) | (uint32_t)lar_le16(p + 2) << 16; }
static inline uint64_t lar_le64(const uint8_t *p) { return (uint64_t)lar_le32(p) | (uint64_t)lar_le32(p + 4) << 32; }

#endif
