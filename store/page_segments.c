/* Pages on disk: what the engine calls, and opening and closing.
 * Flow: engine -> has, read, write; what is written waits in a ring for segment_writer.c. Any thread. A read blocks on
 * the disk without the lock; everything else holds it for a look-up or one copy of a page.
 * Why a table in memory and not LMDB's: has and read see at once what is written, moved or dropped, and cost no
 * transaction; LMDB keeps a copy for the next start (segment_index.c).
 * Invariants: 1. the table is the truth: what it does not have is not there, whatever lies in files. 2. An entry that
 * leads to a file is removed before the file is. 3. No error here is more than a page less in a cache.
 * Memory: the ring, and an entry of the table for each page. Not here: which files there are. */
#include "store/page_segments.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "store/segment_core.h"
#include "store/segment_files.h"

enum { BYTES_MAX_LEAST = 1 << 20, SEGMENT_SHARE = 8, CARRY_SHARE = 4, PAGE_SHARE = 4, READ_ATTEMPTS = 3 };
#define SEGMENT_BYTES_DEFAULT (UINT64_C(256) << 20)

/* -- the list of keys that the index must learn of; under the lock ------------------------------------------ */

bool lar_segment_dirty(lar_page_segments *p, const lar_digest *key, uint32_t limit) {
    if (p->dirty_count >= limit) return false;
    if (!p->dirty_count) {
        p->due_ns = lar_clock_mono_ns() + (uint64_t)p->o.sync_ms * 1000000u;
        (void)pthread_cond_signal(&p->wake);
    }
    p->dirty[p->dirty_count++] = *key;
    return true;
}

void lar_segment_lose(lar_page_segments *p, lar_page_entry *e) {
    p->lost += e->fresh;
    lar_segment_table_remove(&p->table, e);
}

static void touch(lar_page_segments *p, lar_page_entry *e) {
    e->use = (lar_segment_use){++p->clock, true};
    if (e->state != LAR_PAGE_SYNCED || e->dirty) return;
    e->dirty = lar_segment_dirty(p, &e->key, LAR_SEGMENT_DIRTY_HALF);
    if (!e->dirty) e->missed = p->missed = true;
}

/* What the index does not learn of now is found damaged again after the next start. */
static void forget(lar_page_segments *p, lar_page_entry *e) {
    if (!e->dirty) (void)lar_segment_dirty(p, &e->key, LAR_SEGMENT_DIRTY_HALF);
    lar_segment_table_remove(&p->table, e);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_PAGES, p->table.count);
}

/* -- the engine's calls ------------------------------------------------------------------------------------- */

bool lar_page_segments_has(void *segments, const lar_digest *key) {
    lar_page_segments *p = segments;
    (void)pthread_mutex_lock(&p->lock);
    bool has = lar_segment_table_find(&p->table, key) != NULL;
    (void)pthread_mutex_unlock(&p->lock);
    return has;
}

/* Copies what is still in the ring, or says where it is on disk: then `place->segment` is not 0. */
static lar_error look_up(lar_page_segments *p, const lar_digest *key, uint8_t *to, uint64_t bytes,
                         lar_segment_place *place) {
    lar_error e = LAR_OK;
    place->segment = 0;
    (void)pthread_mutex_lock(&p->lock);
    lar_page_entry *entry = lar_segment_table_find(&p->table, key);
    if (!entry) {
        e = LAR_NOT_FOUND;
    } else if (entry->place.bytes != bytes) {
        forget(p, entry);
        lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_DAMAGED_TOTAL, 1);
        e = LAR_NOT_FOUND;
    } else {
        touch(p, entry);
        if (entry->state == LAR_PAGE_QUEUED)
            memcpy(to, p->ring.memory + entry->place.offset + LAR_SEGMENT_ALIGN, bytes);
        else *place = entry->place;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return e;
}

