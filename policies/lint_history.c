/* A conversation's messages against those of its earlier request: forms (LR004, LR011, LR012) and LR106.
 * Flow: lint.c -> here, only where something differs -> lint_sight.c. Never blocks; memory from the request's arena.
 * Invariants: 1. messages that mean the same are a matter of form, never of history. 2. a conversation that goes on
 * another way from some message on (an edit, a new answer) is no finding: what was rewritten has later messages, said
 * by the model, that stayed. */
#include "policies/lint_state.h"

enum { NODES_MAX = 4096 /* of a message, to look inside */, PAIRS_MAX = 16 << 20 /* of messages, to compare */ };

static lar_hash key_of(const char *rule, const lar_lint_run *run) {
    return lar_hash_chain(lar_hash_chain(lar_hash_of(LAR_SLICE("history")), lar_slice_cstr(rule)),
                          lar_slice_of((const char *)&run->now->opening, sizeof run->now->opening));
}

static bool reads_alike(const lar_lint_run *run, uint32_t x, uint32_t y) {
    lar_lint_same a, b;
    if (lar_lint_hash(run->json, x, LAR_LINT_ORDER_ARGUMENTS, run->arena, &a)) return true;
    if (lar_lint_hash(&run->before_json, y, LAR_LINT_ORDER_ARGUMENTS, run->arena, &b)) return true;
    return a.strict == b.strict;
}

typedef struct twins {
    uint32_t now, before; /* nodes */
} twins;

static uint32_t member_like(const lar_json *a, uint32_t key, const lar_json *b, uint32_t object) {
    for (uint32_t m = lar_json_first(b, object); m != LAR_JSON_NONE; m = lar_json_after(b, object, m)) {
        if (lar_slice_eq(lar_json_raw(a, key), lar_json_raw(b, m))) return m + 1;
    }
    return LAR_JSON_NONE;
}

/* The first child that the model reads differently; false if there is none below. */
static bool step_down(const lar_lint_run *run, twins *t) {
    const lar_json *a = run->json, *b = &run->before_json;
    if (a->nodes[t->now].next - t->now > NODES_MAX || b->nodes[t->before].next - t->before > NODES_MAX) return false;
    if (lar_json_is(a, t->now, LAR_JSON_OBJECT) && lar_json_is(b, t->before, LAR_JSON_OBJECT)) {
        for (uint32_t k = lar_json_first(a, t->now); k != LAR_JSON_NONE; k = lar_json_after(a, t->now, k)) {
            uint32_t m = member_like(a, k, b, t->before);
            if (m == LAR_JSON_NONE || reads_alike(run, k + 1, m)) continue;
            *t = (twins){k + 1, m};
            return true;
        }
    } else if (lar_json_is(a, t->now, LAR_JSON_ARRAY) && lar_json_is(b, t->before, LAR_JSON_ARRAY)) {
        uint32_t k = lar_json_first(a, t->now), m = lar_json_first(b, t->before);
        for (; k != LAR_JSON_NONE && m != LAR_JSON_NONE;
             k = lar_json_after(a, t->now, k), m = lar_json_after(b, t->before, m)) {
            if (reads_alike(run, k, m)) continue;
            *t = (twins){k, m};
            return true;
        }
    }
    return false;
}

static lar_error see(lar_lint_run *run, lar_lint_seen *seen, twins t) {
    lar_slice now, then, value;
    lar_error e = lar_lint_value_of(run, run->json, t.now, &now);
    if (!e) e = lar_lint_value_of(run, &run->before_json, t.before, &then);
    if (e) return e;
    (void)lar_lint_stretch(now, then, &seen->value, &value);
    const lar_json_node *n = &run->json->nodes[t.now], *b = &run->before_json.nodes[t.before];
    lar_lint_spot spot = {&run->before_json, run->before, t.before, b->start, b->end, value};
    lar_lint_place before;
    e = lar_lint_place_of(run->l, &spot, &before);
    if (e) return e;
    seen->node = t.now, seen->start = n->start, seen->end = n->end;
    seen->before = &before;
    seen->severity = LAR_SEVERITY_WARNING;
    seen->group = lar_hash_of(lar_slice_cstr(lar_rule_id(seen->rule)));
    seen->key = key_of(lar_rule_id(seen->rule), run);
    return lar_lint_see(run, seen);
}

