/* Reading rows of every type: against sums recorded from ggml itself, against a second reading of the block layouts
 * that finds each value alone by its number, and the FP8 scales of whole and edge blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/files/float_bits.h"
#include "engine/files/tensor.h"
#include "tests/unit_engine/files/quantise.h"

enum { VALUES = 1024 };

/* -- against ggml -------------------------------------------------------------------------------------------------- */

/* What dequantize_row_* of ggml 0.4.0 (libggml-base of node-llama-cpp 3.21.1) makes of the bytes of `fill`: FNV-1a over
 * the bits of 1024 values, and two of them. */
typedef struct recorded {
    lar_dtype type;
    uint64_t sum;
    float second, last;
} recorded;
static const recorded of_ggml[] = {
    {LAR_DTYPE_F16, 0x5ce4f05a57b5e8fau, 0x1.a94p+9f, 0x1.d2p+10f},
    {LAR_DTYPE_BF16, 0xaedac3822e2d8f2cu, 0x1.4ap+70f, 0x1.9p+79f},
    {LAR_DTYPE_Q4_0, 0xe2f37efcf7451157u, 0x1.d1p-13f, -0x1.11cp-5f},
    {LAR_DTYPE_Q5_0, 0x3ba6c6c658f8ce12u, 0x1.36p-11f, -0x1.c75p-1f},
    {LAR_DTYPE_Q5_1, 0xe47dd576e17dd23au, 0x1.a93feap+9f, 0x1.68fep+19f},
    {LAR_DTYPE_Q8_0, 0x05491094cc93d3a1u, -0x1.dabp-9f, -0x1.7cfp-6f},
    {LAR_DTYPE_Q4_K, 0xb2ba08d7e7239e3au, -0x1.245cp+14f, 0x1.62b4p+14f},
    {LAR_DTYPE_Q5_K, 0x482fdd013ea38bbfu, -0x1.245c06p+14f, -0x1.739c2p+6f},
    {LAR_DTYPE_Q6_K, 0xea2de9a6894da0f5u, 0x1.f482cp-2f, 0x1.85e2p+11f},
    {LAR_DTYPE_IQ4_NL, 0x0eb89a715012af4cu, 0x1.9208p-9f, -0x1.0f9c8p-1f},
    {LAR_DTYPE_IQ4_XS, 0xc2914bb30fa95346u, -0x1.f68ap-7f, -0x1.9112p+15f},
};

static size_t bytes_of(lar_dtype type, uint64_t values) {
    const lar_dtype_info *info = lar_dtype_info_of(type);
    return values / info->block_elements * info->block_bytes;
}

/* Any byte may be half of a scale: none of them infinite or NaN. */
static uint8_t *fill(size_t bytes, uint64_t seed) {
    uint8_t *b = malloc(bytes);
    assert_non_null(b);
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        b[i] = (uint8_t)(seed >> 56);
    }
    for (size_t i = 1; i < bytes; i += 2)
        if ((b[i] & 0x7c) == 0x7c) b[i] ^= 0x40;
    return b;
}

static void same_as_ggml(void **state) {
    (void)state;
    static float y[VALUES];
    for (size_t k = 0; k < sizeof of_ggml / sizeof *of_ggml; k++) {
        const recorded *r = &of_ggml[k];
        uint8_t *b = fill(bytes_of(r->type, VALUES), 1);
        lar_tensor t = {.type = r->type, .dims = 1, .shape = {VALUES}, .data = b};
        lar_tensor_row(&t, 0, y);
        uint64_t sum = 14695981039346656037u;
        for (int i = 0; i < VALUES; i++)
            for (int j = 0; j < 4; j++) sum = (sum ^ (lar_float_bits(y[i]) >> (8 * j) & 255u)) * 1099511628211u;
        assert_true(y[1] == r->second && y[VALUES - 1] == r->last);
        assert_true(sum == r->sum);
        free(b);
    }
}

/* -- each value alone ---------------------------------------------------------------------------------------------- */

/* `count` bits from bit `at` of a string of bytes, low bits first. */
static unsigned bits(const uint8_t *p, unsigned at, unsigned count) {
    unsigned v = 0;
    for (unsigned i = 0; i < count; i++) v |= (p[(at + i) / 8] >> ((at + i) % 8) & 1u) << i;
    return v;
}

static double half(const uint8_t *p) {
    unsigned fraction = bits(p, 0, 10), exponent = bits(p, 10, 5);
    double v = exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24);
    return bits(p, 15, 1) ? -v : v;
}

