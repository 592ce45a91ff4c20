/* Listening sockets with SO_REUSEPORT, so that every loop thread has its own. */
#ifndef LARDER_GATEWAY_LISTENER_H
#define LARDER_GATEWAY_LISTENER_H

#include <stdint.h>
#include <uv.h>

#include "base/error.h"

enum { LAR_ADDRESS_TEXT_BYTES = 64 };

/* EXCLUSIVE: fails if anybody listens there already; SHARED: joins the sockets of this process (SO_REUSEPORT would
 * also join those of another larder, and traffic would go to either). */
typedef enum lar_listener_mode { LAR_LISTENER_EXCLUSIVE, LAR_LISTENER_SHARED } lar_listener_mode;

/* Binds host:port (host: IPv4 or IPv6 literal, or a name that resolves; port 0 = any free one) on
 * the embedded handle. The socket is bound, not yet listening. CONFIG or IO with
 * detail. Blocks on name resolution: start-up only. The handle must be closed by the owner, also on error. */
LAR_MUST_USE lar_error lar_listener_open(uv_loop_t *loop, uv_tcp_t *handle, const char *host, uint16_t port,
                                         lar_listener_mode mode, lar_diag *d);
/* Starts to accept: `on_connection` as in uv_listen. */
LAR_MUST_USE lar_error lar_listener_start(uv_tcp_t *handle, uv_connection_cb on_connection, lar_diag *d);
/* "127.0.0.1:8080" of an open handle, and its port. */
uint16_t lar_listener_address(const uv_tcp_t *handle, char *text, size_t cap);

#endif
