/* The list of segments, and which of them goes when there is no room.
 * Flow: segment_writer.c drops before it writes; page_segments.c at open. The thread's (open's before there is one);
 * blocks on the disk. Why whole files: nothing is written in place, so nothing is ever half overwritten, and room comes
 * back without moving what stays. Why some pages move: one page that is asked for again and again, such as the first of
 * a system prompt, would else keep or lose two hundred others (or be lost with them).
 * Invariants: 1. entries go before their file. 2. Every drop frees at least half of the file. 3. A page that was moved
 * is used again before it is moved a second time. Memory: a list of the pages to move, room for one.
 * Not here: how much room is needed. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "store/segment_core.h"
#include "store/segment_files.h"

lar_segment *lar_segment_find(const lar_page_segments *p, uint64_t number) {
    uint32_t low = 0, high = p->segment_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (p->segments[mid].number < number) low = mid + 1;
        else high = mid;
    }
    return low < p->segment_count && p->segments[low].number == number ? &p->segments[low] : NULL;
}

lar_error lar_segment_add(lar_page_segments *p, uint64_t number, uint64_t bytes) {
    lar_error e = LAR_OK;
    (void)pthread_mutex_lock(&p->lock);
    if (p->segment_count == p->segment_cap) {
        uint32_t cap = p->segment_cap ? p->segment_cap * 2 : 64;
        lar_segment *wide = realloc(p->segments, cap * sizeof *wide);
        if (wide) {
            p->segments = wide;
            p->segment_cap = cap;
        } else {
            e = LAR_NO_MEMORY;
        }
    }
    if (!e) {
        p->segments[p->segment_count++] = (lar_segment){.number = number, .bytes = bytes};
        p->bytes += bytes;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return e;
}

void lar_segment_forget(lar_page_segments *p, lar_segment *g) {
    (void)pthread_mutex_lock(&p->lock);
    uint32_t at = (uint32_t)(g - p->segments);
    p->bytes -= g->bytes;
    memmove(g, g + 1, (p->segment_count - at - 1) * sizeof *g);
    p->segment_count--;
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_FILES, p->segment_count);
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_BYTES, (int64_t)p->bytes);
    (void)pthread_mutex_unlock(&p->lock);
}

/* -- which one ------------------------------------------------------------------------------------------ */

static bool lies_in(const lar_page_entry *e, uint64_t segment) {
    return e->state != LAR_PAGE_ABSENT && e->state != LAR_PAGE_QUEUED && e->place.segment == segment;
}

/* An empty one goes first. */
static double mean_use(const lar_segment *g) { return g->pages ? g->used_sum / g->pages : 0; }

/* The one whose pages were used longest ago on average: the last use alone would let one page keep two hundred others,
 * and pages that were used again move. NULL: none but the one that is written. */
static lar_segment *choose(lar_page_segments *p) {
    uint32_t can_go = p->segment_count - (p->fd >= 0 ? 1 : 0);
    if (!can_go) return NULL;
    for (uint32_t i = 0; i < p->segment_count; i++) p->segments[i].used_sum = p->segments[i].pages = 0;
    (void)pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->table.cap; i++) {
        const lar_page_entry *e = &p->table.slots[i];
        if (e->state == LAR_PAGE_ABSENT || e->state == LAR_PAGE_QUEUED) continue;
        lar_segment *g = lar_segment_find(p, e->place.segment);
        LAR_ASSERT(g != NULL); /* entries go before their file */
        g->pages++;
        g->used_sum += (double)e->use.last;
    }
    (void)pthread_mutex_unlock(&p->lock);
    lar_segment *best = &p->segments[0];
    for (uint32_t i = 1; i < can_go; i++) {
        if (mean_use(&p->segments[i]) < mean_use(best)) best = &p->segments[i];
    }
    return best;
}

/* -- pages that move ------------------------------------------------------------------------------------- */

static int latest_first(const void *a, const void *b) {
    uint64_t x = ((const lar_page_entry *)a)->use.last, y = ((const lar_page_entry *)b)->use.last;
    return x > y ? -1 : x < y;
}

