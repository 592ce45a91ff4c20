/* Why a request hit the provider's cache or did not: the best earlier request of a journal, and what became of what
 * they share. Pure: records are given, numbers come back. */
#ifndef LARDER_GATEWAY_COMMANDS_DONOR_H
#define LARDER_GATEWAY_COMMANDS_DONOR_H

#include <stdbool.h>
#include <stdint.h>

#include "store/journal.h"

/* A record kept beyond the scan that gave it. */
typedef struct lar_donor {
    bool there;
    uint64_t seq;
    lar_journal_record record; /* without its chain: that is in cuts */
    lar_journal_cut cuts[LAR_JREC_CUTS_MAX];
    uint32_t cut_count;
    /* against the request in question */
    int32_t common;        /* the last of the request's cuts up to which both were sent alike; -1: none */
    int32_t common_raw;    /* the same of what the clients wrote */
    uint32_t common_bytes; /* sent up to there */
    bool continued;        /* the request holds all of this one and goes on */
} lar_donor;

/* Keeps a record; the comparison is left empty. */
void lar_donor_keep(lar_donor *d, uint64_t seq, const lar_journal_record *r);

/* The candidates of one request, best first by what they share, then by time. */
typedef struct lar_donor_search {
    const lar_donor *request;
    uint32_t ttl_s;   /* of the provider; 0: nothing is promised */
    lar_donor best;   /* same key, upstream and model */
    lar_donor live;   /* of these, answered before the request and within the time to live */
    lar_donor newest; /* of these, the newest that was answered, whatever it shares */
    lar_donor other_model, other_upstream, other_key; /* what shares most where one of the three differs */
    uint64_t looked_at;
} lar_donor_search;

/* Offers one record of the journal, in any order. Records that began later, the request itself, and what the upstream
 * did not accept are passed over. */
void lar_donor_offer(lar_donor_search *s, uint64_t seq, const lar_journal_record *r);

/* Why, in one word for programs. Rows with their sentences: reasons in donor.c. */
typedef enum lar_miss {
    LAR_MISS_NOT_READ, /* no fingerprints: rules were off, no chat, or an older record */
    LAR_MISS_NOT_SENT, /* it never reached a provider, or was refused there */
    LAR_MISS_NONE,     /* the provider read what it could; the rest is new text */
    LAR_MISS_FIRST,    /* nothing earlier with this key, upstream and model */
    LAR_MISS_TEXT,     /* the text parts from everything earlier */
    LAR_MISS_MODEL,    /* the same text went to another model, upstream or under another key */
    LAR_MISS_UPSTREAM,
    LAR_MISS_KEY,
    LAR_MISS_PARALLEL, /* the donor had not been answered yet */
    LAR_MISS_EXPIRED,  /* the donor is older than the provider's time to live */
    LAR_MISS_SHORT,    /* what is shared is below the provider's minimum */
    LAR_MISS_EDITION,  /* rules or hashes changed in between */
    LAR_MISS_PROVIDER, /* all was right; the provider did not have it */
    LAR_MISS_UNKNOWN,  /* the provider did not report hits */
    LAR_MISS_COUNT
} lar_miss;

typedef struct lar_miss_row {
    const char *code; /* "expired" */
    const char *text; /* what it means */
    const char *todo; /* what to do about it */
} lar_miss_row;
const lar_miss_row *lar_miss_get(lar_miss m);

typedef struct lar_verdict {
    lar_miss miss;
    const lar_donor *donor; /* in the search, or NULL */
    int64_t expected_hit;   /* tokens that a live donor's prefix is worth; LAR_TOKENS_UNKNOWN */
    int64_t shared_tokens;  /* tokens that the donor's prefix is worth, live or not */
    int64_t age_ms;         /* of the donor's answer when the request came */
    int32_t broke;          /* the request's cut in which the text parts from the donor; -1: nowhere */
} lar_verdict;

/* Once all records were offered. step and minimum are the provider's, in tokens; 0: not known. */
lar_verdict lar_donor_judge(const lar_donor_search *s, uint32_t step_tokens, uint32_t tokens_min);

#endif
