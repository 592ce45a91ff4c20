/* Client connections: bytes -> http1 parser -> exchange -> answer, one request at a time, in order.
 * Flow: the listener's callback -> lar_client_accept; stream events and the deadline -> here. Loop thread; no blocking.
 * Invariants: 1. in BODY and BUSY there is an exchange (and while refuse() answers). 2. input is parsed only in IDLE,
 * HEAD, BODY; in BUSY it waits in `pending`, bounded by not reading. 3. the memory goes in the last close callback.
 * Not here: what a request means (exchange.c). */
#include "gateway/request/client.h"

#include <stdlib.h>

#include "base/ensure.h"

enum {
    PENDING_BYTES_MAX = 512 << 10,
    LINGER_MS = 2000,
    LINGER_BYTES_MAX = 16 << 20,
    PROBE_MS_MAX = 512,
    STALL_MS = 100
};

static void feed(lar_client *c, lar_slice data);

/* The configuration in force now; a request under way keeps the one it began with. */
static const lar_config *config_of(const lar_loop *l) { return l->set->generation->config; }

/* -- closing ------------------------------------------------------------------------------------------------- */

static void handle_closed(lar_client *c) {
    if (--c->open_handles) return;
    lar_loop *l = c->loop;
    if (c->prev) c->prev->next = c->next;
    else l->clients = c->next;
    if (c->next) c->next->prev = c->prev;
    l->client_count--;
    atomic_fetch_sub_explicit(&l->gateway->clients, 1, memory_order_relaxed);
    lar_metrics_add(l->gateway->metrics, LAR_METRIC_CLIENT_CONNECTIONS, -1);
    lar_http1_free(c->parser);
    lar_buf_release(&c->pending);
    free(c);
    lar_loop_client_gone(l);
}

static void deadline_closed(uv_handle_t *h) { handle_closed(h->data); }

/* Bytes held for a connection outside of its exchange count too: the budget is one for the whole process. */
static bool budget_take(lar_client *c, size_t bytes) {
    lar_gateway *g = c->loop->gateway;
    c->budget_bytes += bytes;
    long long held = atomic_fetch_add_explicit(&g->buffered_bytes, (long long)bytes, memory_order_relaxed);
    return held + (long long)bytes <= (long long)config_of(c->loop)->buffer_bytes_max;
}

static void budget_free(lar_client *c) {
    atomic_fetch_sub_explicit(&c->loop->gateway->buffered_bytes, (long long)c->budget_bytes, memory_order_relaxed);
    c->budget_bytes = 0;
}

static void close_now(lar_client *c, lar_stream_close_mode mode) {
    if (c->state == CLIENT_CLOSING) return;
    LAR_ASSERT(!c->exchange);
    c->state = CLIENT_CLOSING;
    lar_deadline_close(&c->deadline, deadline_closed);
    lar_deadline_close(&c->write_limit, deadline_closed);
    lar_deadline_close(&c->probe, deadline_closed);
    budget_free(c);
    lar_stream_close(&c->stream, mode);
}

/* The peer is gone. */
static void lost(lar_client *c) {
    if (c->exchange) lar_exchange_abandon(c->exchange, LAR_END_CLIENT_GONE);
    else close_now(c, LAR_CLOSE_RESET);
}

/* Ends the connection once what is queued has left: FIN behind the last answer, and what still comes is thrown away, so
 * that the answer is not lost to a reset (RFC 9112 9.6). */
static void linger(lar_client *c) {
    bool queued = lar_stream_queued(&c->stream) > 0;
    if (c->eof && !queued) {
        close_now(c, LAR_CLOSE_NORMAL);
        return;
    }
    c->state = CLIENT_LINGER;
    c->linger_bytes = 0;
    lar_stream_shutdown(&c->stream);
    lar_stream_read_start(&c->stream);
    if (queued && !c->loop->cutting) lar_deadline_clear(&c->deadline); /* the write limit counts */
    else lar_deadline_set(&c->deadline, LINGER_MS);
}

