/* larder's store: one LMDB environment with journal, roll-ups and recall memory.
 *
 * One writer thread commits in groups; callers only queue and never wait. Other processes may read while
 * larder runs (lar_store_open with read_only). Files are 0600 in a directory of 0700. */
#ifndef LARDER_STORE_STORE_H
#define LARDER_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "store/journal.h"

typedef struct lar_store lar_store;

typedef struct lar_store_options {
    const char *dir;
    bool read_only;             /* for stats, tail and export: no writer thread, no locks taken for writing */
    uint64_t map_bytes_max;     /* 0 = 1 GiB; the map grows to it in steps, then the oldest go first */
    uint64_t retention_ms;      /* journal records older than this are removed; 0 = 90 days */
    uint64_t memory_retention_ms; /* recall records not used for this long are removed; 0 = 7 days */
    uint32_t commit_ms;         /* 0 = 10: a queued record is in a transaction after this at the latest */
    uint32_t sync_ms;           /* 0 = 1000: fsync interval; a process death loses nothing committed (durability.md) */
    uint32_t queue_records_max; /* 0 = 65536; records over it are dropped and counted */
    uint32_t memory_bytes_max;  /* 0 = 64 MiB: recall records held in memory beside the map */
    lar_log *log;               /* borrowed, may be NULL */
    lar_metrics *metrics;       /* borrowed, may be NULL */
} lar_store_options;

/* Opens or creates; starts the writer unless read_only. IO, VERSION, CORRUPT (read_only; a writer moves a damaged
 * file aside, logs it and begins anew), NOT_FOUND (read_only and absent), BUSY (another larder writes here).
 * `dir` is copied. One store of a folder at a time in a process: LMDB's locks allow no more. */
LAR_MUST_USE lar_error lar_store_open(const lar_store_options *o, lar_store **out, lar_diag *d);
/* Flushes the queue, syncs, stops the writer, frees. Other threads must have stopped using it. */
void lar_store_close(lar_store *s);

/* The installation's secret for fingerprints, made at the first start and kept in the folder (fingerprint.key, 0600).
 * Where it cannot be kept it is this process's alone. NULL if read only. */
const lar_hash_key *lar_store_key(const lar_store *s);
/* A small file of the caller's in the folder, read and replaced whole. Both block on the disk. `name` is static text.
 * NOT_FOUND, LIMIT, IO. */
LAR_MUST_USE lar_error lar_store_note_read(lar_store *s, const char *name, lar_buf *out);
LAR_MUST_USE lar_error lar_store_note_write(lar_store *s, const char *name, lar_slice bytes);

/* Queues a copy. Any thread; never blocks on disk. */
void lar_store_journal(lar_store *s, const lar_journal_record *r);
/* Returns once all that was queued before is committed (tests, shutdown). */
void lar_store_flush(lar_store *s);

/* Recall memory; signatures fit lar_memory_ops (ctx = lar_store). Any thread. */
lar_error lar_store_memory_get(void *store, const lar_hash *key, lar_buf *out);
void lar_store_memory_put(void *store, const lar_hash *key, lar_slice value);

/* How much recall memory there is. Any thread; reads no value. */
typedef struct lar_memory_size {
    uint64_t entries, bytes; /* on disk: values, and the pages that they and their index take */
    uint64_t cache_bytes;    /* in memory */
} lar_memory_size;
lar_memory_size lar_store_memory_size(lar_store *s);

/* -- queries: any thread or process, in a read transaction of their own ------------------------------ */

typedef struct lar_journal_filter {
    int64_t since_ms, until_ms; /* 0 = open */
    lar_slice model, route, upstream; /* exact, or prefix when ending in '*'; empty = all */
    uint64_t tenant;            /* 0 = all */
} lar_journal_filter;

/* Calls `each` for the matching records, oldest first, until it returns false. `seq` is the record's place in
 * the journal (grows, never reused). Starts behind `after_seq`. Damaged records are skipped and counted. */
typedef bool (*lar_journal_each)(void *ctx, uint64_t seq, const lar_journal_record *r);
LAR_MUST_USE lar_error lar_store_scan(lar_store *s, const lar_journal_filter *f, uint64_t after_seq,
                                      lar_journal_each each, void *ctx, uint64_t *damaged);

/* The number of the newest record; 0 when the journal is empty or cannot be read. */
uint64_t lar_store_last_seq(lar_store *s);

typedef enum lar_rollup_step { LAR_ROLLUP_MINUTE, LAR_ROLLUP_HOUR, LAR_ROLLUP_DAY } lar_rollup_step;
/* Sums over one step for one (model, route, tenant). Unknown token counts are counted, never added as 0. */
typedef struct lar_rollup {
    int64_t start_ms;
    char model[LAR_JREC_NAME_BYTES], route[LAR_JREC_NAME_BYTES];
    uint64_t tenant;
    uint64_t requests, completed, usage_known;
    uint64_t prompt, hit, miss, write, output; /* tokens, of requests with known usage */
    uint64_t ttft_us_sum, total_us_sum, ttft_known;
    uint64_t request_bytes, sent_bytes, response_bytes, edited;
} lar_rollup;
typedef bool (*lar_rollup_each)(void *ctx, const lar_rollup *r);
/* Oldest first. since_ms is rounded down to the step; a filter by upstream is INVALID. Minutes are kept two days,
 * hours as long as the journal, days for years. */
LAR_MUST_USE lar_error lar_store_rollups(lar_store *s, lar_rollup_step step, const lar_journal_filter *f,
                                         lar_rollup_each each, void *ctx);

#endif
