/* Pages on a disk that is full, fails, takes little at a time, or stands still: nothing wrong is ever read, what could
 * be written is there, also after a restart, and it goes on once the disk does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fault/fail_alloc.h"
#include "tests/fault/fail_io.h"
#include "tests/unit_store/pages_fixture.h"

enum { BYTES = 50000, RECORD = 4096 + 53248, PAGES = 12 };

static bool has(pages_fixture *t, uint64_t n) {
    lar_digest key = page_key(n);
    return lar_page_segments_has(t->p, &key);
}

/* Bit n: page n is there, and right. */
static unsigned there(pages_fixture *t) {
    unsigned set = 0;
    for (uint64_t n = 0; n < PAGES; n++) {
        lar_error e = page_read(t, n, BYTES);
        assert_true(e == LAR_OK || e == LAR_NOT_FOUND);
        assert_int_equal(has(t, n), e == LAR_OK);
        if (e == LAR_OK) set |= 1u << n;
    }
    return set;
}

static void expect_outcomes(pages_fixture *t, uint64_t kept, uint64_t lost) {
    uint64_t k = 0, l = 0;
    lar_page_segments_outcomes(t->p, &k, &l);
    assert_int_equal(k, kept);
    assert_int_equal(l, lost);
}

/* Writes a page as soon as it is taken: after an error that is a millisecond later. */
static void put_when_taken(pages_fixture *t, uint64_t n) {
    while (page_write(t, n, BYTES)) (void)usleep(500);
    lar_page_segments_flush(t->p);
    assert_true(has(t, n));
}

/* What is on disk after all that has failed: as in memory, and whole. */
static void same_after_a_restart(pages_fixture *t) {
    fail_io_end();
    lar_page_segments_flush(t->p);
    unsigned before = there(t);
    pages_reopen(t);
    assert_int_equal(there(t), before);
    assert_int_equal(pages_count(t).bytes, pages_disk_bytes(t));
    for (uint64_t n = 0; n < PAGES; n++) put_when_taken(t, n);
    pages_reopen(t);
    assert_int_equal(there(t), (1u << PAGES) - 1);
}

static int setup(void **state) {
    int rc = pages_setup(state);
    pages_fixture *t = *state;
    t->o.segment_bytes = 4096 + 4 * RECORD;
    t->o.sync_ms = 60000; /* syncs come when a test asks for them */
    return rc;
}

static int teardown(void **state) {
    fail_io_end();
    return pages_teardown(state);
}

static void short_and_interrupted_calls_are_no_errors(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    fail_io_short(1000);
    for (uint64_t n = 0; n < PAGES; n++) page_put(t, n, BYTES);
    assert_int_equal(there(t), (1u << PAGES) - 1);
    fail_io_end();
    pages_reopen(t);
    fail_io_short(77777);
    assert_int_equal(there(t), (1u << PAGES) - 1);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_ERRORS_TOTAL), 0);
    same_after_a_restart(t);
}

/* Each call on the way of a page in turn, each error: the page is lost or not, all others are as they were. */
static void one_call_fails(void **state) {
    pages_fixture *t = *state;
    const int errors[] = {ENOSPC, EIO, EDQUOT, EFBIG};
    const fail_io_call kinds[] = {FAIL_IO_PWRITE, FAIL_IO_FDATASYNC, FAIL_IO_FSYNC, FAIL_IO_OPENAT};
    for (unsigned i = 0; i < 4 * 4 * 7; i++) {
        fail_io_call kind = kinds[i % 4];
        pages_open(t);
        fail_io_short(20000); /* so that a record is written in pieces, and a failure leaves one behind */
        for (uint64_t n = 0; n < 3; n++) page_put(t, n, BYTES);
        fail_io_after(kind, i / 16, 1, errors[i / 4 % 4]);
        for (uint64_t n = 3; n < 8; n++) {
            (void)page_write(t, n, BYTES);
            if (n % 2) lar_page_segments_flush(t->p);
        }
        lar_page_segments_flush(t->p);
        bool failed = fail_io_failed(kind) > 0;
        fail_io_after(kind, 0, 0, 0);
        unsigned set = there(t);
        if (!failed) assert_int_equal(set, 0xff);
        if (errors[i / 4 % 4] == EIO) assert_int_equal(set & 7, 7); /* no room is looked for */
        for (uint64_t n = 8; n < 10; n++) put_when_taken(t, n);
        assert_int_equal(there(t) >> 8, 3);
        same_after_a_restart(t);
        pages_close(t);
        fixture_wipe(t->f);
    }
}

