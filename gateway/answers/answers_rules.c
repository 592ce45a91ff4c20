/* What may be kept: of requests by their members, of answers by how the model ended.
 * Called by exchange_answers.c, when a request is prepared and when its answer has reached the client. Any thread;
 * pure. Why a list of good endings and not of bad ones: providers have names of their own for answers that they broke
 * off (DeepSeek's insufficient_system_resource, vLLM's abort), and a name that is not known costs only a miss.
 * Sources: OpenAI chat, completions and responses references; Anthropic messages and server tools references.
 * Invariant: a member that stands there twice, or is of another type than it should be, is a reason not to keep.
 * Memory: none; a tree for the answer of one protocol. Not here: the transfer's own end (relay.c). */
#include "gateway/answers/answers_rules.h"

/* -- requests ---------------------------------------------------------------------------------------------------- */

/* Not there, or null, false, [] or {}: asks for nothing. */
static bool silent(const lar_json *j, const char *name) {
    uint32_t count = lar_json_get_count(j, 0, name), node = lar_json_get(j, 0, name);
    if (count == 0) return true;
    if (count > 1) return false;
    lar_json_kind kind = lar_json_kind_of(j, node);
    if (kind == LAR_JSON_ARRAY || kind == LAR_JSON_OBJECT) return j->nodes[node].count == 0;
    return kind == LAR_JSON_NULL || kind == LAR_JSON_FALSE;
}

static bool greedy(const lar_json *j) {
    uint32_t node = lar_json_get(j, 0, "temperature");
    double t;
    return lar_json_get_count(j, 0, "temperature") == 1 && lar_json_double(j, node, &t) && t == 0;
}

static bool starts(const lar_json *j, uint32_t node, const char *text) {
    return lar_slice_starts(lar_json_inner(j, node), lar_slice_cstr(text));
}

/* The client runs it: a function of its own, or one of Anthropic's that need its machine. What the provider runs may
 * find something else the next time, or do something. */
static bool client_runs(const lar_json *j, lar_protocol p, uint32_t tool) {
    uint32_t type = lar_json_get(j, tool, "type");
    if (!lar_json_is(j, tool, LAR_JSON_OBJECT) || lar_json_get_count(j, tool, "type") > 1) return false;
    if (p == LAR_PROTOCOL_MESSAGES && (type == LAR_JSON_NONE || lar_json_is(j, type, LAR_JSON_NULL))) return true;
    if (lar_json_eq(j, type, LAR_SLICE("function")) || lar_json_eq(j, type, LAR_SLICE("custom"))) return true;
    return p == LAR_PROTOCOL_MESSAGES && (starts(j, type, "bash_") || starts(j, type, "text_editor_") ||
                                          starts(j, type, "computer_") || starts(j, type, "memory_"));
}

static bool client_runs_all(const lar_request_view *v) {
    const lar_json *j = v->json;
    if (silent(j, "tools")) return true;
    uint32_t tools = lar_json_get(j, 0, "tools");
    if (!lar_json_is(j, tools, LAR_JSON_ARRAY)) return false;
    for (uint32_t t = lar_json_first(j, tools); t != LAR_JSON_NONE; t = lar_json_after(j, tools, t))
        if (!client_runs(j, v->protocol, t)) return false;
    return true;
}

/* `store` is true where it is not said. */
static bool not_stored(const lar_json *j) {
    return lar_json_get_count(j, 0, "store") == 1 && lar_json_is(j, lar_json_get(j, 0, "store"), LAR_JSON_FALSE);
}

bool lar_answers_may_keep(const lar_request_view *v, lar_answers_sampling sampling) {
    const lar_json *j = v->json;
    if (v->protocol == LAR_PROTOCOL_EMBEDDINGS) return true; /* nothing is drawn there */
    if (sampling == LAR_ANSWERS_GREEDY_ONLY && !greedy(j)) return false;
    switch (v->protocol) {
    case LAR_PROTOCOL_CHAT: return silent(j, "store") && silent(j, "web_search_options") && client_runs_all(v);
    case LAR_PROTOCOL_COMPLETIONS: return true;
    case LAR_PROTOCOL_RESPONSES:
        return not_stored(j) && silent(j, "previous_response_id") && silent(j, "conversation") &&
               silent(j, "background") && silent(j, "prompt") && client_runs_all(v);
    case LAR_PROTOCOL_MESSAGES: return silent(j, "mcp_servers") && silent(j, "container") && client_runs_all(v);
    case LAR_PROTOCOL_NONE:
    case LAR_PROTOCOL_EMBEDDINGS:
    case LAR_PROTOCOL_COUNT: break;
    }
    return false;
}

