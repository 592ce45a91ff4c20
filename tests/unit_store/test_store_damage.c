/* Damaged, foreign, older and newer files: a clear answer or a new start, never a crash, nothing lost silently. */
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/bytes.h"
#include "store/env.h"
#include "store/record.h"
#include "store_fixture.h"

static void fill(fixture *f, uint64_t records) {
    int64_t now = lar_clock_wall_ms();
    fixture_open(f);
    for (uint64_t n = 0; n < records; n++) {
        lar_journal_record r = record_of(n);
        r.time_ms = now;
        lar_store_journal(f->store, &r);
        lar_hash k = key_of(n);
        char value[6000] = "recall";
        if (n % 10 == 0) lar_store_memory_put(f->store, &k, lar_slice_of(value, n % 6000));
    }
    lar_store_flush(f->store);
    fixture_close(f);
}

static size_t count_all(fixture *f) {
    collected c = fixture_scan(f, NULL, NULL);
    size_t n = c.count;
    collected_release(&c);
    return n;
}

static void write_file(const char *path, const void *bytes, size_t len, off_t at, bool cut) {
    int fd = open(path, O_RDWR | O_CREAT | (cut ? O_TRUNC : 0), 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
    close(fd);
}

static off_t file_size(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Everything a program does with a store, in a process of its own: a crash is seen as its status. 0 = fine. */
static int use_in_child(fixture *f, bool read_only, lar_error *opened) {
    int status, fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lar_diag d;
        f->o.read_only = read_only;
        lar_error e = fixture_try_open(f, &d);
        if (write(fds[1], &e, sizeof e) != sizeof e) _exit(1);
        if (e) _exit(d.text[0] ? 0 : 2); /* a refusal says why */
        (void)count_all(f);
        for (uint64_t n = 0; n < 300; n++) {
            char value[6001];
            (void)memory_get(f, n, value, sizeof value);
            lar_journal_record r = record_of(n);
            r.time_ms = lar_clock_wall_ms();
            lar_store_journal(f->store, &r);
            lar_hash k = key_of(n);
            lar_store_memory_put(f->store, &k, LAR_SLICE("new"));
        }
        lar_store_flush(f->store);
        fixture_close(f);
        _exit(0);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], opened, sizeof *opened), sizeof *opened);
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void garbage_is_refused_by_readers_and_set_aside_by_the_writer(void **state) {
    fixture *f = *state;
    char path[128], kept[128], noise[20000];
    lar_error e;
    lar_diag d;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 2654435761u >> 13);
    fixture_path(f, "data.mdb", path);
    fixture_path(f, "data.mdb.damaged", kept);
    const size_t lengths[] = {1, 100, 4095, 4096, 8192, 20000};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_file(path, noise, lengths[i], 0, true);
        assert_int_equal(use_in_child(f, true, &e), 0);
        assert_int_equal(e, LAR_CORRUPT);
        assert_int_equal(use_in_child(f, false, &e), 0);
        assert_int_equal(e, LAR_OK);
        assert_int_equal(file_size(kept), (off_t)lengths[i]); /* still there for whoever wants to look */
        fixture_wipe(f);
    }
    write_file(path, noise, sizeof noise, 0, true);
    f->o.read_only = true;
    assert_int_equal(fixture_try_open(f, &d), LAR_CORRUPT);
    assert_non_null(strstr(d.text, path));
    assert_non_null(strstr(d.text, "damaged"));
}

static void an_empty_file_is_a_new_store(void **state) {
    fixture *f = *state;
    char path[128];
    lar_error e;
    fixture_path(f, "data.mdb", path);
    write_file(path, "", 0, 0, true);
    assert_int_equal(use_in_child(f, true, &e), 0);
    assert_int_equal(e, LAR_NOT_FOUND);
    assert_int_equal(use_in_child(f, false, &e), 0);
    assert_int_equal(e, LAR_OK);
    fixture_open(f);
    assert_int_equal(count_all(f), 300);
}

