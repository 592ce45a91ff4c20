/* The drill's client: one request over one connection, and all that can be seen of its answer. */
#ifndef LARDER_GATEWAY_DRILL_ASK_H
#define LARDER_GATEWAY_DRILL_ASK_H

#include "gateway/drill/drill_plan.h"

enum { LAR_DRILL_NAME_BYTES = 112, LAR_DRILL_MESSAGE_BYTES = 240, LAR_DRILL_ANSWER_BYTES_MAX = 4 << 20 };

typedef struct lar_drill_saw {
    const char *trouble; /* why there is no answer; NULL: there is a head at least */
    uint16_t status;
    bool streamed;                              /* it is a stream of events */
    bool whole;                                 /* framed to its end */
    bool last_event;                            /* the protocol's own end came */
    bool error;                                 /* it is, or holds, an error in the protocol's form */
    bool retry_after;                           /* it names a time to come back */
    size_t error_at;                            /* where in a stream's body the first error event begins */
    char by[LAR_DRILL_NAME_BYTES], failure[24]; /* x-larder-served-by, as the operator knows it; x-larder-failure */
    char message[LAR_DRILL_MESSAGE_BYTES];      /* of the error, made harmless */
    int64_t first_us, total_us;                 /* to the first content, -1: none came; to the end */
    lar_buf body;
} lar_drill_saw;

typedef struct lar_drill_question {
    uint16_t port;
    uint32_t scene; /* asked under its prefix */
    lar_protocol protocol;
    const char *model;
    bool streamed, tool;
    uint32_t prompt_bytes; /* at least */
    uint32_t tokens_max;   /* of the answer, as far as a protocol lets few be asked for */
    int interrupted;       /* a descriptor that becomes readable when the drill is to stop */
} lar_drill_question;

void lar_drill_saw_init(lar_drill_saw *saw);
void lar_drill_saw_release(lar_drill_saw *saw);
/* Asks and fills `saw`. What goes wrong with the answer is a finding (saw->trouble). BUSY: the drill is to stop;
 * NO_MEMORY, IO: it cannot be asked at all. */
LAR_MUST_USE lar_error lar_drill_ask(const lar_drill_question *q, lar_drill_saw *saw);

#endif
