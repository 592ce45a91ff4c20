/* The demo upstream's requests: what is answered, when, and how it is made to fail. */
#ifndef LARDER_TESTS_DEMO_SERVER_H
#define LARDER_TESTS_DEMO_SERVER_H

#include "demo_cache.h"
#include "demo_log.h"
#include "demo_reply.h"
#include "demo_wire.h"

typedef enum demo_failure {
    DEMO_FAIL_NONE,
    DEMO_FAIL_STATUS,    /* n: the status */
    DEMO_FAIL_ERROR_200, /* an error object with status 200 */
    DEMO_FAIL_RESET,     /* RST instead of an answer */
    DEMO_FAIL_CLOSE,     /* FIN instead of an answer */
    DEMO_FAIL_HANG,      /* no byte for n seconds, then RST */
    DEMO_FAIL_GARBAGE,   /* bytes that are no HTTP */
    DEMO_FAIL_CUT,       /* RST after n events with text, or in the middle of a plain body */
    DEMO_FAIL_END,       /* FIN there, without the last chunk */
    DEMO_FAIL_STALL,     /* silence there */
    DEMO_FAIL_SLOW,      /* the first byte comes after n ms */
    DEMO_FAIL_DRIP,      /* an event every n ms */
    DEMO_FAIL_NO_DONE,   /* a stream that ends without its last event */
    DEMO_FAIL_HINTS      /* an informational answer (103) first */
} demo_failure;

typedef struct demo_plan {
    demo_failure failure;
    uint64_t n, times;
} demo_plan;

typedef struct demo_server_options {
    demo_rule rule;
    uint64_t log_entries;
    lar_slice answer;
    uint64_t events;   /* events with text in a stream; 0 = as the text's length asks for */
    uint64_t event_ms; /* between two of them */
    uint64_t keepalive_timeout_s; /* announced in Keep-Alive; 0 = not */
    bool event_clock;  /* each event's text is the monotonic clock in ns */
} demo_server_options;

typedef struct demo_server demo_server;
demo_server *demo_server_new(const demo_server_options *o);
void demo_server_free(demo_server *s);
/* Callbacks for demo_wire_new; `wire` is told afterwards, for its counters. */
demo_wire_ops demo_server_ops(demo_server *s);
void demo_server_set_wire(demo_server *s, const demo_wire *wire);

/* "status-503", "cut:3", "cut-after-3", "hang": what a model's name or a planned failure's mode asks for. */
demo_plan demo_plan_of(lar_slice name);

#endif
