/* Answers in four protocols, whole or event by event.
 *
 * Flow: demo_upstream fills a demo_reply, then asks for the plain body, or for one step after another.
 * One thread; never blocks. Chat and text completions are here, the other two protocols in demo_reply_events.c.
 * Why lazily: a thousand slow streams must not hold a thousand finished answers.
 * Invariants:
 *   1. The pieces of a stream, joined, are the plain answer's text, byte for byte.
 *   2. A piece never ends inside a UTF-8 sequence.
 * Memory: the reply owns its answer; events go to the caller's buffer. */
#include "demo_reply.h"

#include <openssl/evp.h>

#include "base/clock.h"
#include "demo_json.h"
#include "demo_reply_events.h"

#define TEXT_MAX ((size_t)512 << 20)

void demo_answer_init(demo_answer *a) {
    *a = (demo_answer){.has_text = true};
    lar_buf_init(&a->text, TEXT_MAX);
    lar_buf_init(&a->reasoning, TEXT_MAX);
    lar_buf_init(&a->raw, TEXT_MAX);
}

void demo_answer_release(demo_answer *a) {
    lar_buf_release(&a->text);
    lar_buf_release(&a->reasoning);
    lar_buf_release(&a->raw);
    for (uint32_t i = 0; i < a->call_count; i++) {
        lar_buf_release(&a->calls[i].id);
        lar_buf_release(&a->calls[i].name);
        lar_buf_release(&a->calls[i].arguments);
    }
    a->call_count = 0;
}

static demo_call *add_call(demo_answer *a) {
    if (a->call_count == DEMO_CALLS_MAX) return NULL;
    demo_call *c = &a->calls[a->call_count++];
    lar_buf_init(&c->id, TEXT_MAX);
    lar_buf_init(&c->name, TEXT_MAX);
    lar_buf_init(&c->arguments, TEXT_MAX);
    return c;
}

void demo_answer_from_message(demo_answer *a, lar_slice m) {
    lar_slice call, content = demo_json_get(m, "content");
    demo_put(&a->raw, m);
    a->has_text = demo_json_is_string(content);
    demo_json_text(content, &a->text);
    demo_json_text(demo_json_get(m, "reasoning_content"), &a->reasoning);
    demo_json_iter it = demo_json_open(demo_json_get(m, "tool_calls"));
    while (demo_json_next(&it, NULL, &call)) {
        demo_call *c = add_call(a);
        if (!c) return;
        lar_slice f = demo_json_get(call, "function");
        demo_json_text(demo_json_get(call, "id"), &c->id);
        demo_json_text(demo_json_get(f, "name"), &c->name);
        demo_json_text(demo_json_get(f, "arguments"), &c->arguments);
    }
}

static void put_argument(lar_buf *out, lar_slice key, lar_slice property) {
    lar_slice type = demo_json_get(property, "type"), choice = {0};
    demo_json_iter choices = demo_json_open(demo_json_get(property, "enum"));
    demo_putf(out, "\"%.*s\":", LAR_FMT(key));
    if (demo_json_next(&choices, NULL, &choice)) demo_put(out, choice);
    else if (lar_slice_eq_cstr(type, "\"number\"") || lar_slice_eq_cstr(type, "\"integer\"")) DEMO_PUT(out, "1");
    else if (lar_slice_eq_cstr(type, "\"boolean\"")) DEMO_PUT(out, "true");
    else if (lar_slice_eq_cstr(type, "\"array\"")) DEMO_PUT(out, "[]");
    else if (lar_slice_eq_cstr(type, "\"object\"")) DEMO_PUT(out, "{}");
    else DEMO_PUT(out, "\"demo\"");
}

bool demo_answer_call(demo_answer *a, const demo_ask *ask) {
    lar_slice name, schema, key;
    if (!demo_ask_first_tool(ask, &name, &schema)) return false;
    demo_call *c = add_call(a);
    if (!c) return false;
    a->has_text = false;
    lar_buf_reset(&a->text, 0);
    DEMO_PUT(&c->id, "call_demo_0001");
    demo_json_text(name, &c->name);
    DEMO_PUT(&c->arguments, "{");
    lar_slice properties = demo_json_get(schema, "properties");
    demo_json_iter it = demo_json_open(demo_json_get(schema, "required"));
    bool first = true;
    while (demo_json_next(&it, NULL, &key)) {
        if (!demo_json_is_string(key)) continue;
        lar_buf plain;
        lar_buf_init(&plain, TEXT_MAX);
        demo_json_text(key, &plain);
        demo_put(&plain, lar_slice_of("", 1));
        if (!first) DEMO_PUT(&c->arguments, ",");
        first = false;
        put_argument(&c->arguments, lar_slice_of(key.ptr + 1, key.len - 2), demo_json_get(properties, plain.ptr));
        lar_buf_release(&plain);
    }
    DEMO_PUT(&c->arguments, "}");
    return true;
}

