/* larder run -p and larder run by itself: a conversation with a model on this machine, streamed as it comes. */
#ifndef LARDER_LOCAL_RUN_CHAT_H
#define LARDER_LOCAL_RUN_CHAT_H

#include "engine/engine.h"

typedef enum lar_run_form {
    LAR_RUN_TEMPLATE, /* what is said is a message of the model's chat template */
    LAR_RUN_RAW       /* what is said is continued as it stands */
} lar_run_form;

typedef struct lar_run_chat {
    const char *prompt; /* one answer to it; NULL: lines of standard input, each a turn of one conversation */
    const char *system; /* NULL: none */
    lar_run_form form;
    uint32_t context;    /* tokens of the conversation; at most the model's */
    uint32_t tokens_max; /* of one answer; 0: as the context allows */
    lar_sampling sampling;
} lar_run_chat;

/* Answers go to standard output, reasoning and what a person is told to standard error. INVALID: no template where one
 * is needed, or logits that are not finite; LIMIT: the conversation is longer than the context. */
LAR_MUST_USE lar_error lar_run_chat_run(const lar_run_chat *c, lar_engine *e, const lar_engine_text *t, lar_diag *d);

#endif
