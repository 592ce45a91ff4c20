/* Kernels for AVX2 with FMA and F16C (panels.h says what they compute; kernels_scalar.c is the readable twin).
 * Flow: panel_matmul.c calls, having asked the processor. Any thread; never blocks. Compiled with flags of its own.
 * A register holds 8 of the 16 rows of a panel: everything is done once for each half ("side") of it.
 * vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits: with values of up to 6 bits, two of its
 * sums fit. Values of 8 bits are taken signed, their size times the activation with their sign: 2 * 128 * 127 fits.
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
#if defined(LARDER_SANITIZED) /* every access of what is unrolled is checked: a compiler takes minutes for it */
#define EACH(i, n) for (uint32_t i = 0; i < (n); i++)
#elif defined(__clang__)
#define EACH(i, n) _Pragma("unroll") for (uint32_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC unroll 16") for (uint32_t i = 0; i < (n); i++)
#endif
/* NEAR tokens share what they load of a block. */
/* A loop that stays one: unrolled, a compiler moves all products before all sums, and so into memory. */
/* Nothing moves past it: else a compiler makes all products before all sums, and keeps them in memory meanwhile. */
#define IN_ORDER(x) __asm__("" : "+x"(x))
enum { ROWS = LAR_PANEL_ROWS, SIDES = 2, LANES = 8, GROUPS = 8, TOKENS = LAR_TILE_TOKENS, SIGNED_FROM = 7 };
enum { NEAR = 4, FETCHING = 8, PREFETCH = 4096 };

typedef struct groups {
    __m256i g[GROUPS];
} groups;

KERNEL __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
KERNEL __m128i load8(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)(const void *)p); }
KERNEL __m256 halves(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
KERNEL __m256 unsigned_bytes(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p))); }
KERNEL __m256 signed_bytes(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p))); }
KERNEL __m256i or_masked(__m256i a, __m256i b, __m256i mask) { return _mm256_or_si256(a, _mm256_and_si256(b, mask)); }

/* One side of a block; `block` points to that side's half of the first group. */
KERNEL groups unpack(const lar_panel_form f, const uint8_t *block) {
    groups w;
    if (f.values == LAR_VALUES_8) {
        EACH(g, GROUPS) { w.g[g] = load(block + 64 * g); }
        return w;
    }
    const __m256i low = _mm256_set1_epi8(15);
    EACH(g, 4) {
        __m256i both = load(block + 64 * g);
        w.g[g] = _mm256_and_si256(both, low);
        w.g[g + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
    if (f.values == LAR_VALUES_TABLE) {
        static const uint8_t values[16] = LAR_IQ4_TABLE;
        __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)values));
        EACH(g, GROUPS) { w.g[g] = _mm256_shuffle_epi8(table, w.g[g]); }
    }
    if (f.values == LAR_VALUES_5) {
        __m256i fifth = _mm256_set1_epi8(16), bits = load(block + 256);
        w.g[0] = or_masked(w.g[0], _mm256_slli_epi16(bits, 4), fifth);
        w.g[1] = or_masked(w.g[1], _mm256_slli_epi16(bits, 3), fifth);
        w.g[2] = or_masked(w.g[2], _mm256_slli_epi16(bits, 2), fifth);
        w.g[3] = or_masked(w.g[3], _mm256_slli_epi16(bits, 1), fifth);
        w.g[4] = or_masked(w.g[4], bits, fifth);
        w.g[5] = or_masked(w.g[5], _mm256_srli_epi16(bits, 1), fifth);
        w.g[6] = or_masked(w.g[6], _mm256_srli_epi16(bits, 2), fifth);
        w.g[7] = or_masked(w.g[7], _mm256_srli_epi16(bits, 3), fifth);
    }
    if (f.values == LAR_VALUES_6) {
        const __m256i two = _mm256_set1_epi8(0x30);
        EACH(half, 2) {
            __m256i bits = load(block + 256 + 64 * half), *to = w.g + 4 * half;
            to[0] = or_masked(to[0], _mm256_slli_epi16(bits, 4), two);
            to[1] = or_masked(to[1], _mm256_slli_epi16(bits, 2), two);
            to[2] = or_masked(to[2], bits, two);
            to[3] = or_masked(to[3], _mm256_srli_epi16(bits, 2), two);
        }
    }
    return w;
}

typedef struct scales {
    __m256 scale[2], minimum; /* the second scale: Q6_K only */
} scales;

