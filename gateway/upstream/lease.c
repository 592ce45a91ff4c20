/* The functions of upstream.h that any kind of pool has: each asks the pool's own.
 * Called by the request path; calls pool.c (connections) or gateway/resident/engine_pool.c (a model in this process).
 * Loop thread; never blocks. Why a table: a request knows nothing of who answers it. */
#include "base/ensure.h"
#include "gateway/upstream/pool_ops.h"

void lar_pool_close(lar_pool *p) { p->ops->close(p); }

bool lar_pool_resolving(const lar_pool *p) { return p->ops->resolving(p); }

bool lar_pool_quiet(const lar_pool *p) { return p->ops->quiet(p); }

void lar_pool_free(lar_pool *p) {
    if (p) p->ops->free(p);
}

void lar_lease_init(lar_lease *l, void (*on_event)(void *owner, const lar_lease_event *e), void *owner) {
    *l = (lar_lease){.on_event = on_event, .owner = owner};
}

lar_error lar_lease_acquire(lar_pool *p, lar_lease *l) {
    LAR_ASSERT(!l->pool && !l->held);
    return p->ops->acquire(p, l);
}

lar_error lar_lease_send(lar_lease *l, const lar_lease_request *r, bool *unsent) {
    LAR_ASSERT(l->held);
    return l->pool->ops->send(l, r, unsent);
}

const lar_http1_head *lar_lease_head(const lar_lease *l) {
    LAR_ASSERT(l->held);
    return l->pool->ops->head(l);
}

bool lar_lease_at_end(const lar_lease *l) { return l->held && l->pool->ops->at_end(l); }

void lar_lease_pause(lar_lease *l) {
    if (l->held) l->pool->ops->pause(l);
}

void lar_lease_resume(lar_lease *l) {
    if (l->held) l->pool->ops->resume(l);
}

void lar_lease_release(lar_lease *l) {
    if (l->pool) l->pool->ops->release(l);
}

void lar_lease_cancel(lar_lease *l) {
    if (l->pool) l->pool->ops->cancel(l);
}
