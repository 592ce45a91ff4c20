/* A plain HTTP/1.1 client: connect, write, read head, read body by length, chunks or close.
 *
 * Called by the demo player. One thread; blocks in connect, send and recv, each at most IO_SECONDS.
 * Why: what larder does must be seen by a client that knows nothing of larder and shares no code with it.
 * Invariant: an answer is handed out only when it is whole; a cut one is an error.
 * Memory: the connection's input buffer and the caller's response. TLS is not here. */
#include "demo_client.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "demo_json.h"

enum { IO_SECONDS = 60, READ_BYTES = 64 << 10, HEAD_MAX = 1 << 20 };
#define BODY_MAX ((size_t)1 << 30)

static bool copy(char *to, size_t room, const char *from, size_t len) {
    if (len >= room) return false;
    memcpy(to, from, len);
    to[len] = 0;
    return true;
}

bool demo_client_init(demo_client *c, const char *url) {
    *c = (demo_client){.fd = -1};
    lar_buf_init(&c->in, BODY_MAX);
    if (strncmp(url, "http://", 7) != 0) return false;
    const char *host = url + 7, *slash = strchr(host, '/');
    const char *end = slash ? slash : host + strlen(host);
    const char *colon = memchr(host, ':', (size_t)(end - host));
    const char *host_end = colon ? colon : end;
    if (host_end == host || !copy(c->host, sizeof c->host, host, (size_t)(host_end - host))) return false;
    if (!copy(c->port, sizeof c->port, colon ? colon + 1 : "80", colon ? (size_t)(end - colon - 1) : 2)) return false;
    size_t path = strlen(end);
    while (path && end[path - 1] == '/') path--;
    return copy(c->path, sizeof c->path, end, path);
}

static void disconnect(demo_client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->reused = false;
    lar_buf_reset(&c->in, 1u << 20);
}

void demo_client_release(demo_client *c) {
    disconnect(c);
    lar_buf_release(&c->in);
}

void demo_response_init(demo_response *r) {
    r->status = 0;
    lar_buf_init(&r->body, BODY_MAX);
}

void demo_response_release(demo_response *r) { lar_buf_release(&r->body); }

static bool connect_to(demo_client *c) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct timeval limit = {.tv_sec = IO_SECONDS};
    int one = 1;
    if (getaddrinfo(c->host, c->port, &hints, &list) != 0) return false;
    for (struct addrinfo *a = list; a && c->fd < 0; a = a->ai_next) {
        c->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (c->fd < 0) continue;
        setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(c->fd, a->ai_addr, a->ai_addrlen) != 0) disconnect(c);
    }
    freeaddrinfo(list);
    return c->fd >= 0;
}

