/* Reads replies as a client does: see reply_reader.h. Own to the tests: nothing of gateway/serving's writers. */
#include "tests/unit_serving/reply_reader.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            (void)fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { CHOICES = LAR_JOB_SAMPLES_MAX * 2 };

static void start(reply *r) {
    *r = (reply){.done = false};
    for (int i = 0; i < CHOICES; i++) {
        lar_buf *bufs[] = {&r->choices[i].content, &r->choices[i].reasoning, &r->choices[i].calls, &r->choices[i].probs,
                           &r->choices[i].reasoning_probs};
        for (int k = 0; k < 5; k++) lar_buf_init(bufs[k], 64 << 20);
    }
}

void reply_release(reply *r) {
    for (int i = 0; i < CHOICES; i++) {
        lar_buf *bufs[] = {&r->choices[i].content, &r->choices[i].reasoning, &r->choices[i].calls, &r->choices[i].probs,
                           &r->choices[i].reasoning_probs};
        for (int k = 0; k < 5; k++) lar_buf_release(bufs[k]);
    }
}

static void parse(lar_json *j, lar_slice text) {
    lar_diag d = {.text = ""};
    lar_error e = lar_json_parse_scalar(j, text, NULL, &d);
    if (e) (void)fprintf(stderr, "%s: %.*s\n", d.text, LAR_FMT(text));
    CHECK(!e && lar_json_is(j, 0, LAR_JSON_OBJECT));
}

static bool has(const lar_json *j, uint32_t node) { return lar_json_kind_of(j, node) != LAR_JSON_NULL; }

static void add_text(const lar_json *j, uint32_t node, lar_buf *out) {
    if (!has(j, node)) return;
    CHECK(lar_json_is(j, node, LAR_JSON_STRING) && !lar_json_decode(j, node, out));
}

static void read_calls(const lar_json *j, uint32_t calls, bool streamed, lar_buf *out) {
    if (!has(j, calls)) return;
    CHECK(lar_json_is(j, calls, LAR_JSON_ARRAY));
    for (uint32_t i = lar_json_first(j, calls); i != LAR_JSON_NONE; i = lar_json_after(j, calls, i)) {
        uint32_t function = lar_json_get(j, i, "function"), name = lar_json_get(j, function, "name");
        CHECK(lar_json_is(j, function, LAR_JSON_OBJECT) && (!streamed || has(j, lar_json_get(j, i, "index"))));
        if (has(j, name)) {
            CHECK(lar_json_eq(j, lar_json_get(j, i, "type"), LAR_SLICE("function")));
            CHECK(lar_json_inner(j, lar_json_get(j, i, "id")).len > 5);
            CHECK(!lar_buf_add(out, ";", 1));
            add_text(j, name, out);
            CHECK(!lar_buf_add(out, " ", 1));
        }
        CHECK(has(j, lar_json_get(j, function, "arguments")));
        add_text(j, lar_json_get(j, function, "arguments"), out);
    }
}

static void read_prob_list(const lar_json *j, uint32_t list, lar_buf *out) {
    for (uint32_t i = lar_json_first(j, list); has(j, list) && i != LAR_JSON_NONE; i = lar_json_after(j, list, i)) {
        uint32_t bytes = lar_json_get(j, i, "bytes"), tops = lar_json_get(j, i, "top_logprobs");
        CHECK(lar_json_is(j, lar_json_get(j, i, "logprob"), LAR_JSON_NUMBER) && lar_json_is(j, bytes, LAR_JSON_ARRAY));
        CHECK(lar_json_is(j, tops, LAR_JSON_ARRAY));
        CHECK(!lar_buf_add_slice(out, lar_json_raw(j, lar_json_get(j, i, "token"))));
    }
}

/* Chat: lists of objects; completions: columns of one length. */
static void read_probs(const lar_json *j, uint32_t node, reply_choice *c) {
    uint32_t tokens = lar_json_get(j, node, "tokens");
    if (!has(j, node)) return;
    CHECK(lar_json_is(j, node, LAR_JSON_OBJECT));
    read_prob_list(j, lar_json_get(j, node, "content"), &c->probs);
    read_prob_list(j, lar_json_get(j, node, "reasoning_content"), &c->reasoning_probs);
    if (tokens == LAR_JSON_NONE) return;
    static const char *const columns[] = {"token_logprobs", "top_logprobs", "text_offset"};
    for (int i = 0; i < 3; i++) {
        uint32_t column = lar_json_get(j, node, columns[i]);
        CHECK(lar_json_is(j, column, LAR_JSON_ARRAY) && j->nodes[column].count == j->nodes[tokens].count);
    }
    for (uint32_t i = lar_json_first(j, tokens); i != LAR_JSON_NONE; i = lar_json_after(j, tokens, i))
        CHECK(!lar_buf_add_slice(&c->probs, lar_json_raw(j, i)));
}

