/* The tensors of a model by role: one table of roles, from which kinds and expected shapes come.
 * Called by `larder inspect`; any thread; never blocks (headers only, no weights). Why beside weights.c, which stops at
 * the first tensor that is wrong: who downloads 690 GB wants to know all that is missing, without loading any of it.
 * Source: names as tensor_names.def has them. Memory: none.
 * Not here: values, and whether a type has kernels (weights.c). */
#include "engine/model/tensor_roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum role {
#define LAR_WEIGHT(name, folder, gguf) R_##name,
#include "engine/model/tensor_names.def"
#undef LAR_WEIGHT
    ROLE_COUNT
} role;

static const char *const names[ROLE_COUNT][2] = {
#define LAR_WEIGHT(name, folder, gguf) {folder, gguf},
#include "engine/model/tensor_names.def"
#undef LAR_WEIGHT
};

/* A dimension, as the configuration gives it. */
typedef enum measure {
    ONE,
    HIDDEN,
    VOCAB,
    QUERIES, /* heads * (nope + rope) */
    QUERY_RANK,
    LATENT, /* rank + rope */
    RANK,
    KEYS_VALUES, /* heads * (nope + value) */
    HEADS,
    NOPE,
    VALUE,
    VALUES, /* heads * value */
    DENSE_WIDTH,
    EXPERTS,
    EXPERT_WIDTH,
    SHARED_WIDTH,
    MEASURE_COUNT
} measure;

/* When a role is needed. */
typedef enum need { MODEL, HEAD, LAYER, Q_DIRECT, Q_LOW_RANK, KV_WHOLE, KV_SPLIT, DENSE, MOE, BIAS, SHARED, EACH } need;

typedef struct role_row {
    lar_tensor_kind kind;
    need when;
    measure shape[3]; /* outermost first; leading ONEs may be left out in the file */
} role_row;
static const role_row rows[ROLE_COUNT] = {
    [R_EMBEDDING] = {LAR_KIND_EMBEDDING, MODEL, {ONE, VOCAB, HIDDEN}},
    [R_FINAL_NORM] = {LAR_KIND_NORMS, MODEL, {ONE, ONE, HIDDEN}},
    [R_HEAD] = {LAR_KIND_OUTPUT, HEAD, {ONE, VOCAB, HIDDEN}},
    [R_ATTENTION_NORM] = {LAR_KIND_NORMS, LAYER, {ONE, ONE, HIDDEN}},
    [R_FFN_NORM] = {LAR_KIND_NORMS, LAYER, {ONE, ONE, HIDDEN}},
    [R_QUERY] = {LAR_KIND_ATTENTION, Q_DIRECT, {ONE, QUERIES, HIDDEN}},
    [R_QUERY_DOWN] = {LAR_KIND_ATTENTION, Q_LOW_RANK, {ONE, QUERY_RANK, HIDDEN}},
    [R_QUERY_NORM] = {LAR_KIND_NORMS, Q_LOW_RANK, {ONE, ONE, QUERY_RANK}},
    [R_QUERY_UP] = {LAR_KIND_ATTENTION, Q_LOW_RANK, {ONE, QUERIES, QUERY_RANK}},
    [R_LATENT] = {LAR_KIND_ATTENTION, LAYER, {ONE, LATENT, HIDDEN}},
    [R_LATENT_NORM] = {LAR_KIND_NORMS, LAYER, {ONE, ONE, RANK}},
    [R_KV_UP] = {LAR_KIND_ATTENTION, KV_WHOLE, {ONE, KEYS_VALUES, RANK}},
    [R_KEY_UP] = {LAR_KIND_ATTENTION, KV_SPLIT, {HEADS, RANK, NOPE}},
    [R_VALUE_UP] = {LAR_KIND_ATTENTION, KV_SPLIT, {HEADS, VALUE, RANK}},
    [R_OUTPUT] = {LAR_KIND_ATTENTION, LAYER, {ONE, HIDDEN, VALUES}},
    [R_GATE] = {LAR_KIND_DENSE, DENSE, {ONE, DENSE_WIDTH, HIDDEN}},
    [R_UP] = {LAR_KIND_DENSE, DENSE, {ONE, DENSE_WIDTH, HIDDEN}},
    [R_DOWN] = {LAR_KIND_DENSE, DENSE, {ONE, HIDDEN, DENSE_WIDTH}},
    [R_ROUTER] = {LAR_KIND_ROUTER, MOE, {ONE, EXPERTS, HIDDEN}},
    [R_ROUTER_BIAS] = {LAR_KIND_ROUTER, BIAS, {ONE, ONE, EXPERTS}},
    [R_SHARED_GATE] = {LAR_KIND_SHARED, SHARED, {ONE, SHARED_WIDTH, HIDDEN}},
    [R_SHARED_UP] = {LAR_KIND_SHARED, SHARED, {ONE, SHARED_WIDTH, HIDDEN}},
    [R_SHARED_DOWN] = {LAR_KIND_SHARED, SHARED, {ONE, HIDDEN, SHARED_WIDTH}},
    [R_EXPERT_GATE] = {LAR_KIND_EXPERTS, EACH, {EXPERTS, EXPERT_WIDTH, HIDDEN}},
    [R_EXPERT_UP] = {LAR_KIND_EXPERTS, EACH, {EXPERTS, EXPERT_WIDTH, HIDDEN}},
    [R_EXPERT_DOWN] = {LAR_KIND_EXPERTS, EACH, {EXPERTS, HIDDEN, EXPERT_WIDTH}},
};

