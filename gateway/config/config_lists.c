/* Listeners, upstreams, routes, keys and aliases: from the file's nodes, or from what flags and environment gave.
 * Called by the loader once all sources were read; blocks on key files.
 * Invariants: 1. names of upstreams are unique and a route names one of them. 2. no two client keys are the same, so
 * that a key always means one tenant. 3. of a client key only the digest stays. Memory: the config's arena. */
#include <stdio.h>

#include "gateway/config/config_parts.h"
#include "gateway/config/option_value.h"
#include "gateway/config/secret.h"

enum { UPSTREAMS_MAX = 1024, NAME_BYTES_MAX = 95, MODEL_BYTES_MAX = 256, PROFILE_AUTO = 0 };
enum { SPILL_BYTES_LEAST = 1 << 20 }; /* lar_page_segments_open's */

static lar_error out_of_memory(lar_loader *l) {
    return lar_fail(LAR_NO_MEMORY, l->diag, "out of memory for the configuration");
}

/* Where a field of an item was set, or the item itself. */
static const lar_yaml_node *mark(const lar_map_reader *r, const char *path, const lar_yaml_node *item) {
    const lar_option_row *row = lar_option_find(r->table, lar_slice_cstr(path));
    const lar_yaml_node *at = row ? r->marks.at[row - r->table->rows] : NULL;
    return at ? at : item;
}

static bool is_set(const lar_map_reader *r, const char *path) { return mark(r, path, NULL) != NULL; }

static lar_error fail_item(lar_loader *l, const lar_map_reader *r, const lar_yaml_node *item, const char *path,
                           const char *why) {
    char what[64];
    (void)snprintf(what, sizeof what, "%s%s%s", r->what, *path ? "." : "", path);
    return lar_loader_fail_at(l, mark(r, path, item), what, why);
}

static lar_error begin_list(lar_loader *l, const lar_yaml_node *list, const char *what, size_t item_bytes, void **out) {
    if (lar_yaml_is_empty(list)) return LAR_OK;
    if (list->kind != LAR_YAML_LIST)
        return lar_loader_fail_at(l, list, what, "must be a list: lines that begin with '-'");
    *out = lar_arena_zalloc(&l->config->arena, (list->count + 1) * item_bytes);
    return *out ? LAR_OK : out_of_memory(l);
}

/* "upstreams[3]", from 0 as the file's readers of other programs know it. */
static const char *item_name(lar_loader *l, const char *list, uint32_t i) {
    lar_slice s = lar_arena_printf(&l->scratch, "%s[%u]", list, (unsigned)i);
    return s.ptr ? s.ptr : list;
}

/* -- listeners ------------------------------------------------------------------------------------- */

static lar_error add_listen(lar_loader *l, lar_slice text, const lar_yaml_node *at, const char *origin) {
    lar_config *c = l->config;
    lar_listen_config *new = &c->listens[c->listen_count];
    lar_diag why = {0};
    lar_error e = lar_listen_parse(text, &c->arena, new, &why);
    if (e == LAR_NO_MEMORY) return out_of_memory(l);
    for (uint32_t i = 0; !e && i < c->listen_count; i++) {
        if (new->port &&new->port == c->listens[i].port && strcmp(new->host, c->listens[i].host) == 0)
            e = lar_fail(LAR_INVALID, &why, "the same address twice");
    }
    if (e) return at ? lar_loader_fail_at(l, at, "listen", why.text) : lar_loader_fail_from(l, origin, why.text);
    c->listen_count++;
    return LAR_OK;
}

static lar_error add_listen_words(lar_loader *l, const char *text, const lar_yaml_node *at, const char *origin) {
    for (const char *p = text; *p;) {
        size_t blanks = strspn(p, " \t"), len = strcspn(p + blanks, " \t");
        lar_error e = len ? add_listen(l, lar_slice_of(p + blanks, len), at, origin) : LAR_OK;
        if (e) return e;
        p += blanks + len;
    }
    return LAR_OK;
}

