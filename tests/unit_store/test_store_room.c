/* Bounds of time and size: the oldest goes, the newest stays, nobody gets an error. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store_fixture.h"

static uint64_t file_bytes(const fixture *f) {
    char path[128];
    struct stat st;
    fixture_path(f, "data.mdb", path);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

/* Waits for the queue now and then: this test is about the disk's bounds, not the queue's. */
static void send_many(fixture *f, uint64_t from, uint64_t to) {
    int64_t now = lar_clock_wall_ms();
    for (uint64_t n = from; n < to; n++) {
        lar_journal_record r = record_of(n);
        r.time_ms = now;
        lar_store_journal(f->store, &r);
        if (n % 4096 == 4095) lar_store_flush(f->store);
    }
    lar_store_flush(f->store);
}

static uint64_t number_of(const lar_journal_record *r) { return (r->tenant - 1) / 31; }

static void a_full_map_lets_the_oldest_go(void **state) {
    fixture *f = *state;
    enum { SENT = 200000 };
    f->o.map_bytes_max = 1 << 20;
    fixture_open(f);
    for (int i = 0; i < 3; i++) {
        lar_hash k = key_of((uint64_t)i);
        lar_store_memory_put(f->store, &k, LAR_SLICE("stays beside the journal"));
    }
    send_many(f, 0, SENT);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL), 0);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_STORE_ERRORS_TOTAL), 0);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_RECORDS_TOTAL), SENT);
    assert_true(lar_metrics_get(f->metrics, LAR_METRIC_STORE_EVICTED_TOTAL) > SENT / 2);
    collected c = fixture_scan(f, NULL, NULL);
    assert_true(c.count > 100);
    assert_int_equal(number_of(&c.records[c.count - 1]), SENT - 1);
    assert_true(number_of(&c.records[0]) > SENT / 2);
    for (size_t i = 1; i < c.count; i++) assert_true(c.seqs[i] == c.seqs[i - 1] + 1); /* only the oldest went */
    collected_release(&c);
    assert_true(file_bytes(f) <= 1 << 20);
    char value[64];
    assert_true(memory_get(f, 0, value, sizeof value));
    fixture_close(f);
    fixture_open(f);
    c = fixture_scan(f, NULL, NULL);
    assert_int_equal(number_of(&c.records[c.count - 1]), SENT - 1);
    collected_release(&c);
}

/* Every name new: the sums grow as fast as the journal, and give way as it does. */
static void hostile_names_do_not_fill_the_map(void **state) {
    fixture *f = *state;
    f->o.map_bytes_max = 1 << 20;
    fixture_open(f);
    int64_t now = lar_clock_wall_ms();
    for (uint64_t n = 0; n < 20000; n++) {
        lar_journal_record r = record_of(n);
        r.time_ms = now;
        (void)snprintf(r.model, sizeof r.model, "%090llu", (unsigned long long)n);
        lar_store_journal(f->store, &r);
        if (n % 4096 == 0) lar_store_flush(f->store);
    }
    lar_store_flush(f->store);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_STORE_ERRORS_TOTAL), 0);
    collected c = fixture_scan(f, NULL, NULL);
    assert_true(c.count > 50);
    assert_int_equal(number_of(&c.records[c.count - 1]), 19999);
    collected_release(&c);
    assert_true(file_bytes(f) <= 1 << 20);
}

static void recall_memory_gives_way_too(void **state) {
    fixture *f = *state;
    char *value = malloc(20000);
    assert_non_null(value);
    memset(value, 'x', 20000);
    f->o.map_bytes_max = 1 << 20;
    f->o.memory_bytes_max = 1 << 16;
    fixture_open(f);
    for (uint64_t n = 0; n < 2000; n++) {
        lar_hash k = key_of(n);
        lar_store_memory_put(f->store, &k, lar_slice_of(value, n % 20000));
        if (n % 8 == 0) lar_store_flush(f->store);
    }
    send_many(f, 0, 500);
    int64_t lost = lar_metrics_get(f->metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL);
    assert_int_equal(lost, 0);
    lar_hash last = key_of(1999);
    lar_buf b;
    lar_buf_init(&b, 1 << 20);
    assert_int_equal(lar_store_memory_get(f->store, &last, &b), LAR_OK);
    assert_int_equal(b.len, 1999);
    lar_buf_release(&b);
    collected c = fixture_scan(f, NULL, NULL);
    assert_true(c.count > 100);
    collected_release(&c);
    free(value);
}

