/* The writer thread: takes what is queued, commits it, lets go of what is old. And the syncer thread beside it.
 * Flow: queue.c -> apply.c -> LMDB; retention now and then. Both threads block on the disk: nobody else does.
 * Why a syncer: an fsync may take long on a busy disk, and commits (which go to the page cache) must not
 * wait for it, or a process death would cost more than the commit interval.
 * Invariants: 1. only the writer thread begins write transactions. 2. At the stop everything queued is
 * committed, then synced. Memory: none. Not here: what a power cut costs (docs/durability.md). */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/store_core.h"

enum { DAY_MS = 86400000 };
#define HOUSE_NS_MIN UINT64_C(1000000000)
#define HOUSE_NS_MAX UINT64_C(60000000000)

static uint64_t house_interval_ns(const lar_store *s) {
    uint64_t shortest = s->o.retention_ms < s->o.memory_retention_ms ? s->o.retention_ms : s->o.memory_retention_ms;
    uint64_t ns = shortest > HOUSE_NS_MAX / 1000000 * 8 ? HOUSE_NS_MAX : shortest * 1000000 / 8;
    return ns < HOUSE_NS_MIN ? HOUSE_NS_MIN : ns;
}

static void keep_house(lar_store *s) {
    uint64_t now = lar_clock_mono_ns();
    if (now < s->house_due_ns) return;
    atomic_store(&s->today, (unsigned)(lar_clock_wall_ms() / DAY_MS));
    bool finished = lar_retain_aged(s);
    lar_env_sweep_readers(&s->env);
    s->house_due_ns = finished ? now + house_interval_ns(s) : now;
}

void *lar_writer_main(void *store) {
    lar_store *s = store;
    for (;;) {
        keep_house(s);
        lar_queue_half *half = lar_queue_take(&s->queue, &s->o, s->house_due_ns);
        if (half) lar_apply_half(s, half);
        if (s->queue.taken_index) lar_index_apply(s, s->queue.taken_index);
        bool last = s->queue.taken_stop && !half;
        lar_queue_taken_done(&s->queue, half);
        if (last) return NULL;
    }
}

static void sync_now(lar_store *s) {
    if (!atomic_exchange(&s->unsynced, false)) return;
    (void)pthread_mutex_lock(&s->sync_lock);
    int rc = atomic_load(&s->env.broken) ? EIO : mdb_env_sync(s->env.env, 1);
    (void)pthread_mutex_unlock(&s->sync_lock);
    if (!rc) return;
    lar_metrics_add(s->o.metrics, LAR_METRIC_STORE_ERRORS_TOTAL, 1);
    lar_store_gripe(s, LAR_GRIPE_WRITE, 1, mdb_strerror(rc));
}

void *lar_syncer_main(void *store) {
    lar_store *s = store;
    lar_queue *q = &s->queue;
    (void)pthread_mutex_lock(&q->lock);
    while (!q->stop_sync) {
        uint64_t due = lar_clock_mono_ns() + (uint64_t)s->o.sync_ms * 1000000u;
        struct timespec t = {.tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u)};
        while (!q->stop_sync && pthread_cond_timedwait(&q->sync_wake, &q->lock, &t) != ETIMEDOUT) {}
        (void)pthread_mutex_unlock(&q->lock);
        sync_now(s);
        (void)pthread_mutex_lock(&q->lock);
    }
    (void)pthread_mutex_unlock(&q->lock);
    sync_now(s); /* the stop may come before the first round */
    return NULL;
}
