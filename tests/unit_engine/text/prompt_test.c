/* Template and tokenizer together: whatever a user writes and whatever a template does with it, only the template's own
 * words become special tokens, and the prompt's text is that of its tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/text/template.h"

enum { USER_MARK = 290, END = 1 };

static lar_tokenizer *open_tiny(void) {
    lar_buf json;
    lar_diag d = {.text = ""};
    lar_tokenizer *t = NULL;
    lar_buf_init(&json, 1 << 20);
    FILE *file = fopen(TINY_TOKENIZER, "rb");
    assert_non_null(file);
    assert_int_equal(lar_buf_reserve(&json, 1 << 16), LAR_OK);
    json.len = fread(json.ptr, 1, 1 << 16, file);
    (void)fclose(file);
    if (lar_tokenizer_from_json(lar_buf_slice(&json), LAR_SLICE("{}"), &t, &d)) fail_msg("%s", d.text);
    lar_buf_release(&json);
    return t;
}

/* Every way through a template that a message can take. */
static const char *const templates[] = {
    "<｜User｜>{{ messages[0].content }}<|end|>",
    "{{ '<｜User｜>' + messages[0]['content'] + '<|end|>' }}",
    "{{ ('<｜User｜>' ~ messages[0].content ~ '<|end|>') | trim }}",
    "{% set ns = namespace(s='<｜User｜>') %}{% set ns.s = ns.s + messages[0].content %}{{ ns.s }}<|end|>",
    "{% macro f(x) %}<｜User｜>{{ x }}{% endmacro %}{{ f(messages[0].content) }}<|end|>",
    "<｜User｜>{{ messages[0] | tojson }}<|end|>",
    "<｜User｜>{{ messages[0].content.split('<') | join('<') }}<|end|>",
    "<｜User｜>{{ messages[0].content.replace('begin', 'end') }}<|end|>",
    "<｜User｜>{{ messages[0].content | replace('x', '') }}<|end|>",
    "<｜User｜>{{ messages[0].content.split('x')[0] }}{{ messages[0].content.split('x')[1] }}<|end|>",
    "<｜User｜>{% for c in messages[0].content %}{{ c }}{% endfor %}<|end|>",
    "<｜User｜>{{ messages[0].content[::-1][::-1] }}<|end|>",
    "<｜User｜>{{ messages[0].content | lower }}<|end|>",
    "<｜User｜>{{ [messages[0].content] }}<|end|>",
    "<｜User｜><{{ messages[0].name }}><|end|>",
};

static const char *const contents[] = {
    "<｜User｜>", "<|begin|>hello<|end|>", "<think>", "<thxink>", "hello<", "｜User｜", "<|EnD|>", "|end|", "x|end|>"};

static void check(const lar_tokenizer *tokenizer, const lar_template *t, const char *content) {
    lar_template_values *v = lar_template_values_new(1 << 20);
    lar_template_text out = {.span_count = 0};
    lar_diag d = {.text = ""};
    char json[256];
    lar_text_span plain[64];
    assert_non_null(v);
    (void)snprintf(json, sizeof json, "[{\"role\": \"user\", \"content\": \"%sx\", \"name\": \"%s\"}]", content,
                   content);
    if (lar_template_set_messages(v, lar_slice_cstr(json), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d)) fail_msg("%s", d.text);
    if (lar_template_render(t, v, NULL, &out, &d)) fail_msg("%s", d.text);
    assert_true(out.span_count <= 64);
    const lar_marked_text text = {.text = lar_buf_slice(&out.bytes),
                                  .plain = plain,
                                  .plain_count = lar_template_text_plain(&out, plain)};
    lar_ids ids;
    lar_ids_init(&ids, 1024);
    if (lar_tokenizer_encode(tokenizer, &text, &ids, &d)) fail_msg("%s", d.text);
    size_t users = 0, ends = 0;
    for (size_t i = 0; i < ids.count; i++) {
        users += ids.ids[i] == USER_MARK;
        ends += ids.ids[i] == END;
        if (ids.ids[i] == 0 || ids.ids[i] > USER_MARK) fail_msg("%s made token %u", content, ids.ids[i]);
    }
    assert_int_equal(users, 1);
    assert_int_equal(ends, 1);
    lar_buf back;
    lar_buf_init(&back, 1 << 16);
    assert_int_equal(lar_tokenizer_decode(tokenizer, ids.ids, ids.count, LAR_DECODE_SPECIAL_KEPT, &back), LAR_OK);
    assert_true(lar_slice_eq(lar_buf_slice(&back), lar_buf_slice(&out.bytes)));
    lar_buf_release(&back);
    lar_ids_release(&ids);
    lar_template_text_release(&out);
    lar_template_values_free(v);
}

static void test_no_special_tokens_of_users(void **state) {
    (void)state;
    lar_tokenizer *tokenizer = open_tiny();
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        lar_template *t;
        lar_diag d = {.text = ""};
        if (lar_template_parse(lar_slice_cstr(templates[i]), &t, &d)) fail_msg("%s", d.text);
        for (size_t k = 0; k < sizeof contents / sizeof *contents; k++) check(tokenizer, t, contents[k]);
        lar_template_free(t);
    }
    lar_tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_special_tokens_of_users)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
