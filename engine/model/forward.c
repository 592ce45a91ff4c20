/* The forward pass of plain multi-head latent attention with dense and MoE layers.
 * Flow: engine.c calls; engine/compute does the work; the latent cache keeps what later tokens need.
 * One pass at a time; blocks while it computes.
 * Why parts: tokens of several sequences share every product and differ in attention only.
 * Memory: one block planned from lifetimes when the model is opened; a pass allocates nothing.
 * Invariants: 1. All but experts that are on disk is checked before the first token is computed; when one of those
 * fails, rows are left in caches, behind their length. 2. Router, norms and softmax are in float32.
 * Sources: DeepSeek-V3 inference/model.py; transformers' deepseek_v2, deepseek_v3 and glm4_moe_lite. */
#include "engine/model/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/compute/bug_switch.h"
#include "engine/compute/workers.h"

/* Steps of a layer, for lifetimes. What lives across layers lives from FIRST to LAST. */
enum { FIRST, QUERY_DOWN, QUERY, LATENT, ATTEND, OUTPUT, ROUTE, EXPERTS, HEAD, LAST = HEAD };

enum {
    B_HIDDEN,     /* (tokens, hidden): the residual stream */
    B_TURN,       /* (tokens, rope): cosine and sine of each token's position */
    B_NORMED,     /* (tokens, hidden) */
    B_QUERY_DOWN, /* (tokens, query_rank) */
    B_QUERY,      /* (tokens, heads, nope + rope) */
    B_LATENT,     /* (tokens, rank + rope) */
    B_ATTENTION,  /* of lar_attend */
    B_HEADS,      /* (tokens, heads, value) */
    B_OUT,        /* (tokens, hidden): what a block adds */
    B_ROUTER,     /* (tokens, experts): logits */
    B_CHOSEN,     /* (tokens, used) uint32_t */
    B_WEIGHTS,    /* (tokens, used) */
    B_STARTS,     /* (experts + 1) uint32_t */
    B_TOKEN,      /* (tokens * used) uint32_t, by expert */
    B_PICK,       /* (tokens * used): weights, by expert */
    B_WANTED,     /* (logits_max, hidden) */
    B_WORKSPACE,  /* of the matrix products */
    BUFFERS
};

struct lar_forward {
    const lar_model_config *c;
    const lar_weights *w;
    lar_forward_options o;
    double *speeds; /* (rope / 2) */
    lar_scratch_buffer plan[BUFFERS];
    lar_scratch_report report;
    uint8_t *block;
    uint64_t workspace_bytes;
    lar_forward_watch watch;
    void *watch_context;
};

/* -- planning ---------------------------------------------------------------------------------------------------- */

static void widen(uint64_t *most, uint64_t bytes) {
    if (bytes > *most) *most = bytes;
}

static lar_attention_shape attention_shape(const lar_model_config *c) {
    return (lar_attention_shape){c->heads, c->rank, c->nope, c->rope.dims, c->value, (float)c->softmax_scale};
}

static uint32_t parts_of(const lar_forward *f) { return f->o.workers ? lar_workers_count(f->o.workers) : 1; }

/* The largest workspace that any product of any layer asks for. */
static uint64_t workspace_bytes(const lar_forward *f) {
    const lar_model_config *c = f->c;
    uint32_t tokens = f->o.tokens_max;
    uint64_t most = lar_matmul_workspace(&f->w->head, 1, f->o.logits_max);
    for (uint32_t i = 0; i < c->layers; i++) {
        const lar_layer *l = &f->w->layers[i];
        uint64_t latent = lar_matmul_workspace(&l->latent, 1, tokens),
                 query = lar_matmul_workspace(&l->query, 1, tokens);
        widen(&most, query);
        if (c->query_rank) query = lar_matmul_workspace(&l->query_down, 1, tokens);
        widen(&most, query + latent);
        widen(&most, lar_matmul_workspace(&l->output, 1, tokens));
        lar_attention a = {.shape = attention_shape(c), .key_absorb = l->key_absorb, .value_up = l->value_up};
        widen(&most, lar_attention_workspace(&a, tokens, parts_of(f)));
        widen(&most, lar_matmul_workspace(l->value_up, c->heads, LAR_ATTENTION_TILE));
        widen(&most, lar_matmul_workspace(l->key_expand, c->heads, LAR_ATTENTION_TILE));
        bool moe = lar_config_is_moe(c, i);
        uint64_t mlps = lar_mlp_workspace(l->mlps, l->mlp_count, moe ? tokens * c->router.used : tokens);
        if (moe && c->shared_width) mlps += lar_mlp_workspace(&l->shared, 1, tokens);
        widen(&most, mlps);
        if (moe) widen(&most, lar_matmul_workspace(&l->router, 1, tokens));
    }
    return most;
}

