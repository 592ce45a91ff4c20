/* Readers of the span tree: look-ups, decoded text, numbers, pointers, and escaping on the way out. */
#include "base/json.h"
#include "tests/unit_base/expect.h"

static lar_json tree;

static void parse(const char *body) {
    lar_diag d = {0};
    lar_error e = lar_json_parse(&tree, lar_slice_cstr(body), NULL, &d);
    if (e) fail_msg("%s: %s", body, d.text);
}

static void members_are_found_by_decoded_name(void **state) {
    (void)state;
    parse("{\"model\":\"m\",\"m\\u006fdel2\":2,\"a\":{\"model\":3},\"\":4,\"x\\ny\":5}");
    assert_slice(lar_json_raw(&tree, lar_json_get(&tree, 0, "model")), LAR_SLICE("\"m\""));
    assert_slice(lar_json_raw(&tree, lar_json_get(&tree, 0, "model2")), LAR_SLICE("2"));
    assert_slice(lar_json_raw(&tree, lar_json_get(&tree, 0, "")), LAR_SLICE("4"));
    assert_slice(lar_json_raw(&tree, lar_json_get(&tree, 0, "x\ny")), LAR_SLICE("5"));
    assert_slice(lar_json_raw(&tree, lar_json_get(&tree, lar_json_get(&tree, 0, "a"), "model")), LAR_SLICE("3"));
    assert_int_equal(lar_json_get(&tree, 0, "mode"), LAR_JSON_NONE);
    assert_int_equal(lar_json_get(&tree, 0, "Model"), LAR_JSON_NONE);
    assert_int_equal(lar_json_get(&tree, 0, "model22"), LAR_JSON_NONE);
}

static void duplicates_are_counted_and_kept(void **state) {
    (void)state;
    parse("{\"a\":1,\"b\":2,\"\\u0061\":[3,{\"a\":9}],\"a\":4}");
    assert_int_equal(lar_json_get_count(&tree, 0, "a"), 3);
    assert_int_equal(lar_json_get_count(&tree, 0, "b"), 1);
    assert_int_equal(lar_json_get_count(&tree, 0, "c"), 0);
    assert_slice(lar_json_raw(&tree, lar_json_get(&tree, 0, "a")), LAR_SLICE("1"));
    assert_slice(lar_json_raw(&tree, lar_json_get_last(&tree, 0, "a")), LAR_SLICE("4"));
    assert_int_equal(lar_json_get_last(&tree, 0, "c"), LAR_JSON_NONE);
}

static void children_are_walked_in_order(void **state) {
    (void)state;
    parse("{\"k\":[10,[11,12],{\"z\":13}],\"l\":{\"m\":1,\"n\":[2],\"o\":3}}");
    uint32_t k = lar_json_get(&tree, 0, "k"), l = lar_json_get(&tree, 0, "l");
    assert_slice(lar_json_raw(&tree, lar_json_at(&tree, k, 0)), LAR_SLICE("10"));
    assert_slice(lar_json_raw(&tree, lar_json_at(&tree, k, 2)), LAR_SLICE("{\"z\":13}"));
    assert_int_equal(lar_json_at(&tree, k, 3), LAR_JSON_NONE);
    assert_int_equal(lar_json_at(&tree, l, 0), LAR_JSON_NONE);
    char seen[64] = "";
    for (uint32_t c = lar_json_first(&tree, k); c != LAR_JSON_NONE; c = lar_json_after(&tree, k, c))
        (void)snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s;", LAR_FMT(lar_json_raw(&tree, c)));
    for (uint32_t c = lar_json_first(&tree, l); c != LAR_JSON_NONE; c = lar_json_after(&tree, l, c))
        (void)snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s=%.*s;", LAR_FMT(lar_json_inner(&tree, c)),
                       LAR_FMT(lar_json_raw(&tree, c + 1)));
    assert_string_equal(seen, "10;[11,12];{\"z\":13};m=1;n=[2];o=3;");
}

