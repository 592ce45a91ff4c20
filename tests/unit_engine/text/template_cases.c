/* Renders the templates of a file on its conversations and compares with what another implementation rendered.
 * usage: template_cases [--verbose] FILE... ; FILE as tests/clients/templates/oracle.mjs writes it:
 * {"conversations": [{variables}], "templates": [{"name", "source", "want": [text or null for an error]}]}
 * Exit status: 0 all equal, 1 not. Used by the suite on checked-in data and by the npm test on fresh data. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "engine/text/template.h"

typedef struct totals {
    unsigned equal, differ, both_fail, only_we_fail, only_they_fail;
} totals;

typedef struct run {
    const lar_json *j;
    bool verbose;
    totals all;
} run;

static void check(lar_error e, const char *what, const lar_diag *d) {
    if (!e) return;
    (void)fprintf(stderr, "%s: %s %s\n", what, lar_error_name(e), d ? d->text : "");
    exit(1);
}

static lar_slice decoded(const lar_json *j, uint32_t node, lar_buf *b) {
    b->len = 0;
    check(lar_json_decode(j, node, b), "a string of the file", NULL);
    return lar_buf_slice(b);
}

static void set(lar_template_values *v, const lar_json *j, uint32_t key, lar_buf *name, lar_buf *text) {
    lar_diag d = {.text = ""};
    uint32_t node = key + 1;
    check(lar_buf_add_slice(name, decoded(j, key, text)), "memory", NULL);
    check(lar_buf_add(name, "", 1), "memory", NULL);
    if (strcmp(name->ptr, "messages") == 0)
        check(lar_template_set_messages(v, lar_json_raw(j, node), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d), "messages", &d);
    else if (lar_json_is(j, node, LAR_JSON_STRING))
        check(lar_template_set_text(v, name->ptr, decoded(j, node, text), LAR_TEMPLATE_OWN), name->ptr, NULL);
    else check(lar_template_set_json(v, name->ptr, lar_json_raw(j, node), &d), name->ptr, &d);
    name->len = 0;
}

static lar_template_values *values_of(const lar_json *j, uint32_t object) {
    lar_template_values *v = lar_template_values_new(64 << 20);
    lar_buf name, text;
    lar_buf_init(&name, 256);
    lar_buf_init(&text, 64 << 20);
    if (!v) abort();
    for (uint32_t k = lar_json_first(j, object); k != LAR_JSON_NONE; k = lar_json_after(j, object, k))
        set(v, j, k, &name, &text);
    lar_template_set_now(v, 1933502400); /* 2031-04-09T12:00, as on the other side */
    lar_buf_release(&name);
    lar_buf_release(&text);
    return v;
}

/* Spans end where the text ends and tell neighbours apart. */
static void check_spans(const lar_template_text *t) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < t->span_count; i++) {
        if (t->spans[i].end <= end || (i && t->spans[i].origin == t->spans[i - 1].origin)) abort();
        end = t->spans[i].end;
    }
    if (end != t->bytes.len) abort();
}

static void show(const char *name, uint32_t number, lar_slice want, lar_slice got) {
    size_t at = 0;
    while (at < want.len && at < got.len && want.ptr[at] == got.ptr[at]) at++;
    size_t from = at > 60 ? at - 60 : 0;
    (void)printf("%s, conversation %u differs at byte %zu\n want ...%.*s\n got  ...%.*s\n", name, number, at,
                 (int)(want.len - from < 160 ? want.len - from : 160), want.ptr + from,
                 (int)(got.len - from < 160 ? got.len - from : 160), got.ptr + from);
}

