/* The queue between callers and the writer thread: two halves under one lock, swapped by the writer.
 * Flow: lar_store_journal and lar_store_memory_put fill; writer.c takes. A caller holds the lock for one copy and
 * never waits for the disk. Why a lock: it is taken a few thousand times a second for fifty nanoseconds.
 * Invariants: 1. a half is either filled by callers or worked on by the writer. 2. The writer is woken when
 * the first item comes and when the half is half full, not for every item.
 * Memory: records and chains preallocated (touched only as far as they are used), keys grow to a bound. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/store_core.h"

/* Chains: room for a conversation of twenty messages a record, and for the longest one in any queue. */
enum { KEYS_MAX = 1 << 20, CHAIN_BYTES_EACH = 512, CHAINS_BYTES_MIN = 64 * 1024 };

lar_error lar_queue_init(lar_queue *q, uint32_t records_max) {
    *q = (lar_queue){0};
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->wake, &attr);
    (void)pthread_cond_init(&q->done, &attr);
    (void)pthread_cond_init(&q->sync_wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    q->fill = &q->halves[0];
    for (int i = 0; i < 2; i++) {
        /* not cleared: what is never used then never becomes resident */
        q->halves[i].records = malloc((size_t)records_max * sizeof *q->halves[i].records);
        size_t chains = (size_t)records_max * CHAIN_BYTES_EACH;
        q->halves[i].chain_cap = chains < CHAINS_BYTES_MIN ? CHAINS_BYTES_MIN : chains;
        q->halves[i].chains = malloc(q->halves[i].chain_cap);
        if (!q->halves[i].records || !q->halves[i].chains) {
            lar_queue_release(q);
            return LAR_NO_MEMORY;
        }
    }
    return LAR_OK;
}

void lar_queue_release(lar_queue *q) {
    for (int i = 0; i < 2; i++) {
        free(q->halves[i].records);
        free(q->halves[i].chains);
        free(q->halves[i].keys);
    }
    (void)pthread_mutex_destroy(&q->lock);
    (void)pthread_cond_destroy(&q->wake);
    (void)pthread_cond_destroy(&q->done);
    (void)pthread_cond_destroy(&q->sync_wake);
}

/* The first item starts the commit interval. */
static void wake_if_first(lar_queue *q) {
    if (q->fill->record_count + q->fill->key_count != 1) return;
    q->first_ns = lar_clock_mono_ns();
    (void)pthread_cond_signal(&q->wake);
}

/* A record for which there is no more room for its chain goes without: the account matters more. */
static void add_record(lar_queue_half *h, const lar_journal_record *r) {
    lar_journal_record *to = &h->records[h->record_count++];
    *to = *r;
    to->chain = (lar_slice){NULL, 0};
    if (!r->chain.len || r->chain.len > h->chain_cap - h->chain_bytes) return;
    memcpy(h->chains + h->chain_bytes, r->chain.ptr, r->chain.len);
    to->chain = lar_slice_of(h->chains + h->chain_bytes, r->chain.len);
    h->chain_bytes += r->chain.len;
}

lar_error lar_queue_record(lar_queue *q, const lar_journal_record *r, uint32_t records_max) {
    lar_error e = LAR_OK;
    (void)pthread_mutex_lock(&q->lock);
    lar_queue_half *h = q->fill;
    if (h->record_count == records_max) {
        e = LAR_LIMIT;
    } else {
        add_record(h, r);
        wake_if_first(q);
        if (h->record_count == (records_max + 1) / 2) (void)pthread_cond_signal(&q->wake);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return e;
}

static lar_error grow_keys(lar_queue_half *h) {
    uint32_t cap = h->key_cap ? h->key_cap * 2 : 256;
    if (cap > KEYS_MAX) return LAR_LIMIT;
    lar_hash *keys = realloc(h->keys, cap * sizeof *keys);
    if (!keys) return LAR_NO_MEMORY;
    h->keys = keys;
    h->key_cap = cap;
    return LAR_OK;
}

lar_error lar_queue_key(lar_queue *q, const lar_hash *key) {
    (void)pthread_mutex_lock(&q->lock);
    lar_queue_half *h = q->fill;
    lar_error e = h->key_count == h->key_cap ? grow_keys(h) : LAR_OK;
    if (!e) {
        h->keys[h->key_count++] = *key;
        wake_if_first(q);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return e;
}

static void wait_until(lar_queue *q, uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    (void)pthread_cond_timedwait(&q->wake, &q->lock, &t);
}

static bool wanted_now(const lar_queue *q) { return q->stop || q->index || q->flushes_wanted > q->flushes_done; }

lar_queue_half *lar_queue_take(lar_queue *q, const lar_store_options *o, uint64_t until_ns) {
    (void)pthread_mutex_lock(&q->lock);
    for (;;) {
        lar_queue_half *h = q->fill;
        bool any = h->record_count || h->key_count;
        uint64_t due = any ? q->first_ns + (uint64_t)o->commit_ms * 1000000u : until_ns;
        if (wanted_now(q) || h->record_count >= (o->queue_records_max + 1) / 2 || lar_clock_mono_ns() >= due) break;
        wait_until(q, due);
    }
    lar_queue_half *taken = q->fill;
    q->fill = taken == &q->halves[0] ? &q->halves[1] : &q->halves[0];
    q->taken_flush = q->flushes_wanted;
    q->taken_stop = q->stop;
    q->taken_index = q->index;
    (void)pthread_mutex_unlock(&q->lock);
    return taken->record_count || taken->key_count ? taken : NULL;
}

void lar_queue_taken_done(lar_queue *q, lar_queue_half *half) {
    (void)pthread_mutex_lock(&q->lock);
    if (half) {
        half->record_count = half->key_count = 0;
        half->chain_bytes = 0;
    }
    bool answered = q->flushes_done < q->taken_flush || q->taken_index;
    if (q->flushes_done < q->taken_flush) q->flushes_done = q->taken_flush;
    if (q->taken_index) q->index = NULL;
    if (answered) (void)pthread_cond_broadcast(&q->done);
    (void)pthread_mutex_unlock(&q->lock);
}

void lar_queue_index(lar_queue *q, const lar_index_batch *batch) {
    (void)pthread_mutex_lock(&q->lock);
    q->index = batch;
    (void)pthread_cond_signal(&q->wake);
    while (q->index == batch) (void)pthread_cond_wait(&q->done, &q->lock);
    (void)pthread_mutex_unlock(&q->lock);
}
