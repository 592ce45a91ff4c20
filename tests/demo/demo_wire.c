/* HTTP/1.1 server of the demo upstream: sockets, TLS, requests in, bytes out.
 *
 * Flow: uv read -> (TLS) -> llhttp -> ops.request; answers come back through demo_wire_send and demo_wire_finish.
 * Thread: one loop. Nothing blocks.
 * Why: the bench needs an upstream that is never the bottleneck; tests need one that can be cut at any byte.
 * Invariants:
 *   1. One request at a time: later pipelined bytes wait in `pending` until finish.
 *   2. A connection is freed only when both of its handles are closed.
 *   3. At most one uv_write is under way; later bytes gather in `out`.
 * Memory: body and output buffers stay with the connection and are used again. */
#include "demo_wire.h"

#include <llhttp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

#include "demo_json.h"

enum { HEAD_MAX = 1 << 20, READ_BYTES = 256 << 10, LINGER_MS = 1000, SWEEP_MS = 100 };
#define BODY_MAX ((size_t)1 << 30)
#define PENDING_MAX ((size_t)256 << 20)

typedef struct span { uint32_t start, len; } span;

struct demo_conn {
    demo_wire *w;
    demo_conn *prev, *next;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    SSL *ssl;
    llhttp_t http;
    lar_buf head, body, pending, out, inflight;
    span target, names[DEMO_FIELDS_MAX], values[DEMO_FIELDS_MAX];
    uint32_t field_count;
    bool in_value, answering, keep_alive, feeding, writing, ending, closing;
    uint8_t handles;
    uint64_t idle_since_ms;
    void *user;
};

struct demo_wire {
    uv_loop_t *loop;
    uv_tcp_t listener;
    uv_timer_t sweep;
    demo_wire_ops ops;
    demo_wire_options options;
    llhttp_settings_t settings;
    SSL_CTX *tls;
    demo_conn *first;
    uint64_t open, accepted;
    int port;
    char *read_buffer; /* one for all connections: bytes are used up before the next read */
};

static void on_handle_closed(uv_handle_t *h) {
    demo_conn *c = h->data;
    if (--c->handles) return;
    if (c->ssl) SSL_free(c->ssl);
    lar_buf_release(&c->head);
    lar_buf_release(&c->body);
    lar_buf_release(&c->pending);
    lar_buf_release(&c->out);
    lar_buf_release(&c->inflight);
    free(c);
}

typedef enum close_how { CLOSE_PLAIN, CLOSE_RST } close_how;

static void conn_close(demo_conn *c, close_how how) {
    if (c->closing) return;
    c->closing = true;
    demo_wire *w = c->w;
    if (c->prev) c->prev->next = c->next;
    else w->first = c->next;
    if (c->next) c->next->prev = c->prev;
    w->open--;
    if (c->answering) w->ops.gone(w->ops.ctx, c);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    if (how == CLOSE_RST && uv_tcp_close_reset(&c->tcp, on_handle_closed) == 0) return;
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

/* -- output ----------------------------------------------------------------------------------------------- */

static void on_shutdown(uv_shutdown_t *req, int status) {
    demo_conn *c = req->handle->data;
    if (status < 0) conn_close(c, CLOSE_PLAIN);
}

static void on_timer(uv_timer_t *t) {
    demo_conn *c = t->data;
    if (c->ending) conn_close(c, CLOSE_PLAIN);
    else if (c->answering) c->w->ops.tick(c->w->ops.ctx, c);
}

/* Half-closes and waits a moment for the client to close: a plain close with unread bytes would send RST. */
static void linger(demo_conn *c) {
    if (c->closing) return;
    uv_timer_start(&c->timer, on_timer, LINGER_MS, 0);
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) < 0) conn_close(c, CLOSE_PLAIN);
}

static void start_write(demo_conn *c);

static void on_written(uv_write_t *req, int status) {
    demo_conn *c = req->data;
    c->writing = false;
    if (c->closing) return;
    if (status < 0) {
        conn_close(c, CLOSE_PLAIN);
        return;
    }
    lar_buf_reset(&c->inflight, 1u << 20);
    if (c->out.len) start_write(c);
    else if (c->ending) linger(c);
    else if (c->answering) c->w->ops.wrote(c->w->ops.ctx, c);
}

static void start_write(demo_conn *c) {
    lar_buf t = c->inflight;
    c->inflight = c->out;
    c->out = t;
    uv_buf_t b = uv_buf_init(c->inflight.ptr, (unsigned)c->inflight.len);
    c->write.data = c;
    c->writing = true;
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &b, 1, on_written) == 0) return;
    c->writing = false;
    conn_close(c, CLOSE_PLAIN);
}

