/* Prompts with a beginning in common that arrive together, on the engine without a model: each page of it is computed
 * once, by the oldest, and taken over by the others; who waits never waits for one that is gone, and answers are those
 * of each request alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit_engine/schedule/stage.h"

enum { MANY = 64 };
static stage_request requests[MANY];
static job_ear ears[MANY];

static int clean(void **state) {
    (void)state;
    memset(ears, 0, sizeof ears);
    return 0;
}

/* Request i: `shared` tokens that all have, and its own behind them. */
static void make(uint32_t i, uint32_t shared, uint32_t count, uint32_t answer_max) {
    static stage_request common;
    stage_request_make(&common, 77, shared, 1);
    stage_request_make(&requests[i], i + 1, count, answer_max);
    memcpy(requests[i].ids, common.ids, shared * sizeof *common.ids);
}

static void submit(stage *g, uint32_t i) { stage_submit(g, &requests[i], &ears[i]); }

static void check_answers(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) stage_check_answers(&requests[i], &ears[i]);
}

static void equal_prompts_are_computed_once(void **state) {
    (void)state;
    const uint32_t lengths[] = {300, 320, 321, 64, 65, 30};
    for (uint32_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (uint32_t pass = 7; pass <= 512; pass *= 8) {
            stage g = {.engine_options = {.keeps = true, .pass_tokens = pass}};
            uint32_t count = lengths[n], whole = (count - 1) / LAR_PAGE_TOKENS * LAR_PAGE_TOKENS;
            clean(NULL);
            stage_open(&g);
            for (uint32_t i = 0; i < 4; i++) make(i, count, count, 10), submit(&g, i);
            stage_play(&g);
            check_answers(4);
            assert_int_equal(stub_tokens(g.engine), count + 3 * (count - whole) + 4 * 9);
            assert_int_equal(ears[0].end.cached_tokens, 0);
            for (uint32_t i = 1; i < 4; i++) {
                assert_int_equal(ears[i].end.cached_tokens, whole);
                assert_int_equal(ears[i].begin.cached_tokens, whole);
            }
            assert_int_equal(lar_scheduler_counts_of(g.scheduler).cached_tokens, 3 * whole);
            stage_close(&g);
        }
}

/* A third of the way through another's prompt, and with more of its own behind what they share. */
static void what_is_shared_is_computed_once(void **state) {
    (void)state;
    stage g = {.engine_options = {.keeps = true, .pass_tokens = 50, .pages = 128}};
    stage_open(&g);
    make(0, 1000, 1000, 5), submit(&g, 0);
    stage_rounds(&g, 8);
    assert_in_range(stub_tokens(g.engine), 100, 900);
    make(1, 700, 900, 5), submit(&g, 1); /* 10 whole pages */
    make(2, 700, 720, 5), submit(&g, 2);
    stage_play(&g);
    check_answers(3);
    assert_int_equal(ears[1].end.cached_tokens, 640);
    assert_int_equal(ears[2].end.cached_tokens, 640);
    assert_int_equal(stub_tokens(g.engine), 1000 + 260 + 80 + 3 * 4);
    stage_close(&g);
}

static void other_scopes_compute_their_own(void **state) {
    (void)state;
    stage g = {.engine_options = {.keeps = true}};
    stage_open(&g);
    for (uint32_t i = 0; i < 4; i++) {
        make(i, 300, 300, 5);
        requests[i].r.scope.bytes[7] = (uint8_t)(i % 2);
        requests[i].r.tenant = i % 2;
        submit(&g, i);
    }
    stage_play(&g);
    check_answers(4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(ears[i].end.cached_tokens, i < 2 ? 0 : 256);
    stage_close(&g);
}

/* Samples, and pages that nobody keeps: what was computed cannot be taken over, and nobody waits for ever. */
static void samples_and_pages_that_are_not_kept(void **state) {
    (void)state;
    for (uint32_t keeps = 0; keeps < 2; keeps++) {
        stage g = {.engine_options = {.keeps = keeps, .pass_tokens = 100}, .options = {.sequences_max = 9}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 3; i++) {
            make(i, 200, 200, 30);
            requests[i].r.samples = 3;
            submit(&g, i);
        }
        stage_play(&g);
        check_answers(3);
        assert_int_equal(ears[2].end.cached_tokens, keeps ? 192 : 0);
        if (keeps) assert_int_equal(stub_tokens(g.engine), 200 + 2 * 8 + 9 * 29);
        stage_close(&g);
    }
}

/* The one that computes is cancelled at each round of its prompt: the next goes on from its last whole page. */
static void who_computes_may_go(void **state) {
    (void)state;
    for (uint32_t at = 0; at < 14; at++) {
        stage g = {.engine_options = {.keeps = true, .pass_tokens = 30}, .options = {.sequences_max = 3}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 3; i++) make(i, 300, 300, 10), submit(&g, i);
        stage_rounds(&g, at);
        lar_scheduler_cancel(g.scheduler, ears[0].ticket.id);
        if (at % 2) lar_scheduler_cancel(g.scheduler, ears[1].ticket.id);
        stage_play(&g);
        for (uint32_t i = 1 + at % 2; i < 3; i++) stage_check_answers(&requests[i], &ears[i]);
        /* The prompt, what of a page was lost with the one that went, and the ends of two. */
        assert_true(stub_tokens(g.engine) <= 300 + 63 + 2 * 44 + 3 * 9);
        assert_int_equal(lar_scheduler_counts_of(g.scheduler).cancelled, 1 + at % 2);
        stage_close(&g);
    }
}

/* Pages for two of five: those that wait are taken back and come again, and all end. */
static void preempted_ones_go_on(void **state) {
    (void)state;
    for (uint32_t pages = 7; pages < 24; pages++) {
        stage g = {.engine_options = {.keeps = true, .pages = pages, .pass_tokens = 20},
                   .options = {.sequences_max = 5}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 5; i++) make(i, 180, 180 + 7 * i, 150), submit(&g, i);
        stage_play(&g);
        check_answers(5);
        stage_close(&g);
    }
}

/* A short prompt shares its beginning with a long one, others are between them: it waits for no more than what it would
 * have computed itself. */
static void a_short_one_waits_no_longer_for_sharing(void **state) {
    (void)state;
    uint64_t prefill_us[2];
    for (uint32_t shares = 0; shares < 2; shares++) {
        stage g = {.engine_options = {.keeps = true, .pages = 1000, .pass_us = 20000, .token_us = 2000},
                   .options = {.sequences_max = 8}};
        clean(NULL);
        stage_open(&g);
        stage_request_make(&requests[1], 40, 4000, 5), submit(&g, 1); /* the oldest: another prompt, a long one */
        make(0, 2000, 4000, 5), submit(&g, 0);
        stage_request_make(&requests[2], 41, 3000, 5), submit(&g, 2);
        make(3, shares ? 190 : 0, 200, 3), submit(&g, 3);
        stage_play(&g);
        check_answers(4);
        assert_int_equal(ears[3].end.cached_tokens, shares ? 128 : 0);
        prefill_us[shares] = ears[3].end.prefill_us;
        stage_close(&g);
    }
    /* Three steps more: the page that it waits for may be computed in two of them, and is taken over in one. */
    if (prefill_us[1] > prefill_us[0] + 3 * LAR_ROUND_IDLE_BUDGET_US)
        fail_msg("%llu us alone, %llu us shared", (unsigned long long)prefill_us[0], (unsigned long long)prefill_us[1]);
}

/* Who comes, goes, and with how many pages, is left to chance; all have the same beginning, some all of it. */
static void whatever_is_shared_each_ends_once(void **state) {
    (void)state;
    uint32_t seed = 5;
    uint64_t cached = 0, preempted = 0;
    for (uint32_t n = 0; n < 10; n++) {
        stage g = {.engine_options = {.keeps = true, .pages = 12 + 3 * n, .pass_tokens = n % 2 ? 512 : 25},
                   .options = {.sequences_max = 2 + n, .gap_ms = 1 + 4 * n}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < MANY; i++) {
            seed = seed * 1664525 + 1013904223;
            uint32_t count = 1 + (seed >> 8) % 400;
            make(i, count - count * (seed >> 20 & 3) / 4, count, 1 + (seed >> 22) % 200);
            requests[i].r.samples = n > 1 && i % 9 == 0 ? 2 : 1;
            requests[i].r.tenant = i % 3;
            submit(&g, i);
            stage_rounds(&g, seed >> 28);
            if (i % 5 == 4) lar_scheduler_cancel(g.scheduler, ears[i - (seed >> 24) % 5].ticket.id);
        }
        stage_play(&g);
        for (uint32_t i = 0; i < MANY; i++) {
            stage_check_begun(&requests[i], &ears[i]);
            if (ears[i].end.error != LAR_CLIENT_GONE) stage_check_answers(&requests[i], &ears[i]);
        }
        cached += lar_scheduler_counts_of(g.scheduler).cached_tokens;
        preempted += lar_scheduler_counts_of(g.scheduler).preempted;
        stage_close(&g);
    }
    assert_true(cached > 10000 && preempted > 10);
}

#define T(name) cmocka_unit_test_setup(name, clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(equal_prompts_are_computed_once),
        T(what_is_shared_is_computed_once),
        T(other_scopes_compute_their_own),
        T(samples_and_pages_that_are_not_kept),
        T(who_computes_may_go),
        T(preempted_ones_go_on),
        T(a_short_one_waits_no_longer_for_sharing),
        T(whatever_is_shared_each_ends_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
