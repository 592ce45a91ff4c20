/* sse_load: many concurrent SSE streams, and how long each event took from the upstream's send to this client's read.
 * Flow: stream_open (spread over a second) -> epoll -> stream_read -> scan, which finds the marks "@n=...;t=...;" that
 * bench_upstream puts into every event. Both sides read CLOCK_MONOTONIC, so the difference is the delay of the whole
 * way; what a proxy adds is its figure less that of a run without a proxy.
 * Thread: one. Never blocks but in epoll. Samples are taken while all streams are open and none has ended.
 * Invariants: 1. event numbers of a stream go up by one; anything else counts as lost. 2. samples never exceed their
 * room: the count of events is known beforehand.
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
#include <unistd.h>

enum { EVENTS = 256, SCRATCH = 1 << 16, REQUEST_MAX = 8192 };

typedef struct load load;

typedef struct {
    load *l;
    int fd;
    bool sent, ended, whole;
    uint32_t expected; /* number of the next event */
    int mark;          /* how much of the mark has been seen: index into MARK */
    uint64_t number, stamp;
    bench_response response;
} stream;

struct load {
    struct sockaddr_in at;
    int epoll;
    size_t streams, opened, ended;
    uint64_t begin_ns, sample_from_ns, sample_to_ns;
    uint32_t *samples; /* nanoseconds */
    size_t samples_used, samples_room;
    uint64_t events, lost, failed, now_ns;
    stream *all;
    int request_len;
    char request[REQUEST_MAX];
};

static void event_seen(stream *s) {
    load *l = s->l;
    l->events++;
    if (s->number != s->expected) l->lost++;
    s->expected = (uint32_t)s->number + 1;
    if (l->now_ns < l->sample_from_ns || l->now_ns >= l->sample_to_ns || l->samples_used == l->samples_room) return;
    uint64_t delay = l->now_ns > s->stamp ? l->now_ns - s->stamp : 0;
    l->samples[l->samples_used++] = delay < UINT32_MAX ? (uint32_t)delay : UINT32_MAX;
}

/* '#' stands for digits. The mark may be cut anywhere between two pieces. */
static void scan(void *ctx, const char *data, size_t len) {
    static const char MARK[] = "@n=#;t=#;";
    stream *s = ctx;
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (MARK[s->mark] == '#') {
            uint64_t *value = s->mark == 3 ? &s->number : &s->stamp;
            if (c >= '0' && c <= '9') {
                *value = *value * 10 + (uint64_t)(c - '0');
                continue;
            }
            s->mark++;
        }
        if (c != MARK[s->mark]) {
            s->mark = c == '@';
            continue;
        }
        if (s->mark == 0) s->number = s->stamp = 0;
        if (MARK[++s->mark]) continue;
        event_seen(s);
        s->mark = 0;
    }
}

static void stream_end(stream *s, bool whole) {
    if (!whole) s->l->failed++;
    s->ended = true;
    s->l->ended++;
    close(s->fd);
    s->fd = -1;
}

static bool stream_open(load *l, stream *s) {
    s->l = l;
    s->fd = bench_connect(&l->at);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = s};
    l->opened++;
    if (s->fd >= 0 && epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &e) == 0) return true;
    stream_end(s, false);
    return false;
}

static void stream_write(load *l, stream *s) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    if (send(s->fd, l->request, (size_t)l->request_len, MSG_NOSIGNAL) != l->request_len ||
        epoll_ctl(l->epoll, EPOLL_CTL_MOD, s->fd, &e))
        stream_end(s, false);
    s->sent = true;
}

static void stream_read(load *l, stream *s, char *scratch) {
    ssize_t n = recv(s->fd, scratch, SCRATCH, 0);
    if (n < 0 && errno == EAGAIN) return;
    l->now_ns = bench_now_ns();
    if (n <= 0 || !bench_response_feed(&s->response, scratch, (size_t)n, scan, s) ||
        (s->response.status && s->response.status != 200))
        stream_end(s, false);
    else if (s->response.state == BENCH_DONE) stream_end(s, true);
}

