/* The LMDB environment: opening, locking, growing, read transactions that any thread may use. */
#ifndef LARDER_STORE_ENV_H
#define LARDER_STORE_ENV_H

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"

typedef enum lar_db {
    LAR_DB_META,    /* "format", "next_seq" */
    LAR_DB_JOURNAL, /* seq 8 -> journal record */
    LAR_DB_BLOCKS,  /* seq / 1024, 8 -> span of times */
    LAR_DB_MINUTE,  /* roll-ups */
    LAR_DB_HOUR,
    LAR_DB_DAY,
    LAR_DB_MEMORY,     /* key 16 -> recall record */
    LAR_DB_MEMORY_AGE, /* day 4, key 16 -> nothing */
    LAR_DB_PAGES,      /* key 32 -> place of a page in the segment files */
    LAR_DB_COUNT
} lar_db;

enum { LAR_FORMAT = 3, LAR_ENV_READERS = 32 };

typedef struct lar_env_reader {
    _Alignas(64) atomic_int busy;
    MDB_txn *txn; /* reset between uses; NULL before the first */
} lar_env_reader;

typedef struct lar_env {
    MDB_env *env;
    MDB_dbi dbi[LAR_DB_COUNT];
    pthread_rwlock_t map_lock; /* readers hold it shared while a transaction lives; resizing takes it alone */
    lar_env_reader readers[LAR_ENV_READERS];
    uint64_t map_bytes, map_bytes_max; /* written under map_lock by the writer thread */
    uint32_t page_bytes;
    bool read_only;
    atomic_bool broken; /* the map is gone: every call answers IO */
    int lock_fd;        /* holds the writers' lock; -1 when read only */
    char *dir;
    lar_log *log;
} lar_env;

typedef struct lar_env_options {
    const char *dir;
    uint64_t map_bytes_max;
    bool read_only;
    lar_log *log;
} lar_env_options;

/* Opens, checks, creates or upgrades. Embedded; on an error everything is released. See lar_store_open. */
LAR_MUST_USE lar_error lar_env_open(lar_env *e, const lar_env_options *o, lar_diag *d);
void lar_env_close(lar_env *e);

/* A read transaction for a short while: nothing may block before the end. BUSY, IO, NO_MEMORY. */
LAR_MUST_USE lar_error lar_env_read_begin(lar_env *e, lar_env_reader **out);
void lar_env_read_end(lar_env *e, lar_env_reader *r);

/* -- writer thread only ------------------------------------------------------------------------------ */

/* Doubles the map up to its maximum. FULL when it is there already. */
LAR_MUST_USE lar_error lar_env_grow(lar_env *e);
/* Pages that can still be used at the present size: behind the last page, and freed ones. */
uint64_t lar_env_pages_free(lar_env *e);
uint64_t lar_env_pages_used_by(lar_env *e, lar_db db); /* any thread */
uint64_t lar_env_entries(lar_env *e, lar_db db);       /* any thread */
/* After a failure that LMDB cannot get over in place: closes and opens the environment again. */
LAR_MUST_USE lar_error lar_env_reopen(lar_env *e);
/* Slots of readers that died are given back. */
void lar_env_sweep_readers(lar_env *e);

/* LMDB's and the system's codes as lar_error. */
lar_error lar_env_error(int rc);

#endif
