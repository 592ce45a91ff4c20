/* Journal and roll-ups through the store's own interface. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "store_fixture.h"

static int64_t now_ms(void) { return lar_clock_wall_ms(); }

/* Recent enough that no retention applies. */
static lar_journal_record fresh(uint64_t n, int64_t base) {
    lar_journal_record r = record_of(n);
    r.time_ms = base + (int64_t)n;
    return r;
}

static void records_come_back_in_order(void **state) {
    fixture *f = *state;
    int64_t base = now_ms() - 10000;
    fixture_open(f);
    for (uint64_t n = 0; n < 3000; n++) {
        lar_journal_record r = fresh(n, base);
        lar_store_journal(f->store, &r);
    }
    lar_store_flush(f->store);
    for (int round = 0; round < 2; round++) {
        uint64_t damaged;
        collected c = fixture_scan(f, NULL, &damaged);
        assert_int_equal(c.count, 3000);
        assert_int_equal(damaged, 0);
        for (uint64_t n = 0; n < c.count; n++) {
            lar_journal_record want = fresh(n, base);
            assert_true(records_equal(&want, &c.records[n]));
            assert_true(n == 0 || c.seqs[n] == c.seqs[n - 1] + 1);
        }
        assert_int_equal(lar_store_last_seq(f->store), c.seqs[2999]);
        collected_release(&c);
        fixture_close(f); /* the second round reads what the disk has */
        fixture_open(f);
    }
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_RECORDS_TOTAL), 3000);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL), 0);
}

static void numbers_are_never_given_twice(void **state) {
    fixture *f = *state;
    lar_journal_record r = record_of(1);
    r.time_ms = 1000; /* decades too old: removed by the retention at the next opening */
    fixture_open(f);
    for (int i = 0; i < 10; i++) lar_store_journal(f->store, &r);
    lar_store_flush(f->store);
    uint64_t last = lar_store_last_seq(f->store);
    fixture_close(f);
    fixture_open(f);
    lar_store_flush(f->store);
    assert_int_equal(lar_store_last_seq(f->store), 0);
    fixture_close(f);
    fixture_open(f);
    r.time_ms = now_ms();
    lar_store_journal(f->store, &r);
    lar_store_flush(f->store);
    assert_true(lar_store_last_seq(f->store) > last);
}

static size_t count_of(fixture *f, lar_journal_filter filter) {
    collected c = fixture_scan(f, &filter, NULL);
    size_t n = c.count;
    collected_release(&c);
    return n;
}

static void filters_choose(void **state) {
    fixture *f = *state;
    int64_t base = now_ms() - 100000;
    fixture_open(f);
    for (uint64_t n = 0; n < 5000; n++) {
        lar_journal_record r = fresh(n, base);
        lar_store_journal(f->store, &r);
    }
    lar_store_flush(f->store);
    assert_int_equal(count_of(f, (lar_journal_filter){.model = LAR_SLICE("model-1")}), 1250);
    assert_int_equal(count_of(f, (lar_journal_filter){.model = LAR_SLICE("model-*")}), 5000);
    assert_int_equal(count_of(f, (lar_journal_filter){.model = LAR_SLICE("*")}), 5000);
    assert_int_equal(count_of(f, (lar_journal_filter){.model = LAR_SLICE("model")}), 0);
    assert_int_equal(count_of(f, (lar_journal_filter){.route = LAR_SLICE("route-1")}), 2500);
    assert_int_equal(count_of(f,
                              (lar_journal_filter){.upstream = LAR_SLICE("upstream-0"), .route = LAR_SLICE("route-0")}),
                     834);
    assert_int_equal(count_of(f, (lar_journal_filter){.tenant = 31 * 77 + 1}), 1);
    assert_int_equal(count_of(f, (lar_journal_filter){.since_ms = base + 4000}), 1000);
    assert_int_equal(count_of(f, (lar_journal_filter){.until_ms = base + 10}), 10);
    assert_int_equal(count_of(f, (lar_journal_filter){.since_ms = base + 1000, .until_ms = base + 3000}), 2000);
    assert_int_equal(count_of(f, (lar_journal_filter){.since_ms = base + 90000}), 0);
}