void lar_client_close(lar_client *c) {
    if (c->exchange) lar_exchange_fail(c->exchange, LAR_SHUTDOWN, ""); /* comes back through lar_client_exchange_done */
    else if (c->state == CLIENT_LINGER) close_now(c, LAR_CLOSE_RESET);
    else if (lar_stream_queued(&c->stream)) linger(c);
    else close_now(c, LAR_CLOSE_NORMAL);
}

/* -- writing -------------------------------------------------------------------------------------------------- */

static void arm_write_limit(lar_client *c) {
    c->taken_seen = lar_stream_taken(&c->stream);
    lar_deadline_set(&c->write_limit, config_of(c->loop)->write_timeout_ms);
}

static void on_write_due(void *owner) {
    lar_client *c = owner;
    if (c->state == CLIENT_CLOSING || !lar_stream_queued(&c->stream)) return;
    if (lar_stream_taken(&c->stream) > c->taken_seen) arm_write_limit(c); /* slow, but it takes */
    else lost(c);
}

lar_error lar_client_write(lar_client *c, const struct iovec *iov, uint32_t count) {
    bool was_empty = lar_stream_queued(&c->stream) == 0;
    lar_error e = lar_stream_write(&c->stream, iov, count, LAR_WRITE_COPY, NULL);
    if (e) return LAR_CLIENT_GONE;
    if (was_empty && lar_stream_queued(&c->stream)) arm_write_limit(c);
    return LAR_OK;
}

size_t lar_client_queued(const lar_client *c) { return lar_stream_queued(&c->stream); }

bool lar_client_at_last(const lar_client *c) { return c->eof && !c->pending.len && !c->feeding; }

bool lar_client_body_read(const lar_client *c) { return c->state == CLIENT_BUSY; }

/* -- requests --------------------------------------------------------------------------------------------------- */

static void be_idle(lar_client *c) {
    c->state = CLIENT_IDLE;
    lar_deadline_set(&c->deadline, config_of(c->loop)->client_idle_ms);
}

/* Answers are queued and not taken: no further request is looked at until they are. */
static bool choked(const lar_client *c) {
    return lar_stream_queued(&c->stream) > config_of(c->loop)->stream_buffer_bytes;
}

/* No more input will come: what is queued still goes out. */
static void end_of_input(lar_client *c) {
    switch (c->state) {
    case CLIENT_IDLE:
    case CLIENT_HEAD: linger(c); return;
    case CLIENT_BODY: /* cut; answers to earlier requests may still be on their way, so no reset */
        c->exchange->error = LAR_CLIENT_GONE;
        lar_exchange_finish(c->exchange, LAR_END_CLIENT_GONE, CLIENT_CLOSE);
        return;
    case CLIENT_BUSY:
    case CLIENT_LINGER:
    case CLIENT_CLOSING: return;
    }
}

/* Goes on with what waited its turn. */
static void resume(lar_client *c) {
    c->stalled = false;
    if (c->pending.len) {
        lar_buf pending = c->pending;
        budget_free(c);
        lar_buf_init(&c->pending, PENDING_BYTES_MAX);
        feed(c, lar_buf_slice(&pending));
        lar_buf_release(&pending);
    }
    if (c->eof && !c->pending.len) end_of_input(c);
    else if (c->state != CLIENT_CLOSING && !c->stalled) lar_stream_read_start(&c->stream);
}

void lar_client_exchange_done(lar_client *c, client_next next) {
    LAR_ASSERT(c->exchange);
    c->exchange = NULL;
    c->probe_ms = 0;
    c->stalled = false;
    lar_deadline_clear(&c->probe);
    if (next == CLIENT_ABORT) {
        close_now(c, LAR_CLOSE_RESET);
        return;
    }
    if (next == CLIENT_CLOSE || c->loop->stopping || c->close_after) {
        linger(c);
        return;
    }
    be_idle(c);
    if (!c->feeding && !choked(c)) resume(c); /* else the loop in feed() goes on, or on_drained() does */
}

