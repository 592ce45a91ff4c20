/* The rules on any traffic: byte 0 picks protocol and mode, then bodies, one a line, through one memory.
 * 1. what is sent parses, and holds as many segments and tools as what came;
 * 2. unknown segments go on byte for byte, as do all other members; so do model output and tool results, or they
 *    mean the same and differ in nothing but the form of their parts (a line with > in front is an answer to the
 *    request before it);
 * 3. a user's words are all there, in their order, whatever was appended, but for values that moved;
 * 4. report mode edits nothing; an error leaves nothing to edit;
 * 5. clocks found in a text lie inside it, whatever is left of the budget;
 * 6. of the tools, the same places carry cache_control, and all together have the same bytes, blanks and commas aside.
 * Memory: a small table per input, with values that can be damaged (byte 0, high bit). */
#include "base/splice.h"
#include "policies/canon.h"
#include "policies/output.h"
#include "policies/rules/clock_text.h"
#include "policies/text.h"
#include "tests/fuzz/fuzz.h"

enum { SLOTS = 512, BODIES_MAX = 16, VALUE_MAX = 4096 };

typedef struct table {
    lar_hash key[SLOTS];
    lar_slice value[SLOTS];
    lar_arena arena;
    bool damaged;
} table;

static lar_error get(void *ctx, const lar_hash *key, lar_buf *out) {
    const table *t = ctx;
    uint64_t i = lar_hash_low(*key) % SLOTS;
    if (!t->value[i].ptr || !lar_hash_eq(t->key[i], *key)) return LAR_NOT_FOUND;
    size_t len = t->damaged ? t->value[i].len * (i % 7) / 6 : t->value[i].len;
    return lar_buf_add(out, t->value[i].ptr, len);
}

static void put(void *ctx, const lar_hash *key, lar_slice value) {
    table *t = ctx;
    uint64_t i = lar_hash_low(*key) % SLOTS;
    lar_slice copy = lar_arena_copy(&t->arena, value);
    if (!copy.ptr) return;
    t->key[i] = *key;
    t->value[i] = copy;
}

static lar_slice flat(const lar_json *j, uint32_t node, lar_arena *arena) {
    lar_slice raw = lar_json_inner(j, node);
    char *out = lar_arena_alloc(arena, raw.len + 1);
    if (!out) return (lar_slice){NULL, 0};
    size_t n = lar_text_decode(raw, out), k = 0;
    for (size_t i = 0; i < n; i++) {
        if (n - i >= 3 && memcmp(out + i, "\xEF\xBB\xBF", 3) == 0) i += 2;
        else if (out[i] != ' ' && out[i] != '\t' && out[i] != '\r' && out[i] != '\n') out[k++] = out[i];
    }
    return lar_slice_of(out, k);
}

/* Flat: the pieces of `is` between pointers stand in `was` in their order, the first at its start; the last may go on
 * with a block. */
static bool words_kept(lar_slice was, lar_slice is) {
    static const char pointer[] = "(seethelatest<runtime-context>)", block[] = "<runtime-contextnote=";
    size_t at = 0;
    for (bool first = true;; first = false) {
        const char *p = memmem(is.ptr, is.len, pointer, sizeof pointer - 1);
        const char *b = p ? NULL : memmem(is.ptr, is.len, block, sizeof block - 1);
        size_t n = p ? (size_t)(p - is.ptr) : b ? (size_t)(b - is.ptr) : is.len;
        const char *found = n ? memmem(was.ptr + at, was.len - at, is.ptr, n) : was.ptr + at;
        if (!found || (first && found != was.ptr)) return false;
        at = (size_t)(found - was.ptr) + n;
        if (!p) return true;
        n += sizeof pointer - 1;
        is = lar_slice_of(is.ptr + n, is.len - n);
    }
}

