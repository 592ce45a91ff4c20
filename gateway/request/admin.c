/* The admin endpoints over HTTP/1.1, one answer a connection. Called by serve.c; reads atomics of the gateway.
 * Main thread only. Why so small: it serves scrapers and probes, and must not share code paths with the traffic.
 * Invariants: 1. freed when the last handle is closed. 2. a new connection is always taken: over the limit the oldest
 * that keeps larder waiting goes, so that idle connections cannot close a probe out. Not here: anything that changes
 * state. */
#include "gateway/request/admin.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "gateway/http1/http1.h"
#include "gateway/net/listener.h"
#include "gateway/request/standing_report.h"

enum {
    ADMIN_CONNECTIONS_MAX = 64,
    ADMIN_IDLE_MS = 2000,     /* until the first byte */
    ADMIN_TIMEOUT_MS = 10000, /* from then on, the answer with it */
    ADMIN_READ_BYTES = 8192,
    ADMIN_TEXT_BYTES_MAX = 2 << 20
};

typedef struct admin_conn {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    lar_admin *admin;
    lar_http1 *parser;
    lar_buf out;
    struct admin_conn *prev, *next; /* the newest first */
    uint8_t open_handles;
    bool closing, heard, answered; /* heard: its first byte has come */
    char in[ADMIN_READ_BYTES];
} admin_conn;

struct lar_admin {
    uv_tcp_t listener, turned_away;
    lar_gateway *gateway;
    bool turn_away_busy, turn_away_again;
    admin_conn *conns;
    uint32_t handles;    /* listener and connections not freed yet */
    uint32_t conn_count; /* that are not closing */
};

static void release(lar_admin *a) {
    if (--a->handles == 0) free(a);
}

static void on_handle_closed(uv_handle_t *h) {
    admin_conn *c = h->data;
    if (--c->open_handles) return;
    if (c->prev) c->prev->next = c->next;
    else c->admin->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    lar_http1_free(c->parser);
    lar_buf_release(&c->out);
    release(c->admin);
    free(c);
}

static void close_conn(admin_conn *c) {
    if (c->closing) return;
    c->closing = true;
    c->admin->conn_count--;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
}

static void on_due(uv_timer_t *t) { close_conn(t->data); }

static void on_written(uv_write_t *w, int status) {
    (void)status;
    close_conn(w->data);
}

static lar_error respond(lar_buf *out, int status, const char *type, lar_slice body) {
    lar_error e =
        lar_buf_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                       status, lar_http1_reason(status), type, body.len);
    return e ? e : lar_buf_add_slice(out, body);
}

/* What nobody counts as it changes. */
static void refresh(lar_gateway *g) {
    lar_metrics_set(g->metrics, LAR_METRIC_BUFFERED_BYTES, atomic_load(&g->buffered_bytes));
    lar_resident_metrics(g->residents, g->resident_count, g->metrics);
    if (!g->store) return;
    lar_memory_size size = lar_store_memory_size(g->store);
    lar_metrics_set(g->metrics, LAR_METRIC_MEMORY_ENTRIES, (int64_t)size.entries);
    lar_metrics_set(g->metrics, LAR_METRIC_MEMORY_BYTES, (int64_t)size.bytes);
    lar_metrics_set(g->metrics, LAR_METRIC_MEMORY_CACHE_BYTES, (int64_t)size.cache_bytes);
}

static lar_error ready(lar_gateway *g, lar_buf *out) {
    bool well;
    lar_buf text;
    if (atomic_load(&g->stopping)) return respond(out, 503, "text/plain", LAR_SLICE("stopping\n"));
    lar_buf_init(&text, ADMIN_TEXT_BYTES_MAX);
    lar_error e = lar_standing_ready(g, &well, &text);
    if (!e && well) e = lar_buf_add_slice(&text, LAR_SLICE("ready\n"));
    if (!e && well) e = lar_standing_models(g, &text);
    if (!e && well) e = respond(out, 200, "text/plain", lar_buf_slice(&text));
    else if (!e) e = respond(out, 503, "application/json", lar_buf_slice(&text));
    lar_buf_release(&text);
    return e;
}

