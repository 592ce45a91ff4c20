/* Experts in a budget, of a running larder (header: stats_experts.h).
 * Called by stats.c; ask_admin.c asks. One thread; blocks as that does. Why the listener and not the store: they are
 * counts of a process, by model and layer, and no request's.
 * Invariants: 1. what answers may be anything: it is read by cJSON, and texts are made harmless. Memory: one answer. */
#include "gateway/commands/stats_experts.h"

#include "base/error.h"
#include "gateway/commands/ask_admin.h"
#include "gateway/commands/present.h"

int lar_stats_experts_ask(lar_stats_experts *s, const char *admin) {
    lar_diag d = {0};
    lar_buf body;
    lar_buf_init(&body, LAR_ASK_ADMIN_BYTES_MAX);
    lar_error e = lar_ask_admin(admin, "/experts", &body, &d);
    cJSON *o = e ? NULL : cJSON_ParseWithLength(body.ptr, body.len);
    lar_buf_release(&body);
    s->engines = cJSON_DetachItemFromObjectCaseSensitive(o, "engines");
    cJSON_Delete(o);
    if (!e && !cJSON_IsArray(s->engines))
        e = lar_fail(LAR_IO, &d, "%.100s answers something else than a list of engines", admin);
    if (e) (void)fprintf(stderr, "larder: %s\n", *d.text ? d.text : lar_error_text(e));
    return e == LAR_INVALID ? 2 : e ? 1 : 0;
}

void lar_stats_experts_release(lar_stats_experts *s) {
    cJSON_Delete(s->engines);
    s->engines = NULL;
}

void lar_stats_experts_json(const lar_stats_experts *s, cJSON *to) {
    if (s->engines) (void)cJSON_AddItemToObject(to, "expert_engines", cJSON_Duplicate(s->engines, true));
}

/* -- for people -------------------------------------------------------------------------------------------------- */

static double number(const cJSON *o, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static void print_layers(const cJSON *list, FILE *to) {
    lar_table *t = lar_table_new(4);
    const cJSON *l;
    lar_table_cell(t, "layer");
    lar_table_cell(t, "hits");
    lar_table_cell(t, "misses");
    lar_table_cell(t, "hit rate");
    cJSON_ArrayForEach(l, list) {
        double hits = number(l, "hits"), misses = number(l, "misses");
        lar_table_cell(t, "%.0f", number(l, "layer"));
        lar_table_cell(t, "%.0f", hits);
        lar_table_cell(t, "%.0f", misses);
        if (hits + misses > 0) lar_table_cell(t, "%.1f%%", percent(hits, hits + misses));
        else lar_table_cell(t, "-");
    }
    lar_table_print(t, to);
    lar_table_free(t);
}

static void print_engine(const cJSON *e, FILE *to) {
    const double mib = 1 << 20;
    char shown[LAR_SHOWN_BYTES];
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "upstream"));
    double hits = number(e, "hits"), used = hits + number(e, "misses");
    lar_present_name(lar_slice_cstr(name ? name : ""), shown);
    (void)fprintf(to, "\nexperts of %s since its start: %.1f of %.1f MiB in memory, %.0f of %.0f experts\n", shown,
                  number(e, "bytes") / mib, number(e, "all_bytes") / mib, number(e, "slots"), number(e, "experts"));
    (void)fprintf(to, "hit rate  %.1f%% of %.0f uses; %.1f MiB read, %.0f failures\n", percent(hits, used), used,
                  number(e, "bytes_read") / mib, number(e, "failures"));
    (void)fprintf(to, "waited    %.2f s of %.2f s in layers with experts (%.0f%%)\n", number(e, "stall_us") / 1e6,
                  number(e, "run_us") / 1e6, percent(number(e, "stall_us"), number(e, "run_us")));
    print_layers(cJSON_GetObjectItemCaseSensitive(e, "layers"), to);
    const cJSON *line;
    cJSON_ArrayForEach(line, cJSON_GetObjectItemCaseSensitive(e, "advice")) {
        lar_present_name(lar_slice_cstr(cJSON_IsString(line) ? line->valuestring : ""), shown);
        (void)fprintf(to, "advice    %s\n", shown);
    }
}

void lar_stats_experts_print(const lar_stats_experts *s, FILE *to) {
    const cJSON *e;
    if (!s->engines) return;
    if (!cJSON_GetArraySize(s->engines))
        (void)fprintf(to, "\nexperts   no model of that larder has a budget for them (engine.expert_bytes)\n");
    cJSON_ArrayForEach(e, s->engines) print_engine(e, to);
}
