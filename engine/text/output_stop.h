/* Stop strings in a stream of bytes, wherever tokens cut them: what could still become one is held back.
 * The first that is complete ends the text, the longer of two that end with the same byte; the text ends before it. */
#ifndef LARDER_ENGINE_TEXT_OUTPUT_STOP_H
#define LARDER_ENGINE_TEXT_OUTPUT_STOP_H

#include "base/buf.h"

#define LAR_OUTPUT_STOPS_MAX 16
#define LAR_OUTPUT_STOP_BYTES_MAX 1024

typedef struct lar_output_stop lar_output_stop;

/* Copies the strings. INVALID for an empty one, LIMIT for too many or too long ones, NO_MEMORY. *out is then NULL. */
LAR_MUST_USE lar_error lar_output_stop_new(const lar_slice *stops, uint32_t count, lar_output_stop **out, lar_diag *d);
void lar_output_stop_free(lar_output_stop *s); /* NULL is allowed */

/* Appends what is certainly no part of a stop string. *hit: number of the one found, or -1; after it, bytes are
 * ignored. Errors: those of lar_buf_add. */
LAR_MUST_USE lar_error lar_output_stop_push(lar_output_stop *s, lar_slice bytes, lar_buf *out, int *hit);
/* A text that is out already, and in which no string ends the text, goes in front of what will be pushed: returns how
 * many of its last bytes could begin a string. They come out first, as any that are held. Before the first push. */
size_t lar_output_stop_begin(lar_output_stop *s, lar_slice bytes);
/* The end of the text: appends what was held back. */
LAR_MUST_USE lar_error lar_output_stop_finish(lar_output_stop *s, lar_buf *out);

#endif
