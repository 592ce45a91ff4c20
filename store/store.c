/* Opens and closes the store and takes what callers hand over.
 * Flow: callers -> queue.c -> writer.c -> LMDB; lar_store_flush waits for the writer. Any thread; only open,
 * flush and close block. Why here: the options' defaults, the threads' start and end, and the counting of
 * what is dropped belong together. Invariants: 1. a read-only store has no queue, cache or threads.
 * 2. Nothing that a caller does can fail for the disk's sake: it is dropped, counted and logged.
 * Memory: heap, bounded by the options. Not here: look-ups (memory.c), queries (scan.c). */
#include "store/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "store/side_file.h"
#include "store/store_core.h"

enum { MAP_BYTES_MIN = 1 << 20, DAY_MS = 86400000 };
static const char key_file[] = "fingerprint.key";
#define MAP_BYTES_MAX (UINT64_C(1) << 45)

static lar_store_options with_defaults(const lar_store_options *o) {
    lar_store_options d = *o;
    if (!d.map_bytes_max) d.map_bytes_max = UINT64_C(1) << 30;
    if (d.map_bytes_max < MAP_BYTES_MIN) d.map_bytes_max = MAP_BYTES_MIN;
    if (d.map_bytes_max > MAP_BYTES_MAX) d.map_bytes_max = MAP_BYTES_MAX;
    d.map_bytes_max &= ~(uint64_t)0xffff; /* whole pages of any size that is in use */
    if (!d.retention_ms) d.retention_ms = UINT64_C(90) * DAY_MS;
    if (!d.memory_retention_ms) d.memory_retention_ms = UINT64_C(7) * DAY_MS;
    if (!d.commit_ms) d.commit_ms = 10;
    if (!d.sync_ms) d.sync_ms = 1000;
    if (!d.queue_records_max) d.queue_records_max = 65536;
    if (!d.memory_bytes_max) d.memory_bytes_max = 64u << 20;
    return d;
}

void lar_store_gripe(lar_store *s, lar_gripe g, uint64_t n, const char *detail) {
    static const char *const events[LAR_GRIPE_COUNT] = {
        [LAR_GRIPE_JOURNAL_FULL] = "store_journal_dropped",
        [LAR_GRIPE_MEMORY_FULL] = "store_memory_dropped",
        [LAR_GRIPE_WRITE] = "store_write_failed",
        [LAR_GRIPE_DAMAGE] = "store_record_damaged",
    };
    (void)atomic_fetch_add(&s->gripes[g], n);
    uint64_t now = lar_clock_mono_ns(), last = atomic_load(&s->gripe_ns[g]);
    if (last && now - last < 1000000000u) return;
    if (!atomic_compare_exchange_strong(&s->gripe_ns[g], &last, now)) return;
    uint64_t count = atomic_exchange(&s->gripes[g], 0);
    LAR_LOG(s->o.log, LAR_LOG_WARN, events[g], LAR_F_INT("count", count), LAR_F_CSTR("detail", detail));
}

static lar_error start_threads(lar_store *s, lar_diag *d) {
    int rc = pthread_create(&s->writer, NULL, lar_writer_main, s);
    if (rc) return lar_fail(LAR_IO, d, "store: cannot start the writer: %s", strerror(rc));
    rc = pthread_create(&s->syncer, NULL, lar_syncer_main, s);
    if (!rc) return LAR_OK;
    (void)pthread_mutex_lock(&s->queue.lock);
    s->queue.stop = true;
    (void)pthread_cond_broadcast(&s->queue.wake);
    (void)pthread_mutex_unlock(&s->queue.lock);
    (void)pthread_join(s->writer, NULL);
    return lar_fail(LAR_IO, d, "store: cannot start the syncer: %s", strerror(rc));
}

/* Fingerprints are worth no failed start: without the file they only do not fit those of another run. */
static lar_error open_key(lar_store *s) {
    lar_buf b;
    lar_buf_init(&b, sizeof s->key.bytes);
    lar_error e = lar_side_file_read(s->env.dir, key_file, &b);
    bool whole = !e && b.len == sizeof s->key.bytes;
    if (whole) memcpy(s->key.bytes, b.ptr, sizeof s->key.bytes);
    lar_buf_release(&b);
    if (whole) return LAR_OK;
    if (getrandom(s->key.bytes, sizeof s->key.bytes, 0) != sizeof s->key.bytes) return LAR_IO;
    const char *why = e == LAR_NOT_FOUND ? NULL : e == LAR_IO ? "cannot be read" : "has not 32 bytes";
    if (e != LAR_IO && lar_side_file_write(s->env.dir, key_file, lar_slice_of((const char *)s->key.bytes, 32)))
        why = "cannot be written";
    if (why)
        LAR_LOG(s->o.log, LAR_LOG_WARN, "fingerprint_key", LAR_F_CSTR("file", key_file), LAR_F_CSTR("detail", why));
    return LAR_OK;
}

