/* Routed experts in a fixed number of bytes: the others are read from the model's files when a token needs them.
 *
 * All memory is taken when the cache is made: slots for packed experts, and for each reading thread room for one matrix
 * as it lies in the file. Of a layer's visit, all experts that are missing are asked for at once; those that are there
 * are computed meanwhile, in ascending order, so that every sum has the order, and the bits, that it has when all are
 * in memory. Files are read around the page cache (direct_file.h); their mapping is not touched.
 *
 * One visit at a time; counts may be read from any thread. */
#ifndef LARDER_ENGINE_EXPERT_CACHE_H
#define LARDER_ENGINE_EXPERT_CACHE_H

#include "engine/compute/matmul.h"
#include "engine/experts/expert_slots.h"
#include "engine/files/model_files.h"

typedef struct lar_expert_cache lar_expert_cache;

enum { LAR_EXPERT_READERS = 4, LAR_EXPERT_READERS_MAX = 64 };

/* One MoE layer: where each expert lies and who packs it, as lar_matrix_of() fills it, no byte of it read yet. */
typedef struct lar_expert_layer {
    const lar_mlp *mlps; /* (experts), borrowed as long as the cache lives */
    uint32_t number;     /* of the layer in the model, for messages */
} lar_expert_layer;

typedef struct lar_expert_cache_options {
    const lar_model_files *files;   /* borrowed */
    const lar_expert_layer *layers; /* (layer_count), copied */
    uint32_t layer_count, experts, experts_used;
    uint64_t bytes; /* of slots and of what readers read into, together */
    lar_expert_policy policy;
    uint32_t readers; /* threads, 1 to LAR_EXPERT_READERS_MAX; fewer where the bytes are few; 0: LAR_EXPERT_READERS */
} lar_expert_cache_options;

/* Bytes of all packed experts together, and the least that a cache of them needs: one expert of each size, and room to
 * read one matrix. Looks at files, layers, layer_count and experts. */
typedef struct lar_expert_sizes {
    uint64_t all, least;
} lar_expert_sizes;
lar_expert_sizes lar_expert_cache_sizes(const lar_expert_cache_options *o);
/* LIMIT: `bytes` is below the least, which is said. */
LAR_MUST_USE lar_error lar_expert_cache_check(const lar_expert_cache_options *o, lar_diag *d);

/* LIMIT as above; NOT_FOUND, IO: the files cannot be opened a second time, or the
 * system gave no threads; NO_MEMORY. After an error *out is NULL. */
LAR_MUST_USE lar_error lar_expert_cache_new(const lar_expert_cache_options *o, lar_expert_cache **out, lar_diag *d);
/* Waits for reads under way. NULL: nothing happens. */
void lar_expert_cache_free(lar_expert_cache *c);

/* lar_mlp_run for MoE layer `layer` (from 0, of `layers` above): job->mlps is that layer's, job->count all experts;
 * job->then is run with the last of them. IO: an expert cannot be read; CORRUPT: it holds what is no number. `d` says
 * which expert of which layer; y is then undefined, and the next visit tries again. Allocates nothing. */
LAR_MUST_USE lar_error lar_expert_cache_run(lar_expert_cache *c, uint32_t layer, const lar_mlp_job *job,
                                            const lar_run *run, lar_diag *d);

/* Since the cache was made. */
typedef struct lar_expert_counts {
    uint64_t bytes, all_bytes;  /* reserved; of all packed experts */
    uint64_t slots, experts;    /* of all sizes; in all layers */
    uint64_t hits, misses;      /* experts that a visit used: were in memory, were read for it */
    uint64_t reads, bytes_read; /* matrices with their scales, as they lie in the files */
    uint64_t failures;          /* experts that could not be read */
    uint64_t run_us, stall_us;  /* of visits; of these, waiting for reads with nothing to compute */
    uint64_t read_us, pack_us;  /* of all reading threads together: waiting for files; checking and packing */
    bool buffered;              /* a file system takes no direct reads: its page cache was in the way */
} lar_expert_counts;
lar_expert_counts lar_expert_cache_counts(lar_expert_cache *c);

/* One layer's share of it. */
typedef struct lar_expert_layer_counts {
    uint32_t number; /* of the layer in the model */
    uint64_t hits, misses;
} lar_expert_layer_counts;
uint32_t lar_expert_cache_layers(const lar_expert_cache *c);
lar_expert_layer_counts lar_expert_cache_layer(lar_expert_cache *c, uint32_t layer);

#endif
