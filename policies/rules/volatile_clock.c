/* LR001: which clocks of the head move into the block of facts, by evidence.
 * Flow: canon.c -> here (edit_mask, facts) -> canon_head.c edits -> canon_facts.c attaches the block.
 * Never blocks; one request at a time. What is remembered, all in the scope:
 *   T  template of the head -> for each clock the last value and what it did (seen, repeated, changed)
 *   L  class and label of a clock that was seen to change: counts for other prompts with that label
 *   R  head with its values -> which clocks moved when it was sent: the same text is decided the same way again
 * Invariants: 1. a clock that never changed and does not show now is not touched. 2. nothing moves if there
 * is no user message that could carry it. 3. a value goes into the block byte for byte. */
#include "policies/canon_state.h"

enum {
    VERSION = 1,
    SEEN = 0,
    REPEATED = 1,
    CHANGED = 2,
    HEAD_BYTES = 10,
    ROW_BYTES = 9,
    FACTS_DEFAULT = 4096,
    FACTS_MAX = 15000
};

static const char block_open[] =
    "\\n\\n<runtime-context note=\\\"Added by the gateway. Facts valid for this turn only; not part of the user's request.\\\">\\n";
static const char block_close[] = "</runtime-context>";

typedef struct evidence {
    bool found, dirty;
    uint64_t opener; /* what the conversation began with when the values were seen */
    uint64_t value[LAR_CANON_SPANS_MAX];
    uint8_t state[LAR_CANON_SPANS_MAX];
} evidence;

static const lar_canon_unit *unit_of(const lar_canon *c, uint32_t span) {
    for (uint32_t u = 0; u < c->unit_count; u++) {
        if (span - c->units[u].span_first < c->units[u].span_count) return &c->units[u];
    }
    return NULL;
}

static lar_slice span_text(const lar_canon *c, uint32_t i) {
    const lar_clock_span *s = &c->spans[i];
    return lar_slice_of(unit_of(c, i)->text.text.ptr + s->start, s->end - s->start);
}

static void read_evidence(lar_canon *c, evidence *ev) {
    *ev = (evidence){0};
    if (!lar_canon_get(c, 'T', c->hash_template)) return;
    const uint8_t *p = (const uint8_t *)c->value.ptr;
    if (p[0] != VERSION || c->value.len != HEAD_BYTES + (size_t)c->span_count * ROW_BYTES || p[1] != c->span_count)
        return;
    ev->found = true;
    memcpy(&ev->opener, p + 2, 8);
    for (uint32_t i = 0; i < c->span_count; i++) {
        memcpy(&ev->value[i], p + HEAD_BYTES + (size_t)i * ROW_BYTES, 8);
        ev->state[i] = p[HEAD_BYTES + (size_t)i * ROW_BYTES + 8];
    }
}

static lar_error write_evidence(lar_canon *c, const evidence *ev) {
    char value[HEAD_BYTES + LAR_CANON_SPANS_MAX * ROW_BYTES] = {VERSION, (char)c->span_count};
    memcpy(value + 2, &ev->opener, 8);
    for (uint32_t i = 0; i < c->span_count; i++) {
        memcpy(value + HEAD_BYTES + (size_t)i * ROW_BYTES, &ev->value[i], 8);
        value[HEAD_BYTES + (size_t)i * ROW_BYTES + 8] = (char)ev->state[i];
    }
    return lar_canon_put_value(c, 'T', c->hash_template,
                               lar_slice_of(value, HEAD_BYTES + (size_t)c->span_count * ROW_BYTES));
}

/* A slot counts for other prompts only if its label speaks of the present. */
static bool slot_changed(lar_canon *c, uint32_t i) {
    return c->spans[i].key_word && lar_canon_get(c, 'L', lar_clock_slot(unit_of(c, i)->text.text, &c->spans[i])) &&
           c->value.ptr[0] == VERSION;
}

static bool shows_now(const lar_canon *c, uint32_t i) {
    const lar_clock_span *s = &c->spans[i];
    bool trusted = s->key_word || (s->stamp.zone == LAR_ZONE_OFFSET && s->stamp.has_seconds);
    return trusted && lar_clock_shows(&s->stamp, c->in->now_ms);
}

/* One clock against what was seen before. True if it moves; learns on the way.
 * A value that stood still for several requests and then differs in another conversation is a constant of
 * that conversation, not a clock: then only a change within one conversation counts. */
static bool judge(lar_canon *c, evidence *ev, uint32_t i, uint64_t opener) {
    uint64_t value = lar_hash_low(lar_hash_of(span_text(c, i)));
    if (!ev->found) {
        bool moves = slot_changed(c, i) || shows_now(c, i);
        ev->value[i] = value;
        ev->state[i] = moves ? CHANGED : SEEN;
        return moves;
    }
    if (ev->state[i] == CHANGED) return true;
    if (ev->value[i] == value) {
        if (ev->state[i] == SEEN) ev->state[i] = REPEATED, ev->dirty = true;
        return false;
    }
    bool moves = ev->state[i] == SEEN || ev->opener == opener || slot_changed(c, i) || shows_now(c, i);
    ev->value[i] = value;
    ev->state[i] = moves ? CHANGED : SEEN;
    ev->dirty = true;
    return moves;
}

