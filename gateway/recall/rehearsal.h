/* Requests through the rules without a gateway: what larder would have sent, in the order in which they came, with a
 * memory of its own in this process. Sends nothing. For `larder replay`, `larder diff` and `larder lint --fix`. */
#ifndef LARDER_GATEWAY_REHEARSAL_H
#define LARDER_GATEWAY_REHEARSAL_H

#include "policies/canon.h"

typedef struct lar_rehearsal lar_rehearsal;

typedef struct lar_rehearsed {
    lar_slice body; /* as it would go upstream; lives until the next call, or is the given one if nothing was edited */
    bool edited;
    uint64_t rules_fired, rules_seen;   /* bit r: rule r edited, or found something */
    uint32_t edits;                     /* places in the body */
    uint32_t rule_edits[LAR_RULE_COUNT]; /* findings that were edited, by rule */
} lar_rehearsed;

typedef struct lar_rehearsal_request {
    lar_slice body; /* borrowed */
    lar_protocol protocol;
    int64_t now_ms; /* wall clock at which it is sent */
} lar_rehearsal_request;

/* `rules_off`: as in lar_canon_options. `memory_bytes`: of recall memory, least recently used first out; 0 = 64 MiB.
 * NULL when out of memory. */
lar_rehearsal *lar_rehearsal_new(uint64_t rules_off, uint64_t memory_bytes);
void lar_rehearsal_free(lar_rehearsal *r);

/* One request, as if the upstream accepted it. JSON_* for a body that is none, with the reason in `d`: a gateway would
 * have refused it. Whatever the rules cannot do leaves the body as it is. */
LAR_MUST_USE lar_error lar_rehearsal_send(lar_rehearsal *r, const lar_rehearsal_request *q,
                                          lar_rehearsed *out, lar_diag *d);

/* What the model answered to the last request: a message, or an array of items (lar_log_request). It is remembered as
 * the gateway would have (LR011, LR013). */
void lar_rehearsal_answer(lar_rehearsal *r, const lar_json *j, uint32_t node);

#endif
