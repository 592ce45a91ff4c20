/* A model's configuration from config.json of a Hugging Face folder.
 * Flow: whoever opens a model and the planner call; model_config.c checks what was read. Any thread; never blocks.
 * Memory: the parsed text, freed before it returns.
 * Why tables: each field is one row with what an absent one means for each family (the defaults of the configuration
 * classes of transformers); fields that would change the answer but are not in a table are refused by name.
 * Invariant: of a name given twice the last counts, as for Python's json, which wrote these files. */
#include <stddef.h>
#include <string.h>

#include "base/json.h"
#include "engine/model/model_config.h"

typedef struct reader {
    const lar_json *j;
    lar_model_config *c;
    lar_diag *d;
    double mscale, mscale_all_dim;
} reader;

static uint32_t field(const reader *r, uint32_t object, const char *name) {
    uint32_t node = lar_json_get_last(r->j, object, name);
    return lar_json_is(r->j, node, LAR_JSON_NULL) ? LAR_JSON_NONE : node;
}

/* -- whole numbers ----------------------------------------------------------------------------------------------- */

enum { REQUIRED = 1, OR_NULL = 2 /* must be there, null means 0 */ };

typedef struct whole {
    const char *name;
    size_t at; /* of a uint32_t in the configuration */
    int flags;
    uint32_t absent[4]; /* by family */
} whole;

#define AT(member) offsetof(lar_model_config, member)
#define SAME(n)                                                                                                        \
    { (n), (n), (n), (n) }
static const whole wholes[] = {
    {"num_hidden_layers", AT(layers), REQUIRED, SAME(0)},
    {"hidden_size", AT(hidden), REQUIRED, SAME(0)},
    {"vocab_size", AT(vocab), REQUIRED, SAME(0)},
    {"max_position_embeddings", AT(context), 0, SAME(4096)},
    {"num_attention_heads", AT(heads), REQUIRED, SAME(0)},
    {"q_lora_rank", AT(query_rank), OR_NULL, SAME(0)},
    {"kv_lora_rank", AT(rank), REQUIRED, SAME(0)},
    {"qk_nope_head_dim", AT(nope), REQUIRED, SAME(0)},
    {"qk_rope_head_dim", AT(rope.dims), REQUIRED, SAME(0)},
    {"v_head_dim", AT(value), REQUIRED, SAME(0)},
    {"intermediate_size", AT(dense_width), REQUIRED, SAME(0)},
    {"first_k_dense_replace", AT(dense_layers), 0, {0, 3, 3, 1}},
    {"moe_layer_freq", AT(moe_every), 0, SAME(1)},
    {"n_routed_experts", AT(router.experts), OR_NULL, SAME(0)},
    {"moe_intermediate_size", AT(expert_width), 0, SAME(0)},
    {"num_experts_per_tok", AT(router.used), 0, {0, 8, 8, 4}},
    {"n_group", AT(router.groups), 0, {1, 8, 8, 1}},
    {"topk_group", AT(router.groups_used), 0, {1, 4, 4, 1}},
    {"n_shared_experts", AT(shared_width), 0, {0, 1, 1, 1}}, /* times expert_width, below */
};
#undef SAME

static lar_error wrong(const reader *r, const char *name, uint32_t node, const char *wanted) {
    lar_slice raw = lar_json_raw(r->j, node);
    if (raw.len > 60) raw.len = 60;
    return lar_fail_at(LAR_INVALID, r->d, node < r->j->count ? r->j->nodes[node].start : 0,
                       "config.json: %s is %.*s; expected %s", name, LAR_FMT(raw), wanted);
}

