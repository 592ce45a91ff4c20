/* Active probes of upstreams (header: probe.h). Called by serve.c at start, reload and end; asks breakers (health), and
 * pools of its own (upstream) on the main loop. Never blocks.
 * Flow: the deadline is due -> lar_breaker_ask_active -> a lease on a new connection -> GET -> the head decides
 * -> lar_breaker_tell_active. The answer's body is not read: the connection goes.
 * Why on one loop: as many probes as loops would be a load of its own on what just came back.
 * Invariants: 1. a leave of the breaker is answered once. 2. a probe that is replaced is freed when its pool is quiet
 * and its timer closed. Memory: one entry an upstream with probe.path. Not here: what a probe is believed. */
#include "gateway/request/probe.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/ensure.h"
#include "gateway/net/deadline.h"

enum { HEAD_BYTES_MAX = 32 << 10, SWEEP_MS = 1000 };

typedef struct probe {
    lar_probes *owner;
    lar_generation *generation;
    const lar_upstream_config *u;
    lar_standing *standing;
    lar_pool *pool;
    lar_lease lease;
    lar_deadline deadline; /* the next probe, or the end of the one under way */
    lar_buf head;
    bool asking, retired, timer_closed, odd_told;
    struct probe *next;
} probe;

struct lar_probes {
    lar_gateway *gateway;
    uv_loop_t *loop;
    uv_timer_t sweep; /* runs while there are retired ones */
    lar_stream_scratch *scratch;
    probe *first;
};

/* -- one probe ---------------------------------------------------------------------------------------------------- */

static void end(probe *p, lar_breaker_outcome outcome, int status) {
    lar_gateway *g = p->owner->gateway;
    if (!p->asking) return;
    p->asking = false;
    lar_lease_cancel(&p->lease);
    if (outcome == LAR_OUTCOME_FAILED) atomic_fetch_add_explicit(&p->standing->probes_failed, 1, memory_order_relaxed);
    if (lar_breaker_tell_active(p->standing->breaker, lar_clock_mono_ms(), outcome))
        LAR_LOG(g->log, LAR_LOG_INFO, "probe_closed_breaker", LAR_F_CSTR("upstream", p->u->name),
                LAR_F_INT("status", status));
    if (!p->retired) lar_deadline_set(&p->deadline, p->u->probe_every_ms);
}

/* 401 and 403 come from a service that works, to whoever has no key. Of other 4xx nothing can be told: most likely the
 * path is none of the upstream's. */
static void judge(probe *p, int status) {
    lar_failure f = lar_failure_of_status(status, false, LAR_SLICE(""));
    if (status < 400 || status == 401 || status == 403) {
        end(p, LAR_OUTCOME_OK, status);
    } else if (f != LAR_FAILURE_CLIENT) {
        end(p, LAR_OUTCOME_FAILED, status);
    } else {
        if (!p->odd_told)
            LAR_LOG(p->owner->gateway->log, LAR_LOG_WARN, "probe_says_nothing", LAR_F_CSTR("upstream", p->u->name),
                    LAR_F_INT("status", status), LAR_F_CSTR("detail", "is probe.path a path of this upstream?"));
        p->odd_told = true;
        end(p, LAR_OUTCOME_NONE, status);
    }
}

static lar_error write_head(probe *p) {
    const lar_upstream_config *u = p->u;
    lar_slice path = lar_upstream_path(u, lar_slice_cstr(u->probe_path));
    p->head.len = 0;
    lar_error e =
        lar_buf_printf(&p->head, "GET %s%.*s HTTP/1.1\r\nHost: %s\r\nUser-Agent: larder/" LARDER_VERSION "\r\n",
                       u->url.path, LAR_FMT(path), u->url.authority);
    if (!e) e = lar_upstream_credential(u, &p->head);
    /* without it Anthropic's API refuses every request */
    if (!e && u->profile == LAR_PROFILE_ANTHROPIC) e = lar_buf_printf(&p->head, "anthropic-version: 2023-06-01\r\n");
    return e ? e : lar_buf_printf(&p->head, "Accept: */*\r\nConnection: close\r\n\r\n");
}

static void send_probe(probe *p) {
    static const lar_digest nobody = {{0}};
    bool unsent = true;
    lar_error e = write_head(p);
    struct iovec iov = {p->head.ptr, p->head.len};
    lar_lease_request r = {.iov = &iov,
                           .count = 1,
                           .method = LAR_SLICE("GET"),
                           .path = lar_slice_cstr(p->u->probe_path),
                           .scope = &nobody};
    if (!e) e = lar_lease_send(&p->lease, &r, &unsent);
    if (e) end(p, e == LAR_NO_MEMORY ? LAR_OUTCOME_NONE : LAR_OUTCOME_FAILED, 0);
}

