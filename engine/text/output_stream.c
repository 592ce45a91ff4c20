/* A model's output as content, reasoning and calls: the stages one behind the other.
 * Flow: larder run -> lar_output_stream_feed, every token -> the sink's events; output_calls.c reads blocks of calls.
 * Thread: one at a time. Never blocks, unless the sink does.
 * Invariants: 1. `pending` holds what came through the stop strings and was not told yet: the start of a mark at most,
 * or what a block of calls waits for. 2. events depend on the text alone, not on its cuts.
 * Memory: buffers with maxima, all freed with the output. */
#include "engine/text/output_stream.h"

#include <stdlib.h>

#include "engine/text/output_calls.h"
#include "engine/text/output_utf8.h"

enum { LEADING_SPACE_MAX = 64, MARKS_MAX = 4 };

typedef enum stage { STAGE_START, STAGE_REASONING, STAGE_CONTENT } stage;

struct lar_output_stream {
    lar_output_sink sink;
    lar_output_utf8 utf8;
    lar_output_stop *stop;
    lar_output_calls calls;
    lar_buf chars, pending;
    char begin[LAR_OUTPUT_MARK_BYTES_MAX + 1], end[LAR_OUTPUT_MARK_BYTES_MAX + 1]; /* of reasoning; NUL-terminated */
    stage stage;
    uint32_t block_tokens, block_tokens_max;
    size_t told; /* of what comes through the stop strings next, so much was told before: of a text that goes on */
    uint64_t read, used; /* bytes of whole characters, and of them what left `pending` */
    int hit;
    bool over_limit;
};

bool lar_output_prompt_opens(lar_slice prompt, lar_slice begin) {
    while (prompt.len && (prompt.ptr[prompt.len - 1] == '\n' || prompt.ptr[prompt.len - 1] == ' ')) prompt.len--;
    if (!begin.len || prompt.len < begin.len) return false;
    return memcmp(prompt.ptr + prompt.len - begin.len, begin.ptr, begin.len) == 0;
}

lar_error lar_output_stream_new(const lar_output_options *options, const lar_output_sink *sink, lar_output_stream **out,
                                lar_diag *d) {
    lar_slice begin = options->reasoning_begin, end = options->reasoning_end;
    *out = NULL;
    if (!begin.len != !end.len) return lar_fail(LAR_INVALID, d, "one mark of reasoning without the other");
    if (begin.len > LAR_OUTPUT_MARK_BYTES_MAX || end.len > LAR_OUTPUT_MARK_BYTES_MAX)
        return lar_fail(LAR_LIMIT, d, "a mark of reasoning with more than %d bytes", LAR_OUTPUT_MARK_BYTES_MAX);
    lar_output_stream *o = calloc(1, sizeof *o);
    if (!o) return lar_fail(LAR_NO_MEMORY, d, "no memory for the output");
    lar_error e = lar_output_stop_new(options->stops, options->stop_count, &o->stop, d);
    if (e) {
        free(o);
        return e;
    }
    o->sink = *sink;
    o->hit = -1;
    if (begin.len) memcpy(o->begin, begin.ptr, begin.len);
    if (end.len) memcpy(o->end, end.ptr, end.len);
    o->stage = !begin.len ? STAGE_CONTENT : options->reasoning_open ? STAGE_REASONING : STAGE_START;
    o->block_tokens_max = options->call_tokens_max;
    lar_buf_init(&o->chars, 4 * (size_t)LAR_OUTPUT_CALL_BYTES_MAX);
    lar_buf_init(&o->pending, 8 * (size_t)LAR_OUTPUT_CALL_BYTES_MAX);
    lar_output_calls_init(&o->calls, options, &o->sink);
    *out = o;
    return LAR_OK;
}

void lar_output_stream_free(lar_output_stream *o) {
    if (!o) return;
    lar_output_stop_free(o->stop);
    lar_output_calls_release(&o->calls);
    lar_buf_release(&o->chars);
    lar_buf_release(&o->pending);
    free(o);
}

