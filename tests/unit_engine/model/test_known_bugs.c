/* Puts the known bugs of other implementations back, one at a time (engine/compute/bugs.def), and needs a check to fail
 * for each: the golden models, one model as a folder and as GGUF, scales and choices by hand. Built with
 * LAR_PUT_BUGS_BACK. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "engine/compute/bug_switch.h"
#include "tests/unit_engine/files/model_maker.h"
#include "tests/unit_engine/model/golden.h"

lar_bug lar_bug_now = LAR_BUG_NONE;

/* Of the standard deviation. The reference is within 4e-6, and a wrong epsilon moves a model by less than the golden
 * tolerance. */
static const double tolerance = 2e-5;
static char folder[] = "/tmp/larder_bugs_XXXXXX";

/* -- checks: true if all is right -------------------------------------------------------------------------------- */

static bool golden_is_met(const char *name, const char *of) {
    golden g;
    golden_open(&g, name, NULL, LAR_ACTIVATIONS_F32);
    const golden_case *c = golden_find(&g, of);
    float *logits = golden_logits(&g, c, (golden_run){512, LAR_ATTENTION_BY_LENGTH});
    bool met = golden_distance(&g, c, logits) < tolerance;
    free(logits);
    golden_close(&g);
    return met;
}

static bool lite_is_met(void) { return golden_is_met("v2lite-bf16", "n17"); }
static bool groups_are_met(void) { return golden_is_met("v2-groups-bf16", "n17"); }
static bool v3_is_met(void) { return golden_is_met("v3-fp8", "n17"); }
static bool moonlight_is_met(void) { return golden_is_met("moonlight-f32", "n17"); }
static bool glm_is_met(void) { return golden_is_met("glm-flash-bf16", "n131"); } /* an epsilon shows late */

static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

static double scale_of(const char *heads, const char *yarn) {
    char text[1024];
    lar_model_config c;
    lar_diag d = {0};
    (void)
        snprintf(text, sizeof text,
                 "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 61, \"hidden_size\": 7168, \"vocab_size\": "
                 "129280, \"num_attention_heads\": 128, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, "
                 "\"intermediate_size\": 18432, \"n_routed_experts\": 256, \"moe_intermediate_size\": 2048, %s, "
                 "\"rope_scaling\": %s}",
                 heads, yarn);
    lar_error e = lar_config_from_json(&c, lar_slice_cstr(text), &d);
    if (e) fail_msg("%s", d.text);
    return c.softmax_scale;
}

/* Softmax scales of released models, and one whose two mscales differ. */
static bool scales_are_right(void) {
    const char *deepseek = "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128";
    const char *glm = "\"qk_nope_head_dim\": 192, \"qk_rope_head_dim\": 64, \"v_head_dim\": 256";
    const char *form =
        "{\"type\": \"yarn\", \"factor\": %d, \"original_max_position_embeddings\": 4096, \"mscale\": %g, "
        "\"mscale_all_dim\": %g}";
    char lite[256], v3[256], k2[256], apart[256];
    (void)snprintf(lite, sizeof lite, form, 40, 0.707, 0.707);
    (void)snprintf(v3, sizeof v3, form, 40, 1.0, 1.0);
    (void)snprintf(k2, sizeof k2, form, 32, 1.0, 1.0);
    (void)snprintf(apart, sizeof apart, form, 40, 0.707, 1.0);
    return near(scale_of(deepseek, lite), 0.1147213867929261) && near(scale_of(deepseek, v3), 0.13523377911713272) &&
           near(scale_of(deepseek, k2), 0.13086079) && near(scale_of(deepseek, apart), 0.13523377911713272) &&
           near(scale_of(deepseek, "null"), 0.07216878364870322) && near(scale_of(glm, "null"), 0.0625);
}

/* Two groups of two; all biased scores are negative, so that a group masked with 0 would win. */
static bool negative_groups_stay_out(void) {
    const float bias[] = {-1.1f, -1.2f, -1.6f, -1.4f}, logits[] = {0, 0, 3, 0};
    lar_router r = {4, 2, 2, 1, LAR_ROUTER_SIGMOID, LAR_GROUP_TOP2, true, 1, bias};
    uint32_t chosen[2];
    float weights[2];
    lar_route(&r, logits, chosen, weights);
    return chosen[0] == 0 && chosen[1] == 1 && near((double)weights[0], 0.5);
}

