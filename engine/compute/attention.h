/* Multi-head latent attention over a sequence's latents, in its two forms.
 *
 * A token's row is its normed latent (rank) and its one rotated key (rope), for all heads together. Absorbed: queries
 * are taken into latent space (W_UK^T q), so that a step reads only the rows; for few queries. Expanded: keys and
 * values of each head are computed from the rows, a tile at a time, and used by many queries. Both are the same algebra
 * (DeepSeek-V2, arXiv 2405.04434, 2.1.2). Softmax is the running one of flash attention, in tiles that begin at
 * position 0, so that within one form an answer does not depend on how the queries came. */
#ifndef LARDER_ENGINE_COMPUTE_ATTENTION_H
#define LARDER_ENGINE_COMPUTE_ATTENTION_H

#include "engine/compute/matmul.h"
#include "engine/compute/vectors.h"

enum {
    LAR_ATTENTION_TILE = 64, /* rows at a time: the page of a paged cache */
    /* From so many queries of one sequence on, expanding is cheaper. Rows of 512 + 64 against heads of 192 + 128: the
     * expansion costs rank * (nope + value) a key and head once, and saves 2 * rank + rope - (nope + rope + value) a
     * query: about 170 queries by count of products. Measured for V2-Lite on CPUs: equal from 64 to 128
     * (ik_llama.cpp PR 282). */
    LAR_ATTENTION_EXPAND_FROM = 128,
    LAR_ATTENTION_ABSORB_TOKENS = 128, /* queries at a time in the absorbed form; more are done in several goes */
    LAR_ATTENTION_PARTS = 16           /* sequences at a time */
};

/* Where rows come from, whatever form they are kept in. */
typedef struct lar_latents {
    const void *cache;
    uint32_t layer;
    /* Rows [first, first + count), count <= LAR_ATTENTION_TILE and all in one tile: (count, rank + rope), either where
     * they are kept or decoded into `room`, which holds a tile. */
    const float *(*rows)(const struct lar_latents *l, uint32_t first, uint32_t count, float *room);
    /* The same rows as they are kept, row_bytes each. */
    const uint8_t *(*kept)(const struct lar_latents *l, uint32_t first);
    uint32_t row_bytes;
    /* LAR_ROWS_BF16: kept rows are (rank + rope) of bfloat16, which the absorbed form reads instead of rows(). */
    lar_row_form form;
} lar_latents;

typedef struct lar_attention_shape {
    uint32_t heads, rank, nope, rope, value;
    float scale;
} lar_attention_shape;

/* Queries of one sequence, at positions first, first + 1, ...; their rows are there already. */
typedef struct lar_attention_part {
    lar_latents latents;
    uint32_t first, tokens;
} lar_attention_part;

typedef struct lar_attention {
    lar_attention_shape shape;
    const lar_matrix *key_absorb;    /* (heads) of (rank, nope): W_UK^T */
    const lar_matrix *key_expand;    /* (heads) of (nope, rank): W_UK */
    const lar_matrix *value_up;      /* (heads) of (value, rank): W_UV */
    const lar_attention_part *parts; /* (count), count <= LAR_ATTENTION_PARTS */
    uint32_t count;
    const float *query; /* (tokens of all parts, heads, nope + rope), rotated */
    float *out;         /* (tokens of all parts, heads, value) */
    float *scratch;     /* of lar_attention_scratch() bytes */
    lar_ahead then;     /* what the workers read next, in equal shares one behind the other; may be empty */
} lar_attention;

typedef enum lar_attention_form {
    LAR_ATTENTION_BY_LENGTH,
    LAR_ATTENTION_ABSORBED,
    LAR_ATTENTION_EXPANDED
} lar_attention_form;

/* Bytes for up to `tokens` queries of all parts in any form, by `workers`. */
uint64_t lar_attention_scratch(const lar_attention_shape *s, uint32_t tokens, uint32_t workers);
/* Bytes of run.workspace for the same, beside what the products of the expanded form ask for. */
uint64_t lar_attention_workspace(const lar_attention *a, uint32_t tokens, uint32_t workers);
/* The workers of `run` share the heads; rows are read by several at once. Parts in the absorbed form share its
 * products: matrices are read once for all of them. */
void lar_attend(const lar_attention *a, lar_attention_form form, const lar_run *run);

#endif
