/* The checks that look at more than one row, at names that must exist, and at files that must open.
 * Called by the loader after all values are there; blocks on the disk.
 * Invariant: what passes here can be served; what could only fail later at a request is refused now. */
#include <stdio.h>

#include "base/file.h"
#include "gateway/config/config_parts.h"
#include "gateway/config/secret.h"
#include "policies/edition.h"

enum { PEM_BYTES_MAX = 16 << 20 };

/* The origin of a row's value, or the row's own name where it is the default. */
static const char *origin_of(const lar_loader *l, const char *path) {
    const lar_option_table *t = lar_option_scalars();
    const lar_option_row *row = lar_option_find(t, lar_slice_cstr(path));
    const char *origin = row ? l->origin[row - t->rows] : NULL;
    return origin ? origin : path;
}

static lar_error fail_row(lar_loader *l, const char *path, const char *why) {
    return lar_loader_fail_from(l, origin_of(l, path), why);
}

bool lar_is_field_name(const char *text) {
    for (const char *p = text; *p; p++) {
        bool ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                  strchr("!#$%&'*+-.^_`|~", *p);
        if (!ok) return false;
    }
    return *text != 0;
}

/* The next word of a list separated by blanks; false at its end. */
static bool next_word(const char **rest, lar_slice *word) {
    *rest += strspn(*rest, " \t");
    *word = lar_slice_of(*rest, strcspn(*rest, " \t"));
    *rest += word->len;
    return word->len > 0;
}

static lar_error read_rules(lar_loader *l, const char *path, const char *text, uint64_t *bits) {
    lar_slice word;
    for (const char *rest = text; next_word(&rest, &word);) {
        lar_rule r = lar_rule_find(word);
        if (r != LAR_RULE_COUNT && lar_rule_mode_of(r) == LAR_RULE_MODE_LINT)
            return fail_row(l, path, "a rule that only `larder lint` reports: it never edits");
        if (r != LAR_RULE_COUNT) {
            *bits |= 1ull << r;
            continue;
        }
        lar_nearest n;
        lar_nearest_init(&n, word);
        lar_nearest_offer_rules(&n);
        char why[120];
        (void)snprintf(why, sizeof why, "unknown rule%s%.*s%s",
                       n.best.ptr ? "; did you mean " : "; `larder rules` lists them", (int)n.best.len,
                       n.best.ptr ? n.best.ptr : "", n.best.ptr ? "?" : "");
        return fail_row(l, path, why);
    }
    return LAR_OK;
}

/* rules_off has the last word. */
static lar_error check_rules(lar_loader *l) {
    uint64_t on = 0, off = 0;
    lar_error e = read_rules(l, "canon.rules_on", l->config->rules_on, &on);
    if (!e) e = read_rules(l, "canon.rules_off", l->config->rules_off, &off);
    l->config->rules_off_bits = (lar_rules_off_default() & ~on) | off;
    return e;
}

/* There is one set of rules in a program: a pin on another edition cannot be kept, only told what it would cost. */
static lar_error check_edition(lar_loader *l) {
    lar_slice pin = lar_slice_cstr(l->config->edition);
    if (!pin.len || lar_slice_eq_cstr(pin, LAR_EDITION)) return LAR_OK;
    if (!lar_edition_known(pin))
        return fail_row(l, "edition",
                        "this program does not know that edition; it acts as " LAR_EDITION
                        " (`larder fingerprint`): run the larder it belongs to, or pin what this one is");
    lar_edition_change changes[LAR_EDITION_ROWS_MAX];
    lar_buf b;
    lar_buf_init(&b, 4096);
    uint32_t n = lar_edition_diff(pin, changes);
    lar_error e = lar_edition_changes_text(changes, n, &b);
    char why[280];
    (void)snprintf(why, sizeof why,
                   "this program acts as " LAR_EDITION " only; would miss once what these touch: %.*s%s (`larder "
                   "fingerprint`). Run the larder of that edition, or pin " LAR_EDITION,
                   (int)(b.len < 100 ? b.len : 100), b.len ? b.ptr : "", b.len < 100 ? "" : "...");
    lar_buf_release(&b);
    return e ? lar_fail(e, l->diag, "out of memory for the configuration") : fail_row(l, "edition", why);
}

static lar_error check_output(lar_loader *l) {
    const lar_config *c = l->config;
    if (!c->output_on_disk || (*c->store_dir && c->output_bytes_max)) return LAR_OK;
    return fail_row(l, "canon.output_on_disk", *c->store_dir ? "canon.output_bytes is 0" : "store.dir is not set");
}