static void check_user(const lar_request_view *a, const lar_request_view *b, uint32_t i, lar_arena *arena) {
    uint32_t x = a->segments[i].content, y = b->segments[i].content;
    FUZZ_CHECK(lar_json_kind_of(a->json, x) == lar_json_kind_of(b->json, y));
    if (!lar_json_is(a->json, x, LAR_JSON_STRING)) return;
    lar_slice was = flat(a->json, x, arena), is = flat(b->json, y, arena);
    FUZZ_CHECK(!is.ptr || lar_slice_starts(is, was) || words_kept(was, is));
}

/* The segment's bytes without those of its parts. */
static lar_slice around(const lar_output_message *m, uint32_t node, lar_arena *arena) {
    lar_slice raw = lar_json_raw(m->json, node);
    uint32_t start = m->json->nodes[node].start;
    char *out = lar_arena_alloc(arena, raw.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < raw.len && out; i++) {
        bool inside = false;
        for (uint32_t k = 0; k < m->count; k++) {
            const lar_json_node *p = &m->json->nodes[m->parts[k].node];
            inside = inside || (start + i >= p->start && start + i < p->end);
        }
        if (!inside) out[n++] = raw.ptr[i];
    }
    return lar_slice_of(out, n);
}

static lar_output_core core_of(lar_output_message *m, const lar_request_view *v, uint32_t i, lar_arena *arena) {
    lar_json_forms f;
    uint32_t work = 0;
    *m = (lar_output_message){.json = v->json, .protocol = v->protocol, .role = v->segments[i].role, .arena = arena};
    m->room = LAR_OUTPUT_PARTS_MAX;
    m->parts = lar_arena_alloc(arena, LAR_OUTPUT_PARTS_MAX * sizeof *m->parts);
    if (!m->parts) abort();
    lar_json_forms_init(&f, arena);
    lar_output_read(m, v->segments[i].node);
    for (uint32_t k = 0; k < m->count; k++) {
        lar_slice text = lar_json_inner(v->json, m->parts[k].node);
        char *to = lar_arena_alloc(arena, text.len + 1);
        if (!to) abort();
        if (m->parts[k].kind == LAR_OUTPUT_INPUT) text = lar_json_raw(v->json, m->parts[k].node);
        else text = lar_slice_of(to, lar_text_decode(text, to));
        if (lar_output_hash(&f, v->json, &m->parts[k], text, &work) != LAR_OK) abort();
    }
    lar_json_forms_release(&f);
    return lar_output_core_of(m->parts, m->count);
}

static void check_written(const lar_request_view *a, const lar_request_view *b, uint32_t i, bool longer) {
    lar_slice was = lar_json_raw(a->json, a->segments[i].node), is = lar_json_raw(b->json, b->segments[i].node);
    if (lar_slice_eq(was, is)) return;
    FUZZ_CHECK(a->segments[i].role == LAR_ROLE_ASSISTANT || a->segments[i].role == LAR_ROLE_TOOL);
    lar_arena arena;
    lar_output_message x, y;
    lar_arena_init(&arena, 256u << 20);
    lar_output_core p = core_of(&x, a, i, &arena), q = core_of(&y, b, i, &arena);
    FUZZ_CHECK(lar_hash_eq(p.keyed, q.keyed) && lar_hash_eq(p.free, q.free) && x.count == y.count);
    lar_slice before = around(&x, a->segments[i].node, &arena), after = around(&y, b->segments[i].node, &arena);
    if (!longer) FUZZ_CHECK(lar_slice_eq(before, after)); /* else reasoning was put back */
    else FUZZ_CHECK(before.len > 0 && lar_slice_starts(after, lar_slice_of(before.ptr, before.len - 1)));
    lar_arena_release(&arena);
}

static uint32_t member(const lar_json *j, lar_slice raw_key) {
    for (uint32_t k = lar_json_first(j, 0); k != LAR_JSON_NONE; k = lar_json_after(j, 0, k)) {
        if (lar_slice_eq(lar_json_raw(j, k), raw_key)) return k + 1;
    }
    return LAR_JSON_NONE;
}

