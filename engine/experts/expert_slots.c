/* Who stays in memory: slots, shares of use, the choice of a victim.
 * Called by expert_cache.c, and by tests and benches that replay traces. One thread; never blocks.
 * Why an estimate of the next use: passes visit layers in a circle, so a long prompt, which uses all experts of all
 * layers, is the worst case of LRU: each expert would leave just before it is wanted. With shares near 1 the order of
 * the layers decides, and the layer that was just passed gives way; with small shares it is LFU that forgets.
 * Why a scan for the victim: it runs once for each expert that is read from disk, whose megabytes take far longer.
 * Invariants: 1. slot_of and expert_in say the same. 2. A held slot keeps its expert.
 * Memory: five arrays, taken once. */
#include "engine/experts/expert_slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

lar_error lar_expert_slots_init(lar_expert_slots *s, const lar_expert_slots_options *o, lar_diag *d) {
    size_t all = (size_t)o->layers * o->experts;
    *s = (lar_expert_slots){.policy = o->policy, .layers = o->layers, .experts = o->experts, .count = o->slots};
    s->slot_of = malloc(all * sizeof *s->slot_of);
    s->expert_in = malloc(o->slots * sizeof *s->expert_in);
    s->held = calloc(o->slots, sizeof *s->held);
    s->share = malloc(all * sizeof *s->share);
    s->used = calloc(all, sizeof *s->used);
    if (!s->slot_of || !s->expert_in || !s->held || !s->share || !s->used) {
        lar_expert_slots_release(s);
        return lar_fail(LAR_NO_MEMORY, d, "no memory for the list of %zu experts", all);
    }
    for (size_t i = 0; i < all; i++) s->slot_of[i] = LAR_EXPERT_NONE;
    for (size_t i = 0; i < all; i++) s->share[i] = (float)o->experts_used / (float)o->experts;
    for (uint32_t i = 0; i < o->slots; i++) s->expert_in[i] = LAR_EXPERT_NONE;
    return LAR_OK;
}

void lar_expert_slots_release(lar_expert_slots *s) {
    free(s->slot_of);
    free(s->expert_in);
    free(s->held);
    free(s->share);
    free(s->used);
    memset(s, 0, sizeof *s);
}

void lar_expert_slots_visit(lar_expert_slots *s, uint32_t layer, const uint32_t *starts) {
    LAR_ASSERT(layer < s->layers);
    float *share = s->share + (size_t)layer * s->experts;
    uint64_t *used = s->used + (size_t)layer * s->experts;
    s->visits++;
    s->layer = layer;
    for (uint32_t e = 0; e < s->experts; e++) {
        bool uses = starts[e] < starts[e + 1];
        share[e] += LAR_EXPERT_SHARE_STEP * ((uses ? 1.0f : 0.0f) - share[e]);
        if (uses) used[e] = s->visits;
    }
}

/* Of a circle of layers the next visit is 1 to `layers` visits away; each uses the expert with the chance `share`. */
double lar_expert_slots_distance(const lar_expert_slots *s, uint32_t key) {
    if (s->policy == LAR_EXPERTS_BY_AGE) return (double)(s->visits - s->used[key]);
    const double least = 1e-9;
    double share = s->share[key] > least ? (double)s->share[key] : least;
    uint32_t ahead = (key / s->experts + s->layers - s->layer - 1) % s->layers + 1;
    return ahead + s->layers * (1 - share) / share;
}

uint32_t lar_expert_slots_take(lar_expert_slots *s, const lar_expert_pool *pool, uint32_t key) {
    LAR_ASSERT(s->slot_of[key] == LAR_EXPERT_NONE);
    uint32_t best = LAR_EXPERT_NONE;
    double farthest = -1;
    for (uint32_t i = pool->first; i < pool->first + pool->count; i++) {
        if (s->held[i]) continue;
        if (s->expert_in[i] == LAR_EXPERT_NONE) {
            best = i;
            break;
        }
        double distance = lar_expert_slots_distance(s, s->expert_in[i]);
        if (distance > farthest) farthest = distance, best = i;
    }
    if (best == LAR_EXPERT_NONE) return best;
    lar_expert_slots_drop(s, best);
    s->expert_in[best] = key;
    s->slot_of[key] = best;
    return best;
}

void lar_expert_slots_drop(lar_expert_slots *s, uint32_t slot) {
    if (s->expert_in[slot] != LAR_EXPERT_NONE) s->slot_of[s->expert_in[slot]] = LAR_EXPERT_NONE;
    s->expert_in[slot] = LAR_EXPERT_NONE;
}
