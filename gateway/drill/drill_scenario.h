/* What a drill can play, as rows of drill_scenario.def. */
#ifndef LARDER_GATEWAY_DRILL_SCENARIO_H
#define LARDER_GATEWAY_DRILL_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/health/failure.h"

typedef enum lar_drill_forms { LAR_DRILL_BOTH, LAR_DRILL_PLAIN, LAR_DRILL_STREAM } lar_drill_forms;
typedef enum lar_drill_where { LAR_DRILL_FIRST, LAR_DRILL_ALL, LAR_DRILL_BEFORE } lar_drill_where;
typedef enum lar_drill_course {
    LAR_DRILL_ONCE,
    LAR_DRILL_IDLE,
    LAR_DRILL_DIES,
    LAR_DRILL_REPLICA,
    LAR_DRILL_FLAP,
    LAR_DRILL_REST
} lar_drill_course;

typedef enum lar_drill_fault {
    LAR_DRILL_FAULT_NONE,
    /* Made by the configuration: no connection comes. */
    LAR_DRILL_FAULT_REFUSE,
    LAR_DRILL_FAULT_NAME,
    LAR_DRILL_FAULT_TLS,
    /* Made by the stand-in. */
    LAR_DRILL_FAULT_UPLOAD,
    LAR_DRILL_FAULT_CLOSE,
    LAR_DRILL_FAULT_RESET,
    LAR_DRILL_FAULT_HANG,
    LAR_DRILL_FAULT_GARBAGE,
    LAR_DRILL_FAULT_HEAD_CUT,
    LAR_DRILL_FAULT_STATUS,
    LAR_DRILL_FAULT_STATUS_CUT,
    LAR_DRILL_FAULT_RETRY_MS, /* the first time; then it is well */
    LAR_DRILL_FAULT_RETRY_SECONDS,
    LAR_DRILL_FAULT_RETRY_DATE,
    LAR_DRILL_FAULT_TOO_LONG,
    LAR_DRILL_FAULT_ERROR_200,
    LAR_DRILL_FAULT_BODY_CUT,
    LAR_DRILL_FAULT_BODY_STALL,
    LAR_DRILL_FAULT_CUT,
    LAR_DRILL_FAULT_STALL,
    LAR_DRILL_FAULT_ERROR_EVENT,
    LAR_DRILL_FAULT_GARBAGE_EVENT
} lar_drill_fault;

/* How far a stream comes. */
typedef enum lar_drill_point {
    LAR_DRILL_AT_HEAD,   /* no event */
    LAR_DRILL_AT_ROLE,   /* those before content */
    LAR_DRILL_AT_PIECES, /* some content */
    LAR_DRILL_AT_HALF,   /* and half of an event of it */
    LAR_DRILL_AT_TOOL,   /* some arguments of a tool call */
    LAR_DRILL_AT_LAST    /* all but the last event */
} lar_drill_point;

enum {
    LAR_DRILL_RETRY_MS = 50,
    LAR_DRILL_RETRY_SECONDS = 7200, /* more than any retry.wait */
    LAR_DRILL_FLAPS = 6,
    LAR_DRILL_REST_MAX = 50 /* breaker.requests over it: not played */
};

typedef enum lar_drill_id {
#define LAR_DRILL(id, name, moment, forms, where, course, fault, arg, failure, text) LAR_DRILL_ID_##id,
#include "gateway/drill/drill_scenario.def"
#undef LAR_DRILL
    LAR_DRILL_ID_COUNT
} lar_drill_id;

typedef struct lar_drill_scenario {
    const char *name, *moment, *text;
    lar_drill_forms forms;
    lar_drill_where where;
    lar_drill_course course;
    lar_drill_fault fault;
    uint32_t arg; /* a status, or a lar_drill_point */
    lar_failure failure;
} lar_drill_scenario;

const lar_drill_scenario *lar_drill_scenario_of(lar_drill_id id);

#endif