static void check_members(const lar_json *a, const lar_json *b) {
    static const char *const edited[] = {"messages", "system", "input", "instructions", "tools"};
    FUZZ_CHECK(a->nodes[0].count == b->nodes[0].count);
    for (uint32_t k = lar_json_first(a, 0); k != LAR_JSON_NONE; k = lar_json_after(a, 0, k)) {
        bool free_to_change = false;
        for (size_t e = 0; e < sizeof edited / sizeof *edited; e++)
            free_to_change |= lar_json_eq(a, k, lar_slice_cstr(edited[e]));
        uint32_t twin = member(b, lar_json_raw(a, k));
        FUZZ_CHECK(twin != LAR_JSON_NONE);
        if (free_to_change) continue;
        uint32_t first = member(a, lar_json_raw(a, k)); /* of twins, the first is compared with the first */
        FUZZ_CHECK(lar_slice_eq(lar_json_raw(a, first), lar_json_raw(b, twin)));
    }
}

static bool marked(const lar_json *j, uint32_t tool) { return lar_json_get(j, tool, "cache_control") != LAR_JSON_NONE; }

/* Members and tools change places, nothing else; a moved marker needs a comma elsewhere. */
static void check_bytes(lar_slice a, lar_slice b) {
    int32_t count[256] = {0};
    for (size_t i = 0; i < a.len; i++) count[(uint8_t)a.ptr[i]]++;
    for (size_t i = 0; i < b.len; i++) count[(uint8_t)b.ptr[i]]--;
    for (int i = '!'; i < 256; i++) FUZZ_CHECK(i == ',' || count[i] == 0);
}

static void check_tools(const lar_json *a, uint32_t tools_a, const lar_json *b, uint32_t tools_b) {
    FUZZ_CHECK(a->nodes[tools_a].count == b->nodes[tools_b].count);
    uint32_t x = lar_json_first(a, tools_a), y = lar_json_first(b, tools_b);
    for (; x != LAR_JSON_NONE; x = lar_json_after(a, tools_a, x), y = lar_json_after(b, tools_b, y))
        FUZZ_CHECK(marked(a, x) == marked(b, y));
    check_bytes(lar_json_raw(a, tools_a), lar_json_raw(b, tools_b));
}

static void check_sent(const lar_request_view *a, lar_slice sent, const lar_canon_out *out, lar_arena *arena) {
    lar_json j;
    lar_request_view b;
    lar_diag d;
    lar_json_init(&j);
    FUZZ_CHECK(lar_json_parse(&j, sent, NULL, &d) == LAR_OK);
    FUZZ_CHECK(lar_request_view_read(&b, &j, a->protocol, arena, &d) != LAR_JSON_SHAPE);
    FUZZ_CHECK(a->segment_count == b.segment_count);
    for (uint32_t i = 0; i < a->segment_count; i++) {
        FUZZ_CHECK(a->segments[i].role == b.segments[i].role);
        if (a->segments[i].role == LAR_ROLE_USER) check_user(a, &b, i, arena);
        else if (a->segments[i].role != LAR_ROLE_SYSTEM)
            check_written(a, &b, i, out->rules_fired >> LAR_RULE_LR013 & 1);
    }
    if (a->tools != LAR_JSON_NONE) check_tools(a->json, a->tools, &j, b.tools);
    check_members(a->json, &j);
    lar_json_release(&j);
}

static void check_clocks(lar_slice text) {
    lar_clock_span s[16];
    lar_clock_budget budget = {text.len % 3 ? LAR_CLOCK_BYTES_MAX : (uint32_t)text.len / 2, LAR_CLOCK_NUMBERS_MAX};
    uint32_t n = lar_clock_scan(text, s, 16, &budget);
    for (uint32_t i = 0; i < n; i++) {
        FUZZ_CHECK(s[i].label_end <= s[i].start && s[i].start < s[i].end && s[i].end <= text.len);
        FUZZ_CHECK(i == 0 || s[i].start >= s[i - 1].end);
        (void)lar_clock_shows(&s[i].stamp, 1933485342000);
    }
}