static bool request_build(load *l, uint64_t events) {
    char body[REQUEST_MAX / 2];
    static const char text[] = "Tell me about the weather at sea, \\n\\\"in detail\\\", and about the 航海日志. ";
    int n = snprintf(
        body, sizeof body,
        "{\"model\":\"bench\",\"stream\":true,\"max_tokens\":%" PRIu64
        ",\"messages\":[{\"role\":\"system\",\"content\":\"You are terse.\"},{\"role\":\"user\",\"content\":\"",
        events);
    for (int i = 0; i < 20; i++) n += snprintf(body + n, sizeof body - (size_t)n, "%s", text);
    n += snprintf(body + n, sizeof body - (size_t)n, "\"}]}");
    l->request_len =
        snprintf(l->request, sizeof l->request,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer sk-bench\r\n"
                 "Content-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
                 (unsigned)ntohs(l->at.sin_port), n, body);
    return n > 0 && (size_t)n < sizeof body && (size_t)l->request_len < sizeof l->request;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double at_us(const load *l, double quantile) {
    size_t last = l->samples_used ? l->samples_used - 1 : 0;
    return l->samples_used ? (double)l->samples[(size_t)(quantile * (double)last)] / 1000.0 : 0.0;
}

/* Returns the resident memory of `pid` while all streams are open. */
static uint64_t load_run(load *l, long pid, uint64_t deadline_ns) {
    struct epoll_event events[EVENTS];
    char *scratch = malloc(SCRATCH);
    uint64_t rss_kb = 0, middle_ns = l->sample_from_ns + (l->sample_to_ns - l->sample_from_ns) / 2;
    for (uint64_t now = bench_now_ns(); scratch && l->ended < l->streams && now < deadline_ns; now = bench_now_ns()) {
        while (l->opened < l->streams && now - l->begin_ns >= l->opened * (1000000000u / l->streams))
            (void)stream_open(l, &l->all[l->opened]);
        if (!rss_kb && now > middle_ns) rss_kb = bench_rss_kb(pid);
        int n = epoll_wait(l->epoll, events, EVENTS, l->opened < l->streams ? 1 : 100);
        for (int i = 0; i < n; i++) {
            stream *s = events[i].data.ptr;
            if (!s->sent && (events[i].events & EPOLLOUT)) stream_write(l, s);
            else stream_read(l, s, scratch);
        }
    }
    free(scratch);
    return rss_kb;
}

static int report(load *l, const char *label, uint64_t before_kb, uint64_t during_kb) {
    qsort(l->samples, l->samples_used, sizeof *l->samples, by_size);
    double each = before_kb && during_kb > before_kb ? (double)(during_kb - before_kb) / (double)l->streams : 0.0;
    l->failed += l->streams - l->ended;
    (void)printf("%s,%zu,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.1f,%.1f,%.1f,%.1f,%" PRIu64 ",%" PRIu64 ",%.1f\n", label,
                 l->streams, l->events, l->lost, l->failed, at_us(l, 0.5), at_us(l, 0.99), at_us(l, 0.999),
                 at_us(l, 1.0), before_kb, during_kb, each);
    return l->lost || l->failed || !l->samples_used;
}

int main(int argc, char **argv) {
    load *l = calloc(1, sizeof *l);
    if (!l || argc < 3 || strcmp(argv[1], "--help") == 0) {
        (void)puts(
            "sse_load --connect 127.0.0.1:PORT [--streams 1000] [--seconds 8] [--interval-ms 50] [--pid PROXY] [--label X]\n"
            "label,streams,events,lost,failed,p50_us,p99_us,p999_us,max_us,rss_before_kb,rss_during_kb,kb_per_stream");
        return 2;
    }
    (void)bench_process_setup();
    uint64_t seconds = bench_option_number(argc, argv, "--seconds", 8, 600);
    uint64_t interval_ms = bench_option_number(argc, argv, "--interval-ms", 50, 60000);
    long pid = (long)bench_option_number(argc, argv, "--pid", 0, INT32_MAX);
    l->streams = (size_t)bench_option_number(argc, argv, "--streams", 1000, 20000);
    uint64_t events = (seconds + 1) * 1000 / (interval_ms ? interval_ms : 1);
    l->samples_room = (size_t)(events * l->streams);
    l->samples = calloc(l->samples_room + 1, sizeof *l->samples);
    l->all = calloc(l->streams + 1, sizeof *l->all);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!bench_address_parse(bench_option(argc, argv, "--connect", ""), &l->at) || !l->streams || !l->samples ||
        !l->all || l->epoll < 0 || !request_build(l, events)) {
        (void)fprintf(stderr, "sse_load: bad address or count, or no memory\n");
        return 2;
    }
    uint64_t before_kb = bench_rss_kb(pid);
    l->begin_ns = bench_now_ns();
    l->sample_from_ns = l->begin_ns + 1500000000u;
    l->sample_to_ns = l->begin_ns + (seconds + 1) * 1000000000u - 100000000u;
    uint64_t during_kb = load_run(l, pid, l->begin_ns + (seconds + 15) * 1000000000u);
    int status = report(l, bench_option(argc, argv, "--label", "sse"), before_kb, during_kb);
    free(l->samples);
    free(l->all);
    free(l);
    return status;
}
