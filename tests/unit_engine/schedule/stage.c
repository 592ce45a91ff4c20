/* Rounds by hand, and what a request is answered alone: by the stub's logits and a sampler, without a scheduler. */
#include "tests/unit_engine/schedule/stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/ensure.h"

enum { ROUNDS_MOST = 1000000 };

void stage_open(stage *g) {
    lar_diag d = {0};
    stub_options *e = &g->engine_options;
    lar_scheduler_options *o = &g->options;
    if (!e->pages) e->pages = 64;
    if (!e->pass_tokens) e->pass_tokens = 512;
    if (e->pass_us == 0) e->pass_us = 1000, e->token_us = 100;
    if (!o->sequences_max) o->sequences_max = 4;
    if (!o->queue_max) o->queue_max = 64;
    if (!o->gap_ms) o->gap_ms = 100;
    g->engine = stub_engine_open(e);
    o->engine = g->engine;
    o->now_us = stub_now_us;
    if (lar_scheduler_make(o, &g->scheduler, &d)) fail_msg("%s", d.text);
}

void stage_close(stage *g) {
    g->scheduler->stopping = true;
    (void)lar_scheduler_round(g->scheduler);
    lar_scheduler_release(g->scheduler);
    stub_engine_close(g->engine);
}

void stage_rounds(stage *g, uint32_t rounds) {
    for (uint32_t i = 0; i < rounds && lar_scheduler_round(g->scheduler);) i++;
}

void stage_play(stage *g) {
    stage_rounds(g, ROUNDS_MOST);
    assert_null(g->scheduler->all);
}

void stage_request_make(stage_request *q, uint32_t seed, uint32_t count, uint32_t answer_max) {
    LAR_ASSERT(count <= sizeof q->ids / sizeof *q->ids);
    for (uint32_t i = 0; i < count; i++) q->ids[i] = (seed * 31 + i * 7 + i * i % 13 * seed) % STUB_BAD_ID;
    q->r = (lar_job_request){
        .ids = q->ids, .count = count, .answer_max = answer_max, .samples = 1, .sampling = LAR_SAMPLING_DEFAULT};
    q->r.sampling.seed = seed;
}

lar_error stage_try(stage *g, const stage_request *q, job_ear *ear, lar_diag *d) {
    lar_job_calls calls = job_ear_of(ear);
    lar_job_request r = q->r;
    r.ids = q->ids;
    return lar_scheduler_submit(g->scheduler, &r, &calls, &ear->ticket, d);
}

void stage_submit(stage *g, const stage_request *q, job_ear *ear) {
    lar_diag d = {0};
    if (stage_try(g, q, ear, &d)) fail_msg("%s", d.text);
    assert_true(ear->ticket.id != 0);
}

/* -- alone ------------------------------------------------------------------------------------------------------- */

typedef struct answer {
    uint32_t ids[EAR_TOKENS_MAX], count;
    lar_job_reason reason;
} answer;

static bool ends(const lar_job_request *r, uint32_t id) {
    for (uint32_t i = 0; i < r->end_count; i++)
        if (r->ends[i] == id) return true;
    return false;
}

static void answer_alone(const stage_request *q, uint32_t sample, uint32_t stop_at, answer *a) {
    const lar_job_request *r = &q->r;
    lar_sampling how = r->sampling;
    lar_sampler *p;
    lar_diag d = {0};
    float logits[STUB_VOCAB];
    uint32_t *all = calloc(r->count + EAR_TOKENS_MAX, sizeof *all);
    how.seed += sample;
    memcpy(all, q->ids, r->count * sizeof *all);
    LAR_ASSERT(r->answer_max && r->answer_max <= EAR_TOKENS_MAX && !lar_sampler_new(&how, STUB_VOCAB, &p, &d));
    lar_sampler_see(p, q->ids, r->count);
    *a = (answer){.reason = LAR_JOB_LENGTH};
    while (a->count < r->answer_max) {
        lar_sampled drawn;
        stub_logits(all, r->count + a->count, logits);
        LAR_ASSERT(!lar_sampler_next(p, logits, &drawn, &d));
        if (ends(r, drawn.id)) {
            a->reason = LAR_JOB_STOP;
            break;
        }
        a->ids[a->count] = all[r->count + a->count] = drawn.id;
        a->count++;
        if (stop_at && a->count == stop_at + 1) {
            a->reason = LAR_JOB_ENDED;
            break;
        }
    }
    lar_sampler_free(p);
    free(all);
}

void stage_check_begun(const stage_request *q, const job_ear *ear) {
    answer a;
    for (uint32_t i = 0; i < q->r.samples; i++) {
        answer_alone(q, i, ear->stop_at, &a);
        assert_true(ear->counts[i] <= a.count);
        assert_memory_equal(ear->ids[i], a.ids, ear->counts[i] * sizeof *a.ids);
    }
}

void stage_check_end(const job_ear *ear, lar_error error) {
    if (!ear->ends) fail_msg("not ended");
    if (ear->end.error != error) fail_msg("%s: %s", lar_error_name(ear->end.error), ear->detail);
}

void stage_check_answers(const stage_request *q, const job_ear *ear) {
    answer a;
    stage_check_end(ear, LAR_OK);
    stage_check_begun(q, ear);
    assert_int_equal(ear->end.prompt_tokens, q->r.count);
    for (uint32_t i = 0; i < q->r.samples; i++) {
        answer_alone(q, i, ear->stop_at, &a);
        assert_int_equal(ear->counts[i], a.count);
        assert_true(ear->sample_ended[i]);
        assert_int_equal(ear->reasons[i], a.reason);
    }
}
