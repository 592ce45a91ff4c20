/* Recall memory: what is put is seen, survives, expires, and stays within its bounds. */
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/bytes.h"
#include "store/cache.h"
#include "store/record.h"
#include "store_fixture.h"

static void put(fixture *f, uint64_t key, const char *value) {
    lar_hash k = key_of(key);
    lar_store_memory_put(f->store, &k, lar_slice_cstr(value));
}

static void assert_value(fixture *f, uint64_t key, const char *want) {
    char got[512];
    assert_int_equal(memory_get(f, key, got, sizeof got), want != NULL);
    if (want) assert_string_equal(got, want);
}

static void a_put_is_seen_at_once_and_after_reopening(void **state) {
    fixture *f = *state;
    f->o.commit_ms = 60000; /* nothing is on disk yet when it is read */
    fixture_open(f);
    assert_value(f, 1, NULL);
    put(f, 1, "one");
    put(f, 2, "");
    assert_value(f, 1, "one");
    put(f, 1, "another one");
    assert_value(f, 1, "another one");
    fixture_close(f);
    fixture_open(f);
    assert_value(f, 1, "another one");
    assert_value(f, 2, "");
    assert_value(f, 3, NULL);
    put(f, 1, "third");
    lar_store_flush(f->store);
    put(f, 1, "fourth");
    fixture_close(f);
    f->o.read_only = true;
    fixture_open(f);
    assert_value(f, 1, "fourth");
    put(f, 1, "not from a reader");
    assert_value(f, 1, "fourth");
}

static void get_appends_and_respects_the_buffer(void **state) {
    fixture *f = *state;
    lar_hash k = key_of(1);
    fixture_open(f);
    put(f, 1, "value");
    for (int round = 0; round < 3; round++) {
        lar_buf b;
        lar_buf_init(&b, 64);
        assert_int_equal(lar_buf_add(&b, "before-", 7), LAR_OK);
        assert_int_equal(lar_store_memory_get(f->store, &k, &b), LAR_OK);
        assert_true(lar_slice_eq_cstr(lar_buf_slice(&b), "before-value"));
        lar_buf_release(&b);
        lar_buf_init(&b, 4);
        assert_int_equal(lar_store_memory_get(f->store, &k, &b), LAR_LIMIT);
        assert_int_equal(b.len, 0);
        lar_buf_release(&b);
        fixture_close(f); /* then from disk, then from what the read has kept */
        fixture_open(f);
    }
}

/* Keys that differ only in the tenant's part: the caller hashes the scope into them. */
static void tenants_do_not_meet(void **state) {
    fixture *f = *state;
    lar_hash content = lar_hash_of(LAR_SLICE("the same system text"));
    lar_hash a = lar_hash_join(lar_hash_of(LAR_SLICE("tenant a")), content),
             b = lar_hash_join(lar_hash_of(LAR_SLICE("tenant b")), content);
    lar_buf out;
    lar_buf_init(&out, 100);
    fixture_open(f);
    lar_store_memory_put(f->store, &a, LAR_SLICE("sent by a"));
    assert_int_equal(lar_store_memory_get(f->store, &b, &out), LAR_NOT_FOUND);
    lar_store_memory_put(f->store, &b, LAR_SLICE("sent by b"));
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(lar_store_memory_get(f->store, &a, &out), LAR_OK);
    assert_true(lar_slice_eq_cstr(lar_buf_slice(&out), "sent by a"));
    lar_buf_release(&out);
}

/* Reads the day of last use straight from the file. */
static uint32_t day_on_disk(fixture *f, uint64_t key, size_t *ages) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi memory, age;
    MDB_stat st;
    lar_hash h = key_of(key);
    MDB_val k = {16, h.bytes}, v;
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 16), 0);
    assert_int_equal(mdb_env_open(env, f->dir, MDB_RDONLY, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "memory", 0, &memory), 0);
    assert_int_equal(mdb_dbi_open(txn, "memory_age", 0, &age), 0);
    uint32_t day = mdb_get(txn, memory, &k, &v) ? 0 : (uint32_t)lar_bytes_get_le((const uint8_t *)v.mv_data + 8, 4);
    assert_int_equal(mdb_stat(txn, age, &st), 0);
    *ages = st.ms_entries;
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return day;
}