static lar_error remember_slots(lar_canon *c, uint32_t moved_now) {
    for (uint32_t i = 0; i < c->span_count; i++) {
        if (!(moved_now >> i & 1) || !c->spans[i].key_word) continue;
        char one = VERSION;
        lar_error e =
            lar_canon_put_value(c, 'L', lar_clock_slot(unit_of(c, i)->text.text, &c->spans[i]), lar_slice_of(&one, 1));
        if (e) return e;
    }
    return LAR_OK;
}

/* The head with its values, in whatever form. */
static lar_hash valued_head(const lar_canon *c) {
    lar_hash head = c->hash_template;
    for (uint32_t u = 0; u < c->unit_count; u++) head = lar_hash_join(head, c->units[u].valued);
    return head;
}

/* Decides which clocks move; fills *mask. */
static lar_error decide(lar_canon *c, uint32_t *mask) {
    uint64_t opener = c->head_count < c->view->segment_count ? lar_hash_low(c->segments[c->head_count].norm) : 0;
    lar_hash head = valued_head(c);
    lar_error e = LAR_OK;
    bool settled = lar_canon_get(c, 'R', head) && c->value.len == 5 && c->value.ptr[0] == VERSION;
    uint32_t before = 0;
    if (settled) memcpy(&before, c->value.ptr + 1, 4);
    evidence ev;
    read_evidence(c, &ev);
    uint32_t all = 0, moved_now = 0;
    for (uint32_t i = 0; i < c->span_count; i++) {
        if (c->spans[i].class_id == LAR_CLOCK_DATE) continue;
        all |= 1u << i;
        bool had = ev.found && ev.state[i] == CHANGED;
        if (!judge(c, &ev, i, opener)) continue;
        *mask |= 1u << i;
        if (ev.found && !had) moved_now |= 1u << i;
    }
    if (settled) *mask = before & all;
    ev.opener = opener;
    if (!ev.found || ev.dirty) e = write_evidence(c, &ev);
    if (!e) e = remember_slots(c, moved_now);
    if (!e && !settled && c->apply && *mask != all) {
        char value[5] = {VERSION};
        memcpy(value + 1, mask, 4);
        e = lar_canon_put_value(c, 'R', head, lar_slice_of(value, 5));
    }
    return e;
}

static bool is_mark(char c) {
    return c == ' ' || c == '\t' || c == '*' || c == '_' || c == '#' || c == '-' || c == '"' || c == '\'' || c == '<' ||
           c == '>' || c == '`' || c == ':' || c == '=' || c == '(' || c == '[' || c == '{' || c == '|' || c == ',';
}

/* "label: value" as a line of the block: the label in plain words, the value's bytes as they stand in the body. */
static lar_error print_line(lar_canon *c, uint32_t i, lar_buf *out) {
    const lar_clock_span *s = &c->spans[i];
    const lar_text *t = &unit_of(c, i)->text;
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
        memcpy(label, "Time", 4);
        n = 4;
    }
    uint32_t from = lar_text_body_offset(t, s->start), to = lar_text_body_offset(t, s->end);
    size_t before = out->len;
    lar_error err = lar_json_escape(out, lar_slice_of(label, n));
    if (err == LAR_INVALID) { /* half of a surrogate pair in the label */
        out->len = before;
        err = lar_buf_add(out, "Time", 4);
    }
    if (!err) err = lar_buf_add(out, ": ", 2);
    if (!err) err = lar_buf_add(out, c->json->body.ptr + from, to - from);
    return err ? err : lar_buf_add(out, "\\n", 2);
}

static lar_error print_facts(lar_canon *c) {
    uint32_t max = c->in->options->facts_bytes_max ? c->in->options->facts_bytes_max : FACTS_DEFAULT;
    if (max > FACTS_MAX) max = FACTS_MAX; /* four blocks must fit into one value of the memory */
    lar_buf b;
    lar_buf_init(&b, max);
    lar_error e = lar_buf_add(&b, block_open, sizeof block_open - 1);
    for (uint32_t i = 0; i < c->span_count && !e; i++) {
        if (c->edit_mask >> i & 1) e = print_line(c, i, &b);
    }
    if (!e) e = lar_buf_add(&b, block_close, sizeof block_close - 1);
    if (!e) {
        c->facts = lar_arena_copy(c->arena, lar_buf_slice(&b));
        if (!c->facts.ptr) e = LAR_NO_MEMORY;
    }
    lar_buf_release(&b);
    if (e == LAR_LIMIT) { /* more than a block may hold: then all of it stays where it is */
        c->edit_mask = 0;
        e = LAR_OK;
    }
    return e;
}

lar_error lar_rule_volatile_clock(lar_canon *c) {
    if (c->span_count == 0) return LAR_OK;
    uint32_t mask = 0;
    lar_error e = decide(c, &mask);
    if (e) return e;
    bool carried = c->view->turn_user != LAR_JSON_NONE && lar_canon_appendable(c, c->view->turn_user) && c->in->memory;
    c->edit_mask = c->apply && carried ? mask : 0;
    if (c->edit_mask) e = print_facts(c);
    for (uint32_t i = 0; i < c->span_count && !e; i++) {
        const lar_canon_unit *u = unit_of(c, i);
        e = lar_canon_find(c, (lar_finding){.rule = LAR_RULE_LR001,
                                            .node = u->node,
                                            .edited = c->edit_mask >> i & 1,
                                            .start = lar_text_body_offset(&u->text, c->spans[i].start),
                                            .end = lar_text_body_offset(&u->text, c->spans[i].end)});
    }
    return e;
}
