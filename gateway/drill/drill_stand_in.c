/* The stand-in's sockets (header: drill_stand_in.h): reads requests, hands them to drill_play.c, sends what that makes.
 * Flow: drill.c opens it before the gateway; one thread waits in poll() for listener and connections. Why no event loop
 * of the gateway's: it must reset, cut and fall silent as no careful server does.
 * Invariants: 1. all but the descriptors of listener and wake-up is guarded by `lock`, which the thread gives up only
 * while it polls: what a request did is complete when its answer is seen. 2. it listens on 127.0.0.1 alone.
 * Memory: bounded connections with bounded bodies. */
#include "gateway/drill/drill_stand_in.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ensure.h"
#include "gateway/drill/drill_play.h"
#include "gateway/http1/http1.h"

enum { CONNECTIONS_MAX = 256, READ_BYTES = 16384, BACKLOG = 128 };

typedef struct connection {
    int fd;
    lar_http1 *parser;
    lar_buf body, out;
    size_t sent;
    lar_drill_after after;
    bool answering;
} connection;

struct lar_stand_in {
    pthread_t thread;
    pthread_mutex_t lock;
    int listener, closed, wake;
    uint16_t port, closed_port;
    bool ending;
    lar_drill_stage stage;
    connection connections[CONNECTIONS_MAX];
    uint32_t count;
};

/* -- connections -------------------------------------------------------------------------------------------------- */

