/* What a sequence remembers: for each layer and token the normed latent and the rotated key, (rank + rope) values, kept
 * as latent_row.h says. Rows are only ever added at the end or dropped from it: a prefix can be cut at any token. */
#ifndef LARDER_ENGINE_MODEL_LATENT_CACHE_H
#define LARDER_ENGINE_MODEL_LATENT_CACHE_H

#include "engine/compute/attention.h"
#include "engine/files/kv_format.h"
#include "engine/model/model_config.h"

typedef struct lar_latent_cache lar_latent_cache;

/* Room for `capacity` tokens and what fills their last page, taken now: nothing is allocated later. NO_MEMORY, with
 * the bytes in `d`. */
LAR_MUST_USE lar_error lar_latent_cache_new(const lar_model_config *c, uint32_t capacity, lar_kv format,
                                            lar_latent_cache **out, lar_diag *d);
void lar_latent_cache_free(lar_latent_cache *k); /* NULL: nothing happens */

uint32_t lar_latent_cache_length(const lar_latent_cache *k);   /* tokens that all layers hold */
uint32_t lar_latent_cache_capacity(const lar_latent_cache *k); /* tokens */
uint64_t lar_latent_cache_bytes(const lar_latent_cache *k);    /* taken */

/* Keeps `row` (rank + rope) of the token at `position` < capacity; read through lar_latent_cache_rows from then on. */
void lar_latent_cache_put(lar_latent_cache *k, uint32_t layer, uint32_t position, const float *row);
/* All layers have the rows up to `length` <= capacity, or forget those behind it. */
void lar_latent_cache_set_length(lar_latent_cache *k, uint32_t length);
/* For attention; valid as long as the cache. Rows in float32 are read where they lie, others in the reader's room. */
lar_latents lar_latent_cache_rows(const lar_latent_cache *k, uint32_t layer);

#endif
