/* Rounds of the scheduler on an engine without a model, with the clock in the test's hand: what is answered is what the
 * same request is answered alone, whatever else goes on. Numbers such as E-20: docs/reports.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit_engine/schedule/stage.h"

enum { MANY = 128 };
static stage_request requests[MANY];
static job_ear ears[MANY];

static int clean(void **state) {
    (void)state;
    memset(ears, 0, sizeof ears);
    return 0;
}

/* Request i, submitted, its ear listening. */
static void submit(stage *g, uint32_t i) { stage_submit(g, &requests[i], &ears[i]); }

static void submit_plain(stage *g, uint32_t i, uint32_t count, uint32_t answer_max) {
    stage_request_make(&requests[i], i + 1, count, answer_max);
    submit(g, i);
}

static lar_scheduler_counts counts(const stage *g) { return lar_scheduler_counts_of(g->scheduler); }

/* -- answers ----------------------------------------------------------------------------------------------------- */

static void one_request_is_answered(void **state) {
    (void)state;
    stage g = {0};
    stage_open(&g);
    submit_plain(&g, 0, 100, 20);
    assert_int_equal(counts(&g).waiting, 1);
    stage_play(&g);
    stage_check_answers(&requests[0], &ears[0]);
    assert_int_equal(ears[0].begins, 1);
    assert_int_equal(ears[0].end.answer_tokens, 20);
    assert_int_equal(stub_tokens(g.engine), 100 + 19); /* the last token is told and not computed */
    lar_scheduler_counts c = counts(&g);
    assert_int_equal(c.jobs, 1);
    assert_int_equal(c.prompt_tokens, 100);
    assert_int_equal(c.answer_tokens, 20);
    assert_int_equal(c.steps, stub_steps(g.engine));
    assert_int_equal(c.waiting + c.prefilling + c.decoding, 0);
    assert_int_equal(c.pages.held, 0);
    stage_close(&g);
}

static void answers_end_as_they_should(void **state) {
    (void)state;
    static uint32_t ends[] = {3, 40, 41, 42, 77};
    stage g = {0};
    uint32_t stopped = 0;
    stage_open(&g);
    for (uint32_t i = 0; i < 20; i++) {
        stage_request_make(&requests[i], i + 1, 10 + i * 9, 30);
        requests[i].r.ends = ends, requests[i].r.end_count = 5;
        if (i % 4 == 1) ears[i].stop_at = 3; /* said by on_token */
        submit(&g, i);
    }
    stage_play(&g);
    for (uint32_t i = 0; i < 20; i++) {
        stage_check_answers(&requests[i], &ears[i]);
        stopped += ears[i].reasons[0] == LAR_JOB_STOP;
    }
    assert_true(stopped > 3);
    stage_close(&g);
}

static void samples_share_one_prompt(void **state) {
    (void)state;
    static uint32_t ends[] = {1, 2, 3, 4};
    stage g = {.options = {.sequences_max = 8}};
    stage_open(&g);
    for (uint32_t i = 0; i < 3; i++) { /* at a page's end, before and behind it */
        clean(NULL);
        uint64_t before = stub_tokens(g.engine), answers = 0;
        stage_request_make(&requests[0], i + 5, 127 + i, 60);
        requests[0].r.samples = 5, requests[0].r.ends = ends, requests[0].r.end_count = 4;
        submit(&g, 0);
        stage_play(&g);
        stage_check_answers(&requests[0], &ears[0]);
        for (uint32_t k = 0; k < 5; k++)
            answers += ears[0].counts[k] - (ears[0].reasons[k] == LAR_JOB_LENGTH); /* the last is not computed */
        assert_int_equal(stub_tokens(g.engine) - before, 127 + i + answers);
        assert_true(memcmp(ears[0].ids[0], ears[0].ids[1], 20) != 0);
    }
    stage_close(&g);
}

static void random_request(uint32_t i, uint32_t n, uint32_t *seed) {
    static uint32_t ends[] = {11, 12};
    *seed = *seed * 1664525 + 1013904223;
    uint32_t r = *seed >> 8;
    stage_request_make(&requests[i], i + n * 1000, 1 + r % 300, 1 + r / 300 % 150);
    requests[i].r.tenant = r / 7 % 3;
    requests[i].r.samples = r % 5 ? 1 : 1 + r / 11 % 3;
    if (r % 3) requests[i].r.ends = ends, requests[i].r.end_count = 2;
    if (r % 4 == 0) requests[i].r.sampling.temperature = 0;
    if (r % 4 == 1) requests[i].r.sampling.repetition = 1.3;
    requests[i].r.scope.bytes[0] = (uint8_t)(r / 13 % 2);
    if (r % 2) memcpy(requests[i].ids, requests[0].ids, (r / 17 % 250 + 1) * sizeof(uint32_t)); /* a common beginning */
}