/* Long bodies are read to where they stay. */
static struct iovec body_room(void *owner) {
    lar_client *c = owner;
    if (c->state != CLIENT_BODY || !c->exchange) return (struct iovec){NULL, 0};
    return lar_exchange_body_room(c->exchange);
}

/* The request cannot be read to its end: answers in the form of the protocol the path names, as far as it is known,
 * and closes. */
static void refuse(lar_client *c, lar_error e, const lar_diag *d) {
    static const lar_http1_head nothing = {.minor = 1};
    c->close_after = true;
    if (!c->exchange) {
        c->exchange = lar_exchange_take(c->loop);
        if (!c->exchange) {
            close_now(c, LAR_CLOSE_RESET);
            return;
        }
        if (e == LAR_HTTP_BODY_LARGE) { /* the head was fine: whoever may not ask at all learns only that */
            c->state = CLIENT_BODY;
            if (lar_exchange_begin(c->exchange, c, lar_http1_head_of(c->parser)) != LAR_OK) return;
        } else {
            lar_exchange_begin_damaged(c->exchange, c, &nothing);
        }
    }
    if (c->exchange) lar_exchange_refuse(c->exchange, e, d);
}

static void on_head(lar_client *c) {
    const lar_config *cfg = config_of(c->loop);
    const lar_http1_head *h = lar_http1_head_of(c->parser);
    budget_free(c);
    c->exchange = lar_exchange_take(c->loop);
    if (!c->exchange) {
        close_now(c, LAR_CLOSE_RESET);
        return;
    }
    c->state = h->has_body ? CLIENT_BODY : CLIENT_BUSY;
    bool wants_continue = h->expect_continue && h->has_body;
    if (lar_exchange_begin(c->exchange, c, h) != LAR_OK) return;
    c->state = CLIENT_BODY;
    lar_deadline_set(&c->deadline, cfg->body_timeout_ms);
    if (!wants_continue) return;
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = {(void *)(uintptr_t)interim, sizeof interim - 1};
    if (lar_client_write(c, &iov, 1) != LAR_OK) lost(c);
}

/* One event of the parser. False: stop feeding. */
static bool on_event(lar_client *c, lar_http1_event e, lar_slice body) {
    switch (e) {
    case LAR_HTTP1_MORE: return false;
    case LAR_HTTP1_HEAD_END: on_head(c); return true;
    case LAR_HTTP1_BODY:
        lar_deadline_set(&c->deadline, config_of(c->loop)->body_timeout_ms);
        return lar_exchange_body(c->exchange, body) == LAR_OK;
    case LAR_HTTP1_END:
        if (!c->exchange) return true; /* its head was answered already */
        c->state = CLIENT_BUSY;
        lar_deadline_clear(&c->deadline);
        lar_exchange_run(c->exchange);
        return true;
    case LAR_HTTP1_FAIL: refuse(c, lar_http1_error(c->parser), lar_http1_diag(c->parser)); return false;
    }
    return false;
}

/* Bytes behind the request under way. Too many of them: the client is not read, and looked at from time to time. */
static void wait_turn(lar_client *c, lar_slice data) {
    if (!data.len) return;
    bool room = budget_take(c, data.len) && c->pending.len + data.len <= PENDING_BYTES_MAX / 2;
    if (lar_buf_add_slice(&c->pending, data) != LAR_OK) {
        lost(c);
        return;
    }
    if (room) return;
    lar_stream_read_stop(&c->stream);
    c->stalled = true;
    c->probe_ms = STALL_MS;
    lar_deadline_set(&c->probe, STALL_MS);
}

