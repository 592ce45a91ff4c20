/* Small files beside the environment, each written whole or not at all: the key of fingerprints, the edition. */
#ifndef LARDER_STORE_SIDE_FILE_H
#define LARDER_STORE_SIDE_FILE_H

#include "base/buf.h"
#include "base/error.h"

/* Appends the file's bytes, up to `out`'s maximum (LIMIT). NOT_FOUND, IO, NO_MEMORY. */
LAR_MUST_USE lar_error lar_side_file_read(const char *dir, const char *name, lar_buf *out);
/* Replaces the file (0600): after a crash it is the old one or the new one. IO. */
LAR_MUST_USE lar_error lar_side_file_write(const char *dir, const char *name, lar_slice bytes);

#endif
