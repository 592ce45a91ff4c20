/* LR010: a known tool goes out with its members in the order in which they were first sent, at every depth.
 * Called by tool_order.c before the tools find their places; never blocks. Remembered in the scope:
 *   k  order-free hash of a tool -> [version][16 bytes: its exact hash as sent][order of its members]
 * Invariants: 1. names and values are the client's own bytes, and so is what stands between members; only members
 * change places. 2. a tool with a name twice in one object, or with a marker deeper inside, stays as it is. 3. so does
 * what comes behind the bound on values.
 * Memory: the arena. Not here: the order of tools (tool_order.c), what an order is as bytes (json_order.h). */
#include "policies/canon_state.h"
#include "policies/json_order.h"

enum { VERSION = 1, HEAD_BYTES = 17, ORDER_BYTES_MAX = 16 * 1024, NODES_MAX = 32 * 1024 };

/* Reads the order of a tool's members, without its marker; *fits false: it must stay as it is. */
static lar_error read_tool(lar_canon *c, uint32_t tool, lar_json_order *o, bool *fits) {
    const lar_json *j = c->json;
    lar_canon_marker marker = lar_canon_marker_read(j, tool);
    *fits = false;
    if (!lar_json_is(j, tool, LAR_JSON_OBJECT) || marker.count > 1) return LAR_OK;
    for (uint32_t i = tool; i < j->nodes[tool].next; i++) {
        bool key = j->nodes[i].flags & LAR_JSON_KEY && i != marker.key;
        if (key && lar_json_eq(j, i, LAR_SLICE("cache_control"))) return LAR_OK;
    }
    *o = (lar_json_order){.json = j, .root = tool, .skip = marker.key};
    return lar_json_order_read(o, c->arena, fits);
}

/* -- writing ---------------------------------------------------------------------------------------- */

/* What is still to be written: bytes of the body, or a node with all that lies in it. */
typedef struct piece {
    uint32_t start, end, node;
} piece;

typedef struct pieces {
    piece *list;
    uint32_t count;
} pieces;

static void push(pieces *p, uint32_t start, uint32_t end, uint32_t node) {
    p->list[p->count++] = (piece){start, end, node};
}

/* The inside of an object or array, last to first. Between members stands what the client wrote at that place. */
static void open_up(const lar_json_order *o, uint32_t node, pieces *p) {
    const lar_json *j = o->json;
    const lar_json_node *at = &j->nodes[node];
    bool object = at->kind == LAR_JSON_OBJECT;
    uint32_t from = p->count, before = at->start, place = 0;
    const uint32_t *want = object ? o->want + o->first[node - o->root] : NULL;
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        uint32_t value = object ? k + 1 : k;
        if (k == o->skip) { /* the comma behind it stays, or the one before it goes */
            if (before == at->start) push(p, before, j->nodes[k].start, LAR_JSON_NONE);
            before = j->nodes[value].end;
            if (place == 0) { /* it stood first: what stands behind its comma opens the next member */
                uint32_t next = lar_json_after(j, node, k);
                before = next == LAR_JSON_NONE ? before : j->nodes[next].start;
            }
            continue;
        }
        push(p, before, j->nodes[k].start, LAR_JSON_NONE);
        uint32_t sent = object ? want[place] : k;
        place++;
        if (object) push(p, j->nodes[sent].start, j->nodes[sent + 1].start, LAR_JSON_NONE);
        push(p, 0, 0, object ? sent + 1 : sent);
        before = j->nodes[value].end;
    }
    push(p, before, at->end, LAR_JSON_NONE);
    for (uint32_t a = from, b = p->count; a + 1 < b; a++, b--) {
        piece swap = p->list[a];
        p->list[a] = p->list[b - 1];
        p->list[b - 1] = swap;
    }
}

/* Bytes of the body with the edits that lie in them; returns their length. */
static size_t copy_edited(lar_slice body, const piece *from, const lar_splices *edits, char *out) {
    uint32_t at = from->start;
    size_t len = 0;
    for (uint32_t i = 0; i < edits->count; i++) {
        const lar_splice *edit = &edits->list[i];
        if (edit->start < at || edit->end > from->end) continue;
        memcpy(out + len, body.ptr + at, edit->start - at);
        len += edit->start - at;
        if (edit->with.len) memcpy(out + len, edit->with.ptr, edit->with.len);
        len += edit->with.len;
        at = edit->end;
    }
    memcpy(out + len, body.ptr + at, from->end - at);
    return len + (from->end - at);
}

