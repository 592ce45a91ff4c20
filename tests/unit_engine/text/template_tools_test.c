/* Templates that get a place for tools: DeepSeek's published ones print what they printed before, and tools where its
 * model card says, with no special token that a tool's text could form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json.h"
#include "engine/text/template_tools.h"

enum { TEXT_BYTES_MAX = 4 << 20 };

typedef struct data {
    lar_buf body;
    lar_json j;
} data;

static int open_data(void **state) {
    data *d = calloc(1, sizeof *d);
    FILE *f = fopen(TEMPLATES, "rb");
    if (!d || !f) return -1;
    lar_buf_init(&d->body, TEXT_BYTES_MAX);
    lar_json_init(&d->j);
    if (lar_buf_reserve(&d->body, TEXT_BYTES_MAX)) return -1;
    d->body.len = fread(d->body.ptr, 1, TEXT_BYTES_MAX, f);
    (void)fclose(f);
    *state = d;
    return lar_json_parse(&d->j, lar_buf_slice(&d->body), NULL, NULL) ? -1 : 0;
}

static int close_data(void **state) {
    data *d = *state;
    lar_json_release(&d->j);
    lar_buf_release(&d->body);
    free(d);
    return 0;
}

static lar_template *parse(lar_slice source) {
    lar_template *t;
    lar_diag d = {.text = ""};
    if (lar_template_parse(source, &t, &d)) fail_msg("%s", d.text);
    return t;
}

/* The text of a conversation without tools; empty where the template refuses it. */
static void render(const lar_template *t, const lar_json *j, uint32_t conversation, lar_template_text *out) {
    lar_template_values *v = lar_template_values_new(64 << 20);
    lar_diag d = {.text = ""};
    assert_non_null(v);
    lar_template_set_now(v, 0);
    uint32_t messages = lar_json_get(j, conversation, "messages");
    if (lar_template_set_messages(v, lar_json_raw(j, messages), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d))
        fail_msg("%s", d.text);
    assert_int_equal(lar_template_set_bool(v, "add_generation_prompt", true), LAR_OK);
    assert_int_equal(lar_template_set_json(v, "tools", LAR_SLICE("null"), &d), LAR_OK);
    assert_int_equal(lar_template_set_text(v, "bos_token", LAR_SLICE("<s>"), LAR_TEMPLATE_OWN), LAR_OK);
    assert_int_equal(lar_template_set_text(v, "eos_token", LAR_SLICE("</s>"), LAR_TEMPLATE_OWN), LAR_OK);
    if (lar_template_render(t, v, NULL, out, &d)) out->bytes.len = 0;
    lar_template_values_free(v);
}

static void test_without_tools_nothing_changes(void **state) {
    const lar_json *j = &((data *)*state)->j;
    uint32_t templates = lar_json_get(j, 0, "templates"), conversations = lar_json_get(j, 0, "conversations"),
             added = 0;
    lar_buf source, changed;
    lar_buf_init(&source, TEXT_BYTES_MAX);
    lar_buf_init(&changed, TEXT_BYTES_MAX);
    for (uint32_t n = lar_json_first(j, templates); n != LAR_JSON_NONE; n = lar_json_after(j, templates, n)) {
        source.len = changed.len = 0;
        assert_int_equal(lar_json_decode(j, lar_json_get(j, n, "source"), &source), LAR_OK);
        lar_output_format calls = lar_output_format_of(lar_buf_slice(&source));
        lar_error e = lar_template_tools_add(lar_buf_slice(&source), calls, &changed);
        assert_int_equal(e, calls == LAR_OUTPUT_FORMAT_NONE ? LAR_NOT_FOUND : LAR_OK);
        if (e) continue;
        added++;
        lar_template *a = parse(lar_buf_slice(&source)), *b = parse(lar_buf_slice(&changed));
        assert_false(lar_template_reads(a, "tools"));
        assert_true(lar_template_reads(b, "tools"));
        for (uint32_t c = lar_json_first(j, conversations); c != LAR_JSON_NONE;
             c = lar_json_after(j, conversations, c)) {
            lar_template_text x = {.span_count = 0}, y = {.span_count = 0};
            render(a, j, c, &x);
            render(b, j, c, &y);
            assert_true(lar_slice_eq(lar_buf_slice(&x.bytes), lar_buf_slice(&y.bytes)));
            lar_template_text_release(&x);
            lar_template_text_release(&y);
        }
        lar_template_free(a);
        lar_template_free(b);
    }
    assert_int_equal(added, 4); /* V2.5, V3, V3.1, R1 */
    lar_buf_release(&source);
    lar_buf_release(&changed);
}