const char *lar_tensor_kind_name(lar_tensor_kind kind) {
    static const char *const kinds[LAR_KIND_COUNT] = {
        [LAR_KIND_EMBEDDING] = "embedding", [LAR_KIND_ATTENTION] = "attention", [LAR_KIND_DENSE] = "dense MLP",
        [LAR_KIND_ROUTER] = "router",       [LAR_KIND_EXPERTS] = "experts",     [LAR_KIND_SHARED] = "shared experts",
        [LAR_KIND_NORMS] = "norms",         [LAR_KIND_OUTPUT] = "output",       [LAR_KIND_FURTHER] = "further tokens",
        [LAR_KIND_OTHER] = "other"};
    return kinds[kind];
}

/* -- kinds --------------------------------------------------------------------------------------------------------- */

static const char *const layer_prefix[2] = {"model.layers.", "blk."};

/* Behind "model.layers.12."; NULL: the name has no layer in it. */
static const char *behind_layer(const char *name, lar_model_form form, unsigned long *layer) {
    const char *prefix = layer_prefix[form];
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) || name[n] < '0' || name[n] > '9') return NULL;
    char *end;
    *layer = strtoul(name + n, &end, 10);
    return *end == '.' ? end + 1 : NULL;
}

/* %u in a pattern is any number of digits, at least one; behind the whole an FP8 matrix may have "_scale_inv". */
static bool fits(const char *pattern, const char *name) {
    const char *hole = strstr(pattern, "%u");
    if (hole) {
        size_t n = (size_t)(hole - pattern), digits = 0;
        if (strncmp(pattern, name, n)) return false;
        while (name[n + digits] >= '0' && name[n + digits] <= '9') digits++;
        if (!digits) return false;
        name += n + digits;
        pattern = hole + 2;
    }
    size_t n = strlen(pattern);
    return !strncmp(pattern, name, n) && (!name[n] || !strcmp(name + n, "_scale_inv"));
}

lar_tensor_kind lar_tensor_kind_of(const char *name, lar_model_form form, uint32_t layers) {
    unsigned long layer = 0;
    const char *rest = behind_layer(name, form, &layer);
    if (rest && layers && layer >= layers) return LAR_KIND_FURTHER;
    for (int r = 0; r < ROLE_COUNT; r++) {
        bool in_layer = rows[r].when != MODEL && rows[r].when != HEAD;
        const char *pattern = names[r][form];
        if (pattern && in_layer == (rest != NULL) && fits(pattern, rest ? rest : name)) return rows[r].kind;
    }
    return LAR_KIND_OTHER;
}

/* -- what is missing ----------------------------------------------------------------------------------------------- */

typedef struct checker {
    const lar_model_config *c;
    const lar_model_files *f;
    lar_model_form form;
    uint64_t measures[MEASURE_COUNT];
    void (*lack)(void *context, const lar_tensor_lack *l);
    void *context;
    uint32_t lacks;
} checker;

enum { NO_LAYER = -1, NAME_BYTES = 128 };

static void measure_all(checker *k) {
    const lar_model_config *c = k->c;
    const uint64_t measures[MEASURE_COUNT] = {
        [ONE] = 1,
        [HIDDEN] = c->hidden,
        [VOCAB] = c->vocab,
        [QUERIES] = (uint64_t)c->heads * (c->nope + c->rope.dims),
        [QUERY_RANK] = c->query_rank,
        [LATENT] = (uint64_t)c->rank + c->rope.dims,
        [RANK] = c->rank,
        [KEYS_VALUES] = (uint64_t)c->heads * (c->nope + c->value),
        [HEADS] = c->heads,
        [NOPE] = c->nope,
        [VALUE] = c->value,
        [VALUES] = (uint64_t)c->heads * c->value,
        [DENSE_WIDTH] = c->dense_width,
        [EXPERTS] = c->router.experts,
        [EXPERT_WIDTH] = c->expert_width,
        [SHARED_WIDTH] = c->shared_width,
    };
    memcpy(k->measures, measures, sizeof measures);
}