/* Times that jump back and forth: what a filter finds does not depend on the order of arrival. */
static void clocks_may_jump(void **state) {
    fixture *f = *state;
    int64_t base = now_ms() - 50000000;
    size_t want = 0;
    fixture_open(f);
    for (uint64_t n = 0; n < 6000; n++) {
        lar_journal_record r = record_of(n);
        r.time_ms = base + (int64_t)((n / 1500) % 2 ? 40000 - n : n * 3);
        want += r.time_ms >= base + 10000 && r.time_ms < base + 12000;
        lar_store_journal(f->store, &r);
    }
    lar_store_flush(f->store);
    assert_true(want > 100);
    assert_int_equal(count_of(f, (lar_journal_filter){.since_ms = base + 10000, .until_ms = base + 12000}), want);
}

typedef struct stopper {
    int left;
    uint64_t last;
} stopper;
static bool stop_after(void *ctx, uint64_t seq, const lar_journal_record *r) {
    stopper *s = ctx;
    (void)r;
    s->last = seq;
    return --s->left > 0;
}

static void a_scan_stops_and_goes_on(void **state) {
    fixture *f = *state;
    int64_t base = now_ms();
    lar_journal_filter all = {0};
    fixture_open(f);
    for (uint64_t n = 0; n < 100; n++) {
        lar_journal_record r = fresh(n, base);
        lar_store_journal(f->store, &r);
    }
    lar_store_flush(f->store);
    stopper s = {.left = 30};
    assert_int_equal(lar_store_scan(f->store, &all, 0, stop_after, &s, NULL), LAR_OK);
    stopper rest = {.left = 1000};
    assert_int_equal(lar_store_scan(f->store, &all, s.last, stop_after, &rest, NULL), LAR_OK);
    assert_int_equal(1000 - rest.left, 70);
    stopper none = {.left = 10};
    assert_int_equal(lar_store_scan(f->store, &all, UINT64_MAX, stop_after, &none, NULL), LAR_OK);
    assert_int_equal(none.left, 10);
}

/* -- roll-ups ---------------------------------------------------------------------------------------------- */

typedef struct sums {
    lar_rollup all;
    size_t rows;
    int64_t last_start;
} sums;

static void add_sums(lar_rollup *a, const lar_rollup *r) {
    a->requests += r->requests, a->completed += r->completed, a->usage_known += r->usage_known;
    a->prompt += r->prompt, a->hit += r->hit, a->miss += r->miss, a->write += r->write, a->output += r->output;
    a->ttft_us_sum += r->ttft_us_sum, a->total_us_sum += r->total_us_sum, a->ttft_known += r->ttft_known;
    a->request_bytes += r->request_bytes, a->sent_bytes += r->sent_bytes, a->response_bytes += r->response_bytes,
        a->edited += r->edited;
}

static bool sum_rollup(void *ctx, const lar_rollup *r) {
    sums *s = ctx;
    assert_true(r->start_ms >= s->last_start);
    s->last_start = r->start_ms;
    s->rows++;
    add_sums(&s->all, r);
    return true;
}

