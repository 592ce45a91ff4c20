/* The waiting jobs of all tenants, and what each tenant was served (see the header).
 * Called by the scheduler's thread. Memory: places for tenants, taken at the start: one for each that can have a job at
 * once, and some for tenants that went, so that leaving and coming back makes nobody a newcomer.
 * Invariants: a tenant with an entry has a place; `floor` never falls. */
#include "engine/schedule/fair_queue.h"

#include <stdlib.h>

#include "base/ensure.h"

enum { REMEMBERED = 64 };

typedef struct place {
    uint64_t tenant;
    int64_t served;
    uint64_t left_at; /* by `leavings`: the one that went first is forgotten first */
    uint32_t entries; /* waiting or under way; 0: remembered, or empty */
    lar_fair_entry *first, *last;
} place;

struct lar_fair_queue {
    int64_t floor; /* served, of the tenant that was taken last, or the most so far */
    uint64_t leavings;
    uint32_t used, room;
    place places[]; /* (room), of which `used` were ever */
};

lar_fair_queue *lar_fair_queue_new(uint32_t entries_max) {
    uint32_t room = entries_max + REMEMBERED;
    lar_fair_queue *q = calloc(1, sizeof *q + room * sizeof *q->places);
    if (q) q->room = room;
    return q;
}

void lar_fair_queue_free(lar_fair_queue *q) { free(q); }

/* The tenant's place; a new one is as if it had been served as much as the last that was taken. */
static uint32_t place_of(lar_fair_queue *q, uint64_t tenant) {
    uint32_t oldest = q->room;
    for (uint32_t i = 0; i < q->used; i++) {
        if (q->places[i].tenant == tenant) return i;
        if (!q->places[i].entries && (oldest == q->room || q->places[i].left_at < q->places[oldest].left_at))
            oldest = i;
    }
    uint32_t at = q->used < q->room ? q->used++ : oldest;
    LAR_ASSERT(at < q->room);
    q->places[at] = (place){.tenant = tenant, .served = q->floor};
    return at;
}

void lar_fair_queue_join(lar_fair_queue *q, lar_fair_entry *e) {
    e->place = place_of(q, e->tenant);
    e->waiting = true;
    e->next = NULL;
    place *p = &q->places[e->place];
    LAR_ASSERT(!p->last || p->last->order < e->order);
    if (!p->entries++ && p->served < q->floor) p->served = q->floor;
    if (p->last) p->last->next = e;
    else p->first = e;
    p->last = e;
}

lar_fair_entry *lar_fair_queue_next(const lar_fair_queue *q) {
    const place *best = NULL;
    for (uint32_t i = 0; i < q->used; i++) {
        const place *p = &q->places[i];
        if (!p->first) continue;
        if (!best || p->served < best->served || (p->served == best->served && p->first->order < best->first->order))
            best = p;
    }
    return best ? best->first : NULL;
}

static void unlink_entry(place *p, lar_fair_entry *e) {
    lar_fair_entry *before = NULL;
    for (lar_fair_entry *at = p->first; at != e; at = at->next) before = at;
    if (before) before->next = e->next;
    else p->first = e->next;
    if (p->last == e) p->last = before;
    e->waiting = false;
}

void lar_fair_queue_take(lar_fair_queue *q, lar_fair_entry *e, uint32_t tokens) {
    place *p = &q->places[e->place];
    LAR_ASSERT(e->waiting);
    unlink_entry(p, e);
    if (p->served > q->floor) q->floor = p->served;
    p->served += tokens;
}

void lar_fair_queue_count(lar_fair_queue *q, const lar_fair_entry *e, int64_t tokens) {
    q->places[e->place].served += tokens;
}

void lar_fair_queue_leave(lar_fair_queue *q, lar_fair_entry *e) {
    place *p = &q->places[e->place];
    if (e->waiting) unlink_entry(p, e);
    LAR_ASSERT(p->entries > 0);
    if (!--p->entries) p->left_at = ++q->leavings;
}