/* E-17, E-23: more requests than sequences, pages for few of them: each is answered as if it were alone. */
static void company_changes_no_answer(void **state) {
    (void)state;
    static const struct {
        uint32_t pages, sequences, pass;
        bool keeps;
    } ways[] = {{512, 4, 512, false}, {24, 16, 512, false}, {24, 16, 7, true}, {40, 6, 64, true}, {18, 3, 512, true}};
    uint32_t seed = 1;
    uint64_t preempted = 0, cached = 0;
    for (uint32_t n = 0; n < sizeof ways / sizeof *ways; n++) {
        stage g = {.engine_options = {.pages = ways[n].pages, .pass_tokens = ways[n].pass, .keeps = ways[n].keeps},
                   .options = {.sequences_max = ways[n].sequences, .gap_ms = 1 + n * 5}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 40; i++) {
            random_request(i, n, &seed);
            submit(&g, i);
            if (i % 3 == 0) stage_rounds(&g, i % 7);
        }
        stage_play(&g);
        for (uint32_t i = 0; i < 40; i++) stage_check_answers(&requests[i], &ears[i]);
        preempted += counts(&g).preempted;
        cached += counts(&g).cached_tokens;
        stage_close(&g);
    }
    assert_true(preempted > 10 && cached > 1000);
}

static void a_kept_prefix_is_not_computed(void **state) {
    (void)state;
    stage g = {.engine_options = {.keeps = true}};
    stage_open(&g);
    submit_plain(&g, 0, 300, 10);
    stage_play(&g);
    uint64_t before = stub_tokens(g.engine);
    memset(&ears[0], 0, sizeof ears[0]);
    submit(&g, 0);
    stage_play(&g);
    stage_check_answers(&requests[0], &ears[0]);
    assert_int_equal(ears[0].end.cached_tokens, 256);
    assert_int_equal(ears[0].begin.cached_tokens, 256);
    assert_int_equal(stub_tokens(g.engine) - before, 300 - 256 + 9);
    /* Another scope, another computation. */
    memset(&ears[0], 0, sizeof ears[0]);
    requests[0].r.scope.bytes[5] = 1;
    submit(&g, 0);
    stage_play(&g);
    assert_int_equal(ears[0].end.cached_tokens, 0);
    stage_close(&g);
}

/* -- pages ------------------------------------------------------------------------------------------------------- */

/* E-19 */
static void what_never_fits_is_refused_and_the_next_runs(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 15}};
    lar_diag d = {0};
    stage_open(&g);
    stage_request_make(&requests[0], 1, 2000, 10);
    assert_int_equal(stage_try(&g, &requests[0], &ears[0], &d), LAR_LIMIT);
    stage_close(&g);
    g = (stage){.engine_options = {.pages = 15}, .options = {.context_max = 4000}};
    stage_open(&g);
    assert_int_equal(stage_try(&g, &requests[0], &ears[0], &d), LAR_FULL);
    assert_non_null(strstr(d.text, "15 of 64"));
    assert_int_equal(ears[0].ticket.id, 0);
    submit_plain(&g, 1, 50, 5);
    stage_play(&g);
    stage_check_answers(&requests[1], &ears[1]);
    assert_int_equal(ears[0].begins + ears[0].ends, 0);
    assert_int_equal(counts(&g).refused, 1);
    stage_close(&g);
}

/* E-20 */
static void four_that_need_six_of_eight_pages_all_end(void **state) {
    (void)state;
    const uint32_t prompts[] = {10, 64, 150, 250, 320};
    for (uint32_t n = 0; n < 5; n++)
        for (uint32_t keeps = 0; keeps < 2; keeps++) {
            stage g = {.engine_options = {.pages = 8, .keeps = keeps}};
            clean(NULL);
            stage_open(&g);
            for (uint32_t i = 0; i < 4; i++) submit_plain(&g, i, prompts[n], 384 - prompts[n]);
            stage_play(&g);
            for (uint32_t i = 0; i < 4; i++) {
                stage_check_answers(&requests[i], &ears[i]);
                assert_true(ears[i].end.preempted <= 4);
                /* In order: the oldest is never taken back. */
                if (i == 0) assert_int_equal(ears[i].end.preempted, 0);
            }
            stage_close(&g);
        }
}