static lar_error read_whole(reader *r, const whole *w) {
    uint32_t node = lar_json_get_last(r->j, 0, w->name), *out = (uint32_t *)(void *)((char *)r->c + w->at);
    bool absent = node == LAR_JSON_NONE, null = !absent && lar_json_is(r->j, node, LAR_JSON_NULL);
    if ((absent && w->flags) || (null && w->flags == REQUIRED))
        return lar_fail(LAR_INVALID, r->d, "config.json: %s is missing%s", w->name,
                        w->flags == OR_NULL ? " (null, if the model has none)" : "");
    *out = w->absent[r->c->family];
    if (absent || null) return LAR_OK;
    uint64_t n;
    if (!lar_json_u64(r->j, node, &n) || n > UINT32_MAX) return wrong(r, w->name, node, "a whole number");
    *out = (uint32_t)n;
    return LAR_OK;
}

/* -- other numbers and words ------------------------------------------------------------------------------------- */

static lar_error read_number(reader *r, uint32_t object, const char *name, double *value) {
    uint32_t node = field(r, object, name);
    if (node == LAR_JSON_NONE) return LAR_OK;
    return lar_json_double(r->j, node, value) ? LAR_OK : wrong(r, name, node, "a number");
}

static lar_error read_bool(reader *r, const char *name, bool *value) {
    uint32_t node = field(r, 0, name);
    if (node == LAR_JSON_NONE) return LAR_OK;
    *value = lar_json_is(r->j, node, LAR_JSON_TRUE);
    return *value || lar_json_is(r->j, node, LAR_JSON_FALSE) ? LAR_OK : wrong(r, name, node, "true or false");
}

static bool is_word(const reader *r, uint32_t node, const char *word) {
    return lar_json_eq(r->j, node, lar_slice_cstr(word));
}

/* What larder computes in one way only; anything else would give other answers. */
typedef struct only {
    const char *object, *name; /* object NULL: of the whole file */
    const char *value;         /* as it stands in the file */
} only;

static const only onlys[] = {
    {NULL, "hidden_act", "\"silu\""},
    {NULL, "attention_bias", "false"},
    {"rope_scaling", "truncate", "true"},
    {"rope_parameters", "truncate", "true"},
    {"quantization_config", "quant_method", "\"fp8\""},
    {"quantization_config", "fmt", "\"e4m3\""},
};

static lar_error check_only(reader *r, const only *o) {
    uint32_t object = o->object ? field(r, 0, o->object) : 0;
    uint32_t node = object == LAR_JSON_NONE ? LAR_JSON_NONE : field(r, object, o->name);
    if (node == LAR_JSON_NONE) return LAR_OK;
    return lar_slice_eq_cstr(lar_json_raw(r->j, node), o->value) ? LAR_OK : wrong(r, o->name, node, o->value);
}

/* -- the rules of a family --------------------------------------------------------------------------------------- */

static lar_error read_family(reader *r) {
    uint32_t node = field(r, 0, "model_type");
    if (node == LAR_JSON_NONE)
        return lar_fail(LAR_INVALID, r->d, "config.json: model_type is missing; larder reads %s",
                        lar_model_supported());
    for (int f = 0; f < LAR_FAMILY_GGUF_DEEPSEEK2; f++)
        if (is_word(r, node, lar_model_family_name((lar_model_family)f)))
            return r->c->family = (lar_model_family)f, LAR_OK;
    lar_slice raw = lar_json_raw(r->j, node);
    if (raw.len > 60) raw.len = 60;
    return lar_fail(LAR_INVALID, r->d, "config.json: models of type %.*s are not supported; larder reads %s",
                    LAR_FMT(raw), lar_model_supported());
}

/* GLM says for each layer what it is; larder wants dense ones first. */
static lar_error read_layer_types(reader *r) {
    uint32_t list = field(r, 0, "mlp_layer_types"), i = 0, dense = 0;
    if (list == LAR_JSON_NONE) return LAR_OK;
    for (uint32_t n = lar_json_first(r->j, list); n != LAR_JSON_NONE; n = lar_json_after(r->j, list, n), i++) {
        bool is_dense = is_word(r, n, "dense");
        if ((!is_dense && !is_word(r, n, "sparse")) || (is_dense && dense < i))
            return wrong(r, "mlp_layer_types", list, "\"dense\" layers first, then \"sparse\" ones");
        dense += is_dense;
    }
    r->c->dense_layers = dense;
    return i == r->c->layers ? LAR_OK : wrong(r, "mlp_layer_types", list, "one word for each layer");
}

