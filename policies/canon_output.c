/* Segments that a model or a tool wrote: what they mean, and how they are sent as they were written.
 * Flow: canon.c -> output_hash, segment by segment; rules LR011 and LR012 -> output_mend. One request at a time; memory
 * from the arena but for the work space of forms; never blocks.
 * Invariants: 1. the norm counts arguments, results and blanks at the end of a text in any form, so that the chain of a
 * conversation holds when a client prints them anew. 2. a segment is mended whole or stays. 3. the work for JSON texts
 * is bounded with that for all values (canon_state.h), and depends on the segment alone.
 * Not here: what is remembered and under which key (rules/model_output.c, rules/tool_result_form.c). */
#include "policies/canon_state.h"

static lar_error get_text(void *ctx, const lar_hash *key, lar_buf *out) {
    const lar_memory_ops *m = ((lar_canon *)ctx)->in->texts;
    return m ? m->get(m->ctx, key, out) : LAR_NOT_FOUND;
}

/* With the other puts, once the upstream has accepted the request. A record whose text is missing does no harm. */
static void put_text(void *ctx, const lar_hash *key, lar_slice value) {
    lar_canon *c = ctx;
    value = lar_arena_copy(c->arena, value);
    if (!value.ptr) return;
    if (lar_canon_put_one(c, (lar_canon_put){.key = *key, .value = value, .text = true}) != LAR_OK) return;
}

lar_output_memory lar_canon_output_memory(lar_canon *c) {
    c->texts = (lar_memory_ops){.ctx = c, .get = get_text, .put = put_text};
    return (lar_output_memory){.scope = c->scope,
                               .forms = c->in->memory,
                               .texts = c->in->texts ? &c->texts : NULL,
                               .arena = c->arena};
}

lar_hash lar_canon_context(const lar_canon *c, uint32_t i) {
    while (i > 0 && c->view->segments[i - 1].role == LAR_ROLE_ASSISTANT) i--;
    return i ? c->segments[i - 1].chain : c->tools_norm;
}

uint32_t lar_canon_output_end(const lar_canon *c) {
    uint32_t end = c->view->segment_count;
    while (end > 0 && c->view->segments[end - 1].role == LAR_ROLE_ASSISTANT) end--;
    return end;
}

/* -- what they mean --------------------------------------------------------------------------------- */

static lar_error start_reading(lar_canon *c, uint32_t i, lar_output_message *m) {
    const lar_segment *s = &c->view->segments[i];
    uint32_t room = c->json->nodes[s->node].next - s->node;
    if (room > LAR_OUTPUT_PARTS_MAX) room = LAR_OUTPUT_PARTS_MAX;
    if (room > c->parts_room) {
        c->parts = lar_arena_alloc(c->arena, room * sizeof *c->parts);
        c->fixed = lar_arena_alloc(c->arena, room * sizeof *c->fixed);
        c->parts_room = c->parts && c->fixed ? room : 0;
        if (!c->parts_room) return LAR_NO_MEMORY;
    }
    *m = (lar_output_message){.json = c->json,
                              .protocol = c->view->protocol,
                              .role = s->role,
                              .arena = c->arena,
                              .parts = c->parts,
                              .room = c->parts_room};
    lar_output_read(m, s->node);
    return LAR_OK;
}

/* Norm and exact of the segment, in which the parts count as what they mean. */
static lar_error hash_around(lar_canon *c, uint32_t i, const lar_output_message *m) {
    for (uint32_t k = 0; k < m->count; k++) {
        uint32_t at = k;
        for (; at > 0 && c->fixed[at - 1].node > m->parts[k].node; at--) c->fixed[at] = c->fixed[at - 1];
        c->fixed[at] = (lar_canon_fixed){m->parts[k].node, m->parts[k].norm, m->parts[k].exact};
    }
    c->fixed_count = m->count;
    lar_error e = lar_canon_units_hash(c, i, NULL, 0);
    c->fixed_count = 0;
    return e;
}

