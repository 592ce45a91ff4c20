/* The embedded engine behind its narrow boundary: opens a model, tells what it is, reads its texts (header: engine.h).
 * Flow: gateway/local calls; engine/files, engine/model do the work. One thread; blocks on the model's files.
 * Memory: the model's, a pass's scratch, and all pages where their bytes are given.
 * Not here: sequences (engine_sequences.c), what is kept of them (engine_prefixes.c), steps (engine_step.c). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/cache/kv_layers.h"
#include "engine/compute/panel_matmul.h"
#include "engine/compute/workers.h"
#include "engine/engine_parts.h"
#include "engine/model/model_text.h"
#include "engine/text/template_tools.h"

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

static lar_error open_model(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_weights_options w = {.kernels = n->kernels,
                             .activations = o->activations,
                             .workers = n->workers,
                             .expert_bytes = o->expert_bytes,
                             .progress = o->progress,
                             .context = o->context,
                             .stop = o->stop};
    lar_error e = lar_model_files_open(o->path, &n->files, d);
    if (!e) e = lar_config_read(&n->config, n->files, d);
    if (!e) e = lar_engine_name_model(n, o, d);
    return e ? e : lar_weights_load(&n->weights, &n->config, n->files, &w, d);
}

/* Formats of latents and, before weights take their time, whether there is memory for the pages. */
static lar_error open_pages(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    n->kv = malloc(n->config.layers);
    if (!n->kv) return LAR_NO_MEMORY;
    lar_diag why = {0};
    lar_error e = lar_kv_layers_parse(o->kv ? o->kv : "f32", n->config.layers, n->kv, &why);
    if (e) return lar_fail(e, d, "formats of latents: %s", why.text);
    n->kv_text = lar_kv_layers_text(n->kv, n->config.layers);
    if (!n->kv_text) return LAR_NO_MEMORY;
    lar_page_layout layout = lar_engine_layout(n);
    return o->page_bytes ? lar_page_pool_new(&layout, o->page_bytes, &n->pool, d) : LAR_OK;
}

static lar_error open_forward(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_attention_form form = o->page_bytes ? LAR_ATTENTION_ABSORBED : o->attention;
    n->tokens_max = o->tokens_max ? o->tokens_max : LAR_ENGINE_PASS_TOKENS;
    if (n->tokens_max > n->config.context) n->tokens_max = n->config.context;
    lar_forward_options f = {.tokens_max = n->tokens_max,
                             .logits_max = n->tokens_max,
                             .workers = n->workers,
                             .form = form};
    return lar_forward_new(&n->config, &n->weights, &f, &n->forward, d);
}

