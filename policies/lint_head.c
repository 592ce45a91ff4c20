/* The head of a request against that of its predecessor: LR003, LR004, LR010 and LR107.
 * Flow: lint.c -> here, only where something differs -> lint_sight.c.
 * Never blocks; memory from the request's arena. Invariant: what a volatile span or a form of text explains is no
 * LR107: texts are compared by their norms, tools by what they mean. Nor is a presigned address: LR105 tells of it. */
#include "policies/checks_text.h"
#include "policies/lint_state.h"

enum { STRETCH_BEFORE = 24, STRETCH_BYTES = 96, SIGNED_MAX = 16 };

static bool inside_character(lar_slice s, size_t i) { return i < s.len && ((unsigned char)s.ptr[i] & 0xC0) == 0x80; }

static lar_slice stretch(lar_slice s, size_t from) {
    size_t begin = from > STRETCH_BEFORE ? from - STRETCH_BEFORE : 0, end = begin + STRETCH_BYTES;
    if (end > s.len) end = s.len;
    while (begin > 0 && inside_character(s, begin)) begin--;
    while (end > begin && end < s.len && inside_character(s, end)) end--;
    return lar_slice_of(s.ptr + begin, end - begin);
}

size_t lar_lint_stretch(lar_slice a, lar_slice b, lar_slice *of_a, lar_slice *of_b) {
    size_t i = 0;
    while (i < a.len && i < b.len && a.ptr[i] == b.ptr[i]) i++;
    while (i > 0 && (inside_character(a, i) || inside_character(b, i))) i--;
    *of_a = stretch(a, i);
    *of_b = stretch(b, i);
    return i;
}

/* Where the presigned address ends that `at` lies in; 0 if it lies in none. */
static size_t signed_end(lar_slice s, size_t at) {
    lar_check_span span = {0, 0};
    while (lar_check_presigned(s, span.end, &span) && span.start <= at) {
        if (at < span.end) return span.end;
    }
    return 0;
}

/* The first difference of two texts that no presigned address explains, of the first SIGNED_MAX; false: none. */
typedef struct difference {
    size_t at, at_before;
    lar_slice value, value_before;
} difference;
static bool first_difference(lar_slice now, lar_slice before, difference *out) {
    size_t a = 0, b = 0;
    for (uint32_t turn = 0; turn < SIGNED_MAX; turn++) {
        lar_slice x = lar_slice_of(now.ptr + a, now.len - a), y = lar_slice_of(before.ptr + b, before.len - b);
        if (lar_slice_eq(x, y)) return false;
        size_t n = lar_lint_stretch(x, y, &out->value, &out->value_before);
        out->at = a + n;
        out->at_before = b + n;
        a = signed_end(now, out->at);
        b = signed_end(before, out->at_before);
        if (!a || !b) break;
    }
    return true;
}

static lar_hash key_of(const char *rule, lar_hash more) { return lar_hash_chain(more, lar_slice_cstr(rule)); }

/* A value of this request and one of the one before, as text to show. */
typedef struct pair {
    uint32_t now, before;   /* nodes */
    uint32_t at, at_before; /* bytes of the bodies where they differ; 0: the whole values */
    lar_slice value, value_before;
} pair;

static lar_error see_pair(lar_lint_run *run, lar_lint_seen *seen, const pair *p) {
    const lar_json_node *n = &run->json->nodes[p->now], *b = &run->before_json.nodes[p->before];
    uint32_t from = p->at_before ? p->at_before : b->start;
    lar_lint_spot spot = {&run->before_json, run->before, p->before, from, p->at_before ? from : b->end,
                          p->value_before};
    lar_lint_place before;
    lar_error e = lar_lint_place_of(run->l, &spot, &before);
    if (e) return e;
    seen->node = p->now;
    seen->start = p->at ? p->at : n->start;
    seen->end = p->at ? p->at : n->end;
    seen->value = p->value;
    seen->before = &before;
    if (seen->rule != LAR_RULE_LR004) seen->group = lar_hash_of(lar_slice_cstr(lar_rule_id(seen->rule)));
    return lar_lint_see(run, seen);
}

