/* Marks in an event or answer: is it an error, an end, content? And the cheap look that spares most events a parse.
 *
 * Called by usage.c with a parsed tree or raw data. Loop thread; never blocks; no memory.
 * Why by names and not by protocol: a protocol's upstream may answer in another's words (errors most of all), and the
 * names do not collide. Sources: OpenAI chat, completions and responses references, Anthropic streaming, Gemini REST.
 * Invariant: whatever lar_usage_read_marks takes for an error or an end, lar_usage_may_matter lets through.
 * Not here: numbers (usage_tokens.c). */
#include "gateway/usage/usage_parts.h"

uint32_t lar_usage_find_escaped(const lar_json *j, uint32_t key, const usage_names *names) {
    uint32_t i = 0;
    while (i < names->count && !lar_json_eq(j, key, names->names[i])) i++;
    return i;
}

static uint32_t find_root(const char *key, size_t len) {
#define MATCH(length, id, name) USAGE_MATCH(length, name, USAGE_ROOT_##id)
    switch (len) {
        USAGE_NAMES_OF(USAGE_ROOT, 4)
        USAGE_NAMES_OF(USAGE_ROOT, 5)
        USAGE_NAMES_OF(USAGE_ROOT, 6)
        USAGE_NAMES_OF(USAGE_ROOT, 7)
        USAGE_NAMES_OF(USAGE_ROOT, 8)
        USAGE_NAMES_OF(USAGE_ROOT, 10)
        USAGE_NAMES_OF(USAGE_ROOT, 13)
    default: break;
    }
#undef MATCH
    return USAGE_ROOT_COUNT;
}

#define X(len, id, name) {name, len},
static const lar_slice root_texts[USAGE_ROOT_COUNT] = {USAGE_ROOT(X)};
#undef X
static const usage_names root_names = {root_texts, USAGE_ROOT_COUNT, find_root};

/* A value that says something: not absent, null, false, "", [] or {}. */
static inline bool says(const lar_json *j, uint32_t node) {
    if (node == LAR_JSON_NONE) return false;
    switch (lar_json_kind_of(j, node)) {
    case LAR_JSON_NULL:
    case LAR_JSON_FALSE: return false;
    case LAR_JSON_STRING: return j->nodes[node].end - j->nodes[node].start > 2;
    case LAR_JSON_ARRAY:
    case LAR_JSON_OBJECT: return j->nodes[node].count > 0;
    default: return true;
    }
}

static bool holds(const lar_json *j, uint32_t object, const char *name) {
    return object != LAR_JSON_NONE && says(j, lar_json_get_last(j, object, name));
}

static inline bool reads(const lar_json *j, uint32_t node, lar_slice text) {
    return node != LAR_JSON_NONE && lar_json_eq(j, node, text);
}

/* S-15, H-47, R-10: every shape in which a failure was seen to come with status 200. */
static bool is_error(const lar_json *j, const usage_marks *m) {
    const uint32_t *r = m->root;
    const lar_slice error = LAR_SLICE("error"), failed = LAR_SLICE("failed");
    uint32_t response = r[USAGE_ROOT_RESPONSE], type = r[USAGE_ROOT_TYPE], object = r[USAGE_ROOT_OBJECT];
    if (says(j, r[USAGE_ROOT_ERROR]) || holds(j, response, "error")) return true;
    if (reads(j, object, error) || reads(j, type, error)) return true;
    if (reads(j, type, LAR_SLICE("response.failed"))) return true;
    if (response != LAR_JSON_NONE && reads(j, lar_json_get_last(j, response, "status"), failed)) return true;
    if (reads(j, object, LAR_SLICE("response")) && reads(j, r[USAGE_ROOT_STATUS], failed)) return true;
    if (!says(j, r[USAGE_ROOT_DETAIL])) return false;
    static const usage_root answers[] = {USAGE_ROOT_CHOICES, USAGE_ROOT_CONTENT, USAGE_ROOT_OUTPUT,
                                         USAGE_ROOT_DATA,    USAGE_ROOT_TYPE,    USAGE_ROOT_OBJECT};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (r[answers[i]] != LAR_JSON_NONE) return false;
    return true;
}

#define CHOICE_4(X) X(4, TEXT, "text")
#define CHOICE_5(X) X(5, DELTA, "delta") X(5, INDEX, "index")
#define CHOICE_7(X) X(7, MESSAGE, "message")
#define CHOICE_13(X) X(13, FINISH, "finish_reason")
#define CHOICE(X) CHOICE_4(X) CHOICE_5(X) CHOICE_7(X) CHOICE_13(X)
enum {
#define X(len, id, name) CHOICE_##id,
    CHOICE(X)
#undef X
        CHOICE_COUNT
};

static uint32_t find_choice(const char *key, size_t len) {
#define MATCH(length, id, name) USAGE_MATCH(length, name, CHOICE_##id)
    switch (len) {
        USAGE_NAMES_OF(CHOICE, 4)
        USAGE_NAMES_OF(CHOICE, 5)
        USAGE_NAMES_OF(CHOICE, 7)
        USAGE_NAMES_OF(CHOICE, 13)
    default: break;
    }
#undef MATCH
    return CHOICE_COUNT;
}

#define X(len, id, name) {name, len},
static const lar_slice choice_texts[CHOICE_COUNT] = {CHOICE(X)};
#undef X
static const usage_names choice_names = {choice_texts, CHOICE_COUNT, find_choice};