/* An answer to the request before it. */
static void one_answer(table *t, lar_slice body, lar_protocol p, const lar_hash at[2]) {
    lar_json j;
    lar_arena arena;
    const lar_memory_ops ops = {t, get, put};
    lar_json_init(&j);
    lar_arena_init(&arena, 4u << 20);
    const lar_output_memory m = {
        .scope = at[0], .context = at[1], .forms = &ops, .texts = &ops, .arena = &arena, .reasoning = true};
    if (lar_json_parse(&j, body, NULL, NULL) == LAR_OK) lar_output_remember_body(&j, p, &m);
    lar_arena_release(&arena);
    lar_json_release(&j);
}

/* `at`: scope and context of this request, for its answer. */
static void one_body(table *t, lar_slice body, lar_protocol p, lar_canon_mode mode, lar_hash at_place[2]) {
    lar_json j;
    lar_request_view v;
    lar_diag d;
    lar_arena arena;
    lar_json_init(&j);
    lar_arena_init(&arena, 4u << 20);
    const lar_memory_ops ops = {t, get, put};
    const lar_canon_options options = {.mode = mode};
    lar_canon_out out;
    if (lar_json_parse(&j, body, NULL, &d) == LAR_OK && lar_request_view_read(&v, &j, p, &arena, &d) == LAR_OK) {
        lar_canon_in in = {.view = &v, .options = &options, .memory = &ops, .texts = &ops, .now_ms = 1933485342000};
        lar_error e = lar_canon_run(&in, &arena, &out);
        FUZZ_CHECK(!(e || mode != LAR_CANON_ON) || out.splices.count == 0);
        if (!e) lar_canon_commit(&out, &ops);
        at_place[0] = out.scope;
        at_place[1] = out.context;
        struct iovec *iov = lar_arena_alloc(&arena, (lar_splices_iov_max(&out.splices) + 1) * sizeof *iov);
        size_t len = lar_splices_length(&out.splices, body.len), at = 0;
        char *sent = lar_arena_alloc(&arena, len + 1);
        if (iov && sent) {
            uint32_t n = lar_splices_iov(&out.splices, body, iov);
            for (uint32_t i = 0; i < n; at += iov[i++].iov_len) memcpy(sent + at, iov[i].iov_base, iov[i].iov_len);
            FUZZ_CHECK(at == len && out.prefix_known_bytes <= len);
            check_sent(&v, lar_slice_of(sent, len), &out, &arena);
        }
    }
    lar_arena_release(&arena);
    lar_json_release(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 1u << 20) return 0;
    table *t = calloc(1, sizeof *t);
    if (!t) abort();
    lar_arena_init(&t->arena, 4u << 20);
    t->damaged = data[0] & 0x80;
    static const lar_protocol protocols[] = {LAR_PROTOCOL_CHAT, LAR_PROTOCOL_MESSAGES, LAR_PROTOCOL_RESPONSES,
                                             LAR_PROTOCOL_CHAT};
    lar_canon_mode mode = (data[0] & 4) ? LAR_CANON_REPORT : LAR_CANON_ON;
    lar_slice rest = lar_slice_of((const char *)data + 1, size - 1);
    lar_hash at_place[2] = {{{0}}, {{0}}};
    check_clocks(rest);
    for (int k = 0; k < BODIES_MAX && rest.len; k++) {
        const char *nl = memchr(rest.ptr, '\n', rest.len);
        size_t n = nl ? (size_t)(nl - rest.ptr) : rest.len;
        lar_protocol p = protocols[data[0] & 3];
        if (n && rest.ptr[0] == '>') one_answer(t, lar_slice_of(rest.ptr + 1, n - 1), p, at_place);
        else one_body(t, lar_slice_of(rest.ptr, n), p, mode, at_place);
        rest = lar_slice_of(rest.ptr + n + (nl ? 1 : 0), rest.len - n - (nl ? 1 : 0));
    }
    lar_arena_release(&t->arena);
    free(t);
    return 0;
}
