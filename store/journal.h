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
    LAR_END_COMPLETE,        /* the answer reached the client whole */
    LAR_END_REFUSED,         /* larder answered an error itself before any upstream was asked */
    LAR_END_UPSTREAM_ERROR,  /* the upstream answered 4xx/5xx or an error event */
    LAR_END_UPSTREAM_FAILED, /* connect, TLS, timeout, cut: no whole answer */
    LAR_END_CLIENT_GONE,     /* the client went away first */
    LAR_END_SHUTDOWN,        /* larder stopped */
    LAR_END_COUNT
} lar_ending;
const char *lar_ending_name(lar_ending e);

/* Which spelling the hit tokens were read from. */
typedef enum lar_spelling {
    LAR_SPELLING_NONE,             /* no usage found: unknown */
    LAR_SPELLING_DEEPSEEK,         /* prompt_cache_hit_tokens / prompt_cache_miss_tokens */
    LAR_SPELLING_OPENAI_CHAT,      /* prompt_tokens_details.cached_tokens */
    LAR_SPELLING_OPENAI_RESPONSES, /* input_tokens_details.cached_tokens */
    LAR_SPELLING_TOP_CACHED,       /* usage.cached_tokens (Kimi) */
    LAR_SPELLING_ANTHROPIC,        /* cache_read_input_tokens beside input_tokens */
    LAR_SPELLING_GEMINI,           /* usageMetadata.cachedContentTokenCount */
    LAR_SPELLING_PLAIN,            /* prompt and output only: hits unknown */
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
    LAR_JREC_REUSED = 16,        /* sent on a pooled connection */
    LAR_JREC_ANSWER_KEPT = 32    /* the answer was a kept one: the upstream was not asked, tokens are unknown */
};

enum { LAR_JREC_NAME_BYTES = 96, LAR_JREC_SHORT_BYTES = 24 };

/* A place in the request where another one may part from it, with a keyed hash of all that was sent up to there. */
typedef struct lar_journal_cut {
    uint64_t sent;  /* what was sent; equal in two records: the same prefix up to here */
    uint32_t raw;   /* what the client wrote */
    uint32_t bytes; /* sent up to here: tools, system, messages */
    uint16_t at;    /* system texts and messages up to here; 0: the tools alone */
    uint8_t kind;   /* what ends here; numbers in docs/store-format.md */
    uint8_t rule;   /* 1 + number of the first rule that found something since the cut before; 0: none */
} lar_journal_cut;
enum { LAR_JREC_CUTS_MAX = 48, LAR_JREC_CUT_BYTES = 20, LAR_JREC_CUT_KINDS = 7 };

typedef struct lar_journal_record {
    int64_t time_ms;                 /* wall clock at the request's first byte */
    uint64_t tenant;                 /* fingerprint of the credential; 0 = none */
    char route[LAR_JREC_NAME_BYTES]; /* protocol or prefix name, NUL-terminated, cut */
    char upstream[LAR_JREC_NAME_BYTES];
    char model[LAR_JREC_NAME_BYTES];
    uint16_t status;  /* HTTP status the client saw; 0 = none */
    uint8_t ending;   /* lar_ending */
    uint8_t spelling; /* lar_spelling */
    uint16_t error;   /* lar_error, LAR_OK if none */
    uint16_t flags;
    int64_t ttft_us; /* first byte of the request to first body byte of the answer; UNKNOWN if none */
    int64_t total_us;
    lar_tokens tokens;
    lar_tokens raw; /* as the upstream wrote them, before clamping and included/excluded rules */
    uint64_t request_bytes, sent_bytes, response_bytes;
    uint64_t prefix_known_bytes; /* predicted common prefix with the best earlier request */
    uint64_t prefix_hash;
    uint64_t rules_fired, rules_seen;
    uint32_t turn; /* turn index in the conversation, 0 = first */
    uint32_t edits;
    uint64_t request_id;                    /* the digits of x-larder-request-id; 0 = unknown */
    uint64_t edition_hash;                  /* of the versions of everything that decides what is sent; 0 = unknown */
    char edition[LAR_JREC_SHORT_BYTES];     /* "2026.12" */
    char provider[LAR_JREC_SHORT_BYTES];    /* the upstream's profile */
    int64_t predicted_hit;                  /* tokens; UNKNOWN where they cannot be told */
    uint64_t predicted_bytes, prompt_bytes; /* of tools, system and messages: the part sent before, and all */
    uint32_t recall_hits, recall_misses;    /* look-ups of this request in recall memory */
    uint8_t attempts;     /* requests that went out for it, 255 and more as 255; 0 = none, or unknown */
    uint8_t target;       /* whose answer it was: place in the route's chain, 0 = its upstream (or unknown) */
    uint32_t cold_tokens; /* of the prompt, that switching made cold: an estimate */
    char continued[LAR_JREC_NAME_BYTES]; /* upstream that went on with a stream that broke; "" = none, or unknown */
    int64_t begun_output;                /* of tokens.output, what came before that; UNKNOWN if it was not continued */
    char failure[LAR_JREC_SHORT_BYTES];  /* class of the first attempt that failed; "" = none, or unknown */
    lar_slice chain; /* the cuts as bytes; borrowed: from the caller, or from what was decoded. See lar_journal_cuts */
} lar_journal_record;

/* Bytes of a record on disk at most. */
#define LAR_JREC_BYTES_MAX 2048
/* Appends cuts as bytes, for lar_journal_record.chain; at most LAR_JREC_CUTS_MAX of them. */
LAR_MUST_USE lar_error lar_journal_cuts_write(const lar_journal_cut *cuts, uint32_t count, lar_buf *out);
/* The cuts of a record that was decoded, in order; returns how many. */
uint32_t lar_journal_cuts(const lar_journal_record *r, lar_journal_cut out[LAR_JREC_CUTS_MAX]);
/* Appends the encoded record. */
LAR_MUST_USE lar_error lar_journal_encode(const lar_journal_record *r, lar_buf *out);
/* `out` borrows `bytes`. CORRUPT (bad checksum, cut, impossible value) or VERSION (newer than this program). Older
 * versions are upgraded. */
LAR_MUST_USE lar_error lar_journal_decode(lar_slice bytes, lar_journal_record *out);

#endif
