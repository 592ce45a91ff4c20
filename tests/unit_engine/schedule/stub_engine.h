/* An engine without a model, linked instead of the real one: the functions of engine.h that a scheduler calls, in pages
 * that are counted and checked. Logits follow from all tokens of a sequence and from nothing else, so that an answer
 * with anything of another's in it is another answer. Time passes only here, by a cost of tokens and positions. */
#ifndef LARDER_TESTS_STUB_ENGINE_H
#define LARDER_TESTS_STUB_ENGINE_H

#include <stdatomic.h>

#include "engine/engine.h"

enum { STUB_VOCAB = 97, STUB_CONTEXT = 40000, STUB_PAGES_MAX = 1024, STUB_BAD_ID = 96 /* never drawn */ };
enum { STUB_ADOPT_PAGES = 3 /* taken over in one call */ };

typedef struct stub_options {
    uint32_t pages, pass_tokens;
    bool keeps;                       /* prefixes are kept and found again */
    double pass_us, token_us, row_us; /* of a step; row: for each row before a token */
    double noise;                     /* steps take up to so much more, in parts of their time: 0.5 */
    uint32_t pinned;                  /* pages that nobody gets until lar_engine_unpin */
} stub_options;

/* One at a time. */
lar_engine *stub_engine_open(const stub_options *o);
/* Aborts if a sequence is left, or a page is held by anybody but the kept prefixes. */
void stub_engine_close(lar_engine *e);

/* What the steps were. */
typedef struct stub_step {
    uint32_t parts, tokens, longest; /* longest part */
    double us;
} stub_step;
const stub_step *stub_last_step(const lar_engine *e);
uint64_t stub_steps(const lar_engine *e);
uint64_t stub_tokens(const lar_engine *e); /* computed in all */
void stub_fail_next(lar_engine *e, lar_error error);
/* Logits behind these tokens, (STUB_VOCAB); all of them NaN if the last is STUB_BAD_ID. */
void stub_logits(const uint32_t *ids, uint32_t count, float *logits);

/* The clock of steps: options.now_us with any context. */
uint64_t stub_now_us(void *context);
void stub_sleep(uint64_t us);

#endif
