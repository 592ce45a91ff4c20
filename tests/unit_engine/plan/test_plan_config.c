/* Any model's config.json for a plan: published shapes with published sizes, other families, numbers that cannot be. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#include "engine/plan/plan.h"

static lar_error read_model(const char *text, lar_plan_model *m, lar_diag *d) {
    *m = (lar_plan_model){0};
    *d = (lar_diag){0};
    lar_error e = lar_plan_model_from_config(m, lar_slice_cstr(text), d);
    return e ? e : lar_plan_model_finish(m, d);
}

static uint64_t token_bytes(const lar_plan_model *m) {
    lar_plan_request r = {.context = 64, .sequences = 1, .kv = LAR_KV_BF16, .memory = 1ull << 50};
    lar_plan p;
    lar_diag d = {0};
    assert_int_equal(lar_plan_compute(m, &r, &p, &d), LAR_OK);
    return p.token;
}

/* Dimensions as published; parameters in billions, with the embedding, and bytes a token, as their authors and the
 * engine's report have them. */
static const struct {
    const char *config;
    double billions;
    uint64_t token;
    lar_dtype stored;
} published[] = {
    {"{\"model_type\":\"deepseek_v2\",\"num_hidden_layers\":27,\"hidden_size\":2048,\"num_attention_heads\":16,"
     "\"num_key_value_heads\":16,\"q_lora_rank\":null,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
     "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"
     "\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"
     "\"vocab_size\":102400,\"max_position_embeddings\":163840,\"torch_dtype\":\"bfloat16\"}",
     15.7, 31104, LAR_DTYPE_BF16},
    {"{\"model_type\":\"glm4_moe_lite\",\"num_hidden_layers\":47,\"hidden_size\":2048,\"num_attention_heads\":20,"
     "\"q_lora_rank\":768,\"kv_lora_rank\":512,\"qk_nope_head_dim\":192,\"qk_rope_head_dim\":64,\"v_head_dim\":256,"
     "\"intermediate_size\":10240,\"moe_intermediate_size\":1536,\"n_routed_experts\":64,\"num_experts_per_tok\":4,"
     "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"vocab_size\":154880,\"dtype\":\"bfloat16\"}",
     29.9, 54144, LAR_DTYPE_BF16},
    {"{\"model_type\":\"deepseek_v3\",\"num_hidden_layers\":61,\"hidden_size\":7168,\"num_attention_heads\":128,"
     "\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
     "\"intermediate_size\":18432,\"moe_intermediate_size\":2048,\"n_routed_experts\":256,\"num_experts_per_tok\":8,"
     "\"n_shared_experts\":1,\"first_k_dense_replace\":3,\"vocab_size\":129280,\"torch_dtype\":\"bfloat16\","
     "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}",
     671.0, 70272, LAR_DTYPE_F8_E4M3},
    /* Llama 3 8B: grouped heads, nothing said of their size. */
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":128256,\"tie_word_embeddings\":false}",
     8.03, 131072, LAR_DTYPE_BF16},
    /* Mixtral 8x7B: experts as wide as the MLP. */
    {"{\"model_type\":\"mixtral\",\"num_hidden_layers\":32,\"hidden_size\":4096,\"num_attention_heads\":32,"
     "\"num_key_value_heads\":8,\"intermediate_size\":14336,\"num_local_experts\":8,\"num_experts_per_tok\":2,"
     "\"vocab_size\":32000,\"torch_dtype\":\"float16\"}",
     46.7, 131072, LAR_DTYPE_F16},
    /* GPT-2: old names, all heads, two matrices, one embedding. */
    {"{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_embd\":768,\"n_head\":12,\"vocab_size\":50257,"
     "\"tie_word_embeddings\":true}",
     0.1235, 36864, LAR_DTYPE_BF16},
};

static void published_sizes(void **state) {
    (void)state;
    lar_plan_model m;
    lar_diag d;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        assert_int_equal(read_model(published[i].config, &m, &d), LAR_OK);
        double billions = (double)m.parameters / 1e9;
        assert_true(billions > 0.99 * published[i].billions && billions < 1.01 * published[i].billions);
        assert_int_equal(token_bytes(&m), published[i].token);
        assert_int_equal(m.stored, published[i].stored);
    }
}

static void language_model_inside(void **state) {
    (void)state;
    lar_plan_model m;
    lar_diag d;
    assert_int_equal(read_model("{\"model_type\":\"seeing\",\"num_hidden_layers\":99,\"text_config\":{\"model_type\":"
                                "\"reading\",\"num_hidden_layers\":3,\"num_attention_heads\":4,\"head_dim\":8,"
                                "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"linear_attention\"],"
                                "\"sliding_window\":512}}",
                                &m, &d),
                     LAR_OK);
    assert_string_equal(m.type, "reading");
    assert_int_equal(m.layers_windowed, 1);
    assert_int_equal(m.layers_stateless, 1);
    assert_int_equal(token_bytes(&m), 2 * 2 * 4 * 8 * 2);
    assert_int_equal(m.parameters, 0);
}

