/* LR015: makes a broken history of tool calls valid, so that the provider takes it (header: history.h).
 * Flow: gateway, before all other rules -> lar_rule_tool_history -> splices; the edited body is parsed anew.
 * Pure; never blocks; memory of the given arena.
 * Every call gets one result right behind the message that made it: the one that it has, moved there if need be, else
 * a constant stub. Results that answer nothing, or answer again, go. Why stubs are constant: what is put there must be
 * the same bytes in every later request, or the prefix breaks there each time.
 * Invariants: 1. a message of the assistant keeps its bytes. 2. what moves keeps its bytes, cache_control included;
 * the mark of what is dropped goes to the block in front of it in the message. 3. a valid history has no splice. */
#include "policies/history.h"

#define NO_RESULT "No result is available for this tool call."
#define NO_CALL "[A tool result was left out: its call is not part of this conversation.]"

/* What comes in behind a place, in the order of the calls. */
typedef struct insert {
    lar_slice text; /* one element of the list */
    uint32_t next;  /* index, or NONE */
} insert;

typedef struct anchor {
    uint32_t first, last; /* inserts, or NONE */
} anchor;

typedef struct mender {
    const lar_history *h;
    const lar_request_view *v;
    const lar_json *j;
    lar_arena *arena;
    lar_splices *edits;
    insert *inserts;
    uint32_t insert_count;
    anchor *behind;  /* by segment: elements of the message list that come behind it */
    anchor *within;  /* by segment: blocks that come into its content, behind `block` */
    uint32_t *block; /* by segment: node of the block, or NONE: in front of all */
    uint32_t *gone;  /* by segment: how many of its blocks go; chat and responses: 1 if it goes itself */
} mender;

static const anchor EMPTY = {LAR_JSON_NONE, LAR_JSON_NONE};

static bool goes(const lar_history_result *x) {
    return x->flaw == LAR_HISTORY_ORPHAN || x->flaw == LAR_HISTORY_DUPLICATE || x->flaw == LAR_HISTORY_MISPLACED;
}

static void put(mender *m, anchor *at, lar_slice text) {
    uint32_t i = m->insert_count++;
    m->inserts[i] = (insert){text, LAR_JSON_NONE};
    if (at->last == LAR_JSON_NONE) at->first = i;
    else m->inserts[at->last].next = i;
    at->last = i;
}

/* The element that answers a call: its own result, moved, or a stub. */
static lar_slice answer(const mender *m, const lar_history_call *c) {
    if (c->result != LAR_JSON_NONE) return lar_json_raw(m->j, m->h->results[c->result].node);
    switch (m->v->protocol) {
    case LAR_PROTOCOL_MESSAGES:
        return lar_arena_printf(m->arena,
                                "{\"type\":\"tool_result\",\"tool_use_id\":\"%.*s\",\"content\":\"" NO_RESULT
                                "\",\"is_error\":true}",
                                LAR_FMT(c->id));
    case LAR_PROTOCOL_RESPONSES: {
        bool custom = lar_json_eq(m->j, lar_json_get(m->j, c->node, "type"), LAR_SLICE("custom_tool_call"));
        return lar_arena_printf(m->arena, "{\"type\":\"%s_output\",\"call_id\":\"%.*s\",\"output\":\"" NO_RESULT "\"}",
                                custom ? "custom_tool_call" : "function_call", LAR_FMT(c->id));
    }
    default:
        return lar_arena_printf(m->arena, "{\"role\":\"tool\",\"tool_call_id\":\"%.*s\",\"content\":\"" NO_RESULT "\"}",
                                LAR_FMT(c->id));
    }
}

static bool wants(const mender *m, const lar_history_call *c) {
    if (c->result != LAR_JSON_NONE) return m->h->results[c->result].flaw == LAR_HISTORY_MISPLACED;
    return c->flaw == LAR_HISTORY_UNANSWERED;
}

/* -- where a turn's answers go -------------------------------------------------------------------------- */

