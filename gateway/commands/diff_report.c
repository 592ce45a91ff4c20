/* The difference of two requests, for people and as JSON (header: diff.h).
 * Flow: diff.c calls once. One thread; blocks on the output. Invariants: 1. excerpts are short, and nothing in them can
 * drive a terminal. 2. A count of tokens is called an estimate. Memory: small buffers, or a cJSON tree. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "gateway/commands/diff.h"
#include "gateway/commands/present.h"

enum { BEFORE_BYTES = 40, BEHIND_BYTES = 60, POINTER_MAX = 1 << 16, WHERE_BYTES = 96 };

static const char *const kind_names[] = {
    [LAR_DIFF_NONE] = "same", [LAR_DIFF_APART] = "apart", [LAR_DIFF_GROWN] = "grown", [LAR_DIFF_TEXT] = "text"};

static bool inside(lar_slice s, size_t at) { return at < s.len && ((unsigned char)s.ptr[at] & 0xC0) == 0x80; }

static lar_slice excerpt(const lar_diff *d, const lar_diff_end *e, bool behind) {
    lar_slice text = lar_buf_slice(&e->text);
    size_t from = d->offset > BEFORE_BYTES ? d->offset - BEFORE_BYTES : 0;
    size_t to = text.len - d->offset > BEHIND_BYTES ? d->offset + BEHIND_BYTES : text.len;
    while (inside(text, from)) from++;
    while (inside(text, to)) to--;
    return behind ? lar_slice_of(text.ptr + d->offset, to - d->offset)
                  : lar_slice_of(text.ptr + from, d->offset - from);
}

/* "tools", "system text", "message 4 (assistant)"; counted as in the body. */
static void where(const lar_diff_end *e, char out[WHERE_BYTES]) {
    static const char *const roles[] = {[LAR_ROLE_SYSTEM] = "system",
                                        [LAR_ROLE_USER] = "user",
                                        [LAR_ROLE_ASSISTANT] = "assistant",
                                        [LAR_ROLE_TOOL] = "tool",
                                        [LAR_ROLE_OTHER] = "other"};
    if (e->node == LAR_JSON_NONE) (void)snprintf(out, WHERE_BYTES, "the end of the prompt");
    else if (e->segment == LAR_JSON_NONE) (void)snprintf(out, WHERE_BYTES, "tools");
    else
        (void)snprintf(out, WHERE_BYTES, "segment %u of %u (%s)", e->segment + 1, e->view.segment_count,
                       roles[e->view.segments[e->segment].role]);
}

/* Ends with a NUL; "" if memory is out. */
static void pointer(const lar_diff_end *e, lar_buf *out) {
    lar_buf_init(out, POINTER_MAX);
    bool known = e->node != LAR_JSON_NONE && lar_json_pointer(&e->json, e->node, out) == LAR_OK;
    if (!known) out->len = 0;
    if (lar_buf_add(out, "", 1) != LAR_OK) out->len = 0;
}

/* A class by its name in small letters. */
static void class_name(const lar_diff *d, char out[WHERE_BYTES]) {
    const char *name = lar_volatile_row_of(d->class_id)->name;
    size_t n = 0;
    for (; name[n] && n < WHERE_BYTES - 1; n++)
        out[n] = (char)(name[n] >= 'A' && name[n] <= 'Z' ? name[n] | 0x20 : name[n]);
    out[n] = 0;
}

static const char *text_of(const lar_buf *b) { return b->len ? b->ptr : ""; }

/* -- text ----------------------------------------------------------------------------------------------- */

static void print_end(const lar_diff *d, const lar_diff_end *e, const char *name, FILE *to) {
    char place[WHERE_BYTES], shown[LAR_SHOWN_BYTES], before[LAR_SHOWN_BYTES];
    lar_buf p;
    pointer(e, &p);
    where(e, place);
    (void)fprintf(to, "%s  %s", name, place);
    if (p.len > 1) {
        lar_present_name(lar_slice_cstr(text_of(&p)), shown);
        (void)fprintf(to, ", %s, %s:%" PRIu64 ":%" PRIu64, shown, e->file, e->line, e->column);
    }
    lar_slice left = excerpt(d, e, false), right = excerpt(d, e, true);
    before[0] = shown[0] = 0;
    if (left.len) lar_present_name(left, before);
    if (right.len) lar_present_name(right, shown);
    (void)fprintf(to, "\n   ...%s >>> %s\n", before, right.len ? shown : "(end)");
    lar_buf_release(&p);
}

