/* The demo upstream's HTTP/1.1 server: one loop, keep-alive, pipelining in order, TLS if asked.
 *
 *     request(conn, req) -> demo_wire_send* / demo_wire_after -> demo_wire_finish
 *
 * Callbacks run on the loop. After `gone` the connection is not valid any more. */
#ifndef LARDER_TESTS_DEMO_WIRE_H
#define LARDER_TESTS_DEMO_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/slice.h"

typedef struct demo_wire demo_wire;
typedef struct demo_conn demo_conn;

enum { DEMO_FIELDS_MAX = 200 };

typedef struct demo_field {
    lar_slice name, value;
} demo_field;

/* Borrowed for the call of `request`; the body may be taken (swapped with an empty buffer). */
typedef struct demo_request {
    lar_slice method, target;
    const demo_field *fields;
    uint32_t field_count;
    lar_buf *body;
    bool keep_alive, http_1_0;
} demo_request;

typedef struct demo_wire_ops {
    void *ctx;
    void (*request)(void *ctx, demo_conn *c, const demo_request *r);
    void (*wrote)(void *ctx, demo_conn *c); /* what was sent has left; only while a request is being answered */
    void (*tick)(void *ctx, demo_conn *c);  /* demo_wire_after's time has come */
    void (*gone)(void *ctx, demo_conn *c);  /* the client left, or the connection was closed, before finish */
} demo_wire_ops;

typedef struct demo_wire_options {
    const char *host;
    int port;                                /* 0 = a free one */
    const char *tls_cert, *tls_key;          /* PEM files; NULL = plain */
    uint64_t keepalive_timeout_ms;           /* 0 = never */
} demo_wire_options;

/* NULL with a line on stderr if it cannot listen. */
demo_wire *demo_wire_new(uv_loop_t *loop, const demo_wire_options *o, const demo_wire_ops *ops);
/* Closes the listener and all connections; freed once the loop has run out. */
void demo_wire_stop(demo_wire *w);
void demo_wire_free(demo_wire *w);
int demo_wire_port(const demo_wire *w);
/* Connections open now, and accepted since the start. */
uint64_t demo_wire_open(const demo_wire *w);
uint64_t demo_wire_accepted(const demo_wire *w);

/* Copies the bytes; never blocks. */
void demo_wire_send(demo_conn *c, lar_slice bytes);
bool demo_wire_busy(const demo_conn *c); /* earlier bytes are still waiting to leave */
void demo_wire_after(demo_conn *c, uint64_t ms);
/* The answer is complete: the next request may come, or the connection ends if it must. */
typedef enum demo_end { DEMO_END_KEEP, DEMO_END_CLOSE } demo_end;
void demo_wire_finish(demo_conn *c, demo_end end);
/* Ends the connection in the middle: with RST at once. */
void demo_wire_reset(demo_conn *c);
void demo_wire_set_user(demo_conn *c, void *user);
void *demo_wire_user(const demo_conn *c);

#endif
