/* .larder-lint.yaml: which rules count where.
 *
 *     provider: deepseek
 *     severity: warning
 *     select: [LR0, LR1]
 *     ignore: [LR109]
 *     baseline: .larder-baseline.json     # beside this file
 *     paths:
 *       - {glob: "old-*", ignore: [LR001, LR005]}
 *
 * Called by lint_main.c for each file; blocks on files; one thread. The nearest file upwards counts, alone. Of several
 * globs that match, all count, in order. Memory: each configuration once, in an arena. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "gateway/commands/lint_command.h"
#include "gateway/config/nearest.h"
#include "gateway/config/yaml_tree.h"

enum { CONFIGS_MAX = 4096, ARENA_BYTES_MAX = 64 << 20, PATH_BYTES = 4096 };
static const char name_of_file[] = ".larder-lint.yaml";

typedef struct loaded {
    char folder[PATH_BYTES]; /* of the files that it speaks of; it begins their paths */
    const lar_yaml_node *root;
    const char *baseline;
    const lar_provider *provider;
    lar_lint_rules rules;
    bool none; /* there is no file up from here */
} loaded;

struct lar_lint_config {
    const lar_lint_args *args;
    lar_arena arena;
    loaded *list[CONFIGS_MAX];
    uint32_t count;
};

lar_lint_config *lar_lint_config_new(const lar_lint_args *a) {
    lar_lint_config *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->args = a;
    lar_arena_init(&c->arena, ARENA_BYTES_MAX);
    return c;
}

void lar_lint_config_free(lar_lint_config *c) {
    if (!c) return;
    lar_arena_release(&c->arena);
    free(c);
}

/* -- values -------------------------------------------------------------------------------------------- */

typedef struct reading {
    const char *file;
    lar_diag *d;
} reading;

static lar_error fail(const reading *r, const lar_yaml_node *n, const char *what) {
    return lar_fail(LAR_CONFIG, r->d, "%s:%u:%u: %s", r->file, (unsigned)n->line, (unsigned)n->column, what);
}

static lar_error read_rules(const reading *r, const lar_yaml_node *list, uint64_t *rules) {
    if (list->kind == LAR_YAML_SCALAR)
        return lar_lint_rules_named(list->text, rules) ? LAR_OK
                                                       : fail(r, list, "no such rule; larder lint --list-rules");
    if (list->kind != LAR_YAML_LIST) return fail(r, list, "a list of rules is wanted: [LR001, LR1]");
    for (const lar_yaml_node *n = list->first; n; n = n->next) {
        if (n->kind != LAR_YAML_SCALAR || !lar_lint_rules_named(n->text, rules))
            return fail(r, n, "no such rule; larder lint --list-rules lists them");
    }
    return LAR_OK;
}

/* select, ignore and severity; *known is false for any other name. */
static lar_error read_common(const reading *r, const lar_yaml_node *n, lar_lint_rules *rules, bool *known) {
    *known = true;
    if (lar_slice_eq_cstr(n->key->text, "select")) {
        rules->has_selected = true;
        return read_rules(r, n, &rules->selected);
    }
    if (lar_slice_eq_cstr(n->key->text, "ignore")) return read_rules(r, n, &rules->ignored);
    if (lar_slice_eq_cstr(n->key->text, "severity")) {
        rules->has_least = true;
        return n->kind == LAR_YAML_SCALAR && lar_lint_severity_named(n->text, &rules->least)
                   ? LAR_OK
                   : fail(r, n, "info, warning or error is wanted");
    }
    *known = false;
    return LAR_OK;
}

static lar_error unknown(const reading *r, const lar_yaml_node *n, const char *const *names) {
    lar_nearest near;
    char why[120];
    lar_nearest_init(&near, n->key->text);
    for (; *names; names++) lar_nearest_offer(&near, lar_slice_cstr(*names));
    if (!near.best.ptr) return fail(r, n->key, "no such option");
    (void)snprintf(why, sizeof why, "no such option; did you mean %s?", near.best.ptr);
    return fail(r, n->key, why);
}

