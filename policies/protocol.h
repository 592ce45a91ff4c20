/* The shapes of request bodies that larder understands, and where their parts are.
 *
 * One view serves all: a request is tools, then segments: a top-level system or instructions first, wherever
 * the body holds it, then the messages in their order.
 * All node numbers index the lar_json tree the view was made from; the view borrows that tree. */
#ifndef LARDER_POLICIES_PROTOCOL_H
#define LARDER_POLICIES_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"

typedef enum lar_protocol {
    LAR_PROTOCOL_NONE,        /* passed through, not understood */
    LAR_PROTOCOL_CHAT,        /* POST /v1/chat/completions */
    LAR_PROTOCOL_COMPLETIONS, /* POST /v1/completions */
    LAR_PROTOCOL_RESPONSES,   /* POST /v1/responses */
    LAR_PROTOCOL_MESSAGES,    /* POST /v1/messages (Anthropic) */
    LAR_PROTOCOL_EMBEDDINGS,  /* POST /v1/embeddings */
    LAR_PROTOCOL_COUNT
} lar_protocol;

/* "chat", "messages"...; static text. */
const char *lar_protocol_name(lar_protocol p);

typedef enum lar_role {
    LAR_ROLE_SYSTEM, /* system or developer; Anthropic's top-level system; instructions */
    LAR_ROLE_USER,
    LAR_ROLE_ASSISTANT, /* model output: sacred */
    LAR_ROLE_TOOL,      /* a tool's result (chat role tool/function, Anthropic tool_result, function_call_output) */
    LAR_ROLE_OTHER      /* anything unknown: never edited */
} lar_role;

/* Members of the body itself that larder reads: all are found in one pass. The first ones must not stand there
 * twice. */
typedef enum lar_member {
    LAR_MEMBER_MODEL,
    LAR_MEMBER_MESSAGES,
    LAR_MEMBER_STREAM,
    LAR_MEMBER_STREAM_OPTIONS,
    LAR_MEMBER_TOOLS,
    LAR_MEMBER_SYSTEM,
    LAR_MEMBER_INPUT,
    LAR_MEMBER_INSTRUCTIONS,
    LAR_MEMBER_ONCE, /* how many of them */
    LAR_MEMBER_PROMPT = LAR_MEMBER_ONCE,
    LAR_MEMBER_PROMPT_CACHE_KEY,
    LAR_MEMBER_USER,
    LAR_MEMBER_SAFETY_IDENTIFIER,
    LAR_MEMBER_CACHE_SALT,
    LAR_MEMBER_METADATA,
    LAR_MEMBER_PREVIOUS_RESPONSE_ID,
    LAR_MEMBER_CONVERSATION,
    LAR_MEMBER_COUNT
} lar_member;
const char *lar_member_name(lar_member m);

typedef struct lar_segment {
    lar_role role;
    uint32_t node;    /* the whole segment (message object, input item, or the bare string) */
    uint32_t content; /* its content value (string, array of parts or null); NONE if absent */
} lar_segment;

typedef struct lar_request_view {
    const lar_json *json;
    lar_protocol protocol;
    uint32_t members[LAR_MEMBER_COUNT]; /* value of the first member of that name, or NONE */
    uint32_t model;          /* string node or NONE */
    uint32_t stream;         /* node or NONE */
    uint32_t stream_options; /* node or NONE */
    uint32_t tools;          /* array node or NONE */
    lar_segment *segments;   /* in the given arena */
    uint32_t segment_count;
    uint32_t turn_user;      /* index in segments: the user message that opens the current turn, or NONE */
    uint32_t turn;           /* how many user messages opened turns before this one (0 = first) */
    bool streamed;           /* stream is true */
    bool wants_usage;        /* stream_options.include_usage is true, or the protocol always streams usage */
} lar_request_view;

/* Reads the view. `j` must hold a parsed body and outlive the view.
 * JSON_SHAPE if the body is no object; JSON_DUPLICATE if model, messages, stream, stream_options, tools,
 * system, input or instructions stand there twice. Wrong types deeper down are no error: such a segment
 * has role OTHER and goes on untouched. */
LAR_MUST_USE lar_error lar_request_view_read(lar_request_view *v, const lar_json *j, lar_protocol p, lar_arena *arena,
                                             lar_diag *d);

#endif
