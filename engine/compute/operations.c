/* The small operations of a layer: norms, rotation, softmax, the choice of experts.
 * Flow: engine/model/forward.c calls. Any thread; never blocks; no memory but the stack.
 * Why sums in double: a few hundred values each, and it makes the answer independent of their order.
 * Sources: DeepSeek-V3 inference/model.py; the YaRN paper. LAR_BUG: see bug_switch.h.
 * Invariant: the router's choice is `used` distinct experts, whatever the numbers are. */
#include "engine/compute/operations.h"

#include <math.h>

#include "engine/compute/bug_switch.h"
#include "engine/files/float_bits.h"

void lar_rms_norm(float *y, const float *x, const float *weight, uint32_t n, float eps) {
    enum { SUMS = 8 }; /* several on their way at once */
    double sums[SUMS] = {0}, sum = 0;
    uint32_t whole = n - n % SUMS;
    for (uint32_t i = 0; i < whole; i += SUMS)
        for (uint32_t k = 0; k < SUMS; k++) sums[k] += (double)x[i + k] * (double)x[i + k];
    for (uint32_t i = whole; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (uint32_t k = 0; k < SUMS; k++) sum += sums[k];
    float factor = (float)(1.0 / sqrt(sum / n + (double)eps));
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * factor * weight[i];
}

/* x (n) becomes exp(x - max) / sum. */
static void softmax(float *x, uint32_t n) {
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) max = fmaxf(max, x[i]);
    for (uint32_t i = 0; i < n; i++) sum += (double)(x[i] = expf(x[i] - max));
    for (uint32_t i = 0; i < n; i++) x[i] = (float)((double)x[i] / sum);
}

float lar_round_bf16(float x) {
    if (x != x) return x; /* the addition could carry a NaN into infinity */
    uint32_t bits = lar_float_bits(x);
    return lar_bits_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* -- rotation ---------------------------------------------------------------------------------------------------- */

double lar_yarn_mscale(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1; }

/* The pair (as a real number) that turns `turns` times within the original context. */
static double pair_of_turns(const lar_rope *r, double turns) {
    return r->dims * log(r->original / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

void lar_rope_speeds(const lar_rope *r, double *speeds) {
    uint32_t half = r->dims / 2;
    bool yarn = r->factor > 0 && !LAR_BUG(NO_YARN);
    double low = 0, high = 0;
    if (yarn) {
        low = fmax(floor(pair_of_turns(r, r->beta_fast)), 0);
        high = fmin(ceil(pair_of_turns(r, r->beta_slow)), r->dims - 1);
        if (high == low) high += 0.001; /* as DeepSeek's code does; nothing is divided by 0 */
    }
    for (uint32_t i = 0; i < half; i++) {
        speeds[i] = pow(r->theta, -2.0 * i / r->dims);
        if (!yarn) continue;
        double slowed = fmin(fmax((i - low) / (high - low), 0), 1);
        speeds[i] = speeds[i] / r->factor * slowed + speeds[i] * (1 - slowed);
    }
}

void lar_rope_turn(const lar_rope *r, const double *speeds, uint64_t position, float *turn) {
    double amplitude = r->amplitude;
    bool plain = LAR_BUG(YARN_ONLY_BEYOND) && (double)position < r->original;
    if (LAR_BUG(MSCALE_ON_ROTATION)) amplitude = lar_yarn_mscale(r->factor, 1);
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        double angle = (double)position * (plain ? pow(r->theta, -2.0 * i / r->dims) : speeds[i]);
        turn[2 * i] = (float)(cos(angle) * amplitude);
        turn[2 * i + 1] = (float)(sin(angle) * amplitude);
    }
}

void lar_rope_apply(const lar_rope *r, const float *turn, float *x) {
    uint32_t half = r->dims / 2;
    bool neighbours = r->pairs == LAR_ROPE_NEIGHBOURS && !LAR_BUG(ROPE_HALVES);
    for (uint32_t i = 0; i < half; i++) {
        float *a = neighbours ? &x[2 * i] : &x[i], *b = neighbours ? a + 1 : &x[i + half];
        float c = turn[2 * i], s = turn[2 * i + 1], u = *a, v = *b;
        *a = u * c - v * s;
        *b = u * s + v * c;
    }
}

/* -- the router -------------------------------------------------------------------------------------------------- */

/* The index of the largest of n that is not taken; the lowest of equals; any one if all compare false (NaN). */
static uint32_t best_of(const float *scores, const bool *taken, uint32_t n) {
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || scores[i] > scores[best])) best = i;
    return best;
}

