/* The drill's report (header: drill_report.h). Called by drill.c; blocks on the output only. */
#include "gateway/drill/drill_report.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "gateway/commands/present.h"

static const char columns[] = "%-10s %-9s %-22s %-17s %-6s %-16s %6s %9s %9s %5s %5s  %-6s %s\n";

static const char *answered_by(const lar_drill_result *r) {
    if (r->verdict.by == LAR_DRILL_NONE) return "-";
    return r->scene->line->targets[r->verdict.by].name;
}

/* "timeouts.idle 300s played as 1.255s", where the scene waits. */
static void add_wait(const lar_drill_scene *s, lar_buf *out, lar_error *e) {
    char configured[LAR_DRILL_TIME_BYTES], played[LAR_DRILL_TIME_BYTES];
    if (!s->wait.option || s->wait.configured_ms == s->wait.played_ms || *e) return;
    *e = lar_buf_printf(out, "%s%s %s played as %s", out->len ? "; " : "", s->wait.option,
                        lar_drill_time(s->wait.configured_ms, configured), lar_drill_time(s->wait.played_ms, played));
}

static lar_error remark(const lar_drill_result *r, lar_buf *out) {
    lar_error e = lar_buf_printf(out, "%s", r->verdict.why);
    if (!e && r->scene->scenario->where == LAR_DRILL_BEFORE)
        e = lar_buf_printf(out, "%sto %s", out->len ? "; " : "", r->scene->line->targets[r->scene->target].name);
    add_wait(r->scene, out, &e);
    return e ? e : lar_buf_add(out, "", 1);
}

void lar_drill_print_line(const lar_drill_result *r, FILE *out) {
    char first[LAR_DURATION_BYTES], total[LAR_DURATION_BYTES], lost[16], wrong[24] = "-", status[8] = "-";
    const lar_drill_scenario *s = r->scene->scenario;
    lar_buf text;
    lar_buf_init(&text, 4096);
    lar_present_duration(r->first_us, first);
    lar_present_duration(r->total_us, total);
    (void)snprintf(lost, sizeof lost, "%u", (unsigned)r->verdict.lost);
    if (r->verdict.wrong >= 0) (void)snprintf(wrong, sizeof wrong, "%lld", (long long)r->verdict.wrong);
    if (r->status) (void)snprintf(status, sizeof status, "%u", (unsigned)r->status);
    bool told = remark(r, &text) == LAR_OK;
    (void)fprintf(out, columns, r->scene->line->label, lar_protocol_name(r->scene->line->protocol), s->name, s->moment,
                  r->scene->streamed ? "stream" : "plain", answered_by(r), status, first, total, lost, wrong,
                  r->verdict.held ? "ok" : "FAILED", told ? text.ptr : r->verdict.why);
    (void)fflush(out); /* a scene may take its time */
    lar_buf_release(&text);
}

static void print_chain(const lar_drill_line *l, FILE *out) {
    char model[LAR_SHOWN_BYTES];
    lar_present_name(lar_slice_cstr(l->model), model);
    (void)fprintf(out, "%s %s, model %s:", l->label, lar_drill_path(l->protocol), model);
    for (uint32_t t = 0; t < l->target_count; t++) {
        const lar_drill_target *at = &l->targets[t];
        lar_present_name(lar_slice_cstr(at->model), model);
        (void)fprintf(out, "%s %s", t ? ", then" : "", at->name);
        if (at->members > 1) (void)fprintf(out, " (%u replicas)", (unsigned)at->members);
        if (strcmp(at->model, l->model) != 0) (void)fprintf(out, " as %s", model);
        if (at->cannot) (void)fprintf(out, " (never)");
    }
    if (l->target_count == 1) (void)fprintf(out, ", no fallback");
    (void)fprintf(out, "\n");
}

void lar_drill_print_head(const lar_drill_plan *p, FILE *out) {
    (void)fprintf(out, "Upstreams of kind http are stand-ins on 127.0.0.1: nothing leaves this machine. Long waits are "
                       "played shorter.\n");
    for (uint32_t i = 0; i < p->line_count; i++) print_chain(&p->lines[i], out);
    (void)fwrite(p->notes.ptr ? p->notes.ptr : "", 1, p->notes.len, out);
    (void)fprintf(out, "\n");
    (void)fprintf(out, columns, "route", "endpoint", "scenario", "moment", "form", "answered by", "status", "first",
                  "total", "lost", "wrong", "", "");
}

