/* LR014: cache breakpoints where the client of Anthropic's API sets none. Off by default: a write costs more than plain
 * input, and only who reads the prefix again within minutes gains.
 * Flow: canon.c, behind all other rules -> at most four marks as splices. Pure; never blocks; no memory but theirs.
 * Marks end the tools, the system text, the newest client message, and the client message before the model's last
 * answer: that is where the request before this one ended, so its entry is found whatever number of blocks came since
 * (the provider looks back 20 blocks from a mark). Marks are no part of the prefix; they may move.
 * Invariants: 1. if the client sets one mark, anywhere, none is added. 2. no message of the assistant and no text is
 * changed: a bare string becomes an array of one text block, which is what the API takes it for. 3. where another rule
 * rewrites the block as a whole, no mark is set on it. Not here: the client's own marks (tool_marker.c). */
#include "policies/canon_state.h"
#include "policies/provider.h"

#define MARK "\"cache_control\":{\"type\":\"ephemeral\"}"

enum { BLOCKS_MAX = 64 * 1024 }; /* looked at for marks of the client's; beyond, none is set */

static bool marked(const lar_json *j, uint32_t node) { return lar_json_get(j, node, "cache_control") != LAR_JSON_NONE; }

/* Counts down for each block; false at a mark, or when nothing is left. */
static bool unmarked_list(const lar_json *j, uint32_t list, uint32_t *left) {
    if (!lar_json_is(j, list, LAR_JSON_ARRAY)) return true;
    for (uint32_t b = lar_json_first(j, list); b != LAR_JSON_NONE; b = lar_json_after(j, list, b)) {
        if (*left == 0 || marked(j, b)) return false;
        --*left;
    }
    return true;
}

/* The blocks of a message, and those inside its tool results. */
static bool unmarked_content(const lar_json *j, uint32_t content, uint32_t *left) {
    if (!unmarked_list(j, content, left)) return false;
    if (!lar_json_is(j, content, LAR_JSON_ARRAY)) return true;
    for (uint32_t b = lar_json_first(j, content); b != LAR_JSON_NONE; b = lar_json_after(j, content, b)) {
        if (!unmarked_list(j, lar_json_get(j, b, "content"), left)) return false;
    }
    return true;
}

static bool client_marks(const lar_canon *c) {
    uint32_t left = BLOCKS_MAX;
    if (marked(c->json, 0) || !unmarked_list(c->json, c->view->tools, &left)) return true;
    for (uint32_t i = 0; i < c->view->segment_count; i++) {
        if (!unmarked_content(c->json, c->view->segments[i].content, &left)) return true;
    }
    return false;
}

/* Another rule rewrites what lies around that place. */
static bool rewritten(const lar_canon *c, uint32_t at) {
    for (uint32_t i = 0; i < c->out->splices.count; i++) {
        if (c->out->splices.list[i].start < at && at < c->out->splices.list[i].end) return true;
    }
    return false;
}

static lar_error found(lar_canon *c, uint32_t node) {
    const lar_json_node *n = &c->json->nodes[node];
    return lar_canon_find(
        c, (lar_finding){.rule = LAR_RULE_LR014, .node = node, .start = n->start, .end = n->end, .edited = c->apply});
}

static lar_error mark_block(lar_canon *c, uint32_t node) {
    uint32_t at = c->json->nodes[node].end - 1;
    if (rewritten(c, at)) return LAR_OK;
    lar_error e = found(c, node);
    return e || !c->apply ? e : lar_splices_add(&c->out->splices, at, at, LAR_SLICE("," MARK));
}

static lar_error mark_string(lar_canon *c, uint32_t node) {
    const lar_json_node *n = &c->json->nodes[node];
    bool empty = n->end - n->start == 2; /* the API takes no mark on an empty text */
    if (empty || rewritten(c, n->start) || rewritten(c, n->end)) return LAR_OK;
    lar_error e = found(c, node);
    if (e || !c->apply) return e;
    e = lar_splices_add(&c->out->splices, n->start, n->start, LAR_SLICE("[{\"type\":\"text\",\"text\":"));
    return e ? e : lar_splices_add(&c->out->splices, n->end, n->end, LAR_SLICE("," MARK "}]"));
}

