/* Calls of tools and their results in a request's history: what belongs together, and what is broken.
 *
 * Valid is a history in which each call has one result right behind the message that made it: chat's tool messages,
 * the tool_result blocks that open the next user message, or an output item before the client's next message.
 * A result answers a call of the same id. Of equal ids the result's own turn comes first, then the call nearest in
 * front of it, then the nearest behind. All slices borrow the body; all memory is the given arena's. */
#ifndef LARDER_POLICIES_HISTORY_H
#define LARDER_POLICIES_HISTORY_H

#include "base/hash.h"
#include "policies/notes.h"
#include "policies/protocol.h"

typedef enum lar_history_flaw {
    LAR_HISTORY_FINE,
    LAR_HISTORY_UNANSWERED, /* a call that no result answers */
    LAR_HISTORY_ORPHAN,     /* a result whose call is not there */
    LAR_HISTORY_DUPLICATE,  /* one more result of a call that has one */
    LAR_HISTORY_MISPLACED,  /* a result that does not stand right behind its call */
    LAR_HISTORY_SAME_ID,    /* a call with the id of an earlier one; never mended */
    LAR_HISTORY_NO_ID       /* a call or a result without an id; never mended */
} lar_history_flaw;

typedef struct lar_history_call {
    uint32_t node, segment; /* entry of tool_calls, tool_use block, or item; the segment that holds it */
    uint32_t place;         /* its index in that list; 0 for items */
    uint32_t turn;          /* index in turns */
    uint32_t result;        /* index in results, or NONE */
    lar_slice id;           /* as written, without its quotes */
    lar_hash key;           /* of the decoded id */
    lar_history_flaw flaw;  /* UNANSWERED, SAME_ID, NO_ID or FINE */
    bool twin;              /* its own turn has that id already */
} lar_history_call;

typedef struct lar_history_result {
    uint32_t node, segment; /* message, tool_result block, or item; the segment that holds it */
    uint32_t place;
    uint32_t turn; /* of the calls that it stands behind, or NONE */
    uint32_t call; /* index in calls, or NONE */
    lar_slice id;
    lar_hash key;
    lar_history_flaw flaw; /* ORPHAN, DUPLICATE, MISPLACED, NO_ID or FINE */
    bool leads;            /* nothing but results stands between it and the calls */
    uint32_t calls_before; /* how many calls stand in front of it */
} lar_history_result;

/* What one turn of the model called. */
typedef struct lar_history_turn {
    uint32_t call, call_count; /* first of its calls, how many */
    uint32_t segment;          /* the last of its messages */
} lar_history_turn;

typedef struct lar_history {
    const lar_request_view *view; /* borrowed */
    lar_history_call *calls;
    lar_history_result *results;
    lar_history_turn *turns;
    uint32_t call_count, call_cap, result_count, result_cap, turn_count, turn_cap;
    uint32_t first; /* segment of the first message: 1 behind a top-level system or instructions */
    bool open;      /* earlier calls may lie on the provider's side: no result is an orphan */
    bool veiled;    /* an item may be a result by reference: no call counts as unanswered */
    bool broken;    /* something is UNANSWERED, ORPHAN, DUPLICATE or MISPLACED */
} lar_history;

/* Other protocols than chat, responses and messages have no history: nothing is found in them.
 * LIMIT if there is more than 65536 of calls and results or too many of one id; NO_MEMORY. */
LAR_MUST_USE lar_error lar_history_read(const lar_request_view *v, lar_arena *arena, lar_history *out);

/* Notes (rule LR015) on every flaw, and on tool output pasted into user text, in the order of the body. `provider`:
 * "openai", "deepseek", "anthropic"; empty: whoever made the protocol. What it would answer is known for these alone.
 * Errors as above. */
LAR_MUST_USE lar_error lar_history_check(const lar_request_view *v, lar_slice provider, lar_notes *notes);

/* LR015, rules/tool_history.c: the splices (finished) that make a broken history valid; none if it is not broken or
 * over a bound. `found`: it is broken. A message of the assistant keeps its bytes; twice changes no more than once.
 * Errors: NO_MEMORY, LIMIT; then nothing must be edited. */
LAR_MUST_USE lar_error lar_rule_tool_history(const lar_request_view *v, lar_arena *arena, lar_splices *edits,
                                             bool *found);

#endif
