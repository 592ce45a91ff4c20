/* A model's weights by their role, whatever the file calls them, every shape checked and every matrix prepared. */
#ifndef LARDER_ENGINE_MODEL_WEIGHTS_H
#define LARDER_ENGINE_MODEL_WEIGHTS_H

#include <stdatomic.h>

#include "base/arena.h"
#include "engine/compute/matmul.h"
#include "engine/compute/packed_memory.h"
#include "engine/experts/expert_cache.h"
#include "engine/files/model_files.h"
#include "engine/model/model_config.h"

typedef struct lar_layer {
    const float *attention_norm, *ffn_norm; /* (hidden) */
    const float *query_norm;                /* (query_rank); NULL without one */
    const float *latent_norm;               /* (rank) */
    lar_matrix query_down;                  /* (query_rank, hidden); zero without one */
    lar_matrix query;                       /* (heads * (nope + rope), query_rank or hidden) */
    lar_matrix latent;                      /* (rank + rope, hidden) */
    lar_matrix *key_absorb;                 /* (heads) of (rank, nope) */
    lar_matrix *key_expand;                 /* (heads) of (nope, rank) */
    lar_matrix *value_up;                   /* (heads) of (value, rank) */
    lar_matrix output;                      /* (hidden, heads * value) */
    lar_matrix router;                      /* (experts, hidden); zero in a dense layer */
    const float *router_bias;               /* (experts); NULL without one */
    lar_mlp *mlps;                          /* (mlp_count): the experts, or the dense layer's one */
    uint32_t mlp_count;
    uint32_t moe;   /* of a layer with experts: how many such layers are before it */
    lar_mlp shared; /* zero without shared experts */
} lar_layer;

typedef struct lar_weights {
    lar_layer *layers;           /* (layers) */
    const lar_tensor *embedding; /* (vocab, hidden) */
    const float *final_norm;     /* (hidden) */
    lar_matrix head;             /* (vocab, hidden) */
    uint32_t layer_count, moe_count, heads;
    uint64_t packed_bytes;     /* of all matrices together, and of the cache of experts */
    lar_expert_cache *experts; /* NULL: those that the router chooses from are all in memory, as all others are */
    lar_packed_memory packed;  /* where the matrices have their form */
    lar_arena arena; /* what is not in the files: norms as floats, transposed parts of kv_b, the arrays above */
} lar_weights;

typedef enum lar_weights_use {
    LAR_WEIGHTS_READ,
    LAR_WEIGHTS_MEASURE /* find and describe them, and count what they would take; none is read, none can multiply */
} lar_weights_use;

typedef struct lar_weights_options {
    lar_weights_use use;
    const lar_kernels *kernels;  /* types that they do not read are left to the reference */
    lar_activations activations; /* of all products but the router's, which is F32 always */
    struct lar_workers *workers; /* share the repacking; NULL: the calling thread alone */
    uint64_t expert_bytes;       /* 0, or more than all experts take: all are in memory */
    void (*progress)(void *context, uint32_t done, uint32_t total); /* layers; NULL: none */
    void *context;
    const atomic_bool *stop; /* looked at between layers; NULL: never */
} lar_weights_options;

/* The files must stay open as long as the weights. INVALID names the tensor that is missing or has another shape, with
 * what was expected and what was found; NO_MEMORY; SHUTDOWN: stopped; LIMIT, NOT_FOUND, IO: lar_expert_cache_new. After
 * an error there is nothing to release. */
LAR_MUST_USE lar_error lar_weights_load(lar_weights *w, const lar_model_config *c, const lar_model_files *f,
                                        const lar_weights_options *o, lar_diag *d);
void lar_weights_release(lar_weights *w);

#endif
