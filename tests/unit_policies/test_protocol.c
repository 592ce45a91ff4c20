/* The view of a request: roles, the message that opens the turn, switches, for every protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policies/protocol.h"

typedef struct view_case {
    lar_protocol protocol;
    const char *body;
    const char *roles; /* S U A T O, one a segment */
    int turn_user;     /* -1: none */
    uint32_t turn;
} view_case;

static const view_case cases[] = {
    {LAR_PROTOCOL_CHAT,
     "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]}", "SU", 1, 0},
    {LAR_PROTOCOL_CHAT,
     "{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},"
     "{\"role\":\"user\",\"content\":\"v\"},{\"role\":\"assistant\",\"content\":null},{\"role\":\"tool\",\"content\":\"t\"}]}",
     "SUAUAT", 3, 1},
    {LAR_PROTOCOL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"user\",\"content\":\"v\"},{\"role\":\"assistant\"},{\"role\":\"user\",\"content\":[]}]}",
     "UUAU", 3, 1},
    {LAR_PROTOCOL_CHAT, "{\"messages\":\"hello\"}", "", -1, 0},
    {LAR_PROTOCOL_CHAT, "{\"messages\":[]}", "", -1, 0},
    {LAR_PROTOCOL_CHAT, "{}", "", -1, 0},
    {LAR_PROTOCOL_CHAT,
     "{\"messages\":[1,null,\"x\",[],{},{\"role\":7},{\"role\":\"wizard\",\"content\":\"x\"},{\"role\":\"user\",\"content\":{\"a\":1}},{\"role\":\"user\",\"content\":5}]}",
     "OOOOOOOOO", -1, 0},
    {LAR_PROTOCOL_CHAT,
     "{\"messages\":[{\"role\":\"user\",\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"x\",\"content\":\"y\"}]}",
     "OO", -1, 0},
    {LAR_PROTOCOL_CHAT, "{\"messages\":[{\"\\u0072ole\":\"\\u0075ser\",\"content\":\"x\"}]}", "U", 0, 0},
    {LAR_PROTOCOL_MESSAGES, "{\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}", "SU", 1, 0},
    {LAR_PROTOCOL_MESSAGES,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"system\":[{\"type\":\"text\",\"text\":\"s\"}]}", "SU", 1,
     0},
    {LAR_PROTOCOL_MESSAGES,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\"}]},"
     "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"x\",\"content\":\"r\"}]}]}",
     "UAT", 0, 0},
    {LAR_PROTOCOL_MESSAGES,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},"
     "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"},{\"type\":\"text\",\"text\":\"t\"}]}]}",
     "UAU", 2, 1},
    {LAR_PROTOCOL_RESPONSES, "{\"input\":\"hello\",\"instructions\":\"i\"}", "SU", 1, 0},
    {LAR_PROTOCOL_RESPONSES,
     "{\"input\":[{\"role\":\"developer\",\"content\":\"d\"},{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"u\"}]},"
     "{\"type\":\"reasoning\",\"summary\":[]},{\"type\":\"function_call\",\"name\":\"f\"},{\"type\":\"function_call_output\",\"output\":\"o\"},{\"type\":\"item_reference\"}]}",
     "SUAATO", 1, 0},
    {LAR_PROTOCOL_COMPLETIONS, "{\"prompt\":\"once\"}", "U", 0, 0},
    {LAR_PROTOCOL_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}", "", -1, 0},
    {LAR_PROTOCOL_EMBEDDINGS, "{\"input\":\"x\"}", "", -1, 0},
    {LAR_PROTOCOL_NONE, "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}", "", -1, 0},
};

static void test_views(void **state) {
    (void)state;
    static const char letters[] = "SUATO";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lar_json j;
        lar_arena a;
        lar_diag d;
        lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
        lar_request_view v;
        lar_json_init(&j);
        lar_arena_init(&a, 1 << 20);
        assert_int_equal(lar_json_parse(&j, lar_slice_cstr(cases[i].body), &limits, &d), LAR_OK);
        assert_int_equal(lar_request_view_read(&v, &j, cases[i].protocol, &a, &d), LAR_OK);
        char roles[32] = "";
        for (uint32_t s = 0; s < v.segment_count; s++) roles[s] = letters[v.segments[s].role];
        if (strcmp(roles, cases[i].roles) != 0) print_error("case %zu\n", i);
        assert_string_equal(roles, cases[i].roles);
        assert_int_equal(v.turn_user, cases[i].turn_user < 0 ? LAR_JSON_NONE : (uint32_t)cases[i].turn_user);
        assert_int_equal(v.turn, cases[i].turn);
        lar_arena_release(&a);
        lar_json_release(&j);
    }
}

static lar_error read_it(const char *body, lar_request_view *v, lar_diag *d, size_t arena_bytes) {
    static lar_json j; /* the view borrows it */
    static lar_arena a;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_json_release(&j);
    lar_json_init(&j);
    lar_arena_release(&a);
    lar_arena_init(&a, arena_bytes);
    assert_int_equal(lar_json_parse(&j, lar_slice_cstr(body), &limits, d), LAR_OK);
    lar_error e = lar_request_view_read(v, &j, LAR_PROTOCOL_CHAT, &a, d);
    if (v->segment_count == 0) lar_arena_release(&a);
    return e;
}

static void test_refusals(void **state) {
    (void)state;
    lar_request_view v;
    lar_diag d = {{0}, 0, 0};
    assert_int_equal(read_it("[1]", &v, &d, 1 << 20), LAR_JSON_SHAPE);
    assert_int_equal(read_it("\"x\"", &v, &d, 1 << 20), LAR_JSON_SHAPE);
    assert_int_equal(read_it("{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", &v, &d, 1 << 20), LAR_JSON_DUPLICATE);
    assert_true(d.has_offset && d.offset == 13);
    static const char *const twice[] = {"messages", "stream", "stream_options", "tools",
                                        "system",   "input",  "instructions"};
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"%s\":1,\"x\":{},\"%s\":2}", twice[i], twice[i]);
        assert_int_equal(read_it(body, &v, &d, 1 << 20), LAR_JSON_DUPLICATE);
    }
    assert_int_equal(read_it("{\"temperature\":1,\"temperature\":2}", &v, &d, 1 << 20), LAR_OK);
    assert_int_equal(read_it("{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}", &v, &d, 8), LAR_NO_MEMORY);
}

static void test_switches(void **state) {
    (void)state;
    lar_request_view v;
    lar_diag d;
    assert_int_equal(
        read_it("{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"tools\":[{}]}", &v, &d,
                1 << 20),
        LAR_OK);
    assert_true(v.streamed && v.wants_usage);
    assert_true(lar_json_eq(v.json, v.model, LAR_SLICE("m")));
    assert_int_not_equal(v.tools, LAR_JSON_NONE);
    assert_int_equal(read_it("{\"model\":5,\"stream\":\"true\",\"stream_options\":[],\"tools\":{}}", &v, &d, 1 << 20),
                     LAR_OK);
    assert_false(v.streamed || v.wants_usage);
    assert_int_equal(v.model, LAR_JSON_NONE);
    assert_int_equal(v.tools, LAR_JSON_NONE);
    assert_string_equal(lar_protocol_name(LAR_PROTOCOL_MESSAGES), "messages");
    assert_string_equal(lar_protocol_name((lar_protocol)99), "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_views), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_switches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
