/* The inside of the scheduler, for its own files and for tests that do rounds themselves and pass in the time. */
#ifndef LARDER_ENGINE_SCHEDULE_SCHEDULER_CORE_H
#define LARDER_ENGINE_SCHEDULE_SCHEDULER_CORE_H

#include <pthread.h>

#include "engine/schedule/job.h"
#include "engine/schedule/step_pieces.h"

enum {
    LAR_ROUND_IDLE_BUDGET_US = 1000000, /* of pieces while nobody decodes: how soon a cancel or a newcomer is seen */
    LAR_RETRY_MS_MIN = 100,             /* what a refused client is told */
    LAR_RETRY_MS_MAX = 60000,
};

/* One part of a step: which sample it is for. */
typedef struct lar_step_part {
    lar_job *job;
    lar_job_sample *sample;
    int32_t row; /* of the logits; -1: none */
} lar_step_part;

/* The token that was drawn for a part's sample. */
typedef struct lar_step_drawn {
    lar_sampled sampled;
    lar_error error; /* of lar_sampler_next, with */
    lar_diag detail;
} lar_step_drawn;

struct lar_scheduler {
    lar_scheduler_options o; /* with every default filled in */
    lar_job_limits limits;
    uint32_t pass_tokens;
    pthread_t thread;

    pthread_mutex_t lock; /* guards from here */
    pthread_cond_t changed;
    bool news, stopping;
    lar_job *all;                      /* jobs that are not ended, through before and after */
    lar_job *incoming, *incoming_last; /* of these, those that the thread has not seen, through next */
    uint32_t waiting;                  /* jobs in state QUEUED */
    lar_job_id last_id;
    uint64_t refused;
    lar_scheduler_counts seen; /* what the thread counted, at the end of its last round */
    uint32_t retry_ms;         /* to here */

    /* The thread's own. */
    lar_fair_queue *queue;
    lar_job **begun; /* (sequences_max): in states PREFILL, DECODE, PREEMPTED; in the order of their first start */
    uint32_t begun_count;
    lar_job_id blocked; /* the job for which there were too few pages last; tried again when */
    bool released;      /* pages were given back since */
    lar_pass_time pass_time;
    lar_engine_part *parts;    /* (sequences_max): of the step, with */
    lar_step_part *part_jobs;  /* (sequences_max), and */
    uint32_t *part_wanted;     /* (sequences_max): each part's last token */
    lar_step_drawn *drawn;     /* (sequences_max): by part, where it has logits and its job decodes */
    lar_piece *pieces;         /* (sequences_max) */
    lar_step_part *piece_jobs; /* (sequences_max) */
    float *logits;             /* (sequences_max, vocab) */
    lar_scheduler_counts counts;
    uint64_t recent_us, recent_ended; /* of steps, and jobs that ended after they had begun; halved now and then */
};

/* Everything but the thread; lar_scheduler_open's errors. */
LAR_MUST_USE lar_error lar_scheduler_make(const lar_scheduler_options *o, lar_scheduler **out, lar_diag *d);
/* With all jobs ended. */
void lar_scheduler_release(lar_scheduler *s);
/* Ends what is to end, starts what fits, computes one step, tells what came of it. False: there is nothing to do
 * until a job comes. */
bool lar_scheduler_round(lar_scheduler *s);
uint64_t lar_scheduler_now(const lar_scheduler *s);

/* scheduler_admit.c */
/* Starts preempted jobs again, the oldest first, and then waiting ones, while there are sequences and pages. */
void lar_scheduler_admit(lar_scheduler *s, uint64_t now_us);
/* Before a piece of a job's prompt is computed: what is kept of it by now, from the page store some at a time. True: it
 * was something, and there may be more. */
bool lar_scheduler_take_over(lar_scheduler *s, lar_job *j);
/* Room for `tokens` more of a sample's sequence, from younger jobs if it must be. False: the job is preempted. */
bool lar_scheduler_make_room(lar_scheduler *s, lar_job *j, lar_job_sample *sample, uint32_t tokens);
/* The job's prompt is in the first live sample's sequence: one for each other that is live. False: preempted, or to end
 * with j->error. */
bool lar_scheduler_fork(lar_scheduler *s, lar_job *j);

/* scheduler_answer.c */
/* Tells what a step brought: draws tokens, forks behind prompts, ends answers. */
void lar_scheduler_deliver(lar_scheduler *s, uint32_t parts, uint64_t now_us);
/* The last call, and the end of the job: wherever it is. */
void lar_scheduler_end(lar_scheduler *s, lar_job *j, uint64_t now_us);

#endif
