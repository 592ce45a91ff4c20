/* The opening: client messages behind the head and before the first answer, where agents put date, directory and ids.
 * Flow: canon.c -> opening_read -> rules decide -> opening_finish (norms) -> recall of forms -> opening_edit.
 * One request at a time; memory from the arena; never blocks.
 * Invariants: 1. a message in which nothing was found is memoised and never decoded again. 2. where the opening ends
 * depends on it and what stands before it only: a conversation that grows keeps it. 3. only what has a label counts;
 * the words of a user are not searched for more. 4. but for a clock, a value is left alone unless it stands in an
 * agent's preamble with enough text behind it: out of a user's short message nothing would be won. */
#include "policies/canon_state.h"

/* Text behind a value that is worth sharing: a step of OpenAI's cache (128 tokens), two of DeepSeek's units (64), 8
 * blocks of vLLM (16), at 4 bytes a token. */
enum { KEPT_BYTES_MIN = 512, PREAMBLE_VALUES_MIN = 2 };

static void find_end(lar_canon *c) {
    const lar_request_view *v = c->view;
    size_t bytes = 0;
    c->opening_end = c->head_count;
    for (uint32_t i = c->head_count; i < v->segment_count && i - c->head_count < LAR_CANON_OPENING_MAX; i++) {
        lar_role role = v->segments[i].role;
        bytes += lar_json_raw(c->json, v->segments[i].node).len;
        if ((role != LAR_ROLE_USER && role != LAR_ROLE_SYSTEM) || bytes > LAR_CANON_OPENING_BYTES_MAX) break;
        c->opening_end = i + 1;
    }
}

/* True in *found if there are spans; the segment's units are kept then, and its norm is still to come. */
static lar_error search(lar_canon *c, lar_canon_unit *units, uint32_t count, bool *found) {
    uint32_t before = c->span_count;
    lar_clock_budget budget = LAR_CLOCK_BUDGET;
    lar_error e = LAR_OK;
    *found = false;
    for (uint32_t k = 0; k < count && !e; k++) e = lar_canon_unit_scan(c, &units[k], true, &budget);
    if (e || c->span_count == before) return e;
    *found = lar_canon_units_keep(c, units, count);
    if (*found) return LAR_OK;
    c->span_count = before;
    for (uint32_t k = 0; k < count; k++) units[k].span_count = 0;
    return LAR_OK;
}

static lar_error read_segment(lar_canon *c, uint32_t i) {
    if (lar_canon_memo_get(c, i)) return LAR_OK;
    lar_canon_unit *units;
    uint32_t count;
    bool found;
    lar_error e = lar_canon_units_read(c, i, &units, &count);
    if (!e) e = search(c, units, count, &found);
    if (e || found) return e;
    e = lar_canon_units_hash(c, i, units, count);
    bool room = !c->crowded && c->unit_count < LAR_CANON_UNITS_MAX && !c->passed;
    if (!e && room) lar_canon_memo_put(c, i);
    return e;
}

/* -- what may move -------------------------------------------------------------------------------------- */

static bool is_last_text(const lar_canon *c, const lar_canon_unit *u) {
    if (u->segment + 1 < c->opening_end) return false;
    return u->part == LAR_JSON_NONE ||
           lar_json_after(c->json, c->view->segments[u->segment].content, u->part) == LAR_JSON_NONE;
}

/* Text that stands in front of another one, or that says more than one thing of where and when an agent runs: not the
 * words of somebody who names one id. */
static bool is_preamble(const lar_canon *c, const lar_canon_unit *u) {
    uint32_t values = 0;
    for (uint32_t i = u->span_first; i < u->span_first + u->span_count; i++) {
        lar_rule r = lar_canon_rule_of(c->spans[i].class_id);
        bool environment = r == LAR_RULE_LR001 || r == LAR_RULE_LR005 || r == LAR_RULE_LR009;
        values += environment && c->spans[i].key_word;
    }
    return values >= PREAMBLE_VALUES_MIN || !is_last_text(c, u);
}

/* Bit i: spans[i] may move. A clock only ever does if it shows now or ticks in its conversation (canon_evidence.c):
 * then all of the conversation stands behind it. For others the text counts up to the next value that stays, for
 * nothing is shared behind that; and without the values, so that none decides by its length. */
static uint64_t movable(const lar_canon *c, uint32_t first) {
    uint32_t end = c->json->nodes[c->view->segments[c->opening_end - 1].node].end, values = 0;
    uint64_t mask = 0;
    for (uint32_t k = c->unit_count; k-- > first;) {
        const lar_canon_unit *u = &c->units[k];
        bool preamble = is_preamble(c, u);
        for (uint32_t i = u->span_first + u->span_count; i-- > u->span_first;) {
            const lar_volatile_span *s = &c->spans[i];
            bool clock = lar_volatile_row_of(s->class_id)->evidence == LAR_EVIDENCE_NOW;
            uint32_t from = lar_text_body_offset(&u->text, s->start), to = lar_text_body_offset(&u->text, s->end);
            bool moves = clock || (preamble && end - to - values >= KEPT_BYTES_MIN);
            if (moves) mask |= 1ull << i;
            if (!moves && lar_canon_class_on(c, s->class_id)) end = from, values = 0;
            else values += to - from;
        }
    }
    return mask;
}

/* Leaves the spans that may move; a unit without any stays in its place. */
static void drop_others(lar_canon *c, uint32_t first) {
    uint64_t mask = movable(c, first);
    uint32_t kept = c->units[first].span_first;
    for (uint32_t k = first; k < c->unit_count; k++) {
        lar_canon_unit *u = &c->units[k];
        uint32_t from = u->span_first, to = from + u->span_count;
        u->span_first = kept;
        for (uint32_t i = from; i < to; i++) {
            if (mask >> i & 1) c->spans[kept++] = c->spans[i];
        }
        u->span_count = kept - u->span_first;
    }
    c->span_count = kept;
}

lar_error lar_canon_opening_read(lar_canon *c) {
    find_end(c);
    uint32_t first = c->unit_count;
    for (uint32_t i = c->head_count; i < c->opening_end; i++) {
        lar_error e = read_segment(c, i);
        if (e) return e;
    }
    if (c->unit_count == first) return LAR_OK;
    drop_others(c, first);
    lar_hash shape = lar_hash_join(c->hash_template, lar_hash_of(LAR_SLICE("opening")));
    for (uint32_t i = c->head_count, u = first; i < c->opening_end; i++) {
        if (u == c->unit_count || c->units[u].segment != i) shape = lar_hash_join(shape, c->segments[i].norm);
        for (; u < c->unit_count && c->units[u].segment == i; u++) {
            lar_error e = lar_canon_unit_norms(c, &c->units[u]);
            if (e) return e;
            shape = lar_hash_join(shape, c->units[u].masked);
        }
    }
    return lar_canon_group_add(c, LAR_PLACE_OPENING, first, shape) ? LAR_OK : LAR_LIMIT;
}

lar_error lar_canon_opening_finish(lar_canon *c) { return lar_canon_units_finish(c, c->head_count, c->opening_end); }

lar_error lar_canon_opening_edit(lar_canon *c) {
    lar_error e = LAR_OK;
    for (uint32_t u = 0; u < c->unit_count && !e; u++) {
        uint32_t segment = c->units[u].segment;
        if (segment >= c->head_count && segment < c->opening_end) e = lar_canon_unit_edit(c, &c->units[u]);
    }
    return e;
}
