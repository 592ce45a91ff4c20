/* LR014: where marks are set, where none is, and that a provider that reads them then finds each request's predecessor.
 * The provider is the simulated one (policies/cachesim.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "canon_harness.h"
#include "policies/cachesim.h"

#define MARK "\"cache_control\":{\"type\":\"ephemeral\"}"
#define LONG600                                                                                                        \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
#define M "\"model\":\"claude-opus-5\"," /* marks from 512 tokens on */
#define USER(content) "{\"role\":\"user\",\"content\":" content "}"
#define TEXT(t) "{\"type\":\"text\",\"text\":\"" t "\"}"
#define MARKED(t) "{\"type\":\"text\",\"text\":\"" t "\"," MARK "}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"a\"}"

typedef struct placed {
    lar_protocol protocol;
    const char *body, *sent; /* NULL: as it is */
} placed;

static const placed cases[] = {
    /* a bare string becomes one block */
    {LAR_PROTOCOL_MESSAGES, "{" M "\"messages\":[" USER("\"" LONG600 "\"") "]}",
     "{" M "\"messages\":[" USER("[" MARKED(LONG600) "]") "]}"},
    /* all four places; the newest message takes it on its last block */
    {LAR_PROTOCOL_MESSAGES,
     "{" M "\"tools\":[{\"name\":\"a\"},{\"name\":\"" LONG600 "\"}],\"system\":\"s\",\"messages\":[" USER(
         "\"x\"") "," ANSWER "," USER("\"y\"") "," ANSWER "," USER("[" TEXT("z") " , " TEXT("w") " ]") "]}",
     "{" M "\"tools\":[{\"name\":\"a\"},{\"name\":\"" LONG600 "\"," MARK
     "}],\"system\":[" MARKED("s") "],\"messages\":[" USER("\"x\"") "," ANSWER "," USER(
         "[" MARKED("y") "]") "," ANSWER "," USER("[" TEXT("z") " , " MARKED("w") " ]") "]}"},
    {LAR_PROTOCOL_MESSAGES, "{" M "\"system\":[" TEXT(LONG600) "," TEXT("t") "],\"messages\":[" USER("\"x\"") "]}",
     "{" M "\"system\":[" TEXT(LONG600) "," MARKED("t") "],\"messages\":[" USER("[" MARKED("x") "]") "]}"},
    /* results of tools, and a message that the model began */
    {LAR_PROTOCOL_MESSAGES,
     "{" M
     "\"messages\":[" USER("\"" LONG600 "\"") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t\"}]}," USER(
         "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"r\"}]") "," ANSWER "]}",
     "{" M
     "\"messages\":[" USER("[" MARKED(LONG600) "]") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t\"}]}," USER(
         "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"r\"," MARK "}]") "," ANSWER "]}"},
    /* no mark on empty texts and on what is not known */
    {LAR_PROTOCOL_MESSAGES, "{" M "\"system\":\"" LONG600 "\",\"messages\":[" USER("\"\"") "]}",
     "{" M "\"system\":[" MARKED(LONG600) "],\"messages\":[" USER("\"\"") "]}"},
    {LAR_PROTOCOL_MESSAGES,
     "{" M "\"messages\":[" USER("[" TEXT(LONG600) "," TEXT("") ",{\"type\":\"new\"},{},7]") "]}",
     "{" M "\"messages\":[" USER("[" MARKED(LONG600) "," TEXT("") ",{\"type\":\"new\"},{},7]") "]}"},
    {LAR_PROTOCOL_MESSAGES, "{" M "\"system\":[],\"tools\":[],\"messages\":[" USER("[]") "," USER("null") "]}", NULL},
    {LAR_PROTOCOL_MESSAGES, "{" M "\"system\":\"" LONG600 "\",\"messages\":[]}",
     "{" M "\"system\":[" MARKED(LONG600) "],\"messages\":[]}"},
    {LAR_PROTOCOL_MESSAGES, "{" M "\"system\":\"" LONG600 "\",\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}",
     "{" M "\"system\":[" MARKED(LONG600) "],\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}"},
    /* too short to be cached */
    {LAR_PROTOCOL_MESSAGES, "{" M "\"system\":\"s\",\"messages\":[" USER("\"x\"") "]}", NULL},
    {LAR_PROTOCOL_MESSAGES,
     "{\"model\":\"claude-opus-4-5\",\"system\":\"" LONG600 "\",\"messages\":[" USER("\"x\"") "]}", NULL},
    /* the client has marks of its own */
    {LAR_PROTOCOL_MESSAGES,
     "{" M "\"system\":[{\"type\":\"text\",\"text\":\"s\"," MARK "}],\"messages\":[" USER("\"" LONG600 "\"") "]}",
     NULL},
    {LAR_PROTOCOL_MESSAGES, "{" M MARK ",\"messages\":[" USER("\"" LONG600 "\"") "]}", NULL},
    {LAR_PROTOCOL_MESSAGES, "{" M "\"tools\":[{\"name\":\"a\"," MARK "}],\"messages\":[" USER("\"" LONG600 "\"") "]}",
     NULL},
    {LAR_PROTOCOL_MESSAGES,
     "{" M "\"messages\":[" USER("[" MARKED("q") "]") "," ANSWER "," USER("\"" LONG600 "\"") "]}", NULL},
    {LAR_PROTOCOL_MESSAGES,
     "{" M "\"messages\":[" USER("[{\"type\":\"tool_result\",\"content\":[" MARKED("q") "]}]") "," USER("\"" LONG600
                                                                                                        "\"") "]}",
     NULL},
    /* a call's own data is none of it */
    {LAR_PROTOCOL_MESSAGES,
     "{" M "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"input\":{" MARK
     "}}]}," USER("\"" LONG600 "\"") "]}",
     "{" M "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"input\":{" MARK
     "}}]}," USER("[" MARKED(LONG600) "]") "]}"},
    /* other APIs have no marks */
    {LAR_PROTOCOL_CHAT, "{" M "\"messages\":[" USER("\"" LONG600 "\"") "]}", NULL},
    {LAR_PROTOCOL_RESPONSES, "{" M "\"input\":[" USER("\"" LONG600 "\"") "]}", NULL},
};

