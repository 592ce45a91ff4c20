/* The trained model (tests/models/tiny-v3): its logits, its tokenizer and chat template against the program that wrote
 * them, and what a made-up model cannot show: perplexity, on every way of computing, and that all experts have work. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/compute/panel_matmul.h"
#include "engine/text/template.h"
#include "tests/unit_engine/model/golden.h"

static const char folder[] = "../../models/tiny-v3"; /* beside the golden models */
enum { TEXT_MAX = 1 << 20, WINDOW = 512, BOS = 0 };
/* Sanitizers see the same code in one window. */
#ifdef LARDER_SANITIZED
enum { WINDOWS = 1 };
#else
enum { WINDOWS = 4 };
#endif

typedef struct trained {
    golden g;
    lar_tokenizer *tokenizer;
    lar_buf cases_text, held_out, tokenizer_config;
    lar_json cases, config;
} trained;

static void read_text(const golden *g, const char *name, lar_buf *out) {
    lar_diag d = {0};
    lar_buf_init(out, TEXT_MAX);
    if (lar_model_files_text(g->files, name, out, &d)) fail_msg("%s", d.text);
}

static void open_model(trained *t, const lar_kernels *kernels, lar_activations activations) {
    lar_diag d = {0};
    lar_buf json;
    golden_open(&t->g, folder, kernels, activations);
    read_text(&t->g, "tokenizer.json", &json);
    read_text(&t->g, "tokenizer_config.json", &t->tokenizer_config);
    read_text(&t->g, "cases.json", &t->cases_text);
    read_text(&t->g, "held_out.txt", &t->held_out);
    if (lar_tokenizer_from_json(lar_buf_slice(&json), lar_buf_slice(&t->tokenizer_config), &t->tokenizer, &d))
        fail_msg("%s", d.text);
    lar_buf_release(&json);
    lar_json_init(&t->cases);
    lar_json_init(&t->config);
    assert_int_equal(lar_json_parse(&t->cases, lar_buf_slice(&t->cases_text), &LAR_JSON_LIMITS_DEFAULT, &d), LAR_OK);
    assert_int_equal(lar_json_parse(&t->config, lar_buf_slice(&t->tokenizer_config), &LAR_JSON_LIMITS_DEFAULT, &d),
                     LAR_OK);
}

static void close_model(trained *t) {
    lar_json_release(&t->cases);
    lar_json_release(&t->config);
    lar_buf_release(&t->cases_text);
    lar_buf_release(&t->held_out);
    lar_buf_release(&t->tokenizer_config);
    lar_tokenizer_free(t->tokenizer);
    golden_close(&t->g);
}

static void logits_are_those_of_the_training_program(void **state) {
    (void)state;
    trained t;
    open_model(&t, NULL, LAR_ACTIVATIONS_F32);
    assert_true(golden_worst(&t.g, (golden_run){512, LAR_ATTENTION_BY_LENGTH}) < 2e-3);
    close_model(&t);
    open_model(&t, lar_kernels_panels(lar_cpu_best()), LAR_ACTIVATIONS_F32);
    assert_true(golden_worst(&t.g, (golden_run){512, LAR_ATTENTION_BY_LENGTH}) < 2e-3);
    assert_true(golden_worst(&t.g, (golden_run){7, LAR_ATTENTION_BY_LENGTH}) < 2e-3);
    close_model(&t);
}

