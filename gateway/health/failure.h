/* Classes of failure (failure.def): whether a request may be sent again, to whom, and whether the upstream is to blame.
 * */
#ifndef LARDER_GATEWAY_FAILURE_H
#define LARDER_GATEWAY_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

typedef enum lar_failure {
#define LAR_FAILURE(id, name, same, other, counts, text) LAR_FAILURE_##id,
#include "gateway/health/failure.def"
#undef LAR_FAILURE
    LAR_FAILURE_COUNT
} lar_failure;

typedef enum lar_resend { LAR_RESEND_NO, LAR_RESEND_YES, LAR_RESEND_LATER } lar_resend;

typedef struct lar_failure_info {
    const char *name, *text;
    lar_resend same; /* to the same upstream */
    bool other;      /* to the next target of a chain */
    bool counts;     /* against the upstream */
} lar_failure_info;
const lar_failure_info *lar_failure_info_of(lar_failure f);

/* How far an attempt had come. */
typedef enum lar_attempt_stage {
    LAR_ATTEMPT_UNSENT,  /* not all of the request had left, and nothing of it can have been executed */
    LAR_ATTEMPT_SENT,    /* no head yet */
    LAR_ATTEMPT_HEAD,    /* a head of success, and nothing that a client could show */
    LAR_ATTEMPT_CONTENT, /* content went on to the client */
} lar_attempt_stage;

/* Of an error of larder's own; NONE for errors that are neither the upstream's nor the way's. */
lar_failure lar_failure_of_error(lar_error e, lar_attempt_stage stage);
/* Of an answer's status. `asks_to_wait`: it names a time to come back (retry_after.h). `body`: what is there of it, for
 * the one case that no status tells: a 400 or 413 for a prompt over the context, by OpenAI's code
 * context_length_exceeded or the words that providers use for it. */
lar_failure lar_failure_of_status(int status, bool asks_to_wait, lar_slice body);

#endif
