/* What a stand-in does to one request: its part of the scene under way. No sockets. */
#ifndef LARDER_GATEWAY_DRILL_PLAY_H
#define LARDER_GATEWAY_DRILL_PLAY_H

#include "gateway/drill/drill_stand_in.h"
#include "gateway/http1/http1.h"

enum { LAR_DRILL_BODY_BYTES_MAX = LAR_DRILL_PROMPT_BYTES_MAX + 65536 };

/* What becomes of a connection once an answer, or what there is of it, is sent. */
typedef enum lar_drill_after {
    LAR_DRILL_AFTER_KEEP,
    LAR_DRILL_AFTER_CLOSE,
    LAR_DRILL_AFTER_RESET,
    LAR_DRILL_AFTER_SILENCE /* nothing more, until the peer leaves */
} lar_drill_after;

typedef struct lar_drill_stage {
    const lar_drill_plan *plan;
    uint32_t scene, round; /* under way; scene LAR_DRILL_NONE: none */
    lar_drill_seen seen[LAR_DRILL_TARGETS_MAX];
    uint32_t strays;
    uint32_t pause_ms; /* before what the last request got is sent */
    lar_json json;
} lar_drill_stage;

/* Embedded. Borrows the plan. */
void lar_drill_stage_init(lar_drill_stage *s, const lar_drill_plan *plan);
void lar_drill_stage_release(lar_drill_stage *s);
void lar_drill_stage_begin(lar_drill_stage *s, uint32_t scene, uint32_t round);
/* The head of a request is there: true if its connection is to be reset now. */
bool lar_drill_cuts_upload(lar_drill_stage *s, const lar_http1_head *h);
/* A whole request: counts it and appends what is sent for it, framing and all. NO_MEMORY, LIMIT. */
LAR_MUST_USE lar_error lar_drill_play(lar_drill_stage *s, const lar_http1_head *h, lar_slice body, lar_buf *out,
                                      lar_drill_after *after);

#endif
