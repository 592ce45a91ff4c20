/* A model of a memory plan: checks its fields, derives what is not said, counts its parameters (header: plan.h).
 * Called by plan_config.c, plan_files.c and gateway/local/plan_command.c; calls nobody. Any thread; does not block.
 * Why parameters are counted: a config.json alone must answer what a model takes, before anything is downloaded.
 * Invariant: no field is over its largest value, so that the sums here stay below 2^62. */
#include <stdio.h>

#include "engine/plan/plan.h"

static const lar_plan_field_info field_infos[] = {
#define LAR_PLAN_FIELD(id, most, config, gguf) {most, config, gguf},
#include "engine/plan/plan_field.def"
#undef LAR_PLAN_FIELD
};

const lar_plan_field_info *lar_plan_field_info_of(lar_plan_field f) { return &field_infos[f]; }

lar_error lar_plan_model_set(lar_plan_model *m, lar_plan_field f, uint64_t value, const char *called, lar_diag *d) {
    if (value > field_infos[f].most)
        return lar_fail(LAR_INVALID, d, "%.60s: %llu; at most %llu is possible", called, (unsigned long long)value,
                        (unsigned long long)field_infos[f].most);
    m->field[f] = value;
    return LAR_OK;
}

void lar_plan_model_name(lar_plan_model *m, lar_slice name) {
    size_t n = name.len < LAR_PLAN_NAME_BYTES ? name.len : LAR_PLAN_NAME_BYTES - 1;
    for (size_t i = 0; i < n; i++) m->type[i] = name.ptr[i] > ' ' && name.ptr[i] < 0x7f ? name.ptr[i] : '?';
    m->type[n] = 0;
}

/* What every model of its family leaves unsaid. */
static void derive(lar_plan_model *m) {
    uint64_t *f = m->field;
    m->latent = f[LAR_PLAN_RANK] != 0;
    if (!f[LAR_PLAN_KV_HEADS]) f[LAR_PLAN_KV_HEADS] = f[LAR_PLAN_HEADS];
    if (!f[LAR_PLAN_HEAD_DIM] && f[LAR_PLAN_HEADS]) f[LAR_PLAN_HEAD_DIM] = f[LAR_PLAN_HIDDEN] / f[LAR_PLAN_HEADS];
    if (!f[LAR_PLAN_VALUE_DIM]) f[LAR_PLAN_VALUE_DIM] = f[LAR_PLAN_HEAD_DIM];
    if (!f[LAR_PLAN_EXPERT_WIDTH] && f[LAR_PLAN_EXPERTS]) f[LAR_PLAN_EXPERT_WIDTH] = f[LAR_PLAN_WIDTH];
    if (!f[LAR_PLAN_WIDTH] && m->plain_mlp) f[LAR_PLAN_WIDTH] = 4 * f[LAR_PLAN_HIDDEN];
    if (!f[LAR_PLAN_SHARED_WIDTH]) f[LAR_PLAN_SHARED_WIDTH] = f[LAR_PLAN_EXPERTS_SHARED] * f[LAR_PLAN_EXPERT_WIDTH];
}

static uint64_t attention_parameters(const lar_plan_model *m) {
    const uint64_t *f = m->field;
    uint64_t hidden = f[LAR_PLAN_HIDDEN], heads = f[LAR_PLAN_HEADS];
    if (!m->latent)
        return hidden * (heads * (f[LAR_PLAN_HEAD_DIM] + f[LAR_PLAN_VALUE_DIM]) +
                         f[LAR_PLAN_KV_HEADS] * (f[LAR_PLAN_HEAD_DIM] + f[LAR_PLAN_VALUE_DIM]));
    uint64_t query = heads * (f[LAR_PLAN_NOPE] + f[LAR_PLAN_ROPE]), rank = f[LAR_PLAN_RANK];
    uint64_t queries = f[LAR_PLAN_QUERY_RANK] ? f[LAR_PLAN_QUERY_RANK] * (hidden + query) : hidden * query;
    return queries + hidden * (rank + f[LAR_PLAN_ROPE]) + rank * heads * (f[LAR_PLAN_NOPE] + f[LAR_PLAN_VALUE_DIM]) +
           heads * f[LAR_PLAN_VALUE_DIM] * hidden;
}

