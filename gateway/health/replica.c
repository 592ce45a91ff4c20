/* Rendezvous hashing with bounded load.
 * Called when a request's target is chosen. Pure; any thread. */
#include "gateway/health/replica.h"

#include <math.h>

#include "base/ensure.h"
#include "base/hash.h"

/* weight / -ln(u), u in (0, 1): the largest wins with a chance in proportion to its weight. */
static double score(uint64_t prefix, const lar_replica *r) {
    uint64_t h = lar_mix64(lar_mix64(prefix + LAR_MIX64_STEP) ^ r->id);
    double u = ((double)(h >> 11) + 0.5) * 0x1p-53;
    return (double)r->weight / -log(u);
}

static bool over_bound(const lar_replica *r, uint64_t load, uint64_t weight, uint32_t slack_percent) {
    double share = (double)(load + 1) * r->weight / (double)weight;
    return (double)(r->load + 1) > ceil(share * (1.0 + slack_percent / 100.0));
}

void lar_replica_order(uint64_t prefix, const lar_replica *replicas, uint32_t count, uint32_t slack_percent,
                       uint32_t *order) {
    double scores[LAR_REPLICAS_MAX];
    uint8_t class[LAR_REPLICAS_MAX];
    uint64_t load = 0, weight = 0;
    LAR_ASSERT(count <= LAR_REPLICAS_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (replicas[i].well) load += replicas[i].load, weight += replicas[i].weight;
    for (uint32_t i = 0; i < count; i++) {
        scores[i] = score(prefix, &replicas[i]);
        class[i] = !replicas[i].well ? 2 : over_bound(&replicas[i], load, weight, slack_percent) ? 1 : 0;
        uint32_t at = i;
        for (; at && (class[order[at - 1]] > class[i] ||
                      (class[order[at - 1]] == class[i] && scores[order[at - 1]] < scores[i]));
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}
