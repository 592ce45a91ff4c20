/* Finds a model's tokenizer and chat template.
 * Called when a model is opened for text, and by `larder inspect`; any thread; blocks on the disk. Why here: both forms
 * of files keep the same things in other places, and engine/text knows no files. Source: what transformers' tokenizers
 * load, in that order; llama.cpp's keys of metadata.
 * Memory: the texts while they are read; of GGUF a list of slices into the mapping. */
#include "engine/model/model_text.h"

#include <stdlib.h>

#include "base/json.h"

enum { FILE_BYTES_MAX = 256 << 20, IDS_MAX = 1 << 22 };

#define CONFIG_NAME "tokenizer_config.json"

/* -- GGUF: the tokenizer ------------------------------------------------------------------------------------------- */

/* A list of strings as slices into the mapping; the caller frees *out. NOT_FOUND: *out is NULL. */
static lar_error slices_of(const lar_gguf *g, const char *key, lar_slice **out, uint32_t *count, lar_diag *d) {
    lar_gguf_strings s;
    *out = NULL;
    *count = 0;
    lar_error e = lar_gguf_strings_of(g, key, &s, d);
    if (e) return e;
    if (s.left > IDS_MAX) return lar_fail(LAR_LIMIT, d, "%s: more than %d", key, IDS_MAX);
    *out = malloc((s.left + !s.left) * sizeof **out);
    if (!*out) return lar_fail(LAR_NO_MEMORY, d, "%s", key);
    while (lar_gguf_strings_next(&s, &(*out)[*count])) ++*count;
    return LAR_OK;
}

static lar_error types_of(const lar_gguf *g, uint32_t tokens, int32_t **out, lar_diag *d) {
    static const char key[] = "tokenizer.ggml.token_type";
    const lar_gguf_value *v;
    *out = NULL;
    lar_error e = lar_gguf_list(g, key, LAR_GGUF_INTEGERS, &v, d);
    if (e == LAR_NOT_FOUND) return LAR_OK;
    if (e) return e;
    if (v->count != tokens)
        return lar_fail(LAR_INVALID, d, "%s: %llu types for %u tokens", key, (unsigned long long)v->count, tokens);
    *out = malloc((tokens + !tokens) * sizeof **out);
    if (!*out) return lar_fail(LAR_NO_MEMORY, d, "%s", key);
    for (uint32_t i = 0; i < tokens; i++) {
        int64_t type = lar_gguf_integer_at(v, i);
        (*out)[i] = type < 0 || type > INT32_MAX ? 0 : (int32_t)type;
    }
    return LAR_OK;
}

static lar_error id_of(const lar_gguf *g, const char *key, uint32_t *out, lar_diag *d) {
    uint64_t id = LAR_TOKEN_NONE;
    lar_error e = lar_gguf_u64(g, key, &id, d);
    if (!e && id >= LAR_TOKEN_NONE)
        e = lar_fail(LAR_INVALID, d, "%s: %llu is no id of a token", key, (unsigned long long)id);
    *out = (uint32_t)id;
    return e == LAR_NOT_FOUND ? LAR_OK : e;
}

static lar_error optional_texts(const lar_gguf *g, lar_tokenizer_parts *p, lar_diag *d) {
    lar_error e = lar_gguf_string(g, "tokenizer.ggml.pre", &p->pre, d);
    if (e == LAR_NOT_FOUND) e = LAR_OK; /* an empty name, which the tokenizer refuses with the list of those it knows */
    if (!e) e = id_of(g, "tokenizer.ggml.bos_token_id", &p->bos, d);
    if (!e) e = id_of(g, "tokenizer.ggml.eos_token_id", &p->eos, d);
    lar_error add = e ? e : lar_gguf_bool(g, "tokenizer.ggml.add_bos_token", &p->add_bos, d);
    return add == LAR_NOT_FOUND ? LAR_OK : add;
}

static lar_error from_metadata(const lar_gguf *g, lar_tokenizer **out, lar_diag *d) {
    lar_tokenizer_parts p = {.bos = LAR_TOKEN_NONE, .eos = LAR_TOKEN_NONE};
    lar_slice *tokens = NULL, *merges = NULL;
    int32_t *types = NULL;
    lar_error e = lar_gguf_string(g, "tokenizer.ggml.model", &p.model, d);
    if (!e) e = slices_of(g, "tokenizer.ggml.tokens", &tokens, &p.token_count, d);
    if (!e) e = slices_of(g, "tokenizer.ggml.merges", &merges, &p.merge_count, d);
    if (e == LAR_NOT_FOUND && tokens) e = LAR_OK; /* without merges every byte is a token */
    if (!e) e = types_of(g, p.token_count, &types, d);
    if (!e) e = optional_texts(g, &p, d);
    p.tokens = tokens, p.types = types, p.merges = merges;
    if (!e) e = lar_tokenizer_from_parts(&p, out, d);
    free(tokens);
    free(merges);
    free(types);
    return e;
}

