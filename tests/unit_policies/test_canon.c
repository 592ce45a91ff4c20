/* The rules together, as a caller sees them: bodies in, bodies out, findings, what is remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "canon_harness.h"

#define POINTER "(see the latest <runtime-context>)"
#define OPEN                                                                                                           \
    "\\n\\n<runtime-context note=\\\"Added by the gateway. Facts valid for this turn only; not part of the user's request.\\\">\\n"
#define CLOSE "\\n</runtime-context>"

static void expect_as(harness *h, lar_protocol p, const char *body, const char *want) {
    size_t len;
    char *sent = harness_send(h, p, lar_slice_cstr(body), &len);
    assert_int_equal(h->error, LAR_OK);
    assert_string_equal(sent, want);
    free(sent);
}
static void expect(harness *h, const char *body, const char *want) { expect_as(h, LAR_PROTOCOL_CHAT, body, want); }
static void same(harness *h, const char *body) { expect(h, body, body); }
static bool fired(const harness *h, lar_rule r) { return h->out.rules_fired >> r & 1; }
static bool seen(const harness *h, lar_rule r) { return h->out.rules_seen >> r & 1; }

#define CHAT(system, rest) "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"" system "\"}," rest "]}"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define AT(t) "Current time: 2031-04-09T07:" t "Z\\n\\nYou are careful."
#define MOVED "Current time: " POINTER "\\n\\nYou are careful."
#define FACT(t) OPEN "Current time: 2031-04-09T07:" t "Z" CLOSE

static void test_clock_moves_and_is_recalled(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(AT("15:42"), USER("a")));
    assert_true(seen(&h, LAR_RULE_LR001));
    assert_false(fired(&h, LAR_RULE_LR001));
    expect(&h, CHAT(AT("16:10"), USER("a") "," ASSISTANT("b") "," USER("c")),
           CHAT(MOVED, USER("a") "," ASSISTANT("b") "," USER("c" FACT("16:10"))));
    assert_true(fired(&h, LAR_RULE_LR001));
    /* a tool round: the same bytes; the next turn: the old block stays, a new one comes */
    expect(&h,
           CHAT(AT("16:20"),
                USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("d") ",{\"role\":\"tool\",\"content\":\"t\"}"),
           CHAT(MOVED, USER("a") "," ASSISTANT("b") "," USER("c" FACT("16:10")) "," ASSISTANT(
                           "d") ",{\"role\":\"tool\",\"content\":\"t\"}"));
    expect(&h, CHAT(AT("17:00"), USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("d") "," USER("e")),
           CHAT(MOVED, USER("a") "," ASSISTANT("b") "," USER("c" FACT("16:10")) "," ASSISTANT("d") "," USER(
                           "e" FACT("17:00"))));
    /* regenerated: the facts of now */
    expect(&h, CHAT(AT("17:30"), USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("d") "," USER("e")),
           CHAT(MOVED, USER("a") "," ASSISTANT("b") "," USER("c" FACT("16:10")) "," ASSISTANT("d") "," USER(
                           "e" FACT("17:30"))));
    /* a clock that stands still: said once */
    expect(&h,
           CHAT(AT("17:30"), USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("d") "," USER("e") "," ASSISTANT(
                                 "f") "," USER("g")),
           CHAT(MOVED, USER("a") "," ASSISTANT("b") "," USER("c" FACT("16:10")) "," ASSISTANT("d") "," USER(
                           "e" FACT("17:30")) "," ASSISTANT("f") "," USER("g")));
    /* another prompt with that label: at first sight */
    expect(&h, CHAT("You are B. Current time: 2031-04-09T08:00:00Z", USER("x")),
           CHAT("You are B. Current time: " POINTER, USER("x" OPEN "Current time: 2031-04-09T08:00:00Z" CLOSE)));
    harness_release(&h);
}

/* Two conversations that begin alike keep their own blocks once they differ. */
static void test_conversations_that_begin_alike(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(AT("00:00"), USER("warm up")));
    expect(&h, CHAT(AT("01:00"), USER("hi")), CHAT(MOVED, USER("hi" FACT("01:00"))));
    expect(&h, CHAT(AT("01:10"), USER("hi") "," ASSISTANT("one") "," USER("x")),
           CHAT(MOVED, USER("hi" FACT("01:00")) "," ASSISTANT("one") "," USER("x" FACT("01:10"))));
    expect(&h, CHAT(AT("02:00"), USER("hi")), CHAT(MOVED, USER("hi" FACT("02:00"))));
    expect(&h, CHAT(AT("02:10"), USER("hi") "," ASSISTANT("two") "," USER("y")),
           CHAT(MOVED, USER("hi" FACT("02:00")) "," ASSISTANT("two") "," USER("y" FACT("02:10"))));
    expect(&h, CHAT(AT("03:00"), USER("hi") "," ASSISTANT("one") "," USER("x") "," ASSISTANT("z") "," USER("w")),
           CHAT(MOVED, USER("hi" FACT("01:00")) "," ASSISTANT("one") "," USER("x" FACT("01:10")) "," ASSISTANT(
                           "z") "," USER("w" FACT("03:00"))));
    harness_release(&h);
}