static void a_full_disk_gets_room_from_the_oldest_pages(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    for (uint64_t n = 0; n < 8; n++) page_put(t, n, BYTES); /* two files */
    fail_io_after(FAIL_IO_PWRITE, 1, 1, ENOSPC);            /* the head of the third can be written */
    page_put(t, 8, BYTES);
    assert_int_equal(there(t), 0x1f0);
    expect_outcomes(t, 9, 0); /* what went for room was kept before */
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_ERRORS_TOTAL), 0);
    same_after_a_restart(t);
}

static void a_limit_on_file_sizes_makes_smaller_files(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    for (uint64_t n = 0; n < 6; n++) page_put(t, n, BYTES);
    fail_io_after(FAIL_IO_PWRITE, 0, 1, EFBIG);
    page_put(t, 6, BYTES);
    assert_int_equal(there(t), 0x7f); /* nothing had to go */
    same_after_a_restart(t);
}

static void a_disk_that_stays_full_is_left_alone_for_a_while(void **state) {
    pages_fixture *t = *state;
    t->o.retry_ms = 3600000;
    pages_open(t);
    for (uint64_t n = 0; n < 3; n++) page_put(t, n, BYTES);
    fail_io_after(FAIL_IO_PWRITE, 0, 1000000, ENOSPC);
    assert_int_equal(page_write(t, 3, BYTES), LAR_OK); /* nobody knows yet */
    lar_page_segments_flush(t->p);
    assert_false(has(t, 3));
    unsigned tried = fail_io_failed(FAIL_IO_PWRITE);
    assert_true(tried > 0 && tried < 4);
    for (uint64_t n = 4; n < PAGES; n++) assert_int_equal(page_write(t, n, BYTES), LAR_FULL);
    lar_page_segments_flush(t->p);
    assert_int_equal(fail_io_failed(FAIL_IO_PWRITE), tried);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_ERRORS_TOTAL), 1);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_REFUSED_TOTAL), PAGES - 4);
    expect_outcomes(t, 3, 1); /* what was refused was never taken */
    fail_io_end();
    t->o.retry_ms = 1;
    pages_reopen(t);
    same_after_a_restart(t);
}

static void a_failed_sync_forgets_what_was_not_synced(void **state) {
    pages_fixture *t = *state;
    const fail_io_call kinds[] = {FAIL_IO_FDATASYNC, FAIL_IO_FSYNC};
    for (unsigned i = 0; i < 2; i++) {
        pages_open(t);
        for (uint64_t n = 0; n < 2; n++) assert_int_equal(page_write(t, n, BYTES), LAR_OK);
        if (i == 0) lar_page_segments_flush(t->p);
        for (uint64_t n = 2; n < 4; n++) assert_int_equal(page_write(t, n, BYTES), LAR_OK);
        fail_io_after(kinds[i], 0, 1, EIO);
        lar_page_segments_flush(t->p);
        assert_int_equal(fail_io_failed(kinds[i]), 1);
        assert_int_equal(there(t), i == 0 ? 3 : 0);
        expect_outcomes(t, i == 0 ? 2 : 0, i == 0 ? 2 : 4);
        assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_ERRORS_TOTAL), i + 1);
        same_after_a_restart(t);
        pages_close(t);
        fixture_wipe(t->f);
    }
}

/* A failed write whose rest cannot be cut off either: the file is longer than what counts, and is not written
 * further. */
static void what_cannot_be_cut_off_does_no_harm(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    page_put(t, 0, BYTES);
    fail_io_short(8192);
    fail_io_after(FAIL_IO_PWRITE, 3, 1, EIO);
    fail_io_after(FAIL_IO_FTRUNCATE, 0, 1, EIO);
    assert_int_equal(page_write(t, 1, BYTES), LAR_OK);
    lar_page_segments_flush(t->p);
    assert_int_equal(fail_io_failed(FAIL_IO_FTRUNCATE), 1);
    assert_int_equal(there(t), 1);
    assert_int_equal(pages_count(t).bytes, pages_disk_bytes(t));
    put_when_taken(t, 2);
    same_after_a_restart(t);
}

static void a_page_that_cannot_be_read_is_forgotten(void **state) {
    pages_fixture *t = *state;
    pages_open(t);
    for (uint64_t n = 0; n < 4; n++) page_put(t, n, BYTES);
    for (unsigned call = 0; call < 2; call++) { /* the record's head, its bytes */
        fail_io_after(FAIL_IO_PREAD, call, 1, EIO);
        assert_int_equal(page_read(t, call, BYTES), LAR_IO);
        assert_int_equal(page_read(t, call, BYTES), LAR_NOT_FOUND);
    }
    assert_int_equal(there(t), 0xc);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DAMAGED_TOTAL), 2);
    /* Out of descriptors: the page is as good as it was. */
    const int errors[] = {EMFILE, ENFILE, ENOMEM};
    for (unsigned i = 0; i < 3; i++) {
        fail_io_after(FAIL_IO_OPENAT, 0, 1, errors[i]);
        assert_int_equal(page_read(t, 2, BYTES), LAR_IO);
        assert_int_equal(page_read(t, 2, BYTES), LAR_OK);
    }
    same_after_a_restart(t);
}

