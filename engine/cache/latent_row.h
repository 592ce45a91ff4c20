/* A row of the latent cache, (rank + rope) floats, in the bytes of a format of kv_format.def.
 *
 * f32, f16, bf16: the values, one behind the other. fp8: the latent as E4M3, in tiles of 128 (the last may be shorter);
 * the tiles' scales, float32, each the least power of two by which the tile's largest value, at least 1e-4, is at most
 * 448; then the rope part, bfloat16: FlashMLA's 656 bytes for 512 + 64. int8, int8-128: the latent as integers from
 * -127 to 127, in groups of 32 or 128; the groups' scales, float16, largest / 127; the rope part as before. All are
 * rounded to the nearest (float_bits.h). What is not finite makes its tile or group NaN, never a number. */
#ifndef LARDER_ENGINE_CACHE_LATENT_ROW_H
#define LARDER_ENGINE_CACHE_LATENT_ROW_H

#include "engine/files/kv_format.h"

typedef struct lar_latent_row {
    lar_kv format;
    uint32_t rank, rope;
} lar_latent_row;

uint64_t lar_latent_row_bytes(const lar_latent_row *r);
/* `from` (rank + rope) into lar_latent_row_bytes at `to`, which may be at any address. */
void lar_latent_row_pack(const lar_latent_row *r, const float *from, uint8_t *to);
/* Back: `to` (rank + rope). */
void lar_latent_row_unpack(const lar_latent_row *r, const uint8_t *from, float *to);

#endif
