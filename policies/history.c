/* Reads the history of tool calls: every call and result, and which of them belong together (header: history.h).
 * Called by the linter and, where LR015 is on, once a request on a loop thread. Pure; never blocks.
 * Flow: protocol's reader -> bind in place -> bind what is left -> flaws.
 * Invariants: 1. a result answers at most one call, and a call has at most one. 2. which one it is depends on the
 * messages' order alone, never on time or addresses. 3. work is bounded: ITEMS_MAX of both, and WORK_MAX looks at
 * calls that share a bucket or an id.
 * Memory: the given arena. Not here: texts for people (history_notes.c), the repair (rules/tool_history.c). */
#include "policies/history.h"

#include "policies/text.h"

enum { ITEMS_MAX = 64 * 1024, WORK_MAX = 1024 * 1024 };

/* Of a call: the next one in its bucket, those of the same id before and after it; of the first of an id: the first
 * that may still want a result in its own turn. */
typedef struct links {
    uint32_t bucket, before, after, cursor;
} links;

typedef struct reader {
    lar_history *h;
    const lar_json *j;
    lar_arena *arena;
    uint32_t turn;        /* whose results may come now, or NONE */
    uint32_t *head, mask; /* calls by id: the first of each bucket */
    links *links;
    uint32_t work;
} reader;

/* Room for one more element; the list moves. */
static lar_error grow(lar_arena *arena, void **list, uint32_t count, uint32_t *cap, size_t each) {
    if (count < *cap) return LAR_OK;
    if (count >= ITEMS_MAX) return LAR_LIMIT;
    uint32_t more = *cap ? *cap * 2 : 16;
    void *to = lar_arena_alloc(arena, more * each);
    if (!to) return LAR_NO_MEMORY;
    if (count) memcpy(to, *list, count * each);
    *list = to;
    *cap = more;
    return LAR_OK;
}

/* An id as a key. Ids are compared decoded, as the provider reads them. */
static lar_error read_id(reader *r, uint32_t node, lar_slice *id, lar_hash *key) {
    *id = lar_json_inner(r->j, node);
    if (id->len == 0) return LAR_OK;
    lar_slice text = *id;
    if (r->j->nodes[node].flags & LAR_JSON_ESCAPED) {
        char *room = lar_arena_alloc(r->arena, id->len);
        if (!room) return LAR_NO_MEMORY;
        text = lar_slice_of(room, lar_text_decode(*id, room));
    }
    *key = lar_hash_of(text);
    return LAR_OK;
}

static lar_error open_turn(reader *r) {
    lar_history *h = r->h;
    if (r->turn != LAR_JSON_NONE) return LAR_OK;
    void *list = h->turns;
    lar_error e = grow(r->arena, &list, h->turn_count, &h->turn_cap, sizeof *h->turns);
    if (e) return e;
    h->turns = list;
    r->turn = h->turn_count;
    h->turns[h->turn_count++] = (lar_history_turn){.call = h->call_count};
    return LAR_OK;
}

static lar_error add_call(reader *r, uint32_t segment, uint32_t node, uint32_t place, const char *id) {
    lar_history *h = r->h;
    lar_error e = open_turn(r);
    void *list = h->calls;
    if (!e) e = grow(r->arena, &list, h->call_count, &h->call_cap, sizeof *h->calls);
    if (e) return e;
    h->calls = list;
    lar_history_call c = {.node = node, .segment = segment, .place = place, .turn = r->turn, .result = LAR_JSON_NONE};
    e = read_id(r, lar_json_get(r->j, node, id), &c.id, &c.key);
    if (c.id.len == 0) c.flaw = LAR_HISTORY_NO_ID;
    h->calls[h->call_count++] = c;
    h->turns[r->turn].call_count++;
    h->turns[r->turn].segment = segment;
    return e;
}

