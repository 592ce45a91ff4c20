/* One function a format: reads what the format before it had and adds what is new.
 * Flow: env.c calls it at open inside the transaction that also writes the new format number, so that an
 * upgrade happens whole or not at all. Runs on the opening thread, before others know the store; blocks on disk.
 * Invariants: 1. a step never reads records through today's struct where the layout may differ; it copies
 * keys and fixed fields. 2. Steps stay as they are once released. Memory: LMDB's.
 * Not here: records of older versions are upgraded when they are read (record.c). */
#include "store/migrate.h"

#include <string.h>

#include "store/blocks.h"
#include "store/bytes.h"
#include "store/record.h"

/* Format 2 has journal blocks (times of 1024 neighbours), so that a query need not read the whole journal. */
static int add_blocks(lar_env *e, MDB_txn *txn) {
    MDB_cursor *c;
    MDB_val k, v;
    uint64_t block = 0;
    lar_block b = {0, 0};
    bool open = false;
    int rc = mdb_cursor_open(txn, e->dbi[LAR_DB_JOURNAL], &c);
    if (rc) return rc;
    while ((rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == MDB_SUCCESS) {
        int64_t time = 0;
        if (k.mv_size != 8 || !lar_record_time(lar_slice_of(v.mv_data, v.mv_size), &time)) continue;
        uint64_t at = lar_bytes_get_be64(k.mv_data) / LAR_BLOCK_RECORDS;
        if (open && at != block) {
            rc = lar_block_store(e, txn, block, &b);
            if (rc) break;
            open = false;
        }
        if (!open) b = (lar_block){time, time};
        open = true;
        block = at;
        if (time < b.time_min) b.time_min = time;
        if (time > b.time_max) b.time_max = time;
    }
    mdb_cursor_close(c);
    if (rc == MDB_NOTFOUND) rc = MDB_SUCCESS;
    return rc || !open ? rc : lar_block_store(e, txn, block, &b);
}

/* Format 2 finds recall records by the day of their last use. */
static int add_memory_ages(lar_env *e, MDB_txn *txn) {
    MDB_cursor *c;
    MDB_val k, v;
    int rc = mdb_cursor_open(txn, e->dbi[LAR_DB_MEMORY], &c);
    if (rc) return rc;
    while ((rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) == MDB_SUCCESS) {
        if (k.mv_size != 16 || v.mv_size < LAR_MEMORY_HEAD_BYTES) continue;
        uint8_t age[20];
        lar_bytes_put_be32(age, (uint32_t)lar_bytes_get_le((const uint8_t *)v.mv_data + 8, 4));
        memcpy(age + 4, k.mv_data, 16);
        MDB_val ak = {sizeof age, age}, av = {0, NULL};
        rc = mdb_put(txn, e->dbi[LAR_DB_MEMORY_AGE], &ak, &av, 0);
        if (rc) break;
    }
    mdb_cursor_close(c);
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}

static int to_format_2(lar_env *e, MDB_txn *txn) {
    int rc = add_blocks(e, txn);
    return rc ? rc : add_memory_ages(e, txn);
}

/* Format 3 has the index of pages; nothing of it can be there yet. */
static int to_format_3(lar_env *e, MDB_txn *txn) { return mdb_drop(txn, e->dbi[LAR_DB_PAGES], 0); }

int lar_migrate(lar_env *e, MDB_txn *txn, uint32_t from) {
    static int (*const steps[])(lar_env *, MDB_txn *) = {[1] = to_format_2, [2] = to_format_3};
    _Static_assert(sizeof steps / sizeof *steps == LAR_FORMAT, "one step leads to every format behind the first");
    for (uint32_t format = from; format < LAR_FORMAT; format++) {
        int rc = steps[format](e, txn);
        if (rc) return rc;
    }
    return MDB_SUCCESS;
}
