/* Damaged, cut, missing, exchanged and foreign segment files, a damaged and a stale index: pages are not found and
 * forgotten, others are read, nothing crashes, and what is written anew is found. */
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pages_fixture.h"
#include "store/segment_record.h"

enum { PAGES = 12, BYTES = 200000, RECORD = 4096 + 200704, A_FILE = 5 }; /* pages of a file of 1 MiB */

static void fill(pages_fixture *t) {
    pages_open(t);
    for (uint64_t n = 0; n < PAGES; n++) page_put(t, n, BYTES);
}

/* Reads all; bit n of the result: page n is there. */
static uint64_t there(pages_fixture *t) {
    uint64_t set = 0;
    for (uint64_t n = 0; n < PAGES; n++) {
        lar_error e = page_read(t, n, BYTES);
        lar_digest key = page_key(n);
        assert_true(e == LAR_OK || e == LAR_NOT_FOUND);
        assert_int_equal(lar_page_segments_has(t->p, &key), e == LAR_OK);
        if (e == LAR_OK) set |= UINT64_C(1) << n;
    }
    return set;
}

enum { ALL = (1 << PAGES) - 1 };

/* What was lost is written again, and then all of it is there, also after a restart. Twice: where the newest file is
 * gone this is seen only when it is synced. */
static void mend(pages_fixture *t) {
    for (uint64_t n = 0; n < 2 * PAGES; n++) page_put(t, n % PAGES, BYTES);
    assert_int_equal(there(t), ALL);
    pages_reopen(t);
    assert_int_equal(there(t), ALL);
}

static void path_of(const pages_fixture *t, size_t file, char out[160]) {
    file_names names;
    assert_true(file < pages_files(t, names));
    pages_path(t, names[file], out);
}

static void turn_bit(const char *path, off_t at) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void a_turned_bit_costs_one_page(void **state) {
    pages_fixture *t = *state;
    char path[160];
    const off_t places[] = {4096,      4096 + 7, 4096 + 20,        4096 + 40,       4096 + 70,
                            4096 + 79, 8192,     8192 + BYTES / 2, 8192 + BYTES - 1};
    fill(t);
    path_of(t, 0, path);
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        uint64_t page = i % A_FILE;
        turn_bit(path, places[i] + (off_t)page * RECORD);
        assert_int_equal(there(t), ALL & ~(1u << page));
        assert_int_equal(there(t), ALL & ~(1u << page));
        turn_bit(path, places[i] + (off_t)page * RECORD);
        if (i % 2) pages_reopen(t);
        assert_int_equal(there(t), ALL & ~(1u << page)); /* it was forgotten, and is not found again by chance */
        assert_int_equal(pages_metric(t, LAR_METRIC_SEGMENT_DAMAGED_TOTAL), 1);
        pages_close(t);
        fixture_wipe(t->f);
        lar_metrics_free(t->f->metrics);
        t->f->o.metrics = t->f->metrics = lar_metrics_new();
        fill(t);
    }
    /* Where nothing is kept, nothing is lost. */
    turn_bit(path, 4096 + 80);
    turn_bit(path, 8192 + BYTES);
    turn_bit(path, 32);
    pages_reopen(t);
    assert_int_equal(there(t), ALL);
}

static void a_cut_file_costs_what_was_behind(void **state) {
    pages_fixture *t = *state;
    char path[160];
    const off_t lengths[] = {4096 + 2 * RECORD, 4096 + 3 * RECORD - 1, 4096 + 3 * RECORD, 4096, 100, 0};
    const uint64_t left[] = {3, 7, 7, 0, 0, 0}; /* of the third page only filling is cut off */
    for (unsigned i = 0; i < 2 * sizeof left / sizeof *left; i++) {
        bool while_open = i % 2;
        fill(t);
        path_of(t, 0, path);
        if (!while_open) pages_close(t);
        assert_int_equal(truncate(path, lengths[i / 2]), 0);
        if (!while_open) pages_open(t);
        if (lengths[i / 2] == 4096 + 3 * RECORD - 1 && while_open) /* only filling was cut off: the page is whole */
            assert_int_equal(there(t), (ALL & ~0x1f) | 7);
        else assert_int_equal(there(t), (ALL & ~0x1f) | left[i / 2]);
        mend(t);
        pages_close(t);
        fixture_wipe(t->f);
    }
}

