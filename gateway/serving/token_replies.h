/* Replies that need no tokens from the model, inside gateway/serving. */
#ifndef LARDER_GATEWAY_TOKEN_REPLIES_H
#define LARDER_GATEWAY_TOKEN_REPLIES_H

#include "gateway/serving/ask.h"

/* Appends the reply's JSON for MODELS, MODEL, TOKENIZE or DETOKENIZE (the latter two: `a` has been read). INVALID: `no`
 * is filled; NO_MEMORY, LIMIT. */
LAR_MUST_USE lar_error lar_token_reply(const lar_serving *s, const lar_serving_ask *from, const lar_ask *a,
                                       lar_buf *out, lar_refusal *no);
/* Appends a token's text as a JSON string: bytes that are no character on their own are U+FFFD. */
void lar_token_text(const lar_serving *s, uint32_t id, lar_json_writer *w);

#endif
