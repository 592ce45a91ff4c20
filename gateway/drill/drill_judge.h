/* What a client must see of a scene, by docs/failures.md and the chain that the operator wrote; and whether it did. */
#ifndef LARDER_GATEWAY_DRILL_JUDGE_H
#define LARDER_GATEWAY_DRILL_JUDGE_H

#include "gateway/drill/drill_ask.h"
#include "gateway/drill/drill_stand_in.h"

typedef enum lar_drill_must {
    LAR_DRILL_MUST_ANSWER,  /* the whole answer of target `by` */
    LAR_DRILL_MUST_PASS_ON, /* target `by`'s own refusal, as it was */
    LAR_DRILL_MUST_TELL,    /* an error in the protocol's form, by status or as an event, and no clean end */
    LAR_DRILL_MUST_BREAK,   /* what target `by` said, then an error event and no clean end */
    LAR_DRILL_MUST_CONTINUE /* what target `by` said, then what a model of this process makes of it, and a clean end */
} lar_drill_must;

typedef struct lar_drill_expect {
    lar_drill_must must;
    uint32_t by, or_by;                   /* or_by: LAR_DRILL_NONE, or as good */
    uint16_t status;                      /* PASS_ON */
    bool retry_after;                     /* the answer must name a time to come back */
    bool no_last_event;                   /* ANSWER: the upstream itself left it out */
    bool alone;                           /* nobody is behind the one that failed */
    lar_failure failure;                  /* NONE: not looked at */
    uint32_t most[LAR_DRILL_TARGETS_MAX]; /* requests to a target */
} lar_drill_expect;

/* Pure, as all of this. */
lar_drill_expect lar_drill_expect_of(const lar_drill_scene *s, const lar_drill_plan *p, uint32_t round);

typedef struct lar_drill_verdict {
    bool held;
    uint32_t by;   /* who answered; LAR_DRILL_NONE: larder itself, or nobody */
    uint32_t lost; /* tokens that an upstream made and the client did not get */
    int64_t wrong; /* bytes that are not the answering upstream's; -1: there is nothing to compare with */
    char why[LAR_DRILL_WHY_BYTES]; /* held: a remark, or "" */
} lar_drill_verdict;

/* Compares what was seen on both sides with what must be. */
lar_drill_verdict lar_drill_judge(const lar_drill_scene *s, const lar_drill_expect *e, const lar_drill_saw *saw,
                                  const lar_drill_seen *seen);
/* As a configuration has it: "300s", "1255ms". Returns `out`. */
enum { LAR_DRILL_TIME_BYTES = 24 };
const char *lar_drill_time(uint32_t ms, char out[LAR_DRILL_TIME_BYTES]);
/* For a scene that failed: which option of the configuration explains it; "" if none does. */
void lar_drill_explain(const lar_drill_scene *s, const lar_drill_plan *p, char why[LAR_DRILL_WHY_BYTES]);

#endif
