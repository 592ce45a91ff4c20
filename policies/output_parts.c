/* The parts of a message that may change their form, and what they mean (header: output.h).
 * Called for the messages of a request by canon_output.c and for answers by output.c. Pure; never blocks; memory from
 * the arena and the work space.
 * Invariants: 1. a message in which a member that counts stands twice has no parts. 2. the norm of a part ignores
 * form and nothing else: blanks at the end of a text; order, escapes and blanks of JSON. 3. `core` names parts in their
 * order, but for texts of blanks only, which clients drop and add. */
#include "policies/output.h"
#include "policies/text.h"

enum { NODE_WORK = 32, BYTES_A_WORK = 8 };

/* -- finding them ----------------------------------------------------------------------------------- */

typedef struct reader {
    const lar_json *json;
    lar_arena *arena;
    lar_output_part *parts;
    uint32_t count, room;
    bool odd;
} reader;

/* The value of a member that must stand there at most once. */
static uint32_t only(reader *r, uint32_t object, const char *name) {
    if (!lar_json_is(r->json, object, LAR_JSON_OBJECT)) return LAR_JSON_NONE;
    r->odd = r->odd || lar_json_get_count(r->json, object, name) > 1;
    return lar_json_get(r->json, object, name);
}

static bool reads(reader *r, uint32_t node, const char *text) {
    return lar_json_is(r->json, node, LAR_JSON_STRING) && lar_json_eq(r->json, node, lar_slice_cstr(text));
}

static lar_slice name_text(reader *r, uint32_t node) {
    if (!lar_json_is(r->json, node, LAR_JSON_STRING)) return LAR_SLICE("");
    lar_slice raw = lar_json_inner(r->json, node);
    if (!(r->json->nodes[node].flags & LAR_JSON_ESCAPED)) return raw;
    char *to = lar_arena_alloc(r->arena, raw.len + 1);
    r->odd = r->odd || !to;
    return to ? lar_slice_of(to, lar_text_decode(raw, to)) : LAR_SLICE("");
}

static lar_output_part *add(reader *r, lar_output_kind kind, uint32_t node) {
    static const lar_output_part none;
    if (r->count == r->room) r->odd = true;
    if (r->odd) return NULL;
    lar_output_part *p = &r->parts[r->count++];
    *p = none;
    p->kind = kind;
    p->node = node;
    return p;
}

static void add_call(reader *r, uint32_t object, const char *id, const char *arguments) {
    uint32_t node = only(r, object, arguments), of = id ? only(r, object, id) : LAR_JSON_NONE;
    bool value = strcmp(arguments, "input") == 0;
    if (value ? node == LAR_JSON_NONE : !lar_json_is(r->json, node, LAR_JSON_STRING)) return;
    lar_slice name = name_text(r, only(r, object, "name"));
    lar_output_part *p = add(r, value ? LAR_OUTPUT_INPUT : LAR_OUTPUT_CALL, node);
    if (!p) return;
    p->id = name_text(r, of);
    p->name = name;
}

static void add_text(reader *r, uint32_t node) {
    if (lar_json_is(r->json, node, LAR_JSON_STRING)) (void)add(r, LAR_OUTPUT_TEXT, node);
}

/* The content of a model's message: a string, or parts of which those of the named types are texts. */
static void add_content(reader *r, uint32_t content, const char *type) {
    const lar_json *j = r->json;
    add_text(r, content);
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) return;
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE && !r->odd; p = lar_json_after(j, content, p)) {
        uint32_t of = only(r, p, "type");
        if (reads(r, of, type)) add_text(r, only(r, p, "text"));
        else if (reads(r, of, "tool_use") || reads(r, of, "server_tool_use")) add_call(r, p, "id", "input");
    }
}

static void read_chat(reader *r, uint32_t message) {
    const lar_json *j = r->json;
    add_content(r, only(r, message, "content"), "text");
    uint32_t calls = only(r, message, "tool_calls");
    if (lar_json_is(j, calls, LAR_JSON_ARRAY)) {
        for (uint32_t k = lar_json_first(j, calls); k != LAR_JSON_NONE && !r->odd; k = lar_json_after(j, calls, k)) {
            uint32_t before = r->count, id = only(r, k, "id");
            add_call(r, only(r, k, "function"), NULL, "arguments");
            if (r->count > before) r->parts[before].id = name_text(r, id);
        }
    }
    uint32_t function = only(r, message, "function_call");
    if (function != LAR_JSON_NONE) add_call(r, function, NULL, "arguments");
}

static void read_item(reader *r, uint32_t item) {
    if (reads(r, only(r, item, "type"), "function_call")) add_call(r, item, "call_id", "arguments");
    else add_content(r, only(r, item, "content"), "output_text");
}

static void add_result(reader *r, uint32_t id, uint32_t node) {
    if (!lar_json_is(r->json, node, LAR_JSON_STRING)) return;
    lar_output_part *p = add(r, LAR_OUTPUT_RESULT, node);
    if (p) p->id = name_text(r, id);
}