/* A job is taken back a number of times that grows with the logarithm of the pages, not with the length of answers. */
static void evictions_are_bounded(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 66}, .options = {.sequences_max = 8, .context_max = 4000}};
    stage_open(&g);
    for (uint32_t i = 0; i < 40; i++) submit_plain(&g, i, 3 + i, 500);
    stage_play(&g);
    for (uint32_t i = 0; i < 40; i++) {
        stage_check_answers(&requests[i], &ears[i]);
        assert_true(ears[i].end.preempted <= 7);
    }
    stage_close(&g);
}

static void samples_are_preempted_and_go_on(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 14}, .options = {.sequences_max = 8}};
    stage_open(&g);
    for (uint32_t i = 0; i < 6; i++) {
        stage_request_make(&requests[i], i + 1, 60 + 30 * i, 100);
        requests[i].r.samples = 1 + i % 3;
        submit(&g, i);
    }
    stage_play(&g);
    for (uint32_t i = 0; i < 6; i++) stage_check_answers(&requests[i], &ears[i]);
    assert_true(counts(&g).preempted > 0);
    stage_close(&g);
}

/* Answers without a limit end where the pages do, to the last token, whatever was kept and pinned before. */
static void answers_without_a_limit_fill_all_pages(void **state) {
    (void)state;
    const struct {
        uint32_t samples, prompt, most;
    } rows[] = {{1, 70, 9 * 64 - 70}, {3, 70, 2 * 64 - 6}, {3, 64, 2 * 64}, {8, 1, 63}, {2, 255, 3 * 64 - 63}};
    for (uint32_t keeps = 0; keeps < 2; keeps++)
        for (uint32_t i = 0; i < 5; i++) {
            stage g = {.engine_options = {.pages = 9, .keeps = keeps, .pinned = 3 * keeps},
                       .options = {.sequences_max = 8}};
            clean(NULL);
            stage_open(&g);
            submit_plain(&g, 1, 200, 50);
            stage_play(&g);
            stage_request_make(&requests[0], i + 3, rows[i].prompt, 0);
            requests[0].r.samples = rows[i].samples;
            submit(&g, 0);
            submit_plain(&g, 2, 100, 100);
            stage_play(&g);
            requests[0].r.answer_max = rows[i].most < EAR_TOKENS_MAX ? rows[i].most : EAR_TOKENS_MAX;
            stage_check_answers(&requests[0], &ears[0]);
            stage_check_answers(&requests[2], &ears[2]);
            stage_close(&g);
        }
}

/* A pin is respected while anything can run with it, and no longer: nothing waits for its end. */
static void pins_do_not_stop_the_work(void **state) {
    (void)state;
    const uint32_t prompts[] = {200, 300};
    for (uint32_t n = 0; n < 2; n++) { /* grows beyond what is not pinned; could not even start */
        stage g = {.engine_options = {.pages = 8, .pinned = 4}};
        clean(NULL);
        stage_open(&g);
        submit_plain(&g, 0, 40, 20);
        submit_plain(&g, 1, 50, 60);
        stage_play(&g);
        assert_int_equal(counts(&g).prefixes.pinned, 4);
        submit_plain(&g, 2, prompts[n], 200);
        submit_plain(&g, 3, 300, 20);
        stage_play(&g);
        for (uint32_t i = 0; i < 4; i++) stage_check_answers(&requests[i], &ears[i]);
        assert_int_equal(counts(&g).prefixes.pinned, 0);
        stage_close(&g);
    }
}

/* -- cancels ----------------------------------------------------------------------------------------------------- */

static void cancel(stage *g, uint32_t i) { lar_scheduler_cancel(g->scheduler, ears[i].ticket.id); }