/* The same message in another form. */
static lar_error form_changed(lar_lint_run *run, uint32_t i) {
    lar_role role = run->now->messages[i].role;
    lar_lint_seen seen = {.rule = LAR_RULE_LR004,
                          .what = LAR_SLICE("form of a message: BOM, line ends, blanks at the end"),
                          .advice = LAR_SLICE("Send a message as history in the bytes in which it was first sent.")};
    if (role == LAR_ROLE_ASSISTANT) {
        seen.rule = lar_rule_find(LAR_SLICE("LR011"));
        seen.what = LAR_SLICE("form of the model's own output");
        seen.advice =
            LAR_SLICE("Send back what the model wrote, byte for byte: do not parse and print its arguments again.");
    } else if (role == LAR_ROLE_TOOL) {
        seen.rule = lar_rule_find(LAR_SLICE("LR012"));
        seen.what = LAR_SLICE("form of a tool's result");
        seen.advice = LAR_SLICE("Print a tool's result once and keep the text.");
    } else if (role == LAR_ROLE_OTHER) return LAR_OK;
    lar_error e = lar_lint_before_read(run);
    if (e) return e;
    twins t = {run->now->messages[i].node, run->before->messages[i].node};
    bool down = step_down(run, &t);
    while (down && step_down(run, &t)) {}
    return down ? see(run, &seen, t) : LAR_OK;
}

/* -- rewritten history --------------------------------------------------------------------------------- */

static lar_error rewritten(lar_lint_run *run, uint32_t now, uint32_t before, lar_slice what) {
    lar_lint_seen seen = {
        .rule = LAR_RULE_LR106,
        .what = what,
        .advice = LAR_SLICE("Only add to a conversation; when it must become shorter, do it rarely and all at once.")};
    lar_error e = lar_lint_before_read(run);
    if (e) return e;
    twins t = {run->now->messages[now].node, run->before->messages[before].node};
    while (step_down(run, &t)) {}
    return see(run, &seen, t);
}

/* A message behind `i` of the earlier request that the model wrote and that is still there. */
static bool later_stays(const lar_lint_kept *before, const lar_lint_kept *now, uint32_t i) {
    uint32_t left = PAIRS_MAX;
    for (uint32_t k = i + 1; k < before->message_count; k++) {
        if (before->messages[k].role != LAR_ROLE_ASSISTANT) continue;
        for (uint32_t m = i; m < now->message_count && left > 0; m++, left--) {
            if (now->messages[m].role == LAR_ROLE_ASSISTANT &&
                now->messages[m].same.loose == before->messages[k].same.loose)
                return true;
        }
    }
    return false;
}

static lar_slice content_of(const lar_json *j, uint32_t message) {
    return lar_json_raw(j, lar_json_get(j, message, "content"));
}

/* The newest user message, which lost something when it became history. */
static lar_error newest_changed(lar_lint_run *run, uint32_t i) {
    const lar_lint_kept *now = run->now, *before = run->before;
    bool last = i + 1 == before->message_count && now->message_count > before->message_count;
    if (!last || now->messages[i].role != LAR_ROLE_USER || before->messages[i].role != LAR_ROLE_USER) return LAR_OK;
    lar_error e = lar_lint_before_read(run);
    if (e) return e;
    lar_slice a = content_of(run->json, now->messages[i].node),
              b = content_of(&run->before_json, before->messages[i].node);
    size_t least = a.len < b.len ? a.len : b.len, head = 0, tail = 0;
    while (head < least && a.ptr[head] == b.ptr[head]) head++;
    while (tail < least - head && a.ptr[a.len - 1 - tail] == b.ptr[b.len - 1 - tail]) tail++;
    if ((head + tail) * 2 < least || head + tail < 8) return LAR_OK;
    return rewritten(run, i, i, LAR_SLICE("a user message that was sent otherwise while it was the newest"));
}

lar_error lar_lint_history(lar_lint_run *run) {
    const lar_lint_kept *now = run->now, *before = run->before;
    if (!before || !now->opening || before->opening != now->opening) return LAR_OK;
    lar_error e = LAR_OK;
    uint32_t i = 0;
    for (; i < now->message_count && i < before->message_count && !e; i++) {
        const lar_lint_same *a = &now->messages[i].same, *b = &before->messages[i].same;
        if (a->loose != b->loose) break;
        if (a->strict != b->strict) e = form_changed(run, i);
    }
    if (e || i == 0 || i == now->message_count || i == before->message_count) return e;
    if (!later_stays(before, now, i)) return newest_changed(run, i);
    bool vanished = i + 1 < before->message_count && now->messages[i].same.loose == before->messages[i + 1].same.loose;
    return rewritten(run, i, i,
                     vanished ? LAR_SLICE("a message of the conversation that is no longer there")
                              : LAR_SLICE("an earlier message of the conversation"));
}
