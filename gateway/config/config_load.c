/* Loads a configuration: defaults, the YAML file, LARDER_* variables, flags; then the lists and the checks.
 * Called at start, by `larder config check` and on a reload; blocks on the disk; any one thread, but nobody may change
 * the environment meanwhile.
 * Invariants: 1. a load that fails leaves nothing behind and touches no running configuration. 2. the first error is
 * reported, with the place it came from. 3. credentials are wiped before their memory is freed.
 * Memory: what is loaded lives in the config's own arena, the file's tree in a scratch arena. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "gateway/config/config_parts.h"
#include "gateway/config/nearest.h"
#include "gateway/config/option_value.h"
#include "gateway/config/secret.h"

enum { LISTS = 5, ARENA_BYTES_MAX = 64 << 20, SHOWN_FILE_BYTES = 120 };

extern char **environ;

static const char *const list_names[LISTS + 1] = {"listen", "upstreams", "routes", "keys", "aliases", NULL};

static const lar_given_row given_rows[] = {
    {"listen", "address", offsetof(lar_loader, listens), NULL,
     "Where clients connect; repeat it for more. Default 127.0.0.1:8080."},
    {"upstream", "URL", offsetof(lar_loader, upstream), NULL, "One upstream, in place of all upstreams of the file."},
    {"model", "path", offsetof(lar_loader, model), NULL,
     "A model that larder runs itself (folder or .gguf), in place of all upstreams of the file."},
    {"profile", "name", offsetof(lar_loader, profile), NULL,
     "generic, deepseek, openai, anthropic, vllm or larder; default: by the host name."},
    {"key-env", "variable", offsetof(lar_loader, key_env), NULL, "Environment variable with the key sent upstream."},
    {"key-file", "file", offsetof(lar_loader, key_file), NULL, "File with the key sent upstream."},
    {"ca-file", "file", offsetof(lar_loader, ca_file), NULL, "PEM certificates to trust for the upstream."},
    {"canon", "mode", 0, "canon.mode", "Short for --canon-mode."},
    {"store", "folder", 0, "store.dir", "Short for --store-dir."},
};
enum { GIVEN_ROWS = sizeof given_rows / sizeof *given_rows };

const lar_given_row *lar_given_rows(uint32_t *count) {
    *count = GIVEN_ROWS;
    return given_rows;
}

static lar_error out_of_memory(lar_loader *l) {
    return lar_fail(LAR_NO_MEMORY, l->diag, "out of memory for the configuration");
}

/* -- the file -------------------------------------------------------------------------------------- */

static lar_error read_file(lar_loader *l, const char *file) {
    lar_buf text;
    lar_diag why = {0};
    lar_buf_init(&text, LAR_YAML_BYTES_MAX);
    const lar_yaml_node *root = NULL;
    lar_error e = lar_file_read(file, LAR_FILE_REGULAR, &text, &why);
    if (e == LAR_NO_MEMORY) e = out_of_memory(l);
    else if (e) e = lar_fail(LAR_CONFIG, l->diag, "%s: the configuration file %s", l->file, why.text);
    else e = lar_yaml_parse(lar_buf_slice(&text), l->file, &l->scratch, &root, l->diag);
    lar_buf_release(&text);
    if (e || !root || lar_yaml_is_empty(root)) return e;
    lar_map_reader r = {.table = lar_option_scalars(), .base = l->config, .what = "", .others = list_names};
    e = lar_loader_read_map(l, &r, root);
    if (e) return e;
    for (uint32_t i = 0; i < r.table->count; i++) {
        const lar_yaml_node *at = r.marks.at[i];
        if (!at) continue;
        l->origin[i] = lar_arena_printf(&l->scratch, "%s:%u:%u: %s", l->file, (unsigned)at->line, (unsigned)at->column,
                                        r.table->rows[i].path)
                           .ptr;
        if (!l->origin[i]) return out_of_memory(l);
    }
    l->listen = r.other[0];
    l->upstreams = r.other[1];
    l->routes = r.other[2];
    l->keys = r.other[3];
    l->aliases = r.other[4];
    return LAR_OK;
}

/* -- flags and environment ------------------------------------------------------------------------- */

