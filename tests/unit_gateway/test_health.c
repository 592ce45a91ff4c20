/* What is known of upstreams: classes of failure, Retry-After in all its forms, breakers, the choice among replicas.
 * Numbers R-.. are those of public reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/health/breaker.h"
#include "gateway/health/failure.h"
#include "gateway/health/replica.h"
#include "gateway/health/retry_after.h"

/* -- classes ------------------------------------------------------------------------------------------------------ */

static void test_statuses(void **state) {
    (void)state;
    static const struct {
        int status;
        bool asks;
        const char *body;
        lar_failure failure;
    } rows[] = {
        {200, false, "", LAR_FAILURE_NONE},
        {204, false, "", LAR_FAILURE_NONE},
        {304, false, "", LAR_FAILURE_NONE},
        {400, false, "{\"error\":{\"message\":\"bad arguments\"}}", LAR_FAILURE_CLIENT},
        {400, true, "", LAR_FAILURE_CLIENT},
        {401, false, "", LAR_FAILURE_CLIENT},
        {404, false, "context_length_exceeded", LAR_FAILURE_CLIENT},
        {408, false, "", LAR_FAILURE_FAILED},
        {413, false, "too large", LAR_FAILURE_CLIENT},
        {422, false, "", LAR_FAILURE_CLIENT},
        {429, false, "", LAR_FAILURE_REFUSED},
        {500, false, "", LAR_FAILURE_FAILED},
        {500, true, "", LAR_FAILURE_REFUSED},
        {502, false, "", LAR_FAILURE_FAILED},
        {503, false, "", LAR_FAILURE_REFUSED},
        {504, false, "", LAR_FAILURE_FAILED},
        {524, true, "", LAR_FAILURE_REFUSED},  /* */
        {529, false, "", LAR_FAILURE_REFUSED}, /* */
        /* */
        {400, false, "{\"error\":{\"code\":\"context_length_exceeded\"}}", LAR_FAILURE_TOO_LONG},
        {400, false, "This model's maximum context length is 65536 tokens.", LAR_FAILURE_TOO_LONG},
        {400, false, "prompt is too long: 210000 tokens > 200000 maximum", LAR_FAILURE_TOO_LONG},
        {413, false, "Prompt Is Too Long", LAR_FAILURE_TOO_LONG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_failure f = lar_failure_of_status(rows[i].status, rows[i].asks, lar_slice_cstr(rows[i].body));
        if (f != rows[i].failure) fail_msg("%d %s: %s", rows[i].status, rows[i].body, lar_failure_info_of(f)->name);
    }
}

static void test_errors_by_stage(void **state) {
    (void)state;
    static const lar_failure by_stage[] = {LAR_FAILURE_NOT_SENT, LAR_FAILURE_FAILED, LAR_FAILURE_BROKEN,
                                           LAR_FAILURE_BROKEN_LATE};
    static const lar_error unsent[] = {LAR_UPSTREAM_DNS, LAR_UPSTREAM_CONNECT, LAR_UPSTREAM_CONNECT_TIMEOUT,
                                       LAR_UPSTREAM_TLS};
    for (size_t i = 0; i < 4; i++) {
        lar_attempt_stage stage = (lar_attempt_stage)i;
        assert_int_equal(lar_failure_of_error(LAR_UPSTREAM_CLOSED, stage), by_stage[i]);
        assert_int_equal(lar_failure_of_error(LAR_UPSTREAM_TIMEOUT, stage), by_stage[i]);
        assert_int_equal(lar_failure_of_error(LAR_UPSTREAM_PROTOCOL, stage), by_stage[i]);
        assert_int_equal(lar_failure_of_error(LAR_CLIENT_GONE, stage), LAR_FAILURE_NONE);
        assert_int_equal(lar_failure_of_error(unsent[i], LAR_ATTEMPT_UNSENT), LAR_FAILURE_NOT_SENT);
    }
}

/* What is never allowed: the same upstream again once it may have worked; anybody again behind content. */
static void test_nothing_is_paid_twice(void **state) {
    (void)state;
    for (int f = 0; f < LAR_FAILURE_COUNT; f++) {
        const lar_failure_info *i = lar_failure_info_of((lar_failure)f);
        if (f != LAR_FAILURE_NOT_SENT) assert_int_not_equal(i->same, LAR_RESEND_YES);
        if (f == LAR_FAILURE_FAILED || f == LAR_FAILURE_BROKEN) assert_int_equal(i->same, LAR_RESEND_NO);
    }
    assert_false(lar_failure_info_of(LAR_FAILURE_BROKEN_LATE)->other);
    assert_false(lar_failure_info_of(LAR_FAILURE_CLIENT)->other);
}

/* -- Retry-After --------------------------------------------------------------------------------------------------*/

static const int64_t now_ms = 784111777000; /* Sun, 06 Nov 1994 08:49:37 GMT, of RFC 9110 */

typedef struct wait_row {
    const char *name, *value, *name2, *value2, *body;
    int64_t ms; /* -1: none */
} wait_row;

static void check_wait(const wait_row *r) {
    lar_http1_field fields[2] = {{lar_slice_cstr(r->name), lar_slice_cstr(r->value)}, {{0}, {0}}};
    lar_http1_head h = {.fields = fields, .field_count = r->name[0] ? 1 : 0};
    if (r->name2) fields[1] = (lar_http1_field){lar_slice_cstr(r->name2), lar_slice_cstr(r->value2)}, h.field_count = 2;
    uint32_t ms = 77;
    bool found = lar_retry_after(&h, lar_slice_cstr(r->body ? r->body : ""), now_ms, 3600000, &ms);
    if (found != (r->ms >= 0) || ms != (found ? (uint32_t)r->ms : 77u))
        fail_msg("%s: %s: %d, %u ms", r->name, r->value, found, ms);
}

static void test_retry_after(void **state) {
    (void)state;
    static const wait_row rows[] = {
        {"Retry-After", "3", NULL, NULL, NULL, 3000},
        {"retry-after", "0", NULL, NULL, NULL, 0},
        {"Retry-After", "2.5", NULL, NULL, NULL, 2500},
        {"Retry-After", "0.0004", NULL, NULL, NULL, 0},
        {"Retry-After", "-1", NULL, NULL, NULL, -1},
        {"Retry-After", "", NULL, NULL, NULL, -1},
        {"Retry-After", "soon", NULL, NULL, NULL, -1},
        {"Retry-After", "3 seconds", NULL, NULL, NULL, -1},
        {"Retry-After", "NaN", NULL, NULL, NULL, -1},
        {"Retry-After", "1e3", NULL, NULL, NULL, -1},
        {"Retry-After", "1000000000000", NULL, NULL, NULL, 3600000},
        {"Retry-After", "999999999999999", NULL, NULL, NULL, 3600000},
        {"Retry-After", "9999999999999999", NULL, NULL, NULL, 3600000}, /* 16 digits, and as many as there are */
        {"Retry-After", "9223372036854775807", NULL, NULL, NULL, 3600000},
        {"Retry-After", "18446744073709551617.5", NULL, NULL, NULL, 3600000},
        {"Retry-After", "99999999999999999999999999999999999999999999", NULL, NULL, NULL, 3600000},
        {"Retry-After", "0000000000000000000000000003", NULL, NULL, NULL, 3000},
        {"Retry-After", "99999999999999999999x", NULL, NULL, NULL, -1},
        {"Retry-After", "2.00000000000000000000000009", NULL, NULL, NULL, 2000},
        {"retry-after-ms", "99999999999999999999", NULL, NULL, NULL, 3600000},
        {"", "", NULL, NULL, "{\"retry_after\":18446744073709551617}", 3600000},
        {"Retry-After", "86400", NULL, NULL, NULL, 3600000}, /* */
        {"Retry-After", "3", "retry-after", "3", NULL, 3000},
        {"Retry-After", "3", "Retry-After", "4", NULL, -1},
        /* dates */
        {"Retry-After", "Sun, 06 Nov 1994 08:49:40 GMT", NULL, NULL, NULL, 3000},
        {"Retry-After", "Sunday, 06-Nov-94 08:49:42 GMT", NULL, NULL, NULL, 5000},
        {"Retry-After", "Sun Nov  6 08:50:37 1994", NULL, NULL, NULL, 60000},
        {"Retry-After", "Sun, 06 Nov 1994 08:49:30 GMT", NULL, NULL, NULL, 0},
        {"Retry-After", "Mon, 07 Nov 1994 08:49:37 GMT", NULL, NULL, NULL, 3600000},
        {"Retry-After", "Thu, 01 Jan 1970 00:00:00 GMT", NULL, NULL, NULL, 0},
        {"Retry-After", "Sun, 06 Nov 1994 24:49:40 GMT", NULL, NULL, NULL, -1},
        {"Retry-After", "Sun, 06 Nov 1994 08:49:40 UTC", NULL, NULL, NULL, -1},
        {"Retry-After", "Sun, 06 Nov 1994", NULL, NULL, NULL, -1},
        {"Retry-After", "1994-11-06T08:49:40Z", NULL, NULL, NULL, -1},
        /* */
        {"Retry-After", "2", "retry-after-ms", "1500", NULL, 1500},
        {"Retry-After", "2", "retry-after-ms", "x", NULL, 2000},
        {"retry-after-ms", "250.9", NULL, NULL, NULL, 250},
        {"", "", NULL, NULL, "{\"error\":{\"retry_after\":120}}", 120000},
        {"", "", NULL, NULL, "{\"retry_after\":0.5}", 500},
        {"", "", NULL, NULL, "{\"retry_after\":\"5\"}", -1},
        {"", "", NULL, NULL, "{\"retry_after\":-5}", -1},
        {"", "", NULL, NULL, "{\"retry_after\":1e3}", -1},
        {"", "", NULL, NULL, "[{\"retry_after\":5}]", -1},
        {"", "", NULL, NULL, "retry_after: 5", -1},
        {"Retry-After", "1", NULL, NULL, "{\"retry_after\":120}", 1000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_wait(&rows[i]);
}

/* -- breaker ------------------------------------------------------------------------------------------------------*/

static const lar_breaker_options usual = {.window_ms = 10000,
                                          .requests_min = 4,
                                          .failure_percent = 50,
                                          .slow_ms = 1000,
                                          .slow_percent = 75,
                                          .open_ms = 1000,
                                          .open_ms_max = 8000,
                                          .retry_percent = 20,
                                          .retries_min = 3};

static void tell(lar_breaker *b, uint64_t at, lar_breaker_leave leave, lar_breaker_outcome outcome, uint32_t ms) {
    lar_breaker_end e = {.leave = leave, .outcome = outcome, .first_ms = ms};
    lar_breaker_tell(b, at, &e);
}

static void one(lar_breaker *b, uint64_t at, lar_breaker_outcome outcome) {
    uint32_t wait = 0;
    lar_breaker_leave leave = lar_breaker_ask(b, at, &wait);
    assert_int_not_equal(leave, LAR_LEAVE_NO);
    tell(b, at, leave, outcome, 10);
}

static void test_breaker_opens_probes_and_closes(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    uint32_t wait = 0;
    for (int i = 0; i < 2; i++) one(b, 100, LAR_OUTCOME_OK);
    one(b, 200, LAR_OUTCOME_FAILED);
    assert_int_equal(lar_breaker_ask(b, 250, &wait), LAR_LEAVE_YES); /* under way when it opens */
    one(b, 300, LAR_OUTCOME_FAILED);                                 /* 2 of 4 */
    assert_int_equal(lar_breaker_ask(b, 301, &wait), LAR_LEAVE_NO);
    assert_int_equal(wait, 999);
    tell(b, 400, LAR_LEAVE_YES, LAR_OUTCOME_OK, 10); /* a straggler closes nothing */
    assert_int_equal(lar_breaker_look_at(b, 400).state, LAR_BREAKER_OPEN);
    assert_int_equal(lar_breaker_look_at(b, 1300).state, LAR_BREAKER_HALF_OPEN);
    assert_int_equal(lar_breaker_ask(b, 1300, &wait), LAR_LEAVE_PROBE);
    assert_int_equal(lar_breaker_ask(b, 1301, &wait), LAR_LEAVE_NO); /* one probe at a time */
    tell(b, 1400, LAR_LEAVE_PROBE, LAR_OUTCOME_FAILED, UINT32_MAX);
    assert_int_equal(lar_breaker_ask(b, 1401, &wait), LAR_LEAVE_NO);
    assert_int_equal(wait, 1999); /* twice as long */
    assert_int_equal(lar_breaker_ask(b, 3400, &wait), LAR_LEAVE_PROBE);
    tell(b, 3410, LAR_LEAVE_PROBE, LAR_OUTCOME_NONE, UINT32_MAX); /* its client left: the next one is the probe */
    assert_int_equal(lar_breaker_ask(b, 3411, &wait), LAR_LEAVE_PROBE);
    tell(b, 3500, LAR_LEAVE_PROBE, LAR_OUTCOME_OK, 5);
    assert_int_equal(lar_breaker_look_at(b, 3500).state, LAR_BREAKER_CLOSED);
    assert_int_equal(lar_breaker_look_at(b, 3500).opened, 1);
    one(b, 3600, LAR_OUTCOME_FAILED); /* old failures are forgotten: one is not enough */
    assert_int_equal(lar_breaker_ask(b, 3601, &wait), LAR_LEAVE_YES);
    lar_breaker_free(b);
}

static void test_breaker_waits_as_asked(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    uint32_t wait = 0;
    assert_int_equal(lar_breaker_ask(b, 10, &wait), LAR_LEAVE_YES);
    lar_breaker_end e = {.outcome = LAR_OUTCOME_REFUSED, .first_ms = UINT32_MAX, .pause_ms = 3000};
    lar_breaker_tell(b, 10, &e);
    assert_int_equal(lar_breaker_ask(b, 20, &wait), LAR_LEAVE_NO);
    assert_int_equal(wait, 2990);
    assert_int_equal(lar_breaker_ask_last(b, 20, &wait), LAR_LEAVE_NO); /* it asked to be left alone */
    assert_int_equal(lar_breaker_look_at(b, 20).requests, 1);           /* refusals of ours count nowhere, R-14 */
    assert_int_equal(lar_breaker_ask(b, 3010, &wait), LAR_LEAVE_PROBE);
    e = (lar_breaker_end){.leave = LAR_LEAVE_PROBE, .outcome = LAR_OUTCOME_REFUSED, .pause_ms = 86400000};
    lar_breaker_tell(b, 3010, &e);
    assert_int_equal(lar_breaker_ask(b, 3011, &wait), LAR_LEAVE_NO);
    assert_int_equal(wait, 7999); /* no longer than the longest, R-03 */
    lar_breaker_free(b);
}

/* the only target is tried in spite of failures. */
static void test_breaker_of_the_last_target(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    uint32_t wait = 0;
    for (int i = 0; i < 4; i++) one(b, 10, LAR_OUTCOME_FAILED);
    assert_int_equal(lar_breaker_ask(b, 110, &wait), LAR_LEAVE_NO);
    assert_int_equal(lar_breaker_ask_last(b, 110, &wait), LAR_LEAVE_PROBE);
    assert_int_equal(lar_breaker_ask(b, 111, &wait), LAR_LEAVE_NO);
    assert_int_equal(lar_breaker_ask_last(b, 111, &wait), LAR_LEAVE_YES);
    tell(b, 120, LAR_LEAVE_PROBE, LAR_OUTCOME_OK, 1);
    assert_int_equal(lar_breaker_ask(b, 121, &wait), LAR_LEAVE_YES);
    lar_breaker_free(b);
}

static void asked_at(lar_breaker *b, uint64_t at, uint64_t asked_ms, lar_breaker_outcome outcome) {
    lar_breaker_tell(b, at, &(lar_breaker_end){.asked_ms = asked_ms, .outcome = outcome, .first_ms = 10});
}

/* An active probe closes the breaker before its time, and keeps requests away while it fails. */
static void test_active_probes(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    uint32_t wait = 0;
    assert_false(lar_breaker_ask_active(b, 0)); /* closed: nothing to ask */
    for (int i = 0; i < 4; i++) one(b, 100, LAR_OUTCOME_FAILED);
    assert_true(lar_breaker_ask_active(b, 200));
    assert_false(lar_breaker_ask_active(b, 200)); /* one at a time */
    assert_false(lar_breaker_tell_active(b, 300, LAR_OUTCOME_FAILED));
    assert_int_equal(lar_breaker_look_at(b, 2299).state, LAR_BREAKER_OPEN); /* twice as long from then on */
    assert_true(lar_breaker_ask_active(b, 2300));
    assert_int_equal(lar_breaker_ask(b, 2300, &wait), LAR_LEAVE_NO); /* no client's request beside it */
    assert_false(lar_breaker_tell_active(b, 2301, LAR_OUTCOME_NONE));
    assert_int_equal(lar_breaker_ask(b, 2302, &wait), LAR_LEAVE_PROBE); /* half open as without it */
    assert_false(lar_breaker_ask_active(b, 2303));
    tell(b, 2304, LAR_LEAVE_PROBE, LAR_OUTCOME_FAILED, 10); /* to 6304 */
    assert_true(lar_breaker_ask_active(b, 2400));
    assert_true(lar_breaker_tell_active(b, 2410, LAR_OUTCOME_OK));
    assert_int_equal(lar_breaker_look_at(b, 2410).state, LAR_BREAKER_CLOSED);
    assert_int_equal(lar_breaker_look_at(b, 2410).requests, 0);
    one(b, 2420, LAR_OUTCOME_OK);
    lar_breaker_free(b);
}

/* Who said that all was well and was wrong is not believed again before a request ended well. */
static void test_active_probes_that_lie(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    for (int i = 0; i < 4; i++) one(b, 100, LAR_OUTCOME_FAILED); /* to 1100 */
    assert_true(lar_breaker_ask_active(b, 200));
    assert_true(lar_breaker_tell_active(b, 300, LAR_OUTCOME_OK));
    asked_at(b, 310, 50, LAR_OUTCOME_FAILED); /* from before: proves nothing */
    assert_int_equal(lar_breaker_look_at(b, 310).state, LAR_BREAKER_CLOSED);
    asked_at(b, 320, 305, LAR_OUTCOME_FAILED); /* the first since: enough */
    assert_int_equal(lar_breaker_look_at(b, 2319).state, LAR_BREAKER_OPEN);
    assert_true(lar_breaker_ask_active(b, 400));
    assert_false(lar_breaker_tell_active(b, 410, LAR_OUTCOME_OK));
    uint32_t wait = 0;
    assert_int_equal(lar_breaker_ask(b, 2320, &wait), LAR_LEAVE_PROBE);
    tell(b, 2330, LAR_LEAVE_PROBE, LAR_OUTCOME_OK, 10);
    for (int i = 0; i < 3; i++) one(b, 2340, LAR_OUTCOME_FAILED); /* 3 of 4 */
    assert_true(lar_breaker_ask_active(b, 2400));
    assert_true(lar_breaker_tell_active(b, 2410, LAR_OUTCOME_OK)); /* believed again */
    asked_at(b, 2420, 2411, LAR_OUTCOME_OK);
    asked_at(b, 2430, 2412, LAR_OUTCOME_FAILED); /* one of several, as ever */
    assert_int_equal(lar_breaker_look_at(b, 2430).state, LAR_BREAKER_CLOSED);
    lar_breaker_free(b);
}

/* A pause that the upstream asked for is kept by active probes, too. */
static void test_active_probes_wait_as_asked(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    lar_breaker_end pause = {.outcome = LAR_OUTCOME_REFUSED, .first_ms = UINT32_MAX, .pause_ms = 3000};
    lar_breaker_tell(b, 1000, &pause);
    assert_false(lar_breaker_ask_active(b, 3999));
    assert_true(lar_breaker_ask_active(b, 4000));
    lar_breaker_tell(b, 4001, &pause); /* asked for once more meanwhile */
    assert_false(lar_breaker_tell_active(b, 4002, LAR_OUTCOME_OK));
    assert_int_equal(lar_breaker_look_at(b, 7000).state, LAR_BREAKER_OPEN);
    assert_true(lar_breaker_ask_active(b, 7001));
    assert_true(lar_breaker_tell_active(b, 7002, LAR_OUTCOME_OK));
    lar_breaker_free(b);
}

static void test_breaker_that_never_opens(void **state) {
    (void)state;
    lar_breaker_options o = usual;
    o.open_ms_max = 0;
    lar_breaker *b = lar_breaker_new(&o);
    uint32_t wait = 0;
    lar_breaker_end e = {.outcome = LAR_OUTCOME_REFUSED, .first_ms = UINT32_MAX, .pause_ms = 3000};
    for (int i = 0; i < 20; i++) lar_breaker_tell(b, 10, &e);
    assert_int_equal(lar_breaker_ask(b, 11, &wait), LAR_LEAVE_YES);
    lar_breaker_free(b);
}

static void test_breaker_on_slow_answers(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    uint32_t wait = 0;
    for (uint64_t i = 0; i < 3; i++) tell(b, i, LAR_LEAVE_YES, LAR_OUTCOME_OK, 1001);
    tell(b, 5, LAR_LEAVE_YES, LAR_OUTCOME_OK, 1000);
    assert_int_equal(lar_breaker_ask(b, 6, &wait), LAR_LEAVE_YES); /* a quick one opens nothing */
    tell(b, 7, LAR_LEAVE_YES, LAR_OUTCOME_OK, 1001);
    assert_int_equal(lar_breaker_ask(b, 8, &wait), LAR_LEAVE_NO);
    lar_breaker_free(b);
}

/* Failures that were few among many good answers are most of what is left when those leave the window. */
static void test_good_answers_open_no_breaker(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    uint32_t wait = 0;
    for (int i = 0; i < 100; i++) one(b, 500, LAR_OUTCOME_OK);
    for (int i = 0; i < 30; i++) one(b, 9000, LAR_OUTCOME_FAILED);
    one(b, 10100, LAR_OUTCOME_OK);
    assert_int_equal(lar_breaker_look_at(b, 10100).failed, 30);
    assert_int_equal(lar_breaker_look_at(b, 10100).requests, 31);
    assert_int_equal(lar_breaker_ask(b, 10101, &wait), LAR_LEAVE_YES);
    one(b, 10200, LAR_OUTCOME_FAILED);
    assert_int_equal(lar_breaker_ask(b, 10201, &wait), LAR_LEAVE_NO);
    lar_breaker_free(b);
}

static void test_breaker_forgets_with_time(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    for (int i = 0; i < 3; i++) one(b, 500, LAR_OUTCOME_FAILED);
    assert_int_equal(lar_breaker_look_at(b, 9999).failed, 3);
    assert_int_equal(lar_breaker_look_at(b, 10000).failed, 0);
    one(b, 10001, LAR_OUTCOME_FAILED);
    assert_int_equal(lar_breaker_look_at(b, 10001).state, LAR_BREAKER_CLOSED);
    lar_breaker_free(b);
}

static void test_budget_of_repeats(void **state) {
    (void)state;
    lar_breaker *b = lar_breaker_new(&usual);
    for (int i = 0; i < 3; i++) assert_true(lar_breaker_retry(b, 0));
    assert_false(lar_breaker_retry(b, 0));
    for (int i = 0; i < 10; i++) one(b, 1, LAR_OUTCOME_OK);
    assert_true(lar_breaker_retry(b, 1)); /* 3 + 20 % of 10 */
    assert_true(lar_breaker_retry(b, 1));
    assert_false(lar_breaker_retry(b, 1));
    assert_true(lar_breaker_retry(b, 20000));
    lar_breaker_free(b);
}

/* A linear congruential generator: the same numbers everywhere. */
static uint32_t any(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Random use: never two probes, every NO has a wait after which something may go, and a good probe closes. */
static void test_breaker_at_random(void **state) {
    (void)state;
    uint64_t seed = 7;
    lar_breaker *b = lar_breaker_new(&usual);
    uint64_t now = 0;
    bool probing = false;
    for (int i = 0; i < 200000; i++) {
        uint32_t wait = 0;
        lar_breaker_leave leave = any(&seed) % 4 ? lar_breaker_ask(b, now, &wait) : lar_breaker_ask_last(b, now, &wait);
        if (leave == LAR_LEAVE_NO) {
            assert_true(wait >= 1 && wait <= usual.open_ms_max);
            if (probing && any(&seed) % 2) {
                lar_breaker_outcome how = (lar_breaker_outcome)(any(&seed) % 4);
                tell(b, now, LAR_LEAVE_PROBE, how, 3);
                probing = false;
                if (how == LAR_OUTCOME_OK) assert_int_equal(lar_breaker_look_at(b, now).state, LAR_BREAKER_CLOSED);
            } else if (!probing) {
                now += wait;
                assert_int_equal(lar_breaker_ask(b, now, &wait), LAR_LEAVE_PROBE);
                probing = true;
            }
        } else if (leave == LAR_LEAVE_PROBE) {
            assert_false(probing);
            probing = true;
        } else {
            tell(b, now, leave, (lar_breaker_outcome)(any(&seed) % 8 ? 0 : any(&seed) % 4), 3);
        }
        now += any(&seed) % 50;
    }
    lar_breaker_free(b);
}

/* -- replicas -----------------------------------------------------------------------------------------------------*/

static void fill(lar_replica *r, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) r[i] = (lar_replica){.id = 1000 + i * 77, .weight = 1, .well = true};
}

static void test_replicas_share_and_stay(void **state) {
    (void)state;
    enum { N = 5, PREFIXES = 20000 };
    lar_replica r[N];
    uint32_t order[N], first[PREFIXES], moved = 0, counts[N] = {0};
    fill(r, N);
    r[4].weight = 2;
    for (uint64_t p = 0; p < PREFIXES; p++) {
        lar_replica_order(p, r, N, 1000000, order);
        first[p] = order[0];
        counts[order[0]]++;
    }
    for (int i = 0; i < N; i++)
        assert_in_range(counts[i], PREFIXES * (i == 4 ? 2 : 1) / 6 * 9 / 10, PREFIXES * (i == 4 ? 2 : 1) / 6 * 11 / 10);
    /* one that is not well loses its own prefixes and nothing else moves */
    r[2].well = false;
    for (uint64_t p = 0; p < PREFIXES; p++) {
        lar_replica_order(p, r, N, 1000000, order);
        assert_int_equal(order[N - 1], 2);
        if (first[p] != 2) assert_int_equal(order[0], first[p]);
        else moved++;
    }
    assert_int_equal(moved, counts[2]);
}

static void test_replicas_bound_the_load(void **state) {
    (void)state;
    enum { N = 4 };
    lar_replica r[N];
    uint32_t order[N];
    fill(r, N);
    /* one hot prefix: with 25 % of slack nobody gets more than its share by much */
    for (int i = 0; i < 1000; i++) {
        lar_replica_order(42, r, N, 25, order);
        r[order[0]].load++;
    }
    for (int i = 0; i < N; i++) assert_in_range(r[i].load, 1, 313); /* 1000 / 4 * 1.25, rounded up */
    for (int i = 0; i < N; i++) r[i].well = false;
    lar_replica_order(42, r, N, 25, order); /* nobody is well: an order all the same */
    uint32_t seen = 0;
    for (int i = 0; i < N; i++) seen |= 1u << order[i];
    assert_int_equal(seen, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_errors_by_stage),
        cmocka_unit_test(test_nothing_is_paid_twice),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_breaker_opens_probes_and_closes),
        cmocka_unit_test(test_breaker_waits_as_asked),
        cmocka_unit_test(test_breaker_of_the_last_target),
        cmocka_unit_test(test_active_probes),
        cmocka_unit_test(test_active_probes_that_lie),
        cmocka_unit_test(test_active_probes_wait_as_asked),
        cmocka_unit_test(test_breaker_that_never_opens),
        cmocka_unit_test(test_breaker_on_slow_answers),
        cmocka_unit_test(test_good_answers_open_no_breaker),
        cmocka_unit_test(test_breaker_forgets_with_time),
        cmocka_unit_test(test_budget_of_repeats),
        cmocka_unit_test(test_breaker_at_random),
        cmocka_unit_test(test_replicas_share_and_stay),
        cmocka_unit_test(test_replicas_bound_the_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