/* The same recorded conversation played again later must not read the time of back then. */
static void test_replay_reads_the_time_of_now(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(AT("00:00"), USER("warm up")));
    for (int run = 1; run <= 3; run++) {
        char body[1024], want[1024];
        snprintf(body, sizeof body, CHAT("Current time: 2031-04-09T0%d:00:00Z\\n\\nYou are careful.", USER("hi")), run);
        snprintf(want, sizeof want, CHAT(MOVED, USER("hi" OPEN "Current time: 2031-04-09T0%d:00:00Z" CLOSE)), run);
        expect(&h, body, want);
        snprintf(body, sizeof body,
                 CHAT("Current time: 2031-04-09T0%d:00:20Z\\n\\nYou are careful.",
                      USER("hi") "," ASSISTANT("call") ",{\"role\":\"tool\",\"content\":\"t\"}"),
                 run);
        snprintf(want, sizeof want,
                 CHAT(MOVED, USER("hi" OPEN "Current time: 2031-04-09T0%d:00:00Z" CLOSE) "," ASSISTANT(
                                 "call") ",{\"role\":\"tool\",\"content\":\"t\"}"),
                 run);
        expect(&h, body, want);
    }
    harness_release(&h);
}

static void test_constants_stay(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    /* a fixed clock over many chats */
    for (int i = 0; i < 40; i++) {
        char body[512];
        snprintf(body, sizeof body, CHAT("The current time is 2024-05-15 15:00:00 EST. Policy v%d.", USER("q%d")), 1,
                 i % 7);
        same(&h, body);
    }
    /* another fixed clock in each of many prompts, constant over its conversation */
    for (int i = 0; i < 60; i++) {
        for (int call = 0; call < 3; call++) {
            char body[1024];
            snprintf(body, sizeof body, CHAT("Task %d. The time is 2024-05-15 1%d:%02d:00 EST.", USER("q") "%s"), i,
                     i % 10, i, call ? "," ASSISTANT("r") "," USER("s") : "");
            same(&h, body);
        }
    }
    /* the same prompt, each conversation with its own fixed clock */
    for (int i = 0; i < 30; i++) {
        for (int call = 0; call < 3; call++) {
            char body[1024];
            snprintf(body, sizeof body,
                     CHAT("One task. The time is 2024-05-15 1%d:%02d:00 EST.", USER("question %d") "%s"), i % 10, i, i,
                     call ? "," ASSISTANT("r") "," USER("s") : "");
            same(&h, body);
        }
    }
    assert_false(fired(&h, LAR_RULE_LR001));
    /* a date alone, even one that changes */
    same(&h, CHAT("Today's date is 2031-04-09.", USER("q")));
    same(&h, CHAT("Today's date is 2031-04-10.", USER("q")));
    assert_false(seen(&h, LAR_RULE_LR005)); /* off by default */
    /* examples, code, look-alikes that vary */
    for (int i = 0; i < 5; i++) {
        char body[1024];
        snprintf(body, sizeof body,
                 CHAT("Use gpt-4o-2024-08-0%d, e.g. 2031-04-09 15:15:4%d.\\n```\\n2031-04-09 15:15:4%d now\\n```",
                      USER("q")),
                 i, i, i);
        same(&h, body);
    }
    harness_release(&h);
}

static void test_clock_that_shows_now(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.now_ms = 1933485342000; /* 2031-04-09T07:15:42Z */
    expect(&h, CHAT("Now: 2031-04-09 15:15:40", USER("a")),
           CHAT("Now: " POINTER, USER("a" OPEN "Now: 2031-04-09 15:15:40" CLOSE)));
    same(&h, CHAT("The current time is 2024-05-15 15:00:00 EST", USER("a")));
    same(&h, CHAT("Deadline 2031-04-09 15:15:40", USER("a")));
    harness_release(&h);
}

static void test_escapes_map(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(
        &h,
        CHAT(
            "\\u4f60\\u597d \\\"x\\\"\\t\\ud83d\\ude00\\n\\u5f53\\u524d\\u65f6\\u95f4\\uff1a2031\\u5e744\\u67089\\u65e5 15\\u65f615\\u5206\\n\\\\end",
            USER("a")));
    expect(
        &h,
        CHAT(
            "\\u4f60\\u597d \\\"x\\\"\\t\\ud83d\\ude00\\n\\u5f53\\u524d\\u65f6\\u95f4\\uff1a2031\\u5e744\\u67089\\u65e5 15\\u65f616\\u5206\\n\\\\end",
            USER("a\\\"")),
        CHAT("\\u4f60\\u597d \\\"x\\\"\\t\\ud83d\\ude00\\n\\u5f53\\u524d\\u65f6\\u95f4\\uff1a" POINTER "\\n\\\\end",
             USER("a\\\"" OPEN "当前时间: 2031\\u5e744\\u67089\\u65e5 15\\u65f616\\u5206" CLOSE)));
    harness_release(&h);
}