/* Each reason once, with how many scenes it failed: a chain that is wrong fails many. */
static void print_reasons(const lar_drill_result *results, uint32_t count, FILE *out) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t same = 0, before = 0;
        for (uint32_t k = 0; k < count; k++) {
            bool equal = !results[k].verdict.held && strcmp(results[k].verdict.why, results[i].verdict.why) == 0;
            same += equal;
            before += equal && k < i;
        }
        if (!results[i].verdict.held && !before)
            (void)fprintf(out, "FAILED %u %s: %s\n", (unsigned)same, same == 1 ? "scene" : "scenes",
                          results[i].verdict.why);
    }
}

void lar_drill_print_end(const lar_drill_result *results, const lar_drill_tally *t, FILE *out) {
    (void)fprintf(out, "\n");
    print_reasons(results, t->held + t->failed, out);
    (void)fprintf(out, "%u scenes held", (unsigned)t->held);
    if (t->alone) (void)fprintf(out, " (in %u of them nobody answers in place of the upstream)", (unsigned)t->alone);
    (void)fprintf(out, ", %u FAILED\n", (unsigned)t->failed);
}

/* -- for programs ------------------------------------------------------------------------------------------------- */

static bool add_text(cJSON *o, const char *name, const char *text) {
    return cJSON_AddStringToObject(o, name, text) != NULL;
}

/* Less than 0: null. */
static bool add_number(cJSON *o, const char *name, int64_t n) {
    return n < 0 ? cJSON_AddNullToObject(o, name) != NULL : cJSON_AddNumberToObject(o, name, (double)n) != NULL;
}

static bool add_result(cJSON *list, const lar_drill_result *r) {
    const lar_drill_scene *s = r->scene;
    cJSON *o = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(list, o)) {
        cJSON_Delete(o);
        return false;
    }
    bool ok = add_text(o, "route", s->line->label) && add_text(o, "endpoint", lar_drill_path(s->line->protocol)) &&
              add_text(o, "scenario", s->scenario->name) && add_text(o, "text", s->scenario->text) &&
              add_text(o, "moment", s->scenario->moment) && cJSON_AddBoolToObject(o, "stream", s->streamed) != NULL;
    ok = ok && (r->verdict.by == LAR_DRILL_NONE ? cJSON_AddNullToObject(o, "answered_by") != NULL
                                                : add_text(o, "answered_by", answered_by(r)));
    if (s->scenario->where == LAR_DRILL_BEFORE) ok = ok && add_text(o, "fallback", s->line->targets[s->target].name);
    ok = ok && add_number(o, "status", r->status ? r->status : -1) && add_text(o, "failure", r->failure) &&
         add_number(o, "first_us", r->first_us) && add_number(o, "total_us", r->total_us) &&
         add_number(o, "tokens_lost", r->verdict.lost) && add_number(o, "bytes_wrong", r->verdict.wrong) &&
         cJSON_AddBoolToObject(o, "ok", r->verdict.held) != NULL &&
         cJSON_AddBoolToObject(o, "no_fallback", r->alone) != NULL && add_text(o, "why", r->verdict.why);
    if (!ok || !s->wait.option) return ok;
    cJSON *wait = cJSON_AddObjectToObject(o, "wait");
    return wait && add_text(wait, "option", s->wait.option) &&
           add_number(wait, "configured_ms", s->wait.configured_ms) && add_number(wait, "played_ms", s->wait.played_ms);
}

static bool add_notes(cJSON *root, const lar_drill_plan *p) {
    cJSON *list = cJSON_AddArrayToObject(root, "notes");
    lar_buf line;
    lar_buf_init(&line, 4096);
    bool ok = list != NULL;
    for (size_t at = 0, end; ok && at < p->notes.len; at = end + 1) {
        const char *lf = memchr(p->notes.ptr + at, '\n', p->notes.len - at);
        end = lf ? (size_t)(lf - p->notes.ptr) : p->notes.len;
        line.len = 0;
        ok = lar_buf_printf(&line, "%.*s", (int)(end - at), p->notes.ptr + at) == LAR_OK &&
             lar_buf_add(&line, "", 1) == LAR_OK;
        ok = ok && cJSON_AddItemToArray(list, cJSON_CreateString(line.ptr));
    }
    lar_buf_release(&line);
    return ok;
}

lar_error lar_drill_print_json(const lar_drill_plan *p, const lar_drill_result *results, const lar_drill_tally *t,
                               FILE *out) {
    cJSON *root = cJSON_CreateObject();
    bool ok = root && add_notes(root, p);
    cJSON *list = ok ? cJSON_AddArrayToObject(root, "scenes") : NULL;
    ok = list != NULL;
    for (uint32_t i = 0; ok && i < t->held + t->failed; i++) ok = add_result(list, &results[i]);
    ok = ok && add_number(root, "held", t->held) && add_number(root, "no_fallback", t->alone) &&
         add_number(root, "failed", t->failed);
    if (!ok) {
        cJSON_Delete(root);
        root = NULL;
    }
    return lar_present_document(root, out);
}
