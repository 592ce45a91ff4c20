/* One connection to an upstream: connect (address after address), parse answers, tell the lease.
 * Flow: stream events -> http1 parser -> lease events. Loop thread only; never blocks.
 * Invariants: 1. while LEASED, `lease` is set; else NULL. 2. the memory goes in the last close callback, when
 * open_handles is 0. 3. an event handler may release or cancel the lease: every loop looks at c->lease again. */
#include <stdlib.h>

#include "base/ensure.h"
#include "gateway/upstream/pool_internal.h"

static const lar_http1_limits answer_limits = {.head_bytes_max = 128 << 10,
                                               .fields_max = 512,
                                               .body_bytes_max = UINT64_MAX};

static void handle_closed(lar_upstream_conn *c) {
    if (--c->open_handles) return;
    lar_pool_conn_gone(c);
    lar_http1_free(c->parser);
    free(c);
}

static void deadline_closed(uv_handle_t *h) { handle_closed(h->data); }

void lar_conn_close(lar_upstream_conn *c, lar_stream_close_mode mode) {
    if (c->state == CONN_CLOSING) return;
    LAR_ASSERT(!c->lease);
    if (c->counted) lar_metrics_add(c->pool->o.metrics, LAR_METRIC_UPSTREAM_CONNECTIONS, -1);
    c->state = CONN_CLOSING;
    lar_deadline_close(&c->deadline, deadline_closed);
    lar_stream_close(&c->stream, mode);
}

static void tell(lar_upstream_conn *c, const lar_lease_event *e) {
    if (c->lease) c->lease->on_event(c->lease->owner, e);
}

static void broken(lar_upstream_conn *c, lar_error e, const char *detail) {
    tell(c, &(lar_lease_event){.kind = LAR_LEASE_BROKEN, .error = e, .detail = detail ? detail : ""});
}

/* Keep-Alive: timeout=N (RFC 2068 19.7.1.1): the upstream's own limit, less a second for the way (H-03). */
static uint32_t idle_hint(const lar_http1_head *h, uint32_t configured_ms) {
    lar_slice v = lar_http1_get(h, "keep-alive");
    static const char key[] = "timeout=";
    for (size_t i = 0; i + sizeof key - 1 < v.len; i++) {
        if (!lar_slice_ieq(lar_slice_of(v.ptr + i, sizeof key - 1), LAR_SLICE("timeout="))) continue;
        uint64_t s = 0;
        for (i += sizeof key - 1; i < v.len && v.ptr[i] >= '0' && v.ptr[i] <= '9' && s < 100000; i++)
            s = s * 10 + (uint64_t)(v.ptr[i] - '0');
        uint64_t ms = s > 1 ? (s - 1) * 1000 : s * 500;
        return ms < configured_ms ? (uint32_t)ms : configured_ms;
    }
    return configured_ms;
}

static void on_head(lar_upstream_conn *c) {
    const lar_http1_head *h = lar_http1_head_of(c->parser);
    if (h->status >= 200) {
        c->reusable = h->keep_alive;
        c->idle_ms_max = idle_hint(h, c->pool->o.config->pool_idle_ms);
    }
    tell(c, &(lar_lease_event){.kind = LAR_LEASE_HEAD, .detail = ""});
}

static void on_data(lar_upstream_conn *c, lar_slice data) {
    if (c->state == CONN_IDLE) { /* bytes that nobody asked for: not a connection to reuse (RFC 9112 6.3) */
        lar_pool_idle_remove(c);
        lar_conn_close(c, LAR_CLOSE_RESET);
        return;
    }
    c->answered = true;
    while (c->lease) {
        if (c->answer_done) {
            c->extra_bytes |= data.len > 0;
            return;
        }
        size_t used = 0;
        lar_slice body = {NULL, 0};
        lar_http1_event e = lar_http1_next(c->parser, data.ptr, data.len, &used, &body);
        data.ptr += used;
        data.len -= used;
        if (e == LAR_HTTP1_MORE) return;
        if (e == LAR_HTTP1_FAIL) {
            broken(c, lar_http1_error(c->parser), lar_http1_diag(c->parser)->text);
            return;
        }
        if (e == LAR_HTTP1_HEAD_END) on_head(c);
        if (e == LAR_HTTP1_BODY) tell(c, &(lar_lease_event){.kind = LAR_LEASE_BODY, .data = body, .detail = ""});
        if (e == LAR_HTTP1_END) {
            c->answer_done = true;
            c->extra_bytes = data.len > 0;
            tell(c, &(lar_lease_event){.kind = LAR_LEASE_END, .detail = ""});
        }
    }
}

static void on_eof(lar_upstream_conn *c) {
    if (c->state == CONN_IDLE || !c->answered) lar_pool_upstream_closes(c->pool);
    if (c->state == CONN_IDLE) {
        lar_pool_idle_remove(c);
        lar_conn_close(c, LAR_CLOSE_NORMAL);
        return;
    }
    c->reusable = false;
    if (!c->lease || c->answer_done) return;
    lar_http1_event e = lar_http1_eof(c->parser);
    if (e == LAR_HTTP1_END && c->stream.unclean_eof) {
        broken(c, LAR_UPSTREAM_CUT, "TLS ended without close_notify, in an answer without a length");
        return;
    }
    if (e == LAR_HTTP1_END) {
        c->answer_done = true;
        tell(c, &(lar_lease_event){.kind = LAR_LEASE_END, .detail = ""});
        return;
    }
    broken(c, e == LAR_HTTP1_FAIL && c->answered ? lar_http1_error(c->parser) : LAR_UPSTREAM_CLOSED, "");
}

