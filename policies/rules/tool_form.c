/* LR010: a known tool goes out with its members in the order in which they were first sent, at every depth.
 * Called by tool_order.c before the tools find their places; never blocks. Remembered in the scope:
 *   k  order-free hash of a tool -> [version][16 bytes: its exact hash as sent][order of the members]
 * The order holds no text: for every object with two members or more, in preorder with members sorted by the hash of
 * their names, the place in that sorting of the first member sent, of the second, and so on; one byte each, or two in
 * an object of more than 256. Equal tools have the same sorting, so it fits each of them.
 * Invariants: 1. names and values are the client's own bytes, and so is what stands between members; only members
 * change places. 2. a tool with a name twice in one object, or with a marker deeper inside, stays as it is. 3. so does
 * what comes behind the bound on values.
 * Memory: the arena. Not here: the order of tools (tool_order.c), what `properties` means (nothing is sorted). */
#include <stdlib.h>

#include "policies/canon_state.h"

enum { VERSION = 1, HEAD_BYTES = 17, ORDER_BYTES_MAX = 16 * 1024, NODES_MAX = 32 * 1024, ONE_BYTE_MAX = 256 };

typedef struct member {
    uint64_t name; /* hash of the decoded name */
    uint32_t key;
    uint32_t rank; /* of a member in document order: its place in the sorting */
} member;

/* The members of a tool's objects, each object's in two orders; `first` is found by an object's node. */
typedef struct shape {
    const lar_json *json;
    uint32_t tool, marker; /* key of its marker, or NONE */
    uint32_t *first;       /* per node of the tool: index of its first member below */
    member *sorted;        /* by name, then with the rank of document order */
    uint32_t *want;        /* keys in the order to be sent */
    uint32_t *stack;       /* of nodes, room for all */
} shape;

static int by_name(const void *a, const void *b) {
    const member *x = a, *y = b;
    return x->name < y->name ? -1 : x->name > y->name;
}

static int by_key(const void *a, const void *b) {
    const member *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static uint32_t member_count(const shape *s, uint32_t object) {
    return s->json->nodes[object].count - (object == s->tool && s->marker != LAR_JSON_NONE);
}

/* Sorts one object's members by name; then back in document order, each with its rank. False: a name stands twice. */
static bool rank_members(member *m, uint32_t count) {
    if (count < 2) return true;
    qsort(m, count, sizeof *m, by_name);
    for (uint32_t i = 0; i < count; i++) {
        if (i && m[i].name == m[i - 1].name) return false;
        m[i].rank = i;
    }
    return true;
}

/* False if the tool must stay as it is. */
static lar_error read_shape(lar_canon *c, uint32_t tool, shape *s, bool *fits) {
    const lar_json *j = c->json;
    uint32_t n = j->nodes[tool].next - tool, used = 0;
    lar_canon_marker marker = lar_canon_marker_read(j, tool);
    *s = (shape){.json = j, .tool = tool, .marker = marker.count ? marker.key : LAR_JSON_NONE};
    *fits = false;
    if (!lar_json_is(j, tool, LAR_JSON_OBJECT) || marker.count > 1) return LAR_OK;
    s->first = lar_arena_alloc(c->arena, n * sizeof *s->first);
    s->sorted = lar_arena_alloc(c->arena, n * sizeof *s->sorted);
    s->want = lar_arena_alloc(c->arena, n * sizeof *s->want);
    s->stack = lar_arena_alloc(c->arena, n * sizeof *s->stack);
    if (!s->first || !s->sorted || !s->want || !s->stack) return LAR_NO_MEMORY;
    for (uint32_t i = tool; i < tool + n; i++) {
        if (!lar_json_is(j, i, LAR_JSON_OBJECT)) continue;
        uint32_t first = s->first[i - tool] = used;
        for (uint32_t k = lar_json_first(j, i); k != LAR_JSON_NONE; k = lar_json_after(j, i, k)) {
            if (k == s->marker) continue;
            if (lar_json_eq(j, k, LAR_SLICE("cache_control"))) return LAR_OK;
            lar_slice name;
            lar_error e = lar_canon_decoded(c, k, &name);
            if (e) return e;
            s->want[used] = k;
            s->sorted[used++] = (member){.name = lar_hash_low(lar_hash_of(name)), .key = k};
        }
        if (!rank_members(s->sorted + first, used - first)) return LAR_OK;
    }
    *fits = true;
    return LAR_OK;
}

/* Puts what lies in `node` on the stack, so that it is taken off in order: elements, or values by their names. */
static uint32_t push_inside(const shape *s, uint32_t node, uint32_t depth) {
    const lar_json *j = s->json;
    uint32_t from = depth;
    if (lar_json_is(j, node, LAR_JSON_ARRAY)) {
        for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k))
            s->stack[depth++] = k;
    } else if (lar_json_is(j, node, LAR_JSON_OBJECT)) {
        const member *m = s->sorted + s->first[node - s->tool];
        for (uint32_t i = 0; i < member_count(s, node); i++) s->stack[depth++] = m[i].key + 1;
    }
    for (uint32_t a = from, b = depth; a + 1 < b; a++, b--) {
        uint32_t swap = s->stack[a];
        s->stack[a] = s->stack[b - 1];
        s->stack[b - 1] = swap;
    }
    return depth;
}