/* Makes a value look as if it was last used `days` ago. */
static void make_older(fixture *f, uint64_t key, uint32_t days, const char *value) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi memory, age;
    lar_hash h = key_of(key);
    uint32_t today = (uint32_t)(lar_clock_wall_ms() / 86400000);
    uint8_t bytes[LAR_MEMORY_HEAD_BYTES + 64], ak[20];
    size_t len = strlen(value);
    lar_memory_encode_head(&h, today - days, lar_slice_cstr(value), bytes);
    memcpy(bytes + LAR_MEMORY_HEAD_BYTES, value, len);
    memcpy(ak + 4, h.bytes, 16);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 16), 0);
    assert_int_equal(mdb_env_open(env, f->dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "memory", 0, &memory), 0);
    assert_int_equal(mdb_dbi_open(txn, "memory_age", 0, &age), 0);
    MDB_val k = {16, h.bytes}, v = {LAR_MEMORY_HEAD_BYTES + len, bytes}, a = {20, ak}, none = {0, NULL};
    assert_int_equal(mdb_put(txn, memory, &k, &v, 0), 0);
    lar_bytes_put_be32(ak, today);
    (void)mdb_del(txn, age, &a, NULL);
    lar_bytes_put_be32(ak, today - days);
    assert_int_equal(mdb_put(txn, age, &a, &none, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void unused_values_go_and_used_ones_stay(void **state) {
    fixture *f = *state;
    uint32_t today = (uint32_t)(lar_clock_wall_ms() / 86400000);
    size_t ages;
    fixture_open(f);
    put(f, 1, "old");
    put(f, 2, "used");
    put(f, 3, "young");
    fixture_close(f);
    make_older(f, 1, 9, "old");
    make_older(f, 2, 6, "used");
    make_older(f, 3, 3, "young");
    fixture_open(f);
    lar_store_flush(f->store);
    assert_value(f, 1, NULL);
    assert_value(f, 2, "used"); /* a use: the day is written anew */
    assert_value(f, 2, "used");
    fixture_close(f);
    assert_int_equal(day_on_disk(f, 1, &ages), 0);
    assert_int_equal(day_on_disk(f, 2, &ages), today);
    assert_int_equal(day_on_disk(f, 3, &ages), today - 3);
    assert_int_equal(ages, 2);                                                         /* no age is left behind */
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_MEMORY_RECORDS_TOTAL), 4); /* three puts, one use */
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_STORE_EVICTED_TOTAL), 1);
}

static void a_damaged_value_is_none(void **state) {
    fixture *f = *state;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi memory;
    lar_hash h = key_of(1), wrong = key_of(2);
    uint8_t bytes[LAR_MEMORY_HEAD_BYTES + 5] = {0};
    fixture_open(f);
    put(f, 1, "value");
    fixture_close(f);
    lar_memory_encode_head(&wrong, 20000, LAR_SLICE("value"), bytes);
    memcpy(bytes + LAR_MEMORY_HEAD_BYTES, "value", 5);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 16), 0);
    assert_int_equal(mdb_env_open(env, f->dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "memory", 0, &memory), 0);
    MDB_val k = {16, h.bytes}, v = {sizeof bytes, bytes};
    assert_int_equal(mdb_put(txn, memory, &k, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    fixture_open(f);
    assert_value(f, 1, NULL);
    put(f, 1, "new");
    fixture_close(f);
    fixture_open(f);
    assert_value(f, 1, "new");
}

static void bounds_hold(void **state) {
    fixture *f = *state;
    f->o.memory_bytes_max = 1 << 20;
    f->o.commit_ms = 60000;
    f->o.map_bytes_max = 64 << 20;
    fixture_open(f);
    char *value = malloc(2 << 20);
    assert_non_null(value);
    memset(value, 'v', 2 << 20);
    lar_hash k = key_of(0);
    lar_store_memory_put(f->store, &k, lar_slice_of(value, 2 << 20));
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL), 1);
    for (uint64_t i = 1; i <= 1000; i++) {
        k = key_of(i);
        lar_store_memory_put(f->store, &k, lar_slice_of(value, 4096));
    }
    int64_t dropped = lar_metrics_get(f->metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL) - 1;
    assert_true(dropped > 700 && dropped < 800); /* 1 MiB waits, the rest is refused */
    lar_store_flush(f->store);
    uint64_t kept = 0;
    lar_buf b;
    lar_buf_init(&b, 8192);
    for (uint64_t i = 1; i <= 1000; i++) {
        b.len = 0;
        k = key_of(i);
        kept += lar_store_memory_get(f->store, &k, &b) == LAR_OK && b.len == 4096;
    }
    assert_int_equal(kept, 1000 - dropped);
    for (uint64_t i = 1001; i <= 1100; i++) { /* room again once it is written */
        k = key_of(i);
        lar_store_memory_put(f->store, &k, lar_slice_of(value, 4096));
    }
    assert_int_equal(lar_metrics_get(f->metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL) - 1, dropped);
    lar_buf_release(&b);
    free(value);
}

