/* What happens when an upstream is down: its health's limits, its replicas, and a route's chain of fallbacks.
 * Called by config_lists.c while it reads upstreams and routes. Pure; blocks on nothing.
 * Invariants: 1. a chain names no upstream twice and not the route's own, so that a request goes to each at most once
 * (R-16). 2. replicas stand behind all upstreams that were written, so that indices of routes stay. Memory: the
 * config's arena. */
#include <stdio.h>
#include <string.h>

#include "gateway/config/config_parts.h"

enum { FALLBACKS_MAX = 8, REPLICAS_MAX = 32, MODEL_BYTES_MAX = 256, RETRIES_MIN = 3 };

lar_error lar_loader_find_upstream(lar_loader *l, const char *name, uint32_t *out, lar_diag *why) {
    lar_nearest n;
    lar_nearest_init(&n, lar_slice_cstr(name));
    for (uint32_t i = 0; i < l->config->upstream_count; i++) {
        *out = i;
        if (strcmp(name, l->config->upstreams[i].name) == 0) return LAR_OK;
        lar_nearest_offer(&n, lar_slice_cstr(l->config->upstreams[i].name));
    }
    if (!*name) return lar_fail(LAR_INVALID, why, "is missing; name the upstream that such requests go to");
    return lar_fail(LAR_INVALID, why, "no upstream has this name%s%.*s%s", n.best.ptr ? "; did you mean '" : "",
                    (int)n.best.len, n.best.ptr ? n.best.ptr : "", n.best.ptr ? "'?" : "");
}

/* The next word of a list separated by blanks, as a string of its own; NULL at the end, or without memory for it. */
static const char *take_word(lar_loader *l, const char **rest, bool *out_of_memory) {
    *rest += strspn(*rest, " \t");
    size_t len = strcspn(*rest, " \t");
    if (!len) return NULL;
    lar_slice word = lar_arena_copy(&l->config->arena, lar_slice_of(*rest, len));
    *rest += len;
    *out_of_memory = !word.ptr;
    return word.ptr;
}

/* -- chains ------------------------------------------------------------------------------------------------------ */

static lar_error take_fallback(lar_loader *l, const char *word, const lar_route_config *route, lar_fallback_config *out,
                               lar_diag *why) {
    char name[128];
    const char *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    if (len >= sizeof name) return lar_fail(LAR_INVALID, why, "the name of an upstream is too long");
    memcpy(name, word, len);
    name[len] = 0;
    out->model = equals ? equals + 1 : "";
    if (equals && (!*out->model || strlen(out->model) > MODEL_BYTES_MAX))
        return lar_fail(LAR_INVALID, why, "a model behind = must have 1 to %d bytes", MODEL_BYTES_MAX);
    lar_error e = lar_loader_find_upstream(l, name, &out->upstream, why);
    if (e) return e;
    if (out->upstream == route->upstream)
        return lar_fail(LAR_INVALID, why, "names the route's own upstream, which has failed by then");
    for (uint32_t i = 0; i < route->fallback_count; i++)
        if (route->fallbacks[i].upstream == out->upstream)
            return lar_fail(LAR_INVALID, why, "names an upstream twice; a request asks each once at most");
    return LAR_OK;
}

/* Nothing of a chain is left out in silence. */
static lar_error check_targets(const lar_config *c, const lar_route_config *route, lar_diag *why) {
    uint32_t targets = 0;
    for (uint32_t i = 0; i <= route->fallback_count; i++) {
        uint32_t u = i ? route->fallbacks[i - 1].upstream : route->upstream;
        for (targets++; c->upstreams[u].replica_next; targets++) u = c->upstreams[u].replica_next;
    }
    if (targets <= LAR_ROUTE_TARGETS_MAX) return LAR_OK;
    return lar_fail(LAR_INVALID, why, "with all replicas these are %u places to ask for one request; at most %d",
                    (unsigned)targets, LAR_ROUTE_TARGETS_MAX);
}

