/* The form of a JSON text: one that can be described is printed again from any other text of the same value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "json_maker.h"
#include "policies/json_form.h"

enum { RUNS = 3000 };

typedef struct work {
    lar_arena arena;
    lar_json_forms forms;
    lar_buf form;
} work;

static void start(work *w) {
    lar_arena_init(&w->arena, 64u << 20);
    lar_json_forms_init(&w->forms, &w->arena);
    lar_buf_init(&w->form, 1u << 20);
}

static void end(work *w) {
    lar_json_forms_release(&w->forms);
    lar_arena_release(&w->arena);
    lar_buf_release(&w->form);
}

static lar_error read_form(work *w, lar_slice text) {
    w->form.len = 0;
    assert_true(lar_json_forms_parse(&w->forms, text));
    return lar_json_form_read(&w->forms, &w->forms.json, 0, text, &w->form);
}

static lar_hash norm_of(work *w, lar_slice text) {
    lar_hash h;
    assert_true(lar_json_forms_parse(&w->forms, text));
    assert_int_equal(lar_json_form_norm(&w->forms, &w->forms.json, 0, &h), LAR_OK);
    return h;
}

static void test_any_two_forms(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        work w;
        lar_buf one, other;
        start(&w);
        lar_buf_init(&one, 1u << 20);
        lar_buf_init(&other, 1u << 20);
        rng r = rng_of(seed), what = rng_of(seed * 77);
        maker_style a = maker_style_of(&r), b = maker_style_of(&r);
        maker_print(&one, what, 0, &a, &r);
        maker_print(&other, what, 0, &b, &r);
        assert_int_equal(read_form(&w, lar_buf_slice(&one)), LAR_OK);
        assert_true(lar_json_forms_parse(&w.forms, lar_buf_slice(&other)));
        assert_int_equal(lar_json_form_print(&w.forms, &w.forms.json, 0, lar_buf_slice(&w.form)), LAR_OK);
        assert_int_equal(w.forms.text.len, one.len);
        assert_memory_equal(w.forms.text.ptr, one.ptr, one.len);
        lar_hash x = norm_of(&w, lar_buf_slice(&one)), y = norm_of(&w, lar_buf_slice(&other));
        assert_true(lar_hash_eq(x, y));
        lar_buf_release(&one);
        lar_buf_release(&other);
        end(&w);
    }
}

static void test_forms_of_programs(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"a\":1}",
        "{\"a\": 1, \"b\": [1, 2]}\n",
        "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": {}\n}",
        "{\n\t\"a\": 1,\n\t\"b\": 2\n}",
        "{\"a\":\"\\/x\\/\"}",
        "{\"a\":\"\\u003cb\\u003e\\u0026\"}",
        "[\"\\u00e9\\u001f\\ud83d\\ude00\"]",
        "[\"\\u00E9\\u00FC\"]",
        "[\"\\ud800\"]",
        "[1e5,1E+5,-0.0,123456789012345678901234567890]",
        "[[[[[[[[[[1]]]]]]]]]]",
        "[\"\\b\\f\\n\\r\\t\\\"\\\\\"]",
        "{ }",
        " {}",
        "{}\n\n",
        "{ \"a\": 1, \"b\" :2 }",
        "{\"a\":1, \"b\":2,\"c\":3}",
        "[1 ,2]",
        "[\n1]\r\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        work w;
        start(&w);
        assert_int_equal(read_form(&w, lar_slice_cstr(texts[i])), LAR_OK);
        end(&w);
    }
}

/* What no form describes; and what is no object or array. */
static void test_odd(void **state) {
    (void)state;
    static const char *const odd[] = {"{\"a\":1,\"a\":1}", "[\"\\u0061\"]", "[\"\\/\", \"/\"]"};
    static const char *const none[] = {"", "1", "\"a\"", "{", "null", "{\"a\"}", "[1]x", "\x80"};
    work w;
    start(&w);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(read_form(&w, lar_slice_cstr(odd[i])), LAR_INVALID);
        assert_int_equal(w.form.len, 0);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(lar_json_forms_parse(&w.forms, lar_slice_cstr(none[i])));
    end(&w);
}

static void test_norm_tells_values_apart(void **state) {
    (void)state;
    static const char *const apart[] = {"{\"a\":1}",
                                        "{\"a\":1.0}",
                                        "{\"a\":\"1\"}",
                                        "{\"b\":1}",
                                        "{\"a\":[1]}",
                                        "{\"a\":1,\"b\":1}",
                                        "[1,2]",
                                        "[2,1]",
                                        "{\"a\":true}",
                                        "{\"a\":null}",
                                        "[]",
                                        "{}",
                                        "{\"a\":\"\"}",
                                        "{\"a\":\" \"}",
                                        "[\"a\",1]",
                                        "{\"cache_control\":1}",
                                        "{\"a\":{\"a\":1}}"};
    size_t n = sizeof apart / sizeof *apart;
    work w;
    start(&w);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            lar_hash x = norm_of(&w, lar_slice_cstr(apart[i])), y = norm_of(&w, lar_slice_cstr(apart[k]));
            assert_int_equal(lar_hash_eq(x, y), i == k);
        }
    }
    end(&w);
}

/* Whatever bytes a form is, printing says INVALID or prints the same value. */
static void test_damaged_form(void **state) {
    (void)state;
    work w;
    start(&w);
    rng r = rng_of(5);
    lar_slice text = LAR_SLICE("{\"a\": 1, \"b\": {\"c\": \"é\", \"d\": [1, 2]}}");
    lar_hash want = norm_of(&w, text);
    uint32_t printed = 0;
    for (int i = 0; i < 20000; i++) {
        char form[8];
        size_t n = pick(&r, 9);
        for (size_t k = 0; k < n; k++) form[k] = (char)pick(&r, pick(&r, 2) ? 3 : 256);
        assert_true(lar_json_forms_parse(&w.forms, text));
        lar_error e = lar_json_form_print(&w.forms, &w.forms.json, 0, lar_slice_of(form, n));
        assert_true(e == LAR_OK || e == LAR_INVALID);
        if (e) continue;
        printed++;
        lar_slice out = lar_arena_copy(&w.arena, lar_buf_slice(&w.forms.text));
        assert_true(lar_hash_eq(norm_of(&w, out), want));
    }
    assert_true(printed > 0);
    end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_two_forms), cmocka_unit_test(test_forms_of_programs),
                                       cmocka_unit_test(test_odd), cmocka_unit_test(test_norm_tells_values_apart),
                                       cmocka_unit_test(test_damaged_form)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
