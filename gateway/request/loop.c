/* One event loop and its thread: listeners, clients, pools, an orderly stop.
 * Flow: serve.c opens and starts loops; lar_loop_stop reaches them through a uv_async_t, the only door between threads.
 * Invariants: 1. everything of a loop is touched on its thread only, but for `stop`. 2. the loop ends when it stops and
 * its last client is gone. Not here: what a connection does (client.c). */
#include <stdlib.h>
#include <sys/random.h>

#include "base/ensure.h"
#include "gateway/net/listener.h"
#include "gateway/request/client.h"
#include "gateway/resident/engine_pool.h"

enum { NORM_CACHE_ENTRIES = 1 << 13, SWEEP_MS = 1000 };

static void close_handle(uv_handle_t *h) {
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

static void set_close(lar_pool_set *set) {
    if (set->closed) return;
    set->closed = true;
    for (uint32_t i = 0; set->pools && i < set->generation->config->upstream_count; i++)
        if (set->pools[i]) lar_pool_close(set->pools[i]);
}

static bool set_is_quiet(const lar_pool_set *set) {
    if (set->users || !set->closed) return false;
    for (uint32_t i = 0; set->pools && i < set->generation->config->upstream_count; i++) {
        if (set->pools[i] && !lar_pool_quiet(set->pools[i])) return false;
    }
    return true;
}

static void set_free(lar_loop *l, lar_pool_set *set) {
    uint32_t n = set->generation->config->upstream_count;
    for (uint32_t i = 0; set->pools && i < n; i++) lar_pool_free(set->pools[i]);
    for (uint32_t i = 0; set->standings && i < n; i++) lar_standings_put(&l->gateway->standings, set->standings[i]);
    free(set->pools);
    free(set->standings);
    lar_generation_unref(set->generation);
    free(set);
}

static lar_pool *pool_new(lar_loop *l, const lar_generation *generation, uint32_t upstream) {
    const lar_upstream_config *u = &generation->config->upstreams[upstream];
    if (u->kind == LAR_UPSTREAM_KIND_ENGINE) {
        lar_resident *r = lar_gateway_resident(l->gateway, u->name);
        LAR_ASSERT(r); /* a configuration with another engine is not taken over */
        return lar_engine_pool_new(&l->uv, r);
    }
    return lar_pool_new(&(lar_pool_options){.loop = &l->uv,
                                            .scratch = l->scratch,
                                            .config = u,
                                            .tls = generation->upstream_tls[upstream],
                                            .metrics = l->gateway->metrics});
}

static bool fill(lar_loop *l, lar_pool_set *set) {
    uint32_t n = set->generation->config->upstream_count;
    uint64_t *seed = set->tenants.seed;
    if (getrandom(seed, sizeof set->tenants.seed, 0) != sizeof set->tenants.seed) return false;
    set->pools = calloc(n, sizeof *set->pools);
    set->standings = calloc(n, sizeof *set->standings);
    for (uint32_t i = 0; set->standings && i < n; i++) {
        set->standings[i] = lar_standings_get(&l->gateway->standings, &set->generation->config->upstreams[i]);
        if (!set->standings[i]) return false;
    }
    for (uint32_t i = 0; set->pools && i < n; i++) {
        set->pools[i] = pool_new(l, set->generation, i);
        if (!set->pools[i]) return false;
    }
    return set->pools && set->standings;
}

/* Takes a reference of its own. NULL when out of memory: a set that is half made goes as replaced ones do, since pools
 * may have handles on the loop. */
static lar_pool_set *set_new(lar_loop *l, lar_generation *generation) {
    lar_pool_set *set = calloc(1, sizeof *set);
    if (!set) return NULL;
    set->generation = lar_generation_ref(generation);
    if (fill(l, set)) return set;
    set->next = l->old_sets;
    l->old_sets = set;
    return NULL;
}

/* Sets that were replaced go once their last request and connection are gone. Their pools stay open until then: a
 * request whose body was still on its way at the reload asks them for a connection later. Never called from inside an
 * event of a pool, which may be what is freed here. */
static void sweep_sets(lar_loop *l) {
    for (lar_pool_set **link = &l->old_sets; *link;) {
        lar_pool_set *set = *link;
        if (!set->users) set_close(set);
        if (!set_is_quiet(set)) {
            link = &set->next;
            continue;
        }
        *link = set->next;
        set_free(l, set);
    }
}

static void end_pools(lar_loop *l) {
    if (l->pools_closed) return;
    l->pools_closed = true;
    if (l->set) set_close(l->set);
    for (lar_pool_set *set = l->old_sets; set; set = set->next) set_close(set);
    lar_exchange_free_spares(l);
    if (l->shared) lar_shared_link_close(l->shared);
    close_handle((uv_handle_t *)&l->sweep_timer);
    close_handle((uv_handle_t *)&l->stop_timer);
    close_handle((uv_handle_t *)&l->stop);
    close_handle((uv_handle_t *)&l->reload);
    close_handle((uv_handle_t *)&l->answers_bell);
}

static void on_sweep(uv_timer_t *t) {
    lar_loop *l = t->data;
    sweep_sets(l);
    if (!l->old_sets) (void)uv_timer_stop(t);
}

/* With other rules a text has another memo; without memory for one there is none, and requests go without. */
static void take_set(lar_loop *l, lar_pool_set *set) {
    lar_pool_set *old = l->set;
    if (set->generation->canon.rules_off != old->generation->canon.rules_off) {
        lar_norm_cache_free(l->norm_cache);
        l->norm_cache = lar_norm_cache_new(NORM_CACHE_ENTRIES);
    }
    l->set = set;
    old->next = l->old_sets;
    l->old_sets = old;
}

static void on_reload(uv_async_t *a) {
    lar_loop *l = a->data;
    lar_generation *generation = lar_generation_newest(l->gateway);
    if (!l->stopping && generation != l->set->generation) {
        lar_pool_set *set = set_new(l, generation);
        if (set) take_set(l, set);
        else
            LAR_LOG(l->gateway->log, LAR_LOG_ERROR, "reload_failed", LAR_F_CSTR("detail", "out of memory"),
                    LAR_F_INT("loop", l->index));
        sweep_sets(l);
        if (l->old_sets) LAR_ASSERT(uv_timer_start(&l->sweep_timer, on_sweep, SWEEP_MS, SWEEP_MS) == 0);
    }
    lar_generation_unref(generation);
}

lar_norm_cache *lar_loop_norm_cache(const lar_loop *l, const lar_pool_set *set) {
    return set == l->set ? l->norm_cache : NULL;
}

void lar_loop_reload(lar_loop *l) { (void)uv_async_send(&l->reload); }

void lar_loop_client_gone(lar_loop *l) {
    if (l->stopping && l->client_count == 0) end_pools(l);
}

static void cut_clients(lar_loop *l) {
    l->cutting = true;
    for (lar_client *c = l->clients, *next; c; c = next) {
        next = c->next; /* a client is unlinked only in a later turn of the loop */
        lar_client_close(c);
    }
}

static void on_stop_due(uv_timer_t *t) { cut_clients(t->data); }

static void on_stop(uv_async_t *a) {
    lar_loop *l = a->data;
    if (l->stopping) { /* asked twice: no more patience */
        cut_clients(l);
        return;
    }
    l->stopping = true;
    for (uint32_t i = 0; i < l->listener_count; i++) close_handle((uv_handle_t *)&l->listeners[i]);
    for (lar_client *c = l->clients, *next; c; c = next) {
        next = c->next;
        if (c->state == CLIENT_IDLE) lar_client_close(c);
    }
    uint32_t patience_ms = l->set->generation->config->shutdown_ms;
    LAR_ASSERT(uv_timer_start(&l->stop_timer, on_stop_due, patience_ms, 0) == 0);
    lar_loop_client_gone(l);
}

static void on_connection(uv_stream_t *listener, int status) {
    if (status < 0) return; /* EMFILE and the like: the backlog waits for the next turn */
    lar_client_accept(listener->data, listener);
}

static lar_error make_listeners(lar_loop *l, const uint16_t *ports, lar_diag *d) {
    const lar_config *c = l->gateway->boot;
    l->listeners = calloc(c->listen_count, sizeof *l->listeners);
    l->turn_away = calloc(c->listen_count, sizeof *l->turn_away);
    if (!l->listeners || !l->turn_away) return lar_fail(LAR_NO_MEMORY, d, "listeners");
    for (uint32_t i = 0; i < c->listen_count; i++) {
        uint16_t port = ports ? ports[i] : c->listens[i].port;
        l->listener_count = i + 1;
        lar_error e = lar_listener_open(&l->uv, &l->listeners[i], c->listens[i].host, port,
                                        ports ? LAR_LISTENER_SHARED : LAR_LISTENER_EXCLUSIVE, d);
        if (e) return e;
        l->listeners[i].data = l;
    }
    return LAR_OK;
}

static void ring_answers_bell(void *bell) { (void)uv_async_send(bell); }

static void on_answers_bell(uv_async_t *a) { lar_exchange_answers_called(a->data); }

lar_error lar_loop_open(lar_loop *l, lar_gateway *g, uint32_t index, const uint16_t *ports, lar_diag *d) {
    *l = (lar_loop){.gateway = g, .index = index};
    if (getrandom(&l->id_state, sizeof l->id_state, 0) != sizeof l->id_state) return lar_fail(LAR_IO, d, "getrandom");
    if (uv_loop_init(&l->uv) != 0) return lar_fail(LAR_NO_MEMORY, d, "event loop");
    LAR_ASSERT(uv_async_init(&l->uv, &l->stop, on_stop) == 0);
    LAR_ASSERT(uv_timer_init(&l->uv, &l->stop_timer) == 0);
    LAR_ASSERT(uv_timer_init(&l->uv, &l->sweep_timer) == 0);
    LAR_ASSERT(uv_async_init(&l->uv, &l->reload, on_reload) == 0);
    LAR_ASSERT(uv_async_init(&l->uv, &l->answers_bell, on_answers_bell) == 0);
    l->answers_door = (lar_answers_door){.ring = ring_answers_bell, .bell = &l->answers_bell};
    l->stop.data = l->reload.data = l->answers_bell.data = l->stop_timer.data = l->sweep_timer.data = l;
    lar_json_init(&l->json);
    l->scratch = malloc(sizeof *l->scratch);
    l->norm_cache = lar_norm_cache_new(NORM_CACHE_ENTRIES);
    if (!l->scratch || !l->norm_cache) return lar_fail(LAR_NO_MEMORY, d, "event loop");
    l->memory = g->memory;
    l->texts = g->texts;
    if (g->shared) {
        l->shared = lar_shared_link_new(g->shared, &l->uv, l->scratch);
        if (!l->shared) return lar_fail(LAR_NO_MEMORY, d, "shared memory");
        l->memory = lar_shared_link_memory(l->shared, LAR_SHARED_FORMS);
        if (g->texts.get) l->texts = lar_shared_link_memory(l->shared, LAR_SHARED_TEXTS);
    }
    lar_generation *generation = lar_generation_newest(g);
    l->set = set_new(l, generation);
    lar_generation_unref(generation);
    return l->set ? make_listeners(l, ports, d) : lar_fail(LAR_NO_MEMORY, d, "pools");
}

static void *run(void *arg) {
    lar_loop *l = arg;
    (void)uv_run(&l->uv, UV_RUN_DEFAULT);
    return NULL;
}

lar_error lar_loop_start(lar_loop *l, lar_diag *d) {
    for (uint32_t i = 0; i < l->listener_count; i++) {
        lar_error e = lar_listener_start(&l->listeners[i], on_connection, d);
        if (e) return e;
    }
    if (pthread_create(&l->thread, NULL, run, l) != 0) return lar_fail(LAR_NO_MEMORY, d, "thread");
    return LAR_OK;
}

void lar_loop_stop(lar_loop *l) { (void)uv_async_send(&l->stop); }

void lar_loop_join(lar_loop *l) { (void)pthread_join(l->thread, NULL); }

void lar_loop_release(lar_loop *l) {
    if (!l->scratch) return; /* it was never opened */
    end_pools(l);
    for (uint32_t i = 0; i < l->listener_count; i++) {
        if (l->listeners[i].loop) close_handle((uv_handle_t *)&l->listeners[i]);
    }
    (void)uv_run(&l->uv, UV_RUN_DEFAULT);
    if (l->set) set_free(l, l->set);
    sweep_sets(l);
    LAR_ASSERT(!l->old_sets && uv_loop_close(&l->uv) == 0);
    lar_shared_link_free(l->shared);
    free(l->listeners);
    free(l->turn_away);
    free(l->scratch);
    lar_norm_cache_free(l->norm_cache);
    lar_json_release(&l->json);
}
