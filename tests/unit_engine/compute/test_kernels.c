/* The kernels of every path against their scalar twin, bit for bit, and the repacked weights against the values that
 * lar_tensor_row gives. Paths that this processor cannot run are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compute/cpu.h"
#include "engine/compute/panels.h"
#include "random_weights.h"

typedef struct path {
    lar_tile_kernel int8, floats;
    void (*round_block)(const float x[LAR_BLOCK], lar_int8_block *out);
    void (*silu)(const float *gate, const float *up, float *out, uint32_t n);
} path;

static const path paths[LAR_CPU_COUNT] = {
    {lar_tile_int8_scalar, lar_tile_float_scalar, lar_int8_block_scalar, lar_silu_scalar},
#if defined(__x86_64__)
    {lar_tile_int8_avx2, lar_tile_float_avx2, lar_int8_block_avx2, lar_silu_avx2},
    {lar_tile_int8_avx512, lar_tile_float_avx512, lar_int8_block_avx512, lar_silu_avx512},
#endif
};

static void *must(void *p) {
    assert_non_null(p);
    return p;
}

static lar_panels *panels_of(const random_weights *w, uint64_t first, uint32_t rows) {
    lar_panels *p = NULL;
    lar_diag d = {0};
    assert_int_equal(lar_panels_new(&w->tensor, first, rows, &p, &d), LAR_OK);
    return p;
}

static lar_tile tile_of(const lar_panels *p, uint32_t first, uint32_t count, uint32_t tokens) {
    return (lar_tile){.type = p->type,
                      .columns = p->columns,
                      .tokens = tokens,
                      .panels = count,
                      .data = p->data + first * p->panel_step,
                      .panel_step = p->panel_step};
}

/* -- values ---------------------------------------------------------------------------------------------------- */

/* Column `c` of the matrix, taken by a product with the c-th unit vector. */
static void check_column(const lar_panels *p, const float *rows, uint32_t c, lar_tile_kernel kernel) {
    float *x = must(calloc(p->columns + 1, sizeof *x)), *y = must(malloc((size_t)p->panels * 16 * sizeof *y));
    x[c] = 1;
    lar_tile t = tile_of(p, 0, p->panels, 1);
    t.x = x, t.y = y;
    kernel(&t);
    for (uint32_t r = 0; r < p->rows; r++) assert_true(y[r] == rows[(size_t)r * p->columns + c]);
    for (uint32_t r = p->rows; r < p->panels * 16; r++) assert_true(y[r] == 0); /* rows that fill up the panel */
    free(x);
    free(y);
}

static void check_values(lar_dtype type, uint32_t columns, lar_tile_kernel kernel) {
    enum { ROWS = 150, FIRST = 123, SOME = 27 }; /* across a block of FP8 scales, not a multiple of 16 */
    random_weights w;
    random_weights_init(&w, type, ROWS, columns, 11 + (uint64_t)type);
    lar_panels *p = panels_of(&w, FIRST, SOME);
    float *rows = must(malloc((size_t)SOME * columns * sizeof *rows));
    for (uint32_t r = 0; r < SOME; r++) lar_tensor_row(&w.tensor, FIRST + r, rows + (size_t)r * columns);
    for (uint32_t c = 0; c < columns; c++) check_column(p, rows, c, kernel);
    free(rows);
    free(p);
    random_weights_release(&w);
}

static void values_survive_repacking(void **state) {
    (void)state;
    for (int cpu = 0; cpu <= (int)lar_cpu_best(); cpu++)
        for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
            bool whole = lar_panel_is_integer((lar_dtype)type);
            check_values((lar_dtype)type, whole ? 256 : 131, paths[cpu].floats);
        }
}

static void fp8_that_is_no_number_is_refused(void **state) {
    (void)state;
    random_weights w;
    random_weights_init(&w, LAR_DTYPE_F8_E4M3, 20, 40, 1);
    ((uint8_t *)(uintptr_t)w.tensor.data)[17 * 40 + 39] = 0xff;
    lar_panels *p = NULL;
    lar_diag d = {0};
    assert_int_equal(lar_panels_new(&w.tensor, 0, 20, &p, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "F8_E4M3"));
    assert_int_equal(lar_panels_new(&w.tensor, 0, 16, &p, &d), LAR_OK);
    free(p);
    random_weights_release(&w);
}