void demo_answer_render(const demo_answer *a, lar_buf *out) {
    DEMO_PUT(out, "<|assistant|>");
    if (a->reasoning.len) {
        DEMO_PUT(out, "<think>");
        demo_put(out, lar_buf_slice(&a->reasoning));
        DEMO_PUT(out, "</think>");
    }
    demo_put(out, lar_buf_slice(&a->text));
    for (uint32_t i = 0; i < a->call_count; i++) {
        DEMO_PUT(out, "<|call|>");
        demo_put(out, lar_buf_slice(&a->calls[i].id));
        DEMO_PUT(out, " ");
        demo_put(out, lar_buf_slice(&a->calls[i].name));
        DEMO_PUT(out, " ");
        demo_put(out, lar_buf_slice(&a->calls[i].arguments));
    }
    DEMO_PUT(out, "<|end|>");
}

void demo_reply_init(demo_reply *r) {
    *r = (demo_reply){.piece_chars = 12};
    demo_answer_init(&r->answer);
    lar_buf_init(&r->model, 1u << 20);
}

void demo_reply_release(demo_reply *r) {
    demo_answer_release(&r->answer);
    lar_buf_release(&r->model);
}

void demo_reply_usage(const demo_reply *r, lar_buf *out) {
    demo_usage u = r->usage;
    unsigned long long prompt = u.prompt, hit = u.hit, made = u.output;
    switch (r->proto) {
    case DEMO_MESSAGES:
        demo_putf(out, "{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu}",
                  prompt - hit, hit, made);
        return;
    case DEMO_RESPONSES:
        demo_putf(out, "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu},\"output_tokens\":%llu,"
                       "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%llu}",
                  prompt, hit, made, prompt + made);
        return;
    case DEMO_EMBEDDINGS:
        demo_putf(out, "{\"prompt_tokens\":%llu,\"total_tokens\":%llu}", prompt, prompt);
        return;
    default:
        demo_putf(out, "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,", prompt, made, prompt + made);
        if (r->rule == DEMO_RULE_DEEPSEEK)
            demo_putf(out, "\"prompt_cache_hit_tokens\":%llu,\"prompt_cache_miss_tokens\":%llu,", hit, prompt - hit);
        demo_putf(out, "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}", hit);
    }
}

static void put_calls(const demo_answer *a, lar_buf *out) {
    for (uint32_t i = 0; i < a->call_count; i++) {
        demo_put(out, i ? LAR_SLICE(",{\"id\":") : LAR_SLICE("{\"id\":"));
        demo_json_quote(out, lar_buf_slice(&a->calls[i].id));
        DEMO_PUT(out, ",\"type\":\"function\",\"function\":{\"name\":");
        demo_json_quote(out, lar_buf_slice(&a->calls[i].name));
        DEMO_PUT(out, ",\"arguments\":");
        demo_json_quote(out, lar_buf_slice(&a->calls[i].arguments));
        DEMO_PUT(out, "}}");
    }
}

static void put_message(const demo_answer *a, lar_buf *out) {
    if (a->raw.len) {
        demo_put(out, lar_buf_slice(&a->raw));
        return;
    }
    DEMO_PUT(out, "{\"role\":\"assistant\",\"content\":");
    if (a->has_text) demo_json_quote(out, lar_buf_slice(&a->text));
    else DEMO_PUT(out, "null");
    if (a->call_count) {
        DEMO_PUT(out, ",\"tool_calls\":[");
        put_calls(a, out);
        DEMO_PUT(out, "]");
    }
    DEMO_PUT(out, "}");
}

static const char *finish_reason(const demo_reply *r) { return r->answer.call_count ? "tool_calls" : "stop"; }

static void put_head(const demo_reply *r, const char *object, lar_buf *out) {
    bool text = r->proto == DEMO_COMPLETIONS;
    demo_putf(out, "{\"id\":\"%s-%llu\",\"object\":\"%s\",\"created\":%llu,\"model\":", text ? "cmpl" : "chatcmpl",
              (unsigned long long)r->number, object, (unsigned long long)r->created);
    demo_put(out, lar_buf_slice(&r->model));
}

void demo_reply_plain(const demo_reply *r, lar_buf *out) {
    if (r->proto == DEMO_RESPONSES) {
        demo_events_response(r, DEMO_RESPONSE_COMPLETED, out);
        return;
    }
    if (r->proto == DEMO_MESSAGES) {
        demo_events_message(r, out);
        return;
    }
    put_head(r, r->proto == DEMO_CHAT ? "chat.completion" : "text_completion", out);
    if (r->proto == DEMO_CHAT) {
        DEMO_PUT(out, ",\"choices\":[{\"index\":0,\"message\":");
        put_message(&r->answer, out);
    } else {
        DEMO_PUT(out, ",\"choices\":[{\"index\":0,\"text\":");
        demo_json_quote(out, lar_buf_slice(&r->answer.text));
    }
    demo_putf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}],\"usage\":", finish_reason(r));
    demo_reply_usage(r, out);
    DEMO_PUT(out, "}");
}

