/* What a configuration says and what is refused: config.json of every family, GGUF metadata in all its forms, and
 * numbers that no model has. Messages name the field, what was found and what is possible. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "engine/model/model_config.h"
#include "tests/unit_engine/files/gguf_writer.h"

/* A small deepseek_v3; `change` is set in front of it or replaces what it has. */
static const struct {
    const char *key, *value;
} base[] = {
    {"model_type", "\"deepseek_v3\""},
    {"num_hidden_layers", "3"},
    {"hidden_size", "64"},
    {"vocab_size", "100"},
    {"num_attention_heads", "4"},
    {"q_lora_rank", "null"},
    {"kv_lora_rank", "16"},
    {"qk_nope_head_dim", "8"},
    {"qk_rope_head_dim", "4"},
    {"v_head_dim", "8"},
    {"intermediate_size", "96"},
    {"n_routed_experts", "16"},
    {"moe_intermediate_size", "24"},
    {"num_experts_per_tok", "4"},
    {"max_position_embeddings", "4096"},
};

/* `key` NULL: nothing is changed; `value` NULL: the key is left out. */
static lar_error read_with(const char *key, const char *value, lar_model_config *c, lar_diag *d) {
    lar_buf text;
    lar_buf_init(&text, 1 << 16);
    bool known = false;
    assert_int_equal(lar_buf_printf(&text, "{"), LAR_OK);
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
        bool changed = key && strcmp(base[i].key, key) == 0;
        known = known || changed;
        const char *v = changed ? value : base[i].value;
        if (v) assert_int_equal(lar_buf_printf(&text, "\"%s\": %s,", base[i].key, v), LAR_OK);
    }
    if (key && !known) assert_int_equal(lar_buf_printf(&text, "\"%s\": %s,", key, value), LAR_OK);
    assert_int_equal(lar_buf_printf(&text, "\"architectures\": []}"), LAR_OK);
    memset(d, 0, sizeof *d);
    lar_error e = lar_config_from_json(c, lar_buf_slice(&text), d);
    lar_buf_release(&text);
    return e;
}

static void refused(const char *key, const char *value, const char *says) {
    lar_model_config c;
    lar_diag d;
    lar_error e = read_with(key, value, &c, &d);
    if (e == LAR_OK || !strstr(d.text, says)) fail_msg("%s = %s: %s, \"%s\"", key, value, lar_error_name(e), d.text);
}

static lar_model_config accepted(const char *key, const char *value) {
    lar_model_config c;
    lar_diag d;
    if (read_with(key, value, &c, &d)) fail_msg("%s = %s: %s", key ? key : "nothing", value ? value : "new", d.text);
    return c;
}

static void absent_fields_have_the_defaults_of_their_family(void **state) {
    (void)state;
    lar_model_config c = accepted(NULL, NULL);
    assert_int_equal(c.dense_layers, 3);
    assert_int_equal(c.router.groups, 8);
    assert_int_equal(c.router.groups_used, 4);
    assert_int_equal(c.router.score, LAR_ROUTER_SIGMOID);
    assert_int_equal(c.router.group_score, LAR_GROUP_TOP2);
    assert_int_equal(c.shared_width, 24);
    assert_true(c.router.normalise && c.has_bias && c.router.scale == 2.5f && c.eps == 1e-6f);
    c = accepted("model_type", "\"deepseek_v2\"");
    assert_int_equal(c.dense_layers, 0);
    assert_int_equal(c.router.groups, 1);
    assert_int_equal(c.router.score, LAR_ROUTER_SOFTMAX);
    assert_int_equal(c.router.group_score, LAR_GROUP_MAX);
    assert_true(!c.router.normalise && !c.has_bias && c.router.scale == 1.0f && c.shared_width == 0);
    c = accepted("model_type", "\"glm4_moe_lite\"");
    assert_int_equal(c.dense_layers, 1);
    assert_int_equal(c.router.groups, 1);
    assert_true(c.router.scale == 1.8f && c.eps == 1e-5f && c.latent_eps == 1e-6f);
}