static void test_nowhere_to_put_it(void **state) {
    (void)state;
    static const char *const rests[] = {
        ASSISTANT("x"),        "{\"role\":\"user\",\"content\":null}",       "{\"role\":\"user\",\"content\":[]}",
        "{\"role\":\"user\"}", "{\"role\":\"user\",\"content\":[\"bare\"]}", "{\"role\":\"wizard\",\"content\":\"x\"}"};
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        harness h;
        harness_init(&h);
        for (int k = 0; k < 4; k++) {
            char body[512];
            snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"system\",\"content\":\"Current time: 2031-04-09T07:15:4%dZ\"},%s]}", k,
                     rests[i]);
            same(&h, body);
        }
        harness_release(&h);
    }
}

static void test_billing(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    expect(&h, CHAT("x-acme-billing-header: v=2.1; cch=36ee5;\\nYou are.", USER("a")), CHAT("You are.", USER("a")));
    assert_true(fired(&h, LAR_RULE_LR002));
    expect(&h, CHAT("x-acme-billing-header: v=2.1; cch=36ee5;\\r\\nYou are.", USER("a")), CHAT("You are.", USER("a")));
    expect(&h, CHAT("x-acme-billing-header: cch=1;", USER("a")), CHAT("x-acme-billing-header: -", USER("a")));
    same(&h, CHAT(" x-acme-billing-header: cch=1;\\nYou", USER("a")));
    same(&h, CHAT("You\\nx-acme-billing-header: cch=1;", USER("a")));
    same(&h, CHAT("x-billing-header: cch=1;\\nYou", USER("a")));
    same(&h, CHAT("You are.", USER("x-acme-billing-header: cch=1;\\na")));
    expect_as(
        &h, LAR_PROTOCOL_MESSAGES,
        "{\"system\":[ {\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=2.1.177.01c; cch=36ee5;\"} , {\"type\":\"text\",\"text\":\"You\"}],\"messages\":[" USER(
            "a") "]}",
        "{\"system\":[ {\"type\":\"text\",\"text\":\"You\"}],\"messages\":[" USER("a") "]}");
    expect_as(
        &h, LAR_PROTOCOL_MESSAGES,
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=36ee5;\",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"You\"}],\"messages\":[" USER(
            "a") "]}",
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: -\",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"You\"}],\"messages\":[" USER(
            "a") "]}");
    expect_as(
        &h, LAR_PROTOCOL_MESSAGES,
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=36ee5;\"}],\"messages\":[" USER(
            "a") "]}",
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: -\"}],\"messages\":[" USER("a") "]}");
    h.options.rules_off = 1ull << LAR_RULE_LR002;
    same(&h, CHAT("x-acme-billing-header: v=2.1; cch=36ee5;\\nYou are.", USER("a")));
    harness_release(&h);
}

#define TOOLS(list) "{\"model\":\"m\",\"messages\":[" USER("a") "],\"tools\":[" list "]}"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"n\":1.0}}}"

static void test_tools(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, TOOLS(TOOL("b") ", " TOOL("a") " ,\t" TOOL("c")));
    expect(&h, TOOLS(TOOL("c") ", " TOOL("a") " ,\t" TOOL("b")), TOOLS(TOOL("b") ", " TOOL("a") " ,\t" TOOL("c")));
    assert_true(fired(&h, LAR_RULE_LR003));
    /* members in another order, too: LR010, or without it the client's own bytes */
    h.options.rules_off = 1ull << LAR_RULE_LR010;
    expect(&h,
           TOOLS("{\"function\":{\"parameters\":{\"n\":1.0},\"name\":\"c\"},\"type\":\"function\"}," TOOL("b") "," TOOL(
               "a")),
           TOOLS(TOOL("b") "," TOOL(
               "a") ",{\"function\":{\"parameters\":{\"n\":1.0},\"name\":\"c\"},\"type\":\"function\"}"));
    h.options.rules_off = 0;
    expect(&h,
           TOOLS("{\"function\":{\"parameters\":{\"n\":1.0},\"name\":\"c\"},\"type\":\"function\"}," TOOL("b") "," TOOL(
               "a")),
           TOOLS(TOOL("b") "," TOOL("a") "," TOOL("c")));
    /* 1.0 is not 1: another set; it has nothing of the last one whole, so it goes as it is */
    same(&h, TOOLS("{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"n\":1}}}," TOOL("a")));
    /* a set that grows keeps what is known in front */
    expect(&h,
           TOOLS(TOOL("z") "," TOOL(
               "a") ",{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"n\":1}}}"),
           TOOLS("{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"n\":1}}}," TOOL("a") "," TOOL(
               "z")));
    /* twins, strange elements */
    same(&h, TOOLS(TOOL("a") "," TOOL("a") ",null,5,\"x\""));
    expect(&h, TOOLS("5," TOOL("a") ",\"x\"," TOOL("a") ",null"), TOOLS(TOOL("a") "," TOOL("a") ",null,5,\"x\""));
    harness_release(&h);
}