static void a_cut_file_never_crashes(void **state) {
    fixture *f = *state;
    char path[128];
    fill(f, 3000);
    fixture_path(f, "data.mdb", path);
    off_t size = file_size(path);
    char *whole = malloc((size_t)size);
    assert_non_null(whole);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, whole, (size_t)size), size);
    close(fd);
    size_t refused = 0;
    for (int i = 0; i < 40; i++) {
        lar_error e;
        size_t len = i < 4 ? (size_t)i * 2500 : (size_t)(size * i / 40);
        write_file(path, whole, len, 0, true);
        assert_int_equal(use_in_child(f, true, &e), 0);
        refused += e == LAR_CORRUPT;
        write_file(path, whole, len, 0, true);
        assert_int_equal(use_in_child(f, false, &e), 0);
        assert_int_equal(e, LAR_OK); /* whole enough, or set aside */
    }
    assert_true(refused > 20);
    free(whole);
}

/* Pages overwritten with noise, as after a power cut that wrote half of what was due. */
static void overwritten_pages_never_crash(void **state) {
    fixture *f = *state;
    char path[128], noise[8192];
    fill(f, 3000);
    fixture_path(f, "data.mdb", path);
    size_t size = (size_t)file_size(path);
    char *whole = malloc(size);
    assert_non_null(whole);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, whole, size), (ssize_t)size);
    close(fd);
    uint64_t x = 88172645463325252u;
    size_t seen = 0;
    for (int i = 0; i < 120; i++) {
        for (size_t j = 0; j < sizeof noise; j += 8) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            memcpy(noise + j, &x, 8);
        }
        lar_error e;
        write_file(path, whole, size, 0, true);
        if (i % 3 == 0) write_file(path, noise, 4096, (off_t)(x % (size / 4096)) * 4096, false); /* a page */
        else if (i % 3 == 1) write_file(path, noise, 2, (off_t)(x % size) & ~15, false);         /* two bytes */
        else write_file(path, (char[64]){0}, 64, (off_t)(x % (size / 4096)) * 4096, false);      /* a page's head */
        assert_int_equal(use_in_child(f, i & 1, &e), 0);
        seen += e == LAR_CORRUPT;
    }
    assert_true(seen > 10);
    free(whole);
}

/* -- damage inside records ------------------------------------------------------------------------------------- */

typedef struct raw {
    MDB_env *env;
    MDB_txn *txn;
} raw;

