/* Plays bytes into the event reader in given pieces and writes down the events. Shared by tests and fuzzers. */
#ifndef LARDER_TESTS_SSE_PLAY_H
#define LARDER_TESTS_SSE_PLAY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/http1/sse.h"
#include "tests/unit_http1/cuts.h"

#define SSE_CHECK(cond) ((cond) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond), abort()))

/* {type|data} for an event, {:} for a comment, {+} for one over the limit; none for one without its blank line. */
static inline void sse_write(const lar_sse_event *e, lar_buf *out) {
    if (e->oversize || e->comment_only) {
        SSE_CHECK(e->type.len == 0 && e->data.len == 0 && e->oversize != e->comment_only);
        SSE_CHECK(!lar_buf_add(out, e->oversize ? "{+}" : "{:}", 3));
        return;
    }
    SSE_CHECK(!lar_buf_add(out, "{", 1) && !lar_buf_add_slice(out, e->type));
    SSE_CHECK(!lar_buf_add(out, "|", 1) && !lar_buf_add_slice(out, e->data) && !lar_buf_add(out, "}", 1));
}

/* The events of `in`. Checks that they tile the stream and end behind a line end. */
static inline void sse_play(lar_slice in, size_t event_bytes_max, cuts c, lar_buf *out) {
    lar_sse s;
    lar_sse_event e;
    uint64_t edge = 0;
    size_t pos = 0;
    lar_sse_init(&s, event_bytes_max);
    while (pos < in.len) {
        size_t n = cuts_next(&c, pos, in.len), done = 0;
        char *piece = malloc(n); /* of its own, so that a sanitizer sees a borrow that outlives it */
        SSE_CHECK(piece);
        memcpy(piece, in.ptr + pos, n);
        while (done < n) {
            size_t used;
            bool event = lar_sse_next(&s, piece + done, n - done, &used, &e);
            SSE_CHECK(used > 0 && used <= n - done && (event || used == n - done));
            done += used;
            if (!event) continue;
            SSE_CHECK(e.wire_start == edge && e.wire_end == pos + done);
            SSE_CHECK(in.ptr[e.wire_end - 1] == '\n' || in.ptr[e.wire_end - 1] == '\r');
            edge = e.wire_end;
            sse_write(&e, out);
        }
        free(piece);
        pos += n;
    }
    lar_sse_release(&s);
}

#endif