static void rollups_equal_the_sums_of_a_scan(void **state) {
    fixture *f = *state;
    const int64_t day = 86400000;
    int64_t base = (now_ms() / day - 1) * day + 10 * 3600 * 1000; /* two hours of one day, whatever the time is now */
    lar_rollup want = {0};
    fixture_open(f);
    for (uint64_t n = 0; n < 4000; n++) {
        lar_journal_record r = record_of(n);
        r.time_ms = base + (int64_t)n * 1500;
        r.tenant = n % 3;
        if (n % 7 == 0) r.tokens.hit = LAR_TOKENS_UNKNOWN;
        if (n % 11 == 0) r.ttft_us = LAR_TOKENS_UNKNOWN;
        lar_store_journal(f->store, &r);
        bool known = n % 7 != 0;
        want.requests++;
        want.completed += r.ending == LAR_END_COMPLETE;
        want.usage_known += known;
        if (known) want.prompt += n + 100, want.hit += n + 60, want.miss += 40, want.output += n + 7;
        if (n % 11) want.ttft_known++, want.ttft_us_sum += n * 11;
        want.total_us_sum += n * 13 + 5;
        want.request_bytes += n + 1000, want.sent_bytes += n + 900, want.response_bytes += n + 50,
            want.edited += (n & 3) > 0;
        if (n % 500 == 0) lar_store_flush(f->store); /* rows are added to in many transactions */
    }
    lar_store_flush(f->store);
    lar_journal_filter all = {0};
    size_t rows[3];
    for (int step = 0; step < 3; step++) {
        sums got = {0};
        assert_int_equal(lar_store_rollups(f->store, (lar_rollup_step)step, &all, sum_rollup, &got), LAR_OK);
        got.all.start_ms = 0;
        assert_memory_equal(&got.all, &want, sizeof want);
        rows[step] = got.rows;
    }
    assert_true(rows[0] > rows[1] && rows[1] > rows[2] && rows[2] >= 12);
    sums one = {0};
    lar_journal_filter some = {.model = LAR_SLICE("model-2"), .tenant = 1};
    assert_int_equal(lar_store_rollups(f->store, LAR_ROLLUP_HOUR, &some, sum_rollup, &one), LAR_OK);
    size_t expect = 0;
    for (uint64_t n = 0; n < 4000; n++) expect += n % 4 == 2 && n % 3 == 1;
    assert_int_equal(one.all.requests, expect);
    lar_journal_filter wrong = {.upstream = LAR_SLICE("x")};
    assert_int_equal(lar_store_rollups(f->store, LAR_ROLLUP_DAY, &wrong, sum_rollup, &one), LAR_INVALID);
}

/* Names of any length and with the other name's bytes in them stay apart. */
static void rollup_names_do_not_mix(void **state) {
    fixture *f = *state;
    lar_journal_record r = record_of(0);
    lar_journal_filter all = {0};
    r.time_ms = now_ms();
    fixture_open(f);
    const char *names[][2] = {{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}};
    for (int i = 0; i < 4; i++) {
        (void)snprintf(r.model, sizeof r.model, "%s", names[i][0]);
        (void)snprintf(r.route, sizeof r.route, "%s", names[i][1]);
        lar_store_journal(f->store, &r);
    }
    memset(r.model, 'm', sizeof r.model - 1);
    memset(r.route, 'r', sizeof r.route - 1);
    lar_store_journal(f->store, &r);
    lar_store_flush(f->store);
    sums got = {0};
    assert_int_equal(lar_store_rollups(f->store, LAR_ROLLUP_MINUTE, &all, sum_rollup, &got), LAR_OK);
    assert_int_equal(got.rows, 5);
}

/* -- opening -------------------------------------------------------------------------------------------------- */