static void the_cache_forgets_what_was_not_used(void **state) {
    (void)state;
    lar_cache *c = lar_cache_new(16 * 16 * 1024);
    char value[1000] = {0};
    uint32_t day;
    lar_buf b;
    lar_buf_init(&b, 2000);
    assert_non_null(c);
    for (uint64_t i = 0; i < 2000; i++) {
        lar_hash k = key_of(i), first = key_of(0);
        lar_cache_fill(c, &k, lar_slice_of(value, sizeof value), 1);
        b.len = 0;
        assert_int_equal(lar_cache_get(c, &first, &b, &day), LAR_OK); /* in use all the time: it stays */
        assert_true(lar_cache_bytes(c) <= 16 * 16 * 1024);
    }
    lar_hash k = key_of(1);
    assert_int_equal(lar_cache_get(c, &k, &b, &day), LAR_NOT_FOUND);
    assert_int_equal(lar_cache_pinned_bytes(c), 0);
    assert_int_equal(lar_cache_put(c, &k, LAR_SLICE("x"), 1), LAR_CACHE_KEPT);
    assert_int_equal(lar_cache_put(c, &k, LAR_SLICE("xyz"), 1), LAR_CACHE_QUEUED);
    for (uint64_t i = 2000; i < 4000; i++) {
        lar_hash other = key_of(i);
        lar_cache_fill(c, &other, lar_slice_of(value, sizeof value), 1);
    }
    b.len = 0;
    assert_int_equal(lar_cache_get(c, &k, &b, &day), LAR_OK); /* waits for the disk: it stays */
    assert_int_equal(b.len, 3);
    assert_true(lar_cache_pinned_bytes(c) > 0);
    lar_value_unref(lar_cache_take(c, &k));
    assert_int_equal(lar_cache_put(c, &k, LAR_SLICE("abcd"), 1), LAR_CACHE_KEPT); /* newer than what is being written */
    lar_cache_written(c, &k);
    assert_true(lar_cache_pinned_bytes(c) > 0);
    lar_value_unref(lar_cache_take(c, &k));
    lar_cache_written(c, &k);
    assert_int_equal(lar_cache_pinned_bytes(c), 0);
    lar_buf_release(&b);
    lar_cache_free(c);
}

enum { THREADS = 4, ROUNDS = 4000, KEYS = 97 };
static void *put_and_get(void *arg) {
    fixture *f = arg;
    uint64_t x = (uint64_t)(uintptr_t)&x;
    for (int i = 0; i < ROUNDS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t key = (x >> 33) % KEYS;
        char text[64], want[64], got[64];
        (void)snprintf(text, sizeof text, "value of key %llu", (unsigned long long)key);
        (void)snprintf(want, sizeof want, "%s", text);
        lar_hash k = key_of(key);
        if (x & 1) lar_store_memory_put(f->store, &k, lar_slice_cstr(text));
        else if (memory_get(f, key, got, sizeof got)) assert_string_equal(got, want);
    }
    return NULL;
}

static void many_threads_share_it(void **state) {
    fixture *f = *state;
    pthread_t t[THREADS];
    f->o.memory_bytes_max = 16384; /* so small that values go to disk and come back all the time */
    fixture_open(f);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, put_and_get, f), 0);
    for (int i = 0; i < THREADS; i++) (void)pthread_join(t[i], NULL);
    fixture_close(f);
    fixture_open(f);
    size_t found = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        char got[64];
        found += memory_get(f, key, got, sizeof got);
    }
    assert_int_equal(found, KEYS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_put_is_seen_at_once_and_after_reopening),
        TEST(get_appends_and_respects_the_buffer),
        TEST(tenants_do_not_meet),
        TEST(unused_values_go_and_used_ones_stay),
        TEST(a_damaged_value_is_none),
        TEST(bounds_hold),
        cmocka_unit_test(the_cache_forgets_what_was_not_used),
        TEST(many_threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