static lar_error make_plan(lar_forward *f, lar_diag *d) {
    const lar_model_config *c = f->c;
    uint64_t n = f->o.tokens_max, used = c->router.used, four = sizeof(float);
    lar_attention_shape shape = attention_shape(c);
    uint32_t parts = parts_of(f);
    const lar_scratch_buffer plan[BUFFERS] = {
        [B_HIDDEN] = {"hidden", n * c->hidden * four, FIRST, LAST, 0},
        [B_TURN] = {"turn", n * c->rope.dims * four, FIRST, LAST, 0},
        [B_NORMED] = {"normed", n * c->hidden * four, QUERY_DOWN, EXPERTS, 0},
        [B_QUERY_DOWN] = {"query_down", n * c->query_rank * four, QUERY_DOWN, QUERY, 0},
        [B_QUERY] = {"query", n * c->heads * (c->nope + c->rope.dims) * four, QUERY, ATTEND, 0},
        [B_LATENT] = {"latent", n * (c->rank + c->rope.dims) * four, QUERY_DOWN, LATENT, 0},
        [B_ATTENTION] = {"attention", lar_attention_scratch(&shape, f->o.tokens_max, parts), ATTEND, ATTEND, 0},
        [B_HEADS] = {"heads", n * c->heads * c->value * four, ATTEND, OUTPUT, 0},
        [B_OUT] = {"out", n * c->hidden * four, OUTPUT, EXPERTS, 0},
        [B_ROUTER] = {"router", n * c->router.experts * four, ROUTE, ROUTE, 0},
        [B_CHOSEN] = {"chosen", n * used * four, ROUTE, ROUTE, 0},
        [B_WEIGHTS] = {"weights", n * used * four, ROUTE, ROUTE, 0},
        [B_STARTS] = {"starts", (c->router.experts + 1) * four, ROUTE, EXPERTS, 0},
        [B_TOKEN] = {"token", n * used * four, ROUTE, EXPERTS, 0},
        [B_PICK] = {"pick", n * used * four, ROUTE, EXPERTS, 0},
        [B_WANTED] = {"wanted", f->o.logits_max * (uint64_t)c->hidden * four, HEAD, HEAD, 0},
        [B_WORKSPACE] = {"workspace", f->workspace_bytes, FIRST, LAST, 0},
    };
    memcpy(f->plan, plan, sizeof plan);
    return lar_scratch_plan(f->plan, BUFFERS, &f->report, d);
}

lar_error lar_forward_new(const lar_model_config *c, const lar_weights *w, const lar_forward_options *o,
                          lar_forward **out, lar_diag *d) {
    *out = NULL;
    if (!o->tokens_max || !o->logits_max || o->tokens_max > LAR_FORWARD_TOKENS_MAX || o->logits_max > o->tokens_max)
        return lar_fail(LAR_INVALID, d, "%u tokens in one pass, logits of %u: not possible", o->tokens_max,
                        o->logits_max);
    lar_forward *f = calloc(1, sizeof *f);
    if (!f) return LAR_NO_MEMORY;
    *f = (lar_forward){.c = c, .w = w, .o = *o};
    f->workspace_bytes = workspace_bytes(f);
    lar_error e = make_plan(f, d);
    if (!e) {
        f->speeds = calloc(c->rope.dims / 2, sizeof *f->speeds);
        f->block = aligned_alloc(LAR_SCRATCH_ALIGN, f->report.bytes);
        if (!f->speeds || !f->block)
            e = lar_fail(LAR_NO_MEMORY, d, "no memory for %llu bytes of scratch; fewer tokens in one pass need less",
                         (unsigned long long)f->report.bytes);
    }
    if (e) return lar_forward_free(f), e;
    lar_rope_speeds(&c->rope, f->speeds);
    *out = f;
    return LAR_OK;
}

void lar_forward_free(lar_forward *f) {
    if (!f) return;
    free(f->speeds);
    free(f->block);
    free(f);
}

lar_scratch_report lar_forward_scratch(const lar_forward *f) { return f->report; }

void lar_forward_set_watch(lar_forward *f, lar_forward_watch watch, void *context) {
    f->watch = watch;
    f->watch_context = context;
}

