/* Sockets, options and process figures that the load programs share.
 * Called by bench_upstream, sse_load, idle_load and proc_sample; each is a process of one thread. Nothing here blocks
 * but reading /proc. Memory: none is kept. */
#include "tests/bench/bench_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

bool bench_address_parse(const char *text, struct sockaddr_in *out) {
    char host[32];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host) return false;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    *out = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return colon[1] && !*end && port <= 65535 && inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

static int socket_open(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;
    if (fd >= 0) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int bench_listen(struct sockaddr_in *at) {
    int fd = socket_open(), one = 1;
    socklen_t length = sizeof *at;
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)at, length) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)at, &length)) {
        close(fd);
        return -1;
    }
    return fd;
}

int bench_connect(const struct sockaddr_in *to) {
    int fd = socket_open();
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

size_t bench_process_setup(void) {
    struct rlimit limit = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    return (size_t)limit.rlim_cur;
}

const char *bench_option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return argv[i + 1];
    return otherwise;
}

uint64_t bench_option_number(int argc, char **argv, const char *name, uint64_t otherwise, uint64_t max) {
    const char *text = bench_option(argc, argv, name, NULL);
    if (!text) return otherwise;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value > max) {
        (void)fprintf(stderr, "%s needs a number from 0 to %llu, not '%s'\n", name, (unsigned long long)max, text);
        exit(2);
    }
    return value;
}

uint64_t bench_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t bench_rss_kb(long pid) {
    char path[64], line[256];
    uint64_t kb = 0;
    (void)snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0) kb = strtoull(line + 6, NULL, 10);
    (void)fclose(f);
    return kb;
}

uint64_t bench_cpu_ns(long pid) {
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid((pid_t)pid, &id) || clock_gettime(id, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
