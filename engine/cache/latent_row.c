/* Rows of the latent cache in fewer bits (header: latent_row.h).
 * Flow: latent_cache.c packs a row once as it is put, and unpacks it for each pass that does not read bfloat16 as it
 * is. Any thread; never blocks; allocates nothing. Why unpacking is the processor's vector code: a token reads all rows
 * before it.
 * Sources: FlashMLA's README and tests/quant.py (fp8); ggml's Q8_0 (int8). */
#include "engine/cache/latent_row.h"

#include <math.h>
#include <string.h>

#include "engine/compute/vectors.h"
#include "engine/files/float_bits.h"

static const float e4m3_most = 448, fp8_floor = 1e-4f;

static uint32_t groups(const lar_latent_row *r) {
    uint32_t group = lar_kv_info_of(r->format)->group;
    return group ? (r->rank + group - 1) / group : 0;
}

uint64_t lar_latent_row_bytes(const lar_latent_row *r) {
    const lar_kv_info *kv = lar_kv_info_of(r->format);
    uint64_t rope = (uint64_t)r->rope * (kv->group ? 2 : kv->value_bytes);
    return (uint64_t)r->rank * kv->value_bytes + (uint64_t)groups(r) * kv->scale_bytes + rope;
}

/* -- packing ----------------------------------------------------------------------------------------------------- */

static void put16(uint8_t *to, uint16_t v) { memcpy(to, &v, sizeof v); }

static void pack_f16(const float *from, uint32_t n, uint8_t *to) {
    for (uint32_t i = 0; i < n; i++) put16(to + 2 * (size_t)i, lar_float_f16(from[i]));
}

static void pack_bf16(const float *from, uint32_t n, uint8_t *to) {
    for (uint32_t i = 0; i < n; i++) put16(to + 2 * (size_t)i, lar_float_bf16(from[i]));
}

/* The largest magnitude; NaN if a value is not finite. */
static float largest(const float *x, uint32_t n) {
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return NAN;
        most = fmaxf(most, fabsf(x[i]));
    }
    return most;
}

/* 448 is 7/8 of 2^9: with a fraction of up to 7/8 the exponent less 9 is enough. */
static void pack_fp8(const float *from, uint32_t n, uint8_t *to, uint8_t *scale_at) {
    int exponent = 0;
    float most = largest(from, n);
    float fraction = frexpf(most > fp8_floor ? most : fp8_floor, &exponent);
    float scale = isnan(most) ? NAN : ldexpf(1, exponent - (fraction <= e4m3_most / 512 ? 9 : 8));
    for (uint32_t i = 0; i < n; i++) to[i] = lar_float_e4m3(from[i] / scale);
    memcpy(scale_at, &scale, sizeof scale);
}

static void pack_int8(const float *from, uint32_t n, uint8_t *to, uint8_t *scale_at) {
    float most = largest(from, n);
    uint16_t half = lar_float_f16(most / 127);
    float scale = lar_f16_float(half);
    put16(scale_at, half);
    for (uint32_t i = 0; i < n; i++) {
        float v = scale > 0 ? rintf(from[i] / scale) : 1; /* times 0, or times NaN */
        to[i] = (uint8_t)(int8_t)(v > 127 ? 127 : v < -127 ? -127 : v);
    }
}

void lar_latent_row_pack(const lar_latent_row *r, const float *from, uint8_t *to) {
    const lar_kv_info *kv = lar_kv_info_of(r->format);
    if (r->format == LAR_KV_F32) memcpy(to, from, ((size_t)r->rank + r->rope) * sizeof *from);
    else if (r->format == LAR_KV_F16) pack_f16(from, r->rank + r->rope, to);
    else if (r->format == LAR_KV_BF16) pack_bf16(from, r->rank + r->rope, to);
    if (!kv->group) return;
    uint8_t *scales = to + r->rank;
    for (uint32_t g = 0, at = 0; at < r->rank; g++, at += kv->group) {
        uint32_t n = r->rank - at < kv->group ? r->rank - at : kv->group;
        uint8_t *scale = scales + (size_t)g * kv->scale_bytes;
        if (r->format == LAR_KV_FP8) pack_fp8(from + at, n, to + at, scale);
        else pack_int8(from + at, n, to + at, scale);
    }
    pack_bf16(from + r->rank, r->rope, scales + (size_t)groups(r) * kv->scale_bytes);
}

/* -- unpacking --------------------------------------------------------------------------------------------------- */

/* fp8 has float32 scales, the integers float16. */
static float scale_of(const lar_latent_row *r, const uint8_t *at) {
    float scale;
    if (r->format != LAR_KV_FP8) return lar_f16_float(lar_le16(at));
    memcpy(&scale, at, sizeof scale);
    return scale;
}

void lar_latent_row_unpack(const lar_latent_row *r, const uint8_t *from, float *to) {
    const lar_kv_info *kv = lar_kv_info_of(r->format);
    const lar_vectors *v = lar_vectors_best();
    if (r->format == LAR_KV_F32) memcpy(to, from, ((size_t)r->rank + r->rope) * sizeof *to);
    else if (r->format == LAR_KV_F16) v->from_f16(from, r->rank + r->rope, to);
    else if (r->format == LAR_KV_BF16) v->from_bf16(from, r->rank + r->rope, to);
    if (!kv->group) return;
    const uint8_t *scales = from + r->rank;
    for (uint32_t g = 0, at = 0; at < r->rank; g++, at += kv->group) {
        uint32_t n = r->rank - at < kv->group ? r->rank - at : kv->group;
        float scale = scale_of(r, scales + (size_t)g * kv->scale_bytes);
        if (r->format == LAR_KV_FP8) v->from_e4m3(from + at, n, scale, to + at);
        else v->from_int8(from + at, n, scale, to + at);
    }
    v->from_bf16(scales + (size_t)groups(r) * kv->scale_bytes, r->rope, to + r->rank);
}
