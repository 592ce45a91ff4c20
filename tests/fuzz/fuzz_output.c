/* The watcher of answers: byte 0 picks protocol and whether reasoning is kept; then events, one a line.
 * 1. an event that is told by its pattern changes what it would have changed if it had been parsed: a second watcher
 *    gets an empty object between any two events, so that it never has a pattern;
 * 2. a form that is remembered writes the very text, from any text of the value; 3. nothing is kept over the bound. */
#include "policies/output.h"
#include "tests/fuzz/fuzz.h"

typedef struct log {
    lar_buf bytes; /* of all that was put, in order */
} log;

static lar_error get(void *ctx, const lar_hash *key, lar_buf *out) {
    (void)ctx, (void)key, (void)out;
    return LAR_NOT_FOUND;
}

static void put(void *ctx, const lar_hash *key, lar_slice value) {
    log *l = ctx;
    FUZZ_CHECK(value.len <= LAR_OUTPUT_ANSWER_MAX + 8); /* with its sum */
    FUZZ_CHECK(lar_buf_add(&l->bytes, key->bytes, sizeof key->bytes) == LAR_OK);
    FUZZ_CHECK(lar_buf_add_slice(&l->bytes, value) == LAR_OK);
}

static void check_form(lar_slice text) {
    lar_arena arena;
    lar_json_forms f;
    lar_buf form;
    lar_arena_init(&arena, 64u << 20);
    lar_json_forms_init(&f, &arena);
    lar_buf_init(&form, 1u << 20);
    if (lar_json_forms_parse(&f, text) && lar_json_form_read(&f, &f.json, 0, text, &form) == LAR_OK) {
        FUZZ_CHECK(form.len <= LAR_JSON_FORM_BYTES_MAX);
        FUZZ_CHECK(lar_json_form_print(&f, &f.json, 0, lar_buf_slice(&form)) == LAR_OK);
        FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&f.text), text));
    } else if (f.json.count && text.len && text.len < 64) { /* any form of another text, applied to this one */
        (void)!lar_json_form_print(&f, &f.json, 0, text);
    }
    lar_buf_release(&form);
    lar_json_forms_release(&f);
    lar_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES,
                                             LAR_PROTOCOL_CHAT};
    if (size < 2 || size > 1u << 20) return 0;
    lar_protocol p = protocols[data[0] & 3];
    bool reasoning = data[0] & 4;
    log quick, full;
    lar_json j;
    lar_arena arena;
    lar_buf_init(&quick.bytes, 64u << 20);
    lar_buf_init(&full.bytes, 64u << 20);
    lar_json_init(&j);
    lar_arena_init(&arena, 64u << 20);
    lar_json work;
    lar_json_init(&work);
    const lar_output_options options = {.protocol = p, .reasoning = reasoning, .work = &work};
    lar_output *a = lar_output_new(&options), *b = lar_output_new(&options);
    if (!a || !b) abort();
    lar_slice rest = lar_slice_of((const char *)data + 1, size - 1);
    while (rest.len) {
        const char *nl = memchr(rest.ptr, '\n', rest.len);
        size_t n = nl ? (size_t)(nl - rest.ptr) : rest.len;
        lar_slice line = lar_slice_of(rest.ptr, n);
        rest = lar_slice_of(rest.ptr + n + (nl ? 1 : 0), rest.len - n - (nl ? 1 : 0));
        check_form(line);
        if (lar_json_parse(&j, line, NULL, NULL) != LAR_OK) continue; /* the pattern takes what is no JSON for JSON */
        lar_output_event(a, LAR_SLICE(""), line);
        lar_output_event(b, LAR_SLICE(""), LAR_SLICE("{}"));
        lar_output_event(b, LAR_SLICE(""), line);
        FUZZ_CHECK(lar_output_bytes(a) <= LAR_OUTPUT_ANSWER_MAX && lar_output_bytes(b) <= LAR_OUTPUT_ANSWER_MAX);
        const lar_memory_ops ops = {&full, get, put};
        const lar_output_memory m = {.forms = &ops, .texts = &ops, .arena = &arena, .reasoning = reasoning};
        lar_output_remember_body(&j, p, &m);
    }
    full.bytes.len = 0;
    const lar_memory_ops ops[] = {{&quick, get, put}, {&full, get, put}};
    for (int i = 0; i < 2; i++) {
        const lar_output_memory m = {.forms = &ops[i], .texts = &ops[i], .arena = &arena, .reasoning = reasoning};
        lar_output_remember(i ? b : a, &m);
    }
    FUZZ_CHECK(lar_slice_eq(lar_buf_slice(&quick.bytes), lar_buf_slice(&full.bytes)));
    lar_output_free(a);
    lar_output_free(b);
    lar_json_release(&work);
    lar_buf_release(&quick.bytes);
    lar_buf_release(&full.bytes);
    lar_json_release(&j);
    lar_arena_release(&arena);
    return 0;
}
