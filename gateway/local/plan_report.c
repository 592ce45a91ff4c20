/* A memory plan as a table for people (header: plan_report.h).
 * Called by plan_command.c; calls nobody. One thread; blocks on the output.
 * Why sizes in powers of two: memory is sold and reported so; bytes a token are exact, as they get multiplied.
 * Not here: JSON (plan_report_json.c), the sums (engine/plan). */
#include "gateway/local/plan_report.h"

#include <ctype.h>
#include <inttypes.h>

enum { SIZE_BYTES = 32 };

/* "1 GiB", "3.4 GiB", "432 MiB", "656 bytes" */
static const char *size_text(uint64_t bytes, char out[SIZE_BYTES]) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes;
    int unit = 0;
    while (size >= 1024 && unit < 6) size /= 1024, unit++;
    /* Three digits tell 431.6 from 432, and 1 GiB is not 1.0. */
    bool whole = size == (double)(uint64_t)size || size >= 999.95;
    (void)snprintf(out, SIZE_BYTES, whole ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return out;
}

const char *lar_plan_weights_name(lar_dtype type, char out[LAR_PLAN_TYPE_BYTES]) {
    const char *name = type == LAR_DTYPE_F8_E4M3 ? "fp8" : lar_dtype_info_of(type)->name;
    size_t i = 0;
    for (; name[i] && i < LAR_PLAN_TYPE_BYTES - 1; i++) out[i] = (char)tolower((unsigned char)name[i]);
    out[i] = 0;
    return out;
}

const char *lar_plan_change_options(const lar_plan_change *c, char out[LAR_PLAN_OPTIONS_BYTES]) {
    char type[LAR_PLAN_TYPE_BYTES];
    const lar_plan_request *r = &c->request;
    size_t n = 0, max = LAR_PLAN_OPTIONS_BYTES;
    *out = 0;
    if (c->what & LAR_PLAN_CHANGE_SEQUENCES)
        n += (size_t)snprintf(out + n, max - n, " --sequences %" PRIu64, r->sequences);
    if (c->what & LAR_PLAN_CHANGE_CONTEXT) n += (size_t)snprintf(out + n, max - n, " --context %" PRIu64, r->context);
    if (c->what & LAR_PLAN_CHANGE_KV) n += (size_t)snprintf(out + n, max - n, " --kv %s", lar_kv_info_of(r->kv)->name);
    if (c->what & LAR_PLAN_CHANGE_WEIGHTS)
        n += (size_t)snprintf(out + n, max - n, " --weights %s", lar_plan_weights_name(r->weights, type));
    if (c->what & LAR_PLAN_CHANGE_MEMORY)
        n += (size_t)snprintf(out + n, max - n, " --memory %" PRIu64 "G", r->memory >> 30);
    return n ? out + 1 : out;
}

static void print_model(const lar_plan_story *s, FILE *to) {
    const lar_plan_model *m = &s->model;
    const uint64_t *f = m->field;
    (void)fprintf(to, "model     %s%s%s%s, %" PRIu64 " layers, ", s->name, *s->name && *m->type ? ": " : "", m->type,
                  *s->name || *m->type ? "" : "by numbers", f[LAR_PLAN_LAYERS]);
    if (m->latent)
        (void)fprintf(to, "latent attention of %" PRIu64 " + %" PRIu64 " values", f[LAR_PLAN_RANK], f[LAR_PLAN_ROPE]);
    else
        (void)fprintf(to, "%" PRIu64 " KV heads of %" PRIu64 " + %" PRIu64 " values", f[LAR_PLAN_KV_HEADS],
                      f[LAR_PLAN_HEAD_DIM], f[LAR_PLAN_VALUE_DIM]);
    (void)fprintf(to, "\n");
}

static void print_weights(const lar_plan_story *s, FILE *to) {
    const lar_plan_model *m = &s->model;
    char size[SIZE_BYTES], type[LAR_PLAN_TYPE_BYTES];
    if (!s->plan.weights) return (void)fprintf(to, "weights   not known, not counted (--parameters)\n");
    bool billions = m->parameters >= 1000000000;
    (void)fprintf(to, "weights   %-10s  %.1f %c parameters", size_text(s->plan.weights, size),
                  (double)m->parameters / (billions ? 1e9 : 1e6), billions ? 'B' : 'M');
    if (s->request.requantised || !m->file_bytes) {
        lar_dtype t = s->request.requantised ? s->request.weights : m->stored;
        return (void)fprintf(to, " as %s, estimated\n", lar_plan_weights_name(t, type));
    }
    (void)fprintf(to, " in %" PRIu32 " file(s)", m->parts);
    for (int t = 0; t < LAR_DTYPE_COUNT; t++)
        if (m->type_bytes[t])
            (void)fprintf(to, ", %s %s", lar_plan_weights_name((lar_dtype)t, type), size_text(m->type_bytes[t], size));
    (void)fprintf(to, "\n");
}

