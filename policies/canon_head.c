/* The head: the leading system segments of a request, read into units, then edited.
 * Flow: canon.c -> head_read -> rules decide -> head_finish (norms, forms, splices).
 * One request at a time; memory from the arena; never blocks.
 * Invariants: 1. a head segment in which nothing was found is memoised and never decoded again.
 * 2. every edit of a unit goes through lar_canon_unit_edit, so that edits cannot overlap. */
#include "policies/canon_state.h"

static const char pointer[] = "(see the latest <runtime-context>)";

/* Clocks of one unit, without examples and what a date alone says about a fenced block. */
static void scan_unit(lar_canon *c, lar_canon_unit *u) {
    u->span_first = c->span_count;
    if (!lar_canon_rule_on(c, LAR_RULE_LR001)) return;
    uint32_t n =
        lar_clock_scan(u->text.text, c->spans + c->span_count, LAR_CANON_SPANS_MAX - c->span_count, &c->clocks);
    uint32_t kept = c->span_count;
    for (uint32_t i = c->span_count; i < c->span_count + n; i++) {
        const lar_clock_span *s = &c->spans[i];
        bool inside = s->start >= u->form.begin && s->end <= u->form.end;
        if (!s->example && inside) c->spans[kept++] = *s;
    }
    c->span_count = kept;
    u->span_count = kept - u->span_first;
}

static bool keep_units(lar_canon *c, const lar_canon_unit *units, uint32_t count) {
    if (!c->units) c->units = lar_arena_alloc(c->arena, LAR_CANON_UNITS_MAX * sizeof *c->units);
    if (!c->units || c->unit_count + count > LAR_CANON_UNITS_MAX) return false;
    memcpy(c->units + c->unit_count, units, count * sizeof *units);
    c->unit_count += count;
    return true;
}

/* The memo says what a text is, whatever stands before it: not so if others had used up what this one needed. */
static void memoise(lar_canon *c, uint32_t i, lar_clock_budget before) {
    bool whole = before.bytes == LAR_CLOCK_BYTES_MAX && before.numbers == LAR_CLOCK_NUMBERS_MAX;
    if (!whole && (c->clocks.bytes == 0 || c->clocks.numbers == 0)) return;
    if (c->span_count == LAR_CANON_SPANS_MAX) return;
    c->segments[i].clocks = (lar_clock_budget){before.bytes - c->clocks.bytes, before.numbers - c->clocks.numbers};
    lar_canon_memo_put(c, i);
}

static lar_error read_segment(lar_canon *c, uint32_t i) {
    if (lar_canon_memo_get(c, i)) return LAR_OK;
    lar_clock_budget before = c->clocks;
    lar_canon_unit *units;
    uint32_t count, spans_before = c->span_count, content = c->view->segments[i].content;
    lar_error e = lar_canon_units_read(c, i, &units, &count);
    if (e) return e;
    if (count > 0) {
        uint32_t elements = lar_json_is(c->json, content, LAR_JSON_ARRAY) ? c->json->nodes[content].count : 1;
        bool first = units[0].part == LAR_JSON_NONE || units[0].part == lar_json_first(c->json, content);
        uint64_t seen = c->out->finding_count;
        if (first) e = lar_rule_billing_nonce(c, &units[0], elements);
        if (e) return e;
        for (uint32_t k = 0; k < count; k++) scan_unit(c, &units[k]);
        if (c->span_count > spans_before || c->out->finding_count > seen) {
            if (keep_units(c, units, count)) return LAR_OK;
            c->span_count = spans_before;
            return LAR_LIMIT;
        }
    }
    e = lar_canon_units_hash(c, i, units, count);
    if (!e) memoise(c, i, before);
    return e;
}

lar_error lar_canon_head_read(lar_canon *c) {
    const lar_request_view *v = c->view;
    while (c->head_count < v->segment_count && v->segments[c->head_count].role == LAR_ROLE_SYSTEM) c->head_count++;
    for (uint32_t i = 0; i < c->head_count; i++) {
        lar_error e = read_segment(c, i);
        if (e) return e;
    }
    lar_hash t = {{0}};
    for (uint32_t i = 0, u = 0; i < c->head_count; i++) {
        if (u == c->unit_count || c->units[u].segment != i) t = lar_hash_join(t, c->segments[i].norm);
        for (; u < c->unit_count && c->units[u].segment == i; u++) {
            lar_error e = lar_canon_unit_norms(c, &c->units[u]);
            if (e) return e;
            if (!c->units[u].dropped) t = lar_hash_join(t, c->units[u].masked);
        }
    }
    c->hash_template = t;
    return LAR_OK;
}

