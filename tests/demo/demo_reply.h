/* The demo upstream's answers: one answer (text, reasoning, tool calls) in each protocol's spelling, whole or as
 * a stream that is made event by event. */
#ifndef LARDER_TESTS_DEMO_REPLY_H
#define LARDER_TESTS_DEMO_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "demo_cache.h"
#include "demo_prompt.h"

enum { DEMO_CALLS_MAX = 32 };

typedef struct demo_call {
    lar_buf id, name, arguments; /* decoded text */
} demo_call;

/* Embedded; owns its buffers. */
typedef struct demo_answer {
    lar_buf text, reasoning;
    lar_buf raw; /* the message as it was planned, printed as it is in a plain chat answer; may be empty */
    demo_call calls[DEMO_CALLS_MAX];
    uint32_t call_count;
    bool has_text; /* false: content is null */
} demo_answer;

void demo_answer_init(demo_answer *a);
void demo_answer_release(demo_answer *a);
/* From an assistant message in the chat form. */
void demo_answer_from_message(demo_answer *a, lar_slice message);
/* A call of the first offered tool, its required arguments filled in; false if there is none. */
bool demo_answer_call(demo_answer *a, const demo_ask *ask);
/* Appends the answer as the chat template prints it. */
void demo_answer_render(const demo_answer *a, lar_buf *out);

typedef enum demo_phase {
    DEMO_PHASE_OPEN, DEMO_PHASE_REASON, DEMO_PHASE_TEXT, DEMO_PHASE_CALLS, DEMO_PHASE_FINISH, DEMO_PHASE_END
} demo_phase;

/* Embedded; `answer` is owned by it. */
typedef struct demo_reply {
    demo_proto proto;
    demo_rule rule;
    demo_answer answer;
    demo_usage usage;
    lar_buf model; /* as a JSON string, with quotes */
    uint64_t number, created;
    uint32_t piece_chars; /* characters of text in one event */
    bool include_usage;
    bool clock_text; /* each piece of text is the monotonic clock in ns when it is made; `pieces_left` of them */
    uint32_t pieces_left;
    bool no_done;    /* the stream ends without its last event */
    /* where the stream stands */
    demo_phase phase;
    uint32_t call, sequence, pieces; /* pieces: events with text made so far */
    size_t at;
    bool call_open;
} demo_reply;

void demo_reply_init(demo_reply *r);
void demo_reply_release(demo_reply *r);
/* The whole answer as one JSON body. */
void demo_reply_plain(const demo_reply *r, lar_buf *out);
/* Appends the stream's next event or events; false when there are no more. */
bool demo_reply_step(demo_reply *r, lar_buf *out);
/* Embeddings: one small vector for each input. */
void demo_reply_embeddings(const demo_reply *r, const demo_ask *ask, lar_buf *out);
/* An error body in the protocol's format. */
void demo_reply_error(demo_proto proto, int status, const char *message, lar_buf *out);
/* Appends the usage object that the provider of this rule would print. */
void demo_reply_usage(const demo_reply *r, lar_buf *out);

#endif
