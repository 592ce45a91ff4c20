/* Feeds a text to lar_output_stream in pieces and writes down what it tells, for tests and the fuzzer: neighbours of
 * one kind are joined, so that the record is the same for every cut.
 * "C[text]" "R[text]" "call 0 id0 name" "A0[text]". */
#ifndef LARDER_TESTS_OUTPUT_PLAY_H
#define LARDER_TESTS_OUTPUT_PLAY_H

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/text/output_stream.h"

typedef struct output_play {
    lar_buf record;
    lar_output_kind last;
    uint32_t last_index, ids;
    bool open;
} output_play;

#define PLAY_CHECK(cond)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            (void)fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void play_whole_characters(lar_slice s) {
    const unsigned char *p = (const unsigned char *)s.ptr, *end = p + s.len;
    PLAY_CHECK(s.len > 0);
    while (p < end) {
        size_t n = lar_utf8_sequence(p, end);
        PLAY_CHECK(n > 0);
        p += n;
    }
}

static inline lar_error play_emit(void *user, const lar_output_event *event) {
    output_play *p = user;
    play_whole_characters(event->text);
    bool same = p->open && p->last == event->kind && p->last_index == event->index && event->kind != LAR_OUTPUT_CALL;
    if (!same && p->open) PLAY_CHECK(!lar_buf_add(&p->record, "]", 1));
    if (event->kind == LAR_OUTPUT_CALL) {
        PLAY_CHECK(!lar_buf_printf(&p->record, "call %u %s %.*s;", event->index, event->id, LAR_FMT(event->text)));
    } else {
        static const char letters[] = {'C', 'R', '?', 'A'};
        if (!same) PLAY_CHECK(!lar_buf_printf(&p->record, "%c%u[", letters[event->kind], event->index));
        PLAY_CHECK(!lar_buf_add_slice(&p->record, event->text));
    }
    p->open = event->kind != LAR_OUTPUT_CALL;
    p->last = event->kind;
    p->last_index = event->index;
    return LAR_OK;
}

static inline void play_id(void *user, char *id) {
    output_play *p = user;
    (void)snprintf(id, LAR_OUTPUT_ID_BYTES, "id%u", p->ids++);
}

/* How the text is cut: at one place, byte by byte (SIZE_MAX), or at random places of a seed. */
typedef struct output_cuts {
    size_t at;
    uint64_t seed; /* 0: `at` counts */
} output_cuts;

static inline size_t play_piece(output_cuts *c, size_t done, size_t len) {
    if (c->seed) {
        c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
        size_t n = 1 + (size_t)(c->seed >> 33) % 9;
        return n < len - done ? n : len - done;
    }
    if (c->at == SIZE_MAX) return 1;
    return done < c->at && c->at < len ? c->at - done : len - done;
}

/* The record of one run, ended by the summary; the caller releases it. */
static inline lar_buf output_play_text(lar_slice text, const lar_output_options *options, output_cuts cuts) {
    output_play p = {.open = false};
    lar_buf_init(&p.record, 64 << 20);
    const lar_output_sink sink = {.user = &p, .emit = play_emit, .make_id = play_id};
    lar_output_stream *o;
    lar_diag d = {.text = ""};
    PLAY_CHECK(!lar_output_stream_new(options, &sink, &o, &d));
    bool more = true;
    for (size_t done = 0, n; done < text.len && more; done += n) {
        n = play_piece(&cuts, done, text.len);
        char *exact = malloc(n); /* so that a sanitizer sees a read behind it */
        PLAY_CHECK(exact != NULL);
        memcpy(exact, text.ptr + done, n);
        PLAY_CHECK(!lar_output_stream_feed(o, lar_slice_of(exact, n), 1, &more));
        free(exact);
        lar_output_progress at = lar_output_stream_progress(o);
        PLAY_CHECK(at.done <= at.read && at.read <= 3 * (done + n)); /* a byte becomes U+FFFD at most */
    }
    lar_output_summary s;
    PLAY_CHECK(!lar_output_stream_finish(o, &s));
    lar_output_progress end = lar_output_stream_progress(o);
    PLAY_CHECK(end.done == end.read || (s.end != LAR_OUTPUT_END_TEXT && s.end != LAR_OUTPUT_END_CALLS));
    lar_output_stream_free(o);
    static const char *const ends[] = {"text", "calls", "stop", "unfinished", "limit"};
    PLAY_CHECK(!lar_buf_printf(&p.record, "%s(%s %d %u %u)", p.open ? "]" : "", ends[s.end], s.stop, s.calls,
                               s.calls_invalid));
    return p.record;
}

#endif
