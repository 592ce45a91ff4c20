/* A model as it lies on disk: a Hugging Face folder or GGUF, mapped, every claim of its headers checked.
 *
 * A folder holds config.json and either model.safetensors or model.safetensors.index.json with the shards it names.
 * GGUF is one file of version 3, or parts NAME-00001-of-0000N.gguf, of which any may be given.
 *
 * What is promised of every tensor: 1 to 4 dimensions, none 0; its bytes lie in the mapping, with no overlap; names are
 * unique in the model; an F8_E4M3 tensor is a matrix and has its scale. What is not: that the tensors are those that a
 * model needs, or that the numbers in them make sense.
 *
 * Messages name a file by the last component of its path; who opened it says which path was asked for. Read only; many
 * threads may read an open model. Its files must not shrink while it is open: see mapped_file.h. */
#ifndef LARDER_ENGINE_MODEL_FILES_H
#define LARDER_ENGINE_MODEL_FILES_H

#include "base/buf.h"
#include "engine/files/gguf.h"
#include "engine/files/mapped_file.h"
#include "engine/files/tensor.h"

typedef struct lar_model_files lar_model_files;

typedef enum lar_model_form { LAR_MODEL_FOLDER, LAR_MODEL_GGUF } lar_model_form;

/* NOT_FOUND (no such path, no config.json, a shard that is missing), IO, INVALID (damaged, or a type or version that
 * larder does not read: the message says which tensor, what was expected and what was found), LIMIT, NO_MEMORY. After
 * an error *out is NULL. No weights are read: opening takes milliseconds, and less than a second for the 180,000
 * tensors of V3. */
LAR_MUST_USE lar_error lar_model_files_open(const char *path, lar_model_files **out, lar_diag *d);
void lar_model_files_close(lar_model_files *f); /* NULL: nothing happens */

lar_model_form lar_model_files_form(const lar_model_files *f);

/* Tensors, in the order of the files. Their address and what they point to live as long as `f`. */
uint32_t lar_model_files_count(const lar_model_files *f);
const lar_tensor *lar_model_files_at(const lar_model_files *f, uint32_t i);
/* By its name in the file; NULL: there is none. */
const lar_tensor *lar_model_files_find(const lar_model_files *f, const char *name);

/* GGUF: the metadata, of the first part (gguf.h reads it); NULL for a folder. */
const lar_gguf *lar_model_files_metadata(const lar_model_files *f);

/* The files behind it: how many, and one of them, with its name and size. */
uint32_t lar_model_files_parts(const lar_model_files *f);
const lar_file_view *lar_model_files_part(const lar_model_files *f, uint32_t i);
/* Its path as it was opened, which may lead to another file by now. */
const char *lar_model_files_path(const lar_model_files *f, uint32_t i);
/* Which of them holds the bytes of a tensor of this model. */
uint32_t lar_model_files_part_of(const lar_model_files *f, const lar_tensor *t);

/* A text beside the tensors of a folder, "config.json" or "tokenizer.json": added to `out`, whose maximum is the limit.
 * NOT_FOUND if the folder has none, or this is GGUF (its texts are in the metadata); else as lar_file_read
 * (base/file.h), with the name in the message. */
LAR_MUST_USE lar_error lar_model_files_text(const lar_model_files *f, const char *name, lar_buf *out, lar_diag *d);

#endif
