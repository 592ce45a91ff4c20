/* Formats of the latent cache: each rounding against one computed in double (rounded_row.c), layouts byte by byte,
 * sizes against the planner's, and golden models: with a packed cache the logits have the bits of a float32 cache whose
 * rows were rounded before they were put. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cache/latent_row.h"
#include "engine/compute/panel_matmul.h"
#include "engine/files/float_bits.h"
#include "engine/plan/plan.h"
#include "tests/unit_engine/model/golden.h"
#include "tests/unit_engine/model/rounded_row.h"

enum { ROW_MAX = 600, BYTES_MAX = 4 * ROW_MAX };

/* -- numbers ------------------------------------------------------------------------------------------------------- */

static void all_narrow_numbers_come_back(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float half = lar_f16_float((uint16_t)i), brain = lar_bf16_float((uint16_t)i);
        if (!isnan(half)) assert_int_equal(lar_float_f16(half), i);
        if (!isnan(brain)) assert_int_equal(lar_float_bf16(brain), i);
        assert_true(!isnan(half) == !isnan(lar_f16_float(lar_float_f16(half))));
        assert_true(!isnan(brain) == !isnan(lar_bf16_float(lar_float_bf16(brain))));
    }
    for (uint32_t i = 0; i < 256; i++) assert_int_equal(lar_float_e4m3(lar_e4m3_float((uint8_t)i)), i);
    assert_int_equal(lar_float_e4m3(INFINITY), 0x7f);
    assert_int_equal(lar_float_e4m3(-INFINITY), 0xff);
}

static void check_number(float x) {
    if (!isfinite(x)) return;
    assert_true((double)lar_f16_float(lar_float_f16(x)) == rounded_number(x, 10, -14, 65504));
    assert_true((double)lar_bf16_float(lar_float_bf16(x)) == rounded_number(x, 7, -126, ldexp(255, 120)));
    assert_true((double)lar_e4m3_float(lar_float_e4m3(x)) == rounded_number(x, 3, -6, 448));
    assert_true(signbit(lar_f16_float(lar_float_f16(x))) == signbit(x));
}

/* Every number that is just between two narrow ones, its neighbours, and beyond the largest; floats of any bits. */
static void rounding_is_to_the_nearest_even(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 0x7f80; i++) {
        float half = lar_f16_float((uint16_t)(i < 0x7c00 ? i : 0x7bff)), next = lar_f16_float((uint16_t)(i + 1));
        float small = lar_e4m3_float((uint8_t)(i % 0x7f)), after = lar_e4m3_float((uint8_t)(i % 0x7f + 1));
        const float between[] = {half + (next - half) / 2, small + (after - small) / 2,
                                 lar_bits_float(i << 16 | 0x8000u)};
        for (int k = 0; k < 3; k++) {
            check_number(between[k]);
            check_number(-nextafterf(between[k], 0));
            check_number(nextafterf(between[k], INFINITY));
        }
    }
    uint32_t bits = 12345;
    for (int i = 0; i < 100000; i++) check_number(lar_bits_float(bits = bits * 1664525u + 1013904223u));
    const float ends[] = {65504, 65519.9f, 65520, 1e30f, 448, 464, 465, 3.4028234e38f, 1e-45f};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) check_number(ends[i]), check_number(-ends[i]);
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

typedef struct dice {
    uint32_t bits;
} dice;

/* From -1 to 1. */
static float throw(dice * d) {
    d->bits = d->bits * 1664525u + 1013904223u;
    return (float)(int32_t)d->bits * 0x1p-31f;
}

/* Rows as models have them, the largest value at the edge of a scale; with outliers, of zeros, tiny, large, small. */
static void make_row(dice *d, int kind, uint32_t n, float *row) {
    static const float by[] = {1, 1, 0, 1e-9f, 1e4f, 1e-5f};
    for (uint32_t i = 0; i < n; i++) row[i] = throw(d) * by[kind];
    if (kind == 1)
        for (uint32_t i = 0; i < n; i += 37) row[i] *= 1000;
    if (kind == 0) row[0] = 1.75f, row[n / 2] = nextafterf(1.75f, 2);
}
enum { KINDS = 6 };