static lar_error answer(lar_gateway *g, const lar_http1_head *h, lar_buf *out) {
    if (lar_slice_eq_cstr(h->target, "/healthz")) return respond(out, 200, "text/plain", LAR_SLICE("ok\n"));
    if (lar_slice_eq_cstr(h->target, "/readyz")) return ready(g, out);
    bool upstreams = lar_slice_eq_cstr(h->target, "/upstreams"), experts = lar_slice_eq_cstr(h->target, "/experts");
    bool json = upstreams || experts;
    if (!json && !lar_slice_eq_cstr(h->target, "/metrics"))
        return respond(out, 404, "text/plain", LAR_SLICE("not found\n"));
    lar_buf text;
    lar_buf_init(&text, ADMIN_TEXT_BYTES_MAX);
    lar_error e = LAR_OK;
    if (upstreams) {
        e = lar_standing_json(g, &text);
    } else if (experts) {
        e = lar_resident_experts_json(g->residents, g->resident_count, &text);
    } else {
        refresh(g);
        e = lar_metrics_text(g->metrics, &text);
        if (!e) e = lar_standing_metrics(g, &text);
        if (!e) e = lar_resident_expert_metrics(g->residents, g->resident_count, &text);
    }
    const char *type = json ? "application/json" : "text/plain; version=0.0.4; charset=utf-8";
    if (!e) e = respond(out, 200, type, lar_buf_slice(&text));
    lar_buf_release(&text);
    return e;
}

static void send_answer(admin_conn *c) {
    const lar_http1_head *h = lar_http1_head_of(c->parser);
    bool get = h->method_id == LAR_HTTP1_GET || h->method_id == LAR_HTTP1_HEAD;
    lar_error e =
        get ? answer(c->admin->gateway, h, &c->out) : respond(&c->out, 405, "text/plain", LAR_SLICE("only GET\n"));
    c->answered = true;
    if (!e && h->method_id == LAR_HTTP1_HEAD) {
        char *end = memmem(c->out.ptr, c->out.len, "\r\n\r\n", 4);
        c->out.len = (size_t)(end - c->out.ptr) + 4;
    }
    uv_buf_t b = uv_buf_init(c->out.ptr, (unsigned)c->out.len);
    c->write.data = c;
    if (e || uv_write(&c->write, (uv_stream_t *)&c->tcp, &b, 1, on_written) < 0) close_conn(c);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *b) {
    (void)suggested;
    admin_conn *c = h->data;
    *b = uv_buf_init(c->in, sizeof c->in);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    admin_conn *c = s->data;
    if (n == 0 || c->closing || c->answered) return;
    if (n < 0) {
        close_conn(c);
        return;
    }
    if (!c->heard && uv_timer_start(&c->timer, on_due, ADMIN_TIMEOUT_MS, 0) != 0) {
        close_conn(c);
        return;
    }
    c->heard = true;
    lar_slice data = lar_slice_of(b->base, (size_t)n), body;
    while (!c->closing && !c->answered) {
        size_t used = 0;
        lar_http1_event e = lar_http1_next(c->parser, data.ptr, data.len, &used, &body);
        data.ptr += used;
        data.len -= used;
        if (e == LAR_HTTP1_MORE) return;
        if (e == LAR_HTTP1_FAIL) close_conn(c);
        if (e == LAR_HTTP1_END) send_answer(c);
    }
}

/* Closes the oldest connection that waits for its client; if all are being answered, the oldest. */
static void make_room(lar_admin *a) {
    admin_conn *victim = NULL;
    for (admin_conn *c = a->conns; c; c = c->next)
        if (!c->closing && (!victim || !c->answered || victim->answered)) victim = c;
    if (victim) close_conn(victim);
}

static void turn_away(lar_admin *a);

static void on_turned_away(uv_handle_t *h) {
    lar_admin *a = h->data;
    bool again = a->turn_away_again;
    a->turn_away_busy = a->turn_away_again = false;
    if (again && !uv_is_closing((uv_handle_t *)&a->listener)) turn_away(a);
    release(a);
}

