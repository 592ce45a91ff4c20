/* The span tree as its readers see it: shapes, errors with their offsets, limits. Every case runs through
 * every parser that this machine has. */
#include "base/json_scan.h"
#include "tests/unit_base/expect.h"

static int parsers(void) { return (int)lar_json_isa_best() + 1; }

static void parse(lar_json *j, int isa, lar_slice body) {
    lar_diag d = {0};
    lar_error e = lar_json_parse_isa((lar_json_isa)isa, j, body, NULL, &d);
    if (e) fail_msg("%.*s: %s", LAR_FMT(body), d.text);
}

static void documents_are_preorder(void **state) {
    (void)state;
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa < parsers(); isa++) {
        parse(&j, isa, LAR_SLICE(" {\"a\":[1,2] , \"b\\n\":null}\n"));
        static const lar_json_node want[] = {
            {1, 25, 7, 2, 0, LAR_JSON_OBJECT, 0}, {2, 5, 2, 0, 1, LAR_JSON_STRING, LAR_JSON_KEY},
            {6, 11, 5, 2, 1, LAR_JSON_ARRAY, 0},  {7, 8, 4, 0, 2, LAR_JSON_NUMBER, 0},
            {9, 10, 5, 0, 2, LAR_JSON_NUMBER, 0}, {14, 19, 6, 0, 1, LAR_JSON_STRING, LAR_JSON_KEY | LAR_JSON_ESCAPED},
            {20, 24, 7, 0, 1, LAR_JSON_NULL, 0},
        };
        assert_int_equal(j.count, 7);
        assert_memory_equal(j.nodes, want, sizeof want);
    }
    lar_json_release(&j);
}

static void every_kind_is_read(void **state) {
    (void)state;
    static const struct {
        const char *body;
        lar_json_kind kind;
    } rows[] = {{"null", LAR_JSON_NULL},         {"true", LAR_JSON_TRUE},       {"false", LAR_JSON_FALSE},
                {"0", LAR_JSON_NUMBER},          {"-0", LAR_JSON_NUMBER},       {"-12.5E-3", LAR_JSON_NUMBER},
                {"1e5", LAR_JSON_NUMBER},        {"1E+05", LAR_JSON_NUMBER},    {"0.0", LAR_JSON_NUMBER},
                {"\"\"", LAR_JSON_STRING},       {"[]", LAR_JSON_ARRAY},        {"{}", LAR_JSON_OBJECT},
                {"\t\r\n [ ] ", LAR_JSON_ARRAY}, {"{\"\":{}}", LAR_JSON_OBJECT}};
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa < parsers(); isa++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            parse(&j, isa, lar_slice_cstr(rows[i].body));
            assert_int_equal(lar_json_kind_of(&j, 0), rows[i].kind);
            assert_true(lar_json_is(&j, 0, rows[i].kind));
        }
    }
    lar_json_release(&j);
}

typedef struct refusal {
    lar_slice body;
    lar_error error;
    uint64_t offset;
} refusal;