/* E-01, E-02: at every step of a life, from the queue to the last token; then one more request runs, with all pages. */
static void a_cancel_takes_one_round_wherever_the_job_is(void **state) {
    (void)state;
    for (uint32_t at = 0; at < 60; at++) {
        stage g = {.engine_options = {.pages = 14, .pass_tokens = 30}, .options = {.sequences_max = 5}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 4; i++) {
            stage_request_make(&requests[i], i + 1, 100 + 10 * i, 40);
            requests[i].r.samples = i == 2 ? 3 : 1;
            submit(&g, i);
        }
        stage_rounds(&g, at);
        bool ended = ears[2].ends;
        cancel(&g, 2);
        cancel(&g, 2);
        stage_rounds(&g, 1);
        assert_true(ears[2].ends);
        assert_int_equal(ears[2].end.error, ended ? LAR_OK : LAR_CLIENT_GONE);
        stage_check_begun(&requests[2], &ears[2]);
        cancel(&g, 2); /* after its end */
        lar_scheduler_cancel(g.scheduler, 0);
        lar_scheduler_cancel(g.scheduler, UINT64_MAX);
        stage_play(&g);
        for (uint32_t i = 0; i < 4; i++)
            if (i != 2) stage_check_answers(&requests[i], &ears[i]);
        assert_int_equal(counts(&g).cancelled, !ended);
        assert_int_equal(counts(&g).pages.held, 0);
        stage_close(&g);
    }
}

/* E-03: those that are gone while they wait are not run. */
static void who_left_the_queue_is_not_computed(void **state) {
    (void)state;
    stage g = {.options = {.sequences_max = 1}};
    stage_open(&g);
    for (uint32_t i = 0; i < 4; i++) submit_plain(&g, i, 100, 10);
    stage_rounds(&g, 2);
    cancel(&g, 1), cancel(&g, 2);
    stage_rounds(&g, 1);
    stage_check_end(&ears[1], LAR_CLIENT_GONE);
    stage_check_end(&ears[2], LAR_CLIENT_GONE);
    assert_int_equal(counts(&g).waiting, 1);
    stage_play(&g);
    stage_check_answers(&requests[3], &ears[3]);
    assert_int_equal(stub_tokens(g.engine), 2 * 109);
    stage_close(&g);
}

/* E-04, E-24: aborts at random moments, and each time one that must not notice. */
static void what_was_aborted_leaves_nothing(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 12, .keeps = true, .pass_tokens = 50}, .options = {.sequences_max = 2}};
    uint32_t seed = 3;
    stage_open(&g);
    for (uint32_t i = 0; i < 200; i++) {
        clean(NULL);
        seed = seed * 1664525 + 1013904223;
        submit_plain(&g, 0, 90 + seed % 101, 50);
        stage_rounds(&g, seed / 101 % 40);
        cancel(&g, 0);
        submit_plain(&g, 1, 70 + i % 60, 20);
        stage_play(&g);
        stage_check_answers(&requests[1], &ears[1]);
        stage_check_begun(&requests[0], &ears[0]);
    }
    stage_close(&g);
}

typedef struct meddler {
    stage *g;
    uint32_t submitted;
} meddler;

/* A callback cancels its own job and another's, and submits a third. */
static void meddle(job_ear *e) {
    meddler *m = e->context;
    if (e->counts[0] != 5) return;
    cancel(m->g, 0), cancel(m->g, 1);
    submit_plain(m->g, 2 + m->submitted++, 30, 10);
}

static void callbacks_may_submit_and_cancel(void **state) {
    (void)state;
    stage g = {0};
    meddler m = {.g = &g};
    stage_open(&g);
    ears[0].on_token = meddle, ears[0].context = &m;
    submit_plain(&g, 0, 20, 100);
    submit_plain(&g, 1, 20, 100);
    stage_play(&g);
    stage_check_end(&ears[0], LAR_CLIENT_GONE);
    stage_check_end(&ears[1], LAR_CLIENT_GONE);
    assert_int_equal(ears[0].end.answer_tokens, 5);
    stage_check_answers(&requests[2], &ears[2]);
    stage_close(&g);
}

/* -- the queue --------------------------------------------------------------------------------------------------- */