/* The tool in its wanted order, without its marker. */
static lar_error write_tool(lar_canon *c, const lar_json_order *o, const lar_splices *edits, lar_slice *out) {
    const lar_json *j = o->json;
    uint32_t nodes = j->nodes[o->root].next - o->root, raw = j->nodes[o->root].end - j->nodes[o->root].start;
    for (uint32_t i = 0; i < edits->count; i++) raw += (uint32_t)edits->list[i].with.len;
    pieces p = {lar_arena_alloc(c->arena, ((size_t)nodes * 3 + 4) * sizeof *p.list), 0};
    char *text = lar_arena_alloc(c->arena, raw + 1u);
    if (!p.list || !text) return LAR_NO_MEMORY;
    size_t len = 0;
    push(&p, 0, 0, o->root);
    while (p.count) {
        piece one = p.list[--p.count];
        if (one.node != LAR_JSON_NONE) {
            if (j->nodes[one.node].kind >= LAR_JSON_ARRAY && j->nodes[one.node].count) {
                open_up(o, one.node, &p);
                continue;
            }
            one.start = j->nodes[one.node].start;
            one.end = j->nodes[one.node].end;
        }
        len += copy_edited(j->body, &one, edits, text + len);
    }
    *out = lar_slice_of(text, len);
    return LAR_OK;
}

/* -- the rule --------------------------------------------------------------------------------------- */

static lar_error learn(lar_canon *c, const lar_canon_tool *t, const lar_json_order *o) {
    lar_buf order;
    char version = VERSION;
    lar_buf_init(&order, HEAD_BYTES + ORDER_BYTES_MAX);
    lar_error e = lar_buf_add(&order, &version, 1);
    if (!e) e = lar_buf_add(&order, t->exact.bytes, sizeof t->exact.bytes);
    if (!e) e = lar_json_order_write(o, c->arena, &order);
    if (!e) e = lar_canon_put_value(c, 'k', t->norm, lar_buf_slice(&order));
    lar_buf_release(&order);
    return e == LAR_LIMIT ? LAR_OK : e; /* too many members to remember */
}

static lar_error one_tool(lar_canon *c, lar_canon_tool *t, uint32_t *nodes_left) {
    bool known = lar_canon_get(c, 'k', t->norm) && c->value.len >= HEAD_BYTES && c->value.ptr[0] == VERSION;
    if (known && memcmp(c->value.ptr + 1, t->exact.bytes, sizeof t->exact.bytes) == 0) return LAR_OK;
    uint32_t nodes = c->json->nodes[t->node].next - t->node;
    if (nodes > *nodes_left) return LAR_OK;
    *nodes_left -= nodes;
    lar_json_order o;
    bool fits;
    lar_error e = read_tool(c, t->node, &o, &fits);
    if (e || !fits) return e;
    if (!known || !lar_json_order_apply(&o, lar_slice_of(c->value.ptr + HEAD_BYTES, c->value.len - HEAD_BYTES))) {
        e = read_tool(c, t->node, &o, &fits); /* a damaged order has left its marks in it */
        return e || !fits ? e : learn(c, t, &o);
    }
    if (c->apply) {
        e = write_tool(c, &o, &t->edits, &t->text);
        memcpy(t->exact.bytes, c->value.ptr + 1, sizeof t->exact.bytes);
    }
    if (e) return e;
    const lar_json_node *at = &c->json->nodes[t->node];
    return lar_canon_find(
        c,
        (lar_finding){.rule = LAR_RULE_LR010, .node = t->node, .start = at->start, .end = at->end, .edited = c->apply});
}

lar_error lar_rule_tool_form(lar_canon *c, lar_canon_tool *tools, uint32_t count) {
    if (!lar_canon_rule_on(c, LAR_RULE_LR010) || !c->in->memory) return LAR_OK;
    uint32_t nodes_left = NODES_MAX;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < count && !e; i++) e = one_tool(c, &tools[i], &nodes_left);
    return e;
}
