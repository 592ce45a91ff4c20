/* Whole characters out of bytes that tokens cut anywhere. What can never become one is U+FFFD, once for each longest
 * start of a character (as browsers do it): the same text for any cut of the bytes. */
#ifndef LARDER_ENGINE_TEXT_OUTPUT_UTF8_H
#define LARDER_ENGINE_TEXT_OUTPUT_UTF8_H

#include "base/buf.h"

/* Embedded, zero-initialised. */
typedef struct lar_output_utf8 {
    char held[4]; /* the start of a character */
    uint8_t len;
} lar_output_utf8;

/* Appends the whole characters that the bytes complete. Errors: those of lar_buf_add, with part of it appended. */
LAR_MUST_USE lar_error lar_output_utf8_push(lar_output_utf8 *u, lar_slice bytes, lar_buf *out);
/* The end of the text: a start that is held becomes U+FFFD. */
LAR_MUST_USE lar_error lar_output_utf8_finish(lar_output_utf8 *u, lar_buf *out);

#endif
