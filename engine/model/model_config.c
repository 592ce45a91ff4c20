/* What a model is: the rules that hold wherever its dimensions come from.
 * Flow: model_config_json.c and model_config_gguf.c fill the fields, lar_config_finish checks and derives.
 * Any thread; never blocks; no memory.
 * Why every range here: what comes later allocates and indexes by these numbers and trusts them.
 * Sources: DeepSeek-V2's modeling code (mscale over mscale_all_dim on the rotation, the square of mscale_all_dim's on
 * the scores), DeepSeek-V3 inference/model.py (the router). */
#include "engine/model/model_config.h"

#include <math.h>

#include "engine/compute/bug_switch.h"

static const char *const family_names[] = {
    [LAR_FAMILY_DEEPSEEK_V2] = "deepseek_v2",   [LAR_FAMILY_DEEPSEEK_V3] = "deepseek_v3",
    [LAR_FAMILY_DEEPSEEK_V32] = "deepseek_v32", [LAR_FAMILY_GLM4_MOE_LITE] = "glm4_moe_lite",
    [LAR_FAMILY_GGUF_DEEPSEEK2] = "deepseek2",
};

const char *lar_model_family_name(lar_model_family f) { return family_names[f]; }

const char *lar_config_context_why(const lar_model_config *c) {
    if (c->family != LAR_FAMILY_DEEPSEEK_V32) return "";
    return " (larder reads DeepSeek-V3.2 as far as its sparse attention is dense)";
}

const char *lar_model_supported(void) {
    return "deepseek_v2, deepseek_v3, deepseek_v32 (2048 tokens), glm4_moe_lite; GGUF: deepseek2";
}

enum { JSON_BYTES_MAX = 8 << 20 };

lar_error lar_config_read(lar_model_config *c, const lar_model_files *f, lar_diag *d) {
    if (lar_model_files_form(f) == LAR_MODEL_GGUF) return lar_config_from_gguf(c, f, d);
    lar_buf text;
    lar_buf_init(&text, JSON_BYTES_MAX);
    lar_error e = lar_model_files_text(f, "config.json", &text, d);
    if (!e) e = lar_config_from_json(c, lar_buf_slice(&text), d);
    lar_buf_release(&text);
    return e;
}

typedef struct range {
    const char *name;
    uint64_t value, min, max;
} range;

static lar_error in_range(const range *r, uint32_t count, lar_diag *d) {
    for (uint32_t i = 0; i < count; i++)
        if (r[i].value < r[i].min || r[i].value > r[i].max)
            return lar_fail(LAR_INVALID, d, "the model's %s is %llu; it can be %llu to %llu", r[i].name,
                            (unsigned long long)r[i].value, (unsigned long long)r[i].min, (unsigned long long)r[i].max);
    return LAR_OK;
}

static lar_error check_sizes(const lar_model_config *c, lar_diag *d) {
    bool moe = c->router.experts > 0;
    const range ranges[] = {
        {"number of layers", c->layers, 1, LAR_LAYERS_MAX},
        {"hidden size", c->hidden, 1, LAR_WIDTH_MAX},
        {"vocabulary", c->vocab, 1, LAR_VOCAB_MAX},
        {"context", c->context, 1, LAR_CONTEXT_MAX},
        {"number of heads", c->heads, 1, LAR_HEADS_MAX},
        {"query rank", c->query_rank, 0, LAR_RANK_MAX},
        {"latent rank", c->rank, 1, LAR_RANK_MAX},
        {"head size without rotation", c->nope, 1, LAR_HEAD_DIM_MAX},
        {"head size with rotation", c->rope.dims, 2, LAR_HEAD_DIM_MAX},
        {"value size", c->value, 1, LAR_HEAD_DIM_MAX},
        {"number of dense layers", c->dense_layers, 0, LAR_LAYERS_MAX},
        {"step between MoE layers", c->moe_every, 1, LAR_LAYERS_MAX},
        {"width of dense layers", c->dense_width, moe && c->dense_layers == 0 ? 0 : 1, LAR_WIDTH_MAX},
        {"width of an expert", c->expert_width, moe, LAR_WIDTH_MAX},
        {"width of the shared experts", c->shared_width, 0, LAR_WIDTH_MAX},
        {"number of experts", c->router.experts, 0, LAR_EXPERTS_MAX},
        {"number of experts for a token", c->router.used, moe, moe ? c->router.experts : LAR_EXPERTS_MAX},
        {"number of expert groups", c->router.groups, moe, moe ? c->router.experts : LAR_EXPERTS_MAX},
        {"number of groups for a token", c->router.groups_used, moe, moe ? c->router.groups : LAR_EXPERTS_MAX},
    };
    return in_range(ranges, sizeof ranges / sizeof *ranges, d);
}