/* One chunk of a chat or text stream: `field` is the delta's name for the text, NULL for a delta without one. */
static void chunk(const demo_reply *r, const char *field, lar_slice text, lar_buf *out) {
    DEMO_PUT(out, "data: ");
    put_head(r, r->proto == DEMO_CHAT ? "chat.completion.chunk" : "text_completion", out);
    if (r->proto == DEMO_CHAT) {
        DEMO_PUT(out, ",\"choices\":[{\"index\":0,\"delta\":{");
        if (r->sequence == 0) DEMO_PUT(out, "\"role\":\"assistant\",");
        demo_putf(out, "\"%s\":", field);
        demo_json_quote(out, text);
        DEMO_PUT(out, "}");
    } else {
        DEMO_PUT(out, ",\"choices\":[{\"index\":0,\"text\":");
        demo_json_quote(out, text);
    }
    DEMO_PUT(out, ",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void chunk_call(const demo_reply *r, bool open, lar_slice piece, lar_buf *out) {
    const demo_call *c = &r->answer.calls[r->call];
    DEMO_PUT(out, "data: ");
    put_head(r, "chat.completion.chunk", out);
    DEMO_PUT(out, ",\"choices\":[{\"index\":0,\"delta\":{");
    if (r->sequence == 0) DEMO_PUT(out, "\"role\":\"assistant\",\"content\":null,");
    demo_putf(out, "\"tool_calls\":[{\"index\":%u,", r->call);
    if (open) {
        DEMO_PUT(out, "\"id\":");
        demo_json_quote(out, lar_buf_slice(&c->id));
        DEMO_PUT(out, ",\"type\":\"function\",\"function\":{\"name\":");
        demo_json_quote(out, lar_buf_slice(&c->name));
        DEMO_PUT(out, ",\"arguments\":");
    } else {
        DEMO_PUT(out, "\"function\":{\"arguments\":");
    }
    demo_json_quote(out, piece);
    DEMO_PUT(out, "}}]},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void chunk_finish(const demo_reply *r, lar_buf *out) {
    DEMO_PUT(out, "data: ");
    if (r->proto == DEMO_CHAT) {
        put_head(r, "chat.completion.chunk", out);
        demo_putf(out, ",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}]}\n\n", finish_reason(r));
    } else {
        put_head(r, "text_completion", out);
        DEMO_PUT(out, ",\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n");
    }
    if (r->include_usage) {
        DEMO_PUT(out, "data: ");
        put_head(r, r->proto == DEMO_CHAT ? "chat.completion.chunk" : "text_completion", out);
        DEMO_PUT(out, ",\"choices\":[],\"usage\":");
        demo_reply_usage(r, out);
        DEMO_PUT(out, "}\n\n");
    }
    if (!r->no_done) DEMO_PUT(out, "data: [DONE]\n\n");
}

/* The next piece of `text`: piece_chars characters, whole ones. */
static lar_slice take_piece(demo_reply *r, const lar_buf *text) {
    if (r->at >= text->len) return lar_slice_of("", 0);
    const char *p = text->ptr + r->at, *end = text->ptr + text->len, *e = p;
    for (uint32_t i = 0; i < r->piece_chars && e < end; i++) {
        uint32_t n = demo_utf8_len(e, end);
        e += n ? n : 1;
    }
    r->at += (size_t)(e - p);
    return lar_slice_of(p, (size_t)(e - p));
}

static void enter(demo_reply *r, demo_phase phase) {
    r->phase = phase;
    r->at = 0;
    if (phase == DEMO_PHASE_REASON && (!r->answer.reasoning.len || r->proto != DEMO_CHAT)) enter(r, DEMO_PHASE_TEXT);
    else if (phase == DEMO_PHASE_TEXT && !r->answer.has_text) enter(r, DEMO_PHASE_CALLS);
    else if (phase == DEMO_PHASE_CALLS && (!r->answer.call_count || r->proto == DEMO_COMPLETIONS))
        enter(r, DEMO_PHASE_FINISH);
}

static void step_text(demo_reply *r, lar_buf *out) {
    lar_slice piece;
    char now[24];
    bool first = r->pieces == 0, last;
    if (r->clock_text) {
        int n = snprintf(now, sizeof now, "%020llu ", (unsigned long long)lar_clock_mono_ns());
        piece = lar_slice_of(now, (size_t)n);
        last = r->pieces_left <= 1;
        r->pieces_left -= r->pieces_left > 0;
        demo_put(&r->answer.text, piece);
    } else {
        piece = take_piece(r, &r->answer.text);
        last = r->at == r->answer.text.len;
    }
    r->pieces++;
    if (r->proto == DEMO_RESPONSES) demo_events_response_text(r, first, last, piece, out);
    else if (r->proto == DEMO_MESSAGES) demo_events_message_text(r, first, last, piece, out);
    else chunk(r, "content", piece, out);
    if (last) enter(r, DEMO_PHASE_CALLS);
}

static void step_call(demo_reply *r, lar_buf *out) {
    const lar_buf *arguments = &r->answer.calls[r->call].arguments;
    bool open = !r->call_open;
    /* The call's first event carries its name and no arguments yet, as hosted APIs do it. */
    lar_slice piece = open ? lar_slice_of("", 0) : take_piece(r, arguments);
    bool last = !open && r->at == arguments->len;
    if (r->proto == DEMO_RESPONSES) demo_events_response_call(r, open, last, piece, out);
    else if (r->proto == DEMO_MESSAGES) demo_events_message_call(r, open, last, piece, out);
    else chunk_call(r, open, piece, out);
    r->call_open = true;
    if (!last) return;
    r->call_open = false;
    r->at = 0;
    if (++r->call == r->answer.call_count) enter(r, DEMO_PHASE_FINISH);
}

bool demo_reply_step(demo_reply *r, lar_buf *out) {
    switch (r->phase) {
    case DEMO_PHASE_OPEN:
        if (r->proto == DEMO_RESPONSES) demo_events_response_open(r, out);
        else if (r->proto == DEMO_MESSAGES) demo_events_message_open(r, out);
        enter(r, DEMO_PHASE_REASON);
        if (r->proto == DEMO_RESPONSES || r->proto == DEMO_MESSAGES) return true;
        return demo_reply_step(r, out);
    case DEMO_PHASE_REASON:
        chunk(r, "reasoning_content", take_piece(r, &r->answer.reasoning), out);
        if (r->at == r->answer.reasoning.len) enter(r, DEMO_PHASE_TEXT);
        break;
    case DEMO_PHASE_TEXT: step_text(r, out); break;
    case DEMO_PHASE_CALLS: step_call(r, out); break;
    case DEMO_PHASE_FINISH:
        if (r->proto == DEMO_RESPONSES) demo_events_response_close(r, out);
        else if (r->proto == DEMO_MESSAGES) demo_events_message_close(r, out);
        else chunk_finish(r, out);
        r->phase = DEMO_PHASE_END;
        break;
    case DEMO_PHASE_END: return false;
    }
    if (r->proto == DEMO_CHAT || r->proto == DEMO_COMPLETIONS) r->sequence++;
    return true;
}

static void put_vector(lar_buf *out, uint32_t index, bool base64) {
    float v[8];
    unsigned char text[64];
    for (uint32_t i = 0; i < 8; i++) v[i] = (float)((index * 7 + i * 3) % 17) / 16.0f;
    if (base64) {
        int n = EVP_EncodeBlock(text, (const unsigned char *)v, (int)sizeof v);
        demo_putf(out, "\"%.*s\"", n, (const char *)text);
        return;
    }
    for (uint32_t i = 0; i < 8; i++) demo_putf(out, "%s%.4f", i ? "," : "[", (double)v[i]);
    DEMO_PUT(out, "]");
}

void demo_reply_embeddings(const demo_reply *r, const demo_ask *ask, lar_buf *out) {
    bool base64 = lar_slice_eq_cstr(ask->encoding, "\"base64\"");
    lar_slice v = {0};
    uint32_t index = 0;
    demo_json_iter it = demo_json_open(ask->messages);
    bool one = !demo_json_next(&it, NULL, &v) || !demo_json_is_string(v); /* a string, or one array of token numbers */
    DEMO_PUT(out, "{\"object\":\"list\",\"data\":[");
    do {
        demo_putf(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", index ? "," : "", index);
        put_vector(out, index++, base64);
        DEMO_PUT(out, "}");
    } while (!one && demo_json_next(&it, NULL, &v));
    DEMO_PUT(out, "],\"model\":");
    demo_put(out, lar_buf_slice(&r->model));
    DEMO_PUT(out, ",\"usage\":");
    demo_reply_usage(r, out);
    DEMO_PUT(out, "}");
}

void demo_reply_error(demo_proto proto, int status, const char *message, lar_buf *out) {
    const char *type = status == 401 ? "authentication_error" : status == 404 ? "not_found_error"
                     : status == 429 ? "rate_limit_error" : status < 500 ? "invalid_request_error"
                     : status == 529 ? "overloaded_error" : proto == DEMO_MESSAGES ? "api_error" : "server_error";
    if (proto == DEMO_MESSAGES)
        demo_putf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"%s\"}}", type, message);
    else
        demo_putf(out, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null}}", message, type);
}
