/* A configuration in force, with the TLS contexts made from it. Called at start and on reload, from the main thread;
 * references are taken and dropped by loops. May block on certificate files. Freed with the last reference.
 * Why generations: a reload swaps everything at once, and requests under way end as they began. */
#include <stdlib.h>
#include <string.h>

#include "gateway/request/gateway.h"

static bool is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 || strncmp(host, "127.", 4) == 0;
}

static lar_error open_tls(lar_generation *g, lar_diag *d) {
    lar_config *c = g->config;
    g->upstream_tls = calloc(c->upstream_count, sizeof *g->upstream_tls);
    if (!g->upstream_tls) return lar_fail(LAR_NO_MEMORY, d, "upstreams");
    for (uint32_t i = 0; i < c->upstream_count; i++) {
        const lar_upstream_config *u = &c->upstreams[i];
        if (!u->url.tls) continue;
        lar_diag why = {{0}, 0, 0};
        lar_error e = lar_tls_client_new(u->url.host, u->url.host_is_ip, u->ca_file, &g->upstream_tls[i], &why);
        if (e) return lar_fail(e, d, "upstream %s: %s", u->name, why.text);
    }
    return LAR_OK;
}

lar_error lar_generation_new(lar_config *c, const lar_config *boot, lar_generation **out, lar_diag *d) {
    *out = NULL;
    lar_generation *g = calloc(1, sizeof *g);
    if (!g) return lar_fail(LAR_NO_MEMORY, d, "configuration");
    atomic_init(&g->refs, 1);
    g->config = c;
    g->canon = (lar_canon_options){.mode = (lar_canon_mode)c->canon,
                                   .rules_off = c->rules_off_bits,
                                   .facts_refresh_ms = c->facts_refresh_ms};
    g->loopback_only = c->key_count == 0;
    for (uint32_t i = 0; i < boot->listen_count; i++) g->loopback_only &= is_loopback(boot->listens[i].host);
    lar_error e = open_tls(g, d);
    if (e) {
        lar_generation_unref(g);
        return e;
    }
    g->owns_config = c != boot;
    *out = g;
    return LAR_OK;
}

lar_resident *lar_gateway_resident(const lar_gateway *g, const char *upstream) {
    for (uint32_t i = 0; i < g->resident_count; i++)
        if (strcmp(lar_resident_name(g->residents[i]), upstream) == 0) return g->residents[i];
    return NULL;
}

lar_generation *lar_generation_ref(lar_generation *g) {
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void lar_generation_unref(lar_generation *g) {
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    for (uint32_t i = 0; g->upstream_tls && i < g->config->upstream_count; i++)
        lar_tls_context_unref(g->upstream_tls[i]);
    free(g->upstream_tls);
    if (g->owns_config) lar_config_free(g->config);
    free(g);
}

lar_generation *lar_generation_newest(lar_gateway *g) {
    (void)pthread_mutex_lock(&g->lock);
    lar_generation *generation = lar_generation_ref(g->generation);
    (void)pthread_mutex_unlock(&g->lock);
    return generation;
}
