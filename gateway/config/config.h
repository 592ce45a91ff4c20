/* The configuration: scalar options from config.def, and the lists (listeners, upstreams, routes, keys, aliases).
 *
 * Sources, later ones win: defaults, the YAML file, LARDER_* environment, flags. */
#ifndef LARDER_GATEWAY_CONFIG_H
#define LARDER_GATEWAY_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "gateway/health/breaker.h"
#include "gateway/usage/usage.h"
#include "policies/canon.h"
#include "policies/provider.h"

/* What is known of a provider: decides usage rule, default paths and whether larder may ask for stream usage. */
typedef enum lar_profile {
    LAR_PROFILE_GENERIC,
    LAR_PROFILE_DEEPSEEK,
    LAR_PROFILE_OPENAI,
    LAR_PROFILE_ANTHROPIC,
    LAR_PROFILE_VLLM,
    LAR_PROFILE_LARDER, /* an embedded engine, this process's or another's */
    LAR_PROFILE_COUNT
} lar_profile;
typedef struct lar_profile_row {
    const char *name;
    lar_usage_rule usage_rule;
    bool inject_usage;      /* add stream_options.include_usage where the client did not */
    const char *auth_field; /* field that carries the upstream key: "authorization" or "x-api-key" */
} lar_profile_row;
const lar_profile_row *lar_profile_get(lar_profile p);
/* The rules of its prefix cache: the provider of the profile's name. */
const lar_provider *lar_profile_provider(lar_profile p);

typedef struct lar_url {
    bool tls;
    const char *host; /* no brackets around an IPv6 literal */
    uint16_t port;
    const char *path;      /* "" or "/v1" ...: no trailing slash */
    const char *authority; /* for Host: host[:port], brackets kept, default port left out */
    bool host_is_ip;       /* no SNI for literals (RFC 6066 3) */
} lar_url;

/* The server of the shared memory. */
typedef struct lar_shared_url {
    bool tls;
    const char *socket; /* path of a local socket; "" = TCP */
    const char *host;   /* no brackets around an IPv6 literal */
    bool host_is_ip;
    uint16_t port;
    const char *user; /* "" = the default user */
    uint32_t db;
    const char *text; /* for messages: host:port or path */
} lar_shared_url;

typedef enum lar_engine_start { LAR_ENGINE_START_NOW, LAR_ENGINE_START_NEED } lar_engine_start;
typedef enum lar_upstream_kind { LAR_UPSTREAM_KIND_HTTP, LAR_UPSTREAM_KIND_ENGINE } lar_upstream_kind;

/* A model that this process runs; all but what is 0 by default as lists.def says. Acts at start only. */
typedef struct lar_engine_config {
    const char *model;       /* path; "" for kind http */
    const char *served_name; /* never "" for kind engine */
    const char *kv;
    lar_engine_start start;
    uint64_t kv_bytes;     /* 0: as much as `sequences` of `context` tokens take */
    uint64_t expert_bytes; /* 0: no budget */
    uint64_t spill_bytes;  /* 0: no spilling */
    uint32_t sequences, context, queue, queue_wait_ms, gap_ms, pass_tokens, threads, niceness, pin_ms;
    uint32_t keep_warm; /* prefixes; 0: none */
} lar_engine_config;

typedef struct lar_upstream_config {
    const char *name;
    lar_upstream_kind kind;
    lar_engine_config engine;
    lar_url url;
    lar_profile profile;
    const char *ca_file;         /* "" = the system's */
    const char *key;             /* credential sent upstream in place of the client's; "" = the client's own goes on */
    uint32_t connect_timeout_ms; /* 10 s */
    uint32_t first_byte_timeout_ms;  /* 600 s: until the answer's head */
    uint32_t first_event_timeout_ms; /* 600 s: from head to first body byte of a stream */
    uint32_t idle_timeout_ms;        /* 300 s between bytes of an answer */
    uint32_t total_timeout_ms;       /* 0 = none */
    uint32_t pool_idle_ms;           /* 30 s a connection may wait for reuse, less if the upstream says so */
    uint32_t pool_connections_max;   /* 64 idle connections kept, each loop */
    uint32_t connections_max;        /* 1024 at once, each loop; over it requests wait */
    uint32_t queue_max;              /* 1024 waiting requests, each loop; over it 503 */
    uint32_t dns_ttl_ms;             /* 30 s */
    uint32_t retry_attempts, retry_backoff_ms, retry_wait_ms;
    lar_breaker_options breaker;
    const char *probe_path; /* "" = no active probes */
    uint32_t probe_every_ms, probe_timeout_ms;
    const char *group;     /* the name that was written; `name` is this, but for its further replicas: "name/2" */
    uint32_t replica_next; /* index of the next replica of the group, 0 after the last */
    uint32_t replica_slack_percent;
    int inject_usage; /* -1 = as the profile says, 0, 1 */
} lar_upstream_config;

/* The routes with the longest prefix that fits the path come first (without one that fits: those without a prefix), and
 * among them the first in order whose model and header fit too. If none does: the first of that prefix; without a
 * prefix, the first upstream and no route. Without routes everything goes to the first upstream. */
typedef struct lar_fallback_config {
    uint32_t upstream; /* index */
    const char *model; /* to ask it for; "" = the request's */
} lar_fallback_config;

/* Of a route's upstream, its fallbacks and all their replicas together. */
enum { LAR_ROUTE_TARGETS_MAX = 64 };

#define LAR_CONTINUE_NOBODY UINT32_MAX