/* Biases as a GLM layer has them, 34.5 +- 0.14: BF16 has steps of 0.25 there. */
static bool large_biases_keep_their_order(void) {
    const float bias[] = {34.50f, 34.52f, 34.48f, 34.55f}, logits[] = {0, 0, 0, 0};
    lar_router r = {4, 2, 1, 1, LAR_ROUTER_SIGMOID, LAR_GROUP_TOP2, true, 1, bias};
    uint32_t chosen[2];
    float weights[2];
    lar_route(&r, logits, chosen, weights);
    return chosen[0] == 3 && chosen[1] == 1;
}

/* Two logits that BF16 cannot tell apart. */
static bool close_logits_keep_their_order(void) {
    const float logits[] = {1.0f, 1.001f, 0.5f, 0.25f};
    lar_router r = {4, 1, 1, 1, LAR_ROUTER_SOFTMAX, LAR_GROUP_MAX, false, 1, NULL};
    uint32_t chosen;
    float weight;
    lar_route(&r, logits, &chosen, &weight);
    return chosen == 1;
}

/* An embedding of 1e6: activations over what F16 holds, as DeepSeek-V2 has them. */
static bool large_activations_stay_finite(void) {
    golden g;
    golden_open(&g, "moonlight-f32", NULL, LAR_ACTIVATIONS_F32);
    lar_tensor large = *g.weights.embedding;
    uint64_t rows = lar_tensor_rows(&large), n = lar_tensor_row_elements(&large);
    float *data = malloc(rows * n * sizeof *data);
    for (uint64_t r = 0; r < rows; r++) lar_tensor_row(&large, r, data + r * n);
    for (uint64_t i = 0; i < rows * n; i++) data[i] *= 1e6f;
    large.data = (const uint8_t *)data;
    g.weights.embedding = &large;
    const golden_case *c = golden_find(&g, "n17");
    float *logits = golden_logits(&g, c, (golden_run){512, LAR_ATTENTION_BY_LENGTH});
    bool finite = true;
    for (uint32_t i = 0; i < c->position_count * g.config.vocab; i++) finite = finite && isfinite(logits[i]);
    free(logits);
    free(data);
    golden_close(&g);
    return finite;
}

static bool full_is_refused(void) {
    golden g;
    lar_diag d = {0};
    lar_forward *f;
    lar_latent_cache *k;
    golden_open(&g, "v2lite-bf16", NULL, LAR_ACTIVATIONS_F32);
    const uint32_t ids[] = {1, 2, 3, 4}, last = 0;
    float *logits = malloc(g.config.vocab * sizeof *logits);
    assert_int_equal(lar_forward_new(&g.config, &g.weights, &(lar_forward_options){4, 1, NULL, 0}, &f, &d), LAR_OK);
    k = golden_cache(&g.config, "f32", 4);
    golden_feed(f, k, ids, 4, logits);
    lar_error e = lar_forward_run(f, &(lar_forward_part){k, ids, 1, &last, 1, 0}, 1, logits, &d);
    bool refused = e == LAR_LIMIT && lar_latent_cache_length(k) == 4;
    lar_latent_cache_free(k);
    lar_forward_free(f);
    free(logits);
    golden_close(&g);
    return refused;
}

/* -- one model in two forms -------------------------------------------------------------------------------------- */

enum { TOKENS = 100 };

