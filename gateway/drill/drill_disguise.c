/* A drill's configuration (header: drill_disguise.h).
 * Called by drill.c between plan and start. Pure but for memory; one thread. Memory: the configuration's arena.
 * Invariants: 1. no URL, key, address, store or server of the operator's configuration is left in it. 2. what decides
 * about failures (retry, breaker, chain, hold, deadline) is the operator's, but for the limits that a scene waits for.
 * Why copies for each scene: breakers and pools remember, and a scene must not meet what another one left. */
#include "gateway/drill/drill_disguise.h"

#include <stdio.h>
#include <string.h>

#include "gateway/config/secret.h"

/* A name that no resolver may send anywhere: a label has 63 bytes at most (RFC 1035 2.3.4). */
#define NO_NAME "nobody-has-a-name-whose-first-label-is-longer-than-the-sixty-three-bytes-allowed.invalid"

enum { ENOUGH_MS = 60000 };

typedef struct stage {
    lar_config *c;
    const lar_drill_plan *plan;
    const lar_drill_places *places;
    uint32_t *engine_at; /* where upstream i of kind engine is now, + 1; 0: it is not */
} stage;

static lar_error set_url(stage *s, lar_upstream_config *u, uint32_t scene, uint32_t target) {
    lar_arena *a = &s->c->arena;
    const lar_drill_scene *of = &s->plan->scenes[scene];
    lar_drill_fault f = lar_drill_fault_of(of, target, 0, 0);
    uint16_t port = f == LAR_DRILL_FAULT_REFUSE ? s->places->closed_port : s->places->port;
    bool name = f == LAR_DRILL_FAULT_NAME;
    lar_slice path = lar_arena_printf(a, "/s%u.%u%s", (unsigned)scene, (unsigned)target, u->url.path);
    lar_slice authority = lar_arena_printf(a, "%s:%u", name ? NO_NAME : "127.0.0.1", (unsigned)port);
    if (!path.ptr || !authority.ptr) return LAR_NO_MEMORY;
    u->url = (lar_url){.tls = f == LAR_DRILL_FAULT_TLS,
                       .host = name ? NO_NAME : "127.0.0.1",
                       .host_is_ip = !name,
                       .port = port,
                       .path = path.ptr,
                       .authority = authority.ptr};
    return LAR_OK;
}

/* A limit that no scene waits for here must not end one, however busy this machine is. */
static void give_time(lar_upstream_config *u) {
    uint32_t *const limits[] = {&u->connect_timeout_ms, &u->first_byte_timeout_ms, &u->first_event_timeout_ms,
                                &u->idle_timeout_ms};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (*limits[i] < ENOUGH_MS) *limits[i] = ENOUGH_MS;
}

static void set_limits(const lar_drill_wait *w, lar_upstream_config *u) {
    u->total_timeout_ms = w->total_ms;
    if (!w->option) return;
    if (strcmp(w->option, "timeouts.first_byte") == 0) u->first_byte_timeout_ms = w->played_ms;
    if (strcmp(w->option, "timeouts.first_event") == 0) u->first_event_timeout_ms = w->played_ms;
    if (strcmp(w->option, "timeouts.idle") == 0) u->idle_timeout_ms = w->played_ms;
    if (strcmp(w->option, "breaker.open") == 0) u->breaker.open_ms = w->played_ms;
}

/* All replicas of a target, as upstreams of one scene. *at: the first of them. */
static lar_error add_group(stage *s, uint32_t scene, uint32_t target, uint32_t *at) {
    lar_config *c = s->c;
    const lar_drill_target *t = &s->plan->scenes[scene].line->targets[target];
    const char *group = NULL;
    *at = c->upstream_count;
    for (uint32_t i = t->upstream, n = 0; n < t->members; n++, i = s->plan->upstreams[i].replica_next) {
        lar_upstream_config *u = &c->upstreams[c->upstream_count];
        *u = s->plan->upstreams[i];
        lar_slice name = lar_arena_printf(&c->arena, "%s@%u", u->name, (unsigned)scene);
        if (!name.ptr) return LAR_NO_MEMORY;
        if (!group) group = name.ptr;
        u->name = name.ptr;
        u->group = group;
        if (u->key[0]) u->key = lar_arena_copy(&c->arena, LAR_SLICE(LAR_DRILL_UPSTREAM_KEY)).ptr; /* will be wiped */
        if (!u->key) return LAR_NO_MEMORY;
        u->probe_path = ""; /* requests alone open and close its breaker */
        u->replica_next = n + 1 < t->members ? c->upstream_count + 1 : 0;
        lar_error e = set_url(s, u, scene, target);
        if (e) return e;
        give_time(u);
        if (target == 0) set_limits(&s->plan->scenes[scene].wait, u);
        c->upstream_count++;
    }
    return LAR_OK;
}

/* A model of this process is opened once, for all scenes. */
static uint32_t add_engine(stage *s, uint32_t old) {
    if (!s->engine_at[old]) {
        s->c->upstreams[s->c->upstream_count++] = s->plan->upstreams[old];
        s->engine_at[old] = s->c->upstream_count;
    }
    return s->engine_at[old] - 1;
}

