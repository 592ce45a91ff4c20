/* The head: the leading system segments of a request, read into units, then edited; and what all
 * places that are searched share: scan, groups, edits of a unit.
 * Flow: canon.c -> head_read -> rules decide -> head_finish (norms, forms, splices).
 * One request at a time; memory from the arena; never blocks.
 * Invariants: 1. a head segment in which nothing was found is memoised and never decoded again.
 * 2. every edit of a unit goes through lar_canon_unit_edit, so that edits cannot overlap. */
#include "policies/canon_state.h"

static const char pointer[] = "(see the latest <runtime-context>)";

/* Where the next block that a gateway has added lies, at or behind `at`. */
static void next_block(lar_slice t, size_t at, size_t *start, size_t *end) {
    static const char open[] = "<runtime-context note=", close[] = "</runtime-context>";
    const char *p = memmem(t.ptr + at, t.len - at, open, sizeof open - 1);
    *start = p ? (size_t)(p - t.ptr) : SIZE_MAX;
    p = p ? memmem(p, t.len - *start, close, sizeof close - 1) : NULL;
    *end = p ? (size_t)(p - t.ptr) : SIZE_MAX;
}

/* A path that its key has named before in this text, or one below it: the root of a tree of files. */
static bool is_again(const lar_canon *c, const lar_canon_unit *u, const lar_volatile_span *s) {
    const char *text = u->text.text.ptr;
    for (uint32_t k = u->span_first; k < c->span_count && s->class_id == LAR_VOLATILE_PATH; k++) {
        const lar_volatile_span *root = &c->spans[k];
        lar_slice value = lar_slice_of(text + s->start, s->end - s->start);
        lar_slice named = lar_slice_of(text + root->start, root->end - root->start);
        if (root->class_id == LAR_VOLATILE_PATH && root->key_word && lar_slice_starts(value, named)) return true;
    }
    return false;
}

lar_error lar_canon_unit_scan(lar_canon *c, lar_canon_unit *u, bool keyed, lar_clock_budget *budget) {
    u->span_first = c->span_count;
    u->span_count = 0;
    bool any = false;
    for (int k = 0; k < LAR_VOLATILE_COUNT && !any; k++) any = lar_canon_class_on(c, (lar_volatile_class)k);
    if (!any) return LAR_OK;
    size_t most = u->text.text.len < LAR_CLOCK_BYTES_MAX ? u->text.text.len : LAR_CLOCK_BYTES_MAX;
    if (memmem(u->text.text.ptr, most, pointer, sizeof pointer - 1)) c->passed = true;
    lar_volatile_span *found = c->spans + c->span_count;
    uint32_t room = LAR_CANON_SPANS_MAX - c->span_count;
    uint32_t n = lar_volatile_scan(u->text.text, found, room, budget);
    c->crowded = c->crowded || n == room;
    size_t block = SIZE_MAX, block_end = SIZE_MAX;
    if (n) next_block(u->text.text, 0, &block, &block_end);
    for (uint32_t i = 0; i < n; i++) {
        const lar_volatile_span *s = &found[i];
        bool inside = s->start >= u->form.begin && s->end <= u->form.end;
        while (block_end < s->start) next_block(u->text.text, block_end, &block, &block_end);
        bool known = s->key_word || !keyed || is_again(c, u, s);
        if (!s->example && inside && s->start < block && known) c->spans[c->span_count++] = *s;
    }
    u->span_count = c->span_count - u->span_first;
    return LAR_OK;
}

bool lar_canon_units_keep(lar_canon *c, const lar_canon_unit *units, uint32_t count) {
    if (!c->units) c->units = lar_arena_alloc(c->arena, LAR_CANON_UNITS_MAX * sizeof *c->units);
    if (!c->units || c->unit_count + count > LAR_CANON_UNITS_MAX) return false;
    memcpy(c->units + c->unit_count, units, count * sizeof *units);
    c->unit_count += count;
    return true;
}

bool lar_canon_group_add(lar_canon *c, lar_canon_place place, uint32_t unit_first, lar_hash shape) {
    lar_canon_group g = {.place = place, .unit_first = unit_first, .shape = shape};
    g.unit_count = c->unit_count - unit_first;
    g.span_first = g.unit_count ? c->units[unit_first].span_first : 0;
    for (uint32_t u = unit_first; u < c->unit_count; u++) g.span_count += c->units[u].span_count;
    if (g.span_count == 0) return true;
    if (c->group_count == LAR_CANON_GROUPS_MAX) return false;
    c->groups[c->group_count++] = g;
    return true;
}