#define NAMED(name) "{\"name\":\"" name "\",\"v\":1}"
#define MARK(kind) "\"cache_control\":{\"type\":\"" kind "\"}"
#define MARKED(name, kind) "{\"name\":\"" name "\",\"v\":1," MARK(kind) "}"

/* cache_control says "cache up to here": it stays at its place in the list, whichever tool comes there. */
static void test_tools_with_markers(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, TOOLS(NAMED("a") "," NAMED("b") ", " MARKED("c", "x")));
    expect(&h, TOOLS(NAMED("c") "," NAMED("a") ", " MARKED("b", "x")),
           TOOLS(NAMED("a") "," NAMED("b") ", " MARKED("c", "x")));
    assert_true(fired(&h, LAR_RULE_LR003));
    assert_int_equal(h.out.segments_known, 1); /* the same bytes for the model */
    same(&h, TOOLS(NAMED("a") "," NAMED("b") ", " MARKED("c", "y")));
    assert_int_equal(h.out.segments_known, 1); /* so are those with another marker */
    same(&h, TOOLS(NAMED("a") "," MARKED("b", "x") ", " NAMED("c")));
    assert_int_equal(h.out.segments_known, 1);
    /* several, each of its own kind; a marker in front, in the middle, alone in its tool; blanks around it */
    expect(&h, TOOLS(MARKED("b", "1h") "," NAMED("c") "," MARKED("a", "5m")),
           TOOLS(MARKED("a", "1h") "," NAMED("b") "," MARKED("c", "5m")));
    expect(&h,
           TOOLS("{" MARK("x") " , \"name\":\"c\",\"v\":1}," NAMED("b") ",{\"name\":\"a\" , " MARK("y") " , \"v\":1}"),
           TOOLS("{\"name\":\"a\" , \"v\":1," MARK("x") "}," NAMED("b") ",{\"name\":\"c\",\"v\":1," MARK("y") "}"));
    expect(&h, TOOLS("{\"v\":1,\"name\":\"b\"\n," MARK("x") "\n}," NAMED("a") "," NAMED("c")),
           TOOLS("{\"name\":\"a\",\"v\":1," MARK("x") "},{\"name\":\"b\",\"v\":1\n}," NAMED("c")));
    /* the set grows: what was last stays last */
    expect(&h, TOOLS(NAMED("d") "," NAMED("c") "," NAMED("a") "," MARKED("b", "x")),
           TOOLS(NAMED("a") "," NAMED("b") "," NAMED("c") "," MARKED("d", "x")));
    harness_release(&h);

    harness_init(&h);
    same(&h, TOOLS("{" MARK("x") "},{ },{\"a\":1}"));
    expect(&h, TOOLS("{\"a\":1},{" MARK("x") "},{}"), TOOLS("{},{" MARK("x") "},{\"a\":1}"));
    expect(&h, TOOLS("{\"a\":1,\"cache\\u005fcontrol\":null},{},{ }"),
           TOOLS("{\"cache\\u005fcontrol\":null},{ },{\"a\":1}"));
    harness_release(&h);
}

/* Where a marker could not be kept in its place, no tool changes its own. */
static void test_tools_with_odd_markers(void **state) {
    (void)state;
    static const char *const odd[] = {"{\"name\":\"x\"," MARK("x") "," MARK("x") "}",
                                      "{\"name\":\"x\",\"f\":{" MARK("x") "}}", "[" MARKED("x", "x") "]"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        harness h;
        harness_init(&h);
        char body[512];
        snprintf(body, sizeof body, TOOLS(NAMED("a") ",%s"), odd[i]);
        same(&h, body);
        snprintf(body, sizeof body, TOOLS("%s," NAMED("a")), odd[i]);
        same(&h, body);
        assert_true(seen(&h, LAR_RULE_LR003));
        assert_false(fired(&h, LAR_RULE_LR003));
        harness_release(&h);
    }
    harness h;
    harness_init(&h);
    same(&h, TOOLS(NAMED("a") ",5," MARKED("b", "x")));
    same(&h, TOOLS("5," NAMED("a") "," MARKED("b", "x")));
    expect(&h, TOOLS("5," NAMED("b") "," NAMED("a")), TOOLS(NAMED("a") ",5," NAMED("b")));
    harness_release(&h);
}

static void test_form(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT("One\\nTwo\\n", USER("a")));
    same(&h, CHAT("One\\nTwo\\n", USER("a")));
    expect(&h, CHAT("\xEF\xBB\xBFOne\\r\\nTwo \\n\\n", USER("a")), CHAT("One\\nTwo\\n", USER("a")));
    assert_true(fired(&h, LAR_RULE_LR004));
    expect(&h, CHAT("\\ufeffOne\\u000aTwo", USER("a")), CHAT("One\\u000aTwo\\n", USER("a")));
    expect(&h, CHAT("One\\rTwo\\n", USER("a\\n") "," ASSISTANT("b\\n ") "," USER("c")),
           CHAT("One\\nTwo\\n", USER("a") "," ASSISTANT("b\\n ") "," USER("c")));
    same(&h, CHAT("One \\nTwo\\n", USER("a"))); /* blanks inside are meaning */
    same(&h, CHAT("A\\r\\nB\\nC\\r\\n\\t", USER("a")));
    expect(&h, CHAT("A\\nB\\nC", USER("a")), CHAT("A\\r\\nB\\nC\\r\\n\\t", USER("a")));
    /* a string and an array with that text are one text */
    expect(
        &h,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"One\\r\\nTwo\"}]}," USER(
            "a") "]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"One\\nTwo\\n\"}]}," USER(
            "a") "]}");
    harness_release(&h);
}

