/* The store's inside, for its own files. */
#ifndef LARDER_STORE_STORE_CORE_H
#define LARDER_STORE_STORE_CORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/cache.h"
#include "store/env.h"
#include "store/record.h"
#include "store/segment_index.h"
#include "store/store.h"

enum { LAR_DELTAS_MAX = 512, LAR_DELTA_SLOTS = 1024 };

/* What is queued, in two halves: callers fill one while the writer works on the other. A ring would touch all
 * of its memory in turn; a half that is emptied every few milliseconds stays small and warm. */
typedef struct lar_queue_half {
    lar_journal_record *records;
    uint32_t record_count;
    char *chains; /* the records' chains point into it */
    size_t chain_bytes, chain_cap;
    lar_hash *keys; /* of recall values, which lie in the cache */
    uint32_t key_count, key_cap;
} lar_queue_half;

typedef struct lar_queue {
    pthread_mutex_t lock;
    pthread_cond_t wake;      /* the writer waits here */
    pthread_cond_t done;      /* lar_store_flush waits here */
    pthread_cond_t sync_wake; /* the syncer waits here */
    lar_queue_half halves[2];
    lar_queue_half *fill;
    uint64_t first_ns; /* when the half that fills got its first item */
    uint64_t flushes_wanted, flushes_done;
    bool stop, stop_sync;
    const lar_index_batch *index; /* changes to the index of pages; who gave them waits at `done` */
    uint64_t taken_flush;         /* writer: the flushes that the half it took answers */
    bool taken_stop;              /* writer: nothing comes behind the half it took */
    const lar_index_batch *taken_index;
} lar_queue;

/* Sums of one slice of a batch, by minute; writer thread only. */
typedef struct lar_deltas {
    lar_rollup rows[LAR_DELTAS_MAX];
    uint32_t count;
    uint16_t slots[LAR_DELTA_SLOTS]; /* row + 1; 0 = free */
} lar_deltas;

typedef enum lar_gripe {
    LAR_GRIPE_JOURNAL_FULL,
    LAR_GRIPE_MEMORY_FULL,
    LAR_GRIPE_WRITE,
    LAR_GRIPE_DAMAGE,
    LAR_GRIPE_COUNT
} lar_gripe;

struct lar_store {
    lar_env env;
    lar_store_options o; /* defaults filled in */
    lar_queue queue;
    lar_cache *cache;
    pthread_t writer, syncer;
    atomic_uint today;                              /* days since 1970 */
    atomic_bool unsynced;                           /* something was committed since the last sync */
    pthread_mutex_t sync_lock;                      /* a sync and a reopening exclude each other */
    atomic_uint_fast64_t gripe_ns[LAR_GRIPE_COUNT]; /* when each was logged last */
    atomic_uint_fast64_t gripes[LAR_GRIPE_COUNT];   /* since then */
    atomic_uint_fast64_t memory_damaged;
    atomic_bool has_pages; /* a lar_page_segments is open */
    uint32_t value_bytes_max;
    lar_hash_key key; /* of fingerprints */

    /* writer thread only */
    uint64_t next_seq;
    uint64_t block; /* the block of the last record written */
    lar_block block_span;
    bool block_open;
    lar_deltas *deltas;
    lar_buf scratch;
    uint64_t house_due_ns, reopened_ns;
};

/* Counts, and logs at most once a second: one line with how many there were. */
void lar_store_gripe(lar_store *s, lar_gripe g, uint64_t n, const char *detail);

/* -- queue.c ----------------------------------------------------------------------------------------- */
LAR_MUST_USE lar_error lar_queue_init(lar_queue *q, uint32_t records_max);
void lar_queue_release(lar_queue *q);
/* LIMIT when full. */
LAR_MUST_USE lar_error lar_queue_record(lar_queue *q, const lar_journal_record *r, uint32_t records_max);
LAR_MUST_USE lar_error lar_queue_key(lar_queue *q, const lar_hash *key);
/* Gives the writer changes to the index of pages and waits until they are committed or given up. One caller at a
 * time. */
void lar_queue_index(lar_queue *q, const lar_index_batch *batch);
/* Writer: waits until there is work, a flush, the stop, or `until_ns`; NULL if there is none. */
lar_queue_half *lar_queue_take(lar_queue *q, const lar_store_options *o, uint64_t until_ns);
/* Writer: the half (may be NULL) is empty again, the index's changes are done; answers the flushes asked for before. */
void lar_queue_taken_done(lar_queue *q, lar_queue_half *half);

/* -- writer.c ------------------------------------------------------------------------------------------ */
void *lar_writer_main(void *store);
void *lar_syncer_main(void *store);

/* -- apply.c; writer thread ---------------------------------------------------------------------------- */
/* Writes all of a half in as many transactions as it takes; what cannot be written is dropped and counted. */
void lar_apply_half(lar_store *s, lar_queue_half *half);
/* After LMDB's code `rc`: true if it answers nothing but errors until it is opened anew, and that was tried. */
bool lar_apply_reopened(lar_store *s, int rc);
/* Reads where the journal ends. LMDB's code. */
LAR_MUST_USE int lar_apply_resume(lar_store *s);
/* Remembers the next number before records are removed: it is never given twice. LMDB's code. */
LAR_MUST_USE int lar_apply_keep_seq(lar_store *s, MDB_txn *txn);

/* -- room.c; writer thread ------------------------------------------------------------------------------ */
typedef enum lar_room_mode {
    LAR_ROOM_IF_NEEDED,
    LAR_ROOM_FORCED /* LMDB has said that the map is full */
} lar_room_mode;
/* Makes sure that `pages` can be written: grows the map, then lets the oldest go. False if neither helps. */
bool lar_room_make(lar_store *s, uint64_t pages, lar_room_mode mode);
/* How many pages one transaction may write, so that it fits into what lar_room_make keeps free. */
uint64_t lar_room_slice_pages(const lar_store *s);

/* -- retention.c; writer thread --------------------------------------------------------------------------- */
/* Removes up to `limit` of a table's oldest in one transaction; *removed says how many. LMDB's code. */
LAR_MUST_USE int lar_retain_oldest(lar_store *s, lar_db db, uint32_t limit, uint32_t *removed);
/* Everything that is too old, in bounded steps; false when there is more to do. */
bool lar_retain_aged(lar_store *s);

#endif