static lar_error read_listens(lar_loader *l) {
    const lar_yaml_node *node = l->listens.origin ? NULL : l->listen;
    const char *text = l->listens.origin ? l->listens.text : "127.0.0.1:8080";
    const char *origin = l->listens.origin ? l->listens.origin : "listen";
    if (node && lar_yaml_is_empty(node)) node = NULL;
    size_t most = node ? (node->kind == LAR_YAML_LIST ? node->count : node->text.len) + 1 : strlen(text);
    l->config->listens = lar_arena_zalloc(&l->config->arena, (most + 1) * sizeof *l->config->listens);
    if (!l->config->listens) return out_of_memory(l);
    if (!node) return add_listen_words(l, text, NULL, origin);
    if (node->kind == LAR_YAML_MAP)
        return lar_loader_fail_at(l, node, "listen", "must be an address or a list of addresses");
    if (node->kind == LAR_YAML_SCALAR) return add_listen_words(l, node->text.ptr, node, NULL);
    for (const lar_yaml_node *n = node->first; n; n = n->next) {
        lar_error e = n->kind == LAR_YAML_SCALAR ? add_listen(l, n->text, n, NULL)
                                                 : lar_loader_fail_at(l, n, "listen", "must be an address");
        if (e) return e;
    }
    return LAR_OK;
}

/* -- upstreams ------------------------------------------------------------------------------------- */

