/* A model as it is served: what of it does not change from request to request; and which paths ask for what.
 * Called when an upstream of kind engine is opened, and by whoever routes; any thread; never blocks.
 * Memory: two names, and the model's text side that it takes over. */
#include "gateway/serving/serving.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "gateway/serving/ask.h"

static bool is_name(const char *text) {
    const unsigned char *p = (const unsigned char *)text, *end = p + (text ? strlen(text) : 0);
    if (p == end) return false;
    for (size_t n; p < end; p += n)
        if ((n = lar_utf8_sequence(p, end)) == 0) return false;
    return true;
}

static void find_ends(lar_serving *s) {
    const lar_model_generation *g = &s->text.generation;
    uint32_t eos = lar_tokenizer_eos(s->text.tokenizer);
    bool known = eos == LAR_TOKEN_NONE || eos >= s->vocab;
    for (uint32_t i = 0; i < g->end_count; i++) {
        known = known || g->ends[i] == eos;
        if (g->ends[i] < s->vocab) s->ends[s->end_count++] = g->ends[i];
    }
    if (!known) s->ends[s->end_count++] = eos;
}

static void look_at_texts(lar_serving *s) {
    const lar_template *chat = s->text.chat;
    find_ends(s);
    s->token_bytes_max = lar_tokenizer_longest(s->text.tokenizer);
    s->thinks = lar_tokenizer_find(s->text.tokenizer, LAR_SLICE(LAR_THINK_END)) != LAR_TOKEN_NONE;
    s->takes_tools = chat && lar_template_reads(chat, "tools");
    bool objects = chat && lar_template_wants_objects(chat);
    s->arguments = objects ? LAR_TEMPLATE_ARGUMENTS_OBJECT : LAR_TEMPLATE_ARGUMENTS_AS_IS;
}

lar_error lar_serving_new(const lar_serving_options *o, lar_serving **out, lar_diag *d) {
    lar_engine_text text = *o->text;
    *out = NULL;
    memset(o->text, 0, sizeof *o->text);
    lar_serving *s = calloc(1, sizeof *s);
    if (!s || !is_name(o->model) || !is_name(o->fingerprint)) {
        lar_engine_text_release(&text);
        free(s);
        if (!s) return lar_fail(LAR_NO_MEMORY, d, "no memory to serve a model");
        return lar_fail(LAR_INVALID, d, "a served model's name is empty or no UTF-8");
    }
    s->text = text;
    s->model = strdup(o->model);
    s->fingerprint = strdup(o->fingerprint);
    s->any_model = o->any_model;
    s->vocab = o->vocab, s->context = o->context, s->call_tokens_max = o->call_tokens_max;
    bool fewer = o->samples_max && o->samples_max < LAR_JOB_SAMPLES_MAX;
    s->samples_max = fewer ? o->samples_max : LAR_JOB_SAMPLES_MAX;
    bool little = o->prompts_max && o->prompts_max < LAR_ASK_PROMPTS_MAX;
    s->prompts_max = little ? o->prompts_max : LAR_ASK_PROMPTS_MAX;
    s->created = o->created;
    if (!s->model || !s->fingerprint) {
        lar_serving_free(s);
        return lar_fail(LAR_NO_MEMORY, d, "no memory to serve a model");
    }
    look_at_texts(s);
    *out = s;
    return LAR_OK;
}

void lar_serving_free(lar_serving *s) {
    if (!s) return;
    lar_engine_text_release(&s->text);
    free(s->model);
    free(s->fingerprint);
    free(s);
}

lar_error lar_serving_find(lar_slice method, lar_slice path, lar_serving_endpoint *out, lar_slice *id) {
    static const struct {
        const char *path, *method;
        lar_serving_endpoint endpoint;
    } rows[] = {
        {"/chat/completions", "POST", LAR_SERVING_CHAT}, {"/completions", "POST", LAR_SERVING_COMPLETIONS},
        {"/tokenize", "POST", LAR_SERVING_TOKENIZE},     {"/detokenize", "POST", LAR_SERVING_DETOKENIZE},
        {"/models", "GET", LAR_SERVING_MODELS},
    };
    lar_slice models = LAR_SLICE("/models/");
    *id = LAR_SLICE("");
    if (lar_slice_starts(path, LAR_SLICE("/v1/"))) path = lar_slice_of(path.ptr + 3, path.len - 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (lar_slice_eq_cstr(path, rows[i].path)) {
            *out = rows[i].endpoint;
            return lar_slice_eq_cstr(method, rows[i].method) ? LAR_OK : LAR_METHOD;
        }
    if (!lar_slice_starts(path, models) || path.len == models.len) return LAR_NO_ROUTE;
    *id = lar_slice_of(path.ptr + models.len, path.len - models.len);
    *out = LAR_SERVING_MODEL;
    return lar_slice_eq_cstr(method, "GET") ? LAR_OK : LAR_METHOD;
}
