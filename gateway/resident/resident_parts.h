/* What resident.c shares with engine_pool.c and resident_gate.c. */
#ifndef LARDER_GATEWAY_RESIDENT_PARTS_H
#define LARDER_GATEWAY_RESIDENT_PARTS_H

#include <pthread.h>

#include "engine/schedule/scheduler.h"
#include "gateway/resident/resident.h"
#include "gateway/resident/work_queue.h"
#include "gateway/serving/serving.h"

typedef struct lar_warmth lar_warmth;

struct lar_resident {
    lar_resident_options o;
    lar_serving *serving;
    lar_work_queue *work;
    atomic_uint preparing; /* requests that are read and made tokens of, or wait for it, or for the model */
    uint64_t planned_bytes;
    atomic_int state; /* lar_resident_state */
    /* Of any thread once `state` is READY; the loader's before. */
    lar_engine *engine;
    lar_scheduler *scheduler;
    /* Of one that is loaded on first need. */
    lar_work_queue *loader; /* one thread; NULL: it was loaded at start */
    lar_work load;
    atomic_bool stop;                  /* nobody needs it any more: a load ends early */
    atomic_uint load_done, load_total; /* layers */
    /* Of prefixes that are kept warm (warmth.h). */
    lar_warmth *warmth;                   /* NULL: none are */
    atomic_ullong asked;                  /* requests so far */
    atomic_bool warming;                  /* who asks tells `news` */
    pthread_cond_t news;                  /* with the lock: a request came while a prefix is warmed, or that ended */
    pthread_mutex_t lock;                 /* guards from here */
    lar_work *parked_first, *parked_last; /* requests that wait for the model */
    uint64_t load_began_ms, retry_at_ms;
    uint32_t load_failures;
};

/* Its engine and scheduler may be used. */
static inline bool lar_resident_is_ready(const lar_resident *r) {
    return atomic_load_explicit(&r->state, memory_order_acquire) == LAR_RESIDENT_READY;
}

typedef enum lar_claim {
    LAR_CLAIM_READY, /* the scheduler may be used */
    LAR_CLAIM_PARKED,
    LAR_CLAIM_FAILED
} lar_claim;

/* Asks for the model, and sees to it that it is loaded. PARKED: w->run is called by a thread of the work queue once it
 * is, or that failed; until then `w` is in other hands, which may have happened before this returns. FAILED: it cannot
 * be loaded now; *retry_ms: when it is tried again. */
lar_claim lar_resident_claim(lar_resident *r, lar_work *w, uint32_t *retry_ms);
/* True: it was parked, and is the caller's again. */
bool lar_resident_unpark(lar_resident *r, lar_work *w);
/* A request comes: prefixes are warmed while none does. Any thread. */
void lar_resident_asked(lar_resident *r);
/* By the loader: it is there, or it failed. */
void lar_resident_settle(lar_resident *r, lar_error e);

#endif
