/* Models for tests: a list of tensors, their random values, and the two forms of files.
 * Called by tests and by write_model. Every value is a hash of (seed, tensor, index), rounded to BF16, so that one
 * model written in several types and forms is one model but for the rounding of the type. Sources: names of DeepSeek's
 * checkpoints and of llama.cpp's deepseek2; fall-back types as llama.cpp's quantiser takes them.
 * Memory: some rows at a time. Errors end the program: a test without its file has nothing to say. */
#include "tests/unit_engine/files/model_maker.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/compute/workers.h"
#include "engine/files/float_bits.h"
#include "engine/files/tensor_list.h"
#include "tests/unit_engine/files/quantise.h"

bool model_shape_named(const char *name, model_shape *out) {
    static const model_shape lite = {.layers = 3,
                                     .dense_layers = 1,
                                     .hidden = 256,
                                     .heads = 4,
                                     .kv_rank = 256,
                                     .nope = 64,
                                     .rope = 32,
                                     .v_dim = 64,
                                     .dense_ff = 512,
                                     .expert_ff = 96,
                                     .experts = 8,
                                     .experts_used = 3,
                                     .shared = 2,
                                     .groups = 1,
                                     .groups_used = 1,
                                     .vocab = 512,
                                     .context = 4096,
                                     .expert_scale = 1,
                                     .eps = 1e-6,
                                     .rope_base = 10000,
                                     .yarn_factor = 40,
                                     .yarn_mscale = 0.707,
                                     .yarn_original = 64,
                                     .type = LAR_DTYPE_BF16,
                                     .seed = 1,
                                     .embedding = 1};
    *out = lite;
    if (!strcmp(name, "tiny-lite")) return true;
    if (!strcmp(name, "tiny-v3")) {
        out->q_rank = 256, out->experts = 16, out->experts_used = 4, out->shared = 1, out->sigmoid = true;
        out->groups = 4, out->groups_used = 2, out->expert_scale = 2.5, out->yarn_mscale = 1;
        return true;
    }
    if (strcmp(name, "v2lite")) return false;
    out->layers = 4, out->hidden = 2048, out->heads = 16, out->kv_rank = 512, out->nope = 128, out->rope = 64;
    out->v_dim = 128, out->dense_ff = 10944, out->expert_ff = 1408, out->experts = 64, out->experts_used = 6;
    out->vocab = 102400, out->context = 163840, out->yarn_original = 4096;
    return true;
}

/* -- values -------------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) { return lar_mix64(x + LAR_MIX64_STEP); }

/* Near to a normal distribution of spread 1: the sum of four even ones. */
static float value_at(uint64_t seed, uint64_t index) {
    uint64_t h = mix(seed + index * 0xd1342543de82ef95u);
    int32_t sum = (int32_t)((h & 0xffff) + (h >> 16 & 0xffff) + (h >> 32 & 0xffff) + (h >> 48)) - 2 * 0xffff;
    return (float)sum / 37837.0f;
}

static float made_value(const made_tensor *t, uint64_t index) {
    float v = lar_bf16_float(quantise_bf16(t->mean + t->spread * value_at(t->seed, t->base + index)));
    return t->jitter ? v + 0.007f * value_at(mix(t->seed ^ t->jitter), index) : v;
}

/* A scale for each 128 x 128 of an FP8 matrix: such that its values use most of the type's range. */
static float block_scale(const made_tensor *t, uint64_t row, uint64_t column) {
    return t->spread / 64 * (1.0f + (float)(mix(t->seed ^ (row / 128 * 1000 + column / 128)) % 64) / 64);
}

