/* The drill's verdicts: an observation that is right holds, and each that is wrong in one thing fails for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "gateway/drill/drill_judge.h"

enum { FIRST, SECOND, ENGINE };

typedef struct world {
    lar_upstream_config upstreams[3];
    lar_route_config route;
    lar_drill_plan plan;
    lar_drill_line line;
    lar_drill_scene scene;
    lar_drill_expect expect;
    lar_drill_saw saw;
    lar_drill_seen seen[LAR_DRILL_TARGETS_MAX];
} world;

static void add(lar_buf *b, const char *text) { assert_int_equal(lar_buf_add(b, text, strlen(text)), LAR_OK); }

/* A chain of `targets` of first, second, engine; the scene of that id. */
static void set_up(world *w, lar_drill_id id, bool streamed, uint32_t targets) {
    static const char *const names[] = {"first", "second", "engine"};
    memset(w, 0, sizeof *w);
    for (uint32_t t = 0; t < targets; t++) {
        w->upstreams[t] =
            (lar_upstream_config){.name = names[t],
                                  .retry_attempts = 2,
                                  .retry_wait_ms = 2000,
                                  .breaker = {.requests_min = 10, .failure_percent = 50, .open_ms_max = 1}};
        w->line.targets[t] =
            (lar_drill_target){.upstream = t, .members = 1, .name = names[t], .model = "m", .engine = t == ENGINE};
    }
    w->line.target_count = targets;
    w->line.label = "routes[0]";
    w->line.protocol = LAR_PROTOCOL_CHAT;
    w->line.continue_with = LAR_DRILL_NONE;
    w->plan.upstreams = w->upstreams;
    w->plan.routes = &w->route;
    w->route.hold_ms = 1000;
    w->route.hold_bytes = 1000;
    w->scene =
        (lar_drill_scene){.scenario = lar_drill_scenario_of(id), .line = &w->line, .streamed = streamed, .rounds = 1};
    w->expect = lar_drill_expect_of(&w->scene, &w->plan, 0);
    lar_drill_saw_init(&w->saw);
    for (int t = 0; t < LAR_DRILL_TARGETS_MAX; t++) lar_buf_init(&w->seen[t].said, 1 << 16);
}

static void tear_down(world *w) {
    lar_drill_saw_release(&w->saw);
    for (int t = 0; t < LAR_DRILL_TARGETS_MAX; t++) lar_buf_release(&w->seen[t].said);
}

/* Target t said this and the client got it: two pieces. */
static void answered(world *w, uint32_t t, uint16_t status, const char *body) {
    w->seen[t].requests = 1;
    w->seen[t].status = status;
    w->seen[t].named_model = true;
    add(&w->seen[t].said, body);
    w->seen[t].whole = (uint32_t)strlen(body);
    w->seen[t].pieces = status == 200 ? 2 : 0;
    w->seen[t].piece_ends[0] = 2;
    w->seen[t].piece_ends[1] = w->seen[t].whole;
    add(&w->saw.body, body);
    w->saw.status = status;
    w->saw.streamed = w->scene.streamed && status == 200;
    w->saw.whole = true;
    w->saw.last_event = w->saw.streamed;
    w->saw.error = status >= 400;
    (void)snprintf(w->saw.by, sizeof w->saw.by, "%s", w->line.targets[t].name);
}

static lar_drill_verdict judge(const world *w) { return lar_drill_judge(&w->scene, &w->expect, &w->saw, w->seen); }

static void expect_failed(const world *w, const char *why) {
    lar_drill_verdict v = judge(w);
    assert_false(v.held);
    if (!strstr(v.why, why)) fail_msg("'%s' does not say '%s'", v.why, why);
}

/* The first closes, the second answers a stream. */
static void fallback_world(world *w) {
    set_up(w, LAR_DRILL_ID_CLOSE, true, 2);
    answered(w, SECOND, 200, "one two three");
    w->seen[FIRST].requests = 1;
    (void)snprintf(w->saw.failure, sizeof w->saw.failure, "failed");
}

