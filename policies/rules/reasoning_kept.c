/* LR013: reasoning that a client leaves out is put back where a provider asks for it.
 * Called by canon_recall.c; never blocks. DeepSeek's thinking mode answers 400 if a message of a turn with tool calls
 * comes back without its `reasoning_content`, and its cache holds the message with it. The text lies in the memory of
 * texts (output.c), in the scope, under what the message means.
 * Invariants: 1. only chat messages of the model that have no member of that name, in turns with tool calls. 2. it is
 * a new member at the message's end; all other bytes stay. 3. the last message, if it is the model's, stays. */
#include "policies/canon_state.h"

enum { REASONING_BYTES_MAX = 4 * 1024 * 1024 }; /* of one request */

#define MEMBER "reasoning_content"

static bool has_calls(const lar_canon *c, uint32_t i) {
    uint32_t calls = lar_json_get(c->json, c->view->segments[i].node, "tool_calls");
    return c->view->segments[i].role == LAR_ROLE_ASSISTANT && lar_json_is(c->json, calls, LAR_JSON_ARRAY) &&
           c->json->nodes[calls].count > 0;
}

/* The text in the request's arena, escaped; ptr NULL if there is none. */
static lar_error recall_text(lar_canon *c, uint32_t i, lar_slice *out) {
    lar_hash key = lar_output_key_of(c->scope, LAR_OUTPUT_REASONING, c->segments[i].core.keyed);
    lar_buf text, escaped;
    *out = (lar_slice){NULL, 0};
    lar_buf_init(&text, 2 * LAR_OUTPUT_ANSWER_MAX);
    lar_buf_init(&escaped, 6 * LAR_OUTPUT_ANSWER_MAX);
    lar_error e = lar_memory_get(c->in->texts, &key, &text) ? LAR_OK : LAR_NOT_FOUND;
    if (!e) e = lar_json_escape(&escaped, lar_buf_slice(&text));
    if (!e) *out = lar_arena_printf(c->arena, ",\"" MEMBER "\":\"%.*s\"", LAR_FMT(lar_buf_slice(&escaped)));
    if (!e && !out->ptr) e = LAR_NO_MEMORY;
    lar_buf_release(&text);
    lar_buf_release(&escaped);
    return e == LAR_NO_MEMORY ? e : LAR_OK;
}

static lar_error put_back(lar_canon *c, uint32_t i, uint32_t *left) {
    const lar_json_node *n = &c->json->nodes[c->view->segments[i].node];
    lar_slice member;
    if (lar_json_get(c->json, c->view->segments[i].node, MEMBER) != LAR_JSON_NONE) return LAR_OK;
    lar_error e = recall_text(c, i, &member);
    if (e || !member.ptr || member.len > *left) return e;
    *left -= (uint32_t)member.len;
    lar_finding f = {.rule = LAR_RULE_LR013, .node = c->view->segments[i].node, .start = n->start, .end = n->end};
    f.edited = c->apply;
    if (c->apply) {
        e = lar_splices_add(&c->out->splices, n->end - 1, n->end - 1, member);
        c->segments[i].exact = lar_hash_chain(c->segments[i].exact, member);
    }
    return e ? e : lar_canon_find(c, f);
}

lar_error lar_rule_reasoning_kept(lar_canon *c) {
    bool on = lar_canon_rule_on(c, LAR_RULE_LR013) && c->in->texts && c->view->protocol == LAR_PROTOCOL_CHAT;
    uint32_t end = on ? lar_canon_output_end(c) : 0, left = REASONING_BYTES_MAX;
    lar_error e = LAR_OK;
    for (uint32_t turn = c->head_count; turn < end && !e;) {
        uint32_t next = turn + 1;
        bool calls = has_calls(c, turn);
        for (; next < end && c->view->segments[next].role != LAR_ROLE_USER; next++) calls |= has_calls(c, next);
        for (uint32_t i = turn; i < next && calls && !e; i++) {
            bool some = c->view->segments[i].role == LAR_ROLE_ASSISTANT && lar_output_core_some(&c->segments[i].core);
            if (some) e = put_back(c, i, &left);
        }
        turn = next;
    }
    return e;
}