/* -- a pass ------------------------------------------------------------------------------------------------------ */

typedef struct pass {
    lar_forward *f;
    const lar_forward_part *parts;
    uint32_t count, tokens;
    lar_run run;
} pass;

static float *floats(const pass *p, int buffer) { return (float *)(void *)(p->f->block + p->f->plan[buffer].offset); }
static uint32_t *numbers(const pass *p, int buffer) {
    return (uint32_t *)(void *)(p->f->block + p->f->plan[buffer].offset);
}

/* y (tokens, out) = x (tokens, in) W^T. */
static lar_product product_of(const pass *p, const lar_matrix *m, const float *x, float *y) {
    return (lar_product){m, 1, p->tokens, x, m->in, 0, y, m->out, 0};
}

static void multiply(const pass *p, const lar_matrix *m, const float *x, float *y) {
    lar_product one = product_of(p, m, x, y);
    lar_matmul(&one, &p->run);
}

static void norm_all(const pass *p, const float *weight, float *y) {
    uint64_t hidden = p->f->c->hidden;
    const float *h = floats(p, B_HIDDEN);
    for (uint64_t t = 0; t < p->tokens; t++)
        lar_rms_norm(y + t * hidden, h + t * hidden, weight, (uint32_t)hidden, p->f->c->eps);
}

static void add_to_stream(const pass *p, const float *more) {
    float *h = floats(p, B_HIDDEN);
    for (uint64_t i = 0; i < (uint64_t)p->tokens * p->f->c->hidden; i++) {
        h[i] += more[i];
        if (LAR_BUG(ACTIVATIONS_IN_F16) && fabsf(h[i]) > 65504.0f) h[i] = copysignf(INFINITY, h[i]);
    }
}

/* Embeddings and the turn of every position. */
static void begin(const pass *p) {
    const lar_model_config *c = p->f->c;
    float *h = floats(p, B_HIDDEN), *turn = floats(p, B_TURN);
    for (uint32_t i = 0; i < p->count; i++) {
        const lar_forward_part *part = &p->parts[i];
        if (part->count) lar_latent_cache_begin(part->cache);
        for (uint32_t t = 0; t < part->count; t++, h += c->hidden, turn += c->rope.dims) {
            lar_tensor_row(p->f->w->embedding, part->ids[t], h);
            lar_rope_turn(&c->rope, p->f->speeds, lar_latent_cache_length(part->cache) + t, turn);
        }
    }
}

/* The bug ROPE_FIRST: a head's rotated part at its front, brought to where it belongs (or back). */
static void swap_parts(float *head, uint32_t front, uint32_t back) {
    float saved[LAR_HEAD_DIM_MAX];
    memcpy(saved, head, front * sizeof *head);
    memmove(head, head + front, back * sizeof *head);
    memcpy(head + back, saved, front * sizeof *head);
}

/* The products of x for queries and latents. */
static void project(const pass *p, const lar_layer *l, const float *x) {
    const lar_model_config *c = p->f->c;
    bool two = c->query_rank;
    const lar_matrix *q = two ? &l->query_down : &l->query;
    float *y = floats(p, two ? B_QUERY_DOWN : B_QUERY);
    lar_matmul_all((lar_product[2]){product_of(p, q, x, y), product_of(p, &l->latent, x, floats(p, B_LATENT))}, 2,
                   &p->run);
}

static void queries(const pass *p, const lar_layer *l) {
    const lar_model_config *c = p->f->c;
    float *down = floats(p, B_QUERY_DOWN), *q = floats(p, B_QUERY);
    const float *turn = floats(p, B_TURN);
    uint32_t head = c->nope + c->rope.dims;
    if (c->query_rank) {
        for (uint64_t t = 0; t < p->tokens; t++) {
            float *row = down + t * c->query_rank;
            lar_rms_norm(row, row, l->query_norm, c->query_rank, c->latent_eps);
        }
        multiply(p, &l->query, down, q);
    }
    for (uint32_t t = 0; t < p->tokens; t++, turn += c->rope.dims)
        for (uint32_t h = 0; h < c->heads; h++, q += head) {
            if (LAR_BUG(ROPE_FIRST)) swap_parts(q, c->rope.dims, c->nope);
            lar_rope_apply(&c->rope, turn, q + c->nope);
        }
}

