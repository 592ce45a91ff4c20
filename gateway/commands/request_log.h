/* Requests out of files: whatever people log or export, as request bodies one by one. `larder replay`, `larder diff`
 * and `larder lint` read through it.
 *
 *     lar_request_log_open(path, &options, &log, &d)
 *     while ((e = lar_request_log_next(log, &r, &d)) != LAR_NOT_FOUND)
 *         if (e) "FILE:LINE: d.text"; stop, or call again to go on behind the bad record
 *         else   r.body is JSON: parse it, lar_request_view_read(..., r.protocol, ...)
 *     lar_request_log_close(log)
 *
 * A file is JSON lines (one record a line; blank lines are left out), or one JSON document of any number of lines: a
 * record, or an array of records. A record is one of lar_log_form. Read line by line, so that a log of any length
 * takes the memory of its longest record; one document is read whole. */
#ifndef LARDER_GATEWAY_REQUEST_LOG_H
#define LARDER_GATEWAY_REQUEST_LOG_H

#include "base/json.h"
#include "policies/protocol.h"

typedef enum lar_log_form {
    LAR_LOG_BODY,         /* {"model":..., "messages": [...]}, or input, or prompt: a request as it is sent */
    LAR_LOG_ARRAY,        /* [{"role":...}, ...]: messages alone */
    LAR_LOG_CONVERSATION, /* messages that end with an answer: each answer behind a user message is a request */
    LAR_LOG_BATCH,        /* {"custom_id":..., "method":..., "url":..., "body": {...}} */
    LAR_LOG_PAIR,         /* {"request": {...}, "response": {...}}; each may hold its body in "body" */
    LAR_LOG_LITELLM,      /* LiteLLM's standard logging payload, alone or in "standard_logging_object" */
    LAR_LOG_LANGFUSE,     /* a Langfuse observation, from its API or its exports */
    LAR_LOG_EXPORT,       /* a line of `larder export`: numbers, no text; body is empty */
    LAR_LOG_FORM_COUNT
} lar_log_form;

/* {"model", "messages"} that end with an answer are a conversation and not a request, and so are messages without a
 * model that hold an answer behind a user message: unless it is said what they are. */
typedef enum lar_log_reading { LAR_LOG_AUTO, LAR_LOG_REQUESTS, LAR_LOG_CONVERSATIONS } lar_log_reading;

typedef struct lar_request_log_options {
    lar_log_reading reading;
    lar_protocol protocol; /* NONE: by the URL where the record has one, else by what the body looks like */
    /* Lines that begin with # or // go there and are no records; NULL: they are bad ones. */
    void (*comment)(void *ctx, uint64_t line, lar_slice text);
    void *comment_ctx;
} lar_request_log_options;

/* One request. All that it borrows lives until the next call. */
typedef struct lar_log_request {
    const char *file;
    uint64_t line;   /* where its record begins, from 1; of a bad record, where it is bad */
    uint64_t column; /* of a record that is no JSON: where, in bytes from 1; else 0 */
    uint32_t call;   /* CONVERSATION: how many came before it from the same record; else 0 */
    lar_log_form form;
    lar_protocol protocol;  /* never NONE but for EXPORT */
    int64_t time_ms;        /* when it was sent, as the record says; 0: it does not */
    lar_slice body;         /* the request's JSON */
    const lar_json *record; /* the record's tree, and where it begins in it */
    uint32_t record_node;
    const lar_json *answer_json; /* the model's answer: a message, or an array of items; NONE if the log has none */
    uint32_t answer;
    uint32_t response; /* in `record`: the whole response (for its usage), or NONE */
} lar_log_request;

typedef struct lar_request_log lar_request_log;

/* `path` is borrowed and stays; "-" is standard input. IO if it cannot be opened; NO_MEMORY. */
LAR_MUST_USE lar_error lar_request_log_open(const char *path, const lar_request_log_options *o, lar_request_log **out,
                                            lar_diag *d);
/* The same over a text (borrowed), for tests and for what is in memory already. */
LAR_MUST_USE lar_error lar_request_log_open_text(const char *name, lar_slice text, const lar_request_log_options *o,
                                                 lar_request_log **out, lar_diag *d);
void lar_request_log_close(lar_request_log *l);

/* NOT_FOUND at the end. JSON_*, INVALID or LIMIT (a record over 256 MiB) for a record that is none, with the reason in
 * `d`: the next call goes on behind it. IO, NO_MEMORY end the log. */
LAR_MUST_USE lar_error lar_request_log_next(lar_request_log *l, lar_log_request *out, lar_diag *d);
/* Records that are no prompt (spans, embeddings, images) and were passed over. */
uint64_t lar_request_log_passed(const lar_request_log *l);
/* Line and column (bytes, both from 1) in the file that byte `offset` of the last request's body comes from; of what
 * was written around a record's parts or decoded from a string, the nearest place in front. */
void lar_request_log_place(const lar_request_log *l, uint32_t offset, uint64_t *line, uint64_t *column);
/* The same, as the characters of that line in front of the place. */
uint64_t lar_request_log_characters(const lar_request_log *l, uint32_t offset, uint64_t *line);

#endif