static float score_of_group(const lar_router *r, const float *biased, uint32_t size) {
    lar_group_score how = r->group_score;
    if (LAR_BUG(GROUP_MAX_FOR_TOP2)) how = LAR_GROUP_MAX;
    if (LAR_BUG(GROUP_TOP2_FOR_MAX)) how = LAR_GROUP_TOP2;
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < size; i++) {
        if (biased[i] > first) second = first, first = biased[i];
        else if (biased[i] > second) second = biased[i];
    }
    return how == LAR_GROUP_TOP2 && size > 1 ? first + second : first;
}

/* Takes the experts of all groups but the best out of the choice. */
static void drop_groups(const lar_router *r, float *biased, bool *taken) {
    uint32_t size = r->experts / r->groups;
    float scores[LAR_EXPERTS_MAX];
    bool kept[LAR_EXPERTS_MAX] = {0};
    for (uint32_t g = 0; g < r->groups; g++) scores[g] = score_of_group(r, biased + g * size, size);
    for (uint32_t k = 0; k < r->groups_used; k++) kept[best_of(scores, kept, r->groups)] = true;
    for (uint32_t i = 0; i < r->experts; i++) {
        if (kept[i / size]) continue;
        if (LAR_BUG(GROUPS_MASKED_WITH_ZERO)) biased[i] = 0;
        else taken[i] = true;
    }
}

static void score_all(const lar_router *r, const float *logits, float *scores) {
    memcpy(scores, logits, r->experts * sizeof *scores);
    if (LAR_BUG(ROUTER_IN_BF16))
        for (uint32_t i = 0; i < r->experts; i++) scores[i] = lar_round_bf16(scores[i]);
    if (r->score == LAR_ROUTER_SOFTMAX) softmax(scores, r->experts);
    else
        for (uint32_t i = 0; i < r->experts; i++) scores[i] = 1.0f / (1.0f + expf(-scores[i]));
}

void lar_route(const lar_router *r, const float *logits, uint32_t *chosen, float *weights) {
    float scores[LAR_EXPERTS_MAX], biased[LAR_EXPERTS_MAX];
    bool taken[LAR_EXPERTS_MAX] = {0};
    score_all(r, logits, scores);
    for (uint32_t i = 0; i < r->experts; i++) {
        float bias = r->bias && !LAR_BUG(NO_BIAS) ? r->bias[i] : 0;
        biased[i] = scores[i] + (LAR_BUG(BIAS_IN_BF16) ? lar_round_bf16(bias) : bias);
    }
    if (r->groups > 1) drop_groups(r, biased, taken);
    double sum = 0;
    for (uint32_t k = 0; k < r->used; k++) {
        uint32_t e = best_of(biased, taken, r->experts);
        taken[e] = true;
        chosen[k] = e;
        weights[k] = LAR_BUG(BIAS_IN_WEIGHTS) ? biased[e] : scores[e];
        if (LAR_BUG(SOFTMAX_AFTER_CHOICE)) weights[k] = logits[e];
        sum += (double)weights[k];
    }
    if (LAR_BUG(SOFTMAX_AFTER_CHOICE)) softmax(weights, r->used);
    float scale = LAR_BUG(NO_WEIGHTS_SCALE) ? 1 : r->scale;
    if (r->normalise && !LAR_BUG(NO_WEIGHTS_NORM)) scale = (float)((double)scale / (sum + 1e-20));
    for (uint32_t k = 0; k < r->used; k++) weights[k] *= scale;
}
