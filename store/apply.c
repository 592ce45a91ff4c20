/* Writes what was queued: journal records, their roll-ups and recall values, in one transaction a slice.
 * Flow: writer.c gives a half of the queue; room.c makes room; LMDB commits. Writer thread; blocks on disk.
 * Why slices: a transaction must fit into the pages that are kept free, however small the map is.
 * Invariants: 1. journal, roll-ups, blocks and recall values of a slice are committed together or not at all.
 * 2. Numbers (seq) are given inside the transaction and kept only if it commits. 3. A slice that cannot be
 * written is dropped and counted after a bounded number of attempts: no endless loop, no error to callers.
 * Memory: the batch on the stack, the deltas of the store. Not here: removal (retention.c). */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/blocks.h"
#include "store/bytes.h"
#include "store/store_core.h"

enum {
    SLICE_KEYS_MAX = 256,
    ATTEMPTS = 6,
    BASE_PAGES = 16, /* paths from the roots to the leaves, LMDB's own lists */
    DELTA_PAGES = 4,
    RECORD_BYTES_FIXED = 310,
    PAGE_BYTES_USED = 3500
};

#define REOPEN_NS UINT64_C(1000000000)

/* Where a half stands, and the slice that one transaction takes. */
typedef struct batch {
    lar_queue_half *half;
    uint32_t record_at, record_end;
    uint32_t key_at, key_end;
    lar_value *values[SLICE_KEYS_MAX]; /* of the keys in the slice */
    uint32_t value_count;
    uint64_t pages;
} batch;

/* -- sums of the slice --------------------------------------------------------------------------------- */

/* The row for a record's minute, model, route and tenant; NULL when there are `limit` rows already. */
static lar_rollup *delta_row(lar_deltas *d, const lar_journal_record *r, uint32_t limit) {
    lar_rollup want = {.start_ms = lar_rollup_start(LAR_ROLLUP_MINUTE, r->time_ms), .tenant = r->tenant};
    memcpy(want.model, r->model, strnlen(r->model, sizeof want.model - 1));
    memcpy(want.route, r->route, strnlen(r->route, sizeof want.route - 1));
    uint8_t key[LAR_ROLLUP_KEY_MAX];
    size_t len = lar_rollup_encode_key(&want, key);
    uint64_t at = lar_hash_low(lar_hash_of(lar_slice_of((const char *)key, len))) % LAR_DELTA_SLOTS;
    for (; d->slots[at]; at = (at + 1) % LAR_DELTA_SLOTS) {
        lar_rollup *row = &d->rows[d->slots[at] - 1];
        if (row->start_ms == want.start_ms && row->tenant == want.tenant && !strcmp(row->model, want.model) &&
            !strcmp(row->route, want.route))
            return row;
    }
    if (d->count == limit) return NULL;
    d->slots[at] = (uint16_t)(d->count + 1);
    d->rows[d->count] = want;
    return &d->rows[d->count++];
}

static int put_rollup(lar_store *s, MDB_txn *txn, lar_rollup_step step, const lar_rollup *delta) {
    static const lar_db dbs[] = {
        [LAR_ROLLUP_MINUTE] = LAR_DB_MINUTE, [LAR_ROLLUP_HOUR] = LAR_DB_HOUR, [LAR_ROLLUP_DAY] = LAR_DB_DAY};
    uint8_t key[LAR_ROLLUP_KEY_MAX], value[LAR_ROLLUP_BYTES];
    lar_rollup row = *delta, before;
    row.start_ms = lar_rollup_start(step, delta->start_ms);
    MDB_val k = {lar_rollup_encode_key(&row, key), key}, v;
    lar_slice ks = lar_slice_of((const char *)key, k.mv_size);
    int rc = mdb_get(txn, s->env.dbi[dbs[step]], &k, &v);
    if (rc && rc != MDB_NOTFOUND) return rc;
    if (!rc) {
        if (lar_rollup_decode(ks, lar_slice_of(v.mv_data, v.mv_size), &before) == LAR_OK) lar_rollup_add(&row, &before);
        else lar_store_gripe(s, LAR_GRIPE_DAMAGE, 1, "a roll-up; its sums begin anew");
    }
    lar_rollup_encode(&row, ks, value);
    v = (MDB_val){sizeof value, value};
    return mdb_put(txn, s->env.dbi[dbs[step]], &k, &v, 0);
}