/* Of `delta` in a chunk or `message` in an answer. */
#define CONTENT_5(X) X(5, AUDIO, "audio")
#define CONTENT_7(X) X(7, CONTENT, "content") X(7, REFUSAL, "refusal")
#define CONTENT_9(X) X(9, REASONING, "reasoning")
#define CONTENT_10(X) X(10, TOOLS, "tool_calls")
#define CONTENT_13(X) X(13, FUNCTION, "function_call")
#define CONTENT_17(X) X(17, THOUGHTS, "reasoning_content")
#define CONTENT(X) CONTENT_5(X) CONTENT_7(X) CONTENT_9(X) CONTENT_10(X) CONTENT_13(X) CONTENT_17(X)
enum {
#define X(len, id, name) CONTENT_##id,
    CONTENT(X)
#undef X
        CONTENT_COUNT
};

static uint32_t find_content(const char *key, size_t len) {
#define MATCH(length, id, name) USAGE_MATCH(length, name, CONTENT_##id)
    switch (len) {
        USAGE_NAMES_OF(CONTENT, 5)
        USAGE_NAMES_OF(CONTENT, 7)
        USAGE_NAMES_OF(CONTENT, 9)
        USAGE_NAMES_OF(CONTENT, 10)
        USAGE_NAMES_OF(CONTENT, 13)
        USAGE_NAMES_OF(CONTENT, 17)
    default: break;
    }
#undef MATCH
    return CONTENT_COUNT;
}

#define X(len, id, name) {name, len},
static const lar_slice content_texts[CONTENT_COUNT] = {CONTENT(X)};
#undef X
static const usage_names content_names = {content_texts, CONTENT_COUNT, find_content};

static bool has_content(const lar_json *j, uint32_t message) {
    uint32_t nodes[CONTENT_COUNT];
    if (message == LAR_JSON_NONE) return false;
    lar_usage_members(j, message, &content_names, nodes);
    for (size_t i = 0; i < CONTENT_COUNT; i++)
        if (says(j, nodes[i])) return true;
    return false;
}

static void read_choices(const lar_json *j, usage_marks *m) {
    uint32_t choices = m->root[USAGE_ROOT_CHOICES], node[CHOICE_COUNT] = {0};
    if (!lar_json_is(j, choices, LAR_JSON_ARRAY)) return;
    m->choices_empty = j->nodes[choices].count == 0;
    for (uint32_t c = lar_json_first(j, choices); c != LAR_JSON_NONE; c = lar_json_after(j, choices, c)) {
        lar_usage_members(j, c, &choice_names, node);
        m->finished |= says(j, node[CHOICE_FINISH]);
        m->content |=
            has_content(j, node[CHOICE_DELTA]) || has_content(j, node[CHOICE_MESSAGE]) || says(j, node[CHOICE_TEXT]);
    }
    uint64_t index = 0;
    if (j->nodes[choices].count != 1) return;
    if (node[CHOICE_INDEX] == LAR_JSON_NONE ||
        (lar_json_u64(j, node[CHOICE_INDEX], &index) && index < LAR_USAGE_CHOICES_MAX))
        m->choice = (int32_t)index;
}

/* Gemini's chunks. */
static void read_candidates(const lar_json *j, usage_marks *m) {
    uint32_t all = m->root[USAGE_ROOT_CANDIDATES];
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
    lar_slice type = lar_json_inner(j, m->root[USAGE_ROOT_TYPE]);
    if (type.len == 0) return;
    if (lar_slice_eq_cstr(type, "message_stop") || lar_slice_eq_cstr(type, "response.completed") ||
        lar_slice_eq_cstr(type, "response.failed") || lar_slice_eq_cstr(type, "response.incomplete"))
        m->finished = m->done = true;
    if (lar_slice_eq_cstr(type, "message_delta")) m->finished |= holds(j, m->root[USAGE_ROOT_DELTA], "stop_reason");
    if (lar_slice_eq_cstr(type, "content_block_delta") ||
        (lar_slice_starts(type, LAR_SLICE("response.")) && ends_with(type, LAR_SLICE(".delta"))))
        m->content = true;
    if (lar_slice_eq_cstr(type, "content_block_start"))
        m->content |= reads(j, lar_json_get_last(j, m->root[USAGE_ROOT_BLOCK], "type"), LAR_SLICE("tool_use"));
}

void lar_usage_read_marks(const lar_json *j, usage_marks *m) {
    *m = (usage_marks){.choice = -1};
    lar_usage_members(j, 0, &root_names, m->root);
    m->error = is_error(j, m);
    read_choices(j, m);
    read_candidates(j, m);
    read_type(j, m);
    /* Whole answers: Anthropic's `content`, the responses protocol's `output`, embeddings' `data`. */
    m->content |= says(j, m->root[USAGE_ROOT_CONTENT]) || says(j, m->root[USAGE_ROOT_OUTPUT]) ||
                  says(j, m->root[USAGE_ROOT_DATA]);
}

/* Strings, names or values, that make an event worth parsing. `"error"` covers {"type":"error"} too. */
static const lar_slice worth[] = {{"usage\"", 6},
                                  {"usageMetadata\"", 14},
                                  {"finish_reason\"", 14},
                                  {"finishReason\"", 13},
                                  {"error\"", 6},
                                  {"detail\"", 7},
                                  {"stop_reason\"", 12},
                                  {"message_stop\"", 13},
                                  {"status\"", 7},
                                  {"response.completed\"", 19},
                                  {"response.failed\"", 16},
                                  {"response.incomplete\"", 20}};

static bool begins_worth(char c) {
    switch (c) {
    case 'd':
    case 'e':
    case 'f':
    case 'm':
    case 'r':
    case 's':
    case 'u': return true;
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