static bool send_all(demo_client *c, lar_slice s) {
    while (s.len) {
        ssize_t n = send(c->fd, s.ptr, s.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        s = lar_slice_of(s.ptr + n, s.len - (size_t)n);
    }
    return true;
}

/* 1: more bytes in c->in; 0: the other side closed; -1: error or time limit. */
static int read_more(demo_client *c) {
    char bytes[READ_BYTES];
    ssize_t n;
    do n = recv(c->fd, bytes, sizeof bytes, 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return n < 0 ? -1 : 0;
    demo_put(&c->in, lar_slice_of(bytes, (size_t)n));
    return 1;
}

/* Reads until c->in holds n bytes. */
static bool need_bytes(demo_client *c, size_t n) {
    while (c->in.len < n)
        if (read_more(c) != 1) return false;
    return true;
}

/* A line's length without CR LF, or SIZE_MAX. */
static size_t need_line(demo_client *c) {
    for (;;) {
        const char *lf = c->in.len ? memchr(c->in.ptr, '\n', c->in.len) : NULL;
        if (lf && lf > c->in.ptr && lf[-1] == '\r') return (size_t)(lf - c->in.ptr) - 1;
        if (lf || c->in.len > HEAD_MAX || read_more(c) != 1) return SIZE_MAX;
    }
}

typedef struct framing {
    bool chunked, has_length, close;
    uint64_t length;
} framing;

static bool read_head(demo_client *c, int *status, framing *f) {
    size_t n = need_line(c);
    *f = (framing){0};
    if (n == SIZE_MAX || n < 12 || memcmp(c->in.ptr, "HTTP/1.", 7) != 0) return false;
    *status = (int)demo_json_u64(lar_slice_of(c->in.ptr + 9, 3), 0);
    f->close = c->in.ptr[7] == '0';
    lar_buf_consume(&c->in, n + 2);
    for (;;) {
        n = need_line(c);
        if (n == SIZE_MAX) return false;
        lar_slice line = lar_slice_of(c->in.ptr, n), name, value;
        const char *colon = n ? memchr(line.ptr, ':', n) : NULL;
        if (n && !colon) return false;
        if (n) {
            name = lar_slice_of(line.ptr, (size_t)(colon - line.ptr));
            value = lar_slice_trim(lar_slice_of(colon + 1, n - name.len - 1));
            if (lar_slice_ieq(name, LAR_SLICE("content-length"))) {
                f->has_length = true;
                f->length = demo_json_u64(value, UINT64_MAX);
            }
            if (lar_slice_ieq(name, LAR_SLICE("transfer-encoding")))
                f->chunked = lar_slice_ieq(value, LAR_SLICE("chunked"));
            if (lar_slice_ieq(name, LAR_SLICE("connection"))) f->close = lar_slice_ieq(value, LAR_SLICE("close"));
        }
        lar_buf_consume(&c->in, n + 2);
        if (n == 0) return *status >= 100;
    }
}

static bool read_chunks(demo_client *c, lar_buf *out) {
    for (;;) {
        size_t n = need_line(c);
        char *end;
        if (n == SIZE_MAX || n == 0 || n > 64) return false;
        unsigned long long size = strtoull(c->in.ptr, &end, 16); /* ends at CR at the latest */
        if (end == c->in.ptr || size > BODY_MAX) return false;
        lar_buf_consume(&c->in, n + 2);
        if (!need_bytes(c, (size_t)size + 2)) return false;
        if (size == 0 && memcmp(c->in.ptr, "\r\n", 2) == 0) {
            lar_buf_consume(&c->in, 2);
            return true;
        }
        if (memcmp(c->in.ptr + size, "\r\n", 2) != 0) return false;
        demo_put(out, lar_slice_of(c->in.ptr, (size_t)size));
        lar_buf_consume(&c->in, (size_t)size + 2);
    }
}

static bool read_body(demo_client *c, const framing *f, lar_buf *out) {
    if (f->chunked) return read_chunks(c, out);
    if (!f->has_length) {
        int r;
        while ((r = read_more(c)) == 1) continue;
        demo_put(out, lar_buf_slice(&c->in));
        return r == 0;
    }
    if (f->length > BODY_MAX || !need_bytes(c, (size_t)f->length)) return false;
    demo_put(out, lar_slice_of(c->in.ptr, (size_t)f->length));
    lar_buf_consume(&c->in, (size_t)f->length);
    return true;
}

static bool exchange(demo_client *c, lar_slice head, lar_slice body, demo_response *out) {
    framing f;
    if (c->fd < 0 && !connect_to(c)) return false;
    if (!send_all(c, head) || !send_all(c, body)) return false;
    do
        if (!read_head(c, &out->status, &f)) return false;
    while (out->status < 200);
    if (!read_body(c, &f, &out->body)) return false;
    c->reused = true;
    if (f.close || (!f.chunked && !f.has_length)) disconnect(c);
    return true;
}

bool demo_client_call(demo_client *c, const char *method, const char *path, lar_slice body, demo_response *out) {
    lar_buf head;
    lar_buf_init(&head, HEAD_MAX);
    demo_putf(&head, "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\nUser-Agent: demo-player\r\nAccept: */*\r\n", method, c->path, path, c->host, c->port);
    if (c->key[0]) demo_putf(&head, "Authorization: Bearer %s\r\n", c->key);
    if (body.len) demo_putf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.len);
    DEMO_PUT(&head, "\r\n");
    bool ok = false;
    /* A kept connection may have been closed meanwhile: one more try, on a fresh one. */
    for (int attempt = 0; attempt < 2 && !ok; attempt++) {
        bool reused = c->reused;
        out->status = 0;
        lar_buf_reset(&out->body, 4u << 20);
        ok = exchange(c, lar_buf_slice(&head), body, out);
        if (ok) break;
        disconnect(c);
        if (!reused || out->status) break;
    }
    lar_buf_release(&head);
    if (!ok) fprintf(stderr, "demo_player: no whole answer from %s:%s to %s %s\n", c->host, c->port, method, path);
    return ok;
}