static bool is_item(const mender *m, uint32_t segment, const char *a, const char *b) {
    uint32_t type = lar_json_get(m->j, m->v->segments[segment].node, "type");
    if (!lar_json_is(m->j, type, LAR_JSON_STRING)) return false;
    return lar_json_eq(m->j, type, lar_slice_cstr(a)) || lar_json_eq(m->j, type, lar_slice_cstr(b));
}

/* Chat: behind the last tool message of the turn that stays. Responses: behind the row of calls that this one is in. */
static uint32_t behind_segment(const mender *m, const lar_history_call *c, uint32_t *result) {
    uint32_t at = c->segment;
    if (m->v->protocol == LAR_PROTOCOL_RESPONSES) {
        while (at + 1 < m->v->segment_count && is_item(m, at + 1, "function_call", "custom_tool_call")) at++;
        return at;
    }
    for (; *result < m->h->result_count; ++*result) {
        const lar_history_result *x = &m->h->results[*result];
        if (x->turn != LAR_JSON_NONE && x->turn > c->turn) break;
        if (x->turn == c->turn && !goes(x)) at = x->segment;
    }
    return at;
}

/* Messages: behind the last block that leads and stays; else in front of the next user message; else (NONE) there is
 * none that could hold it. */
static uint32_t host_segment(mender *m, const lar_history_call *c, uint32_t *result) {
    uint32_t behind = m->h->turns[c->turn].segment, host = LAR_JSON_NONE;
    for (; *result < m->h->result_count; ++*result) {
        const lar_history_result *x = &m->h->results[*result];
        if (x->turn != LAR_JSON_NONE && x->turn > c->turn) break;
        if (x->turn != c->turn || goes(x) || !x->leads) continue;
        host = x->segment;
        m->block[host] = x->node;
    }
    if (host != LAR_JSON_NONE || behind + 1 >= m->v->segment_count) return host;
    const lar_segment *s = &m->v->segments[behind + 1];
    bool holds = lar_json_is(m->j, s->content, LAR_JSON_ARRAY) || lar_json_is(m->j, s->content, LAR_JSON_STRING);
    return (s->role == LAR_ROLE_USER || s->role == LAR_ROLE_TOOL) && holds ? behind + 1 : LAR_JSON_NONE;
}

static lar_error place_answers(mender *m) {
    const lar_history *h = m->h;
    uint32_t result = 0, turn = LAR_JSON_NONE, at = LAR_JSON_NONE;
    bool messages = m->v->protocol == LAR_PROTOCOL_MESSAGES, responses = m->v->protocol == LAR_PROTOCOL_RESPONSES;
    for (uint32_t i = 0; i < h->call_count; i++) {
        const lar_history_call *c = &h->calls[i];
        if (!wants(m, c)) continue;
        bool same = responses ? at != LAR_JSON_NONE && c->segment <= at : c->turn == turn;
        if (!same) at = messages ? host_segment(m, c, &result) : behind_segment(m, c, &result);
        turn = c->turn;
        lar_slice text = answer(m, c);
        if (!text.ptr) return LAR_NO_MEMORY;
        if (!messages) put(m, &m->behind[at], text);
        else if (at != LAR_JSON_NONE) put(m, &m->within[at], text);
        else put(m, &m->behind[h->turns[c->turn].segment], text);
    }
    return LAR_OK;
}

/* -- splices ---------------------------------------------------------------------------------------------- */

/* The inserts of an anchor with commas between; empty if there are none. */
static lar_slice join(const mender *m, anchor at, const char *before, const char *after) {
    size_t n = strlen(before) + strlen(after) + 1;
    if (at.first == LAR_JSON_NONE) return LAR_SLICE("");
    for (uint32_t i = at.first; i != LAR_JSON_NONE; i = m->inserts[i].next) n += m->inserts[i].text.len + 1;
    char *out = lar_arena_alloc(m->arena, n);
    if (!out) return (lar_slice){NULL, 0};
    size_t k = strlen(before);
    memcpy(out, before, k);
    for (uint32_t i = at.first; i != LAR_JSON_NONE; i = m->inserts[i].next) {
        if (i != at.first) out[k++] = ',';
        memcpy(out + k, m->inserts[i].text.ptr, m->inserts[i].text.len);
        k += m->inserts[i].text.len;
    }
    memcpy(out + k, after, strlen(after));
    return lar_slice_of(out, k + strlen(after));
}

