/* The JSON of an answer: chunks of a stream, or one body, in OpenAI's forms with DeepSeek's members.
 * Flow: answer.c calls, under the answer's lock; everything goes to a->out. Never blocks.
 * Forms: chat.completion, chat.completion.chunk and text_completion of OpenAI's API reference; reasoning_content,
 * logprobs.reasoning_content, prompt_cache_hit_tokens and prompt_cache_miss_tokens of DeepSeek's.
 * Invariants: 1. every event is whole, one JSON object, valid UTF-8. 2. usage adds up: hit + miss = prompt, prompt +
 * completion = total. */
#include "gateway/serving/answer.h"

#include <stdio.h>

#include "base/utf8.h"

static bool is_chat(const lar_answer *a) { return a->from.endpoint == LAR_SERVING_CHAT; }

lar_error lar_answer_write_prefix(lar_answer *a, const lar_serving_begun *begun) {
    lar_json_writer w = {.out = &a->prefix};
    if (begun && begun->members.len) {
        lar_json_put(&w, "data: {");
        lar_json_put_raw(&w, begun->members);
        lar_json_put(&w, ",\"choices\":[");
        return w.error;
    }
    const char *object = !is_chat(a) ? "text_completion" : a->ask.stream ? "chat.completion.chunk" : "chat.completion";
    if (a->ask.stream) lar_json_put(&w, "data: ");
    lar_json_put(&w, "{\"id\":");
    lar_json_put_text(&w, lar_slice_cstr(a->id));
    lar_json_put(&w, ",\"object\":");
    lar_json_put_text(&w, lar_slice_cstr(object));
    lar_json_put(&w, ",\"created\":");
    lar_json_put_i64(&w, a->from.now);
    lar_json_put(&w, ",\"model\":");
    lar_json_put_text(&w, lar_slice_cstr(a->serving->model));
    lar_json_put(&w, ",\"system_fingerprint\":");
    lar_json_put_text(&w, lar_slice_cstr(a->serving->fingerprint));
    lar_json_put(&w, ",\"choices\":[");
    return w.error;
}

static lar_json_writer begin_event(lar_answer *a) {
    lar_json_writer w = {.out = &a->out};
    a->out.len = 0;
    lar_json_put_raw(&w, lar_buf_slice(&a->prefix));
    return w;
}

