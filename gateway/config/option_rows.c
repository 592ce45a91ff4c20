/* The tables made from config.def and lists.def, and the one place that writes an option's field.
 * Called by the loader, the checks and the generated pages; any thread; never blocks.
 * Invariants: 1. a row's offset and type describe the same struct field (both come from one line of the .def).
 * 2. every default parses and is in range, else start-up aborts (and a test fails before that). */
#include "gateway/config/option_rows.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/ensure.h"
#include "gateway/config/config.h"
#include "gateway/config/option_value.h"

static const char *const canon_names[] = {"off", "report", "on", NULL};
static const char *const route_canon_names[] = {"inherit", "off", "report", "on", NULL}; /* inherit, then canon_names */
static const char *const log_level_names[] = {"error", "warn", "info", "debug", NULL};
static const char *const log_format_names[] = {"logfmt", "json", NULL};
static const char *const tristate_names[] = {"auto", "off", "on", NULL};
static const char *const profile_names[] = {"auto",      "generic", "deepseek", "openai",
                                            "anthropic", "vllm",    "larder",   NULL};
static const char *const kind_names[] = {"http", "engine", NULL};
static const char *const engine_start_names[] = {"now", "need", NULL};

_Static_assert(LAR_CANON_OFF == 0 && LAR_CANON_REPORT == 1 && LAR_CANON_ON == 2, "canon_names follows lar_canon_mode");
_Static_assert(LAR_LOG_ERROR == 0 && LAR_LOG_DEBUG == 3, "log_level_names follows lar_log_level");
_Static_assert(LAR_LOG_LOGFMT == 0 && LAR_LOG_JSON == 1, "log_format_names follows lar_log_format");
_Static_assert(LAR_ENGINE_START_NOW == 0 && LAR_ENGINE_START_NEED == 1, "engine_start_names follows lar_engine_start");
_Static_assert(LAR_UPSTREAM_KIND_HTTP == 0 && LAR_UPSTREAM_KIND_ENGINE == 1, "kind_names follows lar_upstream_kind");
_Static_assert(sizeof profile_names / sizeof *profile_names == LAR_PROFILE_COUNT + 2,
               "profile_names is auto and lar_profile");

#define KIND_BOOL LAR_OPTION_BOOL, NULL
#define KIND_U32 LAR_OPTION_U32, NULL
#define KIND_U64 LAR_OPTION_U64, NULL
#define KIND_MS LAR_OPTION_MS, NULL
#define KIND_BYTES LAR_OPTION_BYTES, NULL
#define KIND_TEXT LAR_OPTION_TEXT, NULL
#define KIND_ENUM(name) LAR_OPTION_ENUM, name##_names

static const lar_option_row scalar_rows[] = {
#define LAR_OPT(field, path, type, def, min, max, unit, reload, help)                                                  \
    {path, offsetof(lar_config, field), KIND_##type, def, min, max, unit, LAR_OPTION_##reload,                         \
     help, LAR_OPTION_KINDS_ANY},
#include "gateway/config/config.def"
#undef LAR_OPT
};

