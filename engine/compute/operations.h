/* The small operations of a layer, in float32: norms, rotation, softmax, the choice of experts. Each is the readable
 * reference and fast enough: none reads weights of any size. */
#ifndef LARDER_ENGINE_COMPUTE_OPERATIONS_H
#define LARDER_ENGINE_COMPUTE_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* y = x / sqrt(mean(x^2) + eps) * weight; (n) each; y may be x. */
void lar_rms_norm(float *y, const float *x, const float *weight, uint32_t n, float eps);

/* To the nearest BF16, ties to even. */
float lar_round_bf16(float x);

/* -- rotary position embedding with YaRN ------------------------------------------------------------------------- */

typedef enum lar_rope_pairs {
    LAR_ROPE_NEIGHBOURS, /* (x[2i], x[2i + 1]): DeepSeek's own order */
    LAR_ROPE_HALVES      /* (x[i], x[i + dims / 2]): rope_interleave false */
} lar_rope_pairs;

typedef struct lar_rope {
    uint32_t dims; /* even */
    lar_rope_pairs pairs;
    double theta;
    /* YaRN (Peng et al. 2023, "Efficient Context Window Extension", 3.2 and 3.3), at every length; factor 0: none.
     * Dimensions that turn more than beta_fast times within `original` positions keep their speed, those below
     * beta_slow are slowed by factor, the others lie between. */
    double factor, original, beta_fast, beta_slow;
    double amplitude; /* of cosine and sine */
} lar_rope;

/* get_mscale of DeepSeek's code: 0.1 * mscale * ln(factor) + 1 above a factor of 1, else 1. */
double lar_yarn_mscale(double factor, double mscale);
/* Radians a position for each pair: `speeds` is (dims / 2). */
void lar_rope_speeds(const lar_rope *r, double *speeds);
/* cosine and sine of each pair at `position`, times amplitude: `turn` is (dims / 2, 2). */
void lar_rope_turn(const lar_rope *r, const double *speeds, uint64_t position, float *turn);
/* Rotates x (dims) in place. */
void lar_rope_apply(const lar_rope *r, const float *turn, float *x);

/* -- the choice of experts --------------------------------------------------------------------------------------- */

enum { LAR_EXPERTS_MAX = 1024 };

typedef enum lar_router_score { LAR_ROUTER_SOFTMAX, LAR_ROUTER_SIGMOID } lar_router_score;
typedef enum lar_group_score { LAR_GROUP_MAX, LAR_GROUP_TOP2 } lar_group_score;

/* As DeepSeek's inference/model.py (class Gate) has it: scores of all experts first; the bias only to choose; the best
 * groups_used groups stay in, the others score minus infinity; the best `used` experts, ties to the lowest index;
 * weights are the unbiased scores of the chosen, over their sum where `normalise`, times scale. */
typedef struct lar_router {
    uint32_t experts, used;       /* used <= experts <= LAR_EXPERTS_MAX */
    uint32_t groups, groups_used; /* groups divide experts; 1 and 1: no groups */
    lar_router_score score;
    lar_group_score group_score;
    bool normalise;
    float scale;
    const float *bias; /* (experts) or NULL */
} lar_router;

/* `logits` (experts) of one token -> `chosen` and `weights`, (used) each, best first. Distinct experts whatever the
 * logits are, NaN included. */
void lar_route(const lar_router *r, const float *logits, uint32_t *chosen, float *weights);

#endif
