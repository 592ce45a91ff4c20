/* Plays bytes into the HTTP parser in given pieces and writes down what it says. Shared by tests and fuzzers.
 *
 * The transcript is the same for two runs exactly if all events were: heads with all they say, body bytes joined
 * over pieces, ends, and the error's name. */
#ifndef LARDER_TESTS_HTTP1_PLAY_H
#define LARDER_TESTS_HTTP1_PLAY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "gateway/http1/http1.h"
#include "tests/unit_http1/cuts.h"

typedef struct http1_play {
    lar_http1_type type;
    lar_http1_limits limits;
    bool to_head;        /* every answer belongs to a HEAD request */
    bool close;          /* the peer closes after the last byte */
    bool full;           /* heads with all fields; else method and target, or the status */
    bool in_body;        /* out: joins body pieces */
    uint64_t body_bytes; /* out: sum over BODY events of the last message */
} http1_play;

#define PLAY_LIMITS ((lar_http1_limits){.head_bytes_max = 65536, .fields_max = 100, .body_bytes_max = UINT64_MAX})

#define PLAY_CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond), abort()))

static inline void play_add(lar_buf *out, const char *text) { PLAY_CHECK(!lar_buf_add(out, text, strlen(text))); }

static inline void play_head(const http1_play *y, const lar_http1_head *h, lar_buf *out) {
    if (y->type == LAR_HTTP1_REQUEST)
        PLAY_CHECK(!lar_buf_printf(out, "(%.*s %.*s", LAR_FMT(h->method), LAR_FMT(h->target)));
    else PLAY_CHECK(!lar_buf_printf(out, "(%d", h->status));
    if (y->full) {
        PLAY_CHECK(!lar_buf_printf(out, " %d %d %d %d %d %d %d %d %llu %u %u '%.*s'", h->method_id, h->minor,
                                   h->keep_alive, h->chunked, h->has_length, h->expect_continue, h->upgrade,
                                   h->has_body, (unsigned long long)h->length, h->field_count, h->head_bytes,
                                   LAR_FMT(h->reason)));
        for (uint32_t i = 0; i < h->field_count; i++) {
            PLAY_CHECK(!lar_buf_add(out, "\n", 1) && !lar_buf_add_slice(out, h->fields[i].name));
            PLAY_CHECK(!lar_buf_add(out, "=", 1) && !lar_buf_add_slice(out, h->fields[i].value));
        }
    }
    play_add(out, ")");
}

/* One event into the transcript. */
static inline void play_event(http1_play *y, lar_http1 *p, lar_http1_event e, lar_slice body, lar_buf *out) {
    if (y->in_body && e != LAR_HTTP1_BODY) play_add(out, "]");
    switch (e) {
    case LAR_HTTP1_MORE: return;
    case LAR_HTTP1_HEAD_END:
        y->body_bytes = 0;
        play_head(y, lar_http1_head_of(p), out);
        break;
    case LAR_HTTP1_BODY:
        PLAY_CHECK(body.len > 0);
        y->body_bytes += body.len;
        if (!y->in_body) play_add(out, "[");
        PLAY_CHECK(!lar_buf_add_slice(out, body));
        break;
    case LAR_HTTP1_END: {
        const lar_http1_head *h = lar_http1_head_of(p);
        play_add(out, ".");
        PLAY_CHECK(lar_http1_idle(p));
        PLAY_CHECK(h->has_body || y->body_bytes == 0);
        PLAY_CHECK(!h->has_body || h->chunked || !h->has_length || y->body_bytes == h->length);
        PLAY_CHECK(y->type == LAR_HTTP1_RESPONSE || y->body_bytes <= y->limits.body_bytes_max);
        break;
    }
    case LAR_HTTP1_FAIL:
        play_add(out, "!");
        play_add(out, lar_error_name(lar_http1_error(p)));
        PLAY_CHECK(lar_http1_error(p) != LAR_OK && lar_http1_diag(p)->text[0]);
        break;
    }
    y->in_body = e == LAR_HTTP1_BODY;
}

/* The transcript of `in` goes to `out`: (head)[body]. for a message, !NAME for a failure. */
static inline void play(http1_play *y, lar_slice in, cuts c, lar_buf *out) {
    lar_http1 *p = lar_http1_new(y->type, &y->limits);
    PLAY_CHECK(p);
    lar_http1_event e = LAR_HTTP1_MORE;
    lar_slice body = {0};
    y->in_body = false;
    size_t pos = 0;
    if (y->to_head) lar_http1_expect(p, true);
    while (pos < in.len && e != LAR_HTTP1_FAIL) {
        size_t n = cuts_next(&c, pos, in.len), used;
        char *piece = malloc(n); /* of its own, so that a sanitizer sees a read past it or a head that borrows it */
        PLAY_CHECK(piece);
        memcpy(piece, in.ptr + pos, n);
        for (size_t done = 0;; done += used) {
            e = lar_http1_next(p, piece + done, n - done, &used, &body);
            PLAY_CHECK(used <= n - done);
            if (e != LAR_HTTP1_MORE) play_event(y, p, e, body, out);
            if (e == LAR_HTTP1_END && y->to_head) lar_http1_expect(p, true);
            if (e == LAR_HTTP1_FAIL) break;
            if (e == LAR_HTTP1_MORE) {
                PLAY_CHECK(done + used == n);
                break;
            }
        }
        free(piece);
        pos += n;
    }
    if (y->close && e != LAR_HTTP1_FAIL) {
        e = lar_http1_eof(p);
        play_event(y, p, e, body, out);
    } else if (y->in_body) {
        play_add(out, "]");
    }
    if (e == LAR_HTTP1_FAIL) PLAY_CHECK(lar_http1_next(p, "x", 1, &(size_t){0}, &body) == LAR_HTTP1_FAIL);
    lar_http1_free(p);
}

#endif