void made_row(const model_shape *s, const made_tensor *t, uint64_t row, float *out) {
    uint64_t n = t->shape[t->dims - 1], head_rows = s->nope + s->v_dim;
    switch (t->order) {
    case MADE_PLAIN:
        for (uint64_t i = 0; i < n; i++) out[i] = made_value(t, row * n + i);
        if (t->type == LAR_DTYPE_F8_E4M3)
            for (uint64_t i = 0; i < n; i++) out[i] /= block_scale(t, row, i);
        return;
    case MADE_K_B: /* (heads, rank, nope): turned round for each head */
        for (uint64_t i = 0; i < n; i++)
            out[i] = made_value(t, (row / s->kv_rank * head_rows + i) * s->kv_rank + row % s->kv_rank);
        return;
    case MADE_V_B: /* (heads, v_dim, rank) */
        for (uint64_t i = 0; i < n; i++)
            out[i] = made_value(t, (row / s->v_dim * head_rows + s->nope + row % s->v_dim) * s->kv_rank + i);
        return;
    case MADE_SCALE:
        for (uint64_t i = 0; i < n; i++) out[i] = block_scale(t, row * 128, i * 128);
        return;
    }
}

/* -- the list of tensors ------------------------------------------------------------------------------------------- */

typedef struct maker {
    const model_shape *s;
    lar_model_form form;
    made_tensor *list;
    uint32_t count, cap;
    uint64_t layer;
    bool in_layer;
} maker;

