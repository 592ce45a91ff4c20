/* What a reload cannot take over: the options and lists that differ between two configurations.
 * Called on SIGHUP; any thread; never blocks; no memory but the caller's buffer. */
#include "gateway/config/config_parts.h"

enum { LISTS = 5 };

static const char *const list_names[LISTS] = {"listen", "upstreams", "routes", "keys", "aliases"};

static bool same(const char *a, const char *b) { return strcmp(a, b) == 0; }

static bool same_listens(const lar_config *a, const lar_config *b) {
    bool equal = a->listen_count == b->listen_count;
    for (uint32_t i = 0; equal && i < a->listen_count; i++) equal = same(a->listens[i].text, b->listens[i].text);
    return equal;
}

static bool same_upstream(const lar_upstream_config *a, const lar_upstream_config *b) {
    return same(a->name, b->name) && same(a->url.authority, b->url.authority) && same(a->url.path, b->url.path) &&
           a->url.tls == b->url.tls && a->profile == b->profile && same(a->ca_file, b->ca_file) &&
           same(a->key, b->key) && a->connect_timeout_ms == b->connect_timeout_ms &&
           a->first_byte_timeout_ms == b->first_byte_timeout_ms &&
           a->first_event_timeout_ms == b->first_event_timeout_ms && a->idle_timeout_ms == b->idle_timeout_ms &&
           a->total_timeout_ms == b->total_timeout_ms && a->pool_idle_ms == b->pool_idle_ms &&
           a->pool_connections_max == b->pool_connections_max && a->connections_max == b->connections_max &&
           a->queue_max == b->queue_max && a->dns_ttl_ms == b->dns_ttl_ms && a->inject_usage == b->inject_usage;
}

static bool same_upstreams(const lar_config *a, const lar_config *b) {
    bool equal = a->upstream_count == b->upstream_count;
    for (uint32_t i = 0; equal && i < a->upstream_count; i++) equal = same_upstream(&a->upstreams[i], &b->upstreams[i]);
    return equal;
}

static bool same_routes(const lar_config *a, const lar_config *b) {
    bool equal = a->route_count == b->route_count;
    for (uint32_t i = 0; equal && i < a->route_count; i++) {
        const lar_route_config *x = &a->routes[i], *y = &b->routes[i];
        equal = same(x->prefix, y->prefix) && same(x->model, y->model) && same(x->header_name, y->header_name) &&
                same(x->header_value, y->header_value) && x->upstream == y->upstream &&
                x->pass_through == y->pass_through;
    }
    return equal;
}

static bool same_keys(const lar_config *a, const lar_config *b) {
    bool equal = a->key_count == b->key_count;
    for (uint32_t i = 0; equal && i < a->key_count; i++)
        equal = same(a->keys[i].tenant, b->keys[i].tenant) && lar_digest_eq(&a->keys[i].digest, &b->keys[i].digest);
    return equal;
}

static bool same_aliases(const lar_config *a, const lar_config *b) {
    bool equal = a->alias_count == b->alias_count;
    for (uint32_t i = 0; equal && i < a->alias_count; i++)
        equal = same(a->aliases[i].from, b->aliases[i].from) && same(a->aliases[i].to, b->aliases[i].to);
    return equal;
}

uint32_t lar_config_restart_names(const lar_config *now, const lar_config *next, lar_buf *out) {
    static bool (*const lists[LISTS])(const lar_config *, const lar_config *) = {same_listens, same_upstreams,
                                                                                 same_routes, same_keys, same_aliases};
    const lar_option_table *t = lar_option_scalars();
    uint32_t found = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->rows[i].reload == LAR_OPTION_LIVE || lar_option_equal(&t->rows[i], now, next)) continue;
        if (lar_buf_printf(out, "%s%s", found ? " " : "", t->rows[i].path)) break;
        found++;
    }
    for (uint32_t i = 0; i < LISTS; i++) {
        if (lists[i](now, next)) continue;
        if (lar_buf_printf(out, "%s%s", found ? " " : "", list_names[i])) break;
        found++;
    }
    return found;
}
