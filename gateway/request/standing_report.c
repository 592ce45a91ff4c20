/* The upstreams' standing as Prometheus text and as JSON, and whether any of them can be asked.
 * Called by admin.c. Any thread; takes the locks of generation, names and breakers for short walks; no I/O.
 * Why apart from base/metrics: upstreams come and go with reloads, the labels there are static.
 * Invariants: 1. only upstreams of the generation in force are shown, though the standing of others is kept.
 * 2. names need no escapes (config_lists.c allows letters, digits and . _ : -). Memory: the caller's buffer. */
#include "gateway/request/standing_report.h"

#include <inttypes.h>

#include "base/clock.h"
#include "gateway/health/failure.h"

typedef enum upstream_metric {
#define LAR_UPSTREAM_METRIC(id, name, kind, labels, help) UPSTREAM_##id,
#include "gateway/request/upstream_metrics.def"
#undef LAR_UPSTREAM_METRIC
    UPSTREAM_METRICS
} upstream_metric;

static const struct {
    const char *name, *kind, *help;
} rows[UPSTREAM_METRICS] = {
#define LAR_UPSTREAM_METRIC(id, name, kind, labels, help) {name, kind, help},
#include "gateway/request/upstream_metrics.def"
#undef LAR_UPSTREAM_METRIC
};

/* One upstream as it stands now. */
typedef struct sight {
    lar_breaker_look look;
    bool engine; /* it is a model of this process */
    lar_resident_state model;
    uint32_t load;
    uint64_t attempts, repeated, fallback, continued, probes, probes_failed, failures[LAR_FAILURE_COUNT];
} sight;

static sight look(lar_gateway *g, const lar_upstream_config *u) {
    lar_standing *t = lar_standings_find(&g->standings, u);
    lar_resident *r = u->kind == LAR_UPSTREAM_KIND_ENGINE ? lar_gateway_resident(g, u->name) : NULL;
    sight s = {.engine = r != NULL};
    if (r) s.model = lar_resident_look(r, &s.look.wait_ms); /* no breaker of a model ever opens */
    if (!t) return s;
    uint32_t model_ms = s.look.wait_ms;
    s.look = lar_breaker_look_at(t->breaker, lar_clock_mono_ms());
    if (r) s.look.wait_ms = model_ms;
    s.load = atomic_load_explicit(&t->load, memory_order_relaxed);
    s.attempts = atomic_load_explicit(&t->attempts, memory_order_relaxed);
    s.repeated = atomic_load_explicit(&t->repeated, memory_order_relaxed);
    s.fallback = atomic_load_explicit(&t->fallback, memory_order_relaxed);
    s.continued = atomic_load_explicit(&t->continued, memory_order_relaxed);
    s.probes = atomic_load_explicit(&t->probes, memory_order_relaxed);
    s.probes_failed = atomic_load_explicit(&t->probes_failed, memory_order_relaxed);
    for (int f = 0; f < LAR_FAILURE_COUNT; f++)
        s.failures[f] = atomic_load_explicit(&t->failures[f], memory_order_relaxed);
    lar_standings_put(&g->standings, t);
    return s;
}

/* -- metrics ------------------------------------------------------------------------------------------------------ */

/* As the metric has it: the worse, the higher. */
static unsigned rank(lar_breaker_state s) { return s == LAR_BREAKER_CLOSED ? 0 : s == LAR_BREAKER_HALF_OPEN ? 1 : 2; }

static lar_error failures_text(const char *upstream, const sight *s, lar_buf *out) {
    lar_error e = LAR_OK;
    for (int f = LAR_FAILURE_NONE + 1; !e && f < LAR_FAILURE_COUNT; f++)
        e = lar_buf_printf(out, "larder_upstream_%s{upstream=\"%s\",class=\"%s\"} %" PRIu64 "\n",
                           rows[UPSTREAM_FAILURES].name, upstream, lar_failure_info_of((lar_failure)f)->name,
                           s->failures[f]);
    return e;
}

