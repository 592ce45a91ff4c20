/* The tools of a request: what each means, and spans in their descriptions.
 * Flow: canon.c -> tools_read -> rules decide -> tools_finish -> rules/tool_order.c. Never blocks; one request at a
 * time; memory from the arena.
 * Invariants: 1. a tool's id is of its shape, so that sets and orders hold whatever its descriptions show now.
 * 2. a tool in which nothing was found is memoised. 3. too many tools, too much work or no memory: they count by their
 * bytes. */
#include <stdlib.h>

#include "policies/canon_state.h"

enum { DESCRIPTION_NUMBERS_MAX = 1024 };

static int by_value(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x < y ? -1 : x > y;
}

/* Of the tools in any order: by their ids, or as they are sent. */
static lar_error set_hash(lar_canon *c, bool sent, lar_hash *out) {
    uint64_t *sorted = lar_arena_alloc(c->arena, c->tool_count * sizeof *sorted);
    if (!sorted) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < c->tool_count; i++) sorted[i] = sent ? lar_hash_low(c->tools[i].norm) : c->tools[i].id;
    qsort(sorted, c->tool_count, sizeof *sorted, by_value);
    *out = lar_hash_of(lar_slice_of((const char *)sorted, c->tool_count * sizeof *sorted));
    return LAR_OK;
}

static lar_error read_description(lar_canon *c, uint32_t node) {
    if (lar_json_raw(c->json, node).len > LAR_CANON_DESCRIPTION_MAX) return LAR_OK;
    lar_canon_unit u = {.segment = LAR_JSON_NONE, .node = node, .part = LAR_JSON_NONE};
    lar_clock_budget budget = {LAR_CANON_DESCRIPTION_MAX, DESCRIPTION_NUMBERS_MAX};
    uint32_t before = c->span_count;
    lar_error e = lar_text_read(&u.text, c->json, node, c->arena);
    if (e) return e;
    u.form = (lar_text_form){.end = (uint32_t)u.text.text.len, .recipe_bytes = 2};
    e = lar_canon_unit_scan(c, &u, true, &budget);
    if (!e && u.span_count && !lar_canon_units_keep(c, &u, 1)) c->span_count = before;
    return e;
}

static lar_error read_tool(lar_canon *c, lar_canon_tool *t, bool search) {
    const lar_json *j = c->json;
    t->unit_first = c->unit_count;
    if (lar_canon_tool_memo_get(c, t->node, &t->norm, &t->exact)) {
        t->id = lar_hash_low(t->norm);
        return LAR_OK;
    }
    lar_error e = LAR_OK;
    for (uint32_t i = t->node; search && i < j->nodes[t->node].next && !e; i++) {
        bool description = j->nodes[i].flags & LAR_JSON_KEY && lar_json_eq(j, i, LAR_SLICE("description"));
        if (description && lar_json_is(j, i + 1, LAR_JSON_STRING)) e = read_description(c, i + 1);
    }
    t->unit_count = c->unit_count - t->unit_first;
    if (!e) e = lar_canon_hash_tool(c, t, UINT64_MAX, &t->norm, &t->exact);
    if (e) return e;
    t->id = lar_hash_low(t->norm);
    if (t->unit_count) { /* hashed as it is sent once that is known */
        lar_hash shape = lar_hash_join(t->norm, lar_hash_of(LAR_SLICE("tool")));
        return lar_canon_group_add(c, LAR_PLACE_TOOL, t->unit_first, shape) ? LAR_OK : LAR_LIMIT;
    }
    bool room = !c->crowded && c->unit_count < LAR_CANON_UNITS_MAX && !c->passed;
    if (search && room) lar_canon_tool_memo_put(c, t->node, t->norm, t->exact);
    return LAR_OK;
}

lar_error lar_canon_tools_read(lar_canon *c) {
    const lar_json *j = c->json;
    uint32_t array = c->view->tools, n = array == LAR_JSON_NONE ? 0 : j->nodes[array].count;
    if (n == 0) return LAR_OK;
    lar_slice raw = lar_json_raw(j, array);
    if (n > LAR_CANON_TOOLS_MAX || lar_canon_work(j, array) > LAR_CANON_TOOLS_WORK_MAX) {
        c->tools_set = c->tools_norm = c->tools_exact = lar_hash_of(raw);
        return LAR_OK;
    }
    c->tools = lar_arena_zalloc(c->arena, n * sizeof *c->tools);
    if (!c->tools) return LAR_NO_MEMORY;
    for (uint32_t t = lar_json_first(j, array); t != LAR_JSON_NONE; t = lar_json_after(j, array, t)) {
        lar_canon_tool *tool = &c->tools[c->tool_count++];
        tool->node = t;
        lar_error e = read_tool(c, tool, raw.len <= LAR_CANON_TOOLS_BYTES_MAX);
        if (e) return e;
    }
    return set_hash(c, false, &c->tools_set);
}

lar_error lar_canon_tools_finish(lar_canon *c) {
    bool some = false;
    for (uint32_t i = 0; i < c->tool_count; i++) {
        lar_canon_tool *t = &c->tools[i];
        if (t->unit_count == 0) continue;
        lar_error e = lar_canon_hash_tool(c, t, c->edit_mask, &t->norm, &t->exact);
        if (e) return e;
        some = true;
    }
    if (c->tool_count && some) return set_hash(c, true, &c->tools_norm);
    c->tools_norm = c->tools_set;
    return LAR_OK;
}
