/* What a reload cannot take over: the options that differ between two configurations and act at start only.
 * Called on SIGHUP; any thread; never blocks; no memory but the caller's buffer. */
#include "gateway/config/config_parts.h"

static lar_error add(lar_buf *out, uint32_t found, const char *name) {
    return lar_buf_printf(out, "%s%s", found ? " " : "", name);
}

static bool same_listens(const lar_config *a, const lar_config *b) {
    bool equal = a->listen_count == b->listen_count;
    for (uint32_t i = 0; equal && i < a->listen_count; i++) equal = strcmp(a->listens[i].text, b->listens[i].text) == 0;
    return equal;
}

/* Which files hold the certificate may change; whether there is one may not: a client would be spoken to in another
 * protocol than the one it connected for. */
static bool same_tls(const lar_config *a, const lar_config *b) { return !*a->tls_cert == !*b->tls_cert; }

static bool same_engine(const lar_engine_config *a, const lar_engine_config *b) {
    return strcmp(a->model, b->model) == 0 && strcmp(a->served_name, b->served_name) == 0 &&
           strcmp(a->kv, b->kv) == 0 && a->kv_bytes == b->kv_bytes && a->expert_bytes == b->expert_bytes &&
           a->spill_bytes == b->spill_bytes && a->sequences == b->sequences && a->context == b->context &&
           a->queue == b->queue && a->queue_wait_ms == b->queue_wait_ms && a->gap_ms == b->gap_ms &&
           a->pass_tokens == b->pass_tokens && a->threads == b->threads && a->niceness == b->niceness &&
           a->pin_ms == b->pin_ms && a->start == b->start && a->keep_warm == b->keep_warm;
}

/* Every engine of `a` is in `b`, and the same. */
static bool has_engines(const lar_config *b, const lar_config *a) {
    for (uint32_t i = 0; i < a->upstream_count; i++) {
        if (a->upstreams[i].kind != LAR_UPSTREAM_KIND_ENGINE) continue;
        const lar_upstream_config *u = lar_config_engine(b, a->upstreams[i].name);
        if (!u || !same_engine(&a->upstreams[i].engine, &u->engine)) return false;
    }
    return true;
}

const lar_upstream_config *lar_config_engine(const lar_config *c, const char *name) {
    for (uint32_t i = 0; i < c->upstream_count; i++) {
        const lar_upstream_config *u = &c->upstreams[i];
        if (u->kind == LAR_UPSTREAM_KIND_ENGINE && strcmp(u->name, name) == 0) return u;
    }
    return NULL;
}

uint32_t lar_config_restart_names(const lar_config *now, const lar_config *next, lar_buf *out) {
    const lar_option_table *t = lar_option_scalars();
    uint32_t found = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->rows[i].reload == LAR_OPTION_LIVE || lar_option_equal(&t->rows[i], now, next)) continue;
        if (add(out, found, t->rows[i].path)) return found;
        found++;
    }
    if (!same_tls(now, next) && !add(out, found, "tls.cert")) found++;
    if (!same_listens(now, next) && !add(out, found, "listen")) found++;
    bool same = has_engines(now, next) && has_engines(next, now);
    if (!same && !add(out, found, "upstreams.engine")) found++;
    return found;
}
