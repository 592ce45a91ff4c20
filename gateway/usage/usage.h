/* Reads hit and miss tokens in every provider's spelling, from a JSON answer or from a stream's events.
 * Absent is unknown, never 0, and so is what cannot be a count: negative, huge, broken or no number. A part above its
 * whole is brought down to it. The raw numbers are kept. */
#ifndef LARDER_GATEWAY_USAGE_H
#define LARDER_GATEWAY_USAGE_H

#include <stdbool.h>

#include "base/json.h"
#include "policies/protocol.h"
#include "store/journal.h"

/* Of a provider profile: is the cached part inside prompt_tokens (OpenAI, DeepSeek) or beside it (Anthropic)?
 * BY_SPELLING decides by the field that was found. */
typedef enum lar_usage_rule { LAR_USAGE_BY_SPELLING, LAR_USAGE_INCLUDED, LAR_USAGE_BESIDE } lar_usage_rule;

enum { LAR_USAGE_CHOICES_MAX = 16 }; /* choices whose output is told apart (n > 1) */

/* Embedded, zero-initialised by init. */
typedef struct lar_usage {
    lar_usage_rule rule;
    lar_tokens raw; /* the last value of each field that was seen */
    lar_spelling spelling;
    bool seen;         /* a usage object was found */
    bool error_seen;   /* the body or an event is an error object (S-15, H-47, R-10) */
    bool finished;     /* a terminal marker was seen: [DONE], message_stop, response.completed, finish_reason */
    bool done;         /* the very last event: [DONE], message_stop, response.completed/failed/incomplete */
    bool content_seen; /* an event carried content or a tool call */
    bool odd;          /* values contradicted each other or were no counts, or an event was no JSON */
    bool hit_broken, write_broken, reasoning_broken; /* what stood there last was no whole number */
    uint32_t mistyped;                               /* values so far that were no whole number */
    bool beside;         /* the cached part was found beside the prompt, as Anthropic counts */
    bool per_choice;     /* chunks count each choice's output on its own: the sum is meant (n > 1) */
    int32_t last_choice; /* whose chunk brought the last usage; -1 = none */
    int64_t output_top;  /* highest output of any chunk */
    int64_t choice_output[LAR_USAGE_CHOICES_MAX]; /* last output of each choice, or LAR_TOKENS_UNKNOWN */
    lar_json json;                                /* work tree, kept between events */
} lar_usage;

void lar_usage_init(lar_usage *u, lar_usage_rule rule);
void lar_usage_release(lar_usage *u);
void lar_usage_reset(lar_usage *u, lar_usage_rule rule);

/* What an event is to the relay. */
typedef enum lar_usage_kind {
    LAR_USAGE_OTHER,      /* forward */
    LAR_USAGE_ONLY_CHUNK, /* a chat chunk with empty `choices` and a usage: drop it if the client did not ask (S-20) */
    LAR_USAGE_DONE        /* [DONE] */
} lar_usage_kind;

/* One event's data. Broken JSON is counted as odd, never an error (S-21). Once content was seen, an event that names
 * none of the fields that matter is passed over unparsed, so a fault inside such a one is not noticed. */
lar_usage_kind lar_usage_event(lar_usage *u, lar_protocol p, lar_slice type, lar_slice data);
/* A whole JSON answer. Leading blank lines and a BOM are skipped (DeepSeek's keep-alives, J-18). Sets finished and done
 * if it is an object. Of an answer with very many values (embeddings) only the last usage object is read. */
void lar_usage_body(lar_usage *u, lar_protocol p, lar_slice body);
/* The normalised counts. Returns true if some had to be clamped or are unknown because they cannot be. */
bool lar_usage_tokens(const lar_usage *u, lar_tokens *out);

#endif
