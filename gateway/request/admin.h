/* The admin listener: /metrics, /healthz, /readyz, /upstreams, /experts. Runs on the main thread's loop, apart from the
 * traffic. */
#ifndef LARDER_GATEWAY_ADMIN_H
#define LARDER_GATEWAY_ADMIN_H

#include <uv.h>

#include "base/error.h"
#include "gateway/request/gateway.h"

typedef struct lar_admin lar_admin;

/* Binds admin.listen and starts to answer. *out is NULL when it is 'off'. CONFIG with detail. */
LAR_MUST_USE lar_error lar_admin_open(uv_loop_t *loop, lar_gateway *g, lar_admin **out, lar_diag *d);
/* Closes the listener and its connections; freed once the loop has run their close callbacks. NULL is fine. */
void lar_admin_close(lar_admin *a);

#endif
