/* Collects what the headers of a model and the texts beside them say.
 * Called by inspect.c; one thread; blocks on the disk. Why the numbers are read here and not taken from the checked
 * configuration: a model that larder cannot run is shown all the same. Memory: config.json as a span tree, then
 * tokenizer and template, one after the other. Invariant: text from the model is stored only as lar_present_name leaves
 * it. Not here: what is valid (engine/model/model_config.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "engine/model/model_text.h"
#include "engine/text/template.h"
#include "gateway/commands/present.h"
#include "gateway/local/inspect.h"

enum { TEXT_BYTES_MAX = 128 << 20 };

static const lar_inspect_field_row fields[] = {
#define LAR_INSPECT(id, label, config, gguf) {label, config, gguf},
#include "gateway/local/inspect_fields.def"
#undef LAR_INSPECT
};

const lar_inspect_field_row *lar_inspect_field_of(lar_inspect_field f) { return &fields[f]; }

static void show(lar_slice text, char out[LAR_INSPECT_TEXT_BYTES]) {
    _Static_assert((int)LAR_INSPECT_TEXT_BYTES == (int)LAR_SHOWN_BYTES, "lar_present_name fills it");
    lar_present_name(text, out);
}

/* -- a folder ----------------------------------------------------------------------------------------------------- */

/* A text of the folder as a tree that borrows it. */
typedef struct tree {
    lar_buf text;
    lar_json json;
} tree;

/* NOT_FOUND: there is no such file. */
static lar_error read_tree(const lar_model_files *f, const char *name, tree *t, lar_diag *d) {
    lar_buf_init(&t->text, TEXT_BYTES_MAX);
    lar_json_init(&t->json);
    lar_error e = lar_model_files_text(f, name, &t->text, d);
    return e ? e : lar_json_parse(&t->json, lar_buf_slice(&t->text), NULL, d);
}

static void release_tree(tree *t) {
    lar_json_release(&t->json);
    lar_buf_release(&t->text);
}

static lar_error show_string(const lar_json *j, uint32_t node, char out[LAR_INSPECT_TEXT_BYTES]) {
    lar_buf text;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = lar_json_is(j, node, LAR_JSON_STRING) ? lar_json_decode(j, node, &text) : LAR_NOT_FOUND;
    if (!e) show(lar_buf_slice(&text), out);
    lar_buf_release(&text);
    return e == LAR_NO_MEMORY ? e : LAR_OK;
}

static lar_error folder_config(lar_inspection *i) {
    tree t;
    lar_error e = read_tree(i->files, "config.json", &t, NULL);
    const lar_json *j = &t.json;
    if (!e) e = show_string(j, lar_json_get(j, 0, "model_type"), i->architecture);
    if (!e) e = show_string(j, lar_json_at(j, lar_json_get(j, 0, "architectures"), 0), i->name);
    for (int k = 0; !e && k < LAR_INSPECT_FIELD_COUNT; k++)
        if (fields[k].config) i->known[k] = lar_json_u64(j, lar_json_get(j, 0, fields[k].config), &i->field[k]);
    release_tree(&t);
    return e == LAR_NO_MEMORY ? e : LAR_OK; /* what else is wrong with it, lar_config_read says */
}

/* -- GGUF --------------------------------------------------------------------------------------------------------- */

static void show_value(const lar_gguf *g, const char *key, char out[LAR_INSPECT_TEXT_BYTES]) {
    lar_slice text;
    if (lar_gguf_string(g, key, &text, NULL) == LAR_OK) show(text, out);
}

static void gguf_numbers(lar_inspection *i, const lar_gguf *g) {
    lar_slice arch;
    if (lar_gguf_string(g, "general.architecture", &arch, NULL) || arch.len > 64 || memchr(arch.ptr, 0, arch.len))
        return;
    for (int k = 0; k < LAR_INSPECT_FIELD_COUNT; k++) {
        char key[128];
        (void)snprintf(key, sizeof key, "%.*s.%s", LAR_FMT(arch), fields[k].gguf ? fields[k].gguf : "");
        if (fields[k].gguf) i->known[k] = lar_gguf_u64(g, key, &i->field[k], NULL) == LAR_OK;
    }
}

static void gguf_texts(lar_inspection *i, const lar_gguf *g) {
    lar_gguf_strings tokens;
    show_value(g, "general.architecture", i->architecture);
    show_value(g, "general.name", i->name);
    if (i->known[LAR_INSPECT_VOCAB] || lar_gguf_strings_of(g, "tokenizer.ggml.tokens", &tokens, NULL)) return;
    i->known[LAR_INSPECT_VOCAB] = true;
    i->field[LAR_INSPECT_VOCAB] = tokens.left;
}

/* -- texts -------------------------------------------------------------------------------------------------------- */

static bool is_there(const lar_inspection *i, const char *name) {
    lar_buf none; /* LIMIT: the file is there */
    lar_buf_init(&none, 1);
    bool there = lar_model_files_text(i->files, name, &none, NULL) == LAR_LIMIT;
    lar_buf_release(&none);
    return there;
}

/* Where there is none: what else may have been meant by it. */
static void other_tokenizer(lar_inspection *i) {
    if (!is_there(i, "tokenizer.model")) return;
    i->tokenizer.state = LAR_INSPECT_REFUSED;
    (void)snprintf(i->tokenizer.text, sizeof i->tokenizer.text,
                   "tokenizer.model alone; larder reads tokenizer.json and tiktoken.model");
}

