/* Marks in an event or answer: is it an error, an end, content? And the cheap look that spares most events a parse.
 *
 * Called by usage.c with a parsed tree or raw data. Loop thread; never blocks; no memory.
 * Why by names and not by protocol: a protocol's upstream may answer in another's words (errors most of all), and the
 * names do not collide. Sources: OpenAI chat, completions and responses references, Anthropic streaming, Gemini REST.
 * Invariant: whatever lar_usage_read_marks takes for an error or an end, lar_usage_may_matter lets through.
 * Not here: numbers (usage_tokens.c). */
#include "gateway/usage/usage_parts.h"

/* A member that holds something: not absent, null, false, "" or []. */
static bool holds(const lar_json *j, uint32_t object, const char *name) {
    uint32_t node = lar_json_get_last(j, object, name);
    if (node == LAR_JSON_NONE) return false;
    switch (lar_json_kind_of(j, node)) {
    case LAR_JSON_NULL:
    case LAR_JSON_FALSE: return false;
    case LAR_JSON_STRING: return lar_json_inner(j, node).len > 0;
    case LAR_JSON_ARRAY: return j->nodes[node].count > 0;
    default: return true;
    }
}

static bool has(const lar_json *j, uint32_t object, const char *name) {
    return lar_json_get(j, object, name) != LAR_JSON_NONE;
}

static bool named(const lar_json *j, uint32_t object, const char *name, const char *value) {
    return lar_json_eq(j, lar_json_get_last(j, object, name), lar_slice_cstr(value));
}

/* S-15, H-47, R-10: every shape in which a failure was seen to come with status 200. */
static bool is_error(const lar_json *j, uint32_t response) {
    if (holds(j, 0, "error") || holds(j, response, "error")) return true;
    if (named(j, 0, "object", "error") || named(j, 0, "type", "error")) return true;
    if (named(j, 0, "type", "response.failed") || named(j, response, "status", "failed")) return true;
    if (named(j, 0, "object", "response") && named(j, 0, "status", "failed")) return true;
    return holds(j, 0, "detail") && !has(j, 0, "choices") && !has(j, 0, "content") && !has(j, 0, "output") &&
           !has(j, 0, "data") && !has(j, 0, "type") && !has(j, 0, "object");
}

