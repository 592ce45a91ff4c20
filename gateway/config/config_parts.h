/* What the loader's files share: where a value came from, and the steps of a load. */
#ifndef LARDER_GATEWAY_CONFIG_PARTS_H
#define LARDER_GATEWAY_CONFIG_PARTS_H

#include "gateway/config/config.h"
#include "gateway/config/option_rows.h"
#include "gateway/config/yaml_tree.h"

/* A value given by flag or environment; origin NULL = not given. */
typedef struct lar_loader_given {
    const char *text;   /* of --listen: all addresses, separated by blanks */
    const char *origin; /* "--upstream" */
} lar_loader_given;

/* One load under way. */
typedef struct lar_loader {
    lar_config *config;
    lar_arena scratch; /* the YAML tree and origins; freed with the load */
    lar_diag *diag;    /* may be NULL */
    const char *file;  /* as shown in messages; "" without a file */
    const char
        *origin[LAR_OPTION_ROWS_MAX]; /* of each scalar option: "larder.yaml:3:9", "--canon", ...; NULL = default */
    const lar_yaml_node *listen, *upstreams, *routes, *keys, *aliases; /* nodes of the lists, NULL if absent */
    /* The single upstream and the listeners as flags or environment give them. */
    lar_loader_given listens, upstream, model, profile, key_env, key_file, ca_file;
    const char *shared_variables[2]; /* named by environment or flag as holding its password and secret; NULL = none */
} lar_loader;

/* The names that flags and environment know besides the rows. */
typedef struct lar_given_row {
    const char *name; /* as a flag, without dashes in front */
    const char *unit;
    uint32_t offset;       /* of a lar_loader_given; 0 = none: `short_for` says which row is meant */
    const char *short_for; /* path of a row, flags only; NULL = none */
    const char *help;
} lar_given_row;
const lar_given_row *lar_given_rows(uint32_t *count);

/* CONFIG with "<file>:<line>:<column>: <what>: <why>" in the diag. */
lar_error lar_loader_fail_at(lar_loader *l, const lar_yaml_node *at, const char *what, const char *why);
/* CONFIG with "<origin>: <why>". */
lar_error lar_loader_fail_from(lar_loader *l, const char *origin, const char *why);

/* Which node set which row of a table; NULL = default. */
typedef struct lar_option_marks {
    const lar_yaml_node *at[LAR_OPTION_ROWS_MAX];
} lar_option_marks;

/* One map of the file to fields: `what` names it in messages ("upstreams[0]", "" for the top). */
typedef struct lar_map_reader {
    const lar_option_table *table;
    void *base;
    const char *what;
    const char *const *others; /* names handled by the caller, NULL-terminated; may be NULL */
    lar_option_marks marks;
    const lar_yaml_node *other[8]; /* nodes of `others` */
} lar_map_reader;
LAR_MUST_USE lar_error lar_loader_read_map(lar_loader *l, lar_map_reader *r, const lar_yaml_node *map);

/* Listeners, upstreams, routes, keys and aliases, from the file's nodes and the given ones. */
LAR_MUST_USE lar_error lar_loader_lists(lar_loader *l);
/* What no single row can say: values that must fit each other, names that must exist, files that must open. */
LAR_MUST_USE lar_error lar_loader_check(lar_loader *l);

/* config_fallback.c. INVALID with the reason in `why`; NO_MEMORY. */
LAR_MUST_USE lar_error lar_loader_find_upstream(lar_loader *l, const char *name, uint32_t *out, lar_diag *why);
/* route->upstream is settled. */
LAR_MUST_USE lar_error lar_loader_take_fallbacks(lar_loader *l, const lar_route_raw *raw, lar_route_config *route,
                                                 lar_diag *why);
/* The route's upstream and fallbacks are settled. */
LAR_MUST_USE lar_error lar_loader_take_continue(lar_loader *l, const lar_route_raw *raw, lar_route_config *route,
                                                lar_diag *why);
LAR_MUST_USE lar_error lar_loader_take_health(const lar_upstream_raw *raw, lar_upstream_config *u, lar_diag *why);
LAR_MUST_USE lar_error lar_loader_take_probe(const lar_upstream_raw *raw, lar_upstream_config *u, lar_diag *why);
/* Behind the upstreams that were written come their further replicas; urls[i] are those of upstream i, separated by
 * blanks. After an error *at is the upstream that it is about. */
LAR_MUST_USE lar_error lar_loader_add_replicas(lar_loader *l, const char *const *urls, uint32_t *at, lar_diag *why);

/* A header field's name: an RFC 9110 token. */
bool lar_is_field_name(const char *text);

/* generic if the host is not known. */
lar_profile lar_profile_of_host(const char *host);

#endif
