/* The pool of an upstream of kind engine on one loop: its leases are on answers of a model in this process.
 * See upstream.h for what a lease promises; here READY comes from inside lar_lease_acquire always. */
#ifndef LARDER_GATEWAY_ENGINE_POOL_H
#define LARDER_GATEWAY_ENGINE_POOL_H

#include "gateway/resident/resident.h"
#include "gateway/upstream/upstream.h"

/* Heap; NULL when out of memory. The resident is borrowed until the pool is free. */
lar_pool *lar_engine_pool_new(uv_loop_t *loop, lar_resident *r);

/* Does a model in this process answer such requests? `path` with or without query. NO_ROUTE, METHOD with what it
 * answers in `d`. */
LAR_MUST_USE lar_error lar_engine_pool_serves(lar_slice method, lar_slice path, lar_diag *d);

#endif