#define REFUSE(body, error, offset)                                                                                    \
    { LAR_SLICE(body), LAR_##error, (offset) }

static const refusal refusals[] = {
    REFUSE("", JSON_SYNTAX, 0),
    REFUSE(" \n", JSON_SYNTAX, 2),
    REFUSE("\xEF\xBB\xBF", JSON_SYNTAX, 3),
    REFUSE("\xEF\xBB\xBF\xEF\xBB\xBF{}", JSON_SYNTAX, 3),
    REFUSE(" \xEF\xBB\xBF{}", JSON_SYNTAX, 1),
    REFUSE("\xEF\xBB", JSON_UTF8, 0),
    REFUSE("\xFF\xFE{\0}\0", JSON_UTF8, 0),
    REFUSE("{", JSON_SYNTAX, 1),
    REFUSE("[", JSON_SYNTAX, 1),
    REFUSE("[1", JSON_SYNTAX, 2),
    REFUSE("[1,", JSON_SYNTAX, 3),
    REFUSE("[1,]", JSON_SYNTAX, 3),
    REFUSE("[,1]", JSON_SYNTAX, 1),
    REFUSE("[1 2]", JSON_SYNTAX, 3),
    REFUSE("[1}", JSON_SYNTAX, 2),
    REFUSE("{]", JSON_SYNTAX, 1),
    REFUSE("{\"a\"}", JSON_SYNTAX, 4),
    REFUSE("{\"a\" 1}", JSON_SYNTAX, 5),
    REFUSE("{\"a\":}", JSON_SYNTAX, 5),
    REFUSE("{\"a\":1,}", JSON_SYNTAX, 7),
    REFUSE("{\"a\":1 \"b\":2}", JSON_SYNTAX, 7),
    REFUSE("{a:1}", JSON_SYNTAX, 1),
    REFUSE("{1:1}", JSON_SYNTAX, 1),
    REFUSE("{'a':1}", JSON_SYNTAX, 1),
    REFUSE("1 2", JSON_SYNTAX, 2),
    REFUSE("{}x", JSON_SYNTAX, 2),
    REFUSE("[1]//", JSON_SYNTAX, 3),
    REFUSE("[/**/1]", JSON_SYNTAX, 1),
    REFUSE("01", JSON_SYNTAX, 1),
    REFUSE("-", JSON_SYNTAX, 1),
    REFUSE("-a", JSON_SYNTAX, 1),
    REFUSE("+1", JSON_SYNTAX, 0),
    REFUSE(".5", JSON_SYNTAX, 0),
    REFUSE("1.", JSON_SYNTAX, 2),
    REFUSE("[1.]", JSON_SYNTAX, 3),
    REFUSE("1.e1", JSON_SYNTAX, 2),
    REFUSE("1e", JSON_SYNTAX, 2),
    REFUSE("1e+", JSON_SYNTAX, 3),
    REFUSE("[1e-]", JSON_SYNTAX, 4),
    REFUSE("0x10", JSON_SYNTAX, 1),
    REFUSE("1_000", JSON_SYNTAX, 1),
    REFUSE("NaN", JSON_SYNTAX, 0),
    REFUSE("-Infinity", JSON_SYNTAX, 1),
    REFUSE("Infinity", JSON_SYNTAX, 0),
    REFUSE("nul", JSON_SYNTAX, 3),
    REFUSE("nulL", JSON_SYNTAX, 3),
    REFUSE("[truE]", JSON_SYNTAX, 4),
    REFUSE("[tru", JSON_SYNTAX, 4),
    REFUSE("falsy", JSON_SYNTAX, 4),
    REFUSE("nullx", JSON_SYNTAX, 4),
    REFUSE("True", JSON_SYNTAX, 0),
    REFUSE("\"abc", JSON_SYNTAX, 4),
    REFUSE("\"", JSON_SYNTAX, 1),
    REFUSE("\"a\nb\"", JSON_SYNTAX, 2),
    REFUSE("\"a\0b\"", JSON_SYNTAX, 2),
    REFUSE("\"\x1f\"", JSON_SYNTAX, 1),
    REFUSE("[1,\0]", JSON_SYNTAX, 3),
    REFUSE("1\0", JSON_SYNTAX, 1),
    REFUSE("\v1", JSON_SYNTAX, 0),
    REFUSE("\"a\\", JSON_SYNTAX, 3),
    REFUSE("\"a\\x\"", JSON_SYNTAX, 2),
    REFUSE("\"a\\\"", JSON_SYNTAX, 4),
    REFUSE("\"\\'\"", JSON_SYNTAX, 1),
    REFUSE("\"\\\n\"", JSON_SYNTAX, 1),
    REFUSE("\"\\\0\"", JSON_SYNTAX, 1),
    REFUSE("\"\\U0041\"", JSON_SYNTAX, 1),
    REFUSE("\"\\u004\"", JSON_SYNTAX, 1),
    REFUSE("\"\\u00g0\"", JSON_SYNTAX, 1),
    REFUSE("\"\\u00", JSON_SYNTAX, 5),
    REFUSE("\"\\u\"", JSON_SYNTAX, 1),
    REFUSE("\"\\u+123\"", JSON_SYNTAX, 1),
    REFUSE("\"a\\\xE4\xBD\xA0\"", JSON_SYNTAX, 2),
    REFUSE("\"\xC0\xAF\"", JSON_UTF8, 1),
    REFUSE("\"a\xC1\xBF\"", JSON_UTF8, 2),
    REFUSE("\"\xE0\x9F\xBF\"", JSON_UTF8, 1),
    REFUSE("\"\xED\xA0\x80\"", JSON_UTF8, 1),
    REFUSE("\"\xED\xBF\xBF\"", JSON_UTF8, 1),
    REFUSE("\"\xF0\x8F\xBF\xBF\"", JSON_UTF8, 1),
    REFUSE("\"\xF4\x90\x80\x80\"", JSON_UTF8, 1),
    REFUSE("\"\xF5\x80\x80\x80\"", JSON_UTF8, 1),
    REFUSE("\"\xFE\"", JSON_UTF8, 1),
    REFUSE("\"\x80\"", JSON_UTF8, 1),
    REFUSE("\"\xE4\xBD\"", JSON_UTF8, 1),
    REFUSE("\"\xE4\xBD", JSON_UTF8, 1),
    REFUSE("\"\xE4\xBD\xA0\xA0\"", JSON_UTF8, 4),
    REFUSE("\"\xF0\x9F\x98\"", JSON_UTF8, 1),
    REFUSE("{\"\xFF\":1}", JSON_UTF8, 2),
    REFUSE("[\xE2\x80\x9C]", JSON_SYNTAX, 1),
    REFUSE("\xC2\xA0{}", JSON_SYNTAX, 0),
    REFUSE("{}\xFF", JSON_UTF8, 2),
};

static void errors_name_the_byte(void **state) {
    (void)state;
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa < parsers(); isa++) {
        for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
            const refusal *r = &refusals[i];
            lar_diag d = {0};
            lar_error e = lar_json_parse_isa((lar_json_isa)isa, &j, r->body, NULL, &d);
            if (e != r->error || !d.has_offset || d.offset != r->offset)
                fail_msg("parser %d, row %zu: %s at %llu: %s", isa, i, lar_error_name(e), (unsigned long long)d.offset,
                         d.text);
            assert_int_equal(j.count, 0);
            char offset[32];
            (void)snprintf(offset, sizeof offset, "byte %llu", (unsigned long long)r->offset);
            assert_non_null(strstr(d.text, offset));
        }
    }
    lar_json_release(&j);
}

