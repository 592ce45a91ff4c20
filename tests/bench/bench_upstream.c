/* bench_upstream: the API behind every proxy of the benchmark, as cheap as it can be, so that it is never the
 * bottleneck. Flow: epoll -> on_readable -> head_complete -> body_take -> answer (one fixed JSON text), or, when the
 * body begins with "stream":true, an SSE stream of max_tokens events, one each --interval-ms, each with the moment it
 * was sent. Thread: one. Never blocks but in epoll. Bodies are counted and thrown away; only the first bytes are looked
 * at. Invariants: 1. a streaming connection is in the ring exactly once; the ring is in order of due time, since all
 * wait the same interval. 2. a closed connection that is still in the ring is freed when the ring reaches it.
 * Memory: one struct a connection. Not here: pipelining, chunked requests (411). */
#include "tests/bench/bench_net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_MAX = 8192, PEEK_MAX = 256, SCRATCH = 1 << 20, RING = 1 << 15, EVENTS = 256, OUT_MAX = 4096 };

typedef struct {
    int fd; /* -1 once closed */
    bool in_body, streaming, in_ring;
    uint32_t head_len, peek_len, out_len, events_left, event_no;
    uint64_t body_left, due_ns;
    char head[HEAD_MAX], peek[PEEK_MAX + 1], out[OUT_MAX];
} conn;

typedef struct {
    int epoll, listener;
    uint64_t interval_ns;
    size_t answer_len;
    char *answer, *scratch;
    conn *ring[RING];
    size_t ring_head, ring_count;
    uint64_t stalls;
} server;

static void conn_close(conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    if (!c->in_ring) free(c);
}

/* False when the peer is gone. What does not fit into the socket waits in c->out. */
static bool conn_send(server *s, conn *c, const char *data, size_t len) {
    ssize_t n = c->out_len ? 0 : send(c->fd, data, len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return false;
    size_t rest = len - (n > 0 ? (size_t)n : 0);
    if (!rest) return true;
    if (c->out_len + rest > OUT_MAX) return false;
    s->stalls++;
    memcpy(c->out + c->out_len, data + (len - rest), rest);
    c->out_len += (uint32_t)rest;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    return epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &e) == 0;
}

static bool conn_flush(server *s, conn *c) {
    ssize_t n = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN;
    c->out_len -= (uint32_t)n;
    memmove(c->out, c->out + n, c->out_len);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    return c->out_len || epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &e) == 0;
}

static void ring_push(server *s, conn *c) {
    if (s->ring_count == RING) {
        (void)fprintf(stderr, "bench_upstream: more than %d streams\n", RING);
        exit(1);
    }
    s->ring[(s->ring_head + s->ring_count++) % RING] = c;
    c->in_ring = true;
}

static bool stream_begin(server *s, conn *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    const char *tokens = strstr(c->peek, "\"max_tokens\":");
    c->events_left = tokens ? (uint32_t)strtoul(tokens + 13, NULL, 10) : 20;
    c->event_no = 0;
    c->streaming = true;
    c->due_ns = bench_now_ns() + s->interval_ns;
    if (!conn_send(s, c, head, sizeof head - 1)) return false;
    ring_push(s, c);
    return true;
}

static bool chunk_send(server *s, conn *c, const char *data, int len) {
    char frame[768];
    int n = snprintf(frame, sizeof frame, "%x\r\n%.*s\r\n", (unsigned)len, len, data);
    return n > 0 && (size_t)n < sizeof frame && conn_send(s, c, frame, (size_t)n);
}

/* One event, or the end of the stream. The moment is taken last, just before the bytes go out. */
static bool stream_step(server *s, conn *c) {
    char event[512];
    if (c->events_left == 0) {
        static const char done[] = "data: [DONE]\n\n";
        c->streaming = false;
        return chunk_send(s, c, done, sizeof done - 1) && conn_send(s, c, "0\r\n\r\n", 5);
    }
    c->events_left--;
    int n = snprintf(event, sizeof event,
                     "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,"
                     "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@n=%" PRIu32 ";t=%" PRIu64
                     ";\"},\"finish_reason\":null}]}\n\n",
                     c->event_no++, bench_now_ns());
    return chunk_send(s, c, event, n);
}

static int ring_run(server *s) {
    uint64_t now = bench_now_ns();
    while (s->ring_count) {
        conn *c = s->ring[s->ring_head];
        if (c->fd >= 0 && c->due_ns > now) return (int)((c->due_ns - now) / 1000000u) + 1;
        s->ring_head = (s->ring_head + 1) % RING;
        s->ring_count--;
        c->in_ring = false;
        if (c->fd < 0) {
            free(c);
            continue;
        }
        if (!stream_step(s, c)) {
            conn_close(c);
            continue;
        }
        c->due_ns += s->interval_ns;
        if (c->streaming) ring_push(s, c);
    }
    return -1;
}

static bool request_complete(server *s, conn *c) {
    c->in_body = false;
    c->peek[c->peek_len] = 0;
    bool stream = strstr(c->peek, "\"stream\":true") != NULL;
    c->peek_len = 0;
    return stream ? stream_begin(s, c) : conn_send(s, c, s->answer, s->answer_len);
}

