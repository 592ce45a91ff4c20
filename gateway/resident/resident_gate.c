/* Whether a model that is loaded on first need is there, and the requests that wait for it (header: resident_parts.h).
 * Flow: a request that has its tokens comes by a thread of the work queue -> lar_resident_claim -> parked; the loader's
 * thread (resident.c) ends with lar_resident_settle, and the queue goes on with those that are parked. The loop takes
 * back who leaves or has waited too long. Any thread; blocks on nothing.
 * Invariants: 1. what is parked is known to nobody else but its owner. 2. `state` changes under the lock only; READY is
 * for good, and read without it. 3. after a failed load the next one begins when a request comes and the pause is over.
 * Memory: none of its own. Not here: what a load is. */
#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/resident/resident_parts.h"

enum { PAUSE_MS = 5000, PAUSE_MS_MAX = 300000, LEFT_MS_MIN = 1000, LEFT_MS_MAX = 60000 };

static void lock(lar_resident *r) { LAR_ASSERT(pthread_mutex_lock(&r->lock) == 0); }
static void unlock(lar_resident *r) { LAR_ASSERT(pthread_mutex_unlock(&r->lock) == 0); }

static lar_resident_state state_of(const lar_resident *r) {
    return (lar_resident_state)atomic_load_explicit(&r->state, memory_order_acquire);
}

static void set_state(lar_resident *r, lar_resident_state s) {
    atomic_store_explicit(&r->state, (int)s, memory_order_release);
}

const char *lar_resident_state_name(lar_resident_state s) {
    static const char *const names[] = {"ready", "cold", "loading", "failed"};
    return names[s];
}

/* By how far it has come; with the lock. */
static uint32_t left_ms(const lar_resident *r) {
    uint32_t done = atomic_load(&r->load_done), total = atomic_load(&r->load_total);
    uint64_t gone = lar_clock_mono_ms() - r->load_began_ms, left = done ? gone * (total - done) / done : gone;
    return (uint32_t)(left < LEFT_MS_MIN ? LEFT_MS_MIN : left > LEFT_MS_MAX ? LEFT_MS_MAX : left);
}

/* With the lock. */
static uint32_t wait_ms(const lar_resident *r) {
    uint64_t now = lar_clock_mono_ms();
    if (state_of(r) == LAR_RESIDENT_LOADING) return left_ms(r);
    if (state_of(r) != LAR_RESIDENT_FAILED || now >= r->retry_at_ms) return 0;
    return (uint32_t)(r->retry_at_ms - now);
}

lar_resident_state lar_resident_look(lar_resident *r, uint32_t *ms) {
    *ms = 0;
    if (state_of(r) == LAR_RESIDENT_READY) return LAR_RESIDENT_READY;
    lock(r);
    lar_resident_state s = state_of(r);
    *ms = wait_ms(r);
    unlock(r);
    return s;
}

static void park(lar_resident *r, lar_work *w) {
    w->next = NULL;
    if (r->parked_last) r->parked_last->next = w;
    else r->parked_first = w;
    r->parked_last = w;
}

lar_claim lar_resident_claim(lar_resident *r, lar_work *w, uint32_t *ms) {
    lar_claim claim = LAR_CLAIM_PARKED;
    bool begins = false;
    *ms = 0;
    if (state_of(r) == LAR_RESIDENT_READY) return LAR_CLAIM_READY;
    lock(r);
    lar_resident_state s = state_of(r);
    if (s == LAR_RESIDENT_READY) {
        claim = LAR_CLAIM_READY;
    } else if (s == LAR_RESIDENT_FAILED && wait_ms(r)) {
        claim = LAR_CLAIM_FAILED;
        *ms = wait_ms(r);
    } else {
        begins = s != LAR_RESIDENT_LOADING;
        park(r, w);
        if (begins) {
            atomic_store(&r->load_done, 0);
            r->load_began_ms = lar_clock_mono_ms();
            set_state(r, LAR_RESIDENT_LOADING);
        }
    }
    unlock(r);
    if (begins) lar_work_queue_push(r->loader, &r->load);
    return claim;
}

bool lar_resident_unpark(lar_resident *r, lar_work *w) {
    bool found = false;
    if (state_of(r) == LAR_RESIDENT_READY) return false;
    lock(r);
    lar_work *before = NULL;
    for (lar_work **link = &r->parked_first; *link && !found; before = *link, link = &(*link)->next) {
        if (*link != w) continue;
        found = true;
        if (r->parked_last == w) r->parked_last = before;
        *link = w->next;
        break;
    }
    unlock(r);
    return found;
}

void lar_resident_asked(lar_resident *r) {
    atomic_fetch_add(&r->asked, 1);
    if (!atomic_load(&r->warming)) return; /* it looks at `asked` after it has set this */
    lock(r);
    (void)pthread_cond_broadcast(&r->news);
    unlock(r);
}

void lar_resident_settle(lar_resident *r, lar_error e) {
    lock(r);
    lar_work *w = r->parked_first;
    r->parked_first = r->parked_last = NULL;
    if (e) {
        uint32_t shift = r->load_failures < 6 ? r->load_failures : 6;
        uint64_t pause = (uint64_t)PAUSE_MS << shift;
        r->load_failures++;
        r->retry_at_ms = lar_clock_mono_ms() + (pause < PAUSE_MS_MAX ? pause : PAUSE_MS_MAX);
    }
    set_state(r, e ? LAR_RESIDENT_FAILED : LAR_RESIDENT_READY);
    unlock(r);
    while (w) {
        lar_work *next = w->next;
        lar_work_queue_push(r->work, w);
        w = next;
    }
}