/* -- choosing a slice ------------------------------------------------------------------------------------ */

static void drop_values(batch *b) {
    for (uint32_t i = 0; i < b->value_count; i++) lar_value_unref(b->values[i]);
    b->value_count = 0;
}

/* Takes as much as fits into `pages`, and one item at least. */
static void plan(lar_store *s, batch *b, uint64_t pages) {
    uint64_t bytes = 0, used = 0;
    uint32_t delta_limit = pages / DELTA_PAGES > LAR_DELTAS_MAX ? LAR_DELTAS_MAX : (uint32_t)(pages / DELTA_PAGES);
    drop_values(b);
    memset(s->deltas->slots, 0, sizeof s->deltas->slots);
    s->deltas->count = 0;
    b->record_end = b->record_at;
    b->key_end = b->key_at;
    for (; b->record_end < b->half->record_count; b->record_end++) {
        const lar_journal_record *r = &b->half->records[b->record_end];
        bytes += RECORD_BYTES_FIXED + strnlen(r->model, LAR_JREC_NAME_BYTES) + strnlen(r->route, LAR_JREC_NAME_BYTES) +
                 strnlen(r->upstream, LAR_JREC_NAME_BYTES) + r->chain.len;
        used = bytes / PAGE_BYTES_USED + s->deltas->count * DELTA_PAGES;
        if (used > pages && b->record_end > b->record_at) break;
        lar_rollup *row = delta_row(s->deltas, r, delta_limit ? delta_limit : 1);
        if (!row) break;
        lar_rollup_count(row, r);
    }
    used = bytes / PAGE_BYTES_USED + s->deltas->count * DELTA_PAGES;
    for (; b->key_end < b->half->key_count && b->value_count < SLICE_KEYS_MAX; b->key_end++) {
        lar_value *v = lar_cache_take(s->cache, &b->half->keys[b->key_end]);
        used += 5 + v->len / 4096;
        if (used > pages && (b->value_count || b->record_end > b->record_at)) {
            lar_value_unref(v);
            break;
        }
        b->values[b->value_count++] = v;
    }
    b->pages = used + BASE_PAGES;
}

/* -- one transaction --------------------------------------------------------------------------------------- */

/* What becomes the store's state once the transaction has committed. */
typedef struct progress {
    uint64_t next_seq, block;
    lar_block span;
    bool block_open;
    uint32_t written;
} progress;

static int put_records(lar_store *s, MDB_txn *txn, const batch *b, progress *p) {
    uint8_t key[8];
    for (uint32_t i = b->record_at; i < b->record_end; i++) {
        const lar_journal_record *r = &b->half->records[i];
        lar_buf_reset(&s->scratch, LAR_JREC_BYTES_MAX);
        if (lar_journal_encode(r, &s->scratch) != LAR_OK) continue;
        lar_bytes_put_be64(key, p->next_seq);
        MDB_val k = {sizeof key, key}, v = {s->scratch.len, s->scratch.ptr};
        int rc = mdb_put(txn, s->env.dbi[LAR_DB_JOURNAL], &k, &v, MDB_APPEND);
        if (rc) return rc;
        uint64_t block = p->next_seq / LAR_BLOCK_RECORDS;
        if (p->block_open && block != p->block) {
            rc = lar_block_store(&s->env, txn, p->block, &p->span);
            if (rc) return rc;
            p->block_open = false;
        }
        if (!p->block_open) p->span = (lar_block){r->time_ms, r->time_ms};
        p->block_open = true;
        p->block = block;
        if (r->time_ms < p->span.time_min) p->span.time_min = r->time_ms;
        if (r->time_ms > p->span.time_max) p->span.time_max = r->time_ms;
        p->next_seq++;
        p->written++;
    }
    return p->written ? lar_block_store(&s->env, txn, p->block, &p->span) : MDB_SUCCESS;
}

