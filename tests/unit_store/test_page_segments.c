/* Pages on disk: what is written is read, also after a restart; the limit is kept; what is used stays. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pages_fixture.h"

static bool has(pages_fixture *t, uint64_t n) {
    lar_digest key = page_key(n);
    return lar_page_segments_has(t->p, &key);
}

static void what_is_written_is_read_at_once_and_after_a_restart(void **state) {
    pages_fixture *t = *state;
    const uint64_t sizes[] = {1, 100, 4095, 4096, 4097, 8192, 73856, 1 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    t->o.sync_ms = 60000; /* nothing is indexed yet when it is read */
    pages_open(t);
    assert_false(has(t, 0));
    assert_int_equal(page_read(t, 0, 1), LAR_NOT_FOUND);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(page_write(t, i, sizes[i]), LAR_OK);
        assert_true(has(t, i));
        assert_int_equal(page_read(t, i, sizes[i]), LAR_OK);
    }
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < N; i++) {
            assert_true(has(t, i));
            assert_int_equal(page_read(t, i, sizes[i]), LAR_OK);
        }
        if (round == 0) lar_page_segments_flush(t->p);
        else pages_reopen(t);
    }
    assert_false(has(t, N));
    assert_int_equal(pages_count(t).pages, N);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_PAGES), N);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_WRITES_TOTAL), N);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_READS_TOTAL), 4 * N);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DAMAGED_TOTAL), 0);
}

static void a_page_is_indexed_without_being_asked_for(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    assert_int_equal(page_write(t, 1, 5000), LAR_OK);
    while (!lar_metrics_get(t->f->metrics, LAR_METRIC_STORE_COMMITS_TOTAL)) (void)usleep(1000);
    assert_int_equal(page_read(t, 1, 5000), LAR_OK);
}

static void equal_pages_are_kept_once(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    for (int round = 0; round < 20; round++) {
        for (uint64_t n = 0; n < 5; n++) assert_int_equal(page_write(t, n, 50000), LAR_OK);
        if (round % 3 == 0) lar_page_segments_flush(t->p);
        if (round % 7 == 0) pages_reopen(t);
    }
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_WRITES_TOTAL), 5);
    assert_int_equal(pages_count(t).bytes, 4096 + 5 * (4096 + 53248));
    assert_int_equal(pages_disk_bytes(t), 4096 + 5 * (4096 + 53248));
}

static void a_page_of_another_size_is_forgotten(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    page_put(t, 1, 5000);
    assert_int_equal(page_read(t, 1, 5001), LAR_NOT_FOUND);
    assert_false(has(t, 1));
    assert_int_equal(page_read(t, 1, 5000), LAR_NOT_FOUND);
    pages_reopen(t);
    assert_false(has(t, 1));
    page_put(t, 1, 5000);
    page_put(t, 1, 6000); /* the newer one is right */
    assert_int_equal(page_read(t, 1, 6000), LAR_OK);
    pages_reopen(t);
    assert_int_equal(page_read(t, 1, 6000), LAR_OK);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_PAGES), 1);
    /* while it waits for the disk, too: whichever comes first, the ring or the file */
    assert_int_equal(page_write(t, 2, 300000), LAR_OK);
    assert_int_equal(page_read(t, 2, 1), LAR_NOT_FOUND);
    assert_int_equal(page_write(t, 2, 200000), LAR_OK);
    assert_int_equal(page_read(t, 2, 200000), LAR_OK);
    lar_page_segments_flush(t->p);
    assert_int_equal(page_read(t, 2, 200000), LAR_OK);
}