static void a_smaller_maximum_is_reached(void **state) {
    fixture *f = *state;
    f->o.map_bytes_max = 8 << 20;
    fixture_open(f);
    send_many(f, 0, 15000);
    fixture_close(f);
    uint64_t before = file_bytes(f);
    assert_true(before > 4 << 20);
    f->o.map_bytes_max = 1 << 20;
    fixture_open(f);
    send_many(f, 15000, 16000);
    collected c = fixture_scan(f, NULL, NULL);
    assert_int_equal(number_of(&c.records[c.count - 1]), 15999);
    assert_true(c.count < 4000); /* what a MiB holds, though the file stays as long as it was */
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_STORE_ERRORS_TOTAL), 0);
    collected_release(&c);
    assert_true(file_bytes(f) <= before + (1 << 20));
}

static void old_records_go(void **state) {
    fixture *f = *state;
    f->o.retention_ms = 3600 * 1000;
    int64_t now = lar_clock_wall_ms();
    size_t young = 0;
    fixture_open(f);
    lar_store_flush(f->store);
    for (uint64_t n = 0; n < 9000; n++) {
        lar_journal_record r = record_of(n);
        bool old = n < 3000 || n % 10 == 0;
        r.time_ms = old ? now - 7200 * 1000 : now - 60 * 1000;
        if (n == 1500) r.time_ms = now + 1000LL * 86400 * 365; /* a clock that was wrong: young to this day */
        young += !old || n == 1500;
        lar_store_journal(f->store, &r);
    }
    fixture_close(f);
    fixture_open(f);
    lar_store_flush(f->store);
    for (int i = 0; i < 50; i++) lar_store_flush(f->store); /* removal goes in steps, one a round */
    collected c = fixture_scan(f, NULL, NULL);
    assert_int_equal(c.count, young);
    for (size_t i = 0; i < c.count; i++) assert_true(c.records[i].time_ms >= now - 3600 * 1000);
    collected_release(&c);
    lar_journal_filter recent = {.since_ms = now - 3600 * 1000, .until_ms = now};
    c = fixture_scan(f, &recent, NULL); /* the index by time still finds what stayed */
    assert_int_equal(c.count, young - 1);
    collected_release(&c);
}

/* -- growing ----------------------------------------------------------------------------------------------- */

typedef struct reading {
    fixture *f;
    atomic_bool stop;
    size_t rounds;
} reading;

static bool count_one(void *ctx, uint64_t seq, const lar_journal_record *r) {
    (void)seq;
    ++*(size_t *)ctx;
    return r->status >= 200;
}

static void *read_all_the_time(void *arg) {
    reading *r = arg;
    lar_journal_filter all = {0};
    size_t before = 0;
    while (!atomic_load(&r->stop)) {
        size_t n = 0;
        uint64_t damaged = 0;
        if (lar_store_scan(r->f->store, &all, 0, count_one, &n, &damaged) != LAR_OK || damaged || n < before) break;
        before = n;
        r->rounds++;
        char value[4096];
        if (!memory_get(r->f, 1, value, sizeof value)) break;
    }
    return NULL;
}

static void the_map_grows_under_readers(void **state) {
    fixture *f = *state;
    pthread_t t;
    reading r = {.f = f};
    f->o.map_bytes_max = 256 << 20; /* it begins at 64 MiB */
    f->o.memory_bytes_max = 8 << 20;
    fixture_open(f);
    lar_hash k = key_of(1);
    lar_store_memory_put(f->store, &k, LAR_SLICE("read while the map moves"));
    lar_store_flush(f->store);
    char *value = calloc(1, 1 << 20);
    assert_non_null(value);
    assert_int_equal(pthread_create(&t, NULL, read_all_the_time, &r), 0);
    for (uint64_t n = 2; n < 90; n++) {
        k = key_of(n);
        lar_store_memory_put(f->store, &k, lar_slice_of(value, (1 << 20) - 100));
        send_many(f, n * 50, n * 50 + 50);
    }
    atomic_store(&r.stop, true);
    (void)pthread_join(t, NULL);
    assert_true(r.rounds > 0);
    assert_true(file_bytes(f) > 80 << 20);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL), 0);
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_STORE_EVICTED_TOTAL), 0);
    collected c = fixture_scan(f, NULL, NULL);
    assert_int_equal(c.count, 88 * 50);
    collected_release(&c);
    free(value);
}

