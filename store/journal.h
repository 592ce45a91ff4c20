/* One journal record a request: numbers and names, never text of prompts or answers.
 * On disk: versioned, checksummed, little-endian; layout in docs/store-format.md. */
#ifndef LARDER_STORE_JOURNAL_H
#define LARDER_STORE_JOURNAL_H

#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

/* How a request ended. */
typedef enum lar_ending {
    LAR_END_COMPLETE,       /* the answer reached the client whole */
    LAR_END_REFUSED,        /* larder answered an error itself before any upstream was asked */
    LAR_END_UPSTREAM_ERROR, /* the upstream answered 4xx/5xx or an error event */
    LAR_END_UPSTREAM_FAILED,/* connect, TLS, timeout, cut: no whole answer */
    LAR_END_CLIENT_GONE,    /* the client went away first */
    LAR_END_SHUTDOWN,       /* larder stopped */
    LAR_END_COUNT
} lar_ending;
const char *lar_ending_name(lar_ending e);

/* Which spelling the hit tokens were read from. */
typedef enum lar_spelling {
    LAR_SPELLING_NONE,         /* no usage found: unknown */
    LAR_SPELLING_DEEPSEEK,     /* prompt_cache_hit_tokens / prompt_cache_miss_tokens */
    LAR_SPELLING_OPENAI_CHAT,  /* prompt_tokens_details.cached_tokens */
    LAR_SPELLING_OPENAI_RESPONSES, /* input_tokens_details.cached_tokens */
    LAR_SPELLING_TOP_CACHED,   /* usage.cached_tokens (Kimi) */
    LAR_SPELLING_ANTHROPIC,    /* cache_read_input_tokens beside input_tokens */
    LAR_SPELLING_GEMINI,       /* usageMetadata.cachedContentTokenCount */
    LAR_SPELLING_PLAIN,        /* prompt and output only: hits unknown */
    LAR_SPELLING_COUNT
} lar_spelling;
const char *lar_spelling_name(lar_spelling s);

#define LAR_TOKENS_UNKNOWN INT64_MIN /* absent is unknown, never 0 */

/* Normalised: prompt = all prompt tokens, hit + miss = prompt where both are known; write is part of miss. */
typedef struct lar_tokens {
    int64_t prompt, hit, miss, write, output, reasoning; /* or LAR_TOKENS_UNKNOWN */
} lar_tokens;

enum {
    LAR_JREC_STREAMED = 1,
    LAR_JREC_USAGE_PARTIAL = 2,  /* the answer was cut; usage is what had arrived */
    LAR_JREC_USAGE_ODD = 4,      /* numbers contradicted each other and were clamped; raw ones kept */
    LAR_JREC_USAGE_INJECTED = 8, /* larder asked for the usage event itself */
    LAR_JREC_REUSED = 16         /* sent on a pooled connection */
};

enum { LAR_JREC_NAME_BYTES = 96 };

typedef struct lar_journal_record {
    int64_t time_ms;    /* wall clock at the request's first byte */
    uint64_t tenant;    /* fingerprint of the credential; 0 = none */
    char route[LAR_JREC_NAME_BYTES];    /* protocol or prefix name, NUL-terminated, cut */
    char upstream[LAR_JREC_NAME_BYTES];
    char model[LAR_JREC_NAME_BYTES];
    uint16_t status;    /* HTTP status the client saw; 0 = none */
    uint8_t ending;     /* lar_ending */
    uint8_t spelling;   /* lar_spelling */
    uint16_t error;     /* lar_error, LAR_OK if none */
    uint16_t flags;
    int64_t ttft_us;    /* first byte of the request to first body byte of the answer; UNKNOWN if none */
    int64_t total_us;
    lar_tokens tokens;
    lar_tokens raw;     /* as the upstream wrote them, before clamping and included/excluded rules */
    uint64_t request_bytes, sent_bytes, response_bytes;
    uint64_t prefix_known_bytes; /* predicted common prefix with the best earlier request */
    uint64_t prefix_hash;
    uint64_t rules_fired, rules_seen;
    uint32_t turn;      /* turn index in the conversation, 0 = first */
    uint32_t edits;
} lar_journal_record;

/* Bytes of a record on disk at most. */
#define LAR_JREC_BYTES_MAX 1024
/* Appends the encoded record. */
LAR_MUST_USE lar_error lar_journal_encode(const lar_journal_record *r, lar_buf *out);
/* CORRUPT (bad checksum, cut, impossible value) or VERSION (newer than this program). Older versions are upgraded. */
LAR_MUST_USE lar_error lar_journal_decode(lar_slice bytes, lar_journal_record *out);

#endif
