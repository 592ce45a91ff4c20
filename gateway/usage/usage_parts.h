/* The usage reader's inside, shared by usage*.c only. Nodes index u->json. */
#ifndef LARDER_GATEWAY_USAGE_PARTS_H
#define LARDER_GATEWAY_USAGE_PARTS_H

#include "gateway/usage/usage.h"

/* Members of a root that matter, by the length of their names: a key is compared with those of its own length only. */
#define USAGE_ROOT_4(X) X(4, TYPE, "type") X(4, DATA, "data")
#define USAGE_ROOT_5(X) X(5, ERROR, "error") X(5, DELTA, "delta") X(5, USAGE, "usage")
#define USAGE_ROOT_6(X)                                                                                                \
    X(6, OBJECT, "object") X(6, STATUS, "status") X(6, DETAIL, "detail") X(6, OUTPUT, "output") X(6, GROQ, "x_groq")
#define USAGE_ROOT_7(X) X(7, CHOICES, "choices") X(7, CONTENT, "content") X(7, MESSAGE, "message")
#define USAGE_ROOT_8(X) X(8, RESPONSE, "response")
#define USAGE_ROOT_10(X) X(10, CANDIDATES, "candidates")
#define USAGE_ROOT_13(X) X(13, BLOCK, "content_block") X(13, METADATA, "usageMetadata")
#define USAGE_ROOT(X)                                                                                                  \
    USAGE_ROOT_4(X)                                                                                                    \
    USAGE_ROOT_5(X) USAGE_ROOT_6(X) USAGE_ROOT_7(X) USAGE_ROOT_8(X) USAGE_ROOT_10(X) USAGE_ROOT_13(X)
typedef enum usage_root {
#define X(len, id, name) USAGE_ROOT_##id,
    USAGE_ROOT(X)
#undef X
        USAGE_ROOT_COUNT
} usage_root;

/* A set of member names. Their rows are X(len, id, name) in macros SET_<len>; `find` is a switch over the lengths, one
 * USAGE_NAMES_OF(SET, len) a length, with MATCH(len, id, name) returning the id's index. */
typedef struct usage_names {
    const lar_slice *names;
    uint32_t count;
    uint32_t (*find)(const char *key, size_t len); /* index in `names`, or `count` */
} usage_names;

#define USAGE_NAMES_OF(set, length)                                                                                    \
    case length: {                                                                                                     \
        set##_##length(MATCH)                                                                                          \
    } break;
#define USAGE_MATCH(length, name, index)                                                                               \
    _Static_assert(sizeof(name) - 1 == (length), "a name among those of another length");                              \
    if (memcmp(key, name, length) == 0) return (index);

/* What one event or answer said besides its usage. */
typedef struct usage_marks {
    uint32_t root[USAGE_ROOT_COUNT]; /* value nodes, or NONE */
    bool error, finished, done, content;
    int32_t choice;     /* the one choice it is about; -1: none or several */
    bool choices_empty; /* `choices` is an empty array */
} usage_marks;

/* lar_usage_members for a name that is written with escapes. */
uint32_t lar_usage_find_escaped(const lar_json *j, uint32_t key, const usage_names *names);

/* For each name the value of the object's last member so called, or NONE; one walk over the members. Inline, so that
 * `find` is known where it is called. */
static inline void lar_usage_members(const lar_json *j, uint32_t object, const usage_names *names, uint32_t *out) {
    for (uint32_t i = 0; i < names->count; i++) out[i] = LAR_JSON_NONE;
    if (!lar_json_is(j, object, LAR_JSON_OBJECT)) return;
    const lar_json_node *nodes = j->nodes;
    const uint32_t end = nodes[object].next;
    for (uint32_t k = object + 1; k < end; k = nodes[k + 1].next) {
        const lar_json_node *n = &nodes[k];
        uint32_t i = n->flags & LAR_JSON_ESCAPED
                         ? lar_usage_find_escaped(j, k, names)
                         : names->find(j->body.ptr + n->start + 1, (size_t)(n->end - n->start) - 2);
        if (i < names->count) out[i] = k + 1;
    }
}

/* Reads error, end and content marks of the tree's root, which is an object. */
void lar_usage_read_marks(const lar_json *j, usage_marks *m);

/* True if `data` may hold a usage, an error or an end: a cheap look that errs on the side of true. */
bool lar_usage_may_matter(lar_slice data);

/* The usage object of an event or answer, wherever its protocol keeps it; NONE if absent or null. */
uint32_t lar_usage_find(const lar_json *j, const usage_marks *m);
/* Takes the numbers of a usage object. False if it holds none. */
bool lar_usage_read_object(lar_usage *u, uint32_t node, const usage_marks *m);

#endif
