/* Bodies and events of the Responses and the Messages protocol.
 *
 * Called by demo_reply.c, step by step; prints only.
 * One thread; never blocks.
 * Why apart: these two protocols have typed events with indexes and borders, the chat protocol has bare chunks.
 * Invariant: events come in the order that the official clients check (added, delta, done; start, delta, stop).
 * Memory: the caller's buffer. */
#include "demo_reply_events.h"

#include "demo_json.h"

static bool has_message_item(const demo_reply *r) { return r->answer.has_text; }
static uint32_t call_index(const demo_reply *r, uint32_t call) { return call + (has_message_item(r) ? 1 : 0); }

static void put_message_item(const demo_reply *r, demo_response_state state, lar_buf *out) {
    demo_putf(out, "{\"id\":\"msg_%llu\",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[",
              (unsigned long long)r->number, state == DEMO_RESPONSE_COMPLETED ? "completed" : "in_progress");
    if (state == DEMO_RESPONSE_COMPLETED) {
        DEMO_PUT(out, "{\"type\":\"output_text\",\"text\":");
        demo_json_quote(out, lar_buf_slice(&r->answer.text));
        DEMO_PUT(out, ",\"annotations\":[]}");
    }
    DEMO_PUT(out, "]}");
}

static void put_call_item(const demo_reply *r, uint32_t call, demo_response_state state, lar_buf *out) {
    const demo_call *c = &r->answer.calls[call];
    bool done = state == DEMO_RESPONSE_COMPLETED;
    demo_putf(out, "{\"id\":\"fc_%llu_%u\",\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":",
              (unsigned long long)r->number, call, done ? "completed" : "in_progress");
    demo_json_quote(out, lar_buf_slice(&c->id));
    DEMO_PUT(out, ",\"name\":");
    demo_json_quote(out, lar_buf_slice(&c->name));
    DEMO_PUT(out, ",\"arguments\":");
    demo_json_quote(out, done ? lar_buf_slice(&c->arguments) : lar_slice_of("", 0));
    DEMO_PUT(out, "}");
}

void demo_events_response(const demo_reply *r, demo_response_state state, lar_buf *out) {
    bool done = state == DEMO_RESPONSE_COMPLETED;
    demo_putf(out, "{\"id\":\"resp_%llu\",\"object\":\"response\",\"created_at\":%llu,\"status\":\"%s\",\"error\":null,"
                   "\"incomplete_details\":null,\"instructions\":null,\"model\":",
              (unsigned long long)r->number, (unsigned long long)r->created, done ? "completed" : "in_progress");
    demo_put(out, lar_buf_slice(&r->model));
    DEMO_PUT(out, ",\"output\":[");
    if (done && has_message_item(r)) put_message_item(r, state, out);
    for (uint32_t i = 0; done && i < r->answer.call_count; i++) {
        if (call_index(r, i)) DEMO_PUT(out, ",");
        put_call_item(r, i, state, out);
    }
    DEMO_PUT(out, "],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],\"metadata\":{},\"usage\":");
    if (done) demo_reply_usage(r, out);
    else DEMO_PUT(out, "null");
    DEMO_PUT(out, "}");
}

static void begin(demo_reply *r, const char *type, lar_buf *out) {
    demo_putf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u,", type, type, r->sequence++);
}

static void end(lar_buf *out) { DEMO_PUT(out, "}\n\n"); }

void demo_events_response_open(demo_reply *r, lar_buf *out) {
    static const char *const types[] = {"response.created", "response.in_progress"};
    for (uint32_t i = 0; i < 2; i++) {
        begin(r, types[i], out);
        DEMO_PUT(out, "\"response\":");
        demo_events_response(r, DEMO_RESPONSE_IN_PROGRESS, out);
        end(out);
    }
}

static void begin_part(demo_reply *r, const char *type, lar_buf *out) {
    begin(r, type, out);
    demo_putf(out, "\"item_id\":\"msg_%llu\",\"output_index\":0,\"content_index\":0", (unsigned long long)r->number);
}

void demo_events_response_text(demo_reply *r, bool first, bool last, lar_slice piece, lar_buf *out) {
    lar_slice all = lar_buf_slice(&r->answer.text);
    if (first) {
        begin(r, "response.output_item.added", out);
        DEMO_PUT(out, "\"output_index\":0,\"item\":");
        put_message_item(r, DEMO_RESPONSE_IN_PROGRESS, out);
        end(out);
        begin_part(r, "response.content_part.added", out);
        DEMO_PUT(out, ",\"part\":{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[]}");
        end(out);
    }
    begin_part(r, "response.output_text.delta", out);
    DEMO_PUT(out, ",\"delta\":");
    demo_json_quote(out, piece);
    end(out);
    if (!last) return;
    begin_part(r, "response.output_text.done", out);
    DEMO_PUT(out, ",\"text\":");
    demo_json_quote(out, all);
    end(out);
    begin_part(r, "response.content_part.done", out);
    DEMO_PUT(out, ",\"part\":{\"type\":\"output_text\",\"text\":");
    demo_json_quote(out, all);
    DEMO_PUT(out, ",\"annotations\":[]}");
    end(out);
    begin(r, "response.output_item.done", out);
    DEMO_PUT(out, "\"output_index\":0,\"item\":");
    put_message_item(r, DEMO_RESPONSE_COMPLETED, out);
    end(out);
}

