/* A request body to its parameters and its prompt text.
 *
 * Called by the demo upstream for each completion; calls the JSON skimmer.
 * Thread: any. Never blocks.
 * Why: a provider's cache compares the prompt after its template, so the order of system text and tools counts,
 * and JSON white space inside tools does not.
 * Invariant: two bodies that differ only in JSON white space or in how a string is escaped give the same prompt.
 * Memory: slices borrow the body; the text goes to the caller's buffer. */
#include "demo_prompt.h"

#include "demo_json.h"

static bool ends_with(lar_slice s, const char *tail) {
    size_t n = strlen(tail);
    return s.len >= n && memcmp(s.ptr + s.len - n, tail, n) == 0;
}

demo_proto demo_proto_of(lar_slice path) {
    if (ends_with(path, "/chat/completions")) return DEMO_CHAT;
    if (ends_with(path, "/completions")) return DEMO_COMPLETIONS;
    if (ends_with(path, "/responses")) return DEMO_RESPONSES;
    if (ends_with(path, "/messages")) return DEMO_MESSAGES;
    if (ends_with(path, "/embeddings")) return DEMO_EMBEDDINGS;
    return DEMO_NO_PROTO;
}

static bool is_one_of(lar_slice key, const char *a, const char *b, const char *c) {
    return lar_slice_eq_cstr(key, a) || lar_slice_eq_cstr(key, b) || lar_slice_eq_cstr(key, c);
}

static void take_member(demo_ask *a, lar_slice key, lar_slice v) {
    if (lar_slice_eq_cstr(key, "model")) a->model = v;
    else if (is_one_of(key, "messages", "input", "prompt")) a->messages = v;
    else if (lar_slice_eq_cstr(key, "system") || lar_slice_eq_cstr(key, "instructions")) a->system = v;
    else if (lar_slice_eq_cstr(key, "tools") && demo_json_is_array(v)) a->tools = v;
    else if (lar_slice_eq_cstr(key, "encoding_format")) a->encoding = v;
    else if (lar_slice_eq_cstr(key, "stream")) a->stream = demo_json_is_true(v);
    else if (lar_slice_eq_cstr(key, "stream_options"))
        a->include_usage = demo_json_is_true(demo_json_get(v, "include_usage"));
}

bool demo_ask_read(demo_ask *a, demo_proto proto, lar_slice body) {
    lar_slice rest = body, top, key = {0}, v;
    *a = (demo_ask){.proto = proto};
    if (!demo_json_value(&rest, &top) || top.ptr[0] != '{') return false;
    demo_json_iter it = demo_json_open(top);
    while (demo_json_next(&it, &key, &v)) take_member(a, key, v);
    if (it.bad || demo_json_value(&rest, &v) || rest.len) return false;
    demo_json_iter tools = demo_json_open(a->tools);
    if (!demo_json_next(&tools, NULL, &v)) a->tools = (lar_slice){0};
    return true;
}

static void put_content(lar_slice content, lar_buf *out) {
    lar_slice part;
    if (demo_json_is_string(content)) {
        demo_json_text(content, out);
        return;
    }
    if (!demo_json_is_array(content)) return;
    demo_json_iter it = demo_json_open(content);
    while (demo_json_next(&it, NULL, &part)) {
        lar_slice text = demo_json_get(part, "text");
        if (demo_json_is_string(text)) demo_json_text(text, out);
        else if (demo_json_is_string(part)) demo_json_text(part, out);
        else demo_json_reprint(part, out);
    }
}

