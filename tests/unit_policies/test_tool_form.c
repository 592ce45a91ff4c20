/* LR010 over made-up tools: a tool in any order of its members goes out as it was first sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"
#include "rng.h"

enum { DEPTH_MAX = 5, WIDTH_MAX = 6, RUNS = 400, ORDERS = 6 };

static void add(lar_buf *b, const char *text) { assert_int_equal(lar_buf_add(b, text, strlen(text)), LAR_OK); }

static const char *const names[WIDTH_MAX] = {"type", "name", "\\u0061bc", "属性", "properties", "x\\ny"};
static const char *const scalars[] = {"1.50", "null", "\"a\\\"b\"", "true", "[1, 2]", "{}", "-0", "\"\\u00e9\""};

/* A value decided by `what`; the order of its members by `order`, unless that is NULL. */
static void print_value(lar_buf *out, rng what, uint32_t depth, rng *order) {
    uint32_t width = depth == 0 ? 2 + pick(&what, WIDTH_MAX - 1) : pick(&what, WIDTH_MAX + 1), at[WIDTH_MAX];
    bool array = depth > 0 && pick(&what, 4) == 0;
    if (depth == DEPTH_MAX || (depth && pick(&what, 2))) {
        add(out, scalars[pick(&what, 8)]);
        return;
    }
    for (uint32_t i = 0; i < width && i < WIDTH_MAX; i++) at[i] = i;
    if (width > WIDTH_MAX) width = WIDTH_MAX;
    for (uint32_t i = width; order && !array && i > 1; i--) {
        uint32_t o = pick(order, i), swap = at[i - 1];
        at[i - 1] = at[o];
        at[o] = swap;
    }
    add(out, array ? "[" : "{");
    for (uint32_t i = 0; i < width; i++) {
        rng inside = {what.s * 31 + at[i] + 1};
        for (int k = 0; k < 4; k++) (void)pick(&inside, 2);
        if (i) add(out, ", ");
        if (!array) assert_int_equal(lar_buf_printf(out, "\"%s\": ", names[at[i]]), LAR_OK);
        print_value(out, inside, depth + 1, order);
    }
    add(out, array ? "]" : "}");
}

static void print_body(lar_buf *out, uint64_t seed, uint32_t tools, rng *order) {
    uint32_t at[8];
    for (uint32_t i = 0; i < tools; i++) at[i] = i;
    for (uint32_t i = tools; order && i > 1; i--) {
        uint32_t o = pick(order, i), swap = at[i - 1];
        at[i - 1] = at[o];
        at[o] = swap;
    }
    add(out, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [");
    for (uint32_t i = 0; i < tools; i++) {
        rng what = {seed * 977 + at[i] * 31 + 7};
        for (int k = 0; k < 8; k++) (void)pick(&what, 2);
        if (i) add(out, ", ");
        print_value(out, what, 0, order);
    }
    add(out, "]}");
}

static void test_any_order(void **state) {
    (void)state;
    uint32_t rewritten = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        harness h;
        harness_init(&h);
        rng r = {seed * 0x9E3779B97F4A7C15u + 1};
        uint32_t tools = 1 + pick(&r, 5);
        lar_buf first;
        lar_buf_init(&first, 8u << 20);
        print_body(&first, seed, tools, &r);
        for (int n = 0; n <= ORDERS; n++) {
            lar_buf body;
            size_t len;
            lar_buf_init(&body, 8u << 20);
            if (n) print_body(&body, seed, tools, &r);
            else assert_int_equal(lar_buf_add_slice(&body, lar_buf_slice(&first)), LAR_OK);
            char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_buf_slice(&body), &len);
            assert_non_null(sent);
            assert_int_equal(h.error, LAR_OK);
            assert_int_equal(len, first.len);
            assert_memory_equal(sent, first.ptr, len);
            if (n) assert_int_equal(h.out.segments_known, 1); /* the same bytes for the model */
            rewritten += h.out.rules_fired >> LAR_RULE_LR010 & 1;
            free(sent);
            lar_buf_release(&body);
        }
        lar_buf_release(&first);
        harness_release(&h);
    }
    assert_true(rewritten > RUNS * ORDERS / 2);
}

#define BODY(tools) "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[" tools "]}"

static void expect(harness *h, const char *body, const char *want) {
    size_t len;
    char *sent = harness_send(h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), &len);
    assert_non_null(sent);
    assert_string_equal(sent, want);
    free(sent);
}

static void same(harness *h, const char *body) { expect(h, body, body); }

