/* The texts that a request's stable head consists of, with what varies in them.
 * Flow: lint.c, behind canon (whose billing lines are taken over) -> here -> lint_values.c, lint_kept.c.
 * Memory from the request's arena; never blocks. Invariants: 1. a text's norm does not depend on its spans' values,
 * nor on its form. 2. spans lie inside the text without its form, sorted, apart. */
#include "policies/lint_state.h"

/* For a file of texts rather than a request on a loop: more than canon reads. */
#define BUDGET ((lar_clock_budget){16 * LAR_CLOCK_BYTES_MAX, 16 * LAR_CLOCK_NUMBERS_MAX})

typedef struct reading {
    lar_lint_run *run;
    uint32_t cap;
    lar_clock_budget budget;
    lar_volatile_span *found;
} reading;

static lar_rule rule_of_class(lar_volatile_class c) {
    return lar_rule_find(lar_slice_cstr(lar_volatile_row_of(c)->rule));
}

static uint32_t find_classes(reading *r, lar_lint_unit *u) {
    lar_slice text = u->text.text;
    uint32_t n = lar_volatile_scan(text, r->found, LAR_LINT_SPANS_MAX, &r->budget), kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lar_volatile_span *v = &r->found[i];
        if (v->example) continue;
        lar_hash slot = lar_volatile_slot(text, v);
        u->spans[kept++] = (lar_lint_span){.start = v->start,
                                           .end = v->end,
                                           .label_start = v->label_start,
                                           .label_end = v->label_end,
                                           .rule = rule_of_class(v->class_id),
                                           .mask = (uint8_t)v->class_id,
                                           .key_word = v->key_word,
                                           .slot = slot,
                                           .text = lar_volatile_row_of(v->class_id)->text};
    }
    return kept;
}

static lar_error norm(reading *r, lar_lint_unit *u) {
    lar_text_mask *masks = lar_arena_alloc(r->run->arena, (u->span_count + 1) * sizeof *masks);
    if (!masks) return LAR_NO_MEMORY;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < u->span_count; i++) {
        const lar_lint_span *s = &u->spans[i];
        if (s->start < u->form.begin || s->end > u->form.end) continue;
        masks[kept] = (lar_text_mask){s->start, s->end, s->mask};
        u->spans[kept++] = *s;
    }
    u->span_count = kept;
    lar_text_masks all = {masks, kept};
    return lar_text_norm(&u->norm, &u->text, &u->form, &all, r->run->arena);
}

/* Decoded end of the billing line that canon found in this text, 0 if there is none. */
static uint32_t billing_end(const lar_lint_run *run, const lar_lint_unit *u) {
    for (uint32_t i = 0; i < run->canon.finding_count; i++) {
        const lar_finding *f = &run->canon.findings[i];
        if (f->rule != LAR_RULE_LR002 || f->node != u->node) continue;
        uint32_t low = 0, high = (uint32_t)u->text.text.len;
        while (low < high) {
            uint32_t mid = low + (high - low) / 2;
            if (lar_text_body_offset(&u->text, mid) < f->end) low = mid + 1;
            else high = mid;
        }
        return low;
    }
    return 0;
}

static lar_error add(reading *r, lar_lint_kind kind, uint32_t node, uint32_t segment) {
    lar_lint_run *run = r->run;
    if (!lar_json_is(run->json, node, LAR_JSON_STRING) || run->unit_count == LAR_LINT_UNITS_MAX) return LAR_OK;
    if (run->unit_count == r->cap) {
        uint32_t cap = r->cap ? r->cap * 2 : 16;
        lar_lint_unit *more = lar_arena_alloc(run->arena, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        if (run->unit_count) memcpy(more, run->units, run->unit_count * sizeof *more);
        run->units = more;
        r->cap = cap;
    }
    lar_lint_unit *u = &run->units[run->unit_count++];
    *u = (lar_lint_unit){.kind = kind, .node = node, .segment = segment};
    lar_error e = lar_text_read(&u->text, run->json, node, run->arena);
    if (e) return e;
    lar_lint_span spans[LAR_LINT_SPANS_MAX];
    u->spans = spans;
    uint32_t n = find_classes(r, u);
    u->span_count = lar_lint_words(u->text.text, spans, n, LAR_LINT_SPANS_MAX);
    u->spans = lar_arena_alloc(run->arena, (u->span_count + 1) * sizeof *u->spans);
    if (!u->spans) return LAR_NO_MEMORY;
    memcpy(u->spans, spans, u->span_count * sizeof *spans);
    lar_text_form_read(&u->form, &u->text, kind == LAR_LINT_SYSTEM ? billing_end(run, u) : 0);
    return norm(r, u);
}

/* A content's texts: the bare string, or the text of each part. */
static lar_error add_content(reading *r, lar_lint_kind kind, uint32_t segment) {
    const lar_json *j = r->run->json;
    uint32_t content = r->run->view->segments[segment].content;
    if (lar_json_is(j, content, LAR_JSON_STRING)) return add(r, kind, content, segment);
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) return LAR_OK;
    lar_error e = LAR_OK;
    for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE && !e; p = lar_json_after(j, content, p))
        e = add(r, kind, lar_json_get(j, p, "text"), segment);
    return e;
}

static lar_error add_tools(reading *r) {
    const lar_json *j = r->run->json;
    uint32_t tools = r->run->view->tools;
    if (tools == LAR_JSON_NONE) return LAR_OK;
    lar_error e = LAR_OK;
    for (uint32_t i = tools; i < j->nodes[tools].next && !e; i++) {
        if ((j->nodes[i].flags & LAR_JSON_KEY) && lar_json_eq(j, i, LAR_SLICE("description")))
            e = add(r, LAR_LINT_TOOL, i + 1, LAR_JSON_NONE);
    }
    return e;
}

lar_error lar_lint_units_read(lar_lint_run *run) {
    reading r = {.run = run, .budget = BUDGET};
    const lar_request_view *v = run->view;
    r.found = lar_arena_alloc(run->arena, LAR_LINT_SPANS_MAX * sizeof *r.found);
    if (!r.found) return LAR_NO_MEMORY;
    uint32_t i = 0;
    lar_error e = LAR_OK;
    for (; i < v->segment_count && v->segments[i].role == LAR_ROLE_SYSTEM && !e; i++)
        e = add_content(&r, LAR_LINT_SYSTEM, i);
    for (; i < v->segment_count && v->segments[i].role == LAR_ROLE_USER && !e; i++)
        e = add_content(&r, LAR_LINT_OPENING, i);
    return e ? e : add_tools(&r);
}

lar_error lar_lint_value_of(lar_lint_run *run, const lar_json *j, uint32_t node, lar_slice *out) {
    lar_text t;
    *out = lar_json_raw(j, node);
    if (!lar_json_is(j, node, LAR_JSON_STRING)) return LAR_OK;
    lar_error e = lar_text_read(&t, j, node, run->arena);
    if (!e) *out = t.text;
    return e;
}