/* False where it has moved meanwhile, or is gone by itself. */
static bool forget_at(lar_page_segments *p, const lar_digest *key, const lar_segment_place *place) {
    (void)pthread_mutex_lock(&p->lock);
    lar_page_entry *entry = lar_segment_table_find(&p->table, key);
    bool there = entry && entry->place.segment == place->segment && entry->place.offset == place->offset;
    if (there) forget(p, entry);
    (void)pthread_mutex_unlock(&p->lock);
    return there;
}

lar_error lar_page_segments_read(void *segments, const lar_digest *key, uint8_t *to, uint64_t bytes) {
    lar_page_segments *p = segments;
    for (int i = 0; i < READ_ATTEMPTS; i++) {
        lar_segment_place place;
        lar_error e = look_up(p, key, to, bytes, &place);
        if (!e && place.segment) e = lar_segment_read(p->folder, key, &place, to);
        else if (e) return e;
        if (!e) {
            lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_READS_TOTAL, 1);
            return LAR_OK;
        }
        if (e == LAR_BUSY) return LAR_IO;
        if (!forget_at(p, key, &place)) continue;
        lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_DAMAGED_TOTAL, 1);
        lar_store_gripe(p->store, LAR_GRIPE_DAMAGE, 1, "a page of the prefix cache");
        return e == LAR_IO ? LAR_IO : LAR_NOT_FOUND;
    }
    return LAR_NOT_FOUND;
}

/* Under the lock: an entry and its record in the ring, or an error and nothing. */
static lar_error queue_page(lar_page_segments *p, const lar_digest *key, const uint8_t *from, uint64_t bytes) {
    if (p->refuse_until_ns && lar_clock_mono_ns() < p->refuse_until_ns) return p->refusing;
    if (bytes > p->o.bytes_max / PAGE_SHARE) return LAR_FULL;
    lar_page_entry *e = lar_segment_table_add(&p->table, key);
    if (!e) return LAR_FULL;
    e->state = LAR_PAGE_QUEUED;
    uint8_t *record = lar_segment_ring_put(&p->ring, key, bytes);
    if (!record) {
        lar_segment_table_remove(&p->table, e);
        return LAR_FULL;
    }
    e->place = (lar_segment_place){.offset = (uint64_t)(record - p->ring.memory), .bytes = bytes};
    e->use.last = ++p->clock;
    e->fresh = true;
    memcpy(record + LAR_SEGMENT_ALIGN, from, bytes);
    (void)pthread_cond_signal(&p->wake);
    return LAR_OK;
}

lar_error lar_page_segments_write(void *segments, const lar_digest *key, const uint8_t *from, uint64_t bytes) {
    lar_page_segments *p = segments;
    lar_error e = LAR_OK;
    LAR_ASSERT(bytes > 0);
    (void)pthread_mutex_lock(&p->lock);
    lar_page_entry *entry = lar_segment_table_find(&p->table, key);
    if (entry && entry->place.bytes == bytes) {
        touch(p, entry);
    } else {
        if (entry) forget(p, entry);
        e = queue_page(p, key, from, bytes);
    }
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_PAGES, p->table.count);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_WAITING_BYTES, (int64_t)p->ring.used);
    (void)pthread_mutex_unlock(&p->lock);
    if (e) lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_REFUSED_TOTAL, 1);
    return e;
}

void lar_page_segments_outcomes(void *segments, uint64_t *kept, uint64_t *lost) {
    lar_page_segments *p = segments;
    (void)pthread_mutex_lock(&p->lock);
    *kept = p->kept;
    *lost = p->lost;
    (void)pthread_mutex_unlock(&p->lock);
}

void lar_page_segments_flush(void *segments) {
    lar_page_segments *p = segments;
    (void)pthread_mutex_lock(&p->lock);
    uint64_t mine = ++p->flushes_wanted;
    p->flush_to = p->ring.put;
    (void)pthread_cond_signal(&p->wake);
    while (p->flushes_done < mine) (void)pthread_cond_wait(&p->done, &p->lock);
    (void)pthread_mutex_unlock(&p->lock);
}

