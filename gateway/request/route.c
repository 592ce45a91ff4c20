/* Routing: endpoint table, rules, credentials, Host and CORS checks. Called by the exchange at the head and once the
 * body's model is known. Any thread; no memory; never blocks.
 * Invariant: the target of an upstream call comes from the configuration alone, never from the request (X-01, X-02). */
#include "gateway/request/route.h"

#include <string.h>

typedef struct endpoint {
    const char *path;
    lar_protocol protocol;
    const char *name;
    bool get, post;
} endpoint;

static const endpoint endpoints[] = {
    {"/chat/completions", LAR_PROTOCOL_CHAT, "chat", false, true},
    {"/completions", LAR_PROTOCOL_COMPLETIONS, "completions", false, true},
    {"/responses", LAR_PROTOCOL_RESPONSES, "responses", false, true},
    {"/messages", LAR_PROTOCOL_MESSAGES, "messages", false, true},
    {"/embeddings", LAR_PROTOCOL_EMBEDDINGS, "embeddings", false, true},
    {"/models", LAR_PROTOCOL_NONE, "models", true, false},
};

/* What only a model in this process answers, as vLLM does. */
static const endpoint engine_endpoints[] = {
    {"/tokenize", LAR_PROTOCOL_NONE, "tokenize", false, true},
    {"/detokenize", LAR_PROTOCOL_NONE, "detokenize", false, true},
};
static const endpoint engine_model = {"/models/", LAR_PROTOCOL_NONE, "models", true, false};

static lar_slice without_query(lar_slice target) {
    const char *q = memchr(target.ptr, '?', target.len);
    return q ? lar_slice_of(target.ptr, (size_t)(q - target.ptr)) : target;
}

