/* One round of the scheduler: what is to end ends, what fits starts, one step is computed, and told.
 * Flow: the thread of scheduler.c, or a test, calls lar_scheduler_round; scheduler_admit.c starts and preempts,
 * step_pieces.c cuts prompts, lar_engine_step computes, scheduler_answer.c tells.
 * Blocks: for one step. Time: passed in by options.now_us; the step alone is what pass_time.c learns from.
 * Why a round is all: a cancel, a deadline, a newcomer wait for one step at most, in whatever state a job is.
 * Memory: the arrays of a step are taken at the start.
 * Invariant: each sequence in at most one part; all that a step needs is reserved before it. */
#include <string.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "engine/schedule/scheduler_core.h"

uint64_t lar_scheduler_now(const lar_scheduler *s) {
    return s->o.now_us ? s->o.now_us(s->o.context) : lar_clock_mono_ns() / 1000;
}

/* -- what comes and what ends ------------------------------------------------------------------------------------ */

static uint64_t deadline_us(const lar_scheduler *s, const lar_job *j) {
    uint64_t ms = j->request.queue_ms_max ? j->request.queue_ms_max : s->o.queue_ms_max;
    return ms ? j->submitted_us + ms * 1000 : UINT64_MAX;
}

/* What a job ends with now; OK: it goes on. With the lock. */
static lar_error ending_of(const lar_scheduler *s, const lar_job *j, uint64_t now_us) {
    if (j->cancelled) return LAR_CLIENT_GONE;
    if (s->stopping) return LAR_SHUTDOWN;
    return j->state == LAR_JOB_QUEUED && now_us >= deadline_us(s, j) ? LAR_BUSY : LAR_OK;
}

static void take_incoming(lar_scheduler *s) {
    for (lar_job *j = s->incoming; j; j = j->next) {
        lar_fair_queue_join(s->queue, &j->entry);
        s->counts.jobs++;
    }
    s->incoming = s->incoming_last = NULL;
}

/* Queues new jobs, ends those that are to end. */
static void intake(lar_scheduler *s, uint64_t now_us) {
    lar_job *ending = NULL;
    (void)pthread_mutex_lock(&s->lock);
    take_incoming(s);
    for (lar_job *j = s->all; j; j = j->after) {
        lar_error e = ending_of(s, j, now_us);
        if (!e) continue;
        if (e == LAR_BUSY)
            (void)lar_fail(e, &j->detail, "waited for %u ms", (uint32_t)((now_us - j->submitted_us) / 1000));
        j->error = e;
        j->next = ending; /* `all` begins with the newest, this with the oldest */
        ending = j;
    }
    (void)pthread_mutex_unlock(&s->lock);
    while (ending) {
        lar_job *j = ending;
        ending = j->next;
        lar_scheduler_end(s, j, now_us);
    }
}

/* Jobs that are done, or cannot go on. */
static void end_finished(lar_scheduler *s, uint64_t now_us) {
    for (uint32_t i = s->begun_count; i-- > 0;) {
        lar_job *j = s->begun[i];
        if (j->error || !lar_job_live(j)) lar_scheduler_end(s, j, now_us);
    }
}

/* -- the step ---------------------------------------------------------------------------------------------------- */

typedef struct step {
    uint32_t parts, pieces, rows;
    lar_pass_load load; /* of the parts */
    double expected_us; /* where pieces are held to the gap; else 0 */
} step;

static void add_part(lar_scheduler *s, step *t, const lar_step_part *what, uint32_t count) {
    uint32_t length = lar_sequence_length(what->sample->sequence), at = t->parts++;
    bool prefill = what->job->state == LAR_JOB_PREFILL;
    uint32_t end = prefill ? what->job->prefill_end : what->sample->count;
    bool wanted = length + count == what->sample->count && end == what->sample->count;
    s->part_jobs[at] = *what;
    s->part_jobs[at].row = wanted ? (int32_t)t->rows++ : -1;
    s->part_wanted[at] = count - 1;
    s->parts[at] = (lar_engine_part){.sequence = what->sample->sequence,
                                     .ids = what->sample->tokens + length,
                                     .count = count,
                                     .wanted = &s->part_wanted[at],
                                     .wanted_count = wanted};
    t->load.tokens += count;
    t->load.positions += (uint64_t)count * length + (uint64_t)count * (count - 1u) / 2;
}

