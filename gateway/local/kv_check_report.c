/* larder kv-check: what is told of it (header: kv_check_report.h).
 * Called by kv_check_command.c; calls cJSON. One thread; blocks on the output.
 * Why changes with their error: a text is a sample, and a difference below its scatter says nothing.
 * Not here: the measuring (kv_check.c). */
#include "gateway/local/kv_check_report.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "gateway/local/report_json.h"

enum { ADVICE_BYTES = 2 * LAR_KV_CHECK_TEXT_BYTES };

/* -- the advice -------------------------------------------------------------------------------------------------- */

/* One line, a longer one where the text was too short to be sure; `out` of ADVICE_BYTES. */
static const char *advice_text(const lar_kv_check_story *s, char *out) {
    const lar_kv_check *c = s->check;
    const lar_kv_figures *a = &c->advice;
    int n = snprintf(out, ADVICE_BYTES, "fp8 as it is: perplexity %+.2f %% (+- %.2f) of bf16's, %s %g %%",
                     100 * c->fp8.change, 100 * c->fp8.error, c->kept ? "over" : "within", 100 * s->limit);
    size_t at = (size_t)n, room = ADVICE_BYTES - at;
    if (c->kept == c->layer_count) {
        (void)snprintf(out + at, room, ", and so with any of its layers at 16 bits but all: bf16.");
        return out;
    }
    if (!c->kept) n = snprintf(out + at, room, ": fine.");
    else
        n = snprintf(out + at, room, ". %s: %+.2f %% (+- %.2f), within it, with %u of %u layers at 16 bits.", a->kv,
                     100 * a->change, 100 * a->error, c->kept, c->layer_count);
    at += (size_t)n, room -= (size_t)n;
    (void)snprintf(out + at, room, " It keeps %" PRIu64 " bytes a token, bf16 %" PRIu64 ".%s", a->token_bytes,
                   c->bf16.token_bytes,
                   2 * a->error > s->limit ? " The text is too short to be sure: see the error of the change." : "");
    return out;
}

/* -- for people -------------------------------------------------------------------------------------------------- */

static void print_format(const lar_kv_check *c, const lar_kv_figures *f, FILE *to) {
    (void)fprintf(to, "%-24s %9" PRIu64 " %11.3f %+9.3f %% +- %-6.3f %10.7f %8.2f %%  ", f->kv, f->token_bytes,
                  f->perplexity, 100 * f->change, 100 * f->error, f->divergence, 100 * f->agreement);
    if (!c->answer) (void)fprintf(to, "none\n");
    else if (f->differs_at == c->answer) (void)fprintf(to, "the same %u tokens\n", c->answer);
    else (void)fprintf(to, "differs from token %u on\n", f->differs_at);
}

void lar_kv_check_print(const lar_kv_check_story *s, FILE *to) {
    const lar_kv_check *c = s->check;
    char advice[ADVICE_BYTES];
    (void)fprintf(to,
                  "%s: %s, %u layers; %" PRIu64 " tokens of %s in windows of %u\n"
                  "Against latents in bf16, with which the perplexity is %.3f:\n\n"
                  "%-24s %9s %11s %20s %10s %10s  %s\n",
                  s->model, s->info.family, s->info.layers, c->tokens, s->text, c->window, c->bf16.perplexity,
                  "formats", "bytes", "perplexity", "change", "KL, nats", "same top", "greedy answer");
    for (uint32_t i = 0; i < c->format_count; i++) print_format(c, &c->formats[i], to);
    (void)fprintf(
        to, "\nEach layer alone in fp8, all others in bf16; the most sensitive first:\n\nlayer    KL, nats   change\n");
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const lar_kv_figures *f = &c->layers[c->order[i]];
        (void)fprintf(to, "%5u  %10.7f %+7.3f %% +- %.3f\n", c->order[i], f->divergence, 100 * f->change,
                      100 * f->error);
    }
    (void)fprintf(to, "\n%s\n", advice_text(s, advice));
}

/* -- for programs ------------------------------------------------------------------------------------------------ */

static bool put(cJSON *to, const char *name, double value) { return cJSON_AddNumberToObject(to, name, value) != NULL; }

static bool put_figures(cJSON *to, const lar_kv_figures *f) {
    return cJSON_AddStringToObject(to, "kv", f->kv) && put(to, "bytes_per_token", (double)f->token_bytes) &&
           put(to, "perplexity", f->perplexity) && put(to, "perplexity_change_percent", 100 * f->change) &&
           put(to, "change_error_percent", 100 * f->error) && put(to, "kl_nats", f->divergence) &&
           put(to, "same_top_share", f->agreement);
}

static bool put_formats(cJSON *root, const lar_kv_check *c) {
    cJSON *list = cJSON_AddArrayToObject(root, "formats");
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < c->format_count; i++) {
        const lar_kv_figures *f = &c->formats[i];
        cJSON *item = cJSON_CreateObject();
        ok = item && cJSON_AddItemToArray(list, item) && put_figures(item, f);
        if (ok && f->differs_at < c->answer) ok = put(item, "greedy_differs_at", f->differs_at);
        else if (ok) ok = cJSON_AddNullToObject(item, "greedy_differs_at") != NULL;
    }
    return ok;
}

static bool put_layers(cJSON *root, const lar_kv_check *c) {
    cJSON *list = cJSON_AddArrayToObject(root, "layers");
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < c->layer_count; i++) {
        cJSON *item = cJSON_CreateObject();
        ok = item && cJSON_AddItemToArray(list, item) && put(item, "layer", i) && put_figures(item, &c->layers[i]);
    }
    return ok;
}

static bool put_advice(cJSON *root, const lar_kv_check_story *s) {
    const lar_kv_check *c = s->check;
    char text[ADVICE_BYTES];
    cJSON *to = cJSON_AddObjectToObject(root, "advice");
    bool ok = to && put_figures(to, &c->advice) && put(to, "limit_percent", 100 * s->limit) &&
              cJSON_AddStringToObject(to, "text", advice_text(s, text));
    cJSON *layers = ok ? cJSON_AddArrayToObject(to, "layers_at_16_bits") : NULL;
    ok = layers != NULL;
    for (uint32_t i = 0; ok && i < c->kept; i++)
        ok = cJSON_AddItemToArray(layers, cJSON_CreateNumber(c->order[i])) != 0;
    return ok;
}

lar_error lar_kv_check_print_json(const lar_kv_check_story *s, FILE *to) {
    const lar_kv_check *c = s->check;
    cJSON *root = cJSON_CreateObject(), *base = root ? cJSON_AddObjectToObject(root, "bf16") : NULL;
    bool whole = base && put_figures(base, &c->bf16) && put(root, "tokens", (double)c->tokens) &&
                 put(root, "window", c->window) && put(root, "greedy_tokens", c->answer) && put_formats(root, c) &&
                 put_layers(root, c) && put_advice(root, s);
    return lar_report_print(root, whole ? LAR_REPORT_WHOLE : LAR_REPORT_LACKS, to);
}
