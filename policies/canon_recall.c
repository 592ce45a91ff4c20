/* Recall: how deep this conversation is known, in what form its parts were sent, what to remember now.
 * Flow: canon.c -> here, once head and tools are edited -> canon_facts.c. Never blocks.
 * Remembered in the scope: S, chain of a segment -> [version][16 bytes: hash of all that was sent up to
 * there][8 bytes: which facts its turn had last been opened with][recipe of its form]. Written for the head's
 * end, for user texts and for the last segment.
 * Invariants: 1. the chain holds only what means something, `sent` all that the model reads. 2. if `sent` as
 * remembered equals that of the client's own bytes, no segment up to there is touched or looked up. */
#include "policies/canon_state.h"

enum { VERSION = 1, LINEAR_MAX = 40, PUTS_MAX = 1024, HEAD_BYTES = 25, MEASURED_MAX = 8 };

static lar_hash with_role(lar_hash before, lar_role role, lar_hash norm) {
    norm.bytes[15] ^= (uint8_t)(role + 1);
    return lar_hash_join(before, norm);
}

/* What the conversation continues on the provider's side, if it says so. */
static lar_hash start_of(const lar_canon *c) {
    lar_hash h = c->tools_norm;
    static const lar_member hints[] = {LAR_MEMBER_PREVIOUS_RESPONSE_ID, LAR_MEMBER_CONVERSATION};
    for (int i = 0; i < 2 && c->view->protocol == LAR_PROTOCOL_RESPONSES; i++) {
        uint32_t node = c->view->members[hints[i]];
        if (node != LAR_JSON_NONE) h = lar_hash_chain(h, lar_json_raw(c->json, node));
    }
    return h;
}

static void chain_up(lar_canon *c) {
    lar_hash chain = start_of(c);
    for (uint32_t i = 0; i < c->view->segment_count; i++) {
        if (i == c->head_count && !lar_hash_eq(c->persons, (lar_hash){{0}})) chain = lar_hash_join(chain, c->persons);
        chain = c->segments[i].chain = with_role(chain, c->view->segments[i].role, c->segments[i].norm);
    }
}

static void sent_up(lar_canon *c) {
    lar_hash sent = c->tools_exact;
    for (uint32_t i = 0; i < c->view->segment_count; i++) {
        lar_canon_segment *s = &c->segments[i];
        sent = lar_hash_join(sent, s->exact);
        if (s->facts.len) sent = lar_hash_chain(sent, s->facts);
        s->sent = sent;
    }
}

static bool fetch(lar_canon *c, uint32_t i) {
    lar_canon_segment *s = &c->segments[i];
    if (s->fetched) return s->known;
    s->fetched = true;
    if (!lar_canon_get(c, 'S', s->chain) || c->value.ptr[0] != VERSION || c->value.len < HEAD_BYTES) return false;
    if (c->value.len > HEAD_BYTES + LAR_RECIPE_MAX) return false;
    memcpy(s->known_sent.bytes, c->value.ptr + 1, 16);
    memcpy(&s->known_opening, c->value.ptr + 17, 8);
    s->known_recipe = lar_arena_copy(c->arena, lar_slice_of(c->value.ptr + HEAD_BYTES, c->value.len - HEAD_BYTES));
    s->known = s->known_recipe.ptr != NULL;
    return s->known;
}

static bool is_mark(const lar_canon *c, uint32_t i) {
    return c->view->segments[i].role == LAR_ROLE_USER || i + 1 == c->head_count;
}

/* The last segment that memory knows: the newest ones one by one, older ones by halving (a conversation that
 * is known up to a user message is known before it, too). */
static uint32_t find_deepest(lar_canon *c) {
    uint32_t n = c->view->segment_count, i = n, marks = 0;
    for (; i > 0 && n - i < LINEAR_MAX; i--) {
        if (fetch(c, i - 1)) return i - 1;
    }
    uint32_t *list = lar_arena_alloc(c->arena, (i + 1) * sizeof *list);
    if (!list) return LAR_JSON_NONE;
    for (uint32_t k = 0; k < i; k++) {
        if (is_mark(c, k)) list[marks++] = k;
    }
    uint32_t low = 0, high = marks; /* list[0..low) known, list[high..] unknown */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (fetch(c, list[mid])) low = mid + 1;
        else high = mid;
    }
    return low ? list[low - 1] : LAR_JSON_NONE;
}

