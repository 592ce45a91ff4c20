/* larder run --perplexity: how well a model foretells a text. */
#ifndef LARDER_LOCAL_RUN_PERPLEXITY_H
#define LARDER_LOCAL_RUN_PERPLEXITY_H

#include "engine/engine.h"
#include "engine/text/tokenizer.h"

enum { LAR_PERPLEXITY_WINDOW = 512 };

typedef struct lar_perplexity {
    double value;
    uint64_t tokens; /* scored */
    uint32_t window; /* the tokens of one, the first of them not scored */
} lar_perplexity;

/* The text in windows that do not overlap, of LAR_PERPLEXITY_WINDOW tokens or the model's context: what the tokenizer
 * puts in front of a text and then its next tokens, all of which are scored; without a beginning of text the first is
 * not. INVALID: less than one token to score, or not UTF-8; LIMIT, NO_MEMORY. */
LAR_MUST_USE lar_error lar_run_perplexity(lar_engine *e, const lar_tokenizer *t, lar_slice text, lar_perplexity *out,
                                          lar_diag *d);

#endif