/* -- opening -------------------------------------------------------------------------------------------------- */

static lar_page_segments_options with_defaults(const lar_page_segments_options *o) {
    lar_page_segments_options d = *o;
    if (!d.segment_bytes)
        d.segment_bytes =
            d.bytes_max / SEGMENT_SHARE < SEGMENT_BYTES_DEFAULT ? d.bytes_max / SEGMENT_SHARE : SEGMENT_BYTES_DEFAULT;
    if (!d.ring_bytes) d.ring_bytes = LAR_PAGE_SEGMENTS_RING_BYTES;
    if (!d.sync_ms) d.sync_ms = 1000;
    if (!d.retry_ms) d.retry_ms = 1000;
    return d;
}

/* What the index says and what is not so. */
typedef struct loading {
    lar_page_segments *p;
    lar_digest *wrong;
    uint32_t wrong_count, wrong_cap;
} loading;

static lar_error remember_wrong(loading *l, const lar_digest *key) {
    if (l->wrong_count == l->wrong_cap) {
        uint32_t cap = l->wrong_cap ? l->wrong_cap * 2 : 64;
        lar_digest *wrong = realloc(l->wrong, cap * sizeof *wrong);
        if (!wrong) return LAR_NO_MEMORY;
        l->wrong = wrong;
        l->wrong_cap = cap;
    }
    l->wrong[l->wrong_count++] = *key;
    return LAR_OK;
}

static lar_error load_page(void *context, const lar_digest *key, const lar_segment_place *place,
                           const lar_segment_use *use) {
    loading *l = context;
    lar_page_segments *p = l->p;
    if (!place) return remember_wrong(l, key);
    if (place->segment >= p->next_number) p->next_number = place->segment + 1;
    lar_segment *g = lar_segment_find(p, place->segment);
    uint64_t end = place->offset + lar_segment_record_size(place->bytes);
    if (!g || place->offset + LAR_SEGMENT_ALIGN + place->bytes > g->bytes) return remember_wrong(l, key);
    lar_page_entry *e = lar_segment_table_add(&p->table, key);
    if (!e) return LAR_NO_MEMORY;
    e->place = *place;
    e->state = LAR_PAGE_SYNCED;
    e->use = *use;
    if (use->last > p->clock) p->clock = use->last;
    if (end > g->end) g->end = end;
    return LAR_OK;
}

static lar_error load_segment(void *context, uint64_t number, uint64_t file_bytes) {
    return lar_segment_add(context, number, file_bytes);
}

static int by_number(const void *a, const void *b) {
    uint64_t x = ((const lar_segment *)a)->number, y = ((const lar_segment *)b)->number;
    return x < y ? -1 : x > y;
}

static void forget_wrong(loading *l) {
    lar_page_segments *p = l->p;
    for (uint32_t at = 0; at < l->wrong_count;) {
        uint32_t n = 0;
        for (; n < LAR_SEGMENT_DIRTY_MAX && at < l->wrong_count; n++, at++)
            p->changes[n] = (lar_index_change){.key = l->wrong[at], .kind = LAR_INDEX_REMOVE};
        lar_index_commit(p->store, p->changes, n);
    }
    lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_DAMAGED_TOTAL, l->wrong_count);
}

/* Files without a page, then whole files until the limit is kept. */
static void tidy_files(lar_page_segments *p) {
    for (uint32_t i = p->segment_count; i-- > 0;) {
        if (p->segments[i].end) continue;
        lar_segment_remove(p->folder, p->segments[i].number);
        lar_segment_forget(p, &p->segments[i]);
    }
    while ((p->bytes > p->o.bytes_max || p->table.count > p->pages_max) && lar_segment_drop(p, LAR_CARRY_NOTHING)) {}
}

/* The newest file is written further; what lies behind its last known page was never in the index, and the zeros behind
 * that page may have been cut off. */
