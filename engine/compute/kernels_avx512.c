/* Kernels for AVX-512 with VNNI (panels.h says what they compute; kernels_scalar.c is the readable twin).
 * Flow: panel_matmul.c calls, having asked the processor. Any thread; never blocks. Compiled with flags of its own.
 * Why so: a register holds 4 columns of 16 rows; vpdpbusd multiplies them with 4 activations broadcast from memory,
 * so a block of 32 columns is 8 instructions for each token, and unpacking is shared by all tokens of the tile.
 * One body serves all types: it is inlined with a constant type and number of tokens, and the rest folds away.
 * Memory: none. */
#include <immintrin.h>
#include <string.h>

#include "engine/compute/panels.h"

#if defined(LARDER_SANITIZED) /* inlined, every access is checked many times over: a compiler takes minutes for it */
#define KERNEL static inline
#else
#define KERNEL static inline __attribute__((always_inline))
#endif
/* A loop whose count is a constant after inlining, and whose registers must not end in memory. */
#if defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (uint32_t i = 0; i < (n); i++)
#endif
enum { ROWS = LAR_PANEL_ROWS, GROUPS = 8, TOKENS = LAR_TILE_TOKENS, PREFETCH = 4096 };

/* The eight groups of a block, biased bytes. */
typedef struct groups {
    __m512i g[GROUPS];
} groups;

KERNEL __m512i load(const uint8_t *p) { return _mm512_loadu_si512(p); }
KERNEL __m128i load16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
KERNEL __m512 halves(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
KERNEL __m512 unsigned_bytes(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p))); }
KERNEL __m512 signed_bytes(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p))); }

/* a | (b & mask) in one instruction. */
KERNEL __m512i or_masked(__m512i a, __m512i b, __m512i mask) { return _mm512_ternarylogic_epi64(a, b, mask, 0xf8); }

