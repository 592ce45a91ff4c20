/* Fingerprints of requests: where two part, what the lengths say, what a key changes, which places are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "canon_harness.h"
#include "policies/predict.h"

enum { BODY_BYTES = 1 << 20 };

static const lar_hash_key key = {"one installation's secret bytes"}, other_key = {"another installation's secret"};

typedef struct chain {
    lar_cut cuts[LAR_CUTS_MAX];
    uint32_t count;
    uint64_t prompt_bytes, known_bytes;
    size_t sent_bytes;
} chain;

static chain send(harness *h, lar_protocol p, const char *body) {
    chain c = {.count = 0};
    char *sent = harness_send(h, p, lar_slice_cstr(body), &c.sent_bytes);
    assert_non_null(sent);
    assert_int_equal(h->error, LAR_OK);
    free(sent);
    assert_true(h->out.cut_count <= LAR_CUTS_MAX);
    if (h->out.cut_count) memcpy(c.cuts, h->out.cuts, h->out.cut_count * sizeof *c.cuts);
    c.count = h->out.cut_count;
    c.prompt_bytes = h->out.prompt_bytes;
    c.known_bytes = h->out.known_bytes;
    for (uint32_t i = 1; i < c.count; i++) {
        assert_true(c.cuts[i].at > c.cuts[i - 1].at);
        assert_true(c.cuts[i].bytes >= c.cuts[i - 1].bytes);
    }
    return c;
}

/* A chat of `n` messages, user and assistant in turn behind a system text; message `odd` differs from the plain one. */
static char *chat(uint32_t n, uint32_t odd, const char *extra) {
    char *b = malloc(BODY_BYTES);
    assert_non_null(b);
    int at = snprintf(b, BODY_BYTES, "{\"model\":\"m\",%s\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}",
                      extra);
    for (uint32_t i = 1; i < n; i++)
        at += snprintf(b + at, (size_t)(BODY_BYTES - at), ",{\"role\":\"%s\",\"content\":\"%s %u\"}",
                       i % 2 ? "user" : "assistant", i == odd ? "another" : "message", i);
    (void)snprintf(b + at, (size_t)(BODY_BYTES - at), "]}");
    return b;
}

static chain send_chat(harness *h, uint32_t n, uint32_t odd, const char *extra) {
    char *b = chat(n, odd, extra);
    chain c = send(h, LAR_PROTOCOL_CHAT, b);
    free(b);
    return c;
}

/* The deepest place at which both have the same prefix; -1: none. */
static int common(const chain *a, const chain *b) {
    int best = -1;
    for (uint32_t i = 0; i < a->count; i++) {
        for (uint32_t k = 0; k < b->count; k++) {
            if (a->cuts[i].at == b->cuts[k].at && a->cuts[i].sent == b->cuts[k].sent) best = a->cuts[i].at;
        }
    }
    return best;
}

static void requests_part_where_they_differ(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.key = &key;
    chain base = send_chat(&h, 12, 0, "");
    assert_int_equal(base.count, 12);
    assert_int_equal(base.cuts[0].kind, LAR_CUT_SYSTEM);
    assert_int_equal(base.cuts[1].kind, LAR_CUT_USER);
    assert_int_equal(base.cuts[2].kind, LAR_CUT_ASSISTANT);
    for (uint32_t odd = 1; odd < 12; odd++) {
        chain c = send_chat(&h, 12, odd, "");
        assert_int_equal(common(&base, &c), (int)odd);
    }
    chain longer = send_chat(&h, 14, 0, "");
    assert_int_equal(common(&base, &longer), 12);
    assert_int_equal(longer.known_bytes, base.prompt_bytes);
    chain tools = send_chat(&h, 12, 0, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],");
    assert_int_equal(common(&base, &tools), -1);
    assert_int_equal(tools.cuts[0].kind, LAR_CUT_TOOLS);
    assert_int_equal(tools.cuts[0].at, 0);
    harness_release(&h);
}

static void lengths_are_those_of_what_is_sent(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.key = &key;
    const char *system = "{\"role\":\"system\",\"content\":\"Current time: 2023-11-14T22:13:20Z. You help.\"}";
    const char *user = "{\"role\":\"user\",\"content\":\"Hello\"}";
    char body[512];
    int n = snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":[%s,%s]}", system, user);
    size_t frame = (size_t)n - strlen(system) - strlen(user);
    chain c = send(&h, LAR_PROTOCOL_CHAT, body);
    assert_true(h.out.splices.count > 0); /* a clock of now moves to the user's message */
    assert_int_equal(c.prompt_bytes, c.sent_bytes - frame);
    assert_int_equal(c.cuts[c.count - 1].bytes, c.prompt_bytes);
    assert_int_equal(c.cuts[0].rule, LAR_RULE_LR001 + 1);
    assert_int_equal(c.cuts[1].rule, 0);
    /* a minute later the client's bytes differ from the first on, what is sent only at the end */
    chain first = c;
    h.now_ms += 60000;
    memcpy(strstr(body, "22:13"), "22:14", 5);
    c = send(&h, LAR_PROTOCOL_CHAT, body);
    assert_true(c.cuts[0].sent == first.cuts[0].sent && c.cuts[0].raw != first.cuts[0].raw);
    assert_true(c.cuts[1].sent != first.cuts[1].sent);
    assert_int_equal(c.known_bytes, c.cuts[0].bytes);
    harness_release(&h);
}