static lar_error metric_text(upstream_metric m, const char *upstream, const sight *s, lar_buf *out) {
    uint64_t v = 0;
    switch (m) {
    case UPSTREAM_STATE: v = rank(s->look.state); break;
    case UPSTREAM_OPENED: v = s->look.opened; break;
    case UPSTREAM_LOAD: v = s->load; break;
    case UPSTREAM_ATTEMPTS: v = s->attempts; break;
    case UPSTREAM_REPEATED: v = s->repeated; break;
    case UPSTREAM_FALLBACK: v = s->fallback; break;
    case UPSTREAM_CONTINUED: v = s->continued; break;
    case UPSTREAM_PROBES: v = s->probes; break;
    case UPSTREAM_PROBES_FAILED: v = s->probes_failed; break;
    case UPSTREAM_ENGINE:
        if (!s->engine) return LAR_OK;
        v = (uint64_t)s->model;
        break;
    case UPSTREAM_FAILURES: return failures_text(upstream, s, out);
    case UPSTREAM_WAIT:
        return lar_buf_printf(out, "larder_upstream_%s{upstream=\"%s\"} %u.%03u\n", rows[m].name, upstream,
                              (unsigned)(s->look.wait_ms / 1000), (unsigned)(s->look.wait_ms % 1000));
    case UPSTREAM_METRICS: break;
    }
    return lar_buf_printf(out, "larder_upstream_%s{upstream=\"%s\"} %" PRIu64 "\n", rows[m].name, upstream, v);
}

lar_error lar_standing_metrics(lar_gateway *g, lar_buf *out) {
    lar_generation *now = lar_generation_newest(g);
    const lar_config *c = now->config;
    lar_error e = LAR_OK;
    for (int m = 0; !e && m < UPSTREAM_METRICS; m++) {
        e = lar_buf_printf(out, "# HELP larder_upstream_%s %s\n# TYPE larder_upstream_%s %s\n", rows[m].name,
                           rows[m].help, rows[m].name, rows[m].kind);
        for (uint32_t i = 0; !e && i < c->upstream_count; i++) {
            sight s = look(g, &c->upstreams[i]);
            e = metric_text((upstream_metric)m, c->upstreams[i].name, &s, out);
        }
    }
    lar_generation_unref(now);
    return e;
}

/* -- GET /upstreams ----------------------------------------------------------------------------------------------- */

static lar_error upstream_json(const lar_upstream_config *u, const sight *s, lar_buf *out) {
    const lar_breaker_look *l = &s->look;
    lar_error e =
        lar_buf_printf(out, "{\"name\":\"%s\",\"kind\":\"%s\",\"group\":\"%s\",\"state\":\"%s\",\"wait_ms\":%u",
                       u->name, u->kind == LAR_UPSTREAM_KIND_ENGINE ? "engine" : "http", u->group,
                       lar_breaker_state_name(l->state), (unsigned)l->wait_ms);
    if (!e && s->engine) e = lar_buf_printf(out, ",\"engine\":\"%s\"", lar_resident_state_name(s->model));
    if (!e) e = lar_buf_printf(out, ",\"load\":%u,\"opened\":%" PRIu64, (unsigned)s->load, l->opened);
    if (!e)
        e = lar_buf_printf(out, ",\"window\":{\"requests\":%u,\"failed\":%u,\"slow\":%u,\"retries\":%u}",
                           (unsigned)l->requests, (unsigned)l->failed, (unsigned)l->slow, (unsigned)l->retries);
    if (!e)
        e = lar_buf_printf(out, ",\"attempts\":%" PRIu64 ",\"repeated\":%" PRIu64 ",\"fallback\":%" PRIu64, s->attempts,
                           s->repeated, s->fallback);
    if (!e) e = lar_buf_printf(out, ",\"continued\":%" PRIu64, s->continued);
    if (!e && *u->probe_path)
        e = lar_buf_printf(out, ",\"probes\":{\"sent\":%" PRIu64 ",\"failed\":%" PRIu64 "}", s->probes,
                           s->probes_failed);
    if (!e) e = lar_buf_printf(out, ",\"failures\":{");
    for (int f = LAR_FAILURE_NONE + 1; !e && f < LAR_FAILURE_COUNT; f++)
        e = lar_buf_printf(out, "%s\"%s\":%" PRIu64, f > LAR_FAILURE_NONE + 1 ? "," : "",
                           lar_failure_info_of((lar_failure)f)->name, s->failures[f]);
    return e ? e : lar_buf_printf(out, "}}");
}

