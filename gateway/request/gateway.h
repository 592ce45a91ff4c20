/* What all loops of a running gateway share, and what one loop owns. Private to gateway/request. */
#ifndef LARDER_GATEWAY_GATEWAY_H
#define LARDER_GATEWAY_GATEWAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/json.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/answers/answers.h"
#include "gateway/config/config.h"
#include "gateway/net/stream.h"
#include "gateway/request/route.h"
#include "gateway/request/standing.h"
#include "gateway/resident/resident.h"
#include "gateway/shared/shared.h"
#include "gateway/upstream/upstream.h"
#include "store/store.h"

typedef struct lar_client lar_client;
typedef struct lar_exchange lar_exchange;

/* One configuration in force and what is made of it. Immutable; counted references; any thread. */
typedef struct lar_generation {
    atomic_int refs;
    lar_config *config;
    bool owns_config;
    lar_tls_context **upstream_tls; /* one an upstream, NULL where plain */
    lar_canon_options canon;
    bool loopback_only; /* every listener is on a loopback address and no client key is set */
} lar_generation;

/* `boot` is the configuration whose listeners are open. The generation takes `c`, but for `boot` itself, which is
 * borrowed. CONFIG (a CA file that cannot be read...) or NO_MEMORY with detail; on an error `c` stays the caller's. */
LAR_MUST_USE lar_error lar_generation_new(lar_config *c, const lar_config *boot, lar_generation **out, lar_diag *d);
lar_generation *lar_generation_ref(lar_generation *g);
void lar_generation_unref(lar_generation *g);

/* The pools of one loop for one generation. A request uses the set that was current when it began. */
typedef struct lar_pool_set {
    lar_generation *generation;
    lar_pool **pools;         /* one an upstream */
    lar_standing **standings; /* likewise; got from the gateway's, put with the set */
    uint32_t users;           /* exchanges */
    lar_tenant_memo tenants;
    bool closed;               /* the pools are */
    struct lar_pool_set *next; /* in loop->old_sets */
} lar_pool_set;

/* The process-wide state; immutable after start but for the atomics and what `lock` guards. */
typedef struct lar_gateway {
    const lar_config *boot;   /* as at start: threads, listeners, store */
    lar_store *store;         /* NULL: no journal, no memory on disk */
    lar_memory_ops memory;    /* of this process; requests use their loop's */
    lar_shared *shared;       /* NULL: memory is not shared */
    lar_memory_ops texts;     /* of answers; get NULL: none are kept */
    lar_answers *answers;     /* kept answers */
    lar_resident **residents; /* the models of `boot`'s upstreams of kind engine */
    uint32_t resident_count;
    struct lar_prefix_counts *prefixes_seen; /* by earlier runs (warm_prefix.c); NULL: nobody asks, or no journal */
    lar_log *log;
    lar_metrics *metrics;
    pthread_mutex_t lock;
    lar_generation *generation;    /* guarded by lock: the newest */
    lar_tls_context *listener_tls; /* guarded by lock; NULL: plain HTTP */
    lar_standings standings;
    atomic_llong buffered_bytes;
    atomic_int clients;
    atomic_bool stopping;
    atomic_bool access_log;
    uint64_t edition_hash;
    lar_digest process_salt; /* keys scopes that have no credential */
} lar_gateway;

/* A reference to the generation in force. Any thread. */
lar_generation *lar_generation_newest(lar_gateway *g);
/* The open model of the upstream of that name, or NULL. */
lar_resident *lar_gateway_resident(const lar_gateway *g, const char *upstream);

/* How often the journal's newest records have each prefix, for models that keep prefixes warm. */
typedef struct lar_prefix_counts lar_prefix_counts;
/* Blocks for the reading. NO_MEMORY, and the store's; *out may be NULL then. */
LAR_MUST_USE lar_error lar_prefix_counts_read(lar_store *store, lar_prefix_counts **out);
void lar_prefix_counts_free(lar_prefix_counts *c); /* NULL is allowed */

/* What takes a listener's connections that there is no memory or room for, one at a time. */
typedef struct lar_turn_away {
    uv_tcp_t tcp; /* first: the close callback gets it */
    uv_stream_t *listener;
    bool busy, again;
} lar_turn_away;

enum { LAR_SPARE_EXCHANGES_MAX = 256 };

/* One thread's loop and all that lives on it. */
typedef struct lar_loop {
    lar_gateway *gateway;
    uint32_t index;
    pthread_t thread;
    uv_loop_t uv;
    uv_async_t stop, reload, answers_bell;
    lar_answers_door answers_door; /* requests of this loop that waited for another one's answer */
    uv_timer_t stop_timer;
    uv_tcp_t *listeners;
    lar_turn_away *turn_away; /* one a listener */
    uint32_t listener_count;
    lar_stream_scratch *scratch;
    lar_pool_set *set;      /* of the generation in force on this loop */
    lar_pool_set *old_sets; /* replaced; closed once their last request has ended, then freed */
    uv_timer_t sweep_timer; /* runs while there are old sets */
    lar_norm_cache *norm_cache;
    lar_memory_ops memory, texts; /* what requests of this loop remember */
    lar_shared_link *shared;      /* NULL: memory is not shared */
    lar_json json;                /* the body that is being prepared; no request needs its tree afterwards */
    lar_client *clients;          /* all of this loop, newest first */
    uint32_t client_count;
    lar_exchange *spare; /* exchanges kept for the next request, linked by `spare_next` */
    uint32_t spare_count;
    uint64_t id_state;                    /* request ids: a random start, then a step of a Weyl sequence */
    bool stopping, cutting, pools_closed; /* cutting: the patience of a stop is over */
} lar_loop;

/* Makes the loop and binds its listeners (ports: the ones the first loop got). */
LAR_MUST_USE lar_error lar_loop_open(lar_loop *l, lar_gateway *g, uint32_t index, const uint16_t *ports, lar_diag *d);
/* Starts its thread; runs until lar_loop_stop and every client is gone. */
LAR_MUST_USE lar_error lar_loop_start(lar_loop *l, lar_diag *d);
/* Any thread: the loop takes the gateway's newest generation. */
void lar_loop_reload(lar_loop *l);
/* Any thread: no new clients, idle ones closed, requests under way may end within `timeouts.shutdown`. */
void lar_loop_stop(lar_loop *l);
void lar_loop_join(lar_loop *l);
/* After join, or after a failed open. */
void lar_loop_release(lar_loop *l);
/* The memo for a request of that set. NULL for a replaced one: what the memo says holds for the rules now in force. */
lar_norm_cache *lar_loop_norm_cache(const lar_loop *l, const lar_pool_set *set);
/* The last client of a stopping loop is gone: pools close, the loop ends. */
void lar_loop_client_gone(lar_loop *l);

#endif