static void test_many_line_ends(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    char *lf = calloc(1, 200000), *crlf = calloc(1, 200000);
    size_t a = 0, b = 0;
    a += (size_t)snprintf(lf + a, 1000, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
    b += (size_t)snprintf(crlf + b, 1000, "{\"messages\":[{\"role\":\"system\",\"content\":\"");
    for (int i = 0; i < 3000; i++) {
        a += (size_t)snprintf(lf + a, 50, "line \\\"%d\\\"\\n", i);
        b += (size_t)snprintf(crlf + b, 50, "line \\\"%d\\\"\\r\\n", i);
    }
    a += (size_t)snprintf(lf + a, 1000, "end\"}," USER("a") "]}");
    b += (size_t)snprintf(crlf + b, 1000, "end\"}," USER("a") "]}");
    same(&h, lf);
    expect(&h, crlf, lf);
    assert_true(h.out.splices.count < 8);
    free(lf);
    free(crlf);
    harness_release(&h);
}

static void test_other_protocols(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
#define MSG(t, content)                                                                                                \
    "{\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"},{\"type\":\"text\",\"text\":\"Current time: 2031-04-09T07:" t \
    "Z\"}],\"messages\":[{\"role\":\"user\",\"content\":" content "}]}"
    const lar_protocol p = LAR_PROTOCOL_MESSAGES;
    expect_as(&h, p, MSG("15:42", "[{\"type\":\"text\",\"text\":\"a\"}]"),
              MSG("15:42", "[{\"type\":\"text\",\"text\":\"a\"}]"));
    expect_as(
        &h, p, MSG("15:50", "[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}} ]"),
        "{\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"},{\"type\":\"text\",\"text\":\"Current time: " POINTER
        "\"}],\"messages\":[{\"role\":\"user\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"" FACT(
            "15:50") "\"} ]}]}");
    /* the marker has moved on, the message has become a string: still the same message */
#define TWO(first, t)                                                                                                  \
    "{\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"},{\"type\":\"text\",\"text\":\"Current time: " t           \
    "\"}],\"messages\":[{\"role\":\"user\",\"content\":\"" first                                                       \
    "\"}," ASSISTANT("b") ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"content\":\"r\"}]}]}"
    expect_as(&h, p, TWO("a", "2031-04-09T07:16:00Z"), TWO("a" FACT("15:50"), POINTER));
    harness_release(&h);

    harness_init(&h);
    const lar_protocol r = LAR_PROTOCOL_RESPONSES;
    expect_as(&h, r, "{\"instructions\":\"Current time: 2031-04-09T07:15:42Z\",\"input\":\"a\"}",
              "{\"instructions\":\"Current time: 2031-04-09T07:15:42Z\",\"input\":\"a\"}");
    expect_as(&h, r, "{\"instructions\":\"Current time: 2031-04-09T07:15:50Z\",\"input\":\"a\"}",
              "{\"instructions\":\"Current time: " POINTER "\",\"input\":\"a" FACT("15:50") "\"}");
    expect_as(
        &h, r,
        "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]}],\"instructions\":\"Current time: 2031-04-09T07:15:55Z\"}",
        "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"" FACT(
            "15:55") "\"}]}],\"instructions\":\"Current time: " POINTER "\"}");
    for (int i = 0; i < 3; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\":\"Current time: 2031-04-09T07:15:4%dZ\"}", i);
        expect_as(&h, LAR_PROTOCOL_COMPLETIONS, body, body);
        snprintf(body, sizeof body, "{\"input\":\"Current time: 2031-04-09T07:15:4%dZ\"}", i);
        expect_as(&h, LAR_PROTOCOL_EMBEDDINGS, body, body);
    }
    harness_release(&h);
}

#define SALTED(field, value, system, rest)                                                                             \
    "{\"model\":\"m\",\"" field "\":\"" value "\",\"messages\":[{\"role\":\"system\",\"content\":\"" system            \
    "\"}," rest "]}"

static void test_scopes_are_apart(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(AT("15:42"), USER("a")));
    h.scope = lar_hash_of(LAR_SLICE("another tenant"));
    same(&h, CHAT(AT("15:50"), USER("a")));
    h.scope = lar_hash_of(LAR_SLICE("tenant"));
    same(&h, SALTED("cache_salt", "s", AT("15:51"), USER("a")));
    same(&h, "{\"model\":\"n\",\"messages\":[{\"role\":\"system\",\"content\":\"" AT("15:52") "\"}," USER("a") "]}");
    expect(&h, CHAT(AT("15:53"), USER("a")), CHAT(MOVED, USER("a" FACT("15:53"))));
    harness_release(&h);
}