static void a_missing_file_costs_its_pages(void **state) {
    pages_fixture *t = *state;
    char path[160];
    for (int i = 0; i < 6; i++) {
        fill(t);
        path_of(t, (size_t)i % 3, path);
        if (i < 3) pages_close(t);
        assert_int_equal(unlink(path), 0);
        if (i < 3) pages_open(t);
        assert_int_equal(there(t), ALL & ~(0x1fu << 5 * (i % 3)));
        mend(t);
        pages_close(t);
        fixture_wipe(t->f);
    }
    fill(t);
    for (int i = 0; i < 3; i++) {
        path_of(t, 0, path);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(there(t), 0);
    mend(t);
}

static void something_else_under_a_file_s_name(void **state) {
    pages_fixture *t = *state;
    char first[160], second[160], aside[160];
    fill(t);
    path_of(t, 0, first);
    path_of(t, 1, second);
    pages_path(t, "aside", aside);
    pages_close(t);
    /* two files exchanged: heads say whose they are */
    assert_int_equal(rename(first, aside), 0);
    assert_int_equal(rename(second, first), 0);
    assert_int_equal(rename(aside, second), 0);
    pages_open(t);
    assert_int_equal(there(t), ALL & ~0x3ff);
    mend(t);
    /* a folder, a link to a file that is right, a FIFO: left alone, and not read */
    for (int i = 0; i < 3; i++) {
        struct stat st;
        path_of(t, 0, first);
        pages_close(t);
        assert_int_equal(rename(first, aside), 0);
        if (i == 0) assert_int_equal(mkdir(first, 0700), 0);
        else if (i == 1) assert_int_equal(symlink(aside, first), 0);
        else assert_int_equal(mkfifo(first, 0600), 0);
        pages_open(t);
        assert_true(there(t) != ALL);
        mend(t);
        assert_int_equal(lstat(first, &st), 0);
        assert_false(S_ISREG(st.st_mode));
        assert_int_equal(i == 0 ? rmdir(first) : unlink(first), 0);
    }
    /* other names are nobody's business here */
    pages_path(t, "notes.txt", second);
    int fd = open(second, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    pages_reopen(t);
    assert_int_equal(access(second, F_OK), 0);
}

static void noise_under_a_file_s_name_goes(void **state) {
    pages_fixture *t = *state;
    char path[160];
    file_names names;
    uint8_t noise[5000];
    page_fill(1, noise, sizeof noise);
    fill(t);
    pages_path(t, "0000000000000777.segment", path);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, noise, sizeof noise), sizeof noise);
    close(fd);
    pages_reopen(t);
    assert_int_equal(pages_files(t, names), 3);
    assert_int_equal(there(t), ALL);
}

/* -- the index --------------------------------------------------------------------------------------------- */

typedef struct raw {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi pages;
} raw;

static raw raw_begin(const pages_fixture *t) {
    raw r;
    assert_int_equal(mdb_env_create(&r.env), 0);
    assert_int_equal(mdb_env_set_maxdbs(r.env, 16), 0);
    assert_int_equal(mdb_env_open(r.env, t->f->dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(r.env, NULL, 0, &r.txn), 0);
    assert_int_equal(mdb_dbi_open(r.txn, "pages", 0, &r.pages), 0);
    return r;
}

static size_t raw_end(raw *r) {
    MDB_stat st;
    assert_int_equal(mdb_stat(r->txn, r->pages, &st), 0);
    assert_int_equal(mdb_txn_commit(r->txn), 0);
    mdb_env_close(r->env);
    return st.ms_entries;
}

static void put_raw(raw *r, const lar_digest *key, size_t key_len, const void *value, size_t len) {
    MDB_val k = {key_len, (void *)key->bytes}, v = {len, (void *)value};
    assert_int_equal(mdb_put(r->txn, r->pages, &k, &v, 0), 0);
}

static void what_is_forgotten_leaves_the_index(void **state) {
    pages_fixture *t = *state;
    char path[160];
    fill(t);
    path_of(t, 0, path);
    turn_bit(path, 8192);
    assert_int_equal(page_read(t, 0, BYTES), LAR_NOT_FOUND);
    assert_int_equal(page_read(t, 7, BYTES + 1), LAR_NOT_FOUND);
    pages_close(t);
    raw r = raw_begin(t);
    assert_int_equal(raw_end(&r), PAGES - 2);
    path_of(t, 1, path);
    assert_int_equal(unlink(path), 0);
    pages_open(t);
    pages_close(t);
    r = raw_begin(t);
    assert_int_equal(raw_end(&r), PAGES - 2 - 4);
}

static void without_an_index_files_go(void **state) {
    pages_fixture *t = *state;
    file_names names;
    char path[128];
    fill(t);
    pages_close(t);
    fixture_path(t->f, "data.mdb", path);
    assert_int_equal(unlink(path), 0);
    pages_open(t);
    assert_int_equal(pages_files(t, names), 0);
    assert_int_equal(pages_count(t).bytes, 0);
    assert_int_equal(there(t), 0);
    mend(t);
    /* and an LMDB file that cannot be trusted is set aside as ever */
    pages_close(t);
    assert_int_equal(truncate(path, 9000), 0);
    pages_open(t);
    assert_int_equal(there(t), 0);
    mend(t);
}

static void damaged_entries_are_removed(void **state) {
    pages_fixture *t = *state;
    lar_digest key = page_key(0), other = page_key(1000);
    uint8_t value[LAR_SEGMENT_VALUE_BYTES];
    lar_segment_use use = {5, false};
    fill(t);
    pages_close(t);
    raw r = raw_begin(t);
    put_raw(&r, &key, sizeof key, "nonsense", 8);
    key = page_key(1);
    put_raw(&r, &key, sizeof key, "", 0);
    /* entries that are sound and lie: another page's place, a place behind the end, in the middle, of no file */
    const lar_segment_place lies[] = {
        {1, 4096, BYTES, 1},  {1, 1 << 30, BYTES, 1},          {1, 8192, BYTES, 1},
        {77, 4096, BYTES, 1}, {1, 4096, UINT64_C(1) << 61, 1}, {1, UINT64_C(1) << 61, UINT64_C(1) << 61, 1}};
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        other = page_key(1000 + i);
        lar_segment_value_encode(&other, &lies[i], &use, value);
        put_raw(&r, &other, sizeof other, value, sizeof value);
    }
    (void)raw_end(&r);
    pages_open(t);
    assert_int_equal(there(t), ALL & ~3);
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++)
        assert_int_equal(page_read(t, 1000 + i, BYTES), LAR_NOT_FOUND);
    mend(t);
    pages_close(t);
    r = raw_begin(t);
    assert_int_equal(raw_end(&r), PAGES);
}

