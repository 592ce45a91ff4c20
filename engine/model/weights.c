/* A model's weights by their role: finds each tensor by its name in that kind of file, checks its shape, prepares it.
 * Flow: engine.c calls once for a model; the kernels prepare. One thread and its workers, who share the rows of each
 * tensor; blocks while kernels repack.
 * Why both orientations of W_UK: absorbed attention maps queries (nope) to the latent, expanded attention latents to
 * keys; a file has one of them, the other is transposed here in float32, from what is stored.
 * Memory: an arena for what is not in the files; packed forms lie side by side, in the order in which they are found.
 * Invariant: no tensor is read before its shape is what the configuration says. */
#include "engine/model/weights.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "engine/compute/bug_switch.h"
#include "engine/compute/panels.h"
#include "engine/compute/workers.h"
#include "engine/files/tensor_list.h"

typedef enum weight {
#define LAR_WEIGHT(name, folder, gguf) W_##name,
#include "engine/model/tensor_names.def"
#undef LAR_WEIGHT
    WEIGHT_COUNT
} weight;

static const char *const names[][2] = {
#define LAR_WEIGHT(name, folder, gguf) {folder, gguf},
#include "engine/model/tensor_names.def"
#undef LAR_WEIGHT
};

enum { NO_LAYER = -1, NAME_BYTES = 128, CHECKED_ROWS = 512 };

typedef struct loader {
    lar_weights *w;
    const lar_model_config *c;
    const lar_model_files *f;
    const lar_weights_options *o;
    lar_diag *d;
    int layer;
    bool described; /* experts are found and described, and nothing of them is read yet */
} loader;

typedef struct shape {
    uint64_t of[3]; /* outermost first; unused ones are 1 and come first */
} shape;

static bool is_measured(const loader *l) { return l->o->use == LAR_WEIGHTS_MEASURE; }

/* -- finding ----------------------------------------------------------------------------------------------------- */

static void name_of(const loader *l, weight id, uint32_t expert, char name[NAME_BYTES]) {
    bool gguf = lar_model_files_form(l->f) == LAR_MODEL_GGUF;
    const char *base = names[id][gguf], *hole = strstr(base, "%u");
    int n = 0;
    if (l->layer != NO_LAYER) n = snprintf(name, NAME_BYTES, gguf ? "blk.%d." : "model.layers.%d.", l->layer);
    if (!hole) (void)snprintf(name + n, NAME_BYTES - (size_t)n, "%s", base);
    else (void)snprintf(name + n, NAME_BYTES - (size_t)n, "%.*s%u%s", (int)(hole - base), base, expert, hole + 2);
}

static bool has_shape(const lar_tensor *t, const shape *s) {
    uint32_t lead = t->dims > 3 ? t->dims - 3 : 0;
    for (uint32_t i = 0; i < lead; i++)
        if (t->shape[i] != 1) return false;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t found = i < 3 - (t->dims - lead) ? 1 : t->shape[i + t->dims - 3];
        if (found != s->of[i]) return false;
    }
    return true;
}

static const lar_tensor *find(const loader *l, weight id, uint32_t expert) {
    char name[NAME_BYTES];
    name_of(l, id, expert, name);
    return lar_model_files_find(l->f, name);
}

typedef struct checking {
    const lar_tensor *t;
    atomic_bool bad;
} checking;

static void check_span(void *context, uint64_t i) {
    checking *c = context;
    uint64_t first = i * CHECKED_ROWS, left = lar_tensor_rows(c->t) - first;
    lar_tensor some = *c->t;
    some.dims = 2, some.shape[0] = left < CHECKED_ROWS ? left : CHECKED_ROWS;
    some.shape[1] = lar_tensor_row_elements(c->t);
    some.bytes = c->t->bytes / lar_tensor_rows(c->t) * some.shape[0];
    some.data += c->t->bytes / lar_tensor_rows(c->t) * first;
    some.scale = NULL;
    if (lar_tensor_check_finite(&some, NULL)) atomic_store(&c->bad, true);
}