/* -- sums ------------------------------------------------------------------------------------------------------ */

/* Activations of `tokens` tokens in both forms, outliers among them. */
typedef struct inputs {
    float *floats;
    lar_int8_block *blocks;
} inputs;

static inputs inputs_of(uint32_t columns, uint32_t tokens) {
    uint32_t even = columns + columns % 2, blocks = columns / LAR_BLOCK;
    inputs in = {must(calloc((size_t)even * tokens, sizeof(float))),
                 must(calloc((size_t)(blocks + 1) * tokens, sizeof(lar_int8_block)))};
    uint64_t seed = columns + tokens;
    for (uint32_t i = 0; i < columns * tokens; i++)
        in.floats[i] = random_float(&seed) * (random_next(&seed) % 50 ? 1.0f : 60.0f);
    for (uint32_t b = 0; b < blocks; b++)
        for (uint32_t t = 0; t < tokens; t++) {
            float x[LAR_BLOCK];
            for (uint32_t c = 0; c < LAR_BLOCK; c++) x[c] = in.floats[(size_t)(b * LAR_BLOCK + c) * tokens + t];
            lar_int8_block_scalar(x, &in.blocks[b * tokens + t]);
        }
    return in;
}

static void check_sums(const lar_panels *p, const inputs *in, uint32_t tokens, lar_tile_kernel kernels[LAR_CPU_COUNT],
                       const void *x) {
    (void)in;
    size_t n = (size_t)p->panels * tokens * 16;
    float *want = must(malloc(n * sizeof *want)), *got = must(malloc(n * sizeof *got));
    lar_tile t = tile_of(p, 0, p->panels, tokens);
    t.x = x, t.y = want;
    kernels[0](&t);
    for (int cpu = 1; cpu <= (int)lar_cpu_best(); cpu++) {
        memset(got, 0xff, n * sizeof *got);
        t.y = got;
        kernels[cpu](&t);
        assert_memory_equal(got, want, n * sizeof *got);
    }
    free(want);
    free(got);
}

static void check_shape(lar_dtype type, uint32_t rows, uint32_t columns, uint32_t tokens) {
    random_weights w;
    random_weights_init(&w, type, rows, columns, rows + columns);
    lar_panels *p = panels_of(&w, 0, rows);
    inputs in = inputs_of(columns, tokens);
    lar_tile_kernel floats[LAR_CPU_COUNT], int8[LAR_CPU_COUNT];
    for (int i = 0; i < LAR_CPU_COUNT; i++) floats[i] = paths[i].floats, int8[i] = paths[i].int8;
    check_sums(p, &in, tokens, floats, in.floats);
    if (lar_panel_is_integer(type)) check_sums(p, &in, tokens, int8, in.blocks);
    free(in.floats);
    free(in.blocks);
    free(p);
    random_weights_release(&w);
}

static void paths_agree_bit_for_bit(void **state) {
    (void)state;
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 15, 16};
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        uint32_t whole = lar_dtype_info_of((lar_dtype)type)->block_elements;
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
            check_shape((lar_dtype)type, 16, 512, tokens[i]);
            check_shape((lar_dtype)type, 90, whole == 1 ? 143 : whole, tokens[i]); /* 4 panels at once, then 1 or 2 */
        }
        check_shape((lar_dtype)type, 7, whole == 256 ? 2048 : 1408, 1);
        if (whole != 256) check_shape((lar_dtype)type, 16, 576, 3);
        if (whole != 256) check_shape((lar_dtype)type, 16, 10944, 1);
    }
}