/* The remembered form of a head segment: the same text has one form in a scope, whatever stands around it and
 * whatever its clocks show. */
static lar_error recall_form(lar_canon *c, uint32_t i) {
    lar_canon_segment *s = &c->segments[i];
    if (s->text_node == LAR_JSON_NONE || !lar_canon_rule_on(c, LAR_RULE_LR004)) return LAR_OK;
    lar_hash text = s->norm;
    for (uint32_t u = 0; u < c->unit_count; u++) {
        if (c->units[u].node == s->text_node)
            text = lar_hash_join((lar_hash){{0}}, c->units[u].masked); /* as a segment's norm */
    }
    if (!lar_canon_get(c, 'B', text)) {
        char value[1 + LAR_RECIPE_MAX] = {1};
        memcpy(value + 1, s->recipe.ptr, s->recipe.len);
        return lar_canon_put_value(c, 'B', text, lar_slice_of(value, 1 + s->recipe.len));
    }
    if (c->value.ptr[0] != 1 || c->value.len > 1 + LAR_RECIPE_MAX) return LAR_OK;
    lar_slice want = lar_slice_of(c->value.ptr + 1, c->value.len - 1);
    return lar_rule_text_form(c, i, want);
}

lar_error lar_canon_head_finish(lar_canon *c) {
    lar_error e = LAR_OK;
    for (uint32_t u = 0; u < c->unit_count && !e;) {
        uint32_t n = 1;
        while (u + n < c->unit_count && c->units[u + n].segment == c->units[u].segment) n++;
        e = lar_canon_units_hash(c, c->units[u].segment, c->units + u, n);
        u += n;
    }
    uint32_t forms = c->head_count < LAR_CANON_HEAD_FORMS_MAX ? c->head_count : LAR_CANON_HEAD_FORMS_MAX;
    for (uint32_t i = 0; i < forms && !e; i++) e = recall_form(c, i);
    for (uint32_t u = 0; u < c->unit_count && !e; u++) e = lar_canon_unit_edit(c, &c->units[u]);
    return e;
}

/* The whole element of a content array, with the comma behind it (or, at the end, in front of it). */
static lar_error drop_part(lar_canon *c, const lar_canon_unit *u) {
    const lar_json *j = c->json;
    uint32_t array = c->view->segments[u->segment].content, next = lar_json_after(j, array, u->part);
    if (next == LAR_JSON_NONE) return LAR_INVALID; /* the only element is never dropped */
    return lar_splices_add(&c->out->splices, j->nodes[u->part].start, j->nodes[next].start, LAR_SLICE(""));
}

lar_error lar_canon_unit_edit(lar_canon *c, const lar_canon_unit *u) {
    if (u->dropped) return drop_part(c, u);
    lar_splices edits;
    lar_splices_init(&edits, c->arena);
    const lar_text *t = &u->text;
    lar_error e = LAR_OK;
    if (u->drop_end > u->drop_start || u->blanked) {
        e = lar_splices_add(&edits, lar_text_body_offset(t, u->drop_start), lar_text_body_offset(t, u->drop_end),
                            u->blanked ? LAR_SLICE(" -") : LAR_SLICE(""));
    }
    for (uint32_t i = u->span_first; i < u->span_first + u->span_count && !e; i++) {
        const lar_clock_span *s = &c->spans[i];
        if (!(c->edit_mask >> i & 1)) continue;
        e = lar_splices_add(&edits, lar_text_body_offset(t, s->start), lar_text_body_offset(t, s->end),
                            LAR_SLICE(pointer));
    }
    for (uint32_t i = 0; i < u->form_edits.count && !e; i++) {
        const lar_splice *f = &u->form_edits.list[i];
        e = lar_splices_add(&edits, f->start, f->end, f->with);
    }
    return e ? e : lar_text_edits_merge(&edits, c->json->body, &c->out->splices);
}