static void a_full_queue_says_when_to_come_back(void **state) {
    (void)state;
    stage g = {.engine_options = {.pass_us = 20000, .token_us = 1000}, .options = {.sequences_max = 1, .queue_max = 3}};
    lar_diag d = {0};
    stage_open(&g);
    submit_plain(&g, 0, 20, 10);
    stage_rounds(&g, 1);
    for (uint32_t i = 1; i < 4; i++) submit_plain(&g, i, 20, 10);
    stage_request_make(&requests[4], 5, 20, 10);
    assert_int_equal(stage_try(&g, &requests[4], &ears[4], &d), LAR_BUSY);
    assert_non_null(strstr(d.text, "3 requests are waiting"));
    assert_in_range(ears[4].ticket.retry_ms, 100, 60000);
    while (!ears[1].ends) stage_rounds(&g, 1);
    submit(&g, 4);
    /* By now it is known what a job takes: about 2 steps of a prompt and 9 of an answer, 20 ms each. */
    assert_int_equal(stage_try(&g, &requests[5], &ears[5], &d), LAR_INVALID); /* an empty one */
    assert_int_equal(ears[5].ticket.retry_ms, 0);
    stage_request_make(&requests[5], 6, 20, 10);
    assert_int_equal(stage_try(&g, &requests[5], &ears[5], &d), LAR_BUSY);
    assert_in_range(ears[5].ticket.retry_ms, 150, 500);
    stage_play(&g);
    for (uint32_t i = 0; i < 5; i++) stage_check_answers(&requests[i], &ears[i]);
    assert_int_equal(ears[5].begins + ears[5].ends, 0);
    stage_close(&g);
}

static void who_waits_too_long_is_told(void **state) {
    (void)state;
    stage g = {.engine_options = {.pass_us = 50000}, .options = {.sequences_max = 1, .queue_ms_max = 900}};
    stage_open(&g);
    submit_plain(&g, 0, 20, 40); /* 2 s */
    submit_plain(&g, 1, 20, 5);
    stage_request_make(&requests[2], 3, 20, 5);
    requests[2].r.queue_ms_max = 100; /* its own */
    submit(&g, 2);
    stage_request_make(&requests[3], 4, 20, 5);
    requests[3].r.queue_ms_max = 60000;
    submit(&g, 3);
    stage_play(&g);
    stage_check_answers(&requests[0], &ears[0]);
    stage_check_end(&ears[1], LAR_BUSY);
    stage_check_end(&ears[2], LAR_BUSY);
    assert_in_range(ears[1].end.queued_us, 900000, 960000);
    assert_in_range(ears[2].end.queued_us, 100000, 160000);
    assert_non_null(strstr(ears[1].detail, "waited for 9"));
    stage_check_answers(&requests[3], &ears[3]);
    assert_true(ears[3].end.queued_us > 1900000);
    stage_close(&g);
}

static void closing_ends_jobs_in_every_state(void **state) {
    (void)state;
    for (uint32_t at = 0; at < 40; at++) {
        stage g = {.engine_options = {.pages = 10, .pass_tokens = 40}, .options = {.sequences_max = 5}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 8; i++) {
            stage_request_make(&requests[i], i + 1, 60 + 20 * i, 60);
            requests[i].r.samples = 1 + (i == 1);
            submit(&g, i);
        }
        stage_rounds(&g, at * 2);
        stage_close(&g);
        for (uint32_t i = 0; i < 8; i++)
            if (!ears[i].ends || (ears[i].end.error && ears[i].end.error != LAR_SHUTDOWN))
                fail_msg("at %u: job %u: %s", at, i, lar_error_name(ears[i].end.error));
    }
}

/* -- fairness ---------------------------------------------------------------------------------------------------- */

static uint32_t ended_count(uint32_t from, uint32_t to) {
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) n += ears[i].ends != 0;
    return n;
}

static void a_hundred_requests_of_one_delay_no_other(void **state) {
    (void)state;
    stage g = {.options = {.sequences_max = 2, .queue_max = 120}};
    stage_open(&g);
    for (uint32_t i = 0; i < 100; i++) submit_plain(&g, i, 50, 20);
    stage_rounds(&g, 100);
    uint32_t before = ended_count(0, 100);
    for (uint32_t i = 100; i < 103; i++) {
        stage_request_make(&requests[i], i + 1, 50, 20);
        requests[i].r.tenant = 9;
        submit(&g, i);
    }
    while (!ears[100].ends) stage_rounds(&g, 1);
    /* Those that were under way, and at most one more. */
    assert_true(ended_count(0, 100) - before <= 3);
    while (!ears[102].ends) stage_rounds(&g, 1);
    assert_true(ended_count(0, 100) - before <= 6); /* turn by turn */
    stage_play(&g);
    for (uint32_t i = 0; i < 103; i++) stage_check_answers(&requests[i], &ears[i]);
    stage_close(&g);
}

