/* The forward pass: token ids in, logits out, for one sequence or several at once. */
#ifndef LARDER_ENGINE_MODEL_FORWARD_H
#define LARDER_ENGINE_MODEL_FORWARD_H

#include "engine/cache/latent_cache.h"
#include "engine/compute/scratch.h"
#include "engine/model/weights.h"

typedef struct lar_forward lar_forward;

enum { LAR_FORWARD_TOKENS_MAX = 1 << 16 };

typedef struct lar_forward_options {
    uint32_t tokens_max; /* in one pass, all sequences together; 1 to LAR_FORWARD_TOKENS_MAX */
    uint32_t logits_max; /* tokens of a pass whose logits are wanted; 1 to tokens_max */
    struct lar_workers *workers;
    lar_attention_form form;
} lar_forward_options;

/* The next tokens of one sequence. */
typedef struct lar_forward_part {
    lar_latent_cache *cache; /* holds the tokens before, and has room for `count` more, by which it grows */
    const uint32_t *ids;
    uint32_t count;
    const uint32_t *wanted; /* (wanted_count) tokens whose logits are wanted, ascending: indices into ids, */
    uint32_t wanted_count;
    uint32_t wanted_from; /* plus this: as if ids began so many tokens earlier */
} lar_forward_part;

/* How pages of this model's latents are laid out; kv (layers) of lar_kv is borrowed. */
static inline lar_page_layout lar_forward_layout(const lar_model_config *c, const uint8_t *kv) {
    return (lar_page_layout){c->layers, c->rank, c->rope.dims, kv};
}

/* Plans and takes all memory of later passes. `c` and `w` must live as long. NO_MEMORY, LIMIT. */
LAR_MUST_USE lar_error lar_forward_new(const lar_model_config *c, const lar_weights *w, const lar_forward_options *o,
                                       lar_forward **out, lar_diag *d);
void lar_forward_free(lar_forward *f); /* NULL: nothing happens */

/* Whether a part can be run, but for the number of its tokens: the errors of lar_forward_run. */
LAR_MUST_USE lar_error lar_forward_check(const lar_forward *f, const lar_forward_part *part, lar_diag *d);

/* Runs `count` parts of different sequences in one pass and writes the wanted logits, (wanted tokens, vocab), in the
 * order of the parts; each has room (lar_latent_cache_reserve). One pass at a time. INVALID: an id outside the
 * vocabulary, more tokens or logits than planned; LIMIT: a cache, or the model's context, is full; IO, CORRUPT:
 * lar_expert_cache_run. After an error no sequence has changed. Allocates nothing. */
LAR_MUST_USE lar_error lar_forward_run(lar_forward *f, const lar_forward_part *parts, uint32_t count, float *logits,
                                       lar_diag *d);

/* The plan: sizes, and each buffer with its lifetime, for people. */
lar_scratch_report lar_forward_scratch(const lar_forward *f);

/* Which experts layer `layer` chose for the tokens of the last pass, (tokens, used), for tests and statistics: called
 * for each MoE layer while a pass runs. NULL: none. */
typedef void (*lar_forward_watch)(void *context, uint32_t layer, const uint32_t *chosen, uint32_t tokens);
void lar_forward_set_watch(lar_forward *f, lar_forward_watch watch, void *context);

#endif
