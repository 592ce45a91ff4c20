/* Kept answers by key, the least recently used first to go, within a number of bytes. Not locked: answers.c does
 * that. */
#ifndef LARDER_GATEWAY_ANSWERS_TABLE_H
#define LARDER_GATEWAY_ANSWERS_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/slice.h"
#include "store/journal.h"

/* One answer as it was given. Immutable once it is in a table; counted references; any thread. */
typedef struct lar_kept {
    lar_digest key;
    lar_slice head;    /* status line and fields, without framing; its memory is the answer's, as the body's is */
    lar_slice body;    /* as the client got it, without framing */
    lar_tokens tokens; /* as the upstream wrote them */
    uint8_t spelling;  /* lar_spelling */
    bool streamed;     /* its body is an event stream */
    uint64_t kept_ms, expires_ms; /* monotonic */
    atomic_uint refs;
    struct lar_kept *chain, *newer, *older; /* the table's */
} lar_kept;

/* Copies both; one reference. NULL when out of memory. */
lar_kept *lar_kept_new(lar_slice head, lar_slice body);
lar_kept *lar_kept_ref(lar_kept *k);
/* NULL is allowed. */
void lar_kept_unref(lar_kept *k);
/* What it takes of the table's bytes. */
uint64_t lar_kept_bytes(const lar_kept *k);

/* Zero-initialised, then init. */
typedef struct lar_answers_table {
    lar_kept **buckets;
    uint32_t bucket_count, count;
    lar_kept *newest, *oldest;
    uint64_t bytes, bytes_max;
    uint64_t evicted; /* so far, for room; what ran out of time or was replaced is not counted */
} lar_answers_table;

void lar_answers_table_init(lar_answers_table *t, uint64_t bytes_max);
void lar_answers_table_release(lar_answers_table *t);
/* The table's own, valid until the next call; NULL if there is none that is still good. It becomes the newest. */
lar_kept *lar_answers_table_find(lar_answers_table *t, const lar_digest *key, uint64_t now_ms);
/* Takes a reference of its own, in place of an answer of the same key; older ones go for room. LIMIT: larger than all
 * of the table; NO_MEMORY. */
LAR_MUST_USE lar_error lar_answers_table_put(lar_answers_table *t, lar_kept *k);
/* Another limit; what is over it goes. */
void lar_answers_table_limit(lar_answers_table *t, uint64_t bytes_max);

#endif
