/* How a model wants to be generated from.
 * Flow: whoever opens a model for text calls. Any thread; blocks on the disk. Memory: the text while it is read.
 * Why several ends: chat models stop at the end of a turn and at the end of a text (GLM has three).
 * Sources: transformers' generation_config.json; llama.cpp's keys of metadata. */
#include "engine/model/model_generation.h"

#include <string.h>

#include "base/json.h"

enum { TEXT_BYTES_MAX = 8 << 20 };

static lar_error add_end(lar_model_generation *g, uint64_t id, lar_diag *d) {
    for (uint32_t i = 0; i < g->end_count; i++)
        if (g->ends[i] == id) return LAR_OK;
    if (id > UINT32_MAX) return lar_fail(LAR_INVALID, d, "eos_token_id %llu is no id", (unsigned long long)id);
    if (g->end_count == LAR_MODEL_GENERATION_ENDS_MAX)
        return lar_fail(LAR_INVALID, d, "more than %d ids in eos_token_id", LAR_MODEL_GENERATION_ENDS_MAX);
    g->ends[g->end_count++] = (uint32_t)id;
    return LAR_OK;
}

/* A number, a list of numbers, or null. */
static lar_error read_ends(const lar_json *j, lar_model_generation *g, lar_diag *d) {
    uint32_t node = lar_json_get_last(j, 0, "eos_token_id");
    uint64_t id;
    if (node == LAR_JSON_NONE || lar_json_is(j, node, LAR_JSON_NULL)) return LAR_OK;
    if (lar_json_u64(j, node, &id)) return add_end(g, id, d);
    bool list = lar_json_is(j, node, LAR_JSON_ARRAY);
    for (uint32_t n = lar_json_first(j, node); list && n != LAR_JSON_NONE; n = lar_json_after(j, node, n)) {
        if (!lar_json_u64(j, n, &id)) list = false;
        lar_error e = list ? add_end(g, id, d) : LAR_OK;
        if (e) return e;
    }
    return list ? LAR_OK : lar_fail(LAR_INVALID, d, "eos_token_id is no whole number and no list of them");
}

static lar_error read_sampling(const lar_json *j, lar_model_generation *g, lar_diag *d) {
    double top_k = 0;
    const struct {
        const char *name;
        double *value, least, most;
    } rows[] = {{"temperature", &g->sampling.temperature, 0, 100},
                {"top_p", &g->sampling.top_p, 1e-9, 1},
                {"top_k", &top_k, 0, 1 << 22},
                {"repetition_penalty", &g->sampling.repetition, 1e-9, 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t node = lar_json_get_last(j, 0, rows[i].name);
        if (node == LAR_JSON_NONE || lar_json_is(j, node, LAR_JSON_NULL)) continue;
        if (!lar_json_double(j, node, rows[i].value) ||
            !(*rows[i].value >= rows[i].least && *rows[i].value <= rows[i].most))
            return lar_fail(LAR_INVALID, d, "%s is no number from %g to %g", rows[i].name, rows[i].least, rows[i].most);
    }
    g->sampling.top_k = (uint32_t)top_k;
    if (lar_json_is(j, lar_json_get_last(j, 0, "do_sample"), LAR_JSON_FALSE)) g->sampling.temperature = 0;
    return LAR_OK;
}

typedef lar_error (*reader)(const lar_json *j, lar_model_generation *g, lar_diag *d);

static lar_error read_file(const lar_model_files *f, const char *name, const reader *readers, lar_model_generation *g,
                           lar_diag *d) {
    lar_buf text;
    lar_json j;
    lar_diag inner = {0};
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_json_init(&j);
    lar_error e = lar_model_files_text(f, name, &text, &inner);
    bool missing = e == LAR_NOT_FOUND;
    if (!e) e = lar_json_parse(&j, lar_buf_slice(&text), &(lar_json_limits){32, 1 << 20}, &inner);
    for (; !e && *readers; readers++) e = (*readers)(&j, g, &inner);
    lar_json_release(&j);
    lar_buf_release(&text);
    if (!e || missing) return LAR_OK;
    return lar_fail(e, d, "%s: %.250s", name, *inner.text ? inner.text : lar_error_text(e));
}

static lar_error read_metadata(const lar_gguf *m, lar_model_generation *g, lar_diag *d) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t id;
        if (!lar_gguf_find(m, keys[i])) continue;
        lar_error e = lar_gguf_u64(m, keys[i], &id, d);
        if (!e) e = add_end(g, id, d);
        if (e) return e;
    }
    return LAR_OK;
}

lar_error lar_model_generation_read(const lar_model_files *f, lar_model_generation *out, lar_diag *d) {
    *out = (lar_model_generation){.sampling = LAR_SAMPLING_DEFAULT};
    if (lar_model_files_form(f) == LAR_MODEL_GGUF) return read_metadata(lar_model_files_metadata(f), out, d);
    lar_error e = read_file(f, "generation_config.json", (const reader[]){read_ends, read_sampling, NULL}, out, d);
    if (!e && !out->end_count) e = read_file(f, "config.json", (const reader[]){read_ends, NULL}, out, d);
    return e;
}