/* Where nothing is canonicalised there are no prefixes to keep warm. */
static lar_error check_warmth(lar_loader *l) {
    const lar_config *c = l->config;
    bool any = c->canon != LAR_CANON_OFF;
    for (uint32_t i = 0; i < c->route_count; i++) any |= c->routes[i].canon > LAR_CANON_OFF;
    for (uint32_t i = 0; !any && i < c->upstream_count; i++) {
        if (!c->upstreams[i].engine.keep_warm) continue;
        char origin[200];
        (void)snprintf(origin, sizeof origin, "engine.keep_warm of upstream %s", c->upstreams[i].name);
        return lar_loader_fail_from(l, origin, "does nothing while canon.mode is off; report is enough");
    }
    return LAR_OK;
}

/* An origin is scheme://host[:port] and nothing else (RFC 6454 6.1): "null" or a path would never match one. */
static lar_error check_cors(lar_loader *l) {
    lar_slice word;
    for (const char *rest = l->config->cors_origins; next_word(&rest, &word);) {
        if (lar_slice_eq_cstr(word, "*")) continue;
        lar_url url;
        lar_diag why = {0};
        lar_error e = lar_url_parse(word, &l->scratch, &url, &why);
        if (e == LAR_NO_MEMORY) return lar_fail(e, l->diag, "out of memory for the configuration");
        if (e) return fail_row(l, "cors.origins", why.text);
        if (word.ptr[word.len - 1] == '/' || *url.path)
            return fail_row(l, "cors.origins",
                            "an origin is a scheme, a host and a port, without a path or a slash at the end");
    }
    return LAR_OK;
}

static lar_error check_hosts(lar_loader *l) {
    lar_slice word;
    for (const char *rest = l->config->hosts; next_word(&rest, &word);) {
        for (size_t i = 0; i < word.len; i++) {
            char c = word.ptr[i];
            bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      strchr(word.ptr[0] == '[' ? ".:[]" : "-._", c);
            if (!ok && !lar_slice_eq_cstr(word, "*"))
                return fail_row(l, "hosts", "must be host names without scheme, port and path, or a single '*'");
        }
    }
    return LAR_OK;
}

static lar_error check_admin(lar_loader *l) {
    if (strcmp(l->config->admin_listen, "off") == 0) return LAR_OK;
    lar_listen_config admin;
    lar_diag why = {0};
    lar_error e = lar_listen_parse(lar_slice_cstr(l->config->admin_listen), &l->scratch, &admin, &why);
    if (e == LAR_NO_MEMORY) return lar_fail(e, l->diag, "out of memory for the configuration");
    if (e) return fail_row(l, "admin.listen", why.text);
    for (uint32_t i = 0; i < l->config->listen_count; i++) {
        const lar_listen_config *c = &l->config->listens[i];
        if (admin.port && admin.port == c->port && strcmp(admin.host, c->host) == 0)
            return fail_row(
                l, "admin.listen",
                "clients connect to this address already; the admin listener needs one of its own, or 'off'");
    }
    return LAR_OK;
}

/* The path itself is not shown: a key may have been pasted here. */
static lar_error check_file(lar_loader *l, const char *origin, const char *path) {
    lar_buf text;
    lar_diag why = {0};
    lar_buf_init(&text, PEM_BYTES_MAX);
    lar_error e = lar_buf_reserve(&text, PEM_BYTES_MAX); /* all at once: growing would leave copies of a key behind */
    if (e) return lar_fail(e, l->diag, "out of memory for the configuration");
    e = lar_file_read(path, LAR_FILE_REGULAR, &text, &why);
    lar_secret_wipe(lar_buf_slice(&text));
    lar_buf_release(&text);
    if (!e) return LAR_OK;
    char line[160];
    (void)snprintf(line, sizeof line, "the file named here %.120s", why.text);
    return lar_loader_fail_from(l, origin, line);
}

static lar_error check_files(lar_loader *l) {
    const lar_config *c = l->config;
    if (*c->tls_cert && !*c->tls_key) return fail_row(l, "tls.cert", "needs tls.key too");
    if (*c->tls_key && !*c->tls_cert) return fail_row(l, "tls.key", "needs tls.cert too");
    lar_error e = LAR_OK;
    if (*c->tls_cert) e = check_file(l, origin_of(l, "tls.cert"), c->tls_cert);
    if (!e && *c->tls_key) e = check_file(l, origin_of(l, "tls.key"), c->tls_key);
    for (uint32_t i = 0; !e && i < c->upstream_count; i++) {
        if (!*c->upstreams[i].ca_file) continue;
        char origin[200];
        (void)snprintf(origin, sizeof origin, "ca_file of upstream %s", c->upstreams[i].name);
        e = check_file(l, origin, c->upstreams[i].ca_file);
    }
    return e;
}

