/* Byte-pair encoding: a vocabulary of byte strings, and merges by rank. */
#ifndef LARDER_ENGINE_TEXT_BPE_H
#define LARDER_ENGINE_TEXT_BPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define LAR_BPE_NONE UINT32_MAX
enum { LAR_BPE_IDS_MAX = 1 << 21 };

typedef enum lar_bpe_whole {
    LAR_BPE_BY_MERGES,     /* a piece is one token where merges lead to it */
    LAR_BPE_BY_VOCABULARY, /* a piece that is in the vocabulary is that token (ignore_merges) */
} lar_bpe_whole;

/* Growable ids with a maximum, embedded, owns its memory. */
typedef struct lar_ids {
    uint32_t *ids;
    size_t count, cap, max;
} lar_ids;

void lar_ids_init(lar_ids *ids, size_t max);
void lar_ids_release(lar_ids *ids);
LAR_MUST_USE lar_error lar_ids_add(lar_ids *ids, uint32_t id); /* LIMIT over max, NO_MEMORY */

typedef struct lar_bpe_string lar_bpe_string; /* where a token's bytes lie */
typedef struct lar_bpe_slot lar_bpe_slot;
typedef struct lar_bpe_pair lar_bpe_pair;

/* Embedded, zero-initialised. Built in the order: tokens, index, reserve, merges, finish; immutable from then on. */
typedef struct lar_bpe {
    lar_bpe_string *strings; /* by id */
    uint32_t ids;            /* one more than the largest id */
    lar_buf bytes;           /* of all tokens */
    lar_bpe_slot *slots;     /* bytes to id; slot_mask + 1 of them */
    uint32_t slot_mask;
    lar_bpe_pair *pairs; /* two ids to the merged one and its rank; pair_mask + 1 of them */
    uint32_t pair_mask;
    uint64_t *filter;      /* a bit for each hash of 20 bits that some pair has: most neighbours do not merge */
    uint32_t byte_id[256]; /* NONE where no token is that byte alone */
} lar_bpe;

typedef enum lar_bpe_role {
    LAR_BPE_ABSENT, /* no token has the id */
    LAR_BPE_MERGED, /* made of bytes by merging */
    LAR_BPE_LITERAL /* stands for its text, but merging never makes it */
} lar_bpe_role;

/* Room for ids below `ids` (at most LAR_BPE_IDS_MAX). */
LAR_MUST_USE lar_error lar_bpe_init(lar_bpe *b, uint32_t ids);
void lar_bpe_release(lar_bpe *b);
/* The token's bytes are copied. INVALID where the id has other bytes; LIMIT over 1 MiB for one, 1 GiB in all. */
LAR_MUST_USE lar_error lar_bpe_set(lar_bpe *b, uint32_t id, lar_slice bytes, lar_bpe_role role, lar_diag *d);
/* After all tokens. INVALID where two ids have the same bytes, where one of the bytes that occur in UTF-8 is no token,
 * or where the tokens are made to collide. */
LAR_MUST_USE lar_error lar_bpe_index(lar_bpe *b, lar_diag *d);
/* Room for `merges` of them, once, before the first. */
LAR_MUST_USE lar_error lar_bpe_reserve(lar_bpe *b, uint32_t merges);
/* The tokens left and right become `id` at rank `rank`. INVALID where the merges are made to collide. */
LAR_MUST_USE lar_error lar_bpe_join(lar_bpe *b, const uint32_t pair[2], uint32_t id, uint32_t rank, lar_diag *d);
/* The merge of rank `rank`: INVALID where one of the three is no token. Of two equal merges the later one counts. */
LAR_MUST_USE lar_error lar_bpe_merge(lar_bpe *b, lar_slice left, lar_slice right, uint32_t rank, lar_diag *d);
/* After all merges: marks the tokens that a piece equal to them becomes at once. */
LAR_MUST_USE lar_error lar_bpe_finish(lar_bpe *b, lar_bpe_whole whole);

/* The id of the merged token with these bytes; NONE. */
uint32_t lar_bpe_find(const lar_bpe *b, lar_slice bytes);
lar_slice lar_bpe_bytes(const lar_bpe *b, uint32_t id); /* empty, with ptr NULL, where there is no such token */

/* Memory for long pieces, kept between calls; embedded, zero-initialised. */
typedef struct lar_bpe_work {
    uint32_t *links; /* (4, cap) */
    uint64_t *heap;  /* (2, cap) */
    size_t cap;
    const atomic_bool *stop; /* borrowed; once it is true nobody wants the ids any more; NULL: never */
} lar_bpe_work;
void lar_bpe_work_release(lar_bpe_work *w);

/* Adds the tokens of one piece (not empty, under 1 GiB). O(n log n). INVALID where a byte of it is no token;
 * CLIENT_GONE: stopped, some of them may have been added. */
LAR_MUST_USE lar_error lar_bpe_encode(const lar_bpe *b, lar_slice piece, lar_bpe_work *work, lar_ids *out, lar_diag *d);

#endif
