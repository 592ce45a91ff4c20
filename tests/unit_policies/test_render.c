/* A request as its provider prints it: the text, in the provider's order, and the way back to the body's bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "policies/render.h"
#include "policies/reprint.h"
#include "policies/tokens.h"

typedef struct rendered {
    lar_json json;
    lar_arena arena;
    lar_request_view view;
    lar_rendering r;
    lar_buf text;
} rendered;

static void render(rendered *x, lar_protocol p, const char *body, lar_render_order order) {
    lar_diag d;
    lar_json_init(&x->json);
    lar_arena_init(&x->arena, 1u << 22);
    lar_buf_init(&x->text, 1u << 20);
    assert_int_equal(lar_json_parse(&x->json, lar_slice_cstr(body), NULL, &d), LAR_OK);
    assert_int_equal(lar_request_view_read(&x->view, &x->json, p, &x->arena, &d), LAR_OK);
    assert_int_equal(lar_render_request(&x->r, &x->view, order, &x->arena), LAR_OK);
    assert_int_equal(lar_render_text(&x->r, &x->text), LAR_OK);
    assert_int_equal(x->text.len, x->r.bytes);
}

static void release(rendered *x) {
    lar_json_release(&x->json);
    lar_arena_release(&x->arena);
    lar_buf_release(&x->text);
}

static void expect(lar_protocol p, lar_render_order order, const char *body, const char *text) {
    rendered x;
    render(&x, p, body, order);
    assert_int_equal(lar_buf_add(&x.text, "", 1), LAR_OK);
    assert_string_equal(x.text.ptr, text);
    release(&x);
}

#define CHAT_BODY                                                                                                      \
    "{\"tools\":[{\"type\":\"function\",\"function\":{\"b\":1,\"a\":[ ]}} ,{\"name\":\"\\u00e9\\/\\n\"}],"             \
    "\"model\":\"m\",\"messages\":[{\"content\":\"S\\n1\",\"role\":\"system\"},{\"role\":\"user\",\"content\":[{"      \
    "\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]},{\"role\":"            \
    "\"assistant\",\"reasoning_content\":\"hm\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"             \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\":1}\"}}]},{\"role\":\"tool\","                \
    "\"tool_call_id\":\"c1\",\"content\":\"r\"}],\"temperature\":1}"
#define CHAT_TOOLS                                                                                                     \
    "<|tools|>[{\"type\": \"function\", \"function\": {\"b\": 1, \"a\": []}}, {\"name\": \"\xC3\xA9/\\n\"}]"
#define CHAT_SYSTEM "<|system|>S\n1<|end|>"
#define CHAT_REST                                                                                                      \
    "<|user|>a{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}<|end|>"                                       \
    "<|assistant|><think>hm</think><|call|>c1 f {\"k\":1}<|end|><|tool|>r<|for|>c1<|end|>"

static void test_chat_in_both_orders(void **state) {
    (void)state;
    expect(LAR_PROTOCOL_CHAT, LAR_RENDER_TOOLS_FIRST, CHAT_BODY, CHAT_TOOLS CHAT_SYSTEM CHAT_REST);
    expect(LAR_PROTOCOL_CHAT, LAR_RENDER_SYSTEM_FIRST, CHAT_BODY, CHAT_SYSTEM CHAT_TOOLS CHAT_REST);
}

static void test_messages(void **state) {
    (void)state;
    expect(LAR_PROTOCOL_MESSAGES, LAR_RENDER_TOOLS_FIRST,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
           "\"thinking\",\"thinking\":\"t\",\"signature\":\"s\"},{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\","
           "\"input\":{\"a\":1}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"i\","
           "\"content\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"type\":\"text\",\"text\":\"go\",\"cache_control\":"
           "{\"type\":\"ephemeral\"}}]}],\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"tools\":[{\"name\":\"f\","
           "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"},\"input_schema\":{}}]}",
           "<|tools|>[{\"name\": \"f\", \"input_schema\": {}}]<|system|>s<|end|><|user|>u<|end|><|assistant|><think>t"
           "</think><|call|>i f {\"a\": 1}<|end|><|user|><|for|>i rgo<|end|>");
}

static void test_marks_of_blocks(void **state) {
    (void)state;
    rendered x;
    render(
        &x, LAR_PROTOCOL_MESSAGES,
        "{\"cache_control\":{\"type\":\"ephemeral\"},\"tools\":[{\"name\":\"f\",\"cache_control\":{\"ttl\":\"1h\"}}],"
        "\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\",\"cache_control\":{}}]}]}",
        LAR_RENDER_TOOLS_FIRST);
    static const uint32_t lives[] = {3600, 0, 0, 300};
    assert_int_equal(x.r.block_count, 4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(x.r.blocks[i].ttl_s, lives[i]);
    assert_int_equal(x.r.automatic_ttl_s, 300);
    assert_int_equal(x.r.blocks[0].end, strlen("<|tools|>[{\"name\": \"f\"}]"));
    assert_int_equal(x.r.blocks[3].end, x.r.bytes - strlen("<|end|>"));
    release(&x);
}

static void test_responses(void **state) {
    (void)state;
    /* the ids of items are not read by the model */
    expect(
        LAR_PROTOCOL_RESPONSES, LAR_RENDER_TOOLS_FIRST,
        "{\"instructions\":\"i\",\"input\":[{\"type\":\"message\",\"id\":\"msg_1\",\"role\":\"user\",\"content\":[{"
        "\"type\":\"input_text\",\"text\":\"u\"}]},{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"text\":"
        "\"q\"}]},{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]}",
        "<|system|>i<|end|><|user|>u<|end|><think>q</think><|end|><|call|>c f {}<|end|><|for|>c o<|end|>");
    expect(LAR_PROTOCOL_RESPONSES, LAR_RENDER_TOOLS_FIRST, "{\"input\":\"hello\"}", "<|user|>hello<|end|>");
    expect(LAR_PROTOCOL_COMPLETIONS, LAR_RENDER_TOOLS_FIRST, "{\"prompt\":\"once\"}", "once");
    expect(LAR_PROTOCOL_EMBEDDINGS, LAR_RENDER_TOOLS_FIRST, "{\"input\":\"once\"}", "");
}

