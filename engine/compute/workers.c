/* The worker threads of the engine.
 * Called by the forward pass, a few hundred times a token: waking must cost microseconds, so a thread that waits looks
 * for new work some thousand times before it sleeps, and a sleeper is woken only if there is one.
 * Threads: `generation` counts the works given out; a worker does each once and then counts `left` down. A sleeper says
 * so (`asleep`, `caller_asleep`) before it looks a last time; who changes a count looks for sleepers after it. All four
 * are sequentially consistent, so that one of the two always sees the other.
 * Blocks: the caller, in lar_workers_run, until all shares are done. Memory: two allocations at the start. */
#include "engine/compute/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* About 20 to 50 microseconds: longer than the gaps between two matrices of a layer, shorter than a sampling step. */
enum { SPINS = 2000 };

typedef struct worker {
    lar_workers *team;
    pthread_t thread;
    uint32_t part;
} worker;

/* Items of one part that nobody has begun. A line of the cache each: they are counted by several threads. */
typedef struct share {
    atomic_uint_fast64_t next;
    uint64_t end;
    uint8_t apart[48];
} share;

struct lar_workers {
    uint32_t count;
    share *shares;          /* (count) */
    atomic_uint generation; /* works given out so far; wraps */
    atomic_uint left;       /* workers that have not finished the present work */
    atomic_uint asleep;     /* workers that wait for `given` */
    atomic_bool caller_asleep;
    atomic_bool stopping;
    lar_workers_work work; /* written before `generation` moves, read after it */
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t given, done;
    worker workers[]; /* count - 1 */
};

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_for_work(lar_workers *t, unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&t->generation) != seen) return;
        pause_cpu();
    }
    (void)pthread_mutex_lock(&t->lock);
    (void)atomic_fetch_add(&t->asleep, 1);
    while (atomic_load(&t->generation) == seen) (void)pthread_cond_wait(&t->given, &t->lock);
    (void)atomic_fetch_sub(&t->asleep, 1);
    (void)pthread_mutex_unlock(&t->lock);
}

static void finish_share(lar_workers *t) {
    if (atomic_fetch_sub(&t->left, 1) != 1 || !atomic_load(&t->caller_asleep)) return;
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_signal(&t->done);
    (void)pthread_mutex_unlock(&t->lock);
}

static void *worker_main(void *arg) {
    worker *w = arg;
    lar_workers *t = w->team;
    for (unsigned seen = 0;; seen++) {
        wait_for_work(t, seen);
        if (atomic_load(&t->stopping)) return NULL;
        t->work(t->context, w->part, t->count);
        finish_share(t);
    }
}

static void give_out(lar_workers *t) {
    (void)atomic_fetch_add(&t->generation, 1);
    if (atomic_load(&t->asleep) == 0) return;
    (void)pthread_mutex_lock(&t->lock);
    (void)pthread_cond_broadcast(&t->given);
    (void)pthread_mutex_unlock(&t->lock);
}

static void wait_for_shares(lar_workers *t) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&t->left) == 0) return;
        pause_cpu();
    }
    (void)pthread_mutex_lock(&t->lock);
    atomic_store(&t->caller_asleep, true);
    while (atomic_load(&t->left) != 0) (void)pthread_cond_wait(&t->done, &t->lock);
    atomic_store(&t->caller_asleep, false);
    (void)pthread_mutex_unlock(&t->lock);
}

void lar_workers_run(lar_workers *t, lar_workers_work work, void *context) {
    if (t->count == 1) {
        work(context, 0, 1);
        return;
    }
    t->work = work;
    t->context = context;
    atomic_store(&t->left, t->count - 1);
    give_out(t);
    work(context, 0, t->count);
    wait_for_shares(t);
}

typedef struct items {
    share *shares;
    lar_workers_item work;
    void *context;
} items;

static void do_items(void *context, uint32_t part, uint32_t parts) {
    const items *i = context;
    for (uint32_t k = 0; k < parts; k++) {
        share *s = &i->shares[(part + k) % parts];
        uint64_t item;
        while ((item = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed)) < s->end)
            i->work(i->context, item);
    }
}

void lar_workers_each(lar_workers *t, uint64_t total, lar_workers_item work, void *context) {
    for (uint32_t part = 0; part < t->count; part++) {
        uint64_t begin;
        lar_workers_share(total, part, t->count, &begin, &t->shares[part].end);
        atomic_store_explicit(&t->shares[part].next, begin, memory_order_relaxed);
    }
    lar_workers_run(t, do_items, &(items){t->shares, work, context});
}

/* Ends the first `started` workers. */
static void stop_workers(lar_workers *t, uint32_t started) {
    atomic_store(&t->stopping, true);
    give_out(t);
    for (uint32_t i = 0; i < started; i++) (void)pthread_join(t->workers[i].thread, NULL);
    (void)pthread_cond_destroy(&t->given);
    (void)pthread_cond_destroy(&t->done);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->shares);
    free(t);
}

lar_error lar_workers_start(uint32_t count, lar_workers **out, lar_diag *d) {
    if (count == 0 || count > LAR_WORKERS_MAX)
        return lar_fail(LAR_INVALID, d, "%u threads; choose 1 to %d", count, LAR_WORKERS_MAX);
    lar_workers *t = calloc(1, sizeof *t + (count - 1) * sizeof *t->workers);
    share *shares = calloc(count, sizeof *shares);
    if (!t || !shares) {
        free(t), free(shares);
        return lar_fail(LAR_NO_MEMORY, d, "no memory for %u threads", count);
    }
    t->count = count;
    t->shares = shares;
    if (pthread_mutex_init(&t->lock, NULL) || pthread_cond_init(&t->given, NULL) || pthread_cond_init(&t->done, NULL)) {
        free(shares), free(t);
        return lar_fail(LAR_IO, d, "the system gave no lock");
    }
    for (uint32_t i = 0; i < count - 1; i++) {
        worker *w = &t->workers[i];
        w->team = t;
        w->part = i + 1;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            stop_workers(t, i);
            return lar_fail(LAR_IO, d, "the system gave %u threads of %u; ask for fewer", i + 1, count);
        }
    }
    *out = t;
    return LAR_OK;
}

void lar_workers_stop(lar_workers *t) {
    if (t) stop_workers(t, t->count - 1);
}

uint32_t lar_workers_count(const lar_workers *t) { return t->count; }

void lar_workers_share(uint64_t total, uint32_t part, uint32_t parts, uint64_t *begin, uint64_t *end) {
    uint64_t each = total / parts, more = total % parts;
    *begin = each * part + (part < more ? part : more);
    *end = *begin + each + (part < more ? 1 : 0);
}
