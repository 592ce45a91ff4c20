/* A model as it is written down in papers: double precision, one token at a time over all tokens, nothing cached,
 * nothing absorbed, no code of the engine but the reader of tensors. Slow, for small models. */
#ifndef LARDER_TESTS_NAIVE_MODEL_H
#define LARDER_TESTS_NAIVE_MODEL_H

#include "tests/unit_engine/files/model_maker.h"

/* Logits of all tokens, (count, vocab), of the folder that model_write made of `s`; free() them. */
double *naive_logits(const model_shape *s, const char *folder, const uint32_t *ids, uint32_t count);

#endif
