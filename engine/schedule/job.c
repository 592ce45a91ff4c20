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

static lar_error check_opening(const lar_job_request *r, uint32_t vocab, lar_diag *d) {
    const lar_job_opening *o = &r->opening;
    if (o->bytes > LAR_JOB_OPENING_BYTES_MAX) return lar_fail(LAR_INVALID, d, "an opening of %u bytes", o->bytes);
    for (uint32_t row = 0, i = 0; row < o->bytes; row++) {
        if (o->ends[row] <= i) return lar_fail(LAR_INVALID, d, "an opening without a token at byte %u", row);
        for (; i < o->ends[row]; i++) {
            bool ends = false;
            for (uint32_t n = 0; n < r->end_count; n++) ends = ends || r->ends[n] == o->ids[i];
            if (ends || !o->id_bytes[i]) return lar_fail(LAR_INVALID, d, "token %u in an opening", o->ids[i]);
        }
    }
    return check_ids(o->ids, o->bytes ? o->ends[o->bytes - 1] : 0, vocab, d);
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
    if (!e) e = check_opening(r, l->vocab, d);
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

/* To *at, which moves behind it. */
static const uint32_t *copy(uint32_t **at, const uint32_t *from, size_t bytes) {
    uint32_t *to = *at;
    if (bytes) memcpy(to, from, bytes);
    *at += bytes / sizeof *to;
    return to;
}

lar_job *lar_job_new(const lar_job_request *r, const lar_job_calls *calls, uint32_t answer_max) {
    size_t ids = r->count * sizeof *r->ids, ends = r->end_count * sizeof *r->ends;
    size_t biases = r->sampling.bias_count * sizeof *r->sampling.biases, rows = r->opening.bytes * sizeof(uint32_t);
    size_t opening = rows ? r->opening.ends[r->opening.bytes - 1] * sizeof(uint32_t) : 0;
    lar_job *j = calloc(1, sizeof *j + biases + ids + ends + rows + 2 * opening);
    if (!j) return NULL;
    lar_logit_bias *bias_copy = (lar_logit_bias *)(void *)(j + 1);
    if (biases) memcpy(bias_copy, r->sampling.biases, biases);
    uint32_t *at = (uint32_t *)(void *)(bias_copy + r->sampling.bias_count);
    j->state = LAR_JOB_QUEUED;
    j->request = *r;
    j->request.ids = copy(&at, r->ids, ids);
    j->request.ends = copy(&at, r->ends, ends);
    j->request.opening.ends = copy(&at, r->opening.ends, rows);
    j->request.opening.ids = copy(&at, r->opening.ids, opening);
    j->request.opening.id_bytes = copy(&at, r->opening.id_bytes, opening);
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

const uint32_t *lar_job_may_follow(const lar_job *j, const lar_job_sample *s, uint32_t *count) {
    const lar_job_opening *o = &j->request.opening;
    *count = 0;
    if (s->opened >= o->bytes) return NULL;
    uint32_t start = s->opened ? o->ends[s->opened - 1] : 0;
    *count = o->ends[s->opened] - start;
    return o->ids + start;
}

void lar_job_opened(const lar_job *j, lar_job_sample *s, uint32_t id) {
    uint32_t count;
    const uint32_t *ids = lar_job_may_follow(j, s, &count);
    if (!count) return;
    uint32_t i = 0;
    while (i < count && ids[i] != id) i++;
    LAR_ASSERT(i < count);
    s->opened += j->request.opening.id_bytes[(ids - j->request.opening.ids) + i];
}
