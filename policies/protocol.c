/* Reads a request's view from its span tree: which values are tools, segments, switches.
 * Called once a request, before canon; pure; memory from the given arena; never blocks.
 * Invariants: 1. a segment of unknown shape has role OTHER and no content. 2. turn_user, if any, is a
 * USER segment. Not here: any edit, any hash. */
#include "policies/protocol.h"

#include "base/slice.h"

static const char *const names[LAR_PROTOCOL_COUNT] = {"none",      "chat",     "completions",
                                                      "responses", "messages", "embeddings"};

const char *lar_protocol_name(lar_protocol p) { return (unsigned)p < LAR_PROTOCOL_COUNT ? names[p] : "none"; }

static bool is_text(const lar_json *j, uint32_t node, const char *text) {
    return lar_json_is(j, node, LAR_JSON_STRING) && lar_json_eq(j, node, lar_slice_cstr(text));
}

static lar_error refuse_duplicates(const lar_json *j, lar_diag *d) {
    static const char *const fields[] = {"model", "messages", "stream", "stream_options",
                                         "tools", "system",   "input",  "instructions"};
    uint32_t seen = 0;
    for (uint32_t k = lar_json_first(j, 0); k != LAR_JSON_NONE; k = lar_json_after(j, 0, k)) {
        for (uint32_t f = 0; f < sizeof fields / sizeof *fields; f++) {
            if (!lar_json_eq(j, k, lar_slice_cstr(fields[f]))) continue;
            if (seen & 1u << f) {
                return lar_fail_at(LAR_JSON_DUPLICATE, d, j->nodes[k].start,
                                   "the field \"%s\" stands in the body twice", fields[f]);
            }
            seen |= 1u << f;
            break;
        }
    }
    return LAR_OK;
}

/* An array of parts in which every part is an object of type `type`. */
static bool all_parts_are(const lar_json *j, uint32_t content, const char *type) {
    if (!lar_json_is(j, content, LAR_JSON_ARRAY) || j->nodes[content].count == 0) return false;
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE; p = lar_json_after(j, content, p)) {
        if (!lar_json_is(j, p, LAR_JSON_OBJECT) || !is_text(j, lar_json_get(j, p, "type"), type)) return false;
    }
    return true;
}

static lar_role role_by_name(const lar_json *j, uint32_t role) {
    static const struct {
        const char *name;
        lar_role role;
    } known[] = {{"system", LAR_ROLE_SYSTEM},       {"developer", LAR_ROLE_SYSTEM}, {"user", LAR_ROLE_USER},
                 {"assistant", LAR_ROLE_ASSISTANT}, {"tool", LAR_ROLE_TOOL},        {"function", LAR_ROLE_TOOL}};
    for (uint32_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (is_text(j, role, known[i].name)) return known[i].role;
    }
    return LAR_ROLE_OTHER;
}

/* Items of the responses API that have a type instead of a role. */
static lar_role role_by_type(const lar_json *j, uint32_t type) {
    if (!lar_json_is(j, type, LAR_JSON_STRING)) return LAR_ROLE_OTHER;
    lar_slice t = lar_json_inner(j, type);
    lar_slice tail = LAR_SLICE("_output");
    if (t.len > tail.len && lar_slice_eq(lar_slice_of(t.ptr + t.len - tail.len, tail.len), tail)) return LAR_ROLE_TOOL;
    if (lar_slice_eq_cstr(t, "reasoning")) return LAR_ROLE_ASSISTANT;
    lar_slice call = LAR_SLICE("_call");
    if (t.len > call.len && lar_slice_eq(lar_slice_of(t.ptr + t.len - call.len, call.len), call))
        return LAR_ROLE_ASSISTANT;
    return LAR_ROLE_OTHER;
}

static lar_segment read_message(const lar_json *j, uint32_t node, lar_protocol p) {
    lar_segment s = {.role = LAR_ROLE_OTHER, .node = node, .content = LAR_JSON_NONE};
    if (!lar_json_is(j, node, LAR_JSON_OBJECT)) return s;
    uint32_t roles = 0, contents = 0, role = LAR_JSON_NONE, content = LAR_JSON_NONE, type = LAR_JSON_NONE;
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        if (lar_json_eq(j, k, LAR_SLICE("role"))) roles++, role = k + 1;
        else if (lar_json_eq(j, k, LAR_SLICE("content"))) contents++, content = k + 1;
        else if (lar_json_eq(j, k, LAR_SLICE("type"))) type = k + 1;
    }
    if (roles > 1 || contents > 1) return s; /* who reads which of them is anybody's guess */
    if (role != LAR_JSON_NONE) s.role = role_by_name(j, role);
    else if (p == LAR_PROTOCOL_RESPONSES) s.role = role_by_type(j, type);
    if (s.role == LAR_ROLE_OTHER) return s;
    lar_json_kind kind = lar_json_kind_of(j, content);
    if (content != LAR_JSON_NONE && kind != LAR_JSON_STRING && kind != LAR_JSON_ARRAY && kind != LAR_JSON_NULL) {
        s.role = LAR_ROLE_OTHER;
        return s;
    }
    s.content = content;
    if (p == LAR_PROTOCOL_MESSAGES && s.role == LAR_ROLE_USER && all_parts_are(j, content, "tool_result"))
        s.role = LAR_ROLE_TOOL;
    return s;
}