/* Both part in a message of the model, at the same place: two requests alone do not show what it wrote. */
static bool models_own(const lar_diff *d) {
    const lar_diff_end *a = &d->a, *b = &d->b;
    return a->node != LAR_JSON_NONE && b->node != LAR_JSON_NONE && a->segment == b->segment &&
           a->segment != LAR_JSON_NONE && a->view.segments[a->segment].role == LAR_ROLE_ASSISTANT &&
           b->view.segments[b->segment].role == LAR_ROLE_ASSISTANT;
}

static void print_mending(const lar_diff *d, FILE *to) {
    if (d->classed) {
        char name[WHERE_BYTES];
        class_name(d, name);
        (void)fprintf(to, "class  %s: %s\n", name, lar_volatile_row_of(d->class_id)->text);
    }
    if (!d->mended_by && models_own(d)) {
        (void)fputs("mended by  LR011 model_output, if the model's answer went through larder: it is sent as it was "
                    "answered\n",
                    to);
        return;
    }
    if (!d->mended_by) {
        (void)fprintf(to, "mended by  no rule%s\n",
                      d->mended_shared > d->shared ? " alone; together they share more" : "");
        return;
    }
    (void)fputs("mended by ", to);
    for (int r = 0; r < LAR_RULE_COUNT; r++) {
        if (!(d->mended_by >> r & 1)) continue;
        bool off = lar_rule_mode_of((lar_rule)r) == LAR_RULE_MODE_OFF;
        (void)fprintf(to, " %s %s%s", lar_rule_id((lar_rule)r), lar_rule_name((lar_rule)r),
                      off ? " (off by default)" : "");
    }
    (void)fprintf(to, ": once larder has seen both, %u of %u tokens are shared (%.1f%%)\n", d->mended_shared,
                  d->mended_tokens, d->mended_tokens ? 100.0 * d->mended_shared / d->mended_tokens : 0.0);
}

static void print_head(const lar_diff *d, FILE *to) {
    const lar_diff_end *ends[] = {&d->a, &d->b};
    for (int i = 0; i < 2; i++) {
        char file[LAR_SHOWN_BYTES];
        lar_present_name(lar_slice_cstr(ends[i]->file), file);
        (void)fprintf(to, "%c  %s:%" PRIu64 ", %s, %u tokens\n", 'A' + i, file, ends[i]->q.line,
                      lar_protocol_name(ends[i]->q.protocol), ends[i]->prompt.tokens);
    }
    (void)fprintf(to, "as %s prints them: %s first; tokens are estimates\n\n", d->provider->name,
                  d->provider->order == LAR_RENDER_TOOLS_FIRST ? "tools" : "system text");
}

static void print_apart(const lar_diff *d, FILE *to) {
    char shown[2][LAR_SHOWN_BYTES];
    const lar_json *trees[] = {&d->a.json, &d->b.json};
    for (int i = 0; i < 2; i++) {
        lar_slice v = lar_json_raw(trees[i], lar_json_get(trees[i], 0, d->member));
        lar_present_name(v.len > 100 ? lar_slice_of(v.ptr, 100) : v, shown[i]);
    }
    (void)fprintf(to, "/%s differs: %s and %s. Their caches are apart, so nothing is shared, whatever the texts are.\n",
                  d->member, shown[0], shown[1]);
    if (d->offset < d->a.text.len || d->offset < d->b.text.len) {
        (void)fprintf(to, "The texts part as well, behind %u tokens:\n", d->shared);
        print_end(d, &d->a, "A", to);
        print_end(d, &d->b, "B", to);
    }
}

