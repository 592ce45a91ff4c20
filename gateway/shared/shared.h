/* Recall memory shared by several larders through a Redis or Valkey server.
 *
 * The server only ever makes the local memory better: a value of it replaces a local one that is older, and without it
 * (away, slow, full, damaged) larder works on from the local memory as if alone. Nothing here waits: each event loop
 * has one connection, sends what was learnt at once, and asks for the keys of a request while the request is put aside.
 *
 *     memory = lar_shared_link_memory(link, kind)   get: from the local memory, and the key is noted; put: local, sent
 *     lar_shared_link_scope(link, &scope)       whose request it is
 *     lar_shared_begin(link, &ask)              what is noted from here on belongs to this request
 *     ... the rules run ...
 *     lar_shared_ask_start(&ask)                true: on_done comes; if something changed, begin again
 */
#ifndef LARDER_GATEWAY_SHARED_H
#define LARDER_GATEWAY_SHARED_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/config/config.h"
#include "gateway/net/stream.h"
#include "policies/canon.h"

/* Process-wide: settings, and what is known of how old each value is. Any thread. */
typedef struct lar_shared lar_shared;
/* The connection of one event loop. Loop thread only. */
typedef struct lar_shared_link lar_shared_link;

/* The two memories of the rules (canon.h). Texts are shared only where they are sealed: they hold what models wrote. */
typedef enum lar_shared_kind { LAR_SHARED_FORMS, LAR_SHARED_TEXTS, LAR_SHARED_KIND_COUNT } lar_shared_kind;

typedef struct lar_shared_options {
    const lar_config *config; /* shared_*; borrowed until lar_shared_free */
    /* where values are kept and found; get and put from any thread; of TEXTS get may be NULL: none are kept */
    lar_memory_ops local[LAR_SHARED_KIND_COUNT];
    lar_log *log;         /* borrowed, may be NULL */
    lar_metrics *metrics; /* borrowed, may be NULL */
} lar_shared_options;

/* CONFIG with what to do in `d`: built without hiredis, a CA file that cannot be read... NO_MEMORY. Connects not. */
LAR_MUST_USE lar_error lar_shared_new(const lar_shared_options *o, lar_shared **out, lar_diag *d);
/* All its links are gone. NULL is allowed. */
void lar_shared_free(lar_shared *s);

/* Begins to connect; goes on trying until it is closed. `scratch` is the loop's. NULL when out of memory. */
lar_shared_link *lar_shared_link_new(lar_shared *s, uv_loop_t *loop, lar_stream_scratch *scratch);
/* No callback of an ask comes any more. The loop must run until its handles are closed; then lar_shared_link_free. */
void lar_shared_link_close(lar_shared_link *l);
void lar_shared_link_free(lar_shared_link *l); /* NULL is allowed */

/* That memory as the rules see it, through this link. */
lar_memory_ops lar_shared_link_memory(lar_shared_link *l, lar_shared_kind kind);
/* For whom the next gets and puts are. `scope` (borrowed): a digest that nobody knows who does not know the client's
 * credential; what is put is then sealed with it. NULL: there is none; only shared.secret_* seals, if it is set. */
void lar_shared_link_scope(lar_shared_link *l, const lar_digest *scope);
/* Sends the puts made so far. They leave by themselves before the loop waits again; a caller that is about to tell
 * somebody else of what it put, so that another larder may be asked next, sends them first. */
void lar_shared_link_flush(lar_shared_link *l);

/* One request's questions. Embedded in the request; zero-initialised but for the three first members. */
typedef struct lar_shared_ask {
    lar_shared_link *link;
    void (*on_done)(void *owner, uint32_t changed); /* `changed`: local values that are now newer; 0 also on failure */
    void *owner;
    lar_hash *keys; /* asked so far, in the request's arena */
    uint32_t count;
    struct lar_shared_question *waiting; /* not NULL: on_done will come */
} lar_shared_ask;

/* Forgets what was noted; keys that this request has asked for already will not be noted again. */
void lar_shared_begin(lar_shared_ask *a);
/* Asks for the noted keys. False: nothing new to ask, no connection, too slow lately, or no memory: go on with what is
 * there. on_done comes from the loop, never from inside. */
bool lar_shared_ask_start(lar_shared_ask *a, lar_arena *arena);
/* on_done will not come; the answer still fills the local memory. Does nothing if none is under way. */
void lar_shared_ask_cancel(lar_shared_ask *a);
/* Cancelled because it took too long. From the second in a row on nothing is asked for a time that grows. */
void lar_shared_ask_late(lar_shared_ask *a);

#endif