static bool has_prefix_path(lar_slice path, const char *prefix) {
    size_t n = strlen(prefix);
    return path.len >= n && memcmp(path.ptr, prefix, n) == 0 &&
           (path.len == n || path.ptr[n] == '/' || path.ptr[n] == '?');
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Origin-form only, and nothing in it that a later hop could read as another path: dot segments, empty segments,
 * backslashes, encoded slashes, dots or NUL (X-10; RFC 3986 6.2.2.3). */
static bool path_is_plain(lar_slice path) {
    if (!path.len || path.ptr[0] != '/') return false;
    for (size_t i = 0; i < path.len; i++) {
        char c = path.ptr[i];
        if (c == '\\' || c == '#' || (unsigned char)c < 0x21 || (unsigned char)c == 0x7f) return false;
        if (c == '/' && i + 1 < path.len && path.ptr[i + 1] == '/') return false;
        if (c == '%') {
            int hi = i + 1 < path.len ? hex(path.ptr[i + 1]) : -1, lo = i + 2 < path.len ? hex(path.ptr[i + 2]) : -1;
            if (hi < 0 || lo < 0) return false;
            int v = hi * 16 + lo;
            if (v < 0x20 || v == '/' || v == '\\' || v == '.' || v == '%') return false;
        }
        if (c == '/' && i + 1 < path.len && path.ptr[i + 1] == '.') {
            size_t dots = 1;
            while (i + 1 + dots < path.len && path.ptr[i + 1 + dots] == '.') dots++;
            bool ends = i + 1 + dots == path.len || path.ptr[i + 1 + dots] == '/';
            if (ends && dots <= 2) return false;
        }
    }
    return true;
}

static lar_slice without_v1(lar_slice path) {
    return lar_slice_starts(path, LAR_SLICE("/v1/")) ? lar_slice_of(path.ptr + 3, path.len - 3) : path;
}

static const endpoint *find_endpoint(lar_slice path) {
    path = without_v1(path);
    for (size_t i = 0; i < sizeof endpoints / sizeof endpoints[0]; i++) {
        if (lar_slice_eq_cstr(path, endpoints[i].path)) return &endpoints[i];
    }
    return NULL;
}

/* NULL also where no model is in this process. */
static const endpoint *find_engine_endpoint(const lar_config *c, lar_slice path, lar_slice *model) {
    bool any = false;
    for (uint32_t i = 0; i < c->upstream_count; i++) any |= c->upstreams[i].kind == LAR_UPSTREAM_KIND_ENGINE;
    path = without_v1(path);
    *model = LAR_SLICE("");
    if (any && lar_slice_starts(path, lar_slice_cstr(engine_model.path)) && path.len > strlen(engine_model.path)) {
        *model = lar_slice_of(path.ptr + strlen(engine_model.path), path.len - strlen(engine_model.path));
        return &engine_model;
    }
    for (size_t i = 0; any && i < sizeof engine_endpoints / sizeof engine_endpoints[0]; i++) {
        if (lar_slice_eq_cstr(path, engine_endpoints[i].path)) return &engine_endpoints[i];
    }
    return NULL;
}

/* absolute-form is accepted for its path; its authority never chooses a target (RFC 9112 3.2.2). */
static lar_slice origin_form(lar_slice target) {
    static const char *const schemes[] = {"http://", "https://"};
    for (int i = 0; i < 2; i++) {
        lar_slice s = lar_slice_cstr(schemes[i]);
        if (target.len < s.len || !lar_slice_ieq(lar_slice_of(target.ptr, s.len), s)) continue;
        size_t authority = 0;
        while (s.len + authority < target.len && !strchr("/?#", target.ptr[s.len + authority])) authority++;
        const char *slash = target.ptr + s.len + authority;
        if (slash == target.ptr + target.len || *slash != '/') slash = NULL;
        return slash ? lar_slice_of(slash, (size_t)(target.ptr + target.len - slash)) : LAR_SLICE("/");
    }
    return target;
}

static const lar_route_config *find_prefix_rule(const lar_config *c, lar_slice path) {
    const lar_route_config *best = NULL;
    for (uint32_t i = 0; i < c->route_count; i++) {
        const lar_route_config *r = &c->routes[i];
        if (!r->prefix[0] || !has_prefix_path(path, r->prefix)) continue;
        if (!best || strlen(r->prefix) > strlen(best->prefix)) best = r;
    }
    return best;
}

static bool may_pass(const lar_config *c, const lar_route_config *rule, lar_slice path) {
    if (rule) return rule->pass_through;
    if (!c->route_count) return lar_slice_starts(path, LAR_SLICE("/v1/"));
    for (uint32_t i = 0; i < c->route_count; i++) {
        if (!c->routes[i].prefix[0] && c->routes[i].pass_through) return true;
    }
    return false;
}

lar_error lar_route_find(const lar_config *c, const lar_http1_head *h, lar_route *out, const char **allow) {
    *out = (lar_route){.name = "other"};
    *allow = "";
    /* TRACE would echo larder's own key to the client (RFC 9110 9.3.8); CONNECT is no business of a gateway */
    if (lar_slice_eq_cstr(h->method, "TRACE") || lar_slice_eq_cstr(h->method, "CONNECT")) {
        *allow = "GET, HEAD, POST, OPTIONS";
        return LAR_METHOD;
    }
    lar_slice target = origin_form(h->target);
    lar_slice path = without_query(target);
    if (!path_is_plain(path)) return LAR_HTTP_SYNTAX;
    out->rule = find_prefix_rule(c, path);
    if (out->rule) {
        size_t n = strlen(out->rule->prefix);
        target = lar_slice_of(target.ptr + n, target.len - n);
        path = lar_slice_of(path.ptr + n, path.len - n);
        if (!path.len) return LAR_NO_ROUTE;
    }
    out->path = target;
    const endpoint *e = find_endpoint(path);
    if (!e) {
        bool passed = may_pass(c, out->rule, path);
        out->anthropic = lar_slice_starts(path, LAR_SLICE("/v1/messages/"));
        e = find_engine_endpoint(c, path, &out->model);
        if (!e || passed) {
            out->model_in_body = e && e->post;
            return passed ? LAR_OK : LAR_NO_ROUTE;
        }
        out->engine_only = true;
        out->model_in_body = e->post;
    }
    out->name = e->name;
    out->anthropic = e->protocol == LAR_PROTOCOL_MESSAGES;
    bool get = h->method_id == LAR_HTTP1_GET || h->method_id == LAR_HTTP1_HEAD;
    if ((e->post && h->method_id == LAR_HTTP1_POST) || (e->get && get)) {
        out->protocol = e->protocol;
        return LAR_OK;
    }
    /* stored responses and the like: GET /v1/responses is a list; only passed on where that is allowed */
    *allow = e->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    return LAR_METHOD;
}

/* '*' stands for any run of bytes; iterative, linear in practice. */
static bool matches(const char *pattern, lar_slice text) {
    size_t p = 0, t = 0, star = SIZE_MAX, mark = 0, n = strlen(pattern);
    while (t < text.len) {
        if (p < n && pattern[p] == '*') {
            star = p++;
            mark = t;
        } else if (p < n && pattern[p] == text.ptr[t]) {
            p++, t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++mark;
        } else {
            return false;
        }
    }
    while (p < n && pattern[p] == '*') p++;
    return p == n;
}

uint32_t lar_route_upstream(const lar_config *c, const lar_route *r, const lar_http1_head *h, lar_slice model,
                            const lar_route_config **matched) {
    for (uint32_t i = 0; i < c->route_count; i++) {
        const lar_route_config *rule = &c->routes[i];
        if (rule->prefix[0] && (!r->rule || strcmp(rule->prefix, r->rule->prefix) != 0)) continue;
        if (!rule->prefix[0] && r->rule) continue;
        if (rule->model[0] && !matches(rule->model, model)) continue;
        if (rule->header_name[0] && !lar_slice_eq_cstr(lar_http1_get(h, rule->header_name), rule->header_value))
            continue;
        *matched = rule;
        return rule->upstream;
    }
    *matched = r->rule;
    return r->rule ? r->rule->upstream : 0;
}

const char *lar_route_alias(const lar_config *c, lar_slice model) {
    for (uint32_t i = 0; i < c->alias_count; i++) {
        if (lar_slice_eq_cstr(model, c->aliases[i].from)) return c->aliases[i].to;
    }
    return NULL;
}

lar_slice lar_route_credential(const lar_http1_head *h) {
    lar_slice v = lar_http1_get(h, "authorization");
    if (v.len > 7 && lar_slice_ieq(lar_slice_of(v.ptr, 7), LAR_SLICE("bearer ")))
        return lar_slice_trim(lar_slice_of(v.ptr + 7, v.len - 7));
    if (v.len) return v;
    v = lar_http1_get(h, "x-api-key");
    return v.len ? v : lar_http1_get(h, "api-key");
}

/* Fields by which an upstream may tell one payer from another: the name in lower case, or NULL. */
static const char *payer_field(lar_slice name) {
    static const char *const names[] = {"authorization", "x-api-key",           "api-key",        "x-goog-api-key",
                                        "cookie",        "openai-organization", "openai-project", "x-auth-token"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (lar_slice_ieq(name, lar_slice_cstr(names[i]))) return names[i];
    }
    return NULL;
}

static lar_digest digest_join(lar_digest a, lar_slice more) {
    char both[64];
    lar_digest d = lar_digest_of(more);
    memcpy(both, a.bytes, 32);
    memcpy(both + 32, d.bytes, 32);
    return lar_digest_of(lar_slice_of(both, sizeof both));
}

/* Of all such fields, in order; how many there are in *count. */
static lar_digest payer_digest(const lar_http1_head *h, lar_digest start, uint32_t *count) {
    *count = 0;
    for (uint32_t i = 0; i < h->field_count; i++) {
        const char *field = payer_field(h->fields[i].name);
        if (!field) continue;
        start = digest_join(digest_join(start, lar_slice_cstr(field)), h->fields[i].value);
        (*count)++;
    }
    return start;
}

lar_error lar_route_tenant(const lar_config *c, const lar_http1_head *h, const lar_digest *salt, lar_tenant *out) {
    lar_slice credential = lar_route_credential(h);
    uint32_t payers;
    *out = (lar_tenant){.scope = payer_digest(h, digest_join(*salt, credential), &payers)};
    lar_digest d = lar_digest_of(credential);
    if (!c->key_count) {
        /* the same key is one tenant in whichever field it comes; a field that is no such key counts as it stands */
        bool plain_key = payers == 1 && credential.len;
        if (plain_key) out->scope = digest_join(*salt, credential);
        if (payers) out->fingerprint = lar_digest_short(plain_key ? &d : &out->scope);
        return LAR_OK;
    }
    const lar_key_config *found = NULL;
    for (uint32_t i = 0; i < c->key_count; i++) { /* all of them, so that time tells nothing */
        if (lar_digest_eq(&d, &c->keys[i].digest)) found = &c->keys[i];
    }
    if (!credential.len || !found) return LAR_UNAUTHORIZED;
    lar_digest name = lar_digest_of(lar_slice_cstr(found->tenant));
    out->fingerprint = lar_digest_short(&name);
    lar_digest scope = digest_join(*salt, lar_slice_cstr(found->tenant));
    if (payers > 1) scope = payer_digest(h, scope, &payers);
    out->scope = scope;
    return LAR_OK;
}

lar_error lar_route_tenant_memo(const lar_config *c, const lar_http1_head *h, const lar_digest *salt,
                                lar_tenant_memo *memo, lar_tenant *out) {
    lar_hash key;
    memcpy(key.bytes, memo->seed, sizeof key.bytes);
    for (uint32_t i = 0; i < h->field_count; i++) {
        if (!payer_field(h->fields[i].name)) continue;
        key = lar_hash_chain(lar_hash_chain(key, h->fields[i].name), h->fields[i].value);
    }
    size_t at = lar_hash_low(key) % LAR_TENANT_MEMO_SLOTS;
    if (memo->slots[at].used && lar_hash_eq(memo->slots[at].key, key)) {
        *out = (lar_tenant){.fingerprint = memo->slots[at].tenant, .scope = memo->slots[at].scope};
        return LAR_OK;
    }
    lar_error e = lar_route_tenant(c, h, salt, out);
    if (e) return e;
    memo->slots[at].key = key;
    memo->slots[at].scope = out->scope;
    memo->slots[at].tenant = out->fingerprint;
    memo->slots[at].used = true;
    return LAR_OK;
}

static bool in_list(const char *list, lar_slice word) {
    while (*list) {
        size_t n = strcspn(list, " ,\t");
        if ((n == 1 && *list == '*') || lar_slice_ieq(lar_slice_of(list, n), word)) return true;
        list += n;
        list += strspn(list, " ,\t");
    }
    return false;
}

static lar_slice host_name(lar_slice host) {
    if (host.len && host.ptr[0] == '[') {
        const char *end = memchr(host.ptr, ']', host.len);
        return end ? lar_slice_of(host.ptr, (size_t)(end - host.ptr) + 1) : host;
    }
    if (!host.len) return host;
    const char *colon = memchr(host.ptr, ':', host.len);
    return colon ? lar_slice_of(host.ptr, (size_t)(colon - host.ptr)) : host;
}

static bool is_loopback_name(lar_slice name) {
    if (lar_slice_ieq(name, LAR_SLICE("localhost")) || lar_slice_eq(name, LAR_SLICE("[::1]"))) return true;
    if (!lar_slice_starts(name, LAR_SLICE("127.")) || name.len > 15) return false;
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] != '.' && (name.ptr[i] < '0' || name.ptr[i] > '9')) return false;
    }
    return true;
}