static const int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Four bits of value i in the order of the 32-value types: low halves of 16 bytes, then high halves. */
static int nibble32(const uint8_t *q, int i) { return (int)bits(q + i % 16, i < 16 ? 0 : 4, 4); }

/* Six-bit scale (kind 0) or minimum (kind 1) of the j-th 32 of a K block: twelve bytes as four rows of four. */
static double six(const uint8_t *b, int j, int kind) {
    if (j < 4) return bits(b + 4 * kind + j, 0, 6);
    return bits(b + 8 + j - 4, kind ? 4 : 0, 4) + 16.0 * bits(b + 4 * kind + j - 4, 6, 2);
}

static double k_value(const uint8_t *b, const uint8_t *nibbles, int i, int extra) {
    int j = i / 32, q = (int)bits(nibbles + j / 2 * 32 + i % 32, j % 2 ? 4 : 0, 4) + 16 * extra;
    return half(b) * six(b + 4, j, 0) * q - half(b + 2) * six(b + 4, j, 1);
}

static double q6_k_value(const uint8_t *b, int i) {
    int half_block = i / 128, l = i % 32, row = i / 32 % 4;
    int low = (int)bits(b + 64 * half_block + 32 * (row % 2) + l, row / 2 ? 4 : 0, 4);
    int high = (int)bits(b + 128 + 32 * half_block + l, (unsigned)row * 2, 2);
    return half(b + 208) * (int8_t)b[192 + i / 16] * (low + 16 * high - 32);
}

static double iq4_xs_value(const uint8_t *b, int i) {
    int j = i / 32, scale = (int)(bits(b + 4, 4u * (unsigned)j, 4) + 16 * bits(b + 2, 2u * (unsigned)j, 2)) - 32;
    return half(b) * scale * levels[nibble32(b + 8 + 16 * j, i % 32)];
}

/* Value i of a block, in double. */
static double value_of(lar_dtype type, const uint8_t *b, int i) {
    switch (type) {
    case LAR_DTYPE_F32: return (double)lar_bits_float(bits(b, 0, 32));
    case LAR_DTYPE_F16: return half(b);
    case LAR_DTYPE_BF16: return (double)lar_bits_float(bits(b, 0, 16) << 16);
    case LAR_DTYPE_Q4_0: return half(b) * (nibble32(b + 2, i) - 8);
    case LAR_DTYPE_Q5_0: return half(b) * (nibble32(b + 6, i) + 16 * (int)bits(b + 2, (unsigned)i, 1) - 16);
    case LAR_DTYPE_Q5_1: return half(b) * (nibble32(b + 8, i) + 16 * (int)bits(b + 4, (unsigned)i, 1)) + half(b + 2);
    case LAR_DTYPE_Q8_0: return half(b) * (int8_t)b[2 + i];
    case LAR_DTYPE_Q4_K: return k_value(b, b + 16, i, 0);
    case LAR_DTYPE_Q5_K: return k_value(b, b + 48, i, (int)bits(b + 16 + i % 32, (unsigned)i / 32, 1));
    case LAR_DTYPE_Q6_K: return q6_k_value(b, i);
    case LAR_DTYPE_IQ4_NL: return half(b) * levels[nibble32(b + 2, i)];
    case LAR_DTYPE_IQ4_XS: return iq4_xs_value(b, i);
    default: fail(); return 0;
    }
}

/* What float32 may be off by: of a sum, by what its parts are rounded. */
static double allowed(lar_dtype type, const uint8_t *b, double value) {
    double parts = fabs(value);
    if (type == LAR_DTYPE_Q5_1) parts = fabs(half(b)) * 31 + fabs(half(b + 2));
    if (type == LAR_DTYPE_Q4_K || type == LAR_DTYPE_Q5_K) parts = (fabs(half(b)) * 31 + fabs(half(b + 2))) * 63;
    return parts * 3e-7;
}

