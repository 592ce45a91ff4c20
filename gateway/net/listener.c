/* Listening sockets. Called at start by serve.c and admin.c. lar_listener_open may block on getaddrinfo.
 * Why the socket is made here and not by uv: SO_REUSEPORT must be set before bind, and uv 1.44 has no flag for it. */
#include "gateway/net/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

static lar_error bind_one(const struct addrinfo *a, lar_listener_mode mode, int *fd) {
    *fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) return LAR_IO;
    int on = 1, shared = mode == LAR_LISTENER_SHARED;
    if (setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        setsockopt(*fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared) == 0 &&
        bind(*fd, a->ai_addr, a->ai_addrlen) == 0) {
        /* the next loop's socket may join this one, now that nobody else can be there */
        (void)setsockopt(*fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        return LAR_OK;
    }
    int why = errno;
    (void)close(*fd);
    *fd = -1;
    errno = why;
    return LAR_IO;
}

lar_error lar_listener_open(uv_loop_t *loop, uv_tcp_t *handle, const char *host, uint16_t port, lar_listener_mode mode,
                            lar_diag *d) {
    if (uv_tcp_init(loop, handle) < 0) return lar_fail(LAR_NO_MEMORY, d, "listener");
    char service[8];
    (void)snprintf(service, sizeof service, "%u", (unsigned)port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
    int r = getaddrinfo(host[0] ? host : NULL, service, &hints, &list);
    if (r != 0) return lar_fail(LAR_CONFIG, d, "listen: %s: %s", host, gai_strerror(r));
    int fd = -1;
    lar_error e = bind_one(list, mode, &fd);
    if (e) e = lar_fail(LAR_IO, d, "listen: %s:%u: %s", host, (unsigned)port, strerror(errno));
    freeaddrinfo(list);
    if (e) return e;
    if (uv_tcp_open(handle, fd) < 0) {
        (void)close(fd);
        return lar_fail(LAR_IO, d, "listen: %s:%u: the loop refused the socket", host, (unsigned)port);
    }
    return LAR_OK;
}

lar_error lar_listener_start(uv_tcp_t *handle, uv_connection_cb on_connection, lar_diag *d) {
    int r = uv_listen((uv_stream_t *)handle, BACKLOG, on_connection);
    return r < 0 ? lar_fail(LAR_IO, d, "listen: %s", uv_strerror(r)) : LAR_OK;
}

uint16_t lar_listener_address(const uv_tcp_t *handle, char *text, size_t cap) {
    struct sockaddr_storage a;
    int len = sizeof a;
    if (uv_tcp_getsockname(handle, (struct sockaddr *)&a, &len) < 0) {
        (void)snprintf(text, cap, "unknown");
        return 0;
    }
    char host[INET6_ADDRSTRLEN] = "";
    bool six = a.ss_family == AF_INET6;
    uint16_t port = ntohs(six ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
    (void)getnameinfo((struct sockaddr *)&a, (socklen_t)len, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    (void)snprintf(text, cap, six ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    return port;
}