void demo_events_response_call(demo_reply *r, bool open, bool last, lar_slice piece, lar_buf *out) {
    uint32_t index = call_index(r, r->call);
    if (open) {
        begin(r, "response.output_item.added", out);
        demo_putf(out, "\"output_index\":%u,\"item\":", index);
        put_call_item(r, r->call, DEMO_RESPONSE_IN_PROGRESS, out);
        end(out);
        return;
    }
    begin(r, "response.function_call_arguments.delta", out);
    demo_putf(out, "\"item_id\":\"fc_%llu_%u\",\"output_index\":%u,\"delta\":", (unsigned long long)r->number,
              r->call, index);
    demo_json_quote(out, piece);
    end(out);
    if (!last) return;
    begin(r, "response.function_call_arguments.done", out);
    demo_putf(out, "\"item_id\":\"fc_%llu_%u\",\"output_index\":%u,\"arguments\":", (unsigned long long)r->number,
              r->call, index);
    demo_json_quote(out, lar_buf_slice(&r->answer.calls[r->call].arguments));
    end(out);
    begin(r, "response.output_item.done", out);
    demo_putf(out, "\"output_index\":%u,\"item\":", index);
    put_call_item(r, r->call, DEMO_RESPONSE_COMPLETED, out);
    end(out);
}

void demo_events_response_close(demo_reply *r, lar_buf *out) {
    if (r->no_done) return;
    begin(r, "response.completed", out);
    DEMO_PUT(out, "\"response\":");
    demo_events_response(r, DEMO_RESPONSE_COMPLETED, out);
    end(out);
}

/* -- Messages --------------------------------------------------------------------------------------------- */

static void put_message_head(const demo_reply *r, lar_buf *out) {
    demo_putf(out, "{\"id\":\"msg_%llu\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", (unsigned long long)r->number);
    demo_put(out, lar_buf_slice(&r->model));
}

/* A tool's input is an object; arguments that are none become an empty one. */
static void put_input(const demo_call *c, lar_buf *out) {
    lar_slice a = lar_buf_slice(&c->arguments);
    if (demo_json_is_object(a)) demo_put(out, a);
    else DEMO_PUT(out, "{}");
}

static const char *stop_reason(const demo_reply *r) { return r->answer.call_count ? "tool_use" : "end_turn"; }

void demo_events_message(const demo_reply *r, lar_buf *out) {
    put_message_head(r, out);
    DEMO_PUT(out, ",\"content\":[");
    if (has_message_item(r)) {
        DEMO_PUT(out, "{\"type\":\"text\",\"text\":");
        demo_json_quote(out, lar_buf_slice(&r->answer.text));
        DEMO_PUT(out, "}");
    }
    for (uint32_t i = 0; i < r->answer.call_count; i++) {
        if (call_index(r, i)) DEMO_PUT(out, ",");
        DEMO_PUT(out, "{\"type\":\"tool_use\",\"id\":");
        demo_json_quote(out, lar_buf_slice(&r->answer.calls[i].id));
        DEMO_PUT(out, ",\"name\":");
        demo_json_quote(out, lar_buf_slice(&r->answer.calls[i].name));
        DEMO_PUT(out, ",\"input\":");
        put_input(&r->answer.calls[i], out);
        DEMO_PUT(out, "}");
    }
    demo_putf(out, "],\"stop_reason\":\"%s\",\"stop_sequence\":null,\"usage\":", stop_reason(r));
    demo_reply_usage(r, out);
    DEMO_PUT(out, "}");
}

void demo_events_message_open(demo_reply *r, lar_buf *out) {
    demo_usage u = r->usage;
    DEMO_PUT(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    put_message_head(r, out);
    DEMO_PUT(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
    demo_putf(out, "{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%llu,\"output_tokens\":1}",
              (unsigned long long)(u.prompt - u.hit), (unsigned long long)u.hit);
    DEMO_PUT(out, "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static void block_stop(uint32_t index, lar_buf *out) {
    demo_putf(out, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%u}\n\n", index);
}

void demo_events_message_text(demo_reply *r, bool first, bool last, lar_slice piece, lar_buf *out) {
    (void)r;
    if (first)
        DEMO_PUT(out, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
                      "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n");
    DEMO_PUT(out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
                  "\"delta\":{\"type\":\"text_delta\",\"text\":");
    demo_json_quote(out, piece);
    DEMO_PUT(out, "}}\n\n");
    if (last) block_stop(0, out);
}

void demo_events_message_call(demo_reply *r, bool open, bool last, lar_slice piece, lar_buf *out) {
    const demo_call *c = &r->answer.calls[r->call];
    uint32_t index = call_index(r, r->call);
    if (open) {
        demo_putf(out, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":%u,"
                       "\"content_block\":{\"type\":\"tool_use\",\"id\":", index);
        demo_json_quote(out, lar_buf_slice(&c->id));
        DEMO_PUT(out, ",\"name\":");
        demo_json_quote(out, lar_buf_slice(&c->name));
        DEMO_PUT(out, ",\"input\":{}}}\n\n");
        return;
    }
    demo_putf(out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%u,"
                   "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":", index);
    demo_json_quote(out, piece);
    DEMO_PUT(out, "}}\n\n");
    if (last) block_stop(index, out);
}

void demo_events_message_close(demo_reply *r, lar_buf *out) {
    demo_putf(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"%s\",\"stop_sequence\":null},"
                   "\"usage\":{\"output_tokens\":%llu}}\n\n", stop_reason(r), (unsigned long long)r->usage.output);
    if (!r->no_done) DEMO_PUT(out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}