/* Copies of the entries that were used again; NULL: none, or no memory. */
static lar_page_entry *used_again(lar_page_segments *p, const lar_segment *g, uint32_t *count) {
    lar_page_entry *list = malloc((g->pages + 1) * sizeof *list);
    *count = 0;
    if (!list) return NULL;
    (void)pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->table.cap && *count < g->pages; i++) {
        if (lies_in(&p->table.slots[i], g->number) && p->table.slots[i].use.again) list[(*count)++] = p->table.slots[i];
    }
    (void)pthread_mutex_unlock(&p->lock);
    qsort(list, *count, sizeof *list, latest_first);
    return list;
}

static bool room_for_record(lar_page_segments *p, uint64_t size) {
    if (size <= p->carried_cap) return true;
    free(p->carried);
    p->carried = aligned_alloc(LAR_SEGMENT_ALIGN, size);
    p->carried_cap = p->carried ? size : 0;
    return p->carried != NULL;
}

/* False: what is left cannot move either. A page that is damaged stays behind and goes with its file. */
static bool carry_one(lar_page_segments *p, const lar_page_entry *from) {
    uint64_t bytes = from->place.bytes, size = lar_segment_record_size(bytes);
    lar_segment_place place;
    if (!room_for_record(p, size)) return false;
    if (lar_segment_read(p->folder, &from->key, &from->place, p->carried + LAR_SEGMENT_ALIGN)) return true;
    memset(p->carried + LAR_SEGMENT_ALIGN + bytes, 0, size - LAR_SEGMENT_ALIGN - bytes);
    if (lar_segment_append(p, &from->key, p->carried, bytes, &place)) return false;
    (void)pthread_mutex_lock(&p->lock);
    lar_page_entry *e = lar_segment_table_find(&p->table, &from->key);
    if (e && lies_in(e, from->place.segment) && e->place.offset == from->place.offset) {
        e->place = place;
        e->state = LAR_PAGE_WRITTEN;
        e->use = (lar_segment_use){++p->clock, false}; /* as if written now, or it would make its new file look old */
        if (!e->dirty) e->dirty = lar_segment_dirty(p, &e->key, LAR_SEGMENT_DIRTY_MAX);
    }
    (void)pthread_mutex_unlock(&p->lock);
    lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_CARRIED_TOTAL, 1);
    return true;
}

static void carry_used(lar_page_segments *p, const lar_segment *g) {
    uint32_t count;
    uint64_t left = g->bytes / 2 < p->carry_bytes_max ? g->bytes / 2 : p->carry_bytes_max;
    lar_page_entry *list = used_again(p, g, &count);
    for (uint32_t i = 0; list && i < count; i++) {
        uint64_t size = lar_segment_record_size(list[i].place.bytes);
        if (size > left) continue;
        left -= size;
        if (!carry_one(p, &list[i])) break;
    }
    free(list);
}

/* -- dropping ---------------------------------------------------------------------------------------------- */

/* Takes the segment's entries out of the table, as many as one batch of the index holds. */
static uint32_t take_entries(lar_page_segments *p, uint64_t number) {
    uint32_t n = 0;
    (void)pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->table.cap && n < LAR_SEGMENT_DIRTY_MAX;) {
        lar_page_entry *e = &p->table.slots[i];
        if (!lies_in(e, number)) {
            i++;
            continue;
        }
        p->changes[n++] = (lar_index_change){.key = e->key, .kind = LAR_INDEX_REMOVE};
        lar_segment_table_remove(&p->table, e); /* another may have moved here */
    }
    lar_metrics_set(p->store->o.metrics, LAR_METRIC_SEGMENT_PAGES, p->table.count);
    (void)pthread_mutex_unlock(&p->lock);
    return n;
}

bool lar_segment_drop(lar_page_segments *p, lar_segment_carry carry) {
    lar_segment *g = choose(p);
    if (!g) return false;
    uint64_t number = g->number;
    if (carry == LAR_CARRY_USED) carry_used(p, &(lar_segment){.number = number, .bytes = g->bytes, .pages = g->pages});
    uint32_t n, dropped = 0;
    do {
        n = take_entries(p, number);
        dropped += n;
        lar_index_commit(p->store, p->changes, n); /* entries without a file are forgotten at the next start */
    } while (n == LAR_SEGMENT_DIRTY_MAX);
    lar_segment_remove(p->folder, number);
    lar_segment_forget(p, lar_segment_find(p, number));
    lar_metrics_add(p->store->o.metrics, LAR_METRIC_SEGMENT_DROPPED_TOTAL, dropped);
    return true;
}