static void on_lease(void *owner, const lar_lease_event *e) {
    probe *p = owner;
    int status = e->kind == LAR_LEASE_HEAD ? lar_lease_head(&p->lease)->status : 0;
    switch (e->kind) {
    case LAR_LEASE_READY: send_probe(p); return;
    case LAR_LEASE_HEAD:
        if (status >= 200) judge(p, status);
        return;
    case LAR_LEASE_FAILED:
    case LAR_LEASE_BROKEN: end(p, LAR_OUTCOME_FAILED, 0); return;
    case LAR_LEASE_BODY:
    case LAR_LEASE_END: return;
    }
}

static void begin(probe *p) {
    if (!lar_breaker_ask_active(p->standing->breaker, lar_clock_mono_ms())) {
        lar_deadline_set(&p->deadline, p->u->probe_every_ms);
        return;
    }
    p->asking = true;
    p->lease.fresh_only = true; /* whether it takes connections is what is asked */
    atomic_fetch_add_explicit(&p->standing->probes, 1, memory_order_relaxed);
    lar_deadline_set(&p->deadline, p->u->probe_timeout_ms);
    if (lar_lease_acquire(p->pool, &p->lease)) end(p, LAR_OUTCOME_NONE, 0);
}

static void on_due(void *owner) {
    probe *p = owner;
    if (p->asking) end(p, LAR_OUTCOME_FAILED, 0);
    else begin(p);
}

/* -- all of them -------------------------------------------------------------------------------------------------- */

static void probe_free(probe *p) {
    lar_pool_free(p->pool);
    lar_standings_put(&p->owner->gateway->standings, p->standing);
    lar_generation_unref(p->generation);
    lar_buf_release(&p->head);
    free(p);
}

static void on_timer_closed(uv_handle_t *h) {
    probe *p = h->data;
    p->timer_closed = true;
}

static void retire(probe *p) {
    if (p->retired) return;
    p->retired = true;
    end(p, LAR_OUTCOME_NONE, 0);
    lar_pool_close(p->pool);
    lar_deadline_close(&p->deadline, on_timer_closed);
}

static void sweep(lar_probes *all) {
    for (probe **link = &all->first; *link;) {
        probe *p = *link;
        if (!p->retired || !p->timer_closed || !lar_pool_quiet(p->pool)) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        probe_free(p);
    }
}

static void on_sweep(uv_timer_t *t) {
    lar_probes *all = t->data;
    bool retired = false;
    sweep(all);
    for (const probe *p = all->first; p; p = p->next) retired |= p->retired;
    if (!retired) (void)uv_timer_stop(t);
}

static lar_error add(lar_probes *all, lar_generation *generation, uint32_t upstream) {
    const lar_upstream_config *u = &generation->config->upstreams[upstream];
    probe *p = calloc(1, sizeof *p);
    if (!p) return LAR_NO_MEMORY;
    p->standing = lar_standings_get(&all->gateway->standings, u);
    p->pool = lar_pool_new(&(lar_pool_options){.loop = all->loop,
                                               .scratch = all->scratch,
                                               .config = u,
                                               .tls = generation->upstream_tls[upstream],
                                               .metrics = all->gateway->metrics});
    if (!p->standing || !p->pool) {
        lar_pool_free(p->pool);
        lar_standings_put(&all->gateway->standings, p->standing);
        free(p);
        return LAR_NO_MEMORY;
    }
    p->owner = all;
    p->generation = lar_generation_ref(generation);
    p->u = u;
    lar_buf_init(&p->head, HEAD_BYTES_MAX);
    lar_lease_init(&p->lease, on_lease, p);
    lar_deadline_init(&p->deadline, all->loop, on_due, p);
    lar_deadline_set(&p->deadline, u->probe_every_ms);
    p->next = all->first;
    all->first = p;
    return LAR_OK;
}

lar_probes *lar_probes_new(uv_loop_t *loop, lar_gateway *g) {
    lar_probes *all = calloc(1, sizeof *all);
    lar_stream_scratch *scratch = malloc(sizeof *scratch);
    if (!all || !scratch) {
        free(scratch);
        free(all);
        return NULL;
    }
    *all = (lar_probes){.gateway = g, .loop = loop, .scratch = scratch};
    LAR_ASSERT(uv_timer_init(loop, &all->sweep) == 0);
    all->sweep.data = all;
    return all;
}

lar_error lar_probes_take(lar_probes *all) {
    lar_generation *now = lar_generation_newest(all->gateway);
    lar_error e = LAR_OK;
    for (probe *p = all->first; p; p = p->next) retire(p);
    if (all->first) LAR_ASSERT(uv_timer_start(&all->sweep, on_sweep, SWEEP_MS, SWEEP_MS) == 0);
    for (uint32_t i = 0; !e && i < now->config->upstream_count; i++)
        if (*now->config->upstreams[i].probe_path) e = add(all, now, i);
    lar_generation_unref(now);
    return e;
}

void lar_probes_close(lar_probes *all) {
    if (!all || uv_is_closing((uv_handle_t *)&all->sweep)) return;
    for (probe *p = all->first; p; p = p->next) retire(p);
    uv_close((uv_handle_t *)&all->sweep, NULL);
}

void lar_probes_free(lar_probes *all) {
    if (!all) return;
    sweep(all);
    LAR_ASSERT(!all->first);
    free(all->scratch);
    free(all);
}