static void turn_on(harness *h) {
    harness_init(h);
    h->options.rules_off &= ~(1ull << LAR_RULE_LR014);
}

static void test_places(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const placed *p = &cases[i];
        for (int mode = 0; mode < 3; mode++) { /* off by default, report, on */
            harness h;
            size_t len;
            if (mode) turn_on(&h);
            else harness_init(&h);
            if (mode == 1) h.options.mode = LAR_CANON_REPORT;
            char *sent = harness_send(&h, p->protocol, lar_slice_cstr(p->body), &len);
            const char *wanted = mode == 2 && p->sent ? p->sent : p->body;
            if (strcmp(sent, wanted) != 0) print_error("case %zu, mode %d\n", i, mode);
            assert_string_equal(sent, wanted);
            assert_int_equal(h.out.rules_seen >> LAR_RULE_LR014 & 1, mode > 0 && p->sent);
            assert_int_equal(h.out.rules_fired >> LAR_RULE_LR014 & 1, mode == 2 && p->sent);
            if (mode == 2) { /* marks are the client's now: twice is once */
                char *again = harness_send(&h, p->protocol, lar_slice_of(sent, len), &len);
                assert_string_equal(again, sent);
                free(again);
            }
            free(sent);
            harness_release(&h);
        }
    }
}

/* -- what a provider makes of it ------------------------------------------------------------------------------ */

typedef struct caller {
    harness h;
    lar_cachesim *sim;
    lar_prompt prompt;
    lar_json j;
    lar_arena arena;
    uint32_t tokens; /* of the last prompt */
} caller;

static void caller_init(caller *c, uint64_t rules_on) {
    const lar_cachesim_options o = {.provider = lar_provider_find(LAR_SLICE("anthropic"))};
    harness_init(&c->h);
    c->h.options.rules_off &= ~rules_on;
    c->sim = lar_cachesim_new(&o);
    assert_non_null(c->sim);
    lar_prompt_init(&c->prompt);
    lar_json_init(&c->j);
    lar_arena_init(&c->arena, 64u << 20);
}
static void caller_release(caller *c) {
    harness_release(&c->h);
    lar_cachesim_free(c->sim);
    lar_prompt_release(&c->prompt);
    lar_json_release(&c->j);
    lar_arena_release(&c->arena);
}

