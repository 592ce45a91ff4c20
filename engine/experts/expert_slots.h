/* Which experts lie in which slots of memory, and who goes when another needs room: bookkeeping alone, of numbers. No
 * files, no threads; one caller at a time.
 *
 * An expert is known by its key, layer * experts + expert, of the MoE layers alone. Passes go through the layers in
 * their order, again and again; each visit of a layer says which of its experts it uses. */
#ifndef LARDER_ENGINE_EXPERT_SLOTS_H
#define LARDER_ENGINE_EXPERT_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { LAR_EXPERT_NONE = 0xffffffff };

typedef enum lar_expert_policy {
    /* The one whose next use is expected last: of an expert, the share of its layer's visits that used it, older ones
     * weighing less, says how many visits pass until then; its layer's place, how far off the first of them is. */
    LAR_EXPERTS_BY_SHARE,
    LAR_EXPERTS_BY_AGE /* the one used longest ago (LRU) */
} lar_expert_policy;

/* Slots of one size: [first, first + count). */
typedef struct lar_expert_pool {
    uint32_t first, count;
} lar_expert_pool;

/* Embedded. The arrays are read by the owner, and changed by the functions below alone, but for `held`. */
typedef struct lar_expert_slots {
    lar_expert_policy policy;
    uint32_t layers, experts; /* MoE layers, experts of each */
    uint32_t count;           /* slots */
    uint32_t *slot_of;        /* (layers * experts) LAR_EXPERT_NONE: in none */
    uint32_t *expert_in;      /* (count) its key; LAR_EXPERT_NONE: it is empty */
    uint32_t *held;           /* (count) 0: it may be taken for another */
    float *share;             /* (layers * experts) */
    uint64_t *used;           /* (layers * experts) the visit that used it last, from 1; 0: none */
    uint64_t visits;
    uint32_t layer; /* of the last visit */
} lar_expert_slots;

/* The weight of the last visit in a share; half of it is forgotten after about 44 visits. */
#define LAR_EXPERT_SHARE_STEP (1.0f / 64)

typedef struct lar_expert_slots_options {
    lar_expert_policy policy;
    uint32_t layers, experts, experts_used; /* used: by one token, what is expected before anything is known */
    uint32_t slots;
} lar_expert_slots_options;

/* NO_MEMORY; then there is nothing to release. */
LAR_MUST_USE lar_error lar_expert_slots_init(lar_expert_slots *s, const lar_expert_slots_options *o, lar_diag *d);
void lar_expert_slots_release(lar_expert_slots *s);

/* Layer `layer` uses every expert e with starts[e] < starts[e + 1]: (experts + 1), as lar_mlp_job has them. */
void lar_expert_slots_visit(lar_expert_slots *s, uint32_t layer, const uint32_t *starts);
/* A slot of the pool for an expert that is in none: an empty one, or that of an expert whose time has come, which is in
 * none from now on. LAR_EXPERT_NONE: all are held. */
uint32_t lar_expert_slots_take(lar_expert_slots *s, const lar_expert_pool *pool, uint32_t key);
/* Visits of layers until an expert is expected to be used, by policy; larger: may go earlier. */
double lar_expert_slots_distance(const lar_expert_slots *s, uint32_t key);
/* The slot is empty from now on. */
void lar_expert_slots_drop(lar_expert_slots *s, uint32_t slot);

#endif