static void test_left_alone(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        /* a name twice, a marker twice or deeper inside (it may be a parameter's name), no object */
        {BODY("{\"a\":1,\"b\":2,\"b\":2}"), BODY("{\"b\":2,\"a\":1,\"b\":2}")},
        {BODY("{\"a\":1,\"b\":2,\"\\u0062\":2}"), BODY("{\"b\":2,\"a\":1,\"b\":2}")},
        {BODY("{\"a\":1,\"b\":{\"cache_control\":null,\"c\":1}}"),
         BODY("{\"b\":{\"c\":1,\"cache_control\":null},\"a\":1}")},
        {BODY("[{\"a\":1,\"b\":2}]"), BODY("[{\"b\":2,\"a\":1}]")},
        {BODY("{\"a\":1,\"b\":2.0}"), BODY("{\"b\":2,\"a\":1}")},
        {BODY("{\"a\":[1,2],\"b\":2}"), BODY("{\"b\":2,\"a\":[2,1]}")},
        {BODY("{\"a\":\"x\",\"b\":2}"), BODY("{\"b\":2,\"a\":\"x \"}")},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        harness h;
        harness_init(&h);
        same(&h, pairs[i][0]);
        same(&h, pairs[i][1]);
        harness_release(&h);
    }
}

static void test_modes(void **state) {
    (void)state;
    const char *one = BODY("{\"a\":1,\"b\":{\"c\":1,\"d\":2}}"), *other = BODY("{\"b\":{\"d\":2,\"c\":1},\"a\":1}");
    harness h;
    harness_init(&h);
    h.options.mode = LAR_CANON_REPORT;
    same(&h, one);
    same(&h, other);
    assert_true(h.out.rules_seen >> LAR_RULE_LR010 & 1);
    assert_int_equal(h.out.segments_known, 0);
    h.options.mode = LAR_CANON_ON; /* the first form is the one that is known */
    expect(&h, other, one);
    h.options.rules_off = 1ull << LAR_RULE_LR010;
    same(&h, other);
    assert_false(h.out.rules_seen >> LAR_RULE_LR010 & 1);
    h.options.rules_off = 0;
    h.scope = lar_hash_of(LAR_SLICE("another tenant"));
    same(&h, other);
    expect(&h, one, other);
    harness_release(&h);
}

/* White space between members, names in escapes and more members than a byte counts. */
static void test_odd_forms(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, BODY("{\"a\":1,\"b\":{\"c\":1}}"));
    expect(&h, BODY("{ \"b\" :\t{\"c\":1} ,\n\"\\u0061\": 1\r}"), BODY("{ \"\\u0061\": 1 ,\n\"b\" :\t{\"c\":1}\r}"));
    lar_buf up, down;
    lar_buf_init(&up, 1u << 20);
    lar_buf_init(&down, 1u << 20);
    add(&up, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"x\":{");
    assert_int_equal(lar_buf_add_slice(&down, lar_buf_slice(&up)), LAR_OK);
    for (int i = 0; i < 700; i++) {
        assert_int_equal(lar_buf_printf(&up, "%s\"k%d\":%d", i ? "," : "", i, i), LAR_OK);
        assert_int_equal(lar_buf_printf(&down, "%s\"k%d\":%d", i ? "," : "", 699 - i, 699 - i), LAR_OK);
    }
    add(&up, "}}]}");
    add(&down, "}}]}");
    assert_int_equal(lar_buf_add(&up, "", 1), LAR_OK);
    assert_int_equal(lar_buf_add(&down, "", 1), LAR_OK);
    same(&h, up.ptr);
    expect(&h, down.ptr, up.ptr);
    lar_buf_release(&up);
    lar_buf_release(&down);
    harness_release(&h);
}

/* Whatever a damaged store gives back, the tools that are sent are the client's in some order. */
static void test_damaged_memory(void **state) {
    (void)state;
    const char *one = BODY("{\"a\":1,\"b\":2,\"c\":{\"d\":1,\"e\":2}}"),
               *other = BODY("{\"c\":{\"e\":2,\"d\":1},\"b\":2,\"a\":1}");
    for (unsigned seed = 0; seed < 200; seed++) {
        harness h;
        harness_init(&h);
        same(&h, one);
        harness_memory_damage(h.memory, seed);
        size_t len;
        char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(other), &len);
        assert_non_null(sent);
        assert_int_equal(len, strlen(other));
        lar_json j;
        lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
        lar_json_init(&j);
        assert_int_equal(lar_json_parse(&j, lar_slice_of(sent, len), &limits, NULL), LAR_OK);
        uint32_t tool = lar_json_at(&j, lar_json_get(&j, 0, "tools"), 0);
        assert_int_equal(j.nodes[tool].count, 3);
        assert_int_equal(lar_json_get_count(&j, tool, "a"), 1);
        assert_int_equal(lar_json_get_count(&j, tool, "b"), 1);
        assert_int_equal(lar_json_get_count(&j, lar_json_get(&j, tool, "c"), "e"), 1);
        assert_int_equal(lar_json_get_count(&j, lar_json_get(&j, tool, "c"), "d"), 1);
        lar_json_release(&j);
        free(sent);
        harness_release(&h);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_order), cmocka_unit_test(test_left_alone),
                                       cmocka_unit_test(test_modes), cmocka_unit_test(test_odd_forms),
                                       cmocka_unit_test(test_damaged_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