static void rows_are_rounded_as_defined(void **state) {
    (void)state;
    const lar_latent_row shapes[] = {{0, 512, 64}, {0, 16, 4}, {0, 129, 7}, {0, 300, 10}, {0, 31, 1}};
    float row[ROW_MAX], want[ROW_MAX], got[ROW_MAX];
    uint8_t bytes[BYTES_MAX + 2];
    dice d = {7};
    for (int i = 0; i < 5 * LAR_KV_COUNT * KINDS; i++) {
        lar_latent_row r = shapes[i / LAR_KV_COUNT / KINDS];
        r.format = (lar_kv)(i / KINDS % LAR_KV_COUNT);
        make_row(&d, i % KINDS, r.rank + r.rope, row);
        memcpy(want, row, sizeof want);
        rounded_row(r.format, r.rank, r.rope, want);
        uint64_t size = lar_latent_row_bytes(&r);
        assert_true(size <= BYTES_MAX);
        memset(bytes, 0xa5, sizeof bytes);
        lar_latent_row_pack(&r, row, bytes + 1); /* at an odd address */
        assert_true(bytes[0] == 0xa5 && bytes[1 + size] == 0xa5);
        lar_latent_row_unpack(&r, bytes + 1, got);
        for (uint32_t k = 0; k < r.rank + r.rope; k++)
            if (!(got[k] == want[k]))
                fail_msg("%s, kind %d, %u + %u, value %u: %a became %a, expected %a", lar_kv_info_of(r.format)->name,
                         i % KINDS, r.rank, r.rope, k, (double)row[k], (double)got[k], (double)want[k]);
    }
}

/* FlashMLA's 656 bytes: values, scales from 512, rope from 528; integers alike, with their scales in float16. */
static void layouts_are_those_of_the_table(void **state) {
    (void)state;
    float row[576] = {0};
    uint8_t bytes[2304];
    static const uint64_t size[] = {[LAR_KV_F32] = 2304, [LAR_KV_F16] = 1152, [LAR_KV_BF16] = 1152,
                                    [LAR_KV_FP8] = 656,  [LAR_KV_INT8] = 672, [LAR_KV_INT8_128] = 648};
    for (int kv = 0; kv < LAR_KV_COUNT; kv++)
        assert_int_equal(lar_latent_row_bytes(&(lar_latent_row){(lar_kv)kv, 512, 64}), size[kv]);
    row[0] = 448, row[1] = -1, row[128] = 449, row[384] = 127, row[512] = 1, row[575] = -2;
    lar_latent_row_pack(&(lar_latent_row){LAR_KV_FP8, 512, 64}, row, bytes);
    assert_true(bytes[0] == 0x7e && bytes[1] == 0xb8); /* 448 and -1 by 1 */
    assert_true(lar_bits_float(lar_le32(bytes + 512)) == 1);
    assert_true(lar_bits_float(lar_le32(bytes + 516)) == 2); /* 449 is 224.5 by 2 */
    assert_true(bytes[128] == 0x76);
    assert_true(lar_bits_float(lar_le32(bytes + 520)) == 0x1p-22f); /* of 1e-4, in a tile of zeros */
    assert_true(lar_le16(bytes + 528) == 0x3f80 && lar_le16(bytes + 654) == 0xc000);
    lar_latent_row_pack(&(lar_latent_row){LAR_KV_INT8, 512, 64}, row, bytes);
    assert_true(bytes[384] == 127 && lar_le16(bytes + 512 + 2 * 12) == 0x3c00); /* 127 by 1 */
    assert_true(lar_le16(bytes + 544) == 0x3f80 && lar_le16(bytes + 670) == 0xc000);
    lar_latent_row_pack(&(lar_latent_row){LAR_KV_INT8_128, 512, 64}, row, bytes);
    assert_true(bytes[384] == 127 && lar_le16(bytes + 512 + 2 * 3) == 0x3c00);
    assert_true(lar_le16(bytes + 520) == 0x3f80 && lar_le16(bytes + 646) == 0xc000);
}

/* A model that has gone wrong shows it: nothing that is not finite becomes a number. */
static void nothing_hides_what_is_not_finite(void **state) {
    (void)state;
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    const uint32_t at[] = {0, 5, 299, 300, 309};
    for (int i = 0; i < LAR_KV_COUNT * 15; i++) {
        lar_latent_row r = {(lar_kv)(i / 15), 300, 10};
        float row[310], got[310];
        uint8_t bytes[4 * 310];
        for (int k = 0; k < 310; k++) row[k] = (float)k;
        row[at[i % 5]] = wrong[i / 5 % 3];
        lar_latent_row_pack(&r, row, bytes);
        lar_latent_row_unpack(&r, bytes, got);
        assert_true(!isfinite(got[at[i % 5]]));
        assert_true(isfinite(got[200])); /* another tile */
    }
}

/* -- the cache ----------------------------------------------------------------------------------------------------- */