KERNEL groups unpack(const lar_panel_form f, const uint8_t *block) {
    groups w;
    if (f.values == LAR_VALUES_8) {
        EACH(g, GROUPS) { w.g[g] = load(block + 64 * g); }
        return w;
    }
    const __m512i low = _mm512_set1_epi8(15);
    EACH(g, 4) {
        __m512i both = load(block + 64 * g);
        w.g[g] = _mm512_and_si512(both, low);
        w.g[g + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
    if (f.values == LAR_VALUES_TABLE) {
        static const uint8_t values[16] = LAR_IQ4_TABLE;
        __m512i table = _mm512_broadcast_i32x4(load16(values));
        EACH(g, GROUPS) { w.g[g] = _mm512_shuffle_epi8(table, w.g[g]); }
    }
    if (f.values == LAR_VALUES_5) {
        __m512i fifth = _mm512_set1_epi8(16), bits = load(block + 256);
        w.g[0] = or_masked(w.g[0], _mm512_slli_epi16(bits, 4), fifth);
        w.g[1] = or_masked(w.g[1], _mm512_slli_epi16(bits, 3), fifth);
        w.g[2] = or_masked(w.g[2], _mm512_slli_epi16(bits, 2), fifth);
        w.g[3] = or_masked(w.g[3], _mm512_slli_epi16(bits, 1), fifth);
        w.g[4] = or_masked(w.g[4], bits, fifth);
        w.g[5] = or_masked(w.g[5], _mm512_srli_epi16(bits, 1), fifth);
        w.g[6] = or_masked(w.g[6], _mm512_srli_epi16(bits, 2), fifth);
        w.g[7] = or_masked(w.g[7], _mm512_srli_epi16(bits, 3), fifth);
    }
    if (f.values == LAR_VALUES_6) {
        const __m512i two = _mm512_set1_epi8(0x30);
        EACH(half, 2) {
            __m512i bits = load(block + 256 + 64 * half), *to = w.g + 4 * half;
            to[0] = or_masked(to[0], _mm512_slli_epi16(bits, 4), two);
            to[1] = or_masked(to[1], _mm512_slli_epi16(bits, 2), two);
            to[2] = or_masked(to[2], bits, two);
            to[3] = or_masked(to[3], _mm512_srli_epi16(bits, 2), two);
        }
    }
    return w;
}

typedef struct scales {
    __m512 scale[2], minimum; /* the second scale: Q6_K only */
} scales;

/* Of block b, from the scales of its panel. */
KERNEL scales scales_of(const lar_panel_form f, const uint8_t *panel, uint32_t b) {
    const uint8_t *g = panel + lar_panel_scales_at(&f, b);
    uint32_t i = b % 8;
    scales s;
    s.scale[0] = s.scale[1] = halves(g);
    s.minimum = _mm512_setzero_ps();
    if (f.scales == LAR_SCALES_F16_MIN) s.minimum = halves(g + 32);
    if (f.scales == LAR_SCALES_K) {
        s.scale[0] = _mm512_mul_ps(s.scale[0], unsigned_bytes(g + 64 + 16 * i));
        s.minimum = _mm512_mul_ps(halves(g + 32), unsigned_bytes(g + 192 + 16 * i));
    }
    if (f.scales == LAR_SCALES_K16) {
        s.scale[1] = _mm512_mul_ps(s.scale[1], signed_bytes(g + 48 + 32 * i));
        s.scale[0] = _mm512_mul_ps(s.scale[0], signed_bytes(g + 32 + 32 * i));
    }
    if (f.scales == LAR_SCALES_X) s.scale[0] = _mm512_mul_ps(s.scale[0], signed_bytes(g + 32 + 16 * i));
    return s;
}

/* -- integers ------------------------------------------------------------------------------------------------ */

KERNEL __m512i four(const lar_int8_block *x, uint32_t g) {
    int32_t w;
    memcpy(&w, x->values + 4 * g, 4);
    return _mm512_set1_epi32(w);
}

/* As much of the stream as a unit has, ahead of it: the processor's own prefetch begins anew at each small page. */
KERNEL void fetch(const lar_panel_form f, const uint8_t *panel, uint32_t unit) {
    const uint32_t bytes = f.block_bytes + f.scale_bytes / lar_panel_units(&f);
    const uint8_t *at = panel + (size_t)unit * bytes + PREFETCH;
    for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

/* One block of one token, added to `sum`. */
KERNEL __m512 add_block(const lar_panel_form f, const groups *w, const scales *s, const lar_int8_block *x, __m512 sum) {
    __m512i half[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    if (f.bias_bits)
        for (int i = 0; i < 2; i++) half[i] = _mm512_slli_epi32(_mm512_set1_epi32(x->less[i]), f.bias_bits);
    EACH(g, 4) {
        half[0] = _mm512_dpbusd_epi32(half[0], w->g[g], four(x, g));
        half[1] = _mm512_dpbusd_epi32(half[1], w->g[g + 4], four(x, g + 4));
    }
    __m512 scale = _mm512_set1_ps(x->scale);
    if (f.scales == LAR_SCALES_K16) {
        __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(half[0]), s->scale[0]);
        part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(half[1]), s->scale[1], part);
        return _mm512_fmadd_ps(part, scale, sum);
    }
    __m512 whole = _mm512_cvtepi32_ps(_mm512_add_epi32(half[0], half[1]));
    sum = _mm512_fmadd_ps(whole, _mm512_mul_ps(s->scale[0], scale), sum);
    if (f.scales == LAR_SCALES_K || f.scales == LAR_SCALES_F16_MIN)
        sum = _mm512_fnmadd_ps(s->minimum, _mm512_set1_ps(x->scaled_sum), sum);
    return sum;
}

/* One panel, and y of all tokens (tokens, 16). */
typedef struct one_panel {
    const uint8_t *data;
    float *y;
} one_panel;

/* `tokens` tokens from `first` on against a panel; a constant number: the sums stay in registers. */
KERNEL void int8_some(const lar_panel_form f, const lar_tile *t, const one_panel *p, uint32_t first, uint32_t tokens) {
    __m512 sums[TOKENS];
    EACH(i, tokens) { sums[i] = _mm512_setzero_ps(); }
    const lar_int8_block *x = (const lar_int8_block *)t->x + first;
    for (uint32_t b = 0; b < t->columns / LAR_BLOCK; b++, x += t->tokens) {
        fetch(f, p->data, b);
        groups w = unpack(f, p->data + lar_panel_values_at(&f, b));
        scales s = scales_of(f, p->data, b);
        EACH(i, tokens) { sums[i] = add_block(f, &w, &s, x + i, sums[i]); }
    }
    EACH(i, tokens) { _mm512_storeu_ps(p->y + (first + i) * ROWS, sums[i]); }
}

/* A panel at a time: its stream is all that is read from memory. Tokens beyond a power of two read it once more, from
 * the cache. */
KERNEL void int8_tile(lar_dtype type, const lar_tile *t) {
    const lar_panel_form f = lar_panel_form_of(type);
    for (uint32_t k = 0; k < t->panels; k++) {
        const one_panel p = {t->data + k * t->panel_step, t->y + (size_t)k * t->tokens * ROWS};
        uint32_t i = 0, n = t->tokens;
        if (n == TOKENS) {
            int8_some(f, t, &p, 0, TOKENS);
            continue;
        }
        for (; i + 8 <= n; i += 8) int8_some(f, t, &p, i, 8);
        for (; i + 4 <= n; i += 4) int8_some(f, t, &p, i, 4);
        if (n - i == 3) int8_some(f, t, &p, i, 3);
        else if (n - i == 2) int8_some(f, t, &p, i, 2);
        else if (n - i == 1) int8_some(f, t, &p, i, 1);
    }
}

/* -- floats -------------------------------------------------------------------------------------------------- */

/* E4M3 has the exponent bits of float16 but one, and a bias of 7 for 15: shifted into place it is the value / 256. */
KERNEL __m512 from_e4m3(const uint8_t *p, __m512 scale) {
    __m256i wide = _mm256_cvtepu8_epi16(load16(p));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
    __m256i rest = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7);
    __m512 small = _mm512_cvtph_ps(_mm256_or_si256(sign, rest));
    return _mm512_mul_ps(_mm512_mul_ps(small, _mm512_set1_ps(256.0f)), scale);
}

/* The 32 columns of block `b`, as lar_tensor_row gives them, to w (32, 16). */
KERNEL void decode_integers(const lar_panel_form f, const uint8_t *panel, uint32_t b, float *w) {
    groups q = unpack(f, panel + lar_panel_values_at(&f, b));
    scales s = scales_of(f, panel, b);
    fetch(f, panel, b);
    const __m512i byte = _mm512_set1_epi32(255), bias = _mm512_set1_epi32(f.bias_bits ? 1 << f.bias_bits : 0);
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t i = 0; i < 4; i++, w += ROWS) {
            __m512i v = _mm512_and_si512(_mm512_srli_epi32(q.g[g], 8 * i), byte);
            __m512 x = _mm512_cvtepi32_ps(_mm512_sub_epi32(v, bias));
            x = _mm512_mul_ps(s.scale[f.scales == LAR_SCALES_K16 ? g / 4 : 0], x);
            if (f.scales == LAR_SCALES_K || f.scales == LAR_SCALES_F16_MIN) x = _mm512_sub_ps(x, s.minimum);
            _mm512_storeu_ps(w, x);
        }
}