/* Norms the latents, rotates the keys, and puts both into the caches. */
static void latents(const pass *p, const lar_layer *l, uint32_t layer) {
    const lar_model_config *c = p->f->c;
    float *row = floats(p, B_LATENT);
    const float *turn = floats(p, B_TURN);
    for (uint32_t i = 0; i < p->count; i++) {
        lar_latent_cache *cache = p->parts[i].cache;
        uint32_t first = lar_latent_cache_length(cache);
        for (uint32_t t = 0; t < p->parts[i].count; t++, row += l->latent.out, turn += c->rope.dims) {
            if (LAR_BUG(KEY_ROPE_NORMED))
                lar_rms_norm(row + c->rank, row + c->rank, l->latent_norm, c->rope.dims, c->latent_eps);
            lar_rms_norm(row, row, l->latent_norm, c->rank, c->latent_eps);
            lar_rope_apply(&c->rope, turn, row + c->rank);
            lar_latent_cache_put(cache, layer, first + t, row);
        }
    }
}

static void attend(const pass *p, const lar_layer *l, uint32_t layer) {
    const lar_model_config *c = p->f->c;
    lar_attention_part parts[LAR_ATTENTION_PARTS];
    lar_attention a = {.shape = attention_shape(c),
                       .key_absorb = l->key_absorb,
                       .key_expand = l->key_expand,
                       .value_up = l->value_up,
                       .parts = parts,
                       .query = floats(p, B_QUERY),
                       .out = floats(p, B_HEADS),
                       .scratch = floats(p, B_ATTENTION)};
    for (uint32_t i = 0; i < p->count;) {
        uint64_t tokens = 0;
        for (a.count = 0; i < p->count && a.count < LAR_ATTENTION_PARTS; i++, tokens += parts[a.count++].tokens) {
            const lar_forward_part *from = &p->parts[i];
            parts[a.count] = (lar_attention_part){lar_latent_cache_rows(from->cache, layer),
                                                  lar_latent_cache_length(from->cache), from->count};
        }
        if (i == p->count) a.then = lar_matrix_ahead(&l->output);
        lar_attend(&a, p->f->o.form, &p->run);
        a.query += tokens * c->heads * (c->nope + c->rope.dims);
        a.out += tokens * c->heads * c->value;
    }
}

/* Chooses the experts of every token and sorts the choices by expert, tokens ascending in each. */
static void route(const pass *p, const lar_layer *l, uint32_t layer, const float *x) {
    lar_router r = p->f->c->router;
    float *logits = floats(p, B_ROUTER), *weights = floats(p, B_WEIGHTS), *pick = floats(p, B_PICK);
    uint32_t *chosen = numbers(p, B_CHOSEN), *starts = numbers(p, B_STARTS), *token = numbers(p, B_TOKEN);
    r.bias = l->router_bias;
    multiply(p, &l->router, x, logits);
    memset(starts, 0, (r.experts + 1) * sizeof *starts);
    for (uint64_t t = 0; t < p->tokens; t++) {
        lar_route(&r, logits + t * r.experts, chosen + t * r.used, weights + t * r.used);
        for (uint32_t k = 0; k < r.used; k++) starts[chosen[t * r.used + k] + 1]++;
    }
    for (uint32_t e = 0; e < r.experts; e++) starts[e + 1] += starts[e];
    for (uint32_t i = 0; i < p->tokens * r.used; i++) {
        uint32_t at = starts[chosen[i]]++; /* becomes the start of the next expert */
        token[at] = i / r.used;
        pick[at] = weights[i];
    }
    memmove(starts + 1, starts, r.experts * sizeof *starts);
    starts[0] = 0;
    if (p->f->watch) p->f->watch(p->f->watch_context, layer, chosen, p->tokens);
}

static lar_error feed_forward(const pass *p, const lar_layer *l, uint32_t layer, lar_diag *d) {
    const lar_model_config *c = p->f->c;
    float *x = floats(p, B_NORMED), *y = floats(p, B_OUT);
    const uint32_t all[2] = {0, p->tokens};
    lar_mlp_job job = {.mlps = l->mlps, .count = l->mlp_count, .starts = all, .x = x, .y = y};
    memset(y, 0, (uint64_t)p->tokens * c->hidden * sizeof *y);
    const lar_mlp_job shared = {.mlps = &l->shared, .count = 1, .starts = all, .x = x, .y = y};
    if (lar_config_is_moe(c, layer)) {
        route(p, l, layer, x);
        job.starts = numbers(p, B_STARTS), job.token = numbers(p, B_TOKEN), job.weight = floats(p, B_PICK);
        if (c->shared_width) job.then = &shared;
        if (p->f->w->experts) return lar_expert_cache_run(p->f->w->experts, l->moe, &job, &p->run, d);
    }
    lar_mlp_run(&job, &p->run);
    return LAR_OK;
}

