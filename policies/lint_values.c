/* Values in the texts of the head: volatile spans, billing lines, forms (LR001, LR002, LR004 to LR009, LR108, LR109).
 * Flow: lint.c -> here -> lint_sight.c remembers each place of a template and says what changed.
 * Never blocks; memory from the request's arena.
 * Invariants: 1. a span that canon edits is confirmed. 2. a span in a text that changed otherwise too is compared by
 * its label within the conversation. */
#include "policies/lint_state.h"

static const char *const kinds[] = {"system text", "tool description", "opening message"};

/* One sentence a rule: what to do. */
static lar_slice advice_of(lar_rule r) {
    static const struct {
        const char *id, *text;
    } rows[] = {
        {"LR001", "Put the clock into the newest user message, or let larder move it there."},
        {"LR002", "Turn the header off in the client, or let larder drop it."},
        {"LR004", "Send a text with the same BOM, line ends and trailing blanks every time."},
        {"LR005", "Put the date into the newest user message: here it breaks the prefix at midnight."},
        {"LR006", "Keep ids of requests and random values out of the prompt; send them in a header."},
        {"LR007", "Put what names a session or a person behind what all of them share."},
        {"LR008", "Report counters and budgets in the newest user message."},
        {"LR009", "Put what the machine or the repository says into the newest user message."},
        {"LR108", "Name the id with a key, or leave it out: no rule moves a value that nothing names."},
        {"LR109", "Put it into the newest user message, or let the model ask for it by a tool."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (lar_rule_find(lar_slice_cstr(rows[i].id)) == r) return lar_slice_cstr(rows[i].text);
    }
    return LAR_SLICE("Keep the value out of what every request begins with.");
}

static bool is_edited(const lar_lint_run *run, lar_rule rule, uint32_t start, uint32_t end) {
    for (uint32_t i = 0; i < run->canon.finding_count; i++) {
        const lar_finding *f = &run->canon.findings[i];
        if ((f->edited || f->confirmed) && f->rule == rule && f->start < end && f->end > start) return true;
    }
    return false;
}

static lar_hash keyed(lar_hash h, const char *kind, uint64_t more) {
    h = lar_hash_chain(h, lar_slice_cstr(kind));
    return lar_hash_chain(h, lar_slice_of((const char *)&more, sizeof more));
}

/* How many texts with this template stand in front of it: two tools may share a description. */
static uint64_t twins_before(const lar_lint_run *run, const lar_lint_unit *u) {
    uint64_t n = 0;
    for (const lar_lint_unit *k = run->units; k < u; k++) n += lar_hash_eq(k->norm, u->norm);
    return n;
}

/* Which of the spans with this label it is. */
static uint64_t ordinal(const lar_lint_unit *u, uint32_t i) {
    uint64_t n = 0;
    for (uint32_t k = 0; k < i; k++) n += lar_hash_eq(u->spans[k].slot, u->spans[i].slot);
    return n;
}

static lar_error see_span(lar_lint_run *run, const lar_lint_unit *u, uint64_t twin, uint32_t i) {
    const lar_lint_span *s = &u->spans[i];
    lar_slice text = u->text.text;
    lar_lint_seen seen = {.rule = s->rule, .severity = LAR_SEVERITY_WARNING, .node = u->node, .suspect = s->key_word};
    seen.start = lar_text_body_offset(&u->text, s->start);
    seen.end = lar_text_body_offset(&u->text, s->end);
    seen.value = lar_slice_of(text.ptr + s->start, s->end - s->start);
    seen.label = lar_slice_of(text.ptr + s->label_start, s->label_end - s->label_start);
    seen.group = keyed(lar_hash_chain(s->slot, lar_slice_cstr(lar_rule_id(s->rule))), kinds[u->kind], 0);
    seen.edited = is_edited(run, s->rule, seen.start, seen.end);
    seen.what = lar_arena_printf(run->arena, "%s in the %s", s->text, kinds[u->kind]);
    seen.advice = advice_of(s->rule);
    if (!seen.what.ptr) return LAR_NO_MEMORY;
    seen.key = keyed(keyed(u->norm, kinds[u->kind], i), "twin", twin);
    lar_error e = lar_lint_see(run, &seen);
    seen.suspect = false;
    seen.twin = true;
    seen.across = true; /* the same template in another file */
    if (!e) e = lar_lint_see(run, &seen);
    if (e || !run->now->opening || u->kind != LAR_LINT_SYSTEM) return e;
    /* The same conversation with a text that changed elsewhere too. */
    seen.across = false;
    seen.key = keyed(keyed(seen.group, "conversation", run->now->opening), "", ordinal(u, i));
    return lar_lint_see(run, &seen);
}

lar_slice lar_lint_form_text(const lar_text *text, const lar_text_form *form, lar_arena *arena) {
    lar_slice t = text->text;
    bool bom = t.len >= 3 && memcmp(t.ptr, "\xEF\xBB\xBF", 3) == 0, cr = t.len && memchr(t.ptr, '\r', t.len);
    char blanks[64] = "nothing";
    size_t n = 0;
    for (size_t i = form->end; i < t.len && n + 3 < sizeof blanks; i++) {
        char c = t.ptr[i];
        blanks[n++] = '\\';
        blanks[n++] = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : 's';
        blanks[n] = 0;
    }
    return lar_arena_printf(arena, "%s, %s, at its end %s (%u bytes)", bom ? "a BOM" : "no BOM",
                            cr ? "CR in line ends" : "LF", blanks, (unsigned)(t.len - form->end));
}

lar_hash lar_lint_form_key(lar_hash norm, lar_lint_kind kind, lar_hash *group) {
    *group = keyed(lar_hash_of(LAR_SLICE("LR004")), kinds[kind], 0);
    return keyed(norm, "form", kind);
}

/* An odd form is a suspicion; one that larder changes is more. Two forms of one text: lint_head.c. */
static lar_error see_form(lar_lint_run *run, const lar_lint_unit *u) {
    if (u->kind == LAR_LINT_TOOL || u->form.end == u->form.begin) return LAR_OK;
    lar_slice t = u->text.text;
    lar_lint_seen seen = {.rule = LAR_RULE_LR004, .severity = LAR_SEVERITY_WARNING, .node = u->node};
    seen.start = run->json->nodes[u->node].start + 1;
    seen.end = seen.start;
    seen.suspect = (t.len >= 3 && memcmp(t.ptr, "\xEF\xBB\xBF", 3) == 0) || memchr(t.ptr, '\r', t.len);
    seen.edited = is_edited(run, LAR_RULE_LR004, seen.start, run->json->nodes[u->node].end);
    if (!seen.suspect && !seen.edited) return LAR_OK;
    seen.key = lar_lint_form_key(u->norm, u->kind, &seen.group);
    seen.what = lar_arena_printf(run->arena, "form of the %s: BOM, line ends, blanks at the end", kinds[u->kind]);
    seen.advice = advice_of(LAR_RULE_LR004);
    seen.value = lar_lint_form_text(&u->text, &u->form, run->arena);
    return seen.what.ptr && seen.value.ptr ? lar_lint_see(run, &seen) : LAR_NO_MEMORY;
}

static lar_error see_billing(lar_lint_run *run, const lar_finding *f) {
    lar_text text;
    lar_error e = lar_text_read(&text, run->json, f->node, run->arena);
    if (e) return e;
    lar_lint_seen seen = {.rule = LAR_RULE_LR002,
                          .severity = LAR_SEVERITY_WARNING,
                          .node = f->node,
                          .edited = true,
                          .start = f->start,
                          .end = f->end,
                          .what = LAR_SLICE("billing header in the system text")};
    lar_slice raw = lar_slice_of(run->json->body.ptr + f->start, f->end - f->start);
    char *value = lar_arena_alloc(run->arena, raw.len + 1);
    if (!value) return LAR_NO_MEMORY;
    size_t len = lar_text_decode(raw, value);
    while (len > 0 && (value[len - 1] == '\n' || value[len - 1] == '\r')) len--;
    seen.value = lar_slice_of(value, len);
    seen.advice = advice_of(LAR_RULE_LR002);
    seen.group = lar_hash_of(LAR_SLICE("LR002"));
    seen.key = keyed(seen.group, "", run->now->opening);
    return lar_lint_see(run, &seen);
}

lar_error lar_lint_values(lar_lint_run *run) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < run->canon.finding_count && !e; i++) {
        if (run->canon.findings[i].rule == LAR_RULE_LR002) e = see_billing(run, &run->canon.findings[i]);
    }
    for (uint32_t k = 0; k < run->unit_count && !e; k++) {
        const lar_lint_unit *u = &run->units[k];
        e = see_form(run, u);
        uint64_t twin = u->span_count ? twins_before(run, u) : 0;
        for (uint32_t i = 0; i < u->span_count && !e; i++) e = see_span(run, u, twin, i);
    }
    return e;
}