static void a_disk_that_stands_still_holds_nobody_up(void **state) {
    pages_fixture *t = *state;
    t->o.ring_bytes = 6 * RECORD;
    pages_open(t);
    page_put(t, 0, BYTES);
    fail_io_hold();
    uint64_t taken = 1;
    while (taken < PAGES && page_write(t, taken, BYTES) == LAR_OK) taken++;
    assert_int_equal(taken, 7); /* what the ring holds, and no more */
    assert_int_equal(page_write(t, 7, BYTES), LAR_FULL);
    assert_int_equal(pages_count(t).waiting_bytes, 6 * RECORD);
    assert_int_equal(there(t), 0x7f); /* from memory, and from the disk */
    assert_int_equal(page_write(t, 3, BYTES), LAR_OK);
    expect_outcomes(t, 1, 0);
    fail_io_go();
    lar_page_segments_flush(t->p);
    assert_int_equal(there(t), 0x7f);
    expect_outcomes(t, 7, 0);
    assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_WAITING_BYTES), 0);
    same_after_a_restart(t);
}

/* Which calls fail is left to chance, while files are dropped for room as well. */
static void everything_fails_now_and_then(void **state) {
    pages_fixture *t = *state;
    uint64_t x = 4711, lost = 0;
    t->o.bytes_max = 1 << 20;
    pages_open(t);
    for (int step = 0; step < 1500; step++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t n = (x >> 45) % 30;
        static const int errors[] = {ENOSPC, EIO, EFBIG, EINTR};
        if (step % 3 == 0)
            fail_io_after((fail_io_call)((x >> 33) % FAIL_IO_CALLS), (unsigned)(x >> 40) % 5,
                          1 + (unsigned)(x >> 50) % 2, errors[x >> 62]);
        fail_io_short(x >> 61 & 1 ? 30000 : 0);
        lar_error e = (x >> 60) & 1 ? page_write(t, n, BYTES) : page_read(t, n, BYTES);
        lost += e == LAR_IO || e == LAR_FULL;
        assert_true(pages_count(t).bytes <= t->o.bytes_max);
        if (step % 50 == 49) {
            fail_io_end();
            pages_reopen(t);
            assert_true(pages_disk_bytes(t) <= t->o.bytes_max);
            for (uint64_t k = 0; k < 30; k++) {
                e = page_read(t, k, BYTES);
                assert_true(e == LAR_OK || e == LAR_NOT_FOUND);
            }
            put_when_taken(t, n);
            assert_int_equal(page_read(t, n, BYTES), LAR_OK);
        }
    }
    assert_true(lost > 50);
}

/* Out of memory at any place on the way: fewer pages, never a wrong one. */
static void allocations_fail(void **state) {
    pages_fixture *t = *state;
    t->o.bytes_max = 1 << 20;
    t->o.segment_bytes = 4096 + 3 * RECORD;
    for (unsigned at = 1;; at++) {
        lar_diag d = {0};
        fixture_open(t->f);
        fail_alloc_at(at);
        lar_error e = lar_page_segments_open(t->f->store, &t->o, &t->p, &d);
        bool failed = fail_alloc_end();
        if (e) {
            assert_true(failed);
            t->p = NULL;
            fixture_close(t->f);
            continue;
        }
        for (uint64_t n = 0; n < PAGES; n++) put_when_taken(t, n);
        assert_int_equal(page_read(t, PAGES - 1, BYTES), LAR_OK);
        pages_close(t);
        if (!failed) break;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(short_and_interrupted_calls_are_no_errors),
        TEST(one_call_fails),
        TEST(a_full_disk_gets_room_from_the_oldest_pages),
        TEST(a_limit_on_file_sizes_makes_smaller_files),
        TEST(a_disk_that_stays_full_is_left_alone_for_a_while),
        TEST(a_failed_sync_forgets_what_was_not_synced),
        TEST(what_cannot_be_cut_off_does_no_harm),
        TEST(a_page_that_cannot_be_read_is_forgotten),
        TEST(a_disk_that_stands_still_holds_nobody_up),
        TEST(everything_fails_now_and_then),
        TEST(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