static lar_error set_row(lar_loader *l, const lar_option_row *row, lar_slice value, const char *origin) {
    lar_diag why = {0};
    lar_error e = lar_option_set(row, l->config, value, &l->config->arena, &why);
    if (e == LAR_NO_MEMORY) return out_of_memory(l);
    if (e) return lar_loader_fail_from(l, origin, why.text);
    l->origin[row - lar_option_scalars()->rows] = origin;
    return LAR_OK;
}

static lar_error set_given(lar_loader *l, const lar_given_row *row, const char *value, const char *origin) {
    lar_loader_given *g = (void *)((char *)l + row->offset);
    lar_diag why = {0};
    if (lar_value_text(lar_slice_cstr(value), &why)) return lar_loader_fail_from(l, origin, why.text);
    if (!*value) return lar_loader_fail_from(l, origin, "has no value");
    /* Listeners given by flags add up, but flags replace what the environment says. */
    bool more = g == &l->listens && g->origin && strcmp(g->origin, origin) == 0;
    g->text = more ? lar_arena_printf(&l->scratch, "%s %s", g->text, value).ptr : value;
    g->origin = origin;
    return g->text ? LAR_OK : out_of_memory(l);
}

/* '-' and '_' are the same here: environment names know no '-'. */
static const lar_given_row *find_given(lar_slice name) {
    for (unsigned i = 0; i < GIVEN_ROWS; i++) {
        lar_slice row = lar_slice_cstr(given_rows[i].name);
        size_t same = 0;
        while (same < name.len && same < row.len) {
            char c = name.ptr[same] >= 'A' && name.ptr[same] <= 'Z' ? (char)(name.ptr[same] + 32) : name.ptr[same];
            if ((c == '_' ? '-' : c) != row.ptr[same]) break;
            same++;
        }
        if (same == name.len && same == row.len) return &given_rows[i];
    }
    return NULL;
}

static lar_error unknown_option(lar_loader *l, const char *origin, lar_slice name, char dot) {
    lar_nearest n;
    lar_nearest_init(&n, name);
    lar_option_offer(lar_option_scalars(), &n);
    for (unsigned i = 0; i < GIVEN_ROWS; i++) {
        if (!given_rows[i].short_for || dot == '-') lar_nearest_offer(&n, lar_slice_cstr(given_rows[i].name));
    }
    if (dot == '-') { /* the command line's own */
        lar_nearest_offer(&n, LAR_SLICE("config"));
        lar_nearest_offer(&n, LAR_SLICE("help"));
    }
    const lar_given_row *given = find_given(name); /* a short name is a flag's only */
    if (given && given->short_for) n.best = lar_slice_cstr(given->short_for);
    if (!n.best.ptr) return lar_loader_fail_from(l, origin, "no such option; `larder serve --help` lists them");
    char best[64 + 1];
    for (size_t i = 0; i < n.best.len; i++) {
        char c = n.best.ptr[i];
        best[i] = c == '.' || c == '_' || c == '-' ? dot : c;
        if (dot == '_' && best[i] >= 'a' && best[i] <= 'z') best[i] = (char)(best[i] - 32);
    }
    best[n.best.len] = 0;
    return lar_fail(LAR_CONFIG, l->diag, "%s: no such option; did you mean %s%s?", origin,
                    dot == '-' ? "--" : "LARDER_", best);
}

static lar_error take_flags(lar_loader *l, const lar_config_flag *flags, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        lar_slice name = lar_slice_cstr(flags[i].name);
        const char *origin = lar_arena_printf(&l->scratch, "--%s", flags[i].name).ptr;
        if (!origin) return out_of_memory(l);
        const lar_given_row *given = find_given(name);
        const lar_option_row *row = given && given->short_for
                                        ? lar_option_find(lar_option_scalars(), lar_slice_cstr(given->short_for))
                                        : lar_option_find_loose(lar_option_scalars(), name);
        lar_error e;
        if (!flags[i].value) e = lar_loader_fail_from(l, origin, "has no value");
        else if (given && !given->short_for) e = set_given(l, given, flags[i].value, origin);
        else if (row) e = set_row(l, row, lar_slice_cstr(flags[i].value), origin);
        else e = unknown_option(l, origin, name, '-');
        if (e) return e;
    }
    return LAR_OK;
}