static lar_error read_path(const reading *r, const lar_yaml_node *path) {
    static const char *const names[] = {"glob", "select", "ignore", "severity", NULL};
    if (path->kind != LAR_YAML_MAP) return fail(r, path, "{glob: ..., ignore: [...]} is wanted");
    bool has_glob = false;
    for (const lar_yaml_node *n = path->first; n; n = n->next) {
        lar_lint_rules unused = {0};
        bool known;
        lar_error e = read_common(r, n, &unused, &known);
        if (e) return e;
        if (known) continue;
        if (!lar_slice_eq_cstr(n->key->text, "glob")) return unknown(r, n, names);
        if (n->kind != LAR_YAML_SCALAR || !n->text.len) return fail(r, n, "a pattern is wanted");
        has_glob = true;
    }
    return has_glob ? LAR_OK : fail(r, path, "glob is missing: which files are meant?");
}

static lar_error read_top(lar_lint_config *c, const reading *r, loaded *to) {
    static const char *const names[] = {"provider", "severity", "select", "ignore", "baseline", "paths", NULL};
    if (!to->root) return LAR_OK;
    if (to->root->kind != LAR_YAML_MAP) return fail(r, to->root, "a map of options is wanted");
    for (const lar_yaml_node *n = to->root->first; n; n = n->next) {
        bool known;
        lar_error e = read_common(r, n, &to->rules, &known);
        if (e) return e;
        if (known) continue;
        bool text = n->kind == LAR_YAML_SCALAR && n->text.len;
        if (lar_slice_eq_cstr(n->key->text, "provider")) {
            to->provider = text ? lar_provider_find(n->text) : NULL;
            if (!to->provider) return fail(r, n, "no such provider");
        } else if (lar_slice_eq_cstr(n->key->text, "baseline")) {
            if (!text) return fail(r, n, "the name of a file is wanted");
            bool absolute = n->text.ptr[0] == '/' || !to->folder[0];
            to->baseline = absolute ? n->text.ptr : lar_arena_printf(&c->arena, "%s%s", to->folder, n->text.ptr).ptr;
            if (!to->baseline) return LAR_NO_MEMORY;
        } else if (lar_slice_eq_cstr(n->key->text, "paths")) {
            if (n->kind != LAR_YAML_LIST) return fail(r, n, "a list of {glob: ..., ignore: [...]} is wanted");
            for (const lar_yaml_node *p = n->first; p && !e; p = p->next) e = read_path(r, p);
            if (e) return e;
        } else return unknown(r, n, names);
    }
    return LAR_OK;
}

/* -- files --------------------------------------------------------------------------------------------- */

static lar_error load(lar_lint_config *c, const char *path, const char *folder, loaded **out, lar_diag *d) {
    for (uint32_t i = 0; i < c->count; i++) {
        *out = c->list[i];
        if (strcmp((*out)->folder, folder) == 0 && !(*out)->none) return LAR_OK;
    }
    if (c->count == CONFIGS_MAX) return lar_fail(LAR_LIMIT, d, "more than %d configurations", CONFIGS_MAX);
    loaded *to = lar_arena_zalloc(&c->arena, sizeof *to);
    if (!to) return LAR_NO_MEMORY;
    (void)snprintf(to->folder, sizeof to->folder, "%s", folder);
    lar_buf text;
    lar_diag why = {0};
    lar_buf_init(&text, LAR_YAML_BYTES_MAX);
    lar_error e = lar_file_read(path, LAR_FILE_OR_STREAM, &text, &why);
    if (e) e = lar_fail(LAR_CONFIG, d, "%s: %s", path, why.text);
    reading r = {lar_arena_copy(&c->arena, lar_slice_cstr(path)).ptr, d};
    if (!e && !r.file) e = LAR_NO_MEMORY;
    if (!e) e = lar_yaml_parse(lar_buf_slice(&text), r.file, &c->arena, &to->root, d);
    lar_buf_release(&text);
    if (!e) e = read_top(c, &r, to);
    if (e) return e;
    c->list[c->count++] = to;
    *out = to;
    return LAR_OK;
}