static made_tensor *add(maker *m, const char *name, lar_dtype type) {
    if (m->count == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 64;
        m->list = realloc(m->list, m->cap * sizeof *m->list);
        if (!m->list) abort();
    }
    made_tensor *t = &m->list[m->count++];
    *t = (made_tensor){.type = type};
    const char *prefix = m->form == LAR_MODEL_GGUF ? "blk" : "model.layers";
    if (m->in_layer) (void)snprintf(t->name, sizeof t->name, "%s.%" PRIu64 ".%s", prefix, m->layer, name);
    else (void)snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

/* Names in both forms; the numbers depend on the first, so that both forms have the same. */
typedef struct two_names {
    const char *gguf, *folder;
} two_names;

static uint64_t seed_of(const maker *m, const char *gguf) {
    uint64_t h = mix(m->s->seed) ^ (m->in_layer ? m->layer + 1 : 0);
    for (; *gguf; gguf++) h = mix(h ^ (unsigned char)*gguf);
    return h;
}

static lar_dtype fall_back(lar_dtype type, uint64_t row) {
    if (row % lar_dtype_info_of(type)->block_elements == 0) return type;
    switch (type) {
    case LAR_DTYPE_Q4_K: type = LAR_DTYPE_Q5_0; break;
    case LAR_DTYPE_Q5_K: type = LAR_DTYPE_Q5_1; break;
    case LAR_DTYPE_Q6_K: type = LAR_DTYPE_Q8_0; break;
    case LAR_DTYPE_IQ4_XS: type = LAR_DTYPE_IQ4_NL; break;
    default: type = LAR_DTYPE_F16; break;
    }
    return row % lar_dtype_info_of(type)->block_elements ? LAR_DTYPE_F16 : type;
}

static made_tensor *plain(maker *m, two_names names, lar_dtype type, uint64_t out, uint64_t in) {
    made_tensor *t = add(m, m->form == LAR_MODEL_GGUF ? names.gguf : names.folder, fall_back(type, in));
    t->dims = out ? 2 : 1;
    t->shape[0] = out ? out : in;
    t->shape[1] = in;
    t->seed = seed_of(m, names.gguf);
    t->spread = 1 / sqrtf((float)in);
    return t;
}

static void scale_behind(maker *m) {
    made_tensor of = m->list[m->count - 1];
    if (of.type != LAR_DTYPE_F8_E4M3) return;
    bool in_layer = m->in_layer;
    m->in_layer = false;
    made_tensor *t = add(m, "", LAR_DTYPE_F32);
    m->in_layer = in_layer;
    (void)snprintf(t->name, sizeof t->name, "%.80s_scale_inv", of.name);
    t->dims = 2;
    t->shape[0] = (of.shape[0] + 127) / 128;
    t->shape[1] = (of.shape[1] + 127) / 128;
    t->seed = of.seed;
    t->spread = of.spread;
    t->order = MADE_SCALE;
}

static void matrix(maker *m, two_names names, uint64_t out, uint64_t in) {
    (void)plain(m, names, m->s->type, out, in);
    scale_behind(m);
}

static void norm(maker *m, two_names names, uint64_t n) {
    made_tensor *t = plain(m, names, m->form == LAR_MODEL_GGUF ? LAR_DTYPE_F32 : LAR_DTYPE_BF16, 0, n);
    t->mean = 1;
    t->spread = 0.1f;
    t->jitter = m->s->jitter;
}

/* All experts in one tensor, or each in its own. */
static void expert_matrices(maker *m, const char *part, lar_dtype type, uint64_t out, uint64_t in) {
    char gguf[64], folder[96];
    const model_shape *s = m->s;
    (void)snprintf(gguf, sizeof gguf, "ffn_%s_exps.weight", part);
    if (m->form == LAR_MODEL_GGUF) {
        made_tensor *t = plain(m, (two_names){gguf, gguf}, type, out, in);
        *t = (made_tensor){
            .type = t->type, .dims = 3, .shape = {s->experts, out, in}, .seed = t->seed, .spread = t->spread};
        (void)snprintf(t->name, sizeof t->name, "blk.%" PRIu64 ".%s", m->layer, gguf);
        return;
    }
    for (uint64_t e = 0; e < s->experts; e++) {
        (void)snprintf(folder, sizeof folder, "mlp.experts.%" PRIu64 ".%s_proj.weight", e, part);
        plain(m, (two_names){gguf, folder}, type, out, in)->base = e * out * in;
        scale_behind(m);
    }
}

static void feed_forward(maker *m) {
    const model_shape *s = m->s;
    if (m->layer < s->dense_layers) {
        matrix(m, (two_names){"ffn_gate.weight", "mlp.gate_proj.weight"}, s->dense_ff, s->hidden);
        matrix(m, (two_names){"ffn_up.weight", "mlp.up_proj.weight"}, s->dense_ff, s->hidden);
        matrix(m, (two_names){"ffn_down.weight", "mlp.down_proj.weight"}, s->hidden, s->dense_ff);
        return;
    }
    lar_dtype small = m->form == LAR_MODEL_GGUF ? LAR_DTYPE_F32 : LAR_DTYPE_BF16;
    made_tensor *router = plain(m, (two_names){"ffn_gate_inp.weight", "mlp.gate.weight"}, small, s->experts, s->hidden);
    router->spread *= 2;
    if (s->sigmoid) {
        two_names bias = {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"};
        plain(m, bias, LAR_DTYPE_F32, 0, s->experts)->spread = 0.1f;
    }
    bool better = s->mix && m->layer % 2;
    expert_matrices(m, "gate", s->type, s->expert_ff, s->hidden);
    expert_matrices(m, "up", s->type, s->expert_ff, s->hidden);
    expert_matrices(m, "down", better ? LAR_DTYPE_Q6_K : s->type, s->hidden, s->expert_ff);
    uint64_t shared = s->shared * s->expert_ff;
    if (!shared) return;
    matrix(m, (two_names){"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"}, shared, s->hidden);
    matrix(m, (two_names){"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"}, shared, s->hidden);
    matrix(m, (two_names){"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"}, s->hidden, shared);
}

static void split_kv_b(maker *m) {
    const model_shape *s = m->s;
    made_tensor *k = plain(m, (two_names){"attn_k_b.weight", ""}, s->type, s->heads, s->nope);
    k->dims = 3, k->shape[1] = s->kv_rank, k->shape[2] = s->nope, k->order = MADE_K_B;
    k->seed = seed_of(m, "attn_kv_b.weight");
    k->spread = 1 / sqrtf((float)s->kv_rank);
    made_tensor *v = plain(m, (two_names){"attn_v_b.weight", ""}, s->type, s->heads, s->kv_rank);
    v->dims = 3, v->shape[1] = s->v_dim, v->shape[2] = s->kv_rank, v->order = MADE_V_B;
    v->seed = seed_of(m, "attn_kv_b.weight");
}

static void attention(maker *m) {
    const model_shape *s = m->s;
    uint64_t q = s->heads * (s->nope + s->rope);
    norm(m, (two_names){"attn_norm.weight", "input_layernorm.weight"}, s->hidden);
    if (s->q_rank) {
        matrix(m, (two_names){"attn_q_a.weight", "self_attn.q_a_proj.weight"}, s->q_rank, s->hidden);
        norm(m, (two_names){"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"}, s->q_rank);
        matrix(m, (two_names){"attn_q_b.weight", "self_attn.q_b_proj.weight"}, q, s->q_rank);
    } else {
        matrix(m, (two_names){"attn_q.weight", "self_attn.q_proj.weight"}, q, s->hidden);
    }
    two_names kv_a = {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"};
    matrix(m, kv_a, s->kv_rank + s->rope, s->hidden);
    norm(m, (two_names){"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"}, s->kv_rank);
    if (m->form == LAR_MODEL_GGUF && !s->legacy) split_kv_b(m);
    else {
        two_names kv_b = {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"};
        matrix(m, kv_b, s->heads * (s->nope + s->v_dim), s->kv_rank);
    }
    matrix(m, (two_names){"attn_output.weight", "self_attn.o_proj.weight"}, s->hidden, s->heads * s->v_dim);
}

made_tensor *model_tensors(const model_shape *s, lar_model_form form, uint32_t *count) {
    maker m = {.s = s, .form = form};
    lar_dtype ends = s->type == LAR_DTYPE_F8_E4M3 ? LAR_DTYPE_BF16 : s->type; /* FP8 checkpoints keep these wide */
    two_names embedding = {"token_embd.weight", "model.embed_tokens.weight"};
    plain(&m, embedding, ends, s->vocab, s->hidden)->spread = (float)s->embedding;
    m.in_layer = true;
    for (; m.layer < s->layers; m.layer++) {
        attention(&m);
        norm(&m, (two_names){"ffn_norm.weight", "post_attention_layernorm.weight"}, s->hidden);
        feed_forward(&m);
    }
    m.in_layer = false;
    norm(&m, (two_names){"output_norm.weight", "model.norm.weight"}, s->hidden);
    lar_dtype head = s->mix ? LAR_DTYPE_Q6_K : ends;
    plain(&m, (two_names){"output.weight", "lm_head.weight"}, head, s->vocab, s->hidden)->spread *= 3;
    *count = m.count;
    return m.list;
}

/* -- metadata ------------------------------------------------------------------------------------------------------ */

static void put_int(gguf_writer *w, const char *key, uint64_t v) {
    char name[96];
    (void)snprintf(name, sizeof name, "deepseek2.%s", key);
    gguf_put_u32(w, name, (uint32_t)v);
}

static void put_float(gguf_writer *w, const char *key, double v) {
    char name[96];
    (void)snprintf(name, sizeof name, "deepseek2.%s", key);
    gguf_put_f32(w, name, (float)v);
}

static void put_attention(gguf_writer *w, const model_shape *s) {
    put_int(w, "attention.head_count", s->heads);
    put_int(w, "attention.head_count_kv", s->legacy ? s->heads : 1);
    put_float(w, "attention.layer_norm_rms_epsilon", s->eps);
    if (s->q_rank) put_int(w, "attention.q_lora_rank", s->q_rank);
    put_int(w, "attention.kv_lora_rank", s->kv_rank);
    put_int(w, "attention.key_length", s->legacy ? s->nope + s->rope : s->kv_rank + s->rope);
    put_int(w, "attention.value_length", s->legacy ? s->v_dim : s->kv_rank);
    if (!s->legacy) put_int(w, "attention.key_length_mla", s->nope + s->rope);
    if (!s->legacy) put_int(w, "attention.value_length_mla", s->v_dim);
    put_int(w, "rope.dimension_count", s->rope);
    put_float(w, "rope.freq_base", s->rope_base);
    if (s->yarn_factor == 0) return;
    gguf_put_string(w, "deepseek2.rope.scaling.type", "yarn");
    put_float(w, "rope.scaling.factor", s->yarn_factor);
    put_int(w, "rope.scaling.original_context_length", s->yarn_original);
    put_float(w, "rope.scaling.yarn_log_multiplier", 0.1 * s->yarn_mscale);
}

static void put_experts(gguf_writer *w, const model_shape *s) {
    put_int(w, "leading_dense_block_count", s->dense_layers);
    put_int(w, "expert_count", s->experts);
    put_int(w, "expert_used_count", s->experts_used);
    put_int(w, "expert_feed_forward_length", s->expert_ff);
    put_int(w, "expert_shared_count", s->shared);
    put_float(w, "expert_weights_scale", s->expert_scale);
    gguf_put_bool(w, "deepseek2.expert_weights_norm", s->sigmoid);
    put_int(w, "expert_gating_func", s->sigmoid ? 2 : 1);
    if (s->groups > 1) put_int(w, "expert_group_count", s->groups);
    if (s->groups > 1) put_int(w, "expert_group_used_count", s->groups_used);
}

/* The 256 bytes as byte-level BPE writes them (printable ones as they are, the others from U+0100 on), two marks, and
 * fillers that no text contains; one merge, because readers want a list of them. */
static void put_tokenizer(gguf_writer *w, const model_shape *s) {
    char(*text)[48] = calloc(s->vocab, sizeof *text);
    const char **tokens = calloc(s->vocab, sizeof *tokens);
    lar_buf types;
    lar_buf_init(&types, 1 << 28);
    if (!text || !tokens || s->vocab < 264) abort();
    uint32_t moved = 0;
    for (uint64_t i = 0; i < s->vocab; i++) {
        bool printable = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || (i >= 174 && i <= 255);
        uint32_t point = i < 256 ? (printable ? (uint32_t)i : 256 + moved++) : 0;
        if (i >= 256) (void)snprintf(text[i], sizeof *text, "<|filler %" PRIu64 "|>", i);
        else if (point < 128) text[i][0] = (char)point;
        else text[i][0] = (char)(0xc0 | point >> 6), text[i][1] = (char)(0x80 | (point & 63));
        tokens[i] = text[i];
        put_number(&types, i == 256 || i == 257 ? 3 : 1, 4); /* control, or normal */
    }
    tokens[256] = "<\xef\xbd\x9c"
                  "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
    tokens[257] = "<\xef\xbd\x9c"
                  "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
    tokens[258] = "th";
    static const char *const merges[] = {"t h"};
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(w, "tokenizer.ggml.pre", "deepseek-llm");
    gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, s->vocab);
    gguf_put_list(w, "tokenizer.ggml.token_type", LAR_GGUF_I32, s->vocab, lar_buf_slice(&types));
    gguf_put_strings(w, "tokenizer.ggml.merges", merges, 1);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 256);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 257);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true);
    lar_buf_release(&types);
    free(tokens);
    free(text);
}

