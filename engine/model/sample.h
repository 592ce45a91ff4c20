/* Choosing the next token from logits.
 *
 * Steps, in the order of vLLM's sampler (v1), which is also what OpenAI's parameters describe:
 *   logprobs are of the logits as the model gave them;
 *   logit_bias is added; repetition_penalty divides a positive and multiplies a negative logit of every token seen, in
 *   prompt or answer; frequency_penalty * times seen in the answer, and presence_penalty once, are subtracted;
 *   temperature 0 takes the largest (ties: the lowest id); else logits are divided by it;
 *   min_p drops tokens less likely than min_p times the likeliest; top_k keeps the k likeliest (ties: the lowest ids);
 *   top_p keeps the shortest run of the likeliest whose share of what is left reaches p; one token always stays;
 *   one is drawn from the rest by their probabilities.
 *
 * Draw number n of seed s is number n of SplitMix64's stream of seed s (base/hash.h), its upper 53 bits as a fraction:
 * the same on every platform, whatever was drawn before by anybody else. */
#ifndef LARDER_ENGINE_MODEL_SAMPLE_H
#define LARDER_ENGINE_MODEL_SAMPLE_H

#include <stdint.h>

#include "base/error.h"

enum { LAR_LOGPROBS_MAX = 20, LAR_LOGIT_BIAS_MAX = 1024 };

typedef struct lar_logit_bias {
    uint32_t id;
    float bias; /* -100 to 100 */
} lar_logit_bias;

typedef struct lar_sampling {
    double temperature;           /* 0 to 100 */
    double top_p;                 /* above 0 to 1 */
    double min_p;                 /* 0 to 1 */
    double frequency, presence;   /* -2 to 2 */
    double repetition;            /* above 0 to 10; 1: none */
    uint32_t top_k;               /* 0: all */
    uint32_t logprobs;            /* how many of the likeliest are reported, to LAR_LOGPROBS_MAX */
    uint64_t seed;                /* passed in: this file knows no randomness */
    const lar_logit_bias *biases; /* (bias_count), copied */
    uint32_t bias_count;          /* to LAR_LOGIT_BIAS_MAX */
} lar_sampling;

#define LAR_SAMPLING_DEFAULT ((lar_sampling){.temperature = 1, .top_p = 1, .repetition = 1})

typedef struct lar_logprob {
    uint32_t id;
    float value;
} lar_logprob;

typedef struct lar_sampled {
    uint32_t id;
    float logprob;
    uint32_t top_count;                /* as many as were asked for, or the whole vocabulary */
    lar_logprob top[LAR_LOGPROBS_MAX]; /* the likeliest first */
} lar_sampled;

typedef struct lar_sampler lar_sampler;

/* What lar_sampler_new refuses. INVALID: a value out of range (which, in `d`). */
LAR_MUST_USE lar_error lar_sampling_check(const lar_sampling *s, uint32_t vocab, lar_diag *d);
/* For one answer. INVALID: a value out of range (which, in `d`); NO_MEMORY. Nothing is allocated later. */
LAR_MUST_USE lar_error lar_sampler_new(const lar_sampling *s, uint32_t vocab, lar_sampler **out, lar_diag *d);
void lar_sampler_free(lar_sampler *s); /* NULL: nothing happens */

/* Tokens of the prompt, for repetition_penalty; ids outside the vocabulary are ignored. */
void lar_sampler_see(lar_sampler *s, const uint32_t *ids, uint32_t count);
/* Chooses from `logits` (vocab) and counts the choice as part of the answer. INVALID: a logit is not finite; nothing is
 * chosen then. */
LAR_MUST_USE lar_error lar_sampler_next(lar_sampler *s, const float *logits, lar_sampled *out, lar_diag *d);

/* The next choice is one of `ids` (borrowed until then; at least 1, each below the vocabulary), by temperature alone:
 * min_p, top_k and top_p are about the whole vocabulary. */
void lar_sampler_hold(lar_sampler *s, const uint32_t *ids, uint32_t count);

/* Draw `n` of `seed`: 0 <= draw < 1. */
double lar_sample_draw(uint64_t seed, uint64_t n);

#endif
