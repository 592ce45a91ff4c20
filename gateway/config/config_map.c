/* One map of the YAML file to the fields of a table, with messages that name file, line and column.
 * Called by the loader for the top of the file and for each upstream, route and key; one thread; does not block.
 * A section is one level of names ("limits:" in front of "limits.fields"), so two nested loops are enough.
 * Invariants: 1. an unknown name is an error. 2. a value is never repeated in a message, and a name only if it looks
 * like one: what stands in a wrong place may be a credential. */
#include <stdio.h>

#include "base/ensure.h"
#include "gateway/config/config_parts.h"

lar_error lar_loader_fail_at(lar_loader *l, const lar_yaml_node *at, const char *what, const char *why) {
    return lar_fail(LAR_CONFIG, l->diag, "%s:%u:%u: %s%s%s", l->file, (unsigned)at->line, (unsigned)at->column, what,
                    *what ? ": " : "", why);
}

lar_error lar_loader_fail_from(lar_loader *l, const char *origin, const char *why) {
    return lar_fail(LAR_CONFIG, l->diag, "%s: %s", origin, why);
}

static lar_error out_of_memory(lar_loader *l) {
    return lar_fail(LAR_NO_MEMORY, l->diag, "out of memory for the configuration");
}

/* "upstreams[0].pool.idle" */
static const char *full_name(lar_loader *l, const char *what, lar_slice path) {
    lar_slice s = lar_arena_printf(&l->scratch, "%s%s%.*s", what, *what ? "." : "", LAR_FMT(path));
    return s.ptr ? s.ptr : what;
}

static bool may_be_shown(lar_slice name) {
    if (name.len == 0 || name.len > 32) return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if ((c < 'a' || c > 'z') && c != '_' && c != '-' && c != '.') return false;
    }
    return true;
}

static bool is_secret_name(lar_slice name) {
    static const char *const names[] = {"key",    "api_key",  "apikey", "token",
                                        "secret", "password", "value",  "credential"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (lar_slice_ieq(name, lar_slice_cstr(names[i]))) return true;
    }
    return false;
}

/* Names that may stand at this level: the rows' parts behind `section` and, at the top, the caller's own. */
static void offer_level(const lar_map_reader *r, lar_slice section, lar_nearest *n) {
    for (uint32_t i = 0; i < r->table->count; i++) {
        lar_slice path = lar_slice_cstr(r->table->rows[i].path);
        const char *dot = memchr(path.ptr, '.', path.len);
        if (section.len == 0) {
            lar_nearest_offer(n, dot ? lar_slice_of(path.ptr, (size_t)(dot - path.ptr)) : path);
        } else if (dot && lar_slice_eq(section, lar_slice_of(path.ptr, (size_t)(dot - path.ptr)))) {
            lar_nearest_offer(n, lar_slice_cstr(dot + 1));
        }
    }
    for (const char *const *o = r->others; section.len == 0 && o && *o; o++) lar_nearest_offer(n, lar_slice_cstr(*o));
}

/* A row's path as the file has it: "canon: {mode: ...}", or "mode" inside of canon. Empty if there is no path. */
static void as_written(lar_slice path, lar_slice section, char *out, size_t cap) {
    const char *dot = path.ptr ? memchr(path.ptr, '.', path.len) : NULL;
    lar_slice map = lar_slice_of(path.ptr, dot ? (size_t)(dot - path.ptr) : 0);
    lar_slice name = dot ? lar_slice_of(dot + 1, path.len - map.len - 1) : path;
    bool nested = dot && !lar_slice_eq(map, section);
    if (nested) (void)snprintf(out, cap, "%.*s: {%.*s: ...}", LAR_FMT(map), LAR_FMT(name));
    else (void)snprintf(out, cap, "%.*s", (int)name.len, name.ptr ? name.ptr : "");
}

static lar_error secret_here(lar_loader *l, const lar_map_reader *r, const lar_yaml_node *key, const char *what) {
    const char *why = "secrets are not written into this file; use key_env or key_file";
    if (r->table == lar_option_key()) why = "secrets are not written into this file; use env, file or sha256";
    else if (strcmp(what, "shared") == 0)
        why = "secrets are not written into this file; use password_env or password_file, secret_env or secret_file";
    else if (!*what && lar_slice_eq_cstr(key->text, "key"))
        why = "unknown name 'key'; did you mean 'keys'? (client keys; an upstream's is its key_env or key_file)";
    return lar_loader_fail_at(l, key, what, why);
}

static lar_error unknown(lar_loader *l, const lar_map_reader *r, lar_slice section, const lar_yaml_node *key) {
    lar_slice where =
        lar_arena_printf(&l->scratch, "%s%s%.*s", r->what, *r->what && section.len ? "." : "", LAR_FMT(section));
    const char *what = where.ptr ? where.ptr : "";
    if (is_secret_name(key->text)) return secret_here(l, r, key, what);
    lar_nearest n;
    lar_nearest_init(&n, key->text);
    offer_level(r, section, &n);
    lar_option_offer(r->table, &n);
    char why[200], best[100];
    bool shown = may_be_shown(key->text);
    bool exact = section.len == 0 && lar_option_find(r->table, key->text); /* right, but for being written in one */
    as_written(n.best, section, best, sizeof best);
    (void)snprintf(why, sizeof why, "unknown name%s%.*s%s%s%s%s%s", shown ? " '" : "", shown ? (int)key->text.len : 0,
                   key->text.ptr, shown ? "'" : "",
                   exact        ? ": it is a map of its own; write '"
                   : n.best.ptr ? "; did you mean '"
                                : "",
                   best, n.best.ptr ? "'" : "", exact || !n.best.ptr ? "" : "?");
    return lar_loader_fail_at(l, key, what, why);
}