static lar_error open_at(conn_pool *p, uint32_t index, uint32_t tries);

/* One address failed: the next one is tried before the request is told (RFC 8305 5 without the race). */
static bool try_next_address(lar_upstream_conn *c) {
    conn_pool *p = c->pool;
    uint32_t count = p->resolver.count;
    if (p->closing || c->address_tries + 1 >= count) return false;
    p->connecting--;
    lar_conn_close(c, LAR_CLOSE_RESET);
    return open_at(p, (c->address_index + 1) % count, c->address_tries + 1) == LAR_OK;
}

static void on_error(lar_upstream_conn *c, const lar_stream_event *ev) {
    switch (c->state) {
    case CONN_CONNECTING:
        if (ev->error != LAR_UPSTREAM_TLS && try_next_address(c)) return;
        if (c->state == CONN_CLOSING) c->pool->connecting++; /* the retry could not even start */
        lar_pool_conn_failed(c, ev->error == LAR_UPSTREAM_CLOSED ? LAR_UPSTREAM_CONNECT : ev->error, ev->diag.text);
        return;
    case CONN_IDLE:
        lar_pool_idle_remove(c);
        lar_conn_close(c, LAR_CLOSE_RESET);
        return;
    case CONN_LEASED:
        c->reusable = false;
        if (c->lease && !c->answer_done)
            broken(c, lar_http1_idle(c->parser) ? LAR_UPSTREAM_CLOSED : LAR_UPSTREAM_CUT, ev->diag.text);
        return;
    case CONN_CLOSING: return;
    }
}

static void on_stream(void *owner, const lar_stream_event *e) {
    lar_upstream_conn *c = owner;
    if (e->kind == LAR_STREAM_CLOSED) {
        handle_closed(c);
        return;
    }
    if (c->state == CONN_CLOSING) return;
    switch (e->kind) {
    case LAR_STREAM_OPEN:
        lar_deadline_clear(&c->deadline);
        lar_pool_conn_open(c);
        return;
    case LAR_STREAM_DATA: on_data(c, e->data); return;
    case LAR_STREAM_EOF: on_eof(c); return;
    case LAR_STREAM_ERROR: on_error(c, e); return;
    case LAR_STREAM_DRAINED:
    case LAR_STREAM_CLOSED: return;
    }
}

/* The connect deadline, or the idle limit. */
static void on_due(void *owner) {
    lar_upstream_conn *c = owner;
    if (c->state == CONN_CONNECTING) {
        if (try_next_address(c)) return;
        if (c->state == CONN_CLOSING) c->pool->connecting++;
        lar_pool_conn_failed(c, LAR_UPSTREAM_CONNECT_TIMEOUT, "");
    } else if (c->state == CONN_IDLE) {
        lar_pool_idle_remove(c);
        lar_conn_close(c, LAR_CLOSE_NORMAL);
    }
}

static lar_error connect_now(lar_upstream_conn *c) {
    conn_pool *p = c->pool;
    c->peer = p->resolver.addresses[c->address_index];
    lar_stream_init(&c->stream, p->o.loop, p->o.scratch, on_stream, c);
    c->open_handles++;
    return lar_stream_connect(&c->stream, (const struct sockaddr *)&c->peer, p->o.tls);
}

static lar_error open_one(conn_pool *p, uint32_t index, uint32_t tries) {
    lar_upstream_conn *c = calloc(1, sizeof *c);
    if (!c) return LAR_NO_MEMORY;
    c->pool = p;
    c->parser = lar_http1_new(LAR_HTTP1_RESPONSE, &answer_limits);
    if (!c->parser) {
        free(c);
        return LAR_NO_MEMORY;
    }
    c->idle_ms_max = p->o.config->pool_idle_ms;
    c->address_index = index;
    c->address_tries = tries;
    lar_deadline_init(&c->deadline, p->o.loop, on_due, c);
    c->open_handles = 1;
    p->open_count++;
    p->connecting++;
    lar_deadline_set(&c->deadline, p->o.config->connect_timeout_ms);
    lar_error e = connect_now(c);
    if (e) {
        p->connecting--;
        lar_conn_close(c, LAR_CLOSE_RESET);
    }
    return e;
}

/* From address `index` on, until one can at least be tried. */
static lar_error open_at(conn_pool *p, uint32_t index, uint32_t tries) {
    lar_error e = LAR_UPSTREAM_CONNECT;
    for (; tries < p->resolver.count && e; tries++, index = (index + 1) % p->resolver.count)
        e = open_one(p, index, tries);
    return e;
}

lar_error lar_conn_open(conn_pool *p) {
    return open_at(p, p->good_address < p->resolver.count ? p->good_address : 0, 0);
}
