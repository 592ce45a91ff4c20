/* DNS through uv_getaddrinfo (its thread pool), cached per upstream and loop. Never blocks the loop.
 * A failed look-up keeps the old addresses: a resolver that is down must not take a working upstream with it. */
#include "gateway/net/resolver.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

static void set_port(struct sockaddr_storage *a, uint16_t port) {
    if (a->ss_family == AF_INET6) ((struct sockaddr_in6 *)a)->sin6_port = htons(port);
    else ((struct sockaddr_in *)a)->sin_port = htons(port);
}

void lar_resolver_init(lar_resolver *r, uv_loop_t *loop, const char *host, uint16_t port, uint32_t ttl_ms) {
    *r = (lar_resolver){.loop = loop, .host = host, .port = port, .ttl_ms = ttl_ms};
    struct sockaddr_storage a;
    memset(&a, 0, sizeof a);
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)&a) != 0 &&
        uv_ip6_addr(host, port, (struct sockaddr_in6 *)&a) != 0)
        return;
    r->addresses[0] = a;
    r->count = 1;
    r->fresh_until_ms = UINT64_MAX;
}

bool lar_resolver_fresh(const lar_resolver *r) { return r->count && uv_now(r->loop) < r->fresh_until_ms; }

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list) {
    lar_resolver *r = req->data;
    r->resolving = false;
    uint32_t n = 0;
    struct sockaddr_storage found[LAR_ADDRESSES_MAX];
    for (struct addrinfo *a = status == 0 ? list : NULL; a && n < LAR_ADDRESSES_MAX; a = a->ai_next) {
        if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || a->ai_addrlen > sizeof found[0]) continue;
        memset(&found[n], 0, sizeof found[n]);
        memcpy(&found[n], a->ai_addr, a->ai_addrlen);
        set_port(&found[n++], r->port);
    }
    uv_freeaddrinfo(list);
    if (n) {
        memcpy(r->addresses, found, n * sizeof found[0]);
        r->count = n;
    }
    if (r->count)
        r->fresh_until_ms =
            uv_now(r->loop) + (n ? (r->ttl_ms ? r->ttl_ms : 1) : 1000); /* fresh at least for who waits */
    if (!r->closing) r->on_done(r->owner, r->count ? LAR_OK : LAR_UPSTREAM_DNS);
}

void lar_resolver_start(lar_resolver *r) {
    if (r->resolving || r->closing) return;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    /* "localhost" must work where only loopback is up: ADDRCONFIG would hide both families there */
    if (strcmp(r->host, "localhost") == 0) hints.ai_flags = 0;
    r->request.data = r;
    r->resolving = true;
    if (uv_getaddrinfo(r->loop, &r->request, on_resolved, r->host, NULL, &hints) < 0) {
        r->resolving = false;
        r->fresh_until_ms = uv_now(r->loop) + 1000; /* old addresses will do; no look-up again at once */
        r->on_done(r->owner, r->count ? LAR_OK : LAR_UPSTREAM_DNS);
    }
}

bool lar_resolver_has(const lar_resolver *r, const struct sockaddr_storage *a) {
    for (uint32_t i = 0; i < r->count; i++) {
        if (memcmp(&r->addresses[i], a, sizeof *a) == 0) return true;
    }
    return false;
}

void lar_resolver_close(lar_resolver *r) {
    r->closing = true;
    if (r->resolving) (void)uv_cancel((uv_req_t *)&r->request);
}