static lar_error check_name(const char *name, lar_diag *why) {
    size_t len = strlen(name);
    if (len == 0 || len > NAME_BYTES_MAX)
        return lar_fail(LAR_INVALID, why, "must have 1 to %d characters", NAME_BYTES_MAX);
    for (const char *p = name; *p; p++) {
        bool ok =
            (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("._:-", *p);
        if (!ok) return lar_fail(LAR_INVALID, why, "only letters, digits and . _ : - are allowed");
    }
    return LAR_OK;
}

/* "tiny-v3" of "models/tiny-v3/" and of "models/tiny-v3.gguf". */
static lar_slice last_part(const char *path) {
    lar_slice p = lar_slice_cstr(path);
    while (p.len > 1 && p.ptr[p.len - 1] == '/') p.len--;
    size_t from = p.len;
    while (from > 0 && p.ptr[from - 1] != '/') from--;
    p = lar_slice_of(p.ptr + from, p.len - from);
    if (p.len > 5 && lar_slice_ieq(lar_slice_of(p.ptr + p.len - 5, 5), LAR_SLICE(".gguf"))) p.len -= 5;
    return p.len && p.ptr[0] != '.' ? p : LAR_SLICE("model");
}

static lar_error take_engine(lar_loader *l, const lar_upstream_raw *raw, lar_upstream_config *u, const char **field,
                             lar_diag *why) {
    *field = "engine.model";
    if (!*raw->engine_model) return lar_fail(LAR_INVALID, why, "is missing; name the model's folder or .gguf file");
    *field = "engine.spill";
    if (raw->engine_spill_bytes && !*l->config->store_dir)
        return lar_fail(LAR_INVALID, why, "needs store.dir: the pages are kept below it");
    if (raw->engine_spill_bytes && raw->engine_spill_bytes < SPILL_BYTES_LEAST)
        return lar_fail(LAR_INVALID, why, "is out of range: 0, or 1MiB at least");
    lar_slice name =
        lar_arena_copy(&l->config->arena, *raw->engine_served_name ? lar_slice_cstr(raw->engine_served_name)
                                                                   : last_part(raw->engine_model));
    if (!name.ptr) return LAR_NO_MEMORY;
    *field = "engine.served_name";
    if (name.len > MODEL_BYTES_MAX) return lar_fail(LAR_INVALID, why, "must have 1 to %d bytes", MODEL_BYTES_MAX);
    u->url = (lar_url){.host = "", .path = "", .authority = ""};
    u->engine = (lar_engine_config){.model = raw->engine_model,
                                    .served_name = name.ptr,
                                    .kv = raw->engine_kv,
                                    .start = (lar_engine_start)raw->engine_start,
                                    .kv_bytes = raw->engine_kv_bytes,
                                    .expert_bytes = raw->engine_expert_bytes,
                                    .spill_bytes = raw->engine_spill_bytes,
                                    .sequences = raw->engine_sequences,
                                    .context = raw->engine_context,
                                    .queue = raw->engine_queue,
                                    .queue_wait_ms = raw->engine_queue_wait_ms,
                                    .gap_ms = raw->engine_gap_ms,
                                    .pass_tokens = raw->engine_pass_tokens,
                                    .threads = raw->engine_threads,
                                    .niceness = raw->engine_niceness,
                                    .pin_ms = raw->engine_pin_ms,
                                    .keep_warm = raw->engine_keep_warm};
    return LAR_OK;
}

static lar_error take_key_of(lar_loader *l, const lar_upstream_raw *raw, const char **key, lar_diag *why) {
    lar_slice found = LAR_SLICE("");
    lar_error e = LAR_OK;
    if (*raw->key_env && *raw->key_file) return lar_fail(LAR_INVALID, why, "give key_env or key_file, not both");
    if (*raw->key_env) e = lar_secret_from_env(raw->key_env, &l->config->arena, &found, why);
    else if (*raw->key_file) e = lar_secret_from_file(raw->key_file, &l->config->arena, &found, why);
    *key = e ? "" : found.ptr;
    return e;
}

/* The part that only one kind has: where requests go, and who answers them. */
static lar_error take_kind(lar_loader *l, const lar_upstream_raw *raw, lar_upstream_config *u, const char **field,
                           lar_diag *why) {
    u->kind = (lar_upstream_kind)raw->kind;
    u->key = "";
    u->engine = (lar_engine_config){.model = "", .served_name = "", .kv = ""};
    if (u->kind == LAR_UPSTREAM_KIND_ENGINE) {
        u->profile = LAR_PROFILE_LARDER;
        return take_engine(l, raw, u, field, why);
    }
    *field = "url";
    lar_error e = lar_url_parse(lar_slice_cstr(raw->url), &l->config->arena, &u->url, why);
    if (e) return e;
    u->profile = raw->profile == PROFILE_AUTO ? lar_profile_of_host(u->url.host) : (lar_profile)(raw->profile - 1);
    *field = *raw->key_env ? "key_env" : "key_file";
    return take_key_of(l, raw, &u->key, why);
}

static const char *own_name(const lar_upstream_config *u) {
    return u->kind == LAR_UPSTREAM_KIND_ENGINE ? u->engine.served_name : u->url.host;
}

/* Name of the field that is wrong in *field. */
static lar_error take_upstream(lar_loader *l, const lar_upstream_raw *raw, lar_upstream_config *u, const char **field,
                               lar_diag *why) {
    lar_error e = take_kind(l, raw, u, field, why);
    if (e) return e;
    *field = "name";
    u->name = *raw->name ? raw->name : own_name(u);
    /* an address literal is a good name, too */
    e = *raw->name || u->kind == LAR_UPSTREAM_KIND_ENGINE ? check_name(u->name, why) : LAR_OK;
    if (e) return e;
    for (uint32_t i = 0; i < l->config->upstream_count; i++) {
        if (strcmp(u->name, l->config->upstreams[i].name) == 0)
            return lar_fail(LAR_INVALID, why, "another upstream has this name already; give each a name of its own");
    }
    u->ca_file = raw->ca_file;
    u->connect_timeout_ms = raw->connect_timeout_ms;
    u->first_byte_timeout_ms = raw->first_byte_timeout_ms;
    u->first_event_timeout_ms = raw->first_event_timeout_ms;
    u->idle_timeout_ms = raw->idle_timeout_ms;
    u->total_timeout_ms = raw->total_timeout_ms;
    u->pool_idle_ms = raw->pool_idle_ms;
    u->pool_connections_max = raw->pool_connections_max;
    u->connections_max = raw->connections_max;
    u->queue_max = raw->queue_max;
    u->dns_ttl_ms = raw->dns_ttl_ms;
    u->inject_usage = (int)raw->inject_usage - 1;
    u->group = u->name;
    *field = "breaker.open";
    e = lar_loader_take_health(raw, u, why);
    if (e) return e;
    *field = "probe.path";
    return lar_loader_take_probe(raw, u, why);
}

/* The first option that was given and does nothing for this kind of upstream, which nobody may believe it does. NULL:
 * there is none. */
static const lar_option_row *idle_option(const lar_map_reader *r, uint32_t kind) {
    lar_option_kinds own = kind == LAR_UPSTREAM_KIND_ENGINE ? LAR_OPTION_KINDS_ENGINE : LAR_OPTION_KINDS_HTTP;
    for (uint32_t i = 0; i < r->table->count; i++) {
        const lar_option_row *row = &r->table->rows[i];
        if (r->marks.at[i] && row->kinds != LAR_OPTION_KINDS_ANY && row->kinds != own) return row;
    }
    return NULL;
}

static lar_error check_kind(lar_loader *l, const lar_map_reader *r, const lar_yaml_node *item, uint32_t kind) {
    const lar_option_row *idle = idle_option(r, kind);
    if (!idle) return LAR_OK;
    return fail_item(l, r, item, idle->path,
                     kind == LAR_UPSTREAM_KIND_ENGINE ? "does nothing for an upstream of `kind: engine`"
                                                      : "is for upstreams of `kind: engine` only");
}

/* How to probe, without a word on what to ask for. */
static lar_error check_probe(lar_loader *l, const lar_map_reader *r, const lar_yaml_node *item) {
    static const char *const how[] = {"probe.every", "probe.timeout"};
    for (unsigned i = 0; !is_set(r, "probe.path") && i < sizeof how / sizeof *how; i++)
        if (is_set(r, how[i])) return fail_item(l, r, item, how[i], "does nothing without probe.path");
    return LAR_OK;
}

static lar_error read_upstreams(lar_loader *l) {
    void *items = NULL;
    lar_error e = l->upstreams ? begin_list(l, l->upstreams, "upstreams", sizeof(lar_upstream_config), &items) : LAR_OK;
    if (e || !items) return e;
    lar_config *c = l->config;
    const char **urls = lar_arena_zalloc(&l->scratch, l->upstreams->count * sizeof *urls);
    const lar_yaml_node **at = lar_arena_zalloc(&l->scratch, l->upstreams->count * sizeof *at);
    if (!urls || !at) return out_of_memory(l);
    c->upstreams = items;
    for (const lar_yaml_node *n = l->upstreams->first; n; n = n->next) {
        lar_upstream_raw raw;
        lar_map_reader r = {.table = lar_option_upstream(),
                            .base = &raw,
                            .what = item_name(l, "upstreams", c->upstream_count)};
        if (c->upstream_count == UPSTREAMS_MAX) return lar_loader_fail_at(l, n, "upstreams", "too many upstreams");
        if (lar_option_defaults(r.table, &raw, &c->arena)) return out_of_memory(l);
        e = lar_loader_read_map(l, &r, n);
        if (!e) e = check_kind(l, &r, n, raw.kind);
        if (!e) e = check_probe(l, &r, n);
        if (e) return e;
        const char *field = "";
        lar_diag why = {0};
        lar_upstream_config *u = &c->upstreams[c->upstream_count];
        e = take_upstream(l, &raw, u, &field, &why);
        if (e == LAR_NO_MEMORY) return out_of_memory(l);
        if (e) return fail_item(l, &r, n, field, why.text);
        urls[c->upstream_count] = raw.replicas;
        at[c->upstream_count++] = mark(&r, "replicas", n);
    }
    uint32_t i = 0;
    lar_diag why = {0};
    e = lar_loader_add_replicas(l, urls, &i, &why);
    if (e == LAR_NO_MEMORY) return out_of_memory(l);
    return e ? lar_loader_fail_at(l, at[i], "upstreams.replicas", why.text) : LAR_OK;
}

/* The flags of the one upstream, by the name of the field they fill. */
static const lar_loader_given *given_of(const lar_loader *l, const char *field) {
    const struct {
        const char *field;
        const lar_loader_given *given;
    } map[] = {{"url", &l->upstream},
               {"profile", &l->profile},
               {"key_env", &l->key_env},
               {"key_file", &l->key_file},
               {"ca_file", &l->ca_file}};
    for (unsigned i = 0; i < sizeof map / sizeof *map; i++) {
        if (strcmp(map[i].field, field) == 0 && map[i].given->origin) return map[i].given;
    }
    return &l->upstream;
}

/* The one upstream that flags or environment give takes the place of the file's. */
static lar_error begin_given(lar_loader *l, const char *origin, lar_upstream_raw *raw) {
    lar_config *c = l->config;
    if (l->routes && !lar_yaml_is_empty(l->routes))
        return lar_loader_fail_from(
            l, origin, "takes the place of the file's upstreams, but the file has routes to them; drop one of the two");
    c->upstreams = lar_arena_zalloc(&c->arena, sizeof *c->upstreams);
    return c->upstreams && !lar_option_defaults(lar_option_upstream(), raw, &c->arena) ? LAR_OK : out_of_memory(l);
}

static lar_error given_model(lar_loader *l) {
    const char *origin = l->model.origin, *field = "";
    lar_upstream_raw raw;
    lar_diag why = {0};
    if (l->upstream.origin)
        return lar_loader_fail_from(l, origin, "goes without --upstream: each makes the one upstream");
    lar_error e = begin_given(l, origin, &raw);
    if (e) return e;
    raw.kind = LAR_UPSTREAM_KIND_ENGINE;
    raw.engine_model = lar_arena_copy(&l->config->arena, lar_slice_cstr(l->model.text)).ptr;
    e = raw.engine_model ? take_upstream(l, &raw, l->config->upstreams, &field, &why) : LAR_NO_MEMORY;
    if (e == LAR_NO_MEMORY) return out_of_memory(l);
    if (e) return lar_loader_fail_from(l, origin, why.text);
    l->config->upstream_count = 1;
    return LAR_OK;
}

static lar_error given_upstream(lar_loader *l) {
    static const char *const fields[] = {"url", "profile", "key_env", "key_file", "ca_file"};
    lar_config *c = l->config;
    lar_upstream_raw raw;
    const lar_option_table *t = lar_option_upstream();
    lar_diag why = {0};
    lar_error e = begin_given(l, l->upstream.origin, &raw);
    if (e) return e;
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++) {
        const lar_loader_given *g = given_of(l, fields[i]);
        if (g == &l->upstream && i > 0) continue;
        const lar_option_row *row = lar_option_find(t, lar_slice_cstr(fields[i]));
        e = lar_option_set(row, &raw, lar_slice_cstr(g->text), &c->arena, &why);
        if (e == LAR_NO_MEMORY) return out_of_memory(l);
        if (e) return lar_loader_fail_from(l, g->origin, why.text);
    }
    const char *field = "url";
    e = take_upstream(l, &raw, c->upstreams, &field, &why);
    if (e == LAR_NO_MEMORY) return out_of_memory(l);
    if (e) return lar_loader_fail_from(l, given_of(l, field)->origin, why.text);
    c->upstream_count = 1;
    return LAR_OK;
}

