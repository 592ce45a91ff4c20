/* From a request head to protocol, tenant and upstream. Pure look-ups in the configuration. */
#ifndef LARDER_GATEWAY_ROUTE_H
#define LARDER_GATEWAY_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "gateway/config/config.h"
#include "gateway/http1/http1.h"

typedef struct lar_route {
    lar_protocol protocol;        /* NONE: passed through */
    const char *name;             /* for records: the protocol's name, or "models", "other" */
    lar_slice path;               /* target without the route's prefix; query included */
    const lar_route_config *rule; /* the rule whose prefix was cut, or NULL */
    bool anthropic;               /* errors in Anthropic's form */
    bool engine_only;             /* for an upstream of kind engine; with others there is no such endpoint */
    bool model_in_body;           /* no protocol, but the body names a model as those of protocols do */
    lar_slice model;              /* named by the path, or empty */
} lar_route;

/* Looks at method, target and path rules; the model is looked at later, by lar_route_upstream.
 * NO_ROUTE: no endpoint and no pass-through; METHOD: known endpoint, wrong method (*allow = the right ones);
 * HTTP_SYNTAX: a target that climbs or hides its path. */
LAR_MUST_USE lar_error lar_route_find(const lar_config *c, const lar_http1_head *h, lar_route *out, const char **allow);

/* The upstream for a model ("" if none is named). *matched gets the route that said so; NULL: none did, and it is the
 * first upstream. */
uint32_t lar_route_upstream(const lar_config *c, const lar_route *r, const lar_http1_head *h, lar_slice model,
                            const lar_route_config **matched);
/* The model to ask for in place of `model`; NULL if it is no alias. */
const char *lar_route_alias(const lar_config *c, lar_slice model);

/* The credential a client sent: bearer token, x-api-key or api-key; empty if none. Borrows the head. */
lar_slice lar_route_credential(const lar_http1_head *h);
typedef struct lar_tenant {
    uint64_t fingerprint; /* for records and logs; 0: no credential */
    lar_digest scope; /* what only this tenant has: of every credential that goes upstream, not of the first alone */
} lar_tenant;
/* Compares with every configured key in constant time. UNAUTHORIZED if keys are configured and none fits. */
LAR_MUST_USE lar_error lar_route_tenant(const lar_config *c, const lar_http1_head *h, const lar_digest *salt,
                                        lar_tenant *out);
/* The last tenants of one loop, so that the digests of a credential are worked out once and not at each request. Only
 * accepted credentials are kept, and of them only a keyed hash. Zero-initialised; belongs to one configuration. */
enum { LAR_TENANT_MEMO_SLOTS = 64 };
typedef struct lar_tenant_memo {
    struct {
        lar_hash key;
        lar_digest scope;
        uint64_t tenant;
        bool used;
    } slots[LAR_TENANT_MEMO_SLOTS];
    uint64_t seed[2]; /* random: nobody can choose what collides */
} lar_tenant_memo;
/* lar_route_tenant through the memo. */
LAR_MUST_USE lar_error lar_route_tenant_memo(const lar_config *c, const lar_http1_head *h, const lar_digest *salt,
                                             lar_tenant_memo *memo, lar_tenant *out);
/* Host checks of X-03: HTTP_HOST if a loopback listener is spoken to by another name. */
LAR_MUST_USE lar_error lar_route_host(const lar_config *c, const lar_http1_head *h, bool loopback_only);
/* A gateway on loopback without client keys serves whoever reaches it: with `closed`, a request that a web page of
 * another host sends there is FORBIDDEN, since a simple POST needs no preflight (Fetch 4.8) and would spend the
 * operator's key. Pages of this machine and clients that are no web pages (no Origin, or one that is not http) may ask.
 * */
LAR_MUST_USE lar_error lar_route_origin(const lar_http1_head *h, bool closed);
/* The value for Access-Control-Allow-Origin, or empty: CORS is off or the origin is not allowed. */
lar_slice lar_route_cors(const lar_config *c, const lar_http1_head *h);

#endif
