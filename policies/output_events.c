/* Events of a stream, by protocol: which string goes to which part (header: output_parts.h).
 * Called by output.c with the event parsed. Loop thread; never blocks.
 * Sources: OpenAI's references of chat and responses streaming, Anthropic's of messages; what other servers do to them
 * (ids repeated in every chunk, calls without an index) is taken as it was meant.
 * Invariant: every event says in o->strings and o->other what it changed, so that output.c can learn its pattern.
 * Not here: reasoning of other protocols than chat, which no rule puts back. */
#include "policies/output_parts.h"

enum { FUNCTION_INDEX = 1 << 20 /* of the one call of an old API */ };

static uint32_t index_of(const lar_output *o, uint32_t object, uint32_t otherwise) {
    uint64_t v = 0;
    uint32_t node = lar_json_get(o->json, object, "index");
    return lar_json_u64(o->json, node, &v) && v < FUNCTION_INDEX ? (uint32_t)v : otherwise;
}

static bool reads(const lar_output *o, uint32_t node, const char *text) {
    return node != LAR_JSON_NONE && lar_json_eq(o->json, node, lar_slice_cstr(text));
}

/* Notes where the string of this event goes. Without one, it says nothing. */
static bool take(lar_output *o, uint32_t node, lar_output_sink sink, uint32_t message, uint32_t piece) {
    if (!lar_json_is(o->json, node, LAR_JSON_STRING)) return false;
    if (lar_json_inner(o->json, node).len == 0) return false;
    o->strings++;
    o->string_node = node;
    o->pattern.sink = o->strings == 1 ? sink : LAR_SINK_NONE;
    o->pattern.message = message;
    o->pattern.piece = piece;
    return true;
}

static uint32_t number(const lar_output *o, const lar_output_gathered *m) { return (uint32_t)(m - o->messages); }

static void add_string(lar_output *o, lar_output_gathered *m, lar_output_piece *p, uint32_t node) {
    if (p && take(o, node, LAR_SINK_PART, number(o, m), (uint32_t)(p - m->pieces)))
        lar_output_append(o, p, lar_output_string(o, node));
}

static void add_text(lar_output *o, lar_output_gathered *m, uint32_t index, uint32_t node) {
    if (!lar_json_is(o->json, node, LAR_JSON_STRING)) return;
    add_string(o, m, lar_output_piece_of(o, m, LAR_OUTPUT_TEXT, index), node);
}

static void add_reasoning(lar_output *o, lar_output_gathered *m, uint32_t node) {
    if (take(o, node, o->reasoning ? LAR_SINK_REASONING : LAR_SINK_NOWHERE, number(o, m), 0) && o->reasoning)
        lar_output_keep(o, &m->reasoning, lar_output_string(o, node));
}

/* An id or name: once, whole, or again in every chunk. */
static void set_name(lar_output *o, lar_buf *to, uint32_t node) {
    lar_slice text = lar_output_string(o, node);
    if (text.len == 0 || lar_slice_eq(text, lar_buf_slice(to))) return;
    o->other = true;
    lar_output_keep(o, to, text);
}

/* -- chat --------------------------------------------------------------------------------------------- */

/* A call without an index is the last one, unless it comes with another id. */
static uint32_t call_index(lar_output *o, const lar_output_gathered *m, uint32_t call) {
    uint32_t index = index_of(o, call, FUNCTION_INDEX), last = LAR_JSON_NONE;
    if (index != FUNCTION_INDEX) return index;
    lar_slice id = lar_output_string(o, lar_json_get(o->json, call, "id"));
    for (uint32_t k = 0; k < m->count; k++) {
        if (m->pieces[k].kind != LAR_OUTPUT_CALL) continue;
        last = m->pieces[k].index;
        if (lar_slice_eq(id, lar_buf_slice(&m->pieces[k].id))) return last;
    }
    if (last == LAR_JSON_NONE) return 0;
    return id.len ? last + 1 : last;
}

static void read_call(lar_output *o, lar_output_gathered *m, uint32_t call) {
    uint32_t function = lar_json_get(o->json, call, "function");
    lar_output_piece *p = lar_output_piece_of(o, m, LAR_OUTPUT_CALL, call_index(o, m, call));
    if (!p) return;
    set_name(o, &p->id, lar_json_get(o->json, call, "id"));
    set_name(o, &p->name, lar_json_get(o->json, function, "name"));
    add_string(o, m, p, lar_json_get(o->json, function, "arguments"));
}

static void read_choice(lar_output *o, uint32_t choice) {
    const lar_json *j = o->json;
    lar_output_gathered *m = lar_output_message_of(o, index_of(o, choice, 0));
    if (!m) return;
    uint32_t delta = lar_json_get(j, choice, "delta"), content = lar_json_get(j, delta, "content");
    if (lar_json_is(j, content, LAR_JSON_ARRAY)) o->given_up = true; /* no form that a client returns as it is */
    add_reasoning(o, m, lar_json_get(j, delta, "reasoning_content"));
    add_text(o, m, 0, content);
    uint32_t calls = lar_json_get(j, delta, "tool_calls");
    if (lar_json_is(j, calls, LAR_JSON_ARRAY)) {
        for (uint32_t k = lar_json_first(j, calls); k != LAR_JSON_NONE; k = lar_json_after(j, calls, k))
            read_call(o, m, k);
    }
    uint32_t function = lar_json_get(j, delta, "function_call");
    if (lar_json_is(j, function, LAR_JSON_OBJECT)) {
        lar_output_piece *p = lar_output_piece_of(o, m, LAR_OUTPUT_CALL, FUNCTION_INDEX);
        if (p) set_name(o, &p->name, lar_json_get(j, function, "name"));
        add_string(o, m, p, lar_json_get(j, function, "arguments"));
    }
    if (!lar_json_is(j, lar_json_get(j, choice, "finish_reason"), LAR_JSON_STRING)) return;
    m->whole = true;
    o->other = true;
}