static lar_cachesim_usage ask(caller *c, const char *body) {
    size_t len;
    lar_diag d;
    lar_request_view v;
    lar_rendering r;
    lar_cachesim_usage u;
    char *sent = harness_send(&c->h, LAR_PROTOCOL_MESSAGES, lar_slice_cstr(body), &len);
    assert_non_null(sent);
    assert_int_equal(c->h.error, LAR_OK);
    lar_arena_reset(&c->arena, 1u << 20);
    assert_int_equal(lar_json_parse(&c->j, lar_slice_of(sent, len), NULL, &d), LAR_OK);
    assert_int_equal(lar_request_view_read(&v, &c->j, LAR_PROTOCOL_MESSAGES, &c->arena, &d), LAR_OK);
    assert_int_equal(lar_render_request(&r, &v, LAR_RENDER_TOOLS_FIRST, &c->arena), LAR_OK);
    assert_int_equal(lar_prompt_set(&c->prompt, 0, &r), LAR_OK);
    assert_int_equal(lar_cachesim_request(c->sim, &c->prompt, 512, 0, &u), LAR_OK);
    c->tokens = c->prompt.tokens;
    free(sent);
    return u;
}

static uint32_t draw(uint32_t *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

enum { TAIL = 5 }; /* <|assistant|> behind the last block */

/* A conversation as an agent holds it: rounds of many calls, now and then a new turn; each request says all again. */
typedef struct talk {
    lar_buf messages;
    uint32_t seed, round;
} talk;

static void add(lar_buf *b, const char *text) { assert_int_equal(lar_buf_add_slice(b, lar_slice_cstr(text)), LAR_OK); }

static void next_round(talk *t) {
    uint32_t calls = draw(&t->seed, 45); /* more than a provider looks back */
    if (t->round++ == 0) {
        add(&t->messages, USER("\"Begin. " LONG600 "\""));
        return;
    }
    add(&t->messages, ",{\"role\":\"assistant\",\"content\":[" TEXT("thinking aloud"));
    for (uint32_t i = 0; i < calls; i++)
        assert_int_equal(lar_buf_printf(&t->messages,
                                        ",{\"type\":\"tool_use\",\"id\":\"c%u_%u\",\"name\":\"f\",\"input\":{}}",
                                        t->round, i),
                         LAR_OK);
    add(&t->messages, "]},{\"role\":\"user\",\"content\":");
    if (calls == 0) add(&t->messages, "\"go on\"}");
    for (uint32_t i = 0; i < calls; i++)
        assert_int_equal(
            lar_buf_printf(&t->messages,
                           "%s{\"type\":\"tool_result\",\"tool_use_id\":\"c%u_%u\",\"content\":\"result %u\"}",
                           i ? "," : "[", t->round, i, draw(&t->seed, 1000)),
            LAR_OK);
    if (calls) add(&t->messages, "]}");
}

static char *body_of(const talk *t, const char *system) {
    lar_buf b;
    lar_buf_init(&b, 8u << 20);
    add(&b,
        "{" M "\"tools\":[{\"name\":\"f\",\"description\":\"" LONG600 LONG600 "\",\"input_schema\":{}}],\"system\":\"");
    add(&b, system);
    add(&b, "\",\"messages\":[");
    assert_int_equal(lar_buf_add_slice(&b, lar_buf_slice(&t->messages)), LAR_OK);
    assert_int_equal(lar_buf_add(&b, "]}", 3), LAR_OK);
    return b.ptr;
}

static void test_conversations(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 30; seed++) {
        caller with, without;
        caller_init(&with, 1ull << LAR_RULE_LR014);
        caller_init(&without, 0);
        talk t = {.seed = seed * 7919};
        lar_buf_init(&t.messages, 8u << 20);
        uint32_t before = 0;
        for (int round = 0; round < 12; round++) {
            next_round(&t);
            char *body = body_of(&t, "Be exact.");
            lar_cachesim_usage u = ask(&with, body), bare = ask(&without, body);
            if (u.hit < before) print_error("seed %u round %d: %u of %u\n", seed, round, u.hit, before);
            assert_true(u.hit >= before); /* all of the request before */
            assert_int_equal(bare.hit, 0);
            before = with.tokens - TAIL;
            free(body);
        }
        lar_buf_release(&t.messages);
        caller_release(&with);
        caller_release(&without);
    }
}

