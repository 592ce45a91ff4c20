/* Keeps enough pages free: grows the map, and at its maximum lets the oldest records go.
 * Flow: apply.c asks before every transaction; retention.c removes. Writer thread; blocks on disk.
 * Why ahead of need: removing records in LMDB takes pages too, so a map that is really full cannot be emptied.
 * Invariants: 1. the table with the most pages gives way, so no kind of record drives out another.
 * 2. Every loop is bounded; what does not help is given up. Memory: none. */
#include "store/store_core.h"

enum { ROUNDS_MAX = 512, RESERVE_PAGES_MIN = 24 };

static uint64_t map_pages(const lar_store *s) {
    uint64_t bytes = s->env.map_bytes < s->env.map_bytes_max ? s->env.map_bytes : s->env.map_bytes_max;
    return bytes / s->env.page_bytes;
}

uint64_t lar_room_slice_pages(const lar_store *s) {
    uint64_t pages = map_pages(s) / 24;
    return pages < 8 ? 8 : pages > 1024 ? 1024 : pages;
}

static lar_db largest(lar_store *s, uint64_t *pages) {
    static const lar_db tables[] = {LAR_DB_JOURNAL, LAR_DB_MEMORY, LAR_DB_MINUTE, LAR_DB_HOUR, LAR_DB_DAY};
    lar_db best = LAR_DB_JOURNAL;
    *pages = 0;
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++) {
        uint64_t n = lar_env_pages_used_by(&s->env, tables[i]);
        if (tables[i] == LAR_DB_MEMORY && n) n += lar_env_pages_used_by(&s->env, LAR_DB_MEMORY_AGE);
        if (n <= *pages) continue;
        *pages = n;
        best = tables[i];
    }
    return best;
}

/* Recall records lie scattered: each one removed may copy a page of its own. Journal records fill a page by four or
 * five, sums by a dozen: either way a twelfth of the map or so goes at once. */
static uint32_t chunk_of(const lar_store *s, lar_db db) {
    uint64_t n = map_pages(s) / (db == LAR_DB_MEMORY ? 16 : db == LAR_DB_JOURNAL ? 3 : 1);
    return n < 8 ? 8 : n > 8192 ? 8192 : (uint32_t)n;
}

/* One transaction that removes something. False when nothing could be removed. */
static bool trim(lar_store *s) {
    uint64_t pages;
    lar_db db = largest(s, &pages);
    if (!pages) return false;
    for (uint32_t limit = chunk_of(s, db); limit; limit /= 2) {
        uint32_t removed = 0;
        int rc = lar_retain_oldest(s, db, limit, &removed);
        if (rc == MDB_SUCCESS) return removed > 0;
        if (rc != MDB_MAP_FULL && rc != MDB_TXN_FULL) return false;
    }
    return false;
}

bool lar_room_make(lar_store *s, uint64_t pages, lar_room_mode mode) {
    if (atomic_load(&s->env.broken)) return false;
    if (mode == LAR_ROOM_FORCED && lar_env_grow(&s->env) == LAR_OK) return true;
    uint64_t all, have;
    do {
        all = map_pages(s);
        uint64_t reserve = all / 16 < RESERVE_PAGES_MIN ? RESERVE_PAGES_MIN : all / 16;
        have = lar_env_pages_free(&s->env);
        if (mode == LAR_ROOM_IF_NEEDED && have >= pages + reserve) return true;
    } while (lar_env_grow(&s->env) == LAR_OK);
    /* More than is needed now, so that not every transaction has to come back here. */
    uint64_t target = pages + (all / 16 < RESERVE_PAGES_MIN ? RESERVE_PAGES_MIN : all / 16) + all / 16;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (!trim(s)) return false;
        have = lar_env_pages_free(&s->env);
        if (have >= target) return true;
    }
    return false;
}
