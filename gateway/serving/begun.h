/* What was begun of an answer that goes on here: between whoever has it (gateway/request) and serving.h. */
#ifndef LARDER_GATEWAY_BEGUN_H
#define LARDER_GATEWAY_BEGUN_H

#include <stdint.h>

#include "base/slice.h"

/* An answer that somebody else began to stream, and that goes on here: the same request, one choice, no logprobs. What
 * comes is chunks of the same answer, without its role; max_tokens and the usage are of all of it. All borrowed. */
typedef struct lar_serving_begun {
    lar_slice reasoning, content; /* what its client has; not both empty */
    lar_slice members;            /* JSON: what its chunks have in front of "choices", without braces and comma; empty:
                                     as chunks from here */
    lar_slice from, to;           /* who began it, and who goes on: names, for the client to read */
    int64_t prompt_tokens;        /* as the one who began counted them; below 0: not known */
} lar_serving_begun;

#endif