static void files_are_private(void **state) {
    fixture *f = *state;
    char path[128];
    struct stat st;
    (void)rmdir(f->dir);
    fixture_open(f);
    assert_int_equal(stat(f->dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    const char *files[] = {"data.mdb", "lock.mdb", "writer.lock"};
    for (int i = 0; i < 3; i++) {
        fixture_path(f, files[i], path);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void a_second_writer_is_told_who_is_there(void **state) {
    fixture *f = *state;
    lar_store *second = NULL;
    lar_diag d = {0};
    char pid[32];
    fixture_open(f);
    assert_int_equal(lar_store_open(&f->o, &second, &d), LAR_BUSY);
    assert_null(second);
    (void)snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
    assert_non_null(strstr(d.text, pid));
    fixture_close(f);
    fixture_open(f);
}

static void what_is_missing_is_said(void **state) {
    fixture *f = *state;
    lar_diag d;
    char path[128];
    f->o.read_only = true;
    assert_int_equal(fixture_try_open(f, &d), LAR_NOT_FOUND);
    assert_non_null(strstr(d.text, f->dir));
    fixture_path(f, "lock.mdb", path);
    assert_int_not_equal(access(path, F_OK), 0); /* looking leaves no files behind */
    f->o.dir = "/nonexistent/larder/store";
    assert_int_equal(fixture_try_open(f, &d), LAR_NOT_FOUND);
    f->o.read_only = false;
    assert_int_equal(fixture_try_open(f, &d), LAR_IO);
    f->o.dir = "/dev/null";
    assert_int_equal(fixture_try_open(f, &d), LAR_IO);
    f->o.dir = "";
    assert_int_equal(fixture_try_open(f, &d), LAR_INVALID);
    f->o.dir = f->dir;
}

/* -- queue ------------------------------------------------------------------------------------------------------ */

static void a_full_queue_drops_and_counts(void **state) {
    fixture *f = *state;
    f->o.queue_records_max = 4;
    f->o.commit_ms = 60000;
    fixture_open(f);
    enum { SENT = 200000 };
    lar_journal_record r = record_of(1);
    r.time_ms = now_ms();
    for (int i = 0; i < SENT; i++) lar_store_journal(f->store, &r);
    lar_store_flush(f->store);
    collected c = fixture_scan(f, NULL, NULL);
    assert_true(c.count >= 4);
    assert_true(lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL) > 0);
    assert_int_equal(c.count + (size_t)lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL), SENT);
    collected_release(&c);
}

enum { THREADS = 4, EACH = 3000 };
typedef struct sender {
    fixture *f;
    uint64_t first;
} sender;

static void *send_records(void *arg) {
    sender *s = arg;
    int64_t now = now_ms();
    for (uint64_t n = s->first; n < s->first + EACH; n++) {
        lar_journal_record r = fresh(n, now);
        lar_store_journal(s->f->store, &r);
        if (n % 500 == 0) lar_store_flush(s->f->store);
    }
    return NULL;
}

static void many_threads_send(void **state) {
    fixture *f = *state;
    pthread_t t[THREADS];
    sender s[THREADS];
    bool seen[THREADS * EACH] = {false};
    fixture_open(f);
    for (unsigned i = 0; i < THREADS; i++) {
        s[i] = (sender){f, i * EACH};
        assert_int_equal(pthread_create(&t[i], NULL, send_records, &s[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) (void)pthread_join(t[i], NULL);
    fixture_close(f); /* closing writes what is queued */
    fixture_open(f);
    collected c = fixture_scan(f, NULL, NULL);
    assert_int_equal(c.count, THREADS * EACH);
    for (size_t i = 0; i < c.count; i++) {
        uint64_t n = (c.records[i].tenant - 1) / 31;
        assert_true(n < THREADS * EACH && !seen[n]);
        seen[n] = true;
    }
    collected_release(&c);
}

static void what_cannot_be_a_record_is_dropped(void **state) {
    fixture *f = *state;
    lar_journal_record r = record_of(1);
    r.time_ms = now_ms();
    r.ending = 200;
    fixture_open(f);
    lar_store_journal(f->store, &r);
    r.ending = 0;
    lar_store_journal(f->store, &r);
    lar_store_flush(f->store);
    assert_int_equal(count_of(f, (lar_journal_filter){0}), 1);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(records_come_back_in_order),
        TEST(numbers_are_never_given_twice),
        TEST(filters_choose),
        TEST(clocks_may_jump),
        TEST(a_scan_stops_and_goes_on),
        TEST(rollups_equal_the_sums_of_a_scan),
        TEST(rollup_names_do_not_mix),
        TEST(files_are_private),
        TEST(a_second_writer_is_told_who_is_there),
        TEST(what_is_missing_is_said),
        TEST(a_full_queue_drops_and_counts),
        TEST(many_threads_send),
        TEST(what_cannot_be_a_record_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