/* The workers share the rows; who finds something bad leaves the words for it to one that looks at all of them. */
static lar_error check_finite(const loader *l, const lar_tensor *t) {
    checking c = {t, false};
    uint64_t spans = (lar_tensor_rows(t) + CHECKED_ROWS - 1) / CHECKED_ROWS;
    if (!l->o->workers || spans == 1) return lar_tensor_check_finite(t, l->d);
    lar_workers_each(l->o->workers, spans, check_span, &c);
    if (c.bad) return lar_tensor_check_finite(t, l->d);
    return t->scale ? lar_tensor_check_finite(t->scale, l->d) : LAR_OK;
}

static lar_error need(const loader *l, weight id, uint32_t expert, const shape *s, const lar_tensor **out) {
    char name[NAME_BYTES], wanted[LAR_SHAPE_BYTES], found[LAR_SHAPE_BYTES];
    name_of(l, id, expert, name);
    const lar_tensor *t = *out = lar_model_files_find(l->f, name);
    if (LAR_BUG(K_QUANTS_ONLY) && t && lar_dtype_info_of(t->type)->block_elements == 32) t = NULL;
    uint32_t skip = 0;
    while (skip < 2 && s->of[skip] == 1) skip++;
    lar_tensor_shape_text(3 - skip, s->of + skip, wanted);
    if (!t) return lar_fail(LAR_INVALID, l->d, "tensor '%s' is missing; expected %s", name, wanted);
    bool seen = expert && s->of[0] > 1; /* all experts in one tensor: looked at with the first */
    seen |= l->described && (id == W_EXPERT_GATE || id == W_EXPERT_UP || id == W_EXPERT_DOWN);
    if (has_shape(t, s)) return seen || is_measured(l) ? LAR_OK : check_finite(l, t);
    lar_tensor_shape_text(t->dims, t->shape, found);
    return lar_fail(LAR_INVALID, l->d, "tensor '%s': expected %s, found %s", name, wanted, found);
}

/* A whole tensor of one row as floats. */
static lar_error vector(const loader *l, weight id, uint32_t n, const float **out) {
    const lar_tensor *t;
    lar_error e = need(l, id, 0, &(shape){{1, 1, n}}, &t);
    if (e) return e;
    float *values = lar_arena_alloc(&l->w->arena, n * sizeof *values);
    if (!values) return LAR_NO_MEMORY;
    if (!is_measured(l)) lar_tensor_row(t, 0, values);
    *out = values;
    return LAR_OK;
}

/* -- preparing --------------------------------------------------------------------------------------------------- */

/* `count` matrices of `step` rows each, from `first` on, of one tensor. All by the same kernels. */
typedef struct slices {
    const lar_tensor *tensor;
    uint64_t first, step;
    uint32_t out, count;
    lar_activations activations;
} slices;

/* What packing takes, as lar_matrix_place counts it; the reference packs nothing. */
static uint64_t packed_bytes(const lar_matrix *m) {
    bool packs = m->kernels != lar_kernels_reference();
    return packs ? lar_panels_bytes(m->rows.tensor->type, m->out, m->in) : 0;
}

static lar_error place(const loader *l, lar_matrix *m) {
    uint64_t bytes = lar_matrix_place_size(m);
    void *memory = bytes ? lar_packed_memory_take(&l->w->packed, bytes) : NULL;
    if (bytes && !memory)
        return lar_fail(LAR_NO_MEMORY, l->d, "%s: no memory for %llu bytes of repacked weights", m->rows.tensor->name,
                        (unsigned long long)bytes);
    lar_error e = lar_matrix_place(m, memory, l->o->workers, l->d);
    if (!e) l->w->packed_bytes += m->packed_bytes;
    return e;
}