static lar_error end_event(const lar_answer *a, lar_json_writer *w) {
    lar_json_put(w, a->ask.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
    return w->error;
}

/* -- logprobs ------------------------------------------------------------------------------------------------------ */

/* A token whose bytes are no characters on their own is written as OpenAI does it: \xe2\x9c, behind `mark`. */
static void put_token(const lar_answer *a, uint32_t id, const char *mark, lar_json_writer *w) {
    lar_slice bytes = lar_tokenizer_bytes(a->serving->text.tokenizer, id);
    const unsigned char *p = (const unsigned char *)bytes.ptr, *end = p + bytes.len;
    size_t n = 1;
    for (const unsigned char *at = p; at < end && n; at += n) n = lar_utf8_sequence(at, end);
    if (n) {
        lar_json_put_text(w, bytes);
        return;
    }
    lar_json_put(w, "\"");
    lar_json_put(w, mark);
    for (; p < end && !w->error; p++) w->error = lar_buf_printf(w->out, "\\\\x%02x", *p);
    lar_json_put(w, "\"");
}

static void put_prob(const lar_answer *a, uint32_t id, float value, lar_json_writer *w) {
    lar_slice bytes = lar_tokenizer_bytes(a->serving->text.tokenizer, id);
    lar_json_put(w, "{\"token\":");
    put_token(a, id, "", w);
    lar_json_put(w, ",\"logprob\":");
    lar_json_put_logprob(w, value);
    lar_json_put(w, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.len; i++) {
        if (i) lar_json_put(w, ",");
        lar_json_put_u64(w, (unsigned char)bytes.ptr[i]);
    }
    lar_json_put(w, "]");
}

lar_error lar_answer_write_probs(const lar_answer *a, const lar_sampled *t, lar_buf *out) {
    lar_json_writer w = {.out = out};
    if (out->len) lar_json_put(&w, ",");
    put_prob(a, t->id, t->logprob, &w);
    lar_json_put(&w, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < t->top_count; i++) {
        if (i) lar_json_put(&w, ",");
        put_prob(a, t->top[i].id, t->top[i].value, &w);
        lar_json_put(&w, "}");
    }
    lar_json_put(&w, "]}");
    return w.error;
}

static uint64_t characters(lar_slice bytes) {
    uint64_t n = 0;
    for (size_t i = 0; i < bytes.len; i++) n += ((unsigned char)bytes.ptr[i] & 0xC0) != 0x80;
    return n;
}

static void put_tops(const lar_answer *a, const lar_sampled *t, lar_json_writer *w) {
    bool told = false;
    lar_json_put(w, "{");
    for (uint32_t i = 0; i < t->top_count; i++) {
        if (i) lar_json_put(w, ",");
        put_token(a, t->top[i].id, "bytes:", w);
        lar_json_put(w, ":");
        lar_json_put_logprob(w, t->top[i].value);
        told = told || t->top[i].id == t->id;
    }
    if (!told) {
        if (t->top_count) lar_json_put(w, ",");
        put_token(a, t->id, "bytes:", w);
        lar_json_put(w, ":");
        lar_json_put_logprob(w, t->logprob);
    }
    lar_json_put(w, "}");
}

lar_error lar_answer_write_columns(const lar_answer *a, lar_answer_sample *s, const lar_sampled *t) {
    lar_json_writer texts = {.out = &s->texts}, probs = {.out = &s->probs};
    lar_json_writer offsets = {.out = &s->offsets}, tops = {.out = &s->tops};
    lar_json_writer *all[] = {&texts, &probs, &offsets, &tops};
    for (size_t i = 0; i < 4; i++)
        if (all[i]->out->len) lar_json_put(all[i], ",");
    put_token(a, t->id, "bytes:", &texts);
    lar_json_put_logprob(&probs, t->logprob);
    lar_json_put_u64(&offsets, s->offset);
    put_tops(a, t, &tops);
    s->offset += characters(lar_tokenizer_bytes(a->serving->text.tokenizer, t->id));
    for (size_t i = 0; i < 4; i++)
        if (all[i]->error) return all[i]->error;
    return LAR_OK;
}

static void put_columns(const lar_answer_sample *s, lar_json_writer *w) {
    if (!s->answer->ask.logprobs) {
        lar_json_put(w, "null");
        return;
    }
    const struct {
        const char *name;
        const lar_buf *column;
    } rows[] = {{"{\"text_offset\":[", &s->offsets},
                {"],\"token_logprobs\":[", &s->probs},
                {"],\"tokens\":[", &s->texts},
                {"],\"top_logprobs\":[", &s->tops}};
    for (size_t i = 0; i < 4; i++) {
        lar_json_put(w, rows[i].name);
        lar_json_put_raw(w, lar_buf_slice(rows[i].column));
    }
    lar_json_put(w, "]}");
}

static void put_chat_probs(const lar_answer_sample *s, lar_json_writer *w) {
    if (!s->answer->ask.logprobs || (s->answer->ask.stream && !s->content_probs.len && !s->reasoning_probs.len)) {
        lar_json_put(w, "null");
        return;
    }
    lar_json_put(w, "{\"content\":[");
    lar_json_put_raw(w, lar_buf_slice(&s->content_probs));
    lar_json_put(w, "],\"refusal\":null");
    if (s->reasoning_probs.len) {
        lar_json_put(w, ",\"reasoning_content\":[");
        lar_json_put_raw(w, lar_buf_slice(&s->reasoning_probs));
        lar_json_put(w, "]");
    }
    lar_json_put(w, "}");
}

/* -- chunks -------------------------------------------------------------------------------------------------------- */

static void put_finish(const lar_answer_sample *s, lar_json_writer *w) {
    lar_json_put(w, ",\"finish_reason\":");
    if (s->finish) lar_json_put_text(w, lar_slice_cstr(s->finish));
    else lar_json_put(w, "null");
    lar_json_put(w, "}");
}

/* {"index":0,"delta": */
static lar_json_writer begin_choice(lar_answer *a, const lar_answer_sample *s) {
    lar_json_writer w = begin_event(a);
    lar_json_put(&w, "{\"index\":");
    lar_json_put_u64(&w, s->index);
    lar_json_put(&w, ",\"delta\":{");
    return w;
}

/* A choice of the completions endpoint; `probs`: the columns are written. */
static void put_text_choice(const lar_answer_sample *s, lar_slice text, bool probs, lar_json_writer *w) {
    lar_json_put(w, "{\"text\":");
    lar_json_put_text(w, text);
    lar_json_put(w, ",\"index\":");
    lar_json_put_u64(w, s->index);
    lar_json_put(w, ",\"logprobs\":");
    if (probs) put_columns(s, w);
    else lar_json_put(w, "null");
}

static lar_slice echo_of(const lar_answer_sample *s) {
    const lar_prompt *p = &s->answer->prompts.list[s->index / s->answer->ask.samples];
    return s->answer->ask.echo && p->echo.len ? lar_buf_slice(&p->echo) : LAR_SLICE("");
}

lar_error lar_answer_write_role(lar_answer *a, const lar_answer_sample *s) {
    a->out.len = 0;
    if (!is_chat(a)) {
        if (!echo_of(s).len) return LAR_OK;
        lar_json_writer w = begin_event(a);
        put_text_choice(s, echo_of(s), false, &w);
        lar_json_put(&w, ",\"finish_reason\":null}");
        return end_event(a, &w);
    }
    lar_json_writer w = begin_choice(a, s);
    lar_json_put(&w, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
    return end_event(a, &w);
}

static lar_slice began(const lar_answer *a) { return lar_slice_of(a->names.ptr, a->to); }
static lar_slice goes_on(const lar_answer *a) { return lar_slice_of(a->names.ptr + a->to, a->names.len - a->to); }

lar_error lar_answer_write_seam(lar_answer *a) {
    lar_json_writer w = begin_choice(a, &a->samples[0]);
    lar_json_put(&w, "},\"logprobs\":null,\"finish_reason\":null}],\"larder\":{\"continued_by\":");
    lar_json_put_text(&w, goes_on(a));
    lar_json_put(&w, ",\"begun_by\":");
    lar_json_put_text(&w, began(a));
    lar_json_put(&w, ",\"after_tokens\":");
    lar_json_put_u64(&w, a->prompts.list[0].begun_tokens);
    lar_json_put(&w, a->ask.include_usage ? "},\"usage\":null}\n\n" : "}}\n\n");
    return w.error;
}

static void put_delta(const lar_delta *d, lar_slice text, lar_json_writer *w) {
    bool call = d->kind == LAR_OUTPUT_CALL;
    if (d->kind == LAR_OUTPUT_CONTENT || d->kind == LAR_OUTPUT_REASONING) {
        lar_json_put(w, d->kind == LAR_OUTPUT_CONTENT ? "\"content\":" : "\"reasoning_content\":");
        lar_json_put_text(w, text);
        lar_json_put(w, "}");
        return;
    }
    lar_json_put(w, "\"tool_calls\":[{\"index\":");
    lar_json_put_u64(w, d->index);
    if (call) {
        lar_json_put(w, ",\"id\":");
        lar_json_put_text(w, lar_slice_cstr(d->id));
        lar_json_put(w, ",\"type\":\"function\",\"function\":{\"name\":");
        lar_json_put_text(w, text);
        lar_json_put(w, ",\"arguments\":\"\"}}]}");
    } else {
        lar_json_put(w, ",\"function\":{\"arguments\":");
        lar_json_put_text(w, text);
        lar_json_put(w, "}}]}");
    }
}

lar_error lar_answer_write_delta(lar_answer *a, lar_answer_sample *s, const lar_delta *d) {
    lar_slice text = lar_slice_of(s->text.ptr + d->start, d->len);
    lar_buf *shown[] = {&s->content_probs, &s->reasoning_probs, &s->texts, &s->probs, &s->offsets, &s->tops};
    bool is_text = d->kind == LAR_OUTPUT_CONTENT || d->kind == LAR_OUTPUT_REASONING;
    lar_json_writer w;
    if (!is_chat(a)) {
        w = begin_event(a);
        put_text_choice(s, text, true, &w);
    } else {
        w = begin_choice(a, s);
        put_delta(d, text, &w);
        lar_json_put(&w, ",\"logprobs\":");
        if (is_text) put_chat_probs(s, &w);
        else lar_json_put(&w, "null");
    }
    for (size_t i = 0; is_text && i < sizeof shown / sizeof *shown; i++) shown[i]->len = 0;
    lar_json_put(&w, ",\"finish_reason\":null}");
    return end_event(a, &w);
}

lar_error lar_answer_write_finish(lar_answer *a, const lar_answer_sample *s) {
    lar_json_writer w;
    if (is_chat(a)) {
        w = begin_choice(a, s);
        lar_json_put(&w, "},\"logprobs\":null");
    } else {
        w = begin_event(a);
        put_text_choice(s, LAR_SLICE(""), false, &w);
    }
    put_finish(s, &w);
    return end_event(a, &w);
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* The word of a client's own beginning that was made again is of the prompt. */
static lar_answer_end counted(const lar_answer *a) {
    lar_answer_end u = a->end;
    const lar_prompt *p = &a->prompts.list[0];
    uint32_t again = p->begun_by_client ? p->begun_tokens - p->begun_ids : 0, of_all = again * a->sample_count;
    u.prompt_tokens += again;
    u.answer_tokens = u.answer_tokens > of_all ? u.answer_tokens - of_all : 0;
    if (u.reasoning_tokens > u.answer_tokens) u.reasoning_tokens = u.answer_tokens;
    return u;
}

static void put_usage(const lar_answer *a, lar_json_writer *w) {
    const lar_answer_end both = counted(a), *u = &both;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"{\"prompt_tokens\":", u->prompt_tokens},
                {",\"completion_tokens\":", u->answer_tokens},
                {",\"total_tokens\":", (uint64_t)u->prompt_tokens + u->answer_tokens},
                {",\"prompt_tokens_details\":{\"cached_tokens\":", u->cached_tokens},
                {"},\"completion_tokens_details\":{\"reasoning_tokens\":", u->reasoning_tokens},
                {"},\"prompt_cache_hit_tokens\":", u->cached_tokens},
                {",\"prompt_cache_miss_tokens\":", u->prompt_tokens - u->cached_tokens}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_json_put(w, rows[i].name);
        lar_json_put_u64(w, rows[i].value);
    }
    lar_json_put(w, "}");
}

/* Of an answer that goes on: what a client would be told had one side made all of it, and each side's part. Whatever
 * was cached, was cached at one of them, and stands there. */
static void put_usage_of_both(const lar_answer *a, lar_json_writer *w) {
    const lar_answer_end *u = &a->end;
    const lar_prompt *p = &a->prompts.list[0];
    uint64_t prompt = a->prompt_told >= 0 ? (uint64_t)a->prompt_told : u->prompt_tokens - p->begun_ids;
    uint64_t all = (uint64_t)p->begun_ids + u->answer_tokens;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"{\"prompt_tokens\":", prompt},
                {",\"completion_tokens\":", all},
                {",\"total_tokens\":", prompt + all},
                {",\"completion_tokens_details\":{\"reasoning_tokens\":", u->reasoning_tokens},
                {"},\"larder\":{\"continued\":{\"prompt_tokens\":", u->prompt_tokens},
                {",\"cached_tokens\":", u->cached_tokens},
                {",\"completion_tokens\":", all > p->begun_tokens ? all - p->begun_tokens : 0},
                {"},\"begun\":{\"completion_tokens\":", p->begun_tokens}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lar_json_put(w, rows[i].name);
        lar_json_put_u64(w, rows[i].value);
    }
    lar_json_put(w, "},\"begun_by\":");
    lar_json_put_text(w, began(a));
    lar_json_put(w, ",\"continued_by\":");
    lar_json_put_text(w, goes_on(a));
    lar_json_put(w, "}}");
}