static void each_field_has_its_effect(void **state) {
    (void)state;
    assert_int_equal(accepted("q_lora_rank", "12").query_rank, 12);
    assert_int_equal(accepted("n_shared_experts", "2").shared_width, 48);
    assert_int_equal(accepted("n_shared_experts", "null").shared_width, 24);
    assert_int_equal(accepted("n_shared_experts", "0").shared_width, 0);
    assert_int_equal(accepted("n_routed_experts", "null").router.experts, 0);
    assert_int_equal(accepted("rope_interleave", "false").rope.pairs, LAR_ROPE_HALVES);
    assert_true(accepted("rope_theta", "1000000.0").rope.theta == 1e6);
    assert_true(accepted("rope_parameters", "{\"rope_theta\": 5e4, \"rope_type\": \"default\"}").rope.theta == 5e4);
    assert_true(accepted("tie_word_embeddings", "true").tied);
    assert_int_equal(accepted("topk_method", "\"greedy\"").router.groups, 1);
    assert_int_equal(accepted("topk_method", "\"group_limited_greedy\"").router.group_score, LAR_GROUP_MAX);
    assert_int_equal(accepted("num_nextn_predict_layers", "1").layers,
                     3); /* a further layer, never the last of these */
    lar_model_config c = accepted("mlp_layer_types", "[\"dense\", \"sparse\", \"sparse\"]");
    assert_true(!lar_config_is_moe(&c, 0) && lar_config_is_moe(&c, 1));
    c = accepted("rope_scaling", "{\"type\": \"yarn\", \"factor\": 40, \"original_max_position_embeddings\": 4096}");
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
    assert_true(fabs(c.rope.amplitude - 1.36888794541) < 1e-9); /* mscale 1 over mscale_all_dim 0 */
    c = accepted("model_type", "\"deepseek_v32\"");
    assert_int_equal(c.context, 2048);
    assert_int_equal(c.router.groups, 8);
}

/* d 64, theta 1e4, original 4096: pairs below 10 keep their speed, from 23 on they are slowed by the factor. */
static void yarn_slows_the_right_pairs(void **state) {
    (void)state;
    const lar_rope plain = {64, LAR_ROPE_NEIGHBOURS, 1e4, 0, 0, 0, 0, 1},
                   yarn = {64, LAR_ROPE_NEIGHBOURS, 1e4, 40, 4096, 32, 1, 1};
    double a[32], b[32];
    lar_rope_speeds(&plain, a);
    lar_rope_speeds(&yarn, b);
    for (int i = 0; i < 32; i++) {
        double slowed = i <= 10 ? 0 : i >= 23 ? 1 : (i - 10) / 13.0;
        assert_true(fabs(b[i] - a[i] * (1 - slowed + slowed / 40)) < 1e-12);
    }
}

static void other_models_are_refused_by_name(void **state) {
    (void)state;
    refused("model_type", "\"llama\"", "\"llama\" are not supported; larder reads deepseek_v2, deepseek_v3");
    refused("model_type", "\"deepseek_v4\"", "deepseek_v4");
    refused("model_type", "\"kimi_linear\"", "kimi_linear");
    refused("model_type", NULL, "model_type is missing");
    refused("hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; expected \"silu\"");
    refused("attention_bias", "true", "attention_bias");
    refused("scoring_func", "\"sqrtsoftplus\"", "scoring_func");
    refused("topk_method", "\"other\"", "topk_method");
    refused("partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5");
    refused("rope_scaling", "{\"type\": \"longrope\"}", "\"longrope\"; expected \"yarn\"");
    refused("rope_scaling", "{\"type\": \"linear\", \"factor\": 4}", "\"linear\"");
    refused("quantization_config", "{\"quant_method\": \"awq\"}", "quant_method is \"awq\"");
    refused("quantization_config", "{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 64]}", "weight_block_size");
    refused("mlp_layer_types", "[\"sparse\", \"dense\", \"sparse\"]", "mlp_layer_types");
    refused("mlp_layer_types", "[\"dense\"]", "one word for each layer");
}

