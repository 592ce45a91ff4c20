/* Opens the LMDB environment, checks it, creates or upgrades its tables; hands out read transactions.
 * Flow: store.c opens and closes, writer.c grows and reopens, memory.c and scan.c read. Open and close block on
 * disk; a read transaction begins and ends in well under a microsecond once its slot is warm.
 * Why a pool: with NOTLS any thread can use any slot, and a thread that ends leaks none.
 * Invariants: 1. a live read transaction holds map_lock shared, so the map is never moved under a reader.
 * 2. Nothing is looked up before check.c has passed the file. 3. One writing process: an flock outside LMDB's
 * own lock file, which LMDB may write anew. 4. NOSYNC without WRITEMAP: what a transaction committed outlives
 * the process (docs/durability.md). Memory: heap, at open only. Not here: records, queue, retention. */
#include "store/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ensure.h"
#include "store/bytes.h"
#include "store/check.h"
#include "store/migrate.h"

enum { PATH_BYTES = 4096, CHECK_ATTEMPTS = 3, RESIZE_ATTEMPTS = 8 };
#define MAP_BYTES_FIRST (UINT64_C(64) << 20)
static const char data_file[] = "data.mdb", damaged_file[] = "data.mdb.damaged", writer_file[] = "writer.lock";

static const char *const db_names[LAR_DB_COUNT] = {
    [LAR_DB_META] = "meta",
    [LAR_DB_JOURNAL] = "journal",
    [LAR_DB_BLOCKS] = "journal_blocks",
    [LAR_DB_MINUTE] = "rollup_minute",
    [LAR_DB_HOUR] = "rollup_hour",
    [LAR_DB_DAY] = "rollup_day",
    [LAR_DB_MEMORY] = "memory",
    [LAR_DB_MEMORY_AGE] = "memory_age",
    [LAR_DB_PAGES] = "pages",
};

lar_error lar_env_error(int rc) {
    switch (rc) {
    case MDB_SUCCESS: return LAR_OK;
    case MDB_NOTFOUND: return LAR_NOT_FOUND;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL: return LAR_FULL;
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INCOMPATIBLE: return LAR_CORRUPT;
    case MDB_VERSION_MISMATCH: return LAR_VERSION;
    case MDB_READERS_FULL: return LAR_BUSY;
    case ENOMEM: return LAR_NO_MEMORY;
    case ENOENT: return LAR_NOT_FOUND;
    default: return LAR_IO;
    }
}

static bool path_of(const lar_env *e, const char *file, char out[PATH_BYTES]) {
    int n = snprintf(out, PATH_BYTES, "%s/%s", e->dir, file);
    return n > 0 && n < PATH_BYTES;
}

/* -- opening ------------------------------------------------------------------------------------------ */

