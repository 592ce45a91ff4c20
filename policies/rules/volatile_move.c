/* LR001, LR005 to LR009: which volatile spans move into the block of facts, and the block.
 * Flow: canon.c -> here -> canon_evidence.c says which vary -> edit_mask, facts; canon_head.c and its like edit,
 * canon_facts.c attaches the block. Never blocks; one request at a time.
 * Invariants: 1. only what evidence confirms moves. 2. nothing moves if there is no user message that could carry it.
 * 3. a value goes into the block byte for byte. 4. the values are the same for any order of the tools. */
#include "policies/canon_state.h"

enum { FACTS_DEFAULT = 4096, FACTS_MAX = 15000 };

static const char block_open[] =
    "\\n\\n<runtime-context note=\\\"Added by the gateway. Facts valid for this turn only; not part of the user's request.\\\">\\n";
static const char block_close[] = "</runtime-context>";

static bool is_mark(char c) {
    return c == ' ' || c == '\t' || c == '*' || c == '_' || c == '#' || c == '-' || c == '"' || c == '\'' || c == '<' ||
           c == '>' || c == '`' || c == ':' || c == '=' || c == '(' || c == '[' || c == '{' || c == '|' || c == ',';
}

/* "label: value" as a line of the block: the label in plain words, the value's bytes as they stand in the body. */
static lar_error print_line(lar_canon *c, uint32_t i, lar_buf *out) {
    const lar_volatile_span *s = &c->spans[i];
    const lar_text *t = &lar_canon_unit_of_span(c, i)->text;
    const char *name = lar_volatile_row_of(s->class_id)->evidence == LAR_EVIDENCE_NOW ? "Time" : "Value";
    uint32_t b = s->label_start, e = s->label_end;
    while (b < e && is_mark(t->text.ptr[b])) b++;
    while (e > b && is_mark(t->text.ptr[e - 1])) e--;
    if (e - b >= 3 && memcmp(t->text.ptr + e - 3, "：", 3) == 0) e -= 3;
    char label[128];
    size_t n = 0;
    for (uint32_t k = b; k < e && n < sizeof label; k++) {
        char ch = t->text.ptr[k];
        label[n++] = ch == '<' || ch == '>' ? ' ' : ch;
    }
    if (n == 0) {
        n = strlen(name);
        memcpy(label, name, n);
    }
    uint32_t from = lar_text_body_offset(t, s->start), to = lar_text_body_offset(t, s->end);
    size_t before = out->len;
    lar_error err = lar_json_escape(out, lar_slice_of(label, n));
    if (err == LAR_INVALID) { /* half of a surrogate pair in the label */
        out->len = before;
        err = lar_buf_add(out, name, strlen(name));
    }
    if (!err) err = lar_buf_add(out, ": ", 2);
    if (!err) err = lar_buf_add(out, c->json->body.ptr + from, to - from);
    return err ? err : lar_buf_add(out, "\\n", 2);
}