/* Of block b and one side, from the scales of its panel. */
KERNEL scales scales_of(const lar_panel_form f, const uint8_t *panel, uint32_t b, uint32_t side) {
    const uint8_t *g = panel + lar_panel_scales_at(&f, b);
    const uint8_t *h = g + 16 * side, *s = g + 8 * side;
    uint32_t i = b % 8;
    scales r;
    r.scale[0] = r.scale[1] = halves(h);
    r.minimum = _mm256_setzero_ps();
    if (f.scales == LAR_SCALES_F16_MIN) r.minimum = halves(h + 32);
    if (f.scales == LAR_SCALES_K) {
        r.scale[0] = _mm256_mul_ps(r.scale[0], unsigned_bytes(s + 64 + 16 * i));
        r.minimum = _mm256_mul_ps(halves(h + 32), unsigned_bytes(s + 192 + 16 * i));
    }
    if (f.scales == LAR_SCALES_K16) {
        r.scale[1] = _mm256_mul_ps(r.scale[1], signed_bytes(s + 48 + 32 * i));
        r.scale[0] = _mm256_mul_ps(r.scale[0], signed_bytes(s + 32 + 32 * i));
    }
    if (f.scales == LAR_SCALES_X) r.scale[0] = _mm256_mul_ps(r.scale[0], signed_bytes(s + 32 + 16 * i));
    return r;
}

/* -- integers ------------------------------------------------------------------------------------------------ */

KERNEL __m256i four(const lar_int8_block *x, uint32_t g) {
    int32_t w;
    memcpy(&w, x->values + 4 * g, 4);
    return _mm256_set1_epi32(w);
}

/* What of a block is multiplied at once: `tokens` tokens from x on, and `sides` sides; both constants. */
typedef struct some {
    const groups *w; /* (sides) */
    const lar_int8_block *x;
    uint32_t tokens, sides;
} some;

/* Groups whose products, two each, fit into 16 bits: at most 2 * 127 times the largest value. */
KERNEL uint32_t fitting(const lar_panel_form f) {
    if (f.bias_bits == SIGNED_FROM) return 1;
    return f.values == LAR_VALUES_4 ? 8 : f.values == LAR_VALUES_5 ? 4 : 2;
}

KERNEL uint32_t parts_of(const lar_panel_form f) { return f.scales == LAR_SCALES_K16 ? 2 : 1; }

/* The integer sums of a block: of both halves of it, or of the whole, for each token and side. */
typedef struct block_sums {
    __m256i of[2][NEAR * SIDES];
} block_sums;

/* Group g: two products in 16 bits each, added to `sums`. */
KERNEL void add_group(const lar_panel_form f, const some *m, uint32_t g, __m256i *sums) {
    const uint32_t tokens = m->tokens, sides = m->sides;
    __m256i value[SIDES];
    EACH(side, sides) {
        value[side] = m->w[side].g[g];
        if (f.bias_bits == SIGNED_FROM) value[side] = _mm256_xor_si256(value[side], _mm256_set1_epi8(-128));
        if (tokens > 1) IN_ORDER(value[side]);
    }
    EACH(i, tokens) {
        __m256i by = four(m->x + i, g);
        EACH(side, sides) {
            __m256i *to = &sums[i * sides + side], two;
            if (f.bias_bits == SIGNED_FROM)
                two = _mm256_maddubs_epi16(_mm256_abs_epi8(value[side]), _mm256_sign_epi8(by, value[side]));
            else two = _mm256_maddubs_epi16(value[side], by);
            *to = _mm256_add_epi16(*to, two);
            if (tokens > 1) IN_ORDER(*to);
        }
    }
}

KERNEL void sum_part(const lar_panel_form f, const some *m, uint32_t part, __m256i *sums) {
    const __m256i ones = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
    const uint32_t n = m->tokens * m->sides, span = GROUPS / parts_of(f), fit = fitting(f);
    EACH(at, n) { sums[at] = zero; }
    EACH(c, span / fit) {
        __m256i few[NEAR * SIDES];
        EACH(at, n) { few[at] = zero; }
        EACH(k, fit) { add_group(f, m, part * span + c * fit + k, few); }
        EACH(at, n) { sums[at] = _mm256_add_epi32(sums[at], _mm256_madd_epi16(few[at], ones)); }
    }
}

KERNEL block_sums sums_of(const lar_panel_form f, const some *m) {
    block_sums s;
    EACH(part, parts_of(f)) {
        sum_part(f, m, part, s.of[part]);
        if (!f.bias_bits || f.bias_bits == SIGNED_FROM) continue;
        EACH(i, m->tokens) {
            const int32_t *less = m->x[i].less;
            __m256i bias = _mm256_set1_epi32((parts_of(f) == 2 ? less[part] : less[0] + less[1]) * (1 << f.bias_bits));
            EACH(side, m->sides) {
                __m256i *to = &s.of[part][i * m->sides + side];
                *to = _mm256_add_epi32(*to, bias);
            }
        }
    }
    return s;
}

