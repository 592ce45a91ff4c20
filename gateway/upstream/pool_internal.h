/* Private to gateway/upstream: what pool.c and upstream_conn.c share. */
#ifndef LARDER_GATEWAY_POOL_INTERNAL_H
#define LARDER_GATEWAY_POOL_INTERNAL_H

#include "gateway/net/deadline.h"
#include "gateway/net/resolver.h"
#include "gateway/upstream/pool_ops.h"

typedef struct conn_pool conn_pool;
typedef struct lar_upstream_conn lar_upstream_conn;

typedef enum conn_state {
    CONN_CONNECTING, /* not open yet; belongs to nobody */
    CONN_IDLE,       /* in the pool's idle list */
    CONN_LEASED,
    CONN_CLOSING /* waits for its last close callback */
} conn_state;

struct lar_upstream_conn {
    lar_stream stream;
    lar_deadline deadline; /* connect timeout, then idle limit */
    lar_http1 *parser;
    conn_pool *pool;
    lar_lease *lease;
    lar_upstream_conn *prev, *next; /* in pool->idle */
    struct sockaddr_storage peer;
    uint32_t address_tries;
    uint32_t address_index;
    uint32_t idle_ms_max; /* the upstream's Keep-Alive hint or the configured limit */
    uint64_t idle_since_ms;
    uint64_t idle_since_ns; /* by the clock itself: the loop's own time may be late (H-02) */
    conn_state state;
    uint8_t open_handles; /* stream, deadline */
    bool counted, used, answered, answer_done, reusable, extra_bytes;
};

struct conn_pool {
    lar_pool base; /* first */
    lar_pool_options o;
    lar_resolver resolver;
    lar_upstream_conn *idle; /* newest first */
    lar_lease *wait_first, *wait_last;
    uint32_t leased; /* connections under lease */
    uint32_t idle_count, open_count, connecting, waiting;
    uint32_t good_address;     /* index that worked last */
    uint64_t careful_until_ms; /* it was seen to close idle connections: each one is looked at before use */
    bool closing;
};

/* upstream_conn.c */
LAR_MUST_USE lar_error lar_conn_open(conn_pool *p);
void lar_conn_close(lar_upstream_conn *c, lar_stream_close_mode mode);

/* pool.c: told by connections */
void lar_pool_conn_open(lar_upstream_conn *c);
void lar_pool_conn_failed(lar_upstream_conn *c, lar_error e, const char *detail);
void lar_pool_conn_gone(lar_upstream_conn *c);
void lar_pool_upstream_closes(conn_pool *p); /* it ended an idle or reused connection */
void lar_pool_idle_remove(lar_upstream_conn *c);

#endif
