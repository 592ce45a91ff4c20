/* The golden models of tests/golden: opened, run, and held against their logits. Failures end the test (cmocka). */
#ifndef LARDER_TESTS_GOLDEN_H
#define LARDER_TESTS_GOLDEN_H

#include "base/json.h"
#include "engine/cache/kv_layers.h"
#include "engine/files/tensor_list.h"
#include "engine/model/forward.h"

enum { GOLDEN_CASES_MAX = 16 };

typedef struct golden_case {
    char name[32];
    uint32_t *ids, *positions, *continuation;
    double *margin; /* between the two best logits of each step of the continuation */
    uint32_t count, position_count, continuation_count;
    float *expected; /* (position_count, vocab) */
} golden_case;

typedef struct golden {
    const char *name;
    lar_model_files *files;
    lar_model_config config;
    lar_weights weights;
    golden_case cases[GOLDEN_CASES_MAX];
    uint32_t case_count;
    const char *kv; /* formats of golden_logits' latents (kv_layers.h); "f32" after golden_open */
} golden;

typedef struct golden_run {
    uint32_t chunk; /* tokens a pass */
    lar_attention_form form;
} golden_run;

extern const char *const golden_names[];
enum { GOLDEN_MODELS = 5 };

/* The names of golden_names; `kernels` NULL: the reference. */
void golden_open(golden *g, const char *name, const lar_kernels *kernels, lar_activations activations);
void golden_close(golden *g);
const golden_case *golden_find(const golden *g, const char *name);

/* A sequence with pages of its own, in formats as kv_layers.h reads them. */
lar_latent_cache *golden_cache(const lar_model_config *c, const char *kv, uint32_t capacity);
/* Logits of all positions of the case, (positions, vocab); free() them. */
float *golden_logits(const golden *g, const golden_case *c, golden_run how);
/* The largest difference, in standard deviations of the expected logits; NaN counts as infinite. */
double golden_distance(const golden *g, const golden_case *c, const float *logits);
/* The largest distance of all cases with logits. */
double golden_worst(const golden *g, golden_run how);
double golden_deviation(const golden *g, const golden_case *c);

/* Feeds ids in one pass; `logits` (vocab) are those of the last. */
void golden_feed(lar_forward *f, lar_latent_cache *k, const uint32_t *ids, uint32_t count, float *logits);

#endif