static lar_error add_result(reader *r, lar_history_result x, const char *id) {
    lar_history *h = r->h;
    void *list = h->results;
    lar_error e = grow(r->arena, &list, h->result_count, &h->result_cap, sizeof *h->results);
    if (e) return e;
    h->results = list;
    x.turn = r->turn;
    x.call = LAR_JSON_NONE;
    x.calls_before = h->call_count;
    e = read_id(r, lar_json_get(r->j, x.node, id), &x.id, &x.key);
    if (x.id.len == 0) x.flaw = LAR_HISTORY_NO_ID;
    h->results[h->result_count++] = x;
    return e;
}

static bool says(const lar_json *j, uint32_t object, const char *member, const char *text) {
    uint32_t node = lar_json_get(j, object, member);
    return lar_json_is(j, node, LAR_JSON_STRING) && lar_json_eq(j, node, lar_slice_cstr(text));
}

/* -- chat: assistant with tool_calls, then its tool messages ---------------------------------------- */

static lar_error read_chat(reader *r) {
    const lar_request_view *v = r->h->view;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < v->segment_count && !e; i++) {
        const lar_segment *s = &v->segments[i];
        if (s->role == LAR_ROLE_TOOL && says(r->j, s->node, "role", "tool")) {
            e = add_result(r, (lar_history_result){.node = s->node, .segment = i, .leads = true}, "tool_call_id");
            continue;
        }
        r->turn = LAR_JSON_NONE;
        uint32_t calls = s->role == LAR_ROLE_ASSISTANT ? lar_json_get(r->j, s->node, "tool_calls") : LAR_JSON_NONE;
        if (!lar_json_is(r->j, calls, LAR_JSON_ARRAY)) continue;
        uint32_t place = 0;
        for (uint32_t c = lar_json_first(r->j, calls); c != LAR_JSON_NONE && !e; c = lar_json_after(r->j, calls, c))
            e = add_call(r, i, c, place++, "id");
    }
    return e;
}

/* -- messages: tool_use blocks, then a user message that opens with their tool_result blocks -------- */

static lar_error read_used(reader *r, uint32_t i) {
    uint32_t content = r->h->view->segments[i].content, place = 0;
    if (!lar_json_is(r->j, content, LAR_JSON_ARRAY)) return LAR_OK;
    lar_error e = LAR_OK;
    for (uint32_t b = lar_json_first(r->j, content); b != LAR_JSON_NONE && !e; b = lar_json_after(r->j, content, b)) {
        if (says(r->j, b, "type", "tool_use")) e = add_call(r, i, b, place, "id");
        place++;
    }
    return e;
}

static lar_error read_answered(reader *r, uint32_t i, bool *leads) {
    uint32_t content = r->h->view->segments[i].content, place = 0;
    if (!lar_json_is(r->j, content, LAR_JSON_ARRAY)) {
        *leads = false;
        return LAR_OK;
    }
    lar_error e = LAR_OK;
    for (uint32_t b = lar_json_first(r->j, content); b != LAR_JSON_NONE && !e; b = lar_json_after(r->j, content, b)) {
        if (says(r->j, b, "type", "tool_result")) {
            lar_history_result x = {.node = b, .segment = i, .place = place, .leads = *leads};
            e = add_result(r, x, "tool_use_id");
        } else *leads = false;
        place++;
    }
    return e;
}

/* Neighbours of one role count as one message, as the provider reads them. */
static lar_error read_messages(reader *r) {
    const lar_request_view *v = r->h->view;
    lar_error e = LAR_OK;
    bool leads = true;
    for (uint32_t i = r->h->first; i < v->segment_count && !e; i++) {
        lar_role role = v->segments[i].role;
        if (role == LAR_ROLE_ASSISTANT) {
            if (i == r->h->first || v->segments[i - 1].role != LAR_ROLE_ASSISTANT) r->turn = LAR_JSON_NONE;
            leads = true;
            e = read_used(r, i);
            if (r->turn != LAR_JSON_NONE) r->h->turns[r->turn].segment = i;
        } else if (role == LAR_ROLE_USER || role == LAR_ROLE_TOOL) e = read_answered(r, i, &leads);
        else r->turn = LAR_JSON_NONE;
    }
    return e;
}

/* -- responses: items; a result may stand anywhere behind its call, before the client speaks again --- */