static int put_age(lar_store *s, MDB_txn *txn, const lar_hash *key, uint32_t old_day, uint32_t day) {
    uint8_t age[20];
    MDB_val k = {sizeof age, age}, v = {0, age};
    memcpy(age + 4, key->bytes, 16);
    if (old_day != day) {
        lar_bytes_put_be32(age, old_day);
        int rc = mdb_del(txn, s->env.dbi[LAR_DB_MEMORY_AGE], &k, NULL);
        if (rc && rc != MDB_NOTFOUND) return rc;
    }
    lar_bytes_put_be32(age, day);
    return mdb_put(txn, s->env.dbi[LAR_DB_MEMORY_AGE], &k, &v, 0);
}

static int put_value(lar_store *s, MDB_txn *txn, const lar_hash *key, const lar_value *value) {
    uint8_t head[LAR_MEMORY_HEAD_BYTES];
    lar_slice bytes = lar_slice_of(value->bytes, value->len);
    MDB_val k = {sizeof key->bytes, (void *)key->bytes}, v;
    uint32_t old_day = value->day;
    int rc = mdb_get(txn, s->env.dbi[LAR_DB_MEMORY], &k, &v);
    if (rc && rc != MDB_NOTFOUND) return rc;
    if (!rc && v.mv_size >= sizeof head) old_day = (uint32_t)lar_bytes_get_le((const uint8_t *)v.mv_data + 8, 4);
    lar_memory_encode_head(key, value->day, bytes, head);
    v = (MDB_val){sizeof head + bytes.len, NULL};
    rc = mdb_put(txn, s->env.dbi[LAR_DB_MEMORY], &k, &v, MDB_RESERVE);
    if (rc) return rc;
    memcpy(v.mv_data, head, sizeof head);
    if (bytes.len) memcpy((char *)v.mv_data + sizeof head, bytes.ptr, bytes.len);
    return put_age(s, txn, key, old_day, value->day);
}

static int put_all(lar_store *s, MDB_txn *txn, const batch *b, progress *p) {
    int rc = put_records(s, txn, b, p);
    for (uint32_t i = 0; !rc && i < s->deltas->count; i++) {
        for (int step = LAR_ROLLUP_MINUTE; !rc && step <= LAR_ROLLUP_DAY; step++)
            rc = put_rollup(s, txn, (lar_rollup_step)step, &s->deltas->rows[i]);
    }
    for (uint32_t i = 0; !rc && i < b->value_count; i++)
        rc = put_value(s, txn, &b->half->keys[b->key_at + i], b->values[i]);
    return rc;
}

static int write_slice(lar_store *s, const batch *b, progress *p) {
    MDB_txn *txn;
    if (atomic_load(&s->env.broken)) return MDB_PANIC;
    int rc = mdb_txn_begin(s->env.env, NULL, 0, &txn);
    if (rc) return rc;
    *p = (progress){s->next_seq, s->block, s->block_span, s->block_open, 0};
    rc = put_all(s, txn, b, p);
    if (rc) {
        mdb_txn_abort(txn);
        return rc;
    }
    return mdb_txn_commit(txn);
}

/* -- a half of the queue -------------------------------------------------------------------------------------- */

static void slice_done(lar_store *s, batch *b) {
    for (uint32_t i = 0; i < b->value_count; i++) lar_cache_written(s->cache, &b->half->keys[b->key_at + i]);
    drop_values(b);
    b->record_at = b->record_end;
    b->key_at = b->key_end;
}

static void slice_written(lar_store *s, batch *b, const progress *p) {
    uint32_t refused = b->record_end - b->record_at - p->written;
    s->next_seq = p->next_seq;
    s->block = p->block;
    s->block_span = p->span;
    s->block_open = p->block_open;
    lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_COMMITS_TOTAL, 1);
    lar_metrics_add(s->o.metrics, LAR_METRIC_JOURNAL_RECORDS_TOTAL, p->written);
    lar_metrics_add(s->o.metrics, LAR_METRIC_MEMORY_RECORDS_TOTAL, b->value_count);
    lar_metrics_add(s->o.metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL, refused);
    atomic_store(&s->unsynced, true);
    slice_done(s, b);
}

static void slice_given_up(lar_store *s, batch *b, int rc) {
    lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_ERRORS_TOTAL, 1);
    lar_metrics_add(s->o.metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL, b->record_end - b->record_at);
    lar_metrics_add(s->o.metrics, LAR_METRIC_MEMORY_DROPPED_TOTAL, b->value_count);
    lar_store_gripe(s, LAR_GRIPE_WRITE, b->record_end - b->record_at + b->value_count, mdb_strerror(rc));
    slice_done(s, b);
}