/* A clock in the system text moves to the newest user message; marks and block of facts stand beside each other. */
static void test_with_clock(void **state) {
    (void)state;
    caller c;
    caller_init(&c, 1ull << LAR_RULE_LR014);
    talk t = {.seed = 5};
    lar_buf_init(&t.messages, 8u << 20);
    uint32_t before = 0;
    for (int round = 0; round < 12; round++) {
        char system[200];
        next_round(&t);
        (void)snprintf(system, sizeof system, "Be exact. Current time: 2023-11-14T22:%02d:20Z. Take care.", 13 + round);
        c.h.now_ms = 1700000000000 + round * 60000ll;
        char *body = body_of(&t, system);
        lar_cachesim_usage u = ask(&c, body);
        if (round >= 3) assert_true(u.hit >= before);
        before = c.tokens - 60; /* a block of facts may be said anew */
        free(body);
    }
    lar_buf_release(&t.messages);
    caller_release(&c);
}

/* The same with a clock in a tool's description and in the opening message, which the client prints anew each time. */
static void test_with_opening(void **state) {
    (void)state;
    caller c;
    caller_init(&c, 1ull << LAR_RULE_LR014);
    uint32_t before = 0;
    lar_buf rounds;
    lar_buf_init(&rounds, 1u << 20);
    for (int round = 0; round < 12; round++) {
        char body[1 << 14];
        c.h.now_ms = 1700000000000 + round * 60000ll;
        int n =
            snprintf(body, sizeof body,
                     "{" M "\"tools\":[{\"name\":\"f\",\"description\":\"Current time: 2023-11-14T22:%02d:20Z. " LONG600
                     "\",\"input_schema\":{}}],\"system\":\"Be exact.\",\"messages\":[" USER(
                         "\"Current time: 2023-11-14T22:%02d:20Z. Begin. " LONG600 "\"") "%.*s]}",
                     13 + round, 13 + round, LAR_FMT(lar_buf_slice(&rounds)));
        assert_in_range(n, 1, sizeof body - 1);
        lar_cachesim_usage u = ask(&c, body);
        if (round >= 3 && u.hit < before) print_error("round %d: %u of %u\n", round, u.hit, before);
        if (round >= 3) assert_true(u.hit >= before);
        before = c.tokens - 60;
        add(&rounds, "," ANSWER "," USER("\"And then?\""));
    }
    lar_buf_release(&rounds);
    caller_release(&c);
}

/* Tools in another order each time: the mark and the rule that puts them back do not get in each other's way. */
static void test_with_tool_order(void **state) {
    (void)state;
    caller c;
    caller_init(&c, 1ull << LAR_RULE_LR014);
    static const char *const orders[] = {"abc", "cab", "bca", "acb", "abc"};
    uint32_t before = 0;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        char body[8192];
        size_t n = (size_t)snprintf(body, sizeof body, "{" M "\"tools\":[");
        for (int k = 0; k < 3; k++)
            n += (size_t)snprintf(body + n, sizeof body - n, "%s{\"name\":\"%c\",\"description\":\"" LONG600 "\"}",
                                  k ? "," : "", orders[i][k]);
        (void)snprintf(body + n, sizeof body - n, "],\"system\":\"s\",\"messages\":[" USER("\"go\"") "]}");
        lar_cachesim_usage u = ask(&c, body);
        assert_true(c.h.out.rules_fired >> LAR_RULE_LR014 & 1);
        assert_int_equal(c.h.out.rules_fired >> LAR_RULE_LR003 & 1, strcmp(orders[i], "abc") != 0);
        assert_true(u.hit >= before);
        before = c.tokens - TAIL;
    }
    caller_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_conversations),
                                       cmocka_unit_test(test_with_clock), cmocka_unit_test(test_with_opening),
                                       cmocka_unit_test(test_with_tool_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
