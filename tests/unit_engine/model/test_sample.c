/* Choosing the next token: each step by exact cases, draws by their distribution, what is refused. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model/sample.h"

enum { VOCAB = 8, DRAWS = 40000 };

static lar_sampler *sampler(const lar_sampling *s, uint32_t vocab) {
    lar_sampler *p;
    lar_diag d = {0};
    if (lar_sampler_new(s, vocab, &p, &d)) fail_msg("%s", d.text);
    return p;
}

static uint32_t next(lar_sampler *p, const float *logits) {
    lar_sampled out;
    lar_diag d = {0};
    if (lar_sampler_next(p, logits, &out, &d)) fail_msg("%s", d.text);
    return out.id;
}

static uint32_t once(const lar_sampling *s, const float *logits) {
    lar_sampler *p = sampler(s, VOCAB);
    uint32_t id = next(p, logits);
    lar_sampler_free(p);
    return id;
}

/* Logits of the weights 8, 4, 2, 2, 1, ... over `sum`. */
static const double shares[VOCAB] = {8, 4, 2, 2, 1, 1, 1, 1};
static void by_shares(float *logits) {
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)log(shares[i]);
}

/* Draws often, with penalties off, and compares how often each came with what is expected, (VOCAB) shares. */
static void has_distribution(const lar_sampling *s, const float *logits, const double *expected) {
    lar_sampler *p = sampler(s, VOCAB);
    double counts[VOCAB] = {0}, sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += expected[i];
    for (int i = 0; i < DRAWS; i++) counts[next(p, logits)]++;
    for (int i = 0; i < VOCAB; i++) {
        double share = expected[i] / sum, spread = sqrt(share * (1 - share) / DRAWS);
        if (share == 0) assert_true(counts[i] == 0);
        if (fabs(counts[i] / DRAWS - share) > 5 * spread)
            fail_msg("token %d: %g of the draws, expected %g", i, counts[i] / DRAWS, share);
    }
    lar_sampler_free(p);
}

static void draws_follow_the_probabilities(void **state) {
    (void)state;
    float logits[VOCAB];
    by_shares(logits);
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    s.seed = 7;
    has_distribution(&s, logits, shares);
    s.temperature = 0.5; /* shares squared */
    has_distribution(&s, logits, (double[]){64, 16, 4, 4, 1, 1, 1, 1});
    s.temperature = 2;
    has_distribution(&s, logits, (double[]){sqrt(8), 2, sqrt(2), sqrt(2), 1, 1, 1, 1});
}

static void filters_keep_what_they_say(void **state) {
    (void)state;
    float logits[VOCAB];
    by_shares(logits);
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    s.top_k = 3; /* of the two with 2, the lower id */
    has_distribution(&s, logits, (double[]){8, 4, 2, 0, 0, 0, 0, 0});
    s.top_k = 0, s.top_p = 0.41; /* 8 of 20 is 0.40: not enough */
    has_distribution(&s, logits, (double[]){8, 4, 0, 0, 0, 0, 0, 0});
    s.top_p = 0.39;
    has_distribution(&s, logits, (double[]){8, 0, 0, 0, 0, 0, 0, 0});
    s.top_p = 1e-9; /* one always stays */
    has_distribution(&s, logits, (double[]){1, 0, 0, 0, 0, 0, 0, 0});
    s.top_p = 1, s.min_p = 0.24; /* a quarter of the likeliest stays */
    has_distribution(&s, logits, (double[]){8, 4, 2, 2, 0, 0, 0, 0});
    s.min_p = 1;
    has_distribution(&s, logits, (double[]){1, 0, 0, 0, 0, 0, 0, 0});
    s.min_p = 0, s.top_k = 4, s.top_p = 0.7; /* of the 16 that top_k left, 12 are enough */
    has_distribution(&s, logits, (double[]){8, 4, 0, 0, 0, 0, 0, 0});
    s.top_k = 0, s.min_p = 0.24, s.top_p = 0.7; /* likewise of what min_p left */
    has_distribution(&s, logits, (double[]){8, 4, 0, 0, 0, 0, 0, 0});
    s.temperature = 1e-6, s.min_p = 0, s.top_p = 0.5;
    has_distribution(&s, logits, (double[]){1, 0, 0, 0, 0, 0, 0, 0});
}