static lar_error check_router(const lar_router *r, lar_diag *d) {
    if (!r->experts) return LAR_OK;
    uint32_t size = r->experts / r->groups;
    if (r->experts % r->groups)
        return lar_fail(LAR_INVALID, d, "%u experts cannot be split into %u groups", r->experts, r->groups);
    if (r->used > r->groups_used * size)
        return lar_fail(LAR_INVALID, d, "%u experts for a token, but %u groups of %u hold only %u", r->used,
                        r->groups_used, size, r->groups_used * size);
    if (r->groups > 1 && size < 2 && r->group_score == LAR_GROUP_TOP2)
        return lar_fail(LAR_INVALID, d, "groups are scored by their two best experts, but each holds only one");
    if (!isfinite(r->scale)) return lar_fail(LAR_INVALID, d, "the model's scale of routed experts is not finite");
    return LAR_OK;
}

static lar_error check_rope(const lar_rope *r, lar_diag *d) {
    if (r->dims % 2) return lar_fail(LAR_INVALID, d, "the rotated head size %u is odd", r->dims);
    if (!(r->theta > 1 && r->theta <= 1e12)) return lar_fail(LAR_INVALID, d, "rope theta %g is not above 1", r->theta);
    if (r->factor == 0) return LAR_OK;
    if (!(r->factor >= 1 && r->factor <= 1e6))
        return lar_fail(LAR_INVALID, d, "the YaRN factor is %g; it can be 1 to 1000000", r->factor);
    if (!(r->original >= 1 && r->original <= LAR_CONTEXT_MAX))
        return lar_fail(LAR_INVALID, d, "YaRN's original context is %g; it can be 1 to %d", r->original,
                        LAR_CONTEXT_MAX);
    if (!(r->beta_slow > 0 && r->beta_fast >= r->beta_slow && r->beta_fast <= 1e6))
        return lar_fail(LAR_INVALID, d, "YaRN's beta_fast %g and beta_slow %g are not 0 < slow <= fast", r->beta_fast,
                        r->beta_slow);
    return LAR_OK;
}

static lar_error check_numbers(const lar_model_config *c, double mscale, double mscale_all_dim, lar_diag *d) {
    if (!(c->eps > 0 && c->eps <= 0.1f) || !(c->latent_eps > 0 && c->latent_eps <= 0.1f))
        return lar_fail(LAR_INVALID, d, "the epsilon of the norms is %g; it can be above 0 to 0.1", (double)c->eps);
    if (!(fabs(mscale) <= 100 && fabs(mscale_all_dim) <= 100))
        return lar_fail(LAR_INVALID, d, "YaRN's mscale %g or mscale_all_dim %g is out of range", mscale,
                        mscale_all_dim);
    return LAR_OK;
}

lar_error lar_config_finish(lar_model_config *c, double mscale, double mscale_all_dim, lar_diag *d) {
    lar_error e = check_sizes(c, d);
    if (!e) e = check_router(&c->router, d);
    if (!e) e = check_rope(&c->rope, d);
    if (!e) e = check_numbers(c, mscale, mscale_all_dim, d);
    if (e) return e;
    double factor = c->rope.factor, all = lar_yarn_mscale(factor, mscale_all_dim);
    if (LAR_BUG(MSCALE_FOR_ALL_DIM)) all = lar_yarn_mscale(factor, mscale);
    if (LAR_BUG(SCALE_WITHOUT_MSCALE)) all = 1;
    c->rope.amplitude = lar_yarn_mscale(factor, mscale) / lar_yarn_mscale(factor, mscale_all_dim);
    c->softmax_scale = (LAR_BUG(SCALE_MSCALE_ONCE) ? all : all * all) / sqrt((double)c->nope + c->rope.dims);
    if (!(isfinite(c->softmax_scale) && isfinite(c->rope.amplitude)))
        return lar_fail(LAR_INVALID, d, "YaRN's mscale_all_dim %g makes no scale", mscale_all_dim);
    if (LAR_BUG(LATENT_EPS_OF_MODEL)) c->latent_eps = c->eps;
    if (LAR_BUG(LAST_LAYER_AS_MTP) && c->layers > 1) c->layers--;
    if (c->family == LAR_FAMILY_DEEPSEEK_V32 && c->context > LAR_V32_CONTEXT) c->context = LAR_V32_CONTEXT;
    return LAR_OK;
}
