/* The pool of one upstream on one loop: idle connections, waiting leases, name resolution.
 * Flow: request -> lar_lease_acquire -> idle connection, or lar_conn_open -> READY. Loop thread only; never blocks.
 * Invariants: 1. a waiting lease is in the list and in no connection. 2. while leases wait, a connection is being
 * opened for each of them or connections_max is reached. 3. open_count counts every connection until its memory goes.
 * Memory: connections are malloc'ed and freed in their last close callback. Not here: retries, health. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/upstream/pool_internal.h"

enum { RECENT_NS = 200000, CAREFUL_MS = 60000 };

static void pump(conn_pool *p);

static void tell(lar_lease *l, lar_lease_event_kind kind, lar_error e, const char *detail) {
    l->on_event(l->owner, &(lar_lease_event){.kind = kind, .error = e, .detail = detail ? detail : ""});
}

static void wait_push(conn_pool *p, lar_lease *l) {
    l->pool = &p->base;
    l->next = NULL;
    l->prev = p->wait_last;
    if (p->wait_last) p->wait_last->next = l;
    else p->wait_first = l;
    p->wait_last = l;
    p->waiting++;
}

static conn_pool *pool_of(const lar_lease *l) { return (conn_pool *)l->pool; }

static void wait_remove(lar_lease *l) {
    conn_pool *p = pool_of(l);
    if (l->prev) l->prev->next = l->next;
    else p->wait_first = l->next;
    if (l->next) l->next->prev = l->prev;
    else p->wait_last = l->prev;
    l->pool = NULL;
    l->prev = l->next = NULL;
    p->waiting--;
}

/* Those that wait now; one that begins to wait meanwhile has its own chance. */
static void fail_all(conn_pool *p, lar_error e, const char *detail) {
    for (uint32_t n = p->waiting; n && p->wait_first; n--) {
        lar_lease *l = p->wait_first;
        wait_remove(l);
        tell(l, LAR_LEASE_FAILED, e, detail);
    }
}

static void on_resolved(void *owner, lar_error e) {
    conn_pool *p = owner;
    if (e) fail_all(p, e, "the name has no address, or the resolver failed");
    else pump(p);
}

static void close_pool(lar_pool *pool) {
    conn_pool *p = (conn_pool *)pool;
    p->closing = true;
    lar_resolver_close(&p->resolver);
    fail_all(p, LAR_SHUTDOWN, "");
    while (p->idle) {
        lar_upstream_conn *c = p->idle;
        lar_pool_idle_remove(c);
        lar_conn_close(c, LAR_CLOSE_NORMAL);
    }
}

static bool is_resolving(const lar_pool *pool) {
    const conn_pool *p = (const conn_pool *)pool;
    return p->resolver.resolving && !lar_resolver_fresh(&p->resolver);
}

static bool is_quiet(const lar_pool *pool) {
    const conn_pool *p = (const conn_pool *)pool;
    return p->open_count == 0 && p->waiting == 0 && lar_resolver_idle(&p->resolver);
}

static void free_pool(lar_pool *p) {
    LAR_ASSERT(is_quiet(p));
    free(p);
}

void lar_pool_upstream_closes(conn_pool *p) { p->careful_until_ms = uv_now(p->o.loop) + CAREFUL_MS; }

void lar_pool_idle_remove(lar_upstream_conn *c) {
    conn_pool *p = c->pool;
    if (c->prev) c->prev->next = c->next;
    else p->idle = c->next;
    if (c->next) c->next->prev = c->prev;
    c->prev = c->next = NULL;
    p->idle_count--;
}

static void idle_push(conn_pool *p, lar_upstream_conn *c) {
    c->state = CONN_IDLE;
    c->idle_since_ms = uv_now(p->o.loop);
    c->idle_since_ns = lar_clock_mono_ns();
    c->prev = NULL;
    c->next = p->idle;
    if (p->idle) p->idle->prev = c;
    p->idle = c;
    p->idle_count++;
    lar_deadline_set(&c->deadline, c->idle_ms_max);
    lar_stream_read_start(&c->stream); /* to see the upstream close it */
}

static void p_leased(conn_pool *p, int by) { p->leased = (uint32_t)((int)p->leased + by); }

static void hand_over(lar_upstream_conn *c, lar_lease *l) {
    c->state = CONN_LEASED;
    p_leased(c->pool, 1);
    c->lease = l;
    c->answered = c->answer_done = c->reusable = c->extra_bytes = false;
    l->pool = &c->pool->base;
    l->held = c;
    l->reused = c->used;
    c->used = true;
    lar_http1_expect(c->parser, false);
    lar_deadline_clear(&c->deadline);
    lar_stream_read_start(&c->stream);
    tell(l, LAR_LEASE_READY, LAR_OK, NULL);
}

/* Newest idle connection that is still good; dead and unwanted ones are closed on the way. */
static lar_upstream_conn *take_idle(conn_pool *p) {
    uint64_t now = uv_now(p->o.loop);
    while (p->idle) {
        lar_upstream_conn *c = p->idle;
        lar_pool_idle_remove(c);
        bool old = now - c->idle_since_ms >= c->idle_ms_max;
        /* one that was busy a moment ago needs no look at its socket */
        bool recent = now >= p->careful_until_ms && lar_clock_mono_ns() - c->idle_since_ns < RECENT_NS;
        if (!old && lar_resolver_has(&p->resolver, &c->peer) && (recent || !lar_stream_stale(&c->stream))) return c;
        lar_metrics_add(p->o.metrics, LAR_METRIC_UPSTREAM_STALE_TOTAL, 1);
        lar_conn_close(c, LAR_CLOSE_NORMAL);
    }
    return NULL;
}

