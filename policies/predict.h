/* How many tokens of a prompt the provider should read from its cache, worked out from bytes. */
#ifndef LARDER_POLICIES_PREDICT_H
#define LARDER_POLICIES_PREDICT_H

#include <stdint.h>

typedef struct lar_prediction_in {
    uint64_t known_bytes, prompt_bytes; /* of tools, system and messages as sent: the part sent before, and all */
    int64_t prompt_tokens;              /* of the whole prompt, as the provider counted them; less than 0: not known */
    uint32_t step_tokens, tokens_min;   /* hits are multiples of step, of at least min; 0: not known */
} lar_prediction_in;

/* The request's own tokens for each byte times the bytes known, rounded down to the provider's step; 0 below its
 * minimum. INT64_MIN where there is nothing to work from. It is what the provider could hit if it still has all that
 * larder sent: it knows nothing of time. */
int64_t lar_predict_hit(const lar_prediction_in *in);

#endif