lar_error lar_answer_write_usage(lar_answer *a) {
    lar_json_writer w = begin_event(a);
    lar_json_put(&w, "],\"usage\":");
    if (a->resumed) put_usage_of_both(a, &w);
    else put_usage(a, &w);
    lar_json_put(&w, "}\n\n");
    return w.error;
}

static void put_message(const lar_answer_sample *s, lar_json_writer *w) {
    lar_json_put(w, "{\"index\":");
    lar_json_put_u64(w, s->index);
    lar_json_put(w, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (s->calls.len && !s->content.len) lar_json_put(w, "null");
    else lar_json_put_text(w, lar_buf_slice(&s->content));
    lar_json_put(w, ",\"refusal\":null");
    if (s->reasoning.len) {
        lar_json_put(w, ",\"reasoning_content\":");
        lar_json_put_text(w, lar_buf_slice(&s->reasoning));
    }
    if (s->calls.len) {
        lar_json_put(w, ",\"tool_calls\":[");
        lar_json_put_raw(w, lar_buf_slice(&s->calls));
        lar_json_put(w, "\"}}]");
    }
    lar_json_put(w, "},\"logprobs\":");
    put_chat_probs(s, w);
}

static lar_error put_text_body(lar_answer_sample *s, lar_json_writer *w) {
    lar_slice echo = echo_of(s);
    lar_buf both;
    lar_buf_init(&both, echo.len + s->content.len + 1);
    lar_error e = lar_buf_add_slice(&both, echo);
    if (!e) e = lar_buf_add_slice(&both, lar_buf_slice(&s->content));
    if (!e) put_text_choice(s, both.len ? lar_buf_slice(&both) : LAR_SLICE(""), true, w);
    lar_buf_release(&both);
    return e;
}

lar_error lar_answer_write_body(lar_answer *a) {
    lar_json_writer w = begin_event(a);
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < a->sample_count; i++) {
        lar_answer_sample *s = &a->samples[i];
        if (i) lar_json_put(&w, ",");
        if (is_chat(a)) put_message(s, &w);
        else e = put_text_body(s, &w);
        put_finish(s, &w);
    }
    lar_json_put(&w, "],\"usage\":");
    put_usage(a, &w);
    lar_json_put(&w, "}");
    return e ? e : w.error;
}
