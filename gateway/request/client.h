/* One client connection: reads requests one after the other, runs an exchange for each, answers in order.
 * Private to gateway/request. */
#ifndef LARDER_GATEWAY_CLIENT_H
#define LARDER_GATEWAY_CLIENT_H

#include "gateway/http1/http1.h"
#include "gateway/net/deadline.h"
#include "gateway/net/stream.h"
#include "gateway/request/exchange.h"
#include "gateway/request/gateway.h"

typedef enum client_state {
    CLIENT_IDLE,   /* between requests */
    CLIENT_HEAD,   /* a head has begun */
    CLIENT_BODY,   /* its body is arriving */
    CLIENT_BUSY,   /* the exchange works; further requests wait in `pending` */
    CLIENT_LINGER, /* the last answer was sent; input is thrown away until the peer closes or time is up */
    CLIENT_CLOSING
} client_state;

struct lar_client {
    lar_stream stream;
    lar_deadline deadline;    /* for what is awaited from the peer: idle, head, body, linger */
    lar_deadline write_limit; /* while bytes are queued: it must take some */
    lar_loop *loop;
    lar_client *prev, *next; /* in loop->clients */
    lar_http1 *parser;
    lar_exchange *exchange; /* BODY, BUSY */
    lar_buf pending;        /* pipelined bytes */
    client_state state;
    uint8_t open_handles;
    bool eof, feeding, close_after;
    bool stalled;        /* not read: too much is pending */
    uint32_t probe_ms;   /* not 0: a probe is out, or the client is stalled */
    lar_deadline probe;  /* looks whether the peer is still there while it is not read */
    uint64_t taken_seen; /* lar_stream_taken when the write limit was last armed */
    size_t budget_bytes; /* of a head under way and of `pending`, counted in gateway->buffered_bytes */
    size_t linger_bytes;
};

/* Takes a connection from the listener. */
void lar_client_accept(lar_loop *l, uv_stream_t *listener);
/* Writes to the client; on failure the client is gone: CLIENT_GONE, and the caller abandons its exchange. */
LAR_MUST_USE lar_error lar_client_write(lar_client *c, const struct iovec *iov, uint32_t count);
size_t lar_client_queued(const lar_client *c);
/* Nothing more can come after the request under way. */
bool lar_client_at_last(const lar_client *c);
/* The request's body was read to its end. */
bool lar_client_body_read(const lar_client *c);
/* The exchange is done with its answer. `keep`: the connection may carry another request. */
void lar_client_exchange_done(lar_client *c, client_next next);
/* larder stops: a request under way is answered with SHUTDOWN, the connection closes. */
void lar_client_close(lar_client *c);

#endif
