/* A model's tokenizer and chat template, from where its form keeps them. */
#ifndef LARDER_ENGINE_MODEL_MODEL_TEXT_H
#define LARDER_ENGINE_MODEL_MODEL_TEXT_H

#include "engine/files/model_files.h"
#include "engine/text/tokenizer.h"

/* Folder: tokenizer.json, else tiktoken.model, with tokenizer_config.json where it is there. GGUF: the metadata.
 * NOT_FOUND: the model has no tokenizer; INVALID and the others as lar_tokenizer_from_json. The caller frees *out; the
 * files may be closed. */
LAR_MUST_USE lar_error lar_model_tokenizer(const lar_model_files *f, lar_tokenizer **out, lar_diag *d);

/* Adds the source of the chat template to `out`, whose maximum is the limit (LAR_TEMPLATE_SOURCE_BYTES_MAX is enough).
 * Folder: chat_template.jinja, else chat_template of tokenizer_config.json, of several the one called "default". GGUF:
 * tokenizer.chat_template. NOT_FOUND: there is none; INVALID, LIMIT, IO, NO_MEMORY, JSON_*. */
LAR_MUST_USE lar_error lar_model_template_source(const lar_model_files *f, lar_buf *out, lar_diag *d);

#endif
