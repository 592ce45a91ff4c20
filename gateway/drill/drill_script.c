/* The texts of a drill (header: drill_script.h). Called by the stand-in and the asker. Pure; any thread.
 * Sources: OpenAI's chat and responses references, Anthropic's streaming reference. */
#include "gateway/drill/drill_script.h"

#define CHUNK "data: {\"id\":\"chatcmpl-drill\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"drill\","
#define USAGE_CHAT "\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":6,\"total_tokens\":26}"
#define USAGE_IO "\"usage\":{\"input_tokens\":20,\"output_tokens\":6}"
#define RESPONSE "\"response\":{\"id\":\"resp_drill\",\"object\":\"response\",\"created_at\":0,\"model\":\"drill\","
#define CALL_ARGUMENTS "piece "

static lar_error chat(const lar_drill_voice *v, lar_drill_phase phase, uint32_t i, lar_buf *out) {
    switch (phase) {
    case LAR_DRILL_EARLY:
        return lar_buf_printf(out,
                              CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                                    "\"finish_reason\":null}]}\n\n");
    case LAR_DRILL_OPEN:
        if (!v->tool) return LAR_OK;
        return lar_buf_printf(out, CHUNK
                              "\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_drill\","
                              "\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"\"}}]},"
                              "\"finish_reason\":null}]}\n\n");
    case LAR_DRILL_PIECE:
        if (v->tool)
            return lar_buf_printf(out,
                                  CHUNK
                                  "\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":"
                                  "{\"arguments\":\"%s%u of %s, \"}}]},\"finish_reason\":null}]}\n\n",
                                  i ? CALL_ARGUMENTS : "{\\\"place\\\": \\\"" CALL_ARGUMENTS, (unsigned)i, v->name);
        return lar_buf_printf(out,
                              CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"piece %u of %s, \"},"
                                    "\"finish_reason\":null}]}\n\n",
                              (unsigned)i, v->name);
    case LAR_DRILL_FINISH:
        return lar_buf_printf(out,
                              CHUNK "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}]}\n\n" CHUNK
                                    "\"choices\":[]," USAGE_CHAT "}\n\n",
                              v->tool ? "tool_calls" : "stop");
    case LAR_DRILL_LAST: return lar_buf_printf(out, "data: [DONE]\n\n");
    }
    return LAR_OK;
}

static lar_error messages(const lar_drill_voice *v, lar_drill_phase phase, uint32_t i, lar_buf *out) {
    switch (phase) {
    case LAR_DRILL_EARLY:
        return lar_buf_printf(
            out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_drill\","
                 "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"drill\",\"content\":[],"
                 "\"stop_reason\":null," USAGE_IO "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
    case LAR_DRILL_OPEN:
        return lar_buf_printf(out,
                              "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
                              "\"content_block\":%s}\n\n",
                              v->tool ? "{\"type\":\"tool_use\",\"id\":\"toolu_drill\",\"name\":\"look\",\"input\":{}}"
                                      : "{\"type\":\"text\",\"text\":\"\"}");
    case LAR_DRILL_PIECE:
        return lar_buf_printf(
            out,
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
            "{\"type\":\"%s\",\"%s\":\"%spiece %u of %s, \"}}\n\n",
            v->tool ? "input_json_delta" : "text_delta", v->tool ? "partial_json" : "text",
            v->tool && !i ? "{\\\"place\\\": \\\"" : "", (unsigned)i, v->name);
    case LAR_DRILL_FINISH:
        return lar_buf_printf(
            out,
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"%s\"},"
            "\"usage\":{\"output_tokens\":6}}\n\n",
            v->tool ? "tool_use" : "end_turn");
    case LAR_DRILL_LAST: return lar_buf_printf(out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }
    return LAR_OK;
}

static lar_error responses_open(const lar_drill_voice *v, lar_buf *out) {
    if (v->tool)
        return lar_buf_printf(out, "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\","
                                   "\"output_index\":0,\"item\":{\"id\":\"fc_drill\",\"type\":\"function_call\","
                                   "\"call_id\":\"call_drill\",\"name\":\"look\",\"arguments\":\"\"}}\n\n");
    return lar_buf_printf(out, "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\","
                               "\"output_index\":0,\"item\":{\"id\":\"msg_drill\",\"type\":\"message\","
                               "\"role\":\"assistant\",\"content\":[]}}\n\n"
                               "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\","
                               "\"item_id\":\"msg_drill\",\"output_index\":0,\"content_index\":0,"
                               "\"part\":{\"type\":\"output_text\",\"text\":\"\"}}\n\n");
}

/* The text of all pieces. */
static lar_error all_pieces(const lar_drill_voice *v, lar_buf *out) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < LAR_DRILL_PIECES; i++)
        e = lar_buf_printf(out, "piece %u of %s, ", (unsigned)i, v->name);
    return e;
}