static void copy_file(const char *from, const char *to) {
    char piece[65536];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, piece, sizeof piece)) > 0;) assert_int_equal(write(out, piece, (size_t)n), n);
    close(in);
    close(out);
}

/* An index of yesterday beside files of today: places that hold other pages by now, files that are gone, files that it
 * does not know. */
static void a_stale_index_finds_nothing_wrong(void **state) {
    pages_fixture *t = *state;
    char now[128], before[128];
    t->o.bytes_max = 3 << 20;
    fixture_path(t->f, "data.mdb", now);
    fixture_path(t->f, "before.mdb", before);
    fill(t);
    pages_close(t);
    copy_file(now, before);
    for (int round = 0; round < 3; round++) {
        pages_open(t);
        for (uint64_t n = 0; n < 10 + 4 * (uint64_t)round; n++) page_put(t, 100 * (uint64_t)(round + 1) + n, BYTES);
        pages_close(t);
        copy_file(before, now);
        pages_open(t);
        (void)there(t); /* right or not found */
        assert_true(pages_disk_bytes(t) <= t->o.bytes_max);
        for (uint64_t n = 0; n < PAGES; n++) page_put(t, n, BYTES);
        pages_reopen(t);
        assert_int_equal(there(t) >> 4, ALL >> 4);
        pages_close(t);
        if (round == 1) copy_file(now, before);
    }
}

/* Written over while pages are open: whoever asks gets right bytes or none. */
static void noise_at_random_places(void **state) {
    pages_fixture *t = *state;
    uint64_t x = 42, lost = 0;
    fill(t);
    for (int round = 0; round < 60; round++) {
        char path[160];
        uint8_t noise[600];
        x = x * 6364136223846793005u + 1442695040888963407u;
        path_of(t, (size_t)(x >> 40) % 3, path);
        page_fill(x, noise, sizeof noise);
        int fd = open(path, O_WRONLY);
        size_t len = 1 + (size_t)(x >> 50) % sizeof noise;
        assert_int_equal(pwrite(fd, noise, len, (off_t)((x >> 20) % (1 << 20))), (ssize_t)len);
        close(fd);
        if (round % 5 == 0) pages_reopen(t);
        lost += there(t) != ALL;
        for (uint64_t n = 0; n < PAGES; n++) page_put(t, n, BYTES);
        assert_int_equal(there(t), ALL);
    }
    assert_true(lost > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, pages_setup, pages_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_turned_bit_costs_one_page),       TEST(a_cut_file_costs_what_was_behind),
        TEST(a_missing_file_costs_its_pages),    TEST(something_else_under_a_file_s_name),
        TEST(noise_under_a_file_s_name_goes),    TEST(what_is_forgotten_leaves_the_index),
        TEST(without_an_index_files_go),         TEST(damaged_entries_are_removed),
        TEST(a_stale_index_finds_nothing_wrong), TEST(noise_at_random_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
