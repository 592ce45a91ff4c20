/* Lists of models, text to tokens and back: replies that are ready when the request was read.
 * Flow: lar_answer_new calls. Any thread; never blocks. Forms: OpenAI's for models, vLLM's for the other two.
 * Memory: the ids of one prompt; the reply, bounded by the caller's buffer. */
#include "gateway/serving/token_replies.h"

#include "engine/text/output_utf8.h"

static lar_error put_whole_characters(lar_slice bytes, lar_json_writer *w) {
    lar_output_utf8 whole = {.len = 0};
    lar_buf text;
    lar_buf_init(&text, 3 * bytes.len + 8);
    lar_error e = bytes.len ? lar_output_utf8_push(&whole, bytes, &text) : LAR_OK;
    if (!e) e = lar_output_utf8_finish(&whole, &text);
    if (!e) lar_json_put_text(w, text.len ? lar_buf_slice(&text) : LAR_SLICE(""));
    lar_buf_release(&text);
    return e;
}

void lar_token_text(const lar_serving *s, uint32_t id, lar_json_writer *w) {
    lar_error e = put_whole_characters(lar_tokenizer_bytes(s->text.tokenizer, id), w);
    if (!w->error) w->error = e;
}

/* -- models -------------------------------------------------------------------------------------------------------- */

static void put_model(const lar_serving *s, lar_json_writer *w) {
    lar_json_put(w, "{\"id\":");
    lar_json_put_text(w, lar_slice_cstr(s->model));
    lar_json_put(w, ",\"object\":\"model\",\"created\":");
    lar_json_put_i64(w, s->created);
    lar_json_put(w, ",\"owned_by\":\"larder\",\"max_model_len\":");
    lar_json_put_u64(w, s->context);
    lar_json_put(w, "}");
}

static int hex_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Clients encode a name's slashes, or more (RFC 3986 section 2.1), or nothing. */
static bool names(lar_slice id, const char *model) {
    size_t i = 0;
    for (; *model && i < id.len; model++) {
        char c = id.ptr[i++];
        int high = c == '%' && i + 1 < id.len ? hex_of(id.ptr[i]) : -1, low = high < 0 ? -1 : hex_of(id.ptr[i + 1]);
        if (low >= 0) c = (char)(high * 16 + low), i += 2;
        if (c != *model) return false;
    }
    return !*model && i == id.len;
}

static lar_error models_reply(const lar_serving *s, const lar_serving_ask *from, lar_json_writer *w, lar_refusal *no) {
    if (from->endpoint == LAR_SERVING_MODEL) {
        if (names(from->id, s->model)) return put_model(s, w), w->error;
        lar_error e =
            lar_refuse(no, "model", "model_not_found", "there is no such model here; it is called %s", s->model);
        no->status = 404;
        return e;
    }
    lar_json_put(w, "{\"object\":\"list\",\"data\":[");
    put_model(s, w);
    lar_json_put(w, "]}");
    return w->error;
}

/* -- tokens -------------------------------------------------------------------------------------------------------- */

static void put_tokens(const lar_serving *s, const lar_ask *a, const lar_ids *ids, lar_json_writer *w) {
    lar_json_put(w, "{\"count\":");
    lar_json_put_u64(w, ids->count);
    lar_json_put(w, ",\"max_model_len\":");
    lar_json_put_u64(w, s->context);
    lar_json_put(w, ",\"tokens\":[");
    for (size_t i = 0; i < ids->count; i++) {
        if (i) lar_json_put(w, ",");
        lar_json_put_u64(w, ids->ids[i]);
    }
    lar_json_put(w, a->return_strs ? "],\"token_strs\":[" : "],\"token_strs\":null}");
    for (size_t i = 0; a->return_strs && i < ids->count; i++) {
        if (i) lar_json_put(w, ",");
        lar_token_text(s, ids->ids[i], w);
    }
    if (a->return_strs) lar_json_put(w, "]}");
}

static lar_error tokenize_reply(const lar_serving *s, const lar_serving_ask *from, const lar_ask *a, lar_json_writer *w,
                                lar_refusal *no) {
    lar_prompts prompts = {.count = 0};
    lar_error e = lar_prompts_make(s, from, a, &prompts, no);
    if (!e) put_tokens(s, a, &prompts.list[0].ids, w);
    lar_prompts_release(&prompts);
    return e ? e : w->error;
}

static lar_error detokenize_reply(const lar_serving *s, const lar_ask *a, lar_json_writer *w, lar_refusal *no) {
    const lar_json *j = &a->json;
    lar_buf text;
    lar_buf_init(&text, w->out->max);
    lar_error e = LAR_OK;
    for (uint32_t i = lar_json_first(j, a->tokens); !e && i != LAR_JSON_NONE; i = lar_json_after(j, a->tokens, i)) {
        uint64_t id;
        lar_slice bytes = {NULL, 0};
        if (lar_json_u64(j, i, &id) && id < LAR_TOKEN_NONE)
            bytes = lar_tokenizer_bytes(s->text.tokenizer, (uint32_t)id);
        if (!bytes.ptr) e = lar_refuse(no, "tokens", LAR_CODE_VALUE, "tokens: ids of the vocabulary are expected");
        else e = lar_buf_add_slice(&text, bytes);
    }
    lar_json_put(w, "{\"prompt\":");
    if (!e) e = put_whole_characters(text.len ? lar_buf_slice(&text) : LAR_SLICE(""), w);
    lar_json_put(w, "}");
    lar_buf_release(&text);
    return e ? e : w->error;
}

lar_error lar_token_reply(const lar_serving *s, const lar_serving_ask *from, const lar_ask *a, lar_buf *out,
                          lar_refusal *no) {
    lar_json_writer w = {.out = out};
    if (from->endpoint == LAR_SERVING_TOKENIZE) return tokenize_reply(s, from, a, &w, no);
    if (from->endpoint == LAR_SERVING_DETOKENIZE) return detokenize_reply(s, a, &w, no);
    return models_reply(s, from, &w, no);
}