static void tools_behind_the_messages_come_first(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.key = &key;
    chain c = send(&h, LAR_PROTOCOL_MESSAGES,
                   "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"system\":\"Be brief.\","
                   "\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]}");
    assert_int_equal(c.count, 3);
    assert_int_equal(c.cuts[0].bytes, strlen("[{\"name\":\"f\",\"input_schema\":{}}]"));
    assert_int_equal(c.cuts[1].kind, LAR_CUT_TOP);
    assert_int_equal(c.cuts[1].bytes - c.cuts[0].bytes, strlen("\"Be brief.\""));
    assert_int_equal(c.cuts[2].kind, LAR_CUT_USER);
    /* a cache mark is no part of what the model reads, and is of what the client wrote */
    chain marked =
        send(&h, LAR_PROTOCOL_MESSAGES,
             "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"system\":\"Be brief.\","
             "\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"cache_control\":{\"type\":\"ephemeral\"}}]}");
    assert_int_equal(common(&c, &marked), 2);
    assert_true(c.cuts[0].raw != marked.cuts[0].raw);
    harness_release(&h);
}

static void long_conversations_have_their_ends(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.key = &key;
    chain a = send_chat(&h, 3000, 0, ""), b = send_chat(&h, 3000, 1500, ""), c = send_chat(&h, 3000, 2990, "");
    assert_int_equal(common(&a, &b), 1024); /* parts somewhere behind the last power of two */
    assert_int_equal(common(&a, &c), 2990);
    assert_int_equal(a.cuts[a.count - 1].at, 3000);
    for (uint32_t n = 1; n <= 16384; n = n * 2 + 1) {
        uint32_t wanted = 1;
        for (uint32_t at = 1; at <= n; at++) wanted += lar_cut_wanted(at, n, n / 3);
        assert_true(wanted <= LAR_CUTS_MAX);
    }
    harness_release(&h);
}

static void a_key_is_what_tells(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    chain none = send_chat(&h, 5, 0, "");
    assert_int_equal(none.count, 0);
    assert_true(none.prompt_bytes > 0);
    h.key = &key;
    chain a = send_chat(&h, 5, 0, "");
    h.key = &other_key;
    chain b = send_chat(&h, 5, 0, "");
    assert_int_equal(common(&a, &b), -1);
    for (uint32_t i = 0; i < a.count; i++) assert_true(a.cuts[i].raw != b.cuts[i].raw);
    h.options.mode = LAR_CANON_OFF;
    assert_int_equal(send_chat(&h, 5, 0, "").count, 0);
    harness_release(&h);
}

static void lengths_of_spans(void **state) {
    (void)state;
    lar_arena arena;
    lar_splices s;
    uint32_t from = 0;
    lar_arena_init(&arena, 1 << 16);
    lar_splices_init(&s, &arena);
    assert_int_equal(lar_splices_add(&s, 10, 14, LAR_SLICE("x")), LAR_OK);
    assert_int_equal(lar_splices_add(&s, 20, 20, LAR_SLICE("inserted")), LAR_OK);
    assert_int_equal(lar_splices_add(&s, 30, 31, LAR_SLICE("")), LAR_OK);
    assert_int_equal(lar_splices_finish(&s, 40), LAR_OK);
    assert_int_equal(lar_cut_bytes(&s, 25, 40, &from), 14);
    assert_int_equal(lar_cut_bytes(&s, 0, 10, &from), 10); /* backwards: it begins anew */
    assert_int_equal(lar_cut_bytes(&s, 10, 20, &from), 7);
    assert_int_equal(lar_cut_bytes(&s, 20, 25, &from), 13);
    assert_int_equal(lar_cut_bytes(&s, 0, 40, &from), 44);
    lar_arena_release(&arena);
}

static void predictions(void **state) {
    (void)state;
    const struct {
        lar_prediction_in in;
        int64_t want;
    } rows[] = {
        {{1000, 4000, 1000, 1, 0}, 250},
        {{1000, 4000, 1000, 64, 0}, 192},
        {{1000, 4000, 1000, 64, 256}, 0},
        {{4000, 4000, 1000, 0, 0}, 1000},
        {{9000, 4000, 1000, 0, 0}, 1000},
        {{0, 4000, 1000, 64, 0}, 0},
        {{1000, 4000, -1, 1, 0}, INT64_MIN},
        {{0, 0, 1000, 1, 0}, INT64_MIN},
        {{1000, 4000, INT64_MIN, 1, 0}, INT64_MIN},
        {{UINT64_MAX, UINT64_MAX, INT64_MAX, 0, 0}, INT64_MAX},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) assert_true(lar_predict_hit(&rows[i].in) == rows[i].want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_part_where_they_differ),
        cmocka_unit_test(lengths_are_those_of_what_is_sent),
        cmocka_unit_test(tools_behind_the_messages_come_first),
        cmocka_unit_test(long_conversations_have_their_ends),
        cmocka_unit_test(a_key_is_what_tells),
        cmocka_unit_test(lengths_of_spans),
        cmocka_unit_test(predictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