void lar_diff_print(const lar_diff *d, FILE *to) {
    print_head(d, to);
    uint32_t tokens = d->b.prompt.tokens;
    switch (d->kind) {
    case LAR_DIFF_NONE:
        (void)fprintf(to, "The same prompt. What differs in the bodies, if anything does, no model reads.\n");
        return;
    case LAR_DIFF_APART: print_apart(d, to); return;
    case LAR_DIFF_GROWN:
        (void)fprintf(to, "%s goes on where %s ends: all %u tokens of the shorter one are shared.\n",
                      d->offset == d->a.text.len ? "B" : "A", d->offset == d->a.text.len ? "A" : "B", d->shared);
        break;
    case LAR_DIFF_TEXT:
        (void)fprintf(to, "They part at byte %zu: %u of B's %u tokens are shared (%.1f%%), %u are lost.\n", d->offset,
                      d->shared, tokens, tokens ? 100.0 * d->shared / tokens : 0.0, tokens - d->shared);
        break;
    }
    (void)fprintf(to, "Sent behind A, B would read %u tokens from %s's cache.\n\n", d->hit, d->provider->name);
    print_end(d, &d->a, "A", to);
    print_end(d, &d->b, "B", to);
    if (d->kind == LAR_DIFF_TEXT) print_mending(d, to);
}

/* -- JSON ------------------------------------------------------------------------------------------------- */

/* Excerpts come from valid UTF-8, but for lone surrogates, which no JSON writer may print. */
static void add_text(cJSON *to, const char *name, lar_slice s) {
    lar_buf b;
    lar_buf_init(&b, 1 << 12);
    if (lar_present_json(&b, s) == LAR_OK && lar_buf_add(&b, "", 1) == LAR_OK)
        cJSON_AddItemToObject(to, name, cJSON_CreateRaw(b.ptr));
    lar_buf_release(&b);
}

static void add_end(const lar_diff *d, const lar_diff_end *e, const char *name, cJSON *to) {
    char place[WHERE_BYTES];
    lar_buf p;
    cJSON *j = cJSON_AddObjectToObject(to, name);
    pointer(e, &p);
    where(e, place);
    add_text(j, "file", lar_slice_cstr(e->file));
    cJSON_AddNumberToObject(j, "record_line", (double)e->q.line);
    cJSON_AddNumberToObject(j, "tokens", e->prompt.tokens);
    cJSON_AddStringToObject(j, "where", place);
    if (e->node == LAR_JSON_NONE) {
        cJSON_AddNullToObject(j, "pointer");
    } else {
        add_text(j, "pointer", lar_slice_cstr(text_of(&p)));
        cJSON_AddNumberToObject(j, "line", (double)e->line);
        cJSON_AddNumberToObject(j, "column", (double)e->column);
    }
    add_text(j, "before", excerpt(d, e, false));
    add_text(j, "text", excerpt(d, e, true));
    lar_buf_release(&p);
}

lar_error lar_diff_print_json(const lar_diff *d, FILE *to) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "difference", kind_names[d->kind]);
    cJSON_AddStringToObject(j, "provider", d->provider->name);
    if (d->member) cJSON_AddStringToObject(j, "member", d->member);
    cJSON_AddNumberToObject(j, "offset", (double)d->offset);
    cJSON_AddNumberToObject(j, "shared_tokens", d->kind == LAR_DIFF_APART ? 0 : d->shared);
    cJSON_AddNumberToObject(j, "lost_tokens", d->b.prompt.tokens - (d->kind == LAR_DIFF_APART ? 0 : d->shared));
    cJSON_AddNumberToObject(j, "hit_tokens", d->hit);
    char name[WHERE_BYTES];
    if (d->classed) class_name(d, name);
    if (d->classed) cJSON_AddStringToObject(j, "class", name);
    else cJSON_AddNullToObject(j, "class");
    cJSON *rules = cJSON_AddArrayToObject(j, "mended_by");
    for (int r = 0; r < LAR_RULE_COUNT; r++)
        if (d->mended_by >> r & 1) cJSON_AddItemToArray(rules, cJSON_CreateString(lar_rule_id((lar_rule)r)));
    cJSON_AddBoolToObject(j, "in_model_output", d->kind == LAR_DIFF_TEXT && models_own(d));
    if (d->kind == LAR_DIFF_TEXT) {
        cJSON_AddNumberToObject(j, "mended_shared_tokens", d->mended_shared);
        cJSON_AddNumberToObject(j, "mended_tokens", d->mended_tokens);
    }
    add_end(d, &d->a, "a", j);
    add_end(d, &d->b, "b", j);
    return lar_present_document(j, to);
}
