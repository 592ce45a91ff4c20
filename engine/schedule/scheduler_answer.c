/* What a step brought: tokens are drawn and told, prompts that are complete become answers, ended ones go.
 * Called by the rounds of scheduler_round.c, on the scheduler's thread, which calls back from here without the lock.
 * Order: tokens of those that decode are drawn, on all threads, and told first, then come prompts that are complete: a
 * fork may need pages of younger jobs, and what they had computed is told by then.
 * Invariants: a job stays until the round's end, whatever its callbacks say; on_begin before the first token;
 * on_sample_end once for each sample of a job that ends well; on_end last. */
#include "base/ensure.h"
#include "engine/schedule/scheduler_core.h"

/* Whole pages of a sequence are told to the prefix cache as they fill. */
static void keep_pages(lar_job_sample *a) {
    uint32_t length = lar_sequence_length(a->sequence), pages = length / LAR_PAGE_TOKENS;
    if (pages == a->pages_kept) return;
    lar_sequence_keep(a->sequence, a->tokens, length);
    a->pages_kept = pages;
}

static void end_sample(lar_scheduler *s, lar_job *j, lar_job_sample *a, lar_job_reason why) {
    a->ended = true;
    lar_sequence_free(a->sequence);
    a->sequence = NULL;
    s->released = true;
    j->calls.on_sample_end(j->calls.user, (uint32_t)(a - j->samples), why);
}

static void count_gap(lar_scheduler *s, lar_job_sample *a, uint64_t now_us) {
    if (a->told_us && now_us - a->told_us > s->counts.gap_us_max) s->counts.gap_us_max = now_us - a->told_us;
    a->told_us = now_us;
}

static void draw(const lar_job *j, lar_job_sample *a, const float *logits, lar_step_drawn *out) {
    uint32_t count;
    const uint32_t *among = lar_job_may_follow(j, a, &count);
    if (count) lar_sampler_hold(a->sampler, among, count);
    out->error = lar_sampler_next(a->sampler, logits, &out->sampled, &out->detail);
}

static void tell_token(lar_scheduler *s, lar_job *j, lar_job_sample *a, const lar_step_drawn *drawn) {
    uint32_t index = a->count - j->request.count;
    if (drawn->error) {
        j->error = drawn->error;
        j->detail = drawn->detail;
        return;
    }
    lar_fair_queue_count(s->queue, &j->entry, 1);
    if (lar_job_ends_with(j, drawn->sampled.id)) {
        end_sample(s, j, a, LAR_JOB_STOP);
        return;
    }
    a->tokens[a->count++] = drawn->sampled.id;
    lar_job_opened(j, a, drawn->sampled.id);
    j->answer_tokens++;
    s->counts.answer_tokens++;
    lar_job_token t = {.sample = (uint32_t)(a - j->samples), .index = index, .sampled = &drawn->sampled};
    if (!j->calls.on_token(j->calls.user, &t)) end_sample(s, j, a, LAR_JOB_ENDED);
    else if (index + 1 == j->answer_max) end_sample(s, j, a, LAR_JOB_LENGTH);
}

/* The first time that the prompt is complete. */
static void begin(lar_scheduler *s, lar_job *j, uint64_t now_us) {
    const lar_job_request *r = &j->request;
    j->begun = true;
    j->begun_us = now_us;
    s->counts.prompt_tokens += r->count;
    s->counts.cached_tokens += j->prompt_cached;
    for (uint32_t i = 0; s->o.pin_ms && i < r->mark_count; i++)
        (void)lar_engine_pin(s->o.engine, &r->scope, r->ids, r->marks[i], now_us / 1000 + s->o.pin_ms);
    lar_job_begin b = {.cached_tokens = j->prompt_cached, .queued_us = j->started_us - j->submitted_us};
    j->calls.on_begin(j->calls.user, &b);
}

/* The sequence of the first sample is as long as it was to become. `logits` are those behind it, if they are wanted. */
static void complete_prefill(lar_scheduler *s, lar_job *j, const float *logits, uint64_t now_us) {
    lar_step_drawn drawn;
    if (!lar_scheduler_fork(s, j)) return;
    lar_job_move(j, LAR_JOB_DECODE);
    if (!j->begun) begin(s, j, now_us);
    for (uint32_t i = 0; logits && !j->error && i < j->request.samples; i++) {
        lar_job_sample *a = &j->samples[i];
        if (a->ended || a->count != lar_sequence_length(a->sequence)) continue;
        count_gap(s, a, now_us);
        draw(j, a, logits, &drawn);
        tell_token(s, j, a, &drawn);
    }
}

