/* Usage of one request: fed event by event or with a whole answer, asked for the counts at the end.
 *
 * Flow: the relay feeds each event's data; usage_marks.c reads ends and errors, usage_tokens.c the numbers. Loop
 * thread; never blocks. Why one reader for all protocols: fields are told by name, and upstreams mix them.
 * Invariants: 1. What is skipped unparsed could not have changed anything but `odd`. 2. A later value of a field
 * replaces an earlier one, nothing is summed but choices that count on their own. 3. Nothing here can fail a request.
 * Memory: the tree is kept from event to event; one that grew large is let go at reset.
 * Not here: framing of events (http1/sse.h), prices, the record. */
#include "gateway/usage/usage.h"

#include "gateway/usage/usage_parts.h"

enum {
    BODY_NODES_MAX = 1 << 18,        /* 5 MiB of tree */
    EMBEDDINGS_TREE_BYTES = 1 << 16, /* larger embeddings are not made into a tree: it would be of floats only */
    KEEP_NODES = 4096
};

static const lar_json_limits limits = {.depth_max = 256, .nodes_max = BODY_NODES_MAX};

void lar_usage_init(lar_usage *u, lar_usage_rule rule) {
    *u = (lar_usage){0};
    lar_json_init(&u->json);
    lar_usage_reset(u, rule);
}

void lar_usage_release(lar_usage *u) { lar_json_release(&u->json); }

void lar_usage_reset(lar_usage *u, lar_usage_rule rule) {
    lar_json kept = u->json;
    if (kept.nodes_cap > KEEP_NODES) lar_json_release(&kept);
    const int64_t none = LAR_TOKENS_UNKNOWN;
    *u = (lar_usage){.rule = rule, .json = kept, .last_choice = -1, .raw = {none, none, none, none, none, none}};
    for (int i = 0; i < LAR_USAGE_CHOICES_MAX; i++) u->choice_output[i] = none;
}

static lar_slice trim_space(lar_slice s) {
    while (s.len && (s.ptr[0] == ' ' || (s.ptr[0] >= '\t' && s.ptr[0] <= '\r'))) s.ptr++, s.len--;
    while (s.len && (s.ptr[s.len - 1] == ' ' || (s.ptr[s.len - 1] >= '\t' && s.ptr[s.len - 1] <= '\r'))) s.len--;
    return s;
}

/* Takes everything from the parsed tree. */
static void take_tree(lar_usage *u, usage_marks *m, bool *counted) {
    *counted = false;
    lar_usage_read_marks(&u->json, m);
    u->error_seen |= m->error;
    u->finished |= m->finished;
    u->done |= m->done;
    u->content_seen |= m->content;
    uint32_t node = lar_usage_find(&u->json, m);
    if (node != LAR_JSON_NONE) *counted = lar_usage_read_object(u, node, m);
}

lar_usage_kind lar_usage_event(lar_usage *u, lar_protocol p, lar_slice type, lar_slice data) {
    usage_marks m;
    bool counted, chat = p == LAR_PROTOCOL_CHAT || p == LAR_PROTOCOL_COMPLETIONS;
    data = trim_space(data);
    if (lar_slice_eq(type, LAR_SLICE("error"))) u->error_seen = true;
    if (lar_slice_eq(data, LAR_SLICE("[DONE]"))) {
        u->finished = u->done = true;
        return LAR_USAGE_DONE;
    }
    if (data.len == 0) return LAR_USAGE_OTHER;
    /* An ordinary piece of content: it can only be content, and that was noted. One that is cut short is looked at. */
    if (u->content_seen && data.ptr[0] == '{' && data.ptr[data.len - 1] == '}' && !lar_usage_may_matter(data))
        return LAR_USAGE_OTHER;
    if (lar_json_parse(&u->json, data, &limits, NULL)) {
        u->odd = true;
        return LAR_USAGE_OTHER;
    }
    if (!lar_json_is(&u->json, 0, LAR_JSON_OBJECT)) return LAR_USAGE_OTHER; /* `data: null` as keep-alive, S-17 */
    take_tree(u, &m, &counted);
    return chat && counted && m.choices_empty && !m.error ? LAR_USAGE_ONLY_CHUNK : LAR_USAGE_OTHER;
}

/* End of the object at s.ptr[0] == '{', or NULL: brackets are counted outside of strings. */
static const char *object_end(lar_slice s) {
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{') {
            depth++;
        } else if (c == '}' && --depth == 0) {
            return s.ptr + i + 1;
        }
    }
    return NULL;
}

/* An answer with too many values for a tree: its last `"usage": {...}` is read alone. In text the quotes would be
 * escaped, so what is found is a member's name. False if there is none with numbers. */
static bool take_last_usage(lar_usage *u, lar_slice body) {
    static const char name[] = "\"usage\"";
    const char *at = NULL, *end = body.ptr + body.len;
    for (const char *next = body.ptr; (next = memmem(next, (size_t)(end - next), name, sizeof name - 1)) != NULL;
         next++)
        at = next;
    if (!at) return false;
    lar_slice rest = trim_space(lar_slice_of(at + sizeof name - 1, (size_t)(end - at) - (sizeof name - 1)));
    if (rest.len == 0 || rest.ptr[0] != ':') return false;
    rest = trim_space(lar_slice_of(rest.ptr + 1, rest.len - 1));
    const char *stop = rest.len && rest.ptr[0] == '{' ? object_end(rest) : NULL;
    if (!stop || lar_json_parse(&u->json, lar_slice_of(rest.ptr, (size_t)(stop - rest.ptr)), &limits, NULL))
        return false;
    const usage_marks m = {.choice = -1};
    if (!lar_usage_read_object(u, 0, &m)) return false;
    u->finished = u->done = u->content_seen = true;
    return true;
}

void lar_usage_body(lar_usage *u, lar_protocol p, lar_slice body) {
    static const lar_slice bom = {"\xef\xbb\xbf", 3};
    usage_marks m;
    bool counted;
    body = trim_space(body);
    if (lar_slice_starts(body, bom)) body = trim_space(lar_slice_of(body.ptr + 3, body.len - 3));
    if (body.len == 0) return;
    if (p == LAR_PROTOCOL_EMBEDDINGS && body.len > EMBEDDINGS_TREE_BYTES && take_last_usage(u, body)) return;
    lar_error e = lar_json_parse(&u->json, body, &limits, NULL);
    if (e == LAR_JSON_SIZE) {
        if (!take_last_usage(u, body)) u->odd = true;
    } else if (e) {
        u->odd = true;
    } else if (lar_json_is(&u->json, 0, LAR_JSON_OBJECT)) {
        take_tree(u, &m, &counted);
        u->finished = u->done = true;
    }
}