/* Logits of the last of TOKENS tokens; false if the model does not load. */
static bool last_logits(const char *path, float *logits) {
    lar_model_files *files;
    lar_model_config c;
    lar_weights w;
    lar_forward *f;
    lar_latent_cache *k;
    lar_diag d = {0};
    uint32_t ids[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = i * 37 % 200;
    if (lar_model_files_open(path, &files, &d)) fail_msg("%s: %s", path, d.text);
    if (lar_config_read(&c, files, &d)) fail_msg("%s: %s", path, d.text);
    lar_weights_options o = {.kernels = lar_kernels_reference()};
    lar_error e = lar_weights_load(&w, &c, files, &o, &d);
    if (!e) {
        lar_forward_options p = {.tokens_max = TOKENS, .logits_max = 1};
        assert_int_equal(lar_forward_new(&c, &w, &p, &f, &d), LAR_OK);
        k = golden_cache(&c, "f32", TOKENS);
        golden_feed(f, k, ids, TOKENS, logits);
        lar_latent_cache_free(k);
        lar_forward_free(f);
        lar_weights_release(&w);
    }
    lar_model_files_close(files);
    return !e;
}

static double distance(const float *a, const float *b, uint32_t n) {
    double worst = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - (double)b[i]);
        if (!(off <= worst)) worst = off == off ? off : INFINITY;
        squares += (double)b[i] * (double)b[i];
    }
    return worst / sqrt(squares / n);
}

/* Takes a key away from metadata by giving it another name of the same length. */
static void hide_key(const char *path, const char *key) {
    lar_buf text;
    lar_diag d = {0};
    lar_buf_init(&text, 64 << 20);
    assert_int_equal(lar_file_read(path, LAR_FILE_REGULAR, &text, &d), LAR_OK);
    char *at = memmem(text.ptr, text.len, key, strlen(key));
    assert_non_null(at);
    at[strlen(key) - 1] = '_';
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text.ptr, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
    lar_buf_release(&text);
}

typedef struct pair {
    char folder[64], gguf[64];
    uint32_t vocab;
} pair;

static pair lite, v3; /* V2-Lite's form; V3's without what older converters did not write */
static char mixed[64];

static void write_pair(pair *p, const model_shape *s, const char *name) {
    (void)snprintf(p->folder, sizeof p->folder, "%s/%s", folder, name);
    (void)snprintf(p->gguf, sizeof p->gguf, "%s/%s.gguf", folder, name);
    assert_int_equal(mkdir(p->folder, 0700), 0);
    model_write(s, LAR_MODEL_FOLDER, p->folder);
    model_write(s, LAR_MODEL_GGUF, p->gguf);
    p->vocab = (uint32_t)s->vocab;
}

static bool pair_agrees(const pair *p) {
    float *a = malloc(p->vocab * sizeof *a), *b = malloc(p->vocab * sizeof *b);
    bool same = last_logits(p->folder, a) && last_logits(p->gguf, b) && distance(b, a, p->vocab) < 1e-4;
    free(a);
    free(b);
    return same;
}

static bool lite_agrees(void) { return pair_agrees(&lite); }
static bool v3_agrees(void) { return pair_agrees(&v3); }

/* Rows of 96 and of 64 values in a Q4_K file: half of its types are others. */
static bool mixed_loads(void) {
    float *logits = malloc(lite.vocab * sizeof *logits);
    bool loaded = last_logits(mixed, logits);
    free(logits);
    return loaded;
}

static int write_models(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    model_shape s;
    assert_true(model_shape_named("tiny-lite", &s));
    write_pair(&lite, &s, "lite");
    s.type = LAR_DTYPE_Q4_K;
    s.mix = true;
    (void)snprintf(mixed, sizeof mixed, "%s/mixed.gguf", folder);
    model_write(&s, LAR_MODEL_GGUF, mixed);
    assert_true(model_shape_named("tiny-v3", &s));
    s.expert_scale = 1;
    write_pair(&v3, &s, "v3");
    hide_key(v3.gguf, "deepseek2.expert_gating_func");
    hide_key(v3.gguf, "deepseek2.expert_weights_scale");
    return 0;
}

static int remove_models(void **state) {
    (void)state;
    const pair *pairs[] = {&lite, &v3};
    char path[128];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/config.json", pairs[i]->folder);
        (void)unlink(path);
        (void)snprintf(path, sizeof path, "%s/model.safetensors", pairs[i]->folder);
        (void)unlink(path);
        (void)rmdir(pairs[i]->folder);
        (void)unlink(pairs[i]->gguf);
    }
    (void)unlink(mixed);
    return rmdir(folder);
}