static lar_error responses_output(const lar_drill_voice *v, lar_buf *out) {
    lar_error e = lar_buf_printf(out, "\"status\":\"completed\",\"output\":[{\"id\":\"msg_drill\",\"type\":\"message\","
                                      "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"");
    if (!e) e = all_pieces(v, out);
    return e ? e : lar_buf_printf(out, "\"}]}]," USAGE_IO "}");
}

static lar_error responses(const lar_drill_voice *v, lar_drill_phase phase, uint32_t i, lar_buf *out) {
    lar_error e;
    switch (phase) {
    case LAR_DRILL_EARLY:
        return lar_buf_printf(out, "event: response.created\ndata: {\"type\":\"response.created\"," RESPONSE
                                   "\"status\":\"in_progress\",\"output\":[]}}\n\n");
    case LAR_DRILL_OPEN: return responses_open(v, out);
    case LAR_DRILL_PIECE:
        return lar_buf_printf(out,
                              "event: response.%s.delta\ndata: {\"type\":\"response.%s.delta\",\"item_id\":\"%s\","
                              "\"output_index\":0,\"delta\":\"%spiece %u of %s, \"}\n\n",
                              v->tool ? "function_call_arguments" : "output_text",
                              v->tool ? "function_call_arguments" : "output_text", v->tool ? "fc_drill" : "msg_drill",
                              v->tool && !i ? "{\\\"place\\\": \\\"" : "", (unsigned)i, v->name);
    case LAR_DRILL_FINISH:
        return lar_buf_printf(out, "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\","
                                   "\"output_index\":0,\"item\":{\"id\":\"msg_drill\"}}\n\n");
    case LAR_DRILL_LAST:
        e = lar_buf_printf(out, "event: response.completed\ndata: {\"type\":\"response.completed\"," RESPONSE);
        if (!e) e = responses_output(v, out);
        return e ? e : lar_buf_printf(out, "}\n\n");
    }
    return LAR_OK;
}

lar_error lar_drill_say(const lar_drill_voice *v, lar_drill_phase phase, uint32_t i, lar_buf *out) {
    if (v->protocol == LAR_PROTOCOL_MESSAGES) return messages(v, phase, i, out);
    if (v->protocol == LAR_PROTOCOL_RESPONSES) return responses(v, phase, i, out);
    return chat(v, phase, i, out);
}

lar_error lar_drill_say_whole(const lar_drill_voice *v, lar_buf *out) {
    lar_error e;
    if (v->protocol == LAR_PROTOCOL_RESPONSES) {
        e = lar_buf_printf(out, "{\"id\":\"resp_drill\",\"object\":\"response\",\"created_at\":0,\"model\":\"drill\",");
        return e ? e : responses_output(v, out);
    }
    bool anthropic = v->protocol == LAR_PROTOCOL_MESSAGES;
    e = lar_buf_printf(out, "%s",
                       anthropic ? "{\"id\":\"msg_drill\",\"type\":\"message\",\"role\":\"assistant\","
                                   "\"model\":\"drill\",\"content\":[{\"type\":\"text\",\"text\":\""
                                 : "{\"id\":\"chatcmpl-drill\",\"object\":\"chat.completion\",\"created\":0,"
                                   "\"model\":\"drill\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
                                   "\"assistant\",\"content\":\"");
    if (!e) e = all_pieces(v, out);
    if (e) return e;
    return lar_buf_printf(out, "%s",
                          anthropic ? "\"}],\"stop_reason\":\"end_turn\"," USAGE_IO "}"
                                    : "\"},\"finish_reason\":\"stop\"}]," USAGE_CHAT "}");
}

lar_error lar_drill_say_error(lar_protocol p, const char *code, const char *message, lar_buf *out) {
    if (p == LAR_PROTOCOL_MESSAGES)
        return lar_buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"%s\"}}", code,
                              message);
    return lar_buf_printf(out, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}",
                          message, code, code);
}

