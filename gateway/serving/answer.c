/* An answer from the request to its last byte.
 * Flow: lar_answer_new on a worker (ask_read.c, prompts.c) -> lar_answer_start -> the scheduler's callbacks here
 * (answer_sample.c cuts texts, answer_write.c writes them) -> the sink. Never blocks but on its lock.
 * Threads: that of lar_answer_start and the scheduler's tell the sink, that of lar_answer_cancel silences it; `lock` is
 * over all of it. lar_scheduler_* is never called under the lock: a callback may wait for it inside the scheduler.
 * Invariants: 1. `open` counts the jobs under way and lar_answer_start; whoever brings it to 0 concludes. 2. nothing of
 * the answer is touched behind sink.end. 3. after an error or cancel every token is answered with "no more". */
#include "gateway/serving/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "gateway/serving/token_replies.h"

enum { OUT_BYTES_MAX = 1 << 30, PREFIX_BYTES_MAX = 1 << 20, NAMES_BYTES_MAX = 1024 };

/* -- making -------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(lar_answer *a) { return lar_mix64(a->random += LAR_MIX64_STEP); }

void lar_answer_make_id(lar_answer *a, const char *kind, char *out) {
    uint64_t high = next_random(a), low = next_random(a);
    (void)snprintf(out, LAR_ANSWER_ID_BYTES, "%s%016" PRIx64 "%08" PRIx64, kind, high, low >> 32);
}

static lar_error make_samples(lar_answer *a) {
    lar_diag d = {.text = ""};
    uint32_t count = a->prompts.count * a->ask.samples;
    lar_error e = LAR_OK;
    a->samples = calloc(count, sizeof *a->samples);
    if (!a->samples) return LAR_NO_MEMORY;
    for (; !e && a->sample_count < count; a->sample_count++) e = lar_answer_sample_init(a, a->sample_count, &d);
    return e == LAR_OK || e == LAR_NO_MEMORY ? e : lar_refuse_error(&a->refusal, e, d.text);
}

/* Its client has a part of it. */
static lar_error resume(lar_answer *a, const lar_serving_begun *b) {
    lar_error e = lar_buf_add_slice(&a->names, b->from);
    a->resumed = true;
    a->to = a->names.len;
    a->prompt_told = b->prompt_tokens;
    return e ? e : lar_buf_add_slice(&a->names, b->to);
}

/* What the answer is made of, or the refusal; the body is not needed any more. */
static lar_error prepare(lar_answer *a, const lar_serving_ask *from) {
    bool models = from->endpoint == LAR_SERVING_MODELS || from->endpoint == LAR_SERVING_MODEL;
    bool chat = from->endpoint == LAR_SERVING_CHAT;
    lar_error e = models ? LAR_OK : lar_ask_read(a->serving, from, &a->ask, &a->refusal);
    if (!e && !chat && from->endpoint != LAR_SERVING_COMPLETIONS)
        return lar_token_reply(a->serving, from, &a->ask, &a->out, &a->refusal);
    if (!e && from->begun) e = lar_begun_check(&a->ask, &a->refusal);
    if (!e) e = lar_prompts_make(a->serving, from, &a->ask, &a->prompts, &a->refusal);
    if (e) return e;
    if (chat && a->prompts.list[0].begun_by_client && a->ask.logprobs)
        return lar_refuse(&a->refusal, "logprobs", LAR_CODE_UNSUPPORTED_VALUE,
                          "logprobs: not of an answer whose beginning is given");
    if (from->begun) e = resume(a, from->begun);
    if (e) return e;
    lar_json_release(&a->ask.json);
    lar_answer_make_id(a, chat ? "chatcmpl-" : "cmpl-", a->id);
    if (!a->ask.has_seed) a->ask.sampling.seed = next_random(a);
    for (uint32_t i = 0; i < a->prompts.count; i++) {
        a->jobs[i] = (lar_answer_job){.answer = a, .index = i};
        a->end.prompt_tokens += (uint32_t)a->prompts.list[i].ids.count;
    }
    e = make_samples(a);
    return e ? e : lar_answer_write_prefix(a, from->begun);
}

