/* Reads any model's config.json for a memory plan (header: plan.h).
 * Called by plan_files.c and gateway/local/plan_command.c; calls base/json.h. Any thread; does not block.
 * Why not the engine's own reader: the engine refuses what it cannot run, the planner adds up what others run too.
 * Invariants: a number is a plain whole number in its field's range or refused by name; a kind of state that these sums
 * do not cover is refused, never counted as something else. Memory: one tree, freed on return. */
#include <string.h>

#include "base/json.h"
#include "engine/plan/plan.h"

/* Fields of models whose state is not one row a token: sums by heads or rank would be wrong. */
static const struct {
    const char *field, *what;
} other_states[] = {
    {"compress_ratios", "compressed rows and a ring of raw ones"},
    {"linear_attn_config", "linear attention in most layers"},
    {"mamba_d_state", "state-space layers"},
    {"ssm_cfg", "state-space layers"},
    {"block_types", "recurrent layers"},
    {"attn_layer_period", "state-space layers between those of attention"},
    {"hybrid_override_pattern", "state-space layers between those of attention"},
};

/* Families whose MLP has two matrices. */
static const char *const plain_mlps[] = {"gpt2",   "gpt_neox", "gptj",        "opt",        "bloom",
                                         "falcon", "phi",      "gpt_bigcode", "starcoder2", "mpt"};

/* The value of the first of `names` (parted by '|') that is there and not null; its name to `name`. */
static uint32_t find(const lar_json *j, uint32_t object, const char *names, lar_slice *name) {
    while (*names) {
        size_t len = strcspn(names, "|");
        char text[LAR_PLAN_NAME_BYTES] = {0};
        memcpy(text, names, len < sizeof text ? len : sizeof text - 1);
        uint32_t node = lar_json_get_last(j, object, text);
        *name = lar_slice_of(names, len);
        if (node != LAR_JSON_NONE && !lar_json_is(j, node, LAR_JSON_NULL)) return node;
        names += len + (names[len] == '|');
    }
    return LAR_JSON_NONE;
}

static lar_error read_field(lar_plan_model *m, const lar_json *j, uint32_t object, lar_plan_field f, lar_diag *d) {
    const lar_plan_field_info *info = lar_plan_field_info_of(f);
    lar_slice name;
    uint32_t node = find(j, object, info->config, &name);
    if (node == LAR_JSON_NONE) return LAR_OK;
    uint64_t value;
    if (!lar_json_u64(j, node, &value)) {
        lar_slice raw = lar_json_raw(j, node);
        return lar_fail(LAR_INVALID, d, "%.*s: expected a whole number up to %llu, found %.*s", LAR_FMT(name),
                        (unsigned long long)info->most, (int)(raw.len < 40 ? raw.len : 40), raw.ptr);
    }
    char called[LAR_PLAN_NAME_BYTES] = {0};
    memcpy(called, name.ptr, name.len);
    return lar_plan_model_set(m, f, value, called, d);
}

/* "full_attention", "sliding_attention", "linear_attention" for every layer. */
static lar_error read_layer_types(lar_plan_model *m, const lar_json *j, uint32_t object, lar_diag *d) {
    uint32_t list = lar_json_get_last(j, object, "layer_types");
    if (list == LAR_JSON_NONE || lar_json_is(j, list, LAR_JSON_NULL)) {
        uint32_t use = lar_json_get_last(j, object, "use_sliding_window");
        m->window_unclear = m->field[LAR_PLAN_WINDOW] && !lar_json_is(j, use, LAR_JSON_FALSE);
        return LAR_OK;
    }
    if (!lar_json_is(j, list, LAR_JSON_ARRAY))
        return lar_fail(LAR_INVALID, d, "layer_types: expected a list of a kind for each layer");
    for (uint32_t c = lar_json_first(j, list); c != LAR_JSON_NONE; c = lar_json_after(j, list, c)) {
        lar_slice kind = lar_json_inner(j, c);
        if (lar_slice_eq_cstr(kind, "sliding_attention")) m->layers_windowed++;
        else if (lar_slice_eq_cstr(kind, "linear_attention")) m->layers_stateless++;
        else if (!lar_slice_eq_cstr(kind, "full_attention"))
            return lar_fail(LAR_INVALID, d,
                            "layer_types: '%.*s' is not counted; full_attention, sliding_attention and "
                            "linear_attention are",
                            (int)(kind.len < 40 ? kind.len : 40), kind.ptr);
    }
    return LAR_OK;
}

/* How the weights are published: quantisation first, then the type of the numbers. */
static lar_dtype stored_type(const lar_json *j, uint32_t object) {
    uint32_t quantised = lar_json_get_last(j, object, "quantization_config");
    if (lar_json_eq(j, lar_json_get_last(j, quantised, "quant_method"), LAR_SLICE("fp8"))) return LAR_DTYPE_F8_E4M3;
    lar_slice name;
    uint32_t type = find(j, object, "torch_dtype|dtype", &name);
    if (lar_json_eq(j, type, LAR_SLICE("float32"))) return LAR_DTYPE_F32;
    if (lar_json_eq(j, type, LAR_SLICE("float16"))) return LAR_DTYPE_F16;
    return LAR_DTYPE_BF16;
}

static lar_error read_model(lar_plan_model *m, const lar_json *j, uint32_t object, lar_diag *d) {
    lar_plan_model_name(m, lar_json_inner(j, lar_json_get_last(j, object, "model_type")));
    for (size_t i = 0; i < sizeof other_states / sizeof *other_states; i++) {
        uint32_t node = lar_json_get_last(j, object, other_states[i].field);
        if (node == LAR_JSON_NONE || lar_json_is(j, node, LAR_JSON_NULL)) continue;
        return lar_fail(LAR_INVALID, d, "%s: this model keeps %s (%s); only rows a token and layer are counted",
                        *m->type ? m->type : "config.json", other_states[i].what, other_states[i].field);
    }
    for (size_t i = 0; i < sizeof plain_mlps / sizeof *plain_mlps; i++)
        m->plain_mlp |= strcmp(m->type, plain_mlps[i]) == 0;
    for (int f = 0; f < LAR_PLAN_FIELD_COUNT; f++) {
        lar_error e = read_field(m, j, object, (lar_plan_field)f, d);
        if (e) return e;
    }
    if (lar_json_is(j, lar_json_get_last(j, object, "multi_query"), LAR_JSON_TRUE) && !m->field[LAR_PLAN_KV_HEADS])
        m->field[LAR_PLAN_KV_HEADS] = 1;
    m->tied = lar_json_is(j, lar_json_get_last(j, object, "tie_word_embeddings"), LAR_JSON_TRUE);
    m->stored = stored_type(j, object);
    return read_layer_types(m, j, object, d);
}

lar_error lar_plan_model_from_config(lar_plan_model *m, lar_slice text, lar_diag *d) {
    lar_json j;
    lar_json_init(&j);
    /* The largest real ones name each of some thousand tensors that are not quantised. */
    lar_error e = lar_json_parse(&j, text, &(lar_json_limits){.depth_max = 32, .nodes_max = 1u << 20}, d);
    if (!e && !lar_json_is(&j, 0, LAR_JSON_OBJECT)) e = lar_fail(LAR_INVALID, d, "config.json is not an object");
    if (!e) {
        uint32_t inner = lar_json_get_last(&j, 0, "text_config");
        e = read_model(m, &j, lar_json_is(&j, inner, LAR_JSON_OBJECT) ? inner : 0, d);
    }
    lar_json_release(&j);
    return e;
}
