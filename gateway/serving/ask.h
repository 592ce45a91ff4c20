/* A request as values: what lar_answer_new reads out of a body, inside gateway/serving. */
#ifndef LARDER_GATEWAY_ASK_H
#define LARDER_GATEWAY_ASK_H

#include "base/json.h"
#include "gateway/serving/refusal.h"
#include "gateway/serving/serving.h"

enum { LAR_ASK_PROMPTS_MAX = 16, LAR_ASK_EFFORT_BYTES = 16, LAR_ASK_MARKS_MAX = LAR_JOB_MARKS_MAX };

struct lar_serving {
    lar_engine_text text;
    char *model, *fingerprint;
    bool any_model;
    uint32_t vocab, context, call_tokens_max, samples_max, prompts_max;
    size_t token_bytes_max; /* of one token: what a text has at least of them */
    int64_t created;
    lar_template_arguments arguments;
    uint32_t ends[LAR_MODEL_GENERATION_ENDS_MAX + 1]; /* ids that end an answer */
    uint32_t end_count;
    bool thinks;      /* the vocabulary has the marks of reasoning */
    bool takes_tools; /* the template has a place for them */
};

#define LAR_THINK_BEGIN "<think>"
#define LAR_THINK_END "</think>"

typedef enum lar_thinking { LAR_THINKING_DEFAULT, LAR_THINKING_ON, LAR_THINKING_OFF } lar_thinking;

/* What fields say. Embedded; lar_ask_release frees what it owns; nodes are those of `json`. */
typedef struct lar_ask {
    lar_json json;
    uint32_t messages, tools, kwargs, prompt, tokens; /* nodes; NONE: absent */
    bool model;                                       /* was named */
    bool stream, include_usage, logprobs, echo, parallel, ignore_eos, return_strs;
    bool continue_final;                            /* the last message begins the answer */
    bool add_generation_prompt, add_special, calls; /* calls: tools may be called */
    lar_thinking thinking;
    char effort[LAR_ASK_EFFORT_BYTES]; /* reasoning_effort; empty: absent */
    uint32_t answer_max;               /* 0: as many as fit */
    uint32_t samples, top_logprobs, best_of;
    bool has_top_logprobs, has_stream_options, has_completion_max;
    lar_sampling sampling; /* without seed where the request has none */
    bool has_seed;
    lar_logit_bias *biases;
    lar_buf stop_text;
    uint32_t stop_ends[LAR_OUTPUT_STOPS_MAX]; /* in stop_text */
    uint32_t stop_count;
} lar_ask;

/* Reads the body, borrowed until release. INVALID and the errors of JSON: `no` is filled; NO_MEMORY. */
LAR_MUST_USE lar_error lar_ask_read(const lar_serving *s, const lar_serving_ask *from, lar_ask *out, lar_refusal *no);
void lar_ask_release(lar_ask *a);
lar_slice lar_ask_stop(const lar_ask *a, uint32_t i);

/* Appends a string's text; what a lone surrogate stands for becomes U+FFFD. */
LAR_MUST_USE lar_error lar_ask_text(const lar_json *j, uint32_t node, lar_buf *out);

/* -- messages and tools in the form that templates read ------------------------------------------------------------ */

/* A prefix of the conversation that the request marks: the first `bytes` of messages, then `close`, are a list. */
typedef struct lar_ask_mark {
    size_t bytes;
    const char *close; /* static */
} lar_ask_mark;

typedef struct lar_conversation {
    lar_buf messages, tools; /* JSON lists; tools is empty where there are none */
    bool continues; /* the request's last message is the beginning of the answer, not in `messages`, but here: */
    lar_buf reasoning, content;
    lar_ask_mark marks[LAR_ASK_MARKS_MAX];
    uint32_t mark_count;
} lar_conversation;

void lar_conversation_init(lar_conversation *c);
void lar_conversation_release(lar_conversation *c);
/* INVALID: `no` says which member of which message; NO_MEMORY, LIMIT. */
LAR_MUST_USE lar_error lar_conversation_read(const lar_ask *a, lar_conversation *c, lar_refusal *no);

/* -- prompts ------------------------------------------------------------------------------------------------------- */

typedef struct lar_prompt {
    lar_ids ids;
    uint32_t marks[LAR_ASK_MARKS_MAX]; /* lengths of prefixes in tokens */
    uint32_t mark_count;
    lar_buf echo;        /* its text, where the answer begins with it */
    bool reasoning_open; /* it ends with the mark that opens reasoning */
    bool reasoning_shut; /* it ends with the mark that closes it: there is none */
    /* Of an answer that goes on: the prompt ends with what was begun, but for its last word (begun.c). */
    uint32_t again_bytes; /* of that word: the opening of what is to come */
    uint32_t opening_ends[LAR_JOB_OPENING_BYTES_MAX];
    lar_ids opening_ids, opening_bytes;
    uint32_t begun_tokens, begun_reasoning; /* all that was begun; of it, reasoning */
    uint32_t begun_ids;                     /* of them, those in the prompt */
    bool begun_by_client;                   /* it is a part of the prompt, and no part of the answer */
    lar_buf begun_tail;                     /* the end of its content, or of its reasoning where there is no content */
    bool begun_content;
} lar_prompt;

typedef struct lar_prompts {
    lar_prompt list[LAR_ASK_PROMPTS_MAX];
    uint32_t count;
} lar_prompts;

typedef struct lar_begun_text {
    const lar_serving_ask *from;
    const lar_serving_begun *begun; /* its texts alone count */
} lar_begun_text;

/* begun.c: appends what was begun of the answer, behind the rendered prompt. INVALID: `no` is filled; NO_MEMORY,
 * CLIENT_GONE. */
LAR_MUST_USE lar_error lar_begun_append(const lar_serving *s, const lar_begun_text *what, lar_prompt *p,
                                        lar_refusal *no);
/* begun.c: what a request may not ask for where an answer goes on. INVALID: `no` is filled. */
LAR_MUST_USE lar_error lar_begun_check(const lar_ask *a, lar_refusal *no);

void lar_prompts_release(lar_prompts *p);
/* Tokens that the answer to it may have: max_tokens counts what was begun, too, but not what the client itself began.
 * 0: as many as fit. */
uint32_t lar_prompt_answer_max(const lar_prompt *p, const lar_ask *a);
/* Renders and tokenises; embedded, zero-initialised. INVALID: `no` is filled; NO_MEMORY. */
LAR_MUST_USE lar_error lar_prompts_make(const lar_serving *s, const lar_serving_ask *from, const lar_ask *a,
                                        lar_prompts *out, lar_refusal *no);

#endif
