/* The usage reader's inside, shared by usage*.c only. Nodes index u->json. */
#ifndef LARDER_GATEWAY_USAGE_PARTS_H
#define LARDER_GATEWAY_USAGE_PARTS_H

#include "gateway/usage/usage.h"

/* Members of a root that matter. */
#define USAGE_ROOT(X)                                                                                                  \
    X(ERROR, "error")                                                                                                  \
    X(OBJECT, "object") X(TYPE, "type") X(STATUS, "status") X(DETAIL, "detail") X(CHOICES, "choices")                  \
        X(CONTENT, "content") X(OUTPUT, "output") X(DATA, "data") X(RESPONSE, "response") X(CANDIDATES, "candidates")  \
            X(DELTA, "delta") X(BLOCK, "content_block") X(MESSAGE, "message") X(USAGE, "usage")                        \
                X(METADATA, "usageMetadata") X(GROQ, "x_groq")
typedef enum usage_root {
#define X(id, name) USAGE_ROOT_##id,
    USAGE_ROOT(X)
#undef X
        USAGE_ROOT_COUNT
} usage_root;

/* What one event or answer said besides its usage. */
typedef struct usage_marks {
    uint32_t root[USAGE_ROOT_COUNT]; /* value nodes, or NONE */
    bool error, finished, done, content;
    int32_t choice;     /* the one choice it is about; -1: none or several */
    bool choices_empty; /* `choices` is an empty array */
} usage_marks;

/* For each name the value of the object's last member so called, or NONE; one walk over the members. */
void lar_usage_members(const lar_json *j, uint32_t object, const lar_slice *names, size_t count, uint32_t *out);

/* Reads error, end and content marks of the tree's root, which is an object. */
void lar_usage_read_marks(const lar_json *j, usage_marks *m);

/* True if `data` may hold a usage, an error or an end: a cheap look that errs on the side of true. */
bool lar_usage_may_matter(lar_slice data);

/* The usage object of an event or answer, wherever its protocol keeps it; NONE if absent or null. */
uint32_t lar_usage_find(const lar_json *j, const usage_marks *m);
/* Takes the numbers of a usage object. False if it holds none. */
bool lar_usage_read_object(lar_usage *u, uint32_t node, const usage_marks *m);

#endif
