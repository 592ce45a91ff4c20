/* larder plan --config: what the models of a configuration will take (header: plan_serve.h).
 * Called by plan_command.c; resident_plan.c computes, as it does for `larder serve`, which opens the models in the same
 * order, each in what the ones before it have left. One thread; blocks on the models' headers.
 * Why not a sum of `larder plan --model`: the configuration has defaults of its own, and only one place knows them.
 * Memory: one plan at a time. */
#include "gateway/local/plan_serve.h"

#include <stdlib.h>

#include "gateway/local/plan_report_json.h"
#include "gateway/local/report_json.h"
#include "gateway/resident/memory_left.h"
#include "gateway/resident/resident_plan.h"
#include "store/page_segments.h"

typedef struct all_plans {
    uint64_t memory, total;
    uint32_t models, over; /* planned; of these, those that do not fit */
    bool spills, json;
    cJSON *list; /* of plans; NULL: a table */
} all_plans;

static lar_error list_plan(const all_plans *a, const char *name, const lar_plan_story *s) {
    cJSON *one = cJSON_CreateObject(), *plan = one ? lar_plan_json(s) : NULL;
    bool ok = plan && cJSON_AddStringToObject(one, "name", name) && cJSON_AddItemToObject(one, "plan", plan);
    if (plan && !ok) cJSON_Delete(plan);
    if (ok && cJSON_AddItemToArray(a->list, one)) return LAR_OK;
    cJSON_Delete(one);
    return LAR_NO_MEMORY;
}

static lar_error plan_one(all_plans *a, lar_resident_plan *p, const lar_upstream_config *u, lar_diag *d) {
    lar_plan_story *s = &p->story;
    uint64_t left = a->memory > a->total ? a->memory - a->total : 1;
    *p = (lar_resident_plan){0};
    lar_error e = lar_resident_plan_make(p, &u->engine, left, d);
    if (e) return e;
    a->models++;
    a->total += s->plan.total;
    a->over += s->plan.verdict == LAR_PLAN_OVER;
    a->spills |= u->engine.spill_bytes > 0;
    if (a->json) return list_plan(a, u->name, s);
    (void)printf("upstream  %.100s\n", u->name);
    lar_plan_print(s, stdout);
    (void)printf("\n");
    return LAR_OK;
}

static lar_error plan_all(all_plans *a, const lar_config *c) {
    lar_error e = LAR_OK;
    lar_resident_plan *p = malloc(sizeof *p);
    if (!p) return LAR_NO_MEMORY;
    uint32_t n = c->upstream_count;
    for (uint32_t k = 0; !e && k < 2 * n; k++) { /* those that take their memory at start come first */
        const lar_upstream_config *u = &c->upstreams[k % n];
        lar_diag d = {0};
        if (u->kind != LAR_UPSTREAM_KIND_ENGINE || (u->engine.start == LAR_ENGINE_START_NEED) != (k >= n)) continue;
        e = plan_one(a, p, u, &d);
        if (e) (void)fprintf(stderr, "larder: upstream %.64s: %.220s\n", u->name, *d.text ? d.text : lar_error_text(e));
    }
    free(p);
    return e;
}

static void print_end(const all_plans *a) {
    const double mib = 1 << 20;
    if (!a->models) {
        (void)printf("No upstream of kind engine: larder serve reserves nothing for models.\n");
        return;
    }
    (void)printf("all       %.1f MiB for %u model(s), of %.1f MiB\n", (double)a->total / mib, a->models,
                 (double)a->memory / mib);
    if (a->spills)
        (void)printf("Note: engine.spill adds up to %.0f MiB, once, for pages on their way to the disk.\n",
                     (double)LAR_PAGE_SEGMENTS_RING_BYTES / mib);
}

static lar_error print_json_end(const all_plans *a, cJSON *root) {
    bool ok = lar_report_put(root, "models", a->models) && lar_report_put(root, "total_bytes", a->total) &&
              lar_report_put(root, "memory_bytes", a->memory) && cJSON_AddBoolToObject(root, "fits", !a->over);
    return lar_report_print(root, ok ? LAR_REPORT_WHOLE : LAR_REPORT_LACKS, stdout);
}

static lar_error tell(all_plans *a, const lar_config *c) {
    cJSON *root = a->json ? cJSON_CreateObject() : NULL;
    a->list = root ? cJSON_AddArrayToObject(root, "upstreams") : NULL;
    lar_error e = a->json && !a->list ? LAR_NO_MEMORY : plan_all(a, c);
    if (e) cJSON_Delete(root);
    else if (root) e = print_json_end(a, root);
    else print_end(a);
    return e;
}

int lar_plan_serve(const char *config, uint64_t memory, bool json) {
    lar_config *c = NULL;
    all_plans a = {.memory = memory, .json = json};
    lar_diag d = {0};
    lar_error e = lar_config_load(config, NULL, 0, &c, &d);
    if (!e && !memory) e = lar_memory_left("", &a.memory, &d);
    if (e) (void)fprintf(stderr, "larder: %s\n", *d.text ? d.text : lar_error_text(e));
    if (e) return lar_config_free(c), e == LAR_CONFIG ? LAR_PLAN_SERVE_INVALID : 1;
    e = tell(&a, c);
    lar_config_free(c);
    return e || a.over;
}