/* Many tokens, of which more than the first rings hold are needed. */
static void a_large_vocabulary_is_filtered_exactly(void **state) {
    (void)state;
    enum { MANY = 5000 };
    float *logits = calloc(MANY, sizeof *logits);
    bool *seen = calloc(MANY, sizeof *seen);
    for (int i = 0; i < MANY; i++) logits[i] = -(float)((i * 7919) % MANY) * 0.01f;
    double total = 0, sum = 0;
    for (int r = 0; r < MANY; r++) total += exp(-r * 0.01);
    int kept = 0;
    while (sum < 0.99 * total) sum += exp(-kept++ * 0.01);
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    s.top_p = 0.99;
    lar_sampler *p = sampler(&s, MANY);
    int different = 0;
    for (int i = 0; i < 4000; i++) {
        uint32_t id = next(p, logits);
        assert_true((id * 7919) % MANY < (uint32_t)kept);
        different += !seen[id];
        seen[id] = true;
    }
    assert_true(kept > 400 && different > kept * 3 / 4);
    lar_sampler_free(p);
    free(seen);
    free(logits);
}

/* Each draw falls into the share of the token that is drawn, also with min_p, a temperature or a bias. */
static void a_large_vocabulary_is_drawn_in_its_order(void **state) {
    (void)state;
    enum { MANY = 3000 };
    static float logits[MANY];
    static double until[MANY + 1]; /* the shares before a token, together */
    const double temperatures[] = {1, 0.3, 2}, floors[] = {0, 0.01};
    for (int i = 0; i < MANY; i++) logits[i] = (float)((i * 7919) % MANY) * 0.004f - 50;
    for (int k = 0; k < 6; k++) {
        lar_sampling s = LAR_SAMPLING_DEFAULT;
        s.temperature = temperatures[k % 3], s.min_p = floors[k / 3], s.seed = (uint64_t)k;
        const lar_logit_bias never = {1234, -100};
        s.biases = &never, s.bias_count = 1;
        double max = (MANY - 1) * 0.004 - 50;
        for (int i = 0; i < MANY; i++) {
            double weight = exp(((double)logits[i] - max) / s.temperature);
            until[i + 1] = until[i] + (weight >= s.min_p && i != 1234 ? weight : 0);
        }
        lar_sampler *p = sampler(&s, MANY);
        for (uint64_t n = 0; n < 1000; n++) {
            double aim = lar_sample_draw(s.seed, n) * until[MANY], near = 2e-5 * until[MANY];
            uint32_t id = next(p, logits);
            assert_true(until[id] <= aim + near && until[id + 1] > aim - near);
            assert_true(until[id + 1] > until[id]);
        }
        lar_sampler_free(p);
    }
}

static void the_lowest_temperatures_take_the_largest(void **state) {
    (void)state;
    const float logits[VOCAB] = {1, 3, -1e30f, 2, 3.5f, -1, 0, 3};
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    for (s.temperature = 1e-3; s.temperature > 0; s.temperature *= 1e-30) assert_int_equal(once(&s, logits), 4);
    s.temperature = DBL_TRUE_MIN;
    assert_int_equal(once(&s, logits), 4);
    s.temperature = 100, s.repetition = 10; /* what was seen becomes as unlikely as a float can say */
    lar_sampler *seen = sampler(&s, VOCAB);
    lar_sampler_see(seen, (const uint32_t[]){2}, 1);
    const float below[VOCAB] = {-1, -3, -3e38f, -2, -1, -4, -5, -6};
    for (int i = 0; i < 1000; i++) assert_true(next(seen, below) != 2);
    lar_sampler_free(seen);
    s.repetition = 1;
    s.temperature = 100;
    lar_sampler *p = sampler(&s, VOCAB);
    for (int i = 0; i < 1000; i++) assert_true(next(p, logits) != 2);
    lar_sampler_free(p);
}

static void greedy_takes_the_largest_and_the_lowest_id(void **state) {
    (void)state;
    const float logits[VOCAB] = {1, 3, 3, 2, 3, -1, 0, 0};
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    s.temperature = 0;
    assert_int_equal(once(&s, logits), 1);
    const lar_logit_bias up[] = {{3, 1.5f}, {1, -100}};
    s.biases = up, s.bias_count = 2;
    assert_int_equal(once(&s, logits), 3);
}