/* Whether `ahead`, which is older, is about to compute the page that comes next in j's prompt: then j leaves it to that
 * one and takes it over whole. Never where it would have to be taken over in part, or was computed already and is not
 * kept. */
static bool shares_next_page(lar_job *ahead, lar_job *j) {
    const lar_job_sample *a = lar_job_first(j), *other;
    uint32_t length = lar_sequence_length(a->sequence), end = length + LAR_PAGE_TOKENS, reached;
    if (ahead->state != LAR_JOB_PREFILL || length % LAR_PAGE_TOKENS || end >= j->prefill_end) return false;
    other = lar_job_first(ahead);
    reached = lar_sequence_length(other->sequence);
    return reached >= length && reached < end && end <= ahead->prefill_end &&
           !memcmp(&ahead->request.scope, &j->request.scope, sizeof j->request.scope) &&
           !memcmp(other->tokens, a->tokens, end * sizeof *a->tokens);
}

/* Prompts with a beginning in common that arrive together: the oldest computes it, page by page, and counts as being as
 * short as the shortest of those who wait. The oldest of all waits for nobody, and a job that ends or is preempted is
 * waited for no longer, so somebody always goes on. True: j, the k-th begun, waits. */
static bool waits_for_page(lar_scheduler *s, step *t, uint32_t k) {
    lar_job *j = s->begun[k];
    uint32_t i = 0, left = j->prefill_end - lar_sequence_length(lar_job_first(j)->sequence);
    while (i < k && !shares_next_page(s->begun[i], j)) i++;
    for (uint32_t p = 0; i < k && p < t->pieces; p++) {
        lar_piece *piece = &s->pieces[p];
        if (s->piece_jobs[p].job != s->begun[i]) continue;
        if (!piece->awaited || left < piece->awaited) piece->awaited = left;
    }
    return i < k;
}

static void add_piece(lar_scheduler *s, step *t, const lar_step_part *what, uint32_t left) {
    s->pieces[t->pieces] = (lar_piece){.position = lar_sequence_length(what->sample->sequence), .left = left};
    s->piece_jobs[t->pieces++] = *what;
}

/* What each sequence lacks, the oldest jobs' first: one token is a part at once, more are a piece to be cut. */
static void gather(lar_scheduler *s, step *t) {
    for (uint32_t k = 0; k < s->begun_count; k++) {
        lar_job *j = s->begun[k];
        if (j->state == LAR_JOB_PREFILL && !lar_scheduler_take_over(s, j) && !waits_for_page(s, t, k)) {
            lar_step_part what = {.job = j, .sample = lar_job_first(j)};
            add_piece(s, t, &what, j->prefill_end - lar_sequence_length(what.sample->sequence));
        }
        for (uint32_t i = 0; i < j->request.samples && j->state == LAR_JOB_DECODE; i++) {
            lar_step_part what = {.job = j, .sample = &j->samples[i]};
            if (what.sample->ended) continue;
            uint32_t left = what.sample->count - lar_sequence_length(what.sample->sequence);
            if (!lar_scheduler_make_room(s, j, what.sample, left)) break;
            if (left == 1) add_part(s, t, &what, 1);
            else add_piece(s, t, &what, left);
        }
    }
}

/* Parts and pieces of jobs that were preempted for the sake of older ones, or for their own other samples. */
static void drop_preempted(lar_scheduler *s, step *t) {
    step kept = {0};
    lar_step_part *p = s->part_jobs;
    for (uint32_t i = 0; i < t->parts; i++)
        if (p[i].sample->sequence) add_part(s, &kept, &p[i], 1);
    for (uint32_t i = 0; i < t->pieces; i++) {
        if (!s->piece_jobs[i].sample->sequence) continue;
        s->pieces[kept.pieces] = s->pieces[i];
        s->piece_jobs[kept.pieces++] = s->piece_jobs[i];
    }
    *t = kept;
}

