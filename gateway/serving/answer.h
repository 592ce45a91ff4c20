/* An answer under way: its parts, inside gateway/serving. */
#ifndef LARDER_GATEWAY_ANSWER_H
#define LARDER_GATEWAY_ANSWER_H

#include <pthread.h>

#include "gateway/serving/ask.h"

enum { LAR_ANSWER_ID_BYTES = 40 };

/* One token whose text is still on its way through lar_output_stream, for logprobs. */
typedef struct lar_told_token {
    uint64_t start; /* in bytes of whole characters */
    lar_sampled sampled;
} lar_told_token;

typedef struct lar_answer_sample lar_answer_sample;

/* What one token's text has come out as, in order; texts lie in `text`. */
typedef struct lar_delta {
    lar_output_kind kind;
    uint32_t index, start, len;
    char id[LAR_OUTPUT_ID_BYTES];
} lar_delta;

struct lar_answer_sample {
    lar_answer *answer;
    uint32_t index; /* of all choices */
    lar_output_stream *output;
    lar_told_token *queue; /* tokens that are not told yet, oldest first; with logprobs only */
    uint32_t queued, queue_cap;
    lar_delta *deltas; /* of the token at hand */
    uint32_t delta_count, delta_cap;
    lar_buf text;                           /* of the deltas */
    lar_buf content, reasoning, calls;      /* not streamed: what there was so far; calls: JSON without brackets */
    lar_buf content_probs, reasoning_probs; /* JSON without brackets; streamed: of the token at hand */
    lar_buf texts, probs, offsets, tops;    /* completions: the columns of logprobs, JSON without brackets */
    uint32_t calls_told, reasoning_tokens;
    uint32_t again;     /* bytes of the tokens to come that the client has: of an answer that goes on */
    uint64_t offset;    /* characters told, for text_offset */
    bool closed;        /* nothing more is told */
    const char *finish; /* NULL: under way */
};

typedef struct lar_answer_job {
    lar_answer *answer;
    uint32_t index; /* of the prompt */
    lar_job_id id;
    bool begun;
    uint32_t cached;
} lar_answer_job;

struct lar_answer {
    const lar_serving *serving;
    lar_answer_sink sink;
    lar_serving_ask from; /* without body and id, which are the caller's */
    lar_ask ask;
    bool resumed;  /* an answer that goes on: ask.h has what was begun, in its one prompt */
    lar_buf names; /* of it: who began and, from `to` on, who goes on */
    size_t to;
    int64_t prompt_told; /* of it: prompt tokens as whoever began counted them; below 0: not known */
    lar_prompts prompts;
    lar_refusal refusal; /* status: 0, or that of the error reply */
    char id[LAR_ANSWER_ID_BYTES];
    uint64_t random;          /* the next id's */
    pthread_mutex_t lock;     /* over all below, and over the sink but for `end` */
    lar_scheduler *scheduler; /* NULL before the start */
    lar_answer_job jobs[LAR_ASK_PROMPTS_MAX];
    lar_answer_sample *samples; /* (prompts, n) */
    uint32_t sample_count;
    uint32_t open; /* jobs that have not ended, and lar_answer_start itself */
    bool cancelled, head_told;
    lar_buf prefix; /* of every chunk: up to the choices */
    lar_buf out;    /* the event or body that is being written */
    lar_answer_end end;
};

/* Writes a new id behind `kind`, at most LAR_ANSWER_ID_BYTES with its NUL. */
void lar_answer_make_id(lar_answer *a, const char *kind, char *out);

/* -- answer_write.c: JSON of chunks and bodies into a->out -------------------------------------------------------- */

/* Appends what every chunk and body has in front of its choices. */
LAR_MUST_USE lar_error lar_answer_write_prefix(lar_answer *a, const lar_serving_begun *begun);
/* Of an answer that goes on, in the place of the role: the chunk that says so. */
LAR_MUST_USE lar_error lar_answer_write_seam(lar_answer *a);
/* A chunk with one choice: the role; a delta (with the logprobs that wait in the sample); the end. */
LAR_MUST_USE lar_error lar_answer_write_role(lar_answer *a, const lar_answer_sample *s);
LAR_MUST_USE lar_error lar_answer_write_delta(lar_answer *a, lar_answer_sample *s, const lar_delta *d);
LAR_MUST_USE lar_error lar_answer_write_finish(lar_answer *a, const lar_answer_sample *s);
/* The chunk with the usage. */
LAR_MUST_USE lar_error lar_answer_write_usage(lar_answer *a);
LAR_MUST_USE lar_error lar_answer_write_body(lar_answer *a);
/* One entry of logprobs, with a comma in front unless it is the first. */
LAR_MUST_USE lar_error lar_answer_write_probs(const lar_answer *a, const lar_sampled *t, lar_buf *out);
LAR_MUST_USE lar_error lar_answer_write_columns(const lar_answer *a, lar_answer_sample *s, const lar_sampled *t);

/* -- answer_sample.c: tokens to deltas ----------------------------------------------------------------------------- */

LAR_MUST_USE lar_error lar_answer_sample_init(lar_answer *a, uint32_t index, lar_diag *d);
void lar_answer_sample_release(lar_answer_sample *s);
/* Adds a token: s->deltas and the waiting logprobs are what it has brought out. *more: lar_job_calls.on_token's. */
LAR_MUST_USE lar_error lar_answer_sample_token(lar_answer_sample *s, const lar_sampled *t, bool *more);
/* The end of its text: likewise, and s->finish is set. */
LAR_MUST_USE lar_error lar_answer_sample_finish(lar_answer_sample *s, lar_job_reason why);
/* Not streamed: the deltas and logprobs join what there was. */
LAR_MUST_USE lar_error lar_answer_sample_keep(lar_answer_sample *s);

#endif