/* After these LMDB answers nothing but errors until it is opened anew. */
static bool needs_reopening(const lar_store *s, int rc) {
    return rc == MDB_PANIC || rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || atomic_load(&s->env.broken);
}

static void reopen(lar_store *s) {
    uint64_t now = lar_clock_mono_ns();
    if (s->reopened_ns && now - s->reopened_ns < REOPEN_NS) return;
    s->reopened_ns = now;
    (void)pthread_mutex_lock(&s->sync_lock);
    lar_error e = lar_env_reopen(&s->env);
    (void)pthread_mutex_unlock(&s->sync_lock);
    if (e) return;
    int rc = lar_apply_resume(s);
    if (rc) lar_store_gripe(s, LAR_GRIPE_WRITE, 1, mdb_strerror(rc));
}

bool lar_apply_reopened(lar_store *s, int rc) {
    if (!needs_reopening(s, rc)) return false;
    reopen(s);
    return true;
}

void lar_apply_half(lar_store *s, lar_queue_half *half) {
    batch b = {.half = half};
    int failures = 0;
    bool reopened = false;
    while (b.record_at < half->record_count || b.key_at < half->key_count) {
        progress p;
        plan(s, &b, lar_room_slice_pages(s) >> failures);
        (void)lar_room_make(s, b.pages, failures ? LAR_ROOM_FORCED : LAR_ROOM_IF_NEEDED);
        int rc = write_slice(s, &b, &p);
        if (rc == MDB_SUCCESS) {
            slice_written(s, &b, &p);
            failures = 0;
            continue;
        }
        if (!reopened && lar_apply_reopened(s, rc)) {
            reopened = true;
            continue;
        }
        if ((rc == MDB_MAP_FULL || rc == MDB_TXN_FULL) && ++failures < ATTEMPTS) {
            /* pages that were let go are free only when those who read meanwhile have ended */
            struct timespec pause = {.tv_nsec = 1000000L << failures};
            (void)nanosleep(&pause, NULL);
            continue;
        }
        slice_given_up(s, &b, rc);
        failures = 0;
    }
    drop_values(&b);
}

int lar_apply_keep_seq(lar_store *s, MDB_txn *txn) {
    uint8_t seq[8];
    lar_bytes_put_le(seq, s->next_seq, 8);
    MDB_val k = {8, (void *)"next_seq"}, v = {sizeof seq, seq};
    return mdb_put(txn, s->env.dbi[LAR_DB_META], &k, &v, 0);
}

int lar_apply_resume(lar_store *s) {
    lar_env_reader *r;
    MDB_cursor *c;
    MDB_val k = {8, (void *)"next_seq"}, v;
    lar_error e = lar_env_read_begin(&s->env, &r);
    if (e) return e == LAR_NO_MEMORY ? ENOMEM : MDB_PANIC;
    uint64_t next = 1;
    int rc = mdb_get(r->txn, s->env.dbi[LAR_DB_META], &k, &v);
    if (!rc && v.mv_size == 8) next = lar_bytes_get_le(v.mv_data, 8);
    rc = mdb_cursor_open(r->txn, s->env.dbi[LAR_DB_JOURNAL], &c);
    if (!rc) {
        rc = mdb_cursor_get(c, &k, &v, MDB_LAST);
        if (!rc && k.mv_size == 8 && lar_bytes_get_be64(k.mv_data) >= next) next = lar_bytes_get_be64(k.mv_data) + 1;
        if (rc == MDB_NOTFOUND) rc = MDB_SUCCESS;
        mdb_cursor_close(c);
    }
    s->next_seq = next;
    s->block = next / LAR_BLOCK_RECORDS;
    s->block_open = lar_block_load(&s->env, r->txn, s->block, &s->block_span);
    if (!s->block_open && next % LAR_BLOCK_RECORDS > 1) {
        s->block_span = (lar_block){INT64_MIN, INT64_MAX};
        s->block_open = true;
    }
    lar_env_read_end(&s->env, r);
    return rc;
}