static void only_the_owner_can_read_them(void **state) {
    pages_fixture *t = *state;
    char path[160];
    struct stat st;
    file_names names;
    mode_t before = umask(0);
    pages_open(t);
    page_put(t, 1, 5000);
    (void)umask(before);
    pages_path(t, "", path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(pages_files(t, names), 1);
    pages_path(t, names[0], path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void it_is_opened_once_and_only_for_writing(void **state) {
    pages_fixture *t = *state;
    lar_page_segments *second = NULL;
    lar_diag d = {0};
    pages_open(t);
    assert_int_equal(lar_page_segments_open(t->f->store, &t->o, &second, &d), LAR_BUSY);
    lar_page_segments_close(t->p);
    t->o.bytes_max = (1 << 20) - 1;
    assert_int_equal(lar_page_segments_open(t->f->store, &t->o, &t->p, &d), LAR_INVALID);
    t->p = NULL;
    t->o.bytes_max = 1 << 20;
    fixture_close(t->f);
    t->f->o.read_only = true;
    fixture_open(t->f);
    assert_int_equal(lar_page_segments_open(t->f->store, &t->o, &second, &d), LAR_INVALID);
    assert_non_null(strstr(d.text, "reading only"));
}

static void the_limit_is_kept_and_the_newest_pages_stay(void **state) {
    pages_fixture *t = *state;
    const uint64_t limits[] = {1 << 20, 4 << 20, 9 << 20}, sizes[] = {4000, 50000, 200000};
    for (unsigned round = 0; round < 3; round++) {
        uint64_t bytes = sizes[round], limit = limits[round], record = 4096 + (bytes + 4095) / 4096 * 4096;
        t->o.bytes_max = limit;
        t->o.segment_bytes = 0;
        pages_open(t);
        uint64_t written = limit * 3 / record, most = 0, safe = limit / 2 / record;
        for (uint64_t n = 0; n < written; n++) {
            page_put(t, n, bytes);
            uint64_t now = pages_disk_bytes(t);
            assert_true(now <= limit);
            assert_int_equal(now, pages_count(t).bytes);
            most = now > most ? now : most;
            for (uint64_t back = 0; back < safe && back <= n; back += 7) assert_true(has(t, n - back));
        }
        assert_true(most > limit * 3 / 4); /* and it is used */
        assert_true(pages_metric(t, LAR_METRIC_SEGMENT_DROPPED_TOTAL) > 0);
        assert_false(has(t, 0));
        uint64_t kept = 0;
        for (uint64_t n = 0; n < written; n++) kept += has(t, n);
        assert_int_equal(kept, pages_count(t).pages);
        pages_reopen(t);
        for (uint64_t n = 0; n < written; n++) {
            lar_error e = page_read(t, n, bytes);
            assert_true(e == LAR_OK || e == LAR_NOT_FOUND);
            kept -= e == LAR_OK;
        }
        assert_int_equal(kept, 0); /* the same ones */
        pages_close(t);
        fixture_wipe(t->f);
    }
}

/* A page that is asked for between all others outlives many times the limit; one that is not does not. So does a whole
 * file whose pages are in use. */
static void what_is_used_stays(void **state) {
    pages_fixture *t = *state;
    enum { BYTES = 60000 };
    t->o.bytes_max = 4 << 20;
    t->o.segment_bytes = 512 << 10;
    pages_open(t);
    for (uint64_t n = 0; n < 500; n++) {
        page_put(t, n, BYTES);
        assert_int_equal(page_read(t, 0, BYTES), LAR_OK);
        assert_int_equal(page_write(t, 3, BYTES), LAR_OK); /* written again: as good as read */
        assert_true(pages_disk_bytes(t) <= t->o.bytes_max);
        if (n % 100 == 99) pages_reopen(t);
    }
    assert_true(has(t, 0) && has(t, 3));
    assert_false(has(t, 1) || has(t, 2) || has(t, 4));
    assert_int_equal(page_read(t, 3, BYTES), LAR_OK);
    assert_true(pages_metric(t, LAR_METRIC_SEGMENT_WRITES_TOTAL) == 500); /* neither was ever written anew */
    assert_true(pages_metric(t, LAR_METRIC_SEGMENT_CARRIED_TOTAL) > 0);
}

static void the_order_of_use_outlives_a_restart(void **state) {
    pages_fixture *t = *state;
    enum { BYTES = 100000, PAGES = 10 };
    t->o.bytes_max = 4 << 20;
    t->o.segment_bytes = 512 << 10;
    pages_open(t);
    uint64_t n = 0;
    for (; n < 20; n++) page_put(t, n, BYTES);
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(page_read(t, i, BYTES), LAR_OK); /* all of the oldest file */
    pages_reopen(t);
    while (!pages_metric(t, LAR_METRIC_SEGMENT_DROPPED_TOTAL)) page_put(t, n++, BYTES);
    for (uint64_t i = 0; i < 4; i++) assert_true(has(t, i));
    assert_false(has(t, 4) || has(t, 5));
}

static void pages_that_are_too_large_are_refused(void **state) {
    pages_fixture *t = *state;
    t->o.bytes_max = 2 << 20;
    pages_open(t);
    assert_int_equal(page_write(t, 1, (512 << 10) + 1), LAR_FULL);
    assert_false(has(t, 1));
    page_put(t, 1, 512 << 10); /* larger than a file is meant to be: it gets one of its own */
    assert_int_equal(page_read(t, 1, 512 << 10), LAR_OK);
    pages_close(t);
    t->o.ring_bytes = 16 << 10;
    pages_open(t);
    assert_int_equal(page_write(t, 2, 13 << 10), LAR_FULL);
    page_put(t, 2, 12 << 10);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_REFUSED_TOTAL), 2);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_WAITING_BYTES), 0);
}

