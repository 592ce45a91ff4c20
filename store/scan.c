/* Queries over the journal and the roll-ups.
 * Flow: copies a few hundred records in a short read transaction, ends it, then calls back; until done.
 * Any thread or process; blocks on file reads. Why in pieces: a long read transaction would keep LMDB from
 * using freed pages again, and a caller that waits for a slow pipe would fill the map of a running larder.
 * Invariants: 1. no callback runs inside a transaction. 2. A block is left out only when its span is known and
 * lies outside the asked time. Memory: one bounded buffer. Not here: sums and tables (gateway/commands). */
#include <stdlib.h>
#include <string.h>

#include "store/blocks.h"
#include "store/bytes.h"
#include "store/store_core.h"

enum { CHUNK_BYTES = 256 * 1024, CHUNK_ENTRIES = 512 };

static bool pattern_matches(lar_slice pattern, const char *name) {
    if (!pattern.len) return true;
    lar_slice n = lar_slice_of(name, strnlen(name, LAR_JREC_NAME_BYTES));
    if (pattern.ptr[pattern.len - 1] == '*') return lar_slice_starts(n, lar_slice_of(pattern.ptr, pattern.len - 1));
    return lar_slice_eq(n, pattern);
}

static bool time_matches(const lar_journal_filter *f, int64_t time_ms) {
    return (!f->since_ms || time_ms >= f->since_ms) && (!f->until_ms || time_ms < f->until_ms);
}

static bool record_matches(const lar_journal_filter *f, const lar_journal_record *r) {
    return time_matches(f, r->time_ms) && (!f->tenant || f->tenant == r->tenant) &&
           pattern_matches(f->model, r->model) && pattern_matches(f->route, r->route) &&
           pattern_matches(f->upstream, r->upstream);
}

/* Entries copied out of a transaction. */
typedef struct chunk {
    lar_buf bytes;
    struct {
        uint32_t key_at, key_len, at, len;
    } entries[CHUNK_ENTRIES];
    uint32_t count;
    bool end; /* nothing behind these */
} chunk;

static bool chunk_add(chunk *c, const MDB_val *k, const MDB_val *v) {
    size_t at = c->bytes.len;
    if (c->count == CHUNK_ENTRIES || lar_buf_add(&c->bytes, k->mv_data, k->mv_size)) return false;
    if (lar_buf_add(&c->bytes, v->mv_data, v->mv_size)) {
        c->bytes.len = at;
        return false;
    }
    c->entries[c->count].key_at = (uint32_t)at;
    c->entries[c->count].key_len = (uint32_t)k->mv_size;
    c->entries[c->count].at = (uint32_t)(at + k->mv_size);
    c->entries[c->count].len = (uint32_t)v->mv_size;
    c->count++;
    return true;
}

static lar_slice entry_key(const chunk *c, uint32_t i) {
    return lar_slice_of(c->bytes.ptr + c->entries[i].key_at, c->entries[i].key_len);
}
static lar_slice entry_value(const chunk *c, uint32_t i) {
    return lar_slice_of(c->bytes.ptr + c->entries[i].at, c->entries[i].len);
}

static lar_error chunk_new(chunk **out) {
    chunk *c = malloc(sizeof *c);
    if (!c) return LAR_NO_MEMORY;
    lar_buf_init(&c->bytes, CHUNK_BYTES);
    c->count = 0;
    c->end = false;
    *out = c;
    return LAR_OK;
}

static void chunk_free(chunk *c) {
    lar_buf_release(&c->bytes);
    free(c);
}

/* Can the block hold a record of the asked time? */
static bool block_matters(lar_store *s, MDB_txn *txn, uint64_t block, const lar_journal_filter *f) {
    lar_block b;
    if ((!f->since_ms && !f->until_ms) || !lar_block_load(&s->env, txn, block, &b)) return true;
    return (!f->since_ms || b.time_max >= f->since_ms) && (!f->until_ms || b.time_min < f->until_ms);
}

