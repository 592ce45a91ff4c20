/* The golden models against the logits of DeepSeek's own code: in one piece and in chunks, in both forms of attention,
 * and the greedy continuation wherever the margin decides. tests/golden/README.md has the tolerance. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit_engine/model/golden.h"

static const double tolerance = 2e-3; /* of the logits' standard deviation */
/* Models that are cut in every way. Sanitizers see the same code in one, with groups of experts and FP8. */
#ifdef LARDER_SANITIZED
enum { FIRST_CUT = 2, LAST_CUT = 2 };
#else
enum { FIRST_CUT = 0, LAST_CUT = GOLDEN_MODELS - 1 };
#endif

static void each_model_meets_its_logits(void **state) {
    (void)state;
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        golden g;
        golden_open(&g, golden_names[m], NULL, LAR_ACTIVATIONS_F32);
        double off = golden_worst(&g, (golden_run){512, LAR_ATTENTION_BY_LENGTH});
        print_message("%s: %.2g of the standard deviation\n", g.name, off);
        assert_true(off < tolerance);
        golden_close(&g);
    }
}

static void chunks_and_forms_agree(void **state) {
    (void)state;
    const struct {
        const char *name;
        golden_run how;
    } runs[] = {
        {"n65", {1, LAR_ATTENTION_BY_LENGTH}},   {"n17", {1, LAR_ATTENTION_EXPANDED}},
        {"n131", {7, LAR_ATTENTION_ABSORBED}},   {"n65", {7, LAR_ATTENTION_EXPANDED}},
        {"n131", {64, LAR_ATTENTION_ABSORBED}},  {"n131", {64, LAR_ATTENTION_EXPANDED}},
        {"n300", {512, LAR_ATTENTION_ABSORBED}}, {"n131", {512, LAR_ATTENTION_EXPANDED}},
    };
    for (int m = FIRST_CUT; m <= LAST_CUT; m++) {
        golden g;
        golden_open(&g, golden_names[m], NULL, LAR_ACTIVATIONS_F32);
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            const golden_case *c = golden_find(&g, runs[r].name);
            float *logits = golden_logits(&g, c, runs[r].how);
            double off = golden_distance(&g, c, logits);
            if (!(off < tolerance)) fail_msg("%s, chunks of %u: off by %g", g.name, runs[r].how.chunk, off);
            free(logits);
        }
        golden_close(&g);
    }
}

static uint32_t best_of(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void greedy_ids_are_equal_where_the_margin_decides(void **state) {
    (void)state;
    lar_diag d = {0};
    for (int m = 0; m < GOLDEN_MODELS; m++) {
        golden g;
        golden_open(&g, golden_names[m], NULL, LAR_ACTIVATIONS_F32);
        const golden_case *c = golden_find(&g, "greedy");
        double least = tolerance * golden_deviation(&g, golden_find(&g, "n300"));
        lar_forward *f;
        lar_latent_cache *k = golden_cache(&g.config, "f32", c->count + c->continuation_count);
        float *logits = malloc(g.config.vocab * sizeof *logits);
        lar_forward_options o = {.tokens_max = c->count, .logits_max = 1};
        assert_int_equal(lar_forward_new(&g.config, &g.weights, &o, &f, &d), LAR_OK);
        golden_feed(f, k, c->ids, c->count, logits);
        for (uint32_t i = 0; i < c->continuation_count; i++) {
            if (c->margin[i] > 2 * least) assert_int_equal(best_of(logits, g.config.vocab), c->continuation[i]);
            golden_feed(f, k, &c->continuation[i], 1, logits);
        }
        free(logits);
        lar_latent_cache_free(k);
        lar_forward_free(f);
        golden_close(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_model_meets_its_logits),
        cmocka_unit_test(chunks_and_forms_agree),
        cmocka_unit_test(greedy_ids_are_equal_where_the_margin_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