static void name_of(const checker *k, role r, int layer, uint32_t expert, char name[NAME_BYTES]) {
    const char *base = names[r][k->form], *hole = strstr(base, "%u");
    int n = layer == NO_LAYER ? 0 : snprintf(name, NAME_BYTES, "%s%d.", layer_prefix[k->form], layer);
    size_t room = NAME_BYTES - (size_t)n;
    if (!hole) (void)snprintf(name + n, room, "%s", base);
    else (void)snprintf(name + n, room, "%.*s%u%s", (int)(hole - base), base, expert, hole + 2);
}

/* Sizes are equal once leading ones are taken off both. */
static bool same_shape(const lar_tensor *t, const uint64_t *want, uint32_t dims) {
    uint32_t skip = 0;
    while (skip + 1 < t->dims && t->shape[skip] == 1) skip++;
    return t->dims - skip == dims && memcmp(t->shape + skip, want, dims * sizeof *want) == 0;
}

static void check_one(checker *k, role r, int layer, uint32_t expert) {
    char name[NAME_BYTES];
    uint64_t want[3];
    uint32_t skip = 0;
    name_of(k, r, layer, expert, name);
    for (int i = 0; i < 3; i++) want[i] = k->measures[rows[r].shape[i]];
    if (k->form == LAR_MODEL_FOLDER && rows[r].when == EACH) want[0] = 1; /* each expert is a tensor of its own */
    while (skip < 2 && want[skip] == 1) skip++;
    const lar_tensor *t = lar_model_files_find(k->f, name);
    if (t && same_shape(t, want + skip, 3 - skip)) return;
    lar_tensor_lack l = {.name = name, .problem = t ? LAR_TENSOR_MISSHAPEN : LAR_TENSOR_MISSING};
    lar_tensor_shape_text(3 - skip, want + skip, l.expected);
    if (t) lar_tensor_shape_text(t->dims, t->shape, l.found);
    k->lacks++;
    k->lack(k->context, &l);
}

static bool has(const checker *k, role r, int layer) {
    char name[NAME_BYTES];
    if (!names[r][k->form]) return false;
    name_of(k, r, layer, 0, name);
    return lar_model_files_find(k->f, name) != NULL;
}

/* GGUF has kv_b whole or in two parts; a layer that has neither lacks the parts, as newer files have it. */
static bool is_needed(const checker *k, need when, int layer) {
    const lar_model_config *c = k->c;
    bool moe = layer != NO_LAYER && lar_config_is_moe(c, (uint32_t)layer);
    bool split = k->form == LAR_MODEL_GGUF && layer != NO_LAYER && !has(k, R_KV_UP, layer);
    switch (when) {
    case MODEL: return layer == NO_LAYER;
    case HEAD: return layer == NO_LAYER && !(c->tied && !has(k, R_HEAD, NO_LAYER));
    case LAYER: return layer != NO_LAYER;
    case Q_DIRECT: return layer != NO_LAYER && !c->query_rank;
    case Q_LOW_RANK: return layer != NO_LAYER && c->query_rank;
    case KV_WHOLE: return layer != NO_LAYER && !split;
    case KV_SPLIT: return layer != NO_LAYER && split;
    case DENSE: return layer != NO_LAYER && !moe;
    case MOE:
    case EACH: return moe;
    case BIAS: return moe && c->has_bias;
    case SHARED: return moe && c->shared_width;
    }
    return false;
}

uint32_t lar_tensors_check(const lar_model_config *c, const lar_model_files *f,
                           void (*lack)(void *context, const lar_tensor_lack *l), void *context) {
    checker k = {.c = c, .f = f, .form = lar_model_files_form(f), .lack = lack, .context = context};
    measure_all(&k);
    for (int layer = NO_LAYER; layer < (int)c->layers; layer++)
        for (int r = 0; r < ROLE_COUNT; r++) {
            if (!is_needed(&k, rows[r].when, layer)) continue;
            bool each = k.form == LAR_MODEL_FOLDER && rows[r].when == EACH;
            for (uint32_t e = 0; e < (each ? c->router.experts : 1); e++) check_one(&k, (role)r, layer, e);
        }
    return k.lacks;
}