static void find_turn(lar_request_view *v) {
    for (uint32_t i = 0; i < v->segment_count; i++) {
        if (v->segments[i].role != LAR_ROLE_USER) continue;
        bool again = i > 0 && v->segments[i - 1].role == LAR_ROLE_USER; /* one turn opened by several messages */
        if (v->turn_user != LAR_JSON_NONE && !again) v->turn++;
        v->turn_user = i;
    }
}

static void read_switches(lar_request_view *v) {
    const lar_json *j = v->json;
    v->model = lar_json_get(j, 0, "model");
    if (!lar_json_is(j, v->model, LAR_JSON_STRING)) v->model = LAR_JSON_NONE;
    v->stream = lar_json_get(j, 0, "stream");
    v->stream_options = lar_json_get(j, 0, "stream_options");
    v->tools = lar_json_get(j, 0, "tools");
    if (!lar_json_is(j, v->tools, LAR_JSON_ARRAY)) v->tools = LAR_JSON_NONE;
    v->streamed = lar_json_is(j, v->stream, LAR_JSON_TRUE);
    v->wants_usage = v->protocol == LAR_PROTOCOL_RESPONSES || v->protocol == LAR_PROTOCOL_MESSAGES ||
                     lar_json_is(j, lar_json_get(j, v->stream_options, "include_usage"), LAR_JSON_TRUE);
}

/* The head (a top-level system or instructions) and the list of messages, by protocol. */
static void find_parts(const lar_request_view *v, uint32_t *head, uint32_t *list) {
    const lar_json *j = v->json;
    *head = *list = LAR_JSON_NONE;
    switch (v->protocol) {
    case LAR_PROTOCOL_CHAT: *list = lar_json_get(j, 0, "messages"); break;
    case LAR_PROTOCOL_MESSAGES:
        *head = lar_json_get(j, 0, "system");
        *list = lar_json_get(j, 0, "messages");
        break;
    case LAR_PROTOCOL_RESPONSES:
        *head = lar_json_get(j, 0, "instructions");
        *list = lar_json_get(j, 0, "input");
        break;
    case LAR_PROTOCOL_COMPLETIONS: *list = lar_json_get(j, 0, "prompt"); break;
    case LAR_PROTOCOL_NONE:
    case LAR_PROTOCOL_EMBEDDINGS:
    case LAR_PROTOCOL_COUNT: break;
    }
    lar_json_kind k = lar_json_kind_of(j, *head);
    if (k != LAR_JSON_STRING && k != LAR_JSON_ARRAY) *head = LAR_JSON_NONE;
    k = lar_json_kind_of(j, *list);
    bool bare = v->protocol == LAR_PROTOCOL_RESPONSES || v->protocol == LAR_PROTOCOL_COMPLETIONS;
    bool items = v->protocol != LAR_PROTOCOL_COMPLETIONS && k == LAR_JSON_ARRAY;
    if (!items && !(bare && k == LAR_JSON_STRING)) *list = LAR_JSON_NONE;
}

lar_error lar_request_view_read(lar_request_view *v, const lar_json *j, lar_protocol p, lar_arena *arena, lar_diag *d) {
    *v = (lar_request_view){.json = j,
                            .protocol = p,
                            .model = LAR_JSON_NONE,
                            .stream = LAR_JSON_NONE,
                            .stream_options = LAR_JSON_NONE,
                            .tools = LAR_JSON_NONE,
                            .turn_user = LAR_JSON_NONE};
    if (!lar_json_is(j, 0, LAR_JSON_OBJECT)) return lar_fail_at(LAR_JSON_SHAPE, d, 0, "the body must be a JSON object");
    lar_error e = refuse_duplicates(j, d);
    if (e) return e;
    read_switches(v);
    uint32_t head, list;
    find_parts(v, &head, &list);
    bool array = lar_json_is(j, list, LAR_JSON_ARRAY);
    size_t room = (head != LAR_JSON_NONE) + (list == LAR_JSON_NONE ? 0 : array ? j->nodes[list].count : 1);
    if (room == 0) return LAR_OK;
    v->segments = lar_arena_alloc(arena, room * sizeof *v->segments);
    if (!v->segments) return LAR_NO_MEMORY;
    if (head != LAR_JSON_NONE)
        v->segments[v->segment_count++] = (lar_segment){.role = LAR_ROLE_SYSTEM, .node = head, .content = head};
    if (array) {
        for (uint32_t m = lar_json_first(j, list); m != LAR_JSON_NONE; m = lar_json_after(j, list, m)) {
            v->segments[v->segment_count++] = read_message(j, m, p);
        }
    } else if (list != LAR_JSON_NONE) {
        v->segments[v->segment_count++] = (lar_segment){.role = LAR_ROLE_USER, .node = list, .content = list};
    }
    find_turn(v);
    return LAR_OK;
}