static lar_error all_upstreams(lar_loader *l) {
    if (!l->model.origin && l->upstream.origin) return given_upstream(l);
    const lar_loader_given *alone[] = {&l->profile, &l->key_env, &l->key_file, &l->ca_file};
    for (unsigned i = 0; i < sizeof alone / sizeof *alone; i++) {
        if (alone[i]->origin)
            return lar_loader_fail_from(l, alone[i]->origin,
                                        "only goes with an upstream given in the same way (--upstream URL)");
    }
    lar_error e = l->model.origin ? given_model(l) : read_upstreams(l);
    if (e || l->config->upstream_count) return e;
    if (l->upstreams)
        return lar_loader_fail_at(l, l->upstreams, "upstreams", "no upstream; name at least one with its url");
    return lar_fail(LAR_CONFIG, l->diag,
                    "%s%sno upstream is configured; give --upstream URL or --model PATH, or `upstreams:` in the file",
                    l->file, *l->file ? ": " : "");
}

/* -- routes ---------------------------------------------------------------------------------------- */

/* A prefix is compared with the bytes of a path, so it must have one spelling only. */
static lar_error take_prefix(lar_loader *l, const char *text, const char **out, lar_diag *why) {
    lar_slice p = lar_slice_cstr(text);
    if (p.len && p.ptr[0] != '/') return lar_fail(LAR_INVALID, why, "must begin with /");
    while (p.len && p.ptr[p.len - 1] == '/') p.len--;
    for (size_t i = 0; i < p.len; i++) {
        char c = p.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("/-._~", c);
        if (!ok) return lar_fail(LAR_INVALID, why, "only letters, digits and / - . _ ~ are allowed");
        bool starts = c == '/' && i + 1 < p.len;
        if (starts && (p.ptr[i + 1] == '/' || p.ptr[i + 1] == '.'))
            return lar_fail(LAR_INVALID, why, "must not hold // or a segment that begins with a dot");
    }
    p = lar_arena_copy(&l->config->arena, p);
    *out = p.ptr;
    return p.ptr ? LAR_OK : LAR_NO_MEMORY;
}