static void test_fallback_holds(void **state) {
    (void)state;
    world w;
    fallback_world(&w);
    lar_drill_verdict v = judge(&w);
    assert_true(v.held);
    assert_int_equal(v.by, SECOND);
    assert_int_equal(v.lost, 0);
    assert_int_equal(v.wrong, 0);
    assert_string_equal(v.why, "");
    tear_down(&w);
}

static void test_fallback_fails(void **state) {
    (void)state;
    world w;
    fallback_world(&w);
    w.seen[FIRST].requests = 2;
    expect_failed(&w, "first was asked 2 times, at most 1");
    tear_down(&w);
    fallback_world(&w);
    w.seen[SECOND].requests = 2;
    expect_failed(&w, "second was asked 2 times");
    tear_down(&w);
    fallback_world(&w);
    w.saw.body.len--;
    expect_failed(&w, "1 bytes are not those of second");
    tear_down(&w);
    fallback_world(&w);
    w.saw.body.ptr[0] = 'O';
    expect_failed(&w, "bytes are not those of second");
    tear_down(&w);
    fallback_world(&w);
    w.saw.last_event = false;
    expect_failed(&w, "the stream of second has no end");
    tear_down(&w);
    fallback_world(&w);
    w.saw.whole = false;
    expect_failed(&w, "not whole");
    tear_down(&w);
    fallback_world(&w);
    w.saw.error = true;
    expect_failed(&w, "second must answer");
    tear_down(&w);
    fallback_world(&w);
    w.saw.streamed = false;
    expect_failed(&w, "a stream was asked for");
    tear_down(&w);
    fallback_world(&w);
    w.seen[SECOND].named_model = false;
    expect_failed(&w, "not asked for the model");
    tear_down(&w);
    fallback_world(&w);
    (void)snprintf(w.saw.failure, sizeof w.saw.failure, "not_sent");
    expect_failed(&w, "the failure is of class failed; larder says 'not_sent'");
    tear_down(&w);
    fallback_world(&w);
    w.saw.trouble = "no answer within 300 s";
    expect_failed(&w, "no answer within 300 s");
    tear_down(&w);
}

static void test_other_answers(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_CLOSE, false, 2); /* larder's own 502 in place of the second's answer */
    w.seen[FIRST].requests = 1;
    w.saw.status = 502;
    w.saw.error = w.saw.whole = true;
    add(&w.saw.body, "{\"error\":{}}");
    (void)snprintf(w.saw.by, sizeof w.saw.by, "second");
    (void)snprintf(w.saw.failure, sizeof w.saw.failure, "failed");
    expect_failed(&w, "second must answer; larder itself answered 502");
    tear_down(&w);
    set_up(&w, LAR_DRILL_ID_WELL, false, 2); /* the second where nothing fails */
    answered(&w, SECOND, 200, "one two");
    expect_failed(&w, "first must answer; second answered 200");
    tear_down(&w);
}

/* A stream that breaks behind content: what the first said, then larder's error event. */
static void broken_world(world *w) {
    set_up(w, LAR_DRILL_ID_CUT_PIECES, true, 2);
    answered(w, FIRST, 200, "one two ");
    add(&w->saw.body, "error event");
    w->saw.error = true;
    w->saw.error_at = w->seen[FIRST].whole;
    w->saw.last_event = w->saw.whole = false;
}

static void test_break(void **state) {
    (void)state;
    world w;
    broken_world(&w);
    assert_int_equal(w.expect.must, LAR_DRILL_MUST_BREAK);
    lar_drill_verdict v = judge(&w);
    assert_true(v.held);
    assert_int_equal(v.lost, 0);
    tear_down(&w);
    broken_world(&w);
    w.saw.last_event = true;
    expect_failed(&w, "a clean end");
    tear_down(&w);
    broken_world(&w);
    w.saw.error = false;
    w.saw.error_at = SIZE_MAX;
    w.saw.body.len = w.seen[FIRST].whole;
    expect_failed(&w, "no error event");
    tear_down(&w);
    broken_world(&w);
    w.seen[SECOND].requests = 1;
    expect_failed(&w, "second was asked 1 times, at most 0");
    tear_down(&w);
    broken_world(&w); /* a token that the upstream said is missing */
    memmove(w.saw.body.ptr + 2, w.saw.body.ptr + 8, 11);
    w.saw.body.len = 13;
    w.saw.error_at = 2;
    v = judge(&w);
    assert_false(v.held);
    assert_int_equal(v.lost, 1);
    tear_down(&w);
}

