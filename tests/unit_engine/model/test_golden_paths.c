/* The golden models on the fast kernels: every path meets the logits with float32 activations and answers alike bit by
 * bit however the prompt comes; paths that round activations are held to the reference that rounds alike, and how far
 * they are from the golden logits, and how many choices of experts flip, is printed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/compute/panel_matmul.h"
#include "engine/compute/workers.h"
#include "tests/unit_engine/model/golden.h"

static const double tolerance = 2e-3; /* of the logits' standard deviation */
/* Sanitizers see the same code in one model, with groups of experts and FP8. */
#ifdef LARDER_SANITIZED
enum { FIRST_MODEL = 2, MODELS = 3, MANY = 65 };
#else
enum { FIRST_MODEL = 0, MODELS = GOLDEN_MODELS, MANY = 131 };
#endif
enum { CHOICES_MAX = 1 << 16, FEW = 3 };

static void each_path_meets_the_logits(void **state) {
    (void)state;
    for (int cpu = 0; cpu <= (int)lar_cpu_best(); cpu++)
        for (int m = FIRST_MODEL; m < MODELS; m++) {
            golden g;
            golden_open(&g, golden_names[m], lar_kernels_panels((lar_cpu)cpu), LAR_ACTIVATIONS_F32);
            golden_run how = {512, LAR_ATTENTION_BY_LENGTH};
            double off = 0;
            for (uint32_t i = 0; i < g.case_count; i++) {
                const golden_case *c = &g.cases[i];
                if (!c->expected || (cpu == LAR_CPU_SCALAR && c->count > MANY / 2 + 1))
                    continue; /* slow, and the same bits */
                float *logits = golden_logits(&g, c, how);
                off = fmax(off, golden_distance(&g, c, logits));
                free(logits);
            }
            print_message("%s, %s: %.2g of the standard deviation\n", g.name, lar_cpu_name((lar_cpu)cpu), off);
            assert_true(off > 0 && off < tolerance);
            golden_close(&g);
        }
}

static void chunks_give_the_same_bits(void **state) {
    (void)state;
    static const uint32_t chunks[FEW] = {1, 7, 64};
    for (int m = FIRST_MODEL; m < MODELS; m++) {
        golden g;
        golden_open(&g, golden_names[m], lar_kernels_panels(lar_cpu_best()), LAR_ACTIVATIONS_F32);
        const golden_case *c = golden_find(&g, MANY == 131 ? "n131" : "n65");
        size_t bytes = (size_t)c->position_count * g.config.vocab * sizeof(float);
        float *whole = golden_logits(&g, c, (golden_run){512, LAR_ATTENTION_ABSORBED});
        for (int i = 0; i < FEW; i++) {
            float *logits = golden_logits(&g, c, (golden_run){chunks[i], LAR_ATTENTION_ABSORBED});
            assert_memory_equal(logits, whole, bytes);
            free(logits);
        }
        free(whole);
        golden_close(&g);
    }
}

/* -- rounded activations --------------------------------------------------------------------------------------- */

typedef struct choices {
    uint32_t used, count;
    uint32_t expert[CHOICES_MAX];
} choices;

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void keep_choices(void *context, uint32_t layer, const uint32_t *chosen, uint32_t tokens) {
    choices *c = context;
    (void)layer;
    for (uint32_t t = 0; t < tokens && c->count + c->used <= CHOICES_MAX; t++, c->count += c->used) {
        memcpy(c->expert + c->count, chosen + t * c->used, c->used * sizeof *chosen);
        qsort(c->expert + c->count, c->used, sizeof *chosen, ascending);
    }
}

/* The case in one pass: its logits (positions, vocab) and all choices of experts. */
static float *run_watched(const golden *g, const golden_case *c, uint32_t workers, choices *seen) {
    lar_diag d = {0};
    lar_forward *f = NULL;
    lar_latent_cache *k = golden_cache(&g->config, "f32", c->count);
    lar_workers *team = NULL;
    float *logits = malloc((size_t)c->position_count * g->config.vocab * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(lar_workers_start(workers, &team, &d), LAR_OK);
    lar_forward_options o = {.tokens_max = c->count, .logits_max = c->position_count, .workers = team};
    assert_int_equal(lar_forward_new(&g->config, &g->weights, &o, &f, &d), LAR_OK);
    *seen = (choices){.used = g->config.router.used};
    lar_forward_set_watch(f, keep_choices, seen);
    lar_forward_part part = {k, c->ids, c->count, c->positions, c->position_count, 0};
    assert_int_equal(lar_forward_run(f, &part, 1, logits, &d), LAR_OK);
    lar_latent_cache_free(k);
    lar_forward_free(f);
    lar_workers_stop(team);
    return logits;
}

/* Share of tokens and layers whose set of experts differs. */
static double flipped(const choices *a, const choices *b) {
    uint32_t differ = 0, sets = 0;
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i += a->used, sets++)
        differ += memcmp(a->expert + i, b->expert + i, a->used * sizeof *a->expert) != 0;
    return sets ? (double)differ / sets : 0;
}

/* Root mean square of the difference, by the standard deviation of what is expected. */
static double typical(const golden *g, const golden_case *c, const float *a, const float *b) {
    double squares = 0;
    size_t n = (size_t)c->position_count * g->config.vocab;
    for (size_t i = 0; i < n; i++) squares += pow((double)a[i] - (double)b[i], 2);
    return sqrt(squares / (double)n) / golden_deviation(g, c);
}

static void check_rounding(const char *name, lar_activations rounding, const char *text) {
    golden exact, reference, fast;
    choices *seen = malloc(3 * sizeof *seen);
    assert_non_null(seen);
    golden_open(&exact, name, NULL, LAR_ACTIVATIONS_F32);
    golden_open(&reference, name, NULL, rounding);
    golden_open(&fast, name, lar_kernels_panels(lar_cpu_best()), rounding);
    const golden_case *c = golden_find(&exact, MANY == 131 ? "n131" : "n65");
    float *plain = run_watched(&exact, c, 1, &seen[0]), *want = run_watched(&reference, c, 1, &seen[1]);
    float *got = run_watched(&fast, c, 2, &seen[2]);
    double apart = typical(&exact, c, want, got), off = typical(&exact, c, plain, got);
    print_message("%s, %s: from the golden logits %.2g (most %.2g), from the reference that rounds alike %.2g, of the "
                  "standard deviation; sets of experts flipped %.2f %% and %.2f %%\n",
                  name, text, off, golden_distance(&exact, c, got), apart, 100 * flipped(&seen[0], &seen[2]),
                  100 * flipped(&seen[1], &seen[2]));
    assert_true(apart < off); /* the same rounding, not just some rounding */
    free(plain), free(want), free(got), free(seen);
    golden_close(&exact), golden_close(&reference), golden_close(&fast);
}

static void rounding_is_the_reference_s(void **state) {
    (void)state;
    for (int m = FIRST_MODEL; m < MODELS; m++) {
        check_rounding(golden_names[m], LAR_ACTIVATIONS_BF16, "activations in BF16");
        check_rounding(golden_names[m], LAR_ACTIVATIONS_INT8, "activations in INT8");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_path_meets_the_logits),
        cmocka_unit_test(chunks_give_the_same_bits),
        cmocka_unit_test(rounding_is_the_reference_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
