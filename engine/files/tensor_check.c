/* Looks for what no weight can be: NaN and infinity.
 * Called once for each tensor while a model is loaded, whose pages it then has in memory for what follows; any thread.
 * Why: one such value makes every logit NaN, long after anybody thinks of the file. Of quantised blocks only the scales
 * are looked at: what they multiply is a small integer. Not here: values that are finite and wrong. */
#include <inttypes.h>

#include "engine/files/float_bits.h"
#include "engine/files/tensor.h"

/* Where a block has its scale and, if there is one, its minimum: halves. -1: none. */
typedef struct block_scales {
    int scale, minimum;
} block_scales;
static const block_scales scales_of[LAR_DTYPE_COUNT] = {
    [LAR_DTYPE_Q4_0] = {0, -1},   [LAR_DTYPE_Q5_0] = {0, -1},   [LAR_DTYPE_Q5_1] = {0, 2},
    [LAR_DTYPE_Q8_0] = {0, -1},   [LAR_DTYPE_Q4_K] = {0, 2},    [LAR_DTYPE_Q5_K] = {0, 2},
    [LAR_DTYPE_Q6_K] = {208, -1}, [LAR_DTYPE_IQ4_NL] = {0, -1}, [LAR_DTYPE_IQ4_XS] = {0, -1},
};

/* Of `n` numbers side by side: true if one has all bits of the exponent set. */
static bool any_f32(const uint8_t *p, uint64_t n) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++) bad |= (lar_le32(p + 4 * i) & 0x7f800000u) == 0x7f800000u;
    return bad;
}

static bool any_16(const uint8_t *p, uint64_t n, uint32_t exponent) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++) bad |= (lar_le16(p + 2 * i) & exponent) == exponent;
    return bad;
}

static bool any_e4m3(const uint8_t *p, uint64_t n) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++) bad |= (p[i] & 0x7fu) == 0x7fu;
    return bad;
}

static bool any_block(lar_dtype type, const uint8_t *p, uint64_t blocks) {
    const uint32_t bytes = lar_dtype_info_of(type)->block_bytes;
    const block_scales at = scales_of[type];
    uint32_t bad = 0;
    for (uint64_t i = 0; i < blocks; i++, p += bytes) {
        bad |= (lar_le16(p + at.scale) & 0x7c00u) == 0x7c00u;
        if (at.minimum >= 0) bad |= (lar_le16(p + at.minimum) & 0x7c00u) == 0x7c00u;
    }
    return bad;
}

static bool any_in_row(const lar_tensor *t, const uint8_t *row, uint64_t n) {
    switch (t->type) {
    case LAR_DTYPE_F32: return any_f32(row, n);
    case LAR_DTYPE_F16: return any_16(row, n, 0x7c00u);
    case LAR_DTYPE_BF16: return any_16(row, n, 0x7f80u);
    case LAR_DTYPE_F8_E4M3: return any_e4m3(row, n);
    default: return any_block(t->type, row, n / lar_dtype_info_of(t->type)->block_elements);
    }
}

lar_error lar_tensor_check_finite(const lar_tensor *t, lar_diag *d) {
    uint64_t n = lar_tensor_row_elements(t), rows = lar_tensor_rows(t), row_bytes = t->bytes / rows;
    for (uint64_t r = 0; r < rows; r++)
        if (any_in_row(t, t->data + r * row_bytes, n))
            return lar_fail(LAR_INVALID, d,
                            "tensor '%s': row %" PRIu64 " holds a NaN or an infinity: the file is damaged", t->name, r);
    return t->scale ? lar_tensor_check_finite(t->scale, d) : LAR_OK;
}
