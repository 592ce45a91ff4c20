/* A model that this process serves: plan, engine, scheduler, serving (header: resident.h).
 * Called by serve.c at start and end; engine_pool.c uses what it holds. Main thread; blocks while the model is read.
 * Order: does it fit -> engine (weights, pages, scratch) -> tokenizer and template -> scheduler. The end mirrors it.
 * Why the plan comes first: a machine that begins to swap answers nobody, and says nothing of why.
 * Not here: requests (engine_pool.c, gateway/serving), the sums of the plan (resident_plan.c). */
#include "gateway/resident/resident.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/ensure.h"
#include "gateway/resident/memory_left.h"
#include "gateway/resident/resident_parts.h"
#include "gateway/resident/resident_plan.h"

enum { READERS = 2, CALL_TOKENS_MAX = 8192 };

/* CONFIG with the upstream's name in front; what is no fault of the configuration stays what it is. */
static lar_error named(const lar_upstream_config *u, lar_error e, lar_diag *d) {
    lar_diag why = *d;
    bool fault = e != LAR_NO_MEMORY && e != LAR_IO;
    return lar_fail(fault ? LAR_CONFIG : e, d, "upstream %.64s: %.220s", u->name,
                    *why.text ? why.text : lar_error_text(e));
}

typedef struct loading {
    const lar_resident *r;
    uint32_t tenths; /* that were told */
} loading;

static void on_progress(void *context, uint32_t done, uint32_t total) {
    loading *l = context;
    uint32_t tenths = total ? done * 10 / total : 10;
    if (tenths <= l->tenths) return;
    l->tenths = tenths;
    LAR_LOG(l->r->o.log, LAR_LOG_INFO, "engine_loading", LAR_F_CSTR("upstream", lar_resident_name(l->r)),
            LAR_F_INT("percent", tenths * 10));
}

static lar_error open_engine(lar_resident *r, const lar_resident_plan *p, lar_diag *d) {
    const lar_engine_config *c = &r->o.config->engine;
    loading l = {.r = r};
    lar_engine_options o = {.path = c->model,
                            .tokens_max = c->pass_tokens,
                            .threads = c->threads,
                            .activations = LAR_ACTIVATIONS_BY_TYPE,
                            .kv = c->kv,
                            .page_bytes = p->kv_bytes,
                            .page_store = r->o.page_store,
                            .expert_bytes = c->expert_bytes,
                            .progress = on_progress,
                            .context = &l};
    return lar_engine_open(&o, &r->engine, d);
}

/* What computes, so that who keeps answers knows when others may come: "larder-0.1.0-bf16". */
static lar_error open_serving(lar_resident *r, const lar_resident_plan *p, lar_diag *d) {
    const lar_engine_config *c = &r->o.config->engine;
    char fingerprint[64];
    lar_engine_text text = {0};
    (void)snprintf(fingerprint, sizeof fingerprint, "larder-" LARDER_VERSION "-%.32s", c->kv);
    lar_error e = lar_engine_text_read(r->engine, &text, d);
    lar_serving_options o = {.text = &text,
                             .model = c->served_name,
                             .fingerprint = fingerprint,
                             .any_model = r->o.any_model,
                             .vocab = lar_engine_info_of(r->engine).vocab,
                             .context = p->context,
                             .samples_max = c->sequences < LAR_JOB_SAMPLES_MAX ? c->sequences : LAR_JOB_SAMPLES_MAX,
                             .prompts_max = c->queue,
                             .call_tokens_max = CALL_TOKENS_MAX,
                             .created = (int64_t)time(NULL)};
    if (!e) e = lar_serving_new(&o, &r->serving, d);
    return e;
}

static lar_error open_scheduler(lar_resident *r, const lar_resident_plan *p, lar_diag *d) {
    const lar_engine_config *c = &r->o.config->engine;
    lar_scheduler_options o = {.engine = r->engine,
                               .sequences_max = c->sequences,
                               .context_max = p->context,
                               .queue_max = c->queue,
                               .queue_ms_max = c->queue_wait_ms,
                               .gap_ms = c->gap_ms,
                               .pin_ms = c->pin_ms,
                               .niceness = (int)c->niceness};
    lar_error e = lar_scheduler_open(&o, &r->scheduler, d);
    return e ? e : lar_work_queue_new(READERS, &r->work, d);
}

