/* What the demo upstream received, kept for tests to look at: the newest entries, bodies byte for byte. */
#ifndef LARDER_TESTS_DEMO_LOG_H
#define LARDER_TESTS_DEMO_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "demo_wire.h"

typedef struct demo_entry {
    lar_buf head;  /* "method":..,"target":..,"headers":[..] printed as JSON */
    lar_buf body;
    lar_buf usage; /* printed; empty = none yet */
    char failed[24];
    bool aborted;  /* the client left before the answer's end */
    bool done;     /* the answer was sent to its end */
} demo_entry;

/* Embedded. */
typedef struct demo_log {
    demo_entry *ring;
    uint64_t cap;   /* entries kept; 0 = nothing is kept, only counted */
    uint64_t count; /* requests seen since the start or reset */
    uint64_t aborted;
    uint64_t bytes; /* of bodies kept */
} demo_log;

void demo_log_init(demo_log *l, uint64_t entries_max);
void demo_log_release(demo_log *l);
void demo_log_reset(demo_log *l);
/* Takes the request's body where it is kept. Returns the entry's number. */
uint64_t demo_log_add(demo_log *l, const demo_request *r);
/* NULL if it is not kept (any more). */
demo_entry *demo_log_at(demo_log *l, uint64_t number);
void demo_log_print(demo_log *l, uint64_t from, lar_buf *out);

#endif