static void put_metadata(gguf_writer *w, const model_shape *s) {
    gguf_put_string(w, "general.architecture", "deepseek2");
    gguf_put_string(w, "general.name", "made up");
    put_int(w, "block_count", s->layers);
    put_int(w, "context_length", s->context);
    put_int(w, "embedding_length", s->hidden);
    put_int(w, "feed_forward_length", s->dense_ff);
    put_int(w, "vocab_size", s->vocab);
    put_attention(w, s);
    put_experts(w, s);
    put_tokenizer(w, s);
}

static void write_config(const model_shape *s, const char *folder) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    const char *kind = s->sigmoid ? "3" : "2", *tail = "";
    (void)fprintf(f, "{\"architectures\": [\"DeepseekV%sForCausalLM\"], \"model_type\": \"deepseek_v%s\",\n", kind,
                  kind);
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {{"vocab_size", s->vocab},
                   {"hidden_size", s->hidden},
                   {"intermediate_size", s->dense_ff},
                   {"moe_intermediate_size", s->expert_ff},
                   {"num_hidden_layers", s->layers},
                   {"num_attention_heads", s->heads},
                   {"num_key_value_heads", s->heads},
                   {"n_shared_experts", s->shared},
                   {"n_routed_experts", s->experts},
                   {"num_experts_per_tok", s->experts_used},
                   {"first_k_dense_replace", s->dense_layers},
                   {"moe_layer_freq", 1},
                   {"kv_lora_rank", s->kv_rank},
                   {"qk_nope_head_dim", s->nope},
                   {"qk_rope_head_dim", s->rope},
                   {"v_head_dim", s->v_dim},
                   {"n_group", s->groups},
                   {"topk_group", s->groups_used},
                   {"max_position_embeddings", s->context},
                   {"bos_token_id", 256},
                   {"eos_token_id", 257}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)fprintf(f, " \"%s\": %" PRIu64 ",\n", numbers[i].key, numbers[i].value);
    if (s->q_rank) (void)fprintf(f, " \"q_lora_rank\": %" PRIu64 ",\n", s->q_rank);
    else (void)fprintf(f, " \"q_lora_rank\": null,\n");
    (void)fprintf(f, " \"topk_method\": \"%s\", \"scoring_func\": \"%s\", \"norm_topk_prob\": %s,\n",
                  s->sigmoid      ? "noaux_tc"
                  : s->groups > 1 ? "group_limited_greedy"
                                  : "greedy",
                  s->sigmoid ? "sigmoid" : "softmax", s->sigmoid ? "true" : "false");
    (void)fprintf(f, " \"routed_scaling_factor\": %g, \"rms_norm_eps\": %g, \"rope_theta\": %g,\n", s->expert_scale,
                  s->eps, s->rope_base);
    (void)fprintf(f, " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"attention_bias\": false");
    if (s->type == LAR_DTYPE_F8_E4M3)
        tail =
            ",\n \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"weight_block_size\": [128, 128]}";
    (void)fprintf(f, "%s", tail);
    if (s->yarn_factor != 0)
        (void)fprintf(
            f,
            ",\n \"rope_scaling\": {\"type\": \"yarn\", \"factor\": %g, \"original_max_position_embeddings\": %" PRIu64
            ", \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": %g, \"mscale_all_dim\": %g}",
            s->yarn_factor, s->yarn_original, s->yarn_mscale, s->yarn_mscale);
    (void)fprintf(f, "}\n");
    if (fclose(f)) abort();
}