static void one_tenants_requests_begin_in_order(void **state) {
    (void)state;
    stage g = {.options = {.sequences_max = 3}};
    stage_open(&g);
    for (uint32_t i = 0; i < 30; i++) submit_plain(&g, i, 20 + i * 37 % 200, 5);
    stage_play(&g);
    for (uint32_t i = 1; i < 30; i++) assert_true(ears[i].end.queued_us >= ears[i - 1].end.queued_us);
    stage_close(&g);
}

/* A big request is passed by no smaller one, so it starts as soon as there are pages. */
static void a_big_request_does_not_starve(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 20}, .options = {.sequences_max = 8}};
    stage_open(&g);
    for (uint32_t i = 0; i < 4; i++) submit_plain(&g, i, 200, 30);
    submit_plain(&g, 4, 1000, 10);
    for (uint32_t i = 5; i < 40; i++) submit_plain(&g, i, 60, 30);
    while (!ears[4].begins) stage_rounds(&g, 1);
    assert_int_equal(ended_count(5, 40), 0);
    stage_play(&g);
    for (uint32_t i = 0; i < 40; i++) stage_check_answers(&requests[i], &ears[i]);
    stage_close(&g);
}

/* -- gaps -------------------------------------------------------------------------------------------------------- */

/* A long prompt beside a stream: 27 ms a step for four tokens, 2 ms a token, and more with the position. */
static void a_long_prompt_keeps_to_the_gap(void **state) {
    (void)state;
    const uint32_t gaps[] = {60, 200, 1500};
    for (uint32_t n = 0; n < 3; n++) {
        stage g = {.engine_options = {.pages = 800, .pass_us = 20000, .token_us = 2000, .row_us = 0.3},
                   .options = {.sequences_max = 8, .gap_ms = gaps[n]}};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < 3; i++) submit_plain(&g, i, 20, 500);
        stage_rounds(&g, 40);
        submit_plain(&g, 3, 4000, 5);
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(ears[i].ends, 0);
        stage_play(&g);
        for (uint32_t i = 0; i < 4; i++) stage_check_answers(&requests[i], &ears[i]);
        uint64_t gap = counts(&g).gap_us_max, decode = 20000 + 3 * (2000 + 200);
        if (gap > decode + gaps[n] * 1000) fail_msg("a gap of %llu us", (unsigned long long)gap);
        /* And uses it: the prompt is read in not much more time than its tokens take. */
        double least = 4000 * (2000 + 0.3 * 2000);
        assert_true((double)ears[3].end.prefill_us < least * (1 + 2.0 * (double)decode / (gaps[n] * 750)));
        stage_close(&g);
    }
}

/* Where passes take up to four times what others do, few gaps are too long. */
static void noise_makes_few_gaps_too_long(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 800, .noise = 3}, .options = {.gap_ms = 40}};
    uint32_t over = 0, steps = 0;
    stage_open(&g);
    submit_plain(&g, 0, 20, 500);
    stage_rounds(&g, 10);
    for (submit_plain(&g, 1, 4000, 1); !ears[1].begins; steps++) {
        stage_rounds(&g, 1);
        over += stub_last_step(g.engine)->us > 44000;
    }
    if (steps < 25 || over > steps * 12 / 100) fail_msg("%u of %u", over, steps);
    stage_close(&g);
}

/* Where a token takes longer than the gap, a prompt still goes on. */
static void a_prompt_goes_on_whatever_the_gap(void **state) {
    (void)state;
    stage g = {.engine_options = {.pass_us = 5000, .token_us = 5000}, .options = {.gap_ms = 1}};
    stage_open(&g);
    submit_plain(&g, 0, 10, 300);
    stage_rounds(&g, 3);
    submit_plain(&g, 1, 100, 3);
    stage_play(&g);
    stage_check_answers(&requests[1], &ears[1]);
    assert_true(ears[1].end.prefill_us < 101 * 15000);
    stage_close(&g);
}

static void a_short_prompt_passes_a_long_one(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 800, .pass_us = 20000, .token_us = 2000}};
    stage_open(&g);
    submit_plain(&g, 0, 4000, 3);
    stage_rounds(&g, 4);
    submit_plain(&g, 1, 100, 3);
    while (!ears[1].ends) stage_rounds(&g, 1);
    assert_true(!ears[0].begins && ears[1].end.prefill_us < 1500000);
    stage_play(&g);
    stage_check_answers(&requests[0], &ears[0]);
    stage_close(&g);
}