static void answer_is_the_same(void **state) {
    (void)state;
    trained t;
    lar_diag d = {0};
    open_model(&t, NULL, LAR_ACTIVATIONS_F32);
    const golden_case *c = golden_find(&t.g, "greedy");
    lar_forward *f;
    lar_latent_cache *k = golden_cache(&t.g.config, "f32", c->count + c->continuation_count);
    float *logits = malloc(t.g.config.vocab * sizeof *logits);
    lar_forward_options o = {.tokens_max = c->count, .logits_max = 1};
    assert_int_equal(lar_forward_new(&t.g.config, &t.g.weights, &o, &f, &d), LAR_OK);
    golden_feed(f, k, c->ids, c->count, logits);
    for (uint32_t i = 0; i < c->continuation_count; i++) {
        uint32_t best = 0;
        for (uint32_t v = 1; v < t.g.config.vocab; v++)
            if (logits[v] > logits[best]) best = v;
        if (c->margin[i] > 1e-2) assert_int_equal(best, c->continuation[i]);
        golden_feed(f, k, &c->continuation[i], 1, logits);
    }
    free(logits);
    lar_latent_cache_free(k);
    lar_forward_free(f);
    close_model(&t);
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

static void same_ids(const golden_case *c, const lar_ids *ids, size_t skipped) {
    assert_int_equal(ids->count + skipped, c->count);
    assert_memory_equal(ids->ids, c->ids + skipped, ids->count * sizeof *ids->ids);
}

static void tokens_are_those_of_the_training_program(void **state) {
    (void)state;
    trained t;
    lar_diag d = {0};
    lar_buf text;
    open_model(&t, NULL, LAR_ACTIVATIONS_F32);
    uint32_t list = lar_json_get(&t.cases, 0, "cases"), found = 0;
    lar_buf_init(&text, TEXT_MAX);
    for (uint32_t n = lar_json_first(&t.cases, list); n != LAR_JSON_NONE; n = lar_json_after(&t.cases, list, n)) {
        uint32_t node = lar_json_get(&t.cases, n, "text");
        if (node == LAR_JSON_NONE) continue;
        char name[32];
        (void)snprintf(name, sizeof name, "%.*s", LAR_FMT(lar_json_inner(&t.cases, lar_json_get(&t.cases, n, "name"))));
        lar_ids ids;
        lar_ids_init(&ids, TEXT_MAX);
        lar_buf_reset(&text, TEXT_MAX);
        assert_int_equal(lar_json_decode(&t.cases, node, &text), LAR_OK);
        assert_int_equal(lar_tokenizer_encode_plain(t.tokenizer, lar_buf_slice(&text), &ids, &d), LAR_OK);
        same_ids(golden_find(&t.g, name), &ids, 1);
        lar_ids_release(&ids);
        found++;
    }
    assert_int_equal(found, 4);
    lar_buf_release(&text);
    close_model(&t);
}

/* The conversation of the case "chat", through the template: special tokens only where the template writes them. */
static void chat_is_that_of_the_training_program(void **state) {
    (void)state;
    static const char messages[] = "[{\"role\":\"system\",\"content\":\"You explain words.\"},{\"role\":\"user\","
                                   "\"content\":\"What is a kitten?\"},{\"role\":\"assistant\",\"content\":\"Young "
                                   "domestic cat.\"}]";
    trained t;
    lar_diag d = {0};
    lar_buf source;
    lar_template *template;
    lar_template_text out = {0};
    lar_text_span plain[64];
    lar_ids ids;
    open_model(&t, NULL, LAR_ACTIVATIONS_F32);
    lar_buf_init(&source, TEXT_MAX);
    assert_int_equal(lar_json_decode(&t.config, lar_json_get(&t.config, 0, "chat_template"), &source), LAR_OK);
    assert_int_equal(lar_template_parse(lar_buf_slice(&source), &template, &d), LAR_OK);
    lar_template_values *v = lar_template_values_new(1 << 20);
    lar_slice bos = lar_tokenizer_bytes(t.tokenizer, BOS);
    assert_int_equal(lar_template_set_text(v, "bos_token", bos, LAR_TEMPLATE_OWN), LAR_OK);
    assert_int_equal(lar_template_set_messages(v, LAR_SLICE(messages), LAR_TEMPLATE_ARGUMENTS_AS_IS, &d), LAR_OK);
    assert_int_equal(lar_template_render(template, v, NULL, &out, &d), LAR_OK);
    assert_true(out.span_count <= 64);
    lar_marked_text text = {.text = lar_buf_slice(&out.bytes),
                            .plain = plain,
                            .plain_count = lar_template_text_plain(&out, plain)};
    lar_ids_init(&ids, TEXT_MAX);
    assert_int_equal(lar_tokenizer_encode(t.tokenizer, &text, &ids, &d), LAR_OK);
    same_ids(golden_find(&t.g, "chat"), &ids, 0);
    lar_ids_release(&ids);
    lar_template_values_free(v);
    lar_template_text_release(&out);
    lar_template_free(template);
    lar_buf_release(&source);
    close_model(&t);
}

/* -- perplexity ---------------------------------------------------------------------------------------------------- */

typedef struct measured {
    double perplexity, expected;
    uint32_t loads[5][16]; /* choices, by layer and expert */
} measured;

static void count_choices(void *context, uint32_t layer, const uint32_t *chosen, uint32_t tokens) {
    measured *m = context;
    for (uint32_t i = 0; i < tokens * 4; i++) m->loads[layer][chosen[i]]++;
}

/* Cross entropy of `id` under `logits`. */
static double loss(const float *logits, uint32_t vocab, uint32_t id) {
    double most = logits[0], sum = 0;
    for (uint32_t v = 1; v < vocab; v++) most = fmax(most, logits[v]);
    for (uint32_t v = 0; v < vocab; v++) sum += exp(logits[v] - most);
    return log(sum) + most - logits[id];
}

static double window_loss(const trained *t, lar_forward *f, const uint32_t *ids, float *logits) {
    uint32_t in[WINDOW - 1] = {BOS}, wanted[WINDOW - 1];
    lar_latent_cache *k = golden_cache(&t->g.config, t->g.kv, WINDOW);
    lar_diag d = {0};
    double sum = 0;
    memcpy(in + 1, ids, (WINDOW - 2) * sizeof *in);
    for (uint32_t i = 0; i < WINDOW - 1; i++) wanted[i] = i;
    lar_forward_part part = {k, in, WINDOW - 1, wanted, WINDOW - 1, 0};
    assert_int_equal(lar_forward_run(f, &part, 1, logits, &d), LAR_OK);
    for (uint32_t i = 0; i < WINDOW - 1; i++)
        sum += loss(logits + (size_t)i * t->g.config.vocab, t->g.config.vocab, ids[i]);
    lar_latent_cache_free(k);
    return sum;
}

static double expected_perplexity(const trained *t, uint32_t tokens) {
    uint32_t list = lar_json_get(&t->cases, 0, "perplexity");
    for (uint32_t n = lar_json_first(&t->cases, list); n != LAR_JSON_NONE; n = lar_json_after(&t->cases, list, n)) {
        uint64_t of;
        double value;
        assert_true(lar_json_u64(&t->cases, lar_json_get(&t->cases, n, "tokens"), &of));
        assert_true(lar_json_double(&t->cases, lar_json_get(&t->cases, n, "value"), &value));
        if (of == tokens) return value;
    }
    fail_msg("cases.json has no perplexity of %u tokens", tokens);
    return 0;
}

/* The first windows of held_out.txt, each begun by BOS, all of their tokens scored: as tests/train/reference.py. */
static void measure(uint32_t windows, const lar_kernels *kernels, lar_activations activations, const char *kv,
                    measured *m) {
    trained t;
    lar_diag d = {0};
    lar_ids ids;
    lar_forward *f;
    double sum = 0;
    memset(m, 0, sizeof *m);
    open_model(&t, kernels, activations);
    t.g.kv = kv;
    lar_ids_init(&ids, TEXT_MAX);
    assert_int_equal(lar_tokenizer_encode_plain(t.tokenizer, lar_buf_slice(&t.held_out), &ids, &d), LAR_OK);
    assert_true(ids.count > windows * (WINDOW - 1));
    lar_forward_options o = {.tokens_max = WINDOW, .logits_max = WINDOW};
    assert_int_equal(lar_forward_new(&t.g.config, &t.g.weights, &o, &f, &d), LAR_OK);
    lar_forward_set_watch(f, count_choices, m);
    float *logits = malloc((size_t)WINDOW * t.g.config.vocab * sizeof *logits);
    for (uint32_t w = 0; w < windows; w++) sum += window_loss(&t, f, ids.ids + w * (WINDOW - 1), logits);
    m->perplexity = exp(sum / (windows * (WINDOW - 1)));
    m->expected = expected_perplexity(&t, windows * (WINDOW - 1));
    free(logits);
    lar_forward_free(f);
    lar_ids_release(&ids);
    close_model(&t);
}

/* Training kept the load even: what routes by chance, or to the same few, is not this model. */
static void check_loads(const measured *m, uint32_t windows) {
    for (uint32_t layer = 1; layer < 5; layer++)
        for (uint32_t e = 0; e < 16; e++) {
            double share = m->loads[layer][e] / (4.0 * windows * (WINDOW - 1));
            assert_true(share > 0.1 / 16 && share < 4.0 / 16);
        }
}

static void perplexity_holds_on_every_path_and_every_expert_has_work(void **state) {
    (void)state;
    const lar_kernels *fast = lar_kernels_panels(lar_cpu_best());
    const struct {
        const char *name;
        uint32_t windows;
        const lar_kernels *kernels;
        lar_activations activations;
        double most; /* relative difference */
    } ways[] = {{"reference", 1, NULL, LAR_ACTIVATIONS_F32, 1e-4},
                {"float32", WINDOWS, fast, LAR_ACTIVATIONS_F32, 1e-4},
                {"BF16 activations", WINDOWS, fast, LAR_ACTIVATIONS_BF16, 0.01},
                {"INT8 activations", WINDOWS, fast, LAR_ACTIVATIONS_INT8, 0.02}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        measured m;
        measure(ways[i].windows, ways[i].kernels, ways[i].activations, "f32", &m);
        print_message("%s: perplexity %.3f, expected %.3f\n", ways[i].name, m.perplexity, m.expected);
        assert_true(fabs(m.perplexity / m.expected - 1) < ways[i].most);
        check_loads(&m, ways[i].windows);
    }
}

/* How latents are kept, one window each: nearly free in 16 bit, and coarser with fewer. */
static void perplexity_holds_in_every_format(void **state) {
    (void)state;
    static const double most[LAR_KV_COUNT] = {[LAR_KV_F32] = 1e-4,  [LAR_KV_F16] = 5e-4, [LAR_KV_BF16] = 3e-3,
                                              [LAR_KV_INT8] = 3e-3, [LAR_KV_FP8] = 0.01, [LAR_KV_INT8_128] = 5e-3};
    for (int kv = 0; kv < LAR_KV_COUNT; kv++) {
        measured m;
        const char *name = lar_kv_info_of((lar_kv)kv)->name;
        measure(1, lar_kernels_panels(lar_cpu_best()), LAR_ACTIVATIONS_F32, name, &m);
        print_message("latents in %s: perplexity %.4f, expected %.4f\n", name, m.perplexity, m.expected);
        assert_true(fabs(m.perplexity / m.expected - 1) < most[kv]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_training_program),
        cmocka_unit_test(answer_is_the_same),
        cmocka_unit_test(tokens_are_those_of_the_training_program),
        cmocka_unit_test(chat_is_that_of_the_training_program),
        cmocka_unit_test(perplexity_holds_on_every_path_and_every_expert_has_work),
        cmocka_unit_test(perplexity_holds_in_every_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