static void send_raw(demo_conn *c, lar_slice s) {
    if (c->closing || s.len == 0) return;
    if (!c->writing) {
        union { const char *in; char *out; } bytes = {.in = s.ptr}; /* libuv's buffers are not const */
        uv_buf_t b = uv_buf_init(bytes.out, (unsigned)s.len);
        int n = uv_try_write((uv_stream_t *)&c->tcp, &b, 1);
        if (n > 0) s = lar_slice_of(s.ptr + n, s.len - (size_t)n);
        if (s.len == 0) return;
    }
    demo_put(&c->out, s);
    if (!c->writing) start_write(c);
}

static void flush_tls(demo_conn *c) {
    BIO *b = SSL_get_wbio(c->ssl);
    char *p;
    long n = BIO_get_mem_data(b, &p);
    if (n <= 0) return;
    send_raw(c, lar_slice_of(p, (size_t)n));
    (void)BIO_reset(b);
}

void demo_wire_send(demo_conn *c, lar_slice bytes) {
    if (c->closing || bytes.len == 0) return;
    if (!c->ssl) {
        send_raw(c, bytes);
        return;
    }
    size_t done = 0;
    if (SSL_write_ex(c->ssl, bytes.ptr, bytes.len, &done) != 1) {
        conn_close(c, CLOSE_PLAIN);
        return;
    }
    flush_tls(c);
}

bool demo_wire_busy(const demo_conn *c) { return c->writing; }
void demo_wire_after(demo_conn *c, uint64_t ms) {
    if (!c->closing) uv_timer_start(&c->timer, on_timer, ms, 0);
}
void demo_wire_set_user(demo_conn *c, void *user) { c->user = user; }
void *demo_wire_user(const demo_conn *c) { return c->user; }

void demo_wire_reset(demo_conn *c) { conn_close(c, CLOSE_RST); }

/* -- requests --------------------------------------------------------------------------------------------- */

static bool add_head(demo_conn *c, span *s, const char *p, size_t n) {
    if (c->head.len + n > HEAD_MAX) return false;
    if (s->len == 0) s->start = (uint32_t)c->head.len;
    demo_put(&c->head, lar_slice_of(p, n));
    s->len += (uint32_t)n;
    return true;
}

static int on_begin(llhttp_t *h) {
    demo_conn *c = h->data;
    lar_buf_reset(&c->head, 1u << 16);
    lar_buf_reset(&c->body, 1u << 20);
    c->field_count = 0;
    c->in_value = false;
    c->target = (span){0};
    return 0;
}

static int on_url(llhttp_t *h, const char *p, size_t n) {
    demo_conn *c = h->data;
    return add_head(c, &c->target, p, n) ? 0 : -1;
}

static int on_name(llhttp_t *h, const char *p, size_t n) {
    demo_conn *c = h->data;
    if (c->in_value || c->field_count == 0) {
        if (c->field_count == DEMO_FIELDS_MAX) return -1;
        c->names[c->field_count] = c->values[c->field_count] = (span){0};
        c->field_count++;
        c->in_value = false;
    }
    return add_head(c, &c->names[c->field_count - 1], p, n) ? 0 : -1;
}

static int on_value(llhttp_t *h, const char *p, size_t n) {
    demo_conn *c = h->data;
    if (c->field_count == 0) return -1;
    c->in_value = true;
    return add_head(c, &c->values[c->field_count - 1], p, n) ? 0 : -1;
}

static int on_value_end(llhttp_t *h) {
    demo_conn *c = h->data;
    c->in_value = true; /* an empty value has no on_value call */
    return 0;
}

static lar_slice slice_of(const demo_conn *c, span s) {
    return lar_slice_of(s.len ? c->head.ptr + s.start : "", s.len);
}

