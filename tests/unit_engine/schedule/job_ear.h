/* What a job's callbacks said, held against the order in which they may come. */
#ifndef LARDER_TESTS_JOB_EAR_H
#define LARDER_TESTS_JOB_EAR_H

#include <stdatomic.h>

#include "engine/schedule/scheduler.h"

enum { EAR_TOKENS_MAX = 512, EAR_DETAIL_BYTES = 200 };

typedef struct job_ear {
    lar_job_ticket ticket;
    uint32_t ids[LAR_JOB_SAMPLES_MAX][EAR_TOKENS_MAX];
    float logprobs[LAR_JOB_SAMPLES_MAX][EAR_TOKENS_MAX];
    uint32_t counts[LAR_JOB_SAMPLES_MAX];
    bool sample_ended[LAR_JOB_SAMPLES_MAX];
    lar_job_reason reasons[LAR_JOB_SAMPLES_MAX];
    uint32_t begins;
    lar_job_begin begin;
    atomic_uint ends;
    lar_job_end end; /* its detail is: */
    char detail[EAR_DETAIL_BYTES];
    uint32_t stop_at;                      /* on_token says no at this index; 0: never */
    void (*on_token)(struct job_ear *ear); /* after a token was noted; NULL: nothing */
    void *context;
} job_ear;

lar_job_calls job_ear_of(job_ear *ear);

#endif
