/* What a record means: which of its parts are a request, an answer, a time (header: request_log.h).
 * Flow: request_log.c parses a record and asks for its requests until there are no more. Pure but for the log's own
 * buffers.
 * Field names are those that LiteLLM's logging specification and Langfuse's API and export references give.
 * Invariants: 1. a body is bytes of the record or bytes copied from it, never printed anew: what is found in it lies in
 * the file. 2. A record is the first form of form_of's list that it could be. Memory: the log's own. */
#include <stdlib.h>
#include <string.h>

#include "gateway/commands/query.h"
#include "gateway/commands/request_log_parts.h"

typedef struct forming {
    lar_request_log *l;
    lar_log_request *out;
    lar_diag *d;
    const lar_json *j;
    uint32_t record;
} forming;

static uint32_t get(const forming *f, const char *name) { return lar_json_get(f->j, f->record, name); }
static bool has(const forming *f, const char *name) { return get(f, name) != LAR_JSON_NONE; }

/* The first of these members that is there and not null. */
static uint32_t first_of(const forming *f, const char *const *names) {
    for (; *names; names++) {
        uint32_t node = get(f, *names);
        if (node != LAR_JSON_NONE && !lar_json_is(f->j, node, LAR_JSON_NULL)) return node;
    }
    return LAR_JSON_NONE;
}

bool lar_log_is_messages(const lar_json *j, uint32_t node) {
    if (!lar_json_is(j, node, LAR_JSON_ARRAY) || j->nodes[node].count == 0) return false;
    for (uint32_t m = lar_json_first(j, node); m != LAR_JSON_NONE; m = lar_json_after(j, node, m))
        if (!lar_json_is(j, lar_json_get(j, m, "role"), LAR_JSON_STRING)) return false;
    return true;
}

static bool role_is(const lar_json *j, uint32_t message, const char *role) {
    return lar_json_eq(j, lar_json_get(j, message, "role"), lar_slice_cstr(role));
}

static bool contains(const lar_json *j, uint32_t node, const char *part) {
    lar_slice s = lar_json_inner(j, node);
    return s.len && memmem(s.ptr, s.len, part, strlen(part)) != NULL;
}

/* -- building a body ---------------------------------------------------------------------------------- */

static lar_error origin(lar_request_log *l, size_t source, bool copied) {
    if (l->origin_count == l->origin_cap) {
        uint32_t cap = l->origin_cap ? l->origin_cap * 2 : 32;
        lar_log_origin *more = realloc(l->origins, cap * sizeof *more);
        if (!more) return LAR_NO_MEMORY;
        l->origins = more;
        l->origin_cap = cap;
    }
    l->origins[l->origin_count++] = (lar_log_origin){l->body.len, source, copied};
    return LAR_OK;
}

/* Text that is in no file: its place is the record's. */
static lar_error literal(const forming *f, const char *text) {
    lar_error e = origin(f->l, f->j->nodes[f->record].start, false);
    return e ? e : lar_buf_add(&f->l->body, text, strlen(text));
}

/* Bytes of the record. */
static lar_error copy(const forming *f, uint32_t start, uint32_t end) {
    lar_error e = origin(f->l, start, true);
    return e ? e : lar_buf_add(&f->l->body, f->j->body.ptr + start, end - start);
}

/* ,"name":value, or without the comma at the beginning of the body. */
static lar_error member(const forming *f, const char *name, uint32_t node) {
    if (node == LAR_JSON_NONE) return LAR_OK;
    lar_error e = literal(f, f->l->body.len > 1 ? ",\"" : "\"");
    if (!e) e = literal(f, name);
    if (!e) e = literal(f, "\":");
    return e ? e : copy(f, f->j->nodes[node].start, f->j->nodes[node].end);
}

static bool is_one_of(const lar_json *j, uint32_t key, const char *const *names) {
    for (; *names; names++)
        if (lar_json_eq(j, key, lar_slice_cstr(*names))) return true;
    return false;
}