/* Sessions and users of one tenant share what was learnt of heads and tools, but no conversation. */
static void test_sessions_share_evidence(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
#define AS(user, system, rest) SALTED("user", user, system, rest)
#define KEYED(key, system, rest) SALTED("prompt_cache_key", key, system, rest)
    same(&h, AS("ann", AT("15:42"), USER("a")));
    expect(&h, AS("bob", AT("15:50"), USER("a")), AS("bob", MOVED, USER("a" FACT("15:50"))));
    expect(&h, KEYED("k1", AT("15:51"), USER("a")), KEYED("k1", MOVED, USER("a" FACT("15:51"))));
    assert_int_equal(h.out.segments_known, 0);
    /* what bob was told is told to nobody else: the same conversation of another one is not known */
    expect(&h, AS("cid", AT("15:52"), USER("a") "," ASSISTANT("b") "," USER("c")),
           AS("cid", MOVED, USER("a") "," ASSISTANT("b") "," USER("c" FACT("15:52"))));
    assert_int_equal(h.out.segments_known, 0);
    expect(&h, AS("bob", AT("15:53"), USER("a") "," ASSISTANT("b") "," USER("c")),
           AS("bob", MOVED, USER("a" FACT("15:50")) "," ASSISTANT("b") "," USER("c" FACT("15:53"))));
    assert_int_equal(h.out.segments_known, 2);
    /* forms of heads, orders of tools */
    same(&h, AS("ann", "One\\nTwo", USER("a")));
    expect(&h, AS("bob", "One\\r\\nTwo", USER("a")), AS("bob", "One\\nTwo", USER("a")));
#define WITH_TOOLS(user, tools)                                                                                        \
    "{\"model\":\"m\",\"user\":\"" user "\",\"tools\":[" tools "],\"messages\":[" USER("a") "]}"
    same(&h, WITH_TOOLS("ann", TOOL("b") "," TOOL("a")));
    expect(&h, WITH_TOOLS("bob", TOOL("a") "," TOOL("b")), WITH_TOOLS("bob", TOOL("b") "," TOOL("a")));
    harness_release(&h);
}

static void test_report_mode(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.options.mode = LAR_CANON_REPORT;
    same(&h, CHAT(AT("15:42"), USER("a")));
    same(&h, CHAT(AT("15:50"), USER("a")));
    assert_true(seen(&h, LAR_RULE_LR001));
    assert_int_equal(h.out.rules_fired, 0);
    assert_int_equal(h.out.findings[0].edited, false);
    assert_int_equal(h.out.splices.count, 0);
    same(&h, CHAT("x-acme-billing-header: cch=36ee5;\\nYou", USER("a")));
    assert_true(seen(&h, LAR_RULE_LR002));
    same(&h, TOOLS(TOOL("b") "," TOOL("a")));
    same(&h, TOOLS(TOOL("a") "," TOOL("b")));
    assert_true(seen(&h, LAR_RULE_LR003));
    same(&h, CHAT("One\\nTwo", USER("a")));
    same(&h, CHAT("One\\r\\nTwo", USER("a")));
    assert_true(seen(&h, LAR_RULE_LR004));
    /* what was learnt counts once edits are on */
    h.options.mode = LAR_CANON_ON;
    expect(&h, CHAT(AT("15:55"), USER("a")), CHAT(MOVED, USER("a" FACT("15:55"))));
    expect(&h, CHAT("One\\r\\nTwo", USER("a")), CHAT("One\\nTwo", USER("a")));
    h.options.mode = LAR_CANON_OFF;
    size_t before = harness_memory_count(h.memory);
    same(&h, CHAT(AT("15:59") " New.", USER("new")));
    assert_int_equal(h.out.rules_seen, 0);
    assert_int_equal(harness_memory_count(h.memory), before);
    harness_release(&h);
}

/* What was edited once goes through a second gateway of the same scope without another edit. */
static void test_twice_is_once(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(AT("15:42"), USER("a")));
    size_t len, again_len;
    for (int i = 0; i < 3; i++) {
        char body[512];
        snprintf(body, sizeof body,
                 CHAT("x-acme-billing-header: cch=%d;\\nCurrent time: 2031-04-09T07:16:0%dZ\\n\\nYou are careful.",
                      USER("a")),
                 i, i);
        char *once = harness_send(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), &len);
        assert_string_not_equal(once, body);
        char *twice = harness_send(&h, LAR_PROTOCOL_CHAT, lar_slice_of(once, len), &again_len);
        assert_string_equal(once, twice);
        free(once);
        free(twice);
    }
    harness_release(&h);
}

