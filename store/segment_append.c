/* Appends records to the newest segment, syncs them in groups, and tells the index what is synced.
 * Flow: segment_writer.c and segment_drop.c append; settling ends in segment_index.c. The thread's; blocks on the disk.
 * Invariants: 1. a page is in the index only after its bytes are synced. 2. A write or sync that failed ends its file:
 * nothing is appended behind bytes of which nobody knows whether they are there. 3. Pages of a failed sync are
 * forgotten: a second sync would say OK though the kernel has let go of them. Memory: none. Not here: room
 * (segment_writer.c, segment_drop.c). */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/segment_core.h"
#include "store/segment_files.h"

static void resize_newest(lar_page_segments *p, uint64_t bytes) {
    (void)pthread_mutex_lock(&p->lock);
    lar_segment *g = &p->segments[p->segment_count - 1];
    p->bytes += bytes - g->bytes;
    g->bytes = bytes;
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_FILES, p->segment_count);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_BYTES, (int64_t)p->bytes);
    (void)pthread_mutex_unlock(&p->lock);
}

/* -- syncing --------------------------------------------------------------------------------------------- */

static void close_newest(lar_page_segments *p) {
    (void)close(p->fd);
    p->fd = -1;
    if (p->end > LAR_SEGMENT_ALIGN) return;
    lar_segment *g = &p->segments[p->segment_count - 1];
    lar_segment_remove(p->folder, g->number);
    lar_segment_forget(p, g);
}

static void lose_unsynced(lar_page_segments *p) {
    (void)pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->table.cap;) {
        if (p->table.slots[i].state == LAR_PAGE_WRITTEN) lar_segment_lose(p, &p->table.slots[i]);
        else i++;
    }
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_PAGES, p->table.count);
    (void)pthread_mutex_unlock(&p->lock);
}

static void sync_newest(lar_page_segments *p) {
    if (!p->unsynced_bytes) return;
    struct stat st;
    bool removed = fstat(p->fd, &st) == 0 && st.st_nlink == 0; /* by whoever cleans up by hand */
    bool ok = !removed && fdatasync(p->fd) == 0 && (!p->folder_unsynced || fsync(p->folder) == 0);
    p->unsynced_bytes = 0;
    if (ok) {
        p->folder_unsynced = false;
        return;
    }
    if (!removed) lar_segment_failed(p, errno);
    lose_unsynced(p);
    close_newest(p);
}

/* What the index must learn: of every listed key what the table says of it now. */
static uint32_t gather(lar_page_segments *p) {
    (void)pthread_mutex_lock(&p->lock);
    uint32_t count = p->dirty_count;
    for (uint32_t i = 0; i < count; i++) {
        lar_page_entry *e = lar_segment_table_find(&p->table, &p->dirty[i]);
        lar_index_change *c = &p->changes[i];
        *c = (lar_index_change){.key = p->dirty[i], .kind = LAR_INDEX_REMOVE};
        if (!e) continue;
        e->dirty = e->missed = false;
        if (e->state == LAR_PAGE_QUEUED) continue; /* the index gets it when it is synced */
        e->state = LAR_PAGE_SYNCED;
        p->kept += e->fresh;
        e->fresh = false;
        c->kind = LAR_INDEX_PUT;
        c->place = e->place;
        c->use = e->use;
    }
    p->dirty_count = 0;
    (void)pthread_mutex_unlock(&p->lock);
    return count;
}

/* Lists entries that were used while the list was full. False: there are none. */
static bool list_missed(lar_page_segments *p) {
    (void)pthread_mutex_lock(&p->lock);
    bool any = false;
    for (uint32_t i = 0; p->missed && i < p->table.cap; i++) {
        lar_page_entry *e = &p->table.slots[i];
        if (e->state != LAR_PAGE_SYNCED || !e->missed || e->dirty) continue;
        e->dirty = lar_segment_dirty(p, &e->key, LAR_SEGMENT_DIRTY_MAX);
        if (!e->dirty) break;
        any = true;
    }
    p->missed = any;
    (void)pthread_mutex_unlock(&p->lock);
    return any;
}

void lar_segment_settle(lar_page_segments *p) {
    sync_newest(p);
    /* What the index does not take is read all the same until the process ends. */
    do {
        lar_index_commit(p->store, p->changes, gather(p));
    } while (list_missed(p));
}

void lar_segment_end(lar_page_segments *p) {
    lar_segment_settle(p);
    if (p->fd >= 0) close_newest(p);
}

void lar_segment_failed(lar_page_segments *p, int error) {
    (void)pthread_mutex_lock(&p->lock);
    p->refusing = error == ENOSPC || error == EDQUOT || error == EFBIG ? LAR_FULL : LAR_IO;
    p->refuse_until_ns = lar_clock_mono_ns() + (uint64_t)p->o.retry_ms * 1000000u;
    (void)pthread_mutex_unlock(&p->lock);
    lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_ERRORS_TOTAL, 1);
    lar_store_gripe(p->store, LAR_GRIPE_WRITE, 1, strerror(error));
}

/* -- writing ---------------------------------------------------------------------------------------------- */

static lar_error begin(lar_page_segments *p) {
    uint64_t number = p->next_number++; /* also where it fails: something may be in the way of that name */
    lar_error e = lar_segment_create(p->folder, number, &p->fd);
    if (e) return e;
    if (lar_segment_add(p, number, LAR_SEGMENT_ALIGN)) {
        (void)close(p->fd);
        p->fd = -1;
        lar_segment_remove(p->folder, number);
        errno = ENOMEM;
        return LAR_IO;
    }
    p->end = p->unsynced_bytes = LAR_SEGMENT_ALIGN;
    p->folder_unsynced = true;
    return LAR_OK;
}

/* Cuts off what a failed write has left, and ends the file. Keeps errno. */
static void take_back(lar_page_segments *p) {
    int error = errno;
    struct stat st;
    if (ftruncate(p->fd, (off_t)p->end) != 0 && fstat(p->fd, &st) == 0) resize_newest(p, (uint64_t)st.st_size);
    lar_segment_end(p);
    errno = error;
}

static uint32_t behind(lar_page_segments *p) {
    (void)pthread_mutex_lock(&p->lock);
    uint32_t n = p->dirty_count;
    (void)pthread_mutex_unlock(&p->lock);
    return n;
}

lar_error lar_segment_append(lar_page_segments *p, const lar_digest *key, uint8_t *record, uint64_t bytes,
                             lar_segment_place *place) {
    uint64_t size = lar_segment_record_size(bytes);
    if (behind(p) >= LAR_SEGMENT_DIRTY_HALF) lar_segment_settle(p);
    if (p->fd >= 0 && p->end > LAR_SEGMENT_ALIGN && p->end + size > p->o.segment_bytes) lar_segment_end(p);
    lar_error e = p->fd < 0 ? begin(p) : LAR_OK;
    if (e) return e;
    *place = (lar_segment_place){p->segments[p->segment_count - 1].number, p->end, bytes,
                                 lar_segment_sum(record + LAR_SEGMENT_ALIGN, bytes)};
    memset(record, 0, LAR_SEGMENT_ALIGN);
    lar_segment_record_encode(key, place, record);
    e = lar_segment_write(p->fd, record, size, p->end);
    if (e) {
        take_back(p);
        return e;
    }
    p->end += size;
    p->unsynced_bytes += size;
    resize_newest(p, p->end);
    return LAR_OK;
}