/* -- tools --------------------------------------------------------------------------------------------- */

static lar_slice name_of(const lar_json *j, uint32_t tool) {
    uint32_t name = lar_json_get(j, lar_json_get(j, tool, "function"), "name");
    if (name == LAR_JSON_NONE) name = lar_json_get(j, tool, "name");
    if (name == LAR_JSON_NONE) name = lar_json_get(j, tool, "type");
    return lar_json_inner(j, name);
}

/* "a, b, c" from the i-th on, as many as fit. */
static lar_error print_names(lar_lint_run *run, const lar_json *j, const lar_lint_kept *k, uint32_t i, lar_slice *out) {
    lar_buf b;
    lar_buf_init(&b, LAR_LINT_VALUE_BYTES);
    lar_error e = LAR_OK;
    for (uint32_t t = i; t < k->tool_count && !e; t++) {
        if (t > i) e = lar_buf_add(&b, ", ", 2);
        if (!e) e = lar_buf_add_slice(&b, name_of(j, k->tools[t].node));
    }
    *out = lar_arena_copy(run->arena, b.len ? lar_buf_slice(&b) : LAR_SLICE("..."));
    lar_buf_release(&b);
    if (e == LAR_LIMIT) e = LAR_OK;
    return !e && !out->ptr ? LAR_NO_MEMORY : e;
}

static const lar_lint_tool *same_name(const lar_lint_kept *k, uint64_t name, uint32_t hint) {
    if (hint < k->tool_count && k->tools[hint].name == name) return &k->tools[hint];
    for (uint32_t i = 0; i < k->tool_count; i++) {
        if (k->tools[i].name == name) return &k->tools[i];
    }
    return NULL;
}

static lar_error tool_order(lar_lint_run *run, uint32_t at) {
    const lar_lint_kept *now = run->now, *before = run->before;
    lar_lint_seen seen = {.rule = LAR_RULE_LR003,
                          .severity = LAR_SEVERITY_WARNING,
                          .what = LAR_SLICE("order of the tools"),
                          .advice =
                              LAR_SLICE("Sort the tools by name before sending them, or let larder keep their order.")};
    pair p = {.now = run->view->tools, .before = run->before_view.tools};
    lar_error e = print_names(run, run->json, now, at, &p.value);
    if (!e) e = print_names(run, &run->before_json, before, at, &p.value_before);
    lar_hash set = lar_hash_of(LAR_SLICE("tools"));
    seen.key = key_of("LR003", set);
    return e ? e : see_pair(run, &seen, &p);
}

static void point_at(const lar_lint_run *run, const difference *d, pair *p) {
    p->value = d->value;
    p->value_before = d->value_before;
    p->at = run->json->nodes[p->now].start + (uint32_t)d->at;
    p->at_before = run->before_json.nodes[p->before].start + (uint32_t)d->at_before;
}

static lar_error tool_form(lar_lint_run *run, const lar_lint_tool *now, const lar_lint_tool *before) {
    lar_lint_seen seen = {
        .rule = lar_rule_find(LAR_SLICE("LR010")),
        .severity = LAR_SEVERITY_WARNING,
        .what = LAR_SLICE("order of members in a tool's definition"),
        .advice =
            LAR_SLICE("Print a tool's schema with its members in one order, or let larder send it as first seen.")};
    pair p = {.now = now->node, .before = before->node};
    difference d;
    d.at = d.at_before = lar_lint_stretch(lar_json_raw(run->json, p.now), lar_json_raw(&run->before_json, p.before),
                                          &d.value, &d.value_before);
    point_at(run, &d, &p);
    seen.label = name_of(run->json, now->node);
    seen.key = key_of("LR010", lar_hash_of(seen.label));
    return see_pair(run, &seen, &p);
}