lar_error lar_canon_output_hash(lar_canon *c, uint32_t i) {
    if (lar_canon_memo_get(c, i)) return LAR_OK;
    lar_canon_segment *s = &c->segments[i];
    lar_output_message m;
    uint32_t work = 0;
    bool json = false;
    lar_error e = start_reading(c, i, &m);
    for (uint32_t k = 0; k < m.count && !e && work <= c->work_left; k++) {
        lar_slice text = lar_json_raw(c->json, m.parts[k].node);
        if (m.parts[k].kind != LAR_OUTPUT_INPUT) e = lar_canon_decoded(c, m.parts[k].node, &text);
        if (!e) e = lar_output_hash(&c->forms, c->json, &m.parts[k], text, &work);
        json = json || m.parts[k].json;
    }
    if (e) return e;
    if (work > c->work_left) {
        c->work_left += s->work;
        s->norm = s->exact = s->key;
        return LAR_OK;
    }
    c->work_left -= work;
    s->work += work;
    e = hash_around(c, i, &m);
    /* a result that is no JSON has but one form */
    if (json || m.role == LAR_ROLE_ASSISTANT) s->core = lar_output_core_of(m.parts, m.count);
    if (!e) lar_canon_memo_put(c, i);
    return e;
}

/* -- mending ---------------------------------------------------------------------------------------- */

lar_error lar_canon_output_read(lar_canon *c, uint32_t i, lar_output_message *m) {
    uint32_t work = 0;
    lar_error e = start_reading(c, i, m);
    for (uint32_t k = 0; k < m->count && !e; k++) {
        lar_slice text = lar_json_raw(c->json, m->parts[k].node);
        if (m->parts[k].kind != LAR_OUTPUT_INPUT) {
            e = lar_canon_decoded(c, m->parts[k].node, &text);
            if (!e && text.ptr == c->decoded) text = lar_arena_copy(c->arena, text);
            if (!text.ptr) e = LAR_NO_MEMORY;
        }
        if (!e) e = lar_output_hash(&c->forms, c->json, &m->parts[k], text, &work);
    }
    return e;
}

/* What each part that changes is written as in the body. False if one cannot be. */
static lar_error escape_wants(lar_canon *c, lar_output_message *m, bool *fits) {
    lar_buf b;
    lar_error e = LAR_OK;
    lar_buf_init(&b, 6 * LAR_JSON_FORM_TEXT_MAX);
    for (uint32_t k = 0; k < m->count && !e; k++) {
        lar_output_part *p = &m->parts[k];
        if (!p->want.ptr || p->kind == LAR_OUTPUT_INPUT) continue;
        b.len = 0;
        e = lar_json_escape(&b, p->want);
        if (!e) p->want = lar_arena_copy(c->arena, lar_buf_slice(&b));
        if (!e && !p->want.ptr) e = LAR_NO_MEMORY;
    }
    lar_buf_release(&b);
    *fits = !e;
    return e == LAR_INVALID || e == LAR_LIMIT ? LAR_OK : e;
}

static lar_error splice_part(lar_canon *c, const lar_output_part *p, size_t old_tail) {
    const lar_json_node *n = &c->json->nodes[p->node];
    if (p->kind == LAR_OUTPUT_INPUT) return lar_splices_add(&c->out->splices, n->start, n->end, p->want);
    uint32_t start = n->start + 1;
    if (p->kind == LAR_OUTPUT_TEXT) {
        lar_text t;
        lar_error e = lar_text_read(&t, c->json, p->node, c->arena);
        if (e) return e;
        start = lar_text_body_offset(&t, (uint32_t)(t.text.len - old_tail));
    }
    return lar_splices_add(&c->out->splices, start, n->end - 1, p->want);
}

lar_error lar_canon_output_mend(lar_canon *c, uint32_t i, lar_slice record, lar_rule rule, bool *mended) {
    const lar_json_node *n = &c->json->nodes[c->view->segments[i].node];
    lar_output_message m;
    lar_output_memory memory = lar_canon_output_memory(c);
    size_t tails[LAR_OUTPUT_PARTS_MAX];
    bool fits = false;
    *mended = false;
    lar_error e = lar_canon_output_read(c, i, &m);
    for (uint32_t k = 0; k < m.count && !e; k++) tails[k] = m.parts[k].tail.len;
    if (!e) e = lar_output_restore(&c->forms, &m, record, &memory, &fits);
    if (!e && fits) e = escape_wants(c, &m, &fits);
    if (e || !fits) return e;
    for (uint32_t k = 0; k < m.count && c->apply && !e; k++)
        if (m.parts[k].want.ptr) e = splice_part(c, &m.parts[k], tails[k]);
    if (!e && c->apply) e = hash_around(c, i, &m);
    *mended = !e && c->apply;
    lar_finding f = {.rule = rule, .node = c->view->segments[i].node, .start = n->start, .end = n->end};
    f.edited = c->apply;
    return e ? e : lar_canon_find(c, f);
}