static const struct {
    const char *config;
    lar_error error;
    const char *text;
} refused[] = {
    {"{\"num_hidden_layers\":\"12\"}", LAR_INVALID,
     "num_hidden_layers: expected a whole number up to 4096, found \"12\""},
    {"{\"num_hidden_layers\":-1}", LAR_INVALID, "num_hidden_layers: expected a whole number up to 4096, found -1"},
    {"{\"n_layer\":1e3}", LAR_INVALID, "n_layer: expected a whole number up to 4096, found 1e3"},
    {"{\"num_hidden_layers\":18446744073709551615}", LAR_INVALID,
     "num_hidden_layers: 18446744073709551615; at most 4096 is possible"},
    {"{\"num_hidden_layers\":99999999999999999999}", LAR_INVALID,
     "num_hidden_layers: expected a whole number up to 4096, found 99999999999999999999"},
    {"{\"num_hidden_layers\":4,\"kv_lora_rank\":65537}", LAR_INVALID, "kv_lora_rank: 65537; at most 65536 is possible"},
    {"{\"num_hidden_layers\":4,\"kv_lora_rank\":64}", LAR_INVALID,
     "latent attention of rank 64 without the rotated part (qk_rope_head_dim)"},
    {"{}", LAR_INVALID, "the number of layers is not known (num_hidden_layers)"},
    {"{\"num_hidden_layers\":4}", LAR_INVALID,
     "neither heads and their size (num_key_value_heads, head_dim) nor the rank of latent attention (kv_lora_rank) are "
     "known"},
    {"{\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":9,\"head_dim\":64}", LAR_INVALID,
     "num_key_value_heads: 9, more than the 8 heads"},
    {"{\"num_hidden_layers\":1,\"num_attention_heads\":1,\"head_dim\":64,\"layer_types\":[\"full_attention\","
     "\"sliding_attention\",\"sliding_attention\"],\"sliding_window\":8}",
     LAR_INVALID, "layer_types names more layers than num_hidden_layers: 1"},
    {"{\"num_hidden_layers\":1,\"num_attention_heads\":1,\"head_dim\":64,\"layer_types\":[\"sliding_attention\"]}",
     LAR_INVALID, "layers with a sliding window, but sliding_window is missing"},
    {"{\"num_hidden_layers\":1,\"layer_types\":[\"new_attention\"]}", LAR_INVALID,
     "layer_types: 'new_attention' is not counted; full_attention, sliding_attention and linear_attention are"},
    {"{\"num_hidden_layers\":1,\"layer_types\":{}}", LAR_INVALID,
     "layer_types: expected a list of a kind for each layer"},
    {"{\"model_type\":\"deepseek_v4\",\"compress_ratios\":[0,4],\"num_hidden_layers\":43}", LAR_INVALID,
     "deepseek_v4: this model keeps compressed rows and a ring of raw ones (compress_ratios); only rows a token and layer "
     "are counted"},
    {"[1]", LAR_INVALID, "config.json is not an object"},
};

static void refusals(void **state) {
    (void)state;
    lar_plan_model m;
    lar_diag d;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(read_model(refused[i].config, &m, &d), refused[i].error);
        assert_string_equal(d.text, refused[i].text);
    }
    assert_int_equal(read_model("{\"a\":", &m, &d), LAR_JSON_SYNTAX);
    assert_int_equal(read_model("", &m, &d), LAR_JSON_SYNTAX);
}

/* Every field at its largest: possible one by one, together too many, and no sum wraps round to something small. */
static void largest(void **state) {
    (void)state;
    lar_plan_model m = {0};
    lar_diag d = {0};
    for (int f = 0; f < LAR_PLAN_FIELD_COUNT; f++) m.field[f] = lar_plan_field_info_of((lar_plan_field)f)->most;
    assert_int_equal(lar_plan_model_finish(&m, &d), LAR_LIMIT);
    assert_non_null(strstr(d.text, "parameters"));
    m.parameters = 1;
    assert_int_equal(lar_plan_model_finish(&m, &d), LAR_OK);
    lar_plan_request r = {.context = 1 << 30, .sequences = 1 << 20, .kv = LAR_KV_F32, .memory = 1ull << 61};
    lar_plan p;
    assert_int_equal(lar_plan_compute(&m, &r, &p, &d), LAR_LIMIT);
    assert_true(p.total >= 1ull << 62);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sizes),
        cmocka_unit_test(language_model_inside),
        cmocka_unit_test(refusals),
        cmocka_unit_test(largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
