/* The inside of an engine and of a sequence, for the files engine*.c alone. */
#ifndef LARDER_ENGINE_PARTS_H
#define LARDER_ENGINE_PARTS_H

#include "engine/compute/workers.h"
#include "engine/engine.h"
#include "engine/model/forward.h"

struct lar_engine {
    lar_model_files *files;
    lar_model_config config;
    lar_weights weights;
    lar_forward *forward;
    lar_workers *workers;
    const lar_kernels *kernels;
    uint32_t tokens_max;
    uint8_t *kv;         /* (layers) of lar_kv */
    char *kv_text;       /* the same, for people */
    lar_page_pool *pool; /* of all sequences; NULL: each has its own */
    uint64_t steps;      /* begun */
};

struct lar_sequence {
    lar_latent_cache *cache;
    uint64_t step; /* the last one that it was in */
};

static inline lar_page_layout lar_engine_layout(const lar_engine *e) { return lar_forward_layout(&e->config, e->kv); }

#endif
