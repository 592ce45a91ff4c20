/* Pseudo-tokens: a run of up to 5 ASCII letters, of up to 3 digits (ASCII or full-width), one CJK character, a run of
 * white space, or any other single character. About four characters of English, one of Chinese: the same for every
 * model, so that shares and comparisons mean something and absolute numbers are estimates. */
#ifndef LARDER_POLICIES_TOKENS_H
#define LARDER_POLICIES_TOKENS_H

#include <stdint.h>

#include "base/slice.h"

/* Bytes of the token at the front of `text`, which is not empty: at least 1. A byte that is not UTF-8 is a token. */
size_t lar_token_length(lar_slice text);
/* How many tokens the text has. */
uint64_t lar_token_count(lar_slice text);

#endif