lar_error lar_answer_new(const lar_serving *s, const lar_serving_ask *ask, const lar_answer_sink *sink,
                         lar_answer **out) {
    lar_answer *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return LAR_NO_MEMORY;
    if (pthread_mutex_init(&a->lock, NULL) != 0) {
        free(a);
        return LAR_NO_MEMORY;
    }
    a->serving = s;
    a->sink = *sink;
    a->from = *ask;
    a->from.body = a->from.id = LAR_SLICE("");
    a->from.gone = NULL;
    a->from.begun = NULL;
    a->random = ask->random;
    lar_buf_init(&a->out, OUT_BYTES_MAX);
    lar_buf_init(&a->prefix, PREFIX_BYTES_MAX);
    lar_buf_init(&a->names, NAMES_BYTES_MAX);
    lar_error e = prepare(a, ask);
    if (e && e != LAR_NO_MEMORY && !a->refusal.status) e = lar_refuse_error(&a->refusal, e, "");
    if (e == LAR_NO_MEMORY) {
        lar_answer_free(a);
        return e;
    }
    if (e) lar_prompts_release(&a->prompts); /* so that it has no jobs */
    *out = a;
    return LAR_OK;
}

void lar_answer_free(lar_answer *a) {
    if (!a) return;
    LAR_ASSERT(a->open == 0);
    for (uint32_t i = 0; i < a->sample_count; i++) lar_answer_sample_release(&a->samples[i]);
    free(a->samples);
    lar_prompts_release(&a->prompts);
    lar_ask_release(&a->ask);
    lar_buf_release(&a->out);
    lar_buf_release(&a->prefix);
    lar_buf_release(&a->names);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}

bool lar_answer_has_jobs(const lar_answer *a) { return a->prompts.count > 0; }

/* -- telling; under the lock --------------------------------------------------------------------------------------- */

static bool is_silent(const lar_answer *a) { return a->cancelled || a->refusal.status; }

static void tell_head(lar_answer *a, const lar_answer_head *h) {
    a->head_told = true;
    a->end.status = h->status;
    a->sink.head(a->sink.user, h);
}

static void tell_out(lar_answer *a) {
    if (a->out.len) a->sink.bytes(a->sink.user, lar_buf_slice(&a->out));
}

static void tell_json(lar_answer *a, int status, uint32_t retry_ms) {
    tell_head(a, &(lar_answer_head){.status = status,
                                    .content_type = "application/json",
                                    .has_length = true,
                                    .length = a->out.len,
                                    .retry_ms = retry_ms});
    tell_out(a);
}

/* The answer ends with an error, of which its client is told at the end. */
static void fail(lar_answer *a, lar_error e, const char *detail) {
    if (a->refusal.status) return;
    (void)lar_refuse_error(&a->refusal, e, detail);
    if (!a->end.error) a->end.error = e;
}

/* An error that there is no memory to tell leaves the stream without [DONE], or an empty body of its status. */
static void tell_refusal(lar_answer *a) {
    lar_json_writer w = {.out = &a->out};
    a->out.len = 0;
    if (a->head_told) lar_json_put(&w, "data: ");
    lar_refusal_write(&a->refusal, &w);
    if (a->head_told) lar_json_put(&w, "\n\n");
    if (w.error) a->out.len = 0;
    if (a->head_told) tell_out(a);
    else tell_json(a, a->refusal.status, a->refusal.retry_ms);
}

