/* The readable twin of the vector kernels: the same sums in the same order, a row and a token at a time (panels.h says
 * which). Flow: panel_matmul.c calls where the processor has nothing better, and tests hold the other kernels to it,
 * bit for bit. Any thread; never blocks. Memory: none. */
#include <math.h>
#include <string.h>

#include "engine/compute/panels.h"
#include "engine/files/float_bits.h"

enum { ROWS = LAR_PANEL_ROWS };

static float half_at(const uint8_t *p) { return lar_f16_float(lar_le16(p)); }

static float float_at(const uint8_t *p) { return lar_bits_float(lar_le32(p)); }

/* The integer of row r, column c of a block: without its bias. */
static int value_at(const lar_panel_form *f, const uint8_t *block, int r, int c) {
    static const uint8_t table[16] = LAR_IQ4_TABLE;
    int group = c / 4, lane = 4 * r + c % 4, bias = f->bias_bits ? 1 << f->bias_bits : 0;
    if (f->values == LAR_VALUES_8) return block[LAR_GROUP_BYTES * group + lane] - bias;
    int v = block[LAR_GROUP_BYTES * (group % 4) + lane] >> (group < 4 ? 0 : 4) & 15;
    if (f->values == LAR_VALUES_TABLE) v = table[v];
    if (f->values == LAR_VALUES_5) v |= (block[256 + lane] >> group & 1) << 4;
    if (f->values == LAR_VALUES_6) v |= (block[256 + LAR_GROUP_BYTES * (group / 4) + lane] >> 2 * (group % 4) & 3) << 4;
    return v - bias;
}

/* What block b of row r is scaled with. Only Q6_K has two scales a block. */
typedef struct scales {
    float scale[2], minimum;
} scales;

static scales scales_of(const lar_panel_form *f, const uint8_t *panel, uint32_t b, int r) {
    const uint8_t *g = panel + lar_panel_scales_at(f, b);
    int i = (int)(b % 8);
    float d = half_at(g + 2 * r), one = d;
    switch (f->scales) {
    case LAR_SCALES_F16_MIN: return (scales){{d, d}, half_at(g + 32 + 2 * r)};
    case LAR_SCALES_K:
        one = d * (float)g[64 + 16 * i + r];
        return (scales){{one, one}, half_at(g + 32 + 2 * r) * (float)g[192 + 16 * i + r]};
    case LAR_SCALES_K16:
        return (scales){{d * (float)(int8_t)g[32 + 32 * i + r], d * (float)(int8_t)g[48 + 32 * i + r]}, 0};
    case LAR_SCALES_X: one = d * (float)(int8_t)g[32 + 16 * i + r]; break;
    default: break;
    }
    return (scales){{one, one}, 0};
}

static bool has_minimum(const lar_panel_form *f) {
    return f->scales == LAR_SCALES_K || f->scales == LAR_SCALES_F16_MIN;
}

static float int8_row(const lar_tile *t, const lar_panel_form *f, const uint8_t *panel, uint32_t token, int r) {
    float sum = 0;
    for (uint32_t b = 0; b < t->columns / LAR_BLOCK; b++) {
        const lar_int8_block *x = (const lar_int8_block *)t->x + (size_t)b * t->tokens + token;
        const uint8_t *block = panel + lar_panel_values_at(f, b);
        scales s = scales_of(f, panel, b, r);
        int half[2] = {0, 0};
        for (int c = 0; c < LAR_BLOCK; c++) half[c / 16] += value_at(f, block, r, c) * x->values[c];
        if (f->scales == LAR_SCALES_K16)
            sum = fmaf(fmaf((float)half[1], s.scale[1], (float)half[0] * s.scale[0]), x->scale, sum);
        else sum = fmaf((float)(half[0] + half[1]), s.scale[0] * x->scale, sum);
        if (has_minimum(f)) sum = fmaf(-s.minimum, x->scaled_sum, sum);
    }
    return sum;
}

