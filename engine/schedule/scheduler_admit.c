/* Who gets pages: jobs start, are taken back to the queue when pages run out, start again.
 * Called by the rounds of scheduler_round.c, on the scheduler's thread; may block where the page store reads.
 * Why no livelock: pages are only ever taken from younger jobs, so the oldest always goes on; and a job that was taken
 * back n times starts again only where 2^n pages are left beside what it needs at once, or alone. It is taken back
 * again when others have filled those, so n is at most about log2 of all pages.
 * Invariants: `begun` is in the order of first starts; a waiting job starts only when no begun one is preempted; the
 * next in turn is never passed by a smaller one.
 * Memory: what lar_job_prepare and sequences take; none in a step. */
#include <stddef.h>

#include "base/ensure.h"
#include "engine/schedule/scheduler_core.h"

static uint32_t pages_of(uint64_t tokens) { return (uint32_t)((tokens + LAR_PAGE_TOKENS - 1) / LAR_PAGE_TOKENS); }

/* Pages that could be had now: free, or kept for nobody in particular. */
static uint32_t pages_to_have(const lar_scheduler *s) {
    lar_page_counts p = lar_engine_pages(s->o.engine);
    lar_prefix_counts c = lar_engine_prefixes(s->o.engine);
    return p.pages - p.held + c.idle;
}

static uint32_t active_jobs(const lar_scheduler *s) {
    uint32_t active = 0;
    for (uint32_t i = 0; i < s->begun_count; i++) active += s->begun[i]->state != LAR_JOB_PREEMPTED;
    return active;
}

static void preempt(lar_scheduler *s, lar_job *j) {
    lar_job_drop_sequences(j);
    lar_job_move(j, LAR_JOB_PREEMPTED);
    j->preempted++;
    s->counts.preempted++;
    s->released = true;
}

/* Takes the youngest's pages; false: that was the job itself. A job alone has all pages but pinned ones, and no pin may
 * stop everything. */
static bool take_from_youngest(lar_scheduler *s, lar_job *j) {
    if (active_jobs(s) == 1) {
        LAR_ASSERT(lar_engine_prefixes(s->o.engine).pinned > 0);
        lar_engine_unpin(s->o.engine);
        return true;
    }
    uint32_t i = s->begun_count;
    while (s->begun[--i]->state == LAR_JOB_PREEMPTED) LAR_ASSERT(i > 0);
    lar_job *youngest = s->begun[i];
    preempt(s, youngest);
    return youngest != j;
}

bool lar_scheduler_make_room(lar_scheduler *s, lar_job *j, lar_job_sample *sample, uint32_t tokens) {
    for (lar_error e; (e = lar_sequence_reserve(sample->sequence, tokens, NULL));) {
        LAR_ASSERT(e == LAR_FULL);
        if (!take_from_youngest(s, j)) return false;
    }
    return true;
}

bool lar_scheduler_fork(lar_scheduler *s, lar_job *j) {
    const lar_job_sample *from = lar_job_first(j);
    for (uint32_t i = 0; i < j->request.samples; i++) {
        lar_job_sample *to = &j->samples[i];
        if (to->ended || to->sequence) continue;
        lar_error e = LAR_FULL;
        while ((e = lar_sequence_fork(from->sequence, &to->sequence, NULL)) == LAR_FULL)
            if (!take_from_youngest(s, j)) return false;
        if (e) return j->error = e, false;
        to->pages_kept = from->pages_kept;
    }
    return true;
}

/* -- starting ---------------------------------------------------------------------------------------------------- */

/* Pages beside those of the first sequence that a job should find: one for each other sample's last page of the prompt,
 * those of the answers so far, and a reserve that doubles each time that the job was taken back. */
static uint64_t spare_pages(const lar_job *j) {
    uint64_t spare = 1ull << (j->preempted < 20 ? j->preempted : 20), longest = 0;
    for (uint32_t i = 0; i < j->request.samples; i++) {
        const lar_job_sample *a = &j->samples[i];
        if (a->ended) continue;
        longest += pages_of((uint64_t)j->request.count + j->answer_max) - pages_of(a->count);
        if (a->count > j->prefill_end) spare += pages_of(a->count - j->request.count) + 1u;
        else if (a != j->samples) spare++;
    }
    /* No more than it can ever use. */
    return spare < longest + j->request.samples ? spare : longest + j->request.samples;
}

typedef enum start { STARTED, BLOCKED, FAILED } start;

