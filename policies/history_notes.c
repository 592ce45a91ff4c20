/* Says what is wrong with a history of tool calls, and what the provider would answer (header: history.h).
 * Flow: linter -> lar_history_check -> history.c. Pure; never blocks; memory of the notes' arena.
 * The answers are those of public reports, read in November 2026. OpenAI chat: aliasrobotics/cai#111,
 * miurla/morphic#136, agno-agi/agno#5116; responses: continuedev/continue#10092, router-for-me/CLIProxyAPI#2368.
 * DeepSeek: agno-agi/agno#3105, FoundationAgents/OpenManus#23, craft-ai-agents/craft-agents-oss#621. Anthropic:
 * anthropics/claude-code#5060 and #13460, vectorize-io/hindsight#4250, NachoSEO/claudegram#12. Where none is known
 * the note has none. Not here: finding the flaws, all but output that was pasted into user text. */
#include "policies/history.h"
#include "policies/text.h"

enum { PASTED_IDS_MAX = 16, PASTED_ID_BYTES_MIN = 6, LOOK_BACK = 1024 };

typedef enum speaker { SPEAKER_UNKNOWN, SPEAKER_OPENAI, SPEAKER_DEEPSEEK, SPEAKER_ANTHROPIC } speaker;

typedef struct writer {
    const lar_history *h;
    lar_notes *notes;
    speaker by;
    lar_slice open[PASTED_IDS_MAX]; /* ids of calls without a result */
    uint32_t open_count;
} writer;

static speaker speaker_of(lar_protocol p, lar_slice provider) {
    static const struct {
        const char *name;
        speaker by;
    } known[] = {{"", SPEAKER_OPENAI},
                 {"openai", SPEAKER_OPENAI},
                 {"azure", SPEAKER_OPENAI},
                 {"deepseek", SPEAKER_DEEPSEEK}};
    /* whoever speaks Anthropic's protocol checks its rules; DeepSeek does so in the same words */
    static const char *const anthropic[] = {"", "anthropic", "bedrock", "deepseek"};
    for (size_t i = 0; i < sizeof anthropic / sizeof *anthropic; i++) {
        if (p == LAR_PROTOCOL_MESSAGES && lar_slice_ieq(provider, lar_slice_cstr(anthropic[i])))
            return SPEAKER_ANTHROPIC;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (p != LAR_PROTOCOL_MESSAGES && lar_slice_ieq(provider, lar_slice_cstr(known[i].name))) return known[i].by;
    }
    return SPEAKER_UNKNOWN;
}

static const char *text_of(lar_history_flaw f, bool call) {
    switch (f) {
    case LAR_HISTORY_UNANSWERED: return "no result answers this call";
    case LAR_HISTORY_ORPHAN: return "this result answers no call of the history";
    case LAR_HISTORY_DUPLICATE: return "the call that this result answers has one already";
    case LAR_HISTORY_MISPLACED: return "this result does not stand right behind its call";
    case LAR_HISTORY_SAME_ID: return "an earlier call has the same id";
    case LAR_HISTORY_NO_ID: return call ? "this call has no id" : "this result does not say which call it answers";
    case LAR_HISTORY_FINE: break;
    }
    return "";
}

static const char *advice_of(lar_history_flaw f, lar_protocol p) {
    switch (f) {
    case LAR_HISTORY_UNANSWERED:
        return "Answer every call, also one that failed or was cancelled, before the conversation goes on; LR015 can put "
               "a constant result there.";
    case LAR_HISTORY_ORPHAN:
        return "When old messages are cut off, cut in front of the message with the calls, never between it and its "
               "results; LR015 can drop the result.";
    case LAR_HISTORY_DUPLICATE: return "Send one result a call; LR015 can drop the later one.";
    case LAR_HISTORY_MISPLACED:
        if (p == LAR_PROTOCOL_MESSAGES)
            return "Let the user message behind the calls begin with their tool_result blocks; LR015 can move it there.";
        if (p == LAR_PROTOCOL_RESPONSES)
            return "Put the output in front of the client's next message; LR015 can move it there.";
        return "Put the tool messages directly behind the message with the calls; LR015 can move it there.";
    case LAR_HISTORY_SAME_ID: return "Give every call of a conversation an id of its own, and keep it.";
    case LAR_HISTORY_NO_ID: return "Send the id that the model gave the call.";
    case LAR_HISTORY_FINE: break;
    }
    return "";
}