static lar_error tool_change(lar_lint_run *run, const lar_lint_tool *now, const lar_lint_tool *before) {
    lar_lint_seen seen = {.rule = LAR_RULE_LR107,
                          .severity = LAR_SEVERITY_WARNING,
                          .what = LAR_SLICE("a tool's definition, without a class that would explain it"),
                          .advice = LAR_SLICE("Send the same definition of a tool in every request.")};
    pair p = {.now = now->node, .before = before->node};
    difference d;
    lar_slice is = lar_json_raw(run->json, p.now), was = lar_json_raw(&run->before_json, p.before);
    if (!first_difference(is, was, &d)) return LAR_OK;
    point_at(run, &d, &p);
    seen.label = name_of(run->json, now->node);
    seen.key = key_of("LR107 tool", lar_hash_of(seen.label));
    return see_pair(run, &seen, &p);
}

static lar_error tool_set(lar_lint_run *run) {
    lar_lint_seen seen = {
        .rule = LAR_RULE_LR107,
        .severity = LAR_SEVERITY_WARNING,
        .what = LAR_SLICE("the set of tools"),
        .advice =
            LAR_SLICE("Send the same tools in every request of a conversation, and mask what may not be called.")};
    pair p = {.now = run->view->tools,
              .before = run->before_view.tools,
              .value = LAR_SLICE("no tools"),
              .value_before = LAR_SLICE("no tools")};
    if (p.now == LAR_JSON_NONE) p.now = 0;
    if (p.before == LAR_JSON_NONE) p.before = 0;
    lar_error e = run->now->tool_count ? print_names(run, run->json, run->now, 0, &p.value) : LAR_OK;
    if (!e && run->before->tool_count) e = print_names(run, &run->before_json, run->before, 0, &p.value_before);
    seen.key = key_of("LR107", lar_hash_of(LAR_SLICE("tools")));
    return e ? e : see_pair(run, &seen, &p);
}

static lar_error tools(lar_lint_run *run) {
    const lar_lint_kept *now = run->now, *before = run->before;
    uint32_t moved = LAR_JSON_NONE, strange = 0;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < now->tool_count && !e; i++) {
        const lar_lint_tool *t = &now->tools[i], *b = same_name(before, t->name, i);
        if (!b) {
            strange++;
            continue;
        }
        if (b != &before->tools[i] && moved == LAR_JSON_NONE) moved = i;
        if (t->same.strict == b->same.strict && t->described == b->described) continue;
        e = lar_lint_before_read(run);
        if (e) break;
        bool means = t->same.loose == b->same.loose && t->described == b->described;
        e = means ? tool_form(run, t, b) : tool_change(run, t, b);
    }
    if (e) return e;
    bool same_set = !strange && now->tool_count == before->tool_count;
    if (same_set && moved == LAR_JSON_NONE) return LAR_OK;
    e = lar_lint_before_read(run);
    if (e) return e;
    return same_set ? tool_order(run, moved) : tool_set(run);
}

/* -- texts --------------------------------------------------------------------------------------------- */

static lar_error text_change(lar_lint_run *run, const lar_lint_text *now, const lar_lint_text *before) {
    lar_text a, b;
    lar_error e = lar_lint_before_read(run);
    if (!e) e = lar_text_read(&a, run->json, now->node, run->arena);
    if (!e) e = lar_text_read(&b, &run->before_json, before->node, run->arena);
    if (e) return e;
    difference d;
    if (!first_difference(a.text, b.text, &d)) return LAR_OK;
    lar_lint_seen seen = {.rule = LAR_RULE_LR107,
                          .severity = LAR_SEVERITY_WARNING,
                          .what = LAR_SLICE("a system text, without a class that would explain it"),
                          .advice = LAR_SLICE(
                              "Keep the system text constant; put what changes into the newest user message.")};
    pair p = {.now = now->node, .before = before->node, .value = d.value, .value_before = d.value_before};
    p.at = lar_text_body_offset(&a, (uint32_t)d.at);
    p.at_before = lar_text_body_offset(&b, (uint32_t)d.at_before);
    seen.key = key_of("LR107", lar_hash_of(LAR_SLICE("system")));
    return see_pair(run, &seen, &p);
}

