/* LR003: a known set of tools goes out in the order in which it was first sent.
 * Called by canon.c once it is decided which spans move; gives the tools to tool_form.c first, then writes the edits
 * of both rules and of the descriptions; never blocks. Remembered in the scope:
 *   O  set of tools -> its order     Q  template of the head -> the order of the last new set
 * A new set that holds the last one whole keeps that order in front, new tools behind it, so that the
 * prefix lives on when tools are added. Invariants: 1. the bytes of each tool stay the client's own; only
 * whole elements change places. 2. the places that carry cache_control stay the client's own. 3. tools that
 * count by their bytes alone, or no memory: the order stays. */
#include "policies/canon_state.h"

enum { VERSION = 1, HEAD_BYTES = 1 };

static uint64_t order_at(lar_slice value, uint32_t i) {
    uint64_t v;
    memcpy(&v, value.ptr + HEAD_BYTES + (size_t)i * 8, 8);
    return v;
}

/* order[p] = index of the tool to send at place p, after the remembered order; false unless every remembered
 * tool is there. Tools not remembered follow in their own order. */
static bool apply_order(const lar_canon *c, lar_slice value, bool *taken, uint32_t *order) {
    uint32_t n = c->tool_count;
    if (value.len < HEAD_BYTES || value.ptr[0] != VERSION || (value.len - HEAD_BYTES) % 8) return false;
    uint32_t known = (uint32_t)((value.len - HEAD_BYTES) / 8), place = 0, hint = 0;
    if (known > n) return false;
    for (uint32_t i = 0; i < n; i++) taken[i] = false;
    for (uint32_t k = 0; k < known; k++) {
        uint64_t id = order_at(value, k);
        uint32_t i = hint, tried = 0; /* an order that did not change is walked in one go */
        while (tried < n && (taken[i] || c->tools[i].id != id)) i = i + 1 == n ? 0 : i + 1, tried++;
        if (tried == n) return false;
        taken[i] = true;
        order[place++] = i;
        hint = i + 1 == n ? 0 : i + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!taken[i]) order[place++] = i;
    }
    return true;
}

static lar_error remember(lar_canon *c, const uint32_t *order) {
    uint32_t n = c->tool_count;
    char *value = lar_arena_alloc(c->arena, HEAD_BYTES + (size_t)n * 8);
    if (!value) return LAR_NO_MEMORY;
    value[0] = VERSION;
    for (uint32_t p = 0; p < n; p++) memcpy(value + HEAD_BYTES + (size_t)p * 8, &c->tools[order[p]].id, 8);
    lar_slice v = lar_slice_of(value, HEAD_BYTES + (size_t)n * 8);
    lar_error e = lar_canon_put_value(c, 'O', c->tools_set, v);
    return e ? e : lar_canon_put_value(c, 'Q', c->hash_template, v);
}

/* The edits of a tool's descriptions, in the order of its bytes. */
static lar_error read_edits(lar_canon *c, lar_canon_tool *t) {
    lar_splices_init(&t->edits, c->arena);
    lar_error e = LAR_OK;
    for (uint32_t u = t->unit_first; u < t->unit_first + t->unit_count && !e; u++)
        e = lar_canon_unit_edit_spans(c, &c->units[u], &t->edits);
    return e;
}

static lar_error add_edits(lar_canon *c, const lar_canon_tool *t) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < t->edits.count && !e; i++)
        e = lar_splices_add(&c->out->splices, t->edits.list[i].start, t->edits.list[i].end, t->edits.list[i].with);
    return e;
}

/* Tools that change their place, their form or their descriptions. */
static lar_error place_all(lar_canon *c, const uint32_t *order) {
    lar_error e = LAR_OK;
    for (uint32_t p = 0; p < c->tool_count && !e; p++) {
        const lar_canon_tool *t = &c->tools[order[p]];
        if (order[p] != p || t->text.ptr) e = lar_canon_tool_place(c, c->tools[p].node, t);
        else e = add_edits(c, t);
    }
    return e;
}

static lar_error recall_order(lar_canon *c, bool *taken, uint32_t *order) {
    uint32_t n = c->tool_count;
    bool known = lar_canon_get(c, 'O', c->tools_set) && c->value.len == HEAD_BYTES + (size_t)n * 8 &&
                 apply_order(c, lar_buf_slice(&c->value), taken, order);
    if (!known &&
        !(lar_canon_get(c, 'Q', c->hash_template) && apply_order(c, lar_buf_slice(&c->value), taken, order))) {
        for (uint32_t i = 0; i < n; i++) order[i] = i;
    }
    bool moved = false;
    for (uint32_t i = 0; i < n; i++) moved = moved || order[i] != i;
    bool apply = c->apply && moved && lar_canon_markers_movable(c->json, c->view->tools);
    lar_error e = LAR_OK;
    if (moved) {
        const lar_json_node *all = &c->json->nodes[c->view->tools];
        e = lar_canon_find(c, (lar_finding){.rule = LAR_RULE_LR003,
                                            .node = c->view->tools,
                                            .start = all->start,
                                            .end = all->end,
                                            .edited = apply});
    }
    if (!apply) {
        for (uint32_t i = 0; i < n; i++) order[i] = i; /* what is sent is what gets remembered */
    }
    return e || known ? e : remember(c, order);
}

lar_error lar_rule_tool_order(lar_canon *c) {
    uint32_t n = c->tool_count;
    if (n == 0) return LAR_OK;
    bool *taken = lar_arena_alloc(c->arena, n * sizeof *taken);
    uint32_t *order = lar_arena_alloc(c->arena, n * sizeof *order);
    if (!taken || !order) return LAR_NO_MEMORY;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < n && !e; i++) {
        order[i] = i;
        e = read_edits(c, &c->tools[i]);
    }
    if (!e) e = lar_rule_tool_form(c, c->tools, n);
    if (!e && lar_canon_rule_on(c, LAR_RULE_LR003) && n > 1 && c->in->memory) e = recall_order(c, taken, order);
    if (!e) e = place_all(c, order);
    for (uint32_t p = 0; p < n; p++) c->tools_exact = lar_hash_join(c->tools_exact, c->tools[order[p]].exact);
    return e;
}
