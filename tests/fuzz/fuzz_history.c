/* Histories of tool calls, whatever they look like: byte 0 picks the protocol, then up to two bodies, one a line.
 * 1. what is repaired parses, and is not broken any more: twice equals once;
 * 2. the model's messages are all there, byte for byte, in their order;
 * 3. a history that is not broken has no edit, and one that is has some;
 * 4. notes of all checks point into the body, and say something;
 * 5. marks set on the repaired body (LR014) leave a body that parses, with at most four of them. */
#include "base/splice.h"
#include "policies/canon.h"
#include "policies/checks.h"
#include "policies/history.h"
#include "tests/fuzz/fuzz.h"

typedef struct body {
    lar_json j;
    lar_request_view v;
    bool read;
} body;

static void read_body(body *b, lar_slice text, lar_protocol p, lar_arena *arena) {
    lar_diag d;
    lar_json_init(&b->j);
    b->read =
        lar_json_parse(&b->j, text, NULL, &d) == LAR_OK && lar_request_view_read(&b->v, &b->j, p, arena, &d) == LAR_OK;
}

static lar_slice apply(const lar_splices *edits, lar_slice text, lar_arena *arena) {
    struct iovec *iov = lar_arena_alloc(arena, (lar_splices_iov_max(edits) + 1) * sizeof *iov);
    size_t len = lar_splices_length(edits, text.len), at = 0;
    char *out = lar_arena_alloc(arena, len + 1);
    if (!iov || !out) return (lar_slice){NULL, 0};
    uint32_t n = lar_splices_iov(edits, text, iov);
    for (uint32_t i = 0; i < n; at += iov[i++].iov_len) memcpy(out + at, iov[i].iov_base, iov[i].iov_len);
    FUZZ_CHECK(at == len);
    return lar_slice_of(out, len);
}

static void check_notes(const lar_notes *notes, const lar_json *j) {
    for (uint32_t i = 0; i < notes->count; i++) {
        const lar_note *n = &notes->list[i];
        FUZZ_CHECK(n->node < j->count && n->start < n->end && n->end <= j->body.len);
        FUZZ_CHECK(n->what.len && n->advice.len && n->rule < LAR_RULE_COUNT);
    }
}

static void check_all(const body *b, const body *before, lar_arena *arena) {
    static const char *const providers[] = {"", "openai", "deepseek", "anthropic"};
    for (size_t i = 0; i < sizeof providers / sizeof *providers; i++) {
        lar_slice provider = lar_slice_cstr(providers[i]);
        lar_notes notes;
        lar_notes_init(&notes, arena);
        lar_error e = lar_history_check(&b->v, provider, &notes);
        if (!e) e = lar_check_request(&b->v, provider, &notes);
        if (!e && before->read) e = lar_check_pair(&before->v, &b->v, provider, &notes);
        FUZZ_CHECK(e == LAR_OK || e == LAR_LIMIT || e == LAR_NO_MEMORY);
        check_notes(&notes, &b->j);
    }
}

/* The model's messages of both, side by side. */
static void check_model(const body *a, const body *b) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < a->v.segment_count; i++) {
        if (a->v.segments[i].role != LAR_ROLE_ASSISTANT) continue;
        while (k < b->v.segment_count && b->v.segments[k].role != LAR_ROLE_ASSISTANT) k++;
        FUZZ_CHECK(k < b->v.segment_count);
        lar_slice was = lar_json_raw(&a->j, a->v.segments[i].node), is = lar_json_raw(&b->j, b->v.segments[k].node);
        FUZZ_CHECK(lar_slice_eq(was, is));
        k++;
    }
    while (k < b->v.segment_count) FUZZ_CHECK(b->v.segments[k++].role != LAR_ROLE_ASSISTANT);
}

static void check_marks(const body *b, lar_arena *arena) {
    const lar_canon_options options = {.mode = LAR_CANON_ON,
                                       .rules_off = lar_rules_off_default() & ~(1ull << LAR_RULE_LR014)};
    const lar_canon_in in = {.view = &b->v, .options = &options};
    lar_canon_out out;
    if (lar_canon_run(&in, arena, &out) != LAR_OK || out.splices.count == 0) return;
    uint32_t marks = 0;
    for (uint32_t i = 0; i < out.finding_count; i++) marks += out.findings[i].rule == LAR_RULE_LR014;
    FUZZ_CHECK(marks <= 4);
    body marked;
    lar_slice text = apply(&out.splices, b->j.body, arena);
    if (!text.ptr) return;
    read_body(&marked, text, b->v.protocol, arena);
    FUZZ_CHECK(marked.read && marked.v.segment_count == b->v.segment_count);
    check_model(b, &marked);
    lar_json_release(&marked.j);
}

static void mend(const body *b, lar_arena *arena) {
    lar_splices edits;
    bool found;
    lar_error e = lar_rule_tool_history(&b->v, arena, &edits, &found);
    FUZZ_CHECK(e == LAR_OK || e == LAR_LIMIT || e == LAR_NO_MEMORY);
    FUZZ_CHECK(e == LAR_OK ? found == (edits.count > 0) : edits.count == 0);
    check_marks(b, arena);
    if (edits.count == 0) return;
    lar_slice text = apply(&edits, b->j.body, arena);
    if (!text.ptr) return;
    body again;
    read_body(&again, text, b->v.protocol, arena);
    FUZZ_CHECK(again.read);
    check_model(b, &again);
    e = lar_rule_tool_history(&again.v, arena, &edits, &found);
    FUZZ_CHECK(e != LAR_OK || (!found && edits.count == 0));
    check_marks(&again, arena);
    lar_json_release(&again.j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 1u << 18) return 0;
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES,
                                             LAR_PROTOCOL_MESSAGES};
    lar_protocol p = protocols[data[0] & 3];
    lar_slice first = lar_slice_of((const char *)data + 1, size - 1), second = {NULL, 0};
    const char *nl = memchr(first.ptr, '\n', first.len);
    if (nl) {
        second = lar_slice_of(nl + 1, first.len - (size_t)(nl - first.ptr) - 1);
        first.len = (size_t)(nl - first.ptr);
    }
    lar_arena arena;
    lar_arena_init(&arena, 64u << 20);
    body none = {.read = false}, a, b = {.read = false};
    read_body(&a, first, p, &arena);
    if (a.read) {
        check_all(&a, &none, &arena);
        mend(&a, &arena);
    }
    if (second.len) {
        read_body(&b, second, p, &arena);
        if (b.read) check_all(&b, &a, &arena);
        lar_json_release(&b.j);
    }
    lar_json_release(&a.j);
    lar_arena_release(&arena);
    return 0;
}
