/* Options as rows: the tables made from config.def and lists.def, and setting one option from text. */
#ifndef LARDER_GATEWAY_OPTION_ROWS_H
#define LARDER_GATEWAY_OPTION_ROWS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"
#include "gateway/config/nearest.h"

typedef enum lar_option_type {
    LAR_OPTION_BOOL,
    LAR_OPTION_U32,
    LAR_OPTION_U64,
    LAR_OPTION_MS,
    LAR_OPTION_BYTES,
    LAR_OPTION_TEXT,
    LAR_OPTION_ENUM
} lar_option_type;

typedef enum lar_option_reload { LAR_OPTION_BOOT, LAR_OPTION_LIVE } lar_option_reload;

/* Which kind of upstream has an option. */
typedef enum lar_option_kinds { LAR_OPTION_KINDS_ANY, LAR_OPTION_KINDS_HTTP, LAR_OPTION_KINDS_ENGINE } lar_option_kinds;

typedef struct lar_option_row {
    const char *path; /* "limits.head_bytes": at most one dot */
    uint32_t offset;  /* of the field, from the base given to lar_option_set */
    lar_option_type type;
    const char *const *names; /* ENUM: NULL-terminated; the index is the value */
    const char *def;
    uint64_t min, max; /* numbers */
    const char *unit;
    lar_option_reload reload;
    const char *help;
    lar_option_kinds kinds; /* of upstreams; ANY in the other tables */
} lar_option_row;

typedef struct lar_option_table {
    const lar_option_row *rows;
    uint32_t count;
} lar_option_table;

/* What lists.def makes of an upstream, a route and a key: as written, before the checks. */
typedef struct lar_upstream_raw {
#define LAR_RAW_BOOL bool
#define LAR_RAW_U32 uint32_t
#define LAR_RAW_BYTES uint64_t
#define LAR_RAW_MS uint32_t
#define LAR_RAW_TEXT const char *
#define LAR_RAW_ENUM(name) uint32_t
#define LAR_UPSTREAM_OPT(field, path, type, def, min, max, unit, kinds, help) LAR_RAW_##type field;
#include "gateway/config/lists.def"
} lar_upstream_raw;

typedef struct lar_route_raw {
#define LAR_ROUTE_OPT(field, path, type, def, min, max, unit, help) LAR_RAW_##type field;
#include "gateway/config/lists.def"
} lar_route_raw;

typedef struct lar_key_raw {
#define LAR_KEY_OPT(field, path, type, def, min, max, unit, help) LAR_RAW_##type field;
#include "gateway/config/lists.def"
} lar_key_raw;

/* Most rows of one table. */
enum { LAR_OPTION_ROWS_MAX = 64 };

const lar_option_table *lar_option_scalars(void);  /* base: lar_config */
const lar_option_table *lar_option_upstream(void); /* base: lar_upstream_raw */
const lar_option_table *lar_option_route(void);    /* base: lar_route_raw */
const lar_option_table *lar_option_key(void);      /* base: lar_key_raw */

/* The row with that path, compared exactly ('.' only) or as flags and environment names are written ('-' and '_' stand
 * for '.' too, letters of any case). NULL if there is none. */
const lar_option_row *lar_option_find(const lar_option_table *t, lar_slice path);
const lar_option_row *lar_option_find_loose(const lar_option_table *t, lar_slice name);
/* Is there a row "<name>.<something>"? */
bool lar_option_is_section(const lar_option_table *t, lar_slice name);
/* Offers every path. */
void lar_option_offer(const lar_option_table *t, lar_nearest *n);

/* Parses `text` and sets the field of `base`. Text values are copied into `arena`. INVALID with the reason (no path, no
 * place) in `d`; NO_MEMORY. */
LAR_MUST_USE lar_error lar_option_set(const lar_option_row *row, void *base, lar_slice text, lar_arena *arena,
                                      lar_diag *d);
/* Sets every field to its default. Aborts if a default does not parse: a broken table. NO_MEMORY. */
LAR_MUST_USE lar_error lar_option_defaults(const lar_option_table *t, void *base, lar_arena *arena);
/* True if the field has the same value in both. */
bool lar_option_equal(const lar_option_row *row, const void *a, const void *b);

#endif