/* Walks the elements of one list, of which some go and behind some of which others come. */
typedef struct list_edit {
    mender *m;
    uint32_t first, kept,
        gone; /* ends and starts: start of the first element, end of the last kept and last gone one */
    bool any, any_kept, any_gone;
    lar_slice pending; /* comes behind the last kept one, with its comma; or, with none kept yet, in front of all */
} list_edit;

static lar_error splice(list_edit *l, uint32_t start, uint32_t end) {
    lar_slice with = l->pending;
    l->pending = LAR_SLICE("");
    if (!with.ptr) return LAR_NO_MEMORY;
    return start == end && with.len == 0 ? LAR_OK : lar_splices_add(l->m->edits, start, end, with);
}

static void list_gone(list_edit *l, const lar_json_node *n) {
    if (!l->any) l->first = n->start;
    l->any = l->any_gone = true;
    l->gone = n->end;
}

static lar_error list_kept(list_edit *l, const lar_json_node *n, lar_slice behind) {
    lar_error e = LAR_OK;
    if (!l->any) l->first = n->start;
    if (!l->any_kept) e = splice(l, l->first, n->start);
    else e = splice(l, l->kept, l->any_gone ? l->gone : l->kept);
    l->any = l->any_kept = true;
    l->any_gone = false;
    l->kept = n->end;
    l->pending = behind;
    return e;
}

/* `inside`: an offset between the list's brackets. */
static lar_error list_end(list_edit *l, uint32_t inside) {
    if (!l->any) return splice(l, inside, inside);
    if (!l->any_kept) return splice(l, l->first, l->gone);
    return splice(l, l->kept, l->any_gone ? l->gone : l->kept);
}

/* A cache mark that would go with a block is put on the block in front of it, if that has none. */
static lar_error keep_mark(const mender *m, uint32_t gone, uint32_t *before) {
    uint32_t mark = lar_json_get(m->j, gone, "cache_control");
    if (mark == LAR_JSON_NONE || *before == LAR_JSON_NONE || m->j->nodes[*before].count == 0) return LAR_OK;
    bool free = lar_json_get(m->j, *before, "cache_control") == LAR_JSON_NONE;
    uint32_t at = m->j->nodes[*before].end - 1;
    *before = LAR_JSON_NONE; /* one mark each */
    if (!free) return LAR_OK;
    lar_slice text = lar_arena_printf(m->arena, ",\"cache_control\":%.*s", LAR_FMT(lar_json_raw(m->j, mark)));
    return text.ptr ? lar_splices_add(m->edits, at, at, text) : LAR_NO_MEMORY;
}

/* The blocks of one user message. */
static lar_error edit_blocks(mender *m, uint32_t i, uint32_t *result) {
    const lar_segment *s = &m->v->segments[i];
    const lar_json_node *content = &m->j->nodes[s->content];
    if (content->kind == LAR_JSON_STRING) {
        bool empty = content->end - content->start == 2;
        lar_slice open = join(m, m->within[i], "[", empty ? "]" : ",{\"type\":\"text\",\"text\":");
        if (!open.ptr) return LAR_NO_MEMORY;
        if (empty) return lar_splices_add(m->edits, content->start, content->end, open);
        lar_error e = lar_splices_add(m->edits, content->start, content->start, open);
        return e ? e : lar_splices_add(m->edits, content->end, content->end, LAR_SLICE("}]"));
    }
    bool front = m->within[i].first != LAR_JSON_NONE && m->block[i] == LAR_JSON_NONE;
    bool empty = content->count == m->gone[i];
    list_edit l = {.m = m, .pending = LAR_SLICE("")};
    if (front) l.pending = join(m, m->within[i], "", empty ? "" : ",");
    else if (empty) l.pending = LAR_SLICE("{\"type\":\"text\",\"text\":\"" NO_CALL "\"}");
    uint32_t kept = LAR_JSON_NONE;
    lar_error e = LAR_OK;
    for (uint32_t b = lar_json_first(m->j, s->content); b != LAR_JSON_NONE && !e;
         b = lar_json_after(m->j, s->content, b)) {
        while (*result < m->h->result_count && m->h->results[*result].node < b) ++*result;
        bool is_result = *result < m->h->result_count && m->h->results[*result].node == b;
        if (is_result && goes(&m->h->results[*result])) {
            bool moved = m->h->results[*result].flaw == LAR_HISTORY_MISPLACED;
            list_gone(&l, &m->j->nodes[b]);
            if (!moved) e = keep_mark(m, b, &kept);
        } else {
            kept = lar_json_is(m->j, b, LAR_JSON_OBJECT) ? b : LAR_JSON_NONE;
            e = list_kept(&l, &m->j->nodes[b], m->block[i] == b ? join(m, m->within[i], ",", "") : LAR_SLICE(""));
        }
    }
    return e ? e : list_end(&l, content->start + 1);
}

