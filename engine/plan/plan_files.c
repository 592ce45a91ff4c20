/* A model of a memory plan from its files: the metadata, and the tensors that are there (header: plan.h).
 * Called by plan_command.c; calls engine/files. Any thread; blocks on a folder's config.json; reads no weights.
 * Why the tensors: a quantised file mixes types, and only it says which. */
#include <stdio.h>
#include <string.h>

#include "engine/plan/plan.h"

static const size_t config_bytes_max = 16u << 20;

/* A number, or a list with one for every layer: the largest, as what is reserved must hold the widest layer. */
static lar_error read_value(const lar_gguf *g, const char *key, uint64_t *out, lar_diag *d) {
    const lar_gguf_value *v = lar_gguf_find(g, key);
    if (!v || !v->list) return v ? lar_gguf_u64(g, key, out, d) : LAR_NOT_FOUND;
    lar_error e = lar_gguf_list(g, key, LAR_GGUF_INTEGERS, &v, d);
    for (uint64_t i = 0; !e && i < v->count; i++) {
        int64_t n = lar_gguf_integer_at(v, i);
        if (n > 0 && (uint64_t)n > *out) *out = (uint64_t)n;
    }
    return e;
}

/* Legacy files of latent attention say the expanded heads, new ones the latent as one head; both name the rank. */
static void settle_latent(lar_plan_model *m, const lar_gguf *g) {
    uint64_t *f = m->field, key = 0, value = 0;
    if (!f[LAR_PLAN_RANK]) return;
    char name[128];
    lar_diag ignored = {0};
    (void)snprintf(name, sizeof name, "%.40s.attention.key_length_mla", m->type);
    bool told = lar_gguf_u64(g, name, &key, &ignored) == LAR_OK;
    (void)snprintf(name, sizeof name, "%.40s.attention.value_length_mla", m->type);
    told = told && lar_gguf_u64(g, name, &value, &ignored) == LAR_OK;
    if (told) f[LAR_PLAN_HEAD_DIM] = key, f[LAR_PLAN_VALUE_DIM] = value;
    f[LAR_PLAN_NOPE] = f[LAR_PLAN_HEAD_DIM] > f[LAR_PLAN_ROPE] ? f[LAR_PLAN_HEAD_DIM] - f[LAR_PLAN_ROPE] : 0;
}

/* Layers that predict further tokens (MTP) count as blocks in GGUF; they run for nobody here and keep nothing. */
static lar_error leave_out_prediction(lar_plan_model *m, const lar_gguf *g, lar_diag *d) {
    char key[128];
    uint64_t extra = 0;
    (void)snprintf(key, sizeof key, "%.40s.nextn_predict_layers", m->type);
    lar_error e = read_value(g, key, &extra, d);
    if (e == LAR_NOT_FOUND) return LAR_OK;
    if (!e && extra >= m->field[LAR_PLAN_LAYERS]) e = lar_fail(LAR_INVALID, d, "%s: as many as there are layers", key);
    if (!e) m->field[LAR_PLAN_LAYERS] -= extra;
    return e;
}

static lar_error read_metadata(lar_plan_model *m, const lar_gguf *g, lar_diag *d) {
    lar_slice type;
    lar_error e = lar_gguf_string(g, "general.architecture", &type, d);
    if (!e) lar_plan_model_name(m, type);
    for (int i = 0; !e && i < LAR_PLAN_FIELD_COUNT; i++) {
        const char *suffix = lar_plan_field_info_of((lar_plan_field)i)->gguf;
        uint64_t value = 0;
        char key[128];
        if (!*suffix) continue;
        (void)snprintf(key, sizeof key, "%.40s.%s", m->type, suffix);
        e = read_value(g, key, &value, d);
        if (e == LAR_NOT_FOUND) e = LAR_OK;
        else if (!e) e = lar_plan_model_set(m, (lar_plan_field)i, value, key, d);
    }
    if (!e) settle_latent(m, g);
    if (!e) e = leave_out_prediction(m, g, d);
    m->window_unclear = m->field[LAR_PLAN_WINDOW] != 0;
    return e;
}

static lar_error read_config(lar_plan_model *m, const lar_model_files *f, lar_diag *d) {
    lar_buf text;
    lar_buf_init(&text, config_bytes_max);
    lar_error e = lar_model_files_text(f, "config.json", &text, d);
    if (!e) e = lar_plan_model_from_config(m, lar_buf_slice(&text), d);
    lar_buf_release(&text);
    return e;
}

lar_error lar_plan_model_from_files(lar_plan_model *m, const lar_model_files *f, lar_diag *d) {
    const lar_gguf *g = lar_model_files_metadata(f);
    lar_error e = g ? read_metadata(m, g, d) : read_config(m, f, d);
    if (e) return e;
    m->parts = lar_model_files_parts(f);
    for (uint32_t i = 0; i < lar_model_files_count(f); i++) {
        const lar_tensor *t = lar_model_files_at(f, i);
        m->file_bytes += t->bytes;
        m->type_bytes[t->type] += t->bytes;
        m->parameters += lar_tensor_rows(t) * lar_tensor_row_elements(t);
    }
    return LAR_OK;
}
