/* Messages and tools of a chat request, checked, in the form that templates read.
 * Flow: prompts.c calls, behind ask_read.c. Any thread; never blocks. Why they are written anew: templates join
 * contents to strings, so that lists of parts become text; developer becomes system; members that no template knows
 * (marks, ids of clients) stay out of the prompt. What is copied is copied as it stands in the body, escapes and all.
 * Invariant: `content` is a message's last member, so that a prefix that ends inside of it can be closed there.
 * Memory: two buffers, a few times the body at most. */
#include <stdio.h>

#include "gateway/serving/ask.h"

typedef struct writing {
    const lar_json *j;
    lar_conversation *c;
    lar_refusal *no;
    lar_json_writer w;
    char at[LAR_REFUSAL_PARAM_BYTES]; /* the message: "messages[3]" */
    size_t system_bytes;              /* of messages: the system texts at the front */
    bool tools_marked, continue_final;
} writing;

void lar_conversation_init(lar_conversation *c) { *c = (lar_conversation){.mark_count = 0}; }

void lar_conversation_release(lar_conversation *c) {
    lar_buf_release(&c->messages);
    lar_buf_release(&c->tools);
    lar_buf_release(&c->reasoning);
    lar_buf_release(&c->content);
}

/* `member` of the current message, "content[2].type". */
static lar_error refuse(const writing *x, const char *member, const char *code, const char *why) {
    char param[2 * LAR_REFUSAL_PARAM_BYTES];
    (void)snprintf(param, sizeof param, "%s%s%s", x->at, member[0] ? "." : "", member);
    return lar_refuse(x->no, param, code, "%s: %s", param, why);
}

static bool is_null(const writing *x, uint32_t node) { return lar_json_kind_of(x->j, node) == LAR_JSON_NULL; }
static bool is_text(const writing *x, uint32_t node) { return lar_json_is(x->j, node, LAR_JSON_STRING); }

/* -- marks --------------------------------------------------------------------------------------------------------- */

/* {"type": "ephemeral", "ttl": "5m" or "1h"}: *marked. */
static lar_error read_mark(const writing *x, uint32_t holder, bool *marked) {
    uint32_t node = lar_json_get_last(x->j, holder, "cache_control");
    uint32_t ttl = lar_json_get_last(x->j, node, "ttl");
    *marked = !is_null(x, node);
    if (!*marked) return LAR_OK;
    bool good = lar_json_eq(x->j, lar_json_get_last(x->j, node, "type"), LAR_SLICE("ephemeral"));
    if (!is_null(x, ttl))
        good = good && (lar_json_eq(x->j, ttl, LAR_SLICE("5m")) || lar_json_eq(x->j, ttl, LAR_SLICE("1h")));
    return good ? LAR_OK : refuse(x, "cache_control", LAR_CODE_VALUE, "the type ephemeral, a ttl of 5m or 1h");
}

static lar_error add_mark(const writing *x, size_t bytes, const char *close) {
    lar_conversation *c = x->c;
    if (c->mark_count == LAR_ASK_MARKS_MAX)
        return refuse(x, "cache_control", LAR_CODE_VALUE, "at most 4 marks are allowed in one request");
    c->marks[c->mark_count++] = (lar_ask_mark){.bytes = bytes, .close = close};
    return LAR_OK;
}

/* -- content ------------------------------------------------------------------------------------------------------- */

static lar_error part_text(const writing *x, uint32_t part, uint32_t number, uint32_t *text) {
    static const char *const others[] = {"image_url", "input_audio", "audio", "file", "video_url", "image", "document"};
    char member[64];
    uint32_t type = lar_json_get_last(x->j, part, "type");
    (void)snprintf(member, sizeof member, "content[%u]%s", number, type == LAR_JSON_NONE ? "" : ".type");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (lar_json_eq(x->j, type, lar_slice_cstr(others[i])))
            return refuse(x, member, LAR_CODE_UNSUPPORTED_VALUE, "this model reads text alone");
    bool refusal = lar_json_eq(x->j, type, LAR_SLICE("refusal"));
    if (!refusal && !lar_json_eq(x->j, type, LAR_SLICE("text")))
        return refuse(x, member, LAR_CODE_VALUE, "a part of type text is expected");
    *text = lar_json_get_last(x->j, part, refusal ? "refusal" : "text");
    (void)snprintf(member, sizeof member, "content[%u].%s", number, refusal ? "refusal" : "text");
    return is_text(x, *text) ? LAR_OK : refuse(x, member, LAR_CODE_TYPE, "a text is expected");
}