/* Rows in the middle, at an odd address: neither alignment nor a neighbour's bytes may matter. */
static void each_value(void **state) {
    (void)state;
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        if (type == LAR_DTYPE_F8_E4M3) continue;
        const lar_dtype_info *info = lar_dtype_info_of((lar_dtype)type);
        enum { ROWS = 3 };
        uint64_t n = 512;
        size_t row_bytes = bytes_of((lar_dtype)type, n);
        uint8_t *b = fill(ROWS * row_bytes + 2, (uint64_t)type + 7);
        memmove(b + 1, b, ROWS * row_bytes);
        float *y = malloc(n * sizeof *y);
        assert_non_null(y);
        lar_tensor t = {.type = (lar_dtype)type, .dims = 2, .shape = {ROWS, n}, .data = b + 1};
        assert_int_equal(lar_tensor_rows(&t), ROWS);
        for (uint64_t r = 0; r < ROWS; r++) {
            lar_tensor_row(&t, r, y);
            for (uint64_t i = 0; i < n; i++) {
                const uint8_t *block = t.data + r * row_bytes + i / info->block_elements * info->block_bytes;
                double want = value_of((lar_dtype)type, block, (int)(i % info->block_elements));
                assert_true(fabs((double)y[i] - want) <= allowed((lar_dtype)type, block, want));
            }
        }
        free(y);
        free(b);
    }
}

/* -- narrow floats ------------------------------------------------------------------------------------------------- */

static void narrow_floats(void **state) {
    (void)state;
    for (unsigned v = 0; v < 65536; v++) {
        uint8_t p[2] = {(uint8_t)v, (uint8_t)(v >> 8)};
        float f = lar_f16_float((uint16_t)v);
        if (bits(p, 10, 5) == 31) assert_true(bits(p, 0, 10) ? isnan(f) : isinf(f) && !signbit(f) == !(v >> 15));
        else assert_true((double)f == half(p) && !signbit(f) == !(v >> 15));
        if (!isnan(f)) assert_int_equal(quantise_f16(f), v);
    }
    for (unsigned v = 0; v < 256; v++) {
        float f = lar_e4m3_float((uint8_t)v);
        unsigned exponent = v >> 3 & 15, fraction = v & 7;
        double want = exponent ? ldexp(8 + fraction, (int)exponent - 10) : ldexp(fraction, -9);
        if ((v & 127) == 127) assert_true(isnan(f));
        else assert_true((double)f == (v & 128 ? -want : want) && quantise_e4m3(f) == v);
    }
    assert_true(lar_e4m3_float(0x7e) == 448 && lar_bf16_float(0x3fc0) == 1.5f);
}

/* 130 x 200: four blocks, three of them cut by an edge; each has its own scale. */
static void scales_of_blocks(void **state) {
    (void)state;
    enum { OUT = 130, IN = 200 };
    static uint8_t weights[OUT * IN], scale_bytes[16];
    const float scales[4] = {0.5f, 0.25f, 3, 1e-3f};
    quantise_row(LAR_DTYPE_F32, scales, 4, scale_bytes);
    for (int i = 0; i < OUT * IN; i++) weights[i] = (uint8_t)((i * 7 + i / IN) % 0x7e);
    lar_tensor scale = {.type = LAR_DTYPE_F32, .dims = 2, .shape = {2, 2}, .data = scale_bytes};
    lar_tensor t = {.type = LAR_DTYPE_F8_E4M3, .dims = 2, .shape = {OUT, IN}, .data = weights, .scale = &scale};
    for (int r = 0; r < OUT; r++) {
        float y[IN];
        lar_tensor_row(&t, (uint64_t)r, y);
        for (int i = 0; i < IN; i++)
            assert_true(y[i] == lar_e4m3_float(weights[r * IN + i]) * scales[(r >= 128) * 2 + (i >= 128)]);
    }
}

/* -- what no weight can be ----------------------------------------------------------------------------------------- */