lar_error lar_standing_json(lar_gateway *g, lar_buf *out) {
    lar_generation *now = lar_generation_newest(g);
    const lar_config *c = now->config;
    lar_error e = lar_buf_printf(out, "{\"upstreams\":[");
    for (uint32_t i = 0; !e && i < c->upstream_count; i++) {
        sight s = look(g, &c->upstreams[i]);
        if (i) e = lar_buf_printf(out, ",");
        if (!e) e = upstream_json(&c->upstreams[i], &s, out);
    }
    lar_generation_unref(now);
    return e ? e : lar_buf_printf(out, "]}\n");
}

/* -- readiness ---------------------------------------------------------------------------------------------------- */

/* Is `upstream` of the group that begins at `first`? */
static bool in_group(const lar_config *c, uint32_t first, uint32_t upstream) {
    uint32_t i = first;
    while (i != upstream && c->upstreams[i].replica_next) i = c->upstreams[i].replica_next;
    return i == upstream;
}

/* Some request could go to it: what fits no route goes to the first upstream. */
static bool can_be_asked(const lar_config *c, uint32_t upstream) {
    if (in_group(c, 0, upstream)) return true;
    for (uint32_t r = 0; r < c->route_count; r++) {
        const lar_route_config *rule = &c->routes[r];
        if (in_group(c, rule->upstream, upstream)) return true;
        for (uint32_t f = 0; f < rule->fallback_count; f++)
            if (in_group(c, rule->fallbacks[f].upstream, upstream)) return true;
    }
    return false;
}

lar_error lar_standing_ready(lar_gateway *g, bool *ready, lar_buf *out) {
    lar_generation *now = lar_generation_newest(g);
    const lar_config *c = now->config;
    const size_t before = out->len;
    const char *between = "";
    lar_error e = lar_buf_printf(out, "{\"ready\":false,\"reason\":\"no upstream can be asked\",\"upstreams\":[");
    *ready = false;
    for (uint32_t i = 0; !e && !*ready && i < c->upstream_count; i++) {
        if (!can_be_asked(c, i)) continue;
        sight s = look(g, &c->upstreams[i]);
        bool failed = s.engine && s.model == LAR_RESIDENT_FAILED;
        *ready = s.look.state != LAR_BREAKER_OPEN && !failed;
        e = lar_buf_printf(out, "%s{\"name\":\"%s\",\"state\":\"%s\",\"wait_ms\":%u}", between, c->upstreams[i].name,
                           failed ? lar_resident_state_name(s.model) : lar_breaker_state_name(s.look.state),
                           (unsigned)s.look.wait_ms);
        between = ",";
    }
    lar_generation_unref(now);
    if (!e) e = lar_buf_printf(out, "]}\n");
    if (*ready) out->len = before;
    return e;
}

lar_error lar_standing_models(lar_gateway *g, lar_buf *out) {
    lar_error e = LAR_OK;
    for (uint32_t i = 0; !e && i < g->resident_count; i++) {
        uint32_t wait_ms;
        lar_resident_state state = lar_resident_look(g->residents[i], &wait_ms);
        if (state == LAR_RESIDENT_READY) continue;
        e = lar_buf_printf(out, "%s: %s\n", lar_resident_name(g->residents[i]), lar_resident_state_name(state));
    }
    return e;
}
