/* larder upstreams: asks a running larder's admin listener for /upstreams and prints it as a table.
 * Flow: main.c calls; one connection, one request, the answer to its end. One thread; blocks, each wait on the socket
 * bounded. Why the listener and not the store: the standing is in the process alone.
 * Invariants: 1. what answers may be anything: an answer is bounded, framed by http1 and read by cJSON, and every name
 * is made harmless. Memory: one answer. */
#include "gateway/commands/upstreams.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/commands/present.h"
#include "gateway/config/option_rows.h"
#include "gateway/http1/http1.h"

enum { ANSWER_BYTES_MAX = 4 << 20, WAIT_MS = 5000, HOST_BYTES = 256, READ_BYTES = 16384 };

static const char usage[] =
    "usage: larder upstreams [--admin ADDRESS] [--json]\n"
    "How each upstream of a running larder stands: its breaker, what it was asked, what failed.\n"
    "  --admin ADDRESS    HOST:PORT of its admin listener (%s)\n"
    "  --json             what the listener answered, for programs\n"
    "  --help             this text\n";

typedef struct asked {
    const char *admin;
    bool json;
} asked;

/* What admin.listen is where nobody says otherwise. */
static const char *default_admin(void) { return lar_option_find(lar_option_scalars(), LAR_SLICE("admin.listen"))->def; }

static int complain(const char *what, const char *text) {
    (void)fprintf(stderr, "larder: %s '%.100s'\n", what, text);
    (void)fprintf(stderr, usage, default_admin());
    return 2;
}

/* -1 to go on, or the exit code. */
static int parse(asked *a, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return (void)printf(usage, default_admin()), 0;
        if (!strcmp(argv[i], "--json")) a->json = true;
        else if (!strncmp(argv[i], "--admin=", 8)) a->admin = argv[i] + 8;
        else if (strcmp(argv[i], "--admin") != 0) return complain("unknown option", argv[i]);
        else if (i + 1 == argc) return complain("a value is missing behind", argv[i]);
        else a->admin = argv[++i];
    }
    return -1;
}

/* -- one question ------------------------------------------------------------------------------------------------- */

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

static lar_error ask(const char *admin, lar_buf *body, lar_diag *d) {
    static const lar_http1_limits limits = {.head_bytes_max = 16384,
                                            .fields_max = 64,
                                            .body_bytes_max = ANSWER_BYTES_MAX};
    char question[HOST_BYTES + 80];
    int s;
    lar_error e = reach(admin, &s, d);
    if (e) return e;
    lar_http1 *p = lar_http1_new(LAR_HTTP1_RESPONSE, &limits);
    int n = snprintf(question, sizeof question, "GET /upstreams HTTP/1.1\r\nHost: %.255s\r\nConnection: close\r\n\r\n",
                     admin);
    if (!p) e = LAR_NO_MEMORY;
    if (!e && !send_all(s, lar_slice_of(question, (size_t)n))) e = LAR_IO;
    if (!e) e = receive(s, p, body);
    if (e) (void)lar_fail(e, d, "%.100s gives no answer that can be read", admin);
    else if (lar_http1_head_of(p)->status != 200)
        e = lar_fail(LAR_IO, d, "%.100s answers %u to /upstreams: it is no admin listener of this larder's version",
                     admin, (unsigned)lar_http1_head_of(p)->status);
    lar_http1_free(p);
    (void)close(s);
    return e;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

static void add_text(lar_table *t, const cJSON *o, const char *name) {
    char shown[LAR_SHOWN_BYTES];
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    lar_present_name(lar_slice_cstr(text ? text : ""), shown);
    lar_table_cell(t, "%s", shown);
}

static double number(const cJSON *o, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

static void add_number(lar_table *t, const cJSON *o, const char *name) { lar_table_cell(t, "%.0f", number(o, name)); }

/* "not_sent 3, refused 1", without those that never happened. */
static void add_failures(lar_table *t, const cJSON *classes) {
    char text[LAR_SHOWN_BYTES] = "", shown[LAR_SHOWN_BYTES];
    const cJSON *v;
    size_t at = 0;
    cJSON_ArrayForEach(v, classes) {
        if (!cJSON_IsNumber(v) || v->valuedouble < 1 || at + 64 > sizeof text) continue;
        lar_present_name(lar_slice_cstr(v->string ? v->string : ""), shown);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.24s %.0f", at ? ", " : "", shown,
                               v->valuedouble < 1e15 ? v->valuedouble : 1e15);
    }
    lar_table_cell(t, "%s", at ? text : "-");
}

static void add_row(lar_table *t, const cJSON *u) {
    char wait[LAR_DURATION_BYTES];
    const cJSON *window = cJSON_GetObjectItemCaseSensitive(u, "window");
    double ms = number(u, "wait_ms");
    lar_present_duration(ms >= 1 && ms < 1e12 ? (int64_t)ms * 1000 : -1, wait);
    add_text(t, u, "name");
    add_text(t, u, "kind");
    add_text(t, u, "group");
    add_text(t, u, "state");
    lar_table_cell(t, "%s", wait);
    add_number(t, u, "load");
    add_number(t, window, "requests");
    add_number(t, window, "failed");
    add_number(t, window, "slow");
    add_number(t, window, "retries");
    add_number(t, u, "opened");
    add_number(t, u, "attempts");
    add_number(t, u, "repeated");
    add_number(t, u, "fallback");
    add_failures(t, cJSON_GetObjectItemCaseSensitive(u, "failures"));
}

static int print(const asked *a, const lar_buf *body) {
    static const char *const heads[] = {"upstream", "kind",     "group",    "state",    "asked in",
                                        "load",     "window",   "failed",   "slow",     "retries",
                                        "opened",   "attempts", "repeated", "fallback", "failures"};
    enum { COLUMNS = sizeof heads / sizeof *heads };
    cJSON *o = cJSON_ParseWithLength(body->ptr, body->len);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "upstreams"), *u;
    if (!cJSON_IsArray(list)) {
        (void)fprintf(stderr, "larder: %.100s answers something else than a list of upstreams\n", a->admin);
        cJSON_Delete(o);
        return 1;
    }
    if (a->json) {
        (void)fwrite(body->ptr, 1, body->len, stdout);
    } else {
        lar_table *t = lar_table_new(COLUMNS);
        for (int i = 0; i < COLUMNS; i++) lar_table_cell(t, "%s", heads[i]);
        cJSON_ArrayForEach(u, list) add_row(t, u);
        lar_table_print(t, stdout);
        lar_table_free(t);
    }
    cJSON_Delete(o);
    return 0;
}

int lar_command_upstreams(int argc, char **argv) {
    asked a = {.admin = default_admin()};
    int rc = parse(&a, argc, argv);
    if (rc >= 0) return rc;
    lar_diag d = {0};
    lar_buf body;
    lar_buf_init(&body, ANSWER_BYTES_MAX);
    lar_error e = ask(a.admin, &body, &d);
    if (e) (void)fprintf(stderr, "larder: %s\n", *d.text ? d.text : lar_error_text(e));
    rc = e == LAR_INVALID ? 2 : e ? 1 : print(&a, &body);
    lar_buf_release(&body);
    return rc;
}