static void read_chat(lar_output *o) {
    const lar_json *j = o->json;
    uint32_t choices = lar_json_get(j, 0, "choices");
    if (!lar_json_is(j, choices, LAR_JSON_ARRAY)) return;
    for (uint32_t k = lar_json_first(j, choices); k != LAR_JSON_NONE; k = lar_json_after(j, choices, k))
        read_choice(o, k);
}

/* -- messages ----------------------------------------------------------------------------------------- */

static void read_block_start(lar_output *o, lar_output_gathered *m, uint32_t index) {
    const lar_json *j = o->json;
    uint32_t block = lar_json_get(j, 0, "content_block"), type = lar_json_get(j, block, "type");
    o->other = true;
    if (reads(o, type, "text")) add_text(o, m, index, lar_json_get(j, block, "text"));
    if (!reads(o, type, "tool_use") && !reads(o, type, "server_tool_use")) return;
    lar_output_piece *p = lar_output_piece_of(o, m, LAR_OUTPUT_CALL, index);
    if (!p) return;
    uint32_t input = lar_json_get(j, block, "input");
    set_name(o, &p->id, lar_json_get(j, block, "id"));
    set_name(o, &p->name, lar_json_get(j, block, "name"));
    if (input != LAR_JSON_NONE) lar_output_keep(o, &p->text, lar_json_raw(j, input));
    p->from_start = true;
}

static void read_block_delta(lar_output *o, lar_output_gathered *m, uint32_t index) {
    const lar_json *j = o->json;
    uint32_t delta = lar_json_get(j, 0, "delta"), type = lar_json_get(j, delta, "type");
    if (reads(o, type, "text_delta")) {
        add_text(o, m, index, lar_json_get(j, delta, "text"));
    } else if (reads(o, type, "input_json_delta")) {
        lar_output_piece *p = lar_output_piece_of(o, m, LAR_OUTPUT_CALL, index);
        add_string(o, m, p, lar_json_get(j, delta, "partial_json"));
    } else if (reads(o, type, "thinking_delta")) {
        (void)take(o, lar_json_get(j, delta, "thinking"), LAR_SINK_NOWHERE, 0, 0);
    }
}

static void read_messages(lar_output *o) {
    uint32_t type = lar_json_get(o->json, 0, "type"), index = index_of(o, 0, 0);
    lar_output_gathered *m = lar_output_message_of(o, 0);
    if (!m) return;
    if (reads(o, type, "content_block_start")) read_block_start(o, m, index);
    else if (reads(o, type, "content_block_delta")) read_block_delta(o, m, index);
    else o->other = true;
    if (reads(o, type, "message_stop")) m->whole = true;
}

/* -- responses ---------------------------------------------------------------------------------------- */

static void read_item(lar_output *o) {
    lar_output_part parts[LAR_OUTPUT_PARTS_MAX];
    lar_arena names;
    lar_arena_init(&names, LAR_OUTPUT_ANSWER_MAX);
    lar_output_message item = {.json = o->json,
                               .protocol = o->protocol,
                               .role = LAR_ROLE_ASSISTANT,
                               .arena = &names,
                               .parts = parts,
                               .room = LAR_OUTPUT_PARTS_MAX};
    lar_output_read(&item, lar_json_get(o->json, 0, "item"));
    lar_output_gathered *m = item.count ? lar_output_message_of(o, o->count) : NULL;
    for (uint32_t i = 0; i < item.count && m; i++) {
        lar_output_kind kind = parts[i].kind == LAR_OUTPUT_TEXT ? LAR_OUTPUT_TEXT : LAR_OUTPUT_CALL;
        lar_output_piece *p = lar_output_piece_of(o, m, kind, i);
        if (!p) break;
        lar_output_keep(o, &p->id, parts[i].id);
        lar_output_keep(o, &p->name, parts[i].name);
        lar_output_append(o, p, lar_output_string(o, parts[i].node));
    }
    if (m) m->whole = true;
    lar_arena_release(&names);
}

void lar_output_read_event(lar_output *o, lar_slice type) {
    if (!lar_json_is(o->json, 0, LAR_JSON_OBJECT)) return;
    o->pattern.sink = LAR_SINK_NONE;
    switch (o->protocol) {
    case LAR_PROTOCOL_CHAT: read_chat(o); break;
    case LAR_PROTOCOL_MESSAGES: read_messages(o); break;
    case LAR_PROTOCOL_RESPONSES:
        if (type.len || reads(o, lar_json_get(o->json, 0, "type"), "response.output_item.done")) read_item(o);
        break;
    case LAR_PROTOCOL_NONE:
    case LAR_PROTOCOL_COMPLETIONS:
    case LAR_PROTOCOL_EMBEDDINGS:
    case LAR_PROTOCOL_COUNT: break;
    }
}