static void nothing_is_accepted_by_every_reader(void **state) {
    (void)state;
    lar_buf out;
    lar_buf_init(&out, 100);
    uint64_t u = 7;
    double f = 7;
    parse("[1]");
    assert_int_equal(lar_json_raw(&tree, LAR_JSON_NONE).len, 0);
    assert_int_equal(lar_json_inner(&tree, LAR_JSON_NONE).len, 0);
    assert_int_equal(lar_json_inner(&tree, 0).len, 0);
    assert_false(lar_json_eq(&tree, LAR_JSON_NONE, LAR_SLICE("")));
    assert_int_equal(lar_json_get(&tree, LAR_JSON_NONE, "a"), LAR_JSON_NONE);
    assert_int_equal(lar_json_get(&tree, 0, "a"), LAR_JSON_NONE);
    assert_int_equal(lar_json_get_last(&tree, LAR_JSON_NONE, "a"), LAR_JSON_NONE);
    assert_int_equal(lar_json_get_count(&tree, LAR_JSON_NONE, "a"), 0);
    assert_int_equal(lar_json_at(&tree, LAR_JSON_NONE, 0), LAR_JSON_NONE);
    assert_int_equal(lar_json_first(&tree, LAR_JSON_NONE), LAR_JSON_NONE);
    assert_int_equal(lar_json_first(&tree, 1), LAR_JSON_NONE);
    assert_int_equal(lar_json_kind_of(&tree, LAR_JSON_NONE), LAR_JSON_NULL);
    assert_false(lar_json_is(&tree, LAR_JSON_NONE, LAR_JSON_NULL));
    assert_false(lar_json_u64(&tree, LAR_JSON_NONE, &u));
    assert_false(lar_json_double(&tree, LAR_JSON_NONE, &f));
    assert_error(lar_json_decode(&tree, LAR_JSON_NONE, &out), INVALID);
    assert_error(lar_json_decode(&tree, 1, &out), INVALID);
    assert_error(lar_json_pointer(&tree, LAR_JSON_NONE, &out), INVALID);
    assert_int_equal(out.len, 0);
    assert_int_equal(u, 7);
    lar_buf_release(&out);
}

static void strings_are_decoded(void **state) {
    (void)state;
    static const struct {
        const char *body;
        lar_slice text;
    } rows[] = {
        {"\"\"", LAR_SLICE("")},
        {"\"plain \xE4\xBD\xA0\"", LAR_SLICE("plain \xE4\xBD\xA0")},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", LAR_SLICE("\"\\/\b\f\n\r\t")},
        {"\"a\\u0000b\"", LAR_SLICE("a\0b")},
        {"\"\\u0041\\u00e9\\u4F60\"", LAR_SLICE("A\xC3\xA9\xE4\xBD\xA0")},
        {"\"\\ud83d\\ude00!\"", LAR_SLICE("\xF0\x9F\x98\x80!")},
        {"\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", LAR_SLICE("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF")},
        {"\"\\ud800\"", LAR_SLICE("\xED\xA0\x80")},
        {"\"\\udfff\"", LAR_SLICE("\xED\xBF\xBF")},
        {"\"\\ud800x\"", LAR_SLICE("\xED\xA0\x80x")},
        {"\"\\ud800\\u0041\"", LAR_SLICE("\xED\xA0\x80"
                                         "A")},
        {"\"\\ud800\\ud83d\\ude00\"", LAR_SLICE("\xED\xA0\x80\xF0\x9F\x98\x80")},
        {"\"\\ude00\\ud83d\"", LAR_SLICE("\xED\xB8\x80\xED\xA0\xBD")},
        {"\"\\ud83d\\ue000\\ud83d\\udbff\"", LAR_SLICE("\xED\xA0\xBD\xEE\x80\x80\xED\xA0\xBD\xED\xAF\xBF")},
        {"\"\\ud83d\\\\ude00\"", LAR_SLICE("\xED\xA0\xBD\\ude00")},
    };
    lar_buf out;
    lar_buf_init(&out, 1000);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        parse(rows[i].body);
        lar_buf_reset(&out, 1000);
        assert_ok(lar_buf_add(&out, "<", 1));
        assert_ok(lar_json_decode(&tree, 0, &out));
        assert_slice(lar_slice_of(out.ptr + 1, out.len - 1), rows[i].text);
        assert_true(lar_json_eq(&tree, 0, rows[i].text));
        assert_false(lar_json_eq(&tree, 0, LAR_SLICE("other")));
        if (rows[i].text.len) assert_false(lar_json_eq(&tree, 0, lar_slice_of(rows[i].text.ptr, rows[i].text.len - 1)));
    }
    lar_buf_release(&out);
}

static void decoding_needs_no_more_room_than_the_text(void **state) {
    (void)state;
    parse("\"\\u4f60\\u597d\\n\"");
    lar_buf out;
    lar_buf_init(&out, 7);
    assert_ok(lar_json_decode(&tree, 0, &out));
    assert_slice(lar_buf_slice(&out), LAR_SLICE("\xE4\xBD\xA0\xE5\xA5\xBD\n"));
    lar_buf_release(&out);
    lar_buf_init(&out, 6);
    assert_error(lar_json_decode(&tree, 0, &out), LIMIT);
    assert_int_equal(out.len, 0);
    lar_buf_release(&out);
}

