/* Which replica of an upstream group a prefix belongs to: rendezvous hashing (Thaler and Ravishankar 1998) with bounded
 * load (Mirrokni, Thorup, Zadimoghaddam, arXiv 1608.01350). The same prefix goes to the same replica while it is well
 * and not far busier than the others; a replica that comes or goes moves only its own prefixes. */
#ifndef LARDER_GATEWAY_REPLICA_H
#define LARDER_GATEWAY_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

enum { LAR_REPLICAS_MAX = 64 };

typedef struct lar_replica {
    uint64_t id;     /* a hash of its URL: the same in every process */
    uint32_t load;   /* requests under way */
    uint32_t weight; /* 1 and more: its share */
    bool well;       /* its breaker lets a request go */
} lar_replica;

/* Writes the indices of all replicas to `order` in the order in which they are to be tried for this prefix: those that
 * are well and below the bound by rendezvous, then those over the bound, then those that are not well. A replica is
 * over the bound when its load, with this request, is more than (1 + slack_percent / 100) times its share of all loads.
 * `count` to LAR_REPLICAS_MAX. */
void lar_replica_order(uint64_t prefix, const lar_replica *replicas, uint32_t count, uint32_t slack_percent,
                       uint32_t *order);

#endif