static bool is_client(const mender *m, uint32_t segment) {
    lar_role role = segment < m->v->segment_count ? m->v->segments[segment].role : LAR_ROLE_OTHER;
    return role == LAR_ROLE_USER || role == LAR_ROLE_TOOL;
}

/* A user message from which all blocks go goes too, unless the model would then have the first word. */
static bool emptied(const mender *m, uint32_t i, bool first) {
    const lar_segment *s = &m->v->segments[i];
    if (m->gone[i] == 0 || m->within[i].first != LAR_JSON_NONE) return false;
    return m->gone[i] == m->j->nodes[s->content].count && (!first || is_client(m, i + 1));
}

static lar_error edit_list(mender *m) {
    bool messages = m->v->protocol == LAR_PROTOCOL_MESSAGES;
    uint32_t result = 0;
    list_edit l = {.m = m, .pending = LAR_SLICE("")};
    lar_error e = LAR_OK;
    for (uint32_t i = m->h->first; i < m->v->segment_count && !e; i++) {
        const lar_json_node *n = &m->j->nodes[m->v->segments[i].node];
        bool removed = messages ? emptied(m, i, !l.any_kept) : m->gone[i] > 0;
        if (removed) {
            list_gone(&l, n);
            continue;
        }
        if (messages && (m->gone[i] || m->within[i].first != LAR_JSON_NONE)) e = edit_blocks(m, i, &result);
        const char *before = messages ? ",{\"role\":\"user\",\"content\":[" : ",";
        if (!e) e = list_kept(&l, n, join(m, m->behind[i], before, messages ? "]}" : ""));
    }
    return e ? e : list_end(&l, 0);
}

static lar_error make_room(mender *m) {
    uint32_t n = m->v->segment_count;
    m->inserts = lar_arena_alloc(m->arena, (m->h->call_count + 1) * sizeof *m->inserts);
    m->behind = lar_arena_alloc(m->arena, n * sizeof *m->behind);
    m->within = lar_arena_alloc(m->arena, n * sizeof *m->within);
    m->block = lar_arena_alloc(m->arena, n * sizeof *m->block);
    m->gone = lar_arena_zalloc(m->arena, n * sizeof *m->gone);
    if (!m->inserts || !m->behind || !m->within || !m->block || !m->gone) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        m->behind[i] = m->within[i] = EMPTY;
        m->block[i] = LAR_JSON_NONE;
    }
    for (uint32_t i = 0; i < m->h->result_count; i++) m->gone[m->h->results[i].segment] += goes(&m->h->results[i]);
    return LAR_OK;
}

lar_error lar_rule_tool_history(const lar_request_view *v, lar_arena *arena, lar_splices *edits, bool *found) {
    lar_history h;
    lar_splices_init(edits, arena);
    *found = false;
    lar_error e = lar_history_read(v, arena, &h);
    if (e || !h.broken) return e;
    *found = true;
    mender m = {.h = &h, .v = v, .j = v->json, .arena = arena, .edits = edits};
    e = make_room(&m);
    if (!e) e = place_answers(&m);
    if (!e) e = edit_list(&m);
    if (!e) e = lar_splices_finish(edits, v->json->body.len);
    if (e) lar_splices_init(edits, arena);
    return e;
}