/* At most 32 columns from `begin` on, of a panel of floats, to w (32, 16). BF16 begins at an even column. */
KERNEL void decode_floats(const lar_panel_form f, const lar_tile *t, const uint8_t *panel, uint32_t begin, float *w) {
    uint32_t n = t->columns - begin < LAR_BLOCK ? t->columns - begin : LAR_BLOCK;
    const uint8_t *at = panel + lar_panel_values_at(&f, begin);
    __m512 scale = _mm512_setzero_ps();
    for (uint32_t i = 0; i < LAR_BLOCK * f.block_bytes; i += 64)
        _mm_prefetch((const char *)at + PREFETCH + i, _MM_HINT_T0);
    if (f.values == LAR_VALUES_F8) scale = _mm512_loadu_ps((const void *)(panel + lar_panel_scales_at(&f, begin)));
    for (uint32_t c = 0; c < n; c++, at += f.block_bytes, w += ROWS) {
        if (f.values == LAR_VALUES_F32) _mm512_storeu_ps(w, _mm512_loadu_ps((const void *)at));
        if (f.values == LAR_VALUES_F16) _mm512_storeu_ps(w, halves(at));
        if (f.values == LAR_VALUES_F8) _mm512_storeu_ps(w, from_e4m3(at, scale));
        if (f.values == LAR_VALUES_BF16) {
            __m512i pair = load(c % 2 ? at - f.block_bytes : at);
            pair = c % 2 ? _mm512_and_si512(pair, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(pair, 16);
            _mm512_storeu_ps(w, _mm512_castsi512_ps(pair));
        }
    }
}

KERNEL void decode(lar_dtype type, const lar_tile *t, const uint8_t *panel, uint32_t begin, float *w) {
    const lar_panel_form f = lar_panel_form_of(type);
    if (f.values <= LAR_VALUES_8) decode_integers(f, panel, begin / LAR_BLOCK, w);
    else decode_floats(f, t, panel, begin, w);
}

/* At most 32 columns of some panels, decoded, and what they are multiplied with. */
typedef struct strip {
    const float *w; /* (panels, 32, 16) */
    const float *x; /* (columns, all) */
    uint32_t columns, all;
    float *parts; /* (panels, all, 16), added to */
} strip;

/* For `panels` panels and `tokens` tokens from `first` on, both constants. */
KERNEL void multiply(const strip *s, uint32_t first, uint32_t panels, uint32_t tokens) {
    __m512 sums[TOKENS];
    float *parts = s->parts + first * ROWS;
    EACH(p, panels) {
        EACH(i, tokens) { sums[p * tokens + i] = _mm512_loadu_ps(parts + (p * s->all + i) * ROWS); }
    }
    for (uint32_t c = 0; c < s->columns; c++) {
        const float *x = s->x + (size_t)c * s->all + first;
        EACH(p, panels) {
            __m512 column = _mm512_loadu_ps(s->w + (p * LAR_BLOCK + c) * ROWS);
            EACH(i, tokens) {
                sums[p * tokens + i] = _mm512_fmadd_ps(column, _mm512_set1_ps(x[i]), sums[p * tokens + i]);
            }
        }
    }
    EACH(p, panels) {
        EACH(i, tokens) { _mm512_storeu_ps(parts + (p * s->all + i) * ROWS, sums[p * tokens + i]); }
    }
}

/* -- the tables ---------------------------------------------------------------------------------------------- */

#define INT8_TYPES(X) X(Q4_0) X(Q5_0) X(Q5_1) X(Q8_0) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS)
#define FLOAT_TYPES(X) X(F32) X(F16) X(BF16) X(F8_E4M3)

#define INT8_OF(name)                                                                                                  \
    static void int8_##name(const lar_tile *t) { int8_tile(LAR_DTYPE_##name, t); }
INT8_TYPES(INT8_OF)

typedef void (*decoder)(const lar_tile *t, const uint8_t *panel, uint32_t begin, float *w);
#define DECODE_OF(name)                                                                                                \
    static void decode_##name(const lar_tile *t, const uint8_t *panel, uint32_t begin, float *w) {                     \
        decode(LAR_DTYPE_##name, t, panel, begin, w);                                                                  \
    }
INT8_TYPES(DECODE_OF)
FLOAT_TYPES(DECODE_OF)

#define INT8_ROW(name) [LAR_DTYPE_##name] = int8_##name,
#define DECODE_ROW(name) [LAR_DTYPE_##name] = decode_##name,
static const lar_tile_kernel int8_kernels[LAR_DTYPE_COUNT] = {INT8_TYPES(INT8_ROW)};
static const decoder decoders[LAR_DTYPE_COUNT] = {INT8_TYPES(DECODE_ROW) FLOAT_TYPES(DECODE_ROW)};

void lar_tile_int8_avx512(const lar_tile *t) { int8_kernels[t->type](t); }

/* At most 32 columns from `begin` on, of `panels` panels from `first` on, added to parts; more than one panel for one
 * token only, to have several sums on their way at once. */
static void add_columns(const lar_tile *t, uint32_t first, uint32_t panels, uint32_t begin, float *parts) {
    float w[4 * LAR_BLOCK * ROWS];
    uint32_t n = t->columns - begin < LAR_BLOCK ? t->columns - begin : LAR_BLOCK, i = 0;
    strip s = {w, (const float *)t->x + (size_t)begin * t->tokens, n, t->tokens, parts};
    for (uint32_t p = 0; p < panels; p++)
        decoders[t->type](t, t->data + (first + p) * t->panel_step, begin, w + p * LAR_BLOCK * ROWS);
    if (panels == 4) {
        multiply(&s, 0, 4, 1);
        return;
    }
    for (; i + TOKENS <= t->tokens; i += TOKENS) multiply(&s, i, 1, TOKENS);
    for (; i + 8 <= t->tokens; i += 8) multiply(&s, i, 1, 8);
    for (; i + 4 <= t->tokens; i += 4) multiply(&s, i, 1, 4);
    for (; i < t->tokens; i++) multiply(&s, i, 1, 1);
}

static void float_panels(const lar_tile *t, uint32_t first, uint32_t panels) {
    float parts[TOKENS * ROWS];
    uint32_t n = panels * t->tokens * ROWS;
    float *y = t->y + (size_t)first * t->tokens * ROWS;
    memset(y, 0, n * sizeof *y);
    for (uint32_t begin = 0; begin < t->columns; begin += LAR_F8_SPAN) {
        memset(parts, 0, n * sizeof *parts);
        for (uint32_t at = begin; at < t->columns && at < begin + LAR_F8_SPAN; at += LAR_BLOCK)
            add_columns(t, first, panels, at, parts);
        for (uint32_t i = 0; i < n; i += ROWS)
            _mm512_storeu_ps(y + i, _mm512_add_ps(_mm512_loadu_ps(y + i), _mm512_loadu_ps(parts + i)));
    }
}

void lar_tile_float_avx512(const lar_tile *t) {
    uint32_t p = 0;
    if (t->tokens == 1)
        for (; p + 4 <= t->panels; p += 4) float_panels(t, p, 4);
    for (; p < t->panels; p++) float_panels(t, p, 1);
}

void lar_int8_block_avx512(const float x[LAR_BLOCK], lar_int8_block *out) {
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    float scale = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b))) / 127.0f;
    float inverse = scale > 0 ? 1.0f / scale : 0;
    const __m512 by = _mm512_set1_ps(inverse);
    __m512i q[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(a, by)), _mm512_cvtps_epi32(_mm512_mul_ps(b, by))};
    int sums[2];
    for (int i = 0; i < 2; i++) {
        /* What is no number or over the edge (an inverse that overflowed) is 0, as in the scalar twin. */
        __mmask16 fits = _mm512_cmple_epi32_mask(_mm512_abs_epi32(q[i]), _mm512_set1_epi32(127));
        q[i] = _mm512_maskz_mov_epi32(fits, q[i]);
        _mm_storeu_si128((__m128i *)(void *)(out->values + 16 * i), _mm512_cvtepi32_epi8(q[i]));
        sums[i] = _mm512_reduce_add_epi32(q[i]);
    }
    out->scale = scale;
    out->scaled_sum = scale * (float)(sums[0] + sums[1]);
    out->less[0] = -sums[0];
    out->less[1] = -sums[1];
}