static void a_lower_limit_holds_from_the_start(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    for (uint64_t n = 0; n < 100; n++) page_put(t, n, 100000);
    assert_true(pages_disk_bytes(t) > 10 << 20);
    pages_close(t);
    t->o.bytes_max = 5 << 20;
    pages_open(t);
    assert_true(pages_disk_bytes(t) <= 5 << 20);
    assert_true(has(t, 99));
    assert_false(has(t, 0));
    pages_reopen(t);
    assert_int_equal(page_read(t, 99, 100000), LAR_OK);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DAMAGED_TOTAL), 0);
}

/* So small a map of LMDB that it bounds the pages, and leaves the journal its room. */
static void the_index_leaves_room_for_the_journal(void **state) {
    pages_fixture *t = *state;
    t->f->o.map_bytes_max = 1 << 20;
    t->o.bytes_max = 64 << 20;
    pages_open(t);
    for (uint64_t n = 0; n < 3000; n++) {
        while (page_write(t, n, 100) == LAR_FULL) lar_page_segments_flush(t->p);
        lar_journal_record r = record_of(n);
        lar_store_journal(t->f->store, &r);
    }
    lar_page_segments_flush(t->p);
    lar_store_flush(t->f->store);
    assert_true(pages_count(t).pages <= 410);
    assert_true(pages_count(t).pages > 300);
    assert_true(has(t, 2999));
    collected c = fixture_scan(t->f, NULL, NULL);
    assert_true(c.count > 100); /* of 195 without any page */
    assert_int_equal(c.records[c.count - 1].turn, 2999 % 20);
    collected_release(&c);
    pages_reopen(t);
    assert_true(has(t, 2999));
}

/* -- random operations against a plain model -------------------------------------------------------------- */

enum { MODEL_KEYS = 120, MODEL_STEPS = 3000 };

static uint64_t model_size(uint64_t n) { return 1 + n * 7919 % 90000; }

/* Without a limit in the way, every page written is there, whatever happens in between. */
static void random_operations_agree_with_a_plain_model(void **state) {
    pages_fixture *t = *state;
    bool there[MODEL_KEYS] = {false};
    uint64_t x = 12345;
    t->o.bytes_max = 64 << 20;
    pages_open(t);
    for (int step = 0; step < MODEL_STEPS; step++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t what = (x >> 33) % 100, n = (x >> 45) % MODEL_KEYS, size = model_size(n);
        if (what < 40) {
            assert_int_equal(page_write(t, n, size), LAR_OK);
            there[n] = true;
        } else if (what < 75) {
            assert_int_equal(page_read(t, n, size), there[n] ? LAR_OK : LAR_NOT_FOUND);
        } else if (what < 95) {
            assert_int_equal(has(t, n), there[n]);
        } else if (what < 97) {
            assert_int_equal(page_read(t, n, size + 1), LAR_NOT_FOUND);
            there[n] = false;
        } else if (what < 99) {
            lar_page_segments_flush(t->p);
        } else {
            pages_reopen(t);
        }
    }
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_REFUSED_TOTAL), 0);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DROPPED_TOTAL), 0);
}