/* The first says two pieces and three, and breaks; another one goes on. */
static void continued_world(world *w) {
    set_up(w, LAR_DRILL_ID_CUT_PIECES, true, 3);
    w->line.continue_with = ENGINE;
    w->expect = lar_drill_expect_of(&w->scene, &w->plan, 0);
    assert_int_equal(w->expect.must, LAR_DRILL_MUST_CONTINUE);
    answered(w, FIRST, 200, "one two three");
    w->seen[FIRST].pieces = 3;
    for (uint32_t i = 0; i < 3; i++) w->seen[FIRST].piece_ends[i] = i == 2 ? 13 : 4 * (i + 1);
    add(&w->saw.body, "{\"continued_by\":\"engine\"} four");
}

static void test_continued(void **state) {
    (void)state;
    world w;
    continued_world(&w);
    lar_drill_verdict v = judge(&w);
    assert_true(v.held);
    assert_int_equal(v.lost, 0);
    assert_int_equal(v.wrong, 0);
    w.saw.last_event = false;
    expect_failed(&w, "must go on with the stream of first; it has no end");
    tear_down(&w);
    continued_world(&w);
    w.saw.error = true;
    expect_failed(&w, "must go on with the stream of first");
    tear_down(&w);
    continued_world(&w);
    w.saw.body.len = 13;
    expect_failed(&w, "without another's words");
    tear_down(&w);
    continued_world(&w);
    w.saw.body.ptr[9] = '3';
    expect_failed(&w, "bytes are not those of first");
    assert_int_equal(judge(&w).lost, 1);
    tear_down(&w);
    set_up(&w, LAR_DRILL_ID_CUT_TOOL, true, 3); /* a call of a tool is never gone on with */
    w.line.continue_with = ENGINE;
    assert_int_equal(lar_drill_expect_of(&w.scene, &w.plan, 0).must, LAR_DRILL_MUST_BREAK);
    tear_down(&w);
}

static void test_passed_on(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_S400, false, 2);
    answered(&w, FIRST, 400, "{\"error\":{}}");
    assert_true(judge(&w).held);
    w.seen[SECOND].requests = 1;
    expect_failed(&w, "second was asked");
    tear_down(&w);
    set_up(&w, LAR_DRILL_ID_S400, false, 1);
    answered(&w, FIRST, 400, "{\"error\":{}}");
    w.saw.status = 500;
    expect_failed(&w, "the 400 of first must be passed on; the client read 500");
    tear_down(&w);
    set_up(&w, LAR_DRILL_ID_S429_LONG, false, 1);
    answered(&w, FIRST, 429, "{\"error\":{}}");
    (void)snprintf(w.saw.failure, sizeof w.saw.failure, "refused");
    expect_failed(&w, "the time to come back was not passed on");
    w.saw.retry_after = true;
    lar_drill_verdict v = judge(&w);
    assert_true(v.held);
    assert_string_equal(v.why, "no fallback: the client sees 429");
    tear_down(&w);
}

static void test_told(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_CLOSE, false, 1);
    w.seen[FIRST].requests = 1;
    w.saw.status = 502;
    w.saw.whole = w.saw.error = true;
    (void)snprintf(w.saw.failure, sizeof w.saw.failure, "failed");
    assert_true(judge(&w).held);
    w.saw.error = false;
    expect_failed(&w, "must be told");
    w.saw.status = 200;
    expect_failed(&w, "must be told");
    tear_down(&w);
}