static void read_choice(const lar_json *j, uint32_t node, bool streamed, reply *r) {
    uint64_t index;
    CHECK(lar_json_u64(j, lar_json_get(j, node, "index"), &index) && index < CHOICES);
    reply_choice *c = &r->choices[index];
    uint32_t finish = lar_json_get(j, node, "finish_reason");
    uint32_t text = lar_json_get(j, node, "text");
    uint32_t message = lar_json_get(j, node, streamed ? "delta" : "message");
    CHECK(finish != LAR_JSON_NONE && lar_json_get(j, node, "logprobs") != LAR_JSON_NONE && !c->finish[0]);
    CHECK((text == LAR_JSON_NONE) == lar_json_is(j, message, LAR_JSON_OBJECT));
    if (text == LAR_JSON_NONE) {
        bool role = lar_json_eq(j, lar_json_get(j, message, "role"), LAR_SLICE("assistant"));
        CHECK(role != c->role); /* first, and once */
        if (!c->role) c->role = true;
        if (!streamed) CHECK(lar_json_get(j, message, "content") != LAR_JSON_NONE);
    }
    add_text(j, text, &c->content);
    add_text(j, lar_json_get(j, message, "content"), &c->content);
    add_text(j, lar_json_get(j, message, "reasoning_content"), &c->reasoning);
    read_calls(j, lar_json_get(j, message, "tool_calls"), streamed, &c->calls);
    read_probs(j, lar_json_get(j, node, "logprobs"), c);
    if (has(j, finish)) (void)snprintf(c->finish, sizeof c->finish, "%.*s", LAR_FMT(lar_json_inner(j, finish)));
    else CHECK(streamed);
    CHECK(!c->finish[0] || strstr("stop length tool_calls", c->finish));
}

static void read_usage(const lar_json *j, uint32_t node, reply *r) {
    uint64_t total, cached;
    if (!has(j, node)) return;
    CHECK(!r->has_usage);
    r->has_usage = true;
    CHECK(lar_json_u64(j, lar_json_get(j, node, "prompt_tokens"), &r->prompt));
    CHECK(lar_json_u64(j, lar_json_get(j, node, "completion_tokens"), &r->completion));
    CHECK(lar_json_u64(j, lar_json_get(j, node, "total_tokens"), &total));
    CHECK(lar_json_u64(j, lar_json_get(j, node, "prompt_cache_hit_tokens"), &r->hit));
    CHECK(lar_json_u64(j, lar_json_get(j, node, "prompt_cache_miss_tokens"), &r->miss));
    CHECK(lar_json_u64(j, lar_json_get(j, lar_json_get(j, node, "prompt_tokens_details"), "cached_tokens"), &cached));
    CHECK(lar_json_u64(j, lar_json_get(j, lar_json_get(j, node, "completion_tokens_details"), "reasoning_tokens"),
                       &r->reasoning));
    CHECK(total == r->prompt + r->completion && cached == r->hit && r->hit + r->miss == r->prompt);
    CHECK(r->reasoning <= r->completion);
}

static void read_object(lar_json *j, lar_slice text, bool streamed, reply *r) {
    parse(j, text);
    uint32_t choices = lar_json_get(j, 0, "choices");
    CHECK(!r->error && !r->done);
    r->error = lar_json_get(j, 0, "error") != LAR_JSON_NONE;
    if (!r->error) {
        CHECK(lar_json_is(j, choices, LAR_JSON_ARRAY) && has(j, lar_json_get(j, 0, "system_fingerprint")));
        CHECK(has(j, lar_json_get(j, 0, "id")) && has(j, lar_json_get(j, 0, "created")));
        CHECK(lar_json_eq(j, lar_json_get(j, 0, "model"), LAR_SLICE("tiny")));
        CHECK(!r->has_usage); /* the last one */
        for (uint32_t i = lar_json_first(j, choices); i != LAR_JSON_NONE; i = lar_json_after(j, choices, i))
            read_choice(j, i, streamed, r);
        read_usage(j, lar_json_get(j, 0, "usage"), r);
        CHECK(!streamed || j->nodes[choices].count == !r->has_usage);
    }
    r->chunks++;
}

void reply_read_body(lar_slice body, reply *out) {
    lar_json j;
    start(out);
    lar_json_init(&j);
    read_object(&j, body, false, out);
    lar_json_release(&j);
    out->done = true;
}

void reply_read_stream(lar_slice body, reply *out) {
    lar_slice data = LAR_SLICE("data: ");
    lar_json j; /* one for all events: its memory is kept */
    start(out);
    lar_json_init(&j);
    while (body.len) {
        const char *end = memmem(body.ptr, body.len, "\n\n", 2);
        CHECK(end && !out->done && lar_slice_starts(body, data));
        lar_slice event = lar_slice_of(body.ptr + data.len, (size_t)(end - body.ptr) - data.len);
        CHECK(!memchr(event.ptr, '\n', event.len) && !memchr(event.ptr, '\r', event.len));
        if (lar_slice_eq_cstr(event, "[DONE]")) out->done = true;
        else read_object(&j, event, true, out);
        body = lar_slice_of(end + 2, body.len - (size_t)(end + 2 - body.ptr));
    }
    lar_json_release(&j);
    CHECK(out->done != out->error);
}