static void plan(lar_scheduler *s, step *t) {
    gather(s, t);
    drop_preempted(s, t);
    uint64_t gap_us = (uint64_t)s->o.gap_ms * 1000;
    lar_step_room room = {.decoding = t->load, .tokens_max = s->pass_tokens, .budget_us = LAR_ROUND_IDLE_BUDGET_US};
    bool held = t->parts || gap_us > room.budget_us;
    if (held) room.budget_us = (uint64_t)lar_pass_time_within(&s->pass_time, gap_us);
    lar_step_pieces_cut(&s->pass_time, &room, s->pieces, t->pieces);
    for (uint32_t i = 0; i < t->pieces; i++)
        if (s->pieces[i].count) add_part(s, t, &s->piece_jobs[i], s->pieces[i].count);
    if (held && t->pieces) t->expected_us = lar_pass_time_of(&s->pass_time, t->load);
}

/* All sequences of the step are as they were; their jobs cannot go on. */
static void fail_parts(lar_scheduler *s, const step *t, lar_error e, const lar_diag *d) {
    for (uint32_t i = 0; i < t->parts; i++) {
        s->part_jobs[i].job->error = e;
        s->part_jobs[i].job->detail = *d;
    }
}

static void compute(lar_scheduler *s, const step *t) {
    lar_diag d = {0};
    uint64_t before = lar_scheduler_now(s);
    lar_error e = lar_engine_step(s->o.engine, s->parts, t->parts, s->logits, &d);
    uint64_t after = lar_scheduler_now(s);
    s->counts.steps++;
    s->counts.step_us += after - before;
    s->recent_us += after - before;
    if (e) {
        fail_parts(s, t, e, &d);
        return;
    }
    lar_pass_time_judge(&s->pass_time, t->expected_us, after - before);
    lar_pass_time_learn(&s->pass_time, t->load, after - before);
    for (uint32_t i = 0; i < t->parts; i++) {
        lar_job *j = s->part_jobs[i].job;
        uint32_t length = lar_sequence_length(s->parts[i].sequence);
        if (!j->begun && length > j->prompt_reached) j->prompt_reached = length;
    }
    lar_scheduler_deliver(s, t->parts, after);
}

/* -- counts ------------------------------------------------------------------------------------------------------ */

/* A place in the queue is free when a job begins, and one begins for each that ends. */
static void publish(lar_scheduler *s) {
    uint64_t busy_us = s->recent_us + (s->recent_ended ? 0 : 1000000), ended = s->recent_ended ? s->recent_ended : 1;
    uint64_t retry_ms = busy_us / ended / 1000;
    if (retry_ms < LAR_RETRY_MS_MIN) retry_ms = LAR_RETRY_MS_MIN;
    if (retry_ms > LAR_RETRY_MS_MAX) retry_ms = LAR_RETRY_MS_MAX;
    s->counts.prefilling = s->counts.decoding = 0;
    for (uint32_t i = 0; i < s->begun_count; i++) {
        s->counts.prefilling += s->begun[i]->state == LAR_JOB_PREFILL;
        s->counts.decoding += s->begun[i]->state == LAR_JOB_DECODE;
    }
    s->counts.pages = lar_engine_pages(s->o.engine);
    s->counts.prefixes = lar_engine_prefixes(s->o.engine);
    (void)pthread_mutex_lock(&s->lock);
    s->seen = s->counts;
    s->retry_ms = (uint32_t)retry_ms;
    (void)pthread_mutex_unlock(&s->lock);
}

bool lar_scheduler_round(lar_scheduler *s) {
    uint64_t now_us = lar_scheduler_now(s);
    intake(s, now_us);
    lar_scheduler_admit(s, now_us);
    step t = {0};
    plan(s, &t);
    if (t.parts) compute(s, &t);
    end_finished(s, lar_scheduler_now(s));
    publish(s);
    return s->begun_count || lar_fair_queue_next(s->queue);
}