/* -- other processes ------------------------------------------------------------------------------------------ */

typedef struct two_ways {
    int down[2], up[2]; /* pipes: parent to child, child to parent */
} two_ways;

static char next_byte(int fd) {
    char b = 0;
    return read(fd, &b, 1) == 1 ? b : 0;
}

static void tell(int fd, char b) {
    if (write(fd, &b, 1) != 1) _exit(90);
}

/* Reads the same store from another process: 'r' = open, 'c' = count and answer, anything else ends it. */
static void child_reads(const fixture *f, two_ways *w) {
    lar_store *s = NULL;
    lar_store_options o = f->o;
    lar_diag d;
    lar_journal_filter all = {0};
    size_t before = 0;
    o.read_only = true;
    for (;;) {
        char what = next_byte(w->down[0]);
        if (what == 'r') {
            if (lar_store_open(&o, &s, &d) != LAR_OK) _exit(1);
        } else if (what == 'c') {
            size_t n = 0;
            uint64_t damaged;
            if (lar_store_scan(s, &all, 0, count_one, &n, &damaged) != LAR_OK) _exit(2);
            if (damaged || n <= before) _exit(3);
            before = n;
        } else {
            break;
        }
        tell(w->up[1], 'k');
    }
    lar_store_close(s);
    _exit(0);
}

static void another_process_reads_while_the_map_grows(void **state) {
    fixture *f = *state;
    two_ways w;
    int status;
    f->o.map_bytes_max = 256 << 20;
    assert_true(pipe(w.down) == 0 && pipe(w.up) == 0);
    pid_t child = fork(); /* before there are threads */
    assert_true(child >= 0);
    if (child == 0) child_reads(f, &w);
    fixture_open(f);
    char *value = calloc(1, 1 << 20);
    assert_non_null(value);
    send_many(f, 0, 100);
    tell(w.down[1], 'r');
    assert_int_equal(next_byte(w.up[0]), 'k');
    for (uint64_t n = 1; n < 90; n++) {
        lar_hash k = key_of(n);
        lar_store_memory_put(f->store, &k, lar_slice_of(value, (1 << 20) - 100));
        send_many(f, n * 100, n * 100 + 100);
        tell(w.down[1], 'c');
        assert_int_equal(next_byte(w.up[0]), 'k');
    }
    assert_true(file_bytes(f) > 80 << 20);
    tell(w.down[1], 'q');
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free(value);
    for (int i = 0; i < 2; i++) close(w.down[i]), close(w.up[i]);
}

/* A file that may not grow stands for a full disk; then there is room again. */
static void child_fills_the_disk(fixture *f) {
    struct rlimit limit;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &limit)) _exit(1);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 512 * 1024;
    if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(1);
    lar_diag d;
    if (fixture_try_open(f, &d) != LAR_OK) _exit(2);
    int64_t now = lar_clock_wall_ms();
    lar_journal_record r = record_of(1);
    r.time_ms = now;
    for (int i = 0; i < 20000; i++) {
        lar_store_journal(f->store, &r);
        if (i % 1000 == 0) lar_store_flush(f->store);
    }
    lar_store_flush(f->store);
    if (lar_metrics_get(f->metrics, LAR_METRIC_STORE_ERRORS_TOTAL) == 0) _exit(3);
    if (lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL) == 0) _exit(4);
    int64_t dropped = lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL);
    limit.rlim_cur = before;
    if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(5);
    for (int i = 0; i < 5000; i++) lar_store_journal(f->store, &r);
    lar_store_flush(f->store);
    if (lar_metrics_get(f->metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL) != dropped) _exit(6);
    fixture_close(f);
    _exit(0);
}

static void a_full_disk_is_counted_and_survived(void **state) {
    fixture *f = *state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) child_fills_the_disk(f);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fixture_open(f);
    collected c = fixture_scan(f, NULL, NULL);
    assert_true(c.count >= 5000);
    collected_release(&c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(another_process_reads_while_the_map_grows),
        TEST(a_full_disk_is_counted_and_survived),
        TEST(a_full_map_lets_the_oldest_go),
        TEST(hostile_names_do_not_fill_the_map),
        TEST(recall_memory_gives_way_too),
        TEST(a_smaller_maximum_is_reached),
        TEST(old_records_go),
        TEST(the_map_grows_under_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
