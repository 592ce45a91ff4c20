/* One name's addresses, both families, cached for a time (H-31, H-32, H-33). Loop thread only. */
#ifndef LARDER_GATEWAY_RESOLVER_H
#define LARDER_GATEWAY_RESOLVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/error.h"

enum { LAR_ADDRESSES_MAX = 16 };

typedef struct lar_resolver {
    uv_loop_t *loop;
    const char *host;
    uint16_t port;
    uint32_t ttl_ms;
    struct sockaddr_storage addresses[LAR_ADDRESSES_MAX];
    uint32_t count;
    uint64_t fresh_until_ms; /* uv_now() time */
    uv_getaddrinfo_t request;
    bool resolving, closing;
    void (*on_done)(void *owner, lar_error e); /* also with old addresses kept: OK */
    void *owner;
} lar_resolver;

/* Embedded; borrows host. A literal address is taken as it is and never expires. */
void lar_resolver_init(lar_resolver *r, uv_loop_t *loop, const char *host, uint16_t port, uint32_t ttl_ms);
/* True if addresses are at hand and within their time. */
bool lar_resolver_fresh(const lar_resolver *r);
/* Asks the system's resolver off the loop; on_done runs later, once (at once if no look-up can be begun). Does nothing
 * while one is under way. */
void lar_resolver_start(lar_resolver *r);
/* True if `a` (with its port) is among the addresses. */
bool lar_resolver_has(const lar_resolver *r, const struct sockaddr_storage *a);
/* on_done will not run any more; the memory may go once lar_resolver_idle. */
void lar_resolver_close(lar_resolver *r);
static inline bool lar_resolver_idle(const lar_resolver *r) { return !r->resolving; }

#endif