static void feed(lar_client *c, lar_slice data) {
    const lar_config *cfg = config_of(c->loop);
    c->feeding = true;
    for (;;) {
        bool between = c->state == CLIENT_IDLE || c->state == CLIENT_HEAD;
        if (c->state == CLIENT_BUSY || (between && choked(c))) { /* pipelined: waits its turn */
            wait_turn(c, data);
            break;
        }
        if (c->state != CLIENT_IDLE && c->state != CLIENT_HEAD && c->state != CLIENT_BODY) break;
        size_t used = 0;
        lar_slice body = {NULL, 0};
        lar_http1_event e = lar_http1_next(c->parser, data.ptr, data.len, &used, &body);
        data.ptr += used;
        data.len -= used;
        if (c->state == CLIENT_IDLE && lar_http1_in_head(c->parser)) {
            c->state = CLIENT_HEAD;
            lar_deadline_set(&c->deadline, cfg->head_timeout_ms);
        }
        if (c->state == CLIENT_HEAD && e == LAR_HTTP1_MORE && !budget_take(c, used)) {
            refuse(c, LAR_NO_MEMORY, NULL);
            break;
        }
        if (!on_event(c, e, body)) break;
    }
    c->feeding = false;
}

/* -- events ------------------------------------------------------------------------------------------------------ */

/* A closed socket answers the probe with a reset: looked for at once, then at growing distance. */
static void look_for_reset(lar_client *c) {
    if (lar_stream_reset(&c->stream)) {
        c->probe_ms = 0;
        lost(c);
        return;
    }
    if (!c->stalled) c->probe_ms = c->probe_ms < PROBE_MS_MAX ? c->probe_ms * 4 : 0;
    if (c->probe_ms) lar_deadline_set(&c->probe, c->probe_ms);
}

static void on_probe_due(void *owner) {
    lar_client *c = owner;
    if ((c->state == CLIENT_BUSY || c->stalled) && c->state != CLIENT_CLOSING && c->probe_ms) look_for_reset(c);
}

/* FIN from the client: either it is gone, or it only has nothing more to say and still reads. Something that any client
 * must skip tells the two apart: an interim answer before the head (RFC 9110 15.2), a comment in an event stream. */
static void probe(lar_client *c) {
    if (!lar_exchange_probe(c->exchange)) return; /* nothing can be said now: the next write will tell */
    c->probe_ms = 2;
    look_for_reset(c);
}

static void on_eof(lar_client *c) {
    c->eof = true;
    if (c->state == CLIENT_BUSY) {
        if (lar_client_at_last(c)) c->exchange->keep_alive = false; /* nothing more can be asked here */
        probe(c);
    } else if (c->state == CLIENT_LINGER) {
        if (lar_stream_queued(&c->stream) == 0) close_now(c, LAR_CLOSE_NORMAL);
    } else if (!c->pending.len) { /* else on_drained() goes on with it */
        end_of_input(c);
    }
}

static void on_drained(lar_client *c) {
    lar_deadline_clear(&c->write_limit);
    if (c->state == CLIENT_LINGER) {
        if (c->eof) close_now(c, LAR_CLOSE_NORMAL);
        else lar_deadline_set(&c->deadline, LINGER_MS);
        return;
    }
    if (c->exchange) lar_exchange_client_drained(c->exchange);
    else if (c->pending.len || c->stalled) resume(c);
}

static void on_data(lar_client *c, lar_slice data) {
    if (c->state == CLIENT_LINGER) {
        c->linger_bytes += data.len;
        if (c->linger_bytes > LINGER_BYTES_MAX) close_now(c, LAR_CLOSE_RESET);
        return;
    }
    feed(c, data);
}

static void on_stream(void *owner, const lar_stream_event *e) {
    lar_client *c = owner;
    if (e->kind == LAR_STREAM_CLOSED) {
        handle_closed(c);
        return;
    }
    if (c->state == CLIENT_CLOSING) return;
    switch (e->kind) {
    case LAR_STREAM_OPEN: be_idle(c); return;
    case LAR_STREAM_DATA: on_data(c, e->data); return;
    case LAR_STREAM_EOF: on_eof(c); return;
    case LAR_STREAM_ERROR: lost(c); return;
    case LAR_STREAM_DRAINED: on_drained(c); return;
    case LAR_STREAM_CLOSED: return;
    }
}

