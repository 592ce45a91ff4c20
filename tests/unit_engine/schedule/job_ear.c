/* Callbacks that note and check. They abort instead of failing: a scheduler's thread is not a test's. */
#include "tests/unit_engine/schedule/job_ear.h"

#include <stdio.h>

#include "base/ensure.h"

static void on_begin(void *user, const lar_job_begin *b) {
    job_ear *e = user;
    LAR_ASSERT(!e->begins && !e->ends);
    e->begins++;
    e->begin = *b;
}

static bool on_token(void *user, const lar_job_token *t) {
    job_ear *e = user;
    LAR_ASSERT(e->begins && !e->ends && t->sample < LAR_JOB_SAMPLES_MAX && !e->sample_ended[t->sample]);
    LAR_ASSERT(t->index == e->counts[t->sample] && t->index < EAR_TOKENS_MAX);
    e->ids[t->sample][t->index] = t->sampled->id;
    e->logprobs[t->sample][t->index] = t->sampled->logprob;
    e->counts[t->sample]++;
    if (e->on_token) e->on_token(e);
    return !e->stop_at || t->index != e->stop_at;
}

static void on_sample_end(void *user, uint32_t sample, lar_job_reason why) {
    job_ear *e = user;
    LAR_ASSERT(e->begins && !e->ends && !e->sample_ended[sample]);
    e->sample_ended[sample] = true;
    e->reasons[sample] = why;
}

static void on_end(void *user, const lar_job_end *end) {
    job_ear *e = user;
    LAR_ASSERT(!e->ends && end->detail);
    uint32_t told = 0;
    for (uint32_t i = 0; i < LAR_JOB_SAMPLES_MAX; i++) told += e->counts[i];
    LAR_ASSERT(told == end->answer_tokens);
    e->end = *end;
    (void)snprintf(e->detail, sizeof e->detail, "%s", end->detail);
    e->end.detail = e->detail;
    atomic_store(&e->ends, 1);
}

lar_job_calls job_ear_of(job_ear *ear) {
    return (lar_job_calls){
        .user = ear, .on_begin = on_begin, .on_token = on_token, .on_sample_end = on_sample_end, .on_end = on_end};
}