lar_error lar_loader_take_fallbacks(lar_loader *l, const lar_route_raw *raw, lar_route_config *route, lar_diag *why) {
    const char *rest = raw->fallback, *word;
    bool out_of_memory = false;
    if (!*rest) return LAR_OK;
    lar_fallback_config *chain = lar_arena_zalloc(&l->config->arena, FALLBACKS_MAX * sizeof *chain);
    if (!chain) return LAR_NO_MEMORY;
    route->fallbacks = chain;
    while ((word = take_word(l, &rest, &out_of_memory))) {
        if (route->fallback_count == FALLBACKS_MAX)
            return lar_fail(LAR_INVALID, why, "more than %d upstreams", FALLBACKS_MAX);
        lar_error e = take_fallback(l, word, route, &chain[route->fallback_count], why);
        if (e) return e;
        route->fallback_count++;
    }
    return out_of_memory ? LAR_NO_MEMORY : check_targets(l->config, route, why);
}

static bool is_engine(const lar_loader *l, uint32_t upstream) {
    return l->config->upstreams[upstream].kind == LAR_UPSTREAM_KIND_ENGINE;
}

/* An upstream that is itself called "engine" is meant where there is one. */
static bool is_name(const lar_loader *l, const char *text) {
    for (uint32_t i = 0; i < l->config->upstream_count; i++)
        if (strcmp(l->config->upstreams[i].name, text) == 0) return true;
    return false;
}

lar_error lar_loader_take_continue(lar_loader *l, const lar_route_raw *raw, lar_route_config *route, lar_diag *why) {
    const char *to = raw->continue_with;
    route->continue_with = LAR_CONTINUE_NOBODY;
    if (!*to) return LAR_OK;
    if (strcmp(to, "engine") == 0 && !is_name(l, to)) {
        for (uint32_t i = 0; i < route->fallback_count; i++) {
            route->continue_with = route->fallbacks[i].upstream;
            if (is_engine(l, route->continue_with)) break;
            route->continue_with = LAR_CONTINUE_NOBODY;
        }
        if (route->continue_with == LAR_CONTINUE_NOBODY)
            return lar_fail(LAR_INVALID, why,
                            "none of the route's fallbacks is an upstream of kind engine; add one to fallback, or name "
                            "one here");
    } else {
        lar_error e = lar_loader_find_upstream(l, to, &route->continue_with, why);
        if (e) return e;
        if (!is_engine(l, route->continue_with))
            return lar_fail(LAR_INVALID, why,
                            "'%s' is no upstream of kind engine; only a model of this process can go "
                            "on with an answer",
                            to);
    }
    if (is_engine(l, route->upstream))
        return lar_fail(LAR_INVALID, why,
                        "the route's own upstream is a model of this process, whose streams do not "
                        "break");
    return LAR_OK;
}

/* -- health and replicas ------------------------------------------------------------------------------------------- */

lar_error lar_loader_take_health(const lar_upstream_raw *raw, lar_upstream_config *u, lar_diag *why) {
    /* a model in this process has a queue of its own: who is refused there is not asked to wait twice */
    u->retry_attempts = u->kind == LAR_UPSTREAM_KIND_ENGINE ? 1 : raw->retry_attempts;
    u->retry_backoff_ms = raw->retry_backoff_ms;
    u->retry_wait_ms = raw->retry_wait_ms;
    u->replica_slack_percent = raw->replica_slack_percent;
    u->breaker = (lar_breaker_options){.window_ms = raw->breaker_window_ms,
                                       .requests_min = raw->breaker_requests,
                                       .failure_percent = raw->breaker_failure_percent,
                                       .slow_ms = raw->breaker_slow_ms,
                                       .slow_percent = raw->breaker_slow_percent,
                                       .open_ms = raw->breaker_open_ms,
                                       .open_ms_max = raw->breaker_open_ms_max,
                                       .retry_percent = raw->retry_percent,
                                       .retries_min = RETRIES_MIN};
    if (raw->breaker_open_ms_max && raw->breaker_open_ms > raw->breaker_open_ms_max)
        return lar_fail(LAR_INVALID, why, "is more than breaker.open_max");
    return LAR_OK;
}

