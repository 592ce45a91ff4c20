/* One choice of an answer: tokens in, deltas of text, reasoning and calls out, with the logprobs that belong to them.
 * Flow: answer.c's callbacks, under the answer's lock -> lar_output_stream -> `emit` here. Never blocks.
 * Why logprobs wait in a queue: a token's text may be held back as the start of a stop string, of a mark or of a
 * character, and what a stop string cuts off is not told, nor are its logprobs.
 * Invariants: 1. a token leaves the queue once, in order, when the text that it begins with has come out or turned out
 * to be a mark, a call, or cut off. 2. special tokens that are no marks have no text for a client.
 * Memory: buffers with maxima; the queue holds at most what one answer has. */
#include <stdlib.h>

#include "base/utf8.h"
#include "gateway/serving/answer.h"

enum { KEPT_BYTES_MAX = 64 << 20 };

/* -- the output stream's sink -------------------------------------------------------------------------------------- */

static lar_error room_for_delta(lar_answer_sample *s) {
    if (s->delta_count < s->delta_cap) return LAR_OK;
    uint32_t cap = s->delta_cap ? 2 * s->delta_cap : 4;
    lar_delta *grown = realloc(s->deltas, cap * sizeof *grown);
    if (!grown) return LAR_NO_MEMORY;
    s->deltas = grown;
    s->delta_cap = cap;
    return LAR_OK;
}

static lar_error emit(void *user, const lar_output_event *event) {
    lar_answer_sample *s = user;
    if (event->kind == LAR_OUTPUT_CALL && event->index && !s->answer->ask.parallel) s->closed = true;
    if (s->closed) return LAR_OK;
    lar_error e = room_for_delta(s);
    uint32_t start = (uint32_t)s->text.len;
    if (!e) e = lar_buf_add_slice(&s->text, event->text);
    if (e) return e;
    lar_delta *d = &s->deltas[s->delta_count++];
    *d = (lar_delta){.kind = event->kind, .index = event->index, .start = start, .len = (uint32_t)event->text.len};
    if (event->id) memcpy(d->id, event->id, strlen(event->id) + 1);
    s->calls_told += event->kind == LAR_OUTPUT_CALL;
    return LAR_OK;
}

static void make_id(void *user, char *id) {
    lar_answer_sample *s = user;
    lar_answer_make_id(s->answer, "call_", id);
}

/* -- making -------------------------------------------------------------------------------------------------------- */

/* Of an answer that has begun the rest comes behind what its client has. */
static void resume(lar_answer_sample *s) {
    const lar_prompt *p = &s->answer->prompts.list[s->index / s->answer->ask.samples];
    if (!p->begun_tokens) return;
    lar_slice tail = lar_buf_slice(&p->begun_tail), none = LAR_SLICE("");
    s->again = p->again_bytes;
    if (!p->begun_by_client) s->reasoning_tokens = p->begun_reasoning;
    lar_output_stream_resume(s->output, p->begun_content ? none : tail, p->begun_content ? tail : none);
}

lar_error lar_answer_sample_init(lar_answer *a, uint32_t index, lar_diag *d) {
    const lar_serving *v = a->serving;
    lar_answer_sample *s = &a->samples[index];
    lar_slice stops[LAR_OUTPUT_STOPS_MAX];
    lar_buf *bufs[] = {&s->content, &s->reasoning, &s->calls,   &s->content_probs, &s->reasoning_probs,
                       &s->texts,   &s->probs,     &s->offsets, &s->tops,          &s->text};
    *s = (lar_answer_sample){.answer = a, .index = index};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) lar_buf_init(bufs[i], KEPT_BYTES_MAX);
    for (uint32_t i = 0; i < a->ask.stop_count; i++) stops[i] = lar_ask_stop(&a->ask, i);
    lar_output_options o = {.stops = stops, .stop_count = a->ask.stop_count, .call_tokens_max = v->call_tokens_max};
    if (a->from.endpoint == LAR_SERVING_CHAT) {
        o.format = a->ask.calls ? v->text.calls : LAR_OUTPUT_FORMAT_NONE;
        o.arguments = a->ask.stream ? LAR_OUTPUT_CALLS_STREAM : LAR_OUTPUT_CALLS_WHOLE;
        if (v->thinks) o.reasoning_begin = LAR_SLICE(LAR_THINK_BEGIN), o.reasoning_end = LAR_SLICE(LAR_THINK_END);
        o.reasoning_open = a->prompts.list[index / a->ask.samples].reasoning_open;
    }
    const lar_output_sink sink = {.user = s, .emit = emit, .make_id = make_id};
    lar_error e = lar_output_stream_new(&o, &sink, &s->output, d);
    if (!e) resume(s);
    return e;
}

void lar_answer_sample_release(lar_answer_sample *s) {
    lar_buf *bufs[] = {&s->content, &s->reasoning, &s->calls,   &s->content_probs, &s->reasoning_probs,
                       &s->texts,   &s->probs,     &s->offsets, &s->tops,          &s->text};
    lar_output_stream_free(s->output);
    free(s->queue);
    free(s->deltas);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) lar_buf_release(bufs[i]);
}

/* -- logprobs ------------------------------------------------------------------------------------------------------ */

static lar_error queue_token(lar_answer_sample *s, const lar_sampled *t, uint64_t start) {
    if (!s->answer->ask.logprobs) return LAR_OK;
    if (s->queued == s->queue_cap) {
        uint32_t cap = s->queue_cap ? 2 * s->queue_cap : 8;
        lar_told_token *grown = realloc(s->queue, cap * sizeof *grown);
        if (!grown) return LAR_NO_MEMORY;
        s->queue = grown;
        s->queue_cap = cap;
    }
    s->queue[s->queued++] = (lar_told_token){.start = start, .sampled = *t};
    return LAR_OK;
}