/* What `larder plan` adds up is what is taken, by layer too. */
static void sizes_are_the_planner_s(void **state) {
    (void)state;
    for (int i = 0; i < LAR_KV_COUNT * 3; i++) {
        const uint32_t tokens = (const uint32_t[]){1, 64, 65}[i % 3];
        lar_plan_model m = {.latent = true};
        lar_plan_request r = {.context = tokens, .sequences = 1, .kv = (lar_kv)(i / 3), .memory = 1ull << 40};
        lar_plan p;
        lar_diag d = {0};
        uint8_t kv[27];
        m.field[LAR_PLAN_LAYERS] = 27, m.field[LAR_PLAN_RANK] = 512, m.field[LAR_PLAN_ROPE] = 64;
        assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_OK);
        memset(kv, (int)r.kv, sizeof kv);
        lar_page_layout layout = {27, 512, 64, kv};
        assert_int_equal((tokens + 63) / 64 * lar_page_layout_page_bytes(&layout), p.request);
        assert_int_equal(lar_page_layout_token_bytes(&layout), p.token);
        for (int k = 0; k < 27; k += 4) kv[k] = (uint8_t)((i + k) % LAR_KV_COUNT);
        r.kv_layers = kv;
        assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_OK);
        assert_int_equal((tokens + 63) / 64 * lar_page_layout_page_bytes(&layout), p.request);
        assert_int_equal(lar_page_layout_token_bytes(&layout), p.token);
        assert_int_equal(p.layer, 0);
    }
}

/* -- golden models ------------------------------------------------------------------------------------------------- */

/* What the wrapped put rounds to before it puts; rank 0: nothing. One test at a time, one thread that puts. */
static struct {
    uint32_t rank, rope;
    uint8_t kv[LAR_LAYERS_MAX];
} inserted;

void __real_lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row);
void __wrap_lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row);

void __wrap_lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row) {
    float copy[ROW_MAX];
    if (inserted.rank) {
        assert_true(inserted.rank + inserted.rope <= ROW_MAX);
        memcpy(copy, row, (inserted.rank + inserted.rope) * sizeof *copy);
        rounded_row((lar_kv)inserted.kv[layer], inserted.rank, inserted.rope, copy);
        row = copy;
    }
    __real_lar_latent_cache_put(k, layer, position, row);
}

static double check_format(golden *g, const golden_case *c, const char *kv, golden_run how) {
    lar_diag d = {0};
    size_t bytes = (size_t)c->position_count * g->config.vocab * sizeof(float);
    inserted.rank = g->config.rank, inserted.rope = g->config.rope.dims;
    assert_int_equal(lar_kv_layers_parse(kv, g->config.layers, inserted.kv, &d), LAR_OK);
    g->kv = "f32";
    float *want = golden_logits(g, c, how);
    inserted.rank = 0;
    g->kv = kv;
    float *got = golden_logits(g, c, how);
    assert_memory_equal(got, want, bytes);
    double off = golden_distance(g, c, got);
    free(want), free(got);
    return off;
}

static void packed_rows_give_the_bits_of_rounded_ones(void **state) {
    (void)state;
    /* Wide: a choice of experts may flip. The bits are what counts. */
    static const struct {
        const char *kv;
        double most;
    } rows[] = {{"f32", 2e-3}, {"f16", 5e-3},     {"bf16", 0.03},          {"int8", 0.2},
                {"fp8", 1},    {"int8-128", 0.2}, {"fp8,0=bf16,2=f32", 1}, {"f32,1=int8,2=int8-128", 0.2}};
    const golden_run ways[] = {{512, LAR_ATTENTION_ABSORBED},
                               {7, LAR_ATTENTION_ABSORBED},
                               {512, LAR_ATTENTION_EXPANDED}};
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        golden g;
        golden_open(&g, golden_names[m], lar_kernels_panels(lar_cpu_best()), LAR_ACTIVATIONS_F32);
        const golden_case *c = golden_find(&g, "n65");
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            double off = 0;
            for (int w = 0; w < 3; w++) off = fmax(off, check_format(&g, c, rows[i].kv, ways[w]));
            print_message("%s, latents in %s: %.2g of the standard deviation from the golden logits\n", golden_names[m],
                          rows[i].kv, off);
            assert_true(off < rows[i].most);
            assert_true(i == 0 || off > 1e-5); /* it is rounded indeed */
        }
        golden_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_narrow_numbers_come_back),
        cmocka_unit_test(rounding_is_to_the_nearest_even),
        cmocka_unit_test(rows_are_rounded_as_defined),
        cmocka_unit_test(layouts_are_those_of_the_table),
        cmocka_unit_test(nothing_hides_what_is_not_finite),
        cmocka_unit_test(sizes_are_the_planner_s),
        cmocka_unit_test(packed_rows_give_the_bits_of_rounded_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
