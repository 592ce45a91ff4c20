/* Answers of a model on this machine in the form of OpenAI's API: from a request's body to jobs of the engine's
 * scheduler, and from a job's tokens to the bytes of the reply. It knows no sockets, no loops and no HTTP fields.
 *
 *     lar_answer_new(serving, &ask, &sink, &answer);    a worker thread: parses, renders, tokenises
 *     lar_answer_start(answer, scheduler);              any thread, once; returns at once
 *     sink.head, sink.bytes ..., sink.end               mostly the scheduler's thread, one at a time
 *     lar_answer_free(answer);                          after sink.end
 *
 * Every request has an answer: one that is refused has an error object of OpenAI's form and its status, and endpoints
 * that need no tokens from the model (models, tokenize, detokenize) answer when they are started. Which fields of a
 * request are taken, ignored or refused: docs/engine-api.md. Texts of requests and answers are never logged. */
#ifndef LARDER_GATEWAY_SERVING_H
#define LARDER_GATEWAY_SERVING_H

#include "engine/schedule/scheduler.h"
#include "gateway/serving/begun.h"

/* -- a model, as it is served -------------------------------------------------------------------------------------- */

typedef struct lar_serving lar_serving; /* immutable once made: any thread, any number at once */

typedef struct lar_serving_options {
    lar_engine_text *text;   /* emptied and taken over, also after an error */
    const char *model;       /* the name it is served by; copied */
    const char *fingerprint; /* system_fingerprint: says what computes (files, format of the cache, version); copied */
    bool any_model;          /* whatever model a request names is this one: the caller's routes have chosen it */
    uint32_t vocab;          /* of the engine: ids below it are valid */
    uint32_t context;        /* tokens of one sequence, prompt and answer: the scheduler's */
    uint32_t samples_max;    /* answers to one request: the scheduler's sequences_max; 0: LAR_JOB_SAMPLES_MAX */
    uint32_t prompts_max;    /* in one request: what waits at once, the scheduler's queue_max; 0: as many as are read */
    uint32_t call_tokens_max; /* of one block of calls of tools; over it the answer ends with "length". 0: no limit */
    int64_t created;          /* seconds since 1970, what /v1/models says */
} lar_serving_options;

/* INVALID (a name or fingerprint that is no UTF-8 or empty), NO_MEMORY. */
LAR_MUST_USE lar_error lar_serving_new(const lar_serving_options *o, lar_serving **out, lar_diag *d);
/* After all of its answers are freed. NULL: nothing happens. */
void lar_serving_free(lar_serving *s);

typedef enum lar_serving_endpoint {
    LAR_SERVING_CHAT,        /* POST /v1/chat/completions */
    LAR_SERVING_COMPLETIONS, /* POST /v1/completions */
    LAR_SERVING_TOKENIZE,    /* POST /tokenize, as vLLM's */
    LAR_SERVING_DETOKENIZE,  /* POST /detokenize, as vLLM's */
    LAR_SERVING_MODELS,      /* GET /v1/models */
    LAR_SERVING_MODEL,       /* GET /v1/models/{id} */
} lar_serving_endpoint;

/* What a path, without its query, names; each also with and without "/v1" in front. *id: of MODEL the rest of the path,
 * percent-encoded as it came, else empty. NO_ROUTE: none of them; METHOD: one of them, but by another method. */
LAR_MUST_USE lar_error lar_serving_find(lar_slice method, lar_slice path, lar_serving_endpoint *out, lar_slice *id);

/* -- an answer ----------------------------------------------------------------------------------------------------- */

typedef struct lar_serving_ask {
    lar_serving_endpoint endpoint;
    lar_slice id;            /* MODEL only, percent-encoded; borrowed for the call */
    lar_slice body;          /* borrowed for the call; its size is limited by whoever read it */
    const atomic_bool *gone; /* borrowed for the call; once it is true nobody waits for the answer; NULL: never */
    lar_digest scope;        /* kept prefixes are shared within it only */
    uint64_t tenant;         /* fairness is between these */
    uint64_t random;         /* ids of the answer and of its calls, and the seed where the request names none */
    int64_t now;             /* seconds since 1970: "created" */
    int64_t local_now;       /* the same moved to the local zone: what templates show as the present day */
    uint32_t queue_ms_max;   /* lar_job_request's */
    const lar_serving_begun *begun; /* CHAT only; NULL: a new answer. Borrowed for the call */
} lar_serving_ask;

typedef struct lar_answer_head {
    int status;
    const char *content_type; /* static: "application/json" or "text/event-stream" */
    bool has_length;          /* false: a stream */
    uint64_t length;          /* of the body in bytes */
    uint32_t begun_tokens;    /* of an answer that goes on here: what was begun, in this model's tokens */
    uint32_t retry_ms;        /* status 429 and 503: when to come back; 0: not known */
} lar_answer_head;

/* How it ended, all jobs together. */
typedef struct lar_answer_end {
    lar_error
        error;  /* OK, also where the request was refused; CLIENT_GONE: cancelled; others were told to the client */
    int status; /* of the head; 0: there was none */
    uint32_t prompt_tokens, cached_tokens, answer_tokens, reasoning_tokens, preempted;
    uint64_t queued_us, prefill_us, decode_us; /* of the job that took longest in each */
} lar_answer_end;

/* Called by the thread that calls lar_answer_start and by the scheduler's, never by two at a time. Head and bytes come
 * under the answer's own lock, which lar_answer_cancel takes, too: they must not block, must not call lar_answer_*, and
 * nobody may call lar_answer_cancel while holding a lock that they take. `end` comes without it and may free. */
typedef struct lar_answer_sink {
    void *user;
    void (*head)(void *user, const lar_answer_head *h); /* once, before any bytes; never after lar_answer_cancel */
    void (*bytes)(void *user, lar_slice bytes);         /* of the body: a whole event of a stream, or the whole body */
    void (*end)(void *user, const lar_answer_end *e);   /* the last call. Once, always, after lar_answer_start */
} lar_answer_sink;

typedef struct lar_answer lar_answer;

/* Reads and checks the request, and makes its prompt's tokens: takes up to seconds for very long prompts, allocates,
 * and belongs on a thread that may. Errors of the request make an answer that tells them; what a client that is gone
 * still gets is a refusal that took no time. NO_MEMORY: *out is NULL. */
LAR_MUST_USE lar_error lar_answer_new(const lar_serving *s, const lar_serving_ask *ask, const lar_answer_sink *sink,
                                      lar_answer **out);
/* Whether lar_answer_start needs a scheduler: not for a refusal, nor for what has no token of the model's. */
bool lar_answer_has_jobs(const lar_answer *a);
/* Submits the answer's jobs (a completions request has one for each prompt). `scheduler` is borrowed until sink.end;
 * NULL where none is needed. */
void lar_answer_start(lar_answer *a, lar_scheduler *scheduler);
/* The client is gone: its jobs end within a step, sink.end comes with CLIENT_GONE, no head and no bytes come after
 * this returned. Any thread, until lar_answer_free; more than once is once, and after
 * sink.end nothing happens. */
void lar_answer_cancel(lar_answer *a);
/* After sink.end, or without lar_answer_start. NULL: nothing happens. */
void lar_answer_free(lar_answer *a);

#endif