static void on_due(void *owner) {
    lar_client *c = owner;
    switch (c->state) {
    case CLIENT_IDLE:
        /* not idle while its answer is on the way: then the write limit counts */
        if (lar_stream_queued(&c->stream)) be_idle(c);
        else close_now(c, LAR_CLOSE_NORMAL);
        return;
    case CLIENT_HEAD:
    case CLIENT_BODY: refuse(c, LAR_HTTP_TIMEOUT, NULL); return;
    case CLIENT_LINGER: close_now(c, LAR_CLOSE_NORMAL); return;
    case CLIENT_BUSY:
    case CLIENT_CLOSING: return;
    }
}

static lar_client *client_new(lar_loop *l) {
    const lar_config *cfg = config_of(l);
    lar_client *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    const lar_http1_limits limits = {.head_bytes_max = (uint32_t)cfg->head_bytes_max,
                                     .fields_max = cfg->fields_max,
                                     .body_bytes_max = cfg->body_bytes_max};
    c->parser = lar_http1_new(LAR_HTTP1_REQUEST, &limits);
    if (!c->parser) {
        free(c);
        return NULL;
    }
    c->loop = l;
    lar_buf_init(&c->pending, PENDING_BYTES_MAX);
    c->next = l->clients;
    if (l->clients) l->clients->prev = c;
    l->clients = c;
    l->client_count++;
    return c;
}

static void turn_away(lar_loop *l, uv_stream_t *listener);

static void on_turned_away(uv_handle_t *h) {
    lar_turn_away *t = (lar_turn_away *)h;
    bool again = t->again;
    t->busy = t->again = false;
    if (again && !uv_is_closing((uv_handle_t *)t->listener)) turn_away(h->data, t->listener);
}

/* Over the limit, or out of memory: the connection is taken and closed, so that the backlog does not fill up. The
 * handle is there from the start: libuv accepts nothing more until the connection that it announced is taken. */
static void turn_away(lar_loop *l, uv_stream_t *listener) {
    lar_turn_away *t = &l->turn_away[(uv_tcp_t *)listener - l->listeners];
    if (t->busy) {
        t->again = true;
        return;
    }
    lar_metrics_add(l->gateway->metrics, LAR_METRIC_CLIENT_CONNECTIONS_REFUSED_TOTAL, 1);
    LAR_ASSERT(uv_tcp_init(&l->uv, &t->tcp) == 0);
    t->tcp.data = l;
    t->listener = listener;
    t->busy = true;
    (void)uv_accept(listener, (uv_stream_t *)&t->tcp);
    uv_close((uv_handle_t *)&t->tcp, on_turned_away);
}

void lar_client_accept(lar_loop *l, uv_stream_t *listener) {
    lar_gateway *g = l->gateway;
    int others = atomic_fetch_add_explicit(&g->clients, 1, memory_order_relaxed);
    lar_client *c = others < (int)config_of(l)->connections_max ? client_new(l) : NULL;
    if (!c) {
        atomic_fetch_sub_explicit(&g->clients, 1, memory_order_relaxed);
        turn_away(l, listener);
        return;
    }
    lar_metrics_add(g->metrics, LAR_METRIC_CLIENT_CONNECTIONS, 1);
    lar_metrics_add(g->metrics, LAR_METRIC_CLIENT_CONNECTIONS_TOTAL, 1);
    lar_deadline_init(&c->deadline, &l->uv, on_due, c);
    lar_deadline_init(&c->write_limit, &l->uv, on_write_due, c);
    lar_deadline_init(&c->probe, &l->uv, on_probe_due, c);
    lar_stream_init(&c->stream, &l->uv, l->scratch, on_stream, c);
    c->stream.room = body_room;
    c->open_handles = 4;
    (void)pthread_mutex_lock(&g->lock);
    lar_tls_context *tls = g->listener_tls ? lar_tls_context_ref(g->listener_tls) : NULL;
    (void)pthread_mutex_unlock(&g->lock);
    be_idle(c);
    if (tls) lar_deadline_set(&c->deadline, config_of(l)->head_timeout_ms); /* the handshake is no idling */
    lar_error e = lar_stream_accept(&c->stream, listener, tls);
    lar_tls_context_unref(tls);
    if (e) {
        close_now(c, LAR_CLOSE_RESET);
        return;
    }
    lar_stream_read_start(&c->stream);
}