static void text_is_escaped_no_more_than_needed(void **state) {
    (void)state;
    static const struct {
        lar_slice text, want;
    } rows[] = {
        {LAR_SLICE(""), LAR_SLICE("")},
        {LAR_SLICE("plain / \x7f \xE4\xBD\xA0 \xF0\x9F\x98\x80"),
         LAR_SLICE("plain / \x7f \xE4\xBD\xA0 \xF0\x9F\x98\x80")},
        {LAR_SLICE("\"\\\b\f\n\r\t"), LAR_SLICE("\\\"\\\\\\b\\f\\n\\r\\t")},
        {LAR_SLICE("\0\x01\x1f"), LAR_SLICE("\\u0000\\u0001\\u001f")},
        {LAR_SLICE("a\xED\xA0\x80\xED\xBF\xBFz"), LAR_SLICE("a\\ud800\\udfffz")},
    };
    lar_buf out;
    lar_buf_init(&out, 1000);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lar_buf_reset(&out, 1000);
        assert_ok(lar_json_escape(&out, rows[i].text));
        assert_slice(lar_buf_slice(&out), rows[i].want);
    }
    lar_buf_reset(&out, 1000);
    assert_ok(lar_buf_add(&out, "keep", 4));
    assert_error(lar_json_escape(&out, LAR_SLICE("ok\n\xFF")), INVALID);
    assert_error(lar_json_escape(&out, LAR_SLICE("\xED\xA0")), INVALID);
    assert_slice(lar_buf_slice(&out), LAR_SLICE("keep"));
    lar_buf_release(&out);
    lar_buf_init(&out, 5);
    assert_error(lar_json_escape(&out, LAR_SLICE("abc\n\n")), LIMIT);
    assert_int_equal(out.len, 0);
    lar_buf_release(&out);
}

static void numbers_are_read_where_they_fit(void **state) {
    (void)state;
    uint64_t u;
    double f;
    parse("[0,18446744073709551615,18446744073709551616,-1,1.0,1e2,\"5\",9007199254740993]");
    assert_true(lar_json_u64(&tree, 1, &u));
    assert_int_equal(u, 0);
    assert_true(lar_json_u64(&tree, 2, &u));
    assert_true(u == UINT64_MAX);
    for (uint32_t i = 3; i <= 7; i++) assert_false(lar_json_u64(&tree, i, &u));
    assert_true(lar_json_u64(&tree, 8, &u));
    assert_true(u == 9007199254740993u);
    assert_true(lar_json_double(&tree, 4, &f) && f == -1);
    assert_true(lar_json_double(&tree, 6, &f) && f == 100);
    assert_false(lar_json_double(&tree, 7, &f));
    parse("[1e400,-1e400,1e-400,0.1]");
    assert_false(lar_json_double(&tree, 1, &f));
    assert_false(lar_json_double(&tree, 2, &f));
    assert_true(lar_json_double(&tree, 3, &f) && f == 0);
    assert_true(lar_json_double(&tree, 4, &f) && f == 0.1);
}

static void pointers_lead_to_nodes(void **state) {
    (void)state;
    static const char *const want[] = {"",
                                       "/messages",
                                       "/messages",
                                       "/messages/0",
                                       "/messages/0/content",
                                       "/messages/0/content",
                                       "/messages/1",
                                       "/messages/1/0",
                                       "/a~1b~0c",
                                       "/a~1b~0c",
                                       "/",
                                       "/",
                                       "/\n",
                                       "/\n"};
    parse("{\"messages\":[{\"content\":\"x\"},[1]],\"a/b~c\":true,\"\":null,\"\\n\":0}");
    lar_buf out;
    lar_buf_init(&out, 1000);
    assert_int_equal(tree.count, sizeof want / sizeof want[0]);
    for (uint32_t i = 0; i < tree.count; i++) {
        lar_buf_reset(&out, 1000);
        assert_ok(lar_json_pointer(&tree, i, &out));
        assert_slice(lar_buf_slice(&out), lar_slice_cstr(want[i]));
    }
    lar_buf_release(&out);
    lar_buf_init(&out, 6);
    assert_error(lar_json_pointer(&tree, 4, &out), LIMIT);
    assert_int_equal(out.len, 0);
    lar_buf_release(&out);
}

static int set_up(void **state) {
    (void)state;
    lar_json_init(&tree);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    lar_json_release(&tree);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_found_by_decoded_name),
        cmocka_unit_test(duplicates_are_counted_and_kept),
        cmocka_unit_test(children_are_walked_in_order),
        cmocka_unit_test(nothing_is_accepted_by_every_reader),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(decoding_needs_no_more_room_than_the_text),
        cmocka_unit_test(text_is_escaped_no_more_than_needed),
        cmocka_unit_test(numbers_are_read_where_they_fit),
        cmocka_unit_test(pointers_lead_to_nodes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
