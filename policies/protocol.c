/* Reads a request's view from its span tree: which values are tools, segments, switches.
 * Called once a request, before canon; pure; memory from the given arena; never blocks.
 * Invariants: 1. a segment of unknown shape has role OTHER and no content. 2. turn_user, if any, is a
 * USER segment. Not here: any edit, any hash. */
#include "policies/protocol.h"

#include <string.h>

#include "base/slice.h"
#include "policies/text.h"

static const char *const names[LAR_PROTOCOL_COUNT] = {"none",      "chat",     "completions",
                                                      "responses", "messages", "embeddings"};

const char *lar_protocol_name(lar_protocol p) { return (unsigned)p < LAR_PROTOCOL_COUNT ? names[p] : "none"; }

static const char *const member_names[LAR_MEMBER_COUNT] = {
    [LAR_MEMBER_MODEL] = "model",
    [LAR_MEMBER_MESSAGES] = "messages",
    [LAR_MEMBER_STREAM] = "stream",
    [LAR_MEMBER_STREAM_OPTIONS] = "stream_options",
    [LAR_MEMBER_TOOLS] = "tools",
    [LAR_MEMBER_SYSTEM] = "system",
    [LAR_MEMBER_INPUT] = "input",
    [LAR_MEMBER_INSTRUCTIONS] = "instructions",
    [LAR_MEMBER_PROMPT] = "prompt",
    [LAR_MEMBER_PROMPT_CACHE_KEY] = "prompt_cache_key",
    [LAR_MEMBER_USER] = "user",
    [LAR_MEMBER_SAFETY_IDENTIFIER] = "safety_identifier",
    [LAR_MEMBER_CACHE_SALT] = "cache_salt",
    [LAR_MEMBER_METADATA] = "metadata",
    [LAR_MEMBER_PREVIOUS_RESPONSE_ID] = "previous_response_id",
    [LAR_MEMBER_CONVERSATION] = "conversation",
};

const char *lar_member_name(lar_member m) { return (unsigned)m < LAR_MEMBER_COUNT ? member_names[m] : ""; }

enum { NAME_MAX = 20, NAME_WRITTEN_MAX = 6 * NAME_MAX };

/* The text of a string that is short enough to be a name, decoded into `room` if need be; empty if it is not. */
static lar_slice short_text(const lar_json *j, uint32_t node, char room[NAME_WRITTEN_MAX]) {
    const lar_json_node *n = &j->nodes[node];
    lar_slice raw = lar_slice_of(j->body.ptr + n->start + 1, n->end - n->start - 2);
    if (!(n->flags & LAR_JSON_ESCAPED)) return raw.len <= NAME_MAX ? raw : LAR_SLICE("");
    return raw.len <= NAME_WRITTEN_MAX ? lar_slice_of(room, lar_text_decode(raw, room)) : LAR_SLICE("");
}

/* As lar_json_eq, without a call where the length tells. */
static inline bool is_text(const lar_json *j, uint32_t node, lar_slice text) {
    if (node == LAR_JSON_NONE) return false;
    const lar_json_node *n = &j->nodes[node];
    if (!(n->flags & LAR_JSON_ESCAPED) && n->end - n->start != text.len + 2) return false;
    return lar_json_eq(j, node, text);
}

/* One pass over the body's members, of which there may be millions: names are told apart by their length first. */
static lar_error read_members(lar_request_view *v, lar_diag *d) {
    const lar_json *j = v->json;
    uint32_t lengths = 0;
    size_t length[LAR_MEMBER_COUNT];
    for (uint32_t m = 0; m < LAR_MEMBER_COUNT; m++) {
        length[m] = strlen(member_names[m]);
        lengths |= 1u << length[m];
    }
    for (uint32_t k = lar_json_first(j, 0); k != LAR_JSON_NONE; k = lar_json_after(j, 0, k)) {
        char room[NAME_WRITTEN_MAX];
        lar_slice name = short_text(j, k, room);
        if (name.len > NAME_MAX || !(lengths >> name.len & 1)) continue;
        for (uint32_t m = 0; m < LAR_MEMBER_COUNT; m++) {
            if (name.len != length[m] || memcmp(name.ptr, member_names[m], name.len) != 0) continue;
            if (v->members[m] == LAR_JSON_NONE) v->members[m] = k + 1;
            else if (m < LAR_MEMBER_ONCE)
                return lar_fail_at(LAR_JSON_DUPLICATE, d, j->nodes[k].start,
                                   "the field \"%s\" stands in the body twice", member_names[m]);
            break;
        }
    }
    return LAR_OK;
}

/* An array of parts in which every part is an object of type `type`. */
static bool all_parts_are(const lar_json *j, uint32_t content, lar_slice type) {
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
    } known[] = {{"user", LAR_ROLE_USER},     {"assistant", LAR_ROLE_ASSISTANT}, {"tool", LAR_ROLE_TOOL},
                 {"system", LAR_ROLE_SYSTEM}, {"developer", LAR_ROLE_SYSTEM},    {"function", LAR_ROLE_TOOL}};
    for (uint32_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (is_text(j, role, lar_slice_cstr(known[i].name))) return known[i].role;
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
        if (is_text(j, k, LAR_SLICE("role"))) roles++, role = k + 1;
        else if (is_text(j, k, LAR_SLICE("content"))) contents++, content = k + 1;
        else if (is_text(j, k, LAR_SLICE("type"))) type = k + 1;
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
    if (p == LAR_PROTOCOL_MESSAGES && s.role == LAR_ROLE_USER && all_parts_are(j, content, LAR_SLICE("tool_result")))
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
    v->model = v->members[LAR_MEMBER_MODEL];
    if (!lar_json_is(j, v->model, LAR_JSON_STRING)) v->model = LAR_JSON_NONE;
    v->stream = v->members[LAR_MEMBER_STREAM];
    v->stream_options = v->members[LAR_MEMBER_STREAM_OPTIONS];
    v->tools = v->members[LAR_MEMBER_TOOLS];
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
    case LAR_PROTOCOL_CHAT: *list = v->members[LAR_MEMBER_MESSAGES]; break;
    case LAR_PROTOCOL_MESSAGES:
        *head = v->members[LAR_MEMBER_SYSTEM];
        *list = v->members[LAR_MEMBER_MESSAGES];
        break;
    case LAR_PROTOCOL_RESPONSES:
        *head = v->members[LAR_MEMBER_INSTRUCTIONS];
        *list = v->members[LAR_MEMBER_INPUT];
        break;
    case LAR_PROTOCOL_COMPLETIONS: *list = v->members[LAR_MEMBER_PROMPT]; break;
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
    for (uint32_t m = 0; m < LAR_MEMBER_COUNT; m++) v->members[m] = LAR_JSON_NONE;
    if (!lar_json_is(j, 0, LAR_JSON_OBJECT)) return lar_fail_at(LAR_JSON_SHAPE, d, 0, "the body must be a JSON object");
    lar_error e = read_members(v, d);
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