static lar_error tell(lar_output_stream *o, lar_output_kind kind, lar_slice text) {
    const lar_output_event event = {.kind = kind, .text = text};
    return text.len ? o->sink.emit(o->sink.user, &event) : LAR_OK;
}

/* The first text is the opening mark, or there is none. *used: the mark with the white space before it. */
static bool leave_start(lar_output_stream *o, lar_slice text, size_t *used) {
    size_t space = 0, len = strlen(o->begin);
    while (space < text.len && (text.ptr[space] == ' ' || text.ptr[space] == '\n')) space++;
    size_t rest = text.len - space, n = rest < len ? rest : len;
    *used = 0;
    o->stage = STAGE_CONTENT;
    if (space > LEADING_SPACE_MAX || (n && memcmp(text.ptr + space, o->begin, n) != 0)) return true;
    if (n < len) {
        o->stage = STAGE_START;
        return false;
    }
    *used = space + len;
    o->stage = STAGE_REASONING;
    return true;
}

/* Content or reasoning up to the next mark; false if more text is needed. */
static lar_error plain_text(lar_output_stream *o, lar_slice text, size_t *used, bool *again) {
    const char *marks[MARKS_MAX + 1] = {NULL};
    int count = 0, which;
    bool reasoning = o->stage == STAGE_REASONING;
    if (reasoning) marks[count++] = o->end;
    for (const char *const *m = lar_output_calls_begin(&o->calls); *m && count < MARKS_MAX; m++) marks[count++] = *m;
    size_t at = lar_output_find(text, marks, &which);
    *used = at + (which >= 0 ? strlen(marks[which]) : 0);
    *again = which >= 0;
    lar_error e = tell(o, reasoning ? LAR_OUTPUT_REASONING : LAR_OUTPUT_CONTENT, lar_slice_of(text.ptr, at));
    if (e || which < 0) return e;
    o->stage = STAGE_CONTENT;
    if (reasoning && which == 0) return LAR_OK;
    o->block_tokens = 0;
    return lar_output_calls_open(&o->calls, lar_slice_cstr(marks[which]));
}

static lar_error call_text(lar_output_stream *o, lar_slice text, size_t *used, bool *again) {
    lar_output_verdict verdict;
    lar_error e = lar_output_calls_step(&o->calls, text, used, &verdict);
    *again = !e && verdict != LAR_OUTPUT_WAIT;
    if (!e && verdict == LAR_OUTPUT_NO) e = tell(o, LAR_OUTPUT_CONTENT, lar_buf_slice(&o->calls.raw));
    return e;
}

static lar_error process(lar_output_stream *o) {
    size_t at = 0;
    bool again = true;
    lar_error e = LAR_OK;
    while (!e && again) {
        size_t used = 0;
        lar_slice text = o->pending.ptr ? lar_slice_of(o->pending.ptr + at, o->pending.len - at) : LAR_SLICE("");
        if (o->calls.place != LAR_OUTPUT_OUTSIDE) e = call_text(o, text, &used, &again);
        else if (o->stage == STAGE_START) again = leave_start(o, text, &used);
        else e = plain_text(o, text, &used, &again);
        at += used;
    }
    lar_buf_consume(&o->pending, at);
    o->used += at;
    if (e != LAR_LIMIT || o->calls.place == LAR_OUTPUT_OUTSIDE) return e;
    o->over_limit = true; /* the call's own maximum */
    return LAR_OK;
}

void lar_output_stream_resume(lar_output_stream *o, lar_slice reasoning, lar_slice content) {
    if (!reasoning.len && !content.len) return;
    o->stage = content.len || !o->begin[0] ? STAGE_CONTENT : STAGE_REASONING;
    o->told = lar_output_stop_begin(o->stop, content.len ? content : reasoning);
}

