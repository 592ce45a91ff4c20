/* What a model is: its dimensions and rules, from config.json of a Hugging Face folder or from GGUF's metadata.
 *
 * Read: plain multi-head latent attention with dense or MoE layers, deepseek_v2 (V2, V2-Lite, Coder-V2), deepseek_v3
 * (V3, R1, V3.1, Moonlight), glm4_moe_lite (GLM-4.7-Flash), and deepseek_v32 within its first 2048 tokens, where its
 * sparse attention attends to everything. Everything else is refused by name. */
#ifndef LARDER_ENGINE_MODEL_MODEL_CONFIG_H
#define LARDER_ENGINE_MODEL_MODEL_CONFIG_H

#include "base/error.h"
#include "base/slice.h"
#include "engine/compute/operations.h"
#include "engine/files/model_files.h"

typedef enum lar_model_family {
    LAR_FAMILY_DEEPSEEK_V2,
    LAR_FAMILY_DEEPSEEK_V3,
    LAR_FAMILY_DEEPSEEK_V32,
    LAR_FAMILY_GLM4_MOE_LITE,
    LAR_FAMILY_GGUF_DEEPSEEK2 /* which of the others it was, its metadata does not say */
} lar_model_family;

/* Ranges in which every dimension lies once a configuration is valid: any product of two fits 64 bits many times over,
 * and sizes are computed in 64 bits. */
enum {
    LAR_LAYERS_MAX = 1024,
    LAR_HEADS_MAX = 1024,
    LAR_WIDTH_MAX = 1 << 20,    /* hidden, widths of the MLPs */
    LAR_HEAD_DIM_MAX = 1 << 12, /* of each part of a head */
    LAR_RANK_MAX = 1 << 16,
    LAR_VOCAB_MAX = 1 << 22,
    LAR_CONTEXT_MAX = 1 << 24,
    LAR_V32_CONTEXT = 2048 /* beyond it DeepSeek-V3.2 attends sparsely */
};

typedef struct lar_model_config {
    lar_model_family family;
    uint32_t layers; /* without those that predict further tokens (MTP) */
    uint32_t hidden, vocab, context;
    uint32_t heads, query_rank /* 0: queries straight from hidden */, rank /* of the latent */;
    uint32_t nope, value;                /* of a head, without its rotated part */
    lar_rope rope;                       /* rope.dims: the rotated part, of a query head and of the one shared key */
    double softmax_scale;                /* get_mscale squared is in it */
    float eps, latent_eps;               /* of the norms of hidden; of those of the query's and the key's latent */
    uint32_t dense_width;                /* of dense layers */
    uint32_t dense_layers;               /* the first so many are dense, */
    uint32_t moe_every;                  /* and of the rest those whose number it does not divide */
    uint32_t expert_width, shared_width; /* shared experts are one MLP; 0: none */
    lar_router router;                   /* router.experts 0: all layers are dense; bias belongs to each layer */
    bool has_bias;                       /* each router has a bias of selection */
    bool tied;                           /* lm_head may be missing: the embedding is used */
} lar_model_config;

/* Fills `c` from the text of config.json. INVALID: not supported, or out of range (`d` says which field, what was found
 * and what is possible); JSON_* with the offset; NO_MEMORY. */
LAR_MUST_USE lar_error lar_config_from_json(lar_model_config *c, lar_slice text, lar_diag *d);

/* The same from GGUF, architecture deepseek2; looks for tensors where the metadata does not say enough. */
LAR_MUST_USE lar_error lar_config_from_gguf(lar_model_config *c, const lar_model_files *f, lar_diag *d);
/* Either, whichever `f` is; NOT_FOUND: a folder without config.json. */
LAR_MUST_USE lar_error lar_config_read(lar_model_config *c, const lar_model_files *f, lar_diag *d);

/* Checks everything that a reader filled in, and derives softmax_scale and the amplitude of rotation from mscale and
 * mscale_all_dim. */
LAR_MUST_USE lar_error lar_config_finish(lar_model_config *c, double mscale, double mscale_all_dim, lar_diag *d);

static inline bool lar_config_is_moe(const lar_model_config *c, uint32_t layer) {
    return c->router.experts && layer >= c->dense_layers && layer % c->moe_every == 0;
}

/* "deepseek_v2", as config.json has it. */
const char *lar_model_family_name(lar_model_family f);
/* What to add to an error about the context: why it is shorter than the model's makers say, or nothing. */
const char *lar_config_context_why(const lar_model_config *c);
/* For messages: what is read, in one line. */
const char *lar_model_supported(void);

#endif
