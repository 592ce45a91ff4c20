/* The drill's client (header: drill_ask.h). Called by drill.c, one request at a time; blocks, at most as long as a
 * client that waits for a large model would. The answer is framed by http1, its events are found by sse.h and
 * read by usage.h. Memory: the answer, bounded. Not here: what should have come (drill_judge.c). */
#include "gateway/drill/drill_ask.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "gateway/commands/present.h"
#include "gateway/drill/drill_disguise.h"
#include "gateway/drill/drill_script.h"
#include "gateway/http1/http1.h"
#include "gateway/http1/sse.h"
#include "gateway/usage/usage.h"

enum {
    WAIT_MS = 300000,
    READ_BYTES = 16384,
    REQUEST_BYTES_MAX = LAR_DRILL_PROMPT_BYTES_MAX + 65536,
    EVENT_BYTES_MAX = 1 << 20
};

typedef struct asker {
    const lar_drill_question *q;
    lar_drill_saw *saw;
    lar_http1 *parser;
    lar_sse sse;
    lar_usage usage;
    uint64_t start_ns;
    int fd;
} asker;

void lar_drill_saw_init(lar_drill_saw *saw) {
    *saw = (lar_drill_saw){.error_at = SIZE_MAX, .first_us = -1, .total_us = -1};
    lar_buf_init(&saw->body, LAR_DRILL_ANSWER_BYTES_MAX);
}

void lar_drill_saw_release(lar_drill_saw *saw) { lar_buf_release(&saw->body); }

/* -- the answer --------------------------------------------------------------------------------------------------- */

static int64_t since_us(const asker *a) { return (int64_t)((lar_clock_mono_ns() - a->start_ns) / 1000); }

static void copy(char *to, size_t cap, lar_slice from) {
    size_t n = from.len < cap ? from.len : cap - 1;
    if (n) memcpy(to, from.ptr, n);
    to[n] = 0;
}

/* "deepseek/2@17", the second replica in scene 17, is "deepseek" to the operator. */
static lar_slice operators_name(lar_slice name) {
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '@' || name.ptr[i] == '/') return lar_slice_of(name.ptr, i);
    return name;
}

static void read_head(asker *a) {
    const lar_http1_head *h = lar_http1_head_of(a->parser);
    if (h->status < 200) return;
    a->saw->status = h->status;
    a->saw->trouble = NULL;
    a->saw->streamed = lar_slice_starts_i(lar_http1_get(h, "content-type"), LAR_SLICE("text/event-stream"));
    a->saw->retry_after = lar_http1_get(h, "retry-after").len || lar_http1_get(h, "retry-after-ms").len;
    copy(a->saw->by, sizeof a->saw->by, operators_name(lar_http1_get(h, "x-larder-served-by")));
    copy(a->saw->failure, sizeof a->saw->failure, lar_http1_get(h, "x-larder-failure"));
}

static void keep_message(asker *a, lar_slice json) {
    const lar_json_limits limits = LAR_JSON_LIMITS_DEFAULT;
    lar_json *j = &a->usage.json;
    char shown[LAR_SHOWN_BYTES];
    if (a->saw->message[0] || lar_json_parse(j, json, &limits, NULL) != LAR_OK) return;
    uint32_t error = lar_json_get(j, 0, "error");
    uint32_t message = lar_json_get(j, lar_json_is(j, error, LAR_JSON_OBJECT) ? error : 0, "message");
    lar_present_name(lar_json_inner(j, message), shown);
    copy(a->saw->message, sizeof a->saw->message, lar_slice_cstr(shown));
}

static void read_events(asker *a, lar_slice data) {
    for (size_t at = 0, used = 0; at < data.len; at += used) {
        lar_sse_event e;
        if (!lar_sse_next(&a->sse, data.ptr + at, data.len - at, &used, &e)) return;
        if (e.comment_only) continue;
        bool failed = a->usage.error_seen;
        (void)lar_usage_event(&a->usage, a->q->protocol, e.type, e.data);
        if (a->usage.content_seen && a->saw->first_us < 0) a->saw->first_us = since_us(a);
        if (!failed && a->usage.error_seen) {
            a->saw->error_at = (size_t)e.wire_start;
            keep_message(a, e.data);
        }
    }
}

static void end_answer(asker *a) {
    lar_drill_saw *saw = a->saw;
    if (!saw->streamed) {
        lar_usage_body(&a->usage, a->q->protocol, lar_buf_slice(&saw->body));
        if (a->usage.content_seen && !a->usage.error_seen && saw->status < 400) saw->first_us = since_us(a);
        if (a->usage.error_seen) keep_message(a, lar_buf_slice(&saw->body));
    }
    saw->error = a->usage.error_seen;
    saw->last_event = a->usage.done;
    saw->total_us = since_us(a);
}