static lar_error take_route(lar_loader *l, const lar_route_raw *raw, const lar_map_reader *r, const char **field,
                            lar_diag *why) {
    lar_route_config *route = &l->config->routes[l->config->route_count];
    *route = (lar_route_config){.model = raw->model,
                                .header_name = raw->header_name,
                                .header_value = raw->header_value,
                                .pass_through = raw->pass_through,
                                .deadline_ms = raw->deadline_ms,
                                .hold_ms = raw->hold_ms,
                                .hold_bytes = (uint32_t)raw->hold_bytes,
                                .answers_ttl_ms = raw->answers_ttl_ms,
                                .answers_sampled = raw->answers_sampled,
                                .answers_coalesce = raw->answers_coalesce,
                                .canon = (int)raw->canon - 1};
    *field = "prefix";
    lar_error e = take_prefix(l, raw->prefix, &route->prefix, why);
    if (e) return e;
    *field = "pass_through";
    if (raw->pass_through && !is_set(r, "prefix"))
        return lar_fail(LAR_INVALID, why, "needs a prefix; write `prefix: /` to let every path through");
    *field = *raw->header_name ? "header.name" : "header.value";
    if (!*raw->header_name != !*raw->header_value)
        return lar_fail(LAR_INVALID, why, "header needs both name and value");
    if (*raw->header_name && !lar_is_field_name(raw->header_name))
        return lar_fail(LAR_INVALID, why, "is not the name of a header field");
    *field = raw->answers_sampled ? "answers.sampled" : "answers.coalesce";
    if ((raw->answers_sampled || raw->answers_coalesce) && !raw->answers_ttl_ms)
        return lar_fail(LAR_INVALID, why, "does nothing without answers.ttl; set how long answers are kept");
    *field = "upstream";
    e = lar_loader_find_upstream(l, raw->upstream, &route->upstream, why);
    if (e) return e;
    *field = "fallback";
    e = lar_loader_take_fallbacks(l, raw, route, why);
    if (e) return e;
    *field = "continue";
    return lar_loader_take_continue(l, raw, route, why);
}