/* All members of an object but those named; null ones are left out. */
static lar_error members(const forming *f, uint32_t object, const char *const *but) {
    const lar_json *j = f->j;
    if (!lar_json_is(j, object, LAR_JSON_OBJECT)) return LAR_OK;
    lar_error e = LAR_OK;
    for (uint32_t k = lar_json_first(j, object); k != LAR_JSON_NONE && !e; k = lar_json_after(j, object, k)) {
        if (is_one_of(j, k, but) || lar_json_is(j, k + 1, LAR_JSON_NULL)) continue;
        if (f->l->body.len > 1) e = literal(f, ",");
        if (!e) e = copy(f, j->nodes[k].start, j->nodes[k + 1].end);
    }
    return e;
}

static lar_error begin_body(const forming *f) {
    f->l->body.len = 0;
    f->l->origin_count = 0;
    return literal(f, "{");
}

static lar_error end_body(const forming *f) {
    lar_error e = literal(f, "}");
    f->out->body = lar_buf_slice(&f->l->body);
    return e;
}

/* A body that stands in the record as it is. */
static lar_error take_body(const forming *f, uint32_t node) {
    f->l->body.len = 0;
    f->l->origin_count = 0;
    f->out->body = lar_json_raw(f->j, node);
    return origin(f->l, f->j->nodes[node].start, true);
}

/* -- protocol, time, answer ---------------------------------------------------------------------------- */

