/* A file as bytes in memory, mapped read only. */
#ifndef LARDER_ENGINE_MAPPED_FILE_H
#define LARDER_ENGINE_MAPPED_FILE_H

#include <stdint.h>

#include "base/error.h"

/* Bytes of a file, wherever they come from: a mapping, or a test's own memory. */
typedef struct lar_file_view {
    const char *name; /* for messages: the path's last component; borrowed */
    const uint8_t *bytes;
    uint64_t size;
    uint64_t device, inode; /* of a mapped file: which one it is, whatever its path comes to mean */
} lar_file_view;

/* Maps a regular file, MAP_PRIVATE and read only; `path` is borrowed until the close. An empty file has no mapping.
 * NOT_FOUND, IO (not a regular file, no right to read it), NO_MEMORY. No page is read before it is touched.
 *
 * A file must not shrink while it is mapped: reading a page behind its new end is SIGBUS, and ends the program. Writing
 * a model anew beside the old one and renaming it over is safe (the old file lives until it is closed); copying over it
 * in place is not. Nothing that a reader can do prevents this, but a copy of the whole file. */
LAR_MUST_USE lar_error lar_mapped_file_open(const char *path, lar_file_view *out, lar_diag *d);
void lar_mapped_file_close(lar_file_view *f);

/* The part of a path behind its last '/'. */
const char *lar_file_name(const char *path);

#endif