/* The same text in two forms. */
static lar_error form_change(lar_lint_run *run, const lar_lint_text *now, const lar_lint_text *before) {
    lar_text a, b;
    lar_text_form f, g;
    lar_error e = lar_lint_before_read(run);
    if (!e) e = lar_text_read(&a, run->json, now->node, run->arena);
    if (!e) e = lar_text_read(&b, &run->before_json, before->node, run->arena);
    if (e) return e;
    lar_text_form_read(&f, &a, 0);
    lar_text_form_read(&g, &b, 0);
    const char *kind = now->kind == LAR_LINT_SYSTEM ? "system text" : "opening message";
    lar_lint_seen seen = {.rule = LAR_RULE_LR004, .severity = LAR_SEVERITY_WARNING};
    seen.what = lar_arena_printf(run->arena, "form of the %s: BOM, line ends, blanks at the end", kind);
    seen.advice = LAR_SLICE("Send a text with the same BOM, line ends and trailing blanks every time.");
    pair p = {.now = now->node, .before = before->node, .at = now->start, .at_before = before->start};
    p.value = lar_lint_form_text(&a, &f, run->arena);
    p.value_before = lar_lint_form_text(&b, &g, run->arena);
    if (!seen.what.ptr || !p.value.ptr || !p.value_before.ptr) return LAR_NO_MEMORY;
    seen.key = lar_lint_form_key(now->norm, now->kind, &seen.group);
    return see_pair(run, &seen, &p);
}

static uint32_t system_texts(const lar_lint_kept *k) {
    uint32_t n = 0;
    while (n < k->text_count && k->texts[n].kind == LAR_LINT_SYSTEM) n++;
    return n;
}

static lar_error text_count(lar_lint_run *run, uint32_t now, uint32_t before) {
    lar_error e = lar_lint_before_read(run);
    if (e) return e;
    lar_lint_seen seen = {.rule = LAR_RULE_LR107,
                          .severity = LAR_SEVERITY_WARNING,
                          .what = LAR_SLICE("how many system texts there are"),
                          .advice = LAR_SLICE(
                              "Keep the system texts constant; put what changes into the newest user message.")};
    pair p = {.now = now ? run->now->texts[now - 1].node : 0,
              .before = before ? run->before->texts[before - 1].node : 0};
    p.value = lar_arena_printf(run->arena, "%u texts", (unsigned)now);
    p.value_before = lar_arena_printf(run->arena, "%u texts", (unsigned)before);
    if (!p.value.ptr || !p.value_before.ptr) return LAR_NO_MEMORY;
    seen.key = key_of("LR107 count", lar_hash_of(LAR_SLICE("system")));
    return see_pair(run, &seen, &p);
}

lar_error lar_lint_head(lar_lint_run *run) {
    if (!run->before) return LAR_OK;
    lar_error e = tools(run);
    uint32_t now = system_texts(run->now), before = system_texts(run->before);
    for (uint32_t i = 0; i < now && i < before && !e; i++) {
        const lar_lint_text *a = &run->now->texts[i], *b = &run->before->texts[i];
        if (!lar_hash_eq(a->norm, b->norm)) return text_change(run, a, b);
        if (a->form != b->form) e = form_change(run, a, b);
    }
    for (uint32_t i = now, k = before; !e && i < run->now->text_count && k < run->before->text_count; i++, k++) {
        const lar_lint_text *a = &run->now->texts[i], *b = &run->before->texts[k];
        if (a->kind != LAR_LINT_OPENING || b->kind != LAR_LINT_OPENING) break;
        if (lar_hash_eq(a->norm, b->norm) && a->form != b->form) e = form_change(run, a, b);
    }
    return !e && now != before ? text_count(run, now, before) : e;
}