static void numbers_that_no_model_has_are_refused(void **state) {
    (void)state;
    static const char *const positive[] = {"num_hidden_layers",   "hidden_size",
                                           "vocab_size",          "kv_lora_rank",
                                           "num_attention_heads", "qk_nope_head_dim",
                                           "v_head_dim",          "max_position_embeddings"};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++) {
        refused(positive[i], "0", "it can be 1 to");
        refused(positive[i], "-1", "expected a whole number");
        refused(positive[i], "4294967295", "it can be 1 to");
        refused(positive[i], "99999999999999999999", "expected a whole number");
        refused(positive[i], "1.5", "expected a whole number");
        refused(positive[i], "\"7\"", "expected a whole number");
        refused(positive[i], "[]", "expected a whole number");
    }
    refused("num_hidden_layers", NULL, "num_hidden_layers is missing");
    refused("q_lora_rank", NULL, "null, if the model has none");
    refused("qk_rope_head_dim", "5", "odd");
    refused("qk_rope_head_dim", "0", "2 to");
    refused("num_experts_per_tok", "0", "number of experts for a token is 0");
    refused("num_experts_per_tok", "17", "1 to 16");
    refused("n_routed_experts", "100000", "number of experts is 100000");
    refused("n_group", "5", "16 experts cannot be split into 5 groups");
    refused("n_group", "0", "number of expert groups");
    refused("n_group", "16", "each holds only one");
    refused("topk_group", "9", "1 to 8");
    refused("topk_group", "1", "4 experts for a token, but 1 groups of 2 hold only 2");
    refused("moe_layer_freq", "0", "step between MoE layers");
    refused("n_shared_experts", "4000000000", "above");
    refused("rms_norm_eps", "0", "epsilon");
    refused("rms_norm_eps", "-1e-6", "epsilon");
    refused("rms_norm_eps", "null-", "expected");
    refused("routed_scaling_factor", "1e300", "not finite");
    refused("rope_theta", "0", "rope theta");
    refused("rope_theta", "1", "rope theta");
    refused("rope_scaling", "{\"type\": \"yarn\", \"factor\": 0}", "factor");
    refused("rope_scaling", "{\"type\": \"yarn\", \"factor\": 40}", "original context");
    refused("rope_scaling", "{\"type\": \"yarn\", \"factor\": 0.5, \"original_max_position_embeddings\": 64}",
            "factor");
    refused("rope_scaling",
            "{\"type\": \"yarn\", \"factor\": 40, \"original_max_position_embeddings\": 64, \"beta_slow\": 0}", "beta");
    refused("rope_scaling",
            "{\"type\": \"yarn\", \"factor\": 40, \"original_max_position_embeddings\": 64, \"mscale\": 1e9}",
            "mscale");
}

static void text_that_is_no_configuration_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"", "[]", "null", "7", "{", "{\"model_type\"}", "\xff", "{\"model_type\": {}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lar_model_config c;
        lar_diag d = {0};
        assert_int_not_equal(lar_config_from_json(&c, lar_slice_cstr(texts[i]), &d), LAR_OK);
        assert_true(d.text[0] != '\0');
    }
}

/* -- GGUF -------------------------------------------------------------------------------------------------------- */

typedef struct gguf_case {
    const char *key; /* NULL: nothing is changed */
    uint32_t value;
    const char *says; /* NULL: it is read */
} gguf_case;