/* Tokens whose text has come out are told with the last text of these deltas; without one they were marks or calls. */
static lar_error release_tokens(lar_answer_sample *s) {
    uint64_t done = lar_output_stream_progress(s->output).done;
    const lar_delta *last = NULL;
    uint32_t n = 0;
    lar_error e = LAR_OK;
    for (uint32_t i = 0; i < s->delta_count; i++)
        if (s->deltas[i].kind == LAR_OUTPUT_CONTENT || s->deltas[i].kind == LAR_OUTPUT_REASONING) last = &s->deltas[i];
    for (; !e && n < s->queued && s->queue[n].start < done; n++) {
        const lar_sampled *t = &s->queue[n].sampled;
        if (!last) continue;
        if (s->answer->from.endpoint == LAR_SERVING_COMPLETIONS) e = lar_answer_write_columns(s->answer, s, t);
        else if (last->kind == LAR_OUTPUT_REASONING) e = lar_answer_write_probs(s->answer, t, &s->reasoning_probs);
        else e = lar_answer_write_probs(s->answer, t, &s->content_probs);
    }
    s->queued -= n;
    if (n) memmove(s->queue, s->queue + n, s->queued * sizeof *s->queue);
    return e;
}

/* -- tokens -------------------------------------------------------------------------------------------------------- */

/* What a client may see of a token. */
static lar_slice text_of(const lar_answer_sample *s, uint32_t id) {
    const lar_serving *v = s->answer->serving;
    lar_slice bytes = lar_tokenizer_bytes(v->text.tokenizer, id), none = LAR_SLICE("");
    if (!bytes.ptr || !lar_tokenizer_is_special(v->text.tokenizer, id)) return bytes.ptr ? bytes : none;
    if (s->answer->from.endpoint != LAR_SERVING_CHAT) return none;
    if (lar_slice_eq_cstr(bytes, LAR_THINK_BEGIN) || lar_slice_eq_cstr(bytes, LAR_THINK_END)) return bytes;
    return lar_output_format_marks(v->text.calls, bytes) ? bytes : none;
}

/* Without what the client has of it. */
static lar_slice new_text_of(lar_answer_sample *s, uint32_t id) {
    lar_slice bytes = text_of(s, id);
    size_t again = s->again < bytes.len ? s->again : bytes.len;
    s->again -= (uint32_t)again;
    return lar_slice_of(bytes.ptr + again, bytes.len - again);
}

lar_error lar_answer_sample_token(lar_answer_sample *s, const lar_sampled *t, bool *more) {
    lar_slice bytes = new_text_of(s, t->id);
    lar_output_progress before = lar_output_stream_progress(s->output);
    s->delta_count = 0;
    s->text.len = 0;
    *more = !s->closed;
    if (!*more) return LAR_OK;
    lar_error e = bytes.len ? queue_token(s, t, before.read) : LAR_OK;
    if (!e && bytes.len) e = lar_output_stream_feed(s->output, bytes, 1, more);
    s->reasoning_tokens += before.reasoning || lar_output_stream_progress(s->output).reasoning;
    if (!e) e = release_tokens(s);
    *more = *more && !s->closed;
    return e;
}

static const char *finish_of(const lar_output_summary *sum, lar_job_reason why) {
    if (sum->end == LAR_OUTPUT_END_STOP_STRING) return "stop";
    if (sum->end == LAR_OUTPUT_END_CALL_LIMIT || why == LAR_JOB_LENGTH) return "length";
    return sum->calls ? "tool_calls" : "stop";
}

lar_error lar_answer_sample_finish(lar_answer_sample *s, lar_job_reason why) {
    lar_output_summary summary;
    s->delta_count = 0;
    s->text.len = 0;
    s->finish = "tool_calls";
    if (s->closed) return LAR_OK; /* where a second call began */
    lar_error e = lar_output_stream_finish(s->output, &summary);
    s->finish = s->closed ? "tool_calls" : finish_of(&summary, why);
    s->closed = true;
    return e ? e : release_tokens(s);
}

/* -- what is kept until the end ------------------------------------------------------------------------------------ */

static lar_error keep_call(lar_answer_sample *s, const lar_delta *d, lar_slice text) {
    lar_json_writer w = {.out = &s->calls};
    if (s->calls.len) lar_json_put(&w, "\"}},");
    lar_json_put(&w, "{\"id\":");
    lar_json_put_text(&w, lar_slice_cstr(d->id));
    lar_json_put(&w, ",\"type\":\"function\",\"function\":{\"name\":");
    lar_json_put_text(&w, text);
    lar_json_put(&w, ",\"arguments\":\"");
    return w.error;
}

lar_error lar_answer_sample_keep(lar_answer_sample *s) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < s->delta_count; i++) {
        const lar_delta *d = &s->deltas[i];
        lar_slice text = lar_slice_of(s->text.ptr + d->start, d->len);
        switch (d->kind) {
        case LAR_OUTPUT_CONTENT: e = lar_buf_add_slice(&s->content, text); break;
        case LAR_OUTPUT_REASONING: e = lar_buf_add_slice(&s->reasoning, text); break;
        case LAR_OUTPUT_CALL: e = keep_call(s, d, text); break;
        case LAR_OUTPUT_ARGUMENTS: e = lar_json_escape(&s->calls, text); break;
        }
    }
    return e;
}