/* With a limit: what is there is right, the newest are there, the limit holds. */
static void random_operations_within_a_limit(void **state) {
    pages_fixture *t = *state;
    uint64_t x = 99, last[4] = {0};
    t->o.bytes_max = 2600 << 10;
    t->o.segment_bytes = 400 << 10;
    pages_open(t);
    for (int step = 0; step < MODEL_STEPS; step++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t what = (x >> 33) % 100, n = (x >> 45) % 500, size = 1 + n * 7919 % 20000;
        if (what < 50) {
            page_put(t, n, size); /* nothing moves while the next page is marked as used */
            memmove(last + 1, last, sizeof last - sizeof *last);
            last[0] = n + 1;
        } else if (what < 98) {
            lar_error e = page_read(t, n, size);
            assert_true(e == LAR_OK || e == LAR_NOT_FOUND);
        } else if (what == 98) {
            lar_page_segments_flush(t->p);
        } else {
            pages_reopen(t);
        }
        for (unsigned i = 0; i < 4; i++) assert_true(!last[i] || has(t, last[i] - 1));
        assert_true(pages_count(t).bytes <= t->o.bytes_max);
        lar_page_segments_flush(t->p); /* so that no file comes or goes between two looks at the folder */
        assert_true(pages_disk_bytes(t) <= t->o.bytes_max);
    }
    assert_true(pages_metric(t, LAR_METRIC_SEGMENT_DROPPED_TOTAL) > 100);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DAMAGED_TOTAL), 0);
}

/* -- two engines ------------------------------------------------------------------------------------------- */

typedef struct engine {
    pages_fixture *t;
    uint64_t seed, read, written;
} engine;

static void *use_pages(void *arg) {
    engine *g = arg;
    uint64_t x = g->seed;
    for (int step = 0; step < 1500; step++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t n = (x >> 45) % MODEL_KEYS, size = model_size(n);
        if ((x >> 33) % 3 == 0) g->written += page_write(g->t, n, size) == LAR_OK;
        else g->read += page_read(g->t, n, size) == LAR_OK; /* never other bytes: page_read says so */
        if (step % 300 == 299) lar_page_segments_flush(g->t->p);
    }
    return NULL;
}

static void two_threads_share_it(void **state) {
    pages_fixture *t = *state;
    pthread_t thread[2];
    engine g[2] = {{.t = t, .seed = 1}, {.t = t, .seed = 2}};
    t->o.bytes_max = 3 << 20; /* so small that files are dropped under the readers */
    t->o.segment_bytes = 256 << 10;
    pages_open(t);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, use_pages, &g[i]), 0);
    for (int i = 0; i < 2; i++) (void)pthread_join(thread[i], NULL);
    assert_true(g[0].read > 0 && g[1].read > 0 && g[0].written > 0 && g[1].written > 0);
    assert_true(pages_disk_bytes(t) <= t->o.bytes_max);
    assert_true(pages_metric(t, LAR_METRIC_SEGMENT_DROPPED_TOTAL) > 0);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DAMAGED_TOTAL), 0);
    uint64_t pages = pages_count(t).pages, found = 0;
    pages_reopen(t);
    for (uint64_t n = 0; n < MODEL_KEYS; n++) found += page_read(t, n, model_size(n)) == LAR_OK;
    assert_int_equal(found, pages);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, pages_setup, pages_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read_at_once_and_after_a_restart),
        TEST(a_page_is_indexed_without_being_asked_for),
        TEST(equal_pages_are_kept_once),
        TEST(a_page_of_another_size_is_forgotten),
        TEST(only_the_owner_can_read_them),
        TEST(it_is_opened_once_and_only_for_writing),
        TEST(the_limit_is_kept_and_the_newest_pages_stay),
        TEST(what_is_used_stays),
        TEST(the_order_of_use_outlives_a_restart),
        TEST(pages_that_are_too_large_are_refused),
        TEST(a_lower_limit_holds_from_the_start),
        TEST(the_index_leaves_room_for_the_journal),
        TEST(random_operations_agree_with_a_plain_model),
        TEST(random_operations_within_a_limit),
        TEST(two_threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