KERNEL __m512 exponential(__m512 x) {
    static const float p[6] = LAR_EXP_COEFFICIENTS;
    /* The limit first: of two operands the second is the answer if one is not a number. */
    x = _mm512_min_ps(_mm512_set1_ps(LAR_EXP_MAX), _mm512_max_ps(_mm512_set1_ps(LAR_EXP_MIN), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(LAR_EXP_INVERSE_LN2)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LAR_EXP_LN2_HIGH), x), sum = _mm512_set1_ps(p[0]);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LAR_EXP_LN2_LOW), r);
    for (int i = 1; i < 6; i++) sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(p[i]));
    sum = _mm512_add_ps(_mm512_fmadd_ps(sum, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(sum, _mm512_castsi512_ps(power));
}

void lar_silu_avx512(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i += ROWS) {
        __mmask16 some = (__mmask16)(n - i < ROWS ? (1u << (n - i)) - 1 : 0xffffu);
        __m512 x = _mm512_maskz_loadu_ps(some, gate + i);
        __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0f), exponential(_mm512_sub_ps(_mm512_set1_ps(-0.0f), x)));
        x = _mm512_mul_ps(_mm512_div_ps(x, below), _mm512_maskz_loadu_ps(some, up + i));
        _mm512_mask_storeu_ps(out + i, some, x);
    }
}