/* A sequence for the first live sample, with what is kept of it, and pages for the rest. */
static start start_job(lar_scheduler *s, lar_job *j) {
    lar_job_sample *first = lar_job_first(j);
    j->prefill_end = lar_job_live(j) > 1 ? j->request.count : first->count;
    j->error = lar_sequence_new(s->o.engine, j->request.count + j->answer_max, &first->sequence, &j->detail);
    if (j->error) return FAILED;
    uint32_t cached = lar_sequence_adopt(first->sequence, &j->request.scope, first->tokens, j->prefill_end);
    uint32_t active = active_jobs(s), lacks = j->prefill_end - cached;
    bool fits = !lar_sequence_reserve(first->sequence, lacks, NULL);
    if (!fits && !active) {
        lar_engine_unpin(s->o.engine);
        fits = !lar_sequence_reserve(first->sequence, lacks, NULL);
        LAR_ASSERT(fits); /* lar_job_check saw to it */
    }
    if (!fits || (active && pages_to_have(s) < spare_pages(j))) {
        lar_job_drop_sequences(j);
        return BLOCKED;
    }
    first->pages_kept = cached / LAR_PAGE_TOKENS;
    if (!j->preempted) j->prompt_cached = cached;
    return STARTED;
}

bool lar_scheduler_take_over(lar_scheduler *s, lar_job *j) {
    lar_job_sample *a = lar_job_first(j);
    uint32_t before = lar_sequence_length(a->sequence);
    uint32_t after = lar_sequence_adopt(a->sequence, &j->request.scope, a->tokens, j->prefill_end);
    lar_error e = lar_sequence_reserve(a->sequence, j->prefill_end - after, NULL);
    LAR_ASSERT(!e); /* it gave back as many pages as it took over, or more */
    if (after == before) return false;
    a->pages_kept = after / LAR_PAGE_TOKENS;
    if (j->preempted) return true;
    j->prompt_cached += after - before;
    j->prompt_reached = after;
    lar_fair_queue_count(s->queue, &j->entry, -(int64_t)(after - before));
    return true;
}

static uint32_t sequences_in_use(const lar_scheduler *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->begun_count; i++) n += lar_job_live(s->begun[i]);
    return n;
}

static start try_start(lar_scheduler *s, lar_job *j) {
    if (s->blocked == j->entry.order && !s->released) return BLOCKED; /* nothing was given back since */
    start how = start_job(s, j);
    if (how == BLOCKED) s->blocked = j->entry.order, s->released = false;
    return how;
}

/* False: a preempted job has to wait. */
static bool start_again(lar_scheduler *s) {
    for (uint32_t i = 0; i < s->begun_count; i++) {
        lar_job *j = s->begun[i];
        if (j->state != LAR_JOB_PREEMPTED || j->error) continue;
        start how = try_start(s, j);
        if (how == BLOCKED) return false;
        if (how == STARTED) lar_job_move(j, LAR_JOB_PREFILL);
    }
    return true;
}

static void leave_queue(lar_scheduler *s, lar_job *j, uint64_t now_us) {
    lar_fair_queue_take(s->queue, &j->entry, j->request.count - j->prompt_cached);
    (void)pthread_mutex_lock(&s->lock);
    s->waiting--;
    s->seen.prefilling++; /* who counts jobs meanwhile finds this one */
    (void)pthread_mutex_unlock(&s->lock);
    j->started_us = now_us;
    lar_job_move(j, LAR_JOB_PREFILL);
    s->begun[s->begun_count++] = j;
}

/* False: the next in turn has to wait, or there is none. */
static bool start_next(lar_scheduler *s, uint64_t now_us) {
    lar_fair_entry *e = lar_fair_queue_next(s->queue);
    if (!e) return false;
    lar_job *j = (lar_job *)(void *)((char *)e - offsetof(lar_job, entry));
    if (sequences_in_use(s) + j->request.samples > s->o.sequences_max) return false;
    if (!j->samples[0].tokens) j->error = lar_job_prepare(j, s->limits.vocab, &j->detail);
    start how = j->error ? FAILED : try_start(s, j);
    if (how == BLOCKED) return false;
    if (how == FAILED) lar_scheduler_end(s, j, now_us);
    else leave_queue(s, j, now_us);
    return true;
}

void lar_scheduler_admit(lar_scheduler *s, uint64_t now_us) {
    bool more = start_again(s);
    while (more) more = start_next(s, now_us);
}
