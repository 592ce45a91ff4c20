/* A queue of work and its threads (header: work_queue.h). Called by engine_pool.c from any loop; calls what was pushed.
 * Blocks in lar_work_queue_free alone. Why own threads: those of libuv look names up, and a very long prompt takes
 * seconds. Memory: the queue's own; work is its owner's. */
#include "gateway/resident/work_queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/ensure.h"

enum { THREADS_MAX = 16 };

struct lar_work_queue {
    pthread_mutex_t lock;
    pthread_cond_t more;
    lar_work *first, *last; /* guarded by lock, as is `ending` */
    bool ending;
    uint32_t thread_count;
    pthread_t threads[THREADS_MAX];
};

static lar_work *take(lar_work_queue *q) {
    (void)pthread_mutex_lock(&q->lock);
    while (!q->first && !q->ending) (void)pthread_cond_wait(&q->more, &q->lock);
    lar_work *w = q->first;
    if (w) q->first = w->next;
    if (!q->first) q->last = NULL;
    (void)pthread_mutex_unlock(&q->lock);
    return w;
}

static void *work(void *arg) {
    for (lar_work *w; (w = take(arg));) w->run(w);
    return NULL;
}

lar_error lar_work_queue_new(uint32_t threads, lar_work_queue **out, lar_diag *d) {
    LAR_ASSERT(threads && threads <= THREADS_MAX);
    lar_work_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) return lar_fail(LAR_NO_MEMORY, d, "threads");
    LAR_ASSERT(pthread_mutex_init(&q->lock, NULL) == 0 && pthread_cond_init(&q->more, NULL) == 0);
    for (; q->thread_count < threads; q->thread_count++) {
        if (pthread_create(&q->threads[q->thread_count], NULL, work, q) == 0) continue;
        lar_work_queue_free(q);
        return lar_fail(LAR_NO_MEMORY, d, "threads");
    }
    *out = q;
    return LAR_OK;
}

void lar_work_queue_push(lar_work_queue *q, lar_work *w) {
    w->next = NULL;
    (void)pthread_mutex_lock(&q->lock);
    LAR_ASSERT(!q->ending);
    if (q->last) q->last->next = w;
    else q->first = w;
    q->last = w;
    (void)pthread_cond_signal(&q->more);
    (void)pthread_mutex_unlock(&q->lock);
}

void lar_work_queue_free(lar_work_queue *q) {
    if (!q) return;
    (void)pthread_mutex_lock(&q->lock);
    q->ending = true;
    (void)pthread_cond_broadcast(&q->more);
    (void)pthread_mutex_unlock(&q->lock);
    for (uint32_t i = 0; i < q->thread_count; i++) (void)pthread_join(q->threads[i], NULL);
    (void)pthread_cond_destroy(&q->more);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
}