static lar_error take_writer_lock(lar_env *e, lar_diag *d) {
    char path[PATH_BYTES], pid[32] = "";
    if (!path_of(e, writer_file, path)) return lar_fail(LAR_INVALID, d, "store: the folder's path is too long");
    e->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (e->lock_fd < 0) return lar_fail(LAR_IO, d, "store: cannot open %s: %s", path, strerror(errno));
    if (flock(e->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return lar_fail(LAR_IO, d, "store: cannot lock %s: %s", path, strerror(errno));
        ssize_t n = pread(e->lock_fd, pid, sizeof pid - 1, 0);
        pid[n > 0 ? strspn(pid, "0123456789") : 0] = 0;
        return lar_fail(LAR_BUSY, d, "store: another larder (pid %s) writes to %s", pid[0] ? pid : "unknown", e->dir);
    }
    int len = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    /* Only for the message above: a full disk must not keep larder from starting. */
    if (ftruncate(e->lock_fd, 0) != 0 || pwrite(e->lock_fd, pid, (size_t)len, 0) != len) {
        LAR_LOG(e->log, LAR_LOG_WARN, "store_lock_unwritten", LAR_F_CSTR("error", strerror(errno)));
    }
    return LAR_OK;
}

static lar_error make_folder(lar_env *e, lar_diag *d) {
    struct stat st;
    if (mkdir(e->dir, 0700) != 0 && errno != EEXIST)
        return lar_fail(LAR_IO, d, "store: cannot create %s: %s", e->dir, strerror(errno));
    if (stat(e->dir, &st) != 0) return lar_fail(LAR_IO, d, "store: cannot read %s: %s", e->dir, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return lar_fail(LAR_IO, d, "store: %s is no folder", e->dir);
    if (st.st_mode & 077) LAR_LOG(e->log, LAR_LOG_WARN, "store_folder_open_to_others", LAR_F_CSTR("dir", e->dir));
    return LAR_OK;
}

/* The head, before LMDB sees the file. */
static lar_error check_before(lar_env *e, lar_diag *d) {
    char path[PATH_BYTES];
    struct stat st;
    if (!path_of(e, data_file, path)) return lar_fail(LAR_INVALID, d, "store: the folder's path is too long");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        return e->read_only
                   ? lar_fail(LAR_NOT_FOUND, d,
                              "store: no store in %s (nothing was journalled there yet, or the folder is another one)",
                              e->dir)
                   : LAR_OK;
    }
    if (fd < 0) return lar_fail(LAR_IO, d, "store: cannot open %s: %s", path, strerror(errno));
    lar_error err = lar_check_head(fd, d);
    if (!err && e->read_only && fstat(fd, &st) == 0 && st.st_size == 0)
        err = lar_fail(LAR_NOT_FOUND, d, "store: %s is empty", path);
    close(fd);
    return err;
}

static int map_open(lar_env *e) {
    int rc = mdb_env_create(&e->env);
    if (rc) return rc;
    unsigned flags = MDB_NOTLS | MDB_NOSYNC | (e->read_only ? MDB_RDONLY : 0);
    rc = mdb_env_set_maxdbs(e->env, LAR_DB_COUNT + 8);
    if (!rc && !e->read_only) rc = mdb_env_set_mapsize(e->env, e->map_bytes);
    if (!rc) rc = mdb_env_open(e->env, e->dir, flags, 0600);
    if (rc) {
        mdb_env_close(e->env);
        e->env = NULL;
    }
    return rc;
}

static void read_geometry(lar_env *e) {
    MDB_envinfo info;
    MDB_stat st;
    if (mdb_env_info(e->env, &info) == MDB_SUCCESS) e->map_bytes = info.me_mapsize;
    if (mdb_env_stat(e->env, &st) == MDB_SUCCESS) e->page_bytes = st.ms_psize;
}

/* A snapshot of the file, held by a read transaction meanwhile. A writer elsewhere may swap the heads between
 * two reads of this process: damage is real only if it is seen again. */
static lar_error check_pages(lar_env *e, lar_diag *d) {
    lar_error err = LAR_CORRUPT;
    for (int i = 0; i < CHECK_ATTEMPTS && err == LAR_CORRUPT; i++) {
        MDB_txn *txn;
        int fd, rc = mdb_env_get_fd(e->env, &fd);
        if (!rc) rc = mdb_txn_begin(e->env, NULL, MDB_RDONLY, &txn);
        if (rc == MDB_MAP_RESIZED) {
            rc = mdb_env_set_mapsize(e->env, 0);
            if (!rc) continue;
        }
        if (rc) return lar_fail(lar_env_error(rc), d, "store: %s", mdb_strerror(rc));
        err = lar_check_tree(fd, d);
        mdb_txn_abort(txn);
    }
    return err;
}

static int put_format(lar_env *e, MDB_txn *txn) {
    uint8_t format[4];
    lar_bytes_put_le(format, LAR_FORMAT, 4);
    MDB_val k = {6, (void *)"format"}, v = {sizeof format, format};
    return mdb_put(txn, e->dbi[LAR_DB_META], &k, &v, 0);
}

/* Opens every table inside `txn` and looks at the format number. A new environment gets it all here. */
static lar_error open_tables(lar_env *e, MDB_txn *txn, lar_diag *d) {
    MDB_stat st;
    MDB_dbi main_dbi;
    int rc = mdb_dbi_open(txn, NULL, 0, &main_dbi);
    if (!rc) rc = mdb_stat(txn, main_dbi, &st);
    if (rc) return lar_fail(lar_env_error(rc), d, "store: %s", mdb_strerror(rc));
    bool fresh = st.ms_entries == 0;
    if (fresh && e->read_only) return lar_fail(LAR_NOT_FOUND, d, "store: the store in %s is empty", e->dir);
    uint32_t format = 0;
    if (!fresh) {
        MDB_val k = {6, (void *)"format"}, v;
        rc = mdb_dbi_open(txn, db_names[LAR_DB_META], 0, &e->dbi[LAR_DB_META]);
        if (!rc) rc = mdb_get(txn, e->dbi[LAR_DB_META], &k, &v);
        if (rc == MDB_NOTFOUND || (!rc && v.mv_size != 4))
            return lar_fail(LAR_VERSION, d, "store: %s holds an LMDB file that is not larder's", e->dir);
        if (rc) return lar_fail(lar_env_error(rc), d, "store: %s", mdb_strerror(rc));
        format = (uint32_t)lar_bytes_get_le(v.mv_data, 4);
        if (format > LAR_FORMAT || format == 0) {
            return lar_fail(LAR_VERSION, d, "store: %s has format %u, this larder knows up to %u: use a newer larder",
                            e->dir, format, LAR_FORMAT);
        }
        if (format < LAR_FORMAT && e->read_only) {
            return lar_fail(LAR_VERSION, d,
                            "store: %s has the older format %u: larder serve upgrades it when it starts", e->dir,
                            format);
        }
    }
    for (int i = 0; i < LAR_DB_COUNT; i++) {
        rc = mdb_dbi_open(txn, db_names[i], e->read_only ? 0 : MDB_CREATE, &e->dbi[i]);
        if (rc)
            return lar_fail(rc == MDB_NOTFOUND ? LAR_CORRUPT : lar_env_error(rc), d, "store: table %s: %s", db_names[i],
                            mdb_strerror(rc));
    }
    if (e->read_only || format == LAR_FORMAT) return LAR_OK;
    rc = fresh ? MDB_SUCCESS : lar_migrate(e, txn, format);
    if (!rc) rc = put_format(e, txn);
    if (rc)
        return lar_fail(lar_env_error(rc), d, "store: cannot %s the store: %s", fresh ? "create" : "upgrade",
                        mdb_strerror(rc));
    return LAR_OK;
}

/* An upgrade of a store that is nearly full may need a larger map. */
static lar_error open_tables_in_txn(lar_env *e, lar_diag *d) {
    lar_error err;
    do {
        MDB_txn *txn;
        int rc = mdb_txn_begin(e->env, NULL, e->read_only ? MDB_RDONLY : 0, &txn);
        if (rc) return lar_fail(lar_env_error(rc), d, "store: %s", mdb_strerror(rc));
        err = open_tables(e, txn, d);
        if (err) {
            mdb_txn_abort(txn);
            continue;
        }
        rc = mdb_txn_commit(txn);
        if (rc) err = lar_fail(lar_env_error(rc), d, "store: %s", mdb_strerror(rc));
    } while (err == LAR_FULL && !e->read_only && lar_env_grow(e) == LAR_OK);
    return err;
}

static lar_error open_map(lar_env *e, lar_diag *d) {
    lar_error err = check_before(e, d);
    if (err) return err;
    int rc = map_open(e);
    if (rc) return lar_fail(lar_env_error(rc), d, "store: cannot open %s: %s", e->dir, mdb_strerror(rc));
    int dead;
    (void)mdb_reader_check(e->env, &dead);
    err = check_pages(e, d);
    if (!err) err = open_tables_in_txn(e, d);
    if (!err) {
        read_geometry(e);
        return LAR_OK;
    }
    mdb_env_close(e->env);
    e->env = NULL;
    return err;
}

/* The journal is a record of the past and the memory a cache: a gateway that does not start for their sake
 * does more harm than an empty store. The damaged file is kept, one of them, for whoever wants to look. */
static lar_error set_aside(lar_env *e, lar_diag *d) {
    char from[PATH_BYTES], to[PATH_BYTES];
    if (!path_of(e, data_file, from) || !path_of(e, damaged_file, to)) return LAR_CORRUPT;
    LAR_LOG(e->log, LAR_LOG_ERROR, "store_damaged", LAR_F_CSTR("dir", e->dir), LAR_F_CSTR("detail", d->text),
            LAR_F_CSTR("kept_as", damaged_file));
    if (rename(from, to) != 0)
        return lar_fail(LAR_IO, d, "store: %s is damaged and cannot be moved away: %s", from, strerror(errno));
    return LAR_OK;
}

lar_error lar_env_open(lar_env *e, const lar_env_options *o, lar_diag *d) {
    lar_diag own = {0};
    if (!d) d = &own;
    *e = (lar_env){.lock_fd = -1, .read_only = o->read_only, .log = o->log, .map_bytes_max = o->map_bytes_max};
    if (!o->dir || !o->dir[0]) return lar_fail(LAR_INVALID, d, "store: no folder given");
    e->dir = strdup(o->dir);
    if (!e->dir) return LAR_NO_MEMORY;
    /* Growing must not wait behind an endless row of readers. */
    pthread_rwlockattr_t attr;
    (void)pthread_rwlockattr_init(&attr);
    (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    (void)pthread_rwlock_init(&e->map_lock, &attr);
    (void)pthread_rwlockattr_destroy(&attr);

    e->map_bytes = e->map_bytes_max < MAP_BYTES_FIRST ? e->map_bytes_max : MAP_BYTES_FIRST;
    lar_error err = e->read_only ? LAR_OK : make_folder(e, d);
    if (!err && !e->read_only) err = take_writer_lock(e, d);
    if (!err) err = open_map(e, d);
    if (err == LAR_CORRUPT && !e->read_only) {
        err = set_aside(e, d);
        if (!err) err = open_map(e, d);
    }
    if (err == LAR_CORRUPT && !strstr(d->text, "store:")) {
        char what[LAR_DIAG_BYTES];
        (void)snprintf(what, sizeof what, "%s", d->text);
        (void)lar_fail(err, d, "store: %.120s/%s is damaged: %.140s", e->dir, data_file, what);
    }
    if (err) lar_env_close(e);
    return err;
}

void lar_env_close(lar_env *e) {
    for (int i = 0; i < LAR_ENV_READERS; i++) {
        if (e->readers[i].txn) mdb_txn_abort(e->readers[i].txn);
        e->readers[i].txn = NULL;
    }
    if (e->env) mdb_env_close(e->env);
    e->env = NULL;
    if (e->lock_fd >= 0) close(e->lock_fd);
    e->lock_fd = -1;
    if (e->dir) (void)pthread_rwlock_destroy(&e->map_lock);
    free(e->dir);
    e->dir = NULL;
}

/* -- reading ------------------------------------------------------------------------------------------ */

static lar_env_reader *take_slot(lar_env *e) {
    for (int i = 0; i < LAR_ENV_READERS; i++) {
        lar_env_reader *r = &e->readers[i];
        if (atomic_load_explicit(&r->busy, memory_order_relaxed)) continue;
        if (!atomic_exchange_explicit(&r->busy, 1, memory_order_acquire)) return r;
    }
    return NULL;
}

static void give_slot(lar_env_reader *r) { atomic_store_explicit(&r->busy, 0, memory_order_release); }

static int begin_in_slot(lar_env *e, lar_env_reader *r) {
    if (r->txn) return mdb_txn_renew(r->txn);
    int rc = mdb_txn_begin(e->env, NULL, MDB_RDONLY, &r->txn);
    if (rc) r->txn = NULL;
    return rc;
}

/* Another process has grown the map. */
static void follow_resize(lar_env *e) {
    (void)pthread_rwlock_wrlock(&e->map_lock);
    if (mdb_env_set_mapsize(e->env, 0) != MDB_SUCCESS) atomic_store(&e->broken, true);
    (void)pthread_rwlock_unlock(&e->map_lock);
}

lar_error lar_env_read_begin(lar_env *e, lar_env_reader **out) {
    int rc = MDB_READERS_FULL;
    for (int i = 0; i < RESIZE_ATTEMPTS; i++) {
        (void)pthread_rwlock_rdlock(&e->map_lock);
        lar_env_reader *r = atomic_load(&e->broken) ? NULL : take_slot(e);
        if (!r) {
            (void)pthread_rwlock_unlock(&e->map_lock);
            return atomic_load(&e->broken) ? LAR_IO : LAR_BUSY;
        }
        rc = begin_in_slot(e, r);
        if (rc == MDB_SUCCESS) {
            *out = r;
            return LAR_OK;
        }
        give_slot(r);
        (void)pthread_rwlock_unlock(&e->map_lock);
        if (rc == MDB_MAP_RESIZED) follow_resize(e);
        else if (rc == MDB_READERS_FULL) lar_env_sweep_readers(e);
        else break;
    }
    return lar_env_error(rc);
}

void lar_env_read_end(lar_env *e, lar_env_reader *r) {
    mdb_txn_reset(r->txn);
    give_slot(r);
    (void)pthread_rwlock_unlock(&e->map_lock);
}

void lar_env_sweep_readers(lar_env *e) {
    int dead = 0;
    (void)pthread_rwlock_rdlock(&e->map_lock);
    if (!atomic_load(&e->broken)) (void)mdb_reader_check(e->env, &dead);
    (void)pthread_rwlock_unlock(&e->map_lock);
    if (dead) LAR_LOG(e->log, LAR_LOG_INFO, "store_dead_readers", LAR_F_INT("count", dead));
}

/* -- the writer thread's --------------------------------------------------------------------------------- */

lar_error lar_env_grow(lar_env *e) {
    if (e->map_bytes >= e->map_bytes_max) return LAR_FULL;
    uint64_t before = e->map_bytes, want = before > e->map_bytes_max / 2 ? e->map_bytes_max : before * 2;
    (void)pthread_rwlock_wrlock(&e->map_lock);
    int rc = mdb_env_set_mapsize(e->env, want);
    /* LMDB has let go of the old map before it asked for the new one. */
    if (rc && mdb_env_set_mapsize(e->env, before) != MDB_SUCCESS) atomic_store(&e->broken, true);
    if (rc) e->map_bytes_max = before;
    read_geometry(e);
    (void)pthread_rwlock_unlock(&e->map_lock);
    LAR_LOG(e->log, rc ? LAR_LOG_WARN : LAR_LOG_INFO, rc ? "store_map_stays" : "store_map_grown",
            LAR_F_INT("bytes", e->map_bytes), LAR_F_CSTR("detail", rc ? mdb_strerror(rc) : "ok"));
    return rc ? LAR_FULL : LAR_OK;
}

static uint64_t freed_pages(lar_env *e) {
    lar_env_reader *r;
    MDB_cursor *c;
    MDB_val k, v;
    uint64_t pages = 0;
    if (lar_env_read_begin(e, &r)) return 0;
    if (mdb_cursor_open(r->txn, 0, &c) == MDB_SUCCESS) { /* table 0 is LMDB's list of free pages */
        while (mdb_cursor_get(c, &k, &v, MDB_NEXT) == MDB_SUCCESS) {
            size_t n = 0;
            if (v.mv_size >= sizeof n) memcpy(&n, v.mv_data, sizeof n);
            pages += n;
        }
        mdb_cursor_close(c);
    }
    lar_env_read_end(e, r);
    return pages;
}

uint64_t lar_env_pages_free(lar_env *e) {
    MDB_envinfo info;
    if (atomic_load(&e->broken) || mdb_env_info(e->env, &info) != MDB_SUCCESS) return 0;
    uint64_t used = info.me_last_pgno + 1, all = e->map_bytes_max / e->page_bytes, now = e->map_bytes / e->page_bytes;
    if (now < all) all = now;
    /* A maximum that was lowered below what the file holds: free pages pay that debt first. */
    uint64_t freed = used + all / 4 < all ? 0 : freed_pages(e);
    return used > all ? (freed > used - all ? freed - (used - all) : 0) : all - used + freed;
}

/* All zero where it cannot be read. */
static MDB_stat stat_of(lar_env *e, lar_db db) {
    lar_env_reader *r;
    MDB_stat st = {0};
    if (lar_env_read_begin(e, &r)) return st;
    if (mdb_stat(r->txn, e->dbi[db], &st)) st = (MDB_stat){0};
    lar_env_read_end(e, r);
    return st;
}

uint64_t lar_env_pages_used_by(lar_env *e, lar_db db) {
    MDB_stat st = stat_of(e, db);
    return st.ms_entries ? st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages : 0;
}

uint64_t lar_env_entries(lar_env *e, lar_db db) { return stat_of(e, db).ms_entries; }

lar_error lar_env_reopen(lar_env *e) {
    lar_diag d = {0};
    (void)pthread_rwlock_wrlock(&e->map_lock);
    for (int i = 0; i < LAR_ENV_READERS; i++) {
        if (e->readers[i].txn) mdb_txn_abort(e->readers[i].txn);
        e->readers[i].txn = NULL;
    }
    if (e->env) mdb_env_close(e->env);
    e->env = NULL;
    lar_error err = open_map(e, &d);
    atomic_store(&e->broken, err != LAR_OK);
    (void)pthread_rwlock_unlock(&e->map_lock);
    LAR_LOG(e->log, err ? LAR_LOG_ERROR : LAR_LOG_WARN, "store_reopened", LAR_F_CSTR("detail", err ? d.text : "ok"));
    return err;
}
