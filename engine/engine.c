/* The embedded engine behind its narrow boundary: opens a model, cuts steps into passes.
 * Flow: gateway/local calls; engine/files, engine/model do the work. One step at a time; blocks while it computes.
 * Why passes: scratch memory is planned for so many tokens, and a longer prompt goes through in pieces.
 * Memory: the model's, and a latent cache for each sequence; a step allocates nothing.
 * Invariant: after an error no sequence has changed. */
#include "engine/engine.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "engine/compute/panel_matmul.h"
#include "engine/compute/workers.h"
#include "engine/model/forward.h"
#include "engine/model/model_text.h"

enum { PARTS = 64 /* of one pass */ };

struct lar_engine {
    lar_model_files *files;
    lar_model_config config;
    lar_weights weights;
    lar_forward *forward;
    lar_workers *workers;
    const lar_kernels *kernels;
    uint32_t tokens_max;
    uint8_t *kv; /* (layers) of lar_kv */
};

struct lar_sequence {
    lar_latent_cache *cache;
};

/* Processors that this process may run on. */
static uint32_t processors(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > LAR_WORKERS_MAX ? LAR_WORKERS_MAX : (uint32_t)n;
}

static lar_error choose_kernels(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_cpu path = LAR_CPU_SCALAR;
    if (o->cpu && strcmp(o->cpu, "reference") == 0) {
        n->kernels = lar_kernels_reference();
        return LAR_OK;
    }
    lar_error e = lar_cpu_choose(o->cpu, &path, d);
    n->kernels = lar_kernels_panels(path);
    return e;
}

static lar_error open_all(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_error e = choose_kernels(n, o, d);
    if (!e) e = lar_workers_start(o->threads ? o->threads : processors(), &n->workers, d);
    if (!e) e = lar_model_files_open(o->path, &n->files, d);
    if (!e) e = lar_config_read(&n->config, n->files, d);
    lar_weights_options w = {.kernels = n->kernels,
                             .activations = o->activations,
                             .progress = o->progress,
                             .context = o->context};
    if (!e) e = lar_weights_load(&n->weights, &n->config, n->files, &w, d);
    if (!e && !(n->kv = malloc(n->config.layers))) e = LAR_NO_MEMORY;
    if (!e) memset(n->kv, (int)o->kv, n->config.layers);
    n->tokens_max = o->tokens_max ? o->tokens_max : LAR_ENGINE_PASS_TOKENS;
    if (!e && n->tokens_max > n->config.context) n->tokens_max = n->config.context;
    lar_forward_options f = {.tokens_max = n->tokens_max, .logits_max = n->tokens_max, .workers = n->workers};
    return e ? e : lar_forward_new(&n->config, &n->weights, &f, &n->forward, d);
}

lar_error lar_engine_open(const lar_engine_options *o, lar_engine **out, lar_diag *d) {
    *out = NULL;
    lar_engine *n = calloc(1, sizeof *n);
    if (!n) return LAR_NO_MEMORY;
    lar_error e = open_all(n, o, d);
    if (e) return lar_engine_close(n), e;
    *out = n;
    return LAR_OK;
}

void lar_engine_close(lar_engine *e) {
    if (!e) return;
    lar_forward_free(e->forward);
    if (e->weights.layers) lar_weights_release(&e->weights);
    lar_model_files_close(e->files);
    lar_workers_stop(e->workers);
    free(e->kv);
    free(e);
}

static uint64_t matrix_bytes(const lar_matrix *m) {
    if (m->packed_bytes || !m->rows.tensor) return m->packed_bytes;
    const lar_dtype_info *type = lar_dtype_info_of(m->rows.tensor->type);
    return (uint64_t)m->out * (m->in / type->block_elements) * type->block_bytes;
}

static uint64_t mlp_bytes(const lar_mlp *m) {
    return matrix_bytes(&m->gate) + matrix_bytes(&m->up) + matrix_bytes(&m->down);
}

static uint64_t active_bytes(const lar_engine *e) {
    const lar_model_config *c = &e->config;
    uint64_t bytes = matrix_bytes(&e->weights.head);
    for (uint32_t i = 0; i < c->layers; i++) {
        const lar_layer *l = &e->weights.layers[i];
        bytes += matrix_bytes(&l->query_down) + matrix_bytes(&l->query) + matrix_bytes(&l->latent) +
                 matrix_bytes(&l->output) + matrix_bytes(&l->router) + mlp_bytes(&l->shared);
        for (uint32_t h = 0; h < c->heads; h++)
            bytes += matrix_bytes(&l->key_absorb[h]) + matrix_bytes(&l->value_up[h]);
        bytes += mlp_bytes(l->mlps) * (lar_config_is_moe(c, i) ? c->router.used : 1);
    }
    return bytes;
}

lar_error lar_engine_text_read(const lar_engine *e, lar_engine_text *out, lar_diag *d) {
    lar_buf source;
    memset(out, 0, sizeof *out);
    lar_buf_init(&source, LAR_TEMPLATE_SOURCE_BYTES_MAX);
    lar_error error = lar_generation_read(e->files, &out->generation, d);
    if (!error) error = lar_model_tokenizer(e->files, &out->tokenizer, d);
    if (!error) error = lar_model_template_source(e->files, &source, d);
    if (!error) {
        out->calls = lar_output_format_of(lar_buf_slice(&source));
        error = lar_template_parse(lar_buf_slice(&source), &out->chat, d);
    } else if (error == LAR_NOT_FOUND && out->tokenizer) {
        error = LAR_OK; /* a base model */
    }
    lar_buf_release(&source);
    if (error) lar_engine_text_release(out);
    else *d = (lar_diag){0}; /* what an absent file left there would pass for the cause of a later error */
    return error;
}

