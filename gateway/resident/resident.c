/* A model that this process serves: plan, serving, engine, scheduler (header: resident.h).
 * Called by serve.c at start and end; engine_pool.c uses what it holds. Main thread, or that of the loader where the
 * model is loaded on first need; blocks while it is read.
 * Order: does it fit -> tokenizer and template -> engine (weights, pages, scratch) -> scheduler. The end mirrors it.
 * Why the plan comes first, and once more before a later load: a machine that begins to swap answers nobody, and says
 * nothing of why. Not here: requests (engine_pool.c, gateway/serving), who waits for the load (resident_gate.c), the
 * sums of the plan (resident_plan.c). */
#include "gateway/resident/resident.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/ensure.h"
#include "gateway/resident/memory_left.h"
#include "gateway/resident/resident_parts.h"
#include "gateway/resident/resident_plan.h"
#include "gateway/resident/warmth.h"

enum { READERS = 2, CALL_TOKENS_MAX = 8192 };

/* CONFIG with the upstream's name in front; what is no fault of the configuration stays what it is. */
static lar_error named(const lar_upstream_config *u, lar_error e, lar_diag *d) {
    lar_diag why = *d;
    bool fault = e != LAR_NO_MEMORY && e != LAR_IO;
    return lar_fail(fault ? LAR_CONFIG : e, d, "upstream %.64s: %.220s", u->name,
                    *why.text ? why.text : lar_error_text(e));
}

typedef struct loading {
    lar_resident *r;
    uint32_t tenths; /* that were told */
} loading;

static void on_progress(void *context, uint32_t done, uint32_t total) {
    loading *l = context;
    uint32_t tenths = total ? done * 10 / total : 10;
    atomic_store(&l->r->load_total, total);
    atomic_store(&l->r->load_done, done);
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
                            .context = &l,
                            .stop = &r->stop};
    return lar_engine_open(&o, &r->engine, d);
}