/* What each answers, with the id, and the places that it counts: of the message and, for Anthropic, of the block. */
typedef struct place {
    lar_slice id;
    uint32_t message, block;
    uint32_t twin;          /* message of the other result, for DUPLICATE */
    lar_history_flaw noted; /* what the provider sees first */
} place;

static lar_slice openai_answer(const writer *w, lar_history_flaw f, const place *at) {
    lar_arena *a = w->notes->arena;
    if (w->h->view->protocol == LAR_PROTOCOL_RESPONSES) {
        if (f == LAR_HISTORY_UNANSWERED)
            return lar_arena_printf(a, "No tool output found for function call %.*s.", LAR_FMT(at->id));
        if (f == LAR_HISTORY_ORPHAN)
            return lar_arena_printf(a, "No tool call found for function call output with call_id %.*s.",
                                    LAR_FMT(at->id));
        return LAR_SLICE("");
    }
    if (f == LAR_HISTORY_UNANSWERED)
        return lar_arena_printf(
            a,
            "An assistant message with 'tool_calls' must be followed by tool messages responding to "
            "each 'tool_call_id'. The following tool_call_ids did not have response messages: %.*s",
            LAR_FMT(at->id));
    if (f == LAR_HISTORY_ORPHAN)
        return LAR_SLICE("Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                         "'tool_calls'.");
    if (f == LAR_HISTORY_DUPLICATE)
        return lar_arena_printf(a,
                                "Invalid parameter: Duplicate value for 'tool_call_id' of '%.*s', in messages[%u] and "
                                "messages[%u].",
                                LAR_FMT(at->id), at->twin, at->message);
    return LAR_SLICE("");
}

static lar_slice deepseek_answer(const writer *w, lar_history_flaw f, const place *at) {
    if (w->h->view->protocol != LAR_PROTOCOL_CHAT) return LAR_SLICE("");
    if (f == LAR_HISTORY_UNANSWERED)
        return LAR_SLICE("An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                         "'tool_call_id'. (insufficient tool messages following tool_calls message)");
    if (f == LAR_HISTORY_ORPHAN)
        return LAR_SLICE("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
    if (f == LAR_HISTORY_DUPLICATE)
        return lar_arena_printf(w->notes->arena, "Duplicate value for 'tool_call_id' of %.*s in message[%u]",
                                LAR_FMT(at->id), at->message);
    return LAR_SLICE("");
}

static lar_slice anthropic_answer(const writer *w, lar_history_flaw f, const place *at) {
    lar_arena *a = w->notes->arena;
    switch (f) {
    case LAR_HISTORY_UNANSWERED:
        return lar_arena_printf(
            a,
            "messages.%u: `tool_use` ids were found without `tool_result` blocks immediately after: "
            "%.*s. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message.",
            at->message, LAR_FMT(at->id));
    case LAR_HISTORY_ORPHAN:
        return lar_arena_printf(a,
                                "messages.%u.content.%u: unexpected `tool_use_id` found in `tool_result` blocks: %.*s. "
                                "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                                "message.",
                                at->message, at->block, LAR_FMT(at->id));
    case LAR_HISTORY_DUPLICATE:
        return lar_arena_printf(a,
                                "messages.%u.content.%u: each tool_use must have a single result. Found multiple "
                                "`tool_result` blocks with id: %.*s",
                                at->message, at->block, LAR_FMT(at->id));
    case LAR_HISTORY_SAME_ID:
        return lar_arena_printf(a, "messages.%u.content.%u: `tool_use` ids must be unique", at->message, at->block);
    case LAR_HISTORY_MISPLACED:
    case LAR_HISTORY_NO_ID:
    case LAR_HISTORY_FINE: break;
    }
    return LAR_SLICE("");
}

static lar_error add(const writer *w, lar_history_flaw f, uint32_t node, bool call, const place *at) {
    const lar_request_view *v = w->h->view;
    const lar_json_node *n = &v->json->nodes[node];
    lar_note note = {
        .rule = LAR_RULE_LR015, .severity = LAR_SEVERITY_ERROR, .node = node, .start = n->start, .end = n->end};
    bool refused = f != LAR_HISTORY_NO_ID && (v->protocol == LAR_PROTOCOL_MESSAGES || f != LAR_HISTORY_SAME_ID);
    if (v->protocol == LAR_PROTOCOL_RESPONSES && f == LAR_HISTORY_MISPLACED) refused = false;
    if (!refused) note.severity = LAR_SEVERITY_WARNING;
    note.what = at->id.len ? lar_arena_printf(w->notes->arena, "%s (id %.*s)", text_of(f, call), LAR_FMT(at->id))
                           : lar_slice_cstr(text_of(f, call));
    note.advice = lar_slice_cstr(advice_of(f, v->protocol));
    switch (w->by) {
    case SPEAKER_OPENAI: note.answer = openai_answer(w, at->noted, at); break;
    case SPEAKER_DEEPSEEK: note.answer = deepseek_answer(w, at->noted, at); break;
    case SPEAKER_ANTHROPIC: note.answer = anthropic_answer(w, at->noted, at); break;
    case SPEAKER_UNKNOWN: note.answer = LAR_SLICE(""); break;
    }
    if (!note.what.ptr || !note.answer.ptr) return LAR_NO_MEMORY;
    return lar_notes_add(w->notes, &note);
}

static lar_error add_call(const writer *w, const lar_history_call *c) {
    place at = {.id = c->id, .message = c->segment - w->h->first, .block = c->place, .noted = c->flaw};
    return add(w, c->flaw, c->node, true, &at);
}

static lar_error add_result(const writer *w, uint32_t i) {
    const lar_history_result *x = &w->h->results[i];
    place at = {.id = x->id, .message = x->segment - w->h->first, .block = x->place, .noted = x->flaw};
    if (x->flaw == LAR_HISTORY_MISPLACED && w->h->view->protocol != LAR_PROTOCOL_RESPONSES) {
        /* it reads in order: first it misses the result behind the call, or it meets the result before the call */
        const lar_history_call *c = &w->h->calls[x->call];
        at.noted = c->node < x->node ? LAR_HISTORY_UNANSWERED : LAR_HISTORY_ORPHAN;
        if (c->node < x->node) at.message = c->segment - w->h->first;
    }
    for (uint32_t k = i, left = LOOK_BACK; x->flaw == LAR_HISTORY_DUPLICATE && k-- > 0 && left-- > 0;) {
        const lar_history_result *other = &w->h->results[k];
        if (other->call == LAR_JSON_NONE || !lar_hash_eq(other->key, x->key)) continue;
        at.twin = other->segment - w->h->first;
        break;
    }
    return add(w, x->flaw, x->node, false, &at);
}

/* -- tool output in user text ------------------------------------------------------------------------- */

/* How harnesses without tool messages begin a line that holds a tool's output. */
static bool opens_output(lar_slice line) {
    static const char *const marks[] = {"<tool_response>",     "<tool_result",     "<tool_output",
                                        "<function_result",    "[tool_result",     "[tool result",
                                        "tool result:",        "tool output:",     "function result:",
                                        "{\"tool_call_id\"",   "{\"tool_use_id\"", "{\"role\":\"tool\"",
                                        "{\"role\": \"tool\"", "工具结果：",       "工具返回：",
                                        "工具输出："};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (lar_slice_starts_i(line, lar_slice_cstr(marks[i]))) return true;
    }
    return false;
}

static bool holds_id(const writer *w, lar_slice line) {
    for (uint32_t i = 0; i < w->open_count; i++) {
        if (memmem(line.ptr, line.len, w->open[i].ptr, w->open[i].len)) return true;
    }
    return false;
}

static bool pasted(const writer *w, lar_slice text) {
    bool fenced = false;
    while (text.len) {
        const char *nl = memchr(text.ptr, '\n', text.len);
        lar_slice line = lar_slice_of(text.ptr, nl ? (size_t)(nl - text.ptr) : text.len);
        text = lar_slice_of(text.ptr + line.len + (nl ? 1 : 0), text.len - line.len - (nl ? 1 : 0));
        lar_slice bare = lar_slice_trim(line);
        if (lar_slice_starts(bare, LAR_SLICE("```"))) fenced = !fenced;
        else if (!fenced && (opens_output(bare) || holds_id(w, bare))) return true;
    }
    return false;
}

static lar_error check_text(const writer *w, uint32_t node) {
    if (!lar_json_is(w->h->view->json, node, LAR_JSON_STRING)) return LAR_OK;
    lar_text t;
    lar_error e = lar_text_read(&t, w->h->view->json, node, w->notes->arena);
    if (e || !pasted(w, t.text)) return e;
    const lar_json_node *n = &w->h->view->json->nodes[node];
    lar_note note = {
        .rule = LAR_RULE_LR015, .severity = LAR_SEVERITY_WARNING, .node = node, .start = n->start, .end = n->end};
    note.what = LAR_SLICE("the output of a tool is pasted into a user message");
    note.advice = LAR_SLICE("Send it as the result of its call: the model then knows what it is, and a user cannot "
                            "forge it.");
    note.answer = LAR_SLICE("");
    return lar_notes_add(w->notes, &note);
}

static lar_error check_user(const writer *w, uint32_t content) {
    const lar_json *j = w->h->view->json;
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) return check_text(w, content);
    lar_error e = LAR_OK;
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE && !e; p = lar_json_after(j, content, p)) {
        if (lar_json_is(j, p, LAR_JSON_OBJECT)) e = check_text(w, lar_json_get(j, p, "text"));
    }
    return e;
}

