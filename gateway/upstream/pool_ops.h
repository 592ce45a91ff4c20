/* What a kind of pool does for the functions of upstream.h. Private to those who make pools. */
#ifndef LARDER_GATEWAY_POOL_OPS_H
#define LARDER_GATEWAY_POOL_OPS_H

#include "gateway/upstream/upstream.h"

/* Each as upstream.h says of the function of its name. Those of a held lease are called while l->held is not NULL;
 * `release` and `cancel` while l->pool is not NULL, and leave both NULL. */
typedef struct lar_pool_ops {
    void (*close)(lar_pool *p);
    bool (*resolving)(const lar_pool *p);
    bool (*quiet)(const lar_pool *p);
    void (*free)(lar_pool *p);
    lar_error (*acquire)(lar_pool *p, lar_lease *l);
    lar_error (*send)(lar_lease *l, const lar_lease_request *r, bool *unsent);
    const lar_http1_head *(*head)(const lar_lease *l);
    bool (*at_end)(const lar_lease *l);
    void (*pause)(lar_lease *l);
    void (*resume)(lar_lease *l);
    void (*release)(lar_lease *l);
    void (*cancel)(lar_lease *l);
} lar_pool_ops;

/* The first member of every pool. */
struct lar_pool {
    const lar_pool_ops *ops;
};

#endif