static lar_error prepare(const loader *l, const slices *s, const lar_kernels *kernels, lar_matrix *m) {
    lar_error e = LAR_OK;
    uint32_t done = 0;
    for (uint32_t i = 0; is_measured(l) && i < s->count; i++) {
        m[i] = lar_matrix_of(&(lar_rows){s->tensor, s->first + i * s->step, s->out}, kernels, s->activations);
        l->w->packed_bytes += packed_bytes(&m[i]);
    }
    if (is_measured(l)) return LAR_OK;
    for (; !e && done < s->count; done++) {
        lar_rows rows = {s->tensor, s->first + done * s->step, s->out};
        m[done] = lar_matrix_of(&rows, kernels, s->activations);
        e = place(l, &m[done]);
    }
    if (!e) return LAR_OK;
    for (uint32_t i = 0; i < done; i++) l->w->packed_bytes -= m[i].packed_bytes, lar_matrix_release(&m[i]);
    if (e != LAR_INVALID || kernels == lar_kernels_reference()) return e;
    return prepare(l, s, lar_kernels_reference(), m);
}

static lar_error matrix(const loader *l, weight id, uint64_t out, uint64_t in, lar_matrix *m) {
    const lar_tensor *t;
    lar_error e = need(l, id, 0, &(shape){{1, out, in}}, &t);
    slices s = {t, 0, 0, (uint32_t)out, 1, id == W_ROUTER ? LAR_ACTIVATIONS_F32 : l->o->activations};
    return e ? e : prepare(l, &s, l->o->kernels, m);
}

typedef struct mlp_shape {
    weight gate, up, down;
    uint32_t width, count;
} mlp_shape;

/* Expert e of a folder is three tensors; of GGUF, a slice of three. A dense layer's or the shared ones' are one. */
static lar_error mlp_rows(const loader *l, const mlp_shape *s, uint32_t e, const lar_kernels *kernels, lar_mlp *out) {
    bool stacked = lar_model_files_form(l->f) == LAR_MODEL_GGUF && s->gate == W_EXPERT_GATE;
    uint64_t many = stacked ? s->count : 1, hidden = l->c->hidden, slice = stacked ? e : 0;
    const lar_tensor *gate, *up, *down;
    lar_error error = need(l, s->gate, e, &(shape){{many, s->width, hidden}}, &gate);
    if (!error) error = need(l, s->up, e, &(shape){{many, s->width, hidden}}, &up);
    if (!error) error = need(l, s->down, e, &(shape){{many, hidden, s->width}}, &down);
    if (error) return error;
    lar_rows rows[] = {{gate, slice * s->width, s->width},
                       {up, slice * s->width, s->width},
                       {down, slice * hidden, (uint32_t)hidden}};
    out->gate = lar_matrix_of(&rows[0], kernels, l->o->activations);
    out->up = lar_matrix_of(&rows[1], kernels, l->o->activations);
    out->down = lar_matrix_of(&rows[2], kernels, l->o->activations);
    if (l->described && s->gate == W_EXPERT_GATE) return LAR_OK;
    if (is_measured(l)) {
        l->w->packed_bytes += packed_bytes(&out->gate) + packed_bytes(&out->up) + packed_bytes(&out->down);
        return LAR_OK;
    }
    error = place(l, &out->gate);
    if (!error) error = place(l, &out->up);
    return error ? error : place(l, &out->down);
}

static lar_error mlps(const loader *l, const mlp_shape *s, const lar_kernels *kernels, lar_mlp *out) {
    lar_error e = LAR_OK;
    uint32_t done = 0;
    for (; !e && done < s->count; done++) e = mlp_rows(l, s, done, kernels, &out[done]);
    if (!e) return LAR_OK;
    for (uint32_t i = 0; i < done; i++) {
        l->w->packed_bytes -= out[i].gate.packed_bytes + out[i].up.packed_bytes + out[i].down.packed_bytes;
        lar_mlp_release(&out[i]);
    }
    bool again = e == LAR_INVALID && kernels != lar_kernels_reference();
    return again ? mlps(l, s, lar_kernels_reference(), out) : e;
}

