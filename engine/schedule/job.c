/* Jobs: checked, copied, moved from state to state.
 * lar_job_check and lar_job_new are called by any thread, everything else by the scheduler's.
 * Memory: one block for the job with its copies, when it is queued; samplers and tokens of answers, when it is first
 * computed, so that who waits takes little. */
#include "engine/schedule/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define TO(name) (1u << LAR_JOB_##name)
static const uint32_t moves[] = {
#define LAR_JOB_STATE(name, next) next,
#include "engine/schedule/job_state.def"
#undef LAR_JOB_STATE
};

void lar_job_move(lar_job *j, lar_job_state to) {
    LAR_ASSERT(moves[j->state] & 1u << to);
    j->state = to;
}

/* -- checks ------------------------------------------------------------------------------------------------------ */

static lar_error check_ids(const uint32_t *ids, uint32_t count, uint32_t vocab, lar_diag *d) {
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return lar_fail(LAR_INVALID, d, "token id %u; the vocabulary ends at %u", ids[i], vocab - 1);
    return LAR_OK;
}

static lar_error check_form(const lar_job_request *r, const lar_job_limits *l, lar_diag *d) {
    if (!r->count) return lar_fail(LAR_INVALID, d, "an empty prompt");
    if (!r->samples || r->samples > LAR_JOB_SAMPLES_MAX)
        return lar_fail(LAR_INVALID, d, "%u answers; choose 1 to %d", r->samples, LAR_JOB_SAMPLES_MAX);
    if (r->samples > l->samples)
        return lar_fail(LAR_INVALID, d, "%u answers; at most %u sequences are computed at once", r->samples,
                        l->samples);
    if (r->mark_count > LAR_JOB_MARKS_MAX)
        return lar_fail(LAR_INVALID, d, "%u marks; at most %d", r->mark_count, LAR_JOB_MARKS_MAX);
    for (uint32_t i = 0; i < r->mark_count; i++)
        if (r->marks[i] > r->count)
            return lar_fail(LAR_INVALID, d, "a mark at token %u; the prompt has %u", r->marks[i], r->count);
    lar_error e = check_ids(r->ids, r->count, l->vocab, d);
    if (!e) e = check_ids(r->ends, r->end_count, l->vocab, d);
    return e ? e : lar_sampling_check(&r->sampling, l->vocab, d);
}

/* Whole pages of the prompt are shared by all samples; each has pages of its own behind them. */
static uint64_t most_answer(const lar_job_request *r, uint32_t pages) {
    uint32_t shared = r->count / LAR_PAGE_TOKENS;
    if (pages <= shared) return 0;
    uint64_t own = (uint64_t)((pages - shared) / r->samples) * LAR_PAGE_TOKENS;
    return own > r->count % LAR_PAGE_TOKENS ? own - r->count % LAR_PAGE_TOKENS : 0;
}

lar_error lar_job_check(const lar_job_request *r, const lar_job_limits *l, uint32_t *answer_max, lar_diag *d) {
    lar_error e = check_form(r, l, d);
    if (e) return e;
    uint32_t least = r->answer_max ? r->answer_max : 1;
    if ((uint64_t)r->count + least > l->context)
        return lar_fail(LAR_LIMIT, d, "%u tokens of prompt and %u of answer; a sequence can have %u", r->count, least,
                        l->context);
    uint64_t most = most_answer(r, l->pages);
    if (most < least)
        return lar_fail(LAR_FULL, d,
                        "%u tokens of prompt and %u of each of %u answers take more pages than there are (%u of %d "
                        "tokens)",
                        r->count, least, r->samples, l->pages, LAR_PAGE_TOKENS);
    if (most > l->context - r->count) most = l->context - r->count;
    *answer_max = r->answer_max ? r->answer_max : (uint32_t)most;
    return LAR_OK;
}

/* -- life -------------------------------------------------------------------------------------------------------- */

lar_job *lar_job_new(const lar_job_request *r, const lar_job_calls *calls, uint32_t answer_max) {
    size_t ids = r->count * sizeof *r->ids, ends = r->end_count * sizeof *r->ends;
    size_t biases = r->sampling.bias_count * sizeof *r->sampling.biases;
    lar_job *j = calloc(1, sizeof *j + biases + ids + ends);
    if (!j) return NULL;
    lar_logit_bias *bias_copy = (lar_logit_bias *)(void *)(j + 1);
    uint32_t *id_copy = (uint32_t *)(void *)(bias_copy + r->sampling.bias_count), *end_copy = id_copy + r->count;
    if (biases) memcpy(bias_copy, r->sampling.biases, biases);
    memcpy(id_copy, r->ids, ids);
    if (ends) memcpy(end_copy, r->ends, ends);
    j->state = LAR_JOB_QUEUED;
    j->request = *r;
    j->request.ids = id_copy;
    j->request.ends = end_copy;
    j->request.sampling.biases = bias_copy;
    j->calls = *calls;
    j->answer_max = answer_max;
    j->entry.tenant = r->tenant;
    return j;
}

void lar_job_drop_sequences(lar_job *j) {
    for (uint32_t i = 0; i < j->request.samples; i++) {
        lar_job_sample *s = &j->samples[i];
        lar_sequence_free(s->sequence);
        s->sequence = NULL;
        s->pages_kept = 0;
        s->told_us = 0;
    }
}

void lar_job_free(lar_job *j) {
    if (!j) return;
    lar_job_drop_sequences(j);
    for (uint32_t i = 0; i < j->request.samples; i++) {
        lar_sampler_free(j->samples[i].sampler);
        free(j->samples[i].tokens);
    }
    free(j);
}

lar_error lar_job_prepare(lar_job *j, uint32_t vocab, lar_diag *d) {
    const lar_job_request *r = &j->request;
    for (uint32_t i = 0; i < r->samples; i++) {
        lar_job_sample *s = &j->samples[i];
        lar_sampling how = r->sampling;
        how.seed += i;
        s->tokens = malloc(((size_t)r->count + j->answer_max) * sizeof *s->tokens);
        if (!s->tokens || lar_sampler_new(&how, vocab, &s->sampler, d))
            return lar_fail(LAR_NO_MEMORY, d, "no memory for %u answers", r->samples);
        memcpy(s->tokens, r->ids, r->count * sizeof *s->tokens);
        s->count = r->count;
        lar_sampler_see(s->sampler, r->ids, r->count);
    }
    return LAR_OK;
}

uint32_t lar_job_live(const lar_job *j) {
    uint32_t live = 0;
    for (uint32_t i = 0; i < j->request.samples; i++) live += !j->samples[i].ended;
    return live;
}

lar_job_sample *lar_job_first(lar_job *j) {
    lar_job_sample *s = j->samples;
    while (s->ended) s++;
    LAR_ASSERT(s < j->samples + j->request.samples);
    return s;
}

bool lar_job_ends_with(const lar_job *j, uint32_t id) {
    for (uint32_t i = 0; i < j->request.end_count; i++)
        if (j->request.ends[i] == id) return true;
    return false;
}
