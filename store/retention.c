/* Removes records: the oldest for room, and all that are older than they may be.
 * Flow: room.c and writer.c call; each call is one or a few bounded transactions. Writer thread; blocks on disk.
 * Invariants: 1. age is judged record by record, by the span of its block first: clocks that jump neither keep
 * old records nor remove young ones. 2. A journal number is never given twice: next_seq is kept before the
 * last record may go. 3. A recall record and its entry by age go together. Memory: none beyond LMDB's. */
#include <string.h>

#include "base/clock.h"
#include "store/blocks.h"
#include "store/bytes.h"
#include "store/store_core.h"

enum { STEP_RECORDS = 4096, STEP_BLOCKS = 16, DAY_MS = 86400000, MINUTE_DAYS = 2, DAY_ROLLUP_DAYS = 1200 };

/* -- the oldest, whatever their age ------------------------------------------------------------------------ */

static int remove_first(MDB_cursor *c, uint32_t limit, uint32_t *removed) {
    MDB_val k, v;
    while (*removed < limit) {
        int rc = mdb_cursor_get(c, &k, &v, MDB_FIRST);
        if (!rc) rc = mdb_cursor_del(c, 0);
        if (rc) return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
        ++*removed;
    }
    return MDB_SUCCESS;
}

/* Blocks that have no record any more; the block that is being written stays. */
static int remove_empty_blocks(lar_store *s, MDB_txn *txn) {
    MDB_cursor *journal, *blocks;
    MDB_val k, v;
    uint64_t first = s->block;
    int rc = mdb_cursor_open(txn, s->env.dbi[LAR_DB_JOURNAL], &journal);
    if (rc) return rc;
    if (mdb_cursor_get(journal, &k, &v, MDB_FIRST) == MDB_SUCCESS && k.mv_size == 8) {
        uint64_t b = lar_bytes_get_be64(k.mv_data) / LAR_BLOCK_RECORDS;
        if (b < first) first = b;
    }
    mdb_cursor_close(journal);
    rc = mdb_cursor_open(txn, s->env.dbi[LAR_DB_BLOCKS], &blocks);
    if (rc) return rc;
    while (!(rc = mdb_cursor_get(blocks, &k, &v, MDB_FIRST)) && k.mv_size == 8 &&
           lar_bytes_get_be64(k.mv_data) < first) {
        rc = mdb_cursor_del(blocks, 0);
        if (rc) break;
    }
    mdb_cursor_close(blocks);
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}

/* Recall records by the day of their last use, up to `day_end` (not included). */
static int remove_memory(lar_store *s, MDB_txn *txn, uint32_t day_end, uint32_t limit, uint32_t *removed) {
    MDB_cursor *c;
    MDB_val k, v;
    int rc = mdb_cursor_open(txn, s->env.dbi[LAR_DB_MEMORY_AGE], &c);
    if (rc) return rc;
    while (*removed < limit && !(rc = mdb_cursor_get(c, &k, &v, MDB_FIRST))) {
        uint8_t age[20];
        if (k.mv_size == sizeof age) {
            memcpy(age, k.mv_data, sizeof age);
            if (lar_bytes_get_be32(age) >= day_end) break;
            MDB_val mk = {16, age + 4};
            rc = mdb_del(txn, s->env.dbi[LAR_DB_MEMORY], &mk, NULL);
            if (rc && rc != MDB_NOTFOUND) break;
        }
        rc = mdb_cursor_del(c, 0);
        if (rc) break;
        ++*removed;
    }
    mdb_cursor_close(c);
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}

static int remove_oldest(lar_store *s, MDB_txn *txn, lar_db db, uint32_t limit, uint32_t *removed) {
    MDB_cursor *c;
    if (db == LAR_DB_MEMORY) return remove_memory(s, txn, UINT32_MAX, limit, removed);
    int rc = mdb_cursor_open(txn, s->env.dbi[db], &c);
    if (rc) return rc;
    rc = remove_first(c, limit, removed);
    mdb_cursor_close(c);
    if (rc || db != LAR_DB_JOURNAL) return rc;
    rc = lar_apply_keep_seq(s, txn);
    return rc ? rc : remove_empty_blocks(s, txn);
}

/* Ends a removing transaction; what was removed counts once it is committed. */
static int finish(lar_store *s, MDB_txn *txn, int rc, uint32_t *removed) {
    if (rc || !*removed) {
        mdb_txn_abort(txn);
        *removed = 0;
        return rc;
    }
    rc = mdb_txn_commit(txn);
    if (rc) {
        *removed = 0;
        return rc;
    }
    atomic_store(&s->unsynced, true);
    lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_COMMITS_TOTAL, 1);
    lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_EVICTED_TOTAL, *removed);
    return MDB_SUCCESS;
}

int lar_retain_oldest(lar_store *s, lar_db db, uint32_t limit, uint32_t *removed) {
    MDB_txn *txn;
    *removed = 0;
    int rc = mdb_txn_begin(s->env.env, NULL, 0, &txn);
    if (rc) return rc;
    return finish(s, txn, remove_oldest(s, txn, db, limit, removed), removed);
}

/* -- by age ------------------------------------------------------------------------------------------------- */

/* Blocks that may hold a record older than `cutoff`. */
static uint32_t old_blocks(lar_store *s, MDB_txn *txn, int64_t cutoff, uint64_t out[STEP_BLOCKS]) {
    MDB_cursor *c;
    MDB_val k, v;
    uint32_t n = 0;
    if (mdb_cursor_open(txn, s->env.dbi[LAR_DB_BLOCKS], &c)) return 0;
    while (n < STEP_BLOCKS && mdb_cursor_get(c, &k, &v, MDB_NEXT) == MDB_SUCCESS) {
        lar_block b;
        if (k.mv_size != 8) continue;
        uint64_t block = lar_bytes_get_be64(k.mv_data);
        bool known = lar_block_decode(block, lar_slice_of(v.mv_data, v.mv_size), &b) == LAR_OK;
        if (!known || b.time_min < cutoff) out[n++] = block;
    }
    mdb_cursor_close(c);
    return n;
}