static bool body_take(server *s, conn *c, const char *data, size_t len) {
    size_t mine = len < c->body_left ? len : (size_t)c->body_left;
    if (c->peek_len < PEEK_MAX) {
        size_t keep = mine < PEEK_MAX - c->peek_len ? mine : PEEK_MAX - c->peek_len;
        memcpy(c->peek + c->peek_len, data, keep);
        c->peek_len += (uint32_t)keep;
    }
    c->body_left -= mine;
    return mine == len && (c->body_left || request_complete(s, c));
}

/* The head is in c->head, `head_len` bytes with what follows. Returns false to close. */
static bool head_complete(server *s, conn *c, const char *end) {
    static const char length_required[] = "HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\n\r\n";
    size_t used = (size_t)(end + 4 - c->head), more = c->head_len - used;
    c->body_left = 0;
    for (const char *line = c->head; line < end; line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, "content-length:", 15) == 0) c->body_left = strtoull(line + 15, NULL, 10);
        if (strncasecmp(line, "transfer-encoding:", 18) == 0) {
            (void)conn_send(s, c, length_required, sizeof length_required - 1);
            return false;
        }
    }
    c->head_len = 0;
    c->in_body = true;
    if (!c->body_left) return more == 0 && request_complete(s, c);
    return !more || body_take(s, c, c->head + used, more);
}

static bool head_take(server *s, conn *c, const char *data, size_t len) {
    size_t room = HEAD_MAX - 1 - c->head_len, keep = len < room ? len : room;
    memcpy(c->head + c->head_len, data, keep);
    c->head_len += (uint32_t)keep;
    c->head[c->head_len] = 0;
    const char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return keep == len && c->head_len < HEAD_MAX - 1;
    return head_complete(s, c, end) && (keep == len || body_take(s, c, data + keep, len - keep));
}

static void on_readable(server *s, conn *c) {
    ssize_t n = recv(c->fd, s->scratch, SCRATCH, 0);
    if (n < 0 && errno == EAGAIN) return;
    bool keep = n > 0 && !c->streaming &&
                (c->in_body ? body_take(s, c, s->scratch, (size_t)n) : head_take(s, c, s->scratch, (size_t)n));
    if (!keep) conn_close(c);
}

static void on_accept(server *s) {
    for (int fd; (fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        conn *c = calloc(1, sizeof *c);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (!c || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e)) {
            free(c);
            close(fd);
            continue;
        }
        c->fd = fd;
    }
}

/* A chat completion whose text is about `bytes` long. */
static bool answer_build(server *s, size_t bytes) {
    static const char line[] = "The wind turned to the north-west at dawn. \\n";
    size_t lines = bytes / (sizeof line - 1) + 1, room = lines * sizeof line + 1024;
    char *body = malloc(room), *text = malloc(room);
    s->answer = malloc(room + 256);
    s->scratch = malloc(SCRATCH);
    if (!body || !text || !s->answer || !s->scratch) return false;
    for (size_t i = 0; i < lines; i++) memcpy(text + i * (sizeof line - 1), line, sizeof line);
    int n =
        snprintf(body, room,
                 "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"bench\","
                 "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"},"
                 "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":400,\"completion_tokens\":120,"
                 "\"total_tokens\":520,\"prompt_cache_hit_tokens\":384,\"prompt_cache_miss_tokens\":16}}",
                 text);
    int m = snprintf(s->answer, room + 256,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n, body);
    s->answer_len = (size_t)m;
    free(body);
    free(text);
    return true;
}

static int serve(server *s) {
    struct epoll_event events[EVENTS];
    for (;;) {
        int wait = ring_run(s);
        int n = epoll_wait(s->epoll, events, EVENTS, wait);
        for (int i = 0; i < n; i++) {
            conn *c = events[i].data.ptr;
            if (!c) on_accept(s);
            else if ((events[i].events & EPOLLOUT) && !conn_flush(s, c)) conn_close(c);
            else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(s, c);
        }
        if (n < 0 && errno != EINTR) return 1;
    }
}

/* Every argument is a known name with a value. */
static bool arguments_known(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || (strcmp(argv[i], "--listen") != 0 && strcmp(argv[i], "--interval-ms") != 0 &&
                              strcmp(argv[i], "--answer-bytes") != 0))
            return false;
    return true;
}

int main(int argc, char **argv) {
    if (!arguments_known(argc, argv)) {
        (void)puts("bench_upstream [--listen 127.0.0.1:0] [--interval-ms 50] [--answer-bytes 400]");
        return 2;
    }
    server *s = calloc(1, sizeof *s);
    struct sockaddr_in at;
    const char *listen_at = bench_option(argc, argv, "--listen", "127.0.0.1:0");
    (void)bench_process_setup();
    if (!s) return 1;
    s->interval_ns = bench_option_number(argc, argv, "--interval-ms", 50, 60000) * 1000000u;
    if (!bench_address_parse(listen_at, &at) || (s->listener = bench_listen(&at)) < 0) {
        (void)fprintf(stderr, "bench_upstream: cannot listen on %s\n", listen_at);
        return 1;
    }
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    if (!answer_build(s, bench_option_number(argc, argv, "--answer-bytes", 400, 2048)) || s->epoll < 0 ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &e))
        return 1;
    (void)printf("listening on 127.0.0.1:%u\n", (unsigned)ntohs(at.sin_port));
    (void)fflush(stdout);
    return serve(s);
}