void demo_prompt_message(lar_slice m, lar_buf *out) {
    lar_slice role = demo_json_get(m, "role"), call;
    DEMO_PUT(out, "<|");
    if (role.len) demo_json_text(role, out);
    else DEMO_PUT(out, "None");
    DEMO_PUT(out, "|>");
    lar_slice thought = demo_json_get(m, "reasoning_content");
    if (thought.len > 2 && demo_json_is_string(thought)) {
        DEMO_PUT(out, "<think>");
        demo_json_text(thought, out);
        DEMO_PUT(out, "</think>");
    }
    put_content(demo_json_get(m, "content"), out);
    demo_json_iter it = demo_json_open(demo_json_get(m, "tool_calls"));
    while (demo_json_next(&it, NULL, &call)) {
        lar_slice f = demo_json_get(call, "function");
        DEMO_PUT(out, "<|call|>");
        demo_json_text(demo_json_get(call, "id"), out);
        DEMO_PUT(out, " ");
        demo_json_text(demo_json_get(f, "name"), out);
        DEMO_PUT(out, " ");
        demo_json_text(demo_json_get(f, "arguments"), out);
    }
    lar_slice answers = demo_json_get(m, "tool_call_id");
    if (answers.len > 2) {
        DEMO_PUT(out, "<|for|>");
        demo_json_text(answers, out);
    }
    DEMO_PUT(out, "<|end|>");
}

static bool is_system(lar_slice m) {
    lar_slice role = demo_json_get(m, "role");
    return lar_slice_eq_cstr(role, "\"system\"") || lar_slice_eq_cstr(role, "\"developer\"");
}

/* A conversation's entry: a message, or an item of the Responses API without a role. */
static void put_entry(lar_slice m, lar_buf *out) {
    if (demo_json_get(m, "role").len) {
        demo_prompt_message(m, out);
    } else if (demo_json_is_string(m)) {
        demo_json_text(m, out);
    } else {
        demo_json_reprint(m, out);
        DEMO_PUT(out, "<|end|>");
    }
}

void demo_prompt_render(const demo_ask *a, demo_order order, lar_buf *out) {
    lar_slice m = {0};
    if (demo_json_is_string(a->messages)) {
        put_content(a->system, out);
        demo_json_text(a->messages, out);
        return;
    }
    if (order == DEMO_TOOLS_FIRST && a->tools.len) {
        DEMO_PUT(out, "<|tools|>");
        demo_json_reprint(a->tools, out);
    }
    if (a->system.len) {
        DEMO_PUT(out, "<|system|>");
        put_content(a->system, out);
        DEMO_PUT(out, "<|end|>");
    }
    demo_json_iter it = demo_json_open(a->messages);
    bool more = demo_json_next(&it, NULL, &m);
    while (more && is_system(m)) {
        demo_prompt_message(m, out);
        more = demo_json_next(&it, NULL, &m);
    }
    if (order == DEMO_SYSTEM_FIRST && a->tools.len) {
        DEMO_PUT(out, "<|tools|>");
        demo_json_reprint(a->tools, out);
    }
    while (more) {
        put_entry(m, out);
        more = demo_json_next(&it, NULL, &m);
    }
}

static bool holds(lar_slice s, const char *word) {
    return s.len && memmem(s.ptr, s.len, word, strlen(word)) != NULL;
}

bool demo_ask_wants_call(const demo_ask *a) {
    lar_slice m, last = {0};
    if (!a->tools.len || !holds(a->messages, "TOOLCALL")) return false;
    if (demo_json_is_string(a->messages)) return true;
    demo_json_iter it = demo_json_open(a->messages);
    while (demo_json_next(&it, NULL, &m)) last = m;
    return lar_slice_eq_cstr(demo_json_get(last, "role"), "\"user\"") && holds(last, "TOOLCALL");
}

bool demo_ask_first_tool(const demo_ask *a, lar_slice *name, lar_slice *schema) {
    lar_slice t;
    demo_json_iter it = demo_json_open(a->tools);
    while (demo_json_next(&it, NULL, &t)) {
        lar_slice f = demo_json_get(t, "function"), type = demo_json_get(t, "type");
        if (!f.len && type.len && !lar_slice_eq_cstr(type, "\"function\"") && !lar_slice_eq_cstr(type, "\"custom\"")
            && a->proto != DEMO_MESSAGES)
            continue;
        if (!f.len) f = t;
        *name = demo_json_get(f, "name");
        *schema = demo_json_get(f, a->proto == DEMO_MESSAGES ? "input_schema" : "parameters");
        if (demo_json_is_string(*name)) return true;
    }
    return false;
}