static int on_head_end(llhttp_t *h) {
    demo_conn *c = h->data;
    for (uint32_t i = 0; i < c->field_count; i++)
        if (lar_slice_ieq(slice_of(c, c->names[i]), LAR_SLICE("expect"))
            && lar_slice_ieq(slice_of(c, c->values[i]), LAR_SLICE("100-continue")))
            demo_wire_send(c, LAR_SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
    return 0;
}

static int on_body(llhttp_t *h, const char *p, size_t n) {
    demo_conn *c = h->data;
    if (c->body.len + n > BODY_MAX) return -1;
    demo_put(&c->body, lar_slice_of(p, n));
    return 0;
}

static int on_complete(llhttp_t *h) {
    demo_conn *c = h->data;
    c->keep_alive = llhttp_should_keep_alive(h) == 1;
    c->answering = true;
    return HPE_PAUSED;
}

static void dispatch(demo_conn *c) {
    demo_field fields[DEMO_FIELDS_MAX];
    for (uint32_t i = 0; i < c->field_count; i++)
        fields[i] = (demo_field){slice_of(c, c->names[i]), slice_of(c, c->values[i])};
    demo_request r = {
        .method = lar_slice_cstr(llhttp_method_name((llhttp_method_t)c->http.method)),
        .target = slice_of(c, c->target),
        .fields = fields,
        .field_count = c->field_count,
        .body = &c->body,
        .keep_alive = c->keep_alive,
        .http_1_0 = c->http.http_major == 1 && c->http.http_minor == 0,
    };
    c->w->ops.request(c->w->ops.ctx, c, &r);
}

static void refuse(demo_conn *c) {
    demo_wire_send(c, LAR_SLICE("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    if (c->closing) return;
    c->ending = true;
    if (!c->writing) linger(c);
}

/* Parses until the bytes run out or a request is being answered; keeps the rest for later. */
static void feed(demo_conn *c, const char *p, size_t n) {
    c->feeding = true;
    while (n && !c->closing && !c->ending && !c->answering) {
        llhttp_errno_t e = llhttp_execute(&c->http, p, n);
        if (e == HPE_OK) {
            n = 0;
            break;
        }
        if (e != HPE_PAUSED && e != HPE_PAUSED_UPGRADE) {
            refuse(c);
            break;
        }
        const char *at = llhttp_get_error_pos(&c->http);
        n -= (size_t)(at - p);
        p = at;
        if (e == HPE_PAUSED) llhttp_resume(&c->http);
        else llhttp_resume_after_upgrade(&c->http);
        if (c->answering) dispatch(c);
    }
    c->feeding = false;
    if (n && !c->closing && !c->ending) {
        demo_put(&c->pending, lar_slice_of(p, n));
        if (c->pending.len > PENDING_MAX) conn_close(c, CLOSE_PLAIN);
    }
}

static void feed_pending(demo_conn *c) {
    if (!c->pending.len || c->feeding) return;
    lar_buf taken = c->pending;
    lar_buf_init(&c->pending, PENDING_MAX * 2);
    feed(c, taken.ptr, taken.len);
    lar_buf_release(&taken);
}

void demo_wire_finish(demo_conn *c, demo_end end) {
    if (c->closing) return;
    c->answering = false;
    c->idle_since_ms = uv_now(c->w->loop);
    uv_timer_stop(&c->timer);
    if (end == DEMO_END_CLOSE || !c->keep_alive) {
        c->ending = true;
        if (!c->writing) linger(c);
        return;
    }
    feed_pending(c);
}

/* -- input ------------------------------------------------------------------------------------------------ */

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *b) {
    demo_conn *c = h->data;
    (void)hint;
    *b = uv_buf_init(c->w->read_buffer, READ_BYTES);
}

static void read_tls(demo_conn *c, const char *p, size_t n) {
    char plain[16384];
    size_t got = 0;
    if (BIO_write(SSL_get_rbio(c->ssl), p, (int)n) != (int)n) {
        conn_close(c, CLOSE_PLAIN);
        return;
    }
    if (!SSL_is_init_finished(c->ssl)) {
        int r = SSL_do_handshake(c->ssl), e = SSL_get_error(c->ssl, r);
        flush_tls(c);
        if (r != 1 && e != SSL_ERROR_WANT_READ) conn_close(c, CLOSE_PLAIN);
        if (r != 1 || c->closing) return;
    }
    while (!c->closing && SSL_read_ex(c->ssl, plain, sizeof plain, &got) == 1) feed(c, plain, got);
    if (c->closing) return;
    flush_tls(c);
    if (SSL_get_shutdown(c->ssl) & SSL_RECEIVED_SHUTDOWN) conn_close(c, CLOSE_PLAIN);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    demo_conn *c = s->data;
    if (n < 0) conn_close(c, CLOSE_PLAIN);
    if (n <= 0 || c->closing || c->ending) return;
    if (c->ssl) read_tls(c, b->base, (size_t)n);
    else feed(c, b->base, (size_t)n);
}

static void on_connection(uv_stream_t *listener, int status) {
    demo_wire *w = listener->data;
    demo_conn *c = status < 0 ? NULL : calloc(1, sizeof *c);
    if (!c) return;
    c->w = w;
    c->handles = 2;
    lar_buf_init(&c->head, HEAD_MAX);
    lar_buf_init(&c->body, BODY_MAX);
    lar_buf_init(&c->pending, PENDING_MAX * 2);
    lar_buf_init(&c->out, (size_t)4 << 30);
    lar_buf_init(&c->inflight, (size_t)4 << 30);
    c->tcp.data = c->timer.data = c;
    uv_tcp_init(w->loop, &c->tcp);
    uv_timer_init(w->loop, &c->timer);
    c->next = w->first;
    if (w->first) w->first->prev = c;
    w->first = c;
    w->open++;
    w->accepted++;
    c->idle_since_ms = uv_now(w->loop);
    llhttp_init(&c->http, HTTP_REQUEST, &w->settings);
    c->http.data = c;
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) < 0) {
        conn_close(c, CLOSE_PLAIN);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    if (w->tls) {
        c->ssl = SSL_new(w->tls);
        if (!c->ssl) abort();
        SSL_set_bio(c->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
        SSL_set_accept_state(c->ssl);
    }
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

static void on_sweep(uv_timer_t *t) {
    demo_wire *w = t->data;
    uint64_t now = uv_now(w->loop);
    for (demo_conn *c = w->first, *next; c; c = next) {
        next = c->next;
        bool idle = !c->answering && !c->ending;
        if (idle && now - c->idle_since_ms >= w->options.keepalive_timeout_ms) conn_close(c, CLOSE_PLAIN);
    }
}

/* OpenSSL's callback, hence six parameters. */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned in_len, void *ctx) {
    static const unsigned char http[] = "\x08http/1.1";
    (void)ssl;
    (void)ctx;
    for (unsigned i = 0; i < in_len; i += in[i] + 1u) {
        if (in_len - i < 9 || memcmp(in + i, http, 9) != 0) continue;
        *out = in + i + 1;
        *out_len = 8;
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_NOACK;
}

static SSL_CTX *load_tls(const demo_wire_options *o) {
    SSL_CTX *t = SSL_CTX_new(TLS_server_method());
    if (!t) return NULL;
    SSL_CTX_set_alpn_select_cb(t, choose_alpn, NULL);
    if (SSL_CTX_use_certificate_chain_file(t, o->tls_cert) == 1
        && SSL_CTX_use_PrivateKey_file(t, o->tls_key, SSL_FILETYPE_PEM) == 1)
        return t;
    ERR_print_errors_fp(stderr);
    SSL_CTX_free(t);
    return NULL;
}

demo_wire *demo_wire_new(uv_loop_t *loop, const demo_wire_options *o, const demo_wire_ops *ops) {
    struct sockaddr_in a;
    struct sockaddr_storage bound;
    int len = sizeof bound;
    demo_wire *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    *w = (demo_wire){.loop = loop, .ops = *ops, .options = *o, .read_buffer = malloc(READ_BYTES)};
    if (!w->read_buffer || (o->tls_cert && !(w->tls = load_tls(o)))) {
        demo_wire_free(w);
        return NULL;
    }
    llhttp_settings_init(&w->settings);
    w->settings.on_message_begin = on_begin;
    w->settings.on_url = on_url;
    w->settings.on_header_field = on_name;
    w->settings.on_header_value = on_value;
    w->settings.on_header_value_complete = on_value_end;
    w->settings.on_headers_complete = on_head_end;
    w->settings.on_body = on_body;
    w->settings.on_message_complete = on_complete;
    uv_tcp_init(loop, &w->listener);
    w->listener.data = w->sweep.data = w;
    int e = uv_ip4_addr(o->host, o->port, &a);
    if (e == 0) e = uv_tcp_bind(&w->listener, (const struct sockaddr *)&a, 0);
    if (e == 0) e = uv_listen((uv_stream_t *)&w->listener, 4096, on_connection);
    if (e == 0) e = uv_tcp_getsockname(&w->listener, (struct sockaddr *)&bound, &len);
    if (e != 0) {
        fprintf(stderr, "demo_upstream: cannot listen on %s:%d: %s\n", o->host, o->port, uv_strerror(e));
        uv_close((uv_handle_t *)&w->listener, NULL);
        uv_run(loop, UV_RUN_DEFAULT);
        demo_wire_free(w);
        return NULL;
    }
    w->port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
    uv_timer_init(loop, &w->sweep);
    if (o->keepalive_timeout_ms) uv_timer_start(&w->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    return w;
}

void demo_wire_stop(demo_wire *w) {
    uv_close((uv_handle_t *)&w->listener, NULL);
    uv_close((uv_handle_t *)&w->sweep, NULL);
    while (w->first) conn_close(w->first, CLOSE_PLAIN);
}

void demo_wire_free(demo_wire *w) {
    if (w->tls) SSL_CTX_free(w->tls);
    free(w->read_buffer);
    free(w);
}

int demo_wire_port(const demo_wire *w) { return w->port; }
uint64_t demo_wire_open(const demo_wire *w) { return w->open; }
uint64_t demo_wire_accepted(const demo_wire *w) { return w->accepted; }