static void print_cache(const lar_plan_story *s, FILE *to) {
    const lar_kv_info *kv = lar_kv_info_of(s->request.kv);
    char size[SIZE_BYTES];
    uint64_t layers = s->model.field[LAR_PLAN_LAYERS] - s->model.layers_stateless;
    (void)fprintf(to, "a token   %-10" PRIu64 "  bytes: %" PRIu64 " layers", s->plan.token, layers);
    if (s->kv) (void)fprintf(to, " in %s", s->kv);
    else (void)fprintf(to, " x %" PRIu64 ", %s (%s)", s->plan.layer, kv->name, kv->text);
    (void)fprintf(to, ", pages of %d tokens\n", LAR_PAGE_TOKENS);
    (void)fprintf(to, "a request %-10s  of %" PRIu64 " tokens, prompt and answer\n", size_text(s->plan.request, size),
                  s->request.context);
    (void)fprintf(to, "requests  %-10s  for %" PRIu64 " at the same time\n", size_text(s->plan.all, size),
                  s->request.sequences);
}

static void print_total(const lar_plan_story *s, FILE *to) {
    char size[SIZE_BYTES], kept[SIZE_BYTES], budget[SIZE_BYTES];
    const lar_plan *p = &s->plan;
    if (p->scratch)
        (void)fprintf(to, "scratch   %-10s  %sfor prompts in pieces of %d tokens\n", size_text(p->scratch, size),
                      s->request.scratch ? "" : "estimated, ",
                      s->request.piece ? (int)s->request.piece : LAR_PLAN_PIECE);
    (void)fprintf(to, "total     %s\n", size_text(p->total, size));
    (void)fprintf(to, "memory    %-10s  of which %s stay free for the system: %s to use\n",
                  size_text(s->request.memory, size), size_text(s->request.reserve, kept),
                  size_text(p->budget, budget));
    bool over = p->total > p->budget;
    (void)fprintf(to, "%s %-10s  %.0f %% used\n\n", over ? "missing  " : "left     ",
                  size_text(over ? p->total - p->budget : p->budget - p->total, size),
                  100 * (double)p->total / (double)p->budget);
}

static void print_most(const lar_plan_story *s, FILE *to) {
    (void)fprintf(to,
                  "There is room for %" PRIu64 " requests of %" PRIu64 " tokens, or for %" PRIu64 " of up to %" PRIu64
                  " tokens%s.\n",
                  s->most_sequences, s->request.context, s->request.sequences, s->most_context,
                  s->most_context + 64 > s->model.field[LAR_PLAN_CONTEXT] && s->model.field[LAR_PLAN_CONTEXT]
                      ? ", the model's limit"
                      : "");
}

static void print_changes(const lar_plan_story *s, FILE *to) {
    char size[SIZE_BYTES], budget[SIZE_BYTES], options[LAR_PLAN_OPTIONS_BYTES];
    if (!s->change_count) return (void)fprintf(to, "Nothing here makes it fit; take a smaller model.\n");
    (void)fprintf(to, "What makes it fit:\n");
    for (uint32_t i = 0; i < s->change_count; i++) {
        const lar_plan_change *c = &s->changes[i];
        (void)fprintf(to, "  %-44s  %s of %s\n", lar_plan_change_options(c, options), size_text(c->plan.total, size),
                      size_text(c->plan.budget, budget));
    }
}

void lar_plan_print(const lar_plan_story *s, FILE *to) {
    print_model(s, to);
    print_weights(s, to);
    print_cache(s, to);
    print_total(s, to);
    switch (s->plan.verdict) {
    case LAR_PLAN_FITS: (void)fprintf(to, "It fits. "); break;
    case LAR_PLAN_TIGHT: (void)fprintf(to, "It fits, but over 90 %% is in use. "); break;
    case LAR_PLAN_FULL:
        (void)fprintf(to, "It just fits: over 95 %% is in use, and where anything else grows, the machine swaps. ");
        break;
    case LAR_PLAN_OVER: (void)fprintf(to, "It does not fit. "); break;
    }
    if (s->plan.verdict == LAR_PLAN_OVER) print_changes(s, to);
    else print_most(s, to);
    for (uint32_t i = 0; i < s->note_count; i++) (void)fprintf(to, "Note: %s.\n", s->notes[i]);
}