static void test_breaker(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_REST, false, 2);
    w.scene.rounds = 12;
    lar_drill_expect failing = lar_drill_expect_of(&w.scene, &w.plan, 9),
                     open = lar_drill_expect_of(&w.scene, &w.plan, 10),
                     again = lar_drill_expect_of(&w.scene, &w.plan, 11);
    assert_int_equal(failing.by, SECOND);
    assert_int_equal(failing.most[FIRST], 1);
    assert_int_equal(open.by, SECOND);
    assert_int_equal(open.most[FIRST], 0);
    assert_int_equal(open.failure, LAR_FAILURE_CROWDED);
    assert_int_equal(again.by, FIRST);
    assert_int_equal(again.most[SECOND], 0);
    tear_down(&w);
}

static void test_all_down(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_ALL_BUSY, false, 3);
    assert_int_equal(w.expect.by, ENGINE);
    assert_int_equal(w.expect.must, LAR_DRILL_MUST_ANSWER);
    tear_down(&w);
    set_up(&w, LAR_DRILL_ID_ALL_BUSY, false, 2);
    assert_int_equal(w.expect.by, SECOND);
    assert_int_equal(w.expect.must, LAR_DRILL_MUST_PASS_ON);
    assert_false(w.expect.alone);
    tear_down(&w);
}

static void test_short_pause(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_S429_SHORT, false, 1);
    assert_int_equal(w.expect.must, LAR_DRILL_MUST_ANSWER);
    assert_int_equal(w.expect.most[FIRST], 2);
    w.upstreams[FIRST].retry_attempts = 1;
    assert_int_equal(lar_drill_expect_of(&w.scene, &w.plan, 0).must, LAR_DRILL_MUST_PASS_ON);
    tear_down(&w);
}

static void explains(world *w, const char *what) {
    char why[LAR_DRILL_WHY_BYTES];
    lar_drill_explain(&w->scene, &w->plan, why);
    if (!strstr(why, what)) fail_msg("'%s' does not say '%s'", why, what);
    tear_down(w);
}

static void test_explain(void **state) {
    (void)state;
    world w;
    set_up(&w, LAR_DRILL_ID_HANG, false, 2);
    w.scene.wait = (lar_drill_wait){.option = "timeouts.first_byte", .configured_ms = 600000, .played_ms = 1300};
    w.route.deadline_ms = 60000;
    explains(&w, "deadline (60s) ends before timeouts.first_byte of first (600s)");
    set_up(&w, LAR_DRILL_ID_STALL_ROLE, true, 2);
    w.scene.wait = (lar_drill_wait){.option = "timeouts.idle", .configured_ms = 1500, .played_ms = 500};
    explains(&w, "hold.time (1s) ends before timeouts.idle of first (1500ms)");
    set_up(&w, LAR_DRILL_ID_CUT_ROLE, true, 2);
    w.route.hold_bytes = 0;
    explains(&w, "hold.bytes is 0");
    set_up(&w, LAR_DRILL_ID_REST, false, 2);
    w.upstreams[FIRST].breaker.open_ms_max = 0;
    explains(&w, "breaker.open_max of first is 0");
    set_up(&w, LAR_DRILL_ID_FALLBACK, false, 3);
    w.scene.target = ENGINE;
    w.line.targets[ENGINE].cannot = "it speaks chat";
    explains(&w, "engine never answers /v1/chat/completions: it speaks chat");
    set_up(&w, LAR_DRILL_ID_CLOSE, false, 2);
    explains(&w, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fallback_holds), cmocka_unit_test(test_fallback_fails),
                                       cmocka_unit_test(test_other_answers),  cmocka_unit_test(test_break),
                                       cmocka_unit_test(test_continued),      cmocka_unit_test(test_passed_on),
                                       cmocka_unit_test(test_told),           cmocka_unit_test(test_breaker),
                                       cmocka_unit_test(test_all_down),       cmocka_unit_test(test_short_pause),
                                       cmocka_unit_test(test_explain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
