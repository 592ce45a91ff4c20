/* LR003: a known set of tools goes out in the order in which it was first sent.
 * Called by canon.c once the head is read; gives the tools to tool_form.c first, then writes both rules' edits; never
 * blocks. Remembered in the scope:
 *   O  set of tools -> its order     Q  template of the head -> the order of the last new set
 * A new set that holds the last one whole keeps that order in front, new tools behind it, so that the
 * prefix lives on when tools are added. Invariants: 1. the bytes of each tool stay the client's own; only
 * whole elements change places. 2. the places that carry cache_control stay the client's own. 3. more than
 * TOOLS_MAX tools, more than the bound on work, or no memory: the order stays. */
#include <stdlib.h>

#include "policies/canon_state.h"

enum { VERSION = 1, TOOLS_MAX = 1024, HEAD_BYTES = 1 };

/* Of the order-free hash. */
static uint64_t id_of(const lar_canon_tool *t) { return lar_hash_low(t->norm); }

static int by_value(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x < y ? -1 : x > y;
}

static lar_hash set_hash(const lar_canon_tool *tools, uint32_t n, uint64_t *sorted) {
    for (uint32_t i = 0; i < n; i++) sorted[i] = id_of(&tools[i]);
    qsort(sorted, n, sizeof *sorted, by_value);
    return lar_hash_of(lar_slice_of((const char *)sorted, n * sizeof *sorted));
}

static uint64_t order_at(lar_slice value, uint32_t i) {
    uint64_t v;
    memcpy(&v, value.ptr + HEAD_BYTES + (size_t)i * 8, 8);
    return v;
}

/* order[p] = index of the tool to send at place p, after the remembered order; false unless every remembered
 * tool is there. Tools not remembered follow in their own order. */
static bool apply_order(lar_canon_tool *tools, uint32_t n, lar_slice value, uint32_t *order) {
    if (value.len < HEAD_BYTES || value.ptr[0] != VERSION || (value.len - HEAD_BYTES) % 8) return false;
    uint32_t known = (uint32_t)((value.len - HEAD_BYTES) / 8), place = 0, hint = 0;
    if (known > n) return false;
    for (uint32_t i = 0; i < n; i++) tools[i].taken = false;
    for (uint32_t k = 0; k < known; k++) {
        uint64_t id = order_at(value, k);
        uint32_t i = hint, tried = 0; /* an order that did not change is walked in one go */
        while (tried < n && (tools[i].taken || id_of(&tools[i]) != id)) i = i + 1 == n ? 0 : i + 1, tried++;
        if (tried == n) return false;
        tools[i].taken = true;
        order[place++] = i;
        hint = i + 1 == n ? 0 : i + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!tools[i].taken) order[place++] = i;
    }
    return true;
}

static lar_error remember(lar_canon *c, lar_hash set, const lar_canon_tool *tools, const uint32_t *order) {
    uint32_t n = c->json->nodes[c->view->tools].count;
    char *value = lar_arena_alloc(c->arena, HEAD_BYTES + (size_t)n * 8);
    if (!value) return LAR_NO_MEMORY;
    value[0] = VERSION;
    for (uint32_t p = 0; p < n; p++) {
        uint64_t id = id_of(&tools[order[p]]);
        memcpy(value + HEAD_BYTES + (size_t)p * 8, &id, 8);
    }
    lar_slice v = lar_slice_of(value, HEAD_BYTES + (size_t)n * 8);
    lar_error e = lar_canon_put_value(c, 'O', set, v);
    return e ? e : lar_canon_put_value(c, 'Q', c->hash_template, v);
}

/* Tools that change their place, their form or both. */
static lar_error permute(lar_canon *c, const lar_canon_tool *tools, const uint32_t *order, uint32_t n) {
    lar_error e = LAR_OK;
    for (uint32_t p = 0; p < n && !e; p++) {
        const lar_canon_tool *t = &tools[order[p]];
        if (order[p] != p || t->text.ptr) e = lar_canon_tool_place(c, tools[p].node, t);
    }
    return e;
}

static lar_error recall_order(lar_canon *c, lar_canon_tool *tools, uint32_t n, uint32_t *order) {
    lar_hash set = c->tools_norm;
    bool known = lar_canon_get(c, 'O', set) && c->value.len == HEAD_BYTES + (size_t)n * 8 &&
                 apply_order(tools, n, lar_buf_slice(&c->value), order);
    if (!known &&
        !(lar_canon_get(c, 'Q', c->hash_template) && apply_order(tools, n, lar_buf_slice(&c->value), order))) {
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
    return !e && !known ? remember(c, set, tools, order) : e;
}

lar_error lar_rule_tool_order(lar_canon *c) {
    const lar_json *j = c->json;
    uint32_t array = c->view->tools, n = array == LAR_JSON_NONE ? 0 : j->nodes[array].count;
    if (n == 0) return LAR_OK;
    if (n > TOOLS_MAX || lar_canon_work(j, array) > LAR_CANON_TOOLS_WORK_MAX) {
        c->tools_norm = c->tools_exact = lar_hash_of(lar_json_raw(j, array));
        return LAR_OK;
    }
    lar_canon_tool *tools = lar_arena_alloc(c->arena, n * sizeof *tools);
    uint32_t *order = lar_arena_alloc(c->arena, n * sizeof *order);
    uint64_t *sorted = lar_arena_alloc(c->arena, n * sizeof *sorted);
    if (!tools || !order || !sorted) return LAR_NO_MEMORY;
    uint32_t i = 0;
    for (uint32_t t = lar_json_first(j, array); t != LAR_JSON_NONE; t = lar_json_after(j, array, t), i++) {
        tools[i] = (lar_canon_tool){.node = t};
        lar_error e = lar_canon_hash_tool(c, t, &tools[i].norm, &tools[i].exact);
        if (e) return e;
        order[i] = i;
    }
    c->tools_norm = set_hash(tools, n, sorted);
    lar_error e = lar_rule_tool_form(c, tools, n);
    if (!e && lar_canon_rule_on(c, LAR_RULE_LR003) && n > 1 && c->in->memory) e = recall_order(c, tools, n, order);
    for (uint32_t p = 0; p < n; p++) c->tools_exact = lar_hash_join(c->tools_exact, tools[order[p]].exact);
    return e ? e : permute(c, tools, order, n);
}