static void one(run *r, const char *name, const lar_template *t, uint32_t number, const uint32_t nodes[2]) {
    lar_template_values *v = values_of(r->j, nodes[0]);
    lar_template_text out = {.span_count = 0};
    lar_diag d = {.text = ""};
    lar_buf text;
    lar_buf_init(&text, 64 << 20);
    lar_error e = lar_template_render(t, v, NULL, &out, &d);
    bool they = lar_json_is(r->j, nodes[1], LAR_JSON_STRING);
    check_spans(&out);
    if (e) {
        if (they) r->all.only_we_fail++;
        else r->all.both_fail++;
        if (they && r->verbose) (void)printf("%s, conversation %u: %s\n", name, number, d.text);
    } else if (!they) {
        r->all.only_they_fail++;
        if (r->verbose) (void)printf("%s, conversation %u: only the other side fails\n", name, number);
    } else {
        lar_slice want = decoded(r->j, nodes[1], &text), got = lar_buf_slice(&out.bytes);
        bool equal = lar_slice_eq(want, got);
        r->all.equal += equal;
        r->all.differ += !equal;
        if (!equal && r->verbose) show(name, number, want, got);
    }
    lar_template_text_release(&out);
    lar_template_values_free(v);
    lar_buf_release(&text);
}

static void one_template(run *r, uint32_t conversations, uint32_t node) {
    lar_buf name, source;
    lar_buf_init(&name, 4096);
    lar_buf_init(&source, 1 << 20);
    (void)decoded(r->j, lar_json_get(r->j, node, "name"), &name);
    check(lar_buf_add(&name, "", 1), "memory", NULL);
    lar_template *t;
    lar_diag d = {.text = ""};
    check(lar_template_parse(decoded(r->j, lar_json_get(r->j, node, "source"), &source), &t, &d), name.ptr, &d);
    totals before = r->all;
    uint32_t number = 0, wants = lar_json_get(r->j, node, "want"), want = lar_json_first(r->j, wants);
    for (uint32_t c = lar_json_first(r->j, conversations); c != LAR_JSON_NONE;
         c = lar_json_after(r->j, conversations, c)) {
        one(r, name.ptr, t, number++, (const uint32_t[]){c, want});
        if (want != LAR_JSON_NONE) want = lar_json_after(r->j, wants, want);
    }
    (void)printf("%-34s equal %u, both refuse %u, differ %u, only we refuse %u, only they refuse %u\n", name.ptr,
                 r->all.equal - before.equal, r->all.both_fail - before.both_fail, r->all.differ - before.differ,
                 r->all.only_we_fail - before.only_we_fail, r->all.only_they_fail - before.only_they_fail);
    lar_template_free(t);
    lar_buf_release(&name);
    lar_buf_release(&source);
}

static bool one_file(const char *path, bool verbose) {
    lar_buf body;
    lar_buf_init(&body, 1 << 30);
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    for (size_t n = 1; n;) {
        check(lar_buf_reserve(&body, 1 << 16), path, NULL);
        n = fread(body.ptr + body.len, 1, 1 << 16, f);
        body.len += n;
    }
    (void)fclose(f);
    lar_json j;
    lar_json_init(&j);
    lar_diag d = {.text = ""};
    const lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    check(lar_json_parse(&j, lar_buf_slice(&body), &limits, &d), path, &d);
    run r = {.j = &j, .verbose = verbose};
    uint32_t list = lar_json_get(&j, 0, "templates"), conversations = lar_json_get(&j, 0, "conversations");
    for (uint32_t t = lar_json_first(&j, list); t != LAR_JSON_NONE; t = lar_json_after(&j, list, t))
        one_template(&r, conversations, t);
    (void)printf("all: equal %u, both refuse %u, differ %u, only we refuse %u, only they refuse %u\n", r.all.equal,
                 r.all.both_fail, r.all.differ, r.all.only_we_fail, r.all.only_they_fail);
    lar_json_release(&j);
    lar_buf_release(&body);
    return r.all.equal && !r.all.differ && !r.all.only_we_fail && !r.all.only_they_fail;
}

int main(int argc, char **argv) {
    bool verbose = argc > 1 && strcmp(argv[1], "--verbose") == 0, good = argc > 1;
    for (int i = verbose ? 2 : 1; i < argc; i++) good = one_file(argv[i], verbose) && good;
    return good ? 0 : 1;
}
