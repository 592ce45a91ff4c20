/* A request as the provider's template prints it in front of the model: one text, in the provider's order.
 *
 *     <|tools|>[{"type": "function", ...}]<|system|>You are ...<|end|><|user|>Hello<|end|>
 *
 * Prefix caches compare this text and not the body: members in another order of the body, JSON white space and escapes
 * of strings do not count in it, the order of tools and of their members does. The tags stand for a model's own. What
 * is no text for the model (parameters, ids of items, cache_control) is not in it.
 *
 * The rendering is a list of pieces, so that every offset in it leads back to a value and a byte of the body. */
#ifndef LARDER_POLICIES_RENDER_H
#define LARDER_POLICIES_RENDER_H

#include "base/arena.h"
#include "base/buf.h"
#include "policies/protocol.h"
#include "policies/provider.h"

typedef enum lar_piece_kind {
    LAR_PIECE_TEMPLATE, /* a tag: no bytes of the body */
    LAR_PIECE_STRING,   /* a string's text, decoded */
    LAR_PIECE_JSON      /* a value printed in one form: ", " and ": " between, only necessary escapes, keys in order */
} lar_piece_kind;

typedef struct lar_render_piece {
    lar_slice text;   /* in the body, in the arena, or static */
    size_t at;        /* offset of its first byte in the rendering */
    uint32_t node;    /* the value it shows; of a tag: the value that it belongs to */
    uint32_t segment; /* index in the view's segments; NONE for tools and for answers */
    lar_piece_kind kind;
} lar_render_piece;

/* Content blocks as Anthropic counts them: a tool, a part of a content, a whole string content, a call. */
typedef struct lar_render_block {
    size_t end;     /* offset behind it */
    uint32_t ttl_s; /* it carries cache_control: 300, or 3600 with ttl "1h"; 0: it carries none */
} lar_render_block;

typedef struct lar_rendering {
    const lar_json *json; /* borrowed, as the arena is */
    lar_protocol protocol;
    lar_arena *arena;
    lar_render_piece *pieces;
    lar_render_block *blocks;
    uint32_t count, cap, block_count, block_cap;
    uint32_t segment;           /* while rendering: of the pieces to come */
    uint32_t automatic_ttl_s;   /* the body has cache_control at its top: the last block is marked; else 0 */
    size_t bytes;               /* of the whole text */
} lar_rendering;

/* Renders a request. Borrows the view's tree; all memory is the arena's. A protocol without a prompt gives an empty
 * text. NO_MEMORY. */
LAR_MUST_USE lar_error lar_render_request(lar_rendering *r, const lar_request_view *v, lar_render_order order,
                                          lar_arena *arena);
/* Renders one message alone (an answer, as it would stand in the next request), or each element of an array of
 * items. */
LAR_MUST_USE lar_error lar_render_message(lar_rendering *r, const lar_json *j, uint32_t node, lar_protocol p,
                                          lar_arena *arena);
/* Appends the whole text. */
LAR_MUST_USE lar_error lar_render_text(const lar_rendering *r, lar_buf *out);

typedef struct lar_render_place {
    const lar_render_piece *piece;
    uint32_t node;        /* the innermost value or key there */
    uint32_t body_offset; /* the byte of the body; of a tag: where its value begins */
} lar_render_place;
/* Where byte `offset` of the rendering comes from; false if it is not in it. May use the arena. */
bool lar_render_where(const lar_rendering *r, size_t offset, lar_render_place *out);

#endif