static lar_error read_router(reader *r) {
    lar_model_config *c = r->c;
    bool v2 = c->family == LAR_FAMILY_DEEPSEEK_V2;
    c->router.score = v2 ? LAR_ROUTER_SOFTMAX : LAR_ROUTER_SIGMOID;
    c->router.group_score = v2 ? LAR_GROUP_MAX : LAR_GROUP_TOP2;
    c->router.normalise = !v2;
    uint32_t score = field(r, 0, "scoring_func"), method = field(r, 0, "topk_method");
    if (is_word(r, score, "softmax")) c->router.score = LAR_ROUTER_SOFTMAX;
    else if (is_word(r, score, "sigmoid")) c->router.score = LAR_ROUTER_SIGMOID;
    else if (score != LAR_JSON_NONE) return wrong(r, "scoring_func", score, "\"softmax\" or \"sigmoid\"");
    c->has_bias = !v2;
    if (is_word(r, method, "noaux_tc")) c->has_bias = true;
    else if (is_word(r, method, "greedy") || is_word(r, method, "group_limited_greedy")) c->has_bias = false;
    else if (method != LAR_JSON_NONE)
        return wrong(r, "topk_method", method, "\"greedy\", \"group_limited_greedy\" or \"noaux_tc\"");
    if (method != LAR_JSON_NONE) c->router.group_score = c->has_bias ? LAR_GROUP_TOP2 : LAR_GROUP_MAX;
    if (is_word(r, method, "greedy")) c->router.groups = c->router.groups_used = 1; /* whatever n_group says */
    double scale = v2 ? 1.0 : c->family == LAR_FAMILY_GLM4_MOE_LITE ? 1.8 : 2.5;
    lar_error e = read_number(r, 0, "routed_scaling_factor", &scale);
    c->router.scale = (float)scale;
    return e ? e : read_bool(r, "norm_topk_prob", &c->router.normalise);
}

static lar_error read_yarn(reader *r, uint32_t object) {
    lar_rope *rope = &r->c->rope;
    double unwanted = 0;
    rope->beta_fast = 32, rope->beta_slow = 1, r->mscale = 1;
    lar_error e = read_number(r, object, "factor", &rope->factor);
    if (!e) e = read_number(r, object, "original_max_position_embeddings", &rope->original);
    if (!e) e = read_number(r, object, "beta_fast", &rope->beta_fast);
    if (!e) e = read_number(r, object, "beta_slow", &rope->beta_slow);
    if (!e) e = read_number(r, object, "mscale", &r->mscale);
    if (!e) e = read_number(r, object, "mscale_all_dim", &r->mscale_all_dim);
    if (!e) e = read_number(r, object, "attention_factor", &unwanted);
    if (e) return e;
    if (unwanted != 0)
        return lar_fail(LAR_INVALID, r->d, "config.json: attention_factor of the rope scaling is not supported");
    return rope->factor > 0 ? LAR_OK : lar_fail(LAR_INVALID, r->d, "config.json: the YaRN factor is missing or 0");
}