static lar_error read_routes(lar_loader *l) {
    void *items = NULL;
    lar_error e = l->routes ? begin_list(l, l->routes, "routes", sizeof(lar_route_config), &items) : LAR_OK;
    if (e || !items) return e;
    lar_config *c = l->config;
    c->routes = items;
    for (const lar_yaml_node *n = l->routes->first; n; n = n->next) {
        lar_route_raw raw;
        lar_map_reader r = {.table = lar_option_route(), .base = &raw, .what = item_name(l, "routes", c->route_count)};
        if (lar_option_defaults(r.table, &raw, &c->arena)) return out_of_memory(l);
        e = lar_loader_read_map(l, &r, n);
        if (e) return e;
        const char *field = "";
        lar_diag why = {0};
        e = take_route(l, &raw, &r, &field, &why);
        if (e == LAR_NO_MEMORY) return out_of_memory(l);
        if (e) return fail_item(l, &r, n, field, why.text);
        c->route_count++;
    }
    return LAR_OK;
}

/* -- client keys ----------------------------------------------------------------------------------- */

static bool parse_hex(const char *text, lar_digest *out) {
    static const char hex[] = "0123456789abcdef";
    if (strlen(text) != 2 * sizeof out->bytes) return false;
    for (size_t i = 0; text[i]; i++) {
        char c = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] + 32) : text[i];
        const char *at = strchr(hex, c);
        if (!at) return false;
        unsigned v = (unsigned)(at - hex);
        out->bytes[i / 2] = (uint8_t)(i % 2 ? out->bytes[i / 2] | v : v << 4);
    }
    return true;
}