/* The folder of `file` in full, with a slash at its end: a name from the command line, or standard input, may be one
 * that is not there. */
static bool folder_of(const char *file, char out[PATH_BYTES]) {
    char copy[PATH_BYTES], full[PATH_MAX];
    int n = snprintf(copy, sizeof copy, "%s", file);
    if (n < 0 || n >= (int)sizeof copy) return false;
    char *slash = strrchr(copy, '/');
    if (slash) slash[slash == copy] = 0;
    if (!realpath(slash ? copy : ".", full)) return false;
    n = snprintf(out, PATH_BYTES, "%s%s", full, full[1] ? "/" : "");
    return n > 0 && n < PATH_BYTES;
}

static lar_error find(lar_lint_config *c, const char *file, loaded **out, lar_diag *d) {
    char folder[PATH_BYTES], path[PATH_BYTES + sizeof name_of_file];
    *out = NULL;
    if (c->args->no_config) return LAR_OK;
    if (c->args->config) {
        if (!folder_of(c->args->config, folder)) folder[0] = 0;
        return load(c, c->args->config, folder, out, d);
    }
    if (!folder_of(file, folder)) return LAR_OK;
    for (;;) {
        struct stat st;
        (void)snprintf(path, sizeof path, "%s%s", folder, name_of_file);
        if (stat(path, &st) == 0) return load(c, path, folder, out, d);
        size_t n = strlen(folder);
        if (n <= 1) return LAR_OK;
        for (n--; n > 0 && folder[n - 1] != '/'; n--) {}
        folder[n] = 0;
    }
}

/* The file's path as the configuration sees it: from its own folder on. */
static const char *seen_from(const loaded *c, const char *file, char room[2 * PATH_BYTES]) {
    char folder[PATH_BYTES];
    const char *base = strrchr(file, '/');
    if (!folder_of(file, folder)) return file;
    (void)snprintf(room, 2 * PATH_BYTES, "%s%s", folder, base ? base + 1 : file);
    size_t n = strlen(c->folder);
    return strncmp(room, c->folder, n) == 0 ? room + n : room;
}

static void lay_over(lar_lint_rules *under, const lar_lint_rules *over) {
    if (over->has_selected) under->selected = over->selected, under->has_selected = true;
    under->ignored |= over->ignored;
    if (over->has_least) under->least = over->least, under->has_least = true;
}

static lar_error lay_paths(const loaded *l, const char *file, lar_lint_rules *rules, lar_diag *d) {
    char room[2 * PATH_BYTES];
    const char *name = seen_from(l, file, room);
    const reading r = {name_of_file, d};
    lar_error e = LAR_OK;
    for (const lar_yaml_node *top = l->root ? l->root->first : NULL; top; top = top->next) {
        if (!lar_slice_eq_cstr(top->key->text, "paths")) continue;
        for (const lar_yaml_node *p = top->first; p && !e; p = p->next) {
            lar_lint_rules own = {0};
            bool matches = false, known;
            for (const lar_yaml_node *n = p->first; n && !e; n = n->next) {
                e = read_common(&r, n, &own, &known);
                if (!known) matches = lar_lint_glob_match(n->text.ptr, name);
            }
            if (matches) lay_over(rules, &own);
        }
    }
    return e;
}

lar_error lar_lint_config_rules(lar_lint_config *c, const char *file, lar_lint_rules *out, lar_diag *d) {
    loaded *l;
    *out = (lar_lint_rules){0};
    lar_error e = find(c, file, &l, d);
    if (e) return e;
    if (l) {
        *out = l->rules;
        e = lay_paths(l, file, out, d);
    }
    lay_over(out, &c->args->rules);
    return e;
}

lar_error lar_lint_config_top(lar_lint_config *c, const char *file, const char **baseline,
                              const lar_provider **provider, lar_diag *d) {
    loaded *l;
    lar_error e = find(c, file, &l, d);
    *baseline = l ? l->baseline : NULL;
    *provider = l ? l->provider : NULL;
    return e;
}