/* The same errors behind a long string, where the wide loads are in their stride. */
static void errors_are_found_at_every_distance(void **state) {
    (void)state;
    char body[400];
    lar_json j;
    lar_json_init(&j);
    for (size_t before = 0; before < 200; before++) {
        for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
            const refusal *r = &refusals[i];
            if (r->body.len < 3 || r->body.ptr[0] != '"') continue;
            memset(body, 'x', sizeof body);
            memcpy(body + before, r->body.ptr, r->body.len);
            body[before] = 'y';
            body[0] = '"';
            if (before == 0) continue;
            for (int isa = 0; isa < parsers(); isa++) {
                lar_diag d = {0};
                lar_error e =
                    lar_json_parse_isa((lar_json_isa)isa, &j, lar_slice_of(body, before + r->body.len), NULL, &d);
                assert_string_equal(lar_error_name(e), lar_error_name(r->error));
                assert_int_equal(d.offset, before + r->offset);
            }
        }
    }
    lar_json_release(&j);
}

static void a_diag_is_not_needed(void **state) {
    (void)state;
    lar_json j;
    lar_json_init(&j);
    assert_error(lar_json_parse(&j, LAR_SLICE("["), NULL, NULL), JSON_SYNTAX);
    assert_error(lar_json_parse(&j, (lar_slice){0}, NULL, NULL), JSON_SYNTAX);
    assert_error(lar_json_parse_scalar(&j, LAR_SLICE("\"\xFF\""), NULL, NULL), JSON_UTF8);
    lar_json_release(&j);
}

static lar_error parse_limited(int isa, const char *body, uint32_t depth, uint32_t nodes, lar_diag *d) {
    lar_json j;
    lar_json_init(&j);
    *d = (lar_diag){0};
    lar_json_limits limits = {.depth_max = depth, .nodes_max = nodes};
    lar_error e = lar_json_parse_isa((lar_json_isa)isa, &j, lar_slice_cstr(body), &limits, d);
    lar_json_release(&j);
    return e;
}

