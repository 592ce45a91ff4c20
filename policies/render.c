/* The template of all providers: tags, texts and tools in order (header: render.h).
 * Flow: a command reads a view, renders it, counts its tokens or compares it with another, and asks where a place is.
 * Pure; never blocks; memory from the given arena. No recursion: results of tools are the deepest that is opened.
 * Invariants: 1. pieces lie end to end. 2. Two bodies that differ only in JSON white space, in how a string is escaped
 * or in what the model does not read give the same text. Not here: tokens (tokens.c), caches (cachesim.c). */
#include "policies/render.h"

#include <string.h>

#include "policies/reprint.h"
#include "policies/text.h"

enum { TTL_SHORT_S = 300, TTL_LONG_S = 3600 };

/* -- pieces --------------------------------------------------------------------------------------------- */

static lar_error add(lar_rendering *r, lar_piece_kind kind, lar_slice text, uint32_t node) {
    if (!text.len) return LAR_OK;
    if (r->count == r->cap) {
        uint32_t cap = r->cap ? r->cap * 2 : 64;
        lar_render_piece *more = lar_arena_alloc(r->arena, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        if (r->count) memcpy(more, r->pieces, r->count * sizeof *more);
        r->pieces = more;
        r->cap = cap;
    }
    r->pieces[r->count++] = (lar_render_piece){text, r->bytes, node, r->segment, kind};
    r->bytes += text.len;
    return LAR_OK;
}

static lar_error tag(lar_rendering *r, const char *text, uint32_t node) {
    return add(r, LAR_PIECE_TEMPLATE, lar_slice_cstr(text), node);
}

/* A string as its text, any other value as JSON, an absent one not at all. */
static lar_error value(lar_rendering *r, uint32_t node) {
    if (node == LAR_JSON_NONE || lar_json_is(r->json, node, LAR_JSON_NULL)) return LAR_OK;
    if (lar_json_is(r->json, node, LAR_JSON_STRING)) {
        lar_text t;
        lar_error e = lar_text_read(&t, r->json, node, r->arena);
        return e ? e : add(r, LAR_PIECE_STRING, t.text, node);
    }
    lar_slice text;
    lar_error e = lar_reprint(r->json, node, r->arena, &text);
    return e ? e : add(r, LAR_PIECE_JSON, text, node);
}

static uint32_t marked(const lar_json *j, uint32_t node) {
    uint32_t mark = lar_json_get(j, node, "cache_control");
    if (!lar_json_is(j, mark, LAR_JSON_OBJECT)) return 0;
    return lar_json_eq(j, lar_json_get(j, mark, "ttl"), LAR_SLICE("1h")) ? TTL_LONG_S : TTL_SHORT_S;
}

static lar_error end_block(lar_rendering *r, uint32_t ttl_s) {
    if (r->block_count == r->block_cap) {
        uint32_t cap = r->block_cap ? r->block_cap * 2 : 32;
        lar_render_block *more = lar_arena_alloc(r->arena, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        if (r->block_count) memcpy(more, r->blocks, r->block_count * sizeof *more);
        r->blocks = more;
        r->block_cap = cap;
    }
    r->blocks[r->block_count++] = (lar_render_block){r->bytes, ttl_s};
    return LAR_OK;
}

/* -- messages ------------------------------------------------------------------------------------------- */

static bool has_text(const lar_json *j, uint32_t node) {
    return lar_json_is(j, node, LAR_JSON_STRING) && lar_json_inner(j, node).len > 0;
}

/* "<|call|>id name arguments"; `owner` holds name and arguments. */
static lar_error call(lar_rendering *r, uint32_t node, uint32_t id, uint32_t owner, const char *arguments) {
    lar_error e = tag(r, "<|call|>", node);
    if (!e) e = value(r, id);
    if (!e) e = tag(r, " ", node);
    if (!e) e = value(r, lar_json_get(r->json, owner, "name"));
    if (!e) e = tag(r, " ", node);
    return e ? e : value(r, lar_json_get(r->json, owner, arguments));
}

static lar_error think(lar_rendering *r, uint32_t node, uint32_t text) {
    if (!has_text(r->json, text)) return LAR_OK;
    lar_error e = tag(r, "<think>", node);
    if (!e) e = value(r, text);
    return e ? e : tag(r, "</think>", node);
}

/* The texts of a result, or of a system text: parts that are no text are printed as JSON. */
static lar_error flat_content(lar_rendering *r, uint32_t content) {
    const lar_json *j = r->json;
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) return value(r, content);
    lar_error e = LAR_OK;
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE && !e; p = lar_json_after(j, content, p)) {
        uint32_t text = lar_json_get(j, p, "text");
        e = value(r, text != LAR_JSON_NONE ? text : p);
    }
    return e;
}