static lar_error open_all(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    if (o->page_bytes && o->attention == LAR_ATTENTION_EXPANDED)
        return lar_fail(LAR_INVALID, d, "sequences in pages are computed in the absorbed form only");
    if (o->page_store && !o->page_bytes)
        return lar_fail(LAR_INVALID, d, "a page store keeps pages, and sequences are not in pages: page_bytes is 0");
    lar_error e = choose_kernels(n, o, d);
    if (!e) e = lar_workers_start(o->threads ? o->threads : processors(), &n->workers, d);
    if (!e) e = open_model(n, o, d);
    if (!e) e = open_pages(n, o, d);
    if (!e) e = open_forward(n, o, d);
    return e ? e : lar_engine_open_prefixes(n, o, d);
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

static lar_error measure_all(lar_engine *n, const lar_engine_options *o, lar_diag *d) {
    lar_error e = choose_kernels(n, o, d);
    if (!e) e = lar_workers_start(o->threads ? o->threads : processors(), &n->workers, d);
    if (!e) e = lar_model_files_open(o->path, &n->files, d);
    if (!e) e = lar_config_read(&n->config, n->files, d);
    lar_weights_options w = {.use = LAR_WEIGHTS_MEASURE,
                             .kernels = n->kernels,
                             .activations = o->activations,
                             .expert_bytes = o->expert_bytes};
    if (!e) e = lar_weights_load(&n->weights, &n->config, n->files, &w, d);
    return e ? e : open_forward(n, o, d); /* its scratch is address space that nobody touches */
}

lar_error lar_engine_measure(const lar_engine_options *o, lar_engine_sizes *out, lar_diag *d) {
    *out = (lar_engine_sizes){0};
    lar_engine *n = calloc(1, sizeof *n);
    if (!n) return LAR_NO_MEMORY;
    lar_error e = measure_all(n, o, d);
    if (!e)
        *out = (lar_engine_sizes){.packed_bytes = n->weights.packed_bytes + n->weights.arena.used,
                                  .mapped_bytes = n->weights.embedding->bytes,
                                  .scratch_bytes = lar_forward_scratch(n->forward).bytes,
                                  .vocab = n->config.vocab};
    lar_engine_close(n);
    return e;
}

void lar_engine_close(lar_engine *e) {
    if (!e) return;
    lar_forward_free(e->forward);
    if (e->weights.layers) lar_weights_release(&e->weights);
    lar_model_files_close(e->files);
    lar_workers_stop(e->workers);
    lar_prefix_cache_free(e->prefixes);
    lar_page_pool_free(e->pool);
    free(e->kv);
    free(e->kv_text);
    free(e);
}

/* On Linux a nice value is a thread's own, and 0 is the thread that calls. */
static void be_nice(void *context, uint32_t part, uint32_t parts) {
    const int *niceness = context;
    (void)part, (void)parts;
    if (getpriority(PRIO_PROCESS, 0) < *niceness) (void)setpriority(PRIO_PROCESS, 0, *niceness);
}

typedef struct shared_work {
    void (*work)(void *context, uint32_t i);
    void *context;
    uint32_t count;
} shared_work;

static void do_share(void *context, uint32_t part, uint32_t parts) {
    const shared_work *w = context;
    uint64_t begin, end;
    lar_workers_share(w->count, part, parts, &begin, &end);
    for (; begin < end; begin++) w->work(w->context, (uint32_t)begin);
}

void lar_engine_share(lar_engine *e, uint32_t count, void (*work)(void *context, uint32_t i), void *context) {
    if (count) lar_workers_run(e->workers, do_share, &(shared_work){work, context, count});
}

void lar_engine_nice(lar_engine *e, int niceness) { lar_workers_run(e->workers, be_nice, &niceness); }

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

/* The template of a model, with a place for tools where it prints calls and has none. */
static lar_error read_template(lar_slice source, lar_engine_text *out, lar_diag *d) {
    lar_buf changed;
    out->calls = lar_output_format_of(source);
    lar_error e = lar_template_parse(source, &out->chat, d);
    if (e || lar_template_reads(out->chat, "tools")) return e;
    lar_buf_init(&changed, LAR_TEMPLATE_SOURCE_BYTES_MAX);
    if (!lar_template_tools_add(source, out->calls, &changed)) {
        lar_template_free(out->chat);
        e = lar_template_parse(lar_buf_slice(&changed), &out->chat, d);
    }
    lar_buf_release(&changed);
    return e;
}

static lar_error read_text(const lar_model_files *f, lar_engine_text *out, lar_diag *d) {
    lar_buf source;
    memset(out, 0, sizeof *out);
    lar_buf_init(&source, LAR_TEMPLATE_SOURCE_BYTES_MAX);
    lar_error error = lar_model_generation_read(f, &out->generation, d);
    if (!error) error = lar_model_tokenizer(f, &out->tokenizer, d);
    if (!error) error = lar_model_template_source(f, &source, d);
    if (!error) error = read_template(lar_buf_slice(&source), out, d);
    else if (error == LAR_NOT_FOUND && out->tokenizer) error = LAR_OK; /* a base model */
    lar_buf_release(&source);
    if (error) lar_engine_text_release(out);
    else *d = (lar_diag){0}; /* what an absent file left there would pass for the cause of a later error */
    return error;
}

lar_error lar_engine_text_read(const lar_engine *e, lar_engine_text *out, lar_diag *d) {
    return read_text(e->files, out, d);
}

lar_error lar_engine_text_open(const char *path, lar_engine_text *out, lar_diag *d) {
    lar_model_files *f = NULL;
    memset(out, 0, sizeof *out);
    lar_error e = lar_model_files_open(path, &f, d);
    if (!e) e = read_text(f, out, d);
    lar_model_files_close(f);
    return e;
}

void lar_engine_text_release(lar_engine_text *t) {
    lar_tokenizer_free(t->tokenizer);
    lar_template_free(t->chat);
    memset(t, 0, sizeof *t);
}

lar_expert_counts lar_engine_experts(const lar_engine *e) {
    return e->weights.experts ? lar_expert_cache_counts(e->weights.experts) : (lar_expert_counts){0};
}

uint32_t lar_engine_expert_layers(const lar_engine *e) {
    return e->weights.experts ? lar_expert_cache_layers(e->weights.experts) : 0;
}

lar_expert_layer_counts lar_engine_expert_layer(const lar_engine *e, uint32_t i) {
    return lar_expert_cache_layer(e->weights.experts, i);
}

lar_engine_info lar_engine_info_of(const lar_engine *e) {
    const lar_model_config *c = &e->config;
    lar_scratch_report s = lar_forward_scratch(e->forward);
    lar_page_layout layout = lar_engine_layout(e);
    return (lar_engine_info){
        .family = lar_model_family_name(c->family),
        .layers = c->layers,
        .vocab = c->vocab,
        .context = c->context,
        .experts = c->router.experts,
        .experts_used = c->router.used,
        .kernels = e->kernels->name,
        .threads = lar_workers_count(e->workers),
        .pass_tokens = e->tokens_max,
        .active_bytes = active_bytes(e),
        .packed_bytes = e->weights.packed_bytes + e->weights.arena.used,
        .mapped_bytes = e->weights.embedding->bytes,
        .scratch_bytes = s.bytes,
        .scratch_peak = s.peak,
        .token_bytes = lar_page_layout_token_bytes(&layout),
        .page_bytes = lar_page_layout_page_bytes(&layout),
        .reserved_bytes = lar_engine_pages(e).bytes,
        .kv = e->kv_text,
    };
}
