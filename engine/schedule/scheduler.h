/* Many answers from one engine at once: continuous batching with chunked prefill in a fixed number of pages.
 *
 * Each step takes one token of every sequence that is decoding and pieces of prompts that take no longer than gap_ms by
 * what was learned from earlier steps (Sarathi-Serve, arXiv 2403.02310): so a long prompt delays nobody's next token by
 * more. The next request is taken from the tenant that was served least (by tokens), within a tenant in order.
 * Prompts of one scope with a beginning in common are computed once, also where they come together: the younger ones
 * wait for each page of it and take it over.
 * What is in a step never changes what is computed: the same request with the same seed has the same text, alone or in
 * company, from a cold cache or a warm one, preempted or not.
 * Pages: a request that could never fit is refused at once; one that does not fit now waits; where pages run out under
 * way the youngest request is taken back, keeps what was said, and is computed again later. The oldest always goes on.
 * Threads: lar_scheduler_* may be called by any thread; callbacks come from the scheduler's own, one at a time, may
 * submit and cancel, and must not block or call lar_scheduler_close. */
#ifndef LARDER_ENGINE_SCHEDULE_SCHEDULER_H
#define LARDER_ENGINE_SCHEDULE_SCHEDULER_H

#include "base/digest.h"
#include "engine/engine.h"

typedef struct lar_scheduler lar_scheduler;
typedef uint64_t lar_job_id; /* of a request under way; never used again, never 0 */

enum { LAR_JOB_SAMPLES_MAX = 16, LAR_JOB_MARKS_MAX = 4 };

typedef struct lar_scheduler_options {
    lar_engine *engine;     /* borrowed until close; nobody else uses it meanwhile */
    uint32_t sequences_max; /* decoding or in prefill at once */
    uint32_t context_max;   /* tokens of one sequence, prompt and answer; 0: the model's, or what all pages hold */
    uint32_t queue_max;     /* waiting requests, at least 1; over it BUSY */
    uint32_t queue_ms_max;  /* longest wait before the first piece of the prompt; 0: no limit */
    uint32_t gap_ms;        /* between two tokens of one sequence, that prompts of others may cost */
    uint32_t pin_ms;        /* how long marked prefixes stay, if anything can run meanwhile; 0: as any other */
    int niceness;           /* of the engine's threads: 0 to 19 */
    uint64_t (*now_us)(void *context); /* any thread, by the engine's clock; NULL: the monotonic clock */
    void *context;
} lar_scheduler_options;

/* Starts the scheduler's thread. INVALID: an option out of range, or an engine without page_bytes; NO_MEMORY, IO. */
LAR_MUST_USE lar_error lar_scheduler_open(const lar_scheduler_options *o, lar_scheduler **out, lar_diag *d);
/* Ends every job with SHUTDOWN, waits for the thread, frees. NULL: nothing happens. */
void lar_scheduler_close(lar_scheduler *s);

typedef struct lar_job_begin {
    uint32_t cached_tokens; /* of the prompt, that were not computed */
    uint64_t queued_us;
} lar_job_begin;

typedef struct lar_job_token {
    uint32_t sample; /* 0 to samples - 1 */
    uint32_t index;  /* of this answer's tokens, from 0 */
    const lar_sampled *sampled;
} lar_job_token;

typedef enum lar_job_reason {
    LAR_JOB_STOP,   /* one of the ending tokens, which is not told */
    LAR_JOB_LENGTH, /* answer_max tokens, or the context is full */
    LAR_JOB_ENDED,  /* on_token said so */
} lar_job_reason;

typedef struct lar_job_end {
    lar_error error;    /* OK; BUSY (waited too long); CLIENT_GONE (cancelled); SHUTDOWN; INVALID (a logit that is no
                        number); NO_MEMORY; or the engine's, of a step in which the job was (IO) */
    const char *detail; /* never NULL; valid in on_end only */
    uint32_t prompt_tokens, cached_tokens, answer_tokens; /* answer: told, of all samples together */
    uint32_t preempted;
    uint64_t queued_us, prefill_us, decode_us;
} lar_job_end;