/* Matrices only: norms and biases are a fraction of a thousandth. 0 where the fields do not suffice. A double: the
 * fields of a hostile file, each possible, can together be too many for 64 bits. */
static double count_parameters(const lar_plan_model *m) {
    const uint64_t *f = m->field;
    bool experts = f[LAR_PLAN_EXPERTS] != 0;
    if (!f[LAR_PLAN_HIDDEN] || !f[LAR_PLAN_HEADS] || !f[LAR_PLAN_VOCAB]) return 0;
    if (!f[LAR_PLAN_WIDTH] && !f[LAR_PLAN_EXPERT_WIDTH]) return 0;
    if (m->latent && (!f[LAR_PLAN_NOPE] || !f[LAR_PLAN_VALUE_DIM])) return 0;
    uint64_t dense = experts ? f[LAR_PLAN_DENSE_LAYERS] : f[LAR_PLAN_LAYERS];
    if (dense > f[LAR_PLAN_LAYERS]) dense = f[LAR_PLAN_LAYERS];
    double hidden = (double)f[LAR_PLAN_HIDDEN], matrices = m->plain_mlp ? 2 : 3;
    double narrow = matrices * hidden * (double)f[LAR_PLAN_WIDTH];
    double wide =
        matrices * hidden *
            ((double)f[LAR_PLAN_EXPERTS] * (double)f[LAR_PLAN_EXPERT_WIDTH] + (double)f[LAR_PLAN_SHARED_WIDTH]) +
        hidden * (double)f[LAR_PLAN_EXPERTS];
    return (double)f[LAR_PLAN_LAYERS] * (double)attention_parameters(m) + (double)dense * narrow +
           (double)(f[LAR_PLAN_LAYERS] - dense) * wide + hidden * (double)f[LAR_PLAN_VOCAB] * (m->tied ? 1 : 2);
}

lar_error lar_plan_model_finish(lar_plan_model *m, lar_diag *d) {
    uint64_t *f = m->field;
    if (!f[LAR_PLAN_LAYERS]) return lar_fail(LAR_INVALID, d, "the number of layers is not known (num_hidden_layers)");
    derive(m);
    if (m->latent && !f[LAR_PLAN_ROPE])
        return lar_fail(LAR_INVALID, d, "latent attention of rank %llu without the rotated part (qk_rope_head_dim)",
                        (unsigned long long)f[LAR_PLAN_RANK]);
    if (!m->latent && (!f[LAR_PLAN_KV_HEADS] || !f[LAR_PLAN_HEAD_DIM]))
        return lar_fail(LAR_INVALID, d,
                        "neither heads and their size (num_key_value_heads, head_dim) nor the rank of latent "
                        "attention (kv_lora_rank) are known");
    if (!m->latent && f[LAR_PLAN_HEADS] && f[LAR_PLAN_KV_HEADS] > f[LAR_PLAN_HEADS])
        return lar_fail(LAR_INVALID, d, "num_key_value_heads: %llu, more than the %llu heads",
                        (unsigned long long)f[LAR_PLAN_KV_HEADS], (unsigned long long)f[LAR_PLAN_HEADS]);
    if (m->layers_windowed > f[LAR_PLAN_LAYERS] || m->layers_stateless > f[LAR_PLAN_LAYERS] - m->layers_windowed)
        return lar_fail(LAR_INVALID, d, "layer_types names more layers than num_hidden_layers: %llu",
                        (unsigned long long)f[LAR_PLAN_LAYERS]);
    if (m->layers_windowed && !f[LAR_PLAN_WINDOW])
        return lar_fail(LAR_INVALID, d, "layers with a sliding window, but sliding_window is missing");
    double counted = m->parameters ? 0 : count_parameters(m);
    if (counted > 1e17) return lar_fail(LAR_LIMIT, d, "the dimensions come to %.2g parameters", counted);
    if (!m->parameters) m->parameters = (uint64_t)counted;
    return LAR_OK;
}
