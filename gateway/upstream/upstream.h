/* Who answers the requests to one upstream: a pool per upstream and loop thread, and leases on what it has.
 *
 * A pool of kind http has connections (lar_pool_new), one of kind engine jobs of a model in this process
 * (gateway/resident/engine_pool.h); a request does not see which. It embeds a lease and gets events; everything runs on
 * the pool's loop. No event of a lease comes from inside its own lar_lease_send, _pause, _resume, _release or _cancel
 * (_release may give the connection to the next one in the queue: READY). READY or FAILED may come from inside
 * lar_lease_acquire. */
#ifndef LARDER_GATEWAY_UPSTREAM_H
#define LARDER_GATEWAY_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <uv.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/metrics.h"
#include "gateway/config/config.h"
#include "gateway/http1/http1.h"
#include "gateway/net/stream.h"

typedef struct lar_pool lar_pool;

typedef enum lar_lease_event_kind {
    LAR_LEASE_READY,  /* a connection is held: send the request */
    LAR_LEASE_FAILED, /* no connection could be had: error, detail; the lease is free again */
    LAR_LEASE_HEAD,   /* a head (1xx too): lar_lease_head */
    LAR_LEASE_BODY,   /* data borrows the read buffer */
    LAR_LEASE_END,    /* the answer is complete */
    LAR_LEASE_BROKEN  /* the connection failed: error, detail; cancel the lease */
} lar_lease_event_kind;

typedef struct lar_lease_event {
    lar_lease_event_kind kind;
    lar_slice data;
    lar_error error;
    const char *detail; /* for people; borrowed, may be "" */
} lar_lease_event;

typedef struct lar_lease {
    void (*on_event)(void *owner, const lar_lease_event *e);
    void *owner;
    lar_pool *pool; /* while queued or held */
    void *held;     /* the pool's own: what the lease is on; NULL while queued */
    struct lar_lease *prev, *next;
    bool reused;     /* the connection had carried a request before */
    bool fresh_only; /* ask for a new connection */
} lar_lease;

struct lar_serving_begun; /* gateway/serving/begun.h */

/* A request as it goes upstream. All of it borrowed: the bytes of `iov` until the lease was released or cancelled, the
 * rest for the call. */
typedef struct lar_lease_request {
    const struct iovec *iov; /* its HTTP head (empty for an engine), then the parts of its body */
    uint32_t count;
    lar_slice method, path;  /* without the prefix of a route; with the query */
    bool to_head_request;    /* the answer that comes belongs to a HEAD request */
    const lar_digest *scope; /* what only this tenant has */
    uint64_t tenant, id;     /* as the journal has them */
    /* For an engine: the answer goes on behind this (NULL: a new one). The head of the answer then has the field
     * LAR_BEGUN_TOKENS_FIELD: what was begun, in the engine's tokens. */
    const struct lar_serving_begun *begun;
} lar_lease_request;

#define LAR_BEGUN_TOKENS_FIELD "x-larder-begun-tokens"

typedef struct lar_pool_options {
    uv_loop_t *loop;
    lar_stream_scratch *scratch;
    const lar_upstream_config *config; /* borrowed */
    lar_tls_context *tls;              /* borrowed; NULL = plain */
    lar_metrics *metrics;
} lar_pool_options;

/* Of kind http. Heap; NULL when out of memory. */
lar_pool *lar_pool_new(const lar_pool_options *o);
/* Closes idle connections; those under lease stay until they are given back. No new lease is taken. */
void lar_pool_close(lar_pool *p);
/* Requests wait for the name to be looked up. */
bool lar_pool_resolving(const lar_pool *p);
/* Nothing is open, waiting or being looked up. */
bool lar_pool_quiet(const lar_pool *p);
/* Of a closed, quiet pool. */
void lar_pool_free(lar_pool *p);

void lar_lease_init(lar_lease *l, void (*on_event)(void *owner, const lar_lease_event *e), void *owner);
/* Takes an idle connection, opens one, or waits. UPSTREAM_BUSY (the queue is full) or SHUTDOWN: no event follows. */
LAR_MUST_USE lar_error lar_lease_acquire(lar_pool *p, lar_lease *l);
/* Sends the request. A connection that still has some of it to send when the lease ends is closed then. *unsent as in
 * lar_stream_write. */
LAR_MUST_USE lar_error lar_lease_send(lar_lease *l, const lar_lease_request *r, bool *unsent);
const lar_http1_head *lar_lease_head(const lar_lease *l);
/* The answer's END was reported. */
bool lar_lease_at_end(const lar_lease *l);
void lar_lease_pause(lar_lease *l);
void lar_lease_resume(lar_lease *l);
/* Gives the connection back after END (kept if it may be reused) or leaves the queue. Idempotent. */
void lar_lease_release(lar_lease *l);
/* Gives it up: the connection is closed. Idempotent. */
void lar_lease_cancel(lar_lease *l);

#endif
