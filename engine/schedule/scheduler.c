/* The scheduler's boundary: jobs in, cancels, counts, and the thread that does the rounds (scheduler_round.c).
 * Threads: submit, cancel and counts by any; what they share with the rounds is behind one lock, which is never held
 * while anything is computed or called back. The thread sleeps while there is nothing to do.
 * Memory: arrays of steps and logits, taken at the start; a block for each job.
 * Invariant: a job in `all` has had no on_end; one behind its on_end is not there. */
#include "engine/schedule/scheduler.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "engine/schedule/scheduler_core.h"

enum { NICENESS_MAX = 19, SEQUENCES_MOST = 1024, QUEUE_MOST = 1 << 20 };

/* -- open and close ---------------------------------------------------------------------------------------------- */

static lar_error check(const lar_scheduler_options *o, lar_diag *d) {
    if (!o->sequences_max || o->sequences_max > SEQUENCES_MOST)
        return lar_fail(LAR_INVALID, d, "%u sequences at once; choose 1 to %d", o->sequences_max, SEQUENCES_MOST);
    if (!o->queue_max || o->queue_max > QUEUE_MOST)
        return lar_fail(LAR_INVALID, d, "room for %u waiting requests; choose 1 to %d", o->queue_max, QUEUE_MOST);
    if (!o->gap_ms) return lar_fail(LAR_INVALID, d, "a gap of 0 ms: no prompt could be computed");
    if (o->niceness < 0 || o->niceness > NICENESS_MAX)
        return lar_fail(LAR_INVALID, d, "niceness %d; choose 0 to %d", o->niceness, NICENESS_MAX);
    if (!lar_engine_pages(o->engine).pages) return lar_fail(LAR_INVALID, d, "the engine was opened without page_bytes");
    if (o->context_max > lar_engine_info_of(o->engine).context)
        return lar_fail(LAR_INVALID, d, "%u tokens of a sequence; the model's context is %u", o->context_max,
                        lar_engine_info_of(o->engine).context);
    return LAR_OK;
}

static void *array(lar_scheduler *s, size_t each) { return calloc(s->o.sequences_max, each); }

static bool take_memory(lar_scheduler *s) {
    s->queue = lar_fair_queue_new(s->o.queue_max + s->o.sequences_max);
    s->begun = array(s, sizeof *s->begun);
    s->parts = array(s, sizeof *s->parts);
    s->part_jobs = array(s, sizeof *s->part_jobs);
    s->part_wanted = array(s, sizeof *s->part_wanted);
    s->drawn = array(s, sizeof *s->drawn);
    s->pieces = array(s, sizeof *s->pieces);
    s->piece_jobs = array(s, sizeof *s->piece_jobs);
    s->logits = array(s, s->limits.vocab * sizeof *s->logits);
    return s->queue && s->begun && s->parts && s->part_jobs && s->part_wanted && s->drawn && s->pieces &&
           s->piece_jobs && s->logits;
}

static void free_memory(lar_scheduler *s) {
    lar_fair_queue_free(s->queue);
    free(s->begun);
    free(s->parts);
    free(s->part_jobs);
    free(s->part_wanted);
    free(s->drawn);
    free(s->pieces);
    free(s->piece_jobs);
    free(s->logits);
    free(s);
}

static lar_error make_locks(lar_scheduler *s, lar_diag *d) {
    bool lock = !pthread_mutex_init(&s->lock, NULL);
    if (lock && !pthread_cond_init(&s->changed, NULL)) return LAR_OK;
    if (lock) (void)pthread_mutex_destroy(&s->lock);
    return lar_fail(LAR_IO, d, "the system gave no lock");
}

lar_error lar_scheduler_make(const lar_scheduler_options *o, lar_scheduler **out, lar_diag *d) {
    *out = NULL;
    lar_error e = check(o, d);
    if (e) return e;
    lar_scheduler *s = calloc(1, sizeof *s);
    if (!s) return LAR_NO_MEMORY;
    lar_engine_info info = lar_engine_info_of(o->engine);
    uint64_t all = (uint64_t)lar_engine_pages(o->engine).pages * LAR_PAGE_TOKENS;
    s->o = *o;
    if (!s->o.context_max) s->o.context_max = all < info.context ? (uint32_t)all : info.context;
    s->limits = (lar_job_limits){.vocab = info.vocab,
                                 .context = s->o.context_max,
                                 .pages = lar_engine_pages(o->engine).pages,
                                 .samples = o->sequences_max};
    s->pass_tokens = info.pass_tokens;
    s->retry_ms = LAR_RETRY_MS_MIN;
    s->seen.pages = lar_engine_pages(o->engine);
    s->seen.prefixes = lar_engine_prefixes(o->engine);
    if (!take_memory(s)) e = lar_fail(LAR_NO_MEMORY, d, "no memory for %u sequences", o->sequences_max);
    if (!e) e = make_locks(s, d);
    if (e) return free_memory(s), e;
    *out = s;
    return LAR_OK;
}