static void resume_newest(lar_page_segments *p) {
    if (!p->segment_count) return;
    lar_segment *g = &p->segments[p->segment_count - 1];
    if (g->end >= p->o.segment_bytes || lar_segment_resume(p->folder, g->number, g->end, &p->fd)) return;
    p->bytes = p->bytes - g->bytes + g->end;
    g->bytes = p->end = g->end;
}

static lar_error load(lar_page_segments *p, lar_diag *d) {
    loading l = {.p = p};
    lar_error e = lar_segment_list(p->folder, load_segment, p);
    if (p->segment_count) {
        qsort(p->segments, p->segment_count, sizeof *p->segments, by_number);
        p->next_number = p->segments[p->segment_count - 1].number + 1;
    }
    if (!e) e = lar_index_load(p->store, load_page, &l);
    if (!e) {
        forget_wrong(&l);
        tidy_files(p);
        resume_newest(p);
    }
    uint32_t wrong = l.wrong_count;
    free(l.wrong);
    if (e) return lar_fail(e, d, "pages: cannot read what is in %s/pages", p->store->env.dir);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_FILES, p->segment_count);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_BYTES, (int64_t)p->bytes);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_PAGES, p->table.count);
    LAR_LOG(p->store->o.log, LAR_LOG_INFO, "pages_opened", LAR_F_INT("pages", p->table.count),
            LAR_F_INT("segments", p->segment_count), LAR_F_INT("bytes", p->bytes), LAR_F_INT("forgotten", wrong));
    return LAR_OK;
}

static void release(lar_page_segments *p) {
    if (p->fd >= 0) (void)close(p->fd);
    if (p->folder >= 0) (void)close(p->folder);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->wake);
    (void)pthread_cond_destroy(&p->done);
    lar_segment_ring_release(&p->ring);
    lar_segment_table_release(&p->table);
    free(p->segments);
    free(p->carried);
    atomic_store(&p->store->has_pages, false);
    free(p);
}

static lar_error make(lar_store *store, const lar_page_segments_options *o, lar_page_segments **out) {
    lar_page_segments *p = calloc(1, sizeof *p);
    if (!p) return LAR_NO_MEMORY;
    p->store = store;
    p->o = with_defaults(o);
    p->carry_bytes_max = p->o.segment_bytes / CARRY_SHARE;
    p->pages_max = lar_index_pages_max(store);
    p->folder = p->fd = -1;
    p->next_number = 1;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, &attr);
    (void)pthread_cond_init(&p->done, &attr);
    (void)pthread_condattr_destroy(&attr);
    *out = p;
    return LAR_OK;
}

lar_error lar_page_segments_open(lar_store *store, const lar_page_segments_options *o, lar_page_segments **out,
                                 lar_diag *d) {
    lar_page_segments *p;
    if (store->o.read_only) return lar_fail(LAR_INVALID, d, "pages: the store is open for reading only");
    if (o->bytes_max < BYTES_MAX_LEAST || o->bytes_max > INT64_MAX)
        return lar_fail(LAR_INVALID, d, "pages: the limit must be 1 MiB at least");
    if (atomic_exchange(&store->has_pages, true)) return lar_fail(LAR_BUSY, d, "pages: open already");
    lar_error e = make(store, o, &p);
    if (e) {
        atomic_store(&store->has_pages, false);
        return e;
    }
    e = lar_segment_ring_init(&p->ring, p->o.ring_bytes);
    if (!e) e = lar_segment_folder_open(store->env.dir, store->o.log, &p->folder, d);
    if (!e) e = load(p, d);
    if (!e) {
        int rc = pthread_create(&p->thread, NULL, lar_segment_writer_main, p);
        if (rc) e = lar_fail(LAR_IO, d, "pages: cannot start the thread: %s", strerror(rc));
    }
    if (e) {
        release(p);
        return e;
    }
    *out = p;
    return LAR_OK;
}

void lar_page_segments_close(lar_page_segments *p) {
    if (!p) return;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_signal(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    release(p);
}