/* The memo says what a text is, whatever stands before it: not so if others had used up what this one needed. */
static void memoise(lar_canon *c, uint32_t i, lar_clock_budget before) {
    bool whole = before.bytes == LAR_CLOCK_BYTES_MAX && before.numbers == LAR_CLOCK_NUMBERS_MAX;
    if (!whole && (c->clocks.bytes == 0 || c->clocks.numbers == 0)) return;
    if (c->crowded || c->passed) return;
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
        for (uint32_t k = 0; k < count && !e; k++) e = lar_canon_unit_scan(c, &units[k], false, &c->clocks);
        if (e) return e;
        if (c->span_count > spans_before || c->out->finding_count > seen) {
            if (lar_canon_units_keep(c, units, count)) return LAR_OK;
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
    if (v->protocol == LAR_PROTOCOL_COMPLETIONS) c->head_count = v->segment_count; /* the prompt is all there is */
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
    return lar_canon_group_add(c, LAR_PLACE_HEAD, 0, t) ? LAR_OK : LAR_LIMIT;
}

/* The remembered form of a head segment: the same text has one form in a scope, whatever stands around it and
 * whatever its clocks show. */
static lar_error recall_form(lar_canon *c, uint32_t i) {
    lar_canon_segment *s = &c->segments[i];
    if (s->text_node == LAR_JSON_NONE || !lar_canon_rule_on(c, LAR_RULE_LR004)) return LAR_OK;
    if (c->view->protocol == LAR_PROTOCOL_COMPLETIONS) return LAR_OK; /* the model writes on from the very end */
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

lar_error lar_canon_units_finish(lar_canon *c, uint32_t from, uint32_t to) {
    lar_error e = LAR_OK;
    for (uint32_t u = 0; u < c->unit_count && !e;) {
        uint32_t n = 1, segment = c->units[u].segment;
        while (u + n < c->unit_count && c->units[u + n].segment == segment) n++;
        if (segment >= from && segment < to) e = lar_canon_units_hash(c, segment, c->units + u, n);
        u += n;
    }
    return e;
}

lar_error lar_canon_head_finish(lar_canon *c) {
    lar_error e = lar_canon_units_finish(c, 0, c->head_count);
    uint32_t forms = c->head_count < LAR_CANON_HEAD_FORMS_MAX ? c->head_count : LAR_CANON_HEAD_FORMS_MAX;
    for (uint32_t i = 0; i < forms && !e; i++) e = recall_form(c, i);
    for (uint32_t u = 0; u < c->unit_count && !e; u++) {
        if (c->units[u].segment < c->head_count) e = lar_canon_unit_edit(c, &c->units[u]);
    }
    return e;
}

/* The whole element of a content array, with the comma behind it (or, at the end, in front of it). */
static lar_error drop_part(lar_canon *c, const lar_canon_unit *u) {
    const lar_json *j = c->json;
    uint32_t array = c->view->segments[u->segment].content, next = lar_json_after(j, array, u->part);
    if (next == LAR_JSON_NONE) return LAR_INVALID; /* the only element is never dropped */
    return lar_splices_add(&c->out->splices, j->nodes[u->part].start, j->nodes[next].start, LAR_SLICE(""));
}

lar_error lar_canon_unit_edit_spans(const lar_canon *c, const lar_canon_unit *u, lar_splices *to) {
    lar_error e = LAR_OK;
    for (uint32_t i = u->span_first; i < u->span_first + u->span_count && !e; i++) {
        const lar_volatile_span *s = &c->spans[i];
        if (!(c->edit_mask >> i & 1)) continue;
        e = lar_splices_add(to, lar_text_body_offset(&u->text, s->start), lar_text_body_offset(&u->text, s->end),
                            LAR_SLICE(pointer));
    }
    return e;
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
    if (!e) e = lar_canon_unit_edit_spans(c, u, &edits);
    for (uint32_t i = 0; i < u->form_edits.count && !e; i++) {
        const lar_splice *f = &u->form_edits.list[i];
        e = lar_splices_add(&edits, f->start, f->end, f->with);
    }
    return e ? e : lar_text_edits_merge(&edits, c->json->body, &c->out->splices);
}
