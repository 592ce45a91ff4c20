/* JSON text into a buffer, piece by piece, with the first error kept: after it nothing is added.
 * Commas and brackets are the caller's literals: a reply's form can be read where it is written. */
#ifndef LARDER_GATEWAY_JSON_WRITER_H
#define LARDER_GATEWAY_JSON_WRITER_H

#include "base/buf.h"

/* Embedded; borrows `out`. error: LIMIT over the buffer's maximum, NO_MEMORY, INVALID (a text that is no UTF-8). */
typedef struct lar_json_writer {
    lar_buf *out;
    lar_error error;
} lar_json_writer;

void lar_json_put(lar_json_writer *w, const char *literal); /* as it stands */
void lar_json_put_raw(lar_json_writer *w, lar_slice json);  /* as it stands */
void lar_json_put_text(lar_json_writer *w, lar_slice text); /* quoted and escaped */
void lar_json_put_u64(lar_json_writer *w, uint64_t v);
void lar_json_put_i64(lar_json_writer *w, int64_t v);
/* A logarithm of a probability; -9999 stands for one that is not finite, as in OpenAI's API. */
void lar_json_put_logprob(lar_json_writer *w, float v);

#endif