/* The groups in the order in which the block names them: the tools by their ids. Fills `order`. */
static void group_order(const lar_canon *c, uint32_t order[LAR_CANON_GROUPS_MAX]) {
    for (uint32_t i = 0; i < c->group_count; i++) {
        const lar_canon_group *g = &c->groups[i];
        uint32_t k = i;
        for (; k > 0 && g->place == LAR_PLACE_TOOL; k--) {
            const lar_canon_group *before = &c->groups[order[k - 1]];
            if (before->place != LAR_PLACE_TOOL || memcmp(before->shape.bytes, g->shape.bytes, 16) <= 0) break;
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
}

/* What names a person or a session keeps the conversations of each apart. */
static void add_person(lar_canon *c, uint32_t i) {
    if (lar_volatile_row_of(c->spans[i].class_id)->owner != LAR_OWNER_PERSON) return;
    c->persons = lar_hash_chain(c->persons, lar_canon_span_text(c, i));
}

static lar_error add_constant(lar_canon *c, const lar_buf *b, size_t from) {
    if (!c->constants) c->constants = lar_arena_alloc(c->arena, LAR_CANON_SPANS_MAX * sizeof *c->constants);
    if (!c->constants) return LAR_NO_MEMORY;
    lar_slice line = lar_arena_copy(c->arena, lar_slice_of(b->ptr + from, b->len - from));
    if (!line.ptr) return LAR_NO_MEMORY;
    c->constants[c->constant_count++] = line;
    return LAR_OK;
}

static lar_error print_lines(lar_canon *c, lar_buf *b) {
    uint32_t order[LAR_CANON_GROUPS_MAX];
    group_order(c, order);
    lar_error e = LAR_OK;
    for (uint32_t k = 0; k < c->group_count && !e; k++) {
        const lar_canon_group *g = &c->groups[order[k]];
        for (uint32_t i = g->span_first; i < g->span_first + g->span_count && !e; i++) {
            if (!(c->edit_mask >> i & 1)) continue;
            add_person(c, i);
            size_t from = b->len;
            e = print_line(c, i, b);
            if (!e && !lar_canon_ticks(c->spans[i].class_id)) e = add_constant(c, b, from);
        }
    }
    return e;
}

static lar_error print_facts(lar_canon *c) {
    uint32_t max = c->in->options->facts_bytes_max ? c->in->options->facts_bytes_max : FACTS_DEFAULT;
    if (max > FACTS_MAX) max = FACTS_MAX; /* four blocks must fit into one value of the memory */
    lar_buf b;
    lar_buf_init(&b, max);
    lar_error e = lar_buf_add(&b, block_open, sizeof block_open - 1);
    if (!e) e = print_lines(c, &b);
    if (!e) e = lar_buf_add(&b, block_close, sizeof block_close - 1);
    if (!e) {
        c->facts = lar_arena_copy(c->arena, lar_buf_slice(&b));
        if (!c->facts.ptr) e = LAR_NO_MEMORY;
    }
    lar_buf_release(&b);
    if (e == LAR_LIMIT) { /* more than a block may hold: then all of it stays where it is */
        c->edit_mask = 0;
        c->persons = (lar_hash){{0}};
        c->constant_count = 0;
        e = LAR_OK;
    }
    return e;
}

/* What the conversation begins with, whatever its clocks show. */
static lar_error read_opener(lar_canon *c) {
    uint32_t i = c->head_count;
    if (i >= c->view->segment_count) return LAR_OK;
    lar_hash h = c->segments[i].norm;
    for (uint32_t u = 0, n = 0; u < c->unit_count; u++) {
        if (c->units[u].segment != i) continue;
        lar_error e = lar_canon_unit_norms(c, &c->units[u]);
        if (e) return e;
        h = n++ ? lar_hash_join(h, c->units[u].masked) : c->units[u].masked;
    }
    c->opener = lar_hash_low(h);
    return LAR_OK;
}

static lar_error report(lar_canon *c, uint32_t i) {
    const lar_volatile_span *s = &c->spans[i];
    const lar_canon_unit *u = lar_canon_unit_of_span(c, i);
    if (!lar_canon_class_on(c, s->class_id)) return LAR_OK;
    return lar_canon_find(c, (lar_finding){.rule = lar_canon_rule_of(s->class_id),
                                           .node = u->node,
                                           .edited = c->edit_mask >> i & 1,
                                           .confirmed = c->confirmed >> i & 1,
                                           .class_id = s->class_id,
                                           .start = lar_text_body_offset(&u->text, s->start),
                                           .end = lar_text_body_offset(&u->text, s->end)});
}

lar_error lar_rule_volatile(lar_canon *c) {
    if (c->span_count == 0 || c->passed) return LAR_OK;
    lar_error e = read_opener(c);
    for (uint32_t g = 0; g < c->group_count && !e; g++) e = lar_canon_evidence(c, &c->groups[g]);
    if (e) return e;
    bool carried = c->view->turn_user != LAR_JSON_NONE && lar_canon_appendable(c, c->view->turn_user) && c->in->memory;
    c->edit_mask = c->apply && carried ? c->moving : 0;
    if (c->edit_mask) e = print_facts(c);
    for (uint32_t i = 0; i < c->span_count && !e; i++) e = report(c, i);
    return e;
}
