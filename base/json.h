/* The span tree: one pass over a JSON body that records where every value begins and ends.
 *
 * It copies nothing and prints nothing: number text, escapes, duplicate keys, order and white space
 * stay where they are in the body, and edits are splices (base/splice.h) of byte ranges.
 * Strict RFC 8259: one value, valid UTF-8 (RFC 3629), no lone control characters, nothing behind
 * the value but white space. One leading UTF-8 BOM is skipped (8.1). An escaped lone surrogate is
 * allowed and kept (8.2). Iterative: nesting never uses the C stack.
 *
 * Nodes are in document order (preorder). An object's children alternate key, value, key, value.
 * For any node i, nodes[i].next is the index behind its whole subtree. Node 0 is the root.
 *
 *     {"a":[1,2],"b":null}
 *     0 OBJECT  next 7  count 2        4 NUMBER "2"
 *     1 STRING "a" (KEY)               5 STRING "b" (KEY)
 *     2 ARRAY   next 5  count 2        6 NULL
 *     3 NUMBER "1"
 */
#ifndef LARDER_BASE_JSON_H
#define LARDER_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

typedef enum lar_json_kind {
    LAR_JSON_NULL,
    LAR_JSON_FALSE,
    LAR_JSON_TRUE,
    LAR_JSON_NUMBER,
    LAR_JSON_STRING,
    LAR_JSON_ARRAY,
    LAR_JSON_OBJECT
} lar_json_kind;

enum { LAR_JSON_ESCAPED = 1 /* the string holds a backslash */, LAR_JSON_KEY = 2 /* it is a member's name */ };

#define LAR_JSON_NONE UINT32_MAX /* "no such node" */

typedef struct lar_json_node {
    uint32_t start, end; /* byte offsets in the body, quotes and brackets included */
    uint32_t next;       /* index of the node behind this subtree */
    uint32_t count;      /* ARRAY: elements; OBJECT: members; else 0 */
    uint16_t depth;      /* root 0 */
    uint8_t kind;        /* lar_json_kind */
    uint8_t flags;
} lar_json_node;

typedef struct lar_json_limits {
    uint32_t depth_max; /* nesting levels */
    uint32_t nodes_max; /* values and keys */
} lar_json_limits;

#define LAR_JSON_LIMITS_DEFAULT ((lar_json_limits){.depth_max = 256, .nodes_max = 4u << 20})

/* Embedded; owns `nodes` and a work stack, both kept for the next parse. Borrows the body. */
typedef struct lar_json {
    lar_slice body;
    lar_json_node *nodes;
    uint32_t count;
    uint32_t nodes_cap;
    uint32_t *stack;
    uint32_t stack_cap;
} lar_json;

void lar_json_init(lar_json *j);
void lar_json_release(lar_json *j);

/* Parses `body` (borrowed until the next parse or release; under 4 GiB).
 * Errors: JSON_SYNTAX, JSON_UTF8, JSON_DEPTH, JSON_SIZE with the byte offset in `d`; NO_MEMORY.
 * After an error the tree is empty (count 0). */
LAR_MUST_USE lar_error lar_json_parse(lar_json *j, lar_slice body, const lar_json_limits *limits, lar_diag *d);
/* The same tree by the plain byte-at-a-time scanner: the reference for tests. */
LAR_MUST_USE lar_error lar_json_parse_scalar(lar_json *j, lar_slice body, const lar_json_limits *limits, lar_diag *d);

/* -- reading; `node` indexes are valid nodes or LAR_JSON_NONE, which every reader accepts ---------- */

static inline lar_json_kind lar_json_kind_of(const lar_json *j, uint32_t node) {
    return node < j->count ? (lar_json_kind)j->nodes[node].kind : LAR_JSON_NULL;
}
static inline bool lar_json_is(const lar_json *j, uint32_t node, lar_json_kind kind) {
    return node < j->count && j->nodes[node].kind == (uint8_t)kind;
}
/* The value's bytes as they stand in the body, quotes included. Empty for NONE. */
lar_slice lar_json_raw(const lar_json *j, uint32_t node);
/* A string's bytes between its quotes, escapes as written. Empty when it is no string. */
lar_slice lar_json_inner(const lar_json *j, uint32_t node);
/* True if the string (escapes decoded) equals `text`. */
bool lar_json_eq(const lar_json *j, uint32_t node, lar_slice text);

/* Value of the first member named `name` (compared decoded); NONE if absent or `object` is no object. */
uint32_t lar_json_get(const lar_json *j, uint32_t object, const char *name);
/* How many members have that name (more than 1 = duplicate). */
uint32_t lar_json_get_count(const lar_json *j, uint32_t object, const char *name);
/* Value of the last member named `name`, as most readers of JSON take it. */
uint32_t lar_json_get_last(const lar_json *j, uint32_t object, const char *name);
/* The i-th element of an array; NONE behind the end. O(i): to walk all, use first/next below. */
uint32_t lar_json_at(const lar_json *j, uint32_t array, uint32_t i);

/* Children in order. ARRAY: for (c = first(j, a); c != NONE; c = after(j, a, c)) visits elements.
 * OBJECT: visits the keys; the value of key k is k + 1. */
static inline uint32_t lar_json_first(const lar_json *j, uint32_t parent) {
    return parent < j->count && j->nodes[parent].count ? parent + 1 : LAR_JSON_NONE;
}
static inline uint32_t lar_json_after(const lar_json *j, uint32_t parent, uint32_t child) {
    uint32_t n = j->nodes[child].flags & LAR_JSON_KEY ? j->nodes[child + 1].next : j->nodes[child].next;
    return n < j->nodes[parent].next ? n : LAR_JSON_NONE;
}

/* Appends the decoded text of a string. Escapes become UTF-8; a lone surrogate becomes its
 * three-byte form (CESU), so that different inputs stay different. INVALID if it is no string. */
LAR_MUST_USE lar_error lar_json_decode(const lar_json *j, uint32_t node, lar_buf *out);
/* Appends `text` (UTF-8) escaped for use inside a JSON string, without quotes: only what RFC 8259 7
 * requires is escaped, non-ASCII stays raw; a surrogate in the form that lar_json_decode gives a lone
 * one becomes \uXXXX again. INVALID if it is not UTF-8 otherwise; `out` is then as it was. */
LAR_MUST_USE lar_error lar_json_escape(lar_buf *out, lar_slice text);
/* A non-negative integer written plainly (no sign, dot or exponent) that fits; false otherwise. */
bool lar_json_u64(const lar_json *j, uint32_t node, uint64_t *out);
/* Any number as double, for prices and settings, never for bodies that go on; false if it is none, is
 * not finite as a double or is written with more than 511 bytes. */
bool lar_json_double(const lar_json *j, uint32_t node, double *out);
/* Appends the RFC 6901 pointer of `node`, e.g. /messages/3/content; a key's is that of its member.
 * Of several members with one name all have the same pointer. */
LAR_MUST_USE lar_error lar_json_pointer(const lar_json *j, uint32_t node, lar_buf *out);

#endif