static bool is_call(const lar_json *j, uint32_t item) {
    return says(j, item, "type", "function_call") || says(j, item, "type", "custom_tool_call");
}

static bool is_result(const lar_json *j, uint32_t item) {
    return says(j, item, "type", "function_call_output") || says(j, item, "type", "custom_tool_call_output");
}

/* Items may name a role beside their type; one that contradicts it is nobody's for sure. */
static bool is_what_its_role_says(const lar_json *j, const lar_segment *s) {
    return s->role == LAR_ROLE_ASSISTANT ? !is_result(j, s->node) : !is_call(j, s->node);
}

static lar_error read_responses(reader *r) {
    const lar_request_view *v = r->h->view;
    lar_error e = LAR_OK;
    for (uint32_t i = r->h->first; i < v->segment_count && !e; i++) {
        const lar_segment *s = &v->segments[i];
        if (s->role == LAR_ROLE_USER || s->role == LAR_ROLE_SYSTEM) r->turn = LAR_JSON_NONE;
        else if (s->role == LAR_ROLE_OTHER || !is_what_its_role_says(r->j, s))
            r->h->open = r->h->veiled = true; /* it may stand for a call, or for a result */
        else if (is_call(r->j, s->node)) e = add_call(r, i, s->node, 0, "call_id");
        else if (is_result(r->j, s->node))
            e = add_result(r, (lar_history_result){.node = s->node, .segment = i, .leads = true}, "call_id");
    }
    static const lar_member elsewhere[] = {LAR_MEMBER_PREVIOUS_RESPONSE_ID, LAR_MEMBER_CONVERSATION};
    for (int k = 0; k < 2; k++) {
        uint32_t node = v->members[elsewhere[k]];
        if (node != LAR_JSON_NONE && !lar_json_is(r->j, node, LAR_JSON_NULL)) r->h->open = true;
    }
    return e;
}

/* -- who answers whom -------------------------------------------------------------------------------- */

/* Calls of one id are a list in their order; the first of each stands in a bucket. */
static lar_error index_calls(reader *r) {
    uint32_t n = r->h->call_count, buckets = 16;
    while (buckets < n * 2) buckets *= 2;
    r->mask = buckets - 1;
    r->head = lar_arena_alloc(r->arena, buckets * sizeof *r->head);
    r->links = lar_arena_alloc(r->arena, (n + 1) * sizeof *r->links);
    if (!r->head || !r->links) return LAR_NO_MEMORY;
    for (uint32_t b = 0; b < buckets; b++) r->head[b] = LAR_JSON_NONE;
    for (uint32_t i = n; i-- > 0;) {
        links *l = &r->links[i];
        *l = (links){LAR_JSON_NONE, LAR_JSON_NONE, LAR_JSON_NONE, i};
        if (r->h->calls[i].id.len == 0) continue;
        uint32_t *at = &r->head[(uint32_t)lar_hash_low(r->h->calls[i].key) & r->mask];
        while (*at != LAR_JSON_NONE && !lar_hash_eq(r->h->calls[*at].key, r->h->calls[i].key) && r->work++ < WORK_MAX)
            at = &r->links[*at].bucket;
        if (*at != LAR_JSON_NONE) {
            l->after = *at;
            l->bucket = r->links[*at].bucket;
            r->links[*at].before = i;
        }
        *at = i;
    }
    return r->work < WORK_MAX ? LAR_OK : LAR_LIMIT;
}

/* The first call of that id, or NONE; the others follow by links.after. */
static uint32_t first_call(reader *r, lar_hash key) {
    uint32_t i = r->head[(uint32_t)lar_hash_low(key) & r->mask];
    while (i != LAR_JSON_NONE && !lar_hash_eq(r->h->calls[i].key, key))
        i = r->work++ < WORK_MAX ? r->links[i].bucket : LAR_JSON_NONE;
    return i;
}

static void bind(lar_history *h, uint32_t result, uint32_t call) {
    h->results[result].call = call;
    h->calls[call].result = result;
}

/* A result that stands behind the calls of its own turn answers the first of them that has its id and no result.
 * Turns come in order, so that those of an id are walked through once. */
