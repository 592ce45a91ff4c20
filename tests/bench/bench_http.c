/* Incremental reader of one HTTP/1.1 answer for the load programs.
 * Called by sse_load and idle_load on every read. Never blocks. Not here: trailers, 1xx, answers that end by close.
 * Invariants: 1. `left` is the count of body bytes still to come in BENCH_BODY. 2. head[] is always terminated. */
#include "tests/bench/bench_http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool head_parse(bench_response *r) {
    bool sized = false;
    if (strncmp(r->head, "HTTP/1.1 ", 9) != 0) return false;
    r->status = (int)strtol(r->head + 9, NULL, 10);
    for (const char *line = strstr(r->head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, "content-length:", 15) == 0) {
            r->left = strtoull(line + 17, NULL, 10);
            sized = true;
        }
        if (strncasecmp(line + 2, "transfer-encoding: chunked", 26) == 0) r->chunked = true;
    }
    r->state = r->chunked ? BENCH_CHUNK_SIZE : r->left ? BENCH_BODY : BENCH_DONE;
    r->head_len = 0;
    return r->chunked || sized;
}

/* One byte of a line that ends with LF; true when the line is whole in head[]. */
static bool line_take(bench_response *r, char c) {
    r->head[r->head_len++] = c;
    r->head[r->head_len] = 0;
    return c == '\n';
}

static bool line_complete(bench_response *r) {
    char *end;
    switch (r->state) {
    case BENCH_HEAD: return r->head_len < 4 || strcmp(r->head + r->head_len - 4, "\r\n\r\n") != 0 || head_parse(r);
    case BENCH_CHUNK_SIZE:
        r->left = strtoull(r->head, &end, 16);
        if (end == r->head) return false;
        r->state = r->left ? BENCH_BODY : BENCH_LAST_END;
        break;
    case BENCH_CHUNK_END:
    case BENCH_LAST_END:
        if (strcmp(r->head, "\r\n") != 0) return false;
        r->state = r->state == BENCH_CHUNK_END ? BENCH_CHUNK_SIZE : BENCH_DONE;
        break;
    case BENCH_BODY:
    case BENCH_DONE: return false;
    }
    r->head_len = 0;
    return true;
}

bool bench_response_feed(bench_response *r, const char *data, size_t len, bench_payload *payload, void *ctx) {
    for (size_t i = 0; i < len;) {
        if (r->state == BENCH_DONE) return false;
        if (r->state != BENCH_BODY) {
            if (r->head_len + 2 > BENCH_HEAD_MAX || (line_take(r, data[i++]) && !line_complete(r))) return false;
            continue;
        }
        size_t piece = len - i < r->left ? len - i : (size_t)r->left;
        payload(ctx, data + i, piece);
        i += piece;
        r->left -= piece;
        if (r->left == 0) r->state = r->chunked ? BENCH_CHUNK_END : BENCH_DONE;
    }
    return true;
}
