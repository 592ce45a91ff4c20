/* Hits predicted from bytes (header: predict.h). Called at the end of every request; pure; any thread; no memory.
 * Why the request's own ratio: how many bytes a token has depends on language, model and kind of text, and the provider
 * has just said how many tokens this text has. What is not in the bytes (templates, images) is spread evenly. */
#include "policies/predict.h"

int64_t lar_predict_hit(const lar_prediction_in *in) {
    if (in->prompt_tokens < 0 || in->prompt_bytes == 0) return INT64_MIN;
    uint64_t known = in->known_bytes < in->prompt_bytes ? in->known_bytes : in->prompt_bytes;
    double tokens = (double)in->prompt_tokens * ((double)known / (double)in->prompt_bytes);
    int64_t whole = tokens < (double)in->prompt_tokens ? (int64_t)tokens : in->prompt_tokens;
    if (whole < in->tokens_min) return 0;
    return in->step_tokens > 1 ? whole - whole % in->step_tokens : whole;
}