/* -- the table --------------------------------------------------------------------------------------------------- */

typedef struct row {
    lar_bug bug;
    bool (*check)(void); /* must fail with the bug, and hold without */
} row;

static const row rows[] = {
    {LAR_BUG_SCALE_WITHOUT_MSCALE, lite_is_met},
    {LAR_BUG_SCALE_WITHOUT_MSCALE, scales_are_right},
    {LAR_BUG_SCALE_MSCALE_ONCE, lite_is_met},
    {LAR_BUG_MSCALE_ON_ROTATION, lite_is_met},
    {LAR_BUG_LOG_MULTIPLIER_AS_MSCALE, lite_agrees},
    {LAR_BUG_MSCALE_FOR_ALL_DIM, scales_are_right},
    {LAR_BUG_NO_YARN, lite_is_met},
    {LAR_BUG_YARN_ONLY_BEYOND, lite_is_met},
    {LAR_BUG_GATING_ALWAYS_SOFTMAX, v3_agrees},
    {LAR_BUG_SOFTMAX_AFTER_CHOICE, lite_is_met},
    {LAR_BUG_BIAS_IN_WEIGHTS, moonlight_is_met},
    {LAR_BUG_NO_BIAS, moonlight_is_met},
    {LAR_BUG_GROUP_MAX_FOR_TOP2, v3_is_met},
    {LAR_BUG_GROUP_TOP2_FOR_MAX, groups_are_met},
    {LAR_BUG_GROUPS_MASKED_WITH_ZERO, negative_groups_stay_out},
    {LAR_BUG_WEIGHTS_SCALE_ZERO, v3_agrees},
    {LAR_BUG_NO_WEIGHTS_SCALE, groups_are_met},
    {LAR_BUG_NO_WEIGHTS_NORM, moonlight_is_met},
    {LAR_BUG_ROUTER_IN_BF16, v3_is_met},
    {LAR_BUG_ROUTER_IN_BF16, close_logits_keep_their_order},
    {LAR_BUG_BIAS_IN_BF16, large_biases_keep_their_order},
    {LAR_BUG_ACTIVATIONS_IN_F16, large_activations_stay_finite},
    {LAR_BUG_K_QUANTS_ONLY, mixed_loads},
    {LAR_BUG_CONTEXT_SHIFT, full_is_refused},
    {LAR_BUG_LATENT_EPS_OF_MODEL, glm_is_met},
    {LAR_BUG_KEY_ROPE_NORMED, lite_is_met},
    {LAR_BUG_ROPE_HALVES, lite_is_met},
    {LAR_BUG_ROPE_FIRST, lite_is_met},
    {LAR_BUG_LAST_LAYER_AS_MTP, lite_is_met},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const char *const texts[] = {
    [LAR_BUG_NONE] = "",
#define LAR_BUG_ROW(name, item, text) [LAR_BUG_##name] = item ": " text,
#include "engine/compute/bugs.def"
#undef LAR_BUG_ROW
};

static void all_is_right_without_bugs(void **state) {
    (void)state;
    lar_bug_now = LAR_BUG_NONE;
    for (int i = 0; i < ROWS; i++) {
        bool done = false;
        for (int k = 0; k < i; k++) done = done || rows[k].check == rows[i].check;
        if (!done && !rows[i].check()) fail_msg("the check of row %d fails without a bug", i);
    }
}

static void every_bug_is_seen(void **state) {
    (void)state;
    bool seen[LAR_BUG_COUNT] = {[LAR_BUG_NONE] = true};
    int missed = 0;
    for (int i = 0; i < ROWS; i++) {
        lar_bug_now = rows[i].bug;
        bool failed = !rows[i].check();
        seen[rows[i].bug] = true;
        if (!failed) print_message("not seen: %s\n", texts[rows[i].bug]);
        missed += !failed;
    }
    lar_bug_now = LAR_BUG_NONE;
    for (int b = 0; b < LAR_BUG_COUNT; b++)
        if (!seen[b]) fail_msg("no check for: %s", texts[b]);
    assert_int_equal(missed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_right_without_bugs),
        cmocka_unit_test(every_bug_is_seen),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