/* transformers 5 keeps all of it in rope_parameters; before, theta stood alone and the rest in rope_scaling. */
static lar_error read_rope(reader *r) {
    uint32_t scaling = field(r, 0, "rope_scaling"), parameters = field(r, 0, "rope_parameters");
    double partial = 1;
    bool interleave = true;
    r->c->rope.theta = 10000;
    lar_error e = read_number(r, 0, "rope_theta", &r->c->rope.theta);
    if (!e && parameters != LAR_JSON_NONE) e = read_number(r, parameters, "rope_theta", &r->c->rope.theta);
    if (!e) e = read_number(r, 0, "partial_rotary_factor", &partial);
    if (!e && parameters != LAR_JSON_NONE) e = read_number(r, parameters, "partial_rotary_factor", &partial);
    if (!e) e = read_bool(r, "rope_interleave", &interleave);
    if (e) return e;
    if (partial != 1)
        return lar_fail(LAR_INVALID, r->d, "config.json: partial_rotary_factor is %g; expected 1", partial);
    r->c->rope.pairs = interleave ? LAR_ROPE_NEIGHBOURS : LAR_ROPE_HALVES;
    if (scaling == LAR_JSON_NONE) scaling = parameters;
    if (scaling == LAR_JSON_NONE) return LAR_OK;
    uint32_t type = field(r, scaling, "rope_type");
    if (type == LAR_JSON_NONE) type = field(r, scaling, "type");
    if (type == LAR_JSON_NONE || is_word(r, type, "default")) return LAR_OK;
    if (!is_word(r, type, "yarn")) return wrong(r, "the type of rope scaling", type, "\"yarn\" or \"default\"");
    return read_yarn(r, scaling);
}

static lar_error check_blocks(reader *r) {
    uint32_t quant = field(r, 0, "quantization_config");
    uint32_t size = quant == LAR_JSON_NONE ? LAR_JSON_NONE : field(r, quant, "weight_block_size");
    if (size == LAR_JSON_NONE) return LAR_OK;
    uint64_t rows = 0, columns = 0;
    bool same = lar_json_u64(r->j, lar_json_at(r->j, size, 0), &rows) && rows == 128;
    same = same && lar_json_u64(r->j, lar_json_at(r->j, size, 1), &columns) && columns == 128;
    return same ? LAR_OK : wrong(r, "weight_block_size", size, "[128, 128]");
}

static lar_error read_all(reader *r) {
    lar_model_config *c = r->c;
    double eps = 1e-6;
    if (!lar_json_is(r->j, 0, LAR_JSON_OBJECT)) return lar_fail(LAR_INVALID, r->d, "config.json holds no object");
    lar_error e = read_family(r);
    for (uint32_t i = 0; !e && i < sizeof wholes / sizeof *wholes; i++) e = read_whole(r, &wholes[i]);
    for (uint32_t i = 0; !e && i < sizeof onlys / sizeof *onlys; i++) e = check_only(r, &onlys[i]);
    if (!e) e = check_blocks(r);
    if (!e) e = read_router(r);
    if (!e) e = read_layer_types(r);
    if (!e) e = read_rope(r);
    if (c->family == LAR_FAMILY_GLM4_MOE_LITE) eps = 1e-5;
    if (!e) e = read_number(r, 0, "rms_norm_eps", &eps);
    if (!e) e = read_bool(r, "tie_word_embeddings", &c->tied);
    if (e) return e;
    c->eps = (float)eps;
    c->latent_eps = 1e-6f; /* DeepSeek's code and transformers build these two norms without the model's epsilon */
    if ((uint64_t)c->shared_width * c->expert_width > LAR_WIDTH_MAX)
        return lar_fail(LAR_INVALID, r->d, "config.json: n_shared_experts times moe_intermediate_size is above %d",
                        LAR_WIDTH_MAX);
    c->shared_width *= c->expert_width;
    if (!c->router.experts) c->has_bias = false, c->shared_width = 0;
    return lar_config_finish(c, r->mscale, r->mscale_all_dim, r->d);
}

lar_error lar_config_from_json(lar_model_config *c, lar_slice text, lar_diag *d) {
    static const lar_json_limits limits = {.depth_max = 32, .nodes_max = 1 << 20};
    lar_json j;
    memset(c, 0, sizeof *c);
    lar_json_init(&j);
    lar_diag why = {0};
    lar_error e = lar_json_parse(&j, text, &limits, &why);
    if (e) e = lar_fail(e, d, "config.json: %.200s", *why.text ? why.text : lar_error_text(e));
    if (!e) e = read_all(&(reader){.j = &j, .c = c, .d = d, .mscale = 1});
    lar_json_release(&j);
    return e;
}