/* `delta` of a chunk or `message` of an answer. */
static bool has_content(const lar_json *j, uint32_t message) {
    static const char *const names[] = {"content",       "tool_calls", "reasoning_content", "reasoning",
                                        "function_call", "refusal",    "audio"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (holds(j, message, names[i])) return true;
    return false;
}

static void read_choices(const lar_json *j, usage_marks *m) {
    uint32_t choices = lar_json_get_last(j, 0, "choices");
    if (!lar_json_is(j, choices, LAR_JSON_ARRAY)) return;
    m->choices_empty = j->nodes[choices].count == 0;
    for (uint32_t c = lar_json_first(j, choices); c != LAR_JSON_NONE; c = lar_json_after(j, choices, c)) {
        m->finished |= holds(j, c, "finish_reason");
        m->content |= has_content(j, lar_json_get_last(j, c, "delta")) ||
                      has_content(j, lar_json_get_last(j, c, "message")) || holds(j, c, "text");
    }
    uint64_t index = 0;
    if (j->nodes[choices].count == 1) {
        uint32_t node = lar_json_get_last(j, choices + 1, "index");
        if (node == LAR_JSON_NONE || (lar_json_u64(j, node, &index) && index < LAR_USAGE_CHOICES_MAX))
            m->choice = (int32_t)index;
    }
}

/* Gemini's chunks. */
static void read_candidates(const lar_json *j, usage_marks *m) {
    uint32_t all = lar_json_get_last(j, 0, "candidates");
    if (!lar_json_is(j, all, LAR_JSON_ARRAY)) return;
    for (uint32_t c = lar_json_first(j, all); c != LAR_JSON_NONE; c = lar_json_after(j, all, c)) {
        m->finished |= holds(j, c, "finishReason");
        m->content |= holds(j, lar_json_get_last(j, c, "content"), "parts");
    }
}

static bool ends_with(lar_slice s, lar_slice tail) {
    return s.len >= tail.len && memcmp(s.ptr + s.len - tail.len, tail.ptr, tail.len) == 0;
}

/* Events that carry their kind in `type`: Anthropic's and those of the responses protocol. */
static void read_type(const lar_json *j, usage_marks *m) {
    lar_slice type = lar_json_inner(j, lar_json_get_last(j, 0, "type"));
    if (lar_slice_eq_cstr(type, "message_stop") || lar_slice_eq_cstr(type, "response.completed") ||
        lar_slice_eq_cstr(type, "response.failed") || lar_slice_eq_cstr(type, "response.incomplete"))
        m->finished = m->done = true;
    if (lar_slice_eq_cstr(type, "message_delta"))
        m->finished |= holds(j, lar_json_get_last(j, 0, "delta"), "stop_reason");
    if (lar_slice_eq_cstr(type, "content_block_delta") ||
        (lar_slice_starts(type, LAR_SLICE("response.")) && ends_with(type, LAR_SLICE(".delta"))))
        m->content = true;
    if (lar_slice_eq_cstr(type, "content_block_start"))
        m->content |= named(j, lar_json_get_last(j, 0, "content_block"), "type", "tool_use");
}

void lar_usage_read_marks(const lar_json *j, usage_marks *m) {
    *m = (usage_marks){.choice = -1};
    m->error = is_error(j, lar_json_get_last(j, 0, "response"));
    read_choices(j, m);
    read_candidates(j, m);
    read_type(j, m);
    /* Whole answers: Anthropic's `content`, the responses protocol's `output`, embeddings' `data`. */
    m->content |= holds(j, 0, "content") || holds(j, 0, "output") || holds(j, 0, "data");
}

/* Strings, names or values, that make an event worth parsing. `"error"` covers {"type":"error"} too. */
static const lar_slice worth[] = {
    {"usage\"", 6},       {"usageMetadata\"", 14},       {"finish_reason\"", 14},   {"finishReason\"", 13},
    {"error\"", 6},       {"detail\"", 7},               {"stop_reason\"", 12},     {"message_stop\"", 13},
    {"status\"", 7},      {"response.completed\"", 19},  {"response.failed\"", 16}, {"response.incomplete\"", 20}};

static bool begins_worth(char c) {
    switch (c) {
    case 'd': case 'e': case 'f': case 'm': case 'r': case 's': case 'u': return true;
    default: return false;
    }
}

/* Behind a name: `: null` or `: ""`, which say nothing. */
static bool says_nothing(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    if (at == end || *at++ != ':') return false;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    size_t left = (size_t)(end - at);
    return (left >= 4 && memcmp(at, "null", 4) == 0) || (left >= 2 && memcmp(at, "\"\"", 2) == 0);
}

/* Looks at the text behind every quote. Text inside a string has its quotes escaped, so it can only match by beginning
 * right at one, which costs a parse and no more. A name whose letters are written as \u escapes is not seen; no
 * serialiser writes ASCII letters so, and the price would be an unknown count, not a wrong one. */
bool lar_usage_may_matter(lar_slice data) {
    const char *at = data.ptr, *end = at + data.len;
    while (at < end && (at = memchr(at, '"', (size_t)(end - at))) != NULL) {
        if (++at == end) break;
        if (!begins_worth(*at)) continue;
        for (size_t i = 0; i < sizeof worth / sizeof *worth; i++) {
            const lar_slice *w = &worth[i];
            if (*at == w->ptr[0] && (size_t)(end - at) >= w->len && memcmp(at, w->ptr, w->len) == 0 &&
                !says_nothing(at + w->len, end))
                return true;
        }
    }
    return false;
}