/* True: there is nothing more to come. */
static bool take(asker *a, lar_slice data, lar_error *e) {
    for (;;) {
        size_t used = 0;
        lar_slice part;
        lar_http1_event event = lar_http1_next(a->parser, data.ptr, data.len, &used, &part);
        data = lar_slice_of(data.ptr + used, data.len - used);
        if (event == LAR_HTTP1_MORE) return false;
        if (event == LAR_HTTP1_HEAD_END) read_head(a);
        if (event == LAR_HTTP1_BODY) {
            *e = lar_buf_add_slice(&a->saw->body, part);
            if (*e) return true;
            if (a->saw->streamed) read_events(a, part);
        }
        a->saw->whole = event == LAR_HTTP1_END;
        if (event == LAR_HTTP1_FAIL && a->saw->trouble) a->saw->trouble = "what came is not HTTP";
        if (event == LAR_HTTP1_END || event == LAR_HTTP1_FAIL) return true;
    }
}

/* -- the connection ----------------------------------------------------------------------------------------------- */

/* 1: readable; 0: too late; -1: the drill is to stop. */
static int wait_for(const asker *a) {
    uint64_t until_ns = a->start_ns + (uint64_t)WAIT_MS * 1000000u;
    for (;;) {
        struct pollfd fds[2] = {{.fd = a->fd, .events = POLLIN}, {.fd = a->q->interrupted, .events = POLLIN}};
        uint64_t now = lar_clock_mono_ns();
        int left = now >= until_ns ? 0 : (int)((until_ns - now) / 1000000u) + 1;
        int n = poll(fds, 2, left);
        if (n > 0 && fds[1].revents) return -1;
        if (n > 0) return 1;
        if (n == 0 || errno != EINTR) return 0;
    }
}

static lar_error receive(asker *a) {
    char bytes[READ_BYTES];
    lar_error e = LAR_OK;
    a->saw->trouble = "the connection was closed without an answer";
    for (;;) {
        int ready = wait_for(a);
        if (ready < 0) return LAR_BUSY;
        if (ready == 0) a->saw->trouble = "no answer within 300 s";
        ssize_t n = ready ? recv(a->fd, bytes, sizeof bytes, 0) : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n > 0 && !take(a, lar_slice_of(bytes, (size_t)n), &e)) continue;
        if (n <= 0 && ready) a->saw->whole = lar_http1_eof(a->parser) == LAR_HTTP1_END;
        end_answer(a);
        return e;
    }
}

static lar_error send_all(int fd, lar_slice bytes) {
    while (bytes.len) {
        ssize_t n = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return LAR_IO;
        bytes = lar_slice_of(bytes.ptr + n, bytes.len - (size_t)n);
    }
    return LAR_OK;
}

static lar_error dial(asker *a) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(a->q->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return a->fd < 0 || connect(a->fd, (const struct sockaddr *)&to, sizeof to) ? LAR_IO : LAR_OK;
}

static lar_error request(const lar_drill_question *q, lar_buf *out) {
    bool anthropic = q->protocol == LAR_PROTOCOL_MESSAGES;
    lar_buf body;
    lar_buf_init(&body, REQUEST_BYTES_MAX);
    lar_drill_request r = {.protocol = q->protocol,
                           .model = q->model,
                           .streamed = q->streamed,
                           .tool = q->tool,
                           .prompt_bytes = q->prompt_bytes,
                           .tokens_max = q->tokens_max};
    lar_error e = lar_drill_ask_body(&r, &body);
    if (!e)
        e = lar_buf_printf(out,
                           "POST /d%u%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s" LAR_DRILL_CLIENT_KEY
                           "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                           (unsigned)q->scene, lar_drill_path(q->protocol), (unsigned)q->port,
                           anthropic ? "anthropic-version: 2023-06-01\r\nx-api-key: " : "Authorization: Bearer ",
                           body.len);
    if (!e) e = lar_buf_add_slice(out, lar_buf_slice(&body));
    lar_buf_release(&body);
    return e;
}

lar_error lar_drill_ask(const lar_drill_question *q, lar_drill_saw *saw) {
    static const lar_http1_limits limits = {.head_bytes_max = 65536,
                                            .fields_max = 256,
                                            .body_bytes_max = LAR_DRILL_ANSWER_BYTES_MAX};
    asker a = {.q = q, .saw = saw, .fd = -1};
    lar_buf out;
    lar_buf_init(&out, REQUEST_BYTES_MAX);
    lar_sse_init(&a.sse, EVENT_BYTES_MAX);
    lar_usage_init(&a.usage, LAR_USAGE_BY_SPELLING);
    a.parser = lar_http1_new(LAR_HTTP1_RESPONSE, &limits);
    lar_error e = a.parser ? request(q, &out) : LAR_NO_MEMORY;
    if (!e) e = dial(&a);
    a.start_ns = lar_clock_mono_ns();
    if (!e) e = send_all(a.fd, lar_buf_slice(&out));
    if (!e) e = receive(&a);
    if (a.fd >= 0) (void)close(a.fd);
    lar_http1_free(a.parser);
    lar_usage_release(&a.usage);
    lar_sse_release(&a.sse);
    lar_buf_release(&out);
    return e;
}