/* A block that the API takes a mark on: of the kinds a client sends, and no empty text. */
static bool markable(const lar_json *j, uint32_t block) {
    static const char *const kinds[] = {"text", "image", "document", "tool_result", "search_result"};
    uint32_t type = lar_json_get(j, block, "type"), text = lar_json_get(j, block, "text");
    if (!lar_json_is(j, type, LAR_JSON_STRING)) return false;
    if (lar_json_eq(j, type, LAR_SLICE("text")) && lar_json_inner(j, text).len == 0) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (lar_json_eq(j, type, lar_slice_cstr(kinds[i]))) return true;
    }
    return false;
}

/* On the last block of a content that takes one. */
static lar_error mark_content(lar_canon *c, uint32_t content) {
    if (lar_json_is(c->json, content, LAR_JSON_STRING)) return mark_string(c, content);
    if (!lar_json_is(c->json, content, LAR_JSON_ARRAY)) return LAR_OK;
    uint32_t last = LAR_JSON_NONE;
    for (uint32_t b = lar_json_first(c->json, content); b != LAR_JSON_NONE; b = lar_json_after(c->json, content, b)) {
        if (markable(c->json, b)) last = b;
    }
    return last == LAR_JSON_NONE ? LAR_OK : mark_block(c, last);
}

static lar_error mark_tools(lar_canon *c) {
    uint32_t last = LAR_JSON_NONE;
    for (uint32_t t = lar_json_first(c->json, c->view->tools); t != LAR_JSON_NONE;
         t = lar_json_after(c->json, c->view->tools, t))
        last = t;
    if (!lar_json_is(c->json, last, LAR_JSON_OBJECT) || c->json->nodes[last].count == 0) return LAR_OK;
    return mark_block(c, last);
}

static uint64_t bytes_of(const lar_canon *c, uint32_t node) { return lar_json_raw(c->json, node).len; }

/* The client's last message in front of segment `end`; NONE if there is none. */
static uint32_t client_before(const lar_canon *c, uint32_t end) {
    while (end-- > 0) {
        lar_role role = c->view->segments[end].role;
        if (role == LAR_ROLE_USER || role == LAR_ROLE_TOOL) return end;
    }
    return LAR_JSON_NONE;
}

static uint32_t model_before(const lar_canon *c, uint32_t end) {
    while (end-- > 0) {
        if (c->view->segments[end].role == LAR_ROLE_ASSISTANT) return end;
    }
    return LAR_JSON_NONE;
}

lar_error lar_rule_cache_breakpoints(lar_canon *c) {
    const lar_request_view *v = c->view;
    if (v->protocol != LAR_PROTOCOL_MESSAGES || !lar_canon_rule_on(c, LAR_RULE_LR014) || client_marks(c)) return LAR_OK;
    /* A token is a byte at least: what has fewer bytes than the shortest prefix that is cached needs no mark. */
    uint64_t least =
        lar_provider_tokens_min(lar_provider_find(LAR_SLICE("anthropic")), lar_json_inner(c->json, v->model));
    uint32_t system = v->members[LAR_MEMBER_SYSTEM], list = v->members[LAR_MEMBER_MESSAGES];
    uint64_t bytes = bytes_of(c, v->tools);
    lar_error e = bytes >= least ? mark_tools(c) : LAR_OK;
    bytes += bytes_of(c, system);
    if (!e && bytes >= least) e = mark_content(c, system);
    uint32_t newest = client_before(c, v->segment_count);
    if (newest == LAR_JSON_NONE || !lar_json_is(c->json, list, LAR_JSON_ARRAY)) return e;
    uint32_t answer = model_before(c, newest), before = LAR_JSON_NONE;
    if (answer != LAR_JSON_NONE) before = client_before(c, answer);
    uint32_t start = c->json->nodes[list].start;
    const uint32_t sites[] = {before, newest};
    for (int i = 0; i < 2 && !e; i++) {
        if (sites[i] == LAR_JSON_NONE) continue;
        uint32_t end = c->json->nodes[v->segments[sites[i]].node].end;
        if (bytes + end - start >= least) e = mark_content(c, v->segments[sites[i]].content);
    }
    return e;
}
