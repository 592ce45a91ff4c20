/* A request under way: its own copy of what was asked for, its answers so far, its state. */
#ifndef LARDER_ENGINE_SCHEDULE_JOB_H
#define LARDER_ENGINE_SCHEDULE_JOB_H

#include "engine/schedule/fair_queue.h"
#include "engine/schedule/scheduler.h"

typedef enum lar_job_state {
#define LAR_JOB_STATE(name, next) LAR_JOB_##name,
#include "engine/schedule/job_state.def"
#undef LAR_JOB_STATE
    LAR_JOB_STATES
} lar_job_state;

/* One answer. */
typedef struct lar_job_sample {
    lar_sequence *sequence; /* of tokens [0, its length); NULL: preempted, ended, or not forked yet */
    lar_sampler *sampler;
    uint32_t *tokens; /* (prompt + answer_max), of which `count` are known: the prompt and what was told */
    uint32_t count;
    uint32_t opened;     /* bytes of the opening that it has */
    uint32_t pages_kept; /* whole pages that lar_sequence_keep was told of */
    bool ended;
    uint64_t told_us; /* when its last token was; 0: none since it was last computed */
} lar_job_sample;

typedef struct lar_job {
    lar_fair_entry entry;           /* order is the job's id */
    struct lar_job *before, *after; /* of all that are not ended; guarded by the scheduler's lock, as is: */
    bool cancelled;
    struct lar_job *next; /* in the list of new ones, or of those that end now */
    lar_job_state state;
    lar_job_request request; /* ids, biases, ends and the opening are behind this struct */
    lar_job_calls calls;
    uint32_t answer_max; /* tokens of each answer, at least 1 */
    lar_job_sample samples[LAR_JOB_SAMPLES_MAX];
    uint32_t prompt_cached, prompt_reached; /* when it was first computed: where that began, and how far it came */
    uint32_t prefill_end;                   /* PREFILL: how long the sequence of the first answer is to become */
    uint32_t answer_tokens, preempted;
    bool begun;                                  /* on_begin was called */
    uint64_t submitted_us, started_us, begun_us; /* queued; first prefill; on_begin. 0: not yet */
    lar_error error;                             /* what it ends with, once that is known */
    lar_diag detail;
} lar_job;

/* What a request is checked against: of the model and the pages. */
typedef struct lar_job_limits {
    uint32_t vocab, context, pages, samples;
} lar_job_limits;

/* The errors of lar_scheduler_submit that are the request's own; *answer_max: tokens that each sample can have. */
LAR_MUST_USE lar_error lar_job_check(const lar_job_request *r, const lar_job_limits *l, uint32_t *answer_max,
                                     lar_diag *d);
/* In state QUEUED, with copies of all that the request points to. NULL: no memory. */
lar_job *lar_job_new(const lar_job_request *r, const lar_job_calls *calls, uint32_t answer_max);
void lar_job_free(lar_job *j); /* its sequences too; NULL: nothing happens */

/* Legal moves only: job_state.def. */
void lar_job_move(lar_job *j, lar_job_state to);
/* Samplers and room for the tokens of all samples. NO_MEMORY. */
LAR_MUST_USE lar_error lar_job_prepare(lar_job *j, uint32_t vocab, lar_diag *d);
/* Samples that have not ended. */
uint32_t lar_job_live(const lar_job *j);
/* The first of them; there must be one. */
lar_job_sample *lar_job_first(lar_job *j);
bool lar_job_ends_with(const lar_job *j, uint32_t id);
/* The tokens that may come next, where the sample's opening is not complete; *count 0: all. */
const uint32_t *lar_job_may_follow(const lar_job *j, const lar_job_sample *s, uint32_t *count);
/* A token came, one that could follow. */
void lar_job_opened(const lar_job *j, lar_job_sample *s, uint32_t id);
/* Lets go of all sequences. */
void lar_job_drop_sequences(lar_job *j);

#endif