static const lar_option_row upstream_rows[] = {
#define LAR_UPSTREAM_OPT(field, path, type, def, min, max, unit, kinds, help)                                          \
    {path, offsetof(lar_upstream_raw, field), KIND_##type, def, min, max, unit, LAR_OPTION_LIVE,                       \
     help, LAR_OPTION_KINDS_##kinds},
#include "gateway/config/lists.def"
};

static const lar_option_row route_rows[] = {
#define LAR_ROUTE_OPT(field, path, type, def, min, max, unit, help)                                                    \
    {path,        offsetof(lar_route_raw, field),                                                                      \
     KIND_##type, def,                                                                                                 \
     min,         max,                                                                                                 \
     unit,        LAR_OPTION_LIVE,                                                                                     \
     help,        LAR_OPTION_KINDS_ANY},
#include "gateway/config/lists.def"
};

static const lar_option_row key_rows[] = {
#define LAR_KEY_OPT(field, path, type, def, min, max, unit, help)                                                      \
    {path, offsetof(lar_key_raw, field), KIND_##type, def, min, max, unit, LAR_OPTION_LIVE, help, LAR_OPTION_KINDS_ANY},
#include "gateway/config/lists.def"
};

#define COUNT(rows) (uint32_t)(sizeof(rows) / sizeof *(rows))
static const lar_option_table scalars = {scalar_rows, COUNT(scalar_rows)};
static const lar_option_table upstreams = {upstream_rows, COUNT(upstream_rows)};
static const lar_option_table routes = {route_rows, COUNT(route_rows)};
static const lar_option_table keys = {key_rows, COUNT(key_rows)};
_Static_assert(COUNT(scalar_rows) <= LAR_OPTION_ROWS_MAX && COUNT(upstream_rows) <= LAR_OPTION_ROWS_MAX,
               "marks have room");

const lar_option_table *lar_option_scalars(void) { return &scalars; }
const lar_option_table *lar_option_upstream(void) { return &upstreams; }
const lar_option_table *lar_option_route(void) { return &routes; }
const lar_option_table *lar_option_key(void) { return &keys; }

const lar_option_row *lar_option_find(const lar_option_table *t, lar_slice path) {
    for (uint32_t i = 0; i < t->count; i++) {
        if (lar_slice_eq_cstr(path, t->rows[i].path)) return &t->rows[i];
    }
    return NULL;
}

static bool loosely_equal(lar_slice name, lar_slice path) {
    if (name.len != path.len) return false;
    for (size_t i = 0; i < name.len; i++) {
        char a = name.ptr[i], b = path.ptr[i];
        if (a >= 'A' && a <= 'Z') a = (char)(a + 32);
        if (a == '-' || a == '.') a = '_';
        if (b == '.') b = '_';
        if (a != b) return false;
    }
    return true;
}

const lar_option_row *lar_option_find_loose(const lar_option_table *t, lar_slice name) {
    for (uint32_t i = 0; i < t->count; i++) {
        if (loosely_equal(name, lar_slice_cstr(t->rows[i].path))) return &t->rows[i];
    }
    return NULL;
}

bool lar_option_is_section(const lar_option_table *t, lar_slice name) {
    for (uint32_t i = 0; i < t->count; i++) {
        lar_slice path = lar_slice_cstr(t->rows[i].path);
        if (path.len > name.len && lar_slice_starts(path, name) && path.ptr[name.len] == '.') return true;
    }
    return false;
}

void lar_option_offer(const lar_option_table *t, lar_nearest *n) {
    for (uint32_t i = 0; i < t->count; i++) lar_nearest_offer(n, lar_slice_cstr(t->rows[i].path));
}

static lar_error in_range(const lar_option_row *row, uint64_t v, lar_diag *d) {
    if (v >= row->min && v <= row->max) return LAR_OK;
    return lar_fail(LAR_INVALID, d, "is out of range: %" PRIu64 " to %" PRIu64 "%s%s", row->min, row->max,
                    *row->unit ? " " : "", row->unit);
}

static lar_error parse_number(const lar_option_row *row, lar_slice text, uint64_t *v, lar_diag *d) {
    lar_error e;
    if (row->type == LAR_OPTION_MS) e = lar_value_ms(text, v, d);
    else if (row->type == LAR_OPTION_BYTES) e = lar_value_bytes(text, v, d);
    else e = lar_value_number(text, v, d);
    return e ? e : in_range(row, *v, d);
}

lar_error lar_option_set(const lar_option_row *row, void *base, lar_slice text, lar_arena *arena, lar_diag *d) {
    void *field = (char *)base + row->offset;
    uint64_t v = 0;
    lar_error e = LAR_OK;
    switch (row->type) {
    case LAR_OPTION_BOOL: return lar_value_bool(text, (bool *)field, d);
    case LAR_OPTION_ENUM: return lar_value_enum(text, row->names, (uint32_t *)field, d);
    case LAR_OPTION_TEXT:
        e = lar_value_text(text, d);
        if (e) return e;
        text = lar_arena_copy(arena, text);
        if (!text.ptr) return lar_fail(LAR_NO_MEMORY, d, "out of memory");
        *(const char **)field = text.ptr;
        return LAR_OK;
    case LAR_OPTION_U32:
    case LAR_OPTION_MS:
        e = parse_number(row, text, &v, d);
        if (e) return e;
        LAR_ASSERT(v <= UINT32_MAX);
        *(uint32_t *)field = (uint32_t)v;
        return LAR_OK;
    case LAR_OPTION_U64:
    case LAR_OPTION_BYTES: return parse_number(row, text, (uint64_t *)field, d);
    }
    LAR_UNREACHABLE("option type");
}

lar_error lar_option_defaults(const lar_option_table *t, void *base, lar_arena *arena) {
    for (uint32_t i = 0; i < t->count; i++) {
        lar_error e = lar_option_set(&t->rows[i], base, lar_slice_cstr(t->rows[i].def), arena, NULL);
        LAR_ASSERT(e == LAR_OK || e == LAR_NO_MEMORY);
        if (e) return e;
    }
    return LAR_OK;
}

bool lar_option_equal(const lar_option_row *row, const void *a, const void *b) {
    const void *x = (const char *)a + row->offset, *y = (const char *)b + row->offset;
    switch (row->type) {
    case LAR_OPTION_BOOL: return *(const bool *)x == *(const bool *)y;
    case LAR_OPTION_TEXT: return strcmp(*(const char *const *)x, *(const char *const *)y) == 0;
    case LAR_OPTION_U32:
    case LAR_OPTION_MS:
    case LAR_OPTION_ENUM: return *(const uint32_t *)x == *(const uint32_t *)y;
    case LAR_OPTION_U64:
    case LAR_OPTION_BYTES: return *(const uint64_t *)x == *(const uint64_t *)y;
    }
    LAR_UNREACHABLE("option type");
}
