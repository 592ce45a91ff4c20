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
    uint8_t *kv;                /* (layers) of lar_kv */
    char *kv_text;              /* the same, for people */
    lar_page_pool *pool;        /* of all sequences; NULL: each has its own */
    lar_digest model;           /* what kept prefixes are named by, where they go to a store */
    lar_prefix_cache *prefixes; /* what is kept in the pool; NULL without one */
    uint64_t steps;             /* begun */
};

struct lar_sequence {
    lar_latent_cache *cache;
    uint64_t step;              /* the last one that it was in */
    lar_prefix_cache *prefixes; /* the engine's */
    bool keeps;                 /* since it adopted: whole pages are kept for `scope`, those before `end` already */
    lar_digest scope;
    lar_prefix_end end;
};

static inline lar_page_layout lar_engine_layout(const lar_engine *e) { return lar_forward_layout(&e->config, e->kv); }

/* Names the model for its page store, where there is one; before weights are prepared, so that files are read into the
 * system's memory once and in order. As lar_model_digest_of. */
LAR_MUST_USE lar_error lar_engine_name_model(lar_engine *n, const lar_engine_options *o, lar_diag *d);
/* The cache of prefixes, where there is a pool for it; the last to be opened: for a page store, what the model computes
 * joins its name. NO_MEMORY. */
LAR_MUST_USE lar_error lar_engine_open_prefixes(lar_engine *n, const lar_engine_options *o, lar_diag *d);

#endif
