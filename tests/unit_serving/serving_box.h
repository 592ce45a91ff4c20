/* A served model without a model: a small tokenizer, a template, a scheduler that only writes down what it is asked,
 * and a sink that keeps what it is told. Tests play the scheduler's callbacks by hand. */
#ifndef LARDER_TESTS_SERVING_BOX_H
#define LARDER_TESTS_SERVING_BOX_H

#include "gateway/serving/answer.h"

/* Ids behind the 256 bytes; words that tests use as tokens come after them. */
enum {
    BOX_BOS = 256,
    BOX_EOS,
    BOX_USER,
    BOX_ASSISTANT,
    BOX_THINK,
    BOX_THINK_END,
    BOX_CALLS_BEGIN,
    BOX_CALLS_END,
    BOX_CALL_BEGIN,
    BOX_CALL_END,
    BOX_SEPARATOR,
    BOX_WORDS,
    BOX_VOCAB = 320,
    BOX_JOBS_MAX = LAR_ASK_PROMPTS_MAX,
};

/* <s>{system}<U>{user}<A>{assistant}</s>, tools behind the system text, a switch for thinking. */
extern const char box_template[];

typedef struct box_options {
    const char *chat; /* NULL: box_template; "": none */
    lar_output_format calls;
    uint32_t context; /* 0: 1000 */
    uint32_t call_tokens_max, samples_max, prompts_max;
    bool no_bos;      /* the tokenizer puts nothing in front */
    bool no_thinking; /* no marks of reasoning in the vocabulary */
    bool any_model;
} box_options;

/* Served as "tiny", fingerprint "fp_1". Aborts where it cannot be made. */
lar_serving *box_serving(const box_options *o);

/* What the scheduler was asked for. */
typedef struct box_job {
    lar_job_request request; /* ids, ends and biases are copies, owned by the box */
    uint32_t *ids, ends[32];
    lar_job_calls calls;
    bool cancelled, ended;
    uint32_t told[LAR_JOB_SAMPLES_MAX]; /* tokens, by sample */
} box_job;

typedef struct box_scheduler {
    box_job jobs[BOX_JOBS_MAX];
    uint32_t count;
    lar_error refuses; /* what the next submission ends with, from job `refuses_at` on */
    uint32_t refuses_at, retry_ms;
    const char *why;
} box_scheduler;
/* The one that all answers use. Emptied by box_clear. */
extern box_scheduler box_jobs;

/* What a client sees. */
typedef struct box_client {
    lar_answer *answer;
    uint32_t heads, events, ends;
    lar_answer_head head;
    lar_answer_end end;
    lar_buf body;
} box_client;

/* Makes and starts an answer, with random 7, now 1700000000. */
void box_ask(const lar_serving *s, lar_serving_endpoint endpoint, const char *body, box_client *out);
/* The same for bytes, without the start. */
void box_prepare(const lar_serving *s, const lar_serving_ask *ask, box_client *out);
/* Frees the answer and what was kept, and forgets the scheduler's jobs. */
void box_clear(box_client *c);
/* The body as a string. */
const char *box_body(box_client *c);

/* Callbacks of job `job`. A text that is a token is told as one, others byte by byte. False: "no more" was answered. */
void box_begin(uint32_t job, uint32_t cached);
bool box_tell(uint32_t job, uint32_t sample, const char *text);
bool box_tell_id(uint32_t job, uint32_t sample, uint32_t id);
void box_sample_end(uint32_t job, uint32_t sample, lar_job_reason why);
void box_end(uint32_t job, lar_error error);
/* A whole answer of one job with one sample: texts, ended by NULL. Stops where it is told to. */
void box_play(const char *const *texts, lar_job_reason why);

#endif