static void drop(lar_stand_in *s, uint32_t i) {
    connection *c = &s->connections[i];
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (c->after == LAR_DRILL_AFTER_RESET) (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    (void)close(c->fd);
    lar_http1_free(c->parser);
    lar_buf_release(&c->body);
    lar_buf_release(&c->out);
    *c = s->connections[--s->count];
}

static void take(lar_stand_in *s) {
    static const lar_http1_limits limits = {.head_bytes_max = 65536,
                                            .fields_max = 256,
                                            .body_bytes_max = LAR_DRILL_BODY_BYTES_MAX};
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    lar_http1 *parser = s->count < CONNECTIONS_MAX ? lar_http1_new(LAR_HTTP1_REQUEST, &limits) : NULL;
    if (!parser) {
        (void)close(fd);
        return;
    }
    connection *c = &s->connections[s->count++];
    *c = (connection){.fd = fd, .parser = parser};
    lar_buf_init(&c->body, LAR_DRILL_BODY_BYTES_MAX);
    lar_buf_init(&c->out, LAR_DRILL_BODY_BYTES_MAX);
}

/* False: the connection is over. */
static bool flush(connection *c) {
    while (c->sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.ptr + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        c->sent += (size_t)n;
    }
    if (c->answering && c->after == LAR_DRILL_AFTER_KEEP) {
        c->answering = false;
        c->out.len = c->sent = 0;
    }
    return !c->answering || c->after == LAR_DRILL_AFTER_SILENCE;
}

static bool answer(lar_stand_in *s, connection *c) {
    c->answering = true;
    c->after = LAR_DRILL_AFTER_CLOSE;
    bool made =
        lar_drill_play(&s->stage, lar_http1_head_of(c->parser), lar_buf_slice(&c->body), &c->out, &c->after) == LAR_OK;
    c->body.len = 0;
    if (s->stage.pause_ms) (void)poll(NULL, 0, (int)s->stage.pause_ms);
    return made && flush(c);
}

static bool feed(lar_stand_in *s, connection *c, lar_slice data) {
    static const char unreadable[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for (;;) {
        size_t used = 0;
        lar_slice part;
        lar_http1_event event = lar_http1_next(c->parser, data.ptr, data.len, &used, &part);
        data = lar_slice_of(data.ptr + used, data.len - used);
        if (event == LAR_HTTP1_MORE) return true;
        if (event == LAR_HTTP1_HEAD_END && lar_drill_cuts_upload(&s->stage, lar_http1_head_of(c->parser))) {
            c->after = LAR_DRILL_AFTER_RESET;
            return false;
        }
        if (event == LAR_HTTP1_BODY && lar_buf_add_slice(&c->body, part)) return false;
        if (event == LAR_HTTP1_END && !answer(s, c)) return false;
        if (event == LAR_HTTP1_FAIL) { /* TLS, where none is spoken */
            (void)send(c->fd, unreadable, sizeof unreadable - 1, MSG_NOSIGNAL);
            return false;
        }
    }
}

static bool serve(lar_stand_in *s, connection *c, short events) {
    char bytes[READ_BYTES];
    if (events & POLLOUT && !flush(c)) return false;
    if (!(events & (POLLIN | POLLHUP | POLLERR))) return true;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    return n > 0 && feed(s, c, lar_slice_of(bytes, (size_t)n));
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

static void *run(void *arg) {
    lar_stand_in *s = arg;
    struct pollfd fds[CONNECTIONS_MAX + 2];
    (void)pthread_mutex_lock(&s->lock);
    while (!s->ending) {
        uint32_t n = s->count;
        fds[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (uint32_t i = 0; i < n; i++) {
            const connection *c = &s->connections[i];
            fds[i + 2] = (struct pollfd){.fd = c->fd, .events = c->sent < c->out.len ? POLLIN | POLLOUT : POLLIN};
        }
        (void)pthread_mutex_unlock(&s->lock);
        (void)poll(fds, n + 2, -1);
        (void)pthread_mutex_lock(&s->lock);
        for (uint32_t i = n; i-- > 0;) /* downwards: the last one takes the place of one that goes */
            if (fds[i + 2].revents && !serve(s, &s->connections[i], fds[i + 2].revents)) drop(s, i);
        if (fds[1].revents) take(s);
    }
    while (s->count) drop(s, s->count - 1);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int bound(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !getsockname(fd, (struct sockaddr *)&a, &len)) {
        *port = ntohs(a.sin_port);
        return fd;
    }
    int why = errno;
    if (fd >= 0) (void)close(fd);
    errno = why;
    return -1;
}

lar_error lar_stand_in_open(const lar_drill_plan *plan, lar_stand_in **out, lar_diag *d) {
    *out = NULL;
    lar_stand_in *s = calloc(1, sizeof *s);
    if (!s) return lar_fail(LAR_NO_MEMORY, d, "the drill's stand-in");
    lar_drill_stage_init(&s->stage, plan);
    LAR_ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    s->closed = -1;
    s->wake = -1;
    s->listener = bound(&s->port);
    if (s->listener >= 0) s->closed = bound(&s->closed_port);
    if (s->closed >= 0) s->wake = eventfd(0, EFD_CLOEXEC);
    if (s->wake >= 0 && !listen(s->listener, BACKLOG) && !pthread_create(&s->thread, NULL, run, s)) {
        *out = s;
        return LAR_OK;
    }
    lar_error e = lar_fail(LAR_IO, d, "the drill's stand-in cannot listen on 127.0.0.1: %s", strerror(errno));
    const int fds[] = {s->listener, s->closed, s->wake};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
    return e;
}

void lar_stand_in_close(lar_stand_in *s) {
    const uint64_t one = 1;
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    s->ending = true;
    (void)pthread_mutex_unlock(&s->lock);
    LAR_ASSERT(write(s->wake, &one, sizeof one) == (ssize_t)sizeof one);
    (void)pthread_join(s->thread, NULL);
    (void)close(s->listener);
    (void)close(s->closed);
    (void)close(s->wake);
    (void)pthread_mutex_destroy(&s->lock);
    lar_drill_stage_release(&s->stage);
    free(s);
}

uint16_t lar_stand_in_port(const lar_stand_in *s) { return s->port; }
uint16_t lar_stand_in_closed_port(const lar_stand_in *s) { return s->closed_port; }

void lar_stand_in_begin(lar_stand_in *s, uint32_t scene, uint32_t round) {
    (void)pthread_mutex_lock(&s->lock);
    /* what pools of earlier scenes still hold is given up; the thread sees it and closes */
    for (uint32_t i = 0; scene != s->stage.scene && i < s->count; i++) (void)shutdown(s->connections[i].fd, SHUT_RDWR);
    lar_drill_stage_begin(&s->stage, scene, round);
    (void)pthread_mutex_unlock(&s->lock);
}

const lar_drill_seen *lar_stand_in_look(lar_stand_in *s, uint32_t *strays) {
    (void)pthread_mutex_lock(&s->lock);
    *strays = s->stage.strays;
    return s->stage.seen;
}

void lar_stand_in_done(lar_stand_in *s) { (void)pthread_mutex_unlock(&s->lock); }