/* All of them are set. */
typedef struct lar_job_calls {
    void *user;
    void (*on_begin)(void *user, const lar_job_begin *b); /* the prompt is done; first tokens follow */
    /* False: this sample ends (a stop string was met); on_sample_end follows. */
    bool (*on_token)(void *user, const lar_job_token *t);
    void (*on_sample_end)(void *user, uint32_t sample, lar_job_reason why);
    void (*on_end)(void *user, const lar_job_end *e); /* the last call; the job is gone when it returns. Once, always */
} lar_job_calls;

enum { LAR_JOB_OPENING_BYTES_MAX = 64 };

/* Bytes that every answer begins with, whatever tokens the model makes of them: where it has `n` of them, the next
 * token is one of row n, which are those that begin with the rest of the bytes, or that the rest begins with. */
typedef struct lar_job_opening {
    uint32_t bytes;                 /* to LAR_JOB_OPENING_BYTES_MAX; 0: an answer begins as it likes */
    const uint32_t *ends;           /* (bytes): where each row ends; none is empty */
    const uint32_t *ids, *id_bytes; /* the rows, one behind the other; how many bytes each token has, at least 1 */
} lar_job_opening;

typedef struct lar_job_request {
    lar_digest scope;    /* prefixes are shared within it only */
    uint64_t tenant;     /* fairness is between these */
    const uint32_t *ids; /* the prompt, at least one; copied */
    uint32_t count;
    uint32_t answer_max;   /* tokens of each sample; 0: as many as fit */
    uint32_t samples;      /* 1 to LAR_JOB_SAMPLES_MAX; sample i is drawn with seed + i */
    lar_sampling sampling; /* biases are copied */
    const uint32_t *ends;  /* ids that end an answer; copied */
    uint32_t end_count;
    lar_job_opening opening;           /* copied */
    uint32_t marks[LAR_JOB_MARKS_MAX]; /* lengths of prefixes worth keeping, in tokens */
    uint32_t mark_count;
    uint32_t queue_ms_max; /* 0: the scheduler's */
} lar_job_request;

/* What becomes of a request. */
typedef struct lar_job_ticket {
    lar_job_id id;     /* 0 after an error */
    uint32_t retry_ms; /* after BUSY: when the queue may have room, by how long jobs took lately; else 0 */
} lar_job_ticket;

/* Queues a job. LIMIT: prompt and answer are more tokens than one sequence can have (`d` with both numbers); FULL: more
 * pages than there are at all; BUSY: the queue is full; SHUTDOWN; INVALID: sampling values, an id outside the
 * vocabulary, an opening with an end in it, a mark behind the prompt, more samples than sequences_max; NO_MEMORY. After
 * an error no callback comes. *out is written before the first callback, which may come before this returns. */
LAR_MUST_USE lar_error lar_scheduler_submit(lar_scheduler *s, const lar_job_request *r, const lar_job_calls *calls,
                                            lar_job_ticket *out, lar_diag *d);
/* Ends a job within one step, wherever it is; on_end comes with CLIENT_GONE, unless it came already: an id that is not
 * known any more is ignored. */
void lar_scheduler_cancel(lar_scheduler *s, lar_job_id job);

typedef struct lar_scheduler_counts {
    uint32_t waiting, prefilling, decoding; /* jobs now; one that was preempted is none of them until it goes on */
    uint64_t jobs, prompt_tokens, cached_tokens, answer_tokens, preempted, refused, cancelled;
    uint64_t steps, step_us; /* in all; the engine's time */
    uint64_t gap_us_max;     /* the longest gap between two tokens of a decoding sequence so far */
    lar_page_counts pages;
    lar_prefix_counts prefixes;
} lar_scheduler_counts;
/* Any thread. As of the end of the last step, but waiting and refused, which are of now: so that pages and jobs fit. */
lar_scheduler_counts lar_scheduler_counts_of(const lar_scheduler *s);

#endif