/* Blocks of Anthropic's messages that are no text. */
static lar_error typed_part(lar_rendering *r, uint32_t part, bool *done) {
    const lar_json *j = r->json;
    uint32_t type = lar_json_get(j, part, "type");
    *done = true;
    if (lar_json_eq(j, type, LAR_SLICE("tool_use"))) return call(r, part, lar_json_get(j, part, "id"), part, "input");
    if (lar_json_eq(j, type, LAR_SLICE("thinking"))) return think(r, part, lar_json_get(j, part, "thinking"));
    *done = lar_json_eq(j, type, LAR_SLICE("tool_result"));
    if (!*done) return LAR_OK;
    lar_error e = tag(r, "<|for|>", part);
    if (!e) e = value(r, lar_json_get(j, part, "tool_use_id"));
    if (!e) e = tag(r, " ", part);
    return e ? e : flat_content(r, lar_json_get(j, part, "content"));
}

static lar_error content_of(lar_rendering *r, uint32_t content, uint32_t mark) {
    const lar_json *j = r->json;
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) {
        lar_error e = value(r, content);
        return e || content == LAR_JSON_NONE ? e : end_block(r, mark);
    }
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE;) {
        uint32_t text = lar_json_get(j, p, "text"), next = lar_json_after(j, content, p);
        bool done = false;
        lar_error e = LAR_OK;
        if (text == LAR_JSON_NONE && r->protocol == LAR_PROTOCOL_MESSAGES) e = typed_part(r, p, &done);
        if (!e && !done) e = value(r, text != LAR_JSON_NONE ? text : p);
        uint32_t own = marked(j, p);
        if (!e) e = end_block(r, own ? own : next == LAR_JSON_NONE ? mark : 0);
        if (e) return e;
        p = next;
    }
    return LAR_OK;
}

static lar_error tool_calls(lar_rendering *r, uint32_t list) {
    const lar_json *j = r->json;
    if (!lar_json_is(j, list, LAR_JSON_ARRAY)) return LAR_OK;
    lar_error e = LAR_OK;
    for (uint32_t c = lar_json_first(j, list); c != LAR_JSON_NONE && !e; c = lar_json_after(j, list, c)) {
        e = call(r, c, lar_json_get(j, c, "id"), lar_json_get(j, c, "function"), "arguments");
        if (!e) e = end_block(r, 0);
    }
    return e;
}

/* An item of the Responses API that has a type instead of a role. Its id and status are not read by the model. */
static lar_error item(lar_rendering *r, uint32_t node) {
    const lar_json *j = r->json;
    uint32_t type = lar_json_get(j, node, "type");
    lar_error e;
    if (lar_json_eq(j, type, LAR_SLICE("function_call"))) {
        e = call(r, node, lar_json_get(j, node, "call_id"), node, "arguments");
    } else if (lar_json_eq(j, type, LAR_SLICE("function_call_output"))) {
        e = tag(r, "<|for|>", node);
        if (!e) e = value(r, lar_json_get(j, node, "call_id"));
        if (!e) e = tag(r, " ", node);
        if (!e) e = flat_content(r, lar_json_get(j, node, "output"));
    } else if (lar_json_eq(j, type, LAR_SLICE("reasoning"))) {
        e = tag(r, "<think>", node);
        if (!e) e = flat_content(r, lar_json_get(j, node, "summary"));
        if (!e) e = value(r, lar_json_get(j, node, "encrypted_content"));
        if (!e) e = tag(r, "</think>", node);
    } else {
        e = value(r, node);
    }
    if (!e) e = end_block(r, 0);
    return e ? e : tag(r, "<|end|>", node);
}

static lar_error message(lar_rendering *r, uint32_t node) {
    const lar_json *j = r->json;
    uint32_t role = lar_json_get(j, node, "role");
    if (!lar_json_is(j, node, LAR_JSON_OBJECT) || (role == LAR_JSON_NONE && r->protocol == LAR_PROTOCOL_RESPONSES))
        return item(r, node);
    lar_error e = tag(r, "<|", node);
    if (!e) e = role == LAR_JSON_NONE ? tag(r, "None", node) : value(r, role);
    if (!e) e = tag(r, "|>", node);
    if (!e) e = think(r, node, lar_json_get(j, node, "reasoning_content"));
    if (!e) e = content_of(r, lar_json_get(j, node, "content"), marked(j, node));
    if (!e) e = tool_calls(r, lar_json_get(j, node, "tool_calls"));
    uint32_t answers = lar_json_get(j, node, "tool_call_id");
    if (!e && has_text(j, answers)) {
        e = tag(r, "<|for|>", answers);
        if (!e) e = value(r, answers);
    }
    return e ? e : tag(r, "<|end|>", node);
}

/* A segment of the view that is no message: a top-level system text, instructions, a bare input or prompt. */
static lar_error bare(lar_rendering *r, const lar_segment *s) {
    if (r->protocol == LAR_PROTOCOL_COMPLETIONS) return value(r, s->content);
    lar_error e = tag(r, s->role == LAR_ROLE_SYSTEM ? "<|system|>" : "<|user|>", s->node);
    if (!e) e = content_of(r, s->content, 0);
    return e ? e : tag(r, "<|end|>", s->node);
}