/* Removes a block's old records and narrows its span to those that stay. */
static int remove_old_in_block(lar_store *s, MDB_txn *txn, uint64_t block, int64_t cutoff, uint32_t *removed) {
    MDB_cursor *c;
    uint8_t from[8];
    lar_bytes_put_be64(from, block * LAR_BLOCK_RECORDS);
    MDB_val k = {sizeof from, from}, v;
    lar_block left = {INT64_MAX, INT64_MIN};
    bool any = false;
    int rc = mdb_cursor_open(txn, s->env.dbi[LAR_DB_JOURNAL], &c);
    if (rc) return rc;
    rc = mdb_cursor_get(c, &k, &v, MDB_SET_RANGE);
    while (!rc && k.mv_size == 8 && lar_bytes_get_be64(k.mv_data) / LAR_BLOCK_RECORDS == block) {
        int64_t time = INT64_MAX;
        bool timed = lar_record_time(lar_slice_of(v.mv_data, v.mv_size), &time);
        if (time < cutoff) {
            rc = mdb_cursor_del(c, 0);
            if (rc) break;
            ++*removed;
        } else {
            any = true; /* one too damaged to have a time stays, to be counted as such, until room is needed */
            if (time < left.time_min) left.time_min = time;
            if (timed && time > left.time_max) left.time_max = time;
        }
        rc = mdb_cursor_get(c, &k, &v, MDB_NEXT);
    }
    mdb_cursor_close(c);
    if (rc && rc != MDB_NOTFOUND) return rc;
    if (block == s->block && s->block_open) return MDB_SUCCESS; /* the writer keeps that span itself */
    return any ? lar_block_store(&s->env, txn, block, &left) : lar_block_remove(&s->env, txn, block);
}

static int age_journal(lar_store *s, MDB_txn *txn, int64_t cutoff, uint32_t *removed) {
    uint64_t blocks[STEP_BLOCKS];
    uint32_t n = old_blocks(s, txn, cutoff, blocks);
    int rc = MDB_SUCCESS;
    for (uint32_t i = 0; !rc && i < n && *removed < STEP_RECORDS; i++)
        rc = remove_old_in_block(s, txn, blocks[i], cutoff, removed);
    return rc || !*removed ? rc : lar_apply_keep_seq(s, txn);
}

static int age_rollups(lar_store *s, MDB_txn *txn, lar_db db, int64_t cutoff, uint32_t *removed) {
    MDB_cursor *c;
    MDB_val k, v;
    int rc = mdb_cursor_open(txn, s->env.dbi[db], &c);
    if (rc) return rc;
    while (*removed < STEP_RECORDS && !(rc = mdb_cursor_get(c, &k, &v, MDB_FIRST))) {
        if (k.mv_size >= 8 && (int64_t)lar_bytes_get_be64(k.mv_data) >= cutoff) break;
        rc = mdb_cursor_del(c, 0);
        if (rc) break;
        ++*removed;
    }
    mdb_cursor_close(c);
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}

static int64_t before(int64_t now_ms, uint64_t age_ms) {
    return age_ms > (uint64_t)now_ms ? 0 : now_ms - (int64_t)age_ms;
}

static int age_table(lar_store *s, MDB_txn *txn, lar_db db, int64_t now_ms, uint32_t *removed) {
    uint64_t keep = s->o.retention_ms, minutes = (uint64_t)MINUTE_DAYS * DAY_MS,
             days = (uint64_t)DAY_ROLLUP_DAYS * DAY_MS;
    switch (db) {
    case LAR_DB_JOURNAL: return age_journal(s, txn, before(now_ms, keep), removed);
    case LAR_DB_MINUTE:
        return age_rollups(s, txn, db, before(now_ms, (keep < minutes ? keep : minutes) + 60000), removed);
    case LAR_DB_HOUR: return age_rollups(s, txn, db, before(now_ms, keep) - 3600000, removed);
    case LAR_DB_DAY: return age_rollups(s, txn, db, before(now_ms, keep > days ? keep : days) - DAY_MS, removed);
    default: {
        /* A day's use may have been at its end: it is over once the whole number of days has passed. */
        uint64_t whole = (s->o.memory_retention_ms + DAY_MS - 1) / DAY_MS, today = (uint64_t)now_ms / DAY_MS;
        return today > whole ? remove_memory(s, txn, (uint32_t)(today - whole), STEP_RECORDS, removed) : MDB_SUCCESS;
    }
    }
}

bool lar_retain_aged(lar_store *s) {
    static const lar_db tables[] = {LAR_DB_JOURNAL, LAR_DB_MINUTE, LAR_DB_HOUR, LAR_DB_DAY, LAR_DB_MEMORY};
    int64_t now_ms = lar_clock_wall_ms();
    bool finished = true;
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++) {
        MDB_txn *txn;
        uint32_t removed = 0;
        if (atomic_load(&s->env.broken) || mdb_txn_begin(s->env.env, NULL, 0, &txn)) return true;
        int rc = finish(s, txn, age_table(s, txn, tables[i], now_ms, &removed), &removed);
        if (rc) lar_store_gripe(s, LAR_GRIPE_WRITE, 1, mdb_strerror(rc));
        else if (removed) finished = false;
    }
    return finished;
}