static bool contains(lar_slice s, const char *part) {
    return s.len && memmem(s.ptr, s.len, part, strlen(part)) != NULL;
}

static bool ends(lar_slice s, const char *end) {
    size_t n = strlen(end);
    return s.len >= n && memcmp(s.ptr + s.len - n, end, n) == 0;
}

/* Variables that begin with LARDER_ and are not meant for this program: what Kubernetes sets for a service named
 * larder or larder-something, and what the scripts and tests around larder use. */
static bool is_foreign(lar_slice name) {
    static const char *const others[] = {"LARDER_TEST", "LARDER_FUZZ", "LARDER_BENCH", "LARDER_BIN", "LARDER_OPTIONS"};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        if (lar_slice_starts(name, lar_slice_cstr(others[i]))) return true;
    }
    return contains(name, "_SERVICE_HOST") || contains(name, "_SERVICE_PORT") || ends(name, "_PORT") ||
           contains(name, "_PORT_");
}

static bool list_names_variable(const lar_yaml_node *list, const char *member, lar_slice name) {
    for (const lar_yaml_node *item = list ? list->first : NULL; item; item = item->next) {
        for (const lar_yaml_node *n = item->first; n; n = n->next) {
            if (n->key && lar_slice_eq_cstr(n->key->text, member) && lar_slice_eq(n->text, name)) return true;
        }
    }
    return false;
}

/* A variable that holds a key may be called LARDER_something too. */
static bool is_key_variable(const lar_loader *l, lar_slice name) {
    return list_names_variable(l->upstreams, "key_env", name) || list_names_variable(l->keys, "env", name) ||
           (l->key_env.origin && lar_slice_eq_cstr(name, l->key_env.text)) ||
           lar_slice_eq_cstr(name, l->config->shared_password_env) ||
           lar_slice_eq_cstr(name, l->config->shared_secret_env) || lar_slice_eq_cstr(name, l->shared_variables[0]) ||
           lar_slice_eq_cstr(name, l->shared_variables[1]);
}

static lar_error take_variable(lar_loader *l, lar_slice name, const char *value) {
    lar_slice rest = lar_slice_of(name.ptr + 7, name.len - 7); /* behind LARDER_ */
    const lar_given_row *given = find_given(rest);
    const lar_option_row *row = lar_option_find_loose(lar_option_scalars(), rest);
    bool is_given = given && !given->short_for;
    if (!is_given && !row && (is_foreign(name) || is_key_variable(l, name))) return LAR_OK;
    const char *origin = lar_arena_printf(&l->scratch, "environment variable %.*s", LAR_FMT(name)).ptr;
    if (!origin) return out_of_memory(l);
    if (is_given) return set_given(l, given, value, origin);
    if (row) return set_row(l, row, lar_slice_cstr(value), origin);
    return unknown_option(l, origin, rest, '_');
}

/* Which variable holds the key must be known before the variables are looked at: it is no option itself. */
static void find_key_variable(lar_loader *l, const lar_config_flag *flags, uint32_t count) {
    const char *name = getenv("LARDER_KEY_ENV");
    if (name) l->key_env = (lar_loader_given){name, "environment variable LARDER_KEY_ENV"};
    for (uint32_t i = 0; i < count; i++) {
        const lar_given_row *row = find_given(lar_slice_cstr(flags[i].name));
        if (row && row->offset == offsetof(lar_loader, key_env) && flags[i].value)
            l->key_env = (lar_loader_given){flags[i].value, "--key-env"};
    }
}

/* The same for the two of the shared memory. */
static void find_shared_variables(lar_loader *l, const lar_config_flag *flags, uint32_t count) {
    static const char *const paths[2] = {"shared.password_env", "shared.secret_env"};
    l->shared_variables[0] = getenv("LARDER_SHARED_PASSWORD_ENV");
    l->shared_variables[1] = getenv("LARDER_SHARED_SECRET_ENV");
    for (uint32_t i = 0; i < count; i++) {
        const lar_option_row *row = lar_option_find_loose(lar_option_scalars(), lar_slice_cstr(flags[i].name));
        for (int k = 0; k < 2 && row && flags[i].value; k++) {
            if (strcmp(row->path, paths[k]) == 0) l->shared_variables[k] = flags[i].value;
        }
    }
}

