/* Made-up MLA models: shapes, random weights that depend on nothing but the seed, metadata as converters write it. */
#ifndef LARDER_TESTS_MODEL_MAKER_H
#define LARDER_TESTS_MODEL_MAKER_H

#include <stdio.h>

#include "engine/files/model_files.h"
#include "tests/unit_engine/files/gguf_writer.h"

typedef struct model_shape {
    uint64_t layers, dense_layers, hidden, heads;
    uint64_t q_rank; /* 0: q_proj alone */
    uint64_t kv_rank, nope, rope, v_dim;
    uint64_t dense_ff, expert_ff, experts, experts_used, shared;
    uint64_t groups, groups_used, vocab, context;
    bool sigmoid; /* router of V3: sigmoid, selection bias, weights made to sum to 1 */
    double expert_scale, eps, rope_base;
    double yarn_factor, yarn_mscale; /* 0: none; mscale_all_dim */
    uint64_t yarn_original;
    bool legacy;    /* GGUF: attn_kv_b whole, instead of attn_k_b and attn_v_b */
    lar_dtype type; /* of matrices; where rows are no whole blocks, the fall-back of llama.cpp's quantiser */
    bool mix;       /* GGUF, with type Q4_K: Q6_K for the output, and better types for half of the down projections */
    uint64_t seed;
    uint64_t embedding; /* spread of the embedding: what layers add, and what rounding does in them, is small beside a
                         * large one, as in trained models; beside 1 it is large, and every mistake shows */
    uint64_t jitter;    /* 0: none; else a seed by which norms differ by about 0.7 %: as much as rounding to eight bits
                      * changes activations. What hangs on a near-tie comes out otherwise. */
} model_shape;

/* "tiny-lite" (V2-Lite's form), "tiny-v3" (V3's), "v2lite" (V2-Lite's widths, four layers); false: another name. */
bool model_shape_named(const char *name, model_shape *out);

/* Where the values of a tensor come from: a row of its own numbers, or rows and columns of kv_b. */
typedef enum made_order { MADE_PLAIN, MADE_K_B, MADE_V_B, MADE_SCALE } made_order;
typedef struct made_tensor {
    char name[96];
    lar_dtype type;
    uint32_t dims;
    uint64_t shape[LAR_TENSOR_DIMS];
    uint64_t seed, base; /* its first value is value `base` of the numbers of `seed` */
    float mean, spread;
    uint64_t jitter; /* as the shape's, of norms */
    made_order order;
} made_tensor;

/* All tensors in file order; the caller frees the list. */
made_tensor *model_tensors(const model_shape *s, lar_model_form form, uint32_t *count);
/* Row `row` as floats: values of BF16, of an F8_E4M3 tensor divided by their scales. */
void made_row(const model_shape *s, const made_tensor *t, uint64_t row, float *out);

/* A whole model. GGUF: one file at `path`; folder: config.json and model.safetensors in `path`, which must exist. */
void model_write(const model_shape *s, lar_model_form form, const char *path);

#endif