lar_error lar_drill_say_error_event(lar_protocol p, const char *message, lar_buf *out) {
    if (p == LAR_PROTOCOL_RESPONSES)
        return lar_buf_printf(out,
                              "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"%s\","
                              "\"param\":null}\n\n",
                              message);
    lar_error e =
        p == LAR_PROTOCOL_MESSAGES ? lar_buf_printf(out, "event: error\ndata: ") : lar_buf_printf(out, "data: ");
    if (!e) e = lar_drill_say_error(p, "overloaded_error", message, out);
    return e ? e : lar_buf_printf(out, "\n\n");
}

/* -- the client's side -------------------------------------------------------------------------------------------- */

#define PARAMETERS "{\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\"}}}"
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\""
#define TOOL_OF_CHAT                                                                                                   \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":" PARAMETERS "}}],"

/* Up to the prompt. */
static lar_error begin_body(const lar_drill_request *r, lar_buf *out) {
    if (r->protocol == LAR_PROTOCOL_MESSAGES)
        return lar_buf_printf(out, "%s\"max_tokens\":%u," MESSAGES,
                              r->tool ? "\"tools\":[{\"name\":\"look\",\"input_schema\":" PARAMETERS "}]," : "",
                              (unsigned)r->tokens_max);
    if (r->protocol == LAR_PROTOCOL_RESPONSES)
        return lar_buf_printf(out, "%s\"max_output_tokens\":16,\"input\":\"",
                              r->tool ? "\"tools\":[{\"type\":\"function\",\"name\":\"look\",\"parameters\":" PARAMETERS
                                        "}],"
                                      : "");
    return lar_buf_printf(out, "%s%s\"max_tokens\":%u,\"temperature\":0," MESSAGES, r->tool ? TOOL_OF_CHAT : "",
                          r->streamed ? "\"stream_options\":{\"include_usage\":true}," : "", (unsigned)r->tokens_max);
}

static lar_error add_prompt(uint32_t bytes, lar_buf *out) {
    static const char question[] = "Say some words.", filler[] = "The larder has a shelf, and on the shelf are jars. ";
    size_t from = out->len;
    lar_error e = LAR_OK;
    while (!e && out->len - from + sizeof question - 1 < bytes) e = lar_buf_add(out, filler, sizeof filler - 1);
    return e ? e : lar_buf_add(out, question, sizeof question - 1);
}

lar_error lar_drill_ask_body(const lar_drill_request *r, lar_buf *out) {
    lar_buf name;
    lar_buf_init(&name, 4096);
    lar_error e = lar_json_escape(&name, lar_slice_cstr(r->model));
    if (!e) e = lar_buf_printf(out, "{\"model\":\"%.*s\",", LAR_FMT(lar_buf_slice(&name)));
    lar_buf_release(&name);
    if (!e) e = begin_body(r, out);
    if (!e) e = add_prompt(r->prompt_bytes, out);
    if (!e)
        e = lar_buf_printf(out, "%s%s", r->protocol == LAR_PROTOCOL_RESPONSES ? "\"" : "\"}]",
                           r->streamed ? ",\"stream\":true" : "");
    return e ? e : lar_buf_printf(out, "}");
}