static lar_error tools(lar_rendering *r, uint32_t list) {
    const lar_json *j = r->json;
    if (list == LAR_JSON_NONE || j->nodes[list].count == 0) return LAR_OK;
    r->segment = LAR_JSON_NONE;
    lar_error e = tag(r, "<|tools|>[", list);
    for (uint32_t t = lar_json_first(j, list); t != LAR_JSON_NONE && !e;) {
        uint32_t next = lar_json_after(j, list, t);
        lar_slice text;
        e = lar_reprint(j, t, r->arena, &text);
        if (!e) e = add(r, LAR_PIECE_JSON, text, t);
        if (!e) e = tag(r, next == LAR_JSON_NONE ? "]" : ", ", next == LAR_JSON_NONE ? list : next);
        if (!e) e = end_block(r, marked(j, t));
        t = next;
    }
    return e;
}

/* -- the whole -------------------------------------------------------------------------------------------- */

static lar_error segments(lar_rendering *r, const lar_request_view *v, uint32_t from, uint32_t to) {
    lar_error e = LAR_OK;
    for (uint32_t i = from; i < to && !e; i++) {
        const lar_segment *s = &v->segments[i];
        r->segment = i;
        e = s->node == s->content ? bare(r, s) : message(r, s->node);
    }
    return e;
}

lar_error lar_render_request(lar_rendering *r, const lar_request_view *v, lar_render_order order, lar_arena *arena) {
    *r = (lar_rendering){.json = v->json, .protocol = v->protocol, .arena = arena, .segment = LAR_JSON_NONE};
    uint32_t head = 0;
    while (head < v->segment_count && v->segments[head].role == LAR_ROLE_SYSTEM) head++;
    if (v->protocol == LAR_PROTOCOL_NONE || v->protocol == LAR_PROTOCOL_EMBEDDINGS) return LAR_OK;
    r->automatic_ttl_s = marked(v->json, 0);
    lar_error e = LAR_OK;
    if (order == LAR_RENDER_TOOLS_FIRST) e = tools(r, v->tools);
    if (!e) e = segments(r, v, 0, head);
    if (!e && order == LAR_RENDER_SYSTEM_FIRST) e = tools(r, v->tools);
    return e ? e : segments(r, v, head, v->segment_count);
}

lar_error lar_render_message(lar_rendering *r, const lar_json *j, uint32_t node, lar_protocol p, lar_arena *arena) {
    *r = (lar_rendering){.json = j, .protocol = p, .arena = arena, .segment = LAR_JSON_NONE};
    if (!lar_json_is(j, node, LAR_JSON_ARRAY)) return message(r, node);
    lar_error e = LAR_OK;
    for (uint32_t m = lar_json_first(j, node); m != LAR_JSON_NONE && !e; m = lar_json_after(j, node, m))
        e = message(r, m);
    return e;
}

lar_error lar_render_text(const lar_rendering *r, lar_buf *out) {
    lar_error e = lar_buf_reserve(out, r->bytes);
    for (uint32_t i = 0; i < r->count && !e; i++) e = lar_buf_add_slice(out, r->pieces[i].text);
    return e;
}

/* -- back to the body --------------------------------------------------------------------------------- */

static const lar_render_piece *piece_at(const lar_rendering *r, size_t offset) {
    uint32_t low = 0, high = r->count;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (r->pieces[mid].at <= offset) low = mid;
        else high = mid;
    }
    return &r->pieces[low];
}

/* The innermost value or key that holds byte `at`, from `node` on. */
static uint32_t innermost(const lar_json *j, uint32_t node, uint32_t at) {
    for (uint32_t child = node; child != LAR_JSON_NONE;) {
        node = child;
        child = LAR_JSON_NONE;
        for (uint32_t c = node + 1; c < j->nodes[node].next && j->nodes[c].start <= at; c = j->nodes[c].next)
            if (at < j->nodes[c].end) child = c;
    }
    return node;
}

bool lar_render_where(const lar_rendering *r, size_t offset, lar_render_place *out) {
    if (offset >= r->bytes) return false;
    const lar_render_piece *p = piece_at(r, offset);
    const lar_json *j = r->json;
    size_t inside = offset - p->at;
    *out = (lar_render_place){p, p->node, j->nodes[p->node].start};
    lar_text t;
    if (p->kind == LAR_PIECE_STRING && lar_text_read(&t, j, p->node, r->arena) == LAR_OK) {
        while (inside > 0 && ((unsigned char)t.text.ptr[inside] & 0xC0) == 0x80) inside--; /* to a character's border */
        out->body_offset = lar_text_body_offset(&t, (uint32_t)inside);
    } else if (p->kind == LAR_PIECE_JSON) {
        out->body_offset = lar_reprint_body_offset(j, p->node, inside);
        out->node = innermost(j, p->node, out->body_offset);
    }
    return true;
}