/* -- a folder ------------------------------------------------------------------------------------------------------ */

typedef lar_error (*open_tokenizer)(lar_slice tokens, lar_slice config, lar_tokenizer **out, lar_diag *d);

/* The tokenizer of the folder's file `name`; NOT_FOUND where it is not there. */
static lar_error from_file(const lar_model_files *f, const char *name, open_tokenizer opener, lar_tokenizer **out,
                           lar_diag *d) {
    lar_buf tokens, config;
    lar_buf_init(&tokens, FILE_BYTES_MAX);
    lar_buf_init(&config, FILE_BYTES_MAX);
    lar_error e = lar_model_files_text(f, name, &tokens, d);
    if (!e) {
        e = lar_model_files_text(f, CONFIG_NAME, &config, d);
        if (e == LAR_NOT_FOUND) e = LAR_OK;
    }
    if (!e) e = opener(lar_buf_slice(&tokens), lar_buf_slice(&config), out, d);
    lar_buf_release(&tokens);
    lar_buf_release(&config);
    return e;
}

static lar_error from_folder(const lar_model_files *f, lar_tokenizer **out, lar_diag *d) {
    lar_error e = from_file(f, "tokenizer.json", lar_tokenizer_from_json, out, d);
    if (e == LAR_NOT_FOUND) e = from_file(f, "tiktoken.model", lar_tokenizer_from_tiktoken, out, d);
    if (e == LAR_NOT_FOUND) e = lar_fail(e, d, "the folder has neither tokenizer.json nor tiktoken.model");
    return e;
}

lar_error lar_model_tokenizer(const lar_model_files *f, lar_tokenizer **out, lar_diag *d) {
    const lar_gguf *g = lar_model_files_metadata(f);
    *out = NULL;
    return g ? from_metadata(g, out, d) : from_folder(f, out, d);
}

/* -- the template -------------------------------------------------------------------------------------------------- */

/* chat_template is a text, or a list of {"name": ..., "template": ...}. */
static uint32_t template_node(const lar_json *j) {
    uint32_t node = lar_json_get(j, 0, "chat_template");
    if (!lar_json_is(j, node, LAR_JSON_ARRAY)) return node;
    for (uint32_t i = lar_json_first(j, node); i != LAR_JSON_NONE; i = lar_json_after(j, node, i))
        if (lar_json_eq(j, lar_json_get(j, i, "name"), LAR_SLICE("default"))) return lar_json_get(j, i, "template");
    return LAR_JSON_NONE;
}

static lar_error template_of_config(const lar_model_files *f, lar_buf *out, lar_diag *d) {
    lar_buf text;
    lar_json j;
    lar_diag why = {0};
    lar_buf_init(&text, FILE_BYTES_MAX);
    lar_json_init(&j);
    lar_error e = lar_model_files_text(f, CONFIG_NAME, &text, d);
    if (!e && (e = lar_json_parse(&j, lar_buf_slice(&text), NULL, &why)) != LAR_OK)
        e = lar_fail_at(e, d, why.offset, CONFIG_NAME ": %s (byte %llu)", *why.text ? why.text : lar_error_text(e),
                        (unsigned long long)why.offset);
    if (!e) {
        uint32_t node = template_node(&j);
        if (lar_json_kind_of(&j, node) == LAR_JSON_NULL) /* or not there at all */
            e = lar_fail(LAR_NOT_FOUND, d, CONFIG_NAME ": it has no chat_template, or none called default");
        else if ((e = lar_json_decode(&j, node, out)) != LAR_OK)
            e = lar_fail(e, d, CONFIG_NAME ": chat_template: %s",
                         e == LAR_INVALID ? "a text is expected" : lar_error_text(e));
    }
    lar_json_release(&j);
    lar_buf_release(&text);
    return e;
}

lar_error lar_model_template_source(const lar_model_files *f, lar_buf *out, lar_diag *d) {
    const lar_gguf *g = lar_model_files_metadata(f);
    if (!g) {
        lar_error e = lar_model_files_text(f, "chat_template.jinja", out, d);
        return e == LAR_NOT_FOUND ? template_of_config(f, out, d) : e;
    }
    lar_slice text;
    lar_error e = lar_gguf_string(g, "tokenizer.chat_template", &text, d);
    if (!e && (e = lar_buf_add_slice(out, text)) != LAR_OK)
        e = lar_fail(e, d, "tokenizer.chat_template: %zu bytes", text.len);
    return e;
}