/* In the second of three rows, at its end: wherever a type has a number that may not be finite. */
static void not_finite(void **state) {
    (void)state;
    static const struct {
        lar_dtype type;
        size_t from_end; /* bytes */
        uint8_t is;
    } rows[] = {
        {LAR_DTYPE_F32, 1, 0x7f},    {LAR_DTYPE_F16, 1, 0x7c},     {LAR_DTYPE_F16, 1, 0xfe},
        {LAR_DTYPE_BF16, 1, 0xff},   {LAR_DTYPE_F8_E4M3, 1, 0x7f}, {LAR_DTYPE_F8_E4M3, 1, 0xff},
        {LAR_DTYPE_Q4_0, 17, 0x7c},  {LAR_DTYPE_Q5_0, 21, 0x7c},   {LAR_DTYPE_Q5_1, 23, 0x7c},
        {LAR_DTYPE_Q5_1, 21, 0xfc},  {LAR_DTYPE_Q8_0, 33, 0x7e},   {LAR_DTYPE_Q4_K, 143, 0x7c},
        {LAR_DTYPE_Q4_K, 141, 0x7c}, {LAR_DTYPE_Q5_K, 175, 0x7c},  {LAR_DTYPE_Q5_K, 173, 0x7c},
        {LAR_DTYPE_Q6_K, 1, 0x7c},   {LAR_DTYPE_IQ4_NL, 17, 0x7c}, {LAR_DTYPE_IQ4_XS, 135, 0x7c},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        enum { N = 512 };
        size_t row_bytes = bytes_of(rows[k].type, N);
        uint8_t *b = calloc(3, row_bytes);
        assert_non_null(b);
        lar_tensor t = {
            .name = "w", .type = rows[k].type, .dims = 2, .shape = {3, N}, .data = b, .bytes = 3 * row_bytes};
        lar_diag d = {0};
        memset(b, 0x3b, 3 * row_bytes); /* finite wherever a scale lies, with all kinds of bits in between */
        assert_int_equal(lar_tensor_check_finite(&t, &d), LAR_OK);
        b[2 * row_bytes - rows[k].from_end] = rows[k].is;
        if (rows[k].type == LAR_DTYPE_F32 || rows[k].type == LAR_DTYPE_BF16) b[2 * row_bytes - 2] = 0x80;
        float y[N];
        lar_tensor_row(&t, 1, y);
        assert_true(!isfinite(y[N - 1])); /* so it is one indeed */
        assert_int_equal(lar_tensor_check_finite(&t, &d), LAR_INVALID);
        assert_string_equal(d.text, "tensor 'w': row 1 holds a NaN or an infinity: the file is damaged");
        free(b);
    }
    uint8_t value = 0x38, scale_bytes[4] = {0, 0, 0xc0, 0x7f};
    lar_tensor scale = {
        .name = "s", .type = LAR_DTYPE_F32, .dims = 2, .shape = {1, 1}, .data = scale_bytes, .bytes = 4};
    lar_tensor t = {.name = "w",
                    .type = LAR_DTYPE_F8_E4M3,
                    .dims = 2,
                    .shape = {1, 1},
                    .data = &value,
                    .bytes = 1,
                    .scale = &scale};
    lar_diag d = {0};
    assert_int_equal(lar_tensor_check_finite(&t, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "tensor 's': row 0"));
}

/* -- the writer that other tests rely on --------------------------------------------------------------------------- */

/* Each type's rounding must be within half a step of its coarsest levels, or made-up models would be noise. */
static void quantisers(void **state) {
    (void)state;
    enum { N = 1024 };
    static float x[N], y[N];
    uint64_t seed = 5;
    for (int i = 0; i < N; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(seed >> 11) * 0x1p-53 * 2 - 1) * (i / 32 % 2 ? 0.3f : 1);
    }
    static const double loss_max[LAR_DTYPE_COUNT] = {
        [LAR_DTYPE_F16] = 1e-6,  [LAR_DTYPE_BF16] = 1e-4, [LAR_DTYPE_F8_E4M3] = 2e-3, [LAR_DTYPE_Q4_0] = 2e-2,
        [LAR_DTYPE_Q5_0] = 3e-3, [LAR_DTYPE_Q5_1] = 2e-3, [LAR_DTYPE_Q8_0] = 5e-5,    [LAR_DTYPE_Q4_K] = 1e-2,
        [LAR_DTYPE_Q5_K] = 2e-3, [LAR_DTYPE_Q6_K] = 1e-3, [LAR_DTYPE_IQ4_NL] = 2e-2,  [LAR_DTYPE_IQ4_XS] = 2e-2};
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        uint8_t *b = malloc(bytes_of((lar_dtype)type, N));
        assert_non_null(b);
        quantise_row((lar_dtype)type, x, N, b);
        lar_tensor t = {.type = (lar_dtype)type, .dims = 1, .shape = {N}, .data = b};
        lar_tensor_row(&t, 0, y);
        double loss = 0, all = 0;
        for (int i = 0; i < N; i++) loss += pow((double)y[i] - (double)x[i], 2), all += pow((double)x[i], 2);
        if (loss / all > loss_max[type]) fail_msg("%s loses %g", lar_dtype_info_of((lar_dtype)type)->name, loss / all);
        free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_ggml),     cmocka_unit_test(each_value), cmocka_unit_test(narrow_floats),
        cmocka_unit_test(scales_of_blocks), cmocka_unit_test(not_finite), cmocka_unit_test(quantisers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
