/* The usage reader's inside, shared by usage*.c only. Nodes index u->json. */
#ifndef LARDER_GATEWAY_USAGE_PARTS_H
#define LARDER_GATEWAY_USAGE_PARTS_H

#include "gateway/usage/usage.h"

/* What one event or answer said besides its usage. */
typedef struct usage_marks {
    bool error, finished, done, content;
    int32_t choice;      /* the one choice it is about; -1: none or several */
    bool choices_empty;  /* `choices` is an empty array */
} usage_marks;

/* Reads error, end and content marks of the tree's root, which is an object. */
void lar_usage_read_marks(const lar_json *j, usage_marks *m);

/* True if `data` may hold a usage, an error or an end: a cheap look that errs on the side of true. */
bool lar_usage_may_matter(lar_slice data);

/* The usage object of an event or answer, wherever its protocol keeps it; NONE if absent or null. */
uint32_t lar_usage_find(const lar_json *j);
/* Takes the numbers of a usage object. False if it holds none. */
bool lar_usage_read_object(lar_usage *u, uint32_t node, const usage_marks *m);

#endif