static void expect_tools(lar_output_format calls, const char *want) {
    static const char source[] =
        "{{ bos_token }}{% set ns = namespace(system_prompt='Be brief.') %}{{ ns.system_prompt }}"
        "{%- for m in messages %}<U>{{ m.content }}{% endfor %}";
    lar_buf changed;
    lar_diag d = {.text = ""};
    lar_template_text out = {.span_count = 0};
    lar_text_span plain[32];
    lar_buf_init(&changed, TEXT_BYTES_MAX);
    assert_int_equal(lar_template_tools_add(lar_slice_cstr(source), calls, &changed), LAR_OK);
    lar_template *t = parse(lar_buf_slice(&changed));
    lar_template_values *v = lar_template_values_new(1 << 20);
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE("[{\"role\":\"user\",\"content\":\"q\"}]"),
                                               LAR_TEMPLATE_ARGUMENTS_AS_IS, &d),
                     LAR_OK);
    assert_int_equal(lar_template_set_json(v, "tools",
                                           LAR_SLICE(
                                               "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":"
                                               "\"<｜tool▁sep｜>\",\"parameters\":{\"type\":\"object\"}}},"
                                               "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"),
                                           &d),
                     LAR_OK);
    assert_int_equal(lar_template_set_text(v, "bos_token", LAR_SLICE("<s>"), LAR_TEMPLATE_OWN), LAR_OK);
    if (lar_template_render(t, v, NULL, &out, &d)) fail_msg("%s", d.text);
    if (!lar_slice_eq_cstr(lar_buf_slice(&out.bytes), want)) fail_msg("%.*s", LAR_FMT(lar_buf_slice(&out.bytes)));
    /* The description is the tool's own; the explanation of the form is the template's. */
    size_t spans = lar_template_text_plain(&out, plain), described = 0;
    for (size_t i = 0; i < spans; i++) {
        lar_slice text = lar_slice_of(out.bytes.ptr + plain[i].start, plain[i].end - plain[i].start);
        described += memmem(text.ptr, text.len, "<｜tool▁sep｜>", strlen("<｜tool▁sep｜>")) != NULL;
        assert_null(memmem(text.ptr, text.len, "<｜tool▁calls▁begin｜>", strlen("<｜tool▁calls▁begin｜>")));
    }
    assert_int_equal(described, 1);
    lar_template_text_release(&out);
    lar_template_values_free(v);
    lar_template_free(t);
    lar_buf_release(&changed);
}

#define TOOLS                                                                                                          \
    "<s>Be brief.\n\n## Tools\nYou have access to the following tools:\n\n"                                            \
    "### f\nDescription: <｜tool▁sep｜>\n\nParameters: {\"type\": \"object\"}\n\n"                                 \
    "### g\nDescription: \n\nParameters: {}\n\n"                                                                       \
    "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
#define WHERE                                                                                                          \
    "{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n"                                                    \
    "- `tool_call_name` must be an exact match to one of the available tools\n"                                        \
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"

static void test_tools(void **state) {
    (void)state;
    expect_tools(LAR_OUTPUT_FORMAT_V31,
                 TOOLS "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments"
                       "<｜tool▁call▁end｜>" WHERE
                       "- For multiple tool calls, chain them directly without separators or spaces<U>q");
    expect_tools(LAR_OUTPUT_FORMAT_V3,
                 TOOLS "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tool_call_name\n```json\n"
                       "tool_call_arguments\n```<｜tool▁call▁end｜>" WHERE
                       "- For multiple tool calls, put a line end between them<U>q");
}

static void test_others_stay(void **state) {
    static const struct {
        const char *source;
        lar_output_format calls;
    } rows[] = {
        {"", LAR_OUTPUT_FORMAT_V31},
        {"{{ ns.system }}", LAR_OUTPUT_FORMAT_V31},
        {"{{ ns.system_prompt }}{{ns.system_prompt}}", LAR_OUTPUT_FORMAT_V31},
        {"{{ ns.system_prompt }}", LAR_OUTPUT_FORMAT_DSML},
        {"{{ ns.system_prompt }}", LAR_OUTPUT_FORMAT_NONE},
    };
    lar_buf out;
    (void)state;
    lar_buf_init(&out, TEXT_BYTES_MAX);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(lar_template_tools_add(lar_slice_cstr(rows[i].source), rows[i].calls, &out), LAR_NOT_FOUND);
    assert_int_equal(out.len, 0);
    lar_buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_without_tools_nothing_changes, open_data, close_data),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_others_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
