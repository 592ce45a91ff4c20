/* The scheduler's own thread: jobs from many threads at once, cancels while they run, closing at any moment, sleep
 * where there is nothing to do. On the engine without a model, so that it is all about threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <pthread.h>

#include "tests/unit_engine/schedule/stage.h"

enum { THREADS = 4, EACH = 40 };

static void nap(uint64_t us) {
    (void)nanosleep(&(struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000}, NULL);
}

static void await(job_ear *e) {
    while (!atomic_load(&e->ends)) nap(200);
}

static void open_threaded(stage *g) {
    lar_diag d = {0};
    if (!g->engine_options.pages) g->engine_options.pages = 32;
    g->engine_options.pass_tokens = 128;
    g->options.sequences_max = 4;
    g->options.gap_ms = 50;
    if (!g->options.queue_max) g->options.queue_max = 1000;
    g->engine = stub_engine_open(&g->engine_options);
    g->options.engine = g->engine;
    if (lar_scheduler_open(&g->options, &g->scheduler, &d)) fail_msg("%s", d.text);
}

static void close_threaded(stage *g) {
    lar_scheduler_close(g->scheduler);
    stub_engine_close(g->engine);
}

typedef struct client {
    stage *g;
    pthread_t thread;
    uint32_t seed;
    bool cancels, waits;
    stage_request requests[EACH];
    job_ear ears[EACH];
    bool submitted[EACH];
} client;

static client clients[THREADS];

static void *client_main(void *arg) {
    client *c = arg;
    for (uint32_t i = 0; i < EACH; i++) {
        lar_diag d = {0};
        c->seed = c->seed * 1664525 + 1013904223;
        uint32_t r = c->seed >> 8;
        stage_request_make(&c->requests[i], r % 50, 1 + r % 200, 1 + r / 200 % 60);
        c->requests[i].r.tenant = (uint64_t)(c - clients);
        c->requests[i].r.samples = 1 + (r % 7 == 0);
        c->submitted[i] = !stage_try(c->g, &c->requests[i], &c->ears[i], &d);
        if (c->cancels && r % 3 == 0) lar_scheduler_cancel(c->g->scheduler, c->ears[r / 3 % (i + 1)].ticket.id);
        if (c->waits && c->submitted[i] && r % 5 == 0) await(&c->ears[i]);
        if (r % 11 == 0) (void)lar_scheduler_counts_of(c->g->scheduler);
    }
    return NULL;
}

static void start_clients(stage *g, uint32_t seed, bool cancels, bool waits) {
    for (uint32_t i = 0; i < THREADS; i++) {
        memset(&clients[i], 0, sizeof clients[i]);
        clients[i].g = g, clients[i].seed = seed + i, clients[i].cancels = cancels, clients[i].waits = waits;
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]), 0);
    }
}

static void join_clients(void) {
    for (uint32_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
}

static void check_clients(lar_error other) {
    for (uint32_t t = 0; t < THREADS; t++)
        for (uint32_t i = 0; i < EACH; i++) {
            const client *c = &clients[t];
            assert_int_equal(c->ears[i].ends, c->submitted[i]);
            if (!c->submitted[i]) continue;
            stage_check_begun(&c->requests[i], &c->ears[i]);
            if (!c->ears[i].end.error) stage_check_answers(&c->requests[i], &c->ears[i]);
            else if (c->ears[i].end.error != LAR_CLIENT_GONE) assert_int_equal(c->ears[i].end.error, other);
        }
}

static void await_all(void) {
    for (uint32_t t = 0; t < THREADS; t++)
        for (uint32_t i = 0; i < EACH; i++)
            if (clients[t].submitted[i]) await(&clients[t].ears[i]);
}

static void many_threads_are_answered(void **state) {
    (void)state;
    stage g = {.engine_options = {.keeps = true}};
    open_threaded(&g);
    start_clients(&g, 1, false, true);
    join_clients();
    await_all();
    check_clients(LAR_OK);
    assert_int_equal(lar_scheduler_counts_of(g.scheduler).jobs, THREADS * EACH);
    close_threaded(&g);
}

static void submits_and_cancels_hammer(void **state) {
    (void)state;
    stage g = {.engine_options = {.pages = 12}, .options = {.queue_max = 30}};
    open_threaded(&g);
    for (uint32_t n = 0; n < 3; n++) {
        start_clients(&g, 7 + n * 10, true, n == 1);
        join_clients();
        await_all();
        check_clients(LAR_OK);
    }
    close_threaded(&g);
}

/* What was queued or under way ends with SHUTDOWN. Nobody submits while it closes: that is the caller's to see to. */
static void closing_at_any_moment(void **state) {
    (void)state;
    for (uint32_t n = 0; n < 30; n++) {
        stage g = {.engine_options = {.keeps = n % 2}};
        open_threaded(&g);
        start_clients(&g, 100 + n * 10, true, false);
        join_clients();
        nap(n * 100);
        close_threaded(&g);
        check_clients(LAR_SHUTDOWN);
    }
}

/* No processor time goes by while there is nothing to do. */
static void nothing_spins(void **state) {
    (void)state;
    struct timespec before, after;
    stage g = {0};
    static stage_request q;
    job_ear ear = {0};
    open_threaded(&g);
    stage_request_make(&q, 1, 100, 5);
    stage_submit(&g, &q, &ear);
    await(&ear);
    nap(50000);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nap(400000);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t us = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    assert_true(us < 100000);
    close_threaded(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_are_answered),
        cmocka_unit_test(submits_and_cancels_hammer),
        cmocka_unit_test(closing_at_any_moment),
        cmocka_unit_test(nothing_spins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
