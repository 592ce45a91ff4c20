/* What the checks of one request and of two say, as sights (LR015, LR101 to LR105).
 * Flow: lint.c -> here -> checks.h, history.h -> lint_sight.c. Never blocks; memory from the request's arena.
 * Invariants: 1. a place in a message belongs to its conversation, a field beside them to the template. 2. a suspicion
 * that stands still in the next request is none, but for a placeholder that nobody fills in. */
#include "policies/checks.h"
#include "policies/history.h"
#include "policies/lint_state.h"

enum { POINTER_BYTES_MAX = 4096 };

/* The value that `pointer` names in another tree; NONE if there is none. */
static uint32_t node_at(const lar_json *j, lar_slice pointer) {
    uint32_t node = 0;
    for (size_t i = 0; i < pointer.len && node != LAR_JSON_NONE;) {
        char name[128];
        size_t n = 0;
        uint32_t index = 0;
        for (i++; i < pointer.len && pointer.ptr[i] != '/'; i++) {
            char c = pointer.ptr[i];
            if (c == '~' && i + 1 < pointer.len) c = pointer.ptr[++i] == '1' ? '/' : '~';
            if (n + 1 < sizeof name) name[n++] = c;
            index = c >= '0' && c <= '9' && index < 1u << 24 ? index * 10 + (uint32_t)(c - '0') : 1u << 25;
        }
        name[n] = 0;
        node = lar_json_is(j, node, LAR_JSON_ARRAY) ? lar_json_at(j, node, index) : lar_json_get(j, node, name);
    }
    return node;
}

/* The bytes that a note speaks of, decoded where they lie inside a string. */
static lar_error value_of(lar_lint_run *run, const lar_note *note, lar_slice *out) {
    const lar_json_node *n = &run->json->nodes[note->node];
    if (note->start <= n->start || note->end > n->end) return lar_lint_value_of(run, run->json, note->node, out);
    lar_slice raw = lar_slice_of(run->json->body.ptr + note->start, note->end - note->start);
    char *text = lar_arena_alloc(run->arena, raw.len + 1);
    if (!text) return LAR_NO_MEMORY;
    *out = lar_slice_of(text, lar_text_decode(raw, text));
    return LAR_OK;
}

static lar_error pointer_of(lar_lint_run *run, uint32_t node, lar_slice *out) {
    lar_buf b;
    lar_buf_init(&b, POINTER_BYTES_MAX);
    lar_error e = lar_json_pointer(run->json, node, &b);
    *out = lar_arena_copy(run->arena, e || !b.len ? LAR_SLICE("") : lar_buf_slice(&b));
    lar_buf_release(&b);
    if (e == LAR_LIMIT) e = LAR_OK;
    return !e && !out->ptr ? LAR_NO_MEMORY : e;
}

static bool is_in_messages(const lar_lint_run *run, uint32_t node) {
    const lar_request_view *v = run->view;
    uint32_t list = v->members[v->protocol == LAR_PROTOCOL_RESPONSES ? LAR_MEMBER_INPUT : LAR_MEMBER_MESSAGES];
    return list != LAR_JSON_NONE && node >= list && node < run->json->nodes[list].next;
}

static lar_error before_of(lar_lint_run *run, lar_slice pointer, lar_lint_place *place, bool *found) {
    uint32_t node = node_at(&run->before_json, pointer);
    *found = node != LAR_JSON_NONE;
    if (!*found) return LAR_OK;
    const lar_json_node *n = &run->before_json.nodes[node];
    lar_lint_spot spot = {&run->before_json, run->before, node, n->start, n->end, {0}};
    lar_error e = lar_lint_value_of(run, &run->before_json, node, &spot.value);
    return e ? e : lar_lint_place_of(run->l, &spot, place);
}

typedef enum source { OF_ONE, OF_PAIR } source;

static lar_error see(lar_lint_run *run, const lar_note *note, source from) {
    lar_slice pointer;
    lar_lint_place before;
    bool refused = note->severity == LAR_SEVERITY_ERROR;
    lar_lint_seen seen = {.rule = note->rule,
                          .severity = note->severity,
                          .node = note->node,
                          .start = note->start,
                          .end = note->end,
                          .what = note->what,
                          .advice = note->advice,
                          .answer = note->answer,
                          .suspect = true,
                          .standing = note->rule == LAR_RULE_LR101 || refused,
                          .edited = refused || from == OF_PAIR};
    while (seen.what.len && seen.what.ptr[seen.what.len - 1] == '.') seen.what.len--;
    lar_error e = value_of(run, note, &seen.value);
    if (!e) e = pointer_of(run, note->node, &pointer);
    if (e) return e;
    uint64_t conversation = is_in_messages(run, note->node) ? run->now->opening : 0;
    seen.group = lar_hash_chain(lar_hash_of(LAR_SLICE("note")), lar_slice_cstr(lar_rule_id(note->rule)));
    seen.key = lar_hash_chain(lar_hash_chain(seen.group, pointer),
                              lar_slice_of((const char *)&conversation, sizeof conversation));
    if (note->start > run->json->nodes[note->node].start) seen.key = lar_hash_chain(seen.key, seen.value);
    bool found = false;
    if (from == OF_PAIR) e = before_of(run, pointer, &before, &found);
    if (found) seen.before = &before;
    return e ? e : lar_lint_see(run, &seen);
}

/* A history that no provider refuses (a call with the id of an earlier one, say) costs nothing. */
static bool is_harmless(const lar_lint_run *run, const lar_note *note) {
    return note->rule == LAR_RULE_LR015 && note->severity < LAR_SEVERITY_ERROR &&
           !lar_json_is(run->json, note->node, LAR_JSON_STRING);
}

static lar_error see_all(lar_lint_run *run, const lar_notes *notes, source from) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < notes->count && !e; i++) {
        if (!is_harmless(run, &notes->list[i])) e = see(run, &notes->list[i], from);
    }
    return e;
}

lar_error lar_lint_notes(lar_lint_run *run) {
    lar_notes notes;
    lar_slice provider = lar_slice_cstr(run->cost.provider->name);
    lar_notes_init(&notes, run->arena);
    lar_error e = lar_check_request(run->view, provider, &notes);
    if (!e) e = lar_history_check(run->view, provider, &notes);
    if (e == LAR_LIMIT) e = LAR_OK; /* more calls than are looked at: the rest is still said */
    if (!e) e = see_all(run, &notes, OF_ONE);
    if (e || !run->before) return e;
    e = lar_lint_before_read(run);
    lar_notes_init(&notes, run->arena);
    if (!e) e = lar_check_pair(&run->before_view, run->view, provider, &notes);
    return e ? e : see_all(run, &notes, OF_PAIR);
}