static lar_error write_parts(writing *x, uint32_t content) {
    uint32_t number = 0, text = LAR_JSON_NONE;
    lar_json_put(&x->w, "\"");
    for (uint32_t p = lar_json_first(x->j, content); p != LAR_JSON_NONE; p = lar_json_after(x->j, content, p)) {
        bool marked = false;
        if (number) lar_json_put(&x->w, "\\n");
        lar_error e = part_text(x, p, number++, &text);
        if (e) return e;
        lar_json_put_raw(&x->w, lar_json_inner(x->j, text));
        e = read_mark(x, p, &marked);
        if (!e && marked) e = add_mark(x, x->w.out->len, "\"}]");
        if (e) return e;
    }
    lar_json_put(&x->w, "\"");
    return LAR_OK;
}

/* An assistant that calls tools may have said nothing. */
static lar_error write_content(writing *x, uint32_t message, bool assistant, bool calls) {
    uint32_t content = lar_json_get_last(x->j, message, "content");
    lar_json_put(&x->w, ",\"content\":");
    if (lar_json_is(x->j, content, LAR_JSON_ARRAY)) return write_parts(x, content);
    /* Of calls with empty text some templates would tell the text alone. */
    bool said = is_text(x, content) && (!calls || lar_json_inner(x->j, content).len);
    if (said) lar_json_put_raw(&x->w, lar_json_raw(x->j, content));
    else if (!(is_null(x, content) || is_text(x, content)) || !assistant)
        return refuse(x, "content", content == LAR_JSON_NONE ? LAR_CODE_MISSING : LAR_CODE_TYPE,
                      "a text or a list of text parts is expected");
    else lar_json_put(&x->w, calls ? "null" : "\"\"");
    return LAR_OK;
}

/* -- calls of tools ------------------------------------------------------------------------------------------------ */

static lar_error write_call(writing *x, uint32_t call, uint32_t number) {
    char member[64];
    uint32_t type = lar_json_get_last(x->j, call, "type"), function = lar_json_get_last(x->j, call, "function");
    uint32_t name = lar_json_get_last(x->j, function, "name"), id = lar_json_get_last(x->j, call, "id");
    uint32_t arguments = lar_json_get_last(x->j, function, "arguments");
    (void)snprintf(member, sizeof member, "tool_calls[%u]", number);
    if (!is_null(x, type) && !lar_json_eq(x->j, type, LAR_SLICE("function")))
        return refuse(x, member, LAR_CODE_UNSUPPORTED_VALUE, "calls of functions alone are supported");
    if (!is_text(x, name) || !is_text(x, arguments) || !(is_text(x, id) || is_null(x, id)))
        return refuse(x, member, LAR_CODE_TYPE, "an id, and a function with a name and arguments as text are expected");
    lar_json_put(&x->w, number ? ",{" : "{");
    if (is_text(x, id)) {
        lar_json_put(&x->w, "\"id\":");
        lar_json_put_raw(&x->w, lar_json_raw(x->j, id));
        lar_json_put(&x->w, ",");
    }
    lar_json_put(&x->w, "\"type\":\"function\",\"function\":{\"name\":");
    lar_json_put_raw(&x->w, lar_json_raw(x->j, name));
    lar_json_put(&x->w, ",\"arguments\":");
    lar_json_put_raw(&x->w, lar_json_raw(x->j, arguments));
    lar_json_put(&x->w, "}}");
    return LAR_OK;
}

