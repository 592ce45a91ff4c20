/* A mapped file read by the side of its mapping and, where the file system allows it, of the page cache (O_DIRECT): for
 * bytes of which larder keeps a copy of its own, and that must not be in memory twice. */
#ifndef LARDER_ENGINE_DIRECT_FILE_H
#define LARDER_ENGINE_DIRECT_FILE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine/files/mapped_file.h"

/* Of offsets, lengths and memory: what every disk takes. */
enum { LAR_DIRECT_ALIGN = 4096 };

typedef struct lar_direct_file {
    int fd;
    const char *name; /* borrowed from the view */
    /* The file system takes no direct reads: pages are read through its cache and given back at once. */
    atomic_bool buffered;
} lar_direct_file;

/* Opens `path` once more. NOT_FOUND, IO: it cannot be opened, or is no longer the file that `mapped` is a mapping of.
 * Embedded, closed by the caller. */
LAR_MUST_USE lar_error lar_direct_file_open(const char *path, const lar_file_view *mapped, lar_direct_file *out,
                                            lar_diag *d);
void lar_direct_file_close(lar_direct_file *f);

/* Bytes of memory that reading `bytes` from any offset needs. */
uint64_t lar_direct_room(uint64_t bytes);

typedef struct lar_direct_range {
    uint64_t offset, bytes;
} lar_direct_range;
/* Reads the range into `memory`, lar_direct_room() bytes aligned to LAR_DIRECT_ALIGN; *first: its first byte there. IO,
 * with the file's name and the cause; also where the file has become shorter. Several threads may read one file. */
LAR_MUST_USE lar_error lar_direct_file_read(lar_direct_file *f, const lar_direct_range *range, void *memory,
                                            const uint8_t **first, lar_diag *d);

/* Lets go of pages of the mapping that hold nothing but bytes of `range`, in this program and in the page cache. */
void lar_direct_file_forget(const lar_direct_file *f, const lar_file_view *mapped, const lar_direct_range *range);

#endif