/* Row r, column c as lar_tensor_row gives it. */
static float weight_at(const lar_panel_form *f, const uint8_t *panel, int r, uint32_t c) {
    size_t lane = (size_t)r;
    switch (f->values) {
    case LAR_VALUES_F32: return float_at(panel + lar_panel_values_at(f, c) + 4 * lane);
    case LAR_VALUES_F16: return half_at(panel + lar_panel_values_at(f, c) + 2 * lane);
    case LAR_VALUES_BF16: return lar_bf16_float(lar_le16(panel + 2 * (c / 2 * 2 * ROWS + 2 * lane + c % 2)));
    case LAR_VALUES_F8:
        return lar_e4m3_float(panel[lar_panel_values_at(f, c) + lane]) *
               float_at(panel + lar_panel_scales_at(f, c) + 4 * lane);
    default: break;
    }
    uint32_t b = c / LAR_BLOCK;
    scales s = scales_of(f, panel, b, r);
    int v = value_at(f, panel + lar_panel_values_at(f, b), r, (int)(c % LAR_BLOCK));
    float w = s.scale[c % LAR_BLOCK / 16] * (float)v;
    return has_minimum(f) ? w - s.minimum : w;
}

static float float_row(const lar_tile *t, const lar_panel_form *f, const uint8_t *panel, uint32_t token, int r) {
    const float *x = t->x;
    float sum = 0;
    for (uint32_t begin = 0; begin < t->columns; begin += LAR_F8_SPAN) {
        uint32_t end = t->columns - begin < LAR_F8_SPAN ? t->columns : begin + LAR_F8_SPAN;
        float part = 0;
        for (uint32_t c = begin; c < end; c++)
            part = fmaf(weight_at(f, panel, r, c), x[(size_t)c * t->tokens + token], part);
        sum += part;
    }
    return sum;
}

typedef float (*row_sum)(const lar_tile *, const lar_panel_form *, const uint8_t *, uint32_t, int);

static void each_row(const lar_tile *t, row_sum sum) {
    lar_panel_form f = lar_panel_form_of(t->type);
    for (uint32_t p = 0; p < t->panels; p++)
        for (uint32_t token = 0; token < t->tokens; token++)
            for (int r = 0; r < ROWS; r++)
                t->y[((size_t)p * t->tokens + token) * ROWS + (size_t)r] =
                    sum(t, &f, t->data + p * t->panel_step, token, r);
}

void lar_tile_int8_scalar(const lar_tile *t) { each_row(t, int8_row); }
void lar_tile_float_scalar(const lar_tile *t) { each_row(t, float_row); }

void lar_int8_block_scalar(const float x[LAR_BLOCK], lar_int8_block *out) {
    float max = 0;
    for (int i = 0; i < LAR_BLOCK; i++) max = fmaxf(max, fabsf(x[i]));
    float scale = max / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
    int sums[2] = {0, 0};
    for (int i = 0; i < LAR_BLOCK; i++) {
        float q = rintf(x[i] * inverse);
        /* Not a number, or the quotient of a scale so small that its inverse overflowed: the scale tells of it. */
        out->values[i] = q >= -127 && q <= 127 ? (int8_t)q : 0;
        sums[i / 16] += out->values[i];
    }
    out->scale = scale;
    out->scaled_sum = scale * (float)(sums[0] + sums[1]);
    out->less[0] = -sums[0];
    out->less[1] = -sums[1];
}

static float exponential(float x) {
    static const float p[6] = LAR_EXP_COEFFICIENTS;
    if (x != x) return x;
    if (x < LAR_EXP_MIN) x = LAR_EXP_MIN;
    if (x > LAR_EXP_MAX) x = LAR_EXP_MAX;
    float n = rintf(x * LAR_EXP_INVERSE_LN2);
    float r = fmaf(-n, LAR_EXP_LN2_LOW, fmaf(-n, LAR_EXP_LN2_HIGH, x)), sum = p[0];
    for (int i = 1; i < 6; i++) sum = fmaf(sum, r, p[i]);
    sum = fmaf(sum, r * r, r) + 1.0f;
    return sum * lar_bits_float((uint32_t)((int)n + 127) << 23);
}

void lar_silu_scalar(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}
