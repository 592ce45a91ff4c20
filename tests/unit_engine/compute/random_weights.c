/* Random tensors: any bits are a valid value but where floats lie, which are given finite ones. */
#include "random_weights.h"

#include <stdlib.h>
#include <string.h>

uint32_t random_next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

float random_float(uint64_t *seed) { return (float)random_next(seed) * 0x1p-30f - 1.0f; }

/* A float16 of either sign between 1/256 and 1/64. */
static void put_half(uint8_t *at, uint64_t *seed) {
    uint32_t r = random_next(seed);
    uint16_t h = (uint16_t)((r & 0x83ffu) | (7 + (r >> 16) % 2) << 10);
    memcpy(at, &h, 2);
}

static void put_float(uint8_t *at, float x, lar_dtype type) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t upper = (uint16_t)(bits >> 16);
    if (type == LAR_DTYPE_BF16) memcpy(at, &upper, 2);
    else memcpy(at, &bits, 4);
}

static void fix_block(lar_dtype type, uint8_t *b, uint64_t *seed) {
    switch (type) {
    case LAR_DTYPE_F32:
    case LAR_DTYPE_BF16: put_float(b, random_float(seed), type); break;
    case LAR_DTYPE_F8_E4M3:
        if ((*b & 0x7f) == 0x7f) *b = 0x7e;
        break;
    case LAR_DTYPE_Q6_K: put_half(b + 208, seed); break;
    case LAR_DTYPE_Q5_1:
    case LAR_DTYPE_Q4_K:
    case LAR_DTYPE_Q5_K: put_half(b + 2, seed); /* fall through */
    default: put_half(b, seed); break;
    }
}

static uint8_t *bytes_or_abort(uint64_t n) {
    uint8_t *p = malloc(n);
    if (!p) abort();
    return p;
}

static void add_scales(random_weights *w, uint64_t *seed) {
    uint64_t down = (w->tensor.shape[0] + 127) / 128, across = (w->tensor.shape[1] + 127) / 128, n = down * across;
    uint8_t *bytes = bytes_or_abort(n * 4);
    for (uint64_t i = 0; i < n; i++) {
        float x = 0.01f + 0.005f * random_float(seed);
        memcpy(bytes + 4 * i, &x, 4);
    }
    w->scale = (lar_tensor){
        .name = "scale", .type = LAR_DTYPE_F32, .dims = 2, .shape = {down, across}, .data = bytes, .bytes = n * 4};
    w->tensor.scale = &w->scale;
}

void random_weights_init(random_weights *w, lar_dtype type, uint32_t rows, uint32_t columns, uint64_t seed) {
    const lar_dtype_info *info = lar_dtype_info_of(type);
    uint64_t blocks = (uint64_t)rows * (columns / info->block_elements), bytes = blocks * info->block_bytes;
    uint8_t *data = bytes_or_abort(bytes);
    for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)random_next(&seed);
    for (uint64_t i = 0; i < blocks; i++) fix_block(type, data + i * info->block_bytes, &seed);
    memset(w, 0, sizeof *w);
    w->tensor = (lar_tensor){
        .name = info->name, .type = type, .dims = 2, .shape = {rows, columns}, .data = data, .bytes = bytes};
    if (type == LAR_DTYPE_F8_E4M3) add_scales(w, &seed);
}

void random_weights_release(random_weights *w) {
    free((uint8_t *)(uintptr_t)w->tensor.data);
    free((uint8_t *)(uintptr_t)w->scale.data);
}