/* Records behind `after`; *after becomes the last one looked at. */
static int fill_journal(lar_store *s, MDB_txn *txn, const lar_journal_filter *f, uint64_t *after, chunk *c) {
    MDB_cursor *cursor;
    uint8_t from[8];
    uint64_t block = UINT64_MAX;
    int rc = mdb_cursor_open(txn, s->env.dbi[LAR_DB_JOURNAL], &cursor);
    if (rc) return rc;
    lar_bytes_put_be64(from, *after + 1);
    MDB_val k = {sizeof from, from}, v;
    rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
    while (!rc) {
        if (k.mv_size != 8) break;
        uint64_t seq = lar_bytes_get_be64(k.mv_data);
        if (seq / LAR_BLOCK_RECORDS != block) {
            block = seq / LAR_BLOCK_RECORDS;
            if (!block_matters(s, txn, block, f)) {
                *after = block * LAR_BLOCK_RECORDS + (LAR_BLOCK_RECORDS - 1);
                lar_bytes_put_be64(from, *after + 1);
                k = (MDB_val){sizeof from, from};
                rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
                continue;
            }
        }
        if (!chunk_add(c, &k, &v)) break;
        *after = seq;
        rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    c->end = rc == MDB_NOTFOUND;
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}

lar_error lar_store_scan(lar_store *s, const lar_journal_filter *f, uint64_t after_seq, lar_journal_each each,
                         void *ctx, uint64_t *damaged) {
    chunk *c;
    lar_journal_record r;
    uint64_t bad = 0;
    bool go_on = true;
    if (damaged) *damaged = 0;
    lar_error e = after_seq == UINT64_MAX ? LAR_NOT_FOUND : chunk_new(&c);
    if (e) return e == LAR_NOT_FOUND ? LAR_OK : e;
    while (!e && go_on && !c->end) {
        lar_env_reader *reader;
        c->count = 0;
        c->bytes.len = 0;
        e = lar_env_read_begin(&s->env, &reader);
        if (e) break;
        uint64_t before = after_seq;
        e = lar_env_error(fill_journal(s, reader->txn, f, &after_seq, c));
        lar_env_read_end(&s->env, reader);
        for (uint32_t i = 0; !e && go_on && i < c->count; i++) {
            lar_slice key = entry_key(c, i);
            if (lar_journal_decode(entry_value(c, i), &r) != LAR_OK) bad++;
            else if (record_matches(f, &r)) go_on = each(ctx, lar_bytes_get_be64((const uint8_t *)key.ptr), &r);
        }
        if (!e && !c->count && !c->end && before == after_seq) break; /* a key that is none */
    }
    chunk_free(c);
    if (damaged) *damaged = bad;
    return e;
}

uint64_t lar_store_last_seq(lar_store *s) {
    lar_env_reader *reader;
    MDB_cursor *c;
    MDB_val k, v;
    uint64_t seq = 0;
    if (lar_env_read_begin(&s->env, &reader)) return 0;
    if (mdb_cursor_open(reader->txn, s->env.dbi[LAR_DB_JOURNAL], &c) == MDB_SUCCESS) {
        if (mdb_cursor_get(c, &k, &v, MDB_LAST) == MDB_SUCCESS && k.mv_size == 8) seq = lar_bytes_get_be64(k.mv_data);
        mdb_cursor_close(c);
    }
    lar_env_read_end(&s->env, reader);
    return seq;
}

/* -- roll-ups -------------------------------------------------------------------------------------------- */

static int fill_rollups(lar_store *s, MDB_txn *txn, lar_db db, lar_slice from, chunk *c) {
    MDB_cursor *cursor;
    MDB_val k = {from.len, (void *)from.ptr}, v;
    int rc = mdb_cursor_open(txn, s->env.dbi[db], &cursor);
    if (rc) return rc;
    rc = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
    while (!rc && chunk_add(c, &k, &v)) rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
    mdb_cursor_close(cursor);
    c->end = rc == MDB_NOTFOUND;
    return rc == MDB_NOTFOUND ? MDB_SUCCESS : rc;
}

static bool rollup_matches(const lar_journal_filter *f, const lar_rollup *r) {
    return (!f->tenant || f->tenant == r->tenant) && pattern_matches(f->model, r->model) &&
           pattern_matches(f->route, r->route);
}

/* False when the caller wants no more, or all that follows is too late. */
static bool give_rollups(const chunk *c, const lar_journal_filter *f, lar_rollup_each each, void *ctx) {
    for (uint32_t i = 0; i < c->count; i++) {
        lar_rollup r;
        if (lar_rollup_decode(entry_key(c, i), entry_value(c, i), &r) != LAR_OK) continue;
        if (f->until_ms && r.start_ms >= f->until_ms) return false;
        if (rollup_matches(f, &r) && !each(ctx, &r)) return false;
    }
    return true;
}

lar_error lar_store_rollups(lar_store *s, lar_rollup_step step, const lar_journal_filter *f, lar_rollup_each each,
                            void *ctx) {
    static const lar_db dbs[] = {
        [LAR_ROLLUP_MINUTE] = LAR_DB_MINUTE, [LAR_ROLLUP_HOUR] = LAR_DB_HOUR, [LAR_ROLLUP_DAY] = LAR_DB_DAY};
    uint8_t from[LAR_ROLLUP_KEY_MAX + 1];
    size_t from_len = 8;
    chunk *c;
    if (f->upstream.len || (unsigned)step > LAR_ROLLUP_DAY) return LAR_INVALID;
    lar_error e = chunk_new(&c);
    if (e) return e;
    lar_bytes_put_be64(from, (uint64_t)lar_rollup_start(step, f->since_ms));
    bool go_on = true;
    while (!e && go_on && !c->end) {
        lar_env_reader *reader;
        c->count = 0;
        c->bytes.len = 0;
        e = lar_env_read_begin(&s->env, &reader);
        if (e) break;
        e = lar_env_error(fill_rollups(s, reader->txn, dbs[step], lar_slice_of((const char *)from, from_len), c));
        lar_env_read_end(&s->env, reader);
        if (e || !c->count) break;
        /* The next piece begins at the least key behind the last one: the same with a zero at its end. */
        lar_slice last = entry_key(c, c->count - 1);
        if (last.len > LAR_ROLLUP_KEY_MAX) break;
        memcpy(from, last.ptr, last.len);
        from[last.len] = 0;
        from_len = last.len + 1;
        go_on = give_rollups(c, f, each, ctx);
    }
    chunk_free(c);
    return e;
}
