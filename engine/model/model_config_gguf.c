/* A model's configuration from GGUF's metadata, architecture deepseek2, with the traps that its converters left.
 * Flow: lar_config_read calls; model_config.c checks what was read. Any thread; never blocks; no memory.
 * Why tensors are looked for: older files do not say how experts are scored, or count layers that predict further
 * tokens;
 * what they hold decides.
 * Sources: the keys that llama.cpp's converter writes; llama.cpp PR 17945 (yarn_log_multiplier), 18980 (gating). */
#include <stddef.h>
#include <stdio.h>

#include "engine/compute/bug_switch.h"
#include "engine/model/model_config.h"

typedef struct reader {
    const lar_model_files *f;
    const lar_gguf *g;
    lar_model_config *c;
    lar_diag *d;
} reader;

enum { KEY_BYTES = 96, GATING_NONE = 0, GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };

static bool has(const reader *r, const char *name, char key[KEY_BYTES]) {
    (void)snprintf(key, KEY_BYTES, "deepseek2.%s", name);
    return lar_gguf_find(r->g, key) != NULL;
}

/* A number, or a list of one number for each layer that says the same for all. */
static lar_error read_whole(const reader *r, const char *name, uint32_t *out) {
    char key[KEY_BYTES];
    uint64_t n = 0;
    if (!has(r, name, key)) return LAR_OK;
    const lar_gguf_value *v = lar_gguf_find(r->g, key);
    lar_error e = LAR_OK;
    if (!v->list) e = lar_gguf_u64(r->g, key, &n, r->d);
    else {
        e = lar_gguf_list(r->g, key, LAR_GGUF_INTEGERS, &v, r->d);
        int64_t first = !e && v->count ? lar_gguf_integer_at(v, 0) : 0;
        for (uint64_t i = 1; !e && i < v->count; i++)
            if (lar_gguf_integer_at(v, i) != first)
                e = lar_fail(LAR_INVALID, r->d, "%s differs from layer to layer; larder reads models where it does not",
                             key);
        n = first < 0 ? UINT64_MAX : (uint64_t)first;
    }
    if (!e && n > UINT32_MAX) e = lar_fail(LAR_INVALID, r->d, "%s is out of range", key);
    if (!e) *out = (uint32_t)n;
    return e;
}

static lar_error read_number(const reader *r, const char *name, double *out) {
    char key[KEY_BYTES];
    return has(r, name, key) ? lar_gguf_f64(r->g, key, out, r->d) : LAR_OK;
}

typedef struct whole {
    const char *name;
    size_t at; /* of a uint32_t in the configuration, which holds what an absent key means */
} whole;

#define AT(member) offsetof(lar_model_config, member)
static const whole wholes[] = {
    {"block_count", AT(layers)},
    {"embedding_length", AT(hidden)},
    {"vocab_size", AT(vocab)},
    {"context_length", AT(context)},
    {"attention.head_count", AT(heads)},
    {"attention.q_lora_rank", AT(query_rank)},
    {"attention.kv_lora_rank", AT(rank)},
    {"rope.dimension_count", AT(rope.dims)},
    {"feed_forward_length", AT(dense_width)},
    {"leading_dense_block_count", AT(dense_layers)},
    {"expert_count", AT(router.experts)},
    {"expert_used_count", AT(router.used)},
    {"expert_feed_forward_length", AT(expert_width)},
    {"expert_shared_count", AT(shared_width)}, /* times expert_width, below */
    {"expert_group_count", AT(router.groups)},
    {"expert_group_used_count", AT(router.groups_used)},
};

/* Files with the latent split by head say the sizes of heads in keys of their own; before, in the plain ones. */
static lar_error read_heads(const reader *r) {
    uint32_t key = 0, value = 0;
    lar_error e = read_whole(r, "attention.key_length", &key);
    if (!e) e = read_whole(r, "attention.key_length_mla", &key);
    if (!e) e = read_whole(r, "attention.value_length", &value);
    if (!e) e = read_whole(r, "attention.value_length_mla", &value);
    if (e) return e;
    if (key <= r->c->rope.dims)
        return lar_fail(LAR_INVALID, r->d, "a key of %u values has no room beside its %u rotated ones", key,
                        r->c->rope.dims);
    r->c->nope = key - r->c->rope.dims;
    r->c->value = value;
    return LAR_OK;
}

static const lar_tensor *tensor_of(const reader *r, uint32_t layer, const char *name) {
    char full[KEY_BYTES];
    (void)snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    return lar_model_files_find(r->f, full);
}

/* block_count may count layers that predict further tokens, whether the file holds them or not. */
static lar_error drop_predictors(const reader *r) {
    uint32_t more = 0;
    lar_error e = read_whole(r, "nextn_predict_layers", &more);
    for (; !e && more && r->c->layers > 1; more--) {
        uint32_t last = r->c->layers - 1;
        if (tensor_of(r, last, "attn_norm.weight") && !tensor_of(r, last, "nextn.eh_proj.weight")) break;
        r->c->layers--;
    }
    return e;
}