static void test_odd_shapes_are_printed(void **state) {
    (void)state;
    expect(LAR_PROTOCOL_CHAT, LAR_RENDER_TOOLS_FIRST,
           "{\"tools\":[],\"messages\":[1,{\"content\":\"x\"},{\"role\":\"user\",\"content\":[\"p\",{\"q\":[1, 2]}]}]}",
           "1<|end|><|None|>x<|end|><|user|>p{\"q\": [1, 2]}<|end|>");
    expect(LAR_PROTOCOL_CHAT, LAR_RENDER_TOOLS_FIRST, "{}", "");
}

/* The place of the first `needle` of the rendering is that of the first `there` of the body. */
static void maps(const char *body, const char *needle, const char *there, const char *pointer) {
    rendered x;
    render(&x, LAR_PROTOCOL_CHAT, body, LAR_RENDER_TOOLS_FIRST);
    const char *at = memmem(x.text.ptr, x.text.len, needle, strlen(needle));
    assert_non_null(at);
    lar_render_place place;
    assert_true(lar_render_where(&x.r, (size_t)(at - x.text.ptr), &place));
    const char *want = strstr(body, there);
    assert_non_null(want);
    assert_int_equal(place.body_offset, want - body);
    lar_buf b;
    lar_buf_init(&b, 1000);
    assert_int_equal(lar_json_pointer(&x.json, place.node, &b), LAR_OK);
    assert_int_equal(lar_buf_add(&b, "", 1), LAR_OK);
    assert_string_equal(b.ptr, pointer);
    lar_buf_release(&b);
    assert_false(lar_render_where(&x.r, x.r.bytes, &place));
    release(&x);
}

static void test_way_back(void **state) {
    (void)state;
    maps(CHAT_BODY, "S\n1", "S\\n1", "/messages/0/content");
    maps(CHAT_BODY, "1<|end|>", "1\",\"role\"", "/messages/0/content");
    maps(CHAT_BODY, "function\", \"function", "function\",\"function", "/tools/0/type");
    maps(CHAT_BODY, "b\": 1", "b\":1", "/tools/0/function/b");
    maps(CHAT_BODY, "\xC3\xA9", "\\u00e9", "/tools/1/name");
    maps(CHAT_BODY, "k\":1", "k\\\":1", "/messages/2/tool_calls/0/function/arguments");
    maps(CHAT_BODY, "<|tool|>", "{\"role\":\"tool\"", "/messages/3");
    maps(CHAT_BODY, "<|tools|>", "[{\"type\"", "/tools");
}

static void test_reprint(void **state) {
    (void)state;
    lar_json j;
    lar_diag d;
    lar_arena a;
    lar_slice out;
    lar_json_init(&j);
    lar_arena_init(&a, 1u << 20);
    assert_int_equal(lar_json_parse(&j,
                                    LAR_SLICE(
                                        "{ \"a\" : \"\\ud83d\\ude00\\ud800x\\u0041\\u0001\\u0022\" , \"cache_control\":"
                                        "{}, \"n\":[1.50,-2e3 ,{\"cache_control\":1}],\"s\":\"a, b: c\"}"),
                                    NULL, &d),
                     LAR_OK);
    assert_int_equal(lar_reprint(&j, 0, &a, &out), LAR_OK);
    const char *want =
        "{\"a\": \"\xF0\x9F\x98\x80\xED\xA0\x80xA\\u0001\\\"\", \"n\": [1.50, -2e3, {\"cache_control\": 1}], "
        "\"s\": \"a, b: c\"}";
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.ptr, want, out.len);
    assert_int_equal(lar_reprint_body_offset(&j, 0, out.len), j.nodes[0].end);
    lar_arena_release(&a);
    lar_json_release(&j);
}

static void test_tokens(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t tokens;
    } rows[] = {
        {"", 0},
        {"larder \n\t12345,\xE4\xB8\x80\xF0\x9F\x98\x80", 8},
        {"abcdefghijk", 3},
        {"1234\xEF\xBC\x90\xEF\xBC\x91", 2}, /* 123, then 4 and two full-width digits */
        {"\xE3\x80\x80 \xC2\xA0", 1},
        {"\xC3\xA9t\xC3\xA9", 3},
        {"\xED\xA0\x80\xFF", 2}, /* a lone surrogate, a wrong byte */
        {"<|end|>", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(lar_token_count(lar_slice_cstr(rows[i].text)), rows[i].tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_in_both_orders),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_marks_of_blocks),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_odd_shapes_are_printed),
        cmocka_unit_test(test_way_back),
        cmocka_unit_test(test_reprint),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