/* While nobody decodes a step still ends soon: who cancels, or comes, waits no longer. */
static void steps_without_streams_are_bounded_too(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 200, .pass_us = 1000, .token_us = 10000}};
    stage_open(&g);
    submit_plain(&g, 0, 4000, 3);
    for (uint32_t i = 0; i < 30; i++) {
        stage_rounds(&g, 1);
        assert_true(stub_last_step(g.engine)->us < 1.3 * LAR_ROUND_IDLE_BUDGET_US);
    }
    assert_true(stub_last_step(g.engine)->us > 0.5 * LAR_ROUND_IDLE_BUDGET_US);
    stage_close(&g);
}

/* -- what goes wrong --------------------------------------------------------------------------------------------- */

/* E-21's kind: one whose logits are no numbers ends, and nobody else notices. */
static void logits_that_are_no_numbers_end_one_job(void **state) {
    (void)state;
    stage g = {0};
    stage_open(&g);
    for (uint32_t i = 0; i < 4; i++) {
        stage_request_make(&requests[i], i + 1, 40, 20);
        if (i == 1) requests[i].ids[39] = STUB_BAD_ID;
        if (i == 3) requests[i].ids[39] = STUB_BAD_ID, requests[i].r.samples = 2, requests[i].r.tenant = 4;
        submit(&g, i);
    }
    stage_play(&g);
    stage_check_end(&ears[1], LAR_INVALID);
    stage_check_end(&ears[3], LAR_INVALID);
    assert_non_null(strstr(ears[1].detail, "not finite"));
    stage_check_answers(&requests[0], &ears[0]);
    stage_check_answers(&requests[2], &ears[2]);
    stage_close(&g);
}

static void a_failed_step_ends_those_in_it(void **state) {
    (void)state;
    stage g = {.options = {.sequences_max = 2}};
    stage_open(&g);
    for (uint32_t i = 0; i < 4; i++) submit_plain(&g, i, 40, 20);
    stage_rounds(&g, 8);
    stub_fail_next(g.engine, LAR_IO);
    stage_play(&g);
    for (uint32_t i = 0; i < 2; i++) {
        stage_check_end(&ears[i], LAR_IO);
        assert_string_equal(ears[i].detail, "the stub was told to fail");
        stage_check_begun(&requests[i], &ears[i]);
    }
    for (uint32_t i = 2; i < 4; i++) stage_check_answers(&requests[i], &ears[i]);
    stage_close(&g);
}

static void options_are_checked(void **state) {
    (void)state;
    stub_options e = {.pages = 8, .pass_tokens = 8};
    lar_scheduler_options good = {.sequences_max = 1, .queue_max = 1, .gap_ms = 1};
    lar_scheduler *s;
    lar_diag d = {0};
    good.engine = stub_engine_open(&e);
    lar_scheduler_options o = good;
    o.sequences_max = 0, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    o.sequences_max = 100000, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    o.queue_max = 0, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    o.gap_ms = 0, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    o.niceness = 20, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    o.niceness = -1, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    o.context_max = STUB_CONTEXT + 1, assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID), o = good;
    assert_null(s);
    e.pages = 0;
    o.engine = stub_engine_open(&e);
    assert_int_equal(lar_scheduler_open(&o, &s, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "page_bytes"));
}

/* -- at random --------------------------------------------------------------------------------------------------- */

/* Submits, cancels and waits as they come; at the end all are told, none twice, none of another's. */
static void whatever_comes_each_ends_once(void **state) {
    (void)state;
    uint32_t seed = 9;
    for (uint32_t n = 0; n < 8; n++) {
        stage g = {.engine_options = {.pages = 16 + 8 * n, .pass_tokens = n % 2 ? 512 : 20, .keeps = n % 3 != 0},
                   .options = {.sequences_max = 3 + n, .queue_max = 20, .queue_ms_max = n % 4 ? 0 : 400}};
        bool submitted[MANY] = {false};
        clean(NULL);
        stage_open(&g);
        for (uint32_t i = 0; i < MANY; i++) {
            lar_diag d = {0};
            random_request(i, n, &seed);
            submitted[i] = !stage_try(&g, &requests[i], &ears[i], &d);
            stage_rounds(&g, seed / 3 % 24);
            if (seed % 5 == 0) cancel(&g, seed / 5 % (i + 1));
            if (seed % 11 == 0) stub_sleep(50000);
        }
        stage_play(&g);
        for (uint32_t i = 0; i < MANY; i++) {
            assert_int_equal(ears[i].ends, submitted[i]);
            if (!submitted[i]) continue;
            stage_check_begun(&requests[i], &ears[i]);
            if (!ears[i].end.error) stage_check_answers(&requests[i], &ears[i]);
        }
        stage_close(&g);
    }
}

