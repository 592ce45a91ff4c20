/* idle_load: many keep-alive clients that each made one request and then stay connected; what they cost the proxy.
 * Flow: client_open (64 under way at once) -> request -> whole answer -> idle. After all are idle: memory of --pid, a
 * pause, a look at each connection (closed ones are counted), and a second request on every tenth one, over the same
 * connection. Thread: one. Never blocks but in epoll and in the pause.
 * Invariant: under_way is the count of clients between open and a whole answer.
 * Output: one CSV line (see --help). */
#include "tests/bench/bench_http.h"
#include "tests/bench/bench_net.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, SCRATCH = 1 << 16, UNDER_WAY_MAX = 64 };

typedef struct {
    int fd;
    bool sent, answered;
    bench_response response;
} client;

typedef struct {
    struct sockaddr_in at;
    int epoll, request_len;
    size_t clients, opened, under_way, failed;
    client *all;
    char request[1024], scratch[SCRATCH];
} load;

static void payload_drop(void *ctx, const char *data, size_t len) { (void)ctx, (void)data, (void)len; }

static void client_fail(load *l, client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    l->failed++;
    l->under_way--;
}

static void client_open(load *l, client *c) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    l->under_way++;
    c->fd = bench_connect(&l->at);
    if (c->fd < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e)) client_fail(l, c);
}

static void client_write(load *l, client *c) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    c->sent = true;
    if (send(c->fd, l->request, (size_t)l->request_len, MSG_NOSIGNAL) != l->request_len ||
        epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &e))
        client_fail(l, c);
}

static void client_read(load *l, client *c) {
    ssize_t n = recv(c->fd, l->scratch, SCRATCH, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0 || !bench_response_feed(&c->response, l->scratch, (size_t)n, payload_drop, NULL) ||
        (c->response.status && c->response.status != 200)) {
        client_fail(l, c);
    } else if (c->response.state == BENCH_DONE) {
        c->answered = true;
        l->under_way--;
    }
}

static void step(load *l) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(l->epoll, events, EVENTS, 100);
    for (int i = 0; i < n; i++) {
        client *c = events[i].data.ptr;
        if (!c->sent && (events[i].events & EPOLLOUT)) client_write(l, c);
        else if (!c->answered) client_read(l, c);
        else /* an idle one that was closed: counted later */ (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    }
}

static void open_all(load *l, uint64_t deadline_ns) {
    while ((l->opened < l->clients || l->under_way) && bench_now_ns() < deadline_ns) {
        while (l->opened < l->clients && l->under_way < UNDER_WAY_MAX) client_open(l, &l->all[l->opened++]);
        step(l);
    }
}

static size_t alive_count(const load *l) {
    size_t alive = 0;
    char byte;
    for (size_t i = 0; i < l->opened; i++)
        if (l->all[i].answered && recv(l->all[i].fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN) alive++;
    return alive;
}

static void ask_again(load *l, uint64_t deadline_ns) {
    for (size_t i = 0; i < l->opened; i += 10) {
        client *c = &l->all[i];
        if (!c->answered) continue;
        c->answered = false;
        c->response = (bench_response){0};
        l->under_way++;
        client_write(l, c);
        while (l->under_way >= UNDER_WAY_MAX && bench_now_ns() < deadline_ns) step(l);
    }
    while (l->under_way && bench_now_ns() < deadline_ns) step(l);
}

int main(int argc, char **argv) {
    static const char body[] = "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello.\"}]}";
    load *l = calloc(1, sizeof *l);
    if (!l || argc < 3 || strcmp(argv[1], "--help") == 0) {
        (void)puts("idle_load --connect 127.0.0.1:PORT [--clients 10000] [--hold-ms 2000] [--pid PROXY] [--label X]\n"
                   "label,clients,alive,failed,rss_before_kb,rss_idle_kb,kb_per_client");
        return 2;
    }
    size_t descriptors = bench_process_setup();
    uint64_t hold_ms = bench_option_number(argc, argv, "--hold-ms", 2000, 60000);
    long pid = (long)bench_option_number(argc, argv, "--pid", 0, INT32_MAX);
    l->clients = (size_t)bench_option_number(argc, argv, "--clients", 10000, 25000);
    l->all = calloc(l->clients + 1, sizeof *l->all);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!bench_address_parse(bench_option(argc, argv, "--connect", ""), &l->at) || !l->all || l->epoll < 0 ||
        descriptors < l->clients + 16) {
        (void)fprintf(stderr, "idle_load: bad address, no memory, or only %zu descriptors\n", descriptors);
        return 2;
    }
    l->request_len =
        snprintf(l->request, sizeof l->request,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer sk-bench\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 (unsigned)ntohs(l->at.sin_port), sizeof body - 1, body);
    uint64_t before_kb = bench_rss_kb(pid);
    open_all(l, bench_now_ns() + 60000000000u);
    uint64_t idle_kb = bench_rss_kb(pid);
    (void)nanosleep(&(struct timespec){(time_t)(hold_ms / 1000), (long)(hold_ms % 1000) * 1000000}, NULL);
    size_t alive = alive_count(l);
    ask_again(l, bench_now_ns() + 30000000000u);
    double each = idle_kb > before_kb && before_kb ? (double)(idle_kb - before_kb) / (double)l->clients : 0.0;
    (void)printf("%s,%zu,%zu,%zu,%" PRIu64 ",%" PRIu64 ",%.2f\n", bench_option(argc, argv, "--label", "idle"),
                 l->clients, alive, l->failed, before_kb, idle_kb, each);
    int status = l->failed || alive != l->clients;
    free(l->all);
    free(l);
    return status;
}
