/* What the demo upstream reads of a request body: its parameters, and its prompt as one text, as a chat template
 * would print it. All slices borrow the body. */
#ifndef LARDER_TESTS_DEMO_PROMPT_H
#define LARDER_TESTS_DEMO_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

typedef enum demo_proto {
    DEMO_CHAT,
    DEMO_COMPLETIONS,
    DEMO_RESPONSES,
    DEMO_MESSAGES,
    DEMO_EMBEDDINGS,
    DEMO_NO_PROTO
} demo_proto;

typedef struct demo_ask {
    demo_proto proto;
    lar_slice model;    /* a string with its quotes; empty if absent */
    lar_slice messages; /* messages, input or prompt */
    lar_slice system;   /* system or instructions */
    lar_slice tools;    /* an array that is not empty, or nothing */
    lar_slice encoding; /* encoding_format */
    bool stream;
    bool include_usage; /* stream_options.include_usage */
} demo_ask;

/* By the path's end, with or without /v1 before it. */
demo_proto demo_proto_of(lar_slice path);
/* False if the body is no JSON object. */
bool demo_ask_read(demo_ask *a, demo_proto proto, lar_slice body);

/* Appends the prompt's text. system_first: the system text is printed before the tools. */
typedef enum demo_order { DEMO_TOOLS_FIRST, DEMO_SYSTEM_FIRST } demo_order;
void demo_prompt_render(const demo_ask *a, demo_order order, lar_buf *out);
/* Appends one chat message, as the template prints it. */
void demo_prompt_message(lar_slice message, lar_buf *out);

/* True if the newest entry of the conversation is the user's, holds the word TOOLCALL, and tools were offered. */
bool demo_ask_wants_call(const demo_ask *a);
/* The first offered function: its name (a quoted string) and JSON schema (empty if none). False if none. */
bool demo_ask_first_tool(const demo_ask *a, lar_slice *name, lar_slice *schema);

#endif
