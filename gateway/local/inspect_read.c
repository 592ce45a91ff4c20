/* Collects what the headers of a model and the texts beside them say.
 * Called by inspect.c; one thread; blocks on the disk. Why the numbers are read here and not taken from the checked
 * configuration: a model that larder cannot run is shown all the same. Memory: config.json and tokenizer.json, as span
 * trees, one after the other. Invariant: text from the model is stored only as lar_present_name leaves it.
 * Not here: what is valid (engine/model/model_config.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
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

/* -- a folder ------------------------------------------------------------------------------------------------------ */

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

static uint32_t members(const lar_json *j, uint32_t node) { return node < j->count ? j->nodes[node].count : 0; }

static lar_error folder_tokenizer(lar_inspection *i) {
    static const char *const others[] = {"tiktoken.model", "tokenizer.model"};
    char kind[LAR_INSPECT_TEXT_BYTES] = "of no known kind";
    tree t;
    lar_diag d = {0};
    lar_error e = read_tree(i->files, "tokenizer.json", &t, &d);
    const lar_json *j = &t.json;
    uint32_t model = lar_json_get(j, 0, "model");
    if (!e) e = show_string(j, lar_json_get(j, model, "type"), kind);
    if (!e)
        (void)snprintf(i->tokenizer, sizeof i->tokenizer, "tokenizer.json: %.100s, %u tokens, %u added", kind,
                       members(j, lar_json_get(j, model, "vocab")), members(j, lar_json_get(j, 0, "added_tokens")));
    else if (e != LAR_NOT_FOUND)
        (void)snprintf(i->tokenizer, sizeof i->tokenizer, "tokenizer.json: %s", *d.text ? d.text : lar_error_text(e));
    release_tree(&t);
    if (e != LAR_NOT_FOUND) return e == LAR_NO_MEMORY ? e : LAR_OK;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        lar_buf none; /* LIMIT: the file is there */
        lar_buf_init(&none, 1);
        if (lar_model_files_text(i->files, others[k], &none, NULL) == LAR_LIMIT)
            (void)snprintf(i->tokenizer, sizeof i->tokenizer, "%s alone; larder reads tokenizer.json", others[k]);
        lar_buf_release(&none);
    }
    return LAR_OK;
}

/* A template in a file of its own, or in tokenizer_config.json: one, or a list of them by name. */
static lar_error folder_template(lar_inspection *i) {
    lar_buf text;
    lar_buf_init(&text, TEXT_BYTES_MAX);
    lar_error e = lar_model_files_text(i->files, "chat_template.jinja", &text, NULL);
    size_t bytes = text.len;
    lar_buf_release(&text);
    if (!e)
        return (void)snprintf(i->chat_template, sizeof i->chat_template, "chat_template.jinja: %zu bytes", bytes), e;
    if (e == LAR_NO_MEMORY) return e;
    tree t;
    lar_diag d = {0};
    e = read_tree(i->files, "tokenizer_config.json", &t, &d);
    uint32_t node = lar_json_get(&t.json, 0, "chat_template");
    if (e && e != LAR_NOT_FOUND)
        (void)snprintf(i->chat_template, sizeof i->chat_template, "tokenizer_config.json: %s",
                       *d.text ? d.text : lar_error_text(e));
    else if (lar_json_is(&t.json, node, LAR_JSON_STRING))
        (void)snprintf(i->chat_template, sizeof i->chat_template, "tokenizer_config.json: %zu bytes",
                       lar_json_inner(&t.json, node).len);
    else if (lar_json_is(&t.json, node, LAR_JSON_ARRAY))
        (void)snprintf(i->chat_template, sizeof i->chat_template, "tokenizer_config.json: %u by name",
                       members(&t.json, node));
    release_tree(&t);
    return e == LAR_NO_MEMORY ? e : LAR_OK;
}

/* -- GGUF ---------------------------------------------------------------------------------------------------------- */

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
    char model[LAR_INSPECT_TEXT_BYTES] = "", pre[LAR_INSPECT_TEXT_BYTES] = "no pre-tokenizer named";
    lar_gguf_strings tokens = {0};
    lar_slice text;
    show_value(g, "general.architecture", i->architecture);
    show_value(g, "general.name", i->name);
    show_value(g, "tokenizer.ggml.model", model);
    show_value(g, "tokenizer.ggml.pre", pre);
    bool listed = lar_gguf_strings_of(g, "tokenizer.ggml.tokens", &tokens, NULL) == LAR_OK;
    if (*model || listed)
        (void)snprintf(i->tokenizer, sizeof i->tokenizer, "in the metadata: %.100s, %.100s, %" PRIu64 " tokens",
                       *model ? model : "of no known kind", pre, tokens.left);
    if (listed && !i->known[LAR_INSPECT_VOCAB]) {
        i->known[LAR_INSPECT_VOCAB] = true;
        i->field[LAR_INSPECT_VOCAB] = tokens.left;
    }
    if (lar_gguf_string(g, "tokenizer.chat_template", &text, NULL) == LAR_OK)
        (void)snprintf(i->chat_template, sizeof i->chat_template, "in the metadata: %zu bytes", text.len);
}

/* -- tensors ------------------------------------------------------------------------------------------------------- */

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
    } else {
        e = folder_config(out);
        if (!e) e = folder_tokenizer(out);
        if (!e) e = folder_template(out);
    }
    if (e) return e;
    sum_tensors(out);
    e = lar_config_read(&out->config, f, &out->refused);
    if (e == LAR_NO_MEMORY) return e;
    if (e && !*out->refused.text) (void)lar_fail(e, &out->refused, "%s", lar_error_text(e));
    if (!e) out->refused = (lar_diag){0};
    if (!e) out->lack_count = 0, (void)lar_tensors_check(&out->config, f, note_lack, out);
    return LAR_OK;
}