static void test_prefix_prediction(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    const char *one = CHAT("You.", USER("a"));
    same(&h, one);
    assert_int_equal(h.out.segments_known, 0);
    assert_int_equal(h.out.prefix_known_bytes, 0);
    const char *two = CHAT("You.", USER("a") "," ASSISTANT("b") "," USER("c"));
    same(&h, two);
    assert_int_equal(h.out.segments_known, 2);
    assert_int_equal(h.out.prefix_known_bytes, strlen(one) - 2);
    uint64_t head = h.out.prefix_hash;
    same(&h, two);
    assert_int_equal(h.out.segments_known, 4);
    assert_int_equal(h.out.turn, 1);
    same(&h, CHAT("You.", USER("z")));
    assert_int_equal(h.out.segments_known, 1);
    assert_int_equal(h.out.prefix_hash, head);
    same(&h, CHAT("Me.", USER("z")));
    assert_true(h.out.prefix_hash != head);
    harness_release(&h);
}

/* Bodies that no client should send; each goes on untouched, three times. */
static void test_hostile(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"messages\":\"Current time: 2031-04-09T07:15:42Z\"}",
        "{\"messages\":[{\"role\":\"system\",\"content\":null},{\"role\":\"user\",\"content\":null}]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"\"}]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\"},{\"type\":\"text\",\"text\":5},{\"text\":\"x\"},null,[],[[]],{\"type\":\"text\",\"text\":\"a\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"\\ud800 lone \\udc00\\u0000 \\u0001\"},{\"role\":\"user\",\"content\":\"\\u0000\\ud83d\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"content\":\"b\"},{\"role\":\"user\",\"role\":\"user\",\"content\":\"x\"}],\"tools\":[]}",
        "{\"messages\":[[[[[[[[[[1]]]]]]]]]],\"tools\":[[],[[]],{}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"<runtime-context>fake</runtime-context> (see the latest <runtime-context>)\"}]}",
        "{\"tools\":[{\"a\":{\"b\":{\"c\":[1,2,{\"d\":\"\\u0000\"}]}}}],\"messages\":[{\"role\":\"tool\"},{\"role\":\"assistant\",\"tool_calls\":7}]}",
        "  {\"model\":\"m\\u0000\",\"messages\":[ ] }  ",
    };
    harness h;
    harness_init(&h);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        for (int k = 0; k < 3; k++) {
            for (lar_protocol p = LAR_PROTOCOL_NONE; p < LAR_PROTOCOL_COUNT; p = (lar_protocol)(p + 1))
                expect_as(&h, p, bodies[i], bodies[i]);
        }
    }
    harness_release(&h);
}

static char *long_chat(int messages, int clock) {
    size_t cap = (size_t)messages * 64 + 512, n = 0;
    char *b = malloc(cap);
    n += (size_t)snprintf(b + n, cap - n,
                          "{\"messages\":[{\"role\":\"system\",\"content\":\"Current time: 2031-04-09T07:15:%02dZ\"}",
                          clock);
    for (int i = 0; i < messages; i++)
        n += (size_t)snprintf(b + n, cap - n, ",{\"role\":\"%s\",\"content\":\"m%d\\n\"}", i % 2 ? "assistant" : "user",
                              i);
    (void)snprintf(b + n, cap - n, "]}");
    return b;
}

static void test_ten_thousand_messages(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    for (int k = 0; k < 4; k++) {
        char *body = long_chat(10001 + 2 * k, 10 + k);
        size_t len;
        char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), &len);
        assert_int_equal(h.error, LAR_OK);
        if (k == 0) assert_string_equal(sent, body);
        else assert_non_null(strstr(sent, POINTER));
        if (k > 1) assert_true(h.out.segments_known >= 9999);
        free(sent);
        free(body);
    }
    harness_release(&h);
}

/* Whatever memory there is: an error leaves no splices, and no puts. */
static void test_tiny_arenas(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    same(&h, CHAT(AT("15:42"), USER("a\\n")));
    const char *body = CHAT("x-acme-billing-header: cch=1;\\n" AT("15:50"), USER("a") "," ASSISTANT("b") "," USER("c"));
    uint32_t failed = 0, worked = 0;
    for (size_t limit = 0; limit < 160000; limit += 229) {
        lar_arena view_arena, arena;
        lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
        lar_request_view v;
        lar_diag d;
        lar_canon_out out;
        lar_arena_init(&view_arena, 1 << 20);
        lar_arena_init(&arena, limit);
        assert_int_equal(lar_json_parse(&h.json, lar_slice_cstr(body), &limits, &d), LAR_OK);
        assert_int_equal(lar_request_view_read(&v, &h.json, LAR_PROTOCOL_CHAT, &view_arena, &d), LAR_OK);
        lar_canon_in in = {.view = &v, .options = &h.options, .memory = harness_memory_ops(h.memory), .scope = h.scope};
        lar_error e = lar_canon_run(&in, &arena, &out);
        if (e) {
            failed++;
            assert_int_equal(out.splices.count, 0);
            assert_int_equal(out.put_count, 0);
            assert_int_equal(lar_splices_length(&out.splices, strlen(body)), strlen(body));
        } else {
            worked++;
            assert_true(out.splices.count > 0);
        }
        lar_arena_release(&arena);
        lar_arena_release(&view_arena);
    }
    assert_true(failed > 10 && worked > 10);
    harness_release(&h);
}