static void log_plan(const lar_resident *r, const lar_resident_plan *p) {
    LAR_LOG(r->o.log, LAR_LOG_INFO, "engine_planned", LAR_F_CSTR("upstream", lar_resident_name(r)),
            LAR_F_CSTR("model", r->o.config->engine.model), LAR_F_INT("weights_bytes", (int64_t)p->story.plan.weights),
            LAR_F_INT("kv_bytes", (int64_t)p->story.plan.all),
            LAR_F_INT("scratch_bytes", (int64_t)p->story.plan.scratch),
            LAR_F_INT("total_bytes", (int64_t)p->story.plan.total),
            LAR_F_INT("available_bytes", (int64_t)p->story.request.memory));
}

static void log_open(const lar_resident *r, const lar_resident_plan *p) {
    lar_engine_info i = lar_engine_info_of(r->engine);
    lar_page_counts pages = lar_engine_pages(r->engine);
    LAR_LOG(r->o.log, LAR_LOG_INFO, "engine_open", LAR_F_CSTR("upstream", lar_resident_name(r)),
            LAR_F_CSTR("served_name", r->o.config->engine.served_name), LAR_F_CSTR("family", i.family),
            LAR_F_CSTR("kernels", i.kernels), LAR_F_INT("threads", i.threads), LAR_F_INT("context", p->context),
            LAR_F_INT("sequences", r->o.config->engine.sequences), LAR_F_CSTR("kv", r->o.config->engine.kv),
            LAR_F_INT("pages", pages.pages), LAR_F_INT("weights_bytes", (int64_t)(i.packed_bytes + i.mapped_bytes)),
            LAR_F_INT("kv_bytes", (int64_t)pages.bytes), LAR_F_INT("scratch_bytes", (int64_t)i.scratch_bytes));
}

static lar_error open_all(lar_resident *r, lar_diag *d) {
    lar_resident_plan *p = calloc(1, sizeof *p);
    uint64_t memory = 0;
    lar_error e = p ? lar_memory_left("", &memory, d) : LAR_NO_MEMORY;
    if (!e) e = lar_resident_plan_make(p, &r->o.config->engine, memory, d);
    if (!e) log_plan(r, p);
    if (!e) e = lar_resident_plan_fits(p, stderr, d);
    if (!e) e = open_engine(r, p, d);
    if (!e) e = open_serving(r, p, d);
    if (!e) e = open_scheduler(r, p, d);
    if (!e) log_open(r, p);
    free(p);
    return e;
}

lar_error lar_resident_open(const lar_resident_options *o, lar_resident **out, lar_diag *d) {
    *out = NULL;
    LAR_ASSERT(o->config->kind == LAR_UPSTREAM_KIND_ENGINE);
    lar_resident *r = calloc(1, sizeof *r);
    if (!r) return lar_fail(LAR_NO_MEMORY, d, "engine");
    r->o = *o;
    atomic_init(&r->preparing, 0);
    lar_error e = open_all(r, d);
    if (e) {
        lar_resident_close(r);
        return named(o->config, e, d);
    }
    *out = r;
    return LAR_OK;
}

void lar_resident_close(lar_resident *r) {
    if (!r) return;
    lar_work_queue_free(r->work);
    if (r->scheduler) lar_scheduler_close(r->scheduler);
    lar_serving_free(r->serving);
    lar_engine_close(r->engine);
    free(r);
}

lar_error lar_resident_check(const lar_upstream_config *config, lar_diag *d) {
    lar_resident_plan *p = calloc(1, sizeof *p);
    uint64_t memory = 0;
    lar_error e = p ? lar_memory_left("", &memory, d) : LAR_NO_MEMORY;
    if (!e) e = lar_resident_plan_make(p, &config->engine, memory, d);
    if (!e) e = lar_resident_plan_fits(p, stderr, d);
    if (!e) e = lar_engine_text_check(config->engine.model, d);
    free(p);
    return e ? named(config, e, d) : LAR_OK;
}

const char *lar_resident_name(const lar_resident *r) { return r->o.config->name; }
