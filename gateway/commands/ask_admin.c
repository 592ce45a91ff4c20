/* Questions to a running larder's admin listener (header: ask_admin.h).
 * Called by upstreams.c and stats_experts.c; one connection, one request, the answer to its end. One thread; blocks,
 * each wait on the socket bounded.
 * Invariants: 1. what answers may be anything: an answer is bounded and framed by http1. Memory: the caller's. */
#include "gateway/commands/ask_admin.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/config/option_rows.h"
#include "gateway/http1/http1.h"

enum { WAIT_MS = 5000, HOST_BYTES = 256, READ_BYTES = 16384 };

const char *lar_ask_admin_default(void) {
    return lar_option_find(lar_option_scalars(), LAR_SLICE("admin.listen"))->def;
}

/* "host:port", IPv6 in brackets; false: it is neither. */
static bool split(const char *text, char host[HOST_BYTES], const char **port) {
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool bracketed = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    size_t len = bracketed ? n - 2 : n;
    if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !len || len >= HOST_BYTES)
        return false;
    memcpy(host, text + (bracketed ? 1 : 0), len);
    host[len] = 0;
    *port = colon + 1;
    return true;
}

/* A connected socket, or -1 with errno. */
static int dial(const struct addrinfo *a) {
    const struct timeval wait = {.tv_sec = WAIT_MS / 1000};
    int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0) return -1;
    /* the limit of a send is one of the connect as well (socket(7)) */
    if (!setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) &&
        !setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) && !connect(s, a->ai_addr, a->ai_addrlen))
        return s;
    int why = errno;
    (void)close(s);
    errno = why;
    return -1;
}

static lar_error reach(const char *admin, int *out, lar_diag *d) {
    char host[HOST_BYTES];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    *out = -1;
    if (!split(admin, host, &port)) return lar_fail(LAR_INVALID, d, "'%.100s' is no HOST:PORT", admin);
    int failed = getaddrinfo(host, port, &hints, &list);
    if (failed) return lar_fail(LAR_IO, d, "%.100s: %s", admin, gai_strerror(failed));
    for (const struct addrinfo *a = list; a && *out < 0; a = a->ai_next) *out = dial(a);
    int why = errno;
    freeaddrinfo(list);
    if (*out >= 0) return LAR_OK;
    return lar_fail(LAR_IO, d, "%.100s: %s; is larder running, and is admin.listen there?", admin, strerror(why));
}

/* After a failed call: try again? EAGAIN is also how the limit of one call ends. */
static bool again(uint64_t until_ns) {
    bool passing = errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    return passing && lar_clock_mono_ns() < until_ns;
}

static uint64_t deadline_ns(void) { return lar_clock_mono_ns() + (uint64_t)WAIT_MS * 1000000u; }

static bool send_all(int s, lar_slice bytes) {
    uint64_t until_ns = deadline_ns();
    while (bytes.len) {
        ssize_t n = send(s, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n < 0 && again(until_ns)) continue;
        if (n <= 0) return false;
        bytes = lar_slice_of(bytes.ptr + n, bytes.len - (size_t)n);
    }
    return true;
}

/* Feeds what came; true once the answer is whole. */
static bool take(lar_http1 *p, lar_slice data, lar_buf *body, lar_error *e) {
    while (!*e) {
        size_t used = 0;
        lar_slice part;
        lar_http1_event event = lar_http1_next(p, data.ptr, data.len, &used, &part);
        data = lar_slice_of(data.ptr + used, data.len - used);
        if (event == LAR_HTTP1_END) return true;
        if (event == LAR_HTTP1_MORE) return false;
        if (event == LAR_HTTP1_BODY) *e = lar_buf_add_slice(body, part);
        if (event == LAR_HTTP1_FAIL) *e = lar_http1_error(p);
    }
    return false;
}

static lar_error receive(int s, lar_http1 *p, lar_buf *body) {
    uint64_t until_ns = deadline_ns();
    char bytes[READ_BYTES];
    lar_error e = LAR_OK;
    while (!e) {
        ssize_t n = recv(s, bytes, sizeof bytes, 0);
        if (n < 0 && again(until_ns)) continue;
        if (n < 0 || lar_clock_mono_ns() > until_ns) return LAR_IO;
        if (n == 0) return lar_http1_eof(p) == LAR_HTTP1_END ? LAR_OK : LAR_IO;
        if (take(p, lar_slice_of(bytes, (size_t)n), body, &e)) return LAR_OK;
    }
    return e;
}

lar_error lar_ask_admin(const char *admin, const char *path, lar_buf *body, lar_diag *d) {
    static const lar_http1_limits limits = {.head_bytes_max = 16384,
                                            .fields_max = 64,
                                            .body_bytes_max = LAR_ASK_ADMIN_BYTES_MAX};
    char question[HOST_BYTES + 112];
    int s;
    lar_error e = reach(admin, &s, d);
    if (e) return e;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_RESPONSE, &limits);
    int n = snprintf(question, sizeof question, "GET %.32s HTTP/1.1\r\nHost: %.255s\r\nConnection: close\r\n\r\n", path,
                     admin);
    if (!p) e = LAR_NO_MEMORY;
    if (!e && !send_all(s, lar_slice_of(question, (size_t)n))) e = LAR_IO;
    if (!e) e = receive(s, p, body);
    if (e) (void)lar_fail(e, d, "%.100s gives no answer that can be read", admin);
    else if (lar_http1_head_of(p)->status != 200)
        e = lar_fail(LAR_IO, d, "%.100s answers %u to %s: it is no admin listener of this larder's version", admin,
                     (unsigned)lar_http1_head_of(p)->status, path);
    lar_http1_free(p);
    (void)close(s);
    return e;
}