static lar_error add_scene(stage *s, uint32_t scene) {
    lar_config *c = s->c;
    const lar_drill_scene *of = &s->plan->scenes[scene];
    const lar_drill_line *l = of->line;
    lar_route_config *r = &c->routes[c->route_count++];
    if (l->route != LAR_DRILL_NONE) *r = s->plan->routes[l->route];
    else *r = (lar_route_config){.canon = -1};
    r->continue_with = l->continue_with == LAR_DRILL_NONE ? LAR_CONTINUE_NOBODY : add_engine(s, l->continue_with);
    lar_fallback_config *chain = lar_arena_zalloc(&c->arena, l->target_count * sizeof *chain);
    lar_slice prefix = lar_arena_printf(&c->arena, "/d%u", (unsigned)scene);
    if (!chain || !prefix.ptr) return LAR_NO_MEMORY;
    r->prefix = prefix.ptr;
    r->model = r->header_name = r->header_value = "";
    r->answers_ttl_ms = 0; /* every request goes upstream */
    r->answers_sampled = r->answers_coalesce = false;
    r->fallbacks = chain;
    r->fallback_count = l->target_count - 1;
    r->deadline_ms = of->wait.deadline_ms;
    r->hold_ms = of->wait.hold_ms;
    for (uint32_t t = 0; t < l->target_count; t++) {
        uint32_t at;
        lar_error e = LAR_OK;
        if (l->targets[t].engine) at = add_engine(s, l->targets[t].upstream);
        else e = add_group(s, scene, t, &at);
        if (e) return e;
        if (t == 0) r->upstream = at;
        else chain[t - 1].upstream = at;
    }
    const lar_route_config *old = l->route == LAR_DRILL_NONE ? NULL : &s->plan->routes[l->route];
    for (uint32_t i = 0, t = 1; old && i < old->fallback_count && t < l->target_count; i++)
        if (old->fallbacks[i].upstream == l->targets[t].upstream) chain[t++ - 1].model = old->fallbacks[i].model;
    return LAR_OK;
}

/* What would reach beyond this process, or be met by others. */
static lar_error set_scalars(lar_config *c, const lar_drill_places *places, bool verbose) {
    lar_listen_config *listen = lar_arena_zalloc(&c->arena, sizeof *listen);
    lar_key_config *key = lar_arena_zalloc(&c->arena, sizeof *key);
    if (!listen || !key) return LAR_NO_MEMORY;
    *listen = (lar_listen_config){.text = "127.0.0.1:0", .host = "127.0.0.1", .port = 0};
    c->listens = listen;
    c->listen_count = 1;
    if (c->key_count) {
        *key = (lar_key_config){.tenant = "drill", .digest = lar_digest_of(LAR_SLICE(LAR_DRILL_CLIENT_KEY))};
        c->keys = key;
        c->key_count = 1;
    }
    lar_secret_wipe(lar_slice_cstr(c->shared_password));
    lar_secret_wipe(lar_slice_cstr(c->shared_secret));
    c->threads = 1; /* one loop: its pools are the ones that the next request meets */
    c->admin_listen = "off";
    c->tls_cert = c->tls_key = c->shared_url = c->shared_password = c->shared_secret = "";
    c->store_dir = places->store_dir;
    c->output_on_disk = c->output_on_disk && *places->store_dir;
    c->shutdown_ms = 1000;
    c->log_access = verbose;
    if (!verbose) c->log_level = LAR_LOG_ERROR;
    return LAR_OK;
}

lar_error lar_drill_disguise(lar_config *c, const lar_drill_plan *p, const lar_drill_places *places, bool verbose) {
    stage s = {.c = c, .plan = p, .places = places};
    uint32_t written = c->upstream_count;
    size_t upstreams = written;
    for (uint32_t i = 0; i < p->scene_count; i++)
        for (uint32_t t = 0; t < p->scenes[i].line->target_count; t++)
            upstreams += p->scenes[i].line->targets[t].members;
    s.engine_at = lar_arena_zalloc(&c->arena, (written + 1u) * sizeof *s.engine_at);
    c->upstreams = lar_arena_zalloc(&c->arena, upstreams * sizeof *c->upstreams);
    c->routes = lar_arena_zalloc(&c->arena, (p->scene_count + 1) * sizeof *c->routes);
    if (!s.engine_at || !c->upstreams || !c->routes) return LAR_NO_MEMORY;
    c->upstream_count = c->route_count = 0;
    lar_error e = set_scalars(c, places, verbose);
    for (uint32_t i = 0; !e && i < p->scene_count; i++) e = add_scene(&s, i);
    for (uint32_t i = 0; i < written; i++) /* no list that is wiped at the end has them any more */
        if (p->upstreams[i].key[0]) lar_secret_wipe(lar_slice_cstr(p->upstreams[i].key));
    return e;
}