/* -- files --------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const made_tensor *t) {
    const lar_dtype_info *info = lar_dtype_info_of(t->type);
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->dims; i++) n *= t->shape[i];
    return n / info->block_elements * info->block_bytes;
}

/* Some rows of a tensor, made by all workers at once and then written. */
typedef struct batch {
    const model_shape *s;
    const made_tensor *t;
    uint64_t first, count, row_bytes;
    uint8_t *bytes; /* (count, row_bytes) */
    float *rows;    /* (workers, n) */
} batch;

static void make_rows(void *context, uint32_t part, uint32_t parts) {
    const batch *b = context;
    uint64_t begin, end, n = b->t->shape[b->t->dims - 1];
    float *row = b->rows + part * n;
    lar_workers_share(b->count, part, parts, &begin, &end);
    for (; begin < end; begin++) {
        made_row(b->s, b->t, b->first + begin, row);
        quantise_row(b->t->type, row, n, b->bytes + begin * b->row_bytes);
    }
}

typedef struct model_file {
    FILE *f;
    uint64_t alignment;
    lar_workers *workers;
} model_file;

static void write_values(const model_shape *s, const made_tensor *t, const model_file *to) {
    enum { BATCH_BYTES = 8 << 20 };
    uint64_t all = bytes_of(t), rows = 1;
    uint8_t zeros[64] = {0};
    for (uint32_t i = 0; i + 1 < t->dims; i++) rows *= t->shape[i];
    batch b = {.s = s, .t = t, .row_bytes = all / rows};
    uint64_t most = b.row_bytes < BATCH_BYTES ? BATCH_BYTES / b.row_bytes : 1;
    b.bytes = malloc(most * b.row_bytes);
    b.rows = malloc(lar_workers_count(to->workers) * t->shape[t->dims - 1] * sizeof *b.rows);
    if (!b.bytes || !b.rows) abort();
    for (; b.first < rows; b.first += b.count) {
        b.count = rows - b.first < most ? rows - b.first : most;
        lar_workers_run(to->workers, make_rows, &b);
        if (fwrite(b.bytes, b.row_bytes, b.count, to->f) != b.count) abort();
    }
    uint64_t padding = (to->alignment - all % to->alignment) % to->alignment;
    if (padding && fwrite(zeros, padding, 1, to->f) != 1) abort();
    free(b.bytes);
    free(b.rows);
}