static const float *logits_of(const lar_scheduler *s, const lar_step_part *p) {
    return p->row < 0 ? NULL : s->logits + (size_t)p->row * s->limits.vocab;
}

/* Of part i, on any of the engine's threads. Not behind a prompt: there a job can still be preempted for the sake of
 * forks, and must not have drawn then. */
static void draw_part(void *context, uint32_t i) {
    lar_scheduler *s = context;
    const lar_step_part *p = &s->part_jobs[i];
    if (p->row >= 0 && p->job->state == LAR_JOB_DECODE) draw(p->job, p->sample, logits_of(s, p), &s->drawn[i]);
}

static void deliver_decoded(lar_scheduler *s, uint32_t i, uint64_t now_us) {
    const lar_step_part *p = &s->part_jobs[i];
    if (p->row < 0 || p->job->error) return;
    count_gap(s, p->sample, now_us);
    tell_token(s, p->job, p->sample, &s->drawn[i]);
}

static void deliver_prefill(lar_scheduler *s, uint32_t i, uint64_t now_us) {
    const lar_step_part *p = &s->part_jobs[i];
    lar_job *j = p->job;
    if (j->error || lar_sequence_length(p->sample->sequence) != j->prefill_end) return;
    complete_prefill(s, j, logits_of(s, p), now_us);
}

void lar_scheduler_deliver(lar_scheduler *s, uint32_t parts, uint64_t now_us) {
    for (uint32_t i = 0; i < parts; i++) keep_pages(s->part_jobs[i].sample);
    lar_engine_share(s->o.engine, parts, draw_part, s);
    for (uint32_t i = 0; i < parts; i++)
        if (s->part_jobs[i].job->state == LAR_JOB_DECODE) deliver_decoded(s, i, now_us);
    for (uint32_t i = 0; i < parts; i++)
        if (s->part_jobs[i].job->state == LAR_JOB_PREFILL) deliver_prefill(s, i, now_us);
}

/* -- the end ----------------------------------------------------------------------------------------------------- */

static void forget(lar_scheduler *s, lar_job *j) {
    (void)pthread_mutex_lock(&s->lock);
    if (j->before) j->before->after = j->after;
    else s->all = j->after;
    if (j->after) j->after->before = j->before;
    if (j->state == LAR_JOB_QUEUED) s->waiting--;
    (void)pthread_mutex_unlock(&s->lock);
}

static void leave_begun(lar_scheduler *s, const lar_job *j) {
    uint32_t at = 0;
    while (at < s->begun_count && s->begun[at] != j) at++;
    LAR_ASSERT(at < s->begun_count);
    for (s->begun_count--; at < s->begun_count; at++) s->begun[at] = s->begun[at + 1];
}

static void count_end(lar_scheduler *s, const lar_job *j) {
    if (j->error == LAR_CLIENT_GONE) s->counts.cancelled++;
    if (j->begun && ++s->recent_ended == 64) s->recent_ended /= 2, s->recent_us /= 2;
    if (j->begun || j->state == LAR_JOB_QUEUED) return;
    /* Counted for the tenant when it started, and not computed. */
    uint32_t reached = j->prompt_reached > j->prompt_cached ? j->prompt_reached : j->prompt_cached;
    lar_fair_queue_count(s->queue, &j->entry, (int64_t)reached - j->request.count);
}

void lar_scheduler_end(lar_scheduler *s, lar_job *j, uint64_t now_us) {
    forget(s, j);
    count_end(s, j);
    if (j->state != LAR_JOB_QUEUED) leave_begun(s, j);
    lar_fair_queue_leave(s->queue, &j->entry);
    lar_job_move(j, LAR_JOB_ENDING);
    lar_job_drop_sequences(j);
    s->released = true;
    uint64_t started = j->started_us ? j->started_us : now_us, begun = j->begun_us ? j->begun_us : now_us;
    lar_job_end e = {.error = j->error,
                     .detail = j->error && *j->detail.text ? j->detail.text : lar_error_text(j->error),
                     .prompt_tokens = j->request.count,
                     .cached_tokens = j->prompt_cached,
                     .answer_tokens = j->answer_tokens,
                     .preempted = j->preempted,
                     .queued_us = started - j->submitted_us,
                     .prefill_us = j->started_us ? begun - started : 0,
                     .decode_us = j->begun_us ? now_us - begun : 0};
    j->calls.on_end(j->calls.user, &e);
    lar_job_free(j);
}