/* What is refused is said in its place; only NO_MEMORY ends the whole. */
static lar_error settle(lar_inspect_part *part, lar_error e, const lar_diag *d) {
    if (e == LAR_OK) part->state = LAR_INSPECT_READ;
    else if (e != LAR_NOT_FOUND) {
        part->state = LAR_INSPECT_REFUSED;
        show(lar_slice_cstr(*d->text ? d->text : lar_error_text(e)), part->text);
    }
    return e == LAR_NO_MEMORY ? e : LAR_OK;
}

static lar_error read_tokenizer(lar_inspection *i, const lar_gguf *g) {
    lar_tokenizer *t;
    lar_diag d = {0};
    lar_error e = lar_model_tokenizer(i->files, &t, &d);
    if (!e) {
        char pre[LAR_INSPECT_TEXT_BYTES] = "tokenizer.json";
        if (!g && !is_there(i, pre)) (void)snprintf(pre, sizeof pre, "tiktoken.model");
        if (g) show_value(g, "tokenizer.ggml.pre", pre);
        (void)snprintf(i->tokenizer.text, sizeof i->tokenizer.text, "BPE, %u ids, %.100s", lar_tokenizer_size(t), pre);
        lar_tokenizer_free(t);
    }
    if (e == LAR_NOT_FOUND && !g) other_tokenizer(i);
    return settle(&i->tokenizer, e, &d);
}

static lar_error read_template(lar_inspection *i) {
    lar_buf source;
    lar_template *t = NULL;
    lar_diag d = {0};
    lar_buf_init(&source, LAR_TEMPLATE_SOURCE_BYTES_MAX);
    lar_error e = lar_model_template_source(i->files, &source, &d);
    if (!e) e = lar_template_parse(lar_buf_slice(&source), &t, &d);
    if (!e) (void)snprintf(i->chat_template.text, sizeof i->chat_template.text, "%zu bytes of Jinja", source.len);
    lar_template_free(t);
    lar_buf_release(&source);
    return settle(&i->chat_template, e, &d);
}

/* -- tensors ------------------------------------------------------------------------------------------------------ */

/* Scales of FP8 take room, but are no parameters of their own. */
static bool is_scale(const lar_tensor *t) {
    static const char tail[] = "_scale_inv";
    size_t n = strlen(t->name), k = sizeof tail - 1;
    return n > k && !strcmp(t->name + n - k, tail);
}

static void add(lar_inspect_sum *s, const lar_tensor *t) {
    s->tensors++;
    if (!is_scale(t)) s->values += lar_tensor_rows(t) * lar_tensor_row_elements(t);
    s->bytes += t->bytes;
}

static void sum_tensors(lar_inspection *i) {
    lar_model_form form = lar_model_files_form(i->files);
    uint32_t layers = 0;
    if (i->known[LAR_INSPECT_LAYERS] && i->field[LAR_INSPECT_LAYERS] <= UINT32_MAX)
        layers = (uint32_t)i->field[LAR_INSPECT_LAYERS];
    /* GGUF counts the layers behind the last among its blocks. */
    if (form == LAR_MODEL_GGUF && i->known[LAR_INSPECT_FURTHER] && i->field[LAR_INSPECT_FURTHER] < layers)
        layers -= (uint32_t)i->field[LAR_INSPECT_FURTHER];
    for (uint32_t k = 0; k < lar_model_files_count(i->files); k++) {
        const lar_tensor *t = lar_model_files_at(i->files, k);
        add(&i->all, t);
        add(&i->by_kind[lar_tensor_kind_of(t->name, form, layers)], t);
        add(&i->by_type[t->type], t);
    }
    for (uint32_t k = 0; k < lar_model_files_parts(i->files); k++)
        i->file_bytes += lar_model_files_part(i->files, k)->size;
}

static void note_lack(void *context, const lar_tensor_lack *l) {
    lar_inspection *i = context;
    if (i->lack_count < LAR_INSPECT_LACKS_MAX) {
        lar_inspect_lack *kept = &i->lacks[i->lack_count];
        kept->lack = *l;
        (void)snprintf(kept->name, sizeof kept->name, "%s", l->name);
        kept->lack.name = kept->name;
    }
    i->lack_count++;
}

lar_error lar_inspect_read(const lar_model_files *f, lar_inspection *out) {
    memset(out, 0, sizeof *out);
    out->files = f;
    const lar_gguf *g = lar_model_files_metadata(f);
    lar_error e = LAR_OK;
    if (g) {
        gguf_numbers(out, g);
        gguf_texts(out, g);
    } else e = folder_config(out);
    if (!e) e = read_tokenizer(out, g);
    if (!e) e = read_template(out);
    if (e) return e;
    sum_tensors(out);
    e = lar_config_read(&out->config, f, &out->refused);
    if (e == LAR_NO_MEMORY) return e;
    if (e && !*out->refused.text) (void)lar_fail(e, &out->refused, "%s", lar_error_text(e));
    if (!e) out->refused = (lar_diag){0};
    if (!e) out->lack_count = 0, (void)lar_tensors_check(&out->config, f, note_lack, out);
    return LAR_OK;
}
