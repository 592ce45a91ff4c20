/* What a stand-in says: one answer in each protocol's spelling, whole or as a stream's events, and errors. Each piece
 * of its text is one token and names who says it, so that an answer of two is seen. */
#ifndef LARDER_GATEWAY_DRILL_SCRIPT_H
#define LARDER_GATEWAY_DRILL_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "policies/protocol.h"

enum { LAR_DRILL_PIECES = 6, LAR_DRILL_PIECES_BEFORE_CUT = 3 };

typedef struct lar_drill_voice {
    lar_protocol protocol; /* CHAT, MESSAGES or RESPONSES */
    const char *name;      /* of the upstream */
    bool tool;             /* it calls a tool in place of saying text */
} lar_drill_voice;

typedef enum lar_drill_phase {
    LAR_DRILL_EARLY,  /* no content yet: the role, message_start, response.created */
    LAR_DRILL_OPEN,   /* the text's or call's opening; the call's is content */
    LAR_DRILL_PIECE,  /* content; `i` from 0 to LAR_DRILL_PIECES - 1 */
    LAR_DRILL_FINISH, /* the reason of the end and the usage */
    LAR_DRILL_LAST    /* [DONE], message_stop, response.completed */
} lar_drill_phase;

/* Appends the events of a phase; some have none. */
LAR_MUST_USE lar_error lar_drill_say(const lar_drill_voice *v, lar_drill_phase phase, uint32_t i, lar_buf *out);
/* Appends a whole answer of text. */
LAR_MUST_USE lar_error lar_drill_say_whole(const lar_drill_voice *v, lar_buf *out);
/* Appends an error as the protocol has it: a body, or an event of a stream. */
LAR_MUST_USE lar_error lar_drill_say_error(lar_protocol p, const char *code, const char *message, lar_buf *out);
LAR_MUST_USE lar_error lar_drill_say_error_event(lar_protocol p, const char *message, lar_buf *out);

typedef struct lar_drill_request {
    lar_protocol protocol;
    const char *model;
    bool streamed, tool;   /* tool: it offers one */
    uint32_t prompt_bytes; /* at least */
    uint32_t tokens_max;
} lar_drill_request;
/* Appends the body that a client sends. */
LAR_MUST_USE lar_error lar_drill_ask_body(const lar_drill_request *r, lar_buf *out);

#endif