void lar_engine_text_release(lar_engine_text *t) {
    lar_tokenizer_free(t->tokenizer);
    lar_template_free(t->chat);
    memset(t, 0, sizeof *t);
}

lar_engine_info lar_engine_info_of(const lar_engine *e) {
    const lar_model_config *c = &e->config;
    lar_scratch_report s = lar_forward_scratch(e->forward);
    lar_page_layout layout = lar_forward_layout(c, e->kv);
    return (lar_engine_info){
        .family = lar_model_family_name(c->family),
        .layers = c->layers,
        .vocab = c->vocab,
        .context = c->context,
        .experts = c->router.experts,
        .experts_used = c->router.used,
        .kernels = e->kernels->name,
        .threads = lar_workers_count(e->workers),
        .active_bytes = active_bytes(e),
        .packed_bytes = e->weights.packed_bytes + e->weights.arena.used,
        .scratch_bytes = s.bytes,
        .scratch_peak = s.peak,
        .token_bytes = lar_page_layout_token_bytes(&layout),
        .kv = (lar_kv)e->kv[0],
    };
}

lar_error lar_sequence_new(const lar_engine *e, uint32_t capacity, lar_sequence **out, lar_diag *d) {
    *out = NULL;
    if (capacity > e->config.context)
        return lar_fail(LAR_LIMIT, d, "%u tokens; the model's context is %u%s", capacity, e->config.context,
                        lar_config_context_why(&e->config));
    lar_sequence *s = calloc(1, sizeof *s);
    if (!s) return LAR_NO_MEMORY;
    lar_page_layout layout = lar_forward_layout(&e->config, e->kv);
    lar_error error = lar_latent_cache_new_alone(&layout, capacity, &s->cache, d);
    if (error) return free(s), error;
    *out = s;
    return LAR_OK;
}

void lar_sequence_free(lar_sequence *s) {
    if (!s) return;
    lar_latent_cache_free(s->cache);
    free(s);
}

uint32_t lar_sequence_length(const lar_sequence *s) { return lar_latent_cache_length(s->cache); }

void lar_sequence_cut(lar_sequence *s, uint32_t length) {
    LAR_ASSERT(length <= lar_sequence_length(s));
    lar_latent_cache_cut(s->cache, length);
}

/* How far a step has come: part `part`, of which `done` tokens and `wanted` logits are behind. */
typedef struct place {
    uint32_t part, done, wanted;
} place;

typedef struct pass {
    lar_forward_part parts[PARTS];
    uint32_t count, tokens, wanted;
} pass;

/* As much of the part at `at` as the pass has room for. */
static void take(pass *p, const lar_engine_part *from, place *at, uint32_t room) {
    uint32_t left = from->count - at->done;
    lar_forward_part *to = &p->parts[p->count++];
    *to = (lar_forward_part){.cache = from->sequence->cache,
                             .ids = from->ids + at->done,
                             .count = left < room ? left : room,
                             .wanted = from->wanted ? from->wanted + at->wanted : NULL,
                             .wanted_from = at->done};
    at->done += to->count;
    while (at->wanted + to->wanted_count < from->wanted_count && to->wanted[to->wanted_count] < at->done)
        to->wanted_count++;
    at->wanted += to->wanted_count;
    p->tokens += to->count;
    p->wanted += to->wanted_count;
    if (at->done == from->count) *at = (place){at->part + 1, 0, 0};
}

static lar_error check_wanted(const lar_engine_part *p, lar_diag *d) {
    for (uint32_t k = 0; k < p->wanted_count; k++)
        if (p->wanted[k] >= p->count || (k && p->wanted[k] < p->wanted[k - 1]))
            return lar_fail(LAR_INVALID, d, "logits of token %u of %u are wanted, or out of order", p->wanted[k],
                            p->count);
    return LAR_OK;
}

/* Passes that were done before one failed are taken back: what a part added is its length less what it has done. */
static void take_back(const lar_engine_part *parts, place at) {
    for (uint32_t i = 0; i <= at.part; i++) {
        uint32_t added = i < at.part ? parts[i].count : at.done;
        if (added) lar_sequence_cut(parts[i].sequence, lar_sequence_length(parts[i].sequence) - added);
    }
}

lar_error lar_engine_step(lar_engine *e, const lar_engine_part *parts, uint32_t count, float *logits, lar_diag *d) {
    place at = {0};
    for (uint32_t i = 0; i < count; i++) {
        lar_error error = check_wanted(&parts[i], d);
        if (error) return error;
    }
    while (at.part < count) {
        pass p = {.count = 0};
        place begin = at;
        while (at.part < count && p.count < PARTS && p.tokens < e->tokens_max)
            take(&p, &parts[at.part], &at, e->tokens_max - p.tokens);
        lar_error error = lar_forward_run(e->forward, p.parts, p.count, logits, d);
        if (error) return take_back(parts, begin), error;
        logits += (uint64_t)p.wanted * e->config.vocab;
    }
    return LAR_OK;
}