static void tell_end(lar_answer *a) {
    lar_error e = LAR_OK;
    if (!a->ask.stream) {
        e = lar_answer_write_body(a);
        if (!e) tell_json(a, 200, 0);
    } else {
        bool usage = a->ask.include_usage || a->resumed; /* whoever hands it on must know it, the client or not */
        if (usage) e = lar_answer_write_usage(a);
        if (!e && usage) tell_out(a);
        a->out.len = 0;
        if (!e) e = lar_buf_add_slice(&a->out, LAR_SLICE("data: [DONE]\n\n"));
        if (!e) tell_out(a);
    }
    if (e) fail(a, e, e == LAR_LIMIT ? "the answer is too large for one body; ask for a stream" : "");
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static void conclude(lar_answer *a) {
    for (uint32_t i = 0; i < a->sample_count; i++) a->end.reasoning_tokens += a->samples[i].reasoning_tokens;
    if (!is_silent(a) && a->prompts.count) tell_end(a);
    if (a->cancelled) a->end.error = LAR_CLIENT_GONE;
    else if (a->refusal.status) tell_refusal(a);
}

/* One of those that `open` counts is done. */
static void leave(lar_answer *a) {
    (void)pthread_mutex_lock(&a->lock);
    bool last = --a->open == 0;
    if (last) conclude(a);
    lar_answer_end end = a->end;
    lar_answer_sink sink = a->sink;
    (void)pthread_mutex_unlock(&a->lock);
    if (last) sink.end(sink.user, &end);
}

/* -- the scheduler's callbacks ------------------------------------------------------------------------------------- */

static lar_answer_sample *sample_of(const lar_answer_job *job, uint32_t sample) {
    return &job->answer->samples[job->index * job->answer->ask.samples + sample];
}

static void on_begin(void *user, const lar_job_begin *b) {
    lar_answer_job *job = user;
    lar_answer *a = job->answer;
    lar_error e = LAR_OK;
    (void)pthread_mutex_lock(&a->lock);
    bool first = !job->begun;
    job->begun = true;
    job->cached = b->cached_tokens;
    if (first && a->ask.stream && !is_silent(a)) {
        uint32_t begun = a->prompts.list[job->index].begun_tokens;
        if (!a->head_told)
            tell_head(a, &(lar_answer_head){.status = 200, .content_type = "text/event-stream", .begun_tokens = begun});
        for (uint32_t i = 0; !e && i < a->ask.samples; i++) {
            e = a->resumed ? lar_answer_write_seam(a) : lar_answer_write_role(a, sample_of(job, i));
            if (!e) tell_out(a);
        }
        if (e) fail(a, e, "");
    }
    (void)pthread_mutex_unlock(&a->lock);
}

/* What a token, or the end of the text, brought out. */
static lar_error tell_deltas(lar_answer *a, lar_answer_sample *s) {
    lar_error e = a->ask.stream ? LAR_OK : lar_answer_sample_keep(s);
    for (uint32_t i = 0; !e && a->ask.stream && i < s->delta_count; i++) {
        e = lar_answer_write_delta(a, s, &s->deltas[i]);
        if (!e) tell_out(a);
    }
    return e;
}

static bool on_token(void *user, const lar_job_token *t) {
    lar_answer_job *job = user;
    lar_answer *a = job->answer;
    lar_answer_sample *s = sample_of(job, t->sample);
    bool more = false;
    (void)pthread_mutex_lock(&a->lock);
    if (!is_silent(a)) {
        lar_error e = lar_answer_sample_token(s, t->sampled, &more);
        if (!e) e = tell_deltas(a, s);
        if (e) fail(a, e, e == LAR_LIMIT ? "the answer is too large to be kept; ask for a stream" : "");
        more = more && !e;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return more;
}

static void on_sample_end(void *user, uint32_t sample, lar_job_reason why) {
    lar_answer_job *job = user;
    lar_answer *a = job->answer;
    lar_answer_sample *s = sample_of(job, sample);
    (void)pthread_mutex_lock(&a->lock);
    if (!is_silent(a)) {
        lar_error e = lar_answer_sample_finish(s, why);
        if (!e) e = tell_deltas(a, s);
        if (!e && a->ask.stream) e = lar_answer_write_finish(a, s);
        if (!e && a->ask.stream) tell_out(a);
        if (e) fail(a, e, "");
    }
    (void)pthread_mutex_unlock(&a->lock);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void on_end(void *user, const lar_job_end *e) {
    lar_answer_job *job = user;
    lar_answer *a = job->answer;
    uint32_t prompt = (uint32_t)a->prompts.list[job->index].ids.count;
    (void)pthread_mutex_lock(&a->lock);
    lar_answer_end *sum = &a->end;
    sum->cached_tokens += job->cached < prompt ? job->cached : prompt;
    sum->answer_tokens += e->answer_tokens;
    sum->preempted += e->preempted;
    sum->queued_us = larger(sum->queued_us, e->queued_us);
    sum->prefill_us = larger(sum->prefill_us, e->prefill_us);
    sum->decode_us = larger(sum->decode_us, e->decode_us);
    if (e->error == LAR_CLIENT_GONE) a->cancelled |= !a->refusal.status; /* with one, stop_jobs ended it */
    else if (e->error == LAR_INVALID) fail(a, LAR_IO, "the model computed a value that is no number");
    else if (e->error) fail(a, e->error, e->detail ? e->detail : "");
    (void)pthread_mutex_unlock(&a->lock);
    leave(a);
}

/* -- starting ------------------------------------------------------------------------------------------------------ */

static lar_error submit(lar_answer *a, uint32_t i, lar_job_ticket *out, lar_diag *d) {
    const lar_prompt *p = &a->prompts.list[i];
    const lar_job_calls calls = {.user = &a->jobs[i],
                                 .on_begin = on_begin,
                                 .on_token = on_token,
                                 .on_sample_end = on_sample_end,
                                 .on_end = on_end};
    lar_job_request r = {.scope = a->from.scope,
                         .tenant = a->from.tenant,
                         .ids = p->ids.ids,
                         .count = (uint32_t)p->ids.count,
                         .answer_max = lar_prompt_answer_max(p, &a->ask),
                         .opening = {.bytes = p->again_bytes,
                                     .ends = p->opening_ends,
                                     .ids = p->opening_ids.ids,
                                     .id_bytes = p->opening_bytes.ids},
                         .samples = a->ask.samples,
                         .sampling = a->ask.sampling,
                         .ends = a->serving->ends,
                         .end_count = a->ask.ignore_eos ? 0 : a->serving->end_count,
                         .mark_count = p->mark_count,
                         .queue_ms_max = a->from.queue_ms_max};
    memcpy(r.marks, p->marks, sizeof r.marks);
    return lar_scheduler_submit(a->scheduler, &r, &calls, out, d);
}

/* Why the scheduler did not take a job. */
static void refuse_job(lar_answer *a, lar_error e, uint32_t retry_ms, const char *detail) {
    if (a->refusal.status) return;
    if (e == LAR_LIMIT || e == LAR_FULL)
        (void)lar_refuse(&a->refusal, a->from.endpoint == LAR_SERVING_CHAT ? "messages" : "prompt", LAR_CODE_CONTEXT,
                         "%s", detail[0] ? detail : "prompt and answer do not fit");
    else fail(a, e, detail);
    a->refusal.retry_ms = retry_ms;
}

/* Submits job i; false: no more are. */
static bool start_job(lar_answer *a, uint32_t i) {
    lar_diag d = {.text = ""};
    lar_job_ticket ticket = {0};
    (void)pthread_mutex_lock(&a->lock);
    bool go = !is_silent(a);
    a->open += go;
    (void)pthread_mutex_unlock(&a->lock);
    if (!go) return false;
    lar_error e = submit(a, i, &ticket, &d);
    (void)pthread_mutex_lock(&a->lock);
    if (e) {
        a->open--;
        refuse_job(a, e, ticket.retry_ms, d.text);
    }
    a->jobs[i].id = ticket.id;
    bool gone = a->cancelled;
    (void)pthread_mutex_unlock(&a->lock);
    if (!e && gone) lar_scheduler_cancel(a->scheduler, ticket.id);
    return !e && !gone;
}

/* What was submitted before another job failed ends, too. */
static void stop_jobs(lar_answer *a, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) lar_scheduler_cancel(a->scheduler, a->jobs[i].id);
}

void lar_answer_start(lar_answer *a, lar_scheduler *scheduler) {
    (void)pthread_mutex_lock(&a->lock);
    LAR_ASSERT(!a->open && !a->scheduler);
    a->open = 1;
    a->scheduler = scheduler;
    bool jobs = a->prompts.count > 0 && !is_silent(a);
    if (!jobs && !is_silent(a)) tell_json(a, 200, 0);
    (void)pthread_mutex_unlock(&a->lock);
    uint32_t i = 0;
    while (jobs && i < a->prompts.count && start_job(a, i)) i++;
    if (jobs && i < a->prompts.count) stop_jobs(a, i);
    leave(a);
}

void lar_answer_cancel(lar_answer *a) {
    lar_job_id ids[LAR_ASK_PROMPTS_MAX] = {0};
    (void)pthread_mutex_lock(&a->lock);
    lar_scheduler *scheduler = a->open ? a->scheduler : NULL;
    bool first = !a->cancelled;
    a->cancelled = true;
    for (uint32_t i = 0; i < a->prompts.count; i++) ids[i] = a->jobs[i].id;
    (void)pthread_mutex_unlock(&a->lock);
    for (uint32_t i = 0; first && scheduler && i < LAR_ASK_PROMPTS_MAX; i++)
        if (ids[i]) lar_scheduler_cancel(scheduler, ids[i]);
}