/* What computes, so that who keeps answers knows when others may come: "larder-0.1.0-bf16". */
static lar_error open_serving(lar_resident *r, const lar_resident_plan *p, lar_diag *d) {
    const lar_engine_config *c = &r->o.config->engine;
    char fingerprint[64];
    lar_engine_text text = {0};
    (void)snprintf(fingerprint, sizeof fingerprint, "larder-" LARDER_VERSION "-%.32s", c->kv);
    lar_error e = lar_engine_text_open(c->model, &text, d);
    lar_serving_options o = {.text = &text,
                             .model = c->served_name,
                             .fingerprint = fingerprint,
                             .any_model = r->o.any_model,
                             .vocab = p->vocab,
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
    return lar_scheduler_open(&o, &r->scheduler, d);
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

static lar_error load(lar_resident *r, const lar_resident_plan *p, lar_diag *d) {
    lar_error e = open_engine(r, p, d);
    if (!e) e = open_scheduler(r, p, d);
    if (!e) log_open(r, p);
    return e;
}

static void unload(lar_resident *r) {
    if (r->scheduler) lar_scheduler_close(r->scheduler);
    lar_engine_close(r->engine);
    r->scheduler = NULL;
    r->engine = NULL;
}

static lar_error make_plan(lar_resident *r, lar_resident_plan *p, uint64_t promised, lar_diag *d) {
    uint64_t memory = 0;
    lar_error e = lar_memory_left("", &memory, d);
    if (!e) e = lar_resident_plan_make(p, &r->o.config->engine, memory > promised ? memory - promised : 1, d);
    if (!e) log_plan(r, p);
    return e;
}

/* -- on first need: the loader's thread --------------------------------------------------------------------------- */

/* The memory that was there at start may be gone. */
static lar_error load_now(lar_resident *r, lar_diag *d) {
    lar_resident_plan *p = calloc(1, sizeof *p);
    lar_error e = p ? make_plan(r, p, 0, d) : LAR_NO_MEMORY;
    if (!e) e = lar_resident_plan_fits(p, NULL, d);
    if (!e) e = load(r, p, d);
    free(p);
    return e;
}

static void on_load(lar_work *w) {
    lar_resident *r = (lar_resident *)(void *)((char *)w - offsetof(lar_resident, load));
    lar_diag d = {.text = ""};
    lar_error e = atomic_load(&r->stop) ? LAR_SHUTDOWN : load_now(r, &d);
    if (e) unload(r);
    lar_resident_settle(r, e);
    if (e && e != LAR_SHUTDOWN)
        LAR_LOG(r->o.log, LAR_LOG_ERROR, "engine_load_failed", LAR_F_CSTR("upstream", lar_resident_name(r)),
                LAR_F_CSTR("error", lar_error_name(e)), LAR_F_CSTR("detail", *d.text ? d.text : lar_error_text(e)));
}

/* -- open and close ----------------------------------------------------------------------------------------------- */

static lar_error open_all(lar_resident *r, lar_diag *d) {
    bool later = r->o.config->engine.start == LAR_ENGINE_START_NEED;
    lar_resident_plan *p = calloc(1, sizeof *p);
    lar_error e = p ? make_plan(r, p, r->o.promised_bytes, d) : LAR_NO_MEMORY;
    if (!e) e = lar_resident_plan_fits(p, stderr, d);
    if (!e) r->planned_bytes = p->story.plan.total;
    if (!e) e = open_serving(r, p, d);
    if (!e) e = lar_work_queue_new(READERS, &r->work, d);
    if (!e && later) e = lar_work_queue_new(1, &r->loader, d);
    if (!e && !later) e = load(r, p, d);
    if (!e && r->o.config->engine.keep_warm) e = lar_warmth_open(r, r->o.config->engine.keep_warm, &r->warmth, d);
    free(p);
    if (e || !later) return e;
    LAR_LOG(r->o.log, LAR_LOG_INFO, "engine_cold", LAR_F_CSTR("upstream", lar_resident_name(r)),
            LAR_F_CSTR("detail", "loaded with the first request that needs it"));
    return LAR_OK;
}

lar_error lar_resident_open(const lar_resident_options *o, lar_resident **out, lar_diag *d) {
    *out = NULL;
    LAR_ASSERT(o->config->kind == LAR_UPSTREAM_KIND_ENGINE);
    lar_resident *r = calloc(1, sizeof *r);
    if (!r) return lar_fail(LAR_NO_MEMORY, d, "engine");
    LAR_ASSERT(pthread_mutex_init(&r->lock, NULL) == 0 && pthread_cond_init(&r->news, NULL) == 0);
    r->o = *o;
    r->load.run = on_load;
    atomic_init(&r->preparing, 0);
    atomic_init(&r->state, o->config->engine.start == LAR_ENGINE_START_NEED ? LAR_RESIDENT_COLD : LAR_RESIDENT_READY);
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
    atomic_store(&r->stop, true);
    lar_work_queue_free(r->loader);
    lar_warmth_close(r->warmth);
    lar_work_queue_free(r->work);
    unload(r);
    lar_serving_free(r->serving);
    (void)pthread_cond_destroy(&r->news);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

lar_error lar_resident_check(const lar_upstream_config *config, lar_diag *d) {
    lar_resident_plan *p = calloc(1, sizeof *p);
    lar_engine_text text = {0};
    uint64_t memory = 0;
    lar_error e = p ? lar_memory_left("", &memory, d) : LAR_NO_MEMORY;
    if (!e) e = lar_resident_plan_make(p, &config->engine, memory, d);
    if (!e) e = lar_resident_plan_fits(p, stderr, d);
    if (!e) e = lar_engine_text_open(config->engine.model, &text, d);
    lar_engine_text_release(&text);
    free(p);
    return e ? named(config, e, d) : LAR_OK;
}

bool lar_resident_prefix_seen(lar_resident *r, const lar_digest *scope, uint64_t prefix, uint32_t seen) {
    return r->warmth && lar_warmth_note(r->warmth, scope, prefix, seen);
}

void lar_resident_prefix_text(lar_resident *r, const lar_digest *scope, uint64_t prefix, lar_slice body) {
    if (r->warmth) lar_warmth_text(r->warmth, scope, prefix, body);
}

const char *lar_resident_name(const lar_resident *r) { return r->o.config->name; }
uint64_t lar_resident_planned(const lar_resident *r) { return r->planned_bytes; }