static void bind_in_place(reader *r) {
    lar_history *h = r->h;
    for (uint32_t i = 0; i < h->result_count; i++) {
        const lar_history_result *x = &h->results[i];
        if (x->turn == LAR_JSON_NONE || x->id.len == 0) continue;
        uint32_t first = first_call(r, x->key);
        if (first == LAR_JSON_NONE) continue;
        uint32_t c = r->links[first].cursor;
        while (c != LAR_JSON_NONE && (h->calls[c].turn < x->turn || h->calls[c].result != LAR_JSON_NONE) &&
               c < x->calls_before)
            c = r->links[c].after;
        r->links[first].cursor = c;
        if (c != LAR_JSON_NONE && c < x->calls_before && h->calls[c].turn == x->turn) bind(h, i, c);
    }
}

/* The rest: the nearest call in front of it that has no result, else the nearest behind it. */
static void bind_the_rest(reader *r) {
    lar_history *h = r->h;
    for (uint32_t i = 0; i < h->result_count; i++) {
        lar_history_result *x = &h->results[i];
        if (x->id.len == 0) continue;
        bool misplaced = !x->leads;
        if (x->call == LAR_JSON_NONE) {
            uint32_t best = LAR_JSON_NONE, any = first_call(r, x->key);
            for (uint32_t c = any; c != LAR_JSON_NONE && r->work++ < WORK_MAX; c = r->links[c].after) {
                if (c >= x->calls_before && best != LAR_JSON_NONE) break;
                if (h->calls[c].result == LAR_JSON_NONE) best = c;
                if (c >= x->calls_before && best != LAR_JSON_NONE) break;
            }
            misplaced = best != LAR_JSON_NONE;
            if (misplaced) bind(h, i, best);
            else
                x->flaw = any != LAR_JSON_NONE ? LAR_HISTORY_DUPLICATE
                          : h->open            ? LAR_HISTORY_FINE
                                               : LAR_HISTORY_ORPHAN;
        }
        if (misplaced) x->flaw = LAR_HISTORY_MISPLACED;
        h->broken |= x->flaw != LAR_HISTORY_FINE;
    }
}

static void judge_calls(reader *r) {
    lar_history *h = r->h;
    for (uint32_t i = 0; i < h->call_count; i++) {
        lar_history_call *c = &h->calls[i];
        if (c->id.len == 0) continue;
        uint32_t before = r->links[i].before;
        if (before != LAR_JSON_NONE) {
            c->flaw = LAR_HISTORY_SAME_ID;
            c->twin = h->calls[before].turn == c->turn;
        }
        if (c->result != LAR_JSON_NONE || c->twin || h->veiled) continue;
        c->flaw = LAR_HISTORY_UNANSWERED;
        h->broken = true;
    }
}

lar_error lar_history_read(const lar_request_view *v, lar_arena *arena, lar_history *out) {
    *out = (lar_history){.view = v};
    if (v->segment_count == 0) return LAR_OK;
    lar_member head = v->protocol == LAR_PROTOCOL_MESSAGES ? LAR_MEMBER_SYSTEM : LAR_MEMBER_INSTRUCTIONS;
    out->first = v->protocol != LAR_PROTOCOL_CHAT && v->segments[0].node == v->members[head] ? 1 : 0;
    reader r = {.h = out, .j = v->json, .arena = arena, .turn = LAR_JSON_NONE};
    lar_error e = LAR_OK;
    if (v->protocol == LAR_PROTOCOL_CHAT) e = read_chat(&r);
    else if (v->protocol == LAR_PROTOCOL_MESSAGES) e = read_messages(&r);
    else if (v->protocol == LAR_PROTOCOL_RESPONSES) e = read_responses(&r);
    if (e || out->call_count + out->result_count == 0) return e;
    if (out->call_count + out->result_count > ITEMS_MAX) return LAR_LIMIT;
    e = index_calls(&r);
    if (e) return e;
    bind_in_place(&r);
    bind_the_rest(&r);
    judge_calls(&r);
    return r.work < WORK_MAX ? LAR_OK : LAR_LIMIT;
}
