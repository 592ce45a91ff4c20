/* Expectations on the usage reader: whole answers, and streams with every cut. */
#ifndef LARDER_TESTS_USAGE_EXPECT_H
#define LARDER_TESTS_USAGE_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gateway/http1/sse.h"
#include "gateway/usage/usage.h"
#include "tests/unit_http1/cuts.h"

#define N LAR_TOKENS_UNKNOWN
#define CHAT LAR_PROTOCOL_CHAT
#define MESSAGES LAR_PROTOCOL_MESSAGES
#define RESPONSES LAR_PROTOCOL_RESPONSES

typedef struct want {
    int64_t prompt, hit, miss, write, output, reasoning;
} want;

static inline void expect_tokens(const lar_usage *u, want w, bool clamped) {
    lar_tokens t;
    assert_int_equal(lar_usage_tokens(u, &t), clamped);
    assert_int_equal(t.prompt, w.prompt);
    assert_int_equal(t.hit, w.hit);
    assert_int_equal(t.miss, w.miss);
    assert_int_equal(t.write, w.write);
    assert_int_equal(t.output, w.output);
    assert_int_equal(t.reasoning, w.reasoning);
}

static inline void body(lar_usage *u, lar_protocol p, const char *text) {
    lar_usage_init(u, LAR_USAGE_BY_SPELLING);
    lar_usage_body(u, p, lar_slice_cstr(text));
}

/* One answer; its counts, spelling and oddness. */
static inline void expect_body(lar_protocol p, const char *text, lar_spelling spelling, want w) {
    lar_usage u;
    body(&u, p, text);
    assert_string_equal(lar_spelling_name(u.spelling), lar_spelling_name(spelling));
    expect_tokens(&u, w, false);
    assert_false(u.odd);
    assert_false(u.error_seen);
    assert_true(u.seen);
    lar_usage_release(&u);
}

/* Feeds a stream through the event reader, cut as `c` says. kinds: a letter an event, f(orward), u(sage), d(one). */
static inline void stream_cut(lar_usage *u, lar_protocol p, lar_slice in, cuts c, char *kinds, size_t room) {
    lar_sse s;
    lar_sse_event e;
    size_t pos = 0, count = 0;
    lar_sse_init(&s, 1 << 20);
    while (pos < in.len) {
        size_t n = cuts_next(&c, pos, in.len), used;
        bool event = lar_sse_next(&s, in.ptr + pos, n, &used, &e);
        pos += used;
        if (!event || e.comment_only) continue;
        lar_usage_kind k = lar_usage_event(u, p, e.type, e.data);
        assert_true(count + 1 < room);
        kinds[count++] = k == LAR_USAGE_DONE ? 'd' : k == LAR_USAGE_ONLY_CHUNK ? 'u' : 'f';
    }
    kinds[count] = '\0';
    lar_sse_release(&s);
}

/* `u` is left initialised, as the whole stream made it; every cut gives the same. */
static inline void stream(lar_usage *u, lar_protocol p, const char *text, const char *want_kinds) {
    char kinds[256];
    lar_slice in = lar_slice_cstr(text);
    lar_tokens whole, t;
    lar_usage_init(u, LAR_USAGE_BY_SPELLING);
    stream_cut(u, p, in, (cuts){.kind = CUT_NONE}, kinds, sizeof kinds);
    assert_string_equal(kinds, want_kinds);
    (void)lar_usage_tokens(u, &whole);
    for (size_t at = 0; at <= in.len; at++) {
        lar_usage v;
        lar_usage_init(&v, LAR_USAGE_BY_SPELLING);
        cuts c = {.kind = at == 0 ? CUT_BYTES : CUT_AT, .at = at};
        stream_cut(&v, p, in, c, kinds, sizeof kinds);
        assert_string_equal(kinds, want_kinds);
        (void)lar_usage_tokens(&v, &t);
        assert_memory_equal(&t, &whole, sizeof t);
        assert_true(v.seen == u->seen && v.error_seen == u->error_seen && v.finished == u->finished &&
                    v.done == u->done && v.content_seen == u->content_seen && v.odd == u->odd &&
                    v.spelling == u->spelling);
        lar_usage_release(&v);
    }
}

#define DATA(json) "data: " json "\n\n"
#define DONE "data: [DONE]\n\n"
#define TEXT(t)                                                                                                        \
    DATA("{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" t    \
         "\"},\"finish_reason\":null}],\"usage\":null}")
#define FINISH DATA("{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}")

#endif
