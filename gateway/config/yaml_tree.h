/* A YAML document as a small tree with the place of every value. */
#ifndef LARDER_GATEWAY_YAML_TREE_H
#define LARDER_GATEWAY_YAML_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"

#define LAR_YAML_BYTES_MAX (1u << 20)
enum { LAR_YAML_DEPTH_MAX = 8, LAR_YAML_NODES_MAX = 65536, LAR_YAML_MEMBERS_MAX = 8192 };

typedef enum lar_yaml_kind { LAR_YAML_SCALAR, LAR_YAML_LIST, LAR_YAML_MAP } lar_yaml_kind;

typedef struct lar_yaml_node {
    lar_yaml_kind kind;
    bool quoted;               /* a scalar that was not written plainly */
    uint32_t line, column;     /* from 1 */
    uint32_t count;            /* of children */
    lar_slice text;            /* a scalar's value, NUL-terminated (it may hold NUL bytes too) */
    struct lar_yaml_node *key; /* its name, if it is a map's member */
    struct lar_yaml_node *first, *last, *next;
} lar_yaml_node;

/* Everything is copied into `arena`. `*root` is NULL for a document without content.
 * CONFIG with "<file>:<line>:<column>: ..." in `d` for syntax errors, several documents, duplicate or non-scalar keys,
 * anchors, aliases, tags, and whatever is over the limits above; NO_MEMORY. */
LAR_MUST_USE lar_error lar_yaml_parse(lar_slice text, const char *file, lar_arena *arena, const lar_yaml_node **root,
                                      lar_diag *d);

/* True for a plain scalar of no characters: `key:` with nothing behind it. */
static inline bool lar_yaml_is_empty(const lar_yaml_node *n) {
    return n->kind == LAR_YAML_SCALAR && !n->quoted && n->text.len == 0;
}

#endif