/* The sums of one token and side, of both parts or the first, scaled and added to `sum`. */
KERNEL __m256 add_block(const lar_panel_form f, const __m256i whole[2], const scales *s, const lar_int8_block *x,
                        __m256 sum) {
    __m256 scale = _mm256_set1_ps(x->scale), first = _mm256_cvtepi32_ps(whole[0]);
    if (f.scales == LAR_SCALES_K16) {
        __m256 part = _mm256_mul_ps(first, s->scale[0]);
        part = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[1]), s->scale[1], part);
        return _mm256_fmadd_ps(part, scale, sum);
    }
    sum = _mm256_fmadd_ps(first, _mm256_mul_ps(s->scale[0], scale), sum);
    if (f.scales == LAR_SCALES_K || f.scales == LAR_SCALES_F16_MIN)
        sum = _mm256_fnmadd_ps(s->minimum, _mm256_set1_ps(x->scaled_sum), sum);
    return sum;
}

/* As much of the stream as a unit has, ahead of it: the processor's own prefetch begins anew at each small page. */
KERNEL void fetch(const lar_panel_form f, const uint8_t *panel, uint32_t unit) {
    const uint32_t bytes = f.block_bytes + f.scale_bytes / lar_panel_units(&f);
    const uint8_t *at = panel + (size_t)unit * bytes + PREFETCH;
    for (uint32_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

/* One token: memory is what it waits for. A side at a time, so that all stays in registers. */
KERNEL void int8_one(const lar_panel_form f, const lar_tile *t, const uint8_t *panel, float *y) {
    __m256 sums[SIDES] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    const lar_int8_block *x = t->x;
    for (uint32_t b = 0; b < t->columns / LAR_BLOCK; b++, x++) {
        const uint8_t *block = panel + lar_panel_values_at(&f, b);
        fetch(f, panel, b);
        EACH(side, SIDES) {
            groups w = unpack(f, block + 32 * side);
            scales s = scales_of(f, panel, b, side);
            block_sums q = sums_of(f, &(some){&w, x, 1, 1});
            sums[side] = add_block(f, (__m256i[2]){q.of[0][0], q.of[parts_of(f) - 1][0]}, &s, x, sums[side]);
        }
    }
    EACH(side, SIDES) { _mm256_storeu_ps(y + LANES * side, sums[side]); }
}

/* The sums of tokens and sides lie in y. */
KERNEL void int8_add(const lar_panel_form f, const some *m, const scales *s, float *y) {
    block_sums q = sums_of(f, m);
    EACH(i, m->tokens) {
        EACH(side, m->sides) {
            const uint32_t at = i * m->sides + side;
            float *to = y + i * ROWS + LANES * side;
            _mm256_storeu_ps(to, add_block(f, (__m256i[2]){q.of[0][at], q.of[parts_of(f) - 1][at]}, &s[side], m->x + i,
                                           _mm256_loadu_ps(to)));
        }
    }
}

/* A block of all its tokens. Both sides share the loads of several tokens; with 8 bits the work is elsewhere. */
KERNEL void int8_block(const lar_panel_form f, const some *all, const scales *s, float *y) {
    const lar_int8_block *x = all->x;
    const groups *w = all->w;
    uint32_t i = 0, n = all->tokens;
    if (f.bias_bits == SIGNED_FROM || n < NEAR) {
        EACH(side, SIDES) {
            for (i = 0; i < n; i++) int8_add(f, &(some){w + side, x + i, 1, 1}, s + side, y + i * ROWS + LANES * side);
        }
        return;
    }
    for (; i + NEAR <= n; i += NEAR) int8_add(f, &(some){w, x + i, NEAR, SIDES}, s, y + i * ROWS);
    for (; i + 2 <= n; i += 2) int8_add(f, &(some){w, x + i, 2, SIDES}, s, y + i * ROWS);
    if (i < n) int8_add(f, &(some){w, x + i, 1, SIDES}, s, y + i * ROWS);
}

/* Any number of tokens: a block is unpacked once. */
KERNEL void int8_any(const lar_panel_form f, const lar_tile *t, const uint8_t *panel, float *y) {
    const lar_int8_block *x = t->x;
    memset(y, 0, t->tokens * ROWS * sizeof *y);
    for (uint32_t b = 0; b < t->columns / LAR_BLOCK; b++, x += t->tokens) {
        groups w[SIDES];
        scales s[SIDES];
        const uint8_t *block = panel + lar_panel_values_at(&f, b);
        if (t->tokens <= FETCHING) fetch(f, panel, b);
        EACH(side, SIDES) {
            w[side] = unpack(f, block + 32 * side);
            s[side] = scales_of(f, panel, b, side);
        }
        int8_block(f, &(some){w, x, t->tokens, SIDES}, s, y);
    }
}

KERNEL void int8_tile(lar_dtype type, const lar_tile *t) {
    const lar_panel_form f = lar_panel_form_of(type);
    for (uint32_t p = 0; p < t->panels; p++) {
        const uint8_t *panel = t->data + p * t->panel_step;
        float *y = t->y + (size_t)p * t->tokens * ROWS;
        if (t->tokens == 1) int8_one(f, t, panel, y);
        else int8_any(f, t, panel, y);
    }
}

/* -- floats -------------------------------------------------------------------------------------------------- */

/* E4M3 has the exponent bits of float16 but one, and a bias of 7 for 15: shifted into place it is the value / 256. */
KERNEL __m256 from_e4m3(const uint8_t *p, __m256 scale) {
    __m128i wide = _mm_cvtepu8_epi16(load8(p));
    __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
    __m128i rest = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7f)), 7);
    __m256 small = _mm256_cvtph_ps(_mm_or_si128(sign, rest));
    return _mm256_mul_ps(_mm256_mul_ps(small, _mm256_set1_ps(256.0f)), scale);
}