static void write_gguf(const char *path, const gguf_case *k, bool heads_in_lists) {
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"block_count", 3},
        {"embedding_length", 64},
        {"context_length", 4096},
        {"feed_forward_length", 96},
        {"attention.kv_lora_rank", 16},
        {"attention.key_length", 20},
        {"attention.value_length", 16},
        {"attention.key_length_mla", 12},
        {"attention.value_length_mla", 8},
        {"rope.dimension_count", 4},
        {"leading_dense_block_count", 1},
        {"expert_count", 16},
        {"expert_used_count", 4},
        {"expert_feed_forward_length", 24},
        {"expert_shared_count", 1},
        {"vocab_size", 100},
        {"attention.head_count_kv", 1},
        {"attention.head_count", 4},
    };
    gguf_writer w;
    char key[96];
    gguf_writer_init(&w);
    gguf_put_string(&w, "general.architecture", "deepseek2");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool changed = k->key && strcmp(k->key, numbers[i].key) == 0;
        const uint32_t v = changed ? k->value : numbers[i].value, list[] = {v, v, v};
        (void)snprintf(key, sizeof key, "deepseek2.%s", numbers[i].key);
        bool heads = strncmp(numbers[i].key, "attention.head_count", 20) == 0;
        if (heads && heads_in_lists)
            gguf_put_list(&w, key, LAR_GGUF_U32, 3, lar_slice_of((const char *)list, sizeof list));
        else gguf_put_u32(&w, key, v);
    }
    bool more = k->key != NULL;
    for (size_t i = 0; more && i < sizeof numbers / sizeof *numbers; i++) more = strcmp(k->key, numbers[i].key) != 0;
    (void)snprintf(key, sizeof key, "deepseek2.%s", more ? k->key : "");
    if (more) gguf_put_u32(&w, key, k->value);
    (void)gguf_put_tensor(&w, "blk.1.exp_probs_b.bias", LAR_DTYPE_F32, 1, (const uint64_t[]){16});
    gguf_write_zeros(&w, path);
    gguf_writer_release(&w);
}

static lar_error read_gguf(const char *path, lar_model_config *c, lar_diag *d) {
    lar_model_files *files;
    if (lar_model_files_open(path, &files, d)) fail_msg("%s", d->text);
    lar_error e = lar_config_read(c, files, d);
    lar_model_files_close(files);
    return e;
}

static void metadata_is_read_with_its_traps(void **state) {
    (void)state;
    static const gguf_case cases[] = {
        {NULL, 0, NULL},
        {"nextn_predict_layers", 1, NULL},
        {"expert_gating_func", 2, NULL},
        {"expert_group_count", 0, NULL},
        {"expert_gating_func", 4, "expert_gating_func is 4"},
        {"block_count", 0, "number of layers is 0"},
        {"attention.head_count", 0, "number of heads is 0"},
        {"attention.head_count", 4000000000u, "number of heads is 4000000000"},
        {"attention.key_length_mla", 4, "no room beside its 4 rotated"},
        {"rope.dimension_count", 0, "head size with rotation is 0"},
        {"rope.dimension_count", 5, "odd"},
        {"attention.value_length_mla", 0, "value size is 0"},
        {"expert_used_count", 17, "1 to 16"},
        {"expert_group_count", 3, "cannot be split"},
        {"expert_shared_count", 4000000000u, "above"},
        {"vocab_size", 0, "vocabulary is 0"},
        {"embedding_length", 4000000000u, "hidden size"},
        {"attention.temperature_scale", 2, "not supported"},
    };
    char path[] = "/tmp/larder_config_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int lists = 0; lists < 2; lists++) {
            lar_model_config c;
            lar_diag d = {0};
            write_gguf(path, &cases[i], lists);
            lar_error e = read_gguf(path, &c, &d);
            const char *says = cases[i].says;
            if (!e != !says || (says && !strstr(d.text, says))) fail_msg("%s: \"%s\"", cases[i].key, d.text);
            if (e) continue;
            assert_int_equal(c.heads, 4);
            assert_int_equal(c.nope, 8);
            assert_int_equal(c.value, 8);
            assert_int_equal(c.query_rank, 0);
            assert_int_equal(c.router.score, LAR_ROUTER_SIGMOID); /* there is a bias */
            assert_int_equal(c.router.groups, 1);
            assert_true(c.router.scale == 1.0f && c.router.normalise && c.has_bias);
            /* The file holds no layer: a last one that is said to predict further tokens is not counted. */
            assert_int_equal(c.layers, cases[i].key && strcmp(cases[i].key, "nextn_predict_layers") == 0 ? 2 : 3);
        }
    (void)unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_fields_have_the_defaults_of_their_family),
        cmocka_unit_test(each_field_has_its_effect),
        cmocka_unit_test(yarn_slows_the_right_pairs),
        cmocka_unit_test(other_models_are_refused_by_name),
        cmocka_unit_test(numbers_that_no_model_has_are_refused),
        cmocka_unit_test(text_that_is_no_configuration_is_refused),
        cmocka_unit_test(metadata_is_read_with_its_traps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