/* The largest and smallest of everything: bytes at both ends against activations of 127 and -127. */
static void extremes_do_not_overflow(void **state) {
    (void)state;
    for (int type = 0; type < LAR_DTYPE_COUNT; type++) {
        if (!lar_panel_is_integer((lar_dtype)type)) continue;
        for (int fill = 0; fill < 4; fill++) {
            random_weights w;
            random_weights_init(&w, (lar_dtype)type, 16, 256, 5);
            lar_panels *p = panels_of(&w, 0, 16);
            const lar_panel_form f = lar_panel_form_of((lar_dtype)type);
            for (uint32_t b = 0; b < 256 / LAR_BLOCK; b++)
                memset(p->data + lar_panel_values_at(&f, b), fill % 2 ? 0xff : 0, f.block_bytes);
            lar_int8_block x[256 / LAR_BLOCK];
            float edge[LAR_BLOCK];
            for (int i = 0; i < LAR_BLOCK; i++) edge[i] = fill / 2 ? 127.0f : -127.0f;
            for (size_t b = 0; b < sizeof x / sizeof *x; b++) lar_int8_block_scalar(edge, &x[b]);
            lar_tile_kernel int8[LAR_CPU_COUNT];
            for (int i = 0; i < LAR_CPU_COUNT; i++) int8[i] = paths[i].int8;
            check_sums(p, NULL, 1, int8, x);
            free(p);
            random_weights_release(&w);
        }
    }
}

/* -- rounding and silu ----------------------------------------------------------------------------------------- */

static const float odd_floats[] = {0.0f,   -0.0f, 1e-45f, -1e-40f,  1.17549435e-38f, 88.0f,    -88.0f, 1e30f,
                                   -3e38f, 100.f, -104.f, INFINITY, -INFINITY,       -127.49f, 0.5f,   -20.f};

static void rounding_agrees(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 2000; round++) {
        float x[LAR_BLOCK], size = ldexpf(1.0f, (int)(random_next(&seed) % 60) - 40);
        for (int i = 0; i < LAR_BLOCK; i++) x[i] = random_float(&seed) * size;
        if (round % 4 == 0) x[round / 4 % LAR_BLOCK] = odd_floats[random_next(&seed) % 11];
        lar_int8_block want, got;
        lar_int8_block_scalar(x, &want);
        for (int i = 0; i < LAR_BLOCK; i++)
            if (want.scale > 0 && 1.0f / want.scale < INFINITY)
                assert_true(fabsf(want.scale * want.values[i] - x[i]) <= 0.5001f * want.scale);
        for (int cpu = 1; cpu <= (int)lar_cpu_best(); cpu++) {
            paths[cpu].round_block(x, &got);
            assert_memory_equal(&got, &want, sizeof got);
        }
    }
}

static void silu_agrees(void **state) {
    (void)state;
    enum { N = 1003, ODD = sizeof odd_floats / sizeof *odd_floats };
    float gate[N], up[N], want[N], got[N];
    uint64_t seed = 9;
    for (int i = 0; i < N; i++)
        gate[i] = i < ODD ? odd_floats[i] : random_float(&seed) * 30, up[i] = random_float(&seed);
    lar_silu_scalar(gate, up, want, N);
    for (int i = ODD; i < N; i++) {
        double exact = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i];
        assert_true(fabs((double)want[i] - exact) <= 5e-7 * fabs(exact));
    }
    for (int cpu = 1; cpu <= (int)lar_cpu_best(); cpu++) {
        paths[cpu].silu(gate, up, got, N);
        assert_memory_equal(got, want, sizeof got);
    }
    gate[0] = NAN;
    for (int cpu = 0; cpu <= (int)lar_cpu_best(); cpu++) {
        paths[cpu].silu(gate, up, got, N);
        assert_true(isnan(got[0]));
    }
}

static void paths_are_chosen_by_name(void **state) {
    (void)state;
    lar_cpu cpu = LAR_CPU_COUNT;
    lar_diag d = {0};
    assert_int_equal(lar_cpu_choose(NULL, &cpu, &d), LAR_OK);
    assert_int_equal(cpu, lar_cpu_best());
    assert_int_equal(lar_cpu_choose("scalar", &cpu, &d), LAR_OK);
    assert_int_equal(cpu, LAR_CPU_SCALAR);
    assert_int_equal(lar_cpu_choose("sse9", &cpu, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "avx512"));
    if (lar_cpu_best() < LAR_CPU_AVX512) assert_int_equal(lar_cpu_choose("avx512", &cpu, &d), LAR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_survive_repacking), cmocka_unit_test(fp8_that_is_no_number_is_refused),
        cmocka_unit_test(paths_agree_bit_for_bit),  cmocka_unit_test(extremes_do_not_overflow),
        cmocka_unit_test(rounding_agrees),          cmocka_unit_test(silu_agrees),
        cmocka_unit_test(paths_are_chosen_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