/* Opens as many connections as leases wait for. */
static void pump(conn_pool *p) {
    while (p->wait_first && !p->closing && p->connecting < p->waiting && p->open_count < p->o.config->connections_max) {
        if (!lar_resolver_fresh(&p->resolver)) {
            lar_resolver_start(&p->resolver);
            return;
        }
        lar_error e = lar_conn_open(p);
        if (e) {
            /* those that are open or being opened will serve who waits; else nobody will */
            if (!p->connecting && !p->leased) fail_all(p, e, "no connection can be opened");
            return;
        }
    }
}

static lar_error acquire(lar_pool *pool, lar_lease *l) {
    conn_pool *p = (conn_pool *)pool;
    if (p->closing) return LAR_SHUTDOWN;
    /* names are looked up again in time, so that connections to addresses that are gone get closed (H-33) */
    if (p->idle && !lar_resolver_fresh(&p->resolver)) lar_resolver_start(&p->resolver);
    lar_upstream_conn *c = l->fresh_only || p->wait_first ? NULL : take_idle(p);
    if (c) {
        lar_metrics_add(p->o.metrics, LAR_METRIC_UPSTREAM_REUSED_TOTAL, 1);
        hand_over(c, l);
        return LAR_OK;
    }
    if (p->waiting >= p->o.config->queue_max) return LAR_UPSTREAM_BUSY;
    wait_push(p, l);
    pump(p);
    return LAR_OK;
}

void lar_pool_conn_open(lar_upstream_conn *c) {
    conn_pool *p = c->pool;
    p->connecting--;
    p->good_address = c->address_index;
    c->counted = true;
    lar_metrics_add(p->o.metrics, LAR_METRIC_UPSTREAM_CONNECTS_TOTAL, 1);
    lar_metrics_add(p->o.metrics, LAR_METRIC_UPSTREAM_CONNECTIONS, 1);
    if (p->closing) {
        lar_conn_close(c, LAR_CLOSE_NORMAL);
        return;
    }
    lar_lease *l = p->wait_first;
    if (!l) {
        idle_push(p, c);
        return;
    }
    wait_remove(l);
    hand_over(c, l);
}

void lar_pool_conn_failed(lar_upstream_conn *c, lar_error e, const char *detail) {
    conn_pool *p = c->pool;
    p->connecting--;
    lar_conn_close(c, LAR_CLOSE_RESET);
    lar_lease *l = p->wait_first;
    if (!l) return;
    wait_remove(l);
    tell(l, LAR_LEASE_FAILED, e, detail);
    pump(p);
}

void lar_pool_conn_gone(lar_upstream_conn *c) {
    conn_pool *p = c->pool;
    p->open_count--;
    pump(p);
}

static lar_error send_request(lar_lease *l, const lar_lease_request *r, bool *unsent) {
    lar_upstream_conn *c = l->held;
    lar_http1_expect(c->parser, r->to_head_request);
    return lar_stream_write(&c->stream, r->iov, r->count, LAR_WRITE_BORROW, unsent);
}

static const lar_http1_head *head_of(const lar_lease *l) {
    const lar_upstream_conn *c = l->held;
    return lar_http1_head_of(c->parser);
}

static bool is_at_end(const lar_lease *l) {
    const lar_upstream_conn *c = l->held;
    return c->answer_done;
}

static void pause_reading(lar_lease *l) {
    lar_upstream_conn *c = l->held;
    lar_stream_read_stop(&c->stream);
}

static void resume_reading(lar_lease *l) {
    lar_upstream_conn *c = l->held;
    lar_stream_read_start(&c->stream);
}

static void release(lar_lease *l) {
    if (!l->held) {
        wait_remove(l);
        return;
    }
    lar_upstream_conn *c = l->held;
    conn_pool *p = c->pool;
    l->held = NULL;
    l->pool = NULL;
    c->lease = NULL;
    p_leased(p, -1);
    bool keep = c->answer_done && c->reusable && !c->extra_bytes && lar_stream_queued(&c->stream) == 0 && !p->closing;
    if (keep && p->wait_first && lar_stream_stale(&c->stream)) keep = false; /* it ended with its answer */
    lar_lease *next = p->wait_first;
    while (next && next->fresh_only) next = next->next;
    if (keep && next) {
        wait_remove(next);
        hand_over(c, next);
        return;
    }
    if (keep && p->idle_count < p->o.config->pool_connections_max) idle_push(p, c);
    else lar_conn_close(c, LAR_CLOSE_NORMAL);
}

static void cancel(lar_lease *l) {
    if (!l->held) {
        wait_remove(l);
        return;
    }
    lar_upstream_conn *c = l->held;
    l->held = NULL;
    l->pool = NULL;
    c->lease = NULL;
    p_leased(c->pool, -1);
    lar_conn_close(c, LAR_CLOSE_RESET);
}

static const lar_pool_ops ops = {.close = close_pool,
                                 .resolving = is_resolving,
                                 .quiet = is_quiet,
                                 .free = free_pool,
                                 .acquire = acquire,
                                 .send = send_request,
                                 .head = head_of,
                                 .at_end = is_at_end,
                                 .pause = pause_reading,
                                 .resume = resume_reading,
                                 .release = release,
                                 .cancel = cancel};

lar_pool *lar_pool_new(const lar_pool_options *o) {
    conn_pool *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->base.ops = &ops;
    p->o = *o;
    lar_resolver_init(&p->resolver, o->loop, o->config->url.host, o->config->url.port, o->config->dns_ttl_ms);
    p->resolver.on_done = on_resolved;
    p->resolver.owner = p;
    return &p->base;
}
