/* The cache_control of a tool, as spans. It says "cache up to here": it belongs to a place in the list, not to a tool.
 * Called by tool_order.c, which leaves it in its place when tools change theirs, and by canon_hash.c, which hashes a
 * tool without it; pure; no memory but the splices'; never blocks.
 * Invariants: 1. the bytes of all other members stay as they are. 2. a member that is taken out goes with one comma,
 * so that what is left is the tool as the client writes it where it has no marker. */
#include "policies/canon_state.h"

static bool is_marker(const lar_json *j, uint32_t key) { return lar_json_eq(j, key, LAR_SLICE("cache_control")); }

lar_canon_marker lar_canon_marker_read(const lar_json *j, uint32_t tool) {
    lar_canon_marker m = {.key = LAR_JSON_NONE};
    if (!lar_json_is(j, tool, LAR_JSON_OBJECT)) return m;
    uint32_t last = LAR_JSON_NONE, before = LAR_JSON_NONE, key = LAR_JSON_NONE, behind = LAR_JSON_NONE;
    for (uint32_t k = lar_json_first(j, tool); k != LAR_JSON_NONE; k = lar_json_after(j, tool, k)) {
        if (is_marker(j, k)) {
            m.count++;
            key = k;
            before = last;
            behind = lar_json_after(j, tool, k);
        } else {
            last = k;
        }
    }
    m.key = key;
    m.lonely = last == LAR_JSON_NONE;
    m.insert_at = m.lonely ? j->nodes[tool].start + 1 : j->nodes[last + 1].end;
    if (m.count != 1) return m;
    m.member = lar_slice_of(j->body.ptr + j->nodes[key].start, j->nodes[key + 1].end - j->nodes[key].start);
    m.cut_start = before != LAR_JSON_NONE ? j->nodes[before + 1].end : j->nodes[key].start;
    m.cut_end = before == LAR_JSON_NONE && behind != LAR_JSON_NONE ? j->nodes[behind].start : j->nodes[key + 1].end;
    if (m.lonely) m.insert_at = m.cut_start;
    return m;
}

bool lar_canon_markers_movable(const lar_json *j, uint32_t tools) {
    bool any = false, odd = false;
    for (uint32_t t = lar_json_first(j, tools); t != LAR_JSON_NONE; t = lar_json_after(j, tools, t)) {
        odd = odd || !lar_json_is(j, t, LAR_JSON_OBJECT);
        uint32_t own = 0;
        for (uint32_t i = t; i < j->nodes[t].next; i++) {
            if (!(j->nodes[i].flags & LAR_JSON_KEY) || !is_marker(j, i)) continue;
            own++;
            odd = odd || own > 1 || j->nodes[i].depth != j->nodes[t].depth + 1;
        }
        any = any || own > 0;
    }
    return !any || !odd;
}

/* The pieces of the tool in their order; the last one replaces what stands at the place, the others go before it. */
typedef struct pieces {
    lar_slice list[5 + 2 * LAR_CANON_SPANS_MAX];
    uint32_t count;
    const lar_splices *edits; /* of the tool's bytes */
    uint32_t next;            /* first of them that is not done */
} pieces;

static void add(pieces *p, const lar_json *j, uint32_t start, uint32_t end) {
    for (; p->next < p->edits->count && p->edits->list[p->next].start < end; p->next++) {
        const lar_splice *edit = &p->edits->list[p->next];
        if (start < edit->start) p->list[p->count++] = lar_slice_of(j->body.ptr + start, edit->start - start);
        p->list[p->count++] = edit->with;
        start = edit->end;
    }
    if (start < end) p->list[p->count++] = lar_slice_of(j->body.ptr + start, end - start);
}

/* A tool in other words than the client's. */
static lar_error place_text(lar_canon *c, const lar_json_node *at, lar_slice text, const lar_canon_marker *wanted) {
    if (wanted->count == 0) return lar_splices_add(&c->out->splices, at->start, at->end, text);
    lar_slice all = lar_arena_printf(c->arena, "%.*s,%.*s}", (int)text.len - 1, text.ptr, LAR_FMT(wanted->member));
    return all.ptr ? lar_splices_add(&c->out->splices, at->start, at->end, all) : LAR_NO_MEMORY;
}

lar_error lar_canon_tool_place(lar_canon *c, uint32_t place, const lar_canon_tool *tool) {
    const lar_json *j = c->json;
    lar_splices *to = &c->out->splices;
    const lar_json_node *at = &j->nodes[place], *n = &j->nodes[tool->node];
    lar_canon_marker own = lar_canon_marker_read(j, tool->node), wanted = lar_canon_marker_read(j, place);
    if (tool->text.ptr) return place_text(c, at, tool->text, &wanted);
    if (tool->edits.count == 0 && lar_slice_eq(own.member, wanted.member))
        return lar_splices_add(to, at->start, at->end, lar_json_raw(j, tool->node));
    pieces p = {.count = 0, .edits = &tool->edits};
    uint32_t from = n->start;
    if (lar_slice_eq(own.member, wanted.member)) own.count = wanted.count = 0;
    if (own.count) {
        add(&p, j, from, own.cut_start);
        from = own.cut_end;
    }
    if (wanted.count) {
        add(&p, j, from, own.insert_at);
        if (own.insert_at > from) from = own.insert_at;
        if (!own.lonely) p.list[p.count++] = LAR_SLICE(",");
        p.list[p.count++] = wanted.member;
    }
    add(&p, j, from, n->end);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i + 1 < p.count && !e; i++) e = lar_splices_add(to, at->start, at->start, p.list[i]);
    return e ? e : lar_splices_add(to, at->start, at->end, p.list[p.count - 1]);
}
