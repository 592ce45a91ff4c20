/* The linter's engine on any requests: byte 0 picks the protocol and where bodies lie, then bodies, one a line.
 * 1. every finding lies inside the line of its request, and so does the other value;
 * 2. findings are sorted, of known rules, and say what and what to do;
 * 3. the same requests give the same findings;
 * 4. splices to mend a body fit it. */
#include "policies/lint.h"
#include "tests/fuzz/fuzz.h"

enum { BODIES_MAX = 12 };

typedef struct input {
    lar_slice bodies[BODIES_MAX];
    uint32_t count;
    lar_protocol protocol;
    lar_lint_origin origin;
} input;

static uint32_t characters(lar_slice s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

static void add(lar_lint *l, const input *in, uint32_t i) {
    lar_json j;
    lar_request_view v;
    lar_diag d;
    lar_arena arena;
    lar_json_init(&j);
    lar_arena_init(&arena, 16u << 20);
    if (lar_json_parse(&j, in->bodies[i], NULL, &d) == LAR_OK &&
        lar_request_view_read(&v, &j, in->protocol, &arena, &d) == LAR_OK) {
        lar_lint_request r = {.view = &v, .file = i & 1, .line = i + 1, .column = 1, .origin = in->origin};
        lar_splices fix;
        lar_error e = lar_lint_add(l, &r, &arena, &fix);
        FUZZ_CHECK(e == LAR_OK || fix.count == 0);
        for (uint32_t k = 0; k < fix.count; k++) {
            FUZZ_CHECK(fix.list[k].start <= fix.list[k].end && fix.list[k].end <= in->bodies[i].len);
            FUZZ_CHECK(k == 0 || fix.list[k].start >= fix.list[k - 1].end);
        }
    }
    lar_arena_release(&arena);
    lar_json_release(&j);
}

static void check_place(const input *in, const lar_lint_place *p) {
    FUZZ_CHECK(p->line >= 1 && p->line <= in->count);
    FUZZ_CHECK(p->file == ((p->line - 1) & 1));
    FUZZ_CHECK(p->request >= 1 && p->request <= in->count);
    FUZZ_CHECK(p->value.len <= LAR_LINT_VALUE_BYTES);
    if (in->origin != LAR_LINT_VERBATIM) return;
    FUZZ_CHECK(p->end_line == p->line && p->column >= 1 && p->column <= p->end_column);
    FUZZ_CHECK(p->end_column <= characters(in->bodies[p->line - 1]) + 1);
    FUZZ_CHECK(p->pointer.len == 0 || p->pointer.ptr[0] == '/');
}

static void check_findings(const input *in, const lar_lint_finding *f, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(f[i].rule < LAR_RULE_COUNT && f[i].what.len && f[i].advice.len && f[i].requests >= 1);
        check_place(in, &f[i].place);
        if (f[i].before.request) check_place(in, &f[i].before);
        if (i == 0) continue;
        const lar_lint_place *a = &f[i - 1].place, *b = &f[i].place;
        FUZZ_CHECK(a->file < b->file ||
                   (a->file == b->file && (a->line < b->line || (a->line == b->line && a->column <= b->column))));
    }
}

static lar_lint *run(const input *in, lar_lint_finding **f, uint32_t *count) {
    const lar_lint_options o = {.rules_off = lar_rules_off_default()};
    lar_lint *l = lar_lint_new(&o);
    if (!l) abort();
    for (uint32_t i = 0; i < in->count; i++) add(l, in, i);
    FUZZ_CHECK(lar_lint_end(l, f, count) == LAR_OK);
    return l;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES,
                                             LAR_PROTOCOL_COMPLETIONS};
    if (size < 2 || size > 1u << 18) return 0;
    input in = {.protocol = protocols[data[0] & 3], .origin = data[0] & 4 ? LAR_LINT_ENCLOSED : LAR_LINT_VERBATIM};
    lar_slice rest = lar_slice_of((const char *)data + 1, size - 1);
    while (in.count < BODIES_MAX && rest.len) {
        const char *nl = memchr(rest.ptr, '\n', rest.len);
        size_t n = nl ? (size_t)(nl - rest.ptr) : rest.len;
        in.bodies[in.count++] = lar_slice_of(rest.ptr, n);
        rest = lar_slice_of(rest.ptr + n + (nl ? 1 : 0), rest.len - n - (nl ? 1 : 0));
    }
    lar_lint_finding *a, *b;
    uint32_t na, nb;
    lar_lint *first = run(&in, &a, &na), *second = run(&in, &b, &nb);
    check_findings(&in, a, na);
    FUZZ_CHECK(na == nb);
    for (uint32_t i = 0; i < na; i++) {
        FUZZ_CHECK(lar_hash_eq(a[i].key, b[i].key) && a[i].state == b[i].state && a[i].tokens == b[i].tokens);
        FUZZ_CHECK(a[i].place.line == b[i].place.line && a[i].place.column == b[i].place.column);
    }
    lar_lint_free(first);
    lar_lint_free(second);
    return 0;
}