static lar_workers *all_processors(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    lar_workers *w;
    lar_diag d = {0};
    if (lar_workers_start(n < 1 ? 1 : n > LAR_WORKERS_MAX ? LAR_WORKERS_MAX : (uint32_t)n, &w, &d)) abort();
    return w;
}

static void gguf_start(const model_shape *s, const made_tensor *list, uint32_t count, lar_buf *head) {
    gguf_writer w;
    gguf_writer_init(&w);
    put_metadata(&w, s);
    for (uint32_t i = 0; i < count; i++)
        (void)gguf_put_tensor(&w, list[i].name, list[i].type, list[i].dims, list[i].shape);
    gguf_header(&w, head);
    gguf_writer_release(&w);
}

static void safetensors_start(const made_tensor *list, uint32_t count, lar_buf *head) {
    uint64_t at = 0;
    put_number(head, 0, 8);
    put_bytes(head, "{", 1);
    for (uint32_t i = 0; i < count; i++) {
        char shape[LAR_SHAPE_BYTES], line[512];
        const made_tensor *t = &list[i];
        lar_tensor_shape_text(t->dims, t->shape, shape);
        shape[0] = '[', shape[strlen(shape) - 1] = ']';
        int n = snprintf(line, sizeof line,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                         i ? "," : "", t->name, lar_dtype_info_of(t->type)->safetensors, shape, at, at + bytes_of(t));
        put_bytes(head, line, (size_t)n);
        at += bytes_of(t);
    }
    put_bytes(head, "}", 1);
    uint64_t length = head->len - 8;
    for (int i = 0; i < 8; i++) head->ptr[i] = (char)(length >> (8 * i));
}

void model_write(const model_shape *s, lar_model_form form, const char *path) {
    uint32_t count;
    char name[4096];
    made_tensor *list = model_tensors(s, form, &count);
    lar_buf head;
    lar_buf_init(&head, 1 << 28);
    if (form == LAR_MODEL_GGUF) gguf_start(s, list, count, &head);
    else {
        safetensors_start(list, count, &head);
        write_config(s, path);
    }
    (void)snprintf(name, sizeof name, "%s%s", path, form == LAR_MODEL_GGUF ? "" : "/model.safetensors");
    model_file to = {fopen(name, "wb"), form == LAR_MODEL_GGUF ? 32 : 1, all_processors()};
    if (!to.f || fwrite(head.ptr, head.len, 1, to.f) != 1) abort();
    for (uint32_t i = 0; i < count; i++) write_values(s, &list[i], &to);
    if (fclose(to.f)) abort();
    lar_workers_stop(to.workers);
    lar_buf_release(&head);
    free(list);
}