/* What came out of the stop strings behind `from`, without what was told before. */
static void leave_out_told(lar_output_stream *o, size_t from) {
    size_t came = o->pending.len - from, n = o->told < came ? o->told : came;
    if (!n) return;
    memmove(o->pending.ptr + from, o->pending.ptr + from + n, came - n);
    o->pending.len -= n;
    o->told -= n;
}

lar_error lar_output_stream_feed(lar_output_stream *o, lar_slice bytes, uint32_t tokens, bool *more) {
    *more = o->hit < 0 && !o->over_limit;
    if (!*more) return LAR_OK;
    if (bytes.len > LAR_OUTPUT_CALL_BYTES_MAX) return LAR_LIMIT;
    o->chars.len = 0;
    lar_error e = lar_output_utf8_push(&o->utf8, bytes, &o->chars);
    o->read += o->chars.len;
    size_t from = o->pending.len;
    if (!e) e = lar_output_stop_push(o->stop, lar_buf_slice(&o->chars), &o->pending, &o->hit);
    leave_out_told(o, from);
    if (!e) e = process(o);
    if (o->calls.place != LAR_OUTPUT_OUTSIDE) {
        o->block_tokens += tokens;
        o->over_limit = o->over_limit || (o->block_tokens_max && o->block_tokens > o->block_tokens_max);
    }
    *more = !e && o->hit < 0 && !o->over_limit;
    return e;
}

/* What was held back comes out: nothing can become a mark any more. Of a call that was told, nothing more is told: its
 * arguments have no end anyway, and they are no content. */
static lar_error flush(lar_output_stream *o, bool *unfinished) {
    lar_error e = LAR_OK;
    if (o->calls.is_told) o->pending.len = 0;
    *unfinished = o->calls.place != LAR_OUTPUT_OUTSIDE && lar_output_calls_cut(&o->calls);
    if (*unfinished) e = tell(o, LAR_OUTPUT_CONTENT, lar_buf_slice(&o->calls.raw));
    bool reasoning = o->stage == STAGE_REASONING;
    if (!e) e = tell(o, reasoning ? LAR_OUTPUT_REASONING : LAR_OUTPUT_CONTENT, lar_buf_slice(&o->pending));
    o->used += o->pending.len;
    o->pending.len = 0;
    return e;
}

lar_output_progress lar_output_stream_progress(const lar_output_stream *o) {
    bool inside = o->calls.place != LAR_OUTPUT_OUTSIDE; /* it may still come out as text */
    return (lar_output_progress){.read = o->read,
                                 .done = o->used - (inside ? o->calls.raw.len : 0),
                                 .reasoning = o->stage == STAGE_REASONING && !inside};
}

lar_error lar_output_stream_finish(lar_output_stream *o, lar_output_summary *summary) {
    bool unfinished = false;
    size_t from = o->pending.len;
    lar_error e = LAR_OK;
    if (o->hit < 0 && !o->over_limit) {
        o->chars.len = 0;
        e = lar_output_utf8_finish(&o->utf8, &o->chars);
        o->read += o->chars.len;
        if (!e) e = lar_output_stop_push(o->stop, lar_buf_slice(&o->chars), &o->pending, &o->hit);
    }
    if (!e) e = lar_output_stop_finish(o->stop, &o->pending);
    leave_out_told(o, from);
    if (!e && !o->over_limit) e = process(o);
    if (!e) e = flush(o, &unfinished);
    *summary = (lar_output_summary){.end = LAR_OUTPUT_END_TEXT,
                                    .stop = o->hit,
                                    .calls = o->calls.complete,
                                    .calls_invalid = o->calls.invalid};
    if (o->over_limit) summary->end = LAR_OUTPUT_END_CALL_LIMIT;
    else if (o->hit >= 0) summary->end = LAR_OUTPUT_END_STOP_STRING;
    else if (unfinished) summary->end = LAR_OUTPUT_END_UNFINISHED;
    else if (summary->calls && !summary->calls_invalid) summary->end = LAR_OUTPUT_END_CALLS;
    return e;
}