void lar_scheduler_release(lar_scheduler *s) {
    LAR_ASSERT(!s->all && !s->begun_count);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free_memory(s);
}

/* Returns whether to go on; where there is nothing to do, after there is news. */
static bool look_for_news(lar_scheduler *s, bool work) {
    (void)pthread_mutex_lock(&s->lock);
    while (!work && !s->news) (void)pthread_cond_wait(&s->changed, &s->lock);
    s->news = false;
    bool stopping = s->stopping;
    (void)pthread_mutex_unlock(&s->lock);
    return !stopping;
}

static void *thread_main(void *arg) {
    lar_scheduler *s = arg;
    lar_engine_nice(s->o.engine, s->o.niceness);
    for (bool on = true; on;) on = look_for_news(s, lar_scheduler_round(s));
    (void)lar_scheduler_round(s); /* ends everything */
    return NULL;
}

lar_error lar_scheduler_open(const lar_scheduler_options *o, lar_scheduler **out, lar_diag *d) {
    lar_error e = lar_scheduler_make(o, out, d);
    if (e) return e;
    if (!pthread_create(&(*out)->thread, NULL, thread_main, *out)) return LAR_OK;
    lar_scheduler_release(*out);
    *out = NULL;
    return lar_fail(LAR_IO, d, "the system gave no thread");
}

static void tell(lar_scheduler *s) {
    s->news = true;
    (void)pthread_cond_signal(&s->changed);
}

void lar_scheduler_close(lar_scheduler *s) {
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    s->stopping = true;
    tell(s);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    lar_scheduler_release(s);
}

/* -- jobs -------------------------------------------------------------------------------------------------------- */

/* With the lock. */
static lar_error refusal(const lar_scheduler *s, lar_job_ticket *out, lar_diag *d) {
    if (s->stopping) return LAR_SHUTDOWN;
    if (s->waiting < s->o.queue_max) return LAR_OK;
    out->retry_ms = s->retry_ms;
    return lar_fail(LAR_BUSY, d, "%u requests are waiting; one may have left in %u ms", s->waiting, s->retry_ms);
}

static lar_job_id enqueue(lar_scheduler *s, lar_job *j) {
    j->entry.order = ++s->last_id;
    j->after = s->all;
    if (s->all) s->all->before = j;
    s->all = j;
    if (s->incoming_last) s->incoming_last->next = j;
    else s->incoming = j;
    s->incoming_last = j;
    s->waiting++;
    tell(s);
    return s->last_id;
}

lar_error lar_scheduler_submit(lar_scheduler *s, const lar_job_request *r, const lar_job_calls *calls,
                               lar_job_ticket *out, lar_diag *d) {
    uint32_t answer_max = 0;
    *out = (lar_job_ticket){0};
    lar_error e = lar_job_check(r, &s->limits, &answer_max, d);
    lar_job *j = e ? NULL : lar_job_new(r, calls, answer_max);
    if (!e && !j) e = LAR_NO_MEMORY;
    if (j) j->submitted_us = lar_scheduler_now(s);
    (void)pthread_mutex_lock(&s->lock);
    if (!e) e = refusal(s, out, d);
    if (!e) out->id = enqueue(s, j);
    else s->refused++;
    (void)pthread_mutex_unlock(&s->lock);
    if (e) lar_job_free(j);
    return e;
}

void lar_scheduler_cancel(lar_scheduler *s, lar_job_id job) {
    (void)pthread_mutex_lock(&s->lock);
    for (lar_job *j = s->all; j; j = j->after)
        if (j->entry.order == job && !j->cancelled) {
            j->cancelled = true;
            tell(s);
        }
    (void)pthread_mutex_unlock(&s->lock);
}

lar_scheduler_counts lar_scheduler_counts_of(const lar_scheduler *s) {
    lar_scheduler *m = (lar_scheduler *)s; /* only its lock */
    (void)pthread_mutex_lock(&m->lock);
    lar_scheduler_counts c = s->seen;
    c.waiting = s->waiting;
    c.refused = s->refused;
    (void)pthread_mutex_unlock(&m->lock);
    return c;
}
