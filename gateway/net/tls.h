/* TLS as a byte filter over memory BIOs; knows no sockets. TLS 1.2 and later, ALPN http/1.1. */
#ifndef LARDER_GATEWAY_TLS_H
#define LARDER_GATEWAY_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/slice.h"

/* Settings of one side: an upstream's verification and session, or a listener's certificate.
 * Reference counted; may be shared between threads. */
typedef struct lar_tls_context lar_tls_context;
typedef struct lar_tls lar_tls;

/* Client side. ca_file "" = the system's certificates. The peer is verified against `host` (a name, then also sent as
 * SNI, or an IP literal, then no SNI: RFC 6066 3). The last session is kept and offered again. CONFIG with detail. */
LAR_MUST_USE lar_error lar_tls_client_new(const char *host, bool host_is_ip, const char *ca_file, lar_tls_context **out,
                                          lar_diag *d);
/* Listener side: PEM chain and key. CONFIG with detail (file missing, key does not fit...). */
LAR_MUST_USE lar_error lar_tls_server_new(const char *cert_file, const char *key_file, lar_tls_context **out,
                                          lar_diag *d);
lar_tls_context *lar_tls_context_ref(lar_tls_context *c);
void lar_tls_context_unref(lar_tls_context *c);

/* One connection; holds a reference on `c`. NULL when out of memory. */
lar_tls *lar_tls_new(lar_tls_context *c);
void lar_tls_free(lar_tls *t);

/* Gives bytes that came from the peer. NO_MEMORY. */
LAR_MUST_USE lar_error lar_tls_feed(lar_tls *t, lar_slice cipher);
/* Drives the handshake. OK: done or more bytes needed (see lar_tls_ready). UPSTREAM_TLS with detail on failure;
 * an alert may then still wait in lar_tls_output. */
LAR_MUST_USE lar_error lar_tls_handshake(lar_tls *t, lar_diag *d);
bool lar_tls_ready(const lar_tls *t);
/* Decrypts into buf; *got = 0: nothing now. *closed is set on the peer's close_notify. UPSTREAM_TLS on damage. */
LAR_MUST_USE lar_error lar_tls_read(lar_tls *t, char *buf, size_t cap, size_t *got, bool *closed);
/* Encrypts all of `plain` (handshake done). */
LAR_MUST_USE lar_error lar_tls_write(lar_tls *t, lar_slice plain);
/* Queues close_notify. */
void lar_tls_shutdown(lar_tls *t);
/* Bytes that wait for the peer; valid until the next call on `t`; consume after they were sent or copied. */
lar_slice lar_tls_output(lar_tls *t);
void lar_tls_consume(lar_tls *t);

#endif
