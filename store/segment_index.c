/* The index of pages: read once when the pages are opened, changed in batches by the store's writer thread.
 * Flow: segment_writer.c -> lar_index_commit -> queue.c -> writer.c -> lar_index_apply -> LMDB. The caller waits, the
 * writer never waits for it. Why not a transaction of the caller's own: LMDB has one writer at a time, and journal
 * commits would stand in line behind it; and only the writer thread makes room and opens the map anew.
 * Invariants: 1. a batch is committed in order, slice by slice. 2. Attempts are bounded. Memory: none.
 * Not here: when a page may be named (only once its bytes are synced: segment_writer.c). */
#include "store/segment_index.h"

#include <string.h>
#include <time.h>

#include "store/store_core.h"

enum { ENTRY_BYTES = 160, MAP_SHARE = 16, SLICE_MAX = 256, CHANGE_PAGES = 3, BASE_PAGES = 16, ATTEMPTS = 6 };

uint32_t lar_index_pages_max(const lar_store *s) {
    uint64_t n = s->o.map_bytes_max / MAP_SHARE / ENTRY_BYTES;
    return n > 1u << 30 ? 1u << 30 : (uint32_t)n;
}

lar_error lar_index_load(lar_store *s, lar_index_each each, void *context) {
    lar_env_reader *r;
    MDB_cursor *c;
    MDB_val k, v;
    lar_error e = lar_env_read_begin(&s->env, &r);
    if (e) return e;
    int rc = mdb_cursor_open(r->txn, s->env.dbi[LAR_DB_PAGES], &c);
    if (!rc) {
        while (!e && (rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == MDB_SUCCESS) {
            lar_digest key;
            lar_segment_place place;
            lar_segment_use use;
            if (k.mv_size != sizeof key.bytes) continue;
            memcpy(key.bytes, k.mv_data, sizeof key.bytes);
            bool sound = !lar_segment_value_decode(&key, lar_slice_of(v.mv_data, v.mv_size), &place, &use);
            e = each(context, &key, sound ? &place : NULL, &use);
        }
        mdb_cursor_close(c);
    }
    lar_env_read_end(&s->env, r);
    if (e || rc == MDB_SUCCESS || rc == MDB_NOTFOUND) return e;
    return lar_env_error(rc);
}

void lar_index_commit(lar_store *s, const lar_index_change *changes, uint32_t count) {
    lar_index_batch batch = {changes, count};
    if (count) lar_queue_index(&s->queue, &batch);
}

/* -- writer thread -------------------------------------------------------------------------------------- */

static int change(lar_store *s, MDB_txn *txn, const lar_index_change *c) {
    uint8_t value[LAR_SEGMENT_VALUE_BYTES];
    MDB_val k = {sizeof c->key.bytes, (void *)c->key.bytes}, v = {sizeof value, value};
    if (c->kind == LAR_INDEX_REMOVE) {
        int rc = mdb_del(txn, s->env.dbi[LAR_DB_PAGES], &k, NULL);
        return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
    }
    lar_segment_value_encode(&c->key, &c->place, &c->use, value);
    return mdb_put(txn, s->env.dbi[LAR_DB_PAGES], &k, &v, 0);
}

static int apply_slice(lar_store *s, const lar_index_change *changes, uint32_t count) {
    MDB_txn *txn;
    if (atomic_load(&s->env.broken)) return MDB_PANIC;
    int rc = mdb_txn_begin(s->env.env, NULL, 0, &txn);
    if (rc) return rc;
    for (uint32_t i = 0; !rc && i < count; i++) rc = change(s, txn, &changes[i]);
    if (rc) {
        mdb_txn_abort(txn);
        return rc;
    }
    rc = mdb_txn_commit(txn);
    if (rc) return rc;
    atomic_store(&s->unsynced, true);
    lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_COMMITS_TOTAL, 1);
    return MDB_SUCCESS;
}

static int slice_until_done(lar_store *s, const lar_index_change *changes, uint32_t count) {
    int failures = 0;
    bool reopened = false;
    for (;;) {
        (void)lar_room_make(s, BASE_PAGES + (uint64_t)count * CHANGE_PAGES,
                            failures ? LAR_ROOM_FORCED : LAR_ROOM_IF_NEEDED);
        int rc = apply_slice(s, changes, count);
        if (rc == MDB_SUCCESS) return rc;
        if (!reopened && lar_apply_reopened(s, rc)) {
            reopened = true;
            continue;
        }
        if ((rc != MDB_MAP_FULL && rc != MDB_TXN_FULL) || ++failures == ATTEMPTS) return rc;
        /* pages that were let go are free only when those who read meanwhile have ended */
        struct timespec pause = {.tv_nsec = 1000000L << failures};
        (void)nanosleep(&pause, NULL);
    }
}

void lar_index_apply(lar_store *s, const lar_index_batch *batch) {
    uint64_t most = lar_room_slice_pages(s) / CHANGE_PAGES;
    uint32_t slice = most < 1 ? 1 : most > SLICE_MAX ? SLICE_MAX : (uint32_t)most;
    for (uint32_t at = 0; at < batch->count; at += slice) {
        uint32_t count = batch->count - at < slice ? batch->count - at : slice;
        int rc = slice_until_done(s, batch->changes + at, count);
        if (!rc) continue;
        lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_ERRORS_TOTAL, 1);
        lar_store_gripe(s, LAR_GRIPE_WRITE, count, mdb_strerror(rc));
    }
}