/* -- keys and values --------------------------------------------------------------------------------------------- */

/* Head h's rows [h * step, h * step + rows) of `t` (rows, columns), transposed: (heads, columns, rows). */
static lar_error transpose(const loader *l, const lar_tensor *t, uint64_t step, uint32_t rows, lar_tensor **out) {
    uint64_t columns = lar_tensor_row_elements(t), heads = l->c->heads, size = rows * columns;
    lar_tensor *turned = lar_arena_zalloc(&l->w->arena, sizeof *turned);
    float *data = lar_arena_alloc(&l->w->arena, heads * size * sizeof *data);
    float *row = lar_arena_alloc(&l->w->arena, columns * sizeof *row);
    if (!turned || !data || !row) return LAR_NO_MEMORY;
    for (uint64_t h = 0; h < heads && !is_measured(l); h++)
        for (uint64_t r = 0; r < rows; r++) {
            lar_tensor_row(t, h * step + r, row);
            for (uint64_t k = 0; k < columns; k++) data[h * size + k * rows + r] = row[k];
        }
    *turned = (lar_tensor){.name = t->name, .type = LAR_DTYPE_F32, .dims = 3, .shape = {heads, columns, rows}};
    turned->data = (const uint8_t *)data;
    turned->bytes = heads * size * sizeof *data;
    *out = turned;
    return LAR_OK;
}

static lar_error per_head(const loader *l, const slices *s, lar_matrix **out) {
    *out = lar_arena_zalloc(&l->w->arena, s->count * sizeof **out);
    return *out ? prepare(l, s, l->o->kernels, *out) : LAR_NO_MEMORY;
}

/* kv_b: of each head the rows of W_UK, then those of W_UV. */
static lar_error from_kv_b(const loader *l, lar_layer *layer) {
    const lar_model_config *c = l->c;
    uint64_t step = (uint64_t)c->nope + c->value;
    const lar_tensor *t;
    lar_tensor *turned = NULL;
    lar_error e = need(l, W_KV_UP, 0, &(shape){{1, c->heads * step, c->rank}}, &t);
    if (!e) e = transpose(l, t, step, c->nope, &turned);
    if (e) return e;
    e = per_head(l, &(slices){t, 0, step, c->nope, c->heads, l->o->activations}, &layer->key_expand);
    if (!e) e = per_head(l, &(slices){t, c->nope, step, c->value, c->heads, l->o->activations}, &layer->value_up);
    if (!e) e = per_head(l, &(slices){turned, 0, c->rank, c->rank, c->heads, l->o->activations}, &layer->key_absorb);
    return e;
}

/* Newer GGUF: W_UK transposed (heads, rank, nope), and W_UV (heads, value, rank). */
static lar_error from_split(const loader *l, lar_layer *layer) {
    const lar_model_config *c = l->c;
    const lar_tensor *k, *v;
    lar_tensor *turned = NULL;
    lar_error e = need(l, W_KEY_UP, 0, &(shape){{c->heads, c->rank, c->nope}}, &k);
    if (!e) e = need(l, W_VALUE_UP, 0, &(shape){{c->heads, c->value, c->rank}}, &v);
    if (!e) e = transpose(l, k, c->rank, c->rank, &turned);
    if (e) return e;
    e = per_head(l, &(slices){k, 0, c->rank, c->rank, c->heads, l->o->activations}, &layer->key_absorb);
    if (!e) e = per_head(l, &(slices){v, 0, c->value, c->value, c->heads, l->o->activations}, &layer->value_up);
    if (!e) e = per_head(l, &(slices){turned, 0, c->nope, c->nope, c->heads, l->o->activations}, &layer->key_expand);
    return e;
}