/* Writes the order of the client's members; false if it is too long to keep. */
static lar_error write_order(lar_canon *c, const shape *s, lar_buf *out) {
    uint32_t depth = 1;
    s->stack[0] = s->tool;
    while (depth) {
        uint32_t node = s->stack[--depth], count = 0;
        depth = push_inside(s, node, depth);
        if (lar_json_is(s->json, node, LAR_JSON_OBJECT)) count = member_count(s, node);
        if (count < 2) continue;
        member *m = lar_arena_alloc(c->arena, count * sizeof *m);
        if (!m) return LAR_NO_MEMORY;
        memcpy(m, s->sorted + s->first[node - s->tool], count * sizeof *m);
        qsort(m, count, sizeof *m, by_key);
        for (uint32_t i = 0; i < count; i++) {
            uint8_t rank[2] = {(uint8_t)(m[i].rank & 255), (uint8_t)(m[i].rank >> 8)};
            lar_error e = lar_buf_add(out, rank, count > ONE_BYTE_MAX ? 2 : 1);
            if (e) return e;
        }
    }
    return LAR_OK;
}

/* Fills `want` from a remembered order; false if that is no order of these members. */
static bool read_order(const shape *s, lar_slice order) {
    uint32_t depth = 1;
    size_t at = 0;
    s->stack[0] = s->tool;
    while (depth) {
        uint32_t node = s->stack[--depth], count = 0;
        depth = push_inside(s, node, depth);
        if (lar_json_is(s->json, node, LAR_JSON_OBJECT)) count = member_count(s, node);
        if (count < 2) continue;
        uint32_t first = s->first[node - s->tool], bytes = count > ONE_BYTE_MAX ? 2 : 1;
        member *m = s->sorted + first;
        if (order.len - at < (size_t)count * bytes) return false;
        for (uint32_t i = 0; i < count; i++, at += bytes) {
            uint32_t rank = (uint8_t)order.ptr[at];
            if (bytes == 2) rank |= (uint32_t)(uint8_t)order.ptr[at + 1] << 8;
            if (rank >= count || m[rank].rank == LAR_JSON_NONE) return false;
            m[rank].rank = LAR_JSON_NONE; /* taken */
            s->want[first + i] = m[rank].key;
        }
    }
    return at == order.len;
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
static void open_up(const shape *s, uint32_t node, pieces *p) {
    const lar_json *j = s->json;
    const lar_json_node *at = &j->nodes[node];
    bool object = at->kind == LAR_JSON_OBJECT;
    uint32_t from = p->count, before = at->start, place = 0;
    const uint32_t *want = object ? s->want + s->first[node - s->tool] : NULL;
    for (uint32_t k = lar_json_first(j, node); k != LAR_JSON_NONE; k = lar_json_after(j, node, k)) {
        uint32_t value = object ? k + 1 : k;
        if (k == s->marker) { /* the comma behind it stays, or the one before it goes */
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
static lar_error write_tool(lar_canon *c, const shape *s, const lar_splices *edits, lar_slice *out) {
    const lar_json *j = s->json;
    uint32_t nodes = j->nodes[s->tool].next - s->tool, raw = j->nodes[s->tool].end - j->nodes[s->tool].start;
    for (uint32_t i = 0; i < edits->count; i++) raw += (uint32_t)edits->list[i].with.len;
    pieces p = {lar_arena_alloc(c->arena, ((size_t)nodes * 3 + 4) * sizeof *p.list), 0};
    char *text = lar_arena_alloc(c->arena, raw + 1u);
    if (!p.list || !text) return LAR_NO_MEMORY;
    size_t len = 0;
    push(&p, 0, 0, s->tool);
    while (p.count) {
        piece one = p.list[--p.count];
        if (one.node != LAR_JSON_NONE) {
            if (j->nodes[one.node].kind >= LAR_JSON_ARRAY && j->nodes[one.node].count) {
                open_up(s, one.node, &p);
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

static lar_error learn(lar_canon *c, const lar_canon_tool *t, const shape *s) {
    lar_buf order;
    char version = VERSION;
    lar_buf_init(&order, HEAD_BYTES + ORDER_BYTES_MAX);
    lar_error e = lar_buf_add(&order, &version, 1);
    if (!e) e = lar_buf_add(&order, t->exact.bytes, sizeof t->exact.bytes);
    if (!e) e = write_order(c, s, &order);
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
    shape s;
    bool fits;
    lar_error e = read_shape(c, t->node, &s, &fits);
    if (e || !fits) return e;
    if (!known || !read_order(&s, lar_slice_of(c->value.ptr + HEAD_BYTES, c->value.len - HEAD_BYTES))) {
        e = read_shape(c, t->node, &s, &fits); /* a damaged order has left its marks in it */
        return e || !fits ? e : learn(c, t, &s);
    }
    if (c->apply) {
        e = write_tool(c, &s, &t->edits, &t->text);
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