static void penalties_count_what_was_said(void **state) {
    (void)state;
    const float logits[VOCAB] = {1.0f, 1.5f, 1.9f, -4, -4, -4, -4, -4};
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    s.temperature = 0, s.frequency = 0.5;
    lar_sampler *p = sampler(&s, VOCAB);
    /* 1.9, 1.4 | 1.5, 1.0 | 1.4, 0.9 | 1.0 (tokens 0 and 1, the lower id) */
    const uint32_t said[] = {2, 1, 2, 0, 1};
    for (int i = 0; i < 5; i++) assert_int_equal(next(p, logits), said[i]);
    lar_sampler_free(p);
    s.frequency = 0, s.presence = 2;
    p = sampler(&s, VOCAB);
    const uint32_t once_each[] = {2, 1, 0, 2, 2}; /* then all have it, once */
    for (int i = 0; i < 5; i++) assert_int_equal(next(p, logits), once_each[i]);
    lar_sampler_free(p);
    s.presence = 0, s.repetition = 2; /* tokens of the prompt too; a negative logit is multiplied */
    p = sampler(&s, VOCAB);
    lar_sampler_see(p, (const uint32_t[]){2, 99}, 2);
    assert_int_equal(next(p, logits), 1);
    assert_int_equal(next(p, logits), 0);
    lar_sampler_free(p);
    const float negative[VOCAB] = {-3, -2, -9, -9, -9, -9, -9, -9};
    p = sampler(&s, VOCAB);
    lar_sampler_see(p, (const uint32_t[]){1}, 1);
    assert_int_equal(next(p, negative), 0); /* -2 became -4 */
    lar_sampler_free(p);
}

/* A choice among some: the largest of them, or drawn by their weights alone, whatever top_k and top_p say. */
static void a_choice_among_some(void **state) {
    (void)state;
    static const uint32_t ids[] = {6, 3, 1}, one[] = {7};
    lar_sampling greedy = LAR_SAMPLING_DEFAULT, warm = LAR_SAMPLING_DEFAULT;
    float logits[VOCAB];
    double counts[VOCAB] = {0};
    by_shares(logits);
    greedy.temperature = 0;
    lar_sampler *p = sampler(&greedy, VOCAB);
    lar_sampler_hold(p, ids, 3);
    assert_int_equal(next(p, logits), 1);
    assert_int_equal(next(p, logits), 0); /* and that choice alone */
    lar_sampler_free(p);
    warm.top_k = 1, warm.top_p = 0.1;
    p = sampler(&warm, VOCAB);
    lar_sampler_hold(p, one, 1);
    assert_int_equal(next(p, logits), 7);
    for (int i = 0; i < DRAWS; i++) {
        lar_sampler_hold(p, ids, 3);
        counts[next(p, logits)]++;
    }
    for (int i = 0; i < 3; i++) {
        double share = shares[ids[i]] / 7, spread = sqrt(share * (1 - share) / DRAWS);
        assert_true(fabs(counts[ids[i]] / DRAWS - share) < 5 * spread);
    }
    assert_true(counts[1] + counts[3] + counts[6] == DRAWS);
    lar_sampler_free(p);
}

static void seeds_decide_and_nothing_else(void **state) {
    (void)state;
    float logits[VOCAB];
    by_shares(logits);
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    uint32_t first[64];
    int apart = 0;
    s.seed = 42;
    lar_sampler *a = sampler(&s, VOCAB), *b = sampler(&s, VOCAB);
    for (int i = 0; i < 64; i++) first[i] = next(a, logits);
    for (int i = 0; i < 64; i++) assert_int_equal(next(b, logits), first[i]);
    lar_sampler_free(b);
    s.seed = 43;
    b = sampler(&s, VOCAB);
    for (int i = 0; i < 64; i++) apart += next(b, logits) != first[i];
    assert_true(apart > 16);
    lar_sampler_free(a);
    lar_sampler_free(b);
    /* SplitMix64 of seed 1234567, as its authors' test has it: 6457827717110365317, 3203168211198807973. */
    assert_true(lar_sample_draw(1234567, 0) == (double)(UINT64_C(6457827717110365317) >> 11) * 0x1p-53);
    assert_true(lar_sample_draw(1234567, 1) == (double)(UINT64_C(3203168211198807973) >> 11) * 0x1p-53);
}