static lar_error recall_forms(lar_canon *c, uint32_t deepest) {
    for (uint32_t i = c->head_count; i <= deepest; i++) {
        if (c->view->segments[i].role != LAR_ROLE_USER || c->segments[i].text_node == LAR_JSON_NONE) continue;
        if (!fetch(c, i)) continue;
        lar_error e = lar_rule_text_form(c, i, c->segments[i].known_recipe);
        if (e) return e;
    }
    return LAR_OK;
}

static lar_error remember(lar_canon *c, uint32_t i) {
    const lar_canon_segment *s = &c->segments[i];
    if (s->known && lar_hash_eq(s->known_sent, s->sent) && s->known_opening == s->opening) return LAR_OK;
    lar_slice recipe = s->known ? s->known_recipe : s->recipe;
    char value[HEAD_BYTES + LAR_RECIPE_MAX] = {VERSION};
    memcpy(value + 1, s->sent.bytes, 16);
    memcpy(value + 17, &s->opening, 8);
    if (recipe.len) memcpy(value + HEAD_BYTES, recipe.ptr, recipe.len);
    return lar_canon_put_value(c, 'S', s->chain, lar_slice_of(value, HEAD_BYTES + recipe.len));
}

static lar_error remember_all(lar_canon *c, uint32_t deepest) {
    uint32_t n = c->view->segment_count, puts = 0;
    lar_error e = remember(c, n - 1);
    for (uint32_t i = n - 1; i-- > 0 && puts < PUTS_MAX && !e;) {
        bool new_here = deepest == LAR_JSON_NONE || i > deepest;
        if (!is_mark(c, i) || !(new_here || c->segments[i].fetched)) continue;
        c->segments[i].opening = c->segments[i].known_opening;
        e = remember(c, i);
        puts++;
    }
    return e;
}

/* How far what is sent now was sent before with the same bytes in front. Where the deepest segment that is known was
 * sent otherwise, the user messages before it and the head are asked for. */
static void measure(lar_canon *c) {
    lar_canon_out *o = c->out;
    uint32_t asked = 0;
    o->segments = c->view->segment_count;
    for (uint32_t i = c->view->segment_count; i-- > 0;) {
        const lar_canon_segment *s = &c->segments[i];
        bool head = i + 1 == c->head_count;
        if (!s->fetched && is_mark(c, i) && (head || asked++ < MEASURED_MAX)) (void)fetch(c, i);
        if (!s->known || !lar_hash_eq(s->known_sent, s->sent)) continue;
        o->segments_known = i + 1;
        break;
    }
    if (c->head_count) o->prefix_hash = lar_hash_low(c->segments[c->head_count - 1].chain);
    else o->prefix_hash = lar_hash_low(c->tools_norm);
}

lar_error lar_canon_recall(lar_canon *c) {
    chain_up(c);
    sent_up(c);
    uint32_t deepest = find_deepest(c);
    bool same = deepest != LAR_JSON_NONE && lar_hash_eq(c->segments[deepest].known_sent, c->segments[deepest].sent);
    lar_error e = LAR_OK;
    bool untouched = same && c->edit_mask == 0; /* up to there */
    if (deepest != LAR_JSON_NONE && !untouched) e = recall_forms(c, deepest);
    if (!e) e = lar_canon_opening_edit(c); /* a block goes behind what stands at the end of a text */
    uint32_t from = untouched ? deepest + 1 : c->head_count;
    c->out->context = lar_canon_context(c, c->view->segment_count);
    if (!e) e = lar_rule_model_output(c, from, deepest);
    if (!e) e = lar_rule_tool_result_form(c, from);
    if (!e) e = lar_rule_reasoning_kept(c);
    if (!e && c->edit_mask) e = lar_canon_facts(c, deepest);
    if (e) return e;
    sent_up(c);
    measure(c);
    return remember_all(c, deepest);
}
