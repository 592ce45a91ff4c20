/* Formats by layer: what is read, what is refused and how it is said, and that what is printed is shortest and read
 * back as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/cache/kv_layers.h"

enum { LAYERS = 27 };

static void read_one(const char *text, uint8_t kv[LAYERS]) {
    lar_diag d = {0};
    if (lar_kv_layers_parse(text, LAYERS, kv, &d)) fail_msg("%s: %s", text, d.text);
}

static void texts_name_layers(void **state) {
    (void)state;
    uint8_t kv[LAYERS];
    for (int f = 0; f < LAR_KV_COUNT; f++) {
        read_one(lar_kv_info_of((lar_kv)f)->name, kv);
        for (int i = 0; i < LAYERS; i++) assert_int_equal(kv[i], f);
    }
    read_one("fp8,0=bf16,24-26=f32,7-7=int8-128", kv);
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(kv[i], i == 0 ? LAR_KV_BF16 : i == 7 ? LAR_KV_INT8_128 : i >= 24 ? LAR_KV_F32 : LAR_KV_FP8);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"", "'': '' is no format; expected one of f32, f16, bf16, int8, fp8, int8-128"},
        {"fp9", "'fp9': 'fp9' is no format"},
        {"FP8", "'FP8' is no format"},
        {"fp8 ", "'fp8 ' is no format"},
        {"fp8,0=bf61", "'0=bf61': 'bf61' is no format"},
        {"fp8,0=", "'0=': '' is no format"},
        {"fp8,bf16", "'bf16': behind the first format, which is for all other layers, expected LAYER=FORMAT"},
        {"fp8,", "'': behind the first format"},
        {"fp8,,0=bf16", "'': behind the first format"},
        {"0=bf16", "'0=bf16': '0=bf16' is no format"},
        {"fp8,27=bf16", "'27=bf16': there is no layer 27; the model has the layers 0 to 26"},
        {"fp8,20-99=bf16", "'20-99=bf16': there is no layer 99"},
        {"fp8,999999999=bf16", "there is no layer 999999999"},
        {"fp8,9999999999=bf16", "expected LAYER=FORMAT or FIRST-LAST=FORMAT"},
        {"fp8,-1=bf16", "'-1=bf16': expected LAYER=FORMAT"},
        {"fp8,3-=bf16", "'3-=bf16': expected LAYER=FORMAT"},
        {"fp8,3-2=bf16", "'3-2=bf16': expected LAYER=FORMAT"},
        {"fp8,1-2-3=bf16", "expected LAYER=FORMAT"},
        {"fp8, 1=bf16", "expected LAYER=FORMAT"},
        {"fp8,1=bf16=f32", "'1=bf16=f32': 'bf16=f32' is no format"},
        {"fp8,0-3=bf16,3=f32", "'3=f32': layer 3 was named before"},
        {"fp8,5=bf16,0-26=bf16", "'0-26=bf16': layer 5 was named before"},
        {"a\033[31m\xff", "'a?[31m?' is no format"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t kv[LAYERS];
        lar_diag d = {0};
        assert_int_equal(lar_kv_layers_parse(rows[i][0], LAYERS, kv, &d), LAR_INVALID);
        if (!strstr(d.text, rows[i][1])) fail_msg("'%s': %s", rows[i][0], d.text);
    }
}

/* By whatever name: a latent is key and value at once. */
static void few_bits_are_refused_with_the_reason(void **state) {
    (void)state;
    static const char *const few[] = {"int4", "nf4",  "q4_0",   "q4_K",   "fp4",  "mxfp4", "nvfp4", "iq4_nl", "4bit",
                                      "q4",   "e2m1", "Q5_K_M", "turbo3", "int2", "int6",  "u4",    "f4_e2m1"};
    static const char *const many[] = {"e4m3", "E5M2", "f8_e4m3", "int16", "q8_0", "f64", "fp16x", "none"};
    uint8_t kv[LAYERS];
    char text[40];
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        lar_diag d = {0};
        (void)snprintf(text, sizeof text, "bf16,3=%s", few[i]);
        assert_int_equal(lar_kv_layers_parse(text, LAYERS, kv, &d), LAR_INVALID);
        if (!strstr(d.text, "no latent is kept in fewer than 8 bits: it is key and value of all heads at once"))
            fail_msg("%s: %s", few[i], d.text);
        assert_true(strlen(d.text) + 1 < sizeof d.text); /* whole */
    }
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        lar_diag d = {0};
        assert_int_equal(lar_kv_layers_parse(many[i], LAYERS, kv, &d), LAR_INVALID);
        if (!strstr(d.text, "is no format; expected one of f32")) fail_msg("%s: %s", many[i], d.text);
    }
}

static void what_is_printed_is_shortest(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"fp8", "fp8"},
        {"fp8,0-26=bf16", "bf16"},
        {"fp8,0=bf16,24-26=bf16", "bf16,1-23=fp8"},
        {"fp8,0=bf16,2=bf16", "fp8,0=bf16,2=bf16"},
        {"bf16,1-23=fp8", "bf16,1-23=fp8"},
        {"fp8,0=bf16,1=bf16", "fp8,0-1=bf16"},
        {"f32,1=f16,3=f16,5=f16,7-26=f16", "f16,0=f32,2=f32,4=f32,6=f32"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t kv[LAYERS];
        read_one(rows[i][0], kv);
        char *text = lar_kv_layers_text(kv, LAYERS);
        assert_string_equal(text, rows[i][1]);
        free(text);
    }
}

static void any_table_comes_back(void **state) {
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        uint8_t kv[LAYERS], back[LAYERS];
        for (int k = 0; k < LAYERS; k++) {
            bits = bits * 1664525u + 1013904223u;
            kv[k] = k && bits >> 30 ? kv[k - 1] : (uint8_t)((bits >> 8) % LAR_KV_COUNT); /* runs */
        }
        char *text = lar_kv_layers_text(kv, LAYERS);
        read_one(text, back);
        assert_memory_equal(kv, back, sizeof kv);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_name_layers),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(few_bits_are_refused_with_the_reason),
        cmocka_unit_test(what_is_printed_is_shortest),
        cmocka_unit_test(any_table_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
