/* The formats of a model's latents, layer by layer, as text: "fp8" for all layers, "fp8,0=bf16,24-26=bf16" for all but
 * those that are named after it, from 0 on, ends included. */
#ifndef LARDER_ENGINE_CACHE_KV_LAYERS_H
#define LARDER_ENGINE_CACHE_KV_LAYERS_H

#include "base/error.h"
#include "engine/files/kv_format.h"

/* Fills kv (layers) of lar_kv. INVALID: no format of this name, a layer that the model has not, one named twice, or
 * another form than the above; `d` says in which part of the text, and what was expected. Formats of fewer than 8 bits
 * are refused by any of their names, with the reason. */
LAR_MUST_USE lar_error lar_kv_layers_parse(const char *text, uint32_t layers, uint8_t *kv, lar_diag *d);

/* The shortest text of kv (layers) that parses to it: a new string, given to the caller; NULL: no memory. */
char *lar_kv_layers_text(const uint8_t *kv, uint32_t layers);

#endif