static void logits_of_wanted(const pass *p, float *logits) {
    const lar_model_config *c = p->f->c;
    float *rows = floats(p, B_WANTED);
    const float *h = floats(p, B_HIDDEN);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->count; h += (uint64_t)p->parts[i].count * c->hidden, i++)
        for (uint32_t k = 0; k < p->parts[i].wanted_count; k++, n++)
            lar_rms_norm(rows + (uint64_t)n * c->hidden,
                         h + (uint64_t)(p->parts[i].wanted[k] - p->parts[i].wanted_from) * c->hidden,
                         p->f->w->final_norm, c->hidden, c->eps);
    if (n) lar_matmul(&(lar_product){&p->f->w->head, 1, n, rows, c->hidden, 0, logits, c->vocab, 0}, &p->run);
}

lar_error lar_forward_check(const lar_forward *f, const lar_forward_part *part, lar_diag *d) {
    if (LAR_BUG(CONTEXT_SHIFT) && lar_latent_cache_length(part->cache) == lar_latent_cache_capacity(part->cache))
        lar_latent_cache_cut(part->cache, 0);
    uint64_t end = (uint64_t)lar_latent_cache_length(part->cache) + part->count;
    for (uint32_t t = 0; t < part->count; t++)
        if (part->ids[t] >= f->c->vocab)
            return lar_fail(LAR_INVALID, d, "token id %u; the vocabulary ends at %u", part->ids[t], f->c->vocab - 1);
    for (uint32_t k = 0; k < part->wanted_count; k++)
        if (part->wanted[k] < part->wanted_from || part->wanted[k] - part->wanted_from >= part->count)
            return lar_fail(LAR_INVALID, d, "logits of token %u of %u are wanted", part->wanted[k],
                            part->wanted_from + part->count);
    if (end > f->c->context)
        return lar_fail(LAR_LIMIT, d, "%llu tokens; the model's context is %u%s", (unsigned long long)end,
                        f->c->context, lar_config_context_why(f->c));
    if (end > lar_latent_cache_capacity(part->cache))
        return lar_fail(LAR_LIMIT, d, "%llu tokens; the sequence has room for %u", (unsigned long long)end,
                        lar_latent_cache_capacity(part->cache));
    return LAR_OK;
}

lar_error lar_forward_run(lar_forward *f, const lar_forward_part *parts, uint32_t count, float *logits, lar_diag *d) {
    pass p = {.f = f, .parts = parts, .count = count};
    uint64_t tokens = 0, wanted = 0;
    for (uint32_t i = 0; i < count; i++) {
        tokens += parts[i].count, wanted += parts[i].wanted_count;
        lar_error e = lar_forward_check(f, &parts[i], d);
        if (e) return e;
    }
    if (tokens > f->o.tokens_max || wanted > f->o.logits_max)
        return lar_fail(LAR_INVALID, d, "%llu tokens in one pass, logits of %llu; planned were %u and %u",
                        (unsigned long long)tokens, (unsigned long long)wanted, f->o.tokens_max, f->o.logits_max);
    if (!tokens) return LAR_OK;
    p.tokens = (uint32_t)tokens;
    p.run = (lar_run){f->o.workers, floats(&p, B_WORKSPACE), f->workspace_bytes};
    begin(&p);
    float *normed = floats(&p, B_NORMED);
    for (uint32_t i = 0; i < f->c->layers; i++) {
        const lar_layer *l = &f->w->layers[i];
        norm_all(&p, l->attention_norm, normed);
        project(&p, l, normed);
        queries(&p, l);
        latents(&p, l, i);
        attend(&p, l, i);
        multiply(&p, &l->output, floats(&p, B_HEADS), floats(&p, B_OUT));
        add_to_stream(&p, floats(&p, B_OUT));
        norm_all(&p, l->ffn_norm, normed);
        lar_error e = feed_forward(&p, l, i, d);
        if (e) return e;
        add_to_stream(&p, floats(&p, B_OUT));
    }
    logits_of_wanted(&p, logits);
    for (uint32_t i = 0; i < count; i++) lar_latent_cache_grow(parts[i].cache, parts[i].count);
    return LAR_OK;
}