static lar_error open_for_writing(lar_store *s, lar_diag *d) {
    uint64_t value_max = s->o.map_bytes_max / 32;
    s->value_bytes_max = value_max > 1u << 20 ? 1u << 20 : (uint32_t)value_max;
    lar_buf_init(&s->scratch, LAR_JREC_BYTES_MAX);
    lar_error e = lar_queue_init(&s->queue, s->o.queue_records_max);
    if (e) return e;
    s->cache = lar_cache_new(s->o.memory_bytes_max);
    s->deltas = calloc(1, sizeof *s->deltas);
    if (!s->cache || !s->deltas) e = LAR_NO_MEMORY;
    if (!e) {
        int rc = lar_apply_resume(s);
        if (rc) e = lar_fail(lar_env_error(rc), d, "store: cannot read the end of the journal: %s", mdb_strerror(rc));
    }
    if (!e) {
        e = open_key(s);
        if (e) (void)lar_fail(e, d, "store: no random bytes");
    }
    if (!e) e = start_threads(s, d);
    if (e) lar_queue_release(&s->queue);
    return e;
}

static void release(lar_store *s) {
    lar_env_close(&s->env);
    lar_cache_free(s->cache);
    free(s->deltas);
    lar_buf_release(&s->scratch);
    (void)pthread_mutex_destroy(&s->sync_lock);
    free(s);
}

lar_error lar_store_open(const lar_store_options *o, lar_store **out, lar_diag *d) {
    lar_store *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (!s) return LAR_NO_MEMORY;
    memset(s, 0, sizeof *s);
    s->o = with_defaults(o);
    (void)pthread_mutex_init(&s->sync_lock, NULL);
    atomic_store(&s->today, (unsigned)(lar_clock_wall_ms() / DAY_MS));
    lar_env_options eo = {s->o.dir, s->o.map_bytes_max, s->o.read_only, s->o.log};
    lar_error e = lar_env_open(&s->env, &eo, d);
    if (!e && !s->o.read_only) e = open_for_writing(s, d);
    if (e) {
        release(s);
        return e;
    }
    s->o.dir = NULL; /* the caller's; env keeps a copy */
    *out = s;
    return LAR_OK;
}

void lar_store_close(lar_store *s) {
    if (!s) return;
    if (!s->o.read_only) {
        lar_queue *q = &s->queue;
        (void)pthread_mutex_lock(&q->lock);
        q->stop = true;
        (void)pthread_cond_broadcast(&q->wake);
        (void)pthread_mutex_unlock(&q->lock);
        (void)pthread_join(s->writer, NULL);
        (void)pthread_mutex_lock(&q->lock);
        q->stop_sync = true;
        (void)pthread_cond_broadcast(&q->sync_wake);
        (void)pthread_mutex_unlock(&q->lock);
        (void)pthread_join(s->syncer, NULL);
        lar_queue_release(q);
    }
    release(s);
}

const lar_hash_key *lar_store_key(const lar_store *s) { return s->o.read_only ? NULL : &s->key; }

lar_error lar_store_note_read(lar_store *s, const char *name, lar_buf *out) {
    return lar_side_file_read(s->env.dir, name, out);
}

lar_error lar_store_note_write(lar_store *s, const char *name, lar_slice bytes) {
    return s->o.read_only ? LAR_INVALID : lar_side_file_write(s->env.dir, name, bytes);
}

void lar_store_journal(lar_store *s, const lar_journal_record *r) {
    if (s->o.read_only) return;
    if (lar_queue_record(&s->queue, r, s->o.queue_records_max) == LAR_OK) return;
    lar_metrics_add(s->o.metrics, LAR_METRIC_JOURNAL_DROPPED_TOTAL, 1);
    lar_store_gripe(s, LAR_GRIPE_JOURNAL_FULL, 1, "the queue is full");
}

void lar_store_flush(lar_store *s) {
    if (s->o.read_only) return;
    lar_queue *q = &s->queue;
    (void)pthread_mutex_lock(&q->lock);
    uint64_t mine = ++q->flushes_wanted;
    (void)pthread_cond_signal(&q->wake);
    while (q->flushes_done < mine) (void)pthread_cond_wait(&q->done, &q->lock);
    (void)pthread_mutex_unlock(&q->lock);
}