static bool is_null(const lar_yaml_node *n) {
    return !n->quoted && (lar_slice_eq_cstr(n->text, "~") || lar_slice_ieq(n->text, LAR_SLICE("null")));
}

/* [a, b] of a row that takes a list, as "a b". */
static lar_error join(lar_loader *l, const lar_yaml_node *list, const char *what, lar_slice *out) {
    size_t len = 0;
    for (const lar_yaml_node *n = list->first; n; n = n->next) {
        if (n->kind != LAR_YAML_SCALAR) return lar_loader_fail_at(l, n, what, "must be a plain value");
        if (n->text.len == 0 || is_null(n)) return lar_loader_fail_at(l, n, what, "an empty entry");
        if (memchr(n->text.ptr, ' ', n->text.len)) return lar_loader_fail_at(l, n, what, "a blank inside an entry");
        len += n->text.len + 1;
    }
    char *text = lar_arena_alloc(&l->scratch, len + 1);
    if (!text) return out_of_memory(l);
    size_t at = 0;
    for (const lar_yaml_node *n = list->first; n; n = n->next) {
        if (at) text[at++] = ' ';
        memcpy(text + at, n->text.ptr, n->text.len);
        at += n->text.len;
    }
    text[at] = 0;
    *out = lar_slice_of(text, at);
    return LAR_OK;
}

static lar_error set(lar_loader *l, lar_map_reader *r, const lar_option_row *row, const lar_yaml_node *value) {
    const char *name = full_name(l, r->what, lar_slice_cstr(row->path));
    lar_slice text = value->text;
    if (value->kind == LAR_YAML_LIST && row->type == LAR_OPTION_TEXT && strcmp(row->unit, "list") == 0) {
        lar_error e = join(l, value, name, &text);
        if (e) return e;
    } else if (value->kind != LAR_YAML_SCALAR) {
        return lar_loader_fail_at(l, value, name,
                                  value->kind == LAR_YAML_LIST ? "must be one value, not a list"
                                                               : "must be a value, not a map");
    }
    if (is_null(value))
        return lar_loader_fail_at(l, value, name, "null is no value; leave the line out for the default");
    lar_diag why = {0};
    lar_error e = lar_option_set(row, r->base, text, &l->config->arena, &why);
    if (e == LAR_NO_MEMORY) return out_of_memory(l);
    if (e) return lar_loader_fail_at(l, value, name, why.text);
    uint32_t index = (uint32_t)(row - r->table->rows);
    LAR_ASSERT(index < LAR_OPTION_ROWS_MAX);
    r->marks.at[index] = value;
    return LAR_OK;
}

static lar_error read_section(lar_loader *l, lar_map_reader *r, const lar_yaml_node *section) {
    if (lar_yaml_is_empty(section)) return LAR_OK; /* all its lines are commented out */
    lar_slice name = section->key->text;
    if (section->kind != LAR_YAML_MAP)
        return lar_loader_fail_at(l, section, full_name(l, r->what, name), "must be a map of names and values");
    for (const lar_yaml_node *n = section->first; n; n = n->next) {
        lar_slice path = lar_arena_printf(&l->scratch, "%.*s.%.*s", LAR_FMT(name), LAR_FMT(n->key->text));
        if (!path.ptr) return out_of_memory(l);
        const lar_option_row *row =
            memchr(n->key->text.ptr, 0, n->key->text.len) ? NULL : lar_option_find(r->table, path);
        lar_error e = row ? set(l, r, row, n) : unknown(l, r, name, n->key);
        if (e) return e;
    }
    return LAR_OK;
}

static bool take_other(lar_map_reader *r, const lar_yaml_node *n) {
    for (uint32_t i = 0; r->others && r->others[i]; i++) {
        LAR_ASSERT(i < sizeof r->other / sizeof *r->other);
        if (!lar_slice_eq_cstr(n->key->text, r->others[i])) continue;
        r->other[i] = n;
        return true;
    }
    return false;
}

lar_error lar_loader_read_map(lar_loader *l, lar_map_reader *r, const lar_yaml_node *map) {
    if (map->kind != LAR_YAML_MAP) return lar_loader_fail_at(l, map, r->what, "must be a map of names and values");
    for (const lar_yaml_node *n = map->first; n; n = n->next) {
        lar_slice name = n->key->text;
        bool plain = memchr(name.ptr, '.', name.len) == NULL;
        const lar_option_row *row = plain ? lar_option_find(r->table, name) : NULL;
        lar_error e = LAR_OK;
        if (row) e = set(l, r, row, n);
        else if (plain && lar_option_is_section(r->table, name)) e = read_section(l, r, n);
        else if (!take_other(r, n)) e = unknown(l, r, LAR_SLICE(""), n->key);
        if (e) return e;
    }
    return LAR_OK;
}
