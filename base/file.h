/* Whole files into memory, bounded. */
#ifndef LARDER_BASE_FILE_H
#define LARDER_BASE_FILE_H

#include "base/buf.h"
#include "base/error.h"

typedef enum lar_file_kinds {
    LAR_FILE_REGULAR,   /* a FIFO or a device is refused before a byte is taken from it */
    LAR_FILE_OR_STREAM, /* FIFOs and character devices too, to their end: what a person names on a command line */
} lar_file_kinds;

/* Appends the file's bytes to `out`, up to its maximum, whatever size the file claims (files of /proc claim 0). Blocks
 * on the disk. NOT_FOUND, LIMIT (larger than out->max), INVALID (a folder, or of no kind asked for), IO, NO_MEMORY; `d`
 * then has a text that goes on behind the file's name ("is a folder, not a file"). The path is not in it.
 * Where out->cap is out->max already nothing is moved in memory, so that the caller can wipe every byte. */
LAR_MUST_USE lar_error lar_file_read(const char *path, lar_file_kinds kinds, lar_buf *out, lar_diag *d);

#endif