static raw raw_begin(const fixture *f) {
    raw r;
    assert_int_equal(mdb_env_create(&r.env), 0);
    assert_int_equal(mdb_env_set_maxdbs(r.env, 16), 0);
    assert_int_equal(mdb_env_set_mapsize(r.env, 64 << 20), 0);
    assert_int_equal(mdb_env_open(r.env, f->dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(r.env, NULL, 0, &r.txn), 0);
    return r;
}

static void raw_put(raw *r, const char *table, const void *key, size_t key_len, const void *value, size_t len) {
    MDB_dbi dbi;
    MDB_val k = {key_len, (void *)key}, v = {len, (void *)value};
    assert_int_equal(mdb_dbi_open(r->txn, table, MDB_CREATE, &dbi), 0);
    assert_int_equal(mdb_put(r->txn, dbi, &k, &v, 0), 0);
}

static void raw_end(raw *r) {
    assert_int_equal(mdb_txn_commit(r->txn), 0);
    mdb_env_close(r->env);
}

static void damaged_records_are_skipped_and_counted(void **state) {
    fixture *f = *state;
    uint8_t key[8];
    fill(f, 100);
    raw r = raw_begin(f);
    lar_bytes_put_be64(key, 40);
    raw_put(&r, "journal", key, 8, "nonsense", 8);
    lar_bytes_put_be64(key, 41);
    raw_put(&r, "journal", key, 8, "", 0);
    lar_bytes_put_be64(key, 0); /* a block that lies about its span must not hide records */
    raw_put(&r, "journal_blocks", key, 8, "damaged", 7);
    raw_end(&r);
    fixture_open(f);
    uint64_t damaged;
    lar_journal_filter recent = {.since_ms = lar_clock_wall_ms() - 600000};
    collected c = fixture_scan(f, &recent, &damaged);
    assert_int_equal(c.count, 98);
    assert_int_equal(damaged, 2);
    collected_release(&c);
}

static void a_damaged_rollup_begins_anew(void **state) {
    fixture *f = *state;
    lar_rollup row = {.start_ms = lar_rollup_start(LAR_ROLLUP_DAY, lar_clock_wall_ms()), .tenant = 31 + 1};
    uint8_t key[LAR_ROLLUP_KEY_MAX];
    (void)snprintf(row.model, sizeof row.model, "model-1");
    (void)snprintf(row.route, sizeof row.route, "route-1");
    size_t len = lar_rollup_encode_key(&row, key);
    fill(f, 2);
    raw r = raw_begin(f);
    raw_put(&r, "rollup_day", key, len, "damaged", 7);
    raw_end(&r);
    fill(f, 2);
    fixture_open(f);
    assert_int_equal(count_all(f), 4);
}

/* -- formats ------------------------------------------------------------------------------------------------------ */

static void put_format(raw *r, uint32_t format) {
    uint8_t v[4];
    lar_bytes_put_le(v, format, 4);
    raw_put(r, "meta", "format", 6, v, 4);
}

static void a_newer_format_is_left_alone(void **state) {
    fixture *f = *state;
    lar_diag d;
    fill(f, 10);
    raw r = raw_begin(f);
    put_format(&r, LAR_FORMAT + 1);
    raw_end(&r);
    for (int i = 0; i < 2; i++) {
        f->o.read_only = i;
        assert_int_equal(fixture_try_open(f, &d), LAR_VERSION);
        assert_non_null(strstr(d.text, "newer"));
    }
    r = raw_begin(f);
    put_format(&r, LAR_FORMAT);
    raw_end(&r);
    f->o.read_only = false;
    fixture_open(f);
    assert_int_equal(count_all(f), 10);
}

/* Format 1: no journal blocks, no ages, journal records of version 1. */
static void format_1_is_upgraded(void **state) {
    fixture *f = *state;
    lar_diag d;
    int64_t base = lar_clock_wall_ms() - 1000000;
    uint32_t today = (uint32_t)(lar_clock_wall_ms() / 86400000);
    raw r = raw_begin(f);
    put_format(&r, 1);
    for (uint64_t n = 1; n <= 3000; n++) {
        uint8_t key[8], v1[LAR_JREC_BYTES_MAX] = {1, 0};
        lar_journal_record in = record_of(n);
        lar_buf b;
        lar_buf_init(&b, LAR_JREC_BYTES_MAX);
        in.time_ms = base + (int64_t)n;
        assert_int_equal(lar_journal_encode(&in, &b), LAR_OK);
        /* version 1 is version 5 without raw counts (48), rules_seen (8), edits (4), what came with version 3 (48,
         * two names and the chain), 4 (6 and a name) and 5 (a name and 8) behind the turn */
        enum { COMMON = 4 + 8 + 8 + 2 + 1 + 1 + 2 + 16 + 48 + 48 + 4 };
        size_t added =
            60 + 48 + 1 + strlen(in.edition) + 1 + strlen(in.provider) + 2 + in.chain.len + 6 + 1 + strlen(in.failure);
        added += 1 + strlen(in.continued) + 8;
        memcpy(v1 + 2, b.ptr + 2, COMMON - 2);
        memcpy(v1 + COMMON, b.ptr + COMMON + added, b.len - COMMON - added);
        size_t len = b.len - added;
        lar_bytes_put_le(v1 + 2, len, 2);
        lar_record_checksum(lar_slice_of((const char *)v1, len - 8), v1 + len - 8);
        lar_bytes_put_be64(key, n);
        raw_put(&r, "journal", key, 8, v1, len);
        lar_buf_release(&b);
    }
    for (uint64_t n = 0; n < 2; n++) {
        lar_hash k = key_of(n);
        uint8_t value[LAR_MEMORY_HEAD_BYTES + 3];
        lar_memory_encode_head(&k, n ? today : today - 20, LAR_SLICE("old"), value);
        memcpy(value + LAR_MEMORY_HEAD_BYTES, "old", 3);
        raw_put(&r, "memory", k.bytes, 16, value, sizeof value);
    }
    raw_end(&r);

    f->o.read_only = true;
    assert_int_equal(fixture_try_open(f, &d), LAR_VERSION); /* a reader does not upgrade, and says who does */
    assert_non_null(strstr(d.text, "larder serve"));
    f->o.read_only = false;
    fixture_open(f);
    lar_store_flush(f->store);
    lar_journal_filter part = {.since_ms = base + 1500, .until_ms = base + 2500};
    collected c = fixture_scan(f, &part, NULL);
    assert_int_equal(c.count, 1000);
    assert_int_equal(c.seqs[0], 1500);
    assert_int_equal(c.records[0].tokens.prompt, 1600);
    assert_true(c.records[0].raw.prompt == LAR_TOKENS_UNKNOWN && c.records[0].request_id == 0);
    collected_release(&c);
    assert_int_equal(lar_store_last_seq(f->store), 3000);
    char value[16];
    assert_false(memory_get(f, 0, value, sizeof value)); /* its age is known now: removed */
    assert_true(memory_get(f, 1, value, sizeof value));
    fixture_close(f);
    f->o.read_only = true;
    fixture_open(f);
    assert_int_equal(count_all(f), 3000);
}

/* Format 2: as it is today, without the index of pages. */
static void format_2_is_upgraded(void **state) {
    fixture *f = *state;
    lar_diag d;
    MDB_dbi pages;
    fill(f, 100);
    raw r = raw_begin(f);
    assert_int_equal(mdb_dbi_open(r.txn, "pages", 0, &pages), 0);
    assert_int_equal(mdb_drop(r.txn, pages, 1), 0);
    put_format(&r, 2);
    raw_end(&r);
    f->o.read_only = true;
    assert_int_equal(fixture_try_open(f, &d), LAR_VERSION);
    assert_non_null(strstr(d.text, "larder serve"));
    f->o.read_only = false;
    fixture_open(f);
    assert_int_equal(count_all(f), 100);
    fixture_close(f);
    f->o.read_only = true;
    fixture_open(f);
    assert_int_equal(count_all(f), 100);
}

static void a_foreign_file_is_left_alone(void **state) {
    fixture *f = *state;
    lar_diag d;
    char path[128];
    raw r = raw_begin(f);
    raw_put(&r, NULL, "somebody", 8, "else's data", 11);
    raw_end(&r);
    for (int i = 0; i < 2; i++) {
        f->o.read_only = i;
        assert_int_equal(fixture_try_open(f, &d), LAR_VERSION);
        assert_non_null(strstr(d.text, "not larder's"));
    }
    fixture_wipe(f);
    f->o.read_only = false;
    r = raw_begin(f);
    MDB_dbi dup;
    assert_int_equal(mdb_dbi_open(r.txn, "dups", MDB_CREATE | MDB_DUPSORT, &dup), 0);
    MDB_val k = {1, (void *)"k"}, a = {1, (void *)"a"}, b = {1, (void *)"b"};
    assert_int_equal(mdb_put(r.txn, dup, &k, &a, 0), 0);
    assert_int_equal(mdb_put(r.txn, dup, &k, &b, 0), 0);
    raw_end(&r);
    assert_int_equal(fixture_try_open(f, &d), LAR_VERSION);
    fixture_path(f, "data.mdb.damaged", path);
    assert_int_not_equal(access(path, F_OK), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(garbage_is_refused_by_readers_and_set_aside_by_the_writer),
        TEST(an_empty_file_is_a_new_store),
        TEST(a_cut_file_never_crashes),
        TEST(overwritten_pages_never_crash),
        TEST(damaged_records_are_skipped_and_counted),
        TEST(a_damaged_rollup_begins_anew),
        TEST(a_newer_format_is_left_alone),
        TEST(format_1_is_upgraded),
        TEST(format_2_is_upgraded),
        TEST(a_foreign_file_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