static lar_error take_key(lar_loader *l, const lar_key_raw *raw, const char **field, lar_diag *why) {
    lar_key_config *key = &l->config->keys[l->config->key_count];
    *field = "tenant";
    lar_error e = check_name(raw->tenant, why);
    if (e) return e;
    key->tenant = raw->tenant;
    *field = *raw->env ? "env" : *raw->file ? "file" : *raw->sha256 ? "sha256" : "";
    if ((*raw->env != 0) + (*raw->file != 0) + (*raw->sha256 != 0) != 1)
        return lar_fail(LAR_INVALID, why, "needs exactly one of env, file and sha256");
    if (*raw->sha256 && !parse_hex(raw->sha256, &key->digest))
        return lar_fail(LAR_INVALID, why, "must be 64 hex digits");
    if (!*raw->sha256) {
        lar_slice secret = {NULL, 0};
        e = *raw->env ? lar_secret_from_env(raw->env, &l->scratch, &secret, why)
                      : lar_secret_from_file(raw->file, &l->scratch, &secret, why);
        if (e) return e;
        key->digest = lar_digest_of(secret);
        lar_secret_wipe(secret);
    }
    for (uint32_t i = 0; i < l->config->key_count; i++) {
        if (lar_digest_eq(&key->digest, &l->config->keys[i].digest))
            return lar_fail(LAR_INVALID, why, "the same key stands in this list already (keys[%u])", (unsigned)i);
    }
    return LAR_OK;
}

static lar_error read_keys(lar_loader *l) {
    void *items = NULL;
    lar_error e = l->keys ? begin_list(l, l->keys, "keys", sizeof(lar_key_config), &items) : LAR_OK;
    if (e || !items) return e;
    lar_config *c = l->config;
    c->keys = items;
    for (const lar_yaml_node *n = l->keys->first; n; n = n->next) {
        lar_key_raw raw;
        lar_map_reader r = {.table = lar_option_key(), .base = &raw, .what = item_name(l, "keys", c->key_count)};
        if (lar_option_defaults(r.table, &raw, &c->arena)) return out_of_memory(l);
        e = lar_loader_read_map(l, &r, n);
        if (e) return e;
        const char *field = "";
        lar_diag why = {0};
        e = take_key(l, &raw, &field, &why);
        if (e == LAR_NO_MEMORY) return out_of_memory(l);
        if (e) return fail_item(l, &r, n, field, why.text);
        c->key_count++;
    }
    return LAR_OK;
}

/* -- aliases --------------------------------------------------------------------------------------- */

static lar_error check_model(const lar_yaml_node *n) {
    return n->kind == LAR_YAML_SCALAR && n->text.len && n->text.len <= 256 && !lar_value_text(n->text, NULL)
               ? LAR_OK
               : LAR_INVALID;
}

static lar_error read_aliases(lar_loader *l) {
    const lar_yaml_node *map = l->aliases;
    if (!map || lar_yaml_is_empty(map)) return LAR_OK;
    if (map->kind != LAR_YAML_MAP)
        return lar_loader_fail_at(l, map, "aliases",
                                  "must be a map of model names: what clients write, what goes upstream");
    lar_config *c = l->config;
    c->aliases = lar_arena_zalloc(&c->arena, (map->count + 1) * sizeof *c->aliases);
    if (!c->aliases) return out_of_memory(l);
    for (const lar_yaml_node *n = map->first; n; n = n->next) {
        if (check_model(n->key))
            return lar_loader_fail_at(l, n->key, "aliases", "must be a model name of 1 to 256 characters");
        if (check_model(n)) return lar_loader_fail_at(l, n, "aliases", "must be a model name of 1 to 256 characters");
        lar_slice a = lar_arena_copy(&c->arena, n->key->text), b = lar_arena_copy(&c->arena, n->text);
        if (!a.ptr || !b.ptr) return out_of_memory(l);
        c->aliases[c->alias_count++] = (lar_alias_config){a.ptr, b.ptr};
    }
    return LAR_OK;
}

lar_error lar_loader_lists(lar_loader *l) {
    lar_error e = read_listens(l);
    if (!e) e = all_upstreams(l);
    if (!e) e = read_routes(l);
    if (!e) e = read_keys(l);
    if (!e) e = read_aliases(l);
    return e;
}