/* -- answers ----------------------------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* The next member of that name (quotes included) with a string as value, anywhere in the text; in a string's text the
 * quotes would be escaped. Empty at the end; *at is behind it. *others: members of the name with other values were
 * passed over. */
static lar_slice next_value(lar_slice text, lar_slice name, size_t *at, bool *others) {
    const char *end = text.ptr + text.len;
    while (*at < text.len) {
        const char *found = memmem(text.ptr + *at, text.len - *at, name.ptr, name.len);
        if (!found) break;
        const char *p = found + name.len;
        *at = (size_t)(p - text.ptr);
        while (p < end && is_blank(*p)) p++;
        if (p == end || *p != ':' || (found > text.ptr && found[-1] == '\\')) continue;
        do p++;
        while (p < end && is_blank(*p));
        if (p == end || *p != '"') { /* null: there is more to come */
            *others = true;
            continue;
        }
        const char *close = memchr(p + 1, '"', (size_t)(end - p - 1));
        if (!close) break;
        *at = (size_t)(close + 1 - text.ptr);
        return lar_slice_of(p + 1, (size_t)(close - p - 1));
    }
    *at = text.len;
    return (lar_slice){NULL, 0};
}

/* Each that is there is known; and where all that came is null, the end is missing. */
static bool all_known(lar_slice body, lar_slice name, const char *const *known) {
    bool any = false, others = false;
    for (size_t at = 0; at < body.len; any = true) {
        lar_slice value = next_value(body, name, &at, &others);
        if (!value.ptr) break;
        const char *const *k = known;
        while (*k && !lar_slice_eq_cstr(value, *k)) k++;
        if (!*k) return false;
    }
    return any || !others;
}

static bool response_completed(lar_slice body) {
    lar_json j;
    lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_json_init(&j);
    bool completed = lar_json_parse(&j, body, &limits, NULL) == LAR_OK && lar_json_get_count(&j, 0, "status") == 1 &&
                     lar_json_eq(&j, lar_json_get(&j, 0, "status"), LAR_SLICE("completed"));
    lar_json_release(&j);
    return completed;
}

/* The stream's last event says which of its three ends it is. */
static bool stream_completed(lar_slice body) {
    lar_slice last = {NULL, 0};
    bool others = false;
    for (size_t at = 0; at < body.len;) {
        lar_slice type = next_value(body, LAR_SLICE("\"type\""), &at, &others);
        if (lar_slice_starts(type, LAR_SLICE("response.completed")) ||
            lar_slice_starts(type, LAR_SLICE("response.incomplete")) ||
            lar_slice_starts(type, LAR_SLICE("response.failed")))
            last = type;
    }
    return lar_slice_eq_cstr(last, "response.completed");
}

bool lar_answers_is_whole(lar_protocol p, lar_answers_form form, lar_slice body) {
    static const char *const finish[] = {"stop",           "length",    "tool_calls",    "function_call",
                                         "content_filter", "eos_token", "stop_sequence", NULL};
    static const char *const stop[] = {"end_turn", "max_tokens", "stop_sequence",
                                       "tool_use", "refusal",    "model_context_window_exceeded",
                                       NULL};
    switch (p) {
    case LAR_PROTOCOL_CHAT:
    case LAR_PROTOCOL_COMPLETIONS: return all_known(body, LAR_SLICE("\"finish_reason\""), finish);
    case LAR_PROTOCOL_MESSAGES: return all_known(body, LAR_SLICE("\"stop_reason\""), stop);
    case LAR_PROTOCOL_RESPONSES: return form == LAR_ANSWERS_STREAM ? stream_completed(body) : response_completed(body);
    case LAR_PROTOCOL_EMBEDDINGS: return true;
    case LAR_PROTOCOL_NONE:
    case LAR_PROTOCOL_COUNT: break;
    }
    return false;
}