static void limits_hold_exactly(void **state) {
    (void)state;
    lar_diag d;
    for (int isa = 0; isa < parsers(); isa++) {
        assert_ok(parse_limited(isa, "[[[1]]]", 3, 9, &d));
        assert_error(parse_limited(isa, "[[ [1]]]", 2, 9, &d), JSON_DEPTH);
        assert_int_equal(d.offset, 3);
        assert_error(parse_limited(isa, "[{\"a\":{}}]", 2, 9, &d), JSON_DEPTH);
        assert_int_equal(d.offset, 6);
        assert_ok(parse_limited(isa, "1", 0, 1, &d));
        assert_error(parse_limited(isa, "[]", 0, 1, &d), JSON_DEPTH);
        assert_int_equal(d.offset, 0);
        assert_ok(parse_limited(isa, "[[],[],[]]", 2, 4, &d));
        assert_ok(parse_limited(isa, "{\"a\":1}", 9, 3, &d));
        assert_error(parse_limited(isa, "{\"a\":1}", 9, 2, &d), JSON_SIZE);
        assert_int_equal(d.offset, 5);
        assert_error(parse_limited(isa, "[1,\"a\"]", 9, 2, &d), JSON_SIZE);
        assert_int_equal(d.offset, 3);
        assert_error(parse_limited(isa, "[1,[]]", 9, 2, &d), JSON_SIZE);
        assert_error(parse_limited(isa, "1", 9, 0, &d), JSON_SIZE);
        assert_int_equal(d.offset, 0);
    }
}

static void depth_is_a_limit_and_never_the_stack(void **state) {
    (void)state;
    enum { DEEP = 60000 };
    char *body = malloc(DEEP * 2);
    assert_non_null(body);
    memset(body, '[', DEEP);
    memset(body + DEEP, ']', DEEP);
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa < parsers(); isa++) {
        lar_diag d = {0};
        lar_json_limits deep = {.depth_max = UINT32_MAX, .nodes_max = UINT32_MAX};
        assert_error(lar_json_parse_isa((lar_json_isa)isa, &j, lar_slice_of(body, DEEP * 2), NULL, &d), JSON_DEPTH);
        assert_int_equal(d.offset, 256);
        assert_ok(lar_json_parse_isa((lar_json_isa)isa, &j, lar_slice_of(body, DEEP * 2), &deep, &d));
        assert_int_equal(j.count, DEEP);
        assert_int_equal(j.nodes[DEEP - 1].depth, DEEP - 1);
    }
    lar_json_release(&j);
    free(body);
}

static void a_body_of_four_gigabytes_is_refused_unread(void **state) {
    (void)state;
    lar_json j;
    lar_diag d = {0};
    lar_json_init(&j);
    assert_error(lar_json_parse(&j, lar_slice_of("1", UINT32_MAX), NULL, &d), JSON_SIZE);
    lar_json_release(&j);
}

static void a_byte_order_mark_is_skipped_and_counted(void **state) {
    (void)state;
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa < parsers(); isa++) {
        parse(&j, isa, LAR_SLICE("\xEF\xBB\xBF {\"a\":1}"));
        assert_int_equal(j.nodes[0].start, 4);
        assert_slice(lar_json_raw(&j, 0), LAR_SLICE("{\"a\":1}"));
        lar_diag d = {0};
        assert_error(lar_json_parse_isa((lar_json_isa)isa, &j, LAR_SLICE("\xEF\xBB\xBF[x"), NULL, &d), JSON_SYNTAX);
        assert_int_equal(d.offset, 4);
    }
    lar_json_release(&j);
}

static void a_tree_is_used_again(void **state) {
    (void)state;
    lar_json j;
    lar_json_init(&j);
    for (int isa = 0; isa < parsers(); isa++) {
        parse(&j, isa, LAR_SLICE("[1,2,[3,4,{\"a\":5}]]"));
        const lar_json_node *nodes = j.nodes;
        assert_error(lar_json_parse_isa((lar_json_isa)isa, &j, LAR_SLICE("[1,2"), NULL, NULL), JSON_SYNTAX);
        assert_int_equal(j.count, 0);
        assert_int_equal(lar_json_get(&j, 0, "a"), LAR_JSON_NONE);
        parse(&j, isa, LAR_SLICE("{}"));
        assert_int_equal(j.count, 1);
        assert_int_equal(j.nodes[0].count, 0);
        assert_ptr_equal(j.nodes, nodes);
    }
    lar_json_release(&j);
    assert_null(j.nodes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_preorder),
        cmocka_unit_test(every_kind_is_read),
        cmocka_unit_test(errors_name_the_byte),
        cmocka_unit_test(errors_are_found_at_every_distance),
        cmocka_unit_test(a_diag_is_not_needed),
        cmocka_unit_test(limits_hold_exactly),
        cmocka_unit_test(depth_is_a_limit_and_never_the_stack),
        cmocka_unit_test(a_body_of_four_gigabytes_is_refused_unread),
        cmocka_unit_test(a_byte_order_mark_is_skipped_and_counted),
        cmocka_unit_test(a_tree_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
