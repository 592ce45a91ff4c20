/* How a model wants to be generated from: the tokens that end an answer, and its makers' sampling values. */
#ifndef LARDER_ENGINE_MODEL_MODEL_GENERATION_H
#define LARDER_ENGINE_MODEL_MODEL_GENERATION_H

#include "engine/files/model_files.h"
#include "engine/model/sample.h"

enum { LAR_MODEL_GENERATION_ENDS_MAX = 16 };

typedef struct lar_model_generation {
    uint32_t ends[LAR_MODEL_GENERATION_ENDS_MAX]; /* each ends an answer and is no part of it */
    uint32_t end_count;
    lar_sampling sampling; /* temperature, top_p, top_k and repetition as the files have them, else the default */
} lar_model_generation;

/* Folder: generation_config.json, and eos_token_id of config.json where it has none. GGUF: eos, eot and eom of the
 * metadata. Values that cannot be are INVALID, with the field in `d`; no such files: no ends, the default. */
LAR_MUST_USE lar_error lar_model_generation_read(const lar_model_files *f, lar_model_generation *out, lar_diag *d);

#endif