static void test_without_memory(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_request_view v;
    lar_diag d;
    lar_canon_out out;
    h.now_ms = 1933485342000;
    assert_int_equal(lar_json_parse(&h.json, LAR_SLICE(CHAT("x-acme-billing-header: cch=1;\\n" AT("15:42"), USER("a"))),
                                    &limits, &d),
                     LAR_OK);
    assert_int_equal(lar_request_view_read(&v, &h.json, LAR_PROTOCOL_CHAT, &h.arena, &d), LAR_OK);
    lar_canon_in in = {.view = &v, .options = &h.options, .scope = h.scope, .now_ms = h.now_ms};
    assert_int_equal(lar_canon_run(&in, &h.arena, &out), LAR_OK);
    assert_int_equal(out.rules_fired,
                     1ull << LAR_RULE_LR002); /* it needs no memory; a moved clock would have to be recalled */
    assert_int_equal(out.put_count, 0);
    lar_canon_commit(&out, NULL);
    harness_release(&h);
}

/* A store that gives back damaged values: never a crash, and user and assistant text always arrives whole. */
static void test_damaged_memory(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        harness h;
        harness_init(&h);
        for (int k = 0; k < 12; k++) {
            char body[1024];
            snprintf(
                body, sizeof body,
                "{\"messages\":[{\"role\":\"system\",\"content\":\"Current time: 2031-04-09T07:15:%02dZ\\r\\nYou.%s\"}," USER(
                    "first question") "," ASSISTANT("first answer") "," USER("second question")
                        "],\"tools\":[" TOOL("a") "," TOOL("b") "]}",
                10 + k, k % 2 ? "\\n" : "");
            size_t len;
            char *sent = harness_send(&h, LAR_PROTOCOL_CHAT, lar_slice_cstr(body), &len);
            assert_non_null(sent);
            lar_json j;
            lar_diag d;
            lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
            lar_json_init(&j);
            assert_int_equal(lar_json_parse(&j, lar_slice_of(sent, len), &limits, &d), LAR_OK);
            lar_json_release(&j);
            assert_non_null(strstr(sent, "\"first question"));
            assert_non_null(strstr(sent, "\"first answer\""));
            assert_non_null(strstr(sent, "\"second question"));
            free(sent);
            harness_memory_damage(h.memory, seed * 31 + (unsigned)k);
        }
        harness_release(&h);
    }
}

/* More facts than a block may hold: all of it stays. */
static void test_facts_limit(void **state) {
    (void)state;
    harness h;
    harness_init(&h);
    h.options.facts_bytes_max = 150;
    same(&h, CHAT(AT("15:42"), USER("a")));
    same(&h, CHAT(AT("15:50"), USER("a")));
    assert_false(fired(&h, LAR_RULE_LR001));
    harness_release(&h);
}

static void test_rule_table(void **state) {
    (void)state;
    assert_int_equal(lar_rule_find(LAR_SLICE("lr003")), LAR_RULE_LR003);
    assert_int_equal(lar_rule_find(LAR_SLICE("text_form")), LAR_RULE_LR004);
    assert_int_equal(lar_rule_find(LAR_SLICE("nothing")), LAR_RULE_COUNT);
    assert_string_equal(lar_rule_id(LAR_RULE_LR001), "LR001");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clock_moves_and_is_recalled),
                                       cmocka_unit_test(test_conversations_that_begin_alike),
                                       cmocka_unit_test(test_replay_reads_the_time_of_now),
                                       cmocka_unit_test(test_constants_stay),
                                       cmocka_unit_test(test_clock_that_shows_now),
                                       cmocka_unit_test(test_escapes_map),
                                       cmocka_unit_test(test_nowhere_to_put_it),
                                       cmocka_unit_test(test_billing),
                                       cmocka_unit_test(test_tools),
                                       cmocka_unit_test(test_tools_with_markers),
                                       cmocka_unit_test(test_tools_with_odd_markers),
                                       cmocka_unit_test(test_form),
                                       cmocka_unit_test(test_many_line_ends),
                                       cmocka_unit_test(test_other_protocols),
                                       cmocka_unit_test(test_scopes_are_apart),
                                       cmocka_unit_test(test_sessions_share_evidence),
                                       cmocka_unit_test(test_report_mode),
                                       cmocka_unit_test(test_twice_is_once),
                                       cmocka_unit_test(test_prefix_prediction),
                                       cmocka_unit_test(test_hostile),
                                       cmocka_unit_test(test_ten_thousand_messages),
                                       cmocka_unit_test(test_tiny_arenas),
                                       cmocka_unit_test(test_without_memory),
                                       cmocka_unit_test(test_damaged_memory),
                                       cmocka_unit_test(test_facts_limit),
                                       cmocka_unit_test(test_rule_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