static lar_error write_calls(writing *x, uint32_t message, bool assistant, bool *calls) {
    uint32_t node = lar_json_get_last(x->j, message, "tool_calls"), number = 0;
    lar_error e = LAR_OK;
    *calls = false;
    if (is_null(x, node)) return LAR_OK;
    if (!lar_json_is(x->j, node, LAR_JSON_ARRAY)) return refuse(x, "tool_calls", LAR_CODE_TYPE, "a list is expected");
    *calls = x->j->nodes[node].count > 0;
    if (!*calls) return LAR_OK;
    if (!assistant) return refuse(x, "tool_calls", LAR_CODE_VALUE, "only the assistant calls tools");
    lar_json_put(&x->w, ",\"tool_calls\":[");
    for (uint32_t i = lar_json_first(x->j, node); !e && i != LAR_JSON_NONE; i = lar_json_after(x->j, node, i))
        e = write_call(x, i, number++);
    lar_json_put(&x->w, "]");
    return e;
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

static lar_error write_text_member(writing *x, uint32_t message, const char *member, const char *as) {
    uint32_t node = lar_json_get_last(x->j, message, member);
    if (is_null(x, node)) return LAR_OK;
    if (!is_text(x, node)) return refuse(x, member, LAR_CODE_TYPE, "a text is expected");
    lar_json_put(&x->w, ",\"");
    lar_json_put(&x->w, as);
    lar_json_put(&x->w, "\":");
    lar_json_put_raw(&x->w, lar_json_raw(x->j, node));
    return LAR_OK;
}

static lar_error refuse_members(const writing *x, uint32_t message) {
    static const char *const members[] = {"function_call", "audio"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        uint32_t node = lar_json_get_last(x->j, message, members[i]);
        if (!is_null(x, node) && !lar_json_is(x->j, node, LAR_JSON_FALSE))
            return refuse(x, members[i], LAR_CODE_UNSUPPORTED, "it is not supported by this engine");
    }
    return LAR_OK;
}

static const char *reasoning_member(const writing *x, uint32_t message) {
    bool deepseek = !is_null(x, lar_json_get_last(x->j, message, "reasoning_content"));
    return deepseek ? "reasoning_content" : "reasoning";
}

static lar_error write_reasoning(writing *x, uint32_t message) {
    return write_text_member(x, message, reasoning_member(x, message), "reasoning_content");
}

/* The role as templates know it; NULL: none of OpenAI's. */
static const char *role_of(const writing *x, uint32_t node) {
    static const char *const roles[][2] = {
        {"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}, {"tool", "tool"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (lar_json_eq(x->j, node, lar_slice_cstr(roles[i][0]))) return roles[i][1];
    return NULL;
}

static lar_error write_members(writing *x, uint32_t message, const char *role) {
    bool assistant = strcmp(role, "assistant") == 0, calls;
    lar_json_put(&x->w, "{\"role\":\"");
    lar_json_put(&x->w, role);
    lar_json_put(&x->w, "\"");
    lar_error e = write_text_member(x, message, "name", "name");
    if (!e) e = write_text_member(x, message, "tool_call_id", "tool_call_id");
    if (!e && assistant) e = write_reasoning(x, message);
    if (!e) e = write_calls(x, message, assistant, &calls);
    if (!e) e = write_content(x, message, assistant, calls);
    lar_json_put(&x->w, "}");
    return e;
}

/* -- the beginning of the answer ---------------------------------------------------------------------------------- */

static bool has_prefix(const writing *x, uint32_t message) {
    uint32_t node = lar_json_get_last(x->j, message, "prefix");
    return !is_null(x, node) && !lar_json_is(x->j, node, LAR_JSON_FALSE);
}

static lar_error begin_with_parts(const writing *x, uint32_t content) {
    uint32_t number = 0, text = LAR_JSON_NONE;
    lar_error e = LAR_OK;
    for (uint32_t p = lar_json_first(x->j, content); !e && p != LAR_JSON_NONE; p = lar_json_after(x->j, content, p)) {
        if (number) e = lar_buf_add_slice(&x->c->content, LAR_SLICE("\n"));
        if (!e) e = part_text(x, p, number++, &text);
        if (!e) e = lar_ask_text(x->j, text, &x->c->content);
    }
    return e;
}

/* The last message, of which the answer is the rest. */
static lar_error begin_answer(writing *x, uint32_t message, uint32_t number) {
    const char *member = reasoning_member(x, message);
    uint32_t content = lar_json_get_last(x->j, message, "content"),
             reasoning = lar_json_get_last(x->j, message, member);
    (void)snprintf(x->at, sizeof x->at, "messages[%u]", number);
    x->c->continues = true;
    if (!lar_json_eq(x->j, lar_json_get_last(x->j, message, "role"), LAR_SLICE("assistant")))
        return refuse(x, "role", LAR_CODE_VALUE, "an answer begins with a message of the assistant");
    if (!is_null(x, lar_json_get_last(x->j, message, "tool_calls")))
        return refuse(x, "tool_calls", LAR_CODE_UNSUPPORTED, "an answer that has called tools does not go on");
    if (!is_null(x, reasoning) && !is_text(x, reasoning)) return refuse(x, member, LAR_CODE_TYPE, "a text is expected");
    lar_error e = refuse_members(x, message);
    if (!e && !is_null(x, reasoning)) e = lar_ask_text(x->j, reasoning, &x->c->reasoning);
    if (e || is_null(x, content)) return e;
    if (is_text(x, content)) return lar_ask_text(x->j, content, &x->c->content);
    if (lar_json_is(x->j, content, LAR_JSON_ARRAY)) return begin_with_parts(x, content);
    return refuse(x, "content", LAR_CODE_TYPE, "a text or a list of text parts is expected");
}

static lar_error write_message(writing *x, uint32_t message, uint32_t number) {
    bool marked = false, front = x->system_bytes == x->w.out->len;
    (void)snprintf(x->at, sizeof x->at, "messages[%u]", number);
    if (!lar_json_is(x->j, message, LAR_JSON_OBJECT)) return refuse(x, "", LAR_CODE_TYPE, "an object is expected");
    uint32_t role_node = lar_json_get_last(x->j, message, "role");
    const char *role = role_of(x, role_node);
    if (!is_text(x, role_node))
        return refuse(x, "role", role_node == LAR_JSON_NONE ? LAR_CODE_MISSING : LAR_CODE_TYPE, "a text is expected");
    if (!role) return refuse(x, "role", LAR_CODE_VALUE, "system, developer, user, assistant or tool is expected");
    if (number) lar_json_put(&x->w, ",");
    lar_error e = refuse_members(x, message);
    if (!e && has_prefix(x, message)) e = refuse(x, "prefix", LAR_CODE_VALUE, "only the last message begins an answer");
    if (!e) e = write_members(x, message, role);
    if (!e) e = read_mark(x, message, &marked);
    if (!e && marked) e = add_mark(x, x->w.out->len, "]");
    if (front && strcmp(role, "system") == 0) x->system_bytes = x->w.out->len;
    return e ? e : x->w.error;
}

static lar_error write_messages(writing *x, uint32_t node) {
    uint32_t number = 0;
    lar_error e = LAR_OK;
    x->w = (lar_json_writer){.out = &x->c->messages};
    lar_json_put(&x->w, "[");
    x->system_bytes = x->w.out->len;
    for (uint32_t m = lar_json_first(x->j, node); !e && m != LAR_JSON_NONE; m = lar_json_after(x->j, node, m)) {
        bool last = number + 1 == x->j->nodes[node].count && lar_json_is(x->j, m, LAR_JSON_OBJECT);
        bool begins = last && (x->continue_final || has_prefix(x, m));
        e = begins ? begin_answer(x, m, number++) : write_message(x, m, number++);
    }
    lar_json_put(&x->w, "]");
    x->at[0] = '\0';
    /* Templates put tools behind the first system texts, so that a mark on a tool stands for both. */
    if (!e && x->tools_marked) e = add_mark(x, x->system_bytes, "]");
    return e ? e : x->w.error;
}

/* -- tools --------------------------------------------------------------------------------------------------------- */

static lar_error write_tool(writing *x, uint32_t tool, uint32_t number) {
    bool marked = false;
    uint32_t type = lar_json_get_last(x->j, tool, "type"), function = lar_json_get_last(x->j, tool, "function");
    (void)snprintf(x->at, sizeof x->at, "tools[%u]", number);
    if (!lar_json_is(x->j, tool, LAR_JSON_OBJECT)) return refuse(x, "", LAR_CODE_TYPE, "an object is expected");
    if (!lar_json_eq(x->j, type, LAR_SLICE("function")))
        return refuse(x, "type", LAR_CODE_UNSUPPORTED_VALUE, "functions alone are supported");
    if (!is_text(x, lar_json_get_last(x->j, function, "name")))
        return refuse(x, "function.name", LAR_CODE_TYPE, "a text is expected");
    lar_json_put(&x->w, number ? ",{\"type\":\"function\",\"function\":" : "{\"type\":\"function\",\"function\":");
    lar_json_put_raw(&x->w, lar_json_raw(x->j, function));
    lar_json_put(&x->w, "}");
    lar_error e = read_mark(x, tool, &marked);
    x->tools_marked = x->tools_marked || marked;
    return e ? e : x->w.error;
}

static lar_error write_tools(writing *x, uint32_t node) {
    uint32_t number = 0;
    lar_error e = LAR_OK;
    x->w = (lar_json_writer){.out = &x->c->tools};
    lar_json_put(&x->w, "[");
    for (uint32_t t = lar_json_first(x->j, node); !e && t != LAR_JSON_NONE; t = lar_json_after(x->j, node, t))
        e = write_tool(x, t, number++);
    lar_json_put(&x->w, "]");
    return e ? e : x->w.error;
}

lar_error lar_conversation_read(const lar_ask *a, lar_conversation *c, lar_refusal *no) {
    writing x = {.j = &a->json, .c = c, .no = no, .continue_final = a->continue_final};
    size_t room = 4 * a->json.body.len + 4096;
    lar_buf_init(&c->messages, room);
    lar_buf_init(&c->tools, room);
    lar_buf_init(&c->reasoning, room);
    lar_buf_init(&c->content, room);
    lar_error e = a->tools == LAR_JSON_NONE ? LAR_OK : write_tools(&x, a->tools);
    return e ? e : write_messages(&x, a->messages);
}