/* The 32 columns of block `b`, as lar_tensor_row gives them, to one side of w (32, 16). */
KERNEL void decode_integers(const lar_panel_form f, const uint8_t *panel, uint32_t b, float *w) {
    const __m256i byte = _mm256_set1_epi32(255), bias = _mm256_set1_epi32(f.bias_bits ? 1 << f.bias_bits : 0);
    const uint8_t *block = panel + lar_panel_values_at(&f, b);
    fetch(f, panel, b);
    for (uint32_t side = 0; side < SIDES; side++) {
        groups q = unpack(f, block + 32 * side);
        scales s = scales_of(f, panel, b, side);
        float *to = w + LANES * side;
        for (uint32_t g = 0; g < GROUPS; g++) {
            EACH(i, 4) {
                __m256i v = _mm256_and_si256(_mm256_srli_epi32(q.g[g], (int)(8 * i)), byte);
                __m256 x = _mm256_cvtepi32_ps(_mm256_sub_epi32(v, bias));
                x = _mm256_mul_ps(s.scale[f.scales == LAR_SCALES_K16 ? g / 4 : 0], x);
                if (f.scales == LAR_SCALES_K || f.scales == LAR_SCALES_F16_MIN) x = _mm256_sub_ps(x, s.minimum);
                _mm256_storeu_ps(to + (4 * g + i) * ROWS, x);
            }
        }
    }
}

KERNEL __m256 float_at(const lar_panel_form f, const uint8_t *column, uint32_t c, uint32_t side, __m256 scale) {
    if (f.values == LAR_VALUES_F32) return _mm256_loadu_ps((const float *)(const void *)(column + 32 * side));
    if (f.values == LAR_VALUES_F16) return halves(column + 16 * side);
    if (f.values == LAR_VALUES_F8) return from_e4m3(column + 8 * side, scale);
    __m256i pair = load((c % 2 ? column - f.block_bytes : column) + 32 * side);
    pair = c % 2 ? _mm256_and_si256(pair, _mm256_set1_epi32(-65536)) : _mm256_slli_epi32(pair, 16);
    return _mm256_castsi256_ps(pair);
}