lar_error lar_loader_take_probe(const lar_upstream_raw *raw, lar_upstream_config *u, lar_diag *why) {
    u->probe_path = raw->probe_path;
    u->probe_every_ms = raw->probe_every_ms;
    u->probe_timeout_ms = raw->probe_timeout_ms;
    if (!*u->probe_path) return LAR_OK;
    if (*u->probe_path != '/') return lar_fail(LAR_INVALID, why, "must begin with /");
    for (const char *p = u->probe_path; *p; p++)
        if (*p <= ' ' || *p >= 0x7f || *p == '#')
            return lar_fail(LAR_INVALID, why, "must be printable ASCII without blanks and #");
    if (!u->breaker.open_ms_max) return lar_fail(LAR_INVALID, why, "does nothing while breaker.open_max is 0");
    return LAR_OK;
}

static uint32_t count_words(const char *text) {
    uint32_t n = 0;
    for (text += strspn(text, " \t"); *text; n++) {
        text += strcspn(text, " \t");
        text += strspn(text, " \t");
    }
    return n;
}

static lar_error add_replica(lar_loader *l, lar_upstream_config *of, uint32_t number, const char *url, lar_diag *why) {
    lar_config *c = l->config;
    lar_upstream_config *u = &c->upstreams[c->upstream_count];
    lar_slice name = lar_arena_printf(&c->arena, "%s/%u", of->group, (unsigned)number);
    if (!name.ptr) return LAR_NO_MEMORY;
    *u = *of;
    u->name = name.ptr;
    u->replica_next = 0;
    return lar_url_parse(lar_slice_cstr(url), &c->arena, &u->url, why);
}

static bool same_place(const lar_url *a, const lar_url *b) {
    return a->tls == b->tls && strcmp(a->authority, b->authority) == 0 && strcmp(a->path, b->path) == 0;
}

static lar_error take_replicas(lar_loader *l, uint32_t index, const char *urls, lar_diag *why) {
    lar_config *c = l->config;
    const char *word;
    bool out_of_memory = false;
    uint32_t last = index, number = 2;
    for (; (word = take_word(l, &urls, &out_of_memory)); number++) {
        if (number > REPLICAS_MAX) return lar_fail(LAR_INVALID, why, "more than %d of them", REPLICAS_MAX - 1);
        lar_error e = add_replica(l, &c->upstreams[index], number, word, why);
        if (e) return e;
        for (uint32_t i = index;; i = c->upstreams[i].replica_next) {
            if (same_place(&c->upstreams[i].url, &c->upstreams[c->upstream_count].url))
                return lar_fail(LAR_INVALID, why, "names the same place twice");
            if (!c->upstreams[i].replica_next) break;
        }
        c->upstreams[last].replica_next = c->upstream_count;
        last = c->upstream_count++;
    }
    return out_of_memory ? LAR_NO_MEMORY : LAR_OK;
}

lar_error lar_loader_add_replicas(lar_loader *l, const char *const *urls, uint32_t *at, lar_diag *why) {
    lar_config *c = l->config;
    uint32_t written = c->upstream_count, more = 0;
    for (uint32_t i = 0; i < written; i++) more += count_words(urls[i]);
    if (!more) return LAR_OK;
    lar_upstream_config *all = lar_arena_zalloc(&c->arena, (written + more) * sizeof *all);
    if (!all) return LAR_NO_MEMORY;
    memcpy(all, c->upstreams, written * sizeof *all);
    c->upstreams = all;
    lar_error e = LAR_OK;
    for (*at = 0; !e && *at < written; ++*at) e = take_replicas(l, *at, urls[*at], why);
    if (e) --*at;
    return e;
}
