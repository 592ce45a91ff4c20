/* What a sloppy client does to a request that means the same as the one before. */
#ifndef LARDER_TESTS_DEMO_KINDS_H
#define LARDER_TESTS_DEMO_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

typedef enum demo_kind {
    DEMO_KIND_CLEAN,      /* nothing */
    DEMO_KIND_CLOCK,      /* the time in the system text: ISO before, an English sentence inside, or Chinese behind */
    DEMO_KIND_BILLING,    /* a billing header with a nonce before the system text */
    DEMO_KIND_TOOL_ORDER, /* tools in another order each time */
    DEMO_KIND_TEXT_FORM,  /* now and then a BOM, CR LF, blanks at the end */
    DEMO_KIND_MIXED,      /* several clients, each sloppy in one of the four ways above */
    DEMO_KIND_SCHEMA_KEYS, /* members of tools in another order each time */
    DEMO_KIND_ARGUMENTS,   /* arguments of calls parsed and printed anew each time */
    DEMO_KIND_REQUEST_ID,  /* the id of the request before the system text */
    DEMO_KIND_COUNTER,     /* turn and remaining budget behind it */
    DEMO_KIND_WORKDIR      /* a working directory of its own in every request, and the date, behind it */
} demo_kind;

bool demo_kind_find(const char *name, demo_kind *out);
/* The kind of one conversation: MIXED becomes one of the four. */
demo_kind demo_kind_of(demo_kind kind, uint32_t conversation);

/* A small generator, so that a run can be had again. State is the caller's; never 0. */
uint32_t demo_random(uint64_t *state, uint32_t below);

typedef struct demo_moment {
    int64_t ms;        /* since 1970, UTC */
    uint32_t variant;  /* 0 ISO, 1 sentence, 2 Chinese */
    uint32_t call;     /* in the conversation, from 0 */
} demo_moment;

/* Appends to out->text the system text as this client sends it. out->kept gets what the model must still be able to
 * read: what changes of a clock, a budget or a directory; it stays empty for the other kinds. */
typedef struct demo_system_out {
    lar_buf text, kept;
} demo_system_out;
void demo_kind_system(demo_kind kind, lar_slice text, const demo_moment *m, uint64_t *random, demo_system_out *out);

/* Appends the JSON text with the members of every object in a random order; ", " and ": " between. */
void demo_kind_shuffle(lar_slice value, uint64_t *random, lar_buf *out);

/* Appends the JSON text as another program would print it: shuffled, with or without blanks, escaped or not. */
void demo_kind_print_anew(lar_slice text, uint64_t *random, lar_buf *out);

#endif