/* At most 32 columns from `begin` on, of a panel of floats, to w (32, 16). BF16 begins at an even column. */
KERNEL void decode_floats(const lar_panel_form f, const lar_tile *t, const uint8_t *panel, uint32_t begin, float *w) {
    uint32_t n = t->columns - begin < LAR_BLOCK ? t->columns - begin : LAR_BLOCK;
    for (uint32_t side = 0; side < SIDES; side++) {
        const uint8_t *at = panel + lar_panel_values_at(&f, begin);
        const uint8_t *span = panel + lar_panel_scales_at(&f, begin) + 32 * side;
        __m256 scale = _mm256_setzero_ps();
        if (f.values == LAR_VALUES_F8) scale = _mm256_loadu_ps((const float *)(const void *)span);
        for (uint32_t c = 0; c < n; c++, at += f.block_bytes)
            _mm256_storeu_ps(w + c * ROWS + LANES * side, float_at(f, at, c, side, scale));
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
    __m256 sums[4 * SIDES];
    float *parts = s->parts + first * ROWS;
    EACH(p, panels) {
        EACH(i, tokens * SIDES) {
            sums[p * tokens * SIDES + i] = _mm256_loadu_ps(parts + p * s->all * ROWS + i * LANES);
        }
    }
    for (uint32_t c = 0; c < s->columns; c++) {
        const float *x = s->x + (size_t)c * s->all + first;
        EACH(p, panels) {
            const float *w = s->w + (p * LAR_BLOCK + c) * ROWS;
            __m256 left = _mm256_loadu_ps(w), right = _mm256_loadu_ps(w + LANES), *to = sums + p * tokens * SIDES;
            EACH(i, tokens) {
                __m256 one = _mm256_set1_ps(x[i]);
                to[i * SIDES] = _mm256_fmadd_ps(left, one, to[i * SIDES]);
                to[i * SIDES + 1] = _mm256_fmadd_ps(right, one, to[i * SIDES + 1]);
            }
        }
    }
    EACH(p, panels) {
        EACH(i, tokens * SIDES) {
            _mm256_storeu_ps(parts + p * s->all * ROWS + i * LANES, sums[p * tokens * SIDES + i]);
        }
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

void lar_tile_int8_avx2(const lar_tile *t) { int8_kernels[t->type](t); }

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
        for (uint32_t i = 0; i < n; i += LANES)
            _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(parts + i)));
    }
}

void lar_tile_float_avx2(const lar_tile *t) {
    uint32_t p = 0;
    if (t->tokens == 1)
        for (; p + 4 <= t->panels; p += 4) float_panels(t, p, 4);
    for (; p < t->panels; p++) float_panels(t, p, 1);
}

/* -- rounding and silu --------------------------------------------------------------------------------------- */

KERNEL int sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

KERNEL float max_of(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

void lar_int8_block_avx2(const float x[LAR_BLOCK], lar_int8_block *out) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 max = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) max = _mm256_max_ps(max, _mm256_and_ps(_mm256_loadu_ps(x + LANES * i), no_sign));
    float scale = max_of(max) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
    __m256i q[4];
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + LANES * i), _mm256_set1_ps(inverse)));
        /* What is no number or over the edge (an inverse that overflowed) is 0, as in the scalar twin. */
        __m256i over = _mm256_cmpgt_epi32(_mm256_abs_epi32(q[i]), _mm256_set1_epi32(127));
        over = _mm256_or_si256(over, _mm256_cmpeq_epi32(q[i], _mm256_set1_epi32(INT32_MIN)));
        q[i] = _mm256_andnot_si256(over, q[i]);
    }
    /* Packing works within halves of registers: four bytes each of the four of a half lie together, then halves. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)out->values, bytes);
    int sums[2] = {sum_of(_mm256_add_epi32(q[0], q[1])), sum_of(_mm256_add_epi32(q[2], q[3]))};
    out->scale = scale;
    out->scaled_sum = scale * (float)(sums[0] + sums[1]);
    out->less[0] = -sums[0];
    out->less[1] = -sums[1];
}

KERNEL __m256 exponential(__m256 x) {
    static const float p[6] = LAR_EXP_COEFFICIENTS;
    /* The limit first: of two operands the second is the answer if one is not a number. */
    x = _mm256_min_ps(_mm256_set1_ps(LAR_EXP_MAX), _mm256_max_ps(_mm256_set1_ps(LAR_EXP_MIN), x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(LAR_EXP_INVERSE_LN2)), 0);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LAR_EXP_LN2_HIGH), x), sum = _mm256_set1_ps(p[0]);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(LAR_EXP_LN2_LOW), r);
    for (int i = 1; i < 6; i++) sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(p[i]));
    sum = _mm256_add_ps(_mm256_fmadd_ps(sum, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(sum, _mm256_castsi256_ps(power));
}

void lar_silu_avx2(const float *gate, const float *up, float *out, uint32_t n) {
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 x = _mm256_loadu_ps(gate + i);
        __m256 below = _mm256_add_ps(_mm256_set1_ps(1.0f), exponential(_mm256_sub_ps(_mm256_set1_ps(-0.0f), x)));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_div_ps(x, below), _mm256_loadu_ps(up + i)));
    }
    if (i < n) lar_silu_scalar(gate + i, up + i, out + i, n - i);
}