typedef struct lar_route_config {
    const char *prefix;                     /* "" = any; "/team-a" is cut off before the path goes on */
    const char *model;                      /* pattern with '*', "" = any */
    const char *header_name, *header_value; /* "" = any */
    uint32_t upstream;                      /* index */
    bool pass_through;                      /* paths that are no known endpoint are allowed under this prefix */
    const lar_fallback_config *fallbacks;   /* in turn, none twice, none the route's own */
    uint32_t fallback_count;
    uint32_t continue_with;        /* an upstream of kind engine, or LAR_CONTINUE_NOBODY */
    uint32_t deadline_ms, hold_ms; /* 0 = none */
    uint32_t hold_bytes;
    uint32_t answers_ttl_ms; /* 0: answers are not kept, and the two below are false */
    bool answers_sampled, answers_coalesce;
    int canon; /* a lar_canon_mode, or -1: as canon.mode says */
} lar_route_config;

/* A client key of larder's own. Only its digest is kept. */
typedef struct lar_key_config {
    const char *tenant;
    lar_digest digest;
} lar_key_config;

typedef struct lar_alias_config {
    const char *from, *to; /* model names; `from` exact */
} lar_alias_config;

typedef struct lar_listen_config {
    const char *text; /* as written */
    const char *host;
    uint16_t port;
} lar_listen_config;

typedef struct lar_config_flag {
    const char *name, *value; /* "--listen" -> name "listen" */
} lar_config_flag;

typedef struct lar_config {
    lar_arena arena;         /* holds all text */
    const char *source_file; /* NULL = none */
    lar_config_flag *source_flags;
    uint32_t source_flag_count;
#define LAR_OPT_BOOL bool
#define LAR_OPT_U32 uint32_t
#define LAR_OPT_U64 uint64_t
#define LAR_OPT_MS uint32_t
#define LAR_OPT_BYTES uint64_t
#define LAR_OPT_TEXT const char *
#define LAR_OPT_ENUM(name) uint32_t
#define LAR_OPT(field, path, type, def, min, max, unit, reload, help) LAR_OPT_##type field;
#include "gateway/config/config.def"
#undef LAR_OPT
    lar_listen_config *listens;
    lar_upstream_config *upstreams;
    lar_route_config *routes;
    lar_key_config *keys;
    lar_alias_config *aliases;
    uint32_t listen_count, upstream_count, route_count, key_count, alias_count;
    lar_shared_url shared;       /* all "" where shared_url is */
    const char *shared_password; /* "" = none */
    const char *shared_secret;   /* "" = none */
    uint64_t rules_off_bits;     /* bit r: rule r does not run; from the rules' defaults, rules_on and rules_off */
} lar_config;

/* Reads file (NULL = none), environment and flags into a fresh config (heap). CONFIG with file, line and column in
 * `d` on any unknown key, wrong type, value out of range, missing file, unknown rule, or unreadable key file.
 * Secrets come as `key_env: NAME` or `key_file: PATH`, never in the file itself (a literal is refused). */
LAR_MUST_USE lar_error lar_config_load(const char *file, const lar_config_flag *flags, uint32_t flag_count,
                                       lar_config **out, lar_diag *d);
/* The same sources as they are now (the file, the environment, the flags `now` was loaded with), for a reload. `now`
 * stays as it is and need not outlive the new one. Errors likewise. */
LAR_MUST_USE lar_error lar_config_reload(const lar_config *now, lar_config **out, lar_diag *d);
/* Is there an option --name? CONFIG, with the nearest one in `d`, if not. */
LAR_MUST_USE lar_error lar_config_check_flag(const char *name, lar_diag *d);
/* NULL is allowed. Credentials are wiped. */
void lar_config_free(lar_config *c);
/* For a reload: appends the names of what differs and needs a restart, separated by blanks; returns how many. These are
 * the BOOT options, "listen", "tls.cert" where TLS would be turned on or off, and "upstreams.engine" where upstreams of
 * kind engine are others, or other than they were, but for their order and timeouts. */
uint32_t lar_config_restart_names(const lar_config *now, const lar_config *next, lar_buf *out);

/* The upstream of kind engine that has this name, or NULL. */
const lar_upstream_config *lar_config_engine(const lar_config *c, const char *name);

/* The URL of an upstream. `path` keeps what was written but for trailing slashes: whoever joins it with a request's
 * path must make /v1 stand there once, whether the URL had it or not. INVALID with the reason in `d`, which never
 * repeats the text; NO_MEMORY. */
LAR_MUST_USE lar_error lar_url_parse(lar_slice text, lar_arena *arena, lar_url *out, lar_diag *d);
/* The URL of a Redis or Valkey server. INVALID, NO_MEMORY likewise; a password in it is refused. */
LAR_MUST_USE lar_error lar_shared_url_parse(lar_slice text, lar_arena *arena, lar_shared_url *out, lar_diag *d);
/* "127.0.0.1:8080", "[::1]:8080", "localhost:8080"; port 0 takes a free one. INVALID, NO_MEMORY likewise. */
LAR_MUST_USE lar_error lar_listen_parse(lar_slice text, lar_arena *arena, lar_listen_config *out, lar_diag *d);

/* What stands behind u->url.path in a request for `path`: "/v1" of the URL and of the path are the same one. */
lar_slice lar_upstream_path(const lar_upstream_config *u, lar_slice path);
/* Appends the field line with the upstream's own key; nothing where it has none. */
LAR_MUST_USE lar_error lar_upstream_credential(const lar_upstream_config *u, lar_buf *out);

/* Documentation generated from the rows. */
LAR_MUST_USE lar_error lar_config_help(lar_buf *out);     /* the options part of `larder serve --help` */
LAR_MUST_USE lar_error lar_config_markdown(lar_buf *out); /* docs/config.md */
LAR_MUST_USE lar_error lar_config_sample(lar_buf *out);   /* deploy/larder.example.yaml */

#endif