/* The texts of a result: a string, or parts of type text. */
static void add_results(reader *r, uint32_t id, uint32_t content) {
    const lar_json *j = r->json;
    add_result(r, id, content);
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) return;
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE && !r->odd; p = lar_json_after(j, content, p)) {
        if (reads(r, only(r, p, "type"), "text")) add_result(r, id, only(r, p, "text"));
    }
}

static void read_results(reader *r, uint32_t node, lar_protocol p) {
    const lar_json *j = r->json;
    uint32_t content = only(r, node, "content");
    if (p == LAR_PROTOCOL_CHAT) add_results(r, only(r, node, "tool_call_id"), content);
    if (p == LAR_PROTOCOL_RESPONSES && reads(r, only(r, node, "type"), "function_call_output"))
        add_results(r, only(r, node, "call_id"), only(r, node, "output"));
    if (p != LAR_PROTOCOL_MESSAGES || !lar_json_is(j, content, LAR_JSON_ARRAY)) return;
    for (uint32_t k = lar_json_first(j, content); k != LAR_JSON_NONE && !r->odd; k = lar_json_after(j, content, k)) {
        if (reads(r, only(r, k, "type"), "tool_result"))
            add_results(r, only(r, k, "tool_use_id"), only(r, k, "content"));
    }
}

void lar_output_read(lar_output_message *m, uint32_t node) {
    reader r = {.json = m->json, .arena = m->arena, .parts = m->parts, .room = m->room};
    m->count = 0;
    if (!lar_json_is(m->json, node, LAR_JSON_OBJECT)) return;
    if (m->role == LAR_ROLE_TOOL) read_results(&r, node, m->protocol);
    else if (m->protocol == LAR_PROTOCOL_CHAT) read_chat(&r, node);
    else if (m->protocol == LAR_PROTOCOL_MESSAGES) add_content(&r, only(&r, node, "content"), "text");
    else if (m->protocol == LAR_PROTOCOL_RESPONSES) read_item(&r, node);
    if (!r.odd) m->count = r.count;
}

/* -- what they mean --------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static lar_hash tagged(lar_hash h, char tag) {
    h.bytes[0] ^= (uint8_t)tag;
    return h;
}

void lar_output_text(lar_output_part *part, lar_hash before_tail, bool empty, lar_slice tail) {
    part->norm = tagged(before_tail, 't');
    part->exact = lar_hash_chain(part->norm, tail);
    part->empty = empty;
    part->tail = tail;
}

lar_error lar_output_hash(lar_json_forms *f, const lar_json *j, lar_output_part *part, lar_slice text, uint32_t *work) {
    part->text = text;
    if (part->kind == LAR_OUTPUT_TEXT) {
        size_t end = text.len;
        while (end && is_blank(text.ptr[end - 1])) end--;
        lar_output_text(part, lar_hash_of(lar_slice_of(text.ptr, end)), end == 0,
                        lar_slice_of(text.ptr + end, text.len - end));
        return LAR_OK;
    }
    bool value = part->kind == LAR_OUTPUT_INPUT;
    const lar_json *tree = value ? j : &f->json;
    uint32_t root = value ? part->node : 0;
    part->json = value ? j->nodes[root].kind >= LAR_JSON_ARRAY && text.len <= LAR_JSON_FORM_TEXT_MAX &&
                             j->nodes[root].next - root <= LAR_JSON_FORM_NODES_MAX
                       : lar_json_forms_parse(f, text);
    uint64_t more = text.len / BYTES_A_WORK + (part->json ? (uint64_t)(tree->nodes[root].next - root) * NODE_WORK : 0);
    *work = more > UINT32_MAX - *work ? UINT32_MAX : *work + (uint32_t)more;
    part->exact = tagged(lar_hash_of(text), 'b');
    part->norm = part->exact;
    return part->json ? lar_json_form_norm(f, tree, root, &part->norm) : LAR_OK;
}

lar_output_core lar_output_core_of(const lar_output_part *parts, uint32_t count) {
    lar_output_core c = {{{0}}, {{0}}, {{0}}};
    for (uint32_t i = 0; i < count; i++) {
        const lar_output_part *p = &parts[i];
        bool call = p->kind == LAR_OUTPUT_CALL || p->kind == LAR_OUTPUT_INPUT;
        lar_hash means = tagged(p->norm, call ? 'c' : p->kind == LAR_OUTPUT_RESULT ? 'r' : 't');
        if (p->kind != LAR_OUTPUT_TEXT || !p->empty || p->tail.len) c.exact = lar_hash_join(c.exact, p->exact);
        if (p->kind == LAR_OUTPUT_TEXT && p->empty) continue;
        means = lar_hash_chain(means, p->name);
        c.free = lar_hash_join(c.free, means);
        c.keyed = lar_hash_join(c.keyed, lar_hash_chain(means, p->id));
    }
    return c;
}