static void logprobs_are_of_the_logits_as_they_came(void **state) {
    (void)state;
    float logits[VOCAB];
    by_shares(logits);
    const lar_logit_bias bias = {5, 100};
    lar_sampling s = LAR_SAMPLING_DEFAULT;
    s.temperature = 0.3, s.logprobs = 5, s.biases = &bias, s.bias_count = 1;
    lar_sampler *p = sampler(&s, VOCAB);
    lar_sampled out;
    lar_diag d = {0};
    assert_int_equal(lar_sampler_next(p, logits, &out, &d), LAR_OK);
    assert_int_equal(out.id, 5);
    assert_true(fabs((double)out.logprob - log(1 / 20.0)) < 1e-6);
    assert_int_equal(out.top_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(out.top[i].id, i); /* ties: the lowest id first */
        assert_true(fabs((double)out.top[i].value - log(shares[i] / 20)) < 1e-6);
    }
    lar_sampler_free(p);
    s.logprobs = 20; /* more than there are */
    p = sampler(&s, VOCAB);
    assert_int_equal(lar_sampler_next(p, logits, &out, &d), LAR_OK);
    assert_int_equal(out.top_count, VOCAB);
    lar_sampler_free(p);
}

static void logits_that_are_not_finite_end_in_an_error(void **state) {
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 3; i++)
            for (int at = 0; at < VOCAB; at++) {
                float logits[VOCAB] = {0};
                lar_sampling s = LAR_SAMPLING_DEFAULT;
                lar_sampled out;
                lar_diag d = {0};
                s.temperature = t;
                logits[at] = odd[i];
                lar_sampler *p = sampler(&s, VOCAB);
                assert_int_equal(lar_sampler_next(p, logits, &out, &d), LAR_INVALID);
                assert_non_null(strstr(d.text, "not finite"));
                lar_sampler_free(p);
            }
    /* The largest numbers there are, with all that could carry them further. */
    const float huge[VOCAB] = {3.4e38f, -3.4e38f, 3.4e38f, 0, 1, 2, 3, 4};
    const lar_logit_bias bias = {0, 100};
    lar_sampling s = {.temperature = 1e-9, .top_p = 0.5, .min_p = 0.1, .repetition = 0.001, .top_k = 2};
    s.biases = &bias, s.bias_count = 1, s.frequency = -2, s.presence = -2;
    lar_sampler *p = sampler(&s, VOCAB);
    for (int i = 0; i < 20; i++) assert_true(next(p, huge) < VOCAB);
    lar_sampler_free(p);
}

static void values_out_of_range_are_refused(void **state) {
    (void)state;
    const lar_logit_bias far = {VOCAB, 0}, big = {0, 101}, nan = {0, NAN};
    lar_sampling s[24];
    for (size_t i = 0; i < 24; i++) s[i] = LAR_SAMPLING_DEFAULT;
    s[0].temperature = -1, s[1].temperature = NAN, s[2].temperature = INFINITY;
    s[3].top_p = 0, s[4].top_p = 1.01, s[5].top_p = NAN;
    s[6].min_p = -0.1, s[7].min_p = 1.1, s[8].min_p = NAN;
    s[9].frequency = 2.1, s[10].frequency = -2.1, s[11].presence = 3, s[12].presence = NAN;
    s[13].repetition = 0, s[14].repetition = -1, s[15].repetition = 11, s[16].repetition = NAN;
    s[17].logprobs = 21;
    s[18].biases = &far, s[19].biases = &big, s[20].biases = &nan;
    for (int i = 18; i < 21; i++) s[i].bias_count = 1;
    s[21].bias_count = LAR_LOGIT_BIAS_MAX + 1;
    for (int i = 0; i < 22; i++) {
        lar_sampler *p;
        lar_diag d = {0};
        if (lar_sampler_new(&s[i], VOCAB, &p, &d) != LAR_INVALID || p || !strstr(d.text, "it can be"))
            if (!strstr(d.text, "vocabulary")) fail_msg("row %d: %s", i, d.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(filters_keep_what_they_say),
        cmocka_unit_test(a_large_vocabulary_is_filtered_exactly),
        cmocka_unit_test(a_large_vocabulary_is_drawn_in_its_order),
        cmocka_unit_test(the_lowest_temperatures_take_the_largest),
        cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_id),
        cmocka_unit_test(penalties_count_what_was_said),
        cmocka_unit_test(a_choice_among_some),
        cmocka_unit_test(seeds_decide_and_nothing_else),
        cmocka_unit_test(logprobs_are_of_the_logits_as_they_came),
        cmocka_unit_test(logits_that_are_not_finite_end_in_an_error),
        cmocka_unit_test(values_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