/* -- memory ------------------------------------------------------------------------------------------------------ */

/* The allocator, counted and made to fail (link option --wrap). */
static uint64_t allocations, failing; /* the failing-th from now; 0: none */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
static bool fails(void) { return allocations++, failing && !--failing; }
void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }

static void a_step_allocates_nothing(void **state) {
    (void)state;
    stage g = {.engine_options = {.keeps = true}};
    stage_open(&g);
    submit_plain(&g, 0, 300, 200);
    stage_rounds(&g, 1); /* starts */
    submit_plain(&g, 1, 200, 200);
    stage_rounds(&g, 1);
    allocations = 0;
    stage_rounds(&g, 150);
    assert_int_equal(allocations, 0);
    assert_true(ears[0].counts[0] > 50 && ears[1].counts[0] > 50);
    stage_close(&g);
}

static void want_of_memory_ends_one_job(void **state) {
    (void)state;
    uint32_t failed = 0;
    for (uint64_t at = 1;; at++) {
        stage g = {.engine_options = {.pages = 14}, .options = {.sequences_max = 4}};
        lar_diag d = {0};
        clean(NULL);
        stage_open(&g);
        failing = at;
        for (uint32_t i = 0; i < 4; i++) {
            lar_error e;
            stage_request_make(&requests[i], i + 1, 150, 80);
            requests[i].r.samples = 1 + i % 2;
            e = stage_try(&g, &requests[i], &ears[i], &d);
            if (e) assert_int_equal(e, LAR_NO_MEMORY);
            failed += e != LAR_OK;
        }
        stage_rounds(&g, 100000);
        bool over = failing != 0;
        failing = 0;
        for (uint32_t i = 0; i < 4; i++) {
            if (!ears[i].ticket.id) continue;
            assert_true(ears[i].ends);
            if (ears[i].end.error) stage_check_end(&ears[i], LAR_NO_MEMORY), failed++;
            else stage_check_answers(&requests[i], &ears[i]);
        }
        stage_close(&g);
        if (over) break;
    }
    assert_true(failed > 20);
    for (uint64_t at = 1; at < 12; at++) {
        stub_options e = {.pages = 8, .pass_tokens = 8};
        lar_scheduler_options o = {.engine = stub_engine_open(&e), .sequences_max = 1, .queue_max = 1, .gap_ms = 1};
        lar_scheduler *s;
        lar_diag d = {0};
        failing = at;
        lar_error error = lar_scheduler_make(&o, &s, &d);
        failing = 0;
        assert_true(error == LAR_NO_MEMORY || error == LAR_OK);
        if (!error) lar_scheduler_release(s);
        else assert_null(s);
    }
}

#define T(name) cmocka_unit_test_setup(name, clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(one_request_is_answered),
        T(answers_end_as_they_should),
        T(samples_share_one_prompt),
        T(company_changes_no_answer),
        T(a_kept_prefix_is_not_computed),
        T(what_never_fits_is_refused_and_the_next_runs),
        T(four_that_need_six_of_eight_pages_all_end),
        T(evictions_are_bounded),
        T(samples_are_preempted_and_go_on),
        T(answers_without_a_limit_fill_all_pages),
        T(pins_do_not_stop_the_work),
        T(a_cancel_takes_one_round_wherever_the_job_is),
        T(who_left_the_queue_is_not_computed),
        T(what_was_aborted_leaves_nothing),
        T(callbacks_may_submit_and_cancel),
        T(a_full_queue_says_when_to_come_back),
        T(who_waits_too_long_is_told),
        T(closing_ends_jobs_in_every_state),
        T(a_hundred_requests_of_one_delay_no_other),
        T(one_tenants_requests_begin_in_order),
        T(a_big_request_does_not_starve),
        T(a_long_prompt_keeps_to_the_gap),
        T(noise_makes_few_gaps_too_long),
        T(a_prompt_goes_on_whatever_the_gap),
        T(a_short_prompt_passes_a_long_one),
        T(steps_without_streams_are_bounded_too),
        T(logits_that_are_no_numbers_end_one_job),
        T(a_failed_step_ends_those_in_it),
        T(options_are_checked),
        T(whatever_comes_each_ends_once),
        T(a_step_allocates_nothing),
        T(want_of_memory_ends_one_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