/* Out of memory: the connection must be taken all the same, or libuv announces no other. */
static void turn_away(lar_admin *a) {
    if (a->turn_away_busy) {
        a->turn_away_again = true;
        return;
    }
    LAR_ASSERT(uv_tcp_init(a->listener.loop, &a->turned_away) == 0);
    a->turned_away.data = a;
    a->turn_away_busy = true;
    a->handles++;
    (void)uv_accept((uv_stream_t *)&a->listener, (uv_stream_t *)&a->turned_away);
    uv_close((uv_handle_t *)&a->turned_away, on_turned_away);
}

static void on_connection(uv_stream_t *s, int status) {
    static const lar_http1_limits limits = {.head_bytes_max = 16384, .fields_max = 64, .body_bytes_max = 0};
    lar_admin *a = s->data;
    if (status < 0) return;
    admin_conn *c = calloc(1, sizeof *c);
    if (!c) {
        turn_away(a);
        return;
    }
    c->admin = a;
    c->parser = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    lar_buf_init(&c->out, ADMIN_TEXT_BYTES_MAX + 4096);
    LAR_ASSERT(uv_tcp_init(s->loop, &c->tcp) == 0);
    LAR_ASSERT(uv_timer_init(s->loop, &c->timer) == 0);
    c->tcp.data = c->timer.data = c;
    c->open_handles = 2;
    if (a->conn_count >= ADMIN_CONNECTIONS_MAX) make_room(a);
    c->next = a->conns;
    if (a->conns) a->conns->prev = c;
    a->conns = c;
    a->conn_count++;
    a->handles++;
    bool taken = uv_accept(s, (uv_stream_t *)&c->tcp) == 0;
    if (!taken || !c->parser || uv_timer_start(&c->timer, on_due, ADMIN_IDLE_MS, 0) != 0 ||
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) != 0)
        close_conn(c);
}

/* "host:port", IPv6 in brackets. */
static lar_error split(const char *text, char *host, size_t cap, uint16_t *port, lar_diag *d) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    unsigned long p = colon ? strtoul(colon + 1, &end, 10) : 0;
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool bracketed = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    if (!colon || end == colon + 1 || *end || p > 65535 || n >= cap)
        return lar_fail(LAR_CONFIG, d, "admin.listen: '%s' is no HOST:PORT", text);
    memcpy(host, text + (bracketed ? 1 : 0), n - (bracketed ? 2u : 0u));
    host[n - (bracketed ? 2u : 0u)] = 0;
    *port = (uint16_t)p;
    return LAR_OK;
}

static void on_listener_closed(uv_handle_t *h) { release(h->data); }

lar_error lar_admin_open(uv_loop_t *loop, lar_gateway *g, lar_admin **out, lar_diag *d) {
    *out = NULL;
    const char *text = g->boot->admin_listen;
    char host[256];
    uint16_t port = 0;
    if (!text[0] || strcmp(text, "off") == 0) return LAR_OK;
    lar_error e = split(text, host, sizeof host, &port, d);
    if (e) return e;
    lar_admin *a = calloc(1, sizeof *a);
    if (!a) return lar_fail(LAR_NO_MEMORY, d, "admin listener");
    a->gateway = g;
    a->handles = 1;
    e = lar_listener_open(loop, &a->listener, host, port, LAR_LISTENER_EXCLUSIVE, d);
    a->listener.data = a;
    if (!e) e = lar_listener_start(&a->listener, on_connection, d);
    if (e) {
        uv_close((uv_handle_t *)&a->listener, on_listener_closed);
        return e;
    }
    char bound[LAR_ADDRESS_TEXT_BYTES];
    (void)lar_listener_address(&a->listener, bound, sizeof bound);
    LAR_LOG(g->log, LAR_LOG_INFO, "admin_listening", LAR_F_CSTR("address", bound));
    if (strncmp(bound, "127.", 4) != 0 && strncmp(bound, "[::1]", 5) != 0)
        LAR_LOG(g->log, LAR_LOG_WARN, "open_admin",
                LAR_F_CSTR("detail", "admin.listen is beyond loopback, and it asks nobody for a key"));
    *out = a;
    return LAR_OK;
}

void lar_admin_close(lar_admin *a) {
    if (!a) return;
    for (admin_conn *c = a->conns; c; c = c->next) close_conn(c);
    uv_close((uv_handle_t *)&a->listener, on_listener_closed);
}
