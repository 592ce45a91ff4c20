/* A memory plan as JSON for programs (headers: plan_report_json.h, plan_report.h).
 * Called by plan_command.c and plan_serve.c; calls cJSON. One thread; blocks on the output.
 * Invariant: every number is whole and exact up to 2^53; sizes beyond that are no machine's. */
#include "gateway/local/plan_report_json.h"

#include "gateway/local/report_json.h"

static bool put_model(cJSON *root, const lar_plan_story *s) {
    const lar_plan_model *m = &s->model;
    const uint64_t *f = m->field;
    cJSON *to = cJSON_AddObjectToObject(root, "model");
    bool ok = to && cJSON_AddStringToObject(to, "name", s->name) && cJSON_AddStringToObject(to, "type", m->type) &&
              cJSON_AddStringToObject(to, "attention", m->latent ? "latent" : "heads") &&
              lar_report_put(to, "layers", f[LAR_PLAN_LAYERS]) && lar_report_put(to, "parameters", m->parameters) &&
              lar_report_put(to, "context_most", f[LAR_PLAN_CONTEXT]);
    if (m->latent)
        return ok && lar_report_put(to, "rank", f[LAR_PLAN_RANK]) && lar_report_put(to, "rope", f[LAR_PLAN_ROPE]);
    return ok && lar_report_put(to, "kv_heads", f[LAR_PLAN_KV_HEADS]) &&
           lar_report_put(to, "head_dim", f[LAR_PLAN_HEAD_DIM]) &&
           lar_report_put(to, "value_dim", f[LAR_PLAN_VALUE_DIM]);
}

static bool put_weights(cJSON *root, const lar_plan_story *s) {
    const lar_plan_model *m = &s->model;
    bool counted = !s->request.requantised && m->file_bytes;
    char type[LAR_PLAN_TYPE_BYTES];
    cJSON *to = cJSON_AddObjectToObject(root, "weights");
    bool ok = to && lar_report_put(to, "bytes", s->plan.weights) && cJSON_AddBoolToObject(to, "estimated", !counted);
    if (!counted) {
        lar_dtype t = s->request.requantised ? s->request.weights : m->stored;
        return ok && cJSON_AddStringToObject(to, "type", lar_plan_weights_name(t, type));
    }
    cJSON *types = ok ? cJSON_AddObjectToObject(to, "bytes_by_type") : NULL;
    ok = types != NULL;
    for (int t = 0; ok && t < LAR_DTYPE_COUNT; t++)
        if (m->type_bytes[t]) ok = lar_report_put(types, lar_plan_weights_name((lar_dtype)t, type), m->type_bytes[t]);
    return ok;
}

static bool put_cache(cJSON *root, const lar_plan_story *s) {
    const lar_kv_info *kv = lar_kv_info_of(s->request.kv);
    cJSON *to = cJSON_AddObjectToObject(root, "cache");
    bool alike = !s->kv;
    return to && cJSON_AddStringToObject(to, "format", alike ? kv->name : s->kv) &&
           lar_report_put(to, "tokens_per_page", LAR_PAGE_TOKENS) &&
           (!alike || lar_report_put(to, "bytes_per_token_and_layer", s->plan.layer)) &&
           lar_report_put(to, "bytes_per_token", s->plan.token) && lar_report_put(to, "context", s->request.context) &&
           lar_report_put(to, "sequences", s->request.sequences) &&
           lar_report_put(to, "request_bytes", s->plan.request) && lar_report_put(to, "bytes", s->plan.all);
}

static bool put_total(cJSON *root, const lar_plan_story *s) {
    static const char *const verdicts[] = {
        [LAR_PLAN_FITS] = "fits", [LAR_PLAN_TIGHT] = "tight", [LAR_PLAN_FULL] = "full", [LAR_PLAN_OVER] = "over"};
    const lar_plan *p = &s->plan;
    return lar_report_put(root, "scratch_bytes", p->scratch) && lar_report_put(root, "total_bytes", p->total) &&
           lar_report_put(root, "memory_bytes", s->request.memory) &&
           lar_report_put(root, "reserve_bytes", s->request.reserve) &&
           lar_report_put(root, "budget_bytes", p->budget) &&
           lar_report_put(root, "left_bytes", p->total > p->budget ? 0 : p->budget - p->total) &&
           lar_report_put(root, "missing_bytes", p->total > p->budget ? p->total - p->budget : 0) &&
           cJSON_AddStringToObject(root, "verdict", verdicts[p->verdict]) &&
           lar_report_put(root, "most_sequences", s->most_sequences) &&
           lar_report_put(root, "most_context", s->most_context);
}

static bool put_changes(cJSON *root, const lar_plan_story *s) {
    char text[LAR_PLAN_OPTIONS_BYTES];
    cJSON *list = cJSON_AddArrayToObject(root, "changes");
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < s->change_count; i++) {
        cJSON *item = cJSON_CreateObject();
        ok = item && cJSON_AddItemToArray(list, item) &&
             cJSON_AddStringToObject(item, "options", lar_plan_change_options(&s->changes[i], text)) &&
             lar_report_put(item, "total_bytes", s->changes[i].plan.total) &&
             lar_report_put(item, "budget_bytes", s->changes[i].plan.budget);
    }
    cJSON *notes = ok ? cJSON_AddArrayToObject(root, "notes") : NULL;
    ok = notes != NULL;
    for (uint32_t i = 0; ok && i < s->note_count; i++)
        ok = cJSON_AddItemToArray(notes, cJSON_CreateString(s->notes[i])) != 0;
    return ok;
}

cJSON *lar_plan_json(const lar_plan_story *s) {
    cJSON *root = cJSON_CreateObject();
    if (root && put_model(root, s) && put_weights(root, s) && put_cache(root, s) && put_total(root, s) &&
        put_changes(root, s))
        return root;
    cJSON_Delete(root);
    return NULL;
}

lar_error lar_plan_print_json(const lar_plan_story *s, FILE *to) {
    return lar_report_print(lar_plan_json(s), LAR_REPORT_WHOLE, to);
}