static lar_error take_environment(lar_loader *l) {
    for (char **p = environ; p && *p; p++) {
        const char *equals = strchr(*p, '=');
        if (!equals || strncmp(*p, "LARDER_", 7) != 0) continue;
        lar_error e = take_variable(l, lar_slice_of(*p, (size_t)(equals - *p)), equals + 1);
        if (e) return e;
    }
    return LAR_OK;
}

/* -- the load -------------------------------------------------------------------------------------- */

static lar_error keep_sources(lar_config *c, const char *file, const lar_config_flag *flags, uint32_t flag_count) {
    c->source_flags = lar_arena_zalloc(&c->arena, (flag_count + 1) * sizeof *flags);
    if (!c->source_flags) return LAR_NO_MEMORY;
    if (file && !(c->source_file = lar_arena_copy(&c->arena, lar_slice_cstr(file)).ptr)) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < flag_count; i++) {
        const char *name = lar_arena_copy(&c->arena, lar_slice_cstr(flags[i].name)).ptr;
        const char *value = flags[i].value ? lar_arena_copy(&c->arena, lar_slice_cstr(flags[i].value)).ptr : NULL;
        if (!name || (flags[i].value && !value)) return LAR_NO_MEMORY;
        c->source_flags[c->source_flag_count++] = (lar_config_flag){name, value};
    }
    return LAR_OK;
}

static lar_error load(lar_loader *l, const char *file, const lar_config_flag *flags, uint32_t flag_count) {
    lar_error e = lar_option_defaults(lar_option_scalars(), l->config, &l->config->arena);
    if (!e) e = keep_sources(l->config, file, flags, flag_count);
    if (e) return out_of_memory(l);
    if (file) e = read_file(l, file);
    find_key_variable(l, flags, flag_count);
    find_shared_variables(l, flags, flag_count);
    if (!e) e = take_environment(l);
    if (!e) e = take_flags(l, flags, flag_count);
    if (!e) e = lar_loader_lists(l);
    if (!e) e = lar_loader_check(l);
    return e;
}

lar_error lar_config_load(const char *file, const lar_config_flag *flags, uint32_t flag_count, lar_config **out,
                          lar_diag *d) {
    *out = NULL;
    lar_loader l = {.diag = d, .file = ""};
    lar_config *c = calloc(1, sizeof *c);
    if (!c) return lar_fail(LAR_NO_MEMORY, d, "out of memory for the configuration");
    lar_arena_init(&c->arena, ARENA_BYTES_MAX);
    lar_arena_init(&l.scratch, ARENA_BYTES_MAX);
    l.config = c;
    if (file) {
        /* The end of a long path says more than its beginning. */
        size_t len = strlen(file);
        l.file = len > SHOWN_FILE_BYTES ? file + len - SHOWN_FILE_BYTES : file;
    }
    lar_error e = load(&l, file, flags, flag_count);
    lar_arena_release(&l.scratch);
    if (e) lar_config_free(c);
    else *out = c;
    return e;
}

lar_error lar_config_reload(const lar_config *now, lar_config **out, lar_diag *d) {
    return lar_config_load(now->source_file, now->source_flags, now->source_flag_count, out, d);
}

lar_error lar_config_check_flag(const char *name, lar_diag *d) {
    char origin[SHOWN_FILE_BYTES];
    lar_loader l = {.diag = d};
    lar_slice text = lar_slice_cstr(name);
    if (find_given(text) || lar_option_find_loose(lar_option_scalars(), text)) return LAR_OK;
    (void)snprintf(origin, sizeof origin, "--%s", name);
    return unknown_option(&l, origin, text, '-');
}

void lar_config_free(lar_config *c) {
    if (!c) return;
    for (uint32_t i = 0; i < c->upstream_count; i++) lar_secret_wipe(lar_slice_cstr(c->upstreams[i].key));
    lar_secret_wipe(lar_slice_cstr(c->shared_password));
    lar_secret_wipe(lar_slice_cstr(c->shared_secret));
    lar_arena_release(&c->arena);
    free(c);
}