/* A secret of the shared memory, by variable or file. *out is "" if neither is given. */
static lar_error read_shared_secret(lar_loader *l, const char *path, const char *env, const char *file,
                                    const char **out) {
    *out = "";
    lar_slice text = {NULL, 0};
    lar_diag why = {0};
    lar_error e = LAR_OK;
    if (*env && *file) return fail_row(l, path, "a variable and a file are given; only one of them can be meant");
    if (*env) e = lar_secret_from_env(env, &l->config->arena, &text, &why);
    if (*file) e = lar_secret_from_file(file, &l->config->arena, &text, &why);
    if (e == LAR_NO_MEMORY) return lar_fail(e, l->diag, "out of memory for the configuration");
    if (e) return fail_row(l, path, why.text);
    if (text.ptr) *out = text.ptr;
    return LAR_OK;
}

enum { SHARED_PREFIX_BYTES_MAX = 64, SHARED_SECRET_BYTES_MIN = 16 };

static lar_error check_prefix(lar_loader *l) {
    const char *p = l->config->shared_prefix;
    if (strlen(p) > SHARED_PREFIX_BYTES_MAX) return fail_row(l, "shared.prefix", "is longer than 64 bytes");
    for (; *p; p++) {
        if (*p <= ' ' || *p >= 0x7f) return fail_row(l, "shared.prefix", "must be printable ASCII without blanks");
    }
    return LAR_OK;
}

static lar_error check_shared(lar_loader *l) {
    lar_config *c = l->config;
    c->shared = (lar_shared_url){.socket = "", .host = "", .user = "", .text = ""};
    c->shared_password = c->shared_secret = "";
    if (!*c->shared_url) return LAR_OK;
    lar_diag why = {0};
    lar_error e = lar_shared_url_parse(lar_slice_cstr(c->shared_url), &c->arena, &c->shared, &why);
    if (e == LAR_NO_MEMORY) return lar_fail(e, l->diag, "out of memory for the configuration");
    if (e) return fail_row(l, "shared.url", why.text);
    e = read_shared_secret(l, *c->shared_password_env ? "shared.password_env" : "shared.password_file",
                           c->shared_password_env, c->shared_password_file, &c->shared_password);
    if (!e)
        e = read_shared_secret(l, *c->shared_secret_env ? "shared.secret_env" : "shared.secret_file",
                               c->shared_secret_env, c->shared_secret_file, &c->shared_secret);
    if (!e && *c->shared.user && !*c->shared_password)
        e = fail_row(l, "shared.url",
                     "names a user; give the password with shared.password_env or shared.password_file");
    if (!e && *c->shared_secret && strlen(c->shared_secret) < SHARED_SECRET_BYTES_MIN)
        e = fail_row(l, *c->shared_secret_env ? "shared.secret_env" : "shared.secret_file",
                     "the secret has fewer than 16 characters; `openssl rand -hex 32` makes a good one");
    if (!e && *c->shared_ca_file && !c->shared.tls)
        e = fail_row(l, "shared.ca_file", "is only for a server that is spoken to with TLS (rediss://)");
    if (!e) e = check_prefix(l);
    return e;
}

lar_error lar_loader_check(lar_loader *l) {
    const lar_config *c = l->config;
    if (c->body_bytes_max > c->buffer_bytes_max)
        return fail_row(l, "limits.body_bytes", "is over limits.buffer_bytes: such a body could never be taken");
    if (*c->scope_header && !lar_is_field_name(c->scope_header))
        return fail_row(l, "canon.scope_header", "is not the name of a header field");
    lar_error e = check_rules(l);
    if (!e) e = check_edition(l);
    if (!e) e = check_output(l);
    if (!e) e = check_warmth(l);
    if (!e) e = check_cors(l);
    if (!e) e = check_hosts(l);
    if (!e) e = check_admin(l);
    if (!e) e = check_files(l);
    if (!e) e = check_shared(l);
    if (!e && *c->shared_ca_file) e = check_file(l, origin_of(l, "shared.ca_file"), c->shared_ca_file);
    return e;
}
