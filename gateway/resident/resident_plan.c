/* The plan of a model of the configuration (header: resident_plan.h). Called by resident.c and plan_serve.c;
 * engine/plan computes, plan_report.c prints. Main thread; blocks on the model's headers. Why nothing is kept free
 * beside it: what is left of the memory already leaves out what others use. */
#include "gateway/resident/resident_plan.h"

#include <string.h>

#include "engine/cache/kv_layers.h"
#include "engine/cache/page_pool.h"
#include "engine/engine.h"
#include "engine/files/model_files.h"

enum { CONTEXT_TOKENS = 8192, CONTEXT_TOKENS_LEAST = 2 /* one of a prompt, one of its answer */ };

static lar_error read_model(lar_plan_model *m, const char *path, lar_diag *d) {
    lar_model_files *f = NULL;
    lar_error e = lar_model_files_open(path, &f, d);
    if (!e) e = lar_plan_model_from_files(m, f, d);
    lar_model_files_close(f);
    if (!e) e = lar_plan_model_finish(m, d);
    if (!e && !m->latent) e = lar_fail(LAR_INVALID, d, "engine.model: larder runs models with latent attention only");
    return e;
}

static lar_error settle_context(lar_resident_plan *p, const lar_engine_config *c, lar_diag *d) {
    uint64_t most = p->story.model.field[LAR_PLAN_CONTEXT];
    if (most && c->context > most)
        return lar_fail(LAR_INVALID, d, "engine.context: %u tokens; the model's own limit is %llu", c->context,
                        (unsigned long long)most);
    p->context = c->context ? c->context : most && most < CONTEXT_TOKENS ? (uint32_t)most : CONTEXT_TOKENS;
    if (p->context >= CONTEXT_TOKENS_LEAST) return LAR_OK;
    return lar_fail(LAR_INVALID, d, "engine.context: no prompt with an answer fits into %u tokens; at least %d",
                    p->context, CONTEXT_TOKENS_LEAST);
}

/* What the configuration says, or whole pages for as many tokens as it allows at the same time. */
static lar_error settle_cache(lar_resident_plan *p, const lar_engine_config *c, lar_diag *d) {
    const uint64_t *f = p->story.model.field;
    lar_plan_request *r = &p->story.request;
    uint32_t layers = (uint32_t)f[LAR_PLAN_LAYERS];
    lar_diag why = {0};
    if (layers > LAR_RESIDENT_LAYERS_MAX) return lar_fail(LAR_INVALID, d, "engine.model: %u layers", layers);
    lar_error e = lar_kv_layers_parse(c->kv, layers, p->kv, &why);
    if (e) return lar_fail(e, d, "engine.kv: %s", why.text);
    lar_page_layout layout = {.layers = (uint32_t)f[LAR_PLAN_LAYERS],
                              .rank = (uint32_t)f[LAR_PLAN_RANK],
                              .rope = (uint32_t)f[LAR_PLAN_ROPE],
                              .kv = p->kv};
    uint64_t pages = ((uint64_t)p->context + LAR_PAGE_TOKENS - 1) / LAR_PAGE_TOKENS * c->sequences;
    uint64_t page = lar_page_layout_page_bytes(&layout);
    p->kv_bytes = c->kv_bytes ? c->kv_bytes : pages * page;
    if (p->kv_bytes < page)
        return lar_fail(LAR_INVALID, d, "engine.kv_bytes: %llu bytes; one page of %d tokens takes %llu",
                        (unsigned long long)p->kv_bytes, LAR_PAGE_TOKENS, (unsigned long long)page);
    r->kv = (lar_kv)p->kv[0];
    if (memcmp(p->kv, p->kv + 1, layers - 1) == 0) return LAR_OK;
    r->kv_layers = p->kv;
    p->story.kv = c->kv;
    return LAR_OK;
}

/* What this machine's kernels make of the weights, and what a pass of them needs. */
static lar_error measure(lar_resident_plan *p, const lar_engine_config *c, lar_diag *d) {
    lar_plan_story *s = &p->story;
    lar_engine_sizes sizes;
    lar_engine_options o = {.path = c->model,
                            .tokens_max = c->pass_tokens,
                            .threads = c->threads,
                            .activations = LAR_ACTIVATIONS_BY_TYPE,
                            .page_bytes = 1,
                            .expert_bytes = c->expert_bytes};
    lar_error e = lar_engine_measure(&o, &sizes, d);
    s->request.held = sizes.packed_bytes + sizes.mapped_bytes;
    s->request.scratch = sizes.scratch_bytes;
    p->vocab = sizes.vocab;
    return e;
}

lar_error lar_resident_plan_make(lar_resident_plan *p, const lar_engine_config *c, uint64_t memory, lar_diag *d) {
    lar_plan_story *s = &p->story;
    s->name = c->model;
    lar_error e = read_model(&s->model, c->model, d);
    if (!e) e = settle_context(p, c, d);
    if (!e) e = settle_cache(p, c, d);
    if (e) return e;
    s->request.context = p->context;
    s->request.sequences = c->sequences;
    s->request.memory = memory;
    s->request.cache = p->kv_bytes;
    s->request.experts = c->expert_bytes;
    s->request.piece = c->pass_tokens;
    e = measure(p, c, d);
    if (!e) e = lar_plan_compute(&s->model, &s->request, &s->plan, d);
    if (e) return e;
    s->most_sequences = lar_plan_most_sequences(&s->model, &s->request);
    s->most_context = lar_plan_most_context(&s->model, &s->request);
    s->change_count = lar_plan_changes(&s->model, &s->request, s->changes);
    return LAR_OK;
}

lar_error lar_resident_plan_fits(const lar_resident_plan *p, FILE *to, lar_diag *d) {
    const lar_plan *plan = &p->story.plan;
    if (plan->verdict != LAR_PLAN_OVER) return LAR_OK;
    if (to) lar_plan_print(&p->story, to);
    return lar_fail(LAR_LIMIT, d, "the model does not fit: %llu MiB are needed, %llu MiB are left",
                    (unsigned long long)(plan->total >> 20), (unsigned long long)(plan->budget >> 20));
}
