/* Workers: every share is done once, what they wrote is seen, and sleepers wake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the three above first */
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "engine/compute/workers.h"

enum { ITEMS = 1000 };

typedef struct job {
    uint32_t counts[ITEMS];
    uint32_t parts_seen[LAR_WORKERS_MAX];
} job;

static void count_share(void *context, uint32_t part, uint32_t parts) {
    job *j = context;
    uint64_t begin, end;
    lar_workers_share(ITEMS, part, parts, &begin, &end);
    for (uint64_t i = begin; i < end; i++) j->counts[i]++;
    j->parts_seen[part] = parts;
}

static void check_team(uint32_t count, uint32_t rounds, long pause_ns) {
    lar_workers *w = NULL;
    lar_diag d = {0};
    job j;
    memset(&j, 0, sizeof j);
    assert_int_equal(lar_workers_start(count, &w, &d), LAR_OK);
    assert_int_equal(lar_workers_count(w), count);
    for (uint32_t i = 0; i < rounds; i++) {
        lar_workers_run(w, count_share, &j);
        /* plain reads: all shares are complete */
        for (uint32_t k = 0; k < ITEMS; k++) assert_int_equal(j.counts[k], i + 1);
        if (pause_ns) (void)nanosleep(&(struct timespec){0, pause_ns}, NULL);
    }
    for (uint32_t p = 0; p < count; p++) assert_int_equal(j.parts_seen[p], count);
    lar_workers_stop(w);
}

static void every_share_is_done_once(void **state) {
    (void)state;
    check_team(1, 10, 0);
    check_team(2, 1000, 0);
    check_team(3, 300, 0);
    check_team(7, 50, 0);
}

static void sleepers_wake(void **state) {
    (void)state;
    check_team(2, 20, 3000000); /* far longer than they look for work awake */
    check_team(4, 10, 3000000);
}

/* One share takes long: the others, and the caller, sleep until it is done. */
static void slow_share(void *context, uint32_t part, uint32_t parts) {
    uint32_t *done = context;
    if (part == parts - 1) (void)nanosleep(&(struct timespec){0, 20000000}, NULL);
    done[part]++;
}

static void caller_waits_for_the_slowest(void **state) {
    (void)state;
    lar_workers *w = NULL;
    lar_diag d = {0};
    uint32_t done[3] = {0};
    assert_int_equal(lar_workers_start(3, &w, &d), LAR_OK);
    for (uint32_t i = 1; i <= 5; i++) {
        lar_workers_run(w, slow_share, done);
        for (int p = 0; p < 3; p++) assert_int_equal(done[p], i);
    }
    lar_workers_stop(w);
}

static void shares_cover_everything(void **state) {
    (void)state;
    for (uint64_t total = 0; total < 40; total++)
        for (uint32_t parts = 1; parts < 9; parts++) {
            uint64_t at = 0, begin, end;
            for (uint32_t p = 0; p < parts; p++) {
                lar_workers_share(total, p, parts, &begin, &end);
                assert_true(begin == at && end >= begin && end - begin <= total / parts + 1);
                at = end;
            }
            assert_true(at == total);
        }
}

/* Items are counted, and one of them holds its worker up. */
typedef struct each_job {
    uint32_t counts[ITEMS];
    uint64_t slow; /* ITEMS: none */
} each_job;

static void count_item(void *context, uint64_t item) {
    each_job *j = context;
    if (item == j->slow) (void)nanosleep(&(struct timespec){0, 5000000}, NULL);
    j->counts[item]++;
}

static void every_item_is_done_once(void **state) {
    (void)state;
    static each_job j;
    lar_diag d = {0};
    for (uint32_t count = 1; count < 6; count++) {
        lar_workers *w = NULL;
        assert_int_equal(lar_workers_start(count, &w, &d), LAR_OK);
        for (uint64_t total = 0; total <= ITEMS; total += total < 12 ? 1 : 247)
            for (j.slow = total < 12 ? ITEMS : 0; j.slow <= ITEMS; j.slow += ITEMS) {
                memset(j.counts, 0, sizeof j.counts);
                lar_workers_each(w, total, count_item, &j);
                for (uint64_t i = 0; i < ITEMS; i++) assert_int_equal(j.counts[i], i < total);
            }
        lar_workers_stop(w);
    }
}

/* Whoever is held up is helped: the caller's first item ends only when all the others are done. */
typedef struct help {
    atomic_uint done;
    uint32_t total;
} help;

static void wait_for_the_others(void *context, uint64_t item) {
    help *h = context;
    while (item == 0 && atomic_load(&h->done) + 1 < h->total) (void)nanosleep(&(struct timespec){0, 100000}, NULL);
    (void)atomic_fetch_add(&h->done, 1);
}

static void who_is_held_up_is_helped(void **state) {
    (void)state;
    lar_workers *w = NULL;
    lar_diag d = {0};
    help h = {0, 20};
    assert_int_equal(lar_workers_start(2, &w, &d), LAR_OK);
    lar_workers_each(w, h.total, wait_for_the_others, &h);
    assert_int_equal(atomic_load(&h.done), h.total);
    lar_workers_stop(w);
}

static void wrong_counts_are_refused(void **state) {
    (void)state;
    lar_workers *w = NULL;
    lar_diag d = {0};
    assert_int_equal(lar_workers_start(0, &w, &d), LAR_INVALID);
    assert_int_equal(lar_workers_start(LAR_WORKERS_MAX + 1, &w, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "256"));
    assert_null(w);
    lar_workers_stop(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_share_is_done_once),     cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(caller_waits_for_the_slowest), cmocka_unit_test(shares_cover_everything),
        cmocka_unit_test(every_item_is_done_once),      cmocka_unit_test(who_is_held_up_is_helped),
        cmocka_unit_test(wrong_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