/* -- a layer ----------------------------------------------------------------------------------------------------- */

static lar_error attention(const loader *l, lar_layer *layer) {
    const lar_model_config *c = l->c;
    uint64_t queries = (uint64_t)c->heads * (c->nope + c->rope.dims);
    lar_error e = vector(l, W_ATTENTION_NORM, c->hidden, &layer->attention_norm);
    if (!e && c->query_rank) {
        e = matrix(l, W_QUERY_DOWN, c->query_rank, c->hidden, &layer->query_down);
        if (!e) e = vector(l, W_QUERY_NORM, c->query_rank, &layer->query_norm);
        if (!e) e = matrix(l, W_QUERY_UP, queries, c->query_rank, &layer->query);
    } else if (!e) {
        e = matrix(l, W_QUERY, queries, c->hidden, &layer->query);
    }
    if (!e) e = matrix(l, W_LATENT, (uint64_t)c->rank + c->rope.dims, c->hidden, &layer->latent);
    if (!e) e = vector(l, W_LATENT_NORM, c->rank, &layer->latent_norm);
    bool split = !e && lar_model_files_form(l->f) == LAR_MODEL_GGUF && !find(l, W_KV_UP, 0);
    if (!e) e = split ? from_split(l, layer) : from_kv_b(l, layer);
    if (!e) e = matrix(l, W_OUTPUT, c->hidden, (uint64_t)c->heads * c->value, &layer->output);
    return e;
}

static lar_error feed_forward(const loader *l, lar_layer *layer) {
    const lar_model_config *c = l->c;
    bool moe = lar_config_is_moe(c, (uint32_t)l->layer);
    mlp_shape dense = {W_GATE, W_UP, W_DOWN, c->dense_width, 1};
    mlp_shape experts = {W_EXPERT_GATE, W_EXPERT_UP, W_EXPERT_DOWN, c->expert_width, c->router.experts};
    mlp_shape shared = {W_SHARED_GATE, W_SHARED_UP, W_SHARED_DOWN, c->shared_width, 1};
    const mlp_shape *s = moe ? &experts : &dense;
    lar_error e = vector(l, W_FFN_NORM, c->hidden, &layer->ffn_norm);
    if (e) return e;
    lar_mlp *all = lar_arena_zalloc(&l->w->arena, s->count * sizeof *all);
    if (!all) return LAR_NO_MEMORY;
    e = mlps(l, s, l->o->kernels, all);
    if (e) return e;
    layer->mlps = all, layer->mlp_count = s->count;
    if (!moe) return LAR_OK;
    layer->moe = l->w->moe_count++;
    e = matrix(l, W_ROUTER, c->router.experts, c->hidden, &layer->router);
    if (!e && c->has_bias) e = vector(l, W_ROUTER_BIAS, c->router.experts, &layer->router_bias);
    if (!e && c->shared_width) e = mlps(l, &shared, l->o->kernels, &layer->shared);
    return e;
}

static lar_error load_all(loader *l) {
    const lar_model_config *c = l->c;
    lar_weights *w = l->w;
    l->layer = NO_LAYER;
    lar_error e = need(l, W_EMBEDDING, 0, &(shape){{1, c->vocab, c->hidden}}, &w->embedding);
    if (!e) e = vector(l, W_FINAL_NORM, c->hidden, &w->final_norm);
    bool tied = !e && c->tied && !find(l, W_HEAD, 0);
    if (!e) e = matrix(l, tied ? W_EMBEDDING : W_HEAD, c->vocab, c->hidden, &w->head);
    for (uint32_t i = 0; !e && i < c->layers; i++) {
        l->layer = (int)i;
        e = attention(l, &w->layers[i]);
        if (!e) e = feed_forward(l, &w->layers[i]);
        if (!e && l->o->stop && atomic_load(l->o->stop)) e = LAR_SHUTDOWN;
        if (!e && l->o->progress) l->o->progress(l->o->context, i + 1, c->layers);
    }
    return e;
}