static lar_error read_router(const reader *r) {
    lar_model_config *c = r->c;
    uint32_t gating = GATING_NONE;
    double scale = 1;
    char key[KEY_BYTES];
    c->has_bias = c->router.experts && tensor_of(r, c->dense_layers, "exp_probs_b.bias");
    lar_error e = read_whole(r, "expert_gating_func", &gating);
    if (!e) e = read_number(r, "expert_weights_scale", &scale);
    if (e) return e;
    if (gating > GATING_SIGMOID)
        return lar_fail(LAR_INVALID, r->d, "expert_gating_func is %u; larder reads 1 (softmax) and 2 (sigmoid)",
                        gating);
    if (gating == GATING_NONE)
        gating = c->has_bias && !LAR_BUG(GATING_ALWAYS_SOFTMAX) ? GATING_SIGMOID : GATING_SOFTMAX;
    c->router.score = gating == GATING_SIGMOID ? LAR_ROUTER_SIGMOID : LAR_ROUTER_SOFTMAX;
    c->router.group_score = c->has_bias ? LAR_GROUP_TOP2 : LAR_GROUP_MAX;
    c->router.normalise = gating == GATING_SIGMOID; /* as DeepSeek's own code does, unless the file says otherwise */
    if (has(r, "expert_weights_norm", key)) e = lar_gguf_bool(r->g, key, &c->router.normalise, r->d);
    if (LAR_BUG(WEIGHTS_SCALE_ZERO) && !has(r, "expert_weights_scale", key)) c->router.scale = 0;
    else c->router.scale = scale == 0 ? 1 : (float)scale; /* 0: not set, in files of old converters */
    if (!c->router.groups) c->router.groups = 1;
    if (!c->router.groups_used) c->router.groups_used = 1;
    return e;
}

static lar_error read_rope(const reader *r, double *mscale_all_dim) {
    lar_rope *rope = &r->c->rope;
    char key[KEY_BYTES];
    lar_slice type = LAR_SLICE("none");
    double log_multiplier = 0, attention = 1, temperature = 0;
    rope->theta = 10000, rope->beta_fast = 32, rope->beta_slow = 1;
    lar_error e = read_number(r, "rope.freq_base", &rope->theta);
    if (!e && has(r, "rope.scaling.type", key)) e = lar_gguf_string(r->g, key, &type, r->d);
    if (!e) e = read_number(r, "rope.scaling.attn_factor", &attention);
    if (!e) e = read_number(r, "attention.temperature_scale", &temperature);
    if (e) return e;
    if (attention != 1 || temperature != 0)
        return lar_fail(LAR_INVALID, r->d,
                        "rope.scaling.attn_factor %g or attention.temperature_scale %g is not "
                        "supported",
                        attention, temperature);
    if (lar_slice_eq_cstr(type, "none")) return LAR_OK;
    if (!lar_slice_eq_cstr(type, "yarn"))
        return lar_fail(LAR_INVALID, r->d, "rope scaling '%.*s' is not supported; larder reads none and yarn",
                        (int)(type.len > 40 ? 40 : type.len), type.ptr);
    e = read_number(r, "rope.scaling.factor", &rope->factor);
    if (!e) e = read_number(r, "rope.scaling.original_context_length", &rope->original);
    if (!e) e = read_number(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    if (!e) e = read_number(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    if (!e) e = read_number(r, "rope.scaling.yarn_log_multiplier", &log_multiplier);
    *mscale_all_dim = LAR_BUG(LOG_MULTIPLIER_AS_MSCALE) ? log_multiplier : log_multiplier / 0.1;
    if (!e && !(rope->factor > 0)) e = lar_fail(LAR_INVALID, r->d, "rope.scaling.factor is missing or not above 0");
    return e;
}

static lar_error check_architecture(const reader *r) {
    lar_slice name;
    lar_error e = lar_gguf_string(r->g, "general.architecture", &name, r->d);
    if (e) return LAR_INVALID;
    if (lar_slice_eq_cstr(name, "deepseek2")) return LAR_OK;
    return lar_fail(LAR_INVALID, r->d, "GGUF of architecture '%.*s' is not supported; larder reads %s",
                    (int)(name.len > 40 ? 40 : name.len), name.ptr, lar_model_supported());
}

lar_error lar_config_from_gguf(lar_model_config *c, const lar_model_files *f, lar_diag *d) {
    const reader r = {.f = f, .g = lar_model_files_metadata(f), .c = c, .d = d};
    double eps = 1e-6, all = 0;
    lar_error e = check_architecture(&r);
    *c = (lar_model_config){.family = LAR_FAMILY_GGUF_DEEPSEEK2, .moe_every = 1, .tied = true, .latent_eps = 1e-6f};
    const lar_gguf_value *tokens = lar_gguf_find(r.g, "tokenizer.ggml.tokens");
    if (tokens && tokens->list && tokens->count <= LAR_VOCAB_MAX) c->vocab = (uint32_t)tokens->count;
    for (size_t i = 0; !e && i < sizeof wholes / sizeof *wholes; i++)
        e = read_whole(&r, wholes[i].name, (uint32_t *)(void *)((char *)c + wholes[i].at));
    if (!e) e = read_heads(&r);
    if (!e) e = drop_predictors(&r);
    if (!e) e = read_router(&r);
    if (!e) e = read_rope(&r, &all);
    if (!e) e = read_number(&r, "attention.layer_norm_rms_epsilon", &eps);
    if (e) return e;
    if ((uint64_t)c->shared_width * c->expert_width > LAR_WIDTH_MAX)
        return lar_fail(LAR_INVALID, d, "expert_shared_count times expert_feed_forward_length is above %d",
                        LAR_WIDTH_MAX);
    c->eps = (float)eps;
    c->shared_width = c->router.experts ? c->shared_width * c->expert_width : 0;
    if (!c->router.experts) c->router.used = 0;
    /* The file has one number: every DeepSeek model has mscale equal to mscale_all_dim. */
    return lar_config_finish(c, all, all, d);
}