lar_error lar_route_host(const lar_config *c, const lar_http1_head *h, bool loopback_only) {
    lar_slice host = lar_http1_get(h, "host");
    if (!host.ptr || !host.len) return h->minor == 0 && !host.ptr ? LAR_OK : LAR_HTTP_HOST;
    lar_slice name = host_name(host);
    if (c->hosts[0] && in_list(c->hosts, name)) return LAR_OK;
    bool loopback = is_loopback_name(name);
    if (loopback_only) return loopback ? LAR_OK : LAR_HTTP_HOST;
    return c->hosts[0] && !loopback ? LAR_HTTP_HOST : LAR_OK;
}

lar_error lar_route_origin(const lar_http1_head *h, bool closed) {
    lar_slice origin = lar_http1_get(h, "origin");
    if (!closed || !origin.len) return LAR_OK;
    lar_slice host = {NULL, 0};
    if (lar_slice_starts_i(origin, LAR_SLICE("http://"))) host = lar_slice_of(origin.ptr + 7, origin.len - 7);
    if (lar_slice_starts_i(origin, LAR_SLICE("https://"))) host = lar_slice_of(origin.ptr + 8, origin.len - 8);
    bool web_page = host.ptr || lar_slice_eq(origin, LAR_SLICE("null"));
    return web_page && !is_loopback_name(host_name(host)) ? LAR_FORBIDDEN : LAR_OK;
}

lar_slice lar_route_cors(const lar_config *c, const lar_http1_head *h) {
    lar_slice origin = lar_http1_get(h, "origin");
    if (!c->cors_origins[0] || !origin.len) return LAR_SLICE("");
    return in_list(c->cors_origins, origin) ? origin : LAR_SLICE("");
}