/* -- all of it, in the order of the body --------------------------------------------------------------- */

lar_error lar_history_check(const lar_request_view *v, lar_slice provider, lar_notes *notes) {
    lar_history h;
    lar_error e = lar_history_read(v, notes->arena, &h);
    writer w = {.h = &h, .notes = notes, .by = speaker_of(v->protocol, provider)};
    for (uint32_t i = 0; i < h.call_count && w.open_count < PASTED_IDS_MAX && !e; i++) {
        if (h.calls[i].flaw == LAR_HISTORY_UNANSWERED && h.calls[i].id.len >= PASTED_ID_BYTES_MIN)
            w.open[w.open_count++] = h.calls[i].id;
    }
    bool tools = h.call_count || (v->tools != LAR_JSON_NONE && v->json->nodes[v->tools].count);
    uint32_t c = 0, x = 0;
    for (uint32_t i = 0; i < v->segment_count && !e; i++) {
        for (; c < h.call_count && h.calls[c].segment == i && !e; c++) {
            if (h.calls[c].flaw != LAR_HISTORY_FINE) e = add_call(&w, &h.calls[c]);
        }
        for (; x < h.result_count && h.results[x].segment == i && !e; x++) {
            if (h.results[x].flaw != LAR_HISTORY_FINE) e = add_result(&w, x);
        }
        if (!e && tools && v->segments[i].role == LAR_ROLE_USER) e = check_user(&w, v->segments[i].content);
    }
    return e;
}