/* -- experts in a budget ------------------------------------------------------------------------------------------ */

/* They fit after all. */
static lar_error read_experts(const loader *l, uint32_t layer) {
    loader now = *l;
    mlp_shape experts = {W_EXPERT_GATE, W_EXPERT_UP, W_EXPERT_DOWN, l->c->expert_width, l->c->router.experts};
    now.layer = (int)layer, now.described = false;
    return lar_config_is_moe(l->c, layer) ? mlps(&now, &experts, l->o->kernels, l->w->layers[layer].mlps) : LAR_OK;
}

static lar_error keep_experts(const loader *l) {
    lar_weights *w = l->w;
    lar_expert_layer *layers = lar_arena_zalloc(&w->arena, w->moe_count * sizeof *layers);
    if (!layers) return LAR_NO_MEMORY;
    for (uint32_t i = 0; i < w->layer_count; i++)
        if (lar_config_is_moe(l->c, i)) layers[w->layers[i].moe] = (lar_expert_layer){w->layers[i].mlps, i};
    lar_expert_cache_options o = {.files = l->f,
                                  .layers = layers,
                                  .layer_count = w->moe_count,
                                  .experts = l->c->router.experts,
                                  .experts_used = l->c->router.used,
                                  .bytes = l->o->expert_bytes};
    lar_error e = LAR_OK;
    if (o.bytes >= lar_expert_cache_sizes(&o).all) {
        for (uint32_t i = 0; !e && i < w->layer_count; i++) e = read_experts(l, i);
        return e;
    }
    e = is_measured(l) ? lar_expert_cache_check(&o, l->d) : lar_expert_cache_new(&o, &w->experts, l->d);
    if (!e) w->packed_bytes += is_measured(l) ? o.bytes : lar_expert_cache_counts(w->experts).bytes;
    return e;
}

lar_error lar_weights_load(lar_weights *w, const lar_model_config *c, const lar_model_files *f,
                           const lar_weights_options *o, lar_diag *d) {
    memset(w, 0, sizeof *w);
    lar_arena_init(&w->arena, SIZE_MAX / 2);
    w->layers = lar_arena_zalloc(&w->arena, c->layers * sizeof *w->layers);
    if (!w->layers) return lar_arena_release(&w->arena), LAR_NO_MEMORY;
    w->layer_count = c->layers;
    w->heads = c->heads;
    loader l = {w, c, f, o, d, NO_LAYER, o->expert_bytes != 0};
    lar_error e = load_all(&l);
    if (!e && o->expert_bytes && w->moe_count) e = keep_experts(&l);
    if (e) lar_weights_release(w);
    return e;
}

static void release_heads(lar_matrix *m, uint32_t heads) {
    for (uint32_t h = 0; m && h < heads; h++) lar_matrix_release(&m[h]);
}

void lar_weights_release(lar_weights *w) {
    lar_expert_cache_free(w->experts); /* before the layers, from which its threads may still read */
    for (uint32_t i = 0; i < w->layer_count; i++) {
        lar_layer *layer = &w->layers[i];
        lar_matrix *single[] = {&layer->query_down, &layer->query, &layer->latent, &layer->output, &layer->router};
        for (size_t k = 0; k < sizeof single / sizeof *single; k++) lar_matrix_release(single[k]);
        release_heads(layer->key_absorb, w->heads);
        release_heads(layer->key_expand, w->heads);
        release_heads(layer->value_up, w->heads);
        for (uint32_t k = 0; k < layer->mlp_count; k++) lar_mlp_release(&layer->mlps[k]);
        lar_mlp_release(&layer->shared);
    }
    lar_matrix_release(&w->head);
    lar_packed_memory_release(&w->packed);
    lar_arena_release(&w->arena);
    memset(w, 0, sizeof *w);
}
