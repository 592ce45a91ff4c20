/* The answer side of HTTP/1.1, enough for the load programs: Content-Length and chunked bodies, cut anywhere. */
#ifndef LARDER_TESTS_BENCH_HTTP_H
#define LARDER_TESTS_BENCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_HEAD_MAX = 2048 };

typedef enum { BENCH_HEAD, BENCH_BODY, BENCH_CHUNK_SIZE, BENCH_CHUNK_END, BENCH_LAST_END, BENCH_DONE } bench_state;

typedef struct {
    bench_state state;
    bool chunked;
    int status;
    uint32_t head_len;
    uint64_t left; /* of the body or of the chunk */
    char head[BENCH_HEAD_MAX];
} bench_response; /* begins as all zero */

typedef void bench_payload(void *ctx, const char *data, size_t len);

/* Takes the next bytes. `payload` is called with pieces of the decoded body, in order. False for what is not HTTP, for
 * a head that is too long, and for bytes after the end. state is BENCH_DONE when the answer is whole. */
bool bench_response_feed(bench_response *r, const char *data, size_t len, bench_payload *payload, void *ctx);

#endif
