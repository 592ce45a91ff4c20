/* The thread that writes pages: takes them from the ring, makes room, appends, and settles now and then.
 * Flow: page_segments.c fills the ring -> here -> segment_append.c and segment_drop.c. Blocks on the disk; the engine
 * waits for none of it. Why one file at a time: two engines' pages lie in one row, and one sync serves both.
 * Invariants: 1. all files together stay within bytes_max, also while pages move. 2. What cannot be written is
 * forgotten, and the next one is tried only after retry_ms. 3. At the stop everything that waits is written and
 * settled. Memory: none. Not here: what a page is. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "store/segment_core.h"

/* Written and not yet synced: more would be lost with a failed sync, and less cost more syncs. */
#define GROUP_BYTES (UINT64_C(32) << 20)

/* Pages that move need `carry_bytes_max` and a file's head beside their old file. */
static bool fits(lar_page_segments *p, uint64_t size) {
    (void)pthread_mutex_lock(&p->lock);
    bool few = p->table.count <= p->pages_max;
    (void)pthread_mutex_unlock(&p->lock);
    uint64_t need = size + p->carry_bytes_max + 2 * (uint64_t)LAR_SEGMENT_ALIGN;
    return few && p->bytes + need <= p->o.bytes_max;
}

static bool make_room(lar_page_segments *p, uint64_t size) {
    while (!fits(p, size)) {
        if (lar_segment_drop(p, LAR_CARRY_USED)) continue;
        if (p->fd < 0) return false;
        lar_segment_end(p); /* then that one can go too */
    }
    return true;
}

static lar_error write_record(lar_page_segments *p, const lar_segment_item *item, lar_segment_place *place) {
    uint8_t *record = p->ring.memory + item->at;
    if (!make_room(p, lar_segment_record_size(item->bytes))) return LAR_FULL;
    lar_error e = lar_segment_append(p, &item->key, record, item->bytes, place);
    /* On a full disk the pages used longest ago give way; at a limit of file sizes a new file is enough. */
    int error = errno;
    if (e == LAR_FULL && (error == EFBIG || lar_segment_drop(p, LAR_CARRY_NOTHING))) {
        e = lar_segment_append(p, &item->key, record, item->bytes, place);
        error = errno;
    }
    if (e) lar_segment_failed(p, error);
    return e;
}

static bool waits(const lar_page_entry *e, const lar_segment_item *item) {
    return e && e->state == LAR_PAGE_QUEUED && e->place.offset == item->at;
}

static void write_first(lar_page_segments *p) {
    lar_segment_place place;
    lar_error e = LAR_FULL;
    (void)pthread_mutex_lock(&p->lock);
    lar_segment_item item = *lar_segment_ring_first(&p->ring);
    bool wanted = waits(lar_segment_table_find(&p->table, &item.key), &item) &&
                  (!p->refuse_until_ns || lar_clock_mono_ns() >= p->refuse_until_ns);
    (void)pthread_mutex_unlock(&p->lock);
    if (wanted) e = write_record(p, &item, &place);
    if (!e) lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_WRITES_TOTAL, 1);
    (void)pthread_mutex_lock(&p->lock);
    lar_page_entry *entry = lar_segment_table_find(&p->table, &item.key);
    if (waits(entry, &item)) {
        if (e) {
            lar_segment_lose(p, entry);
        } else {
            entry->place = place;
            entry->state = LAR_PAGE_WRITTEN;
            entry->dirty = lar_segment_dirty(p, &item.key, LAR_SEGMENT_DIRTY_MAX);
        }
    }
    lar_segment_ring_drop_first(&p->ring);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_PAGES, p->table.count);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_WAITING_BYTES, (int64_t)p->ring.used);
    (void)pthread_mutex_unlock(&p->lock);
}

/* What there is to do. */
typedef struct work {
    bool write, settle, stop;
    uint64_t flushes; /* that settling answers */
} work;

static bool is_due(const lar_page_segments *p) { return p->dirty_count && lar_clock_mono_ns() >= p->due_ns; }

static work wait_for_work(lar_page_segments *p) {
    (void)pthread_mutex_lock(&p->lock);
    while (!p->ring.count && !p->stop && p->flushes_wanted == p->flushes_done && !is_due(p)) {
        struct timespec t = {.tv_sec = (time_t)(p->due_ns / 1000000000u), .tv_nsec = (long)(p->due_ns % 1000000000u)};
        if (p->dirty_count) (void)pthread_cond_timedwait(&p->wake, &p->lock, &t);
        else (void)pthread_cond_wait(&p->wake, &p->lock);
    }
    bool reached = p->ring.taken >= p->flush_to;
    work w = {.write = p->ring.count > 0, .stop = p->stop && !p->ring.count};
    w.flushes = reached ? p->flushes_wanted : p->flushes_done;
    w.settle = w.stop || is_due(p) || w.flushes > p->flushes_done || p->unsynced_bytes >= GROUP_BYTES;
    (void)pthread_mutex_unlock(&p->lock);
    return w;
}

void *lar_segment_writer_main(void *segments) {
    lar_page_segments *p = segments;
    for (;;) {
        work w = wait_for_work(p);
        if (w.settle) {
            lar_segment_settle(p);
            (void)pthread_mutex_lock(&p->lock);
            p->flushes_done = w.flushes;
            (void)pthread_cond_broadcast(&p->done);
            (void)pthread_mutex_unlock(&p->lock);
        }
        if (w.stop) return NULL;
        if (w.write) write_first(p);
    }
}