static lar_protocol protocol_of_url(const lar_json *j, uint32_t url) {
    static const struct {
        const char *part;
        lar_protocol protocol;
    } parts[] = {{"/chat/completions", LAR_PROTOCOL_CHAT},
                 {"/completions", LAR_PROTOCOL_COMPLETIONS},
                 {"/responses", LAR_PROTOCOL_RESPONSES},
                 {"/messages", LAR_PROTOCOL_MESSAGES},
                 {"/embeddings", LAR_PROTOCOL_EMBEDDINGS}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (contains(j, url, parts[i].part)) return parts[i].protocol;
    return LAR_PROTOCOL_NONE;
}

static bool has_blocks_of_anthropic(const lar_json *j, uint32_t messages) {
    static const char *const types[] = {"tool_use", "tool_result", "thinking", NULL};
    for (uint32_t m = lar_json_first(j, messages); m != LAR_JSON_NONE; m = lar_json_after(j, messages, m)) {
        uint32_t content = lar_json_get(j, m, "content");
        if (role_is(j, m, "system") || !lar_json_is(j, content, LAR_JSON_ARRAY)) continue;
        for (uint32_t p = lar_json_first(j, content); p != LAR_JSON_NONE; p = lar_json_after(j, content, p))
            if (is_one_of(j, lar_json_get(j, p, "type"), types)) return true;
    }
    return false;
}

static bool has_system_message(const lar_json *j, uint32_t messages) {
    uint32_t m = lar_json_first(j, messages);
    return m != LAR_JSON_NONE && (role_is(j, m, "system") || role_is(j, m, "developer"));
}

/* Messages of Anthropic's API: a top-level system text, tools with input_schema, its content blocks, or one of its own
 * model names with no system message. */
static bool is_anthropic(const lar_json *j, uint32_t body, uint32_t messages) {
    uint32_t tool = lar_json_first(j, lar_json_get(j, body, "tools"));
    if (lar_json_get(j, body, "system") != LAR_JSON_NONE || lar_json_get(j, body, "anthropic_version") != LAR_JSON_NONE)
        return true;
    if (tool != LAR_JSON_NONE && lar_json_get(j, tool, "input_schema") != LAR_JSON_NONE) return true;
    if (has_blocks_of_anthropic(j, messages)) return true;
    bool claude = lar_slice_starts(lar_json_inner(j, lar_json_get(j, body, "model")), LAR_SLICE("claude"));
    return claude && !has_system_message(j, messages);
}

static lar_protocol natural(const forming *f, uint32_t body, uint32_t url) {
    const lar_json *j = f->j;
    lar_protocol p = protocol_of_url(j, url);
    if (p != LAR_PROTOCOL_NONE) return p;
    uint32_t messages = lar_json_get(j, body, "messages"), model = lar_json_get(j, body, "model");
    if (messages != LAR_JSON_NONE) return is_anthropic(j, body, messages) ? LAR_PROTOCOL_MESSAGES : LAR_PROTOCOL_CHAT;
    if (lar_json_get(j, body, "input") != LAR_JSON_NONE)
        return contains(j, model, "embed") ? LAR_PROTOCOL_EMBEDDINGS : LAR_PROTOCOL_RESPONSES;
    return lar_json_get(j, body, "prompt") != LAR_JSON_NONE ? LAR_PROTOCOL_COMPLETIONS : LAR_PROTOCOL_NONE;
}

/* A protocol that was chosen counts wherever there is a request at all. */
static lar_protocol guess(const forming *f, uint32_t body, uint32_t url) {
    lar_protocol p = natural(f, body, url);
    return p != LAR_PROTOCOL_NONE && f->l->o.protocol != LAR_PROTOCOL_NONE ? f->l->o.protocol : p;
}

/* Seconds, milliseconds or a date of ISO 8601; 0 for anything else. */
static int64_t read_time(const lar_json *j, uint32_t node) {
    double number;
    char text[48];
    int64_t ms;
    if (lar_json_double(j, node, &number)) {
        if (number < 1e8 || number > 1e17) return 0;
        while (number > 1e14) number /= 1000; /* microseconds and less */
        return (int64_t)(number < 1e11 ? number * 1000 : number);
    }
    lar_slice s = lar_json_inner(j, node);
    if (s.len < 10 || s.len >= sizeof text || s.ptr[4] != '-') return 0;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    return lar_query_time(text, 0, &ms) && ms > 0 ? ms : 0;
}

static int64_t time_of(const forming *f) {
    static const char *const names[] = {"startTime", "start_time", "time_ms", "timestamp",
                                        "time",      "created_at", "created", NULL};
    return read_time(f->j, first_of(f, names));
}

/* The message in a response of any protocol, or the items of one. */
static uint32_t answer_in(const lar_json *j, uint32_t response) {
    uint32_t body = lar_json_get(j, response, "body");
    if (lar_json_is(j, body, LAR_JSON_OBJECT)) response = body;
    uint32_t choice = lar_json_first(j, lar_json_get(j, response, "choices"));
    uint32_t message = choice == LAR_JSON_NONE ? choice : lar_json_get(j, choice, "message");
    if (lar_json_is(j, message, LAR_JSON_OBJECT)) return message;
    uint32_t output = lar_json_get(j, response, "output");
    if (lar_json_is(j, output, LAR_JSON_ARRAY)) return output;
    return role_is(j, response, "assistant") ? response : LAR_JSON_NONE;
}

static void take_answer(const forming *f, uint32_t response) {
    f->out->response = response;
    f->out->answer_json = f->j;
    f->out->answer = answer_in(f->j, response);
}

/* -- forms ------------------------------------------------------------------------------------------------ */

static lar_error pass(const forming *f) {
    f->l->passed++;
    return LAR_NOT_FOUND;
}

/* One request to a record. */
static lar_error only(const forming *f, lar_error e) {
    f->l->call = 1;
    if (!e && f->out->protocol == LAR_PROTOCOL_EMBEDDINGS) return pass(f);
    return e;
}

static lar_error form_batch(const forming *f) {
    uint32_t body = get(f, "body");
    f->out->protocol = guess(f, body, get(f, "url"));
    if (f->out->protocol == LAR_PROTOCOL_NONE)
        return lar_fail(LAR_INVALID, f->d,
                        "the url of this batch line is no known endpoint, and its body is no request");
    return only(f, take_body(f, body));
}

static lar_error form_pair(const forming *f) {
    const lar_json *j = f->j;
    uint32_t request = get(f, "request"), body = lar_json_get(j, request, "body");
    uint32_t url = lar_json_get(j, request, "url");
    if (url == LAR_JSON_NONE) url = lar_json_get(j, request, "path");
    if (url == LAR_JSON_NONE) url = get(f, "url");
    if (!lar_json_is(j, body, LAR_JSON_OBJECT)) body = request;
    f->out->protocol = guess(f, body, url);
    if (f->out->protocol == LAR_PROTOCOL_NONE)
        return lar_fail(LAR_INVALID, f->d, "\"request\" holds no messages, input or prompt");
    take_answer(f, get(f, "response"));
    return only(f, take_body(f, body));
}

static lar_error form_litellm(const forming *f) {
    static const char *const but[] = {"model", "messages", "system", NULL};
    static const char *const no_prompt[] = {"embedding", "image",      "speech", "transcription",
                                            "rerank",    "moderation", NULL};
    const lar_json *j = f->j;
    uint32_t type = get(f, "call_type"), messages = get(f, "messages"), parameters = get(f, "model_parameters");
    for (const char *const *n = no_prompt; *n; n++)
        if (contains(j, type, *n)) return pass(f);
    if (lar_json_is(j, messages, LAR_JSON_OBJECT)) messages = lar_json_get(j, messages, "messages");
    if (!lar_json_is(j, messages, LAR_JSON_ARRAY))
        return lar_fail(LAR_INVALID, f->d,
                        contains(j, messages, "redacted")
                            ? "the messages are redacted; log with turn_off_message_logging off"
                            : "\"messages\" is no array");
    bool responses = contains(j, type, "responses");
    f->out->protocol = f->l->o.protocol != LAR_PROTOCOL_NONE ? f->l->o.protocol
                       : responses                           ? LAR_PROTOCOL_RESPONSES
                       : contains(j, type, "anthropic")      ? LAR_PROTOCOL_MESSAGES
                       : has_blocks_of_anthropic(j, messages) && lar_json_get(j, parameters, "system") != LAR_JSON_NONE
                           ? LAR_PROTOCOL_MESSAGES
                           : LAR_PROTOCOL_CHAT;
    take_answer(f, get(f, "response"));
    lar_error e = begin_body(f);
    if (!e) e = member(f, "model", get(f, "model"));
    if (!e) e = member(f, "system", lar_json_get(j, parameters, "system"));
    if (!e) e = member(f, responses ? "input" : "messages", messages);
    if (!e) e = members(f, parameters, but);
    return only(f, e ? e : end_body(f));
}

/* A string that holds JSON, as exports write it, is decoded and parsed; its places are the string's. */
static uint32_t open_string(const forming *f, uint32_t node, lar_json *tree, lar_buf *text) {
    lar_diag ignored;
    text->len = 0;
    lar_slice s = lar_json_inner(f->j, node);
    if (s.len == 0 || lar_json_decode(f->j, node, text) != LAR_OK || text->len == 0) return LAR_JSON_NONE;
    if (text->ptr[0] != '{' && text->ptr[0] != '[') return LAR_JSON_NONE;
    return lar_json_parse(tree, lar_buf_slice(text), NULL, &ignored) == LAR_OK ? 0 : LAR_JSON_NONE;
}

static lar_error raw_member(const forming *f, const char *name, lar_slice raw, uint32_t place) {
    if (!raw.len) return LAR_OK;
    lar_error e = literal(f, f->l->body.len > 1 ? ",\"" : "\"");
    if (!e) e = literal(f, name);
    if (!e) e = literal(f, "\":");
    const char *from = f->j->body.ptr;
    bool own = raw.ptr >= from && raw.ptr < from + f->j->body.len;
    if (!e) e = origin(f->l, own ? (size_t)(raw.ptr - from) : f->j->nodes[place].start, own);
    return e ? e : lar_buf_add_slice(&f->l->body, raw);
}

typedef struct observed {
    const lar_json *json;
    uint32_t node, place; /* what was sent; where it stands in the record */
} observed;

/* The input of a generation: messages, an object with them beside tools, or a plain text. */
static lar_error observed_body(const forming *f, observed in) {
    static const char *const models[] = {"model", "provided_model_name", "providedModelName", NULL};
    static const char *const parameters[] = {"modelParameters", "model_parameters", NULL};
    static const char *const but[] = {"model", "messages", "tools", "input", NULL};
    const lar_json *j = in.json;
    uint32_t messages = in.node, tools = LAR_JSON_NONE, system = LAR_JSON_NONE;
    if (lar_json_is(j, in.node, LAR_JSON_OBJECT)) {
        messages = lar_json_get(j, in.node, "messages");
        if (messages == LAR_JSON_NONE) messages = lar_json_get(j, in.node, "input");
        tools = lar_json_get(j, in.node, "tools");
        system = lar_json_get(j, in.node, "system");
    }
    bool text = lar_json_is(j, messages, LAR_JSON_STRING), items = false;
    if (!text && !lar_log_is_messages(j, messages)) {
        items = lar_json_is(j, messages, LAR_JSON_ARRAY) && lar_json_get(j, in.node, "input") == messages;
        if (!items)
            return lar_fail(LAR_INVALID, f->d,
                            "the observation's input holds no messages with roles; export generations");
    }
    bool anthropic = system != LAR_JSON_NONE || (!text && has_blocks_of_anthropic(j, messages));
    f->out->protocol = f->l->o.protocol != LAR_PROTOCOL_NONE ? f->l->o.protocol
                       : text || items                       ? LAR_PROTOCOL_RESPONSES
                       : anthropic                           ? LAR_PROTOCOL_MESSAGES
                                                             : LAR_PROTOCOL_CHAT;
    lar_error e = begin_body(f);
    if (!e) e = member(f, "model", first_of(f, models));
    if (!e) e = raw_member(f, "tools", lar_json_raw(j, tools), in.place);
    if (!e) e = raw_member(f, "system", lar_json_raw(j, system), in.place);
    const char *name = f->out->protocol == LAR_PROTOCOL_RESPONSES ? "input" : "messages";
    if (!e) e = raw_member(f, name, lar_json_raw(j, messages), in.place);
    if (!e) e = members(f, first_of(f, parameters), but);
    return e ? e : end_body(f);
}

static lar_error form_langfuse(const forming *f) {
    lar_request_log *l = f->l;
    uint32_t type = get(f, "type"), input = get(f, "input"), output = get(f, "output");
    bool generation = type == LAR_JSON_NONE || lar_json_eq(f->j, type, LAR_SLICE("GENERATION")) ||
                      lar_json_eq(f->j, type, LAR_SLICE("generation"));
    l->call = 1;
    if (!generation) return pass(f);
    if (input == LAR_JSON_NONE || lar_json_is(f->j, input, LAR_JSON_NULL))
        return lar_fail(LAR_INVALID, f->d, "the observation has no input; export it with inputs and outputs");
    observed in = {f->j, input, input};
    if (open_string(f, input, &l->inner, &l->decoded) == 0) in = (observed){&l->inner, 0, input};
    take_answer(f, output);
    if (open_string(f, output, &l->inner_answer, &l->decoded_answer) == 0) {
        f->out->answer_json = &l->inner_answer;
        f->out->answer = answer_in(&l->inner_answer, 0);
    }
    return only(f, observed_body(f, in));
}

/* -- conversations and plain requests --------------------------------------------------------------------- */

static bool ends_with_answer(const lar_json *j, uint32_t messages, bool *answered) {
    bool asked = false, last = false;
    *answered = false;
    for (uint32_t m = lar_json_first(j, messages); m != LAR_JSON_NONE; m = lar_json_after(j, messages, m)) {
        last = role_is(j, m, "assistant");
        asked |= role_is(j, m, "user");
        *answered |= last && asked;
    }
    return last && *answered;
}

static bool is_conversation(const forming *f, uint32_t messages, bool has_model) {
    bool answered;
    if (f->l->o.reading == LAR_LOG_REQUESTS || !lar_log_is_messages(f->j, messages)) return false;
    bool ends = ends_with_answer(f->j, messages, &answered);
    return f->l->o.reading == LAR_LOG_CONVERSATIONS ? answered : ends || (answered && !has_model);
}

/* The request that was answered by the next of the messages that are the model's. */
static lar_error form_conversation(const forming *f, uint32_t messages) {
    static const char *const kept[] = {"model", "system", "tools", "tool_choice", "temperature", NULL};
    const lar_json *j = f->j;
    lar_request_log *l = f->l;
    bool asked = false;
    uint32_t m = lar_json_first(j, messages), last = LAR_JSON_NONE;
    for (; m != LAR_JSON_NONE; last = m, m = lar_json_after(j, messages, m)) {
        if (m >= l->message && asked && role_is(j, m, "assistant")) break;
        asked |= role_is(j, m, "user");
    }
    if (m == LAR_JSON_NONE) return LAR_NOT_FOUND;
    l->message = m + 1;
    f->out->form = LAR_LOG_CONVERSATION;
    f->out->call = l->call++;
    f->out->answer_json = j;
    f->out->answer = m;
    lar_error e = begin_body(f);
    for (const char *const *k = kept; *k && !e && f->record != messages; k++) e = member(f, *k, get(f, *k));
    if (!e) e = literal(f, l->body.len > 1 ? ",\"messages\":" : "\"messages\":");
    if (!e) e = copy(f, j->nodes[messages].start, j->nodes[last].end);
    if (!e) e = literal(f, "]");
    return e ? e : end_body(f);
}

static lar_error form_body(const forming *f) {
    uint32_t messages = get(f, "messages");
    f->out->form = LAR_LOG_BODY;
    f->out->protocol = guess(f, f->record, LAR_JSON_NONE);
    if (f->out->protocol == LAR_PROTOCOL_NONE)
        return lar_fail(LAR_INVALID, f->d,
                        "no request: wanted is an object with messages, input or prompt, a batch line, a request with "
                        "its response, a LiteLLM or Langfuse record, or an array of messages");
    if (is_conversation(f, messages, has(f, "model"))) return form_conversation(f, messages);
    return f->l->call ? LAR_NOT_FOUND : only(f, take_body(f, f->record));
}

static lar_error form_array(const forming *f) {
    f->out->form = LAR_LOG_ARRAY;
    bool anthropic = has_blocks_of_anthropic(f->j, f->record);
    f->out->protocol = f->l->o.protocol != LAR_PROTOCOL_NONE ? f->l->o.protocol
                       : anthropic                           ? LAR_PROTOCOL_MESSAGES
                                                             : LAR_PROTOCOL_CHAT;
    if (is_conversation(f, f->record, false)) return form_conversation(f, f->record);
    if (f->l->call) return LAR_NOT_FOUND;
    lar_error e = begin_body(f);
    if (!e) e = member(f, "messages", f->record);
    return only(f, e ? e : end_body(f));
}

/* -- which form ------------------------------------------------------------------------------------------- */

static lar_log_form form_of(const forming *f) {
    static const char *const lite[] = {"call_type", "model_parameters", "response_cost", "completionStartTime", NULL};
    static const char *const fuse[] = {"startTime", "start_time",      "traceId",          "trace_id",
                                       "type",      "modelParameters", "model_parameters", NULL};
    bool input = has(f, "input"), messages = has(f, "messages");
    if (has(f, "prefix_hash") && has(f, "hit_tokens") && has(f, "seq")) return LAR_LOG_EXPORT;
    if (lar_json_is(f->j, get(f, "body"), LAR_JSON_OBJECT) && (has(f, "custom_id") || has(f, "url")) && !messages)
        return LAR_LOG_BATCH;
    if (lar_json_is(f->j, get(f, "request"), LAR_JSON_OBJECT)) return LAR_LOG_PAIR;
    if (messages && first_of(f, lite) != LAR_JSON_NONE) return LAR_LOG_LITELLM;
    if (!messages && (input || has(f, "output")) && first_of(f, fuse) != LAR_JSON_NONE) return LAR_LOG_LANGFUSE;
    return LAR_LOG_BODY;
}

lar_error lar_log_form_next(lar_request_log *l, lar_log_request *out, lar_diag *d) {
    forming f = {l, out, d, &l->json, l->element};
    if (lar_log_is_messages(&l->json, l->element)) return form_array(&f);
    uint32_t inside = get(&f, "standard_logging_object");
    if (lar_json_is(f.j, inside, LAR_JSON_OBJECT)) f.record = inside;
    out->record_node = f.record;
    out->time_ms = time_of(&f);
    out->form = form_of(&f);
    if (l->call && out->form != LAR_LOG_BODY) return LAR_NOT_FOUND;
    switch (out->form) {
    case LAR_LOG_EXPORT: return only(&f, LAR_OK);
    case LAR_LOG_BATCH: return form_batch(&f);
    case LAR_LOG_PAIR: return form_pair(&f);
    case LAR_LOG_LITELLM: return form_litellm(&f);
    case LAR_LOG_LANGFUSE: return form_langfuse(&f);
    case LAR_LOG_BODY:
    case LAR_LOG_ARRAY:
    case LAR_LOG_CONVERSATION:
    case LAR_LOG_FORM_COUNT: break;
    }
    return form_body(&f);
}
